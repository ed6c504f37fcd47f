/* Sets of measurements: what is added where, what is merged, and the figures. */
#include <stdio.h>
#include <string.h>

#include "tests/shared/measures.h"
#include "tests/shared/suite.h"

static void add_process(f8_measure_set *set, f8_measure_process p)
{
    ck_assert_int_eq(f8_measure_add_process(set, &p, NULL), F8_OK);
}

/* All measurements as "problem/cache/candidate", with spaces between. */
static const char *order(const f8_measure_set *set)
{
    static char text[1024];
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < set->n_measurements; i++) {
        const f8_measurement *m = &set->measurement[i];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s/%s/%s", i ? " " : "",
                              m->problem.text, m->cache, m->candidate);
    }
    return text;
}

START_TEST(places)
{
    f8_measure_set set;
    test_measures_begin(&set);
    const double s = 1;
    test_add(&set, test_way("p", "cold", "peer", F8_MEASURE_PEER), "1", &s, 1);
    test_add(&set, test_way("p", "cold", "x", F8_MEASURE_CANDIDATE), "1", &s, 1);
    test_add(&set, test_way("q", "cold", "model", F8_MEASURE_MODEL), "1", &s, 1);
    test_add(&set, test_way("p", "warm", "y", F8_MEASURE_CANDIDATE), "1", &s, 1);
    test_add(&set, test_way("p", "cold", "z", F8_MEASURE_CANDIDATE), "1", &s, 1);
    test_add(&set, test_way("p", "cold", "model", F8_MEASURE_MODEL), "1", &s, 1);
    test_add(&set, test_way("p", "warm", "peer", F8_MEASURE_PEER), "1", &s, 1);
    test_add(&set, test_way("p", "warm", "model", F8_MEASURE_MODEL), "1", &s, 1);
    ck_assert_str_eq(order(&set), "p/cold/model p/cold/x p/cold/z p/cold/peer "
                                  "p/warm/model p/warm/y p/warm/peer q/cold/model");
    for (size_t i = 0; i < set.n_measurements; i++) {
        const f8_measurement *m = &set.measurement[i];
        ck_assert_ptr_eq(f8_measure_find(&set, m->problem.text, m->cache, m->candidate), m);
    }
    ck_assert_ptr_null(f8_measure_find(&set, "q", "warm", "model"));
    ck_assert_ptr_null(f8_measure_find(&set, "r", "cold", "model"));
    f8_arena_end(&set.arena);
}
END_TEST

/* 200 random orders of the same ways: a problem's are neighbours, each is found. */
START_TEST(any_order)
{
    for (uint32_t seed = 1; seed <= 200; seed++) {
        static const char *const problem[] = {"p", "q", "r"}, *const cache[] = {"cold", "warm"},
                                 *const name[] = {"model", "x", "y", "peer"};
        f8_measure_set set;
        test_measures_begin(&set);
        uint32_t random = seed;
        const double s = 1;
        for (int i = 0; i < 100; i++) {
            const uint32_t which = test_random(&random) % 24;
            const int way_of = which % 4;
            test_add(&set,
                     test_way(problem[which / 8], cache[which / 4 % 2], name[way_of],
                              way_of == 3   ? F8_MEASURE_PEER
                              : way_of == 0 ? F8_MEASURE_MODEL
                                            : F8_MEASURE_CANDIDATE),
                     "1", &s, 1);
        }
        size_t groups = 0, problems = 0, runs = 0;
        for (size_t i = 0; i < set.n_measurements; i++) {
            const f8_measurement *m = &set.measurement[i], *before = i ? m - 1 : NULL;
            const bool other = !before || strcmp(before->problem.text, m->problem.text);
            const bool begins = other || strcmp(before->cache, m->cache);
            problems += other;
            groups += begins;
            runs += m->process[0].n;
            ck_assert(begins || before->kind <= m->kind);
            ck_assert_ptr_eq(f8_measure_find(&set, m->problem.text, m->cache, m->candidate), m);
        }
        ck_assert_uint_le(problems, 3);
        ck_assert_uint_le(groups, 6);
        ck_assert_uint_eq(runs, 100);
        f8_arena_end(&set.arena);
    }
}
END_TEST

