/* Carries out a plan: makes the function's graph anew, action by action, so that refs ascend in the
 * order in which things run.
 *
 * The nodes of a step are made over the newest instances of what they read. Where none of those was
 * recomputed, hash-consing gives the node that exists already; so only what changes is new.
 *
 * A recomputed value and the nodes of its cone get a clone number, one for each place in the order.
 * Without it, grouping would take the cone's inner values from the kernel of the original.
 *
 * A kernel of the backward may also compute nodes that are made only from clones and from values of
 * the forward. Such a node gets the clone number too. Without it, grouping would give the node its
 * first possible moment, in the forward, and would move the clones that it reads there as well. */
#include "passes/unit/copy.h"
#include "passes/remat/remat.h"

typedef struct writer {
    f8_remat *s;
    f8_graph *to;
    f8_ref *now;     /* by base: its newest instance */
    f8_ref *local;   /* by ref: the new node, within the kernel being made */
    uint32_t *stamp; /* by ref: == kernel where local[] is valid */
    uint32_t kernel;
    uint64_t recompute; /* clone number of what is being recomputed; 0 while a step is made */
    uint32_t places; /* how many places between steps have recomputed something so far */
    /* the highest level of the steps so far, gradients aside; nodes below it could run earlier */
    uint32_t latest;
    f8_ref *in;      /* operands of one node */
    f8_ref *view;    /* the views stacked on one value, the last first */
    size_t view_room;
} writer;

static uint64_t recompute_of(const f8_graph *g, f8_ref r)
{
    return g->node[r].clone - g->node[r].clone % F8_CLONE_RECOMPUTED;
}

/* Node `r` on new operands. recompute: 0, or a clone number that is added to its own. A node that
 * is made anew whatever the budget (scale/scaling.c) keeps its number unless it is recomputed. */
static f8_ref make(writer *w, f8_ref r, const f8_ref *in, uint64_t recompute)
{
    const f8_graph *from = w->s->g;
    const f8_node *n = f8_at(from, r);
    recompute = recompute ? recompute : recompute_of(from, r);
    w->to->at = from->loc[r];
    const f8_ref made =
        f8_make_clone(w->to, n->op, in, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                      n->clone % F8_CLONE_RECOMPUTED + recompute);
    if (made && from->name[r])
        f8_set_name(w->to, made, from->name[r]);
    return made;
}

/* The newest instance of a leaf, or of a value that lies in memory, seen through the same views. 0
 * on failure. */
static f8_ref newest(writer *w, f8_ref r)
{
    const f8_remat *s = w->s;
    uint32_t n = 0;
    while (s->storage.view[r].base != r) {
        f8_ref *grown =
            f8_arena_grow(s->scratch, w->view, n, &w->view_room, (size_t)n + 1, sizeof *grown);
        if (!grown) {
            f8_arena_status(s->scratch, s->unit->diag);
            return 0;
        }
        w->view = grown;
        grown[n++] = r;
        r = s->g->node[r].in[0];
    }
    f8_ref made = w->now[r];
    if (!made && s->g->node[r].n_in == 0)
        made = w->now[r] = make(w, r, NULL, 0);
    if (!made) {
        f8_fail(s->unit->diag, F8_ERR_INTERNAL, s->g->loc[r],
                "remat: '%s' is read before it is made", f8_op_facts(s->g->node[r].op)->name);
        return 0;
    }
    while (n-- > 0 && made)
        made = make(w, w->view[n], &made, recompute_of(w->to, made));
    return made;
}

/* ---- steps ---- */

static f8_ref operand(writer *w, const f8_group *group, const f8_phase *p, f8_ref o)
{
    return !f8_remat_reads_memory(group, p, o) ? w->local[o] : newest(w, o);
}

static uint32_t phase_level(const f8_remat *s, const f8_phase *p)
{
    uint32_t level = 0;
    for (uint32_t i = 0; i < p->n_out; i++)
        level = s->level[p->out[i]] > level ? s->level[p->out[i]] : level;
    return level;
}

static void run_phase(writer *w, const f8_group *group, const f8_phase *p)
{
    const f8_remat *s = w->s;
    const uint32_t level = phase_level(s, p), own_level = level < w->latest ? UINT32_MAX : level;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const f8_ref r = p->node[i];
        const f8_node *n = f8_at(s->g, r);
        uint64_t recompute = 0;
        for (uint32_t k = 0; k < n->n_in; k++) {
            w->in[k] = operand(w, group, p, n->in[k]);
            const uint64_t of = recompute_of(w->to, w->in[k]);
            recompute = of > recompute ? of : recompute;
        }
        w->local[r] = make(w, r, w->in, s->level[r] < own_level ? recompute : 0);
    }
    for (uint32_t i = 0; i < p->n_out; i++)
        w->now[p->out[i]] = w->local[p->out[i]];
    if (level <= s->top && level > w->latest)
        w->latest = level;
}

