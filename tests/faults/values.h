/* The values that a function writes, in the order of its plan: those that the witness gives, but
 * for what collectives receive. */
#ifndef F8_TEST_FAULT_VALUES_H
#define F8_TEST_FAULT_VALUES_H

#include "frontend/program.h"

typedef struct f8_fault_value {
    uint32_t step;        /* when it is done the value is there */
    const char *name;     /* as fp8c_witnessed has it */
    const char *variable; /* whose place it has; NULL: none */
    bool product;         /* a GEMM makes it */
    f8_place place;
    f8_type type;
} f8_fault_value;

typedef struct f8_fault_values {
    f8_fault_value *value;
    size_t n;
} f8_fault_values;

/* In `arena`. The variant was compiled with `witness`. */
f8_status f8_fault_values_of(const f8_variant *v, uint32_t func, f8_arena *arena,
                             f8_fault_values *out);

#endif
