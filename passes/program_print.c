/* Programs for people: groups in order, what their phases compute, where values lie, bytes moved.
 */
#include "passes/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ir/format.h"

/* ---- traffic ---- */

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
    return !f8_listed(p->node, p->n_nodes, r) && f->program->place[r].space != F8_SPACE_NONE &&
           op != F8_OP_CONST && op != F8_OP_IOTA;
}

/* The first mention of operand k of node i in the phase, so that each value counts once. */
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
    const f8_group *group = &f->program->group[i];
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

/* ---- printing ---- */

typedef struct printer {
    const f8_func *f;
    const f8_writer *w;
    bool failed;
} printer;

__attribute__((format(printf, 2, 3))) static void put(printer *p, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = f8_vformat(text, sizeof text, format, args);
    va_end(args);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof text)
        n = sizeof text - 1;
    if (!p->failed && p->w->write(p->w->user, text, (size_t)n))
        p->failed = true;
}

static void put_place(printer *p, f8_ref r)
{
    static const char *const space[] = {"-", "arena", "state", "input", "output", "const"};
    if (!p->f->program->place)
        return;
    const f8_place *at = &p->f->program->place[r];
    put(p, " @%s", space[at->space]);
    if (at->space == F8_SPACE_NONE)
        return;
    if (at->port >= 0)
        put(p, "%d", at->port);
    put(p, "+%" PRId64, at->offset);
    if (f8_type_rows(f8_type_of(p->f->graph, r)) > 1 &&
        at->stride != f8_type_columns(f8_type_of(p->f->graph, r)))
        put(p, " stride %" PRId64, at->stride);
}

static void put_value(printer *p, f8_ref r)
{
    char text[160];
    const f8_graph *g = p->f->graph;
    put(p, "%%%u %s", r, f8_type_print(f8_type_of(g, r), text, sizeof text));
    if (g->name[r])
        put(p, " \"%s\"", g->name[r]);
    put_place(p, r);
}

static void put_node(printer *p, const f8_phase *phase, f8_ref r)
{
    const f8_node *n = f8_at(p->f->graph, r);
    put(p, "    %s", f8_listed(phase->out, phase->n_out, r) ? "* " : "  ");
    put_value(p, r);
    put(p, " = %s(", f8_op_facts(n->op)->name);
    for (uint32_t i = 0; i < n->n_in; i++)
        put(p, "%s%%%u", i ? ", " : "", n->in[i]);
    put(p, ")\n");
}

static void put_group(printer *p, uint32_t position, uint32_t index)
{
    static const char *const kind[] = {"rows",           "gemm",    "attention",
                                       "attention_grad", "scatter", "copy"};
    const f8_group *group = &p->f->program->group[index];
    put(p, "  [%u] %s %s", position, kind[group->kind], group->name);
    if (p->f->program->place) {
        const f8_traffic t = f8_group_traffic(p->f, index);
        put(p, ": reads %" PRId64 ", writes %" PRId64 " bytes", t.read, t.written);
    }
    put(p, "\n");
    for (uint32_t i = 0; i < group->n_in; i++) {
        put(p, "    < ");
        put_value(p, group->in[i]);
        put(p, "\n");
    }
    for (uint32_t i = 0; i < group->n_phases; i++) {
        const f8_phase *phase = &group->phase[i];
        put(p, "    phase %u over [%" PRId64 ", %" PRId64 "]\n", i, phase->rows, phase->cols);
        for (uint32_t k = 0; k < phase->n_nodes; k++)
            put_node(p, phase, phase->node[k]);
    }
    for (uint32_t i = 0; group->kind != F8_GROUP_ROWS && i < group->n_out; i++) {
        put(p, "    > ");
        put_value(p, group->out[i]);
        put(p, "\n");
    }
}

f8_status f8_program_print(const f8_func *f, const f8_writer *w)
{
    const f8_program *program = f->program;
    printer p = {f, w, false};
    if (!program)
        return F8_OK;
    put(&p, "program %s: %u groups", f->name, program->n_groups);
    if (program->place)
        put(&p,
            ", arena %" PRId64 " bytes (lower bound %" PRId64 "), constants %" PRId64 ", %u copies",
            program->arena_bytes, program->lower_bound, program->constants_bytes,
            program->n_copies);
    put(&p, "\n");
    for (uint32_t i = 0; i < program->n_groups; i++)
        put_group(&p, i, program->order ? program->order[i] : i);
    for (uint32_t i = 0; i < program->n_copies; i++) {
        put(&p, "  copy ");
        put_value(&p, program->copy[i].from);
        put(&p, " to %s+%" PRId64 "\n",
            program->copy[i].to.space == F8_SPACE_STATE ? "state" : "output",
            program->copy[i].to.offset);
    }
    return p.failed ? f8_fail(f->graph->diag, F8_ERR_IO, F8_NOWHERE, "writing failed") : F8_OK;
}
