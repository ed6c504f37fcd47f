/* The planner's timeline: what an insertion or a removal is said to do, and its work, against doing
 * it and taking it back; the excess against its definition. */
#include "passes/remat/timeline.h"
#include "tests/shared/remat/remat_graphs.h"
#include "tests/shared/suite.h"

static f8_arena arena;

static void set_up(void)
{
    f8_arena_init(&arena, NULL);
}

static void tear_down(void)
{
    f8_arena_end(&arena);
}

/* Every sum anew. */
static double excess_of_all(const f8_remat_timeline *t)
{
    double sum = 0;
    int64_t most = 0;
    for (uint32_t at = 0; at < t->n; at++) {
        most = t->live[at] > most ? t->live[at] : most;
        if (f8_remat_is_recompute(t, t->order[at]))
            continue;
        sum += most > t->budget ? (double)(most - t->budget) : 0;
        most = 0;
    }
    return sum;
}

static bool may_insert(const f8_remat_timeline *t, uint32_t v, uint32_t position)
{
    return t->ready[v] <= t->p->n_steps && position > t->position[t->ready[v] - 1];
}

static void try_insert(f8_remat_timeline *t, uint32_t value, uint32_t position, bool keep)
{
    const double before = f8_remat_excess(t);
    const uint64_t work = t->work;
    const f8_remat_effect said = f8_remat_effect_of_insert(t, value, position);
    ck_assert_uint_eq(t->work, work);
    ck_assert(f8_remat_excess(t) == before);
    const uint32_t id = f8_remat_insert(t, value, position);
    ck_assert(!t->failed);
    ck_assert_msg(f8_remat_excess(t) == said.excess, "%.0f, said %.0f", f8_remat_excess(t),
                  said.excess);
    ck_assert(excess_of_all(t) == said.excess);
    if (keep)
        return;
    f8_remat_remove(t, id);
    ck_assert(f8_remat_excess(t) == before);
    ck_assert_uint_eq(t->work - work, said.work);
}

static void try_remove(f8_remat_timeline *t, uint32_t id, bool keep)
{
    const double before = f8_remat_excess(t);
    const uint64_t work = t->work;
    const uint32_t value = t->what[id], position = t->position[id];
    const f8_remat_effect said = f8_remat_effect_of_remove(t, id);
    ck_assert(f8_remat_excess(t) == before);
    f8_remat_remove(t, id);
    ck_assert_msg(f8_remat_excess(t) == said.excess, "%.0f, said %.0f", f8_remat_excess(t),
                  said.excess);
    ck_assert(excess_of_all(t) == said.excess);
    if (!keep)
        return;
    f8_remat_insert(t, value, position);
    ck_assert(f8_remat_excess(t) == before);
    ck_assert_uint_eq(t->work - work, said.work);
}

/* Changes at random; every other one is taken back. */
static void change(remat_graph *g, int64_t budget_quarters, uint32_t *inserted, uint32_t *removed)
{
    enum { CHANGES = 400 };
    f8_remat_timeline t;
    f8_diag diag = {0};
    int64_t peak = 0;
    ck_assert_int_eq(f8_remat_timeline_make(&g->p, 0, &arena, &diag, &t), F8_OK);
    for (uint32_t at = 0; at < t.n; at++)
        peak = t.live[at] > peak ? t.live[at] : peak;
    t.budget = peak * budget_quarters / 4;
    f8_remat_load(&t, t.steps, g->p.n_steps);
    for (int i = 0; i < CHANGES; i++) {
        const uint32_t at = 1 + remat_draw(g, t.n - 1), id = t.order[at];
        const uint32_t v = remat_draw(g, g->p.n_values);
        const bool keep = remat_draw(g, 2);
        if (f8_remat_is_recompute(&t, id) && remat_draw(g, 4)) {
            try_remove(&t, id, keep);
            ++*removed;
        } else if (may_insert(&t, v, at)) {
            try_insert(&t, v, at, keep);
            ++*inserted;
        }
    }
}

/* Budgets from nothing to the peak. */
START_TEST(effects_are_what_happens)
{
    enum { GRAPHS = 60, LAYERS = 4, LEAST = 1000 };
    uint32_t inserted = 0, removed = 0;
    for (int i = 0; i < GRAPHS; i++) {
        remat_graph g;
        tear_down();
        set_up();
        if (i % 3 < 2)
            remat_random(&g, &arena, (uint64_t)i + 1);
        else
            remat_transformer(&g, &arena, LAYERS);
        change(&g, i % 5, &inserted, &removed);
    }
    ck_assert_uint_ge(inserted, LEAST);
    ck_assert_uint_ge(removed, LEAST);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("remat_timeline");
    TCase *tc = tcase_create("remat_timeline");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, effects_are_what_happens);
    suite_add_tcase(suite, tc);
    return suite;
}
