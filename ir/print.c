/* The printer: canonical text, which frontend/text/parse*.c reads back to the same module.
 *
 * Canonical means: dims have their values, shapes are numbers, and each node is one statement, in
 * the order of the graph. An attribute is printed only if leaving it out would give another value.
 * Variables are printed by their bare names. A node keeps its source name if that is unique in the
 * function and a valid name; otherwise it is numbered %1, %2, ... in order of printing. Unnamed
 * finite f32 constants stand where they are used. `cast#2(%x)` is clone number 2 of a node. Doubles
 * and constants print with the fewest digits that read back the same, in any locale.
 *
 * Text goes out through a buffer; after the first failure of the writer nothing more is written. */
#include "ir/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/format.h"

enum { BUFFER = 4096, LINE = 96 };

typedef struct printer {
    const f8_writer *w;
    const f8_module *m;
    f8_arena scratch;
    bool failed;
    size_t used, column; /* bytes in the buffer; bytes of the line so far */
    char buffer[BUFFER];
    /* of the function being printed */
    const f8_func *f;
    const char **label; /* by ref: the name it prints under, or NULL */
    uint32_t *number;   /* by ref: N of %N, or 0 */
} printer;

/* ---- text ---- */

static void flush(printer *p)
{
    if (!p->failed && p->used && p->w->write(p->w->user, p->buffer, p->used))
        p->failed = true;
    p->used = 0;
}

static void put_n(printer *p, const char *text, size_t n)
{
    while (n && !p->failed) {
        size_t part = n < BUFFER - p->used ? n : BUFFER - p->used;
        memcpy(p->buffer + p->used, text, part);
        p->used += part;
        p->column += part;
        text += part;
        n -= part;
        if (p->used == BUFFER)
            flush(p);
    }
}

static void put(printer *p, const char *text)
{
    put_n(p, text, strlen(text));
}

static void put_line_end(printer *p)
{
    put(p, "\n");
    p->column = 0;
}

static void put_int(printer *p, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)v);
    put(p, text);
}

static void put_string(printer *p, const char *s)
{
    put(p, "\"");
    for (; *s; s++) {
        if (*s == '\n' || *s == '\t') {
            put(p, *s == '\n' ? "\\n" : "\\t");
            continue;
        }
        if (strchr("\"\\{}", *s))
            put(p, "\\");
        put_n(p, s, 1);
    }
    put(p, "\"");
}

/* ---- numbers ---- */

/* as_float: v is an f32, so fewer digits read back the same. */
static void put_number(printer *p, double v, bool as_float)
{
    char text[64];
    if (isnan(v)) {
        put(p, "nan");
        return;
    }
    for (int digits = as_float ? 6 : 15; digits <= 17; digits++) {
        f8_format(text, sizeof text, "%.*g", digits, v);
        const double back = f8_number(text);
        if (as_float ? (float)back == (float)v : back == v)
            break;
    }
    put(p, text);
}

/* ---- declarations ---- */

static void put_type(printer *p, const f8_type *t)
{
    char text[160];
    put(p, f8_type_print(t, text, sizeof text));
}

static void put_dims(printer *p)
{
    const f8_module *m = p->m;
    for (size_t i = 0; i < m->n_dims; i++) {
        put(p, i ? ", " : "dim ");
        put(p, m->dim[i].name);
        put(p, " = ");
        put_int(p, m->dim[i].value);
    }
    if (m->n_dims)
        put_line_end(p);
}

static void put_var(printer *p, const f8_var *v)
{
    put(p, v->kind == F8_VAR_PARAM ? "param " : "state ");
    put(p, v->name);
    put(p, ": ");
    put_type(p, &v->type);
    put(p, " ");
    put(p, f8_init_name[v->init]);
    if (f8_init_takes_number(v->init)) {
        put(p, "(");
        put_number(p, v->init_arg, false);
        put(p, ")");
    }
    put_line_end(p);
}

static void put_optimizer(printer *p)
{
    const f8_optimizer *o = &p->m->optimizer;
    const struct {
        const char *name;
        double value;
    } reals[] = {{"lr", o->lr},
                 {"beta1", o->beta1},
                 {"beta2", o->beta2},
                 {"eps", o->eps},
                 {"weight_decay", o->weight_decay},
                 {"clip", o->clip},
                 {"min_lr", o->min_lr}};
    put(p, "optimizer adamw {");
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        put(p, reals[i].name);
        put(p, " = ");
        put_number(p, reals[i].value, false);
        put(p, ", ");
    }
    put(p, "warmup = ");
    put_int(p, o->warmup);
    put(p, ", steps = ");
    put_int(p, o->steps);
    put(p, ", schedule = ");
    put_string(p, o->schedule);
    put(p, "}");
    put_line_end(p);
}

