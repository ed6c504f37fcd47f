/* Collectives beside other groups: an order in which bytes travel while something else runs. For
 * schedule.c alone. */
#ifndef F8_OVERLAP_H
#define F8_OVERLAP_H

#include "passes/memory/order.h"

/* Moves collectives of `order` to earlier turns, and what reads their results to later ones. Groups
 * that neither wait for other ranks nor prepare what is sent keep their order. *peak: the most
 * bytes in the arena at once. */
f8_status f8_order_overlap(f8_scheduler *s, uint32_t *order, int64_t *peak);

#endif
