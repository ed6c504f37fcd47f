/* Handles: memory for what one forward saves for its backward. See fp8c.h. */
#include <stddef.h>
#include <string.h>

#include "frontend/program.h"

/* Pairs of functions, by the bits of fp8c_forward. */
enum { PAIRS = 4 };

struct fp8c_saved {
    f8_dependent dependent; /* first */
    f8_call_bind call;
    fp8c_context *ctx;
    fp8c_program *program; /* NULL: it was destroyed */
    f8_block memory;
    int function[PAIRS][2]; /* [pair][backward]; without first pairs they are the others */
    bool waits;             /* a forward for its backward */
    int pair;               /* of that forward: bits of fp8c_forward */
    f8_variant *variant;    /* of that forward */
};

/* ---- memory ---- */

enum { SAVED_ALIGN = 256 };

/* Bytes of a function's saved values, one after the other. */
static int64_t saved_bytes(const f8_plan_func *f)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < f->n_out; i++)
        if (f8_is_saved_port(&f->out[i]))
            bytes += f8_aligned(f8_type_bytes(&f->out[i].type), SAVED_ALIGN);
    return bytes;
}

/* The most that a forward of this variant saves. */
static int64_t variant_bytes(const f8_variant *v)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < v->plan.n_funcs; i++) {
        const int64_t bytes = saved_bytes(&v->plan.func[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static f8_instance *instance_of(const fp8c_program *p)
{
    return &p->first->instance; /* variants share what memory comes from */
}

/* No port of the program keeps the handle's memory. */
static void unbind(f8_dependent *dependent)
{
    const fp8c_saved *s = (fp8c_saved *)dependent;
    fp8c_program *p = s->program;
    f8_diag diag = {0};
    for (f8_variant *v = p->first; v; v = v->next)
        for (uint32_t f = 0; f < v->plan.n_funcs; f++)
            for (int side = 0; side < 2; side++) {
                uint32_t n;
                const f8_plan_port *port = f8_plan_ports(&v->plan.func[f], side, &n);
                for (uint32_t i = 0; i < n; i++) {
                    if (!f8_is_saved_port(&port[i]))
                        continue;
                    const uint64_t at =
                        (uintptr_t)v->instance.kind->port(&v->instance, f, side, i);
                    if (at >= s->memory.at && at < s->memory.at + (uint64_t)s->memory.bytes)
                        v->instance.kind->bind(&v->instance, f, side, i, NULL, &diag);
                }
            }
}

static f8_status hold(fp8c_saved *s, int64_t bytes, f8_diag *diag)
{
    f8_instance *instance = instance_of(s->program);
    f8_block fresh;
    if (bytes <= s->memory.bytes)
        return F8_OK;
    F8_TRY(instance->kind->alloc(instance, bytes, &fresh, diag));
    unbind(&s->dependent);
    instance->kind->free(instance, &s->memory);
    s->memory = fresh;
    return F8_OK;
}

/* Bind the ports of saved values to the handle's memory. They keep it until another handle's call,
 * or a call without one (f8_program_own_ports), so that a CUDA graph stays good. */
static f8_status bind_saved(fp8c_program *p, int function, uint64_t memory, f8_diag *diag)
{
    f8_instance *instance = &p->now->instance;
    for (int side = 0; side < 2; side++) {
        uint32_t n;
        const f8_plan_port *port = f8_plan_ports(&p->now->plan.func[function], side, &n);
        uint64_t at = memory;
        for (uint32_t i = 0; i < n; i++) {
            if (!f8_is_saved_port(&port[i]))
                continue;
            void *to = (void *)(uintptr_t)at;
            if (instance->kind->port(instance, (uint32_t)function, side, i) != to)
                F8_TRY(instance->kind->bind(instance, (uint32_t)function, side, i, to, diag));
            at += (uint64_t)f8_aligned(f8_type_bytes(&port[i].type), SAVED_ALIGN);
        }
    }
    return F8_OK;
}

static f8_status bind_call(f8_call_bind *call, fp8c_program *p, int function, f8_diag *diag)
{
    fp8c_saved *s = (fp8c_saved *)((char *)call - offsetof(fp8c_saved, call));
    if (!s->waits) /* a forward: its variant is known only now */
        F8_TRY(hold(s, variant_bytes(p->now), diag));
    p->lent |= 1ull << function;
    return bind_saved(p, function, s->memory.at, diag);
}

/* ---- life ---- */

void fp8c_saved_drop(fp8c_saved *s)
{
    if (!s->program || !s->waits)
        return;
    s->waits = false;
    s->program->in_flight--;
}

/* The program takes the memory back. */
static void leave(f8_dependent *dependent)
{
    fp8c_saved *s = (fp8c_saved *)dependent;
    f8_instance *instance = instance_of(s->program);
    fp8c_saved_drop(s);
    unbind(dependent);
    instance->kind->free(instance, &s->memory);
    s->program = NULL;
}

/* The functions of the pairs. They have the same numbers in every variant. -1: there is none. */
static void find_functions(fp8c_saved *s)
{
    static const char *const names[PAIRS][2] = {
        [0] = {"forward", "backward"},
        [FP8C_FORWARD_FIRST] = {"forward.first", "backward.first"},
        [FP8C_FORWARD_STATS] = {"forward.stats", "backward.stats"},
        [FP8C_FORWARD_FIRST | FP8C_FORWARD_STATS] = {"forward.first.stats",
                                                     "backward.first.stats"}};
    for (int pair = 0; pair < PAIRS; pair++)
        for (int backward = 0; backward < 2; backward++) {
            const int function = fp8c_program_function(s->program, names[pair][backward]);
            s->function[pair][backward] =
                function < 0 && pair & FP8C_FORWARD_FIRST
                    ? s->function[pair & ~FP8C_FORWARD_FIRST][backward]
                    : function;
        }
}

/* A pair that watches keeps its figures in the program's own memory, for fp8c_program_statistic. */
static bool is_saved_or_stats(const f8_plan_port *port)
{
    return f8_is_saved_port(port) || (port->var < 0 && !strcmp(port->name, F8_STATS));
}

/* The handle's next call is of one of this pair's functions. */
static void choose_pair(fp8c_saved *s, int pair)
{
    s->call.is_own = pair & FP8C_FORWARD_STATS ? is_saved_or_stats : f8_is_saved_port;
}

fp8c_status fp8c_saved_create(fp8c_program *p, fp8c_saved **out)
{
    f8_diag diag = {0};
    *out = NULL;
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK && fp8c_program_function(p, "forward") < 0)
        status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                         "the program has no 'forward': it was compiled without `pair`");
    fp8c_saved *s = status == F8_OK ? f8_api_new(p->ctx, sizeof *s, 16, &diag) : NULL;
    if (!s)
        return f8_api_result(p->ctx, &diag, diag.status);
    *s = (fp8c_saved){.dependent = {p->dependents, leave, unbind},
                      .call = {.bind = bind_call},
                      .ctx = p->ctx,
                      .program = p};
    find_functions(s);
    status = hold(s, variant_bytes(p->now), &diag);
    if (status != F8_OK) {
        f8_api_delete(p->ctx, s, sizeof *s);
        return f8_api_result(p->ctx, &diag, status);
    }
    p->dependents = &s->dependent;
    *out = s;
    return FP8C_OK;
}

void fp8c_saved_destroy(fp8c_saved *s)
{
    if (!s)
        return;
    if (s->program) {
        f8_dependent **link = &s->program->dependents;
        while (*link != &s->dependent)
            link = &(*link)->next;
        *link = s->dependent.next;
        leave(&s->dependent);
    }
    f8_api_delete(s->ctx, s, sizeof *s);
}

/* ---- calls ---- */

/* Whether the handle belongs to the program, and its forward is in flight or not, as the call
 * needs. */
static f8_status check_handle(const fp8c_program *p, const fp8c_saved *s, bool in_flight,
                              f8_diag *diag)
{
    if (s->program != p)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the handle is of another program%s: make one with fp8c_saved_create",
                       s->program ? "" : ", which was destroyed");
    if (in_flight && !s->waits)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the handle holds no forward: each backward needs its own forward before "
                       "it");
    if (!in_flight && s->waits)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the handle holds a forward whose backward has not run: use another handle, "
                       "or give that forward up with fp8c_saved_drop");
    return F8_OK;
}

