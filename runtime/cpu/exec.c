/* The executor: see exec.h. */
#include "runtime/cpu/exec_internal.h"

#include <string.h>

#include "ir/base/clock.h"
#include "runtime/copy.h"
#include "runtime/work.h"

/* ---- steps ---- */

/* What a collective and its wait share. */
static f8_status make_transfer(f8_exec *x, const char *function, const f8_step *s, f8_exec_func *f,
                               f8_exec_step *l, f8_diag *diag)
{
    if (s->kind == F8_STEP_WAIT) {
        l->transfer = f->step[s->waits].transfer;
        return F8_OK;
    }
    l->transfer = F8_NEW(&x->memory, f8_transfer);
    if (!l->transfer)
        return f8_arena_status(&x->memory, diag);
    l->transfer->desc = &s->collective;
    l->transfer->label = (f8_collective_label){function, s->name};
    return F8_OK;
}

static f8_status make_step(f8_exec *x, const char *function, const f8_step *s, f8_exec_func *f,
                           f8_exec_step *l, f8_diag *diag)
{
    l->step = s;
    l->arg = F8_NEW_ARRAY(&x->memory, void *, s->n_args);
    l->entry = F8_NEW_ARRAY(&x->memory, f8_phase_fn, s->n_phases);
    if (x->profile)
        l->phase_seconds = F8_NEW_ARRAY(&x->memory, double, s->n_phases + 1);
    if (!l->arg || !l->entry || (x->profile && !l->phase_seconds))
        return f8_arena_status(&x->memory, diag);
    for (uint32_t p = 0; p < s->n_phases; p++) {
        l->entry[p] = f8_blob_phase(&x->code->blob, s->phase[p].entry);
        if (!l->entry[p])
            return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "kernel '%s' lies outside the blob",
                           s->name);
    }
    if (s->kind == F8_STEP_GEMM)
        return f8_gemm_prepare(x->home->gemms, &s->gemm, f8_exec_threads(x), &l->gemm, diag);
    if (s->kind == F8_STEP_COLLECTIVE || s->kind == F8_STEP_WAIT)
        return make_transfer(x, function, s, f, l, diag);
    return F8_OK;
}

static f8_status make_func(f8_exec *x, uint32_t func, f8_diag *diag)
{
    const f8_plan_func *p = &x->plan->func[func];
    f8_exec_func *f = &x->func[func];
    f->step = F8_NEW_ARRAY(&x->memory, f8_exec_step, p->n_steps);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t i = 0; i < p->n_steps; i++)
        F8_TRY(make_step(x, p->name, &p->step[i], f, &f->step[i], diag));
    return F8_OK;
}

/* ---- life ---- */

static f8_status check_cpu(const f8_plan *plan, f8_diag *diag)
{
    const f8_cpu_features has = f8_cpu_detect();
    char missing[160], name[F8_CPU_NAME];
    if (f8_cpu_suffices(&has, &plan->needs, missing, sizeof missing))
        return F8_OK;
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "code for %s needs %s, which this CPU, %s, lacks", plan->target, missing,
                   f8_cpu_name(name));
}

static f8_status exec_build(f8_exec *x, const f8_exec_options *o, f8_diag *diag)
{
    const f8_plan *plan = x->plan;
    F8_TRY(check_cpu(plan, diag));
    F8_TRY(f8_exec_enter_home(x, o, diag));
    x->func = F8_NEW_ARRAY(&x->memory, f8_exec_func, plan->n_funcs);
    F8_TRY(f8_arena_status(&x->memory, diag));
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        F8_TRY(make_func(x, f, diag));
    F8_TRY(f8_work_lock(x->home->home.work, diag));
    const f8_status status = f8_exec_allocate(x, diag);
    f8_work_unlock(x->home->home.work);
    return status;
}

f8_status f8_exec_create(const f8_plan *plan, const f8_exec_options *options, f8_exec **out,
                         f8_diag *diag)
{
    *out = NULL;
    const f8_allocator allocator =
        options->allocator ? *options->allocator : f8_default_allocator();
    f8_exec *x = allocator.alloc(allocator.user, sizeof *x, 16);
    if (!x)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *x);
    *x = (f8_exec){
        .plan = plan, .allocator = allocator, .comm = options->comm, .profile = options->profile};
    f8_arena_init(&x->memory, &x->allocator);
    const f8_status status = exec_build(x, options, diag);
    if (status != F8_OK) {
        f8_exec_destroy(x);
        return status;
    }
    *out = x;
    return F8_OK;
}

void f8_exec_destroy(f8_exec *x)
{
    if (!x)
        return;
    for (uint32_t f = 0; x->func && f < x->plan->n_funcs; f++)
        for (uint32_t i = 0; x->func[f].step && i < x->plan->func[f].n_steps; i++)
            f8_gemm_release(x->func[f].step[i].gemm);
    f8_exec_leave_home(x);
    f8_arena_end(&x->memory);
    const f8_allocator allocator = x->allocator;
    allocator.free(allocator.user, x, sizeof *x);
}

int f8_exec_threads(const f8_exec *x)
{
    return f8_pool_threads(x->home->pool);
}

/* ---- buffers ---- */

void *f8_exec_var(f8_exec *x, uint32_t var)
{
    return (void *)x->home->home.var[var].at;
}

void f8_exec_bind_var(f8_exec *x, uint32_t var, void *at)
{
    f8_home_bind_var(&x->home->home, var, (uintptr_t)at);
}

