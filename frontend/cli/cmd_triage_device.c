/* What the device did in a bad step: replays beside the records, and the witness. See cmd_triage.h.
 */
#include "frontend/cli/cmd_triage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/clock.h"

/* ---- watching ---- */

static void note_value(f8_triage_value *to, const fp8c_program *p, const fp8c_witnessed *v)
{
    if (to->known)
        return;
    to->known = true;
    cli_triage_copy_text(to->function, sizeof to->function,
                         fp8c_program_function_name(p, v->function));
    cli_triage_copy_text(to->kind, sizeof to->kind, v->kind);
    cli_triage_copy_text(to->op, sizeof to->op, v->name);
    cli_triage_copy_text(to->value, sizeof to->value, v->value);
    to->at = v->at;
    to->wrong = v->wrong;
    to->got = v->got;
    to->want = v->want;
    to->allowed = v->allowed;
}

/* Compares a value of a replay with its hash in the record. */
static void compare_value(void *user, const fp8c_witnessed *v)
{
    cli_triage *t = user;
    const size_t index = t->now.n++;
    if (index < t->now.room && t->now.value[index] != v->hash)
        note_value(&t->other, t->watched->program, v);
}

static void see_value(void *user, const fp8c_witnessed *v)
{
    cli_triage *t = user;
    const fp8c_program *p = t->watched->program;
    t->found.judged += v->verdict != FP8C_NOT_JUDGED && t->wrong == &t->found.wrong;
    if (v->verdict == FP8C_WRONG)
        note_value(t->wrong, p, v);
    if (t->wrong != &t->found.wrong) /* another recipe than the run's */
        return;
    if (v->nonfinite && !t->found.nonfinite.known) {
        note_value(&t->found.nonfinite, p, v);
        t->found.nonfinite.at = v->nonfinite_at;
        cli_triage_copy_text(t->found.nonfinite_input, sizeof t->found.nonfinite_input,
                             v->nonfinite_input);
        cli_triage_copy_text(t->found.nonfinite_op, sizeof t->found.nonfinite_op, v->nonfinite_op);
    }
}

static bool is_written(const cli_replay *r, int variable)
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
static void compare_variables(cli_triage *t, cli_replay *r, const cli_fingerprint *then)
{
    cli_fingerprint now = {0};
    fp8c_variable v;
    cli_fingerprint_variables(&now, r->program);
    for (size_t i = 0; i < now.n_variables && i < then->n_variables && !*t->found.variable; i++)
        if (now.variable[i] != then->variable[i] && !is_written(r, (int)i) &&
            fp8c_program_variable(r->program, (int)i, &v) == FP8C_OK)
            cli_triage_copy_text(t->found.variable, sizeof t->found.variable, v.name);
    cli_fingerprint_free(&now);
}

/* A record with more values or fewer is damaged, or of another plan: it says nothing. */
static void end_function(cli_triage *t)
{
    if (t->now.n == t->now.room && !t->found.first.known)
        t->found.first = t->other;
    t->other = (f8_triage_value){0};
    cli_fingerprint_free(&t->now);
}

/* Whether what the variables were before the watched step is known: else update may have written
 * them wrongly, in a step without a fingerprint. */
static bool is_known_before(cli_triage *t)
{
    const cli_triage_step *s = cli_triage_step_at(t, t->watched_step - 1);
    return t->watched_step - 1 == t->from || (s && s->fingerprint);
}

/* Finds the function's record of the watched step: it is of rank 0. */
static void begin_function(void *user, int function, int64_t micro_step)
{
    cli_triage *t = user;
    const cli_triage_step *s =
        cli_ranks_follows(t->c->ranks) ? NULL : cli_triage_step_at(t, t->watched_step);
    const char *name = fp8c_program_function_name(t->watched->program, function);
    end_function(t);
    for (size_t i = 0; s && i < json_array_size(s->fingerprint); i++)
        if (cli_fingerprint_read(&t->now, json_array_get(s->fingerprint, i), name, micro_step)) {
            t->found.fingerprints = true;
            break;
        }
    if (t->now.variable && is_known_before(t))
        compare_variables(t, t->watched, &t->now);
    t->now.room = t->now.n; /* what there is to compare with */
    t->now.n = 0;
}

