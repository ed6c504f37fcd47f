/* What heals a bad step: see cmd_triage.h. */
#include "frontend/cli/cmd_triage.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- numerics ---- */

enum { BEYOND = 20 };   /* more steps that a trial trains, since it may go wrong only later */
enum { EXCHANGED = 3 }; /* batches, at most */

enum { FAR = 1000003 }; /* batches ahead */

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

/* A trial: trains the same steps from the same checkpoint under other conditions, and BEYOND more.
 * `other` may be NULL. */
static bool try_as(cli_triage *t, const char *what, const cli_replay_as *as, const exchanged *other)
{
    f8_triage *f = &t->found;
    cli_replay r = cli_triage_replay(t);
    cli_replayed out = {0};
    bool bad = false,
         ok = cli_replay_open(&r, as) && ((t->earlier && cli_replay_load_older(&r, t->earlier)) ||
                                          cli_replay_load(&r, f->step));
    const int64_t from = r.at;
    while (ok && r.at < f->step + BEYOND && !bad) {
        ok = cli_replay_step(&r, batch_of(other, r.at + 1), NULL, &out);
        bad = ok && cli_triage_is_bad(t, &out);
    }
    const int64_t last = r.at;
    t->too_late = bad && last == from + 1 ? from : 0;
    cli_replay_close(&r);
    if (!ok || f->n_trials == F8_TRIAGE_TRIALS)
        return false;
    f->trial[f->n_trials++] = (f8_triage_trial){what, true, bad, out.loss, last};
    cli_triage_say(t, "with %s: %s, loss %.4f at step %" PRId64, what, bad ? "bad" : "good",
                   isnan(out.loss) ? NAN : out.loss, last); /* a NaN without its sign */
    return true;
}

/* Tries other batches. Rows of a file come again, so a bad row may make a later step bad: that gets
 * another batch, too. The other batch may have the bad row itself, so two are tried. */
static bool try_batches(cli_triage *t)
{
    f8_triage *f = &t->found;
    exchanged other = {{f->step}, 1, FAR};
    const char *what = "another batch";
    for (;; what = "other batches") {
        if (!try_as(t, what, &(cli_replay_as){0}, &other))
            return false;
        f8_triage_trial *trial = &f->trial[f->n_trials - 1];
        const bool again = batch_of(&other, trial->step) != 0;
        trial->what = "another batch";
        if (!trial->bad || (again ? other.ahead > FAR : other.n == EXCHANGED))
            return true;
        if (again)
            other.ahead += FAR;
        else
            other.step[other.n++] = trial->step;
        f->n_trials--;
    }
}

/* The SQNR less a penalty for elements that saturate or become 0: large elements that stay can hide
 * these from the SQNR. */
static double quality_of(const fp8c_statistic *s)
{
    return isfinite(s->sqnr) ? s->sqnr - 1000 * s->overflow - 100 * s->underflow : -INFINITY;
}

/* Finds the operand that FP8 takes worst, by the statistics of the bad step. */
static bool find_operand(cli_triage *t)
{
    f8_triage *f = &t->found;
    cli_replay r = cli_triage_replay(t);
    fp8c_statistic s = {.struct_size = sizeof s};
    cli_replayed out;
    double worst = INFINITY;
    bool ok = cli_replay_open(&r, &(cli_replay_as){.stats = "*"}) && cli_replay_load(&r, f->step) &&
              cli_replay_until(&r, f->step - 1, &out);
    r.micro_step = ok ? fp8c_program_function(r.program, "micro_step.stats") : -1;
    ok = ok && r.micro_step >= 0 && cli_replay_step(&r, 0, NULL, &out);
    for (int i = 0; ok && fp8c_program_statistic(r.program, r.micro_step, i, &s) == FP8C_OK; i++) {
        const double quality = quality_of(&s);
        if (!s.recipe || s.nonfinite || quality >= worst)
            continue;
        worst = quality;
        cli_triage_copy_text(f->operand, sizeof f->operand, s.name);
        cli_triage_copy_text(f->linear, sizeof f->linear, s.linear);
        f->sqnr = s.sqnr;
        f->overflow = s.overflow;
        f->underflow = s.underflow;
    }
    cli_replay_close(&r);
    return ok;
}

static bool find_cure(cli_triage *t)
{
    static const char *const recipes[] = {"current", "rowwise", "block"};
    char rule[160], fake[CLI_RECIPE + 20];
    snprintf(fake, sizeof fake, "%s {fake = true}", t->c->recipe);
    if (!find_operand(t) || (!strchr(t->c->recipe, '{') && strcmp(t->c->recipe, "fake") &&
                             !try_as(t, "fake", &(cli_replay_as){.recipe = fake}, NULL)))
        return false;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        if (!strcmp(recipes[i], t->c->recipe))
            continue;
        if (!try_as(t, recipes[i], &(cli_replay_as){.recipe = recipes[i]}, NULL))
            return false;
        if (f8_triage_is_good(&t->found, recipes[i]))
            return true;
    }
    if (!*t->found.linear)
        return true;
    snprintf(rule, sizeof rule, "\"%s\" = bf16", t->found.linear);
    return try_as(t, F8_TRIAGE_LINEAR, &(cli_replay_as){.rule = rule}, NULL);
}

/* The rate that the schedule multiplies, if --lr did not give it: the highest of the records. */
static double highest_rate(const cli_triage *t)
{
    double rate = t->c->lr;
    for (int64_t s = 0; s < t->n_steps && !(t->c->lr > 0); s++)
        rate = fmax(rate, t->step[s].lr);
    return rate;
}

/* Tries lower rates under bf16 until one is good. */
static bool try_rates_once(cli_triage *t)
{
    static const char *const what[] = {"lr / 4", "lr / 16", "lr / 64"};
    double rate = highest_rate(t);
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        rate /= 4;
        if (!try_as(t, what[i], &(cli_replay_as){.recipe = "bf16", .lr = rate}, NULL))
            return false;
        if (f8_triage_is_good(&t->found, what[i]))
            return true;
    }
    return true;
}

/* A lower rate can't change the loss of the first step after a checkpoint. If that is bad, the
 * rates are tried from older checkpoints. */
static bool try_rates(cli_triage *t)
{
    const size_t before = t->found.n_trials;
    bool ok = try_rates_once(t);
    while (ok && t->too_late > 0 && (!t->earlier || t->too_late < t->earlier)) {
        t->earlier = t->too_late;
        t->found.n_trials = before;
        cli_triage_say(
            t,
            "the first step after the checkpoint is bad already: trying from one before step "
            "%" PRId64,
            t->earlier);
        ok = try_rates_once(t);
    }
    t->earlier = 0;
    return ok;
}

/* Runs trials until one heals the step, if the device is right and the replay is bad, too. */
bool cli_triage_trials(cli_triage *t)
{
    const f8_triage *f = &t->found;
    if (f->unstable || f->wrong.known || f->differs || *f->input || *f->state || !f->replay_bad)
        return true;
    if (!try_batches(t))
        return false;
    if (f8_triage_is_good(&t->found, "another batch"))
        return true;
    if (!try_as(t, "bf16", &(cli_replay_as){.recipe = "bf16"}, NULL))
        return false;
    if (f8_triage_is_good(f, "bf16") && f8_triage_is_fp8(t->c->recipe))
        return find_cure(t);
    if (!try_rates(t))
        return false;
    /* f32 comes last, because it takes more memory than the run */
    return !f->trial[f->n_trials - 1].bad ||
           try_as(t, "f32", &(cli_replay_as){.recipe = "f32"}, NULL);
}
