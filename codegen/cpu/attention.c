/* Attention on the CPU: checks, and the forward kernel (attention.h).
 *
 * Forward is one phase. A task is 4 blocks of 48 queries of one head. It visits the blocks of keys
 * once, and converts each block to f32 for all its queries:
 *     s[key][query] = k q^T (+ mask);  m, l, alpha, p = online softmax down the keys;  p dropped;
 *     o = o * alpha + p^T v
 * All that an inner step uses fits into L1 and L2. */
#include "codegen/cpu/attention_parts.h"

#include <math.h>
#include <stdio.h>

/* ---- the forward kernel ---- */

/* Running statistics of a block of queries, f32[48] each: the largest score, the sum, the factor to
 * rescale by. */
enum {
    STAT_MAX = 0,
    STAT_SUM = F8_ATT_BLOCK,
    STAT_ALPHA = 2 * F8_ATT_BLOCK,
    STATS = 3 * F8_ATT_BLOCK
};

typedef struct forward {
    f8_att *a;
    LLVMValueRef pack_q, pack_k, pack_v, store, softmax[2], finish; /* softmax: [on the diagonal] */
    int64_t q, qt, k, v, s, o, stats;                               /* offsets in scratch */
    LLVMValueRef q_arg, k_arg, v_arg, mask_arg, seed_arg, o_arg, lse_arg, scratch;
    /* of the task: its first block, and how many */
    LLVMValueRef batch, head, kv_head, first, count;
} forward;

/* max[group] = the largest of max[group] and scale * s[key][group], key < keys. A NaN score may be
 * lost here; its exponential is NaN, so the result still is. */
static void running_max(f8_att *a, LLVMValueRef s, LLVMValueRef keys, LLVMValueRef count, bool diag,
                        LLVMValueRef *max)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef scale = f8_ll_vf32(m, f8_att_scale(a)), next[F8_ATT_GROUPS];
    LLVMValueRef now[F8_ATT_GROUPS];
    f8_ll_loop l = {.value = now};
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), keys, f8_ll_i64(m, 1), max, F8_ATT_GROUPS);
    LLVMValueRef row = f8_att_slice(a, s, l.index, F8_ATT_BLOCK, 0);
    for (int g = 0; g < F8_ATT_GROUPS; g++) {
        LLVMValueRef x = m->ll->BuildFMul(m->b, f8_att_load16(a, row, g * F8_MK_LANES), scale, "");
        if (diag)
            x = m->ll->BuildSelect(m->b, f8_att_visible(a, g, l.index, count), x,
                                   f8_ll_vf32(m, -INFINITY), "");
        LLVMValueRef more = m->ll->BuildFCmp(m->b, LLVMRealOGT, x, l.value[g], "");
        next[g] = m->ll->BuildSelect(m->b, more, x, l.value[g], "");
    }
    f8_ll_loop_end(m, &l, next);
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        max[g] = l.value[g];
}

/* s = exp(scale * s - max), summed down the keys into sum. */
static void exponentials(f8_att *a, LLVMValueRef s, LLVMValueRef keys, LLVMValueRef count,
                         bool diag, const LLVMValueRef *max, LLVMValueRef *sum)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef scale = f8_ll_vf32(m, f8_att_scale(a)), next[F8_ATT_GROUPS], minus[F8_ATT_GROUPS];
    for (int g = 0; g < F8_ATT_GROUPS; g++) {
        sum[g] = f8_ll_vf32(m, 0.0f);
        minus[g] = m->ll->BuildFNeg(m->b, max[g], "");
    }
    LLVMValueRef now[F8_ATT_GROUPS];
    f8_ll_loop l = {.value = now};
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), keys, f8_ll_i64(m, 1), sum, F8_ATT_GROUPS);
    LLVMValueRef row = f8_att_slice(a, s, l.index, F8_ATT_BLOCK, 0);
    for (int g = 0; g < F8_ATT_GROUPS; g++) {
        LLVMValueRef x = f8_ll_fma(m, f8_att_load16(a, row, g * F8_MK_LANES), scale, minus[g]);
        LLVMValueRef p = f8_ll_scalar(m, F8_FN_EXP, x);
        if (diag)
            p = m->ll->BuildSelect(m->b, f8_att_visible(a, g, l.index, count), p,
                                   f8_ll_vf32(m, 0.0f), "");
        f8_att_store16(a, p, row, g * F8_MK_LANES);
        next[g] = m->ll->BuildFAdd(m->b, l.value[g], p, "");
    }
    f8_ll_loop_end(m, &l, next);
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        sum[g] = l.value[g];
}

