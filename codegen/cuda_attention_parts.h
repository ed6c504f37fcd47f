/* The text that attention kernels are made of; for cuda_attention*.c only. Each is NUL-terminated
 * and guards itself against being given twice. */
#ifndef F8_CODEGEN_CUDA_ATTENTION_PARTS_H
#define F8_CODEGEN_CUDA_ATTENTION_PARTS_H

extern const char f8_cuda_attention_common[], f8_cuda_attention_forward[],
    f8_cuda_attention_backward[], f8_cuda_attention_f32[];

#endif
