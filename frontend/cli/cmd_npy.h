/* .npy files of NumPy, read and written.
 *
 * A file is the 6 bytes 93 'N' 'U' 'M' 'P' 'Y', a version (1.0, 2.0 or 3.0), the length of its
 * header, little-endian in 2 bytes or (2.0, 3.0) 4, the header, and the elements. The header is a
 * dictionary as Python writes it, ended by spaces and a newline:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 * Source: the documentation of numpy.lib.format. The reader is strict: of Python's literals it
 * knows those that a header has, each key stands there once and no other, the elements are in C
 * order and little-endian, and the file ends with them. A header has at most 10,000 bytes, as
 * NumPy's own reader takes. */
#ifndef F8_CMD_NPY_H
#define F8_CMD_NPY_H

#include "frontend/fp8c.h"
#include "frontend/checkpoint/safetensors.h"

enum { CLI_NPY_HEADER = 10000 };

typedef struct cli_npy {
    f8_file_in in;
    uint64_t data;       /* where the elements begin */
    f8_st_tensor tensor; /* without a name. Elements that NumPy has no type for, 'V1' and 'V2', are
                            U8 and U16 */
    char descr[16];
} cli_npy;

/* As f8_st_open and its like: `path` outlives `f`; F8_ERR_INPUT where the file is not as described;
 * after a failure there is nothing left to close. */
f8_status cli_npy_open(cli_npy *f, const char *path, f8_diag *diag);
f8_status cli_npy_open_fd(cli_npy *f, const char *path, int fd, f8_diag *diag);
void cli_npy_close(cli_npy *f);
/* All elements, tensor.bytes, to `to`. */
f8_status cli_npy_read(const cli_npy *f, void *to, f8_diag *diag);

/* A tensor of n bytes, whole or not at all (ir/base/file.h). bf16 is written as 'V2', FP8 as 'V1':
 * what ml_dtypes' types are to NumPy. */
f8_status cli_npy_write(const char *path, const fp8c_type *type, const void *bytes, size_t n,
                        f8_diag *diag);

#endif
