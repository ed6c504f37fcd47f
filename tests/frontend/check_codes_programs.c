/* Codes of weights in programs that are more than one plan, or more than one program: dims that are
 * bounds, .f8x files, variables that two programs share, files that one writes and the other reads,
 * programs whose run failed, and runs that somebody watches. */
#include "tests/shared/api/cli.h"
#include "tests/shared/api/codes_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { VOCABULARY = 32 };

static const char *const recipes[] = {"delayed", "block"};
static const char *const targets[] = {"cpu", "reference", "cuda"};
static int n_targets; /* the last is the emulator's */

/* Every weight of a program times a factor, and nobody says so but by writing. */
static void write_weights(const codes_twins *t, float factor)
{
    fp8c_variable v;
    for (int k = 0; k < 2; k++)
        for (int i = 0; fp8c_program_variable(t->p[k], i, &v) == FP8C_OK; i++) {
            size_t bytes;
            if (!v.is_param || v.type.rank < 2)
                continue;
            float *w = codes_read(t, t->p[k], v.name, &bytes);
            for (size_t j = 0; j < bytes / sizeof *w; j++)
                w[j] *= factor;
            codes_must(t, fp8c_program_write(t->p[k], i, w), v.name);
            free(w);
        }
}

/* ---- dims that are bounds ---- */

/* All values of a bound share variables, codes among them: weights are written at one value, and
 * another one runs. */
START_TEST(bounds)
{
    static const int64_t order[] = {6, 1, 4, 1, 3, 6, 2, 5};
    static const fp8c_dim dims[] = {{"E", 2}, {"F", 1}};
    const char *target = targets[_i / 2];
    size_t size;
    char *text = f8_cli_read("tests/models/bounds.f8", &size), what[128];
    const codes_setup s = {.text = text,
                           .dims = dims,
                           .n_dims = 2,
                           .options = {.target = target, .recipe = recipes[_i % 2], .threads = 1}};
    codes_twins t = codes_open(&s);
    ck_assert_int_gt(codes_kept(t.p[0]), 0);
    for (size_t i = 0; i < (strcmp(target, "cuda") ? 8 : 3); i++) {
        snprintf(what, sizeof what, "%s, %s, B = %d", target, recipes[_i % 2], (int)order[i]);
        if (i % 3 == 1)
            write_weights(&t, 1.5f);
        for (int k = 0; k < 2; k++)
            codes_must(&t, fp8c_program_set_dim(t.p[k], "B", order[i]), what);
        if (i % 3 == 2)
            write_weights(&t, 0.5f);
        codes_step(&t, "eval", VOCABULARY, (int)i, what);
        codes_step(&t, "micro_step", VOCABULARY, (int)i, what);
        codes_run(&t, "update");
        codes_same_variables(&t, what);
    }
    codes_close(&t);
    free(text);
}
END_TEST

/* ---- files ---- */

/* A program from a .f8x file keeps codes, and knows when they are stale, as one that was compiled.
 */
START_TEST(compiled_file)
{
    const char *recipe_text = recipes[_i % 2];
    codes_twins t = {.ctx = new_context()};
    codes_setup s = {.options = {.target = "cpu", .recipe = recipe_text, .threads = 1}};
    fp8c_module *m = parse(t.ctx, codes_text);
    fp8c_compile_options o = recipe(recipe_text);
    o.requantize = _i / 2;
    char path[512];
    snprintf(path, sizeof path, "%s", f8_cli_temp("codes.f8x"));
    codes_must(&t, fp8c_compile_file(m, &o, 1, path), "compile");
    fp8c_module_destroy(m);
    const fp8c_open_options open = {.struct_size = sizeof open, .target = "cpu", .threads = 1};
    codes_must(&t, fp8c_program_open(t.ctx, path, &open, &t.p[0]), "open");
    t.p[1] = codes_compile(t.ctx, &s, 1);
    ck_assert_int_eq(codes_kept(t.p[0]) > 0, !o.requantize);
    for (int i = 0; i < 2; i++)
        codes_must(&t, fp8c_program_initialize(t.p[i], 1), "initialize");
    codes_train(&t, VOCABULARY, 2, "a .f8x file");
    write_weights(&t, 3);
    codes_step(&t, "eval", VOCABULARY, 1, "a .f8x file");
    write_weights(&t, 0.5f);
    codes_step(&t, "micro_step", VOCABULARY, 2, "a .f8x file");
    codes_close(&t);
}
END_TEST

