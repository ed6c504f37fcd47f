/* cuBLASLt's answers that are not deterministic, on the emulator: --peers measures them as peers,
 * and nothing else makes a program take one. The stand-in offers one that adds in place, and for
 * results in bf16 one that rounds the parts of a sum. */
#include <dlfcn.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/measure/session.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#define IN_PLACE                                                                                   \
    "cublaslt 66 tile 20 stages 8 split 2 scheme 1 swizzle 0 custom 0 inner 0 cluster 0"
#define ROUNDED "cublaslt 68 tile 20 stages 8 split 2 scheme 4 swizzle 0 custom 0 inner 0 cluster 0"
#define WHOLE "cublaslt 67 tile 20 stages 8 split 1 scheme 0 swizzle 0 custom 0 inner 0 cluster 2"
#define LOOSE " (not deterministic)"

static const fp8c_compile_options cuda = {
    .struct_size = sizeof cuda, .target = "cuda", .inference = 1, .recipe = "f32"};
static char database[256];
static fp8c_context *ctx;
static f8_tune_gemms list;

static void setup(void)
{
    f8_cli_setup();
    snprintf(database, sizeof database, "%s", f8_cli_temp("tuning.db"));
    setenv("FP8C_TUNING", database, 1);
    ctx = new_context();
    list = (f8_tune_gemms){0};
    f8_arena_init(&list.arena, NULL);
}

static void teardown(void)
{
    f8_arena_end(&list.arena);
    fp8c_context_destroy(ctx);
    f8_cli_teardown();
}

static void add(const char *text)
{
    f8_diag diag = {0};
    ck_assert_msg(f8_tune_gemms_parse(&list, text, &diag) == F8_OK, "%s", diag.text);
}

/* ---- measuring ---- */

