/* Two sets compared: which measurements, which are marked, what is in one alone, and the table and
 * records of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/records/records.h"
#include "tests/shared/measures.h"
#include "tests/shared/suite.h"

/* Two sets and what becomes of them. */
typedef struct pair {
    f8_measure_set set[2];
    f8_arena arena;
    f8_measure_diff diff;
} pair;

static pair *begin(void)
{
    static pair p;
    const f8_allocator allocator = f8_default_allocator();
    test_measures_begin(&p.set[0]);
    test_measures_begin(&p.set[1]);
    f8_arena_init(&p.arena, &allocator);
    return &p;
}

static f8_status compare(pair *p, const f8_measure_options *options, f8_diag *diag)
{
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(f8_measure_figures(&p->set[i], NULL), F8_OK);
    return f8_measure_compare(&p->set[0], &p->set[1], options, &p->arena, &p->diff, diag);
}

static void end(pair *p)
{
    f8_arena_end(&p->set[0].arena);
    f8_arena_end(&p->set[1].arena);
    f8_arena_end(&p->arena);
}

/* Four processes around a time. */
static void add_about(f8_measure_set *set, const char *problem, const char *cache,
                      const char *candidate, f8_measure_kind kind, double seconds)
{
    const double each[] = {seconds, seconds * 1.01, seconds * 0.99, seconds * 1.005};
    test_add_each(set, test_way(problem, cache, candidate, kind), each, 4);
}

static void add_model(f8_measure_set *set, const char *problem, double seconds)
{
    add_about(set, problem, "cold", "model", F8_MEASURE_MODEL, seconds);
}

/* ---- what is compared ---- */

START_TEST(picks)
{
    pair *p = begin();
    f8_measurement lacking = test_way("lacks", "cold", "model", F8_MEASURE_MODEL);
    lacking.state = F8_MEASURE_LACKING;
    add_about(&p->set[0], "p", "cold", "x", F8_MEASURE_CANDIDATE, 1);
    add_about(&p->set[0], "p", "cold", "model", F8_MEASURE_MODEL, 3);
    add_about(&p->set[0], "p", "warm", "model", F8_MEASURE_MODEL, 1);
    add_model(&p->set[0], "mine", 1);
    add_model(&p->set[0], "lacks", 1);
    test_add(&p->set[0], test_way("nothing", "cold", "model", F8_MEASURE_MODEL), NULL, NULL, 0);
    add_about(&p->set[1], "p", "cold", "peer", F8_MEASURE_PEER, 1);
    add_about(&p->set[1], "p", "cold", "y", F8_MEASURE_CANDIDATE, 6);
    test_add(&p->set[1], lacking, NULL, NULL, 0);
    lacking.problem.text = "p";
    test_add(&p->set[1], lacking, NULL, NULL, 0);
    add_model(&p->set[1], "theirs", 1);
    ck_assert_int_eq(compare(p, NULL, NULL), F8_OK);
    const f8_measure_diff *d = &p->diff;
    ck_assert_uint_eq(d->n_changes, 1);
    ck_assert_str_eq(d->change[0].a->candidate, "model");
    ck_assert_str_eq(d->change[0].b->candidate, "y"); /* peers are last */
    ck_assert_double_eq_tol(d->change[0].ratio.ratio, 2, 1e-15);
    ck_assert_double_eq_tol(d->mean, 2, 1e-14);
    ck_assert_uint_eq(d->n_only[0], 3);
    ck_assert_str_eq(d->only[0][0]->cache, "warm");
    ck_assert_str_eq(d->only[0][1]->problem.text, "mine");
    ck_assert_str_eq(d->only[0][2]->problem.text, "lacks"); /* b has it, without a time */
    ck_assert_uint_eq(d->n_only[1], 1);
    ck_assert_str_eq(d->only[1][0]->problem.text, "theirs");
    ck_assert(d->options.draws == 2000 && d->options.level == 0.95);
    end(p);
}
END_TEST

