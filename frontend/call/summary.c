/* The values of a tensor in a few numbers: see call.h. */
#include <math.h>

#include "frontend/call/call.h"
#include "frontend/checkpoint/checkpoint.h"
#include "frontend/records/records.h"

double f8_call_element(fp8c_dtype dtype, const void *bytes, int64_t i)
{
    float x;
    switch (dtype) {
    case FP8C_F32: return (double)((const float *)bytes)[i];
    case FP8C_I32: return ((const int32_t *)bytes)[i];
    case FP8C_I64: return (double)((const int64_t *)bytes)[i];
    case FP8C_BF16:
    case FP8C_F16:
        f8_checkpoint_widen(dtype == FP8C_BF16 ? F8_ST_BF16 : F8_ST_F16,
                            (const uint16_t *)bytes + i, &x, 1);
        return (double)x;
    default: return ((const uint8_t *)bytes)[i];
    }
}

f8_summary f8_call_summarize(const fp8c_type *type, const void *bytes)
{
    f8_summary s = {.min = INFINITY, .max = -INFINITY, .n = 1};
    for (int32_t i = 0; i < type->rank; i++)
        s.n *= type->dim[i];
    for (int64_t i = 0; i < s.n; i++) {
        const double x = f8_call_element(type->dtype, bytes, i);
        if (!isfinite(x))
            continue;
        s.finite++;
        s.min = fmin(s.min, x);
        s.max = fmax(s.max, x);
        s.mean += x;
    }
    s.mean = s.finite ? s.mean / (double)s.finite : NAN;
    return s;
}

json_t *f8_record_output(const char *function, const fp8c_port *port, const void *bytes,
                         const f8_summary *s)
{
    char type[F8_TYPE_TEXT];
    return json_pack("{ss ss ss ss so so so so sI}", "event", "output", "function", function,
                     "name", port->name, "type", f8_type_shown(&port->type, type), "value",
                     s->n == 1 ? f8_json_number(f8_call_element(port->type.dtype, bytes, 0))
                               : json_null(),
                     "min", f8_json_number(s->min), "max", f8_json_number(s->max), "mean",
                     f8_json_number(s->mean), "not_finite", (json_int_t)(s->n - s->finite));
}
