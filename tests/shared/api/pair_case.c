/* See pair_case.h. */
#include "tests/shared/api/pair_case.h"

#include "tests/shared/api/view.h"

enum { PORTS = 4096 };

void pair_end(pair_values *v)
{
    for (int i = 0; i < v->n; i++)
        free(v->value[i].data);
    v->n = 0;
}

pair_value *pair_find(const pair_values *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->value[i].name, name))
            return (pair_value *)&v->value[i];
    return NULL;
}

static pair_value *add(pair_values *v, const char *name, const fp8c_type *type)
{
    ck_assert_int_lt(v->n, PAIR_VALUES);
    pair_value *x = &v->value[v->n++];
    snprintf(x->name, sizeof x->name, "%s", name);
    x->type = *type;
    const size_t bytes = (size_t)fp8c_type_bytes(type);
    x->data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    ck_assert_ptr_nonnull(x->data);
    memset(x->data, 0, bytes);
    return x;
}

static void fill(pair_value *x)
{
    uint64_t seed = 1;
    int64_t n = 1;
    for (const char *c = x->name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    for (int i = 0; i < x->type.rank; i++)
        n *= x->type.dim[i];
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint32_t bits = (uint32_t)(seed >> 33);
        const float f = x->name[0] == 'd' ? ((float)(bits % 255) - 127) / 128 /* a cotangent */
                                          : ((float)(bits % 20001) - 10000) / 10000;
        if (x->type.dtype == FP8C_I32)
            ((int32_t *)x->data)[i] = (int32_t)(bits % 16);
        else if (x->type.dtype == FP8C_F32)
            ((float *)x->data)[i] = f;
        else if (x->type.dtype == FP8C_BF16) {
            uint32_t u;
            memcpy(&u, &f, sizeof u);
            ((uint16_t *)x->data)[i] = (uint16_t)(u >> 16);
        }
    }
}

