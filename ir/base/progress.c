/* Progress and cancellation: see progress.h. */
#include "ir/base/progress.h"

#include "ir/base/clock.h"

static const double PACE = 0.1; /* seconds between two calls within an item */

f8_progress_phase f8_progress_begin(const f8_progress *to, const char *name, int64_t total)
{
    const double now = f8_seconds_now();
    return (f8_progress_phase){
        .to = to, .name = name, .total = total, .start = now, .item = "", .asked = now};
}

f8_status f8_progress_at(f8_progress_phase *p, int64_t done, const char *item, f8_diag *diag)
{
    if (!p->to || !p->to->fn)
        return F8_OK;
    p->done = done;
    p->item = item;
    p->asked = f8_seconds_now();
    const double elapsed = p->asked - p->start;
    const double left = done > 0 ? elapsed / (double)done * (double)(p->total - done) : -1;
    const f8_progress_state state = {p->name, item, done, p->total, left};
    if (!p->to->fn(p->to->user, &state))
        return F8_OK;
    return f8_fail(diag, F8_ERR_CANCELLED, F8_NOWHERE,
                   "cancelled by the progress callback: %s, %lld of %lld done", p->name,
                   (long long)done, (long long)p->total);
}

f8_status f8_progress_within(f8_progress_phase *p, f8_diag *diag)
{
    if (!p || !p->to || !p->to->fn || f8_seconds_now() - p->asked < PACE)
        return F8_OK;
    return f8_progress_at(p, p->done, p->item, diag);
}
