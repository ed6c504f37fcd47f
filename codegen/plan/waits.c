/* Waits for collectives: a collective that travels goes on while the next steps run. Its WAIT comes
 * right before the first step that reads or writes what it receives, or that writes what it sends;
 * at the latest at the function's end. Steps say which bytes they access, so no pass before has to
 * know where a wait will be. */
#include "codegen/plan/parts.h"

typedef struct waiter {
    const f8_step *step; /* before waits were added */
    const f8_step_builder *builder;
    f8_step *to; /* with the waits */
    f8_step_builder *to_builder;
    uint32_t n;
    /* the collectives under way: their old index, and their new one */
    uint32_t old[F8_MOST_UNDER_WAY], at[F8_MOST_UNDER_WAY], n_under_way;
} waiter;

static bool share_bytes(const f8_build_access *x, const f8_build_access *y)
{
    return x->space == y->space && x->port == y->port && x->begin < y->end && y->begin < x->end;
}

/* Whether step s must come after the end of the collective. */
static bool must_follow(const f8_step_builder *s, const f8_step_builder *collective)
{
    for (uint32_t i = 0; i < s->n_accesses; i++)
        for (uint32_t k = 0; k < collective->n_accesses; k++)
            if ((s->access[i].write || collective->access[k].write) &&
                share_bytes(&s->access[i], &collective->access[k]))
                return true;
    return false;
}

/* Adds the wait for entry k of those under way. */
static void add_wait(waiter *w, uint32_t k)
{
    const f8_step *of = &w->step[w->old[k]];
    w->to_builder[w->n] = (f8_step_builder){0};
    w->to[w->n++] = (f8_step){.kind = F8_STEP_WAIT,
                              .name = of->name,
                              .arg = of->arg,
                              .ints = of->ints,
                              .waits = w->at[k]};
    w->n_under_way--;
    for (; k < w->n_under_way; k++) {
        w->old[k] = w->old[k + 1];
        w->at[k] = w->at[k + 1];
    }
}

static void add_step(waiter *w, uint32_t i)
{
    const f8_step *s = &w->step[i];
    for (uint32_t k = 0; k < w->n_under_way;)
        if (must_follow(&w->builder[i], &w->builder[w->old[k]]))
            add_wait(w, k);
        else
            k++;
    if (s->kind == F8_STEP_COLLECTIVE && f8_collective_travels(s->collective.kind)) {
        if (w->n_under_way == F8_MOST_UNDER_WAY)
            add_wait(w, 0);
        w->old[w->n_under_way] = i;
        w->at[w->n_under_way++] = w->n;
    }
    w->to_builder[w->n] = w->builder[i];
    w->to[w->n++] = *s;
}

f8_status f8_build_waits(f8_build *b)
{
    f8_plan_func *f = b->out;
    waiter w = {.step = f->step, .builder = b->builder};
    uint32_t n = f->n_steps;
    for (uint32_t i = 0; i < f->n_steps; i++)
        n += f->step[i].kind == F8_STEP_COLLECTIVE &&
             f8_collective_travels(f->step[i].collective.kind);
    if (n == f->n_steps)
        return F8_OK;
    w.to = F8_NEW_ARRAY(b->arena, f8_step, n);
    w.to_builder = F8_NEW_ARRAY(b->arena, f8_step_builder, n);
    if (!w.to || !w.to_builder)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < f->n_steps; i++)
        add_step(&w, i);
    while (w.n_under_way)
        add_wait(&w, 0);
    f->step = w.to;
    f->n_steps = n;
    b->builder = w.to_builder;
    return F8_OK;
}
