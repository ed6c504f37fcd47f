/* The verifier: every invariant that ir.h states, checked over the whole module.
 *
 * It trusts pointers, not values. It runs after every pass, so a pass that writes a wrong type,
 * operand, attribute or port is found at once. Types are checked by inferring them a second
 * time. */
#include "ir/internal.h"

#include <string.h>

typedef struct verifier {
    const f8_module *m;
    const f8_func *f;
    f8_diag *diag;
    f8_graph view; /* f's graph, with a diag and location of our own for inference */
} verifier;

static f8_status bad_node(const verifier *v, f8_ref r, const char *what)
{
    const f8_node *n = &v->view.node[r];
    const char *op = n->op > F8_OP_NONE && n->op < F8_OP_COUNT ? f8_op_facts(n->op)->name : "?";
    return f8_fail(v->diag, F8_ERR_INTERNAL, v->view.loc[r], "verify: %s, node %u (%s): %s",
                   v->f->name, r, op, what);
}

/* ---- nodes ---- */

/* Keys in table order, values in range, strings interned. */
static f8_status check_attrs(const verifier *v, f8_ref r)
{
    const f8_node *n = &v->view.node[r];
    const f8_op_info *info = f8_op_facts(n->op);
    for (int i = 0; i < info->n_attrs; i++) {
        const f8_attr *a = &n->attr[i];
        if (a->key != info->attrs[i].key)
            return bad_node(v, r, "attributes are not in table order");
        switch (f8_attr_kind_of(a->key)) {
        case F8_ATTR_BOOL:
            if (a->i != 0 && a->i != 1)
                return bad_node(v, r, "a boolean attribute is neither 0 nor 1");
            break;
        case F8_ATTR_DTYPE:
            if (a->i < 0 || a->i >= F8_DTYPE_COUNT)
                return bad_node(v, r, "a dtype attribute has no valid dtype");
            break;
        case F8_ATTR_INTS:
            if (a->ints.n < 0 || a->ints.n > F8_MAX_RANK)
                return bad_node(v, r, "an attribute has too many sizes");
            break;
        case F8_ATTR_STR:
            if (!a->s || f8_intern_find(v->m, a->s, strlen(a->s)) != a->s)
                return bad_node(v, r, "a string attribute is not interned");
            break;
        default:
            break;
        }
    }
    f8_attr canonical[F8_MAX_ATTRS];
    if (info->n_attrs)
        memcpy(canonical, n->attr, info->n_attrs * sizeof *canonical);
    f8_canonical_attrs(&v->view, n->op, n->in, n->n_in, canonical);
    for (int i = 0; i < info->n_attrs; i++)
        if (!f8_attr_equal(&canonical[i], &n->attr[i]))
            return bad_node(v, r, "an attribute is not in canonical form");
    return F8_OK;
}

static f8_status check_node(verifier *v, f8_ref r)
{
    const f8_node *n = &v->view.node[r];
    if (n->op <= F8_OP_NONE || n->op >= F8_OP_COUNT)
        return bad_node(v, r, "there is no such op");
    const f8_op_info *info = f8_op_facts(n->op);
    if (n->n_in < info->min_in || n->n_in > info->max_in)
        return bad_node(v, r, "wrong number of operands");
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == 0 || n->in[i] >= r)
            return bad_node(v, r, "an operand does not come before it");
    F8_TRY(check_attrs(v, r));
    if (n->op == F8_OP_PROJECT) {
        int64_t index = f8_node_attr(n, F8_A_INDEX)->i;
        if (index < 1 || index >= f8_op_facts(v->view.node[n->in[0]].op)->results)
            return bad_node(v, r, "there is no such result to project");
    }
    f8_type type;
    v->view.at = v->view.loc[r];
    F8_TRY(f8_infer(&v->view, n, &type));
    if (!f8_type_equal(&type, &n->type))
        return bad_node(v, r, "its type is not the one its operands give");
    if (n->hash != f8_node_hash(n))
        return bad_node(v, r, "it changed after it was made");
    if (f8_graph_lookup(&v->view, n) != r)
        return bad_node(v, r, "the same node exists twice, or is not in the table");
    return F8_OK;
}

/* ---- ports ---- */

static f8_status bad_port(const verifier *v, const f8_port *p, const char *what)
{
    return f8_fail(v->diag, F8_ERR_INTERNAL, p->loc, "verify: %s, port '%s': %s", v->f->name,
                   p->name ? p->name : "", what);
}

