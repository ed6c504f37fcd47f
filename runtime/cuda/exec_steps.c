/* The CUDA executor's steps: functions of the images, grids, blocks of parameters, GEMMs. */
#include "runtime/cuda/exec_internal.h"

#define CU(call, ...)                                                                              \
    F8_TRY(f8_cuda_check(x->cuda, x->cuda->cu.call(__VA_ARGS__), diag, #call " of '%s' in %s",     \
                         s->name, func->name))

/* ---- kernels ---- */

static f8_status broken(const f8_plan_func *func, const f8_step *s, const char *why, f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "step '%s' of %s: %s", s->name, func->name,
                   why);
}

/* The number of blocks for `tasks` tasks if `resident` run at once: see f8_launch.max_blocks. */
static unsigned grid_of(int64_t tasks, int64_t resident, int64_t max_blocks)
{
    int64_t most = max_blocks < 0 ? INT32_MAX : resident; /* the driver takes no larger grid */
    if (max_blocks > 0 && max_blocks < most)
        most = max_blocks;
    return (unsigned)(tasks < most ? tasks : most);
}

static f8_status choose_grid(f8_cuda_exec *x, const f8_plan_func *func, const f8_step *s,
                             f8_live_phase *l, f8_diag *diag)
{
    const f8_launch *launch = &l->phase->launch;
    int shared = 0, blocks = 0;
    if (launch->shared > (uint32_t)x->cuda->facts.shared_per_block)
        return f8_fail(
            diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
            "kernel '%s' of '%s' wants %u bytes of shared memory; the device has %d for a block",
            launch->symbol, s->name, launch->shared, x->cuda->facts.shared_per_block);
    CU(cuFuncGetAttribute, &shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, l->function);
    if (launch->shared > (uint32_t)shared)
        CU(cuFuncSetAttribute, l->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
           (int)launch->shared);
    CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, l->function, (int)launch->threads,
       launch->shared);
    if (blocks < 1)
        return f8_fail(
            diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
            "kernel '%s' of '%s' (%u threads, %u bytes of shared memory) fits no multiprocessor",
            launch->symbol, s->name, launch->threads, launch->shared);
    l->grid = grid_of(l->phase->n_tasks, (int64_t)blocks * x->cuda->facts.multiprocessors,
                      launch->max_blocks);
    return F8_OK;
}

static f8_status make_phase(f8_cuda_exec *x, const f8_plan_func *func, const f8_step *s,
                            f8_live_phase *l, const f8_step_phase *phase, f8_diag *diag)
{
    const f8_launch *launch = &phase->launch;
    const uint64_t n = launch->n_instances;
    l->phase = phase;
    if (!launch->symbol || launch->image >= x->plan->n_images || n < 1 ||
        (n > 1 && !launch->multi) || phase->n_tasks < 0)
        return broken(func, s, "its launch is broken", diag);
    if (phase->first_arg + n * launch->n_args > s->n_args ||
        phase->first_int + n * launch->n_ints > s->n_ints)
        return broken(func, s, "its launch takes more arguments than it has", diag);
    const uint64_t used = 1 + n * (launch->n_args + launch->n_ints);
    /* the driver copies the whole of a kernel's parameters, used or not */
    l->words = F8_NEW_ARRAY(&x->memory, uint64_t, used < F8_MULTI_WORDS ? F8_MULTI_WORDS : used);
    l->params[0] = l->words;
    F8_TRY(f8_arena_status(&x->memory, diag));
    CU(cuModuleGetFunction, &l->function, x->module[launch->image]->module, launch->symbol);
    return choose_grid(x, func, s, l, diag);
}

/* ---- copies ---- */

static bool contiguous(const int64_t *stride, const f8_step *s)
{
    int64_t want = 1;
    for (int i = s->copy.rank - 1; i >= 0; i--) {
        if (s->copy.size[i] != 1 && stride[i] != want)
            return false;
        want *= s->copy.size[i];
    }
    return true;
}

