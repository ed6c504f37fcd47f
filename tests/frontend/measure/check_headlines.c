/* What a set says as a whole, and what peers say, against sums by hand. */
#include "tests/shared/measures.h"
#include "tests/shared/suite.h"

/* A way with the same time in two processes. */
static void add(f8_measure_set *set, const char *problem, const char *cache, const char *candidate,
                f8_measure_kind kind, f8_measure_answer same_bits, int64_t count, double seconds)
{
    f8_measurement m = test_way(problem, cache, candidate, kind);
    const double each[] = {seconds, seconds};
    m.same_bits = same_bits;
    m.problem.count = count;
    test_add_each(set, m, each, 2);
}

static void add_lacking(f8_measure_set *set, const char *problem, f8_measure_state state)
{
    f8_measurement m = test_way(problem, "cold", "model", F8_MEASURE_MODEL);
    m.state = state;
    test_add(set, m, NULL, NULL, 0);
}

#define MODEL F8_MEASURE_MODEL
#define OWN F8_MEASURE_CANDIDATE
#define PEER F8_MEASURE_PEER
#define NO F8_MEASURE_NO
#define YES F8_MEASURE_YES
#define UNKNOWN F8_MEASURE_UNKNOWN

static void fill(f8_measure_set *set)
{
    test_measures_begin(set);
    for (int i = 0; i < 2; i++) { /* memory of 1,000 bytes a second: 10,000 operations */
        const f8_measure_process p = {.id = i ? "2" : "1",
                                      .before = {.flops_f32 = 1e5, .bytes = 1e3}};
        ck_assert_int_eq(f8_measure_add_process(set, &p, NULL), F8_OK);
    }
    add(set, "p", "cold", "model", MODEL, UNKNOWN, 3, 4);
    add(set, "p", "cold", "x", OWN, NO, 3, 1);
    add(set, "p", "cold", "y", OWN, YES, 3, 2);
    add(set, "p", "cold", "z", OWN, UNKNOWN, 3, 8);
    f8_measurement brief =
        test_way("p", "cold", "brief", OWN); /* the fastest, in one process of two */
    brief.same_bits = YES;
    brief.problem.count = 3;
    test_add_each(set, brief, (double[]){0.25}, 1);
    add(set, "p", "cold", "peer", PEER, UNKNOWN, 3, 0.5);
    add(set, "q", "cold", "model", MODEL, UNKNOWN, 1, 10);
    add(set, "q", "cold", "x", OWN, YES, 1, 11);
    add(set, "q", "cold", "peer", PEER, UNKNOWN, 1, 20);
    add(set, "q", "warm", "model", MODEL, UNKNOWN, 1, 5);
    add_lacking(set, "r", F8_MEASURE_LACKING);
    add_lacking(set, "s", F8_MEASURE_LATE);
    add(set, "s", "cold", "peer", PEER, UNKNOWN, 1, 1);
    ck_assert_int_eq(f8_measure_figures(set, NULL), F8_OK);
}

START_TEST(headlines)
{
    f8_measure_set set;
    f8_measure_headline h;
    fill(&set);
    ck_assert(f8_measure_headline_at(&set, 0, &h));
    ck_assert_str_eq(h.cache, "cold");
    ck_assert(h.problems == 4 && h.timed == 2 && h.lacking == 1 && h.late == 1);
    ck_assert(h.model == 3 * 4 + 10 && h.best == 3 * 1 + 10 && h.best_same_bits == 3 * 2 + 10);
    ck_assert_double_eq_tol(h.regret, 22.0 / 13 - 1, 1e-15);
    /* 1,000 operations in 4 and 10 s, of 10,000: 2.5% and 1%. The best: 10% and 1%. */
    ck_assert_double_eq_tol(h.share, sqrt(0.025 * 0.01), 1e-15);
    ck_assert_double_eq_tol(h.best_share, sqrt(0.1 * 0.01), 1e-15);
    ck_assert(f8_measure_headline_at(&set, 1, &h));
    ck_assert_str_eq(h.cache, "warm");
    /* No other way was timed: nothing is known of the best. */
    ck_assert(h.problems == 1 && h.timed == 1 && h.model == 5 && h.share > 0);
    ck_assert(isnan(h.best) && isnan(h.best_same_bits) && isnan(h.regret) && isnan(h.best_share));
    ck_assert(!f8_measure_headline_at(&set, 2, &h));
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(peers)
{
    f8_measure_set set;
    f8_measure_peer_line line;
    fill(&set);
    const double one = 2, noisy[] = {1.9, 2.1}, other[] = {1.8, 2.15};
    test_add(&set, test_way("t", "cold", "model", F8_MEASURE_MODEL), "1", &one, 1);
    test_add(&set, test_way("t", "cold", "peer", F8_MEASURE_PEER), "1", &one, 1);
    test_add_each(&set, test_way("u", "cold", "model", F8_MEASURE_MODEL), noisy, 2);
    test_add_each(&set, test_way("u", "cold", "peer", F8_MEASURE_PEER), other, 2);
    add(&set, "q", "warm", "another", PEER, UNKNOWN, 1, 1);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    ck_assert(f8_measure_peer_at(&set, 0, &line));
    ck_assert_str_eq(line.cache, "cold");
    ck_assert_str_eq(line.peer, "peer");
    /* p: 4 and 1 over 0.5; q: 10 over 20; t: 2 over 2, one process; u: 2 over 1.975, unsure. */
    ck_assert(line.problems == 4 && line.slower == 1 && line.unknown == 1);
    ck_assert_double_eq_tol(line.model, pow(8 * 0.5 * (2 / 1.975), 0.25), 1e-14);
    ck_assert_double_eq_tol(line.best, pow(2 * 0.5 * (2 / 1.975), 0.25), 1e-14);
    ck_assert(f8_measure_peer_at(&set, 1, &line));
    ck_assert_str_eq(line.cache, "warm");
    ck_assert_str_eq(line.peer, "another");
    ck_assert(line.problems == 1 && line.slower == 1 && !line.unknown);
    ck_assert_double_eq_tol(line.model, 5, 1e-14);
    ck_assert_double_eq_tol(line.best, 5, 1e-14);
    ck_assert(!f8_measure_peer_at(&set, 2, &line));
    f8_arena_end(&set.arena);
}
END_TEST

/* A set of another program has no model's ways; one without anything has nothing. */
START_TEST(without)
{
    f8_measure_set set;
    f8_measure_headline h;
    f8_measure_peer_line line;
    test_measures_begin(&set);
    ck_assert(!f8_measure_headline_at(&set, 0, &h) && !f8_measure_peer_at(&set, 0, &line));
    add(&set, "p", "cold", "torch.mm", PEER, UNKNOWN, 1, 1);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    ck_assert(f8_measure_headline_at(&set, 0, &h));
    ck_assert(h.problems == 1 && h.timed == 1 && isnan(h.model) && isnan(h.regret));
    ck_assert(isnan(h.share) && isnan(h.best_share));
    ck_assert(f8_measure_peer_at(&set, 0, &line));
    ck_assert(line.problems == 0 && isnan(line.model) && isnan(line.best));
    f8_arena_end(&set.arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("headlines");
    TCase *t = tcase_create("sets");
    tcase_add_test(t, headlines);
    tcase_add_test(t, peers);
    tcase_add_test(t, without);
    suite_add_tcase(s, t);
    return s;
}
