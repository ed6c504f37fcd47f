/* From evidence to a verdict: see triage.h. */
#include "frontend/diagnose/triage/triage.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/base/format.h"

const char *const f8_triage_class_name[F8_TRIAGE_N_CLASSES] = {
#define CLASS(name, text) [F8_TRIAGE_##name] = text,
    F8_TRIAGE_CLASSES(CLASS)
#undef CLASS
};

const f8_triage_trial *f8_triage_find(const f8_triage *t, const char *what)
{
    for (size_t i = 0; i < t->n_trials; i++)
        if (t->trial[i].ran && !strcmp(t->trial[i].what, what))
            return &t->trial[i];
    return NULL;
}

static bool is_bad(const f8_triage *t, const char *what)
{
    const f8_triage_trial *trial = f8_triage_find(t, what);
    return trial && trial->bad;
}

bool f8_triage_is_good(const f8_triage *t, const char *what)
{
    const f8_triage_trial *trial = f8_triage_find(t, what);
    return trial && !trial->bad;
}

const f8_triage_rate f8_triage_rates[F8_TRIAGE_N_RATES] = {
    {"lr / 4", 4},     {"lr / 16", 16},     {"lr / 64", 64},
    {"lr / 256", 256}, {"lr / 1024", 1024}, {"lr / 4096", 4096},
};

/* By what the learning rate must be divided so that the step is good; 0: no trial was good. */
static int lower_rate(const f8_triage *t)
{
    for (size_t i = 0; i < F8_TRIAGE_N_RATES; i++)
        if (f8_triage_is_good(t, f8_triage_rates[i].what))
            return f8_triage_rates[i].divisor;
    return 0;
}

static double or_inf(double x)
{
    return isnan(x) ? INFINITY : x;
}

/* Whether a trial went less wrong than another: later, or by less. */
static bool is_milder(const f8_triage_trial *a, const f8_triage_trial *b, double by)
{
    return a->step > b->step || (a->step == b->step && or_inf(a->loss) * by < or_inf(b->loss));
}

/* Whether a run from its first step on goes the less wrong the lower the rate is, and clearly so
 * from the highest to the lowest: then the rate is the cause, though none that was tried is low
 * enough. */
static bool falls_with_rate(const f8_triage *t)
{
    const f8_triage_trial *first = NULL, *last = NULL;
    for (size_t i = 0; t->from_start && i < F8_TRIAGE_N_RATES; i++) {
        const f8_triage_trial *trial = f8_triage_find(t, f8_triage_rates[i].what);
        if (!trial)
            continue;
        if (last && is_milder(last, trial, 1))
            return false;
        first = first ? first : trial;
        last = trial;
    }
    return first && is_milder(last, first, 2);
}

bool f8_triage_is_fp8(const char *recipe)
{
    return strcmp(recipe, "bf16") && strcmp(recipe, "f32");
}

static f8_triage_class class_of(const f8_triage *t)
{
    if (t->unstable)
        return F8_TRIAGE_UNSTABLE;
    if (t->wrong.known) /* it may also have made the record differ */
        return F8_TRIAGE_PERSISTENT;
    if (t->changed)
        return F8_TRIAGE_MEMORY;
    if (t->differs)
        return *t->variable ? F8_TRIAGE_MEMORY : F8_TRIAGE_TRANSIENT;
    if (*t->input)
        return F8_TRIAGE_INPUT;
    if (*t->state && !t->state_finite)
        return F8_TRIAGE_STATE;
    if (!t->replay_bad)
        return F8_TRIAGE_HEALTHY;
    if (t->entered || f8_triage_is_good(t, F8_TRIAGE_ROW) || f8_triage_is_good(t, "another batch"))
        return F8_TRIAGE_DATA;
    if (*t->state)
        return F8_TRIAGE_STATE;
    if (f8_triage_is_good(t, F8_TRIAGE_LARGER_EPSILON))
        return F8_TRIAGE_EPSILON;
    if (f8_triage_is_good(t, "bf16") && f8_triage_is_fp8(t->recipe))
        return F8_TRIAGE_FP8;
    if (lower_rate(t))
        return F8_TRIAGE_RATE;
    if (is_bad(t, "bf16") && f8_triage_is_good(t, "f32"))
        return F8_TRIAGE_BF16;
    if (falls_with_rate(t))
        return F8_TRIAGE_RATE;
    return F8_TRIAGE_UNKNOWN;
}

/* ---- words ---- */

