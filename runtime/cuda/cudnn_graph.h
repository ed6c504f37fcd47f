/* Attention as a graph of cuDNN's operations: plain data, no library.
 *
 * cuDNN recognises attention by the form of a graph of matmul, pointwise, reduction and reshape
 * operations. So the graph here is, operation by operation, the pattern that its fused engines look
 * for. Only the tensors marked real are ever stored. A tensor's unique id is its index + 1.
 *
 * The backward graph multiplies dS and K straight into dq. The other form that cuDNN knows adds dq
 * up in an f32 tensor, block by block in any order, and is not reproducible. */
#ifndef F8_CUDNN_GRAPH_H
#define F8_CUDNN_GRAPH_H

#include "runtime/base/attention_desc.h"

/* The tensors a graph may have under fixed numbers. The first nine are the step's arguments, as
 * attention_desc.h numbers them. K is [B, Hkv, D, T]: cuDNN wants keys transposed, which strides
 * say. V is [B, Hkv, T, D] in forward and [B, Hkv, D, T] in backward. The values lie in host
 * memory; delta is the caller's memory too. */
enum {
    F8_CUDNN_DELTA =
        F8_CUDNN_ARGS, /* f32[B, H, T]: sum of do * o, between the two parts of backward */
    F8_CUDNN_SCALE,
    F8_CUDNN_MINUS_INF,
    F8_CUDNN_ONE,
    F8_CUDNN_FIXED,

    F8_CUDNN_MAX_TENSORS = 48,
    F8_CUDNN_MAX_OPS = 32
};

typedef struct f8_cudnn_tensor {
    int type;               /* CUDNN_DATA_ */
    bool used, real, value; /* real: memory; value: a scalar in host memory; neither: virtual */
    int64_t dim[4], stride[4];
} f8_cudnn_tensor;

typedef enum f8_cudnn_op_kind {
    F8_CUDNN_MATMUL,    /* out = in[0] in[1]; a batch of fewer heads is read by groups */
    F8_CUDNN_POINTWISE, /* out = mode(in...), dimensions of size 1 broadcast */
    F8_CUDNN_REDUCTION, /* out = in[0] reduced over what out is smaller in, heads by groups */
    F8_CUDNN_RESHAPE    /* out = in[0], its last two axes exchanged */
} f8_cudnn_op_kind;

typedef struct f8_cudnn_op {
    f8_cudnn_op_kind kind;
    int mode;     /* CUDNN_POINTWISE_ or CUDNN_REDUCE_TENSOR_ */
    int compute;  /* CUDNN_DATA_ */
    int64_t axis; /* CUDNN_POINTWISE_GEN_INDEX */
    int in[3], n_in, out;
} f8_cudnn_op;

typedef struct f8_cudnn_graph {
    f8_cudnn_tensor tensor[F8_CUDNN_MAX_TENSORS];
    f8_cudnn_op op[F8_CUDNN_MAX_OPS];
    int n_tensors, n_ops;
} f8_cudnn_graph;

void f8_cudnn_attention_graph(const f8_cudnn_attention_desc *desc, f8_cudnn_graph *out);

#endif
