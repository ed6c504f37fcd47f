/* Ratios of two measurements: Student's distribution by tables and closed forms, odd inputs, and by
 * simulation how often an interval is wrong and a slow-down is found. */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "frontend/measure/student.h"
#include "tests/shared/measures.h"
#include "tests/shared/suite.h"

/* ---- Student's distribution ---- */

/* Quantiles to the digits that tables print (Student's t, two-sided; Abramowitz and Stegun 1964,
 * table 26.10). */
static const struct {
    double freedom, level, t;
} table[] = {{1, 0.95, 12.706},   {2, 0.95, 4.303},   {3, 0.95, 3.182},    {4, 0.95, 2.776},
             {5, 0.95, 2.571},    {8, 0.95, 2.306},   {10, 0.95, 2.228},   {30, 0.95, 2.042},
             {120, 0.95, 1.980},  {1e5, 0.95, 1.960}, {1, 0.99, 63.657},   {4, 0.99, 4.604},
             {8, 0.99, 3.355},    {30, 0.99, 2.750},  {4, 0.90, 2.132},    {8, 0.90, 1.860},
             {1, 0.999, 636.619}, {4, 0.999, 8.610},  {8, 0.999, 5.041},   {1, 0.5, 1.000},
             {2, 0.5, 0.816},     {4, 0.5, 0.741},    {120, 0.999, 3.373}, {1e5, 0.999, 3.291}};

START_TEST(quantiles)
{
    const double t = f8_student_t(table[_i].level, table[_i].freedom);
    ck_assert_double_eq_tol(t, table[_i].t, 0.0005 * (1 + 1e-9)); /* half of the last digit */
    ck_assert_double_eq_tol(f8_student_p(t, table[_i].freedom), 1 - table[_i].level, 1e-10);
}
END_TEST

/* What |T| >= t has in closed form: freedom 1 is Cauchy's distribution. The second is without
 * cancellation for large t: 1 - t / sqrt(2 + t^2). The tolerance is some 100 roundings: the front
 * factor is exp of a sum of logarithms, up to 50 here, each off by half of 2^-52. */
START_TEST(closed_forms)
{
    for (double t = 1e-6; t < 1e12; t *= 1.7) {
        const double one = t > 1 ? atan(1 / t) / atan(1) / 2 : 1 - atan(t) / atan(1) / 2;
        const double root = sqrt(2 + t * t), two = 2 / (root * (root + t));
        ck_assert_double_eq_tol(f8_student_p(t, 1), one, 100 * DBL_EPSILON * one);
        ck_assert_double_eq_tol(f8_student_p(-t, 2), two, 100 * DBL_EPSILON * two);
    }
    ck_assert(f8_student_p(0, 4) == 1);
    ck_assert(f8_student_p(INFINITY, 4) == 0);
    ck_assert(f8_student_p(1e300, 4) == 0);
    ck_assert(isnan(f8_student_p(NAN, 4)));
}
END_TEST

/* ---- odd inputs ---- */

typedef struct side {
    f8_measure_runs runs[4];
    f8_measurement m;
} side;

/* Two runs in each of n processes. */
static f8_measurement *make(side *s, const double *seconds, size_t n)
{
    *s = (side){.m = test_way("p", "cold", "model", F8_MEASURE_MODEL)};
    for (size_t i = 0; i < n; i++)
        s->runs[i] = (f8_measure_runs){"x", &seconds[2 * i], 2};
    s->m.process = s->runs;
    s->m.n_processes = n;
    return &s->m;
}

static f8_measure_ratio ratio_of(const f8_measurement *a, const f8_measurement *b, uint64_t seed)
{
    const f8_allocator allocator = f8_default_allocator();
    const f8_measure_options options = {.seed = seed};
    f8_arena arena;
    f8_measure_ratio r;
    f8_diag diag = {0};
    f8_arena_init(&arena, &allocator);
    ck_assert_msg(f8_measure_interval(a, b, &options, &arena, &r, &diag) == F8_OK, "%s", diag.text);
    f8_arena_end(&arena);
    return r;
}

