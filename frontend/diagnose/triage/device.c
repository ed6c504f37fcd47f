/* What the device did in a bad step: replays beside the records, and the witness. See search.h.
 */
#include "frontend/diagnose/triage/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/run/number.h"
#include "ir/base/clock.h"

/* ---- the device ---- */

/* The first input of a micro-step that is not finite; *found has no tensor if there is none. */
static bool find_input(f8_replay *r, uint64_t batch, fp8c_found *found)
{
    *found = (fp8c_found){.struct_size = sizeof *found};
    if (!f8_replay_fill(r, r->micro_step, batch))
        return false;
    if (!f8_train_ok(r->t, r->ctx,
                     fp8c_program_find_nonfinite(r->program, r->micro_step, 0, found)))
        return false;
    if (found->tensor && strcmp(found->role, "input") != 0)
        found->tensor = NULL;
    return true;
}

/* Notes an input that is not finite before the step that comes next, and its row. If it is so in
 * the step before, too, which is good, it is meant, as -Inf is in a mask. */
static bool look_for_nonfinite(f8_triage_search *t, f8_replay *r)
{
    fp8c_found before = {0}, found;
    fp8c_port port;
    f8_triage *f = &t->found;
    for (int64_t a = 0; a < r->accumulate && !*f->input; a++) {
        const uint64_t batch = (uint64_t)(r->at * r->accumulate + a);
        if ((r->at && !find_input(r, batch - (uint64_t)r->accumulate, &before)) ||
            !find_input(r, batch, &found))
            return false;
        if (!found.tensor || (before.tensor && !strcmp(before.tensor, found.tensor)))
            continue;
        f8_triage_copy_text(f->input, sizeof f->input, found.tensor);
        const int at = fp8c_program_find_port(r->program, r->micro_step, FP8C_INPUT, found.tensor);
        if (fp8c_program_port(r->program, r->micro_step, FP8C_INPUT, at, &port) != FP8C_OK)
            continue;
        f8_triage_copy_text(f->row.input, sizeof f->row.input, found.tensor);
        f8_triage_note_row(t, batch, found.index / (found.elements / port.type.dim[0]));
    }
    return true;
}

static void see_value(void *user, const fp8c_witnessed *v)
{
    f8_triage_search *t = user;
    const fp8c_program *p = t->watched->program;
    t->found.judged += v->verdict != FP8C_NOT_JUDGED && t->wrong == &t->found.wrong;
    if (v->verdict == FP8C_WRONG)
        f8_triage_note_value(t->wrong, p, v);
    if (t->wrong != &t->found.wrong) /* another recipe than the run's */
        return;
    if (v->nonfinite && !t->found.nonfinite.known) {
        f8_triage_note_value(&t->found.nonfinite, p, v);
        t->found.nonfinite.at = v->nonfinite_at;
        f8_triage_copy_text(t->found.nonfinite_input, sizeof t->found.nonfinite_input,
                            v->nonfinite_input);
        f8_triage_copy_text(t->found.nonfinite_op, sizeof t->found.nonfinite_op, v->nonfinite_op);
    }
}

/* Replays a step once more with a witness, which judges its values. `wrong` gets the first wrong
 * one. */
static bool judge(f8_triage_search *t, f8_replay *r, int64_t step, f8_triage_value *wrong)
{
    const f8_replay_watch watch = {.judge = true, .value = see_value, .user = t};
    f8_replayed out;
    if (!f8_replay_load(r, step))
        return false;
    if (!f8_replay_until(r, step - 1, &out))
        return false;
    t->watched = r;
    t->wrong = wrong;
    if (wrong == &t->found.wrong)
        t->found.judged = 0;
    if (step == t->found.step && wrong == &t->found.wrong && !t->found.differs &&
        t->found.replay_bad && !look_for_nonfinite(t, r))
        return false;
    return f8_replay_step(r, 0, &watch, &out);
}

enum { SEARCH = 60 }; /* seconds after which no more steps are looked at */

static bool same_bits(const f8_replayed *a, const f8_replayed *b)
{
    char loss[2][40], norm[2][40];
    return !strcmp(f8_hex(a->loss, loss[0]), f8_hex(b->loss, loss[1])) &&
           !strcmp(f8_hex(a->grad_norm, norm[0]), f8_hex(b->grad_norm, norm[1]));
}

/* Replays once more up to the step that differs. `first` is what the first replay gave. */
static bool replay_again(f8_triage_search *t, f8_replay *r, const f8_replayed *first)
{
    f8_triage *f = &t->found;
    f8_replayed second = *first;
    if (!f8_replay_load(r, f->checkpoint + 1) || !f8_replay_until(r, f->differs, &second))
        return false;
    f->unstable = !same_bits(first, &second);
    f8_triage_say(t, "replayed once more: %s", f->unstable ? "other bits" : "the same bits");
    return true;
}

/* How many threads a CPU's program runs on; 0: another target's. */
static int threads_of(const f8_replay *r)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(r->program, &info);
    return strncmp(fp8c_program_target(r->program), "cpu", 3) ? 0 : info.threads;
}

/* Replays on another number of threads: a CPU that then gives other bits is at fault. By now no
 * other program takes memory. */