/* "'h.0.mlp.c_fc.fprop' (gemm h.0.mlp.c_fc in micro_step)" */
static const char *where(const f8_triage_value *v, char text[300])
{
    f8_format(text, 300, "'%s' (%s %s in %s)", v->value, v->kind, v->op, v->function);
    return text;
}

static void say_transient(const f8_triage *t, f8_triage_verdict *v)
{
    char at[300], of[140] = "";
    if (*t->differs_of)
        f8_format(of, sizeof of, " of '%s'", t->differs_of);
    /* what update gets wrong shows in the next step, unless a fingerprint has it */
    const bool may_be_update =
        !t->first.known && t->differs > t->checkpoint + 1 && !strcmp(t->differs_in, "loss");
    v->step = t->differs;
    v->value = t->first;
    f8_format(v->text, sizeof v->text,
              "The device was wrong once, in step %" PRId64
              "%s: a replay from the same checkpoint has another %s%s, and a second replay agrees "
              "with the first. So neither FP8 nor the data is the cause.%s%s%s",
              t->differs, may_be_update ? " or in the update before it" : "", t->differs_in, of,
              t->first.known ? " The first value that differs is " : "",
              t->first.known ? where(&t->first, at) : "",
              strcmp(t->first.kind, "collective")
                  ? ""
                  : ": another rank sent it, and fingerprints are rank 0's alone");
    f8_format(v->advice, sizeof v->advice,
              "Go on from the checkpoint of step %" PRId64
              ": move newer ones away, then fp8c train --resume DIR. Look at this machine's "
              "memory and device errors, and test it: fp8c doctor --burn 60.%s",
              t->checkpoint,
              t->fingerprints ? "" : " Another time train --fingerprint-every 1 names the value.");
}

/* The checkpoint and the record of its step were written one after the other. */
static void say_changed(const f8_triage *t, f8_triage_verdict *v)
{
    char name[160] = "";
    if (*t->variable)
        f8_format(name, sizeof name, " The first variable that differs is '%s'.", t->variable);
    v->step = t->changed + 1;
    f8_format(v->text, sizeof v->text,
              "Memory or a file was damaged: the checkpoint of step %" PRId64
              " has other bits than the run had then, by the checksum of its record.%s",
              t->changed, name);
    f8_format(v->advice, sizeof v->advice,
              "Go on from a checkpoint before that of step %" PRId64
              ": move newer ones away, then fp8c train --resume DIR.",
              t->changed);
}

static void say_memory(const f8_triage *t, f8_triage_verdict *v)
{
    v->step = t->differs;
    v->value.known = *t->variable;
    f8_format(v->value.value, sizeof v->value.value, "%s", t->variable);
    if (t->changed) {
        say_changed(t, v);
        return;
    }
    f8_format(v->text, sizeof v->text,
              "Memory was damaged: before the update of step %" PRId64
              " the variable '%s' had other bits than in the replay, although no step of the plan "
              "had written it.",
              t->differs, t->variable);
    f8_format(v->advice, sizeof v->advice,
              "Go on from the checkpoint of step %" PRId64
              ": move newer ones away, then fp8c train --resume DIR. Look at this machine's ECC "
              "errors, and test it: fp8c "
              "doctor --burn 60.",
              t->checkpoint);
}

static void say_unstable(const f8_triage *t, f8_triage_verdict *v)
{
    char threads[60] = "";
    v->step = t->differs ? t->differs : t->step;
    v->value = t->first;
    if (!t->differs)
        f8_format(threads, sizeof threads, ", on %d thread%s and on others,", t->threads,
                  t->threads == 1 ? "" : "s");
    f8_format(v->text, sizeof v->text,
              "The device gives different results for the same inputs: two replays of step %" PRId64
              "%s differ. fp8c's steps are deterministic, so the hardware, its driver "
              "or a library is at fault.",
              v->step, threads);
    f8_format(v->advice, sizeof v->advice,
              "Take this device out of use, and test it: fp8c doctor --burn 60.");
}

/* "rank 2 of 4 (host n3)", or "the device" */
static const char *who(const f8_triage *t, char text[120])
{
    if (t->ranks > 1 && t->rank >= 0)
        f8_format(text, 120, "rank %d of %d (host %s)", t->rank, t->ranks, t->host);
    else
        f8_format(text, 120, "the device");
    return text;
}

