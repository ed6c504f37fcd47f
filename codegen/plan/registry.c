/* What every file that makes steps uses: the registry of distinct kernels, the steps of the
 * function being built with their launches, and the bytes that every step reads and writes. */
#include "codegen/plan/parts.h"

#include <string.h>

#include "ir/base/hash.h"

/* ---- the function being built ---- */

f8_status f8_build_memory(const f8_build *b)
{
    return f8_arena_status(b->arena, b->diag);
}

const f8_place *f8_build_place(const f8_build *b, f8_ref r)
{
    return &b->func->lowered->place[r];
}

const f8_type *f8_build_type(const f8_build *b, f8_ref r)
{
    return f8_type_of(b->func->graph, r);
}

f8_status f8_build_broken(f8_build *b, f8_ref at, const char *what)
{
    return f8_fail(b->diag, F8_ERR_INTERNAL, b->func->graph->loc[at], "%s of '%s': %s (%%%u)",
                   f8_op_facts(f8_at(b->func->graph, at)->op)->name, b->func->name, what, at);
}

f8_ref f8_build_only_node(const f8_group *g)
{
    if (g->n_phases && g->phase[0].n_nodes)
        return g->phase[0].node[0];
    return g->n_out ? g->out[0] : 0;
}

/* ---- the registry of kernels ---- */

bool f8_build_compiles_fast(const f8_kernel_source *u)
{
    return u->launches && u->launches == u->first_launches;
}

f8_status f8_build_add_source(f8_build *b, const f8_kernel_source *source, uint32_t *index)
{
    f8_kernel_source *grown = f8_arena_grow(b->arena, b->source, b->n_sources, &b->source_room,
                                            b->n_sources + 1, sizeof *grown);
    if (!grown)
        return f8_build_memory(b);
    b->source = grown;
    b->source[b->n_sources] = *source;
    *index = b->n_sources++;
    return F8_OK;
}

f8_status f8_build_intern(f8_build *b, const f8_kernel_source *source, uint32_t *index)
{
    if (!source->text || !source->name)
        return f8_build_memory(b);
    const uint64_t hash = source->hash ? source->hash : f8_fnv(F8_FNV, source->text);
    f8_table_walk walk = f8_table_find(hash);
    for (uint32_t i; f8_table_next(&b->named, &walk, &i);)
        if (b->source[i].hash == hash && !strcmp(b->source[i].text, source->text)) {
            *index = i;
            return F8_OK;
        }
    F8_TRY(f8_build_add_source(b, source, index));
    b->source[*index].hash = hash;
    return f8_table_add(&b->named, b->arena, hash, *index, b->diag);
}

/* ---- steps ---- */

f8_step *f8_build_step(f8_build *b, f8_step_kind kind, const char *name, uint32_t n_args,
                       uint32_t n_ints)
{
    f8_plan_func *f = b->out;
    f8_step *steps =
        f8_arena_grow(b->arena, f->step, f->n_steps, &b->step_room, f->n_steps + 1, sizeof *steps);
    f8_step_builder *builders = f8_arena_grow(b->arena, b->builder, f->n_steps, &b->builder_room,
                                              f->n_steps + 1, sizeof *builders);
    if (!steps || !builders)
        return NULL;
    f->step = steps;
    b->builder = builders;
    f8_step *s = &steps[f->n_steps];
    builders[f->n_steps] = (f8_step_builder){0};
    *s = (f8_step){.kind = kind, .n_args = n_args, .n_ints = n_ints};
    s->name = f8_arena_strdup(b->arena, name ? name : "");
    s->arg = F8_NEW_ARRAY(b->arena, f8_arg, n_args + 1);
    s->ints = F8_NEW_ARRAY(b->arena, int64_t, n_ints + 1);
    if (!s->name || !s->arg || !s->ints)
        return NULL;
    f->n_steps++;
    return s;
}

f8_step_builder *f8_build_last(const f8_build *b)
{
    return &b->builder[b->out->n_steps - 1];
}

