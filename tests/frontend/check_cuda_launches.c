/* How a GPU's kernels and GEMMs are launched changes no bit: programs with the options
 * dependent_launch and wgrad_branch are trained beside programs without them. They run on the
 * emulator, or with FP8C_TEST_GPU on this machine's GPU. The emulator finds kernels that do not wait
 * for the one ahead, and runs a branch as late or as early as its events allow. check_cuda_branch.c
 * takes waits away. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/emulator/driver.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/embedder.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { STEPS = 3, VOCABULARY = 64 };

static bool emulated;

/* Odd sizes, one sequence; two blocks. */
static const fp8c_dim dims[] = {{"B", 1}, {"T", 24}, {"C", 64},
                                {"H", 2}, {"L", 2},  {"V", VOCABULARY}};
static const char *const recipes[] = {"delayed", "block", "bf16", "f32"};
static const char *const seeds[] = {"0", "5", "0", "0"};
enum { RECIPES = 4, DIMS = sizeof dims / sizeof *dims };

static void *emulator(const char *function)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("FP8C_CUDA_PATH"));
    void *library = dlopen(path, RTLD_NOW);
    ck_assert_msg(library != NULL, "%s", dlerror());
    void *found = dlsym(library, function);
    ck_assert_ptr_nonnull(found);
    return found;
}

static int64_t count(const char *what)
{
    int64_t (*of)(const char *what);
    if (!emulated)
        return 0;
    *(void **)&of = emulator("f8_emulator_count");
    return of(what);
}

static void record(void)
{
    void (*begin)(void);
    *(void **)&begin = emulator("f8_emulator_record");
    begin();
}

/* Of what was done since record(): library calls on a branch, and other work there. */
static void on_branch(int *gemms, int *others)
{
    int (*recorded)(int index, f8_emulator_work *out);
    f8_emulator_work w;
    *(void **)&recorded = emulator("f8_emulator_recorded");
    *gemms = *others = 0;
    for (int i = 0; recorded(i, &w); i++)
        if (w.branch && strcmp(w.kind, "event"))
            ++*(strcmp(w.kind, "call") ? others : gemms);
}

static void open_run(f8_api_run *r, const char *file, const fp8c_compile_options *options)
{
    const f8_api_setup s = {.file = file, .dims = dims, .n_dims = DIMS, .options = *options};
    ck_assert_msg(f8_api_open(r, &s), "%s", r->failed);
}

static fp8c_compile_options on_gpu(const char *name)
{
    fp8c_compile_options o = recipe(name);
    o.target = "cuda";
    return o;
}

/* Trains both, two micro-steps an update, and compares all variables after each update. */
static void same_bits(f8_api_run *a, f8_api_run *b, const char *what)
{
    for (int i = 0; i < STEPS; i++) {
        f8_api_run *both[] = {a, b};
        for (int k = 0; k < 2; k++) {
            f8_api_batch(both[k], VOCABULARY, 100 + (uint64_t)i);
            ck_assert_int_eq(fp8c_program_run(both[k]->program, both[k]->step), FP8C_OK);
            const float loss = f8_api_step(both[k], VOCABULARY, (uint64_t)i);
            ck_assert_msg(loss > 0 && loss < 10, "%s: %g %s", what, (double)loss,
                          both[k]->failed ? both[k]->failed : "");
        }
        const char *name = f8_api_differs(a, b);
        ck_assert_msg(name == NULL, "%s, step %d: %s differs", what, i, name);
    }
}

/* Of a program with the option most launches are dependent; of one without, none. */
START_TEST(dependent_launches)
{
    fp8c_compile_options o = on_gpu(recipes[_i]);
    f8_api_run usual, dependent;
    setenv("FP8C_EMULATOR_SEED", seeds[_i], 1);
    open_run(&usual, "frontend/models/gpt.f8", &o);
    o.dependent_launch = 1;
    open_run(&dependent, "frontend/models/gpt.f8", &o);
    const int64_t before = count("dependent launch");
    f8_api_step(&usual, VOCABULARY, 9);
    ck_assert_int_eq(count("dependent launch") - before, 0);
    const int64_t all = count("launch");
    f8_api_step(&dependent, VOCABULARY, 9);
    const int64_t early = count("dependent launch") - before, launches = count("launch") - all;
    ck_assert_msg(!emulated || (early < launches && 10 * early > 9 * launches),
                  "%lld of %lld launches are dependent", (long long)early, (long long)launches);
    same_bits(&usual, &dependent, recipes[_i]);
    f8_api_close(&dependent);
    f8_api_close(&usual);
}
END_TEST

/* The emulator's order: 0 as late as events allow, 1 as early, a seed: any. */
static const struct {
    const char *recipe, *order, *seed;
    bool dependent;
} branches[] = {{"delayed", "0", "0", false}, {"delayed", "1", "0", true},
                {"delayed", "0", "7", true},  {"block", "0", "0", false},
                {"block", "0", "8", false},   {"bf16", "0", "0", true},
                {"bf16", "1", "0", false},    {"f32", "0", "0", false}};
enum { BRANCHES = sizeof branches / sizeof *branches };

