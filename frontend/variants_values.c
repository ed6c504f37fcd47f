/* Which values: those that shapes tell, and those that a file is made for. See variants.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/program.h"

/* ---- shapes ---- */

static const f8_plan_port *caller_port(const f8_plan_func *f, size_t index)
{
    for (uint32_t i = 0; i < f->n_in; i++)
        if (f->in[i].var < 0 && index-- == 0)
            return &f->in[i];
    return NULL;
}

/* The value that axis `a` tells when it is of size `size`, into values and from. */
static f8_status take_axis(const f8_bounds *b, const f8_bound_axis *a, int64_t size,
                           int64_t *values, const f8_bound_axis **from, f8_diag *diag)
{
    const f8_bound *bound = &b->bound[a->bound];
    int64_t value = 0, from_zero;
    /* scales and offsets may be a file's */
    if (!__builtin_sub_overflow(size, a->offset, &from_zero) &&
        (a->scale != -1 || from_zero != INT64_MIN) && from_zero % a->scale == 0)
        value = from_zero / a->scale;
    if (value < 1 || value > bound->most)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "input '%s': axis %d is %lld, but %lld * %s + %lld, and '%s' is 1 to %lld",
                       a->port, (int)a->axis, (long long)size, (long long)a->scale, bound->name,
                       (long long)a->offset, bound->name, (long long)bound->most);
    const f8_bound_axis *before = from[a->bound];
    if (before && values[a->bound] != value)
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE,
            "axis %d of input '%s' says that '%s' is %lld, axis %d of '%s' that it is %lld",
            (int)before->axis, before->port, bound->name, (long long)values[a->bound], (int)a->axis,
            a->port, (long long)value);
    values[a->bound] = value;
    from[a->bound] = a;
    return F8_OK;
}

/* A size that tells no value must be that of the values there are. */
static f8_status check_axis(const fp8c_program *p, const f8_variant *v, uint32_t func,
                            const f8_bound_axis *a, size_t index, int64_t size, f8_diag *diag)
{
    char values[256];
    const f8_plan_port *port = caller_port(&v->plan.func[func], index);
    if (port->type.dim[a->axis] == size)
        return F8_OK;
    return f8_fail(
        diag, F8_ERR_INPUT, F8_NOWHERE,
        "input '%s': axis %d is %lld, but %lld with %s; where shapes don't tell a value, "
        "fp8c_program_set_dim gives it",
        a->port, (int)a->axis, (long long)size, (long long)port->type.dim[a->axis],
        f8_bounds_print(&p->bounds, v->value, values, sizeof values));
}

static bool fits(const fp8c_tensor_view *given, const f8_plan_port *port, const f8_bound_axis *a)
{
    /* axes may be a file's, which were checked beside no port */
    return given && given->shape && given->ndim == port->type.rank && a->axis < given->ndim &&
           !strcmp(a->port, port->name);
}

f8_status f8_bounds_of_shapes(fp8c_program *p, uint32_t func, const fp8c_tensor_view *const *given,
                              size_t n, f8_diag *diag)
{
    const f8_bounds *b = &p->bounds;
    const f8_plan_func *f = &p->now->plan.func[func];
    const f8_bound_axis *from[F8_MAX_BOUNDS] = {0};
    int64_t values[F8_MAX_BOUNDS];
    f8_variant *v;
    if (b->n == 0 || !given)
        return F8_OK;
    memcpy(values, p->now->value, (size_t)b->n * sizeof *values);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            const f8_plan_port *port = caller_port(f, i);
            for (int32_t k = 0; port && k < b->n_axes; k++) {
                const f8_bound_axis *a = &b->axis[k];
                if (!fits(given[i], port, a))
                    continue;
                if (pass == 0 && a->bound >= 0)
                    F8_TRY(take_axis(b, a, given[i]->shape[a->axis], values, from, diag));
                if (pass == 1)
                    F8_TRY(check_axis(p, v, func, a, i, given[i]->shape[a->axis], diag));
            }
        }
        if (pass == 0)
            F8_TRY(f8_bounds_variant(p, values, &v, diag));
    }
    return f8_bounds_switch(p, v, diag);
}

/* ---- values for a file ---- */

