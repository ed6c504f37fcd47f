/* Multi-tensor launches: steps of one function that run the same kernel become one launch.
 *
 * An optimizer has one small kernel for each parameter, and a backward pass has small kernels in
 * each layer that finish sums. A launch costs more time than such a kernel. A step may move to
 * another step of its kernel, earlier or later, if everything it depends on still runs before it
 * and everything that depends on it still runs after it. No value can then differ. Only steps of
 * one launch of a row or copy kernel move. Each instance does what its own launch did.
 *
 * Dependencies follow from the bytes that steps access: a read depends on the write before it, and
 * a write depends on the writes and reads before it. A temporary (rename.c) that gets bytes of its
 * own depends only on its writer, and only its readers depend on it; that frees most steps. The
 * merging is greedy, twice. From the end of the function, small steps move to the latest launch
 * they may join: a chain of finishing kernels moves to its last layer. From the start, launches
 * move to the earliest launch they may join. `at` is the order: a launch runs where its host stood,
 * which is one of its steps.
 *
 * Bytes that are needed for longer take room in the arena. A step moves only as far as these bytes
 * stay within a budget; so a long chain becomes one launch every few layers. All this runs twice.
 * The first run assumes that every temporary has bytes of its own and that these cost nothing,
 * which shows the temporaries that should have their own. The second run counts the bytes. */
#include "codegen/plan/merge.h"

#include <string.h>

/* A step that reads and writes this many bytes takes about as long as a launch. A larger step stays
 * after the step that made its operands, which may still be in a cache. */
enum { SMALL_STEP = 8 << 20 };
/* A step that transposes this many bytes keeps its launch: alone, its rows come by asynchronous
 * copies. */
enum { LARGE_TRANSPOSE = 32 << 20 };
/* The budget: this part of the arena, or this many bytes if that is more. */
enum { BUDGET_PART = 128, BUDGET_LEAST = 8 << 20, ATTEMPTS = 8 };

typedef struct merger {
    f8_build *b;
    f8_arena *tmp;
    uint32_t n; /* steps */
    f8_build_temp *temp;
    uint32_t n_temps;
    /* by step: start of the steps that must run before it, in `need`; [n] is the end */
    uint32_t *before;
    uint32_t *need;
    size_t n_need, need_room;
    /* by step: the place of its launch in the order, which is the place of the host */
    uint32_t *at;
    uint32_t *count;    /* by host: instances */
    uint32_t *chain;    /* by host: the next host of the same kernel */
    uint32_t *head;     /* by kernel: the host found last; n: none */
    int64_t *usage;     /* by place: bytes that temporaries with bytes of their own need there */
    int64_t most_usage; /* no step may raise `usage` above this */
} merger;

/* ---- dependencies ---- */

static bool own_bytes(const merger *m, const f8_build_access *a)
{
    return a->temp && m->temp[a->temp - 1].own;
}

static bool add_need(merger *m, uint32_t step, uint32_t mark)
{
    if (!mark || mark - 1 == step)
        return true;
    uint32_t *grown =
        f8_arena_grow(m->tmp, m->need, m->n_need, &m->need_room, m->n_need + 1, sizeof *grown);
    if (!grown)
        return false;
    m->need = grown;
    grown[m->n_need++] = mark - 1;
    return true;
}

/* The step whose accesses are followed. Its mark, and that of what it must follow, is a step's
 * number + 1. */
typedef struct follower {
    merger *m;
    uint32_t step;
} follower;

static bool must_follow(void *user, uint32_t mark)
{
    const follower *f = user;
    return add_need(f->m, f->step, mark);
}

