/* Which values of a function a fault means. */
#ifndef F8_TEST_FAULT_CHOOSE_H
#define F8_TEST_FAULT_CHOOSE_H

#include "tests/faults/fault.h"
#include "tests/faults/values.h"

/* Whether the fault is in this function: the one it names, or that one with statistics or dumps. */
bool f8_fault_has_function(const f8_fault *f, const char *function);

/* Names the value that #K is in this function, so that it is the same one in others: in
 * micro_step.stats, and under another recipe. A K that is too large stays as it is. */
f8_status f8_fault_pin(f8_fault *f, const f8_variant *v, uint32_t func);
/* Of the function's values those that are meant, in `arena`; in the order of steps. With none, or
 * when one can't have the fault, `why` says so. */
f8_status f8_fault_choose(const f8_fault *f, const f8_variant *v, uint32_t func, f8_arena *arena,
                          f8_fault_values *out, char why[F8_FAULT_WHY]);

#endif
