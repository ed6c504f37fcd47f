/* A plan as bytes, and what must hold of one that was read.
 *
 * The big parts (constants, blob, images) are kept apart, so that they can be used where they lie:
 * the fields here have their sizes alone, and whoever reads a plan sets their pointers. */
#ifndef F8_PLAN_FILE_H
#define F8_PLAN_FILE_H

#include "ir/base/wire.h"
#include "runtime/plan.h"

/* Of what these fields are and mean: one more with each change to f8_plan_wire, to a field's
 * meaning or to an enumeration in a plan. Files of another number are not read. */
enum { F8_PLAN_FORMAT = 1 };

void f8_plan_wire(f8_wire *w, f8_plan *plan);
/* The plan's `needs`, which whoever chooses a plan must know before it reads it: by name, so that
 * the table of features may grow. */
void f8_plan_wire_needs(f8_wire *w, f8_cpu_features *needs);

/* Whether it can be run without reading or writing outside of what it says it has, as far as a plan
 * shows: every place lies in its space with all that GEMMs, copies and attention touch, code within
 * the blob or an image; what kernels touch is their code's business. F8_ERR_INPUT says what is
 * wrong of which step. */
f8_status f8_plan_check(const f8_plan *plan, f8_diag *diag);

/* Whether both have the same variables, laid out alike: executors of the two may share them. */
bool f8_plan_same_variables(const f8_plan *a, const f8_plan *b);

#endif
