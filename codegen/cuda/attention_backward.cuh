/* Attention backward. With x = s * scale * log2(e) and p = exp2(x - lse2) recomputed:
 *     dp = do v^T    ds = p * (dp - delta)    dv = p^T do    dk = scale * ds^T q    dq = scale * ds k
 * `workspace` is f32[STATS][B * H][TP]: lse in units of log2 (lse2), delta = sum of do * o; rows from
 * T on are 0. With a mask that is added it is top, delta, and rest in units of log2:
 * p = exp2((s - top) * log2(e) - rest2). dk and dv are summed over the query heads of their group,
 * then queries, in order; dq over keys. */
#ifndef F8_ATTENTION_BACKWARD
#define F8_ATTENTION_BACKWARD

/* ---- delta ---- */

template <class E> F8_DEV float f8_att_value(E x)
{
    return sizeof(E) == 2 ? f8_from_bf16((f8_u32)x) : (float)x;
}

/* Eight lanes to a row, each with pieces of eight elements. */
template <class S, class P> F8_DEV void f8_att_prepare(const P &p)
{
    constexpr int BLOCKS = S::TP / S::ROWS, STEP = S::WARPS * 4;
    const int lane = f8_thread() % 8;
    float *lse2 = p.workspace, *delta = lse2 + (f8_i64)S::B * S::H * S::TP;
    const bool whole = S::D % 8 == 0 && S::STRIDE_O % 8 == 0 && S::STRIDE_DO % 8 == 0 &&
                       ((f8_u64)p.o & 15) == 0 && ((f8_u64)p.dout & 15) == 0 && sizeof(*p.o) == 2;
    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {
        const int pair = (int)(task / BLOCKS), first = (int)(task % BLOCKS) * S::ROWS;
        const f8_i64 batch = (f8_i64)(pair / S::H) * S::T;
        const int head = pair % S::H * S::D;
#pragma unroll 1
        for (int i = f8_thread() / 8; i < S::ROWS; i += STEP) {
            const int row = first + i;
            const auto *x = p.o + (batch + row) * S::STRIDE_O + head;
            const auto *y = p.dout + (batch + row) * S::STRIDE_DO + head;
            float sum = 0.0f;
#pragma unroll 1
            for (int d = lane * 8; d < S::D && row < S::T; d += 64) {
                if (whole) {
                    const f8_x4 a = *(const f8_x4 *)(x + d), b = *(const f8_x4 *)(y + d);
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        sum = f8_fma(f8_from_bf16(b.v[e] & 0xffffu), f8_from_bf16(a.v[e] & 0xffffu),
                                     sum);
                        sum = f8_fma(f8_from_bf16(b.v[e] >> 16), f8_from_bf16(a.v[e] >> 16), sum);
                    }
                } else {
                    for (int e = d; e < d + 8 && e < S::D; e++)
                        sum = f8_fma(f8_att_value(y[e]), f8_att_value(x[e]), sum);
                }
            }
#pragma unroll
            for (int mask = 1; mask < 8; mask *= 2)
                sum += f8_shfl_xor(sum, mask);
            if (lane == 0) {
                const f8_i64 at = (f8_i64)pair * S::TP + row;
                const float *lse = f8_att_lse_of<S>(p, pair);
                delta[at] = sum;
                if constexpr (S::STATS > 2) {
                    lse2[at] = row < S::T ? lse[row] : 0.0f;
                    delta[at + (f8_i64)S::B * S::H * S::TP] =
                        row < S::T ? lse[S::T + row] * 0x1.715476p0f : 0.0f;
                } else {
                    lse2[at] = row < S::T ? lse[row] * 0x1.715476p0f : 0.0f;
                }
            }
        }
    }
}

/* ---- dk and dv: rows are keys, columns queries ---- */

/* One tile of queries of one head comes: q, do, and their rows of the workspace. */
template <class S, class P>
F8_DEV void f8_att_keys_load(const P &p, const f8_att_task &t, int head, int col0, f8_u16 *q,
                             f8_u16 *dout, float *stats, bool q_aligned, bool do_aligned)
{
    const f8_i64 batch = (f8_i64)t.batch * S::T;
    f8_att_load<S, S::COLS, S::T>(q, p.q + batch * S::STRIDE_Q + head * S::D, S::STRIDE_Q, col0,
                                  q_aligned);
    f8_att_load<S, S::COLS, S::T>(dout, p.dout + batch * S::STRIDE_DO + head * S::D, S::STRIDE_DO,
                                  col0, do_aligned);
    const int which = f8_thread() / (S::COLS / 4), at = f8_thread() % (S::COLS / 4) * 4;
    if (which < S::STATS)
        f8_copy_async16(
            stats + which * S::COLS + at,
            p.workspace + ((f8_i64)which * S::B * S::H + t.batch * S::H + head) * S::TP + col0 + at,
            true);
    f8_copy_commit();
}

