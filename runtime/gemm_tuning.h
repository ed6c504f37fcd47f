/* GEMMs as the tuner sees them: a problem as text, which is what its database finds it by, and the
 * ways to do it, its candidates, as text and back.
 *
 *     "gemm 2048x768x3072 f8e4m3.t x f8e5m2 -> f32 add ..."     a problem
 *     "model"                                                   as without a database
 *     "share b", "onednn-f32", "onednn-bf16 m 64 n 384 packed"  candidates
 *     "cublaslt 66 tile 15 stages 35 split 1 scheme 0"
 */
#ifndef F8_GEMM_TUNING_H
#define F8_GEMM_TUNING_H

#include "runtime/gemm.h"

enum {
    F8_GEMM_PROBLEM_TEXT = 320, /* bytes of a problem's text at most, its end included */
    F8_CANDIDATE_TEXT = 96,     /* of a candidate's */
    F8_GEMM_CANDIDATES = 24,    /* of a problem */
};

bool f8_gemm_tuning_equal(const f8_gemm_tuning *x, const f8_gemm_tuning *y);

/* Everything of a desc that its time may depend on but the algorithm and the tuning. */
void f8_gemm_problem_text(const f8_gemm_desc *desc, char text[F8_GEMM_PROBLEM_TEXT]);

/* What `desc` does that it would not do by itself: its algorithm unless it is `model`, its tuning. */
void f8_gemm_candidate_text(const f8_gemm_desc *desc, uint32_t model, char text[F8_CANDIDATE_TEXT]);

/* Make desc do so. False, and desc as it was: for a text that is none, as one of a later version. */
bool f8_gemm_candidate_parse(const char *text, f8_gemm_desc *desc);

/* The candidates of the CPU, `model` (desc with no tuning) first: each possible here and cut otherwise
 * than those before it. same_bits: without other algorithms. Returns how many. */
int f8_gemm_candidates(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads, bool same_bits,
                       f8_gemm_desc out[F8_GEMM_CANDIDATES]);

/* Whether two descs of one problem give the same bits on the same operands, by doing both once, on
 * operands that are random (the same ones each time). */
f8_status f8_gemm_same_bits(f8_gemm_lib *lib, const f8_gemm_desc *x, const f8_gemm_desc *y,
                            f8_pool *pool, const f8_allocator *allocator, bool *out, f8_diag *diag);

#endif
