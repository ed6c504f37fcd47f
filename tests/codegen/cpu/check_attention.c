/* Attention kernels of the CPU, against a reference in double with derived error bounds. Shapes
 * include ragged ends, grouped heads and strided views. The bits do not depend on the split into
 * tasks, nothing is written outside the results, and NaN and Inf appear exactly where they belong.
 */
#include "tests/shared/kernel/attention_case.h"
#include "tests/shared/kernel/llvm_case.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_case(const f8_attention_desc *d, int64_t gap, uint64_t seed)
{
    att_case c;
    att_make(&c, test_llvm, d, gap, seed);
    att_run(&c, false, 1, false);
    att_reference_forward(&c);
    att_check(&c, T_O);
    att_check(&c, T_LSE);
    att_run(&c, true, 1, false);
    att_reference_backward(&c);
    for (int t = T_DQ; t <= T_DV; t++)
        att_check(&c, t);
    for (int t = T_Q; t <= T_V; t++)
        ck_assert(att_canary(&c, t));
    att_free(&c);
}

START_TEST(chosen_shapes)
{
    static const int64_t shapes[][5] = {
        /* B, T, H, Hkv, D */
        {1, 1, 1, 1, 64},   {1, 2, 1, 1, 16},    {2, 47, 2, 2, 64}, {1, 48, 2, 1, 64},
        {1, 49, 1, 1, 64},  {1, 97, 4, 2, 64},   {2, 200, 4, 4, 64}, {1, 240, 8, 8, 32},
        {1, 193, 2, 2, 80}, {1, 101, 3, 1, 128}, {1, 130, 2, 2, 8},  {1, 60, 8, 2, 96},
        {1, 50, 1, 1, 1},   {1, 70, 2, 1, 17},   {1, 65, 1, 1, 256}, {1, 33, 10, 10, 48},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 4; k++) {
            const int64_t *s = shapes[i];
            if (i >= 6 && (size_t)(k == 1 || k == 2) != i % 2)
                continue; /* two of the four kinds, for time: each pair has both dtypes and masks */
            f8_attention_desc d =
                att_shape(k & 1 ? F8_BF16 : F8_F32, s[0], s[1], s[2], s[3], s[4], k & 2);
            check_case(&d, (int64_t)(i % 3) * 5, i + 1);
        }
}
END_TEST

/* Fewer keys than queries and more of them, within a block and across blocks and tasks, in both
 * splits of the backward; then masks: which axes they have, which of their scores are hidden. */
START_TEST(keys_and_masks)
{
    static const struct {
        int64_t B, T, Tk, H, Hkv, D;
    } shapes[] = {
        {1, 1, 7, 2, 1, 16},    {1, 7, 1, 1, 1, 16},   {2, 20, 45, 4, 2, 17}, {1, 45, 20, 2, 1, 32},
        {1, 50, 230, 2, 2, 16}, {1, 230, 50, 2, 1, 16}, {4, 97, 60, 4, 2, 8}, {4, 60, 250, 4, 2, 8},
    };
    static const char *const axes[] = {"", "bk", "qk", "bhqk", "q", "hk", "k", "bqk"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 4; k++) {
            f8_attention_desc d =
                att_shape(k & 1 ? F8_BF16 : F8_F32, shapes[i].B, shapes[i].T, shapes[i].H,
                          shapes[i].Hkv, shapes[i].D, k & 2);
            d.Tk = shapes[i].Tk;
            check_case(&d, (int64_t)(i % 3) * 5, i + 1);
            const f8_attention_masking masking = (i + (size_t)k) % 2 ? F8_MASK_BOOL : F8_MASK_ADD;
            d = att_masked(d, masking, axes[(i + 3 * (size_t)k) % 8]);
            check_case(&d, (int64_t)(i % 3) * 5, i + 1);
        }
}
END_TEST

/* Which weights are dropped depends on their place alone, in both splits of the backward. */
START_TEST(dropout)
{
    static const struct {
        int64_t B, T, Tk, H, Hkv, D;
        double p;
        int64_t stream;
    } shapes[] = {
        {2, 45, 70, 4, 2, 16, 0.1, 0},
        {1, 130, 130, 2, 1, 33, 0.5, 2147483647},
        {8, 50, 20, 4, 4, 8, 0.9, 5},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 4; k++) {
            f8_attention_desc d = att_shape(k & 1 ? F8_BF16 : F8_F32, shapes[i].B, shapes[i].T,
                                            shapes[i].H, shapes[i].Hkv, shapes[i].D, k & 2);
            d.Tk = shapes[i].Tk;
            d.dropout = shapes[i].p;
            d.stream = shapes[i].stream;
            if (k == 3)
                d = att_masked(d, F8_MASK_BOOL, "qk");
            check_case(&d, 0, i + 1);
        }
}
END_TEST

