/* cuDNN found at run time, and calls of its backend API that give a status. */
#ifndef F8_CUDNN_H
#define F8_CUDNN_H

#include "runtime/cuda/device.h"
#include "runtime/cuda/cudnn_api.h"
#include "runtime/base/dynlib.h"

/* 9.10's attention is wrong in known cases. */
enum { F8_CUDNN_OLDEST = 91100 };

typedef struct f8_cudnn {
    f8_cudnn_api api;
    int version; /* 91900 */
    int sm;      /* compute capability * 10 of the device */
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device; /* instead of a handle: a device that is only described */
} f8_cudnn;

/* Finds the library in README.md's order, for the open device. NVRTC is loaded before it, because
 * cuDNN looks for NVRTC by soname. F8_ERR_LIBRARY names every place that was searched. */
f8_status f8_cudnn_find(f8_cuda *cuda, f8_cudnn *out, f8_diag *diag);
/* Fills `out` from a loaded library, which outlives it. F8_ERR_LIBRARY if a function is missing or
 * the version is older than 9.11. Needs no device yet. */
f8_status f8_cudnn_open(const f8_dynlib *lib, int sm, f8_cudnn *out, f8_diag *diag);
/* Makes the handle, on the calling thread's current context; the same context is current in every
 * later call. F8_ERR_LIBRARY. */
f8_status f8_cudnn_start(f8_cudnn *c, f8_diag *diag);
/* Instead of f8_cudnn_start: prepares for a device that is not here, from cuDNN's own description
 * of it as JSON (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION of a device). Nothing can then be run.
 */
f8_status f8_cudnn_describe(f8_cudnn *c, const char *json, f8_diag *diag);
void f8_cudnn_close(f8_cudnn *c); /* after all that was prepared on it; zeroed is fine */

/* ---- calls: F8_ERR_UNSUPPORTED or F8_ERR_LIBRARY with the library's reason ---- */

typedef cudnnBackendDescriptor_t f8_cudnn_ref;

/* An attribute of a descriptor: `count` elements of `type`; none are set when count is 0. */
typedef struct f8_cudnn_attribute {
    int name, type;
    int64_t count;
    const void *elements;
} f8_cudnn_attribute;

/* Create, set and finalize. `what` is for the message. *out stays NULL on failure. */
f8_status f8_cudnn_make(const f8_cudnn *c, int type, const char *what, int n,
                        const f8_cudnn_attribute *attribute, f8_cudnn_ref *out, f8_diag *diag);
/* One to be filled by f8_cudnn_get. */
f8_status f8_cudnn_blank(const f8_cudnn *c, int type, f8_cudnn_ref *out, f8_diag *diag);
/* *count: elements there are, at most `room` of them written. */
f8_status f8_cudnn_get(const f8_cudnn *c, f8_cudnn_ref x, int name, int type, int64_t room,
                       int64_t *count, void *elements, f8_diag *diag);
void f8_cudnn_destroy(const f8_cudnn *c, f8_cudnn_ref *x); /* NULL stays NULL */
/* The status of a call that failed. */
f8_status f8_cudnn_refused(const f8_cudnn *c, cudnnStatus_t result, const char *what,
                           f8_diag *diag);

#endif
