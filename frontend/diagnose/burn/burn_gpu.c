/* The memory of a burn's ports on a GPU: see burn.h.
 *
 * A port's own buffer is host memory, which each run copies: the bus would limit the load, not the
 * GPU. So the ports get device memory, that of the variables of a program which is made for this
 * alone. Ports of one name share it: backward reads what forward saved. */
#include <inttypes.h>
#include <string.h>

#include "frontend/diagnose/burn/burn.h"

typedef struct port {
    int function; /* among the job's */
    fp8c_side side;
    int index;
    fp8c_port is;
} port;

/* The next port that carries no variable; false: there is none. */
static bool next_port(const f8_burn_job *j, port *p)
{
    for (p->index++; p->function < j->n_functions; p->index++) {
        if (fp8c_program_port(j->program, j->function[p->function], p->side, p->index, &p->is) !=
            FP8C_OK) {
            p->function += p->side == FP8C_OUTPUT;
            p->side = p->side == FP8C_INPUT ? FP8C_OUTPUT : FP8C_INPUT;
            p->index = -1;
        } else if (p->is.variable < 0) {
            return true;
        }
    }
    return false;
}

static const port before_first = {.index = -1};

/* Whether an earlier port has the name. */
static bool seen_before(const f8_burn_job *j, const port *p)
{
    port q = before_first;
    while (next_port(j, &q) &&
           (q.function != p->function || q.side != p->side || q.index != p->index))
        if (!strcmp(q.is.name, p->is.name))
            return true;
    return false;
}

/* A module with a parameter for each name. A parameter that no function reads gets no memory, so
 * one element of each is summed. */
static const char *memory_text(fp8c_burn *b, const f8_burn_job *j)
{
    const char *params = "", *sum = "%a";
    port p = before_first;
    while (params && sum && next_port(j, &p)) {
        if (seen_before(j, &p))
            continue;
        const int64_t n = (fp8c_type_bytes(&p.is.type) + 3) / 4;
        params = f8_arena_printf(&b->arena, "%sparam m.%s: f32[%" PRId64 "] zeros\n", params,
                                 p.is.name, n);
        sum = f8_arena_printf(&b->arena, "add(%s, slice(m.%s) {start = 0, stop = 1})", sum,
                              p.is.name);
    }
    return params && sum ? f8_arena_printf(&b->arena,
                                           "module memory\n%sfunc forward(%%a: f32[1]) -> (%%y: "
                                           "f32[1]) {\n  return %s\n}\n",
                                           params, sum)
                         : NULL;
}

static f8_status make_memory(fp8c_burn *b, f8_burn_job *j)
{
    fp8c_module *module;
    const char *text = memory_text(b, j);
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .target = b->options.target,
                                    .recipe = "f32",
                                    .inference = 1,
                                    .device = b->options.device};
    if (!text)
        return (f8_status)f8_api_result(b->ctx, &(f8_diag){.status = F8_ERR_MEMORY}, F8_ERR_MEMORY);
    fp8c_status status = fp8c_module_parse(b->ctx, text, strlen(text), "memory", NULL, 0, &module);
    if (status != FP8C_OK)
        return (f8_status)status;
    status = fp8c_compile(module, &o, &j->memory);
    fp8c_module_destroy(module);
    if (status == FP8C_OK)
        status = fp8c_program_initialize(j->memory, 1);
    return (f8_status)status;
}

static int variable_of(fp8c_burn *b, const f8_burn_job *j, const char *name)
{
    const char *full = f8_arena_printf(&b->arena, "m.%s", name);
    return full ? fp8c_program_find_variable(j->memory, full) : -1;
}

static f8_status bind_port(fp8c_burn *b, const f8_burn_job *j, const port *p)
{
    fp8c_tensor_view view;
    const int v = variable_of(b, j, p->is.name), f = j->function[p->function];
    const void *own = fp8c_program_buffer(j->program, f, p->side, p->index);
    if (v < 0 || !own)
        return F8_ERR_INTERNAL;
    if (p->side == FP8C_INPUT && !seen_before(j, p))
        F8_TRY((f8_status)fp8c_program_write(j->memory, v, own));
    F8_TRY((f8_status)fp8c_program_variable_view(j->memory, v, &view));
    return (f8_status)fp8c_program_bind(j->program, f, p->side, p->index,
                                        (char *)view.data + view.byte_offset);
}

f8_status f8_burn_to_gpu(fp8c_burn *b, f8_burn_job *j)
{
    port p = before_first;
    F8_TRY(make_memory(b, j));
    while (next_port(j, &p)) {
        F8_TRY(bind_port(b, j, &p));
        for (int i = 0; i < j->n && p.side == FP8C_OUTPUT; i++) {
            f8_burn_item *item = &b->item[j->first + i];
            if (item->function == p.function && item->port == p.index)
                item->variable = variable_of(b, j, p.is.name);
        }
    }
    return F8_OK;
}

/* ---- copies ---- */

fp8c_status f8_burn_fetch(const fp8c_burn *b, const f8_burn_job *j)
{
    fp8c_status status = FP8C_OK;
    for (int i = 0; i < j->n && j->memory && status == FP8C_OK; i++)
        status =
            fp8c_program_read(j->memory, b->item[j->first + i].variable, b->item[j->first + i].got);
    return status;
}

fp8c_status f8_burn_send(const fp8c_burn *b, const f8_burn_job *j)
{
    fp8c_status status = FP8C_OK;
    for (int i = 0; i < j->n && j->memory && status == FP8C_OK; i++)
        status = fp8c_program_write(j->memory, b->item[j->first + i].variable,
                                    b->item[j->first + i].got);
    return status;
}