START_TEST(nothing_in_common)
{
    pair *p = begin();
    f8_diag diag = {0};
    add_model(&p->set[0], "mine", 1);
    add_model(&p->set[0], "mine too", 1);
    add_about(&p->set[1], "mine", "warm", "model", F8_MEASURE_MODEL, 1);
    ck_assert_int_eq(compare(p, NULL, &diag), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text,
                     "no problem is in both: the first has 2, as mine with a cold cache; "
                     "the second has 1, as mine with a warm cache");
    end(p);
    p = begin();
    diag = (f8_diag){0};
    add_model(&p->set[1], "theirs", 1);
    ck_assert_int_eq(compare(p, NULL, &diag), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "no problem is in both: the first has none that was timed; the "
                                "second has 1, as theirs with a cold cache");
    ck_assert_int_eq(compare(p, &(f8_measure_options){.draws = 1}, NULL), F8_ERR_INPUT);
    end(p);
}
END_TEST

/* ---- marks ---- */

/* Compare `others` problems without a difference, one that is slower by `slow`, and one that is
 * slower by far, and say whether that was marked. *p: its probability. */
static bool is_marked(int others, double slow, double *probability)
{
    pair *p = begin();
    for (int side = 0; side < 2; side++) {
        add_model(&p->set[side], "slow", side ? slow : 1);
        add_model(&p->set[side], "far", side ? 2 : 1);
        for (int i = 0; i < others; i++)
            add_model(&p->set[side], (const char[]){(char)('a' + i), 0}, 1);
        test_add(&p->set[side], test_way("one process", "cold", "model", F8_MEASURE_MODEL), "1",
                 &slow, 1);
    }
    ck_assert_int_eq(compare(p, NULL, NULL), F8_OK);
    const f8_measure_diff *d = &p->diff;
    const bool marked = d->change[0].marked;
    *probability = d->change[0].ratio.p;
    ck_assert(d->change[1].marked);
    for (size_t i = 2; i < d->n_changes; i++)
        ck_assert(!d->change[i].marked);
    end(p);
    return marked;
}

/* By Holm a p that is the second of n is compared with 0.05 / (n - 1); one that nobody knows does
 * not count. */
START_TEST(holm)
{
    double slow = 1, p = 1;
    while (p > 0.03) {
        slow += 0.0002;
        is_marked(0, slow, &p);
    }
    ck_assert_msg(p > 0.026, "p is %g", p); /* a step of 0.0002 changes it by less */
    for (int others = 0; others < 6; others++) {
        const bool marked = is_marked(others, slow, &p);
        ck_assert_msg(marked == (p < 0.05 / (others + 1)), "%d others, p %g", others, p);
        ck_assert(marked == (others == 0));
    }
    while (p > 0.05 / 6)
        is_marked(0, slow += 0.0005, &p);
    ck_assert(is_marked(5, slow, &p));
    ck_assert_msg(!is_marked(20, slow, &p), "p is %g", p);
}
END_TEST

/* Where the least p is not marked, no other is: of two that are each below 0.05, but above half of
 * it, none. */
START_TEST(holm_stops)
{
    pair *p = NULL;
    double slow = 1;
    do {
        if (p)
            end(p);
        p = begin();
        slow += 0.0002;
        for (int side = 0; side < 2; side++) {
            add_model(&p->set[side], "first", side ? slow : 1);
            add_model(&p->set[side], "second", side ? slow : 1);
        }
        ck_assert_int_eq(compare(p, NULL, NULL), F8_OK);
    } while (p->diff.change[0].ratio.p > 0.045 || p->diff.change[1].ratio.p > 0.045);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(p->diff.change[i].ratio.p > 0.025, "p is %g", p->diff.change[i].ratio.p);
        ck_assert(!p->diff.change[i].marked);
    }
    end(p);
}
END_TEST

/* ---- the machine ---- */

/* Four processes that saw these limits, but for noise of 1%. */
static void add_limits(f8_measure_set *set, const char *device, double f32, double memory)
{
    static const double noise[] = {1, 1.01, 0.99, 1.005, 0.995, 1, 0.99, 1.01};
    const f8_measure_about about = {.device = device, .program = "fp8c"};
    ck_assert_int_eq(f8_measure_set_about(set, &about, NULL), F8_OK);
    for (int i = 0; i < 4; i++) {
        f8_measure_process p = {.id = (const char[]){(char)('1' + i), 0},
                                .before = {.flops_f32 = f32 * noise[i], .bytes = memory},
                                .after = {.flops_f32 = f32 * noise[i + 4], .bytes = memory}};
        ck_assert_int_eq(f8_measure_add_process(set, &p, NULL), F8_OK);
    }
}

