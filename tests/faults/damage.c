/* See damage.h. */
#include "tests/faults/damage.h"

#include <math.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "tests/shared/random.h"

/* ---- elements ---- */

static uint8_t *element_at(const f8_fault_memory *m, int64_t i)
{
    const int64_t columns = f8_type_columns(&m->type);
    return m->at + (size_t)(i / columns * m->stride + i % columns) * f8_dtype_size(m->type.dtype);
}

static uint64_t load(const f8_fault_memory *m, int64_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, element_at(m, i), f8_dtype_size(m->type.dtype));
    return bits;
}

static double number(f8_dtype d, uint64_t bits)
{
    switch (d) {
    case F8_I64: return (double)(int64_t)bits;
    case F8_I32: return (double)(int32_t)bits;
    case F8_BOOL: return (double)bits;
    default: return (double)f8_decode(d, (uint32_t)bits);
    }
}

static void store(const f8_fault_memory *m, int64_t i, uint64_t bits, f8_fault_change *c)
{
    const uint64_t before = load(m, i);
    if (before == bits)
        return;
    memcpy(element_at(m, i), &bits, f8_dtype_size(m->type.dtype));
    if (c->elements++)
        return;
    c->element = i;
    c->was = number(m->type.dtype, before);
    c->is = number(m->type.dtype, bits);
}

/* ---- the kinds ---- */

static int mantissa_bits(f8_dtype d)
{
    switch (d) {
    case F8_F32: return 23;
    case F8_F16: return 10;
    case F8_BF16: return 7;
    case F8_E4M3: return 3;
    case F8_E5M2: return 2;
    default: return 1; /* of integers, bools and powers of two the lowest bit */
    }
}

/* A number of about the same size that is finite if it was. The highest bit of its mantissa is
 * another. */
static uint64_t noise(f8_dtype d, int64_t i, uint64_t bits)
{
    const uint64_t top = (uint64_t)1 << (mantissa_bits(d) - 1);
    const uint64_t other = bits ^ top ^ (test_pcg3d((uint32_t)i, 1, 2) & (top - 1));
    const bool broken = isfinite(number(d, bits)) && !isfinite(number(d, other));
    return broken ? bits ^ 1 : other;
}

static int64_t largest(const f8_fault_memory *m)
{
    int64_t at = 0;
    double top = 0;
    for (int64_t i = 0; i < f8_type_elements(&m->type); i++) {
        const double x = fabs(number(m->type.dtype, load(m, i)));
        if (x > top) {
            top = x;
            at = i;
        }
    }
    return at;
}

static void corrupt(const f8_fault *f, const f8_fault_memory *m, int64_t first, f8_fault_change *c)
{
    const int64_t n = f8_type_elements(&m->type);
    for (int64_t i = first; i < n && i < first + f->count; i++)
        store(m, i, noise(m->type.dtype, i, load(m, i)), c);
}

f8_fault_change f8_fault_damage(const f8_fault *f, const f8_fault_memory *m)
{
    f8_fault_change c = {0, -1, 0, 0};
    const f8_dtype d = m->type.dtype;
    const int64_t n = f8_type_elements(&m->type), at = f->element >= 0            ? f->element
                                                       : f->kind == F8_FAULT_GEMM ? largest(m)
                                                                                  : 0;
    switch (f->kind) {
    case F8_FAULT_BIT:
    case F8_FAULT_FLIP: store(m, at, load(m, at) ^ (uint64_t)1 << f->bit, &c); break;
    case F8_FAULT_CORRUPT: corrupt(f, m, at, &c); break;
    case F8_FAULT_GEMM:
        store(m, at, f8_encode(d, (float)(number(d, load(m, at)) * f->factor), false), &c);
        break;
    case F8_FAULT_ZERO:
        for (int64_t i = 0; i < n; i++)
            store(m, i, 0, &c);
        break;
    case F8_FAULT_INF: store(m, at, f8_encode(d, INFINITY, false), &c); break;
    case F8_FAULT_NAN: store(m, at, f8_encode(d, NAN, false), &c); break;
    case F8_FAULT_STALE:
    case F8_FAULT_NONE: break;
    }
    return c;
}

f8_fault_change f8_fault_put(const f8_fault_memory *m, const void *from)
{
    f8_fault_change c = {0, -1, 0, 0};
    const size_t size = f8_dtype_size(m->type.dtype);
    for (int64_t i = 0; i < f8_type_elements(&m->type); i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const uint8_t *)from + (size_t)i * size, size);
        store(m, i, bits, &c);
    }
    return c;
}

void f8_fault_get(const f8_fault_memory *m, void *to)
{
    const size_t size = f8_dtype_size(m->type.dtype);
    for (int64_t i = 0; i < f8_type_elements(&m->type); i++)
        memcpy((uint8_t *)to + (size_t)i * size, element_at(m, i), size);
}

const char *f8_fault_misfit(const f8_fault *f, const f8_type *t)
{
    const bool wide = t->dtype == F8_F32 || t->dtype == F8_BF16 || t->dtype == F8_F16;
    if (f->element >= f8_type_elements(t))
        return "it has fewer elements";
    if ((f->kind == F8_FAULT_FLIP || f->kind == F8_FAULT_BIT) &&
        f->bit >= 8 * (int64_t)f8_dtype_size(t->dtype))
        return "its elements have fewer bits";
    if (!wide && (f->kind == F8_FAULT_GEMM || f->kind == F8_FAULT_INF || f->kind == F8_FAULT_NAN))
        return "it is no f32, bf16 or f16";
    return NULL;
}
