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
 * weight changes only in update, so its amax is taken there, of the new value: its scale is never
 * stale. `prepare` does that for the initial weights, or weights just loaded.
 *
 * Why not hang the histories on the layers and update them as a side effect of the forward: recompute
 * and accumulation would then update them twice or not at all (Transformer Engine #1190). */
#include "passes/pass.h"

#include <string.h>

typedef enum operand_kind { OPERAND_X, OPERAND_W, OPERAND_DY, OPERAND_KINDS } operand_kind;

static const char *const kind_name[OPERAND_KINDS] = {"x", "w", "dy"};

/* An operand with delayed scaling. Ordinal: which of the linear's operands of this kind (a chunked
 * head has one x and one dy per chunk). */
typedef struct slot {
    const char *linear;
    operand_kind kind;
    int ordinal;
    const f8_recipe *recipe;
    f8_dtype format;
    int64_t index; /* in the state vectors */
    int32_t param; /* OPERAND_W: the variable */
} slot;

/* A quantized operand of the function being rewritten. */
typedef struct quantized {
    const char *linear;
    operand_kind kind;
    int ordinal;
    f8_ref source, q, scale_inv, amax;
    int64_t slot; /* index into `slots`, or -1 */
} quantized;

typedef struct scaler {
    f8_unit *u;
    f8_arena scratch;
    slot *slots;
    size_t n_slots, slot_room;
    quantized *operand; /* of the current function */
    size_t n_operands, operand_room;
    f8_func *func;
    bool scan, record; /* scan: only find slots; record: write the decision trail */
    int32_t var_scale, var_amax, var_history;
    size_t scale_port; /* func's input port that carries fp8.scale */
    f8_status status;
} scaler;

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

static quantized *find_operand(scaler *s, const char *linear, operand_kind kind, f8_ref source)
{
    for (size_t i = 0; i < s->n_operands; i++) {
        quantized *q = &s->operand[i];
        if (q->linear == linear && q->kind == kind && q->source == source)
            return q;
    }
    return NULL;
}

static slot *find_slot(scaler *s, const char *linear, operand_kind kind, int ordinal)
{
    for (size_t i = 0; i < s->n_slots; i++) {
        slot *t = &s->slots[i];
        if (t->linear == linear && t->kind == kind && t->ordinal == ordinal)
            return t;
    }
    return NULL;
}

static slot *add_slot(scaler *s, const quantized *q, const f8_recipe *recipe, f8_dtype format)
{
    slot *grown = f8_arena_grow(&s->scratch, s->slots, s->n_slots, &s->slot_room, s->n_slots + 1,
                                sizeof *s->slots);
    if (!grown)
        return NULL;
    s->slots = grown;
    slot *t = &s->slots[s->n_slots++];
    *t = (slot){q->linear, q->kind, q->ordinal, recipe, format, 0, -1};
    return t;
}

static void name_operand(f8_graph *g, f8_arena *a, f8_ref r, const quantized *q, const char *suffix)
{
    char *name = q->ordinal ? f8_arena_printf(a, "%s.%s.%d%s", q->linear, kind_name[q->kind],
                                              q->ordinal, suffix)
                            : f8_arena_printf(a, "%s.%s%s", q->linear, kind_name[q->kind], suffix);
    if (name)
        f8_set_name(g, r, f8_intern(g->module, name));
}

/* amax -> scale -> quantize, as the recipe says. */
static void quantize_operand(scaler *s, f8_graph *g, quantized *q, const f8_recipe *recipe, f8_dtype format)
{
    const f8_ref x = f8_cast(g, q->source, F8_F32);
    f8_ref scale;
    q->slot = -1;
    if (recipe->scaling == F8_SCALING_DELAYED) {
        slot *t = find_slot(s, q->linear, q->kind, q->ordinal);
        if (!t)
            t = s->scan ? add_slot(s, q, recipe, format) : NULL;
        if (!t) {
            s->status = f8_fail(s->u->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                                "operand %s of '%s' has no scale slot", kind_name[q->kind], q->linear);
            return;
        }
        q->slot = t - s->slots;
        const f8_type scalar = {.dtype = F8_F32};
        scale = f8_const(g, 1);
        if (!s->scan)
            scale = f8_reshape(g, f8_slice(g, s->func->in[s->scale_port].ref, 0, t->index, t->index + 1),
                               &scalar);
        if (q->kind != OPERAND_W)
            q->amax = f8_make(g, F8_OP_AMAX, &x, 1, NULL, 0);
    } else if (recipe->scaling == F8_SCALING_CURRENT) {
        q->amax = f8_make(g, F8_OP_AMAX, &x, 1, NULL, 0);
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_MARGIN, recipe->margin)};
        scale = f8_make(g, F8_OP_FP8_SCALE, &q->amax, 1, attr, 2);
    } else {
        scale = f8_const(g, 1);
    }
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_SATURATE, recipe->saturate)};
    q->q = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 2);
    q->scale_inv = f8_binary(g, F8_OP_DIV, f8_const(g, 1), scale);
    name_operand(g, &s->scratch, q->q, q, ".q");
    name_operand(g, &s->scratch, scale, q, ".scale");
}

