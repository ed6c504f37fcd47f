/* Tensors: fp8c_program_call with the caller's, and views of the program's. See fp8c.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "frontend/program.h"
#include "ir/base/format.h"

/* DLPack's codes. Those of FP8 are from DLPack 1.1 on: kDLFloat8_e4m3fn, kDLFloat8_e5m2 and
 * kDLFloat8_e8m0fnu of include/dlpack/dlpack.h in github.com/dmlc/dlpack. */
enum {
    DEVICE_CPU = 1,
    DEVICE_CUDA = 2,
    DEVICE_CUDA_HOST = 3,
    DEVICE_CUDA_MANAGED = 13,
    CODE_UINT = 1
};

static const struct {
    uint8_t code, bits;
} codes[F8_DTYPE_COUNT] = {
    [F8_F32] = {2, 32},  [F8_BF16] = {4, 16}, [F8_F16] = {2, 16},
    [F8_I32] = {0, 32},  [F8_BOOL] = {6, 8},  [F8_E4M3] = {10, 8},
    [F8_E5M2] = {12, 8}, [F8_E8M0] = {14, 8}, [F8_I64] = {0, 64},
};

enum { DEVICE_ALIGN = 16 }; /* bytes, for a GPU's memory that is used in place
                               (runtime/cuda/exec.h) */

/* ---- messages ---- */

typedef struct call {
    fp8c_program *p;
    const f8_plan_func *func; /* NULL: the tensor is for a variable */
    f8_diag *diag;
    f8_call_bind *bind; /* NULL: every port is the caller's */
} call;

/* A port that carries no variable, with the tensor given for it. */
typedef f8_given given;

static const char *const sides[] = {[FP8C_INPUT] = "input", [FP8C_OUTPUT] = "output"};

