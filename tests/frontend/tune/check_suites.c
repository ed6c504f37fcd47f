/* Suites: that each is read, that three are what the compiler makes of the models, and a run of a
 * list from the command line with its records. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/tune/gemms.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#include <jansson.h>

static void setup(void)
{
    f8_cli_setup();
    setenv("FP8C_TUNING", f8_cli_temp("tuning.db"), 1);
}

static f8_tune_gemms suite(fp8c_context *ctx, const char *name)
{
    f8_tune_gemms list;
    const f8_tune_sources from = {.suite = &name, .n_suites = 1};
    ck_assert_msg(f8_tune_gather(ctx, &from, &list) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return list;
}

/* ---- what they hold ---- */

/* Multiply-adds of a step: of a model each parameter that a token passes takes three for a token,
 * fprop, dgrad and wgrad. */
static const struct {
    const char *name;
    double tokens, parameters;
} suites[] = {
    {"gpt2-124m", 8192, 12. * 12 * 768 * 768 + 768. * 50264},
    {"mpt-1b", 16384, 24. * 12 * 2048 * 2048 + 2048. * 50368},
    {"llama3-8b", 8192,
     32. * (2. * 4096 * 4096 + 2. * 4096 * 1024 + 3. * 4096 * 14336) + 4096. * 128256},
    {"llama3-70b", 8192,
     80. * (2. * 8192 * 8192 + 2. * 8192 * 1024 + 3. * 8192 * 28672) + 8192. * 128256},
    {"deepseek-v3", 4096,
     61. * (7168. * 2112 + 1536. * 24576 + 512. * 32768 + 16384. * 7168) + 3. * 3 * 7168 * 18432 +
         58. * ((8 + 1) * 3. * 7168 * 2048 + 7168. * 256) + 7168. * 129280},
};