/* SUB queries from col0 on; q, dout and stats begin at the first of them. */
template <class S>
F8_DEV void f8_att_keys_step(float (&dk)[S::MT][S::DP / 8][4], float (&dv)[S::MT][S::DP / 8][4],
                             const f8_u16 *k, const f8_u16 *v, const f8_u16 *q, const f8_u16 *dout,
                             const float *stats, const typename S::mask_type *mask,
                             const f8_att_drop &drop, bool masked, int row0, int col0)
{
    constexpr int MT = S::MT, NT = S::SUB / 8;
    const f8_u32 none[1][1][4] = {};
    const float *own = stats + f8_thread() % 4 * 2;
    float s[MT][NT][4], ds[MT][NT][4];
    f8_u32 left[MT][NT / 2][4];
    f8_att_scores<S, MT, NT, false>(s, k, q, none);
    f8_att_sign<S, MT, NT>(s);
    f8_att_apply<S, MT, NT>(s, mask, row0, col0);
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[mt][n][e] = f8_att_exp2<false, true>(
                    f8_att_exponent<S>(s[mt][n][e], own[n * 8 + e % 2],
                                       S::STATS > 2 ? own[2 * S::COLS + n * 8 + e % 2] : 0.0f));
    if (masked)
        f8_att_mask<S, MT, NT>(s, 0.0f, row0, col0);
    const f8_u32 keep = f8_att_keep<S, MT, NT>(drop, row0, col0);
    f8_att_left_dropped<S, MT, NT>(left, s, keep);
    f8_att_add_seen<S, MT, NT>(dv, left, dout, masked, row0, col0);
    f8_att_scores<S, MT, NT, false>(ds, v, dout, none);
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                ds[mt][n][e] =
                    s[mt][n][e] * (f8_att_dropped<S>(ds[mt][n][e], keep, (mt * NT + n) * 4 + e) -
                                   own[S::COLS + n * 8 + e % 2]);
    if (masked)
        f8_att_mask<S, MT, NT>(ds, 0.0f, row0, col0);
    f8_att_left<MT, NT>(left, ds);
    f8_att_add_seen<S, MT, NT>(dk, left, q, masked, row0, col0);
}

template <class S, int MT>
F8_DEV void f8_att_store_scaled(f8_u16 *to, f8_i64 stride, int row0,
                                const float (&x)[MT][S::DP / 8][4], float by)
{
    float factor[MT][2];
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
        factor[mt][0] = factor[mt][1] = by;
    f8_att_store<S, MT>(to, stride, row0, x, factor);
}

