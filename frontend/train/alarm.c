/* What a training does with a guard: see alarm.h. */
#include "frontend/train/alarm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/guard/guard.h"
#include "frontend/records/records.h"
#include "frontend/run/number.h"
#include "ir/base/type.h"

static const char *const modes[] = {"off", "warn", "stop", "triage"};
enum { MODES = sizeof modes / sizeof *modes };

/* ---- beginning and ending ---- */

/* -1: there is no such mode. */
static int mode_of(const char *text)
{
    for (int i = 0; i < MODES; i++)
        if (!strcmp(text, modes[i]))
            return i;
    return -1;
}

f8_status f8_alarms_check(const f8_train_options *o, f8_diag *diag)
{
    const int mode = o->guard ? mode_of(o->guard) : F8_GUARD_WARN;
    if (mode < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "--guard %s: off, warn, stop or triage was expected", o->guard);
    if (mode == F8_GUARD_TRIAGE && !o->run && !o->resume)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "--guard triage needs --run DIR: a triage replays the run from a checkpoint "
                       "of its folder");
    return F8_OK;
}

const char *f8_alarms_mode(const f8_alarms *a)
{
    return modes[a->mode];
}

bool f8_alarms_begin(f8_alarms *a, f8_train *t, fp8c_context *ctx, fp8c_program *program)
{
    const char *mode = t->options->guard;
    *a = (f8_alarms){.t = t,
                     .ctx = ctx,
                     .program = program,
                     .mode = mode ? (f8_guard_mode)mode_of(mode) : F8_GUARD_WARN};
    return a->mode == F8_GUARD_OFF || f8_train_ok(t, ctx, fp8c_guard_create(ctx, NULL, &a->guard));
}

void f8_alarms_end(f8_alarms *a)
{
    fp8c_guard_destroy(a->guard);
    a->guard = NULL;
}

void f8_alarms_replay(f8_alarms *a, const json_t *record)
{
    const char *event = json_string_value(json_object_get(record, "event"));
    const json_int_t since = json_integer_value(json_object_get(record, "since"));
    if (!a->guard)
        return;
    const char *kind = json_string_value(json_object_get(record, "kind"));
    if (!strcmp(event, "warning") && f8_alarm_is_bad(kind) && since > 0 && !a->since)
        a->since = since;
    if (strcmp(event, "step"))
        return;
    const fp8c_guard_facts facts = {.struct_size = sizeof facts,
                                    .step = json_integer_value(json_object_get(record, "step")),
                                    .loss = f8_of_hex(record, "loss_hex"),
                                    .grad_norm = f8_of_hex(record, "grad_norm_hex")};
    fp8c_guard_step(a->guard, &facts); /* what it raises was said when it happened */
}

/* ---- what is not finite ---- */

static fp8c_guard_info info_of(const f8_alarms *a)
{
    fp8c_guard_info info = {.struct_size = sizeof info};
    fp8c_guard_report(a->guard, &info);
    return info;
}

static bool raised(const f8_alarms *a, fp8c_alarm_kind kind)
{
    return info_of(a).raised >> kind & 1;
}

static bool find(f8_alarms *a, int function, bool again)
{
    fp8c_found *f = &a->seen.found;
    *f = (fp8c_found){.struct_size = sizeof *f};
    if (!f8_train_ok(a->t, a->ctx, fp8c_program_find_nonfinite(a->program, function, again, f)))
        return false;
    snprintf(a->seen.tensor, sizeof a->seen.tensor, "%s", f->tensor ? f->tensor : "");
    snprintf(a->seen.role, sizeof a->seen.role, "%s", f->tensor ? f->role : "");
    a->seen.rank = a->t->ranks ? a->t->ranks->comm.rank : 0;
    return true;
}

bool f8_alarms_micro_step(f8_alarms *a, int function, double loss)
{
    if (!a->guard || isfinite(loss) || *a->seen.tensor || raised(a, FP8C_ALARM_LOSS_NONFINITE))
        return true;
    return find(a, function, false);
}

