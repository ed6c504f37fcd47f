/* Descriptions of kernels: their text, when two launches share one, and what lowering refuses. Also
 * two things that the CPU's kernels do not have: transposed stores, and rows that are too wide to
 * keep near. */
#include "codegen/kernel/kernel.h"
#include "tests/shared/kernel/kernel_bodies.h"
#include "tests/shared/suite.h"

#include <string.h>

/* Same computation on other rows, strides and pointers: one kernel. Another width: another one. */
START_TEST(shared_kernels)
{
    kcase c;
    kc_begin(&c);
    for (int rows = 3; rows < 200; rows += 60)
        kc_layernorm(&c, F8_BF16, rows, 48, false);
    for (int cols = 10; cols < 40000; cols *= 3) {
        const f8_ref x = kc_input(&c, F8_F32, 2, 2, cols);
        kc_out(&c, f8_binary(c.g, F8_OP_MUL, x, x));
        kc_phase(&c, 2, cols);
    }
    kc_check(&c);
    ck_assert_uint_eq(c.stats.n_kernels, 2);
    kc_end(&c);
    kc_begin(&c);
    kc_layernorm(&c, F8_BF16, 4, 48, false);
    kc_layernorm(&c, F8_BF16, 4, 49, false);
    kc_layernorm(&c, F8_F32, 4, 48, false);
    kc_check(&c);
    ck_assert_uint_eq(c.stats.n_kernels, 3);
    kc_end(&c);
}
END_TEST

/* The example of codegen/kernel/README.md. */
START_TEST(description)
{
    static const char text[] = "kernel rows x 1000 {\n"
                               "  buffer 0: read bf16 full stride i1\n"
                               "  buffer 1: write f32 full stride i2\n"
                               "  %0.0 F full = load buffer 0\n"
                               "  %1.0 F row = max %0\n"
                               "  %2.1 F full = fsub %0 %1\n"
                               "  %3.1 F full = call exp %2 near 0\n"
                               "  %4.1 F row = sum %3\n"
                               "  %5.2 F full = fdiv %3 %4\n"
                               "  %6.2 - full = store %5 buffer 1\n"
                               "}\n";
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    const f8_ref x = f8_cast(g, kc_input(&c, F8_BF16, 2, 4, 1000), F8_F32);
    const f8_ref top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1);
    const f8_ref e = kc_exp_off(&c, x, top);
    kc_out(&c, f8_binary(g, F8_OP_DIV, e, f8_reduce(g, F8_OP_REDUCE_SUM, e, -1)));
    kc_phase(&c, 4, 1000);
    kc_check(&c);
    ck_assert_str_eq(c.stats.kernel[0].text, text);
    kc_end(&c);
}
END_TEST

/* Which stages visit which columns of a wide row's cross-entropy: the first ones for their maximum,
 * all of them for the maximum and the usual sum, none for the other sum in most rows, and all for
 * the gradient. No column for the logit of the target. Where the other sum is stored, no row is
 * left out. */
START_TEST(visits_of_a_wide_row)
{
    for (int out = KC_WIDE_NONE; out <= KC_WIDE_USUAL; out++) {
        kcase c;
        kc_begin(&c);
        kc_wide_loss(&c, F8_F32, 4, 9000, (kc_wide){4096, 16, 1, (kc_wide_out)out});
        f8_kernel *k;
        f8_binding bound;
        ck_assert(f8_kernel_lower(c.f, &c.group[0], 0, NULL, &c.arena, &k, &bound, &c.diag) ==
                  F8_OK);
        uint32_t near, x, id, n_picked = 0;
        f8_exp_sum s = {0};
        bool found = false;
        for (uint32_t n = 0; n < k->n_instrs; n++) {
            found = found || f8_kernel_exp_sum(k, n, &s);
            n_picked += f8_kernel_picked(k, n, &x, &id);
        }
        ck_assert(found);
        ck_assert_uint_eq(n_picked, 1);
        ck_assert_uint_eq(k->n_stages, 4);
        ck_assert_int_eq(f8_kernel_most_sums(k), 1);
        ck_assert_int_eq(f8_kernel_reach(k, 0), 4096);
        for (int32_t stage = 1; stage < 4; stage++)
            ck_assert_int_eq(f8_kernel_reach(k, stage), 9000);
        for (int32_t stage = 0; stage < 4; stage++)
            ck_assert_int_eq(f8_kernel_may_skip(k, stage, &near),
                             stage == 2 && out != KC_WIDE_RARE);
        ck_assert_int_eq(k->instr[s.first].stage, 0);
        ck_assert_int_eq(k->instr[s.top].stage, 1);
        ck_assert_int_eq(k->instr[s.usual].stage, 1);
        ck_assert_int_eq(k->instr[s.rare].stage, 2);
        f8_exp_sum again;
        ck_assert_int_eq(f8_kernel_exp_sum_term(k, k->instr[k->instr[s.usual].a].a, &again),
                         out != KC_WIDE_USUAL);
        kc_end(&c);
    }
}
END_TEST

