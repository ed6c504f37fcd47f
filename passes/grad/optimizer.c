/* `update`: clip, AdamW, schedule, as a graph over the module's states.
 *
 * For gradient sums G over n = opt.micro_steps micro-steps, and t = opt.step + 1:
 *   norm  = sqrt(sum of all G^2) / n                      coef = min(1, clip / (norm + 1e-6)) / n
 *   m' = beta1 m + (1 - beta1) g,  v' = beta2 v + (1 - beta2) g^2            with g = coef G
 *   P' = P (1 - lr wd) - lr / (1 - beta1^t) * m' / (sqrt(v') / sqrt(1 - beta2^t) + eps)
 * (Loshchilov & Hutter, arXiv 1711.05101, in PyTorch's form; weight decay for rank >= 2 only.)
 * If norm is not finite, which includes an update without a micro-step (0 / 0), a select keeps P,
 * m, v and opt.step as they were and "skipped" is 1. opt.micro_steps goes to zero either way, and
 * so does grad.P where micro_step adds to whatever it holds. Elsewhere grad.P keeps what it has
 * (f8_training.keeps), which counts as zeros while opt.micro_steps is 0: nothing is stored.
 *
 * G is read twice, scaled only where it is used: a scaled copy shared by norm and update would be
 * stored. New values are f's results of those variables; later passes find P' as the result port
 * whose var is P. */
#include "passes/grad/autodiff.h"

#include <string.h>

#include "passes/unit/collectives.h"
#include "passes/unit/formulas.h"

typedef struct update {
    f8_unit *u;
    f8_func *f;
    f8_graph *g;
    const f8_training *t;
    f8_optimizer o;                      /* the text's, with the options' overrides */
    f8_ref ok;                           /* the norm is finite */
    f8_ref coef, keep, step_size, root2; /* 1 - lr wd, lr / (1 - beta1^t), sqrt(1 - beta2^t) */
} update;

static f8_ref add(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_ADD, a, b);
}

static f8_ref sub(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_SUB, a, b);
}

static f8_ref mul(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_MUL, a, b);
}

static f8_ref divide(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_DIV, a, b);
}

/* ---- schedule ---- */

static f8_status check(const f8_unit *u, const f8_optimizer *o)
{
    bool known = !strcmp(o->schedule, "constant") || !strcmp(o->schedule, "linear") ||
                 !strcmp(o->schedule, "cosine");
    if (!known)
        return f8_fail(u->diag, F8_ERR_INPUT, o->loc,
                       "there is no schedule '%s'; there are constant, linear and cosine",
                       o->schedule);
    if (strcmp(o->schedule, "constant") && o->steps < 1)
        return f8_fail(u->diag, F8_ERR_INPUT, o->loc,
                       "schedule '%s' needs the number of steps: `steps` of the optimizer, or the "
                       "compile's option",
                       o->schedule);
    if (o->beta1 < 0 || o->beta1 >= 1 || o->beta2 < 0 || o->beta2 >= 1)
        return f8_fail(u->diag, F8_ERR_INPUT, o->loc, "beta1 and beta2 must lie in [0, 1)");
    return F8_OK;
}

/* lr * (t / warmup) up to t = warmup, then lr * (min_lr + (1 - min_lr) * shape(p)) with p from 0 to
 * 1 at `steps`. */
static f8_ref learning_rate(const update *s, f8_ref t)
{
    f8_graph *g = s->g;
    const f8_optimizer *o = &s->o;
    f8_ref one = f8_const(g, 1), factor = one;
    if (strcmp(o->schedule, "constant")) {
        int64_t length = o->steps > o->warmup ? o->steps - o->warmup : 1;
        f8_ref zero = f8_const(g, 0), past = sub(g, t, f8_const(g, (double)o->warmup));
        f8_ref p = divide(g, past, f8_const(g, (double)length));
        p = f8_binary(g, F8_OP_MAX, f8_binary(g, F8_OP_MIN, p, one), zero);
        f8_ref shape = sub(g, one, p);
        if (!strcmp(o->schedule, "cosine")) {
            f8_ref cosine = f8_unary(g, F8_OP_COS, f8_mul_const(g, p, 3.14159265358979323846));
            shape = f8_mul_const(g, add(g, one, cosine), 0.5);
        }
        shape = f8_mul_const(g, shape, 1 - o->min_lr);
        factor = add(g, f8_const(g, o->min_lr), shape);
    }
    if (o->warmup > 0) {
        f8_ref warmup = f8_const(g, (double)o->warmup);
        f8_ref warming = f8_binary(g, F8_OP_LT, t, warmup);
        factor = f8_select(g, warming, divide(g, t, warmup), factor);
    }
    return f8_mul_const(g, factor, o->lr);
}

