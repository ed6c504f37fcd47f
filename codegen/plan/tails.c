/* Tails: a small step that finishes what a launch computed becomes the end of that launch.
 *
 * The largest magnitude of a tensor takes two kernels. The first leaves the largest of each row;
 * the second, whose domain is one row, finds the largest of those and computes a scale. The second
 * takes less time than its launch. The block that ends last in the first launch can do it instead:
 * blocks count themselves in a word of memory, the counter, which is zero before and after a
 * launch. So a launch can be repeated, in a graph or not, and needs nobody to clear the counter. A
 * launch that fails may leave another number, but then the whole program is never run again.
 *
 * A step moves to the launch that it must follow at once: the last of the steps that wrote what it
 * reads, or read or wrote what it writes. All its other dependencies then still run before it, and
 * no step in between has to. This runs after merging: steps that merge with each other need fewer
 * launches than tails do, since a launch of many tensors has no tail. */
#include "codegen/plan/merge.h"

#include <string.h>

typedef struct joiner {
    f8_build *b;
    f8_arena *tmp;
    f8_bytes bytes; /* marks: the number of a step, + 1 */
    uint32_t n;     /* steps */
    uint32_t *at;   /* by step: the step whose launch does its work, itself or an earlier one */
    uint32_t *tail; /* by step: the step that is its tail, + 1; 0: none */
    uint32_t step, latest; /* the step being visited; the mark of the last launch it must follow */
} joiner;

/* ---- which steps ---- */

static bool must_follow(void *user, uint32_t mark)
{
    joiner *j = user;
    if (mark - 1 != j->step && j->at[mark - 1] + 1 > j->latest)
        j->latest = j->at[mark - 1] + 1;
    return true;
}

/* Notes the accesses of the step, and sets `latest`. */
static bool visit(joiner *j, uint32_t step)
{
    const f8_step_builder *d = &j->b->builder[step];
    j->step = step;
    j->latest = 0;
    for (int write = 0; write < 2; write++)
        for (uint32_t i = 0; i < d->n_accesses; i++)
            if (d->access[i].write == write &&
                !f8_bytes_follow(&j->bytes, &d->access[i], step + 1, must_follow, j))
                return false;
    return true;
}

/* The kernel of a step that is one launch of a row kernel for one tensor; else NULL. */
static const f8_kernel *row_kernel(const joiner *j, uint32_t step)
{
    const f8_step_builder *d = &j->b->builder[step];
    if (!f8_build_simple(j->b, d) || d->launch->n_instances != 1)
        return NULL;
    return j->b->source[d->launch->source].kernel; /* NULL: a copy */
}

/* Whether the tail writes nothing that the launch accesses: blocks that have not ended would see
 * it. */
static bool writes_apart(const f8_step_builder *host, const f8_step_builder *tail)
{
    for (uint32_t i = 0; i < tail->n_accesses; i++)
        for (uint32_t k = 0; tail->access[i].write && k < host->n_accesses; k++) {
            const f8_build_access *x = &tail->access[i], *y = &host->access[k];
            if (x->space == y->space && x->port == y->port && x->begin < y->end &&
                y->begin < x->end)
                return false;
        }
    return true;
}

static bool can_join(const joiner *j, uint32_t host, uint32_t step)
{
    const f8_kernel *k = row_kernel(j, host), *tail = row_kernel(j, step);
    const f8_step *h = &j->b->out->step[host], *s = &j->b->out->step[step];
    if (!k || !tail || j->tail[host] || j->at[host] != host || tail->flat || s->ints[0] != 1)
        return false;
    /* the counter, and the numbers of tasks and instances */
    if (h->n_args + s->n_args + h->n_ints + 3 > F8_MULTI_WORDS)
        return false;
    return j->b->target->takes_tail(k, tail) &&
           writes_apart(&j->b->builder[host], &j->b->builder[step]);
}

static f8_status find_tails(joiner *j)
{
    for (uint32_t s = 0; s < j->n; s++) {
        if (!visit(j, s))
            return f8_arena_status(j->tmp, j->b->diag);
        j->at[s] = s;
        if (!j->latest || !can_join(j, j->latest - 1, s))
            continue;
        j->at[s] = j->latest - 1;
        j->tail[j->at[s]] = s + 1;
    }
    return F8_OK;
}

/* ---- the new list of steps ---- */

