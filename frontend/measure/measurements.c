/* Sets of measurements: adding, merging processes, figures. See measure.h. */
#include "frontend/measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/hash.h"

static const char *copy(f8_arena *arena, const char *text)
{
    return text && *text ? f8_arena_strdup(arena, text) : "";
}

static bool same(const char *a, const char *b)
{
    return !strcmp(a ? a : "", b ? b : "");
}

/* ---- finding ---- */

/* The items of the table that are measurements of a problem. */
static f8_table_walk walk_to(const char *problem)
{
    return f8_table_find(f8_fnv(F8_FNV, problem ? problem : ""));
}

f8_measurement *f8_measure_find(const f8_measure_set *set, const char *problem, const char *cache,
                                const char *candidate)
{
    f8_table_walk walk = walk_to(problem);
    for (uint32_t i; f8_table_next(&set->by_problem, &walk, &i);) {
        f8_measurement *m = &set->measurement[i];
        if (same(m->problem.text, problem) && same(m->cache, cache) &&
            same(m->candidate, candidate))
            return m;
    }
    return NULL;
}

static bool is_timed(const f8_measurement *m)
{
    return m->state == F8_MEASURE_TIMED && m->n_processes;
}

const f8_measurement *f8_measure_pick(const f8_measure_set *set, const char *problem,
                                      const char *cache)
{
    const f8_measurement *first = NULL;
    f8_table_walk walk = walk_to(problem);
    for (uint32_t i; f8_table_next(&set->by_problem, &walk, &i);) {
        const f8_measurement *m = &set->measurement[i];
        if (!is_timed(m) || !same(m->problem.text, problem) || !same(m->cache, cache))
            continue;
        if (m->kind == F8_MEASURE_MODEL)
            return m;
        if (!first || m < first)
            first = m;
    }
    return first;
}

const f8_measure_process *f8_measure_find_process(const f8_measure_set *set, const char *id)
{
    for (size_t i = 0; i < set->n_processes; i++)
        if (same(set->process[i].id, id))
            return &set->process[i];
    return NULL;
}

bool f8_measure_compares(const f8_measurement *m, const f8_measurement *other)
{
    for (size_t i = 0; i < other->n_processes; i++) {
        bool there = false;
        for (size_t k = 0; !there && k < m->n_processes; k++)
            there = same(m->process[k].process, other->process[i].process);
        if (!there)
            return false;
    }
    return true;
}

/* ---- adding ---- */

f8_status f8_measure_set_about(f8_measure_set *set, const f8_measure_about *about, f8_diag *diag)
{
    f8_arena *arena = &set->arena;
    const f8_measure_about *a = about;
    set->about = (f8_measure_about){.command = copy(arena, a->command),
                                    .version = copy(arena, a->version),
                                    .commit = copy(arena, a->commit),
                                    .device = copy(arena, a->device),
                                    .processor = copy(arena, a->processor),
                                    .target = copy(arena, a->target),
                                    .libraries = copy(arena, a->libraries),
                                    .driver = copy(arena, a->driver),
                                    .governor = copy(arena, a->governor),
                                    .system = copy(arena, a->system),
                                    .threads = a->threads,
                                    .inputs = copy(arena, a->inputs),
                                    .program = copy(arena, a->program)};
    return f8_arena_status(arena, diag);
}

f8_status f8_measure_add_process(f8_measure_set *set, const f8_measure_process *process,
                                 f8_diag *diag)
{
    if (f8_measure_find_process(set, process->id))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "process %s is there twice", process->id);
    f8_measure_process *grown =
        f8_arena_grow(&set->arena, set->process, set->n_processes, &set->room_processes,
                      set->n_processes + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(&set->arena, diag);
    set->process = grown;
    f8_measure_process *to = &grown[set->n_processes];
    *to = *process;
    to->id = copy(&set->arena, process->id);
    to->date = copy(&set->arena, process->date);
    F8_TRY(f8_arena_status(&set->arena, diag));
    set->n_processes++;
    return F8_OK;
}

static f8_measure_problem copy_problem(f8_arena *arena, const f8_measure_problem *p)
{
    f8_measure_problem to = *p;
    to.text = copy(arena, p->text);
    to.name = copy(arena, p->name);
    to.a = copy(arena, p->a);
    to.b = copy(arena, p->b);
    to.scaling = copy(arena, p->scaling);
    to.role = copy(arena, p->role);
    to.epilogue = copy(arena, p->epilogue);
    to.layout = copy(arena, p->layout);
    return to;
}

/* Where a measurement that is new belongs: behind those of its problem and cache, but the model's
 * way before, and peers behind all. */
