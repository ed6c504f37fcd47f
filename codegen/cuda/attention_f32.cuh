/* Attention in f32, without tensor cores: four lanes (a quad) to a row, each with every fourth
 * element of it in registers; columns come through shared memory a tile at a time, and a quad takes
 * them one by one. Simple before fast: f32 is the recipe of comparisons. What a row may not see is
 * not touched. */
#ifndef F8_ATTENTION_F32
#define F8_ATTENTION_F32

/* Elements d = 4 i + lane of a row that a lane holds. */
template <class S> F8_DEV constexpr int f8_att_f32_own()
{
    return (S::D + 3) / 4;
}

/* COLS rows of two tensors from row `first` on, zeros beyond the last and D; everyone waits for it.
 */
template <class S>
F8_DEV void f8_att_f32_tile(float *to, const float *a, f8_i64 stride_a, const float *b,
                            f8_i64 stride_b, int first)
{
    constexpr int PITCH = 4 * f8_att_f32_own<S>();
    f8_sync();
#pragma unroll 1
    for (int at = f8_thread(); at < S::COLS * PITCH; at += S::WARPS * 32) {
        const int row = first + at / PITCH, d = at % PITCH;
        const bool valid = row < S::COLUMN_N && d < S::D;
        to[at] = valid ? a[row * stride_a + d] : 0.0f;
        to[S::COLS * PITCH + at] = valid ? b[row * stride_b + d] : 0.0f;
    }
    f8_sync();
}

template <class S>
F8_DEV void f8_att_f32_row(float (&x)[f8_att_f32_own<S>()], const float *from, f8_i64 stride,
                           int row)
{
#pragma unroll
    for (int i = 0; i < f8_att_f32_own<S>(); i++) {
        const int d = 4 * i + f8_thread() % 4;
        x[i] = row < S::ROW_N && d < S::D ? from[row * stride + d] : 0.0f;
    }
}

template <class S>
F8_DEV void f8_att_f32_store(float *to, f8_i64 stride, int row,
                             const float (&x)[f8_att_f32_own<S>()], float by)
{
#pragma unroll
    for (int i = 0; i < f8_att_f32_own<S>(); i++) {
        const int d = 4 * i + f8_thread() % 4;
        if (row < S::ROW_N && d < S::D)
            to[row * stride + d] = x[i] * by;
    }
}

/* The dot product of the quad's row and one row of a tile, in all four lanes. */
template <class S>
F8_DEV float f8_att_f32_dot(const float (&x)[f8_att_f32_own<S>()], const float *y)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < f8_att_f32_own<S>(); i++)
        sum = f8_fma(x[i], y[4 * i + f8_thread() % 4], sum);
    sum += f8_shfl_xor(sum, 1);
    return sum + f8_shfl_xor(sum, 2);
}

/* x += by * y */
template <class S>
F8_DEV void f8_att_f32_add(float (&x)[f8_att_f32_own<S>()], float by, const float *y)
{
#pragma unroll
    for (int i = 0; i < f8_att_f32_own<S>(); i++)
        x[i] = f8_fma(by, y[4 * i + f8_thread() % 4], x[i]);
}

template <class S> F8_DEV void f8_att_f32_zero(float (&x)[f8_att_f32_own<S>()])
{
#pragma unroll
    for (int i = 0; i < f8_att_f32_own<S>(); i++)
        x[i] = 0.0f;
}

/* A score: over the factor in units of log2, or s + mask. */
template <class S>
F8_DEV float f8_att_f32_score(const float (&x)[f8_att_f32_own<S>()], const float *y,
                              const typename S::mask_type *mask, int row, int column)
{
    const float s = f8_att_f32_dot<S>(x, y);
    return f8_att_masked<S>(S::NEGATIVE ? -s : s, mask, S::ROWS_ARE_KEYS ? column : row,
                            S::ROWS_ARE_KEYS ? row : column);
}

/* x, or what dropout makes of it. */
template <class S>
F8_DEV float f8_att_f32_dropped(float x, const f8_att_drop &drop, int row, int column)
{
    if constexpr (S::DROP)
        return f8_att_kept<S>(drop, S::ROWS_ARE_KEYS ? column : row,
                              S::ROWS_ARE_KEYS ? row : column)
                   ? x * S::DROP_FACTOR
                   : 0.0f;
    else
        return x;
}

