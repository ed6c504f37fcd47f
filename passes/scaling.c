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

#include <string.h>

const char *const f8_operand_name[F8_OPERANDS] = {"x", "w", "dy"};

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
 * the same, so slots of their own would hold the same scales, and the same codes would be made again. */
static f8_quantized *find_operand(f8_scaler *s, const char *linear, f8_operand kind, f8_ref source,
                                  const f8_recipe *recipe)
{
    for (size_t i = 0; i < s->n_operands; i++) {
        f8_quantized *q = &s->operand[i];
        const bool shared = kind != F8_OPERAND_DY && q->recipe == recipe;
        if ((q->linear == linear || shared) && q->kind == kind && q->source == source)
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
static f8_slot *get_slot(f8_scaler *s, f8_slots *t, const f8_quantized *q, const f8_recipe *recipe,
                         f8_dtype format)
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
    *slot = (f8_slot){q->linear, q->kind, q->ordinal, recipe, format, 0, param_of(s->func, q->source)};
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

static void name_operand(f8_graph *g, f8_arena *a, f8_ref r, const f8_quantized *q, const char *suffix)
{
    char *name = q->ordinal ? f8_arena_printf(a, "%s.%s.%d%s", q->linear, f8_operand_name[q->kind],
                                              q->ordinal, suffix)
                            : f8_arena_printf(a, "%s.%s%s", q->linear, f8_operand_name[q->kind], suffix);
    if (name)
        f8_set_name(g, r, f8_intern(g->module, name));
}

/* The scale of an operand, f32 []; sets q->amax where it is known in the step. 0 on failure. */
static f8_ref scale_of(f8_scaler *s, f8_graph *g, f8_quantized *q, f8_ref x, const f8_recipe *recipe,
                       f8_dtype format)
{
    const bool is_param = param_of(s->func, q->source) >= 0;
    if (recipe->scaling == F8_SCALING_UNIT)
        return f8_const(g, 1);
    if (recipe->scaling == F8_SCALING_DELAYED) {
        const f8_slot *slot = get_slot(s, &s->delayed, q, recipe, format);
        if (!slot)
            return 0;
        q->slot = slot - s->delayed.slot;
        if (!is_param)
            q->amax = f8_make(g, F8_OP_AMAX, &x, 1, NULL, 0);
        return element_of(s, g, s->var_scale, slot->index);
    }
    f8_ref amax;
    if (is_param) {
        const f8_slot *slot = get_slot(s, &s->weights, q, recipe, format);
        if (!slot)
            return 0;
        amax = element_of(s, g, s->var_weights, slot->index);
    } else {
        amax = f8_make(g, F8_OP_AMAX, &x, 1, NULL, 0);
    }
    q->amax = amax;
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_MARGIN, recipe->margin)};
    return f8_make(g, F8_OP_FP8_SCALE, &amax, 1, attr, 2);
}

/* amax -> scale -> quantize, as the recipe says. */
static void quantize_operand(f8_scaler *s, f8_graph *g, f8_quantized *q, const f8_recipe *recipe,
                             f8_dtype format)
{
    const f8_ref x = f8_cast(g, q->source, F8_F32);
    q->slot = -1;
    const f8_ref scale = scale_of(s, g, q, x, recipe, format);
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_SATURATE, recipe->saturate)};
    q->q = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 2);
    q->scale_inv = f8_binary(g, F8_OP_DIV, f8_const(g, 1), scale);
    /* Saturation would make an Inf the format's maximum, and the step would go on as if nothing were
     * wrong. Inf - Inf is NaN, which every product then is; any other amax adds 0. */
    if (q->amax)
        q->scale_inv = f8_binary(g, F8_OP_ADD, q->scale_inv, f8_binary(g, F8_OP_SUB, q->amax, q->amax));
    name_operand(g, &s->scratch, q->q, q, ".q");
    name_operand(g, &s->scratch, scale, q, ".scale");
}

static f8_quantized *get_operand(f8_scaler *s, f8_graph *g, const char *linear, f8_operand kind, f8_ref r,
                              const f8_recipe *recipe)
{
    const f8_ref source = source_of(g, r);
    if (kind == F8_OPERAND_X && !is_input(s, linear, source))
        note_input(s, linear, source);
    f8_quantized *q = find_operand(s, linear, kind, source, recipe);
    if (q)
        return q;
    f8_quantized *grown = f8_arena_grow(&s->scratch, s->operand, s->n_operands, &s->operand_room,
                                     s->n_operands + 1, sizeof *s->operand);
    if (!grown) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return NULL;
    }
    s->operand = grown;
    int ordinal = 0;
    for (size_t i = 0; i < s->n_operands; i++)
        ordinal += s->operand[i].linear == linear && s->operand[i].kind == kind;
    q = &s->operand[s->n_operands++];
    *q = (f8_quantized){
        .linear = linear, .recipe = recipe, .kind = kind, .ordinal = ordinal, .source = source};
    quantize_operand(s, g, q, recipe, kind == F8_OPERAND_DY ? recipe->gradient : recipe->forward);
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
static bool has_gemm(f8_scaler *s, const f8_graph *g, f8_ref r)
{
    const f8_target *t = f8_unit_target(s->u);
    const char *linear = f8_attr_s(g, r, F8_A_NAME), *role = f8_attr_s(g, r, F8_A_ROLE);
    int64_t m, n, k;
    sizes_of(g, r, &m, &n, &k);
    if (m % t->fp8_multiple == 0 && n % t->fp8_multiple == 0 && k % t->fp8_multiple == 0)
        return true;
    s->status = f8_fail(s->u->diag, F8_ERR_UNSUPPORTED, g->loc[r],
                        "'%s', %s: FP8 GEMMs of %s have m, n and k that are multiples of %d, but this one "
                        "has m = %lld, n = %lld, k = %lld; write recipe \"%s\" = bf16",
                        linear, role, t->name, t->fp8_multiple, (long long)m, (long long)n, (long long)k,
                        linear);
    return false;
}

