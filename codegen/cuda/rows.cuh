/* What the generated kernels of row programs share (codegen/cuda/print.h). Plain C++ over fp8c.cuh.
 */

#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a kernel need not use all that is set out for it */
#endif
#define F8_UNROLL _Pragma("unroll")
#define F8_ROLLED _Pragma("unroll 1")

/* ---- vectors of V elements of S bytes, as the 32-bit words they fill ---- */

/* An i64 (S = 8) fills one word, with the nearest i32. */
F8_DEV f8_u32 f8_nearest(f8_i64 x)
{
    const f8_i64 most = 0x7fffffff, least = -most - 1;
    return (f8_u32)(x > most ? most : x < least ? least : x);
}

template <int S> F8_DEV f8_u32 f8_element(const f8_u8 *p)
{
    if constexpr (S == 8)
        return f8_nearest(*(const f8_i64 *)p);
    else if constexpr (S == 4)
        return *(const f8_u32 *)p;
    else if constexpr (S == 2)
        return *(const f8_u16 *)p;
    else
        return *p;
}

template <int S> F8_DEV void f8_set_element(f8_u8 *p, f8_u32 x)
{
    if constexpr (S == 8)
        *(f8_i64 *)p = (f8_i32)x;
    else if constexpr (S == 4)
        *(f8_u32 *)p = x;
    else if constexpr (S == 2)
        *(f8_u16 *)p = (f8_u16)x;
    else
        *p = (f8_u8)x;
}

template <int S, int V> F8_DEV constexpr int f8_words()
{
    return ((S < 4 ? S : 4) * V + 3) / 4;
}

/* One element more at the bottom of V: the others move up by one. And the lowest one off. */
template <int S, int V> F8_DEV void f8_push_element(f8_u32 *w, f8_u32 x)
{
    constexpr int words = f8_words<S, V>();
    F8_UNROLL for (int i = words - 1; i > 0; i--)
        w[i] = S >= 4 ? w[i - 1] : w[i] << (S * 8 % 32) | w[i - 1] >> (32 - S * 8) % 32;
    w[0] = S >= 4 ? x : w[0] << (S * 8 % 32) | x;
}
template <int S, int V> F8_DEV f8_u32 f8_pop_element(f8_u32 *w)
{
    constexpr int words = f8_words<S, V>();
    const f8_u32 x = w[0];
    F8_UNROLL for (int i = 0; i < words - 1; i++)
        w[i] = S >= 4 ? w[i + 1] : w[i] >> (S * 8 % 32) | w[i + 1] << (32 - S * 8) % 32;
    w[words - 1] = S >= 4 ? 0 : w[words - 1] >> (S * 8 % 32);
    return x;
}

/* The word of element e. */
template <int S> F8_DEV constexpr int f8_word(int e)
{
    return S < 4 ? e * S / 4 : e;
}

/* V elements at an address aligned to all of them, or to 16 bytes if that is less. */
template <int S, int V> F8_DEV void f8_get(f8_u32 *w, const void *from)
{
    constexpr int bytes = S * V;
    const f8_u8 *p = (const f8_u8 *)from;
    if constexpr (S == 8) {
        F8_UNROLL for (int e = 0; e < V; e++)
            w[e] = f8_element<S>(p + e * S);
    } else if constexpr (bytes % 16 == 0) {
        F8_UNROLL for (int i = 0; i < bytes / 16; i++) {
            const f8_x4 x = ((const f8_x4 *)p)[i];
            F8_UNROLL for (int k = 0; k < 4; k++)
                w[4 * i + k] = x.v[k];
        }
    } else if constexpr (bytes == 8) {
        const f8_x2 x = *(const f8_x2 *)p;
        w[0] = x.v[0];
        w[1] = x.v[1];
    } else {
        w[0] = f8_element<bytes>(p);
    }
}
template <int S, int V> F8_DEV void f8_put(void *to, const f8_u32 *w)
{
    constexpr int bytes = S * V;
    f8_u8 *p = (f8_u8 *)to;
    if constexpr (S == 8) {
        F8_UNROLL for (int e = 0; e < V; e++)
            f8_set_element<S>(p + e * S, w[e]);
    } else if constexpr (bytes % 16 == 0) {
        F8_UNROLL for (int i = 0; i < bytes / 16; i++) {
            f8_x4 x;
            F8_UNROLL for (int k = 0; k < 4; k++)
                x.v[k] = w[4 * i + k];
            ((f8_x4 *)p)[i] = x;
        }
    } else if constexpr (bytes == 8) {
        f8_x2 x;
        x.v[0] = w[0];
        x.v[1] = w[1];
        *(f8_x2 *)p = x;
    } else {
        f8_set_element<bytes>(p, w[0]);
    }
}

