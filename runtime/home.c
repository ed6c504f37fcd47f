/* The memory that the executors of one program share: see home.h. */
#include "runtime/home.h"

#include <string.h>

#include "ir/base/pattern.h"
#include "runtime/work.h"

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
    F8_TRY(t->home->kind->alloc(t, bytes, false, what, &at, diag));
    *out = (f8_block){at, bytes}; /* only now: a failed block is nobody's to free */
    f8_home_add(t->home, bytes);
    return F8_OK;
}

void f8_block_free(f8_home *home, f8_block *b)
{
    if (b->at)
        home->kind->free(home, *b, false);
    home->bytes -= b->bytes;
    *b = (f8_block){0};
}

/* ---- sizes and ports ---- */

static int64_t port_room(const f8_plan_port *p, const char *external, int64_t align)
{
    return p->var >= 0 || f8_patterns_match(external, p->name)
               ? 0
               : f8_aligned(f8_type_bytes(&p->type), align);
}

/* Whether another function has buffers for its ports. */
static bool is_form(const f8_plan *plan, uint32_t func)
{
    return f8_plan_base(plan->func, plan->n_funcs, func) != func;
}

/* With the padding behind it. */
static int64_t var_room(const f8_plan *plan, uint32_t i)
{
    const int64_t end = i + 1 < plan->n_vars ? plan->var[i + 1].offset : plan->state_bytes;
    return end - plan->var[i].offset;
}

f8_sizes f8_plan_sizes(const f8_plan *plan, const char *external, int64_t align)
{
    f8_sizes s = {.state = plan->state_bytes};
    for (uint32_t i = 0; i < plan->n_vars; i++)
        if (f8_patterns_match(external, plan->var[i].name))
            s.state -= var_room(plan, i);
    for (uint32_t f = 0; f < plan->n_funcs; f++) {
        const f8_plan_func *func = &plan->func[f];
        if (func->arena_bytes > s.arena)
            s.arena = func->arena_bytes;
        for (int side = 0; side < 2; side++) {
            uint32_t n;
            const f8_plan_port *port = f8_plan_ports(func, side, &n);
            for (uint32_t k = 0; k < n && !is_form(plan, f); k++)
                s.ports += port_room(&port[k], external, align);
        }
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
    return s->state + plan->constants_bytes + s->arena + s->ports + s->scratch * n_threads +
           workspace;
}

/* ---- variables ---- */

f8_status f8_unbound_variable(const char *name, f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "variable '%s' is external: it has no memory until a tensor is bound to it",
                   name);
}

f8_status f8_unbound_port(bool output, const char *name, const char *func, f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "%s '%s' of '%s' is external: it has no memory until a buffer is bound to it",
                   output ? "output" : "input", name, func);
}

/* Lay out the home's own memory of variables, without gaps where external ones would lie. */
static f8_status make_vars(f8_home *home, const f8_plan *plan, f8_diag *diag)
{
    const f8_allocator *a = &home->allocator;
    const size_t bytes = plan->n_vars * sizeof *home->var;
    uint64_t at = home->state.at;
    if (!bytes)
        return F8_OK;
    home->var = a->alloc(a->user, bytes, 16);
    if (!home->var)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       bytes);
    home->n_vars = plan->n_vars;
    for (uint32_t i = 0; i < plan->n_vars; i++) {
        const f8_plan_var *v = &plan->var[i];
        const bool external = f8_patterns_match(home->external, v->name);
        home->var[i] = (f8_live_var){v->offset, external ? 0 : at, external ? 0 : at};
        at += external ? 0 : (uint64_t)var_room(plan, i);
    }
    return F8_OK;
}

/* The address of a byte of the plan's state. Variables lie there in their order, and no place
 * reaches beyond one variable. */
static uint64_t var_address(const f8_home *home, int64_t offset)
{
    uint32_t low = 0, high = home->n_vars; /* the last variable that begins at or before offset */
    if (!high)
        return 0;
    while (high - low > 1) {
        const uint32_t mid = (low + high) / 2;
        if (home->var[mid].offset <= offset)
            low = mid;
        else
            high = mid;
    }
    const f8_live_var *v = &home->var[low];
    return v->at ? v->at + (uint64_t)(offset - v->offset) : 0;
}

static void mark_stale(f8_tenant *t, uint32_t var, uint64_t at)
{
    for (uint32_t f = 0; f < t->plan->n_funcs; f++)
        for (int side = 0; side < 2; side++) {
            uint32_t n;
            const f8_plan_port *port = f8_plan_ports(&t->plan->func[f], side, &n);
            for (uint32_t k = 0; k < n; k++) {
                f8_live_port *l = &t->port[f][side][k];
                if (port[k].var != (int32_t)var)
                    continue;
                l->own = l->at = at;
                t->stale[f] = true;
            }
        }
}

