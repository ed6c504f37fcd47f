/* What heals a bad step: see search.h. */
#include "frontend/diagnose/triage/search.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/base/clock.h"
#include "ir/base/type.h"

/* ---- numerics ---- */

enum { BEYOND = 20 };   /* more steps that a trial trains, since it may go wrong only later */
enum { EXCHANGED = 3 }; /* batches, at most */
enum { SEARCH = 60 };   /* seconds after which rates are tried from no older checkpoint */

/* Steps that get another batch: the one that is `ahead` batches later. */
typedef struct exchanged {
    int64_t step[EXCHANGED];
    int n;
    int64_t ahead;
} exchanged;

static int64_t batch_of(const exchanged *other, int64_t step)
{
    for (int i = 0; other && i < other->n; i++)
        if (other->step[i] == step)
            return step + other->ahead;
    return 0;
}

/* Replays the steps under other conditions from the same checkpoint, and `beyond` more, until one
 * is bad. `other` may be NULL. */
static bool run_trial(f8_triage_search *t, f8_replay *r, const exchanged *other, int beyond,
                      f8_triage_trial *out)
{
    f8_triage *f = &t->found;
    f8_replayed now = {0};
    bool bad = false, ok = ((t->earlier && f8_replay_load_older(r, t->earlier)) ||
                            f8_replay_load(r, f->checkpoint + 1)) &&
                           f8_triage_guard_begin(t, r);
    const int64_t from = r->at;
    while (ok && r->at < f->step + beyond && !bad)
        ok = f8_replay_step(r, batch_of(other, r->at + 1), NULL, &now) &&
             f8_triage_guard_step(t, r, &now, &bad);
    t->too_late = bad && r->at == from + 1 ? from : 0;
    t->began_at = from;
    f8_triage_guard_end(t);
    *out = (f8_triage_trial){out->what, true, bad, now.loss, r->at - t->far_ago};
    return ok;
}

/* Keeps a trial, and says how it ended. */
static bool keep_trial(f8_triage_search *t, const f8_triage_trial *trial)
{
    f8_triage *f = &t->found;
    if (f->n_trials == F8_TRIAGE_TRIALS)
        return false;
    f->trial[f->n_trials++] = *trial;
    f8_triage_say(t, "with %s: %s, loss %.4f at step %" PRId64, trial->what,
                  trial->bad ? "bad" : "good", isnan(trial->loss) ? NAN : trial->loss,
                  trial->step); /* a NaN without its sign */
    return true;
}

/* A trial under other conditions. Where the alarm is of a statistic, every step has them. */
static bool try_as(f8_triage_search *t, const char *what, const f8_replay_as *as,
                   const exchanged *other)
{
    f8_replay r = f8_triage_replay(t);
    f8_replay_as own = *as;
    f8_triage_trial trial = {.what = what};
    own.stats = f8_triage_stats(t);
    own.every = 1;
    const bool ok = f8_replay_open(&r, &own) && run_trial(t, &r, other, BEYOND, &trial);
    f8_replay_close(&r);
    return ok && keep_trial(t, &trial);
}

/* Tries other batches. Rows of a file come again, so a bad row may make a later step bad: that gets
 * another batch, too. The other batch may have the bad row itself, so two are tried. */
static bool try_batches(f8_triage_search *t)
{
    f8_triage *f = &t->found;
    exchanged other = {{f->step}, 1, F8_TRIAGE_FAR};
    const char *what = "another batch";
    for (;; what = "other batches") {
        if (!try_as(t, what, &(f8_replay_as){0}, &other))
            return false;
        f8_triage_trial *trial = &f->trial[f->n_trials - 1];
        const bool again = batch_of(&other, trial->step) != 0;
        trial->what = "another batch";
        if (!trial->bad || (again ? other.ahead > F8_TRIAGE_FAR : other.n == EXCHANGED))
            return true;
        if (again)
            other.ahead += F8_TRIAGE_FAR;
        else
            other.step[other.n++] = trial->step;
        f->n_trials--;
    }
}

