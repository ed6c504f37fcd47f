/* Operands of measured GEMMs, by distribution. Internal to frontend/. */
#ifndef F8_MEASURE_INPUTS_H
#define F8_MEASURE_INPUTS_H

#include "ir/base/type.h"

/* Distributions of operands. A GPU's power, and so its clocks, depend on it. X(enumerator, "name",
 * "what it is") */
#define F8_INPUTS(X)                                                                               \
    X(F8_INPUTS_NORMAL, "normal", "normal, mean 0")                                                \
    X(F8_INPUTS_UNIFORM, "uniform", "uniform from -1 to 1")                                        \
    X(F8_INPUTS_INTEGERS, "integers", "integers from -4 to 4: sums are exact")                     \
    X(F8_INPUTS_ZEROS, "zeros", "zeros")
typedef enum f8_inputs {
#define X(e, name, what) e,
    F8_INPUTS(X)
#undef X
        F8_N_INPUTS
} f8_inputs;
const char *f8_inputs_name(f8_inputs inputs);  /* NULL past the last */
f8_inputs f8_inputs_by_name(const char *name); /* F8_N_INPUTS: there is none */

/* Fill n elements of an operand (f32, bf16, FP8), or of its scales (f32, or E8M0), or of a bias or
 * an old sum. Equal arguments give equal bytes; seeds give others. FP8 codes use the format's
 * range as a scaled tensor does: its maximum is at 4.25 standard deviations, or at 1 of a uniform
 * distribution. The scales bring values back to the distribution, up to a factor of 2, and differ
 * from their neighbours where there are several. Scales of integers and zeros are 1. */
void f8_operand_fill(f8_inputs inputs, f8_dtype dtype, uint64_t seed, void *to, int64_t n);
void f8_operand_fill_scales(f8_inputs inputs, f8_dtype operand, f8_dtype dtype, uint64_t seed,
                            void *to, int64_t n);

#endif
