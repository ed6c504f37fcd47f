/* All configurations of kernels, over the bodies of kernel_bodies.h: those that the tuner may
 * choose from, and a few that combine several of its options. */
#ifndef F8_TESTS_KERNEL_CONFIGS_H
#define F8_TESTS_KERNEL_CONFIGS_H

#include "tests/shared/kernel/kernel_bodies.h"

/* Bodies of every kind of loop: stages, sums, maxima, blocks of columns, near values, rolls,
 * broadcasts, in place, flat, ids. Adds body `index` to the case; false past the last. */
bool kv_body(kcase *c, int index);

/* Configuration `index` of the CPU target, or of CUDA, as text; NULL past the last. */
const char *kv_config(bool cuda, int index);

/* Prints the kernels of cases with this configuration from now on; NULL: with the model's. */
void kv_use(const char *variant);

#endif
