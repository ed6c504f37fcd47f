/* Compares a program for every value of a bound with programs for one value each, on any target.
 * Failures fail the running test. */
#ifndef F8_TEST_BOUNDS_CASE_H
#define F8_TEST_BOUNDS_CASE_H

#include "tests/shared/api/api_run.h"

#define F8_BOUNDS_MODEL "tests/models/bounds.f8"
enum { F8_BOUNDS_MOST = 6 };

/* The model with -D B=b; 0: as its text is, with the bound. reversed: the bound needs the least
 * memory, 1 the most. */
void f8_bounds_open(f8_api_run *r, int64_t b, bool reversed, fp8c_compile_options options);
void f8_bounds_set(f8_api_run *r, int64_t b);

/* Steps go on from one state, whatever the value of each, order[0] to order[n - 1]; a program for
 * that value alone, given the same state, does the same. Memory is the bound's from the start,
 * reversed that of the largest so far. */
void f8_bounds_case(const fp8c_compile_options *options, bool reversed, const int *order, size_t n);

#endif
