/* Limits of a program's machine: see limits.h. */
#include "frontend/limits.h"

#include <string.h>

#include "ir/base/format.h"
#include "runtime/cpu/peak.h"

#define TERA 1e12

f8_status f8_limits_find(const fp8c_program *p, f8_limits *out, f8_diag *diag)
{
    *out = (f8_limits){0};
    const f8_target *t = p->target;
    if (t->kind == F8_TARGET_CUDA) {
        out->target = t;
        out->bytes = t->rates.memory * TERA;
        f8_format(out->from, sizeof out->from,
                  "by data sheets; GEMMs %.0f TFLOP/s in bf16 and %.0f in FP8", t->rates.bf16,
                  t->rates.fp8);
    }
    if (t->kind != F8_TARGET_CPU)
        return F8_OK;
    f8_cpu_peak peak;
    F8_TRY(f8_cpu_peak_measure(p->threads, &p->ctx->allocator, &peak, diag));
    out->bytes = peak.bytes;
    out->flops = peak.flops;
    out->flops_bf16 = peak.flops_bf16;
    f8_format(out->from, sizeof out->from,
              "measured now, by a copy and by multiply-adds in registers%s%s%s",
              *peak.bf16_unit ? " (bf16: " : "", peak.bf16_unit, *peak.bf16_unit ? ")" : "");
    return F8_OK;
}

/* A GEMM of a GPU runs at the rate of its operands' format. */
static double gpu_rate(const f8_rates *r, const f8_gemm_desc *d)
{
    if (d->a == F8_BF16 && d->b == F8_BF16)
        return r->bf16;
    if (!f8_dtype_is_fp8(d->a) || !f8_dtype_is_fp8(d->b))
        return 0;
    if (d->scale == F8_E8M0)
        return r->fp8_mx;
    return f8_granularity_has_blocks(d->scale_a) || f8_granularity_has_blocks(d->scale_b)
               ? r->fp8_blocks
               : r->fp8;
}

uint32_t f8_limits_algorithm(const fp8c_program *p, int function, int index)
{
#define X(e, id, name, what) {id, name},
    static const struct {
        uint32_t id;
        const char *name;
    } algorithms[] = {F8_GEMM_ALGORITHMS(X)};
#undef X
    fp8c_step s;
    if (fp8c_program_step(p, function, index, &s) != FP8C_OK || !s.algorithm)
        return F8_GEMM_AUTO;
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        if (!strcmp(s.algorithm, algorithms[i].name))
            return algorithms[i].id;
    return F8_GEMM_AUTO;
}

double f8_limits_of(const f8_limits *limits, const fp8c_program *p, int function, int index)
{
    const f8_step *s = &p->now->plan.func[function].step[index];
    if (!(s->flops > 0))
        return s->kind == F8_STEP_KERNEL || s->kind == F8_STEP_COPY ? limits->bytes : 0;
    if (s->kind != F8_STEP_GEMM) /* attention: on a GPU by tensor cores, if its operands are bf16 */
        return limits->target ? 0 : limits->flops;
    if (limits->target)
        return gpu_rate(&limits->target->rates, &s->gemm) * TERA;
    const uint32_t algorithm = f8_limits_algorithm(p, function, index);
    return algorithm == F8_GEMM_ONEDNN_F32    ? limits->flops
           : algorithm == F8_GEMM_ONEDNN_BF16 ? limits->flops_bf16
                                              : 0;
}
