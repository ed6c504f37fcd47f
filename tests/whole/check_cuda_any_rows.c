/* Linears with any number of rows of activations on CUDA targets: one token, odd batches, and more
 * than one block of scales with a rest. The numbers are small integers and the scales powers of
 * two, so every sum is exact in any order: the GPU (the emulator as each device whose recipes
 * differ; with FP8C_TEST_GPU this machine's), the CPU and the interpreter must agree in every bit
 * of a training step, of its update, and of an inference with weights stored as codes. */
#include "tests/shared/api/api.h"
#include "tests/shared/api/weight_codes.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { K = 144, H = 160, N = 32 };

static const int rows[] = {1, 2, 7, 15, 17, 31, 33, 130};
static const char *const recipes[] = {"f32",
                                      "bf16",
                                      "current {pow2 = true}",
                                      "delayed {pow2 = true}",
                                      "rowwise {pow2 = true}",
                                      "block {pow2 = true}",
                                      "mxfp8"};
enum { N_ROWS = sizeof rows / sizeof *rows, N_RECIPES = sizeof recipes / sizeof *recipes };
enum { F32, BF16, FIRST_FP8, ROWWISE = 4, BLOCK, MX };

/* Hopper has scales of rows and of blocks. Blackwell has MX scales: compute capability 10.0 for
 * operands of any layout, 12.0 only with k contiguous. */
static const char *const emulated_sm[] = {"90", "100", "120"};
static bool emulated;

/* Whether the emulated device number `device` has the recipe; of a GPU it is not known here. */
static bool has(int device, int recipe_number)
{
    return recipe_number < ROWWISE || (recipe_number == MX ? device > 0 : device == 0);
}

/* x goes through a gain, so that there is a dgrad of both linears. Weights lie both ways. */
static const char training[] =
    "module any\ndim M = %d, K = 144, H = 160, N = 32\nparam gain: f32[K] ones\n"
    "param up.weight: f32[K, H] zeros\nparam up.bias: f32[H] zeros\n"
    "param down.weight: f32[N, H] zeros\n"
    "func forward(%%x: f32[%s, K], %%g: f32[%s, N]) -> (%%loss: f32[]) {\n"
    "  %%h = relu(linear(mul(%%x, gain), up.weight, up.bias))\n"
    "  %%y = mul(linear(%%h, down.weight) {transpose_b = true}, %%g)\n"
    "  return reshape(reduce_sum(reshape(%%y) {shape = [M * N]})) {shape = []}\n}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n";
static const char inference[] =
    "module any\ndim M = %d, K = 144, H = 160, N = 32\n"
    "param up.weight: f32[H, K] zeros\nparam down.weight: f32[N, H] zeros\n"
    "func forward(%%x: f32[%s, K]) -> (%%y: f32[%s, N]) {\n"
    "  %%h = relu(linear(%%x, up.weight) {transpose_b = true})\n"
    "  return cast(linear(%%h, down.weight) {transpose_b = true}) {to = f32}\n}\n";

/* ---- a program on one target ---- */

typedef struct life {
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *p;
} life;