/* ---- steps of the replay ---- */

static const char *difference(const cli_triage_step *s, const cli_replayed *now)
{
    char loss[40], norm[40];
    if (*s->loss_hex && strcmp(cli_hex(now->loss, loss), s->loss_hex))
        return "loss";
    if (*s->norm_hex && strcmp(cli_hex(now->grad_norm, norm), s->norm_hex))
        return "gradient norm";
    return NULL;
}

/* Whether the state after a step has the checksum of its record, if there is one. */
static bool has_checksum(cli_replay *r, const cli_triage_step *s)
{
    f8_diag diag = {0};
    char sum[F8_RUN_HASH];
    if (!*s->checksum || f8_run_checksum(r->program, sum, &diag) != F8_OK)
        return true;
    return !strcmp(sum, s->checksum);
}

/* Replays the next step. If it has a fingerprint, the first value that differs is noted. */
static bool replay_one(cli_triage *t, cli_replay *r, cli_replayed *out)
{
    const cli_triage_step *s = cli_triage_step_at(t, r->at + 1);
    const cli_replay_watch watch = {.value = compare_value, .begin = begin_function, .user = t};
    t->watched = r;
    t->watched_step = r->at + 1;
    const bool ok = cli_replay_step(r, 0, s && s->fingerprint ? &watch : NULL, out);
    end_function(t);
    return ok;
}

bool cli_triage_any_rank(const cli_triage *t, bool mine)
{
    int32_t own = mine, all[F8_MAX_RANKS];
    cli_ranks *ranks = t->c->ranks;
    if (!cli_ranks_gather(ranks, "what triage has found", &own, all, sizeof own))
        return mine; /* the ranks are lost: the next step of the replay fails */
    for (int i = 0; ranks && i < ranks->comm.ranks; i++)
        own |= all[i];
    return own != 0;
}

/* What differs in the step that was replayed; NULL: nothing. Ranks agree whether something does. */
static const char *differs_in(cli_triage *t, cli_replay *r, const cli_replayed *now)
{
    const cli_triage_step *s = cli_triage_step_at(t, r->at);
    const char *what = s ? difference(s, now) : NULL;
    if (s && !what && (t->found.first.known || *t->found.variable))
        what = "fingerprint";
    if (!cli_triage_any_rank(t, what != NULL) && s && !has_checksum(r, s))
        what = "checksum of all variables";
    return cli_triage_any_rank(t, what != NULL) && !what ? "fingerprint" : what;
}

/* A checkpoint that differs from its record: names the first variable that does, where the replay
 * from an older one has come to its step. */
static void compare_checkpoint(cli_triage *t, const cli_replay *r)
{
    cli_fingerprint now = {0};
    fp8c_variable v;
    f8_triage *f = &t->found;
    if (!f->changed || r->at != f->changed || *f->variable)
        return;
    cli_fingerprint_variables(&now, r->program);
    for (size_t i = 0; i < now.n_variables && i < t->changed.n_variables && !*f->variable; i++)
        if (now.variable[i] != t->changed.variable[i] &&
            fp8c_program_variable(r->program, (int)i, &v) == FP8C_OK)
            cli_triage_copy_text(f->variable, sizeof f->variable, v.name);
    cli_fingerprint_free(&now);
}

/* Replays up to step `end` and stops at the first that has other bits than its record. *bad, which
 * may be NULL: whether the last one is bad. */
static bool replay_to(cli_triage *t, cli_replay *r, int64_t end, cli_replayed *last, bool *bad)
{
    f8_triage *f = &t->found;
    f->differs = 0;
    while (r->at < end && !f->differs) {
        if (!replay_one(t, r, last) || (bad && !cli_triage_guard_step(t, r, last, bad)))
            return false;
        compare_checkpoint(t, r);
        f->differs_in = differs_in(t, r, last);
        f->differs = f->differs_in ? r->at : 0;
    }
    return true;
}

/* ---- the device ---- */

