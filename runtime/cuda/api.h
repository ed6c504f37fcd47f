/* What the project uses of NVIDIA's libraries: types, values and one table of functions for each,
 * in our own declarations, so that it builds where no toolkit is. The names are the libraries' own.
 *
 * Functions have the names that the libraries export, which are often versioned: cuMemAlloc is
 * cuMemAlloc_v2. A file that includes the toolkit's headers defines F8_CUDA_API_TOOLKIT first and
 * gets the tables alone. So a test compares every prototype, value and size with the real ones.
 *
 * Kernels are launched with params = {pointer to the params struct}, extra = NULL.
 *
 * Enumerations are int here; in the toolkit they are enums of int's size. */
#ifndef F8_CUDA_API_H
#define F8_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* ---- values: X(name, value) ---- */

#define F8_CUDA_VALUES(X)                                                                          \
    X(CUDA_SUCCESS, 0)                                                                             \
    X(CUDA_ERROR_INVALID_VALUE, 1)                                                                 \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                 \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                               \
    X(CUDA_ERROR_NO_DEVICE, 100)                                                                   \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                                                              \
    X(CUDA_ERROR_INVALID_IMAGE, 200)                                                               \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                             \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                           \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                                                              \
    X(CUDA_ERROR_NOT_FOUND, 500)                                                                   \
    X(CUDA_ERROR_NOT_READY, 600)                                                                   \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                             \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                     \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                               \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                               \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                  \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                  \
    X(CUDA_ERROR_UNKNOWN, 999)                                                                     \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                            \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                            \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                                   \
    X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                                                      \
    X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                                                       \
    X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                                                               \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                          \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                         \
    X(CU_MEMORYTYPE_HOST, 1)                                                                       \
    X(CU_MEMORYTYPE_DEVICE, 2)                                                                     \
    X(CU_MEMORYTYPE_UNIFIED, 4)                                                                    \
    X(CU_STREAM_DEFAULT, 0)                                                                        \
    X(CU_STREAM_NON_BLOCKING, 1)                                                                   \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                      \
    X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                                           \
    X(CU_EVENT_DEFAULT, 0)                                                                         \
    X(CU_EVENT_DISABLE_TIMING, 2)                                                                  \
    X(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)

#define F8_NVRTC_VALUES(X)          \
    X(NVRTC_SUCCESS, 0)             \
    X(NVRTC_ERROR_OUT_OF_MEMORY, 1) \
    X(NVRTC_ERROR_INVALID_INPUT, 3) \
    X(NVRTC_ERROR_INVALID_PROGRAM, 4) \
    X(NVRTC_ERROR_INVALID_OPTION, 5) \
    X(NVRTC_ERROR_COMPILATION, 6)   \
    X(NVRTC_ERROR_INTERNAL_ERROR, 11)

#define F8_CUBLASLT_VALUES(X)                        \
    X(CUBLAS_STATUS_SUCCESS, 0)                      \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)              \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)                 \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)                \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13)            \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14)              \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)               \
    X(CUBLAS_OP_N, 0)                                \
    X(CUBLAS_OP_T, 1)                                \
    X(CUBLAS_COMPUTE_32F, 68)                        \
    X(CUDA_R_32F, 0)                                 \
    X(CUDA_R_16BF, 14)                               \
    X(CUDA_R_8F_E4M3, 28)                            \
    X(CUDA_R_8F_E5M2, 29)                            \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)              \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)          \
    X(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)       \
    X(CUBLASLT_EPILOGUE_BIAS, 4)                     \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)         \
    X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6) \
    X(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 17)      \
    X(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 18)      \
    X(CUBLASLT_MATMUL_DESC_FAST_ACCUM, 25)           \
    X(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 31)         \
    X(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 32)         \
    X(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, 0)    \
    X(CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, 2)   \
    X(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, 3) \
    X(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, 4)    \
    X(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, 5) \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)   \
    X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8) \
    X(CUBLASLT_REDUCTION_SCHEME_NONE, 0)             \
    X(CUBLASLT_REDUCTION_SCHEME_INPLACE, 1)          \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)     \
    X(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 4)      \
    X(CUBLASLT_ALGO_CONFIG_ID, 0)                    \
    X(CUBLASLT_ALGO_CONFIG_TILE_ID, 1)               \
    X(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2)            \
    X(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 3)      \
    X(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4)         \
    X(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 5)         \
    X(CUBLASLT_ALGO_CONFIG_STAGES_ID, 6)             \
    X(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 7)        \
    X(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 8)