/* A problem 20% slower and one five times slower, on machines with these limits. */
static pair *on_machines(const char *device, double f32, double memory)
{
    pair *p = begin();
    add_limits(&p->set[0], "cpu X", 1e11, 1e10);
    add_limits(&p->set[1], device, f32, memory);
    for (int side = 0; side < 2; side++) {
        add_model(&p->set[side], "a fifth", side ? 1.2 : 1);
        add_model(&p->set[side], "five times", side ? 5 : 1);
        add_model(&p->set[side], "even", 1);
    }
    ck_assert_int_eq(compare(p, NULL, NULL), F8_OK);
    ck_assert(p->diff.change[1].marked && !p->diff.change[2].marked);
    return p;
}

START_TEST(another_state)
{
    pair *p = on_machines("cpu X", 1e11, 1e10);
    const double wide = log(p->diff.change[0].ratio.high / p->diff.change[0].ratio.low);
    ck_assert(p->diff.change[0].marked && !p->diff.drift.limit && p->diff.options.drift == 0);
    end(p);
    p = on_machines("cpu X", 0.75e11, 1e10); /* it did less, */
    ck_assert(!p->diff.change[0].marked);
    ck_assert_str_eq(p->diff.drift.limit, "f32");
    ck_assert_double_eq_tol(p->diff.drift.ratio.ratio, 1 / 0.75, 1e-12);
    ck_assert_double_eq_tol(p->diff.options.drift, log(1 / 0.75), 1e-12);
    /* 1.96 standard deviations to each side, the noise aside. */
    const double wider = log(p->diff.change[0].ratio.high / p->diff.change[0].ratio.low);
    ck_assert(wide < 0.1 && wider > 2 * 1.96 * log(1 / 0.75) && wider < 2 * 2.1 * log(1 / 0.75));
    char *text = f8_measure_diff_table(&p->diff);
    ck_assert(text && strstr(text, "its limit of f32 in B is 0.750 of that in A (0.7"));
    free(text);
    end(p);
    p = on_machines("cpu X", 0.95e11, 1.4e10); /* or more: the larger change counts */
    ck_assert(!p->diff.change[0].marked);
    ck_assert_str_eq(p->diff.drift.limit, "memory");
    ck_assert_double_eq_tol(p->diff.options.drift, log(1.4), 1e-12);
    end(p);
    p = on_machines("cpu X", 1e11, 1.1e10); /* too little for memory */
    ck_assert(p->diff.change[0].marked && !p->diff.drift.limit);
    end(p);
    p = on_machines("cpu X", 1.003e11, 1e10); /* within the noise */
    ck_assert(p->diff.change[0].marked && !p->diff.drift.limit);
    end(p);
    p = on_machines("cpu Y", 0.75e11, 1e10); /* another device is what is compared */
    ck_assert(p->diff.change[0].marked && !p->diff.drift.limit);
    end(p);
    p = on_machines("cpu X", 0, 0); /* nobody measured them */
    ck_assert(p->diff.change[0].marked && !p->diff.drift.limit);
    end(p);
}
END_TEST

/* Compare two sets of n problems, 16 processes each, whose deviation is 0.5%. In B problem i takes
 * `all` times as long, up to a deviation of 1% from problem to problem; and the first `changed`
 * take `more` times as long as that. */
static pair *drifted(int n, double all, int changed, double more)
{
    pair *p = begin();
    uint32_t random = 7;
    for (int i = 0; i < n; i++) {
        char name[16];
        const double own = exp(0.01 * test_normal(&random));
        snprintf(name, sizeof name, "p%d", i);
        for (int side = 0; side < 2; side++)
            for (int k = 0; k < 16; k++) {
                char id[16];
                const double factor = !side ? 1 : all * own * (i < changed ? more : 1),
                             seconds = 1e-3 * factor * exp(0.005 * test_normal(&random));
                snprintf(id, sizeof id, "%d", k);
                test_add(&p->set[side], test_way(name, "cold", "model", F8_MEASURE_MODEL), id,
                         &seconds, 1);
            }
    }
    ck_assert_int_eq(compare(p, NULL, NULL), F8_OK);
    return p;
}

static int count_marked(const pair *p, size_t from, size_t to)
{
    int n = 0;
    for (size_t i = from; i < to; i++)
        n += p->diff.change[i].marked;
    return n;
}

/* A machine that changed a little between the two calls shows in all problems together. Then
 * intervals are wider, but not so wide that real changes hide: not one, not half, not all. */
