/* A plan as bytes, and the checks of a plan that was read.
 *
 * The large parts (constants, blob, images) are stored apart, so that they can be used where they
 * lie. The fields here have only their sizes; whoever reads a plan sets the pointers. */
#ifndef F8_PLAN_FILE_H
#define F8_PLAN_FILE_H

#include "ir/base/wire.h"
#include "runtime/plan.h"

/* The number of this format. It grows with each change to f8_plan_wire, to the meaning of a field,
 * or to an enumeration in a plan. Files of another number are not read. */
enum { F8_PLAN_FORMAT = 11 };

void f8_plan_wire(f8_wire *w, f8_plan *plan);
/* The plan's `needs`, by name, so that the table of features may grow. A reader needs them before
 * it reads the plan, to choose between plans. */
void f8_plan_wire_needs(f8_wire *w, f8_cpu_features *needs);

/* Checks that the plan can run without reading or writing outside the memory it declares: every
 * place lies in its space with all bytes that GEMMs, copies and attention access, and every phase
 * begins in the blob or names an image; and every collective is waited for once, before a step
 * touches what it receives or overwrites what it sends. What a kernel's instructions access can't be checked.
 * F8_ERR_INPUT says what is wrong in which step. */
f8_status f8_plan_check(const f8_plan *plan, f8_diag *diag);

/* Whether both plans have the same variables, laid out alike, so that their executors may share
 * them. */
bool f8_plan_same_variables(const f8_plan *a, const f8_plan *b);

#endif