static void put_rule(printer *p, const f8_recipe_rule *r)
{
    if (r->pattern) {
        put_string(p, r->pattern);
    } else {
        put(p, "layers ");
        put_int(p, r->first);
        put(p, ", ");
        put_int(p, r->last);
    }
    for (int k = 0; k < 2; k++)
        if (k ? r->operand : r->role) {
            put(p, " ");
            put(p, k ? r->operand : r->role);
        }
    put(p, " = ");
    put(p, r->recipe);
}

static void put_rules(printer *p, size_t from)
{
    for (size_t i = from; i < p->m->n_rules; i++) {
        put(p, "recipe ");
        put_rule(p, &p->m->rule[i]);
        put_line_end(p);
    }
}

/* ---- names of values ---- */

/* Notes that something has a name. Names are interned: equal strings are equal pointers. */
static bool count_name(printer *p, f8_map *uses, const char *name)
{
    const uint64_t key = f8_map_key(name);
    return f8_map_set(uses, &p->scratch, key, f8_map_get(uses, key) + 1, NULL) == F8_OK;
}

/* Whether a node has a name that can be printed. */
static bool is_named(const f8_graph *g, f8_ref r)
{
    return g->node[r].op != F8_OP_INPUT && f8_name_ok(g->name[r]);
}

/* label[r] = name for nodes whose name nothing else in the function has. */
static bool label_nodes(printer *p)
{
    const f8_graph *g = p->f->graph;
    f8_map uses = {0};
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->f->in[i].var < 0 && !count_name(p, &uses, p->f->in[i].name))
            return false;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (is_named(g, r) && !count_name(p, &uses, g->name[r]))
            return false;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (is_named(g, r) && f8_map_get(&uses, f8_map_key(g->name[r])) == 1)
            p->label[r] = g->name[r];
    return true;
}

/* A constant that stands where it is used instead of having a statement. */
static bool is_inline(const printer *p, f8_ref r)
{
    const f8_node *n = &p->f->graph->node[r];
    return n->op == F8_OP_CONST && !p->label[r] && n->clone == 0 && n->type.dtype == F8_F32 &&
           isfinite(f8_node_attr(n, F8_A_VALUE)->f);
}

static bool name_values(printer *p)
{
    const f8_graph *g = p->f->graph;
    uint32_t next = 0;
    p->label = F8_NEW_ARRAY(&p->scratch, const char *, g->n_nodes);
    p->number = F8_NEW_ARRAY(&p->scratch, uint32_t, g->n_nodes);
    if (!p->label || !p->number || !label_nodes(p))
        return false;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (g->node[r].op != F8_OP_INPUT && !p->label[r] && !is_inline(p, r))
            p->number[r] = ++next;
    return true;
}

static void put_value(printer *p, f8_ref r)
{
    const f8_graph *g = p->f->graph;
    if (g->node[r].op == F8_OP_INPUT) {
        const f8_port *port = &p->f->in[f8_attr_i(g, r, F8_A_INDEX)];
        put(p, port->var < 0 ? "%" : "");
        put(p, port->name);
    } else if (p->label[r]) {
        put(p, "%");
        put(p, p->label[r]);
    } else if (p->number[r]) {
        put(p, "%");
        put_int(p, p->number[r]);
    } else {
        put_number(p, f8_attr_f(g, r, F8_A_VALUE), true);
    }
}

/* ---- statements ---- */

static void put_attr_value(printer *p, const f8_node *n, const f8_attr *a)
{
    switch (f8_attr_kind_of(a->key)) {
    case F8_ATTR_INT:
        put_int(p, a->i);
        break;
    case F8_ATTR_FLOAT:
        put_number(p, a->f, n->op == F8_OP_CONST && n->type.dtype == F8_F32);
        break;
    case F8_ATTR_BOOL:
        put(p, a->i ? "true" : "false");
        break;
    case F8_ATTR_DTYPE:
        put(p, f8_dtype_name((f8_dtype)a->i));
        break;
    case F8_ATTR_STR:
        put_string(p, a->s);
        break;
    case F8_ATTR_INTS:
        put(p, "[");
        for (int i = 0; i < a->ints.n; i++) {
            put(p, i ? ", " : "");
            put_int(p, a->ints.v[i]);
        }
        put(p, "]");
        break;
    }
}

/* Whether leaving attribute `i` out gives the value it has: the default, in canonical form. */
static bool is_default(const printer *p, const f8_node *n, int i)
{
    const f8_op_info *info = f8_op_facts(n->op);
    f8_attr attr[F8_MAX_ATTRS];
    memcpy(attr, n->attr, info->n_attrs * sizeof *attr);
    attr[i] = info->attrs[i];
    f8_canonical_attrs(p->f->graph, n->op, n->in, n->n_in, attr);
    return f8_attr_equal(&attr[i], &n->attr[i]);
}