static f8_status find_needs(merger *m)
{
    f8_bytes bytes = {.arena = m->tmp};
    /* by temporary: its writing step, + 1 */
    uint32_t *writer = F8_NEW_ARRAY(m->tmp, uint32_t, m->n_temps + 1);
    bool there = writer != NULL;
    m->n_need = 0;
    for (uint32_t s = 0; there && s < m->n; s++) {
        const f8_step_builder *d = &m->b->builder[s];
        m->before[s] = (uint32_t)m->n_need;
        for (int write = 0; write < 2; write++)
            for (uint32_t i = 0; there && i < d->n_accesses; i++) {
                const f8_build_access *a = &d->access[i];
                if (a->write != write)
                    continue;
                if (!own_bytes(m, a))
                    there = f8_bytes_follow(&bytes, a, s + 1, must_follow, &(follower){m, s});
                else if (write)
                    writer[a->temp - 1] = s + 1;
                else
                    there = add_need(m, s, writer[a->temp - 1]);
            }
    }
    m->before[m->n] = (uint32_t)m->n_need;
    return there ? F8_OK : f8_arena_status(m->tmp, m->b->diag);
}

/* ---- bytes over time ---- */

static void use(merger *m, const f8_build_temp *t, int64_t sign)
{
    for (uint32_t i = t->first; i <= t->last; i++)
        m->usage[i] += sign * (t->end - t->begin);
}

static void reach(merger *m, f8_build_temp *t, uint32_t first, uint32_t last)
{
    use(m, t, -1);
    t->first = first;
    t->last = last;
    use(m, t, 1);
}

/* Each temporary is needed from the step that writes it to the last step that reads it, wherever
 * they stand now. */
static void find_reaches(merger *m)
{
    memset(m->usage, 0, m->n * sizeof *m->usage);
    for (int write = 1; write >= 0; write--)
        for (uint32_t s = 0; s < m->n; s++)
            for (uint32_t i = 0; i < m->b->builder[s].n_accesses; i++) {
                const f8_build_access *a = &m->b->builder[s].access[i];
                if (!own_bytes(m, a) || a->write != write)
                    continue;
                f8_build_temp *t = &m->temp[a->temp - 1];
                if (write)
                    t->first = t->last = m->at[s];
                else if (m->at[s] > t->last)
                    t->last = m->at[s];
            }
    for (uint32_t i = 0; i < m->n_temps; i++)
        if (m->temp[i].own)
            use(m, &m->temp[i], 1);
}

/* Bytes that are needed for longer if the step runs at `to`: what it reads until then, and what it
 * writes since. */
static int64_t holds(const merger *m, uint32_t step, uint32_t to)
{
    const f8_step_builder *d = &m->b->builder[step];
    int64_t bytes = 0;
    for (uint32_t i = 0; i < d->n_accesses; i++) {
        const f8_build_access *a = &d->access[i];
        if (!own_bytes(m, a))
            continue;
        const f8_build_temp *t = &m->temp[a->temp - 1];
        if (a->write ? to < t->first : to > t->last)
            bytes += t->end - t->begin;
    }
    return bytes;
}

/* Whether `bytes` more fit at every place from the step's own, which is excluded, to `to`, which is
 * included. */
static bool has_room(const merger *m, uint32_t from, uint32_t to, int64_t bytes)
{
    const uint32_t begin = from < to ? from + 1 : to, end = from < to ? to + 1 : from;
    for (uint32_t i = begin; bytes && i < end; i++)
        if (m->usage[i] + bytes > m->most_usage)
            return false;
    return true;
}

static void move(merger *m, uint32_t step, uint32_t to)
{
    const f8_step_builder *d = &m->b->builder[step];
    m->at[step] = to;
    for (uint32_t i = 0; i < d->n_accesses; i++) {
        if (!own_bytes(m, &d->access[i]))
            continue;
        f8_build_temp *t = &m->temp[d->access[i].temp - 1];
        if (d->access[i].write)
            reach(m, t, to, t->last > to ? t->last : to);
        else if (to > t->last)
            reach(m, t, t->first, to);
    }
}

/* ---- hosts ---- */

static bool is_large_transpose(const merger *m, uint32_t step)
{
    const f8_step *s = &m->b->out->step[step];
    const f8_kernel *k = m->b->source[m->b->builder[step].launch->source].kernel;
    return k && s->bytes_read + s->bytes_written >= LARGE_TRANSPOSE && f8_kernel_transposes(k);
}