static quantized *get_operand(scaler *s, f8_graph *g, const char *linear, operand_kind kind, f8_ref r,
                              const f8_recipe *recipe)
{
    const f8_ref source = source_of(g, r);
    quantized *q = find_operand(s, linear, kind, source);
    if (q)
        return q;
    quantized *grown = f8_arena_grow(&s->scratch, s->operand, s->n_operands, &s->operand_room,
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
    *q = (quantized){.linear = linear, .kind = kind, .ordinal = ordinal, .source = source};
    quantize_operand(s, g, q, recipe, kind == OPERAND_DY ? recipe->gradient : recipe->forward);
    return q;
}

/* ---- the decision trail ---- */

static void decide(scaler *s, const f8_graph *g, f8_ref old, const f8_choice *choice)
{
    f8_unit *u = s->u;
    const f8_node *n = f8_at(g, old);
    const char *linear = f8_attr_s(g, old, F8_A_NAME), *role = f8_attr_s(g, old, F8_A_ROLE);
    const bool ta = f8_attr_i(g, old, F8_A_TRANSPOSE_A), tb = f8_attr_i(g, old, F8_A_TRANSPOSE_B);
    const f8_type *a = f8_type_of(g, n->in[0]), *b = f8_type_of(g, n->in[1]);
    const f8_recipe *r = choice->recipe;
    const bool fp8 = r->scaling != F8_SCALING_NONE;
    f8_decision d = {.linear = linear, .role = role, .reason = choice->reason, .count = 1, .fp8 = fp8};
    d.m = ta ? f8_type_columns(a) : f8_type_rows(a);
    d.k = ta ? f8_type_rows(a) : f8_type_columns(a);
    d.n = tb ? f8_type_rows(b) : f8_type_columns(b);
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
    scaler *s = user;
    const f8_node *n = f8_at(from, old);
    const char *role = f8_attr_s(from, old, F8_A_ROLE), *linear = f8_attr_s(from, old, F8_A_NAME);
    if (n->op != F8_OP_MATMUL || !*role || s->status != F8_OK)
        return 0;
    const f8_choice choice = f8_recipe_for(s->u, linear);
    if (s->record)
        decide(s, from, old, &choice);
    if (choice.recipe->scaling == F8_SCALING_NONE)
        return 0;
    operand_kind ka = OPERAND_X, kb = OPERAND_W;
    if (!strcmp(role, "dgrad")) {
        ka = OPERAND_DY;
    } else if (!strcmp(role, "wgrad")) {
        /* Which operand is x: the one fprop quantized. */
        const bool a_is_x = find_operand(s, linear, OPERAND_X, source_of(to, in[0]));
        ka = a_is_x ? OPERAND_X : OPERAND_DY;
        kb = a_is_x ? OPERAND_DY : OPERAND_X;
    }
    const quantized *p = get_operand(s, to, linear, ka, in[0], choice.recipe);
    if (!p)
        return 0;
    const quantized a = *p; /* the next get may move the array */
    p = get_operand(s, to, linear, kb, in[1], choice.recipe);
    if (!p)
        return 0;
    const quantized b = *p;
    const f8_ref operands[] = {a.q, a.scale_inv, b.q, b.scale_inv, n->n_in > 2 ? in[2] : 0};
    const f8_attr attr[] = {
        F8_INT(F8_A_TRANSPOSE_A, f8_attr_i(from, old, F8_A_TRANSPOSE_A)),
        F8_INT(F8_A_TRANSPOSE_B, f8_attr_i(from, old, F8_A_TRANSPOSE_B)),
        F8_STR(F8_A_NAME, linear), F8_STR(F8_A_ROLE, role),
    };
    return f8_make(to, F8_OP_SCALED_MATMUL, operands, n->n_in > 2 ? 5 : 4, attr, 4);
}

static f8_status rewrite(scaler *s, f8_func *f)
{
    s->func = f;
    s->n_operands = 0;
    F8_TRY(f8_func_rewrite(f, scale_matmul, s));
    return s->status;
}

/* ---- delayed scaling's state ---- */

static int32_t add_state(scaler *s, const char *name, f8_type type, f8_init_kind init)
{
    return f8_module_var(s->u->module, &(f8_var){.name = f8_intern(s->u->module, name), .type = type,
                                                 .kind = F8_VAR_STATE, .init = init});
}

/* The parameter a weight operand reads. */
static int32_t param_of(const f8_func *f, f8_ref r)
{
    while (r && f8_at(f->graph, r)->n_in > 0)
        r = f8_at(f->graph, r)->in[0];
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].ref == r)
            return f->in[i].var;
    return -1;
}

