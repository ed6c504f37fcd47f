/* The checks of an attention description that every target makes: see attention.h. */
#include "codegen/kernel/attention.h"

#include <math.h>

int64_t f8_attention_lse_rows(const f8_attention_desc *x)
{
    return x->masking == F8_MASK_ADD ? 2 : 1;
}

int32_t f8_attention_drop_limit(const f8_attention_desc *x)
{
    return (int32_t)(floor(x->dropout * 0x1p32) - 0x1p31);
}

float f8_attention_drop_factor(const f8_attention_desc *x)
{
    return (float)(1 / (1 - x->dropout));
}

f8_status f8_attention_check_sizes(const f8_attention_desc *x, f8_diag *d)
{
    if (x->B < 1 || x->T < 1 || x->Tk < 1 || x->H < 1 || x->Hkv < 1 || x->D < 1 || x->H % x->Hkv)
        return f8_fail(d, F8_ERR_INPUT, F8_NOWHERE,
                       "attention: impossible sizes: batch %lld, %lld tokens, %lld keys, %lld heads "
                       "of %lld elements, %lld kv heads",
                       (long long)x->B, (long long)x->T, (long long)x->Tk, (long long)x->H,
                       (long long)x->D, (long long)x->Hkv);
    return F8_OK;
}

f8_status f8_attention_check_strides(const f8_attention_desc *x, bool backward, f8_diag *d)
{
    const int64_t q = x->H * x->D, kv = x->Hkv * x->D;
    bool ok = x->stride.q >= q && x->stride.k >= kv && x->stride.v >= kv && x->stride.o >= q;
    if (backward)
        ok = ok && x->stride.dout >= q && x->stride.dq >= q && x->stride.dk >= kv &&
             x->stride.dv >= kv;
    if (!ok)
        return f8_fail(d, F8_ERR_INPUT, F8_NOWHERE,
                       "attention: the stride between tokens is shorter than the heads of a token");
    return F8_OK;
}

double f8_attention_pairs(int64_t queries, int64_t keys, bool causal)
{
    const double q = (double)queries, k = (double)keys;
    if (!causal)
        return q * k;
    return queries <= keys ? q * (q + 1) / 2 : k * (k + 1) / 2 + (q - k) * k;
}

double f8_attention_flops(const f8_attention_desc *x, bool backward)
{
    const double pairs = f8_attention_pairs(x->T, x->Tk, x->causal);
    return (backward ? 5 : 2) * 2.0 * pairs * (double)x->D * (double)x->H * (double)x->B;
}
