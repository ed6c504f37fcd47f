/* Attention kernels, what all of them share: given to the compiler once, before the first of them.
 *
 * A block of warps keeps rows of one side (queries, or keys) and walks tiles of columns of the
 * other. A warp has MT pieces of 16 rows; fragments are those of mma.m16n8k16. In shared memory a
 * row of a tile holds DP elements (D rounded up to 16, zeros beyond D) and 8 more, which puts the
 * eight rows that one ldmatrix reads into different banks.
 *
 * S is a struct of constants, written out for each kernel (cuda_attention.c). */
#ifndef F8_ATTENTION
#define F8_ATTENTION

/* ---- scalars ---- */

/* 2^x = 2^n 2^f, n = rint(x), |f| <= 1/2. Adding 1.5 * 2^23 + 127 leaves n's biased exponent in the
 * low bits. 2^0 is exactly 1; below 2^-126.5 the result is 0; NaN stays NaN. Above 2^127.5, with
 * FROM_LSE only, it is Inf: without it x is at most a rounding error above 0. FINE: relative error
 * 2^-22, else 2^-20 (minimax fits of our own, the constant term fixed, and roundings). */
template <bool FINE, bool FROM_LSE> F8_DEV float f8_att_exp2(float x)
{
    const float magic = 12583039.0f;
    x = f8_maximum(x, -127.0f);
    if (FROM_LSE)
        x = f8_minimum(x, 128.0f);
    const float t = x + magic;
    const float f = x - (t - magic);
    float y;
    if (FINE) {
        y = f8_fma(0x1.4b0c96p-13f, f, 0x1.5fa788p-10f);
        y = f8_fma(y, f, 0x1.3b222ep-7f);
        y = f8_fma(y, f, 0x1.c6adc4p-5f);
        y = f8_fma(y, f, 0x1.ebfbe6p-3f);
        y = f8_fma(y, f, 0x1.62e432p-1f);
    } else {
        y = f8_fma(0x1.23a992p-10f, f, 0x1.3cbedap-7f);
        y = f8_fma(y, f, 0x1.c7430ep-5f);
        y = f8_fma(y, f, 0x1.ebfa4ep-3f);
        y = f8_fma(y, f, 0x1.62e39ep-1f);
    }
    return f8_fma(y, f, 1.0f) * f8_from_bits(f8_bits(t) << 23);
}

/* log of a sum of exponentials: 0, or at least 2^-126; or NaN or Inf. With m in [sqrt(1/2),
 * sqrt(2)) and r = (m - 1) / (m + 1), log m = 2 atanh r, its series up to r^11. */
template <class S> F8_DEV float f8_att_log(float x)
{
    const float infinity = f8_from_bits(0x7f800000u);
    if (!(x > 0.0f && x < infinity))
        return x == 0.0f ? -infinity : x;
    const f8_i32 e = (f8_i32)(f8_bits(x) - 0x3f3504f3u) >> 23;
    const float m = f8_from_bits(f8_bits(x) - ((f8_u32)e << 23));
    const float r = f8_div(m - 1.0f, m + 1.0f), z = r * r;
    float y = f8_fma(z, 2.0f / 11.0f, 2.0f / 9.0f);
    y = f8_fma(y, z, 2.0f / 7.0f);
    y = f8_fma(y, z, 2.0f / 5.0f);
    y = f8_fma(y, z, 2.0f / 3.0f);
    y = f8_fma(y * z, r, 2.0f * r);
    return f8_fma(f8_from_i32(e), 0x1.62e430p-1f, y);
}

/* ---- where things lie ---- */

/* f8_thread(), called by a warp together. What follows from it can't be computed earlier than here:
 * rare branches use it, so that nothing of theirs stays in registers in the loops around them. */
template <class S> F8_DEV int f8_att_thread_here()
{
    return (int)f8_shfl((f8_u32)f8_thread(), f8_thread() % 32);
}

