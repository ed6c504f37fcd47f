/* Element types and shapes. Everything that holds numbers, graph or plan, says so with these. */
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
    X(F8_E8M0, "f8e8m0", 1, 1)

typedef enum f8_dtype {
#define X(e, name, bytes, is_float) e,
    F8_DTYPES(X)
#undef X
    F8_DTYPE_COUNT
} f8_dtype;

enum { F8_MAX_RANK = 5 };

/* A static shape: dim[0..rank), row-major; rank 0 is a scalar of one element. */
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

/* Elements and bytes; -1 when the product leaves int64 (types built by the library never do). */
int64_t f8_type_elements(const f8_type *t);
int64_t f8_type_bytes(const f8_type *t);
/* Whether there is such a dtype and rank, all sizes are positive and the bytes fit int64. */
bool f8_type_valid(const f8_type *t);
bool f8_type_equal(const f8_type *a, const f8_type *b);
bool f8_type_same_shape(const f8_type *a, const f8_type *b);

/* The matrix view [rows, columns] of a type: all leading axes flattened, the last as columns; a
 * scalar is [1, 1]. */
int64_t f8_type_rows(const f8_type *t);
int64_t f8_type_columns(const f8_type *t);
bool f8_type_same_matrix(const f8_type *a, const f8_type *b);

/* C [m, n] = A B, summed over k: of operands as stored, A [m, k] or, transposed, [k, m], B [k, n]
 * or [n, k]. k is A's. */
typedef struct f8_gemm_sizes {
    int64_t m, n, k;
} f8_gemm_sizes;
f8_gemm_sizes f8_type_gemm(const f8_type *a, bool trans_a, const f8_type *b, bool trans_b);

/* "f32[8, 256]" into buf (at least 160 bytes); returns buf. */
char *f8_type_print(const f8_type *t, char *buf, size_t size);

/* The least multiple of `by` that is not below n. */
static inline int64_t f8_aligned(int64_t n, int64_t by)
{
    return (n + by - 1) / by * by;
}

#endif
