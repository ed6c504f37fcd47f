/* The judge of single ops: what is computed right in f32, in another order than the reference's,
 * passes; an element that is off by twice its bound is named; bounds are no looser than a case
 * says. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/kernel/judge_case.h"

START_TEST(right_ones_pass)
{
    for (uint32_t seed = 1; seed <= 3; seed++) {
        fixture x;
        compute(&x, _i, seed);
        for (f8_sums sums = F8_SUMS_F32; sums <= F8_SUMS_GPU; sums++) {
            ASSERT_OK(&x, sums);
            ck_assert_int_eq(x.j.unbounded, 0);
            ck_assert_double_le(x.j.worst, 1);
        }
        finish(&x);
    }
}
END_TEST

static double largest(const f8_type *t, const void *data, int64_t *at)
{
    double top = -1;
    for (int64_t i = 0; i < f8_type_elements(t); i++)
        if (fabs((double)load(t, data, i)) > top) {
            top = fabs((double)load(t, data, i));
            *at = i;
        }
    return top;
}

/* What the bound of an element is shows in the judgement of a NaN there. */
static double allowed_at(fixture *x, int result, int64_t i)
{
    const f8_type t = f8_result_type(x->g, x->r, result);
    const uint32_t was = load_bits(t.dtype, x->got[result], i);
    store(&t, x->got[result], i, NAN);
    ck_assert(!judge(x, F8_SUMS_F32));
    ck_assert_int_eq(x->j.off, 1);
    ck_assert_int_eq(x->j.result, result);
    ck_assert_int_eq(x->j.at, i);
    ck_assert(isnan(x->j.got) && isinf(x->j.worst));
    store_bits(t.dtype, x->got[result], i, was);
    return x->j.allowed;
}

static void assert_named(fixture *x, int result, int64_t i, double got)
{
    const f8_type t = f8_result_type(x->g, x->r, result);
    const uint32_t was = load_bits(t.dtype, x->got[result], i);
    store(&t, x->got[result], i, (float)got);
    ck_assert_msg(!judge(x, F8_SUMS_F32), "result %d[%lld] as %g", result, (long long)i, got);
    ck_assert_int_eq(x->j.off, 1);
    ck_assert_int_eq(x->j.result, result);
    ck_assert_int_eq(x->j.at, i);
    ck_assert_double_gt(x->j.worst, 1);
    store_bits(t.dtype, x->got[result], i, was);
}

/* Each element of a small sample, of every result. */
START_TEST(wrong_ones_are_named)
{
    fixture x;
    compute(&x, _i, 7);
    for (int r = 0; r < f8_op_facts(f8_at(x.g, x.r)->op)->results; r++) {
        const f8_type t = f8_result_type(x.g, x.r, r);
        int64_t top_at = 0;
        const double top = largest(&t, x.got[r], &top_at);
        for (int64_t i = 0; i < f8_type_elements(&t); i += 1 + f8_type_elements(&t) / 9) {
            const double allowed = allowed_at(&x, r, i), want = x.j.want;
            ck_assert_msg(allowed <= cases[_i].loosest * top, "%g of %g", allowed, top);
            assert_named(&x, r, i, want + 2.1 * allowed);
            assert_named(&x, r, i, want - 2.1 * allowed);
            assert_named(&x, r, i, INFINITY);
        }
        const uint32_t bit = t.dtype == F8_BF16 ? 1u << 7 : 1u << 23; /* the lowest exponent bit */
        store_bits(t.dtype, x.got[r], top_at, load_bits(t.dtype, x.got[r], top_at) ^ bit);
        ck_assert(!judge(&x, F8_SUMS_GPU));
        ck_assert_int_eq(x.j.at, top_at);
        store_bits(t.dtype, x.got[r], top_at, load_bits(t.dtype, x.got[r], top_at) ^ bit);
    }
    ASSERT_OK(&x, F8_SUMS_F32);
    finish(&x);
}
END_TEST

/* ---- what the ways of summing allow ---- */

/* The bound of a product in f32, by hand: (k + 6) u of the sum of magnitudes. */
START_TEST(bound_of_a_product)
{
    fixture x;
    compute(&x, 0, 3);
    for (int64_t i = 0; i < 17 * 9; i += 5) {
        double sum = fabs((double)in(&x, 2, i));
        for (int64_t k = 0; k < 40; k++)
            sum += fabs((double)in(&x, 0, i / 9 * 40 + k) * (double)in(&x, 1, k * 9 + i % 9));
        ck_assert_double_eq_tol(allowed_at(&x, 0, i), 46 * 0x1p-24 * sum,
                                1e-6 * 46 * 0x1p-24 * sum);
    }
    finish(&x);
}
END_TEST