/* The most instances that a launch of this step's kernel can have; 0: one only. */
static uint32_t most_instances(const merger *m, uint32_t step)
{
    const f8_step_builder *d = &m->b->builder[step];
    if (!f8_build_simple(m->b, d) || is_large_transpose(m, step))
        return 0;
    const uint32_t most = m->b->target->most_instances(&m->b->source[d->launch->source]);
    return most < 2 ? 0 : most;
}

static uint32_t *newest_host(merger *m, uint32_t step)
{
    return &m->head[m->b->builder[step].launch->source];
}

static void add_host(merger *m, uint32_t step)
{
    uint32_t *head = newest_host(m, step);
    m->chain[step] = *head;
    *head = step;
}

static void forget_hosts(merger *m)
{
    for (uint32_t i = 0; i < m->b->n_sources; i++)
        m->head[i] = m->n;
}

/* Where a small step goes, from the end: to the last launch of its kernel before `end`, the place
 * of the first step that depends on it. */
static uint32_t later_host(merger *m, uint32_t step, uint32_t end)
{
    const f8_step *s = &m->b->out->step[step];
    const uint32_t most = most_instances(m, step);
    uint32_t best = step;
    if (!most || s->bytes_read + s->bytes_written > SMALL_STEP)
        return step;
    for (uint32_t h = *newest_host(m, step); h < end; h = m->chain[h]) {
        if (!has_room(m, step, h, holds(m, step, h)))
            break;
        if (m->count[h] < most)
            best = h;
    }
    return best;
}

static f8_status sink(merger *m)
{
    uint32_t *end = F8_NEW_ARRAY(m->tmp, uint32_t, m->n + 1);
    if (!end)
        return f8_arena_status(m->tmp, m->b->diag);
    for (uint32_t s = 0; s < m->n; s++)
        end[s] = m->n;
    forget_hosts(m);
    for (uint32_t s = m->n; s-- > 0;) {
        const uint32_t host = later_host(m, s, end[s]);
        if (host != s)
            move(m, s, host);
        else if (most_instances(m, s))
            add_host(m, s);
        m->count[host]++;
        for (uint32_t i = m->before[s]; i < m->before[s + 1]; i++)
            if (host < end[m->need[i]])
                end[m->need[i]] = host;
    }
    return F8_OK;
}

/* The earliest launch that the launch of `host` can join. `next` lists the steps of each launch,
 * from the host on; n ends a list. */
static uint32_t earlier_host(merger *m, const uint32_t *next, uint32_t host)
{
    const uint32_t most = most_instances(m, host);
    uint32_t best = host, begin = 0; /* the first place after all steps that it depends on */
    if (!most)
        return host;
    for (uint32_t s = host; s < m->n; s = next[s])
        for (uint32_t i = m->before[s]; i < m->before[s + 1]; i++)
            if (m->at[m->need[i]] >= begin)
                begin = m->at[m->need[i]] + 1;
    for (uint32_t h = *newest_host(m, host); h < m->n && h >= begin; h = m->chain[h]) {
        int64_t bytes = 0;
        for (uint32_t s = host; s < m->n; s = next[s])
            bytes += holds(m, s, h);
        if (!has_room(m, host, h, bytes))
            break;
        if (m->count[h] + m->count[host] <= most)
            best = h;
    }
    return best;
}

/* From the start, each launch joins the first launch of its kernel that runs after all that it
 * depends on. */
static f8_status hoist(merger *m)
{
    uint32_t *next = F8_NEW_ARRAY(m->tmp, uint32_t, m->n + 1);
    if (!next)
        return f8_arena_status(m->tmp, m->b->diag);
    for (uint32_t s = 0; s < m->n; s++)
        next[s] = m->n;
    for (uint32_t s = 0; s < m->n; s++)
        if (m->at[s] != s) {
            next[s] = next[m->at[s]];
            next[m->at[s]] = s;
        }
    forget_hosts(m);
    for (uint32_t s = 0; s < m->n; s++) {
        if (m->at[s] != s)
            continue;
        const uint32_t host = earlier_host(m, next, s);
        if (host == s) {
            if (most_instances(m, s))
                add_host(m, s);
            continue;
        }
        m->count[host] += m->count[s];
        m->count[s] = 0;
        for (uint32_t k = s; k < m->n; k = next[k])
            move(m, k, host);
    }
    return F8_OK;
}

