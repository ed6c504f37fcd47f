/* The tuner: what its parts share. Internal to frontend/tune*.c.
 *
 *     tune.c          the calls, and what is done in which order
 *     tune_problem.c  which problems a program has, which candidates each, and what the database knows of them
 *     tune_time.c     programs that do all problems in some way, run in turns with the model's
 *     tune_choice.c   the choice
 *     tune_rows.c     rows of the database in and out of files
 *
 * A candidate is timed where it will be used: in a program that is compiled with it, in the place of its step, with
 * the caches as the steps before leave them. One program has a candidate of every problem, so that there are as many
 * rounds as the problem with most candidates has, not as there are candidates. */
#ifndef F8_TUNE_H
#define F8_TUNE_H

#include "frontend/tuned.h"
#include "ir/base/progress.h"
#include "runtime/cpu/gemm.h"

enum { TUNE_CANDIDATES = 32, TUNE_RUNS = 64, TUNE_FUNCTIONS = 2 };

/* The least gain that counts: less is noise, or not worth another choice. */
#define TUNE_GAIN 0.02

typedef struct tune_candidate {
    const char *text;
    double seconds, median;
    double ratio;      /* to the model's least beside it */
    int64_t runs;      /* 0: not timed, or */
    bool other_bits;   /* never will be */
    f8_gemm_desc desc; /* GEMMs of the CPU */
} tune_candidate;

typedef struct tune_problem {
    const char *text, *name;
    bool gemm, fresh; /* fresh: something of it was timed now */
    f8_gemm_desc desc;
    tune_candidate candidate[TUNE_CANDIDATES]; /* 0: the model's */
    int n, count;
    int next;    /* the candidate of the program that is compiled now */
    int chosen;  /* -1: not yet */
    double seconds, model_seconds;
    double sample[2][TUNE_RUNS]; /* of the model's program, of the other */
} tune_problem;

struct fp8c_tuning {
    fp8c_context *ctx;
    f8_arena arena;
    const fp8c_module *module;
    fp8c_compile_options compile;
    fp8c_tune_options o;
    f8_tuning *db;
    f8_tuning_keys keys;
    f8_gemm_lib *gemms;
    f8_pool *pool;
    fp8c_program *base; /* the model's */
    int function[TUNE_FUNCTIONS], n_functions; /* what a step runs */
    tune_problem *problem;
    size_t n, room;
    f8_progress_phase progress;
    double start;
    double wall[2][TUNE_RUNS]; /* of a step, as sample */
    int64_t timed, kept, changed_bits;
    double untuned_seconds, tuned_seconds;
    bool finished;
};

/* tune_problem.c */
f8_status f8_tune_collect(fp8c_tuning *t,
                          f8_diag *diag); /* t->base, problems, candidates, timings */
const f8_tuning_key *f8_tune_key(const fp8c_tuning *t, const tune_problem *p);
tune_problem *f8_tune_find(const fp8c_tuning *t, const char *text); /* NULL: not one of them */

/* tune_time.c */
/* Compile a program that does each problem by its `next`. */
f8_status f8_tune_compile(fp8c_tuning *t, fp8c_program **out, f8_diag *diag);
/* Run the model's and `other` in turns, `runs` times each: samples and wall. `may_stop`: *runs
 * becomes fewer where all that differ are clearly slower. */
f8_status f8_tune_compare(fp8c_tuning *t, fp8c_program *other, int *runs, bool may_stop,
                          const char *item, f8_diag *diag);
/* Time all candidates that were not, and keep what was found. */
f8_status f8_tune_time(fp8c_tuning *t, f8_diag *diag);
double f8_tune_least(const double *sample, int n);
/* The middle one of the ratios of neighbours in time: what disturbs the machine disturbs both
 * alike. */
double f8_tune_ratio(const double *other, const double *model, int n);

/* tune_choice.c */
f8_status f8_tune_choose(fp8c_tuning *t, f8_diag *diag);

#endif