static void run_whole(writer *w, const f8_group *group)
{
    const f8_remat *s = w->s;
    const f8_ref r = group->out[0];
    const f8_node *n = f8_at(s->g, r);
    for (uint32_t k = 0; k < n->n_in; k++)
        w->in[k] = newest(w, n->in[k]);
    w->now[r] = make(w, r, w->in, 0);
    for (uint32_t i = 1; i < group->n_out; i++)
        w->now[group->out[i]] = make(w, group->out[i], &w->now[r], 0);
    if (s->level[r] <= s->top && s->level[r] > w->latest)
        w->latest = s->level[r];
}

static void run_step(writer *w, uint32_t step)
{
    const f8_lowered *p = w->s->lowered;
    const f8_group *group = &p->group[p->order[step]];
    for (uint32_t i = 0; i < group->n_phases && w->to->diag->status == F8_OK; i++)
        run_phase(w, group, &group->phase[i]);
    if (group->kind != F8_GROUP_ROWS)
        run_whole(w, group);
}

/* ---- recomputed values ---- */

static void recompute_value(writer *w, uint32_t value)
{
    const f8_remat *s = w->s;
    const f8_cone *cone = &s->cone[value];
    w->kernel++;
    for (uint32_t i = 0; i < cone->n; i++) {
        const f8_ref r = cone->node[i];
        const f8_node *n = f8_at(s->g, r);
        for (uint32_t k = 0; k < n->n_in; k++)
            w->in[k] = w->stamp[n->in[k]] == w->kernel ? w->local[n->in[k]] : newest(w, n->in[k]);
        w->local[r] = make(w, r, w->in, w->recompute);
        w->stamp[r] = w->kernel;
    }
    const f8_ref root = s->root[value];
    w->now[root] = w->local[root];
}

/* ---- the whole ---- */

static f8_status setup(writer *w, f8_remat *s)
{
    const size_t n = s->g->n_nodes;
    *w = (writer){.s = s};
    w->now = F8_NEW_ARRAY(s->scratch, f8_ref, n);
    w->local = F8_NEW_ARRAY(s->scratch, f8_ref, n);
    w->stamp = F8_NEW_ARRAY(s->scratch, uint32_t, n);
    w->in = F8_NEW_ARRAY(s->scratch, f8_ref, f8_widest(s->g));
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    w->to = f8_graph_create_in(s->g->module, s->unit->arena, s->unit->diag);
    if (!w->to)
        return f8_arena_status(s->unit->arena, s->unit->diag);
    for (size_t i = 0; i < s->func->n_in; i++) {
        const f8_ref old = s->in[i].ref;
        w->to->at = s->g->loc[old];
        w->now[old] = f8_input(w->to, (int64_t)i, &s->in[i].type);
        if (!w->now[old])
            return s->unit->diag->status;
        f8_set_name(w->to, w->now[old], s->g->name[old]);
        s->func->in[i].ref = w->now[old];
    }
    return F8_OK;
}

static f8_status carry_out(writer *w, const f8_remat_plan *plan)
{
    f8_remat *s = w->s;
    for (uint32_t i = 0; i < plan->n_actions && w->to->diag->status == F8_OK; i++) {
        const f8_remat_action *a = &plan->action[i];
        if (!a->recompute) {
            run_step(w, a->index);
            w->recompute = 0;
            continue;
        }
        /* All values recomputed between two steps share one number, so that they may share kernels.
         */
        w->places += w->recompute == 0;
        w->recompute = (uint64_t)w->places * F8_CLONE_RECOMPUTED;
        recompute_value(w, a->index);
    }
    for (size_t i = 0; i < s->func->n_out && w->to->diag->status == F8_OK; i++)
        s->func->out[i].ref = newest(w, s->out[i].ref);
    w->to->at = F8_NOWHERE;
    return w->to->diag->status;
}

void f8_remat_restore(f8_remat *s)
{
    s->func->graph = s->g;
    s->func->lowered = s->lowered;
    for (size_t i = 0; i < s->func->n_in; i++)
        s->func->in[i] = s->in[i];
    for (size_t i = 0; i < s->func->n_out; i++)
        s->func->out[i] = s->out[i];
}

f8_status f8_remat_rewrite(f8_remat *s, const f8_remat_plan *plan)
{
    writer w;
    f8_remat_restore(s);
    f8_status status = setup(&w, s);
    if (status == F8_OK)
        status = carry_out(&w, plan);
    if (status != F8_OK) {
        f8_remat_restore(s);
        return status;
    }
    s->func->graph = w.to;
    s->func->lowered = NULL;
    return f8_func_rewrite(s->func, NULL, NULL); /* drops what no result needs */
}
