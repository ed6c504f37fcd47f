/* FP8 GEMMs of cuBLASLt with a scale for each row, for blocks along k and for MX blocks, against
 * plain loops over the dequantized operands: every mode, layout and way to write C, k up to 16384.
 * On a GPU (FP8C_TEST_GPU) or on the emulator. Arrays of scales are laid out here, by formulas of
 * cuBLASLt's documentation (CUDA 13, "Scaling factors layouts", "1D Block Scaling Factors Layout").
 *
 * A result is good when DeepGEMM's measure, 1 - 2 sum(x y) / sum(x x + y y), is below 1e-3, and
 * each element within a bound. With S the sum of the absolute products and the absolute old C: f32
 * sums in any order, scales multiplied in before or after, are within S (2 k + 12) 2^-24 (also
 * where they are cut off and not rounded). Tensor cores of Hopper add 32 FP8 products to a sum with
 * 13 bits below the largest of them (arXiv 2412.19437, 3.3.2), and move to f32 every 128: within S
 * 4 33 2^-13 more. A bf16 result adds 2^-8. Arrays that are laid out wrong, or a block off, must
 * not be good. */
#include "codegen/cuda/emit.h"
#include "ir/num/fp8.h"
#include "runtime/cuda/exec.h"
#include "runtime/cuda/cublaslt.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, SA, SB, N_VARS };
enum { WIDEST_ARRAY = 1 << 16 }; /* bytes of scales */

typedef enum mode { ROWS, RUNS, TILES, MX } mode;

typedef struct gemm_case {
    mode a, b;
    int64_t m, n, k;
    f8_dtype qa, qb, c;
    bool trans_a, trans_b, accumulate;
} gemm_case;

