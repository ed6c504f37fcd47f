/* GEMMs on cuBLASLt against plain loops: every dtype, transposition and stride. On a GPU
 * (FP8C_TEST_GPU) or on the emulator; only the emulator's calls fail on request.
 *
 * Bounds. Against a sum in double precision, with S the sum of the absolute products (scales
 * multiplied in) and the absolute old C or bias: any order of k products and k + 3 additions and
 * scalings, each rounded to 24 bits or, on tensor cores, cut off there, is within S (2k + 4) 2^-23.
 * Tensor cores of Hopper add FP8 products with 13 bits below the largest of 32: there within S (k /
 * 32 + 2) 2^-12. A bf16 result adds one rounding, |C| 2^-8 at most. */
#include "codegen/cuda/emit.h"
#include "ir/num/fp8.h"
#include "ir/num/scalar.h"
#include "runtime/cuda/exec.h"
#include "runtime/cuda/cublaslt.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, C2, SA, SB, SC, BIAS, COUNT, N_VARS };
enum { ROOM = 64 * 1024 }; /* bytes of each variable */

typedef struct gemm_case {
    int m, n, k, pad; /* pad: columns that rows have to spare */
    f8_dtype a, b, c;
    bool trans_a, trans_b, accumulate, alpha, fast;
    int shift; /* bytes that c begins past a multiple of 256 */
    bool bias;
} gemm_case;

#define T true
#define F false
static const gemm_case cases[] = {
    {5, 7, 3, 0, F8_F32, F8_F32, F8_F32, F, F, F, F, F, 0, F},
    {5, 7, 3, 1, F8_F32, F8_F32, F8_F32, T, F, F, F, F, 4, F},
    {17, 9, 33, 3, F8_F32, F8_F32, F8_F32, F, T, T, F, F, 0, F},
    {16, 32, 24, 4, F8_F32, F8_F32, F8_F32, T, T, F, F, F, 0, F},
    {1, 64, 40, 0, F8_F32, F8_F32, F8_F32, F, F, T, F, F, 0, F},
    {64, 1, 40, 0, F8_F32, F8_F32, F8_F32, F, T, F, F, F, 0, F},
    {16, 24, 32, 0, F8_BF16, F8_BF16, F8_F32, F, F, F, F, F, 0, F},
    {16, 24, 32, 8, F8_BF16, F8_BF16, F8_BF16, F, T, F, F, F, 0, F},
    {24, 16, 40, 8, F8_BF16, F8_BF16, F8_F32, T, F, T, F, F, 0, F},
    {24, 16, 40, 0, F8_BF16, F8_BF16, F8_BF16, T, T, F, F, F, 0, F},
    {24, 16, 40, 0, F8_BF16, F8_BF16, F8_BF16, T, T, T, F, F, 0, F}, /* refused: two roundings */
    {13, 11, 21, 1, F8_BF16, F8_BF16, F8_BF16, F, F, F, F, F, 2, F},
    {13, 16, 24, 8, F8_BF16, F8_BF16, F8_BF16, F, T, F, F, F, 0, T},
    {24, 40, 16, 0, F8_BF16, F8_BF16, F8_BF16, T, F, F, F, F, 0, T},
    {16, 32, 48, 0, F8_E4M3, F8_E4M3, F8_BF16, F, T, F, T, T, 0, T},
    {24, 16, 40, 0, F8_BF16, F8_BF16, F8_F32, F, T, F, F, F, 0, T}, /* refused: C is f32 */
    {32, 48, 64, 0, F8_E4M3, F8_E4M3, F8_F32, F, T, F, T, F, 0, F},
    {32, 48, 64, 16, F8_E4M3, F8_E4M3, F8_BF16, F, T, F, T, T, 0, F},
    {48, 32, 80, 0, F8_E5M2, F8_E4M3, F8_F32, F, T, T, T, F, 0, F},
    {16, 16, 16, 0, F8_E4M3, F8_E5M2, F8_BF16, F, T, F, F, F, 0, F},
    {32, 48, 64, 0, F8_E4M3, F8_E4M3, F8_F32, F, F, F, T, F, 0, F}, /* not on targets with fp8_tn */
    {32, 48, 64, 0, F8_E5M2, F8_E4M3, F8_F32, T, T, F, T, F, 0, F},
};