START_TEST(sums)
{
    fp8c_context *ctx = new_context();
    f8_tune_gemms list = suite(ctx, suites[_i].name);
    double sum = 0;
    for (size_t i = 0; i < list.n; i++) {
        const f8_tune_gemm *g = &list.gemm[i];
        sum += (double)g->m * (double)g->n * (double)g->k * (double)g->count;
        ck_assert(*g->name);
        for (size_t j = 0; j < i; j++) {
            char text[2][F8_TUNE_GEMM_TEXT];
            ck_assert_str_ne(f8_tune_gemm_text(g, text[0]),
                             f8_tune_gemm_text(&list.gemm[j], text[1]));
        }
    }
    ck_assert_double_eq(sum, 3 * suites[_i].tokens * suites[_i].parameters);
    f8_arena_end(&list.arena);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Models that are here as texts. The suite of GPT-2 pads the head. */
static const struct {
    const char *name, *file;
    fp8c_dim dim;
    int64_t vocabulary, padded;
} models[] = {
    {"gpt2-124m", "frontend/models/gpt2_124m.f8", {"B", 8}, 50257, 50264},
    {"mpt-1b", "frontend/models/mpt_1b.f8", {"B", 8}, 50368, 50368},
    {"llama3-8b", "frontend/models/llama3_8b_block.f8", {"L", 32}, 128256, 128256},
};

/* Whether a decision of the compiler is the GEMM of the suite. Decisions name x before dy, in
 * whichever order the wgrad multiplies them; check_module says which that is. */
static bool is_it(const fp8c_decision *d, const f8_tune_gemm *g, int index)
{
    const int64_t v = models[index].vocabulary, padded = models[index].padded;
    const char *a = f8_dtype_name(g->a), *b = f8_dtype_name(g->b);
    const bool formats = !strcmp(d->format_a, a) && !strcmp(d->format_b, b),
               turned = !strcmp(d->format_a, b) && !strcmp(d->format_b, a);
    return g->m == (d->m == v ? padded : d->m) && g->n == (d->n == v ? padded : d->n) &&
           g->k == (d->k == v ? padded : d->k) &&
           !strcmp(d->role, f8_tune_word(F8_TUNE_ROLE, g->how[F8_TUNE_ROLE])) &&
           (formats || (turned && !strcmp(d->role, "wgrad")));
}

/* Fails unless the GEMM's module has a GEMM of the program, to the last stride. */
static void check_module(fp8c_context *ctx, const f8_tune_gemm *g, const fp8c_program *p,
                         fp8c_compile_options o)
{
    fp8c_module *m;
    fp8c_choice own, of;
    bool found = false;
    ck_assert_int_eq(f8_tune_gemm_module(ctx, g, 1, &m), FP8C_OK);
    o.recipe = "f32";
    o.inference = 1;
    fp8c_program *q = compile(ctx, m, &o);
    for (int i = 0; fp8c_program_choice(q, i, &own) == FP8C_OK && !own.gemm; i++)
        ;
    for (int i = 0; fp8c_program_choice(p, i, &of) == FP8C_OK; i++)
        found |= !strcmp(of.problem, own.problem);
    ck_assert_msg(found, "%s", own.problem);
    fp8c_program_destroy(q);
    fp8c_module_destroy(m);
}

/* The suite has the GEMMs of the model's text with their counts, and what is timed of each is a
 * GEMM of the model's plan, but for a wgrad of the padded head, which the compiler cuts. */
START_TEST(as_compiled)
{
    fp8c_context *ctx = new_context();
    f8_tune_gemms list = suite(ctx, models[_i].name);
    size_t n;
    char *text = f8_cli_read(models[_i].file, &n);
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .target = "sm_90a",
                                    .recipe = "current",
                                    .no_device = 1,
                                    .text_only = 1};
    fp8c_module *m;
    fp8c_decision d;
    int64_t count[32] = {0};
    ck_assert_uint_le(list.n, 32);
    ck_assert_msg(fp8c_module_parse(ctx, text, n, "model", &models[_i].dim, 1, &m) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_program *p = compile(ctx, m, &o);
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++) {
        bool found = false;
        for (size_t k = 0; k < list.n && !found; k++)
            if ((found = is_it(&d, &list.gemm[k], _i)))
                count[k] += d.count;
        ck_assert_msg(found, "%s %s", d.linear, d.role);
    }
    for (size_t k = 0; k < list.n; k++) {
        const f8_tune_gemm *g = &list.gemm[k];
        ck_assert_int_eq(count[k], g->count);
        if (g->m != models[_i].padded || g->m == models[_i].vocabulary)
            check_module(ctx, g, p, o);
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    f8_arena_end(&list.arena);
    fp8c_context_destroy(ctx);
    free(text);
}
END_TEST

/* ---- the command ---- */

static const char *text_of(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

static double number_of(const json_t *record, const char *key)
{
    return json_number_value(json_object_get(record, key));
}

static const char small[] = "# a suite\nm,n,k,format,scaling,role,epilogue,count,name\n"
                            "64,32,48,bf16,,fprop,bf16,3,first\n"
                            "64,48,32,f8e5m2xf8e4m3,row,dgrad,bf16,4,second\n"
                            "2000000000,2000000000,2,f32,,,,5,third\n";

/* Every GEMM has a record, with its count and what came of it; the headline sums them up. */
START_TEST(a_run)
{
    const char *file = f8_cli_write("small.csv", small, strlen(small));
    char *records = strdup(f8_cli_temp("records.jsonl"));
    f8_cli_use_small_caches();
    f8_cli_ok(F8_CLI("tune", "--gemm", "16,32x16x16:f32", "--suite", file, "--runs", "1",
                     "--processes", "1", "--threads", "1", "--json", records));
    static const struct {
        const char *problem, *name, *state;
        int count;
    } expected[] = {{"16x16x16:f32", "", "timed", 1},
                    {"32x16x16:f32", "", "timed", 1},
                    {"64x32x48:bf16:fprop:bf16", "first", "timed", 3},
                    {"64x48x32:f8e5m2xf8e4m3:row:dgrad:bf16", "second", "timed", 4},
                    {"2000000000x2000000000x2:f32", "third", "lacking", 5}};
    FILE *in = fopen(records, "r");
    ck_assert_ptr_nonnull(in);
    free(records);
    size_t n = 0;
    bool ended = false;
    double seconds = 0;
    for (json_t *x; (x = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL)); json_decref(x))
        if (!strcmp(text_of(x, "event"), "timing") && !strcmp(text_of(x, "kind"), "model")) {
            ck_assert_uint_lt(n, sizeof expected / sizeof *expected);
            const bool timed = !strcmp(expected[n].state, "timed");
            ck_assert_str_eq(text_of(x, "problem"), expected[n].problem);
            ck_assert_str_eq(text_of(x, "name"), expected[n].name);
            ck_assert_str_eq(text_of(x, "state"), expected[n].state);
            ck_assert_int_eq((int)number_of(x, "count"), expected[n].count);
            ck_assert_int_eq(timed, number_of(x, "median") > 0);
            if (!timed)
                ck_assert_ptr_nonnull(strstr(text_of(x, "reason"), "needs 14901161223.6 GiB"));
            seconds += number_of(x, "median") * expected[n++].count;
        } else if (!strcmp(text_of(x, "event"), "headline")) {
            ended = true;
            ck_assert_int_eq((int)number_of(x, "problems"), 5);
            ck_assert_int_eq((int)number_of(x, "timed"), 4);
            ck_assert_int_eq((int)number_of(x, "lacking"), 1);
            ck_assert_double_eq_tol(number_of(x, "model"), seconds, 1e-12);
        }
    fclose(in);
    ck_assert(ended && n == 5);
}
END_TEST

START_TEST(bad_runs)
{
    const char *file = f8_cli_write("bad.csv", "m,n,k,format\n1,2,0,f32\n", 23);
    char *records = strdup(f8_cli_temp("records.jsonl"));
    f8_cli_fails(F8_CLI("tune", "--gemm-file", file, "--json", records), 1,
                 "bad.csv:2:5: error: k: '0' is not a whole number from 1 to 2147483647");
    f8_cli_fails(F8_CLI("tune", "--gemm", "16x16x16:f32", "--gemm", "16x0x16:f32"), 1,
                 "at character 4, 0 is not a size");
    f8_cli_fails(
        F8_CLI("tune", "--gemm", "2000000000x2000000000x2:f32"), 1,
        "error: GEMM 2000000000x2000000000x2:f32 needs 14901161223.6 GiB for its operands");
    f8_cli_fails(F8_CLI("tune", "--suite", "gpt2-124"), 1,
                 "no suite 'gpt2-124' (did you mean 'gpt2-124m'?): there are deepseek-v3, "
                 "gpt2-124m, llama3-70b, llama3-8b, mpt-1b");
    f8_cli_fails(F8_CLI("tune", "--suite", "./none.csv"), 1, "none.csv: error: No such file");
    ck_assert_int_eq(access(f8_cli_temp("tuning.db"), F_OK), -1); /* nothing was begun */
    size_t n;
    free(f8_cli_read(records, &n));
    ck_assert_uint_eq(n, 0);
    free(records);
}
END_TEST

/* Kernels by name, and no GEMM. */
START_TEST(kernels)
{
    const char *file = f8_cli_write("tiny.f8", model, strlen(model));
    f8_cli_result r = F8_CLI("tune", file, "--kernels", "opt.*", "--runs", "1", "--json", "-");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "\"problem\":\"rows "));
    ck_assert_ptr_null(strstr(r.out, "\"problem\":\"gemm "));
    f8_cli_fails(F8_CLI("tune", file, "--kernels", "nothing"), 1,
                 "no row kernel and no attention of a step is named 'nothing'");
    f8_cli_fails(F8_CLI("tune", file, "--kernels", "*", "--only", "*"), 1,
                 "`only` names steps of all kinds, `kernels` kernels alone: give one of them");
    f8_cli_fails(F8_CLI("tune", "--gemm", "1x1x1:f32", "--kernels", "*"), 2,
                 "with --gemm, --gemm-file and --suite, tune does not use '--kernels'");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("suites");
    TCase *t = tcase_create("suites");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_loop_test(t, sums, 0, (int)(sizeof suites / sizeof *suites));
    tcase_add_loop_test(t, as_compiled, 0, (int)(sizeof models / sizeof *models));
    tcase_add_test(t, a_run);
    tcase_add_test(t, bad_runs);
    tcase_add_test(t, kernels);
    suite_add_tcase(s, t);
    return s;
}
