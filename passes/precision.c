/* Precision: decides the dtype of every value of `forward`, and makes linears named GEMMs.
 *
 * The text is f32 throughout, but for what it casts and for parameters declared as bf16: these are
 * bf16 in memory, and their readers widen them, which is exact. Under a recipe whose activations
 * are bf16, each op computes in f32 on operands cast up, and its result is rounded by a cast to
 * bf16. These stay f32:
 *
 * - scalars and row statistics (last axis 1), operand 0 of cross_entropy, and the function's
 *   results;
 * - what an explicit `cast` in the text asks for.
 *
 * A `boundary` rounds even these. Ops that only move elements stay in their operand's dtype (moving
 * is exact), and attention takes and gives bf16; its mask stays f32. `linear` becomes matmul {role
 * = "fprop", name}
 * (+ bias), with its operands rounded to the dtype of its recipe. Where these and the result are
 * bf16, so is the bias: y = bf16(acc + bf16(bias)), as the epilogue of a GEMM computes it. From
 * here on a linear is known by that name (recipe patterns, FP8 state, explain).
 *
 * A gelu or silu whose result is rounded gets `rounded = bf16`; a tanh or sigmoid becomes tanh_bf16
 * or sigmoid_bf16. Cheaper ops then compute them and their derivatives. Their errors are far below
 * bf16's. No later pass decides that.
 *
 * A constant whose value reaches bf16 is at most bf16's largest finite number in magnitude. Models
 * hide scores by adding or selecting f32's least number, which PyTorch's finfo(float32).min gives;
 * bf16's is 0.4% nearer to 0, so it would be rounded to -Inf, and the softmax of a row in which
 * everything is hidden would be NaN. Infinities in the text stay. The same is done to an input that
 * is added to what a softmax reads.
 *
 * This runs before autodiff, so that the rounding of gradients follows from the derivative of
 * `cast`. The other order would need a second set of rules for where gradients are rounded.
 *
 * Each dropout, also that of an attention, gets the number of its stream, in the order of the
 * forward.
 *
 * Requires: a function `forward`. Breaks: nothing; no `linear` is left. */
#include "ir/num/fp8.h"
#include "passes/unit/formulas.h"
#include "passes/pipeline.h"

#include <math.h>
#include <string.h>

typedef struct precision {
    f8_unit *u;
    f8_dtype dtype; /* of activations */
    const f8_func *f;
    bool *wide;    /* by old ref: stays f32 */
    bool *reaches; /* by old ref: it, or what is computed of it, is rounded to `dtype` */
    bool *scores;  /* by old ref: a sum that a softmax reads */
    int64_t anonymous;
    int64_t stream; /* the next one to try */
} precision;

/* ---- names of linears ---- */

/* `shared`, or shared.2, shared.3, ... where several linears share a weight: each has its own
 * operands, so its own scales. NULL when out of memory. */
static const char *unique_name(f8_unit *u, const char *shared)
{
    const char *chosen = shared;
    for (int k = 2; chosen && f8_unit_find_linear(u, chosen) != F8_INDEX_END; k++)
        chosen = f8_arena_printf(u->arena, "%s.%d", shared, k);
    return chosen;
}

static const char *linear_name(precision *p, f8_ref linear)
{
    char buf[1024];
    const char *name = f8_linear_name(p->f, linear, buf, sizeof buf);
    const bool anonymous = !name;
    const char *shared =
        name ? f8_arena_strdup(p->u->arena, name)
             : f8_arena_printf(p->u->arena, "linear.%lld", (long long)p->anonymous++);
    name = shared ? unique_name(p->u, shared) : NULL;
    /* the number in the name of an anonymous linear is no layer's */
    return name && f8_unit_name_linear(p->u, name, anonymous ? "linear" : shared) ? name : NULL;
}

/* ---- one node ---- */

/* Whether an f32 value of this type is rounded to the dtype of activations. */
static bool is_narrow(const precision *p, const f8_type *t, bool wide)
{
    const bool statistic = t->rank == 0 || t->dim[t->rank - 1] == 1;
    return !wide && !statistic && t->dtype == F8_F32 && p->dtype != F8_F32;
}