static void put_attrs(printer *p, const f8_node *n)
{
    bool any = false;
    for (int i = 0; i < f8_op_facts(n->op)->n_attrs; i++) {
        if (is_default(p, n, i))
            continue;
        put(p, any ? ", " : " {");
        put(p, f8_attr_name(n->attr[i].key));
        put(p, " = ");
        put_attr_value(p, n, &n->attr[i]);
        any = true;
    }
    if (any)
        put(p, "}");
}

static void put_node(printer *p, f8_ref r)
{
    const f8_node *n = &p->f->graph->node[r];
    if (n->op == F8_OP_INPUT || is_inline(p, r))
        return;
    put(p, "  ");
    put_value(p, r);
    put(p, " = ");
    put(p, f8_op_facts(n->op)->name);
    if (n->clone) {
        put(p, "#");
        put_int(p, (int64_t)n->clone);
    }
    put(p, "(");
    for (uint32_t i = 0; i < n->n_in; i++) {
        put(p, i ? ", " : "");
        put_value(p, n->in[i]);
    }
    put(p, ")");
    put_attrs(p, n);
    put_line_end(p);
}

/* ---- functions ---- */

/* Ports of the caller, in parentheses. Those of variables follow from the names in the body. */
static void put_ports(printer *p, const f8_port *port, size_t n)
{
    bool any = false;
    put(p, "(");
    for (size_t i = 0; i < n; i++) {
        if (port[i].var >= 0)
            continue;
        put(p, any ? ", %" : "%");
        put(p, port[i].name);
        put(p, ": ");
        put_type(p, &port[i].type);
        any = true;
    }
    put(p, ")");
}

static void put_return(printer *p)
{
    put(p, "  return");
    for (size_t i = 0; i < p->f->n_out; i++) {
        const f8_port *port = &p->f->out[i];
        if (i)
            put(p, ",");
        if (p->column > LINE) { /* an update returns hundreds of variables */
            put_line_end(p);
            put(p, "        ");
        }
        put(p, " ");
        if (port->var >= 0) {
            put(p, port->name);
            put(p, " <- ");
        }
        put_value(p, port->ref);
    }
    put_line_end(p);
}

static bool put_func(printer *p, const f8_func *f)
{
    p->f = f;
    if (!name_values(p))
        return false;
    put_line_end(p);
    put(p, "func ");
    put(p, f->name);
    put_ports(p, f->in, f->n_in);
    put(p, " -> ");
    put_ports(p, f->out, f->n_out);
    put(p, " {");
    put_line_end(p);
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        put_node(p, r);
    put_return(p);
    put(p, "}");
    put_line_end(p);
    return true;
}

static bool put_module(printer *p)
{
    const f8_module *m = p->m;
    put(p, "module ");
    put(p, m->name);
    put_line_end(p);
    put_dims(p);
    for (size_t i = 0; i < m->n_vars; i++)
        put_var(p, &m->var[i]);
    if (m->optimizer.declared)
        put_optimizer(p);
    if (m->accumulate != 1) {
        put(p, "accumulate ");
        put_int(p, m->accumulate);
        put_line_end(p);
    }
    if (m->zero) {
        put(p, "zero ");
        put_int(p, m->zero);
        put_line_end(p);
    }
    put_rules(p, 0);
    for (size_t i = 0; i < m->n_funcs; i++)
        if (!put_func(p, &m->func[i]))
            return false;
    return true;
}

/* A module with bounds: its text, and the rules added since. */
static void put_source(printer *p)
{
    put(p, p->m->source);
    put_rules(p, p->m->source_rules);
}

f8_status f8_print_module(const f8_module *m, const f8_writer *w)
{
    bool memory = true;
    printer p;
    p.w = w;
    p.m = m;
    p.failed = false;
    p.used = p.column = 0;
    f8_arena_init(&p.scratch, &m->arena->allocator);
    if (m->source)
        put_source(&p);
    else
        memory = put_module(&p);
    flush(&p);
    f8_arena_end(&p.scratch);
    return !memory ? F8_ERR_MEMORY : p.failed ? F8_ERR_IO : F8_OK;
}

/* ---- a rule alone ---- */

typedef struct bounded {
    char *text;
    size_t used, size;
} bounded;

static int write_bounded(void *user, const char *text, size_t n)
{
    bounded *b = user;
    const size_t room = b->size ? b->size - 1 - b->used : 0, part = n < room ? n : room;
    memcpy(b->text + b->used, text, part);
    b->used += part;
    return 0;
}

const char *f8_rule_print(const f8_recipe_rule *rule, char *buf, size_t size)
{
    bounded b = {.text = buf, .size = size};
    const f8_writer w = {write_bounded, &b};
    printer p;
    p.w = &w;
    p.failed = false;
    p.used = p.column = 0;
    put_rule(&p, rule);
    flush(&p);
    if (size)
        buf[b.used] = 0;
    return buf;
}
