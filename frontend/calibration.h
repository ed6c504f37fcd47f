/* Calibrations: the object behind fp8c_calibration. calibration.c fills the trials, compile.c reads
 * them. Internal to frontend/. */
#ifndef F8_CALIBRATION_H
#define F8_CALIBRATION_H

#include "frontend/program.h"
#include "passes/scale/measure.h"

struct fp8c_calibration {
    fp8c_context *ctx;
    fp8c_program *program; /* in high precision, with samples */
    f8_arena arena;
    f8_trial *trial;
    size_t n_trials;
    f8_measured (*sum)[F8_CANDIDATES]; /* samples, by trial */
    float (*before)[F8_OPERANDS];      /* by linear: the largest amax of earlier batches */
    double budget;
    int64_t batches;
    int step; /* the index of micro_step */
    /* Room for one trial after the other. It is made once, since fresh memory costs more than the
     * work in it. */
    float *part[2], *max[2]; /* f8_operand_part's v and row_max */
    void *workspace;
};

#endif
