/* Guards of `fp8c train`: see cmd_alarm.h. */
#include "frontend/cli/cmd_alarm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/guard/guard.h"

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

bool cli_alarm_refused(const cli *c)
{
    const int mode = c->guard ? mode_of(c->guard) : CLI_GUARD_WARN;
    if (mode < 0)
        fprintf(stderr, "fp8c train: --guard %s: off, warn, stop or triage was expected\n",
                c->guard);
    else if (mode == CLI_GUARD_TRIAGE && !c->run && !c->resume)
        fprintf(stderr, "fp8c train: --guard triage needs --run DIR: a triage replays the run from "
                        "a checkpoint of its folder\n");
    else
        return false;
    return true;
}

static bool failed(const cli_alarms *a)
{
    cli_fail(a->ctx);
    return false;
}

bool cli_alarm_begin(cli_alarms *a, const cli *c, fp8c_context *ctx, fp8c_program *program)
{
    *a = (cli_alarms){.c = c,
                      .ctx = ctx,
                      .program = program,
                      .mode = c->guard ? (cli_guard_mode)mode_of(c->guard) : CLI_GUARD_WARN};
    return a->mode == CLI_GUARD_OFF || fp8c_guard_create(ctx, NULL, &a->guard) == FP8C_OK ||
           failed(a);
}

void cli_alarm_end(cli_alarms *a)
{
    fp8c_guard_destroy(a->guard);
    a->guard = NULL;
}

static double number_of(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));
    return text ? strtod(text, NULL) : NAN;
}

void cli_alarm_replay(cli_alarms *a, const json_t *record)
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
                                    .loss = number_of(record, "loss_hex"),
                                    .grad_norm = number_of(record, "grad_norm_hex")};
    fp8c_guard_step(a->guard, &facts); /* what it raises was said when it happened */
}

/* ---- what is not finite ---- */

static bool find(cli_alarms *a, int function, bool again)
{
    fp8c_found *f = &a->seen.found;
    *f = (fp8c_found){.struct_size = sizeof *f};
    if (fp8c_program_find_nonfinite(a->program, function, again, f) != FP8C_OK)
        return failed(a);
    snprintf(a->seen.tensor, sizeof a->seen.tensor, "%s", f->tensor ? f->tensor : "");
    snprintf(a->seen.role, sizeof a->seen.role, "%s", f->tensor ? f->role : "");
    a->seen.rank = a->c->ranks ? a->c->ranks->comm.rank : 0;
    return true;
}

static fp8c_guard_info info_of(const cli_alarms *a)
{
    fp8c_guard_info info = {.struct_size = sizeof info};
    fp8c_guard_report(a->guard, &info);
    return info;
}

static bool raised(const cli_alarms *a, fp8c_alarm_kind kind)
{
    return info_of(a).raised >> kind & 1;
}

bool cli_alarm_micro_step(cli_alarms *a, int function, double loss)
{
    if (!a->guard || isfinite(loss) || *a->seen.tensor || raised(a, FP8C_ALARM_LOSS_NONFINITE))
        return true;
    return find(a, function, false);
}

/* How near to the cause a role is. */
static int order(const cli_alarm_found *f)
{
    static const char *const roles[] = {"input", "parameter", "state", "scale", "gradient"};
    int i = 0;
    while (i < 5 && strcmp(roles[i], f->role))
        i++;
    return i;
}

/* Makes a->seen that of the rank whose finding is nearest to the cause. */
static bool share(cli_alarms *a)
{
    f8_ranks *ranks = a->c->ranks;
    if (!ranks)
        return true;
    cli_alarm_found *all = calloc((size_t)ranks->comm.ranks, sizeof *all);
    const bool ok =
        all && cli_ranks_gather(ranks, "what is not finite", &a->seen, all, sizeof *all);
    for (int i = ranks->comm.ranks - 1; ok && i >= 0; i--)
        if (*all[i].tensor && (!*a->seen.tensor || order(&all[i]) <= order(&a->seen)))
            a->seen = all[i];
    if (!all)
        fprintf(stderr, "error: out of memory\n");
    free(all);
    if (ok && a->seen.rank > 0 && !strcmp(a->seen.role, "input"))
        snprintf(a->where, sizeof a->where, ", rank %d", a->seen.rank);
    return ok;
}

/* What rank 0 says: only it has seen the steps from before a run goes on. */
static bool of_rank_0(const cli_alarms *a, bool mine, bool *out)
{
    int32_t said = mine, all[F8_MAX_RANKS];
    const bool ok = cli_ranks_gather(a->c->ranks, "guards", &said, all, sizeof said);
    *out = ok && all[0];
    return ok;
}

bool cli_alarm_wants_again(cli_alarms *a, double loss, double norm)
{
    const bool bad_loss = !isfinite(loss);
    if (!a->guard || (!bad_loss && isfinite(norm)))
        return false;
    const fp8c_alarm_kind kind = bad_loss ? FP8C_ALARM_LOSS_NONFINITE : FP8C_ALARM_NORM_NONFINITE;
    return of_rank_0(a, !raised(a, kind), &a->looks) && a->looks && !bad_loss;
}

bool cli_alarm_again(cli_alarms *a, int function)
{
    return !find(a, function, true) || !share(a) || *a->seen.tensor;
}

/* ---- a step ---- */

