/* Where the search starts: see start.h. */
#include "passes/remat/start.h"

#include "passes/remat/cut.h"

#include <math.h>

uint32_t f8_remat_moment(f8_remat_timeline *t)
{
    uint32_t top = 0;
    f8_remat_load(t, t->steps, t->p->n_steps);
    for (uint32_t at = 0; at < t->p->n_steps; at++)
        if (t->live[at] > t->live[top])
            top = at;
    return top;
}

void f8_remat_finish(f8_remat_timeline *t, uint64_t work, f8_remat_best *best)
{
    t->limit = t->work + work;
    f8_remat_repair(t);
    f8_remat_trim(t);
    f8_remat_keep(t, best);
}

/* ---- minimum cuts ---- */

typedef struct price_search {
    f8_remat_cut cut;
    double room;      /* bytes that the budget allows to keep across the moment */
    double low, high; /* prices: at `low` more than the wanted bytes are kept, at `high` no more */
    double bound;     /* seconds that every plan takes at least */
} price_search;

enum { STEPS_OUT = 40, STEPS_IN = 8 };

/* Whatever the price, the cost of the cheapest choice less the price of the bytes that may be kept
 * is a lower bound (Lagrange's). */
static void solve(price_search *s, double price)
{
    f8_remat_cut_solve(&s->cut, price);
    const double bound = s->cut.seconds + price * (s->cut.bytes - s->room);
    s->bound = bound > s->bound ? bound : s->bound;
}

/* Prices around the one at which `bytes` are kept. */
static void find_price(price_search *s, double bytes)
{
    const f8_remat_problem *p = s->cut.t->p;
    double seconds = 0, sum = 0;
    for (uint32_t v = 0; v < p->n_values; v++) {
        seconds += p->value[v].seconds > 0 ? p->value[v].seconds : 0;
        sum += (double)p->value[v].bytes;
    }
    s->low = s->high = sum > 0 ? seconds / sum : 0;
    solve(s, s->low);
    const bool more = s->cut.bytes > bytes;
    for (int i = 0; i < STEPS_OUT && (s->cut.bytes > bytes) == more; i++) {
        *(more ? &s->high : &s->low) *= more ? 4 : 0.25;
        solve(s, more ? s->high : s->low);
        if ((s->cut.bytes > bytes) == more)
            s->low = s->high = more ? s->high : s->low;
    }
    for (int i = 0; i < STEPS_IN; i++) {
        const double middle = sqrt(s->low * s->high);
        solve(s, middle);
        *(s->cut.bytes > bytes ? &s->low : &s->high) = middle;
    }
}

/* Starts at the cut that was solved last. Gives the bytes by which its own plan exceeds the budget.
 */
static double from_cut(price_search *s, uint64_t work, f8_remat_best *best)
{
    f8_remat_timeline *t = s->cut.t;
    f8_remat_load(t, t->steps, t->p->n_steps);
    f8_remat_cut_apply(&s->cut);
    int64_t peak = 0;
    for (uint32_t at = 0; at < t->n; at++)
        peak = t->live[at] > peak ? t->live[at] : peak;
    f8_remat_finish(t, work, best);
    return (double)peak - (double)t->budget;
}

static bool is_near(const price_search *s, const f8_remat_best *best)
{
    return best->excess == 0 && best->seconds <= 1.01 * s->bound;
}

/* Bytes kept, by the two cuts around the wanted bytes; what their plans exceed the budget by. */
typedef struct price_pair {
    double kept, over, over_above;
} price_pair;

/* Starts at the cuts on both sides of `wanted`. False: there is no more to look for, because no
 * price keeps so few bytes, or a plan fits. */
static bool from_pair(price_search *s, double wanted, const f8_remat_limits *limits,
                      price_pair *pair, f8_remat_best *best)
{
    const f8_remat_timeline *t = s->cut.t;
    const double before = pair->kept;
    find_price(s, wanted);
    solve(s, s->high);
    if (s->cut.bytes > wanted && t->work >= limits->little)
        return false;
    pair->kept = s->cut.bytes;
    pair->over = from_cut(s, limits->start, best);
    if (is_near(s, best) || (best->excess == 0 && t->work >= limits->enough) ||
        (pair->over <= 0 && t->work >= limits->little))
        return false;
    solve(s, s->low);
    if (s->cut.bytes != before) /* else it was the last pair's */
        pair->over_above = from_cut(s, limits->start, best);
    return pair->over > 0 && !is_near(s, best) &&
           (best->excess > 0 || t->work < limits->enough);
}

bool f8_remat_from_prices(f8_remat_timeline *t, const f8_remat_limits *limits, f8_remat_best *best)
{
    enum { PAIRS = 3 };
    const uint32_t top = f8_remat_moment(t);
    price_search s = {.bound = 0};
    price_pair pair = {.kept = INFINITY};
    if (!f8_remat_cut_make(t, top, &s.cut)) {
        t->failed = true;
        return false;
    }
    f8_remat_cut_solve(&s.cut, 0);
    s.room = s.cut.bytes - ((double)t->live[top] - (double)t->budget);
    double wanted = s.room;
    for (int i = 0; i < PAIRS && !t->failed; i++) {
        if (!from_pair(&s, wanted, limits, &pair, best))
            break;
        /* Where the cut that keeps less needs more memory, what is recomputed takes it. */
        if (pair.over > pair.over_above && t->work >= limits->little)
            break;
        wanted = pair.kept - pair.over;
    }
    return is_near(&s, best);
}