static const double ones[] = {1, 1, 1, 1, 1, 1, 1, 1}, twos[] = {2, 2, 2, 2, 2, 2, 2, 2},
                    noisy[] = {1, 1.01, 1.02, 1.04, 0.98, 1.01, 1.1, 1},
                    vast[] = {1e30, 2e30, 3e30, 1e30, 2e30, 2e30, 1e30, 1e30},
                    tiny[] = {5e-324, 1e-300, 1e-310, 1e-320, 1e-300, 1e-309, 1e-301, 1e-302},
                    zeros[] = {0, 0, 0, 0, 0, 0, 0, 0}, coarse[] = {0, 1, 1, 1, 1, 1, 1, 1};

START_TEST(no_variance)
{
    side x, y;
    f8_measure_ratio r = ratio_of(make(&x, ones, 4), make(&y, ones, 3), 1);
    ck_assert(r.ratio == 1 && r.low == 1 && r.high == 1 && r.p == 1);
    r = ratio_of(make(&x, ones, 4), make(&y, twos, 4), 1);
    ck_assert(r.ratio == 2 && r.low == 2 && r.high == 2 && r.p == 0);
    r = ratio_of(make(&x, noisy, 4), make(&y, noisy, 4), 1);
    ck_assert(r.ratio == 1 && r.low < 1 && r.high > 1 && r.p == 1);
    r = ratio_of(make(&x, ones, 4), make(&y, noisy, 4), 1); /* one side alone varies */
    ck_assert(r.low < r.ratio && r.ratio < r.high && r.p > 0 && r.p < 1);
}
END_TEST

START_TEST(nothing_to_say)
{
    side x, y;
    const struct {
        const double *a, *b;
        size_t n_a, n_b;
        double ratio;
    } few[] = {{ones, twos, 1, 4, 2},         {ones, twos, 4, 1, 2},   {noisy, noisy, 1, 1, 1},
               {ones, ones, 0, 4, NAN},       {ones, ones, 4, 0, NAN}, {ones, ones, 0, 0, NAN},
               {zeros, ones, 4, 4, INFINITY}, {ones, zeros, 4, 4, 0},  {zeros, zeros, 4, 4, NAN},
               {coarse, ones, 4, 4, 1}};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        const f8_measure_ratio r =
            ratio_of(make(&x, few[i].a, few[i].n_a), make(&y, few[i].b, few[i].n_b), 1);
        ck_assert_msg(r.ratio == few[i].ratio || (isnan(r.ratio) && isnan(few[i].ratio)), "%zu: %g",
                      i, r.ratio);
        ck_assert(isnan(r.low) && isnan(r.high) && isnan(r.p));
    }
    make(&x, ones, 4)->process[2].n = 0; /* it should not be there */
    const f8_measure_ratio r = ratio_of(&x.m, make(&y, ones, 4), 1);
    ck_assert(r.ratio == 1 && isnan(r.low) && isnan(r.p));
}
END_TEST

START_TEST(far_numbers)
{
    side x, y;
    f8_measure_ratio r = ratio_of(make(&x, noisy, 4), make(&y, vast, 4), 1);
    ck_assert(r.ratio > 1e29 && r.low > 1e28 && r.high < 1e32 && r.p < 1e-6);
    r = ratio_of(make(&x, tiny, 4), make(&y, vast, 4), 1); /* past the largest double */
    ck_assert(isinf(r.ratio) && !isnan(r.low) && !isnan(r.high) && r.p >= 0 && r.p <= 1);
}
END_TEST

/* A seed gives the same each time and others give others; the ratio the other way round is the
 * inverse. */
START_TEST(seeds)
{
    side x, y;
    make(&x, noisy, 4);
    make(&y, noisy + 2, 3);
    const f8_measure_ratio r = ratio_of(&x.m, &y.m, 1), again = ratio_of(&x.m, &y.m, 1);
    const f8_measure_ratio other = ratio_of(&x.m, &y.m, 2), back = ratio_of(&y.m, &x.m, 1);
    ck_assert(r.low == again.low && r.high == again.high && r.p == again.p);
    ck_assert(r.low != other.low && r.ratio == other.ratio);
    /* 2,000 draws: a deviation off by some 1 / sqrt(2 * 2000), 1.6%; three times that, twice. */
    ck_assert_double_eq_tol(log(r.high / r.low), log(other.high / other.low),
                            0.1 * log(r.high / r.low));
    ck_assert_double_eq_tol(back.low, 1 / r.high, 1e-12);
    ck_assert_double_eq_tol(back.p, r.p, 1e-12);
}
END_TEST