/* A state that forward replaces has one value. So no second forward may run before the backward of
 * the first. */
static f8_status check_states(const fp8c_program *p, int function, f8_diag *diag)
{
    const f8_plan_func *f = &p->now->plan.func[function];
    for (uint32_t i = 0; p->in_flight && i < f->n_out; i++)
        if (f->out[i].var >= 0)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "'%s' replaces state '%s', so only one forward may wait for its "
                           "backward",
                           f->name, p->now->plan.var[f->out[i].var].name);
    return F8_OK;
}

static f8_status forward(fp8c_program *p, int pair, fp8c_saved *s,
                         const fp8c_tensor_view *const *inputs, size_t n_inputs,
                         const fp8c_tensor_view *const *outputs, size_t n_outputs, f8_diag *diag)
{
    F8_TRY(check_handle(p, s, false, diag));
    if (pair < 0 || pair >= PAIRS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "%d says of no forward which one: it is the sum of FP8C_FORWARD_FIRST and "
                       "FP8C_FORWARD_STATS, of one of them, or 0",
                       pair);
    const int function = s->function[pair][0];
    if (function < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program has no 'forward.stats': it was compiled without `stats`");
    F8_TRY(f8_program_can_run(p, function, diag));
    F8_TRY(check_states(p, function, diag));
    s->call.fits = true;
    choose_pair(s, pair);
    F8_TRY(f8_program_call(p, function, inputs, n_inputs, outputs, n_outputs, &s->call, diag));
    s->waits = true;
    s->pair = pair;
    s->variant = p->now;
    p->in_flight++;
    return F8_OK;
}

static f8_status backward(fp8c_program *p, fp8c_saved *s, const fp8c_tensor_view *const *inputs,
                          size_t n_inputs, const fp8c_tensor_view *const *outputs, size_t n_outputs,
                          f8_diag *diag)
{
    F8_TRY(check_handle(p, s, true, diag));
    f8_variant *before = p->now;
    p->now = s->variant;
    const int function = s->function[s->pair][1];
    s->call.fits = false;
    choose_pair(s, s->pair);
    f8_status status = f8_program_can_run(p, function, diag);
    if (status == F8_OK)
        status = f8_program_call(p, function, inputs, n_inputs, outputs, n_outputs, &s->call, diag);
    if (status == F8_OK)
        fp8c_saved_drop(s);
    else
        p->now = before;
    return status;
}

fp8c_status fp8c_program_forward(fp8c_program *p, int32_t which, fp8c_saved *saved,
                                 const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                 const fp8c_tensor_view *const *outputs, size_t n_outputs)
{
    f8_diag diag = {0};
    const f8_status status =
        forward(p, which, saved, inputs, n_inputs, outputs, n_outputs, &diag);
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_backward(fp8c_program *p, fp8c_saved *saved,
                                  const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                  const fp8c_tensor_view *const *outputs, size_t n_outputs)
{
    f8_diag diag = {0};
    const f8_status status = backward(p, saved, inputs, n_inputs, outputs, n_outputs, &diag);
    return f8_api_result(p->ctx, &diag, status);
}
