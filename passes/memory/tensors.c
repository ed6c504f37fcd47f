/* What lies in memory at a function's peak, by name: see report.h. */
#include "ir/place.h"
#include <stdlib.h>
#include <string.h>

#include "passes/memory/report.h"
#include "passes/memory/storage.h"

typedef struct listing {
    const f8_unit *u;
    const f8_func *f;
    f8_arena *arena;
    const f8_memory_category *category; /* of what lies in the arena */
    f8_ref *first, *next; /* by root, by ref: the values of an allocation, ascending; 0 ends them */
    f8_memory_report *out;
} listing;

/* ---- names ---- */

/* What a value is called by itself, or NULL. */
static const char *own_name(const f8_func *f, f8_ref r, f8_arena *arena)
{
    const f8_graph *g = f->graph;
    const f8_node *n = f8_at(g, r);
    if (g->name[r])
        return g->name[r];
    if (n->op == F8_OP_INPUT)
        return f->in[f8_attr_i(g, r, F8_A_INDEX)].name;
    if (n->op != F8_OP_MATMUL && n->op != F8_OP_SCALED_MATMUL)
        return NULL;
    const char *linear = f8_attr_s(g, r, F8_A_NAME), *role = f8_attr_s(g, r, F8_A_ROLE);
    if (!*linear)
        return NULL;
    return *role ? f8_arena_printf(arena, "%s.%s", linear, role) : linear;
}

/* The operand that says most about r: of those that are no constants, the first with the most
 * elements. 0: none. */
static f8_ref telling_operand(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    f8_ref best = 0;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const f8_node *of = f8_at(g, n->in[k]);
        if (of->op != F8_OP_CONST && of->op != F8_OP_IOTA &&
            (!best || f8_type_elements(&of->type) > f8_type_elements(f8_type_of(g, best))))
            best = n->in[k];
    }
    return best;
}

static const char *what_it_is(const f8_graph *g, f8_ref r)
{
    static const char *const grads[] = {"dq", "dk", "dv"};
    const f8_node *n = f8_at(g, r);
    if (n->op == F8_OP_ATTENTION_GRAD)
        return grads[0];
    if (n->op != F8_OP_PROJECT)
        return f8_op_facts(n->op)->name;
    const f8_op of = f8_at(g, n->in[0])->op;
    const int64_t index = f8_attr_i(g, r, F8_A_INDEX);
    if (of == F8_OP_ATTENTION_GRAD && index < 3)
        return grads[index];
    return of == F8_OP_ATTENTION ? "lse" : f8_op_facts(of)->name;
}

const char *f8_memory_name(const f8_func *f, f8_ref r, f8_arena *arena)
{
    const f8_graph *g = f->graph;
    const char *name = own_name(f, r, arena);
    if (name)
        return name;
    const char *what = what_it_is(g, r);
    for (f8_ref from = telling_operand(g, r); from && !name; from = telling_operand(g, from))
        name = own_name(f, from, arena);
    return name ? f8_arena_printf(arena, "%s of %s", what, name) : what;
}

/* The name of an allocation: its root's, else that of another value that fills it. */
static const char *allocation_name(const listing *l, f8_ref root)
{
    const char *name = own_name(l->f, root, l->arena);
    const int64_t bytes = f8_type_bytes(f8_type_of(l->f->graph, root));
    for (f8_ref r = l->first[root]; !name && r; r = l->next[r])
        if (f8_type_bytes(f8_type_of(l->f->graph, r)) == bytes)
            name = own_name(l->f, r, l->arena);
    return name ? name : f8_memory_name(l->f, root, l->arena);
}

/* ---- tensors ---- */

static void add(listing *l, const f8_memory_tensor *t)
{
    l->out->tensor[l->out->n_tensors++] = *t;
    l->out->bytes[t->category] += t->bytes;
}

static f8_memory_category of_variable(const f8_module *m, const f8_var *v)
{
    static const char *const moments[] = {"opt.m.", "opt.v."};
    if (v->kind == F8_VAR_PARAM)
        return F8_MEMORY_PARAMETERS;
    if (f8_memory_is_of_parameter(m, v->name, "grad."))
        return F8_MEMORY_GRADIENTS;
    for (int i = 0; i < 2; i++)
        if (f8_memory_is_of_parameter(m, v->name, moments[i]))
            return F8_MEMORY_OPTIMIZER;
    if (f8_is_weight_codes(v->name))
        return F8_MEMORY_WEIGHT_CODES;
    return !strcmp(v->name, "opt.step") || !strcmp(v->name, F8_COUNT_NAME) ? F8_MEMORY_OPTIMIZER
                                                                           : F8_MEMORY_STATES;
}

