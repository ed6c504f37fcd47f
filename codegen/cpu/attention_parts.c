/* What forward and backward attention share: addresses, and products of blocks
 * (attention_parts.h). */
#include "codegen/cpu/attention_parts.h"

#include <math.h>
#include <stdio.h>

/* ---- addresses and counts ---- */

LLVMValueRef f8_att_mul(f8_att *a, LLVMValueRef x, int64_t y)
{
    return a->m->ll->BuildNSWMul(a->m->b, x, f8_ll_i64(a->m, y), "");
}

LLVMValueRef f8_att_add(f8_att *a, LLVMValueRef x, int64_t y)
{
    return a->m->ll->BuildNSWAdd(a->m->b, x, f8_ll_i64(a->m, y), "");
}

LLVMValueRef f8_att_div(f8_att *a, LLVMValueRef x, int64_t y)
{
    return a->m->ll->BuildUDiv(a->m->b, x, f8_ll_i64(a->m, y), "");
}

LLVMValueRef f8_att_rem(f8_att *a, LLVMValueRef x, int64_t y)
{
    return a->m->ll->BuildURem(a->m->b, x, f8_ll_i64(a->m, y), "");
}

int64_t f8_att_room(f8_att *a, int64_t count)
{
    int64_t at = a->scratch;
    a->scratch += (count * 4 + 63) / 64 * 64;
    return at;
}

LLVMValueRef f8_att_floats(f8_att *a, LLVMValueRef scratch, int64_t offset)
{
    return f8_ll_at(a->m, a->m->i8, scratch, f8_ll_i64(a->m, offset));
}

LLVMValueRef f8_att_slice(f8_att *a, LLVMValueRef base, LLVMValueRef index, int64_t stride,
                          int64_t offset)
{
    return f8_ll_at(a->m, a->m->f32, base, f8_att_add(a, f8_att_mul(a, index, stride), offset));
}

LLVMValueRef f8_att_load16(f8_att *a, LLVMValueRef base, int64_t offset)
{
    f8_llvm_module *m = a->m;
    return f8_ll_vload(m, m->f32, f8_ll_at(m, m->f32, base, f8_ll_i64(m, offset)), NULL, NULL);
}

void f8_att_store16(f8_att *a, LLVMValueRef value, LLVMValueRef base, int64_t offset)
{
    f8_llvm_module *m = a->m;
    f8_ll_vstore(m, value, f8_ll_at(m, m->f32, base, f8_ll_i64(m, offset)), NULL);
}

void f8_att_fill(f8_att *a, LLVMValueRef at, LLVMValueRef count, float value)
{
    f8_llvm_module *m = a->m;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), count, f8_ll_i64(m, F8_MK_LANES), NULL, 0);
    f8_ll_vstore(m, f8_ll_vf32(m, value), f8_ll_at(m, m->f32, at, l.index), NULL);
    f8_ll_loop_end(m, &l, NULL);
}

static LLVMValueRef address(f8_att *a, LLVMValueRef base, int64_t stride, int64_t tokens,
                            LLVMValueRef batch, LLVMValueRef token, LLVMValueRef head)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef row = m->ll->BuildNSWAdd(m->b, f8_att_mul(a, batch, tokens), token, "");
    LLVMValueRef at = m->ll->BuildNSWAdd(m->b, f8_att_mul(a, row, stride),
                                         f8_att_mul(a, head, a->desc->D), "");
    return f8_ll_at(m, a->element, base, at);
}

LLVMValueRef f8_att_token(f8_att *a, LLVMValueRef base, int64_t stride, LLVMValueRef batch,
                          LLVMValueRef token, LLVMValueRef head)
{
    return address(a, base, stride, a->desc->T, batch, token, head);
}

LLVMValueRef f8_att_key(f8_att *a, LLVMValueRef base, int64_t stride, LLVMValueRef batch,
                        LLVMValueRef key, LLVMValueRef head)
{
    return address(a, base, stride, a->desc->Tk, batch, key, head);
}

LLVMValueRef f8_att_lse(f8_att *a, LLVMValueRef base, LLVMValueRef batch, LLVMValueRef head,
                        LLVMValueRef token)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef row = m->ll->BuildNSWAdd(m->b, f8_att_mul(a, batch, a->desc->H), head, "");
    row = f8_att_mul(a, row, f8_attention_lse_rows(a->desc) * a->desc->T);
    return f8_ll_at(m, m->f32, base, m->ll->BuildNSWAdd(m->b, row, token, ""));
}