/* The same to global memory, for certain in accesses of 16 bytes. */
template <int S, int V> F8_DEV void f8_put_far(void *to, const f8_u32 *w)
{
    if constexpr (S < 8 && S * V % 16 == 0) {
        F8_UNROLL for (int i = 0; i < S * V / 16; i++)
            f8_store16((f8_u8 *)to + 16 * i, w + 4 * i);
    } else {
        f8_put<S, V>(to, w);
    }
}

template <int S, int V> F8_DEV void f8_get_nothing(f8_u32 *w)
{
    F8_UNROLL for (int i = 0; i < f8_words<S, V>(); i++)
        w[i] = 0;
}

/* The first n of V elements anywhere, and zeros for the rest. It is rare, so the code is short. */
template <int S, int V> F8_DEV void f8_get_some(f8_u32 *w, const void *from, int n)
{
    F8_UNROLL for (int i = 0; i < f8_words<S, V>(); i++)
        w[i] = 0;
    F8_ROLLED for (int e = (n < V ? n : V) - 1; e >= 0; e--)
        f8_push_element<S, V>(w, f8_element<S>((const f8_u8 *)from + e * S));
}
template <int S, int V> F8_DEV void f8_put_some(void *to, const f8_u32 *w, int n)
{
    f8_u32 x[f8_words<S, V>()];
    F8_UNROLL for (int i = 0; i < f8_words<S, V>(); i++)
        x[i] = w[i];
    F8_ROLLED for (int e = 0; e < (n < V ? n : V); e++)
        f8_set_element<S>((f8_u8 *)to + e * S, f8_pop_element<S, V>(x));
}

/* The same where rows are ragged and it is not rare: one by one, but all at once. */
template <int S, int V> F8_DEV void f8_get_ragged(f8_u32 *w, const void *from, int n)
{
    F8_UNROLL for (int i = 0; i < f8_words<S, V>(); i++)
        w[i] = 0;
    F8_UNROLL for (int e = 0; e < V; e++)
        if (e < n)
            w[f8_word<S>(e)] |= f8_element<S>((const f8_u8 *)from + e * S) << (e * S % 4 * 8);
}
template <int S, int V> F8_DEV void f8_put_ragged(void *to, const f8_u32 *w, int n)
{
    F8_UNROLL for (int e = 0; e < V; e++)
        if (e < n)
            f8_set_element<S>((f8_u8 *)to + e * S, w[f8_word<S>(e)] >> (e * S % 4 * 8));
}

/* Column c of a row rolled by `shift` within groups. */
F8_DEV int f8_rolled(int c, int shift, int group)
{
    const int within = c % group, from = within - shift;
    return c - within + (from < 0 ? from + group : from);
}

/* As f8_get_ragged, each element from its rolled column. */
template <int S, int V>
F8_DEV void f8_get_rolled(f8_u32 *w, const void *row, int c, int n, int shift, int group)
{
    F8_UNROLL for (int i = 0; i < f8_words<S, V>(); i++)
        w[i] = 0;
    F8_UNROLL for (int e = 0; e < V; e++)
        if (e < n)
            w[f8_word<S>(e)] |= f8_element<S>((const f8_u8 *)row + f8_rolled(c + e, shift, group) * S)
                            << (e * S % 4 * 8);
}

