/* The pass `codes`: what `update` knows of a weight's codes when it writes the weight, it writes,
 * too. eval and micro_step then read codes, and quantize no weight.
 *
 * Some nodes of eval and micro_step depend on variables alone that neither of them changes: a
 * weight's quantize and, for targets that want it, the transpose of its codes; under blocks, their
 * scales. Each such value that a GEMM or a collective reads becomes a state. `prepare` and `update`
 * get the nodes that compute it, from the weights and scales as they leave them. So a state is at
 * all times what the step would compute, and no bit depends on whether it is kept.
 *
 * Only parameters in unit.kept are looked at: for these, `update` need not read the weight a second
 * time. With a budget of memory nothing is kept: to quantize weights in each step costs less than
 * to recompute activations of as many bytes. */
#include "passes/scale/scaling.h"
#include "passes/unit/copy.h"

#include <string.h>

/* A value that is kept. */
typedef struct kept {
    f8_ref value; /* in prepare's graph, where equal values are one node */
    int32_t var;
} kept;

enum { UPDATE, PREPARE, MAKERS };
static const char *const maker_name[MAKERS] = {"update", "prepare"};

typedef struct keeper {
    f8_unit *u;
    f8_arena arena; /* holds what follows */
    bool *changes;  /* by variable: a step replaces it */
    bool *weight;   /* by variable: in unit.kept */
    kept *of;
    size_t n, room;
    f8_func *func;      /* the function that is rewritten */
    uint8_t *is;        /* by its refs: the flags below */
    f8_ref *in[MAKERS]; /* the same value in these functions; 0: it is not there yet */
    int32_t *var;       /* the state that has its value, or -1 */
    f8_ref *operand;    /* room for a node's operands */
} keeper;

/* What a value is. */
enum {
    FIXED = 1,      /* it depends on constants alone, and on variables that no step changes */
    HAS_WEIGHT = 2, /* it depends on a weight of unit.kept */
    MADE = 4,       /* and on its codes or amaxes */
    WANTED = 8,     /* a GEMM or a collective reads it, perhaps in another order */
    NEEDED = 16,    /* what is kept depends on it */
};

static bool is_step(const f8_func *f)
{
    return !strcmp(f->name, "eval") || f8_is_micro_step(f->name);
}

/* ---- which values ---- */

static uint8_t of_input(const keeper *k, int32_t var)
{
    if (var < 0 || k->changes[var])
        return 0;
    return (uint8_t)(FIXED | (k->weight[var] ? HAS_WEIGHT : 0));
}

static uint8_t of_node(const keeper *k, const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_class cls = f8_op_facts(n->op)->cls;
    uint8_t all = FIXED, any = 0;
    if (n->op == F8_OP_INPUT)
        return of_input(k, k->func->in[f8_attr_i(g, r, F8_A_INDEX)].var);
    for (uint32_t i = 0; i < n->n_in; i++) {
        all &= k->is[n->in[i]];
        any |= k->is[n->in[i]];
    }
    if (!all || cls == F8_COLLECTIVE || cls == F8_GEMM)
        return 0;
    const bool makes = n->op == F8_OP_QUANTIZE || n->op == F8_OP_REDUCE_AMAX;
    return (uint8_t)(FIXED | (any & (HAS_WEIGHT | MADE)) |
                     (makes && (any & HAS_WEIGHT) ? MADE : 0));
}

static bool is_view(const f8_node *n)
{
    return n->op == F8_OP_RESHAPE || n->op == F8_OP_SLICE;
}

static bool is_kept(const keeper *k, const f8_graph *g, f8_ref r)
{
    const uint8_t kept_is = FIXED | MADE | WANTED;
    return (k->is[r] & kept_is) == kept_is && !is_view(f8_at(g, r));
}

/* Users come after what they read: from the last node to the first. */
static void look(const keeper *k)
{
    const f8_graph *g = k->func->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        k->is[r] = of_node(k, g, r);
    for (f8_ref r = g->n_nodes; r-- > 1;) {
        const f8_node *n = f8_at(g, r);
        const f8_class cls = f8_op_facts(n->op)->cls;
        const bool passes_on =
            (k->is[r] & FIXED) ? is_view(n) : cls == F8_SHAPE || cls == F8_COLLECTIVE;
        const bool reads = n->op == F8_OP_SCALED_MATMUL || cls == F8_COLLECTIVE ||
                           ((k->is[r] & WANTED) && passes_on),
                   needs = is_kept(k, g, r) || (k->is[r] & NEEDED);
        for (uint32_t i = 0; i < n->n_in; i++)
            k->is[n->in[i]] |= (uint8_t)((reads ? WANTED : 0) | (needs ? NEEDED : 0));
    }
}

/* ---- the states ---- */