/* marks: one byte for each variable, set when one of the ports has it. */
static f8_status check_port(const verifier *v, const f8_port *port, size_t i, uint8_t *marks)
{
    const f8_port *p = &port[i];
    const f8_graph *g = &v->view;
    if (!f8_name_ok(p->name))
        return bad_port(v, p, "it has no valid name");
    if (p->ref == 0 || p->ref >= g->n_nodes)
        return bad_port(v, p, "its value is not a node of the graph");
    if (!f8_type_equal(&p->type, &g->node[p->ref].type))
        return bad_port(v, p, "its type is not its node's");
    if (p->var < 0) {
        for (size_t j = 0; j < i; j++)
            if (port[j].var < 0 && !strcmp(port[j].name, p->name))
                return bad_port(v, p, "another port has its name");
        return F8_OK;
    }
    if ((size_t)p->var >= v->m->n_vars)
        return bad_port(v, p, "there is no such variable");
    if (!f8_type_equal(&p->type, &v->m->var[p->var].type))
        return bad_port(v, p, "its type is not its variable's");
    if (marks[p->var])
        return bad_port(v, p, "its variable has two ports");
    marks[p->var] = 1;
    return F8_OK;
}

static f8_status check_ports(const verifier *v, uint8_t *marks)
{
    const f8_func *f = v->f;
    const f8_graph *g = &v->view;
    memset(marks, 0, v->m->n_vars);
    for (size_t i = 0; i < f->n_in; i++) {
        F8_TRY(check_port(v, f->in, i, marks));
        const f8_node *n = &g->node[f->in[i].ref];
        if (n->op != F8_OP_INPUT || f8_node_attr(n, F8_A_INDEX)->i != (int64_t)i)
            return bad_port(v, &f->in[i], "its node is not the INPUT of that port");
    }
    memset(marks, 0, v->m->n_vars);
    for (size_t i = 0; i < f->n_out; i++)
        F8_TRY(check_port(v, f->out, i, marks));
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        if (g->node[r].op != F8_OP_INPUT)
            continue;
        int64_t index = f8_node_attr(&g->node[r], F8_A_INDEX)->i;
        if (index < 0 || index >= (int64_t)f->n_in || f->in[index].ref != r)
            return bad_node(v, r, "no input port belongs to it");
    }
    return F8_OK;
}

/* ---- module ---- */

/* Passes add the bytes of a function's values, and of the variables, in int64. */
static f8_status check_sum(int64_t *sum, const f8_type *t, f8_loc loc, f8_diag *diag)
{
    *sum += f8_type_bytes(t);
    return *sum <= INT64_C(1) << 59 ? F8_OK
                                    : f8_fail(diag, F8_ERR_UNSUPPORTED, loc,
                                              "the module's values have more than 2^59 bytes");
}

static f8_status check_func(verifier *v, uint8_t *marks)
{
    const f8_graph *g = v->f->graph;
    if (!f8_name_ok(v->f->name) || f8_module_find_func(v->m, v->f->name) != v->f)
        return f8_fail(v->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "verify: function '%s': its name is invalid or taken", v->f->name);
    v->view = *g;
    v->view.diag = v->diag;
    int64_t sum = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        F8_TRY(check_node(v, r));
        F8_TRY(check_sum(&sum, &g->node[r].type, g->loc[r], v->diag));
    }
    return check_ports(v, marks);
}

static f8_status check_vars(const f8_module *m, f8_diag *diag)
{
    int64_t sum = 0;
    for (size_t i = 0; i < m->n_vars; i++) {
        const f8_var *v = &m->var[i];
        if (!f8_name_ok(v->name) || f8_module_find_var(m, v->name) != (int32_t)i ||
            !f8_type_valid(&v->type))
            return f8_fail(diag, F8_ERR_INTERNAL, v->loc, "verify: variable '%s' is not valid",
                           v->name ? v->name : "");
        F8_TRY(check_sum(&sum, &v->type, v->loc, diag));
    }
    for (size_t i = 0; i < m->n_dims; i++)
        if (!f8_name_ok(m->dim[i].name) || m->dim[i].value < 1)
            return f8_fail(diag, F8_ERR_INTERNAL, m->dim[i].loc, "verify: dim '%s' is not valid",
                           m->dim[i].name ? m->dim[i].name : "");
    if (m->accumulate < 1)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "verify: accumulate is %lld",
                       (long long)m->accumulate);
    if (m->zero < 0 || m->zero > 3)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "verify: zero is %lld",
                       (long long)m->zero);
    return F8_OK;
}

f8_status f8_verify(const f8_module *m, f8_diag *diag)
{
    f8_diag own = {0};
    if (!diag)
        diag = &own;
    F8_TRY(check_vars(m, diag));
    f8_arena scratch;
    f8_arena_init(&scratch, &m->arena->allocator);
    uint8_t *marks = F8_NEW_ARRAY(&scratch, uint8_t, m->n_vars);
    f8_status status = marks ? F8_OK : f8_arena_status(&scratch, diag);
    for (size_t i = 0; status == F8_OK && i < m->n_funcs; i++) {
        verifier v = {.m = m, .f = &m->func[i], .diag = diag};
        status = check_func(&v, marks);
        if (status == F8_OK)
            status = f8_progress_within(m->phase, diag);
    }
    f8_arena_end(&scratch);
    return status;
}
