/* Row kernels on a CUDA device (the emulator, or with FP8C_TEST_GPU this machine's GPU), bit for
 * bit against the interpreter. Cases cover ragged shapes, all dtypes, any
 * alignment, any grid, one tensor a launch or many, and in the emulator any order of blocks and
 * warps. check_cuda_rows_text.c compiles the same text with the real NVRTC. */
#include "tests/shared/kernel/kernel_bodies.h"
#include "tests/shared/kernel/kernel_configs.h"
#include "tests/shared/kernel/kernel_device.h"
#include "tests/shared/suite.h"

#include <stdlib.h>
#include <string.h>

static cuda_device device;

static void load(void)
{
    cuda_device_open(&device);
}

static void unload(void)
{
    cuda_device_close(&device);
}

static void check(kcase *c)
{
    kc_check_on_device(c, &device);
}

static const int sizes[] = {1, 13, 64, 300};
static const int widths[] = {1, 2, 7, 8, 16, 21, 31, 64, 100, 128, 255, 256, 257, 384, 768, 1000};
enum { N_WIDTHS = sizeof widths / sizeof *widths };

START_TEST(layernorms)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i == 1;
    for (int i = 0; i < N_WIDTHS; i++)
        kc_layernorm(&c, _i ? F8_F32 : F8_BF16, i % 3 ? 37 : 5, widths[i], true);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Rows that a block shares, in 64, 128 and 256 threads; kept, and too wide to be kept. */
START_TEST(wide_rows)
{
    static const int wide[] = {1032, 2048, 3000, 4096, 5001, 8192, 16384, 20000};
    kcase c;
    kc_begin(&c);
    kc_layernorm(&c, F8_BF16, 5, wide[_i], true);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(softmaxes)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    for (int i = 0; i < N_WIDTHS; i += 2)
        kc_softmax(&c, 6, widths[i + _i]);
    check(&c);
    kc_end(&c);
}
END_TEST

