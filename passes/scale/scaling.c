/* Scaling: the GEMMs of linears get FP8 operands.
 *
 * Requires linears as MATMULs with a name and a role, and the entry points. For each linear with an
 * FP8 recipe, its operands x, w and dy are quantized, and its matmuls become scaled_matmuls. x is
 * read by fprop and wgrad, w by fprop and dgrad, dy by dgrad and wgrad. With scales per tensor, or
 * of the same tiles, both GEMMs read the same codes. Scales along a sum belong to one GEMM, and so
 * do the codes.
 *
 * An operand is quantized from the value before its rounding to bf16, never from the rounded one
 * (f32 -> bf16 -> FP8 rounds twice). So the pass looks through the operand's cast.
 *
 * Scales kept between steps are plain values, as any state (ir/README.md). Each delayed operand
 * owns a slot in three state vectors, ordered by format so that one fp8_scale serves a run of
 * slots:
 *   fp8.scale [N]            what operands are quantized with
 *   fp8.amax [N]             the largest |x| that micro_step or backward saw since the last update,
 *                            and of parameters that `update` changes the largest |x| they have
 *   fp8.amax_history [N, H]  of past updates, newest first
 *
 * `update` (or `update_scales`, where a framework owns the optimizer and calls forward and
 * backward) pushes amax on the history, exactly once, and computes the next scales from its
 * maximum. A weight that is a bare parameter changes only in update, so its amax is taken there.
 * Its scale is known before: it follows from the amax before the update and from how far AdamW can
 * move an element (`reach`). So one kernel can write the weight and its codes (codes.c). Where
 * there is no such bound, as in a pair, the scale follows from the new amax. (A weight computed
 * from a parameter counts as a value of the step, like x.) `prepare` makes all scales anew from
 * what the histories have and from the weights as they are: initial ones, or just loaded. Current
 * scaling keeps its weights' amax in the same way, in fp8.weight_amax, instead of reading every
 * weight twice a step.
 *
 * micro_step and the pair get a second form, micro_step.first, forward.first and backward.first,
 * where delayed operands with an empty history are scaled by their own amax. The runtime runs
 * micro_step.first in place of micro_step while there is such an operand; the embedder calls the
 * pair's for its first steps.
 *
 * passes/scale/README.md, "Scales", says what scales are at the edges (zeros, denormals, Inf, NaN,
 * saturation).
 *
 * Why the histories do not hang on layers and change as a side effect of the forward: recomputation
 * and accumulation would then update them twice or not at all (Transformer Engine #1190). */
#include "passes/scale/scaling.h"

#include <math.h>
#include <string.h>

#include "passes/scale/scaler.h"
#include "passes/unit/copy.h"
#include "passes/unit/formulas.h"

/* ---- what fprop reads ---- */

static bool is_input(const f8_scaler *s, const char *linear, f8_ref source)
{
    for (uint32_t i = f8_index_first(&s->inputs, f8_map_key(linear)); i != F8_INDEX_END;
         i = f8_index_next(&s->inputs, i))
        if (s->input[i].source == source)
            return true;
    return false;
}

static void note_input(f8_scaler *s, const char *linear, f8_ref source)
{
    f8_linear_input *grown = f8_arena_grow(&s->scratch, s->input, s->n_inputs, &s->input_room,
                                           s->n_inputs + 1, sizeof *grown);
    if (!grown || !f8_index_add(&s->inputs, f8_map_key(linear))) {
        s->status = f8_arena_status(&s->scratch, s->u->diag);
        return;
    }
    s->input = grown;
    s->input[s->n_inputs++] = (f8_linear_input){linear, source};
}

/* ---- one matmul ---- */

/* For a program that observes: make the amaxes of the operands that the recipe delays. The GEMM
 * stays as it is. */
static void observe(f8_scaler *s, f8_graph *to, const f8_ref *in, const f8_product *p)
{
    for (int i = 0; i < 2; i++) /* an fprop's operands are x and w, in this order */
        if (p->assignment[i].recipe.scaling == F8_SCALING_DELAYED)
            f8_scale_operand(s, to,
                             (f8_quantized){.linear = p->linear,
                                            .recipe = p->assignment[i].recipe,
                                            .kind = p->of[i],
                                            .grain = f8_per_tensor,
                                            .source = f8_scale_source(to, in[i])});
}

