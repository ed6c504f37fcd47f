/* The graph: modules, functions, and their nodes in SSA form, in an arena.
 *
 * A module declares dims, variables (parameters and states), recipe rules and an optimizer, and
 * holds functions. A function is a pure graph from its input ports to its result ports. A port
 * whose `var` is >= 0 reads or replaces that variable of the module; state exists in no other way.
 *
 * A node is {op, attributes, operands, clone number}. Making the same node twice gives the same ref
 * (hash-consing). Ref 0 means "no node": builders return it on failure and accept it as an operand,
 * so that a failure is passed on. The graph's diag holds the first message, so a pass may check
 * once at its end. Refs grow, and operands come before users: ascending refs are a topological
 * order. */
#ifndef F8_IR_H
#define F8_IR_H

#include "ir/base/progress.h"
#include "ir/base/status.h"
#include "ir/base/table.h"
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
    F8_COLLECTIVE,
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

/* An attribute and its value: i for INT, BOOL and DTYPE, f for FLOAT, ints for INTS, s for STR
 * (interned in the graph's module, never NULL). */
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
    uint8_t form[4]; /* the f8_sform for each f8_skind of operands (ir/num/scalar.h); 0: none */
    f8_attr attrs[F8_MAX_ATTRS]; /* keys and defaults, in the order of the table */
    const char *vjp;                    /* the name of its derivative's rule */
    const char *operands, *types, *text; /* DOC of ops.def */
} f8_op_info;

/* The derivative of an op: a rule gives it, it is zero everywhere, or differentiating fails. */
typedef enum f8_op_gradient {
    F8_GRADIENT_RULE, F8_GRADIENT_ZERO, F8_GRADIENT_ERROR,
} f8_op_gradient;

const f8_op_info *f8_op_facts(f8_op op);
f8_op f8_op_by_name(const char *name, size_t length); /* F8_OP_NONE if there is none */
f8_op_gradient f8_op_gradient_of(f8_op op);
/* The types of operands and results as DOC of ops.def writes them. Those that follow from the forms
 * are written into `buf`. */
const char *f8_op_types(f8_op op, char *buf, size_t size);
const char *f8_attr_name(f8_attr_key key);
const char *f8_attr_text(f8_attr_key key); /* what it says */
f8_attr_kind f8_attr_kind_of(f8_attr_key key);
f8_attr_key f8_attr_by_name(const char *name, size_t length); /* F8_A_COUNT if there is none */

/* ---- graph ---- */

enum { F8_MAX_NODES = 1 << 30 }; /* of a graph; a uint32_t holds twice that number */

typedef uint32_t f8_ref;

typedef struct f8_node {
    f8_op op;
    uint32_t n_in;
    uint32_t hash;
    uint64_t clone;      /* keeps copies apart: those for one use are numbered below
                          * F8_CLONE_RECOMPUTED, recomputed ones from it on */
    f8_type type;        /* of the first result; PROJECT nodes have the types of the others */
    const f8_ref *in;
    const f8_attr *attr; /* all attributes of the op, in the order of the table; nodes share them */
} f8_node;

typedef struct f8_module f8_module;

typedef struct f8_graph {
    f8_arena *arena;
    f8_module *module;   /* for interning */
    f8_diag *diag;       /* first failure */
    f8_node *node;       /* [1, n_nodes) */
    f8_loc *loc;         /* by ref: where the node comes from in the source text */
    const char **name;   /* by ref: the node's name in the text, or NULL */
    uint32_t n_nodes, most_nodes; /* most_nodes: F8_MAX_NODES, or less in a test */
    size_t node_room, loc_room, name_room;
    f8_table table;      /* hash-consing: refs by their nodes' hashes */
    const f8_attr *last[F8_OP_COUNT]; /* by op: the attributes of the node that was made last */
    f8_loc at;           /* the location that new nodes get; the parser and passes set it */
} f8_graph;

f8_graph *f8_graph_create(f8_module *module, f8_diag *diag); /* diag is never NULL */
/* The same in another arena than the module's. Rewriting keeps a graph in its arena. */
f8_graph *f8_graph_create_in(f8_module *module, f8_arena *arena, f8_diag *diag);

/* A node that remat recomputes has the clone number n * F8_CLONE_RECOMPUTED + the original's
 * number, where n >= 1 counts the places between groups. Other clones (passes/legalize makes at
 * most one for each result) have smaller numbers. There are fewer places than nodes, so a clone
 * number has at most F8_CLONE_BITS. */
enum { F8_CLONE_RECOMPUTED = 1 << 16, F8_CLONE_BITS = 46 };
_Static_assert(F8_MAX_NODES <= (UINT64_C(1) << F8_CLONE_BITS) / F8_CLONE_RECOMPUTED,
               "each place has a node and a clone number of its own");

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

