/* The graph IR: modules, functions, and a hash-consed SSA graph in an arena.
 *
 * A module declares dims, variables (parameters and states), recipes and an optimizer, and holds
 * functions. A function is a pure graph from its input ports to its result ports; a port whose
 * `var` is >= 0 reads or replaces that module variable, which is the only way state exists (rule
 * 1).
 *
 * A node is {op, attributes, inputs, clone number}; making the same one twice gives the same ref.
 * Ref 0 is "no node": builders return it on failure and accept it as an operand (the failure
 * travels), and the graph's diag holds the first message, so that a pass may check once at its end.
 * Refs grow monotonically and operands come before users: ascending refs are a topological order.
 */
#ifndef F8_IR_H
#define F8_IR_H

#include "ir/base/status.h"
#include "ir/base/type.h"

/* ---- ops and attributes, from their tables ---- */

typedef enum f8_op {
    F8_OP_NONE,
#define OP(ID, ...) F8_OP_##ID,
#include "ir/ops.def"
#undef OP
    F8_OP_COUNT
} f8_op;

typedef enum f8_class {
    F8_LEAF,
    F8_POINTWISE,
    F8_REDUCE,
    F8_SHAPE,
    F8_GEMM,
    F8_ATTENTION,
    F8_GATHER,
    F8_FP8,
    F8_COMPOSITE,
} f8_class;

typedef enum f8_attr_key {
#define ATTR(ID, ...) ID,
#include "ir/attrs.def"
#undef ATTR
    F8_A_COUNT
} f8_attr_key;

typedef enum f8_attr_kind {
    F8_ATTR_INT, F8_ATTR_FLOAT, F8_ATTR_BOOL, F8_ATTR_DTYPE, F8_ATTR_STR, F8_ATTR_INTS,
} f8_attr_kind;

typedef struct f8_ints {
    int32_t n;
    int64_t v[F8_MAX_RANK];
} f8_ints;

/* An attribute's value: i for INT, BOOL and DTYPE, f for FLOAT, s (interned in the graph's module,
 * never NULL) for STR, ints for INTS. */
typedef struct f8_attr {
    f8_attr_key key;
    union {
        int64_t i;
        double f;
        const char *s;
        f8_ints ints;
    };
} f8_attr;

enum { F8_MAX_ATTRS = 8, F8_MAX_RESULTS = 3 };

typedef struct f8_op_info {
    const char *name;
    uint16_t min_in, max_in;
    uint8_t results, n_attrs;
    f8_class cls;
    uint8_t form[4]; /* f8_sform by f8_skind of the operands (ir/num/scalar.h); 0: none */
    f8_attr attrs[F8_MAX_ATTRS]; /* keys with defaults, in table order */
} f8_op_info;

const f8_op_info *f8_op_facts(f8_op op);
f8_op f8_op_by_name(const char *name, size_t length); /* F8_OP_NONE if there is none */
const char *f8_attr_name(f8_attr_key key);
f8_attr_kind f8_attr_kind_of(f8_attr_key key);
f8_attr_key f8_attr_by_name(const char *name, size_t length); /* F8_A_COUNT if there is none */

/* ---- graph ---- */

typedef uint32_t f8_ref;

typedef struct f8_node {
    f8_op op;
    uint32_t n_in;
    uint32_t clone; /* copies for one use (below F8_CLONE_RECOMPUTED) or computed again (from it on)
                     * differ here, so that hash-consing keeps them apart */
    uint32_t hash;
    f8_type type;        /* of the first result; PROJECT nodes carry the others' types */
    const f8_ref *in;
    const f8_attr *attr; /* all of the op's attributes, in table order */
} f8_node;

typedef struct f8_module f8_module;

typedef struct f8_graph {
    f8_arena *arena;
    f8_module *module;   /* for interning */
    f8_diag *diag;       /* first failure */
    f8_node *node;       /* [1, n_nodes) */
    f8_loc *loc;         /* beside: where each node comes from in the source text */
    const char **name;   /* beside: what people call it, or NULL */
    uint32_t n_nodes;
    size_t node_room, loc_room, name_room;
    uint32_t *table;     /* hash-consing: open addressing of refs */
    uint32_t table_size;
    f8_loc at;           /* location given to nodes made from now on (set by parser and passes) */
} f8_graph;