static void say_persistent(const f8_triage *t, f8_triage_verdict *v)
{
    char at[300], device[120], bf16[400] = "";
    v->rank = t->ranks > 1 ? t->rank : -1;
    if (t->wrong_in_bf16.known)
        f8_format(bf16, sizeof bf16, " Under bf16 it is wrong, too.");
    v->step = t->began ? t->began : t->step;
    v->value = t->wrong;
    f8_format(
        v->text, sizeof v->text,
        "Hardware: %s computes wrong values, and still does so in the replay. %" PRId64
        " values were judged on their own inputs. In step %" PRId64 " the first wrong one is %s: "
        "element %" PRId64 " is %.9g, and %.9g was expected%s; %" PRId64
        " element%s of it %s wrong.%s The recipe is not the cause.",
        who(t, device), t->judged, v->step, where(&t->wrong, at), t->wrong.at, t->wrong.got,
        t->wrong.want, t->wrong.allowed > 0 ? " within the bound of its sum" : "", t->wrong.wrong,
        t->wrong.wrong == 1 ? "" : "s", t->wrong.wrong == 1 ? "is" : "are", bf16);
    f8_format(
        v->advice, sizeof v->advice,
        "Take this device out of use, and go on elsewhere from a checkpoint before the fault. "
        "fp8c doctor --burn 60 tests the device; if it passes, delete the kernel cache, which "
        "may be damaged.");
}

/* "row 7 (row 713 of x.npy)"; "row 7 of rank 2 (from token 4711 of the data on)"; "" */
static const char *which_row(const f8_triage_row *r, char text[260])
{
    char rank[32] = "";
    text[0] = 0;
    if (!r->known)
        return text;
    if (r->rank >= 0)
        f8_format(rank, sizeof rank, " of rank %d", r->rank);
    if (*r->file)
        f8_format(text, 260, "row %" PRId64 "%s (row %" PRId64 " of %s)", r->row, rank, r->place,
                  r->file);
    else
        f8_format(text, 260, "row %" PRId64 "%s (from token %" PRId64 " of the data on)", r->row,
                  rank, r->place);
    return text;
}

static void say_input(const f8_triage *t, f8_triage_verdict *v)
{
    char row[260];
    v->value.known = true;
    f8_format(v->value.value, sizeof v->value.value, "%s", t->input);
    f8_format(v->text, sizeof v->text,
              "The input '%s' has NaN or Inf before step %" PRId64
              " computes anything%s%s. Every op of the step is right.",
              t->input, t->step, t->row.known ? ", in " : "", which_row(&t->row, row));
    f8_format(v->advice, sizeof v->advice, "Look at the batch of step %" PRId64 " in the data.",
              t->step);
}

static void say_state(const f8_triage *t, f8_triage_verdict *v)
{
    const bool finite = t->state_finite;
    v->value.known = true;
    f8_format(v->value.value, sizeof v->value.value, "%s", t->state);
    if (finite)
        f8_format(v->text, sizeof v->text,
                  "The variable '%s' is bad before step %" PRId64
                  " computes anything: its element %" PRId64
                  " is %.4g, and the largest of all others %.4g. Every op of the step is right.",
                  t->state, t->step, t->state_at, t->state_value, t->state_next);
    else
        f8_format(v->text, sizeof v->text,
                  "The variable '%s' has NaN or Inf before step %" PRId64
                  " computes anything. Every op of the step is right.",
                  t->state, t->step);
    f8_format(v->advice, sizeof v->advice,
              "The checkpoint of step %" PRId64 " has it already: go on from %s.", t->checkpoint,
              t->checkpoint == 0 ? "other weights"
              : finite           ? "an older one, or correct that element"
                                 : "an older one, or from weights that are finite");
}

static void say_data(const f8_triage *t, f8_triage_verdict *v)
{
    char row[260], others[60] = "", size[400] = "";
    const bool is_row = f8_triage_is_good(t, F8_TRIAGE_ROW);
    which_row(&t->row, row);
    if (t->row.others > 0)
        f8_format(others, sizeof others, " and %" PRId64 " more as large", t->row.others);
    if (*t->row.input) {
        v->value.known = true;
        f8_format(v->value.value, sizeof v->value.value, "%s", t->row.input);
        f8_format(size, sizeof size,
                  " The largest element of input '%s' in %s is %.4g, and in the median row %.4g.",
                  t->row.input, is_row ? "that row" : row, t->row.largest, t->row.usual);
    }
    if (t->entered)
        f8_format(v->text, sizeof v->text,
                  "The data made step %" PRId64
                  " bad: from then on a scale was as small as an outlier of its batch wants, until "
                  "that left the amax history. No checkpoint is from before, so nothing was "
                  "tried.%s",
                  t->step, size);
    else
        f8_format(v->text, sizeof v->text,
                  "The data made step %" PRId64 " bad: %s%s%s the same step is good. Every op is "
                  "right.%s",
                  t->step, is_row ? "without " : "with another batch", is_row ? row : "",
                  is_row ? others : "", size);
    f8_format(v->advice, sizeof v->advice,
              "Look at the batch of step %" PRId64
              ". Clipping gradients at a smaller norm bounds what one batch can do.",
              t->step);
}

