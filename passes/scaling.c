/* Scaling: the GEMMs of linears on FP8 operands.
 *
 * Requires linears as MATMULs with a name and a role, and the entry points. For each linear whose recipe
 * is an FP8 one, its operands x, w and dy are quantized once each and its matmuls become
 * scaled_matmuls: x feeds fprop and wgrad, w fprop and dgrad, dy dgrad and wgrad.
 *
 * An operand is quantized from the value before its rounding to bf16, never from the rounded one (f32 ->
 * bf16 -> FP8 rounds twice), so the operand's cast is looked through.
 *
 * Scale state is plain values (rule 1). Each delayed operand owns a slot in three state vectors, ordered
 * by format so that one fp8_scale serves a run of slots:
 *   fp8.scale [N]            what micro_step and eval quantize with
 *   fp8.amax [N]             the largest |x| seen by micro_steps since the last update
 *   fp8.amax_history [N, H]  of past updates, newest first
 * `update` (or `update_scales`, where a framework owns the optimizer and calls forward and backward)
 * pushes amax on the history, exactly once, and computes the next scales from its maximum. A
 * weight that is a bare parameter changes only in update, so its amax is taken there, of the new value:
 * its scale is never stale. (One computed from a parameter counts as a value of the step, like x.) `prepare` does that for the initial weights, or weights just loaded. Current scaling keeps its
 * weights' amax the same way, in fp8.weight_amax, instead of reading every weight twice a step.
 *
 * Saturation is for values that a late scale makes too large, not for Inf: where a step sees an operand's
 * amax, an Inf or NaN there makes scale_inv NaN, so the loss shows it and the update is skipped.
 *
 * Why not hang the histories on the layers and update them as a side effect of the forward: recompute
 * and accumulation would then update them twice or not at all (Transformer Engine #1190). */
#include "passes/scaling.h"

#include <stdio.h>
#include <string.h>

#include "ir/fp8.h"

/* ---- operands ---- */

/* The value an operand is quantized from: before its cast to bf16, also under views of that. */
static f8_ref source_of(f8_graph *g, f8_ref r)
{
    const f8_node n = *f8_at(g, r); /* the graph may grow below */
    if (n.op == F8_OP_CAST && n.type.dtype == F8_BF16 && f8_type_of(g, n.in[0])->dtype == F8_F32)
        return n.in[0];
    if (n.op == F8_OP_SLICE || n.op == F8_OP_RESHAPE) {
        const f8_ref inner = source_of(g, n.in[0]);
        if (inner != n.in[0] && n.op == F8_OP_RESHAPE)
            return f8_reshape(g, inner, &n.type);
        if (inner != n.in[0])
            return f8_slice(g, inner, f8_attr_i(g, r, F8_A_AXIS), f8_attr_i(g, r, F8_A_START),
                            f8_attr_i(g, r, F8_A_STOP));
    }
    return r;
}

/* Linears of one recipe that read one value (q, k and v of attention) share its codes: their amaxes are
 * the same, so slots of their own would hold the same scales, and the same codes would be made again. So do
 * GEMMs of one linear whose scales cover the same of it. */
static f8_quantized *find_operand(f8_scaler *s, const f8_quantized *want)
{
    for (size_t i = 0; i < s->n_operands; i++) {
        f8_quantized *q = &s->operand[i];
        if ((q->linear == want->linear || want->kind != F8_OPERAND_DY) && q->kind == want->kind &&
            q->source == want->source && f8_granularity_equal(q->grain, want->grain) &&
            f8_recipe_equal(&q->recipe, &want->recipe))
            return q;
    }
    return NULL;
}

static bool is_input(const f8_scaler *s, const char *linear, f8_ref source)
{
    for (size_t i = 0; i < s->n_inputs; i++)
        if (s->input[i].linear == linear && s->input[i].source == source)
            return true;
    return false;
}

