#include "tests/shared/api/report_case.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/figures.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/random.h"

enum { PATH = 4096 };

static FILE *open_in(const char *folder, const char *name, const char *mode)
{
    char path[PATH + 100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *to = fopen(path, mode);
    ck_assert_msg(to != NULL, "%s", path);
    return to;
}

void f8_report_case_put(const char *folder, const char *name, const char *text, bool append)
{
    FILE *to = open_in(folder, name, append ? "a" : "w");
    ck_assert(fputs(text, to) >= 0 && fclose(to) == 0);
}

/* Around 1, within a fifth. */
static double scatter(uint32_t *r)
{
    return 0.8 + 0.4 * test_random(r) / (1 << 24);
}

static void write_tensor(FILE *to, const f8_report_case *c, uint32_t *r, int step,
                         const char *linear, const char *operand)
{
    char name[200];
    const bool result = !strcmp(operand, "y"), what_if = !strcmp(c->recipe, "bf16");
    snprintf(name, sizeof name, "%s.%s%s", linear, operand, what_if && !result ? "@current" : "");
    const bool bad = c->bad_from && !strcmp(name, F8_REPORT_BAD) && step >= c->bad_from &&
                     (!c->bad_for || step < c->bad_from + c->bad_for);
    const double amax = (bad ? 300 : 5) * scatter(r);
    fprintf(to,
            "{\"event\":\"stats\",\"recipe\":\"%s\",\"seed\":1,\"step\":%d,\"tensor\":\"%s\","
            "\"linear\":\"%s\",\"operand\":\"%s\",\"quantized\":\"%s\",\"what_if\":%s,"
            "\"elements\":4096,\"amin\":%.6g,\"amax\":%.6g,\"nonfinite\":0,\"range\":%.6g,",
            c->recipe, step, name, linear, operand,
            result    ? ""
            : what_if ? "current"
                      : "delayed",
            what_if && !result ? "true" : "false", 1e-6 * scatter(r), amax, 22 * scatter(r));
    if (result) {
        fprintf(to, "\"format\":null,\"underflow\":null,\"mse\":null,\"scale\":null}\n");
        return;
    }
    char text[400], key[80];
    snprintf(text, sizeof text,
             "\"format\":\"f8e4m3\",\"granularity\":\"tensor\",\"underflow\":%.6g,"
             "\"overflow\":0.0,\"mse\":%.6g,\"cosine\":0.9995,\"sqnr\":%.6g,\"scale\":%.6g,"
             "\"scale_wanted\":%.6g,\"used\":0.75",
             (bad ? 0.8 : 0.01) * scatter(r), (bad ? 1e3 : 1e-2) * scatter(r),
             (bad ? 4 : 30) * scatter(r), 80 * scatter(r), 448 / amax);
    fputs(text, to);
    for (int i = 0; i < F8_FIGURES; i++) { /* those that a row has added since */
        snprintf(key, sizeof key, "\"%s\":", f8_figures[i].name);
        if (!strstr(text, key) && !strstr("\"amin\":\"amax\":\"nonfinite\":\"range\":", key))
            fprintf(to, ",%s1.0", key);
    }
    fputs("}\n", to);
}

static void write_stats(FILE *to, const f8_report_case *c, uint32_t *r, int step)
{
    static const char *const linears[] = {"attn", "mlp"}, *const operands[] = {"x", "w", "dy", "y"};
    char linear[150];
    for (int l = 0; l < c->layers; l++)
        for (int i = 0; i < 2; i++)
            for (int o = 0; o < 4; o++) {
                snprintf(linear, sizeof linear, "%s.%d.%s", c->prefix ? c->prefix : "h", l,
                         linears[i]);
                write_tensor(to, c, r, step, linear, operands[o]);
            }
}

static void write_steps(FILE *to, const f8_report_case *c)
{
    uint32_t own = c->seed, figures = c->seed + 1;
    for (int s = 1; s <= c->steps; s++) {
        uint32_t shared = (uint32_t)s * 7919; /* all runs see the same data */
        double loss = 2 + 3 * exp(-s / 40.0) + 0.1 * scatter(&shared) + 1e-3 * scatter(&own);
        if (c->every && s % c->every == 0)
            write_stats(to, c, &figures, s);
        if (c->loss_from && s >= c->loss_from)
            loss += 0.2 + 0.01 * (s - c->loss_from);
        fprintf(to,
                "{\"event\":\"step\",\"recipe\":\"%s\",\"seed\":1,\"step\":%d,\"loss\":%.9g,"
                "\"grad_norm\":%.6g,\"lr\":0.0003,\"skipped\":false,\"tokens_per_second\":1000}\n",
                c->recipe, s, loss, scatter(&own));
        if (s % 50 == 0)
            fprintf(to,
                    "{\"event\":\"eval\",\"recipe\":\"%s\",\"seed\":1,\"step\":%d,\"loss\":%.9g,"
                    "\"batches\":16}\n",
                    c->recipe, s, loss);
    }
}

static void write_info(FILE *to, const f8_report_case *c)
{
    fprintf(
        to,
        "{\"format\":\"fp8c run\",\"version\":1,\"begun\":\"2026-01-02T03:04:05Z\",\"versions\":"
        "{\"fp8c\":\"%s\"},\"file\":\"gpt.f8\",\"module\":\"0\",\"recipe\":\"%s\",\"target\":"
        "\"cpu\",\"device\":null,\"options\":{\"--steps\":%d},\"resolved\":{},\"data\":{},"
        "\"resumed\":[]}",
        fp8c_version(), c->recipe, c->steps);
}

const char *f8_report_case_write(const char *name, const f8_report_case *c)
{
    static char path[4][PATH];
    static int turn;
    char *folder = path[turn = (turn + 1) % 4];
    snprintf(folder, PATH, "%s", f8_cli_temp(name));
    f8_cli_forget(folder);
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    FILE *to = open_in(folder, "run.json", "w");
    write_info(to, c);
    fclose(to);
    write_steps(to = open_in(folder, "steps.jsonl", "w"), c);
    fclose(to);
    f8_report_case_put(
        folder, "decisions.jsonl",
        "{\"event\":\"decision\",\"gemm\":\"h.0.attn\",\"role\":\"fprop\",\"format\":"
        "[\"f8e4m3\",\"f8e4m3\"],\"scaling\":\"delayed\",\"reason\":\"a rule\",\"m\":1,"
        "\"n\":2,\"k\":3,\"count\":1,\"fp8\":true}\n",
        false);
    return folder;
}
