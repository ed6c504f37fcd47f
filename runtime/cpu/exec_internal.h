/* Inside the CPU executor: resolved steps, and what it adds to a home (home.h). */
#ifndef F8_EXEC_INTERNAL_H
#define F8_EXEC_INTERNAL_H

#include "runtime/base/blob.h"
#include "runtime/comm/queue.h"
#include "runtime/cpu/exec.h"

/* A step with everything resolved. */
typedef struct f8_exec_step {
    const f8_step *step;
    void **arg;
    f8_phase_fn *entry;
    f8_gemm *gemm;
    f8_transfer *transfer; /* COLLECTIVE; WAIT: the collective's */
    double seconds;        /* of a collective: that its call took, on whichever thread */
    double first;          /* of them: of the function's first run */
    double queued;         /* of a collective: from its start to its call */
    double *phase_seconds; /* with options.profile */
} f8_exec_step;

typedef struct f8_exec_func {
    f8_exec_step *step;
    bool ran;
} f8_exec_func;

/* Mapped code, one for all executors whose plans have the same. */
typedef struct f8_exec_code {
    struct f8_exec_code *next;
    f8_blob blob;
    int users;
} f8_exec_code;

typedef struct f8_exec_home {
    f8_home home;
    f8_pool *pool;
    f8_gemm_lib *gemms; /* NULL until a plan has GEMMs */
    f8_exec_code *code;
    f8_comm_queue *queue; /* NULL: collectives are done where they stand */
} f8_exec_home;

struct f8_exec {
    f8_tenant tenant;
    f8_exec_home *home;
    const f8_plan *plan;
    f8_arena memory; /* the executor's own small structures */
    f8_allocator allocator;
    f8_exec_code *code;
    f8_exec_func *func;
    const f8_comm *comm; /* NULL: the rank is alone */
    bool profile;
    const f8_observer *observer; /* NULL: nobody looks on */
};

/* ---- exec_step.c ---- */

f8_status f8_exec_run_step(f8_exec *x, const f8_exec_step *l, f8_diag *diag);
/* Whether a step is a collective that goes on beside the steps behind it. */
bool f8_exec_is_started(const f8_exec *x, const f8_step *s);

/* ---- exec_memory.c ---- */

/* A home for an executor alone, or the one `like` lives in; x->home and x->code. */
f8_status f8_exec_enter_home(f8_exec *x, const f8_exec_options *o, f8_diag *diag);
/* Once the GEMMs are prepared: memory for x, more for all where it needs more, and every place
 * resolved. */
f8_status f8_exec_allocate(f8_exec *x, f8_diag *diag);
void f8_exec_leave_home(f8_exec *x);
bool f8_exec_needs_gemm(const f8_plan *plan);

#endif
