/* Grouping, the end: parts into kernels, and kernels and whole groups into func->lowered.
 *
 * A part that reads from exactly one kernel of its level joins it as a further phase behind a
 * barrier: the end of a column sum, or the second pass from amax to codes. A part that reads from
 * two or more starts a kernel of its own. So a merge can never close a cycle, and equal layers stay
 * equal. */
#include "passes/fuse/grouping.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PHASES = 16, MAX_KERNEL_NODES = 2048 };

/* ---- small helpers ---- */

static int by_ref(const void *a, const void *b)
{
    const f8_ref x = *(const f8_ref *)a, y = *(const f8_ref *)b;
    return x < y ? -1 : x > y;
}

/* sorted[0, n) + more[0, m), without duplicates, sorted, in the unit's arena. */
static f8_ref *united(f8_arena *arena, const f8_ref *some, uint32_t n, const f8_ref *more,
                      uint32_t m, uint32_t *total)
{
    f8_ref *all = F8_NEW_ARRAY(arena, f8_ref, (size_t)n + m);
    if (!all)
        return NULL;
    if (n)
        memcpy(all, some, n * sizeof *all);
    if (m)
        memcpy(all + n, more, m * sizeof *all);
    qsort(all, n + m, sizeof *all, by_ref);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n + m; i++)
        if (kept == 0 || all[kept - 1] != all[i])
            all[kept++] = all[i];
    *total = kept;
    return all;
}

/* ---- kernels ---- */

static f8_status new_kernel(f8_grouping *s, uint32_t *index)
{
    f8_kernel_plan *grown = f8_arena_grow(&s->scratch, s->kernel, s->n_kernels, &s->kernel_room,
                                          s->n_kernels + 1, sizeof *s->kernel);
    if (!grown)
        return f8_arena_status(&s->scratch, s->unit->diag);
    s->kernel = grown;
    s->kernel[s->n_kernels] = (f8_kernel_plan){0};
    *index = (uint32_t)s->n_kernels++;
    return F8_OK;
}

static f8_status add_part(f8_grouping *s, uint32_t kernel, uint32_t part)
{
    f8_kernel_plan *k = &s->kernel[kernel];
    uint32_t *grown = f8_arena_grow(&s->scratch, k->part, k->n_parts, &k->part_room, k->n_parts + 1,
                                    sizeof *k->part);
    if (!grown)
        return f8_arena_status(&s->scratch, s->unit->diag);
    k->part = grown;
    k->part[k->n_parts++] = part;
    k->n_nodes += s->part[part].n_nodes;
    k->size = f8_phase_sum(k->size, s->part[part].size);
    k->recompute =
        k->n_parts == 1 || k->recompute == s->part[part].recompute ? s->part[part].recompute : 0;
    s->part[part].kernel = kernel;
    return F8_OK;
}

enum { NO_KERNEL = UINT32_MAX, MANY_KERNELS = UINT32_MAX - 1 };

/* The one kernel of this part's level that it reads from. */
static uint32_t kernel_before(const f8_grouping *s, const f8_part *p)
{
    uint32_t found = NO_KERNEL;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const f8_node *n = f8_at(s->g, p->node[i]);
        for (uint32_t k = 0; k < n->n_in; k++) {
            const f8_group_node *base = &s->node[s->view[n->in[k]].base];
            if (f8_listed_ascending(p->node, p->n_nodes, n->in[k]) || base->role != F8_ROLE_FUSED ||
                F8_LEVEL(base->when) != F8_LEVEL(p->when))
                continue;
            const uint32_t kernel = s->part[base->part - 1].kernel;
            if (found != NO_KERNEL && found != kernel)
                return MANY_KERNELS;
            found = kernel;
        }
    }
    return found;
}

static bool may_join(const f8_grouping *s, uint32_t kernel, const f8_part *p)
{
    const f8_kernel_plan *k = &s->kernel[kernel];
    const f8_part *first = &s->part[k->part[0]];
    /* recomputed values would otherwise run as early as the originals */
    return (p->recompute == 0 || p->recompute == k->recompute) &&
           first->rows * first->cols >= p->rows * p->cols && k->n_parts < MAX_PHASES &&
           k->n_nodes + p->n_nodes <= MAX_KERNEL_NODES;
}

/* ---- fills ---- */

