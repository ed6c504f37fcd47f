/* The bytes that a group moves: what its phases read and write. */
#include "passes/fuse/group.h"
#include "passes/unit/rows.h"

/* A gather reads the rows it picks, not the table. */
static int64_t bytes_read(const f8_graph *g, f8_ref user, uint32_t i)
{
    const f8_node *n = f8_at(g, user);
    const f8_type *t = f8_type_of(g, n->in[i]);
    if (n->op == F8_OP_EMBEDDING && i == 0)
        return f8_type_elements(&n->type) * (int64_t)f8_dtype_size(t->dtype);
    return f8_type_bytes(t);
}

static bool lies_in_memory(const f8_func *f, const f8_phase *p, f8_ref r)
{
    const f8_op op = f8_at(f->graph, r)->op;
    return !f8_listed(p->node, p->n_nodes, r) && f->lowered->place[r].space != F8_SPACE_NONE &&
           op != F8_OP_CONST && op != F8_OP_IOTA;
}

/* Whether operand k of node i is mentioned here first in the phase, so that each value counts once.
 */
static bool first_mention(const f8_graph *g, const f8_phase *p, uint32_t i, uint32_t k)
{
    const f8_ref r = g->node[p->node[i]].in[k];
    for (uint32_t a = 0; a <= i; a++) {
        const f8_node *n = f8_at(g, p->node[a]);
        for (uint32_t b = 0; b < (a == i ? k : n->n_in); b++)
            if (n->in[b] == r)
                return false;
    }
    return true;
}

static f8_traffic rows_traffic(const f8_func *f, const f8_group *group)
{
    f8_traffic t = {0};
    const f8_graph *g = f->graph;
    for (uint32_t i = 0; i < group->n_phases; i++) {
        const f8_phase *p = &group->phase[i];
        for (uint32_t j = 0; j < p->n_out; j++)
            t.written += f8_type_bytes(f8_type_of(g, p->out[j]));
        for (uint32_t j = 0; j < p->n_nodes; j++)
            for (uint32_t k = 0; k < g->node[p->node[j]].n_in; k++) {
                const f8_ref r = g->node[p->node[j]].in[k];
                if (!lies_in_memory(f, p, r) || !first_mention(g, p, j, k))
                    continue;
                t.read += bytes_read(g, p->node[j], k);
                bool before = f8_listed(group->out, group->n_out, r);
                for (uint32_t q = 0; q < i && !before; q++)
                    for (uint32_t m = 0; m < group->phase[q].n_nodes && !before; m++) {
                        const f8_node *n = f8_at(g, group->phase[q].node[m]);
                        before = f8_listed(n->in, n->n_in, r);
                    }
                t.distinct += before ? 0 : bytes_read(g, p->node[j], k);
            }
    }
    t.distinct += t.written;
    return t;
}

f8_traffic f8_group_traffic(const f8_func *f, uint32_t i)
{
    const f8_group *group = &f->lowered->group[i];
    f8_traffic t = {0};
    if (group->kind == F8_GROUP_ROWS)
        return rows_traffic(f, group);
    for (uint32_t k = 0; k < group->n_in; k++)
        t.read += f8_type_bytes(f8_type_of(f->graph, group->in[k]));
    for (uint32_t k = 0; k < group->n_out; k++)
        t.written += f8_type_bytes(f8_type_of(f->graph, group->out[k]));
    t.distinct = t.read + t.written;
    return t;
}
