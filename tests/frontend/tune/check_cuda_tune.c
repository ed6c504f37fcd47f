/* The tuner on a CUDA target (the emulator, or with FP8C_TEST_GPU this machine's GPU). cuBLASLt's
 * proposals are the candidates of a GEMM. A recorded algorithm is used where the library still
 * proposes it. No configuration of a kernel changes a bit of a step. */
#include <jansson.h>
#include <unistd.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_tune.h"
#include "frontend/measure/list.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static char database[128];
static bool emulated;

static void setup(void)
{
    emulated = f8_test_gpu_emulated();
    f8_cli_setup();
    snprintf(database, sizeof database, "%s", f8_cli_temp("tuning.db"));
    setenv("FP8C_TUNING", database, 1);
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 1);
}

/* Choices of the database replaced by fn's, NULL: as it is. */
static void edit_choices(fp8c_context *ctx, const char *(*fn)(const char *problem, void *user),
                         void *user)
{
    const char *from = f8_cli_temp("rows.jsonl"), *to = f8_cli_temp("edited.jsonl");
    FILE *out = fopen(to, "w");
    ck_assert_int_eq(fp8c_tuning_move(ctx, FP8C_TUNING_EXPORT, NULL, from, NULL), FP8C_OK);
    FILE *in = fopen(from, "r");
    ck_assert(in && out);
    for (json_t *row; (row = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL)); json_decref(row)) {
        const char *kind = json_string_value(json_object_get(row, "row"));
        const char *problem = json_string_value(json_object_get(row, "problem"));
        const char *other = kind && !strcmp(kind, "choice") ? fn(problem, user) : NULL;
        if (other)
            json_object_set_new(row, "candidate", json_string(other));
        json_dumpf(row, out, JSON_COMPACT);
        fputc('\n', out);
    }
    fclose(in);
    fclose(out);
    unlink(database);
    ck_assert_msg(fp8c_tuning_move(ctx, FP8C_TUNING_IMPORT, NULL, to, NULL) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
}

/* The algorithm of the one GEMM of the module, as cuBLASLt has it. */
static void algorithm(fp8c_context *ctx, const char *text, char to[256], int *tuned)
{
    fp8c_module *m = parse(ctx, text);
    const fp8c_compile_options o = {.struct_size = sizeof o, .target = "cuda", .inference = 1};
    fp8c_program *p = compile(ctx, m, &o);
    const int eval = fp8c_program_function(p, "eval");
    fp8c_step s;
    fp8c_choice c;
    to[0] = 0;
    for (int i = 0; fp8c_program_step(p, eval, i, &s) == FP8C_OK; i++)
        if (!strcmp(s.kind, "gemm"))
            snprintf(to, 256, "%s", s.algorithm);
    *tuned = 0;
    for (int i = 0; fp8c_program_choice(p, i, &c) == FP8C_OK; i++)
        *tuned += c.gemm && c.tuned;
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
}

static const char *replace(const char *problem, void *user)
{
    return strncmp(problem, "gemm ", 5) ? NULL : user;
}