/* Of the 32 products that meet and the sum so far, each is cut off 13 bits below the largest. */
static float hopper(const fixture *x, int64_t K, int64_t row, int64_t column)
{
    float sum = 0, term[33];
    for (int64_t k = 0; k < K; k += 32) {
        int top = -200, e;
        for (int64_t i = 0; i < 32; i++) {
            term[i] = in(x, 0, row * K + k + i) * in(x, 2, (k + i) * 16 + column);
            frexpf(term[i], &e);
            top = term[i] != 0 && e > top ? e : top;
        }
        term[32] = sum;
        frexpf(sum, &e);
        top = sum != 0 && e > top ? e : top;
        sum = 0;
        for (int i = 0; i < 33; i++)
            sum += ldexpf(truncf(ldexpf(term[i], 13 - top)), top - 13);
    }
    return sum * in(x, 1, 0) * in(x, 3, 0);
}

START_TEST(few_bits_of_fp8)
{
    fixture x;
    compute(&x, 5, 11);
    for (int64_t i = 0; i < 16 * 16; i++)
        ((float *)x.got[0])[i] = hopper(&x, 64, i / 16, i % 16);
    ASSERT_OK(&x, F8_SUMS_GPU);
    ck_assert(!judge(&x, F8_SUMS_EMULATED));
    finish(&x);
}
END_TEST

/* p and ds rounded to bf16: for bf16 operands where the target says so, and for f32 never. */
START_TEST(narrow_probabilities)
{
    static const struct {
        int at;
        bool bf16;
    } of[] = {{9, false}, {10, true}, {12, false}, {13, true}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        fixture x;
        compute(&x, of[i].at, 5);
        attention(&x, true);
        ck_assert_int_eq(judge(&x, F8_SUMS_EMULATED), of[i].bf16);
        ck_assert_int_eq(judge(&x, F8_SUMS_GPU), of[i].bf16);
        if (!of[i].bf16)
            ck_assert(!judge(&x, F8_SUMS_F32));
        finish(&x);
    }
}
END_TEST

/* A factor that is subnormal may count as zero; one that is normal may not. */
START_TEST(flushed_factors)
{
    fixture x;
    start(&x, "%a: bf16[1, 2], %b: bf16[2, 1]", "f32[1, 1]", "matmul(%a, %b)", 1);
    uint16_t *a = (uint16_t *)(uintptr_t)x.operand[0], *b = (uint16_t *)(uintptr_t)x.operand[1];
    a[0] = 0x0040; /* 2^-127 */
    a[1] = 0;
    b[0] = b[1] = 0x5f80; /* 2^64 */
    *(float *)x.got[0] = 0;
    ASSERT_OK(&x, F8_SUMS_F32);
    *(float *)x.got[0] = 0x1p-63f;
    ASSERT_OK(&x, F8_SUMS_F32);
    *(float *)x.got[0] = 0x1.1p-62f;
    ck_assert(!judge(&x, F8_SUMS_F32));
    a[0] = 0x0080; /* 2^-126 */
    *(float *)x.got[0] = 0;
    ck_assert(!judge(&x, F8_SUMS_F32));
    finish(&x);
}
END_TEST

/* ---- NaN, Inf and overflow ---- */

START_TEST(nan_and_inf)
{
    fixture x;
    compute(&x, 0, 4);
    ((float *)(uintptr_t)x.operand[0])[2 * 40 + 5] = NAN; /* row 2 of the result */
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.off, 9);
    ck_assert_int_eq(x.j.at, 18);
    ck_assert(isnan(x.j.want) && isinf(x.j.worst));
    for (int i = 18; i < 27; i++)
        ((uint32_t *)x.got[0])[i] = 0xffc12345; /* any NaN will do */
    ASSERT_OK(&x, F8_SUMS_F32);
    ((float *)x.got[0])[20] = INFINITY;
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.at, 20);
    finish(&x);
}
END_TEST

/* NaN in one head's row: the elements that it reaches must be NaN, and the others are judged as
 * without it. */
START_TEST(nan_in_a_head)
{
    static const struct {
        int at, operand;
    } of[] = {{9, 0}, {9, 2}, {13, 5}, {13, 1}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        fixture x;
        compute(&x, of[i].at, 3);
        store(type_of(&x, of[i].operand), (void *)(uintptr_t)x.operand[of[i].operand], 3, NAN);
        ck_assert(!judge(&x, F8_SUMS_F32));
        ck_assert(isnan(x.j.want));
        attention(&x, false);
        const f8_type *t = type_of_result(&x, 0);
        const int64_t last = f8_type_elements(t) - 1; /* of another head */
        store_bits(t->dtype, x.got[0], last, load_bits(t->dtype, x.got[0], last) + 1);
        ASSERT_OK(&x, F8_SUMS_F32);
        assert_named(&x, 0, last, 2 * (double)load(t, x.got[0], last) + 1);
        finish(&x);
    }
}
END_TEST

