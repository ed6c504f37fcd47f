/* For tests of estimated costs: the targets, functions of primitives and what their groups cost. */
#ifndef TEST_COST_CASE_H
#define TEST_COST_CASE_H

#include "tests/shared/passes/unit.h"

#include "passes/unit/cost.h"

/* The reference target groups nothing; it has the CPU's figures. */
enum { COST_TARGETS = 5 };
extern const char *const cost_target[COST_TARGETS];

/* Parse a text without its line `module` and take it up to grouping. The function is neither
 * ordered nor placed. The caller ends t. */
const f8_func *cost_grouped(test_unit *t, const char *target, const char *text);

/* The seconds of the only group of such a function. */
double cost_seconds(const char *target, const char *text);

/* The seconds of all groups of a kind. */
double cost_of_kind(const f8_func *f, const f8_target *target, f8_group_kind kind);

#endif