static struct {
    cuda_device device;
    counting host;
    f8_allocator allocator;
    f8_plan plan;
    f8_plan_var var[N_VARS];
    f8_plan_func func;
    f8_step step[2];
    f8_arg arg[2][F8_GEMM_ARGS];
    uint8_t data[N_VARS][ROOM];
} g;

static const float scale_a = 0.37f, scale_b = 2.9f, scale_c = -1.25f;

/* ---- the plan: c = a b; and once more into c2, with another scale of b ---- */

static f8_gemm_desc describe(const gemm_case *c)
{
    return (f8_gemm_desc){.m = c->m,
                          .n = c->n,
                          .k = c->k,
                          .lda = (c->trans_a ? c->m : c->k) + c->pad,
                          .ldb = (c->trans_b ? c->k : c->n) + c->pad,
                          .ldc = c->n + c->pad,
                          .a = c->a,
                          .b = c->b,
                          .c = c->c,
                          .trans_a = c->trans_a,
                          .trans_b = c->trans_b,
                          .accumulate = c->accumulate,
                          .has_alpha = c->alpha,
                          .fast_accumulate = c->fast,
                          .bias = c->bias,
                          .algorithm = F8_GEMM_CUBLASLT};
}

static void make_plan(const gemm_case *c)
{
    static const char *const names[] = {"a",  "b",  "c",    "c2",         "sa",
                                        "sb", "sc", "bias", F8_COUNT_NAME};
    for (int v = 0; v < N_VARS; v++) /* bytes, whatever they hold */
        g.var[v] = (f8_plan_var){
            .name = names[v], .type = {F8_BOOL, 1, {ROOM}}, .offset = (int64_t)v * ROOM};
    for (int i = 0; i < 2; i++) {
        const int at[] = {A, B, i ? C2 : C, SA, i ? SC : SB, BIAS, COUNT};
        const bool given[] = {true, true, true, c->alpha, c->alpha, c->bias, c->accumulate};
        g.step[i] = (f8_step){.kind = F8_STEP_GEMM,
                              .name = i ? "second" : "first",
                              .arg = g.arg[i],
                              .n_args = F8_GEMM_ARGS,
                              .gemm = describe(c),
                              .fp8 = f8_dtype_is_fp8(c->a)};
        for (int k = 0; k < F8_GEMM_ARGS; k++)
            g.arg[i][k] = (f8_arg){.space = given[k] ? F8_SPACE_STATE : F8_SPACE_NONE,
                                   .offset = (int64_t)at[k] * ROOM + (k == 2 ? c->shift : 0)};
    }
    g.func = (f8_plan_func){.name = "multiply", .step = g.step, .n_steps = 2};
    g.plan = (f8_plan){.module = "check",
                       .target = g.device.target->name,
                       .var = g.var,
                       .n_vars = N_VARS,
                       .func = &g.func,
                       .n_funcs = 1,
                       .state_bytes = (int64_t)N_VARS * ROOM,
                       .gemm_workspace = 4 << 20};
}

static float decode(f8_dtype type, const uint8_t *p, int64_t i)
{
    uint32_t bits = 0;
    const size_t size = f8_dtype_size(type);
    memcpy(&bits, p + (size_t)i * size, size);
    return f8_decode(type, bits);
}

static void fill(f8_dtype type, uint8_t *p, int64_t count, uint32_t *seed)
{
    const size_t size = f8_dtype_size(type);
    ck_assert((size_t)count * size + 256 <= ROOM);
    for (int64_t i = 0; i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        const uint32_t bits = f8_encode(type, (float)(int32_t)*seed * 0x1p-31f * 3.0f, true);
        memcpy(p + (size_t)i * size, &bits, size);
    }
}

static void make_data(const gemm_case *c)
{
    const f8_gemm_desc d = describe(c);
    uint32_t seed = 12345u + (uint32_t)(c - cases);
    memset(g.data, 0, sizeof g.data);
    fill(c->a, g.data[A], d.lda * (c->trans_a ? c->k : c->m), &seed);
    fill(c->b, g.data[B], d.ldb * (c->trans_b ? c->n : c->k), &seed);
    fill(c->c, g.data[C] + c->shift, d.ldc * c->m, &seed);
    fill(F8_BF16, g.data[BIAS], c->n, &seed);
    memcpy(g.data[C2], g.data[C], ROOM);
    memcpy(g.data[SA], &scale_a, 4);
    memcpy(g.data[SB], &scale_b, 4);
    memcpy(g.data[SC], &scale_c, 4);
}

