/* Training a model through the public API on any target, for tests and benchmarks that compare
 * targets. */
#ifndef F8_TEST_API_RUN_H
#define F8_TEST_API_RUN_H

#include <stdbool.h>

#include "frontend/fp8c_diagnose.h"

typedef struct f8_api_setup {
    const char *file;   /* a model, relative to the project's root */
    const fp8c_dim *dims;
    size_t n_dims;
    fp8c_compile_options options; /* struct_size is set here */
} f8_api_setup;

typedef struct f8_api_run {
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    int step, update; /* functions; -1: the module has none */
    int64_t first_row; /* of batches: what this rank's first sequence is in the batch of all ranks */
    const char *failed; /* NULL, or the message: the context's */
} f8_api_run;

/* Parse, compile, initialize with seed 1. false with r->failed; close it either way. */
bool f8_api_open(f8_api_run *r, const f8_api_setup *setup);
void f8_api_close(f8_api_run *r);

/* Fill micro_step's tokens and targets by number: a sequence whose next id follows from the two
 * before it, with noise, below the vocabulary. The same on every target. */
void f8_api_batch(f8_api_run *r, int64_t vocabulary, uint64_t number);
/* One batch, micro_step and update; the loss. NaN with r->failed when a run fails. */
float f8_api_step(f8_api_run *r, int64_t vocabulary, uint64_t number);

/* All variables' bytes in a row, without codes of weights; NULL with r->failed. The caller frees. */
unsigned char *f8_api_state(f8_api_run *r, size_t *bytes);
/* The first variable whose name or bytes differ, by name; NULL: all are the same. A variable that
 * can't be read differs, and its run has `failed`. */
const char *f8_api_differs(f8_api_run *a, f8_api_run *b);
/* The buffer of a port by name; NULL if there is none. */
void *f8_api_buffer(f8_api_run *r, int function, fp8c_side side, const char *name, fp8c_type *type);

#endif
