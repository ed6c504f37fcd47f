/* The backward attention kernel (attention.h).
 *
 * For a block of queries and a block of keys, with p recomputed from lse:
 *     s[key][query] = k q^T (+ mask)  p = exp(scale * s - lse)
 *     dp = v do^T                   ds = p * (dp - delta), delta[query] = sum_d do * o
 *     dv += p do      dk += scale * ds q      dq += scale * ds^T k
 * With an f32 mask p = exp((s - top) - rest).
 *
 * There are two splits into tasks, which give the same bits. With enough heads there is one phase:
 * a task is one key/value head with all its queries, five products for each pair of blocks, with dk
 * and dv of the whole head in scratch. With few heads there are two phases of smaller tasks, which
 * compute s and dp twice: a task is 4 blocks of queries (dq), then 4 blocks of keys (dk, dv). The
 * shape alone decides the split.
 *
 * Orders: dq adds keys in ascending order; dk and dv add heads, then queries, in ascending
 * order. */
#include "codegen/cpu/attention_parts.h"

#include <stdio.h>

/* With fewer key/value heads than this, threads would be idle: two phases. */
enum { ENOUGH_HEADS = 8 };

/* With more bytes of one-phase scratch (k, v, dk, dv of a head), it no longer fits into caches: two
 * phases. */
#define ONE_PHASE_BYTES ((int64_t)64 << 20)

/* Statistics of a block of queries, f32[48] each: lse or top, delta, rest. */
enum {
    STAT_LSE = 0,
    STAT_DELTA = F8_ATT_BLOCK,
    STAT_REST = 2 * F8_ATT_BLOCK,
    STATS = 3 * F8_ATT_BLOCK
};

enum { Q, K, V, O, LSE, DO, MASK, SEED, DQ, DK, DV, ARGS };

typedef struct backward {
    f8_att *a;
    bool dq, dkv; /* what this range function computes */
    LLVMValueRef pack[ARGS], store[ARGS], delta, ds[2];
    int64_t q, qt, dout, dout_t, o, s, dp, dq_acc, stats, ones, scales; /* offsets in scratch */
    int64_t k, v, dk, dv;                                               /* of all key blocks */
    LLVMValueRef args[ARGS], scratch, batch, kv_head;
    LLVMValueRef head_begin, head_end, q_begin, q_end, k_begin, k_end; /* heads and blocks */
} backward;

static LLVMValueRef room(backward *w, int64_t offset)
{
    return f8_att_floats(w->a, w->scratch, offset);
}

/* The part of block j in a buffer that holds the blocks from k_begin on. */
static LLVMValueRef key_part(backward *w, int64_t offset, LLVMValueRef j)
{
    f8_llvm_module *m = w->a->m;
    return f8_att_slice(w->a, room(w, offset), m->ll->BuildNSWSub(m->b, j, w->k_begin, ""),
                        F8_ATT_BLOCK * w->a->padded, 0);
}

/* ---- pieces ---- */

/* void(ptr delta, ptr dot, ptr ot): delta[query] = sum over d of dot[d][query] * ot[d][query] */
static LLVMValueRef make_delta(backward *w)
{
    f8_llvm_module *m = w->a->m;
    char name[160];
    snprintf(name, sizeof name, "%s_delta", w->a->symbol);
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->ptr};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 3);
    LLVMValueRef sum[F8_ATT_GROUPS], now[F8_ATT_GROUPS], zero = f8_ll_vf32(m, 0.0f);
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        sum[g] = zero;
    f8_ll_loop l = {.value = now};
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_i64(m, w->a->desc->D), f8_ll_i64(m, 1), sum,
                     F8_ATT_GROUPS);
    LLVMValueRef x = f8_att_slice(w->a, f8_ll_param(m, 1), l.index, F8_ATT_BLOCK, 0);
    LLVMValueRef y = f8_att_slice(w->a, f8_ll_param(m, 2), l.index, F8_ATT_BLOCK, 0);
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        sum[g] =
            f8_ll_fma(m, f8_att_load16(w->a, x, g * F8_MK_LANES),
                      f8_att_load16(w->a, y, g * F8_MK_LANES), l.value[g]);
    f8_ll_loop_end(m, &l, sum);
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        f8_att_store16(w->a, l.value[g], f8_ll_param(m, 0), g * F8_MK_LANES);
    m->ll->BuildRetVoid(m->b);
    return f;
}

