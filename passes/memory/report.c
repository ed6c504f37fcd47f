/* What lies in memory at a function's peak: see report.h. */
#include "passes/memory/report.h"

#include <string.h>

#include "passes/unit/copy.h"
#include "passes/memory/memory.h"
#include "passes/memory/storage.h"

const char *f8_memory_category_name(f8_memory_category c)
{
    static const char *const names[F8_MEMORY_CATEGORIES] = {
        "parameters",   "gradients",          "optimizer",  "states",
        "weight codes", "inputs and results", "constants",  "activations",
        "FP8 copies",   "weight copies",      "recomputed", "workspace"};
    return c < F8_MEMORY_CATEGORIES ? names[c] : NULL;
}

/* ---- forward and backward ---- */

bool f8_memory_is_of_parameter(const f8_module *m, const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);
    const int32_t v = strncmp(name, prefix, n) ? -1 : f8_module_find_var(m, name + n);
    return v >= 0 && m->var[v].kind == F8_VAR_PARAM;
}

static bool is_gradient(const f8_module *m, const f8_port *p)
{
    return p->var >= 0 ? m->var[p->var].kind == F8_VAR_STATE &&
                             f8_memory_is_of_parameter(m, p->name, "grad.")
                       : f8_memory_is_of_parameter(m, p->name, "");
}

typedef struct reader {
    const f8_func *f;
    bool *forward,
        /* by ref: forward: the loss was computed from it; backward: gradients were, and the loss
         * was not */
        *backward;
    /* by ref: of the backward's values, one of the forward's in another format or order */
    bool *copy;
    bool *kept; /* by ref: the backward reads it from memory */
    /* by ref, in the current phase: what it writes for the backward depends on this node */
    bool *needed;
    bool *inside; /* by ref, in the current phase: computed in it */
    bool *data;   /* by ref: depends on the caller's inputs, not on variables alone */
} reader;

/* *any: f has a loss, and a gradient. */
static f8_status find_sides(reader *s, f8_arena *arena, f8_diag *diag, bool *any)
{
    const f8_func *f = s->f;
    const f8_graph *g = f->graph;
    f8_ref *gradient = F8_NEW_ARRAY(arena, f8_ref, f->n_out), loss = 0;
    size_t n = 0;
    F8_TRY(f8_arena_status(arena, diag));
    for (size_t i = 0; i < f->n_out; i++) {
        const f8_port *p = &f->out[i];
        if (p->var < 0 && !strcmp(p->name, "loss"))
            loss = p->ref;
        else if (is_gradient(g->module, p))
            gradient[n++] = p->ref;
    }
    *any = loss && n > 0;
    s->forward = f8_live_nodes(g, &loss, loss ? 1 : 0, arena);
    s->backward = f8_live_nodes(g, gradient, n, arena);
    F8_TRY(f8_arena_status(arena, diag));
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        s->forward[r] |= g->node[r].op == F8_OP_PROJECT && s->forward[g->node[r].in[0]];
        s->backward[r] &= !s->forward[r];
    }
    return F8_OK;
}

void f8_memory_mark_data(const f8_graph *g, const f8_port *in, size_t n_in, bool *data)
{
    for (size_t i = 0; i < n_in; i++)
        data[in[i].ref] = in[i].var < 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        for (uint32_t k = 0; k < g->node[r].n_in; k++)
            data[r] |= data[g->node[r].in[k]];
}

static void find_copies(reader *s)
{
    const f8_graph *g = s->f->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        const bool scaled =
            n->op == F8_OP_QUANTIZE || n->op == F8_OP_DEQUANTIZE; /* in[1] are the scales */
        if (s->forward[r] || f8_is_recomputed(g, r) ||
            !(scaled || n->op == F8_OP_CAST || n->op == F8_OP_TRANSPOSE || n->op == F8_OP_RESHAPE ||
              n->op == F8_OP_SLICE || n->op == F8_OP_CONCAT || n->op == F8_OP_BROADCAST))
            continue;
        s->copy[r] = true;
        for (uint32_t k = 0; k < (scaled ? 1 : n->n_in); k++)
            s->copy[r] &= s->forward[n->in[k]] || s->copy[n->in[k]];
    }
    for (f8_ref r = 1; r < g->n_nodes; r++) { /* scales belong to their codes */
        const f8_node *n = f8_at(g, r);
        for (uint32_t k = 0; n->op == F8_OP_SCALED_MATMUL && k < 4; k += 2)
            s->copy[n->in[k + 1]] |= s->copy[n->in[k]] && !s->forward[n->in[k + 1]];
    }
}

