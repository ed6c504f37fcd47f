/* The graph: nodes in ascending order, hash-consed at construction. See ir.h.
 *
 * A node is looked up before its type is inferred, so making the same thing twice costs one hash.
 */
#include "ir/internal.h"

#include <string.h>

#include "ir/base/hash.h"

enum { NODES_FIRST = 32 };

f8_graph *f8_graph_create(f8_module *module, f8_diag *diag)
{
    return f8_graph_create_in(module, module->arena, diag);
}

f8_graph *f8_graph_create_in(f8_module *module, f8_arena *arena, f8_diag *diag)
{
    f8_graph *g = F8_NEW(arena, f8_graph);
    if (!g) {
        f8_arena_status(arena, diag);
        return NULL;
    }
    *g = (f8_graph){
        .arena = arena, .module = module, .diag = diag, .n_nodes = 1, .most_nodes = F8_MAX_NODES};
    g->node = f8_arena_grow(arena, NULL, 0, &g->node_room, NODES_FIRST, sizeof *g->node);
    g->loc = f8_arena_grow(arena, NULL, 0, &g->loc_room, NODES_FIRST, sizeof *g->loc);
    g->name = f8_arena_grow(arena, NULL, 0, &g->name_room, NODES_FIRST, sizeof *g->name);
    if (!g->node || !g->loc || !g->name) {
        f8_arena_status(arena, diag);
        return NULL;
    }
    return g;
}

/* ---- identity ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static uint64_t float_bits(double f)
{
    uint64_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static uint64_t hash_attr(uint64_t h, const f8_attr *a)
{
    switch (f8_attr_kind_of(a->key)) {
    case F8_ATTR_FLOAT:
        return mix(h, float_bits(a->f));
    case F8_ATTR_STR:
        return mix(h, f8_fnv(F8_FNV, a->s)); /* by content: the same in every run */
    case F8_ATTR_INTS:
        h = mix(h, (uint64_t)a->ints.n);
        for (int i = 0; i < a->ints.n; i++)
            h = mix(h, (uint64_t)a->ints.v[i]);
        return h;
    default:
        return mix(h, (uint64_t)a->i);
    }
}

bool f8_attr_equal(const f8_attr *a, const f8_attr *b)
{
    if (a->key != b->key)
        return false;
    switch (f8_attr_kind_of(a->key)) {
    case F8_ATTR_FLOAT:
        return float_bits(a->f) == float_bits(b->f);
    case F8_ATTR_STR:
        return a->s == b->s || !strcmp(a->s, b->s);
    case F8_ATTR_INTS:
        return a->ints.n == b->ints.n &&
               !memcmp(a->ints.v, b->ints.v, (size_t)a->ints.n * sizeof a->ints.v[0]);
    default:
        return a->i == b->i;
    }
}

uint32_t f8_node_hash(const f8_node *n)
{
    uint64_t h = mix(mix((uint64_t)n->op, n->clone), n->n_in);
    for (uint32_t i = 0; i < n->n_in; i++)
        h = mix(h, n->in[i]);
    for (int i = 0; i < f8_op_facts(n->op)->n_attrs; i++)
        h = hash_attr(h, &n->attr[i]);
    return (uint32_t)(h ^ h >> 32);
}

static bool node_equal(const f8_node *a, const f8_node *b)
{
    if (a->hash != b->hash || a->op != b->op || a->clone != b->clone || a->n_in != b->n_in)
        return false;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i])
            return false;
    for (int i = 0; i < f8_op_facts(a->op)->n_attrs; i++)
        if (!f8_attr_equal(&a->attr[i], &b->attr[i]))
            return false;
    return true;
}

f8_ref f8_graph_lookup(const f8_graph *g, const f8_node *n)
{
    f8_table_walk walk = f8_table_find(n->hash);
    for (f8_ref r; f8_table_next(&g->table, &walk, &r);)
        if (node_equal(&g->node[r], n))
            return r;
    return 0;
}

/* ---- adding ---- */

static f8_ref out_of_memory(f8_graph *g)
{
    f8_arena_status(g->arena, g->diag);
    return 0;
}

static bool make_room(f8_graph *g)
{
    size_t n = g->n_nodes;
    f8_node *node = f8_arena_grow(g->arena, g->node, n, &g->node_room, n + 1, sizeof *node);
    if (node)
        g->node = node;
    f8_loc *loc = f8_arena_grow(g->arena, g->loc, n, &g->loc_room, n + 1, sizeof *loc);
    if (loc)
        g->loc = loc;
    const char **name = f8_arena_grow(g->arena, g->name, n, &g->name_room, n + 1, sizeof *name);
    if (name)
        g->name = name;
    return node && loc && name;
}

