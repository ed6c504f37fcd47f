/* The timeline of a plan: see timeline.h. An insertion or removal costs the actions after it, which
 * move, and the stretches in which a lifetime changes, in plain sweeps over arrays. With some
 * thousand actions that is faster than any tree. */
#include "passes/remat/timeline.h"

#include <string.h>

/* ---- the problem without repetitions ---- */

/* Append to `row` those of `list` that it lacks. Rows are short. */
static uint32_t append_unique(uint32_t *row, uint32_t n, const uint32_t *list, uint32_t n_list)
{
    for (uint32_t i = 0; i < n_list; i++) {
        uint32_t k = 0;
        while (k < n && row[k] != list[i])
            k++;
        if (k == n)
            row[n++] = list[i];
    }
    return n;
}

static void find_first(f8_remat_timeline *t)
{
    const f8_remat_problem *p = t->p;
    for (uint32_t v = 0; v < p->n_values; v++) {
        t->first[v] = p->n_steps + 1;
        t->ready[v] = p->value[v].seconds >= 0 ? 0 : p->n_steps + 1;
    }
    for (uint32_t s = 0; s < p->n_steps; s++)
        for (uint32_t i = 0; i < p->step[s].n_write; i++) {
            const uint32_t v = p->step[s].write[i];
            if (t->first[v] > p->n_steps)
                t->first[v] = s;
            else if (t->first[v] != s)
                t->ready[v] = p->n_steps + 1;
        }
    for (uint32_t v = 0; v < p->n_values; v++) {
        const f8_remat_value *x = &p->value[v];
        uint32_t ready = t->first[v] + 1;
        for (uint32_t i = 0; i < x->n_from; i++)
            if (x->from[i] == v)
                ready = p->n_steps + 1;
            else if (t->first[x->from[i]] + 1 > ready)
                ready = t->first[x->from[i]] + 1;
        if (ready > t->ready[v])
            t->ready[v] = ready;
    }
}

static void step_row(f8_remat_timeline *t, uint32_t s)
{
    const f8_remat_step *x = &t->p->step[s];
    uint32_t *need = t->need + t->need_at[s], *make = t->make + t->make_at[s], n_need, n_make = 0;
    n_need = append_unique(need, 0, x->read, x->n_read);
    for (uint32_t i = 0; i < x->n_write; i++) {
        const bool made = t->first[x->write[i]] == s;
        if (made)
            n_make = append_unique(make, n_make, &x->write[i], 1);
        else
            n_need = append_unique(need, n_need, &x->write[i], 1);
    }
    t->need_at[s + 1] = t->need_at[s] + n_need;
    t->make_at[s + 1] = t->make_at[s] + n_make;
}

static f8_status make_rows(f8_remat_timeline *t, f8_diag *diag)
{
    const f8_remat_problem *p = t->p;
    size_t accesses = p->n_values, rows = (size_t)p->n_steps + p->n_values;
    for (uint32_t s = 0; s < p->n_steps; s++)
        accesses += (size_t)p->step[s].n_read + p->step[s].n_write;
    for (uint32_t v = 0; v < p->n_values; v++)
        accesses += p->value[v].n_from;
    t->need_at = F8_NEW_ARRAY(t->arena, uint32_t, rows + 2);
    t->make_at = F8_NEW_ARRAY(t->arena, uint32_t, (size_t)p->n_steps + 1);
    t->need = F8_NEW_ARRAY(t->arena, uint32_t, accesses);
    t->make = F8_NEW_ARRAY(t->arena, uint32_t, accesses);
    t->first = F8_NEW_ARRAY(t->arena, uint32_t, p->n_values);
    t->ready = F8_NEW_ARRAY(t->arena, uint32_t, p->n_values);
    if (!t->need_at || !t->make_at || !t->need || !t->make || !t->first || !t->ready)
        return f8_arena_status(t->arena, diag);
    find_first(t);
    for (uint32_t s = 0; s < p->n_steps; s++) {
        step_row(t, s);
        for (uint32_t i = t->need_at[s]; i < t->need_at[s + 1]; i++)
            if (t->first[t->need[i]] >= s)
                return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                               "remat: step %u reads value %u, which was not made", s, t->need[i]);
    }
    uint32_t *end = &t->need_at[p->n_steps + 1];
    *end = end[-1];
    for (uint32_t v = 0; v < p->n_values; v++)
        if (p->value[v].result)
            t->need[(*end)++] = v;
    for (uint32_t v = 0; v < p->n_values; v++) {
        const f8_remat_value *x = &p->value[v];
        uint32_t *row = t->need + end[v];
        end[v + 1] = end[v] + (x->n_from ? append_unique(row, 0, x->from, x->n_from) : 0);
        if (x->result && t->first[v] > p->n_steps)
            return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "remat: result %u is not made", v);
    }
    return F8_OK;
}

