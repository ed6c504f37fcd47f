/* The judge of attention under large finite masks: every element has a bound, and it is no wider
 * than without them. */
#include <float.h>

#include "tests/shared/kernel/judge_case.h"

/* Row i of a mask [9, 8]. The scores before it are within 8. */
static float large_mask(int i, int j)
{
    const float rows[9][2] = {{-1e9f, -1e9f},   {-FLT_MAX, -FLT_MAX}, {1e9f, 1e9f},
                              {-1e9f, 0.5f},    {-1e9f, -1e9f - 64},  {-INFINITY, -INFINITY},
                              {1e9f, -FLT_MAX}, {-1e5f, -1e5f},       {0, 1}};
    return rows[i][j % 2];
}

/* An attention whose mask has such rows, then its gradient from what that gave: both right. */
static void start_masked(fixture *forward, fixture *x, uint32_t seed)
{
    start(forward, "%q: f32[1, 9, 16], %k: f32[1, 8, 16], %v: f32[1, 8, 16], %m: f32[1, 1, 9, 8]",
          "f32[1, 9, 16]", "attention(%q, %k, %v, %m) {heads = 2, causal = false}", seed);
    start(x,
          "%q: f32[1, 9, 16], %k: f32[1, 8, 16], %v: f32[1, 8, 16], %o: f32[1, 9, 16], "
          "%l: f32[1, 2, 2, 9], %d: f32[1, 9, 16], %m: f32[1, 1, 9, 8]",
          "f32[1, 9, 16]", "attention_grad(%q, %k, %v, %o, %l, %d, %m) {heads = 2, causal = false}",
          seed);
    for (int i = 0; i < 72; i++)
        ((float *)(uintptr_t)x->operand[6])[i] = large_mask(i / 8, i % 8);
    x->operand[3] = forward->got[0];
    x->operand[4] = forward->got[1];
    forward->operand[3] = x->operand[6];
    attention(forward, false);
    float *o = forward->got[0], *lse = forward->got[1]; /* row 5 sees nothing */
    memset(o + 5 * 16, 0, 16 * sizeof *o);
    for (int h = 0; h < 2; h++) {
        lse[h * 18 + 5] = 0;
        lse[h * 18 + 9 + 5] = INFINITY;
    }
    attention(x, false);
}

/* Every element is judged, and what a lost logarithm of the sum does to dv is wrong: the weight of
 * a key of a row that is masked with one number is 1 for 1/8. So is a single element that is a
 * hundredth off. */
START_TEST(large_masks)
{
    for (uint32_t seed = 1; seed <= 3; seed++) {
        fixture forward, x;
        start_masked(&forward, &x, seed);
        for (f8_sums sums = F8_SUMS_F32; sums <= F8_SUMS_GPU; sums++) {
            ASSERT_OK(&forward, sums);
            ck_assert_int_eq(forward.j.unbounded, 0);
            ASSERT_OK(&x, sums);
            ck_assert_int_eq(x.j.unbounded, 0);
        }
        float *dv = x.got[2];
        for (int64_t i = 0; i < 8 * 16; i += 11)
            assert_named(&x, 2, i, 1.01 * (double)dv[i]);
        for (int row = 0; row < 2; row++) { /* -1e9 and -FLT_MAX */
            for (int64_t i = 0; i < 8 * 16; i++)
                dv[i] += 7.0f / 8 * in(&x, 5, row * 16 + i % 16);
            for (f8_sums sums = F8_SUMS_F32; sums <= F8_SUMS_GPU; sums++)
                ck_assert(!judge(&x, sums));
            ck_assert_int_gt(x.j.off, 100);
            attention(&x, false);
        }
        assert_named(&forward, 1, 0, -1e9 + 64);      /* the largest score */
        assert_named(&forward, 1, 9, 1.001 * log(8)); /* the log beside it */
        assert_named(&forward, 0, 16 + 3, 1e-3 + (double)((float *)forward.got[0])[16 + 3]);
        finish(&x);
        finish(&forward);
    }
}
END_TEST

/* A score that lies between two f32 of the masked sum may be either: such queries are not judged,
 * and this shows; nor are the sums that they reach. */
START_TEST(masked_scores_between_two)
{
    fixture forward, x;
    start_masked(&forward, &x, 1);
    float *q = (float *)(uintptr_t)x.operand[0], *k = (float *)(uintptr_t)x.operand[1];
    for (int d = 0; d < 8; d++) /* query 0, key 0, head 0: 32, half of what lies between two */
        q[d] = d ? 0 : 32 * sqrtf(8), k[d] = d ? 0 : 1;
    memcpy((void *)(uintptr_t)forward.operand[0], q, 9 * 16 * sizeof *q);
    memcpy((void *)(uintptr_t)forward.operand[1], k, 8 * 16 * sizeof *k);
    ((float *)forward.got[0])[3] += 0.25f; /* o of it */
    judge(&forward, F8_SUMS_F32);
    ck_assert_int_ge(forward.j.unbounded, 1);
    for (int64_t at = 0; at < 8; at++)
        ck_assert(forward.j.ok || forward.j.at != at);
    finish(&x);
    finish(&forward);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("judge_masks");
    TCase *t = tcase_create("judge_masks");
    tcase_add_test(t, large_masks);
    tcase_add_test(t, masked_scores_between_two);
    suite_add_tcase(s, t);
    return s;
}