static f8_status add_source(joiner *j, uint32_t host, uint32_t tail, uint32_t *source)
{
    f8_build *b = j->b;
    f8_kernel *both;
    f8_kernel_source u = b->source[b->builder[host].launch->source];
    F8_TRY(f8_kernel_add_tail(u.kernel, row_kernel(j, tail), b->arena, &both, b->diag));
    u.kernel = both;
    u.text = both->text;
    u.hash = both->hash;
    u.launches = 0;
    return f8_build_intern(b, &u, source);
}

/* A word of zero behind all constants. */
static f8_arg new_counter(f8_build *b, f8_build_access *a)
{
    const int64_t word = sizeof(uint32_t);
    const f8_arg arg = {F8_SPACE_CONST, -1,
                        b->plan->constants_bytes + word * (int64_t)b->n_counters++};
    const int64_t at = arg.offset - b->constants_base; /* as accesses have it */
    *a = (f8_build_access){.space = F8_SPACE_CONST,
                           .port = -1,
                           .begin = at,
                           .end = at + word,
                           .write = true,
                           .whole = true,
                           .adds = true,
                           .width = word};
    return arg;
}

/* Makes the step whose launch does the work of `host` and ends with that of `tail`. */
static f8_status join(joiner *j, uint32_t host, uint32_t tail, f8_step *s, f8_step_builder *d)
{
    f8_build *b = j->b;
    const f8_step *h = &b->out->step[host], *t = &b->out->step[tail];
    const f8_step_builder *x = &b->builder[host], *y = &b->builder[tail];
    *s = *h;
    *d = *x;
    s->n_args = d->n_accesses = h->n_args + t->n_args + 1;
    s->arg = F8_NEW_ARRAY(b->arena, f8_arg, s->n_args);
    d->access = F8_NEW_ARRAY(b->arena, f8_build_access, s->n_args);
    d->launch = F8_NEW(b->arena, f8_build_launch);
    d->origin = F8_NEW_ARRAY(b->arena, uint32_t, 2);
    if (!s->arg || !d->access || !d->launch || !d->origin)
        return f8_build_memory(b);
    memcpy(s->arg, h->arg, h->n_args * sizeof *h->arg);
    memcpy(s->arg + h->n_args, t->arg, t->n_args * sizeof *t->arg);
    memcpy(d->access, x->access, x->n_accesses * sizeof *x->access);
    memcpy(d->access + x->n_accesses, y->access, y->n_accesses * sizeof *y->access);
    s->arg[s->n_args - 1] = new_counter(b, &d->access[s->n_args - 1]);
    *d->launch = *x->launch;
    d->launch->n_args = s->n_args;
    d->launch->tail_args = t->n_args + 1;
    d->origin[0] = x->origin[0];
    d->origin[1] = y->origin[0];
    d->n_origins = 2;
    s->bytes_read += t->bytes_read;
    s->bytes_written += t->bytes_written;
    s->seconds += t->seconds;
    F8_TRY(add_source(j, host, tail, &d->launch->source));
    s->hash = b->source[d->launch->source].hash;
    return F8_OK;
}

static f8_status rewrite(joiner *j)
{
    f8_build *b = j->b;
    f8_step *step = F8_NEW_ARRAY(b->arena, f8_step, j->n + 1);
    f8_step_builder *builder = F8_NEW_ARRAY(b->arena, f8_step_builder, j->n + 1);
    uint32_t n = 0;
    if (!step || !builder)
        return f8_build_memory(b);
    for (uint32_t s = 0; s < j->n; s++) {
        if (j->at[s] != s)
            continue;
        step[n] = b->out->step[s];
        builder[n] = b->builder[s];
        if (j->tail[s])
            F8_TRY(join(j, s, j->tail[s] - 1, &step[n], &builder[n]));
        n++;
    }
    b->out->step = step;
    b->out->n_steps = n;
    b->builder = builder;
    return F8_OK;
}

/* ---- the entry ---- */

static f8_status make_tails(joiner *j)
{
    j->n = j->b->out->n_steps;
    j->bytes.arena = j->tmp;
    j->at = F8_NEW_ARRAY(j->tmp, uint32_t, j->n + 1);
    j->tail = F8_NEW_ARRAY(j->tmp, uint32_t, j->n + 1);
    F8_TRY(f8_arena_status(j->tmp, j->b->diag));
    F8_TRY(find_tails(j));
    return rewrite(j);
}

f8_status f8_build_tails(f8_build *b)
{
    f8_arena tmp;
    f8_arena_init(&tmp, b->options->allocator);
    joiner j = {.b = b, .tmp = &tmp};
    const f8_status s = make_tails(&j);
    f8_arena_end(&tmp);
    return s;
}