/* ---- against plain loops ---- */

static void check_result(const gemm_case *c, const uint8_t *before, const uint8_t *after,
                         double scale)
{
    const f8_gemm_desc d = describe(c);
    const double unit = f8_dtype_is_fp8(c->a) && !g.device.count ? (c->k / 32 + 2) * 0x1p-12
                                                                 : (2 * c->k + 4) * 0x1p-23;
    const size_t size = f8_dtype_size(c->c);
    for (int i = 0; i < c->m; i++)
        for (int j = 0; j < d.ldc; j++) {
            const int64_t at = i * d.ldc + j;
            if (j >= c->n) { /* past the row: not touched */
                ck_assert(!memcmp(before + (size_t)at * size, after + (size_t)at * size, size));
                continue;
            }
            const double old = c->accumulate ? (double)decode(c->c, before, at)
                               : c->bias     ? (double)decode(F8_BF16, g.data[BIAS], j)
                                             : 0;
            double sum = 0, absolute = fabs(old);
            for (int k = 0; k < c->k; k++) {
                const float x = decode(c->a, g.data[A], c->trans_a ? k * d.lda + i : i * d.lda + k);
                const float y = decode(c->b, g.data[B], c->trans_b ? j * d.ldb + k : k * d.ldb + j);
                sum += (double)x * (double)y;
                absolute += fabs((double)x * (double)y * scale);
            }
            const double want = sum * scale + old, got = (double)decode(c->c, after, at);
            const double bound = absolute * unit + (c->c == F8_BF16 ? fabs(want) * 0x1p-8 : 0);
            ck_assert_msg(fabs(got - want) <= bound,
                          "case %td [%d, %d]: %.9g, not %.9g within %.3g", c - cases, i, j, got,
                          want, bound);
        }
}

static void open_device(void)
{
    cuda_device_open(&g.device);
    g.allocator = counting_allocator(&g.host);
}

static void close_device(void)
{
    ck_assert_int_eq(g.host.blocks, 0);
    cuda_device_close(&g.device);
}

static void write_all(f8_cuda_exec *x)
{
    for (uint32_t v = 0; v < N_VARS; v++)
        OK(f8_cuda_exec_write(x, v, g.data[v], diag));
}

START_TEST(multiplies)
{
    const gemm_case *c = &cases[_i];
    static uint8_t after[2][ROOM], again[2][ROOM];
    open_device();
    make_plan(c);
    const f8_gemm_desc desc = describe(c);
    f8_diag why = {0};
    const f8_cuda_exec_options o = {.allocator = &g.allocator};
    f8_cuda_exec *x = NULL;
    if (f8_dtype_is_fp8(c->a) && g.device.target->fp8_tn && (c->trans_a || !c->trans_b)) {
        ck_assert_int_eq(f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, &why),
                         F8_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(why.text, "'first' in multiply: FP8 GEMMs on ") &&
                          strstr(why.text, "contiguous"),
                      "%s", why.text);
        close_device();
        return;
    }
    if ((c->c == F8_BF16 && c->accumulate) || (c->c == F8_F32 && c->bias)) {
        ck_assert_int_eq(f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, &why),
                         F8_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(why.text, c->bias ? "a bias is added where C is bf16"
                                               : "rounds a product to bf16 before it adds"),
                      "%s", why.text);
        close_device();
        return;
    }
    make_data(c);
    OK(f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, diag));
    const char *text = f8_cuda_exec_step_algorithm(x, 0, 0);
    ck_assert_msg(
        text && strstr(text, "algorithm ") &&
            (strstr(text, "reduction none") || strstr(text, "reduction f32 in workspace")),
        "%s", text ? text : "none");
    ck_assert_str_eq(text, f8_cuda_exec_step_algorithm(x, 0, 1));
    for (int round = 0; round < 2;
         round++) { /* the graph again, from the same values: the same bits */
        write_all(x);
        OK(f8_cuda_exec_run(x, 0, diag));
        OK(f8_cuda_exec_read(x, C, round ? again[0] : after[0], diag));
        OK(f8_cuda_exec_read(x, C2, round ? again[1] : after[1], diag));
    }
    ck_assert(!memcmp(after, again, sizeof after));
    const double first = c->alpha ? (double)scale_a * (double)scale_b : 1;
    const double second = c->alpha ? (double)scale_a * (double)scale_c : 1;
    check_result(c, g.data[C] + c->shift, after[0] + c->shift, first);
    check_result(c, g.data[C2] + c->shift, after[1] + c->shift, second);
    ck_assert(!memcmp(g.data[C], after[0], (size_t)c->shift));
    const size_t end = (size_t)c->shift + (size_t)(desc.ldc * c->m) * f8_dtype_size(c->c);
    ck_assert(!memcmp(g.data[C] + end, after[0] + end, ROOM - end));
    const f8_exec_counts n = f8_cuda_exec_count(x);
    ck_assert_int_eq(n.gemms, 4);
    ck_assert_int_eq(n.fp8_gemms, f8_dtype_is_fp8(c->a) ? 4 : 0);
    ck_assert_int_eq(n.kernels, 0);
    f8_cuda_exec_destroy(x);
    close_device();
}
END_TEST

