/* Codes of weights that are kept between steps: whether they are kept changes no bit of anything
 * else, and they are at all times those that `prepare` makes. */
#include "tests/shared/api/cli.h"
#include "tests/shared/api/codes_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* ---- recipes ---- */

/* What is compiled, and whether it keeps codes. */
typedef struct way {
    const char *recipe;
    bool keeps;
    const char *rules[3];
} way;

static const way ways[] = {
    {"delayed", true, {0}},
    {"delayed {amax = most_recent}", true, {0}},
    {"delayed {history = 1}", true, {0}},
    {"delayed {pow2 = true, margin = 1}", true, {0}},
    {"delayed {format = e4m3, history = 3}", true, {0}},
    {"block", true, {0}},
    {"block {pow2 = true}", true, {0}},
    {"current", false, {0}},
    {"rowwise", false, {0}},
    {"mxfp8", false, {0}},
    {"fake", false, {0}},
    {"bf16", false, {0}},
    /* one weight under several recipes */
    {"delayed", true, {"\"two\" = block", "\"head\" = bf16"}},
    {"delayed", true, {"\"two\" = current", "\"head\" = rowwise"}},
    {"block", true, {"\"one\" = mxfp8", "\"head\" = delayed {margin = 2}"}},
    {"delayed", true, {"\"two\" = delayed {history = 2, pow2 = true}", "\"up\" dgrad = bf16"}},
    {"current", true, {"\"one\" = delayed", "\"down\" w = delayed"}},
    {"delayed", true, {"\"one\" fprop = bf16", "\"two\" wgrad = bf16"}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void trains(const way *w, codes_setup s, int vocabulary, int updates)
{
    s.options.recipe = w->recipe;
    for (int i = 0; i < 3; i++)
        s.rules[i] = w->rules[i];
    codes_twins t = codes_open(&s);
    char what[128];
    snprintf(what, sizeof what, "%s, %s, %s", s.options.target, w->recipe,
             w->rules[0] ? w->rules[0] : "no rule");
    ck_assert_int_eq(codes_kept(t.p[1]), 0);
    const int kept = codes_train(&t, vocabulary, updates, what);
    ck_assert_msg((kept > 0) == w->keeps, "%s keeps %d", what, kept);
    ck_assert_int_eq(kept, codes_kept(t.p[0]));
    codes_close(&t);
}

START_TEST(on_a_cpu)
{
    trains(&ways[_i], (codes_setup){.options = {.target = "cpu", .threads = 1}}, 32, 4);
}
END_TEST

START_TEST(interpreted)
{
    trains(&ways[_i], (codes_setup){.options = {.target = "reference"}}, 32, 3);
}
END_TEST

/* The target `cuda` is the emulator's sm_90a: there GEMMs want k contiguous, so that transposed
 * codes are kept, too. Some of the ways: most of the time goes into compiling. */
static const int gpu_ways[] = {0, 5, 13};
enum { GPU_WAYS = sizeof gpu_ways / sizeof *gpu_ways };

START_TEST(on_a_gpu)
{
    trains(&ways[gpu_ways[_i]], (codes_setup){.options = {.target = "cuda"}}, 32, 2);
}
END_TEST

/* ---- settings ---- */

/* A GPT with parameters in bf16, a head whose rows are padded, and one of 12 layers. */
static const char narrow[] =
    "module narrow\n"
    "dim N = 7\n"
    "param wte: bf16[32, 48] normal(0.5)\n"
    "param up: bf16[48, 80] normal(0.1)\n"
    "param down: bf16[80, 48] zeros\n"
    "func forward(%tokens: i32[N], %targets: i32[N]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %h = add(%x, linear(gelu(linear(%x, up)), down))\n"
    "  return cross_entropy(linear(%h, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.02, weight_decay = 0.1, clip = 1}\n";

static const fp8c_dim one_row[] = {{"N", 1}}, odd[] = {{"N", 13}, {"C", 37}, {"F", 51}, {"V", 29}},
                      gpt[] = {{"B", 2}, {"T", 16}, {"C", 64}, {"H", 2}, {"L", 2}},
                      deep[] = {{"B", 1}, {"T", 16}, {"C", 32}, {"H", 2}, {"L", 12}, {"V", 50}},
                      wide_head[] = {{"B", 1}, {"T", 16}, {"C", 32},
                                     {"H", 2}, {"L", 1},  {"V", 257}};

typedef struct setting {
    const char *text; /* a file if it begins with "frontend/" */
    const fp8c_dim *dims;
    size_t n_dims;
    const char *target, *recipe, *rule;
    int32_t threads, no_fuse;
    double share;
    const char *checkpoint, *recompute;
    int vocabulary, updates;
} setting;

#define DIMS(d) d, sizeof d / sizeof *d
#define GPT "frontend/models/gpt.f8"
#define HEAD "\"lm_head\" = delayed"
static const setting settings[] = {
    {codes_text, DIMS(one_row), "cpu", "delayed", NULL, 1, 0, 0, NULL, NULL, 32, 4},
    {codes_text, DIMS(one_row), "cuda", "delayed", NULL, 1, 0, 0, NULL, NULL, 32, 2},
    {codes_text, DIMS(odd), "cpu", "delayed", NULL, 3, 0, 0, NULL, NULL, 29, 4},
    {codes_text, DIMS(odd), "cpu", "block", NULL, 3, 0, 0, NULL, NULL, 29, 4},
    {codes_text, DIMS(odd), "reference", "delayed", NULL, 1, 0, 0, NULL, NULL, 29, 3},
    {codes_text, NULL, 0, "cpu", "delayed", NULL, 1, 1, 0, NULL, NULL, 32, 4},
    {codes_text, NULL, 0, "cpu", "block", NULL, 3, 1, 0, NULL, NULL, 32, 4},
    {narrow, NULL, 0, "cpu", "delayed", NULL, 1, 0, 0, NULL, NULL, 32, 4},
    {narrow, NULL, 0, "cpu", "block", NULL, 1, 0, 0, NULL, NULL, 32, 4},
    {narrow, NULL, 0, "cuda", "delayed", NULL, 1, 0, 0, NULL, NULL, 32, 2},
    {GPT, DIMS(gpt), "cpu", "delayed", HEAD, 3, 0, 0.5, NULL, NULL, 256, 4},
    {GPT, DIMS(gpt), "cpu", "block", HEAD, 1, 0, 0.5, NULL, NULL, 256, 3},
    {GPT, DIMS(gpt), "cpu", "delayed", NULL, 1, 0, 0, "*", "*", 256, 3},
    {GPT, DIMS(gpt), "cuda", "delayed", HEAD, 1, 0, 0.5, NULL, NULL, 256, 2},
    {GPT, DIMS(deep), "cpu", "delayed", NULL, 1, 0, 0, NULL, NULL, 50, 3},
    {GPT, DIMS(wide_head), "cpu", "delayed", HEAD, 1, 0, 0, NULL, NULL, 257, 3},
    {GPT, DIMS(wide_head), "cpu", "block", "\"lm_head\" = block", 1, 0, 0, NULL, NULL, 257, 3},
    {GPT, DIMS(wide_head), "cuda", "delayed", NULL, 1, 0, 0, NULL, NULL, 257, 2},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

START_TEST(settings_agree)
{
    const setting *x = &settings[_i];
    const bool is_file = !strncmp(x->text, "frontend/", 9);
    size_t size;
    char *text = is_file ? f8_cli_read(x->text, &size) : strdup(x->text);
    const codes_setup s = {.text = text,
                           .rules = {x->rule},
                           .dims = x->dims,
                           .n_dims = x->n_dims,
                           .options = {.target = x->target,
                                       .recipe = x->recipe,
                                       .threads = x->threads,
                                       .no_fuse = x->no_fuse,
                                       .memory_share = x->share,
                                       .checkpoint = x->checkpoint,
                                       .recompute = x->recompute}};
    char what[64];
    snprintf(what, sizeof what, "setting %d", _i);
    codes_twins t = codes_open(&s);
    if (x->share > 0) { /* a budget leaves no room for codes: compared with a program without one */
        codes_setup free_of = s;
        free_of.options.memory_share = 0;
        ck_assert_int_eq(codes_kept(t.p[0]), 0);
        fp8c_program_destroy(t.p[0]);
        t.p[0] = codes_compile(t.ctx, &free_of, 0);
        codes_must(&t, fp8c_program_initialize(t.p[0], 1), "initialize");
    }
    if (x->share > 0 || x->checkpoint) {
        fp8c_remat remat = {.struct_size = sizeof remat};
        fp8c_program_remat(t.p[1], 0, 0, &remat);
        ck_assert_int_gt(remat.recomputed, 0);
    }
    ck_assert_int_gt(codes_train(&t, x->vocabulary, x->updates, what), 0);
    codes_close(&t);
    free(text);
}
END_TEST

/* ---- what is looked at ---- */

/* Statistics and dumps show weights' codes and scales as they are without states. */
START_TEST(looked_at)
{
    const codes_setup s = {.options = {.target = _i / 2 ? "reference" : "cpu",
                                       .recipe = _i % 2 ? "block" : "delayed",
                                       .threads = 1,
                                       .stats = "*",
                                       .dump = "*"}};
    codes_twins t = codes_open(&s);
    ck_assert_int_ge(fp8c_program_find_port(t.p[0],
                                            fp8c_program_function(t.p[0], "micro_step.dump"),
                                            FP8C_OUTPUT, _i % 2 ? "up.w.128x128" : "up.w"),
                     0);
    for (int k = 0; k < 3; k++) {
        codes_step(&t, "micro_step.dump", 32, k, "a dump");
        codes_step(&t, "micro_step", 32, k + 9, "statistics");
        codes_same_variables(&t, "what is looked at");
        codes_run(&t, "update");
        ck_assert_int_gt(codes_are_right(&t, "what is looked at"), 0);
    }
    codes_close(&t);
}
END_TEST

/* ---- who keeps none ---- */

/* A pair's optimizer is the caller's, and a program for inference has no update. */
START_TEST(nobody_else)
{
    fp8c_context *ctx = new_context();
    codes_setup s = {.options = {.target = "cpu", .recipe = _i % 2 ? "block" : "delayed"}};
    s.options.pair = _i / 2 == 0 || _i / 2 == 1;
    s.options.train_step = _i / 2 == 1;
    s.options.inference = _i / 2 == 2;
    fp8c_program *p = codes_compile(ctx, &s, 0);
    fp8c_variable v;
    int n = 0;
    for (; fp8c_program_variable(p, n, &v) == FP8C_OK; n++)
        ck_assert_msg(!is_weight_codes(v.name), "%s", v.name);
    ck_assert_int_gt(n, 5);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    const bool emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("codes");
    TCase *t = tcase_create("codes");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, on_a_cpu, 0, WAYS);
    tcase_add_loop_test(t, interpreted, 0, WAYS);
    tcase_add_loop_test(t, on_a_gpu, 0, emulated ? GPU_WAYS : 0);
    tcase_add_loop_test(t, settings_agree, 0, SETTINGS);
    tcase_add_loop_test(t, looked_at, 0, 4);
    tcase_add_loop_test(t, nobody_else, 0, 6);
    suite_add_tcase(s, t);
    return s;
}
