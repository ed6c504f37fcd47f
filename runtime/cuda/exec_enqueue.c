/* The steps of a function, into a stream: one by one, or captured once and launched as one graph.
 * Collectives and waits for them are not captured: there is one graph for the steps before each and
 * one for the rest.
 *
 * A graph holds the addresses that it was captured with. A framework's tensors come from a caching
 * allocator, so addresses change, and come back. The executor keeps up to F8_GRAPHS graphs of a
 * function, one for each set of addresses. When something was bound, it compares the addresses with
 * these sets. A known set costs nothing else. A new set is captured. When there is no room left,
 * the graph whose last launch is longest ago is updated to it, which takes less time than to
 * instantiate another.
 *
 * A graph also holds whether GEMMs with F8_GEMM_ADDS add to C (f8_cuda_exec_begin_sums). A function
 * that runs both ways has a graph for each. */
#include "runtime/cuda/exec_internal.h"

#include <string.h>

/* ---- steps ---- */

/* Where steps are enqueued. While a graph is captured, a kernel that comes right behind another
 * kernel, ours or a library's, may be launched before that one ends, if the plan's kernels wait for
 * it themselves. Behind a copy, and where nothing is known of what came before, it is launched as
 * usual. */
typedef struct queue {
    CUstream stream;
    bool dependent;     /* launches may be so */
    bool behind_kernel; /* the last thing that was enqueued is a kernel */
} queue;

static CUresult launch_kernel(const f8_cuda_exec *x, const f8_live_phase *phase, queue *q)
{
    const f8_launch *launch = &phase->phase->launch;
    CUlaunchAttribute waits = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = phase->grid,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = launch->threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = launch->shared,
                                   .hStream = q->stream,
                                   .attrs = &waits,
                                   .numAttrs = 1};
    const bool early = q->dependent && q->behind_kernel;
    q->behind_kernel = true;
    if (early)
        return x->cuda->more.cuLaunchKernelEx(&config, phase->function, (void **)phase->params,
                                              NULL);
    return x->cuda->cu.cuLaunchKernel(phase->function, phase->grid, 1, 1, launch->threads, 1, 1,
                                      launch->shared, q->stream, (void **)phase->params, NULL);
}

static f8_status launch_phases(f8_cuda_exec *x, const f8_live_func *f, const f8_live_step *l,
                               queue *q, f8_diag *diag)
{
    for (uint32_t p = 0; p < l->step->n_phases; p++) {
        const f8_live_phase *phase = &l->phase[p];
        if (phase->grid == 0)
            continue;
        F8_TRY(f8_cuda_check(x->cuda, launch_kernel(x, phase, q), diag,
                             "cuLaunchKernel of '%s' (kernel %s) in %s", l->step->name,
                             phase->phase->launch.symbol, f->func->name));
    }
    return F8_OK;
}

/* This rank's rows of what all have, and zeros behind the last. */
static f8_status enqueue_slice(f8_cuda_exec *x, const f8_live_func *f, const f8_live_step *l,
                               CUstream stream, f8_diag *diag)
{
    const f8_collective_desc *d = &l->step->collective;
    const int64_t begin = x->options.nccl ? f8_nccl_rank(x->options.nccl) * d->bytes : 0,
                  left = d->whole - begin,
                  own = left < 0          ? 0
                        : left < d->bytes ? left
                                          : d->bytes;
    const CUdeviceptr from = l->arg[0] + (CUdeviceptr)begin, to = l->arg[1];
    CUresult r = CUDA_SUCCESS;
    if (own > 0)
        r = x->cuda->cu.cuMemcpyDtoDAsync_v2(to, from, (size_t)own, stream);
    if (r == CUDA_SUCCESS && own < d->bytes)
        r = x->cuda->cu.cuMemsetD8Async(to + (CUdeviceptr)own, 0, (size_t)(d->bytes - own), stream);
    return f8_cuda_check(x->cuda, r, diag, "all_slice '%s' in %s", l->step->name, f->func->name);
}

/* Starts it. A rank that is alone sends to itself. */
static f8_status enqueue_collective(f8_cuda_exec *x, const f8_live_func *f, f8_live_step *l,
                                    CUstream stream, f8_diag *diag)
{
    const f8_collective_desc *d = &l->step->collective;
    if (!f8_collective_travels(d->kind))
        return enqueue_slice(x, f, l, stream, diag);
    if (x->options.nccl)
        return f8_nccl_enqueue(x->options.nccl, d, l->arg[0], l->arg[1], stream, l->step->name,
                               f->func->name, &l->number, diag);
    return f8_cuda_check(
        x->cuda, x->cuda->cu.cuMemcpyDtoDAsync_v2(l->arg[1], l->arg[0], (size_t)d->bytes, stream),
        diag, "cuMemcpyDtoDAsync of '%s' in %s", l->step->name, f->func->name);
}

