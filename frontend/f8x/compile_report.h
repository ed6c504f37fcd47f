/* Compile reports: what passes and code generation decided, as the API reports it.
 *
 * A report is plain data that outlives the graph. It is made when a compile is done, or read from a
 * file. All of it lies in the arena it was made in. The plan (runtime/plan.h) says what a program
 * is and does: functions, ports, variables, steps. */
#ifndef F8_COMPILE_REPORT_H
#define F8_COMPILE_REPORT_H

#include "codegen/build.h"
#include "ir/base/wire.h"
#include "passes/memory/report.h"

/* One function's memory and time, as passes planned them. */
typedef struct f8_compile_report_func {
    f8_memory_report memory;
    uint32_t positions;  /* groups in the function's order */
    int64_t arena_bytes; /* as passes laid it out; code may need more (f8_plan_func) */
    double seconds;      /* of a run, estimated (passes/unit/cost.h) */
} f8_compile_report_func;

typedef struct f8_compile_report {
    f8_decision *decision;
    size_t n_decisions;
    f8_elements *elements;
    size_t n_elements;
    f8_stored *stored;
    size_t n_stored;
    f8_watched *watched; /* not in a file */
    size_t n_watched;
    f8_pass_time *time;
    size_t n_times;
    f8_compile_report_func *func; /* by function of the plan; NULL for the reference target,
                                     which has no arena */
    size_t n_funcs;
    f8_build_kernel *kernel; /* without `text` and `cuda` */
    size_t n_kernels;
    f8_build_image *image; /* with listings */
    size_t n_images;
    f8_remat_summary remat;
    int64_t linears, fp8_gemms;
    int64_t planned; /* bytes in all, as an instance reports them */
    double compile_seconds;
    int64_t kernels_cached; /* those found in the cache rather than compiled */
    const char *tuning_table; /* a sentence on the table that fp8c ships; NULL: none, or loaded */
} f8_compile_report;

/* Make a report from a unit that went through the passes, and from the figures of its build (NULL:
 * it was not built). Copies into `arena` what it keeps. The caller fills `planned` and the fields
 * after it. */
f8_status f8_compile_report_make(const f8_unit *u, const f8_build_stats *stats, bool images,
                                 f8_arena *arena, f8_compile_report *out);

/* What the elements of a variable stand for; NULL: it has none. */
const f8_elements *f8_elements_of(const f8_compile_report *t, int variable);

/* ---- in a file: compile_report_file.c ---- */

/* Write or read all of a report but images and what a clock measured. */
void f8_compile_report_wire(f8_wire *w, f8_compile_report *t);
/* Check that a report that was read fits this plan. F8_ERR_INPUT. */
f8_status f8_compile_report_check(const f8_compile_report *t, const f8_plan *plan, f8_diag *diag);

#endif
