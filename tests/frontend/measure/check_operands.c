/* The measure of a result: it must let right results pass, of plain
 * f32 loops in several orders and of the CPU's GEMMs, and find wrong ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/operands.h"
#include "ir/num/fp8.h"
#include "tests/shared/kernel/gemm_problem.h"
#include "tests/shared/suite.h"

static void *room(int64_t bytes)
{
    void *p = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
    ck_assert_ptr_nonnull(p);
    return p;
}

static double value_of(f8_dtype dtype, const void *data, int64_t i)
{
    uint32_t bits = 0;
    const size_t size = f8_dtype_size(dtype);
    memcpy(&bits, (const char *)data + (size_t)i * size, size);
    return (double)f8_decode(dtype, bits);
}

/* ---- problems ---- */

typedef enum scaling { NONE, TENSOR, ROW, BLOCK, MX, N_SCALINGS } scaling;
typedef enum epilogue { F32, BF16, BIAS, ACCUMULATE, N_EPILOGUES } epilogue;

typedef struct problem {
    f8_product p;
    void *data[7];
} problem;

/* A block of 1 along the result's axis and `k` along k, or of 128 x 128 for B; as stored. */
static f8_granularity grain_of(scaling s, bool second, bool k_is_rows)
{
    const int64_t k = s == BLOCK ? 128 : s == MX ? 32 : 0;
    const int64_t outer = s <= TENSOR ? 0 : s == BLOCK && second ? 128 : 1;
    return k_is_rows ? (f8_granularity){k, outer} : (f8_granularity){outer, k};
}

static problem make(int64_t m, int64_t n, int64_t k, f8_dtype a, f8_dtype b, scaling s, int trans,
                    epilogue e, f8_inputs inputs)
{
    problem x = {.p = {.m = m,
                       .n = n,
                       .k = k,
                       .a = a,
                       .b = b,
                       .trans_a = trans & 1,
                       .trans_b = trans >> 1,
                       .scale = s == MX ? F8_E8M0 : F8_F32}};
    f8_product *p = &x.p;
    const int64_t elements[] = {m * k, k * n, m * k + 1, k * n + 1, n, m * n};
    for (int i = 0; i < 6; i++)
        x.data[i] = room(elements[i] * 4);
    p->c = e == BF16 || e == BIAS ? F8_BF16 : F8_F32;
    p->grain_a = grain_of(s, false, p->trans_a);
    p->grain_b = grain_of(s, true, !p->trans_b);
    f8_operand_fill(inputs, a, 1, x.data[0], m * k);
    f8_operand_fill(inputs, b, 2, x.data[1], k * n);
    f8_operand_fill_scales(inputs, a, p->scale, 3, x.data[2], m * k + 1);
    f8_operand_fill_scales(inputs, b, p->scale, 4, x.data[3], k * n + 1);
    f8_operand_fill(inputs, F8_BF16, 5, x.data[4], n);
    f8_operand_fill(inputs, F8_F32, 6, x.data[5], m * n);
    p->a_data = x.data[0];
    p->b_data = x.data[1];
    p->a_scale = s ? x.data[2] : NULL;
    p->b_scale = s ? x.data[3] : NULL;
    p->bias = e == BIAS ? x.data[4] : NULL;
    p->sum = e == ACCUMULATE ? x.data[5] : NULL;
    return x;
}

static void end(problem *x)
{
    for (int i = 0; i < 7; i++)
        free(x->data[i]);
}

/* The code of op(A)[o, k], or op(B)[k, o], and its scale. */
typedef struct element {
    float code, scale;
} element;

