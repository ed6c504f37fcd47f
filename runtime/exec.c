/* The executor: see exec.h. */
#include "runtime/exec.h"

#include <string.h>
#include <sys/mman.h>

#include "ir/clock.h"
#include "runtime/blob.h"
#include "runtime/copy.h"

enum { ALIGN = 64, HUGE = 2 << 20, MAX_BUFFERS = 8 };

/* ---- structure ---- */

/* A step with everything resolved. */
typedef struct live_step {
    const f8_step *step;
    void **arg;
    f8_phase_fn *entry;
    f8_gemm *gemm;
    double seconds;
} live_step;

typedef struct live_func {
    live_step *step;
    void **own[2], **bound[2]; /* [input, output][port] */
} live_func;

struct f8_exec {
    const f8_plan *plan;
    f8_arena memory; /* the executor's own small structures */
    f8_allocator allocator;
    f8_pool *pool;
    f8_gemm_lib *gemms;
    f8_blob blob;
    live_func *func;
    uint8_t *state, *arena, *ports, *scratch, *workspace;
    int64_t scratch_stride; /* bytes per thread */
    struct {
        void *p;
        size_t size;
    } buffer[MAX_BUFFERS];
    int n_buffers;
    int64_t planned, bytes, peak;
    f8_exec_counts count;
    bool profile;
};

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- memory ---- */

/* Large buffers sit on huge-page boundaries: a step walks hundreds of MB, and 4 KiB pages would cost
 * a TLB miss every few rows. */
static f8_status big_alloc(f8_exec *x, int64_t bytes, const char *what, uint8_t **out, f8_diag *diag)
{
    *out = NULL;
    if (bytes == 0)
        return F8_OK;
    const size_t size = (size_t)round_up(bytes, ALIGN);
    void *p = x->allocator.alloc(x->allocator.user, size, bytes >= 2 * HUGE ? HUGE : ALIGN);
    if (!p)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %lld bytes were wanted for %s",
                       (long long)bytes, what);
    if (bytes >= 2 * HUGE)
        madvise(p, size, MADV_HUGEPAGE); /* advice: the run is right without it */
    x->buffer[x->n_buffers].p = p;
    x->buffer[x->n_buffers++].size = size;
    x->bytes += bytes;
    if (x->bytes > x->peak)
        x->peak = x->bytes;
    *out = p;
    return F8_OK;
}

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

static f8_status allocate(f8_exec *x, f8_diag *diag)
{
    const sizes s = measure(x->plan);
    const int64_t workspace = live_workspace(x);
    x->scratch_stride = s.scratch;
    const int64_t scratch = s.scratch * f8_pool_threads(x->pool);
    x->planned = sum_of(x->plan, &s, f8_pool_threads(x->pool), workspace);
    x->bytes = x->peak = x->plan->constants_bytes; /* those the plan has */
    F8_TRY(big_alloc(x, x->plan->state_bytes, "variables", &x->state, diag));
    F8_TRY(big_alloc(x, s.arena, "the arena", &x->arena, diag));
    F8_TRY(big_alloc(x, s.ports, "inputs and outputs", &x->ports, diag));
    F8_TRY(big_alloc(x, scratch, "kernel scratch", &x->scratch, diag));
    F8_TRY(big_alloc(x, workspace, "GEMM workspace", &x->workspace, diag));
    if (x->ports)
        memset(x->ports, 0, (size_t)s.ports);
    return F8_OK;
}

/* ---- resolving ---- */

static void *resolve(const f8_exec *x, const live_func *f, const f8_arg *a)
{
    switch (a->space) {
    case F8_SPACE_NONE: return NULL;
    case F8_SPACE_ARENA: return x->arena + a->offset;
    case F8_SPACE_STATE: return x->state + a->offset;
    case F8_SPACE_INPUT: return (uint8_t *)f->bound[0][a->port] + a->offset;
    case F8_SPACE_OUTPUT: return (uint8_t *)f->bound[1][a->port] + a->offset;
    case F8_SPACE_CONST: return x->plan->constants + a->offset;
    }
    return NULL;
}

static void resolve_func(f8_exec *x, uint32_t func)
{
    live_func *f = &x->func[func];
    for (uint32_t i = 0; i < x->plan->func[func].n_steps; i++)
        for (uint32_t k = 0; k < f->step[i].step->n_args; k++)
            f->step[i].arg[k] = resolve(x, f, &f->step[i].step->arg[k]);
}