static f8_status make_copy(f8_live_step *l, const f8_plan_func *func, f8_diag *diag)
{
    const f8_step *s = l->step;
    if (s->n_args != 2 || !contiguous(s->copy.from, s) || !contiguous(s->copy.to, s))
        return broken(func, s, "a copy that is not contiguous is a kernel on CUDA", diag);
    l->bytes = s->copy.element;
    for (int i = 0; i < s->copy.rank; i++)
        l->bytes *= (size_t)s->copy.size[i];
    return F8_OK;
}

/* ---- steps ---- */

static void count_step(f8_live_func *f, const f8_step *s)
{
    f->count.kernels += s->kind == F8_STEP_KERNEL;
    f->count.gemms += s->kind == F8_STEP_GEMM;
    f->count.fp8_gemms += s->kind == F8_STEP_GEMM ? s->fp8 : 0;
}

static f8_status make_gemm(f8_live_func *f, const f8_step *s, f8_diag *diag)
{
    if (s->n_args != F8_GEMM_ARGS)
        return broken(f->func, s, "a GEMM has seven arguments", diag);
    f->counts |= s->arg[F8_GEMM_ADDS].space != F8_SPACE_NONE;
    return F8_OK;
}

static f8_status make_step(f8_cuda_exec *x, f8_live_func *f, f8_live_step *l, const f8_step *s,
                           f8_diag *diag)
{
    l->step = s;
    l->arg = F8_NEW_ARRAY(&x->memory, CUdeviceptr, s->n_args);
    l->phase = F8_NEW_ARRAY(&x->memory, f8_live_phase, s->n_phases);
    F8_TRY(f8_arena_status(&x->memory, diag));
    count_step(f, s);
    if (s->kind == F8_STEP_COPY)
        return make_copy(l, f->func, diag);
    if (s->kind == F8_STEP_COLLECTIVE)
        return s->n_args == 2 ? F8_OK : broken(f->func, s, "a collective has two arguments", diag);
    if (s->kind == F8_STEP_ATTENTION)
        return s->n_args >= f8_attention_args(&s->attention)
                   ? F8_OK
                   : broken(f->func, s, "attention has five arguments, backward nine", diag);
    if (s->kind == F8_STEP_GEMM)
        return make_gemm(f, s, diag);
    for (uint32_t p = 0; p < s->n_phases; p++)
        F8_TRY(make_phase(x, f->func, s, &l->phase[p], &s->phase[p], diag));
    return F8_OK;
}

f8_status f8_cuda_exec_make_func(f8_cuda_exec *x, uint32_t func, f8_diag *diag)
{
    f8_live_func *f = &x->func[func];
    for (uint32_t i = 0; i < f->func->n_steps; i++)
        F8_TRY(make_step(x, f, &f->step[i], &f->func->step[i], diag));
    return F8_OK;
}

/* The bytes that all three operands' addresses are multiples of, also those of a batch's other
 * matrices. Spaces begin at multiples of 256,
 * bound ports at multiples of 16, and places keep what their shapes give. So no address decides an
 * algorithm. */
static int gemm_alignment(const f8_step *s)
{
    const f8_gemm_desc *d = &s->gemm;
    int64_t low = 16;
    for (int i = 0; i < 3; i++)
        low |= s->arg[i].offset;
    low |= d->stride_a * (int64_t)f8_dtype_size(d->a) | d->stride_b * (int64_t)f8_dtype_size(d->b) |
           d->stride_c * (int64_t)f8_dtype_size(d->c);
    return (int)(low & -low);
}

