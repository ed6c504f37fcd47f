/* Models built for CUDA targets, for tests that need no device. */
#ifndef F8_TESTS_CUDA_PLAN_H
#define F8_TESTS_CUDA_PLAN_H

#include "codegen/build.h"
#include "frontend/text/parse.h"
#include "tests/shared/passes/passes.h"
#include "runtime/cuda/device.h"

typedef struct cuda_plan {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    f8_plan plan;
    f8_build_stats stats;
    f8_status status; /* a failure's message is in diag */
} cuda_plan;

/* A model's text and what it is compiled for. */
typedef struct cuda_model {
    const char *text; /* NULL: the file's */
    const char *file; /* "frontend/models/gpt.f8" */
    const f8_dim_override *dims;
    size_t n_dims;
    const char *recipe;
    const f8_target *target;
    bool no_fuse;
    bool inference; /* eval alone */
    bool wgrad_branch;
} cuda_model;

/* Parses the model and runs the passes: all of *p but plan and stats. End it either way. */
void cuda_plan_lower(cuda_plan *p, const cuda_model *model);
/* The plan of what was lowered, for the same target. */
void cuda_plan_finish(cuda_plan *p, f8_build_options options);

/* Both. model: "gpt"; dim: "L=24" or NULL; target and stats of the options are set here. End it
 * either way. */
void cuda_plan_build(cuda_plan *p, const char *model, const char *dim, const char *recipe,
                     const char *arch, f8_build_options options);
void cuda_plan_end(cuda_plan *p);

/* The libraries, and whether NVRTC is among them; where it isn't, what was looked for is printed.
 */
bool cuda_plan_compiler(f8_cuda **cuda);

#endif