/* NCCL 2.14 and later. */
#define F8_NCCL_VALUES(X)                                                                          \
    X(ncclSuccess, 0)                                                                              \
    X(ncclUnhandledCudaError, 1)                                                                   \
    X(ncclSystemError, 2)                                                                          \
    X(ncclInternalError, 3)                                                                        \
    X(ncclInvalidArgument, 4)                                                                      \
    X(ncclInvalidUsage, 5)                                                                         \
    X(ncclRemoteError, 6)                                                                          \
    X(ncclInProgress, 7)                                                                           \
    X(ncclUint8, 1)                                                                                \
    X(ncclFloat32, 7)                                                                              \
    X(ncclSum, 0)                                                                                  \
    X(NCCL_UNIQUE_ID_BYTES, 128)

/* ---- types ---- */

#ifndef F8_CUDA_API_TOOLKIT

#define F8_CUDA_API_VALUE(name, value) name = value,
enum { F8_CUDA_VALUES(F8_CUDA_API_VALUE) };
enum { F8_NVRTC_VALUES(F8_CUDA_API_VALUE) };
enum { F8_CUBLASLT_VALUES(F8_CUDA_API_VALUE) };
enum { F8_NCCL_VALUES(F8_CUDA_API_VALUE) };

typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUpointer_attribute,
    CUstreamCaptureMode, CUstreamCaptureStatus;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
/* Of the values only one is used; the union has 64 bytes. */
typedef struct CUlaunchAttribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;
typedef struct CUgraphExecUpdateResultInfo {
    int result;
    void *error_node, *error_from_node;
} CUgraphExecUpdateResultInfo;

typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

typedef int cublasStatus_t, cublasComputeType_t, cudaDataType, cublasLtMatmulDescAttributes_t,
    cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatmulAlgoConfigAttributes_t;
typedef CUstream cudaStream_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct f8_cublaslt_matmul_desc *cublasLtMatmulDesc_t;
typedef struct f8_cublaslt_layout *cublasLtMatrixLayout_t;
typedef struct f8_cublaslt_preference *cublasLtMatmulPreference_t;
typedef struct cublasLtMatmulAlgo_t {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct ncclUniqueId {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
/* As of NCCL 2.14: later versions take it by its size and version, and have defaults for the rest.
 */
typedef struct ncclConfig_t {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t;
#endif
#define NCCL_CONFIG_MAGIC 0xcafebeefU /* of every ncclConfig_t */

/* The toolkit's minimal install has no header of NVML, so its parts are ours in either case. */
typedef int f8_nvml_return;

/* ---- functions: X(result, name, (parameters)) ---- */

#define F8_CUDA_SYMBOLS(X)                                                                         \
    X(CUresult, cuInit, (unsigned flags))                                                          \
    X(CUresult, cuDriverGetVersion, (int *version))                                                \
    X(CUresult, cuGetErrorName, (CUresult error, const char **name))                               \
    X(CUresult, cuGetErrorString, (CUresult error, const char **text))                             \
    X(CUresult, cuDeviceGetCount, (int *count))                                                    \
    X(CUresult, cuDeviceGet, (CUdevice * device, int ordinal))                                     \
    X(CUresult, cuDeviceGetName, (char *name, int length, CUdevice device))                        \
    X(CUresult, cuDeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice device))     \
    X(CUresult, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                             \
    X(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                  \
    X(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                   \
    X(CUresult, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))       \
    X(CUresult, cuCtxPushCurrent_v2, (CUcontext context))                                          \
    X(CUresult, cuCtxPopCurrent_v2, (CUcontext * context))                                         \
    X(CUresult, cuCtxGetCurrent, (CUcontext * context))                                            \
    X(CUresult, cuMemGetInfo_v2, (size_t *free, size_t *total))                                    \
    X(CUresult, cuMemAlloc_v2, (CUdeviceptr * ptr, size_t bytes))                                  \
    X(CUresult, cuMemFree_v2, (CUdeviceptr ptr))                                                   \
    X(CUresult, cuMemAllocHost_v2, (void **ptr, size_t bytes))                                     \
    X(CUresult, cuMemFreeHost, (void *ptr))                                                        \
    X(CUresult, cuPointerGetAttribute, (void *data, CUpointer_attribute which, CUdeviceptr ptr))   \
    X(CUresult, cuMemcpyHtoDAsync_v2,                                                              \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream s))                                \
    X(CUresult, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream s))      \
    X(CUresult, cuMemcpyDtoDAsync_v2,                                                              \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s))                                \
    X(CUresult, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream s))  \
    X(CUresult, cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream s))      \
    X(CUresult, cuStreamCreate, (CUstream * s, unsigned flags))                                    \
    X(CUresult, cuStreamDestroy_v2, (CUstream s))                                                  \
    X(CUresult, cuStreamSynchronize, (CUstream s))                                                 \
    X(CUresult, cuStreamQuery, (CUstream s))                                                       \
    X(CUresult, cuStreamWaitEvent, (CUstream s, CUevent event, unsigned flags))                    \
    X(CUresult, cuStreamBeginCapture_v2, (CUstream s, CUstreamCaptureMode mode))                   \
    X(CUresult, cuStreamEndCapture, (CUstream s, CUgraph * graph))                                 \
    X(CUresult, cuGraphInstantiateWithFlags,                                                       \
      (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                               \
    X(CUresult, cuGraphExecUpdate_v2,                                                              \
      (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo * info))                       \
    X(CUresult, cuGraphLaunch, (CUgraphExec exec, CUstream s))                                     \
    X(CUresult, cuGraphExecDestroy, (CUgraphExec exec))                                            \
    X(CUresult, cuGraphDestroy, (CUgraph graph))                                                   \
    X(CUresult, cuEventCreate, (CUevent * event, unsigned flags))                                  \
    X(CUresult, cuEventDestroy_v2, (CUevent event))                                                \
    X(CUresult, cuEventRecord, (CUevent event, CUstream s))                                        \
    X(CUresult, cuEventQuery, (CUevent event))                                                     \
    X(CUresult, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))             \
    X(CUresult, cuModuleLoadData, (CUmodule * module, const void *image))                          \
    X(CUresult, cuModuleUnload, (CUmodule module))                                                 \
    X(CUresult, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))   \
    X(CUresult, cuFuncGetAttribute, (int *value, CUfunction_attribute which, CUfunction function)) \
    X(CUresult, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute which, int value))  \
    X(CUresult, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                       \
      (int *blocks, CUfunction function, int threads, size_t dynamic_shared))                      \
    X(CUresult, cuLaunchKernel,                                                                    \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared, CUstream s, void **params,             \
       void **extra))