static void note_input(f8_scaler *s, const char *linear, f8_ref source)
{
    f8_linear_input *grown = f8_arena_grow(&s->scratch, s->input, s->n_inputs, &s->input_room,
                                           s->n_inputs + 1, sizeof *grown);
    if (!grown) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return;
    }
    s->input = grown;
    s->input[s->n_inputs++] = (f8_linear_input){linear, source};
}

static f8_slot *find_slot(const f8_slots *t, const f8_quantized *q)
{
    for (size_t i = 0; i < t->n; i++) {
        f8_slot *slot = &t->slot[i];
        if (slot->linear == q->linear && slot->kind == q->kind && slot->ordinal == q->ordinal)
            return slot;
    }
    return NULL;
}

/* The parameter a value is, or -1. */
static int32_t param_of(const f8_func *f, f8_ref r)
{
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].ref == r)
            return f->in[i].var;
    return -1;
}

/* The operand's slot, added while scanning. */
static f8_slot *get_slot(f8_scaler *s, f8_slots *t, const f8_quantized *q)
{
    f8_slot *slot = find_slot(t, q);
    if (slot)
        return slot;
    f8_slot *grown = s->scan ? f8_arena_grow(&s->scratch, t->slot, t->n, &t->room, t->n + 1, sizeof *grown)
                             : NULL;
    if (!grown) {
        s->status = f8_fail(s->u->diag, F8_ERR_INTERNAL, F8_NOWHERE, "operand %s of '%s' has no scale slot",
                            f8_operand_name[q->kind], q->linear);
        return NULL;
    }
    t->slot = grown;
    slot = &t->slot[t->n++];
    *slot = (f8_slot){q->linear, q->kind, q->ordinal, q->recipe, 0, param_of(s->func, q->source)};
    return slot;
}

/* Element `index` of a vector variable, f32 []. While scanning there is none yet: any value will do. */
static f8_ref element_of(f8_scaler *s, f8_graph *g, int32_t var, int64_t index)
{
    const f8_type scalar = {.dtype = F8_F32};
    if (s->scan)
        return f8_const(g, 1);
    return f8_reshape(g, f8_slice(g, f8_scale_port(s, var), 0, index, index + 1), &scalar);
}

/* "fc.x", "fc.dy.1" for the second of its kind, "fc.x.1x128" where scales are not the tensor's. */
static char *operand_name(f8_arena *a, const f8_quantized *q, const char *suffix)
{
    char ordinal[16] = "", grain[48] = "";
    if (q->ordinal)
        snprintf(ordinal, sizeof ordinal, ".%d", q->ordinal);
    if (f8_granularity_has_blocks(q->grain))
        snprintf(grain, sizeof grain, ".%lldx%lld", (long long)q->grain.rows, (long long)q->grain.cols);
    else if (q->grain.rows || q->grain.cols)
        snprintf(grain, sizeof grain, ".%s", q->grain.rows ? "row" : "column");
    return f8_arena_printf(a, "%s.%s%s%s%s", q->linear, f8_operand_name[q->kind], ordinal, grain, suffix);
}

static void name_node(f8_graph *g, f8_arena *a, f8_ref r, const f8_quantized *q, const char *suffix)
{
    char *name = operand_name(a, q, suffix);
    if (name)
        f8_set_name(g, r, f8_intern(g->module, name));
}

static f8_ref amax_of(f8_graph *g, f8_ref x, f8_granularity grain)
{
    char text[48];
    const f8_attr attr[] = {F8_STR(F8_A_GRANULARITY, f8_granularity_print(grain, text, sizeof text))};
    return f8_make(g, F8_OP_AMAX, &x, 1, attr, 1);
}