static void add_variables(listing *l)
{
    const f8_module *m = l->u->module;
    for (size_t i = 0; i < m->n_vars; i++)
        add(l,
            &(f8_memory_tensor){.name = m->var[i].name,
                                .type = m->var[i].type,
                                .bytes = f8_aligned(f8_type_bytes(&m->var[i].type), F8_ARENA_ALIGN),
                                .category = of_variable(m, &m->var[i]),
                                .made = "",
                                .read = "",
                                .last = l->f->lowered->n_groups});
}

static void add_ports(listing *l, const f8_func *f, const f8_port *port, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (port[i].var < 0)
            add(l, &(f8_memory_tensor){
                       .name = f8_arena_printf(l->arena, "%s of %s", port[i].name, f->name),
                       .type = port[i].type,
                       .bytes = f8_memory_port_bytes(l->u, &port[i]),
                       .category = F8_MEMORY_PORTS,
                       .made = "",
                       .read = "",
                       .last = l->f->lowered->n_groups});
}

static void add_functions(listing *l)
{
    const f8_module *m = l->u->module;
    for (size_t i = 0; i < m->n_funcs; i++) {
        const f8_func *f = &m->func[i];
        const bool has_ports = !f8_is_form(m, f);
        add_ports(l, f, f->in, has_ports ? f->n_in : 0);
        add_ports(l, f, f->out, has_ports ? f->n_out : 0);
        if (f->lowered->constants_bytes)
            add(l,
                &(f8_memory_tensor){.name = f8_arena_printf(l->arena, "constants of %s", f->name),
                                    .type = {F8_BOOL, 1, {f->lowered->constants_bytes}},
                                    .bytes = f->lowered->constants_bytes,
                                    .category = F8_MEMORY_CONSTANTS,
                                    .made = "",
                                    .read = "",
                                    .last = l->f->lowered->n_groups});
    }
}

static const char *group_at(const f8_lowered *p, uint32_t position)
{
    const char *name = position < p->n_groups ? p->group[p->order[position]].name : NULL;
    return name ? name : "";
}

static void add_arena(listing *l)
{
    const f8_lowered *p = l->f->lowered;
    for (uint32_t i = 0; i < p->n_allocations; i++) {
        const f8_allocation *h = &p->allocation[i];
        if (h->first > l->out->peak.at || h->last < l->out->peak.at)
            continue;
        const char *name = allocation_name(l, h->root);
        if (l->category[i] == F8_MEMORY_RECOMPUTED && name)
            name = f8_arena_printf(l->arena, "%s (recomputed)", name);
        add(l, &(f8_memory_tensor){.name = name,
                                   .type = *f8_type_of(l->f->graph, h->root),
                                   .bytes = h->bytes,
                                   .category = l->category[i],
                                   .made = group_at(p, h->first),
                                   .read = group_at(p, h->last),
                                   .first = h->first,
                                   .last = h->last});
    }
}

static int most_bytes(const void *a, const void *b)
{
    const f8_memory_tensor *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->category != y->category)
        return x->category > y->category ? -1 : 1; /* what a budget can change goes first */
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return strcmp(x->name ? x->name : "", y->name ? y->name : "");
}

/* ---- the report ---- */

static f8_status list_values(listing *l, f8_arena *scratch)
{
    const uint32_t n = l->f->graph->n_nodes;
    l->first = F8_NEW_ARRAY(scratch, f8_ref, n);
    l->next = F8_NEW_ARRAY(scratch, f8_ref, n);
    F8_TRY(f8_arena_status(scratch, l->u->diag));
    for (f8_ref r = n; r-- > 1;) {
        f8_ref *first = &l->first[l->f->lowered->root[r]]; /* [0]: values outside of the arena */
        l->next[r] = *first;
        *first = r;
    }
    return F8_OK;
}

f8_status f8_memory_report_make(const f8_unit *u, const f8_func *f, f8_arena *arena,
                                f8_memory_report *out)
{
    f8_arena scratch;
    f8_memory_category *category = NULL;
    listing l = {.u = u, .f = f, .arena = arena, .out = out};
    *out = (f8_memory_report){0};
    f8_arena_init(&scratch, &arena->allocator);
    f8_status status = f8_memory_categories(f, &scratch, u->diag, &category);
    if (status == F8_OK)
        status = f8_memory_find_peak(f, &scratch, u->diag, &out->peak);
    if (status == F8_OK)
        status = list_values(&l, &scratch);
    if (status == F8_OK) {
        size_t room = u->module->n_vars + f->lowered->n_allocations;
        for (size_t i = 0; i < u->module->n_funcs; i++)
            room += u->module->func[i].n_in + u->module->func[i].n_out + 1;
        l.category = category;
        out->at = group_at(f->lowered, out->peak.at);
        out->tensor = F8_NEW_ARRAY(arena, f8_memory_tensor, room);
        if (out->tensor) {
            add_variables(&l);
            add_functions(&l);
            add_arena(&l);
            qsort(out->tensor, out->n_tensors, sizeof *out->tensor, most_bytes);
        }
        status = f8_arena_status(arena, u->diag);
    }
    f8_arena_end(&scratch);
    return status;
}
