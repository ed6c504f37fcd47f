/* What adapters add to weights: see adapters.h. */
#include "frontend/formats/adapters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/formats/adapters_parts.h"

enum { SHOWN = 200 };

/* ---- what an adapter adds ---- */

/* L [rows, r] times M [r, columns]. Element (i, k) of a factor is at[i * row + k * column]. */
typedef struct factor {
    const float *at;
    int64_t row, column;
} factor;

typedef struct factors {
    factor l, m;
    int64_t r;
} factors;

static factor as_it_lies(const float *at, const int64_t *dim)
{
    return (factor){at, dim[1], 1};
}

static factor transposed(const float *at, const int64_t *dim)
{
    return (factor){at, 1, dim[1]};
}

/* Whether X [rows, r] times Y [r, columns] is a product of these dims. */
static bool is_product(const int64_t *x, const int64_t *y, const int64_t *dim)
{
    return x[0] == dim[0] && x[1] == y[0] && y[1] == dim[1];
}

static bool factors_of(const f8_adapter *x, const int64_t *dim, factors *f)
{
    const int64_t *a = x->a->tensor->dim, *b = x->b->tensor->dim;
    const int64_t turned[2] = {dim[1], dim[0]};
    const bool ba = is_product(b, a, dim), ab = is_product(a, b, dim);
    switch (x->kind) {
    case F8_ADAPTER_IN_OUT:
        *f = (factors){transposed(x->a_values, a), transposed(x->b_values, b), a[0]};
        return is_product(b, a, turned);
    case F8_ADAPTER_TEXT:
        if (ab && !ba) {
            *f = (factors){as_it_lies(x->a_values, a), as_it_lies(x->b_values, b), a[1]};
            return true;
        }
        if (ab) /* both, where all sides are equal: nothing says which */
            return false;
        break;
    case F8_ADAPTER_OUT_IN: break;
    }
    *f = (factors){as_it_lies(x->b_values, b), as_it_lies(x->a_values, a), a[0]};
    return ba;
}

f8_status f8_adapter_fits(const f8_adapter *x, const int64_t *dim, f8_diag *diag)
{
    factors f;
    const int64_t *a = x->a->tensor->dim, *b = x->b->tensor->dim;
    if (factors_of(x, dim, &f))
        return F8_OK;
    if (x->kind == F8_ADAPTER_TEXT && is_product(a, b, dim))
        return f8_file_fail(diag, F8_ERR_INPUT, x->a->file->in.path,
                            "the factors of '%s' are square, so nothing says which is the first",
                            x->module);
    return f8_file_fail(diag, F8_ERR_INPUT, x->a->file->in.path,
                        "the adapter of '%s' has factors [%lld, %lld] and [%lld, %lld], which do "
                        "not go with a weight [%lld, %lld]",
                        x->module, (long long)a[0], (long long)a[1], (long long)b[0],
                        (long long)b[1], (long long)dim[0], (long long)dim[1]);
}

f8_status f8_adapter_add(const f8_adapter *x, const int64_t *dim, f8_arena *memory, float *values,
                         f8_diag *diag)
{
    factors f;
    const int64_t columns = dim[1];
    if (!factors_of(x, dim, &f))
        return F8_ERR_INTERNAL; /* f8_adapter_fits has checked it */
    double *sum = F8_NEW_ARRAY(memory, double, (size_t)columns + 1);
    float *m = F8_NEW_ARRAY(memory, float, (size_t)(f.r * columns) + 1);
    F8_TRY(f8_arena_status(memory, diag));
    for (int64_t k = 0; k < f.r; k++)
        for (int64_t j = 0; j < columns; j++)
            m[k * columns + j] = f.m.at[k * f.m.row + j * f.m.column];
    for (int64_t i = 0; i < dim[0]; i++) {
        for (int64_t j = 0; j < columns; j++)
            sum[j] = 0;
        for (int64_t k = 0; k < f.r; k++) {
            const double by = x->factor * (double)f.l.at[i * f.l.row + k * f.l.column];
            for (int64_t j = 0; j < columns; j++)
                sum[j] += by * (double)m[k * columns + j];
        }
        for (int64_t j = 0; j < columns; j++)
            values[i * columns + j] = (float)((double)values[i * columns + j] + sum[j]);
    }
    return F8_OK;
}

