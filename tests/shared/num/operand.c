/* See operand.h. */
#include "tests/shared/num/operand.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/num/fp8.h"

/* How many indices of an axis one scale covers, from how many there are of both; 0: it can't be
 * told. At most one answer but for those that mean the same, since n blocks of 32 are at most 32 n
 * long and n of 128 more than 128 (n - 1). */
static int64_t block_of(int64_t length, int64_t scales)
{
    static const int64_t sizes[] = {1, 32, 128};
    if (scales == 1)
        return length;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if ((length + sizes[i] - 1) / sizes[i] == scales)
            return sizes[i];
    return 0;
}

static double scale_inv_at(const f8_operand_view *v, int64_t i)
{
    if (v->scale_type.dtype == F8_E8M0)
        return (double)f8_decode(F8_E8M0, ((const uint8_t *)v->scale_inv)[i]);
    return (double)((const float *)v->scale_inv)[i];
}

bool f8_operand_measure(const f8_operand_view *v, f8_operand_stats *out)
{
    const int64_t rows = f8_type_rows(&v->x_type), columns = f8_type_columns(&v->x_type);
    const int64_t across = f8_type_columns(&v->scale_type);
    const int64_t tall = block_of(rows, f8_type_rows(&v->scale_type)),
                  wide = block_of(columns, across);
    if (!tall || !wide || rows != f8_type_rows(&v->q_type) ||
        columns != f8_type_columns(&v->q_type))
        return false;
    const double most = (double)f8_dtype_max(v->q_type.dtype), n = (double)rows * (double)columns;
    double signal = 0, noise = 0, largest = 0;
    int64_t lost = 0, over = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const double x = (double)v->x[r * columns + c];
            const double code = (double)f8_decode(v->q_type.dtype, v->q[r * columns + c]);
            const double inv = scale_inv_at(v, r / tall * across + c / wide), e = x - code * inv;
            signal += x * x;
            noise += e * e;
            largest = fmax(largest, fabs(code));
            lost += x != 0 && code == 0;
            over += fabs(x) > most * inv;
        }
    *out = (f8_operand_stats){.sqnr = noise == 0 ? (double)INFINITY : 10 * log10(signal / noise),
                              .underflow = (double)lost / n,
                              .overflow = (double)over / n,
                              .range = largest / most,
                              .format = v->q_type.dtype};
    return true;
}

/* ---- names ---- */

/* The last part between dots of name[0, length), which is cut off. */
static const char *cut_part(const char *name, size_t *length, size_t *part)
{
    size_t at = *length;
    while (at > 0 && name[at - 1] != '.')
        at--;
    *part = *length - at;
    *length = at > 0 ? at - 1 : 0;
    return name + at;
}

static bool is_word(const char *part, size_t length, const char *word)
{
    return length == strlen(word) && !memcmp(part, word, length);
}

/* 'c' for scales along rows (the sum is over columns), 'r' along columns, 't' tiles, 0: no
 * granularity. */
static char sum_of(const char *part, size_t length)
{
    long long rows, columns;
    int end = 0;
    if (is_word(part, length, "row"))
        return 'c';
    if (is_word(part, length, "column"))
        return 'r';
    if (sscanf(part, "%lldx%lld%n", &rows, &columns, &end) != 2 || (size_t)end != length)
        return 0;
    return rows == 1 ? 'c' : columns == 1 ? 'r' : 't';
}

bool f8_operand_name_split(const char *name, f8_operand_name_parts *out)
{
    static const char *const kinds[] = {"x", "w", "dy"};
    size_t length = strlen(name), n;
    const char *part = cut_part(name, &length, &n);
    const char sum = sum_of(part, n);
    if (sum)
        part = cut_part(name, &length, &n);
    if (n > 0 && strspn(part, "0123456789") >= n)
        part = cut_part(name, &length, &n);
    *out = (f8_operand_name_parts){.linear = (int)length};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (length > 0 && is_word(part, n, kinds[i]))
            out->kind = kinds[i];
    if (out->kind && *out->kind != 'w')
        out->role = sum == 'r'          ? "wgrad"
                    : sum != 'c'        ? NULL
                    : *out->kind == 'x' ? "fprop"
                                        : "dgrad";
    return out->kind != NULL;
}
