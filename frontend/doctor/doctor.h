/* Inside `doctor` (fp8c.h): what was found, whether it serves a target, whether the target then
 * computes. */
#ifndef F8_DOCTOR_H
#define F8_DOCTOR_H

#include "frontend/api.h"
#include "runtime/probe/component.h"

enum { F8_DOCTOR_TARGETS = 32 };

struct fp8c_doctor {
    fp8c_context *ctx;
    f8_arena arena;
    f8_cuda *cuda; /* the doctor's own */
    f8_components components;
    f8_facts facts;
    fp8c_target_report target[F8_DOCTOR_TARGETS];
    int device[F8_DOCTOR_TARGETS]; /* the GPU that such code runs on */
    int n_targets;
    const char *cpu_refused; /* why LLVM makes no code for this CPU; NULL: it does */
    fp8c_doctor_options options;
    struct f8_probe *expected; /* what `reference` gives; NULL: not run yet */
};

/* What can be compiled and run, by the components found. */
void f8_doctor_judge(fp8c_doctor *d);
/* LLVM, the cache, the environment. */
void f8_doctor_llvm(fp8c_doctor *d);
void f8_doctor_facts(fp8c_doctor *d);

/* ---- the self-test ---- */

/* Its inputs, weights and results: all are small integers, products of them, or made of such
 * exactly. */
enum { F8_PROBE_ROWS = 32, F8_PROBE_IN = 64, F8_PROBE_HIDDEN = 64, F8_PROBE_OUT = 32 };
typedef struct f8_probe {
    float loss;
    float hidden[F8_PROBE_ROWS * F8_PROBE_HIDDEN]; /* x up */
    float out[F8_PROBE_ROWS * F8_PROBE_OUT];       /* max(hidden, 0) down, in FP8 */
    float activated[F8_PROBE_ROWS * F8_PROBE_OUT]; /* gelu(out) */
    float normed[F8_PROBE_ROWS * F8_PROBE_OUT];    /* layernorm(out) */
    float sums[F8_PROBE_ROWS];                     /* of out's rows */
    int64_t fp8_gemms;                             /* that were run */
} f8_probe;

/* Compile for `target`, and unless `compile_only` run, on GPU `device`. FP8C_OK, or a status with
 * the message in ctx. */
fp8c_status f8_probe_run(fp8c_context *ctx, const char *target, int device, bool compile_only,
                         f8_probe *out);
/* NULL, or the first element of `got` that is not what integers (hidden) and `expected` say; with
 * `counted`, also that other than its FP8 GEMMs were run (the interpreter counts none). The
 * arena's. */
const char *f8_probe_compare(const f8_probe *got, const f8_probe *expected, bool counted,
                             f8_arena *arena);

#endif
