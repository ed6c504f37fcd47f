/* A program: plans, what they run on, and what was decided about them. Internal to frontend/. */
#ifndef F8_PROGRAM_H
#define F8_PROGRAM_H

#include "frontend/api.h"
#include "frontend/instance.h"
#include "frontend/f8x/package.h"
#include "frontend/f8x/compile_report.h"
#include "ir/base/file.h"
#include "frontend/variants.h"

/* A program for one set of values of the dims that are bounds; most programs have no such dims, and
 * one variant. Plan and report are all there is to know of it: it was compiled here, or read from a
 * file. */
typedef struct f8_variant {
    struct f8_variant *next;
    int64_t *value; /* of the bounds; NULL: there are none */
    f8_arena arena; /* of the plan and the report */
    f8_plan plan;   /* of the reference target: variables, functions and ports alone */
    f8_compile_report report;
    f8_instance instance; /* kind NULL: compiled with no_device or plan_only */
    f8_arena graph; /* the module after the passes and all they made, where it is still needed: the
                       reference target interprets it, a calibration reads its samples */
} f8_variant;

/* What a program runs on, beside its target and its threads: the options' of compiling, or of
 * opening a file. */
typedef struct f8_run_options {
    bool no_device; /* on nothing: it was compiled, or opened, to be looked at */
    bool profile;
    int32_t device;
    void *stream;
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
} f8_run_options;

/* A tuner's compile: its choices in place of the database's, and the program whose executors share
 * with this one's what they can (NULL: none). */
typedef struct f8_tuner_compile {
    const f8_build_choices *choices;
    const fp8c_program *like;
} f8_tuner_compile;

/* Strides that a view points to (tensor.c): one for all tensors of a shape. */
typedef struct f8_strides {
    struct f8_strides *next;
    int64_t axis[F8_MAX_RANK]; /* in elements; 0 from the rank on */
} f8_strides;

struct fp8c_program {
    fp8c_context *ctx;
    const f8_tuner_compile *tuner; /* NULL but while a tuner compiles */
    f8_arena arena; /* what all variants share */
    f8_variant *first, *now; /* all; the one that runs and is reported on */
    const f8_target *target;
    const f8_cpu_level *level; /* of a CPU that code is for; NULL: this machine's, or no CPU's */
    f8_run_options run;
    f8_cuda *cuda;  /* CUDA targets: lent by the context */
    f8_bounds bounds;
    f8_file_bytes file; /* of a program that was opened: what its plans lie in */
    f8_package package;
    const f8_package_program *opened; /* of the package; NULL: it was compiled */
    f8_unit *unit;  /* a calibration's, in now->graph; else NULL */
    int32_t threads; /* of runs; 0: the CPUs this process may run on */
    f8_strides *strides; /* in the arena: as long as the program */
    bool plan_only;
    bool initialized; /* variables hold values */
};

/* Of the options for compiling, or for opening a file: both structs have these fields. */
#define F8_RUN_OPTIONS(o)                                                                          \
    ((f8_run_options){.no_device = (o)->no_device,                                                 \
                      .profile = (o)->profile,                                                     \
                      .device = (o)->device,                                                       \
                      .stream = (o)->stream,                                                       \
                      .device_alloc = (o)->device_alloc,                                           \
                      .device_free = (o)->device_free,                                             \
                      .device_user = (o)->device_user})

/* A program of `ctx` without variants; NULL: out of memory, as diag says. */
fp8c_program *f8_program_create(fp8c_context *ctx, f8_diag *diag);
/* A variant without plan, the last of p; likewise. p->now is the caller's to set. */
f8_variant *f8_program_add(fp8c_program *p, f8_diag *diag);

/* Set p->run and p->threads from the options. F8_ERR_INPUT: there can't be so many threads. */
f8_status f8_program_set_run(fp8c_program *p, f8_run_options run, int32_t threads, f8_diag *diag);

/* F8_ERR_INPUT: it was compiled to be looked at alone; besides, there is no such function, or
 * variables have no values. */
f8_status f8_program_has_memory(const fp8c_program *p, f8_diag *diag);
f8_status f8_program_can_run(const fp8c_program *p, int function, f8_diag *diag);

/* fp8c_compile in high precision with samples of operands (f8_pass_calibrate). */
fp8c_status f8_compile_calibrating(const fp8c_module *module, const fp8c_compile_options *options,
                                   fp8c_program **out);
/* fp8c_compile for a tuner. */
fp8c_status f8_compile_tuning(const fp8c_module *module, const fp8c_compile_options *options,
                              const f8_tuner_compile *tuner, fp8c_program **out);

#endif
