/* The alarms of a replay: a guard runs over it as it ran over the run. See search.h. */
#include "frontend/diagnose/triage/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/figures.h"
#include "frontend/diagnose/guard/guard.h"
#include "frontend/diagnose/guard/judge.h"

/* ---- the guard ---- */

static bool is_of(const f8_triage_search *t, fp8c_alarm_kind kind)
{
    return !strcmp(t->alarm.kind, fp8c_name(FP8C_NAME_ALARM, kind));
}

bool f8_triage_is_scale(const f8_triage_search *t)
{
    return is_of(t, FP8C_ALARM_SCALE);
}

/* The figure whose value raised the alarm. -1: it is of another kind, or judged the median of
 * looks.
 */
static int figure_of(const f8_triage_search *t)
{
    for (int i = 0; i < F8_FIGURES; i++)
        if (f8_figures[i].alarm >= 0 && f8_figures[i].alarm != FP8C_ALARM_RANGE &&
            is_of(t, (fp8c_alarm_kind)f8_figures[i].alarm))
            return i;
    return -1;
}

bool f8_triage_has_value(const f8_triage_search *t)
{
    return f8_triage_is_scale(t) || figure_of(t) >= 0;
}

const char *f8_triage_stats(const f8_triage_search *t)
{
    return figure_of(t) >= 0 ? t->stats : NULL;
}

void f8_triage_guard_end(f8_triage_search *t)
{
    fp8c_guard_destroy(t->guard);
    t->guard = NULL;
}

bool f8_triage_guard_begin(f8_triage_search *t, const f8_replay *r)
{
    f8_triage_guard_end(t);
    t->far = 0;
    return f8_train_ok(t->t, r->ctx, fp8c_guard_create(r->ctx, NULL, &t->guard)) &&
           f8_train_ok(t->t, r->ctx, f8_guard_prime_scales(t->guard, r->program, r->at));
}

/* ---- the stored alarm ---- */

/* The scale of an operand of `delayed`. false: the program has none. */
static bool scale_of(const f8_replay *r, const char *operand, double *out)
{
    const int variable = fp8c_program_find_variable(r->program, "fp8.scale");
    fp8c_variable v;
    int64_t i = 0;
    const char *name = NULL;
    if (variable < 0 || fp8c_program_variable(r->program, variable, &v) != FP8C_OK)
        return false;
    while ((name = fp8c_program_element(r->program, variable, i, 0)) && strcmp(name, operand) != 0)
        i++;
    float *all = name ? malloc((size_t)fp8c_type_bytes(&v.type)) : NULL;
    const bool ok = all && fp8c_program_read(r->program, variable, all) == FP8C_OK;
    if (ok)
        *out = (double)all[i];
    free(all);
    return ok;
}

/* The number that raised the stored alarm, as it is after the last step of the replay. false: it
 * has none. */
static bool value_now(const f8_triage_search *t, const f8_replay *r, double *out)
{
    fp8c_statistic s = {.struct_size = sizeof s};
    if (f8_triage_is_scale(t))
        return scale_of(r, t->alarm.tensor, out);
    for (int i = 0;
         f8_triage_stats(t) && fp8c_program_statistic(r->program, r->function, i, &s) == FP8C_OK;
         i++)
        if (!strcmp(s.name, t->alarm.tensor)) {
            *out = f8_figure_of(&s, figure_of(t));
            return true;
        }
    return false;
}

static bool is_same(double a, double b)
{
    return a == b || (!isfinite(a) && !isfinite(b));
}

bool f8_triage_alarm_recurs(f8_triage_search *t, const f8_replay *r)
{
    f8_triage *f = &t->found;
    double now;
    if (!value_now(t, r, &now) || is_same(now, t->alarm.value))
        return true; /* of a loss the bits say it */
    f->differs_in = f8_triage_is_scale(t)                   ? "scale"
                    : is_of(t, FP8C_ALARM_TENSOR_NONFINITE) ? "count of NaN and Inf"
                                                            : "share of bad elements";
    f8_triage_copy_text(f->differs_of, sizeof f->differs_of, t->alarm.tensor);
    return false;
}

bool f8_triage_returns(const f8_triage_search *t)
{
    return f8_triage_is_scale(t) && t->alarm.value > t->alarm.limit;
}

/* Whether the number that raised the alarm is still where the run's guard would raise it. Of a
 * scale that came back: whether it is where it came back from. A share counts from half the limit
 * on, as chance alone moves it across. */
static bool stands(const f8_triage_search *t, const f8_replay *r)
{
    const double limit = t->alarm.limit;
    double now;
    if (!value_now(t, r, &now))
        return false;
    if (!f8_triage_is_scale(t))
        return now > limit / 2;
    if (!isfinite(limit)) /* it was zero, or not finite */
        return !(now > 0 && isfinite(now));
    return now < limit;
}

/* ---- a step ---- */

/* Whether a loss explodes beside those of the run: the replay's own guard may have learned far ones
 * of the replay, so its alarms of a loss do not count. Where the run had many far losses, and none
 * so far that it raised the alarm at once, one far loss is bad: what leaves any has healed nothing.
 */
static bool explodes(f8_triage_search *t, const f8_replayed *out)
{
    bool at_once;
    int n = 0;
    t->far = (t->far << 1 | f8_triage_is_far(t, out, &at_once)) & ((1u << F8_LOSS_LAST) - 1);
    for (int i = 0; i < F8_LOSS_LAST; i++)
        n += t->far >> i & 1;
    const bool by_count =
        is_of(t, FP8C_ALARM_LOSS_EXPLODES) && t->alarm.raised > t->found.step && *t->found.alarm;
    const bool together = t->far & 1 && n >= (by_count ? 1 : F8_LOSS_FAR);
    t->far_ago = at_once || !together ? 0 : F8_LOSS_LAST - 1;
    while (!(t->far >> t->far_ago & 1) && t->far_ago)
        t->far_ago--;
    return at_once || together;
}

bool f8_triage_guard_step(f8_triage_search *t, const f8_replay *r, const f8_replayed *out,
                          bool *bad)
{
    const fp8c_guard_facts facts = {.struct_size = sizeof facts,
                                    .step = r->at,
                                    .loss = out->loss,
                                    .grad_norm = out->grad_norm,
                                    .program = r->program,
                                    .function = r->function};
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    bool raised = false;
    if (!f8_train_ok(t->t, r->ctx, fp8c_guard_step(t->guard, &facts)))
        return false;
    for (int i = 0; fp8c_guard_alarm(t->guard, i, &alarm) == FP8C_OK; i++)
        raised |= alarm.kind >= FP8C_ALARM_SCALE &&
                  f8_alarm_is_bad(fp8c_name(FP8C_NAME_ALARM, alarm.kind));
    *bad = explodes(t, out) ||
           (r->at >= t->found.step && f8_triage_any_rank(t, raised || stands(t, r)));
    return true;
}