static element at(const f8_product *p, bool second, int64_t o, int64_t k)
{
    const bool k_is_rows = second ? !p->trans_b : p->trans_a;
    const int64_t row = k_is_rows ? k : o, col = k_is_rows ? o : k;
    const int64_t cols = k_is_rows ? (second ? p->n : p->m) : p->k;
    const f8_granularity g = second ? p->grain_b : p->grain_a;
    const void *scale = second ? p->b_scale : p->a_scale;
    const int64_t wide = g.cols ? (cols + g.cols - 1) / g.cols : 1;
    const int64_t block = (g.rows ? row / g.rows : 0) * wide + (g.cols ? col / g.cols : 0);
    return (element){
        (float)value_of(second ? p->b : p->a, second ? p->b_data : p->a_data, row * cols + col),
        scale ? (float)value_of(p->scale, scale, block) : 1};
}

/* ---- results in f32 ---- */

/* How C is computed. */
typedef struct method {
    bool backward;   /* in chunks of 32, the last first, each scaled after its sum */
    int64_t without; /* this one of k is left out; -1: none */
    bool twice;      /* the sum is rounded to bf16 before the bias is added */
} method;

static const method forward = {.without = -1}, backward = {.backward = true, .without = -1};

static float sum_forward(const element *a, const element *b, int64_t k, int64_t without)
{
    float sum = 0;
    for (int64_t i = 0; i < k; i++)
        if (i != without)
            sum += a[i].code * a[i].scale * (b[i].code * b[i].scale);
    return sum;
}

static float sum_backward(const element *a, const element *b, int64_t k)
{
    float sum = 0;
    for (int64_t first = (k - 1) / 32 * 32; first >= 0; first -= 32) {
        float part = 0;
        for (int64_t i = first; i < first + 32 && i < k; i++)
            part += a[i].code * b[i].code;
        sum += part * (a[first].scale * b[first].scale);
    }
    return sum;
}

static void store(const f8_product *p, int64_t i, int64_t j, float sum, bool twice, void *c)
{
    if (p->sum)
        sum += p->sum[i * p->n + j];
    if (twice)
        sum = f8_round_bf16(sum);
    if (p->bias)
        sum += f8_bf16_to_f32(p->bias[j]);
    if (p->c == F8_BF16)
        ((uint16_t *)c)[i * p->n + j] = f8_f32_to_bf16(sum);
    else
        ((float *)c)[i * p->n + j] = sum;
}

static element *side(const f8_product *p, bool second)
{
    const int64_t outer = second ? p->n : p->m;
    element *x = room(outer * p->k * (int64_t)sizeof *x);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < p->k; k++)
            x[o * p->k + k] = at(p, second, o, k);
    return x;
}

/* Free it. */
static void *multiply(const f8_product *p, method how)
{
    void *c = room(p->m * p->n * 4);
    element *a = side(p, false), *b = side(p, true);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const element *x = a + i * p->k, *y = b + j * p->k;
            const float sum =
                how.backward ? sum_backward(x, y, p->k) : sum_forward(x, y, p->k, how.without);
            store(p, i, j, sum, how.twice, c);
        }
    free(a);
    free(b);
    return c;
}

static double error_of(const f8_product *p, method how)
{
    void *c = multiply(p, how);
    const double error = f8_product_error(p, c, 1);
    free(c);
    return error;
}

/* ---- right and wrong results ---- */

static const struct {
    f8_dtype a, b;
    scaling first, last;
} formats[] = {
    {F8_F32, F8_F32, NONE, NONE},
    {F8_BF16, F8_BF16, NONE, NONE},
    {F8_E4M3, F8_E4M3, NONE, MX},
    {F8_E5M2, F8_E4M3, TENSOR, MX},
};
enum { N_FORMATS = 4 };

START_TEST(right_results_pass)
{
    static const int64_t sizes[][3] = {{19, 37, 160}, {5, 7, 3}, {1, 9, 129}, {131, 2, 1}};
    int count = 0;
    for (int i = 0; i < 4; i++)
        for (scaling s = formats[_i].first; s <= formats[_i].last; s++)
            for (int trans = 0; trans < 4; trans++)
                for (epilogue e = 0; e < N_EPILOGUES; e++) {
                    problem x = make(sizes[i][0], sizes[i][1], sizes[i][2], formats[_i].a,
                                     formats[_i].b, s, trans, e, (f8_inputs)(count++ % 3));
                    const double one = error_of(&x.p, forward), two = error_of(&x.p, backward);
                    ck_assert_msg(one < 1 && two < 1,
                                  "size %d, scaling %d, transposed %d, epilogue %d: %g, %g", i,
                                  (int)s, trans, (int)e, one, two);
                    end(&x);
                }
}
END_TEST

