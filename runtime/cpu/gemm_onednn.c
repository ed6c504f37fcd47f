/* Tiles by oneDNN: loading it, holding it to one thread, sgemm and matmul. See gemm_onednn.h.
 *
 * matmul takes its scratchpad from us; what is left of allocation in its run is the small argument
 * map inside dnnl_primitive_execute, which oneDNN 2 cannot avoid. */
#include "runtime/cpu/gemm_onednn.h"

#include "runtime/base/dynlib.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#define ONEDNN_SYMBOLS(X)                      \
    X(dnnl_version)                            \
    X(dnnl_get_effective_cpu_isa)              \
    X(dnnl_engine_create)                      \
    X(dnnl_engine_destroy)                     \
    X(dnnl_stream_create)                      \
    X(dnnl_stream_destroy)                     \
    X(dnnl_sgemm)                              \
    X(dnnl_memory_desc_init_by_strides)        \
    X(dnnl_memory_desc_init_by_tag)            \
    X(dnnl_memory_desc_get_size)               \
    X(dnnl_memory_create)                      \
    X(dnnl_memory_destroy)                     \
    X(dnnl_memory_set_data_handle)             \
    X(dnnl_matmul_desc_init)                   \
    X(dnnl_primitive_attr_create)              \
    X(dnnl_primitive_attr_destroy)             \
    X(dnnl_primitive_attr_set_scratchpad_mode) \
    X(dnnl_primitive_desc_create)              \
    X(dnnl_primitive_desc_destroy)             \
    X(dnnl_primitive_desc_query)               \
    X(dnnl_primitive_desc_query_md)            \
    X(dnnl_primitive_create)                   \
    X(dnnl_primitive_destroy)                  \
    X(dnnl_primitive_execute)

typedef struct onednn_api {
    ONEDNN_SYMBOLS(F8_DYNLIB_FIELD)
} onednn_api;

static const char *const onednn_names[] = {ONEDNN_SYMBOLS(F8_DYNLIB_NAME)};
static const char *const onednn_files[] = {"libdnnl.so.2", NULL};

struct f8_onednn {
    f8_allocator allocator;
    f8_dynlib lib;
    onednn_api api;
    dnnl_engine_t engine;
    f8_openmp openmp;
    bool moves_stack; /* sgemm does: see gemm_onednn.h */
    bool warm;        /* sgemm has its kernels */
};

typedef struct thread_state {
    dnnl_stream_t stream;
    dnnl_memory_t a, b, t, scratch;
} thread_state;

struct f8_onednn_tile {
    f8_onednn *dnn;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    size_t scratch; /* bytes */
    int n_threads;
    thread_state thread[];
};

/* ---- the library ---- */

static f8_status find_openmp(f8_onednn *dnn, f8_diag *diag)
{
    unsigned runtime = dnn->api.dnnl_version()->cpu_runtime;
    if (runtime != DNNL_RUNTIME_OMP) {
        if (runtime == DNNL_RUNTIME_SEQ || runtime == DNNL_RUNTIME_THREADPOOL)
            return F8_OK; /* single-threaded unless a stream brings a pool */
        return f8_fail(
            diag, F8_ERR_LIBRARY, F8_NOWHERE,
            "%s was built for a threading runtime (%u) that fp8c can't hold to one thread; "
            "an OpenMP or sequential build is needed",
            dnn->lib.name, runtime);
    }
    dnn->openmp = f8_openmp_find(&dnn->lib);
    if (!dnn->openmp.n)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                       "%s uses OpenMP, but omp_set_num_threads was found nowhere", dnn->lib.name);
    return F8_OK;
}

static f8_status status_of(dnnl_status_t status)
{
    return status == dnnl_success         ? F8_OK
           : status == dnnl_out_of_memory ? F8_ERR_MEMORY
                                          : F8_ERR_LIBRARY;
}

static f8_status open_library(f8_onednn *dnn, f8_diag *diag)
{
    F8_TRY(f8_dynlib_open("oneDNN 2", onednn_files, &dnn->lib, diag));
    F8_TRY(f8_dynlib_symbols(&dnn->lib, onednn_names, sizeof onednn_names / sizeof *onednn_names,
                             &dnn->api, diag));
    const dnnl_version_t *v = dnn->api.dnnl_version();
    if (v->major != 2 || v->minor < 5)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                       "%s is oneDNN %d.%d: version 2.5 or a later 2.x is needed", dnn->lib.name,
                       v->major, v->minor);
    F8_TRY(find_openmp(dnn, diag));
    dnnl_status_t status = dnn->api.dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
    if (status != dnnl_success)
        return f8_fail(diag, status_of(status), F8_NOWHERE, "oneDNN made no CPU engine (status %d)",
                       (int)status);
    return F8_OK;
}

/* dnnl_cpu_isa_t is a set of bits: an ISA includes those it extends. */
static bool has_isa(const f8_onednn *dnn, dnnl_cpu_isa_t isa)
{
    return (dnn->api.dnnl_get_effective_cpu_isa() & isa) == isa;
}