/* ---- lifetimes ---- */

/* Add the bytes of v's instances to `live`, which has changes from one position to the next. */
static void cover(f8_remat_timeline *t, uint32_t v, int64_t bytes)
{
    const struct f8_remat_accesses *x = &t->access[v];
    for (uint32_t i = 0; i < x->n;) {
        uint32_t last = i + 1;
        while (last < x->n && !f8_remat_makes(t, x->id[last], v))
            last++;
        const uint32_t from = t->position[x->id[i]], to = t->position[x->id[last - 1]];
        t->live[from] += bytes;
        if (to + 1 < t->n)
            t->live[to + 1] -= bytes;
        t->work += 8 + (to - from) / 4;
        i = last;
    }
}

uint32_t f8_remat_access_from(const f8_remat_timeline *t, uint32_t v, uint32_t position)
{
    const struct f8_remat_accesses *x = &t->access[v];
    uint32_t low = 0, high = x->n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (t->position[x->id[middle]] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_access(f8_remat_timeline *t, uint32_t v, uint32_t id)
{
    struct f8_remat_accesses *x = &t->access[v];
    uint32_t *grown = f8_arena_grow(t->arena, x->id, x->n, &x->room, x->n + 1, sizeof *grown);
    if (!grown) {
        t->failed = true;
        return;
    }
    x->id = grown;
    const uint32_t at = f8_remat_access_from(t, v, t->position[id]);
    memmove(x->id + at + 1, x->id + at, (x->n++ - at) * sizeof *x->id);
    x->id[at] = id;
}

static void drop_access(f8_remat_timeline *t, uint32_t v, uint32_t id)
{
    struct f8_remat_accesses *x = &t->access[v];
    const uint32_t at = f8_remat_access_from(t, v, t->position[id]);
    memmove(x->id + at, x->id + at + 1, (--x->n - at) * sizeof *x->id);
}

/* Bytes that are in memory across `position`, both while the action before it runs and after that:
 * those of the action there, less what it makes and its own. */
static int64_t crossing(const f8_remat_timeline *t, uint32_t position)
{
    const uint32_t id = t->order[position];
    int64_t bytes = t->live[position];
    if (f8_remat_is_recompute(t, id))
        return bytes - t->p->value[t->what[id]].bytes;
    if (id == t->p->n_steps)
        return bytes;
    for (uint32_t i = t->make_at[id]; i < t->make_at[id + 1]; i++)
        bytes -= t->p->value[t->make[i]].bytes;
    return bytes - t->p->step[id].bytes;
}

/* ---- the excess ---- */

/* Bring the excess up to date after the bytes at positions [from, to] have changed. A search spends
 * most of its time here. */
static void sum_excess(f8_remat_timeline *t, uint32_t from, uint32_t to)
{
    const uint32_t *order = t->order, n_steps = t->p->n_steps;
    const int64_t *live = t->live, budget = t->budget;
    int64_t *over = t->over, change = 0;
    while (from > 0 && order[from - 1] > n_steps)
        from--;
    while (order[to] > n_steps)
        to++; /* the end is no recomputation */
    int64_t most = budget; /* of a step and the values recomputed before it, so far */
    for (uint32_t at = from; at <= to; at++) {
        most = live[at] > most ? live[at] : most;
        if (order[at] > n_steps)
            continue;
        change += most - budget - over[at];
        over[at] = most - budget;
        most = budget;
    }
    t->excess += change;
    t->work += to - from;
}

/* ---- insertion and removal ---- */

static uint32_t new_id(f8_remat_timeline *t)
{
    if (t->n_free)
        return t->free_id[--t->n_free];
    const size_t n = (size_t)t->n_ids + 1;
    uint32_t *position = f8_arena_grow(t->arena, t->position, t->n_ids, &t->position_room, n, 4);
    uint32_t *what = f8_arena_grow(t->arena, t->what, t->n_ids, &t->what_room, n, 4);
    uint32_t *free_id = f8_arena_grow(t->arena, t->free_id, t->n_free, &t->free_room, n, 4);
    uint32_t *order = f8_arena_grow(t->arena, t->order, t->n, &t->order_room, (size_t)t->n + 1, 4);
    int64_t *live = f8_arena_grow(t->arena, t->live, t->n, &t->live_room, (size_t)t->n + 1, 8);
    int64_t *over = f8_arena_grow(t->arena, t->over, t->n, &t->over_room, (size_t)t->n + 1, 8);
    t->position = position ? position : t->position;
    t->what = what ? what : t->what;
    t->free_id = free_id ? free_id : t->free_id;
    t->order = order ? order : t->order;
    t->live = live ? live : t->live;
    t->over = over ? over : t->over;
    if (!position || !what || !free_id || !order || !live || !over) {
        t->failed = true;
        return UINT32_MAX;
    }
    return t->n_ids++;
}

/* Add `bytes` from the action after access number `access` of v up to, not including, `end`. Gives
 * the first position that changed. */
static uint32_t stretch(f8_remat_timeline *t, uint32_t v, uint32_t access, uint32_t end,
                        int64_t bytes)
{
    const uint32_t from = t->position[t->access[v].id[access]] + 1;
    for (uint32_t at = from; at < end; at++)
        t->live[at] += bytes;
    t->work += from < end ? 4 + (end - from) / 2 : 4;
    return from;
}

static void move(f8_remat_timeline *t, uint32_t to, uint32_t from)
{
    memmove(t->order + to, t->order + from, (t->n - from) * sizeof *t->order);
    memmove(t->live + to, t->live + from, (t->n - from) * sizeof *t->live);
    memmove(t->over + to, t->over + from, (t->n - from) * sizeof *t->over);
    t->work += 16 + t->n - from;
}

static void number(f8_remat_timeline *t, uint32_t from)
{
    for (uint32_t at = from; at < t->n; at++)
        t->position[t->order[at]] = at;
}

uint32_t f8_remat_insert(f8_remat_timeline *t, uint32_t value, uint32_t position)
{
    const uint32_t id = new_id(t);
    if (t->failed)
        return id;
    /* The instance that readers from here on read ends with its last access before; what the
     * recomputation reads is kept up to here. */
    const f8_remat_value *x = t->p->value;
    const uint32_t next = f8_remat_access_from(t, value, position);
    const bool replaces = f8_remat_reads_on(t, value, next);
    int64_t live = crossing(t, position) + (replaces ? 0 : x[value].bytes);
    uint32_t n, first = position;
    t->what[id] = value;
    if (replaces)
        first = stretch(t, value, next - 1, position, -x[value].bytes);
    const uint32_t *from = f8_remat_needs(t, id, &n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t after = f8_remat_access_from(t, from[i], position);
        if (f8_remat_reads_on(t, from[i], after))
            continue;
        const uint32_t begin = stretch(t, from[i], after - 1, position, x[from[i]].bytes);
        first = begin < first ? begin : first;
        live += x[from[i]].bytes;
    }
    move(t, position + 1, position);
    t->order[position] = id;
    t->live[position] = live;
    t->over[position] = 0;
    t->n++;
    number(t, position);
    add_access(t, value, id);
    for (uint32_t i = 0; i < n; i++)
        add_access(t, from[i], id);
    sum_excess(t, first, position);
    t->seconds += x[value].seconds;
    return id;
}

void f8_remat_remove(f8_remat_timeline *t, uint32_t id)
{
    if (t->failed)
        return;
    const f8_remat_value *x = t->p->value;
    const uint32_t value = t->what[id], position = t->position[id];
    const uint32_t own = f8_remat_access_from(t, value, position);
    uint32_t n, first = position;
    if (f8_remat_reads_on(t, value, own + 1))
        first = stretch(t, value, own - 1, position, x[value].bytes);
    const uint32_t *from = f8_remat_needs(t, id, &n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = f8_remat_access_from(t, from[i], position);
        if (f8_remat_reads_on(t, from[i], at + 1))
            continue;
        const uint32_t begin = stretch(t, from[i], at - 1, position, -x[from[i]].bytes);
        first = begin < first ? begin : first;
    }
    drop_access(t, value, id);
    for (uint32_t i = 0; i < n; i++)
        drop_access(t, from[i], id);
    move(t, position, position + 1);
    t->n--;
    number(t, position);
    t->free_id[t->n_free++] = id;
    sum_excess(t, first, position);
    t->seconds -= x[value].seconds;
}

/* ---- effects ---- */

/* From position `at` up to the action in question, memory changes by `bytes`. */
typedef struct f8_remat_bend {
    uint32_t at;
    int64_t bytes;
} bend;

typedef struct look {
    const f8_remat_timeline *t;
    bend *bend; /* ascending */
    uint32_t n, position;
    uint64_t work; /* as stretch() counts it */
    /* bytes among a step and the values recomputed before it, so far; at least the budget */
    int64_t most;
    int64_t change;
} look;

/* Memory changes by `bytes` from the action after access number `access` of v on. */
static void bend_from(look *l, uint32_t v, uint32_t access, int64_t bytes)
{
    const uint32_t at = l->t->position[l->t->access[v].id[access]] + 1;
    uint32_t i = l->n++;
    l->work += 4 + (l->position - at) / 2;
    for (; i && l->bend[i - 1].at > at; i--)
        l->bend[i] = l->bend[i - 1];
    l->bend[i] = (bend){at, bytes};
}

/* Positions [from, to), each with `bytes` more in memory. */
static void look_along(look *l, uint32_t from, uint32_t to, int64_t bytes)
{
    const uint32_t *order = l->t->order, n_steps = l->t->p->n_steps;
    const int64_t *live = l->t->live, *over = l->t->over, spare = l->t->budget - bytes;
    int64_t most = l->most - bytes, change = 0;
    for (uint32_t at = from; at < to; at++) {
        most = live[at] > most ? live[at] : most;
        if (order[at] > n_steps)
            continue;
        change += most - spare - over[at];
        most = spare;
    }
    l->most = most + bytes;
    l->change += change;
}

/* `own`: bytes in memory at the action that is inserted; negative: the action there is removed. */
static f8_remat_effect look_at_all(look *l, int64_t own)
{
    const f8_remat_timeline *t = l->t;
    const uint32_t n_steps = t->p->n_steps, here = l->position, gone = own < 0;
    uint32_t from = l->n && l->bend[0].at < here ? l->bend[0].at : here, end = here;
    while (from > 0 && t->order[from - 1] > n_steps)
        from--;
    while (t->order[end] > n_steps)
        end++;
    int64_t bytes = 0;
    uint32_t at = from;
    for (uint32_t i = 0; i < l->n; i++) {
        look_along(l, at, l->bend[i].at, bytes);
        at = l->bend[i].at;
        bytes += l->bend[i].bytes;
    }
    look_along(l, at, here, bytes);
    l->most = own > l->most ? own : l->most;
    look_along(l, here + gone, end + 1, 0);
    return (f8_remat_effect){
        (double)(t->excess + l->change),
        2 * (l->work + 16 + t->n - gone - here + end - gone - from) + 1};
}

f8_remat_effect f8_remat_effect_of_insert(const f8_remat_timeline *t, uint32_t value,
                                          uint32_t position)
{
    look l = {.t = t, .bend = t->bend, .position = position, .most = t->budget};
    const f8_remat_value *x = t->p->value;
    const uint32_t next = f8_remat_access_from(t, value, position);
    uint32_t n;
    const uint32_t *from = f8_remat_sources(t, value, &n);
    int64_t live = crossing(t, position);
    if (f8_remat_reads_on(t, value, next))
        bend_from(&l, value, next - 1, -x[value].bytes);
    else
        live += x[value].bytes;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t after = f8_remat_access_from(t, from[i], position);
        if (f8_remat_reads_on(t, from[i], after))
            continue;
        bend_from(&l, from[i], after - 1, x[from[i]].bytes);
        live += x[from[i]].bytes;
    }
    return look_at_all(&l, live);
}

f8_remat_effect f8_remat_effect_of_remove(const f8_remat_timeline *t, uint32_t id)
{
    const uint32_t value = t->what[id];
    look l = {.t = t, .bend = t->bend, .position = t->position[id], .most = t->budget};
    const uint32_t own = f8_remat_access_from(t, value, l.position);
    uint32_t n;
    const uint32_t *from = f8_remat_sources(t, value, &n);
    if (f8_remat_reads_on(t, value, own + 1))
        bend_from(&l, value, own - 1, t->p->value[value].bytes);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = f8_remat_access_from(t, from[i], l.position);
        if (!f8_remat_reads_on(t, from[i], at + 1))
            bend_from(&l, from[i], at - 1, -t->p->value[from[i]].bytes);
    }
    return look_at_all(&l, -1);
}

