/* The executor on a GPU, its life and its memory: see cuda_exec.h. */
#include "runtime/cuda_exec_internal.h"

#include <stdio.h>
#include <string.h>

#define CU(what, call, ...)                                                                        \
    F8_TRY(f8_cuda_check(x->cuda, x->cuda->cu.call(__VA_ARGS__), diag, #call " of %s", what))

static int64_t round_up(int64_t n)
{
    return (n + F8_CUDA_ALIGN - 1) / F8_CUDA_ALIGN * F8_CUDA_ALIGN;
}

/* ---- device memory ---- */

/* "; the biggest variables are wte f32[50304, 768] (154533888), ..." into text. */
static void name_biggest(const f8_plan *plan, char *text, size_t room)
{
    enum { NAMED = 5 };
    int64_t below = INT64_MAX;
    uint32_t last = UINT32_MAX;
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; k < NAMED; k++) {
        uint32_t best = UINT32_MAX;
        int64_t most = -1;
        for (uint32_t v = 0; v < plan->n_vars; v++) {
            const int64_t bytes = f8_type_bytes(&plan->var[v].type);
            const bool left = bytes < below || (bytes == below && v > last);
            if (left && bytes > most) {
                most = bytes;
                best = v;
            }
        }
        if (best == UINT32_MAX)
            return;
        char type[160];
        const int n =
            snprintf(text + used, room - used, "%s%s %s (%lld)",
                     k ? ", " : "; the biggest variables are ", plan->var[best].name,
                     f8_type_print(&plan->var[best].type, type, sizeof type), (long long)most);
        if (n < 0 || (size_t)n >= room - used) {
            text[used] = '\0'; /* whole entries only */
            return;
        }
        used += (size_t)n;
        below = most;
        last = best;
    }
}

static f8_status out_of_memory(f8_cuda_exec *x, size_t bytes, const char *what, f8_diag *diag)
{
    size_t free_bytes = 0, total = 0;
    char biggest[600], left[96] = "how many are free the driver does not say";
    name_biggest(x->plan, biggest, sizeof biggest);
    if (x->cuda->cu.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS)
        snprintf(left, sizeof left, "%zu of the device's %zu are free", free_bytes, total);
    return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                   "out of device memory: %zu bytes were wanted for %s (%lld in all), %s%s", bytes,
                   what, (long long)x->planned, left, biggest);
}

static f8_status device_alloc(f8_cuda_exec *x, int64_t wanted, const char *what, CUdeviceptr *out,
                              f8_diag *diag)
{
    *out = 0;
    if (wanted == 0)
        return F8_OK;
    const size_t bytes = (size_t)wanted;
    CUdeviceptr p = 0;
    if (x->options.device_alloc) {
        p = (CUdeviceptr)(uintptr_t)x->options.device_alloc(x->options.device_user, bytes);
        if (!p)
            return out_of_memory(x, bytes, what, diag);
    } else {
        const CUresult r = x->cuda->cu.cuMemAlloc_v2(&p, bytes);
        if (r == CUDA_ERROR_OUT_OF_MEMORY)
            return out_of_memory(x, bytes, what, diag);
        F8_TRY(f8_cuda_check(x->cuda, r, diag, "cuMemAlloc of %zu bytes for %s", bytes, what));
    }
    x->buffer[x->n_buffers].p = p;
    x->buffer[x->n_buffers++].bytes = bytes;
    if (p % F8_CUDA_ALIGN)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "device memory for %s is not %d-byte aligned as it must be", what,
                       F8_CUDA_ALIGN);
    x->bytes += wanted;
    if (x->bytes > x->peak)
        x->peak = x->bytes;
    *out = p;
    return F8_OK;
}

static void device_free(f8_cuda_exec *x)
{
    for (int i = 0; i < x->n_buffers; i++) {
        if (x->options.device_free)
            x->options.device_free(x->options.device_user, (void *)(uintptr_t)x->buffer[i].p,
                                   x->buffer[i].bytes);
        else
            x->cuda->cu.cuMemFree_v2(x->buffer[i].p);
    }
}

f8_status f8_cuda_exec_upload(f8_cuda_exec *x, CUdeviceptr to, const void *from, size_t bytes,
                              const char *what, f8_diag *diag)
{
    CU(what, cuMemcpyHtoDAsync_v2, to, from, bytes, x->stream);
    CU(what, cuStreamSynchronize, x->stream);
    return F8_OK;
}

/* ---- ports ---- */

static const f8_plan_port *plan_port(const f8_plan_func *f, int side, uint32_t port)
{
    return side ? &f->out[port] : &f->in[port];
}

