/* Contexts, and modules from text: see fp8c.h. */
#include "frontend/api.h"

#include <stdio.h>
#include <string.h>

#include "frontend/diag.h"
#include "frontend/parse.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "fp8c.h and ir/ disagree")
SAME(FP8C_OK, F8_OK);
SAME(FP8C_ERR_INPUT, F8_ERR_INPUT);
SAME(FP8C_ERR_UNSUPPORTED, F8_ERR_UNSUPPORTED);
SAME(FP8C_ERR_MEMORY, F8_ERR_MEMORY);
SAME(FP8C_ERR_IO, F8_ERR_IO);
SAME(FP8C_ERR_LIBRARY, F8_ERR_LIBRARY);
SAME(FP8C_ERR_INTERNAL, F8_ERR_INTERNAL);
SAME(FP8C_ERR_CANCELLED, F8_ERR_CANCELLED);
SAME(FP8C_F32, F8_F32);
SAME(FP8C_BF16, F8_BF16);
SAME(FP8C_F16, F8_F16);
SAME(FP8C_I32, F8_I32);
SAME(FP8C_BOOL, F8_BOOL);
SAME(FP8C_F8E4M3, F8_E4M3);
SAME(FP8C_F8E5M2, F8_E5M2);
SAME(FP8C_F8E8M0, F8_E8M0);
SAME(FP8C_MAX_RANK, F8_MAX_RANK);

/* ---- small shared pieces ---- */

f8_diag *f8_api_begin(fp8c_context *ctx)
{
    ctx->diag = (f8_diag){.status = F8_OK};
    return &ctx->diag;
}

fp8c_status f8_api_fail(fp8c_context *ctx, f8_status status, const char *text, size_t size)
{
    if (ctx->diag.status == F8_OK) /* a failure that left no words */
        f8_fail(&ctx->diag, status, F8_NOWHERE, "failed without a message (status %d)", (int)status);
    f8_diag_render(&ctx->diag, text, size, ctx->message, sizeof ctx->message);
    size_t n = strlen(ctx->message);
    while (n > 0 && ctx->message[n - 1] == '\n')
        ctx->message[--n] = 0;
    return (fp8c_status)status;
}

fp8c_status f8_api_done(fp8c_module *m, f8_status status)
{
    if (status == F8_OK)
        status = m->diag.status;
    if (status == F8_OK)
        return FP8C_OK;
    m->ctx->diag = m->diag;
    return f8_api_fail(m->ctx, status, m->text, m->text_size);
}

/* A rank or dtype there is none of becomes one that every check of types refuses. */
f8_type f8_api_type_in(const fp8c_type *t)
{
    const bool valid = t->rank >= 0 && t->rank <= F8_MAX_RANK && (unsigned)t->dtype < F8_DTYPE_COUNT;
    if (!valid)
        return (f8_type){.dtype = F8_F32, .rank = 1, .dim = {-1}};
    f8_type out = {.dtype = (f8_dtype)t->dtype, .rank = (uint8_t)t->rank};
    for (int i = 0; i < t->rank && i < F8_MAX_RANK; i++)
        out.dim[i] = t->dim[i];
    return out;
}

fp8c_type f8_api_type_out(const f8_type *t)
{
    fp8c_type out = {.dtype = (fp8c_dtype)t->dtype, .rank = t->rank};
    for (int i = 0; i < t->rank; i++)
        out.dim[i] = t->dim[i];
    return out;
}

#define TEXT(x) #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *fp8c_version(void)
{
    return VERSION(FP8C_VERSION_MAJOR, FP8C_VERSION_MINOR, FP8C_VERSION_PATCH);
}

int32_t fp8c_version_number(void)
{
    return FP8C_VERSION_NUMBER;
}

const char *fp8c_dtype_name(fp8c_dtype dtype)
{
    return (unsigned)dtype < F8_DTYPE_COUNT ? f8_dtype_name((f8_dtype)dtype) : "?";
}

int64_t fp8c_type_bytes(const fp8c_type *type)
{
    const f8_type t = f8_api_type_in(type);
    const int64_t bytes = f8_type_bytes(&t);
    return bytes < 0 ? -1 : bytes;
}

/* ---- where the GPU's libraries lie ---- */

enum { N_PATHS = sizeof(f8_cuda_paths) / sizeof(const char *) };

/* The strings of `paths` in a row, to walk over. */
static const char **each_path(f8_cuda_paths *paths)
{
    _Static_assert(sizeof(f8_cuda_paths) == 5 * sizeof(const char *), "a path without an option");
    return (const char **)paths;
}

/* NULL: what the environment says; "": nothing. */
static void replace_path(const char **path, const char *option)
{
    if (option)
        *path = *option ? option : NULL;
}

static f8_cuda_paths read_paths(const fp8c_context_options *o)
{
    f8_cuda_paths paths = f8_cuda_paths_from_environment();
    replace_path(&paths.fp8c_cuda_path, o->gpu_library_path);
    replace_path(&paths.cuda_home, o->cuda_home);
    replace_path(&paths.cuda_path, o->cuda_path);
    replace_path(&paths.virtual_env, o->python_env);
    replace_path(&paths.home, o->home);
    return paths;
}

static size_t paths_size(const f8_cuda_paths *paths)
{
    f8_cuda_paths own = *paths;
    size_t n = 0;
    for (int i = 0; i < N_PATHS; i++)
        n += each_path(&own)[i] ? strlen(each_path(&own)[i]) + 1 : 0;
    return n;
}

/* Into the room behind the context: with a second allocation, its failure would have no context to keep
 * its message in. */
