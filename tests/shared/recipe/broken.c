/* See broken.h. */
#include "tests/shared/recipe/broken.h"

#include <stdio.h>
#include <string.h>

/* An operand as scaling left it, found by its kept results: refs of the graph being rewritten, and
 * of the new one once its codes are there. */
typedef struct operand {
    char name[96];
    int layer;
    f8_ref source, q, scale_inv, scale,
        amax; /* amax 0: a delayed weight's is no value of the step */
    f8_ref new_q;
} operand;

enum { MAX_OPERANDS = 256, MAX_LAYERS = 16 };

typedef struct breaker {
    f8_func *func;
    const broken *way;
    int n_layers, n;
    operand of[MAX_OPERANDS];
    f8_ref last_amax[MAX_LAYERS], last_inv[MAX_LAYERS]; /* in the new graph */
    f8_status status;
} breaker;

/* ---- finding operands ---- */

static f8_ref result(const f8_func *f, const char *base, const char *suffix)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", base, suffix);
    for (size_t i = 0; i < f->n_out; i++)
        if (!strcmp(f->out[i].name, name))
            return f->out[i].ref;
    return 0;
}

static void find_operands(breaker *b)
{
    const f8_graph *g = b->func->graph;
    for (size_t i = 0; i < b->func->n_out; i++) {
        const char *name = b->func->out[i].name;
        const size_t length = strlen(name);
        operand o = {.layer = -1};
        if (length < 2 || strcmp(name + length - 2, ".q") || b->n == MAX_OPERANDS ||
            sscanf(name, "h.%d.", &o.layer) != 1 || o.layer >= b->n_layers)
            continue;
        snprintf(o.name, sizeof o.name, "%.*s", (int)(length - 2), name);
        o.q = b->func->out[i].ref;
        o.source = result(b->func, o.name, "");
        o.scale_inv = result(b->func, o.name, ".scale_inv");
        o.scale = f8_at(g, o.q)->in[1];
        const f8_node *inv = f8_at(g, o.scale_inv);
        if (inv->op == F8_OP_ADD) /* 1 / scale + (amax - amax) */
            o.amax = f8_at(g, inv->in[1])->in[0];
        else if (inv->op == F8_OP_QUANTIZE) /* E8M0 */
            o.amax = inv->in[0];
        b->of[b->n++] = o;
    }
}

/* ---- other scales ---- */

static f8_ref flat(f8_graph *g, f8_ref r)
{
    const f8_type t = {
        .dtype = f8_type_of(g, r)->dtype, .rank = 1, .dim = {f8_type_elements(f8_type_of(g, r))}};
    return f8_reshape(g, r, &t);
}

/* The next element's in place of each. */
static f8_ref shifted(f8_graph *g, f8_ref r)
{
    const f8_type t = *f8_type_of(g, r);
    const int64_t n = f8_type_elements(&t);
    const f8_ref line = flat(g, r);
    if (n == 1)
        return r;
    const f8_ref part[] = {f8_slice(g, line, 0, 1, n), f8_slice(g, line, 0, 0, 1)};
    return f8_reshape(g, f8_concat(g, part, 2, 0), &t);
}

/* As many elements as `t` has, repeated or cut. */
static f8_ref refitted(f8_graph *g, f8_ref r, const f8_type *t)
{
    const int64_t want = f8_type_elements(t);
    f8_ref line = flat(g, r);
    while (f8_type_elements(f8_type_of(g, line)) < want)
        line = f8_concat(g, (f8_ref[]){line, line}, 2, 0);
    return f8_reshape(g, f8_slice(g, line, 0, 0, want), t);
}

static f8_ref amax_of(f8_graph *g, f8_ref x, const char *grain)
{
    return f8_make(g, F8_OP_AMAX, &x, 1, &F8_STR(F8_A_GRANULARITY, grain), 1);
}

