/* The report of a compile: what passes and code generation decided, as the API reports it.
 *
 * Plain data that outlives the graph it tells of: made once a compile is done, or read from a file.
 * Everything lies in the arena it was made in. What a program is and does (functions, ports,
 * variables, steps) is in its plan (runtime/plan.h), not here. */
#ifndef F8_COMPILE_REPORT_H
#define F8_COMPILE_REPORT_H

#include "codegen/build.h"
#include "ir/base/wire.h"
#include "passes/memory/report.h"

/* One function's memory and time, as passes planned them. */
typedef struct f8_compile_report_func {
    f8_memory_report memory;
    uint32_t positions;  /* groups in its order */
    int64_t arena_bytes; /* as passes laid it out; code may want more (f8_plan_func) */
    double seconds;      /* of a run, estimated (passes/unit/cost.h) */
} f8_compile_report_func;

typedef struct f8_compile_report {
    f8_decision *decision;
    size_t n_decisions;
    f8_elements *elements;
    size_t n_elements;
    f8_stored *stored;
    size_t n_stored;
    f8_pass_time *time;
    size_t n_times;
    f8_compile_report_func *func; /* by function of the plan; NULL: the reference target, which has
                                     no arena */
    size_t n_funcs;
    f8_build_kernel *kernel; /* without `text` and `cuda` */
    size_t n_kernels;
    f8_build_image *image; /* CUDA, where listings were asked for */
    size_t n_images;
    f8_remat_summary remat;
    int64_t linears, fp8_gemms;
    int64_t planned; /* bytes in all, as an instance reports them */
    double compile_seconds;
    int64_t kernels_cached; /* found in the cache rather than compiled */
} f8_compile_report;

/* From a unit that went through the passes, and the figures of its build (NULL: there was none).
 * Copies what it keeps into `arena`. Leaves `planned` and what follows to the caller. */
f8_status f8_compile_report_make(const f8_unit *u, const f8_build_stats *stats, bool images,
                                 f8_arena *arena, f8_compile_report *out);

/* ---- in a file (compile_report_file.c) ---- */

/* All but images and what a clock measured. */
void f8_compile_report_wire(f8_wire *w, f8_compile_report *t);
/* Whether one that was read is of this plan. F8_ERR_INPUT. */
f8_status f8_compile_report_check(const f8_compile_report *t, const f8_plan *plan, f8_diag *diag);

#endif