bool cli_alarm_judge(cli_alarms *a, int64_t step, int function, double loss, double norm)
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
    if (fp8c_guard_step(a->guard, &facts) != FP8C_OK)
        return failed(a);
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    const bool follows = f8_ranks_follows(a->c->ranks);
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
    cli_alarms *a;
    const char *recipe;
    uint64_t seed;
    double loss;
    cli_json *json;
    cli_folder *folder;
    bool terminal;
} report;

static void say(const report *r, const fp8c_alarm *alarm, const char *where)
{
    const cli_alarms *a = r->a;
    fprintf(stderr, "%sfp8c: %s: %s, seed %" PRIu64 ", step %" PRId64 "%s: %s\n",
            r->terminal ? "\r\033[K" : "",
            a->mode == CLI_GUARD_WARN || !is_bad(alarm->kind) ? "warning" : "error", r->recipe,
            r->seed, alarm->step, where, alarm->text);
    json_t *record = json_pack(
        "{ss ss sI sI sI ss ss? ss? so so so ss}", "event", "warning", "recipe", r->recipe, "seed",
        (json_int_t)r->seed, "step", (json_int_t)alarm->step, "since", (json_int_t)alarm->since,
        "kind", fp8c_name(FP8C_NAME_ALARM, alarm->kind), "tensor", alarm->tensor, "role",
        alarm->role, "value", cli_json_number(alarm->value), "limit", cli_json_number(alarm->limit),
        "loss", cli_json_number(r->loss), "message", alarm->text);
    cli_json_record(r->json, json_incref(record));
    cli_folder_record(r->folder, record);
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
    const cli_alarms *a = r->a;
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    const bool follows = f8_ranks_follows(a->c->ranks);
    sent mine = {0}, *all;
    bool raised[FP8C_ALARM_RANGE + 1] = {0};
    for (int i = 0; fp8c_guard_alarm(a->guard, i, &alarm) == FP8C_OK; i++) {
        if (!follows)
            say(r, &alarm, alarm.kind <= FP8C_ALARM_NORM_NONFINITE ? r->a->where : "");
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
    if (!a->c->ranks)
        return true;
    const int ranks = a->c->ranks->comm.ranks;
    all = calloc((size_t)ranks, sizeof *all);
    const bool ok = all && cli_ranks_gather(a->c->ranks, "alarms", &mine, all, sizeof mine);
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
        say(r, &all[i].alarm, where);
    }
    free(all);
    return ok;
}

/* The least `since` of the alarms of this step. */
static int64_t first_since(const cli_alarms *a, int64_t step)
{
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    int64_t since = step;
    for (int i = 0; fp8c_guard_alarm(a->guard, i, &alarm) == FP8C_OK; i++)
        since = is_bad(alarm.kind) && alarm.since < since ? alarm.since : since;
    return since;
}

bool cli_alarm_report(cli_alarms *a, int64_t step, const char *recipe, uint64_t seed, double loss,
                      cli_json *json, cli_folder *folder, bool terminal)
{
    if (!a->guard)
        return true;
    const report r = {a, recipe, seed, loss, json, folder, terminal};
    bool bad = false;
    if (a->any && !say_all(&r, &bad))
        return false;
    if (bad) {
        const int64_t since = first_since(a, step);
        a->since = a->since ? a->since : since;
        a->stopped = a->mode > CLI_GUARD_WARN ? since : 0;
    }
    folder->at.before = a->since ? a->since : info_of(a).suspects;
    a->looks = false;
    a->seen = (cli_alarm_found){0};
    *a->where = 0;
    return true;
}

/* ---- a run that is stopped ---- */

void cli_alarm_stop(const cli_alarms *a, cli_folder *folder)
{
    f8_diag diag = {0};
    int64_t step;
    if (!folder->path) {
        fprintf(stderr,
                "  --guard %s: the run ends here, and nothing is saved. With --run DIR a run keeps "
                "checkpoints to go on from; with --guard warn it goes on\n",
                modes[a->mode]);
        return;
    }
    if (f8_run_suspect(&folder->run, a->stopped, &step, &diag) != F8_OK) {
        cli_file_fail(&diag);
        return;
    }
    fprintf(
        stderr,
        "  --guard %s: the run ends here. Its newest checkpoint is that of step %" PRId64 "%s\n",
        modes[a->mode], step, step < a->stopped ? ", from before" : ": there is no earlier one");
    if (a->mode == CLI_GUARD_STOP)
        fprintf(stderr, "  to look for the cause: fp8c triage %s\n", folder->path);
    fprintf(stderr,
            "  to go on from there in spite of it: fp8c train --resume %s --guard warn; or under "
            "another --recipe\n",
            folder->path);
    folder->triage = a->mode == CLI_GUARD_TRIAGE;
}

/* Several processes have parted by now: somebody starts them again. */
int cli_alarm_triage(const cli *c, const char *folder)
{
    const cli triage = {.command = "triage",
                        .file = folder,
                        .files = {{folder}, 1},
                        .recipe = cli_default_recipe,
                        .seed = 1,
                        .seeds = 1};
    if (c->ranks) {
        fprintf(stderr, "  to look for the cause, with as many processes: fp8c triage %s\n",
                folder);
        return CLI_FAILED;
    }
    fprintf(stderr, "  fp8c triage %s\n", folder);
    cmd_triage(&triage);
    return CLI_FAILED;
}