/* No number of reductions in a stage is too many. Where a block has a row it has memory for 40. */
START_TEST(many_reductions)
{
    static const struct {
        int n, cols;
    } many[] = {{40, 5000}, {41, 5000}, {200, 5000}, {65, 300}, {200, 16}};
    kcase c;
    kc_begin(&c);
    kc_many_reductions(&c, 3, many[_i].cols, many[_i].n, many[_i].cols > 256);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Nor of values that a later stage needs: beyond 64 they are computed once more. */
START_TEST(many_near)
{
    static const int many[] = {64, 65, 140};
    kcase c;
    kc_begin(&c);
    kc_many_near(&c, 2, _i ? 100 : 1032, many[_i]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(pointwise)
{
    kcase c;
    kc_begin(&c);
    c.specials = true;
    kc_pointwise(&c, 29, sizes[_i]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(ints_and_truth)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i += 3)
        kc_ints_and_truth(&c, 7, widths[i]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(dtypes)
{
    kcase c;
    kc_begin(&c);
    c.specials = true;
    const int cols = sizes[_i], rows = 11;
    const f8_ref s = kc_input(&c, F8_F32, 0), row = kc_input(&c, F8_F32, 2, rows, 1),
                 wide = kc_input(&c, F8_F32, 2, rows, cols);
    kc_narrow(&c, s, wide);
    for (int sat = 0; sat < 2; sat++) {
        const f8_op op = sat ? F8_OP_ADD : F8_OP_SUB;
        kc_codes(&c, s, wide, sat);
        for (f8_dtype t = F8_E4M3; t <= F8_E5M2; t++) {
            const f8_ref by = f8_binary(c.g, op, row, f8_const(c.g, t));
            kc_out(&c, kc_quantize(&c, f8_binary(c.g, op, wide, by), s, t, sat));
        }
        kc_phase(&c, rows, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(columns)
{
    static const int heights[] = {2, 16, 64, 65, 200};
    kcase c;
    kc_begin(&c);
    for (int i = 1; i < N_WIDTHS; i += 2)
        kc_norm_backward(&c, heights[(i / 2 + _i) % 5], widths[i], _i % 4 != 1, _i % 4 > 0,
                         _i >= 4);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(wide_columns)
{
    static const int wide[] = {1032, 2304, 3072, 9000};
    kcase c;
    kc_begin(&c);
    kc_norm_backward(&c, 70, wide[_i], true, true, true);
    if (_i < 3) /* of the widest, wide_maxima has the ragged one */
        kc_norm_backward(&c, 70, wide[_i] + 3, true, true, false);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Rows that a block of threads does not have in registers, whose sums are kept for later stages; a
 * batch of rows that is full, and one that is not. */
START_TEST(wide_residuals)
{
    static const int wide[] = {1032, 2048, 2304, 4099};
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    kc_residual_norm(&c, 64, wide[_i]);
    kc_residual_norm(&c, 37, wide[_i] + 5);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Magnitudes of columns: held by threads or through tiles, blocks lower and taller than what a
 * block of threads has of rows at once, with everything else that goes over rows. */
START_TEST(maxima)
{
    static const int heights[] = {2, 16, 64, 33, 65, 200};
    static const kc_blocks blocks[] = {
        {.block = {32}},
        {.block = {64, 2}, .codes = true},
        {.block = {4, 32, 16}, .reduce = true},
        {.block = {32, 64}, .reduce = true, .sums = true},
        {.block = {8, 32}, .reduce = true, .codes = true},
        {.block = {32, 32, 4}, .reduce = true, .sums = true, .codes = true},
    };
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    for (int i = _i % 2; i < N_WIDTHS; i += 2)
        kc_column_blocks(&c, heights[(i / 2 + _i) % 6], widths[i], blocks[_i]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(wide_maxima)
{
    static const int wide[] = {1032, 2304, 3072, 9000};
    kcase c;
    kc_begin(&c);
    if (_i < 3) /* of the widest, wide_columns has the one of whole vectors */
        kc_column_blocks(&c, 70, wide[_i], (kc_blocks){.block = {32, 16}, .reduce = true});
    kc_column_blocks(&c, 70, wide[_i] + 3, (kc_blocks){.block = {64, 4, 32}, .codes = true});
    check(&c);
    kc_end(&c);
}
END_TEST

/* Rows that are blocks: of 32 and 128 columns, and others. */
START_TEST(row_blocks)
{
    static const int widths[] = {1, 16, 32, 50, 64, 100, 128, 256};
    kcase c;
    kc_begin(&c);
    c.specials = true;
    for (int i = 0; i < 8; i++)
        kc_row_blocks(&c, 301, widths[i], i % 2 ? F8_F32 : F8_BF16, i % 4 < 2);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(column_runs)
{
    static const int blocks[] = {16, 32, 64, 128, 256};
    static const int wide[] = {17, 33, 64, 136, 200, 257, 300, 384, 768, 1000, 1280, 3001};
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    for (int i = 0; i < 12; i++)
        if (wide[i] > blocks[_i])
            kc_column_runs(&c, i % 3 ? 37 : 5, wide[i], blocks[_i], (3 * i + _i) % 8);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Rows that a thread has in parts, and whose f32 values it keeps for later stages; the last turn
 * has vectors past the row's end. */
START_TEST(kept_runs)
{
    kcase c;
    kc_begin(&c);
    kc_column_runs(&c, 37, 768, 128, KC_REDUCED | KC_MAXIMA);
    kc_column_runs(&c, 64, 1280, 64, KC_REDUCED | KC_MAXIMA);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(tiles)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i++)
        kc_tiles(&c, 130, widths[i], kc_tile_size[i % KC_TILE_SIZES][0],
                 kc_tile_size[i % KC_TILE_SIZES][1]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(scaled_runs)
{
    static const int high[] = {32, 128, 3, 16};
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i++)
        kc_scaled_runs(&c, 3, high[i % 4], widths[i], i % 3 > 0);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Transposed values of every size. */
START_TEST(transposes)
{
    static const f8_dtype types[] = {F8_F32, F8_BF16, F8_F16, F8_E4M3};
    static const int heights[] = {3, 16, 50, 128};
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < 4; i++)
        for (int w = 4; w < N_WIDTHS; w += 4) {
            const f8_ref x = kc_input(&c, types[i], 2, heights[(i + w / 4) % 4], widths[w]);
            const f8_ref y =
                i == 3 ? kc_quantize(&c, f8_cast(c.g, x, F8_F32), f8_const(c.g, 3), F8_E4M3, false)
                : i    ? f8_cast(c.g, f8_unary(c.g, F8_OP_NEG, f8_cast(c.g, x, F8_F32)), types[i])
                       : f8_unary(c.g, F8_OP_NEG, x);
            kc_out(&c, kc_transposed(&c, y));
            kc_phase(&c, heights[(i + w / 4) % 4], widths[w]);
        }
    check(&c);
    kc_end(&c);
}
END_TEST

/* A norm's gradient, wide rows, with sums of columns and no codes. */
static void norm_gradient(kcase *c)
{
    const int rows = 64, cols = 2048;
    const f8_ref x = f8_cast(c->g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 dy = f8_cast(c->g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32);
    const f8_ref mean = kc_mean(c, f8_binary(c->g, F8_OP_MUL, dy, x));
    const f8_ref dx = f8_binary(c->g, F8_OP_SUB, dy, f8_binary(c->g, F8_OP_MUL, x, mean));
    kc_out(c, f8_cast(c->g, dx, F8_BF16));
    kc_out(c, kc_column_sum(c, f8_binary(c->g, F8_OP_MUL, dy, x)));
    kc_out(c, kc_column_sum(c, dx));
    kc_phase(c, rows, cols);
}

/* Whether a kernel for sm_90a has these launch bounds: a norm with a residual, whose transposed
 * codes it stores, or that gradient. */
static bool has_blocks(bool codes, const char *config, const char *bounds)
{
    const f8_target *to = NULL;
    kcase c;
    int n;
    for (size_t i = 0; !to || strcmp(to->name, "sm_90a") != 0; i++)
        to = f8_target_at(i);
    kc_begin(&c);
    kv_use(config);
    if (codes)
        kc_residual_norm(&c, 64, 2048);
    else
        norm_gradient(&c);
    const bool has = strstr(kc_cuda_text(&c, to, &n), bounds);
    kc_end(&c);
    kv_use(NULL);
    return has;
}

/* Two blocks a multiprocessor, but one where two would store transposed codes in parts of sectors.
 * The tuner may take two. */
START_TEST(two_blocks)
{
    ck_assert(has_blocks(false, NULL, ", 512, 2)"));
    ck_assert(!has_blocks(false, NULL, ", 1024, 1)"));
    ck_assert(has_blocks(true, NULL, ", 1024, 1)"));
    ck_assert(!has_blocks(true, NULL, ", 512, 2)"));
    ck_assert(has_blocks(true, "threads 512", ", 512, 2)"));
}
END_TEST

START_TEST(periodic_rows)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i += 3)
        kc_periodic(&c, widths[i], false);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Rolled loads and rolled values, whole vectors or not. */
START_TEST(rolls)
{
    static const int groups[] = {2, 8, 16, 24, 64, 7, 400};
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < 7; i++) {
        const int group = groups[i], cols = 3 * group;
        const f8_ref x = kc_input(&c, F8_BF16, 2, 19, cols), y = kc_input(&c, F8_F32, 2, 19, cols);
        for (int shift = 1; shift <= group; shift += group / 2) {
            const int by = shift % 2 && group > 2 ? shift - 1 : shift;
            const f8_ref stored = f8_cast(c.g, kc_roll(&c, x, by, group), F8_F32);
            const f8_ref product = f8_binary(c.g, F8_OP_MUL, y, f8_cast(c.g, x, F8_F32));
            kc_out(&c, stored);
            if (_i)
                kc_out(&c, f8_binary(c.g, F8_OP_ADD, stored, kc_roll(&c, product, by, group)));
        }
        kc_phase(&c, 19, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(gathers)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i++)
        kc_embedding(&c, widths[i]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(targets)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i += 2)
        kc_targets(&c, widths[i]);
    check(&c);
    kc_end(&c);
}
END_TEST

/* By 8 lanes and by warps, by 64 to 256 threads, and by 512 and 1024, where the cache takes few
 * rows at once. */
START_TEST(losses)
{
    static const int wide[] = {1500, 3000, 9000, 20000, 35000, 50257, 50368, 70001};
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    for (int i = 0; i < N_WIDTHS; i += 2)
        kc_loss(&c, _i & 2 ? F8_F32 : F8_BF16, 6, widths[i]);
    for (int i = _i & 1; i < 8; i += 2)
        kc_loss(&c, _i & 2 ? F8_BF16 : F8_F32, 3, wide[i]);
    check(&c);
    kc_end(&c);
}
END_TEST

/* The same, with sums that begin with the largest of the first columns. In some rows they do, in
 * others not; where they do not, what is left out is far out of exp's range. */
START_TEST(wide_losses)
{
    static const int wide[] = {1500, 3000, 8193, 9000, 20000, 35000, 50257, 50368, 70001};
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    c.seed = (uint64_t)_i + 17;
    for (int i = 3 + _i % 2; i < N_WIDTHS; i += 2) {
        const int first = 1 + widths[i] * (_i % 3) / 3;
        kc_wide_loss(&c, _i & 2 ? F8_F32 : F8_BF16, 33, widths[i],
                     (kc_wide){first, 16, _i & 4 ? 40 : 1, (kc_wide_out)(i % 3)});
    }
    for (int i = _i % 4; i < 9; i += 4)
        kc_wide_loss(&c, _i & 2 ? F8_BF16 : F8_F32, i & 1 ? 1 : 5, wide[i],
                     (kc_wide){_i & 1 ? 4096 : 100, 16, _i & 4 ? 40 : 1, KC_WIDE_NONE});
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(in_place)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i++)
        kc_in_place(&c, 21, widths[i]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(views)
{
    kcase c;
    kc_begin(&c);
    kc_views(&c, widths[_i]);
    check(&c);
    kc_end(&c);
}
END_TEST

/* An optimizer's update in place, over tensors of many sizes: one kernel, and one launch of all. */
START_TEST(many_tensors)
{
    static const int sizes[] = {1, 3, 4, 1023, 1024, 1025, 5000, 64, 2, 4096};
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    for (int i = 0; i < 10; i++) {
        const f8_ref w = kc_input(&c, F8_F32, 1, sizes[i] + 1),
                     m = kc_input(&c, F8_F32, 1, sizes[i] + 1),
                     dw = kc_input(&c, F8_F32, 1, sizes[i] + 1), rate = kc_input(&c, F8_F32, 0),
                     go = kc_input(&c, F8_BOOL, 0);
        const f8_ref next =
            f8_binary(g, F8_OP_ADD, f8_binary(g, F8_OP_MUL, m, f8_const(g, 0.9)), dw);
        const f8_ref step =
            f8_binary(g, F8_OP_DIV, f8_binary(g, F8_OP_MUL, next, rate),
                      f8_binary(g, F8_OP_ADD, f8_unary(g, F8_OP_SQRT, f8_unary(g, F8_OP_ABS, m)),
                                f8_const(g, 1e-8)));
        const f8_ref w1 = f8_select(g, go, f8_binary(g, F8_OP_SUB, w, step), w),
                     m1 = f8_select(g, go, next, m);
        kc_alias(&c, w1, w);
        kc_alias(&c, m1, m);
        kc_out(&c, w1);
        kc_out(&c, m1);
        kc_phase(&c, 1, sizes[i] + 1);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* One kernel over tensors of other heights: rows, column sums. */
START_TEST(many_rows)
{
    kcase c;
    kc_begin(&c);
    for (int rows = 3; rows < 300; rows += 60)
        kc_layernorm(&c, F8_BF16, rows, 48, true);
    for (int rows = 70; rows < 300; rows += 60)
        kc_norm_backward(&c, rows, 72, true, true, true);
    for (int rows = 70; rows < 300; rows += 60)
        kc_norm_backward(&c, rows, 520, true, true, false);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(small_shapes)
{
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    kc_small_shapes(&c, true);
    const f8_ref x = kc_input(&c, F8_F32, 1, 3000);
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_SUM, f8_binary(g, F8_OP_MUL, x, x), -1));
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_AMAX, x, -1));
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_MAX, x, -1));
    kc_phase(&c, 1, 3000);
    check(&c);
    kc_end(&c);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda rows");
    TCase *device = tcase_create("device");
    tcase_set_timeout(device, 300);
    tcase_add_checked_fixture(device, load, unload);
    tcase_add_loop_test(device, layernorms, 0, 2);
    tcase_add_loop_test(device, wide_rows, 0, 8);
    tcase_add_loop_test(device, softmaxes, 0, 2);
    tcase_add_loop_test(device, many_reductions, 0, 5);
    tcase_add_loop_test(device, many_near, 0, 3);
    tcase_add_loop_test(device, pointwise, 0, 4);
    tcase_add_test(device, ints_and_truth);
    tcase_add_loop_test(device, dtypes, 0, 4);
    tcase_add_loop_test(device, columns, 0, 8);
    tcase_add_loop_test(device, wide_columns, 0, 4);
    tcase_add_loop_test(device, wide_residuals, 0, 4);
    tcase_add_loop_test(device, maxima, 0, 6);
    tcase_add_loop_test(device, wide_maxima, 0, 4);
    tcase_add_test(device, row_blocks);
    tcase_add_loop_test(device, column_runs, 0, 5);
    tcase_add_test(device, kept_runs);
    tcase_add_test(device, tiles);
    tcase_add_test(device, scaled_runs);
    tcase_add_test(device, transposes);
    tcase_add_test(device, two_blocks);
    tcase_add_test(device, periodic_rows);
    tcase_add_loop_test(device, rolls, 0, 2);
    tcase_add_test(device, gathers);
    tcase_add_test(device, targets);
    tcase_add_loop_test(device, losses, 0, 4);
    tcase_add_loop_test(device, wide_losses, 0, 8);
    tcase_add_test(device, in_place);
    for (int i = 2; i < N_WIDTHS; i += 4)
        tcase_add_loop_test(device, views, i, i + 1);
    tcase_add_test(device, many_tensors);
    tcase_add_test(device, many_rows);
    tcase_add_test(device, small_shapes);
    suite_add_tcase(s, device);
    return s;
}