#define MUST(l, call)                                                                              \
    ck_assert_msg((call) == FP8C_OK, "%s: %s", #call, fp8c_context_message((l)->ctx))

/* false: the target lacks the recipe's scales. The test fails if anything else is refused. */
static bool begin(life *l, const char *target, int recipe_number, int m, bool infers)
{
    char text[2048], shape[16];
    const char *rule = recipes[recipe_number];
    l->ctx = new_context();
    /* of three axes where m allows it */
    snprintf(shape, sizeof shape, m % 3 ? "%d" : "3, %d", m % 3 ? m : m / 3);
    snprintf(text, sizeof text, infers ? inference : training, m, shape, shape);
    l->module = parse(l->ctx, text);
    fp8c_compile_options o = recipe(rule);
    o.target = target;
    o.inference = infers;
    o.stored = infers && recipe_number >= FIRST_FP8 ? rule : NULL;
    const fp8c_status status = fp8c_compile(l->module, &o, &l->p);
    if (status != FP8C_OK) {
        ck_assert_int_eq(status, FP8C_ERR_UNSUPPORTED);
        said(l->ctx, "scales of ");
        return false;
    }
    MUST(l, fp8c_program_initialize(l->p, 1));
    return true;
}

static void end(life *l)
{
    fp8c_program_destroy(l->p);
    fp8c_module_destroy(l->module);
    fp8c_context_destroy(l->ctx);
    l->p = NULL;
}

/* Integers from -most to most. */
static void integers(float *v, int64_t n, int most, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((int)(test_random(&seed) % (uint32_t)(2 * most + 1)) - most);
}

static int64_t elements(const fp8c_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

static void fill_weights(life *l)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(l->p, i, &v) == FP8C_OK; i++) {
        static float value[K * H];
        const char *const end_of = strrchr(v.name, '.');
        if (!end_of || (strcmp(end_of, ".weight") != 0 && strcmp(end_of, ".bias") != 0) ||
            strncmp(v.name, "grad", 4) == 0 || strncmp(v.name, "opt", 3) == 0)
            continue;
        integers(value, elements(&v.type), 1, v.name[0]);
        if (v.type.dtype == FP8C_F32)
            MUST(l, fp8c_program_write(l->p, i, value));
        else
            MUST(l, fp8c_program_quantize(l->p, i, value, NULL));
    }
    const int prepare = fp8c_program_function(l->p, "prepare");
    if (prepare >= 0)
        MUST(l, fp8c_program_run(l->p, prepare));
}

static void run(life *l, const char *name, uint32_t seed)
{
    fp8c_port port;
    const int f = fp8c_program_function(l->p, name);
    ck_assert_msg(f >= 0, "no %s", name);
    for (int i = 0; fp8c_program_port(l->p, f, FP8C_INPUT, i, &port) == FP8C_OK; i++)
        if (port.variable < 0)
            integers(fp8c_program_buffer(l->p, f, FP8C_INPUT, i), elements(&port.type),
                     strcmp(port.name, "x") ? 2 : 3, seed + (uint32_t)i);
    MUST(l, fp8c_program_run(l->p, f));
    MUST(l, fp8c_program_wait(l->p));
}

/* ---- comparing ---- */

static void same_results(life *a, life *b, const char *name, const char *what)
{
    fp8c_port port;
    const int f = fp8c_program_function(a->p, name), g = fp8c_program_function(b->p, name);
    for (int i = 0; fp8c_program_port(a->p, f, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        const float *x = fp8c_program_buffer(a->p, f, FP8C_OUTPUT, i),
                    *y = fp8c_program_buffer(b->p, g, FP8C_OUTPUT, i);
        for (int64_t e = 0;
             port.variable < 0 && port.type.dtype == FP8C_F32 && e < elements(&port.type); e++)
            ck_assert_msg(!memcmp(&x[e], &y[e], sizeof *x), "%s: %s of %s, %lld: %.9g and %.9g",
                          what, port.name, name, (long long)e, (double)x[e], (double)y[e]);
    }
}

static void same_variables(life *a, life *b, const char *what)
{
    static char x[8 * K * H], y[sizeof x];
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(a->p, i, &v) == FP8C_OK; i++) {
        const size_t bytes = (size_t)fp8c_type_bytes(&v.type);
        if (is_weight_codes(v.name))
            break; /* they come last, and each target has its own */
        ck_assert_uint_le(bytes, sizeof x);
        MUST(a, fp8c_program_read(a->p, i, x));
        MUST(b, fp8c_program_read(b->p, i, y));
        for (size_t e = 0; e < bytes; e += 4)
            ck_assert_msg(!memcmp(x + e, y + e, bytes < 4 ? bytes : 4),
                          "%s: '%s' at %zu: %.9g and %.9g", what, v.name, e / 4,
                          (double)*(float *)(x + e), (double)*(float *)(y + e));
    }
}

/* ---- the tests ---- */

