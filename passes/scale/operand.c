/* Scaling, operands: from a value to its codes and scales, as the recipe says. See scaling.c's
 * head. */
#include "passes/scale/scaler.h"

#include <stdio.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "passes/unit/formulas.h"
#include "passes/unit/rows.h"

/* ---- which values ---- */

f8_ref f8_scale_source(f8_graph *g, f8_ref r)
{
    const f8_node n = *f8_at(g, r); /* the graph may grow below */
    if (n.op == F8_OP_CAST && n.type.dtype == F8_BF16 && f8_type_of(g, n.in[0])->dtype == F8_F32)
        return f8_linear_parts_of(g, f8_below_reshapes(g, n.in[0])).product ? r : n.in[0];
    if (n.op == F8_OP_SLICE || n.op == F8_OP_RESHAPE) {
        const f8_ref inner = f8_scale_source(g, n.in[0]);
        if (inner != n.in[0] && n.op == F8_OP_RESHAPE)
            return f8_reshape(g, inner, &n.type);
        if (inner != n.in[0])
            return f8_slice(g, inner, f8_attr_i(g, r, F8_A_AXIS), f8_attr_i(g, r, F8_A_START),
                            f8_attr_i(g, r, F8_A_STOP));
    }
    return r;
}

/* Linears of one recipe that read one value (q, k and v of attention) share its codes. Their amaxes
 * are equal, so slots of their own would hold equal scales, and equal codes would be made several
 * times. GEMMs of one linear share codes too where their scales cover the same of the operand. */
static f8_quantized *find_operand(f8_scaler *s, const f8_quantized *want)
{
    for (uint32_t i = f8_index_first(&s->by_source, want->source); i != F8_INDEX_END;
         i = f8_index_next(&s->by_source, i)) {
        f8_quantized *q = &s->operand[i];
        if ((q->linear == want->linear || want->kind != F8_OPERAND_DY) && q->kind == want->kind &&
            f8_granularity_equal(q->grain, want->grain) &&
            f8_recipe_equal(&q->recipe, &want->recipe))
            return q;
    }
    return NULL;
}

static bool is_shared_with(const f8_scaler *s, const f8_quantized *q, const char *linear)
{
    for (uint32_t i = f8_index_first(&s->sharers, f8_map_key(linear)); i != F8_INDEX_END;
         i = f8_index_next(&s->sharers, i))
        if (&s->operand[s->sharer[i].operand] == q)
            return true;
    return false;
}

static bool is_like(const f8_quantized *q, const f8_quantized *like)
{
    return q->kind == like->kind && f8_granularity_equal(q->grain, like->grain);
}

/* How many operands of that kind and granularity the linear has so far, its own and shared ones. */
static int count_operands(const f8_scaler *s, const f8_quantized *like, const char *linear)
{
    int n = 0;
    for (uint32_t i = f8_index_first(&s->by_linear, f8_map_key(linear)); i != F8_INDEX_END;
         i = f8_index_next(&s->by_linear, i))
        n += is_like(&s->operand[i], like);
    for (uint32_t i = f8_index_first(&s->sharers, f8_map_key(linear)); i != F8_INDEX_END;
         i = f8_index_next(&s->sharers, i))
        n += is_like(&s->operand[s->sharer[i].operand], like);
    return n;
}

/* ---- slots of scales kept as state ---- */

static f8_slot *find_slot(const f8_slots *t, const f8_quantized *q)
{
    for (uint32_t i = f8_index_first(&t->by_linear, f8_map_key(q->linear)); i != F8_INDEX_END;
         i = f8_index_next(&t->by_linear, i)) {
        f8_slot *slot = &t->slot[i];
        if (slot->kind == q->kind && slot->ordinal == q->ordinal)
            return slot;
    }
    return NULL;
}

/* While scanning: note the name that a shared operand has for another linear. Programs in which
 * that linear has an operand of its own find the slot under this name. */
static void add_alias(f8_scaler *s, const f8_quantized *q, const char *linear, int ordinal)
{
    f8_slots *t = q->recipe.scaling == F8_SCALING_DELAYED ? &s->delayed : &s->weights;
    const f8_slot *slot = find_slot(t, q);
    if (!slot)
        return;
    f8_slot_alias *grown = f8_arena_grow(&s->scratch, t->alias, t->n_aliases, &t->alias_room,
                                         t->n_aliases + 1, sizeof *grown);
    if (!grown) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return;
    }
    t->alias = grown;
    t->alias[t->n_aliases++] = (f8_slot_alias){(size_t)(slot - t->slot), linear, ordinal};
}