template <class S, class P> F8_DEV void f8_att_keys(const P &p, f8_u8 *room)
{
    constexpr int MT = S::MT, BLOCK = S::WARPS * MT * 16, PITCH = S::DP + 8, TILE = S::COLS * PITCH;
    constexpr int GROUP = S::H / S::HKV, TILES = (S::T + S::COLS - 1) / S::COLS;
    f8_u16 *ks = (f8_u16 *)room, *vs = ks + BLOCK * PITCH, *qs = vs + BLOCK * PITCH,
           *dos = qs + 2 * TILE;
    float *stats = (float *)(dos + 2 * TILE);
    const bool q_aligned = f8_att_aligned<S>(p.q, S::STRIDE_Q);
    const bool do_aligned = f8_att_aligned<S>(p.dout, S::STRIDE_DO);
    const int warp = f8_thread() / 32;
    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {
        const f8_att_task t = f8_att_find<S, S::HKV, BLOCK>(task);
        /* keys behind all queries are seen by none: their one tile does nothing */
        const int first = S::TK > S::T && t.first >= S::T ? S::T - 1 : t.first;
        const int row0 = t.first + warp * MT * 16, begin = S::CAUSAL ? first / S::COLS : 0;
        const f8_i64 batch = (f8_i64)t.batch * S::TK;
        f8_att_load<S, BLOCK, S::TK>(ks, p.k + batch * S::STRIDE_K + t.head * S::D, S::STRIDE_K,
                                     t.first, f8_att_aligned<S>(p.k, S::STRIDE_K));
        f8_att_load<S, BLOCK, S::TK>(vs, p.v + batch * S::STRIDE_V + t.head * S::D, S::STRIDE_V,
                                     t.first, f8_att_aligned<S>(p.v, S::STRIDE_V));
        f8_att_keys_load<S>(p, t, t.head * GROUP, begin * S::COLS, qs, dos, stats, q_aligned,
                            do_aligned);
        float dk[MT][S::DP / 8][4], dv[MT][S::DP / 8][4];
        f8_att_zero<S, MT>(dk);
        f8_att_zero<S, MT>(dv);
        int head = t.head * GROUP, tile = begin;
#pragma unroll 1
        for (int i = 0; i < GROUP * (TILES - begin); i++) {
            const int stage = i % 2, col0 = tile * S::COLS;
            const typename S::mask_type *mask = f8_att_mask_of<S>(p, t.batch, head);
            const f8_att_drop drop = f8_att_drop_of<S>(p, t.batch, head);
            tile = tile + 1 < TILES ? tile + 1 : begin;
            head += tile == begin;
            /* this tile has come, and every warp is done with the one before it */
            f8_copy_wait<0>();
            f8_sync();
            if (i + 1 < GROUP * (TILES - begin))
                f8_att_keys_load<S>(p, t, head, tile * S::COLS, qs + (1 - stage) * TILE,
                                    dos + (1 - stage) * TILE, stats + (1 - stage) * S::STATS * S::COLS,
                                    q_aligned, do_aligned);
#pragma unroll 1
            for (int c = 0; c < S::COLS; c += S::SUB) {
                const int seen = f8_att_seen<S>(row0, MT * 16, col0 + c, S::SUB);
                const int at = stage * TILE + c * PITCH;
                if (seen)
                    f8_att_keys_step<S>(
                        dk, dv, ks + warp * MT * 16 * PITCH, vs + warp * MT * 16 * PITCH, qs + at,
                        dos + at, stats + stage * S::STATS * S::COLS + c, mask, drop, seen == 1, row0,
                        col0 + c);
            }
        }
        f8_att_store_scaled<S, MT>(p.dk + batch * S::STRIDE_DK + t.head * S::D, S::STRIDE_DK, row0,
                                   dk, S::SCALE);
        f8_att_store_scaled<S, MT>(p.dv + batch * S::STRIDE_DV + t.head * S::D, S::STRIDE_DV, row0,
                                   dv, 1.0f);
        f8_sync();
    }
}

/* ---- dq: rows are queries, columns keys ---- */

/* SUB keys from col0 on; k and v begin at the first of them. The rows of the workspace by
 * [piece][half]. */
template <class S>
F8_DEV void f8_att_queries_step(float (&dq)[S::MT][S::DP / 8][4],
                                const float (&stats)[S::STATS][S::MT][2], const f8_u16 *q, const f8_u16 *dout,
                                const f8_u16 *k, const f8_u16 *v, const typename S::mask_type *mask,
                                const f8_att_drop &drop, bool masked, int row0, int col0)
{
    constexpr int MT = S::MT, NT = S::SUB / 8;
    const f8_u32 none[1][1][4] = {};
    float s[MT][NT][4], ds[MT][NT][4];
    f8_u32 left[MT][NT / 2][4];
    f8_att_scores<S, MT, NT, false>(s, q, k, none);
    f8_att_sign<S, MT, NT>(s);
    f8_att_apply<S, MT, NT>(s, mask, row0, col0);
    f8_att_scores<S, MT, NT, false>(ds, dout, v, none);
    const f8_u32 keep = f8_att_keep<S, MT, NT>(drop, row0, col0);
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = f8_att_exponent<S>(s[mt][n][e], stats[0][mt][e / 2],
                                                   stats[S::STATS - 1][mt][e / 2]);
                const float dp = f8_att_dropped<S>(ds[mt][n][e], keep, (mt * NT + n) * 4 + e);
                ds[mt][n][e] = f8_att_exp2<false, true>(x) * (dp - stats[1][mt][e / 2]);
            }
    if (masked)
        f8_att_mask<S, MT, NT>(ds, 0.0f, row0, col0);
    f8_att_left<MT, NT>(left, ds);
    f8_att_add_seen<S, MT, NT>(dq, left, k, masked, row0, col0);
}

