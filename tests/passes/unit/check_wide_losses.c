/* The loss and the gradient of each row of a cross-entropy, for rows of one column up to a
 * vocabulary. This file computes the definition of ir/README.md once more: in f32, with the same
 * bits; and in double, within a bound that follows from the roundings. In rows of over 8192 columns
 * the sum starts from the maximum of the first 4096. In some rows here that is the row's maximum,
 * in some it lies a little below it, and in some far below. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/reference/reference.h"
#include "ir/num/scalar.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/passes/unit.h"
#include "tests/shared/suite.h"

enum { LANES = 256, NARROW = 8192, FIRST = 4096, MOST_ABOVE = 16 };

static uint64_t state;

static float uniform(void) /* [-1, 1) */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) * 0x1p-31f;
}

/* ---- the definition ---- */

static float largest_of(const float *x, int n)
{
    float most = -INFINITY;
    for (int i = 0; i < n; i++)
        most = f8_maximum(most, x[i]);
    return most;
}

/* The order of a sum over a row. */
static float sum_of_exp(const float *x, int n, float less)
{
    float lane[LANES];
    for (int i = 0; i < n; i++) {
        const float e = f8_scalar_f32(F8_FN_EXP, x[i] - less);
        lane[i % LANES] = i < LANES ? e : lane[i % LANES] + e;
    }
    for (int h = LANES / 2; h > 0; h /= 2)
        for (int j = 0; j < h && j + h < n; j++)
            lane[j] += lane[j + h];
    return lane[0];
}

static float sum_of_row(const float *x, int n, float largest)
{
    const float first = largest_of(x, n < FIRST ? n : FIRST);
    if (n <= NARROW || !(largest - first < (float)MOST_ABOVE))
        return sum_of_exp(x, n, largest);
    return sum_of_exp(x, n, first) * f8_scalar_f32(F8_FN_EXP, first - largest);
}

static void define(const float *x, int n, int target, float dy, float *loss, float *dx)
{
    const float largest = largest_of(x, n), sum = sum_of_row(x, n, largest);
    const float log_sum = f8_scalar_f32(F8_FN_LOG, sum);
    *loss = (largest - x[target]) + log_sum;
    for (int i = 0; i < n; i++) {
        const float p = f8_scalar_f32(F8_FN_EXP, (x[i] - largest) - log_sum);
        dx[i] = (p - (i == target ? 1.0f : 0.0f)) * dy;
    }
}

/* ---- rows ---- */

/* What a row holds: numbers between -size and size; one that is `peak` in column `at`. */
typedef struct content {
    float size, peak;
    int at; /* -1: the last column */
} content;

static const content contents[] = {
    {3, 0, 0},           {0, 0, 0},   /* all equal */
    {3, 9, FIRST - 1},                /* the largest in the last of the first columns */
    {3, 9, FIRST},                    /* in the next one */
    {1, 16.5f, -1},                   /* about 16 above */
    {0, 16, -1},                      /* exactly */
    {0, 15.999999f, -1},              /* and just less */
    {0, 16.000002f, -1},              /* and just more */
    {3, 60, -1},         {3, -60, 0}, /* far above; first of all far below */
    {3, 1e30f, -1},      {3, 1e30f, 0},
    {1e30f, 2e30f, 7},   {3, -1e30f, 1},
    {3, -INFINITY, 2},   {3, INFINITY, 3},
    {3, INFINITY, -1},   {3, NAN, 5},
    {3, NAN, -1},        {INFINITY, -INFINITY, 0}, /* all -Inf */
    {-INFINITY, 3, -1},                            /* all -Inf but the last */
    {-INFINITY, 3, 0},                             /* and but the first */
};
enum { N_CONTENTS = sizeof contents / sizeof *contents };

static void fill_row(const content *c, float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = isinf(c->size) ? -INFINITY : c->size * uniform();
    if (c->peak != 0 && c->at < n)
        x[c->at < 0 ? n - 1 : c->at] = c->peak;
}

/* ---- one size ---- */

typedef struct losses {
    int rows, n;
    float *x, *dy, *loss, *dx; /* [rows, n], [rows], [rows], [rows, n] */
    int32_t *t;                /* [rows] */
} losses;

static losses losses_of(int rows, int n)
{
    losses l = {.rows = rows, .n = n};
    const size_t all = (size_t)rows * (size_t)n;
    l.x = malloc(all * sizeof *l.x);
    l.dx = malloc(all * sizeof *l.dx);
    l.dy = malloc((size_t)rows * sizeof *l.dy);
    l.loss = malloc((size_t)rows * sizeof *l.loss);
    l.t = malloc((size_t)rows * sizeof *l.t);
    for (int r = 0; r < rows; r++) {
        fill_row(&contents[(r + (rows == 1 ? n : 0)) % N_CONTENTS], l.x + (size_t)r * (size_t)n, n);
        l.dy[r] = uniform();
        l.t[r] = (int32_t)((r * 7919) % n);
    }
    return l;
}

static void end_losses(losses *l)
{
    free(l->x);
    free(l->dx);
    free(l->dy);
    free(l->loss);
    free(l->t);
}