/* A checkpoint of either is one of the other: `saves` trains on to what the others come to that go
 * on from its file. Codes are read from none, and are there after the load. */
START_TEST(resumed)
{
    const int saves = _i / 2;
    codes_setup s = {.options = {.target = "cpu", .recipe = recipes[_i % 2], .threads = 1}};
    codes_twins t = codes_open(&s), next = codes_open(&s);
    char path[512];
    snprintf(path, sizeof path, "%s", f8_cli_temp("codes.safetensors"));
    codes_train(&t, VOCABULARY, 2, "before");
    codes_must(&t, fp8c_program_save(t.p[saves], path, NULL), "save");
    for (int i = 0; i < 2; i++) {
        codes_must(&next, fp8c_program_initialize(next.p[i], 5), "initialize");
        codes_must(&next, fp8c_program_load(next.p[i], path, 0, NULL), "load");
    }
    ck_assert_int_gt(codes_are_right(&next, "after the load"), 0);
    codes_same_variables(&next, "after the load");
    codes_train(&t, VOCABULARY, 2, "without a break");
    codes_train(&next, VOCABULARY, 2, "after the load");
    codes_same_variables(&(codes_twins){t.ctx, {t.p[0], next.p[1]}}, "resumed without codes");
    codes_same_variables(&(codes_twins){t.ctx, {next.p[0], t.p[1]}}, "resumed with codes");
    codes_close(&t);
    codes_close(&next);
}
END_TEST

/* ---- two programs ---- */

/* Lets program `q` have all variables of `p`, without codes or with them. */
static void share(const codes_twins *t, fp8c_program *q, fp8c_program *p, bool codes)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(q, i, &v) == FP8C_OK; i++) {
        fp8c_tensor_view view;
        const int other = fp8c_program_find_variable(p, v.name);
        if (other < 0 || (is_weight_codes(v.name) && !codes))
            continue;
        codes_must(t, fp8c_program_variable_view(p, other, &view), v.name);
        codes_must(t, fp8c_program_bind_variable(q, i, &view), v.name);
    }
}

/* One program trains, another that has its variables evaluates, and both train in turn. The second
 * twin of each has no codes. */
START_TEST(shared_variables)
{
    const bool codes = _i / 2;
    const codes_setup s = {.options = {.target = "cpu", .recipe = recipes[_i % 2], .threads = 1}};
    codes_twins t = codes_open(&s), other = {.ctx = t.ctx};
    for (int i = 0; i < 2; i++) {
        other.p[i] = codes_compile(t.ctx, &s, i);
        share(&t, other.p[i], t.p[i], codes);
    }
    for (int round = 0; round < 4; round++) {
        const codes_twins *trains = round % 2 ? &other : &t, *looks = round % 2 ? &t : &other;
        codes_step(trains, "micro_step", VOCABULARY, round, "the one that trains");
        codes_step(looks, "eval", VOCABULARY, round, "the one that looks");
        codes_run(trains, "update");
        codes_step(looks, "eval", VOCABULARY, round, "the one that looks, after an update");
        codes_step(looks, "micro_step", VOCABULARY, round, "the one that looks");
        codes_run(trains, "update");
        codes_same_variables(trains, "shared");
        codes_same_variables(looks, "shared");
    }
    for (int i = 0; i < 2; i++)
        fp8c_program_destroy(other.p[i]);
    codes_close(&t);
}
END_TEST

/* ---- failures ---- */

static void run_failing(const codes_twins *t, const char *call, const char *function)
{
    codes_fill(t->p[0], "micro_step", VOCABULARY, 1);
    setenv("FP8C_EMULATOR_FAIL", call, 1);
    fp8c_status status = fp8c_program_run(t->p[0], fp8c_program_function(t->p[0], function));
    if (status == FP8C_OK)
        status = fp8c_program_wait(t->p[0]);
    unsetenv("FP8C_EMULATOR_FAIL");
    ck_assert_msg(status != FP8C_OK, "%s does not fail", call);
}

