/* The variables that scales are kept in, and the functions that renew them: see scaling.c's head.
 */
#include "passes/scale/scaler.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "passes/unit/formulas.h"

bool f8_scale_ahead(const f8_scaler *s)
{
    return isfinite(s->reach);
}

/* ---- declarations ---- */

static int32_t add_state(f8_scaler *s, const char *name, f8_type type, f8_init_kind init)
{
    return f8_module_var(s->u->module, &(f8_var){.name = f8_intern(s->u->module, name),
                                                 .type = type,
                                                 .kind = F8_VAR_STATE,
                                                 .init = init});
}

/* Whether one rule computes two slots' scales from their histories. */
static bool one_rule(const f8_slot *a, const f8_slot *b)
{
    return f8_recipe_format(&a->recipe, a->kind) == f8_recipe_format(&b->recipe, b->kind) &&
           a->recipe.history == b->recipe.history &&
           a->recipe.most_recent == b->recipe.most_recent && a->recipe.margin == b->recipe.margin &&
           a->recipe.pow2 == b->recipe.pow2;
}

/* A slot's kind: a run of slots has one. A frozen parameter keeps the amax that it has, and of a
 * trained one only a bound of the next is known. */
typedef enum kind { OF_STEP, TRAINED, FROZEN, KINDS } kind;

static kind kind_of(const f8_scaler *s, const f8_slot *slot)
{
    return slot->param < 0 ? OF_STEP : f8_unit_is_frozen(s->u, slot->param) ? FROZEN : TRAINED;
}

/* Slots are numbered rule by rule, so that one fp8_scale serves a run of them. Within a rule,
 * values of the step come before parameters, so that slots for which a function has no amax are
 * runs too. */
static int64_t number(const f8_scaler *s, f8_slots *t)
{
    int64_t next = 0;
    for (size_t i = 0; i < t->n; i++)
        t->slot[i].index = -1;
    for (int format = 0; format < 2; format++)
        for (size_t first = 0; first < t->n; first++) {
            const f8_slot *rule = &t->slot[first];
            if (rule->index >= 0 ||
                f8_recipe_format(&rule->recipe, rule->kind) != (format ? F8_E5M2 : F8_E4M3))
                continue;
            for (kind k = OF_STEP; k < KINDS; k++)
                for (size_t i = first; i < t->n; i++)
                    if (t->slot[i].index < 0 && one_rule(rule, &t->slot[i]) &&
                        kind_of(s, &t->slot[i]) == k)
                        t->slot[i].index = next++;
        }
    return next;
}

/* "fc.x", "head.x.1" for the second of its kind. */
static const char *element_name(f8_arena *a, const char *linear, f8_operand_kind kind, int ordinal)
{
    return ordinal ? f8_arena_printf(a, "%s.%s.%d", linear, f8_operand_name[kind], ordinal)
                   : f8_arena_printf(a, "%s.%s", linear, f8_operand_name[kind]);
}

/* Note what the elements of the variables stand for. Scales are carried from one program to another
 * by these names. */
static f8_status name_elements(f8_scaler *s, const f8_slots *t, const int32_t *var, size_t n)
{
    f8_unit *u = s->u;
    const char **name = F8_NEW_ARRAY(u->arena, const char *, t->n);
    f8_recipe *recipe = F8_NEW_ARRAY(u->arena, f8_recipe, t->n);
    bool *is_param = F8_NEW_ARRAY(u->arena, bool, t->n);
    f8_element_alias *alias = F8_NEW_ARRAY(u->arena, f8_element_alias, t->n_aliases);
    f8_elements *grown = f8_arena_grow(u->arena, u->elements, u->n_elements, &u->elements_room,
                                       u->n_elements + n, sizeof *grown);
    F8_TRY(f8_arena_status(u->arena, u->diag));
    u->elements = grown;
    for (size_t i = 0; i < t->n; i++) {
        const f8_slot *slot = &t->slot[i];
        name[slot->index] = element_name(u->arena, slot->linear, slot->kind, slot->ordinal);
        recipe[slot->index] = slot->recipe;
        is_param[slot->index] = slot->param >= 0 || slot->kind == F8_OPERAND_W;
    }
    for (size_t i = 0; i < t->n_aliases; i++) {
        const f8_slot_alias *from = &t->alias[i];
        const f8_slot *slot = &t->slot[from->slot];
        alias[i] = (f8_element_alias){
            slot->index, element_name(u->arena, from->linear, slot->kind, from->ordinal)};
    }
    for (size_t i = 0; i < n; i++)
        u->elements[u->n_elements++] = (f8_elements){
            var[i], (int64_t)t->n, name, recipe, is_param, alias, (int64_t)t->n_aliases};
    return f8_arena_status(u->arena, u->diag);
}