void f8_home_bind_var(f8_home *home, uint32_t var, uint64_t at)
{
    f8_live_var *v = &home->var[var];
    const uint64_t before = v->at;
    v->at = at ? at : v->own;
    for (f8_tenant *t = home->first; t && v->at != before; t = t->next)
        mark_stale(t, var, v->at);
}

void f8_home_port_moved(f8_tenant *t, uint32_t func)
{
    const f8_plan *plan = t->plan;
    const uint32_t base = f8_plan_base(plan->func, plan->n_funcs, func);
    t->stale[base] = true;
    if (plan->func[base].first)
        t->stale[plan->func[base].first - 1] = true;
}

static f8_status check_bound(const f8_tenant *t, uint32_t func, f8_diag *diag)
{
    const f8_plan *plan = t->plan;
    const uint32_t base = f8_plan_base(plan->func, plan->n_funcs, func);
    for (int side = 0; side < 2; side++) {
        uint32_t n;
        const f8_plan_port *p = f8_plan_ports(&plan->func[func], side, &n);
        for (uint32_t k = 0; k < n; k++, p++) {
            if (t->port[func][side][k].at || t->port[func][side][k].bytes == 0)
                continue;
            return p->var >= 0 ? f8_unbound_variable(plan->var[p->var].name, diag)
                               : f8_unbound_port(side, p->name, plan->func[base].name, diag);
        }
    }
    return F8_OK;
}

static void all_stale(f8_tenant *t)
{
    for (uint32_t f = 0; f < t->plan->n_funcs; f++)
        t->stale[f] = true;
}

/* The memory that other programs share may have grown since. */
static void follow_work(f8_home *home)
{
    const f8_work *w = home->work;
    if (!w || home->generation == w->generation)
        return;
    home->arena = w->block[0];
    home->scratch = w->block[1];
    home->workspace = w->block[2];
    home->generation = w->generation;
    for (f8_tenant *t = home->first; t; t = t->next)
        all_stale(t);
}

f8_status f8_home_ready(f8_tenant *t, uint32_t func, f8_diag *diag)
{
    follow_work(t->home);
    if (!t->stale[func])
        return F8_OK;
    F8_TRY(check_bound(t, func, diag));
    t->home->kind->resolve(t, func);
    t->stale[func] = false;
    return F8_OK;
}

static void resolve_all(f8_tenant *t)
{
    for (uint32_t f = 0; f < t->plan->n_funcs; f++)
        t->home->kind->resolve(t, f);
}

/* ---- ports ---- */

static void place_ports(f8_tenant *t)
{
    const char *external = t->home->external;
    const f8_port_block *ports = t->ports.block.at ? &t->ports : &t->home->ports;
    int64_t at = 0;
    for (uint32_t i = 0; i < t->plan->n_funcs; i++)
        for (int side = 0; side < 2; side++) {
            uint32_t n;
            const f8_plan_port *p = f8_plan_ports(&t->plan->func[i], side, &n);
            for (uint32_t k = 0; k < n; k++, p++) {
                f8_live_port *l = &t->port[i][side][k];
                if (p->var < 0 && is_form(t->plan, i))
                    continue;
                const bool none = p->var >= 0 || f8_patterns_match(external, p->name);
                l->bytes = (size_t)f8_type_bytes(&p->type);
                l->own = l->at = p->var >= 0 ? t->home->var[p->var].at
                                 : none      ? 0
                                             : ports->block.at + (uint64_t)at;
                l->own_host = l->host = none || !ports->host ? NULL : ports->host + at;
                at += port_room(p, external, t->home->kind->align);
            }
        }
}

uint64_t f8_home_address(const f8_tenant *t, uint32_t func, const f8_arg *a)
{
    const uint64_t offset = (uint64_t)a->offset;
    switch (a->space) {
    case F8_SPACE_NONE: return 0;
    case F8_SPACE_ARENA: return t->home->arena.at + offset;
    case F8_SPACE_STATE: return var_address(t->home, a->offset);
    case F8_SPACE_INPUT:
    case F8_SPACE_OUTPUT: {
        const uint64_t at = t->port[func][a->space == F8_SPACE_OUTPUT][a->port].at;
        return at ? at + offset : 0;
    }
    case F8_SPACE_CONST: return t->constants.at + offset;
    }
    return 0;
}

/* ---- allocation ---- */

static const char *const block_names[] = {"the arena", "kernel scratch", "workspace"};

