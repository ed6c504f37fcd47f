/* Runs of several seeds beside each other: means, their spread, and the gap to another recipe. */
#ifndef F8_TRAIN_SPREAD_H
#define F8_TRAIN_SPREAD_H

#include "frontend/train/training.h"

/* The mean of a quantity over the seeds, and its sample standard deviation (0 for one seed). */
typedef struct f8_spread {
    double mean, deviation;
} f8_spread;

/* A recipe's runs. A gap is taken between runs of one seed, which see the same data. */
typedef struct f8_spreads {
    f8_spread final_loss, heldout_loss, items_per_second;
    f8_spread gap; /* of the final losses: own / base - 1 */
    bool inside;   /* the gap is not larger than its spread, so the runs show no difference */
} f8_spreads;

/* `runs` and `base` are of the same `seeds` seeds. All is NaN where a run has none. */
f8_spreads f8_spreads_of(const f8_train_result *runs, const f8_train_result *base, int64_t seeds);
/* As the record `spread`; without the gap where the runs are the base. NULL: out of memory. */
json_t *f8_spreads_record(const f8_spreads *s, const f8_train_result *runs, int64_t seeds,
                          bool is_base);

#endif