/* void(ptr s, ptr stats, i64 keys, i64 queries): s[key][query] becomes p, stats are updated. */
static LLVMValueRef make_softmax(f8_att *a, bool diag)
{
    f8_llvm_module *m = a->m;
    char name[160];
    snprintf(name, sizeof name, "%s_softmax%s", a->symbol, diag ? "_diag" : "");
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->i64, m->i64};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 4);
    LLVMValueRef s = f8_ll_param(m, 0), stats = f8_ll_param(m, 1), keys = f8_ll_param(m, 2);
    LLVMValueRef count = f8_ll_param(m, 3);
    LLVMValueRef max[F8_ATT_GROUPS], safe[F8_ATT_GROUPS], sum[F8_ATT_GROUPS];
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        max[g] = f8_att_load16(a, stats, STAT_MAX + g * F8_MK_LANES);
    running_max(a, s, keys, count, diag, max);
    if (diag)
        f8_att_zero_rows(a, s, keys, count);
    /* while all scores so far are -Inf, the NaN of -Inf - -Inf must not stay */
    LLVMValueRef none = f8_ll_vf32(m, -INFINITY), zero = f8_ll_vf32(m, 0.0f);
    for (int g = 0; g < F8_ATT_GROUPS; g++)
        safe[g] = m->ll->BuildSelect(
            m->b, m->ll->BuildFCmp(m->b, LLVMRealOEQ, max[g], none, ""), zero, max[g], "");
    exponentials(a, s, keys, count, diag, safe, sum);
    for (int g = 0; g < F8_ATT_GROUPS; g++) {
        int64_t at = g * F8_MK_LANES;
        LLVMValueRef old = f8_att_load16(a, stats, STAT_MAX + at);
        LLVMValueRef alpha =
            f8_ll_scalar(m, F8_FN_EXP, m->ll->BuildFSub(m->b, old, safe[g], ""));
        f8_att_store16(a, max[g], stats, STAT_MAX + at);
        f8_att_store16(a, alpha, stats, STAT_ALPHA + at);
        f8_att_store16(a, f8_ll_fma(m, f8_att_load16(a, stats, STAT_SUM + at), alpha, sum[g]),
                       stats, STAT_SUM + at);
    }
    m->ll->BuildRetVoid(m->b);
    return f;
}

/* The rows of lse from the largest score and the sum, and alpha = 1 / sum. With a mask, a query
 * with nothing to see has a sum of 0: lse = +Inf, or top = 0 and rest = +Inf, and alpha = 0. */
static void final_values(f8_att *a, LLVMValueRef max, LLVMValueRef sum, LLVMValueRef lse[2],
                         LLVMValueRef *alpha)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef log = f8_ll_scalar(m, F8_FN_LOG, sum), zero = f8_ll_vf32(m, 0.0f);
    const bool adds = a->desc->masking == F8_MASK_ADD;
    *alpha = m->ll->BuildFDiv(m->b, f8_ll_vf32(m, 1.0f), sum, "");
    lse[0] = adds ? max : m->ll->BuildFAdd(m->b, max, log, "");
    lse[1] = log;
    if (!a->desc->masking)
        return;
    LLVMValueRef blind = m->ll->BuildFCmp(m->b, LLVMRealOEQ, sum, zero, "");
    LLVMValueRef infinite = f8_ll_vf32(m, INFINITY);
    *alpha = m->ll->BuildSelect(m->b, blind, zero, *alpha, "");
    lse[0] = m->ll->BuildSelect(m->b, blind, adds ? zero : infinite, lse[0], "");
    if (!adds)
        return;
    lse[1] = m->ll->BuildSelect(m->b, blind, infinite, log, "");
    lse[0] = m->ll->BuildSelect(m->b, m->ll->BuildFCmp(m->b, LLVMRealUNO, sum, sum, ""), sum,
                                lse[0], "");
}

