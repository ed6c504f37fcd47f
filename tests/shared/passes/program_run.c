/* See program_run.h. */
#include "tests/shared/passes/program_run.h"

#include "codegen/kernel/kernel.h"
#include "codegen/reference/reference.h"
#include "tests/shared/kernel/kernel_desc.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERN = 0xA5 };

typedef struct runner {
    const f8_func *f;
    const f8_target *target;
    kd_memory memory;
    f8_arena arena; /* of one group */
    f8_diag *diag;
} runner;

/* A value's elements between its place and one run of bytes. */
static void move(const runner *r, const f8_type *t, const f8_place *p, void *run, bool store)
{
    const size_t size = f8_dtype_size(t->dtype), row = (size_t)f8_type_columns(t) * size;
    for (int64_t i = 0; i < f8_type_rows(t); i++) {
        uint8_t *at = kd_at(&r->memory, p) + (size_t)(i * p->stride) * size,
                *to = (uint8_t *)run + (size_t)i * row;
        memcpy(store ? at : to, store ? to : at, row);
    }
}

static f8_status run_rows(runner *r, const f8_group *g)
{
    for (uint32_t i = 0; i < g->n_phases; i++) {
        f8_kernel *k;
        f8_binding bound;
        F8_TRY(f8_kernel_lower(r->f, g, i, r->target, &r->arena, &k, &bound, r->diag));
        kd_run(k, &bound, &r->memory);
    }
    return F8_OK;
}

/* A group of one op: operands gathered, the op interpreted, results scattered. */
static f8_status run_whole(runner *r, const f8_group *g)
{
    const f8_graph *graph = r->f->graph;
    const f8_node *n = f8_at(graph, g->out[0]);
    const void **value = F8_NEW_ARRAY(&r->arena, const void *, n->n_in);
    void **result = F8_NEW_ARRAY(&r->arena, void *, g->n_out);
    F8_TRY(f8_arena_status(&r->arena, r->diag));
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *t = f8_type_of(graph, n->in[i]);
        void *run = f8_arena_array(&r->arena, 1, (size_t)f8_type_bytes(t));
        F8_TRY(f8_arena_status(&r->arena, r->diag));
        move(r, t, &r->f->lowered->place[n->in[i]], run, false);
        value[i] = run;
    }
    for (uint32_t i = 0; i < g->n_out; i++)
        result[i] =
            f8_arena_array(&r->arena, 1, (size_t)f8_type_bytes(f8_type_of(graph, g->out[i])));
    F8_TRY(f8_arena_status(&r->arena, r->diag));
    F8_TRY(f8_reference_node(graph, g->out[0], value, result, NULL, r->diag));
    for (uint32_t i = 0; i < g->n_out; i++) {
        const f8_place *p = &r->f->lowered->place[g->out[i]];
        if (p->space != F8_SPACE_NONE)
            move(r, f8_type_of(graph, g->out[i]), p, result[i], true);
    }
    return F8_OK;
}

static f8_status run_groups(runner *r)
{
    const f8_lowered *p = r->f->lowered;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const f8_group *g = &p->group[p->order[i]];
        f8_arena_init(&r->arena, NULL);
        const f8_status s = g->kind == F8_GROUP_ROWS ? run_rows(r, g) : run_whole(r, g);
        f8_arena_end(&r->arena);
        F8_TRY(s);
    }
    for (uint32_t i = 0; i < p->n_copies; i++) {
        const f8_type *t = f8_type_of(r->f->graph, p->copy[i].from);
        void *run = malloc((size_t)f8_type_bytes(t) + 1);
        move(r, t, &p->place[p->copy[i].from], run, false);
        move(r, t, &p->copy[i].to, run, true);
        free(run);
    }
    return F8_OK;
}

f8_status f8_program_run(const f8_func *f, const f8_target *target, const void *const *in,
                         void *const *out, f8_diag *diag)
{
    const f8_module *m = f->graph->module;
    const size_t state_bytes = (size_t)f8_module_layout(m, NULL) + 1,
                 arena_bytes = (size_t)f->lowered->arena_bytes + 1;
    int64_t *offset = calloc(m->n_vars + 1, sizeof *offset);
    runner r = {.f = f, .target = target, .diag = diag};
    r.memory = (kd_memory){.arena = malloc(arena_bytes),
                           .state = malloc(state_bytes),
                           .constants = f->lowered->constants,
                           .in = in,
                           .out = out};
    f8_module_layout(m, offset);
    memset(r.memory.arena, PATTERN, arena_bytes);
    memset(r.memory.state, PATTERN, state_bytes);
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].var >= 0)
            memcpy(r.memory.state + offset[f->in[i].var], in[i],
                   (size_t)f8_type_bytes(&f->in[i].type));
    const f8_status s = run_groups(&r);
    for (size_t i = 0; i < f->n_out; i++)
        if (f->out[i].var >= 0)
            memcpy(out[i], r.memory.state + offset[f->out[i].var],
                   (size_t)f8_type_bytes(&f->out[i].type));
    free(r.memory.arena);
    free(r.memory.state);
    free(offset);
    return s;
}
