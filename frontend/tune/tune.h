/* The tuner: what its parts share. Internal to frontend/tune/, and to frontend/measure/ that
 * measures the same candidates alone.
 *
 *     tune.c     the API's calls, and the order of the work
 *     problem.c  the problems of a program, the candidates of each, what the database knows of them
 *     time.c     programs that run in turns with the model's program
 *     choice.c   what is chosen
 *     rows.c     rows of the database: export, import, merge
 *     gemms.h    GEMMs that come from no model
 *
 * A candidate is timed where it will be used: in a program that is compiled with it, as a step of
 * that program, with the caches as the steps before it leave them. One program has a candidate of
 * every problem. So there are as many rounds as the problem with most candidates has candidates. */
#ifndef F8_TUNE_H
#define F8_TUNE_H

#include "frontend/tune/gemms.h"
#include "frontend/tuned.h"
#include "ir/base/progress.h"
#include "runtime/cpu/gemm.h"

enum {
    TUNE_CANDIDATES = 32,
    TUNE_RUNS = 64,
    TUNE_FUNCTIONS = 2,
    TUNE_WORTH_RUNS = 3 /* the fewest runs that say something */
};

/* The least gain that counts. Less is noise, or not worth another choice. */
#define TUNE_GAIN 0.02

typedef struct tune_candidate {
    const char *text;
    double seconds;    /* of all that a step computes of it, the least */
    double ratio;      /* of its least seconds to the model's in the same round */
    int64_t runs;      /* 0: it was not timed, or */
    bool other_bits;   /* it never will be, since it gives other bits */
    f8_gemm_desc desc; /* for GEMMs of the CPU */
} tune_candidate;

typedef struct tune_problem {
    const char *text, *name;
    bool gemm, fresh; /* fresh: a candidate was timed now */
    bool attention;   /* it has one way, which is timed, and nothing is chosen */
    f8_gemm_desc desc;
    tune_candidate candidate[TUNE_CANDIDATES]; /* 0: the model's choice */
    int n, count;
    double flops, bytes; /* of one of the `count`, their mean; flops 0: a kernel without products */
    int next;            /* the candidate in the program that is compiled next */
    int chosen;          /* -1: nothing was chosen yet */
    double seconds, model_seconds;
    double sample[2][TUNE_RUNS]; /* seconds of each run: the model's program, the other program */
} tune_problem;

struct fp8c_tuning {
    fp8c_context *ctx;
    f8_arena arena;
    const fp8c_module *module;
    fp8c_compile_options compile;
    fp8c_tune_options o;
    f8_tuning *db;
    f8_tuning_keys keys;
    char process[F8_TUNING_PROCESS_ID]; /* by which the database knows what is timed now */
    bool process_kept;
    f8_gemm_lib *gemms;
    f8_pool *pool;
    fp8c_program *base;                        /* the model's program */
    int function[TUNE_FUNCTIONS], n_functions; /* the functions that a step runs */
    tune_problem *problem;
    size_t n, room;
    f8_progress_phase progress;
    double start;
    double wall[2][TUNE_RUNS]; /* seconds of a step, like sample */
    int64_t timed, kept, changed_bits;
    double untuned_seconds, tuned_seconds;
    bool finished;
    bool gemms_alone; /* kernels around them are not tuned */
};

/* tune.c */
/* Begin to tune a module: its program as the model has it, the problems, their candidates and what
 * the database knows. gemms: its GEMMs alone. fp8c_tuning_destroy ends it; `module` is borrowed. */
fp8c_status f8_tune_open(fp8c_context *ctx, const fp8c_module *module,
                         const fp8c_tune_options *options, bool gemms, fp8c_tuning **out);
/* Time, choose, and order the problems by time. */
f8_status f8_tune_finish(fp8c_tuning *t, f8_diag *diag);
/* What fp8c_tune does for a module. gemms: its GEMMs alone. */
fp8c_status f8_tune_module(fp8c_context *ctx, const fp8c_module *module,
                           const fp8c_tune_options *options, bool gemms, fp8c_tuning **out);

/* problem.c */
/* Make t->base, the problems, their candidates and the known timings. */
f8_status f8_tune_collect(fp8c_tuning *t, f8_diag *diag);
const f8_tuning_key *f8_tune_key(const fp8c_tuning *t, const tune_problem *p);
/* The problem of that text; NULL: it is not one of them. */
tune_problem *f8_tune_find(const fp8c_tuning *t, const char *text);
/* The problem that phase n of a step of the plan is, or the step itself, if n is the number of its
 * phases; NULL: it is none. */
tune_problem *f8_tune_problem_at(const fp8c_tuning *t, const f8_plan *plan, const f8_step *s,
                                 uint32_t n);

/* time.c */
/* Compile a program that computes each problem by its `next`. */
f8_status f8_tune_compile(fp8c_tuning *t, fp8c_program **out, f8_diag *diag);
/* Run the model's program and `other` (NULL: it alone) in turns, `runs` times each, and fill sample
 * and wall. may_stop: end early and lower *runs if every candidate that differs is clearly slower.
 * Once the time is up, TUNE_WORTH_RUNS runs are enough; with may_stop fewer are none, and *runs
 * becomes 0.
 */
f8_status f8_tune_compare(fp8c_tuning *t, fp8c_program *other, int *runs, bool may_stop,
                          const char *item, f8_diag *diag);
/* Put the samples of a problem's `next`, and those of the model in turns with it, into the
 * database, as seconds for computing the problem once: another model's step may compute it more
 * often. */
f8_status f8_tune_keep(fp8c_tuning *t, tune_problem *p, int runs, f8_diag *diag);
/* The seconds that a step of a function, or a phase of it (-1: all of it), has taken in all runs.
 */
double f8_tune_step_seconds(const f8_instance *i, uint32_t func, uint32_t step, int phase);
/* Whether the time is up. */
bool f8_tune_late(const fp8c_tuning *t);
/* Time all candidates that were not timed yet, and keep the times. */
f8_status f8_tune_time(fp8c_tuning *t, f8_diag *diag);
double f8_tune_least(const double *sample, int n);
/* The median of the ratios of runs that are neighbours in time: what disturbs the machine disturbs
 * both. */
double f8_tune_ratio(const double *other, const double *model, int n);

/* gemm.c */
/* What one scale of operand i covers, 0 the first, over the array as it is stored. */
f8_granularity f8_tune_gemm_grain(const f8_tune_gemm *g, int i);

/* choice.c */
f8_status f8_tune_choose(fp8c_tuning *t, f8_diag *diag);

#endif