START_TEST(random_shapes)
{
    unsigned seed = 20240607;
    for (int i = 0; i < 24; i++) {
        int64_t group = 1 + rand_r(&seed) % 3, kv = 1 + rand_r(&seed) % 4;
        int64_t T = 1 + rand_r(&seed) % 220, D = 1 + rand_r(&seed) % 100;
        f8_attention_desc d =
            att_shape(rand_r(&seed) & 64 ? F8_BF16 : F8_F32, 1 + rand_r(&seed) % 2, T, group * kv,
                      kv, D, rand_r(&seed) & 64);
        d.scale *= (float)(1 + rand_r(&seed) % 3) * 0.5f;
        if (i % 3 == 0)
            d.Tk = 1 + rand_r(&seed) % 220;
        check_case(&d, rand_r(&seed) % 40, (uint64_t)i + 100);
    }
}
END_TEST

/* The same bits for any split and order of the tasks, and for both ways of splitting backward. */
START_TEST(splits_do_not_change_bits)
{
    static const int64_t heads[] = {3, 9};
    for (int k = 0; k < 4; k++) {
        f8_attention_desc d =
            att_shape(k & 1 ? F8_BF16 : F8_F32, 1, 300, heads[k >> 1], heads[k >> 1], 64, true);
        att_case c;
        att_make(&c, test_llvm, &d, 3, 7);
        uint8_t *first[T_COUNT] = {0};
        for (int run = 0; run < 3; run++) {
            for (int t = T_O; t < T_COUNT; t++)
                if (t != T_DO)
                    att_clear(&c, t);
            att_run(&c, false, 1 + 4 * run, run & 1);
            att_run(&c, true, 1 + 2 * run, run & 1);
            for (int t = T_O; t < T_COUNT; t++) {
                if (!first[t]) {
                    first[t] = malloc(c.t[t].bytes);
                    memcpy(first[t], c.t[t].memory, c.t[t].bytes);
                }
                ck_assert_msg(!memcmp(first[t], c.t[t].memory, c.t[t].bytes), "%s differs",
                              att_name[t]);
            }
        }
        for (int t = 0; t < T_COUNT; t++)
            free(first[t]);
        att_free(&c);
    }
}
END_TEST

/* One sequence alone (two phases) and among eight (one phase): the same bits. */
START_TEST(batch_does_not_change_bits)
{
    f8_attention_desc one = att_shape(F8_BF16, 1, 210, 4, 2, 32, true), many = one;
    many.B = 8;
    att_case a, b;
    att_make(&a, test_llvm, &one, 0, 3);
    att_make(&b, test_llvm, &many, 0, 4);
    ck_assert_int_eq(a.n_phases[1], 2);
    ck_assert_int_eq(b.n_phases[1], 1);
    size_t data[T_COUNT];
    for (int t = 0; t < T_COUNT; t++) {
        data[t] = a.t[t].bytes - 512;
        if (t <= T_V || t == T_DO)
            memcpy(b.t[t].base + 5 * data[t], a.t[t].base, data[t]);
    }
    for (int backward = 0; backward < 2; backward++) {
        att_run(&a, backward, 1, false);
        att_run(&b, backward, 1, false);
    }
    for (int t = 0; t < T_COUNT; t++)
        ck_assert_msg(!memcmp(b.t[t].base + 5 * data[t], a.t[t].base, data[t]), "%s differs",
                      att_name[t]);
    att_free(&a);
    att_free(&b);
}
END_TEST

/* The same bits from 256-bit code, where a vector of 16 is two registers. */
START_TEST(vector_width_does_not_change_bits)
{
    f8_diag diag = {0};
    f8_llvm *narrow;
    ck_assert(f8_llvm_load(&narrow, &(f8_llvm_options){.cpu = "x86-64-v3"}, &diag) == F8_OK);
    for (int k = 0; k < 4; k++) {
        f8_attention_desc d =
            att_shape(k & 1 ? F8_BF16 : F8_F32, 1, 150, 2, 1, k & 2 ? 64 : 43, true);
        att_case a, b;
        att_make(&a, test_llvm, &d, 3, 7);
        att_make(&b, narrow, &d, 3, 7);
        for (int backward = 0; backward < 2; backward++) {
            att_run(&a, backward, 1, false);
            att_run(&b, backward, 1, false);
        }
        for (int t = 0; t < T_COUNT; t++)
            ck_assert_msg(!memcmp(a.t[t].memory, b.t[t].memory, a.t[t].bytes), "%s differs",
                          att_name[t]);
        att_free(&a);
        att_free(&b);
    }
    f8_llvm_free(narrow);
}
END_TEST