/* Whether a group writes `r` for the backward. After the loss, copies of the forward's values count
 * too. */
static bool is_for_backward(const reader *s, f8_ref r, bool after_loss)
{
    return s->backward[r] && (after_loss || !s->copy[r]);
}

/* Note what a phase reads from memory for the sake of the backward. A node of the forward may be
 * computed once more in a kernel of the backward; then what it is made from is what must be kept.
 */
static void read_phase(reader *s, const f8_phase *p, bool after_loss)
{
    const f8_graph *g = s->f->graph;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        s->inside[p->node[i]] = true;
    for (uint32_t i = 0; i < p->n_out; i++)
        s->needed[p->out[i]] = is_for_backward(s, p->out[i], after_loss);
    for (uint32_t i = p->n_nodes; i-- > 0;) {
        const f8_node *n = f8_at(g, p->node[i]);
        for (uint32_t k = 0; s->needed[p->node[i]] && k < n->n_in; k++)
            *(s->inside[n->in[k]] ? &s->needed[n->in[k]] : &s->kept[n->in[k]]) = true;
    }
    for (uint32_t i = 0; i < p->n_nodes; i++)
        s->inside[p->node[i]] = s->needed[p->node[i]] = false;
}

static void read_group(reader *s, const f8_group *group, bool after_loss)
{
    bool backward = false;
    for (uint32_t i = 0; i < group->n_out; i++)
        if (s->forward[group->out[i]])
            /* a value that goes into the loss and into a gradient in one phase, as logits do, is
             * not kept */
            return;
    for (uint32_t i = 0; i < group->n_phases; i++)
        read_phase(s, &group->phase[i], after_loss);
    for (uint32_t i = 0; i < group->n_out; i++)
        backward |= is_for_backward(s, group->out[i], after_loss);
    for (uint32_t i = 0; group->kind != F8_GROUP_ROWS && backward && i < group->n_in; i++)
        s->kept[group->in[i]] = true;
}

/* Whether the backward begins with this group: a gradient goes through a linear or an attention. */
static bool begins_backward(const f8_graph *g, const f8_group *group)
{
    const char *role = group->kind == F8_GROUP_GEMM ? f8_attr_s(g, group->out[0], F8_A_ROLE) : "";
    return group->kind == F8_GROUP_ATTENTION_GRAD || !strcmp(role, "dgrad") ||
           !strcmp(role, "wgrad");
}

static void read_groups(reader *s)
{
    const f8_lowered *p = s->f->lowered;
    bool after_loss = false;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        after_loss |= begins_backward(s->f->graph, &p->group[p->order[i]]);
        read_group(s, &p->group[p->order[i]], after_loss);
    }
}

/* ---- categories ---- */

/* By ref: an operand of an FP8 op that is read as scales. */
static void mark_scales(const f8_graph *g, bool *scales)
{
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        if (n->op == F8_OP_SCALED_MATMUL)
            scales[n->in[1]] = scales[n->in[3]] = true;
        else if (n->op == F8_OP_DEQUANTIZE || n->op == F8_OP_QUANTIZE)
            scales[n->in[1]] = true;
    }
}

static uint32_t held_of(const f8_lowered *p, f8_ref root)
{
    uint32_t low = 0, high = p->n_allocations;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (p->allocation[mid].root < root)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

f8_status f8_memory_categories(const f8_func *f, f8_arena *arena, f8_diag *diag,
                               f8_memory_category **out)
{
    const f8_graph *g = f->graph;
    const f8_lowered *p = f->lowered;
    f8_memory_category *category = F8_NEW_ARRAY(arena, f8_memory_category, p->n_allocations);
    const f8_view *view = f8_views(g, arena);
    bool *scales = F8_NEW_ARRAY(arena, bool, g->n_nodes);
    bool any;
    reader s = {.f = f,
                .copy = F8_NEW_ARRAY(arena, bool, g->n_nodes),
                .kept = F8_NEW_ARRAY(arena, bool, g->n_nodes),
                .needed = F8_NEW_ARRAY(arena, bool, g->n_nodes),
                .inside = F8_NEW_ARRAY(arena, bool, g->n_nodes),
                .data = F8_NEW_ARRAY(arena, bool, g->n_nodes)};
    F8_TRY(f8_arena_status(arena, diag));
    *out = category;
    f8_memory_mark_data(g, f->in, f->n_in, s.data);
    F8_TRY(find_sides(&s, arena, diag, &any));
    if (any) {
        find_copies(&s);
        read_groups(&s);
    }
    mark_scales(g, scales);
    for (uint32_t i = 0; i < p->n_allocations; i++)
        category[i] = F8_MEMORY_WORKSPACE;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        if (!p->root[r])
            continue;
        f8_memory_category *c = &category[held_of(p, p->root[r])];
        const f8_ref base = view[r].base; /* the bytes of a view are its base's */
        if (s.kept[r] && (s.forward[base] || s.copy[base])) {
            const bool fp8 = f8_dtype_is_fp8(g->node[base].type.dtype) || scales[r] || scales[base];
            if (*c != F8_MEMORY_ACTIVATIONS)
                *c = !s.data[base] ? F8_MEMORY_WEIGHT_COPIES
                     : fp8         ? F8_MEMORY_FP8_COPIES
                                   : F8_MEMORY_ACTIVATIONS;
        } else if (*c == F8_MEMORY_WORKSPACE && f8_is_recomputed(g, r)) {
            *c = F8_MEMORY_RECOMPUTED;
        }
    }
    return F8_OK;
}