static bool is_refused(const gemm_case *c)
{
    const bool turned = f8_dtype_is_fp8(c->a) && (c->trans_a || !c->trans_b);
    return (turned && g.device.target->fp8_tn) || (c->c == F8_BF16 && c->accumulate);
}

/* Where C counts as zeros it is not read: it may hold NaN. A function that runs both ways by turns
 * has a graph for each, and stores the sums that it would add to zeros. */
START_TEST(stores_or_adds)
{
    const gemm_case *c = &cases[_i];
    gemm_case stored = *c;
    static uint8_t before[ROOM], first[ROOM], after[ROOM], added[ROOM];
    open_device();
    if (!c->accumulate || is_refused(c)) {
        close_device();
        return;
    }
    stored.accumulate = false;
    make_plan(c);
    make_data(c);
    const f8_cuda_exec_options o = {.allocator = &g.allocator};
    const size_t bytes = (size_t)(describe(c).ldc * c->m) * f8_dtype_size(c->c);
    f8_cuda_exec *x = NULL;
    OK(f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, diag));
    for (int round = 0; round < 4; round++) {
        const bool afresh = round % 2 == 0;
        memset(before, 0xff, sizeof before); /* NaN */
        write_all(x);
        OK(f8_cuda_exec_write(x, C, afresh ? before : g.data[C], diag));
        f8_cuda_exec_begin_sums(x, afresh);
        OK(f8_cuda_exec_run(x, 0, diag));
        OK(f8_cuda_exec_read(x, C, after, diag));
        const double scale = c->alpha ? (double)scale_a * (double)scale_b : 1;
        check_result(afresh ? &stored : c, (afresh ? before : g.data[C]) + c->shift,
                     after + c->shift, scale);
        if (afresh && round)
            ck_assert(!memcmp(first, after, sizeof after));
        if (round == 0)
            memcpy(first, after, sizeof after);
    }
    memset(before + c->shift, 0, bytes);
    OK(f8_cuda_exec_write(x, C, before, diag));
    OK(f8_cuda_exec_run(x, 0, diag));
    OK(f8_cuda_exec_read(x, C, added, diag));
    for (int i = 0; i < c->m; i++) /* equal as numbers: -0 may be stored where +0 would be added */
        for (int j = 0; j < c->n; j++) {
            const int64_t at = i * describe(c).ldc + j;
            ck_assert(decode(c->c, added + c->shift, at) == decode(c->c, first + c->shift, at));
        }
    f8_cuda_exec_destroy(x);
    close_device();
}
END_TEST

/* A bias is added to the f32 sum, and the result is rounded once. Operands are small integers and
 * scales are powers of two, so every sum is exact in any order of adding. Sums need more bits than
 * a bf16 has, so a sum that is rounded before the bias is added gives other results. */
