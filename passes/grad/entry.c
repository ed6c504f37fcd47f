/* The entry points that autodiff makes of `forward`; see f8_pass_autodiff below for the list. eval
 * and micro_step are copies of the forward, the latter with its gradients. */
#include "passes/grad/autodiff.h"
#include "ir/place.h"
#include "passes/unit/copy.h"
#include "passes/unit/formulas.h"

/* ---- states of training ---- */

static int32_t add_state(f8_unit *u, const char *prefix, const char *name, const f8_type *type,
                         f8_dtype dtype)
{
    const char *full = f8_arena_printf(u->arena, "%s%s", prefix, name);
    f8_var v = {.name = full, .type = *type, .kind = F8_VAR_STATE, .init = F8_INIT_ZEROS};
    if (!full) {
        f8_arena_status(u->arena, u->diag);
        return -1;
    }
    v.type.dtype = dtype;
    return f8_module_var(u->module, &v);
}

/* Whether the module gets micro_step and update. */
static bool makes_step(const f8_unit *u)
{
    return !u->options.pair || u->options.train_step;
}

/* Whether it gets `update`, which begins the count of micro-steps anew. */
static bool updates(const f8_unit *u)
{
    return makes_step(u) && u->module->optimizer.declared && !u->options.calibrate;
}

static f8_status check_dtype(const f8_unit *u, const f8_var *v)
{
    const f8_dtype dtype = v->type.dtype;
    if (dtype != F8_F32 && dtype != F8_BF16)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, v->loc,
                       "parameter '%s' is %s; only f32 and bf16 can be trained", v->name,
                       f8_dtype_name(dtype));
    if (dtype != F8_F32 && f8_unit_ranks(u) > 1)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, v->loc,
                       "parameter '%s' is %s; several ranks train only f32", v->name,
                       f8_dtype_name(dtype));
    return F8_OK;
}

static f8_status make_states(f8_unit *u, f8_training *t)
{
    f8_module *m = u->module;
    size_t declared = m->n_vars;
    const f8_type scalar = {.dtype = F8_F32};
    const bool step = makes_step(u), optimizer = step && m->optimizer.declared;
    int32_t *index = F8_NEW_ARRAY(u->arena, int32_t, 4 * declared);
    bool *keeps = F8_NEW_ARRAY(u->arena, bool, declared + 1);
    if (!index || !keeps)
        return f8_arena_status(u->arena, u->diag);
    *t = (f8_training){.keeps = keeps,
                       .param = index,
                       .grad = index + declared,
                       .m = index + 2 * declared,
                       .v = index + 3 * declared};
    for (size_t i = 0; i < declared; i++)
        if (m->var[i].kind == F8_VAR_PARAM && !f8_unit_is_frozen(u, (int32_t)i))
            t->param[t->n++] = (int32_t)i;
    for (size_t i = 0; i < t->n; i++) {
        f8_var v = m->var[t->param[i]];
        F8_TRY(check_dtype(u, &v));
        if (step || u->options.add_gradients)
            t->grad[i] = add_state(u, "grad.", v.name, &v.type, v.type.dtype);
        if (optimizer && !u->options.calibrate) {
            t->m[i] = add_state(u, "opt.m.", v.name, &v.type, F8_F32);
            t->v[i] = add_state(u, "opt.v.", v.name, &v.type, F8_F32);
        }
    }
    if (step)
        t->micro_steps = add_state(u, "", F8_COUNT_NAME, &scalar, F8_F32);
    if (optimizer)
        t->step = add_state(u, "opt.", "step", &scalar, F8_F32);
    return u->diag->status;
}

/* ---- eval and micro_step ---- */

/* A model that is evaluated drops nothing. What dropout rounded is rounded already. */
static f8_ref without_dropout(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                              const f8_ref *in)
{
    (void)user;
    const f8_node *n = f8_at(from, old);
    if (n->op == F8_OP_DROPOUT)
        return in[0];
    if (n->op == F8_OP_ATTENTION)
        return f8_without_seed(to, from, old, in);
    const bool after = n->op == F8_OP_CAST && f8_at(from, n->in[0])->op == F8_OP_DROPOUT;
    return after ? f8_fold_cast(to, in[0], n->type.dtype) : 0;
}