template <class S> F8_DEV constexpr int f8_att_pitch()
{
    return S::DP + 8;
}

/* Whether every row of a tensor can be read in 16-byte pieces; `stride` is a constant. */
template <class S> F8_DEV bool f8_att_aligned(const f8_u16 *base, f8_i64 stride)
{
    return S::D % 8 == 0 && stride % 8 == 0 && ((f8_u64)base & 15) == 0;
}

/* Rows first .. first + ROWS - 1 of a head, whose row 0 is at `from`, into a tile; rows from N on
 * and columns from D on are zeros. Asynchronous when aligned, else element by element. */
template <class S, int ROWS, int N>
F8_DEV void f8_att_load(f8_u16 *to, const f8_u16 *from, f8_i64 stride, int first, bool aligned)
{
    constexpr int THREADS = S::WARPS * 32;
    const int thread = f8_att_thread_here<S>();
    if (!aligned) {
#pragma unroll 4
        for (int at = thread; at < ROWS * S::DP; at += THREADS) {
            const int row = at / S::DP, d = at % S::DP;
            const bool valid = first + row < N && d < S::D;
            to[row * f8_att_pitch<S>() + d] = valid ? from[(first + row) * stride + d] : 0;
        }
        return;
    }
    /* LANES threads to a row, a power of two, and STEP rows at once */
    constexpr int LANES = S::DP <= 16 ? 2 : S::DP <= 32 ? 4 : S::DP <= 64 ? 8 : 16;
    constexpr int STEP = THREADS / LANES;
    const int row0 = thread / LANES, d = thread % LANES * 8;
    if (d >= S::DP || row0 >= ROWS)
        return;
    const f8_u16 *at = from + (first + row0) * stride + d;
    to += row0 * f8_att_pitch<S>() + d;
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
        const bool valid = first + row0 + row < N && d < S::D;
        f8_copy_async16(to + row * f8_att_pitch<S>(), valid ? at + row * stride : from, valid);
    }
}

template <class S, int MT> F8_DEV void f8_att_zero(float (&x)[MT][S::DP / 8][4])
{
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < S::DP / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[mt][n][e] = 0.0f;
}

/* A warp's rows of results, times factor[piece][half], rounded to bf16. */
template <class S, int MT>
F8_DEV void f8_att_store(f8_u16 *to, f8_i64 stride, int row0, const float (&x)[MT][S::DP / 8][4],
                         const float (&factor)[MT][2])
{
    const int lane = f8_thread() % 32;
    const bool pairs = S::D % 2 == 0 && stride % 2 == 0 && ((f8_u64)to & 3) == 0;
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + mt * 16 + half * 8 + lane / 4;
            if (row >= S::ROW_N)
                continue;
            f8_u16 *out = to + row * stride;
#pragma unroll
            for (int n = 0; n < S::DP / 8; n++) {
                const int d = n * 8 + lane % 4 * 2;
                const f8_u32 word = f8_bf16x2(x[mt][n][half * 2] * factor[mt][half],
                                              x[mt][n][half * 2 + 1] * factor[mt][half]);
                if (pairs && d < S::D) {
                    *(f8_u32 *)(out + d) = word;
                } else if (!pairs) {
                    if (d < S::D)
                        out[d] = (f8_u16)word;
                    if (d + 1 < S::D)
                        out[d + 1] = (f8_u16)(word >> 16);
                }
            }
        }
}

/* ---- fragments and products ---- */

/* Fragment A: 16 rows x 16 columns of a tile. */
template <class S> F8_DEV void f8_att_rows(f8_u32 a[4], const f8_u16 *tile)
{
    const int lane = f8_thread() % 32;
    f8_ldmatrix_x4(a, tile + lane % 16 * f8_att_pitch<S>() + lane / 16 * 8);
}

/* acc = A B^T over D: A is MT * 16 rows at `a`, B is NT * 8 rows at `b`. With HOLD, A's fragments
 * come from registers. */