static f8_status make_step(f8_exec *x, const f8_step *s, live_step *l, f8_diag *diag)
{
    l->step = s;
    l->arg = F8_NEW_ARRAY(&x->memory, void *, s->n_args);
    l->entry = F8_NEW_ARRAY(&x->memory, f8_phase_fn, s->n_phases);
    if (!l->arg || !l->entry)
        return f8_arena_status(&x->memory, diag);
    for (uint32_t p = 0; p < s->n_phases; p++) {
        l->entry[p] = f8_blob_phase(&x->blob, s->phase[p].entry);
        if (!l->entry[p])
            return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "kernel '%s' lies outside the blob", s->name);
    }
    if (s->kind == F8_STEP_GEMM)
        return f8_gemm_prepare(x->gemms, &s->gemm, f8_pool_threads(x->pool), &l->gemm, diag);
    return F8_OK;
}

static f8_status make_func(f8_exec *x, uint32_t func, f8_diag *diag)
{
    const f8_plan_func *p = &x->plan->func[func];
    live_func *f = &x->func[func];
    f->step = F8_NEW_ARRAY(&x->memory, live_step, p->n_steps);
    for (int side = 0; side < 2; side++) {
        const uint32_t n = side ? p->n_out : p->n_in;
        f->own[side] = F8_NEW_ARRAY(&x->memory, void *, n);
        f->bound[side] = F8_NEW_ARRAY(&x->memory, void *, n);
    }
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t i = 0; i < p->n_steps; i++)
        F8_TRY(make_step(x, &p->step[i], &f->step[i], diag));
    return F8_OK;
}

static void place_ports(f8_exec *x)
{
    uint8_t *at = x->ports;
    for (uint32_t i = 0; i < x->plan->n_funcs; i++) {
        const f8_plan_func *p = &x->plan->func[i];
        for (int side = 0; side < 2; side++)
            for (uint32_t k = 0; k < (side ? p->n_out : p->n_in); k++) {
                const f8_plan_port *port = side ? &p->out[k] : &p->in[k];
                void *own = port->var >= 0 ? x->state + x->plan->var[port->var].offset : at;
                x->func[i].own[side][k] = x->func[i].bound[side][k] = own;
                at += port_bytes(port);
            }
        resolve_func(x, i);
    }
}

/* ---- life ---- */

static bool needs_gemm(const f8_plan *plan)
{
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++)
            if (plan->func[f].step[i].kind == F8_STEP_GEMM)
                return true;
    return false;
}

static f8_status exec_build(f8_exec *x, const f8_exec_options *o, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    const f8_pool_options pool = {
        .n_threads = o->n_threads, .parallel = o->parallel, .allocator = &x->allocator};
    F8_TRY(f8_pool_create(&pool, &x->pool, diag));
    F8_TRY(f8_blob_map(&x->blob, plan->blob, (size_t)plan->blob_bytes, (size_t)plan->blob_code_bytes, diag));
    if (needs_gemm(plan))
        F8_TRY(f8_gemm_lib_create(&x->allocator, &x->gemms, diag));
    x->func = F8_NEW_ARRAY(&x->memory, live_func, plan->n_funcs);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        F8_TRY(make_func(x, f, diag));
    F8_TRY(allocate(x, diag));
    place_ports(x);
    return F8_OK;
}

f8_status f8_exec_create(const f8_plan *plan, const f8_exec_options *options, f8_exec **out, f8_diag *diag)
{
    *out = NULL;
    const f8_allocator allocator = options->allocator ? *options->allocator : f8_default_allocator();
    f8_exec *x = allocator.alloc(allocator.user, sizeof *x, ALIGN);
    if (!x)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted", sizeof *x);
    *x = (f8_exec){.plan = plan, .allocator = allocator, .profile = options->profile};
    f8_arena_init(&x->memory, &x->allocator);
    const f8_status status = exec_build(x, options, diag);
    if (status != F8_OK) {
        f8_exec_destroy(x);
        return status;
    }
    *out = x;
    return F8_OK;
}

