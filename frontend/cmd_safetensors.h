/* The safetensors format, read and written: how weights come in and go out. Depends on libc and
 * jansson.
 *
 * A file is the length N of its header in 8 bytes, little-endian; N bytes of JSON, padded with
 * spaces; and the tensors' bytes, row-major and little-endian, one behind the other without gaps:
 *     {"__metadata__": {"key": "text"}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets":
 * [0, 24]}} where the offsets count from the header's end. Source: the README and tensor.rs of
 * huggingface/safetensors, whose limits are taken over. The reader is strict: a file is wholly as
 * described, or is refused before any of its tensors is read. What it refuses beyond the reference:
 * fields of a tensor that it doesn't know. */
#ifndef F8_CMD_SAFETENSORS_H
#define F8_CMD_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DTYPE(name, bytes of an element), in the reference's order, which is that of tensors in a file,
 * the last first. Its types of less than a byte are not read. */
#define ST_DTYPES(DTYPE)                                                                           \
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

typedef enum st_dtype {
#define DTYPE(name, bytes) ST_##name,
    ST_DTYPES(DTYPE)
#undef DTYPE
        ST_N_DTYPES
} st_dtype;

const char *st_dtype_name(st_dtype dtype); /* "BF16" */
uint64_t st_dtype_bytes(st_dtype dtype);

enum { ST_MAX_RANK = 8, ST_MAX_HEADER = 100000000, ST_MESSAGE = 1024 };

typedef struct st_tensor {
    const char *name; /* UTF-8, not empty, not "__metadata__" */
    st_dtype dtype;
    int32_t rank;             /* 0: a scalar */
    int64_t dim[ST_MAX_RANK]; /* may be 0: an empty tensor */
    uint64_t begin, bytes;    /* where in the data, and how many. The writer fills them in itself */
} st_tensor;

typedef struct st_pair {
    const char *key, *value; /* UTF-8 */
} st_pair;

/* "F32 [2, 3]", cut to size; returns `to`. */
const char *st_type_text(const st_tensor *t, char *to, size_t size);
/* A text of a file as a terminal may show it, without control characters: whoever made the file
 * chose it. Cut to size; returns `to`. */
const char *st_shown(const char *text, char *to, size_t size);

/* ---- reading ---- */

typedef struct st_file {
    st_tensor *tensor; /* in the order of their bytes */
    size_t n;
    st_pair *metadata;
    size_t n_metadata;
    char message[ST_MESSAGE]; /* after a failure: "PATH: error: ...", without a newline */
    /* the reader's own */
    const char *path;
    int fd;
    uint64_t data;  /* where it begins in the file */
    json_t *header; /* owns names, keys and values */
} st_file;

/* Open a file and check its header and size. `path` must outlive `f`. After a failure nothing is
 * left to close, but closing does no harm. */
bool st_open(st_file *f, const char *path);
/* The same with a file already open, which is closed with `f`; path is for messages. */
bool st_open_fd(st_file *f, const char *path, int fd);
void st_close(st_file *f);
/* The tensor of that name, or NULL. */
const st_tensor *st_find(const st_file *f, const char *name);
/* The value of a metadata key, or NULL. */
const char *st_metadata(const st_file *f, const char *key);
/* All bytes of a tensor of `f`, t->bytes, to `to`. */
bool st_read(st_file *f, const st_tensor *t, void *to);

/* ---- writing (cmd_safetensors_write.c) ---- */

/* Puts the bytes of tensor `index` of those given to st_write at `to`; they are asked for once
 * each, in an order of the file's own. False ends the writing: the caller knows why. */
typedef bool (*st_fill)(void *user, size_t index, void *to);

/* Write FILE whole or not at all: to a new file beside it, flushed to the disk, then renamed over
 * it. Tensors lie by dtype, then by name, as the reference writes them: each is then aligned to its
 * elements. On failure FILE is as it was and message says why, or is empty if `fill` failed. */
bool st_write(const char *path, const st_tensor *tensor, size_t n, const st_pair *metadata,
              size_t n_metadata, st_fill fill, void *user, char message[ST_MESSAGE]);
/* Whether st_write could make FILE, as far as can be known before: its folder takes a new file, and
 * what has that name now is one that may be replaced. */
bool st_writable(const char *path, char message[ST_MESSAGE]);

#endif
