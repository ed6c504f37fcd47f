/* doctor: what its parts share. See fp8c_machine.h. */
#ifndef F8_DOCTOR_H
#define F8_DOCTOR_H

#include "frontend/api.h"
#include "runtime/probe/component.h"

enum { F8_DOCTOR_TARGETS = 32 };

struct fp8c_doctor {
    fp8c_context *ctx;
    f8_arena arena;
    f8_cuda *cuda; /* belongs to the doctor */
    f8_components components;
    f8_facts facts;
    fp8c_target_report target[F8_DOCTOR_TARGETS];
    int device[F8_DOCTOR_TARGETS]; /* the GPU that runs code for it */
    int n_targets;
    const char *cpu_refused; /* why LLVM makes no code for this CPU; NULL: it does */
    fp8c_doctor_options options;
    struct f8_probe *expected; /* the results of `reference`; NULL: it did not run yet */
};

/* A doctor for the record of a run: it knows the components that the program's target uses, as
 * fp8c_doctor_create does, and judges nothing. LLVM is not loaded if the kernel cache knows its
 * version (codegen/cpu/llvm_known.h). */
fp8c_status f8_doctor_used(fp8c_context *ctx, const fp8c_program *program, fp8c_doctor **out);

/* Fill what can be compiled and run, from the components found. */
void f8_doctor_judge(fp8c_doctor *d);
/* Add the component LLVM, and the facts of the cache and the environment. */
void f8_doctor_llvm(fp8c_doctor *d);
f8_status f8_doctor_llvm_known(fp8c_doctor *d, f8_diag *diag); /* as f8_doctor_used has it */
void f8_doctor_facts(fp8c_doctor *d);

/* ---- the self-test ---- */

/* Its results. Inputs and weights are small integers, and results are products of them or are
 * computed from them exactly. */
enum { F8_PROBE_ROWS = 32, F8_PROBE_IN = 64, F8_PROBE_HIDDEN = 64, F8_PROBE_OUT = 32 };
typedef struct f8_probe {
    float loss;
    float hidden[F8_PROBE_ROWS * F8_PROBE_HIDDEN]; /* x up */
    float out[F8_PROBE_ROWS * F8_PROBE_OUT];       /* max(hidden, 0) down, in FP8 */
    float activated[F8_PROBE_ROWS * F8_PROBE_OUT]; /* gelu(out) */
    float normed[F8_PROBE_ROWS * F8_PROBE_OUT];    /* layernorm(out) */
    float sums[F8_PROBE_ROWS];                     /* sums of out's rows */
    int64_t fp8_gemms;                             /* FP8 GEMMs that ran */
} f8_probe;

/* Compile for `target`, and run on GPU `device` unless `compile_only`. FP8C_OK, or a status with
 * the message in ctx. */
fp8c_status f8_probe_run(fp8c_context *ctx, const char *target, int device, bool compile_only,
                         f8_probe *out);
/* The first element of `got` that differs from integer arithmetic (hidden) or from `expected`, as
 * text in the arena; NULL: none. With `counted` the number of FP8 GEMMs that ran must be the
 * module's, too (not for the interpreter, which counts none). */
const char *f8_probe_compare(const f8_probe *got, const f8_probe *expected, bool counted,
                             f8_arena *arena);

#endif
