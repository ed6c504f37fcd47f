/* Group: which nodes share a kernel.
 *
 * Pointwise ops, reductions, quantization and gathers become row kernels. A GEMM, an attention, a
 * scatter or a copy is a group of its own. A view is computed by no group. analyze.c finds when and
 * where each value can be computed, and what is worth storing. sink.c and sibling.c move recomputed
 * values to later moments. parts.c finds what each phase computes, and kernels.c which phases share
 * a kernel.
 *
 * Why groups do not grow greedily along edges, with a check at each edge whether a cycle appears:
 * the check is costly, its answers depend on the order of asking, and equal layers come out
 * unequal.
 *
 * Requires legalize. Gives func->lowered with groups, without order or places. */
#include "passes/fuse/group.h"
#include "passes/fuse/grouping.h"

/* Give every result of an op with several results a node, so that each has a place. */
static f8_status add_projections(f8_graph *g)
{
    const uint32_t n = g->n_nodes;
    for (f8_ref r = 1; r < n; r++)
        for (int i = 1; i < f8_op_facts(g->node[r].op)->results; i++)
            if (!f8_project(g, r, i))
                return g->diag->status;
    return F8_OK;
}

static f8_status sink(f8_grouping *s)
{
    return s->unit->options.no_fuse ? F8_OK : f8_group_sink(s);
}

f8_status f8_group_function(f8_unit *u, f8_func *f, bool share_kernels)
{
    static f8_status (*const stage[])(f8_grouping *) = {f8_group_analyze, sink, f8_group_parts,
                                                        f8_group_kernels, f8_group_emit};
    F8_TRY(add_projections(f->graph));
    f8_grouping s = {.unit = u, .func = f, .g = f->graph, .share_kernels = share_kernels};
    f8_arena_init(&s.scratch, &u->arena->allocator);
    s.view = f8_views(s.g, &s.scratch);
    s.node = F8_NEW_ARRAY(&s.scratch, f8_group_node, s.g->n_nodes);
    s.result = f8_arena_array(&s.scratch, s.g->n_nodes, sizeof *s.result);
    f8_status status = f8_arena_status(&s.scratch, u->diag);
    for (size_t i = 0; status == F8_OK && i < sizeof stage / sizeof *stage; i++) {
        status = stage[i](&s);
        if (status == F8_OK)
            status = f8_unit_within(u);
    }
    f8_arena_end(&s.scratch);
    return status;
}

f8_status f8_pass_group(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(f8_group_function(u, &u->module->func[i], false));
    return F8_OK;
}
