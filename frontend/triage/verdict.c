/* From evidence to a verdict: see triage.h. */
#include "frontend/triage/triage.h"

#include <inttypes.h>
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

/* By what the learning rate must be divided so that the step is good; 0: no trial was good. */
static int lower_rate(const f8_triage *t)
{
    static const struct {
        const char *what;
        int divisor;
    } rates[] = {{"lr / 4", 4}, {"lr / 16", 16}, {"lr / 64", 64}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (f8_triage_is_good(t, rates[i].what))
            return rates[i].divisor;
    return 0;
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
    if (t->differs)
        return *t->variable ? F8_TRIAGE_MEMORY : F8_TRIAGE_TRANSIENT;
    if (*t->input)
        return F8_TRIAGE_INPUT;
    if (*t->state)
        return F8_TRIAGE_STATE;
    if (!t->replay_bad)
        return F8_TRIAGE_HEALTHY;
    if (f8_triage_is_good(t, "another batch"))
        return F8_TRIAGE_BATCH;
    if (f8_triage_is_good(t, "bf16") && f8_triage_is_fp8(t->recipe))
        return F8_TRIAGE_FP8;
    if (lower_rate(t))
        return F8_TRIAGE_RATE;
    if (is_bad(t, "bf16") && f8_triage_is_good(t, "f32"))
        return F8_TRIAGE_BF16;
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
    char at[300];
    /* what update gets wrong shows in the next step, unless a fingerprint has it */
    const bool may_be_update =
        !t->first.known && t->differs > t->checkpoint + 1 && !strcmp(t->differs_in, "loss");
    v->step = t->differs;
    v->value = t->first;
    f8_format(v->text, sizeof v->text,
              "The device was wrong once, in step %" PRId64
              "%s: a replay from the same checkpoint has another %s, and a second replay agrees "
              "with the first. So neither FP8 nor the data is the cause.%s%s%s",
              t->differs, may_be_update ? " or in the update before it" : "", t->differs_in,
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

static void say_memory(const f8_triage *t, f8_triage_verdict *v)
{
    v->step = t->differs;
    v->value.known = true;
    f8_format(v->value.value, sizeof v->value.value, "%s", t->variable);
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

static void say_nonfinite(const f8_triage *t, f8_triage_verdict *v, const char *what,
                          const char *name)
{
    v->value.known = true;
    f8_format(v->value.value, sizeof v->value.value, "%s", name);
    f8_format(v->text, sizeof v->text,
              "The %s '%s' has NaN or Inf before step %" PRId64
              " computes anything. Every op of the step is right.",
              what, name, t->step);
}

static void say_input(const f8_triage *t, f8_triage_verdict *v)
{
    say_nonfinite(t, v, "input", t->input);
    f8_format(v->advice, sizeof v->advice, "Look at the batch of step %" PRId64 " in the data.",
              t->step);
}

static void say_state(const f8_triage *t, f8_triage_verdict *v)
{
    say_nonfinite(t, v, "variable", t->state);
    f8_format(v->advice, sizeof v->advice,
              "The checkpoint of step %" PRId64
              " has it already: go on from an older one, or from weights that are finite.",
              t->checkpoint);
}

static void say_batch(const f8_triage *t, f8_triage_verdict *v)
{
    f8_format(v->text, sizeof v->text,
              "The data made step %" PRId64
              " bad: with another batch the same step is good. Every op is right.",
              t->step);
    f8_format(v->advice, sizeof v->advice,
              "Look at the batch of step %" PRId64
              ". Clipping gradients at a smaller norm bounds what one batch can do.",
              t->step);
}

static void say_rate(const f8_triage *t, f8_triage_verdict *v)
{
    f8_format(
        v->text, sizeof v->text,
        "The training diverges, and FP8 is not the cause: from the same checkpoint it is bad "
        "under bf16, too. It is good with 1/%d of the learning rate. Every op of step %" PRId64
        " is right.",
        lower_rate(t), t->step);
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
              ": the replay has the bits of the record, every op is right, and the loss neither "
              "explodes nor is NaN or Inf.",
              t->step);
    f8_format(v->advice, sizeof v->advice, "To ask about another step: --step N.");
}

static void say_unknown(const f8_triage *t, f8_triage_verdict *v)
{
    v->value = t->nonfinite;
    f8_format(v->text, sizeof v->text,
              "Step %" PRId64
              " is bad under every recipe that was tried, with other batches, and at 1/64 of the "
              "learning rate. Every op is right. The cause is probably older than the checkpoint "
              "of step %" PRId64 ", where the replay began.",
              t->step, t->checkpoint);
    f8_format(
        v->advice, sizeof v->advice,
        "Train again with train --keep K, which keeps older checkpoints to replay from; or look "
        "at the model.");
}

/* Appends where NaN or Inf came from: the first value that has them, and the op that made them. */
static void say_origin(const f8_triage *t, f8_triage_verdict *v)
{
    char at[300];
    const size_t n = strlen(v->text);
    const bool asked = v->class == F8_TRIAGE_BATCH || v->class == F8_TRIAGE_RATE ||
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
        [F8_TRIAGE_BATCH] = say_batch,
        [F8_TRIAGE_RATE] = say_rate,
        [F8_TRIAGE_FP8] = say_fp8,
        [F8_TRIAGE_BF16] = say_bf16,
        [F8_TRIAGE_UNKNOWN] = say_unknown};
    *out = (f8_triage_verdict){.class = class_of(t), .step = t->step, .rank = -1};
    say[out->class](t, out);
    say_origin(t, out);
    say_passed_over(t, out);
}
