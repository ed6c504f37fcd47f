/* Modules: parsing and printing them, and their figures. See fp8c.h. builder.c builds them. */
#include <string.h>

#include "frontend/api.h"
#include "frontend/text/parse.h"

/* NULL: *status has the failure. */
static fp8c_module *new_module(fp8c_context *ctx, fp8c_status *status)
{
    f8_diag diag = {0};
    fp8c_module *m = f8_api_new(ctx, sizeof *m, 16, &diag);
    if (!m) {
        *status = f8_api_result(ctx, &diag, diag.status);
        return NULL;
    }
    *m = (fp8c_module){.ctx = ctx};
    f8_arena_init(&m->arena, &ctx->allocator);
    return m;
}

static f8_status parse_text(fp8c_module *m, const char *text, size_t size, const char *file,
                            const fp8c_dim *dims, size_t n_dims)
{
    f8_dim_override *overrides = F8_NEW_ARRAY(&m->arena, f8_dim_override, n_dims);
    char *own_file = f8_arena_strdup(&m->arena, file ? file : "<text>");
    m->text = f8_arena_strndup(&m->arena, text ? text : "", text ? size : 0);
    if (!overrides || !own_file || !m->text)
        return f8_arena_status(&m->arena, &m->diag);
    m->text_size = text ? size : 0;
    for (size_t i = 0; i < n_dims; i++)
        overrides[i] = (f8_dim_override){dims[i].name, dims[i].value};
    m->diag.file = own_file;
    return f8_parse(m->text, m->text_size, own_file, overrides, n_dims, &m->arena, &m->diag,
                    &m->ir);
}

/* Give a new module to the caller, or destroy it and keep its message. */
static fp8c_status give_module(fp8c_module *m, f8_status status, fp8c_module **out)
{
    const fp8c_status result = f8_api_done(m, status);
    if (result == FP8C_OK)
        *out = m;
    else
        fp8c_module_destroy(m);
    return result;
}

fp8c_status fp8c_module_parse(fp8c_context *ctx, const char *text, size_t size, const char *file,
                              const fp8c_dim *dims, size_t n_dims, fp8c_module **out)
{
    *out = NULL;
    fp8c_status status;
    fp8c_module *m = new_module(ctx, &status);
    return m ? give_module(m, parse_text(m, text, size, file, dims, n_dims), out) : status;
}

fp8c_status fp8c_module_create(fp8c_context *ctx, const char *name, fp8c_module **out)
{
    *out = NULL;
    fp8c_status status;
    fp8c_module *m = new_module(ctx, &status);
    if (!m)
        return status;
    m->ir = f8_module_create(&m->arena, &m->diag, name, "");
    return give_module(m, m->ir ? F8_OK : F8_ERR_MEMORY, out);
}

void fp8c_module_destroy(fp8c_module *m)
{
    if (!m)
        return;
    f8_arena_end(&m->arena);
    f8_api_delete(m->ctx, m, sizeof *m);
}

fp8c_status fp8c_module_print(const fp8c_module *m, fp8c_write_fn write, void *user)
{
    f8_diag diag = {0};
    const f8_writer writer = {write, user};
    const f8_status status = f8_print_module(m->ir, &writer);
    if (status == F8_OK)
        return FP8C_OK;
    f8_fail(&diag, status, F8_NOWHERE, "the module could not be written");
    return f8_api_result(m->ctx, &diag, status);
}

void fp8c_module_report(const fp8c_module *m, fp8c_module_info *out)
{
    const f8_optimizer *o = &m->ir->optimizer;
    fp8c_module_info own = {.struct_size = sizeof own,
                            .name = m->ir->name,
                            .accumulate = m->ir->accumulate,
                            .optimizer_steps = o->declared ? o->steps : 0,
                            .needs_steps = o->declared && o->steps < 1 && o->schedule &&
                                           strcmp(o->schedule, "constant") != 0};
    for (size_t i = 0; i < m->ir->n_vars; i++)
        if (m->ir->var[i].kind == F8_VAR_PARAM) {
            own.parameters++;
            own.elements += f8_type_elements(&m->ir->var[i].type);
        }
    f8_api_give(out, &own);
}

int64_t fp8c_module_dim(const fp8c_module *m, const char *name)
{
    for (size_t i = 0; i < m->ir->n_dims; i++)
        if (!strcmp(m->ir->dim[i].name, name))
            return m->ir->dim[i].value;
    return -1;
}
