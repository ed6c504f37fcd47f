/* The scales and codes that each scaling recipe gives for a tensor, computed slowly, by plain loops
 * over floats, from the recipe's publication. Nothing here calls ir/ or passes/: the formats are
 * codec_oracle's, the rest is in recipe_oracle.c.
 *
 * Sources, and where fp8c differs from them, mostly so that no Inf or NaN turns into a finite
 * number:
 *
 *   every scale   Transformer Engine, common/recipe/recipe_common.cuh, compute_scale_from_amax:
 *                 scale = max / amax in f32; infinite: FLT_MAX; amax 0, Inf or NaN: 1; powers of
 *                 two: the mantissa cleared. Codes are of x * scale, and what dequantizes is
 *                 1 / scale (arXiv 2412.19437 divides x by amax / 448 instead: other last bits).
 *                 Its amax is fmaxf's, which drops NaNs; here a NaN stays. With an amax of Inf or
 *                 NaN 1 / scale is NaN here, and the codes are those of scale 1, saturated. There,
 *                 a block's infinite scale is the maximum of the input's type: all is f32 here.
 *   delayed       delayed_scaling.cu, amax_and_scale_update: max * 2^-margin / (max or newest of
 *                 the history); amax 0, Inf or NaN: the scale there was. The bulk kernel there does
 *                 not move a history whose newest amax is 0; here, as in the plain one, 0 enters.
 *                 A weight's amax is taken where it changes, so its scale is never a step late;
 *                 an update that is skipped leaves history and scale.
 *   margin, pow2  the former is that of delayed scaling, the latter compute_scale_from_amax's: both
 *                 here for any recipe but mxfp8.
 *   rowwise       torchao, float8/float8_utils.py, amax_to_scale: max / max(amax, 1e-12) in f64,
 *                 rounded to f32, which for floats is the same as dividing in f32
 *                 (recipe_oracle_torchao has it as written; check_recipe_bits compares). Without
 *                 the floor a row below 1e-12 keeps its precision here. An Inf gives scale 0 there.
 *   block         arXiv 2412.19437 section 3.3.1: 1 x 128 of activations and gradients along k,
 *                 128 x 128 of weights.
 *   mxfp8         OCP Microscaling 1.0: 1 x 32 along k, scales E8M0. There the scale rounds down
 *                 and the largest elements saturate; here it rounds up as arXiv 2506.08027 has it,
 *                 by Transformer Engine's arithmetic (ptx_arch_spec.cuh, float_to_e8m0): amax times
 *                 1 / max in f32. An Inf gives the largest E8M0 there; here, as a NaN does, NaN. */
#ifndef F8_TESTS_RECIPE_ORACLE_H
#define F8_TESTS_RECIPE_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct recipe_oracle {
    bool e5m2; /* codes are E5M2, else E4M3 */
    bool e8m0; /* scales as mxfp8 has them; margin and pow2 mean nothing then */
    bool pow2;
    int margin;
    int64_t tall, wide; /* what a scale covers; 0: all rows, all columns */
} recipe_oracle;

/* The largest |x| of the rows [r, r + tall) and columns [c, c + wide) of x [rows, columns]; NaN if
 * one is there. */
float recipe_oracle_amax(const float *x, int64_t rows, int64_t columns, int64_t r, int64_t c,
                         int64_t tall, int64_t wide);

/* The scale for an amax; `previous` where the amax gives none. */
float recipe_oracle_scale(const recipe_oracle *o, float amax, float previous);
/* 1 / scale as E8M0. */
uint8_t recipe_oracle_e8m0(const recipe_oracle *o, float amax);
/* What torchao publishes, floor and all. */
float recipe_oracle_torchao(float amax, bool e5m2, bool pow2);

/* code[i] of x[i] * scale, saturating. */
void recipe_oracle_codes(const recipe_oracle *o, const float *x, int64_t n, float scale,
                         uint8_t *code);

/* x [rows, columns] by its own amaxes: codes [rows, columns], and scale_inv, f32 or E8M0, a grid of
 * one for each block. Returns how many there are of those. */
int64_t recipe_oracle_quantize(const recipe_oracle *o, const float *x, int64_t rows,
                               int64_t columns, uint8_t *code, void *scale_inv);

/* Delayed scaling's memory: one operand's. history[0] gathers, the oldest is history[1], as
 * Transformer Engine keeps it. */
enum { RECIPE_ORACLE_HISTORY = 64 };
typedef struct recipe_history {
    float history[RECIPE_ORACLE_HISTORY], scale;
    int length;
    bool most_recent;
    bool observed; /* something was pushed that is not zero */
} recipe_history;

void recipe_history_start(recipe_history *h, int length, bool most_recent);
void recipe_history_see(recipe_history *h, float amax); /* a micro-step's */
/* What AdamW can make of a weight's amax in one update, which enters the weight's history: in f32,
 * (amax + lr most) (1 + 2^-8), where `most` is the largest |m^| / sqrt(v^)
 * (passes/unit/formulas.h).
 */
float recipe_oracle_reach(float amax, float lr, double beta1, double beta2);
void recipe_history_update(recipe_history *h, const recipe_oracle *o);
void recipe_history_skip(recipe_history *h); /* the update was skipped */

#endif
