/* Calibration for recipe auto: a few batches of --data run through the model in bf16, and
 * fp8c_calibration_* observes them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"

enum { DEFAULT_BATCHES = 2 };

bool cli_is_auto(const char *recipe)
{
    return recipe && !strcmp(recipe, "auto");
}

bool cli_refuses_auto(const cli *c, const char *recipe)
{
    if (!cli_is_auto(recipe))
        return false;
    fprintf(stderr,
            "fp8c %s: only train and explain take recipe auto: add the lines that they write with "
            "--write-rules to the text, and give another recipe here\n",
            c->command);
    return true;
}

static fp8c_status observe(const cli *c, fp8c_calibration *calibration, f8_data *data, int step)
{
    fp8c_program *p = fp8c_calibration_program(calibration);
    const int64_t batches = c->calibrate ? c->calibrate : DEFAULT_BATCHES;
    fp8c_status status = fp8c_program_initialize(p, c->seed);
    for (int64_t i = 0; i < batches && status == FP8C_OK; i++) {
        if (!cli_data_fill(data, p, step, c->seed, (uint64_t)i))
            return FP8C_ERR_IO;
        status = cli_interrupted() ? FP8C_ERR_CANCELLED : fp8c_program_run(p, step);
        if (status == FP8C_OK)
            status = fp8c_calibration_observe(calibration);
    }
    return status;
}

/* Writes the rules to the FILE of --write-rules; `-` is stdout. */
static bool write_rules(const cli *c, fp8c_context *ctx, const fp8c_calibration *calibration)
{
    if (!c->write_rules)
        return true;
    cli_text text;
    cli_text_open(&text, c->write_rules);
    const bool whole =
        text.to && fp8c_calibration_rules(calibration, cli_write_file, text.to) == FP8C_OK;
    if (text.to && !whole && !ferror(text.to))
        cli_fail(ctx);
    return cli_text_end(&text, whole) && whole;
}

fp8c_calibration *cli_calibrate(const cli *c, fp8c_context *ctx, const fp8c_module *module,
                                const fp8c_compile_options *options, f8_data *data)
{
    fp8c_calibration *calibration;
    if (fp8c_calibration_create(module, options, c->budget, &calibration) != FP8C_OK) {
        cli_fail(ctx);
        return NULL;
    }
    fp8c_program *p = fp8c_calibration_program(calibration);
    const int step = fp8c_program_function(p, "micro_step");
    bool ok = cli_data_fit(data, module, p, step);
    if (ok && observe(c, calibration, data, step) != FP8C_OK) {
        if (!data->failed)
            cli_fail(ctx);
        ok = false;
    }
    if (ok && write_rules(c, ctx, calibration))
        return calibration;
    fp8c_calibration_destroy(calibration);
    return NULL;
}

bool cli_take_rules(fp8c_context *ctx, fp8c_module *module, const fp8c_calibration *calibration)
{
    static const char word[] = "recipe ";
    char *text = NULL, *save;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    bool ok = to && fp8c_calibration_rules(calibration, cli_write_file, to) == FP8C_OK;
    ok = to && !fclose(to) && ok;
    for (char *line = ok ? strtok_r(text, "\n", &save) : NULL; line && ok;
         line = strtok_r(NULL, "\n", &save))
        ok = fp8c_module_rule(module, line + sizeof word - 1, "recipe auto") == FP8C_OK;
    free(text);
    return ok || cli_fail(ctx) == CLI_DONE;
}

/* ---- what explain shows of a calibration ---- */

static void print_candidate(FILE *to, cli_json *json, const fp8c_trial *t, const fp8c_candidate *k,
                            bool won)
{
    if (to && k->excluded)
        fprintf(to, "    %-8s is excluded: %s\n", k->recipe, k->excluded);
    else if (to && k->error > 0)
        fprintf(to, "  %s %-8s %7.2f%% %8.1f %8.1f %9.2f%% %9.2f%% %10.2f %10.2f\n",
                won ? "*" : " ", k->recipe, 100 * k->error, k->sqnr[0], k->sqnr[1],
                100 * k->underflow[0], 100 * k->underflow[1], 1e6 * k->seconds,
                1e6 * k->gemm_seconds);
    else if (to)
        fprintf(to, "  %s %-8s %8s %8s %8s %10s %10s %10.2f %10.2f\n", won ? "*" : " ", k->recipe,
                "-", "-", "-", "-", "-", 1e6 * k->seconds, 1e6 * k->gemm_seconds);
    cli_json_record(
        json,
        json_pack("{ss ss ss ss ss? so s[oo] s[oo] s[oo] sf sf sf sb}", "event", "candidate",
                  "gemm", t->linear, "role", t->role, "recipe", k->recipe, "excluded", k->excluded,
                  "error", cli_json_number(k->error), "sqnr", cli_json_number(k->sqnr[0]),
                  cli_json_number(k->sqnr[1]), "underflow", cli_json_number(k->underflow[0]),
                  cli_json_number(k->underflow[1]), "overflow", cli_json_number(k->overflow[0]),
                  cli_json_number(k->overflow[1]), "seconds", k->seconds, "gemm_seconds",
                  k->gemm_seconds, "bytes", k->bytes, "winner", (int)won));
}

void cli_print_trials(const fp8c_calibration *calibration, FILE *to, cli_json *json)
{
    fp8c_trial t;
    fp8c_candidate k;
    if (to)
        fprintf(to, "%-12s %8s %17s %21s %21s\n", "candidates", "error", "SQNR a, b (dB)",
                "underflow a, b", "estimated us, GEMM");
    for (int i = 0; fp8c_calibration_trial(calibration, i, &t) == FP8C_OK; i++) {
        if (to)
            fprintf(to, "%s %s, %" PRId64 "x%" PRId64 "x%" PRId64 ": %s\n", t.linear, t.role, t.m,
                    t.n, t.k, t.reason);
        for (int c = 0; fp8c_calibration_candidate(calibration, i, c, &k) == FP8C_OK; c++)
            if (!t.fixed)
                print_candidate(to, json, &t, &k, c == t.winner);
    }
    if (to)
        fprintf(to, "\n");
}
