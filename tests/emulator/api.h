/* What the stand-ins know of the libraries' interfaces: the product's declarations, and types and
 * values that the product does not need. A wrong value that both share would go unnoticed on the
 * emulator, so check_cuda_libraries.c compares all of them with the toolkit's headers, where they
 * are installed. */
#ifndef F8_EMU_API_H
#define F8_EMU_API_H

#include "runtime/cuda/api.h"

/* ---- values: X(name, value) ---- */

#define F8_EMU_CUDA_VALUES(X)                                       \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                            \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                               \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                         \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                           \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902)                         \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                      \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                      \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910)                    \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                 \
    X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 2)                       \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5)                        \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)           \
    X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                            \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39)       \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81) \
    X(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 106)       \
    X(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 111)    \
    X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                   \
    X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                             \
    X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                           \
    X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)

#define F8_EMU_NVRTC_VALUES(X)                 \
    X(NVRTC_ERROR_PROGRAM_CREATION_FAILURE, 2)

#define F8_EMU_CUBLASLT_VALUES(X)                                                                  \
    X(CUBLASLT_MATRIX_LAYOUT_ORDER, 1)                                                             \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1)

/* ---- types ---- */

#ifndef F8_CUDA_API_TOOLKIT
enum { F8_EMU_CUDA_VALUES(F8_CUDA_API_VALUE) };
enum { F8_EMU_NVRTC_VALUES(F8_CUDA_API_VALUE) };
enum { F8_EMU_CUBLASLT_VALUES(F8_CUDA_API_VALUE) };
#endif

/* Exported functions have the libraries' own prototypes. */
#define F8_EMU_PROTOTYPE(result, name, parameters) result name parameters;

#endif
