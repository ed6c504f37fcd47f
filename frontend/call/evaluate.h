/* The held-out loss of weights from files under a recipe. Internal to frontend/. If a call fails
 * and the diag has no message, the context has it, or the loader knows the tensors that do not fit
 * (loader.h). */
#ifndef F8_EVALUATE_H
#define F8_EVALUATE_H

#include "frontend/fp8c_diagnose.h"
#include "frontend/checkpoint/loader.h"
#include "frontend/train/data/data.h"

/* What programs of one module are evaluated on. */
typedef struct f8_evaluating {
    const fp8c_module *module;
    f8_data *data;
    f8_loader *weights;
    int64_t calibrate; /* the batches that scales are calibrated on; 0: the default */
    uint64_t seed;     /* of these batches */
} f8_evaluating;

typedef struct f8_evaluation {
    double loss;
    int64_t batches, fp8_gemms; /* fp8_gemms: executed by each batch */
    int64_t calibrated;         /* batches that scales were calibrated on; 0: they were not */
    int64_t weights_bytes;      /* the parameters in memory, with the scales of those in FP8 */
    fp8c_info info;
    char target[24];
} f8_evaluation;

/* Calibrate the scales that a program needs and the files lack. `options` are the program's. */
fp8c_status f8_calibrate_on(const f8_evaluating *e, const fp8c_compile_options *options,
                            fp8c_program *program, f8_diag *diag);
/* Give a program for inference the weights, and calibrated scales where they are needed. */
fp8c_status f8_evaluate_load(const f8_evaluating *e, const fp8c_compile_options *options,
                             fp8c_program *program, f8_evaluation *out, f8_diag *diag);
/* Then evaluate it. */
fp8c_status f8_evaluate(const f8_evaluating *e, fp8c_program *program, f8_evaluation *out,
                        f8_diag *diag);
/* The record `eval`. `stored`: the recipe under which the files store weights as FP8, or NULL. */
json_t *f8_evaluation_record(const f8_evaluating *e, const char *recipe, const char *stored,
                             const f8_evaluation *x);

#endif