static bool same_type(const fp8c_type *a, const fp8c_type *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

void *pair_get(pair_values *v, const char *name, const fp8c_type *type)
{
    pair_value *x = pair_find(v, name);
    if (!x) {
        x = add(v, name, type);
        fill(x);
    }
    ck_assert_msg(same_type(&x->type, type), "'%s' has another type", name);
    return x->data;
}

void pair_set(pair_values *v, const char *name, const fp8c_type *type, const void *data)
{
    pair_value *x = pair_find(v, name);
    if (!x)
        x = add(v, name, type);
    ck_assert_msg(same_type(&x->type, type), "'%s' has another type", name);
    memcpy(x->data, data, (size_t)fp8c_type_bytes(type));
}

void pair_forget(pair_values *v, const char *prefix)
{
    int n = 0;
    for (int i = 0; i < v->n; i++)
        if (strncmp(v->value[i].name, prefix, strlen(prefix)))
            v->value[n++] = v->value[i];
        else
            free(v->value[i].data);
    v->n = n;
}

bool pair_equal(const pair_values *a, const pair_values *b, const char *name)
{
    const pair_value *x = pair_find(a, name), *y = pair_find(b, name);
    ck_assert_msg(x && y, "%s has no '%s'", x ? "the second" : "the first", name);
    return same_type(&x->type, &y->type) &&
           !memcmp(x->data, y->data, (size_t)fp8c_type_bytes(&x->type));
}

/* ---- calls ---- */

typedef struct side {
    int n;
    fp8c_tensor_view view[PORTS];
    const fp8c_tensor_view *list[PORTS];
} side;

/* Find a tensor in `v` for each port of a side, or make it there. With `handle` the ports of saved
 * values are left out, since the handle has these. */
static void take(fp8c_program *p, int function, fp8c_side at, bool handle, pair_values *v, side *s)
{
    fp8c_port port;
    s->n = 0;
    for (int i = 0; fp8c_program_port(p, function, at, i, &port) == FP8C_OK; i++) {
        if (port.variable >= 0 || (handle && !strncmp(port.name, "saved.", 6)))
            continue;
        ck_assert_int_lt(s->n, PORTS);
        pair_value *x = pair_find(v, port.name);
        if (!x || !handle) { /* a handle's forward may have had another batch than the ports now */
            pair_get(v, port.name, &port.type);
            x = pair_find(v, port.name);
        }
        s->view[s->n] = view_of(&x->type, x->data, 1);
        s->list[s->n] = &s->view[s->n];
        s->n++;
    }
}

static int function_of(const fp8c_program *p, const char *name)
{
    const int function = fp8c_program_function(p, name);
    ck_assert_msg(function >= 0, "no function '%s'", name);
    return function;
}

static void must(const fp8c_program *p, fp8c_status status, const char *what)
{
    ck_assert_msg(status == FP8C_OK, "%s fails with status %d for %s", what, (int)status,
                  fp8c_program_target(p));
}

void pair_run(fp8c_program *p, const char *name, pair_values *in, pair_values *out)
{
    static _Thread_local side sides[2];
    const int f = function_of(p, name);
    take(p, f, FP8C_INPUT, false, in, &sides[0]);
    take(p, f, FP8C_OUTPUT, false, out, &sides[1]);
    must(p, fp8c_program_call(p, f, sides[0].list, (size_t)sides[0].n, sides[1].list,
                              (size_t)sides[1].n),
         name);
    must(p, fp8c_program_wait(p), name);
}

void pair_forward(fp8c_program *p, int which, fp8c_saved *saved, pair_values *in,
                  pair_values *out)
{
    static _Thread_local side sides[2];
    const int f = function_of(p, "forward");
    take(p, f, FP8C_INPUT, true, in, &sides[0]);
    take(p, f, FP8C_OUTPUT, true, out, &sides[1]);
    must(p, fp8c_program_forward(p, which, saved, sides[0].list, (size_t)sides[0].n,
                                 sides[1].list, (size_t)sides[1].n),
         "forward");
}

void pair_backward(fp8c_program *p, fp8c_saved *saved, pair_values *in, pair_values *out)
{
    static _Thread_local side sides[2];
    const int f = function_of(p, "backward");
    take(p, f, FP8C_INPUT, true, in, &sides[0]);
    take(p, f, FP8C_OUTPUT, true, out, &sides[1]);
    must(p, fp8c_program_backward(p, saved, sides[0].list, (size_t)sides[0].n, sides[1].list,
                                  (size_t)sides[1].n),
         "backward");
}

void pair_step(fp8c_program *p, bool first, pair_values *in, pair_values *out)
{
    pair_run(p, first ? "forward.first" : "forward", in, out);
    for (int i = 0; i < out->n; i++)
        if (!strncmp(out->value[i].name, "saved.", 6))
            pair_set(in, out->value[i].name, &out->value[i].type, out->value[i].data);
    pair_run(p, first ? "backward.first" : "backward", in, out);
}

/* ---- variables ---- */

void pair_variables(fp8c_program *p, const char *prefix, pair_values *out)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++) {
        if (strncmp(v.name, prefix, strlen(prefix)))
            continue;
        pair_value *x = pair_find(out, v.name);
        if (!x)
            x = add(out, v.name, &v.type);
        must(p, fp8c_program_read(p, i, x->data), "reading");
    }
}

void pair_write(fp8c_program *p, const pair_values *from)
{
    for (int i = 0; i < from->n; i++) {
        const int v = fp8c_program_find_variable(p, from->value[i].name);
        if (v >= 0)
            must(p, fp8c_program_write(p, v, from->value[i].data), "writing");
    }
}

int64_t pair_saved_bytes(const fp8c_program *p, const char *function, int *n)
{
    fp8c_port port;
    int64_t bytes = 0;
    *n = 0;
    for (int i = 0; fp8c_program_port(p, function_of(p, function), FP8C_OUTPUT, i, &port) ==
                    FP8C_OK;
         i++)
        if (port.variable < 0 && !strncmp(port.name, "saved.", 6)) {
            bytes += fp8c_type_bytes(&port.type);
            ++*n;
        }
    return bytes;
}
