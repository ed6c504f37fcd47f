/* Multi-tensor launches: steps of one function that run the same kernel become one.
 *
 * An optimizer has one small kernel per parameter, and a backward pass small kernels per layer that
 * finish sums; a launch costs more than such a kernel. A step may move to another of its kernel,
 * earlier or later, when all that it needs still comes before it and all that needs it after: no
 * value can tell. Row and copy kernels only, of one launch each; each instance does what its own
 * launch did.
 *
 * What must come before what is read off the bytes that steps touch: a read after what wrote them,
 * a write after what read or wrote them before. A temporary (build_rename.c) that is given bytes of
 * its own has but its writer and its readers, and that is what frees most steps. Then, twice
 * greedy: from the end, small steps go as late as they may, a chain of finishing kernels to its
 * last layer; from the start, launches go as early as they may. Order is given by `at`: a launch
 * runs where its host, one of its steps, stood.
 *
 * Bytes that are needed for longer are bytes of the arena. A step moves only as far as they stay
 * within a budget, which is why a long chain becomes a launch every so many layers. It is done
 * twice: first as if all temporaries had bytes of their own and these were free, which shows the
 * ones that should; then in earnest. */
#include "codegen/plan/merge.h"

#include <string.h>

/* Reading and writing so much takes about as long as a launch: what moves more stays with what made
 * its operands, which may still be in cache. */
enum { SMALL_STEP = 8 << 20 };
/* Bytes of temporaries: a part of the program's own, or what is little anywhere. */
enum { BUDGET_PART = 128, BUDGET_LEAST = 8 << 20, ATTEMPTS = 8 };

typedef struct merger {
    f8_build *b;
    f8_arena *tmp;
    uint32_t n; /* steps */
    f8_build_temp *temp;
    uint32_t n_temps;
    uint32_t *before; /* by step: where those that must come before it begin in `need`; [n] */
    uint32_t *need;
    size_t n_need, need_room;
    uint32_t *at;       /* by step: its launch's place in the order, that of the launch's host */
    uint32_t *count;    /* by host: instances */
    uint32_t *chain;    /* by host: the next one of its unit */
    uint32_t *head;     /* by unit: the newest host; n: none */
    int64_t *usage;     /* by place: bytes that temporaries with bytes of their own need then */
    int64_t most_usage; /* what a step must not bring it above */
} merger;

/* ---- what must come before what ---- */

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

/* Pieces are marked with the step that wrote them, + 1, and with those that read them since. */
static bool need_bytes(merger *m, f8_bytes *bytes, uint32_t step, const f8_build_access *a)
{
    size_t first, end;
    if (!f8_bytes_cut(bytes, a, &first, &end))
        return false;
    for (size_t i = first; i < end; i++) {
        if (!add_need(m, step, bytes->piece[i].writer))
            return false;
        if (!a->write && !f8_bytes_add_other(bytes, i, step + 1))
            return false;
        for (uint32_t k = a->write ? bytes->piece[i].others : 0; k; k = bytes->other[k].next)
            if (!add_need(m, step, bytes->other[k].mark))
                return false;
    }
    if (a->write)
        f8_bytes_replace(bytes, first, end, step + 1);
    return true;
}

static f8_status find_needs(merger *m)
{
    f8_bytes bytes = {.arena = m->tmp};
    uint32_t *writer = F8_NEW_ARRAY(m->tmp, uint32_t, m->n_temps + 1); /* of temporaries: + 1 */
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
                    there = need_bytes(m, &bytes, s, a);
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

/* From the step that writes it to the last that reads it, wherever they are. */
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

/* Bytes that a step must hold longer to run at `to`: what it reads until then, or writes since. */
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

/* At all places between a step's own and where it is to go to, that one too. */
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

/* The most instances of a launch of this step's kernel; 0: it is none that can have many. */
static uint32_t most_instances(const merger *m, uint32_t step)
{
    const f8_step_builder *d = &m->b->builder[step];
    if (!f8_build_simple(m->b, d))
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

/* From the end: a small step goes to the last launch of its kernel that is before `end`, where what
 * needs it begins. */
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

/* `next`: lists of a launch's steps, each from its host on; they end with n. */
static uint32_t earlier_host(merger *m, const uint32_t *next, uint32_t host)
{
    const uint32_t most = most_instances(m, host);
    uint32_t best = host, begin = 0; /* the first place after all that it needs */
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

/* From the start: a launch goes to the first of its kernel that is after all that it needs. */
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

/* Sets `at` and `count`, for the temporaries that have bytes of their own. */
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

/* ---- lists ---- */

/* A step for the launch of `host`: all of it when it has one instance, else empty and with room. */
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
    s->name = NULL;
    return F8_OK;
}

/* One more instance: what step `from` does. */
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

/* ---- all of it ---- */

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

/* Own bytes for the temporaries of launches with many instances, as they are arranged now. */
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
    /* Gaps between bytes that are in use take room too: with less in use until all fits; the last
     * time there is nothing. */
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
