/* Running on a GPU: transfers, variables and ports. See exec.h. */
#include "runtime/cuda/exec_internal.h"

#include <string.h>

#include "runtime/copy.h"
#include "runtime/work.h"

/* ---- failures ---- */

/* Remembers the failure of a call after which nobody knows what the device has done. Its message is
 * the reason of every later refusal. */
static f8_status poison(f8_cuda_exec *x, f8_status status, const f8_diag *d, f8_diag *diag)
{
    if (status == F8_OK)
        return F8_OK;
    x->home->failure = *d;
    if (x->options.nccl) /* or the other ranks wait for this one */
        f8_nccl_abort(x->options.nccl, d->text);
    return f8_fail(diag, status, F8_NOWHERE, "%s", d->text);
}

static f8_status usable(const f8_cuda_exec *x, f8_diag *diag)
{
    if (x->home->failure.status == F8_OK)
        return F8_OK;
    return f8_fail(
        diag, x->home->failure.status, F8_NOWHERE,
        "the program failed on the device before and can't be used any more; then it was: %.700s",
        x->home->failure.text);
}

/* ---- a run ---- */

/* An input as small as a number travels as the parameter of a memset: its bytes are read before the
 * call returns. A copy from pageable memory would make the host wait, and one from pinned memory
 * would read it later, when the caller may have changed it. */
enum { WORD = 4, VALUE = 8 };

static bool is_value(const f8_live_port *p, int side)
{
    return side == 0 && p->bytes <= VALUE && p->bytes % WORD == 0 && p->at % WORD == 0;
}

static CUresult send_value(const f8_cuda_exec *x, const f8_live_port *p)
{
    CUresult r = CUDA_SUCCESS;
    for (size_t at = 0; at < p->bytes && r == CUDA_SUCCESS; at += WORD) {
        unsigned word;
        memcpy(&word, (const uint8_t *)p->host + at, WORD);
        r = x->cuda->cu.cuMemsetD32Async(p->at + at, word, 1, x->stream);
    }
    return r;
}

static f8_status copy_ports(f8_cuda_exec *x, uint32_t func, int side, f8_diag *diag)
{
    const f8_live_func *f = &x->func[func];
    uint32_t n;
    const f8_plan_port *port = f8_plan_ports(f->func, side, &n);
    for (uint32_t k = 0; k < n; k++) {
        const f8_live_port *p = &x->tenant.port[func][side][k];
        if (!p->host || p->bytes == 0)
            continue;
        const bool value = is_value(p, side);
        const CUresult r =
            value  ? send_value(x, p)
            : side ? x->cuda->cu.cuMemcpyDtoHAsync_v2(p->host, p->at, p->bytes, x->stream)
                   : x->cuda->cu.cuMemcpyHtoDAsync_v2(p->at, p->host, p->bytes, x->stream);
        F8_TRY(f8_cuda_check(x->cuda, r, diag, "%s of '%s' in %s",
                             value  ? "cuMemsetD32Async"
                             : side ? "cuMemcpyDtoHAsync"
                                    : "cuMemcpyHtoDAsync",
                             port[k].name, f->func->name));
    }
    return F8_OK;
}

static f8_status run_inside(f8_cuda_exec *x, uint32_t func, f8_diag *diag)
{
    f8_live_func *f = &x->func[func];
    const bool graph = !x->options.profile && !x->options.blocking && !x->observer;
    F8_TRY(copy_ports(x, func, 0, diag));
    F8_TRY(graph ? f8_cuda_exec_launch(x, f, diag) : f8_cuda_exec_run_steps(x, f, diag));
    F8_TRY(copy_ports(x, func, 1, diag));
    if (graph && x->stream != x->home->ordered)
        return F8_OK;
    F8_TRY(f8_cuda_exec_sync(x, diag, "after %s", f->func->name));
    return f8_cuda_exec_add_times(x, f, diag);
}

f8_status f8_cuda_exec_run(f8_cuda_exec *x, uint32_t func, f8_diag *diag)
{
    f8_live_func *f = &x->func[func];
    f8_diag d = {0};
    F8_TRY(usable(x, diag));
    F8_TRY(f8_work_lock(x->home->home.work, diag));
    f8_status status = f8_cuda_enter(x->cuda, &d), ready = F8_OK;
    if (status == F8_OK) {
        ready = f8_home_ready(&x->tenant, func, diag);
        if (ready == F8_OK)
            status = f8_cuda_exec_begin_work(x, &d);
        if (ready == F8_OK && status == F8_OK)
            status = f8_cuda_exec_end_work(x, run_inside(x, func, &d), &d);
        f8_cuda_leave(x->cuda);
    }
    f8_work_unlock(x->home->home.work);
    F8_TRY(ready); /* nothing was enqueued */
    if (status == F8_OK) {
        f8_exec_counts *count = &x->home->home.count;
        count->gemms += f->count.gemms;
        count->fp8_gemms += f->count.fp8_gemms;
        count->kernels += f->count.kernels;
    }
    return poison(x, status, &d, diag);
}

