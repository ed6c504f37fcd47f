/* What a fault does to the memory of a value. */
#ifndef F8_TEST_FAULT_DAMAGE_H
#define F8_TEST_FAULT_DAMAGE_H

#include "ir/base/type.h"
#include "tests/faults/fault.h"

/* Row r of the value, seen as a matrix, is `stride` elements behind row r - 1. */
typedef struct f8_fault_memory {
    uint8_t *at;
    f8_type type;
    int64_t stride;
} f8_fault_memory;

typedef struct f8_fault_change {
    int64_t elements; /* how many have other bits than before */
    int64_t element;  /* the first of them, -1: none */
    double was, is;   /* of the first */
} f8_fault_change;

f8_fault_change f8_fault_damage(const f8_fault *f, const f8_fault_memory *m);
/* `from` holds the elements in a row. */
f8_fault_change f8_fault_put(const f8_fault_memory *m, const void *from);
void f8_fault_get(const f8_fault_memory *m, void *to);
/* NULL, or why a value of this type can't have this fault. */
const char *f8_fault_misfit(const f8_fault *f, const f8_type *t);

#endif
