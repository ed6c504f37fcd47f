/* Tensors of files as f32. Internal to frontend/. */
#ifndef F8_VALUES_H
#define F8_VALUES_H

#include "frontend/checkpoint/weights.h"

/* Elements of a tensor. */
int64_t f8_weight_elements(const f8_st_tensor *t);
/* Whether a tensor's dtype has values: F32, F64, BF16, F16, E4M3 and E5M2, and the exponents of
 * E8M0, which others keep as U8. */
bool f8_weight_reads(const f8_st_tensor *t);
/* Its elements at `to`. NaN and Inf stay. `memory` holds what is read on the way. F8_ERR_INPUT: the
 * dtype has no values. */
f8_status f8_weight_values(const f8_weight *w, f8_arena *memory, float *to, f8_diag *diag);

/* Multiplies the values of codes by their scales. Along axis k one scale covers span[k] elements;
 * scales are row-major. */
void f8_scale_values(float *values, const f8_st_tensor *codes, const int64_t *span,
                     const float *scales);

#endif