START_TEST(bias_is_rounded_once)
{
    gemm_case c = cases[_i];
    static uint8_t after[ROOM];
    if (!c.bias || c.c != F8_BF16)
        return;
    open_device();
    make_plan(&cases[_i]);
    make_data(&cases[_i]);
    const f8_gemm_desc d = describe(&c);
    static const float small[] = {9, 11, -5, 15};
    uint32_t seed = 99;
    for (int v = A; v <= B; v++)
        for (int64_t i = 0; i < ROOM / (int64_t)f8_dtype_size(c.a); i++) {
            seed = seed * 1664525u + 1013904223u;
            const uint32_t bits = f8_encode(v == A ? c.a : c.b, small[seed >> 30], true);
            memcpy(g.data[v] + (size_t)i * f8_dtype_size(c.a), &bits, f8_dtype_size(c.a));
        }
    for (int j = 0; j < c.n; j++) {
        const float bias = (1 + (float)(j % 8) / 128) * (j % 3 ? 1.0f : -1.0f);
        const uint32_t bits = f8_encode(F8_BF16, bias, true);
        memcpy(g.data[BIAS] + 2 * j, &bits, 2);
    }
    const float two = 2;
    memcpy(g.data[SA], &two, 4);
    memcpy(g.data[SB], &two, 4);
    const f8_cuda_exec_options o = {.allocator = &g.allocator};
    f8_cuda_exec *x = NULL;
    OK(f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, diag));
    write_all(x);
    OK(f8_cuda_exec_run(x, 0, diag));
    OK(f8_cuda_exec_read(x, C, after, diag));
    int twice = 0; /* results that two roundings would change */
    for (int i = 0; i < c.m; i++)
        for (int j = 0; j < c.n; j++) {
            float sum = 0;
            for (int k = 0; k < c.k; k++)
                sum += decode(c.a, g.data[A], c.trans_a ? k * d.lda + i : i * d.lda + k) *
                       decode(c.b, g.data[B], c.trans_b ? j * d.ldb + k : k * d.ldb + j);
            sum *= c.alpha ? two * two : 1;
            const float bias = decode(F8_BF16, g.data[BIAS], j);
            const float rounded = f8_decode(F8_BF16, f8_encode(F8_BF16, sum, false));
            const uint32_t want = f8_encode(F8_BF16, sum + bias, false);
            uint16_t got;
            memcpy(&got, after + (size_t)(i * d.ldc + j) * 2, 2);
            ck_assert_msg(got == want, "case %d [%d, %d]: %04x, not %04x: %g + %g", _i, i, j, got,
                          want, (double)sum, (double)bias);
            twice += want != f8_encode(F8_BF16, rounded + bias, false);
        }
    ck_assert_int_gt(twice, 0);
    f8_cuda_exec_destroy(x);
    close_device();
}
END_TEST

/* Rows that begin at multiples of 16 bytes: how far apart they are decides no algorithm, and no
 * bit. What the library says when asked about such strides is not swallowed. */
START_TEST(strides_choose_nothing)
{
    gemm_case c = cases[_i];
    f8_cublaslt_gemm *list = NULL, *made[2] = {NULL};
    f8_diag why = {0};
    open_device();
    c.pad = 0;
    const f8_gemm_desc tight = describe(&c);
    f8_gemm_desc wide = tight;
    const int64_t by[] = {16 / (int64_t)f8_dtype_size(c.a), 16 / (int64_t)f8_dtype_size(c.b),
                          16 / (int64_t)f8_dtype_size(c.c)};
    const bool aligned = tight.lda % by[0] == 0 && tight.ldb % by[1] == 0 && tight.ldc % by[2] == 0;
    wide.lda += 2 * by[0];
    wide.ldb += 3 * by[1];
    wide.ldc += 5 * by[2];
    if (!aligned || f8_cublaslt_supports(g.device.target, &tight, &why) != F8_OK) {
        close_device();
        return;
    }
    OK(f8_cublaslt_prepare(g.device.cuda, &list, &g.allocator, &tight, 16, 1 << 20, "tight",
                           &made[0], diag));
    if (g.device.count) {
        f8_cublaslt_gemm *none = NULL;
        cuda_device_fail("cublasLtMatmulAlgoCheck", 1);
        ck_assert_int_eq(f8_cublaslt_prepare(g.device.cuda, &list, &g.allocator, &wide, 16, 1 << 20,
                                             "wide", &none, &why),
                         F8_ERR_LIBRARY);
        cuda_device_fail(NULL, 0);
        ck_assert_msg(strstr(why.text, "cublasLtMatmulAlgoCheck of wide"), "%s", why.text);
    }
    OK(f8_cublaslt_prepare(g.device.cuda, &list, &g.allocator, &wide, 16, 1 << 20, "wide", &made[1],
                           diag));
    ck_assert(made[0] != made[1]);
    /* the same algorithm; its workspace is asked of the heuristic for one and of the check for the
     * other, which may name different bytes */
    const char *text[] = {f8_cublaslt_describe(made[0]), f8_cublaslt_describe(made[1])};
    const size_t n = (size_t)(strstr(text[0], ", workspace ") - text[0]);
    ck_assert_msg(!strncmp(text[0], text[1], n + 1), "%s and %s", text[0], text[1]);
    f8_cublaslt_release_all(g.device.cuda, &list, &g.allocator);
    close_device();
}
END_TEST