/* ---- descriptions for other targets ---- */

/* Codes and their transpose from one read, with row statistics, column sums and a padded row
 * stride; every dtype that is stored. */
START_TEST(transposed_stores)
{
    static const int heights[] = {2, 63, 64, 65, 130};
    for (int i = 0; i < 5; i++) {
        kcase c;
        kc_begin(&c);
        c.seed = (uint64_t)(5 * _i + i + 1);
        c.specials = i & 1;
        f8_graph *g = c.g;
        const int cols = kc_ragged[_i], rows = heights[i];
        const f8_ref x0 = kc_input(&c, F8_BF16, 2, rows, cols), s = kc_input(&c, F8_F32, 0),
                     room = kc_input(&c, F8_E5M2, 2, cols, rows + 13);
        c.n_input--; /* only room, for rows `rows + 13` apart */
        const f8_ref x = f8_cast(g, x0, F8_F32), sum = f8_reduce(g, F8_OP_REDUCE_SUM, x, -1);
        const f8_ref y = f8_binary(g, F8_OP_MUL, f8_unary(g, F8_OP_TANH, x), sum);
        kc_out(&c, f8_reduce(g, F8_OP_REDUCE_AMAX, y, -1));
        kc_out(&c, y);
        kc_out(&c, kc_transposed(&c, y));
        for (f8_dtype format = F8_E4M3; format <= F8_E5M2; format++) {
            const f8_ref q = kc_quantize(&c, y, s, format, i & 1), t = kc_transposed(&c, q);
            if (format == F8_E5M2) /* the transpose alone */
                kc_place_in(&c, t, room, 0, rows + 13);
            else
                kc_out(&c, q);
            kc_out(&c, t);
        }
        kc_out(&c, kc_transposed(&c, f8_cast(g, y, F8_BF16)));
        kc_out(&c, kc_column_sum(&c, y));
        kc_phase(&c, rows, cols);
        kc_check_described(&c, f8_target_by_name("sm_90a"));
        kc_end(&c);
    }
}
END_TEST

/* Nothing is kept near in rows wider than the target keeps; the results are the same. */
START_TEST(near_only_where_rows_fit)
{
    f8_target narrow = *f8_target_by_name("sm_90a");
    for (int wide = 0; wide < 2; wide++) {
        kcase c;
        kc_begin(&c);
        f8_graph *g = c.g;
        const f8_ref x = f8_cast(g, kc_input(&c, F8_BF16, 2, 3, 1000), F8_F32);
        const f8_ref e = f8_unary(g, F8_OP_EXP, x);
        kc_out(&c, f8_binary(g, F8_OP_DIV, e, f8_reduce(g, F8_OP_REDUCE_SUM, e, -1)));
        kc_phase(&c, 3, 1000);
        narrow.near_columns = wide ? 999 : 1000;
        f8_kernel *k;
        f8_binding bound;
        ck_assert(f8_kernel_lower(c.f, &c.group[0], 0, &narrow, &c.arena, &k, &bound, &c.diag) ==
                  F8_OK);
        ck_assert_uint_eq(k->n_near, wide ? 0 : 1);
        kc_check_described(&c, &narrow);
        kc_end(&c);
    }
}
END_TEST

/* The CPU's kernels store no transposes: lowering says so. In place it is refused everywhere. */
START_TEST(refused_transposes)
{
    kcase c;
    kc_begin(&c);
    const f8_ref x = kc_input(&c, F8_F32, 2, 6, 6),
                 t = kc_transposed(&c, f8_unary(c.g, F8_OP_ABS, x));
    kc_out(&c, t);
    kc_phase(&c, 6, 6);
    f8_kernel *k;
    f8_binding bound;
    ck_assert(f8_kernel_lower(c.f, &c.group[0], 0, NULL, &c.arena, &k, &bound, &c.diag) ==
              F8_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(c.diag.text, "no store of this kernel"));
    c.diag = (f8_diag){0};
    kc_alias(&c, t, x);
    ck_assert(f8_kernel_lower(c.f, &c.group[0], 0, f8_target_by_name("sm_90a"), &c.arena, &k,
                              &bound, &c.diag) == F8_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(c.diag.text, "transposed store would overwrite"));
    kc_end(&c);
}
END_TEST