/* Node `old` as a GEMM of FP8 operands. */
static f8_ref scaled(f8_scaler *s, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in,
                     const f8_product *p, const f8_operand_kind kind[2])
{
    const bool k_is_rows[2] = {f8_attr_i(from, old, F8_A_TRANSPOSE_A) != 0,
                               f8_attr_i(from, old, F8_A_TRANSPOSE_B) == 0};
    const uint32_t n_in = f8_at(from, old)->n_in;
    f8_quantized q[2] = {0};
    f8_ref bf16[4] = {in[0], in[1], n_in > 2 ? in[2] : 0, n_in > 3 ? in[3] : 0};
    bool fake = false;
    char grain[2][48];
    for (int i = 0; i < 2; i++) {
        const f8_recipe *recipe = &p->assignment[kind[0] == p->of[0] ? i : 1 - i].recipe;
        if (f8_is_high(recipe)) /* the other operand is a fake one */
            continue;
        const f8_quantized *made = f8_scale_operand(
            s, to,
            (f8_quantized){.linear = p->linear,
                           .recipe = *recipe,
                           .kind = kind[i],
                           .grain = f8_recipe_granularity(recipe, kind[i], k_is_rows[i]),
                           .source = f8_scale_source(to, in[i])});
        if (!made)
            return 0;
        q[i] = *made; /* the next call may move the array */
        fake |= recipe->fake;
        if (recipe->fake || q[i].dequantized)
            bf16[i] = q[i].dequantized;
    }
    const f8_attr attr[] = {
        F8_INT(F8_A_TRANSPOSE_A, k_is_rows[0]),
        F8_INT(F8_A_TRANSPOSE_B, !k_is_rows[1]),
        F8_STR(F8_A_NAME, p->linear),
        F8_STR(F8_A_ROLE, f8_role_name[p->role]),
        F8_INT(F8_A_TO, f8_attr_i(from, old, F8_A_TO)),
        F8_STR(F8_A_SCALE_A, f8_granularity_print(q[0].grain, grain[0], sizeof grain[0])),
        F8_STR(F8_A_SCALE_B, f8_granularity_print(q[1].grain, grain[1], sizeof grain[1])),
    };
    const uint64_t clone = f8_at(from, old)->clone;
    if (fake)
        return f8_make_clone(to, F8_OP_MATMUL, bf16, (int)n_in, attr, 5, clone);
    const f8_ref operands[] = {q[0].q, q[0].scale_inv, q[1].q, q[1].scale_inv, bf16[2], bf16[3]};
    return f8_make_clone(to, F8_OP_SCALED_MATMUL, operands, (int)n_in + 2, attr, 7, clone);
}

/* A dgrad that multiplies the values of a stored weight makes them anew, as a recomputed value is
 * made: right before it. So those of fprop need not stay in memory until then. 0: it is no such
 * dgrad. */