f8_status f8_cuda_exec_prepare_gemms(f8_cuda_exec *x, f8_diag *diag)
{
    for (uint32_t k = 0; k < x->plan->n_funcs; k++)
        for (uint32_t i = 0; i < x->plan->func[k].n_steps; i++) {
            f8_live_step *l = &x->func[k].step[i];
            if (l->step->kind != F8_STEP_GEMM)
                continue;
            l->what =
                f8_arena_printf(&x->memory, "'%s' in %s", l->step->name, x->plan->func[k].name);
            F8_TRY(f8_arena_status(&x->memory, diag));
            F8_TRY(f8_cublaslt_prepare(x->cuda, &x->home->gemms, &x->allocator, &l->step->gemm,
                                       gemm_alignment(l->step), x->plan->gemm_workspace, l->what,
                                       &l->gemm, diag));
        }
    return F8_OK;
}

f8_status f8_cuda_exec_loosen_gemm(f8_cuda_exec *x, uint32_t func, uint32_t step,
                                   const f8_cublaslt_config *config, f8_diag *diag)
{
    f8_live_step *l = &x->func[func].step[step];
    if (l->step->kind != F8_STEP_GEMM || !x->options.profile) /* a graph would keep the other */
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "'%s' is not measured as a GEMM",
                       l->step->name);
    f8_cublaslt_gemm *loose;
    F8_TRY(f8_cublaslt_prepare_loose(x->cuda, &x->home->gemms, &x->allocator, &l->step->gemm,
                                     gemm_alignment(l->step), x->plan->gemm_workspace, config,
                                     l->what, &loose, diag));
    l->gemm = loose;
    return F8_OK;
}

/* Room for a trial: zeros in place of scales, as many as blocks of 32 along k may have, or of a
 * bias; then the result; then operands that have no memory yet because they are external. */
static int64_t zeros_room(const f8_gemm_desc *d)
{
    const int64_t across = (d->m > d->n ? d->m : d->n) + 128, along = d->k / 32 + 4;
    const int64_t bias = d->bias ? d->n * (int64_t)f8_dtype_size(F8_BF16) : 0;
    const bool scalars = f8_granularity_equal(d->scale_a, f8_per_tensor) &&
                         f8_granularity_equal(d->scale_b, f8_per_tensor);
    const int64_t scales = !d->has_alpha ? 0 : scalars ? 4 : across * along * 4;
    return f8_aligned(scales > bias ? scales : bias, F8_CUDA_ALIGN);
}

static int64_t result_room(const f8_gemm_desc *d)
{
    return f8_gemm_elements(d, F8_GEMM_C) * (int64_t)f8_dtype_size(d->c);
}

/* Of operand F8_GEMM_A or F8_GEMM_B. */
static int64_t operand_room(const f8_live_step *l, int i)
{
    const f8_gemm_desc *d = &l->step->gemm;
    const int64_t bytes = f8_gemm_elements(d, i) * (int64_t)f8_dtype_size(i ? d->b : d->a);
    return l->arg[i] ? 0 : f8_aligned(bytes, F8_CUDA_ALIGN);
}

/* Zeros aligned as scales or a bias are, which decides whether the library takes them. Those that
 * are external have no address yet. */
static uint64_t like_argument(uint64_t zeros, const f8_live_step *l, int i)
{
    const f8_arg *a = &l->step->arg[i];
    const uint64_t at = l->arg[i] ? l->arg[i] : (uint64_t)a->offset;
    return a->space == F8_SPACE_NONE ? 0 : zeros + at % 16;
}

/* Operands are where they will be, whatever they hold. */
static f8_status try_gemms(f8_cuda_exec *x, uint64_t zeros, uint64_t result, uint64_t operands,
                           f8_diag *diag)
{
    for (uint32_t k = 0; k < x->plan->n_funcs; k++)
        for (uint32_t i = 0; i < x->plan->func[k].n_steps; i++) {
            const f8_live_step *l = &x->func[k].step[i];
            if (l->step->kind != F8_STEP_GEMM || !f8_cublaslt_first_run(l->gemm))
                continue;
            const CUdeviceptr arg[F8_GEMM_ARGS] = {
                [F8_GEMM_A] = l->arg[0] ? l->arg[0] : operands,
                [F8_GEMM_B] = l->arg[1] ? l->arg[1] : operands + (uint64_t)operand_room(l, 0),
                [F8_GEMM_C] = result,
                [F8_GEMM_SCALE_A] = like_argument(zeros, l, F8_GEMM_SCALE_A),
                [F8_GEMM_SCALE_B] = like_argument(zeros, l, F8_GEMM_SCALE_B),
                [F8_GEMM_BIAS] = like_argument(zeros, l, F8_GEMM_BIAS)};
            F8_TRY(f8_cublaslt_run(x->cuda, l->gemm, arg, x->home->home.workspace.at, x->stream,
                                   l->what, diag));
        }
    return f8_cuda_exec_sync(x, diag, "after each GEMM was tried");
}