/* Notes an input that is not finite before the step that comes next, and its row. */
static bool look_for_nonfinite(cli_triage *t, cli_replay *r)
{
    fp8c_found found = {.struct_size = sizeof found};
    fp8c_port port;
    f8_triage *f = &t->found;
    for (int64_t a = 0; a < r->accumulate && !*f->input; a++) {
        const uint64_t batch = (uint64_t)(r->at * r->accumulate + a);
        if (!cli_data_fill(r->data, r->program, r->micro_step, r->c->seed, batch))
            return false;
        if (fp8c_program_find_nonfinite(r->program, r->micro_step, 0, &found) != FP8C_OK)
            return cli_fail(r->ctx) == CLI_DONE;
        if (!found.tensor || strcmp(found.role, "input") != 0)
            continue;
        cli_triage_copy_text(f->input, sizeof f->input, found.tensor);
        const int at = fp8c_program_find_port(r->program, r->micro_step, FP8C_INPUT, found.tensor);
        if (fp8c_program_port(r->program, r->micro_step, FP8C_INPUT, at, &port) != FP8C_OK)
            continue;
        cli_triage_copy_text(f->row.input, sizeof f->row.input, found.tensor);
        cli_triage_note_row(t, batch, found.index / (found.elements / port.type.dim[0]));
    }
    return true;
}

/* Replays a step once more with a witness, which judges its values. `wrong` gets the first wrong
 * one. */
static bool judge(cli_triage *t, cli_replay *r, int64_t step, f8_triage_value *wrong)
{
    const cli_replay_watch watch = {.judge = true, .value = see_value, .user = t};
    cli_replayed out;
    if (!cli_replay_load(r, step))
        return false;
    if (!cli_replay_until(r, step - 1, &out))
        return false;
    t->watched = r;
    t->wrong = wrong;
    if (wrong == &t->found.wrong)
        t->found.judged = 0;
    if (step == t->found.step && wrong == &t->found.wrong && !t->found.differs &&
        !look_for_nonfinite(t, r))
        return false;
    return cli_replay_step(r, 0, &watch, &out);
}

enum { SEARCH = 60 }; /* seconds after which no more steps are looked at */

static void say_replayed(const cli_triage *t, int64_t from, int64_t to)
{
    const f8_triage *f = &t->found;
    char outcome[100] = "the bits of the records";
    if (f->differs)
        snprintf(outcome, sizeof outcome, "step %" PRId64 " has another %s than its record",
                 f->differs, f->differs_in);
    cli_triage_say(
        t, "replayed steps %" PRId64 " to %" PRId64 " from the checkpoint of step %" PRId64 ": %s",
        from + 1, to, from, outcome);
}

static bool same_bits(const cli_replayed *a, const cli_replayed *b)
{
    char loss[2][40], norm[2][40];
    return !strcmp(cli_hex(a->loss, loss[0]), cli_hex(b->loss, loss[1])) &&
           !strcmp(cli_hex(a->grad_norm, norm[0]), cli_hex(b->grad_norm, norm[1]));
}

/* Replays once more up to the step that differs. `first` is what the first replay gave. */
static bool replay_again(cli_triage *t, cli_replay *r, const cli_replayed *first)
{
    f8_triage *f = &t->found;
    cli_replayed second = *first;
    if (!cli_replay_load(r, f->checkpoint + 1) || !cli_replay_until(r, f->differs, &second))
        return false;
    f->unstable = !same_bits(first, &second);
    cli_triage_say(t, "replayed once more: %s", f->unstable ? "other bits" : "the same bits");
    return true;
}

/* How many threads a CPU's program runs on; 0: another target's. */
static int threads_of(const cli_replay *r)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(r->program, &info);
    return strncmp(fp8c_program_target(r->program), "cpu", 3) ? 0 : info.threads;
}

/* Replays on another number of threads: a CPU that then gives other bits is at fault. By now no
 * other program takes memory. */
