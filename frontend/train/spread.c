/* Runs of several seeds beside each other: see spread.h. */
#include "frontend/train/spread.h"

#include <math.h>

#include "frontend/records/records.h"

typedef double quantity(const f8_train_result *run, const f8_train_result *base);

static double final_loss(const f8_train_result *run, const f8_train_result *base)
{
    (void)base;
    return run->final_loss;
}

static double heldout_loss(const f8_train_result *run, const f8_train_result *base)
{
    (void)base;
    return run->heldout_loss;
}

static double rate(const f8_train_result *run, const f8_train_result *base)
{
    (void)base;
    return run->items_per_second;
}

static double gap(const f8_train_result *run, const f8_train_result *base)
{
    return run->final_loss / base->final_loss - 1;
}

static f8_spread spread_of(quantity *of, const f8_train_result *runs, const f8_train_result *base,
                           int64_t n)
{
    f8_spread s = {0, 0};
    for (int64_t i = 0; i < n; i++)
        s.mean += of(&runs[i], &base[i]) / (double)n;
    for (int64_t i = 0; i < n && n > 1; i++) {
        const double off = of(&runs[i], &base[i]) - s.mean;
        s.deviation += off * off / (double)(n - 1);
    }
    s.deviation = sqrt(s.deviation);
    return isnan(s.mean) ? (f8_spread){NAN, NAN} : s; /* printf would write a NaN with its sign */
}

f8_spreads f8_spreads_of(const f8_train_result *runs, const f8_train_result *base, int64_t seeds)
{
    f8_spreads s = {.final_loss = spread_of(final_loss, runs, base, seeds),
                    .heldout_loss = spread_of(heldout_loss, runs, base, seeds),
                    .items_per_second = spread_of(rate, runs, base, seeds),
                    .gap = spread_of(gap, runs, base, seeds)};
    s.inside = seeds > 1 && runs != base && fabs(s.gap.mean) <= s.gap.deviation;
    return s;
}

json_t *f8_spreads_record(const f8_spreads *s, const f8_train_result *runs, int64_t seeds,
                          bool is_base)
{
    json_t *record = json_pack("{ss ss sI sI so so so so}", "event", "spread", "recipe",
                               runs->recipe, "seed", (json_int_t)runs->seed, "seeds",
                               (json_int_t)seeds, "final_loss", f8_json_number(s->final_loss.mean),
                               "final_loss_deviation", f8_json_number(s->final_loss.deviation),
                               "heldout_loss", f8_json_number(s->heldout_loss.mean),
                               "heldout_loss_deviation", f8_json_number(s->heldout_loss.deviation));
    if (record && !is_base)
        json_object_update_new(record, json_pack("{so so sb}", "gap", f8_json_number(s->gap.mean),
                                                 "gap_deviation", f8_json_number(s->gap.deviation),
                                                 "gap_inside_spread", (int)s->inside));
    return record;
}