START_TEST(merging)
{
    f8_measure_set set;
    test_measures_begin(&set);
    f8_measurement first = test_way("p", "cold", "x", F8_MEASURE_CANDIDATE), second = first;
    const double a[] = {1, 2}, b[] = {3};
    first.state = F8_MEASURE_LATE;
    first.error = 0.25;
    first.unit = "";
    test_add(&set, first, NULL, NULL, 0);
    second.state = F8_MEASURE_LACKING;
    second.reason = "no reason";
    test_add(&set, second, NULL, NULL, 0);
    const f8_measurement *m = f8_measure_find(&set, "p", "cold", "x");
    ck_assert_int_eq(m->state, F8_MEASURE_LACKING);
    ck_assert_str_eq(m->reason, "no reason");
    ck_assert_ptr_null(f8_measure_pick(&set, "p", "cold"));

    second.state = F8_MEASURE_TIMED;
    second.reason = "";
    second.error = 0.5;
    second.compile_seconds = 2;
    second.same_bits = F8_MEASURE_YES;
    second.chosen = true;
    test_add(&set, second, "1", a, 2);
    second.error = NAN;
    second.compile_seconds = 3;
    second.same_bits = F8_MEASURE_NO;
    second.chosen = false;
    test_add(&set, second, "2", a, 2);
    second.same_bits = F8_MEASURE_YES;
    test_add(&set, second, "1", b, 1);
    ck_assert_uint_eq(set.n_measurements, 1);
    m = f8_measure_find(&set, "p", "cold", "x");
    ck_assert_int_eq(m->state, F8_MEASURE_TIMED);
    ck_assert_str_eq(m->reason, "");
    ck_assert_str_eq(m->unit, "f32");
    ck_assert(m->error == 0.5 && m->compile_seconds == 2 && m->chosen);
    ck_assert_int_eq(m->same_bits, F8_MEASURE_NO);
    ck_assert_uint_eq(m->n_processes, 2);
    ck_assert_uint_eq(m->process[0].n, 3);
    ck_assert(m->process[0].seconds[0] == 1 && m->process[0].seconds[2] == 3);
    ck_assert_str_eq(m->process[1].process, "2");
    ck_assert_uint_eq(m->process[1].n, 2);
    ck_assert_ptr_eq(f8_measure_pick(&set, "p", "cold"), m);
    f8_arena_end(&set.arena);
}
END_TEST

/* What was added belongs to the set: the caller's memory may change. NULL is "". */
START_TEST(copies)
{
    f8_measure_set set;
    test_measures_begin(&set);
    char text[] = "problem", id[] = "1";
    double seconds[] = {1};
    f8_measurement m = test_way(text, "cold", "model", F8_MEASURE_MODEL);
    add_process(&set, (f8_measure_process){.id = id});
    test_add(&set, m, id, seconds, 1);
    text[0] = id[0] = 'x';
    seconds[0] = 9;
    const f8_measurement *own = f8_measure_find(&set, "problem", "cold", "model");
    ck_assert_ptr_nonnull(own);
    ck_assert(own->process[0].seconds[0] == 1);
    ck_assert_str_eq(own->process[0].process, "1");
    ck_assert_str_eq(own->problem.layout, "");
    ck_assert_str_eq(set.process[0].date, "");
    f8_diag diag = {0};
    ck_assert_int_eq(f8_measure_add_process(&set, &(f8_measure_process){.id = "1"}, &diag),
                     F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "process 1 is there twice");
    f8_arena_end(&set.arena);
}
END_TEST

/* By hand, by Hyndman and Fan's type 7: at (n - 1) q, between neighbours in proportion. */
START_TEST(quantiles)
{
    double x[] = {4, 1, 3, 2}, one[] = {5}, big[] = {1e30, 1e30};
    ck_assert(f8_measure_quantile(x, 4, 0) == 1);
    ck_assert(f8_measure_quantile(x, 4, 1) == 4);
    ck_assert(f8_measure_quantile(x, 4, 0.5) == 2.5);
    ck_assert(f8_measure_quantile(x, 4, 0.25) == 1.75);
    ck_assert(f8_measure_quantile(x, 4, 0.75) == 3.25);
    ck_assert(f8_measure_quantile(one, 1, 0.3) == 5);
    ck_assert(f8_measure_quantile(big, 2, 0.5) == 1e30);
}
END_TEST

static const f8_measure_process machine[] = {
    {.id = "1", .load = 0.5, .cpus = 2, .before = {100, 0, 400, 10}, .after = {300, 0, 0, 20}},
    {.id = "2", .load = NAN, .cpus = 2, .before = {500, 0, 800, 60}, .after = {0}},
    {.id = "3", .load = 2.5, .cpus = 2, .before = {9e9, 9e9, 9e9, 9e9}}};

/* Each limit by hand. A GEMM of 1,000 operations and 100 bytes, measured in processes 1 and 2: f32
 * 100, 300, 500 have the median 300; memory 10, 20, 60 have 20, so 20 * 10 = 200 operations. */
