/* Types and values of the libraries that are stood in for: facts of their interfaces, under their own
 * names, more of them than the product uses; then the product's tables of functions, which give the
 * prototypes. */
#ifndef F8_EMU_API_H
#define F8_EMU_API_H

#include <stddef.h>
#include <stdint.h>

/* ---- the driver ---- */

#define F8_EMU_ERRORS(X)                             \
    X(CUDA_SUCCESS, 0)                               \
    X(CUDA_ERROR_INVALID_VALUE, 1)                   \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                   \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                 \
    X(CUDA_ERROR_NO_DEVICE, 100)                     \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                \
    X(CUDA_ERROR_INVALID_IMAGE, 200)                 \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)               \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)             \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)             \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                \
    X(CUDA_ERROR_NOT_FOUND, 500)                     \
    X(CUDA_ERROR_NOT_READY, 600)                     \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)               \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)       \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)          \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)            \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                 \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                 \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)    \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)    \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)       \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910)     \
    X(CUDA_ERROR_UNKNOWN, 999)

#define F8_EMU_VALUE(name, value) name = value,
enum { F8_EMU_ERRORS(F8_EMU_VALUE) };

enum { /* CU_DEVICE_ATTRIBUTE_* */
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111
};
enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
};
enum { CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2, CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_MODE_RELAXED
};
enum {
    CU_STREAM_CAPTURE_STATUS_NONE,
    CU_STREAM_CAPTURE_STATUS_ACTIVE,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED
};

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

/* ---- NVRTC ---- */

enum {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_INTERNAL_ERROR = 11
};
typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

/* ---- cuBLASLt ---- */

#define F8_EMU_CUBLAS_STATUSES(X)       \
    X(CUBLAS_STATUS_SUCCESS, 0)          \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)  \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)     \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)    \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8)    \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13) \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14)  \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)

enum { F8_EMU_CUBLAS_STATUSES(F8_EMU_VALUE) };
enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum { CUBLAS_COMPUTE_32F = 68 };
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14, CUDA_R_8F_E4M3 = 28, CUDA_R_8F_E5M2 = 29 };
enum {
    CUBLASLT_MATRIX_LAYOUT_TYPE = 0,
    CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
    CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
    CUBLASLT_MATRIX_LAYOUT_COLS = 3,
    CUBLASLT_MATRIX_LAYOUT_LD = 4,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5
};
enum {
    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_TRANSC = 5,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
    CUBLASLT_MATMUL_DESC_C_SCALE_POINTER = 19,
    CUBLASLT_MATMUL_DESC_D_SCALE_POINTER = 20,
    CUBLASLT_MATMUL_DESC_AMAX_D_POINTER = 21,
    CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
    CUBLASLT_MATMUL_DESC_A_SCALE_MODE = 31,
    CUBLASLT_MATMUL_DESC_B_SCALE_MODE = 32
};
enum {
    CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F = 0,
    CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 = 2,
    CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F = 3,
    CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F = 4,
    CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F = 5
};
enum {
    CUBLASLT_REDUCTION_SCHEME_NONE = 0,
    CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2
};
enum { CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4 };
enum {
    CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0,
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
    CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT = 9,
    CUBLASLT_MATMUL_PREF_IMPL_MASK = 12
};
enum {
    CUBLASLT_ALGO_CONFIG_ID = 0,
    CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
    CUBLASLT_ALGO_CONFIG_STAGES_ID = 6
};

typedef int cublasStatus_t, cublasComputeType_t, cudaDataType, cublasLtMatmulDescAttributes_t,
    cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatmulAlgoConfigAttributes_t;
typedef CUstream cudaStream_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct f8_emu_matmul *cublasLtMatmulDesc_t;
typedef struct f8_emu_layout *cublasLtMatrixLayout_t;
typedef struct f8_emu_preference *cublasLtMatmulPreference_t;
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

typedef int ncclResult_t;

#define F8_CUDA_API_TOOLKIT
#include "runtime/cuda_api.h"

/* Exported functions have the libraries' own prototypes. */
#define F8_EMU_PROTOTYPE(result, name, parameters) result name parameters;

#endif