/* Sums of integers are exact, and the measure says so; but for bf16 results, which are rounded. */
START_TEST(integers_are_exact)
{
    for (int trans = 0; trans < 4; trans++)
        for (epilogue e = 0; e < N_EPILOGUES; e++) {
            problem x = make(19, 37, 160, formats[_i].a, formats[_i].b, formats[_i].last, trans, e,
                             F8_INPUTS_INTEGERS);
            const double error = error_of(&x.p, backward);
            ck_assert_msg(x.p.c == F8_F32 ? error == 0 : error > 0 && error < 1, "%g", error);
            end(&x);
        }
}
END_TEST

static void swap(void *scales, size_t size)
{
    char *x = scales, first[4];
    memcpy(first, x, size);
    memcpy(x, x + size, size);
    memcpy(x + size, first, size);
}

/* One of 140 products is missing; two scales are in each other's place; an operand is transposed.
 */
START_TEST(wrong_results_fail)
{
    for (scaling s = formats[_i].first; s <= formats[_i].last; s++)
        for (int trans = 0; trans < 4; trans++)
            for (epilogue e = 0; e < (trans == 2 ? N_EPILOGUES : 1); e++) {
                problem x =
                    make(19, 140, 140, formats[_i].a, formats[_i].b, s, trans, e, F8_INPUTS_NORMAL);
                const method one_less = {.without = 139};
                ck_assert_double_gt(error_of(&x.p, one_less), 1);
                void *c = multiply(&x.p, forward);
                ck_assert_double_lt(f8_product_error(&x.p, c, 1), 1);
                for (int side = 0; side < 2 && s > TENSOR; side++) {
                    swap(x.data[2 + side], f8_dtype_size(x.p.scale));
                    ck_assert_double_gt(f8_product_error(&x.p, c, 1), 1);
                    swap(x.data[2 + side], f8_dtype_size(x.p.scale));
                }
                f8_product other = x.p;
                other.trans_b = !other.trans_b;
                ck_assert_double_gt(f8_product_error(&other, c, 1), 1);
                free(c);
                end(&x);
            }
}
END_TEST

START_TEST(rounding_twice_fails)
{
    problem x = make(19, 37, 160, F8_E4M3, F8_E4M3, TENSOR, 2, BIAS, F8_INPUTS_NORMAL);
    const method twice = {.without = -1, .twice = true};
    ck_assert_double_gt(error_of(&x.p, twice), 1);
    end(&x);
}
END_TEST

START_TEST(not_finite)
{
    problem x = make(37, 53, 30, F8_BF16, F8_BF16, NONE, 2, F32, F8_INPUTS_NORMAL);
    float *c = multiply(&x.p, forward);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        const float good = c[1000];
        c[1000] = bad[i];
        ck_assert(f8_product_error(&x.p, c, 1) == INFINITY);
        c[1000] = good;
    }
    ck_assert_double_lt(f8_product_error(&x.p, c, 1), 1);
    free(c);
    end(&x);
}
END_TEST

START_TEST(zeros)
{
    problem x = make(37, 53, 30, F8_E4M3, F8_E4M3, ROW, 2, BF16, F8_INPUTS_ZEROS);
    uint16_t *c = multiply(&x.p, forward);
    ck_assert(f8_product_error(&x.p, c, 1) == 0);
    c[5] = 1;
    ck_assert(f8_product_error(&x.p, c, 1) == INFINITY);
    free(c);
    end(&x);
}
END_TEST

