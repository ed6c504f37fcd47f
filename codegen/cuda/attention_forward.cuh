/* Attention forward: rows are queries, columns keys; one pass over the keys with the running
 * maximum and sum of each row (FlashAttention-2). Scores stay in units of log2, x = s * scale *
 * log2(e), unless a mask is added to them. */
#ifndef F8_ATTENTION_FORWARD
#define F8_ATTENTION_FORWARD

/* Of a warp's rows: o, and by [piece][half] the largest x so far and the thread's part of the sum.
 */
template <class S> struct f8_att_running {
    float o[S::MT][S::DP / 8][4], top[S::MT][2], sum[S::MT][2];
};

/* s becomes exp2(x - top); o and sum are rescaled to the new top. */
template <class S>
F8_DEV void f8_att_softmax(f8_att_running<S> &r, float (&s)[S::MT][S::COLS / 8][4])
{
    constexpr int NT = S::COLS / 8;
    const float none = -f8_from_bits(0x7f800000u);
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = s[mt][0][half * 2];
#pragma unroll
            for (int n = 0; n < NT; n++)
                most = f8_maximum(f8_maximum(most, s[mt][n][half * 2]), s[mt][n][half * 2 + 1]);
            most = f8_maximum(most, f8_shfl_xor(most, 1));
            most = f8_maximum(most, f8_shfl_xor(most, 2));
            const float top = f8_maximum(r.top[mt][half], most * f8_att_factor<S>());
            /* while all scores so far are -Inf, -Inf - -Inf must not make a NaN that stays */
            const float safe = top == none ? 0.0f : top;
            const float alpha =
                f8_att_exp2<false, false>(f8_att_log2<S>(r.top[mt][half] - safe));
            r.top[mt][half] = top;
            float sum = r.sum[mt][half] * alpha;
#pragma unroll
            for (int n = 0; n < S::DP / 8; n++) {
                r.o[mt][n][half * 2] *= alpha;
                r.o[mt][n][half * 2 + 1] *= alpha;
            }
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int e = half * 2; e < half * 2 + 2; e++) {
                    s[mt][n][e] = f8_att_exp2<false, false>(f8_att_below<S>(s[mt][n][e], safe));
                    sum += s[mt][n][e];
                }
            r.sum[mt][half] = sum;
        }
}

/* One tile of keys; `masked`: not every row sees every one. */
template <class S, bool HOLD>
F8_DEV void f8_att_forward_tile(f8_att_running<S> &r, const f8_u16 *q, const f8_u16 *k,
                                const f8_u16 *v, const typename S::mask_type *mask,
                                const f8_att_drop &drop, bool masked, int row0, int col0,
                                const f8_u32 (&held)[HOLD ? S::MT : 1][HOLD ? S::DP / 16 : 1][4])
{
    constexpr int MT = S::MT, NT = S::COLS / 8;
    float s[MT][NT][4];
    f8_att_scores<S, MT, NT, HOLD>(s, q, k, held);
    f8_att_sign<S, MT, NT>(s);
    f8_att_apply<S, MT, NT>(s, mask, row0, col0);
    if (masked)
        f8_att_mask<S, MT, NT>(s, -f8_from_bits(0x7f800000u), row0, col0);
    f8_att_softmax<S>(r, s);
    f8_u32 p[MT][NT / 2][4];
    f8_att_left_dropped<S, MT, NT>(p, s, f8_att_keep<S, MT, NT>(drop, row0, col0));
    f8_att_add_seen<S, MT, NT>(r.o, p, v, masked, row0, col0);
}

template <class S, class P>
F8_DEV void f8_att_forward_end(f8_att_running<S> &r, const P &p, const f8_att_task &t, int row0)
{
    const int lane = f8_thread() % 32;
    float *lse = f8_att_lse_of<S>(p, t.batch * S::H + t.head);
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = r.sum[mt][half];
            sum += f8_shfl_xor(sum, 1);
            sum += f8_shfl_xor(sum, 2);
            const int row = row0 + mt * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && row < S::T)
                f8_att_put_lse<S>(lse, row, r.top[mt][half], sum);
            r.sum[mt][half] = f8_att_inverse<S>(sum);
        }
    f8_att_store<S, S::MT>(p.o + (f8_i64)t.batch * S::T * S::STRIDE_O + t.head * S::D, S::STRIDE_O,
                           row0, r.o, r.sum);
}