static void say_epsilon(const f8_triage *t, f8_triage_verdict *v)
{
    f8_format(v->text, sizeof v->text,
              "The optimizer's epsilon of %g is too small: with %g step %" PRId64
              " is good. It is what a step is divided by where a parameter has had next to no "
              "gradient. Every op is right.",
              t->eps, F8_TRIAGE_EPS, t->step);
    f8_format(v->advice, sizeof v->advice, "Give the optimizer eps = %g in the model's text.",
              F8_TRIAGE_EPS);
}

static void say_rate(const f8_triage *t, f8_triage_verdict *v)
{
    const int divisor = lower_rate(t);
    char good[160];
    if (divisor)
        f8_format(good, sizeof good, "It is good with 1/%d of the learning rate.", divisor);
    else
        f8_format(good, sizeof good,
                  "Its loss falls with the learning rate, though no rate that was tried is low "
                  "enough.");
    f8_format(v->text, sizeof v->text,
              "The training diverges, and FP8 is not the cause: from the same checkpoint it is bad "
              "under bf16, too. %s Every op of step %" PRId64 " is right.",
              good, t->step);
    if (!t->checkpoint) {
        f8_format(v->advice, sizeof v->advice,
                  "Begin again with a lower learning rate or a longer warmup.");
        return;
    }
    f8_format(v->advice, sizeof v->advice,
              "Go on from the checkpoint of step %" PRId64
              " or an older one, with a lower learning rate or a longer warmup.",
              t->checkpoint);
}

/* The first recipe of the list that heals the step. */
static const char *cure(const f8_triage *t)
{
    static const char *const order[] = {"current", "rowwise", "block", F8_TRIAGE_LINEAR};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (f8_triage_is_good(t, order[i]))
            return order[i];
    return "bf16";
}

/* Whether the codes or the products of codes are at fault, as recipe `fake` tells. */
static const char *fake_says(const f8_triage *t)
{
    if (is_bad(t, "fake"))
        return " With the same operands quantized, but multiplied in bf16 (fake), it is bad, too: "
               "quantization is the cause.";
    if (f8_triage_is_good(t, "fake"))
        return " With the same operands quantized, but multiplied in bf16 (fake), it is good: the "
               "sums of the FP8 GEMMs are the cause.";
    return "";
}

static void say_fp8(const f8_triage *t, f8_triage_verdict *v)
{
    char worst[260] = "";
    const char *heals = cure(t);
    v->value = t->nonfinite;
    if (*t->operand) {
        v->value.known = true;
        f8_format(v->value.value, sizeof v->value.value, "%s", t->operand);
        f8_format(worst, sizeof worst,
                  " The operand that FP8 takes worst is '%s': SQNR %.1f dB, %.3g%% of it overflows "
                  "and %.3g%% becomes 0.",
                  t->operand, t->sqnr, 100 * t->overflow, 100 * t->underflow);
    }
    f8_format(v->text, sizeof v->text,
              "FP8 made step %" PRId64
              " bad: from the same checkpoint it is bad under %s, and good "
              "under bf16. Every op computes what its FP8 inputs give.%s%s",
              t->step, t->recipe, fake_says(t), worst);
    if (!strcmp(heals, F8_TRIAGE_LINEAR)) {
        f8_format(v->advice, sizeof v->advice,
                  "Keep this linear in bf16: recipe \"%s\" = bf16. With it the step is good.",
                  t->linear);
    } else {
        f8_format(v->advice, sizeof v->advice,
                  "Take another recipe, from the checkpoint of step %" PRId64
                  ": move newer ones away, then fp8c train --resume DIR --recipe %s. With it the "
                  "step is good.",
                  t->checkpoint, heals);
    }
}

static void say_bf16(const f8_triage *t, f8_triage_verdict *v)
{
    v->value = t->nonfinite;
    f8_format(v->text, sizeof v->text,
              "Low precision made step %" PRId64 " bad: it is bad under %s%s, and good under f32.",
              t->step, t->recipe, strcmp(t->recipe, "bf16") ? " and under bf16" : "");
    f8_format(v->advice, sizeof v->advice,
              "Train the first steps under f32, or lower the learning rate.");
}