static f8_ref narrow(const precision *p, f8_graph *g, f8_ref y, bool wide)
{
    return y && is_narrow(p, f8_type_of(g, y), wide) ? f8_cast(g, y, p->dtype) : y;
}

static f8_ref lower_linear(precision *p, f8_graph *g, const f8_graph *from, f8_ref old,
                           const f8_ref *in)
{
    const char *name = linear_name(p, old);
    if (!name) {
        f8_arena_status(p->u->arena, g->diag);
        return 0;
    }
    f8_dtype dtype = f8_recipe_for(p->u, name, F8_FPROP, F8_OPERAND_X).recipe.activation;
    f8_ref x = f8_fold_cast(g, in[0], dtype), w = f8_fold_cast(g, in[1], dtype);
    f8_ref y = f8_linear(g, x, w, 0, f8_attr_i(from, old, F8_A_TRANSPOSE_B), name);
    const char *full = f8_arena_printf(p->u->arena, "%s.fprop", name);
    f8_set_name(g, y, full ? full : "");
    if (f8_at(from, old)->n_in == 2 || !y)
        return narrow(p, g, y, p->wide[old]);
    const bool rounds = dtype == F8_BF16 && is_narrow(p, f8_type_of(g, y), p->wide[old]);
    const f8_ref bias = rounds ? f8_fold_cast(g, in[2], F8_BF16) : in[2];
    return narrow(p, g, f8_binary(g, F8_OP_ADD, y, f8_cast(g, bias, F8_F32)), p->wide[old]);
}

static bool names_stream(const f8_graph *g, int64_t stream)
{
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if ((f8_at(g, r)->op == F8_OP_DROPOUT || f8_attention_seed(g, f8_at(g, r))) &&
            f8_attr_i(g, r, F8_A_STREAM) == stream)
            return true;
    return false;
}

/* A dropout that names no stream gets the next one that no other names. */
static int64_t stream_of(precision *p, const f8_graph *from, f8_ref old)
{
    const int64_t named = f8_attr_i(from, old, F8_A_STREAM);
    while (named < 0 && names_stream(from, p->stream))
        p->stream++;
    return named < 0 ? p->stream++ : named;
}

static f8_ref lower_dropout(precision *p, f8_graph *g, const f8_graph *from, f8_ref old,
                            const f8_ref *in)
{
    f8_attr attr[] = {F8_FLOAT(F8_A_P, f8_attr_f(from, old, F8_A_P)),
                      F8_INT(F8_A_STREAM, stream_of(p, from, old))};
    const f8_ref x[] = {f8_fold_cast(g, in[0], F8_F32), in[1]};
    return narrow(p, g, f8_make(g, F8_OP_DROPOUT, x, 2, attr, 2), p->wide[old]);
}

/* A parameter that is bf16 in memory and that the op reads as it is: a gather converts what it
 * gathers, so that no table lies in memory as f32. */
static bool is_table(const f8_node *n, uint32_t operand)
{
    return n->op == F8_OP_EMBEDDING && operand == 0;
}

/* The op with these attributes, and its float operands cast to dtype `operands`; a mask stays f32.
 */
static f8_ref remake_as(f8_graph *g, const f8_graph *from, f8_ref old, const f8_ref *in,
                        f8_dtype operands, const f8_attr *attr)
{
    const f8_node *n = f8_at(from, old);
    f8_ref *cast = F8_NEW_ARRAY(g->arena, f8_ref, n->n_in);
    if (!cast) {
        f8_arena_status(g->arena, g->diag);
        return 0;
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_dtype was = f8_type_of(g, in[i])->dtype,
                       to = n->in[i] == f8_attention_mask(from, n) ? F8_F32 : operands;
        const bool casts = (was == F8_F32 || was == F8_BF16) && !is_table(n, i);
        cast[i] = casts ? f8_fold_cast(g, in[i], to) : in[i];
    }
    return f8_make_clone(g, n->op, cast, (int)n->n_in, attr, f8_op_facts(n->op)->n_attrs, n->clone);
}

static f8_ref remake(f8_graph *g, const f8_graph *from, f8_ref old, const f8_ref *in,
                     f8_dtype operands)
{
    return remake_as(g, from, old, in, operands, f8_at(from, old)->attr);
}