#define T true
#define F false
static const gemm_case cases[] = {
    {ROWS, ROWS, 144, 48, 400, F8_E4M3, F8_E4M3, F8_F32, F, T, F},
    {ROWS, ROWS, 16, 32, 16384, F8_E4M3, F8_E4M3, F8_BF16, F, T, F},
    {ROWS, ROWS, 64, 80, 272, F8_E5M2, F8_E4M3, F8_F32, F, T, T},
    {RUNS, TILES, 144, 272, 400, F8_E4M3, F8_E4M3, F8_F32, F, T, F},
    {RUNS, TILES, 16, 160, 16384, F8_E4M3, F8_E4M3, F8_BF16, F, T, F},
    {RUNS, TILES, 32, 16, 80, F8_E5M2, F8_E4M3, F8_F32, F, T, F},
    {TILES, RUNS, 272, 48, 656, F8_E4M3, F8_E5M2, F8_F32, F, T, F},
    {RUNS, RUNS, 144, 48, 1040, F8_E4M3, F8_E4M3, F8_F32, F, T, T},
    {RUNS, RUNS, 32, 16, 16384, F8_E4M3, F8_E5M2, F8_F32, F, T, T},
    {RUNS, RUNS, 128, 256, 640, F8_E4M3, F8_E4M3, F8_BF16, F, T, F},
    {MX, MX, 144, 48, 400, F8_E4M3, F8_E4M3, F8_F32, F, T, F},
    {MX, MX, 272, 160, 112, F8_E4M3, F8_E5M2, F8_BF16, F, T, F},
    {MX, MX, 16, 32, 16384, F8_E4M3, F8_E4M3, F8_F32, F, T, T},
    {MX, MX, 128, 256, 512, F8_E5M2, F8_E4M3, F8_F32, F, T, F},
    {MX, MX, 144, 48, 400, F8_E4M3, F8_E4M3, F8_F32, F, F, F}, /* where k need not be contiguous */
    {MX, MX, 48, 144, 208, F8_E4M3, F8_E4M3, F8_F32, T, F, T},
    {MX, MX, 144, 48, 272, F8_E4M3, F8_E4M3, F8_BF16, T, T, F},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- scales ---- */

static int64_t up(int64_t n, int64_t by)
{
    return (n + by - 1) / by * by;
}

static int64_t block_of(mode m)
{
    return m == ROWS ? 0 : m == MX ? 32 : 128;
}

static int64_t along_k(mode m, int64_t k)
{
    return m == ROWS ? 1 : up(k, block_of(m)) / block_of(m);
}

static int64_t across(mode m, int64_t outer)
{
    return m == TILES ? up(outer, 128) / 128 : outer;
}

/* Where cuBLASLt reads scale [o, l], o of `outer`, l of `blocks`. */
static int64_t place(mode m, int64_t o, int64_t l, int64_t outer, int64_t blocks)
{
    switch (m) {
    case ROWS: return o;
    case RUNS: return l * outer + o;              /* "M-major" */
    case TILES: return o * up(blocks, 4) + l;     /* "K-major", the stride a multiple of 4 */
    default:
        return o / 128 * (up(blocks, 4) * 128) + l / 4 * 512 + o % 32 * 16 + o % 128 / 32 * 4 +
               l % 4;
    }
}

static int64_t array_bytes(mode m, int64_t outer, int64_t blocks)
{
    switch (m) {
    case ROWS: return outer * 4;
    case RUNS: return outer * blocks * 4;
    case TILES: return outer * up(blocks, 4) * 4;
    default: return up(outer, 128) * up(blocks, 4);
    }
}

/* One operand: codes row-major as stored, and scales [o, l]. */
typedef struct operand {
    mode mode;
    f8_dtype type;
    int64_t outer, k, stride;
    bool k_is_rows;
    uint8_t *codes;
    float *scale;
} operand;

static const int64_t pad = 16;

/* Codes all over the format's range; scales between 2^-3 and 2^3 that neighbours don't share. */
static operand make_operand(mode m, f8_dtype type, int64_t outer, int64_t k, bool k_is_rows,
                            uint32_t *seed)
{
    operand x = {m, type, outer, k, (k_is_rows ? outer : k) + pad, k_is_rows, NULL, NULL};
    const int64_t n = x.stride * (k_is_rows ? k : outer), scales = across(m, outer) * along_k(m, k);
    x.codes = malloc((size_t)n);
    x.scale = malloc((size_t)scales * sizeof *x.scale);
    for (int64_t i = 0; i < n; i++) {
        const float u = (float)(int32_t)(test_random(seed) - (1 << 23)) * 0x1p-23f;
        x.codes[i] = (uint8_t)f8_encode(type, u * 20, true);
    }
    for (int64_t i = 0; i < scales; i++) {
        const uint32_t r = test_random(seed);
        x.scale[i] = ldexpf(m == MX ? 1 : 1 + (float)(r >> 8 & 0xff) * 0x1p-8f, (int)(r % 7) - 3);
    }
    return x;
}

static void free_operand(operand *x)
{
    free(x->codes);
    free(x->scale);
}

static float code_of(const operand *x, int64_t o, int64_t k)
{
    return f8_decode(x->type, x->codes[x->k_is_rows ? k * x->stride + o : o * x->stride + k]);
}

static double value_of(const operand *x, int64_t o, int64_t k)
{
    const int64_t p = x->mode == TILES ? o / 128 : o,
                  l = x->mode == ROWS ? 0 : k / block_of(x->mode);
    return (double)code_of(x, o, k) * (double)x->scale[p * along_k(x->mode, x->k) + l];
}

/* How an array is laid out: right, or wrong in ways that must show. */
typedef enum fault { RIGHT, NEXT_ALONG, NEXT_ACROSS, AS_A_GRID, N_FAULTS } fault;

static void lay_out(const operand *x, fault wrong, uint8_t *to)
{
    const int64_t outer = across(x->mode, x->outer), blocks = along_k(x->mode, x->k);
    memset(to, 0, (size_t)array_bytes(x->mode, outer, blocks));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t l = 0; l < blocks; l++) {
            const int64_t at =
                wrong == AS_A_GRID ? o * blocks + l : place(x->mode, o, l, outer, blocks);
            const int64_t from_o = wrong == NEXT_ACROSS ? (o + 1) % outer : o;
            const int64_t from_l = wrong == NEXT_ALONG ? (l + 1) % blocks : l;
            const float s = x->scale[from_o * blocks + from_l];
            if (x->mode == MX)
                to[at] = (uint8_t)f8_encode(F8_E8M0, s, false);
            else
                memcpy(to + 4 * at, &s, 4);
        }
}

/* Whether that fault changes anything of it. */
static bool shows(const operand *x, fault wrong)
{
    const int64_t outer = across(x->mode, x->outer), blocks = along_k(x->mode, x->k);
    if (wrong == AS_A_GRID) /* tiles: only where a multiple of 4 is not one already */
        return x->mode == MX || (x->mode == RUNS && blocks > 1) ||
               (x->mode == TILES && blocks % 4 && outer > 1);
    return wrong == NEXT_ALONG ? blocks > 1 : outer > 1;
}