/* The parameter a value is, or -1. (A state that forward replaces changes in every step.) */
static int32_t param_of(const f8_scaler *s, const f8_graph *g, f8_ref r)
{
    if (f8_at(g, r)->op != F8_OP_INPUT)
        return -1;
    const f8_port *p = &s->func->in[f8_attr_i(g, r, F8_A_INDEX)];
    return p->var >= 0 && s->u->module->var[p->var].kind == F8_VAR_PARAM ? p->var : -1;
}

/* The operand's slot, added while scanning. */
static f8_slot *get_slot(f8_scaler *s, const f8_graph *g, f8_slots *t, const f8_quantized *q)
{
    f8_slot *slot = find_slot(t, q);
    if (slot)
        return slot;
    f8_slot *grown =
        s->scan ? f8_arena_grow(&s->scratch, t->slot, t->n, &t->room, t->n + 1, sizeof *grown)
                : NULL;
    if (!grown) {
        s->status =
            f8_fail(s->u->diag, F8_ERR_INTERNAL, F8_NOWHERE, "operand %s of '%s' has no scale slot",
                    f8_operand_name[q->kind], q->linear);
        return NULL;
    }
    if (!f8_index_add(&t->by_linear, f8_map_key(q->linear))) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return NULL;
    }
    t->slot = grown;
    slot = &t->slot[t->n++];
    *slot = (f8_slot){q->linear, q->kind, q->ordinal, q->recipe, 0, param_of(s, g, q->source)};
    return slot;
}

/* Element `index` of a vector variable, f32 []. While scanning, the variable does not exist yet,
 * and any value will do. So it will in a program that observes, which quantizes nothing. */
static f8_ref element_of(f8_scaler *s, f8_graph *g, int32_t var, int64_t index)
{
    const f8_type scalar = {.dtype = F8_F32};
    if (s->scan || s->u->options.observe)
        return f8_const(g, 1);
    return f8_reshape(g, f8_slice(g, f8_scale_port(s, var), 0, index, index + 1), &scalar);
}

char *f8_scale_value_name(f8_arena *a, const char *linear, const char *kind, int ordinal,
                          f8_granularity grain, const char *suffix)
{
    char number[16] = "", covers[48] = "";
    if (ordinal)
        snprintf(number, sizeof number, ".%d", ordinal);
    if (f8_granularity_has_blocks(grain))
        snprintf(covers, sizeof covers, ".%lldx%lld", (long long)grain.rows, (long long)grain.cols);
    else if (grain.rows || grain.cols)
        snprintf(covers, sizeof covers, ".%s", grain.rows ? "row" : "column");
    return f8_arena_printf(a, "%s.%s%s%s%s", linear, kind, number, covers, suffix);
}

static char *operand_name(f8_arena *a, const f8_quantized *q, const char *suffix)
{
    return f8_scale_value_name(a, q->linear, f8_operand_name[q->kind], q->ordinal, q->grain,
                               suffix);
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
    const f8_attr attr[] = {
        F8_STR(F8_A_GRANULARITY, f8_granularity_print(grain, text, sizeof text))};
    return f8_make(g, F8_OP_AMAX, &x, 1, attr, 1);
}

/* The scale that follows from q->amax. */
static f8_ref own_scale(f8_graph *g, const f8_quantized *q)
{
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, f8_recipe_format(&q->recipe, q->kind)),
                            F8_INT(F8_A_MARGIN, q->recipe.margin),
                            F8_INT(F8_A_POW2, q->recipe.pow2)};
    return f8_make(g, F8_OP_FP8_SCALE, &q->amax, 1, attr, 3);
}

/* The scale that is kept, or the operand's own while its history has no observation. All operands
 * of a function read one reduction of the histories. */
static f8_ref first_scale(f8_scaler *s, f8_graph *g, const f8_quantized *q, const f8_slot *slot,
                          f8_ref kept)
{
    const f8_type scalar = {.dtype = F8_BOOL};
    const f8_ref most = f8_reduce(g, F8_OP_REDUCE_MAX, f8_scale_port(s, s->var_history), -1);
    const f8_ref observed =
        f8_slice(g, f8_binary(g, F8_OP_LT, f8_const(g, 0), most), 0, slot->index, slot->index + 1);
    return f8_select(g, f8_reshape(g, observed, &scalar), kept, own_scale(g, q));
}