/* void(ptr stats, ptr lse, i64 queries): stores lse, and in stats alpha = 1 / sum. */
static LLVMValueRef make_finish(f8_att *a)
{
    f8_llvm_module *m = a->m;
    char name[160];
    snprintf(name, sizeof name, "%s_finish", a->symbol);
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->i64};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 3);
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_param(m, 2), f8_ll_i64(m, F8_MK_LANES), NULL, 0);
    LLVMValueRef stats = f8_ll_at(m, m->f32, f8_ll_param(m, 0), l.index);
    LLVMValueRef lse[2], alpha;
    final_values(a, f8_att_load16(a, stats, STAT_MAX), f8_att_load16(a, stats, STAT_SUM), lse,
                 &alpha);
    f8_att_store16(a, alpha, stats, STAT_ALPHA);
    LLVMValueRef left = m->ll->BuildNSWSub(m->b, f8_ll_param(m, 2), l.index, "");
    for (int64_t row = 0; row < f8_attention_lse_rows(a->desc); row++) {
        LLVMValueRef to = f8_ll_at(m, m->f32, f8_ll_param(m, 1), f8_ll_i64(m, row * a->desc->T));
        f8_ll_vstore(m, lse[row], f8_ll_at(m, m->f32, to, l.index), f8_ll_mask(m, left));
    }
    f8_ll_loop_end(m, &l, NULL);
    m->ll->BuildRetVoid(m->b);
    return f;
}

static void load_queries(forward *w)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    const int64_t area = F8_ATT_BLOCK * a->padded;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), w->count, f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef block = m->ll->BuildNSWAdd(m->b, w->first, l.index, "");
    LLVMValueRef from = f8_att_token(a, w->q_arg, a->desc->stride.q, w->batch,
                                     f8_att_start(a, block), w->head);
    LLVMValueRef q = f8_att_floats(a, w->scratch, w->q);
    f8_ll_call(m, w->pack_q, (LLVMValueRef[]){q, from, f8_att_count(a, block)}, 3);
    LLVMValueRef qt = f8_att_slice(a, f8_att_floats(a, w->scratch, w->qt), l.index, area, 0);
    f8_ll_call(m, a->transpose, (LLVMValueRef[]){qt, q}, 2);
    LLVMValueRef o = f8_att_slice(a, f8_att_floats(a, w->scratch, w->o), l.index, area, 0);
    LLVMValueRef stats = f8_att_slice(a, f8_att_floats(a, w->scratch, w->stats), l.index, STATS, 0);
    f8_att_fill(a, o, f8_ll_i64(m, area), 0.0f);
    f8_att_fill(a, stats, f8_ll_i64(m, F8_ATT_BLOCK), -INFINITY);
    f8_att_fill(a, f8_ll_at(m, m->f32, stats, f8_ll_i64(m, STAT_SUM)), f8_ll_i64(m, F8_ATT_BLOCK),
                0.0f);
    f8_ll_loop_end(m, &l, NULL);
}

/* One block of queries, the i-th of the task, with one block of keys. */
static void forward_step(forward *w, LLVMValueRef i, LLVMValueRef key_block, bool diag)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    const int64_t area = F8_ATT_BLOCK * a->padded;
    LLVMValueRef block = m->ll->BuildNSWAdd(m->b, w->first, i, "");
    LLVMValueRef queries = f8_att_count(a, block), keys = f8_att_key_count(a, key_block);
    LLVMValueRef s = f8_att_floats(a, w->scratch, w->s);
    LLVMValueRef stats = f8_att_slice(a, f8_att_floats(a, w->scratch, w->stats), i, STATS, 0);
    LLVMValueRef qt = f8_att_slice(a, f8_att_floats(a, w->scratch, w->qt), i, area, 0);
    LLVMValueRef o = f8_att_slice(a, f8_att_floats(a, w->scratch, w->o), i, area, 0);
    f8_att_scores(a, diag, s, f8_att_floats(a, w->scratch, w->k), qt, keys, queries);
    f8_att_mask(a, s, f8_att_mask_at(a, w->mask_arg, w->batch, w->head, block, key_block), keys,
                queries);
    f8_ll_call(m, w->softmax[diag], (LLVMValueRef[]){s, stats, keys, queries}, 4);
    f8_att_drop(a, s, w->seed_arg, w->batch, w->head, block, key_block);
    f8_att_call(a, diag ? F8_ATT_OUT_DIAG : F8_ATT_OUT, o, s, f8_att_floats(a, w->scratch, w->v),
                queries, keys, f8_ll_at(m, m->f32, stats, f8_ll_i64(m, STAT_ALPHA)));
}

