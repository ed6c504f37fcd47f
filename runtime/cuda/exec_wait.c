/* Waiting for the executor's stream: see exec_internal.h. */
#include "ir/base/format.h"
#include "runtime/cuda/exec_internal.h"

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