/* Whether part p does nothing but set a variable to a constant; its input port's ref if so. */
static f8_ref filled_variable(const f8_grouping *s, const f8_part *p, const uint32_t *uses)
{
    const f8_func *f = s->func;
    const f8_ref out = p->out[0];
    if (p->n_out != 1 || s->node[out].sources.n != 0 || uses[out] != 1)
        return 0;
    for (size_t i = 0; i < f->n_out; i++) {
        if (f->out[i].ref != out || f->out[i].var < 0)
            continue;
        for (size_t k = 0; k < f->n_in; k++)
            if (f->in[k].var == f->out[i].var)
                return f->in[k].ref;
    }
    return 0;
}

/* The last part over domain [rows, cols] that reads each input, + 1. */
static void note_readers(const f8_grouping *s, uint32_t *reader)
{
    for (uint32_t i = 0; i < s->n_parts; i++)
        for (uint32_t j = 0; j < s->part[i].n_nodes; j++) {
            const f8_node *n = f8_at(s->g, s->part[i].node[j]);
            for (uint32_t k = 0; k < n->n_in; k++) {
                const f8_ref base = s->view[n->in[k]].base;
                if (s->g->node[base].op == F8_OP_INPUT &&
                    (!reader[base] || s->part[i].when >= s->part[reader[base] - 1].when))
                    reader[base] = i + 1;
            }
        }
}

/* A gradient is set to zero by the kernel that reads it last, which has its bytes at hand. */
static f8_status merge_fills(f8_grouping *s)
{
    uint32_t *reader = F8_NEW_ARRAY(&s->scratch, uint32_t, s->g->n_nodes);
    uint32_t *uses = F8_NEW_ARRAY(&s->scratch, uint32_t, s->g->n_nodes);
    F8_TRY(f8_arena_status(&s->scratch, s->unit->diag));
    note_readers(s, reader);
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        for (uint32_t i = 0; i < s->g->node[r].n_in; i++)
            uses[s->g->node[r].in[i]]++;
    for (size_t i = 0; i < s->func->n_out; i++)
        uses[s->func->out[i].ref]++;
    size_t kept = 0;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        f8_part *p = &s->part[i];
        const f8_ref variable = filled_variable(s, p, uses);
        f8_part *to = variable && reader[variable] ? &s->part[reader[variable] - 1] : NULL;
        if (!to || to == p || to->rows != p->rows || to->cols != p->cols || to->n_nodes == 0 ||
            to->recompute || !f8_phase_fits(to->size, p->size))
            continue;
        to->node = united(&s->scratch, to->node, to->n_nodes, p->node, p->n_nodes, &to->n_nodes);
        to->out = united(&s->scratch, to->out, to->n_out, p->out, 1, &to->n_out);
        to->size = f8_phase_sum(to->size, p->size);
        F8_TRY(f8_arena_status(&s->scratch, s->unit->diag));
        p->n_nodes = 0; /* merged */
    }
    for (size_t i = 0; i < s->n_parts; i++)
        if (s->part[i].n_nodes > 0)
            s->part[kept++] = s->part[i];
    s->n_parts = kept;
    return F8_OK;
}

/* ---- parts into kernels, in order ---- */

static int by_moment(const void *a, const void *b)
{
    const f8_part *x = a, *y = b;
    if (x->when != y->when)
        return x->when < y->when ? -1 : 1;
    return x->out[0] < y->out[0] ? -1 : x->out[0] > y->out[0];
}

f8_status f8_group_kernels(f8_grouping *s)
{
    if (!s->unit->options.no_fuse)
        F8_TRY(merge_fills(s));
    if (s->n_parts > 0) /* qsort takes no NULL */
        qsort(s->part, s->n_parts, sizeof *s->part, by_moment);
    for (uint32_t i = 0; i < s->n_parts; i++)
        for (uint32_t k = 0; k < s->part[i].n_out; k++)
            s->node[s->part[i].out[k]].part = i + 1;
    /* Scalars computed before anything else (inverse scales, the schedule's) are one kernel, or
     * several where they are many. */
    uint32_t scalars = NO_KERNEL;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        f8_part *p = &s->part[i];
        const bool scalar = p->rows * p->cols == 1 && p->when == 0 && p->recompute == 0;
        uint32_t kernel = s->unit->options.no_fuse ? NO_KERNEL : kernel_before(s, p);
        if (kernel == NO_KERNEL && scalar && scalars != NO_KERNEL &&
            f8_phase_fits(s->kernel[scalars].size, p->size))
            kernel = scalars;
        else if (kernel >= MANY_KERNELS || !may_join(s, kernel, p))
            kernel = NO_KERNEL;
        if (kernel == NO_KERNEL)
            F8_TRY(new_kernel(s, &kernel));
        if (scalar)
            scalars = kernel;
        F8_TRY(add_part(s, kernel, i));
    }
    return F8_OK;
}