/* ---- running ---- */

typedef struct bench {
    const gemm_case *c;
    cuda_device device;
    operand a, b;
    uint8_t *before, *after;
    int64_t ldc;
    size_t c_bytes;
    f8_plan plan;
    f8_plan_var var[N_VARS];
    f8_plan_func func;
    f8_step step;
    f8_arg arg[F8_GEMM_ARGS];
    f8_cuda_exec *exec;
} bench;

static f8_granularity grain_of(const operand *x)
{
    const f8_granularity g = {x->mode == TILES ? 128 : 1, block_of(x->mode)};
    return x->k_is_rows ? f8_granularity_transposed(g) : g;
}

static f8_gemm_desc describe(const bench *t)
{
    const gemm_case *c = t->c;
    return (f8_gemm_desc){.m = c->m,
                          .n = c->n,
                          .k = c->k,
                          .lda = t->a.stride,
                          .ldb = t->b.stride,
                          .ldc = t->ldc,
                          .a = c->qa,
                          .b = c->qb,
                          .c = c->c,
                          .trans_a = c->trans_a,
                          .trans_b = c->trans_b,
                          .accumulate = c->accumulate,
                          .has_alpha = true,
                          .scale_a = grain_of(&t->a),
                          .scale_b = grain_of(&t->b),
                          .scale = c->a == MX ? F8_E8M0 : F8_F32,
                          .scale_layout = F8_SCALES_CUBLASLT,
                          .algorithm = F8_GEMM_CUBLASLT};
}

static void make_plan(bench *t)
{
    static const char *const names[] = {"a", "b", "c", "sa", "sb"};
    const gemm_case *c = t->c;
    const int64_t bytes[] = {t->a.stride * (c->trans_a ? c->k : c->m),
                             t->b.stride * (c->trans_b ? c->n : c->k), (int64_t)t->c_bytes,
                             WIDEST_ARRAY, WIDEST_ARRAY};
    int64_t at = 0;
    for (int v = 0; v < N_VARS; v++) {
        t->var[v] = (f8_plan_var){.name = names[v], .type = {F8_BOOL, 1, {bytes[v]}}, .offset = at};
        t->arg[v] = (f8_arg){.space = F8_SPACE_STATE, .offset = at};
        at += up(bytes[v], 256);
    }
    t->arg[F8_GEMM_BIAS].space = F8_SPACE_NONE;
    t->step = (f8_step){.kind = F8_STEP_GEMM, .name = "gemm", .arg = t->arg, .n_args = F8_GEMM_ARGS,
                        .gemm = describe(t), .fp8 = true};
    t->func = (f8_plan_func){.name = "multiply", .step = &t->step, .n_steps = 1};
    t->plan = (f8_plan){.module = "check",
                        .target = t->device.target->name,
                        .var = t->var,
                        .n_vars = N_VARS,
                        .func = &t->func,
                        .n_funcs = 1,
                        .state_bytes = at,
                        .gemm_workspace = 4 << 20};
}

static void begin(bench *t, const gemm_case *c)
{
    uint32_t seed = 4242u + (uint32_t)(c - cases);
    *t = (bench){.c = c, .ldc = c->n + pad};
    if (!getenv("FP8C_TEST_GPU"))
        setenv("FP8C_EMULATOR_SM",
               c->a != MX                                ? "90"
               : c->trans_a || !c->trans_b || c->m == 16 ? "100"
                                                         : "120",
               1);
    cuda_device_open(&t->device);
    t->a = make_operand(c->a, c->qa, c->m, c->k, c->trans_a, &seed);
    t->b = make_operand(c->b, c->qb, c->n, c->k, !c->trans_b, &seed);
    t->c_bytes = (size_t)(t->ldc * c->m) * f8_dtype_size(c->c);
    t->before = malloc(t->c_bytes);
    t->after = malloc(t->c_bytes);
    for (int64_t i = 0; i < t->ldc * c->m; i++) {
        const float x = (float)(int32_t)(test_random(&seed) - (1 << 23)) * 0x1p-13f;
        const uint32_t bits = f8_encode(c->c, x, false);
        memcpy(t->before + (size_t)i * f8_dtype_size(c->c), &bits, f8_dtype_size(c->c));
    }
    make_plan(t);
}

static void end(bench *t)
{
    f8_cuda_exec_destroy(t->exec);
    cuda_device_close(&t->device);
    free_operand(&t->a);
    free_operand(&t->b);
    free(t->before);
    free(t->after);
}

