/* The branch of a graph: GEMMs that run beside other steps (f8_step.branch). While a graph is
 * captured they go into a stream of their own, which events fork from the captured one and join to
 * it again. Steps that run without a graph have no branch. */
#include "runtime/cuda/exec_internal.h"

static bool has_branch(const f8_plan_func *f)
{
    for (uint32_t i = 0; i < f->n_steps; i++)
        if (f->step[i].branch)
            return true;
    return false;
}

int64_t f8_cuda_exec_workspace(const f8_plan *plan, int64_t shared)
{
    for (uint32_t k = 0; k < plan->n_funcs; k++)
        if (has_branch(&plan->func[k]))
            return f8_aligned(shared, F8_CUDA_ALIGN) + plan->gemm_workspace;
    return shared;
}

static f8_status make_events(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag)
{
    for (uint32_t i = 0; i < f->func->n_steps; i++)
        if (f->func->step[i].branch)
            F8_CU(f->func->name, cuEventCreate, &f->step[i].ended, CU_EVENT_DISABLE_TIMING);
    return F8_OK;
}

f8_status f8_cuda_exec_make_branch(f8_cuda_exec *x, f8_diag *diag)
{
    for (uint32_t k = 0; k < x->plan->n_funcs; k++) {
        if (!has_branch(&x->plan->func[k]))
            continue;
        if (!x->branch)
            F8_CU("the branch", cuStreamCreate, &x->branch, CU_STREAM_NON_BLOCKING);
        if (!x->forked)
            F8_CU("the branch", cuEventCreate, &x->forked, CU_EVENT_DISABLE_TIMING);
        F8_TRY(make_events(x, &x->func[k], diag));
    }
    return F8_OK;
}

void f8_cuda_exec_release_branch(f8_cuda_exec *x)
{
    const f8_cuda_api *cu = &x->cuda->cu;
    for (uint32_t k = 0; x->func && k < x->plan->n_funcs; k++)
        for (uint32_t i = 0; x->func[k].step && i < x->plan->func[k].n_steps; i++)
            if (x->func[k].step[i].ended)
                cu->cuEventDestroy_v2(x->func[k].step[i].ended);
    if (x->forked)
        cu->cuEventDestroy_v2(x->forked);
    if (x->branch)
        cu->cuStreamDestroy_v2(x->branch);
}

CUdeviceptr f8_cuda_exec_branch_workspace(const f8_cuda_exec *x)
{
    return x->home->home.workspace.at + (uint64_t)f8_aligned(x->workspace_bytes, F8_CUDA_ALIGN);
}

f8_status f8_cuda_exec_fork(f8_cuda_exec *x, const f8_live_func *f, CUstream from, f8_diag *diag)
{
    F8_CU(f->func->name, cuEventRecord, x->forked, from);
    F8_CU(f->func->name, cuStreamWaitEvent, x->branch, x->forked, 0);
    return F8_OK;
}

f8_status f8_cuda_exec_join(f8_cuda_exec *x, const f8_live_func *f, uint32_t step, CUstream to,
                            f8_diag *diag)
{
    F8_CU(f->func->name, cuStreamWaitEvent, to, f->step[step].ended, 0);
    return F8_OK;
}
