/* The memory of the reference interpreter: values, temporaries, and elements as double and back.
 * All evaluators use it. */
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"
#include "ir/num/scalar.h"

static bool widened(const f8_interp *x, f8_dtype d)
{
    return x->wide && (d == F8_F32 || d == F8_BF16 || d == F8_F16);
}

size_t f8_interp_element(const f8_interp *x, f8_dtype d)
{
    return widened(x, d) ? sizeof(double) : f8_dtype_size(d);
}

size_t f8_interp_bytes(const f8_interp *x, const f8_type *t)
{
    return (size_t)f8_type_elements(t) * f8_interp_element(x, t->dtype);
}

void *f8_interp_alloc(f8_interp *x, size_t bytes)
{
    if (x->status != F8_OK)
        return NULL;
    void *p = x->allocator->alloc(x->allocator->user, bytes ? bytes : 1, 64);
    if (!p)
        x->status =
            f8_fail(x->diag, F8_ERR_MEMORY, x->at, "out of memory: %zu bytes were wanted", bytes);
    return p;
}

void f8_interp_free(f8_interp *x, void *data, size_t bytes)
{
    if (data)
        x->allocator->free(x->allocator->user, data, bytes ? bytes : 1);
}

f8_rvalue *f8_interp_temp(f8_interp *x, const f8_type *type)
{
    if (x->status == F8_OK && x->n_temps == F8_INTERP_TEMPS)
        x->status = f8_fail(x->diag, F8_ERR_INTERNAL, x->at, "reference: too many temporaries");
    void *data = f8_interp_alloc(x, f8_interp_bytes(x, type));
    if (!data)
        return NULL;
    f8_rvalue *v = &x->temp[x->n_temps++];
    *v = (f8_rvalue){*type, data};
    return v;
}

void f8_interp_free_temps(f8_interp *x)
{
    while (x->n_temps > 0) {
        f8_rvalue *v = &x->temp[--x->n_temps];
        f8_interp_free(x, v->data, f8_interp_bytes(x, &v->type));
    }
}

/* Decodes f16, FP8 and E8M0 elements, block by block. */
static void load_codes(const f8_rvalue *v, int64_t first, int64_t n, double *to)
{
    enum { BLOCK = 256 };
    uint32_t word[BLOCK];
    const bool narrow = f8_dtype_size(v->type.dtype) == 1;
    for (; n > 0; first += BLOCK, to += BLOCK, n -= BLOCK) {
        const int64_t count = n < BLOCK ? n : BLOCK;
        for (int64_t i = 0; i < count; i++)
            word[i] = narrow ? ((const uint8_t *)v->data)[first + i]
                             : ((const uint16_t *)v->data)[first + i];
        const bool few = count < 32; /* too few to be worth the set-up of f8_scalar_eval */
        if (!few)
            f8_scalar_eval(f8_scalar_decode_fn(v->type.dtype), word, word, (size_t)count);
        for (int64_t i = 0; i < count; i++)
            to[i] = (double)(few ? f8_decode(v->type.dtype, word[i]) : f8_from_bits(word[i]));
    }
}

void f8_interp_load(const f8_interp *x, const f8_rvalue *v, int64_t first, int64_t n, double *to)
{
    const f8_dtype d = v->type.dtype;
    if (widened(x, d)) {
        memcpy(to, (const double *)v->data + first, (size_t)n * sizeof *to);
        return;
    }
    switch (d) {
    case F8_F32:
        for (int64_t i = 0; i < n; i++)
            to[i] = (double)((const float *)v->data)[first + i];
        break;
    case F8_I32:
        for (int64_t i = 0; i < n; i++)
            to[i] = (double)((const int32_t *)v->data)[first + i];
        break;
    case F8_I64:
        for (int64_t i = 0; i < n; i++)
            to[i] = (double)((const int64_t *)v->data)[first + i];
        break;
    case F8_BF16:
        for (int64_t i = 0; i < n; i++)
            to[i] = (double)f8_bf16_to_f32(((const uint16_t *)v->data)[first + i]);
        break;
    case F8_BOOL:
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const uint8_t *)v->data)[first + i] != 0;
        break;
    default: load_codes(v, first, n, to); break;
    }
}

void f8_interp_magnitudes(const f8_interp *x, double *v, int64_t n)
{
    for (int64_t i = 0; x->magnitudes && i < n; i++)
        v[i] = fabs(v[i]);
}

/* double to i32 as in f8_f32_to_i32: towards zero, saturating, NaN gives 0. */
static int32_t to_i32(double v)
{
    if (v != v)
        return 0;
    if (v >= 2147483647.0)
        return INT32_MAX;
    return v <= -2147483648.0 ? INT32_MIN : (int32_t)v;
}

void f8_interp_store(const f8_interp *x, f8_rvalue *v, int64_t first, int64_t n, const double *from)
{
    const f8_dtype d = v->type.dtype;
    if (widened(x, d)) {
        memcpy((double *)v->data + first, from, (size_t)n * sizeof *from);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        switch (d) {
        case F8_F32: ((float *)v->data)[first + i] = (float)from[i]; break;
        case F8_I32: ((int32_t *)v->data)[first + i] = to_i32(from[i]); break;
        case F8_I64: ((int64_t *)v->data)[first + i] = to_i32(from[i]); break;
        case F8_BOOL: ((uint8_t *)v->data)[first + i] = from[i] != 0; break;
        case F8_BF16:
        case F8_F16:
            ((uint16_t *)v->data)[first + i] = (uint16_t)f8_encode(d, (float)from[i], false);
            break;
        default:
            ((uint8_t *)v->data)[first + i] = (uint8_t)f8_encode(d, (float)from[i], false);
            break;
        }
    }
}