/* A variable as function f leaves it. */
static f8_ref left(f8_func *f, int32_t var)
{
    for (size_t i = 0; i < f->n_out; i++)
        if (f->out[i].var == var)
            return f->out[i].ref;
    return f8_func_var(f, var);
}

/* The name of the codes or scales that a value is made of, or else of its weight. */
static const char *name_below(const keeper *k, f8_ref r)
{
    const f8_graph *g = k->func->graph;
    while (!g->name[r] && f8_at(g, r)->n_in)
        r = f8_at(g, r)->in[0];
    return g->name[r] ? g->name[r] : "";
}

/* Linears may have names that variables may not have. */
static void make_valid(char *name)
{
    for (; name && *name; name++) {
        const bool letter = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z');
        if (!letter && !(*name >= '0' && *name <= '9') && *name != '.')
            *name = '_';
    }
}

static int32_t add_state(keeper *k, f8_ref r)
{
    f8_module *m = k->u->module;
    const f8_graph *g = k->func->graph;
    const f8_type *type = f8_type_of(g, r);
    const char *prefix = f8_dtype_is_fp8(type->dtype) ? F8_WEIGHT_CODES : F8_WEIGHT_SCALE_INV,
               *below = name_below(k, r);
    char *name = f8_arena_printf(&k->arena, "%s%s", prefix, below), *first = name;
    make_valid(name);
    for (int i = 2; name && f8_module_find_var(m, name) >= 0; i++)
        name = f8_arena_printf(&k->arena, "%s.%d", first, i);
    if (f8_arena_status(&k->arena, m->diag) != F8_OK)
        return -1;
    return f8_module_var(m, &(f8_var){.name = f8_intern(m, name),
                                      .type = *type,
                                      .kind = F8_VAR_STATE,
                                      .init = F8_INIT_ZEROS});
}

/* x[start : stop] along the first axis. Of several values side by side it is taken of the one that
 * has it, and of a choice by a scalar before the choice: so a weight's scale waits for no others',
 * and is there when the weight is computed. */
static f8_ref part_of(f8_graph *g, f8_ref x, int64_t start, int64_t stop)
{
    const f8_node *n = f8_at(g, x);
    if (n->op == F8_OP_SELECT && f8_type_of(g, n->in[0])->rank == 0 &&
        f8_type_same_shape(f8_type_of(g, n->in[1]), &n->type) &&
        f8_type_same_shape(f8_type_of(g, n->in[2]), &n->type)) {
        const f8_ref in[] = {n->in[0], n->in[1], n->in[2]}; /* the graph grows below */
        const f8_ref yes = part_of(g, in[1], start, stop), no = part_of(g, in[2], start, stop);
        return f8_select(g, in[0], yes, no);
    }
    const bool joins = n->op == F8_OP_CONCAT && f8_attr_i(g, x, F8_A_AXIS) == 0;
    int64_t at = 0; /* where the operand begins */
    for (uint32_t i = 0; joins && i < n->n_in; i++) {
        const int64_t end = at + f8_type_of(g, n->in[i])->dim[0];
        if (at <= start && stop <= end)
            return part_of(g, n->in[i], start - at, stop - at);
        at = end;
    }
    return f8_slice(g, x, 0, start, stop);
}

/* A node of the function in another one, which has its operands. */
static f8_ref copied(const keeper *k, f8_graph *to, f8_ref r, const f8_ref *map)
{
    const f8_graph *g = k->func->graph;
    const f8_node *n = f8_at(g, r);
    if (n->op == F8_OP_SLICE && f8_attr_i(g, r, F8_A_AXIS) == 0)
        return part_of(to, map[n->in[0]], f8_attr_i(g, r, F8_A_START), f8_attr_i(g, r, F8_A_STOP));
    return f8_copy_node(to, g, r, f8_map_operands(g, r, map, k->operand));
}

/* Copies what is needed of the function into update or prepare. */
static f8_status copy_needed(keeper *k, f8_func *to, f8_ref *map)
{
    const f8_graph *g = k->func->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        if (!(k->is[r] & NEEDED) && !is_kept(k, g, r))
            continue;
        map[r] = f8_at(g, r)->op == F8_OP_INPUT
                     ? left(to, k->func->in[f8_attr_i(g, r, F8_A_INDEX)].var)
                     : copied(k, to->graph, r, map);
        if (!map[r])
            return k->u->diag->status;
    }
    return F8_OK;
}

