/* For tests of the pair of forward and backward: tensors by name, and calls that take and give them
 * so. */
#ifndef TEST_PAIR_CASE_H
#define TEST_PAIR_CASE_H

#include "tests/shared/api/api.h"

enum { PAIR_VALUES = 4000 };

typedef struct pair_value {
    char name[96];
    fp8c_type type;
    void *data; /* aligned to 64 bytes; the list's own */
} pair_value;

typedef struct pair_values {
    int n;
    pair_value value[PAIR_VALUES];
} pair_values;

void pair_end(pair_values *v);
/* The value of that name, or NULL. */
pair_value *pair_find(const pair_values *v, const char *name);
/* The value of that name and type; a new one has values that depend on the name alone: floats
 * around 0 (those of names that begin with d, cotangents, are exact in bf16), integers from 0 to
 * 15. */
void *pair_get(pair_values *v, const char *name, const fp8c_type *type);
void pair_set(pair_values *v, const char *name, const fp8c_type *type, const void *data);
/* Drop the values whose names begin with `prefix`. */
void pair_forget(pair_values *v, const char *prefix);
/* Both have it, with the same bytes. */
bool pair_equal(const pair_values *a, const pair_values *b, const char *name);

/* Run a function through fp8c_program_call. Inputs come from `in`, where missing ones are made, and
 * results go to `out`. */
void pair_run(fp8c_program *p, const char *function, pair_values *in, pair_values *out);
/* The same with a handle; which: as fp8c_program_forward has it. */
void pair_forward(fp8c_program *p, int which, fp8c_saved *saved, pair_values *in,
                  pair_values *out);
void pair_backward(fp8c_program *p, fp8c_saved *saved, pair_values *in, pair_values *out);

/* forward, then backward with what it saved, by named ports; cotangents are in `in`. */
void pair_step(fp8c_program *p, bool first, pair_values *in, pair_values *out);

/* A program's variables into `out`, by name; those whose names begin with `prefix`. */
void pair_variables(fp8c_program *p, const char *prefix, pair_values *out);
/* Set the variables that `from` has. */
void pair_write(fp8c_program *p, const pair_values *from);

/* Bytes of the saved values of `forward`, and their number. */
int64_t pair_saved_bytes(const fp8c_program *p, const char *function, int *n);

#endif
