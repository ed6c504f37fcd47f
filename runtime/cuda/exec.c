/* The executor on a GPU, its life: see exec.h. */
#include "runtime/cuda/exec_internal.h"
#include "runtime/work.h"

/* ---- creation ---- */

static f8_status make_events(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    if (!x->options.profile)
        return F8_OK;
    f->event = F8_NEW_ARRAY(&x->memory, CUevent, f->func->n_steps + 1);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t i = 0; i <= f->func->n_steps; i++)
        F8_CU(f->func->name, cuEventCreate, &f->event[i], CU_EVENT_DEFAULT);
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

/* Edges between kernels of a graph that need not wait for a kernel's end came with CUDA 12.3. */
static f8_status check_dependent_launch(const f8_cuda_exec *x, f8_diag *diag)
{
    enum { SINCE = 12030 };
    const int driver = x->cuda->facts.driver;
    if (!x->plan->dependent_launch || (x->cuda->more.cuLaunchKernelEx && driver >= SINCE))
        return F8_OK;
    return f8_fail(
        diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
        "dependent_launch: the driver serves CUDA %d.%d, whose graphs have no programmatic "
        "dependent launch; CUDA 12.3 has it. Without the option the results are the same",
        driver / 1000, driver % 1000 / 10);
}

static f8_status check_ranks(const f8_cuda_exec *x, f8_diag *diag)
{
    const f8_nccl *nccl = x->options.nccl;
    const int wanted = x->plan->ranks ? x->plan->ranks : 1, has = nccl ? f8_nccl_ranks(nccl) : 1;
    if (wanted != has)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program was compiled for %d ranks, but it runs on %d", wanted, has);
    if (nccl && f8_nccl_ordinal(nccl) != (int)x->cuda->device)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "rank %d has joined the others with device %d, but its program is for "
                       "device %d",
                       f8_nccl_rank(nccl), f8_nccl_ordinal(nccl), (int)x->cuda->device);
    return F8_OK;
}

static f8_status exec_build(f8_cuda_exec *x, const f8_cuda_exec_options *options, f8_diag *diag)
{
    F8_TRY(f8_cuda_exec_enter_home(x, options, diag));
    F8_TRY(f8_cuda_exec_load_images(x, diag));
    F8_TRY(make_funcs(x, diag));
    F8_TRY(f8_cuda_exec_make_branch(x, diag));
    F8_TRY(f8_cuda_exec_prepare_gemms(x, diag));
    F8_TRY(f8_cuda_exec_prepare_attentions(x, diag));
    F8_TRY(f8_work_lock(x->home->home.work, diag));
    f8_status status = f8_cuda_exec_allocate(x, diag);
    if (status == F8_OK)
        status = f8_cuda_exec_begin_work(x, diag);
    if (status == F8_OK)
        status = f8_cuda_exec_end_work(x, f8_cuda_exec_try_gemms(x, diag), diag);
    f8_work_unlock(x->home->home.work);
    return status;
}

f8_status f8_cuda_exec_create(const f8_plan *plan, f8_cuda *cuda,
                              const f8_cuda_exec_options *options, f8_cuda_exec **out,
                              f8_diag *diag)
{
    *out = NULL;
    if (!cuda->context)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "f8_cuda_device was not called: no CUDA device is open");
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
        status = check_dependent_launch(x, diag);
    if (status == F8_OK)
        status = check_ranks(x, diag);
    if (status == F8_OK)
        status = f8_cuda_enter(cuda, diag);
    if (status == F8_OK) {
        status = exec_build(x, options, diag);
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
    f8_cuda_exec_release_graphs(x, f);
    for (uint32_t i = 0; f->event && i <= f->func->n_steps; i++)
        if (f->event[i])
            x->cuda->cu.cuEventDestroy_v2(f->event[i]);
}

/* The results of the calls are ignored: after the device is lost they all fail, and the driver has
 * freed everything itself. */
void f8_cuda_exec_destroy(f8_cuda_exec *x)
{
    if (!x)
        return;
    const f8_cuda_api *cu = &x->cuda->cu;
    const bool entered = f8_cuda_enter(x->cuda, NULL) == F8_OK;
    if (x->stream && x->home && f8_cuda_exec_sync(x, NULL, "at the end") != F8_OK)
        cu->cuStreamSynchronize(x->stream); /* of the ranks that failed, no one is waited for */
    for (uint32_t i = 0; x->func && i < x->plan->n_funcs; i++)
        destroy_func(x, &x->func[i]);
    f8_cuda_exec_release_branch(x);
    if (x->home)
        f8_cuda_exec_forget_arguments(x);
    f8_cuda_exec_leave_home(x);
    if (entered)
        f8_cuda_leave(x->cuda);
    f8_arena_end(&x->memory);
    const f8_allocator allocator = x->allocator;
    allocator.free(allocator.user, x, sizeof *x);
}

int64_t f8_cuda_exec_planned_bytes(const f8_cuda_exec *x)
{
    return x->tenant.planned;
}

f8_status f8_cuda_exec_alloc(f8_cuda_exec *x, int64_t bytes, f8_block *out, f8_diag *diag)
{
    F8_TRY(f8_cuda_enter(x->cuda, diag));
    const f8_status status = f8_block_alloc(&x->tenant, bytes, "saved values", out, diag);
    f8_cuda_leave(x->cuda);
    return status;
}

void f8_cuda_exec_free(f8_cuda_exec *x, f8_block *block)
{
    const bool entered = f8_cuda_enter(x->cuda, NULL) == F8_OK;
    if (block->at)
        f8_cuda_exec_sync(x, NULL, "before memory is freed");
    f8_block_free(&x->home->home, block);
    if (entered)
        f8_cuda_leave(x->cuda);
}

int64_t f8_cuda_exec_peak_bytes(const f8_cuda_exec *x)
{
    return x->home->home.peak;
}

int64_t f8_cuda_exec_held_bytes(const f8_cuda_exec *x)
{
    return x->home->home.bytes;
}