static f8_status wrong(const call *c, const given *g, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static f8_status wrong(const call *c, const given *g, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    f8_vformat(text, sizeof text, format, args);
    va_end(args);
    return c->func ? f8_fail(c->diag, F8_ERR_INPUT, F8_NOWHERE, "%s '%s' of '%s': %s",
                             sides[g->side], g->port->name, c->func->name, text)
                   : f8_fail(c->diag, F8_ERR_INPUT, F8_NOWHERE, "variable '%s': %s", g->port->name,
                             text);
}

/* What the tensor is for. */
static const char *taker(const call *c)
{
    return c->func ? "port" : "variable";
}

/* "[2, 3]" */
static const char *list_text(const int64_t *value, int32_t n, char *to, size_t size)
{
    size_t used = (size_t)snprintf(to, size, "[");
    for (int32_t i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(to + used, size - used, "%s%" PRId64, i ? ", " : "", value[i]);
    if (used < size)
        snprintf(to + used, size - used, "]");
    return to;
}

/* ---- one tensor ---- */

static bool is_dtype(const fp8c_tensor_view *v, f8_dtype dtype)
{
    const bool same =
        v->dtype.code == codes[dtype].code || (dtype == F8_BOOL && v->dtype.code == CODE_UINT);
    return same && v->dtype.bits == codes[dtype].bits && v->dtype.lanes == 1;
}

static f8_status check_dtype(const call *c, const given *g)
{
    const fp8c_tensor_view *v = g->view;
    const f8_dtype want = g->port->type.dtype;
    if (is_dtype(v, want))
        return F8_OK;
    for (int d = 0; d < F8_DTYPE_COUNT; d++)
        if (is_dtype(v, (f8_dtype)d))
            return wrong(c, g, "it is of %s, and the %s takes %s", f8_dtype_name((f8_dtype)d),
                         taker(c), f8_dtype_name(want));
    return wrong(c, g,
                 "its dtype is code %d of %d bits and %d lanes, and the %s takes %s: code %d of %d "
                 "bits, one lane",
                 v->dtype.code, v->dtype.bits, v->dtype.lanes, taker(c), f8_dtype_name(want),
                 codes[want].code, codes[want].bits);
}

static f8_status check_shape(const call *c, const given *g)
{
    const f8_type *want = &g->port->type;
    const fp8c_tensor_view *v = g->view;
    char here[128], there[128];
    if (v->ndim > 0 && !v->shape)
        return wrong(c, g, "its shape is missing");
    bool same = v->ndim == want->rank;
    for (int32_t i = 0; same && i < v->ndim; i++)
        same = v->shape[i] == want->dim[i];
    if (same)
        return F8_OK;
    if (v->ndim < 0 || v->ndim > 8)
        return wrong(c, g, "it has %" PRId32 " axes, and the %s's shape is %s", v->ndim, taker(c),
                     list_text(want->dim, want->rank, here, sizeof here));
    return wrong(c, g, "its shape is %s, and the %s takes %s",
                 list_text(v->shape, v->ndim, there, sizeof there), taker(c),
                 list_text(want->dim, want->rank, here, sizeof here));
}

/* Write the strides of a contiguous tensor, in elements. */
static void contiguous(const f8_type *t, int64_t stride[F8_MAX_RANK])
{
    int64_t n = 1;
    for (int32_t i = t->rank; i-- > 0; n *= t->dim[i])
        stride[i] = n;
}

/* Check the strides, once the shape is known to be the port's. */
static f8_status check_strides(const call *c, const given *g)
{
    const f8_type *t = &g->port->type;
    int64_t want[F8_MAX_RANK];
    char here[160], there[160];
    bool same = true;
    if (!g->view->strides)
        return F8_OK;
    contiguous(t, want);
    for (int32_t i = 0; i < t->rank; i++)
        same &= t->dim[i] == 1 || g->view->strides[i] == want[i];
    return same ? F8_OK
                : wrong(c, g, "its strides are %s, and a contiguous tensor has %s",
                        list_text(g->view->strides, t->rank, there, sizeof there),
                        list_text(want, t->rank, here, sizeof here));
}

static uint8_t *address(const fp8c_tensor_view *v)
{
    return (uint8_t *)v->data + v->byte_offset;
}

static f8_status check_host(const call *c, const given *g)
{
    const int32_t type = g->view->device.type;
    if (type == DEVICE_CPU || type == DEVICE_CUDA_HOST || type == DEVICE_CUDA_MANAGED)
        return F8_OK;
    return wrong(c, g, "it is on device %" PRId32 ":%" PRId32 "%s, and the program runs on the CPU",
                 type, g->view->device.id, type == DEVICE_CUDA ? " (CUDA)" : "");
}

/* *on_device: the tensor is in device memory, and used in place. */
static f8_status check_cuda(const call *c, const given *g, bool *on_device)
{
    f8_cuda_exec *x = c->p->now->instance.cuda;
    const int32_t type = g->view->device.type, id = g->view->device.id;
    F8_TRY(f8_cuda_exec_is_device(x, address(g->view), on_device, c->diag));
    if (type == DEVICE_CPU || type == DEVICE_CUDA_HOST)
        return F8_OK;
    if (type != DEVICE_CUDA && type != DEVICE_CUDA_MANAGED)
        return wrong(c, g,
                     "it is on device %" PRId32 ":%" PRId32
                     ", and the program runs on a GPU (CUDA %d)",
                     type, id, f8_cuda_exec_ordinal(x));
    if (type == DEVICE_CUDA && id != f8_cuda_exec_ordinal(x))
        return wrong(c, g, "it is on GPU %" PRId32 ", and the program runs on GPU %d", id,
                     f8_cuda_exec_ordinal(x));
    return *on_device ? F8_OK : wrong(c, g, "the driver knows of no GPU memory at its address");
}

static f8_status check_memory(const call *c, const given *g)
{
    const size_t element = f8_dtype_size(g->port->type.dtype);
    bool on_device = false;
    if (!g->view->data)
        return wrong(c, g, "it has no data");
    if (g->view->byte_offset > UINTPTR_MAX - (uintptr_t)g->view->data)
        return wrong(c, g, "its byte_offset, %" PRIu64 ", leads beyond all memory",
                     g->view->byte_offset);
    F8_TRY(c->p->now->instance.cuda ? check_cuda(c, g, &on_device) : check_host(c, g));
    if (c->p->now->instance.cuda && !on_device && !c->func)
        return wrong(c, g, "it is in host memory, and the program's variables are in a GPU's");
    if (c->p->now->instance.cuda && !on_device && f8_is_external(c->p, g->port->name))
        return wrong(c, g,
                     "it is in host memory, and the port is external: it has no device memory "
                     "of its own to copy to");
    if (on_device && (uintptr_t)address(g->view) % DEVICE_ALIGN)
        return wrong(c, g, "its address is no multiple of %d, which a GPU's memory needs",
                     DEVICE_ALIGN);
    if ((uintptr_t)address(g->view) % element)
        return wrong(c, g, "its address is no multiple of %zu, the size of its elements", element);
    return F8_OK;
}

static f8_status check_tensor(const call *c, const given *g)
{
    if (!g->view)
        return wrong(c, g, "no tensor is given (NULL)");
    F8_TRY(check_dtype(c, g));
    F8_TRY(check_shape(c, g));
    F8_TRY(check_strides(c, g));
    return check_memory(c, g);
}

f8_status f8_tensor_check_variable(fp8c_program *p, uint32_t variable, const fp8c_tensor_view *view,
                                   void **at, f8_diag *diag)
{
    const f8_plan_var *v = &p->now->plan.var[variable];
    const f8_plan_port as_port = {.name = v->name, .type = v->type, .var = -1};
    const call c = {p, NULL, diag, NULL};
    const given g = {.port = &as_port, .index = variable, .view = view};
    F8_TRY(check_tensor(&c, &g));
    *at = address(view);
    return F8_OK;
}

/* ---- all of them ---- */

static bool overlap(const given *a, const void *b, const f8_type *type)
{
    const uintptr_t at = (uintptr_t)address(a->view), bt = (uintptr_t)b;
    return at < bt + (size_t)f8_type_bytes(type) && bt < at + (size_t)f8_type_bytes(&a->port->type);
}

static f8_status check_output(const call *c, const given *g, const given *before, size_t n)
{
    const f8_plan *plan = &c->p->now->plan;
    for (size_t i = 0; i < n; i++)
        if (overlap(g, address(before[i].view), &before[i].port->type))
            return wrong(c, g, "its memory overlaps that of %s '%s'", sides[before[i].side],
                         before[i].port->name);
    const int v = f8_variable_overlaps(c->p, address(g->view), f8_type_bytes(&g->port->type));
    return v < 0
               ? F8_OK
               : wrong(c, g, "its memory overlaps that of variable '%s'", plan->var[v].name);
}

/* Whether the caller gives a tensor for this port. */
static bool is_callers(const call *c, const f8_plan_port *port)
{
    return port->var < 0 && !(c->bind && c->bind->is_own(port));
}

static f8_status wrong_number(const call *c, fp8c_side side, const fp8c_tensor_view *const *view,
                              size_t n)
{
    uint32_t n_ports;
    size_t wanted = 0, used = 0;
    char names[400] = "";
    const f8_plan_port *port = f8_plan_ports(c->func, side, &n_ports);
    if (n && !view)
        return f8_fail(c->diag, F8_ERR_INPUT, F8_NOWHERE, "'%s': the %ss are missing (NULL)",
                       c->func->name, sides[side]);
    for (uint32_t i = 0; i < n_ports; i++) {
        if (!is_callers(c, &port[i]))
            continue;
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s'%s'",
                                     wanted ? ", " : "", port[i].name);
        wanted++;
    }
    return f8_fail(c->diag, F8_ERR_INPUT, F8_NOWHERE,
                   "'%s' has %zu %ss of the caller's (%s): %zu were given", c->func->name, wanted,
                   sides[side], names, n);
}

/* Pair the ports of a side with the given tensors; *n_given grows by their number. Ports of saved
 * values are left out if the call has a handle for them. */
static f8_status pair(const call *c, fp8c_side side, const fp8c_tensor_view *const *view, size_t n,
                      given *to, size_t *n_given)
{
    uint32_t n_ports;
    size_t wanted = 0;
    const f8_plan_port *port = f8_plan_ports(c->func, side, &n_ports);
    for (uint32_t i = 0; i < n_ports; i++) {
        if (!is_callers(c, &port[i]))
            continue;
        if (wanted < n && view)
            to[(*n_given)++] = (given){&port[i], i, side, view[wanted]};
        wanted++;
    }
    return n == wanted && (view || n == 0) ? F8_OK : wrong_number(c, side, view, n);
}

static f8_status check_all(const call *c, const given *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        F8_TRY(check_tensor(c, &all[i]));
    for (size_t i = 0; i < n; i++)
        if (all[i].side == FP8C_OUTPUT)
            F8_TRY(check_output(c, &all[i], all, i));
    return F8_OK;
}

static f8_status bind_all(const call *c, int function, const given *all, size_t n)
{
    f8_instance *instance = &c->p->now->instance;
    for (size_t i = 0; i < n; i++) {
        void *at = address(all[i].view);
        if (instance->kind->port(instance, (uint32_t)function, all[i].side, all[i].index) != at)
            F8_TRY(instance->kind->bind(instance, (uint32_t)function, all[i].side, all[i].index, at,
                                        c->diag));
    }
    return F8_OK;
}

/* Room for n tensors, kept from call to call so that a step allocates nothing. */
static f8_status make_room(fp8c_program *p, size_t n, f8_diag *diag)
{
    if (n <= p->given_room)
        return F8_OK;
    given *list = F8_NEW_ARRAY(&p->arena, given, n);
    if (!list) {
        const f8_status status = f8_arena_status(&p->arena, diag);
        p->arena.failed = 0; /* only this call needed it, so the program goes on */
        return status;
    }
    p->given = list;
    p->given_room = n;
    return F8_OK;
}

static f8_status call_now(fp8c_program *p, int function, const fp8c_tensor_view *const *inputs,
                          size_t n_inputs, const fp8c_tensor_view *const *outputs,
                          size_t n_outputs, f8_call_bind *bind, f8_diag *diag)
{
    const call c = {p, &p->now->plan.func[function], diag, bind};
    size_t n = 0;
    F8_TRY(make_room(p, (size_t)c.func->n_in + c.func->n_out, diag));
    F8_TRY(pair(&c, FP8C_INPUT, inputs, n_inputs, p->given, &n));
    F8_TRY(pair(&c, FP8C_OUTPUT, outputs, n_outputs, p->given, &n));
    F8_TRY(check_all(&c, p->given, n));
    if (bind)
        F8_TRY(bind->bind(bind, p, function, diag));
    F8_TRY(bind_all(&c, function, p->given, n));
    F8_TRY(f8_program_meet(p, function, diag));
    uint32_t form;
    F8_TRY(f8_program_form(p, function, &form, diag));
    return f8_codes_run(p, form, diag);
}

f8_status f8_program_call(fp8c_program *p, int function, const fp8c_tensor_view *const *inputs,
                          size_t n_inputs, const fp8c_tensor_view *const *outputs, size_t n_outputs,
                          f8_call_bind *bind, f8_diag *diag)
{
    f8_variant *before = p->now;
    if (!bind || bind->fits)
        F8_TRY(f8_bounds_of_shapes(p, (uint32_t)function, inputs, n_inputs, diag));
    const f8_status status =
        call_now(p, function, inputs, n_inputs, outputs, n_outputs, bind, diag);
    if (status != F8_OK)
        p->now = before;
    return status;
}

fp8c_status fp8c_program_call(fp8c_program *p, int function, const fp8c_tensor_view *const *inputs,
                              size_t n_inputs, const fp8c_tensor_view *const *outputs,
                              size_t n_outputs)
{
    f8_diag diag = {0};
    f8_status status = f8_program_can_run(p, function, &diag);
    if (status == F8_OK)
        f8_program_own_ports(p, function);
    if (status == F8_OK)
        status = f8_program_call(p, function, inputs, n_inputs, outputs, n_outputs, NULL, &diag);
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_fit(fp8c_program *p, int function, const fp8c_tensor_view *const *inputs,
                             size_t n_inputs)
{
    f8_diag diag = {0};
    const f8_status status =
        function >= 0 && (uint32_t)function < p->now->plan.n_funcs
            ? f8_bounds_of_shapes(p, (uint32_t)function, inputs, n_inputs, &diag)
            : f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no function %d", function);
    return f8_api_result(p->ctx, &diag, status);
}

/* ---- views of a program's tensors ---- */

/* The strides of contiguous tensors of t's shape, also for rank 0: DLPack 1.2 demands them. NULL:
 * out of memory. */
static int64_t *strides_of(fp8c_program *p, const f8_type *t, f8_diag *diag)
{
    f8_strides want = {0};
    contiguous(t, want.axis);
    for (f8_strides *s = p->strides; s; s = s->next)
        if (!memcmp(s->axis, want.axis, sizeof s->axis))
            return s->axis;
    f8_strides *s = F8_NEW(&p->arena, f8_strides);
    if (!s) {
        f8_arena_status(&p->arena, diag);
        p->arena.failed = 0; /* only the view needed it, so the program goes on */
        return NULL;
    }
    memcpy(s->axis, want.axis, sizeof s->axis);
    s->next = p->strides;
    p->strides = s;
    return s->axis;
}

/* `on_device`: `data` is a device address on the program's GPU. */
static fp8c_tensor_view view_of(const fp8c_program *p, const f8_type *t, int64_t *strides,
                                void *data, bool on_device)
{
    fp8c_tensor_view v = {
        .data = data, .ndim = t->rank, .shape = (int64_t *)t->dim, .strides = strides};
    v.device.type = on_device ? DEVICE_CUDA : DEVICE_CPU;
    v.device.id = on_device ? f8_cuda_exec_ordinal(p->now->instance.cuda) : 0;
    v.dtype.code = codes[t->dtype].code;
    v.dtype.bits = codes[t->dtype].bits;
    v.dtype.lanes = 1;
    return v;
}

/* The caller gets a variable's memory, for as long as the program lives. */
static f8_status lend(fp8c_program *p, uint32_t variable, f8_diag *diag)
{
    f8_codes_lend(p, variable);
    return f8_variable_lend(p, variable, diag);
}

fp8c_status fp8c_program_port_view(fp8c_program *p, int function, fp8c_side side, int index,
                                   fp8c_tensor_view *out)
{
    f8_diag diag = {0};
    f8_instance *instance = &p->now->instance;
    const f8_plan *plan = &p->now->plan;
    uint32_t n = 0;
    const bool is_side = side == FP8C_INPUT || side == FP8C_OUTPUT;
    const f8_plan_port *port = function >= 0 && (uint32_t)function < plan->n_funcs && is_side
                                   ? f8_plan_ports(&plan->func[function], side, &n)
                                   : NULL;
    f8_status status = f8_program_has_memory(p, &diag);
    bool on_device = false;
    if (status == F8_OK && (index < 0 || (uint32_t)index >= n))
        status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "there is no such port");
    if (status == F8_OK)
        f8_program_own_ports(p, function);
    void *at = status == F8_OK
                   ? instance->kind->port(instance, (uint32_t)function, side, (uint32_t)index)
                   : NULL;
    if (status == F8_OK && !at && f8_type_bytes(&port[index].type))
        status = port[index].var >= 0
                     ? f8_unbound_variable(plan->var[port[index].var].name, &diag)
                     : f8_unbound_port(side == FP8C_OUTPUT, port[index].name,
                                       plan->func[function].name, &diag);
    if (status == F8_OK && port[index].var >= 0)
        status = lend(p, (uint32_t)port[index].var, &diag);
    if (status == F8_OK && instance->cuda)
        status = f8_cuda_exec_is_device(instance->cuda, at, &on_device, &diag);
    int64_t *strides = status == F8_OK ? strides_of(p, &port[index].type, &diag) : NULL;
    if (!strides)
        return f8_api_result(p->ctx, &diag, diag.status);
    *out = view_of(p, &port[index].type, strides, at, on_device);
    return FP8C_OK;
}

fp8c_status fp8c_program_variable_view(fp8c_program *p, int variable, fp8c_tensor_view *out)
{
    f8_diag diag = {0};
    f8_instance *instance = &p->now->instance;
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK && (variable < 0 || (uint32_t)variable >= p->now->plan.n_vars))
        status =
            f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no variable %d", variable);
    void *at = status == F8_OK ? f8_variable_memory(p, (uint32_t)variable) : NULL;
    if (status == F8_OK && !at && f8_type_bytes(&p->now->plan.var[variable].type))
        status = f8_unbound_variable(p->now->plan.var[variable].name, &diag);
    if (status == F8_OK)
        status = lend(p, (uint32_t)variable, &diag);
    const f8_type *type = status == F8_OK ? &p->now->plan.var[variable].type : NULL;
    int64_t *strides = type ? strides_of(p, type, &diag) : NULL;
    if (!strides)
        return f8_api_result(p->ctx, &diag, diag.status);
    *out = view_of(p, type, strides, at, instance->cuda != NULL);
    return FP8C_OK;
}
