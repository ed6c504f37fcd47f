/* The CUDA executor's memory and modules, alone or shared by a program's executors: see
 * cuda_exec_internal.h. */
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

/* Of the home's account; the caller's to free. */
static f8_status block_alloc(f8_cuda_exec *x, int64_t wanted, const char *what, f8_cuda_block *out,
                             f8_diag *diag)
{
    f8_cuda_home *home = x->home;
    *out = (f8_cuda_block){0};
    if (wanted == 0)
        return F8_OK;
    const size_t bytes = (size_t)wanted;
    CUdeviceptr p = 0;
    if (home->options.device_alloc) {
        p = (CUdeviceptr)(uintptr_t)home->options.device_alloc(home->options.device_user, bytes);
        if (!p)
            return out_of_memory(x, bytes, what, diag);
    } else {
        const CUresult r = x->cuda->cu.cuMemAlloc_v2(&p, bytes);
        if (r == CUDA_ERROR_OUT_OF_MEMORY)
            return out_of_memory(x, bytes, what, diag);
        F8_TRY(f8_cuda_check(x->cuda, r, diag, "cuMemAlloc of %zu bytes for %s", bytes, what));
    }
    *out = (f8_cuda_block){p, wanted};
    home->bytes += wanted;
    if (home->bytes > home->peak)
        home->peak = home->bytes;
    return p % F8_CUDA_ALIGN == 0
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         "device memory for %s is not %d-byte aligned as it must be", what,
                         F8_CUDA_ALIGN);
}

static void block_free(f8_cuda_home *home, f8_cuda_block *b)
{
    if (!b->p)
        return;
    if (home->options.device_free)
        home->options.device_free(home->options.device_user, (void *)(uintptr_t)b->p,
                                  (size_t)b->bytes);
    else
        home->cuda->cu.cuMemFree_v2(b->p);
    home->bytes -= b->bytes;
    *b = (f8_cuda_block){0};
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
    const f8_cuda_ports *ports = x->ports.device.p ? &x->ports : &x->home->ports;
    int64_t at = 0;
    for (uint32_t i = 0; i < x->plan->n_funcs; i++)
        for (int side = 0; side < 2; side++)
            for (uint32_t k = 0; k < n_ports(&x->plan->func[i], side); k++) {
                const f8_plan_port *p = plan_port(&x->plan->func[i], side, k);
                f8_live_port *l = &x->func[i].port[side][k];
                l->bytes = (size_t)f8_type_bytes(&p->type);
                if (p->var >= 0) {
                    l->own_device = x->home->state.p + (CUdeviceptr)x->plan->var[p->var].offset;
                } else {
                    l->own_device = ports->device.p + (CUdeviceptr)at;
                    l->own_host = (uint8_t *)ports->pinned + at;
                }
                l->device = l->own_device;
                l->host = l->own_host;
                at += port_room(p);
            }
}

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

/* ---- what executors share ---- */

static void resolve_all(f8_cuda_exec *x)
{
    for (uint32_t i = 0; i < x->plan->n_funcs; i++) {
        f8_cuda_exec_forget_graph(x, &x->func[i]);
        f8_cuda_exec_resolve(x, &x->func[i]);
    }
}

/* The memory that one run at a time works in grows to what x needs; all or nothing. Others find it
 * where it then is. */
static f8_status grow(f8_cuda_exec *x, f8_diag *diag)
{
    static const char *const what[] = {"the arena", "workspace"};
    f8_cuda_home *home = x->home;
    f8_cuda_block *block[] = {&home->arena, &home->workspace}, fresh[2] = {{0}};
    const int64_t need[] = {largest_arena(x->plan), x->workspace_bytes};
    f8_status status = F8_OK;
    for (int i = 0; i < 2 && status == F8_OK; i++)
        if (need[i] > block[i]->bytes)
            status = block_alloc(x, need[i], what[i], &fresh[i], diag);
    const bool frees = (fresh[0].p && home->arena.p) || (fresh[1].p && home->workspace.p);
    if (status == F8_OK && frees) /* what runs enqueued before use */
        status = f8_cuda_check(x->cuda, x->cuda->cu.cuStreamSynchronize(x->stream), diag,
                               "cuStreamSynchronize before the arena grows");
    bool moved = false;
    for (int i = 0; i < 2; i++) {
        if (!fresh[i].p)
            continue;
        block_free(home, status == F8_OK ? block[i] : &fresh[i]);
        if (status != F8_OK)
            continue;
        *block[i] = fresh[i];
        moved = true;
    }
    for (f8_cuda_exec *other = home->first; other && moved; other = other->next)
        if (other != x)
            resolve_all(other);
    return status;
}

static f8_status allocate_ports(f8_cuda_exec *x, f8_cuda_ports *ports, int64_t bytes, f8_diag *diag)
{
    F8_TRY(block_alloc(x, bytes, "inputs and outputs", &ports->device, diag));
    if (bytes == 0)
        return F8_OK;
    CU("inputs and outputs", cuMemAllocHost_v2, &ports->pinned, (size_t)bytes);
    memset(ports->pinned, 0, (size_t)bytes);
    CU("inputs and outputs", cuMemsetD8Async, ports->device.p, 0, (size_t)bytes, x->stream);
    return F8_OK;
}

static void free_ports(f8_cuda_home *home, f8_cuda_ports *ports)
{
    if (ports->pinned)
        home->cuda->cu.cuMemFreeHost(ports->pinned);
    ports->pinned = NULL;
    block_free(home, &ports->device);
}