/* The scale of an operand, one for each block; sets q->amax where it is known in the step. 0 on failure. */
static f8_ref scale_of(f8_scaler *s, f8_graph *g, f8_quantized *q, f8_ref x)
{
    const f8_recipe *recipe = &q->recipe;
    const bool is_param = param_of(s->func, q->source) >= 0;
    if (recipe->scaling == F8_SCALING_UNIT)
        return f8_const(g, 1);
    if (recipe->scaling == F8_SCALING_DELAYED) {
        const f8_slot *slot = get_slot(s, &s->delayed, q);
        if (!slot)
            return 0;
        q->slot = slot - s->delayed.slot;
        if (!is_param)
            q->amax = amax_of(g, x, q->grain);
        return element_of(s, g, s->var_scale, slot->index);
    }
    if (is_param && recipe->scaling == F8_SCALING_CURRENT) {
        const f8_slot *slot = get_slot(s, &s->weights, q);
        if (!slot)
            return 0;
        q->amax = element_of(s, g, s->var_weights, slot->index);
    } else {
        q->amax = amax_of(g, x, q->grain);
    }
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, f8_recipe_format(recipe, q->kind)),
                            F8_INT(F8_A_MARGIN, recipe->margin), F8_INT(F8_A_POW2, recipe->pow2)};
    return f8_make(g, F8_OP_FP8_SCALE, &q->amax, 1, attr, 3);
}

/* The inverse scale as E8M0: amax / max of the format, rounded up to a power of two (OCP MX 1.0 rounds down and
 * clips; up: arXiv 2506.08027), the division a product with 1/max in f32, as Transformer Engine has it. Not
 * saturating: an Inf is no largest finite number, so its block is NaN. */
static f8_ref mx_scale_inv(f8_graph *g, f8_ref amax, f8_dtype format)
{
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, F8_E8M0), F8_INT(F8_A_SATURATE, 0)};
    const f8_ref over_max = f8_const(g, (double)(1.0f / f8_dtype_max(format)));
    return f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){amax, over_max}, 2, attr, 2);
}

/* A weight stored as codes (serve.c) under the same recipe: they and their scales are the operand. */
static bool take_stored(f8_graph *g, f8_quantized *q)
{
    const f8_node *n = f8_at(g, q->source);
    f8_granularity grain = q->grain;
    if (n->op != F8_OP_DEQUANTIZE || f8_type_of(g, n->in[0])->dtype != f8_recipe_format(&q->recipe, q->kind))
        return false;
    const f8_dtype scale = q->recipe.scaling == F8_SCALING_MX ? F8_E8M0 : F8_F32;
    const f8_type want = f8_granularity_type(grain, &n->type, scale);
    const bool blocks = f8_granularity_parse(f8_attr_s(g, q->source, F8_A_GRANULARITY), &grain);
    if (!f8_type_equal(f8_type_of(g, n->in[1]), &want) || !f8_granularity_equal(grain, q->grain) ||
        blocks != f8_granularity_has_blocks(q->grain))
        return false;
    q->q = n->in[0];
    q->scale_inv = n->in[1];
    return true;
}

/* amax -> scale -> quantize, as the recipe says. */
static void quantize_operand(f8_scaler *s, f8_graph *g, f8_quantized *q)
{
    char text[48];
    const f8_dtype format = f8_recipe_format(&q->recipe, q->kind);
    const char *grain = f8_granularity_has_blocks(q->grain)
                            ? f8_granularity_print(q->grain, text, sizeof text)
                            : "broadcast";
    q->slot = -1;
    if (!q->recipe.fake && take_stored(g, q))
        return;
    const f8_ref x = f8_cast(g, q->source, F8_F32), one = f8_const(g, 1);
    f8_ref scale;
    if (q->recipe.scaling == F8_SCALING_MX) {
        q->scale_inv = mx_scale_inv(g, amax_of(g, x, q->grain), format);
        scale = f8_binary(g, F8_OP_DIV, one, f8_cast(g, q->scale_inv, F8_F32));
    } else {
        scale = scale_of(s, g, q, x);
        q->scale_inv = f8_binary(g, F8_OP_DIV, one, scale);
        /* Saturation would make an Inf the format's maximum, and the step would go on as if nothing were
         * wrong. Inf - Inf is NaN, which every product with the block then is; any other amax adds 0. */
        if (q->amax)
            q->scale_inv =
                f8_binary(g, F8_OP_ADD, q->scale_inv, f8_binary(g, F8_OP_SUB, q->amax, q->amax));
    }
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_SATURATE, q->recipe.saturate),
                            F8_STR(F8_A_GRANULARITY, grain)};
    q->q = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 3);
    name_node(g, &s->scratch, q->q, q, ".q");
    name_node(g, &s->scratch, scale, q, ".scale");
    if (q->recipe.fake)
        q->dequantized =
            f8_cast(g, f8_make(g, F8_OP_DEQUANTIZE, (f8_ref[]){q->q, q->scale_inv}, 2, &attr[2], 1), F8_BF16);
}