/* Make a node, or find the equal one. Attributes that are not given get their defaults, and all get
 * one canonical form (axes count from the front, kv_heads is filled in, ...), so that equal nodes
 * are one. The type is inferred. A shape or dtype error is reported with the operands' types and
 * places. f8_input makes INPUT nodes, whose type is given. Returns 0 on failure. */
f8_ref f8_make(f8_graph *g, f8_op op, const f8_ref *in, int n_in, const f8_attr *attr, int n_attr);
f8_ref f8_make_clone(f8_graph *g, f8_op op, const f8_ref *in, int n_in, const f8_attr *attr,
                     int n_attr, uint64_t clone);
f8_ref f8_input(f8_graph *g, int64_t index, const f8_type *type);
void f8_set_name(f8_graph *g, f8_ref r, const char *name); /* keeps an existing name */

/* A node's attribute, or its value. If the op does not take it: NULL, 0 or "". */
const f8_attr *f8_attr_get(const f8_graph *g, f8_ref r, f8_attr_key key);
int64_t f8_attr_i(const f8_graph *g, f8_ref r, f8_attr_key key);
double f8_attr_f(const f8_graph *g, f8_ref r, f8_attr_key key);
const char *f8_attr_s(const f8_graph *g, f8_ref r, f8_attr_key key);
f8_ints f8_attr_ints(const f8_graph *g, f8_ref r, f8_attr_key key);

/* Whether keys and values are equal; floats are compared by their bits. */
bool f8_attr_equal(const f8_attr *a, const f8_attr *b);

/* Whether r is among n refs. */
bool f8_listed(const f8_ref *list, uint32_t n, f8_ref r);
/* For a list that ascends: the index of r, or UINT32_MAX if it is not in the list; whether it
 * is. */
uint32_t f8_index_ascending(const f8_ref *list, uint32_t n, f8_ref r);
bool f8_listed_ascending(const f8_ref *list, uint32_t n, f8_ref r);

/* Attribute literals for f8_make. */
#define F8_INT(k, v) ((f8_attr){.key = (k), .i = (v)})
#define F8_FLOAT(k, v) ((f8_attr){.key = (k), .f = (v)})
#define F8_STR(k, v) ((f8_attr){.key = (k), .s = (v)})
#define F8_INTS(k, v) ((f8_attr){.key = (k), .ints = (v)})

/* Short builders (ir/build.c). Those that would give `a` unchanged return a itself. */
f8_ref f8_const(f8_graph *g, double value);                 /* f32 [] */
f8_ref f8_unary(f8_graph *g, f8_op op, f8_ref a);
f8_ref f8_binary(f8_graph *g, f8_op op, f8_ref a, f8_ref b);
f8_ref f8_select(f8_graph *g, f8_ref cond, f8_ref a, f8_ref b);
f8_ref f8_cast(f8_graph *g, f8_ref a, f8_dtype to);
f8_ref f8_reduce(f8_graph *g, f8_op op, f8_ref a, int64_t axis);
/* Reduce all elements, the last axis and then the vector: f32 []. */
f8_ref f8_reduce_all(f8_graph *g, f8_op op, f8_ref a);
f8_ref f8_sum_all(f8_graph *g, f8_ref a);
/* Undo broadcasting: sum a down to the shape `to`. */
f8_ref f8_sum_to(f8_graph *g, f8_ref a, const f8_type *to);
f8_ints f8_shape_of(const f8_type *t);                      /* for F8_A_SHAPE */
f8_ref f8_reshape(f8_graph *g, f8_ref a, const f8_type *shape_of);
f8_ref f8_slice(f8_graph *g, f8_ref a, int64_t axis, int64_t start, int64_t stop);
/* Any number of values: more than one CONCAT takes become concatenations of concatenations. */
f8_ref f8_concat(f8_graph *g, const f8_ref *in, size_t n, int64_t axis);
f8_ref f8_project(f8_graph *g, f8_ref a, int64_t index);
f8_ref f8_broadcast(f8_graph *g, f8_ref a, const f8_type *shape_of);

/* Only for ir/: infer the type of a node that is about to be made. A failure leaves its message in
 * g->diag. */
f8_status f8_infer(f8_graph *g, const f8_node *n, f8_type *out);

/* The operands of a node of class GEMM by their purpose; 0 where it has none. acc is f32 of
 * the result's shape, and the result is f32. bias is bf16, an element for each column of a bf16
 * result. Of acc and bias a product has at most one, operand f8_gemm_added(op). adds is bool[] and
 * follows acc: where it is false, acc counts as zeros. */