static void forward_keys(forward *w)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    LLVMValueRef end = f8_ll_i64(m, a->key_blocks), zero = f8_ll_i64(m, 0), one = f8_ll_i64(m, 1);
    if (a->desc->causal) {
        LLVMValueRef last = m->ll->BuildNSWAdd(m->b, w->first, w->count, "");
        end = a->key_blocks < a->blocks ? f8_ll_imin(m, last, end) : last;
    }
    f8_ll_loop j, i;
    f8_ll_loop_begin(m, &j, zero, end, one, NULL, 0);
    LLVMValueRef start = f8_att_start(a, j.index), keys = f8_att_key_count(a, j.index), from = zero;
    LLVMValueRef k = f8_att_key(a, w->k_arg, a->desc->stride.k, w->batch, start, w->kv_head);
    LLVMValueRef v = f8_att_key(a, w->v_arg, a->desc->stride.v, w->batch, start, w->kv_head);
    f8_ll_call(m, w->pack_k, (LLVMValueRef[]){f8_att_floats(a, w->scratch, w->k), k, keys}, 3);
    f8_ll_call(m, w->pack_v, (LLVMValueRef[]){f8_att_floats(a, w->scratch, w->v), v, keys}, 3);
    LLVMValueRef ahead = m->ll->BuildNSWSub(m->b, j.index, w->first, "");
    if (a->desc->causal) { /* the block on the diagonal, then those after it */
        f8_ll_if on;
        f8_ll_if_begin(m, &on, m->ll->BuildICmp(m->b, LLVMIntSGE, ahead, zero, ""));
        forward_step(w, ahead, j.index, true);
        f8_ll_if_end(m, &on);
        from = f8_ll_imax(m, f8_att_add(a, ahead, 1), zero);
    }
    f8_ll_loop_begin(m, &i, from, w->count, one, NULL, 0);
    forward_step(w, i.index, j.index, false);
    f8_ll_loop_end(m, &i, NULL);
    f8_ll_loop_end(m, &j, NULL);
}

static void store_outputs(forward *w)
{
    f8_att *a = w->a;
    f8_llvm_module *m = a->m;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), w->count, f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef block = m->ll->BuildNSWAdd(m->b, w->first, l.index, "");
    LLVMValueRef start = f8_att_start(a, block), count = f8_att_count(a, block);
    LLVMValueRef stats = f8_att_slice(a, f8_att_floats(a, w->scratch, w->stats), l.index, STATS, 0);
    LLVMValueRef lse = f8_att_lse(a, w->lse_arg, w->batch, w->head, start);
    f8_ll_call(m, w->finish, (LLVMValueRef[]){stats, lse, count}, 3);
    LLVMValueRef o = f8_att_slice(a, f8_att_floats(a, w->scratch, w->o), l.index,
                                  F8_ATT_BLOCK * a->padded, 0);
    LLVMValueRef to = f8_att_token(a, w->o_arg, a->desc->stride.o, w->batch, start, w->head);
    LLVMValueRef factor = f8_ll_at(m, m->f32, stats, f8_ll_i64(m, STAT_ALPHA));
    f8_ll_call(m, w->store, (LLVMValueRef[]){to, o, count, factor}, 4);
    f8_ll_loop_end(m, &l, NULL);
}

static int64_t super_blocks(const f8_att *a)
{
    return (a->blocks + F8_ATT_SUPER - 1) / F8_ATT_SUPER;
}

static void lay_out_scratch(forward *w)
{
    f8_att *a = w->a;
    const int64_t area = F8_ATT_BLOCK * a->padded;
    w->q = f8_att_room(a, area);
    w->k = f8_att_room(a, area);
    w->v = f8_att_room(a, area);
    w->s = f8_att_room(a, F8_ATT_BLOCK * F8_ATT_BLOCK);
    w->qt = f8_att_room(a, area * F8_ATT_SUPER);
    w->o = f8_att_room(a, area * F8_ATT_SUPER);
    w->stats = f8_att_room(a, STATS * F8_ATT_SUPER);
}

void f8_att_forward_sizes(f8_att *a, f8_cpu_phase *phases, int *n_phases)
{
    a->scratch = 0;
    lay_out_scratch(&(forward){.a = a});
    phases[0].n_tasks = a->desc->B * a->desc->H * super_blocks(a);
    phases[0].scratch = a->scratch;
    *n_phases = 1;
}