/* ---- whole timelines ---- */

static void lay_out(f8_remat_timeline *t)
{
    const f8_remat_problem *p = t->p;
    for (uint32_t v = 0; v < p->n_values; v++)
        t->access[v].n = 0;
    for (uint32_t at = 0; at < t->n; at++) {
        const uint32_t id = t->order[at];
        uint32_t n;
        const uint32_t *need = f8_remat_needs(t, id, &n);
        t->position[id] = at;
        t->live[at] = t->over[at] = 0;
        for (uint32_t i = 0; i < n; i++)
            add_access(t, need[i], id);
        if (f8_remat_is_recompute(t, id))
            add_access(t, t->what[id], id);
        else
            for (uint32_t i = t->make_at[id]; id < p->n_steps && i < t->make_at[id + 1]; i++)
                add_access(t, t->make[i], id);
    }
    for (uint32_t v = 0; v < p->n_values && !t->failed; v++)
        cover(t, v, p->value[v].bytes);
    int64_t live = 0;
    for (uint32_t at = 0; at < t->n; at++) {
        live += t->live[at];
        t->live[at] = live + (t->order[at] < p->n_steps ? p->step[t->order[at]].bytes : 0);
    }
    t->excess = 0;
    if (!t->failed)
        sum_excess(t, 0, t->n - 1);
}

