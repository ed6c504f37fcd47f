/* The executor's memory, alone or shared by a program's executors: see exec_internal.h. */
#include <string.h>
#include <sys/mman.h>

#include "runtime/exec_internal.h"

enum { ALIGN = 64, HUGE = 2 << 20 };

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- blocks ---- */

static void add_bytes(f8_exec_home *home, int64_t bytes)
{
    home->bytes += bytes;
    if (home->bytes > home->peak)
        home->peak = home->bytes;
}

/* Large buffers sit on huge-page boundaries: a step walks hundreds of MB, and 4 KiB pages would
 * cost a TLB miss every few rows. */
static f8_status block_alloc(f8_exec_home *home, int64_t bytes, const char *what,
                             f8_exec_block *out, f8_diag *diag)
{
    *out = (f8_exec_block){0};
    if (bytes == 0)
        return F8_OK;
    const size_t size = (size_t)round_up(bytes, ALIGN);
    void *p = home->allocator.alloc(home->allocator.user, size, bytes >= 2 * HUGE ? HUGE : ALIGN);
    if (!p)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %lld bytes were wanted for %s", (long long)bytes, what);
    if (bytes >= 2 * HUGE)
        madvise(p, size, MADV_HUGEPAGE); /* advice: the run is right without it */
    add_bytes(home, bytes);
    *out = (f8_exec_block){p, bytes};
    return F8_OK;
}

static void block_free(f8_exec_home *home, f8_exec_block *b)
{
    if (b->p)
        home->allocator.free(home->allocator.user, b->p, (size_t)round_up(b->size, ALIGN));
    home->bytes -= b->size;
    *b = (f8_exec_block){0};
}

/* ---- sizes ---- */

static int64_t port_bytes(const f8_plan_port *p)
{
    return p->var >= 0 ? 0 : round_up(f8_type_bytes(&p->type), ALIGN);
}

typedef struct sizes {
    int64_t arena, ports, scratch; /* scratch: of one thread */
} sizes;

static sizes measure(const f8_plan *plan)
{
    sizes s = {0};
    for (uint32_t f = 0; f < plan->n_funcs; f++) {
        const f8_plan_func *func = &plan->func[f];
        if (func->arena_bytes > s.arena)
            s.arena = func->arena_bytes;
        for (uint32_t i = 0; i < func->n_in; i++)
            s.ports += port_bytes(&func->in[i]);
        for (uint32_t i = 0; i < func->n_out; i++)
            s.ports += port_bytes(&func->out[i]);
        for (uint32_t i = 0; i < func->n_steps; i++)
            for (uint32_t p = 0; p < func->step[i].n_phases; p++)
                if (func->step[i].phase[p].scratch > s.scratch)
                    s.scratch = func->step[i].phase[p].scratch;
    }
    s.scratch = round_up(s.scratch, ALIGN);
    return s;
}

static int64_t sum_of(const f8_plan *plan, const sizes *s, int n_threads, int64_t workspace)
{
    return plan->state_bytes + plan->constants_bytes + s->arena + s->ports +
           s->scratch * n_threads + workspace;
}

static int64_t live_workspace(const f8_exec *x)
{
    int64_t most = 0;
    for (uint32_t f = 0; f < x->plan->n_funcs; f++)
        for (uint32_t i = 0; i < x->plan->func[f].n_steps; i++) {
            const f8_gemm *gemm = x->func[f].step[i].gemm;
            if (gemm && (int64_t)f8_gemm_workspace(gemm) > most)
                most = (int64_t)f8_gemm_workspace(gemm);
        }
    return most;
}

bool f8_exec_needs_gemm(const f8_plan *plan)
{
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++)
            if (plan->func[f].step[i].kind == F8_STEP_GEMM)
                return true;
    return false;
}

/* ---- places ---- */

static void *resolve(const f8_exec *x, const f8_exec_func *f, const f8_arg *a)
{
    switch (a->space) {
    case F8_SPACE_NONE: return NULL;
    case F8_SPACE_ARENA: return x->home->arena.p + a->offset;
    case F8_SPACE_STATE: return x->home->state.p + a->offset;
    case F8_SPACE_INPUT: return (uint8_t *)f->bound[0][a->port] + a->offset;
    case F8_SPACE_OUTPUT: return (uint8_t *)f->bound[1][a->port] + a->offset;
    case F8_SPACE_CONST: return x->plan->constants + a->offset;
    }
    return NULL;
}

