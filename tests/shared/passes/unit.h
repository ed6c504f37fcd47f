/* For tests of passes: a module from text, some passes over it, its printed text, and its value in
 * double. Every function fails the running test on an error. */
#ifndef TEST_UNIT_H
#define TEST_UNIT_H

#include "tests/shared/passes/passes.h"

typedef struct test_unit {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
} test_unit;

/* Parse; `recipe` by name. Free with test_unit_end. */
void test_unit_parse(test_unit *t, const char *text, const char *recipe);
void test_unit_end(test_unit *t);

/* Run a pass and verify. The second returns the failure instead. */
void test_pass(test_unit *t, f8_status (*pass)(f8_unit *u));
/* legalize to memory, each verified, and the programs of all functions judged (program_check.h). */
void test_place(test_unit *t);
f8_status test_pass_fails(test_unit *t, f8_status (*pass)(f8_unit *u));

const f8_func *test_func(const test_unit *t, const char *name);
/* The text of a function's body: the lines between "func .. {" and "}". In t's arena. */
const char *test_print(test_unit *t, const char *func);
/* Nodes of `op` in f whose attribute role is `role` (NULL: any). */
int test_count(const f8_func *f, f8_op op, const char *role);
const f8_port *test_result(const f8_func *f, const char *name); /* NULL if there is none */

/* Values of ports by name, in double (int32_t for i32 ports), owned by t's arena. */
typedef struct test_values {
    test_unit *t;
    const char *name[256];
    void *data[256];
    f8_type type[256];
    int n;
} test_values;

/* The buffer of that name, made (with seeded random numbers, ids in [0, id_limit) for i32) at first
 * use. */
void *test_value(test_values *v, const char *name, const f8_type *type);
double *test_f64(test_values *v, const char *name); /* must exist */

/* Run f in double: inputs by port name from `in` (made up where missing), results into `out`. */
void test_run_f64(const f8_func *f, test_values *in, test_values *out);

#endif