/* ---- rows ---- */

/* Rows that get those of other places. */
typedef struct left_out {
    f8_triage_search *t;
    bool by_size;     /* those that stand out, in each batch from the bad step on; or else */
    int64_t first, n; /* rows of the bad step, counted over its micro-steps */
    int64_t found;    /* rows of the bad step that were left out */
} left_out;

static bool is_left_out(left_out *l, const f8_replay *r, int function, int64_t step, uint64_t batch,
                        int64_t row)
{
    const int64_t bad = l->t->found.step;
    const int64_t at = ((int64_t)batch - (bad - 1) * r->accumulate) * f8_data_rows(r->data) + row;
    if (l->by_size)
        return step >= bad && f8_triage_stands_out(l->t, r, function, row);
    return step == bad && at >= l->first && at < l->first + l->n;
}

enum { MOST_TRIES = 64 }; /* rows that are tried in the place of one that is left out */

/* An alter of f8_replay. */
static bool leave_out(f8_replay *r, int function, int64_t step, uint64_t batch, void *user)
{
    left_out *l = user;
    for (int64_t row = 0; row < f8_data_rows(r->data); row++) {
        uint64_t from = batch + F8_TRIAGE_FAR;
        bool out = is_left_out(l, r, function, step, batch, row);
        l->found += out && step == l->t->found.step;
        for (int i = 0; out && i < MOST_TRIES; i++, from++) {
            const uint64_t place = f8_data_place(r->data, r->t->options->seed, from, row);
            if (!f8_replay_put(r, function, place, row))
                return false;
            out = l->by_size && f8_triage_stands_out(l->t, r, function, row);
        }
    }
    return true;
}

/* The trial without them. */
static bool try_row(f8_triage_search *t, f8_replay *r, bool *healed)
{
    left_out without = {.t = t, .by_size = true};
    f8_triage_trial trial = {.what = F8_TRIAGE_ROW};
    r->alter = leave_out;
    r->user = &without;
    int64_t found[F8_MAX_RANKS];
    const bool ok = run_trial(t, r, NULL, BEYOND, &trial) && keep_trial(t, &trial) &&
                    f8_train_gather(t->t, "rows", &without.found, found, sizeof *found);
    r->alter = NULL;
    for (int i = 0; ok && t->t->ranks && i < t->t->ranks->comm.ranks; i++)
        without.found += i == t->t->ranks->comm.rank ? 0 : found[i];
    t->found.row.others = without.found - 1;
    *healed = ok && !trial.bad;
    return ok;
}

/* Finds the only row without which the step is good, by halves. None stands out by its size. No
 * later step is looked at, as the row may come again; so the step must be bad by itself. */
static bool halve_rows(f8_triage_search *t, f8_replay *r)
{
    const int64_t B = f8_data_rows(r->data);
    left_out without = {.t = t};
    f8_triage_trial trial = {.what = F8_TRIAGE_ROW};
    r->alter = leave_out;
    r->user = &without;
    bool ok = run_trial(t, r, NULL, 0, &trial);
    without.n = trial.bad ? B * r->accumulate : 0;
    while (ok && without.n > 1) {
        const int64_t all = without.n;
        without.n = all / 2;
        ok = run_trial(t, r, NULL, 0, &trial);
        if (!ok || !trial.bad)
            continue;
        without.first += all / 2;
        without.n = all - all / 2;
        ok = run_trial(t, r, NULL, 0, &trial);
        if (trial.bad) /* there are several */
            break;
    }
    r->alter = NULL;
    if (ok && without.n == 1 && !trial.bad) {
        const int64_t first = (t->found.step - 1) * r->accumulate;
        t->found.row = (f8_triage_row){.rank = -1};
        f8_triage_note_row(t, (uint64_t)(first + without.first / B), without.first % B);
        return keep_trial(t, &trial);
    }
    return ok;
}

/* Tries the step without the rows that stand out by their size. The row that one rank has now
 * another one has in a later step, so all look for what is as large. */
