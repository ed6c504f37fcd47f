/* See peer_onednn.h. The library is opened with dlopen, as ours does it. */
#include "bench/peer_onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/dynlib.h"

#define SYMBOLS(X)                      \
    X(dnnl_engine_create)               \
    X(dnnl_engine_destroy)              \
    X(dnnl_stream_create)               \
    X(dnnl_stream_destroy)              \
    X(dnnl_stream_wait)                 \
    X(dnnl_memory_desc_init_by_strides) \
    X(dnnl_memory_create)               \
    X(dnnl_memory_destroy)              \
    X(dnnl_matmul_desc_init)            \
    X(dnnl_post_ops_create)             \
    X(dnnl_post_ops_append_sum)         \
    X(dnnl_post_ops_destroy)            \
    X(dnnl_primitive_attr_create)       \
    X(dnnl_primitive_attr_set_post_ops) \
    X(dnnl_primitive_attr_destroy)      \
    X(dnnl_primitive_desc_create)       \
    X(dnnl_primitive_desc_destroy)      \
    X(dnnl_primitive_create)            \
    X(dnnl_primitive_destroy)           \
    X(dnnl_primitive_execute)           \
    X(dnnl_sgemm)

typedef struct dnnl_table {
    SYMBOLS(F8_DYNLIB_FIELD)
} dnnl_table;

static const char *const names[] = {SYMBOLS(F8_DYNLIB_NAME)};
static const char *const files[] = {"libdnnl.so.2", NULL};

struct peer_onednn {
    f8_dynlib library;
    dnnl_table dnnl;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

struct peer_gemm {
    peer_onednn *peer;
    peer_problem problem;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
};

f8_status peer_onednn_open(peer_onednn **out, int threads, f8_diag *diag)
{
    peer_onednn *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return F8_ERR_MEMORY;
    F8_TRY(f8_dynlib_open("oneDNN 2", files, &p->library, diag));
    F8_TRY(f8_dynlib_symbols(&p->library, names, sizeof names / sizeof *names, &p->dnnl, diag));
    void *symbol = f8_dynlib_find(&p->library, "omp_set_num_threads");
    if (!symbol)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "oneDNN was built without OpenMP");
    void (*set_threads)(int);
    memcpy(&set_threads, &symbol, sizeof symbol);
    set_threads(threads);
    if (p->dnnl.dnnl_engine_create(&p->engine, dnnl_cpu, 0) != dnnl_success ||
        p->dnnl.dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) !=
            dnnl_success)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "oneDNN gives no CPU engine");
    return F8_OK;
}

void peer_onednn_close(peer_onednn *p)
{
    if (!p)
        return;
    p->dnnl.dnnl_stream_destroy(p->stream);
    p->dnnl.dnnl_engine_destroy(p->engine);
    free(p);
}

f8_status peer_gemm_create(peer_onednn *p, const peer_problem *s, peer_gemm **out, f8_diag *diag)
{
    const dnnl_table *f = &p->dnnl;
    const int64_t lda = s->trans_a ? s->m : s->k, ldb = s->trans_b ? s->k : s->n;
    dnnl_dims_t da = {s->m, s->k}, db = {s->k, s->n}, dc = {s->m, s->n};
    dnnl_dims_t sa = {s->trans_a ? 1 : lda, s->trans_a ? lda : 1};
    dnnl_dims_t sb = {s->trans_b ? 1 : ldb, s->trans_b ? ldb : 1}, sc = {s->n, 1};
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t op;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    dnnl_primitive_desc_t pd;
    peer_gemm *g = calloc(1, sizeof *g);
    *out = g;
    if (!g)
        return F8_ERR_MEMORY;
    *g = (peer_gemm){.peer = p, .problem = *s};
    f->dnnl_memory_desc_init_by_strides(&a, 2, da, dnnl_f32, sa);
    f->dnnl_memory_desc_init_by_strides(&b, 2, db, dnnl_f32, sb);
    f->dnnl_memory_desc_init_by_strides(&c, 2, dc, dnnl_f32, sc);
    f->dnnl_matmul_desc_init(&op, &a, &b, NULL, &c);
    f->dnnl_primitive_attr_create(&attr);
    f->dnnl_post_ops_create(&post);
    if (s->accumulate)
        f->dnnl_post_ops_append_sum(post, 1.0f);
    f->dnnl_primitive_attr_set_post_ops(attr, post);
    f->dnnl_post_ops_destroy(post);
    const bool ok =
        f->dnnl_primitive_desc_create(&pd, &op, attr, p->engine, NULL) == dnnl_success &&
        f->dnnl_primitive_create(&g->primitive, pd) == dnnl_success;
    f->dnnl_primitive_attr_destroy(attr);
    if (!ok)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "oneDNN refuses a matmul");
    f->dnnl_primitive_desc_destroy(pd);
    f->dnnl_memory_create(&g->memory[0], &a, p->engine, (void *)(uintptr_t)s->a);
    f->dnnl_memory_create(&g->memory[1], &b, p->engine, (void *)(uintptr_t)s->b);
    f->dnnl_memory_create(&g->memory[2], &c, p->engine, s->c);
    return F8_OK;
}

void peer_gemm_destroy(peer_gemm *g)
{
    if (!g)
        return;
    for (int i = 0; i < 3; i++)
        if (g->memory[i])
            g->peer->dnnl.dnnl_memory_destroy(g->memory[i]);
    if (g->primitive)
        g->peer->dnnl.dnnl_primitive_destroy(g->primitive);
    free(g);
}

void peer_gemm_matmul(peer_gemm *g)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, g->memory[0]},
                                    {DNNL_ARG_WEIGHTS, g->memory[1]},
                                    {DNNL_ARG_DST, g->memory[2]}};
    g->peer->dnnl.dnnl_primitive_execute(g->primitive, g->peer->stream, 3, args);
    g->peer->dnnl.dnnl_stream_wait(g->peer->stream);
}

void peer_gemm_sgemm(peer_gemm *g)
{
    const peer_problem *s = &g->problem;
    g->peer->dnnl.dnnl_sgemm(s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N', s->m, s->n, s->k, 1.0f,
                             s->a, s->trans_a ? s->m : s->k, s->b, s->trans_b ? s->k : s->n,
                             s->accumulate ? 1.0f : 0.0f, s->c, s->n);
}