/* Processes with the same runs: only runs within a process can be drawn otherwise. */
START_TEST(runs_within)
{
    static const double each[] = {1, 1.5};
    f8_measure_runs runs[4];
    side x, y;
    make(&x, ones, 0)->process = runs;
    for (int i = 0; i < 4; i++)
        runs[i] = (f8_measure_runs){"x", each, 2};
    x.m.n_processes = 4;
    y = x;
    const f8_measure_ratio r = ratio_of(&x.m, &y.m, 1);
    ck_assert(r.low < 1 && r.ratio == 1 && r.high > 1 && r.p == 1);
}
END_TEST

/* With one run in each process the bootstrap's variance can be had without draws: the median of a
 * draw of 3 of 3 is the k-th of them with probabilities 7/27, 13/27, 7/27. */
START_TEST(by_hand)
{
    const double a[] = {1, 1.1, 1.3}, p[] = {7 / 27.0, 13 / 27.0, 7 / 27.0};
    f8_measure_runs runs[3], same[3];
    side x, y;
    double mean = 0, variance = 0;
    make(&x, ones, 0)->n_processes = 3;
    make(&y, ones, 0)->n_processes = 3;
    for (int i = 0; i < 3; i++) {
        runs[i] = (f8_measure_runs){"x", &a[i], 1};
        same[i] = (f8_measure_runs){"x", ones, 2};
        mean += p[i] * log(a[i]);
    }
    for (int i = 0; i < 3; i++)
        variance += p[i] * (log(a[i]) - mean) * (log(a[i]) - mean);
    x.m.process = runs;
    y.m.process = same;
    const f8_measure_ratio r = ratio_of(&x.m, &y.m, 1);
    /* Freedom 2: the other side does not vary. 4.303: its quantile. */
    const double half = 4.30265 * sqrt(variance * 3 / 2);
    ck_assert_double_eq_tol(r.ratio, 1 / 1.1, 1e-15);
    /* Three deviations of an estimate of 2,000 draws, as above; its kurtosis is below 3. */
    ck_assert_double_eq_tol(log(r.high / r.ratio), half, 0.05 * half);
    ck_assert_double_eq_tol(log(r.ratio / r.low), half, 0.05 * half);
}
END_TEST

static const struct {
    f8_measure_options options;
    const char *why;
} bad[] = {{{.draws = 99}, "99 draws of a bootstrap: from 100 to 10,000,000 are expected"},
           {{.draws = -1}, "-1 draws of a bootstrap"},
           {{.draws = 10000001}, "10000001 draws of a bootstrap"},
           {{.level = 1}, "an interval's level of 1: from 0.5 to below 1 is expected"},
           {{.level = 0.3}, "an interval's level of 0.3"},
           {{.level = NAN}, "an interval's level of"}};

START_TEST(bad_options)
{
    f8_measure_options out;
    f8_diag diag = {0};
    ck_assert_int_eq(f8_measure_settle(&bad[_i].options, &out, &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, bad[_i].why) != NULL, "%s", diag.text);
    ck_assert_int_eq(f8_measure_settle(NULL, &out, NULL), F8_OK);
    ck_assert(out.draws == 2000 && out.level == 0.95 && !out.seed);
}
END_TEST

/* ---- simulations ---- */

enum { PROBLEMS = 12, PROCESSES = 5, RUNS = 7, DRAWS = 300 };

typedef struct noise {
    double between, within; /* deviations of logarithms */
} noise;

static void draw_set(f8_measure_set *set, noise of, double slow, uint32_t *random)
{
    test_measures_begin(set);
    for (int p = 0; p < PROBLEMS; p++)
        for (int i = 0; i < PROCESSES; i++) {
            const double process = of.between * test_normal(random);
            double seconds[RUNS];
            for (int j = 0; j < RUNS; j++)
                seconds[j] = 1e-3 * (p ? 1 : slow) * exp(process + of.within * test_normal(random));
            test_add(
                set,
                test_way((const char[]){(char)('a' + p), 0}, "cold", "model", F8_MEASURE_MODEL),
                (const char[]){(char)('1' + i), 0}, seconds, RUNS);
        }
}