/* ---- one thread ---- */

f8_onednn_threads f8_onednn_enter(const f8_onednn *dnn)
{
    f8_onednn_threads threads;
    memset(&threads, 0, sizeof threads);
    if (dnn->moves_stack)
        f8_signals_hold(&threads.signals);
    threads.openmp = f8_openmp_enter(&dnn->openmp, 1);
    return threads;
}

void f8_onednn_leave(const f8_onednn *dnn, f8_onednn_threads threads)
{
    f8_openmp_leave(&dnn->openmp, threads.openmp, 1);
    if (dnn->moves_stack)
        f8_signals_release(&threads.signals);
}

/* ---- f32 ---- */

f8_status f8_onednn_sgemm(const f8_onednn *dnn, int64_t m, int64_t n, int64_t k, const float *a,
                          int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    dnnl_status_t status =
        dnn->api.dnnl_sgemm('N', 'N', m, n, k, 1.0f, a, lda, b, ldb, add ? 1.0f : 0.0f, c, ldc);
    return status_of(status);
}

f8_status f8_onednn_warm_up(f8_onednn *dnn, f8_diag *diag)
{
    if (dnn->warm)
        return F8_OK;
    enum { SIZE = 64 };
    static const float zeros[SIZE * SIZE];
    float c[SIZE * SIZE];
    const f8_status s =
        f8_onednn_sgemm(dnn, SIZE, SIZE, SIZE, zeros, SIZE, zeros, SIZE, false, c, SIZE);
    if (s != F8_OK)
        return f8_fail(diag, s, F8_NOWHERE, "oneDNN made no kernels for f32 (%s)",
                       s == F8_ERR_MEMORY ? "out of memory" : "it failed");
    dnn->warm = true;
    return F8_OK;
}

/* ---- the handle ---- */

f8_status f8_onednn_create(const f8_allocator *allocator, f8_onednn **out, f8_diag *diag)
{
    *out = NULL;
    f8_onednn *dnn = allocator->alloc(allocator->user, sizeof *dnn, _Alignof(f8_onednn));
    if (!dnn)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for oneDNN", sizeof *dnn);
    *dnn = (f8_onednn){.allocator = *allocator};
    f8_status status = open_library(dnn, diag);
    if (status != F8_OK) {
        f8_onednn_destroy(dnn);
        return status;
    }
    dnn->moves_stack = !has_isa(dnn, dnnl_cpu_isa_avx512_core);
    *out = dnn;
    return F8_OK;
}

void f8_onednn_destroy(f8_onednn *dnn)
{
    if (!dnn)
        return;
    if (dnn->engine)
        dnn->api.dnnl_engine_destroy(dnn->engine);
    f8_dynlib_close(&dnn->lib);
    f8_allocator al = dnn->allocator;
    al.free(al.user, dnn, sizeof *dnn);
}

int f8_onednn_version(const f8_onednn *dnn)
{
    const dnnl_version_t *v = dnn->api.dnnl_version();
    return v->major * 10000 + v->minor * 100 + v->patch;
}

bool f8_onednn_has_bf16(const f8_onednn *dnn)
{
    return has_isa(dnn, dnnl_cpu_isa_avx512_core_bf16);
}

bool f8_onednn_has_amx_bf16(const f8_onednn *dnn)
{
    return has_isa(dnn, dnnl_cpu_isa_avx512_core_amx);
}

/* ---- bf16 tiles ---- */

typedef struct tile_descs {
    dnnl_memory_desc_t a, b, t;
} tile_descs;

static dnnl_status_t describe_tile(const onednn_api *api, const f8_onednn_shape *s, tile_descs *d)
{
    dnnl_dims_t da = {s->m, s->k}, db = {s->k, s->n}, dt = {s->m, s->n};
    dnnl_dims_t sa = {s->k, 1}, st = {s->n, 1};
    dnnl_status_t status = api->dnnl_memory_desc_init_by_strides(&d->a, 2, da, dnnl_bf16, sa);
    if (status == dnnl_success)
        status = api->dnnl_memory_desc_init_by_tag(&d->b, 2, db, dnnl_bf16, dnnl_BA16a64b2a);
    if (status == dnnl_success)
        status = api->dnnl_memory_desc_init_by_strides(&d->t, 2, dt, dnnl_f32, st);
    return status;
}

