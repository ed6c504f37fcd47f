/* One compile in progress: what compile.c and memory.c share. Internal to frontend/. */
#ifndef F8_COMPILE_H
#define F8_COMPILE_H

#include "frontend/dump.h"
#include "frontend/source.h"
#include "frontend/tuned.h"

/* Gone once the variant has its plan and its report. */
typedef struct f8_compilation {
    fp8c_program *program;
    f8_variant *variant;
    const f8_compile_request *request;
    const fp8c_compile_options *o; /* of the request */
    f8_unit unit;             /* in the variant's graph */
    f8_recipe recipe, stored; /* the options' */
    f8_attention_algorithm attention;
    f8_gemm_lib *gemms; /* what knows the room of GEMMs; made when first needed */
    f8_build_stats stats;
    f8_dump dump;           /* folder "": none is wanted */
    f8_tuned_choices tuned; /* what the tuning database chose */
} f8_compilation;

/* A variant of p, whose target is chosen, for the values that dims of `source` have: the last of p,
 * and p->now. It is there after a failure too. A calibration keeps the unit in p. */
f8_status f8_compile_variant(fp8c_program *p, const f8_module *source,
                             const f8_compile_request *request, f8_diag *diag);

/* memory.c: f8_options.code_bytes of a compilation; what a plan of it takes in all; whether that is
 * within what was asked for, once there is an instance or no more to come: sets report.planned. */
f8_status f8_compilation_code_bytes(void *compilation, const f8_unit *u, f8_code_bytes *out);
f8_status f8_compilation_check_budget(f8_compilation *c, f8_diag *diag);

#endif
