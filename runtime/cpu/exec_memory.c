/* The executor's memory, alone or shared by a program's executors: see exec_internal.h. */
#include <string.h>
#include <sys/mman.h>

#include "runtime/cpu/exec_internal.h"
#include "runtime/work.h"

enum { HUGE = 2 << 20 };

/* ---- what the CPU does for a home ---- */

/* Large buffers sit on huge-page boundaries: a step walks hundreds of MB, and 4 KiB pages would
 * cost a TLB miss every few rows. */
static f8_status memory_alloc(f8_tenant *t, int64_t bytes, bool shared, const char *what,
                              uint64_t *at, f8_diag *diag)
{
    (void)shared;
    const f8_allocator *a = &t->home->allocator;
    const size_t size = (size_t)f8_aligned(bytes, F8_ARENA_ALIGN);
    const bool huge = bytes >= 2 * HUGE;
    void *p = a->alloc(a->user, size, huge ? HUGE : F8_ARENA_ALIGN);
    if (!p)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %lld bytes were wanted for %s", (long long)bytes, what);
    if (huge)
        madvise(p, size, MADV_HUGEPAGE); /* advice: the run is right without it */
    *at = (uintptr_t)p;
    return F8_OK;
}

static void memory_free(f8_home *home, f8_block b, bool shared)
{
    (void)shared;
    home->allocator.free(home->allocator.user, (void *)b.at,
                         (size_t)f8_aligned(b.bytes, F8_ARENA_ALIGN));
}

static f8_status memory_clear(f8_tenant *t, f8_port_block *ports, f8_diag *diag)
{
    (void)t;
    (void)diag;
    memset((void *)ports->block.at, 0, (size_t)ports->block.bytes);
    return F8_OK;
}

/* The places of a function's steps as pointers. */
static void resolve(f8_tenant *t, uint32_t func)
{
    f8_exec *x = (f8_exec *)t;
    f8_exec_func *f = &x->func[func];
    for (uint32_t i = 0; i < x->plan->func[func].n_steps; i++)
        for (uint32_t k = 0; k < f->step[i].step->n_args; k++)
            f->step[i].arg[k] = (void *)f8_home_address(t, func, &f->step[i].step->arg[k]);
}

static const f8_home_kind cpu_memory = {
    .size = sizeof(f8_exec_home),
    .align = F8_ARENA_ALIGN,
    .alloc = memory_alloc,
    .free = memory_free,
    .clear = memory_clear,
    .resolve = resolve,
};

/* ---- sizes ---- */

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

/* ---- a home ---- */

f8_status f8_exec_allocate(f8_exec *x, f8_diag *diag)
{
    x->tenant.constants = (f8_block){(uintptr_t)x->plan->constants, x->plan->constants_bytes};
    f8_home_add(&x->home->home, x->plan->constants_bytes); /* those the plan has */
    F8_TRY(f8_home_allocate(&x->tenant, f8_pool_threads(x->home->pool), live_workspace(x), diag));
    return f8_home_allocate_ports(&x->tenant, diag);
}

/* Code that is the same is mapped once. */
static f8_status map_code(f8_exec *x, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    const size_t size = (size_t)plan->blob_bytes, code_size = (size_t)plan->blob_code_bytes;
    f8_exec_home *home = x->home;
    const f8_allocator *a = &home->home.allocator;
    for (f8_exec_code *c = home->code; c; c = c->next)
        if (c->blob.size == size && c->blob.code_size == code_size &&
            (!size || !memcmp(c->blob.base, plan->blob, size))) {
            c->users++;
            x->code = c;
            return F8_OK;
        }
    f8_exec_code *c = a->alloc(a->user, sizeof *c, 16);
    if (!c)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *c);
    *c = (f8_exec_code){.next = home->code, .users = 1};
    x->code = home->code = c;
    return f8_blob_map(&c->blob, plan->blob, size, code_size, diag);
}

static bool has_waits(const f8_plan *plan)
{
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++)
            if (plan->func[f].step[i].kind == F8_STEP_WAIT)
                return true;
    return false;
}

f8_status f8_exec_enter_home(f8_exec *x, const f8_exec_options *o, f8_diag *diag)
{
    const f8_work_place place = {.kind = &cpu_memory};
    f8_work *work = o->like ? NULL : o->work;
    x->tenant.plan = x->plan;
    F8_TRY(f8_work_join(work, &place, diag));
    const f8_status status =
        f8_home_enter(&x->tenant, o->like ? o->like->tenant.home : NULL, &cpu_memory, &x->allocator,
                      o->external, &x->memory, diag);
    x->home = (f8_exec_home *)x->tenant.home;
    if (x->home && !o->like)
        x->home->home.work = work;
    if (!x->home) /* there is nothing that could leave */
        f8_work_abandon(work);
    if (status != F8_OK)
        return status;
    if (!o->like) {
        const f8_pool_options pool = {
            .n_threads = o->n_threads, .parallel = o->parallel, .allocator = &x->allocator};
        F8_TRY(f8_pool_create(&pool, &x->home->pool, diag));
    }
    F8_TRY(map_code(x, diag));
    if (!x->home->queue && x->comm && x->comm->ranks > 1 && !x->comm->on_caller &&
        has_waits(x->plan))
        F8_TRY(f8_comm_queue_create(x->comm, &x->home->home.allocator, &x->home->queue, diag));
    if (!x->home->gemms && f8_exec_needs_gemm(x->plan))
        return f8_gemm_lib_create(&x->home->home.allocator, &x->home->gemms, diag);
    return F8_OK;
}

static void leave_code(f8_exec *x)
{
    const f8_allocator *a = &x->home->home.allocator;
    f8_exec_code *c = x->code, **link = &x->home->code;
    if (!c || --c->users > 0)
        return;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    f8_blob_unmap(&c->blob);
    a->free(a->user, c, sizeof *c);
}

void f8_exec_leave_home(f8_exec *x)
{
    f8_exec_home *home = x->home;
    if (!home)
        return;
    leave_code(x);
    home->home.bytes -= x->tenant.constants.bytes;
    if (!f8_home_leave(&x->tenant))
        return;
    f8_gemm_lib_destroy(home->gemms);
    f8_comm_queue_destroy(home->queue);
    f8_pool_destroy(home->pool);
    f8_work_leave(home->home.work, &home->home, NULL);
    f8_home_end(&home->home);
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

f8_status f8_exec_plan_bytes(const f8_plan *plan, const char *external, int n_threads,
                             const f8_allocator *allocator, f8_gemm_lib **lib, int64_t *bytes,
                             f8_diag *diag)
{
    const f8_sizes s = f8_plan_sizes(plan, external, F8_ARENA_ALIGN);
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
    *bytes = f8_sizes_sum(&s, plan, threads, workspace);
    return status;
}

int64_t f8_exec_plan_least_bytes(const f8_plan *plan, const char *external)
{
    const f8_sizes s = f8_plan_sizes(plan, external, F8_ARENA_ALIGN);
    return f8_sizes_sum(&s, plan, 1, 0);
}
