/* Element types and shapes: see type.h. */
#include "ir/base/type.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes, is_float;
} dtypes[] = {
#define X(e, name, bytes, is_float) [e] = {name, bytes, is_float},
    F8_DTYPES(X)
#undef X
};

const char *f8_dtype_name(f8_dtype d)
{
    return dtypes[d].name;
}

f8_dtype f8_dtype_by_name(const char *name, size_t length)
{
    for (int d = 0; d < F8_DTYPE_COUNT; d++)
        if (strlen(dtypes[d].name) == length && !memcmp(dtypes[d].name, name, length))
            return (f8_dtype)d;
    return F8_DTYPE_COUNT;
}

size_t f8_dtype_size(f8_dtype d)
{
    return dtypes[d].bytes;
}

bool f8_dtype_is_float(f8_dtype d)
{
    return dtypes[d].is_float;
}

bool f8_dtype_is_fp8(f8_dtype d)
{
    return d == F8_E4M3 || d == F8_E5M2;
}

int64_t f8_type_elements(const f8_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(n, t->dim[i], &n))
            return -1;
    return n;
}

int64_t f8_type_bytes(const f8_type *t)
{
    int64_t n = f8_type_elements(t), bytes;
    if (n < 0 || __builtin_mul_overflow(n, (int64_t)dtypes[t->dtype].bytes, &bytes))
        return -1;
    return bytes <= F8_MOST_BYTES ? bytes : -1;
}

bool f8_type_valid(const f8_type *t)
{
    bool ok = (unsigned)t->dtype < F8_DTYPE_COUNT && t->rank <= F8_MAX_RANK;
    for (int i = 0; ok && i < t->rank; i++)
        ok = t->dim[i] >= 1;
    return ok && f8_type_bytes(t) >= 0;
}

bool f8_type_same_shape(const f8_type *a, const f8_type *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

bool f8_type_equal(const f8_type *a, const f8_type *b)
{
    return a->dtype == b->dtype && f8_type_same_shape(a, b);
}

int64_t f8_type_columns(const f8_type *t)
{
    return t->rank ? t->dim[t->rank - 1] : 1;
}

bool f8_type_same_matrix(const f8_type *a, const f8_type *b)
{
    return f8_type_rows(a) == f8_type_rows(b) && f8_type_columns(a) == f8_type_columns(b);
}

f8_gemm_sizes f8_type_gemm(const f8_type *a, bool trans_a, const f8_type *b, bool trans_b)
{
    return (f8_gemm_sizes){.m = trans_a ? f8_type_columns(a) : f8_type_rows(a),
                           .n = trans_b ? f8_type_rows(b) : f8_type_columns(b),
                           .k = trans_a ? f8_type_rows(a) : f8_type_columns(a),
                           .batch = 1};
}

int64_t f8_type_rows(const f8_type *t)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < t->rank; i++)
        n *= t->dim[i];
    return n;
}

int64_t f8_type_batch(const f8_type *t, f8_type *matrix)
{
    int64_t n = 1;
    for (int i = 0; i + 2 < t->rank; i++)
        n *= t->dim[i];
    *matrix =
        (f8_type){.dtype = t->dtype, .rank = 2, .dim = {f8_type_rows(t) / n, f8_type_columns(t)}};
    return n;
}

char *f8_type_print(const f8_type *t, char *buf, size_t size)
{
    int at = snprintf(buf, size, "%s[", f8_dtype_name(t->dtype));
    for (int i = 0; i < t->rank && (size_t)at < size; i++)
        at += snprintf(buf + at, size - (size_t)at, i ? ", %lld" : "%lld", (long long)t->dim[i]);
    if ((size_t)at < size)
        snprintf(buf + at, size - (size_t)at, "]");
    return buf;
}