static f8_status enqueue_wait(f8_cuda_exec *x, const f8_live_func *f, const f8_live_step *l,
                              CUstream stream, f8_diag *diag)
{
    return x->options.nccl ? f8_nccl_join(x->options.nccl, f->step[l->step->waits].number, stream,
                                          l->step->name, diag)
                           : F8_OK;
}

static f8_status enqueue_gemm(f8_cuda_exec *x, const f8_live_step *l, CUstream stream,
                              CUdeviceptr workspace, f8_diag *diag)
{
    CUdeviceptr arg[F8_GEMM_ARGS];
    memcpy(arg, l->arg, sizeof arg);
    arg[F8_GEMM_ADDS] = l->arg[F8_GEMM_ADDS] && x->home->afresh;
    return f8_cublaslt_run(x->cuda, l->gemm, arg, workspace, stream, l->what, diag);
}

static f8_status enqueue_step(f8_cuda_exec *x, const f8_live_func *f, f8_live_step *l, queue *q,
                              f8_diag *diag)
{
    const CUdeviceptr *arg = l->arg;
    const f8_step *s = l->step;
    CUstream stream = q->stream;
    if (s->kind == F8_STEP_KERNEL)
        return launch_phases(x, f, l, q, diag);
    q->behind_kernel = s->kind == F8_STEP_GEMM || s->kind == F8_STEP_ATTENTION;
    switch (s->kind) {
    case F8_STEP_KERNEL: break;
    case F8_STEP_GEMM: return enqueue_gemm(x, l, stream, x->home->home.workspace.at, diag);
    case F8_STEP_ATTENTION: return f8_cuda_exec_run_attention(x, f, l, stream, diag);
    case F8_STEP_COPY:
        if (l->bytes == 0)
            return F8_OK;
        return f8_cuda_check(x->cuda,
                             x->cuda->cu.cuMemcpyDtoDAsync_v2(arg[1], arg[0], l->bytes, stream),
                             diag, "cuMemcpyDtoDAsync of '%s' in %s", s->name, f->func->name);
    case F8_STEP_COLLECTIVE: return enqueue_collective(x, f, l, stream, diag);
    case F8_STEP_WAIT: return enqueue_wait(x, f, l, stream, diag);
    }
    return F8_ERR_INTERNAL;
}

/* A step of the branch begins behind all before it; its workspace is the branch's. */
static f8_status enqueue_beside(f8_cuda_exec *x, const f8_live_func *f, f8_live_step *l, queue *q,
                                f8_diag *diag)
{
    F8_TRY(f8_cuda_exec_fork(x, f, q->stream, diag));
    F8_TRY(enqueue_gemm(x, l, x->branch, f8_cuda_exec_branch_workspace(x), diag));
    F8_CU(f->func->name, cuEventRecord, l->ended, x->branch);
    return F8_OK;
}

/* While a graph is captured. All of its branch is joined at its end; what a step joins that another
 * graph has, that graph's end has joined. */
static f8_status capture_steps(f8_cuda_exec *x, const f8_live_func *f, const f8_live_part *part,
                               queue *q, f8_diag *diag)
{
    uint32_t last = 0, joined = 0; /* steps of the branch, + 1 */
    for (uint32_t i = part->first; i <= part->end; i++) {
        const f8_step *s = i < part->end ? f->step[i].step : NULL;
        const uint32_t joins = !s ? last : s->joins > part->first ? s->joins : 0;
        if (joins > joined) {
            F8_TRY(f8_cuda_exec_join(x, f, joins - 1, q->stream, diag));
            q->behind_kernel = false;
            joined = joins;
        }
        if (s && s->branch) {
            F8_TRY(enqueue_beside(x, f, &f->step[i], q, diag));
            last = i + 1;
        } else if (s) {
            F8_TRY(enqueue_step(x, f, &f->step[i], q, diag));
        }
    }
    return F8_OK;
}

/* Enqueues steps one by one: between events if times are wanted, and with a wait after each under
 * `blocking` and where somebody looks on. */