void f8_cuda_exec_begin_sums(f8_cuda_exec *x, bool afresh)
{
    x->home->afresh = afresh;
}

f8_status f8_cuda_exec_wait(f8_cuda_exec *x, f8_diag *diag)
{
    f8_diag d = {0};
    F8_TRY(usable(x, diag));
    f8_status status = f8_cuda_enter(x->cuda, &d);
    if (status == F8_OK) {
        status = f8_cuda_exec_sync(x, &d, "of the program");
        f8_cuda_leave(x->cuda);
    }
    return poison(x, status, &d, diag);
}

/* ---- variables ---- */

static f8_status download(f8_cuda_exec *x, void *to, CUdeviceptr from, size_t bytes,
                          const char *what, f8_diag *diag)
{
    F8_CU(what, cuMemcpyDtoHAsync_v2, to, from, bytes, x->stream);
    return f8_cuda_exec_sync(x, diag, "of %s", what);
}

void *f8_cuda_exec_var(f8_cuda_exec *x, uint32_t var)
{
    return (void *)(uintptr_t)x->home->home.var[var].at;
}

void f8_cuda_exec_bind_var(f8_cuda_exec *x, uint32_t var, void *at)
{
    f8_home_bind_var(&x->home->home, var, (uintptr_t)at);
}

void f8_cuda_exec_observe(f8_cuda_exec *x, const f8_observer *observer)
{
    x->observer = observer;
}

f8_status f8_cuda_exec_fetch(f8_cuda_exec *x, uint32_t func, const f8_arg *from, int64_t bytes,
                             void *to, f8_diag *diag)
{
    const CUdeviceptr at = f8_home_address(&x->tenant, func, from);
    if (!at)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a step's memory is not bound");
    if (!bytes)
        return F8_OK;
    F8_TRY(f8_cuda_enter(x->cuda, diag));
    const f8_status status = download(x, to, at, (size_t)bytes, x->plan->func[func].name, diag);
    f8_cuda_leave(x->cuda);
    return status;
}

static f8_status clear(f8_cuda_exec *x, CUdeviceptr at, size_t bytes, const char *what,
                       f8_diag *diag)
{
    F8_CU(what, cuMemsetD8Async, at, 0, bytes, x->stream);
    return x->stream == x->home->ordered ? f8_cuda_exec_sync(x, diag, "of %s", what) : F8_OK;
}

/* At most one of `to` and `from`; neither: zeros. */
static f8_status move_var(f8_cuda_exec *x, uint32_t var, void *to, const void *from, f8_diag *diag)
{
    const f8_plan_var *v = &x->plan->var[var];
    const CUdeviceptr at = x->home->home.var[var].at;
    const size_t bytes = (size_t)f8_type_bytes(&v->type);
    f8_diag d = {0};
    F8_TRY(usable(x, diag));
    if (bytes == 0)
        return F8_OK;
    if (!at)
        return f8_unbound_variable(v->name, diag);
    f8_status status = f8_cuda_enter(x->cuda, &d);
    if (status == F8_OK) {
        status = to     ? download(x, to, at, bytes, v->name, &d)
                 : from ? f8_cuda_exec_upload(x, at, from, bytes, v->name, &d)
                        : clear(x, at, bytes, v->name, &d);
        f8_cuda_leave(x->cuda);
    }
    return poison(x, status, &d, diag);
}

f8_status f8_cuda_exec_read(f8_cuda_exec *x, uint32_t var, void *to, f8_diag *diag)
{
    return move_var(x, var, to, NULL, diag);
}

f8_status f8_cuda_exec_write(f8_cuda_exec *x, uint32_t var, const void *from, f8_diag *diag)
{
    return move_var(x, var, NULL, from, diag);
}

f8_status f8_cuda_exec_clear(f8_cuda_exec *x, uint32_t var, f8_diag *diag)
{
    return move_var(x, var, NULL, NULL, diag);
}

f8_status f8_cuda_exec_init(f8_cuda_exec *x, uint64_t seed, const bool *keep, f8_diag *diag)
{
    size_t most = 0;
    for (uint32_t v = 0; v < x->plan->n_vars; v++) {
        const size_t bytes = (size_t)f8_type_bytes(&x->plan->var[v].type);
        most = bytes > most ? bytes : most;
    }
    if (most == 0)
        return F8_OK;
    void *host = x->allocator.alloc(x->allocator.user, most, 64);
    if (!host)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for a variable's initial value", most);
    f8_pool *pool = NULL;
    const f8_pool_options threads = {.n_threads = x->options.threads,
                                     .parallel = x->parallel.run ? &x->parallel : NULL,
                                     .allocator = &x->allocator};
    f8_status status = f8_pool_create(&threads, &pool, diag);
    for (uint32_t v = 0; v < x->plan->n_vars && status == F8_OK; v++) {
        if (!f8_cuda_exec_var(x, v) || (keep && keep[v]))
            continue;
        f8_init_var(&x->plan->var[v], x->options.nccl ? f8_nccl_rank(x->options.nccl) : 0, seed,
                    pool, host);
        status = f8_pool_check(pool, diag);
        if (status == F8_OK)
            status = f8_cuda_exec_write(x, v, host, diag);
    }
    f8_pool_destroy(pool);
    x->allocator.free(x->allocator.user, host, most);
    return status;
}