/* A copy of n's attributes, or those of the last node of its op, which often are the same. NULL:
 * out of memory. */
static const f8_attr *kept_attrs(f8_graph *g, const f8_node *n)
{
    const int n_attrs = f8_op_facts(n->op)->n_attrs;
    const f8_attr *last = g->last[n->op];
    bool same = last != NULL;
    for (int i = 0; i < n_attrs && same; i++)
        same = f8_attr_equal(&last[i], &n->attr[i]);
    if (same)
        return last;
    f8_attr *attr = F8_NEW_ARRAY(g->arena, f8_attr, (size_t)n_attrs);
    if (attr && n_attrs)
        memcpy(attr, n->attr, (size_t)n_attrs * sizeof *attr);
    return g->last[n->op] = attr;
}

/* Append `n`; its operands and attributes belong to the caller and are copied. */
static f8_ref add(f8_graph *g, f8_node *n)
{
    if (g->n_nodes > g->most_nodes) { /* node 0 is none */
        f8_fail(g->diag, F8_ERR_UNSUPPORTED, g->at, "the graph has more than %u nodes",
                g->most_nodes);
        return 0;
    }
    f8_ref *in = F8_NEW_ARRAY(g->arena, f8_ref, n->n_in);
    const f8_attr *attr = kept_attrs(g, n);
    if (!in || !attr || !make_room(g))
        return out_of_memory(g);
    if (n->n_in)
        memcpy(in, n->in, n->n_in * sizeof *in);
    n->in = in;
    n->attr = attr;
    f8_ref r = g->n_nodes;
    if (f8_table_add(&g->table, g->arena, n->hash, r, g->diag) != F8_OK)
        return 0;
    g->n_nodes++;
    g->node[r] = *n;
    g->loc[r] = g->at;
    g->name[r] = NULL;
    return r;
}

/* ---- making ---- */

/* The attributes given, and the op's defaults for the others; strings are interned. */
static bool fill_attrs(f8_graph *g, f8_op op, const f8_attr *given, int n_given, f8_attr *attr)
{
    const f8_op_info *info = f8_op_facts(op);
    memcpy(attr, info->attrs, info->n_attrs * sizeof *attr);
    for (int i = 0; i < n_given; i++) {
        const int at = f8_op_attr(op, given[i].key);
        if (at < 0) {
            f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s: there is no attribute '%s'", info->name,
                    given[i].key < F8_A_COUNT ? f8_attr_name(given[i].key) : "?");
            return false;
        }
        attr[at] = given[i];
    }
    for (int i = 0; i < info->n_attrs; i++) {
        f8_attr *a = &attr[i];
        f8_attr_kind kind = f8_attr_kind_of(a->key);
        if (kind == F8_ATTR_STR && !(a->s = f8_intern(g->module, a->s ? a->s : ""))) {
            out_of_memory(g);
            return false;
        }
        if ((kind == F8_ATTR_INTS && (a->ints.n < 0 || a->ints.n > F8_MAX_RANK)) ||
            (kind == F8_ATTR_DTYPE && (a->i < 0 || a->i >= F8_DTYPE_COUNT))) {
            f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s: attribute '%s' is out of range", info->name,
                    f8_attr_name(a->key));
            return false;
        }
    }
    return true;
}

/* With `axes`, a given `axis` must be what it becomes. */
static bool axis_ok(f8_graph *g, f8_op op, const f8_ref *in, const f8_attr *given, int n_given,
                    const f8_attr *full)
{
    const int axes = f8_op_attr(op, F8_A_AXES), axis = f8_op_attr(op, F8_A_AXIS);
    bool several = false;
    for (int i = 0; i < n_given; i++)
        several |= axes >= 0 && given[i].key == F8_A_AXES && given[i].ints.n > 0;
    for (int i = 0; several && i < n_given; i++) {
        const int64_t a = given[i].i;
        if (given[i].key != F8_A_AXIS || (a < 0 ? a + g->node[in[0]].type.rank : a) == full[axis].i)
            continue;
        f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s: axis and axes are both given: give one",
                f8_op_facts(op)->name);
        return false;
    }
    return true;
}