/* ---- phases ---- */

/* Whether a value may be placed inside a wider one, with gaps between its rows. */
static bool may_have_gaps(const f8_grouping *s, const uint8_t *in_columns, f8_ref r)
{
    const f8_view *v = &s->view[r];
    return in_columns[v->base] || !f8_view_contiguous(v, f8_type_of(s->g, r));
}

/* Whether a phase is elementwise on contiguous values alone, so that rows need not be told apart.
 */
static bool is_flat(const f8_grouping *s, const uint8_t *in_columns, const f8_phase *p)
{
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const f8_ref r = p->node[i];
        const f8_node *n = f8_at(s->g, r);
        const bool one = f8_type_elements(&n->type) == 1;
        if (f8_is_reduce(n->op) || n->op == F8_OP_ROLL || n->op == F8_OP_EMBEDDING ||
            n->op == F8_OP_TRANSPOSE || in_columns[r] ||
            (!one && f8_type_elements(&n->type) != p->rows * p->cols))
            return false;
        for (uint32_t k = 0; k < n->n_in; k++) {
            const f8_ref o = n->in[k];
            const int64_t size = f8_type_elements(f8_type_of(s->g, o));
            if (s->g->node[o].op == F8_OP_IOTA || may_have_gaps(s, in_columns, o) ||
                (size != 1 && size != p->rows * p->cols))
                return false;
        }
    }
    return true;
}

/* `before` is the part that the group's last phase was made of, or NULL. */
static f8_status add_phase(f8_grouping *s, f8_group *group, const f8_part *before, const f8_part *p,
                           f8_phase_size *size)
{
    f8_arena *arena = s->unit->arena;
    /* Parts of one cell that are in one kernel are one phase. */
    const bool same = before && before->when == p->when && before->rows == p->rows &&
                      before->cols == p->cols && before->piece == p->piece &&
                      f8_phase_fits(*size, p->size);
    *size = f8_phase_sum(same ? *size : (f8_phase_size){0}, p->size);
    f8_phase *to = &group->phase[same ? group->n_phases - 1 : group->n_phases++];
    to->rows = p->rows;
    to->cols = p->cols;
    to->node = united(arena, to->node, to->n_nodes, p->node, p->n_nodes, &to->n_nodes);
    to->out = united(arena, to->out, to->n_out, p->out, p->n_out, &to->n_out);
    return f8_arena_status(arena, s->unit->diag);
}

/* ---- what a group reads and writes ---- */

typedef struct emitter {
    f8_grouping *s;
    uint32_t *seen;                   /* by ref: the last group that listed it */
    uint8_t *in_columns;              /* by ref: an operand of a concatenation of columns */
    f8_ref *list;                     /* scratch */
    f8_ref (*result)[F8_MAX_RESULTS]; /* by ref: PROJECT nodes */
} emitter;

static f8_ref *listed(f8_arena *arena, const f8_ref *list, uint32_t n)
{
    f8_ref *copy = F8_NEW_ARRAY(arena, f8_ref, n);
    if (copy && n)
        memcpy(copy, list, n * sizeof *copy);
    return copy;
}

/* Originals come first: only a kernel that computes nothing but clones is named after one. */
static const char *named_output(const f8_grouping *s, const f8_group *group)
{
    const char *recompute = NULL;
    for (uint32_t i = 0; i < group->n_out; i++) {
        const char *name = s->g->name[group->out[i]];
        if (name && !f8_is_recomputed(s->g, group->out[i]))
            return name;
        recompute = recompute ? recompute : name;
    }
    return recompute;
}

/* The variable that a kernel gives its next value; the parameter, if there are several. */
static const char *replaced_variable(const f8_grouping *s, const f8_group *group)
{
    const f8_port *best = NULL;
    for (uint32_t i = 0; i < group->n_out; i++) {
        const f8_port *p = s->result[group->out[i]];
        if (p && p->var >= 0 && (!best || s->g->module->var[p->var].kind == F8_VAR_PARAM))
            best = p;
    }
    return best ? best->name : NULL;
}

