/* Kernels of the CPU: described, printed, compiled, run, and compared bit for bit with a slow
 * evaluation, over ragged sizes, all dtypes and any split into tasks.
 * check_kernel_description.c tests the descriptions themselves. */
#include "codegen/kernel/kernel.h"
#include "tests/shared/kernel/kernel_bodies.h"
#include "tests/shared/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(norm_rows)
{
    kcase c;
    kc_begin(&c);
    kc_layernorm(&c, F8_BF16, 70, kc_ragged[_i], false);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(norm_rows_f32)
{
    kcase c;
    kc_begin(&c);
    c.specials = true;
    kc_layernorm(&c, F8_F32, 5, kc_ragged[_i], false);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(pointwise_f32)
{
    kcase c;
    kc_begin(&c);
    c.specials = true;
    kc_pointwise(&c, 9, kc_ragged[_i]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(ints_and_truth)
{
    kcase c;
    kc_begin(&c);
    kc_ints_and_truth(&c, 4, kc_ragged[_i]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(dtypes)
{
    kcase c;
    kc_begin(&c);
    c.specials = true;
    const int cols = kc_ragged[_i], rows = 3;
    const f8_ref s = kc_input(&c, F8_F32, 0), wide = kc_input(&c, F8_F32, 2, rows, cols);
    kc_narrow(&c, s, wide);
    kc_codes(&c, s, wide, false);
    kc_codes(&c, s, wide, true);
    kc_phase(&c, rows, cols);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(softmax_rows)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    kc_softmax(&c, 6, kc_ragged[_i]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(column_sums)
{
    static const int heights[] = {1, 5, 64, 65, 200};
    for (int i = 0; i < 5; i++) {
        kcase c;
        kc_begin(&c);
        const int cols = kc_ragged[_i], rows = heights[i];
        const f8_ref x = kc_input(&c, F8_BF16, 2, rows, cols),
                     y = kc_input(&c, F8_F32, 2, rows, cols);
        const f8_ref f = f8_cast(c.g, x, F8_F32), xy = f8_binary(c.g, F8_OP_MUL, f, y);
        const f8_ref rs = f8_reduce(c.g, F8_OP_REDUCE_SUM, xy, -1);
        const f8_ref z = f8_binary(c.g, F8_OP_MUL, xy, rs);
        if (rows > 1) {
            const f8_ref a = kc_column_sum(&c, f), b = kc_column_sum(&c, z);
            kc_out(&c, a);
            kc_out(&c, b);
            kc_out(&c, z);
            kc_phase(&c, rows, cols);
            if (rows > F8_COLSUM_BLOCK) {
                kc_out(&c, kc_column_sum(&c, a));
                kc_out(&c, kc_column_sum(&c, b));
                kc_next_phase(&c, f8_type_rows(f8_type_of(c.g, a)), cols);
            }
            kc_check(&c);
        }
        kc_end(&c);
    }
}
END_TEST

/* Magnitudes of columns: all blocks, alone, in one kernel, and with column sums. */
static const kc_blocks column_blocks[] = {
    {.block = {32}},
    {.block = {2}, .reduce = true},
    {.block = {64, 16}},
    {.block = {4, 32, 8}, .reduce = true},
    {.block = {64, 32}, .reduce = true, .sums = true},
    {.block = {8, 64}, .sums = true},
};
enum { N_COLUMN_BLOCKS = sizeof column_blocks / sizeof *column_blocks };

START_TEST(column_maxima)
{
    static const int heights[] = {2, 5, 31, 33, 64, 65, 200};
    for (int i = 0; i < 7; i++) {
        kcase c;
        kc_begin(&c);
        c.specials = i & 1;
        c.seed = (uint64_t)(7 * _i + i + 1);
        kc_column_blocks(&c, heights[i], kc_ragged[_i], column_blocks[(i + _i) % N_COLUMN_BLOCKS]);
        kc_check(&c);
        kc_end(&c);
    }
}
END_TEST

START_TEST(row_blocks)
{
    static const int widths[] = {1, 32, 100, 128};
    kcase c;
    kc_begin(&c);
    c.specials = true;
    kc_row_blocks(&c, 301, widths[_i], _i % 2 ? F8_BF16 : F8_F32, _i % 2);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

/* Blocks of columns, whole ones and not, more than a vector of them and fewer. */
START_TEST(column_runs)
{
    static const int blocks[] = {16, 32, 64, 128, 256};
    static const int widths[] = {17, 33, 128, 160, 257, 300, 1000};
    for (int i = 0; i < 7; i++) {
        if (widths[i] <= blocks[_i])
            continue;
        kcase c;
        kc_begin(&c);
        c.seed = (uint64_t)(7 * _i + i + 1);
        c.specials = i & 1;
        kc_column_runs(&c, i % 3 ? 9 : 1, widths[i], blocks[_i], i % 2);
        kc_column_runs(&c, 35, widths[i], blocks[_i], KC_MAXIMA | !(i % 2));
        kc_check(&c);
        kc_end(&c);
    }
}
END_TEST

START_TEST(tiles)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < KC_TILE_SIZES; i++)
        kc_tiles(&c, 130, kc_ragged[_i], kc_tile_size[i][0], kc_tile_size[i][1]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

/* A row of scales for each run of rows: of 32 and 128, which are shifts, and others. */
START_TEST(scaled_runs)
{
    static const int high[] = {32, 128, 3, 1, 2};
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < 5; i++)
        kc_scaled_runs(&c, 3, high[i], kc_ragged[_i], false);
    kc_check(&c);
    ck_assert_ptr_nonnull(strstr(c.stats.kernel[0].text, kc_ragged[_i] > 1 ? "row >> 5" : ""));
    kc_end(&c);
}
END_TEST

START_TEST(periodic_rows)
{
    kcase c;
    kc_begin(&c);
    kc_periodic(&c, kc_ragged[_i], true);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(rolls)
{
    static const int groups[] = {2, 8, 16, 24, 32, 64, 7};
    kcase c;
    kc_begin(&c);
    const int group = groups[_i], cols = 3 * group;
    const f8_ref x = kc_input(&c, F8_BF16, 2, 5, cols), y = kc_input(&c, F8_F32, 2, 5, cols);
    for (int shift = -1; shift <= group; shift += group / 2 > 0 ? group / 2 : 1) {
        const f8_ref stored = f8_cast(c.g, kc_roll(&c, x, shift, group), F8_F32);
        const f8_ref product = f8_binary(c.g, F8_OP_MUL, y, f8_cast(c.g, x, F8_F32));
        kc_out(&c, f8_binary(c.g, F8_OP_ADD, stored, kc_roll(&c, product, shift, group)));
    }
    kc_phase(&c, 5, cols);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(embeddings)
{
    kcase c;
    kc_begin(&c);
    const int cols = kc_ragged[_i];
    const f8_ref ids = kc_embedding(&c, cols), acc = kc_input(&c, F8_F32, 2, 11, cols),
                 dy = kc_input(&c, F8_F32, 3, 3, 5, cols);
    kc_single(&c, F8_GROUP_SCATTER,
              f8_make(c.g, F8_OP_EMBEDDING_GRAD, (f8_ref[]){acc, ids, dy}, 3, NULL, 0));
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(targets)
{
    kcase c;
    kc_begin(&c);
    kc_targets(&c, kc_ragged[_i]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

/* Sums that begin with the largest of the first columns: in some rows they do, in others not. */
START_TEST(wide_losses)
{
    const int cols = kc_ragged[_i];
    for (int how = 0; how < 8; how++) {
        kcase c;
        kc_begin(&c);
        c.specials = how & 1;
        c.seed = (uint64_t)(8 * _i + how);
        kc_wide_loss(&c, how & 1 ? F8_BF16 : F8_F32, how & 2 ? 1 : 33, cols,
                     (kc_wide){1 + cols * (how % 3) / 3, how & 4 ? 16 : 0.5, how & 4 ? 40 : 1,
                               how < 3 ? (kc_wide_out)how : KC_WIDE_NONE});
        kc_check(&c);
        kc_end(&c);
    }
}
END_TEST

START_TEST(wide_losses_of_vocabularies)
{
    static const int wide[] = {8193, 9000, 50257};
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    for (int i = 0; i < 3; i++)
        kc_wide_loss(&c, i & 1 ? F8_BF16 : F8_F32, 2 * i + 1, wide[i],
                     (kc_wide){4096, 16, _i & 2 ? 40 : 1, KC_WIDE_NONE});
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(in_place)
{
    kcase c;
    kc_begin(&c);
    kc_in_place(&c, 5, kc_ragged[_i]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

static f8_ref shape_op(kcase *c, f8_op op, f8_ref x, f8_attr_key key, int n, const int64_t *v)
{
    f8_ints ints = {.n = n};
    memcpy(ints.v, v, (size_t)n * sizeof *v);
    const f8_attr attr = F8_INTS(key, ints);
    return f8_make(c->g, op, &x, 1, &attr, 1);
}

START_TEST(copies)
{
    kcase c;
    kc_begin(&c);
    const int d = kc_ragged[_i];
    const f8_ref x = kc_input(&c, F8_BF16, 4, 2, 3, 4, d), y = kc_input(&c, F8_F32, 2, 1, d),
                 a = kc_input(&c, F8_F32, 2, 5, d), b = kc_input(&c, F8_F32, 2, 5, 3);
    kc_single(&c, F8_GROUP_COPY,
              shape_op(&c, F8_OP_TRANSPOSE, x, F8_A_PERM, 4, (int64_t[]){0, 2, 1, 3}));
    kc_single(&c, F8_GROUP_COPY,
              shape_op(&c, F8_OP_TRANSPOSE, x, F8_A_PERM, 4, (int64_t[]){3, 2, 0, 1}));
    kc_single(&c, F8_GROUP_COPY,
              shape_op(&c, F8_OP_BROADCAST, y, F8_A_SHAPE, 3, (int64_t[]){2, 3, d}));
    kc_single(&c, F8_GROUP_COPY, f8_concat(c.g, (f8_ref[]){a, b, a}, 3, 1));
    const f8_ref joined = f8_concat(c.g, (f8_ref[]){a, a}, 2, 0);
    kc_single(&c, F8_GROUP_COPY, joined);
    kc_single(&c, F8_GROUP_COPY, f8_slice(c.g, x, 1, 1, 3));
    kc_check(&c);
    kc_end(&c);
}
END_TEST

/* Strided views, and a reshape of their neighbours in memory. */
START_TEST(views)
{
    kcase c;
    kc_begin(&c);
    const int cols = kc_ragged[_i];
    const f8_ref z = kc_views(&c, cols);
    const f8_type vector = {.dtype = F8_F32, .rank = 1, .dim = {6 * cols}};
    const f8_ref flat = f8_reshape(c.g, z, &vector);
    kc_alias(&c, flat, z);
    kc_out(&c, f8_unary(c.g, F8_OP_NEG, flat));
    kc_phase(&c, 1, 6 * (int64_t)cols);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

/* No number of reductions in a stage is too many, nor of values that are kept for a later one. */
static const int many[] = {64, 65, 200};

START_TEST(many_reductions)
{
    kcase c;
    kc_begin(&c);
    kc_many_reductions(&c, 3, _i ? 45 : 16, many[_i], _i > 0);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(many_near)
{
    kcase c;
    kc_begin(&c);
    kc_many_near(&c, 2, 45, many[_i]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(long_rows)
{
    kcase c;
    kc_begin(&c);
    kc_layernorm(&c, F8_F32, 3, 50257, false);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(small_shapes)
{
    kcase c;
    kc_begin(&c);
    kc_small_shapes(&c, false);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

/* The widest vectors of this machine, then 8 lanes: the same bits. */
static void eight_lanes(void)
{
    kc_cpu = "x86-64-v3";
}

static TCase *narrow_case(void)
{
    TCase *t = tcase_create("eight lanes");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, eight_lanes, NULL);
    tcase_add_loop_test(t, column_runs, 0, 5);
    for (int i = 2; i < KC_RAGGED; i += 5) { /* 7, 31, 257 */
        tcase_add_loop_test(t, norm_rows, i, i + 1);
        tcase_add_loop_test(t, pointwise_f32, i, i + 1);
        tcase_add_loop_test(t, ints_and_truth, i, i + 1);
        tcase_add_loop_test(t, dtypes, i, i + 1);
        tcase_add_loop_test(t, softmax_rows, i, i + 1);
        tcase_add_loop_test(t, column_sums, i, i + 1);
        tcase_add_loop_test(t, column_maxima, i, i + 1);
        tcase_add_loop_test(t, tiles, i, i + 1);
        tcase_add_loop_test(t, embeddings, i, i + 1);
        tcase_add_loop_test(t, targets, i, i + 1);
        tcase_add_loop_test(t, in_place, i, i + 1);
    }
    tcase_add_loop_test(t, rolls, 0, 7);
    return t;
}

Suite *f8_suite(void)
{
    Suite *s = suite_create("kernel");
    TCase *rows = tcase_create("rows");
    tcase_set_timeout(rows, 120);
    tcase_add_loop_test(rows, norm_rows, 0, KC_RAGGED);
    tcase_add_loop_test(rows, norm_rows_f32, 0, KC_RAGGED);
    tcase_add_loop_test(rows, pointwise_f32, 0, KC_RAGGED);
    tcase_add_loop_test(rows, ints_and_truth, 0, KC_RAGGED);
    tcase_add_loop_test(rows, dtypes, 0, KC_RAGGED);
    tcase_add_loop_test(rows, softmax_rows, 0, KC_RAGGED);
    tcase_add_loop_test(rows, column_sums, 0, KC_RAGGED);
    tcase_add_loop_test(rows, column_maxima, 0, KC_RAGGED);
    tcase_add_loop_test(rows, row_blocks, 0, 4);
    tcase_add_loop_test(rows, column_runs, 0, 5);
    tcase_add_loop_test(rows, tiles, 0, KC_RAGGED);
    tcase_add_loop_test(rows, scaled_runs, 0, KC_RAGGED);
    tcase_add_loop_test(rows, periodic_rows, 0, KC_RAGGED);
    tcase_add_loop_test(rows, rolls, 0, 7);
    tcase_add_loop_test(rows, embeddings, 0, KC_RAGGED);
    tcase_add_loop_test(rows, targets, 0, KC_RAGGED);
    tcase_add_loop_test(rows, wide_losses, 0, KC_RAGGED);
    tcase_add_loop_test(rows, wide_losses_of_vocabularies, 0, 4);
    tcase_add_loop_test(rows, in_place, 0, KC_RAGGED);
    tcase_add_loop_test(rows, copies, 0, KC_RAGGED);
    tcase_add_loop_test(rows, views, 0, KC_RAGGED);
    tcase_add_test(rows, long_rows);
    tcase_add_loop_test(rows, many_reductions, 0, 3);
    tcase_add_loop_test(rows, many_near, 0, 2);
    tcase_add_test(rows, small_shapes);
    suite_add_tcase(s, rows);
    suite_add_tcase(s, narrow_case());
    return s;
}
