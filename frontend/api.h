/* The objects behind the opaque handles of fp8c.h. Internal to frontend/. */
#ifndef F8_API_H
#define F8_API_H

#include "frontend/fp8c.h"
#include "ir/ir.h"
#include "runtime/cuda.h"

/* The GPU's libraries and one device of theirs, made when a program first needs them. */
typedef struct f8_context_gpu {
    struct f8_context_gpu *next;
    f8_cuda *cuda;
    int ordinal;
} f8_context_gpu;

struct fp8c_context {
    f8_allocator allocator;
    size_t size;         /* of this object with the strings of `paths` behind it */
    f8_cuda_paths paths; /* the environment as it was, or the options in its place */
    f8_context_gpu *gpu;
    f8_diag diag;        /* of the call in progress */
    char message[4096];  /* rendered, of the last that failed */
};

/* The libraries for device `ordinal`, which need not be there; the context's. */
f8_status f8_api_gpu(fp8c_context *ctx, int ordinal, f8_cuda **out, f8_diag *diag);

struct fp8c_module {
    fp8c_context *ctx;
    f8_arena arena;
    f8_module *ir;
    f8_diag diag;        /* the module's own: what went wrong while building outlives calls on others */
    char *text;          /* the source, for messages; NULL when built by calls */
    size_t text_size;
    size_t building;     /* index of the function being built + 1; 0 = none */
};

/* Start a call: forget the diag of the one before. */
f8_diag *f8_api_begin(fp8c_context *ctx);
/* End a call on a module: its first failure, if any, becomes the context's message. */
fp8c_status f8_api_done(fp8c_module *m, f8_status status);
/* End a failed call: render the diag against the text it points into (may be NULL) and give the status. */
fp8c_status f8_api_fail(fp8c_context *ctx, f8_status status, const char *text, size_t size);

f8_type f8_api_type_in(const fp8c_type *t);
fp8c_type f8_api_type_out(const f8_type *t);

#endif
