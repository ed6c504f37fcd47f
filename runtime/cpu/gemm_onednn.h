/* oneDNN 2 as gemm.c sees it: single-threaded multiplications of tiles.
 *
 * f32 tiles go to dnnl_sgemm, straight into C; bf16 tiles to the matmul primitive, which wants a
 * dense result. Both were measured for f32 on GPT-2's shapes (Sapphire Rapids, one thread): sgemm
 * into C is 3-6% faster than matmul into a dense T that is copied to C (T's copy is 3% of it;
 * matmul into a strided C is sgemm underneath). Its price: it allocates its packing buffers in each
 * call.
 *
 * oneDNN runs on OpenMP, which would start a team inside each of our threads. A primitive keeps the
 * thread count of the thread that created it, and sgemm asks OpenMP while running, so both happen
 * between f8_onednn_enter and f8_onednn_leave, which set the calling thread's own OpenMP
 * thread count to 1 and put it back.
 *
 * Without AVX-512 sgemm points the stack pointer into its working memory in the heap. The handler
 * of a signal that comes then (an embedder's, such as Python's for Ctrl-C) writes there and
 * destroys the heap. So signals wait between enter and leave, but for those of a fault. */
#ifndef F8_GEMM_ONEDNN_H
#define F8_GEMM_ONEDNN_H

#include "ir/base/status.h"
#include "runtime/base/gemm_desc.h"
#include "runtime/cpu/openmp.h"

typedef struct f8_onednn f8_onednn;

/* Load the library and make an engine. F8_ERR_LIBRARY when that fails. */
f8_status f8_onednn_create(const f8_allocator *allocator, f8_onednn **out, f8_diag *diag);
void f8_onednn_destroy(f8_onednn *dnn);
/* major * 10000 + minor * 100 + patch */
int f8_onednn_version(const f8_onednn *dnn);
bool f8_onednn_has_bf16(const f8_onednn *dnn);     /* it uses AVX512_BF16 or better here */
bool f8_onednn_has_amx_bf16(const f8_onednn *dnn); /* it uses AMX here */

/* The calling thread's OpenMP thread count to 1, and its signals held; returns what leave puts
 * back. */
typedef struct f8_onednn_threads {
    f8_openmp_threads openmp;
    sigset_t signals;
} f8_onednn_threads;

f8_onednn_threads f8_onednn_enter(const f8_onednn *dnn);
void f8_onednn_leave(const f8_onednn *dnn, f8_onednn_threads threads);

/* C[m, n] = A[m, k] x B[k, n], or added to C: f32, row-major with row strides, between enter and
 * leave. F8_ERR_MEMORY or F8_ERR_LIBRARY when oneDNN says that it failed. */
f8_status f8_onednn_sgemm(const f8_onednn *dnn, int64_t m, int64_t n, int64_t k, const float *a,
                          int64_t lda, const float *b, int64_t ldb, bool add, float *c,
                          int64_t ldc);

/* oneDNN generates sgemm's kernels, 20 ms of them, when it is first used: before the first step,
 * then, where there will be one. Between enter and leave. */
f8_status f8_onednn_warm_up(f8_onednn *dnn, f8_diag *diag);

/* T[m, n] = A[m, k] x B[k, n]: T f32 and A bf16, both dense row-major; B bf16 in the layout of
 * f8_gemm_pack_pairs. n is a multiple of 64, k of 32. */
typedef struct f8_onednn_shape {
    int64_t m, n, k;
} f8_onednn_shape;

typedef struct f8_onednn_tile f8_onednn_tile;

/* Between enter and leave. F8_ERR_LIBRARY says which shape was refused; F8_ERR_MEMORY. */
f8_status f8_onednn_tile_create(f8_onednn *dnn, const f8_onednn_shape *shape, int n_threads,
                                f8_onednn_tile **out, f8_diag *diag);
void f8_onednn_tile_destroy(f8_onednn_tile *tile);           /* may be NULL */
size_t f8_onednn_tile_scratch(const f8_onednn_tile *tile);   /* bytes, 64-byte aligned */
const char *f8_onednn_tile_name(const f8_onednn_tile *tile); /* oneDNN's name of what it picked */

/* Multiply, between enter and leave, as thread `thread` of n_threads: different threads may run the
 * same tile at once. scratch: f8_onednn_tile_scratch bytes. */
f8_status f8_onednn_tile_run(f8_onednn_tile *tile, int thread, const void *a, const void *b,
                             float *t, void *scratch);

#endif
