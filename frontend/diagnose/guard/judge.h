/* What a guard judges by: whether a loss, a scale or a statistic is as it should be. Pure figures:
 * nothing here knows of programs. Internal to frontend/.
 *
 * The loss. Let x be the loss of a step. The last 32 losses before it that were not far are kept.
 *
 *     noise = 1.048 * the median of |differences of successive kept losses|
 *     least, most: the least and the greatest value that the median of the kept losses has had
 *     x is far            if x - least > max(0.3 |least|,   8 noise, 0.05 (most - least))
 *     x is far at once    if x - least > max( 10 |least|, 100 noise,      (most - least))
 *
 * A loss explodes if one is far at once, or if 5 of the last 8 are far.
 *
 * The beginning. A lucky first loss must not make all others far, and a run that diverges from the
 * start must not be compared with itself. So `least` begins as three times the first loss, and
 * medians count from 3 losses on. The first 16 losses are kept whatever they are. Instead of 8
 * noise, 2 |least| counts until 8 losses are kept, and the lesser of both until 32 are. Only from 8
 * kept losses on one is far at once.
 *
 * Why so. Early losses fall fast, so the spread of the losses themselves says nothing of their
 * noise. Differences of successive values do (J. Rice, Bandwidth choice for nonparametric
 * regression, Annals of Statistics 12, 1984), and a median of them is not moved by a spike. 1.048
 * makes `noise` the standard deviation if the noise is normal: 1 / (sqrt(2) * 0.6745). A loss that
 * falls is never far. A spike that falls back within 4 steps passes. The shares of |least| are for
 * data without noise; those of most - least are for losses that come near 0, where a spike of many
 * times the loss takes back next to nothing. A far loss is not kept, so it can't move what the next
 * ones are compared with.
 *
 * A scale is far if log2 of it is more than 12 from the median of log2 of its last 16 values. In
 * healthy runs scales of gradients move by up to 2^6.4 from one step to the next, where attention
 * begins to learn. A scale that is 0 or not finite is far whatever it was before.
 *
 * A statistic is bad if 3 looks in a row are above the limit: under `delayed` a tensor that grows
 * saturates for a step or two, and then its scale fits.
 *
 * Of a format's range little is in use if the median of `used`, the largest code over the format's
 * maximum, is below 1/16 in the last 16 looks (of 4 at least). Scales that are made of a tensor's
 * own amax use 1, rounded to powers of two more than 1/2. Scales of a history are made for the
 * largest amax of many steps: the gradients of an attention have amaxes that differ by 2^5 from
 * step to step, and a median of `used` near 1/16 in a healthy run. So there `used` is what the
 * largest amax of the last 16 looks would use: 0.55 and more in healthy runs.
 *
 * Where the numbers come from: bench/results/2026-11-23-guards.md. */
#ifndef F8_GUARD_JUDGE_H
#define F8_GUARD_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    F8_LOSS_KEPT = 32,
    F8_LOSS_FIRST = 16, /* losses that are kept whatever they are */
    F8_LOSS_LAST = 8,
    F8_LOSS_FAR = 5,
    F8_SCALE_KEPT = 16,
    F8_SCALE_LEAST = 8, /* values that a scale is compared with */
    F8_SCALE_BITS = 12, /* log2 of the factor */
    F8_LOOKS = 3,       /* bad looks in a row at a statistic */
    F8_USED_KEPT = 16,  /* looks at a statistic's `used` */
    F8_USED_FEWEST = 4, /* looks that say something */
    F8_USED_BITS = 4,   /* -log2 of the least that should be in use */
    F8_QUIET = 8        /* good steps after which an alarm may be raised again */
};

/* All zeros before the first step. */
typedef struct f8_loss_judge {
    double kept[F8_LOSS_KEPT]; /* a ring */
    int64_t n;                 /* losses that were ever kept */
    double least, most;
    uint32_t far; /* bit i: the loss i steps ago was far */
} f8_loss_judge;

/* Take the next loss, which is finite. Whether it explodes. *limit: from where on one loss is far;
 * `least` is what it is compared with. */
bool f8_judge_loss(f8_loss_judge *j, double loss, double *limit);
/* How many steps ago the first of the last 8 losses that was far came; -1: none was. */
int f8_judge_since(const f8_loss_judge *j);

/* Take the next value of one scale. `ring` has F8_SCALE_KEPT places, and `n` values were taken
 * before. Whether it is far; *limit is then the value from where on it is, or NaN for one that is 0
 * or not finite; and *ago says how many values just before it are beyond that limit, too: with
 * fewer than F8_SCALE_LEAST values nothing was compared. */
bool f8_judge_scale(float *ring, int64_t n, float scale, double *limit, int64_t *ago);

/* Take whether a look at a statistic was bad. Whether enough in a row were. */
bool f8_judge_look(uint8_t *in_row, bool bad);

#define F8_USED_LEAST (1.0 / (1 << F8_USED_BITS))

/* All zeros before the first look. */
typedef struct f8_used_judge {
    float used[F8_USED_KEPT], amax[F8_USED_KEPT]; /* rings */
    int64_t n;                                    /* looks so far */
} f8_used_judge;
/* Take how much of its format's range an operand of this amax uses. of_amax: what an amax of 1
 * would use, if the scale is made of a history; else 0. Whether too little is in use; *middle: the
 * median of the last looks. */
bool f8_judge_used(f8_used_judge *j, double used, double amax, double of_amax, double *middle);

/* An alarm is raised once, until it was quiet for F8_QUIET steps. All zeros at the beginning. */
typedef struct f8_alarm_state {
    bool raised;
    uint8_t quiet; /* steps */
} f8_alarm_state;
/* Whether to raise it now. */
bool f8_judge_raises(f8_alarm_state *s, bool bad);

#endif
