/* The table of cuBLASLt's algorithms that fp8c ships (runtime/tune/shipped.jsonl), with files that
 * stand in for it: what is taken from it, what is not, and what explain says. On the emulator, or
 * with FP8C_TEST_GPU on this machine's GPU. */
#include <jansson.h>
#include <unistd.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_tune.h"
#include "ir/base/status.h"
#include "runtime/tune/tuning.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const char text[] =
    "module one\n"
    "func forward(%a: bf16[64, 256], %b: bf16[32, 256]) -> (%c: f32[64, 32]) {\n"
    "  return matmul(%a, %b) {transpose_b = true}\n"
    "}\n";

/* The same GEMM in a training, which explain can list. */
static const char training[] =
    "module one\n"
    "param w: f32[32] ones\n"
    "func forward(%a: bf16[64, 256], %b: bf16[32, 256]) -> (%loss: f32[]) {\n"
    "  %c = mul(matmul(%a, %b) {transpose_b = true}, w)\n"
    "  return reshape(reduce_sum(reduce_sum(%c) {axis = 0})) {shape = []}\n"
    "}\n";

static char database[128], table[128], rows[128], file[128];
static char other[192]; /* a candidate that the model does not choose */

/* Times the GEMM into the database of `ctx`, exports it to `rows`, and removes it. */
static void measure(void)
{
    const fp8c_compile_options compile_options = {.struct_size = sizeof compile_options,
                                                  .target = "cuda"};
    const fp8c_tune_options o = {
        .struct_size = sizeof o, .runs = 2, .compile = &compile_options, .gemm = "64x32x256:bf16"};
    fp8c_context *ctx = new_context();
    fp8c_tuning *t;
    const char *candidate;
    double seconds;
    ck_assert_msg(fp8c_tune(ctx, NULL, &o, &t) == FP8C_OK, "%s", fp8c_context_message(ctx));
    for (int c = 0; fp8c_tuning_candidate(t, 0, c, &candidate, &seconds) == FP8C_OK; c++)
        snprintf(other, sizeof other, "%s", candidate);
    ck_assert(!strncmp(other, "cublaslt ", 9));
    fp8c_tuning_destroy(t);
    ck_assert_int_eq(fp8c_tuning_move(ctx, FP8C_TUNING_EXPORT, NULL, rows, NULL), FP8C_OK);
    fp8c_context_destroy(ctx);
    unlink(database);
}

static void setup(void)
{
    f8_test_gpu_emulated();
    f8_cli_setup();
    snprintf(database, sizeof database, "%s", f8_cli_temp("tuning.db"));
    snprintf(table, sizeof table, "%s", f8_cli_temp("table.jsonl"));
    snprintf(rows, sizeof rows, "%s", f8_cli_temp("rows.jsonl"));
    snprintf(file, sizeof file, "%s", f8_cli_temp("one.f8"));
    setenv("FP8C_TUNING", database, 1);
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 1);
    setenv("FP8C_TUNING_TABLE", "", 1);
    FILE *f = fopen(file, "w");
    ck_assert(f && fputs(training, f) >= 0 && !fclose(f));
    measure();
    setenv("FP8C_TUNING_TABLE", table, 1);
}

/* The exported rows as a table: the choice is `candidate`, and `key`, if not NULL, is `value`. */
static void plant(const char *candidate, const char *key, const char *value)
{
    FILE *in = fopen(rows, "r"), *out = fopen(table, "w");
    int choices = 0;
    ck_assert(in && out);
    for (json_t *row; (row = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL)); json_decref(row)) {
        const char *kind = json_string_value(json_object_get(row, "row"));
        if (kind && !strcmp(kind, "choice")) {
            json_object_set_new(row, "candidate", json_string(candidate));
            choices++;
        }
        if (kind && key && json_object_get(row, key))
            json_object_set_new(row, key, json_string(value));
        json_dumpf(row, out, JSON_COMPACT);
        fputc('\n', out);
    }
    ck_assert_int_eq(choices, 1);
    fclose(in);
    fclose(out);
}

typedef struct found {
    char algorithm[256], candidate[192], says[512];
    int source; /* as fp8c_choice has it */
} found;

static void look(fp8c_program *p, found *out)
{
    const int eval = fp8c_program_function(p, "eval");
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_step s;
    fp8c_choice c;
    *out = (found){.source = -1};
    for (int i = 0; fp8c_program_step(p, eval, i, &s) == FP8C_OK; i++)
        if (!strcmp(s.kind, "gemm"))
            snprintf(out->algorithm, sizeof out->algorithm, "%s", s.algorithm);
    for (int i = 0; fp8c_program_choice(p, i, &c) == FP8C_OK; i++)
        if (c.gemm) {
            snprintf(out->candidate, sizeof out->candidate, "%s", c.candidate);
            out->source = c.tuned;
        }
    fp8c_program_info(p, &info);
    snprintf(out->says, sizeof out->says, "%s", info.tuning_table ? info.tuning_table : "");
}

static found compiled(void)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const fp8c_compile_options o = {.struct_size = sizeof o, .target = "cuda", .inference = 1};
    fp8c_program *p = compile(ctx, m, &o);
    found f;
    look(p, &f);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    return f;
}

/* What a compile without a table has. */
static found model_is(void)
{
    setenv("FP8C_TUNING_TABLE", "", 1);
    const found f = compiled();
    setenv("FP8C_TUNING_TABLE", table, 1);
    ck_assert_int_eq(f.source, 0);
    ck_assert_str_eq(f.says, "");
    return f;
}

static void expect_model(const char *says)
{
    const found f = compiled(), m = model_is();
    ck_assert_int_eq(f.source, 0);
    ck_assert_str_eq(f.candidate, "model");
    ck_assert_str_eq(f.algorithm, m.algorithm);
    ck_assert_msg(*says ? strstr(f.says, says) != NULL : !*f.says, "'%s' is not '%s'", f.says,
                  says);
}