/* What many pairs of sets say. The first problem is slower in the second set. */
typedef struct outcome {
    int pairs, false_pairs; /* with a mark at a problem that is as fast */
    int found;              /* the first problem is marked, as slower */
    int held, intervals;
} outcome;

static outcome simulate(noise of, double slow, int pairs, uint32_t seed)
{
    outcome all = {.pairs = pairs};
    for (int i = 0; i < pairs; i++) {
        const f8_allocator allocator = f8_default_allocator();
        const f8_measure_options options = {.seed = (uint64_t)i, .draws = DRAWS};
        f8_measure_set a, b;
        f8_measure_diff d;
        f8_arena arena;
        bool wrong = false;
        f8_arena_init(&arena, &allocator);
        draw_set(&a, of, 1, &seed);
        draw_set(&b, of, slow, &seed);
        ck_assert_int_eq(f8_measure_compare(&a, &b, &options, &arena, &d, NULL), F8_OK);
        ck_assert_uint_eq(d.n_changes, PROBLEMS);
        for (int p = 0; p < PROBLEMS; p++) {
            const f8_measure_ratio *r = &d.change[p].ratio;
            const double truth = p ? 1 : slow;
            all.intervals++;
            all.held += r->low <= truth && truth <= r->high;
            wrong |= truth == 1 && d.change[p].marked;
        }
        all.false_pairs += wrong;
        all.found += d.change[0].marked && d.change[0].ratio.ratio > 1;
        f8_arena_end(&a.arena);
        f8_arena_end(&b.arena);
        f8_arena_end(&arena);
    }
    return all;
}

/* Sets that do not differ. Of 400 pairs at most 5% may have a mark: 20, and 35 with 3.3 deviations
 * of a binomial, sqrt(400 * 0.05 * 0.95) = 4.4. Of 4,800 intervals at least 95% hold 1: 94% with
 * 3.3 times sqrt(0.95 * 0.05 / 4800) = 0.3%. */
static const noise noises[] = {{0.015, 0.005}, {0.05, 0.01}, {0.01, 0.01}, {0.015, 0.0002}};

START_TEST(no_difference)
{
    const outcome o = simulate(noises[_i], 1, 400, 11 + (uint32_t)_i);
    ck_assert_msg(o.false_pairs <= 35, "%d of %d pairs are marked", o.false_pairs, o.pairs);
    ck_assert_msg(o.held >= 0.94 * o.intervals, "%d of %d intervals hold 1", o.held, o.intervals);
    ck_assert_msg(o.held <= 0.995 * o.intervals, "intervals are wide: %d of %d hold 1", o.held,
                  o.intervals);
}
END_TEST

/* A slow-down of 10% among processes that deviate by 1.5%. The medians' difference deviates by
 * about 0.015 * sqrt(2 * 1.43 / 5) = 1.1% of it, so that it is 8 deviations. With freedom 8 Holm's
 * first step (0.05 / 12) asks for 4 of them as estimated, which are half as many again where the
 * estimate is high: 9 of 10 are found at least, and all where processes deviate by 0.7%. */
START_TEST(slow_down)
{
    const outcome o = simulate((noise){0.015, 0.005}, 1.1, 200, 5);
    ck_assert_msg(o.found >= 180, "%d of %d are found", o.found, o.pairs);
    ck_assert_msg(o.false_pairs <= 20, "%d of %d pairs are marked", o.false_pairs, o.pairs);
    const outcome calm = simulate((noise){0.007, 0.003}, 1.1, 100, 6);
    ck_assert_msg(calm.found == calm.pairs, "%d of %d are found", calm.found, calm.pairs);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("interval");
    TCase *t = tcase_create("ratios");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, quantiles, 0, (int)(sizeof table / sizeof *table));
    tcase_add_test(t, closed_forms);
    tcase_add_test(t, no_variance);
    tcase_add_test(t, nothing_to_say);
    tcase_add_test(t, far_numbers);
    tcase_add_test(t, seeds);
    tcase_add_test(t, runs_within);
    tcase_add_test(t, by_hand);
    tcase_add_loop_test(t, bad_options, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_loop_test(t, no_difference, 0, (int)(sizeof noises / sizeof *noises));
    tcase_add_test(t, slow_down);
    suite_add_tcase(s, t);
    return s;
}