/* ---- the peak ---- */

f8_status f8_memory_find_peak(const f8_func *f, f8_arena *scratch, f8_diag *diag,
                              f8_memory_peak *out)
{
    const f8_lowered *p = f->lowered;
    f8_memory_category *category;
    int64_t *change = F8_NEW_ARRAY(scratch, int64_t, (size_t)p->n_groups + 2);
    *out = (f8_memory_peak){0};
    if (!change)
        return f8_arena_status(scratch, diag);
    F8_TRY(f8_memory_categories(f, scratch, diag, &category));
    for (uint32_t i = 0; i < p->n_allocations; i++) {
        change[p->allocation[i].first] += p->allocation[i].bytes;
        change[p->allocation[i].last + 1] -= p->allocation[i].bytes;
    }
    int64_t alive = 0;
    for (uint32_t at = 0; at <= p->n_groups; at++) {
        alive += change[at];
        if (alive > out->bytes)
            *out = (f8_memory_peak){.at = at, .bytes = alive};
    }
    for (uint32_t i = 0; i < p->n_allocations; i++)
        if (p->allocation[i].first <= out->at && out->at <= p->allocation[i].last &&
            (category[i] == F8_MEMORY_ACTIVATIONS || category[i] == F8_MEMORY_FP8_COPIES))
            out->activations += p->allocation[i].bytes;
    return F8_OK;
}

f8_status f8_memory_activations(const f8_func *f, f8_arena *scratch, f8_diag *diag, int64_t *bytes)
{
    f8_memory_peak peak;
    F8_TRY(f8_memory_find_peak(f, scratch, diag, &peak));
    *bytes = peak.activations;
    return F8_OK;
}

/* ---- everything outside of the arena ---- */

/* As the executors allocate buffers: on a GPU at multiples of 256 bytes. */
int64_t f8_memory_port_bytes(const f8_unit *u, const f8_port *p)
{
    const int64_t by = f8_unit_target(u)->kind == F8_TARGET_CUDA ? 256 : F8_ARENA_ALIGN;
    return p->var >= 0 ? 0 : f8_aligned(f8_type_bytes(&p->type), by);
}

static int64_t ports_bytes(const f8_unit *u, const f8_func *f)
{
    int64_t bytes = 0;
    if (f8_is_form(u->module, f))
        return 0;
    for (size_t i = 0; i < f->n_in; i++)
        bytes += f8_memory_port_bytes(u, &f->in[i]);
    for (size_t i = 0; i < f->n_out; i++)
        bytes += f8_memory_port_bytes(u, &f->out[i]);
    return bytes;
}

f8_status f8_memory_fixed(f8_unit *u, f8_memory_outside *out)
{
    *out = (f8_memory_outside){.rest = f8_module_layout(u->module, NULL)};
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        f8_func *f = &u->module->func[i];
        if (!f->lowered->order)
            F8_TRY(f8_schedule_function(u, f));
        if (!f->lowered->place)
            F8_TRY(f8_place_function(u, f));
        out->rest += ports_bytes(u, f) + f->lowered->constants_bytes;
        if (!f8_is_micro_step(f->name) && f->lowered->least_bytes > out->others)
            out->others = f->lowered->least_bytes;
    }
    if (!u->options.code_bytes)
        return F8_OK;
    f8_code_bytes code;
    F8_TRY(u->options.code_bytes(u->options.code_bytes_user, u, &code));
    *out = (f8_memory_outside){code.total - code.arena, code.extra, code.others};
    return F8_OK;
}