f8_graph *f8_graph_create(f8_module *module, f8_diag *diag); /* diag is never NULL */

/* Clone numbers of what remat computes again: n * F8_CLONE_RECOMPUTED + the original's number, n >= 1.
 * The others, one a result at the most (legalize.c), are below; n counts places between
 * groups: as many bits for each. */
enum { F8_CLONE_RECOMPUTED = 1 << 16 };

static inline const f8_node *f8_at(const f8_graph *g, f8_ref r)
{
    return &g->node[r];
}
static inline bool f8_is_recomputed(const f8_graph *g, f8_ref r)
{
    return g->node[r].clone >= F8_CLONE_RECOMPUTED;
}
static inline const f8_type *f8_type_of(const f8_graph *g, f8_ref r)
{
    return &g->node[r].type;
}

/* Make (or find) a node. Attributes not given take their defaults and all are brought to one
 * canonical form (axes count from the front, kv_heads is filled in, ...), so that equal nodes are
 * one. The type is inferred; a shape or dtype error is reported with the operands' types and
 * places. INPUT takes its type from f8_input instead. Returns 0 on failure. */
f8_ref f8_make(f8_graph *g, f8_op op, const f8_ref *in, int n_in, const f8_attr *attr, int n_attr);
f8_ref f8_make_clone(f8_graph *g, f8_op op, const f8_ref *in, int n_in, const f8_attr *attr,
                     int n_attr, uint32_t clone);
f8_ref f8_input(f8_graph *g, int64_t index, const f8_type *type);
void f8_set_name(f8_graph *g, f8_ref r, const char *name); /* keeps an existing name */

const f8_attr *f8_attr_get(const f8_graph *g, f8_ref r,
                           f8_attr_key key); /* NULL if the op has no such key */
int64_t f8_attr_i(const f8_graph *g, f8_ref r, f8_attr_key key);          /* 0 if absent */
double f8_attr_f(const f8_graph *g, f8_ref r, f8_attr_key key);
const char *f8_attr_s(const f8_graph *g, f8_ref r, f8_attr_key key);      /* "" if absent */
f8_ints f8_attr_ints(const f8_graph *g, f8_ref r, f8_attr_key key);

/* Keys and values; floats are compared by their bits. */
bool f8_attr_equal(const f8_attr *a, const f8_attr *b);

/* Whether r is among n refs. */
bool f8_listed(const f8_ref *list, uint32_t n, f8_ref r);
uint32_t f8_index_ascending(const f8_ref *list, uint32_t n,
                            f8_ref r); /* the list ascends; UINT32_MAX: not in it */
bool f8_listed_ascending(const f8_ref *list, uint32_t n, f8_ref r); /* the list ascends */

/* Attribute literals for f8_make. */
#define F8_INT(k, v) ((f8_attr){.key = (k), .i = (v)})
#define F8_FLOAT(k, v) ((f8_attr){.key = (k), .f = (v)})
#define F8_STR(k, v) ((f8_attr){.key = (k), .s = (v)})
#define F8_INTS(k, v) ((f8_attr){.key = (k), .ints = (v)})

/* Short builders (ir/build.c). */
f8_ref f8_const(f8_graph *g, double value);                 /* f32 [] */
f8_ref f8_unary(f8_graph *g, f8_op op, f8_ref a);
f8_ref f8_binary(f8_graph *g, f8_op op, f8_ref a, f8_ref b);
f8_ref f8_select(f8_graph *g, f8_ref cond, f8_ref a, f8_ref b);
f8_ref f8_cast(f8_graph *g, f8_ref a, f8_dtype to);         /* a itself when it has that dtype */
f8_ref f8_reduce(f8_graph *g, f8_op op, f8_ref a, int64_t axis);
f8_ref f8_sum_all(f8_graph *g, f8_ref a);                   /* last axis, then the vector: f32 [] */
f8_ref f8_sum_to(f8_graph *g, f8_ref a,
                 const f8_type *to); /* undo broadcasting: sum a down to shape `to` */
