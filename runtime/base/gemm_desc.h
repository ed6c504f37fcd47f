/* What a GEMM step computes and how, as plain data that plans hold, and as text.
 *
 * It computes C[m, n] = op(A)[m, k] x op(B)[k, n]; runtime/cpu/gemm.h and runtime/cuda/cublaslt.h
 * say it in full.
 *
 * The tuner's database finds a GEMM by the text of its problem. The candidates, the ways to compute
 * it, are texts too:
 *
 *     "gemm 2048x768x3072 f8e4m3.t x f8e5m2 -> f32 add ..."     a problem
 *     "model"                                                   as without a database
 *     "share b", "onednn-f32", "onednn-bf16 m 64 n 384 packed"  candidates
 *     "cublaslt 66 tile 15 stages 35 split 1 scheme 0 swizzle 0 custom 0 inner 0 cluster 2" */
#ifndef F8_GEMM_DESC_H
#define F8_GEMM_DESC_H

#include "ir/num/scale_layout.h"
#include "ir/base/type.h"

/* Algorithm ids are recorded in plans: never renumber. X(enumerator, id, name, what it does) */
#define F8_GEMM_ALGORITHMS(X)                                                           \
    X(F8_GEMM_AUTO, 0, "auto", "the first row of the table this CPU and problem allow") \
    X(F8_GEMM_ONEDNN_F32, 1, "onednn-f32", "operands decoded to f32, f32 multiply-add") \
    X(F8_GEMM_ONEDNN_BF16, 2, "onednn-bf16", "operands held as bf16, f32 accumulators") \
    X(F8_GEMM_F64, 3, "f64", "small products with an f32 operand, sums in f64")         \
    X(F8_GEMM_CUBLASLT, 16, "cublaslt", "cuBLASLt's first heuristic answer that is deterministic")

typedef enum f8_gemm_algorithm {
#define X(e, id, name, what) e = id,
    F8_GEMM_ALGORITHMS(X)
#undef X
} f8_gemm_algorithm;

/* The configuration of a cuBLASLt algorithm beside its id: all attributes that the library has
 * (cublasLtMatmulAlgoConfigAttributes_t). On Hopper candidates differ in the last four alone.
 * X(field, word in a candidate's text, CUBLASLT_ALGO_CONFIG_, the library's type of the attribute)
 */
#define F8_CUBLASLT_CONFIG(X)                              \
    X(tile, "tile", TILE_ID, uint32_t)                     \
    X(stages, "stages", STAGES_ID, uint32_t)               \
    X(split_k, "split", SPLITK_NUM, uint32_t)              \
    X(scheme, "scheme", REDUCTION_SCHEME, uint32_t)        \
    X(swizzle, "swizzle", CTA_SWIZZLING, uint32_t)         \
    X(custom, "custom", CUSTOM_OPTION, uint32_t)           \
    X(inner_shape, "inner", INNER_SHAPE_ID, uint16_t)      \
    X(cluster_shape, "cluster", CLUSTER_SHAPE_ID, uint16_t)

typedef struct f8_cublaslt_config {
    uint32_t id; /* 0: none */
#define X(field, word, attribute, type) uint32_t field;
    F8_CUBLASLT_CONFIG(X)
#undef X
} f8_cublaslt_config;

/* How a GEMM is computed within its algorithm. All zeros: as the model says (on the CPU gemm.c's
 * split into blocks; on CUDA the first answer of cuBLASLt's heuristic). On the CPU no field changes
 * a bit of the result, unless oneDNN itself sums a tile of another shape in another order: the
 * tuner compares the bits and drops such candidates. */
typedef struct f8_gemm_tuning {
    uint16_t m_block, n_block; /* CPU: the most rows and columns of a tile, multiples of 16 */
    uint8_t algorithm; /* CPU, where the desc's is AUTO: taken instead of the model's, if it is
                          possible */
    uint8_t share;             /* CPU: f8_gemm_share */
    bool packed;               /* CPU: A is packed, even where it could be used in place */
    /* CUDA: the cuBLASLt algorithm that is taken if the heuristic offers it. All zeros: the first
     * one offered. */
    f8_cublaslt_config lt;
} f8_gemm_tuning;

/* Which operand is packed once for all tasks. Each task packs the other's blocks itself. */
typedef enum f8_gemm_share { F8_GEMM_SHARE_MODEL, F8_GEMM_SHARE_A, F8_GEMM_SHARE_B } f8_gemm_share;

enum { F8_GEMM_M_MOST = 256, F8_GEMM_N_MOST = 384 }; /* of m_block, n_block */