/* The descriptor, with our scratchpad. */
static dnnl_status_t create_pd(f8_onednn_tile *tile, const tile_descs *d)
{
    const onednn_api *api = &tile->dnn->api;
    dnnl_matmul_desc_t op;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = api->dnnl_matmul_desc_init(&op, &d->a, &d->b, NULL, &d->t);
    if (status == dnnl_success)
        status = api->dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = api->dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = api->dnnl_primitive_desc_create(&tile->pd, &op, attr, tile->dnn->engine, NULL);
    if (attr)
        api->dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t create_thread(f8_onednn_tile *tile, const tile_descs *d, thread_state *ts)
{
    const onednn_api *api = &tile->dnn->api;
    dnnl_engine_t engine = tile->dnn->engine;
    const dnnl_memory_desc_t *scratch =
        api->dnnl_primitive_desc_query_md(tile->pd, dnnl_query_scratchpad_md, 0);
    dnnl_status_t status = api->dnnl_stream_create(&ts->stream, engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = api->dnnl_memory_create(&ts->a, &d->a, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = api->dnnl_memory_create(&ts->b, &d->b, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = api->dnnl_memory_create(&ts->t, &d->t, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = api->dnnl_memory_create(&ts->scratch, scratch, engine, DNNL_MEMORY_NONE);
    return status;
}

static dnnl_status_t create_all(f8_onednn_tile *tile, const f8_onednn_shape *shape)
{
    const onednn_api *api = &tile->dnn->api;
    tile_descs d;
    dnnl_status_t status = describe_tile(api, shape, &d);
    if (status == dnnl_success)
        status = create_pd(tile, &d);
    if (status == dnnl_success)
        status = api->dnnl_primitive_create(&tile->primitive, tile->pd);
    if (status == dnnl_success)
        tile->scratch = api->dnnl_memory_desc_get_size(
            api->dnnl_primitive_desc_query_md(tile->pd, dnnl_query_scratchpad_md, 0));
    for (int i = 0; i < tile->n_threads && status == dnnl_success; i++)
        status = create_thread(tile, &d, &tile->thread[i]);
    return status;
}

f8_status f8_onednn_tile_create(f8_onednn *dnn, const f8_onednn_shape *shape, int n_threads,
                                f8_onednn_tile **out, f8_diag *diag)
{
    size_t size = sizeof(f8_onednn_tile) + sizeof(thread_state) * (size_t)n_threads;
    f8_onednn_tile *tile =
        dnn->allocator.alloc(dnn->allocator.user, size, _Alignof(f8_onednn_tile));
    *out = NULL;
    if (!tile)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for a GEMM tile", size);
    memset(tile, 0, size);
    tile->dnn = dnn;
    tile->n_threads = n_threads;
    dnnl_status_t status = create_all(tile, shape);
    if (status != dnnl_success) {
        f8_onednn_tile_destroy(tile);
        return f8_fail(diag, status_of(status), F8_NOWHERE,
                       "oneDNN refused a bf16 tile of %lld x %lld x %lld (status %d)",
                       (long long)shape->m, (long long)shape->n, (long long)shape->k, (int)status);
    }
    *out = tile;
    return F8_OK;
}

void f8_onednn_tile_destroy(f8_onednn_tile *tile)
{
    if (!tile)
        return;
    const onednn_api *api = &tile->dnn->api;
    for (int i = 0; i < tile->n_threads; i++) {
        thread_state *ts = &tile->thread[i];
        dnnl_memory_t memory[] = {ts->a, ts->b, ts->t, ts->scratch};
        for (size_t j = 0; j < sizeof memory / sizeof *memory; j++)
            if (memory[j])
                api->dnnl_memory_destroy(memory[j]);
        if (ts->stream)
            api->dnnl_stream_destroy(ts->stream);
    }
    if (tile->primitive)
        api->dnnl_primitive_destroy(tile->primitive);
    if (tile->pd)
        api->dnnl_primitive_desc_destroy(tile->pd);
    f8_allocator al = tile->dnn->allocator;
    al.free(al.user, tile, sizeof *tile + sizeof(thread_state) * (size_t)tile->n_threads);
}

size_t f8_onednn_tile_scratch(const f8_onednn_tile *tile)
{
    return tile->scratch;
}

const char *f8_onednn_tile_name(const f8_onednn_tile *tile)
{
    const char *name = NULL;
    tile->dnn->api.dnnl_primitive_desc_query(tile->pd, dnnl_query_impl_info_str, 0, &name);
    return name ? name : "?";
}

f8_status f8_onednn_tile_run(f8_onednn_tile *tile, int thread, const void *a, const void *b,
                             float *t, void *scratch)
{
    const onednn_api *api = &tile->dnn->api;
    thread_state *ts = &tile->thread[thread];
    /* oneDNN's handles are not const; it does not write sources. */
    dnnl_status_t status = api->dnnl_memory_set_data_handle(ts->a, (void *)(uintptr_t)a);
    if (status == dnnl_success)
        status = api->dnnl_memory_set_data_handle(ts->b, (void *)(uintptr_t)b);
    if (status == dnnl_success)
        status = api->dnnl_memory_set_data_handle(ts->t, t);
    if (status == dnnl_success)
        status = api->dnnl_memory_set_data_handle(ts->scratch, scratch);
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, ts->a},
        {DNNL_ARG_WEIGHTS, ts->b},
        {DNNL_ARG_DST, ts->t},
        {DNNL_ARG_SCRATCHPAD, ts->scratch},
    };
    if (status == dnnl_success)
        status = api->dnnl_primitive_execute(tile->primitive, ts->stream,
                                             (int)(sizeof args / sizeof *args), args);
    return status_of(status);
}
