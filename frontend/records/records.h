/* What programs, files and devices are, as records of JSON Lines: `fp8c --json` writes them, and
 * the folder of a training run has some of them. Nothing here prints. Internal to frontend/.
 *
 * A function that gives a json_t gives it to its caller; NULL: out of memory. */
#ifndef F8_RECORDS_H
#define F8_RECORDS_H

#include <jansson.h>
#include <stdbool.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "frontend/fp8c_ranks.h"
#include "frontend/fp8c_tune.h"
#include "ir/base/status.h"

/* f8_record_NAME(begin, s): the record of the row NAME in records.def. After `event` it has the
 * fields of `begin`, which it takes over: json_object() for none. (rows.c) */
#define RECORD(name, event, type, fields) json_t *f8_record_##name(json_t *begin, const type *s);
#include "frontend/records/records.def"
#undef RECORD

/* A number; null for NaN and infinities, which JSON does not have. (rows.c) */
json_t *f8_json_number(double x);
/* A type as "f32[8, 256]", in `text`. (rows.c) */
enum { F8_TYPE_TEXT = 160 };
const char *f8_type_shown(const fp8c_type *type, char text[F8_TYPE_TEXT]);
/* An array of records as JSON Lines, which the caller frees. Takes the array over. (rows.c) */
char *f8_record_lines(json_t *records);

/* ---- what a program takes (plan.c) ---- */

/* What a run of a function launches: {"kernels": 12, "GEMMs": 16, ...}. */
json_t *f8_launches(const fp8c_program *program, int function);
/* How many GEMMs of linears a micro_step does not run in FP8. */
int64_t f8_gemms_excluded(const fp8c_program *program);
/* The whole program, as the record `plan`. */
json_t *f8_record_plan(const fp8c_program *program);
/* The memory of a function at its peak, as the record `memory`. false: the target has no plan. */
bool f8_record_memory(const fp8c_program *program, int function, const char *recipe,
                      int64_t parameters, json_t **record);
/* One of the tensors that are in memory there, the largest first. false ends a loop. */
bool f8_record_tensor_at(const fp8c_program *program, int function, int index, json_t **record);
/* A budget, as a share of the activations, with what it plans; `seconds` is that of a step without
 * a budget, `more` what recomputing adds. */
json_t *f8_record_budget(double share, int64_t planned_bytes, const fp8c_remat *remat,
                         double seconds, double more);
/* The kernels of a CUDA target together; `launches`: how often a run launches one. */
json_t *f8_record_kernels(const fp8c_program *program, int64_t launches);
/* A function of a compiled file: its steps, its memory, its GEMMs by algorithm. */
json_t *f8_record_function(const fp8c_program *program, int function);
/* A target of a compiled file, opened as `program`; `values`: the sets of values of dims that are
 * bounds, each as {"B": 8, "S": 4}. */
json_t *f8_record_target(const fp8c_program *program, const fp8c_file_info *target);

/* ---- what its steps do (steps.c) ---- */

/* A step `s` that moves bytes between ranks, with the steps that run until the wait for it. */
json_t *f8_record_collective(const fp8c_program *program, int function, int index,
                             const fp8c_step *s);
/* Leave out of a step's seconds and gap what the first run of its function took, which finds cold
 * pages and caches, if there are others. Returns the runs that are left. */
double f8_step_drop_first(const fp8c_program *program, int function, int index, fp8c_step *s,
                          double runs);
/* The mean seconds of these runs. */
double f8_step_mean(const fp8c_program *program, int function, int index, double runs);
/* The mean time of a step over `runs` runs of its function. */
json_t *f8_record_profile(const fp8c_program *program, int function, int index, double runs);
/* The records of all steps that took time. `runs` says how often a function ran, at least 1. */
typedef double (*f8_profile_runs)(const void *user, int function);
json_t *f8_records_profile(const fp8c_program *program, f8_profile_runs runs, const void *user);

/* ---- where the time goes (profile.c) ---- */

/* A step of the plan, or several together. All times are those of one turn: an optimizer step, a
 * batch, or a repetition. */
typedef struct f8_profile_row {
    const char *function, *name, *algorithm; /* algorithm: may be NULL */
    const char *work; /* gemm, attention, rows, update, copy, collective, wait */
    int64_t layer;    /* F8_PROFILE_NONE: of no layer; F8_PROFILE_MANY: of several */
    int64_t steps;    /* of the plan, in a sum */
    bool beside;      /* a collective that goes on beside `between` other steps: it is in no sum */
    int32_t between;
    double queued, waited;      /* of such a collective: before it began, and for its end */
    double seconds, share, sum; /* share of all; sum: of the shares down to this row */
    double estimated, gap;
    double flops, bytes; /* of a turn: either is 0 */
    double limit;        /* of flops or bytes a second; 0: not known */
    int at[2];           /* function and index of the step */
} f8_profile_row;
enum { F8_PROFILE_NONE = -1, F8_PROFILE_MANY = -2 };

typedef struct f8_profile {
    f8_profile_row *row;   /* the slowest first */
    f8_profile_row *work;  /* sums, the largest first */
    f8_profile_row *layer; /* sums by layer, in order; then those of several layers, and of none */
    size_t n_rows, n_works, n_layers;
    f8_profile_row all;
    double limit_bytes, limit_flops, limit_flops_bf16; /* of the machine; 0: not known */
    char limits_from[160];
    const char *turn; /* "optimizer step" */
    double turns;
} f8_profile;

/* Of all functions that ran, but for `except` (-1: none), in so many turns. Measures limits where
 * it must (frontend/limits.h). The caller frees it, also after a failure. Strings are the
 * program's. */
f8_status f8_profile_make(const fp8c_program *program, f8_profile_runs runs, const void *user,
                          int except, const char *turn, double turns, f8_profile *out,
                          f8_diag *diag);
void f8_profile_free(f8_profile *p);
/* What a row has reached: operations or bytes a second. */
double f8_profile_rate(const f8_profile_row *r);
/* All of it as records: `profile` for each row, `profile_sum` for each sum, `profile_summary`. They
 * begin with the fields of `begin`, which may be NULL. */
json_t *f8_profile_records(const f8_profile *p, const fp8c_program *program, f8_profile_runs runs,
                           const void *user, json_t *begin);

#endif
