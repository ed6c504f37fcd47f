/* See recompute.h. */
#include "tests/shared/remat/recompute.h"

#include "tests/shared/graphs/graphgen.h"
#include "tests/shared/passes/primitive.h"
#include "tests/shared/passes/program_run.h"

typedef struct rewrite {
    recompute *a;
    const f8_lowered *program;
    const f8_graph *from;
    f8_graph *to;
    int one_in;
    f8_ref *map;     /* by old ref */
    f8_ref *clone;   /* by old ref: recomputed, ... */
    uint32_t *stamp; /* ... with this number */
} rewrite;

static bool chance(rewrite *w, int one_in)
{
    return graphgen_next(&w->a->random) % (uint64_t)one_in == 0;
}

static f8_ref make(rewrite *w, f8_ref r, const f8_ref *in, uint32_t number)
{
    const f8_node *n = f8_at(w->from, r);
    w->to->at = w->from->loc[r];
    const f8_ref made =
        f8_make_clone(w->to, n->op, in, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                      number * F8_CLONE_RECOMPUTED + n->clone % F8_CLONE_RECOMPUTED);
    f8_set_name(w->to, made, w->from->name[r]);
    return made;
}

/* r recomputed, or where it is. */
static f8_ref instance(rewrite *w, f8_ref r, bool root)
{
    const f8_node *n = f8_at(w->from, r);
    const bool there = w->program->place[r].space != F8_SPACE_NONE;
    f8_ref in[GRAPHGEN_MAX_RESULTS];
    if (n->n_in == 0 || n->n_in > GRAPHGEN_MAX_RESULTS)
        return w->map[r];
    if (w->stamp[r] == w->a->number)
        return w->clone[r];
    w->stamp[r] = w->a->number;
    if (there && !root && !chance(w, 4))
        return w->clone[r] = w->map[r];
    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = instance(w, n->in[i], n->op == F8_OP_PROJECT);
    return w->clone[r] = make(w, r, in, w->a->number);
}

static f8_ref redirect(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    rewrite *w = user;
    const f8_node *n = f8_at(from, old);
    f8_ref operand[GRAPHGEN_MAX_RESULTS];
    w->to = to;
    if (n->n_in > GRAPHGEN_MAX_RESULTS)
        return 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        w->map[n->in[i]] = operand[i] = in[i];
        if (n->op == F8_OP_PROJECT || f8_at(from, n->in[i])->n_in == 0 || !chance(w, w->one_in))
            continue;
        w->a->number += w->a->number == 0 || chance(w, 2);
        operand[i] = instance(w, n->in[i], true);
        w->a->reads += operand[i] != in[i];
    }
    return w->map[old] = make(w, old, operand, n->clone / F8_CLONE_RECOMPUTED);
}

f8_status recompute_some(recompute *a, f8_func *f, int one_in)
{
    f8_arena *arena = f->graph->arena;
    rewrite w = {.a = a, .program = f->lowered, .from = f->graph, .one_in = one_in};
    w.map = F8_NEW_ARRAY(arena, f8_ref, f->graph->n_nodes);
    w.clone = F8_NEW_ARRAY(arena, f8_ref, f->graph->n_nodes);
    w.stamp = F8_NEW_ARRAY(arena, uint32_t, f->graph->n_nodes);
    F8_TRY(f8_arena_status(arena, f->graph->diag));
    a->number++;
    return f8_func_rewrite(f, redirect, &w);
}

f8_status recompute_run(f8_module *m, uint64_t seed, const f8_target *target, void **out,
                        f8_diag *diag)
{
    const f8_func *f = &m->func[0];
    void **in = F8_NEW_ARRAY(m->arena, void *, f->n_in);
    F8_TRY(f8_arena_status(m->arena, diag));
    for (size_t i = 0; i < f->n_in; i++)
        in[i] = f8_arena_array(m->arena, 1, (size_t)f8_type_bytes(&f->in[i].type));
    for (size_t i = 0; i < f->n_out; i++)
        out[i] = f8_arena_array(m->arena, 1, (size_t)f8_type_bytes(&f->out[i].type));
    F8_TRY(f8_arena_status(m->arena, diag));
    for (size_t i = 0; i < f->n_in; i++)
        graphgen_fill(seed, f->in[i].name, &f->in[i].type, in[i]);
    return target ? f8_program_run(f, target, (const void *const *)in, out, diag)
                  : test_reference_run(f, (const void *const *)in, out, diag);
}