static bool replay_on_other_threads(cli_triage *t)
{
    f8_triage *f = &t->found;
    cli own = *t->c;
    cli_replay r = cli_triage_replay(t);
    cli_replayed last;
    if (!t->threads || f->differs || f->wrong.known)
        return true;
    r.c = &own;
    f->threads = own.threads = t->threads == 1 ? 2 : 1;
    const bool ok = cli_replay_open(&r, &(cli_replay_as){0}) &&
                    cli_replay_load(&r, f->checkpoint + 1) &&
                    cli_replay_until(&r, f->step, &last);
    cli_replay_close(&r);
    if (!ok)
        return false;
    f->unstable = cli_triage_any_rank(t, !same_bits(&t->bad, &last));
    cli_triage_say(t, "on %d thread%s: %s", f->threads, f->threads == 1 ? "" : "s",
                   f->unstable ? "other bits" : "the same bits");
    return true;
}

/* Replays the steps before the checkpoint from older ones, while there is time: the state may have
 * gone wrong there. */
static bool look_back(cli_triage *t, cli_replay *r, cli_replayed *out)
{
    f8_triage *f = &t->found;
    const double start = f8_seconds_now();
    int64_t end = f->checkpoint;
    while (!f->differs && cli_triage_any_rank(t, f8_seconds_now() - start < SEARCH) &&
           cli_replay_load_older(r, end)) {
        const int64_t from = t->from = r->at;
        if (!replay_to(t, r, end, out, NULL))
            return false;
        say_replayed(t, from, r->at);
        end = from;
    }
    if (f->differs)
        f->checkpoint = end;
    return true;
}

static bool has_found(const cli_triage *t)
{
    const f8_triage *f = &t->found;
    return cli_triage_any_rank(t, f->wrong.known || *f->input);
}

/* Notes whether the checkpoint that was loaded has other bits than the record of its step, or a
 * variable that is bad. */
static bool look_at_checkpoint(cli_triage *t, cli_replay *r, bool *odd)
{
    f8_triage *f = &t->found;
    const cli_triage_step *s = cli_triage_step_at(t, r->at);
    f->checkpoint = r->at;
    if (!cli_triage_look_at_state(t, r))
        return false;
    if (s && r->same && !has_checksum(r, s)) {
        f->changed = r->at;
        cli_fingerprint_free(&t->changed);
        cli_fingerprint_variables(&t->changed, r->program);
    }
    *odd = cli_triage_any_rank(t, *f->state || f->changed == r->at);
    return true;
}

/* Loads the newest checkpoint before the bad step. If a scale has come back, the bad step is that
 * whose outlier has left the history, as long as there is a checkpoint from before it. */
static bool load_newest(cli_triage *t, cli_replay *r)
{
    const int64_t entered = t->alarm.raised - CLI_TRIAGE_HISTORY;
    if (*t->found.alarm && cli_triage_returns(t) && entered >= 1 &&
        cli_replay_load_older(r, entered)) {
        t->found.step = entered;
        return true;
    }
    return cli_replay_load(r, t->found.step);
}

/* Loads the newest checkpoint before the bad step; if something is odd in it, an older one, which
 * may be from before. */
static bool load(cli_triage *t, cli_replay *r)
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
        if (!cli_replay_load_older(r, newest))
            return cli_replay_load(r, newest + 1);
        if (!look_at_checkpoint(t, r, &odd))
            return false;
    }
    return true;
}

/* What update makes wrong shows in the next step: if nothing else does, that is replayed, too. */
static bool replay_beyond(cli_triage *t, cli_replay *r)
{
    cli_triage_step *next = cli_triage_step_at(t, t->found.step + 1);
    cli_replayed out;
    if (!next || !*next->loss_hex)
        return true;
    if (!replay_to(t, r, t->found.step + 1, &out, NULL))
        return false;
    t->bad = t->found.differs ? out : t->bad;
    return true;
}

/* Replays under a guard up to step `end`: the bad one, or a later one that has raised its alarm. A
 * guard does not look in each step, so the first step that is bad in the replay is the bad one. */
static bool replay_guarded(cli_triage *t, cli_replay *r, int64_t end, cli_replayed *last)
{
    f8_triage *f = &t->found;
    while (r->at < end && !f->differs) {
        bool bad = false, at_once;
        if (!replay_to(t, r, r->at + 1, last, &bad))
            return false;
        bad = r->at == f->step ? bad || cli_triage_is_far(t, last, &at_once)
                               : bad && r->at > f->step;
        if (r->at > f->step && bad && !f->replay_bad)
            f->step = r->at;
        if (r->at <= f->step || f->differs)
            t->bad = *last;
        f->replay_bad |= bad;
    }
    return true;
}