f8_status f8_scale_declare(f8_scaler *s)
{
    const int64_t n = number(s, &s->delayed), weights = number(s, &s->weights);
    if (n) {
        int64_t history = 1;
        for (size_t i = 0; i < s->delayed.n; i++)
            if (s->delayed.slot[i].recipe.history > history)
                history = s->delayed.slot[i].recipe.history;
        s->var_scale = add_state(s, "fp8.scale", (f8_type){F8_F32, 1, {n}}, F8_INIT_ONES);
        s->var_amax = add_state(s, "fp8.amax", (f8_type){F8_F32, 1, {n}}, F8_INIT_ZEROS);
        s->var_history =
            add_state(s, "fp8.amax_history", (f8_type){F8_F32, 2, {n, history}}, F8_INIT_ZEROS);
        F8_TRY(name_elements(s, &s->delayed, (int32_t[]){s->var_scale, s->var_amax, s->var_history},
                             3));
    }
    if (weights) {
        s->var_weights =
            add_state(s, "fp8.weight_amax", (f8_type){F8_F32, 1, {weights}}, F8_INIT_ZEROS);
        F8_TRY(name_elements(s, &s->weights, &s->var_weights, 1));
    }
    return s->u->diag->status;
}

f8_ref f8_scale_port(const f8_scaler *s, int32_t var)
{
    for (size_t i = s->func->n_in; i-- > 0;) /* these ports were added last */
        if (s->func->in[i].var == var)
            return s->func->in[i].ref;
    return 0;
}

/* ---- vectors over slots ---- */

/* [n] from per-slot scalars by index; 0 where there is none. */
static f8_ref slot_vector(f8_scaler *s, f8_graph *g, const f8_ref *by_index, size_t n)
{
    const f8_type one = {.dtype = F8_F32, .rank = 1, .dim = {1}};
    f8_ref *piece = F8_NEW_ARRAY(&s->scratch, f8_ref, n);
    if (!piece)
        return 0;
    size_t pieces = 0;
    for (size_t i = 0, end; i < n; i = end) {
        f8_type run = one;
        for (end = i + 1; end < n && !by_index[i] && !by_index[end];)
            end++;
        run.dim[0] = (int64_t)(end - i);
        piece[pieces++] =
            by_index[i] ? f8_reshape(g, by_index[i], &one) : f8_broadcast(g, f8_const(g, 0), &run);
    }
    return f8_concat(g, piece, pieces, 0);
}

f8_status f8_scale_observe(f8_scaler *s, f8_func *f)
{
    if (!s->delayed.n)
        return F8_OK;
    f8_graph *g = f->graph;
    f8_ref *amax = F8_NEW_ARRAY(&s->scratch, f8_ref, s->delayed.n);
    if (!amax)
        return f8_arena_status(&s->scratch, s->u->diag);
    for (size_t i = 0; i < s->n_operands; i++) {
        const f8_slot *slot = s->operand[i].slot >= 0 ? &s->delayed.slot[s->operand[i].slot] : NULL;
        if (slot && slot->param < 0) /* a parameter's is that of `update` */
            amax[slot->index] = s->operand[i].amax;
    }
    const f8_ref now = slot_vector(s, g, amax, s->delayed.n);
    const f8_ref before = f8_func_var(f, s->var_amax);
    return f8_func_result(f, "fp8.amax", f8_binary(g, F8_OP_MAX, before, now), s->var_amax);
}