f8_status f8_cuda_exec_run_steps(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    const char *name = f->func->name;
    const f8_observer *o = x->observer;
    queue q = {.stream = x->stream};
    if (f->event)
        F8_CU(name, cuEventRecord, f->event[0], x->stream);
    if (o)
        F8_TRY(f8_cuda_exec_sync(x, diag, "before %s", name));
    for (uint32_t i = 0; i < f->func->n_steps; i++) {
        if (o)
            F8_TRY(o->before(o->user, i, diag));
        f->step[i].enqueued = f->event ? f8_seconds_now() : 0;
        F8_TRY(enqueue_step(x, f, &f->step[i], &q, diag));
        if (f->event)
            F8_CU(name, cuEventRecord, f->event[i + 1], x->stream);
        if (x->options.blocking || o)
            F8_TRY(f8_cuda_exec_sync(x, diag, "after '%s' in %s", f->step[i].step->name, name));
        if (o)
            F8_TRY(o->after(o->user, i, diag));
    }
    return F8_OK;
}

/* A step's time begins where the one before ends. If the host enqueued the step only after that,
 * the GPU waited: that is the gap. Both clocks begin with the first step, when the stream is empty.
 */
f8_status f8_cuda_exec_add_times(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    double through = 0; /* seconds on the GPU from the first step on */
    for (uint32_t i = 0; f->event && i < f->func->n_steps; i++) {
        float milliseconds = 0;
        F8_CU(f->func->name, cuEventElapsedTime, &milliseconds, f->event[i], f->event[i + 1]);
        const double seconds = 1e-3 * (double)milliseconds,
                     late = f->step[i].enqueued - f->step[0].enqueued - through;
        const double gap = late < 0 ? 0 : late < seconds ? late : seconds;
        f->step[i].seconds += seconds;
        f->step[i].gap += gap;
        f->step[i].first += f->timed ? 0 : seconds;
        f->step[i].first_gap += f->timed ? 0 : gap;
        through += seconds;
    }
    f->timed = true;
    return F8_OK;
}

/* ---- graphs ---- */

/* Captures in a stream of our own, since the embedder's may not allow it. The mode is relaxed: what
 * other threads of this process do meanwhile does not matter, and our steps only launch. */
static f8_status capture(f8_cuda_exec *x, f8_live_func *f, const f8_live_part *part, CUgraph *graph,
                         f8_diag *diag)
{
    queue q = {.stream = x->own, .dependent = x->plan->dependent_launch};
    *graph = NULL;
    F8_CU(f->func->name, cuStreamBeginCapture_v2, x->own, CU_STREAM_CAPTURE_MODE_RELAXED);
    const f8_status status = capture_steps(x, f, part, &q, diag);
    const CUresult end =
        x->cuda->cu.cuStreamEndCapture(x->own, graph); /* in any case: it ends the mode */
    return status == F8_OK
               ? f8_cuda_check(x->cuda, end, diag, "cuStreamEndCapture of %s", f->func->name)
               : status;
}

/* All addresses that a captured graph depends on, and whether it begins sums afresh, into `to`
 * unless it is NULL. Returns how many. */
static size_t addresses(const f8_cuda_exec *x, const f8_live_func *f, uint64_t *to)
{
    size_t n = 0;
    for (uint32_t i = 0; i < f->func->n_steps; i++) {
        const f8_live_step *l = &f->step[i];
        for (uint32_t k = 0; k < l->step->n_args; k++, n++)
            if (to)
                to[n] = l->arg[k];
    }
    if (to)
        to[n] = x->home->home.workspace.at;
    if (to)
        to[n + 1] = f->counts && x->home->afresh;
    return n + 2;
}

/* The graph of the present addresses, or the one to give up for it: an unused one, or else the one
 * whose last launch is longest ago. */
static f8_live_graph *find_graph(f8_cuda_exec *x, f8_live_func *f, bool *known)
{
    f8_live_graph *oldest = &f->graph[0];
    addresses(x, f, f->addresses);
    *known = false;
    for (int i = 0; i < F8_GRAPHS; i++) {
        f8_live_graph *g = &f->graph[i];
        *known = g->whole && !memcmp(g->addresses, f->addresses, f->n_addresses * sizeof(uint64_t));
        if (*known)
            return g;
        if (!g->part ? oldest->part != NULL : oldest->part && g->launched < oldest->launched)
            oldest = g;
    }
    return oldest;
}

/* Whether NCCL has to do with it, which is not captured. */
static bool stands_alone(const f8_live_func *f, uint32_t i)
{
    const f8_step *s = &f->func->step[i];
    return s->kind == F8_STEP_WAIT ||
           (s->kind == F8_STEP_COLLECTIVE && f8_collective_travels(s->collective.kind));
}

