/* Values of dims that are bounds: see variants.h. */
#include "frontend/variants.h"
#include "runtime/cpu/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/compile.h"
#include "frontend/target.h"
#include "frontend/text/parse.h"
#include "passes/unit/pass.h"

static const char *print_values(const f8_bounds *b, const int64_t *value, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int32_t i = 0; i < b->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s = %lld", i ? ", " : "", b->bound[i].name,
                              (long long)value[i]);
    return text;
}

/* ---- making a variant ---- */

static f8_variant *find(const fp8c_program *p, const int64_t *value)
{
    for (f8_variant *v = p->first; v; v = v->next)
        if (!memcmp(v->value, value, (size_t)p->bounds.n * sizeof *value))
            return v;
    return NULL;
}

/* Destroy a variant that is not p->now. */
static void drop(fp8c_program *p, f8_variant *v)
{
    f8_variant **link = &p->first;
    while (*link != v)
        link = &(*link)->next;
    *link = v->next;
    f8_instance_destroy(&v->instance);
    f8_arena_end(&v->arena);
    f8_gemm_lib_destroy(v->gemms);
    f8_arena_end(&v->graph);
}

bool f8_is_saved_port(const f8_plan_port *port)
{
    return port->var < 0 && !strncmp(port->name, F8_SAVED, strlen(F8_SAVED));
}

/* The next port that variants have in common. What is saved decides which variables backward reads,
 * so these may differ too. */
static uint32_t skip(const f8_plan_port *port, uint32_t i, uint32_t n, bool inputs)
{
    while (i < n && (f8_is_saved_port(&port[i]) || (inputs && port[i].var >= 0)))
        i++;
    return i;
}

static bool same_ports(const f8_plan_port *a, uint32_t n_a, const f8_plan_port *b, uint32_t n_b,
                       bool inputs)
{
    uint32_t i = skip(a, 0, n_a, inputs), k = skip(b, 0, n_b, inputs);
    while (i < n_a && k < n_b && !strcmp(a[i].name, b[k].name) && a[i].var == b[k].var) {
        i = skip(a, i + 1, n_a, inputs);
        k = skip(b, k + 1, n_b, inputs);
    }
    return i == n_a && k == n_b;
}

/* NULL: both have the same functions with the same ports; else the name of one that differs. */
static const char *other_function(const f8_plan *a, const f8_plan *b)
{
    for (uint32_t i = 0; i < a->n_funcs && i < b->n_funcs; i++) {
        const f8_plan_func *f = &a->func[i], *g = &b->func[i];
        if (strcmp(f->name, g->name) || !same_ports(f->in, f->n_in, g->in, g->n_in, true) ||
            !same_ports(f->out, f->n_out, g->out, g->n_out, false))
            return g->name;
    }
    return a->n_funcs == b->n_funcs ? NULL : "the last";
}

/* The same for variables, their places, and what the elements of states stand for. */
static const char *other_variable(const f8_variant *a, const f8_variant *b)
{
    const f8_plan *x = &a->plan, *y = &b->plan;
    for (uint32_t i = 0; i < x->n_vars && i < y->n_vars; i++)
        if (strcmp(x->var[i].name, y->var[i].name) ||
            !f8_type_equal(&x->var[i].type, &y->var[i].type) ||
            x->var[i].offset != y->var[i].offset)
            return y->var[i].name;
    if (x->n_vars != y->n_vars || x->state_bytes != y->state_bytes)
        return "the last";
    for (size_t i = 0; i < a->report.n_elements && i < b->report.n_elements; i++) {
        const f8_elements *e = &a->report.elements[i], *f = &b->report.elements[i];
        bool same = e->var == f->var && e->n == f->n;
        for (int64_t k = 0; same && k < (int64_t)e->n; k++)
            same = !strcmp(e->name[k], f->name[k]);
        if (!same)
            return y->var[f->var].name;
    }
    return a->report.n_elements == b->report.n_elements ? NULL : "the last";
}