/* A sum that may overflow on the way has no bound, which is counted; its neighbours have one. */
START_TEST(overflow_is_counted)
{
    fixture x;
    start(&x, "%a: f32[2, 2], %b: f32[2, 1]", "f32[2, 1]", "matmul(%a, %b)", 1);
    float *a = (float *)(uintptr_t)x.operand[0], *b = (float *)(uintptr_t)x.operand[1];
    a[0] = 3e38f, a[1] = -3e38f, a[2] = a[3] = 1;
    b[0] = b[1] = 1;
    ((float *)x.got[0])[0] = INFINITY;
    ((float *)x.got[0])[1] = 2;
    ASSERT_OK(&x, F8_SUMS_F32);
    ck_assert_int_eq(x.j.unbounded, 1);
    ((float *)x.got[0])[1] = INFINITY;
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.at, 1);
    finish(&x);
}
END_TEST

/* Near the largest f32 a result may be rounded to Inf. */
START_TEST(rounding_to_inf_is_counted)
{
    fixture x;
    start(&x, "%a: f32[1, 1], %b: f32[1, 1]", "bf16[1, 1]", "cast(matmul(%a, %b)) {to = bf16}", 1);
    *(float *)(uintptr_t)x.operand[0] = FLT_MAX;
    *(float *)(uintptr_t)x.operand[1] = 1;
    *(uint16_t *)x.got[0] = 0x7f80;
    ASSERT_OK(&x, F8_SUMS_F32);
    ck_assert_int_eq(x.j.unbounded, 1);
    finish(&x);
}
END_TEST

/* Scores so large that nothing is known of their exponentials: nothing is judged, and this shows.
 */
START_TEST(scores_without_a_bound)
{
    fixture x;
    compute(&x, 9, 2);
    for (int64_t i = 0; i < f8_type_elements(type_of(&x, 0)); i++)
        ((float *)(uintptr_t)x.operand[0])[i] *= 1e9f;
    ASSERT_OK(&x, F8_SUMS_F32);
    ck_assert_int_gt(x.j.unbounded, 0);
    finish(&x);
}
END_TEST

/* A query that sees no key: o is 0 and lse is Inf, and nothing else will do. */
START_TEST(hidden_rows)
{
    fixture x;
    compute(&x, 11, 2);
    memset((uint8_t *)(uintptr_t)x.operand[3] + 3 * 8, 0, 8);
    ck_assert(!judge(&x, F8_SUMS_F32));
    memset((float *)x.got[0] + 3 * 16, 0, 16 * sizeof(float));
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.result, 1);
    ck_assert_int_eq(x.j.off, 2);
    ((float *)x.got[1])[3] = ((float *)x.got[1])[9 + 3] = INFINITY;
    ASSERT_OK(&x, F8_SUMS_F32);
    finish(&x);
}
END_TEST

/* ---- bits ---- */

START_TEST(bits_of_every_dtype)
{
    for (int d = 0; d < F8_DTYPE_COUNT; d++) {
        const f8_type t = {.dtype = (f8_dtype)d, .rank = 2, .dim = {3, 5}};
        uint8_t want[15 * 8], got[15 * 8];
        const size_t size = f8_dtype_size(t.dtype);
        f8_judgement j;
        memset(want, 0x31, sizeof want);
        memcpy(got, want, sizeof want);
        f8_judge_bits(&t, got, want, &j);
        ck_assert(j.ok && j.off == 0 && j.worst == 0);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            memcpy(got, want, sizeof want);
            got[7 * size + bit / 8] ^= (uint8_t)(1u << bit % 8);
            got[11 * size] ^= 1;
            f8_judge_bits(&t, got, want, &j);
            ck_assert_msg(!j.ok && j.off == 2 && j.at == 7, "%s: bit %zu: %lld off, at %lld",
                          f8_dtype_name(t.dtype), bit, (long long)j.off, (long long)j.at);
        }
    }
}
END_TEST