template <class S, class P> F8_DEV void f8_att_f32_forward(const P &p, f8_u8 *room)
{
    constexpr int OWN = f8_att_f32_own<S>(), PITCH = 4 * OWN;
    const float none = -f8_from_bits(0x7f800000u);
    float *ks = (float *)room, *vs = ks + S::COLS * PITCH;
    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {
        const f8_att_task t = f8_att_find<S, S::H, S::ROWS>(task);
        const f8_i64 batch = (f8_i64)t.batch * S::T, keys = (f8_i64)t.batch * S::TK;
        const typename S::mask_type *mask = f8_att_mask_of<S>(p, t.batch, t.head);
        const f8_att_drop drop = f8_att_drop_of<S>(p, t.batch, t.head);
        const int kv = t.head / (S::H / S::HKV), row = t.first + f8_thread() / 4;
        const int end = S::CAUSAL && t.first + S::ROWS < S::TK ? t.first + S::ROWS : S::TK;
        float q[OWN], o[OWN], top = none, sum = 0.0f;
        f8_att_f32_row<S>(q, p.q + batch * S::STRIDE_Q + t.head * S::D, S::STRIDE_Q, row);
        f8_att_f32_zero<S>(o);
#pragma unroll 1
        for (int col0 = 0; col0 < end; col0 += S::COLS) {
            f8_att_f32_tile<S>(ks, p.k + keys * S::STRIDE_K + kv * S::D, S::STRIDE_K,
                               p.v + keys * S::STRIDE_V + kv * S::D, S::STRIDE_V, col0);
            float s[S::COLS], most = none;
#pragma unroll
            for (int j = 0; j < S::COLS; j++) {
                s[j] = f8_att_f32_score<S>(q, ks + j * PITCH, mask, row, col0 + j);
                if (!f8_att_visible<S>(row, col0 + j))
                    s[j] = none;
                most = f8_maximum(most, s[j]);
            }
            const float next = f8_maximum(top, most * f8_att_factor<S>());
            /* while all scores so far are -Inf, -Inf - -Inf must not make a NaN that stays */
            const float safe = next == none ? 0.0f : next;
            const float alpha = f8_att_exp2<true, false>(f8_att_log2<S>(top - safe));
            top = next;
            sum *= alpha;
#pragma unroll
            for (int i = 0; i < OWN; i++)
                o[i] *= alpha;
#pragma unroll
            for (int j = 0; j < S::COLS; j++) {
                const float x = f8_att_exp2<true, false>(f8_att_below<S>(s[j], safe));
                sum += x;
                if (f8_att_visible<S>(row, col0 + j))
                    f8_att_f32_add<S>(o, f8_att_f32_dropped<S>(x, drop, row, col0 + j),
                                      vs + j * PITCH);
            }
        }
        if (f8_thread() % 4 == 0 && row < S::T)
            f8_att_put_lse<S>(f8_att_lse_of<S>(p, t.batch * S::H + t.head), row, top, sum);
        f8_att_f32_store<S>(p.o + batch * S::STRIDE_O + t.head * S::D, S::STRIDE_O, row, o,
                            f8_att_inverse<S>(sum));
    }
}

/* p of a score. */
template <class S> F8_DEV float f8_att_f32_weight(float score, float lse2, float rest2)
{
    return f8_att_exp2<true, true>(f8_att_exponent<S>(score, lse2, rest2));
}

/* rest2 of the query whose lse2 is at `lse2` in the workspace. */
template <class S> F8_DEV float f8_att_f32_rest(const float *lse2)
{
    if constexpr (S::STATS > 2)
        return lse2[2 * (f8_i64)S::B * S::H * S::TP];
    else
        return 0.0f;
}

