/* Other libraries that multiply matrices on this CPU, in this process, on operands in f32 or bf16:
 * oneDNN's own matmul, and any CBLAS. They are loaded at run time and never linked; what is not
 * here is no failure. Internal to frontend/.
 *
 * Calls of one f8_peers are for one thread at a time. A run uses `threads` threads of the library's
 * own. */
#ifndef F8_MEASURE_PEER_H
#define F8_MEASURE_PEER_H

#include "ir/base/status.h"
#include "ir/base/type.h"

typedef struct f8_peers f8_peers;

/* threads: 0: all CPUs. F8_ERR_MEMORY. */
f8_status f8_peers_open(const f8_allocator *allocator, int threads, f8_peers **out, f8_diag *diag);
void f8_peers_close(f8_peers *peers); /* after its products; NULL is fine */
/* The way number `index`: "oneDNN matmul f32", "OpenBLAS sgemm"; NULL ends a loop. *dtype is that
 * of its operands, F8_F32 or F8_BF16; sums and result are f32. */
const char *f8_peers_way(const f8_peers *peers, int index, f8_dtype *dtype);
/* Libraries with versions and, where they say it, the code they chose: "oneDNN 2.6.3 (avx512),
 * OpenBLAS 0.3.21 (Zen)"; "" if there are none. Owned by peers. */
const char *f8_peers_describe(const f8_peers *peers);

/* C[m, n] = op(A) x op(B) (+ C), row-major and contiguous as stored: A [m, k], or [k, m] if
 * transposed; B [k, n], or [n, k] if transposed. */
typedef struct f8_peer_product {
    int64_t m, n, k;
    bool trans_a, trans_b, accumulate;
} f8_peer_product;
typedef struct f8_peer_gemm f8_peer_gemm;
/* Make a way ready. F8_ERR_UNSUPPORTED: the library can't, with the reason. */
f8_status f8_peer_prepare(f8_peers *peers, int index, const f8_peer_product *product,
                          f8_peer_gemm **out, f8_diag *diag);
void f8_peer_release(f8_peer_gemm *gemm); /* NULL is fine */
/* Multiply, and return when it is done. a, b: of the way's dtype, 64-byte aligned. */
f8_status f8_peer_run(f8_peer_gemm *gemm, const void *a, const void *b, float *c, f8_diag *diag);
/* Wait until no other thread of this process runs, for half a second at most. After a run the
 * threads of a library look for more work: GNU's OpenMP for about 10 ms, Intel's for 200,
 * OpenBLAS's in between. They would take CPUs from the way whose turn is next. */
void f8_peers_rest(void);

#endif
