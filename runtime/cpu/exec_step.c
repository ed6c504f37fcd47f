/* Running one step: see exec_internal.h. */
#include "runtime/cpu/exec_internal.h"

#include "ir/base/clock.h"
#include "runtime/copy.h"

typedef struct phase_job {
    f8_phase_fn entry;
    void *const *arg;
    const int64_t *ints;
    uint8_t *scratch;
    int64_t scratch_stride;
} phase_job;

static void phase_tasks(void *user, int thread, int64_t begin, int64_t end)
{
    const phase_job *j = user;
    j->entry(j->arg, j->ints, begin, end, j->scratch + thread * j->scratch_stride);
}

bool f8_exec_is_started(const f8_exec *x, const f8_step *s)
{
    return s->kind == F8_STEP_COLLECTIVE && x->home->queue && !x->observer &&
           f8_collective_travels(s->collective.kind);
}

static f8_status run_collective(f8_exec *x, const f8_exec_step *l, f8_diag *diag)
{
    if (!f8_exec_is_started(x, l->step))
        return f8_comm_run(x->comm, &l->step->collective, l->transfer->label, l->arg[0], l->arg[1],
                           diag);
    l->transfer->send = l->arg[0];
    l->transfer->receive = l->arg[1];
    f8_comm_queue_start(x->home->queue, l->transfer);
    return F8_OK;
}

/* Whether C of a GEMM counts as zeros. */
static bool starts_afresh(const f8_exec_step *l)
{
    const uint8_t *adds = l->arg[F8_GEMM_ADDS];
    return adds && !*adds;
}

f8_status f8_exec_run_step(f8_exec *x, const f8_exec_step *l, f8_diag *diag)
{
    const f8_step *s = l->step;
    f8_exec_home *home = x->home;
    switch (s->kind) {
    case F8_STEP_KERNEL:
        for (uint32_t p = 0; p < s->n_phases; p++) {
            const f8_step_phase *phase = &s->phase[p];
            phase_job job = {l->entry[p], l->arg + phase->first_arg, s->ints + phase->first_int,
                             (uint8_t *)home->home.scratch.at, x->tenant.sizes.scratch};
            const double start = x->profile ? f8_seconds_now() : 0;
            f8_pool_run(home->pool, phase_tasks, &job, phase->n_tasks);
            if (x->profile)
                l->phase_seconds[p] += f8_seconds_now() - start;
        }
        home->home.count.kernels++;
        return F8_OK;
    case F8_STEP_GEMM:
        home->home.count.gemms++;
        home->home.count.fp8_gemms += s->fp8;
        return (starts_afresh(l) ? f8_gemm_run_afresh : f8_gemm_run)(
            l->gemm, home->pool, l->arg[F8_GEMM_A], l->arg[F8_GEMM_B], l->arg[F8_GEMM_C],
            l->arg[F8_GEMM_SCALE_A], l->arg[F8_GEMM_SCALE_B], (void *)home->home.workspace.at);
    case F8_STEP_COPY: f8_copy_run(s, home->pool, l->arg[0], l->arg[1]); return F8_OK;
    case F8_STEP_COLLECTIVE: return run_collective(x, l, diag);
    case F8_STEP_WAIT:
        return home->queue && !x->observer ? f8_comm_queue_wait(home->queue, l->transfer, diag)
                                           : F8_OK;
    case F8_STEP_ATTENTION: break; /* of CUDA plans */
    }
    return F8_ERR_INTERNAL;
}