/* What only an option needs: NULL in f8_cuda where the driver has it not. */
#define F8_CUDA_MORE_SYMBOLS(X)                                                                    \
    X(CUresult, cuLaunchKernelEx,                                                                  \
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))

#define F8_NVRTC_SYMBOLS(X)                                                                        \
    X(const char *, nvrtcGetErrorString, (nvrtcResult result))                                     \
    X(nvrtcResult, nvrtcVersion, (int *major, int *minor))                                         \
    X(nvrtcResult, nvrtcGetNumSupportedArchs, (int *count))                                        \
    X(nvrtcResult, nvrtcGetSupportedArchs, (int *archs))                                           \
    X(nvrtcResult, nvrtcCreateProgram,                                                             \
      (nvrtcProgram * program, const char *text, const char *name, int n_headers,                  \
       const char *const *headers, const char *const *header_names))                               \
    X(nvrtcResult, nvrtcDestroyProgram, (nvrtcProgram * program))                                  \
    X(nvrtcResult, nvrtcCompileProgram,                                                            \
      (nvrtcProgram program, int n_options, const char *const *options))                           \
    X(nvrtcResult, nvrtcGetPTXSize, (nvrtcProgram program, size_t *bytes))                         \
    X(nvrtcResult, nvrtcGetPTX, (nvrtcProgram program, char *ptx))                                 \
    X(nvrtcResult, nvrtcGetCUBINSize, (nvrtcProgram program, size_t *bytes))                       \
    X(nvrtcResult, nvrtcGetCUBIN, (nvrtcProgram program, char *cubin))                             \
    X(nvrtcResult, nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *bytes))                  \
    X(nvrtcResult, nvrtcGetProgramLog, (nvrtcProgram program, char *log))

