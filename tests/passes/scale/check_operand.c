/* The measure by which other tests judge quantized operands, on operands small enough to know the
 * answer. */
#include <math.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "tests/shared/num/operand.h"
#include "tests/shared/suite.h"

enum { ROWS = 130, COLUMNS = 160, N = ROWS * COLUMNS };

static float x[N], scale_inv[N];
static uint8_t q[N], e8m0[N];

/* Codes of x with one scale for each `tall` rows and `wide` columns (0: all), by the definition:
 * the block's amax becomes the format's maximum, as a power of two so that E8M0 can have it too. */
static f8_operand_view quantize(int64_t tall, int64_t wide, bool mx)
{
    const int64_t h = tall ? tall : ROWS, w = wide ? wide : COLUMNS;
    const int64_t down = (ROWS + h - 1) / h, across = (COLUMNS + w - 1) / w;
    for (int64_t i = 0; i < down * across; i++) {
        float amax = 0;
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < COLUMNS; c++)
                if (r / h * across + c / w == i)
                    amax = fmaxf(amax, fabsf(x[r * COLUMNS + c]));
        int exponent;
        frexpf(amax / 448, &exponent);
        scale_inv[i] = ldexpf(1, exponent);
        e8m0[i] = (uint8_t)(exponent + 127);
    }
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++)
            q[r * COLUMNS + c] = (uint8_t)f8_encode(
                F8_E4M3, x[r * COLUMNS + c] / scale_inv[r / h * across + c / w], true);
    f8_operand_view v = {.x_type = {F8_F32, 3, {2, ROWS / 2, COLUMNS}},
                         .q_type = {F8_E4M3, 3, {2, ROWS / 2, COLUMNS}},
                         .scale_type = {mx ? F8_E8M0 : F8_F32, 2, {down, across}},
                         .x = x,
                         .q = q,
                         .scale_inv = mx ? (void *)e8m0 : scale_inv};
    if (!tall && !wide)
        v.scale_type = (f8_type){mx ? F8_E8M0 : F8_F32, 0, {0}};
    return v;
}

/* Every block of 32 by 32 has a size of its own, 2^-2 to 2^2 times the next one's. */
static void fill(void)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            x[r * COLUMNS + c] =
                ldexpf(1 + (float)((r * 7 + c * 13) % 64) / 64, (r / 32 * 5 + c / 32) % 3 * 2);
}

/* Any granularity is told from the shapes: read with the wrong one, blocks of other sizes would be
 * off by powers of two, and no rounding error. */
START_TEST(granularities)
{
    static const int64_t grain[][2] = {{0, 0},   {1, 0},     {0, 1},  {1, 128},
                                       {128, 1}, {128, 128}, {1, 32}, {32, 1}};
    fill();
    f8_operand_stats e;
    for (size_t i = 0; i < sizeof grain / sizeof *grain; i++)
        for (int mx = 0; mx < 2; mx++) {
            const f8_operand_view v = quantize(grain[i][0], grain[i][1], mx);
            ck_assert(f8_operand_measure(&v, &e));
            ck_assert_msg(e.sqnr > 28 && e.sqnr < 40, "%d x %d: %g dB", (int)grain[i][0],
                          (int)grain[i][1], e.sqnr);
            ck_assert_double_eq(e.underflow, 0);
            ck_assert_double_eq(e.overflow, 0);
            ck_assert(e.range > 0.5 && e.range <= 1);
        }
    f8_operand_view v = quantize(32, 1, false);
    v.scale_type.dim[0]--; /* 4 of 130 rows: no block of 1, 32 or 128 */
    ck_assert(!f8_operand_measure(&v, &e));
    v = quantize(1, 32, false);
    v.q_type.dim[2]--;
    ck_assert(!f8_operand_measure(&v, &e));
}
END_TEST

START_TEST(figures)
{
    /* 3 of 4 lost; scale 1: 2^-11 rounds to 0, and 448 is kept. */
    static const float small[4] = {448, 0x1p-11f, -0x1p-11f, 0x1p-12f};
    static const uint8_t codes[4] = {0x7e, 0, 0x80, 0};
    float inv = 1;
    const f8_type type = {F8_F32, 2, {1, 4}}, code = {F8_E4M3, 2, {1, 4}},
                  scalar = {F8_F32, 0, {0}};
    f8_operand_view v = {type, code, scalar, small, codes, &inv};
    f8_operand_stats e;
    ck_assert(f8_operand_measure(&v, &e));
    ck_assert_double_eq(e.underflow, 0.75);
    ck_assert_double_eq(e.range, 1);
    ck_assert_double_eq_tol(e.sqnr, 10 * log10(448.0 * 448 / (2.25 * 0x1p-22)), 1e-6);
    /* Read with half the scale, 448 is twice the largest: half of it is lost, 6.02 dB. */
    inv = 0.5f;
    ck_assert(f8_operand_measure(&v, &e));
    ck_assert_double_eq(e.overflow, 0.25);
    ck_assert_double_eq_tol(e.sqnr, 20 * log10(2), 1e-6);
    /* Nothing lost, and nothing there to lose; a NaN is seen. */
    inv = 1;
    static const uint8_t exact[4] = {0x7e, 0x7e, 0x7e, 0x7e}, nan[4] = {0x7f, 0, 0, 0}, none[4];
    static const float same[4] = {448, 448, 448, 448}, zero[4];
    v = (f8_operand_view){type, code, scalar, same, exact, &inv};
    ck_assert(f8_operand_measure(&v, &e) && e.sqnr == (double)INFINITY);
    v = (f8_operand_view){type, code, scalar, zero, none, &inv};
    ck_assert(f8_operand_measure(&v, &e) && e.sqnr == (double)INFINITY && e.underflow == 0);
    v = (f8_operand_view){type, code, scalar, small, nan, &inv};
    ck_assert(f8_operand_measure(&v, &e) && isnan(e.sqnr));
}
END_TEST

START_TEST(names)
{
    static const struct {
        const char *name, *linear, *kind, *role;
    } want[] = {
        {"fc.x", "fc", "x", NULL},
        {"h.0.fc.dy.1", "h.0.fc", "dy", NULL},
        {"h.0.x.row", "h.0", "x", "fprop"},
        {"h.0.x.column", "h.0", "x", "wgrad"},
        {"h.x.dy.1.1x128", "h.x", "dy", "dgrad"},
        {"h.dy.128x1", "h", "dy", "wgrad"},
        {"h.1.w.128x128", "h.1", "w", NULL},
        {"h.w.32x1", "h", "w", NULL},
    };
    static const char *const none[] = {"loss", "",     "x",      "x.row",    "h.0",
                                       "h.y",  "h.xx", "h.x.1x", "h.x.row.q"};
    f8_operand_name_parts p;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ck_assert_msg(f8_operand_name_split(want[i].name, &p), "%s", want[i].name);
        ck_assert_str_eq(p.kind, want[i].kind);
        ck_assert_pstr_eq(p.role, want[i].role);
        ck_assert_int_eq(p.linear, strlen(want[i].linear));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(!f8_operand_name_split(none[i], &p), "%s", none[i]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("operand");
    TCase *c = tcase_create("measure");
    tcase_add_test(c, granularities);
    tcase_add_test(c, figures);
    tcase_add_test(c, names);
    suite_add_tcase(s, c);
    return s;
}
