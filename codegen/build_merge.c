/* Multi-tensor launches: steps of one function that run the same kernel become one.
 *
 * An optimizer has one small kernel per parameter, and a launch costs more than such a kernel. A
 * step may join an earlier one of its kernel when nothing between them, nor the one joined, touches
 * memory that it writes, or writes memory that it touches: it then runs earlier and beside other
 * instances, and no value can tell. Row and copy kernels only, of one launch each; each instance
 * does what its own launch did.
 *
 * It is done twice: first on copies of the lists, as if every temporary (build_rename.c) had memory
 * of its own, which shows the temporaries that must; then in earnest. */
#include "codegen/build_parts.h"

#include <string.h>

/* Marked temporaries are taken to have memory of their own. */
static bool overlap(const f8_build_access *x, const f8_build_access *y)
{
    if (x->temp || y->temp)
        return (x->write || y->write) && x->temp == y->temp;
    return (x->write || y->write) && x->space == y->space && x->port == y->port &&
           x->begin < y->end && y->begin < x->end;
}

static bool conflict(const f8_build_draft *x, const f8_build_draft *y)
{
    for (uint32_t i = 0; i < x->n_accesses; i++)
        for (uint32_t k = 0; k < y->n_accesses; k++)
            if (overlap(&x->access[i], &y->access[k]))
                return true;
    return false;
}

/* Which of the steps [0, n) step `at` may join; n when there is none. */
static uint32_t host_of(const f8_build *b, uint32_t n, uint32_t at)
{
    const f8_build_draft *mine = &b->draft[at];
    if (!f8_build_simple(b, mine))
        return n;
    const uint32_t most = b->target->most_instances(&b->unit[mine->launch->unit]);
    if (most < 2)
        return n;
    for (uint32_t i = n; i-- > 0;) {
        const f8_build_draft *d = &b->draft[i];
        if (conflict(d, mine))
            return n;
        if (f8_build_simple(b, d) && d->launch->unit == mine->launch->unit &&
            d->launch->n_instances < most)
            return i;
    }
    return n;
}

/* How much the arrays of a step that others joined can hold. */
typedef struct rooms {
    size_t arg, ints, tasks, access;
} rooms;

/* *to gets n more elements. */
static bool append(f8_arena *a, void *to, size_t used, size_t *room, const void *from, size_t n,
                   size_t size)
{
    char *old;
    memcpy(&old, to, sizeof old);
    char *grown = f8_arena_grow(a, old, used, room, used + n, size);
    if (!grown)
        return false;
    memcpy(grown + used * size, from, n * size);
    memcpy(to, &grown, sizeof grown);
    return true;
}

static f8_status join(f8_build *b, uint32_t host, uint32_t guest, rooms *r)
{
    f8_step *s = &b->out->step[host];
    const f8_step *t = &b->out->step[guest];
    f8_build_draft *d = &b->draft[host];
    const f8_build_draft *e = &b->draft[guest];
    if (!append(b->arena, &s->arg, s->n_args, &r->arg, t->arg, t->n_args, sizeof *s->arg) ||
        !append(b->arena, &s->ints, s->n_ints, &r->ints, t->ints, t->n_ints, sizeof *s->ints) ||
        !append(b->arena, &d->access, d->n_accesses, &r->access, e->access, e->n_accesses,
                sizeof *d->access) ||
        !append(b->arena, &d->launch->n_tasks, d->launch->n_instances, &r->tasks,
                e->launch->n_tasks, 1, sizeof *d->launch->n_tasks))
        return f8_arena_status(b->arena, b->diag);
    s->n_args += t->n_args;
    s->n_ints += t->n_ints;
    s->bytes_read += t->bytes_read;
    s->bytes_written += t->bytes_written;
    d->n_accesses += e->n_accesses;
    d->launch->n_instances++;
    return F8_OK;
}

static f8_status rename_merged(f8_build *b, f8_step *s, uint32_t n_instances)
{
    if (n_instances > 1)
        s->name = f8_arena_printf(b->arena, "%s and %u more", s->name, n_instances - 1);
    return s->name ? F8_OK : f8_arena_status(b->arena, b->diag);
}

static f8_status merge(f8_build *b)
{
    f8_plan_func *f = b->out;
    rooms *room = F8_NEW_ARRAY(b->arena, rooms, f->n_steps + 1);
    if (!room)
        return f8_arena_status(b->arena, b->diag);
    uint32_t n = 0; /* steps that stay; the list is closed up on the way */
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const uint32_t host = host_of(b, n, i);
        if (host < n) {
            F8_TRY(join(b, host, i, &room[host]));
            continue;
        }
        f->step[n] = f->step[i];
        b->draft[n++] = b->draft[i];
    }
    f->n_steps = n;
    return F8_OK;
}

/* Merge copies of the lists; chosen[i] is set for every temporary of a merged step. */
static f8_status rehearse(f8_build *b, bool *chosen)
{
    f8_plan_func *f = b->out;
    const f8_plan_func saved = *f;
    f8_build_draft *drafts = b->draft;
    f->step = F8_NEW_ARRAY(b->arena, f8_step, f->n_steps + 1);
    b->draft = F8_NEW_ARRAY(b->arena, f8_build_draft, f->n_steps + 1);
    f8_build_launch *launch = F8_NEW_ARRAY(b->arena, f8_build_launch, f->n_steps + 1);
    if (!f->step || !b->draft || !launch)
        return f8_arena_status(b->arena, b->diag);
    for (uint32_t i = 0; i < f->n_steps; i++) {
        f->step[i] = saved.step[i];
        b->draft[i] = drafts[i];
        if (drafts[i].n_launches != 1)
            continue;
        launch[i] = *drafts[i].launch;
        b->draft[i].launch = &launch[i];
    }
    F8_TRY(merge(b));
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const f8_build_draft *d = &b->draft[i];
        for (uint32_t k = 0; k < d->n_accesses; k++)
            if (d->access[k].temp && d->launch->n_instances > 1)
                chosen[d->access[k].temp - 1] = true;
    }
    *f = saved;
    b->draft = drafts;
    return F8_OK;
}

f8_status f8_build_merge(f8_build *b)
{
    f8_build_temp *temp;
    uint32_t n;
    F8_TRY(f8_build_find_temps(b, &temp, &n));
    bool *chosen = F8_NEW_ARRAY(b->arena, bool, n + 1);
    if (!chosen)
        return f8_arena_status(b->arena, b->diag);
    F8_TRY(rehearse(b, chosen));
    f8_build_place_temps(b, temp, n, chosen);
    F8_TRY(merge(b));
    for (uint32_t i = 0; i < b->out->n_steps; i++)
        if (b->draft[i].n_launches == 1)
            F8_TRY(rename_merged(b, &b->out->step[i], b->draft[i].launch->n_instances));
    return F8_OK;
}