static f8_ref other_axis(f8_graph *g, const f8_graph *from, f8_ref old, f8_ref x)
{
    f8_granularity grain = {0, 0};
    char text[48];
    if (from->node[old].op != F8_OP_AMAX) /* a weight's that update keeps */
        return 0;
    f8_granularity_parse(f8_attr_s(from, old, F8_A_GRANULARITY), &grain);
    if (f8_granularity_equal(grain, f8_per_tensor)) {
        const f8_type m = {
            .dtype = f8_type_of(g, x)->dtype,
            .rank = 2,
            .dim = {f8_type_rows(f8_type_of(g, x)), f8_type_columns(f8_type_of(g, x))}};
        return amax_of(g, f8_slice(g, f8_reshape(g, x, &m), 0, 0, 1), "tensor");
    }
    if (f8_granularity_equal(grain, f8_granularity_transposed(grain))) {
        const f8_ref amax = amax_of(g, x, f8_granularity_print(grain, text, sizeof text));
        const f8_ref turned =
            f8_make(g, F8_OP_TRANSPOSE, &amax, 1, &F8_INTS(F8_A_PERM, ((f8_ints){2, {1, 0}})), 1);
        return f8_reshape(g, turned, &from->node[old].type);
    }
    grain = f8_granularity_transposed(grain);
    return refitted(g, amax_of(g, x, f8_granularity_print(grain, text, sizeof text)),
                    &from->node[old].type);
}

