/* Building plans for CUDA: units become CUDA C, batches of them cubins. build.c: the target's
 * part of steps; alias.c: what they may share; build_units.c: text and compiling.
 * Internal to codegen. */
#ifndef F8_CODEGEN_CUDA_BUILD_H
#define F8_CODEGEN_CUDA_BUILD_H

#include "codegen/plan/parts.h"
#include "codegen/cuda/emit.h"

/* One form of a unit, for one tensor or for many, as code. */
typedef struct f8_cuda_code {
    uint32_t source;
    bool multi;
    uint32_t launches;
    uint32_t image;
    size_t begin, end;    /* of its part of the image's text, */
    uint32_t line, lines; /* and its first line, from 1 */
    const char *text; /* a copy of that part, for statistics; functions shared with kernels before
                       * it in the image are not in it */
    f8_cuda_attention parts; /* its kernels; tasks: attention's alone */
    double seconds;
} f8_cuda_code;

extern const f8_build_target f8_build_cuda;

/* alias.c: refuse steps of the function just built in which one task could read, or write
 * over, what another has written. F8_ERR_INTERNAL with the group and both values. */
f8_status f8_cuda_check_steps(f8_build *b);

/* All forms that some step launches, in order of units: emitted, then compiled. */
f8_status f8_cuda_build_units(f8_build *b);

#endif
