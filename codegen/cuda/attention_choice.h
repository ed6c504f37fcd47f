/* Which algorithm computes an attention on a GPU: our own kernels or cuDNN. */
#ifndef F8_CODEGEN_CUDA_ATTENTION_CHOICE_H
#define F8_CODEGEN_CUDA_ATTENTION_CHOICE_H

#include "codegen/plan/options.h"
#include "codegen/kernel/attention.h"

/* What the table says: F8_ATTENTION_OWN or F8_ATTENTION_CUDNN. It depends on the arguments alone.
 */
f8_attention_algorithm f8_cuda_attention_choose(const f8_target *target,
                                                const f8_attention_desc *desc, bool backward);

/* The problem as cuDNN's description, with strides. F8_ERR_UNSUPPORTED with the reason if cuDNN
 * can't compute it. The library's version is not known when a plan is made, so the limits are those
 * of the newest version this project has seen. An older one may refuse the plan on the machine that
 * runs it. */
f8_status f8_cuda_attention_by_cudnn(const f8_target *target, const f8_attention_desc *desc,
                                     bool backward, f8_cudnn_attention_desc *out, f8_diag *diag);

#endif
