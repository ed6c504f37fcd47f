/* What the files of ir/ share with each other and with nobody else. */
#ifndef F8_IR_INTERNAL_H
#define F8_IR_INTERNAL_H

#include "ir/ir.h"

/* ---- ops.c ---- */

/* The index of the attribute among those of the op, or -1 if the op does not take it. */
int f8_op_attr(f8_op op, f8_attr_key key);
/* The node's attribute, or NULL if its op does not take it. */
const f8_attr *f8_node_attr(const f8_node *n, f8_attr_key key);

/* ---- names.c ---- */

/* An empty interner, or NULL when memory ran out. */
struct f8_interner *f8_interner_create(f8_arena *arena);
/* The interner's copy of `s`, or NULL if it has none. */
const char *f8_intern_find(const f8_module *m, const char *s, size_t n);
/* Intern a name as that of variable `var`; NULL when memory ran out. */
const char *f8_intern_var(f8_module *m, const char *name, int32_t var);
/* Whether the textual language can spell it: a letter or '_', then letters, digits, '_' and '.'. */
bool f8_name_ok(const char *name);

/* ---- graph.c ---- */

/* The hash of a node's op, clone number, operands and attributes. */
uint32_t f8_node_hash(const f8_node *n);
/* The node equal to `n` (whose hash is set), or 0. */
f8_ref f8_graph_lookup(const f8_graph *g, const f8_node *n);

/* ---- infer.c ---- */

/* Bring attributes to the canonical form that hashing and printing see: axes count from the front,
 * booleans are 0 or 1, kv_heads and roll's group are filled in, f32 constants are rounded to f32.
 * A value that is out of range stays as it is, and f8_infer refuses it. */
void f8_canonical_attrs(const f8_graph *g, f8_op op, const f8_ref *in, uint32_t n_in,
                        f8_attr *attr);

/* ---- infer_fail.c ---- */

/* Fails with "op: x f32[8] (from %h, line 3:7) and w f32[9] (from wte, line 1:1): message" at
 * g->at. `roles` names the operands, separated by spaces, or is NULL. */
f8_status f8_infer_fail(f8_graph *g, const f8_node *n, const char *roles, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Operand `i` must have type `t`. */
f8_status f8_infer_need_type(f8_graph *g, const f8_node *n, const char *roles, uint32_t i,
                             const f8_type *t);

static inline const f8_type *f8_in_type(const f8_graph *g, const f8_node *n, uint32_t i)
{
    return &g->node[n->in[i]].type;
}

/* Fails unless operand `i` has one of the dtypes in `mask`, a sum of 1 << dtype. */
f8_status f8_need_dtype(f8_graph *g, const f8_node *n, const char *roles, uint32_t i,
                        unsigned mask);
enum {
    F8_M_F32 = 1 << F8_F32,
    F8_M_BF16 = 1 << F8_BF16,
    F8_M_I32 = 1 << F8_I32,
    F8_M_I64 = 1 << F8_I64,
    F8_M_BOOL = 1 << F8_BOOL,
    F8_M_FP8 = 1 << F8_E4M3 | 1 << F8_E5M2,
};

/* ---- rope.c ---- */

/* Check the attributes that say the frequencies of a rotation. */
f8_status f8_infer_rope_table(f8_graph *g, const f8_node *n);

/* ---- infer.c and infer_nn.c: one function for each infer rule in ops.def ---- */

#define OP(ID, name, lo, hi, results, CLS, rule, ...)                                              \
    f8_status f8_infer_##rule(f8_graph *g, const f8_node *n, f8_type *out);
#include "ir/ops.def"
#undef OP

#endif
