/* Private to the generator of random graphs (graphgen.h): its state, and the steps that it takes.
 */
#ifndef F8_TESTS_GRAPHGEN_PARTS_H
#define F8_TESTS_GRAPHGEN_PARTS_H

#include "tests/shared/graphs/graphgen.h"

enum { F8_GEN_VALUES = 1024, F8_GEN_SHAPES = 20, F8_GEN_ELEMENTS = 70000, F8_GEN_STATES = 64 };

typedef struct f8_gen {
    uint64_t random;
    f8_module *m;
    f8_func *f;
    f8_graph *g;
    f8_ref value[F8_GEN_VALUES];
    int n_values;
    f8_type shape[F8_GEN_SHAPES]; /* dtype unused */
    int n_shapes;
    int n_inputs;
    bool gemms, aligned_fp8, broadcasts;
    unsigned scalings;
    f8_ref next[F8_GEN_STATES]; /* by state: what was made to replace it (an accumulation into it),
                                   or 0 */
} f8_gen;

/* A random element of an array. */
#define PICK(t, array) ((array)[f8_gen_below((t), (int)(sizeof(array) / sizeof(array)[0]))])

typedef bool (*f8_gen_test)(const f8_gen *t, f8_ref r, const void *arg);

int f8_gen_below(f8_gen *t, int n); /* [0, n) */
bool f8_gen_chance(f8_gen *t, int one_in);
int64_t f8_gen_size(f8_gen *t); /* ragged */
/* The k-th op of one operand that has this class and infer rule, and takes f32; NONE after the
 * last. How many there are. So a new op occurs in these graphs without a line here. */
f8_op f8_gen_op_of(f8_class cls, const char *infer, int k);
int f8_gen_ops_of(f8_class cls, const char *infer);
f8_type f8_gen_shape(int rank, int64_t a, int64_t b, int64_t c);
/* Whether two shapes broadcast to one that is not too large. */
bool f8_gen_broadcasts(const f8_type *a, const f8_type *b, f8_type *out);
f8_type f8_gen_joined(const f8_gen *t, f8_ref a, f8_ref b); /* the shape of both */

/* Operands join the list of values; 0 is passed on. */
f8_ref f8_gen_add(f8_gen *t, f8_ref r);
f8_ref f8_gen_input(f8_gen *t, f8_type type, f8_dtype d, const char *prefix);
f8_ref f8_gen_any_input(f8_gen *t, f8_dtype d);
f8_ref f8_gen_state(f8_gen *t, f8_type type, f8_dtype d); /* of its own, read */
/* r accumulates into acc: if that is a state, r is likely to replace it. */
void f8_gen_accumulates(f8_gen *t, f8_ref acc, f8_ref r);

/* A value of that dtype that passes, late ones more often; 0 if none of some tries does. */
f8_ref f8_gen_find(f8_gen *t, f8_dtype d, f8_gen_test test, const void *arg);
/* Any value of that dtype, or a new input; the second with at least one axis. */
f8_ref f8_gen_some(f8_gen *t, f8_dtype d);
f8_ref f8_gen_tensor(f8_gen *t, f8_dtype d);
/* What broadcasts with `type`: a value, a constant or a new input. */
f8_ref f8_gen_partner(f8_gen *t, const f8_type *type, f8_dtype d);

void f8_gen_step(f8_gen *t);   /* graphgen_ops.c */
void f8_gen_linear(f8_gen *t); /* graphgen_fp8.c */
/* A product with a bias, rounded to bf16. The bias is the product's last operand, or is added to
 * the f32 result, which may then have other uses. `in` has room for one more operand than n_in, 2
 * or 4. graphgen_ops.c */
f8_ref f8_gen_biased(f8_gen *t, f8_op op, f8_ref *in, int n_in, const f8_attr *attr, int n_attr);
void f8_gen_spread(f8_gen *t); /* graphgen_spread.c */
void f8_gen_blocks(f8_gen *t); /* graphgen_blocks.c */

#endif