static bool replay_on_other_threads(f8_triage_search *t)
{
    f8_triage *f = &t->found;
    f8_train own = *t->t;
    f8_train_options options = *own.options;
    f8_replay r = f8_triage_replay(t);
    f8_replayed last;
    if (!t->threads || f->differs || f->wrong.known)
        return true;
    own.options = &options;
    r.t = &own;
    f->threads = options.threads = t->threads == 1 ? 2 : 1;
    const bool ok = f8_replay_open(&r, &(f8_replay_as){0}) &&
                    f8_replay_load(&r, f->checkpoint + 1) && f8_replay_until(&r, f->step, &last);
    f8_replay_close(&r);
    if (!ok)
        return false;
    f->unstable = f8_triage_any_rank(t, !same_bits(&t->bad, &last));
    f8_triage_say(t, "on %d thread%s: %s", f->threads, f->threads == 1 ? "" : "s",
                  f->unstable ? "other bits" : "the same bits");
    return true;
}

/* Replays the steps before the checkpoint from older ones, while there is time: the state may have
 * gone wrong there. */
static bool look_back(f8_triage_search *t, f8_replay *r, f8_replayed *out)
{
    f8_triage *f = &t->found;
    const double start = f8_seconds_now();
    int64_t end = f->checkpoint;
    while (!f->differs && f8_triage_any_rank(t, f8_seconds_now() - start < SEARCH) &&
           f8_replay_load_older(r, end)) {
        const int64_t from = t->from = r->at;
        if (!f8_triage_replay_to(t, r, end, out, NULL))
            return false;
        f8_triage_say_replayed(t, from, r->at);
        end = from;
    }
    if (f->differs)
        f->checkpoint = end;
    return true;
}

static bool has_found(const f8_triage_search *t)
{
    const f8_triage *f = &t->found;
    return f8_triage_any_rank(t, f->wrong.known || *f->input);
}

/* Judges the bad step. If a variable had NaN or Inf before it, the step before has made them. */
static bool judge_bad_step(f8_triage_search *t, f8_replay *r)
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
static bool look_at_device(f8_triage_search *t, f8_replay *r)
{
    f8_triage *f = &t->found;
    f8_replayed last;
    const bool ok = f8_triage_replay_run(t, r, &last);
    f8_triage_guard_end(t);
    f8_fingerprint_free(&t->changed);
    if (!ok)
        return false;
    t->threads = threads_of(r);
    if (!f->differs && (!judge_bad_step(t, r) || (!has_found(t) && !look_back(t, r, &last))))
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
static bool gather(f8_triage_search *t)
{
    f8_triage *f = &t->found;
    f8_ranks *ranks = t->t->ranks;
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
    f8_triage_copy_text(mine.input, sizeof mine.input, f->input);
    f8_triage_copy_text(mine.state, sizeof mine.state, f->state);
    if (gethostname(mine.host, sizeof mine.host - 1))
        mine.host[0] = 0;
    told *all = calloc((size_t)f->ranks, sizeof *all);
    if (!all)
        f8_train_no_memory(t->t);
    if (!all || !f8_train_gather(t->t, "what triage has found", &mine, all, sizeof mine)) {
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
        f8_triage_copy_text(f->input, sizeof f->input, all[i].input);
        f8_triage_copy_text(f->state, sizeof f->state, all[i].state);
        f8_triage_copy_text(f->host, sizeof f->host, all[i].host);
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
static bool halve(f8_triage_search *t, f8_replay *r, int64_t first, double start)
{
    f8_triage *f = &t->found;
    while (first < f->began && f8_triage_any_rank(t, f8_seconds_now() - start < SEARCH)) {
        f8_triage_value own = {0};
        const int64_t middle = first + (f->began - first) / 2;
        if (!judge(t, r, middle, &own))
            return false;
        if (!f8_triage_any_rank(t, own.known)) {
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
static bool find_begin(f8_triage_search *t, f8_replay *r)
{
    f8_triage *f = &t->found;
    const double start = f8_seconds_now();
    int64_t from = f->checkpoint;
    f->began = f->differs ? f->differs : f->step;
    while (halve(t, r, from + 1, start)) {
        if (f->began > from + 1 || !f8_triage_any_rank(t, f8_seconds_now() - start < SEARCH) ||
            !f8_replay_load_older(r, from))
            return true;
        from = r->at;
    }
    return false;
}

/* Whether the device computes a wrong value under bf16, too. */
static bool look_at_bf16(f8_triage_search *t)
{
    f8_replay r = f8_triage_replay(t);
    f8_triage_value own = {0};
    if (!t->found.wrong.known || !strcmp(t->t->options->recipe, "bf16"))
        return true;
    const bool ok = f8_replay_open(&r, &(f8_replay_as){.recipe = "bf16", .witness = true}) &&
                    judge(t, &r, t->found.step, &own);
    f8_replay_close(&r);
    if (!ok)
        return false;
    t->found.wrong_in_bf16 = own;
    t->found.wrong_in_bf16.known = f8_triage_any_rank(t, own.known);
    f8_triage_say(t, "under bf16 the same step has %s",
                  t->found.wrong_in_bf16.known ? "a wrong value, too" : "no wrong value");
    return true;
}

bool f8_triage_device(f8_triage_search *t)
{
    f8_replay r = f8_triage_replay(t);
    r.quiet = false; /* for the first load */
    bool ok = f8_replay_open(&r, &(f8_replay_as){.witness = true, .stats = f8_triage_stats(t)}) &&
              f8_folder_fits(&t->folder, r.ctx, r.program, &t->data) && look_at_device(t, &r);
    if (ok && f8_triage_any_rank(t, t->found.wrong.known))
        ok = find_begin(t, &r);
    f8_replay_close(&r);
    if (!ok || !gather(t))
        return false;
    f8_triage_say(t, "step %" PRId64 ": %" PRId64 " values judged on their own inputs: %s",
                  t->found.differs ? t->found.differs : t->found.step, t->found.judged,
                  t->found.wrong.known ? "one is wrong" : "all are right");
    return look_at_bf16(t) && replay_on_other_threads(t);
}
