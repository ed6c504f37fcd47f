/* Inside the CUDA runtime: the libraries' tables, the device's context, how calls are checked. */
#ifndef F8_CUDA_INTERNAL_H
#define F8_CUDA_INTERNAL_H

#include <pthread.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/cudnn_api.h"
#include "runtime/base/dynlib.h"

/* X(enumerator, name for people, sonames): newest first. */
#define F8_CUDA_LIBRARIES(X)                                                                       \
    X(F8_CUDA_DRIVER, "the CUDA driver", "libcuda.so.1")                                           \
    X(F8_CUDA_NVRTC, "NVRTC", "libnvrtc.so.13", "libnvrtc.so.12")                                  \
    X(F8_CUDA_CUBLASLT, "cuBLASLt", "libcublasLt.so.13", "libcublasLt.so.12")                      \
    X(F8_CUDA_CUDNN, "cuDNN", "libcudnn.so.9")                                                     \
    X(F8_CUDA_NCCL, "NCCL", "libnccl.so.2")                                                        \
    X(F8_CUDA_NVML, "NVML", "libnvidia-ml.so.1")

typedef enum f8_cuda_library_id {
#define X(e, name, ...) e,
    F8_CUDA_LIBRARIES(X)
#undef X
        F8_CUDA_N_LIBRARIES
} f8_cuda_library_id;

/* A piece that is made ready once: later calls return the first answer. */
typedef struct f8_cuda_once {
    bool done;
    f8_status status;
    const char *why; /* the message when status is not F8_OK */
} f8_cuda_once;

struct f8_cuda {
    f8_allocator allocator;
    f8_arena memory;      /* paths, messages; under the lock */
    pthread_mutex_t lock; /* guards everything that is loaded at first use */
    const char *const *folders;

    struct {
        f8_cuda_once once;
        f8_dynlib file;
        char version[80];
        int major;
    } library[F8_CUDA_N_LIBRARIES];
    f8_cuda_api cu;
    f8_cuda_more_api more; /* each is NULL where the driver has it not */
    f8_nvrtc_api nvrtc;
    f8_cublaslt_api lt;
    f8_cudnn_api cudnn;
    f8_nccl_api nccl;
    f8_nvml_api nvml;
    int nvrtc_version; /* 13000 */

    f8_cuda_once device_once, handle_once;
    CUdevice device;
    CUcontext context; /* the primary one, retained */
    cublasLtHandle_t handle;
    f8_cuda_facts facts; /* memory_free aside */
};

/* The folders that are searched, in README.md's order, in the arena; NULL-terminated. NULL: out of
 * memory. */
const char *const *f8_cuda_folders(const f8_cuda_paths *paths, f8_arena *arena);

/* Load a library and fill its table, once. */
f8_status f8_cuda_load(f8_cuda *cuda, f8_cuda_library_id id, f8_diag *diag);
/* F8_ERR_LIBRARY if this library is here but is of a newer major version of CUDA than the driver
 * serves: its first call would fail with a text that does not say so. The driver is already loaded.
 */
f8_status f8_cuda_served(f8_cuda *cuda, f8_cuda_library_id id, f8_diag *diag);
/* cuBLASLt with its handle; after f8_cuda_device. */
f8_status f8_cuda_cublaslt(f8_cuda *cuda, f8_diag *diag);

/* F8_OK, or F8_ERR_LIBRARY (F8_ERR_MEMORY if the device's memory is full) with "CALL: NAME (text)".
 * `call` may name the step: "cuLaunchKernel of 'ln_1' in micro_step". */
f8_status f8_cuda_check(const f8_cuda *cuda, CUresult result, f8_diag *diag, const char *call, ...)
    __attribute__((format(printf, 4, 5)));
f8_status f8_cublaslt_check(const f8_cuda *cuda, cublasStatus_t result, f8_diag *diag,
                            const char *call, ...) __attribute__((format(printf, 4, 5)));

/* f8_cuda_enter makes the device's context current; f8_cuda_leave restores the thread's own. Every
 * call that needs a context stands between the two, so the embedder's context is not disturbed. */
f8_status f8_cuda_enter(f8_cuda *cuda, f8_diag *diag);
void f8_cuda_leave(f8_cuda *cuda);

#endif
