/* A made-up set of measurements whose texts and numbers are odd. */
#ifndef F8_TESTS_ODD_SET_H
#define F8_TESTS_ODD_SET_H

#include "frontend/measure/measure.h"

/* A set without measurements; the caller ends its arena. */
f8_measure_set odd_set(void);
/* The runs in two processes of the first measurement. */
extern const double odd_first_runs[3], odd_second_runs[1];
/* Add five: a way that was timed in two processes, one that was in the second alone and is wrong,
 * one that lacks, a peer that is late, and a kernel. */
void odd_set_fill(f8_measure_set *set);

#endif