template <class S, int MT, int NT, bool HOLD>
F8_DEV void f8_att_scores(float (&acc)[MT][NT][4], const f8_u16 *a, const f8_u16 *b,
                          const f8_u32 (&held)[HOLD ? MT : 1][HOLD ? S::DP / 16 : 1][4])
{
    const int lane = f8_thread() % 32;
    const f8_u16 *at = b + (lane / 16 * 8 + lane % 8) * f8_att_pitch<S>() + lane / 8 % 2 * 8;
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[mt][n][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < S::DP / 16; k++) {
        f8_u32 rows[MT][4];
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
            if (HOLD) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    rows[mt][e] = held[HOLD ? mt : 0][HOLD ? k : 0][e];
            } else {
                f8_att_rows<S>(rows[mt], a + mt * 16 * f8_att_pitch<S>() + k * 16);
            }
        }
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            f8_u32 x[4];
            f8_ldmatrix_x4(x, at + n * 8 * f8_att_pitch<S>() + k * 16);
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                f8_mma_bf16(acc[mt][n], rows[mt], x);
                f8_mma_bf16(acc[mt][n + 1], rows[mt], x + 2);
            }
        }
    }
}

/* Results as the left side of the next product: rounded to bf16, 16 columns a fragment. */
template <int MT, int NT>
F8_DEV void f8_att_left(f8_u32 (&a)[MT][NT / 2][4], const float (&x)[MT][NT][4])
{
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
            a[mt][n / 2][n % 2 * 2] = f8_bf16x2(x[mt][n][0], x[mt][n][1]);
            a[mt][n / 2][n % 2 * 2 + 1] = f8_bf16x2(x[mt][n][2], x[mt][n][3]);
        }
}

/* Fragment B, and the one of the next 8 columns: 16 rows x 16 columns of a tile, rows being summed
 * over. */
template <class S> F8_DEV void f8_att_columns(f8_u32 b[4], const f8_u16 *tile)
{
    const int lane = f8_thread() % 32;
    f8_ldmatrix_x4_trans(b, tile + lane % 16 * f8_att_pitch<S>() + lane / 16 * 8);
}

/* out += A B: A as fragments of NT * 8 columns, B is as many rows at `b`. */
template <class S, int MT, int NT>
F8_DEV void f8_att_add(float (&out)[MT][S::DP / 8][4], const f8_u32 (&a)[MT][NT / 2][4],
                       const f8_u16 *b)
{
#pragma unroll
    for (int k = 0; k < NT / 2; k++)
#pragma unroll
        for (int n = 0; n < S::DP / 8; n += 2) {
            f8_u32 x[4];
            f8_att_columns<S>(x, b + k * 16 * f8_att_pitch<S>() + n * 8);
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                f8_mma_bf16(out[mt][n], a[mt][k], x);
                f8_mma_bf16(out[mt][n + 1], a[mt][k], x + 2);
            }
        }
}

/* ---- the diagonal ---- */

/* Whether a row may see a column: keys up to the query. */
template <class S> F8_DEV bool f8_att_visible(int row, int column)
{
    if (column >= S::COLUMN_N)
        return false;
    return !S::CAUSAL || (S::ROWS_ARE_KEYS ? column >= row : column <= row);
}

/* Rows [row0, row0 + rows) against columns [col0, col0 + cols): 0 none sees any, 1 some, 2 all. */
template <class S> F8_DEV int f8_att_seen(int row0, int rows, int col0, int cols)
{
    if (row0 >= S::ROW_N || col0 >= S::COLUMN_N)
        return 0;
    const bool inside = col0 + cols <= S::COLUMN_N;
    if (!S::CAUSAL)
        return inside ? 2 : 1;
    const bool none = S::ROWS_ARE_KEYS ? col0 + cols <= row0 : col0 >= row0 + rows;
    const bool all = S::ROWS_ARE_KEYS ? col0 >= row0 + rows - 1 : col0 + cols - 1 <= row0;
    return none ? 0 : all && inside ? 2 : 1;
}