/* False when the device finds a fault itself, after which it does nothing more: the emulator looks
 * at the padding around scales of MX blocks. */
static bool multiply(bench *t, fault wrong_a, fault wrong_b)
{
    f8_diag why = {0};
    static uint8_t array[2][WIDEST_ARRAY];
    lay_out(&t->a, wrong_a, array[0]);
    lay_out(&t->b, wrong_b, array[1]);
    OK(f8_cuda_exec_write(t->exec, A, t->a.codes, diag));
    OK(f8_cuda_exec_write(t->exec, B, t->b.codes, diag));
    OK(f8_cuda_exec_write(t->exec, C, t->before, diag));
    OK(f8_cuda_exec_write(t->exec, SA, array[0], diag));
    OK(f8_cuda_exec_write(t->exec, SB, array[1], diag));
    const f8_status status = f8_cuda_exec_run(t->exec, 0, &why);
    if (status != F8_OK && (wrong_a || wrong_b))
        return false;
    ck_assert_msg(status == F8_OK, "%s", why.text);
    OK(f8_cuda_exec_read(t->exec, C, t->after, diag));
    return true;
}

/* ---- the plain loops ---- */

static double element(const bench *t, const uint8_t *c, int64_t i, int64_t j)
{
    const size_t size = f8_dtype_size(t->c->c);
    uint32_t bits = 0;
    memcpy(&bits, c + (size_t)(i * t->ldc + j) * size, size);
    return (double)f8_decode(t->c->c, bits);
}

typedef struct exact {
    double *sum, *absolute; /* [m, n] */
} exact;

static exact plain_loops(const bench *t)
{
    const gemm_case *c = t->c;
    exact e = {malloc((size_t)(c->m * c->n) * sizeof(double)),
               malloc((size_t)(c->m * c->n) * sizeof(double))};
    double *b = malloc((size_t)(c->n * c->k) * sizeof *b), *a = malloc((size_t)c->k * sizeof *a);
    for (int64_t j = 0; j < c->n; j++)
        for (int64_t k = 0; k < c->k; k++)
            b[j * c->k + k] = value_of(&t->b, j, k);
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t k = 0; k < c->k; k++)
            a[k] = value_of(&t->a, i, k);
        for (int64_t j = 0; j < c->n; j++) {
            const double old = c->accumulate ? element(t, t->before, i, j) : 0;
            double sum = old, absolute = fabs(old);
            for (int64_t k = 0; k < c->k; k++) {
                sum += a[k] * b[j * c->k + k];
                absolute += fabs(a[k] * b[j * c->k + k]);
            }
            e.sum[i * c->n + j] = sum;
            e.absolute[i * c->n + j] = absolute;
        }
    }
    free(a);
    free(b);
    return e;
}

static void free_exact(exact *e)
{
    free(e->sum);
    free(e->absolute);
}

/* DeepGEMM's (calc_diff). */
static double measure(const bench *t, const exact *e)
{
    double xy = 0, squares = 0;
    for (int64_t i = 0; i < t->c->m; i++)
        for (int64_t j = 0; j < t->c->n; j++) {
            const double x = element(t, t->after, i, j), y = e->sum[i * t->c->n + j];
            xy += x * y;
            squares += x * x + y * y;
        }
    return 1 - 2 * xy / squares;
}

static void check_elements(const bench *t, const exact *e)
{
    const gemm_case *c = t->c;
    const double f32 = (double)(2 * c->k + 12) * 0x1p-24;
    const double unit = t->device.count ? f32 : f32 + 4 * 33 * 0x1p-13;
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t j = 0; j < c->n; j++) {
            const double want = e->sum[i * c->n + j], got = element(t, t->after, i, j);
            const double bound =
                unit * e->absolute[i * c->n + j] + (c->c == F8_BF16 ? fabs(want) * 0x1p-8 : 0);
            if (!(fabs(got - want) <= bound))
                ck_abort_msg("case %td [%d, %d]: %.9g, not %.9g within %.3g", c - cases, (int)i,
                             (int)j, got, want, bound);
        }
        const size_t size = f8_dtype_size(c->c), row = (size_t)(i * t->ldc + c->n) * size;
        ck_assert(!memcmp(t->before + row, t->after + row, (size_t)(t->ldc - c->n) * size));
    }
}

/* ---- tests ---- */