typedef struct f8_gemm_desc {
    int64_t m, n, k;       /* >= 1 */
    int64_t lda, ldb, ldc; /* row strides of the arrays as stored, in elements */
    /* Several products of one kind: how many (0: one), and the elements from each one's matrix to
     * the next one's. Stride 0 of an operand: all read the same matrix. They have no scales and no
     * bias, and add to nothing. */
    int64_t batch, stride_a, stride_b, stride_c;
    f8_dtype a, b; /* F8_F32, F8_BF16, F8_E4M3 or F8_E5M2 */
    f8_dtype c;    /* F8_F32; F8_BF16 (CUDA only): rounded once from the f32 sum */
    bool trans_a, trans_b;
    bool round_a, round_b; /* f32 operands only */
    bool accumulate;       /* add to C instead of overwriting it */
    bool bias;             /* CUDA, C bf16: a bf16 for each column is added to the f32 sum */
    bool has_alpha;        /* the run is given scales of at least one operand */
    /* With has_alpha: what each scale covers of the array as stored, and the dtype of the scales,
     * F8_F32 or F8_E8M0. There is one scale for the tensor, one for each row or block of rows of
     * the result (for B: columns), or blocks along k of any size but 1. The arrays of scales are
     * contiguous and row-major, as in ir/num/granularity.h. */
    f8_granularity scale_a, scale_b;
    f8_dtype scale;
    f8_scale_layout scale_layout; /* of both: on CUDA what cuBLASLt reads; the CPU takes the grid */
    bool fast_accumulate;  /* FP8 on CUDA: partial sums need not be promoted to f32 on the way */
    uint32_t algorithm;    /* f8_gemm_algorithm; a plan records f8_gemm_choose's answer */
    f8_gemm_tuning tuning;
} f8_gemm_desc;

/* The arguments of a GEMM, in this order. Scales, a bias and ADDS may be missing. ADDS is of a GEMM
 * that accumulates, and says whether C holds anything; if not, C counts as zeros. On a CPU it is a
 * bool. On CUDA, where the host chooses, it is the variable F8_COUNT_NAME, and C holds something
 * where that is above 0 as the function begins. */
enum {
    F8_GEMM_A,
    F8_GEMM_B,
    F8_GEMM_C,
    F8_GEMM_SCALE_A,
    F8_GEMM_SCALE_B,
    F8_GEMM_BIAS,
    F8_GEMM_ADDS,
    F8_GEMM_ARGS
};

static inline int64_t f8_gemm_batch(const f8_gemm_desc *d)
{
    return d->batch > 1 ? d->batch : 1;
}

/* Whether the fields of a batch are as gemm_desc.h says, for C [m, n] with these strides. */
bool f8_gemm_batch_ok(const f8_gemm_desc *desc);

/* The elements from the first to the last of an operand, F8_GEMM_A, F8_GEMM_B or F8_GEMM_C, with
 * its whole rows and its batch. */
int64_t f8_gemm_elements(const f8_gemm_desc *desc, int which);

/* Whether a CPU computes the GEMM with F8_GEMM_F64: it is small, has no scales, and has an f32
 * operand that is not rounded to bf16. */
bool f8_gemm_sums_in_f64(const f8_gemm_desc *desc);

const char *f8_gemm_algorithm_name(uint32_t algorithm); /* "?" when there is none */

enum {
    F8_GEMM_PROBLEM_TEXT = 320, /* bytes of a problem's text at most, its end included */
    F8_CANDIDATE_TEXT = 192,    /* of a candidate's */
    F8_GEMM_CANDIDATES = 24,    /* of a problem */
};

bool f8_gemm_tuning_equal(const f8_gemm_tuning *x, const f8_gemm_tuning *y);
/* Whether all[i] is equal to one before it: libraries offer some twice. */
bool f8_gemm_tuning_again(const f8_gemm_tuning *all, int i);

/* The problem's text: everything of a desc that its time may depend on, without algorithm and
 * tuning. */
void f8_gemm_problem_text(const f8_gemm_desc *desc, char text[F8_GEMM_PROBLEM_TEXT]);

/* The candidate's text: the algorithm if it is not `model`, and the tuning. */
void f8_gemm_candidate_text(const f8_gemm_desc *desc, uint32_t model, char text[F8_CANDIDATE_TEXT]);

/* Sets the algorithm and tuning of desc from a candidate's text. False, with desc unchanged, for a
 * text that is no candidate, such as one of a later version. */
bool f8_gemm_candidate_parse(const char *text, f8_gemm_desc *desc);

#endif