/* The same with another value of the attribute `key`. */
static f8_ref remake_with(f8_graph *g, const f8_graph *from, f8_ref old, const f8_ref *in,
                          f8_dtype operands, f8_attr_key key, int64_t value)
{
    const f8_node *n = f8_at(from, old);
    const int n_attrs = f8_op_facts(n->op)->n_attrs;
    f8_attr attr[F8_MAX_ATTRS];
    memcpy(attr, n->attr, (size_t)n_attrs * sizeof *attr);
    for (int i = 0; i < n_attrs; i++)
        if (attr[i].key == key)
            attr[i].i = value;
    return remake_as(g, from, old, in, operands, attr);
}

static f8_ref lower_attention(precision *p, f8_graph *g, const f8_graph *from, f8_ref old,
                              const f8_ref *in)
{
    return f8_attention_seed(from, f8_at(from, old))
               ? remake_with(g, from, old, in, p->dtype, F8_A_STREAM, stream_of(p, from, old))
               : remake(g, from, old, in, p->dtype);
}

/* An activation whose result is rounded, by a cheaper op: gelu and silu say that it is, so that
 * their derivatives are cheaper, too. */
static f8_ref rounded_activation(const precision *p, f8_graph *g, const f8_graph *from, f8_ref old,
                                 const f8_ref *in)
{
    const f8_op op = f8_at(from, old)->op;
    if (op == F8_OP_GELU || op == F8_OP_SILU)
        return remake_with(g, from, old, in, F8_F32, F8_A_ROUNDED, p->dtype);
    const f8_op cheaper = op == F8_OP_TANH ? F8_OP_TANH_BF16 : F8_OP_SIGMOID_BF16;
    const f8_ref x = f8_fold_cast(g, in[0], F8_F32);
    return f8_make_clone(g, cheaper, &x, 1, NULL, 0, f8_at(from, old)->clone);
}

static bool has_rounded_form(f8_op op)
{
    return op == F8_OP_GELU || op == F8_OP_SILU || op == F8_OP_TANH || op == F8_OP_SIGMOID;
}

/* Moving elements is exact in any dtype; several operands must agree on one. */
static f8_ref move(const precision *p, f8_graph *g, const f8_graph *from, f8_ref old,
                   const f8_ref *in)
{
    const f8_node *n = f8_at(from, old);
    for (uint32_t i = 1; i < n->n_in; i++)
        if (f8_type_of(g, in[i])->dtype != f8_type_of(g, in[0])->dtype)
            return remake(g, from, old, in, p->dtype);
    return 0;
}

/* A cast in the text. Readers that want the dtype from which it casts up see through it: a bf16
 * input that the text casts to f32 is bf16 to a linear, whose gradient is not rounded on the way.
 */
static f8_ref explicit_cast(const precision *p, f8_graph *g, const f8_graph *from, f8_ref old,
                            const f8_ref *in)
{
    const f8_node *n = f8_at(from, old);
    const bool plain = !n->clone && (n->type.dtype == F8_F32 || n->type.dtype == p->dtype);
    return plain ? f8_fold_cast(g, in[0], n->type.dtype) : remake(g, from, old, in, F8_F32);
}

/* A stop_gradient moves nothing. It stands below a cast up, as other readers see through that cast.
 * For inference it is gone already here: `serve` looks for the weights of linears. */
static f8_ref stop_gradient(const precision *p, f8_graph *g, f8_ref x)
{
    const f8_node *n = f8_at(g, x);
    if (p->u->options.inference)
        return x;
    if (n->op == F8_OP_CAST && n->type.dtype == F8_F32 && !n->clone)
        return f8_cast(g, f8_unary(g, F8_OP_STOP_GRADIENT, n->in[0]), F8_F32);
    return f8_unary(g, F8_OP_STOP_GRADIENT, x);
}

/* ---- numbers beyond the range of activations ---- */

/* A constant that would become an infinity: the largest finite number of its sign, for all its
 * readers. 0: any other leaf. */
