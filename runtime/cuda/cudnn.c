/* cuDNN found at run time: see cudnn.h. */
#include "runtime/cuda/cudnn.h"

#include <stdio.h>
#include <string.h>

#include "runtime/cuda/internal.h"

/* ---- calls ---- */

f8_status f8_cudnn_refused(const f8_cudnn *c, cudnnStatus_t result, const char *what, f8_diag *diag)
{
    char reason[512] = "";
    c->api.cudnnGetLastErrorString(reason, sizeof reason);
    reason[sizeof reason - 1] = 0;
    bool unsupported =
        result / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000; /* thousands: the category */
    return f8_fail(diag, unsupported ? F8_ERR_UNSUPPORTED : F8_ERR_LIBRARY, F8_NOWHERE,
                   "cuDNN: %s: %s%s%s", what, c->api.cudnnGetErrorString(result),
                   *reason ? ": " : "", reason);
}

void f8_cudnn_destroy(const f8_cudnn *c, f8_cudnn_ref *x)
{
    if (*x)
        c->api.cudnnBackendDestroyDescriptor(*x);
    *x = NULL;
}

f8_status f8_cudnn_blank(const f8_cudnn *c, int type, f8_cudnn_ref *out, f8_diag *diag)
{
    char what[48];
    *out = NULL;
    int rc = c->api.cudnnBackendCreateDescriptor(type, out);
    if (!rc)
        return F8_OK;
    *out = NULL;
    snprintf(what, sizeof what, "a descriptor of type %d", type);
    return f8_cudnn_refused(c, rc, what, diag);
}

f8_status f8_cudnn_make(const f8_cudnn *c, int type, const char *what, int n,
                        const f8_cudnn_attribute *attribute, f8_cudnn_ref *out, f8_diag *diag)
{
    char which[80];
    F8_TRY(f8_cudnn_blank(c, type, out, diag));
    int rc = 0;
    for (int i = 0; i < n && !rc; i++) {
        const f8_cudnn_attribute *a = &attribute[i];
        if (a->count)
            rc = c->api.cudnnBackendSetAttribute(*out, a->name, a->type, a->count, a->elements);
        snprintf(which, sizeof which, "%s, attribute %d", what, a->name);
    }
    if (!rc) {
        rc = c->api.cudnnBackendFinalize(*out);
        snprintf(which, sizeof which, "%s", what);
    }
    if (!rc)
        return F8_OK;
    f8_status s = f8_cudnn_refused(c, rc, which, diag);
    f8_cudnn_destroy(c, out);
    return s;
}

f8_status f8_cudnn_get(const f8_cudnn *c, f8_cudnn_ref x, int name, int type, int64_t room,
                       int64_t *count, void *elements, f8_diag *diag)
{
    char what[48];
    int rc = c->api.cudnnBackendGetAttribute(x, name, type, room, count, elements);
    snprintf(what, sizeof what, "reading attribute %d", name);
    return rc ? f8_cudnn_refused(c, rc, what, diag) : F8_OK;
}

/* ---- the library ---- */

f8_status f8_cudnn_open(const f8_dynlib *lib, int sm, f8_cudnn *out, f8_diag *diag)
{
    static const char *const names[] = {F8_CUDNN_SYMBOLS(F8_CUDA_API_NAME)};
    *out = (f8_cudnn){.sm = sm};
    F8_TRY(f8_dynlib_symbols(lib, names, sizeof names / sizeof *names, &out->api, diag));
    int v = out->version = (int)out->api.cudnnGetVersion();
    if (v < F8_CUDNN_OLDEST)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                       "cuDNN %d.%d.%d is too old for attention: 9.11 or later is needed",
                       v / 10000, v / 100 % 100, v % 100);
    return F8_OK;
}

f8_status f8_cudnn_find(f8_cuda *cuda, f8_cudnn *out, f8_diag *diag)
{
    f8_cuda_facts facts;
    *out = (f8_cudnn){0};
    F8_TRY(f8_cuda_device_facts(cuda, &facts, diag));
    F8_TRY(f8_cuda_load(cuda, F8_CUDA_NVRTC, diag));
    F8_TRY(f8_cuda_load(cuda, F8_CUDA_CUDNN, diag));
    return f8_cudnn_open(&cuda->library[F8_CUDA_CUDNN].file, facts.sm, out, diag);
}

f8_status f8_cudnn_start(f8_cudnn *c, f8_diag *diag)
{
    int rc = c->api.cudnnCreate(&c->handle);
    if (!rc)
        return F8_OK;
    c->handle = NULL;
    return f8_cudnn_refused(c, rc, "cudnnCreate", diag);
}

f8_status f8_cudnn_describe(f8_cudnn *c, const char *json, f8_diag *diag)
{
    const f8_cudnn_attribute text = {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                     (int64_t)strlen(json), json};
    return f8_cudnn_make(c, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a device's description", 1, &text,
                         &c->device, diag);
}

void f8_cudnn_close(f8_cudnn *c)
{
    f8_cudnn_destroy(c, &c->device);
    if (c->handle)
        c->api.cudnnDestroy(c->handle);
    *c = (f8_cudnn){0};
}