static f8_ref values_of_its_own(const f8_scaler *s, f8_graph *to, const f8_graph *from, f8_ref old,
                                const f8_ref *in, const f8_product *p)
{
    const f8_node *n = f8_at(from, old);
    if (p->role != F8_DGRAD || !f8_scale_is_stored(s, from, n->in[1]))
        return 0;
    const f8_ref values = f8_at(to, in[1])->op == F8_OP_CAST ? f8_at(to, in[1])->in[0] : in[1];
    const f8_node d = *f8_at(to, values); /* the graph grows below */
    const uint64_t clone = F8_CLONE_RECOMPUTED + 1;
    const f8_attr dtype = F8_INT(F8_A_TO, f8_type_of(from, n->in[1])->dtype);
    f8_ref again =
        f8_make_clone(to, d.op, d.in, (int)d.n_in, d.attr, f8_op_facts(d.op)->n_attrs, clone);
    if (values != in[1])
        again = f8_make_clone(to, F8_OP_CAST, &again, 1, &dtype, 1, clone);
    const f8_ref operands[] = {in[0], again, n->n_in > 2 ? in[2] : 0, n->n_in > 3 ? in[3] : 0};
    return f8_make_clone(to, n->op, operands, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

static f8_ref scale_matmul(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                           const f8_ref *in)
{
    f8_scaler *s = user;
    if (s->status != F8_OK)
        return 0;
    f8_product p;
    if (!f8_scale_product(s, from, old, &p))
        return 0;
    if (p.role == F8_FPROP && !is_input(s, p.linear, f8_scale_source(to, in[0])))
        note_input(s, p.linear, f8_scale_source(to, in[0]));
    if (s->record)
        f8_scale_decide(s, from, old, &p);
    if (!f8_scale_agree(s, &p))
        return 0;
    if (f8_is_high(&p.assignment[0].recipe) && f8_is_high(&p.assignment[1].recipe))
        return values_of_its_own(s, to, from, old, in, &p);
    if (s->u->options.observe) {
        observe(s, to, in, &p);
        return 0;
    }
    /* wgrad may have x on either side: the operand that fprop read is x */
    const bool swapped = p.role == F8_WGRAD && !is_input(s, p.linear, f8_scale_source(to, in[0]));
    const f8_operand_kind kind[] = {p.of[swapped], p.of[!swapped]};
    return scaled(s, to, from, old, in, &p, kind);
}

/* ---- the pass ---- */

static f8_status rewrite(f8_scaler *s, f8_func *f)
{
    s->func = f;
    s->n_operands = s->n_sharers = s->n_inputs = 0;
    f8_index_clear(&s->by_source);
    f8_index_clear(&s->by_linear);
    f8_index_clear(&s->sharers);
    f8_index_clear(&s->inputs);
    F8_TRY(f8_func_rewrite(f, scale_matmul, s));
    return s->status;
}

/* Find the slots by rewriting, without effect, the function that has all of a linear's GEMMs. */
static f8_status find_slots(f8_scaler *s, f8_func *step)
{
    f8_func copy = *step;
    copy.in = F8_NEW_ARRAY(&s->scratch, f8_port, step->n_in);
    copy.out = F8_NEW_ARRAY(&s->scratch, f8_port, step->n_out);
    if (!copy.in || !copy.out)
        return f8_arena_status(&s->scratch, s->u->diag);
    memcpy(copy.in, step->in, step->n_in * sizeof *copy.in);
    memcpy(copy.out, step->out, step->n_out * sizeof *copy.out);
    s->scan = true;
    s->record = !s->u->options.observe; /* such a program's GEMMs are not the recipe's */
    F8_TRY(rewrite(s, &copy));
    s->scan = s->record = false;
    return F8_OK;
}

static f8_status apply(f8_scaler *s, f8_func *f)
{
    const bool observes = s->u->options.observe;
    const bool amaxes = s->delayed.n && (observes || f8_scale_ahead(s));
    if ((s->delayed.n && !observes && !f8_func_var(f, s->var_scale)) ||
        (amaxes && !f8_func_var(f, s->var_amax)) ||
        (s->weights.n && !f8_func_var(f, s->var_weights)))
        return s->u->diag->status;
    /* behind the ports that the plain function has */
    if (s->first && (!f8_func_var(f, s->var_amax) || !f8_func_var(f, s->var_history)))
        return s->u->diag->status;
    F8_TRY(rewrite(s, f));
    return strcmp(f->name, "eval") || observes ? f8_scale_observe(s, f) : F8_OK;
}

/* Add joint.first and micro_step.first, which scale operands with an empty history by their own
 * amax. They are entry points of their own, so that plain steps keep their bits and read each
 * tensor as often as before. */
static f8_status add_first(f8_scaler *s)
{
    static const char *const of[][2] = {{"joint", "joint.first"},
                                        {"micro_step", "micro_step.first"}};
    for (size_t i = 0; s->delayed.n && i < sizeof of / sizeof *of; i++) {
        const f8_func *f = f8_module_find_func(s->u->module, of[i][0]);
        if (f)
            F8_TRY(f8_copy_func(s->u->module, f, of[i][1], &s->scratch));
    }
    return F8_OK;
}

static f8_status scale_module(f8_scaler *s)
{
    f8_module *m = s->u->module;
    const bool updates = f8_module_find_func(m, "update") && !s->u->options.pair;
    f8_func *step = f8_module_find_func(m, "micro_step");
    const f8_optimizer optimizer = f8_unit_optimizer(s->u);
    s->reach = updates ? f8_adamw_reach(&optimizer) : INFINITY;
    if (!step)
        step = f8_module_find_func(m, "joint");
    if (!step) /* for inference, eval has every operand */
        step = f8_module_find_func(m, "eval");
    F8_TRY(find_slots(s, step));
    F8_TRY(f8_scale_declare(s));
    F8_TRY(add_first(s));
    static const char *const with_linears[] = {"eval", "micro_step", "micro_step.first", "joint",
                                               "joint.first"};
    for (size_t i = 0; i < sizeof with_linears / sizeof *with_linears; i++) {
        f8_func *f = f8_module_find_func(m, with_linears[i]);
        s->first = f8_is_first_name(with_linears[i]);
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
    s.delayed.by_linear = s.weights.by_linear = f8_index_in(&s.scratch);
    s.by_source = s.by_linear = s.sharers = s.inputs = s.decisions = f8_index_in(&s.scratch);
    const f8_status status = scale_module(&s);
    f8_arena_end(&s.scratch);
    return status;
}