/* ---- ports ---- */

void *f8_cuda_exec_port(f8_cuda_exec *x, uint32_t func, bool output, uint32_t port)
{
    const f8_live_port *p = &x->tenant.port[func][output][port];
    return p->host ? p->host : (void *)p->at;
}

int f8_cuda_exec_ordinal(const f8_cuda_exec *x)
{
    return (int)x->cuda->device;
}

/* Host memory that the driver has never seen is no error: it answers "invalid value". */
f8_status f8_cuda_exec_is_device(f8_cuda_exec *x, const void *buffer, bool *device, f8_diag *diag)
{
    unsigned type = 0;
    F8_TRY(f8_cuda_enter(x->cuda, diag));
    const CUresult r = x->cuda->cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                         (CUdeviceptr)(uintptr_t)buffer);
    f8_cuda_leave(x->cuda);
    *device = r == CUDA_SUCCESS && (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED);
    return r == CUDA_ERROR_INVALID_VALUE ? F8_OK
                                         : f8_cuda_check(x->cuda, r, diag, "cuPointerGetAttribute");
}

f8_status f8_cuda_exec_bind(f8_cuda_exec *x, uint32_t func, bool output, uint32_t port,
                            void *buffer, f8_diag *diag)
{
    f8_live_func *f = &x->func[func];
    f8_live_port *p = &x->tenant.port[func][output][port];
    const f8_plan_port *plan = output ? &f->func->out[port] : &f->func->in[port];
    F8_TRY(usable(x, diag));
    if (plan->var >= 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "port '%s' of %s carries variable '%s'; no buffer can be bound to it",
                       plan->name, f->func->name, x->plan->var[plan->var].name);
    bool device = false;
    if (buffer)
        F8_TRY(f8_cuda_exec_is_device(x, buffer, &device, diag));
    if (device && (uintptr_t)buffer % 16)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "device memory bound to port '%s' of %s must be 16-byte aligned", plan->name,
                       f->func->name);
    const uint64_t before = p->at;
    if (buffer && !device && !p->own && p->bytes)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "port '%s' of %s is external: only device memory can be bound to it",
                       plan->name, f->func->name);
    p->at = device ? (uintptr_t)buffer : p->own;
    p->host = device ? NULL : buffer ? buffer : p->own_host;
    if (p->at != before)
        f8_home_port_moved(&x->tenant, func);
    return F8_OK;
}

/* ---- the stream ---- */

static f8_status change_stream(f8_cuda_exec *x, CUstream to, f8_diag *diag)
{
    f8_cuda_home *home = x->home;
    if (!to && !home->ordered)
        F8_CU("the executor", cuStreamCreate, &home->ordered, CU_STREAM_DEFAULT);
    if (!to)
        to = home->ordered;
    if (to == home->stream)
        return F8_OK;
    if (!home->moved)
        F8_CU("the executor", cuEventCreate, &home->moved, CU_EVENT_DISABLE_TIMING);
    F8_CU("the stream before", cuEventRecord, home->moved, home->stream);
    F8_CU("the new stream", cuStreamWaitEvent, to, home->moved, 0);
    home->stream = to;
    for (f8_tenant *t = home->home.first; t; t = t->next)
        ((f8_cuda_exec *)t)->stream = to;
    return F8_OK;
}

f8_status f8_cuda_exec_set_stream(f8_cuda_exec *x, void *stream, f8_diag *diag)
{
    F8_TRY(usable(x, diag));
    F8_TRY(f8_cuda_enter(x->cuda, diag));
    const f8_status status = change_stream(x, stream, diag);
    f8_cuda_leave(x->cuda);
    return status;
}

/* ---- figures ---- */

f8_exec_counts f8_cuda_exec_count(const f8_cuda_exec *x)
{
    return x->home->home.count;
}

double f8_cuda_exec_step_seconds(const f8_cuda_exec *x, uint32_t func, uint32_t step)
{
    return x->func[func].step[step].seconds;
}

double f8_cuda_exec_step_gap(const f8_cuda_exec *x, uint32_t func, uint32_t step)
{
    return x->func[func].step[step].gap;
}

double f8_cuda_exec_first_seconds(const f8_cuda_exec *x, uint32_t func, uint32_t step, double *gap)
{
    *gap = x->func[func].step[step].first_gap;
    return x->func[func].step[step].first;
}

const char *f8_cuda_exec_step_algorithm(const f8_cuda_exec *x, uint32_t func, uint32_t step)
{
    const f8_live_step *l = &x->func[func].step[step];
    return l->gemm ? f8_cublaslt_describe(l->gemm) : l->attention ? l->attention->text : NULL;
}