/* The product of vectors k and l of a factor: of columns of L, of rows of M. */
static double dot(const factor *f, int64_t n, int64_t step, int64_t along, int64_t k, int64_t l)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)f->at[i * step + k * along] * (double)f->at[i * step + l * along];
    return sum;
}

/* The squared Frobenius norm of L M is the trace of (L^T L)(M M^T), of r x r elements each. */
double f8_adapter_energy(const f8_adapter *x, const int64_t *dim)
{
    factors f;
    double sum = 0;
    if (!factors_of(x, dim, &f))
        return 0;
    for (int64_t k = 0; k < f.r; k++)
        for (int64_t l = 0; l < f.r; l++)
            sum += dot(&f.l, dim[0], f.l.row, f.l.column, k, l) *
                   dot(&f.m, dim[1], f.m.column, f.m.row, k, l);
    return x->factor * x->factor * (sum > 0 ? sum : 0);
}

/* ---- finding one ---- */

static int by_module(const void *a, const void *b)
{
    return strcmp(((const f8_adapter *)a)->module, ((const f8_adapter *)b)->module);
}

const f8_adapter *f8_adapters_of(const f8_adapters *a, const char *module)
{
    const f8_adapter key = {.module = module};
    return a && a->n ? bsearch(&key, a->adapter, a->n, sizeof key, by_module) : NULL;
}

bool f8_adapters_have(const f8_adapters *a, const f8_weight *t)
{
    for (size_t i = 0; a && i < a->n; i++)
        if (a->adapter[i].a == t || a->adapter[i].b == t)
            return true;
    return false;
}

/* ---- all of them ---- */

static f8_status read_factor(f8_adapters *a, const f8_weight *w, float **to, f8_diag *diag)
{
    const int64_t n = f8_weight_elements(w->tensor);
    char shown[SHOWN];
    if (w->tensor->rank != 2 || f8_is_fp8(w->tensor->dtype))
        return f8_file_fail(diag, F8_ERR_INPUT, w->file->in.path,
                            "'%s' is no matrix of F32, BF16 or F16: no adapter's factor",
                            f8_st_shown(w->name, shown, SHOWN));
    *to = F8_NEW_ARRAY(&a->memory, float, (size_t)n + 1);
    F8_TRY(f8_arena_status(&a->memory, diag));
    F8_TRY(f8_weight_values(w, &a->memory, *to, diag));
    for (int64_t i = 0; i < n; i++)
        if (!isfinite((*to)[i]))
            return f8_file_fail(diag, F8_ERR_INPUT, w->file->in.path,
                                "'%s' has values that are NaN or Inf",
                                f8_st_shown(w->name, shown, SHOWN));
    return F8_OK;
}

f8_status f8_adapters_finish(f8_adapters *a, f8_diag *diag)
{
    F8_TRY(f8_arena_status(&a->memory, diag));
    if (a->n)
        qsort(a->adapter, a->n, sizeof *a->adapter, by_module);
    for (size_t i = 0; i < a->n; i++) {
        f8_adapter *x = &a->adapter[i];
        F8_TRY(read_factor(a, x->a, &x->a_values, diag));
        F8_TRY(read_factor(a, x->b, &x->b_values, diag));
    }
    return F8_OK;
}

void f8_adapters_close(f8_adapters *a)
{
    f8_weights_close(&a->weights);
    if (a->memory.allocator.alloc)
        f8_arena_end(&a->memory);
    *a = (f8_adapters){0};
}