/* Number the slots format by format and declare the three vectors. */
static f8_status declare_state(scaler *s)
{
    int64_t next = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < s->n_slots; i++)
            if ((s->slots[i].format == F8_E4M3) == (pass == 0))
                s->slots[i].index = next++;
    const int64_t history = s->slots[0].recipe->history;
    s->var_scale = add_state(s, "fp8.scale", (f8_type){F8_F32, 1, {next}}, F8_INIT_ONES);
    s->var_amax = add_state(s, "fp8.amax", (f8_type){F8_F32, 1, {next}}, F8_INIT_ZEROS);
    s->var_history =
        add_state(s, "fp8.amax_history", (f8_type){F8_F32, 2, {next, history}}, F8_INIT_ZEROS);
    return s->var_history < 0 ? s->u->diag->status : F8_OK;
}

/* [N] from per-slot scalars; `missing` where there is none. */
static f8_ref slot_vector(scaler *s, f8_graph *g, const f8_ref *by_index, f8_ref missing)
{
    const f8_type one = {.dtype = F8_F32, .rank = 1, .dim = {1}};
    f8_ref *piece = F8_NEW_ARRAY(&s->scratch, f8_ref, s->n_slots);
    if (!piece)
        return 0;
    for (size_t i = 0; i < s->n_slots; i++)
        piece[i] = f8_reshape(g, by_index[i] ? by_index[i] : missing, &one);
    return f8_concat(g, piece, (int)s->n_slots, 0);
}

/* fp8.amax <- max(fp8.amax, amax of this micro-step). */
static f8_status observe(scaler *s, f8_func *f)
{
    f8_graph *g = f->graph;
    f8_ref *amax = F8_NEW_ARRAY(&s->scratch, f8_ref, s->n_slots);
    if (!amax)
        return f8_arena_status(&s->scratch, s->u->diag);
    for (size_t i = 0; i < s->n_operands; i++)
        if (s->operand[i].slot >= 0)
            amax[s->slots[s->operand[i].slot].index] = s->operand[i].amax;
    const f8_ref now = slot_vector(s, g, amax, f8_const(g, 0));
    const f8_ref before = f8_func_var(f, s->var_amax);
    return f8_func_result(f, "fp8.amax", f8_binary(g, F8_OP_MAX, before, now), s->var_amax);
}