/* Sets `at` and `count`, given which temporaries have bytes of their own. */
static f8_status arrange(merger *m, int64_t most_usage)
{
    for (uint32_t s = 0; s < m->n; s++) {
        m->at[s] = s;
        m->count[s] = 0;
    }
    m->most_usage = most_usage;
    F8_TRY(find_needs(m));
    find_reaches(m);
    F8_TRY(sink(m));
    F8_TRY(hoist(m));
    find_reaches(m);
    return F8_OK;
}

/* ---- the new list of steps ---- */

/* Makes the step for the launch of `host`. A launch of one instance is copied; for more, the step
 * is empty with room for all. */
static f8_status open_launch(const merger *m, uint32_t host, f8_step *s, f8_step_builder *d)
{
    f8_arena *a = m->b->arena;
    const uint32_t n = m->count[host];
    *s = m->b->out->step[host];
    *d = m->b->builder[host];
    d->origin = F8_NEW_ARRAY(a, uint32_t, n);
    d->n_origins = 0;
    if (n == 1 || !d->origin)
        return f8_arena_status(a, m->b->diag);
    s->arg = F8_NEW_ARRAY(a, f8_arg, n * s->n_args + 1);
    s->ints = F8_NEW_ARRAY(a, int64_t, n * s->n_ints + 1);
    d->access = F8_NEW_ARRAY(a, f8_build_access, n * d->n_accesses + 1);
    d->launch = F8_NEW_ARRAY(a, f8_build_launch, 1);
    int64_t *n_tasks = F8_NEW_ARRAY(a, int64_t, n);
    if (!s->arg || !s->ints || !d->access || !d->launch || !n_tasks)
        return f8_arena_status(a, m->b->diag);
    *d->launch = *m->b->builder[host].launch;
    d->launch->n_tasks = n_tasks;
    d->launch->n_instances = d->n_accesses = s->n_args = s->n_ints = 0;
    s->bytes_read = s->bytes_written = 0;
    s->seconds = s->flops = 0;
    s->name = NULL;
    return F8_OK;
}

/* Adds one instance: what step `from` does. */
static void add_instance(const merger *m, uint32_t from, f8_step *s, f8_step_builder *d)
{
    const f8_step *t = &m->b->out->step[from];
    const f8_step_builder *e = &m->b->builder[from];
    d->origin[d->n_origins++] = from;
    if (m->count[m->at[from]] == 1)
        return;
    memcpy(s->arg + s->n_args, t->arg, t->n_args * sizeof *t->arg);
    memcpy(s->ints + s->n_ints, t->ints, t->n_ints * sizeof *t->ints);
    memcpy(d->access + d->n_accesses, e->access, e->n_accesses * sizeof *e->access);
    d->launch->n_tasks[d->launch->n_instances++] = *e->launch->n_tasks;
    s->n_args += t->n_args;
    s->n_ints += t->n_ints;
    d->n_accesses += e->n_accesses;
    s->bytes_read += t->bytes_read;
    s->bytes_written += t->bytes_written;
    s->seconds += t->seconds;
    s->flops += t->flops;
    if (!s->name)
        s->name =
            f8_arena_printf(m->b->arena, "%s and %u more", t->name, m->count[m->at[from]] - 1);
}

