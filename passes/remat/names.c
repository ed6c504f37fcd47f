/* Plans by name: what the options' patterns ask to keep or to recompute. See remat.h. */
#include "passes/memory/report.h"
#include "passes/remat/remat.h"

typedef struct planner {
    f8_remat *s;
    f8_remat_plan *plan;
    bool *kept;  /* by value: kept as long as a step reads it */
    bool *recompute; /* by value: backward steps read it recomputed */
    bool *made;  /* by value: it was recomputed */
    uint32_t *stack;
} planner;

/* By the name that reports use. */
static bool matches(const f8_remat *s, uint32_t value, const char *pattern)
{
    const char *name = pattern ? f8_memory_name(s->func, s->root[value], s->scratch) : NULL;
    return name && f8_pattern_match(pattern, name);
}

/* Whether `v` has to be recomputed before backward step `at` can read it. */
static bool is_missing(const planner *f, uint32_t v, uint32_t at)
{
    const f8_remat *s = f->s;
    if (f->made[v] || f->kept[v] || s->cone[v].n == 0)
        return false;
    return f->recompute[v] || s->storage.base[s->root[v]].end < at;
}

/* Recompute v before step `at`, and before it what it needs. */
static void recompute_before(planner *f, uint32_t v, uint32_t at)
{
    uint32_t depth = 0;
    f->stack[depth++] = v;
    while (depth > 0) {
        const uint32_t top = f->stack[depth - 1];
        const f8_remat_value *value = &f->s->problem.value[top];
        uint32_t need = top;
        for (uint32_t i = 0; i < value->n_from && need == top; i++)
            if (is_missing(f, value->from[i], at))
                need = value->from[i];
        if (need != top) {
            f->stack[depth++] = need;
            continue;
        }
        if (!f->made[top])
            f->plan->action[f->plan->n_actions++] = (f8_remat_action){true, top};
        f->made[top] = true;
        depth--;
    }
}

static bool can_recompute(const f8_remat *s, uint32_t v)
{
    return s->activation[v] && s->cone[v].n > 0 && !s->problem.value[v].result;
}

/* The step that first makes a value, and the last forward step that reads it (0: none). */
typedef struct span {
    uint32_t made, read;
} span;

static f8_status find_spans(const f8_remat *s, span **out)
{
    span *of = F8_NEW_ARRAY(s->scratch, span, s->problem.n_values);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t i = s->problem.n_steps; i-- > 0;)
        for (uint32_t k = 0; k < s->problem.step[i].n_write; k++)
            of[s->problem.step[i].write[k]].made = i;
    for (uint32_t i = 0; i < s->problem.n_steps; i++)
        for (uint32_t k = 0; !s->backward[i] && k < s->problem.step[i].n_read; k++)
            of[s->problem.step[i].read[k]].read = i;
    *out = of;
    return F8_OK;
}

/* By value: an activation that can be recomputed, with some forward step between the step that
 * makes it and the first backward step that reads it. What a backward step makes, or reads at once,
 * is not kept from the forward. */
static f8_status find_waiting(const f8_remat *s, const span *of, bool **out)
{
    const uint32_t n = s->problem.n_steps;
    bool *waiting = F8_NEW_ARRAY(s->scratch, bool, s->problem.n_values);
    bool *read = F8_NEW_ARRAY(s->scratch, bool, s->problem.n_values);
    uint32_t *forward =
        F8_NEW_ARRAY(s->scratch, uint32_t, (size_t)n + 1); /* forward steps before */
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t i = 0; i < n; i++)
        forward[i + 1] = forward[i] + !s->backward[i];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; s->backward[i] && k < s->problem.step[i].n_read; k++) {
            const uint32_t v = s->problem.step[i].read[k];
            if (!read[v] && can_recompute(s, v))
                waiting[v] = forward[i] > forward[of[v].made + 1];
            read[v] = true;
        }
    *out = waiting;
    return F8_OK;
}