/* What decompose makes of the two ops, interpreted. */
static void run(losses *l)
{
    char text[512];
    test_unit t;
    snprintf(
        text, sizeof text,
        "module m\nfunc forward(%%x: f32[%d, %d], %%t: i32[%d], %%dy: f32[%d]) -> (%%y: f32[%d], "
        "%%dx: f32[%d, %d]) {\n  return cross_entropy(%%x, %%t) {reduction = \"none\"}, "
        "cross_entropy_grad(%%x, %%t, %%dy) {reduction = \"none\"}\n}\n",
        l->rows, l->n, l->rows, l->rows, l->rows, l->rows, l->n);
    test_unit_parse(&t, text, "f32");
    test_pass(&t, f8_pass_decompose);
    const f8_func *f = test_func(&t, "forward");
    ck_assert_msg(f8_reference_run(f, (const void *[]){l->x, l->t, l->dy},
                                   (void *[]){l->loss, l->dx}, NULL, &t.diag) == F8_OK,
                  "%s", t.diag.text);
    test_unit_end(&t);
}

static bool same(float a, float b)
{
    return f8_bits(a) == f8_bits(b) || (isnan(a) && isnan(b));
}

/* A bound of the sum's relative error, u = 2^-24. A term has 8 u from rounding its argument, whose
 * magnitude is below 16, and 1.8 u from exp. Terms with arguments below -16 have more, but each is
 * at most e^-16 of the sum: all of them together add less than 1 u. A lane adds n / 256 terms, and
 * the tree has 8 levels. The factor has the error of a term; the product adds one rounding. */
static double bound_of_sum(int n)
{
    const double u = 0x1p-24;
    return ((n + 255) / 256 - 1 + 8 + 2 * (8 + 1.8) + 1 + 1) * u;
}

static void check_bound(const losses *l, int r)
{
    const float *x = l->x + (size_t)r * (size_t)l->n, *dx = l->dx + (size_t)r * (size_t)l->n;
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < l->n; i++)
        largest = fmax(largest, (double)x[i]);
    for (int i = 0; i < l->n; i++)
        sum += exp((double)x[i] - largest);
    const double below = largest - (double)x[l->t[r]], want = below + log(sum), u = 0x1p-24;
    /* log has 1.3 ulp; the difference, and the loss, are rounded once */
    const double of_log = bound_of_sum(l->n) + 1.3 * 2 * u * log(sum);
    const double most = of_log + u * below + u * want + 0x1p-140;
    ck_assert_msg(fabs((double)l->loss[r] - want) <= most,
                  "%d columns, row %d: %.9g, not %.9g +- %g", l->n, r, (double)l->loss[r], want,
                  most);
    for (int i = 0; i < l->n; i++) {
        const double off = (double)x[i] - largest, p = exp(off) / sum;
        const double near = p * (of_log + u * (2 * fabs(off) + log(sum) + 4)) + 3 * u + 0x1p-140;
        const double got = ((double)p - (i == l->t[r])) * (double)l->dy[r];
        ck_assert_msg(fabs((double)dx[i] - got) <= near * fabs((double)l->dy[r]) + 0x1p-140,
                      "%d columns, row %d, column %d: %.9g, not %.9g", l->n, r, i, (double)dx[i],
                      got);
    }
}

static bool is_finite(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static const int columns[] = {1, 7, 255, 257, 8191, 8192, 8193, 8448, 12289, 50257};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

START_TEST(by_definition)
{
    const int n = columns[_i];
    /* under a sanitizer one row of many columns: another row is other numbers */
    for (int rows = 1; rows <= (f8_cli_sanitized() && n > NARROW ? 1 : 33); rows += 32) {
        state = (uint64_t)(100 * _i + rows);
        losses l = losses_of(rows, n);
        float *dx = malloc((size_t)n * sizeof *dx), loss;
        run(&l);
        for (int r = 0; r < rows; r++) {
            const float *x = l.x + (size_t)r * (size_t)n, *got = l.dx + (size_t)r * (size_t)n;
            define(x, n, l.t[r], l.dy[r], &loss, dx);
            ck_assert_msg(same(loss, l.loss[r]),
                          "seed %d, %d columns, row %d: the loss is %a, not %a", 100 * _i + rows, n,
                          r, (double)l.loss[r], (double)loss);
            for (int i = 0; i < n; i++)
                ck_assert_msg(same(dx[i], got[i]),
                              "seed %d, %d columns, row %d, column %d: %a, not %a", 100 * _i + rows,
                              n, r, i, (double)got[i], (double)dx[i]);
            if (is_finite(x, n))
                check_bound(&l, r);
        }
        free(dx);
        end_losses(&l);
    }
}
END_TEST

/* -Inf is a class that can't be, wherever it stands. NaN, +Inf and a row of nothing but -Inf give
 * NaN, whatever the width. */
START_TEST(not_finite)
{
    const int n = columns[_i];
    for (int k = 0; k < N_CONTENTS && n > 8; k++) {
        state = (uint64_t)k + 1;
        losses l = losses_of(1, n);
        fill_row(&contents[k], l.x, n);
        l.t[0] = contents[k].at < 0 ? n - 1 : contents[k].at < n ? contents[k].at : 0;
        const float largest = largest_of(l.x, n);
        const bool is_nan = isnan(largest) || isinf(largest);
        run(&l);
        ck_assert_msg(isnan(l.loss[0]) == is_nan, "content %d of %d columns: %g", k, n,
                      (double)l.loss[0]);
        for (int i = 0; i < n; i++)
            ck_assert_msg(isnan(l.dx[i]) == is_nan, "content %d, column %d of %d: %g", k, i, n,
                          (double)l.dx[i]);
        end_losses(&l);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("wide losses");
    TCase *definition = tcase_create("definition");
    tcase_set_timeout(definition, 120);
    tcase_add_loop_test(definition, by_definition, 0, N_COLUMNS);
    tcase_add_loop_test(definition, not_finite, 0, N_COLUMNS);
    suite_add_tcase(s, definition);
    return s;
}
