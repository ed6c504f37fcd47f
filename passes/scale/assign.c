/* Scaling, decisions: which recipe each operand of a GEMM has, whether the two agree with each
 * other and with the target, and the record of it for `explain`. See scaling.c's head. */
#include "passes/scale/scaler.h"

#include <stdio.h>
#include <string.h>

bool f8_scale_is_stored(const f8_scaler *s, const f8_graph *g, f8_ref w)
{
    const f8_ref values = f8_at(g, w)->op == F8_OP_CAST ? f8_at(g, w)->in[0] : w,
                 codes = f8_at(g, values)->op == F8_OP_DEQUANTIZE ? f8_at(g, values)->in[0] : 0;
    if (!codes || f8_at(g, codes)->op != F8_OP_INPUT)
        return false;
    const int32_t var = s->func->in[f8_attr_i(g, codes, F8_A_INDEX)].var;
    for (size_t i = 0; i < s->u->n_stored; i++)
        if (s->u->stored[i].var == var)
            return true;
    return false;
}

/* Whether scales of a weight under this recipe are those of both fprop and dgrad. */
static bool scales_alike(const f8_recipe *r)
{
    return f8_granularity_equal(f8_recipe_granularity(r, F8_OPERAND_W, true),
                                f8_recipe_granularity(r, F8_OPERAND_W, false));
}

/* Of a stored weight there are codes for fprop's sum alone, and no values to quantize anew along
 * dgrad's: to quantize what the codes stand for would round a second time. */
static void multiply_values(const f8_scaler *s, const f8_graph *g, f8_ref r, f8_product *p)
{
    const f8_recipe *recipe = &p->assignment[p->of[1] == F8_OPERAND_W].recipe;
    if (p->role != F8_DGRAD || f8_is_high(recipe) || scales_alike(recipe) ||
        !f8_scale_is_stored(s, g, f8_at(g, r)->in[1]))
        return;
    for (int i = 0; i < 2; i++)
        p->assignment[i] = (f8_assignment){
            *f8_recipe_by_name("bf16"), "w is stored with scales of fprop's: dgrad multiplies its "
                                        "dequantized values"};
}

bool f8_scale_product(const f8_scaler *s, const f8_graph *g, f8_ref r, f8_product *p)
{
    if (f8_at(g, r)->op != F8_OP_MATMUL)
        return false;
    const f8_type *a = f8_type_of(g, f8_at(g, r)->in[0]), *b = f8_type_of(g, f8_at(g, r)->in[1]);
    *p = (f8_product){.linear = f8_attr_s(g, r, F8_A_NAME),
                      .loc = g->loc[r],
                      .role = f8_role_by_name(f8_attr_s(g, r, F8_A_ROLE)),
                      .dtype = a->dtype,
                      .size = f8_type_gemm(a, f8_attr_i(g, r, F8_A_TRANSPOSE_A), b,
                                           f8_attr_i(g, r, F8_A_TRANSPOSE_B))};
    if (p->role == F8_ROLES)
        return false;
    f8_role_operands(p->role, p->of);
    for (int i = 0; i < 2; i++)
        p->assignment[i] = f8_recipe_for(s->u, p->linear, p->role, p->of[i]);
    multiply_values(s, g, r, p);
    return true;
}

/* Whether the target has an FP8 GEMM of these sizes. A linear never falls back to another recipe by
 * itself. */
static bool has_sizes(f8_scaler *s, const f8_product *p)
{
    const f8_target *t = f8_unit_target(s->u);
    const f8_gemm_sizes *size = &p->size;
    const char *names;
    if (f8_fp8_takes(t, p->role, size, &names))
        return true;
    s->status =
        f8_fail(s->u->diag, F8_ERR_UNSUPPORTED, p->loc,
                "'%s', %s: FP8 GEMMs of %s need multiples of %d for %s, but this one has m = %lld, "
                "n = %lld, k = %lld; write recipe \"%s\" = bf16",
                p->linear, f8_role_name[p->role], t->name, t->fp8_multiple, names,
                (long long)size->m, (long long)size->n, (long long)size->k, p->linear);
    return false;
}

/* Why a target has no GEMM of operands with this recipe, in `why`; NULL where it has one. */
static const char *refused(const f8_target *t, const f8_recipe *a, char *why, size_t size)
{
    const unsigned lacks = f8_recipe_lacks(a, t);
    char gpus[160];
    if (!lacks)
        return NULL;
    snprintf(why, size, "scales of %s exist on %s",
             lacks & F8_LACKS_ROWS     ? "rows"
             : lacks & F8_LACKS_BLOCKS ? "128-blocks"
                                       : "MX",
             f8_recipe_gpus(a, gpus, sizeof gpus));
    return why;
}

static bool is_per_tensor(const f8_recipe *r)
{
    return r->scaling == F8_SCALING_DELAYED || r->scaling == F8_SCALING_CURRENT ||
           r->scaling == F8_SCALING_UNIT;
}

