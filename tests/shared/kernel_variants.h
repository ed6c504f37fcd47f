/* All variants of kernels over the bodies of kernel_bodies.h: what the tuner may choose from, and a
 * few that join its words. */
#ifndef F8_TESTS_KERNEL_VARIANTS_H
#define F8_TESTS_KERNEL_VARIANTS_H

#include "tests/shared/kernel_bodies.h"

/* Bodies of every kind of loop: stages, sums, maxima, blocks of columns, near values, rolls,
 * broadcasts, in place, flat, ids. Adds body `index` to the case; false past the last. */
bool kv_body(kcase *c, int index);

/* Variant `index` of the CPU's, or of CUDA's, as text; NULL past the last. */
const char *kv_variant(bool cuda, int index);

/* Kernels of cases have this variant from now on; NULL: the model's. */
void kv_use(const char *variant);

#endif