static f8_status check_same(const fp8c_program *p, const f8_variant *v, f8_diag *diag)
{
    const char *function = other_function(&p->first->plan, &v->plan),
               *variable = other_variable(p->first, v);
    char first[256];
    print_values(&p->bounds, p->first->value, first, sizeof first);
    if (function)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "function '%s' differs from the one with %s: all values share the functions",
                       function, first);
    if (variable)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "variable '%s' differs from the one with %s: all values share the variables",
                       variable, first);
    return F8_OK;
}

static f8_status compile_for(fp8c_program *p, const int64_t *value, f8_arena *scratch,
                             f8_diag *diag)
{
    const f8_source *from = p->bounds.source;
    const size_t n = from->n_dims + (size_t)p->bounds.n;
    f8_dim_override *dim = F8_NEW_ARRAY(scratch, f8_dim_override, n);
    f8_module *m;
    if (!dim)
        return f8_arena_status(scratch, diag);
    memcpy(dim, from->dim, from->n_dims * sizeof *dim);
    for (int32_t i = 0; i < p->bounds.n; i++)
        dim[from->n_dims + (size_t)i] = (f8_dim_override){p->bounds.bound[i].name, value[i]};
    F8_TRY(f8_parse(from->text, from->size, from->file, dim, n, scratch, diag, &m));
    for (size_t i = 0; i < from->n_rules; i++)
        F8_TRY(f8_add_rule(m, &from->rule[i]));
    return f8_compile_variant(p, m, &from->request, diag);
}

static f8_status no_such_value(const fp8c_program *p, const int64_t *value, f8_diag *diag)
{
    char wanted[256], there[700] = "", one[256];
    size_t n = 0;
    print_values(&p->bounds, value, wanted, sizeof wanted);
    for (uint32_t i = 0; i < p->opened->n_variants && n + sizeof one < sizeof there; i++)
        n += (size_t)snprintf(
            there + n, sizeof there - n, "%s%s", n ? "; " : "",
            print_values(&p->bounds, p->opened->variant[i].value, one, sizeof one));
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "the file has no plan for %s: it has plans for %s", wanted, there);
}

/* Take the variant from the file that p was opened from. */
static f8_status read_for(fp8c_program *p, const int64_t *value, f8_diag *diag)
{
    for (uint32_t i = 0; i < p->opened->n_variants; i++)
        if (!memcmp(p->opened->variant[i].value, value, (size_t)p->bounds.n * sizeof *value))
            return f8_open_variant(p, i, diag);
    return no_such_value(p, value, diag);
}

/* Put the values before a message. */
static f8_status with_values(const fp8c_program *p, const int64_t *value, f8_status status,
                             f8_diag *diag)
{
    char values[160], text[sizeof diag->text];
    print_values(&p->bounds, value, values, sizeof values);
    snprintf(text, sizeof text, "with %s: %.800s", values, diag->text);
    memcpy(diag->text, text, sizeof text);
    return status;
}

/* Find the variant for these values (by bound), or compile it. It does not become p->now yet. After
 * a failure p is unchanged. */
static f8_status find_or_make(fp8c_program *p, const int64_t *value, f8_variant **out,
                              f8_diag *diag)
{
    *out = find(p, value);
    if (*out)
        return F8_OK;
    f8_variant *now = p->now, *last = p->first;
    while (last->next)
        last = last->next;
    f8_arena scratch;
    f8_arena_init(&scratch, &p->ctx->allocator);
    int64_t *own = F8_NEW_ARRAY(&p->arena, int64_t, p->bounds.n);
    f8_status status = !own               ? f8_arena_status(&p->arena, diag)
                       : p->bounds.source ? compile_for(p, value, &scratch, diag)
                                          : read_for(p, value, diag);
    f8_arena_end(&scratch);
    f8_variant *v = last->next;
    if (status == F8_OK)
        status = check_same(p, v, diag);
    p->now = now;
    if (status != F8_OK) {
        if (v)
            drop(p, v);
        return p->bounds.source ? with_values(p, value, status, diag) : status;
    }
    memcpy(own, value, (size_t)p->bounds.n * sizeof *own);
    v->value = own;
    *out = v;
    return F8_OK;
}