static const f8_quantized *get_operand(f8_scaler *s, f8_graph *g, f8_quantized want)
{
    f8_quantized *q = find_operand(s, &want);
    if (q)
        return q;
    f8_quantized *grown = f8_arena_grow(&s->scratch, s->operand, s->n_operands, &s->operand_room,
                                        s->n_operands + 1, sizeof *s->operand);
    if (!grown) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return NULL;
    }
    s->operand = grown;
    for (size_t i = 0; i < s->n_operands; i++)
        want.ordinal += s->operand[i].linear == want.linear && s->operand[i].kind == want.kind &&
                        f8_granularity_equal(s->operand[i].grain, want.grain);
    q = &s->operand[s->n_operands++];
    *q = want;
    quantize_operand(s, g, q);
    return q;
}

/* ---- the decision trail ---- */

/* Sizes of a MATMUL. */
static void sizes_of(const f8_graph *g, f8_ref r, int64_t *m, int64_t *n, int64_t *k)
{
    const bool ta = f8_attr_i(g, r, F8_A_TRANSPOSE_A), tb = f8_attr_i(g, r, F8_A_TRANSPOSE_B);
    const f8_type *a = f8_type_of(g, f8_at(g, r)->in[0]), *b = f8_type_of(g, f8_at(g, r)->in[1]);
    *m = ta ? f8_type_columns(a) : f8_type_rows(a);
    *k = ta ? f8_type_rows(a) : f8_type_columns(a);
    *n = tb ? f8_type_rows(b) : f8_type_columns(b);
}

/* Whether the target has an FP8 GEMM of these sizes; nothing falls back to another recipe by itself. */
static bool has_sizes(f8_scaler *s, const f8_product *p)
{
    const f8_target *t = f8_unit_target(s->u);
    if (p->m % t->fp8_multiple == 0 && p->n % t->fp8_multiple == 0 && p->k % t->fp8_multiple == 0)
        return true;
    s->status = f8_fail(s->u->diag, F8_ERR_UNSUPPORTED, p->loc,
                        "'%s', %s: FP8 GEMMs of %s have m, n and k that are multiples of %d, but this one "
                        "has m = %lld, n = %lld, k = %lld; write recipe \"%s\" = bf16",
                        p->linear, f8_role_name[p->role], t->name, t->fp8_multiple, (long long)p->m,
                        (long long)p->n, (long long)p->k, p->linear);
    return false;
}

/* Why a target has no GEMM of operands scaled so; NULL where it has. */
static const char *refused(const f8_target *t, const f8_recipe *a)
{
    if (a->scaling == F8_SCALING_ROWWISE && !t->fp8_rows)
        return "scales of rows exist on sm_90a";
    if (a->scaling == F8_SCALING_BLOCK && !t->fp8_blocks)
        return "scales of 128-blocks exist on sm_90a";
    if (a->scaling == F8_SCALING_MX && !t->fp8_mx)
        return "scales of MX exist on sm_100a and sm_120a";
    return NULL;
}

static bool is_high(const f8_recipe *r)
{
    return r->scaling == F8_SCALING_NONE;
}

static bool is_per_tensor(const f8_recipe *r)
{
    return r->scaling == F8_SCALING_DELAYED || r->scaling == F8_SCALING_CURRENT ||
           r->scaling == F8_SCALING_UNIT;
}

