/* The CUDA executor's memory and modules, alone or shared by a program's executors: see
 * exec_internal.h. */
#include "runtime/cuda/exec_internal.h"
#include "runtime/work.h"

#include <stdio.h>
#include <string.h>

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
                   what, (long long)x->tenant.planned, left, biggest);
}

/* Who gives device memory; alloc NULL: the driver. */
typedef struct source {
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *ptr, size_t bytes);
    void *user;
} source;

static source source_of(const f8_cuda_home *h, bool shared)
{
    const f8_cuda_exec_options *o = &h->options;
    const f8_work *w = h->home.work;
    return shared ? (source){w->device_alloc, w->device_free, w->device_user}
                  : (source){o->device_alloc, o->device_free, o->device_user};
}

static void device_free(f8_home *home, f8_block b, bool shared)
{
    const f8_cuda_home *h = (const f8_cuda_home *)home;
    const source s = source_of(h, shared);
    if (s.free)
        s.free(s.user, (void *)(uintptr_t)b.at, (size_t)b.bytes);
    else
        h->cuda->cu.cuMemFree_v2(b.at);
}

static f8_status device_alloc(f8_tenant *t, int64_t wanted, bool shared, const char *what,
                              uint64_t *at, f8_diag *diag)
{
    f8_cuda_exec *x = (f8_cuda_exec *)t;
    const source s = source_of(x->home, shared);
    const size_t bytes = (size_t)wanted;
    CUdeviceptr p = 0;
    if (s.alloc) {
        p = (uintptr_t)s.alloc(s.user, bytes);
        if (!p)
            return out_of_memory(x, bytes, what, diag);
    } else {
        const CUresult r = x->cuda->cu.cuMemAlloc_v2(&p, bytes);
        if (r == CUDA_ERROR_OUT_OF_MEMORY)
            return out_of_memory(x, bytes, what, diag);
        F8_TRY(f8_cuda_check(x->cuda, r, diag, "cuMemAlloc of %zu bytes for %s", bytes, what));
    }
    if (p % F8_CUDA_ALIGN) {
        device_free(t->home, (f8_block){p, wanted}, shared);
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "device memory for %s is not %d-byte aligned as it must be", what,
                       F8_CUDA_ALIGN);
    }
    *at = p;
    return F8_OK;
}

static f8_status clear_ports(f8_tenant *t, f8_port_block *ports, f8_diag *diag)
{
    f8_cuda_exec *x = (f8_cuda_exec *)t;
    const size_t bytes = (size_t)ports->block.bytes;
    F8_CU("inputs and outputs", cuMemAllocHost_v2, (void **)&ports->host, bytes);
    memset(ports->host, 0, bytes);
    F8_CU("inputs and outputs", cuMemsetD8Async, ports->block.at, 0, bytes, x->stream);
    return F8_OK;
}

static void free_pinned(const f8_cuda *cuda, f8_port_block *ports)
{
    if (ports->host)
        cuda->cu.cuMemFreeHost(ports->host);
}

/* Every run with that memory waits for the one before, so all are over with the last. */
static f8_status settle(f8_tenant *t, f8_diag *diag)
{
    f8_cuda_exec *x = (f8_cuda_exec *)t;
    F8_TRY(f8_cuda_exec_begin_work(x, diag));
    return f8_cuda_exec_sync(x, diag, "before the arena grows");
}

static void resolve(f8_tenant *t, uint32_t func)
{
    f8_cuda_exec_resolve((f8_cuda_exec *)t, func);
}

static const f8_home_kind device_memory = {
    .size = sizeof(f8_cuda_home),
    .align = F8_CUDA_ALIGN,
    .alloc = device_alloc,
    .free = device_free,
    .clear = clear_ports,
    .settle = settle,
    .resolve = resolve,
};

int64_t f8_cuda_exec_plan_bytes(const f8_plan *plan, const char *external)
{
    const f8_sizes s = f8_plan_sizes(plan, external, F8_CUDA_ALIGN);
    const int64_t shared = plan->attention_workspace > plan->gemm_workspace
                               ? plan->attention_workspace
                               : plan->gemm_workspace;
    return f8_sizes_sum(&s, plan, 0, f8_cuda_exec_workspace(plan, shared));
}