/* Make v the current variant, and bind its own buffers to all ports. */
static f8_status switch_to(fp8c_program *p, f8_variant *v, f8_diag *diag)
{
    if (v == p->now)
        return F8_OK;
    f8_instance *i = &v->instance;
    for (uint32_t f = 0; i->kind && f < v->plan.n_funcs; f++)
        for (int side = 0; side < 2; side++) {
            uint32_t n;
            const f8_plan_port *port = f8_plan_ports(&v->plan.func[f], side, &n);
            for (uint32_t k = 0; k < n; k++)
                if (port[k].var < 0)
                    F8_TRY(i->kind->bind(i, f, side, k, NULL, diag));
        }
    p->now = v;
    return F8_OK;
}

/* ---- values that shapes determine ---- */

static const f8_plan_port *caller_port(const f8_plan_func *f, size_t index)
{
    for (uint32_t i = 0; i < f->n_in; i++)
        if (f->in[i].var < 0 && index-- == 0)
            return &f->in[i];
    return NULL;
}

/* Put the value that axis `a` determines at size `size` into values, and the axis into from. */
static f8_status take_axis(const f8_bounds *b, const f8_bound_axis *a, int64_t size,
                           int64_t *values, const f8_bound_axis **from, f8_diag *diag)
{
    const f8_bound *bound = &b->bound[a->bound];
    int64_t value = 0, from_zero;
    /* scales and offsets may come from a file */
    if (!__builtin_sub_overflow(size, a->offset, &from_zero) &&
        (a->scale != -1 || from_zero != INT64_MIN) && from_zero % a->scale == 0)
        value = from_zero / a->scale;
    if (value < 1 || value > bound->most)
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE,
            "input '%s': axis %d is %lld, but it must be %lld * %s + %lld with '%s' from 1 to %lld",
            a->port, (int)a->axis, (long long)size, (long long)a->scale, bound->name,
            (long long)a->offset, bound->name, (long long)bound->most);
    const f8_bound_axis *before = from[a->bound];
    if (before && values[a->bound] != value)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "axis %d of input '%s' makes '%s' %lld, but axis %d of '%s' makes it %lld",
                       (int)before->axis, before->port, bound->name, (long long)values[a->bound],
                       (int)a->axis, a->port, (long long)value);
    values[a->bound] = value;
    from[a->bound] = a;
    return F8_OK;
}

/* A size that determines no value must be the one that the chosen values give. */
static f8_status check_axis(const fp8c_program *p, const f8_variant *v, uint32_t func,
                            const f8_bound_axis *a, size_t index, int64_t size, f8_diag *diag)
{
    char values[256];
    const f8_plan_port *port = caller_port(&v->plan.func[func], index);
    if (port->type.dim[a->axis] == size)
        return F8_OK;
    return f8_fail(
        diag, F8_ERR_INPUT, F8_NOWHERE,
        "input '%s': axis %d is %lld, but it must be %lld with %s; call fp8c_program_set_dim "
        "for a dim that no shape determines",
        a->port, (int)a->axis, (long long)size, (long long)port->type.dim[a->axis],
        print_values(&p->bounds, v->value, values, sizeof values));
}

static bool fits(const fp8c_tensor_view *given, const f8_plan_port *port, const f8_bound_axis *a)
{
    /* axes may come from a file, which did not check them against ports */
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
            F8_TRY(find_or_make(p, values, &v, diag));
    }
    return switch_to(p, v, diag);
}

/* ---- values for a file ---- */

/* The values that the caller asked for, by bound. */
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
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "values '%.200s': '%s' must be from 1 to %lld", text, b->bound[i].name,
                       (long long)b->bound[i].most);
    for (int32_t k = 0; k < w->n[i]; k++)
        if (w->value[i][k] == value)
            return F8_OK;
    if (w->n[i] == F8_MAX_VALUES)
        return bad_values(text, "one dim has more than 64", diag);
    int32_t at = w->n[i]++;
    for (; at > 0 && w->value[i][at - 1] < value;
         at--) /* the largest value first, whatever the order given */
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
            return bad_values(text, "write NAME=N,N,..., and spaces between dims", diag);
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
                return bad_values(text, "a number must follow '=' and ','", diag);
            F8_TRY(add_value(b, w, i, value, text, diag));
            at = end;
        } while (*at == ',');
        at += strspn(at, " ");
    }
    return F8_OK;
}