/* Part k ends where the step k that stands alone is; the last ends with the function. */
static f8_status divide(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    uint32_t n = 1, k = 0;
    for (uint32_t i = 0; i < f->func->n_steps; i++)
        n += stands_alone(f, i);
    f->part = F8_NEW_ARRAY(&x->memory, f8_live_part, n);
    F8_TRY(f8_arena_status(&x->memory, diag));
    f->n_parts = n;
    for (uint32_t i = 0; i < f->func->n_steps; i++)
        if (stands_alone(f, i)) {
            f->part[k++].end = i;
            f->part[k].first = i + 1;
        }
    f->part[k].end = f->func->n_steps;
    return F8_OK;
}

static f8_status make_room(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    if (f->addresses)
        return F8_OK;
    F8_TRY(divide(x, f, diag));
    f->n_addresses = addresses(x, f, NULL);
    uint64_t *all = F8_NEW_ARRAY(&x->memory, uint64_t, (F8_GRAPHS + 1) * f->n_addresses);
    if (!all)
        return f8_arena_status(&x->memory, diag);
    f->addresses = all;
    for (int i = 0; i < F8_GRAPHS; i++)
        f->graph[i].addresses = all + (size_t)(i + 1) * f->n_addresses;
    return F8_OK;
}

/* Make *exec launch `graph`. What the driver can't update it destroys and makes anew. */
static f8_status instantiate(f8_cuda_exec *x, const f8_live_func *f, CUgraphExec *exec,
                             CUgraph graph, f8_diag *diag)
{
    const f8_cuda_api *cu = &x->cuda->cu;
    CUgraphExecUpdateResultInfo info;
    if (*exec && cu->cuGraphExecUpdate_v2(*exec, graph, &info) == CUDA_SUCCESS)
        return F8_OK;
    if (*exec)
        cu->cuGraphExecDestroy(*exec); /* one in flight ends first */
    *exec = NULL;
    return f8_cuda_check(x->cuda, cu->cuGraphInstantiateWithFlags(exec, graph, 0), diag,
                         "cuGraphInstantiate of %s", f->func->name);
}

static f8_status make_part(f8_cuda_exec *x, f8_live_func *f, const f8_live_part *part,
                           CUgraphExec *exec, f8_diag *diag)
{
    CUgraph graph;
    if (part->first == part->end)
        return F8_OK;
    f8_status status = capture(x, f, part, &graph, diag);
    if (status == F8_OK)
        status = instantiate(x, f, exec, graph, diag);
    if (graph)
        x->cuda->cu.cuGraphDestroy(graph);
    return status;
}

static f8_status choose_graph(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    bool known;
    F8_TRY(make_room(x, f, diag));
    f8_live_graph *g = find_graph(x, f, &known);
    if (!g->part)
        g->part = F8_NEW_ARRAY(&x->memory, CUgraphExec, f->n_parts);
    F8_TRY(f8_arena_status(&x->memory, diag));
    if (!known) {
        g->whole = false;
        for (uint32_t i = 0; i < f->n_parts; i++)
            F8_TRY(make_part(x, f, &f->part[i], &g->part[i], diag));
        memcpy(g->addresses, f->addresses, f->n_addresses * sizeof(uint64_t));
        g->whole = true;
    }
    f->now = g;
    return F8_OK;
}

f8_status f8_cuda_exec_launch(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    if (f->func->n_steps == 0)
        return F8_OK;
    if (f->counts && f->afresh != x->home->afresh)
        f->now = NULL;
    f->afresh = x->home->afresh;
    if (!f->now)
        F8_TRY(choose_graph(x, f, diag));
    f->now->launched = ++f->launches;
    queue q = {.stream = x->stream};
    for (uint32_t i = 0; i < f->n_parts; i++) {
        if (f->now->part[i])
            F8_CU(f->func->name, cuGraphLaunch, f->now->part[i], x->stream);
        if (i + 1 < f->n_parts)
            F8_TRY(enqueue_step(x, f, &f->step[f->part[i].end], &q, diag));
    }
    return F8_OK;
}

void f8_cuda_exec_release_graphs(f8_cuda_exec *x, f8_live_func *f)
{
    for (int i = 0; i < F8_GRAPHS; i++) {
        f8_live_graph *g = &f->graph[i];
        for (uint32_t k = 0; g->part && k < f->n_parts; k++) {
            if (g->part[k])
                x->cuda->cu.cuGraphExecDestroy(g->part[k]); /* one in flight ends first */
            g->part[k] = NULL;
        }
        g->whole = false;
    }
    f->now = NULL;
}
