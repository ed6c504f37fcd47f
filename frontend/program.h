/* A program: the compiled module, its plan, and the instance it runs on. Internal to frontend/. */
#ifndef F8_PROGRAM_HANDLE_H
#define F8_PROGRAM_HANDLE_H

#include "codegen/build.h"
#include "frontend/api.h"
#include "frontend/instance.h"
#include "passes/memory_report.h"

struct fp8c_program {
    fp8c_context *ctx;
    f8_arena arena; /* the compiled module and its plan */
    f8_unit unit;
    f8_recipe recipe, stored; /* the options' */
    f8_plan plan;   /* not filled for the reference target */
    f8_build_stats stats;
    f8_cuda *cuda;  /* CUDA targets: the context's */
    bool listings, text_only;
    f8_attention_algorithm attention;
    f8_instance instance; /* kind NULL: compiled with no_device */
    f8_memory_report *report; /* by function; NULL without places: the reference target */
    double *seconds;          /* by function: of a run, estimated (passes/cost.h) */
    int64_t planned;          /* bytes in all, as an instance will report them */
    f8_gemm_lib *gemms;       /* while compiling: what knows the room of GEMMs */
    bool plan_only;
    double compile_seconds;
    int32_t threads;
    bool initialized; /* variables hold values */
};

/* memory.c: f8_options.code_bytes of a program; what a plan of it takes in all; reports on all
 * functions. */
f8_status f8_program_code_bytes(void *program, const f8_unit *u, f8_code_bytes *out);
f8_status f8_program_plan_bytes(fp8c_program *p, const f8_plan *plan, int64_t *bytes,
                                f8_diag *diag);
f8_status f8_program_report(fp8c_program *p, f8_diag *diag);

/* fp8c_compile in high precision with samples of operands (f8_pass_calibrate). */
fp8c_status f8_compile_calibrating(const fp8c_module *module, const fp8c_compile_options *options,
                                   fp8c_program **out);
/* Its trials, once a batch was observed; n 0 before. */
const struct f8_trial *f8_calibration_trials(const fp8c_calibration *c, size_t *n);

#endif
