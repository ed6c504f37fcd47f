/* The replay of a run beside its records, from a checkpoint to the bad step: see search.h. */
#include "frontend/diagnose/triage/search.h"

#include <inttypes.h>
#include <string.h>

#include "frontend/run/number.h"

/* ---- watching ---- */

void f8_triage_note_value(f8_triage_value *to, const fp8c_program *p, const fp8c_witnessed *v)
{
    if (to->known)
        return;
    to->known = true;
    f8_triage_copy_text(to->function, sizeof to->function,
                        fp8c_program_function_name(p, v->function));
    f8_triage_copy_text(to->kind, sizeof to->kind, v->kind);
    f8_triage_copy_text(to->op, sizeof to->op, v->name);
    f8_triage_copy_text(to->value, sizeof to->value, v->value);
    to->at = v->at;
    to->wrong = v->wrong;
    to->got = v->got;
    to->want = v->want;
    to->allowed = v->allowed;
}

/* Compares a value of a replay with its hash in the record. */
static void compare_value(void *user, const fp8c_witnessed *v)
{
    f8_triage_search *t = user;
    const size_t index = t->now.n++;
    if (index < t->now.room && t->now.value[index] != v->hash)
        f8_triage_note_value(&t->other, t->watched->program, v);
}

static bool is_written(const f8_replay *r, int variable)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(r->program, r->micro_step, FP8C_OUTPUT, i, &port) == FP8C_OK;
         i++)
        if (port.variable == variable)
            return true;
    return false;
}

/* Compares the variables before update with those of the record. Only those count that micro_step
 * does not write. */
static void compare_variables(f8_triage_search *t, f8_replay *r, const f8_fingerprint *then)
{
    f8_fingerprint now = {0};
    fp8c_variable v;
    f8_fingerprint_variables(&now, r->program);
    for (size_t i = 0; i < now.n_variables && i < then->n_variables && !*t->found.variable; i++)
        if (now.variable[i] != then->variable[i] && !is_written(r, (int)i) &&
            fp8c_program_variable(r->program, (int)i, &v) == FP8C_OK)
            f8_triage_copy_text(t->found.variable, sizeof t->found.variable, v.name);
    f8_fingerprint_free(&now);
}

/* A record with more values or fewer is damaged, or of another plan: it says nothing. */
static void end_function(f8_triage_search *t)
{
    if (t->now.n == t->now.room && !t->found.first.known)
        t->found.first = t->other;
    t->other = (f8_triage_value){0};
    f8_fingerprint_free(&t->now);
}

/* Whether what the variables were before the watched step is known: else update may have written
 * them wrongly, in a step without a fingerprint. */
static bool is_known_before(f8_triage_search *t)
{
    const f8_triage_step *s = f8_triage_step_at(t, t->watched_step - 1);
    return t->watched_step - 1 == t->from || (s && s->fingerprint);
}

/* Finds the function's record of the watched step: it is of rank 0. */
static void begin_function(void *user, int function, int64_t micro_step)
{
    f8_triage_search *t = user;
    const f8_triage_step *s = f8_train_follows(t->t) ? NULL : f8_triage_step_at(t, t->watched_step);
    const char *name = fp8c_program_function_name(t->watched->program, function);
    end_function(t);
    for (size_t i = 0; s && i < json_array_size(s->fingerprint); i++)
        if (f8_fingerprint_read(&t->now, json_array_get(s->fingerprint, i), name, micro_step)) {
            t->found.fingerprints = true;
            break;
        }
    if (t->now.variable && is_known_before(t))
        compare_variables(t, t->watched, &t->now);
    t->now.room = t->now.n; /* what there is to compare with */
    t->now.n = 0;
}

/* ---- steps of the replay ---- */

static const char *difference(const f8_triage_step *s, const f8_replayed *now)
{
    char loss[40], norm[40];
    if (*s->loss_hex && strcmp(f8_hex(now->loss, loss), s->loss_hex))
        return "loss";
    if (*s->norm_hex && strcmp(f8_hex(now->grad_norm, norm), s->norm_hex))
        return "gradient norm";
    return NULL;
}

