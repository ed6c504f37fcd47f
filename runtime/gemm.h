/* Matrix multiplication on the CPU, through oneDNN (loaded at run time, never linked).
 *
 *     C[m, n] = op(A)[m, k] x op(B)[k, n]   (+ C when accumulate)
 *
 * C is f32. A and B are f32, bf16, f8e4m3 or f8e5m2; narrow operands are decoded exactly, and an
 * f32 operand with `round` set is rounded to bf16 (to nearest, ties to even) element by element on
 * the way in. All are row-major with a row stride. op(X) is X, or its transpose when trans is set:
 * with trans_a the array holds [k, m], with trans_b [n, k].
 *
 * With scales, element by element: C = sum over k of (a_scale op(A))[m, k] (b_scale op(B))[k, n].
 *   - Scales that are the same all along k: an f32 product of A's and B's, one for each element of
 *     C, multiplies the finished f32 sum over k, with one rounding; when accumulating, or in bf16,
 *     the sum of each chunk of k (a thousand or so), which is then added to C.
 *   - f32 blocks along k, in onednn-bf16: the same, in chunks that no end of a block cuts.
 *   - Other blocks along k multiply the operand's elements on the way in: E8M0 in onednn-bf16
 *     exactly (short of subnormals), any in onednn-f32 with one f32 rounding.
 * Nothing is skipped: a NaN or Inf, in an operand or a scale, leaves no element of C finite that it
 * is a factor of, be the others zero.
 *
 * Bits depend on the desc, the algorithm and the CPU alone: C is cut into tiles and k into chunks
 * by shape and granularity, each a single-threaded oneDNN call, so thread count and timing never
 * show. Where the algorithm is onednn-bf16, a subnormal factor counts as zero: AMX multiplies so.
 *
 * Operands are packed through the workspace; a run allocates nothing itself, oneDNN does inside
 * (see gemm_onednn.h). */
#ifndef F8_GEMM_H
#define F8_GEMM_H

#include "ir/scale_layout.h"
#include "ir/status.h"
#include "ir/type.h"
#include "runtime/pool.h"

/* Algorithm ids are recorded in plans: never renumber. X(enumerator, id, name, what it does) */
#define F8_GEMM_ALGORITHMS(X)                                                           \
    X(F8_GEMM_AUTO, 0, "auto", "the first row of the table this CPU and problem allow") \
    X(F8_GEMM_ONEDNN_F32, 1, "onednn-f32", "operands decoded to f32, f32 multiply-add") \
    X(F8_GEMM_ONEDNN_BF16, 2, "onednn-bf16", "operands held as bf16, AMX, f32 accumulators") \
    X(F8_GEMM_CUBLASLT, 16, "cublaslt", "cuBLASLt's first heuristic answer that is deterministic")

typedef enum f8_gemm_algorithm {
#define X(e, id, name, what) e = id,
    F8_GEMM_ALGORITHMS(X)
#undef X
} f8_gemm_algorithm;

/* How a GEMM is done within its algorithm. All zeros: as the model has it (gemm.c's cutting; the first
 * answer of cuBLASLt's heuristic). No bit of a result depends on what is for the CPU, save where
 * oneDNN itself sums another shape of tile in another order: the tuner compares, and drops those. */
typedef struct f8_gemm_tuning {
    uint16_t m_block, n_block; /* CPU: the most rows and columns of a tile, multiples of 16 */
    uint8_t algorithm; /* CPU, where the desc's is AUTO: taken instead of the model's, if it is possible */
    uint8_t share;             /* CPU: f8_gemm_share */
    bool packed;               /* CPU: A is packed, even where it could be used in place */
    /* CUDA: the algorithm of cuBLASLt's that is taken where its heuristic offers it, by its
     * configuration's numbers; id 0 with all others 0: the first it offers. */
    struct {
        int32_t id, split_k;
        uint32_t tile, stages, scheme;
    } lt;
} f8_gemm_tuning;

/* Which operand is packed once for all; the other's blocks are packed by each task. */
typedef enum f8_gemm_share { F8_GEMM_SHARE_MODEL, F8_GEMM_SHARE_A, F8_GEMM_SHARE_B } f8_gemm_share;

