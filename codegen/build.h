/* Makes a plan from a module whose functions the passes have grouped, ordered and placed. Each
 * group becomes one or more steps. Each distinct kernel is described and compiled once, and the
 * code of all kernels goes into the plan.
 *
 *     f8_build_plan(module, &(f8_build_options){0}, &arena, &plan, diag);
 *
 * A function that was not lowered, such as the text's own `forward`, is not in the plan. The same
 * module and the same target give the same plan, byte for byte, whatever `threads` is. */
#ifndef F8_CODEGEN_BUILD_H
#define F8_CODEGEN_BUILD_H

#include "codegen/plan/options.h"
#include "ir/lowered.h"
#include "runtime/plan.h"

/* The plan lives in `arena`. F8_ERR_LIBRARY: LLVM or NVRTC is missing. F8_ERR_INTERNAL: a lowered
 * function breaks the rules of ir/lowered.h, or a kernel does not compile. F8_ERR_UNSUPPORTED: the
 * target cannot do what is asked. F8_ERR_INPUT: the target is CUDA and options.cuda is NULL. */
f8_status f8_build_plan(const f8_module *m, const f8_build_options *options, f8_arena *arena,
                        f8_plan *plan, f8_diag *d);

/* The part of a plan that the reference target has: the variables, and every function with its
 * ports and without steps. */
f8_status f8_build_interface(const f8_module *m, const f8_target *target, f8_arena *arena,
                             f8_plan *plan, f8_diag *d);

#endif