static bool try_by_size(f8_triage_search *t, f8_replay *r, bool *healed)
{
    return f8_triage_find_row(t, r) && f8_triage_share_row(t) &&
           (!t->found.row.known || try_row(t, r, healed));
}

/* Names the row that makes the step bad, if one alone does. */
static bool look_at_rows(f8_triage_search *t, bool by_size, bool *healed)
{
    f8_replay r = f8_triage_replay(t);
    *healed = false;
    if (!by_size && t->t->ranks) /* no rank has all rows to halve */
        return true;
    const bool ok = f8_replay_open(&r, &(f8_replay_as){.stats = f8_triage_stats(t), .every = 1}) &&
                    (by_size ? try_by_size(t, &r, healed) : halve_rows(t, &r));
    f8_replay_close(&r);
    return ok;
}

/* ---- FP8 ---- */

/* The SQNR less a penalty for elements that saturate or become 0: large elements that stay can hide
 * these from the SQNR. Operands of zeros have none, and lose nothing. */
static double quality_of(const fp8c_statistic *s)
{
    return isnan(s->sqnr) ? INFINITY : s->sqnr - 1000 * s->overflow - 100 * s->underflow;
}

/* Finds the operand that FP8 takes worst, by the statistics of the bad step. */
static bool find_operand(f8_triage_search *t)
{
    f8_triage *f = &t->found;
    f8_replay r = f8_triage_replay(t);
    fp8c_statistic s = {.struct_size = sizeof s};
    f8_replayed out;
    double worst = INFINITY;
    const bool ok = f8_replay_open(&r, &(f8_replay_as){.stats = "*", .every = 1}) &&
                    f8_replay_load(&r, f->checkpoint + 1) && f8_replay_until(&r, f->step, &out);
    for (int i = 0; ok && fp8c_program_statistic(r.program, r.function, i, &s) == FP8C_OK; i++) {
        const double quality = quality_of(&s);
        if (!s.recipe || s.nonfinite || quality >= worst)
            continue;
        worst = quality;
        f8_triage_copy_text(f->operand, sizeof f->operand, s.name);
        f8_triage_copy_text(f->linear, sizeof f->linear, s.linear);
        f->sqnr = s.sqnr;
        f->overflow = s.overflow;
        f->underflow = s.underflow;
    }
    f8_replay_close(&r);
    return ok;
}

static bool find_cure(f8_triage_search *t)
{
    static const char *const recipes[] = {"current", "rowwise", "block"};
    char rule[160], fake[276];
    snprintf(fake, sizeof fake, "%s {fake = true}", t->t->options->recipe);
    if (!find_operand(t) ||
        (!strchr(t->t->options->recipe, '{') && strcmp(t->t->options->recipe, "fake") &&
         !try_as(t, "fake", &(f8_replay_as){.recipe = fake}, NULL)))
        return false;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        if (!strcmp(recipes[i], t->t->options->recipe))
            continue;
        if (!try_as(t, recipes[i], &(f8_replay_as){.recipe = recipes[i]}, NULL))
            return false;
        if (f8_triage_is_good(&t->found, recipes[i]))
            return true;
    }
    if (!*t->found.linear)
        return true;
    snprintf(rule, sizeof rule, "\"%s\" = bf16", t->found.linear);
    return try_as(t, F8_TRIAGE_LINEAR, &(f8_replay_as){.rule = rule}, NULL);
}

/* The rate that the schedule multiplies, if --lr did not give it: the highest of the records. */
static double highest_rate(const f8_triage_search *t)
{
    double rate = t->t->options->lr;
    for (int64_t s = 0; s < t->n_steps && !(t->t->options->lr > 0); s++)
        rate = fmax(rate, t->step[s].lr);
    return rate;
}

enum { FEW_RATES = 3 }; /* so many are tried from each checkpoint, more from the first one */

