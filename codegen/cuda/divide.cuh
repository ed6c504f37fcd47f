/* Division and square root of generated kernels, rounded to nearest for every operand and without a
 * branch. The compiler's own forms (__fdiv_rn, __fsqrt_rn) call a function for operands out of a
 * middle range; a call keeps the compiler from interleaving neighbouring elements. The
 * header also has exp for arguments known to be 16 or less.
 *
 * Plain C over fp8c.cuh, so that a test includes it as it is. `ulps` moves the seed, which is the
 * hardware's approximation: results are the same from -1 to 1 and, of the root, from -2 to 2. */

/* x * f8_to_middle(x) is in [1/2, 8) for normal x and in [2^-23, 1) for subnormals; f8_from_middle
 * is the factor's inverse. Both are powers of two. */
F8_DEV f8_u32 f8_to_middle(float x) { return (~f8_bits(x) & 0x7e000000u) | 0x00800000u; }
F8_DEV f8_u32 f8_from_middle(float x) { return (f8_bits(x) & 0x7e000000u) | 0x00800000u; }

/* What is known of a / b. */
typedef struct f8_quotient {
    float first;     /* without iterations: the result where that is 0, Inf or NaN */
    float nearest;   /* rounded to nearest; then NaN, or a zero of any sign */
    float up;        /* rounded up */
    float remainder; /* 0 if it is exact */
} f8_quotient;

/* a / b where no remainder, quotient or 1 / b is subnormal or overflows: Markstein's iterations
 * (Muller et al., Handbook of Floating-Point Arithmetic, 2nd edition, 4.7). The last one wants y to
 * be 1 / b rounded to nearest. If all bits of b are ones, 1 / b lies just above the middle of two
 * floats, and an iteration from the lower one stays there; so it starts one float further up. */
F8_DEV f8_quotient f8_quotient_of(float a, float b, int ulps)
{
    const float near = f8_from_bits(f8_bits(f8_reciprocal_seed(b)) + (f8_u32)ulps);
    const float seed = f8_from_bits(f8_bits(near) + 1);
    const float e = f8_fma(-b, seed, 1.0f), y = f8_fma(e, seed, seed);
    f8_quotient q;
    q.first = a * near;
    const float next = f8_fma(f8_fma(-b, q.first, a), y, q.first);
    q.remainder = f8_fma(-b, next, a);
    q.nearest = f8_fma(q.remainder, y, next);
    q.up = f8_fma_up(q.remainder, y, next);
    return q;
}

/* a / b. A subnormal quotient has to be rounded once. So the quotient of 24 bits is rounded up and,
 * if it is inexact, multiplied by a little less than a power of two: the product before rounding
 * lies between the same two floats of 24 bits as a / b. */
F8_DEV float f8_divide_from(float a, float b, int ulps)
{
    const f8_u32 over = f8_to_middle(b), under = f8_from_middle(a);
    const f8_quotient q = f8_quotient_of(f8_abs(a) * f8_from_bits(f8_to_middle(a)),
                                         f8_abs(b) * f8_from_bits(over), ulps);
    const bool usual = q.nearest > 0.0f;
    const f8_u32 half = (over + under) >> 1; /* this factor twice, since one could overflow */
    const float scale = f8_from_bits(half);
    const float x = (usual ? q.nearest : q.first) * scale * scale;
    const float once = q.up * scale * f8_from_bits(q.remainder != 0.0f ? half - 1 : half);
    const f8_u32 bits = f8_bits(usual && x <= 0x1p-126f ? once : x);
    return f8_from_bits(bits | ((f8_bits(a) ^ f8_bits(b)) & 0x80000000u));
}
F8_DEV float f8_divide(float a, float b) { return f8_divide_from(a, b, 0); }

/* The same for b in [2, 2^100] and a that is +0, NaN or positive; below 2^-80 only if the quotient
 * is exact. The division of tanh is of this kind: a is exp(2 |x|) - 1 and b is a + 2, which is 2
 * for small a. With it tanh has the same bits for all arguments. */
F8_DEV float f8_divide_near(float a, float b) { return f8_quotient_of(a, b, 0).nearest; }

/* The square root of a: Goldschmidt's iteration, and Markstein's last step. */
F8_DEV float f8_root_from(float a, int ulps)
{
    const float x = a * f8_from_bits(f8_to_middle(a));
    const float seed = f8_from_bits(f8_bits(f8_reciprocal_root_seed(x)) + (f8_u32)ulps);
    const float g0 = x * seed, h0 = 0.5f * seed, e = f8_fma(-h0, g0, 0.5f);
    const float g = f8_fma(g0, e, g0), h = f8_fma(h0, e, h0);
    const float root = f8_fma(h, f8_fma(-g, g, x), g);
    /* the factor was 2^(126 - 4 k), so its root's inverse is 2^(2 k - 63) */
    const float scale = f8_from_bits(((f8_bits(a) & 0x7e000000u) >> 1) + (64u << 23));
    return a == 0.0f || a == f8_from_bits(0x7f800000u) ? a : root * scale;
}
F8_DEV float f8_root(float a) { return f8_root_from(a, 0); }

/* exp (ir/num/scalar.def) of x <= 16 or NaN, the same bits: without the test for overflow, and
 * since 2^(n + 63) is normal for every n, with one factor made of bits and one constant instead of
 * two halves. The first product is exact, the second rounds. */
F8_DEV float f8_exp_below(float x)
{
    const float least = f8_maximum(x, -0x1.ap+6f);
    const float biased = f8_fma(least, 0x1.715476p+0f, 0x1.80017cp+23f);
    const float n = biased - 0x1.80017cp+23f;
    const float r = f8_fma(n, 0x1.05c61p-29f, f8_fma(n, -0x1.62e43p-1f, least));
    float y = f8_fma(0x1.6a4d6p-10f, r, 0x1.12398ep-7f);
    y = f8_fma(y, r, 0x1.5558bp-5f);
    y = f8_fma(y, r, 0x1.555492p-3f);
    y = f8_fma(y, r, 0x1.fffffcp-2f);
    y = f8_fma(y, r, 0x1p+0f);
    y = f8_fma(y, r, 0x1p+0f);
    return y * f8_from_bits(f8_bits(biased) << 23) * 0x1p-63f;
}

/* ---- whole numbers ---- */

/* a / b for a and b below 2^63, b not 0, bit by bit. What the compiler has for 64 bits is a
 * function that it calls, and a kernel that calls keeps registers for it. */
F8_DEV f8_u64 f8_whole_quotient(f8_u64 a, f8_u64 b)
{
    f8_u64 quotient = 0, bit = 1;
    for (; b < a && b >> 62 == 0; b <<= 1)
        bit <<= 1;
    for (; bit; bit >>= 1, b >>= 1)
        if (a >= b) {
            a -= b;
            quotient |= bit;
        }
    return quotient;
}

/* The row of a buffer whose rows repeat: row / div % mod. Most numbers of rows have 32 bits. */
F8_DEV f8_i64 f8_period(f8_i64 row, f8_i64 div, f8_i64 mod)
{
    if (((row | div | mod) >> 32) == 0)
        return (f8_i64)((f8_u32)row / (f8_u32)div % (f8_u32)mod);
    const f8_u64 run = f8_whole_quotient((f8_u64)row, (f8_u64)div);
    return (f8_i64)(run - f8_whole_quotient(run, (f8_u64)mod) * (f8_u64)mod);
}
