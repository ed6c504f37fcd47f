/* Granularity of scales: see granularity.h. */
#include "ir/num/granularity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    f8_granularity granularity;
} named[] = {
    {"tensor", {0, 0}},
    {"row", {1, 0}},
    {"column", {0, 1}},
};

enum { N_NAMED = sizeof named / sizeof named[0] };

/* Read a positive number that `end` follows, and `end`; 0 if the text has something else. */
static int64_t size_before(const char **text, char end)
{
    int64_t n = 0;
    int digits = 0;
    for (; **text >= '0' && **text <= '9' && digits < 10; digits++)
        n = n * 10 + (*(*text)++ - '0');
    return digits && *(*text)++ == end ? n : 0;
}

bool f8_granularity_parse(const char *text, f8_granularity *out)
{
    static const char block[] = "block(";
    for (size_t i = 0; i < N_NAMED; i++)
        if (!strcmp(named[i].name, text)) {
            *out = named[i].granularity;
            return true;
        }
    if (strncmp(text, block, sizeof block - 1))
        return false;
    text += sizeof block - 1;
    out->rows = size_before(&text, ',');
    out->cols = out->rows ? size_before(&text, ')') : 0;
    return out->rows && out->cols && !*text;
}

const char *f8_granularity_print(f8_granularity g, char *buf, size_t size)
{
    for (size_t i = 0; i < N_NAMED; i++)
        if (f8_granularity_equal(named[i].granularity, g))
            return named[i].name;
    snprintf(buf, size, "block(%lld,%lld)", (long long)g.rows, (long long)g.cols);
    return buf;
}

bool f8_granularity_equal(f8_granularity a, f8_granularity b)
{
    return a.rows == b.rows && a.cols == b.cols;
}

f8_granularity f8_granularity_transposed(f8_granularity g)
{
    return (f8_granularity){g.cols, g.rows};
}

bool f8_granularity_has_blocks(f8_granularity g)
{
    return g.rows > 1 || g.cols > 1;
}

int64_t f8_granularity_rows(f8_granularity g, const f8_type *t)
{
    return f8_granularity_blocks(g.rows, f8_type_rows(t));
}

int64_t f8_granularity_columns(f8_granularity g, const f8_type *t)
{
    return f8_granularity_blocks(g.cols, f8_type_columns(t));
}

f8_type f8_granularity_type(f8_granularity g, const f8_type *t, f8_dtype dtype)
{
    if (!g.rows && !g.cols)
        return (f8_type){.dtype = dtype};
    if (g.rows == 1 && t->rank) {
        f8_type out = *t;
        out.dtype = dtype;
        out.dim[t->rank - 1] = f8_granularity_columns(g, t);
        return out;
    }
    return (f8_type){.dtype = dtype,
                     .rank = 2,
                     .dim = {f8_granularity_rows(g, t), f8_granularity_columns(g, t)}};
}