/* As f8_block_alloc and f8_block_free, but shared memory counts for nobody's home. */
static f8_status get_block(f8_tenant *t, int64_t bytes, int i, f8_block *out, f8_diag *diag)
{
    if (!t->home->work)
        return f8_block_alloc(t, bytes, block_names[i], out, diag);
    F8_TRY(t->home->kind->alloc(t, bytes, true, block_names[i], &out->at, diag));
    out->bytes = bytes;
    t->home->work->bytes += bytes;
    return F8_OK;
}

static void give_block(f8_home *home, f8_block *b)
{
    if (!home->work) {
        f8_block_free(home, b);
        return;
    }
    if (b->at)
        home->kind->free(home, *b, true);
    home->work->bytes -= b->bytes;
    *b = (f8_block){0};
}

/* The memory that a run works in grows to what t needs. On failure nothing has changed. */
static f8_status grow(f8_tenant *t, const int64_t need[F8_WORK_BLOCKS], f8_diag *diag)
{
    f8_home *home = t->home;
    f8_work *w = home->work;
    f8_block *own[] = {&home->arena, &home->scratch, &home->workspace}, fresh[3] = {{0}};
    f8_status status = F8_OK;
    bool moved = false, frees = false;
    for (int i = 0; i < F8_WORK_BLOCKS && status == F8_OK; i++) {
        const f8_block *block = w ? &w->block[i] : own[i];
        if (need[i] > block->bytes) {
            status = get_block(t, need[i], i, &fresh[i], diag);
            frees |= block->at != 0;
        }
    }
    if (status == F8_OK && frees && home->kind->settle)
        status = home->kind->settle(t, diag);
    for (int i = 0; i < F8_WORK_BLOCKS; i++) {
        f8_block *block = w ? &w->block[i] : own[i];
        if (!fresh[i].at)
            continue;
        give_block(home, status == F8_OK ? block : &fresh[i]);
        if (status != F8_OK)
            continue;
        *block = fresh[i];
        moved = true;
    }
    if (w) {
        w->generation += moved;
        if (status == F8_OK)
            follow_work(home);
        return status;
    }
    for (f8_tenant *other = home->first; other && moved; other = other->next)
        if (other != t)
            resolve_all(other);
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
    for (int i = 0; i < F8_WORK_BLOCKS && t->home->work; i++)
        t->planned -= need[i];
    if (alone(t))
        F8_TRY(f8_block_alloc(t, t->sizes.state, "variables", state, diag));
    else if (t->sizes.state != state->bytes || plan->n_vars != t->home->n_vars)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "executors that share variables need the same bytes of them: %lld and %lld",
                       (long long)t->sizes.state, (long long)state->bytes);
    if (alone(t))
        F8_TRY(make_vars(t->home, plan, diag));
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
    resolve_all(t);
    for (uint32_t f = 0; f < t->plan->n_funcs; f++)
        t->stale[f] = t->home->external != NULL; /* the first run looks for what is not bound */
    return F8_OK;
}

/* ---- who lives there ---- */

static f8_status make_ports(f8_tenant *t, f8_arena *memory, f8_diag *diag)
{
    const f8_plan *plan = t->plan;
    t->port = f8_arena_array(memory, plan->n_funcs, sizeof *t->port);
    t->stale = F8_NEW_ARRAY(memory, bool, plan->n_funcs);
    for (uint32_t f = 0; t->port && f < plan->n_funcs; f++)
        for (int side = 0; side < 2; side++) {
            uint32_t n;
            f8_plan_ports(&plan->func[f], side, &n);
            t->port[f][side] = F8_NEW_ARRAY(memory, f8_live_port, n);
        }
    for (uint32_t f = 0; t->port && f < plan->n_funcs; f++) /* the form has as many, or more */
        for (int side = 0; side < 2 && plan->func[f].first; side++)
            t->port[f][side] = t->port[plan->func[f].first - 1][side];
    return f8_arena_status(memory, diag);
}

f8_status f8_home_enter(f8_tenant *t, f8_home *like, const f8_home_kind *kind,
                        const f8_allocator *allocator, const char *external, f8_arena *memory,
                        f8_diag *diag)
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
        home->external = external;
    }
    t->home = home;
    t->next = home->first;
    home->first = t;
    t->sizes = f8_plan_sizes(t->plan, home->external, kind->align);
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
    f8_block *const block[] = {&home->state, &home->ports.block, &home->arena, &home->scratch,
                               &home->workspace};
    const size_t shared = home->work ? F8_WORK_BLOCKS : 0;
    for (size_t i = 0; i < sizeof block / sizeof *block - shared; i++)
        f8_block_free(home, block[i]);
    const f8_allocator allocator = home->allocator;
    if (home->var)
        allocator.free(allocator.user, home->var, home->n_vars * sizeof *home->var);
    allocator.free(allocator.user, home, home->kind->size);
}