void f8_exec_destroy(f8_exec *x)
{
    if (!x)
        return;
    for (uint32_t f = 0; x->func && f < x->plan->n_funcs; f++)
        for (uint32_t i = 0; x->func[f].step && i < x->plan->func[f].n_steps; i++)
            f8_gemm_release(x->func[f].step[i].gemm);
    f8_gemm_lib_destroy(x->gemms);
    f8_pool_destroy(x->pool);
    f8_blob_unmap(&x->blob);
    for (int i = 0; i < x->n_buffers; i++)
        x->allocator.free(x->allocator.user, x->buffer[i].p, x->buffer[i].size);
    f8_arena_end(&x->memory);
    const f8_allocator allocator = x->allocator;
    allocator.free(allocator.user, x, sizeof *x);
}

int f8_exec_threads(const f8_exec *x)
{
    return f8_pool_threads(x->pool);
}

/* ---- buffers ---- */

void *f8_exec_var(f8_exec *x, uint32_t var)
{
    return x->state + x->plan->var[var].offset;
}

void f8_exec_init(f8_exec *x, uint64_t seed)
{
    for (uint32_t v = 0; v < x->plan->n_vars; v++)
        f8_init_var(&x->plan->var[v], seed, x->pool, f8_exec_var(x, v));
}

void *f8_exec_port(f8_exec *x, uint32_t func, bool output, uint32_t port)
{
    return x->func[func].bound[output][port];
}

void f8_exec_bind(f8_exec *x, uint32_t func, bool output, uint32_t port, void *buffer)
{
    live_func *f = &x->func[func];
    f->bound[output][port] = buffer ? buffer : f->own[output][port];
    resolve_func(x, func);
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
    if (needs_gemm(plan)) {
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

/* ---- running ---- */

typedef struct phase_job {
    f8_phase_fn entry;
    void *const *arg;
    const int64_t *ints;
    uint8_t *scratch;
    int64_t scratch_stride;
} phase_job;

static void phase_tasks(void *user, int thread, int64_t begin, int64_t end)
{
    const phase_job *j = user;
    j->entry(j->arg, j->ints, begin, end, j->scratch + thread * j->scratch_stride);
}

static f8_status run_step(f8_exec *x, const live_step *l)
{
    const f8_step *s = l->step;
    switch (s->kind) {
    case F8_STEP_KERNEL:
        for (uint32_t p = 0; p < s->n_phases; p++) {
            const f8_step_phase *phase = &s->phase[p];
            phase_job job = {l->entry[p], l->arg + phase->first_arg, s->ints + phase->first_int,
                             x->scratch, x->scratch_stride};
            f8_pool_run(x->pool, phase_tasks, &job, phase->n_tasks);
        }
        x->count.kernels++;
        return F8_OK;
    case F8_STEP_GEMM:
        x->count.gemms++;
        x->count.fp8_gemms += s->fp8;
        return f8_gemm_run(l->gemm, x->pool, l->arg[0], l->arg[1], l->arg[2], l->arg[3], l->arg[4],
                           x->workspace);
    case F8_STEP_COPY:
        f8_copy_run(s, x->pool, l->arg[0], l->arg[1]);
        return F8_OK;
    case F8_STEP_ATTENTION: break; /* of CUDA plans */
    }
    return F8_ERR_INTERNAL;
}

f8_status f8_exec_run(f8_exec *x, uint32_t func, f8_diag *diag)
{
    live_func *f = &x->func[func];
    const uint32_t n = x->plan->func[func].n_steps;
    for (uint32_t i = 0; i < n; i++) {
        const double start = x->profile ? f8_seconds_now() : 0;
        const f8_status status = run_step(x, &f->step[i]);
        if (status != F8_OK)
            return f8_fail(diag, status, F8_NOWHERE, "step '%s' of '%s' failed", f->step[i].step->name,
                           x->plan->func[func].name);
        if (x->profile)
            f->step[i].seconds += f8_seconds_now() - start;
    }
    return f8_pool_check(x->pool, diag);
}

/* ---- figures ---- */

int64_t f8_exec_planned_bytes(const f8_exec *x)
{
    return x->planned;
}

int64_t f8_exec_peak_bytes(const f8_exec *x)
{
    return x->peak;
}

f8_exec_counts f8_exec_count(const f8_exec *x)
{
    return x->count;
}

double f8_exec_step_seconds(const f8_exec *x, uint32_t func, uint32_t step)
{
    return x->func[func].step[step].seconds;
}
