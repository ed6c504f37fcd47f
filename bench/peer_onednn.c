/* See peer_onednn.h. */
#include "bench/peer_onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/peer.h"
#include "runtime/base/dynlib.h"

struct peer_onednn {
    f8_peers *peers;
    int way; /* matmul's */
    f8_dynlib library;
    __typeof__(&dnnl_sgemm) sgemm;
    void (*set_threads)(int);
    int threads;
};

struct peer_gemm {
    peer_onednn *peer;
    peer_problem problem;
    f8_peer_gemm *matmul;
};

static f8_status open_sgemm(peer_onednn *p, f8_diag *diag)
{
    static const char *const files[] = {"libdnnl.so.2", NULL};
    F8_TRY(f8_dynlib_open("oneDNN 2", files, &p->library, diag));
    void *sgemm = f8_dynlib_find(&p->library, "dnnl_sgemm");
    void *set = f8_dynlib_find(&p->library, "omp_set_num_threads");
    memcpy(&p->sgemm, &sgemm, sizeof sgemm);
    memcpy(&p->set_threads, &set, sizeof set);
    if (!sgemm || !set)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "oneDNN lacks sgemm or OpenMP");
    return F8_OK;
}

f8_status peer_onednn_open(peer_onednn **out, int threads, f8_diag *diag)
{
    f8_dtype dtype;
    const char *way;
    peer_onednn *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return F8_ERR_MEMORY;
    p->threads = threads;
    F8_TRY(f8_peers_open(NULL, threads, &p->peers, diag));
    while ((way = f8_peers_way(p->peers, p->way, &dtype)) && strcmp(way, "oneDNN matmul f32"))
        p->way++;
    if (!way)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "there is no oneDNN");
    return open_sgemm(p, diag);
}

void peer_onednn_close(peer_onednn *p)
{
    if (!p)
        return;
    f8_peers_close(p->peers);
    f8_dynlib_close(&p->library);
    free(p);
}

f8_status peer_gemm_create(peer_onednn *p, const peer_problem *s, peer_gemm **out, f8_diag *diag)
{
    const f8_peer_product product = {s->m, s->n, s->k, s->trans_a, s->trans_b, s->accumulate};
    peer_gemm *g = calloc(1, sizeof *g);
    *out = g;
    if (!g)
        return F8_ERR_MEMORY;
    *g = (peer_gemm){.peer = p, .problem = *s};
    return f8_peer_prepare(p->peers, p->way, &product, &g->matmul, diag);
}

void peer_gemm_destroy(peer_gemm *g)
{
    if (!g)
        return;
    f8_peer_release(g->matmul);
    free(g);
}

void peer_gemm_matmul(peer_gemm *g)
{
    f8_peer_run(g->matmul, g->problem.a, g->problem.b, g->problem.c, NULL);
}

void peer_gemm_sgemm(peer_gemm *g)
{
    const peer_problem *s = &g->problem;
    g->peer->set_threads(g->peer->threads);
    g->peer->sgemm(s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N', s->m, s->n, s->k, 1.0f, s->a,
                   s->trans_a ? s->m : s->k, s->b, s->trans_b ? s->k : s->n,
                   s->accumulate ? 1.0f : 0.0f, s->c, s->n);
}
