/* The alarms of a replay: a guard runs over it as it ran over the run. See cmd_triage.h. */
#include "frontend/cli/cmd_triage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/guard/guard.h"

/* ---- the guard ---- */

static bool is_of(const cli_triage *t, fp8c_alarm_kind kind)
{
    return !strcmp(t->alarm.kind, fp8c_alarm_name(kind));
}

bool cli_triage_is_scale(const cli_triage *t)
{
    return is_of(t, FP8C_ALARM_SCALE);
}

const char *cli_triage_stats(const cli_triage *t)
{
    const bool needed = is_of(t, FP8C_ALARM_TENSOR_NONFINITE) ||
                        is_of(t, FP8C_ALARM_UNDERFLOW) || is_of(t, FP8C_ALARM_OVERFLOW);
    return needed ? t->stats : NULL;
}

void cli_triage_guard_end(cli_triage *t)
{
    fp8c_guard_destroy(t->guard);
    t->guard = NULL;
}

bool cli_triage_guard_begin(cli_triage *t, const cli_replay *r)
{
    cli_triage_guard_end(t);
    return (fp8c_guard_create(r->ctx, NULL, &t->guard) == FP8C_OK &&
            f8_guard_prime_scales(t->guard, r->program, r->at) == FP8C_OK) ||
           cli_fail(r->ctx) == CLI_DONE;
}

/* ---- the stored alarm ---- */

/* The scale of an operand of `delayed`. false: the program has none. */
static bool scale_of(const cli_replay *r, const char *operand, double *out)
{
    const int variable = fp8c_program_find_variable(r->program, "fp8.scale");
    fp8c_variable v;
    int64_t i = 0;
    const char *name = NULL;
    if (variable < 0 || fp8c_program_variable(r->program, variable, &v) != FP8C_OK)
        return false;
    while ((name = fp8c_program_element(r->program, variable, i)) && strcmp(name, operand) != 0)
        i++;
    float *all = name ? malloc((size_t)fp8c_type_bytes(&v.type)) : NULL;
    const bool ok = all && fp8c_program_read(r->program, variable, all) == FP8C_OK;
    if (ok)
        *out = (double)all[i];
    free(all);
    return ok;
}

/* What the alarm's value is of in a statistic. */
static double share_of(const cli_triage *t, const fp8c_statistic *s)
{
    return is_of(t, FP8C_ALARM_UNDERFLOW)  ? s->underflow
           : is_of(t, FP8C_ALARM_OVERFLOW) ? s->overflow
                                           : (double)s->nonfinite;
}

/* The number that raised the stored alarm, as it is after the last step of the replay. false: it
 * has none. */
static bool value_now(const cli_triage *t, const cli_replay *r, double *out)
{
    fp8c_statistic s = {.struct_size = sizeof s};
    if (cli_triage_is_scale(t))
        return scale_of(r, t->alarm.tensor, out);
    for (int i = 0; cli_triage_stats(t) &&
                    fp8c_program_statistic(r->program, r->function, i, &s) == FP8C_OK;
         i++)
        if (!strcmp(s.name, t->alarm.tensor)) {
            *out = share_of(t, &s);
            return true;
        }
    return false;
}

static bool is_same(double a, double b)
{
    return a == b || (!isfinite(a) && !isfinite(b));
}

bool cli_triage_alarm_recurs(cli_triage *t, const cli_replay *r)
{
    f8_triage *f = &t->found;
    double now;
    if (!value_now(t, r, &now) || is_same(now, t->alarm.value))
        return true; /* of a loss the bits say it */
    f->differs_in = cli_triage_is_scale(t)              ? "scale"
                    : is_of(t, FP8C_ALARM_TENSOR_NONFINITE) ? "count of NaN and Inf"
                                                            : "share of bad elements";
    cli_triage_copy_text(f->differs_of, sizeof f->differs_of, t->alarm.tensor);
    return false;
}

/* Whether the scale that raised the alarm is still where the run's guard would raise it. */
static bool stands(const cli_triage *t, const cli_replay *r)
{
    const double limit = t->alarm.limit;
    double now;
    if (!cli_triage_is_scale(t) || !scale_of(r, t->alarm.tensor, &now))
        return false;
    if (!isfinite(limit)) /* it was zero, or not finite */
        return !(now > 0 && isfinite(now));
    return t->alarm.value < limit ? now < limit : now > limit;
}

/* ---- a step ---- */

/* The loss is judged beside those of the run: a replay must not teach the guard its own. So alarms
 * of a loss do not count here. */
bool cli_triage_guard_step(cli_triage *t, const cli_replay *r, const cli_replayed *out, bool *bad)
{
    const fp8c_guard_facts facts = {.struct_size = sizeof facts,
                                    .step = r->at,
                                    .loss = out->loss,
                                    .grad_norm = out->grad_norm,
                                    .program = r->program,
                                    .function = r->function};
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    bool raised = false;
    if (fp8c_guard_step(t->guard, &facts) != FP8C_OK)
        return cli_fail(r->ctx) == CLI_DONE;
    for (int i = 0; fp8c_guard_alarm(t->guard, i, &alarm) == FP8C_OK; i++)
        raised |= alarm.kind >= FP8C_ALARM_SCALE;
    *bad = cli_triage_is_bad(t, out) ||
           (r->at >= t->found.step && cli_triage_any_rank(t, raised || stands(t, r)));
    return true;
}
