/* Waiting for the executor's stream, and for runs of other programs in the same memory: see
 * exec_internal.h. */
#include "ir/base/format.h"
#include "runtime/cuda/exec_internal.h"
#include "runtime/work.h"

f8_status f8_cuda_exec_sync(f8_cuda_exec *x, f8_diag *diag, const char *what, ...)
{
    char text[200];
    va_list args;
    va_start(args, what);
    f8_vformat(text, sizeof text, what, args);
    va_end(args);
    f8_nccl *nccl = x->options.nccl;
    return nccl ? f8_nccl_wait(nccl, x->stream, text, diag)
                : f8_cuda_check(x->cuda, x->cuda->cu.cuStreamSynchronize(x->stream), diag,
                                "cuStreamSynchronize %s", text);
}

f8_status f8_cuda_exec_begin_work(f8_cuda_exec *x, f8_diag *diag)
{
    const f8_work *work = x->home->home.work;
    return work && work->done
               ? f8_cuda_check(x->cuda, x->cuda->cu.cuStreamWaitEvent(x->stream, work->done, 0),
                               diag, "cuStreamWaitEvent of the arena's last run")
               : F8_OK;
}

static f8_status end_work(f8_cuda_exec *x, f8_work *work, f8_diag *diag)
{
    CUevent done = work->done;
    if (!done)
        F8_TRY(f8_cuda_check(x->cuda, x->cuda->cu.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING),
                             diag, "cuEventCreate of the arena"));
    work->done = done;
    return f8_cuda_check(x->cuda, x->cuda->cu.cuEventRecord(done, x->stream), diag,
                         "cuEventRecord of the arena");
}

f8_status f8_cuda_exec_end_work(f8_cuda_exec *x, f8_status status, f8_diag *diag)
{
    f8_work *work = x->home->home.work;
    const f8_status ended = work ? end_work(x, work, status == F8_OK ? diag : NULL) : F8_OK;
    return status == F8_OK ? ended : status;
}
