/* Scaling broken on purpose: what the scaling pass made of a micro_step, rewritten layer by layer.
 * Each way is a mistake that a compiler, a kernel or its schedule could make and that training
 * survives. Tests show which gate (gates.h) finds it. */
#ifndef F8_TESTS_BROKEN_H
#define F8_TESTS_BROKEN_H

#include "tests/shared/passes/passes.h"

typedef enum broken {
    BROKEN_NOT,
    /* Scales that are wrong, but wrong alike for quantizing and dequantizing. */
    BROKEN_STALE,   /* of the micro-step before; delayed: of the first update, for good */
    BROKEN_AXIS,    /* amaxes of columns taken for those of rows, of tiles in the other order; of a
                       tensor the first row's alone */
    BROKEN_SHIFTED, /* each block has the next one's; a tensor that of another operand */
    BROKEN_DOWN,    /* mxfp8: rounded down, as OCP Microscaling 1.0 has it */
    /* Scales that are right, of codes that are not theirs. */
    BROKEN_CODES, /* an operand's second quantization, along the other axis, is its first again */
    /* The same in the products alone: what was quantized is right. */
    BROKEN_PRODUCT_CODES,
    BROKEN_PRODUCT_SCALES, /* each block is dequantized by the next one's scale; a tensor by that of
                              the other operand */
} broken;

/* After the scaling pass, with every operand kept. Layer i, linears "h.i.*", is broken as way[i]
 * says. A failure is in the unit's diag. */
f8_status broken_apply(f8_unit *u, const broken *way, int n_layers);

#endif
