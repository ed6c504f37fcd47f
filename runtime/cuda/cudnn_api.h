/* What the project uses of cuDNN 9's backend API: values, types and the table of its functions, in
 * our own declarations (api.h says how they are used).
 *
 * Attributes are passed as (descriptor, name, type, count, pointer to `count` elements). Elements:
 * int64_t for TYPE_INT64, int for every enumeration, bool for TYPE_BOOLEAN, a descriptor for
 * TYPE_BACKEND_DESCRIPTOR, a pointer for TYPE_VOID_PTR, the handle for TYPE_HANDLE. */
#ifndef F8_CUDNN_API_H
#define F8_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

#define F8_CUDNN_VALUES(X)                                        \
    X(CUDNN_STATUS_SUCCESS, 0)                                    \
    X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                         \
    X(CUDNN_STATUS_BAD_PARAM, 2000)                               \
    X(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, 2002)                  \
    X(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, 2004)                 \
    X(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, 2008)                \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                           \
    X(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, 3001)             \
    X(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, 3002)                     \
    X(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, 3004)                    \
    X(CUDNN_STATUS_INTERNAL_ERROR, 4000)                          \
    X(CUDNN_STATUS_EXECUTION_FAILED, 5000)                        \
    X(CUDNN_DATA_FLOAT, 0)                                        \
    X(CUDNN_DATA_INT32, 4)                                        \
    X(CUDNN_DATA_BFLOAT16, 9)                                     \
    X(CUDNN_DATA_BOOLEAN, 11)                                     \
    X(CUDNN_REDUCE_TENSOR_ADD, 0)                                 \
    X(CUDNN_REDUCE_TENSOR_MAX, 3)                                 \
    X(CUDNN_POINTWISE_ADD, 0)                                     \
    X(CUDNN_POINTWISE_MUL, 1)                                     \
    X(CUDNN_POINTWISE_DIV, 6)                                     \
    X(CUDNN_POINTWISE_SUB, 9)                                     \
    X(CUDNN_POINTWISE_EXP, 13)                                    \
    X(CUDNN_POINTWISE_LOG, 15)                                    \
    X(CUDNN_POINTWISE_CMP_GE, 303)                                \
    X(CUDNN_POINTWISE_GEN_INDEX, 501)                             \
    X(CUDNN_POINTWISE_BINARY_SELECT, 601)                         \
    X(CUDNN_ATTR_POINTWISE_MODE, 0)                               \
    X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                          \
    X(CUDNN_ATTR_POINTWISE_AXIS, 9)                               \
    X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                            \
    X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                 \
    X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                         \
    X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                      \
    X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                           \
    X(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, 302)                     \
    X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                      \
    X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)               \
    X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)              \
    X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                  \
    X(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 600)                      \
    X(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 601)                     \
    X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)          \
    X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                  \
    X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                  \
    X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                  \
    X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                  \
    X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                      \
    X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                         \
    X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                      \
    X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                           \
    X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                          \
    X(CUDNN_ATTR_TENSOR_STRIDES, 903)                             \
    X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                           \
    X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                          \
    X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                         \
    X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                   \
    X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                \
    X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                    \
    X(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 1300)                    \
    X(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                       \
    X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                     \
    X(CUDNN_ATTR_ENGINE_DEVICEPROP, 1307)                         \
    X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                          \
    X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                    \
    X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                    \
    X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                    \
    X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                     \
    X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                        \
    X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                       \
    X(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, 1602)                \
    X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                 \
    X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                 \
    X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                  \
    X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                   \
    X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)                   \
    X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)            \
    X(CUDNN_TYPE_HANDLE, 0)                                       \
    X(CUDNN_TYPE_DATA_TYPE, 1)                                    \
    X(CUDNN_TYPE_BOOLEAN, 2)                                      \
    X(CUDNN_TYPE_INT64, 3)                                        \
    X(CUDNN_TYPE_VOID_PTR, 6)                                     \
    X(CUDNN_TYPE_HEUR_MODE, 8)                                    \
    X(CUDNN_TYPE_KNOB_TYPE, 9)                                    \
    X(CUDNN_TYPE_NUMERICAL_NOTE, 11)                              \
    X(CUDNN_TYPE_POINTWISE_MODE, 14)                              \
    X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                          \
    X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                     \
    X(CUDNN_TYPE_CHAR, 24)                                        \
    X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                      \
    X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                         \
    X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                      \
    X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                     \
    X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                 \
    X(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 7)                    \
    X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)           \
    X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                \
    X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                  \
    X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                        \
    X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                        \
    X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)              \
    X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                     \
    X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)           \
    X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)             \
    X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                    \
    X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                   \
    X(CUDNN_HEUR_MODE_FALLBACK, 2)                                \
    X(CUDNN_HEUR_MODE_A, 3)                                       \
    X(CUDNN_KNOB_TYPE_STAGES, 14)                                 \
    X(CUDNN_KNOB_TYPE_KERNEL_CFG, 24)

#ifndef F8_CUDA_API_TOOLKIT
#define F8_CUDNN_API_VALUE(name, value) name = value,
enum { F8_CUDNN_VALUES(F8_CUDNN_API_VALUE) };

typedef int cudnnStatus_t, cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;
#include "runtime/cuda/api.h"
#endif

/* X(result, name, (parameters)) */
#define F8_CUDNN_SYMBOLS(X)                                                                      \
    X(size_t, cudnnGetVersion, (void))                                                           \
    X(const char *, cudnnGetErrorString, (cudnnStatus_t status))                                 \
    X(void, cudnnGetLastErrorString, (char *message, size_t room))                               \
    X(cudnnStatus_t, cudnnCreate, (cudnnHandle_t *handle))                                       \
    X(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle))                                       \
    X(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t s))                     \
    X(cudnnStatus_t, cudnnBackendCreateDescriptor,                                               \
      (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor))                 \
    X(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor))       \
    X(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor))                \
    X(cudnnStatus_t, cudnnBackendSetAttribute,                                                   \
      (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,                    \
       cudnnBackendAttributeType_t type, int64_t count, const void *elements))                   \
    X(cudnnStatus_t, cudnnBackendGetAttribute,                                                   \
      (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,                    \
       cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *elements))          \
    X(cudnnStatus_t, cudnnBackendExecute,                                                        \
      (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variant_pack))

typedef struct f8_cudnn_api {
#define F8_CUDNN_API_FIELD(result, name, parameters) result(*name) parameters;
    F8_CUDNN_SYMBOLS(F8_CUDNN_API_FIELD)
#undef F8_CUDNN_API_FIELD
} f8_cudnn_api;

#endif