f8_status f8_cuda_exec_allocate(f8_cuda_exec *x, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    f8_cuda_home *home = x->home;
    const int64_t ports = all_ports(plan);
    const bool alone = home->first == x && !x->next;
    x->planned = f8_cuda_exec_plan_bytes(plan) - plan->gemm_workspace + x->workspace_bytes;
    if (alone)
        F8_TRY(block_alloc(x, plan->state_bytes, "variables", &home->state, diag));
    else if (plan->state_bytes != home->state.bytes)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "executors with variables of %lld and of %lld bytes",
                       (long long)plan->state_bytes, (long long)home->state.bytes);
    F8_TRY(grow(x, diag));
    F8_TRY(block_alloc(x, plan->constants_bytes, "constants", &x->constants, diag));
    if (plan->constants_bytes)
        F8_TRY(f8_cuda_exec_upload(x, x->constants.p, plan->constants,
                                   (size_t)plan->constants_bytes, "constants", diag));
    if (alone ||
        ports > home->ports.device.bytes) /* buffers of others have been handed out: they stay */
        F8_TRY(allocate_ports(x, alone ? &home->ports : &x->ports, ports, diag));
    place_ports(x);
    for (uint32_t i = 0; i < plan->n_funcs; i++)
        f8_cuda_exec_resolve(x, &x->func[i]);
    return F8_OK;
}

/* An image that is loaded already. */
static f8_cuda_module *find_module(const f8_cuda_home *home, const f8_image *image)
{
    for (f8_cuda_module *m = home->module; m; m = m->next)
        if (m->image.size == image->size &&
            !memcmp(m->image.bytes, image->bytes, (size_t)image->size))
            return m;
    return NULL;
}

f8_status f8_cuda_exec_load_images(f8_cuda_exec *x, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    f8_cuda_home *home = x->home;
    x->module = F8_NEW_ARRAY(&x->memory, f8_cuda_module *, plan->n_images);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t i = 0; i < plan->n_images; i++) {
        f8_cuda_module *m = find_module(home, &plan->image[i]);
        if (!m) {
            m = home->allocator.alloc(home->allocator.user, sizeof *m, 16);
            if (!m)
                return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                               "out of memory: %zu bytes were wanted", sizeof *m);
            *m = (f8_cuda_module){.next = home->module, .image = plan->image[i]};
            home->module = m;
        }
        m->users++;
        x->module[i] = m;
        if (!m->module)
            F8_TRY(f8_cuda_check(
                x->cuda, x->cuda->cu.cuModuleLoadData(&m->module, plan->image[i].bytes), diag,
                "cuModuleLoadData of image %u (%lld bytes)", i, (long long)plan->image[i].size));
    }
    return F8_OK;
}

/* An image's bytes are a plan's: as long as others use the module, those of a plan that stays. */
static void hand_over(const f8_cuda_exec *x, f8_cuda_module *m)
{
    for (const f8_cuda_exec *other = x->home->first; other; other = other->next)
        for (uint32_t i = 0; other != x && other->module && i < other->plan->n_images; i++)
            if (other->module[i] == m) {
                m->image = other->plan->image[i];
                return;
            }
}

static void leave_modules(f8_cuda_exec *x)
{
    f8_cuda_home *home = x->home;
    for (uint32_t i = 0; x->module && i < x->plan->n_images; i++) {
        f8_cuda_module *m = x->module[i], **link = &home->module;
        if (!m)
            continue;
        x->module[i] = NULL;
        if (--m->users > 0) {
            hand_over(x, m);
            continue;
        }
        while (*link != m)
            link = &(*link)->next;
        *link = m->next;
        if (m->module)
            home->cuda->cu.cuModuleUnload(m->module);
        home->allocator.free(home->allocator.user, m, sizeof *m);
    }
}

f8_status f8_cuda_exec_enter_home(f8_cuda_exec *x, const f8_cuda_exec_options *o, f8_diag *diag)
{
    if (o->like) {
        x->home = o->like->home;
        x->next = x->home->first;
        x->home->first = x;
    } else {
        f8_cuda_home *home = x->allocator.alloc(x->allocator.user, sizeof *home, 16);
        if (!home)
            return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                           sizeof *home);
        *home =
            (f8_cuda_home){.allocator = x->allocator, .cuda = x->cuda, .options = *o, .first = x};
        f8_arena_init(&home->memory, &home->allocator);
        x->home = home;
        CU("the executor", cuStreamCreate, &home->own, CU_STREAM_NON_BLOCKING);
    }
    x->own = x->home->own;
    x->stream = x->home->options.stream ? x->home->options.stream : x->own;
    return F8_OK;
}

static void end_home(f8_cuda_home *home)
{
    f8_cuda_exec_release_attentions(home);
    f8_cublaslt_release_all(home->cuda, &home->gemms, &home->allocator);
    free_ports(home, &home->ports);
    f8_cuda_block *const block[] = {&home->state, &home->arena, &home->workspace};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        block_free(home, block[i]);
    if (home->own)
        home->cuda->cu.cuStreamDestroy_v2(home->own);
    f8_arena_end(&home->memory);
    const f8_allocator allocator = home->allocator;
    allocator.free(allocator.user, home, sizeof *home);
}

void f8_cuda_exec_leave_home(f8_cuda_exec *x)
{
    f8_cuda_home *home = x->home;
    if (!home)
        return;
    leave_modules(x);
    block_free(home, &x->constants);
    free_ports(home, &x->ports);
    f8_cuda_exec **link = &home->first;
    while (*link != x)
        link = &(*link)->next;
    *link = x->next;
    if (!home->first)
        end_home(home);
}
