/* Row kernels whose rows come through rings (codegen/cuda/rows_ring.c) of bulk copies or, for
 * sm_89, of copies of each thread's own vectors, bit for bit against the interpreter: rows of one
 * chunk and of many, of as many vectors as tiles take at once and of others, ragged ones; stages
 * that load the same and other values; blocks that have one task and many. What goes wrong where a
 * wait, a barrier's bytes or the meeting of a warp's threads is missing is planted, and shows. */
#include "codegen/cuda/emit.h"
#include "tests/shared/kernel/kernel_bodies.h"
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

/* A device that has no bulk copies. */
static void load_ada(void)
{
    setenv("FP8C_EMULATOR_SM", "89", 1);
    cuda_device_open(&device);
}

static bool has_bulk(void)
{
    return device.target->sm >= 90;
}

/* Checks the case, of whose kernels for aligned launches so many have rings: of bulk copies, or of
 * others. */
static void check(kcase *c, int bulk, int own)
{
    ck_assert_int_eq(kc_check_rings(c, &device), has_bulk() ? bulk : own);
}

/* Codes along rows and along columns, and the amax of each row; `sums`: and the sums of columns. */
static void codes(kcase *c, f8_dtype from, int rows, int cols, bool sums)
{
    const f8_ref x = kc_input(c, from, 2, rows, cols), scale = kc_input(c, F8_F32, 0);
    const f8_ref y = f8_unary(c->g, F8_OP_GELU_ERF, from == F8_F32 ? x : f8_cast(c->g, x, F8_F32));
    const f8_ref code = kc_quantize(c, y, scale, F8_E4M3, true);
    kc_out(c, f8_reduce(c->g, F8_OP_REDUCE_AMAX, y, 1));
    kc_out(c, code);
    kc_out(c, kc_transposed(c, code));
    if (sums)
        kc_out(c, kc_column_sum(c, y));
    kc_phase(c, rows, cols);
}

static f8_ref times(kcase *c, f8_ref a, f8_ref b)
{
    return f8_binary(c->g, F8_OP_MUL, a, b);
}

/* A rounded product, its codes along rows and columns, the amax of each row, and sums of columns.
 */
static void product(kcase *c, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = f8_cast(g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 y = f8_cast(g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 z = f8_cast(g, f8_cast(g, times(c, x, y), F8_BF16), F8_F32);
    const f8_ref q = kc_quantize(c, z, kc_input(c, F8_F32, 0), F8_E5M2, true);
    kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, z, 1));
    kc_out(c, q);
    kc_out(c, kc_transposed(c, q));
    kc_out(c, kc_column_sum(c, z));
    kc_phase(c, rows, cols);
}

/* A rounded sum of two bf16, and its norm in e4m3 along rows and columns. */
static void residual(kcase *c, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = f8_cast(g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 y = f8_cast(g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 w = kc_input(c, F8_F32, 1, cols), scale = kc_input(c, F8_F32, 0);
    const f8_ref sum = f8_cast(g, f8_binary(g, F8_OP_ADD, x, y), F8_BF16),
                 z = f8_cast(g, sum, F8_F32), off = f8_binary(g, F8_OP_SUB, z, kc_mean(c, z)),
                 by = f8_unary(g, F8_OP_RSQRT, kc_mean(c, times(c, off, off)));
    const f8_ref q = kc_quantize(c, times(c, times(c, off, by), w), scale, F8_E4M3, true);
    kc_out(c, sum);
    kc_out(c, q);
    kc_out(c, kc_transposed(c, q));
    kc_phase(c, rows, cols);
}

/* A norm's gradient, to which a gradient that comes past it is added in the second stage. */
static void norm_gradient(kcase *c, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = f8_cast(g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 past = f8_cast(g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 dy = f8_cast(g, kc_input(c, F8_BF16, 2, rows, cols), F8_F32),
                 w = kc_input(c, F8_F32, 1, cols), scale = kc_input(c, F8_F32, 0);
    const f8_ref dyw = times(c, dy, w), mean = kc_mean(c, times(c, dyw, x)),
                 own = f8_binary(g, F8_OP_SUB, dyw, times(c, x, mean)),
                 dx = f8_binary(g, F8_OP_ADD, own, past);
    const f8_ref q = kc_quantize(c, dx, scale, F8_E5M2, true);
    kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, dx, 1));
    kc_out(c, kc_column_sum(c, times(c, dy, x)));
    kc_out(c, kc_column_sum(c, dy));
    kc_out(c, kc_column_sum(c, f8_cast(g, f8_cast(g, dx, F8_BF16), F8_F32)));
    kc_out(c, q);
    kc_out(c, kc_transposed(c, q));
    kc_phase(c, rows, cols);
}

/* Rows: tasks of 64 or 32, the last of 32. Fewer where rows are wider. */
static int tall(int width)
{
    return width > 1024 ? 96 : 224;
}

/* Of 4, 5, 6, 7 (the last not whole), 8, 9 and 32 vectors of a warp. */
static const int widths[] = {1024, 1280, 1536, 1600, 2048, 2304, 8192};
enum { N_WIDTHS = sizeof widths / sizeof *widths };

START_TEST(one_stage)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    codes(&c, F8_BF16, 64, widths[_i], false);
    codes(&c, F8_BF16, tall(widths[_i]), widths[_i], true);
    codes(&c, F8_F32, 64, widths[_i], false);
    check(&c, 3, widths[_i] == 1024 ? 0 : 3); /* narrow rows are whole in registers */
    kc_end(&c);
}
END_TEST

/* Two loads, for which a target without bulk copies has room once: a ring of one chunk a warp. And
 * vectors of 8 bytes. */
START_TEST(two_loads)
{
    kcase c;
    kc_begin(&c);
    product(&c, 96, _i ? 2048 : 1600);
    codes(&c, F8_E5M2, 64, _i ? 2304 : 1616, false);
    check(&c, 2, 2);
    kc_end(&c);
}
END_TEST

/* Two stages that load, the second more than the first. */
START_TEST(two_stages)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    norm_gradient(&c, tall(widths[_i]), widths[_i]);
    kc_norm_backward(&c, 64, widths[_i], true, true, true);
    const int n = widths[_i] == 1024 ? 1 : 2;
    check(&c, n, n); /* narrow rows stay in registers for the second stage */
    kc_end(&c);
}
END_TEST