/* The scale of an operand, one for each block; sets q->amax where it is known in the step. 0 on
 * failure. */
static f8_ref scale_of(f8_scaler *s, f8_graph *g, f8_quantized *q, f8_ref x)
{
    const f8_recipe *recipe = &q->recipe;
    const int32_t param = param_of(s, g, q->source);
    const bool is_param = param >= 0;
    if (recipe->scaling == F8_SCALING_UNIT)
        return f8_const(g, 1);
    if (recipe->scaling == F8_SCALING_DELAYED) {
        const f8_slot *slot = get_slot(s, g, &s->delayed, q);
        if (!slot)
            return 0;
        q->slot = slot - s->delayed.slot;
        if (!is_param)
            q->amax = amax_of(g, x, q->grain);
        else if (f8_scale_ahead(s))
            q->amax = element_of(s, g, s->var_amax, slot->index);
        const f8_ref kept = element_of(s, g, s->var_scale, slot->index);
        return s->first && !is_param ? first_scale(s, g, q, slot, kept) : kept;
    }
    /* Without a slot the step has another value here, such as a dropout of the parameter, which
     * `eval` takes as it is. */
    const f8_slot *slot = NULL;
    if (is_param && recipe->scaling == F8_SCALING_CURRENT) {
        slot = s->scan ? get_slot(s, g, &s->weights, q) : find_slot(&s->weights, q);
        if (s->status != F8_OK)
            return 0;
    }
    q->amax = slot && slot->param == param ? element_of(s, g, s->var_weights, slot->index)
                                           : amax_of(g, x, q->grain);
    return own_scale(g, q);
}

/* The inverse scale as E8M0: amax / max of the format, rounded up to a power of two. (OCP MX 1.0
 * rounds down and clips; for rounding up see arXiv 2506.08027.) The division is a product with
 * 1/max in f32, as in Transformer Engine. The conversion does not saturate: an Inf must not become
 * the largest finite number, so its block becomes NaN. */
static f8_ref mx_scale_inv(f8_graph *g, f8_ref amax, f8_dtype format)
{
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, F8_E8M0), F8_INT(F8_A_SATURATE, 0)};
    const f8_ref over_max = f8_const(g, (double)(1.0f / f8_dtype_max(format)));
    return f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){amax, over_max}, 2, attr, 2);
}

/* A weight stored as codes (serve.c) under the same recipe: the codes and their scales are the
 * operand. */
static bool take_stored(f8_graph *g, f8_quantized *q)
{
    const f8_node *n = f8_at(g, q->source);
    f8_granularity grain = q->grain;
    if (n->op != F8_OP_DEQUANTIZE ||
        f8_type_of(g, n->in[0])->dtype != f8_recipe_format(&q->recipe, q->kind))
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

/* The scale of a block from its own amax; with MX, scale_inv too, from which the scale follows. */
static f8_ref fresh_scale(f8_graph *g, f8_quantized *q, f8_ref x)
{
    q->amax = amax_of(g, x, q->grain);
    if (q->recipe.scaling != F8_SCALING_MX)
        return own_scale(g, q);
    q->scale_inv = mx_scale_inv(g, q->amax, f8_recipe_format(&q->recipe, q->kind));
    q->amax = 0; /* the scale carries what is not finite */
    return f8_binary(g, F8_OP_DIV, f8_const(g, 1), f8_cast(g, q->scale_inv, F8_F32));
}

/* Codes of x, and the inverse scale unless it is known. */
static void encode(f8_graph *g, f8_quantized *q, f8_ref x, f8_ref scale)
{
    char text[48];
    const char *grain = f8_granularity_has_blocks(q->grain)
                            ? f8_granularity_print(q->grain, text, sizeof text)
                            : "broadcast";
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, f8_recipe_format(&q->recipe, q->kind)),
                            F8_INT(F8_A_SATURATE, q->recipe.saturate),
                            F8_STR(F8_A_GRANULARITY, grain)};
    if (!q->scale_inv)
        q->scale_inv = f8_binary(g, F8_OP_DIV, f8_const(g, 1), scale);
    /* Saturation would turn an Inf into the format's maximum, and the step would go on as if
     * nothing were wrong. Inf - Inf is NaN, and every product with the block becomes NaN too. Any
     * other amax adds 0. */
    if (q->amax)
        q->scale_inv =
            f8_binary(g, F8_OP_ADD, q->scale_inv, f8_binary(g, F8_OP_SUB, q->amax, q->amax));
    q->q = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 3);
    if (q->recipe.fake)
        q->dequantized =
            f8_cast(g, f8_make(g, F8_OP_DEQUANTIZE, (f8_ref[]){q->q, q->scale_inv}, 2, &attr[2], 1),
                    F8_BF16);
}