START_TEST(scatter)
{
    pair *p = drifted(12, 1.02, 0, 1);
    ck_assert_int_eq(count_marked(p, 0, 12), 0);
    ck_assert(p->diff.scatter > 0.01 && p->diff.scatter < 0.03);
    ck_assert_double_eq(p->diff.options.drift, p->diff.scatter);
    char *text = f8_measure_diff_table(&p->diff);
    ck_assert(text && strstr(text, "all intervals allow for "));
    free(text);
    end(p);
    p = drifted(12, 1.02, 1, 1.13);
    ck_assert(p->diff.change[0].marked && !count_marked(p, 1, 12));
    end(p);
    p = drifted(12, 1, 6, 1.25);
    ck_assert_int_eq(count_marked(p, 0, 6), 6);
    ck_assert_int_eq(count_marked(p, 6, 12), 0);
    ck_assert_double_le(p->diff.scatter, 0.03);
    end(p);
    p = drifted(12, 1.15, 0, 1);
    ck_assert_int_eq(count_marked(p, 0, 12), 12);
    end(p);
    p = drifted(5, 1.04, 0, 1); /* too few to know what they have in common */
    ck_assert(p->diff.scatter == 0 && count_marked(p, 0, 5) == 5);
    end(p);
}
END_TEST

START_TEST(slower)
{
    f8_measure_change c = {.ratio = {1.2, 1.1, 1.3, 0.001, 0.05}, .marked = true};
    ck_assert(f8_measure_is_slower(&c, 0) && f8_measure_is_slower(&c, 9.9));
    ck_assert(!f8_measure_is_slower(&c, 10.1) && !f8_measure_is_slower(&c, 20));
    c.marked = false;
    ck_assert(!f8_measure_is_slower(&c, 0));
    c = (f8_measure_change){.ratio = {0.8, 0.7, 0.9, 0.001, 0.05}, .marked = true};
    ck_assert(!f8_measure_is_slower(&c, 0));
    c.ratio = (f8_measure_ratio){2, NAN, NAN, NAN, NAN};
    ck_assert(!f8_measure_is_slower(&c, 0));
}
END_TEST

/* ---- for people ---- */

static pair *example(void)
{
    pair *p = begin();
    for (int side = 0; side < 2; side++) {
        f8_measure_set *set = &p->set[side];
        set->about = (f8_measure_about){.version = "0.1",
                                        .commit = side ? "def" : "abc",
                                        .device = "cpu X, 2 threads",
                                        .threads = 2,
                                        .libraries = side ? "oneDNN 3" : "",
                                        .program = "fp8c"};
        for (int i = 0; i < 4; i++) {
            const char id[] = {(char)('1' + i), 0};
            const f8_measure_process process = {
                .id = id, .date = i ? "2026-02" : "2026-01", .load = side + 0.5 * i, .cpus = 2};
            ck_assert_int_eq(f8_measure_add_process(set, &process, NULL), F8_OK);
        }
        add_model(set, "even", 2e-6);
        add_model(set, "faster", side ? 1e-3 : 2e-3);
        add_model(set, "slower", side ? 4.5e-9 : 3e-9);
        add_about(set, "much slower", "warm", side ? "torch.mm" : "model",
                  side ? F8_MEASURE_PEER : F8_MEASURE_MODEL, side ? 20 : 0.5);
        const double one = 7;
        test_add(set, test_way("single", "cold", "model", F8_MEASURE_MODEL), "1", &one, 1);
        add_model(set, side ? "new" : "old", 1);
    }
    ck_assert_int_eq(compare(p, &(f8_measure_options){.seed = 42}, NULL), F8_OK);
    return p;
}

/* The lines of the table in this order, with anything between. */
static const char *const shown[] = {
    "program    fp8c\n", "version    A: 0.1 (abc)\n           B: 0.1 (def)\n",
    "device     cpu X, 2 threads\n", "threads    2\n",
    "libraries  A: not known\n           B: oneDNN 3\n",
    "date       2026-01 to 2026-02, 4 processes\n",
    "load       A: 0.00 to 1.50, with 2 CPUs\n           B: 1.00 to 2.50, with 2 CPUs\n",
    "warning    B: the load was above the CPUs",
    "\n\nproblem      cache    A median    B median      B/A  95% interval\n",
    "\nmuch slower  warm     501.2 ms     20.05 s   40.000  ",
    "  slower  (A: model; B: torch.mm)\n",
    "\nslower       cold     3.007 ns    4.511 ns    1.500  ", "  slower\n",
    "\nfaster       cold     2.005 ms    1.002 ms    0.500  ", "  faster\n",
    "\neven         cold     2.005 us    2.005 us    1.000  ",
    "\nsingle       cold      7.000 s     7.000 s    1.000  one process: no interval\n",
    "\nin A alone:\n  old  cold  1.002 s  model\n", "\nin B alone:\n  new  cold  1.002 s  model\n",
    /* (40 * 1.5 * 0.5 * 1 * 1) ^ (1/5) */
    "\n5 problems in both, geometric mean of B/A 1.974; 3 marked: p < 0.05 after Holm's ",
    "2000 draws, seed 42\n", "1 without an interval"};

