/* Recipe auto of a training: it measures on the data before the first step. */
#ifndef F8_TRAIN_CALIBRATE_H
#define F8_TRAIN_CALIBRATE_H

#include "frontend/fp8c_tune.h"
#include "frontend/train/data/data.h"
#include "frontend/train/train.h"

bool f8_is_auto(const char *recipe);
/* Creates a calibration and lets it observe --calibrate batches of the data, with the initial
 * values of --seed. `options` are those of the program that will be compiled. The caller destroys
 * the result. NULL after `failed`. */
fp8c_calibration *f8_train_calibrate(f8_train *t, fp8c_context *ctx, const fp8c_module *module,
                                     const fp8c_compile_options *options, f8_data *data);
/* Adds what the calibration chose to the rules of the module, so that recipe auto no longer needs a
 * calibration. */
bool f8_train_take_rules(f8_train *t, fp8c_context *ctx, fp8c_module *module,
                         const fp8c_calibration *calibration);

#endif
