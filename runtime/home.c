/* The memory that the executors of one program share: see home.h. */
#include "runtime/home.h"

#include <string.h>

/* ---- blocks ---- */

void f8_home_add(f8_home *home, int64_t bytes)
{
    home->bytes += bytes;
    if (home->bytes > home->peak)
        home->peak = home->bytes;
}

f8_status f8_block_alloc(f8_tenant *t, int64_t bytes, const char *what, f8_block *out,
                         f8_diag *diag)
{
    uint64_t at = 0;
    *out = (f8_block){0};
    if (bytes == 0)
        return F8_OK;
    F8_TRY(t->home->kind->alloc(t, bytes, what, &at, diag));
    *out = (f8_block){at, bytes}; /* only now: a failed block is nobody's to free */
    f8_home_add(t->home, bytes);
    return F8_OK;
}

void f8_block_free(f8_home *home, f8_block *b)
{
    if (b->at)
        home->kind->free(home, *b);
    home->bytes -= b->bytes;
    *b = (f8_block){0};
}

/* ---- sizes and ports ---- */

static uint32_t n_ports(const f8_plan_func *f, int side)
{
    return side ? f->n_out : f->n_in;
}

static const f8_plan_port *port_of(const f8_plan_func *f, int side)
{
    return side ? f->out : f->in;
}

static int64_t port_room(const f8_plan_port *p, int64_t align)
{
    return p->var >= 0 ? 0 : f8_aligned(f8_type_bytes(&p->type), align);
}

f8_sizes f8_plan_sizes(const f8_plan *plan, int64_t align)
{
    f8_sizes s = {0};
    for (uint32_t f = 0; f < plan->n_funcs; f++) {
        const f8_plan_func *func = &plan->func[f];
        if (func->arena_bytes > s.arena)
            s.arena = func->arena_bytes;
        for (int side = 0; side < 2; side++)
            for (uint32_t k = 0; k < n_ports(func, side); k++)
                s.ports += port_room(&port_of(func, side)[k], align);
        for (uint32_t i = 0; i < func->n_steps; i++)
            for (uint32_t p = 0; p < func->step[i].n_phases; p++)
                if (func->step[i].phase[p].scratch > s.scratch)
                    s.scratch = func->step[i].phase[p].scratch;
    }
    s.scratch = f8_aligned(s.scratch, F8_ARENA_ALIGN);
    return s;
}

int64_t f8_sizes_sum(const f8_sizes *s, const f8_plan *plan, int n_threads, int64_t workspace)
{
    return plan->state_bytes + plan->constants_bytes + s->arena + s->ports +
           s->scratch * n_threads + workspace;
}

static void place_ports(f8_tenant *t)
{
    const f8_port_block *ports = t->ports.block.at ? &t->ports : &t->home->ports;
    int64_t at = 0;
    for (uint32_t i = 0; i < t->plan->n_funcs; i++)
        for (int side = 0; side < 2; side++)
            for (uint32_t k = 0; k < n_ports(&t->plan->func[i], side); k++) {
                const f8_plan_port *p = &port_of(&t->plan->func[i], side)[k];
                f8_live_port *l = &t->port[i][side][k];
                const bool var = p->var >= 0;
                l->bytes = (size_t)f8_type_bytes(&p->type);
                l->own = l->at = var ? t->home->state.at + (uint64_t)t->plan->var[p->var].offset
                                     : ports->block.at + (uint64_t)at;
                l->own_host = l->host = var || !ports->host ? NULL : ports->host + at;
                at += port_room(p, t->home->kind->align);
            }
}

uint64_t f8_home_address(const f8_tenant *t, uint32_t func, const f8_arg *a)
{
    const uint64_t offset = (uint64_t)a->offset;
    switch (a->space) {
    case F8_SPACE_NONE: return 0;
    case F8_SPACE_ARENA: return t->home->arena.at + offset;
    case F8_SPACE_STATE: return t->home->state.at + offset;
    case F8_SPACE_INPUT: return t->port[func][0][a->port].at + offset;
    case F8_SPACE_OUTPUT: return t->port[func][1][a->port].at + offset;
    case F8_SPACE_CONST: return t->constants.at + offset;
    }
    return 0;
}

/* ---- allocation ---- */

