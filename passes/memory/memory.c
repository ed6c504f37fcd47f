/* Memory: gives every value a place.
 *
 * storage_share.c decides which values share an allocation under the order that schedule chose. The
 * allocations that are left, one lifetime each, are packed into the arena by unit/pack.c. Then
 * views follow their bases. A result that could not be computed in place, because somebody reads
 * the old state afterwards, is copied at the end.
 *
 * Requires schedule. Gives func->lowered its places, copies, allocations, arena_bytes, lower_bound
 * and constants. */
#include "passes/memory/memory.h"
#include "ir/num/fp8.h"
#include "ir/rope.h"
#include "passes/unit/pack.h"
#include "passes/memory/storage.h"

#include <string.h>

/* ---- constants ---- */

/* Whether zeros must be copied behind the last row of a value. */
static bool needs_zeros(const f8_storage *s)
{
    bool any = false;
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        any |= s->base[r].pad.rows && s->base[r].pad.zeros;
    return any;
}

static bool is_constant(f8_op op)
{
    return op == F8_OP_CONST || op == F8_OP_IOTA || op == F8_OP_ROPE_COS || op == F8_OP_ROPE_SIN;
}

static void write_const(f8_dtype dtype, double value, uint8_t *to)
{
    const float f = (float)value;
    const int32_t i = (int32_t)(dtype == F8_I32 ? value : 0);
    switch (dtype) {
    case F8_F32: memcpy(to, &f, sizeof f); break;
    case F8_I32: memcpy(to, &i, sizeof i); break;
    case F8_BOOL: *to = value != 0; break;
    default: {
        const uint32_t code = f8_encode(dtype, f, false);
        for (size_t k = 0; k < f8_dtype_size(dtype); k++)
            to[k] = (uint8_t)(code >> 8 * k);
    }
    }
}

static void write_constant(const f8_graph *g, f8_ref r, uint8_t *to)
{
    const f8_node *n = f8_at(g, r);
    const int64_t cols = f8_type_columns(&n->type), rows = f8_type_rows(&n->type);
    if (n->op == F8_OP_CONST) {
        write_const(n->type.dtype, f8_attr_f(g, r, F8_A_VALUE), to);
    } else if (n->op == F8_OP_IOTA) {
        for (int64_t i = 0; i < rows * cols; i++) {
            const int32_t column = (int32_t)(i % cols);
            memcpy(to + 4 * i, &column, sizeof column);
        }
    } else {
        const f8_rope frequencies = f8_rope_of(n);
        f8_rope_table(n->op, rows, cols, &frequencies, (float *)(void *)to);
    }
}

static f8_status place_constants(f8_storage *s, f8_arena *arena)
{
    f8_lowered *p = s->lowered;
    p->constants_bytes = 0;
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        if (s->base[r].read && is_constant(s->g->node[r].op)) {
            s->base[r].place = (f8_place){.space = F8_SPACE_CONST, .offset = p->constants_bytes};
            p->constants_bytes += f8_aligned(f8_type_bytes(f8_type_of(s->g, r)), F8_ARENA_ALIGN);
        }
    p->zero = p->constants_bytes;
    if (needs_zeros(s))
        p->constants_bytes += F8_ARENA_ALIGN;
    p->constants = F8_NEW_ARRAY(arena, uint8_t, (size_t)p->constants_bytes);
    if (!p->constants)
        return f8_arena_status(arena, s->diag);
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        if (s->base[r].place.space == F8_SPACE_CONST)
            write_constant(s->g, r, p->constants + s->base[r].place.offset);
    return F8_OK;
}

/* ---- inputs, the arena ---- */

static void place_inputs(f8_storage *s)
{
    for (size_t i = 0; i < s->func->n_in; i++) {
        const f8_port *port = &s->func->in[i];
        s->base[port->ref].place =
            port->var >= 0 ? (f8_place){.space = F8_SPACE_STATE, .offset = s->var_offset[port->var]}
                           : (f8_place){.space = F8_SPACE_INPUT, .port = (int32_t)i};
    }
}

static f8_status pack_arena(f8_storage *s)
{
    f8_lowered *p = s->lowered;
    f8_lifetime *block = F8_NEW_ARRAY(s->scratch, f8_lifetime, s->g->n_nodes);
    uint32_t n = 0;
    if (!block)
        return f8_arena_status(s->scratch, s->diag);
    for (f8_ref r = 1; r < s->g->n_nodes; r++) {
        const f8_base *b = &s->base[r];
        if (b->def != F8_NO_GROUP && b->root == r && b->place.space == F8_SPACE_NONE)
            block[n++] = (f8_lifetime){f8_storage_bytes(s, r), b->start, b->end, r, 0};
    }
    f8_packing packed;
    if (!f8_pack(block, n, p->n_groups + 1, s->scratch, &packed))
        return f8_arena_status(s->scratch, s->diag);
    p->arena_bytes = packed.bytes;
    p->lower_bound = packed.lower_bound;
    p->least_bytes = packed.bytes;
    for (uint32_t i = 0; i < n; i++)
        s->base[block[i].id].place = (f8_place){.space = F8_SPACE_ARENA, .offset = block[i].offset};
    return F8_OK;
}