/* Element e of such words. */
F8_DEV float f8_f32_of(const f8_u32 *w, int e) { return f8_from_bits(w[e]); }
F8_DEV float f8_bf16_of(const f8_u32 *w, int e)
{
    return f8_from_bits(e % 2 ? w[e / 2] & 0xffff0000u : w[e / 2] << 16);
}
F8_DEV f8_u32 f8_half_of(const f8_u32 *w, int e) { return w[e / 2] >> (e % 2 * 16) & 0xffffu; }
F8_DEV f8_u32 f8_byte_of(const f8_u32 *w, int e) { return w[e / 4] >> (e % 4 * 8) & 0xffu; }

/* ---- words of V values, converted two at a time ---- */

F8_DEV float f8_round_bf16(float x) { return f8_from_bits(f8_bf16x2(0.0f, x)); }

template <int V> F8_DEV void f8_pack_f32(f8_u32 *w, const float *y)
{
    F8_UNROLL for (int e = 0; e < V; e++)
        w[e] = f8_bits(y[e]);
}
template <int V> F8_DEV void f8_pack_word(f8_u32 *w, const f8_u32 *y)
{
    F8_UNROLL for (int e = 0; e < V; e++)
        w[e] = y[e];
}
template <int V> F8_DEV void f8_pack_half(f8_u32 *w, const f8_u32 *y)
{
    F8_UNROLL for (int e = 0; e < V; e += 2)
        w[e / 2] = e + 1 < V ? (y[e] & 0xffffu) | y[e + 1] << 16 : y[e];
}
template <int V> F8_DEV void f8_pack_byte(f8_u32 *w, const f8_u32 *y)
{
    F8_UNROLL for (int i = 0; i < (V + 3) / 4; i++)
        w[i] = 0;
    F8_UNROLL for (int e = 0; e < V; e++)
        w[e / 4] |= (y[e] & 0xffu) << (e % 4 * 8);
}
template <int V> F8_DEV void f8_pack_bf16(f8_u32 *w, const float *y)
{
    F8_UNROLL for (int e = 0; e < V; e += 2)
        w[e / 2] = f8_bf16x2(y[e], e + 1 < V ? y[e + 1] : 0.0f);
}
/* Sums of vectors of bf16, as words: each rounded to bf16. */
template <int V> F8_DEV void f8_add_bf16(f8_u32 *r, const f8_u32 *a, const f8_u32 *b)
{
    F8_UNROLL for (int i = 0; i < (V + 1) / 2; i++)
        r[i] = f8_add_bf16x2(a[i], b[i]);
}
/* For values that are bf16 already: it keeps every bit. */
template <int V> F8_DEV void f8_pack_upper(f8_u32 *w, const float *y)
{
    F8_UNROLL for (int e = 0; e < V; e += 2)
        w[e / 2] = f8_bytes(f8_bits(y[e]), e + 1 < V ? f8_bits(y[e + 1]) : 0, 0x7632u);
}
template <int V> F8_DEV void f8_pack_f16(f8_u32 *w, const float *y)
{
    F8_UNROLL for (int e = 0; e < V; e += 2)
        w[e / 2] = f8_f16x2(y[e], e + 1 < V ? y[e + 1] : 0.0f);
}
template <int V> F8_DEV void f8_pack_e4m3(f8_u32 *w, const float *y)
{
    F8_UNROLL for (int i = 0; i < (V + 3) / 4; i++)
        w[i] = 0;
    F8_UNROLL for (int e = 0; e < V; e += 2)
        w[e / 4] |= f8_e4m3x2_sat(y[e], e + 1 < V ? y[e + 1] : 0.0f) << (e % 4 * 8);
}
template <int V> F8_DEV void f8_pack_e5m2(f8_u32 *w, const float *y)
{
    F8_UNROLL for (int i = 0; i < (V + 3) / 4; i++)
        w[i] = 0;
    F8_UNROLL for (int e = 0; e < V; e += 2)
        w[e / 4] |= f8_e5m2x2_sat(y[e], e + 1 < V ? y[e + 1] : 0.0f) << (e % 4 * 8);
}

/* ---- rows shared by G neighbouring threads of a warp; all 32 threads call these together ---- */

