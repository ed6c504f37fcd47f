/* What the files of the reference interpreter share: values, and the evaluators that reference.c
 * calls.
 *
 * Values are contiguous and row-major. In `wide` mode (f8_reference_run_f64) every f32, bf16 and
 * f16 value is an array of double and nothing rounds. Otherwise each value has its own dtype, and
 * every operation uses the scalar functions (ir/num/scalar.h).
 *
 * An evaluator writes to `out`, whose type and memory are given. The first failure is kept in
 * `status`. After it evaluators do nothing, and functions f8_interp_* that return values return
 * NULL, which all of them accept. */
#ifndef F8_INTERP_H
#define F8_INTERP_H

#include "ir/num/granularity.h"
#include "ir/ir.h"
#include "runtime/comm/comm.h"

typedef struct f8_rvalue {
    f8_type type;
    void *data;
} f8_rvalue;

enum { F8_INTERP_TEMPS = 4 };

typedef struct f8_interp {
    const f8_allocator *allocator;
    f8_diag *diag;
    f8_status status;
    bool wide;
    bool magnitudes;     /* GEMM and attention sum magnitudes: F8_TERMS_MAGNITUDES */
    double score_error, weight_error; /* f8_part's */
    char subnormal;      /* 'a', 'b': of this factor of a GEMM only subnormals count; else 0 */
    bool unscaled;       /* a GEMM's scales count as 1: F8_TERMS_UNSCALED */
    int64_t first;       /* f8_part.first */
    const f8_comm *comm; /* NULL: the rank is alone */
    f8_loc at;           /* where the node being evaluated stands in the text */
    f8_rvalue temp[F8_INTERP_TEMPS]; /* temporaries of the node being evaluated */
    int n_temps;
} f8_interp;

/* ---- memory.c ---- */
size_t f8_interp_element(const f8_interp *x, f8_dtype d); /* bytes */
size_t f8_interp_bytes(const f8_interp *x, const f8_type *t);
void *f8_interp_alloc(f8_interp *x, size_t bytes); /* NULL and a failure if there is no memory */
void f8_interp_free(f8_interp *x, void *data, size_t bytes);
/* A value that lives until the node has been evaluated. */
f8_rvalue *f8_interp_temp(f8_interp *x, const f8_type *type);
void f8_interp_free_temps(f8_interp *x);
/* Loads elements [first, first + n) as double, whatever the dtype, and stores them with one
 * rounding. */
void f8_interp_load(const f8_interp *x, const f8_rvalue *v, int64_t first, int64_t n, double *to);
void f8_interp_store(const f8_interp *x, f8_rvalue *v, int64_t first, int64_t n,
                     const double *from);
/* The magnitudes of what was loaded, where x asks for them. */
void f8_interp_magnitudes(const f8_interp *x, double *v, int64_t n);

/* ---- pointwise.c: ops of class POINTWISE; operands broadcast to out's shape ---- */
void f8_interp_pointwise(f8_interp *x, f8_op op, const f8_rvalue *const *in, int n_in,
                         f8_rvalue *out);
/* encode(v * scale) for `quantize`; its granularity is "broadcast" or blocks. */
void f8_interp_quantize(f8_interp *x, const f8_rvalue *v, const f8_rvalue *scale,
                        const char *granularity, bool saturate, f8_rvalue *out);
/* decode(q) * scale for `dequantize`. */
void f8_interp_dequantize(f8_interp *x, const f8_rvalue *q, const f8_rvalue *scale,
                          const char *granularity, f8_rvalue *out);

/* ---- reduce.c: canonical orders (ir/README.md) ---- */
/* The axes that node r reduces, as bits. */
unsigned f8_interp_axes(const f8_graph *g, f8_ref r);
void f8_interp_reduce_axes(f8_interp *x, f8_op op, unsigned axes, int64_t block,
                           const f8_rvalue *in, f8_rvalue *out);

/* ---- shape.c: classes LEAF (except INPUT), SHAPE and GATHER ---- */
void f8_interp_leaf(f8_interp *x, const f8_graph *g, f8_ref r, f8_rvalue *out);
void f8_interp_shape(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *in,
                     f8_rvalue *out);
void f8_interp_gather(f8_interp *x, f8_op op, const f8_rvalue *const *in, f8_rvalue *out);

/* ---- gemm.c: sums in double, rounded once ---- */
/* The scales of an operand, one for each block. */
typedef struct f8_interp_grid {
    const f8_rvalue *scale; /* NULL: there are none */
    f8_granularity grain;
    int64_t stride; /* elements from one row of blocks to the next */
} f8_interp_grid;

typedef struct f8_interp_gemm {
    const f8_rvalue *a, *b;
    const f8_rvalue *added;             /* what is added to the sum, acc or a bias; or NULL */
    bool adds_zeros;                    /* instead of what `added` holds */
    const f8_rvalue *a_scale, *b_scale; /* one element each, or NULL */
    f8_interp_grid a_grid, b_grid;      /* without a_scale and b_scale */
    bool transpose_a, transpose_b, round_a, round_b, is_bias;
} f8_interp_gemm;
void f8_interp_matmul(f8_interp *x, const f8_interp_gemm *m, f8_rvalue *out);
/* The same for each pair of matrices; leading axes broadcast. Without scales, and adds nothing. */
void f8_interp_batch_matmul(f8_interp *x, const f8_interp_gemm *m, f8_rvalue *out);

/* ---- attention.c ---- */
void f8_interp_attention(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *in,
                         f8_rvalue *out);

/* ---- collective.c: class COLLECTIVE ---- */
void f8_interp_collective(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *in,
                          f8_rvalue *out);

/* ---- dropout.c: the hash of dropout, and whether it drops an element ---- */
uint32_t f8_interp_random(uint32_t a, uint32_t b, uint32_t c);
bool f8_interp_drops(uint32_t column, uint32_t row, uint32_t key, double p);

#endif