/* Note the allocations of the arena with their lifetimes, for reports. */
static f8_status note_held(f8_storage *s, f8_arena *arena)
{
    f8_lowered *p = s->lowered;
    p->n_allocations = 0;
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        p->n_allocations += s->base[r].root == r && s->base[r].place.space == F8_SPACE_ARENA;
    p->allocation = F8_NEW_ARRAY(arena, f8_allocation, p->n_allocations);
    p->root = F8_NEW_ARRAY(arena, f8_ref, s->g->n_nodes);
    if (!p->allocation || !p->root)
        return f8_arena_status(arena, s->diag);
    uint32_t n = 0;
    for (f8_ref r = 1; r < s->g->n_nodes; r++) {
        const f8_base *b = &s->base[r];
        if (b->root == r && b->place.space == F8_SPACE_ARENA)
            p->allocation[n++] = (f8_allocation){r, b->place.offset, f8_storage_bytes(s, r),
                                                 b->start, b->end};
        const f8_base *of = &s->base[s->view[r].base];
        p->root[r] = p->place[r].space == F8_SPACE_ARENA ? of->root : 0;
    }
    return F8_OK;
}

/* ---- places ---- */

static f8_place place_of(const f8_storage *s, f8_ref r)
{
    const f8_view *v = &s->view[r];
    const f8_base *b = &s->base[v->base];
    f8_place place = s->base[b->root].place;
    if (place.space == F8_SPACE_NONE || (b->def == F8_NO_GROUP && b->place.space == F8_SPACE_NONE))
        return (f8_place){.space = F8_SPACE_NONE};
    /* A view of a base with gaps between its rows sees its own rows and columns. */
    const int64_t size = (int64_t)f8_dtype_size(f8_type_of(s->g, r)->dtype);
    const bool gaps = b->stride != f8_type_columns(f8_type_of(s->g, v->base));
    place.offset += (b->offset + v->offset) * size;
    place.stride = gaps ? b->stride : v->stride;
    if (place.space != F8_SPACE_INPUT && place.space != F8_SPACE_OUTPUT)
        place.port = -1;
    return place;
}

/* A view that shows the whole base, row for row, has its padding. */
static f8_pad pad_of(const f8_storage *s, f8_ref r)
{
    const f8_view *v = &s->view[r];
    return v->offset == 0 &&
                   f8_type_same_matrix(f8_type_of(s->g, r), f8_type_of(s->g, v->base))
               ? s->base[v->base].pad
               : (f8_pad){0};
}

static bool same_place(const f8_place *a, const f8_place *b)
{
    return a->space == b->space && a->port == b->port && a->offset == b->offset;
}

/* Copy the results that do not lie where they belong. */
static f8_status final_copies(f8_storage *s, f8_arena *arena)
{
    f8_lowered *p = s->lowered;
    p->copy = F8_NEW_ARRAY(arena, f8_final_copy, s->func->n_out);
    p->n_copies = 0; /* a function may be placed again */
    if (!p->copy)
        return f8_arena_status(arena, s->diag);
    for (size_t i = 0; i < s->func->n_out; i++) {
        const f8_port *port = &s->func->out[i];
        const int64_t stride = f8_type_columns(&port->type);
        const f8_place to = port->var >= 0
                                ? (f8_place){F8_SPACE_STATE, -1, s->var_offset[port->var], stride}
                                : (f8_place){F8_SPACE_OUTPUT, (int32_t)i, 0, stride};
        if (!same_place(&p->place[port->ref], &to))
            p->copy[p->n_copies++] = (f8_final_copy){port->ref, to};
    }
    return F8_OK;
}

/* ---- the pass ---- */

static f8_status place_function(f8_storage *s, f8_unit *u, f8_func *f)
{
    f8_lowered *p = f->lowered;
    F8_TRY(f8_storage_build(s, f, f8_unit_target(u), s->scratch, u->diag));
    uint32_t *position = F8_NEW_ARRAY(s->scratch, uint32_t, p->n_groups);
    p->place = F8_NEW_ARRAY(u->arena, f8_place, f->graph->n_nodes);
    p->pad = F8_NEW_ARRAY(u->arena, f8_pad, f->graph->n_nodes);
    F8_TRY(f8_arena_status(u->arena, u->diag));
    F8_TRY(f8_arena_status(s->scratch, u->diag));
    for (uint32_t i = 0; i < p->n_groups; i++)
        position[p->order[i]] = i;
    F8_TRY(f8_storage_share(s, position));
    place_inputs(s);
    F8_TRY(place_constants(s, u->arena));
    F8_TRY(pack_arena(s));
    for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
        p->place[r] = place_of(s, r);
        p->pad[r] = pad_of(s, r);
    }
    F8_TRY(note_held(s, u->arena));
    return final_copies(s, u->arena);
}