START_TEST(bits_of_nan)
{
    static const struct {
        f8_dtype d;
        uint32_t nan, other, inf;
    } of[] = {{F8_F32, 0x7fc00000, 0xff800001, 0x7f800000},
              {F8_BF16, 0x7fc0, 0xff81, 0x7f80},
              {F8_F16, 0x7e00, 0xfc01, 0x7c00},
              {F8_E5M2, 0x7e, 0xff, 0x7c},
              {F8_E4M3, 0x7f, 0xff, 0x7e}}; /* it has no Inf: its largest number */
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const f8_type t = {.dtype = of[i].d, .rank = 1, .dim = {1}};
        f8_judgement j;
        f8_judge_bits(&t, &of[i].other, &of[i].nan, &j);
        ck_assert(j.ok);
        f8_judge_bits(&t, &of[i].inf, &of[i].nan, &j);
        ck_assert(!j.ok && j.off == 1 && isnan(j.want) && !isnan(j.got));
        f8_judge_bits(&t, &of[i].nan, &of[i].inf, &j);
        ck_assert(!j.ok && isnan(j.got));
    }
    const f8_type f32 = {.dtype = F8_F32};
    f8_judgement j;
    f8_judge_bits(&f32, &(float){-0.0f}, &(float){0}, &j);
    ck_assert(!j.ok);
}
END_TEST

/* ---- what can't be judged ---- */

START_TEST(other_ops_are_refused)
{
    static const char *const op[] = {"add(%a, %b)", "cast(matmul(%a, %b)) {to = f16}"};
    for (int i = 0; i < 2; i++) {
        fixture x;
        start(&x, "%a: f32[4, 4], %b: f32[4, 4]", i ? "f16[4, 4]" : "f32[4, 4]", op[i], 1);
        ck_assert_int_eq(f8_judge_node(x.g, x.r, F8_SUMS_F32, x.operand, (const void *const *)x.got,
                                       NULL, &x.j, &x.diag),
                         F8_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(x.diag.text, "judged by its bits"), "%s", x.diag.text);
        finish(&x);
    }
}
END_TEST

typedef struct meter {
    int64_t live, most, count, fail_at; /* most: the most live bytes so far */
} meter;

static void *meter_alloc(void *user, size_t size, size_t align)
{
    meter *m = user;
    if (m->count++ == m->fail_at)
        return NULL;
    m->live += (int64_t)size;
    m->most = m->live > m->most ? m->live : m->most;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void meter_free(void *user, void *p, size_t size)
{
    ((meter *)user)->live -= p ? (int64_t)size : 0;
    free(p);
}

START_TEST(memory)
{
    meter m = {.fail_at = -1};
    const f8_allocator a = {meter_alloc, meter_free, &m};
    fixture x;
    compute(&x, _i, 1);
    const void *const *got = (const void *const *)x.got;
    ck_assert_int_eq(f8_judge_node(x.g, x.r, F8_SUMS_F32, x.operand, got, &a, &x.j, &x.diag),
                     F8_OK);
    ck_assert_int_eq(m.live, 0);
    const int64_t count = m.count;
    ck_assert_int_gt(count, 2);
    for (int64_t i = 0; i < count; i++) {
        f8_diag diag = {0};
        m = (meter){.fail_at = i};
        ck_assert_int_eq(f8_judge_node(x.g, x.r, F8_SUMS_F32, x.operand, got, &a, &x.j, &diag),
                         F8_ERR_MEMORY);
        ck_assert_int_eq(m.live, 0);
    }
    finish(&x);
}
END_TEST

/* The right values and the bounds of a large result are never held whole. */
START_TEST(memory_of_parts)
{
    static const char *const large[][3] = {
        {"%a: f32[4096, 3], %b: f32[3, 128]", "f32[4096, 128]", "matmul(%a, %b)"},
        {"%q: f32[64, 16, 128], %k: f32[64, 16, 128], %v: f32[64, 16, 128]", "f32[64, 16, 128]",
         "attention(%q, %k, %v) {heads = 2}"}};
    meter m = {.fail_at = -1};
    const f8_allocator a = {meter_alloc, meter_free, &m};
    fixture x;
    start(&x, large[_i][0], large[_i][1], large[_i][2], 1);
    if (_i == 0)
        product(&x);
    else
        attention(&x, false);
    if (_i == 0) /* a subnormal in A and in B adds bounds of what flushing loses */
        *(uint32_t *)(uintptr_t)x.operand[0] = *(uint32_t *)(uintptr_t)x.operand[1] = 1;
    ck_assert_int_eq(f8_judge_node(x.g, x.r, F8_SUMS_F32, x.operand, (const void *const *)x.got, &a,
                                   &x.j, &x.diag),
                     F8_OK);
    const int64_t result = f8_type_bytes(type_of_result(&x, 0));
    ck_assert_msg(m.most < result, "%d bytes for a result of %d", (int)m.most, (int)result);
    finish(&x);
}
END_TEST

/* ---- the sequences of an attention's batch ---- */

/* A copy of a value with `more` other elements behind each row. */
static void *spaced(fixture *x, const f8_type *t, const void *from, int64_t more)
{
    const size_t size = f8_dtype_size(t->dtype), row = (size_t)f8_type_columns(t) * size;
    const size_t step = row + (size_t)more * size, rows = (size_t)f8_type_rows(t);
    char *to = f8_arena_array(&x->arena, rows, step);
    memset(to, 0x7f, rows * step);
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * step, (const char *)from + i * row, row);
    return to;
}