static uint32_t n_ports(const f8_plan_func *f, int side)
{
    return side ? f->n_out : f->n_in;
}

static int64_t port_room(const f8_plan_port *p)
{
    return p->var >= 0 ? 0 : round_up(f8_type_bytes(&p->type));
}

static int64_t all_ports(const f8_plan *plan)
{
    int64_t bytes = 0;
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (int side = 0; side < 2; side++)
            for (uint32_t k = 0; k < n_ports(&plan->func[f], side); k++)
                bytes += port_room(plan_port(&plan->func[f], side, k));
    return bytes;
}

static void place_ports(f8_cuda_exec *x)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < x->plan->n_funcs; i++)
        for (int side = 0; side < 2; side++)
            for (uint32_t k = 0; k < n_ports(&x->plan->func[i], side); k++) {
                const f8_plan_port *p = plan_port(&x->plan->func[i], side, k);
                f8_live_port *l = &x->func[i].port[side][k];
                l->bytes = (size_t)f8_type_bytes(&p->type);
                if (p->var >= 0) {
                    l->own_device = x->state + (CUdeviceptr)x->plan->var[p->var].offset;
                } else {
                    l->own_device = x->ports + (CUdeviceptr)at;
                    l->own_host = (uint8_t *)x->pinned + at;
                }
                l->device = l->own_device;
                l->host = l->own_host;
                at += port_room(p);
            }
}

/* ---- creation ---- */

static int64_t largest_arena(const f8_plan *plan)
{
    int64_t arena = 0;
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        if (plan->func[f].arena_bytes > arena)
            arena = plan->func[f].arena_bytes;
    return arena;
}

int64_t f8_cuda_exec_plan_bytes(const f8_plan *plan)
{
    return plan->state_bytes + largest_arena(plan) + plan->constants_bytes + all_ports(plan) +
           plan->gemm_workspace;
}

static f8_status allocate(f8_cuda_exec *x, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    const int64_t ports = all_ports(plan), arena = largest_arena(plan);
    x->planned = f8_cuda_exec_plan_bytes(plan) - plan->gemm_workspace + x->workspace_bytes;
    F8_TRY(device_alloc(x, plan->state_bytes, "variables", &x->state, diag));
    F8_TRY(device_alloc(x, arena, "the arena", &x->arena, diag));
    F8_TRY(device_alloc(x, plan->constants_bytes, "constants", &x->constants, diag));
    F8_TRY(device_alloc(x, x->workspace_bytes, "workspace", &x->workspace, diag));
    F8_TRY(device_alloc(x, ports, "inputs and outputs", &x->ports, diag));
    if (plan->constants_bytes)
        F8_TRY(f8_cuda_exec_upload(x, x->constants, plan->constants, (size_t)plan->constants_bytes,
                                   "constants", diag));
    if (ports) {
        CU("inputs and outputs", cuMemAllocHost_v2, &x->pinned, (size_t)ports);
        memset(x->pinned, 0, (size_t)ports);
        CU("inputs and outputs", cuMemsetD8Async, x->ports, 0, (size_t)ports, x->stream);
    }
    place_ports(x);
    return F8_OK;
}

static f8_status load_images(f8_cuda_exec *x, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    x->module = F8_NEW_ARRAY(&x->memory, CUmodule, plan->n_images);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t i = 0; i < plan->n_images; i++)
        F8_TRY(f8_cuda_check(
            x->cuda, x->cuda->cu.cuModuleLoadData(&x->module[i], plan->image[i].bytes), diag,
            "cuModuleLoadData of image %u (%lld bytes)", i, (long long)plan->image[i].size));
    return F8_OK;
}

static f8_status make_events(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    if (!x->options.profile)
        return F8_OK;
    f->event = F8_NEW_ARRAY(&x->memory, CUevent, f->func->n_steps + 1);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t i = 0; i <= f->func->n_steps; i++)
        CU(f->func->name, cuEventCreate, &f->event[i], CU_EVENT_DEFAULT);
    return F8_OK;
}

static f8_status make_funcs(f8_cuda_exec *x, f8_diag *diag)
{
    x->func = F8_NEW_ARRAY(&x->memory, f8_live_func, x->plan->n_funcs);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t i = 0; i < x->plan->n_funcs; i++) {
        f8_live_func *f = &x->func[i];
        f->func = &x->plan->func[i];
        f->step = F8_NEW_ARRAY(&x->memory, f8_live_step, f->func->n_steps);
        for (int side = 0; side < 2; side++)
            f->port[side] = F8_NEW_ARRAY(&x->memory, f8_live_port, n_ports(f->func, side));
        F8_TRY(f8_arena_status(&x->memory, diag));
    }
    for (uint32_t i = 0; i < x->plan->n_funcs; i++) {
        F8_TRY(make_events(x, &x->func[i], diag));
        F8_TRY(f8_cuda_exec_make_func(x, i, diag));
    }
    return F8_OK;
}

