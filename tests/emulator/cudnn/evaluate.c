/* Runs plans operation by operation, in double, and rounds every result to its tensor's type: see
 * cudnn.h. Device memory is host memory in the emulator. */
#include "tests/emulator/cudnn/cudnn.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGUMENTS = 24 };

/* What one Execute leaves on the stream. */
typedef struct work {
    const descriptor *plan;
    int64_t n, id[MAX_ARGUMENTS];
    void *at[MAX_ARGUMENTS];
    float value[MAX_ARGUMENTS]; /* of arguments in host memory: read when enqueued */
    unsigned char *workspace;
    int64_t workspace_bytes;
} work;

/* ---- tensors: dense [b, h, i, j] of doubles ---- */

typedef struct tensor {
    const descriptor *d;
    int64_t id, dim[4];
    double *x;
    bool result;
} tensor;

typedef struct tensors {
    const work *w;
    tensor t[64];
    int n;
} tensors;

static float round_bf16(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    if (!isnan(f))
        u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &u, 4);
    return f;
}

static double rounded(const tensor *t, double x)
{
    switch (emu_int(t->d, CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    case CUDNN_DATA_BFLOAT16: return (double)round_bf16(x);
    case CUDNN_DATA_FLOAT: return (double)(float)x;
    default: return x;
    }
}

static int64_t count(const tensor *t)
{
    return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}

static int64_t argument(const tensors *ts, int64_t id)
{
    for (int64_t i = 0; i < ts->w->n; i++)
        if (ts->w->id[i] == id)
            return i;
    return -1;
}

/* The address of element n of a real tensor. */
static unsigned char *address(const tensors *ts, const tensor *t, int64_t n, size_t size)
{
    const int64_t *s = (const int64_t *)emu_find(t->d, CUDNN_ATTR_TENSOR_STRIDES)->data;
    int64_t at = 0;
    for (int k = 3; k >= 0; k--) {
        at += n % t->dim[k] * s[k];
        n /= t->dim[k];
    }
    return (unsigned char *)ts->w->at[argument(ts, t->id)] + (size_t)at * size;
}

static bool is_real(const tensor *t)
{
    return !emu_bool(t->d, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
           !emu_bool(t->d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
}

static double load(const tensors *ts, const tensor *t, int64_t n)
{
    const size_t size = emu_int(t->d, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16 ? 2 : 4;
    if (emu_bool(t->d, CUDNN_ATTR_TENSOR_IS_BY_VALUE))
        return (double)ts->w->value[argument(ts, t->id)];
    uint32_t u = 0;
    memcpy((char *)&u + (4 - size), address(ts, t, n, size), size); /* bf16: the upper half */
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}

static void store(const tensors *ts, const tensor *t, int64_t n)
{
    const size_t size = emu_int(t->d, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16 ? 2 : 4;
    float f = (float)t->x[n];
    memcpy(address(ts, t, n, size), (char *)&f + (4 - size), size);
}

/* By unique id: the tensor is the same whichever descriptor names it. NULL: none left or no memory.
 */
static tensor *get(tensors *ts, const descriptor *d, bool result)
{
    const int64_t id = emu_long(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    for (int i = 0; i < ts->n; i++)
        if (ts->t[i].id == id)
            return &ts->t[i];
    if (ts->n == 64)
        return NULL;
    tensor *t = &ts->t[ts->n];
    *t = (tensor){.d = d, .id = id, .result = result};
    memcpy(t->dim, emu_find(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->data, sizeof t->dim);
    t->x = malloc((size_t)count(t) * sizeof *t->x);
    if (!t->x)
        return NULL;
    ts->n++;
    for (int64_t n = 0; !result && n < count(t); n++)
        t->x[n] = load(ts, t, n);
    return t;
}

static int64_t index_of(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return ((b * t->dim[1] + h) * t->dim[2] + i) * t->dim[3] + j;
}

/* An element with dimensions of size 1 broadcast. */
static double at(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return t->x[index_of(t, t->dim[0] > 1 ? b : 0, t->dim[1] > 1 ? h : 0, t->dim[2] > 1 ? i : 0,
                         t->dim[3] > 1 ? j : 0)];
}

/* ---- operations: CUDA_ERROR_* ---- */

/* As a matmul's operand: what is only virtual reaches the tensor cores in bf16. */
static double operand(const tensor *t, int64_t n)
{
    return is_real(t) ? t->x[n] : (double)round_bf16(t->x[n]);
}

static void matmul(const tensor *a, const tensor *b, tensor *c)
{
    const int64_t group = c->dim[1] / b->dim[1];
    for (int64_t n = 0; n < count(c); n++) {
        const int64_t j = n % c->dim[3], i = n / c->dim[3] % c->dim[2];
        const int64_t h = n / c->dim[3] / c->dim[2] % c->dim[1],
                      bt = n / c->dim[3] / c->dim[2] / c->dim[1];
        double sum = 0;
        for (int64_t k = 0; k < a->dim[3]; k++)
            sum +=
                operand(a, index_of(a, bt, h, i, k)) * operand(b, index_of(b, bt, h / group, k, j));
        c->x[n] = rounded(c, sum);
    }
}

static double pointwise_value(int mode, int64_t axis, const int64_t *place, double x, double b,
                              bool t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t ? x : b;
    case CUDNN_POINTWISE_GEN_INDEX: return (double)place[axis];
    default: return NAN;
    }
}

static int pointwise(tensors *ts, const descriptor *op)
{
    const descriptor *how = emu_part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const descriptor *bd = emu_part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const descriptor *td = emu_part(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const tensor *x = get(ts, emu_part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), false);
    const tensor *b = bd ? get(ts, bd, false) : x, *t = td ? get(ts, td, false) : x;
    tensor *y = get(ts, emu_part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), true);
    if (!x || !b || !t || !y)
        return 2; /* out of memory */
    const int mode = emu_int(how, CUDNN_ATTR_POINTWISE_MODE);
    const int64_t axis =
        emu_find(how, CUDNN_ATTR_POINTWISE_AXIS) ? emu_long(how, CUDNN_ATTR_POINTWISE_AXIS) : 0;
    for (int64_t n = 0; n < count(y); n++) {
        int64_t p[4], rest = n;
        for (int k = 3; k >= 0; k--) {
            p[k] = rest % y->dim[k];
            rest /= y->dim[k];
        }
        y->x[n] = rounded(y, pointwise_value(mode, axis, p, at(x, p[0], p[1], p[2], p[3]),
                                             at(b, p[0], p[1], p[2], p[3]),
                                             at(t, p[0], p[1], p[2], p[3]) != 0));
    }
    return 0;
}

/* Axes that shrink are reduced: to 1 whole, else by groups of neighbours. */
static void reduce(const tensor *x, tensor *y, int mode)
{
    for (int64_t n = 0; n < count(y); n++)
        y->x[n] = mode == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
    for (int64_t n = 0; n < count(x); n++) {
        int64_t p[4], rest = n;
        for (int k = 3; k >= 0; k--) {
            p[k] = rest % x->dim[k] * y->dim[k] / x->dim[k];
            rest /= x->dim[k];
        }
        double *to = &y->x[index_of(y, p[0], p[1], p[2], p[3])];
        *to = mode == CUDNN_REDUCE_TENSOR_MAX ? (x->x[n] > *to || isnan(x->x[n]) ? x->x[n] : *to)
                                              : *to + x->x[n];
    }
    for (int64_t n = 0; n < count(y); n++)
        y->x[n] = rounded(y, y->x[n]);
}

static int run_op(tensors *ts, const descriptor *op)
{
    const descriptor *part[3] = {0};
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(ts, op);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        part[0] = emu_part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
        part[1] = emu_part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
        part[2] = emu_part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        part[0] = part[1] = emu_part(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
        part[2] = emu_part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        break;
    default:
        part[0] = part[1] = emu_part(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
        part[2] = emu_part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
        break;
    }
    const tensor *a = get(ts, part[0], false), *b = get(ts, part[1], false);
    tensor *c = get(ts, part[2], true);
    if (!a || !b || !c)
        return 2;
    if (op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        matmul(a, b, c);
    } else if (op->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        reduce(a, c,
               emu_int(emu_part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                       CUDNN_ATTR_REDUCTION_OPERATOR));
    } else { /* the last two axes exchanged */
        for (int64_t n = 0; n < count(c); n++) {
            const int64_t j = n % c->dim[3], i = n / c->dim[3] % c->dim[2],
                          bh = n / c->dim[3] / c->dim[2];
            c->x[n] = rounded(c, a->x[(bh * a->dim[2] + j) * a->dim[3] + i]);
        }
    }
    return 0;
}

/* ---- plans ---- */

static const descriptor *graph_of(const descriptor *plan)
{
    const descriptor *config = emu_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return emu_part(emu_part(config, CUDNN_ATTR_ENGINECFG_ENGINE),
                    CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

/* Real results reach memory in the end; the workspace is written all over. */
static int run(const void *data)
{
    const work *w = data;
    tensors ts = {.w = w};
    const attribute *ops = emu_find(graph_of(w->plan), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    int error = 0;
    memset(w->workspace, 0xff, (size_t)w->workspace_bytes);
    for (int64_t i = 0; i < ops->count && !error; i++) {
        const descriptor *op = ((const descriptor *const *)ops->data)[i];
        error = run_op(&ts, op);
    }
    for (int i = 0; i < ts.n; i++)
        if (!error && ts.t[i].result && is_real(&ts.t[i]))
            for (int64_t n = 0; n < count(&ts.t[i]); n++)
                store(&ts, &ts.t[i], n);
    for (int i = 0; i < ts.n; i++)
        free(ts.t[i].x);
    return error;
}

typedef int enqueue_function(cudaStream_t s, int (*work)(const void *), const void *data,
                             size_t bytes);
typedef int is_device_function(const void *p, size_t bytes);

/* Every real tensor is there, whole, in device memory. */
static int check_arguments(const work *w, is_device_function *is_device)
{
    const attribute *ops = emu_find(graph_of(w->plan), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (int64_t i = 0; i < ops->count; i++)
        for (const attribute *a = ((const descriptor *const *)ops->data)[i]->attributes; a;
             a = a->next) {
            const descriptor *t = emu_part(((const descriptor *const *)ops->data)[i], a->name);
            if (t->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR ||
                emu_bool(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL))
                continue;
            const int64_t *dim = (const int64_t *)emu_find(t, CUDNN_ATTR_TENSOR_DIMENSIONS)->data;
            const int64_t *stride = (const int64_t *)emu_find(t, CUDNN_ATTR_TENSOR_STRIDES)->data;
            int64_t last = 0, k = 0;
            for (int x = 0; x < 4; x++)
                last += (dim[x] - 1) * stride[x];
            const int64_t size =
                emu_int(t, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16 ? 2 : 4;
            while (k < w->n && w->id[k] != emu_long(t, CUDNN_ATTR_TENSOR_UNIQUE_ID))
                k++;
            if (k == w->n)
                return emu_refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has no pointer");
            if (!emu_bool(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
                (!is_device(w->at[k], (size_t)((last + 1) * size)) || (uintptr_t)w->at[k] % 16))
                return emu_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld is not device memory",
                                  (long long)w->id[k]);
        }
    return CUDNN_STATUS_SUCCESS;
}

int emu_execute(cudaStream_t s, const descriptor *plan, const descriptor *pack)
{
    const attribute *ids = emu_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const attribute *at = emu_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const attribute *workspace = emu_find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    work w = {.plan = plan, .n = ids->count, .workspace_bytes = emu_plan_workspace(plan)};
    if (ids->count != at->count || ids->count > MAX_ARGUMENTS || !workspace)
        return emu_refuse(CUDNN_STATUS_BAD_PARAM, "arguments");
    memcpy(w.id, ids->data, (size_t)ids->count * 8);
    memcpy(w.at, at->data, (size_t)at->count * 8);
    memcpy(&w.workspace, workspace->data, sizeof w.workspace);

    void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    enqueue_function *enqueue = NULL;
    is_device_function *is_device = NULL;
    if (lib) {
        *(void **)&enqueue = dlsym(lib, "f8_emulator_enqueue");
        *(void **)&is_device = dlsym(lib, "f8_emulator_is_device");
        dlclose(lib);
    }
    if (!enqueue || !is_device)
        return emu_refuse(CUDNN_STATUS_EXECUTION_FAILED, "there is no driver");
    if (!is_device(w.workspace, (size_t)w.workspace_bytes))
        return emu_refuse(CUDNN_STATUS_BAD_PARAM, "the workspace is not device memory");
    int rc = check_arguments(&w, is_device);
    if (rc)
        return rc;
    for (int64_t i = 0; i < w.n; i++)
        if (!is_device(w.at[i], 4))
            memcpy(&w.value[i], w.at[i], 4);
    rc = enqueue(s, run, &w, sizeof w);
    return rc ? emu_refuse(CUDNN_STATUS_EXECUTION_FAILED, "the driver says %d", rc)
              : CUDNN_STATUS_SUCCESS;
}
