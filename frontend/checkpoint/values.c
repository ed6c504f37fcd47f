/* Tensors of files as f32: see values.h. */
#include "frontend/checkpoint/values.h"

#include "ir/num/fp8.h"

enum { SHOWN = 200 };

/* ---- elements ---- */

int64_t f8_weight_elements(const f8_st_tensor *t)
{
    return (int64_t)(t->bytes / f8_st_dtype_bytes(t->dtype));
}

static float decode(f8_st_dtype t, const void *from, int64_t i)
{
    switch (t) {
    case F8_ST_F32: return ((const float *)from)[i];
    case F8_ST_BF16: return f8_bf16_to_f32(((const uint16_t *)from)[i]);
    case F8_ST_F16: return f8_f16_to_f32(((const uint16_t *)from)[i]);
    case F8_ST_F64: return (float)((const double *)from)[i];
    case F8_ST_F8_E4M3: return f8_e4m3_to_f32(((const uint8_t *)from)[i]);
    case F8_ST_F8_E5M2: return f8_e5m2_to_f32(((const uint8_t *)from)[i]);
    case F8_ST_U8: /* the exponents of compressed-tensors and ModelOpt */
    case F8_ST_F8_E8M0: return f8_e8m0_to_f32(((const uint8_t *)from)[i]);
    default: return 0;
    }
}

bool f8_weight_reads(const f8_st_tensor *t)
{
    static const f8_st_dtype dtypes[] = {F8_ST_F32,     F8_ST_BF16,    F8_ST_F16, F8_ST_F64,
                                         F8_ST_F8_E4M3, F8_ST_F8_E5M2, F8_ST_U8,  F8_ST_F8_E8M0};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (t->dtype == dtypes[i])
            return true;
    return false;
}

f8_status f8_weight_values(const f8_weight *w, f8_arena *memory, float *to, f8_diag *diag)
{
    const f8_st_tensor *t = w->tensor;
    const int64_t n = f8_weight_elements(t);
    char shown[SHOWN];
    if (!f8_weight_reads(t))
        return f8_file_fail(diag, F8_ERR_INPUT, w->file->in.path,
                            "'%s' is of %s, which is no number here",
                            f8_st_shown(w->name, shown, sizeof shown), f8_st_dtype_name(t->dtype));
    void *raw = f8_arena_array(memory, 1, (size_t)t->bytes + 1);
    F8_TRY(f8_arena_status(memory, diag));
    F8_TRY(f8_st_read(w->file, t, raw, diag));
    for (int64_t i = 0; i < n; i++)
        to[i] = decode(t->dtype, raw, i);
    return F8_OK;
}

/* ---- scales ---- */

/* The place of the scale of element `at`, whose index is row-major. */
static int64_t scale_of(const f8_st_tensor *codes, const int64_t axis[F8_ST_MAX_RANK], uint64_t at)
{
    int64_t place = 0, stride = 1;
    for (int32_t k = codes->rank; k-- > 0;) {
        const int64_t n = codes->dim[k], i = (int64_t)(at % (uint64_t)n);
        place += i / axis[k] * stride;
        stride *= (n + axis[k] - 1) / axis[k];
        at /= (uint64_t)n;
    }
    return place;
}

void f8_scale_values(float *values, const f8_st_tensor *codes, const int64_t *span,
                     const float *scales)
{
    const int32_t last = codes->rank - 1;
    const int64_t columns = codes->rank ? codes->dim[last] : 1, n = f8_weight_elements(codes);
    for (int64_t at = 0; at < n; at += columns) {
        const float *row = scales + scale_of(codes, span, (uint64_t)at);
        for (int64_t c = 0; c < columns; c++)
            values[at + c] *= codes->rank ? row[c / span[last]] : *row;
    }
}
