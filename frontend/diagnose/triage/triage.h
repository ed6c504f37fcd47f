/* Why a step of a training went wrong: the verdict that follows from what a replay has shown.
 *
 * search.h replays the step and fills in the evidence. Here is the order in which evidence counts,
 * and the words. Nothing here runs a program. Internal to frontend/.
 *
 * The order, the strongest first:
 *     1. two replays differ                              the device is unstable
 *     2. a value is wrong on its own inputs              the device is wrong, every time
 *     3. the replay has other bits than the record, or does not raise its alarm
 *                                                        the device was wrong, once
 *     4. an input, or a variable where the replay begins, has NaN or Inf
 *     5. the replay is good, and raises no alarm         nothing is wrong
 *     6. without a row, or with another batch, the step is good
 *                                                        the data
 *     7. a variable where the replay begins has one element out of all proportion
 *     8. with a larger epsilon it is good                the optimizer's epsilon
 *     9. under bf16 it is good                           FP8
 *    10. under bf16 it is bad, too                       the learning rate, bf16, or unknown */
#ifndef F8_TRIAGE_H
#define F8_TRIAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CLASS(name, "as in records") */
#define F8_TRIAGE_CLASSES(CLASS)                                                                   \
    CLASS(HEALTHY, "healthy")       /* nothing is wrong with the step */                           \
    CLASS(TRANSIENT, "transient")   /* the device was wrong once: a replay differs */              \
    CLASS(MEMORY, "memory")         /* a variable changed although no step wrote it */             \
    CLASS(UNSTABLE, "unstable")     /* two replays differ */                                       \
    CLASS(PERSISTENT, "persistent") /* a value is wrong every time */                              \
    CLASS(INPUT, "input")           /* an input has NaN or Inf */                                  \
    CLASS(STATE, "state")           /* a variable is bad where the replay begins */                \
    CLASS(DATA, "data")             /* without a row, or with another batch, the step is good */   \
    CLASS(EPSILON, "epsilon")       /* with a larger epsilon of the optimizer it is good */        \
    CLASS(RATE, "learning_rate")    /* bad in bf16, too; good at a lower rate */                   \
    CLASS(FP8, "fp8")               /* bad in FP8 alone */                                         \
    CLASS(BF16, "bf16")             /* bad in FP8 and bf16, good in f32 */                         \
    CLASS(UNKNOWN, "unknown")

typedef enum f8_triage_class {
#define CLASS(name, text) F8_TRIAGE_##name,
    F8_TRIAGE_CLASSES(CLASS)
#undef CLASS
        F8_TRIAGE_N_CLASSES
} f8_triage_class;
extern const char *const f8_triage_class_name[F8_TRIAGE_N_CLASSES];

/* A value in a step. All texts are "" where they are not known. */
typedef struct f8_triage_value {
    bool known;
    char function[32], kind[16], op[96], value[128]; /* op: the name of the plan's step */
    int64_t at, wrong;                               /* the first wrong element; how many */
    double got, want, allowed;
} f8_triage_value;

/* A row of the bad step's batch. */
typedef struct f8_triage_row {
    bool known;
    char input[64], file[128]; /* "": none stands out; "": the data are one text */
    int64_t row, place;        /* in the batch of its rank, and in the file; both from 0 */
    int rank;                  /* -1: there is one */
    int64_t others;            /* rows of that batch that stand out, too */
    double largest, usual;     /* its largest |element|, and the median of those of all rows */
} f8_triage_row;

/* A trial: the same steps from the same checkpoint, under another recipe, rate or batch. */
typedef struct f8_triage_trial {
    const char *what; /* a recipe; "lr / 4" (in bf16); "another batch"; or one of those below */
    bool ran, bad;
    double loss;
    int64_t step; /* its last one: the bad one, if one was */
} f8_triage_trial;