LLVMValueRef f8_att_start(f8_att *a, LLVMValueRef block)
{
    return f8_att_mul(a, block, F8_ATT_BLOCK);
}

static LLVMValueRef count_of(f8_att *a, int64_t tokens, LLVMValueRef block)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef left =
        m->ll->BuildNSWSub(m->b, f8_ll_i64(m, tokens), f8_att_start(a, block), "");
    return f8_ll_imin(m, left, f8_ll_i64(m, F8_ATT_BLOCK));
}

LLVMValueRef f8_att_count(f8_att *a, LLVMValueRef block)
{
    return count_of(a, a->desc->T, block);
}

LLVMValueRef f8_att_key_count(f8_att *a, LLVMValueRef block)
{
    return count_of(a, a->desc->Tk, block);
}

LLVMValueRef f8_att_visible(f8_att *a, int group, LLVMValueRef key, LLVMValueRef count)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef query =
        m->ll->BuildAdd(m->b, f8_ll_iota(m), f8_ll_vi32(m, group * F8_MK_LANES), "");
    key = f8_ll_splat(m, m->ll->BuildTrunc(m->b, key, m->i32, ""));
    count = f8_ll_splat(m, m->ll->BuildTrunc(m->b, count, m->i32, ""));
    LLVMValueRef seen = m->ll->BuildICmp(m->b, LLVMIntSGE, query, key, "");
    LLVMValueRef there = m->ll->BuildICmp(m->b, LLVMIntSLT, query, count, "");
    return m->ll->BuildAnd(m->b, seen, there, "");
}

void f8_att_zero_rows(f8_att *a, LLVMValueRef s, LLVMValueRef keys, LLVMValueRef queries)
{
    f8_llvm_module *m = a->m;
    if (a->desc->Tk >= a->desc->T)
        return;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, keys, queries, f8_ll_i64(m, 1), NULL, 0);
    f8_att_fill(a, f8_att_slice(a, s, l.index, F8_ATT_BLOCK, 0), f8_ll_i64(m, F8_ATT_BLOCK), 0.0f);
    f8_ll_loop_end(m, &l, NULL);
}

/* ---- masks ---- */

float f8_att_scale(const f8_att *a)
{
    return a->desc->masking ? 1.0f : a->desc->scale;
}

LLVMValueRef f8_att_mask_at(f8_att *a, LLVMValueRef base, LLVMValueRef batch, LLVMValueRef head,
                            LLVMValueRef query_block, LLVMValueRef key_block)
{
    f8_llvm_module *m = a->m;
    const f8_attention_desc *d = a->desc;
    if (!d->masking)
        return NULL;
    const struct {
        LLVMValueRef index;
        int64_t stride;
    } axis[] = {{batch, d->mask.b},
                {head, d->mask.h},
                {f8_att_start(a, query_block), d->mask.q},
                {f8_att_start(a, key_block), d->mask.k}};
    LLVMValueRef at = f8_ll_i64(m, 0);
    for (int i = 0; i < 4; i++)
        at = m->ll->BuildNSWAdd(m->b, at, f8_att_mul(a, axis[i].index, axis[i].stride), "");
    return f8_ll_at(m, d->masking == F8_MASK_BOOL ? m->i8 : m->f32, base, at);
}

/* scale * s + the mask's element at `from`; s is one score or a vector of them. */
static LLVMValueRef masked(f8_att *a, LLVMValueRef s, LLVMValueRef from, bool vector)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef scale = f8_ll_f32(m, a->desc->scale), none = f8_ll_f32(m, -INFINITY);
    LLVMValueRef x = f8_ll_load(m, a->desc->masking == F8_MASK_BOOL ? m->i8 : m->f32, from);
    if (vector) {
        scale = f8_ll_splat(m, scale);
        none = f8_ll_splat(m, none);
    }
    if (a->desc->masking == F8_MASK_ADD)
        return f8_ll_fma(m, s, scale, vector ? f8_ll_splat(m, x) : x);
    LLVMValueRef seen =
        m->ll->BuildICmp(m->b, LLVMIntNE, m->ll->BuildZExt(m->b, x, m->i32, ""), f8_ll_i32(m, 0), "");
    if (vector)
        seen = m->ll->BuildICmp(
            m->b, LLVMIntNE, f8_ll_splat(m, m->ll->BuildZExt(m->b, x, m->i32, "")), f8_ll_vi32(m, 0),
            "");
    return m->ll->BuildSelect(m->b, seen, m->ll->BuildFMul(m->b, s, scale, ""), none, "");
}