template <class S, class P> F8_DEV void f8_att_f32_keys(const P &p, f8_u8 *room)
{
    constexpr int OWN = f8_att_f32_own<S>(), PITCH = 4 * OWN, GROUP = S::H / S::HKV;
    float *qs = (float *)room, *dos = qs + S::COLS * PITCH;
    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {
        const f8_att_task t = f8_att_find<S, S::HKV, S::ROWS>(task);
        const f8_i64 batch = (f8_i64)t.batch * S::T, keys = (f8_i64)t.batch * S::TK;
        const int row = t.first + f8_thread() / 4;
        float k[OWN], v[OWN], dk[OWN], dv[OWN];
        f8_att_f32_row<S>(k, p.k + keys * S::STRIDE_K + t.head * S::D, S::STRIDE_K, row);
        f8_att_f32_row<S>(v, p.v + keys * S::STRIDE_V + t.head * S::D, S::STRIDE_V, row);
        f8_att_f32_zero<S>(dk);
        f8_att_f32_zero<S>(dv);
#pragma unroll 1
        for (int head = t.head * GROUP; head < (t.head + 1) * GROUP; head++) {
            const float *lse2 = p.workspace + (f8_i64)(t.batch * S::H + head) * S::TP;
            const float *delta = lse2 + (f8_i64)S::B * S::H * S::TP;
            const typename S::mask_type *mask = f8_att_mask_of<S>(p, t.batch, head);
            const f8_att_drop drop = f8_att_drop_of<S>(p, t.batch, head);
#pragma unroll 1
            for (int col0 = S::CAUSAL ? t.first : 0; col0 < S::T; col0 += S::COLS) {
                f8_att_f32_tile<S>(qs, p.q + batch * S::STRIDE_Q + head * S::D, S::STRIDE_Q,
                                   p.dout + batch * S::STRIDE_DO + head * S::D, S::STRIDE_DO, col0);
#pragma unroll 1
                for (int j = 0; j < S::COLS; j++) {
                    const float s = f8_att_f32_score<S>(k, qs + j * PITCH, mask, row, col0 + j);
                    const float x = f8_att_f32_weight<S>(
                        s, lse2[col0 + j], f8_att_f32_rest<S>(lse2 + col0 + j));
                    const float dp = f8_att_f32_dropped<S>(f8_att_f32_dot<S>(v, dos + j * PITCH),
                                                           drop, row, col0 + j);
                    if (f8_att_visible<S>(row, col0 + j)) {
                        f8_att_f32_add<S>(dv, f8_att_f32_dropped<S>(x, drop, row, col0 + j),
                                          dos + j * PITCH);
                        f8_att_f32_add<S>(dk, x * (dp - delta[col0 + j]), qs + j * PITCH);
                    }
                }
            }
        }
        f8_att_f32_store<S>(p.dk + keys * S::STRIDE_DK + t.head * S::D, S::STRIDE_DK, row, dk,
                            S::SCALE);
        f8_att_f32_store<S>(p.dv + keys * S::STRIDE_DV + t.head * S::D, S::STRIDE_DV, row, dv,
                            1.0f);
    }
}

template <class S, class P> F8_DEV void f8_att_f32_queries(const P &p, f8_u8 *room)
{
    constexpr int OWN = f8_att_f32_own<S>(), PITCH = 4 * OWN;
    float *ks = (float *)room, *vs = ks + S::COLS * PITCH;
    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {
        const f8_att_task t = f8_att_find<S, S::H, S::ROWS>(task);
        const f8_i64 batch = (f8_i64)t.batch * S::T, keys = (f8_i64)t.batch * S::TK;
        const typename S::mask_type *mask = f8_att_mask_of<S>(p, t.batch, t.head);
        const f8_att_drop drop = f8_att_drop_of<S>(p, t.batch, t.head);
        const int kv = t.head / (S::H / S::HKV), row = t.first + f8_thread() / 4;
        const int end = S::CAUSAL && t.first + S::ROWS < S::TK ? t.first + S::ROWS : S::TK;
        const float *stats = p.workspace + (f8_i64)(t.batch * S::H + t.head) * S::TP + row;
        const float lse2 = stats[0], delta = stats[(f8_i64)S::B * S::H * S::TP];
        const float rest2 = f8_att_f32_rest<S>(stats);
        float q[OWN], dout[OWN], dq[OWN];
        f8_att_f32_row<S>(q, p.q + batch * S::STRIDE_Q + t.head * S::D, S::STRIDE_Q, row);
        f8_att_f32_row<S>(dout, p.dout + batch * S::STRIDE_DO + t.head * S::D, S::STRIDE_DO, row);
        f8_att_f32_zero<S>(dq);
#pragma unroll 1
        for (int col0 = 0; col0 < end; col0 += S::COLS) {
            f8_att_f32_tile<S>(ks, p.k + keys * S::STRIDE_K + kv * S::D, S::STRIDE_K,
                               p.v + keys * S::STRIDE_V + kv * S::D, S::STRIDE_V, col0);
#pragma unroll 1
            for (int j = 0; j < S::COLS; j++) {
                const float s = f8_att_f32_score<S>(q, ks + j * PITCH, mask, row, col0 + j);
                const float x = f8_att_f32_weight<S>(s, lse2, rest2);
                const float dp = f8_att_f32_dropped<S>(f8_att_f32_dot<S>(dout, vs + j * PITCH),
                                                       drop, row, col0 + j);
                if (f8_att_visible<S>(row, col0 + j))
                    f8_att_f32_add<S>(dq, x * (dp - delta), ks + j * PITCH);
            }
        }
        f8_att_f32_store<S>(p.dq + batch * S::STRIDE_DQ + t.head * S::D, S::STRIDE_DQ, row, dq,
                            S::SCALE);
    }
}

#endif