/* A run of an update, or of the `prepare` before a step, fails on the device. Then nothing more can
 * be read or run, so that nobody sees codes that are not those of the weights. */
START_TEST(failed_runs)
{
    const codes_setup s = {.options = {.target = "cuda", .recipe = "delayed"}};
    codes_twins t = codes_open(&s);
    fp8c_variable v;
    for (int k = 0; k < 2; k++) {
        codes_step(&t, "micro_step", VOCABULARY, 3, "before");
        codes_run(&t, "update");
    }
    if (_i)
        write_weights(&t, 2); /* so `prepare` runs first */
    else
        codes_step(&t, "micro_step", VOCABULARY, 4, "before");
    run_failing(&t, "cuGraphLaunch:1:719", _i ? "micro_step" : "update");
    for (int i = 0; fp8c_program_variable(t.p[0], i, &v) == FP8C_OK; i++) {
        void *bytes = malloc((size_t)fp8c_type_bytes(&v.type));
        ck_assert_msg(fp8c_program_read(t.p[0], i, bytes) != FP8C_OK, "%s can be read", v.name);
        free(bytes);
    }
    ck_assert_int_ne(fp8c_program_run(t.p[0], fp8c_program_function(t.p[0], "eval")), FP8C_OK);
    codes_close(&t);
}
END_TEST

/* ---- observed runs ---- */

typedef struct watcher {
    const codes_twins *t;
    int values, reads, depth;
} watcher;

static void read_codes(void *user, const fp8c_witnessed *value)
{
    watcher *w = user;
    fp8c_variable v;
    (void)value;
    ck_assert_int_eq(w->depth++, 0);
    w->values++;
    for (int i = 0; fp8c_program_variable(w->t->p[0], i, &v) == FP8C_OK; i++)
        if (is_weight_codes(v.name)) {
            size_t bytes;
            free(codes_read(w->t, w->t->p[0], v.name, &bytes));
            w->reads++;
        }
    w->depth--;
}

/* Who watches a function may read codes, stale ones too: that runs nothing in between. */
START_TEST(read_by_a_watcher)
{
    static const char *const functions[] = {"prepare", "eval", "micro_step", "update"};
    const codes_setup s = {
        .options = {.target = "cpu", .recipe = "delayed", .threads = 1, .witness = 1}};
    codes_twins t = codes_open(&s);
    codes_step(&t, "micro_step", VOCABULARY, 1, "before");
    for (int i = 0; i < 4; i++) {
        watcher w = {.t = &t};
        write_weights(&t, 1.5f);
        for (int k = 0; k < 2 && strcmp(functions[i], "update"); k++)
            codes_fill(t.p[k], functions[i], VOCABULARY, i);
        codes_must(&t,
                   fp8c_program_run_witnessed(t.p[0], fp8c_program_function(t.p[0], functions[i]),
                                              1, read_codes, &w),
                   functions[i]);
        codes_must(&t, fp8c_program_run(t.p[1], fp8c_program_function(t.p[1], functions[i])),
                   functions[i]);
        ck_assert_int_gt(w.values, 0);
        ck_assert_int_gt(w.reads, w.values);
        codes_same_variables(&t, functions[i]);
    }
    codes_close(&t);
}
END_TEST

Suite *f8_suite(void)
{
    const bool emulated = f8_test_gpu_emulated();
    n_targets = emulated ? 3 : 2;
    Suite *s = suite_create("codes_programs");
    TCase *t = tcase_create("codes_programs");
    tcase_set_timeout(t, 200);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, bounds, 0, 2 * n_targets);
    tcase_add_loop_test(t, compiled_file, 0, 4);
    tcase_add_loop_test(t, resumed, 0, 4);
    tcase_add_loop_test(t, shared_variables, 0, 4);
    tcase_add_loop_test(t, failed_runs, 0, emulated ? 2 : 0);
    tcase_add_test(t, read_by_a_watcher);
    suite_add_tcase(s, t);
    return s;
}
