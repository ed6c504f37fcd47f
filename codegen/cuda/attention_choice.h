/* Which algorithm does an attention on a GPU: our own kernels or cuDNN. */
#ifndef F8_CODEGEN_CUDA_ATTENTION_CHOICE_H
#define F8_CODEGEN_CUDA_ATTENTION_CHOICE_H

#include "codegen/plan/options.h"
#include "codegen/kernel/attention.h"

/* The table's answer: F8_ATTENTION_OWN or F8_ATTENTION_CUDNN. Depends on nothing but its arguments.
 */
f8_attention_algorithm f8_cuda_attention_choose(const f8_target *target,
                                                const f8_attention_desc *desc, bool backward);

/* The problem in cuDNN's terms, its strides set. F8_ERR_UNSUPPORTED with the reason. The library's
 * version is not known when a plan is made: its limits are those of the newest this project has
 * seen, and an older one may refuse the plan where it is to run. */
f8_status f8_cuda_attention_by_cudnn(const f8_target *target, const f8_attention_desc *desc,
                                     bool backward, f8_cudnn_attention_desc *out, f8_diag *diag);

#endif