static f8_ref constant(const precision *p, f8_graph *g, const f8_graph *from, f8_ref old)
{
    const f8_node *n = f8_at(from, old);
    if (n->op != F8_OP_CONST || n->type.dtype != F8_F32 || !p->reaches[old])
        return 0;
    const double value = f8_attr_f(from, old, F8_A_VALUE);
    if (!isfinite(value) || !isinf(f8_round_bf16((float)value)))
        return 0;
    return f8_const(g, copysign((double)f8_dtype_max(p->dtype), value));
}

/* Whether an operand of a sum is, through views, an f32 input or a state: a mask if anything is. */
static bool is_mask(const precision *p, const f8_graph *g, f8_ref r)
{
    while (f8_op_facts(f8_at(g, r)->op)->cls == F8_SHAPE && f8_at(g, r)->n_in == 1)
        r = f8_at(g, r)->in[0];
    const f8_node *n = f8_at(g, r);
    if (n->op != F8_OP_INPUT || n->type.dtype != F8_F32)
        return false;
    const int32_t var = p->f->in[f8_attr_i(g, r, F8_A_INDEX)].var;
    return var < 0 || p->u->module->var[var].kind != F8_VAR_PARAM;
}

/* max(x, least), and -Inf where x is. A select would need a bool, which may get a kernel of its
 * own: see passes/fuse/README.md. */
static f8_ref at_least(f8_graph *g, f8_ref x, double least)
{
    const f8_ref bound = f8_binary(g, F8_OP_MIN, f8_mul_const(g, x, 0.5), f8_const(g, least));
    return f8_binary(g, F8_OP_MAX, x, bound);
}

/* A sum that is rounded and that a softmax reads. What is finite in a mask stays so in the sum. */
static f8_ref masked(const precision *p, f8_graph *g, const f8_graph *from, f8_ref old,
                     const f8_ref *in)
{
    f8_ref part[2];
    for (int i = 0; i < 2; i++) {
        part[i] = f8_fold_cast(g, in[i], F8_F32);
        if (is_mask(p, from, f8_at(from, old)->in[i]))
            part[i] = at_least(g, part[i], -(double)f8_dtype_max(p->dtype));
    }
    return narrow(p, g, f8_binary(g, F8_OP_ADD, part[0], part[1]), p->wide[old]);
}

static f8_ref rewrite(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    precision *p = user;
    const f8_node *n = f8_at(from, old);
    if (n->op == F8_OP_LINEAR)
        return lower_linear(p, to, from, old, in);
    if (n->op == F8_OP_DROPOUT)
        return lower_dropout(p, to, from, old, in);
    if (n->op == F8_OP_ATTENTION)
        return lower_attention(p, to, from, old, in);
    if (n->op == F8_OP_STOP_GRADIENT)
        return stop_gradient(p, to, in[0]);
    if (p->dtype == F8_F32) /* a norm's weight and bias may be bf16 */
        return n->op == F8_OP_LAYERNORM || n->op == F8_OP_RMSNORM
                   ? remake(to, from, old, in, F8_F32)
                   : 0;
    if (n->op == F8_OP_BOUNDARY)
        return f8_unary(to, F8_OP_BOUNDARY, f8_fold_cast(to, in[0], p->dtype));
    switch (f8_op_facts(n->op)->cls) {
    case F8_LEAF: return constant(p, to, from, old);
    case F8_SHAPE: return move(p, to, from, old, in);
    case F8_ATTENTION: return remake(to, from, old, in, p->dtype);
    default: break;
    }
    if (n->op == F8_OP_CAST)
        return explicit_cast(p, to, from, old, in);
    if (has_rounded_form(n->op) && is_narrow(p, &n->type, p->wide[old]))
        return narrow(p, to, rounded_activation(p, to, from, old, in), false);
    if (n->op == F8_OP_ADD && p->scores[old] && !n->clone && is_narrow(p, &n->type, p->wide[old]))
        return masked(p, to, from, old, in);
    const bool product =
        n->op == F8_OP_BATCH_MATMUL || (n->op == F8_OP_MATMUL && !f8_gemm_operands_of(n).acc);
    const f8_dtype operands = product ? p->dtype : F8_F32;
    return narrow(p, to, remake(to, from, old, in, operands), p->wide[old]);
}