/* One stage that loads, and later ones that read what was kept. */
START_TEST(kept_values)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    residual(&c, tall(widths[_i]), widths[_i]);
    check(&c, widths[_i] == 1024 ? 0 : 1, 0);
    kc_end(&c);
}
END_TEST

/* Tasks of 256 columns: a chunk each. */
START_TEST(one_chunk)
{
    static const int heights[] = {16, 48, 128};
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < 3; i++) {
        const f8_ref x = kc_input(&c, i ? F8_F32 : F8_BF16, 2, heights[i], 768);
        const f8_ref y = i ? x : f8_cast(c.g, x, F8_F32);
        const f8_ref code = kc_quantize(&c, y, kc_input(&c, F8_F32, 0), F8_E4M3, true);
        kc_out(&c, code);
        kc_out(&c, kc_transposed(&c, code));
        kc_phase(&c, heights[i], 768);
    }
    check(&c, 2, 0);
    kc_end(&c);
}
END_TEST

/* Codes of a row less its amax, or less that of an other row. */
static void off_amax(kcase *c, bool other, int rows, int cols)
{
    const f8_ref x = kc_input(c, F8_F32, 2, rows, cols),
                 y = other ? kc_input(c, F8_F32, 2, rows, cols) : x;
    const f8_ref off = f8_binary(c->g, F8_OP_SUB, y, f8_reduce(c->g, F8_OP_REDUCE_AMAX, x, 1));
    const f8_ref code = kc_quantize(c, off, kc_input(c, F8_F32, 0), F8_E4M3, true);
    kc_out(c, code);
    kc_out(c, kc_transposed(c, code));
    kc_phase(c, rows, cols);
}

/* Rows of one vector that two stages load: the same values, or others. What is stored of a row alone
 * takes no second visit. */
START_TEST(one_chunk_of_two_stages)
{
    kcase c;
    kc_begin(&c);
    for (int cols = 192; cols <= 256; cols += 64) {
        off_amax(&c, false, 64, cols);
        off_amax(&c, true, 64, cols);
        codes(&c, F8_BF16, 64, cols, false);
    }
    check(&c, 2, 0);
    kc_end(&c);
}
END_TEST

/* Without a ring: rows that a warp has several of, heights that are no multiple of a block's rows.
 */
START_TEST(none)
{
    kcase c;
    kc_begin(&c);
    codes(&c, F8_BF16, 64, 128, false);
    codes(&c, F8_BF16, 33, 2048, false);
    codes(&c, F8_BF16, 1, 2048, true);
    check(&c, 0, 0);
    kc_end(&c);
}
END_TEST

/* ---- planted faults ---- */

typedef struct fault {
    const char *right, *wrong;
} fault;

static void check_caught(const fault *f)
{
    kcase c;
    kc_begin(&c);
    codes(&c, F8_BF16, 96, 2048, true);
    ck_assert_msg(kc_is_caught(&c, &device, f->right, f->wrong), "'%s' for '%s'", f->wrong,
                  f->right);
    kc_end(&c);
}

