/* Operands by distribution: see operands.h.
 *
 * Element i depends on the seed and i alone. Half of splitmix64(key + i / 2) chooses a magnitude
 * from a table, and a sign. The table has the quantiles (j + 1/2) / 16384 of the distribution of
 * |x|, encoded: making a code takes as long as looking it up. They end at 4.17 standard deviations
 * of a normal distribution. Nothing here calls libm, so every machine gets the same bytes. */
#include "frontend/measure/operands.h"

#include <string.h>

#include "ir/num/fp8.h"

enum { MAGNITUDE_BITS = 14, MAGNITUDES = 1 << MAGNITUDE_BITS, BLOCK = 512 };

static const float deviations = 4.25f; /* from 0 to the format's maximum */

static const char *const names[] = {
#define X(e, name, what) name,
    F8_INPUTS(X)
#undef X
};

const char *f8_inputs_name(f8_inputs inputs)
{
    return inputs < F8_N_INPUTS ? names[inputs] : NULL;
}

f8_inputs f8_inputs_by_name(const char *name)
{
    f8_inputs i = 0;
    while (i < F8_N_INPUTS && strcmp(name, names[i]))
        i++;
    return i;
}

static uint64_t splitmix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- the table ---- */

/* Walk along the density of |x| in steps of h, with the rule of the midpoint. The density at the
 * next midpoint is `ratio` times this one's, and the ratio shrinks by e^(-h h): so two numbers are
 * all that is needed of exp. What is left out of them is below 2^-62 and 2^-47. */
static void normal_quantiles(uint32_t *table)
{
    const double h = 0x1p-10, shrink = 1 - 0x1p-20 + 0x1p-41;
    double density = 0.79788456080286536 * (1 - 0x1p-23), ratio = shrink, at = 0, below = 0;
    for (int i = 0; i < MAGNITUDES; i++) {
        const double p = (i + 0.5) / MAGNITUDES;
        while (below + density * h < p) {
            below += density * h;
            at += h;
            density *= ratio;
            ratio *= shrink;
        }
        table[i] = f8_bits((float)(at + (p - below) / density));
    }
}

/* As f32; up to 1 for uniform ones, and not changed for integers. */
static void quantiles(f8_inputs inputs, uint32_t *table)
{
    if (inputs == F8_INPUTS_NORMAL) {
        normal_quantiles(table);
        return;
    }
    for (int i = 0; i < MAGNITUDES; i++) {
        const int of_nine = i * 9 / MAGNITUDES; /* 0, and each of 1 to 4 twice: for both signs */
        table[i] = f8_bits(inputs == F8_INPUTS_UNIFORM ? ((float)i + 0.5f) / MAGNITUDES
                                                       : (float)((of_nine + 1) / 2));
    }
}

/* What 1 of the distribution is in the codes of an operand. */
static float unit(f8_inputs inputs, f8_dtype dtype)
{
    if (!f8_dtype_is_fp8(dtype) || (inputs != F8_INPUTS_NORMAL && inputs != F8_INPUTS_UNIFORM))
        return 1;
    return f8_dtype_max(dtype) / (inputs == F8_INPUTS_NORMAL ? deviations : 1);
}

/* ---- elements ---- */

typedef struct source {
    uint64_t key;
    uint32_t low, sign; /* bits: those that a word changes at random; the sign */
    size_t size;
    uint32_t table[MAGNITUDES];
} source;

/* The low bits of an f32 change at random, within 2^-14 of it, or else numbers of a table would
 * have few bits set in their mantissas. Integers keep them. */
static void prepare(source *s, f8_inputs inputs, f8_dtype dtype, uint64_t seed)
{
    const float one = unit(inputs, dtype);
    s->size = f8_dtype_size(dtype);
    s->key = splitmix64(seed);
    s->low = dtype == F8_F32 && inputs != F8_INPUTS_INTEGERS ? 0x1ff : 0;
    s->sign = 1u << (8 * s->size - 1);
    quantiles(inputs, s->table);
    for (int i = 0; i < MAGNITUDES; i++)
        s->table[i] = f8_encode(dtype, f8_from_bits(s->table[i]) * one, true);
}

/* BLOCK elements from an even `first` on. A zero has no sign. */
static void make_block(const source *s, int64_t first, uint32_t *out)
{
    for (int i = 0; i < BLOCK; i += 2) {
        const uint64_t two = splitmix64(s->key + (uint64_t)(first + i) / 2);
        out[i] = (uint32_t)two;
        out[i + 1] = (uint32_t)(two >> 32);
    }
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t w = out[i], bits = s->table[w >> (32 - MAGNITUDE_BITS)] ^ (w & s->low);
        const uint32_t negative = w >> (31 - MAGNITUDE_BITS) & (bits != 0);
        out[i] = bits | (s->sign & (0 - (negative & 1)));
    }
}

static void store(const uint32_t *block, size_t size, int64_t n, char *to)
{
    if (size == 1)
        for (int64_t i = 0; i < n; i++)
            to[i] = (char)block[i];
    else if (size == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)to)[i] = (uint16_t)block[i];
    else
        memcpy(to, block, (size_t)n * sizeof *block);
}

void f8_operand_fill(f8_inputs inputs, f8_dtype dtype, uint64_t seed, void *to, int64_t n)
{
    source s;
    uint32_t block[BLOCK];
    if (inputs >= F8_INPUTS_ZEROS) {
        memset(to, 0, (size_t)n * f8_dtype_size(dtype));
        return;
    }
    prepare(&s, inputs, dtype, seed);
    for (int64_t first = 0; first < n; first += BLOCK) {
        make_block(&s, first, block);
        store(block, s.size, n - first < BLOCK ? n - first : BLOCK,
              (char *)to + (size_t)first * s.size);
    }
}

/* ---- scales ---- */

/* E8M0: the power of two below `back`, and for odd elements the one above or below that. So
 * neighbours differ by 2. */
static uint8_t power_of_two(float back, uint64_t i, uint64_t word)
{
    const uint32_t code = f8_bits(back) >> 23;
    return (uint8_t)(i % 2 ? code - 1 + word % 2 * 2 : code);
}

/* `back` times 3/4 to 1, or 9/8 to 3/2 for odd elements: neighbours differ by 9/8 to 2. */
static float near_to(float back, uint64_t i, uint64_t word)
{
    const float random = (float)(word >> 40) * 0x1p-24f;
    return back * (0.75f + random * 0.25f) * (i % 2 ? 1.5f : 1);
}

void f8_operand_fill_scales(f8_inputs inputs, f8_dtype operand, f8_dtype dtype, uint64_t seed,
                            void *to, int64_t n)
{
    const uint64_t key = splitmix64(seed);
    const float back = 1 / unit(inputs, operand);
    const bool vary = inputs == F8_INPUTS_NORMAL || inputs == F8_INPUTS_UNIFORM;
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        const uint64_t word = splitmix64(key + i);
        if (dtype == F8_E8M0)
            ((uint8_t *)to)[i] = vary ? power_of_two(back, i, word) : 127;
        else
            ((float *)to)[i] = vary ? near_to(back, i, word) : 1;
    }
}
