/* What training and triage ask of a guard beyond fp8c_diagnose.h. Internal to frontend/. */
#ifndef F8_GUARD_H
#define F8_GUARD_H

#include <stdbool.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"

/* Whether alarms of that kind, by its name, say that a step is bad. Those of `range` only say that
 * codes are wasted. */
bool f8_alarm_is_bad(const char *kind);

/* Takes the scales that the program has now, as if it had had them in each of the `steps` steps
 * before: those of a checkpoint are all that is known of the time before it. Raises nothing. Call
 * it once, before the first step that is judged with that program. */
fp8c_status f8_guard_prime_scales(fp8c_guard *g, fp8c_program *program, int64_t steps);

#endif
