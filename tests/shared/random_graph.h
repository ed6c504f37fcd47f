/* Random functions, seeded: every kind of op, ragged sizes, state replaced, exchanged and
 * accumulated into. */
#ifndef F8_TEST_RANDOM_GRAPH_H
#define F8_TEST_RANDOM_GRAPH_H

#include "ir/ir.h"

typedef struct f8_random {
    uint64_t state;
} f8_random;

uint64_t f8_random_bits(f8_random *r);
int64_t f8_random_below(f8_random *r, int64_t n);

typedef struct f8_random_options {
    int nodes;      /* about how many to make; 0: a few to a few dozen, at random */
    bool libraries; /* with matmul and attention, all of whose results become results of the
                       function */
} f8_random_options;

/* Adds function `name` and the variables it uses (names start with `name`) to m. Every failure of
 * the builder ends up in m->diag; NULL then. The same seed gives the same function. */
f8_func *f8_random_func(f8_module *m, const char *name, uint64_t seed,
                        const f8_random_options *options);

/* Fill a buffer of that type: mostly moderate numbers, some special ones; i32 in [0, limit), some
 * just outside. */
void f8_random_fill(f8_random *r, const f8_type *type, int32_t limit, void *to);

enum { F8_RANDOM_TABLE = 11 }; /* rows of every embedding table: what ids of i32 inputs are below */

#endif