/* Scores with the sign of `scale`, so that a positive factor gives x in units of log2. */
template <class S, int MT, int NT> F8_DEV void f8_att_sign(float (&s)[MT][NT][4])
{
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[mt][n][e] = S::NEGATIVE ? -s[mt][n][e] : s[mt][n][e];
}

/* x = value where a row may not see a column. */
template <class S, int MT, int NT>
F8_DEV void f8_att_mask(float (&x)[MT][NT][4], float value, int row0, int col0)
{
    const int lane = f8_att_thread_here<S>() % 32;
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = row0 + mt * 16 + lane / 4 + e / 2 * 8;
                const int column = col0 + n * 8 + lane % 4 * 2 + e % 2;
                if (!f8_att_visible<S>(row, column))
                    x[mt][n][e] = value;
            }
}

/* The halves of x that are Inf or NaN, as a mask. */
template <class S> F8_DEV f8_u32 f8_att_special(f8_u32 x)
{
    return ((x & 0x7f80u) == 0x7f80u ? 0xffffu : 0u) |
           ((x & 0x7f800000u) == 0x7f800000u ? 0xffff0000u : 0u);
}

/* Marks for the sum below. Of the left side, where its row sees its column: a positive number 1,
 * what has no finite product 2^14; p is not negative, and ds beside an Inf is 0 or NaN, as the
 * score has met it too. Of the right side: +Inf 1, -Inf 64, NaN 2^14. */
template <class S> F8_DEV f8_u32 f8_att_mark_left(f8_u32 half, bool visible)
{
    return !visible ? 0 : half - 1 < 0x7f7fu ? 0x3f80u : 0x4680u;
}
template <class S> F8_DEV f8_u32 f8_att_mark_right(f8_u32 half)
{
    if ((half & 0x7f80u) != 0x7f80u)
        return 0;
    return half & 0x7fu ? 0x4680u : half & 0x8000u ? 0x4280u : 0x3f80u;
}

/* out += the Inf and NaN terms of a 16 x 16 block on the diagonal: a sum of marks' products is at
 * least 2^14 where there is a NaN, else the count of +Inf and 64 times that of -Inf. `where`: bit i
 * for columns 16 i on, the same in the whole warp. Rare, and written to need few registers. */
template <class S>
F8_DEV void f8_att_add_special(float (&out)[S::DP / 8][4], const f8_u32 (&a)[4], const f8_u16 *b,
                               f8_u32 where)
{
#pragma unroll
    for (int n = 0; n < S::DP / 8; n++) {
        if (!(where >> n / 2 & 1))
            continue;
        const int lane = f8_att_thread_here<S>() % 32;
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        f8_u32 x[4], left[4];
        f8_att_columns<S>(x, b + n / 2 * 16);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = lane / 4 + e % 2 * 8, column = lane % 4 * 2 + e / 2 * 8;
            const bool low = S::ROWS_ARE_KEYS ? column >= row : column <= row;
            const bool high = S::ROWS_ARE_KEYS ? column + 1 >= row : column + 1 <= row;
            left[e] = f8_att_mark_left<S>(a[e] & 0xffffu, low) |
                      f8_att_mark_left<S>(a[e] >> 16, high) << 16;
            x[e] = f8_att_mark_right<S>(x[e] & 0xffffu) | f8_att_mark_right<S>(x[e] >> 16) << 16;
        }
        f8_mma_bf16(sum, left, x + n % 2 * 2);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const f8_i32 count = f8_to_i32(sum[e]), plus = count & 63;
            f8_u32 term = count == plus ? 0x7f800000u : 0xff800000u;
            if (count >= 16384 || (plus && count > plus))
                term = 0x7fc00000u;
            out[n][e] += count ? f8_from_bits(term) : -0.0f;
        }
    }
}

