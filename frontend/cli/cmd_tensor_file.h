/* Tensors of files, as `fp8c run` takes and writes them: NAME=FILE.npy, or
 * NAME=FILE.safetensors[:TENSOR], where the tensor is called as the port unless another name is
 * given. */
#ifndef F8_CMD_TENSOR_FILE_H
#define F8_CMD_TENSOR_FILE_H

#include <stdbool.h>

#include "frontend/fp8c.h"
#include "frontend/checkpoint/safetensors.h"
#include "ir/base/status.h"

typedef struct cli_tensor_file {
    char *name, *path;  /* of the port; the file's */
    const char *tensor; /* of a safetensors file; NULL: it is a .npy */
} cli_tensor_file;

/* false: the text is none, or memory ran out. Free it in any case. */
bool cli_tensor_file_parse(const char *text, cli_tensor_file *out);
void cli_tensor_file_free(cli_tensor_file *f);

/* Its shape alone. */
f8_status cli_tensor_file_shape(const cli_tensor_file *f, int64_t dim[F8_ST_MAX_RANK],
                                int32_t *rank, f8_diag *diag);

/* The tensor as a value of this type, at `to`, of so many bytes: of its shape, and of its dtype or
 * one that becomes it exactly: i64 (in range) and u8 become i32, u8 of 0 and 1 bool; of a .npy V1
 * and u1 are FP8, V2 and u2 bf16. */
f8_status cli_tensor_file_read(const cli_tensor_file *f, const fp8c_type *type, void *to,
                               f8_diag *diag);

/* An output: where it is, and where it goes. */
typedef struct cli_tensor_output {
    cli_tensor_file file;
    fp8c_type type;
    const void *bytes;
} cli_tensor_output;
/* Whether all can be written, as far as can be known before: no two go to one place. */
f8_status cli_tensor_files_writable(const cli_tensor_output *output, size_t n, f8_diag *diag);
/* Each file whole or not at all; those of one safetensors file into it together. */
f8_status cli_tensor_files_write(const cli_tensor_output *output, size_t n, f8_diag *diag);

#endif