static f8_status keep(keeper *k, f8_func *const maker[MAKERS], f8_ref r, int32_t *var)
{
    const f8_ref value = k->in[PREPARE][r];
    for (size_t i = 0; i < k->n; i++)
        if (k->of[i].value == value) {
            *var = k->of[i].var;
            return F8_OK;
        }
    kept *grown = f8_arena_grow(&k->arena, k->of, k->n, &k->room, k->n + 1, sizeof *grown);
    F8_TRY(f8_arena_status(&k->arena, k->u->diag));
    k->of = grown;
    *var = add_state(k, r);
    if (*var < 0)
        return k->u->diag->status;
    k->of[k->n++] = (kept){value, *var};
    for (int i = 0; i < MAKERS; i++)
        F8_TRY(f8_func_result(maker[i], NULL, k->in[i][r], *var));
    return F8_OK;
}

/* ---- one function ---- */

/* Readers of what is kept read the state. A result of the function stays its own. */
static f8_ref read_state(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                         const f8_ref *in)
{
    const keeper *k = user;
    const f8_node *n = f8_at(from, old);
    bool any = false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        k->operand[i] = in[i];
        for (size_t port = k->func->n_in; k->var[n->in[i]] >= 0 && port-- > 0;)
            if (k->func->in[port].var == k->var[n->in[i]]) {
                k->operand[i] = k->func->in[port].ref;
                any = true;
            }
    }
    return any ? f8_copy_node(to, from, old, k->operand) : 0;
}

static f8_status begin(keeper *k, f8_func *f)
{
    const uint32_t n = f->graph->n_nodes;
    k->func = f;
    k->is = F8_NEW_ARRAY(&k->arena, uint8_t, n);
    k->var = F8_NEW_ARRAY(&k->arena, int32_t, n);
    k->operand = F8_NEW_ARRAY(&k->arena, f8_ref, f8_widest(f->graph));
    for (int i = 0; i < MAKERS; i++)
        k->in[i] = F8_NEW_ARRAY(&k->arena, f8_ref, n);
    F8_TRY(f8_arena_status(&k->arena, k->u->diag));
    for (f8_ref r = 0; r < n; r++)
        k->var[r] = -1;
    return F8_OK;
}

static f8_status keep_of(keeper *k, f8_func *const maker[MAKERS], f8_func *f)
{
    F8_TRY(f8_func_rewrite(f, NULL, NULL)); /* drops dead nodes: what reads is alive */
    F8_TRY(begin(k, f));
    look(k);
    for (int i = 0; i < MAKERS; i++)
        F8_TRY(copy_needed(k, maker[i], k->in[i]));
    const f8_ref n = f->graph->n_nodes; /* ports that are added below are new nodes */
    for (f8_ref r = 1; r < n; r++)
        if (is_kept(k, f->graph, r)) {
            F8_TRY(keep(k, maker, r, &k->var[r]));
            if (!f8_func_var(f, k->var[r]))
                return k->u->diag->status;
        }
    F8_TRY(f8_func_rewrite(f, read_state, k));
    return f8_func_rewrite(f, NULL, NULL); /* drops what made the codes */
}

/* ---- the pass ---- */

static f8_status note_variables(keeper *k)
{
    const f8_module *m = k->u->module;
    k->changes = F8_NEW_ARRAY(&k->arena, bool, m->n_vars + 1);
    k->weight = F8_NEW_ARRAY(&k->arena, bool, m->n_vars + 1);
    F8_TRY(f8_arena_status(&k->arena, k->u->diag));
    for (size_t i = 0; i < k->u->n_kept; i++)
        k->weight[k->u->kept[i]] = true;
    for (size_t i = 0; i < m->n_funcs; i++)
        for (size_t o = 0; is_step(&m->func[i]) && o < m->func[i].n_out; o++)
            if (m->func[i].out[o].var >= 0)
                k->changes[m->func[i].out[o].var] = true;
    return F8_OK;
}

static f8_status keep_codes(keeper *k)
{
    f8_module *m = k->u->module;
    f8_func *maker[MAKERS];
    F8_TRY(note_variables(k));
    if (!f8_module_find_func(m, maker_name[PREPARE]))
        f8_module_func(m, maker_name[PREPARE]);
    for (int i = 0; i < MAKERS; i++)
        if (!(maker[i] = f8_module_find_func(m, maker_name[i])))
            return m->diag->status;
    for (size_t i = 0; i < m->n_funcs; i++)
        if (is_step(&m->func[i]))
            F8_TRY(keep_of(k, maker, &m->func[i]));
    return m->diag->status;
}

f8_status f8_pass_codes(f8_unit *u)
{
    keeper k = {.u = u};
    const f8_budget *budget = &u->options.memory;
    if (!u->n_kept || u->options.pair || u->options.requantize || budget->bytes ||
        budget->share > 0 || !f8_module_find_func(u->module, maker_name[UPDATE]))
        return F8_OK;
    f8_arena_init(&k.arena, &u->arena->allocator);
    const f8_status status = keep_codes(&k);
    f8_arena_end(&k.arena);
    return status;
}