/* What this device's library lacks: told when the plan is loaded, never done in another mode. */
static const char *lacking(const bench *t)
{
    const f8_target *target = t->device.target;
    if (target->fp8_tn && (t->c->trans_a || !t->c->trans_b))
        return "need k as the contiguous axis";
    if (t->c->a == ROWS && !target->fp8_rows)
        return "take no scale for each row and column of the result";
    if (t->c->a == MX && !target->fp8_mx)
        return "take no f8e8m0 scales";
    return t->c->a != ROWS && t->c->a != MX && !target->fp8_blocks
               ? "take no scales of blocks of 128"
               : NULL;
}

START_TEST(scaled_products)
{
    bench t;
    begin(&t, &cases[_i]);
    f8_diag why = {0};
    const char *lacks = lacking(&t);
    const f8_status status =
        f8_cuda_exec_create(&t.plan, t.device.cuda, &(f8_cuda_exec_options){0}, &t.exec, &why);
    if (lacks) {
        ck_assert_int_eq(status, F8_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(why.text, lacks) != NULL, "%s", why.text);
        test_skip("a scaled GEMM", "case %d: FP8 GEMMs on %s %s", _i, t.device.target->name, lacks);
        end(&t);
        return;
    }
    ck_assert_msg(status == F8_OK, "%s", why.text);
    exact e = plain_loops(&t);
    multiply(&t, RIGHT, RIGHT);
    const double good = measure(&t, &e);
    printf("case %d on %s: measure %.2e\n", _i, t.device.target->name, good);
    ck_assert_msg(good < 1e-3, "case %d: %.3g", _i, good);
    check_elements(&t, &e);
    bool alive = true;
    for (fault wrong = RIGHT + 1; wrong < N_FAULTS && alive; wrong++)
        for (int which = 0; which < 2 && alive; which++) {
            if (!shows(which ? &t.b : &t.a, wrong))
                continue;
            alive = multiply(&t, which ? RIGHT : wrong, which ? wrong : RIGHT);
            ck_assert_msg(!alive || !(measure(&t, &e) < 1e-3),
                          "case %d, fault %d of operand %d is not seen: %.3g", _i, wrong, which,
                          measure(&t, &e));
        }
    free_exact(&e);
    end(&t);
}
END_TEST

/* A plan whose arrays of scales are missing, or begin where the library can't read them. */
START_TEST(arrays_that_are_not_there)
{
    static const char *const message[] = {
        "an array of scales is missing",
        "an array of scales does not begin at a multiple of 16 bytes"};
    bench t;
    begin(&t, &cases[3]);
    f8_diag why = {0};
    if (lacking(&t)) {
        test_skip("missing arrays of scales", "FP8 GEMMs on %s %s", t.device.target->name,
                  lacking(&t));
        end(&t);
        return;
    }
    t.arg[4] =
        (f8_arg){.space = _i ? F8_SPACE_STATE : F8_SPACE_NONE, .offset = t.arg[4].offset + 8};
    ck_assert_int_eq(
        f8_cuda_exec_create(&t.plan, t.device.cuda, &(f8_cuda_exec_options){0}, &t.exec, &why),
        F8_ERR_INPUT);
    ck_assert_msg(strstr(why.text, "'gemm' in multiply: ") && strstr(why.text, message[_i]), "%s",
                  why.text);
    end(&t);
}
END_TEST

/* Problems that differ in their scales alone are two; equal ones are one. */
START_TEST(problems_of_other_scales)
{
    bench t;
    begin(&t, &cases[9]);
    const f8_allocator allocator = f8_default_allocator();
    f8_cublaslt_gemm *list = NULL, *made[3] = {NULL};
    for (int i = 0; i < 3 && !lacking(&t); i++) {
        f8_gemm_desc d = describe(&t);
        d.scale_b = i == 1 ? (f8_granularity){128, 128} : d.scale_b;
        OK(f8_cublaslt_prepare(t.device.cuda, &list, &allocator, &d, 16, 1 << 20, "gemm", &made[i],
                               diag));
    }
    ck_assert(lacking(&t) || (made[0] == made[2] && made[0] != made[1]));
    f8_cublaslt_release_all(t.device.cuda, &list, &allocator);
    end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_scaled_gemm");
    TCase *t = tcase_create("cuda_scaled_gemm");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, scaled_products, 0, N_CASES);
    tcase_add_loop_test(t, arrays_that_are_not_there, 0, 2);
    tcase_add_test(t, problems_of_other_scales);
    suite_add_tcase(s, t);
    return s;
}