/* ---- the pass ---- */

/* Mark the node that computes what stays f32, looking through ops that only move elements. */
static void mark_wide(const f8_graph *g, f8_ref r, bool *wide)
{
    wide[r] = true;
    while (f8_op_facts(f8_at(g, r)->op)->cls == F8_SHAPE && f8_at(g, r)->n_in == 1) {
        r = f8_at(g, r)->in[0];
        wide[r] = true;
    }
}

/* Products and attention read the activations' dtype, and so does a concat of several dtypes, even
 * where the result stays f32. */
static bool rounds_operands(const f8_node *n)
{
    const f8_class cls = f8_op_facts(n->op)->cls;
    return cls == F8_GEMM || cls == F8_ATTENTION || n->op == F8_OP_LINEAR ||
           n->op == F8_OP_BOUNDARY || (n->op == F8_OP_CONCAT && n->n_in > 1);
}

/* Fills in `reaches` and `scores`. Users come after their operands, so one walk back does. What the
 * text itself casts to bf16 is not marked: it asks for that rounding. */
static void mark_rounded(precision *p, const f8_graph *g)
{
    for (f8_ref r = g->n_nodes; r-- > 1;) {
        const f8_node *n = f8_at(g, r);
        const f8_class cls = f8_op_facts(n->op)->cls;
        const bool own = cls != F8_LEAF && cls != F8_SHAPE && n->op != F8_OP_CAST &&
                         is_narrow(p, &n->type, p->wide[r]);
        p->reaches[r] |= own;
        for (uint32_t i = 0; i < n->n_in; i++)
            if (f8_type_of(g, n->in[i])->dtype == F8_F32 && n->in[i] != f8_attention_mask(g, n))
                p->reaches[n->in[i]] |= p->reaches[r] || rounds_operands(n);
        const bool moves = cls == F8_SHAPE && n->n_in == 1;
        if (n->op == F8_OP_SOFTMAX || (p->scores[r] && (moves || n->op == F8_OP_ADD)))
            for (uint32_t i = 0; i < n->n_in; i++)
                p->scores[n->in[i]] = true;
    }
}

f8_status f8_pass_precision(f8_unit *u)
{
    f8_func *f = f8_module_find_func(u->module, "forward");
    if (!f)
        return f8_fail(u->diag, F8_ERR_INPUT, F8_NOWHERE, "the module has no function 'forward'");
    const f8_graph *g = f->graph;
    precision p = {.u = u, .dtype = u->options.recipe->activation};
    f8_func before = *f;
    f8_port *ports = F8_NEW_ARRAY(u->arena, f8_port, f->n_in);
    f8_type *results = F8_NEW_ARRAY(u->arena, f8_type, f->n_out);
    p.wide = F8_NEW_ARRAY(u->arena, bool, g->n_nodes);
    p.reaches = F8_NEW_ARRAY(u->arena, bool, g->n_nodes);
    p.scores = F8_NEW_ARRAY(u->arena, bool, g->n_nodes);
    if (!ports || !results || !p.wide || !p.reaches || !p.scores)
        return f8_arena_status(u->arena, u->diag);
    /* Rewriting renumbers the ports in place, and names are found through the old ones. */
    if (f->n_in)
        memcpy(ports, f->in, f->n_in * sizeof *ports);
    before.in = ports;
    p.f = &before;
    for (size_t i = 0; i < f->n_out; i++) {
        results[i] = f->out[i].type;
        mark_wide(g, f->out[i].ref, p.wide);
    }
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (f8_at(g, r)->op == F8_OP_CROSS_ENTROPY)
            mark_wide(g, f8_at(g, r)->in[0], p.wide);
        else if (f8_attention_mask(g, f8_at(g, r)))
            mark_wide(g, f8_attention_mask(g, f8_at(g, r)), p.wide);
    if (p.dtype != F8_F32)
        mark_rounded(&p, g);
    F8_TRY(f8_func_rewrite(f, rewrite, &p));
    for (size_t i = 0; i < f->n_out; i++) {
        f->out[i].ref = f8_cast(f->graph, f->out[i].ref, results[i].dtype);
        f->out[i].type = results[i];
    }
    return u->diag->status;
}
