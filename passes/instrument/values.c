/* Instrument, what there is to watch: see values.h.
 *
 * The pass runs after scaling, and reads its nodes. An operand of a scaled_matmul is a QUANTIZE, of
 * the value that is watched. An operand of a matmul is that value rounded to bf16, or, under
 * `fake`, a QUANTIZE that was dequantized and rounded.
 *
 * Where ranks share a weight (ZeRO 3), an operand is a gather of such codes or rounded values. What
 * is watched then is the whole weight in f32, gathered for that alone: so figures and names are
 * those of every other stage. */
#include "passes/instrument/values.h"

#include "passes/scale/scaler.h"
#include "passes/shard/shard.h"
#include "passes/unit/formulas.h"
#include "passes/unit/rows.h"

typedef struct finder {
    f8_unit *u;
    f8_func *func;
    f8_arena *scratch;
    const f8_recipe *what_if;
    f8_gemm_values *out;
    f8_index by_linear; /* the values of `out`, by the linear's name, which is interned */
    f8_ref *rounded;    /* by ref: the bf16 value that a product is rounded to, or 0 */
} finder;

/* ---- the list ---- */

bool f8_same_gemm_value(const f8_gemm_value *a, const f8_gemm_value *b)
{
    return a->x == b->x && a->q == b->q && f8_granularity_equal(a->grain, b->grain) &&
           (!a->q || f8_recipe_equal(&a->recipe, &b->recipe));
}

/* How many values of that kind and granularity the linear has so far. *known: this one, if it has
 * it. */
static int count_alike(const finder *d, const f8_gemm_value *v, f8_gemm_value **known)
{
    int n = 0;
    *known = NULL;
    for (uint32_t i = f8_index_first(&d->by_linear, f8_map_key(v->linear)); i != F8_INDEX_END;
         i = f8_index_next(&d->by_linear, i)) {
        f8_gemm_value *o = &d->out->value[i];
        if (o->kind != v->kind || o->what_if != v->what_if)
            continue;
        if (f8_same_gemm_value(o, v))
            *known = o;
        n += f8_granularity_equal(o->grain, v->grain);
    }
    return n;
}

static f8_status add(finder *d, f8_gemm_value v)
{
    f8_gemm_values *l = d->out;
    f8_gemm_value *known;
    const int ordinal = count_alike(d, &v, &known);
    if (known) {
        known->roles |= v.roles;
        return F8_OK;
    }
    const char *name = f8_scale_value_name(d->scratch, v.linear, f8_watched_kind_name[v.kind],
                                           ordinal, v.grain, "");
    if (name && v.what_if)
        name = f8_arena_printf(d->scratch, "%s@%s", name, v.recipe.name);
    f8_gemm_value *grown =
        f8_arena_grow(d->scratch, l->value, l->n, &l->room, l->n + 1, sizeof *grown);
    if (!name || !grown || !f8_index_add(&d->by_linear, f8_map_key(v.linear)))
        return f8_arena_status(d->scratch, d->u->diag);
    v.name = f8_intern(d->u->module, name);
    l->value = grown;
    l->value[l->n++] = v;
    return f8_arena_status(d->func->graph->arena, d->u->diag);
}

/* ---- operands ---- */

/* The QUANTIZE whose codes an operand of a matmul stands for, under `fake`; 0 if there is none. */
static f8_ref fake_codes(const f8_graph *g, f8_ref r)
{
    if (f8_at(g, r)->op != F8_OP_CAST || f8_at(g, f8_at(g, r)->in[0])->op != F8_OP_DEQUANTIZE)
        return 0;
    return f8_at(g, f8_at(g, r)->in[0])->in[0];
}

/* The whole of a shard, gathered once however many read it. */
static f8_ref whole_of(const finder *d, f8_ref shard, const f8_type *like, const char *name)
{
    f8_graph *g = d->func->graph;
    f8_type type = *like;
    f8_ref whole = 0;
    type.dtype = f8_type_of(g, shard)->dtype;
    f8_gather(g, f8_unit_ranks(d->u), &shard, &type, 1, 0, name, &whole);
    return whole;
}

/* Where an operand's numbers come from. */
typedef struct operand_source {
    f8_ref read;      /* the operand's codes, or, where it has none, the operand */
    bool is_codes;    /* `read` are codes */
    f8_ref shard;     /* ZeRO 3: the shard of which `read` is the gather; 0: it is no gather */
    f8_ref made;      /* the node that computes the numbers: below a gather, or `read` itself */
    f8_ref scale_inv; /* of the codes; 0: they have none */
} operand_source;

static operand_source source_of(const f8_graph *g, f8_ref gemm, int which)
{
    const f8_gemm_operands of = f8_gemm_operands_of(f8_at(g, gemm));
    const f8_ref operand = which ? of.b : of.a, fake = fake_codes(g, operand);
    operand_source s = {.read = operand};
    if (f8_dtype_is_fp8(f8_type_of(g, operand)->dtype)) {
        s.is_codes = true;
        s.scale_inv = which ? of.b_scale : of.a_scale;
    } else if (fake) {
        s.is_codes = true;
        s.read = fake;
        s.scale_inv = f8_at(g, f8_at(g, operand)->in[0])->in[1]; /* of the DEQUANTIZE */
    }
    s.shard = f8_gathered_shard(g, s.read);
    s.made = s.shard ? s.shard : s.read;
    return s;
}

