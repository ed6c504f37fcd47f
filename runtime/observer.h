/* Who looks on while an executor runs a function: is called before and after each step, when all
 * steps before it are done. The values that a step reads and writes can then be copied out
 * (f8_exec_fetch, f8_cuda_exec_fetch). Under observation collectives are done where they stand, and
 * a GPU runs no graphs. A failure of either call ends the run with it. */
#ifndef F8_OBSERVER_H
#define F8_OBSERVER_H

#include "ir/base/status.h"

typedef struct f8_observer {
    f8_status (*before)(void *user, uint32_t step, f8_diag *diag);
    f8_status (*after)(void *user, uint32_t step, f8_diag *diag);
    void *user;
} f8_observer;

#endif