/* Whether one GEMM can have both operands as the rules say; the failure says why not. */
static bool agree(f8_scaler *s, const f8_product *p)
{
    const f8_recipe *a = &p->choice[0].recipe, *b = &p->choice[1].recipe;
    const bool fake = a->fake || b->fake;
    char ta[F8_RECIPE_TEXT], tb[F8_RECIPE_TEXT];
    const char *why = NULL;
    if (a->scaling == F8_SCALING_AUTO || b->scaling == F8_SCALING_AUTO)
        why = "recipe auto needs a calibration that has observed a batch";
    else if ((is_high(a) && a->activation != p->dtype) || (is_high(b) && b->activation != p->dtype))
        why = "outside of FP8 a linear's GEMMs have the dtype of its fprop's x";
    else if (is_high(a) && is_high(b))
        return true;
    else if (fake && (!(a->fake || is_high(a)) || !(b->fake || is_high(b)) || p->dtype != F8_BF16))
        why = "beside a fake operand the other is fake too, or bf16";
    else if (!fake && is_high(a) != is_high(b))
        why = "a GEMM has both operands in FP8 or neither";
    else if (!fake && a->scaling != b->scaling && !(is_per_tensor(a) && is_per_tensor(b)))
        why = "a GEMM has operands of one kind of scaling";
    else if (!fake && a->pow2 != b->pow2 && !is_per_tensor(a))
        why = "a GEMM has powers of two for both operands or neither";
    else if (!fake)
        why = refused(f8_unit_target(s->u), a);
    if (!why)
        return fake || has_sizes(s, p);
    f8_operand_kind of[2];
    f8_role_operands(p->role, of);
    s->status = f8_fail(s->u->diag, F8_ERR_UNSUPPORTED, p->loc, "'%s', %s: %s is %s and %s is %s on %s: %s",
                        p->linear, f8_role_name[p->role], f8_operand_name[of[0]],
                        f8_recipe_print(a, ta, sizeof ta), f8_operand_name[of[1]],
                        f8_recipe_print(b, tb, sizeof tb), f8_unit_target(s->u)->name, why);
    return false;
}

/* One text for both operands, or each with its own. */
static const char *both(f8_arena *arena, const char *a, const char *b)
{
    const char *text = strcmp(a, b) ? f8_arena_printf(arena, "%s; %s", a, b) : f8_arena_strdup(arena, a);
    return text ? text : "";
}

static void decide(f8_scaler *s, const f8_graph *g, f8_ref old, const f8_product *p)
{
    f8_unit *u = s->u;
    const f8_node *n = f8_at(g, old);
    const f8_recipe *a = &p->choice[0].recipe, *b = &p->choice[1].recipe;
    char ta[F8_RECIPE_TEXT], tb[F8_RECIPE_TEXT];
    f8_operand_kind of[2];
    f8_role_operands(p->role, of);
    f8_decision d = {.linear = p->linear, .role = f8_role_name[p->role], .count = 1, .m = p->m, .n = p->n,
                     .k = p->k, .fp8 = !is_high(a) && !a->fake && !b->fake};
    u->fp8_gemms += d.fp8;
    for (size_t i = 0; i < u->n_decisions; i++) {
        f8_decision *e = &u->decision[i];
        if (e->linear == d.linear && e->role == d.role && e->m == d.m && e->n == d.n && e->k == d.k) {
            e->count++;
            return;
        }
    }
    d.a = f8_dtype_name(is_high(a) ? f8_type_of(g, n->in[0])->dtype : f8_recipe_format(a, of[0]));
    d.b = f8_dtype_name(is_high(b) ? f8_type_of(g, n->in[1])->dtype : f8_recipe_format(b, of[1]));
    d.scaling = both(u->arena, is_high(a) ? "none" : f8_recipe_print(a, ta, sizeof ta),
                     is_high(b) ? "none" : f8_recipe_print(b, tb, sizeof tb));
    d.reason = both(u->arena, p->choice[0].reason, p->choice[1].reason);
    bool known = false;
    for (size_t i = 0; i < u->n_decisions; i++)
        known |= u->decision[i].linear == d.linear;
    u->linears += !known;
    f8_decision *grown = f8_arena_grow(u->arena, u->decision, u->n_decisions, &u->decision_room,
                                       u->n_decisions + 1, sizeof *grown);
    if (!grown)
        return;
    u->decision = grown;
    u->decision[u->n_decisions++] = d;
}