/* The operand as it is. */
static f8_gemm_value own_value(finder *d, f8_ref gemm, int which)
{
    f8_graph *g = d->func->graph;
    const operand_source from = source_of(g, gemm, which);
    const f8_type type = *f8_type_of(g, from.read);
    f8_gemm_value v = {0};
    if (from.is_codes && f8_at(g, from.made)->op == F8_OP_QUANTIZE) {
        v.q = from.read;
        v.x = f8_at(g, from.made)->in[0];
        v.scale = f8_at(g, from.made)->in[1];
        v.granularity = f8_attr_s(g, from.made, F8_A_GRANULARITY);
        v.scale_inv = from.scale_inv;
    } else {
        v.x = f8_scale_source(g, from.made);
    }
    if (!from.shard)
        return v;
    if (v.q)
        v.q = whole_of(d, from.shard, &type, g->name[from.made]);
    v.x = whole_of(d, v.x, &type, g->name[v.x]);
    return v;
}

/* The operand as the other recipe would quantize it. */
static f8_gemm_value what_if(finder *d, f8_gemm_value v, f8_operand_kind kind)
{
    f8_quantized q = {.linear = v.linear,
                      .recipe = *d->what_if,
                      .kind = kind,
                      .source = v.x,
                      .grain = f8_recipe_granularity(d->what_if, kind, v.k_is_rows)};
    v.scale = f8_scale_fresh(d->func->graph, &q);
    v.what_if = true;
    v.recipe = *d->what_if;
    v.grain = q.grain;
    v.q = q.q;
    v.scale_inv = q.scale_inv;
    v.granularity = f8_attr_s(d->func->graph, v.q, F8_A_GRANULARITY);
    return v;
}

static f8_status add_operand(finder *d, f8_ref gemm, int which, f8_role role, f8_operand_kind kind)
{
    const f8_graph *g = d->func->graph;
    const char *linear = f8_attr_s(g, gemm, F8_A_NAME);
    const f8_recipe recipe = f8_recipe_for(d->u, linear, role, kind).recipe;
    f8_gemm_value v = own_value(d, gemm, which);
    v.linear = linear;
    v.kind = (f8_watched_kind)kind;
    v.roles = 1u << role;
    v.k_is_rows =
        which ? !f8_attr_i(g, gemm, F8_A_TRANSPOSE_B) : f8_attr_i(g, gemm, F8_A_TRANSPOSE_A) != 0;
    if (v.q) {
        v.recipe = recipe;
        v.grain = f8_recipe_granularity(&recipe, kind, v.k_is_rows);
    }
    F8_TRY(add(d, v));
    return d->what_if ? add(d, what_if(d, v, kind)) : F8_OK;
}

/* ---- results ---- */

/* Note what products are rounded to: cast(product [+ bias], bf16), also behind reshapes. */
static f8_status find_roundings(finder *d)
{
    const f8_graph *g = d->func->graph;
    d->rounded = F8_NEW_ARRAY(d->scratch, f8_ref, g->n_nodes);
    if (!d->rounded)
        return f8_arena_status(d->scratch, d->u->diag);
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        if (n->op != F8_OP_CAST || n->type.dtype != F8_BF16)
            continue;
        const f8_ref product = f8_linear_parts_of(g, f8_below_reshapes(g, n->in[0])).product;
        if (product)
            d->rounded[product] = r;
    }
    return F8_OK;
}

static const f8_watched_kind result_kind[F8_ROLES] = {
    [F8_FPROP] = F8_WATCHED_Y, [F8_DGRAD] = F8_WATCHED_DX, [F8_WGRAD] = F8_WATCHED_DW};

/* ---- GEMMs ---- */

/* Whether the linear's w is stored [n, k]: k is not its rows where fprop, the linear's first GEMM,
 * reads it. */
static bool w_is_nk(const finder *d, const char *linear)
{
    for (uint32_t i = f8_index_first(&d->by_linear, f8_map_key(linear)); i != F8_INDEX_END;
         i = f8_index_next(&d->by_linear, i))
        if (d->out->value[i].kind == F8_WATCHED_W)
            return !d->out->value[i].k_is_rows;
    return false;
}

static f8_status add_gemm(finder *d, f8_ref r)
{
    f8_graph *g = d->func->graph;
    const f8_role role = f8_role_by_name(f8_attr_s(g, r, F8_A_ROLE));
    if (role == F8_ROLES)
        return F8_OK;
    const char *linear = f8_attr_s(g, r, F8_A_NAME);
    f8_operand_kind kind[2];
    f8_role_operands(role, kind);
    /* dw = dy' x, and not x' dy */
    const int swapped = role == F8_WGRAD && w_is_nk(d, linear);
    for (int i = 0; i < 2; i++)
        F8_TRY(add_operand(d, r, i, role, kind[i ^ swapped]));
    return add(d, (f8_gemm_value){.linear = linear,
                                  .kind = result_kind[role],
                                  .roles = 1u << role,
                                  .x = d->rounded[r] ? d->rounded[r] : r});
}

f8_status f8_find_gemm_values(f8_unit *u, f8_func *f, const f8_recipe *what_if, f8_arena *scratch,
                              f8_gemm_values *out)
{
    finder d = {.u = u,
                .func = f,
                .scratch = scratch,
                .what_if = what_if,
                .out = out,
                .by_linear = f8_index_in(scratch)};
    const f8_ref end = f->graph->n_nodes;
    *out = (f8_gemm_values){0};
    F8_TRY(find_roundings(&d));
    for (f8_ref r = 1; r < end; r++)
        if (f8_op_facts(f8_at(f->graph, r)->op)->cls == F8_GEMM)
            F8_TRY(add_gemm(&d, r));
    return f->graph->diag->status;
}