START_TEST(algorithms)
{
    static const char text[] =
        "module one\n"
        "func forward(%a: bf16[64, 256], %b: bf16[32, 256]) -> (%c: f32[64, 32]) {\n"
        "  return matmul(%a, %b) {transpose_b = true}\n"
        "}\n";
    const fp8c_compile_options compile_options = {.struct_size = sizeof compile_options,
                                                  .target = "cuda"};
    const fp8c_tune_options o = {
        .struct_size = sizeof o, .runs = 2, .compile = &compile_options, .gemm = "64x32x256:bf16"};
    fp8c_context *ctx = new_context();
    fp8c_tuning *t;
    fp8c_tuned x;
    char model_is[256], is[256], other[192] = "", recorded[256], rest[96];
    const char *candidate;
    double seconds;
    int tuned;
    algorithm(ctx, text, model_is, &tuned);
    ck_assert_int_eq(tuned, 0);
    ck_assert_msg(fp8c_tune(ctx, NULL, &o, &t) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_tuning_problem(t, 0, &x), FP8C_OK);
    ck_assert_int_ge(x.candidates, 2);
    for (int c = 0; fp8c_tuning_candidate(t, 0, c, &candidate, &seconds) == FP8C_OK; c++) {
        ck_assert(c ? !strncmp(candidate, "cublaslt ", 9) : !strcmp(candidate, "model"));
        ck_assert_msg(seconds > 0, "%s was not timed", candidate);
        snprintf(other, sizeof other, "%s", candidate);
    }
    int id, tile, stages, split, scheme, swizzle, custom, inner, cluster;
    ck_assert_int_eq(sscanf(other,
                            "cublaslt %d tile %d stages %d split %d scheme %d swizzle %d custom %d "
                            "inner %d cluster %d",
                            &id, &tile, &stages, &split, &scheme, &swizzle, &custom, &inner,
                            &cluster),
                     9);
    snprintf(recorded, sizeof recorded, "algorithm %d, tile %d, stages %d, split-k %d,", id, tile,
             stages, split);
    snprintf(rest, sizeof rest, "swizzle %d, custom %d, inner shape %d, cluster %d,", swizzle,
             custom, inner, cluster);
    fp8c_tuning_destroy(t);
    edit_choices(ctx, replace, other);
    algorithm(ctx, text, is, &tuned);
    ck_assert_int_eq(tuned, 1);
    ck_assert_msg(!strncmp(is, recorded, strlen(recorded)), "%s is not %s", is, recorded);
    ck_assert_msg(strstr(is, rest), "%s is not %s", is, rest);
    ck_assert_str_ne(is, model_is);
    /* one that the library does not offer: the model's */
    edit_choices(ctx, replace,
                 (void *)(uintptr_t)"cublaslt 1234 tile 1 stages 1 split 1 scheme 0 swizzle 0 "
                                    "custom 0 inner 0 cluster 1");
    algorithm(ctx, text, is, &tuned);
    ck_assert_str_eq(is, model_is);
    fp8c_context_destroy(ctx);
}
END_TEST

/* What is tuned for the text: a problem whose text begins so. */
static void check_gemm(fp8c_context *ctx, const char *text, const char *begin)
{
    const fp8c_compile_options compile_options = {.struct_size = sizeof compile_options,
                                                  .target = "cuda"};
    const fp8c_tune_options o = {
        .struct_size = sizeof o, .runs = 1, .compile = &compile_options, .gemm = text};
    fp8c_tuning *t;
    fp8c_tuned x;
    ck_assert_msg(fp8c_tune(ctx, NULL, &o, &t) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_tuning_problem(t, 0, &x), FP8C_OK);
    ck_assert_msg(!strncmp(x.problem, begin, strlen(begin)), "%s", x.problem);
    fp8c_tuning_destroy(t);
}

/* GEMMs of a list: each is timed as it is asked for, by several of cuBLASLt's algorithms, or is a
 * row with what the target lacks. */
