/* An observer of a run: the executor calls it before and after each step of the plan. All earlier
 * steps are then done, so the observer can copy out the values that the step reads and writes
 * (f8_exec_fetch, f8_cuda_exec_fetch). Under observation no collective goes on beside other steps,
 * and a GPU launches each step instead of a captured graph. If a call fails, the run fails with it.
 */
#ifndef F8_OBSERVER_H
#define F8_OBSERVER_H

#include "ir/base/status.h"

typedef struct f8_observer {
    f8_status (*before)(void *user, uint32_t step, f8_diag *diag);
    f8_status (*after)(void *user, uint32_t step, f8_diag *diag);
    void *user;
} f8_observer;

#endif