/* A bf16 result may be off by half of the distance to its neighbour, and not by all of it. */
START_TEST(neighbours_in_bf16)
{
    const float a = 3, b = 1;
    const f8_product p = {.m = 1, .n = 1, .k = 1, .c = F8_BF16, .a_data = &a, .b_data = &b};
    for (int d = -1; d <= 1; d += 2) {
        const uint16_t c = (uint16_t)(f8_f32_to_bf16(3) + d);
        const double error = f8_product_error(&p, &c, 1);
        ck_assert_msg(error > 1.99 && error < 2, "%g", error);
    }
}
END_TEST

/* Blocks that end anywhere, along k and across it. */
START_TEST(odd_blocks)
{
    for (int trans = 0; trans < 4; trans++) {
        problem x = make(19, 37, 130, F8_E4M3, F8_E4M3, ROW, trans, F32, F8_INPUTS_NORMAL);
        const f8_granularity along_columns = {5, 21}, along_rows = {21, 5};
        x.p.grain_a = x.p.trans_a ? along_rows : along_columns;
        x.p.grain_b = x.p.trans_b ? along_columns : along_rows;
        ck_assert_double_lt(error_of(&x.p, forward), 1);
        end(&x);
    }
}
END_TEST

/* ---- decoding ---- */

static void check_bf16(double x, uint16_t code)
{
    const double off = fabs((double)f8_bf16_to_f32(code) - x);
    for (int d = -1; d <= 1; d += 2) {
        const uint16_t other = (uint16_t)(code + d);
        const double more = fabs((double)f8_bf16_to_f32(other) - x);
        require(off < more || (off == more && !(code & 1)) || (code & 0x7fff) == 0,
                "%g is %04x, but %04x is nearer", x, code, other);
    }
}

START_TEST(decoding)
{
    for (scaling s = formats[_i].first; s <= formats[_i].last; s++)
        for (int trans = 0; trans < 4; trans++) {
            problem x =
                make(70, 301, 299, formats[_i].a, formats[_i].b, s, trans, F32, F8_INPUTS_NORMAL);
            for (int second = 0; second < 2; second++) {
                const int64_t outer = second ? 301 : 70, k = 299;
                const bool k_is_rows = second ? !x.p.trans_b : x.p.trans_a;
                float *f32 = room(outer * k * 4);
                uint16_t *bf16 = room(outer * k * 2);
                f8_product_decode(&x.p, second, F8_F32, f32);
                f8_product_decode(&x.p, second, F8_BF16, bf16);
                for (int64_t o = 0; o < outer; o++)
                    for (int64_t i = 0; i < k; i++) {
                        const int64_t to = k_is_rows ? i * outer + o : o * k + i;
                        const element e = at(&x.p, second, o, i);
                        const float scale = s == TENSOR ? 1 : e.scale;
                        require(f32[to] == e.code * scale, "[%d, %d]: %g", (int)o, (int)i,
                                (double)f32[to]);
                        check_bf16((double)e.code * (double)scale, bf16[to]);
                    }
                free(f32);
                free(bf16);
            }
            end(&x);
        }
}
END_TEST

/* What lies on the middle between two bf16, and what an f32 would round to there. */
START_TEST(decoding_near_ties)
{
    enum { N = 1 << 20 };
    uint32_t *middle = room(N * 4);
    uint16_t *to = room(N * 2);
    for (uint32_t i = 0; i < N; i++)
        middle[i] = (i % 0x7f80) << 16 | 0x8000;
    f8_product p = {.m = 1, .n = 1, .k = N, .a_data = middle};
    f8_product_decode(&p, false, F8_BF16, to);
    for (int i = 0; i < N; i++)
        require(to[i] == f8_f32_to_bf16(f8_from_bits(middle[i])), "element %d: %04x", i, to[i]);
    problem x = make(1, 1, N, F8_E4M3, F8_E4M3, ROW, 0, F32, F8_INPUTS_NORMAL);
    int near = 0;
    x.p.grain_a = (f8_granularity){0, 1};
    f8_product_decode(&x.p, false, F8_BF16, to);
    for (int i = 0; i < N; i++) {
        const element e = at(&x.p, false, 0, i);
        const double exact = (double)e.code * (double)e.scale;
        near += (f8_bits((float)exact) & 0xffff) == 0x8000 && (double)(float)exact != exact;
        check_bf16(exact, to[i]);
    }
    ck_assert_int_ge(near, 4); /* N / 2^16 are expected, of those that f32 rounds */
    free(middle);
    free(to);
    end(&x);
}
END_TEST