/* Whether the state after a step has the checksum of its record, if there is one. */
static bool has_checksum(f8_replay *r, const f8_triage_step *s)
{
    f8_diag diag = {0};
    char sum[F8_RUN_HASH];
    if (!*s->checksum || f8_run_checksum(r->program, sum, &diag) != F8_OK)
        return true;
    return !strcmp(sum, s->checksum);
}

/* Replays the next step. If it has a fingerprint, the first value that differs is noted. */
static bool replay_one(f8_triage_search *t, f8_replay *r, f8_replayed *out)
{
    const f8_triage_step *s = f8_triage_step_at(t, r->at + 1);
    const f8_replay_watch watch = {.value = compare_value, .begin = begin_function, .user = t};
    t->watched = r;
    t->watched_step = r->at + 1;
    const bool ok = f8_replay_step(r, 0, s && s->fingerprint ? &watch : NULL, out);
    end_function(t);
    return ok;
}

/* What differs in the step that was replayed; NULL: nothing. Ranks agree whether something does. */
static const char *differs_in(f8_triage_search *t, f8_replay *r, const f8_replayed *now)
{
    const f8_triage_step *s = f8_triage_step_at(t, r->at);
    const char *what = s ? difference(s, now) : NULL;
    if (s && !what && (t->found.first.known || *t->found.variable))
        what = "fingerprint";
    if (!f8_triage_any_rank(t, what != NULL) && s && !has_checksum(r, s))
        what = "checksum of all variables";
    return f8_triage_any_rank(t, what != NULL) && !what ? "fingerprint" : what;
}

/* A checkpoint that differs from its record: names the first variable that does, where the replay
 * from an older one has come to its step. */
static void compare_checkpoint(f8_triage_search *t, const f8_replay *r)
{
    f8_fingerprint now = {0};
    fp8c_variable v;
    f8_triage *f = &t->found;
    if (!f->changed || r->at != f->changed || *f->variable)
        return;
    f8_fingerprint_variables(&now, r->program);
    for (size_t i = 0; i < now.n_variables && i < t->changed.n_variables && !*f->variable; i++)
        if (now.variable[i] != t->changed.variable[i] &&
            fp8c_program_variable(r->program, (int)i, &v) == FP8C_OK)
            f8_triage_copy_text(f->variable, sizeof f->variable, v.name);
    f8_fingerprint_free(&now);
}

bool f8_triage_replay_to(f8_triage_search *t, f8_replay *r, int64_t end, f8_replayed *last,
                         bool *bad)
{
    f8_triage *f = &t->found;
    f->differs = 0;
    while (r->at < end && !f->differs) {
        if (!replay_one(t, r, last) || (bad && !f8_triage_guard_step(t, r, last, bad)))
            return false;
        compare_checkpoint(t, r);
        f->differs_in = differs_in(t, r, last);
        f->differs = f->differs_in ? r->at : 0;
    }
    return true;
}

/* ---- the run ---- */

void f8_triage_say_replayed(const f8_triage_search *t, int64_t from, int64_t to)
{
    const f8_triage *f = &t->found;
    char outcome[100] = "the bits of the records";
    if (f->differs)
        snprintf(outcome, sizeof outcome, "step %" PRId64 " has another %s than its record",
                 f->differs, f->differs_in);
    f8_triage_say(
        t, "replayed steps %" PRId64 " to %" PRId64 " from the checkpoint of step %" PRId64 ": %s",
        from + 1, to, from, outcome);
}

/* Notes whether the checkpoint that was loaded has other bits than the record of its step, or a
 * variable that is bad. */
static bool look_at_checkpoint(f8_triage_search *t, f8_replay *r, bool *odd)
{
    f8_triage *f = &t->found;
    const f8_triage_step *s = f8_triage_step_at(t, r->at);
    f->checkpoint = r->at;
    if (!f8_triage_look_at_state(t, r))
        return false;
    if (s && r->same && !has_checksum(r, s)) {
        f->changed = r->at;
        f8_fingerprint_free(&t->changed);
        f8_fingerprint_variables(&t->changed, r->program);
    }
    *odd = f8_triage_any_rank(t, *f->state || f->changed == r->at);
    return true;
}

