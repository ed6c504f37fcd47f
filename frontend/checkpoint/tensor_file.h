/* Tensors in files, as `fp8c run` reads and writes them: NAME=FILE.npy, or
 * NAME=FILE.safetensors[:TENSOR]. NAME is a port; without :TENSOR the tensor has the same name. */
#ifndef F8_TENSOR_FILE_H
#define F8_TENSOR_FILE_H

#include <stdbool.h>

#include "frontend/fp8c.h"
#include "frontend/checkpoint/safetensors.h"
#include "frontend/checkpoint/npy.h"
#include "ir/base/status.h"

typedef struct f8_tensor_file {
    char *name, *path;  /* of the port; of the file */
    const char *tensor; /* its name in a safetensors file; NULL: the file is a .npy */
} f8_tensor_file;

/* false if the text is not of this form, or memory ran out. Free *out in any case. */
bool f8_tensor_file_parse(const char *text, f8_tensor_file *out);
void f8_tensor_file_free(f8_tensor_file *f);

/* A tensor that is open. */
typedef struct f8_tensor_in {
    const f8_tensor_file *file; /* borrowed; NULL: nothing is open */
    f8_st_tensor tensor;
    uint64_t begin; /* where its elements begin in the file */
    f8_npy npy;     /* one of the two */
    f8_st_file safetensors;
} f8_tensor_in;

/* After a failure nothing is open. Closing what is all zeros is fine. */
f8_status f8_tensor_open(f8_tensor_in *in, const f8_tensor_file *f, f8_diag *diag);
void f8_tensor_close(f8_tensor_in *in);
/* Whether it can be read as a value of `type`: f8_tensor_file_read says what fits. */
f8_status f8_tensor_fits(const f8_tensor_in *in, const fp8c_type *type, f8_diag *diag);
/* Reads elements [first, first + n) as values of `dtype`, which fits. */
f8_status f8_tensor_read(const f8_tensor_in *in, uint64_t first, uint64_t n, fp8c_dtype dtype,
                         void *to, f8_diag *diag);

/* Reads only the shape. */
f8_status f8_tensor_file_shape(const f8_tensor_file *f, int64_t dim[F8_ST_MAX_RANK], int32_t *rank,
                               f8_diag *diag);

/* Reads the tensor to `to` as a value of `type`. The tensor must have its shape, and its dtype or
 * one that becomes it exactly: i64 (in range) and u8 become i32, and u8 of 0 and 1 bool. In a .npy
 * file, V1 and u1 are FP8, and V2 and u2 are bf16. */
f8_status f8_tensor_file_read(const f8_tensor_file *f, const fp8c_type *type, void *to,
                              f8_diag *diag);

/* An output: its bytes in memory, and the file they go to. */
typedef struct f8_tensor_output {
    f8_tensor_file file;
    fp8c_type type;
    const void *bytes;
} f8_tensor_output;
/* Whether all can be written, as far as this can be known beforehand. Two outputs for one place are
 * an error. */
f8_status f8_tensor_files_writable(f8_temporaries *list, const f8_tensor_output *output, size_t n,
                                   f8_diag *diag);
/* Writes each file whole or not at all (ir/base/file.h has `list`). Outputs for one safetensors
 * file go into it together. */
f8_status f8_tensor_files_write(f8_temporaries *list, const f8_tensor_output *output, size_t n,
                                f8_diag *diag);

#endif