void f8_att_forward(f8_att *a, f8_cpu_phase *phases, int *n_phases)
{
    f8_llvm_module *m = a->m;
    const f8_attention_desc *d = a->desc;
    const int64_t supers = super_blocks(a);
    f8_att_forward_sizes(a, phases, n_phases);
    a->scratch = 0;
    f8_att_make_scores(a);
    f8_att_make_mask(a);
    f8_att_make_drop(a);
    f8_att_make_product(a, F8_ATT_OUT);
    if (d->causal)
        f8_att_make_product(a, F8_ATT_OUT_DIAG);
    forward w = {.a = a,
                 .pack_q = f8_att_make_pack(a, "q", d->stride.q),
                 .pack_k = f8_att_make_pack(a, "k", d->stride.k),
                 .pack_v = f8_att_make_pack(a, "v", d->stride.v),
                 .store = f8_att_make_store(a, "o", d->stride.o),
                 .softmax = {make_softmax(a, false), d->causal ? make_softmax(a, true) : NULL},
                 .finish = make_finish(a)};
    lay_out_scratch(&w);
    f8_ll_phase p;
    f8_ll_phase_begin(m, &p, phases[0].symbol);
    LLVMValueRef *const args[] = {&w.q_arg,    &w.k_arg, &w.v_arg,  &w.mask_arg,
                                  &w.seed_arg, &w.o_arg, &w.lse_arg};
    for (int i = 0, n = 0; i < 7; i++)
        if ((args[i] != &w.mask_arg || d->masking) && (args[i] != &w.seed_arg || d->dropout > 0))
            *args[i] = f8_ll_phase_arg(m, &p, n++);
    w.scratch = p.scratch;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, p.begin, p.end, f8_ll_i64(m, 1), NULL, 0);
    /* the last queries see the most keys: they go first, so that all threads finish at about the
     * same time */
    LLVMValueRef from_last = f8_att_div(a, l.index, d->B * d->H),
                 pair = f8_att_rem(a, l.index, d->B * d->H);
    LLVMValueRef super = m->ll->BuildNSWSub(m->b, f8_ll_i64(m, supers - 1), from_last, "");
    w.batch = f8_att_div(a, pair, d->H);
    w.head = f8_att_rem(a, pair, d->H);
    w.kv_head = f8_att_div(a, w.head, d->H / d->Hkv);
    w.first = f8_att_mul(a, super, F8_ATT_SUPER);
    w.count = f8_ll_imin(m, f8_ll_i64(m, F8_ATT_SUPER),
                         m->ll->BuildNSWSub(m->b, f8_ll_i64(m, a->blocks), w.first, ""));
    load_queries(&w);
    forward_keys(&w);
    store_outputs(&w);
    f8_ll_loop_end(m, &l, NULL);
    f8_ll_phase_end(m);
}

/* ---- the entry ---- */

static f8_status check(const f8_attention_desc *x, bool backward, f8_diag *d)
{
    if (x->dtype != F8_F32 && x->dtype != F8_BF16)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "attention on the CPU takes f32 or bf16, not %s", f8_dtype_name(x->dtype));
    F8_TRY(f8_attention_check_sizes(x, d));
    if (x->D > 512)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "attention on the CPU takes heads of 1 to 512 elements, not %lld",
                       (long long)x->D);
    return f8_attention_check_strides(x, backward, d);
}

static f8_att begin(const f8_attention_desc *desc)
{
    return (f8_att){.desc = desc,
                    .blocks = (desc->T + F8_ATT_BLOCK - 1) / F8_ATT_BLOCK,
                    .key_blocks = (desc->Tk + F8_ATT_BLOCK - 1) / F8_ATT_BLOCK,
                    .padded = f8_aligned(desc->D, F8_MK_LANES)};
}

f8_status f8_cpu_attention_sizes(const f8_attention_desc *desc, bool backward, f8_cpu_phase *phases,
                                 int *n_phases, f8_diag *d)
{
    F8_TRY(check(desc, backward, d));
    f8_att a = begin(desc);
    (backward ? f8_att_backward_sizes : f8_att_forward_sizes)(&a, phases, n_phases);
    return F8_OK;
}

f8_status f8_cpu_attention_emit(f8_llvm_module *m, const f8_attention_desc *desc, bool backward,
                                const char *symbol, f8_cpu_phase *phases, int *n_phases, f8_diag *d)
{
    F8_TRY(check(desc, backward, d));
    f8_att a = begin(desc);
    a.m = m;
    a.symbol = symbol;
    a.element = desc->dtype == F8_BF16 ? m->i16 : m->f32;
    for (int i = 0; i < F8_ATTENTION_MAX_PHASES; i++) {
        phases[i] = (f8_cpu_phase){0};
        int n = snprintf(phases[i].symbol, sizeof phases[i].symbol, "%s_%d", symbol, i);
        if (n < 0 || (size_t)n >= sizeof phases[i].symbol)
            return f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "attention: symbol '%s' is too long",
                           symbol);
    }
    const int lanes = m->lanes;
    m->lanes = F8_MK_LANES;
    char name[160];
    snprintf(name, sizeof name, "%s_transpose", symbol);
    a.transpose = f8_mk_transpose_function(m, name, a.padded);
    (backward ? f8_att_backward : f8_att_forward)(&a, phases, n_phases);
    m->lanes = lanes;
    return F8_OK;
}
