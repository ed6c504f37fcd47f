/* oneDNN 2 as gemm.c sees it: single-threaded multiplications of dense tiles.
 *
 * oneDNN runs on OpenMP, which would start a team inside each of our threads. A primitive keeps the
 * thread count of the thread that created it, and the rest asks OpenMP while running, so both
 * happen between f8_onednn_enter and f8_onednn_leave, which set the calling thread's own OpenMP
 * thread count to 1 and put it back. */
#ifndef F8_GEMM_ONEDNN_H
#define F8_GEMM_ONEDNN_H

#include "ir/status.h"
#include "runtime/gemm.h"

typedef struct f8_onednn f8_onednn;

/* Load the library and make an engine. F8_ERR_LIBRARY when that fails. */
f8_status f8_onednn_create(const f8_allocator *allocator, f8_onednn **out, f8_diag *diag);
void f8_onednn_destroy(f8_onednn *dnn);
/* major * 10000 + minor * 100 + patch */
int f8_onednn_version(const f8_onednn *dnn);
bool f8_onednn_has_bf16(const f8_onednn *dnn);     /* it uses AVX512_BF16 or better here */
bool f8_onednn_has_amx_bf16(const f8_onednn *dnn); /* it uses AMX here */

/* The calling thread's OpenMP thread count to 1; returns what leave puts back (of two OpenMP
 * runtimes: see gemm_onednn.c). */
typedef struct f8_onednn_threads {
    int saved[2];
} f8_onednn_threads;

f8_onednn_threads f8_onednn_enter(const f8_onednn *dnn);
void f8_onednn_leave(const f8_onednn *dnn, f8_onednn_threads threads);

/* T[m, n] = A[m, k] x B[k, n]: T f32 and A dense row-major; B dense row-major (f32) or, when bf16
 * (A too), in the layout of f8_gemm_pack_pairs, n then a multiple of 64 and k of 32. */
typedef struct f8_onednn_shape {
    int64_t m, n, k;
    bool bf16;
} f8_onednn_shape;

typedef struct f8_onednn_tile f8_onednn_tile;

/* Between enter and leave. F8_ERR_LIBRARY says which shape was refused. */
f8_status f8_onednn_tile_create(f8_onednn *dnn, const f8_onednn_shape *shape, int n_threads,
                                f8_onednn_tile **out, f8_diag *diag);
void f8_onednn_tile_destroy(f8_onednn_tile *tile); /* may be NULL */
size_t f8_onednn_tile_scratch(const f8_onednn_tile *tile); /* bytes, 64-byte aligned */
const char *f8_onednn_tile_name(const f8_onednn_tile *tile); /* oneDNN's name of what it picked */

/* Multiply, between enter and leave, as thread `thread` of n_threads: different threads may run the
 * same tile at once. scratch: f8_onednn_tile_scratch bytes. */
f8_status f8_onednn_tile_run(f8_onednn_tile *tile, int thread, const void *a, const void *b,
                             float *t, void *scratch);

#endif