/* The memory that a run works in grows to what t needs. On failure nothing has changed. */
static f8_status grow(f8_tenant *t, const int64_t need[3], f8_diag *diag)
{
    static const char *const what[] = {"the arena", "kernel scratch", "workspace"};
    f8_home *home = t->home;
    f8_block *block[] = {&home->arena, &home->scratch, &home->workspace}, fresh[3] = {{0}};
    f8_status status = F8_OK;
    bool moved = false, frees = false;
    for (int i = 0; i < 3 && status == F8_OK; i++)
        if (need[i] > block[i]->bytes) {
            status = f8_block_alloc(t, need[i], what[i], &fresh[i], diag);
            frees |= block[i]->at != 0;
        }
    if (status == F8_OK && frees && home->kind->settle)
        status = home->kind->settle(t, diag);
    for (int i = 0; i < 3; i++) {
        if (!fresh[i].at)
            continue;
        f8_block_free(home, status == F8_OK ? block[i] : &fresh[i]);
        if (status != F8_OK)
            continue;
        *block[i] = fresh[i];
        moved = true;
    }
    for (f8_tenant *other = home->first; other && moved; other = other->next)
        if (other != t)
            home->kind->resolve(other);
    return status;
}

static bool alone(const f8_tenant *t)
{
    return t->home->first == t && !t->next;
}

f8_status f8_home_allocate(f8_tenant *t, int n_threads, int64_t workspace, f8_diag *diag)
{
    const f8_plan *plan = t->plan;
    f8_block *state = &t->home->state;
    const int64_t need[] = {t->sizes.arena, t->sizes.scratch * n_threads, workspace};
    t->planned = f8_sizes_sum(&t->sizes, plan, n_threads, workspace);
    if (alone(t))
        F8_TRY(f8_block_alloc(t, plan->state_bytes, "variables", state, diag));
    else if (plan->state_bytes != state->bytes)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "executors that share variables need the same bytes of them: %lld and %lld",
                       (long long)plan->state_bytes, (long long)state->bytes);
    return grow(t, need, diag);
}

f8_status f8_home_allocate_ports(f8_tenant *t, f8_diag *diag)
{
    const int64_t bytes = t->sizes.ports;
    /* buffers of other executors have been handed out, so they must stay where they are */
    if (alone(t) || bytes > t->home->ports.block.bytes) {
        f8_port_block *ports = alone(t) ? &t->home->ports : &t->ports;
        F8_TRY(f8_block_alloc(t, bytes, "inputs and outputs", &ports->block, diag));
        if (bytes)
            F8_TRY(t->home->kind->clear(t, ports, diag));
    }
    place_ports(t);
    t->home->kind->resolve(t);
    return F8_OK;
}

/* ---- who lives there ---- */

static f8_status make_ports(f8_tenant *t, f8_arena *memory, f8_diag *diag)
{
    const f8_plan *plan = t->plan;
    t->port = f8_arena_array(memory, plan->n_funcs, sizeof *t->port);
    for (uint32_t f = 0; t->port && f < plan->n_funcs; f++)
        for (int side = 0; side < 2; side++)
            t->port[f][side] = F8_NEW_ARRAY(memory, f8_live_port, n_ports(&plan->func[f], side));
    return f8_arena_status(memory, diag);
}

f8_status f8_home_enter(f8_tenant *t, f8_home *like, const f8_home_kind *kind,
                        const f8_allocator *allocator, f8_arena *memory, f8_diag *diag)
{
    f8_home *home = like;
    if (!home) {
        home = allocator->alloc(allocator->user, kind->size, 16);
        if (!home)
            return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                           kind->size);
        memset(home, 0, kind->size);
        home->kind = kind;
        home->allocator = *allocator;
    }
    t->home = home;
    t->next = home->first;
    home->first = t;
    t->sizes = f8_plan_sizes(t->plan, kind->align);
    return make_ports(t, memory, diag);
}

bool f8_home_leave(f8_tenant *t)
{
    f8_home *home = t->home;
    f8_tenant **link = &home->first;
    f8_block_free(home, &t->ports.block);
    while (*link != t)
        link = &(*link)->next;
    *link = t->next;
    return !home->first;
}

void f8_home_end(f8_home *home)
{
    f8_block *const block[] = {&home->state, &home->arena, &home->scratch, &home->workspace,
                               &home->ports.block};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        f8_block_free(home, block[i]);
    const f8_allocator allocator = home->allocator;
    allocator.free(allocator.user, home, home->kind->size);
}