/* amax of each weight as function `f` leaves it (its result) or, unchanged, finds it. */
static f8_ref weight_amax(scaler *s, f8_func *f)
{
    f8_ref *amax = F8_NEW_ARRAY(&s->scratch, f8_ref, s->n_slots);
    if (!amax)
        return 0;
    for (size_t i = 0; i < s->n_slots; i++) {
        const slot *t = &s->slots[i];
        if (t->kind != OPERAND_W)
            continue;
        f8_ref value = f8_func_var(f, t->param);
        for (size_t k = 0; k < f->n_out; k++)
            if (f->out[k].var == t->param)
                value = f->out[k].ref;
        amax[t->index] = f8_make(f->graph, F8_OP_AMAX, &value, 1, NULL, 0);
    }
    return slot_vector(s, f->graph, amax, f8_const(f->graph, 0));
}

/* Scales from the largest amax of each slot's history; a slot that has seen nothing keeps `previous`. */
static f8_ref scales(scaler *s, f8_graph *g, f8_ref amax, f8_ref previous)
{
    int64_t n_forward = 0;
    const f8_recipe *recipe = s->slots[0].recipe;
    f8_dtype format[2] = {F8_E4M3, F8_E5M2};
    for (size_t i = 0; i < s->n_slots; i++)
        n_forward += s->slots[i].format == F8_E4M3;
    const int64_t bound[3] = {0, n_forward, (int64_t)s->n_slots};
    f8_ref part[2];
    int n = 0;
    for (int i = 0; i < 2; i++) {
        if (bound[i] == bound[i + 1])
            continue;
        const f8_ref in[] = {f8_slice(g, amax, 0, bound[i], bound[i + 1]),
                             f8_slice(g, previous, 0, bound[i], bound[i + 1])};
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format[i]), F8_INT(F8_A_MARGIN, recipe->margin)};
        part[n++] = f8_make(g, F8_OP_FP8_SCALE, in, 2, attr, 2);
    }
    return n == 1 ? part[0] : f8_concat(g, part, 2, 0);
}

static f8_ref history_max(f8_graph *g, f8_ref history, int64_t n)
{
    const f8_type vector = {.dtype = F8_F32, .rank = 1, .dim = {n}};
    return f8_reshape(g, f8_reduce(g, F8_OP_REDUCE_MAX, history, -1), &vector);
}

/* update: histories pushed once, next scales; a skipped update (non-finite gradients) keeps all but
 * forgets the amax that came with them. */
static f8_status finish_update(scaler *s, f8_func *f)
{
    f8_graph *g = f->graph;
    const int64_t n = (int64_t)s->n_slots;
    const f8_ref scale = f8_func_var(f, s->var_scale), seen = f8_func_var(f, s->var_amax);
    const f8_ref history = f8_func_var(f, s->var_history);
    const f8_ref amax = f8_binary(g, F8_OP_MAX, seen, weight_amax(s, f));
    const f8_ref pushed = f8_make(g, F8_OP_HISTORY_PUSH, (f8_ref[]){history, amax}, 2, NULL, 0);
    const f8_ref next = scales(s, g, history_max(g, pushed, n), scale);
    f8_ref new_history = pushed, new_scale = next;
    for (size_t i = 0; i < f->n_out; i++)
        if (!strcmp(f->out[i].name, "skipped")) {
            const f8_ref applied = f8_binary(g, F8_OP_EQ, f->out[i].ref, f8_const(g, 0));
            new_history = f8_select(g, applied, pushed, history);
            new_scale = f8_select(g, applied, next, scale);
        }
    const f8_ref zero = f8_const(g, 0);
    F8_TRY(f8_func_result(f, "fp8.scale", new_scale, s->var_scale));
    F8_TRY(f8_func_result(f, "fp8.amax_history", new_history, s->var_history));
    return f8_func_result(f, "fp8.amax", f8_broadcast(g, zero, &s->u->module->var[s->var_amax].type),
                          s->var_amax);
}