static f8_status rewrite(merger *m)
{
    f8_build *b = m->b;
    uint32_t *launch = F8_NEW_ARRAY(m->tmp, uint32_t, m->n + 1); /* by host */
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->n; s++)
        n += m->at[s] == s;
    f8_step *step = F8_NEW_ARRAY(b->arena, f8_step, n + 1);
    f8_step_builder *builder = F8_NEW_ARRAY(b->arena, f8_step_builder, n + 1);
    if (!launch || !step || !builder)
        return f8_arena_status(launch ? b->arena : m->tmp, b->diag);
    n = 0;
    for (uint32_t s = 0; s < m->n; s++)
        if (m->at[s] == s) {
            F8_TRY(open_launch(m, s, &step[n], &builder[n]));
            launch[s] = n++;
        }
    for (uint32_t s = 0; s < m->n; s++)
        add_instance(m, s, &step[launch[m->at[s]]], &builder[launch[m->at[s]]]);
    b->out->step = step;
    b->out->n_steps = n;
    b->builder = builder;
    return f8_build_memory(b);
}

/* ---- the entry ---- */

static f8_status prepare(merger *m)
{
    m->n = m->b->out->n_steps;
    F8_TRY(f8_build_find_temps(m->b, m->tmp, &m->temp, &m->n_temps));
    m->before = F8_NEW_ARRAY(m->tmp, uint32_t, m->n + 1);
    m->at = F8_NEW_ARRAY(m->tmp, uint32_t, m->n + 1);
    m->count = F8_NEW_ARRAY(m->tmp, uint32_t, m->n + 1);
    m->chain = F8_NEW_ARRAY(m->tmp, uint32_t, m->n + 1);
    m->head = F8_NEW_ARRAY(m->tmp, uint32_t, m->b->n_sources + 1);
    m->usage = F8_NEW_ARRAY(m->tmp, int64_t, m->n + 1);
    return f8_arena_status(m->tmp, m->b->diag);
}

/* Chooses the temporaries that get bytes of their own: those that launches with many instances
 * access, in the current order. */
static void choose_temps(merger *m, bool *chosen)
{
    for (uint32_t s = 0; s < m->n; s++)
        for (uint32_t i = 0; i < m->b->builder[s].n_accesses; i++)
            if (m->b->builder[s].access[i].temp && m->count[m->at[s]] > 1)
                chosen[m->b->builder[s].access[i].temp - 1] = true;
}

static f8_status merge(merger *m)
{
    f8_build *b = m->b;
    const int64_t part = b->func->lowered->arena_bytes / BUDGET_PART;
    const int64_t most =
        b->options->arena_most ? b->options->arena_most - f8_build_renamed_base(b) : INT64_MAX;
    const int64_t wish = part > BUDGET_LEAST ? part : BUDGET_LEAST;
    const int64_t budget = wish < most ? wish : most > 0 ? most : 0;
    F8_TRY(prepare(m));
    bool *chosen = F8_NEW_ARRAY(m->tmp, bool, m->n_temps + 1);
    if (!chosen)
        return f8_arena_status(m->tmp, b->diag);
    for (uint32_t i = 0; i < m->n_temps; i++)
        m->temp[i].own = true;
    F8_TRY(arrange(m, INT64_MAX));
    choose_temps(m, chosen);
    /* Gaps between the bytes in use take room too. Each attempt allows fewer bytes, until all fit;
     * the last attempt allows none. */
    for (int k = 0; k <= ATTEMPTS; k++) {
        for (uint32_t i = 0; i < m->n_temps; i++)
            m->temp[i].own =
                chosen[i] && k < ATTEMPTS && m->temp[i].end - m->temp[i].begin <= budget >> k;
        F8_TRY(arrange(m, budget / ATTEMPTS * (ATTEMPTS - k)));
        F8_TRY(f8_build_place_temps(m->tmp, m->temp, m->n_temps, f8_build_renamed_base(b),
                                    &b->renamed, b->diag));
        if (b->renamed <= budget)
            break;
    }
    f8_build_move_temps(b, m->temp);
    return rewrite(m);
}

f8_status f8_build_merge(f8_build *b)
{
    f8_arena tmp;
    f8_arena_init(&tmp, b->options->allocator);
    merger m = {.b = b, .tmp = &tmp};
    const f8_status s = merge(&m);
    f8_arena_end(&tmp);
    return s;
}
