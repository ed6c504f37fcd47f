/* Running functions of a program, one after another, on tensors from files. Internal to frontend/.
 *
 * A function takes an input from a file, else the last output of the same name and type of the
 * functions before it. Everything that can be checked is checked before anything is computed:
 *
 *     status = f8_call_prepare(&call, &diag);
 *     ... the variables get their values ...
 *     if (status == FP8C_OK)
 *         status = f8_call_repeat(&call, 1, &median, &least, &diag);
 *     if (status == FP8C_OK)
 *         status = f8_call_write(&call, &diag);
 *     f8_call_free(&call);
 *
 * If a call fails and the diag has no message, the context has it. */
#ifndef F8_CALL_H
#define F8_CALL_H

#include "frontend/checkpoint/tensor_file.h"

enum { F8_CALL_MOST = 64 }; /* functions, inputs, outputs */

typedef struct f8_call {
    fp8c_program *program;
    const char *shown; /* what messages call the program */
    const char *function[F8_CALL_MOST];
    size_t n_functions;
    f8_tensor_file input[F8_CALL_MOST];
    size_t n_inputs;
    f8_tensor_output output[F8_CALL_MOST]; /* `file` is the caller's */
    size_t n_outputs;
    const char *save;                         /* a checkpoint that is written then; NULL: none */
    const char *input_option, *output_option; /* what messages call them: "--input", "--output" */
    f8_temporaries *list;
    int index[F8_CALL_MOST];  /* of the functions, in the program */
    const char *failed_input; /* the input whose file a failure is about; NULL: none */
} f8_call;

/* Finds the functions, gives dims that are bounds the values that the files' shapes have, checks
 * that each input has a source and each file can be written, and reads the inputs. */
fp8c_status f8_call_prepare(f8_call *call, f8_diag *diag);
/* Runs the functions in their order, all of them n times, and gives the seconds of once. */
fp8c_status f8_call_repeat(const f8_call *call, int64_t n, double *median, double *least,
                           f8_diag *diag);
/* Writes the outputs, then the checkpoint. Each file is written whole or not at all. */
fp8c_status f8_call_write(f8_call *call, f8_diag *diag);
void f8_call_free(f8_call *call);
/* Reads the inputs of a function of another program of the same module. Those that no file has stay
 * as they are. */
f8_status f8_call_fill(const f8_call *call, fp8c_program *program, int function, f8_diag *diag);

/* ---- values (summary.c) ---- */

/* An element as a number. An FP8 code counts as its bits, 0 to 255. */
double f8_call_element(fp8c_dtype dtype, const void *bytes, int64_t index);
typedef struct f8_summary {
    double min, max, mean; /* of those that are finite; mean: NaN if none is */
    int64_t finite, n;
} f8_summary;
f8_summary f8_call_summarize(const fp8c_type *type, const void *bytes);
/* The record `output`. */
json_t *f8_record_output(const char *function, const fp8c_port *port, const void *bytes,
                         const f8_summary *s);

#endif