/* The step that raised the alarm of the bad one has it again, or else the device was wrong. */
static void compare_alarm(cli_triage *t, const cli_replay *r)
{
    f8_triage *f = &t->found;
    const bool gone = cli_triage_any_rank(t, !cli_triage_alarm_recurs(t, r));
    f->replay_bad |= !gone;
    if (gone) {
        f->differs = f->step;
        f->differs_in = f->differs_in ? f->differs_in : "alarm on another rank";
    }
}

/* Replays the run up to the bad step, beside its records and under a guard. */
static bool replay_run(cli_triage *t, cli_replay *r, cli_replayed *last)
{
    f8_triage *f = &t->found;
    if (!load(t, r) || !cli_triage_guard_begin(t, r))
        return false;
    const bool late = *f->alarm && t->alarm.raised > f->step && cli_triage_has_value(t);
    const int64_t from = t->from = r->at;
    if (!replay_guarded(t, r, late ? t->alarm.raised : f->step, last))
        return false;
    if (*f->alarm && !f->differs)
        compare_alarm(t, r);
    if (!f->differs && !f->replay_bad && !replay_beyond(t, r))
        return false;
    say_replayed(t, from, r->at);
    *last = t->bad;
    f->infinite = !last->finite;
    return true;
}

/* Judges the bad step. If a variable had NaN or Inf before it, the step before has made them. */
static bool judge_bad_step(cli_triage *t, cli_replay *r)
{
    f8_triage *f = &t->found;
    if (!judge(t, r, f->step, &f->wrong))
        return false;
    if (!f->infinite || f->wrong.known || !f->nonfinite.known || !*f->nonfinite_input ||
        f->step - 1 <= f->checkpoint ||
        fp8c_program_find_variable(r->program, f->nonfinite_input) < 0)
        return true;
    f->nonfinite = (f8_triage_value){0};
    return judge(t, r, f->step - 1, &f->wrong);
}

/* Replays the run, and judges what the device computed. */
static bool look_at_device(cli_triage *t, cli_replay *r)
{
    f8_triage *f = &t->found;
    cli_replayed last;
    const bool ok = replay_run(t, r, &last);
    cli_triage_guard_end(t);
    cli_fingerprint_free(&t->changed);
    if (!ok)
        return false;
    t->threads = threads_of(r);
    if (!f->differs &&
        (!judge_bad_step(t, r) || (!has_found(t) && !look_back(t, r, &last))))
        return false;
    return !f->differs || (replay_again(t, r, &last) && judge(t, r, f->differs, &f->wrong));
}

/* ---- ranks ---- */

/* What one rank has found. */
typedef struct told {
    int64_t judged;
    f8_triage_value wrong;
    char input[64], state[128], host[64];
    bool state_finite;
    int64_t state_at;
    double state_value, state_next;
    f8_triage_row row;
} told;

/* Finds the first rank whose device is wrong, else the first whose inputs or variables before the
 * step are not finite. All ranks then have what that rank has found. */
