/* Scales of a GEMM's operands: see gemm_scales.h. */
#include "runtime/cpu/gemm_scales.h"

#include <float.h>
#include <math.h>

#include "ir/num/fp8.h"
#include "ir/num/quantize.h"

/* ---- of a desc ---- */

static f8_scales described(const f8_gemm_desc *d, bool is_a)
{
    return (f8_scales){.grain = is_a ? d->scale_a : d->scale_b,
                       .dtype = d->scale,
                       .k_is_rows = is_a ? d->trans_a : !d->trans_b};
}

static f8_status check(const f8_gemm_desc *d, bool is_a, f8_diag *diag)
{
    const f8_scales s = described(d, is_a);
    const int64_t along = f8_scales_along_k(&s), across = f8_scales_across(&s);
    const char which = is_a ? 'A' : 'B';
    if (!d->has_alpha && (along || across))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "GEMM operand %c has a granularity but no scales", which);
    if (along < 0 || across < 0 || along == 1 || (along && !across)) {
        char text[48];
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "GEMM operand %c: scales can't be \"%s\": they are one for the tensor, one "
                       "for each row of the result, or one for each block along k",
                       which, f8_granularity_print(s.grain, text, sizeof text));
    }
    return F8_OK;
}

f8_status f8_gemm_scales_check(const f8_gemm_desc *d, f8_diag *diag)
{
    if (d->has_alpha && d->scale != F8_F32 && d->scale != F8_E8M0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "GEMM scales can't be %s",
                       (unsigned)d->scale < F8_DTYPE_COUNT ? f8_dtype_name(d->scale)
                                                           : "of no dtype");
    if (d->has_alpha && d->scale_layout != F8_SCALES_GRID)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "GEMMs on the CPU take scales laid out as \"%s\" only",
                       f8_scale_layout_name(F8_SCALES_GRID));
    F8_TRY(check(d, true, diag));
    return check(d, false, diag);
}

f8_gemm_scales f8_gemm_scales_of(const f8_gemm_desc *d, bool is_a, const void *data)
{
    const f8_scales s = described(d, is_a);
    const int64_t columns = !s.k_is_rows ? d->k : is_a ? d->m : d->n;
    const int64_t ld = f8_granularity_block(s.grain.cols, columns - 1) + 1;
    return (f8_gemm_scales){data, s.dtype, s.grain, ld};
}

static int64_t block_of_k(const f8_gemm_desc *d, bool is_a)
{
    const f8_scales s = described(d, is_a);
    const int64_t along = f8_scales_along_k(&s);
    return along < d->k ? along : 0;
}

bool f8_gemm_scales_along_k(const f8_gemm_desc *d, bool is_a)
{
    return block_of_k(d, is_a) != 0;
}

int64_t f8_gemm_scales_chunk(const f8_gemm_desc *d, int64_t most)
{
    int64_t x = block_of_k(d, true), y = block_of_k(d, false);
    while (y) { /* the greatest common divisor; of 0 and y it is y */
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    if (x <= most)
        return x;
    while (x % most)
        most--;
    return most;
}

/* ---- multiplying ---- */

/* out[i] = scale at + i * step of the array */
static void read_scales(const f8_gemm_scales *s, int64_t at, int64_t step, int64_t count,
                        float *out)
{
    if (s->dtype == F8_F32) {
        const float *from = (const float *)s->data + at;
        for (int64_t i = 0; i < count; i++)
            out[i] = from[i * step];
        return;
    }
    const uint8_t *from = (const uint8_t *)s->data + at;
    for (int64_t i = 0; i < count; i++) { /* as f8_e8m0_to_f32, without a call */
        const uint32_t code = from[i * step];
        out[i] = f8_from_bits(code == 0xff ? 0x7fc00000u : code ? code << 23 : 0x00400000u);
    }
}

static void fill(float *out, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = value;
}

/* How far from index `i` the block of `size` that it is in goes, `most` at most. */
static int64_t run(int64_t size, int64_t i, int64_t most)
{
    const int64_t left = size ? size - i % size : most;
    return left < most ? left : most;
}

void f8_gemm_scales_factors(const f8_gemm_scales *s, bool by_rows, int64_t first, int64_t count,
                            int64_t at, float *factor)
{
    const f8_granularity g = s->granularity;
    const int64_t size = by_rows ? g.rows : g.cols, step = by_rows ? s->ld : 1;
    if (!s->data) {
        fill(factor, count, 1);
        return;
    }
    const int64_t from =
        by_rows ? f8_granularity_block(g.cols, at) : f8_granularity_block(g.rows, at) * s->ld;
    if (size == 1) {
        read_scales(s, from + first * step, step, count, factor);
        return;
    }
    for (int64_t i = 0, n; i < count; i += n) {
        float value;
        n = run(size, first + i, count - i);
        read_scales(s, from + f8_granularity_block(size, first + i) * step, 1, 1, &value);
        fill(factor + i, n, value);
    }
}

/* Whether every product of a row's and a column's factor is normal as an f32, so that multiplying
 * the two in f32 gives f8_scales_product. */
static bool all_normal(const f8_gemm_factors *f, int64_t rows, int64_t cols)
{
    const float *const side[] = {f->row, f->col};
    const int64_t n[] = {rows, cols};
    double least = 1, most = 1;
    for (int s = 0; s < 2; s++) {
        float low = FLT_MAX, high = 0;
        bool ordered = true;
        for (int64_t i = 0; i < n[s]; i++) {
            const float x = fabsf(side[s][i]);
            low = x < low ? x : low;
            high = x > high ? x : high;
            ordered &= x == x;
        }
        least *= ordered ? (double)low : 0;
        most *= (double)high;
    }
    return least >= (double)FLT_MIN && most < (double)FLT_MAX;
}

void f8_gemm_scales_finish(const f8_gemm_simd *simd, const f8_gemm_factors *f, bool add, float *c,
                           int64_t ldc, const float *t, int64_t ldt, int64_t rows, int64_t cols)
{
    if (all_normal(f, rows, cols)) {
        (add ? simd->add : simd->store)(c, ldc, t, ldt, f->row, f->col, rows, cols);
        return;
    }
    for (int64_t r = 0; r < rows; r++, c += ldc, t += ldt)
        for (int64_t i = 0; i < cols; i++) {
            const float x = (float)(f8_scales_product(f->row[r], f->col[i]) * (double)t[i]);
            c[i] = add ? c[i] + x : x;
        }
}

static const float ones[F8_SCALE_COLS] = {
#define X4 1, 1, 1, 1
#define X16 X4, X4, X4, X4
    X16, X16, X16, X16
#undef X16
#undef X4
};

void f8_gemm_scales_apply(const f8_gemm_simd *simd, const f8_gemm_scales *s, int64_t row,
                          int64_t col, int64_t rows, int64_t cols, float *x, int64_t ld)
{
    const f8_granularity g = s->granularity;
    float factor[F8_SCALE_COLS];
    if (g.cols == 1) {
        for (int64_t r = 0, n; r < rows; r += n) {
            n = run(g.rows, row + r, rows - r);
            f8_gemm_scales_factors(s, false, col, cols, row + r, factor);
            simd->store(x + r * ld, ld, x + r * ld, ld, ones, factor, n, cols);
        }
        return;
    }
    for (int64_t c = 0, n; c < cols; c += n) {
        n = run(g.cols, col + c, cols - c);
        f8_gemm_scales_factors(s, true, row, rows, col + c, factor);
        simd->store(x + c, ld, x + c, ld, factor, ones, rows, n);
    }
}
