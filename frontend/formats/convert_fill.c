/* The bytes of a folder that is converted: see convert_parts.h. */
#include "frontend/formats/convert_parts.h"

#include <string.h>

#include "ir/num/fp8.h"

/* ---- weights that are quantized again ---- */

f8_quantizer f8_convert_quantizer(const f8_convert_work *w, const f8_converted *x)
{
    return (f8_quantizer){.grain = f8_grain_covers(w->grain, x->from->rows_are_inputs),
                          .format = F8_E4M3,
                          .mx = w->grain == F8_BY_MX};
}

f8_status f8_convert_values(const f8_converted *x, f8_arena *memory, float **values, f8_diag *diag)
{
    const f8_st_tensor *t = x->from->codes->tensor;
    *values = F8_NEW_ARRAY(memory, float, (size_t)f8_weight_elements(t) + 1);
    F8_TRY(f8_arena_status(memory, diag));
    F8_TRY(f8_model_folder_values(x->from, memory, *values, diag));
    return x->adapter ? f8_adapter_add(x->adapter, t->dim, memory, *values, diag) : F8_OK;
}

/* ---- bytes ---- */

static void put_numbers(f8_st_dtype dtype, void *to, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype == F8_ST_F32)
            ((float *)to)[i] = x[i];
        else if (dtype == F8_ST_BF16)
            ((uint16_t *)to)[i] = f8_f32_to_bf16(x[i]);
        else
            ((uint16_t *)to)[i] = f8_f32_to_f16(x[i]);
}

/* The values of a weight with its adapter, in a dtype that may not hold them. */
static f8_status put_merged(const f8_st_tensor *t, const f8_weight *from, void *to, const float *x,
                            int64_t n, f8_diag *diag)
{
    const float most = t->dtype == F8_ST_F16 ? 65504 : 3.3895314e38f;
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] <= most && x[i] >= -most))
            return f8_file_fail(diag, F8_ERR_INPUT, from->file->in.path,
                                "'%s' with its adapter has values that %s can't hold", from->name,
                                f8_st_dtype_name(t->dtype));
    put_numbers(t->dtype, to, x, n);
    return F8_OK;
}

static f8_status fill_plain(const f8_st_tensor *t, const f8_weight *from, const f8_adapter *adapter,
                            f8_arena *memory, void *to, f8_diag *diag)
{
    const int64_t n = f8_weight_elements(from->tensor);
    if (from->tensor->dtype == t->dtype && !adapter)
        return f8_st_read(from->file, from->tensor, to, diag);
    if (t->dtype != F8_ST_F32 && t->dtype != F8_ST_BF16 && t->dtype != F8_ST_F16)
        return f8_file_fail(diag, F8_ERR_INPUT, from->file->in.path,
                            adapter ? "'%s' is %s, to which no adapter is added"
                                    : "'%s' is %s, and %s in the model",
                            from->name, f8_st_dtype_name(from->tensor->dtype),
                            f8_st_dtype_name(t->dtype));
    float *x = F8_NEW_ARRAY(memory, float, (size_t)n + 1);
    F8_TRY(f8_arena_status(memory, diag));
    F8_TRY(f8_weight_values(from, memory, x, diag));
    if (adapter) {
        F8_TRY(f8_adapter_add(adapter, t->dim, memory, x, diag));
        return put_merged(t, from, to, x, n, diag);
    }
    put_numbers(t->dtype, to, x, n);
    return F8_OK;
}

static f8_status fill_values(const f8_st_tensor *t, const f8_converted *x, f8_arena *memory,
                             void *to, f8_diag *diag)
{
    const f8_weight *codes = x->from->codes;
    const int64_t n = f8_weight_elements(codes->tensor);
    float *values;
    F8_TRY(f8_convert_values(x, memory, &values, diag));
    if (x->adapter)
        return put_merged(t, codes, to, values, n, diag);
    put_numbers(t->dtype, to, values, n);
    return F8_OK;
}

static f8_status fill_codes(const f8_convert_work *w, const f8_converted *x, f8_arena *memory,
                            void *to, f8_diag *diag)
{
    const f8_weight *codes = x->from->codes;
    const int64_t *dim = codes->tensor->dim;
    float *values;
    if (!x->scale)
        return f8_st_read(codes->file, codes->tensor, to, diag);
    const f8_quantizer q = f8_convert_quantizer(w, x);
    F8_TRY(f8_convert_values(x, memory, &values, diag));
    f8_matrix_encode(&q, values, dim[0], dim[1], x->scale, to);
    return F8_OK;
}

static void put_scales(const f8_st_tensor *t, const float *scale, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++)
        if (t->dtype == F8_ST_F32)
            ((float *)to)[i] = scale[i];
        else
            ((uint8_t *)to)[i] = f8_f32_to_e8m0(scale[i], true);
}

static f8_status fill_scales(const f8_convert_work *w, const f8_converted *x, const f8_st_tensor *t,
                             f8_arena *memory, void *to, f8_diag *diag)
{
    float *scale;
    int64_t n;
    if (x->scale) {
        const f8_quantizer q = f8_convert_quantizer(w, x);
        const int64_t *dim = x->from->codes->tensor->dim;
        put_scales(t, x->inverse, f8_quantizer_scales(&q, dim[0], dim[1]), to);
        return F8_OK;
    }
    F8_TRY(f8_model_folder_scales(x->from, memory, &scale, &n, diag));
    if (x->fate == F8_SPREAD) {
        int64_t all = 1;
        for (int32_t k = 0; k < t->rank; k++)
            all *= t->dim[k];
        for (int64_t i = 0; i < all; i++)
            ((float *)to)[i] = scale[0];
        return F8_OK;
    }
    put_scales(t, scale, n, to);
    return F8_OK;
}

f8_status f8_convert_fill(void *user, size_t index, void *to, f8_diag *diag)
{
    const f8_convert_work *w = user;
    const f8_convert_source *s = &w->source[index];
    const f8_st_tensor *t = &w->tensor[index];
    f8_status status = F8_OK;
    f8_arena memory; /* of one tensor at a time */
    f8_arena_init(&memory, &w->c->memory.allocator);
    switch (s->part) {
    case F8_PLAIN: status = fill_plain(t, s->plain, s->adapter, &memory, to, diag); break;
    case F8_CODES: status = fill_codes(w, s->weight, &memory, to, diag); break;
    case F8_SCALES: status = fill_scales(w, s->weight, t, &memory, to, diag); break;
    case F8_INPUT_SCALE: memcpy(to, &s->weight->input, sizeof s->weight->input); break;
    case F8_VALUES: status = fill_values(t, s->weight, &memory, to, diag); break;
    }
    f8_arena_end(&memory);
    return status;
}
