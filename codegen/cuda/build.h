/* The CUDA target's part of a build: kernels become CUDA C, and several texts one image (a cubin).
 * build.c has the target's functions for steps, alias.c the check of what steps access,
 * images.c texts and compiling. Internal to codegen. */
#ifndef F8_CODEGEN_CUDA_BUILD_H
#define F8_CODEGEN_CUDA_BUILD_H

#include "codegen/plan/parts.h"
#include "codegen/cuda/emit.h"

/* The text of one kernel, in its form for one tensor or its multi-tensor form, and what it became.
 */
typedef struct f8_cuda_code {
    uint32_t source;
    bool multi;
    uint32_t launches;
    uint32_t image;
    size_t begin, end;    /* where its text begins and ends within the image's text, */
    uint32_t line,
        lines;        /* the number of its first line there, from 1, and how many lines it has */
    const char *text; /* a copy of that text, for statistics. Functions that an earlier kernel of
                         the image already printed are not in it */
    f8_cuda_attention parts; /* its kernels; `tasks` is set for attention alone */
    double seconds;
} f8_cuda_code;

extern const f8_build_target f8_build_cuda;

/* Checks the steps of the function that was just built: no task of a launch may read or write what
 * another task of it writes (alias.c). F8_ERR_INTERNAL names the group and both values. */
f8_status f8_cuda_check_steps(f8_build *b);

/* Prints and compiles every form of a kernel that some step launches. */
f8_status f8_cuda_images(f8_build *b);

#endif