enum { F8_TRIAGE_TRIALS = 20 };
#define F8_TRIAGE_LINEAR "that linear in bf16" /* the trial with the linear of `operand` */
#define F8_TRIAGE_ROW "another row"            /* the one without `row` */
#define F8_TRIAGE_LARGER_EPSILON "a larger epsilon" /* F8_TRIAGE_EPS, if the run's is less */
#define F8_TRIAGE_EPS 1e-8

typedef struct f8_triage {
    int64_t step;        /* the bad one */
    char why[160];       /* what made it bad */
    char alarm[20];      /* the kind of alarm that the run raised in it; "": none */
    int64_t checkpoint;  /* the replay began after this step */
    int64_t passed_over; /* checkpoints that could not be loaded */
    const char *recipe;
    int64_t differs; /* the first step that has other bits than its record; 0: none */
    const char
        *differs_in;       /* "loss", "gradient norm", "fingerprint", "checksum of all variables" */
    char differs_of[128];  /* the operand, where it is the alarm's "scale" or share; else "" */
    bool unstable;         /* two replays differ */
    bool fingerprints;     /* that step has a fingerprint */
    f8_triage_value first; /* the first value that differs from the fingerprint */
    char variable[128];    /* a variable that changed although no step wrote it */
    int64_t changed; /* the checkpoint of this step has other bits than its record; 0: none has */
    int64_t judged;        /* values that have a witness */
    f8_triage_value wrong; /* the first that is wrong */
    int64_t began;         /* the first step since the checkpoint that is known to have one */
    f8_triage_value wrong_in_bf16; /* the same step under bf16, where one is wrong */
    int ranks, rank; /* rank: of several, whose device, input or variable is wrong; else -1 */
    char host[64];   /* of that rank */
    char input[64];  /* an input with NaN or Inf */
    char state[128]; /* a variable that is bad in the checkpoint: with NaN or Inf, or else */
    bool state_finite;              /* the latter: */
    int64_t state_at;               /* this element, */
    double state_value, state_next; /* which is out of proportion to the next one */
    f8_triage_row row;              /* of the input, or the one without which the step is good */
    bool entered; /* its size made a scale small, which came back when it left the history; no
                     checkpoint is from before it */
    f8_triage_value nonfinite;                   /* the first value with NaN or Inf */
    char nonfinite_input[128], nonfinite_op[32]; /* as in fp8c_witnessed */
    /* The operand that FP8 takes worst, and its linear; "": none is known. */
    char operand[128], linear[128];
    double sqnr, overflow, underflow;
    bool infinite;   /* the loss or the gradient norm of the replay is not finite */
    int threads;     /* another number of threads, on which the step was replayed; 0: it was not */
    bool replay_bad; /* the step is bad in the replay, too: its loss is, or a guard raises an alarm
                      */
    double eps;      /* the optimizer's */
    bool from_start; /* rates were tried from the first step on */
    f8_triage_trial trial[F8_TRIAGE_TRIALS];
    size_t n_trials;
} f8_triage;

/* Lower rates, in the order in which they are tried. */
typedef struct f8_triage_rate {
    const char *what;
    int divisor;
} f8_triage_rate;
enum { F8_TRIAGE_N_RATES = 6 };
extern const f8_triage_rate f8_triage_rates[F8_TRIAGE_N_RATES];

/* NULL: there is none of that name, or it did not run. */
const f8_triage_trial *f8_triage_find(const f8_triage *t, const char *what);
/* Whether that trial ran, and was good. */
bool f8_triage_is_good(const f8_triage *t, const char *what);
bool f8_triage_is_fp8(const char *recipe); /* it is in canonical text */

typedef struct f8_triage_verdict {
    f8_triage_class class;
    int64_t step;          /* the step that went wrong first */
    f8_triage_value value; /* where */
    int rank;              /* whose device it is; -1: not known, or the only one */
    char text[1100];       /* a paragraph */
    char advice[400];      /* what to do */
} f8_triage_verdict;

void f8_triage_judge(const f8_triage *t, f8_triage_verdict *out);

#endif