/* The dims not named: every value, if these are not too many. */
static f8_status count_values(const f8_bounds *b, wanted *w, f8_diag *diag)
{
    int64_t sets = 1;
    for (int32_t i = 0; i < b->n; i++) {
        const bool all = w->n[i] == 0;
        const int64_t n = all ? b->bound[i].most : w->n[i];
        if (__builtin_mul_overflow(sets, n, &sets) || sets > F8_MAX_VALUES)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "a file holds at most %d sets of values, and '%s' alone has %lld: "
                           "name those that it shall have (--values %s=1,2,4)",
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
        F8_TRY(find_or_make(p, value, &v, diag));
        first_wanted |= v == p->first;
        int32_t i = b->n; /* the next set, the last bound's value first */
        while (i > 0 && ++at[i - 1] == w.n[i - 1])
            at[--i] = 0;
        more = i > 0;
    }
    if (!first_wanted)
        drop(p, p->first);
    p->now = p->first;
    return F8_OK;
}

/* ---- the API ---- */

fp8c_status fp8c_program_dims(const fp8c_program *p, int index, fp8c_program_dim *out)
{
    if (index < 0 || index >= p->bounds.n)
        return FP8C_ERR_INPUT;
    *out = (fp8c_program_dim){p->bounds.bound[index].name, p->now->value[index],
                              p->bounds.bound[index].most};
    return FP8C_OK;
}

_Static_assert((int)FP8C_MAX_BOUNDS == (int)F8_MAX_BOUNDS, "what fp8c.h says");

fp8c_status fp8c_program_values(const fp8c_program *p, int index, int64_t *value)
{
    const f8_variant *v = p->first;
    const int64_t *found = NULL;
    if (index < 0 || p->bounds.n == 0)
        return FP8C_ERR_INPUT;
    if (p->opened) {
        found = (uint32_t)index < p->opened->n_variants ? p->opened->variant[index].value : NULL;
    } else {
        for (; v && index > 0; index--)
            v = v->next;
        found = v ? v->value : NULL;
    }
    if (!found)
        return FP8C_ERR_INPUT;
    memcpy(value, found, (size_t)p->bounds.n * sizeof *value);
    return FP8C_OK;
}

static f8_status check_value(const f8_bound *b, int64_t value, f8_diag *diag)
{
    return value >= 1 && value <= b->most
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         "dim '%s' can't be %lld: it must be from 1 to %lld", b->name,
                         (long long)value, (long long)b->most);
}

static f8_status set_dim(fp8c_program *p, const char *name, int64_t value, f8_diag *diag)
{
    const f8_bounds *b = &p->bounds;
    int64_t values[F8_MAX_BOUNDS];
    f8_variant *v;
    int32_t i = 0;
    while (i < b->n && strcmp(b->bound[i].name, name ? name : ""))
        i++;
    if (i == b->n)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program has no dim '%s' that is a bound", name ? name : "");
    F8_TRY(check_value(&b->bound[i], value, diag));
    memcpy(values, p->now->value, (size_t)b->n * sizeof *values);
    values[i] = value;
    F8_TRY(find_or_make(p, values, &v, diag));
    return switch_to(p, v, diag);
}

fp8c_status fp8c_program_set_dim(fp8c_program *p, const char *name, int64_t value)
{
    f8_diag diag = {0};
    const f8_source *from = p->bounds.source;
    const f8_status status = set_dim(p, name, value, &diag);
    return status == F8_OK ? FP8C_OK
                           : f8_api_fail(p->ctx, &diag, status, from ? from->text : NULL,
                                         from ? from->size : 0);
}
