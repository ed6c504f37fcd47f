/* What a training watches: statistics (--stats) and dumps (--dump) of what its GEMMs read and
 * write. */
#ifndef F8_TRAIN_WATCH_H
#define F8_TRAIN_WATCH_H

#include "frontend/train/folder.h"

typedef struct f8_watch {
    f8_train *t;
    fp8c_program *program;
    int step, stats, dump; /* functions; -1: there is none */
    int64_t every;         /* --every */
    int64_t first, last;   /* the steps to dump; none if last < first */
} f8_watch;

/* F8_ERR_INPUT: options that can't be had together. */
f8_status f8_watch_check(const f8_train_options *o, f8_diag *diag);
/* step: the function micro_step. The program must outlive *w. */
void f8_watch_begin(f8_watch *w, f8_train *t, fp8c_program *program, int step);
/* The function that the last micro-step of optimizer step `step` (from 1) runs: micro_step, or one
 * that does the same and watches. */
int f8_watch_function(const f8_watch *w, int64_t step);
/* After `function` ran: records what it saw, also in the run's folder. */
bool f8_watch_record(f8_watch *w, int function, const char *recipe, uint64_t seed, int64_t step,
                     f8_folder *folder);

#endif
