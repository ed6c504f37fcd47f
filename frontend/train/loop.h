/* What loop.c gives to training.c. */
#ifndef F8_TRAIN_LOOP_H
#define F8_TRAIN_LOOP_H

#include "frontend/train/training.h"

/* After the last of all steps: the held-out loss and the results, and the record `summary`. Where
 * steps are left, nothing. */
bool f8_training_finish(f8_training *r);
/* Tells what the device has said of its health since. last: the run ends. */
bool f8_training_tell_health(f8_training *r, bool last);

#endif