static f8_status check_target(const f8_cuda_exec *x, f8_diag *diag)
{
    const f8_target *t = f8_target_by_name(x->plan->target);
    if (t && t->kind == F8_TARGET_CUDA && t->sm == x->cuda->facts.sm)
        return F8_OK;
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "the plan is for %s; the device, %s, has compute capability %d.%d",
                   x->plan->target, x->cuda->facts.name, x->cuda->facts.sm / 10,
                   x->cuda->facts.sm % 10);
}

static f8_status exec_build(f8_cuda_exec *x, f8_diag *diag)
{
    CU("the executor", cuStreamCreate, &x->own, CU_STREAM_NON_BLOCKING);
    x->stream = x->options.stream ? x->options.stream : x->own;
    F8_TRY(load_images(x, diag));
    F8_TRY(make_funcs(x, diag));
    F8_TRY(f8_cuda_exec_prepare_gemms(x, diag));
    F8_TRY(f8_cuda_exec_prepare_attentions(x, diag));
    F8_TRY(allocate(x, diag));
    for (uint32_t i = 0; i < x->plan->n_funcs; i++)
        f8_cuda_exec_resolve(x, &x->func[i]);
    return F8_OK;
}

f8_status f8_cuda_exec_create(const f8_plan *plan, f8_cuda *cuda,
                              const f8_cuda_exec_options *options, f8_cuda_exec **out,
                              f8_diag *diag)
{
    *out = NULL;
    if (!cuda->context)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no CUDA device was taken");
    if (!options->device_alloc != !options->device_free)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "device_alloc and device_free: both or none");
    const f8_allocator allocator =
        options->allocator ? *options->allocator : f8_default_allocator();
    f8_cuda_exec *x = allocator.alloc(allocator.user, sizeof *x, 16);
    if (!x)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *x);
    *x = (f8_cuda_exec){.plan = plan, .cuda = cuda, .options = *options, .allocator = allocator};
    if (options->parallel)
        x->parallel = *options->parallel;
    f8_arena_init(&x->memory, &x->allocator);
    f8_status status = check_target(x, diag);
    if (status == F8_OK)
        status = f8_cuda_enter(cuda, diag);
    if (status == F8_OK) {
        status = exec_build(x, diag);
        f8_cuda_leave(cuda);
    }
    if (status != F8_OK) {
        f8_cuda_exec_destroy(x);
        return status;
    }
    *out = x;
    return F8_OK;
}

/* ---- the end ---- */

static void destroy_func(f8_cuda_exec *x, f8_live_func *f)
{
    f8_cuda_exec_forget_graph(x, f);
    for (uint32_t i = 0; f->event && i <= f->func->n_steps; i++)
        if (f->event[i])
            x->cuda->cu.cuEventDestroy_v2(f->event[i]);
}

/* What the calls answer is not looked at: after a lost device they all fail, and the driver has
 * freed everything itself. */
void f8_cuda_exec_destroy(f8_cuda_exec *x)
{
    if (!x)
        return;
    const f8_cuda_api *cu = &x->cuda->cu;
    const bool entered = f8_cuda_enter(x->cuda, NULL) == F8_OK;
    if (x->stream)
        cu->cuStreamSynchronize(x->stream);
    for (uint32_t i = 0; x->func && i < x->plan->n_funcs; i++)
        destroy_func(x, &x->func[i]);
    f8_cuda_exec_release_attentions(x);
    f8_cublaslt_release_all(x->cuda, &x->gemms, &x->allocator);
    for (uint32_t i = 0; x->module && i < x->plan->n_images; i++)
        if (x->module[i])
            cu->cuModuleUnload(x->module[i]);
    if (x->pinned)
        cu->cuMemFreeHost(x->pinned);
    device_free(x);
    if (x->own)
        cu->cuStreamDestroy_v2(x->own);
    if (entered)
        f8_cuda_leave(x->cuda);
    f8_arena_end(&x->memory);
    const f8_allocator allocator = x->allocator;
    allocator.free(allocator.user, x, sizeof *x);
}

int64_t f8_cuda_exec_planned_bytes(const f8_cuda_exec *x)
{
    return x->planned;
}

int64_t f8_cuda_exec_peak_bytes(const f8_cuda_exec *x)
{
    return x->peak;
}
