/* The cost of values that the backward recomputes in a kernel it runs anyway: see remat.h.
 *
 * fuse/sibling.c lets a GEMM that only results read wait for a kernel that reads the values its
 * operand is made from, and has that kernel compute the operand. This file finds in advance, in the
 * lowered function as it is, the values for which that works. Such a value still costs its writing,
 * and the arithmetic that the kernel does not do for itself. */
#include "passes/unit/cost.h"
#include "passes/remat/remat.h"

enum { WINDOW = 32 }; /* steps that are examined around a reader */

typedef struct siblings {
    f8_remat *s;
    bool *leaf;      /* by step: a GEMM whose result no step reads */
    /* by value: the first backward step that reads it; UINT32_MAX where there is none or it is no
     * leaf */
    uint32_t *first;
    f8_remat_value *out;
} siblings;

static const f8_group *group_of(const f8_remat *s, uint32_t step)
{
    return &s->lowered->group[s->lowered->order[step]];
}

static f8_status find_readers(siblings *b)
{
    const f8_remat *s = b->s;
    const f8_remat_problem *p = &s->problem;
    bool *read = F8_NEW_ARRAY(s->scratch, bool, p->n_values),
         *other = F8_NEW_ARRAY(s->scratch, bool, p->n_values);
    b->leaf = F8_NEW_ARRAY(s->scratch, bool, p->n_steps);
    b->first = F8_NEW_ARRAY(s->scratch, uint32_t, p->n_values);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t v = 0; v < p->n_values; v++)
        b->first[v] = UINT32_MAX;
    for (uint32_t i = 0; i < p->n_steps; i++)
        for (uint32_t k = 0; k < p->step[i].n_read; k++)
            read[p->step[i].read[k]] = true;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        b->leaf[i] = s->backward[i] && group_of(s, i)->kind == F8_GROUP_GEMM &&
                     p->step[i].n_write == 1 && !read[p->step[i].write[0]];
        for (uint32_t k = 0; s->backward[i] && k < p->step[i].n_read; k++) {
            const uint32_t v = p->step[i].read[k];
            other[v] |= !b->leaf[i];
            b->first[v] = i < b->first[v] ? i : b->first[v];
        }
    }
    for (uint32_t v = 0; v < p->n_values; v++)
        b->first[v] = other[v] ? UINT32_MAX : b->first[v];
    return F8_OK;
}

/* Whether the phase reads, over all of its rows and columns, a value that the cone reads. */
static bool reads_the_same(const f8_remat *s, const f8_group *group, const f8_phase *p,
                           const f8_remat_value *value, int64_t elements)
{
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const f8_node *n = f8_at(s->g, p->node[i]);
        for (uint32_t k = 0; k < n->n_in; k++) {
            const f8_ref base = s->storage.view[n->in[k]].base;
            const uint32_t v = s->value[base];
            if (v == F8_NO_VALUE || f8_type_elements(f8_type_of(s->g, base)) != elements ||
                !f8_remat_reads_memory(group, p, n->in[k]))
                continue;
            for (uint32_t f = 0; f < value->n_from; f++)
                if (value->from[f] == v)
                    return true;
        }
    }
    return false;
}

static f8_status price(siblings *b, uint32_t v)
{
    f8_remat *s = b->s;
    const f8_cone *cone = &s->cone[v];
    const f8_ref root = s->root[v];
    const int64_t elements = f8_type_elements(f8_type_of(s->g, root));
    const uint32_t reader = b->first[v], level = s->level[group_of(s, reader)->out[0]];
    const uint32_t begin = reader > WINDOW ? reader - WINDOW : 0;
    const uint32_t end =
        reader + WINDOW < s->problem.n_steps ? reader + WINDOW : s->problem.n_steps;
    for (uint32_t i = begin; i < end; i++) {
        const f8_group *group = group_of(s, i);
        for (uint32_t k = 0; s->backward[i] && k < group->n_phases; k++) {
            const f8_phase *p = &group->phase[k];
            double seconds;
            const uint32_t at = p->n_out ? s->level[p->out[0]] : 0;
            if (p->rows * p->cols != elements || at < level || at > level + F8_MOST_WAIT ||
                !reads_the_same(s, group, p, &b->out[v], elements))
                continue;
            F8_TRY(f8_cost_added(s->g, f8_unit_target(s->unit), p, cone->node, cone->n, s->scratch,
                                 s->unit->diag, &seconds));
            b->out[v].seconds = seconds < b->out[v].seconds ? seconds : b->out[v].seconds;
        }
    }
    return F8_OK;
}

f8_status f8_remat_siblings(f8_remat *s, f8_remat_problem *out)
{
    siblings b = {.s = s, .out = F8_NEW_ARRAY(s->scratch, f8_remat_value, s->problem.n_values)};
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t v = 0; v < s->problem.n_values; v++)
        b.out[v] = s->problem.value[v];
    F8_TRY(find_readers(&b));
    for (uint32_t v = 0; v < s->problem.n_values; v++)
        if (b.out[v].seconds > 0 && b.first[v] != UINT32_MAX && s->activation[v] &&
            s->lowered->group[s->storage.base[s->root[v]].def].kind == F8_GROUP_ROWS)
            F8_TRY(price(&b, v));
    *out = s->problem;
    out->value = b.out;
    return F8_OK;
}