START_TEST(taken)
{
    plant(other, NULL, NULL);
    const found f = compiled();
    ck_assert_int_eq(f.source, 2);
    ck_assert_str_eq(f.candidate, other);
    ck_assert_str_ne(f.algorithm, model_is().algorithm);
    ck_assert_msg(strstr(f.says, "has algorithms for 1 GEMMs on "), "%s", f.says);
    const f8_cli_result r = F8_CLI("explain", file, "--target", "cuda", "--recipe", "f32");
    f8_cli_ok(r);
    ck_assert_msg(
        strstr(r.out, "by the table that fp8c ships: the algorithms of 1 GEMMs, of 1\n") &&
            strstr(r.out, other) && strstr(r.out, f.says) && !strstr(r.out, "not tuned"),
        "%s", r.out);
    /* the database comes first */
    plant("model", NULL, NULL);
    setenv("FP8C_TUNING_TABLE", "", 1);
    fp8c_context *ctx = new_context();
    ck_assert_int_eq(fp8c_tuning_move(ctx, FP8C_TUNING_IMPORT, NULL, table, NULL), FP8C_OK);
    fp8c_context_destroy(ctx);
    setenv("FP8C_TUNING_TABLE", table, 1);
    plant(other, NULL, NULL);
    const found g = compiled();
    ck_assert_int_eq(g.source, 1);
    ck_assert_str_eq(g.candidate, "model");
    /* without a database there is no table */
    setenv("FP8C_TUNING", "", 1);
    expect_model("");
}
END_TEST

/* The plan has the choice, so a file of it needs no table. */
START_TEST(recorded)
{
    const char *path = f8_cli_temp("one.f8x");
    plant(other, NULL, NULL);
    const found f = compiled();
    f8_cli_ok(F8_CLI("compile", file, "--target", "cuda", "--recipe", "f32", "-o", path));
    unlink(table);
    fp8c_context *ctx = new_context();
    fp8c_program *p;
    ck_assert_msg(fp8c_program_open(ctx, path, NULL, &p) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    found g;
    look(p, &g);
    ck_assert_int_eq(g.source, 2);
    ck_assert_str_eq(g.candidate, other);
    ck_assert_str_eq(g.algorithm, f.algorithm);
    ck_assert_str_eq(g.says, "");
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(not_taken)
{
    plant(other, "device", "sm_90a NVIDIA H999");
    expect_model(" is not used: it has nothing for ");
    plant(other, "versions", "cuBLASLt 1.2.3");
    expect_model(" was measured with cuBLASLt 1.2.3, and this machine has cuBLASLt ");
    const f8_cli_result r = F8_CLI("explain", file, "--target", "cuda", "--recipe", "f32");
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "is not used: what it has for ") && strstr(r.out, "not tuned: "),
                  "%s", r.out);
    /* what cuBLASLt does not offer, or is no candidate: the model's algorithm */
    plant("cublaslt 1234 tile 1 stages 1 split 1 scheme 0 swizzle 0 custom 0 inner 0 cluster 1",
          NULL, NULL);
    ck_assert_str_eq(compiled().algorithm, model_is().algorithm);
    plant("a text of a later version", NULL, NULL);
    expect_model("has algorithms for 1 GEMMs on ");
}
END_TEST

static void write_table(const char *lines)
{
    FILE *f = fopen(table, "w");
    ck_assert(f && fputs(lines, f) >= 0 && !fclose(f));
}

START_TEST(damaged)
{
    write_table("{\"fp8c\":\"tuning\",\"schema\":2}\n"); /* as fp8c ships it until a GPU fills it */
    expect_model("");
    write_table("{\"fp8c\":\"tuning\",\"schema\":2}\n{\"row\":\"choice\"}\n");
    expect_model(" is not used: ");
    expect_model("line 2 is no row of a tuning database");
    write_table("{\"fp8c\":\"tuning\",\"schema\":2}\n{");
    expect_model("line 2: ");
    write_table("{\"fp8c\":\"tuning\",\"schema\":9}\n");
    expect_model("it has schema 9; this version of fp8c knows 1 to 2");
    write_table("");
    expect_model("this is no export of a tuning database");
    unlink(table);
    expect_model(" is not used: ");
}
END_TEST

/* What lies in this tree: choices of GEMMs on an H100 or H200, and nothing else. */
START_TEST(shipped)
{
    const char *at = strchr(f8_tuned_shipped, '\n');
    const f8_allocator allocator = f8_default_allocator();
    f8_arena arena;
    f8_tuned *t;
    f8_diag diag = {0};
    size_t others, lines = 0;
    f8_arena_init(&arena, &allocator);
    ck_assert_msg(f8_tuned_table("shipped.jsonl", f8_tuned_shipped, strlen(f8_tuned_shipped), "",
                                 &allocator, &arena, &t, &others, &diag) == F8_OK,
                  "%s", diag.text);
    for (; at && at[1]; at = strchr(at + 1, '\n')) {
        const char *end = strchr(at + 1, '\n'),
                   *device = strstr(at, "\"device\":\"sm_90a NVIDIA H");
        ck_assert_msg(end && device && device < end, "%s", at);
        lines++;
    }
    ck_assert_uint_eq(others, lines);
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_table");
    TCase *t = tcase_create("cuda_table");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, taken);
    tcase_add_test(t, recorded);
    tcase_add_test(t, not_taken);
    tcase_add_test(t, damaged);
    suite_add_tcase(s, t);
    TCase *own = tcase_create("shipped");
    tcase_add_test(own, shipped);
    suite_add_tcase(s, own);
    return s;
}