/* Values whose rows lie apart get the judgement that contiguous ones get, right or wrong. */
START_TEST(rows_apart)
{
    enum { MORE = 5 };
    fixture x;
    compute(&x, _i, 3);
    if (f8_op_facts(f8_at(x.g, x.r)->op)->cls == F8_ATTENTION)
        for (int wrong = 0; wrong < 2; wrong++) {
            const void *operand[8], *result[F8_MAX_RESULTS];
            int64_t in_step[8], out_step[F8_MAX_RESULTS];
            const f8_judge_rows rows = {in_step, out_step, NULL, NULL};
            f8_judgement apart;
            if (wrong)
                store(type_of_result(&x, 0), x.got[0], 37, 1e6f);
            judge(&x, F8_SUMS_F32);
            for (uint32_t k = 0; k < f8_at(x.g, x.r)->n_in; k++) {
                const bool is = k < 3 || (k == 3 && type_of(&x, k)->rank == 3);
                operand[k] = is ? spaced(&x, type_of(&x, k), x.operand[k], MORE) : x.operand[k];
                in_step[k] = is ? f8_type_columns(type_of(&x, k)) + MORE : 0;
            }
            for (int i = 0; i < f8_op_facts(f8_at(x.g, x.r)->op)->results; i++) {
                result[i] = spaced(&x, type_of_result(&x, i), x.got[i], MORE);
                out_step[i] = f8_type_columns(type_of_result(&x, i)) + MORE;
            }
            ck_assert_int_eq(f8_judge_strided(x.g, x.r, F8_SUMS_F32, operand, result, &rows, NULL,
                                              &apart, &x.diag),
                             F8_OK);
            ck_assert_int_eq(apart.ok, !wrong);
            ck_assert_int_eq(apart.off, x.j.off);
            ck_assert_int_eq(apart.at, x.j.at);
            ck_assert(apart.got == x.j.got && apart.want == x.j.want &&
                      apart.allowed == x.j.allowed && apart.worst == x.j.worst);
        }
    finish(&x);
}
END_TEST

/* The judgement names the first result that is off, even if an earlier sequence of another is. */
START_TEST(first_result_first)
{
    fixture x;
    start(&x, "%q: f32[2, 12, 32], %k: f32[2, 12, 32], %v: f32[2, 12, 32]", "f32[2, 12, 32]",
          "attention(%q, %k, %v) {heads = 4}", 1);
    attention(&x, false);
    store(type_of_result(&x, 1), x.got[1], 0, 1e6f);            /* lse of the first */
    store(type_of_result(&x, 0), x.got[0], 12 * 32 + 50, 1e6f); /* o of the second */
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.off, 2);
    ck_assert_int_eq(x.j.result, 0);
    ck_assert_int_eq(x.j.at, 12 * 32 + 50);
    finish(&x);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("judge");
    TCase *t = tcase_create("judge");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, right_ones_pass, 0, CASES);
    tcase_add_loop_test(t, wrong_ones_are_named, 0, CASES);
    tcase_add_test(t, bound_of_a_product);
    tcase_add_test(t, few_bits_of_fp8);
    tcase_add_test(t, narrow_probabilities);
    tcase_add_test(t, flushed_factors);
    tcase_add_test(t, nan_and_inf);
    tcase_add_test(t, nan_in_a_head);
    tcase_add_test(t, overflow_is_counted);
    tcase_add_test(t, rounding_to_inf_is_counted);
    tcase_add_test(t, scores_without_a_bound);
    tcase_add_test(t, hidden_rows);
    tcase_add_test(t, bits_of_every_dtype);
    tcase_add_test(t, bits_of_nan);
    tcase_add_test(t, other_ops_are_refused);
    tcase_add_loop_test(t, memory, 0, CASES);
    tcase_add_loop_test(t, memory_of_parts, 0, 2);
    tcase_add_loop_test(t, rows_apart, 0, CASES);
    tcase_add_test(t, first_result_first);
    suite_add_tcase(s, t);
    return s;
}
