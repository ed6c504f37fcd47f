/* Reads and writes .npy files of NumPy.
 *
 * A file has these parts: the 6 bytes 93 'N' 'U' 'M' 'P' 'Y'; a version (1.0, 2.0 or 3.0); the
 * length of the header, little-endian, in 2 bytes (1.0) or 4; the header; the elements. The header
 * is a Python dictionary, followed by spaces and a newline:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 * Source: the documentation of numpy.lib.format. The reader is strict. It knows only those Python
 * literals that a header has. It wants each of the three keys once and no other key, elements in C
 * order and little-endian, and no bytes after them. It reads headers of up to 10,000 bytes, as
 * NumPy's own reader does. */
#ifndef F8_NPY_H
#define F8_NPY_H

#include "frontend/fp8c.h"
#include "frontend/checkpoint/safetensors.h"

enum { F8_NPY_HEADER = 10000 };

typedef struct f8_npy {
    f8_file_in in;
    uint64_t data;       /* where the elements begin */
    f8_st_tensor tensor; /* without a name. 'V1' and 'V2', for which NumPy has no type, are U8 and
                            U16 */
    char descr[16];
} f8_npy;

/* Like f8_st_open: `path` must outlive `f`. F8_ERR_INPUT if the file is not as described above.
 * After a failure there is nothing to close. */
f8_status f8_npy_open(f8_npy *f, const char *path, f8_diag *diag);
f8_status f8_npy_open_fd(f8_npy *f, const char *path, int fd, f8_diag *diag);
void f8_npy_close(f8_npy *f);
/* Reads all elements, tensor.bytes bytes, to `to`. */
f8_status f8_npy_read(const f8_npy *f, void *to, f8_diag *diag);

/* Writes a tensor of n bytes, whole or not at all (ir/base/file.h has `list`). bf16 is written as
 * 'V2' and FP8 as 'V1', as NumPy writes the types of ml_dtypes. */
f8_status f8_npy_write(f8_temporaries *list, const char *path, const fp8c_type *type,
                       const void *bytes, size_t n, f8_diag *diag);

#endif
