/* The .cuh files inside the library: see text.h. */
#include "codegen/cuda/text.h"

#include "ir/base/embed.h"

EMBED(f8_cuda_header, "codegen/cuda/fp8c.cuh")
EMBED(f8_cuda_divide_text, "codegen/cuda/divide.cuh")
EMBED(f8_cuda_rows_text, "codegen/cuda/rows.cuh")
EMBED(f8_cuda_attention_common, "codegen/cuda/attention.cuh")
EMBED(f8_cuda_attention_masks, "codegen/cuda/attention_masks.cuh")
EMBED(f8_cuda_attention_forward, "codegen/cuda/attention_forward.cuh")
EMBED(f8_cuda_attention_backward, "codegen/cuda/attention_backward.cuh")
EMBED(f8_cuda_attention_f32, "codegen/cuda/attention_f32.cuh")