static void become(int device)
{
    if (emulated)
        setenv("FP8C_EMULATOR_SM", emulated_sm[device], 1);
}

/* Stored codes are read by the GEMMs alone: nothing else of one row has so many bytes. */
static void reads_codes_once(life *l)
{
    fp8c_step s;
    int gemms = 0;
    const int f = fp8c_program_function(l->p, "eval");
    for (int i = 0; fp8c_program_step(l->p, f, i, &s) == FP8C_OK; i++) {
        const bool gemm = !strcmp(s.kind, "gemm");
        ck_assert_msg(gemm || s.bytes_read < N * H, "%s reads %lld bytes", s.name,
                      (long long)s.bytes_read);
        gemms += gemm;
    }
    ck_assert_int_eq(gemms, 2);
}

/* Two micro-steps, the first with empty histories; an evaluation; an update. */
static const char *const trains[] = {"micro_step", "micro_step", "eval", "update"};
enum { N_TRAINS = sizeof trains / sizeof *trains };

/* The same on the GPU, the CPU and the interpreter, after every run. */
static void agree(int device, int recipe_number, int m, bool infers)
{
    static const char *const on[] = {"cuda", "reference", "cpu"};
    const int n = f8_test_has_cpu("the CPU") ? 3 : 2;
    life l[3];
    char what[128];
    const bool runs = begin(&l[0], on[0], recipe_number, m, infers);
    ck_assert(!emulated || runs == has(device, recipe_number));
    if (!runs) {
        end(&l[0]);
        return;
    }
    if (infers && m == 1 && recipe_number >= FIRST_FP8)
        reads_codes_once(&l[0]);
    for (int i = 0; i < n; i++) {
        ck_assert(i == 0 || begin(&l[i], on[i], recipe_number, m, infers));
        fill_weights(&l[i]);
    }
    for (int step = 0; step < (infers ? 1 : N_TRAINS); step++) {
        const char *name = infers ? "eval" : trains[step];
        for (int i = 0; i < n; i++)
            run(&l[i], name, 10 + (uint32_t)step);
        for (int i = 1; i < n; i++) {
            snprintf(what, sizeof what, "%d rows, %s, run %d, beside %s", m, recipes[recipe_number],
                     step, on[i]);
            same_results(&l[0], &l[i], name, what);
            same_variables(&l[0], &l[i], what);
        }
    }
    for (int i = 0; i < n; i++)
        end(&l[i]);
}

START_TEST(bits)
{
    const int device = _i / N_RECIPES, recipe_number = _i % N_RECIPES;
    if (device > 0 && recipe_number < FIRST_FP8)
        return; /* the same on all devices */
    become(device);
    for (int r = 0; r < N_ROWS; r++)
        for (int infers = 0; infers < 2; infers++)
            agree(device, recipe_number, rows[r], infers);
}
END_TEST

/* A product that a text has as such may have any m and any k, both ways that operands lie. */
START_TEST(products)
{
    enum { SEEDS = 40 };
    become(_i);
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        static const char *const on[] = {"cuda", "reference"};
        life l[2];
        char text[1024], what[1200];
        uint32_t dice = seed;
        const int m = 1 + (int)(test_random(&dice) % 70), k = 1 + (int)(test_random(&dice) % 70);
        const bool ta = test_random(&dice) % 2, tb = test_random(&dice) % 2,
                   scaled = test_random(&dice) % 2, rounds = test_random(&dice) % 2;
        snprintf(text, sizeof text,
                 "module m\nfunc forward(%%x: f32[%d, %d], %%w: f32[%d, %d]) -> (%%y: f32[%d, 48]) "
                 "{\n  %%a = quantize(%%x, 1)\n  %%b = quantize(%%w, 1) {format = f8e5m2}\n"
                 "  %%p = %s {transpose_a = %s, transpose_b = %s%s}\n"
                 "  return add(cast(%%p) {to = f32}, 1)\n}\n",
                 ta ? k : m, ta ? m : k, tb ? 48 : k, tb ? k : 48, m,
                 scaled ? "scaled_matmul(%a, 0.5, %b, 2)" : "matmul(%a, %b)", ta ? "true" : "false",
                 tb ? "true" : "false", rounds ? ", to = bf16" : "");
        for (int i = 0; i < 2; i++) {
            l[i].ctx = new_context();
            l[i].module = parse(l[i].ctx, text);
            fp8c_compile_options o = recipe("f32");
            o.target = on[i];
            o.inference = 1;
            MUST(&l[i], fp8c_compile(l[i].module, &o, &l[i].p));
            MUST(&l[i], fp8c_program_initialize(l[i].p, 1));
            run(&l[i], "eval", seed);
        }
        snprintf(what, sizeof what, "seed %u:\n%s", seed, text);
        same_results(&l[0], &l[1], "eval", what);
        end(&l[0]);
        end(&l[1]);
    }
}
END_TEST