static f8_status build_eval(f8_unit *u, const f8_func *original)
{
    f8_ref *map;
    f8_func *f = f8_entry_func(u, original, "eval", &map);
    if (!f)
        return u->diag->status;
    for (size_t i = 0; i < original->n_out; i++)
        F8_TRY(f8_func_result(f, f8_result_name(original, i), map[original->out[i].ref], -1));
    return f8_func_rewrite(f, without_dropout, NULL);
}

/* Training that changes nothing is an error. A calibration only observes: it needs no gradient. */
static f8_status check_trains(f8_unit *u, f8_loc loss, const f8_training *t, const f8_gradient *d,
                              size_t n)
{
    size_t reached = 0;
    for (size_t i = 0; i < n; i++)
        reached += d[i].sum != 0;
    if (reached > 0 || u->options.calibrate)
        return F8_OK;
    if (t->n == 0 && u->options.frozen)
        return f8_fail(u->diag, F8_ERR_INPUT, loss,
                       "to train, the loss must depend on a parameter, but '%s' freezes all of "
                       "them",
                       u->options.frozen);
    if (t->n == 0)
        return f8_fail(u->diag, F8_ERR_INPUT, loss,
                       "to train, the loss must depend on a parameter, but module '%s' declares "
                       "none; only inference needs none",
                       u->module->name);
    if (t->n == 1)
        return f8_fail(u->diag, F8_ERR_INPUT, loss,
                       "to train, the loss must depend on a parameter, but no gradient reaches the "
                       "only one%s",
                       u->options.frozen ? " that is not frozen" : "");
    return f8_fail(u->diag, F8_ERR_INPUT, loss,
                   "to train, the loss must depend on a parameter, but no gradient reaches any of "
                   "the module's %zu parameters%s",
                   t->n, u->options.frozen ? " that are not frozen" : "");
}

/* By variable: the state that a parameter's gradient is added to. */
static int32_t *gradient_states(f8_unit *u, const f8_training *t)
{
    int32_t *state_of = F8_NEW_ARRAY(u->arena, int32_t, u->module->n_vars);
    for (size_t i = 0; state_of && i < t->n; i++)
        state_of[t->param[i]] = t->grad[i];
    return state_of;
}

static f8_status build_micro_step(f8_unit *u, const f8_func *original, const f8_training *t)
{
    f8_ref *map;
    f8_func *f = f8_entry_func(u, original, "micro_step", &map);
    if (!f)
        return u->diag->status;
    f8_graph *g = f->graph;
    f8_ref loss = map[original->out[0].ref];
    f8_gradient *d;
    size_t n;
    int32_t *state_of = gradient_states(u, t);
    bool *needs_zeros = F8_NEW_ARRAY(u->arena, bool, u->module->n_vars);
    if (!state_of || !needs_zeros)
        return f8_arena_status(u->arena, u->diag);
    F8_TRY(f8_func_result(f, "loss", loss, -1));
    /* Of several ranks each one's loss counts as a part of the mean. Where a gradient is summed
     * over them before it is added to the state, it may not be added while it is computed. */
    const int32_t ranks = f8_unit_ranks(u);
    const bool in_place = ranks == 1 || u->options.reduce_update;
    const f8_ref steps = f8_func_var(f, t->micro_steps),
                 adds = updates(u) ? f8_binary(g, F8_OP_LT, f8_const(g, 0), steps) : 0;
    const f8_vjp_request request = {.seed = &(f8_seed){loss, f8_const(g, 1.0 / ranks)},
                                    .n_seeds = 1,
                                    .state_of = in_place ? state_of : NULL,
                                    .adds = adds,
                                    .needs_zeros = needs_zeros};
    F8_TRY(f8_differentiate(u, f, &request, &d, &n));
    F8_TRY(check_trains(u, original->graph->loc[original->out[0].ref], t, d, n));
    for (size_t i = 0; i < n; i++)
        if (d[i].sum) {
            const int32_t state = state_of[d[i].param];
            const bool keeps = adds && !needs_zeros[d[i].param];
            const f8_ref sum = f8_next_gradient(f, state, d[i].sum, in_place, keeps ? adds : 0);
            t->keeps[d[i].param] = keeps;
            F8_TRY(f8_func_result(f, NULL, sum, state));
        }
    F8_TRY(f8_replace_states(u, f, original, map));
    return f8_func_result(f, NULL, f8_binary(g, F8_OP_ADD, steps, f8_const(g, 1)), t->micro_steps);
}

