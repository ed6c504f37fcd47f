/* The check that no task of a launch accesses bytes that another task of it writes.
 *
 * Tasks run in any order and at the same time: steps whose tasks access the same bytes are refused,
 * for they would not give the result of running the tasks in sequence. Two accesses of one launch,
 * one of them a write, may share bytes only so:
 *
 * - Instances of a multi-tensor launch never share bytes.
 * - In an elementwise access, each element of the domain is read and written at its own address:
 *   both accesses have the same address and stride, and their element has the same size.
 * - A value of the rows is allowed in the same way, if one block (or one thread) does all of a row.
 * - Anything else is allowed only if the launch has a single task, whose threads wait for each
 *   other.
 * - The tail of a launch reads what its tasks have written, and it may write what it reads itself:
 *   one block does it when all tasks are done. It writes nothing that the tasks access.
 *
 * The memory pass shares storage by the same rules, but it does not know tasks; only this file
 * knows both. A step that is no row kernel may not share bytes at all. */
#include "codegen/cuda/build.h"

#include <inttypes.h>

#include "codegen/cuda/print.h"

/* One instance of a row kernel's launch. */
typedef struct rows_launch {
    const f8_kernel *k;
    const int64_t *ints;
    int64_t tasks;
    f8_extent domain;
    bool
        own_rows; /* every thread that has the row loads its values before any thread stores them */
} rows_launch;

/* Whether x and y have bytes in common. Where one of them repeats with a pitch, the other may fit
 * between its pieces. */
static bool overlap(const f8_build_access *x, const f8_build_access *y)
{
    if (x->space != y->space || x->port != y->port || x->begin >= y->end || y->begin >= x->end)
        return false;
    const int64_t pitch = x->pitch ? x->pitch : y->pitch;
    if (!pitch || (x->pitch && y->pitch && x->pitch != y->pitch) || x->width > pitch ||
        y->width > pitch)
        return true;
    const int64_t ahead = ((y->begin - x->begin) % pitch + pitch) % pitch;
    return ahead < x->width || ahead + y->width > pitch;
}

/* Whether each [row, column] of the buffer's extent has its own element, in the order of the
 * domain. */
static bool in_order(const f8_kernel *k, uint32_t buffer)
{
    const f8_kbuffer *b = &k->buffer[buffer];
    if (b->map >= 0 || b->ids >= 0 || b->transposed || b->block)
        return false;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (i->buffer == (int32_t)buffer && (f8_kinstr_is_partial(i) || i->group))
            return false;
    }
    return true;
}

/* Whether, where the two overlap, the same task reads and writes each element. */
static bool in_place(const rows_launch *l, uint32_t i, uint32_t j)
{
    const f8_kbuffer *x = &l->k->buffer[i], *y = &l->k->buffer[j];
    const int64_t x_stride = x->stride < 0 ? 0 : l->ints[x->stride];
    const int64_t y_stride = y->stride < 0 ? 0 : l->ints[y->stride];
    if (x->ext != y->ext || f8_dtype_size(x->dtype) != f8_dtype_size(y->dtype) ||
        x_stride != y_stride || !in_order(l->k, i) || !in_order(l->k, j))
        return false;
    return x->ext == l->domain || (x->ext == F8_EXT_ROW && l->own_rows);
}

static const char *name_of(const f8_build *b, f8_ref r)
{
    const char *name = r ? b->func->graph->name[r] : NULL;
    if (!r)
        return "room to work in";
    return name ? f8_arena_printf(b->arena, "'%s' (%%%u)", name, r)
                : f8_arena_printf(b->arena, "%%%u", r);
}

static f8_status shared(f8_build *b, const f8_step *s, const f8_build_access *x,
                        const f8_build_access *y, const char *why)
{
    const f8_ref at = x->value ? x->value : y->value;
    const char *written = name_of(b, x->value), *other = name_of(b, y->value);
    if (!written || !other)
        return f8_build_memory(b);
    return f8_fail(b->diag, F8_ERR_INTERNAL, at ? b->func->graph->loc[at] : F8_NOWHERE,
                   "group '%s' of '%s' writes %s, bytes %" PRId64 " to %" PRId64
                   ", and %s %s, bytes %" PRId64 " to %" PRId64 ", of the same memory: %s",
                   s->name, b->func->name, written, x->begin, x->end, y->write ? "writes" : "reads",
                   other, y->begin, y->end, why);
}