/* How near to the cause a role is. */
static int order(const f8_alarm_found *f)
{
    static const char *const roles[] = {"input", "parameter", "state", "scale", "gradient"};
    int i = 0;
    while (i < 5 && strcmp(roles[i], f->role))
        i++;
    return i;
}

/* Makes a->seen that of the rank whose finding is nearest to the cause. */
static bool share(f8_alarms *a)
{
    const int ranks = f8_train_ranks(a->t);
    if (!a->t->ranks)
        return true;
    f8_alarm_found *all = calloc((size_t)ranks, sizeof *all);
    const bool ok = all ? f8_train_gather(a->t, "what is not finite", &a->seen, all, sizeof *all)
                        : f8_train_no_memory(a->t);
    for (int i = ranks - 1; ok && i >= 0; i--)
        if (*all[i].tensor && (!*a->seen.tensor || order(&all[i]) <= order(&a->seen)))
            a->seen = all[i];
    free(all);
    if (ok && a->seen.rank > 0 && !strcmp(a->seen.role, "input"))
        snprintf(a->where, sizeof a->where, ", rank %d", a->seen.rank);
    return ok;
}

/* What rank 0 says: only it has seen the steps from before a run goes on. */
static bool of_rank_0(const f8_alarms *a, bool mine, bool *out)
{
    int32_t said = mine, all[F8_MAX_RANKS];
    const bool ok = f8_train_gather(a->t, "guards", &said, all, sizeof said);
    *out = ok && all[0];
    return ok;
}

bool f8_alarms_want_again(f8_alarms *a, double loss, double norm)
{
    const bool bad_loss = !isfinite(loss);
    if (!a->guard || (!bad_loss && isfinite(norm)))
        return false;
    const fp8c_alarm_kind kind = bad_loss ? FP8C_ALARM_LOSS_NONFINITE : FP8C_ALARM_NORM_NONFINITE;
    return of_rank_0(a, !raised(a, kind), &a->looks) && a->looks && !bad_loss;
}

bool f8_alarms_again(f8_alarms *a, int function)
{
    return !find(a, function, true) || !share(a) || *a->seen.tensor;
}

/* ---- a step ---- */

bool f8_alarms_judge(f8_alarms *a, int64_t step, int function, double loss, double norm)
{
    a->any = false;
    if (!a->guard)
        return true;
    if (a->looks && !isfinite(loss) && !share(a))
        return false;
    fp8c_found *f = &a->seen.found;
    f->struct_size = sizeof *f;
    f->tensor = *a->seen.tensor ? a->seen.tensor : NULL;
    f->role = a->seen.role;
    const fp8c_guard_facts facts = {.struct_size = sizeof facts,
                                    .step = step,
                                    .loss = loss,
                                    .grad_norm = norm,
                                    .program = a->program,
                                    .function = function,
                                    .found = a->looks ? f : NULL};
    if (!f8_train_ok(a->t, a->ctx, fp8c_guard_step(a->guard, &facts)))
        return false;
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    const bool follows = f8_train_follows(a->t);
    for (int i = 0; fp8c_guard_alarm(a->guard, i, &alarm) == FP8C_OK; i++)
        a->any |= !follows || alarm.kind >= FP8C_ALARM_TENSOR_NONFINITE;
    return true;
}

/* ---- reports ---- */

static bool is_bad(fp8c_alarm_kind kind)
{
    return f8_alarm_is_bad(fp8c_name(FP8C_NAME_ALARM, kind));
}

typedef struct report {
    f8_alarms *a;
    const char *recipe;
    uint64_t seed;
    double loss;
    f8_folder *folder;
} report;

/* false: it could not be recorded. */
static bool say(const report *r, const fp8c_alarm *alarm, const char *where)
{
    const f8_alarms *a = r->a;
    f8_train_say(a->t, "fp8c: %s: %s, seed %" PRIu64 ", step %" PRId64 "%s: %s",
                 a->mode == F8_GUARD_WARN || !is_bad(alarm->kind) ? "warning" : "error", r->recipe,
                 r->seed, alarm->step, where, alarm->text);
    return f8_folder_both(
        r->folder,
        json_pack("{ss ss sI sI sI ss ss? ss? so so so ss}", "event", "warning", "recipe",
                  r->recipe, "seed", (json_int_t)r->seed, "step", (json_int_t)alarm->step, "since",
                  (json_int_t)alarm->since, "kind", fp8c_name(FP8C_NAME_ALARM, (int)alarm->kind),
                  "tensor", alarm->tensor, "role", alarm->role, "value",
                  f8_json_number(alarm->value), "limit", f8_json_number(alarm->limit), "loss",
                  f8_json_number(r->loss), "message", alarm->text));
}