/* Whether one GEMM can have both operands as the rules say. If not, the message says why. */
bool f8_scale_agree(f8_scaler *s, const f8_product *p)
{
    const f8_recipe *a = &p->assignment[0].recipe, *b = &p->assignment[1].recipe;
    const bool fake = a->fake || b->fake;
    char ta[F8_RECIPE_TEXT], tb[F8_RECIPE_TEXT], text[240];
    const char *why = NULL;
    if (a->scaling == F8_SCALING_AUTO || b->scaling == F8_SCALING_AUTO)
        why = s->u->options.n_chosen
                  ? "auto chooses for both operands of a GEMM, but a rule decides one of them"
                  : "recipe auto needs a calibration that has observed a batch";
    else if ((f8_is_high(a) && a->activation != p->dtype) ||
             (f8_is_high(b) && b->activation != p->dtype))
        why = "a GEMM that is not FP8 must have the dtype of the linear's x in fprop";
    else if (f8_is_high(a) && f8_is_high(b))
        return true;
    else if (fake &&
             (!(a->fake || f8_is_high(a)) || !(b->fake || f8_is_high(b)) || p->dtype != F8_BF16))
        why = "where one operand is fake, the other must be fake or bf16";
    else if (!fake && f8_is_high(a) != f8_is_high(b))
        why = "a GEMM must have both operands in FP8, or neither";
    else if (!fake && a->scaling != b->scaling && !(is_per_tensor(a) && is_per_tensor(b)))
        why = "both operands of a GEMM must have the same kind of scaling";
    else if (!fake && a->pow2 != b->pow2 && !is_per_tensor(a))
        why = "a GEMM must have scales that are powers of two for both operands, or for neither";
    else if (!fake)
        why = refused(f8_unit_target(s->u), a, text, sizeof text);
    if (!why)
        return fake || has_sizes(s, p);
    f8_operand_kind of[2];
    f8_role_operands(p->role, of);
    s->status = f8_fail(
        s->u->diag, F8_ERR_UNSUPPORTED, p->loc, "'%s', %s: %s is %s and %s is %s on %s: %s",
        p->linear, f8_role_name[p->role], f8_operand_name[of[0]], f8_recipe_print(a, ta, sizeof ta),
        f8_operand_name[of[1]], f8_recipe_print(b, tb, sizeof tb), f8_unit_target(s->u)->name, why);
    return false;
}

/* One text where both operands have the same, else both texts. */
static const char *both(f8_arena *arena, const char *a, const char *b)
{
    const char *text =
        strcmp(a, b) ? f8_arena_printf(arena, "%s; %s", a, b) : f8_arena_strdup(arena, a);
    return text ? text : "";
}

void f8_scale_decide(f8_scaler *s, const f8_graph *g, f8_ref old, const f8_product *p)
{
    f8_unit *u = s->u;
    const f8_node *n = f8_at(g, old);
    const f8_recipe *a = &p->assignment[0].recipe, *b = &p->assignment[1].recipe;
    char ta[F8_RECIPE_TEXT], tb[F8_RECIPE_TEXT];
    f8_operand_kind of[2];
    f8_role_operands(p->role, of);
    f8_decision d = {.linear = p->linear,
                     .role = f8_role_name[p->role],
                     .count = 1,
                     .m = p->size.m,
                     .n = p->size.n,
                     .k = p->size.k,
                     .fp8 = !f8_is_high(a) && !a->fake && !b->fake};
    u->fp8_gemms += d.fp8;
    const uint32_t first = f8_index_first(&s->decisions, f8_map_key(d.linear));
    for (uint32_t i = first; i != F8_INDEX_END; i = f8_index_next(&s->decisions, i)) {
        f8_decision *e = &u->decision[i];
        if (e->role == d.role && e->m == d.m && e->n == d.n && e->k == d.k) {
            e->count++;
            return;
        }
    }
    d.a =
        f8_dtype_name(f8_is_high(a) ? f8_type_of(g, n->in[0])->dtype : f8_recipe_format(a, of[0]));
    d.b =
        f8_dtype_name(f8_is_high(b) ? f8_type_of(g, n->in[1])->dtype : f8_recipe_format(b, of[1]));
    d.scaling = both(u->arena, f8_is_high(a) ? "none" : f8_recipe_print(a, ta, sizeof ta),
                     f8_is_high(b) ? "none" : f8_recipe_print(b, tb, sizeof tb));
    d.reason = both(u->arena, p->assignment[0].reason, p->assignment[1].reason);
    u->linears += first == F8_INDEX_END;
    f8_decision *grown = f8_arena_grow(u->arena, u->decision, u->n_decisions, &u->decision_room,
                                       u->n_decisions + 1, sizeof *grown);
    if (!grown || !f8_index_add(&s->decisions, f8_map_key(d.linear))) {
        s->status = f8_arena_status(grown ? &s->scratch : u->arena, u->diag);
        return;
    }
    u->decision = grown;
    u->decision[u->n_decisions++] = d;
}