START_TEST(planted)
{
    static const fault faults[] = {
        {"f8_bulk_wait(ring.bars + slot, ring.phase);", ""},
        {"f8_bulk_wait(ring.bars + slot, ring.phase);",
         "f8_bulk_wait(ring.bars + slot, ring.phase ^ 1);"},
        {"f8_ring_expect(ring, slot, 2 * 512);", "f8_ring_expect(ring, slot, 2 * 256);"},
        {"f8_ring_expect(ring, slot, 2 * 512);", "f8_ring_expect(ring, slot, 2 * 1024);"},
        {"f8_ring_empty(ring);", ""},
        {"ring.phase ^= (f8_u32)ring.slot;", ""},
        {"ring.slot ^= 1;", ""},
        {"g0 += 512;", "g0 += 496;"},
        {"if (f8_ring_fills(ring) && (!over || more))", "if (f8_ring_fills(ring) && !over)"},
        {"if (f8_ring_fills(ring) && (!over || more))", "if (f8_ring_fills(ring))"},
    };
    check_caught(&faults[_i]);
}
END_TEST

/* The same without bulk copies. */
START_TEST(planted_own)
{
    static const fault faults[] = {
        {"f8_copy_wait<N - 1>();", ""},
        {"f8_copy_wait<N - 1>();", "f8_copy_wait<N>();"},
        {"f8_copy_commit();", ""}, /* the chunk's group is still open */
        /* no group where nothing is copied */
        {"}\n                                f8_ring_close(ring);", "f8_ring_close(ring); }"},
        /* refilled before it has been read */
        {"f8_get<2, 8>(w0[u], chunk",
         "f8_copy_vector<16>(chunk + lane * 16, g0); f8_get<2, 8>(w0[u], chunk"},
        {"(N == 2)\n        ring.slot ^= 1;", "(N == 2)\n        ;"},
        {"+ f8_ring_own<8>(ring);\n", "+ f8_ring_own<8>(ring) + 8;\n"},
        {"g0 += 256;", "g0 += 248;"},
        {"if (f8_ring_fills(ring) && (!over || more))", "if (f8_ring_fills(ring) && !over)"},
        {"if (f8_ring_fills(ring) && (!over || more))", "if (f8_ring_fills(ring))"},
    };
    check_caught(&faults[_i]);
}
END_TEST

/* What the comparison of the test before rests on. */
START_TEST(nothing_planted)
{
    kcase c;
    kc_begin(&c);
    codes(&c, F8_BF16, 96, 2048, true);
    ck_assert(!kc_is_caught(&c, &device, "f8_ring_begin(ring)", "f8_ring_begin( ring)"));
    kc_end(&c);
}
END_TEST

static TCase *without_bulk(void)
{
    TCase *own = tcase_create("without bulk copies");
    tcase_set_timeout(own, 300);
    tcase_add_checked_fixture(own, load_ada, unload);
    tcase_add_loop_test(own, one_stage, 0, N_WIDTHS);
    tcase_add_loop_test(own, two_loads, 0, 2);
    tcase_add_loop_test(own, two_stages, 2, 5);
    tcase_add_loop_test(own, kept_values, 2, 3);
    tcase_add_test(own, one_chunk);
    tcase_add_test(own, none);
    tcase_add_loop_test(own, planted_own, 0, 10);
    tcase_add_test(own, nothing_planted);
    return own;
}

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda rings");
    TCase *rows = tcase_create("rings");
    tcase_set_timeout(rows, 300);
    tcase_add_checked_fixture(rows, load, unload);
    tcase_add_loop_test(rows, one_stage, 0, N_WIDTHS);
    tcase_add_loop_test(rows, two_loads, 0, 2);
    tcase_add_loop_test(rows, two_stages, 0, N_WIDTHS);
    tcase_add_loop_test(rows, kept_values, 0, N_WIDTHS - 1);
    tcase_add_test(rows, one_chunk);
    tcase_add_test(rows, one_chunk_of_two_stages);
    tcase_add_test(rows, none);
    suite_add_tcase(s, rows);
    if (!getenv("FP8C_TEST_GPU")) { /* a GPU would hang, or be lucky */
        TCase *faults = tcase_create("faults");
        tcase_set_timeout(faults, 300);
        tcase_add_checked_fixture(faults, load, unload);
        tcase_add_loop_test(faults, planted, 0, 10);
        tcase_add_test(faults, nothing_planted);
        suite_add_tcase(s, faults);
        suite_add_tcase(s, without_bulk());
    }
    return s;
}