/* The amax of each slot's parameter as function `f` leaves it (its result) or, where f does not
 * change it, finds it. 0 for slots that are no parameters. */
static f8_ref param_amax(f8_scaler *s, f8_func *f, const f8_slots *t)
{
    f8_ref *amax = F8_NEW_ARRAY(&s->scratch, f8_ref, t->n);
    f8_ref *left = F8_NEW_ARRAY(&s->scratch, f8_ref, s->u->module->n_vars); /* by variable */
    if (!amax || !left)
        return 0;
    for (size_t i = 0; i < f->n_out; i++)
        if (f->out[i].var >= 0)
            left[f->out[i].var] = f->out[i].ref;
    for (size_t i = 0; i < t->n; i++) {
        const f8_slot *slot = &t->slot[i];
        if (slot->param < 0)
            continue;
        f8_ref value = f8_func_var(f, slot->param);
        value = left[slot->param] ? left[slot->param] : value;
        amax[slot->index] = f8_make(f->graph, F8_OP_AMAX, &value, 1, NULL, 0);
    }
    return slot_vector(s, f->graph, amax, t->n);
}

/* ---- scales ---- */

/* From what scales are computed: amaxes, and the scales before. Rows, and elements of vectors, are
 * slots by their index. */
typedef struct amaxes {
    f8_ref history; /* [slots, columns], the newest first */
    f8_ref now;     /* [slots]: amaxes newer than the history. For a parameter it is the amax of the
                       value that it has */
    bool pushes;    /* `now` becomes the newest entry, and the oldest one leaves the history */
    f8_ref scale;   /* [slots]: the scales so far */
    f8_ref applied; /* bool []: else the scales stay as they are; 0: they never do */
    /* of `update` where it knows scales ahead, and then in place of `now` */
    f8_ref seen; /* [slots]: fp8.amax */
    f8_ref lr;   /* []: the learning rate */
} amaxes;

/* What is computed for slots [lo, hi). They have one rule and one kind; `rule` is any of them. */
typedef f8_ref (*of_run)(const f8_scaler *s, f8_graph *g, const f8_slot *rule, const amaxes *from,
                         int64_t lo, int64_t hi);

/* Roundings of m, v and the weight, with room to spare: bf16 rounds by 2^-9. */
static const double rounded_up = 1 + 0x1p-8;

/* The amaxes that histories get where `update` knows scales ahead: those seen, but of weights that
 * it changes what it can make of them at most. */
static f8_ref reached(const f8_scaler *s, f8_graph *g, const f8_slot *rule, const amaxes *from,
                      int64_t lo, int64_t hi)
{
    const f8_ref seen = f8_slice(g, from->seen, 0, lo, hi);
    if (kind_of(s, rule) != TRAINED)
        return seen;
    const f8_ref most = f8_binary(g, F8_OP_ADD, seen, f8_mul_const(g, from->lr, s->reach));
    return f8_mul_const(g, most, rounded_up);
}

/* The amaxes that weights have now, and of all else those seen. */
static f8_ref present(const f8_scaler *s, f8_graph *g, const f8_slot *rule, const amaxes *from,
                      int64_t lo, int64_t hi)
{
    (void)s;
    return f8_slice(g, rule->param < 0 ? from->seen : from->now, 0, lo, hi);
}

/* The largest amax of the last `count` in the histories, [slots]; 0: none is looked at. */
static f8_ref largest(f8_graph *g, f8_ref history, int64_t lo, int64_t hi, int64_t count)
{
    const f8_type vector = {.dtype = F8_F32, .rank = 1, .dim = {hi - lo}};
    const int64_t kept = f8_type_of(g, history)->dim[1];
    if (count == 0)
        return 0;
    const f8_ref run = f8_slice(g, history, 0, lo, hi);
    const f8_ref window = f8_slice(g, run, 1, 0, count < kept ? count : kept);
    return f8_reshape(g, f8_reduce(g, F8_OP_REDUCE_MAX, window, -1), &vector);
}