static f8_ref copy(f8_graph *g, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const f8_node *n = f8_at(from, old);
    return f8_make_clone(g, n->op, in, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

/* The value of the run before, ones at first; or, frozen, the first that is no one. */
static f8_ref stale(breaker *b, f8_graph *g, f8_ref now, f8_ref old, bool frozen)
{
    char name[32];
    snprintf(name, sizeof name, "stale.%u", old);
    const int32_t var = f8_module_var(g->module, &(f8_var){.name = f8_intern(g->module, name),
                                                           .type = *f8_type_of(g, now),
                                                           .kind = F8_VAR_STATE,
                                                           .init = F8_INIT_ONES});
    if (var < 0)
        return 0;
    const f8_ref before = f8_func_var(b->func, var);
    const f8_ref kept = f8_select(g, f8_binary(g, F8_OP_EQ, before, f8_const(g, 1)), now, before);
    const f8_status s =
        f8_func_result(b->func, f8_intern(g->module, name), frozen ? kept : now, var);
    if (s != F8_OK)
        b->status = s;
    return frozen ? kept : before;
}

/* ---- one node ---- */

/* A node that gives an operand its amax; of a delayed one, for later. */
static f8_ref break_amax(breaker *b, f8_graph *g, const f8_graph *from, f8_ref old,
                         const f8_ref *in, int layer, bool late)
{
    const f8_ref right = copy(g, from, old, in), last = b->last_amax[layer];
    b->last_amax[layer] = right;
    switch (b->way[layer]) {
    case BROKEN_STALE: return late ? right : stale(b, g, right, old, false);
    case BROKEN_AXIS: return other_axis(g, from, old, in[0]);
    case BROKEN_SHIFTED:
        return late ? right : f8_type_of(g, right)->rank ? shifted(g, right) : last ? last : right;
    default: return right;
    }
}

/* fp8.scale's element of a delayed operand: reshape(slice(fp8.scale)). */
static f8_ref break_delayed(breaker *b, f8_graph *g, const f8_graph *from, f8_ref old,
                            const f8_ref *in, int layer)
{
    const f8_ref right = copy(g, from, old, in), vector = f8_at(g, in[0])->in[0];
    const int64_t n = f8_type_of(g, vector)->dim[0];
    const int64_t next = (f8_attr_i(g, in[0], F8_A_START) + 1) % n;
    switch (b->way[layer]) {
    case BROKEN_STALE: return stale(b, g, right, old, true);
    case BROKEN_SHIFTED:
        return f8_reshape(g, f8_slice(g, vector, 0, next, next + 1), &from->node[old].type);
    default: return right;
    }
}

/* E8M0 of 2^(floor(log2 amax) - 8). */
static f8_ref rounded_down(f8_graph *g, const f8_graph *from, f8_ref old, f8_ref amax)
{
    const f8_ref in[] = {f8_unary(g, F8_OP_POW2_FLOOR, amax), f8_const(g, 0x1p-8)};
    return copy(g, from, old, in);
}

static f8_ref break_codes(breaker *b, f8_graph *g, const f8_graph *from, operand *o,
                          const f8_ref *in)
{
    o->new_q = copy(g, from, o->q, in);
    if (b->way[o->layer] == BROKEN_CODES)
        for (const operand *p = b->of; p < b->of + b->n; p++)
            if (p != o && p->source == o->source && p->layer == o->layer && p->new_q)
                o->new_q = p->new_q;
    return o->new_q;
}

static f8_ref break_product(breaker *b, f8_graph *g, const f8_graph *from, f8_ref old,
                            const f8_ref *in)
{
    int layer;
    if (sscanf(f8_attr_s(from, old, F8_A_NAME), "h.%d.", &layer) != 1 || layer >= b->n_layers)
        return 0;
    f8_ref to[F8_GEMM_MOST_OPERANDS];
    memcpy(to, in, f8_at(from, old)->n_in * sizeof *to);
    const operand *o = b->of;
    while (o < b->of + b->n && o->new_q != in[0])
        o++;
    if (b->way[layer] == BROKEN_PRODUCT_SCALES)
        to[1] = f8_type_elements(f8_type_of(g, in[1])) > 1 ? shifted(g, in[1]) : in[3];
    else if (b->way[layer] == BROKEN_PRODUCT_CODES)
        for (const operand *p = b->of; p < b->of + b->n; p++)
            if (p != o && o < b->of + b->n && p->source == o->source && p->new_q)
                to[0] = p->new_q;
    return copy(g, from, old, to);
}

/* A fake operand's way back. */
static f8_ref break_dequantized(breaker *b, f8_graph *g, const f8_graph *from, f8_ref old,
                                const f8_ref *in)
{
    const operand *o = b->of;
    while (o < b->of + b->n && o->q != from->node[old].in[0])
        o++;
    if (o == b->of + b->n || b->way[o->layer] != BROKEN_PRODUCT_SCALES)
        return 0;
    const f8_ref last = b->last_inv[o->layer];
    b->last_inv[o->layer] = in[1];
    f8_ref inv = last ? last : in[1];
    if (f8_type_elements(f8_type_of(g, in[1])) > 1)
        inv = shifted(g, in[1]);
    return copy(g, from, old, (f8_ref[]){in[0], inv});
}

static f8_ref break_node(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                         const f8_ref *in)
{
    breaker *b = user;
    if (from->node[old].op == F8_OP_SCALED_MATMUL)
        return break_product(b, to, from, old, in);
    if (from->node[old].op == F8_OP_DEQUANTIZE)
        return break_dequantized(b, to, from, old, in);
    for (operand *o = b->of; o < b->of + b->n; o++) {
        const bool late = from->node[o->scale].op == F8_OP_RESHAPE; /* of an element of fp8.scale */
        if (old == o->amax)
            return break_amax(b, to, from, old, in, o->layer, late);
        if (old == o->scale && late)
            return break_delayed(b, to, from, old, in, o->layer);
        if (old == o->scale_inv && b->way[o->layer] == BROKEN_DOWN)
            return rounded_down(to, from, old, in[0]);
        if (old == o->q)
            return break_codes(b, to, from, o, in);
    }
    return 0;
}

f8_status broken_apply(f8_unit *u, const broken *way, int n_layers)
{
    breaker b = {
        .func = f8_module_find_func(u->module, "micro_step"), .way = way, .n_layers = n_layers};
    if (!b.func || n_layers > MAX_LAYERS)
        return f8_fail(u->diag, F8_ERR_INTERNAL, F8_NOWHERE, "no micro_step, or too many layers");
    find_operands(&b);
    F8_TRY(f8_func_rewrite(b.func, break_node, &b));
    return b.status;
}