/* The name in listings: the value that is made, the variable that is replaced, or else the last op
 * and something that it works on. */
static const char *name_of(const f8_grouping *s, const f8_group *group)
{
    const char *name = named_output(s, group);
    if (name || (name = replaced_variable(s, group)))
        return name;
    const char *op = f8_op_facts(s->g->node[group->out[0]].op)->name;
    for (uint32_t i = 0; i < group->n_in; i++)
        if (s->g->name[group->in[i]])
            return f8_arena_printf(s->unit->arena, "%s of %s", op, s->g->name[group->in[i]]);
    return op;
}

/* Mark the name of a group that only recomputes. */
static const char *mark_recomputed(const f8_grouping *s, const f8_group *group, const char *name)
{
    for (uint32_t i = 0; i < group->n_out; i++)
        if (!f8_is_recomputed(s->g, group->out[i]))
            return name;
    return f8_arena_printf(s->unit->arena, "%s (recomputed)", name);
}

static f8_status emit_kernel(emitter *e, const f8_kernel_plan *k, f8_group *group, uint32_t number)
{
    f8_grouping *s = e->s;
    f8_arena *arena = s->unit->arena;
    uint32_t n_in = 0, n_out = 0;
    *group = (f8_group){.kind = F8_GROUP_ROWS, .phase = F8_NEW_ARRAY(arena, f8_phase, k->n_parts)};
    F8_TRY(f8_arena_status(arena, s->unit->diag));
    f8_phase_size size = {0};
    for (uint32_t i = 0; i < k->n_parts; i++)
        F8_TRY(add_phase(s, group, i > 0 ? &s->part[k->part[i - 1]] : NULL, &s->part[k->part[i]],
                         &size));
    for (uint32_t i = 0; i < group->n_phases; i++) {
        f8_phase *p = &group->phase[i];
        for (uint32_t j = 0; j < p->n_out; j++) {
            e->seen[p->out[j]] = number;
            e->list[n_out++] = p->out[j];
        }
        if (p->rows > 1 && is_flat(s, e->in_columns, p)) {
            p->cols *= p->rows;
            p->rows = 1;
        }
    }
    group->out = listed(arena, e->list, n_out);
    group->n_out = n_out;
    for (uint32_t i = 0; i < group->n_phases; i++) {
        const f8_phase *p = &group->phase[i];
        for (uint32_t j = 0; j < p->n_nodes; j++)
            for (uint32_t m = 0; m < s->g->node[p->node[j]].n_in; m++) {
                const f8_ref o = s->g->node[p->node[j]].in[m], base = s->view[o].base;
                const bool calc = s->node[base].role == F8_ROLE_CALC && !s->node[base].must;
                /* a node may read memory even where the phase computes the value once more */
                const bool here = f8_listed_ascending(p->node, p->n_nodes, o) &&
                                  !f8_group_memory_edge(s, p->node[j], m);
                if (calc || e->seen[o] == number || e->seen[base] == number || here)
                    continue;
                e->seen[o] = number;
                e->list[n_in++] = o;
            }
    }
    group->in = listed(arena, e->list, n_in);
    group->n_in = n_in;
    F8_TRY(f8_arena_status(arena, s->unit->diag));
    group->name = mark_recomputed(s, group, name_of(s, group));
    return f8_arena_status(arena, s->unit->diag);
}

static f8_group_kind whole_kind(f8_op op)
{
    switch (op) {
    case F8_OP_MATMUL:
    case F8_OP_BATCH_MATMUL:
    case F8_OP_SCALED_MATMUL: return F8_GROUP_GEMM;
    case F8_OP_ATTENTION: return F8_GROUP_ATTENTION;
    case F8_OP_ATTENTION_GRAD: return F8_GROUP_ATTENTION_GRAD;
    case F8_OP_EMBEDDING_GRAD: return F8_GROUP_SCATTER;
    case F8_OP_ALL_GATHER:
    case F8_OP_ALL_TO_ALL:
    case F8_OP_ALL_REDUCE: /* the library's, as the next */
    case F8_OP_REDUCE_SCATTER:
    case F8_OP_ALL_SLICE: return F8_GROUP_COLLECTIVE;
    default: return F8_GROUP_COPY;
    }
}

