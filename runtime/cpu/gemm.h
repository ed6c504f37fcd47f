/* Matrix multiplication on the CPU, through oneDNN (loaded at run time, never linked).
 *
 *     C[m, n] = op(A)[m, k] x op(B)[k, n]   (+ C when accumulate)
 *
 * C is f32. A and B are f32, bf16, f8e4m3 or f8e5m2. Narrow operands are decoded exactly. An f32
 * operand with `round` set is rounded to bf16 (to nearest, ties to even), element by element, while
 * it is packed. All matrices are row-major with a row stride. op(X) is X, or its transpose if trans
 * is set: with trans_a the array holds [k, m], with trans_b [n, k].
 *
 * A batch is several such products, of matrices that lie regularly in the three arrays.
 *
 * With scales, element by element: C = sum over k of (a_scale op(A))[m, k] (b_scale op(B))[k, n].
 *
 * - Scales that do not change along k: the f32 product of A's and B's scale, one for each element
 *   of C, multiplies the finished f32 sum over k, with one rounding. The exponent of that product
 *   is not bounded (f8_scales_product): it is neither Inf nor 0 because of its size. When
 *   accumulating, or in bf16, it multiplies the sum of each chunk of k (a thousand or so), which
 *   is then added to C.
 * - f32 blocks along k, in onednn-bf16: the same, in chunks that no end of a block cuts.
 * - Other blocks along k multiply the operand's elements while these are packed: E8M0 in
 *   onednn-bf16 exactly (except subnormals), any in onednn-f32 with one f32 rounding.
 *
 * Nothing is skipped: if an operand or a scale is NaN or Inf, no element of C that it is a factor
 * of is finite, even where the other factors are zero.
 *
 * The bits depend on the desc, the algorithm and the CPU alone. C is cut into tiles and k into
 * chunks by shape and granularity, and each is computed in one thread, by oneDNN or in f64 by
 * gemm_f64.c; so the number of threads and the timing never show. In onednn-bf16 a subnormal factor
 * counts as zero, because AMX and AVX512_BF16 multiply so.
 *
 * Operands are packed through the workspace. A run allocates nothing itself; oneDNN does (see
 * gemm_onednn.h). */
#ifndef F8_GEMM_H
#define F8_GEMM_H

#include "runtime/base/gemm_desc.h"
#include "runtime/base/pool.h"

/* oneDNN, the algorithms of this CPU, and a cache of prepared problems. Everything but f8_gemm_run
 * is for one thread at a time. */
typedef struct f8_gemm_lib f8_gemm_lib;

/* F8_ERR_LIBRARY when oneDNN cannot be loaded (the message names what was looked for);
 * F8_ERR_UNSUPPORTED when the CPU lacks AVX2 or FMA. The allocator (NULL: the default) is copied.
 */
f8_status f8_gemm_lib_create(const f8_allocator *allocator, f8_gemm_lib **out, f8_diag *diag);
void f8_gemm_lib_destroy(f8_gemm_lib *lib); /* after all of its gemms; may be NULL */
/* "oneDNN 2.6.3 (avx512)", for doctor; owned by lib. */
const char *f8_gemm_lib_describe(const f8_gemm_lib *lib);

/* The algorithm that AUTO stands for on this CPU: the tuning's, if it is possible, else the
 * model's. */
f8_gemm_algorithm f8_gemm_choose(const f8_gemm_lib *lib, const f8_gemm_desc *desc);

/* A problem made ready: primitives, tiles, workspace layout. Equal descs share one object: each
 * successful prepare is paired with one release. */
typedef struct f8_gemm f8_gemm;

/* n_threads: the most threads a pool given to f8_gemm_run has. F8_ERR_INPUT for a bad desc,
 * F8_ERR_UNSUPPORTED for an algorithm this CPU lacks, F8_ERR_LIBRARY when oneDNN refuses. */
f8_status f8_gemm_prepare(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads, f8_gemm **out,
                          f8_diag *diag);
void f8_gemm_release(f8_gemm *gemm); /* may be NULL */

/* The algorithm that AUTO and the tuning led to. */
uint32_t f8_gemm_algorithm_of(const f8_gemm *gemm);
size_t f8_gemm_workspace(const f8_gemm *gemm); /* bytes, 64-byte aligned */

/* Multiply. a, b, c are as desc says, aligned to their element; c overlaps neither operand. a_scale
 * and b_scale are arrays of scales as desc says or NULL (taken as 1); both NULL when has_alpha is
 * not set. workspace: f8_gemm_workspace bytes at 64-byte alignment that nobody else uses meanwhile.
 * pool may be NULL. One run of a gemm at a time. F8_ERR_INPUT when the pool has too many threads,
 * F8_ERR_LIBRARY when oneDNN fails. */
f8_status f8_gemm_run(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                      const void *a_scale, const void *b_scale, void *workspace);
/* The same for a desc that accumulates, of a C that counts as zeros, whatever it holds: the bits of
 * a run after C was set to +0. Each tile is set to zeros right before its first sum is added, so C
 * is not read from memory. */
f8_status f8_gemm_run_afresh(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                             const void *a_scale, const void *b_scale, void *workspace);

/* ---- for the tuner: gemm_candidates.c ---- */

/* The candidates of the CPU, `model` (desc without a tuning) first. Each is possible here and cuts
 * the problem otherwise than those before it. same_bits: without other algorithms. Returns how many
 * there are. */
int f8_gemm_candidates(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads, bool same_bits,
                       f8_gemm_desc out[F8_GEMM_CANDIDATES]);

/* Whether two descs of one problem give the same bits: computes both once on the same random
 * operands, which are the same in every call. */
f8_status f8_gemm_same_bits(f8_gemm_lib *lib, const f8_gemm_desc *x, const f8_gemm_desc *y,
                            f8_pool *pool, const f8_allocator *allocator, bool *out, f8_diag *diag);

#endif