/* void(ptr s, ptr mask, i64 keys, i64 queries). Where all queries share a row of the mask, vectors of
 * queries; else one query after another, along its row. */
void f8_att_make_mask(f8_att *a)
{
    f8_llvm_module *m = a->m;
    const f8_attention_desc *d = a->desc;
    LLVMTypeRef element = d->masking == F8_MASK_BOOL ? m->i8 : m->f32;
    char name[160];
    if (!d->masking)
        return;
    snprintf(name, sizeof name, "%s_mask", a->symbol);
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->i64, m->i64};
    a->mask = f8_ll_function_begin(m, name, m->void_, params, 4);
    f8_ll_noalias(m, a->mask, 0);
    LLVMValueRef zero = f8_ll_i64(m, 0), one = f8_ll_i64(m, 1), row = f8_ll_param(m, 1);
    f8_ll_loop i, j;
    if (d->mask.q) {
        f8_ll_loop_begin(m, &i, zero, f8_ll_param(m, 3), one, NULL, 0);
        row = f8_ll_at(m, element, row, f8_att_mul(a, i.index, d->mask.q));
    }
    f8_ll_loop_begin(m, &j, zero, f8_ll_param(m, 2), one, NULL, 0);
    LLVMValueRef from = f8_ll_at(m, element, row, f8_att_mul(a, j.index, d->mask.k));
    LLVMValueRef s = f8_att_slice(a, f8_ll_param(m, 0), j.index, F8_ATT_BLOCK, 0);
    if (d->mask.q) {
        LLVMValueRef at = f8_ll_at(m, m->f32, s, i.index);
        f8_ll_store(m, masked(a, f8_ll_load(m, m->f32, at), from, false), at);
    } else {
        for (int g = 0; g < F8_ATT_GROUPS; g++)
            f8_att_store16(a, masked(a, f8_att_load16(a, s, g * F8_MK_LANES), from, true), s,
                           g * F8_MK_LANES);
    }
    f8_ll_loop_end(m, &j, NULL);
    if (d->mask.q)
        f8_ll_loop_end(m, &i, NULL);
    m->ll->BuildRetVoid(m->b);
}

void f8_att_mask(f8_att *a, LLVMValueRef s, LLVMValueRef mask, LLVMValueRef keys,
                 LLVMValueRef queries)
{
    if (a->mask)
        f8_ll_call(a->m, a->mask, (LLVMValueRef[]){s, mask, keys, queries}, 4);
}

/* ---- dropout ---- */

/* random_bits of i32, scalars or vectors alike. */
static LLVMValueRef random_bits(f8_att *a, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z)
{
    return f8_ll_body(a->m, f8_scalar_form(F8_FORM_PCG3D), (LLVMValueRef[]){x, y, z});
}

/* void(ptr x, ptr seed, i64 row, i64 key, i64 keys): row and key are the numbers of the first query
 * and key. */