/* p of a vector of scores; minus: lse or top, with its sign changed. */
static LLVMValueRef probability(backward *w, LLVMValueRef s, LLVMValueRef minus, LLVMValueRef rest)
{
    f8_llvm_module *m = w->a->m;
    LLVMValueRef x = f8_ll_fma(m, s, f8_ll_vf32(m, f8_att_scale(w->a)), minus);
    if (rest)
        x = m->ll->BuildFSub(m->b, x, rest, "");
    return f8_ll_scalar(m, F8_FN_EXP, x);
}

/* void(ptr s, ptr dp, ptr stats, i64 keys, i64 queries): s becomes p, dp becomes ds. On the
 * diagonal both are zero where the query may not see the key, or is none. */
static LLVMValueRef make_ds(backward *w, bool diag)
{
    f8_llvm_module *m = w->a->m;
    char name[160];
    snprintf(name, sizeof name, "%s_ds%s", w->a->symbol, diag ? "_diag" : "");
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->ptr, m->i64, m->i64};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 5);
    f8_ll_noalias(m, f, 0);
    f8_ll_noalias(m, f, 1);
    LLVMValueRef stats = f8_ll_param(m, 2), minus[F8_ATT_GROUPS], delta[F8_ATT_GROUPS];
    LLVMValueRef rest[F8_ATT_GROUPS] = {NULL}, zero = f8_ll_vf32(m, 0.0f);
    for (int g = 0; g < F8_ATT_GROUPS; g++) {
        minus[g] = m->ll->BuildFNeg(
            m->b, f8_att_load16(w->a, stats, STAT_LSE + g * F8_MK_LANES), "");
        delta[g] = f8_att_load16(w->a, stats, STAT_DELTA + g * F8_MK_LANES);
        if (f8_attention_lse_rows(w->a->desc) > 1)
            rest[g] = f8_att_load16(w->a, stats, STAT_REST + g * F8_MK_LANES);
    }
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_param(m, 3), f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef s = f8_att_slice(w->a, f8_ll_param(m, 0), l.index, F8_ATT_BLOCK, 0);
    LLVMValueRef dp = f8_att_slice(w->a, f8_ll_param(m, 1), l.index, F8_ATT_BLOCK, 0);
    for (int g = 0; g < F8_ATT_GROUPS; g++) {
        int64_t at = g * F8_MK_LANES;
        LLVMValueRef p = probability(w, f8_att_load16(w->a, s, at), minus[g], rest[g]);
        LLVMValueRef ds = m->ll->BuildFSub(m->b, f8_att_load16(w->a, dp, at), delta[g], "");
        ds = m->ll->BuildFMul(m->b, p, ds, "");
        if (diag) {
            LLVMValueRef seen = f8_att_visible(w->a, g, l.index, f8_ll_param(m, 4));
            p = m->ll->BuildSelect(m->b, seen, p, zero, "");
            ds = m->ll->BuildSelect(m->b, seen, ds, zero, "");
        }
        f8_att_store16(w->a, p, s, at);
        f8_att_store16(w->a, ds, dp, at);
    }
    f8_ll_loop_end(m, &l, NULL);
    if (diag) /* dq alone reads up to a query's number */
        f8_att_zero_rows(w->a, f8_ll_param(m, 1), f8_ll_param(m, 3), f8_ll_param(m, 4));
    m->ll->BuildRetVoid(m->b);
    return f;
}

/* ---- a range of queries against a range of keys ---- */