/* An alarm as it is sent to the other ranks, and whether any of the rank's says that the step is
 * bad.
 */
typedef struct sent {
    fp8c_alarm alarm;
    char tensor[128];
    int32_t there, bad;
} sent;

/* Says the alarms of rank 0. Of each other rank it says the first alarm, if rank 0 has none of that
 * kind. bad: whether any rank has one that says so of the step. */
static bool say_all(const report *r, bool *bad)
{
    const f8_alarms *a = r->a;
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    const bool follows = f8_train_follows(a->t);
    sent mine = {0}, *all;
    bool raised[FP8C_ALARM_RANGE + 1] = {0}, ok = true;
    for (int i = 0; fp8c_guard_alarm(a->guard, i, &alarm) == FP8C_OK; i++) {
        if (!follows)
            ok &= say(r, &alarm, alarm.kind <= FP8C_ALARM_NORM_NONFINITE ? r->a->where : "");
        raised[alarm.kind] = true;
        if (alarm.kind >= FP8C_ALARM_TENSOR_NONFINITE || !follows)
            mine.bad |= is_bad(alarm.kind);
        if (mine.there || alarm.kind < FP8C_ALARM_TENSOR_NONFINITE)
            continue;
        mine.alarm = alarm;
        mine.there = true;
        snprintf(mine.tensor, sizeof mine.tensor, "%s", alarm.tensor ? alarm.tensor : "");
    }
    *bad = mine.bad;
    if (!a->t->ranks)
        return ok;
    const int ranks = f8_train_ranks(a->t);
    all = calloc((size_t)ranks, sizeof *all);
    ok &= all ? f8_train_gather(a->t, "alarms", &mine, all, sizeof mine) : f8_train_no_memory(a->t);
    for (int i = 0; ok && i < ranks; i++)
        *bad |= all[i].bad;
    for (int i = 1; ok && !follows && i < ranks; i++) {
        char where[32];
        if (!all[i].there || raised[all[i].alarm.kind])
            continue;
        raised[all[i].alarm.kind] = true;
        snprintf(where, sizeof where, ", rank %d", i);
        all[i].alarm.tensor = all[i].tensor;
        all[i].alarm.role = "operand";
        ok &= say(r, &all[i].alarm, where);
    }
    free(all);
    return ok;
}

/* The least `since` of the alarms of this step. */
static int64_t first_since(const f8_alarms *a, int64_t step)
{
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    int64_t since = step;
    for (int i = 0; fp8c_guard_alarm(a->guard, i, &alarm) == FP8C_OK; i++)
        since = is_bad(alarm.kind) && alarm.since < since ? alarm.since : since;
    return since;
}

bool f8_alarms_report(f8_alarms *a, int64_t step, const char *recipe, uint64_t seed, double loss,
                      f8_folder *folder)
{
    if (!a->guard)
        return true;
    const report r = {a, recipe, seed, loss, folder};
    bool bad = false;
    if (a->any && !say_all(&r, &bad))
        return false;
    if (bad) {
        const int64_t since = first_since(a, step);
        a->since = a->since ? a->since : since;
        a->stopped = a->mode > F8_GUARD_WARN ? since : 0;
    }
    folder->at.before = a->since ? a->since : info_of(a).suspects;
    a->looks = false;
    a->seen = (f8_alarm_found){0};
    *a->where = 0;
    return true;
}

/* ---- a run that is stopped ---- */

bool f8_alarms_stop(f8_alarms *a, f8_folder *folder, int64_t *step)
{
    f8_diag diag = {0};
    return f8_train_done(a->t, f8_run_suspect(&folder->run, a->stopped, step, &diag), &diag);
}
