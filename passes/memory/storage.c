/* Values with storage of their own: who writes and reads them, and their bytes. See storage.h. */
#include "passes/memory/storage.h"

/* ---- small facts ---- */

f8_ref f8_accumulator(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    switch (n->op) {
    case F8_OP_MATMUL:
    case F8_OP_SCALED_MATMUL: return f8_gemm_operands_of(n).acc;
    case F8_OP_EMBEDDING_GRAD: return n->in[0];
    default: return 0;
    }
}

bool f8_storage_travels(const f8_storage *s, uint32_t i)
{
    const f8_group *group = &s->lowered->group[i];
    return group->kind == F8_GROUP_COLLECTIVE && s->g->node[group->out[0]].op != F8_OP_ALL_SLICE;
}

int64_t f8_storage_bytes(const f8_storage *s, f8_ref root)
{
    const f8_type *t = f8_type_of(s->g, root);
    const f8_base *b = &s->base[root];
    const int64_t bytes =
        b->stride > f8_type_columns(t) || b->pad.rows
            ? (f8_type_rows(t) + b->pad.rows) * b->stride * (int64_t)f8_dtype_size(t->dtype)
            : f8_type_bytes(t);
    return f8_aligned(bytes, F8_ARENA_ALIGN);
}

bool f8_storage_writes_gaps(const f8_storage *s, f8_ref r)
{
    const f8_group *group = &s->lowered->group[s->base[r].def];
    if (group->kind == F8_GROUP_GEMM || group->kind == F8_GROUP_ATTENTION ||
        group->kind == F8_GROUP_ATTENTION_GRAD)
        return true;
    if (group->kind != F8_GROUP_ROWS || f8_is_column_reduce(s->g, r))
        return false;
    for (uint32_t i = 0; i < group->n_phases; i++)
        for (uint32_t k = 0; k < group->phase[i].n_out; k++)
            if (group->phase[i].out[k] == r)
                return s->g->node[r].op == F8_OP_TRANSPOSE ||
                       (group->phase[i].rows == f8_type_rows(f8_type_of(s->g, r)) &&
                        group->phase[i].cols == f8_type_columns(f8_type_of(s->g, r)));
    return false;
}

/* ---- definitions and readers ---- */

static void each_read(f8_storage *s, void (*visit)(f8_storage *, f8_ref, uint32_t))
{
    const f8_lowered *p = s->lowered;
    for (uint32_t i = 0; i < p->n_groups; i++)
        for (uint32_t k = 0; k < p->group[i].n_in; k++)
            visit(s, p->group[i].in[k], i);
    for (size_t i = 0; i < s->func->n_out; i++)
        visit(s, s->func->out[i].ref, F8_NO_GROUP);
}

static void count_read(f8_storage *s, f8_ref r, uint32_t group)
{
    (void)group;
    f8_base *b = &s->base[s->view[r].base];
    b->n_readers++;
    b->read = true;
}

static void add_read(f8_storage *s, f8_ref r, uint32_t group)
{
    f8_base *b = &s->base[s->view[r].base];
    b->reader[b->n_readers++] = (f8_reader){group, r};
}

f8_status f8_storage_build(f8_storage *s, const f8_func *f, const f8_target *target,
                           f8_arena *scratch, f8_diag *diag)
{
    *s = (f8_storage){.func = f,
                      .g = f->graph,
                      .target = target,
                      .lowered = f->lowered,
                      .diag = diag,
                      .scratch = scratch};
    s->view = f8_views(s->g, scratch);
    s->base = F8_NEW_ARRAY(scratch, f8_base, s->g->n_nodes);
    s->var_offset = F8_NEW_ARRAY(scratch, int64_t, s->g->module->n_vars);
    F8_TRY(f8_arena_status(scratch, diag));
    f8_module_layout(s->g->module, s->var_offset);
    for (f8_ref r = 0; r < s->g->n_nodes; r++)
        s->base[r].def = F8_NO_GROUP;
    for (uint32_t i = 0; i < s->lowered->n_groups; i++)
        for (uint32_t k = 0; k < s->lowered->group[i].n_out; k++)
            s->base[s->lowered->group[i].out[k]].def = i;
    each_read(s, count_read);
    for (f8_ref r = 1; r < s->g->n_nodes; r++) {
        f8_base *b = &s->base[r];
        if (b->n_readers == 0)
            continue;
        b->reader = F8_NEW_ARRAY(scratch, f8_reader, b->n_readers);
        if (!b->reader)
            return f8_arena_status(scratch, diag);
        b->n_readers = 0;
    }
    each_read(s, add_read);
    return F8_OK;
}