static size_t place_of(const f8_measure_set *set, const f8_measurement *m)
{
    size_t of_problem = 0, before = 0, first = SIZE_MAX;
    f8_table_walk walk = walk_to(m->problem.text);
    for (uint32_t i; f8_table_next(&set->by_problem, &walk, &i);) {
        const f8_measurement *other = &set->measurement[i];
        if (!same(other->problem.text, m->problem.text))
            continue;
        of_problem = i >= of_problem ? i + 1 : of_problem;
        if (!same(other->cache, m->cache))
            continue;
        first = i < first ? i : first;
        if (other->kind <= m->kind && i >= before)
            before = i + 1;
    }
    return before ? before : first < SIZE_MAX ? first : of_problem ? of_problem : SIZE_MAX;
}

static f8_status enter(f8_measure_set *set, size_t index, f8_diag *diag)
{
    const uint64_t hash = f8_fnv(F8_FNV, set->measurement[index].problem.text);
    return f8_table_add(&set->by_problem, &set->arena, hash, (uint32_t)index, diag);
}

/* Make room at a place for a measurement that is known to the table. */
static f8_status insert(f8_measure_set *set, const f8_measurement *m, size_t at, f8_diag *diag)
{
    f8_measurement *grown =
        f8_arena_grow(&set->arena, set->measurement, set->n_measurements, &set->room_measurements,
                      set->n_measurements + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(&set->arena, diag);
    set->measurement = grown;
    const size_t n = set->n_measurements++;
    at = at < n ? at : n;
    memmove(&grown[at + 1], &grown[at], (n - at) * sizeof *grown);
    grown[at] = *m;
    if (at == n)
        return enter(set, n, diag);
    f8_table_clear(&set->by_problem);
    for (size_t i = 0; i <= n; i++)
        F8_TRY(enter(set, i, diag));
    return F8_OK;
}

/* Add a measurement without its runs. */
static f8_status add_facts(f8_measure_set *set, const f8_measurement *m, f8_diag *diag)
{
    f8_arena *arena = &set->arena;
    f8_measurement own = *m;
    own.problem = copy_problem(arena, &m->problem);
    own.cache = copy(arena, m->cache);
    own.candidate = copy(arena, m->candidate);
    own.operands = copy(arena, m->operands);
    own.reason = copy(arena, m->reason);
    own.unit = copy(arena, m->unit);
    own.process = NULL;
    own.n_processes = own.runs = 0;
    own.median = own.quartile[0] = own.quartile[1] = own.least = own.rate = own.share = NAN;
    own.limit = 0;
    F8_TRY(f8_arena_status(arena, diag));
    return insert(set, &own, place_of(set, &own), diag);
}

static void merge_facts(f8_arena *arena, f8_measurement *to, const f8_measurement *m)
{
    if (m->state < to->state) { /* timed says more than lacking, which says more than late */
        to->state = m->state;
        to->reason = copy(arena, m->reason);
    }
    if (!*to->operands)
        to->operands = copy(arena, m->operands);
    if (!*to->unit)
        to->unit = copy(arena, m->unit);
    if (to->same_bits == F8_MEASURE_UNKNOWN || m->same_bits == F8_MEASURE_NO)
        to->same_bits = m->same_bits;
    if (isnan(to->compile_seconds))
        to->compile_seconds = m->compile_seconds;
    to->error = fmax(to->error, m->error); /* NaN only where both are */
    to->chosen |= m->chosen;
}

/* Add runs to those of their process, or as those of a new one. */
static f8_status add_runs(f8_measure_set *set, f8_measurement *to, const f8_measure_runs *from,
                          f8_diag *diag)
{
    f8_arena *arena = &set->arena;
    size_t at = 0;
    while (at < to->n_processes && !same(to->process[at].process, from->process))
        at++;
    const bool is_new = at == to->n_processes;
    const size_t before = is_new ? 0 : to->process[at].n;
    double *seconds = F8_NEW_ARRAY(arena, double, before + from->n);
    f8_measure_runs *all =
        is_new ? F8_NEW_ARRAY(arena, f8_measure_runs, to->n_processes + 1) : to->process;
    const f8_measure_process *known = f8_measure_find_process(set, from->process);
    const char *id = known ? known->id : copy(arena, from->process);
    F8_TRY(f8_arena_status(arena, diag));
    if (is_new && at)
        memcpy(all, to->process, at * sizeof *all);
    if (before)
        memcpy(seconds, all[at].seconds, before * sizeof *seconds);
    memcpy(seconds + before, from->seconds, from->n * sizeof *seconds);
    all[at] = (f8_measure_runs){id, seconds, before + from->n};
    to->process = all;
    to->n_processes += is_new;
    return F8_OK;
}

f8_status f8_measure_add(f8_measure_set *set, const f8_measurement *m, f8_diag *diag)
{
    f8_measurement *to = f8_measure_find(set, m->problem.text, m->cache, m->candidate);
    if (to) {
        merge_facts(&set->arena, to, m);
        F8_TRY(f8_arena_status(&set->arena, diag));
    } else {
        F8_TRY(add_facts(set, m, diag));
        to = f8_measure_find(set, m->problem.text, m->cache, m->candidate);
    }
    for (size_t i = 0; i < m->n_processes; i++)
        if (m->process[i].n)
            F8_TRY(add_runs(set, to, &m->process[i], diag));
    return F8_OK;
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double f8_measure_quantile(double *x, size_t n, double q)
{
    qsort(x, n, sizeof *x, compare);
    const double at = (double)(n - 1) * q;
    const size_t low = (size_t)at;
    if (low + 1 >= n)
        return x[n - 1];
    return x[low] + (at - (double)low) * (x[low + 1] - x[low]);
}

/* The median of what the processes of a measurement found a limit to be; 0: none knows. `member`
 * is its offset in f8_measure_limits; `scratch` has room for two of each process. */
static double limit_of(const f8_measure_set *set, const f8_measurement *m, size_t member,
                       double *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_processes; i++) {
        const f8_measure_process *p = f8_measure_find_process(set, m->process[i].process);
        for (int after = 0; p && after < 2; after++) {
            const void *limits = after ? &p->after : &p->before;
            const double x = *(const double *)((const char *)limits + member);
            if (x > 0)
                scratch[n++] = x;
        }
    }
    return n ? f8_measure_quantile(scratch, n, 0.5) : 0;
}

/* The roofline. A warm cache is faster than the memory by nobody knows how much, so that a kernel
 * has no limit there. */
static double roofline(const f8_measure_set *set, const f8_measurement *m, double *scratch)
{
    static const struct {
        const char *name;
        size_t member;
    } units[] = {{"f32", offsetof(f8_measure_limits, flops_f32)},
                 {"bf16", offsetof(f8_measure_limits, flops_bf16)},
                 {"fp8", offsetof(f8_measure_limits, flops_fp8)}};
    const f8_measure_problem *p = &m->problem;
    const bool warm = !strcmp(m->cache, "warm");
    const double memory = warm ? 0 : limit_of(set, m, offsetof(f8_measure_limits, bytes), scratch);
    double peak = 0;
    if (!(p->flops > 0))
        return memory;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(m->unit, units[i].name))
            peak = limit_of(set, m, units[i].member, scratch);
    if (warm || !(peak > 0))
        return peak;
    return memory > 0 && p->bytes > 0 ? fmin(peak, memory * p->flops / p->bytes) : 0;
}

