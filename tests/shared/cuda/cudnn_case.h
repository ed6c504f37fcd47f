/* An attention problem in bf16 on a CUDA device: tensors with gaps between their tokens, run by
 * cuDNN, and a reference in double with bounds on how far a fused kernel may be from it.
 *
 * Where the bounds come from: scores, dP and delta are sums of products of bf16 values in f32, in
 * any order, by tensor cores that may drop bits (4 units of 2^-24 for every addition); exp within 8
 * units and its argument's error; P and dS are rounded to bf16 (2^-8) on their way into the next
 * product; of grouped heads every head's part of dk and dv is rounded to bf16 before they are
 * added; results are rounded to bf16 once. */
#ifndef F8_TESTS_CUDNN_CASE_H
#define F8_TESTS_CUDNN_CASE_H

#include "runtime/cuda/cudnn_attention.h"
#include "tests/shared/cuda/cuda_device.h"

enum { CASE_TENSORS = F8_CUDNN_DV + 1, CASE_LSE = F8_CUDNN_LSE };

typedef struct cudnn_case {
    f8_cudnn_attention_desc desc;
    cuda_device *device;
    struct {
        int64_t heads, stride, bytes; /* as in memory, gaps included */
        uint8_t *host;                /* what the device has, as of cudnn_case_fetch */
        uint64_t memory;              /* the device's: between two guards */
        double *value, *bound;        /* dense [B, T, heads, D]; lse [B, H, T] */
    } t[CASE_TENSORS];
} cudnn_case;

/* gap: elements between tokens beyond the heads, a multiple of 8. Inputs are random; everything
 * else of the memory holds a pattern. desc->stride is set here. Failures fail the test. */
void cudnn_case_make(cudnn_case *c, cuda_device *device, const f8_cudnn_attention_desc *desc,
                     int64_t gap, uint64_t seed);
void cudnn_case_free(cudnn_case *c);

void cudnn_case_pointers(const cudnn_case *c, void *pointers[CASE_TENSORS]);
void cudnn_case_clear(cudnn_case *c, int tensor);    /* back to the pattern, on the device */
void cudnn_case_fetch(cudnn_case *c);                /* the device's memory to the host */
void *cudnn_case_room(cudnn_case *c, int64_t bytes); /* device memory full of the pattern */
void cudnn_case_release(cudnn_case *c, void *room);

/* Fill value and bound of o and lse, or of dq, dk, dv given the fetched o and lse. */
void cudnn_case_forward(cudnn_case *c);
void cudnn_case_backward(cudnn_case *c);
/* The fetched tensor is within its bounds, and nothing around it was written. */
void cudnn_case_compare(const cudnn_case *c, int tensor);

const char *cudnn_case_describe(const f8_cudnn_attention_desc *desc);

/* ---- problems ---- */

enum { CASE_SHAPES = 6 };
extern const int64_t cudnn_case_shapes[CASE_SHAPES][5]; /* B, T, H, Hkv, D */

/* A problem without gaps between tokens. T is rounded up to a multiple of 128 where the library at
 * hand wants that. */
f8_cudnn_attention_desc cudnn_case_shape(const f8_cudnn *cudnn, int64_t B, int64_t T, int64_t H,
                                         int64_t Hkv, int64_t D, bool causal);
/* Prepares that problem in one direction. The caller destroys the result. */
f8_cudnn_attention *cudnn_case_prepare(f8_cudnn *cudnn, const f8_cudnn_attention_desc *x,
                                       bool backward, const f8_cudnn_choice *choice);

/* The text has that part. */
void cudnn_case_contains(const char *text, const char *part);

#endif
