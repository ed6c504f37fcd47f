/* What the records of a run say, and which step is bad: see search.h. */
#include "frontend/diagnose/triage/search.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/guard/guard.h"
#include "frontend/run/lines.h"
#include "frontend/run/number.h"
#include "ir/base/type.h"
#include "ir/base/text.h"

/* ---- what the records say ---- */

void f8_triage_copy_text(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from ? from : "");
    f8_text_make_plain(to);
}

f8_triage_step *f8_triage_step_at(f8_triage_search *t, int64_t step)
{
    return step >= 1 && step <= t->n_steps ? &t->step[step - 1] : NULL;
}

static bool grow(f8_triage_search *t, int64_t step)
{
    if (step <= t->n_steps)
        return true;
    f8_triage_step *grown = realloc(t->step, (size_t)step * sizeof *grown);
    if (!grown)
        return false;
    memset(grown + t->n_steps, 0, (size_t)(step - t->n_steps) * sizeof *grown);
    t->step = grown;
    t->n_steps = step;
    return true;
}

/* NAN where it is no number: records have NaN and Inf as null. */
static double number_of(const json_t *record, const char *name)
{
    const json_t *x = json_object_get(record, name);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* Keeps the alarm whose first bad step is the first one. One that comes later may be its effect:
 * the history of `delayed` hides later bad steps, and a scale that comes back is far, too. */
static void take_alarm(f8_triage_alarm *a, const json_t *r, int64_t step)
{
    const json_int_t since = json_integer_value(json_object_get(r, "since"));
    const char *kind = json_string_value(json_object_get(r, "kind"));
    /* what is not finite is so in the step that says it; a loss is far after the step `since` */
    const bool explodes = kind && !strcmp(kind, "loss_explodes"),
               infinite = !kind || strstr(kind, "nonfinite") != NULL;
    const int64_t at = explodes ? since + 1 : infinite ? step : since;
    const int64_t first = at > 0 && at < step ? at : step;
    if (!f8_alarm_is_bad(kind))
        return;
    if (a->step && (a->step <= first || strstr(kind ? kind : "", "flow")))
        return; /* a share is dated to a step after the last look, which may be too early */
    *a = (f8_triage_alarm){.step = first,
                           .raised = step,
                           .value = number_of(r, "value"),
                           .limit = number_of(r, "limit")};
    f8_triage_copy_text(a->kind, sizeof a->kind, kind);
    f8_triage_copy_text(a->text, sizeof a->text, json_string_value(json_object_get(r, "message")));
    f8_triage_copy_text(a->tensor, sizeof a->tensor,
                        json_string_value(json_object_get(r, "tensor")));
}

static f8_status take(void *user, const f8_run_line *line, f8_diag *diag)
{
    f8_triage_search *t = user;
    const json_t *r = line->record;
    const char *event = json_string_value(json_object_get(r, "event"));
    const int64_t step = json_integer_value(json_object_get(r, "step"));
    if (!event || step < 1)
        return F8_OK;
    if (step > t->t->options->steps)
        return f8_run_bad_line(line, "is of a step that the run does not have", diag);
    if (!grow(t, step))
        return f8_file_fail(diag, F8_ERR_MEMORY, t->folder.path, "out of memory");
    f8_triage_step *s = f8_triage_step_at(t, step);
    if (!strcmp(event, "step")) {
        const char *loss = json_string_value(json_object_get(r, "loss_hex")),
                   *norm = json_string_value(json_object_get(r, "grad_norm_hex"));
        s->loss = f8_of_hex(r, "loss_hex");
        s->grad_norm = f8_of_hex(r, "grad_norm_hex");
        s->lr = json_number_value(json_object_get(r, "lr"));
        f8_triage_copy_text(s->loss_hex, sizeof s->loss_hex, loss);
        f8_triage_copy_text(s->norm_hex, sizeof s->norm_hex, norm);
        f8_triage_copy_text(s->checksum, sizeof s->checksum,
                            json_string_value(json_object_get(r, "checksum")));
    } else if (!strcmp(event, "fingerprint")) {
        if (!s->fingerprint)
            s->fingerprint = json_array();
        json_array_append(s->fingerprint, (json_t *)(uintptr_t)line->record);
    } else if (!strcmp(event, "warning")) {
        take_alarm(&t->alarm, r, step);
    }
    return F8_OK;
}

static bool read_records(f8_triage_search *t)
{
    f8_diag diag = {0};
    const char *path = f8_run_path(&t->folder.run, "steps.jsonl");
    return f8_train_done(t->t, f8_run_lines_but(path, F8_RUN_SKIP_STATS, take, t, NULL, &diag),
                         &diag);
}

/* ---- which step ---- */

/* Whether a loss is far, and whether that alone raises an alarm. */
static bool is_far(fp8c_guard *g, int64_t step, double loss, bool *at_once)
{
    const fp8c_guard_facts facts = {.struct_size = sizeof facts, .step = step, .loss = loss};
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    const bool ok = fp8c_guard_step(g, &facts) == FP8C_OK;
    *at_once = false;
    for (int i = 0; ok && fp8c_guard_alarm(g, i, &alarm) == FP8C_OK; i++)
        *at_once |= alarm.kind == FP8C_ALARM_LOSS_EXPLODES;
    fp8c_guard_info info = {.struct_size = sizeof info};
    fp8c_guard_report(g, &info);
    return ok && info.far;
}

/* Compares the loss with those before the bad step, also that of a later step: a trial must not
 * teach the guard its own losses. */
bool f8_triage_is_far(f8_triage_search *t, const f8_replayed *r, bool *at_once)
{
    fp8c_context *ctx = NULL; /* not the one that is watched for signals */
    fp8c_guard *g = NULL;
    bool far = !r->finite, once;
    *at_once = far;
    if (!far && fp8c_context_create(NULL, &ctx) == FP8C_OK &&
        fp8c_guard_create(ctx, NULL, &g) == FP8C_OK) {
        for (int64_t s = 1; s < t->found.step; s++)
            if (*t->step[s - 1].loss_hex)
                is_far(g, s, t->step[s - 1].loss, &once);
        far = is_far(g, t->found.step, r->loss, at_once);
    }
    fp8c_guard_destroy(g);
    fp8c_context_destroy(ctx);
    return far;
}

/* Without an alarm: the first step whose loss or gradient norm is not finite. */
static void look_for_nonfinite(f8_triage_search *t)
{
    for (int64_t s = 1; s <= t->n_steps && !t->alarm.step; s++) {
        const f8_triage_step *r = &t->step[s - 1];
        if (!*r->loss_hex || (isfinite(r->loss) && (!*r->norm_hex || isfinite(r->grad_norm))))
            continue;
        t->alarm.step = s;
        f8_triage_copy_text(t->alarm.text, sizeof t->alarm.text,
                            isfinite(r->loss) ? "the gradient norm is not finite"
                                              : "the loss is not finite");
    }
}

/* Whether a step is bad by an earlier alarm, which dates it: while the outlier of that step is in
 * the history of `delayed`, no other one raises an alarm. */
static bool is_hidden(const f8_triage_search *t, int64_t step)
{
    return !strcmp(t->alarm.kind, "scale") && t->alarm.step < step &&
           step < t->alarm.step + F8_TRIAGE_HISTORY;
}

static bool choose_step(f8_triage_search *t)
{
    f8_triage *f = &t->found;
    look_for_nonfinite(t);
    f->step = t->asked ? t->asked : t->alarm.step;
    if (!f->step)
        return f8_train_fail(t->t, F8_ERR_INPUT,
                             "%s: error: no record says that a step is bad; --step N names one",
                             t->folder.path);
    if (f->step > t->n_steps || !*t->step[f->step - 1].loss_hex)
        return f8_train_fail(t->t, F8_ERR_INPUT,
                             "%s: error: --step %" PRId64 ": there is no record of that step",
                             t->folder.path, f->step);
    if (is_hidden(t, f->step))
        f->step = t->alarm.step;
    if (f->step == t->alarm.step) {
        f8_triage_copy_text(f->why, sizeof f->why, t->alarm.text);
        f8_triage_copy_text(f->alarm, sizeof f->alarm, t->alarm.kind);
    } else {
        f8_triage_copy_text(f->why, sizeof f->why, "--step names it");
    }
    return true;
}

/* The step after which the run was last changed. Steps up to it were trained under another recipe,
 * schedule or number of ranks, so they can't be replayed. */
static int64_t last_change(const f8_triage_search *t)
{
    const json_t *all = json_object_get(t->folder.run.info, "resumed");
    int64_t since = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *mark = json_array_get(all, i);
        if (json_is_true(json_object_get(mark, "changed")))
            since = json_integer_value(json_object_get(mark, "step"));
    }
    return since;
}

