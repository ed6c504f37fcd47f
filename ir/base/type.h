/* Element types and shapes, of values in a graph and of variables and ports in a plan. */
#ifndef F8_TYPE_H
#define F8_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enumerator, name in the text, bytes, is a float) */
#define F8_DTYPES(X)          \
    X(F8_F32, "f32", 4, 1)    \
    X(F8_BF16, "bf16", 2, 1)  \
    X(F8_F16, "f16", 2, 1)    \
    X(F8_I32, "i32", 4, 0)    \
    X(F8_BOOL, "bool", 1, 0)  \
    X(F8_E4M3, "f8e4m3", 1, 1) \
    X(F8_E5M2, "f8e5m2", 1, 1) \
    X(F8_E8M0, "f8e8m0", 1, 1) \
    X(F8_I64, "i64", 8, 0)

typedef enum f8_dtype {
#define X(e, name, bytes, is_float) e,
    F8_DTYPES(X)
#undef X
    F8_DTYPE_COUNT
} f8_dtype;

enum { F8_MAX_RANK = 8 };
enum { F8_MAX_RANKS = 1024 }; /* processes that run one step together; a rank is one of them */

/* An element type and a static shape: dim[0..rank), row-major. Rank 0 is a scalar of one
 * element. */
typedef struct f8_type {
    f8_dtype dtype;
    uint8_t rank;
    int64_t dim[F8_MAX_RANK];
} f8_type;

const char *f8_dtype_name(f8_dtype d);
/* The dtype of that name, or F8_DTYPE_COUNT. */
f8_dtype f8_dtype_by_name(const char *name, size_t length);
size_t f8_dtype_size(f8_dtype d); /* bytes */
bool f8_dtype_is_float(f8_dtype d);
bool f8_dtype_is_fp8(f8_dtype d); /* E4M3 or E5M2 */

/* The bytes that a value may have: 128 TiB, a process's address space. So bytes of several values,
 * aligned or in wider dtypes, can be added and multiplied in int64; ir/verify.c looks at sums. */
#define F8_MOST_BYTES ((int64_t)1 << 47)

/* The number of elements, and of bytes; -1 when it does not fit int64, or is more than
 * F8_MOST_BYTES, which is never so for types that the library built. */
int64_t f8_type_elements(const f8_type *t);
int64_t f8_type_bytes(const f8_type *t);
/* Whether there is such a dtype and rank, all sizes are positive, and it has the bytes for a value.
 */
bool f8_type_valid(const f8_type *t);
bool f8_type_equal(const f8_type *a, const f8_type *b);
bool f8_type_same_shape(const f8_type *a, const f8_type *b);

/* A type as a matrix [rows, columns]: all leading axes flattened are the rows, the last axis is the
 * columns. A scalar is [1, 1]. */
int64_t f8_type_rows(const f8_type *t);
int64_t f8_type_columns(const f8_type *t);
bool f8_type_same_matrix(const f8_type *a, const f8_type *b);

/* The rows of a shard: of n rows that `ranks` ranks share, rank r holds those from r times this on.
 * The last shards may have fewer or none of their own; zeros stand in for the others. */
static inline int64_t f8_shard_rows(int64_t n, int64_t ranks)
{
    return (n + ranks - 1) / ranks;
}

/* A type as the matrices of a batch, its leading axes: how many there are, and the type of one. The
 * rank is at least 2. */
int64_t f8_type_batch(const f8_type *t, f8_type *matrix);

/* The sizes of C [m, n] = A B, summed over k. As stored, A is [m, k] or, transposed, [k, m], and B
 * is [k, n] or, transposed, [n, k]. k is taken from A. f8_type_gemm gives a batch of 1. */
typedef struct f8_gemm_sizes {
    int64_t m, n, k;
    int64_t batch; /* how many products of these sizes */
} f8_gemm_sizes;
f8_gemm_sizes f8_type_gemm(const f8_type *a, bool trans_a, const f8_type *b, bool trans_b);

/* Print as "f32[8, 256]" into buf (at least 160 bytes). Returns buf. */
char *f8_type_print(const f8_type *t, char *buf, size_t size);

/* The least multiple of `by` that is not below n. */
static inline int64_t f8_aligned(int64_t n, int64_t by)
{
    return (n + by - 1) / by * by;
}

#endif