/* Of two lanes' halves a thread keeps one and gets the partner's part of it. */
template <int N> F8_DEV void f8_halve(float *s, bool upper, int distance)
{
    F8_UNROLL for (int j = 0; j < N; j++) {
        const float keep = upper ? s[j + N] : s[j], give = upper ? s[j] : s[j + N];
        s[j] = keep + f8_shfl_xor(give, distance);
    }
}

/* The sum of 8 * G lanes, 8 neighbouring ones in each thread, by the tree of ir/README.md: lanes
 * 4 * G apart are added first, neighbours last. The first additions split a thread's lanes with its
 * partner, so that no sum is made twice. All threads get the same result. */
template <int G> F8_DEV float f8_sum(float *s)
{
    const int t = f8_thread();
    if constexpr (G >= 2)
        f8_halve<4>(s, t & G / 2, G / 2);
    if constexpr (G >= 4)
        f8_halve<2>(s, t & G / 4, G / 4);
    if constexpr (G >= 8)
        f8_halve<1>(s, t & G / 8, G / 8);
    if constexpr (G >= 16)
        s[0] = s[0] + f8_shfl_xor(s[0], G / 16);
    if constexpr (G >= 32)
        s[0] = s[0] + f8_shfl_xor(s[0], G / 32);
    /* lanes 4, 2 and 1 apart: in partners where they were split, else in the thread */
    constexpr int held = G >= 8 ? 1 : G >= 4 ? 2 : G >= 2 ? 4 : 8;
    F8_UNROLL for (int j = 0; j < (G >= 2 ? held : 4); j++)
        s[j] = s[j] + (G >= 2 ? f8_shfl_xor(s[j], G >= 2 ? G / 2 : 1) : s[(j + 4) % 8]);
    F8_UNROLL for (int j = 0; j < (G >= 4 ? held : 2); j++)
        s[j] = s[j] + (G >= 4 ? f8_shfl_xor(s[j], G >= 4 ? G / 4 : 1) : s[j + 2]);
    if constexpr (G >= 8)
        return s[0] + f8_shfl_xor(s[0], G / 8);
    else
        return s[0] + s[1];
}

template <int G> F8_DEV float f8_max(float m)
{
    F8_UNROLL for (int h = G / 2; h > 0; h /= 2)
        m = f8_maximum(m, f8_shfl_xor(m, h));
    return m;
}

F8_DEV f8_u32 f8_larger(f8_u32 a, f8_u32 b) { return a > b ? a : b; }
/* The largest magnitude on bits, of elements one by one, in two forms. By bits, that of the negative
 * ones is the largest as unsigned, of the others as signed: two instructions for two elements where
 * maxima have three operands, as no sign is cleared. */
F8_DEV void f8_see_magnitude(f8_u32 *m, float x) { m[0] = f8_larger(m[0], f8_bits(f8_abs(x))); }
F8_DEV void f8_see_bits(f8_u32 *m, float x)
{
    const f8_u32 u = f8_bits(x);
    m[0] = f8_larger(m[0], u);
    m[1] = (f8_i32)m[1] > (f8_i32)u ? m[1] : u;
}
F8_DEV f8_u32 f8_magnitude(const f8_u32 *m) { return f8_larger(m[0] & 0x7fffffffu, m[1]); }
template <int G> F8_DEV f8_u32 f8_amax(f8_u32 m)
{
    F8_UNROLL for (int h = G / 2; h > 0; h /= 2)
        m = f8_larger(m, f8_shfl_xor(m, h));
    return m;
}

/* ---- rows shared by a block of T threads. Each has 256 / T lanes; if T > 256, each of the first
 * 256 has one. Sums and maxima meet in shared memory, which takes the lanes of a sum and the maxima
 * of the warps. Another f8_sync lies before each second use of it. ---- */