/* Causal, NaN at token 60 of one tensor: exactly the rows that depend on it are NaN. */
START_TEST(nan_stays_where_it_belongs)
{
    enum { AT = 60, T = 130 };
    static const int where[] = {T_Q, T_K, T_V};
    for (int k = 0; k < 3; k++) {
        f8_attention_desc d = att_shape(F8_BF16, 1, T, 2, 2, 64, true);
        att_case c;
        att_make(&c, test_llvm, &d, 0, 11);
        for (int64_t e = 0; e < d.D; e++)
            att_put(&c, where[k], 0, AT, 1, e, NAN);
        att_run(&c, false, 1, false);
        att_run(&c, true, 1, false);
        for (int64_t t = 0; t < T; t++) {
            bool hit = where[k] == T_Q ? t == AT : t >= AT;
            ck_assert(!att_row_is_nan(&c, T_O, t, 0) && !att_row_is_nan(&c, T_DK, t, 0));
            ck_assert_msg(att_row_is_nan(&c, T_O, t, 1) == hit, "%s: o row %d", att_name[where[k]],
                          (int)t);
            ck_assert_msg(att_row_is_nan(&c, T_DQ, t, 1) == hit, "%s: dq row %d",
                          att_name[where[k]], (int)t);
            /* keys are read by the queries from AT (or at AT) on: every key up to them */
            bool key_hit = where[k] == T_Q ? t <= AT : true;
            ck_assert_msg(att_row_is_nan(&c, T_DK, t, 1) == key_hit, "%s: dk row %d",
                          att_name[where[k]], (int)t);
        }
        att_free(&c);
    }
}
END_TEST

START_TEST(infinite_scores)
{
    f8_attention_desc d = att_shape(F8_F32, 1, 100, 1, 1, 16, true);
    att_case c;
    att_make(&c, test_llvm, &d, 0, 5);
    att_put_infinite_scores(&c);
    att_run(&c, false, 1, false);
    att_check_infinite_scores(&c);
    att_free(&c);
}
END_TEST

START_TEST(impossible_shapes_are_refused)
{
    f8_llvm_module *m;
    f8_diag d = {0};
    f8_cpu_phase phases[F8_ATTENTION_MAX_PHASES];
    int n;
    ck_assert(f8_llvm_module_begin(&m, test_llvm, "x", &d) == F8_OK);
    f8_attention_desc x = att_shape(F8_F16, 1, 8, 1, 1, 16, true);
    ck_assert(f8_cpu_attention_emit(m, &x, false, "x", phases, &n, &d) == F8_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(d.text, "f16"));
    d = (f8_diag){0};
    x = att_shape(F8_F32, 1, 8, 3, 2, 16, true);
    ck_assert(f8_cpu_attention_emit(m, &x, false, "x", phases, &n, &d) == F8_ERR_INPUT);
    d = (f8_diag){0};
    x = att_shape(F8_F32, 1, 8, 2, 2, 16, true);
    x.D = 0;
    ck_assert(f8_cpu_attention_emit(m, &x, false, "x", phases, &n, &d) == F8_ERR_INPUT);
    d = (f8_diag){0};
    x = att_shape(F8_F32, 1, 8, 2, 2, 600, true);
    ck_assert(f8_cpu_attention_emit(m, &x, false, "x", phases, &n, &d) == F8_ERR_UNSUPPORTED);
    d = (f8_diag){0};
    x = att_shape(F8_F32, 1, 8, 2, 2, 16, true);
    ck_assert(f8_cpu_attention_emit(m, &x, true, "x", phases, &n, &d) == F8_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(d.text, "stride"));
    f8_llvm_module_end(m);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("attention");
    TCase *t = tcase_create("attention");
    tcase_set_timeout(t, 600);
    tcase_add_unchecked_fixture(t, test_llvm_load, test_llvm_unload);
    tcase_add_test(t, chosen_shapes);
    tcase_add_test(t, keys_and_masks);
    tcase_add_test(t, dropout);
    tcase_add_test(t, random_shapes);
    tcase_add_test(t, splits_do_not_change_bits);
    tcase_add_test(t, batch_does_not_change_bits);
    tcase_add_test(t, vector_width_does_not_change_bits);
    tcase_add_test(t, nan_stays_where_it_belongs);
    tcase_add_test(t, infinite_scores);
    tcase_add_test(t, impossible_shapes_are_refused);
    suite_add_tcase(s, t);
    return s;
}
