/* Matrix multiplication on NVIDIA GPUs, through cuBLASLt, of an f8_gemm_desc (gemm_desc.h).
 *
 * Our matrices are row-major, cuBLASLt's column-major. So C = A B is passed as C^T = B^T A^T, with
 * the operands swapped and nothing moved. Sums are f32 (never TF32). The library multiplies FP8
 * operands by their scales; bf16 and f32 operands take none. C is rounded once, from the f32 sum
 * that includes the old C, or a bias: a bf16 for each column of C, which the library adds in its
 * epilogue.
 *
 * Scales are one for the tensor, one for each row or column of C, or blocks along k of 128 (f32) or
 * 32 (E8M0): f8_cublaslt_scale_mode. ir/target.h says which target has which; arrays lie as
 * F8_SCALES_CUBLASLT of ir/num/scale_layout.h says. A mode that the library lacks is refused, never
 * replaced by another.
 *
 * The algorithm is the first of cuBLASLt's heuristic answers that is deterministic: k is not split,
 * or its parts are stored in f32 in the workspace and summed by a second kernel. It depends on
 * desc, device, library version and workspace size. It does not depend on addresses beyond their
 * alignment, nor on strides of rows that begin at 16 bytes, as far as the library allows
 * (cublasLtMatmulAlgoCheck): the parts of a wider matrix have the bits they would have alone. */
#ifndef F8_GEMM_CUBLASLT_H
#define F8_GEMM_CUBLASLT_H

#include "ir/target.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"
#include "runtime/base/gemm_desc.h"

/* Whether cuBLASLt can compute `desc`, as far as its documentation says; needs no library and no
 * device. F8_ERR_UNSUPPORTED with the reason; F8_ERR_INPUT for a desc that contradicts itself. */
f8_status f8_cublaslt_supports(const f8_target *target, const f8_gemm_desc *desc, f8_diag *diag);

/* Loads the library if it is not loaded yet, and gives its version, "13.0.1". */
f8_status f8_cublaslt_version(f8_cuda *cuda, const char **out, f8_diag *diag);

/* The library's mode for scales over op(A), or op(B) when `second` (ours, before the swap); -1 for
 * scales that it has none for. */
int f8_cublaslt_scale_mode(const f8_gemm_desc *desc, bool second);

/* A problem made ready: descriptors and the chosen algorithm. */
typedef struct f8_cublaslt_gemm f8_cublaslt_gemm;

/* Prepares a problem, after f8_cuda_device. alignment: the bytes that every operand's address is a
 * multiple of, at most 16. workspace: the bytes that a run may use. Equal problems of one list
 * share one object. *list belongs to the caller, is NULL at first, and is given to
 * f8_cublaslt_release_all once. `what` names the step in messages: "'fc' in micro_step".
 * F8_ERR_UNSUPPORTED if cuBLASLt has no deterministic algorithm; F8_ERR_LIBRARY with the failing
 * call. */
f8_status f8_cublaslt_prepare(f8_cuda *cuda, f8_cublaslt_gemm **list, const f8_allocator *allocator,
                              const f8_gemm_desc *desc, int alignment, int64_t workspace,
                              const char *what, f8_cublaslt_gemm **out, f8_diag *diag);
void f8_cublaslt_release_all(f8_cuda *cuda, f8_cublaslt_gemm **list, const f8_allocator *allocator);

/* The deterministic algorithms that cuBLASLt's heuristic offers for desc without a tuning, each as
 * a tuning, the model's choice first; at most F8_CUBLASLT_ANSWERS. Arguments as in
 * f8_cublaslt_prepare. `loose`: instead of them those that are not deterministic, which no tuning
 * makes a program take. There may be none. */
enum { F8_CUBLASLT_ANSWERS = 16 };
f8_status f8_cublaslt_candidates(f8_cuda *cuda, const f8_allocator *allocator,
                                 const f8_gemm_desc *desc, int alignment, int64_t workspace,
                                 bool loose, const char *what, f8_gemm_tuning *out, int *n,
                                 f8_diag *diag);

/* As f8_cublaslt_prepare, of one of these loose algorithms: to measure it. Its object is no other
 * call's. */
f8_status f8_cublaslt_prepare_loose(f8_cuda *cuda, f8_cublaslt_gemm **list,
                                    const f8_allocator *allocator, const f8_gemm_desc *desc,
                                    int alignment, int64_t workspace,
                                    const f8_cublaslt_config *config, const char *what,
                                    f8_cublaslt_gemm **out, f8_diag *diag);

/* "algorithm 66, tile 15, stages 35, split-k 1, reduction none, swizzle 0, custom 0, inner shape 0,
 * cluster 2, workspace 0 bytes" */
const char *f8_cublaslt_describe(const f8_cublaslt_gemm *gemm);

/* True at the first call for a GEMM. A program runs each once before it is used, because the
 * library refuses some only when it runs them. */
bool f8_cublaslt_first_run(f8_cublaslt_gemm *gemm);

/* Enqueues the product. The arguments and workspace are addresses of the device; 0 where there are
 * no scales, which then are 1, or no bias. Scales are 16-byte aligned unless they are one for the
 * tensor, and so is a bias. F8_GEMM_ADDS is a flag here, and no address: if it is not 0 and the
 * desc accumulates, C counts as zeros and the product replaces it (beta = 0). workspace is 256-byte
 * aligned, of the size given to prepare. The device's context is current. F8_ERR_INPUT if arrays of
 * scales or the bias are missing or not aligned. */
f8_status f8_cublaslt_run(f8_cuda *cuda, f8_cublaslt_gemm *gemm,
                          const CUdeviceptr arg[F8_GEMM_ARGS], CUdeviceptr workspace, void *stream,
                          const char *what, f8_diag *diag);

#endif