/* ---- plans, without a device ---- */

static fp8c_program *plan(fp8c_context *ctx, fp8c_module **m, const char *recipe_text, int time,
                          bool infers)
{
    static char text[1 << 16];
    const fp8c_dim dims[] = {{"B", 1}, {"T", time}, {"C", 32}, {"H", 2}, {"L", 8}, {"V", 257}};
    fp8c_program *p;
    FILE *f = fopen("frontend/models/gpt2_124m.f8", "r");
    ck_assert_ptr_nonnull(f);
    const size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    fp8c_compile_options o = recipe(recipe_text);
    o.target = "sm_90a";
    o.inference = infers;
    o.no_device = o.text_only = 1;
    ck_assert_msg(
        !fp8c_module_parse(ctx, text, size, "gpt2", dims, sizeof dims / sizeof *dims, m) &&
            !fp8c_compile(*m, &o, &p),
        "%s", fp8c_context_message(ctx));
    return p;
}

/* An inference of few tokens: the zeros behind the codes of all layers take one launch, and another
 * for those behind their scales. */
START_TEST(few_launches)
{
    const char *name = _i ? "rowwise" : "delayed";
    fp8c_context *ctx = new_context();
    int kernels[2] = {0};
    for (int i = 0; i < 2; i++) {
        fp8c_module *m;
        fp8c_program *p = plan(ctx, &m, name, 16 - i, true);
        fp8c_step s;
        for (int k = 0; fp8c_program_step(p, fp8c_program_function(p, "eval"), k, &s) == FP8C_OK;
             k++)
            kernels[i] += !strcmp(s.kind, "kernel");
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
    }
    ck_assert_msg(kernels[1] <= kernels[0] + 1 + _i, "%s: %d kernels, and %d with padding", name,
                  kernels[0], kernels[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Every padded GEMM is said to be, with its sizes; no other is. */
START_TEST(explained)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m;
    fp8c_program *p = plan(ctx, &m, "block", 29 + 3 * _i, false);
    fp8c_decision d;
    int padded = 0;
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++) {
        char note[80];
        snprintf(note, sizeof note, "; padded to %lldx%lldx%lld", (long long)(d.m + 15) / 16 * 16,
                 (long long)d.n, (long long)(d.k + 15) / 16 * 16);
        const char *at = strstr(d.reason, "; padded");
        if (!d.fp8)
            continue;
        ck_assert_msg(_i ? !at : at && !strcmp(at, note), "%s %s: %s", d.linear, d.role, d.reason);
        padded += at != NULL;
    }
    ck_assert_int_eq(padded, _i ? 0 : 8 * 4 * 3);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    const int devices = emulated ? sizeof emulated_sm / sizeof *emulated_sm : 1;
    Suite *s = suite_create("cuda any rows");
    TCase *t = tcase_create("rows");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, bits, 0, devices * N_RECIPES);
    tcase_add_loop_test(t, products, 0, devices);
    suite_add_tcase(s, t);
    t = tcase_create("plans");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, few_launches, 0, 2);
    tcase_add_loop_test(t, explained, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
