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
#include "frontend/tune/gemms.h"

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
/* The mean time of a step over `runs` runs of its function. */
json_t *f8_record_profile(const fp8c_program *program, int function, int index, double runs);
/* The records of all steps that took time. `runs` says how often a function ran, at least 1. */
typedef double (*f8_profile_runs)(const void *user, int function);
json_t *f8_records_profile(const fp8c_program *program, f8_profile_runs runs, const void *user);

#endif