template <class S, class P> F8_DEV void f8_att_forward(const P &p, f8_u8 *room)
{
    constexpr int MT = S::MT, BLOCK = S::WARPS * MT * 16, PITCH = S::DP + 8, TILE = S::COLS * PITCH;
    constexpr bool HOLD = S::HOLD;
    f8_u16 *qs = (f8_u16 *)room, *ks = qs + BLOCK * PITCH, *vs = ks + 2 * TILE;
    const bool q_aligned = f8_att_aligned<S>(p.q, S::STRIDE_Q);
    const bool k_aligned = f8_att_aligned<S>(p.k, S::STRIDE_K);
    const bool v_aligned = f8_att_aligned<S>(p.v, S::STRIDE_V);
    const f8_u16 *own = qs + f8_thread() / 32 * MT * 16 * PITCH;
    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {
        const f8_att_task t = f8_att_find<S, S::H, BLOCK>(task);
        const int kv = t.head / (S::H / S::HKV), row0 = t.first + f8_thread() / 32 * MT * 16;
        const int last = t.first + BLOCK < S::T ? t.first + BLOCK : S::T;
        const int tiles = f8_att_tiles<S>(last);
        const f8_u16 *k = p.k + (f8_i64)t.batch * S::TK * S::STRIDE_K + kv * S::D;
        const f8_u16 *v = p.v + (f8_i64)t.batch * S::TK * S::STRIDE_V + kv * S::D;
        const typename S::mask_type *mask = f8_att_mask_of<S>(p, t.batch, t.head);
        const f8_att_drop drop = f8_att_drop_of<S>(p, t.batch, t.head);
        f8_att_load<S, BLOCK, S::T>(qs, p.q + (f8_i64)t.batch * S::T * S::STRIDE_Q + t.head * S::D,
                                    S::STRIDE_Q, t.first, q_aligned);
        f8_att_load<S, S::COLS, S::TK>(ks, k, S::STRIDE_K, 0, k_aligned);
        f8_att_load<S, S::COLS, S::TK>(vs, v, S::STRIDE_V, 0, v_aligned);
        f8_copy_commit();
        f8_att_running<S> r;
        f8_att_zero<S, MT>(r.o);
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
            r.top[mt][0] = r.top[mt][1] = -f8_from_bits(0x7f800000u);
            r.sum[mt][0] = r.sum[mt][1] = 0.0f;
        }
        f8_u32 held[HOLD ? MT : 1][HOLD ? S::DP / 16 : 1][4];
#pragma unroll 1
        for (int tile = 0; tile < tiles; tile++) {
            const int col0 = tile * S::COLS, stage = tile % 2 * TILE;
            /* this tile has come, and every warp is done with the one before it */
            f8_copy_wait<0>();
            f8_sync();
            if (tile + 1 < tiles) {
                f8_att_load<S, S::COLS, S::TK>(ks + (TILE - stage), k, S::STRIDE_K, col0 + S::COLS,
                                               k_aligned);
                f8_att_load<S, S::COLS, S::TK>(vs + (TILE - stage), v, S::STRIDE_V, col0 + S::COLS,
                                               v_aligned);
                f8_copy_commit();
            }
            if (HOLD && tile == 0) {
#pragma unroll
                for (int mt = 0; mt < (HOLD ? MT : 1); mt++)
#pragma unroll
                    for (int d = 0; d < (HOLD ? S::DP / 16 : 1); d++)
                        f8_att_rows<S>(held[mt][d], own + mt * 16 * PITCH + d * 16);
            }
            const int seen = f8_att_seen<S>(row0, MT * 16, col0, S::COLS);
            if (seen)
                f8_att_forward_tile<S, HOLD>(r, own, ks + stage, vs + stage, mask, drop, seen == 1,
                                             row0, col0, held);
        }
        f8_att_forward_end<S>(r, p, t, row0);
        f8_sync();
    }
}

#endif