typedef struct f8_gemm_operands {
    f8_ref a, b, a_scale, b_scale, acc, bias, adds;
} f8_gemm_operands;
f8_gemm_operands f8_gemm_operands_of(const f8_node *n);
enum { F8_GEMM_MOST_OPERANDS = 6 }; /* of a scaled_matmul with acc and adds */
/* Whether a product reads an acc, as most of its runs do: one with `adds` does not where an update
 * follows each micro-step. For estimates and listings. */
bool f8_gemm_reads_acc(const f8_module *m, const f8_gemm_operands *o);
/* The index of b among the operands. */
static inline uint32_t f8_gemm_b(f8_op op)
{
    return op == F8_OP_SCALED_MATMUL ? 2 : 1; /* a scale follows each matrix */
}
/* The index that acc or the bias has, if there is one. */
static inline uint32_t f8_gemm_added(f8_op op)
{
    return op == F8_OP_SCALED_MATMUL ? 4 : 2;
}

/* The mask of an attention or its gradient, and the seed of its dropout, which is the last operand
 * if that is an i32; 0: it has none, or the node is another op. */
f8_ref f8_attention_mask(const f8_graph *g, const f8_node *n);
f8_ref f8_attention_seed(const f8_graph *g, const f8_node *n);
/* Whether the mask is an f32 that is added. Then lse is two numbers a query: the largest score, and
 * the log of the sum of exp(score - largest). Their sum would lose the log beside a large mask. */
bool f8_attention_adds(const f8_graph *g, const f8_node *n);

/* The type of result `index` of node r, whose op must have such a result. Attention's result 1 is
 * lse; those of its gradient are dk and dv, of the types of k and v. */
f8_type f8_result_type(const f8_graph *g, f8_ref r, int64_t index);

/* ---- module ---- */

typedef enum f8_var_kind { F8_VAR_PARAM, F8_VAR_STATE } f8_var_kind;
typedef enum f8_init_kind {
    F8_INIT_ZEROS,
    F8_INIT_ONES,
    F8_INIT_CONST,
    F8_INIT_NORMAL,
    F8_INIT_UNIFORM,
    F8_INITS
} f8_init_kind;
extern const char *const f8_init_name[F8_INITS];
static inline bool f8_init_takes_number(f8_init_kind kind)
{
    return kind >= F8_INIT_CONST;
}
/* Whether an initializer can have this number: widths are finite and not negative. */
bool f8_init_has_number(f8_init_kind kind, double number);

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
    int32_t var; /* >= 0: the module's variable that is read or replaced; -1: the caller's port */
    f8_ref ref;
    f8_loc loc;
} f8_port;

/* Where the ports of variables are, so that a function with thousands is made without a search for
 * each. module.c keeps it: it holds for the first n_ports, and is checked where it is used. */
typedef struct f8_port_index {
    uint32_t *at; /* by variable: the index of its port + 1, or 0 */
    size_t room, n_ports;
} f8_port_index;

typedef struct f8_func {
    const char *name;
    f8_graph *graph;
    f8_port *in, *out;
    size_t n_in, n_out, in_room, out_room;
    f8_port_index in_index, out_index;
    struct f8_lowered *lowered; /* groups, order, places: ir/lowered.h; NULL before `group` */
} f8_func;

enum { F8_MAX_BOUNDS = 8 }; /* of one module */

/* How a number of the text depends on the dims that are bounds: scale * value + offset. */
typedef struct f8_form {
    int32_t dim; /* index + 1 of the bound in module->dim; 0: it depends on none; negative: it
                  * depends on several, or in another way */
    int64_t scale, offset;
} f8_form;

typedef struct f8_dim {
    const char *name;
    int64_t value; /* for a bound, the largest */
    f8_loc loc;
    bool bound;    /* declared NAME <= N: the module stands for every value from 1 to N */
    bool given;    /* the value was given from outside, and is not the text's */
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
    const char *pattern;  /* of linears' names; NULL: the first and the last layers */
    const char *recipe;   /* in the text form of ir/recipe.h */
    const char *role;     /* the GEMM: fprop, dgrad or wgrad; NULL: all three */
    const char *operand;  /* the GEMM's operand: x, w or dy; NULL: both */
    int64_t first, last;  /* without a pattern: how many first and last layers */
    const char *origin;   /* what gave the rule, as "--rule"; NULL: the text, or unknown */
    f8_loc loc;           /* in the text */
    bool added;           /* by a call for it, and not by the text */
} f8_recipe_rule;