void f8_att_make_drop(f8_att *a)
{
    f8_llvm_module *m = a->m;
    const f8_attention_desc *d = a->desc;
    char name[160];
    if (d->dropout == 0)
        return;
    snprintf(name, sizeof name, "%s_drop", a->symbol);
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->i64, m->i64, m->i64};
    a->drop = f8_ll_function_begin(m, name, m->void_, params, 5);
    f8_ll_noalias(m, a->drop, 0);
    LLVMValueRef seed = f8_ll_load(m, m->i32, f8_ll_param(m, 1)), row = f8_ll_param(m, 2);
    const LLVMValueRef hash =
        f8_ll_splat(m, random_bits(a, seed, f8_ll_i32(m, (int32_t)d->stream), f8_ll_i32(m, 0)));
    row = f8_ll_splat(m, m->ll->BuildTrunc(m->b, row, m->i32, ""));
    row = m->ll->BuildAdd(m->b, row, f8_ll_iota(m), "");
    f8_ll_loop j;
    f8_ll_loop_begin(m, &j, f8_ll_i64(m, 0), f8_ll_param(m, 4), f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef key = m->ll->BuildNSWAdd(m->b, f8_ll_param(m, 3), j.index, "");
    key = f8_ll_splat(m, m->ll->BuildTrunc(m->b, key, m->i32, ""));
    LLVMValueRef x = f8_att_slice(a, f8_ll_param(m, 0), j.index, F8_ATT_BLOCK, 0);
    for (int g = 0; g < F8_ATT_GROUPS; g++) {
        LLVMValueRef query = m->ll->BuildAdd(m->b, row, f8_ll_vi32(m, g * F8_MK_LANES), "");
        LLVMValueRef drop = m->ll->BuildICmp(m->b, LLVMIntSLT, random_bits(a, key, query, hash),
                                             f8_ll_vi32(m, f8_attention_drop_limit(d)), "");
        LLVMValueRef scaled = m->ll->BuildFMul(m->b, f8_att_load16(a, x, g * F8_MK_LANES),
                                               f8_ll_vf32(m, f8_attention_drop_factor(d)), "");
        f8_att_store16(a, m->ll->BuildSelect(m->b, drop, f8_ll_vf32(m, 0.0f), scaled, ""), x,
                       g * F8_MK_LANES);
    }
    f8_ll_loop_end(m, &j, NULL);
    m->ll->BuildRetVoid(m->b);
}

void f8_att_drop(f8_att *a, LLVMValueRef x, LLVMValueRef seed, LLVMValueRef batch,
                 LLVMValueRef head, LLVMValueRef query_block, LLVMValueRef key_block)
{
    f8_llvm_module *m = a->m;
    if (!a->drop)
        return;
    LLVMValueRef row = m->ll->BuildNSWAdd(m->b, f8_att_mul(a, batch, a->desc->H), head, "");
    row =
        m->ll->BuildNSWAdd(m->b, f8_att_mul(a, row, a->desc->T), f8_att_start(a, query_block), "");
    f8_ll_call(
        m, a->drop,
        (LLVMValueRef[]){x, seed, row, f8_att_start(a, key_block), f8_att_key_count(a, key_block)},
        5);
}

/* ---- products ---- */

static void make_width(f8_att *a, f8_att_product kind, int width)
{
    const int64_t block = F8_ATT_BLOCK, row = a->padded;
    const f8_mk_gemm shape[F8_ATT_PRODUCTS] = {
        [F8_ATT_SCORES] = {F8_MK_FULL, F8_MK_ZERO, width, row, 1, block, block},
        [F8_ATT_OUT] = {F8_MK_FULL, F8_MK_SCALE, width, 1, block, row, row},
        [F8_ATT_OUT_DIAG] = {F8_MK_UPTO, F8_MK_SCALE, width, 1, block, row, row},
        [F8_ATT_DQ] = {F8_MK_FULL, F8_MK_ADD, width, 1, block, row, row},
        [F8_ATT_DQ_DIAG] = {F8_MK_UPTO, F8_MK_ADD, width, 1, block, row, row},
        [F8_ATT_DKV] = {F8_MK_FULL, F8_MK_ADD, width, block, 1, row, row},
        [F8_ATT_DKV_DIAG] = {F8_MK_FROM, F8_MK_ADD, width, block, 1, row, row},
    };
    static const char *const names[F8_ATT_PRODUCTS] = {"scores", "out", "out_diag", "dq", "dq_diag",
                                                       "dkv", "dkv_diag"};
    char name[160];
    if (a->product[kind][width])
        return;
    snprintf(name, sizeof name, "%s_%s%d", a->symbol, names[kind], width);
    a->product[kind][width] = f8_mk_gemm_function(a->m, name, &shape[kind]);
}

void f8_att_make_product(f8_att *a, f8_att_product kind)
{
    for (int left = (int)(a->padded / F8_MK_LANES), w; left; left -= w) {
        w = f8_mk_width(a->m, left);
        make_width(a, kind, w);
    }
}

static void call_columns(f8_att *a, f8_att_product kind, int columns, LLVMValueRef c,
                         LLVMValueRef left, LLVMValueRef right, LLVMValueRef rows,
                         LLVMValueRef depth, LLVMValueRef factor)
{
    f8_llvm_module *m = a->m;
    for (int at = 0, w; at < columns; at += w) {
        w = f8_mk_width(m, columns - at);
        LLVMValueRef skip = f8_ll_i64(m, at * F8_MK_LANES);
        LLVMValueRef args[] = {f8_ll_at(m, m->f32, c, skip), left, f8_ll_at(m, m->f32, right, skip),
                               rows, depth, factor ? factor : left};
        f8_ll_call(m, a->product[kind][w], args, 6);
    }
}