void f8_remat_load(f8_remat_timeline *t, const f8_remat_action *action, uint32_t n_actions)
{
    const uint32_t n_steps = t->p->n_steps;
    t->n_free = 0;
    t->n_ids = n_steps + 1;
    t->n = 0;
    t->seconds = 0;
    for (uint32_t i = 0; i <= n_actions && !t->failed; i++) {
        uint32_t id = i == n_actions ? n_steps : action[i].index;
        if (i < n_actions && action[i].recompute) {
            id = new_id(t);
            if (t->failed)
                return;
            t->what[id] = action[i].index;
            t->seconds += t->p->value[action[i].index].seconds;
        }
        t->order[t->n++] = id;
    }
    if (!t->failed)
        lay_out(t);
}

f8_status f8_remat_timeline_make(const f8_remat_problem *p, int64_t budget, f8_arena *arena,
                                 f8_diag *diag, f8_remat_timeline *t)
{
    *t = (f8_remat_timeline){
        .p = p, .arena = arena, .diag = diag, .budget = budget, .limit = UINT64_MAX, .random = 1};
    F8_TRY(make_rows(t, diag));
    const size_t room = (size_t)p->n_steps * 2 + 64;
    uint32_t most_from = 0;
    for (uint32_t v = 0; v < p->n_values; v++)
        most_from = p->value[v].n_from > most_from ? p->value[v].n_from : most_from;
    t->bend = F8_NEW_ARRAY(arena, bend, (size_t)most_from + 1);
    t->order = F8_NEW_ARRAY(arena, uint32_t, room);
    t->live = F8_NEW_ARRAY(arena, int64_t, room);
    t->position = F8_NEW_ARRAY(arena, uint32_t, room);
    t->what = F8_NEW_ARRAY(arena, uint32_t, room);
    t->free_id = F8_NEW_ARRAY(arena, uint32_t, room);
    t->access = f8_arena_array(arena, p->n_values, sizeof *t->access);
    t->steps = F8_NEW_ARRAY(arena, f8_remat_action, p->n_steps);
    t->over = F8_NEW_ARRAY(arena, int64_t, room);
    if (!t->bend || !t->over || !t->steps || !t->order || !t->live || !t->position || !t->what ||
        !t->free_id || !t->access)
        return f8_arena_status(arena, diag);
    t->order_room = t->live_room = t->over_room = room;
    t->position_room = t->what_room = t->free_room = room;
    t->n_ids = t->n = p->n_steps + 1;
    for (uint32_t s = 0; s <= p->n_steps; s++)
        t->order[s] = s;
    for (uint32_t s = 0; s < p->n_steps; s++)
        t->steps[s].index = s;
    lay_out(t);
    return t->failed ? f8_arena_status(arena, diag) : F8_OK;
}

bool f8_remat_stop(f8_remat_timeline *t)
{
    enum { CALLS = 64, WORK = 1000000 }; /* the clock is read after as many, not each time */
    if (!t->failed && (++t->calls % CALLS == 0 || t->work - t->asked_at > WORK)) {
        t->asked = f8_progress_within(t->p->phase, t->diag);
        t->asked_at = t->work;
        t->failed = t->asked != F8_OK;
    }
    return t->failed || t->work >= t->limit;
}
