/* The object behind fp8c_calibration: compile.c reads the trials, calibration.c makes them.
 * Internal to frontend/. */
#ifndef F8_CALIBRATION_H
#define F8_CALIBRATION_H

#include "frontend/program.h"
#include "passes/scale/measure.h"

struct fp8c_calibration {
    fp8c_context *ctx;
    fp8c_program *program; /* high precision, with samples */
    f8_arena arena;
    f8_trial *trial;
    size_t n_trials;
    f8_measured (*sum)[F8_CANDIDATES]; /* by trial */
    float (*before)[F8_OPERANDS];      /* by linear: the largest amax of the batches before */
    double budget;
    int64_t batches;
    int step; /* micro_step */
    /* For one trial after the other: made once, since fresh memory costs more than what is done
     * with it. */
    float *part[2], *max[2]; /* f8_operand_part's v and row_max */
    void *workspace;
};

#endif
