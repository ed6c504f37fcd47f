/* From a module whose functions are grouped, ordered and placed to a plan: kernels are described,
 * equal ones are compiled once, their code is linked into one blob, and every group becomes a step.
 *
 *     f8_build_plan(module, &(f8_build_options){0}, &arena, &plan, diag);
 *
 * Functions without a program (the text's own `forward`) are not in the plan. The same module and
 * CPU give the same plan, byte for byte, whatever `threads` is. */
#ifndef F8_CODEGEN_BUILD_H
#define F8_CODEGEN_BUILD_H

#include "codegen/plan/options.h"
#include "ir/lowered.h"
#include "runtime/plan.h"

/* The plan lives in `arena`. F8_ERR_LIBRARY without LLVM or NVRTC; F8_ERR_INTERNAL for a program
 * that breaks the rules of ir/lowered.h or a kernel that does not compile; F8_ERR_UNSUPPORTED for
 * what the target can't do; F8_ERR_INPUT for a CUDA target without options.cuda. */
f8_status f8_build_plan(const f8_module *m, const f8_build_options *options, f8_arena *arena,
                        f8_plan *plan, f8_diag *d);

/* What of a plan the reference target has: variables, and every function with its ports and no
 * steps. */
f8_status f8_build_interface(const f8_module *m, const f8_target *target, f8_arena *arena,
                             f8_plan *plan, f8_diag *d);

#endif