/* ---- one matmul ---- */

/* Operands in FP8, and whether each is summed over its rows. */
static f8_ref scaled(f8_scaler *s, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in,
                     const f8_product *p, const f8_operand_kind kind[2])
{
    const bool k_is_rows[2] = {f8_attr_i(from, old, F8_A_TRANSPOSE_A) != 0,
                               f8_attr_i(from, old, F8_A_TRANSPOSE_B) == 0};
    const uint32_t n_in = f8_at(from, old)->n_in;
    f8_quantized q[2] = {0};
    f8_ref bf16[3] = {in[0], in[1], n_in > 2 ? in[2] : 0};
    bool fake = false;
    char grain[2][48];
    for (int i = 0; i < 2; i++) {
        const f8_recipe *recipe = &p->choice[kind[0] == p->of[0] ? i : 1 - i].recipe;
        if (is_high(recipe)) /* beside a fake one */
            continue;
        const f8_quantized *made = get_operand(
            s, to, (f8_quantized){.linear = p->linear, .recipe = *recipe, .kind = kind[i],
                                  .grain = f8_recipe_granularity(recipe, kind[i], k_is_rows[i]),
                                  .source = source_of(to, in[i])});
        if (!made)
            return 0;
        q[i] = *made; /* the next may move the array */
        fake |= recipe->fake;
        if (recipe->fake || q[i].dequantized)
            bf16[i] = q[i].dequantized;
    }
    const f8_attr attr[] = {
        F8_INT(F8_A_TRANSPOSE_A, k_is_rows[0]), F8_INT(F8_A_TRANSPOSE_B, !k_is_rows[1]),
        F8_STR(F8_A_NAME, p->linear), F8_STR(F8_A_ROLE, f8_role_name[p->role]),
        F8_INT(F8_A_TO, f8_attr_i(from, old, F8_A_TO)),
        F8_STR(F8_A_SCALE_A, f8_granularity_print(q[0].grain, grain[0], sizeof grain[0])),
        F8_STR(F8_A_SCALE_B, f8_granularity_print(q[1].grain, grain[1], sizeof grain[1])),
    };
    if (fake)
        return f8_make(to, F8_OP_MATMUL, bf16, (int)n_in, attr, 5);
    const f8_ref operands[] = {q[0].q, q[0].scale_inv, q[1].q, q[1].scale_inv, bf16[2]};
    return f8_make(to, F8_OP_SCALED_MATMUL, operands, (int)n_in + 2, attr, 7);
}

static f8_ref scale_matmul(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    f8_scaler *s = user;
    if (f8_at(from, old)->op != F8_OP_MATMUL || s->status != F8_OK)
        return 0;
    f8_product p = {.linear = f8_attr_s(from, old, F8_A_NAME), .loc = from->loc[old],
                    .role = f8_role_by_name(f8_attr_s(from, old, F8_A_ROLE)),
                    .dtype = f8_type_of(from, f8_at(from, old)->in[0])->dtype};
    if (p.role == F8_ROLES)
        return 0;
    f8_role_operands(p.role, p.of);
    sizes_of(from, old, &p.m, &p.n, &p.k);
    for (int i = 0; i < 2; i++)
        p.choice[i] = f8_recipe_for(s->u, p.linear, p.role, p.of[i]);
    if (p.role == F8_FPROP && !is_input(s, p.linear, source_of(to, in[0])))
        note_input(s, p.linear, source_of(to, in[0]));
    if (s->record)
        decide(s, from, old, &p);
    if (!agree(s, &p) || (is_high(&p.choice[0].recipe) && is_high(&p.choice[1].recipe)))
        return 0;
    /* wgrad has x on either side: the operand that fprop read. */
    const bool swapped = p.role == F8_WGRAD && !is_input(s, p.linear, source_of(to, in[0]));
    const f8_operand_kind kind[] = {p.of[swapped], p.of[!swapped]};
    return scaled(s, to, from, old, in, &p, kind);
}