void f8_exec_resolve(f8_exec *x, uint32_t func)
{
    f8_exec_func *f = &x->func[func];
    for (uint32_t i = 0; i < x->plan->func[func].n_steps; i++)
        for (uint32_t k = 0; k < f->step[i].step->n_args; k++)
            f->step[i].arg[k] = resolve(x, f, &f->step[i].step->arg[k]);
    f->stale = false;
}

static void resolve_all(f8_exec *x)
{
    for (uint32_t f = 0; f < x->plan->n_funcs; f++)
        f8_exec_resolve(x, f);
}

static void place_ports(f8_exec *x)
{
    uint8_t *at = x->own_ports.p ? x->own_ports.p : x->home->ports.p;
    for (uint32_t i = 0; i < x->plan->n_funcs; i++) {
        const f8_plan_func *p = &x->plan->func[i];
        for (int side = 0; side < 2; side++)
            for (uint32_t k = 0; k < (side ? p->n_out : p->n_in); k++) {
                const f8_plan_port *port = side ? &p->out[k] : &p->in[k];
                void *own = port->var >= 0 ? x->home->state.p + x->plan->var[port->var].offset : at;
                x->func[i].own[side][k] = x->func[i].bound[side][k] = own;
                at += port_bytes(port);
            }
    }
}

/* ---- a home ---- */

/* The memory that one run at a time works in grows to what x needs; all or nothing. Others find it
 * where it then is. */
static f8_status grow(f8_exec *x, const int64_t need[3], f8_diag *diag)
{
    static const char *const what[] = {"the arena", "kernel scratch", "GEMM workspace"};
    f8_exec_home *home = x->home;
    f8_exec_block *block[] = {&home->arena, &home->scratch, &home->workspace}, fresh[3] = {{0}};
    f8_status status = F8_OK;
    for (int i = 0; i < 3 && status == F8_OK; i++)
        if (need[i] > block[i]->size)
            status = block_alloc(home, need[i], what[i], &fresh[i], diag);
    bool moved = false;
    for (int i = 0; i < 3; i++) {
        if (!fresh[i].p)
            continue;
        block_free(home, status == F8_OK ? block[i] : &fresh[i]);
        if (status != F8_OK)
            continue;
        *block[i] = fresh[i];
        moved = true;
    }
    for (f8_exec *other = home->first; other && moved; other = other->next)
        if (other != x)
            resolve_all(other);
    return status;
}

f8_status f8_exec_allocate(f8_exec *x, f8_diag *diag)
{
    const sizes s = measure(x->plan);
    f8_exec_home *home = x->home;
    const int n_threads = f8_pool_threads(home->pool);
    const int64_t workspace = live_workspace(x),
                  need[] = {s.arena, s.scratch * n_threads, workspace};
    const bool alone = home->first == x && !x->next;
    x->scratch_stride = s.scratch;
    x->planned = sum_of(x->plan, &s, n_threads, workspace);
    x->constants = x->plan->constants_bytes; /* those the plan has */
    add_bytes(home, x->constants);
    if (alone)
        F8_TRY(block_alloc(home, x->plan->state_bytes, "variables", &home->state, diag));
    else if (x->plan->state_bytes != home->state.size)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "executors with variables of %lld and of %lld bytes",
                       (long long)x->plan->state_bytes, (long long)home->state.size);
    F8_TRY(grow(x, need, diag));
    if (alone || s.ports > home->ports.size) {
        /* buffers of others have been handed out: they stay where they are */
        f8_exec_block *ports = alone ? &home->ports : &x->own_ports;
        F8_TRY(block_alloc(home, s.ports, "inputs and outputs", ports, diag));
        if (ports->p)
            memset(ports->p, 0, (size_t)s.ports);
    }
    place_ports(x);
    resolve_all(x);
    return F8_OK;
}

/* Code that is the same is mapped once. */
static f8_status map_code(f8_exec *x, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    const size_t size = (size_t)plan->blob_bytes, code_size = (size_t)plan->blob_code_bytes;
    f8_exec_home *home = x->home;
    for (f8_exec_code *c = home->code; c; c = c->next)
        if (c->blob.size == size && c->blob.code_size == code_size &&
            (!size || !memcmp(c->blob.base, plan->blob, size))) {
            c->users++;
            x->code = c;
            return F8_OK;
        }
    f8_exec_code *c = home->allocator.alloc(home->allocator.user, sizeof *c, 16);
    if (!c)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *c);
    *c = (f8_exec_code){.next = home->code, .users = 1};
    x->code = home->code = c;
    return f8_blob_map(&c->blob, plan->blob, size, code_size, diag);
}