/* Checks accesses x, which writes, and y of a launch with a tail; one of them or both are the
 * tail's. The last argument is the counter, whose word nothing else may access. */
static f8_status check_tail(f8_build *b, uint32_t step, uint32_t n_args, uint32_t i, uint32_t j)
{
    const f8_step *s = &b->out->step[step];
    const f8_build_access *x = &b->builder[step].access[i], *y = &b->builder[step].access[j];
    const uint32_t tail = n_args - b->builder[step].launch->tail_args, counter = n_args - 1;
    const bool in_tail = i >= tail && j >= tail, after = i < tail && !y->write;
    return i != counter && j != counter && (in_tail || after)
               ? F8_OK
               : shared(b, s, x, y, "tasks of one launch, and its tail");
}

/* Checks the accesses i, which writes, and j of a step. */
static f8_status check_pair(f8_build *b, uint32_t step, const rows_launch *l, uint32_t n_args,
                            uint32_t i, uint32_t j)
{
    const f8_step *s = &b->out->step[step];
    const f8_build_access *x = &b->builder[step].access[i], *y = &b->builder[step].access[j];
    if (!overlap(x, y))
        return F8_OK;
    if (!l)
        return shared(b, s, x, y, "nothing there is written in place");
    if (i / n_args != j / n_args)
        return shared(b, s, x, y, "instances of one launch");
    if (i >= n_args - b->builder[step].launch->tail_args ||
        j >= n_args - b->builder[step].launch->tail_args)
        return check_tail(b, step, n_args, i, j);
    const rows_launch *mine = &l[i / n_args];
    const uint32_t p = i % n_args, q = j % n_args;
    if (x->begin == y->begin && in_place(mine, p, q))
        return F8_OK;
    if (mine->tasks > 1)
        return shared(b, s, x, y, "tasks of one launch, in any order");
    if (mine->k->buffer[p].ext == F8_EXT_ROW && mine->domain != F8_EXT_ROW && !mine->own_rows)
        return shared(b, s, x, y, "threads that share a row");
    return F8_OK;
}

static f8_status describe(f8_build *b, uint32_t step, const f8_build_launch *launch,
                          rows_launch **out)
{
    const f8_kernel *k = b->source[launch->source].kernel;
    f8_cuda_layout layout;
    F8_TRY(f8_cuda_rows_layout(b->facts, k, &layout, b->diag));
    rows_launch *l = *out = F8_NEW_ARRAY(b->arena, rows_launch, launch->n_instances);
    if (!l)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < launch->n_instances; i++) {
        const int64_t *ints = b->out->step[step].ints + launch->first_int + i * launch->n_ints;
        l[i] = (rows_launch){.k = k, .ints = ints, .tasks = launch->n_tasks[i]};
        l[i].own_rows = layout.points ? layout.vectors == 1 : !layout.split;
        l[i].domain = k->flat ? (ints[0] > 1 ? F8_EXT_FULL : F8_EXT_ONE)
                              : (ints[0] > 1 ? F8_EXT_ROW : 0) | (k->cols > 1 ? F8_EXT_COL : 0);
    }
    return F8_OK;
}

static f8_status check_step(f8_build *b, uint32_t step)
{
    const f8_step_builder *d = &b->builder[step];
    const f8_build_launch *launch = d->launch;
    rows_launch *l = NULL;
    if (d->n_launches == 1 && b->source[launch->source].kind == F8_SOURCE_ROWS) {
        if (d->n_accesses != launch->n_instances * launch->n_args)
            return f8_fail(b->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                           "group '%s' of '%s': %u arguments, %u of them known",
                           b->out->step[step].name, b->func->name,
                           launch->n_instances * launch->n_args, d->n_accesses);
        F8_TRY(describe(b, step, launch, &l));
    }
    for (uint32_t i = 0; i < d->n_accesses; i++)
        for (uint32_t j = 0; d->access[i].write && j < d->n_accesses; j++)
            if (j != i && !(d->access[j].write && j < i))
                F8_TRY(check_pair(b, step, l, l ? launch->n_args : 1, i, j));
    return F8_OK;
}

f8_status f8_cuda_check_steps(f8_build *b)
{
    for (uint32_t i = 0; i < b->out->n_steps; i++)
        F8_TRY(check_step(b, i));
    return F8_OK;
}