f8_ref f8_scale_fresh(f8_graph *g, f8_quantized *q)
{
    const f8_ref x = f8_cast(g, q->source, F8_F32), scale = fresh_scale(g, q, x);
    encode(g, q, x, scale);
    return scale;
}

/* While scanning: note a parameter whose codes depend on nothing that `update` does not know when
 * it writes the parameter. The pass `codes` keeps these. */
static void note_kept(f8_scaler *s, const f8_graph *g, const f8_quantized *q)
{
    f8_unit *u = s->u;
    const int32_t param = s->scan ? param_of(s, g, q->source) : -1;
    const bool known = (q->recipe.scaling == F8_SCALING_DELAYED && f8_scale_ahead(s)) ||
                       q->recipe.scaling == F8_SCALING_BLOCK;
    if (param < 0 || !known || q->recipe.fake)
        return;
    int32_t *grown =
        f8_arena_grow(u->arena, u->kept, u->n_kept, &u->kept_room, u->n_kept + 1, sizeof *grown);
    if (!grown) {
        s->status = f8_arena_status(u->arena, u->diag);
        return;
    }
    u->kept = grown;
    u->kept[u->n_kept++] = param;
}

/* amax -> scale -> quantize, as the recipe says. */
static void quantize_operand(f8_scaler *s, f8_graph *g, f8_quantized *q)
{
    q->slot = -1;
    note_kept(s, g, q);
    if (take_stored(g, q)) {
        if (q->recipe.fake)
            q->dequantized = f8_cast(g, q->source, F8_BF16);
        return;
    }
    const f8_ref x = f8_cast(g, q->source, F8_F32);
    const f8_ref scale =
        q->recipe.scaling == F8_SCALING_MX ? fresh_scale(g, q, x) : scale_of(s, g, q, x);
    encode(g, q, x, scale);
    name_node(g, &s->scratch, q->q, q, ".q");
    name_node(g, &s->scratch, scale, q, ".scale");
}

/* Note that a linear shares an operand. Returns the operand; NULL on failure. */
static const f8_quantized *share(f8_scaler *s, const f8_quantized *q, const char *linear,
                                 int ordinal)
{
    f8_sharer *grown = f8_arena_grow(&s->scratch, s->sharer, s->n_sharers, &s->sharer_room,
                                     s->n_sharers + 1, sizeof *grown);
    if (!grown || !f8_index_add(&s->sharers, f8_map_key(linear))) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return NULL;
    }
    s->sharer = grown;
    s->sharer[s->n_sharers++] = (f8_sharer){linear, (size_t)(q - s->operand)};
    if (s->scan)
        add_alias(s, q, linear, ordinal);
    return s->status == F8_OK ? q : NULL;
}

const f8_quantized *f8_scale_operand(f8_scaler *s, f8_graph *g, f8_quantized want)
{
    f8_quantized *q = find_operand(s, &want);
    if (q && (q->linear == want.linear || is_shared_with(s, q, want.linear)))
        return q;
    want.ordinal = count_operands(s, &want, want.linear);
    if (q)
        return share(s, q, want.linear, want.ordinal);
    f8_quantized *grown = f8_arena_grow(&s->scratch, s->operand, s->n_operands, &s->operand_room,
                                        s->n_operands + 1, sizeof *s->operand);
    if (!grown || !f8_index_add(&s->by_source, want.source) ||
        !f8_index_add(&s->by_linear, f8_map_key(want.linear))) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return NULL;
    }
    s->operand = grown;
    q = &s->operand[s->n_operands++];
    *q = want;
    quantize_operand(s, g, q);
    return q;
}
