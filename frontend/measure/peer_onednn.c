/* oneDNN's own matmul, with its own threads. Operands and result lie as they are given: weights in
 * a format of oneDNN's choice, reordered beforehand, would be less work than ours. */
#include <oneapi/dnnl/dnnl.h>

#include "frontend/measure/peer_internal.h"
#include "runtime/base/dynlib.h"

#define SYMBOLS(X)                                                                                 \
    X(dnnl_version)                                                                                \
    X(dnnl_get_effective_cpu_isa)                                                                  \
    X(dnnl_engine_create)                                                                          \
    X(dnnl_engine_destroy)                                                                         \
    X(dnnl_stream_create)                                                                          \
    X(dnnl_stream_destroy)                                                                         \
    X(dnnl_stream_wait)                                                                            \
    X(dnnl_memory_desc_init_by_strides)                                                            \
    X(dnnl_memory_create)                                                                          \
    X(dnnl_memory_destroy)                                                                         \
    X(dnnl_memory_set_data_handle)                                                                 \
    X(dnnl_matmul_desc_init)                                                                       \
    X(dnnl_post_ops_create)                                                                        \
    X(dnnl_post_ops_append_sum)                                                                    \
    X(dnnl_post_ops_destroy)                                                                       \
    X(dnnl_primitive_attr_create)                                                                  \
    X(dnnl_primitive_attr_set_post_ops)                                                            \
    X(dnnl_primitive_attr_destroy)                                                                 \
    X(dnnl_primitive_desc_create)                                                                  \
    X(dnnl_primitive_desc_destroy)                                                                 \
    X(dnnl_primitive_create)                                                                       \
    X(dnnl_primitive_destroy)                                                                      \
    X(dnnl_primitive_execute)

typedef struct dnnl_api {
    SYMBOLS(F8_DYNLIB_FIELD)
} dnnl_api;

static const char *const names[] = {SYMBOLS(F8_DYNLIB_NAME)};
static const char *const files[] = {"libdnnl.so.2", NULL};

typedef struct onednn {
    dnnl_api api;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} onednn;

static f8_status status_of(dnnl_status_t status)
{
    return status == dnnl_success         ? F8_OK
           : status == dnnl_out_of_memory ? F8_ERR_MEMORY
           : status == dnnl_unimplemented ? F8_ERR_UNSUPPORTED
                                          : F8_ERR_LIBRARY;
}

/* ---- a product ---- */

static dnnl_status_t describe(const dnnl_api *api, const f8_peer_product *p, f8_dtype dtype,
                              dnnl_memory_desc_t desc[3])
{
    const dnnl_data_type_t operand = dtype == F8_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t a = {p->m, p->k}, b = {p->k, p->n}, c = {p->m, p->n};
    dnnl_dims_t a_strides = {p->trans_a ? 1 : p->k, p->trans_a ? p->m : 1};
    dnnl_dims_t b_strides = {p->trans_b ? 1 : p->n, p->trans_b ? p->k : 1}, c_strides = {p->n, 1};
    dnnl_status_t status =
        api->dnnl_memory_desc_init_by_strides(&desc[0], 2, a, operand, a_strides);
    if (status == dnnl_success)
        status = api->dnnl_memory_desc_init_by_strides(&desc[1], 2, b, operand, b_strides);
    if (status == dnnl_success)
        status = api->dnnl_memory_desc_init_by_strides(&desc[2], 2, c, dnnl_f32, c_strides);
    return status;
}

/* *attr is NULL where there is nothing to say. */
static dnnl_status_t make_attr(const dnnl_api *api, bool accumulate, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t post = NULL;
    *attr = NULL;
    if (!accumulate)
        return dnnl_success;
    dnnl_status_t status = api->dnnl_primitive_attr_create(attr);
    if (status == dnnl_success)
        status = api->dnnl_post_ops_create(&post);
    if (status == dnnl_success)
        status = api->dnnl_post_ops_append_sum(post, 1.0f);
    if (status == dnnl_success)
        status = api->dnnl_primitive_attr_set_post_ops(*attr, post);
    if (post)
        api->dnnl_post_ops_destroy(post);
    return status;
}

static dnnl_status_t make_primitive(const onednn *dnn, const f8_peer_product *p,
                                    const dnnl_memory_desc_t desc[3], dnnl_primitive_t *out)
{
    const dnnl_api *api = &dnn->api;
    dnnl_matmul_desc_t op;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = make_attr(api, p->accumulate, &attr);
    if (status == dnnl_success)
        status = api->dnnl_matmul_desc_init(&op, &desc[0], &desc[1], NULL, &desc[2]);
    if (status == dnnl_success)
        status = api->dnnl_primitive_desc_create(&pd, &op, attr, dnn->engine, NULL);
    if (status == dnnl_success)
        status = api->dnnl_primitive_create(out, pd);
    if (pd)
        api->dnnl_primitive_desc_destroy(pd);
    if (attr)
        api->dnnl_primitive_attr_destroy(attr);
    return status;
}

static f8_status prepare(const f8_peer_library *library, f8_peer_gemm *gemm, f8_diag *diag)
{
    const onednn *dnn = library->state;
    const f8_peer_product *p = &gemm->product;
    dnnl_memory_desc_t desc[3];
    dnnl_primitive_t primitive = NULL;
    dnnl_status_t status = describe(&dnn->api, p, library->way[gemm->way].dtype, desc);
    if (status == dnnl_success)
        status = make_primitive(dnn, p, desc, &primitive);
    gemm->primitive = primitive;
    for (int i = 0; i < 3 && status == dnnl_success; i++) {
        dnnl_memory_t memory = NULL;
        status = dnn->api.dnnl_memory_create(&memory, &desc[i], dnn->engine, DNNL_MEMORY_NONE);
        gemm->memory[i] = memory;
    }
    if (status == dnnl_success)
        return F8_OK;
    return f8_fail(diag, status_of(status), F8_NOWHERE,
                   "oneDNN has no matmul of %lld x %lld x %lld in %s (status %d)", (long long)p->m,
                   (long long)p->n, (long long)p->k, f8_dtype_name(library->way[gemm->way].dtype),
                   (int)status);
}