#define F8_CUBLASLT_SYMBOLS(X)                                                                     \
    X(size_t, cublasLtGetVersion, (void))                                                          \
    X(const char *, cublasLtGetStatusName, (cublasStatus_t status))                                \
    X(const char *, cublasLtGetStatusString, (cublasStatus_t status))                              \
    X(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle))                                 \
    X(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle))                                  \
    X(cublasStatus_t, cublasLtMatmulDescCreate,                                                    \
      (cublasLtMatmulDesc_t * desc, cublasComputeType_t compute, cudaDataType scale))              \
    X(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc))                      \
    X(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                              \
      (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, const void *value,         \
       size_t bytes))                                                                              \
    X(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                  \
      (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns,        \
       int64_t stride))                                                                            \
    X(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                            \
      (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const void *value,    \
       size_t bytes))                                                                              \
    X(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                \
    X(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference))   \
    X(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))    \
    X(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                        \
      (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,          \
       const void *value, size_t bytes))                                                           \
    X(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                              \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,               \
       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,               \
       cublasLtMatmulPreference_t preference, int wanted,                                          \
       cublasLtMatmulHeuristicResult_t *results, int *found))                                      \
    X(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                     \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,               \
       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,               \
       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result))                 \
    X(cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,                                        \
      (const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t which, void *value,  \
       size_t bytes, size_t *written))                                                             \
    X(cublasStatus_t, cublasLtMatmul,                                                              \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,       \
       cublasLtMatrixLayout_t layout_a, const void *b, cublasLtMatrixLayout_t layout_b,            \
       const void *beta, const void *c, cublasLtMatrixLayout_t layout_c, void *d,                  \
       cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algo, void *workspace,         \
       size_t workspace_bytes, cudaStream_t s))

#define F8_NCCL_SYMBOLS(X)                                                                         \
    X(ncclResult_t, ncclGetVersion, (int *version))                                                \
    X(const char *, ncclGetErrorString, (ncclResult_t result))                                     \
    X(const char *, ncclGetLastError, (ncclComm_t comm))                                           \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                          \
    X(ncclResult_t, ncclCommInitRankConfig,                                                        \
      (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))             \
    X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                           \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                            \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                              \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                \
    X(ncclResult_t, ncclAllGather,                                                                 \
      (const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,        \
       cudaStream_t s))                                                                            \
    X(ncclResult_t, ncclAllReduce,                                                                 \
      (const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,         \
       ncclComm_t comm, cudaStream_t s))                                                           \
    X(ncclResult_t, ncclReduceScatter,                                                             \
      (const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,         \
       ncclComm_t comm, cudaStream_t s))                                                           \
    X(ncclResult_t, ncclSend,                                                                      \
      (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
       cudaStream_t s))                                                                            \
    X(ncclResult_t, ncclRecv,                                                                      \
      (void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                \
       cudaStream_t s))                                                                            \
    X(ncclResult_t, ncclGroupStart, (void))                                                        \
    X(ncclResult_t, ncclGroupEnd, (void))

#define F8_NVML_SYMBOLS(X)                                                       \
    X(const char *, nvmlErrorString, (f8_nvml_return result))                    \
    X(f8_nvml_return, nvmlInit_v2, (void))                                       \
    X(f8_nvml_return, nvmlShutdown, (void))                                      \
    X(f8_nvml_return, nvmlSystemGetDriverVersion, (char *version, unsigned length))

/* ---- the tables, filled in the order of the names: f8_dynlib_symbols ---- */

#define F8_CUDA_API_FIELD(result, name, parameters) result(*name) parameters;
#define F8_CUDA_API_NAME(result, name, parameters)  #name,

typedef struct f8_cuda_api {
    F8_CUDA_SYMBOLS(F8_CUDA_API_FIELD)
} f8_cuda_api;
typedef struct f8_cuda_more_api {
    F8_CUDA_MORE_SYMBOLS(F8_CUDA_API_FIELD)
} f8_cuda_more_api;
typedef struct f8_nvrtc_api {
    F8_NVRTC_SYMBOLS(F8_CUDA_API_FIELD)
} f8_nvrtc_api;
typedef struct f8_cublaslt_api {
    F8_CUBLASLT_SYMBOLS(F8_CUDA_API_FIELD)
} f8_cublaslt_api;
typedef struct f8_nccl_api {
    F8_NCCL_SYMBOLS(F8_CUDA_API_FIELD)
} f8_nccl_api;
typedef struct f8_nvml_api {
    F8_NVML_SYMBOLS(F8_CUDA_API_FIELD)
} f8_nvml_api;

#endif
