/* Compares a target with the interpreter: values by their bits, single products and attentions
 * within derived bounds. Messages go to buffers of F8_MESSAGE bytes. */
#ifndef F8_TESTS_COMPARE_H
#define F8_TESTS_COMPARE_H

#include "codegen/reference/judge.h"

enum { F8_MESSAGE = 2048 };

/* Whether two values of a type are equal by bits, NaNs by class; if not, `message` says where. */
bool f8_same_bits(const char *what, const char *port, const f8_type *type, const void *got,
                  const void *want, char *message);

/* One matmul, scaled_matmul, attention or attention_grad, or a cast of a product to bf16, on its
 * own: the operands (of the product) as the target saw them, and what it made of them. */
typedef struct f8_node_check {
    const f8_graph *g;
    f8_ref r;
    f8_sums sums;
    const void *const *operand;
    const void *const *result;
    char *message;
} f8_node_check;

bool f8_check_node(const f8_node_check *c);

#endif