/* Each linear's wgrad is on the branch: four a block and the head's. */
START_TEST(a_branch)
{
    fp8c_compile_options o = on_gpu(branches[_i].recipe);
    f8_api_run usual, beside;
    fp8c_info info[2] = {{.struct_size = sizeof info[0]}, {.struct_size = sizeof info[0]}};
    setenv("FP8C_EMULATOR_GRAPH", branches[_i].order, 1);
    setenv("FP8C_EMULATOR_SEED", branches[_i].seed, 1);
    open_run(&usual, "frontend/models/gpt.f8", &o);
    o.wgrad_branch = 1;
    o.dependent_launch = branches[_i].dependent;
    open_run(&beside, "frontend/models/gpt.f8", &o);
    fp8c_program_info(usual.program, &info[0]);
    fp8c_program_info(beside.program, &info[1]);
    ck_assert_int_gt(info[1].planned_bytes, info[0].planned_bytes); /* a workspace of its own */
    ck_assert_int_eq(info[1].peak_bytes, info[1].planned_bytes);
    for (int i = 0; i < 2 && emulated; i++) {
        int gemms, others;
        f8_api_run *r = i ? &beside : &usual;
        f8_api_batch(r, VOCABULARY, 9);
        record();
        ck_assert_int_eq(fp8c_program_run(r->program, r->step), FP8C_OK);
        on_branch(&gemms, &others);
        ck_assert_int_eq(gemms, i ? 2 * 4 + 1 : 0);
        ck_assert_int_eq(others, 0);
    }
    same_bits(&usual, &beside, branches[_i].recipe);
    f8_api_close(&beside);
    f8_api_close(&usual);
}
END_TEST

/* A run that measures its steps, or is watched, has no graph; its launches are the usual ones. */
START_TEST(without_a_graph)
{
    fp8c_compile_options o = on_gpu("delayed");
    f8_api_run usual, dependent;
    open_run(&usual, "frontend/models/gpt.f8", &o);
    o.dependent_launch = o.wgrad_branch = o.profile = 1;
    open_run(&dependent, "frontend/models/gpt.f8", &o);
    const int64_t before = count("dependent launch");
    int gemms = 0, others = 0;
    if (emulated)
        record();
    same_bits(&usual, &dependent, "profile");
    if (emulated)
        on_branch(&gemms, &others);
    ck_assert_int_eq(gemms + others, 0);
    ck_assert_int_eq(count("dependent launch") - before, 0);
    f8_api_close(&dependent);
    f8_api_close(&usual);
}
END_TEST

/* A file keeps it. */
START_TEST(from_a_file)
{
    fp8c_compile_options o = on_gpu("delayed");
    f8_api_run usual, opened;
    open_run(&usual, "frontend/models/gpt.f8", &o);
    o.target = fp8c_program_target(usual.program);
    o.dependent_launch = o.wgrad_branch = 1;
    f8_cli_setup();
    const char *path = f8_cli_temp("launches.f8x");
    ck_assert_msg(fp8c_compile_file(usual.module, &o, 1, path) == FP8C_OK, "%s",
                  fp8c_context_message(usual.ctx));
    opened = (f8_api_run){.ctx = new_context()};
    ck_assert_msg(fp8c_program_open(opened.ctx, path, NULL, &opened.program) == FP8C_OK, "%s",
                  fp8c_context_message(opened.ctx));
    opened.step = fp8c_program_function(opened.program, "micro_step");
    opened.update = fp8c_program_function(opened.program, "update");
    ck_assert_int_eq(fp8c_program_initialize(opened.program, 1), FP8C_OK);
    const int64_t before = count("dependent launch");
    int gemms = 1, others = 0;
    if (emulated)
        record();
    same_bits(&usual, &opened, "a file");
    if (emulated)
        on_branch(&gemms, &others);
    ck_assert(gemms && !others && (!emulated || count("dependent launch") - before > 100));
    fp8c_program_destroy(opened.program);
    fp8c_context_destroy(opened.ctx);
    f8_api_close(&usual);
    f8_cli_teardown();
}
END_TEST

/* ---- what can't be had ---- */

static void refused(const fp8c_compile_options *o, const char *words)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p = NULL;
    ck_assert_int_eq(fp8c_compile(m, o, &p), FP8C_ERR_UNSUPPORTED);
    ck_assert_ptr_null(p);
    said(ctx, words);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

START_TEST(other_targets)
{
    static const char *const others[] = {"cpu", "reference", "cpu:x86-64-v3"};
    fp8c_compile_options o = recipe("bf16");
    o.no_device = 1;
    for (int i = 0; i < 3; i++) {
        o.target = others[i];
        o.dependent_launch = 1;
        refused(&o, "dependent_launch needs a CUDA target");
        o.dependent_launch = 0;
        o.wgrad_branch = 1;
        refused(&o, "wgrad_branch needs a CUDA target");
        o.wgrad_branch = 0;
    }
    o.dependent_launch = 1;
    o.target = "sm_89";
    refused(&o, "dependent_launch: sm_89 has no programmatic dependent launch");
    o.plan_only = 1;
    refused(&o, "dependent_launch: sm_89 has no programmatic dependent launch");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("launches");
    TCase *t = tcase_create("launches");
    emulated = f8_test_gpu_emulated();
    tcase_set_timeout(t, 900);
    tcase_add_loop_test(t, dependent_launches, 0, RECIPES);
    tcase_add_loop_test(t, a_branch, 0, BRANCHES);
    tcase_add_test(t, without_a_graph);
    tcase_add_test(t, from_a_file);
    tcase_add_test(t, other_targets);
    suite_add_tcase(s, t);
    return s;
}