f8_status f8_exec_init(f8_exec *x, uint64_t seed, const bool *keep, f8_diag *diag)
{
    for (uint32_t v = 0; v < x->plan->n_vars; v++)
        if (f8_exec_var(x, v) && !(keep && keep[v]))
            f8_init_var(&x->plan->var[v], x->comm ? x->comm->rank : 0, seed, x->home->pool,
                        f8_exec_var(x, v));
    return f8_pool_check(x->home->pool, diag);
}

void *f8_exec_port(f8_exec *x, uint32_t func, bool output, uint32_t port)
{
    return (void *)x->tenant.port[func][output][port].at;
}

void f8_exec_bind(f8_exec *x, uint32_t func, bool output, uint32_t port, void *buffer)
{
    f8_live_port *p = &x->tenant.port[func][output][port];
    p->at = buffer ? (uintptr_t)buffer : p->own;
    f8_home_port_moved(&x->tenant, func);
}

/* ---- running ---- */

/* Adds up the time of a step that took so many seconds. That of a collective which was started is
 * known once it was waited for. */
static void note_seconds(f8_exec *x, f8_exec_func *f, f8_exec_step *l, double seconds)
{
    l->seconds += seconds;
    l->first += f->ran ? 0 : seconds;
    if (l->step->kind == F8_STEP_WAIT && x->home->queue && !x->observer) {
        f8_exec_step *collective = &f->step[l->step->waits];
        collective->seconds += l->transfer->ended - l->transfer->begun;
        collective->first += f->ran ? 0 : l->transfer->ended - l->transfer->begun;
        collective->queued += l->transfer->begun - l->transfer->started;
    }
}

static f8_status run_steps(f8_exec *x, uint32_t func, f8_diag *diag)
{
    f8_exec_func *f = &x->func[func];
    const uint32_t n = x->plan->func[func].n_steps;
    double since = x->profile ? f8_seconds_now() : 0; /* no time is left out between steps */
    for (uint32_t i = 0; i < n; i++) {
        if (x->observer)
            F8_TRY(x->observer->before(x->observer->user, i, diag));
        const f8_status status = f8_exec_run_step(x, &f->step[i], diag);
        if (status != F8_OK)
            return f8_fail(diag, status, F8_NOWHERE, "step '%s' of '%s' failed",
                           f->step[i].step->name, x->plan->func[func].name);
        if (x->observer)
            F8_TRY(x->observer->after(x->observer->user, i, diag));
        if (x->profile && !f8_exec_is_started(x, f->step[i].step)) {
            const double now = f8_seconds_now();
            note_seconds(x, f, &f->step[i], now - since);
            since = now;
        }
    }
    f->ran = true;
    return f8_pool_check(x->home->pool, diag);
}

void f8_exec_observe(f8_exec *x, const f8_observer *observer)
{
    x->observer = observer;
}

const void *f8_exec_look(f8_exec *x, uint32_t func, const f8_arg *at)
{
    return (const void *)(uintptr_t)f8_home_address(&x->tenant, func, at);
}

f8_status f8_exec_fetch(f8_exec *x, uint32_t func, const f8_arg *from, int64_t bytes, void *to,
                        f8_diag *diag)
{
    const void *at = f8_exec_look(x, func, from);
    if (!at)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a step's memory is not bound");
    memcpy(to, at, (size_t)bytes);
    return F8_OK;
}

f8_status f8_exec_run(f8_exec *x, uint32_t func, f8_diag *diag)
{
    f8_work *work = x->home->home.work;
    F8_TRY(f8_work_lock(work, diag));
    const f8_status ready = f8_home_ready(&x->tenant, func, diag),
                    status = ready == F8_OK ? run_steps(x, func, diag) : ready;
    if (ready == F8_OK && status != F8_OK && x->home->queue)
        f8_comm_queue_stop(x->home->queue);
    f8_work_unlock(work);
    return status;
}

/* ---- figures ---- */

int64_t f8_exec_planned_bytes(const f8_exec *x)
{
    return x->tenant.planned;
}

f8_status f8_exec_alloc(f8_exec *x, int64_t bytes, f8_block *out, f8_diag *diag)
{
    return f8_block_alloc(&x->tenant, bytes, "saved values", out, diag);
}

void f8_exec_free(f8_exec *x, f8_block *block)
{
    f8_block_free(&x->home->home, block);
}

int64_t f8_exec_peak_bytes(const f8_exec *x)
{
    return x->home->home.peak;
}

int64_t f8_exec_held_bytes(const f8_exec *x)
{
    return x->home->home.bytes;
}

f8_exec_counts f8_exec_count(const f8_exec *x)
{
    return x->home->home.count;
}

double f8_exec_phase_seconds(const f8_exec *x, uint32_t func, uint32_t step, uint32_t phase)
{
    return x->func[func].step[step].phase_seconds[phase];
}

const char *f8_exec_algorithm(const f8_exec *x, uint32_t func, uint32_t step)
{
    const f8_gemm *gemm = x->func[func].step[step].gemm;
    return gemm ? f8_gemm_algorithm_name(f8_gemm_algorithm_of(gemm)) : NULL;
}

bool f8_exec_goes_on(const f8_exec *x)
{
    return x->home->queue != NULL;
}

double f8_exec_queued_seconds(const f8_exec *x, uint32_t func, uint32_t step)
{
    return x->func[func].step[step].queued;
}

double f8_exec_step_seconds(const f8_exec *x, uint32_t func, uint32_t step)
{
    return x->func[func].step[step].seconds;
}

double f8_exec_first_seconds(const f8_exec *x, uint32_t func, uint32_t step)
{
    return x->func[func].step[step].first;
}