static void release(f8_peer_gemm *gemm)
{
    const dnnl_api *api = &((const onednn *)gemm->library->state)->api;
    for (int i = 0; i < 3; i++)
        if (gemm->memory[i])
            api->dnnl_memory_destroy(gemm->memory[i]);
    if (gemm->primitive)
        api->dnnl_primitive_destroy(gemm->primitive);
}

static f8_status run(const f8_peer_gemm *gemm, const void *a, const void *b, float *c,
                     f8_diag *diag)
{
    const onednn *dnn = gemm->library->state;
    /* oneDNN's handles are not const; it does not write sources. */
    void *const data[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c};
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, gemm->memory[0]},
                                    {DNNL_ARG_WEIGHTS, gemm->memory[1]},
                                    {DNNL_ARG_DST, gemm->memory[2]}};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = dnn->api.dnnl_memory_set_data_handle(gemm->memory[i], data[i]);
    if (status == dnnl_success)
        status = dnn->api.dnnl_primitive_execute(gemm->primitive, dnn->stream, 3, args);
    if (status == dnnl_success)
        status = dnn->api.dnnl_stream_wait(dnn->stream);
    if (status == dnnl_success)
        return F8_OK;
    return f8_fail(diag, status_of(status), F8_NOWHERE, "oneDNN's matmul failed (status %d)",
                   (int)status);
}

/* ---- the library ---- */

/* The code it chose, by its own name. An ISA's bits include those of the ones that it extends. */
static const char *isa_name(int isa)
{
    static const struct {
        int isa;
        const char *name;
    } all[] = {
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_sse41, "sse41"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((isa & all[i].isa) == all[i].isa)
            return all[i].name;
    return "no known ISA";
}

static void close_library(f8_peer_library *library)
{
    const onednn *dnn = library->state;
    if (dnn->stream)
        dnn->api.dnnl_stream_destroy(dnn->stream);
    if (dnn->engine)
        dnn->api.dnnl_engine_destroy(dnn->engine);
    f8_dynlib_close(&library->file);
}

/* Whether there is a matmul of this dtype on this CPU: one is made. */
static bool has_matmul(const onednn *dnn, f8_dtype dtype)
{
    const f8_peer_product p = {.m = 64, .n = 64, .k = 64};
    dnnl_memory_desc_t desc[3];
    dnnl_primitive_t primitive = NULL;
    const bool made = describe(&dnn->api, &p, dtype, desc) == dnnl_success &&
                      make_primitive(dnn, &p, desc, &primitive) == dnnl_success;
    if (primitive)
        dnn->api.dnnl_primitive_destroy(primitive);
    return made;
}

static void find_ways(f8_peer_library *library)
{
    static const struct {
        const char *name;
        f8_dtype dtype;
    } ways[F8_PEER_WAYS] = {{"oneDNN matmul f32", F8_F32}, {"oneDNN matmul bf16", F8_BF16}};
    const f8_openmp_threads before = f8_openmp_enter(&library->openmp, library->threads);
    for (int i = 0; i < F8_PEER_WAYS; i++)
        if (has_matmul(library->state, ways[i].dtype)) {
            library->way[library->n_ways].name = ways[i].name;
            library->way[library->n_ways++].dtype = ways[i].dtype;
        }
    f8_openmp_leave(&library->openmp, before, library->threads);
}

static f8_status start(f8_peer_library *library, f8_arena *arena, f8_diag *diag)
{
    onednn *dnn = library->state;
    F8_TRY(f8_dynlib_symbols(&library->file, names, sizeof names / sizeof *names, &dnn->api, diag));
    const dnnl_version_t *v = dnn->api.dnnl_version();
    if (v->major != 2)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "oneDNN %d: 2 is needed", v->major);
    if (v->cpu_runtime != DNNL_RUNTIME_OMP && v->cpu_runtime != DNNL_RUNTIME_SEQ)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                       "oneDNN runs on threads (%u) whose number can't be set", v->cpu_runtime);
    const int isa = (int)dnn->api.dnnl_get_effective_cpu_isa();
    library->openmp = f8_openmp_find(&library->file);
    library->moves_stack = (isa & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core;
    if (dnn->api.dnnl_engine_create(&dnn->engine, dnnl_cpu, 0) != dnnl_success ||
        dnn->api.dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags) !=
            dnnl_success)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "oneDNN gives no CPU engine");
    library->about =
        f8_arena_printf(arena, "oneDNN %d.%d.%d (%s%s)", v->major, v->minor, v->patch,
                        isa_name(isa), v->cpu_runtime == DNNL_RUNTIME_SEQ ? ", one thread" : "");
    find_ways(library);
    return F8_OK;
}

f8_status f8_peer_open_onednn(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag)
{
    f8_diag absent = {0};
    const char *why;
    onednn *dnn = F8_NEW(search->arena, onednn);
    if (!dnn)
        return f8_arena_status(search->arena, diag);
    *out = (f8_peer_library){.threads = search->threads,
                             .state = dnn,
                             .prepare = prepare,
                             .run = run,
                             .release = release,
                             .close = close_library};
    f8_status status = f8_dynlib_search("oneDNN 2", files, search->folders, search->arena,
                                        &out->file, &why, &absent);
    if (status == F8_OK)
        status = start(out, search->arena, &absent);
    return f8_peer_is_absent(status, &absent, diag);
}
