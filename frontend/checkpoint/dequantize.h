/* Weights that a file stores as FP8 codes with their scales, as values, for programs that
 * train. Internal to frontend/. */
#ifndef F8_DEQUANTIZE_H
#define F8_DEQUANTIZE_H

#include "frontend/checkpoint/load.h"

/* The tensor of scales of `codes`: NAME_scale_inv or NAME_scale, of F32 or E8M0. Along each axis it
 * has one scale for all elements, one for each, or one for each block of 128 (F32) or 32 (E8M0).
 * Both multiply. Sources: DeepSeek-V3's README_WEIGHTS.md; README.md, "Exported weights". NULL: the
 * tensor holds no codes, or the files have no such scales. */
f8_weight *f8_dequantize_scales(const f8_weights *weights, const f8_weight *codes);
/* Values = codes x scales, f32, row-major, at `to`. */
f8_status f8_dequantize(const f8_weight *codes, const f8_weight *scales, f8_arena *memory,
                        float *to, f8_diag *diag);

#endif
