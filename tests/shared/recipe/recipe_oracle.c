/* See recipe_oracle.h. */
#include "tests/shared/recipe/recipe_oracle.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/shared/num/codec_oracle.h"

enum { E4M3_SATURATING = 0, E5M2_SATURATING = 2, E8M0 = 5 }; /* of codec_ways */

static const codec_oracle *codec(int way)
{
    static codec_oracle made[CODEC_WAYS];
    if (!made[way].n)
        codec_oracle_make(&made[way], &codec_ways[way]);
    return &made[way];
}

static void encode(int way, const float *v, int64_t n, uint8_t *code)
{
    enum { PART = 256 };
    uint32_t bits[PART];
    for (int64_t i = 0; i < n; i += PART) {
        const size_t part = (size_t)(n - i < PART ? n - i : PART);
        memcpy(bits, v + i, part * sizeof *bits);
        codec_oracle_codes(codec(way), bits, part, code + i);
    }
}

float recipe_oracle_amax(const float *x, int64_t rows, int64_t columns, int64_t r, int64_t c,
                         int64_t tall, int64_t wide)
{
    float amax = 0;
    for (int64_t i = r; i < r + tall && i < rows; i++)
        for (int64_t k = c; k < c + wide && k < columns; k++) {
            const float v = fabsf(x[i * columns + k]);
            if (isnan(v))
                return NAN;
            if (v > amax)
                amax = v;
        }
    return amax;
}

static float mantissa_cleared(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits &= 0xff800000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

float recipe_oracle_scale(const recipe_oracle *o, float amax, float previous)
{
    const float most = (o->e5m2 ? 57344.0f : 448.0f) * powf(2, (float)-o->margin);
    if (amax == 0 || isinf(amax) || isnan(amax))
        return previous;
    float scale = most / amax;
    if (isinf(scale))
        scale = FLT_MAX;
    return o->pow2 ? mantissa_cleared(scale) : scale;
}

uint8_t recipe_oracle_e8m0(const recipe_oracle *o, float amax)
{
    const float v = amax * (o->e5m2 ? 1 / 57344.0f : 1 / 448.0f);
    uint8_t code;
    encode(E8M0, &v, 1, &code);
    return code;
}

float recipe_oracle_torchao(float amax, bool e5m2, bool pow2)
{
    const double floored = (double)amax < 1e-12 ? 1e-12 : (double)amax;
    const float scale = (float)((e5m2 ? 57344.0 : 448.0) / floored);
    return pow2 ? exp2f(floorf(log2f(scale))) : scale;
}

void recipe_oracle_codes(const recipe_oracle *o, const float *x, int64_t n, float scale,
                         uint8_t *code)
{
    for (int64_t i = 0; i < n; i++) {
        const float scaled = x[i] * scale;
        encode(o->e5m2 ? E5M2_SATURATING : E4M3_SATURATING, &scaled, 1, &code[i]);
    }
}

int64_t recipe_oracle_quantize(const recipe_oracle *o, const float *x, int64_t rows,
                               int64_t columns, uint8_t *code, void *scale_inv)
{
    const int64_t tall = o->tall ? o->tall : rows, wide = o->wide ? o->wide : columns;
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r += tall)
        for (int64_t c = 0; c < columns; c += wide, n++) {
            const float amax = recipe_oracle_amax(x, rows, columns, r, c, tall, wide);
            float scale;
            if (o->e8m0) {
                const uint8_t e = recipe_oracle_e8m0(o, amax);
                ((uint8_t *)scale_inv)[n] = e;
                scale = e == 0xff ? NAN : ldexpf(1, 127 - e);
            } else {
                scale = recipe_oracle_scale(o, amax, 1);
                ((float *)scale_inv)[n] = isfinite(amax) ? 1 / scale : NAN;
            }
            for (int64_t i = r; i < r + tall && i < rows; i++) {
                const int64_t end = c + wide < columns ? c + wide : columns;
                recipe_oracle_codes(o, x + i * columns + c, end - c, scale, code + i * columns + c);
            }
        }
    return n;
}

/* ---- delayed scaling's memory ---- */

void recipe_history_start(recipe_history *h, int length, bool most_recent)
{
    ck_assert(length >= 1 && length <= RECIPE_ORACLE_HISTORY);
    *h = (recipe_history){.scale = 1, .length = length, .most_recent = most_recent};
}

float recipe_oracle_reach(float amax, float lr, double beta1, double beta2)
{
    const double most = (1 - beta1) / sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2));
    const float step = lr * (float)most, sum = amax + step;
    return sum * (1 + 1.0f / 256);
}

void recipe_history_see(recipe_history *h, float amax)
{
    if (isnan(amax) || amax > h->history[0])
        h->history[0] = amax;
}

void recipe_history_update(recipe_history *h, const recipe_oracle *o)
{
    const float newest = h->history[0];
    float most = newest;
    h->observed |= newest > 0;
    for (int i = 1; i < h->length; i++)
        if (h->history[i] > most)
            most = h->history[i];
    h->scale = recipe_oracle_scale(o, h->most_recent ? newest : most, h->scale);
    for (int i = 1; i < h->length - 1; i++)
        h->history[i] = h->history[i + 1];
    if (h->length > 1)
        h->history[h->length - 1] = newest;
    h->history[0] = 0;
}

void recipe_history_skip(recipe_history *h)
{
    h->history[0] = 0;
}