static bool gather(cli_triage *t)
{
    f8_triage *f = &t->found;
    cli_ranks *ranks = t->c->ranks;
    told mine = {.judged = f->judged,
                 .wrong = f->wrong,
                 .state_finite = f->state_finite,
                 .state_at = f->state_at,
                 .state_value = f->state_value,
                 .state_next = f->state_next,
                 .row = f->row};
    f->ranks = ranks ? ranks->comm.ranks : 1;
    f->rank = -1;
    if (!ranks)
        return true;
    cli_triage_copy_text(mine.input, sizeof mine.input, f->input);
    cli_triage_copy_text(mine.state, sizeof mine.state, f->state);
    if (gethostname(mine.host, sizeof mine.host - 1))
        mine.host[0] = 0;
    told *all = calloc((size_t)f->ranks, sizeof *all);
    if (!all)
        fprintf(stderr, "fp8c: error: out of memory\n");
    if (!all || !cli_ranks_gather(ranks, "what triage has found", &mine, all, sizeof mine)) {
        free(all);
        return false;
    }
    f->judged = 0;
    for (int i = 0; i < f->ranks; i++)
        f->judged += all[i].judged;
    for (int i = f->ranks; i-- > 0;) {
        const bool odd = all[i].wrong.known || *all[i].input || *all[i].state;
        if (!odd || (f->rank >= 0 && all[f->rank].wrong.known && !all[i].wrong.known))
            continue;
        f->rank = i;
        f->wrong = all[i].wrong;
        cli_triage_copy_text(f->input, sizeof f->input, all[i].input);
        cli_triage_copy_text(f->state, sizeof f->state, all[i].state);
        cli_triage_copy_text(f->host, sizeof f->host, all[i].host);
        f->state_finite = all[i].state_finite;
        f->state_at = all[i].state_at;
        f->state_value = all[i].state_value;
        f->state_next = all[i].state_next;
        f->row = all[i].row;
    }
    free(all);
    return true;
}

/* Finds the first step from `first` to f->began that has a wrong value. It halves the steps in
 * between, as a device that is wrong is assumed to stay so. */
static bool halve(cli_triage *t, cli_replay *r, int64_t first, double start)
{
    f8_triage *f = &t->found;
    while (first < f->began && cli_triage_any_rank(t, f8_seconds_now() - start < SEARCH)) {
        f8_triage_value own = {0};
        const int64_t middle = first + (f->began - first) / 2;
        if (!judge(t, r, middle, &own))
            return false;
        if (!cli_triage_any_rank(t, own.known)) {
            first = middle + 1;
            continue;
        }
        f->began = middle;
        if (own.known)
            f->wrong = own;
    }
    return true;
}

/* The first step in which a value is wrong, as far as there are checkpoints and time. */
static bool find_begin(cli_triage *t, cli_replay *r)
{
    f8_triage *f = &t->found;
    const double start = f8_seconds_now();
    int64_t from = f->checkpoint;
    f->began = f->differs ? f->differs : f->step;
    while (halve(t, r, from + 1, start)) {
        if (f->began > from + 1 || !cli_triage_any_rank(t, f8_seconds_now() - start < SEARCH) ||
            !cli_replay_load_older(r, from))
            return true;
        from = r->at;
    }
    return false;
}

/* Whether the device computes a wrong value under bf16, too. */
static bool look_at_bf16(cli_triage *t)
{
    cli_replay r = cli_triage_replay(t);
    f8_triage_value own = {0};
    if (!t->found.wrong.known || !strcmp(t->c->recipe, "bf16"))
        return true;
    const bool ok = cli_replay_open(&r, &(cli_replay_as){.recipe = "bf16", .witness = true}) &&
                    judge(t, &r, t->found.step, &own);
    cli_replay_close(&r);
    if (!ok)
        return false;
    t->found.wrong_in_bf16 = own;
    t->found.wrong_in_bf16.known = cli_triage_any_rank(t, own.known);
    cli_triage_say(t, "under bf16 the same step has %s",
                   t->found.wrong_in_bf16.known ? "a wrong value, too" : "no wrong value");
    return true;
}

bool cli_triage_device(cli_triage *t)
{
    cli_replay r = cli_triage_replay(t);
    r.quiet = false; /* for the first load */
    bool ok = cli_replay_open(&r, &(cli_replay_as){.witness = true,
                                                  .stats = cli_triage_stats(t)}) &&
              cli_folder_fits(&t->folder, r.ctx, r.program, &t->data) && look_at_device(t, &r);
    if (ok && cli_triage_any_rank(t, t->found.wrong.known))
        ok = find_begin(t, &r);
    cli_replay_close(&r);
    if (!ok || !gather(t))
        return false;
    cli_triage_say(t, "step %" PRId64 ": %" PRId64 " values judged on their own inputs: %s",
                   t->found.differs ? t->found.differs : t->found.step, t->found.judged,
                   t->found.wrong.known ? "one is wrong" : "all are right");
    return look_at_bf16(t) && replay_on_other_threads(t);
}