static void load_keys(backward *w)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    LLVMValueRef area = f8_ll_i64(m, F8_ATT_BLOCK * a->padded);
    f8_ll_loop j;
    f8_ll_loop_begin(m, &j, w->k_begin, w->k_end, f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef start = f8_att_start(a, j.index), keys = f8_att_key_count(a, j.index);
    LLVMValueRef k = f8_att_key(a, w->args[K], a->desc->stride.k, w->batch, start, w->kv_head);
    LLVMValueRef v = f8_att_key(a, w->args[V], a->desc->stride.v, w->batch, start, w->kv_head);
    f8_ll_call(m, w->pack[K], (LLVMValueRef[]){key_part(w, w->k, j.index), k, keys}, 3);
    f8_ll_call(m, w->pack[V], (LLVMValueRef[]){key_part(w, w->v, j.index), v, keys}, 3);
    if (w->dkv) {
        f8_att_fill(a, key_part(w, w->dk, j.index), area, 0.0f);
        f8_att_fill(a, key_part(w, w->dv, j.index), area, 0.0f);
    }
    f8_ll_loop_end(m, &j, NULL);
}

static void load_queries(backward *w, LLVMValueRef head, LLVMValueRef i)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    LLVMValueRef start = f8_att_start(a, i), queries = f8_att_count(a, i);
    const struct {
        int arg;
        int64_t stride, rows, transposed;
    } tensor[] = {
        {Q, a->desc->stride.q, w->q, w->qt},
        {DO, a->desc->stride.dout, w->dout, w->dout_t},
        {O, a->desc->stride.o, w->dq_acc, w->o}}; /* the rows of o are needed here only */
    for (int t = 0; t < 3; t++) {
        LLVMValueRef from =
            f8_att_token(a, w->args[tensor[t].arg], tensor[t].stride, w->batch, start, head);
        LLVMValueRef rows = room(w, tensor[t].rows);
        f8_ll_call(m, w->pack[tensor[t].arg], (LLVMValueRef[]){rows, from, queries}, 3);
        f8_ll_call(m, a->transpose, (LLVMValueRef[]){room(w, tensor[t].transposed), rows}, 2);
    }
    LLVMValueRef stats = room(w, w->stats),
                 lse = f8_att_lse(a, w->args[LSE], w->batch, head, start);
    LLVMValueRef delta = f8_ll_at(m, m->f32, stats, f8_ll_i64(m, STAT_DELTA));
    f8_ll_call(m, w->delta, (LLVMValueRef[]){delta, room(w, w->dout_t), room(w, w->o)}, 3);
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        for (int64_t row = 0; row < f8_attention_lse_rows(a->desc); row++) {
            LLVMValueRef at = f8_ll_i64(m, row * a->desc->T + g * F8_MK_LANES);
            LLVMValueRef mask = f8_ll_mask(m, f8_att_add(a, queries, -g * F8_MK_LANES));
            LLVMValueRef x = f8_ll_vload(m, m->f32, f8_ll_at(m, m->f32, lse, at), mask, NULL);
            f8_att_store16(w->a, x, stats, (row ? STAT_REST : STAT_LSE) + g * F8_MK_LANES);
        }
    if (w->dq)
        f8_att_fill(a, room(w, w->dq_acc), f8_ll_i64(m, F8_ATT_BLOCK * a->padded), 0.0f);
}

static void step(backward *w, LLVMValueRef head, LLVMValueRef i, LLVMValueRef j, bool diag)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    LLVMValueRef queries = f8_att_count(a, i), keys = f8_att_key_count(a, j);
    LLVMValueRef s = room(w, w->s), dp = room(w, w->dp);
    LLVMValueRef k = key_part(w, w->k, j);
    f8_att_scores(a, diag, s, k, room(w, w->qt), keys, queries);
    f8_att_mask(a, s, f8_att_mask_at(a, w->args[MASK], w->batch, head, i, j), keys, queries);
    f8_att_scores(a, diag, dp, key_part(w, w->v, j), room(w, w->dout_t), keys, queries);
    f8_att_drop(a, dp, w->args[SEED], w->batch, head, i, j);
    f8_ll_call(m, w->ds[diag], (LLVMValueRef[]){s, dp, room(w, w->stats), keys, queries}, 5);
    if (w->dkv) {
        f8_att_drop(a, s, w->args[SEED], w->batch, head, i, j);
        f8_att_product kind = diag ? F8_ATT_DKV_DIAG : F8_ATT_DKV;
        f8_att_call(a, kind, key_part(w, w->dv, j), s, room(w, w->dout), keys, queries, NULL);
        f8_att_call(a, kind, key_part(w, w->dk, j), dp, room(w, w->q), keys, queries, NULL);
    }
    if (w->dq)
        f8_att_call(a, diag ? F8_ATT_DQ_DIAG : F8_ATT_DQ, room(w, w->dq_acc), dp, k, queries, keys,
                    NULL);
}