/* The statistics of this thread's rows: what the pass over rows left in the workspace. */
template <class S, class P>
F8_DEV void f8_att_stats_of(float (&stats)[S::STATS][S::MT][2], const P &p, const f8_att_task &t,
                            int row0)
{
    const float *from = p.workspace + (f8_i64)(t.batch * S::H + t.head) * S::TP + row0 +
                        f8_thread() % 32 / 4;
#pragma unroll
    for (int i = 0; i < S::STATS; i++)
#pragma unroll
        for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                stats[i][mt][half] = from[(f8_i64)i * S::B * S::H * S::TP + mt * 16 + half * 8];
}

template <class S, class P> F8_DEV void f8_att_queries(const P &p, f8_u8 *room)
{
    constexpr int MT = S::MT, BLOCK = S::WARPS * MT * 16, PITCH = S::DP + 8, TILE = S::COLS * PITCH;
    f8_u16 *qs = (f8_u16 *)room, *dos = qs + BLOCK * PITCH, *ks = dos + BLOCK * PITCH,
           *vs = ks + 2 * TILE;
    const bool k_aligned = f8_att_aligned<S>(p.k, S::STRIDE_K);
    const bool v_aligned = f8_att_aligned<S>(p.v, S::STRIDE_V);
    const int warp = f8_thread() / 32;
    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {
        const f8_att_task t = f8_att_find<S, S::H, BLOCK>(task);
        const int kv = t.head / (S::H / S::HKV), row0 = t.first + warp * MT * 16;
        const int last = t.first + BLOCK < S::T ? t.first + BLOCK : S::T;
        const int tiles = f8_att_tiles<S>(last);
        const f8_i64 batch = (f8_i64)t.batch * S::T, keys = (f8_i64)t.batch * S::TK;
        const f8_u16 *k = p.k + keys * S::STRIDE_K + kv * S::D,
                     *v = p.v + keys * S::STRIDE_V + kv * S::D;
        const typename S::mask_type *mask = f8_att_mask_of<S>(p, t.batch, t.head);
        const f8_att_drop drop = f8_att_drop_of<S>(p, t.batch, t.head);
        f8_att_load<S, BLOCK, S::T>(qs, p.q + batch * S::STRIDE_Q + t.head * S::D, S::STRIDE_Q,
                                    t.first, f8_att_aligned<S>(p.q, S::STRIDE_Q));
        f8_att_load<S, BLOCK, S::T>(dos, p.dout + batch * S::STRIDE_DO + t.head * S::D,
                                    S::STRIDE_DO, t.first, f8_att_aligned<S>(p.dout, S::STRIDE_DO));
        f8_att_load<S, S::COLS, S::TK>(ks, k, S::STRIDE_K, 0, k_aligned);
        f8_att_load<S, S::COLS, S::TK>(vs, v, S::STRIDE_V, 0, v_aligned);
        f8_copy_commit();
        float dq[MT][S::DP / 8][4], stats[S::STATS][MT][2];
        f8_att_zero<S, MT>(dq);
        f8_att_stats_of<S>(stats, p, t, row0);
#pragma unroll 1
        for (int tile = 0; tile < tiles; tile++) {
            const int col0 = tile * S::COLS, stage = tile % 2 * TILE;
            f8_copy_wait<0>();
            f8_sync();
            if (tile + 1 < tiles) {
                f8_att_load<S, S::COLS, S::TK>(ks + (TILE - stage), k, S::STRIDE_K, col0 + S::COLS,
                                               k_aligned);
                f8_att_load<S, S::COLS, S::TK>(vs + (TILE - stage), v, S::STRIDE_V, col0 + S::COLS,
                                               v_aligned);
                f8_copy_commit();
            }
#pragma unroll 1
            for (int c = 0; c < S::COLS; c += S::SUB) {
                const int seen = f8_att_seen<S>(row0, MT * 16, col0 + c, S::SUB);
                if (seen)
                    f8_att_queries_step<S>(dq, stats, qs + warp * MT * 16 * PITCH,
                                           dos + warp * MT * 16 * PITCH, ks + stage + c * PITCH,
                                           vs + stage + c * PITCH, mask, drop, seen == 1, row0,
                                           col0 + c);
            }
        }
        f8_att_store_scaled<S, MT>(p.dq + batch * S::STRIDE_DQ + t.head * S::D, S::STRIDE_DQ, row0,
                                   dq, S::SCALE);
        f8_sync();
    }
}

#endif