/* out += A B for one piece of 16 rows and the 16 columns on the diagonal with them. What a row may
 * not see has 0 in A; so that 0 * Inf or 0 * NaN adds nothing, they are left out of B first, and
 * where there were any they are added to the rows that do see them. The warp does this together. */
template <class S>
F8_DEV void f8_att_add_diagonal(float (&out)[S::DP / 8][4], const f8_u32 (&a)[4], const f8_u16 *b)
{
    f8_u32 where = 0;
#pragma unroll
    for (int n = 0; n < S::DP / 8; n += 2) {
        f8_u32 x[4];
        f8_att_columns<S>(x, b + n * 8);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const f8_u32 special = f8_att_special<S>(x[e]);
            where |= special ? 1u << n / 2 : 0;
            x[e] &= ~special;
        }
        f8_mma_bf16(out[n], a, x);
        f8_mma_bf16(out[n + 1], a, x + 2);
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2)
        where |= f8_shfl_xor(where, mask);
    if (where)
        f8_att_add_special<S>(out, a, b, where);
}

/* out += A B where not every row sees every column: 16 x 16 blocks that none sees are left out,
 * those on the diagonal come last. */
template <class S, int MT, int NT>
F8_DEV void f8_att_add_masked(float (&out)[MT][S::DP / 8][4], const f8_u32 (&a)[MT][NT / 2][4],
                              const f8_u16 *b, int row0, int col0)
{
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
        const int row = row0 + mt * 16;
        f8_u32 diagonal[4] = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < NT / 2; k++) {
            const int column = col0 + k * 16;
            if (row == column) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    diagonal[e] = a[mt][k][e];
            } else if (f8_att_seen<S>(row, 16, column, 16)) {
#pragma unroll
                for (int n = 0; n < S::DP / 8; n += 2) {
                    f8_u32 x[4];
                    f8_att_columns<S>(x, b + k * 16 * f8_att_pitch<S>() + n * 8);
                    f8_mma_bf16(out[mt][n], a[mt][k], x);
                    f8_mma_bf16(out[mt][n + 1], a[mt][k], x + 2);
                }
            }
        }
        if (row >= col0 && row < col0 + NT * 8)
            f8_att_add_diagonal<S>(out[mt], diagonal, b + (row - col0) * f8_att_pitch<S>());
    }
}

template <class S, int MT, int NT>
F8_DEV void f8_att_add_seen(float (&out)[MT][S::DP / 8][4], const f8_u32 (&a)[MT][NT / 2][4],
                            const f8_u16 *b, bool masked, int row0, int col0)
{
    if constexpr (S::CAUSAL) {
        if (masked) {
            f8_att_add_masked<S, MT, NT>(out, a, b, row0, col0);
            return;
        }
    }
    f8_att_add<S, MT, NT>(out, a, b);
}

/* ---- tasks ---- */

/* The tiles of keys that queries below `last` see. */
template <class S> F8_DEV int f8_att_tiles(int last)
{
    const int keys = S::CAUSAL && (S::TK >= S::T || last < S::TK) ? last : S::TK;
    return (keys + S::COLS - 1) / S::COLS;
}

/* Task -> a block of rows of one head of one sequence; the longest first when causal: late queries
 * see more keys, early keys are seen by more queries. */
struct f8_att_task {
    int batch, head, first;
};
template <class S, int HEADS, int BLOCK> F8_DEV f8_att_task f8_att_find(f8_i64 task)
{
    constexpr int BLOCKS = (S::ROW_N + BLOCK - 1) / BLOCK;
    const int pair = (int)(task % (S::B * HEADS)), rank = (int)(task / (S::B * HEADS));
    const int block = S::CAUSAL && !S::ROWS_ARE_KEYS ? BLOCKS - 1 - rank : rank;
    return {pair / HEADS, pair % HEADS, block * BLOCK};
}

#endif