/* Tries lower rates under bf16 until one is good. */
static bool try_rates_once(f8_triage_search *t)
{
    const double rate = highest_rate(t);
    for (size_t i = 0; i < F8_TRIAGE_N_RATES; i++) {
        const f8_triage_rate *to = &f8_triage_rates[i];
        if (i >= FEW_RATES && (t->too_late || !t->found.from_start))
            return true;
        if (!try_as(t, to->what, &(f8_replay_as){.recipe = "bf16", .lr = rate / to->divisor}, NULL))
            return false;
        t->found.from_start = t->began_at == 0;
        if (f8_triage_is_good(&t->found, to->what))
            return true;
    }
    return true;
}

/* A lower rate can't change the loss of the first step after a checkpoint, nor heal what the run's
 * rate has done before it. So while none is good, they are tried from older checkpoints, down to
 * the first. */
static bool try_rates(f8_triage_search *t)
{
    const size_t before = t->found.n_trials;
    const double start = f8_seconds_now();
    bool ok = try_rates_once(t);
    while (ok && t->found.trial[t->found.n_trials - 1].bad && !t->found.from_start &&
           f8_triage_any_rank(t, f8_seconds_now() - start < SEARCH)) {
        const int64_t began = t->began_at;
        t->earlier = began;
        t->found.n_trials = before;
        f8_triage_say(t, "no rate is good from step %" PRId64 " on: trying from before it", began);
        ok = try_rates_once(t);
        if (t->began_at >= began) /* there is no older checkpoint */
            break;
    }
    t->earlier = 0;
    return ok;
}

/* What of the data heals the step: *healed. */
static bool try_data(f8_triage_search *t, bool *healed)
{
    bool whole;
    if (!look_at_rows(t, true, healed) || *healed)
        return *healed;
    if (!try_batches(t))
        return false;
    *healed = f8_triage_is_good(&t->found, "another batch");
    return !*healed || look_at_rows(t, false, &whole);
}

static bool try_epsilon(f8_triage_search *t)
{
    return !(t->found.eps > 0) || t->found.eps >= F8_TRIAGE_EPS ||
           try_as(t, F8_TRIAGE_LARGER_EPSILON, &(f8_replay_as){.eps = F8_TRIAGE_EPS}, NULL);
}

/* A scale that came back, where no checkpoint is from before its outlier entered the history: the
 * batch of that step can still be looked at. */
static bool look_at_entered(f8_triage_search *t)
{
    f8_triage *f = &t->found;
    const int64_t step = f->step, entered = t->alarm.raised - F8_TRIAGE_HISTORY;
    f8_replay r = f8_triage_replay(t);
    if (!*f->alarm || !f8_triage_returns(t) || entered < 1 || step == entered || t->t->ranks)
        return true;
    f->step = entered;
    const bool ok = f8_replay_open(&r, &(f8_replay_as){0}) && f8_triage_find_row(t, &r);
    f8_replay_close(&r);
    f->entered = ok && f->row.known;
    f->step = f->entered ? entered : step;
    return ok;
}

/* Runs trials until one heals the step, if the device is right and the replay is bad, too. */
bool f8_triage_trials(f8_triage_search *t)
{
    const f8_triage *f = &t->found;
    bool healed;
    if (f->unstable || f->wrong.known || f->differs || f->changed || *f->input || !f->replay_bad ||
        (*f->state && !f->state_finite))
        return true;
    if (!look_at_entered(t))
        return false;
    if (f->entered)
        return true;
    if (!try_data(t, &healed))
        return false;
    if (healed || *f->state)
        return true;
    if (!try_epsilon(t))
        return false;
    if (f8_triage_is_good(f, F8_TRIAGE_LARGER_EPSILON))
        return true;
    if (!try_as(t, "bf16", &(f8_replay_as){.recipe = "bf16"}, NULL))
        return false;
    if (f8_triage_is_good(f, "bf16") && f8_triage_is_fp8(t->t->options->recipe))
        return find_cure(t);
    if (!try_rates(t))
        return false;
    /* f32 comes last, because it takes more memory than the run */
    return !f->trial[f->n_trials - 1].bad ||
           try_as(t, "f32", &(f8_replay_as){.recipe = "f32"}, NULL);
}