template <int T> F8_DEV void f8_block_give(float *lanes, const float *s)
{
    if constexpr (T > 256) {
        if (f8_thread() < 256)
            lanes[f8_thread()] = s[0];
    } else {
        F8_UNROLL for (int e = 0; e < 256 / T; e++)
            lanes[f8_thread() * (256 / T) + e] = s[e];
    }
}
F8_DEV float f8_block_sum(const float *lanes)
{
    float s[8];
    F8_UNROLL for (int e = 0; e < 8; e++)
        s[e] = lanes[f8_thread() % 32 * 8 + e];
    return f8_sum<32>(s);
}
/* m is of the whole warp already. */
F8_DEV void f8_block_give(float *lanes, float m)
{
    if (f8_thread() % 32 == 0)
        lanes[f8_thread() / 32] = m;
}
template <int T> F8_DEV float f8_block_max(const float *lanes)
{
    float m = lanes[0];
    F8_UNROLL for (int w = 1; w < T / 32; w++)
        m = f8_maximum(m, lanes[w]);
    return m;
}
template <int T> F8_DEV f8_u32 f8_block_amax(const float *lanes)
{
    f8_u32 m = f8_bits(lanes[0]);
    F8_UNROLL for (int w = 1; w < T / 32; w++)
        m = f8_larger(m, f8_bits(lanes[w]));
    return m;
}

/* ---- the end of a launch ---- */

/* Whether this block is the last of the grid to come here; it may then read what the others stored
 * before. All its threads call this. `last` is in shared memory; it is written after all threads
 * have come. The counter is 0 before and after a launch. */
F8_DEV bool f8_is_last(f8_u32 *counter, f8_u32 *last)
{
    const f8_u32 most = (f8_u32)f8_blocks() - 1;
    f8_fence(); /* what this block stored comes before its count */
    f8_sync();
    if (f8_thread() == 0) {
        *last = f8_count(counter, most) == most;
        f8_fence(); /* what it loads comes after the other blocks' counts */
    }
    f8_sync();
    return *last;
}

/* The largest magnitude of n elements on bits, by a block of T threads. `words` are as above. */
template <int T> F8_DEV f8_u32 f8_amax_of(const float *x, int n, float *words)
{
    f8_u32 m = 0;
    _Pragma("unroll 16") for (int i = f8_thread(); i < n; i += T)
        m = f8_larger(m, f8_bits(f8_abs(x[i])));
    f8_block_give(words, f8_from_bits(f8_amax<32>(m)));
    f8_sync();
    return f8_block_amax<T>(words);
}

/* ---- tiles of `rows` x W values in shared memory, written by rows and read by columns ---- */

/* An f32 or a bf16. */
template <int S> F8_DEV float f8_tile_value(const f8_u8 *p)
{
    return f8_from_bits(S == 2 ? f8_element<2>(p) << 16 : f8_element<4>(p));
}

/* A column's values, S bytes each and P bytes from row to row, first row to last of `rows`, added
 * to a sum. R is the number of rows unless they are the last. */
template <int S, int R, int P>
F8_DEV float f8_column_sum(const f8_u8 *tile, int rows, int column, float sum)
{
    if (rows == R) {
        F8_UNROLL for (int r = 0; r < R; r++)
            sum = sum + f8_tile_value<S>(tile + r * P + column * S);
    } else {
        F8_ROLLED for (int r = 0; r < rows; r++)
            sum = sum + f8_tile_value<S>(tile + r * P + column * S);
    }
    return sum;
}

/* The largest magnitude of a column's values, on bits. */
template <int R, int W> F8_DEV f8_u32 f8_column_amax(const f8_u32 *tile, int rows, int column)
{
    f8_u32 most = 0;
    F8_UNROLL for (int r = 0; r < R; r++) {
        const f8_u32 x = tile[r * W + column] & 0x7fffffffu;
        most = r < rows ? f8_larger(most, x) : most;
    }
    return most;
}

/* A column's R elements of S bytes, P bytes from row to row, to contiguous memory: 16 or 8 bytes at
 * a time where `wide` (`to` is aligned to 16) and all rows are there. Single bytes, which come here
 * when they are few or not aligned, one by one. */