static f8_status create_home(f8_exec *x, const f8_exec_options *o, f8_diag *diag)
{
    f8_exec_home *home = x->allocator.alloc(x->allocator.user, sizeof *home, 16);
    if (!home)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *home);
    *home = (f8_exec_home){.allocator = x->allocator, .first = x};
    x->home = home;
    const f8_pool_options pool = {
        .n_threads = o->n_threads, .parallel = o->parallel, .allocator = &home->allocator};
    return f8_pool_create(&pool, &home->pool, diag);
}

f8_status f8_exec_enter_home(f8_exec *x, const f8_exec_options *o, f8_diag *diag)
{
    if (o->like) {
        x->home = o->like->home;
        x->next = x->home->first;
        x->home->first = x;
    } else {
        F8_TRY(create_home(x, o, diag));
    }
    F8_TRY(map_code(x, diag));
    if (!x->home->gemms && f8_exec_needs_gemm(x->plan))
        return f8_gemm_lib_create(&x->home->allocator, &x->home->gemms, diag);
    return F8_OK;
}

static void leave_code(f8_exec *x)
{
    f8_exec_code *c = x->code, **link = &x->home->code;
    if (!c || --c->users > 0)
        return;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    f8_blob_unmap(&c->blob);
    x->home->allocator.free(x->home->allocator.user, c, sizeof *c);
}

void f8_exec_leave_home(f8_exec *x)
{
    f8_exec_home *home = x->home;
    if (!home)
        return;
    leave_code(x);
    block_free(home, &x->own_ports);
    home->bytes -= x->constants;
    f8_exec **link = &home->first;
    while (*link != x)
        link = &(*link)->next;
    *link = x->next;
    if (home->first)
        return;
    f8_gemm_lib_destroy(home->gemms);
    f8_pool_destroy(home->pool);
    f8_exec_block *const block[] = {&home->state, &home->arena, &home->ports, &home->scratch,
                                    &home->workspace};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        block_free(home, block[i]);
    const f8_allocator allocator = home->allocator;
    allocator.free(allocator.user, home, sizeof *home);
}

/* ---- sizes of a plan alone ---- */

static f8_status gemm_workspace(const f8_plan *plan, int n_threads, f8_gemm_lib *lib,
                                f8_gemm **gemm, uint32_t *n, int64_t *most, f8_diag *diag)
{
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++) {
            const f8_step *s = &plan->func[f].step[i];
            if (s->kind != F8_STEP_GEMM)
                continue;
            F8_TRY(f8_gemm_prepare(lib, &s->gemm, n_threads, &gemm[*n], diag));
            const int64_t bytes = (int64_t)f8_gemm_workspace(gemm[(*n)++]);
            *most = bytes > *most ? bytes : *most;
        }
    return F8_OK;
}

f8_status f8_exec_plan_bytes(const f8_plan *plan, int n_threads, const f8_allocator *allocator,
                             f8_gemm_lib **lib, int64_t *bytes, f8_diag *diag)
{
    const sizes s = measure(plan);
    const int threads = n_threads ? n_threads : f8_pool_usable_cpus();
    int64_t workspace = 0;
    f8_gemm_lib *own = NULL, **held = lib ? lib : &own;
    f8_status status = F8_OK;
    if (f8_exec_needs_gemm(plan)) {
        f8_arena scratch;
        uint32_t n = 0, room = 0;
        f8_arena_init(&scratch, allocator);
        for (uint32_t f = 0; f < plan->n_funcs; f++)
            room += plan->func[f].n_steps;
        /* equal ones share while they are held */
        f8_gemm **gemm = F8_NEW_ARRAY(&scratch, f8_gemm *, room);
        if (!*held)
            status = f8_gemm_lib_create(allocator, held, diag);
        if (status == F8_OK)
            status = gemm ? gemm_workspace(plan, threads, *held, gemm, &n, &workspace, diag)
                          : f8_arena_status(&scratch, diag);
        for (uint32_t i = 0; i < n; i++)
            f8_gemm_release(gemm[i]);
        f8_arena_end(&scratch);
    }
    f8_gemm_lib_destroy(own);
    *bytes = sum_of(plan, &s, threads, workspace);
    return status;
}

int64_t f8_exec_plan_least_bytes(const f8_plan *plan)
{
    const sizes s = measure(plan);
    return sum_of(plan, &s, 1, 0);
}