static const struct {
    const char *unit, *cache;
    double flops, limit, rate;
} limits[] = {{"f32", "cold", 1000, 200, 500}, {"f32", "step", 1000, 200, 500},
              {"f32", "warm", 1000, 300, 500}, {"bf16", "cold", 1000, 0, 500},
              {"fp8", "warm", 1000, 600, 500}, {"fp8", "cold", 1e5, 600, 5e4},
              {"", "cold", 1000, 0, 500},      {"", "cold", 0, 20, 50},
              {"", "warm", 0, 0, 50}};

START_TEST(figures)
{
    f8_measure_set set;
    test_measures_begin(&set);
    const double a[] = {4, 1}, b[] = {2, 2, 3};
    for (int i = 0; i < 3; i++)
        add_process(&set, machine[i]);
    f8_measurement m = test_way("p", limits[_i].cache, "model", F8_MEASURE_MODEL);
    m.unit = limits[_i].unit;
    m.problem.flops = limits[_i].flops;
    test_add(&set, m, "1", a, 2);
    test_add(&set, m, "2", b, 3);
    m.candidate = "lacking";
    m.state = F8_MEASURE_LACKING;
    test_add(&set, m, NULL, NULL, 0);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    const f8_measurement *own = &set.measurement[0], *none = &set.measurement[1];
    ck_assert_uint_eq(own->runs, 5); /* 1 2 2 3 4 */
    ck_assert(own->median == 2 && own->quartile[0] == 2 && own->quartile[1] == 3);
    ck_assert(own->least == 1 && own->rate == limits[_i].rate);
    ck_assert_double_eq(own->limit, limits[_i].limit);
    if (own->limit > 0)
        ck_assert_double_eq(own->share, limits[_i].rate / limits[_i].limit);
    else
        ck_assert(isnan(own->share));
    ck_assert_uint_eq(none->runs, 0);
    ck_assert(isnan(none->median) && isnan(none->rate) && isnan(none->share) && !none->limit);
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(loads)
{
    f8_measure_set set;
    test_measures_begin(&set);
    for (int i = 0; i < 3; i++) {
        ck_assert(!f8_measure_was_loaded(&set));
        add_process(&set, machine[i]);
    }
    ck_assert(f8_measure_was_loaded(&set));
    f8_arena_end(&set.arena);
}
END_TEST

/* A set whose memory ends at any moment says so, and crashes nowhere. */
typedef struct meagre {
    f8_allocator real;
    int left;
} meagre;

static void *meagre_alloc(void *user, size_t size, size_t align)
{
    meagre *m = user;
    return m->left-- > 0 ? m->real.alloc(m->real.user, size, align) : NULL;
}

static void meagre_free(void *user, void *p, size_t size)
{
    meagre *m = user;
    m->real.free(m->real.user, p, size);
}

static f8_status fill(f8_measure_set *set)
{
    double seconds[64] = {1};
    f8_measure_runs runs = {"1", seconds, 64};
    for (int i = 0; i < 200; i++) {
        char text[32];
        snprintf(text, sizeof text, "%d", i);
        f8_measurement m = test_way(text, "cold", "model", F8_MEASURE_MODEL);
        m.process = &runs;
        m.n_processes = 1;
        F8_TRY(f8_measure_add_process(set, &(f8_measure_process){.id = text}, NULL));
        F8_TRY(f8_measure_add(set, &m, NULL));
        F8_TRY(f8_measure_add(set, &m, NULL));
    }
    return f8_measure_figures(set, NULL);
}

START_TEST(no_memory)
{
    f8_status status = F8_ERR_MEMORY;
    for (int left = 0; status != F8_OK; left++) {
        meagre m = {f8_default_allocator(), left};
        const f8_allocator allocator = {meagre_alloc, meagre_free, &m};
        f8_measure_set set = {0};
        f8_arena_init(&set.arena, &allocator);
        status = fill(&set);
        ck_assert(status == F8_OK || status == F8_ERR_MEMORY);
        ck_assert_msg(left || status != F8_OK, "nothing was allocated");
        f8_arena_end(&set.arena);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("measurements");
    TCase *t = tcase_create("sets");
    tcase_add_test(t, places);
    tcase_add_test(t, any_order);
    tcase_add_test(t, merging);
    tcase_add_test(t, copies);
    tcase_add_test(t, quantiles);
    tcase_add_loop_test(t, figures, 0, (int)(sizeof limits / sizeof *limits));
    tcase_add_test(t, loads);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}