template <int S, int R, int P>
F8_DEV void f8_column_store(f8_u8 *to, const f8_u8 *tile, int rows, int column, bool wide)
{
    constexpr int chunk = R * S < 16 ? R * S : 16, words = chunk / 4;
    if constexpr (S > 1 && chunk >= 8) {
        if (wide && rows == R) {
            F8_UNROLL for (int at = 0; at < R * S; at += chunk) {
                f8_u32 w[words];
                F8_UNROLL for (int i = 0; i < words; i++)
                    w[i] = 0;
                F8_UNROLL for (int b = 0; b < chunk; b += S)
                    w[b / 4] |= f8_element<S>(tile + (at + b) / S * P + column * S) << (b % 4 * 8);
                if constexpr (words == 4)
                    *(f8_x4 *)(to + at) = f8_x4{{w[0], w[1], w[2], w[3]}};
                else
                    *(f8_x2 *)(to + at) = f8_x2{{w[0], w[1]}};
            }
            return;
        }
    }
    F8_ROLLED for (int r = 0; r < rows; r++)
        f8_set_element<S>(to + r * S, f8_element<S>(tile + r * P + column * S));
}

/* Four columns of 4 rows of bytes, a word a row, as a word a column. */
F8_DEV void f8_turn_square(f8_u32 *to, const f8_u32 *w)
{
    F8_UNROLL for (int half = 0; half < 2; half++) {
        const f8_u32 pairs = half ? 0x7362u : 0x5140u;
        const f8_u32 upper = f8_bytes(w[0], w[1], pairs), lower = f8_bytes(w[2], w[3], pairs);
        to[2 * half] = f8_bytes(upper, lower, 0x5410u);
        to[2 * half + 1] = f8_bytes(upper, lower, 0x7632u);
    }
}

/* R rows of 4 columns, bytes, of a tile with P bytes a row, to four columns `stride` apart of which
 * `columns` are there: R bytes each (4, 8 or 16), aligned. */
template <int R, int P>
F8_DEV void f8_tall_store(f8_u8 *to, f8_i64 stride, const f8_u8 *tile, int row, int column, int columns)
{
    f8_u32 w[R / 4][4];
    F8_UNROLL for (int i = 0; i < R / 4; i++) {
        f8_u32 x[4];
        F8_UNROLL for (int k = 0; k < 4; k++)
            x[k] = *(const f8_u32 *)(tile + (row + 4 * i + k) * P + column);
        f8_turn_square(w[i], x);
    }
    F8_UNROLL for (int k = 0; k < 4; k++) {
        f8_u32 x[R / 4];
        F8_UNROLL for (int i = 0; i < R / 4; i++)
            x[i] = w[i][k];
        if (k < columns)
            f8_put<1, R>(to, x);
        to += stride;
    }
}

/* A tile of R rows and W columns, P bytes from row to row, to contiguous columns: `from` and the
 * following ones of `cols`, `stride` bytes from column to column. All T threads of a block call
 * these.
 *
 * Elements of S bytes, `rows` of a column: column by column. */
template <int S, int R, int P, int W, int T>
F8_DEV void f8_store_columns(f8_u8 *to, f8_i64 stride, const f8_u8 *tile, int rows, int from, int cols)
{
    F8_ROLLED for (int x = f8_thread(); x < W; x += T) {
        const int column = from + x;
        f8_u8 *const own = to + column * stride;
        const bool tall = (((f8_u64)own | (f8_u64)stride) & 15) == 0;
        if (column < cols)
            f8_column_store<S, R, P>(own, tile, rows, x, tall);
    }
}

/* Bytes, TALL at a time, of four columns a thread. Neighbouring threads have parts of the same
 * columns, so that a column is written in neighbouring addresses. Thread T - LATE begins. */
template <int TALL, int R, int P, int W, int T, int LATE>
F8_DEV void f8_tall_columns(f8_u8 *to, f8_i64 stride, const f8_u8 *tile, int from, int cols)
{
    constexpr int down = R / TALL;
    F8_ROLLED for (int y = LATE ? (f8_thread() + LATE) % T : f8_thread(); y < W / 4 * down; y += T) {
        const int x = y / down * 4, row = y % down * TALL, column = from + x;
        f8_tall_store<TALL, P>(to + column * stride + row, stride, tile, row, x, cols - column);
    }
}