/* The witness is the reference interpreter. */
static bool has_witness(const f8_triage_search *t)
{
    const char *target = t->t->options->target;
    return !target || strncmp(target, "reference", 9) ||
           f8_train_fail(t->t, F8_ERR_INPUT,
                         "%s: error: it was trained on target reference, which nothing can judge",
                         t->folder.path);
}

static bool has_ranks(const f8_triage_search *t)
{
    const int then = (int)json_integer_value(json_object_get(t->folder.run.info, "ranks")),
              now = f8_train_ranks(t->t);
    return then == now ||
           f8_train_fail(t->t, F8_ERR_INPUT,
                         "%s: error: it was trained by %d rank%s, and its steps have other bits on "
                         "%d; mpirun -n %d fp8c triage asks as many",
                         t->folder.path, then, then == 1 ? "" : "s", now, then);
}

bool f8_triage_read(f8_triage_search *t)
{
    return has_ranks(t) && has_witness(t) && read_records(t) && choose_step(t);
}

f8_replay f8_triage_replay(f8_triage_search *t)
{
    return (f8_replay){
        .t = t->t, .folder = &t->folder, .data = &t->data, .quiet = true, .since = last_change(t)};
}

/* ---- progress ---- */

void f8_triage_say(const f8_triage_search *t, const char *format, ...)
{
    char text[2048];
    va_list args;
    if (f8_train_follows(t->t))
        return;
    va_start(args, format);
    f8_vformat(text, sizeof text, format, args);
    va_end(args);
    t->progress(t->user, text);
}

/* ---- ranks ---- */

bool f8_triage_any_rank(const f8_triage_search *t, bool mine)
{
    int32_t own = mine, all[F8_MAX_RANKS];
    const f8_ranks *ranks = t->t->ranks;
    if (!f8_train_gather(t->t, "what triage has found", &own, all, sizeof own))
        return mine; /* the ranks are lost: the next step of the replay fails */
    for (int i = 0; ranks && i < ranks->comm.ranks; i++)
        own |= all[i];
    return own != 0;
}