/* Values of other rows than the phase's are read in it, never made (ir/lowered.h): over [30, 7] a
 * cast of [2, 1, 1, 7] has no rows of its own that a map could give. */
START_TEST(refused_rows)
{
    kcase c;
    kc_begin(&c);
    const f8_ref x = kc_input(&c, F8_F32, 4, 2, 5, 3, 7), a = kc_input(&c, F8_BF16, 4, 2, 1, 1, 7);
    kc_out(&c, f8_binary(c.g, F8_OP_MUL, x, f8_cast(c.g, a, F8_F32)));
    kc_phase(&c, 30, 7);
    const f8_target *const target[] = {NULL, f8_target_by_name("sm_90a")};
    for (int i = 0; i < 2; i++) {
        f8_kernel *k;
        f8_binding bound;
        c.diag = (f8_diag){0};
        ck_assert(f8_kernel_lower(c.f, &c.group[0], 0, target[i], &c.arena, &k, &bound, &c.diag) ==
                  F8_ERR_INTERNAL);
        ck_assert_ptr_nonnull(strstr(c.diag.text, "no map of rows reads"));
    }
    kc_end(&c);
}
END_TEST

/* A vector made in the phase, and the same one read along the rows: a reshape of other rows and
 * columns is read where it lies. One that lies nowhere is refused. */
START_TEST(vector_along_both)
{
    for (int placed = 0; placed < 2; placed++) {
        kcase c;
        kc_begin(&c);
        f8_graph *g = c.g;
        const int n = kc_ragged[_i];
        const f8_ref a = kc_input(&c, F8_BF16, 1, n), x = kc_input(&c, F8_F32, 2, n, n);
        const f8_ref v = f8_unary(g, F8_OP_NEG, f8_cast(g, a, F8_F32));
        const f8_type tall = {.dtype = F8_F32, .rank = 2, .dim = {n, 1}};
        kc_out(&c, v);
        kc_phase(&c, 1, n);
        const f8_ref along = f8_reshape(g, v, &tall);
        const f8_ref y = f8_make(g, F8_OP_FMA, (f8_ref[]){x, v, along}, 3, NULL, 0);
        if (placed)
            kc_place_in(&c, along, v, 0, 1);
        kc_out(&c, y);
        kc_phase(&c, n, n);
        /* the phase recomputes the vector, as grouping does with cheap values */
        f8_phase *p = &c.group[1].phase[0];
        f8_ref node[] = {f8_at(g, v)->in[0], v, y};
        p->node = node;
        p->n_nodes = 3;
        f8_kernel *k;
        f8_binding bound;
        if (placed) {
            kc_check(&c);
        } else if (n > 1) {
            ck_assert(f8_kernel_lower(c.f, &c.group[1], 0, NULL, &c.arena, &k, &bound, &c.diag) ==
                      F8_ERR_INTERNAL);
            ck_assert_ptr_nonnull(strstr(c.diag.text, "other rows and columns"));
        }
        kc_end(&c);
    }
}
END_TEST

/* Transposes of one row or column, which legalize makes reshapes: stores like others. */
START_TEST(transposed_vectors)
{
    for (int tall = 0; tall < 2; tall++) {
        kcase c;
        kc_begin(&c);
        const int n = kc_ragged[_i], rows = tall ? n : 1, cols = tall ? 1 : n;
        const f8_ref y = f8_unary(c.g, F8_OP_TANH, kc_input(&c, F8_F32, 2, rows, cols));
        kc_out(&c, y);
        kc_out(&c, kc_transposed(&c, y));
        kc_phase(&c, rows, cols);
        kc_check_described(&c, f8_target_by_name("sm_90a"));
        kc_end(&c);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("kernel_description");
    TCase *rows = tcase_create("rows");
    tcase_set_timeout(rows, 120);
    tcase_add_loop_test(rows, transposed_stores, 1, KC_RAGGED);
    tcase_add_test(rows, near_only_where_rows_fit);
    tcase_add_test(rows, refused_transposes);
    tcase_add_loop_test(rows, transposed_vectors, 0, KC_RAGGED);
    tcase_add_test(rows, refused_rows);
    tcase_add_loop_test(rows, vector_along_both, 0, 9);
    tcase_add_test(rows, shared_kernels);
    tcase_add_test(rows, description);
    tcase_add_test(rows, visits_of_a_wide_row);
    suite_add_tcase(s, rows);
    return s;
}
