/* A program: the compiled module, its plan, and the instance it runs on. Internal to frontend/. */
#ifndef F8_PROGRAM_HANDLE_H
#define F8_PROGRAM_HANDLE_H

#include "codegen/build.h"
#include "frontend/api.h"
#include "frontend/instance.h"
#include "passes/pass.h"

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
    double compile_seconds;
    int32_t threads;
    bool initialized; /* variables hold values */
};

/* fp8c_compile in high precision with samples of operands (f8_pass_calibrate). */
fp8c_status f8_compile_calibrating(const fp8c_module *module, const fp8c_compile_options *options,
                                   fp8c_program **out);
/* Its trials, once a batch was observed; n 0 before. */
const struct f8_trial *f8_calibration_trials(const fp8c_calibration *c, size_t *n);

#endif
