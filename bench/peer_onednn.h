/* oneDNN's plain f32 GEMMs with its own threading, to compare ours with: its matmul, which is a way
 * of frontend/measure/peer.h, and its sgemm. */
#ifndef F8_BENCH_PEER_ONEDNN_H
#define F8_BENCH_PEER_ONEDNN_H

#include "ir/base/status.h"

typedef struct peer_onednn peer_onednn;
typedef struct peer_gemm peer_gemm;

/* threads: what its OpenMP run time is told to use. */
f8_status peer_onednn_open(peer_onednn **out, int threads, f8_diag *diag);
void peer_onednn_close(peer_onednn *p);

/* C[m, n] = op(A) op(B) (+ C when accumulate), contiguous row-major f32; buffers are the caller's.
 */
typedef struct peer_problem {
    int64_t m, n, k;
    bool trans_a, trans_b, accumulate;
    const float *a, *b;
    float *c;
} peer_problem;

f8_status peer_gemm_create(peer_onednn *p, const peer_problem *problem, peer_gemm **out,
                           f8_diag *diag);
void peer_gemm_destroy(peer_gemm *g);
void peer_gemm_matmul(peer_gemm *g); /* the matmul primitive */
void peer_gemm_sgemm(peer_gemm *g);  /* dnnl_sgemm */

#endif