static void copy_paths(fp8c_context *ctx, const f8_cuda_paths *paths)
{
    char *to = (char *)(ctx + 1);
    ctx->paths = *paths;
    for (int i = 0; i < N_PATHS; i++) {
        const char **path = &each_path(&ctx->paths)[i];
        if (!*path)
            continue;
        const size_t n = strlen(*path) + 1;
        *path = memcpy(to, *path, n);
        to += n;
    }
}

/* ---- context ---- */

fp8c_status fp8c_context_create(const fp8c_context_options *options, fp8c_context **out)
{
    *out = NULL;
    fp8c_context_options own = {.struct_size = sizeof own};
    if (options) /* an older or newer caller's struct: take what both know */
        memcpy(&own, options, options->struct_size < sizeof own ? options->struct_size : sizeof own);
    if (!own.alloc != !own.free)
        return FP8C_ERR_INPUT;
    const f8_allocator allocator =
        own.alloc ? (f8_allocator){own.alloc, own.free, own.allocator_user} : f8_default_allocator();
    const f8_cuda_paths paths = read_paths(&own);
    const size_t size = sizeof(fp8c_context) + paths_size(&paths);
    fp8c_context *ctx = allocator.alloc(allocator.user, size, 16);
    if (!ctx)
        return FP8C_ERR_MEMORY;
    *ctx = (fp8c_context){.allocator = allocator, .size = size};
    copy_paths(ctx, &paths);
    *out = ctx;
    return FP8C_OK;
}

void fp8c_context_destroy(fp8c_context *ctx)
{
    if (!ctx)
        return;
    const f8_allocator allocator = ctx->allocator;
    for (f8_context_gpu *g = ctx->gpu, *next; g; g = next) {
        next = g->next;
        f8_cuda_destroy(g->cuda);
        allocator.free(allocator.user, g, sizeof *g);
    }
    allocator.free(allocator.user, ctx, ctx->size);
}

f8_status f8_api_gpu(fp8c_context *ctx, int ordinal, f8_cuda **out, f8_diag *diag)
{
    f8_context_gpu *g = ctx->gpu;
    while (g && g->ordinal != ordinal)
        g = g->next;
    if (!g) {
        g = ctx->allocator.alloc(ctx->allocator.user, sizeof *g, 16);
        if (!g)
            return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                           sizeof *g);
        *g = (f8_context_gpu){.ordinal = ordinal};
        const f8_status status = f8_cuda_create(&ctx->paths, &ctx->allocator, &g->cuda, diag);
        if (status != F8_OK) {
            ctx->allocator.free(ctx->allocator.user, g, sizeof *g);
            return status;
        }
        g->next = ctx->gpu;
        ctx->gpu = g;
    }
    *out = g->cuda;
    return F8_OK;
}

const char *fp8c_context_message(const fp8c_context *ctx)
{
    return ctx ? ctx->message : "no context";
}

/* ---- modules ---- */

static fp8c_module *new_module(fp8c_context *ctx)
{
    fp8c_module *m = ctx->allocator.alloc(ctx->allocator.user, sizeof *m, 16);
    if (!m) {
        f8_fail(&ctx->diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted", sizeof *m);
        f8_api_fail(ctx, F8_ERR_MEMORY, NULL, 0);
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
    return f8_parse(m->text, m->text_size, own_file, overrides, n_dims, &m->arena, &m->diag, &m->ir);
}

/* Hand a new module out, or destroy it with its message kept. */
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
    f8_api_begin(ctx);
    fp8c_module *m = new_module(ctx);
    return m ? give_module(m, parse_text(m, text, size, file, dims, n_dims), out) : FP8C_ERR_MEMORY;
}

fp8c_status fp8c_module_create(fp8c_context *ctx, const char *name, fp8c_module **out)
{
    *out = NULL;
    f8_api_begin(ctx);
    fp8c_module *m = new_module(ctx);
    if (!m)
        return FP8C_ERR_MEMORY;
    m->ir = f8_module_create(&m->arena, &m->diag, name, "");
    return give_module(m, m->ir ? F8_OK : F8_ERR_MEMORY, out);
}

void fp8c_module_destroy(fp8c_module *m)
{
    if (!m)
        return;
    f8_arena_end(&m->arena);
    const f8_allocator allocator = m->ctx->allocator;
    allocator.free(allocator.user, m, sizeof *m);
}

fp8c_status fp8c_module_print(const fp8c_module *m, fp8c_write_fn write, void *user)
{
    f8_api_begin(m->ctx);
    const f8_writer writer = {write, user};
    const f8_status status = f8_print_module(m->ir, &writer);
    if (status != F8_OK) {
        f8_fail(&m->ctx->diag, status, F8_NOWHERE, "the module could not be written");
        return f8_api_fail(m->ctx, status, NULL, 0);
    }
    return FP8C_OK;
}

int64_t fp8c_module_parameters(const fp8c_module *m, int64_t *elements)
{
    int64_t count = 0, total = 0;
    for (size_t i = 0; i < m->ir->n_vars; i++) {
        if (m->ir->var[i].kind != F8_VAR_PARAM)
            continue;
        count++;
        total += f8_type_elements(&m->ir->var[i].type);
    }
    if (elements)
        *elements = total;
    return count;
}

int64_t fp8c_module_accumulate(const fp8c_module *m)
{
    return m->ir->accumulate;
}

int64_t fp8c_module_optimizer_steps(const fp8c_module *m)
{
    return m->ir->optimizer.declared ? m->ir->optimizer.steps : 0;
}

int64_t fp8c_module_dim(const fp8c_module *m, const char *name)
{
    for (size_t i = 0; i < m->ir->n_dims; i++)
        if (!strcmp(m->ir->dim[i].name, name))
            return m->ir->dim[i].value;
    return -1;
}

const char *fp8c_module_name(const fp8c_module *m)
{
    return m->ir->name;
}