static void store_block(backward *w, int arg, int64_t stride, LLVMValueRef head, LLVMValueRef block,
                        LLVMValueRef from, int64_t factor)
{
    f8_att *a = w->a;
    LLVMValueRef start = f8_att_start(a, block);
    LLVMValueRef to = (arg == DQ ? f8_att_token : f8_att_key)(a, w->args[arg], stride, w->batch,
                                                              start, head);
    LLVMValueRef rows = (arg == DQ ? f8_att_count : f8_att_key_count)(a, block);
    f8_ll_call(a->m, w->store[arg], (LLVMValueRef[]){to, from, rows, room(w, factor)}, 4);
}

static void query_block(backward *w, LLVMValueRef head, LLVMValueRef i)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    LLVMValueRef end = w->k_end;
    load_queries(w, head, i);
    if (a->desc->causal)
        end = f8_ll_imin(m, end, i);
    f8_ll_loop j;
    f8_ll_loop_begin(m, &j, w->k_begin, end, f8_ll_i64(m, 1), NULL, 0);
    step(w, head, i, j.index, false);
    f8_ll_loop_end(m, &j, NULL);
    if (a->desc->causal) {
        f8_ll_if on;
        f8_ll_if_begin(m, &on, m->ll->BuildICmp(m->b, LLVMIntSLT, i, w->k_end, ""));
        step(w, head, i, i, true);
        f8_ll_if_end(m, &on);
    }
    if (w->dq)
        store_block(w, DQ, a->desc->stride.dq, head, i, room(w, w->dq_acc), w->scales);
}

/* The internal function of one split: void(ptr args, ptr scratch, i64 batch, kv head, heads, query
 * blocks, key blocks); ranges are pairs of begin and end. */
static LLVMValueRef make_range(backward *w, const char *what)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    char name[160];
    snprintf(name, sizeof name, "%s_%s", a->symbol, what);
    LLVMTypeRef t[] = {m->ptr, m->ptr, m->i64, m->i64, m->i64,
                       m->i64, m->i64, m->i64, m->i64, m->i64};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, t, 10), one = f8_ll_i64(m, 1);
    LLVMValueRef *to[] = {&w->scratch, &w->batch, &w->kv_head, &w->head_begin, &w->head_end,
                          &w->q_begin, &w->q_end, &w->k_begin, &w->k_end};
    for (int i = 0; i < 9; i++)
        *to[i] = f8_ll_param(m, i + 1);
    for (int i = 0, n = 0; i < ARGS; i++)
        if ((i != MASK || a->desc->masking) && (i != SEED || a->desc->dropout > 0))
            w->args[i] =
                f8_ll_load(m, m->ptr, f8_ll_at(m, m->ptr, f8_ll_param(m, 0), f8_ll_i64(m, n++)));
    f8_att_fill(a, room(w, w->ones), f8_ll_i64(m, F8_ATT_BLOCK), 1.0f);
    f8_att_fill(a, room(w, w->scales), f8_ll_i64(m, F8_ATT_BLOCK), a->desc->scale);
    load_keys(w);
    f8_ll_loop h, i, j;
    f8_ll_loop_begin(m, &h, w->head_begin, w->head_end, one, NULL, 0);
    f8_ll_loop_begin(m, &i, w->q_begin, w->q_end, one, NULL, 0);
    query_block(w, h.index, i.index);
    f8_ll_loop_end(m, &i, NULL);
    f8_ll_loop_end(m, &h, NULL);
    if (w->dkv) {
        f8_ll_loop_begin(m, &j, w->k_begin, w->k_end, one, NULL, 0);
        store_block(w, DK, a->desc->stride.dk, w->kv_head, j.index, key_part(w, w->dk, j.index),
                    w->scales);
        store_block(w, DV, a->desc->stride.dv, w->kv_head, j.index, key_part(w, w->dv, j.index),
                    w->ones);
        f8_ll_loop_end(m, &j, NULL);
    }
    m->ll->BuildRetVoid(m->b);
    return f;
}

