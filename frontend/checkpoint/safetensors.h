/* The safetensors format, read and written: how weights come in and go out. Depends on libc,
 * ir/file and jansson, which allocates with malloc.
 *
 * A file is the length N of its header in 8 bytes, little-endian; N bytes of JSON, padded with
 * spaces; and the tensors' bytes, row-major and little-endian, one behind the other without gaps:
 *     {"__metadata__": {"key": "text"}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets":
 * [0, 24]}} where the offsets count from the header's end. Source: the README and tensor.rs of
 * huggingface/safetensors, whose limits are taken over. The reader is strict: a file is wholly as
 * described, or is refused before any of its tensors is read. What it refuses beyond the reference:
 * fields of a tensor that it doesn't know. */
#ifndef F8_SAFETENSORS_H
#define F8_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/base/file.h"

/* DTYPE(name, bytes of an element), in the reference's order, which is that of tensors in a file,
 * the last first. Its types of less than a byte are not read. */
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
    uint64_t begin, bytes; /* where in the data, and how many. The writer fills them in itself */
} f8_st_tensor;

typedef struct f8_st_pair {
    const char *key, *value; /* UTF-8 */
} f8_st_pair;

/* "F32 [2, 3]", cut to size; returns `to`. */
const char *f8_st_type_text(const f8_st_tensor *t, char *to, size_t size);
/* A text of a file as a terminal may show it, without control characters: whoever made the file
 * chose it. Cut to size; returns `to`. */
const char *f8_st_shown(const char *text, char *to, size_t size);

/* ---- reading ---- */

typedef struct f8_st_file {
    f8_st_tensor *tensor; /* in the order of their bytes */
    size_t n;
    f8_st_pair *metadata;
    size_t n_metadata;
    /* the reader's own */
    f8_file_in in;
    uint64_t data;  /* where it begins in the file */
    json_t *header; /* owns names, keys and values */
    f8_arena memory;
} f8_st_file;

/* Open a file and check its header and size. `path` must outlive `f`. After a failure, which is
 * F8_ERR_INPUT where the file is not as described, there is nothing left to close, but closing does
 * no harm. allocator: NULL for the default. */
f8_status f8_st_open(f8_st_file *f, const char *path, const f8_allocator *allocator, f8_diag *diag);
/* The same with a file already open, which is closed with `f`; path is for messages. */
f8_status f8_st_open_fd(f8_st_file *f, const char *path, int fd, const f8_allocator *allocator,
                        f8_diag *diag);
void f8_st_close(f8_st_file *f); /* also one of zeros, never opened */
/* The tensor of that name, or NULL. */
const f8_st_tensor *f8_st_find(const f8_st_file *f, const char *name);
/* The value of a metadata key, or NULL. */
const char *f8_st_metadata(const f8_st_file *f, const char *key);
/* All bytes of a tensor of `f`, t->bytes, to `to`. */
f8_status f8_st_read(const f8_st_file *f, const f8_st_tensor *t, void *to, f8_diag *diag);

/* ---- writing (safetensors_write.c) ---- */

/* Puts the bytes of tensor `index` of those given to f8_st_write at `to`; they are asked for once
 * each, in an order of the file's own. A failure ends the writing, and is what it returns. */
typedef f8_status (*f8_st_fill)(void *user, size_t index, void *to, f8_diag *diag);

typedef struct f8_st_contents {
    const f8_st_tensor *tensor;
    size_t n;
    const f8_st_pair *metadata;
    size_t n_metadata;
    f8_st_fill fill;
    void *user;
} f8_st_contents;

/* Write a file whole or not at all (ir/base/file.h). Tensors lie by dtype, then by name, as the
 * reference writes them: each is then aligned to its elements. Its header has no more than
 * F8_ST_MAX_HEADER bytes. */
f8_status f8_st_write(const char *path, const f8_st_contents *contents,
                      const f8_allocator *allocator, f8_diag *diag);

#endif
