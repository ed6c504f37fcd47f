/* Descriptors and the library's own calls: see cudnn.h. */
#include "tests/emulator/cudnn/cudnn.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool f8_emu_fails(const char *function, int *code); /* tests/emulator/common.c */

struct cudnnContext {
    cudaStream_t stream;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static descriptor *all;
static int64_t handles;
static _Thread_local char reason[256];

/* Every call begins so: takes the one lock, fails if it is asked to. */
#define ENTER()                                                                                    \
    int injected_ = CUDNN_STATUS_INTERNAL_ERROR;                                                   \
    if (f8_emu_fails(__func__, &injected_))                                                        \
        return emu_refuse(injected_, "asked to fail");                                             \
    reason[0] = 0;                                                                                 \
    pthread_mutex_lock(&mutex);                                                                    \
    __attribute__((cleanup(leave))) int entered_ = 0;                                              \
    (void)entered_

static void leave(int *entered)
{
    (void)entered;
    pthread_mutex_unlock(&mutex);
}

int emu_refuse(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return status;
}

/* ---- the library ---- */

size_t cudnnGetVersion(void)
{
    return (size_t)f8_emu_setting("FP8C_EMULATOR_CUDNN", 91900);
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status / 1000) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2: return "CUDNN_STATUS_BAD_PARAM";
    case 3: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4: return "CUDNN_STATUS_INTERNAL_ERROR";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

void cudnnGetLastErrorString(char *message, size_t room)
{
    snprintf(message, room, "%s", reason);
    reason[0] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    ENTER();
    if (!emu_sm())
        return emu_refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
    *handle = calloc(1, sizeof **handle);
    handles += *handle != NULL;
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    ENTER();
    free(handle);
    handles--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t s)
{
    ENTER();
    handle->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

int64_t f8_emulator_cudnn_count(void)
{
    pthread_mutex_lock(&mutex);
    int64_t n = handles;
    for (const descriptor *d = all; d; d = d->next)
        n++;
    pthread_mutex_unlock(&mutex);
    return n;
}

/* ---- attributes ---- */

/* What a descriptor of a type may hold: elements of a type, at most so many, needed to finalize. */
typedef struct rule {
    int of, name, type;
    int64_t most;
    bool needed;
} rule;

#define R(of, name, type, most, needed)                                                            \
    {                                                                                              \
        CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, most, needed        \
    }
static const rule rules[] = {
    R(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, true),
    R(TENSOR, TENSOR_DIMENSIONS, INT64, 4, true),
    R(TENSOR, TENSOR_STRIDES, INT64, 4, true),
    R(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, true),
    R(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, true),
    R(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
    R(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, false),
    R(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, true),
    R(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, 1, true),
    R(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, true),
    R(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, true),
    R(POINTWISE, POINTWISE_AXIS, INT64, 1, false),
    R(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, false),
    R(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1, false),
    R(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, true),
    R(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, true),
    R(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, true),
    R(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, 1, true),
    R(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 64, true),
    R(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, false),
    R(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, true),
    R(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, true),
    R(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1, false),
    R(ENGINE, ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, true),
    R(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1, true),
    R(ENGINE, ENGINE_DEVICEPROP, BACKEND_DESCRIPTOR, 1, false),
    R(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1, true),
    R(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64, 1, true),
    R(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, true),
    R(ENGINECFG, ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR, 44, false),
    R(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, true),
    R(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, false),
    R(EXECUTION_PLAN, EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1, false),
    R(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 64, true),
    R(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 64, true),
    R(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, false),
    R(DEVICEPROP, DEVICEPROP_JSON_REPRESENTATION, CHAR, 1 << 16, true),
};
#undef R
enum { N_RULES = sizeof rules / sizeof *rules };

static size_t element_size(int type)
{
    switch (type) {
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    default: return sizeof(int);
    }
}

static descriptor *find_any(const void *p)
{
    for (descriptor *d = all; d; d = d->next)
        if (d == p)
            return d;
    return NULL;
}

bool emu_lives(const void *p, int type)
{
    const descriptor *d = find_any(p);
    return d && d->final && d->type == type;
}

const attribute *emu_find(const descriptor *d, int name)
{
    for (const attribute *a = d->attributes; a; a = a->next)
        if (a->name == name)
            return a;
    return NULL;
}

int emu_int(const descriptor *d, int name)
{
    int v;
    memcpy(&v, emu_find(d, name)->data, sizeof v);
    return v;
}

int64_t emu_long(const descriptor *d, int name)
{
    int64_t v;
    memcpy(&v, emu_find(d, name)->data, sizeof v);
    return v;
}

bool emu_bool(const descriptor *d, int name)
{
    const attribute *a = emu_find(d, name);
    return a && a->data[0];
}

descriptor *emu_part(const descriptor *d, int name)
{
    descriptor *v = NULL;
    const attribute *a = emu_find(d, name);
    if (a && a->count)
        memcpy(&v, a->data, sizeof v);
    return v;
}

static void remove_attribute(descriptor *d, int name)
{
    for (attribute **p = &d->attributes; *p; p = &(*p)->next)
        if ((*p)->name == name) {
            attribute *a = *p;
            *p = a->next;
            free(a);
            return;
        }
}

int emu_set(descriptor *d, int name, int type, size_t size, int64_t count, const void *elements)
{
    remove_attribute(d, name);
    attribute *a = malloc(sizeof *a + size * (size_t)count);
    if (!a)
        return CUDNN_STATUS_INTERNAL_ERROR;
    *a = (attribute){d->attributes, name, type, count, size};
    memcpy(a->data, elements, size * (size_t)count);
    d->attributes = a;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- the backend API ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    ENTER();
    bool known = type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    for (int i = 0; i < N_RULES && !known; i++)
        known = rules[i].of == type;
    if (!known)
        return emu_refuse(CUDNN_STATUS_NOT_SUPPORTED, "no descriptor of type %d", type);
    descriptor *d = calloc(1, sizeof *d);
    if (!d)
        return CUDNN_STATUS_INTERNAL_ERROR;
    d->type = type;
    d->next = all;
    all = d;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t p)
{
    ENTER();
    for (descriptor **at = &all; *at; at = &(*at)->next)
        if (*at == p) {
            descriptor *d = *at;
            *at = d->next;
            while (d->attributes)
                remove_attribute(d, d->attributes->name);
            free(d);
            return CUDNN_STATUS_SUCCESS;
        }
    return emu_refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t p, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements)
{
    ENTER();
    descriptor *d = find_any(p);
    if (!d || d->final)
        return emu_refuse(CUDNN_STATUS_BAD_PARAM, d ? "finalized already" : "no such descriptor");
    for (int i = 0; i < N_RULES; i++) {
        const rule *r = &rules[i];
        if (r->of != d->type || r->name != name)
            continue;
        if (r->type != type || count < 1 || count > r->most || !elements)
            return emu_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: type %d, count %lld", name,
                              type, (long long)count);
        for (int64_t k = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && k < count; k++) {
            const descriptor *part = find_any(((void *const *)elements)[k]);
            if (!part || !part->final)
                return emu_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                  "attribute %d: descriptor %lld is not finalized", name,
                                  (long long)k);
        }
        return emu_set(d, name, type, element_size(type), count, elements);
    }
    return emu_refuse(CUDNN_STATUS_BAD_PARAM, "descriptor of type %d has no attribute %d", d->type,
                      name);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t p)
{
    ENTER();
    descriptor *d = find_any(p);
    if (!d || d->final)
        return emu_refuse(CUDNN_STATUS_BAD_PARAM, d ? "finalized already" : "no such descriptor");
    for (int i = 0; i < N_RULES; i++)
        if (rules[i].of == d->type && rules[i].needed && !emu_find(d, rules[i].name))
            return emu_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d is missing", rules[i].name);
    int rc = CUDNN_STATUS_SUCCESS;
    switch (d->type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: rc = emu_check_graph(d); break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: rc = emu_check_engine(d); break;
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: rc = emu_check_config(d); break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: rc = emu_check_plan(d); break;
    default: break;
    }
    d->final = rc == CUDNN_STATUS_SUCCESS;
    return rc;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t p, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room,
                                       int64_t *count, void *elements)
{
    ENTER();
    descriptor *d = find_any(p);
    if (!d || !d->final)
        return emu_refuse(d ? CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED : CUDNN_STATUS_BAD_PARAM,
                          "reading attribute %d", name);
    return emu_read(d, name, type, room, count, elements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    ENTER();
    if (!emu_lives(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) ||
        !emu_lives(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR))
        return emu_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or arguments");
    return emu_execute(handle->stream, plan, pack);
}
