/* The safetensors format, read and written: how weights come in and go out. Depends only on libc,
 * ir/base/ and jansson, which allocates with malloc.
 *
 * A file is the length N of its header in 8 bytes, little-endian; N bytes of JSON, padded with
 * spaces; and the tensors' bytes, row-major and little-endian, one after the other without gaps.
 * The header is
 *     {"__metadata__": {"key": "text"},
 *      "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
 * Offsets count from the header's end. Source: the README and tensor.rs of huggingface/safetensors.
 * The limits are theirs. The reader is strict: if a file is not wholly as described, it is refused
 * before any of its tensors is read. Unlike the reference it also refuses fields of a tensor that
 * it does not know. */
#ifndef F8_SAFETENSORS_H
#define F8_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/base/file.h"

/* DTYPE(name, bytes of an element), in the reference's order. Tensors in a file are in this order,
 * the last first. The reference's types of less than a byte are not read. */
#define F8_ST_DTYPES(DTYPE)                                                                        \
    DTYPE(BOOL, 1)                                                                                 \
    DTYPE(U8, 1)                                                                                   \
    DTYPE(I8, 1)                                                                                   \
    DTYPE(F8_E5M2, 1)                                                                              \
    DTYPE(F8_E4M3, 1)                                                                              \
    DTYPE(F8_E8M0, 1)                                                                              \
    DTYPE(F8_E4M3FNUZ, 1)                                                                          \
    DTYPE(F8_E5M2FNUZ, 1)                                                                          \
    DTYPE(I16, 2)                                                                                  \
    DTYPE(U16, 2)                                                                                  \
    DTYPE(F16, 2)                                                                                  \
    DTYPE(BF16, 2)                                                                                 \
    DTYPE(I32, 4)                                                                                  \
    DTYPE(U32, 4)                                                                                  \
    DTYPE(F32, 4)                                                                                  \
    DTYPE(C64, 8)                                                                                  \
    DTYPE(F64, 8)                                                                                  \
    DTYPE(I64, 8)                                                                                  \
    DTYPE(U64, 8)

typedef enum f8_st_dtype {
#define DTYPE(name, bytes) F8_ST_##name,
    F8_ST_DTYPES(DTYPE)
#undef DTYPE
        F8_ST_N_DTYPES
} f8_st_dtype;

const char *f8_st_dtype_name(f8_st_dtype dtype); /* "BF16" */
uint64_t f8_st_dtype_bytes(f8_st_dtype dtype);

enum { F8_ST_MAX_RANK = 8, F8_ST_MAX_HEADER = 100000000 };

typedef struct f8_st_tensor {
    const char *name; /* UTF-8, not empty, not "__metadata__" */
    f8_st_dtype dtype;
    int32_t rank;                /* 0: a scalar */
    int64_t dim[F8_ST_MAX_RANK]; /* may be 0: an empty tensor */
    uint64_t begin, bytes;       /* offset in the data, and size; the writer fills them in */
} f8_st_tensor;

typedef struct f8_st_pair {
    const char *key, *value; /* UTF-8 */
} f8_st_pair;

/* The bytes of a tensor of this dtype and shape. */
uint64_t f8_st_bytes(const f8_st_tensor *t);
/* Write "F32 [2, 3]" to `to`, cut to size. Returns `to`. */
const char *f8_st_type_text(const f8_st_tensor *t, char *to, size_t size);
/* Write a text of a file as a terminal may show it, without control characters: whoever made the
 * file chose it. Cut to size. Returns `to`. */
const char *f8_st_shown(const char *text, char *to, size_t size);

/* ---- reading ---- */

typedef struct f8_st_file {
    f8_st_tensor *tensor; /* in the order of their bytes */
    size_t n;
    f8_st_pair *metadata;
    size_t n_metadata;
    /* the reader's own */
    f8_file_in in;
    uint64_t data;  /* where the data begins in the file */
    json_t *header; /* owns names, keys and values */
    f8_arena memory;
} f8_st_file;

/* Open a file, and check its header and size. `path` must outlive `f`. F8_ERR_INPUT: the file is
 * not as described. After a failure nothing is left to close, but closing does no harm. allocator:
 * NULL for the default. */
f8_status f8_st_open(f8_st_file *f, const char *path, const f8_allocator *allocator, f8_diag *diag);
/* The same for a file that is open already; `f` closes it. `path` is for messages. */
f8_status f8_st_open_fd(f8_st_file *f, const char *path, int fd, const f8_allocator *allocator,
                        f8_diag *diag);
void f8_st_close(f8_st_file *f); /* one that is all zeros, never opened, is fine */
/* The tensor of that name, or NULL. */
const f8_st_tensor *f8_st_find(const f8_st_file *f, const char *name);
/* The value of a metadata key, or NULL. */
const char *f8_st_metadata(const f8_st_file *f, const char *key);
/* Read all bytes of a tensor of `f` (t->bytes) to `to`. */
f8_status f8_st_read(const f8_st_file *f, const f8_st_tensor *t, void *to, f8_diag *diag);

/* ---- writing (safetensors_write.c) ---- */

/* Writes the bytes of tensor `index`, of those given to f8_st_write, to `to`. It is called once for
 * each, in the file's order. A failure ends the writing, and f8_st_write returns it. */
typedef f8_status (*f8_st_fill)(void *user, size_t index, void *to, f8_diag *diag);

typedef struct f8_st_contents {
    const f8_st_tensor *tensor;
    size_t n;
    const f8_st_pair *metadata;
    size_t n_metadata;
    f8_st_fill fill;
    void *user;
    f8_temporaries *list; /* ir/base/temporary.h; may be NULL */
} f8_st_contents;

/* Write a file whole or not at all (ir/base/file.h). Tensors are sorted by dtype, then by name, as
 * the reference does: so each is aligned to its elements. Its header has at most F8_ST_MAX_HEADER
 * bytes. */
f8_status f8_st_write(const char *path, const f8_st_contents *contents,
                      const f8_allocator *allocator, f8_diag *diag);

#endif