f8_ints f8_shape_of(const f8_type *t);                      /* for F8_A_SHAPE */
f8_ref f8_reshape(f8_graph *g, f8_ref a,
                  const f8_type *shape_of); /* a itself when the shape is the same */
f8_ref f8_slice(f8_graph *g, f8_ref a, int64_t axis, int64_t start, int64_t stop);
f8_ref f8_concat(f8_graph *g, const f8_ref *in, int n, int64_t axis);
f8_ref f8_project(f8_graph *g, f8_ref a, int64_t index);
f8_ref f8_broadcast(f8_graph *g, f8_ref a, const f8_type *shape_of);

/* Internal to ir/: fills *out for a node about to be made; 0 or a status with the message in
 * g->diag. */
f8_status f8_infer(f8_graph *g, const f8_node *n, f8_type *out);

/* The type of result `index` of node r, which is in the graph and whose op has more results than
 * that. Attention has lse beside its first result; its gradient has dk and dv, as k and v are. */
f8_type f8_result_type(const f8_graph *g, f8_ref r, int64_t index);

/* ---- module ---- */

typedef enum f8_var_kind { F8_VAR_PARAM, F8_VAR_STATE } f8_var_kind;
typedef enum f8_init_kind {
    F8_INIT_ZEROS,
    F8_INIT_ONES,
    F8_INIT_CONST,
    F8_INIT_NORMAL,
    F8_INIT_UNIFORM
} f8_init_kind;

typedef struct f8_var {
    const char *name;
    f8_type type;
    f8_var_kind kind;
    f8_init_kind init;
    double init_arg; /* the constant, the standard deviation, or the half width */
    f8_loc loc;
} f8_var;

typedef struct f8_port {
    const char *name;
    f8_type type;
    int32_t var; /* >= 0: the module variable read or replaced; -1: the caller's */
    f8_ref ref;
    f8_loc loc;
} f8_port;

typedef struct f8_func {
    const char *name;
    f8_graph *graph;
    f8_port *in, *out;
    size_t n_in, n_out, in_room, out_room;
    struct f8_lowered *lowered; /* groups, order, places: ir/lowered.h; NULL before `group` */
} f8_func;

enum { F8_MAX_BOUNDS = 8 }; /* of one module */

/* How a number of the text depends on the dims that are bounds: scale * value + offset. */
typedef struct f8_form {
    int32_t
        dim; /* index + 1 of the bound in module->dim; 0: on none; < 0: on several, or otherwise */
    int64_t scale, offset;
} f8_form;

typedef struct f8_dim {
    const char *name;
    int64_t value; /* of a bound the largest */
    f8_loc loc;
    bool bound;    /* declared NAME <= N: the module stands for one for each value from 1 to N */
    bool given;    /* the value is not the text's */
    f8_form form;
} f8_dim;

/* An axis of a caller's input whose size depends on a bound. */
typedef struct f8_axis {
    const char *func, *port; /* interned */
    int32_t axis;
    f8_form form;
} f8_axis;

/* recipe "h.*" = delayed;  recipe "h.*" wgrad dy = current {format = e4m3};  recipe layers 1, 1 =
 * bf16 */
typedef struct f8_recipe_rule {
    const char *pattern;  /* of linears' names; NULL: the `first` first and `last` last layers */
    const char *recipe;   /* as ir/recipe.h writes it */
    const char *role;     /* of its GEMMs: fprop, dgrad or wgrad; NULL: all */
    const char *operand;  /* of those: x, w or dy; NULL: both */
    int64_t first, last;
    const char *origin;   /* who gave it, as "--rule"; NULL: the text, or nobody says */
    f8_loc loc;           /* in the text */
} f8_recipe_rule;

/* optimizer adamw(lr = 6e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1,
 *                 schedule = "cosine", warmup = 20, steps = 300, min_lr = 0.1)
 * clip 0 = none; schedule "constant", "linear" or "cosine": warm up linearly over `warmup` steps, then
 * fall to min_lr * lr at `steps`. weight_decay applies to parameters of rank >= 2. */