/* 1 - beta^t */
static f8_ref bias_correction(f8_graph *g, double beta, f8_ref t)
{
    if (beta == 0)
        return f8_const(g, 1);
    f8_ref power = f8_unary(g, F8_OP_EXP, mul(g, t, f8_unary(g, F8_OP_LOG, f8_const(g, beta))));
    return sub(g, f8_const(g, 1), power);
}

/* ---- the gradients' norm ---- */

/* The sum of the squares of this rank's shard of x, [1]. A vector has a row for each element. */
static f8_ref shard_squares(f8_graph *g, f8_ref x, int64_t ranks)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x);
    const int64_t rows = t.rank ? t.dim[0] : 1, each = f8_shard_rows(rows, ranks);
    const f8_type one = {.dtype = F8_F32, .rank = 1, .dim = {1}},
                  matrix = {
                      .dtype = F8_F32, .rank = 2, .dim = {each, f8_type_elements(&t) / rows}};
    if (t.rank == 0)
        x = f8_reshape(g, x, &one);
    x = f8_make(g, F8_OP_ALL_SLICE, &x, 1, &F8_INT(F8_A_RANKS, ranks), 1);
    x = f8_reshape(g, x, &matrix);
    return f8_reshape(g, f8_sum_all(g, mul(g, x, x)), &one);
}

static f8_ref sum_of_squares(const update *s)
{
    f8_graph *g = s->g;
    if (s->t->n == 0)
        return f8_const(g, 0);
    const int64_t ranks = f8_unit_ranks(s->u);
    const f8_type one = {.dtype = F8_F32, .rank = 1, .dim = {1}}, scalar = {.dtype = F8_F32};
    f8_ref *part = F8_NEW_ARRAY(s->u->arena, f8_ref, s->t->n);
    if (!part) {
        f8_arena_status(s->u->arena, s->u->diag);
        return 0;
    }
    for (size_t i = 0; i < s->t->n; i++) {
        f8_ref grad = f8_cast(g, f8_func_var(s->f, s->t->grad[i]), F8_F32);
        part[i] = ranks == 1 ? f8_reshape(g, f8_sum_all(g, mul(g, grad, grad)), &one)
                             : shard_squares(g, grad, ranks);
    }
    const f8_ref sum = f8_sum_all(g, f8_concat(g, part, s->t->n, 0));
    if (ranks == 1)
        return sum;
    /* Each rank sums up its shards, and all add the ranks' sums in the same order. */
    f8_ref sums = f8_reshape(g, sum, &one);
    sums = f8_make(g, F8_OP_ALL_GATHER, &sums, 1, &F8_INT(F8_A_RANKS, ranks), 1);
    if (sums)
        f8_set_name(g, sums, "grad_norm");
    return f8_reshape(g, f8_join_rows(g, sums, false), &scalar);
}

/* ---- one parameter ---- */

static f8_status store(const update *s, int32_t var, f8_ref value, f8_ref old)
{
    value = f8_cast(s->g, value, s->u->module->var[var].type.dtype);
    if (old)
        value = f8_select(s->g, s->ok, value, old);
    return value ? f8_func_result(s->f, NULL, value, var) : s->u->diag->status;
}

/* Zeros that no other state shares: each state is set to zero in place, in the kernel that updates
 * what belongs to it. */
static f8_ref own_zeros(f8_graph *g, const f8_type *type, uint64_t clone)
{
    f8_ref zero = f8_cast(g, f8_const(g, 0), type->dtype);
    f8_ints shape = {.n = type->rank};
    for (int i = 0; i < type->rank; i++)
        shape.v[i] = type->dim[i];
    return f8_make_clone(g, F8_OP_BROADCAST, &zero, 1, &F8_INTS(F8_A_SHAPE, shape), 1, clone);
}

