/* Values in host memory: see parts.h. */
#include "codegen/witness/parts.h"

#include <string.h>

static size_t bytes_of(const f8_type *t)
{
    const int64_t bytes = f8_type_bytes(t);
    return bytes > 0 ? (size_t)bytes : 1;
}

void *f8_witness_room(const f8_witness *w, const f8_type *t, f8_diag *diag)
{
    const f8_allocator *a = &w->state->allocator;
    void *room = a->alloc(a->user, bytes_of(t), 64);
    if (!room)
        f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                "out of memory: the witness wanted %zu bytes for a value", bytes_of(t));
    return room;
}

void f8_witness_free(const f8_witness *w, const f8_type *t, void *data)
{
    const f8_allocator *a = &w->state->allocator;
    if (data)
        a->free(a->user, data, bytes_of(t));
}

/* Rows lie `stride` elements apart; in `to` they follow one another. */
static void compact(void *to, const void *from, int64_t rows, size_t row, size_t stride)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)to + (size_t)r * row, (const char *)from + (size_t)r * stride, row);
}

f8_status f8_witness_fetch(const f8_witness *w, const f8_place *from, const f8_type *t, void *to,
                           f8_diag *diag)
{
    const int64_t rows = f8_type_rows(t), columns = f8_type_columns(t);
    const size_t size = f8_dtype_size(t->dtype);
    if (rows == 0 || columns == 0)
        return F8_OK;
    if (from->stride == columns || rows == 1)
        return w->fetch(w->user, from, f8_type_bytes(t), to, diag);
    const void *there = w->look ? w->look(w->user, from) : NULL;
    if (there) {
        compact(to, there, rows, (size_t)columns * size, (size_t)from->stride * size);
        return F8_OK;
    }
    const f8_type span = {t->dtype, 1, {(rows - 1) * from->stride + columns}};
    void *all = f8_witness_room(w, &span, diag);
    if (!all)
        return F8_ERR_MEMORY;
    const f8_status status = w->fetch(w->user, from, f8_type_bytes(&span), all, diag);
    if (status == F8_OK)
        compact(to, all, rows, (size_t)columns * size, (size_t)from->stride * size);
    f8_witness_free(w, &span, all);
    return status;
}

const void *f8_witness_look(const f8_witness *w, const f8_place *at, const f8_type *t,
                            int64_t *stride)
{
    const bool contiguous = at->stride == f8_type_columns(t) || f8_type_rows(t) == 1;
    if (stride)
        *stride = contiguous ? 0 : at->stride;
    return w->look && (contiguous || stride) ? w->look(w->user, at) : NULL;
}

f8_status f8_witness_see(const f8_witness *w, const f8_place *at, const f8_type *t, bool rows,
                         f8_witness_seen *out, f8_diag *diag)
{
    int64_t stride = 0;
    const void *there = f8_witness_look(w, at, t, rows ? &stride : NULL);
    *out = (f8_witness_seen){
        .type = *t, .borrowed = there != NULL, .stride = there ? stride : 0, .judgement.ok = true};
    out->data = there ? (void *)(uintptr_t)there : f8_witness_room(w, t, diag);
    if (!out->data)
        return F8_ERR_MEMORY;
    return there ? F8_OK : f8_witness_fetch(w, at, t, out->data, diag);
}

void f8_witness_judge(f8_witness_seen *seen, const f8_type *t, int64_t first, const void *want)
{
    f8_judgement j, *all = &seen->judgement;
    f8_judge_bits(t, (const char *)seen->data + (size_t)first * f8_dtype_size(t->dtype), want, &j);
    const int64_t off = all->off + j.off;
    if (all->ok && !j.ok) {
        *all = j;
        all->at += first;
    }
    all->off = off;
}

void f8_witness_release(const f8_witness *w, f8_witness_seen *seen)
{
    if (!seen->borrowed)
        f8_witness_free(w, &seen->type, seen->data);
    seen->data = NULL;
}

/* The bits of a format that are all set in NaN and Inf, and in nothing else. 0: it has neither. */
static uint32_t nonfinite_bits(f8_dtype d)
{
    switch (d) {
    case F8_F32: return 0x7f800000;
    case F8_BF16: return 0x7f80;
    case F8_F16: return 0x7c00;
    case F8_E5M2: return 0x7c;
    case F8_E4M3: return 0x7f;
    case F8_E8M0: return 0xff;
    default: return 0;
    }
}

/* Loops without a branch on the element, so that they are vectors. */
#define COUNT(type)                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                \
    found += (((const type *)data)[i] & bits) == bits

static bool is_nonfinite(const void *data, size_t size, int64_t i, uint32_t bits)
{
    const uint32_t x = size == 4   ? ((const uint32_t *)data)[i]
                       : size == 2 ? ((const uint16_t *)data)[i]
                                   : ((const uint8_t *)data)[i];
    return (x & bits) == bits;
}

int64_t f8_witness_nonfinite(const f8_type *t, const void *data, int64_t *first)
{
    const int64_t n = f8_type_elements(t);
    const size_t size = f8_dtype_size(t->dtype);
    const uint32_t bits = nonfinite_bits(t->dtype);
    int64_t found = 0;
    *first = -1;
    if (!bits)
        return 0;
    if (size == 4)
        COUNT(uint32_t);
    else if (size == 2)
        COUNT(uint16_t);
    else
        COUNT(uint8_t);
    for (int64_t i = 0; found && *first < 0 && i < n; i++)
        if (is_nonfinite(data, size, i, bits))
            *first = i;
    return found;
}