void f8_att_call(f8_att *a, f8_att_product kind, LLVMValueRef c, LLVMValueRef left,
                 LLVMValueRef right, LLVMValueRef rows, LLVMValueRef depth, LLVMValueRef factor)
{
    call_columns(a, kind, (int)(a->padded / F8_MK_LANES), c, left, right, rows, depth, factor);
}

/* One vector of queries after another: on the diagonal, the vector from query 16 c on sees the keys
 * below 16 (c + 1). */
static void scores_by_vector(f8_att *a, bool diag, LLVMValueRef queries)
{
    f8_llvm_module *m = a->m;
    LLVMValueRef keys = f8_ll_param(m, 3);
    for (int c = 0; c < F8_ATT_GROUPS; c++) {
        LLVMValueRef first = f8_ll_i64(m, c * F8_MK_LANES), rows = keys;
        if (diag)
            rows = f8_ll_imin(m, rows, f8_ll_i64(m, (c + 1) * F8_MK_LANES));
        f8_ll_if there;
        f8_ll_if_begin(m, &there, m->ll->BuildICmp(m->b, LLVMIntSLT, first, queries, ""));
        call_columns(a, F8_ATT_SCORES, 1, f8_ll_at(m, m->f32, f8_ll_param(m, 0), first),
                     f8_ll_param(m, 1), f8_ll_at(m, m->f32, f8_ll_param(m, 2), first), rows,
                     f8_ll_i64(m, a->desc->D), NULL);
        f8_ll_if_end(m, &there);
    }
}

/* void(ptr s, ptr k, ptr qt, i64 keys, i64 queries): see f8_att_scores. */
static LLVMValueRef make_scores(f8_att *a, bool diag)
{
    f8_llvm_module *m = a->m;
    char name[160];
    snprintf(name, sizeof name, "%s_scores%s", a->symbol, diag ? "_diag" : "");
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->ptr, m->i64, m->i64};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 5);
    LLVMValueRef queries = f8_ll_param(m, 4);
    if (diag) {
        scores_by_vector(a, true, queries);
    } else {
        LLVMValueRef two = f8_ll_i64(m, (F8_ATT_GROUPS - 1) * F8_MK_LANES);
        f8_ll_if wide;
        f8_ll_if_begin(m, &wide, m->ll->BuildICmp(m->b, LLVMIntSGT, queries, two, ""));
        call_columns(a, F8_ATT_SCORES, F8_ATT_GROUPS, f8_ll_param(m, 0), f8_ll_param(m, 1),
                     f8_ll_param(m, 2), f8_ll_param(m, 3), f8_ll_i64(m, a->desc->D), NULL);
        f8_ll_if_else(m, &wide);
        scores_by_vector(a, false, queries);
        f8_ll_if_end(m, &wide);
    }
    m->ll->BuildRetVoid(m->b);
    return f;
}

void f8_att_make_scores(f8_att *a)
{
    make_width(a, F8_ATT_SCORES, 1);
    make_width(a, F8_ATT_SCORES, f8_mk_width(a->m, F8_ATT_GROUPS));
    a->scores[0] = make_scores(a, false);
    if (a->desc->causal)
        a->scores[1] = make_scores(a, true);
}

void f8_att_scores(f8_att *a, bool diag, LLVMValueRef s, LLVMValueRef k, LLVMValueRef qt,
                   LLVMValueRef keys, LLVMValueRef queries)
{
    f8_ll_call(a->m, a->scores[diag], (LLVMValueRef[]){s, k, qt, keys, queries}, 5);
}

LLVMValueRef f8_att_make_pack(f8_att *a, const char *what, int64_t stride)
{
    char name[160];
    snprintf(name, sizeof name, "%s_pack_%s", a->symbol, what);
    return f8_mk_pack_function(a->m, name, a->desc->dtype, a->desc->D, stride);
}

LLVMValueRef f8_att_make_store(f8_att *a, const char *what, int64_t stride)
{
    char name[160];
    snprintf(name, sizeof name, "%s_store_%s", a->symbol, what);
    return f8_mk_store_function(a->m, name, a->desc->dtype, a->desc->D, stride);
}