/* The values asked for, by bound. */
typedef struct wanted {
    int64_t value[F8_MAX_BOUNDS][F8_MAX_VALUES];
    int32_t n[F8_MAX_BOUNDS];
} wanted;

static f8_status bad_values(const char *text, const char *why, f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "values '%.200s': %s", text, why);
}

static f8_status add_value(const f8_bounds *b, wanted *w, int32_t i, int64_t value,
                           const char *text, f8_diag *diag)
{
    if (value < 1 || value > b->bound[i].most)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "values '%.200s': '%s' is 1 to %lld", text,
                       b->bound[i].name, (long long)b->bound[i].most);
    for (int32_t k = 0; k < w->n[i]; k++)
        if (w->value[i][k] == value)
            return F8_OK;
    if (w->n[i] == F8_MAX_VALUES)
        return bad_values(text, "more than 64 of one dim", diag);
    int32_t at = w->n[i]++;
    for (; at > 0 && w->value[i][at - 1] < value;
         at--) /* the largest first, in whatever order they are given */
        w->value[i][at] = w->value[i][at - 1];
    w->value[i][at] = value;
    return F8_OK;
}

/* "B=1,2,4 T=64" */
static f8_status read_values(const f8_bounds *b, const char *text, wanted *w, f8_diag *diag)
{
    const char *at = text + strspn(text, " ");
    while (*at) {
        const size_t length = strcspn(at, "= ");
        int32_t i = 0;
        while (i < b->n &&
               (strlen(b->bound[i].name) != length || memcmp(b->bound[i].name, at, length)))
            i++;
        if (at[length] != '=')
            return bad_values(text, "NAME=N,N,... is wanted, several with spaces between", diag);
        if (i == b->n)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "values '%.200s': no dim '%.*s' is a bound", text,
                           (int)(length < 100 ? length : 100), at);
        at += length;
        do {
            char *end;
            at++;
            const long long value = strtoll(at, &end, 10);
            if (end == at || (*end && *end != ',' && *end != ' '))
                return bad_values(text, "a number is wanted after '=' and ','", diag);
            F8_TRY(add_value(b, w, i, value, text, diag));
            at = end;
        } while (*at == ',');
        at += strspn(at, " ");
    }
    return F8_OK;
}

/* Those not named: all, if they are not too many. */
static f8_status count_values(const f8_bounds *b, wanted *w, f8_diag *diag)
{
    int64_t sets = 1;
    for (int32_t i = 0; i < b->n; i++) {
        const bool all = w->n[i] == 0;
        const int64_t n = all ? b->bound[i].most : w->n[i];
        if (__builtin_mul_overflow(sets, n, &sets) || sets > F8_MAX_VALUES)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "a file holds code for at most %d sets of values of bounds, and '%s' "
                           "alone has %lld here: say "
                           "for which it shall be (--values %s=1,2,4)",
                           F8_MAX_VALUES, b->bound[i].name, (long long)n, b->bound[i].name);
        for (int64_t k = b->bound[i].most; all && k >= 1; k--)
            w->value[i][w->n[i]++] = k;
    }
    return F8_OK;
}

f8_status f8_bounds_all(fp8c_program *p, const char *values, f8_diag *diag)
{
    const f8_bounds *b = &p->bounds;
    wanted w = {.n = {0}};
    int64_t value[F8_MAX_BOUNDS];
    int32_t at[F8_MAX_BOUNDS] = {0};
    bool first_wanted = false, more = true;
    if (b->n == 0)
        return values ? bad_values(values, "the module has no dims that are bounds", diag) : F8_OK;
    F8_TRY(read_values(b, values ? values : "", &w, diag));
    F8_TRY(count_values(b, &w, diag));
    while (more) {
        f8_variant *v;
        for (int32_t i = 0; i < b->n; i++)
            value[i] = w.value[i][at[i]];
        F8_TRY(f8_bounds_variant(p, value, &v, diag));
        first_wanted |= v == p->first;
        int32_t i = b->n; /* the next set, the last bound's value first */
        while (i > 0 && ++at[i - 1] == w.n[i - 1])
            at[--i] = 0;
        more = i > 0;
    }
    if (!first_wanted)
        f8_bounds_drop(p, p->first);
    p->now = p->first;
    return F8_OK;
}