f8_status f8_build_add_launch(f8_build *b, const f8_build_launch *launch, int64_t n_tasks)
{
    f8_step_builder *builder = f8_build_last(b);
    f8_build_launch *grown =
        f8_arena_grow(b->arena, builder->launch, builder->n_launches, &builder->launch_room,
                      builder->n_launches + 1, sizeof *grown);
    int64_t *tasks = F8_NEW_ARRAY(b->arena, int64_t, 1);
    if (!grown || !tasks)
        return f8_build_memory(b);
    builder->launch = grown;
    *tasks = n_tasks;
    f8_build_launch *l = &grown[builder->n_launches++];
    *l = *launch;
    l->n_instances = 1;
    l->n_tasks = tasks;
    uint64_t *hash = &b->out->step[b->out->n_steps - 1].hash;
    *hash = *hash * 0x100000001b3u ^ b->source[l->source].hash; /* of all launches, in order */
    return F8_OK;
}

static f8_status add_access(f8_build *b, const f8_place *p, int64_t bytes, f8_build_access a)
{
    f8_step_builder *builder = f8_build_last(b);
    f8_build_access *grown =
        f8_arena_grow(b->arena, builder->access, builder->n_accesses, &builder->access_room,
                      builder->n_accesses + 1, sizeof *grown);
    if (!grown)
        return f8_build_memory(b);
    builder->access = grown;
    a.space = p->space;
    a.port = p->port;
    a.begin = p->offset;
    a.end = p->offset + bytes;
    if (p->space == F8_SPACE_INPUT || p->space == F8_SPACE_OUTPUT) {
        const f8_plan_func *f = b->out;
        const int32_t var = p->space == F8_SPACE_INPUT ? f->in[p->port].var : f->out[p->port].var;
        if (var >= 0) {
            a.space = F8_SPACE_STATE;
            a.begin += b->plan->var[var].offset;
            a.end += b->plan->var[var].offset;
        }
    }
    if (a.space != F8_SPACE_INPUT && a.space != F8_SPACE_OUTPUT)
        a.port = -1;
    grown[builder->n_accesses++] = a;
    return F8_OK;
}

static f8_build_access rows_at(const f8_place *p, f8_ref r, const f8_type *t, bool write)
{
    const int64_t size = (int64_t)f8_dtype_size(t->dtype);
    return (f8_build_access){.write = write,
                             .value = r,
                             .width = f8_type_columns(t) * size,
                             .pitch = f8_type_rows(t) > 1 ? p->stride * size : 0};
}

f8_status f8_build_add_access(f8_build *b, const f8_place *p, f8_ref r, bool write)
{
    const f8_type *t = f8_build_type(b, r);
    const int64_t bytes = f8_kernel_span(t, p);
    f8_build_access a = rows_at(p, r, t, write);
    a.whole = bytes == f8_type_bytes(t);
    return add_access(b, p, bytes, a);
}

f8_status f8_build_add_access_part(f8_build *b, const f8_place *p, f8_ref r, const f8_type *t,
                                   bool write)
{
    return add_access(b, p, f8_kernel_span(t, p), rows_at(p, r, t, write));
}

f8_status f8_build_add_access_some(f8_build *b, const f8_place *p, f8_ref r, int64_t bytes,
                                   bool write)
{
    return add_access(b, p, bytes, (f8_build_access){.write = write, .value = r, .width = bytes});
}

f8_arg f8_build_arg(const f8_build *b, const f8_place *p)
{
    const int64_t base = p->space == F8_SPACE_CONST ? b->constants_base : 0;
    return (f8_arg){p->space, p->port, p->offset + base};
}

f8_place f8_build_scratch(f8_build *b, int64_t bytes, int64_t stride)
{
    const int64_t base = f8_aligned(b->func->lowered->arena_bytes, F8_ARENA_ALIGN);
    const f8_place p = {F8_SPACE_ARENA, -1, base + b->scratch, stride};
    b->scratch += f8_aligned(bytes, F8_ARENA_ALIGN);
    if (b->scratch > b->most_scratch)
        b->most_scratch = b->scratch;
    return p;
}

int64_t f8_build_renamed_base(const f8_build *b)
{
    return f8_aligned(b->func->lowered->arena_bytes, F8_ARENA_ALIGN) + b->most_scratch;
}
