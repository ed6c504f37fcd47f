/* Which algorithm computes an attention on a GPU: see attention_choice.h. */
#include "codegen/cuda/attention_choice.h"

#include "ir/num/fp8.h"
#include "runtime/cuda/cudnn_attention.h"

/* Where cuDNN computes attention: the architectures, head sizes, numbers of tokens and directions
 * of a row. Elsewhere our own kernels do. A row is added only for what was measured on that
 * architecture (bench/results). cuDNN is chosen only where its bits repeat and its workspace is
 * worth it; with a mask, dropout, or other keys than queries never. A mask's values are data, so
 * they may be large. cuDNN's backward takes lse as one f32, and beside a large mask that loses the
 * log of the sum. (cuDNN also gave NaN where two large negative numbers were subtracted: jax pull
 * request 22078.) Outside compute capability 10 the backward takes T * T values for every head. T
 * is a multiple of 128, because the backward of cuDNN 9.15 and before wants that. */
static const struct {
    int sm_from, sm_to;
    int64_t D_from, D_to, T_from, T_to;
    bool forward, backward;
} by_cudnn[] = {
    /* H200, cuDNN 9.14: 2026-11-22-gpu.md */
    {90, 90, 64, 64, 1024, 1024, true, true},
    {90, 90, 128, 128, 1024, 4096, true, true},
};

enum { NEWEST_SEEN = 91900, TOKENS = 128 };

f8_attention_algorithm f8_cuda_attention_choose(const f8_target *target, const f8_attention_desc *d,
                                                bool backward)
{
    if (d->dtype != F8_BF16 || d->T % TOKENS || d->Tk != d->T || d->masking || d->dropout > 0)
        return F8_ATTENTION_OWN;
    for (size_t i = 0; i < sizeof by_cudnn / sizeof *by_cudnn; i++)
        if (target->sm >= by_cudnn[i].sm_from && target->sm <= by_cudnn[i].sm_to &&
            d->D >= by_cudnn[i].D_from && d->D <= by_cudnn[i].D_to && d->T >= by_cudnn[i].T_from &&
            d->T <= by_cudnn[i].T_to && (backward ? by_cudnn[i].backward : by_cudnn[i].forward))
            return F8_ATTENTION_CUDNN;
    return F8_ATTENTION_OWN;
}

f8_status f8_cuda_attention_by_cudnn(const f8_target *target, const f8_attention_desc *d,
                                     bool backward, f8_cudnn_attention_desc *out, f8_diag *diag)
{
    *out = (f8_cudnn_attention_desc){.B = d->B,
                                     .T = d->T,
                                     .H = d->H,
                                     .Hkv = d->Hkv,
                                     .D = d->D,
                                     .causal = d->causal,
                                     .backward = backward,
                                     .scale = d->scale,
                                     .stride = {.q = d->stride.q,
                                                .k = d->stride.k,
                                                .v = d->stride.v,
                                                .o = d->stride.o,
                                                .dout = d->stride.dout,
                                                .dq = d->stride.dq,
                                                .dk = d->stride.dk,
                                                .dv = d->stride.dv}};
    if (d->dtype != F8_BF16)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "cuDNN attention: %s is not bf16",
                       f8_dtype_name(d->dtype));
    if (d->masking || d->dropout > 0 || d->Tk != d->T)
        return f8_fail(
            diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
            "cuDNN attention is built without masks and dropout, and for as many keys as "
            "queries");
    return f8_cudnn_attention_supports(NEWEST_SEEN, target->sm, out, diag);
}
