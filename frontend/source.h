/* What a program with bounds keeps of its text and options, so that variants for other values can
 * be compiled later. Internal to frontend/. */
#ifndef F8_SOURCE_H
#define F8_SOURCE_H

#include "frontend/program.h"
#include "frontend/text/parse.h"
#include "passes/scale/choose.h"

/* How to compile a module. */
typedef struct f8_compile_request {
    fp8c_compile_options o;
    const f8_trial *chosen; /* what a calibration chose, for recipe auto */
    size_t n_chosen;
    bool calibrate; /* in high precision, with samples of operands (f8_pass_calibrate) */
} f8_compile_request;

/* All of it lies in the program's arena. */
typedef struct f8_source {
    const char *text, *file;
    size_t size;
    f8_dim_override *dim; /* given to fp8c_module_parse */
    size_t n_dims;
    f8_recipe_rule *rule; /* added by calls to those of the text */
    size_t n_rules;
    f8_compile_request request;
} f8_source;

/* Keep what p needs, after its first variant was compiled from `m`. Sets p->bounds. Does nothing if
 * m has no bounds. */
f8_status f8_source_keep(fp8c_program *p, const fp8c_module *m, const f8_compile_request *request,
                         f8_diag *diag);

#endif