static f8_ref scales_of_run(const f8_scaler *s, f8_graph *g, const f8_slot *rule,
                            const amaxes *from, int64_t lo, int64_t hi)
{
    if (!from->history)
        return 0;
    const int64_t count = rule->recipe.most_recent ? 1 : rule->recipe.history;
    const f8_ref newest =
        from->lr ? reached(s, g, rule, from, lo, hi) : f8_slice(g, from->now, 0, lo, hi);
    const f8_ref before = largest(g, from->history, lo, hi, count - (from->pushes ? 1 : 0));
    const f8_ref amax = before ? f8_binary(g, F8_OP_MAX, before, newest) : newest;
    const f8_ref kept = f8_slice(g, from->scale, 0, lo, hi);
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, f8_recipe_format(&rule->recipe, rule->kind)),
                            F8_INT(F8_A_MARGIN, rule->recipe.margin),
                            F8_INT(F8_A_POW2, rule->recipe.pow2)};
    f8_ref scale = f8_make(g, F8_OP_FP8_SCALE, (f8_ref[]){amax, kept}, 2, attr, 3);
    /* No step reads this amax. So a parameter that is not finite must show here, and not saturate.
     * (Where scales are known ahead, fp8.amax has it, and steps read that.) */
    if (rule->param >= 0 && !f8_scale_ahead(s))
        scale = f8_binary(g, F8_OP_ADD, scale, f8_binary(g, F8_OP_SUB, newest, newest));
    return from->applied ? f8_select(g, from->applied, scale, kept) : scale;
}

/* [slots]. Neighbours of one rule are computed together: one node for each such run of slots,
 * rather than for each slot. */
static f8_ref by_runs(f8_scaler *s, f8_graph *g, of_run compute, const amaxes *from)
{
    const int64_t n = (int64_t)s->delayed.n;
    f8_ref *part = F8_NEW_ARRAY(&s->scratch, f8_ref, s->delayed.n);
    const f8_slot **slot = F8_NEW_ARRAY(&s->scratch, const f8_slot *, s->delayed.n); /* by index */
    size_t parts = 0;
    if (!part || !slot)
        return 0;
    for (int64_t i = 0; i < n; i++)
        slot[s->delayed.slot[i].index] = &s->delayed.slot[i];
    for (int64_t lo = 0, hi; lo < n; lo = hi) {
        const f8_slot *rule = slot[lo];
        for (hi = lo + 1; hi < n; hi++) {
            const f8_slot *next = slot[hi];
            if (!one_rule(rule, next) || kind_of(s, rule) != kind_of(s, next))
                break;
        }
        part[parts++] = compute(s, g, rule, from, lo, hi);
    }
    return f8_concat(g, part, parts, 0);
}

/* ---- update, update_scales, prepare ---- */

static f8_ref result_of(const f8_func *f, const char *name)
{
    for (size_t i = 0; i < f->n_out; i++)
        if (!strcmp(f->out[i].name, name))
            return f->out[i].ref;
    return 0;
}

/* bool []: whether the update was applied. `update` computes that itself; for update_scales, whose
 * caller owns the optimizer, it follows from the amaxes. */
static f8_ref was_applied(const f8_func *f, f8_ref amax)
{
    f8_graph *g = f->graph;
    const f8_type scalar = {.dtype = F8_F32};
    const f8_ref skipped = result_of(f, "skipped");
    if (skipped)
        return f8_binary(g, F8_OP_EQ, skipped, f8_const(g, 0));
    const f8_ref most = amax ? f8_reduce(g, F8_OP_REDUCE_MAX, amax, -1) : 0;
    return f8_unary(g, F8_OP_ISFINITE, f8_reshape(g, most, &scalar));
}