/* ---- tasks ---- */

typedef enum split { WHOLE_HEADS, QUERY_BLOCKS, KEY_BLOCKS } split;

static int64_t super_blocks(const f8_att *a, split how)
{
    return ((how == QUERY_BLOCKS ? a->blocks : a->key_blocks) + F8_ATT_SUPER - 1) / F8_ATT_SUPER;
}

/* The ranges of a task, from its number. */
static void task_range(f8_att *a, split how, LLVMValueRef task, LLVMValueRef *r)
{
    f8_llvm_module *m = a->m;
    const f8_attention_desc *d = a->desc;
    const int64_t group = d->H / d->Hkv, heads = how == QUERY_BLOCKS ? d->H : d->Hkv;
    const int64_t supers = super_blocks(a, how);
    LLVMValueRef pair = f8_att_rem(a, task, d->B * heads),
                 super = f8_att_div(a, task, d->B * heads);
    LLVMValueRef zero = f8_ll_i64(m, 0), queries = f8_ll_i64(m, a->blocks),
                 keys = f8_ll_i64(m, a->key_blocks);
    LLVMValueRef head = f8_att_rem(a, pair, heads);
    r[0] = f8_att_div(a, pair, heads);
    r[1] = how == QUERY_BLOCKS ? f8_att_div(a, head, group) : head;
    r[2] = how == QUERY_BLOCKS ? head : f8_att_mul(a, head, group);
    r[3] = f8_att_add(a, r[2], how == QUERY_BLOCKS ? 1 : group);
    r[4] = r[6] = zero;
    r[5] = queries;
    r[7] = keys;
    if (how == WHOLE_HEADS)
        return;
    /* the longest tasks first: later queries see more keys, and earlier keys are seen by more
     * queries */
    if (how == QUERY_BLOCKS && d->causal)
        super = m->ll->BuildNSWSub(m->b, f8_ll_i64(m, supers - 1), super, "");
    LLVMValueRef begin = f8_att_mul(a, super, F8_ATT_SUPER);
    LLVMValueRef end = f8_ll_imin(m, f8_att_add(a, begin, F8_ATT_SUPER),
                                  how == QUERY_BLOCKS ? queries : keys);
    int side = how == QUERY_BLOCKS ? 4 : 6;
    r[side] = begin;
    r[side + 1] = end;
    if (d->causal && how == QUERY_BLOCKS)
        r[7] = a->key_blocks < a->blocks ? f8_ll_imin(m, end, keys) : end;
    else if (d->causal)
        r[4] = begin;
}

static int64_t task_count(const f8_att *a, split how)
{
    const f8_attention_desc *d = a->desc;
    return d->B * (how == QUERY_BLOCKS ? d->H : d->Hkv) *
           (how == WHOLE_HEADS ? 1 : super_blocks(a, how));
}

static void lay_out_scratch(backward *w, split how)
{
    f8_att *a = w->a;
    const int64_t area = F8_ATT_BLOCK * a->padded;
    const int64_t key_blocks =
        how == KEY_BLOCKS && a->key_blocks > F8_ATT_SUPER ? F8_ATT_SUPER : a->key_blocks;
    w->dq = how != KEY_BLOCKS;
    w->dkv = how != QUERY_BLOCKS;
    a->scratch = 0;
    int64_t *blocks[] = {&w->q, &w->qt, &w->dout, &w->dout_t, &w->o, &w->dq_acc};
    for (int i = 0; i < 6; i++)
        *blocks[i] = f8_att_room(a, area);
    w->s = f8_att_room(a, F8_ATT_BLOCK * F8_ATT_BLOCK);
    w->dp = f8_att_room(a, F8_ATT_BLOCK * F8_ATT_BLOCK);
    w->stats = f8_att_room(a, STATS);
    w->ones = f8_att_room(a, F8_ATT_BLOCK);
    w->scales = f8_att_room(a, F8_ATT_BLOCK);
    w->k = f8_att_room(a, area * key_blocks);
    w->v = f8_att_room(a, area * key_blocks);
    w->dk = w->dkv ? f8_att_room(a, area * key_blocks) : 0;
    w->dv = w->dkv ? f8_att_room(a, area * key_blocks) : 0;
}

