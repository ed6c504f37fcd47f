/* Weights of files that a training begins with: the options --weights, --ignore, --map and
 * --allow-missing. Optimizer moments, scales and the module's own states begin anew. */
#ifndef F8_TRAIN_WEIGHTS_H
#define F8_TRAIN_WEIGHTS_H

#include "frontend/train/train.h"

/* F8_ERR_INPUT: options of weights without --weights, or with --resume. */
f8_status f8_train_weights_check(const f8_train_options *o, f8_diag *diag);
/* Gives all variables their initial values, by the seed, and the parameters those of the files, if
 * the options name any. FP8 codes become the values that they stand for. A record `weights` says
 * what became of each tensor; with recipe NULL there is none. */
bool f8_train_initialize(f8_train *t, fp8c_context *ctx, fp8c_program *program, const char *recipe,
                         uint64_t seed);
/* What the files are: [{"file": PATH, "bytes": N, "hash": 32 hexadecimal digits}, ...], and null if
 * the options name none. Without `paths` there is no "file". NULL after `failed`. */
json_t *f8_train_weights_facts(f8_train *t, bool paths);

#endif