/* Push the histories once and compute the next scales. A skipped update (non-finite gradients)
 * keeps everything but forgets the amax of that step: an Inf in a history would freeze the scale
 * for as long as it stays there. */
static f8_status push_histories(f8_scaler *s, f8_func *f)
{
    f8_graph *g = f->graph;
    const f8_ref scale = f8_func_var(f, s->var_scale), seen = f8_func_var(f, s->var_amax);
    const f8_ref history = f8_func_var(f, s->var_history), weights = param_amax(s, f, &s->delayed);
    const bool ahead = f8_scale_ahead(s);
    amaxes from = {.history = history, .pushes = true, .scale = scale};
    if (ahead) {
        from.seen = seen;
        from.lr = result_of(f, "lr");
    } else {
        from.now = f8_binary(g, F8_OP_MAX, seen, weights);
    }
    const f8_ref amax = ahead ? by_runs(s, g, reached, &from) : from.now;
    from.applied = was_applied(f, amax);
    const f8_ref pushed = f8_make(g, F8_OP_HISTORY_PUSH, (f8_ref[]){history, amax}, 2, NULL, 0);
    const f8_ref zeros = f8_broadcast(g, f8_const(g, 0), &s->u->module->var[s->var_amax].type);
    F8_TRY(f8_func_result(f, "fp8.scale", by_runs(s, g, scales_of_run, &from), s->var_scale));
    F8_TRY(f8_func_result(f, "fp8.amax_history", f8_select(g, from.applied, pushed, history),
                          s->var_history));
    return f8_func_result(f, "fp8.amax", ahead ? weights : zeros, s->var_amax);
}

/* Renew scales in function `name`, which changes the parameters or runs after a change. */
static f8_status renew(f8_scaler *s, const char *name, bool make)
{
    f8_func *f =
        make ? f8_module_func(s->u->module, name) : f8_module_find_func(s->u->module, name);
    if (!f)
        return s->u->diag->status; /* no optimizer is declared: no update */
    if (s->delayed.n)
        F8_TRY(push_histories(s, f));
    if (!s->weights.n)
        return s->u->diag->status;
    return f8_func_result(f, "fp8.weight_amax", param_amax(s, f, &s->weights), s->var_weights);
}

/* All scales anew, from the histories and from the weights as they are: initial ones, or just
 * loaded. In a program that observes, also from the values that eval has seen. Between steps this
 * changes no bit: update pushed the amax of each weight into its history. */
static f8_status make_prepare(f8_scaler *s)
{
    f8_func *f = f8_module_func(s->u->module, "prepare");
    if (!f)
        return s->u->diag->status;
    if (s->delayed.n) {
        amaxes from = {.scale = f8_func_var(f, s->var_scale)};
        from.history = f8_func_var(f, s->var_history);
        from.now = param_amax(s, f, &s->delayed);
        if (s->u->options.observe)
            from.now = f8_binary(f->graph, F8_OP_MAX, from.now, f8_func_var(f, s->var_amax));
        F8_TRY(f8_func_result(f, "fp8.scale", by_runs(s, f->graph, scales_of_run, &from),
                              s->var_scale));
        if (f8_scale_ahead(s)) {
            from.seen = f8_func_var(f, s->var_amax);
            F8_TRY(
                f8_func_result(f, "fp8.amax", by_runs(s, f->graph, present, &from), s->var_amax));
        }
    }
    if (!s->weights.n)
        return s->u->diag->status;
    return f8_func_result(f, "fp8.weight_amax", param_amax(s, f, &s->weights), s->var_weights);
}

f8_status f8_scale_functions(f8_scaler *s)
{
    if (!s->delayed.n && !s->weights.n)
        return F8_OK;
    F8_TRY(renew(s, "update", false));
    if (f8_module_find_func(s->u->module, "joint"))
        F8_TRY(renew(s, "update_scales", true));
    return make_prepare(s);
}
