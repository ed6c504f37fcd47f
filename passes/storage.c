/* Who shares whose storage: see storage.h. */
#include "passes/storage.h"

/* ---- small facts ---- */

f8_ref f8_accumulator(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    switch (n->op) {
    case F8_OP_MATMUL: return n->n_in > 2 ? n->in[2] : 0;
    case F8_OP_SCALED_MATMUL: return n->n_in > 4 ? n->in[4] : 0;
    case F8_OP_EMBEDDING_GRAD: return n->in[0];
    default: return 0;
    }
}

int64_t f8_storage_bytes(const f8_storage *s, f8_ref root)
{
    const f8_type *t = f8_type_of(s->g, root);
    const int64_t stride = s->base[root].stride;
    const int64_t bytes = stride > f8_type_columns(t)
                              ? f8_type_rows(t) * stride * (int64_t)f8_dtype_size(t->dtype)
                              : f8_type_bytes(t);
    return f8_aligned(bytes, F8_ARENA_ALIGN);
}

/* ---- definitions and readers ---- */

static void each_read(f8_storage *s, void (*visit)(f8_storage *, f8_ref, uint32_t))
{
    const f8_program *p = s->program;
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
                      .program = f->program,
                      .diag = diag,
                      .scratch = scratch};
    s->view = f8_views(s->g, scratch);
    s->base = F8_NEW_ARRAY(scratch, f8_base, s->g->n_nodes);
    s->var_offset = F8_NEW_ARRAY(scratch, int64_t, s->g->module->n_vars);
    F8_TRY(f8_arena_status(scratch, diag));
    f8_module_layout(s->g->module, s->var_offset);
    for (f8_ref r = 0; r < s->g->n_nodes; r++)
        s->base[r].def = F8_NO_GROUP;
    for (uint32_t i = 0; i < s->program->n_groups; i++)
        for (uint32_t k = 0; k < s->program->group[i].n_out; k++)
            s->base[s->program->group[i].out[k]].def = i;
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

/* ---- writing over what the same group reads ---- */

/* How many times a phase goes over its rows before it has each node: a value made from a row's
 * reduction needs another look at the row. */
static uint32_t pass_of(const f8_storage *s, const f8_phase *p, uint32_t *pass, uint32_t i)
{
    const f8_node *n = f8_at(s->g, p->node[i]);
    uint32_t most = 0;
    for (uint32_t k = 0; k < n->n_in; k++)
        for (uint32_t j = i; j-- > 0;)
            if (p->node[j] == n->in[k]) {
                const uint32_t at = pass[j] + (f8_is_reduce(s->g->node[n->in[k]].op) ? 1 : 0);
                most = at > most ? at : most;
                break;
            }
    return pass[i] = most;
}

/* Whether `n` reads operand k element by element as `t` is written: at the same row and column. */
static bool reads_in_step(const f8_storage *s, const f8_node *n, uint32_t k, const f8_type *t)
{
    const f8_type *in = f8_type_of(s->g, n->in[k]);
    return n->op != F8_OP_ROLL && n->op != F8_OP_EMBEDDING && f8_type_rows(in) == f8_type_rows(t) &&
           f8_type_columns(in) == f8_type_columns(t) &&
           (f8_is_reduce(n->op) || f8_type_elements(&n->type) == f8_type_elements(t));
}

/* Whether every read of `from` in this phase is of the element being written. A kernel stores such
 * values in its last pass over the row, where it loads before it stores; row statistics have no
 * such care taken, so for them the value must be known in that pass only. */
static bool phase_may_overwrite(const f8_storage *s, const f8_phase *p, f8_ref from, f8_ref to)
{
    const f8_type *t = f8_type_of(s->g, to);
    const bool full = f8_type_elements(t) == p->rows * p->cols;
    uint32_t *pass = F8_NEW_ARRAY(s->scratch, uint32_t, p->n_nodes);
    uint32_t last = 0, written = 0;
    bool reads = false;
    if (!pass)
        return false;
    if (!full && f8_type_columns(t) != 1 && f8_type_columns(t) != p->cols)
        return false; /* of blocks: all of a block's columns read what one of them writes */
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const f8_ref r = p->node[i];
        const f8_node *n = f8_at(s->g, r);
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (s->view[n->in[k]].base != from)
                continue;
            reads = true;
            if (!reads_in_step(s, n, k, t))
                return false;
        }
        if (full)
            continue;
        const uint32_t at = pass_of(s, p, pass, i);
        last = at > last ? at : last;
        written = r == to ? at : written;
        if (f8_is_column_reduce(s->g, r))
            return false;
    }
    return full || !reads || written == last;
}

static bool phase_reads(const f8_storage *s, const f8_phase *p, f8_ref base)
{
    for (uint32_t i = 0; i < p->n_nodes; i++)
        for (uint32_t k = 0; k < s->g->node[p->node[i]].n_in; k++)
            if (s->view[s->g->node[p->node[i]].in[k]].base == base)
                return true;
    return false;
}

bool f8_storage_group_may_overwrite(const f8_storage *s, uint32_t index, f8_ref from, f8_ref to)
{
    const f8_group *group = &s->program->group[index];
    const f8_node *n = f8_at(s->g, group->out[0]);
    if (group->kind == F8_GROUP_GEMM || group->kind == F8_GROUP_SCATTER) {
        const f8_ref acc = f8_accumulator(s->g, group->out[0]);
        uint32_t uses = 0;
        for (uint32_t i = 0; i < n->n_in; i++)
            uses += s->view[n->in[i]].base == from;
        return acc && s->view[acc].base == from && uses == 1;
    }
    if (group->kind != F8_GROUP_ROWS || s->g->node[to].op == F8_OP_TRANSPOSE)
        return false; /* a transpose is written at other rows and columns than are read */
    bool written = false;
    for (uint32_t i = 0; i < group->n_phases; i++) {
        const f8_phase *p = &group->phase[i];
        bool writes = false;
        for (uint32_t k = 0; k < p->n_out; k++)
            writes |= p->out[k] == to;
        if (writes ? !phase_may_overwrite(s, p, from, to) : written && phase_reads(s, p, from))
            return false;
        written |= writes;
    }
    return true;
}