/* optimizer adamw(lr = 6e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1,
 *                 schedule = "cosine", warmup = 20, steps = 300, min_lr = 0.1)
 * clip 0 means no clipping. schedule is "constant", "linear" or "cosine": the rate grows linearly
 * over `warmup` steps, then falls to min_lr * lr at `steps`. weight_decay applies to parameters of
 * rank >= 2. */
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
    /* With bounds: the text without comments and with the dims' present values, and how many rules
     * it has. The sizes in a graph are those of one value of each bound, so printing the graphs
     * could not give the module back. */
    const char *source;
    size_t source_rules;
    f8_optimizer optimizer;
    int64_t accumulate; /* how many micro_steps `train` runs for each update; 1 by default */
    int64_t zero; /* the stage of ZeRO, 0 to 3: which states several ranks share */
    struct f8_interner *strings;
    f8_progress_phase *phase; /* of the call that works on it, for loops that take long; or NULL */
};

f8_module *f8_module_create(f8_arena *arena, f8_diag *diag, const char *name, const char *file);
/* The module's own copy of a string: equal strings give equal pointers. NULL when out of memory. */
const char *f8_intern(f8_module *m, const char *s);
const char *f8_intern_n(f8_module *m, const char *s, size_t n);

/* Add variables, functions and ports, or find them. When the name is taken, the type is invalid or
 * memory runs out, those that add return NULL, -1 or 0 and fill the diag. A name is a letter or
 * '_', then letters, digits, '_' and '.'. Ports of the caller (var < 0) and ports of variables have
 * separate names: a function may have an input %x and a variable x. */
int32_t f8_module_var(f8_module *m, const f8_var *var);
int32_t f8_module_find_var(const f8_module *m, const char *name);
f8_func *f8_module_func(f8_module *m, const char *name); /* pointer valid until the next is added */
f8_func *f8_module_find_func(const f8_module *m, const char *name);
/* Whether the function `first` is the form of the function `of` that runs in its place while an
 * amax history is empty: "micro_step.first.stats" of "micro_step.stats". */
bool f8_is_first_form(const char *first, const char *of);
/* Whether this is the name of a form that runs while an amax history is empty: "micro_step.first"
 * of a step, "backward.first" of a pair. */
bool f8_is_first_name(const char *name);
/* Whether f is such a form of a function of m. Then that one's buffers are f's. */
bool f8_is_form(const f8_module *m, const f8_func *f);
f8_ref f8_func_input(f8_func *f, const char *name, const f8_type *type, int32_t var);
/* The value of a variable; the first use adds its input port. */
f8_ref f8_func_var(f8_func *f, int32_t var);
/* Where `adds` of a GEMM (f8_gemm_operands) says whether the variable F8_COUNT_NAME (ir/place.h) is
 * above 0 as the function begins: that variable's input; else 0. */
f8_ref f8_counted(const f8_func *f, const f8_graph *g, f8_ref adds);
f8_status f8_func_result(f8_func *f, const char *name, f8_ref ref, int32_t var);

/* ---- whole-graph helpers ---- */

/* Copy what the results of `f` need into a new graph; dead nodes are dropped, and all input ports
 * stay. rewrite(user, to, from, old, in) returns the replacement for node `old` of `from`, whose
 * operands' new refs are in[], or 0 to copy the node as it is. It is called in ascending order, for
 * live nodes other than INPUT. Names and locations carry over. Every rewriting pass works this way;
 * none changes a graph in place. During the call f->graph is already `to`: the callback may add
 * ports to f (f8_func_var, f8_func_result), but no functions to the module. On failure f keeps its
 * old graph and ports. */
typedef f8_ref (*f8_rewrite_fn)(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                                const f8_ref *in);
f8_status f8_func_rewrite(f8_func *f, f8_rewrite_fn rewrite, void *user);

/* The users of each node r are user[start[r]] to user[start[r + 1] - 1]: ascending, one entry for
 * each operand (add(x, x) is listed twice), then an entry 0 for each result port that r feeds. Both
 * arrays are in `arena`. */
typedef struct f8_uses {
    uint32_t *start, *user;
} f8_uses;
f8_status f8_compute_uses(const f8_func *f, f8_arena *arena, f8_uses *out, f8_diag *diag);

/* Check every invariant of every function; diag may be NULL. */
f8_status f8_verify(const f8_module *m, f8_diag *diag);

/* Print a module in the textual language (frontend/text/README.md has the grammar). Parsing that
 * text gives the identical module. */
typedef struct f8_writer {
    int (*write)(void *user, const char *text, size_t n); /* non-zero: stop, the writer failed */
    void *user;
} f8_writer;
f8_status f8_print_module(const f8_module *m, const f8_writer *w);
/* Print a rule as in the text, without the word `recipe`, into buf, cut to size. Returns buf. */
const char *f8_rule_print(const f8_recipe_rule *rule, char *buf, size_t size);

#endif