static void decide(f8_scaler *s, const f8_graph *g, f8_ref old, const f8_choice *choice)
{
    f8_unit *u = s->u;
    const f8_node *n = f8_at(g, old);
    const char *linear = f8_attr_s(g, old, F8_A_NAME), *role = f8_attr_s(g, old, F8_A_ROLE);
    const f8_type *a = f8_type_of(g, n->in[0]), *b = f8_type_of(g, n->in[1]);
    const f8_recipe *r = choice->recipe;
    const bool fp8 = r->scaling != F8_SCALING_NONE;
    f8_decision d = {.linear = linear, .role = role, .reason = choice->reason, .count = 1, .fp8 = fp8};
    sizes_of(g, old, &d.m, &d.n, &d.k);
    const bool dy_a = !strcmp(role, "dgrad");
    d.a = f8_dtype_name(!fp8 ? a->dtype : dy_a ? r->gradient : r->forward);
    d.b = f8_dtype_name(!fp8 ? b->dtype : !strcmp(role, "wgrad") ? r->gradient : r->forward);
    d.scaling = r->scaling == F8_SCALING_DELAYED   ? "delayed"
                : r->scaling == F8_SCALING_CURRENT ? "current"
                                                   : "none";
    u->fp8_gemms += fp8;
    for (size_t i = 0; i < u->n_decisions; i++) {
        f8_decision *e = &u->decision[i];
        if (e->linear == linear && e->role == role && e->m == d.m && e->n == d.n && e->k == d.k) {
            e->count++;
            return;
        }
    }
    bool known = false;
    for (size_t i = 0; i < u->n_decisions; i++)
        known |= u->decision[i].linear == linear;
    u->linears += !known;
    f8_decision *grown = f8_arena_grow(u->arena, u->decision, u->n_decisions, &u->decision_room,
                                       u->n_decisions + 1, sizeof *grown);
    if (!grown)
        return;
    u->decision = grown;
    u->decision[u->n_decisions++] = d;
}

/* ---- one matmul ---- */

static f8_ref scale_matmul(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    f8_scaler *s = user;
    const f8_node *n = f8_at(from, old);
    const char *role = f8_attr_s(from, old, F8_A_ROLE), *linear = f8_attr_s(from, old, F8_A_NAME);
    if (n->op != F8_OP_MATMUL || !*role || s->status != F8_OK)
        return 0;
    const f8_choice choice = f8_recipe_for(s->u, linear);
    if (s->record)
        decide(s, from, old, &choice);
    if (choice.recipe->scaling == F8_SCALING_NONE || !has_gemm(s, from, old))
        return 0;
    f8_operand ka = F8_OPERAND_X, kb = F8_OPERAND_W;
    if (!strcmp(role, "dgrad")) {
        ka = F8_OPERAND_DY;
    } else if (!strcmp(role, "wgrad")) {
        /* Which operand is x: the one fprop quantized. */
        const bool a_is_x = is_input(s, linear, source_of(to, in[0]));
        ka = a_is_x ? F8_OPERAND_X : F8_OPERAND_DY;
        kb = a_is_x ? F8_OPERAND_DY : F8_OPERAND_X;
    }
    const f8_quantized *p = get_operand(s, to, linear, ka, in[0], choice.recipe);
    if (!p)
        return 0;
    const f8_quantized a = *p; /* the next get may move the array */
    p = get_operand(s, to, linear, kb, in[1], choice.recipe);
    if (!p)
        return 0;
    const f8_quantized b = *p;
    const f8_ref operands[] = {a.q, a.scale_inv, b.q, b.scale_inv, n->n_in > 2 ? in[2] : 0};
    const f8_attr attr[] = {
        F8_INT(F8_A_TRANSPOSE_A, f8_attr_i(from, old, F8_A_TRANSPOSE_A)),
        F8_INT(F8_A_TRANSPOSE_B, f8_attr_i(from, old, F8_A_TRANSPOSE_B)),
        F8_STR(F8_A_NAME, linear), F8_STR(F8_A_ROLE, role),
        F8_INT(F8_A_TO, f8_attr_i(from, old, F8_A_TO)),
    };
    return f8_make(to, F8_OP_SCALED_MATMUL, operands, n->n_in > 2 ? 5 : 4, attr, 5);
}

/* ---- keep: operands read back by tests and tools ---- */

static f8_status keep_one(f8_scaler *s, f8_func *f, const f8_quantized *q, f8_ref r, const char *suffix)
{
    char *name = f8_arena_printf(&s->scratch, "%s.%s%s%s", q->linear, f8_operand_name[q->kind],
                                 q->ordinal ? f8_arena_printf(&s->scratch, ".%d", q->ordinal) : "",
                                 suffix);
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