START_TEST(gemms)
{
    static const struct {
        const char *gemm, *problem, *reason; /* problem: its begin */
    } all[] = {
        {"128x64x256:bf16:fprop:bias", "gemm 128x64x256 bf16 x bf16.t -> bf16 bias strides", NULL},
        {"128x64x256:f32", "gemm 128x64x256 f32 x f32.t -> f32", NULL},
        {"128x64x256:f8e4m3:fprop:bf16:nn", "gemm 128x64x256 f8e4m3 x f8e4m3", NULL},
        {"128x64x256:f8e4m3:row:bf16", "gemm 128x64x256 f8e4m3 x f8e4m3.t -> bf16 strides", NULL},
        {"128x128x256:f8e4m3:block:wgrad:accumulate",
         "gemm 128x128x256 f8e4m3 x f8e4m3.t -> f32 add strides", NULL},
        {"128x64x256:f8e5m2xf8e4m3:dgrad:bf16",
         "gemm 128x64x256 f8e5m2 x f8e4m3.t -> bf16 strides 256 256 64 scales", NULL},
        {"128x64x256:f8e4m3:mx", NULL, "FP8 GEMMs of sm_90a have no f8e8m0 scales"},
        {"128x64x256:f8e5m2", NULL, "no GEMM of sm_90a multiplies f8e5m2 by f8e5m2"},
        {"128x60x256:f8e4m3", NULL, "need multiples of 16 for n"},
    };
    enum { N = sizeof all / sizeof *all };
    const char *spec[N];
    const fp8c_compile_options compile_options = {.struct_size = sizeof compile_options,
                                                  .target = "cuda"};
    const f8_measure_how how = {.compile = &compile_options,
                                .command = "",
                                .commit = "",
                                .cold = true,
                                .warm = true,
                                .runs = 2,
                                .ordinal = 1,
                                .processes = 1};
    static const char nvml[] = "temperature 45\nclock 1700\nmemory_clock 2619\npower 312500\n";
    setenv("FP8C_EMULATOR_NVML", f8_cli_write("nvml", nvml, sizeof nvml - 1), 1);
    fp8c_context *ctx = new_context();
    f8_tune_gemms list;
    f8_measure_set set = {0};
    int candidates = 0;
    f8_arena_init(&set.arena, NULL);
    for (int i = 0; i < N; i++)
        spec[i] = all[i].gemm;
    const f8_tune_sources from = {.spec = spec, .n_specs = N};
    ck_assert_int_eq(f8_tune_gather(ctx, &from, &list), FP8C_OK);
    ck_assert_uint_eq(list.n, N);
    ck_assert_msg(f8_measure_list(ctx, &list, &how, &set) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    for (int i = 0; i < 2 * N; i++) {
        const f8_measurement *m =
            f8_measure_find(&set, all[i / 2].gemm, i % 2 ? "warm" : "cold", "model");
        ck_assert_msg(m != NULL, "%s", all[i / 2].gemm);
        ck_assert_msg(m->state == (all[i / 2].reason ? F8_MEASURE_LACKING : F8_MEASURE_TIMED),
                      "%s: %s", m->problem.text, m->reason);
        if (all[i / 2].reason)
            ck_assert_msg(strstr(m->reason, all[i / 2].reason) != NULL, "%s", m->reason);
        else if (i % 2 == 0)
            check_gemm(ctx, all[i / 2].gemm, all[i / 2].problem);
    }
    for (size_t i = 0; i < set.n_measurements; i++) {
        const f8_measurement *m = &set.measurement[i];
        if (m->state == F8_MEASURE_LACKING)
            continue;
        candidates += m->kind == F8_MEASURE_CANDIDATE;
        ck_assert_msg(m->state == F8_MEASURE_TIMED, "%s, %s: %s", m->problem.text, m->candidate,
                      m->reason);
        ck_assert_msg(m->error >= 0 && m->error <= 1, "%s, %s: error %g", m->problem.text,
                      m->candidate, m->error);
        ck_assert(m->median > 0 && m->compile_seconds > 0 && m->same_bits != F8_MEASURE_UNKNOWN);
        /* no data sheet of a GPU says what its f32 units do without TF32 */
        ck_assert_msg(!strcmp(m->unit, "f32") ? m->limit == 0 : *m->unit && m->limit > 0,
                      "%s: unit %s, %g", m->problem.text, m->unit, m->limit);
    }
    ck_assert_int_ge(candidates, 6);
    ck_assert(set.n_processes == 1 && set.process->before.bytes > 0);
    if (emulated)
        ck_assert(set.process->begin.sm_mhz == 1700 && set.process->end.watts == 312.5);
    else
        ck_assert(set.process->begin.sm_mhz > 0 && set.process->end.sm_mhz > 0);
    ck_assert(*set.about.driver && *set.about.processor);
    f8_arena_end(&set.arena);
    f8_arena_end(&list.arena);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The command, whose processes have a device each: all is known the second time. */
START_TEST(command)
{
    static const char *const args[] = {"tune",        "--gemm",  "128x64x256:bf16,f8e4m3:bf16",
                                       "--target",    "cuda",    "--runs",
                                       "1",           "--cache", "warm,cold",
                                       "--processes", "2",       "--peers",
                                       NULL};
    f8_cli_result r = f8_cli_run(args);
    f8_cli_ok(r);
    char *first = strdup(r.out);
    ck_assert_msg(strstr(first, "128x64x256:f8e4m3:bf16 ") && strstr(first, "2 processes"), "%s",
                  first);
    ck_assert_msg(strstr(first, "limits, of its data sheet:\n"), "%s", first);
    ck_assert_msg(strstr(first, "cold: 2 of 2 GEMMs timed, 0 lacking, 0 out of time"), "%s", first);
    r = f8_cli_run(args);
    f8_cli_ok(r);
    ck_assert_str_eq(r.out, first);
    free(first);
    f8_cli_fails(
        F8_CLI("tune", "--gemm", "128x64x256:f8e4m3:mx", "--target", "cuda"), 1,
        "error: GEMM 128x64x256:f8e4m3:mx: scaled_matmul: FP8 GEMMs of sm_90a have no f8e8m0 "
        "scales");
}
END_TEST

static const char *some_variant(const char *problem, void *user)
{
    static const char *const all[] = {"threads 128", "unroll 1", "threads 512", "unroll 4"};
    return strncmp(problem, "gemm ", 5) ? all[(*(int *)user)++ % 4] : "model";
}

/* Parameters after two steps. */
static void train(fp8c_context *ctx, float parameter[V * C + C * C + C], int *tuned)
{
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.target = "cuda";
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step");
    fp8c_variable v;
    fp8c_choice c;
    int64_t n = 0;
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < ROWS; i++)
            ((int32_t *)fp8c_program_buffer(p, step, FP8C_INPUT, side))[i] = (5 * i + side) % V;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update")), FP8C_OK);
    }
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++)
        if (v.is_param) {
            ck_assert_int_eq(fp8c_program_read(p, i, parameter + n), FP8C_OK);
            n += fp8c_type_bytes(&v.type) / 4;
        }
    ck_assert_int_eq(n, V * C + C * C + C);
    *tuned = 0;
    for (int i = 0; fp8c_program_choice(p, i, &c) == FP8C_OK; i++)
        *tuned += c.tuned && strcmp(c.candidate, "model");
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
}

START_TEST(variants)
{
    fp8c_compile_options compile_options = recipe("bf16");
    compile_options.target = "cuda";
    const fp8c_tune_options o = {
        .struct_size = sizeof o, .runs = 1, .compile = &compile_options, .seconds = 1e-9};
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_tuning *t;
    float plain[V * C + C * C + C], other[V * C + C * C + C];
    int tuned, n = 0;
    train(ctx, plain, &tuned);
    ck_assert_int_eq(tuned, 0);
    ck_assert_msg(fp8c_tune(ctx, m, &o, &t) == FP8C_OK, "%s",
                  fp8c_context_message(ctx)); /* nothing but choices: the model's */
    fp8c_tuning_destroy(t);
    edit_choices(ctx, some_variant, &n);
    train(ctx, other, &tuned);
    ck_assert_int_gt(tuned, 10);
    ck_assert(!memcmp(plain, other, sizeof plain));
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_tune");
    TCase *t = tcase_create("cuda_tune");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, algorithms);
    tcase_add_test(t, gemms);
    tcase_add_test(t, command);
    tcase_add_test(t, variants);
    suite_add_tcase(s, t);
    return s;
}