static bool operands_ok(f8_graph *g, f8_op op, const f8_ref *in, int n_in)
{
    const f8_op_info *info = f8_op_facts(op);
    if (n_in < info->min_in || n_in > info->max_in) {
        if (info->min_in == info->max_in)
            f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s takes %d operand%s, not %d", info->name,
                    info->min_in, info->min_in == 1 ? "" : "s", n_in);
        else
            f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s takes %d to %d operands, not %d", info->name,
                    info->min_in, info->max_in, n_in);
        return false;
    }
    for (int i = 0; i < n_in; i++) {
        if (in[i] && in[i] < g->n_nodes)
            continue;
        f8_fail(g->diag, F8_ERR_INTERNAL, g->at, "%s: operand %d is not a node of this graph",
                info->name, i);
        return false;
    }
    return true;
}

f8_ref f8_make_clone(f8_graph *g, f8_op op, const f8_ref *in, int n_in, const f8_attr *attr,
                     int n_attr, uint64_t clone)
{
    if (op <= F8_OP_NONE || op >= F8_OP_COUNT || op == F8_OP_INPUT) {
        f8_fail(g->diag, F8_ERR_INTERNAL, g->at, "this op can't be made by f8_make");
        return 0;
    }
    f8_attr full[F8_MAX_ATTRS];
    if (!operands_ok(g, op, in, n_in) || !fill_attrs(g, op, attr, n_attr, full))
        return 0;
    f8_canonical_attrs(g, op, in, (uint32_t)n_in, full);
    if (!axis_ok(g, op, in, attr, n_attr, full))
        return 0;
    if (op == F8_OP_PROJECT) /* each result of an op is one node */
        clone = g->node[in[0]].clone;
    f8_node n = {.op = op, .n_in = (uint32_t)n_in, .clone = clone, .in = in, .attr = full};
    n.hash = f8_node_hash(&n);
    f8_ref found = f8_graph_lookup(g, &n);
    if (found)
        return found;
    if (f8_infer(g, &n, &n.type) != F8_OK)
        return 0;
    return add(g, &n);
}

f8_ref f8_make(f8_graph *g, f8_op op, const f8_ref *in, int n_in, const f8_attr *attr, int n_attr)
{
    return f8_make_clone(g, op, in, n_in, attr, n_attr, 0);
}

f8_ref f8_input(f8_graph *g, int64_t index, const f8_type *type)
{
    f8_attr attr[F8_MAX_ATTRS] = {F8_INT(F8_A_INDEX, index)};
    f8_node n = {.op = F8_OP_INPUT, .attr = attr, .type = *type};
    n.hash = f8_node_hash(&n);
    f8_ref found = f8_graph_lookup(g, &n);
    if (!found)
        return add(g, &n);
    if (f8_type_equal(&g->node[found].type, type))
        return found;
    f8_fail(g->diag, F8_ERR_INTERNAL, g->at, "input %lld has two types", (long long)index);
    return 0;
}

void f8_set_name(f8_graph *g, f8_ref r, const char *name)
{
    if (!r || r >= g->n_nodes || g->name[r] || !name || !*name)
        return;
    if (!(g->name[r] = f8_intern(g->module, name)))
        out_of_memory(g);
}

/* ---- attributes ---- */

const f8_attr *f8_attr_get(const f8_graph *g, f8_ref r, f8_attr_key key)
{
    return f8_node_attr(&g->node[r], key);
}

int64_t f8_attr_i(const f8_graph *g, f8_ref r, f8_attr_key key)
{
    const f8_attr *a = f8_attr_get(g, r, key);
    return a ? a->i : 0;
}

double f8_attr_f(const f8_graph *g, f8_ref r, f8_attr_key key)
{
    const f8_attr *a = f8_attr_get(g, r, key);
    return a ? a->f : 0;
}

const char *f8_attr_s(const f8_graph *g, f8_ref r, f8_attr_key key)
{
    const f8_attr *a = f8_attr_get(g, r, key);
    return a ? a->s : "";
}

f8_ints f8_attr_ints(const f8_graph *g, f8_ref r, f8_attr_key key)
{
    const f8_attr *a = f8_attr_get(g, r, key);
    return a ? a->ints : (f8_ints){0};
}

/* ---- lists of refs ---- */

bool f8_listed(const f8_ref *list, uint32_t n, f8_ref r)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == r)
            return true;
    return false;
}

uint32_t f8_index_ascending(const f8_ref *list, uint32_t n, f8_ref r)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (list[middle] < r)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && list[low] == r ? low : UINT32_MAX;
}

bool f8_listed_ascending(const f8_ref *list, uint32_t n, f8_ref r)
{
    return f8_index_ascending(list, n, r) != UINT32_MAX;
}