static f8_status emit_whole(emitter *e, f8_ref r, f8_group *group, uint32_t number)
{
    f8_grouping *s = e->s;
    f8_arena *arena = s->unit->arena;
    const f8_node *n = f8_at(s->g, r);
    uint32_t n_in = 0, n_out = 0;
    *group = (f8_group){.kind = whole_kind(n->op)};
    for (uint32_t i = 0; i < n->n_in; i++)
        if (e->seen[n->in[i]] != number) {
            e->seen[n->in[i]] = number;
            e->list[n_in++] = n->in[i];
        }
    group->in = listed(arena, e->list, n_in);
    group->n_in = n_in;
    e->list[n_out++] = r;
    for (int i = 1; i < f8_op_facts(n->op)->results; i++)
        e->list[n_out++] = e->result[r][i];
    group->out = listed(arena, e->list, n_out);
    group->n_out = n_out;
    F8_TRY(f8_arena_status(arena, s->unit->diag));
    const char *linear = f8_attr_s(s->g, r, F8_A_NAME), *role = f8_attr_s(s->g, r, F8_A_ROLE);
    if (*linear)
        group->name = *role ? f8_arena_printf(arena, "%s.%s", linear, role) : linear;
    else
        group->name = name_of(s, group);
    group->name = mark_recomputed(s, group, group->name);
    group->beside =
        s->unit->options.wgrad_branch && group->kind == F8_GROUP_GEMM && !strcmp(role, "wgrad");
    return f8_arena_status(arena, s->unit->diag);
}

static int by_output(const void *a, const void *b)
{
    const f8_ref x = ((const f8_group *)a)->out[0], y = ((const f8_group *)b)->out[0];
    return x < y ? -1 : x > y;
}

static f8_status setup_emitter(emitter *e, f8_grouping *s)
{
    const f8_graph *g = s->g;
    *e = (emitter){.s = s};
    e->seen = F8_NEW_ARRAY(&s->scratch, uint32_t, g->n_nodes);
    e->in_columns = F8_NEW_ARRAY(&s->scratch, uint8_t, g->n_nodes);
    e->result = f8_arena_array(&s->scratch, g->n_nodes, sizeof *e->result);
    size_t widest = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        widest += g->node[r].n_in;
    e->list = F8_NEW_ARRAY(&s->scratch, f8_ref, widest + g->n_nodes);
    F8_TRY(f8_arena_status(&s->scratch, s->unit->diag));
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        if (n->op == F8_OP_PROJECT)
            e->result[n->in[0]][f8_attr_i(g, r, F8_A_INDEX)] = r;
        const int64_t axis = n->op == F8_OP_CONCAT ? f8_attr_i(g, r, F8_A_AXIS) : 0;
        if (n->op == F8_OP_CONCAT && f8_type_rows(&n->type) > 1 &&
            (axis < 0 ? axis + n->type.rank : axis) == n->type.rank - 1)
            for (uint32_t i = 0; i < n->n_in; i++)
                e->in_columns[s->view[n->in[i]].base] = 1;
    }
    return F8_OK;
}

f8_status f8_group_emit(f8_grouping *s)
{
    f8_arena *arena = s->unit->arena;
    emitter e;
    F8_TRY(setup_emitter(&e, s));
    for (size_t i = 0; i < s->func->n_out; i++)
        s->result[s->view[s->func->out[i].ref].base] = &s->func->out[i];
    size_t room = s->n_kernels;
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        room += s->node[r].live && s->node[r].role == F8_ROLE_WHOLE;
    f8_lowered *program = F8_NEW(arena, f8_lowered);
    f8_group *group = F8_NEW_ARRAY(arena, f8_group, room);
    F8_TRY(f8_arena_status(arena, s->unit->diag));
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_kernels; i++, n++)
        F8_TRY(emit_kernel(&e, &s->kernel[i], &group[n], n + 1));
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        if (s->node[r].live && s->node[r].role == F8_ROLE_WHOLE) {
            F8_TRY(emit_whole(&e, r, &group[n], n + 1));
            n++;
        }
    qsort(group, n, sizeof *group, by_output);
    *program = (f8_lowered){.group = group, .n_groups = n};
    s->func->lowered = program;
    return F8_OK;
}