static void say_healthy(const f8_triage *t, f8_triage_verdict *v)
{
    f8_format(v->text, sizeof v->text,
              "Nothing is wrong with step %" PRId64
              ": the replay has the bits of the record, every op is right, the loss neither "
              "explodes nor is NaN or Inf, and a guard raises no alarm.",
              t->step);
    f8_format(v->advice, sizeof v->advice, "To ask about another step: --step N.");
}

static void say_unknown(const f8_triage *t, f8_triage_verdict *v)
{
    char cause[200];
    v->value = t->nonfinite;
    if (t->checkpoint && !t->from_start)
        f8_format(cause, sizeof cause,
                  "The cause is probably older than the checkpoint of step %" PRId64
                  ", where the replay began.",
                  t->checkpoint);
    else
        f8_format(cause, sizeof cause,
                  "The run was replayed from its first step on, so the cause is in the model, its "
                  "first values or all of the data.");
    f8_format(v->text, sizeof v->text,
              "Step %" PRId64
              " is bad under every recipe that was tried, with other batches, and at lower "
              "learning rates. Every op is right. %s",
              t->step, cause);
    f8_format(v->advice, sizeof v->advice, "%s",
              t->checkpoint && !t->from_start
                  ? "Train again with train --keep K, which keeps older checkpoints to replay "
                    "from; or look at the model."
                  : "Look at the model, at its first values and at the data.");
}

/* Appends where NaN or Inf came from: the first value that has them, and the op that made them. */
static void say_origin(const f8_triage *t, f8_triage_verdict *v)
{
    char at[300];
    const size_t n = strlen(v->text);
    const bool asked = v->class == F8_TRIAGE_DATA || v->class == F8_TRIAGE_RATE ||
                       v->class == F8_TRIAGE_FP8 || v->class == F8_TRIAGE_BF16 ||
                       v->class == F8_TRIAGE_UNKNOWN;
    if (!asked || !t->infinite || !t->nonfinite.known)
        return;
    f8_format(v->text + n, sizeof v->text - n, " The first NaN or Inf is element %" PRId64 " of %s",
              t->nonfinite.at, where(&t->nonfinite, at));
    const size_t m = strlen(v->text);
    if (*t->nonfinite_op)
        f8_format(v->text + m, sizeof v->text - m, ": the op %s made it of finite values.",
                  t->nonfinite_op);
    else if (*t->nonfinite_input)
        f8_format(v->text + m, sizeof v->text - m, ": '%s' had it already.", t->nonfinite_input);
    else
        f8_format(v->text + m, sizeof v->text - m, ".");
}

/* Damaged checkpoints may be a sign of a bad disk. */
static void say_passed_over(const f8_triage *t, f8_triage_verdict *v)
{
    const size_t n = strlen(v->text);
    if (t->passed_over)
        f8_format(v->text + n, sizeof v->text - n,
                  " %" PRId64
                  " newer checkpoint%s damaged, and passed over: look at the disk, too.",
                  t->passed_over, t->passed_over == 1 ? " is" : "s are");
}

void f8_triage_judge(const f8_triage *t, f8_triage_verdict *out)
{
    static void (*const say[F8_TRIAGE_N_CLASSES])(const f8_triage *, f8_triage_verdict *) = {
        [F8_TRIAGE_HEALTHY] = say_healthy,
        [F8_TRIAGE_TRANSIENT] = say_transient,
        [F8_TRIAGE_MEMORY] = say_memory,
        [F8_TRIAGE_UNSTABLE] = say_unstable,
        [F8_TRIAGE_PERSISTENT] = say_persistent,
        [F8_TRIAGE_INPUT] = say_input,
        [F8_TRIAGE_STATE] = say_state,
        [F8_TRIAGE_DATA] = say_data,
        [F8_TRIAGE_EPSILON] = say_epsilon,
        [F8_TRIAGE_RATE] = say_rate,
        [F8_TRIAGE_FP8] = say_fp8,
        [F8_TRIAGE_BF16] = say_bf16,
        [F8_TRIAGE_UNKNOWN] = say_unknown};
    *out = (f8_triage_verdict){.class = class_of(t), .step = t->step, .rank = -1};
    say[out->class](t, out);
    say_origin(t, out);
    say_passed_over(t, out);
}