/* beta * old + (1 - beta) * seen */
static f8_ref decayed(f8_graph *g, f8_ref old, f8_ref seen, double beta)
{
    f8_ref kept = f8_mul_const(g, old, beta), added = f8_mul_const(g, seen, 1 - beta);
    return add(g, kept, added);
}

static f8_status update_param(const update *s, size_t i)
{
    f8_graph *g = s->g;
    const f8_optimizer *o = &s->o;
    const f8_training *t = s->t;
    f8_type type = s->u->module->var[t->param[i]].type;
    f8_ref p = f8_func_var(s->f, t->param[i]), m = f8_func_var(s->f, t->m[i]),
           v = f8_func_var(s->f, t->v[i]);
    const f8_ref old = p; /* what follows is f32; a bf16 parameter is rounded as it is stored */
    p = f8_cast(g, p, F8_F32);
    f8_ref grad = mul(g, f8_cast(g, f8_func_var(s->f, t->grad[i]), F8_F32), s->coef);
    f8_ref new_m = decayed(g, m, grad, o->beta1);
    f8_ref new_v = decayed(g, v, mul(g, grad, grad), o->beta2);
    f8_ref root = divide(g, f8_unary(g, F8_OP_SQRT, new_v), s->root2);
    root = add(g, root, f8_const(g, o->eps));
    f8_ref kept = type.rank >= 2 && o->weight_decay != 0 ? mul(g, p, s->keep) : p;
    f8_ref new_p = sub(g, kept, mul(g, s->step_size, divide(g, new_m, root)));
    F8_TRY(store(s, t->param[i], new_p, old));
    F8_TRY(store(s, t->m[i], new_m, m));
    F8_TRY(store(s, t->v[i], new_v, v));
    return t->keeps[t->param[i]] ? F8_OK
                                 : store(s, t->grad[i], own_zeros(g, &type, (uint32_t)i + 1), 0);
}

/* ---- the function ---- */

static f8_status scalars(update *s)
{
    f8_graph *g = s->g;
    const f8_optimizer *o = &s->o;
    f8_ref one = f8_const(g, 1), micro = f8_func_var(s->f, s->t->micro_steps);
    f8_ref step = f8_func_var(s->f, s->t->step), t = add(g, step, one);
    /* without a micro-step the gradients count as zeros */
    const f8_ref any = f8_binary(g, F8_OP_LT, f8_const(g, 0), micro),
                 squares = f8_select(g, any, sum_of_squares(s), f8_const(g, 0));
    f8_ref norm = divide(g, f8_unary(g, F8_OP_SQRT, squares), micro);
    s->ok = f8_unary(g, F8_OP_ISFINITE, norm);
    s->coef = divide(g, one, micro);
    if (o->clip > 0) {
        f8_ref bound = f8_const(g, o->clip), safe = add(g, norm, f8_const(g, 1e-6));
        f8_ref ratio = divide(g, bound, safe);
        s->coef = mul(g, f8_binary(g, F8_OP_MIN, one, ratio), s->coef);
    }
    f8_ref lr = learning_rate(s, t);
    s->keep = sub(g, one, f8_mul_const(g, lr, o->weight_decay));
    s->step_size = divide(g, lr, bias_correction(g, o->beta1, t));
    s->root2 = f8_unary(g, F8_OP_SQRT, bias_correction(g, o->beta2, t));
    F8_TRY(s->u->diag->status);
    F8_TRY(f8_func_result(s->f, "grad_norm", norm, -1));
    F8_TRY(f8_func_result(s->f, "lr", lr, -1));
    F8_TRY(f8_func_result(s->f, "skipped", f8_select(g, s->ok, f8_const(g, 0), one), -1));
    F8_TRY(store(s, s->t->step, t, step));
    return store(s, s->t->micro_steps, f8_const(g, 0), 0);
}

f8_status f8_build_update(f8_unit *u, f8_func *f, const f8_training *t)
{
    update s = {.u = u, .f = f, .g = f->graph, .t = t, .o = f8_unit_optimizer(u)};
    F8_TRY(check(u, &s.o));
    f->graph->at = s.o.loc;
    F8_TRY(scalars(&s));
    for (size_t i = 0; i < t->n; i++)
        F8_TRY(update_param(&s, i));
    f->graph->at = F8_NOWHERE;
    return u->diag->status;
}