/* ---- the pass ---- */

/* Take `forward` out of the module. Its graph stays alive in the arena. */
static f8_status take_forward(f8_module *m, f8_func *out)
{
    f8_func *f = f8_module_find_func(m, "forward");
    if (!f)
        return f8_fail(m->diag, F8_ERR_INPUT, F8_NOWHERE, "the module has no function 'forward'");
    *out = *f;
    for (f8_func *end = m->func + --m->n_funcs; f < end; f++)
        *f = f[1];
    return F8_OK;
}

static f8_status build_pair(f8_unit *u, f8_func *original, const f8_training *t)
{
    int32_t *state_of = u->options.add_gradients ? gradient_states(u, t) : NULL;
    if (u->options.add_gradients && !state_of)
        return f8_arena_status(u->arena, u->diag);
    return f8_build_joint(u, original, state_of);
}

static f8_status build_step(f8_unit *u, const f8_func *original, const f8_training *t)
{
    F8_TRY(build_micro_step(u, original, t));
    if (!updates(u))
        return F8_OK;
    f8_func *update = f8_module_func(u->module, "update");
    return update ? f8_build_update(u, update, t) : u->diag->status;
}

static f8_status build_entries(f8_unit *u)
{
    f8_module *m = u->module;
    f8_func original;
    F8_TRY(take_forward(m, &original));
    F8_TRY(build_eval(u, &original));
    if (u->options.inference)
        return F8_OK;
    char type[160];
    if (makes_step(u) && (original.n_out < 1 || !f8_is_scalar_loss(&original.out[0].type)))
        return f8_fail(u->diag, F8_ERR_INPUT, original.n_out ? original.out[0].loc : F8_NOWHERE,
                       "to train, 'forward' must return the loss, f32[], as its first result%s%s",
                       original.n_out ? ", not " : "",
                       original.n_out ? f8_type_print(&original.out[0].type, type, sizeof type)
                                      : "");
    f8_training t;
    F8_TRY(make_states(u, &t));
    if (makes_step(u))
        F8_TRY(build_step(u, &original, &t));
    if (u->options.pair)
        F8_TRY(build_pair(u, &original, &t));
    return F8_OK;
}

/* What is differentiated needs no stop_gradient: left in place it would hide from the next passes
 * that two values are one. */
static f8_ref without_stops(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                            const f8_ref *in)
{
    (void)user, (void)to;
    return f8_at(from, old)->op == F8_OP_STOP_GRADIENT ? in[0] : 0;
}

/* The entry points:
 *
 *   eval        inputs as forward -> results; no state changes, no dropout
 *   micro_step  inputs as forward -> loss; grad.P += dP for every parameter P that is not frozen,
 *               opt.micro_steps += 1, and the states that forward replaces; its further results
 *               are eval's alone. Where there is an update, grad.P counts as zeros while
 *               opt.micro_steps is 0, whatever it holds, unless a scatter comes first
 *   update      (if an optimizer is declared, and not to calibrate) -> grad_norm, lr, skipped; see
 *               optimizer.c
 *   joint       (if options.pair) see pair.c
 *
 * Under options.pair micro_step and update exist only with options.train_step. Under
 * options.inference there is only eval. Where there is no micro_step, forward's results may be
 * anything. */
f8_status f8_pass_autodiff(f8_unit *u)
{
    F8_TRY(f8_unit_check_frozen(u));
    F8_TRY(build_entries(u));
    for (size_t i = 0; i < u->module->n_funcs; i++) /* drops what rules made without need, too */
        F8_TRY(f8_func_rewrite(&u->module->func[i], without_stops, NULL));
    return F8_OK;
}
