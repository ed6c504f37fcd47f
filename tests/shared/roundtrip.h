/* Whether two modules are the same, node by node, and printing a module to memory: for tests of
 * the parser and printer, and for the fuzz target. */
#ifndef F8_TESTS_ROUNDTRIP_H
#define F8_TESTS_ROUNDTRIP_H

#include <stdlib.h>
#include <string.h>

#include "frontend/text/parse.h"

typedef struct rt_text {
    char *text;
    size_t n, room;
} rt_text;

static int rt_write(void *user, const char *text, size_t n)
{
    rt_text *t = user;
    if (t->n + n + 1 > t->room) {
        t->room = 2 * (t->n + n + 1);
        t->text = realloc(t->text, t->room);
        if (!t->text)
            abort();
    }
    memcpy(t->text + t->n, text, n);
    t->n += n;
    t->text[t->n] = 0;
    return 0;
}

/* The module's canonical text; the caller frees .text. */
static inline rt_text rt_print(const f8_module *m)
{
    rt_text t = {0};
    if (f8_print_module(m, &(f8_writer){rt_write, &t}) != F8_OK)
        abort();
    return t;
}

static inline bool rt_same_attr(const f8_attr *a, const f8_attr *b)
{
    if (a->key != b->key)
        return false;
    switch (f8_attr_kind_of(a->key)) {
    case F8_ATTR_FLOAT: return !memcmp(&a->f, &b->f, sizeof a->f) || (a->f != a->f && b->f != b->f);
    case F8_ATTR_STR: return !strcmp(a->s, b->s);
    case F8_ATTR_INTS:
        return a->ints.n == b->ints.n && !memcmp(a->ints.v, b->ints.v, (size_t)a->ints.n * 8);
    default: return a->i == b->i;
    }
}

static inline bool rt_same_port(const f8_port *a, const f8_port *b)
{
    return !strcmp(a->name, b->name) && a->var == b->var && f8_type_equal(&a->type, &b->type);
}

/* Everything of a node but its operands. */
static inline bool rt_same_node(const f8_func *fa, f8_ref ra, const f8_func *fb, f8_ref rb)
{
    const f8_node *a = f8_at(fa->graph, ra), *b = f8_at(fb->graph, rb);
    if (a->op != b->op || a->clone != b->clone || a->n_in != b->n_in ||
        !f8_type_equal(&a->type, &b->type))
        return false;
    if (a->op == F8_OP_INPUT)
        return rt_same_port(&fa->in[f8_attr_i(fa->graph, ra, F8_A_INDEX)],
                            &fb->in[f8_attr_i(fb->graph, rb, F8_A_INDEX)]);
    for (int i = 0; i < f8_op_facts(a->op)->n_attrs; i++)
        if (!rt_same_attr(&a->attr[i], &b->attr[i]))
            return false;
    return true;
}

/* Whether the live graphs of two functions are the same; with `exact`, also every ref and every
 * port. */
static inline bool rt_same_func(const f8_func *fa, const f8_func *fb, bool exact)
{
    bool same = !strcmp(fa->name, fb->name) && fa->n_out == fb->n_out &&
                (!exact || (fa->n_in == fb->n_in && fa->graph->n_nodes == fb->graph->n_nodes));
    f8_ref *to = calloc(fa->graph->n_nodes, sizeof *to),
           *from = calloc(fb->graph->n_nodes, sizeof *from);
    if (!to || !from)
        abort();
    for (size_t i = 0; same && i < fa->n_out; i++) {
        same = rt_same_port(&fa->out[i], &fb->out[i]);
        to[fa->out[i].ref] = fb->out[i].ref;
    }
    for (size_t i = 0; same && exact && i < fa->n_in; i++)
        same = rt_same_port(&fa->in[i], &fb->in[i]) && fa->in[i].ref == fb->in[i].ref;
    /* Users come after their operands, so going down every live node is paired before it is
     * seen. */
    for (f8_ref r = fa->graph->n_nodes; same && --r > 0;) {
        if (exact)
            to[r] = r;
        if (!to[r])
            continue;
        same = (!from[to[r]] || from[to[r]] == r) && rt_same_node(fa, r, fb, to[r]);
        from[to[r]] = r;
        const f8_node *a = f8_at(fa->graph, r), *b = f8_at(fb->graph, to[r]);
        for (uint32_t i = 0; same && i < a->n_in; i++) {
            f8_ref *paired = &to[a->in[i]];
            same = !*paired || *paired == b->in[i] || exact;
            if (exact)
                same = a->in[i] == b->in[i];
            *paired = b->in[i];
        }
    }
    free(to);
    free(from);
    return same;
}

/* The other facts of a module are all in its text, which callers compare. */
static inline bool rt_same_module(const f8_module *a, const f8_module *b, bool exact)
{
    bool same = a->n_funcs == b->n_funcs;
    for (size_t i = 0; same && i < a->n_funcs; i++)
        same = rt_same_func(&a->func[i], &b->func[i], exact);
    return same;
}

#endif
