/* Measuring the GEMMs and kernels of a model's step, as the tuner times them. Internal to
 * frontend/.
 *
 *     model.c        a tuning as a set of measurements
 *     step_table.c   such a set for people */
#ifndef F8_MEASURE_MODEL_H
#define F8_MEASURE_MODEL_H

#include "frontend/measure/measure.h"
#include "frontend/tune/tune.h"

/* Tune a module as fp8c_tune does, and fill the set with all that is known of its problems: runs of
 * this process, and those that the database has from before, unless options->again. `command` and
 * `commit` are for the records, as in f8_measure_describe. The caller ends the set's arena also
 * after a failure, and the tuning. */
fp8c_status f8_measure_model(fp8c_context *ctx, const fp8c_module *module,
                             const fp8c_tune_options *options, const char *command,
                             const char *commit, f8_measure_set *set, fp8c_tuning **out);

/* Add a measurement for each problem of a finished tuning and each candidate of it, in the tuning's
 * order, with the cache "step", and the processes of earlier runs; `process` is this one's, and in
 * the set already if it measured. A run is a step's time of the problem over how often the step has
 * it. Whether another algorithm has the model's bits is found out and kept in the database, as far
 * as there is time. Figures are not made. */
f8_status f8_measure_of_tuning(fp8c_tuning *t, const char *process, f8_measure_set *set,
                               f8_diag *diag);

/* (step_table.c) A line for each of the problems that take most of a step, and for those where
 * another way than the model's is chosen; then the machine and the headlines. A gain is the
 * tuning's, by the least times of both ways in turns, when it chose. The caller frees it; NULL
 * without memory. */
char *f8_measure_step_table(const f8_measure_set *set, const fp8c_tuning *t);

#endif