enum { F8_GEMM_M_MOST = 256, F8_GEMM_N_MOST = 384 }; /* of m_block, n_block */

typedef struct f8_gemm_desc {
    int64_t m, n, k;       /* >= 1 */
    int64_t lda, ldb, ldc; /* row strides of the arrays as stored, in elements */
    f8_dtype a, b;         /* F8_F32, F8_BF16, F8_E4M3 or F8_E5M2 */
    f8_dtype c;            /* F8_F32; F8_BF16 (CUDA only): rounded once from the f32 sum */
    bool trans_a, trans_b;
    bool round_a, round_b; /* f32 operands only */
    bool accumulate;       /* add to C instead of overwriting it */
    bool has_alpha;        /* f8_gemm_run is given scales of at least one operand */
    /* With has_alpha: what each scale covers of the array as stored, and what they are, F8_F32 or
     * F8_E8M0. One for the tensor, one for each row or block of rows of the result (A; columns: B),
     * or blocks along k of any size but 1. The arrays of scales are contiguous, row-major, as
     * ir/granularity.h has them. */
    f8_granularity scale_a, scale_b;
    f8_dtype scale;
    f8_scale_layout scale_layout; /* of both: on CUDA what cuBLASLt reads; the CPU takes the grid */
    bool fast_accumulate;  /* FP8 on CUDA: partial sums need not be promoted to f32 on the way */
    uint32_t algorithm;    /* f8_gemm_algorithm; a plan records f8_gemm_choose's answer */
    f8_gemm_tuning tuning;
} f8_gemm_desc;

/* oneDNN, this CPU's row of the algorithm table, and a cache of prepared problems. One thread at a
 * time for everything but f8_gemm_run. */
typedef struct f8_gemm_lib f8_gemm_lib;

/* F8_ERR_LIBRARY when oneDNN cannot be loaded (the message names what was looked for);
 * F8_ERR_UNSUPPORTED when the CPU lacks AVX2 or FMA. The allocator (NULL: the default) is copied.
 */
f8_status f8_gemm_lib_create(const f8_allocator *allocator, f8_gemm_lib **out, f8_diag *diag);
void f8_gemm_lib_destroy(f8_gemm_lib *lib); /* after all of its gemms; may be NULL */
/* "oneDNN 2.6.3 (avx512)", for doctor; owned by lib. */
const char *f8_gemm_lib_describe(const f8_gemm_lib *lib);

/* The algorithm that AUTO stands for on this CPU: the tuning's, if it is possible, else the model's. */
f8_gemm_algorithm f8_gemm_choose(const f8_gemm_lib *lib, const f8_gemm_desc *desc);
const char *f8_gemm_algorithm_name(uint32_t algorithm); /* "?" when there is none */

/* A problem made ready: primitives, tiles, workspace layout. Equal descs share one object: each
 * successful prepare is paired with one release. */
typedef struct f8_gemm f8_gemm;

/* n_threads: the most threads a pool given to f8_gemm_run has. F8_ERR_INPUT for a bad desc,
 * F8_ERR_UNSUPPORTED for an algorithm this CPU lacks, F8_ERR_LIBRARY when oneDNN refuses. */
f8_status f8_gemm_prepare(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads, f8_gemm **out,
                          f8_diag *diag);
void f8_gemm_release(f8_gemm *gemm); /* may be NULL */

/* What AUTO and the tuning came to. */
uint32_t f8_gemm_algorithm_of(const f8_gemm *gemm);
size_t f8_gemm_workspace(const f8_gemm *gemm); /* bytes, 64-byte aligned */

/* Multiply. a, b, c are as desc says, aligned to their element; c overlaps neither operand. a_scale
 * and b_scale are arrays of scales as desc says or NULL (taken as 1); both NULL when has_alpha is
 * not set. workspace: f8_gemm_workspace bytes at 64-byte alignment that nobody else uses meanwhile.
 * pool may be NULL. One run of a gemm at a time. F8_ERR_INPUT when the pool has too many threads,
 * F8_ERR_LIBRARY when oneDNN fails. */
f8_status f8_gemm_run(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                      const void *a_scale, const void *b_scale, void *workspace);

#endif
