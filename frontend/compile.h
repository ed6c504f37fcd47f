/* A compile in progress: what compile.c and memory.c share. Internal to frontend/. */
#ifndef F8_COMPILE_H
#define F8_COMPILE_H

#include "frontend/dump.h"
#include "frontend/source.h"
#include "frontend/tuned.h"
#include "passes/remat/space.h"

/* Lives until the variant has its plan and its compile report. */
typedef struct f8_compilation {
    fp8c_program *program;
    f8_variant *variant;
    const f8_compile_request *request;
    const fp8c_compile_options *o; /* the request's */
    f8_unit unit;             /* in the variant's arena `graph` */
    f8_recipe recipe, stored, stats_recipe; /* from the options */
    f8_attention_algorithm attention;
    f8_gemm_lib *gemms; /* knows how much scratch GEMMs take; made when first needed */
    f8_build_stats stats;
    int64_t attention_workspace; /* of the last plan whose bytes were asked for */
    f8_arena *sizing;       /* where such plans are laid out, one after another; NULL: none was */
    f8_dump dump;           /* folder "": no dump */
    f8_tuned_choices tuned; /* what the tuning database chose */
} f8_compilation;

/* A compile that plan_only keeps, so that budgets can be asked for (fp8c_program_remat). In the
 * variant's arena `graph`. */
typedef struct f8_planning {
    f8_compile_request request;
    f8_compilation c;
    f8_diag diag; /* the module's and the unit's, once the compile is done */
    struct f8_remat_budgets *budgets; /* NULL: none was asked for */
} f8_planning;

/* Compile a variant of p, whose target is set, for the values that the dims of `source` have. It
 * becomes the last of p, and p->now, after a failure too. A calibration keeps the unit in p. */
f8_status f8_compile_variant(fp8c_program *p, const f8_module *source,
                             const f8_compile_request *request, f8_diag *diag);

/* In memory.c. The first is f8_options.code_bytes of a compilation: what a plan takes in all. The
 * second checks the whole against the memory budget, once there is an instance or none is to come,
 * and sets report.planned. */
f8_status f8_compilation_code_bytes(void *compilation, const f8_unit *u, f8_code_bytes *out);
f8_status f8_compilation_check_budget(f8_compilation *c, f8_diag *diag);

#endif