typedef struct f8_optimizer {
    bool declared;
    double lr, beta1, beta2, eps, weight_decay, clip, min_lr;
    int64_t warmup, steps;
    const char *schedule;
    f8_loc loc;
} f8_optimizer;

struct f8_module {
    f8_arena *arena;
    f8_diag *diag;
    const char *name;
    const char *file; /* for diagnostics */
    f8_dim *dim;
    size_t n_dims, dim_room;
    f8_var *var;
    size_t n_vars, var_room;
    f8_func *func;
    size_t n_funcs, func_room;
    f8_recipe_rule *rule;
    size_t n_rules, rule_room;
    f8_axis *axis;
    size_t n_axes, axis_room;
    /* With bounds: the text, less comments, with the values of dims as they are, and how many rules
     * it has. Numbers of a graph are those of one value, so no print of graphs could give the
     * module back. */
    const char *source;
    size_t source_rules;
    f8_optimizer optimizer;
    int64_t accumulate; /* micro_steps per update that `train` runs; 1 by default */
    struct f8_interner *strings;
};

f8_module *f8_module_create(f8_arena *arena, f8_diag *diag, const char *name, const char *file);
const char *
f8_intern(f8_module *m,
          const char *s); /* equal strings give equal pointers; NULL when out of memory */
const char *f8_intern_n(f8_module *m, const char *s, size_t n);

/* All return NULL/-1 and fill the diag when the name is taken, the type is invalid or memory runs
 * out. Names are a letter or '_', then letters, digits, '_' and '.'. Ports of the caller (var < 0)
 * and ports of variables do not share names: an input %x may stand beside a variable x. */
int32_t f8_module_var(f8_module *m, const f8_var *var);
int32_t f8_module_find_var(const f8_module *m, const char *name);
f8_func *f8_module_func(f8_module *m, const char *name); /* pointer valid until the next is added */
f8_func *f8_module_find_func(const f8_module *m, const char *name);
f8_ref f8_func_input(f8_func *f, const char *name, const f8_type *type,
                     int32_t var); /* adds the port */
f8_ref f8_func_var(f8_func *f,
                   int32_t var); /* the input port of that variable, added at first use */
f8_status f8_func_result(f8_func *f, const char *name, f8_ref ref, int32_t var);

/* ---- whole-graph helpers ---- */

/* Copy what `f`'s results need into a fresh graph, dropping dead nodes; input ports all stay, in
 * place. rewrite(user, to, from, old, in) returns the replacement for node `old` of `from`, whose
 * operands' new refs are in[], or 0 to copy it as it is; it is called in ascending order, for live
 * nodes that are no INPUT. Names and places carry over. The way every rewriting pass works: no
 * in-place mutation. During the call f->graph is already `to`: the callback may add ports to f
 * (f8_func_var, f8_func_result), not functions to the module. On failure f keeps its old graph and
 * ports. */
typedef f8_ref (*f8_rewrite_fn)(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                                const f8_ref *in);
f8_status f8_func_rewrite(f8_func *f, f8_rewrite_fn rewrite, void *user);

/* Users of each node r: user[start[r]] to user[start[r + 1] - 1], in `arena`. One entry an operand
 * (add(x, x) is listed twice), ascending; then one entry 0 for each result port it feeds. */
typedef struct f8_uses {
    uint32_t *start, *user;
} f8_uses;
f8_status f8_compute_uses(const f8_func *f, f8_arena *arena, f8_uses *out, f8_diag *diag);

f8_status f8_verify(const f8_module *m, f8_diag *diag); /* every invariant above, every function */

/* Print in the textual language (frontend/text/README.md has the grammar). Re-parsing it gives the
 * identical module. */
typedef struct f8_writer {
    int (*write)(void *user, const char *text, size_t n); /* non-zero: stop, the writer failed */
    void *user;
} f8_writer;
f8_status f8_print_module(const f8_module *m, const f8_writer *w);
/* A rule as the text has it, less the word `recipe`, into buf, cut to size. Returns buf. */
const char *f8_rule_print(const f8_recipe_rule *rule, char *buf, size_t size);

#endif