/* Decide which values are kept and which activations are recomputed. */
static f8_status choose(planner *f)
{
    const f8_remat *s = f->s;
    const f8_options *o = &s->unit->options;
    bool kept = false, recompute = false, *waiting;
    span *of;
    F8_TRY(find_spans(s, &of));
    F8_TRY(find_waiting(s, of, &waiting));
    for (uint32_t v = 0; v < s->problem.n_values; v++) {
        f->kept[v] = matches(s, v, o->checkpoint);
        kept |= f->kept[v];
        if (!can_recompute(s, v))
            continue;
        const bool named = matches(s, v, o->recompute);
        recompute |= named;
        f->recompute[v] = waiting[v] && (named || (o->checkpoint && !f->kept[v]));
        f->kept[v] &= !f->recompute[v];
    }
    if (o->checkpoint && *o->checkpoint && !kept)
        return f8_fail(s->unit->diag, F8_ERR_INPUT, F8_NOWHERE,
                       "checkpoint: '%s' matches no value that lies in memory", o->checkpoint);
    if (o->recompute && !recompute)
        return f8_fail(s->unit->diag, F8_ERR_INPUT, F8_NOWHERE,
                       "recompute: '%s' matches no activation that can be recomputed",
                       o->recompute);
    return F8_OK;
}

static f8_status setup(planner *f, f8_remat *s, f8_remat_plan *out)
{
    const uint32_t n = s->problem.n_values, steps = s->problem.n_steps;
    *f = (planner){.s = s, .plan = out};
    f->kept = F8_NEW_ARRAY(s->scratch, bool, n);
    f->recompute = F8_NEW_ARRAY(s->scratch, bool, n);
    f->made = F8_NEW_ARRAY(s->scratch, bool, n);
    f->stack = F8_NEW_ARRAY(s->scratch, uint32_t, (size_t)n + 1);
    *out = (f8_remat_plan){.action = F8_NEW_ARRAY(s->scratch, f8_remat_action, (size_t)n + steps)};
    return f8_arena_status(s->scratch, s->unit->diag);
}

static void list_actions(planner *f)
{
    const f8_remat *s = f->s;
    for (uint32_t i = 0; i < s->problem.n_steps; i++) {
        const f8_remat_step *step = &s->problem.step[i];
        for (uint32_t k = 0; k < step->n_read && s->backward[i]; k++)
            if (is_missing(f, step->read[k], i))
                recompute_before(f, step->read[k], i);
        f->plan->action[f->plan->n_actions++] = (f8_remat_action){false, i};
    }
}

f8_status f8_remat_plan_by_name(f8_remat *s, f8_remat_plan *out)
{
    planner f;
    F8_TRY(setup(&f, s, out));
    F8_TRY(choose(&f));
    list_actions(&f);
    return F8_OK;
}

/* ---- waists ---- */

/* By value: depends on the caller's inputs, and is not small compared with the largest activation.
 */
static f8_status find_large(const f8_remat *s, bool **out)
{
    enum { SMALL = 64 };
    bool *data = F8_NEW_ARRAY(s->scratch, bool, s->g->n_nodes);
    int64_t most = 0;
    *out = F8_NEW_ARRAY(s->scratch, bool, s->problem.n_values);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    f8_memory_mark_data(s->g, s->in, s->func->n_in, data);
    for (uint32_t v = 0; v < s->problem.n_values; v++)
        if (s->activation[v] && s->problem.value[v].bytes > most)
            most = s->problem.value[v].bytes;
    for (uint32_t v = 0; v < s->problem.n_values; v++)
        (*out)[v] = data[s->root[v]] && s->problem.value[v].bytes > most / SMALL;
    return F8_OK;
}

f8_status f8_remat_plan_by_waists(f8_remat *s, uint32_t every, f8_remat_plan *out, uint32_t *waists)
{
    const uint32_t n = s->problem.n_values, steps = s->problem.n_steps;
    planner f;
    bool *large, *waiting;
    span *of;
    uint32_t *alive =
        F8_NEW_ARRAY(s->scratch, uint32_t, (size_t)steps + 1); /* large values after each step */
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    F8_TRY(setup(&f, s, out));
    F8_TRY(find_large(s, &large));
    F8_TRY(find_spans(s, &of));
    F8_TRY(find_waiting(s, of, &waiting));
    for (uint32_t v = 0; v < n; v++)
        for (uint32_t i = of[v].made; large[v] && i < of[v].read; i++)
            alive[i]++;
    *waists = 0;
    for (uint32_t i = 0; i < steps; i++) /* in the order they are made */
        for (uint32_t k = 0; !s->backward[i] && k < s->problem.step[i].n_write; k++) {
            const uint32_t v = s->problem.step[i].write[k];
            bool waist = false;
            for (uint32_t at = i; of[v].made == i && large[v] && at < of[v].read; at++)
                waist |= alive[at] == 1;
            f.kept[v] = waist && (*waists)++ % every == 0;
        }
    for (uint32_t v = 0; v < n; v++)
        f.recompute[v] = waiting[v] && !f.kept[v];
    list_actions(&f);
    return F8_OK;
}