static void measure(f8_measure_set *set, bool peers, int ordinal)
{
    const f8_measure_how how = {.compile = &cuda,
                                .database = database,
                                .command = "",
                                .commit = "",
                                .cold = true,
                                .warm = true,
                                .runs = 2,
                                .peers = peers,
                                .ordinal = ordinal,
                                .processes = ordinal};
    *set = (f8_measure_set){0};
    f8_arena_init(&set->arena, NULL);
    ck_assert_msg(f8_measure_list(ctx, &list, &how, set) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(f8_measure_figures(set, NULL), F8_OK);
}

/* So many products ran by algorithms that are not deterministic. */
static int64_t count_loose(void)
{
    int64_t (*fn)(void) = NULL;
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    ck_assert(library);
    *(void **)&fn = dlsym(library, "f8_emulator_loose_products");
    ck_assert(fn);
    dlclose(library);
    return fn();
}

static void check_peer(const f8_measurement *m)
{
    ck_assert(!strcmp(m->candidate, IN_PLACE LOOSE) || !strcmp(m->candidate, ROUNDED LOOSE));
    ck_assert_int_eq(m->state, F8_MEASURE_TIMED);
    ck_assert_int_eq(m->same_bits, F8_MEASURE_UNKNOWN);
    ck_assert_msg(m->error <= 1, "%g", m->error);
    ck_assert(m->compile_seconds > 0 && m->median > 0 && m->runs >= 2);
    ck_assert(!m->chosen);
    ck_assert_str_ne(m->unit, "");
}

/* How many there are of a problem; all others are deterministic. */
static int count(const f8_measure_set *set, const char *problem, const char *cache)
{
    int peers = 0, models = 0;
    for (size_t i = 0; i < set->n_measurements; i++) {
        const f8_measurement *m = &set->measurement[i];
        if (strcmp(m->problem.text, problem) || strcmp(m->cache, cache))
            continue;
        models += m->kind == F8_MEASURE_MODEL;
        peers += m->kind == F8_MEASURE_PEER;
        if (m->kind == F8_MEASURE_PEER)
            check_peer(m);
        else
            ck_assert_msg(!strcmp(m->candidate, "model") || strstr(m->candidate, " scheme 0 ") ||
                              strstr(m->candidate, " scheme 2 "),
                          "%s", m->candidate);
    }
    ck_assert_int_eq(models, 1);
    return peers;
}

START_TEST(peers)
{
    static const char *const caches[] = {"cold", "warm"};
    static const char *const problem[] = {"64x32x256:bf16", "128x64x256:f8e4m3:row:bf16"};
    f8_measure_set set;
    int64_t ran = 0;
    add(problem[0]);
    add(problem[1]);
    /* without peers none; then those alone, beside the model; then from the database */
    for (int round = 0; round < 4; round++) {
        const bool wanted = round == 1 || round == 2;
        measure(&set, wanted, 1);
        for (int c = 0; c < 2; c++)
            for (int i = 0; i < 2; i++) /* the second has a bf16 result */
                ck_assert_int_eq(count(&set, problem[i], caches[c]), wanted ? i + 1 : 0);
        if (round == 1) /* each of the three ran in warm turns and in cold ones */
            ran = count_loose();
        ck_assert_int_ge(ran, round ? 3 * (1 + 2 * 2 + 8 * 2) : 0);
        ck_assert_int_eq(count_loose(), ran);
        ck_assert_uint_eq(set.n_processes, round ? 2 : 1);
        f8_arena_end(&set.arena);
    }
}
END_TEST

/* ---- what a program runs ---- */

static fp8c_tuning *open_tuner(fp8c_module **module)
{
    const fp8c_tune_options o = {
        .struct_size = sizeof o, .compile = &cuda, .database = database, .again = 1};
    fp8c_tuning *t;
    add("64x32x256:bf16");
    ck_assert_int_eq(f8_tune_gemm_module(ctx, &list.gemm[0], 1, module), FP8C_OK);
    ck_assert_msg(f8_tune_open(ctx, *module, &o, true, &t) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_uint_eq(t->n, 1);
    return t;
}

static const char *algorithm(const fp8c_program *p)
{
    fp8c_step s;
    for (int i = 0; fp8c_program_step(p, fp8c_program_function(p, "eval"), i, &s) == FP8C_OK; i++)
        if (!strcmp(s.kind, "gemm"))
            return s.algorithm;
    ck_abort_msg("there is no GEMM");
    return "";
}

/* The program that was told to runs it; no other one does, and no program that has graphs. */
START_TEST(programs)
{
    fp8c_module *module;
    fp8c_tuning *t = open_tuner(&module);
    f8_measure_set set = {0};
    f8_measure_session s = {.ctx = ctx, .set = &set, .how.peers = true};
    f8_measure_answers answers;
    f8_diag diag = {0};
    fp8c_program *loose, *other, *plain = compile(ctx, module, &cuda);
    const tune_problem *p = &t->problem[0];
    const int f = t->function[0];
    const char *model_is = algorithm(t->base);
    f8_arena_init(&set.arena, NULL);
    ck_assert_int_eq(f8_measure_find_answers(&s, t, &answers, &diag), F8_OK);
    ck_assert_int_eq(answers.n, 1);
    ck_assert_str_eq(answers.name[0], IN_PLACE LOOSE);
    ck_assert_int_eq(f8_tune_compile(t, &loose, &diag), F8_OK);
    ck_assert_int_eq(f8_tune_compile(t, &other, &diag), F8_OK);
    ck_assert_str_eq(algorithm(loose), model_is);
    f8_cublaslt_config unknown = answers.config[0];
    unknown.id = 1234;
    ck_assert_int_eq(f8_measure_take_answer(loose, p, f, &unknown, &diag), F8_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(diag.text, "does not offer"), "%s", diag.text);
    ck_assert_str_eq(algorithm(loose), model_is);
    const f8_cublaslt_config none = {0},
                             *model = &(f8_cublaslt_config){
                                 .id = 67, .tile = 20, .stages = 8, .split_k = 2, .scheme = 2};
    ck_assert_int_eq(f8_measure_take_answer(loose, p, f, model, &diag), F8_ERR_UNSUPPORTED);
    ck_assert_int_eq(f8_measure_take_answer(loose, p, f, &none, &diag), F8_ERR_INPUT);
    ck_assert_int_eq(f8_measure_take_answer(plain, p, f, &answers.config[0], &diag), F8_ERR_INPUT);
    ck_assert_int_eq(f8_measure_take_answer(loose, p, f, &answers.config[0], &diag), F8_OK);
    ck_assert_msg(strstr(algorithm(loose), "algorithm 66, ") &&
                      strstr(algorithm(loose), "reduction in place"),
                  "%s", algorithm(loose));
    ck_assert_int_eq(fp8c_program_run(loose, f), FP8C_OK);
    ck_assert_str_eq(algorithm(other), model_is);
    ck_assert_str_eq(algorithm(plain), model_is);
    fp8c_program *after = compile(ctx, module, &cuda);
    ck_assert_str_eq(algorithm(after), model_is);
    fp8c_program *all[] = {loose, other, plain, after};
    for (int i = 0; i < 4; i++)
        fp8c_program_destroy(all[i]);
    f8_arena_end(&set.arena);
    fp8c_tuning_destroy(t);
    fp8c_module_destroy(module);
}
END_TEST

/* Whatever a database names, a compile takes no such algorithm. */
START_TEST(databases)
{
    static const char *const texts[] = {WHOLE, IN_PLACE, IN_PLACE LOOSE};
    fp8c_module *module;
    fp8c_tuning *t = open_tuner(&module);
    const tune_problem *p = &t->problem[0];
    f8_diag diag = {0};
    fp8c_choice c;
    for (int i = 0; i < 3; i++) {
        const f8_tuning_choice choice = {texts[i], 1e-6, 2e-6};
        ck_assert_int_eq(
            f8_tuning_put(t->db, f8_tune_key(t, p), p->text, "", NULL, 0, &choice, &diag), F8_OK);
        fp8c_program *x = compile(ctx, module, &cuda);
        ck_assert_int_eq(fp8c_program_choice(x, 0, &c), FP8C_OK);
        ck_assert_int_eq(c.tuned, i < 2); /* the third text is no candidate's */
        ck_assert_str_eq(c.candidate, i < 2 ? texts[i] : "model");
        if (i) /* not offered to a program: the model's */
            ck_assert_str_eq(algorithm(x), algorithm(t->base));
        else
            ck_assert_msg(strstr(algorithm(x), "cluster 2"), "%s", algorithm(x));
        fp8c_program_destroy(x);
    }
    fp8c_tuning_destroy(t);
    fp8c_module_destroy(module);
}
END_TEST

Suite *f8_suite(void)
{
    if (!f8_test_gpu_emulated()) {
        test_skip("answers that are not deterministic", "a GPU's library has its own");
        return NULL;
    }
    Suite *s = suite_create("answers");
    TCase *t = tcase_create("answers");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, peers);
    tcase_add_test(t, programs);
    tcase_add_test(t, databases);
    suite_add_tcase(s, t);
    return s;
}