/* Chooses one or two phases for this shape; sets their splits. */
static int choose_splits(const f8_att *a, split how[F8_ATTENTION_MAX_PHASES])
{
    const f8_attention_desc *d = a->desc;
    const int64_t whole = 4 * 4 * F8_ATT_BLOCK * a->padded * a->key_blocks;
    const bool one = d->B * d->Hkv >= ENOUGH_HEADS && whole <= ONE_PHASE_BYTES;
    how[0] = one ? WHOLE_HEADS : QUERY_BLOCKS;
    how[1] = KEY_BLOCKS;
    return one ? 1 : 2;
}

void f8_att_backward_sizes(f8_att *a, f8_cpu_phase *phases, int *n_phases)
{
    split how[F8_ATTENTION_MAX_PHASES];
    backward w = {.a = a};
    *n_phases = choose_splits(a, how);
    for (int i = 0; i < *n_phases; i++) {
        lay_out_scratch(&w, how[i]);
        phases[i].n_tasks = task_count(a, how[i]);
        phases[i].scratch = a->scratch;
    }
}

static void emit_phase(backward *w, split how, f8_cpu_phase *phase)
{
    static const char *const names[] = {
        [WHOLE_HEADS] = "heads", [QUERY_BLOCKS] = "queries", [KEY_BLOCKS] = "keys"};
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    lay_out_scratch(w, how);
    LLVMValueRef range = make_range(w, names[how]), r[10];
    f8_ll_phase p;
    f8_ll_loop l;
    f8_ll_phase_begin(m, &p, phase->symbol);
    f8_ll_loop_begin(m, &l, p.begin, p.end, f8_ll_i64(m, 1), NULL, 0);
    r[0] = p.args;
    r[1] = p.scratch;
    task_range(a, how, l.index, r + 2);
    f8_ll_call(m, range, r, 10);
    f8_ll_loop_end(m, &l, NULL);
    f8_ll_phase_end(m);
}

void f8_att_backward(f8_att *a, f8_cpu_phase *phases, int *n_phases)
{
    const f8_attention_desc *d = a->desc;
    f8_att_make_scores(a);
    f8_att_make_mask(a);
    f8_att_make_drop(a);
    f8_att_make_product(a, F8_ATT_DQ);
    f8_att_make_product(a, F8_ATT_DKV);
    if (d->causal) {
        f8_att_make_product(a, F8_ATT_DQ_DIAG);
        f8_att_make_product(a, F8_ATT_DKV_DIAG);
    }
    backward w = {.a = a};
    w.pack[Q] = f8_att_make_pack(a, "q", d->stride.q);
    w.pack[K] = f8_att_make_pack(a, "k", d->stride.k);
    w.pack[V] = f8_att_make_pack(a, "v", d->stride.v);
    w.pack[O] = f8_att_make_pack(a, "o", d->stride.o);
    w.pack[DO] = f8_att_make_pack(a, "do", d->stride.dout);
    w.store[DQ] = f8_att_make_store(a, "dq", d->stride.dq);
    w.store[DK] = f8_att_make_store(a, "dk", d->stride.dk);
    w.store[DV] = f8_att_make_store(a, "dv", d->stride.dv);
    w.delta = make_delta(&w);
    w.ds[0] = make_ds(&w, false);
    w.ds[1] = d->causal ? make_ds(&w, true) : NULL;
    split how[F8_ATTENTION_MAX_PHASES];
    f8_att_backward_sizes(a, phases, n_phases);
    choose_splits(a, how);
    for (int i = 0; i < *n_phases; i++)
        emit_phase(&w, how[i], &phases[i]);
}
