/* Which algorithm computes an attention on a GPU: see attention_choice.h. */
#include "codegen/cuda/attention_choice.h"

#include "ir/num/fp8.h"
#include "runtime/cuda/cudnn_attention.h"

/* A row holds for the architectures, head sizes, numbers of tokens and directions that it names.
 * The first row that fits decides; if none fits, our own kernels are used. A row is added only for
 * what was measured on that architecture (bench/results). cuDNN is chosen only where its bits
 * repeat and its workspace is worth it: outside compute capability 10 the backward takes T * T
 * values for every head. Nothing has been measured yet, so the one row says what no row would say.
 */
static const struct {
    int sm_from, sm_to;
    int64_t D_from, D_to, T_from, T_to;
    bool forward, backward;
    f8_attention_algorithm algorithm;
} table[] = {
    {0, 999, 1, INT64_MAX, 1, INT64_MAX, true, true, F8_ATTENTION_OWN},
};

enum { NEWEST_SEEN = 91900 };

f8_attention_algorithm f8_cuda_attention_choose(const f8_target *target, const f8_attention_desc *d,
                                                bool backward)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (target->sm >= table[i].sm_from && target->sm <= table[i].sm_to &&
            d->D >= table[i].D_from && d->D <= table[i].D_to && d->T >= table[i].T_from &&
            d->T <= table[i].T_to && (backward ? table[i].backward : table[i].forward))
            return table[i].algorithm;
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
                                     .stride = {d->stride.q, d->stride.k, d->stride.v, d->stride.o,
                                                d->stride.dout, d->stride.dq, d->stride.dk,
                                                d->stride.dv}};
    if (d->dtype != F8_BF16)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "cuDNN attention: %s is not bf16",
                       f8_dtype_name(d->dtype));
    return f8_cudnn_attention_supports(NEWEST_SEEN, target->sm, out, diag);
}