/* ---- keep: operands read back by tests and tools ---- */

static f8_status keep_one(f8_scaler *s, f8_func *f, const f8_quantized *q, f8_ref r, const char *suffix)
{
    char *name = operand_name(&s->scratch, q, suffix);
    if (!name)
        return f8_arena_status(&s->scratch, s->u->diag);
    if (!f8_pattern_match(s->u->options.keep, name))
        return F8_OK;
    return f8_func_result(f, f8_intern(s->u->module, name), r, -1);
}

static f8_status keep(f8_scaler *s, f8_func *f)
{
    for (size_t i = 0; s->u->options.keep && i < s->n_operands; i++) {
        const f8_quantized *q = &s->operand[i];
        F8_TRY(keep_one(s, f, q, f8_cast(f->graph, q->source, F8_F32), ""));
        F8_TRY(keep_one(s, f, q, q->q, ".q"));
        F8_TRY(keep_one(s, f, q, q->scale_inv, ".scale_inv"));
    }
    return F8_OK;
}

/* ---- the pass ---- */

static f8_status rewrite(f8_scaler *s, f8_func *f)
{
    s->func = f;
    s->n_operands = s->n_inputs = 0;
    F8_TRY(f8_func_rewrite(f, scale_matmul, s));
    return s->status;
}

/* Find the slots by a dry rewrite of the function that has all of a linear's GEMMs. */
static f8_status find_slots(f8_scaler *s, f8_func *step)
{
    f8_func copy = *step;
    copy.in = F8_NEW_ARRAY(&s->scratch, f8_port, step->n_in);
    copy.out = F8_NEW_ARRAY(&s->scratch, f8_port, step->n_out);
    if (!copy.in || !copy.out)
        return f8_arena_status(&s->scratch, s->u->diag);
    memcpy(copy.in, step->in, step->n_in * sizeof *copy.in);
    memcpy(copy.out, step->out, step->n_out * sizeof *copy.out);
    s->scan = s->record = true;
    F8_TRY(rewrite(s, &copy));
    s->scan = s->record = false;
    return F8_OK;
}

static f8_status apply(f8_scaler *s, f8_func *f)
{
    if ((s->delayed.n && !f8_func_var(f, s->var_scale)) ||
        (s->weights.n && !f8_func_var(f, s->var_weights)))
        return s->u->diag->status;
    F8_TRY(rewrite(s, f));
    if (!strcmp(f->name, "micro_step"))
        F8_TRY(keep(s, f));
    return strcmp(f->name, "eval") ? f8_scale_observe(s, f) : F8_OK;
}

static f8_status scale_module(f8_scaler *s)
{
    f8_module *m = s->u->module;
    f8_func *step = f8_module_find_func(m, "micro_step");
    if (!step) /* inference: eval has every operand there is */
        step = f8_module_find_func(m, "eval");
    F8_TRY(find_slots(s, step));
    F8_TRY(f8_scale_declare(s));
    static const char *const with_linears[] = {"eval", "micro_step", "joint"};
    for (size_t i = 0; i < 3; i++) {
        f8_func *f = f8_module_find_func(m, with_linears[i]);
        if (f)
            F8_TRY(apply(s, f));
    }
    F8_TRY(f8_scale_functions(s));
    return m->diag->status;
}

f8_status f8_pass_scaling(f8_unit *u)
{
    f8_scaler s = {.u = u};
    f8_arena_init(&s.scratch, &u->arena->allocator);
    const f8_status status = scale_module(&s);
    f8_arena_end(&s.scratch);
    return status;
}