f8_status f8_place_function(f8_unit *u, f8_func *f)
{
    f8_arena scratch;
    f8_arena_init(&scratch, &u->arena->allocator);
    f8_storage s = {.scratch = &scratch};
    const f8_status status = place_function(&s, u, f);
    f8_arena_end(&scratch);
    return status;
}

/* What is done about sizes of a GEMM that its library is slow for; "" for nothing. */
static const char *padding_text(const f8_unit *u, const f8_func *f, f8_ref r,
                                const f8_gemm_sizes *size)
{
    const f8_gemm_sizes padded = f8_lowered_gemm(f->graph, f->lowered, r);
    const int64_t first = f8_lowered_split(f->graph, f8_unit_target(u), r, &padded);
    const bool wide = size->m != padded.m || size->n != padded.n || size->k != padded.k;
    const char *text =
        wide ? f8_arena_printf(u->arena, "; padded to %lldx%lldx%lld", (long long)padded.m,
                               (long long)padded.n, (long long)padded.k)
             : "";
    return first == padded.m || !text
               ? text
               : f8_arena_printf(u->arena, "%s; in parts of %lld and %lld rows", text,
                                 (long long)first, (long long)(padded.m - first));
}

static bool same_sizes(const f8_gemm_sizes *a, const f8_gemm_sizes *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k;
}

/* Adds this to the decision on GEMM r. An FP8 GEMM was padded in the graph (legalize/pad.c), and
 * has the padded sizes there. */
static void note_padding(f8_unit *u, const f8_func *f, f8_ref r)
{
    const f8_graph *g = f->graph;
    const f8_node *n = f8_at(g, r);
    if (n->op == F8_OP_BATCH_MATMUL)
        return;
    const f8_gemm_sizes size = f8_gemm_sizes_of(g, r);
    const bool fp8 = f8_dtype_is_fp8(f8_type_of(g, n->in[0])->dtype);
    const char *linear = f8_attr_s(g, r, F8_A_NAME), *role = f8_attr_s(g, r, F8_A_ROLE);
    const char *note =
        fp8 ? f8_arena_printf(u->arena, "; padded to %lldx%lldx%lld", (long long)size.m,
                              (long long)size.n, (long long)size.k)
            : padding_text(u, f, r, &size);
    for (size_t i = 0; note && *note && i < u->n_decisions; i++) {
        f8_decision *d = &u->decision[i];
        const f8_gemm_sizes own = {d->m, d->n, d->k, 1},
                            made = fp8 ? f8_fp8_padded(f8_unit_target(u), own) : own;
        if (strcmp(d->linear, linear) || strcmp(d->role, role) || !same_sizes(&made, &size) ||
            (fp8 && same_sizes(&own, &size)) || strstr(d->reason, note))
            continue; /* another GEMM; or noted: eval and micro_step share decisions */
        const char *reason = f8_arena_printf(u->arena, "%s%s", d->reason, note);
        d->reason = reason ? reason : d->reason;
    }
}

/* All functions run in one arena. What others need anyway is no loss: two buckets may then be under
 * way where the order has one. */
static f8_status use_room(f8_unit *u, f8_func *f)
{
    const f8_lowered kept = *f->lowered;
    int64_t room = kept.arena_bytes;
    if (!kept.has_gate)
        return F8_OK;
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        const int64_t bytes = u->module->func[i].lowered->arena_bytes;
        room = bytes > room ? bytes : room;
    }
    F8_TRY(f8_schedule_buckets(u, f, 2));
    F8_TRY(f8_place_function(u, f));
    if (f->lowered->arena_bytes > room)
        *f->lowered = kept;
    f->lowered->least_bytes = kept.arena_bytes;
    return F8_OK;
}

f8_status f8_pass_memory(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        F8_TRY(f8_place_function(u, &u->module->func[i]));
        F8_TRY(f8_unit_within(u));
    }
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(use_room(u, &u->module->func[i]));
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        const f8_func *f = &u->module->func[i];
        for (uint32_t k = 0; k < f->lowered->n_groups; k++)
            if (f->lowered->group[k].kind == F8_GROUP_GEMM)
                note_padding(u, f, f->lowered->group[k].out[0]);
    }
    return f8_arena_status(u->arena, u->diag);
}
