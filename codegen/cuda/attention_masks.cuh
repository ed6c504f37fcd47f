/* Attention: what masks and dropout do to scores, and the softmax's sums that backward is given. */
#ifndef F8_ATTENTION_MASKS
#define F8_ATTENTION_MASKS

/* ---- masks ---- */

/* With a bool mask, scores become x in units of log2 where the mask is applied, and the factor is 1.
 * With a mask that is added they become s + mask, an f32 that is rounded once, and stay in units of
 * exp: the largest, which backward subtracts, must be the very number that a score is. A query that
 * sees nothing has a sum of 0: its o is 0 and its lse +Inf, from which backward makes zeros. Without
 * a mask all of this is nothing. */
template <class S> F8_DEV constexpr float f8_att_factor()
{
    return S::MASK ? 1.0f : S::FACTOR;
}

/* A difference of scores in units of log2. */
template <class S> F8_DEV float f8_att_log2(float x)
{
    return S::MASK == 2 ? x * 0x1.715476p0f : x;
}

/* What exp2 takes of a score, in forward: top is the row's largest so far, in its units. */
template <class S> F8_DEV float f8_att_below(float s, float top)
{
    if constexpr (S::MASK == 2)
        return f8_att_log2<S>(s - top);
    else
        return f8_fma(s, f8_att_factor<S>(), -top);
}

/* The same in backward: lse2 is lse in units of log2, or top; rest2 is there with top alone. */
template <class S> F8_DEV float f8_att_exponent(float s, float lse2, float rest2)
{
    if constexpr (S::MASK == 2)
        return f8_fma(s - lse2, 0x1.715476p0f, -rest2);
    else
        return f8_fma(s, f8_att_factor<S>(), -lse2);
}

/* The mask of one head: its element (query 0, key 0). */
template <class S, class P>
F8_DEV const typename S::mask_type *f8_att_mask_of(const P &p, int batch, int head)
{
    if constexpr (S::MASK != 0)
        return p.mask + batch * S::MASK_B + head * S::MASK_H;
    else
        return nullptr;
}

/* A score, its sign already that of `scale`, with its mask. MASK 1: bool, 2: added. */
template <class S>
F8_DEV float f8_att_masked(float s, const typename S::mask_type *mask, int query, int key)
{
    if constexpr (S::MASK != 0) {
        const bool inside = query < S::T && key < S::TK;
        const auto m = mask[inside ? query * S::MASK_Q + key * S::MASK_K : 0];
        if constexpr (S::MASK == 1)
            return m != 0 ? s * S::FACTOR : -f8_from_bits(0x7f800000u);
        else
            return f8_fma(s, S::FACTOR, m);
    } else {
        return s;
    }
}

template <class S, int MT, int NT>
F8_DEV void f8_att_apply(float (&s)[MT][NT][4], const typename S::mask_type *mask, int row0,
                         int col0)
{
    if constexpr (S::MASK != 0) {
        const int lane = f8_att_thread_here<S>() % 32;
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int row = row0 + mt * 16 + lane / 4 + e / 2 * 8;
                    const int column = col0 + n * 8 + lane % 4 * 2 + e % 2;
                    s[mt][n][e] =
                        f8_att_masked<S>(s[mt][n][e], mask, S::ROWS_ARE_KEYS ? column : row,
                                         S::ROWS_ARE_KEYS ? row : column);
                }
    }
}

/* The rows of lse of a head. */
template <class S, class P> F8_DEV auto f8_att_lse_of(const P &p, int pair)
{
    return p.lse + (f8_i64)pair * (S::MASK == 2 ? 2 : 1) * S::T;
}

/* Of a row, from the largest score and the sum: lse, and what o is multiplied by. */
template <class S> F8_DEV void f8_att_put_lse(float *lse, int row, float top, float sum)
{
    const bool blind = S::MASK && sum == 0.0f;
    const float infinity = f8_from_bits(0x7f800000u), log = f8_att_log<S>(sum);
    if constexpr (S::MASK == 2) {
        lse[row] = blind ? 0.0f : sum == sum ? top : sum;
        lse[S::T + row] = blind ? infinity : log;
    } else {
        lse[row] = blind ? infinity : f8_fma(top, 0x1.62e430p-1f, log);
    }
}
template <class S> F8_DEV float f8_att_inverse(float sum)
{
    return S::MASK && sum == 0.0f ? 0.0f : f8_div(1.0f, sum);
}

/* ---- dropout ---- */

/* pcg3d of ir/num/scalar.def: its third word. */
template <class S> F8_DEV f8_u32 f8_att_random(f8_u32 a, f8_u32 b, f8_u32 c)
{
    a = a * 1664525u + 1013904223u;
    b = b * 1664525u + 1013904223u;
    c = c * 1664525u + 1013904223u;
    a += b * c;
    b += c * a;
    c += a * b;
    a ^= a >> 16;
    b ^= b >> 16;
    c ^= c >> 16;
    a += b * c;
    b += c * a;
    return c + a * b;
}

/* What says which weights of a head are dropped: a key, and the number of its query 0. */
struct f8_att_drop {
    f8_u32 key, row;
};
template <class S, class P> F8_DEV f8_att_drop f8_att_drop_of(const P &p, int batch, int head)
{
    if constexpr (S::DROP)
        return {f8_att_random<S>(*p.seed, S::STREAM, 0),
                (f8_u32)(batch * S::H + head) * (f8_u32)S::T};
    else
        return {0, 0};
}

/* The bits are compared as signed numbers, which a change of the upper one makes of unsigned. */
template <class S> F8_DEV bool f8_att_kept(const f8_att_drop &drop, int query, int key)
{
    const f8_u32 bits = f8_att_random<S>((f8_u32)key, drop.row + (f8_u32)query, drop.key);
    return (bits ^ 0x80000000u) >= (S::DROP_LIMIT ^ 0x80000000u);
}

/* A bit for each element of a tile: whether it is kept. */
template <class S, int MT, int NT>
F8_DEV f8_u32 f8_att_keep(const f8_att_drop &drop, int row0, int col0)
{
    f8_u32 keep = 0;
    if constexpr (S::DROP) {
        static_assert(MT * NT <= 8, "the elements of a tile fit one word");
        const int lane = f8_att_thread_here<S>() % 32;
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int row = row0 + mt * 16 + lane / 4 + e / 2 * 8;
                    const int column = col0 + n * 8 + lane % 4 * 2 + e % 2;
                    const bool kept = f8_att_kept<S>(drop, S::ROWS_ARE_KEYS ? column : row,
                                                     S::ROWS_ARE_KEYS ? row : column);
                    keep |= (f8_u32)kept << ((mt * NT + n) * 4 + e);
                }
    }
    return keep;
}

/* x of element `at`, or what dropout makes of it. */
template <class S> F8_DEV float f8_att_dropped(float x, f8_u32 keep, int at)
{
    if constexpr (S::DROP)
        return keep >> at & 1 ? x * S::DROP_FACTOR : 0.0f;
    else
        return x;
}

/* f8_att_left of what dropout makes of x. */
template <class S, int MT, int NT>
F8_DEV void f8_att_left_dropped(f8_u32 (&a)[MT][NT / 2][4], const float (&x)[MT][NT][4],
                                f8_u32 keep)
{
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at = (mt * NT + n) * 4 + half * 2;
                a[mt][n / 2][n % 2 * 2 + half] =
                    f8_bf16x2(f8_att_dropped<S>(x[mt][n][half * 2], keep, at),
                              f8_att_dropped<S>(x[mt][n][half * 2 + 1], keep, at + 1));
            }
}

#endif