/* ---- the CPU's GEMMs ---- */

static double run_gemm(const gemm_setup *s, const problem *x, uint32_t algorithm)
{
    const f8_product *p = &x->p;
    const f8_gemm_desc d = {.m = p->m,
                            .n = p->n,
                            .k = p->k,
                            .lda = p->trans_a ? p->m : p->k,
                            .ldb = p->trans_b ? p->k : p->n,
                            .ldc = p->n,
                            .a = p->a,
                            .b = p->b,
                            .trans_a = p->trans_a,
                            .trans_b = p->trans_b,
                            .accumulate = p->sum != NULL,
                            .has_alpha = p->a_scale != NULL,
                            .scale_a = p->grain_a,
                            .scale_b = p->grain_b,
                            .scale = p->scale,
                            .algorithm = algorithm};
    f8_diag diag = {0};
    f8_gemm *gemm;
    ck_assert_msg(f8_gemm_prepare(s->lib, &d, 2, &gemm, &diag) == F8_OK, "%s", diag.text);
    void *workspace = room((int64_t)f8_gemm_workspace(gemm));
    float *c = room(p->m * p->n * 4);
    if (p->sum)
        memcpy(c, p->sum, (size_t)(p->m * p->n) * 4);
    ck_assert_int_eq(
        f8_gemm_run(gemm, s->pools[2], p->a_data, p->b_data, c, p->a_scale, p->b_scale, workspace),
        F8_OK);
    const double error = f8_product_error(p, c, 4);
    free(c);
    free(workspace);
    f8_gemm_release(gemm);
    return error;
}

START_TEST(gemms_of_the_cpu_pass)
{
    gemm_setup s;
    gemm_setup_make(&s);
    for (scaling scaling = formats[_i].first; scaling <= formats[_i].last; scaling++)
        for (int trans = 0; trans < 3; trans++) { /* as wgrad is, and two more */
            problem x =
                make(66, 95, 1100, formats[_i].a, formats[_i].b, scaling, trans,
                     trans == 1 ? ACCUMULATE : F32, trans ? F8_INPUTS_NORMAL : F8_INPUTS_UNIFORM);
            const double one = run_gemm(&s, &x, F8_GEMM_AUTO);
            const double two = run_gemm(&s, &x, F8_GEMM_ONEDNN_F32);
            ck_assert_msg(one > 0 && one < 1 && two > 0 && two < 1, "%g, %g", one, two);
            end(&x);
        }
    gemm_setup_end(&s);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("operands");
    TCase *t = tcase_create("operands");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, right_results_pass, 0, N_FORMATS);
    tcase_add_loop_test(t, integers_are_exact, 0, N_FORMATS);
    tcase_add_loop_test(t, wrong_results_fail, 0, N_FORMATS);
    tcase_add_test(t, rounding_twice_fails);
    tcase_add_test(t, not_finite);
    tcase_add_test(t, zeros);
    tcase_add_test(t, neighbours_in_bf16);
    tcase_add_test(t, odd_blocks);
    tcase_add_loop_test(t, decoding, 0, N_FORMATS);
    tcase_add_test(t, decoding_near_ties);
    tcase_add_loop_test(t, gemms_of_the_cpu_pass, 0, N_FORMATS);
    suite_add_tcase(s, t);
    return s;
}