/* ---- emulator only: every call fails once ---- */

static const char *const failing[] = {
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulAlgoConfigGetAttribute",
    "cublasLtMatmul",
};

START_TEST(every_call_can_fail)
{
    open_device();
    const gemm_case *c = &cases[11];
    make_plan(c);
    make_data(c);
    if (!g.device.count)
        test_skip("failing calls of cuBLASLt", "a GPU does not fail on request");
    for (int n = 1; n <= 3 && g.device.count; n++) {
        const f8_cuda_exec_options o = {.allocator = &g.allocator};
        f8_cuda_exec *x = NULL;
        f8_diag d = {0};
        cuda_device_fail(failing[_i], n);
        f8_status status = f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, &d);
        if (status == F8_OK)
            status = f8_cuda_exec_run(x, 0, &d);
        f8_cuda_exec_destroy(x);
        cuda_device_fail(NULL, 0);
        ck_assert_msg(n > 1 || status == F8_ERR_LIBRARY || status == F8_ERR_MEMORY, "%s: status %d",
                      failing[_i], status);
        if (status != F8_OK)
            ck_assert_msg(strstr(d.text, failing[_i]) &&
                              strstr(d.text, "in multiply: CUBLAS_STATUS_"),
                          "%s", d.text);
        ck_assert_int_eq(g.host.blocks, 0);
    }
    close_device();
}
END_TEST

/* What cuBLASLt refuses only when it runs a GEMM, it refuses while the program is made. Nothing is
 * spoiled by it, and trying changes no variable of a program that shares them. */
START_TEST(refused_when_run)
{
    static uint8_t after[ROOM];
    const f8_cuda_exec_options o = {0};
    f8_cuda_exec *x = NULL, *y = NULL;
    f8_diag d = {0};
    open_device();
    make_plan(&cases[11]);
    make_data(&cases[11]);
    if (!g.device.count) {
        test_skip("failing calls of cuBLASLt", "a GPU does not fail on request");
        close_device();
        return;
    }
    cuda_device_fail("cublasLtMatmul", 1);
    ck_assert_int_eq(f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, &d), F8_ERR_LIBRARY);
    ck_assert_msg(strstr(d.text, "cublasLtMatmul of 'first' in multiply: CUBLAS_STATUS_"), "%s",
                  d.text);
    ck_assert_ptr_null(x);
    cuda_device_fail(NULL, 0);
    OK(f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, diag));
    write_all(x);
    OK(f8_cuda_exec_create(&g.plan, g.device.cuda, &(f8_cuda_exec_options){.like = x}, &y, diag));
    for (uint32_t v = 0; v < N_VARS; v++) {
        OK(f8_cuda_exec_read(x, v, after, diag));
        ck_assert(!memcmp(g.data[v], after, ROOM));
    }
    OK(f8_cuda_exec_run(y, 0, diag));
    f8_cuda_exec_destroy(y);
    f8_cuda_exec_destroy(x);
    close_device();
}
END_TEST

/* The handle is made once; that it could not be is said every time. */
START_TEST(no_handle)
{
    open_device();
    make_plan(&cases[0]);
    const f8_cuda_exec_options o = {.allocator = &g.allocator};
    if (!g.device.count)
        test_skip("failing calls of cuBLASLt", "a GPU does not fail on request");
    cuda_device_fail("cublasLtCreate", 1);
    for (int k = 0; k < 2 && g.device.count; k++) {
        f8_cuda_exec *x = NULL;
        f8_diag d = {0};
        const f8_status status = f8_cuda_exec_create(&g.plan, g.device.cuda, &o, &x, &d);
        ck_assert_msg((status == F8_ERR_LIBRARY || status == F8_ERR_MEMORY) && !x, "%s", d.text);
        ck_assert_msg(strstr(d.text, "cublasLtCreate: CUBLAS_STATUS_") != NULL, "%s", d.text);
    }
    close_device();
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_gemm");
    TCase *t = tcase_create("gemm");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, multiplies, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(t, stores_or_adds, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(t, bias_is_rounded_once, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(t, strides_choose_nothing, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(t, every_call_can_fail, 0, sizeof failing / sizeof *failing);
    tcase_add_test(t, refused_when_run);
    tcase_add_test(t, no_handle);
    suite_add_tcase(s, t);
    return s;
}
