/* See codec_oracle.h. */
#include "tests/shared/num/codec_oracle.h"

#include <check.h>
#include <string.h>

const codec_way codec_ways[CODEC_WAYS] = {
    {"e4m3 saturating", F8_E4M3, true}, {"e4m3", F8_E4M3, false},
    {"e5m2 saturating", F8_E5M2, true}, {"e5m2", F8_E5M2, false},
    {"e8m0 saturating", F8_E8M0, true}, {"e8m0", F8_E8M0, false},
};

/* ---- formats, as OCP's specifications list their values ---- */

/* Values from 0 in steps of `least`; after the first 2 `binade` values the step doubles with every
 * `binade` more. One value past `most` is made: what would come next. */
static uint32_t signed_values(double *value, double least, uint32_t binade, double most)
{
    uint32_t n = 0;
    double step = least;
    value[n++] = 0;
    while (value[n - 1] <= most) {
        if (n > 2 * binade && (n - 1) % binade == 0)
            step *= 2;
        value[n] = value[n - 1] + step;
        n++;
    }
    return n - 1;
}

static uint32_t powers_of_two(double *value)
{
    uint32_t n = 0;
    for (double v = 0x1p-127; v <= 0x1p127; v *= 2)
        value[n++] = v;
    return n;
}

/* ---- runs ---- */

static double value_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum { INF_BITS = 0x7f800000 };

/* The first not negative f32 above `border`, or at it when `at` is set. Bit patterns of such floats
 * are in the order of their values. */
static uint32_t first_above(double border, bool at)
{
    uint32_t lo = 0, hi = INF_BITS;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        const double v = value_of_bits(mid);
        if (v > border || (at && v == border))
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static void add_run(codec_oracle *o, uint64_t first, uint32_t code)
{
    ck_assert(o->n < CODEC_MAX_RUNS && (o->n ? first > o->first[o->n - 1] : first == 0));
    o->first[o->n] = first;
    o->code[o->n++] = (uint8_t)code;
}

void codec_oracle_make(codec_oracle *o, const codec_way *way)
{
    const bool e4m3 = way->format == F8_E4M3, e8m0 = way->format == F8_E8M0;
    const uint32_t nan = e8m0 ? 0xff : 0x7f, overflow = e8m0 ? 0xff : e4m3 ? 0x7f : 0x7c;
    *o = (codec_oracle){0};
    double *v = o->value;
    o->n_values = e8m0   ? powers_of_two(v)
                  : e4m3 ? signed_values(v, 0x1p-9, 8, 448)
                         : signed_values(v, 0x1p-16, 4, 57344);
    const uint32_t top = way->saturate ? o->n_values - 1 : overflow;
    for (uint32_t sign = 0; sign < 2; sign++) {
        const uint64_t side = sign ? 0x80000000u : 0;
        const uint32_t bit = sign && !e8m0 ? 0x80 : 0;
        add_run(o, side, bit);
        for (uint32_t c = 1; c <= o->n_values; c++) {
            if (c == o->n_values && way->saturate)
                break; /* what overflows has the largest code already */
            const uint32_t from = e8m0 ? first_above(v[c - 1], false)
                                       : first_above((v[c - 1] + v[c]) / 2, c % 2 == 0);
            add_run(o, side | from, (c < o->n_values ? c : top) | bit);
        }
        add_run(o, side | (INF_BITS + 1), nan);
    }
    o->first[o->n] = 1ull << 32;
}

void codec_oracle_codes(const codec_oracle *o, const uint32_t *in, size_t n, uint8_t *code)
{
    for (size_t i = 0; i < n;) {
        uint32_t lo = 0, hi = o->n;
        while (hi - lo > 1) {
            const uint32_t mid = (lo + hi) / 2;
            if (o->first[mid] <= in[i])
                lo = mid;
            else
                hi = mid;
        }
        const uint64_t first = o->first[lo], end = o->first[lo + 1];
        for (; i < n && in[i] >= first && in[i] < end; i++)
            code[i] = o->code[lo];
    }
}