/* Make a measurement's figures. `scratch` has room for all its runs, and two of each process. */
static void make_figures(const f8_measure_set *set, f8_measurement *m, double *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_processes; i++)
        for (size_t j = 0; j < m->process[i].n; j++)
            scratch[n++] = m->process[i].seconds[j];
    m->runs = n;
    m->median = m->quartile[0] = m->quartile[1] = m->least = m->rate = m->share = NAN;
    m->limit = 0;
    if (!n)
        return;
    m->median = f8_measure_quantile(scratch, n, 0.5);
    m->quartile[0] = f8_measure_quantile(scratch, n, 0.25);
    m->quartile[1] = f8_measure_quantile(scratch, n, 0.75);
    m->least = scratch[0]; /* sorted by now */
    const double work = m->problem.flops > 0 ? m->problem.flops : m->problem.bytes;
    if (m->median > 0 && work > 0)
        m->rate = work / m->median;
    m->limit = roofline(set, m, scratch);
    if (m->limit > 0)
        m->share = m->rate / m->limit;
}

f8_status f8_measure_figures(f8_measure_set *set, f8_diag *diag)
{
    size_t most = 1;
    for (size_t i = 0; i < set->n_measurements; i++) {
        const f8_measurement *m = &set->measurement[i];
        size_t n = 2 * m->n_processes;
        for (size_t j = 0; j < m->n_processes; j++)
            n += m->process[j].n;
        most = n > most ? n : most;
    }
    double *scratch = F8_NEW_ARRAY(&set->arena, double, most);
    if (!scratch)
        return f8_arena_status(&set->arena, diag);
    for (size_t i = 0; i < set->n_measurements; i++)
        make_figures(set, &set->measurement[i], scratch);
    return F8_OK;
}

bool f8_measure_was_loaded(const f8_measure_set *set)
{
    for (size_t i = 0; i < set->n_processes; i++) {
        const f8_measure_process *p = &set->process[i];
        if (p->cpus > 0 && p->load > (double)p->cpus)
            return true;
    }
    return false;
}