/* The trial uses the arena if it is large enough, because the arena holds nothing between runs. */
f8_status f8_cuda_exec_try_gemms(f8_cuda_exec *x, f8_diag *diag)
{
    f8_block own = {0};
    int64_t zeros = 0, result = 0, operands = 0;
    for (uint32_t k = 0; k < x->plan->n_funcs; k++)
        for (uint32_t i = 0; i < x->plan->func[k].n_steps; i++) {
            const f8_live_step *l = &x->func[k].step[i];
            const f8_step *s = l->step;
            if (s->kind != F8_STEP_GEMM)
                continue;
            const int64_t missing = operand_room(l, 0) + operand_room(l, 1);
            operands = missing > operands ? missing : operands;
            zeros = zeros_room(&s->gemm) > zeros ? zeros_room(&s->gemm) : zeros;
            result = result_room(&s->gemm) > result ? result_room(&s->gemm) : result;
        }
    if (result == 0)
        return F8_OK;
    uint64_t at = x->home->home.arena.at;
    if (operands)
        result = f8_aligned(result, F8_CUDA_ALIGN);
    const int64_t room = zeros + result + operands;
    if (x->home->home.arena.bytes < room) {
        F8_TRY(f8_block_alloc(&x->tenant, room, "trying the GEMMs", &own, diag));
        at = own.at;
    }
    f8_status status =
        f8_cuda_check(x->cuda, x->cuda->cu.cuMemsetD8Async(at, 0, (size_t)zeros, x->stream), diag,
                      "cuMemsetD8Async of room to try the GEMMs");
    if (status == F8_OK)
        status = try_gemms(x, at, at + (uint64_t)zeros, at + (uint64_t)(zeros + result), diag);
    f8_block_free(&x->home->home, &own);
    return status;
}

/* ---- resolving ---- */

static void resolve_phase(const f8_cuda_exec *x, uint32_t func, const f8_step *s, f8_live_phase *l)
{
    const f8_launch *launch = &l->phase->launch;
    const f8_arg *arg = s->arg + l->phase->first_arg;
    const int64_t *ints = s->ints + l->phase->first_int;
    uint64_t *to = l->words;
    if (launch->multi)
        *to++ = launch->n_instances;
    for (uint32_t i = 0; i < launch->n_instances; i++) {
        for (uint32_t k = 0; k < launch->n_args; k++)
            *to++ = f8_home_address(&x->tenant, func, arg++);
        for (uint32_t k = 0; k < launch->n_ints; k++)
            *to++ = (uint64_t)*ints++;
    }
}

void f8_cuda_exec_resolve(f8_cuda_exec *x, uint32_t func)
{
    f8_live_func *f = &x->func[func];
    f->now = NULL;
    for (uint32_t i = 0; i < f->func->n_steps; i++) {
        f8_live_step *l = &f->step[i];
        for (uint32_t k = 0; k < l->step->n_args; k++)
            l->arg[k] = f8_home_address(&x->tenant, func, &l->step->arg[k]);
        f8_cudnn_destroy(&x->home->cudnn, &l->arguments);
        for (uint32_t p = 0; p < l->step->n_phases && l->step->kind == F8_STEP_KERNEL; p++)
            resolve_phase(x, func, l->step, &l->phase[p]);
    }
}