/* Loads the newest checkpoint before the bad step. If a scale has come back, the bad step is that
 * whose outlier has left the history, as long as there is a checkpoint from before it. */
static bool load_newest(f8_triage_search *t, f8_replay *r)
{
    const int64_t entered = t->alarm.raised - F8_TRIAGE_HISTORY;
    if (*t->found.alarm && f8_triage_returns(t) && entered >= 1 &&
        f8_replay_load_older(r, entered)) {
        t->found.step = entered;
        return true;
    }
    if (*t->found.alarm && f8_triage_has_value(t) && !f8_replay_load_older(r, t->found.step) &&
        f8_replay_load_older(r, t->alarm.raised)) {
        t->found.step = r->at + 1; /* what it is dated to may be too early */
        return true;
    }
    return f8_replay_load(r, t->found.step);
}

/* Loads the newest checkpoint before the bad step; if something is odd in it, an older one, which
 * may be from before. */
static bool load(f8_triage_search *t, f8_replay *r)
{
    bool odd = false;
    if (!load_newest(t, r))
        return false;
    r->quiet = true;
    t->found.passed_over = r->passed_over;
    if (!look_at_checkpoint(t, r, &odd))
        return false;
    while (odd && t->found.checkpoint > 0) {
        const int64_t newest = t->found.checkpoint;
        if (!f8_replay_load_older(r, newest))
            return f8_replay_load(r, newest + 1);
        if (!look_at_checkpoint(t, r, &odd))
            return false;
    }
    return true;
}

/* What update makes wrong shows in the next step: if nothing else does, that is replayed, too. */
static bool replay_beyond(f8_triage_search *t, f8_replay *r)
{
    f8_triage_step *next = f8_triage_step_at(t, t->found.step + 1);
    f8_replayed out;
    if (!next || !*next->loss_hex)
        return true;
    if (!f8_triage_replay_to(t, r, t->found.step + 1, &out, NULL))
        return false;
    t->bad = t->found.differs ? out : t->bad;
    return true;
}

/* Replays under a guard up to step `end`: the bad one, or a later one that has raised its alarm. A
 * guard does not look in each step, so the first step that is bad in the replay is the bad one. */
static bool replay_guarded(f8_triage_search *t, f8_replay *r, int64_t end, f8_replayed *last)
{
    f8_triage *f = &t->found;
    while (r->at < end && !f->differs) {
        bool bad = false, at_once;
        if (!f8_triage_replay_to(t, r, r->at + 1, last, &bad))
            return false;
        bad =
            r->at == f->step ? bad || f8_triage_is_far(t, last, &at_once) : bad && r->at > f->step;
        if (r->at > f->step && bad && !f->replay_bad)
            f->step = r->at;
        if (r->at <= f->step || f->differs)
            t->bad = *last;
        f->replay_bad |= bad;
    }
    return true;
}

/* The step that raised the alarm of the bad one has it again, or else the device was wrong. */
static void compare_alarm(f8_triage_search *t, const f8_replay *r)
{
    f8_triage *f = &t->found;
    const bool gone = f8_triage_any_rank(t, !f8_triage_alarm_recurs(t, r));
    f->replay_bad |= !gone;
    if (gone) {
        f->differs = f->step;
        f->differs_in = f->differs_in ? f->differs_in : "alarm on another rank";
    }
}

bool f8_triage_replay_run(f8_triage_search *t, f8_replay *r, f8_replayed *last)
{
    f8_triage *f = &t->found;
    if (!load(t, r) || !f8_triage_guard_begin(t, r))
        return false;
    const bool late = *f->alarm && t->alarm.raised > f->step && f8_triage_has_value(t);
    const int64_t from = t->from = r->at;
    if (!replay_guarded(t, r, late ? t->alarm.raised : f->step, last))
        return false;
    if (*f->alarm && !f->differs)
        compare_alarm(t, r);
    if (!f->differs && !f->replay_bad && !replay_beyond(t, r))
        return false;
    f8_triage_say_replayed(t, from, r->at);
    *last = t->bad;
    f->infinite = !last->finite;
    return true;
}