START_TEST(table)
{
    pair *p = example();
    char *text = f8_measure_diff_table(&p->diff);
    const char *at = text;
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const char *next = strstr(at, shown[i]);
        ck_assert_msg(next != NULL, "%s\nlacks '%s' behind '%.20s'", text, shown[i], at);
        at = next + strlen(shown[i]) - 1;
    }
    ck_assert_ptr_null(strstr(text, " \n")); /* no line ends with spaces */
    ck_assert_ptr_null(strstr(text, "driver"));
    ck_assert_ptr_null(strstr(text, "warning    A"));
    free(text);
    end(p);
}
END_TEST

START_TEST(records)
{
    pair *p = example();
    char *text = f8_record_lines(f8_measure_diff_records(&p->diff));
    static const char *const parts[] = {
        "{\"event\":\"change\",\"problem\":\"even\",\"cache\":\"cold\",\"candidate_a\":\"model\","
        "\"candidate_b\":\"model\",\"median_a\":2.0049999999999999e-6,",
        "\"runs_a\":4,\"runs_b\":4,\"processes_a\":4,\"processes_b\":4,\"ratio\":1.0,\"low\":0.9",
        "\"p\":1.0,\"marked\":false}\n",
        "\"ratio\":1.0,\"low\":null,\"high\":null,\"p\":null,\"marked\":false}\n",
        "{\"event\":\"only\",\"in\":\"a\",\"problem\":\"old\",\"cache\":\"cold\",",
        "{\"event\":\"only\",\"in\":\"b\",\"problem\":\"new\",\"cache\":\"cold\",",
        "{\"event\":\"diff\",\"changes\":5,\"marked\":3,\"mean\":1.97",
        "\"seed\":42,\"draws\":2000,\"level\":0.94999999999999996,\"drift\":0.0,"
        "\"drift_of\":\"\",\"scatter\":0.0,\"a\":{\"version\":\"0.1\","
        "\"commit\":\"abc\",",
        "\"loaded\":false},\"b\":{\"version\":\"0.1\",\"commit\":\"def\","};
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(text, parts[i]) != NULL, "%s\nlacks %s", text, parts[i]);
    free(text);
    end(p);
}
END_TEST

/* Odd sets have a table, too. */
START_TEST(odd_tables)
{
    static const double odd[] = {0, 1e30, 5e-324, 1e300, 1};
    for (int i = 0; i < 25; i++) {
        pair *p = begin();
        char name[300];
        memset(name, 'x', sizeof name - 1);
        name[sizeof name - 1] = 0;
        for (int side = 0; side < 2; side++) {
            const double each[] = {side ? odd[i / 5] : odd[i % 5], 1};
            test_add_each(&p->set[side],
                          test_way(i % 2 ? name : "", "cold", "model", F8_MEASURE_MODEL), each,
                          1 + (size_t)(i / 2 % 2));
        }
        ck_assert_int_eq(compare(p, NULL, NULL), F8_OK);
        char *text = f8_measure_diff_table(&p->diff);
        json_t *all = f8_measure_diff_records(&p->diff);
        ck_assert(text && strstr(text, "B/A") && strstr(text, "seed 0"));
        ck_assert_uint_eq(json_array_size(all), 2);
        json_decref(all);
        free(text);
        end(p);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("diff");
    TCase *t = tcase_create("sets");
    tcase_add_test(t, picks);
    tcase_add_test(t, nothing_in_common);
    tcase_add_test(t, holm);
    tcase_add_test(t, holm_stops);
    tcase_add_test(t, another_state);
    tcase_add_test(t, scatter);
    tcase_add_test(t, slower);
    tcase_add_test(t, table);
    tcase_add_test(t, records);
    tcase_add_test(t, odd_tables);
    suite_add_tcase(s, t);
    return s;
}
