/* An independent judge of lowered functions. It runs through their order and follows every byte. */
#ifndef F8_TEST_PROGRAM_CHECK_H
#define F8_TEST_PROGRAM_CHECK_H

#include "ir/lowered.h"

/* Whether func->program computes what the graph says, as far as places and order go:
 *   every value is written once, before it is read, and what is read at a place is still the value
 *   last meant to be there; views lie where their bases' elements lie; phases keep to the rules of
 *   ir/lowered.h; results end where they belong; nothing leaves the arena.
 * F8_ERR_INTERNAL with the first fault in diag. Shares no code with the passes. */
f8_status f8_program_check(const f8_func *f, f8_diag *diag);

#endif
