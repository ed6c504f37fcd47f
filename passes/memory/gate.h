/* The exchange on which all of a function waits. For overlap.c alone. */
#ifndef F8_GATE_H
#define F8_GATE_H

#include "passes/memory/order.h"

/* In a function without inputs, as `update` is, all groups depend on variables alone, and most of
 * them on one small exchange, that of the norm. That one is the gate: the last collective that
 * every other one must run before or behind, if some must run behind it. own[group]: it depends on
 * variables alone. *gate: F8_NO_GROUP if there is none; behind[group]: it must run behind the gate.
 */
f8_status f8_find_gate(f8_scheduler *s, const bool *own, bool *behind, uint32_t *gate);

#endif