f8_status f8_cuda_exec_upload(f8_cuda_exec *x, CUdeviceptr to, const void *from, size_t bytes,
                              const char *what, f8_diag *diag)
{
    F8_CU(what, cuMemcpyHtoDAsync_v2, to, from, bytes, x->stream);
    return f8_cuda_exec_sync(x, diag, "of %s", what);
}

f8_status f8_cuda_exec_allocate(f8_cuda_exec *x, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    f8_block *constants = &x->tenant.constants;
    F8_TRY(f8_home_allocate(&x->tenant, 0, f8_cuda_exec_workspace(plan, x->workspace_bytes), diag));
    F8_TRY(f8_block_alloc(&x->tenant, plan->constants_bytes, "constants", constants, diag));
    if (plan->constants_bytes)
        F8_TRY(f8_cuda_exec_upload(x, constants->at, plan->constants, (size_t)plan->constants_bytes,
                                   "constants", diag));
    return f8_home_allocate_ports(&x->tenant, diag);
}

/* ---- images ---- */

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
            m = home->home.allocator.alloc(home->home.allocator.user, sizeof *m, 16);
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

/* A module points to the bytes of one executor's plan. If that executor ends while others use the
 * module, the module is made to point to the equal bytes of one of their plans. */
static void hand_over(const f8_cuda_exec *x, f8_cuda_module *m)
{
    for (const f8_tenant *t = x->home->home.first; t; t = t->next) {
        const f8_cuda_exec *other = (const f8_cuda_exec *)t;
        for (uint32_t i = 0; other != x && other->module && i < other->plan->n_images; i++)
            if (other->module[i] == m) {
                m->image = other->plan->image[i];
                return;
            }
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
        home->home.allocator.free(home->home.allocator.user, m, sizeof *m);
    }
}

/* ---- a home ---- */

f8_status f8_cuda_exec_enter_home(f8_cuda_exec *x, const f8_cuda_exec_options *o, f8_diag *diag)
{
    const f8_work_place place = {&device_memory, (int)x->cuda->device};
    f8_work *work = o->like ? NULL : o->work;
    x->tenant.plan = x->plan;
    F8_TRY(f8_work_join(work, &place, diag));
    const f8_status status =
        f8_home_enter(&x->tenant, o->like ? o->like->tenant.home : NULL, &device_memory,
                      &x->allocator, o->external, &x->memory, diag);
    f8_cuda_home *home = x->home = (f8_cuda_home *)x->tenant.home;
    if (!home)
        f8_work_abandon(work);
    if (home && !o->like) {
        home->home.work = work;
        home->cuda = x->cuda;
        home->options = *o;
        f8_arena_init(&home->memory, &home->home.allocator);
    }
    if (status != F8_OK)
        return status;
    if (!o->like)
        F8_CU("the executor", cuStreamCreate, &home->own, CU_STREAM_NON_BLOCKING);
    if (!o->like && !home->options.stream)
        F8_CU("the executor", cuStreamCreate, &home->ordered, CU_STREAM_DEFAULT);
    if (!o->like)
        home->stream = home->options.stream ? home->options.stream : home->ordered;
    x->own = home->own;
    x->stream = home->stream;
    return F8_OK;
}

static void end_work(f8_work *work, f8_home *home)
{
    if (work->done)
        ((f8_cuda_home *)home)->cuda->cu.cuEventDestroy_v2(work->done);
    work->done = NULL;
}

void f8_cuda_exec_leave_home(f8_cuda_exec *x)
{
    f8_cuda_home *home = x->home;
    if (!home)
        return;
    leave_modules(x);
    f8_block_free(&home->home, &x->tenant.constants);
    free_pinned(home->cuda, &x->tenant.ports);
    if (!f8_home_leave(&x->tenant))
        return;
    f8_cuda_exec_release_attentions(home);
    f8_cublaslt_release_all(home->cuda, &home->gemms, &home->home.allocator);
    free_pinned(home->cuda, &home->home.ports);
    if (home->own)
        home->cuda->cu.cuStreamDestroy_v2(home->own);
    if (home->ordered)
        home->cuda->cu.cuStreamDestroy_v2(home->ordered);
    if (home->moved)
        home->cuda->cu.cuEventDestroy_v2(home->moved);
    f8_work_leave(home->home.work, &home->home, end_work);
    f8_arena_end(&home->memory);
    f8_home_end(&home->home);
}
