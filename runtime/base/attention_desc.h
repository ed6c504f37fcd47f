/* What an attention step of a CUDA plan does: plain data that plans hold. cuDNN does it
 * (cudnn_attention.h). */
#ifndef F8_ATTENTION_DESC_H
#define F8_ATTENTION_DESC_H

#include <stdbool.h>
#include <stdint.h>

/* One attention problem, in bf16. The meaning is codegen/kernel/attention.h's: element (b, t, head,
 * d) lies at base + (b * T + t) * stride + head * D + d; lse is f32[B, H, T]; head h reads
 * key/value head h / (H / Hkv). */
typedef struct f8_cudnn_attention_desc {
    int64_t B, T, H, Hkv, D;
    bool causal, backward;
    float scale;
    struct { /* elements between tokens */
        int64_t q, k, v, o, dout, dq, dk, dv;
    } stride; /* forward uses the first four */
} f8_cudnn_attention_desc;

/* An attention step's arguments in their order. Forward has the first five. */
enum {
    F8_CUDNN_Q,
    F8_CUDNN_K,
    F8_CUDNN_V,
    F8_CUDNN_O,
    F8_CUDNN_LSE,
    F8_CUDNN_DO,
    F8_CUDNN_DQ,
    F8_CUDNN_DK,
    F8_CUDNN_DV,
    F8_CUDNN_ARGS
};

static inline uint32_t f8_attention_args(const f8_cudnn_attention_desc *desc)
{
    return desc->backward ? F8_CUDNN_ARGS : F8_CUDNN_LSE + 1;
}

#endif
