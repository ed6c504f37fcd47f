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
    double all;       /* bytes at price 0 */
    double low, high; /* prices: at `low` more than the wanted bytes are kept, at `high` no more */
} price_search;

enum { STEPS_OUT = 40, STEPS_IN = 8 };

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
    f8_remat_cut_solve(&s->cut, s->low);
    const bool more = s->cut.bytes > bytes;
    for (int i = 0; i < STEPS_OUT && (s->cut.bytes > bytes) == more; i++) {
        *(more ? &s->high : &s->low) *= more ? 4 : 0.25;
        f8_remat_cut_solve(&s->cut, more ? s->high : s->low);
        if ((s->cut.bytes > bytes) == more)
            s->low = s->high = more ? s->high : s->low;
    }
    for (int i = 0; i < STEPS_IN; i++) {
        const double middle = sqrt(s->low * s->high);
        f8_remat_cut_solve(&s->cut, middle);
        *(s->cut.bytes > bytes ? &s->low : &s->high) = middle;
    }
}

static void from_price(price_search *s, double price, uint64_t work, f8_remat_best *best,
                       double *over)
{
    f8_remat_timeline *t = s->cut.t;
    f8_remat_cut_solve(&s->cut, price);
    f8_remat_load(t, s->cut.t->steps, t->p->n_steps);
    f8_remat_cut_apply(&s->cut);
    int64_t peak = 0;
    for (uint32_t at = 0; at < t->n; at++)
        peak = t->live[at] > peak ? t->live[at] : peak;
    *over = (double)peak - (double)t->budget;
    f8_remat_finish(t, work, best);
}

void f8_remat_from_prices(f8_remat_timeline *t, uint64_t work, f8_remat_best *best)
{
    const uint32_t n_steps = t->p->n_steps, top = f8_remat_moment(t);
    price_search s;
    if (!f8_remat_cut_make(t, top, &s.cut)) {
        t->failed = true;
        return;
    }
    f8_remat_cut_solve(&s.cut, 0);
    double wanted = s.cut.bytes - ((double)t->live[top] - (double)t->budget), over;
    for (int i = 0; i < 3 && !t->failed; i++) {
        f8_remat_load(t, t->steps, n_steps);
        find_price(&s, wanted);
        from_price(&s, s.low, work, best, &over);
        from_price(&s, s.high, work, best, &over);
        if (over <= 0)
            break;
        wanted -= over;
    }
}