/* prepare: the scales of weights that no update has seen yet. */
static f8_status make_prepare(scaler *s)
{
    f8_func *f = f8_module_func(s->u->module, "prepare");
    if (!f)
        return s->u->diag->status;
    f8_graph *g = f->graph;
    const f8_ref scale = f8_func_var(f, s->var_scale);
    return f8_func_result(f, "fp8.scale", scales(s, g, weight_amax(s, f), scale), s->var_scale);
}

/* ---- keep: operands read back by tests and tools ---- */

static f8_status keep_one(scaler *s, f8_func *f, const quantized *q, f8_ref r, const char *suffix)
{
    char *name = f8_arena_printf(&s->scratch, "%s.%s%s%s", q->linear, kind_name[q->kind],
                                 q->ordinal ? f8_arena_printf(&s->scratch, ".%d", q->ordinal) : "",
                                 suffix);
    if (!name)
        return f8_arena_status(&s->scratch, s->u->diag);
    if (!f8_pattern_match(s->u->options.keep, name))
        return F8_OK;
    return f8_func_result(f, f8_intern(s->u->module, name), r, -1);
}

static f8_status keep(scaler *s, f8_func *f)
{
    for (size_t i = 0; s->u->options.keep && i < s->n_operands; i++) {
        const quantized *q = &s->operand[i];
        F8_TRY(keep_one(s, f, q, f8_cast(f->graph, q->source, F8_F32), ""));
        F8_TRY(keep_one(s, f, q, q->q, ".q"));
        F8_TRY(keep_one(s, f, q, q->scale_inv, ".scale_inv"));
    }
    return F8_OK;
}

/* ---- the pass ---- */

/* Find the slots by a dry rewrite of the function that has all of a linear's GEMMs. */
static f8_status find_slots(scaler *s, f8_func *step)
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
    for (size_t i = 0; i < s->n_operands; i++)
        if (s->operand[i].kind == OPERAND_W && s->operand[i].slot >= 0) {
            const int32_t param = param_of(&copy, s->operand[i].source);
            if (param < 0)
                return f8_fail(s->u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                               "linear '%s': delayed scaling needs its weight to be a parameter",
                               s->operand[i].linear);
            s->slots[s->operand[i].slot].param = param;
        }
    return F8_OK;
}

static f8_status apply(scaler *s, f8_func *f, bool is_step)
{
    if (s->n_slots) {
        if (!f8_func_var(f, s->var_scale))
            return s->u->diag->status;
        for (size_t i = 0; i < f->n_in; i++)
            if (f->in[i].var == s->var_scale)
                s->scale_port = i;
    }
    F8_TRY(rewrite(s, f));
    if (is_step) {
        if (!strcmp(f->name, "micro_step"))
            F8_TRY(keep(s, f));
        if (s->n_slots)
            F8_TRY(observe(s, f));
    }
    return s->u->diag->status;
}

static f8_status scale_module(scaler *s)
{
    f8_module *m = s->u->module;
    f8_func *step = f8_module_find_func(m, "micro_step");
    if (!step) /* inference: eval has every operand there is */
        step = f8_module_find_func(m, "eval");
    F8_TRY(find_slots(s, step));
    if (s->n_slots)
        F8_TRY(declare_state(s));
    static const char *const with_linears[] = {"eval", "micro_step", "joint"};
    for (size_t i = 0; i < 3; i++) {
        f8_func *f = f8_module_find_func(m, with_linears[i]);
        if (f)
            F8_TRY(apply(s, f, i > 0));
    }
    f8_func *update = f8_module_find_func(m, "update");
    if (s->n_slots && update)
        F8_TRY(finish_update(s, update));
    if (s->n_slots && f8_module_find_func(m, "joint")) {
        f8_func *scales_only = f8_module_func(m, "update_scales");
        if (!scales_only)
            return m->diag->status;
        F8_TRY(finish_update(s, scales_only));
    }
    if (s->n_slots)
        F8_TRY(make_prepare(s));
    return m->diag->status;
}

f8_status f8_pass_scaling(f8_unit *u)
{
    scaler s = {.u = u};
    f8_arena_init(&s.scratch, &u->arena->allocator);
    f8_status status = scale_module(&s);
    f8_arena_end(&s.scratch);
    return status;
}
