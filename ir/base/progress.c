/* Progress and cancellation: see progress.h. */
#include "ir/base/progress.h"

#include "ir/base/clock.h"

f8_progress_phase f8_progress_begin(const f8_progress *to, const char *name, int64_t total)
{
    return (f8_progress_phase){to, name, total, f8_seconds_now()};
}

f8_status f8_progress_at(const f8_progress_phase *p, int64_t done, const char *item, f8_diag *diag)
{
    if (!p->to || !p->to->fn)
        return F8_OK;
    const double elapsed = f8_seconds_now() - p->start;
    const double left = done > 0 ? elapsed / (double)done * (double)(p->total - done) : -1;
    const f8_progress_state state = {p->name, item, done, p->total, left};
    if (!p->to->fn(p->to->user, &state))
        return F8_OK;
    return f8_fail(diag, F8_ERR_CANCELLED, F8_NOWHERE,
                   "cancelled by the progress callback: %s, %lld of %lld done", p->name,
                   (long long)done, (long long)p->total);
}
