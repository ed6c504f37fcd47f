/* Attention by cuDNN's backend API: see cudnn_attention.h. */
#include "runtime/cuda/cudnn_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/type.h"

enum {
    MAX_CONFIGS = 16, /* of the library's list */
    MAX_NOTES = 32,
    MAX_DESCRIPTORS = F8_CUDNN_MAX_TENSORS + 2 * F8_CUDNN_MAX_OPS + F8_CUDNN_MAX_KNOBS + 8,
    ALIGN = 256
};

struct f8_cudnn_attention {
    f8_allocator allocator;
    const f8_cudnn *c;
    f8_cudnn_attention_desc desc;
    f8_cudnn_graph graph;
    f8_cudnn_ref
        kept[MAX_DESCRIPTORS]; /* the graph's and the engine's; the plan may refer to them */
    int n_kept;
    f8_cudnn_ref tensor[F8_CUDNN_MAX_TENSORS], operations, plan; /* among the kept */
    f8_cudnn_engine engine;
    int64_t plan_workspace;
    float value[F8_CUDNN_FIXED]; /* of the graph's host scalars */
};

/* ---- what it takes ---- */

static f8_status no(f8_diag *d, const char *reason)
{
    return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE, "cuDNN attention: %s", reason);
}

f8_status f8_cudnn_attention_supports(int version, int sm, const f8_cudnn_attention_desc *x,
                                      f8_diag *diag)
{
    const int64_t tokens[] = {x->stride.q,    x->stride.k,  x->stride.v,  x->stride.o,
                              x->stride.dout, x->stride.dq, x->stride.dk, x->stride.dv};
    const bool kv[] = {false, true, true, false, false, false, true, true};
    if (version < F8_CUDNN_OLDEST)
        return no(diag, "cuDNN 9.11 or later is needed");
    if (sm < 80)
        return no(diag, "compute capability 8.0 or later is needed");
    if (x->B < 1 || x->T < 1 || x->H < 1 || x->Hkv < 1 || x->D < 1 || x->H % x->Hkv)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "cuDNN attention: sizes are out of range");
    if (x->D % 8)
        return no(diag, "a head's size must be a multiple of 8");
    if (x->D > (sm / 10 == 9 ? 256 : 128))
        return no(diag, sm / 10 == 9 ? "a head's size may be at most 256 on this device"
                                     : "a head's size may be at most 128 on this device");
    for (int i = 0; i < (x->backward ? 8 : 4); i++) {
        if (tokens[i] < (kv[i] ? x->Hkv : x->H) * x->D)
            return f8_fail(
                diag, F8_ERR_INPUT, F8_NOWHERE, "cuDNN attention: tokens overlap");
        if (tokens[i] % 8)
            return no(diag, "the stride between tokens must be a multiple of 8 elements");
    }
    if (!x->backward)
        return F8_OK;
    if (x->T == 1)
        return no(diag, "backward wants at least two tokens");
    if (version <= 91500 && x->T % 128)
        return no(diag, "backward of cuDNN 9.15.0 and before wants the number of tokens to be a "
                        "multiple of 128");
    if (sm / 10 == 10 && version < 91800)
        return no(diag, "backward on compute capability 10 is reproducible from cuDNN 9.18 only");
    return F8_OK;
}

/* ---- the graph as descriptors ---- */

#define ATTRIBUTE(name, type, value)                                                               \
    {                                                                                              \
        CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, &(value)                                          \
    }
#define PART(name, ref) ATTRIBUTE(name, BACKEND_DESCRIPTOR, ref)
#define MAKE(type, what, attributes, out)                                                          \
    make(a, CUDNN_BACKEND_##type##_DESCRIPTOR, what,                                               \
         (int)(sizeof attributes / sizeof *attributes), attributes, out, diag)

static f8_status make(f8_cudnn_attention *a, int type, const char *what, int n,
                      const f8_cudnn_attribute *attribute, f8_cudnn_ref *out, f8_diag *diag)
{
    if (a->n_kept == MAX_DESCRIPTORS)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "cuDNN attention: too many descriptors");
    F8_TRY(f8_cudnn_make(a->c, type, what, n, attribute, out, diag));
    a->kept[a->n_kept++] = *out;
    return F8_OK;
}

static f8_status make_tensor(f8_cudnn_attention *a, int at, f8_diag *diag)
{
    const f8_cudnn_tensor *t = &a->graph.tensor[at];
    const int64_t id = at + 1, alignment = 16;
    const bool is_virtual = !t->real && !t->value;
    const f8_cudnn_attribute tensor[] = {
        ATTRIBUTE(TENSOR_DATA_TYPE, DATA_TYPE, t->type),
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dim},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->stride},
        ATTRIBUTE(TENSOR_UNIQUE_ID, INT64, id),
        ATTRIBUTE(TENSOR_BYTE_ALIGNMENT, INT64, alignment),
        ATTRIBUTE(TENSOR_IS_VIRTUAL, BOOLEAN, is_virtual),
        ATTRIBUTE(TENSOR_IS_BY_VALUE, BOOLEAN, t->value),
    };
    return t->used ? MAKE(TENSOR, "a tensor", tensor, &a->tensor[at]) : F8_OK;
}

static f8_status make_matmul(f8_cudnn_attention *a, const f8_cudnn_op *o, f8_cudnn_ref *out,
                             f8_diag *diag)
{
    f8_cudnn_ref how;
    const f8_cudnn_attribute matmul[] = {ATTRIBUTE(MATMUL_COMP_TYPE, DATA_TYPE, o->compute)};
    const f8_cudnn_attribute operation[] = {PART(OPERATION_MATMUL_DESC, how),
                                            PART(OPERATION_MATMUL_ADESC, a->tensor[o->in[0]]),
                                            PART(OPERATION_MATMUL_BDESC, a->tensor[o->in[1]]),
                                            PART(OPERATION_MATMUL_CDESC, a->tensor[o->out])};
    F8_TRY(MAKE(MATMUL, "a matmul", matmul, &how));
    return MAKE(OPERATION_MATMUL, "a matmul", operation, out);
}

static f8_status make_pointwise(f8_cudnn_attention *a, const f8_cudnn_op *o, f8_cudnn_ref *out,
                                f8_diag *diag)
{
    f8_cudnn_ref how;
    f8_cudnn_attribute pointwise[] = {ATTRIBUTE(POINTWISE_MODE, POINTWISE_MODE, o->mode),
                                      ATTRIBUTE(POINTWISE_MATH_PREC, DATA_TYPE, o->compute),
                                      ATTRIBUTE(POINTWISE_AXIS, INT64, o->axis)};
    f8_cudnn_attribute operation[] = {PART(OPERATION_POINTWISE_PW_DESCRIPTOR, how),
                                      PART(OPERATION_POINTWISE_YDESC, a->tensor[o->out]),
                                      PART(OPERATION_POINTWISE_XDESC, a->tensor[o->in[0]]),
                                      PART(OPERATION_POINTWISE_BDESC, a->tensor[o->in[1]]),
                                      PART(OPERATION_POINTWISE_TDESC, a->tensor[o->in[2]])};
    pointwise[2].count = o->mode == CUDNN_POINTWISE_GEN_INDEX;
    operation[3].count = o->n_in > 1;
    operation[4].count = o->n_in > 2;
    F8_TRY(MAKE(POINTWISE, "a pointwise operation", pointwise, &how));
    return MAKE(OPERATION_POINTWISE, "a pointwise operation", operation, out);
}

static f8_status make_reduction(f8_cudnn_attention *a, const f8_cudnn_op *o, f8_cudnn_ref *out,
                                f8_diag *diag)
{
    f8_cudnn_ref how;
    const f8_cudnn_attribute reduction[] = {
        ATTRIBUTE(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, o->mode),
        ATTRIBUTE(REDUCTION_COMP_TYPE, DATA_TYPE, o->compute)};
    const f8_cudnn_attribute operation[] = {PART(OPERATION_REDUCTION_DESC, how),
                                            PART(OPERATION_REDUCTION_XDESC, a->tensor[o->in[0]]),
                                            PART(OPERATION_REDUCTION_YDESC, a->tensor[o->out])};
    F8_TRY(MAKE(REDUCTION, "a reduction", reduction, &how));
    return MAKE(OPERATION_REDUCTION, "a reduction", operation, out);
}

static f8_status make_reshape(f8_cudnn_attention *a, const f8_cudnn_op *o, f8_cudnn_ref *out,
                              f8_diag *diag)
{
    const f8_cudnn_attribute operation[] = {PART(OPERATION_RESHAPE_XDESC, a->tensor[o->in[0]]),
                                            PART(OPERATION_RESHAPE_YDESC, a->tensor[o->out])};
    return MAKE(OPERATION_RESHAPE, "a reshape", operation, out);
}

static f8_status make_operations(f8_cudnn_attention *a, f8_diag *diag)
{
    const f8_cudnn *c = a->c;
    const f8_cudnn_graph *g = &a->graph;
    f8_cudnn_ref op[F8_CUDNN_MAX_OPS];
    for (int i = 0; i < g->n_tensors; i++)
        F8_TRY(make_tensor(a, i, diag));
    for (int i = 0; i < g->n_ops; i++)
        switch (g->op[i].kind) {
        case F8_CUDNN_MATMUL: F8_TRY(make_matmul(a, &g->op[i], &op[i], diag)); break;
        case F8_CUDNN_POINTWISE: F8_TRY(make_pointwise(a, &g->op[i], &op[i], diag)); break;
        case F8_CUDNN_REDUCTION: F8_TRY(make_reduction(a, &g->op[i], &op[i], diag)); break;
        case F8_CUDNN_RESHAPE: F8_TRY(make_reshape(a, &g->op[i], &op[i], diag)); break;
        }
    const f8_cudnn_attribute graph[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, op},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, c->handle != NULL, &c->handle}};
    return MAKE(OPERATIONGRAPH, "the graph", graph, &a->operations);
}

/* ---- the engine ---- */

#define DEVICE(name)                                                                               \
    {                                                                                              \
        CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, c->device != NULL, &c->device            \
    }

static f8_status reproducible(const f8_cudnn *c, f8_cudnn_ref engine, int64_t id, f8_diag *diag)
{
    int note[MAX_NOTES];
    int64_t n = 0;
    F8_TRY(f8_cudnn_get(c, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                        MAX_NOTES, &n, note, diag));
    if (n > MAX_NOTES)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "cuDNN: engine %lld has %lld notes: at most %d can be read", (long long)id,
                       (long long)n, MAX_NOTES);
    for (int64_t i = 0; i < n; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                           "cuDNN: engine %lld is not deterministic", (long long)id);
    return F8_OK;
}

/* A finalized engine configuration. */
static f8_status configure(f8_cudnn_attention *a, const f8_cudnn_engine *e, f8_cudnn_ref *out,
                           f8_diag *diag)
{
    const f8_cudnn *c = a->c;
    f8_cudnn_ref engine, knob[F8_CUDNN_MAX_KNOBS];
    const f8_cudnn_attribute which[] = {PART(ENGINE_OPERATION_GRAPH, a->operations),
                                        ATTRIBUTE(ENGINE_GLOBAL_INDEX, INT64, e->id),
                                        DEVICE(ENGINE_DEVICEPROP)};
    F8_TRY(MAKE(ENGINE, "an engine", which, &engine));
    F8_TRY(reproducible(c, engine, e->id, diag));
    for (int i = 0; i < e->n_knobs; i++) {
        const f8_cudnn_attribute choice[] = {
            ATTRIBUTE(KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, e->knob[i].type),
            ATTRIBUTE(KNOB_CHOICE_KNOB_VALUE, INT64, e->knob[i].value)};
        F8_TRY(MAKE(KNOB_CHOICE, "an engine's setting", choice, &knob[i]));
    }
    const f8_cudnn_attribute config[] = {
        PART(ENGINECFG_ENGINE, engine),
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, e->n_knobs, knob}};
    return MAKE(ENGINECFG, "an engine's settings", config, out);
}

/* The plan of one engine with its settings. */
static f8_status take_engine(f8_cudnn_attention *a, const f8_cudnn_engine *e, int64_t limit,
                             f8_diag *diag)
{
    const f8_cudnn *c = a->c;
    f8_cudnn_ref config;
    F8_TRY(configure(a, e, &config, diag));
    const f8_cudnn_attribute plan[] = {
        PART(EXECUTION_PLAN_ENGINE_CONFIG, config),
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, c->handle != NULL, &c->handle},
        DEVICE(EXECUTION_PLAN_DEVICEPROP)};
    F8_TRY(MAKE(EXECUTION_PLAN, "a plan", plan, &a->plan));
    F8_TRY(f8_cudnn_get(c, a->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                        NULL, &a->plan_workspace, diag));
    a->engine = *e;
    if (limit && f8_cudnn_attention_workspace(a) > limit)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "cuDNN: engine %lld wants a workspace of %lld bytes, %lld are allowed",
                       (long long)e->id, (long long)f8_cudnn_attention_workspace(a),
                       (long long)limit);
    return F8_OK;
}

/* Which engine a configuration of the library's list is, with its settings. */
static f8_status read_engine(const f8_cudnn *c, f8_cudnn_ref config, f8_cudnn_ref engine,
                             f8_cudnn_ref *knob, f8_cudnn_engine *e, f8_diag *diag)
{
    int64_t n = 0, one;
    F8_TRY(f8_cudnn_get(c, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                        &n, &engine, diag));
    F8_TRY(f8_cudnn_get(c, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &e->id,
                        diag));
    F8_TRY(f8_cudnn_get(c, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        F8_CUDNN_MAX_KNOBS, &n, knob, diag));
    if (n > F8_CUDNN_MAX_KNOBS)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "cuDNN: engine %lld has %lld settings",
                       (long long)e->id, (long long)n);
    e->n_knobs = (int)n;
    for (int i = 0; i < n; i++) {
        F8_TRY(f8_cudnn_get(c, knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                            &one, &e->knob[i].type, diag));
        F8_TRY(f8_cudnn_get(c, knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                            &one, &e->knob[i].value, diag));
    }
    return F8_OK;
}

static f8_status read_config(const f8_cudnn *c, f8_cudnn_ref config, f8_cudnn_engine *e,
                             f8_diag *diag)
{
    f8_cudnn_ref engine = NULL, knob[F8_CUDNN_MAX_KNOBS] = {0};
    f8_status s = f8_cudnn_blank(c, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine, diag);
    for (int i = 0; !s && i < F8_CUDNN_MAX_KNOBS; i++)
        s = f8_cudnn_blank(c, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[i], diag);
    if (!s)
        s = read_engine(c, config, engine, knob, e, diag);
    f8_cudnn_destroy(c, &engine);
    for (int i = 0; i < F8_CUDNN_MAX_KNOBS; i++)
        f8_cudnn_destroy(c, &knob[i]);
    return s;
}

/* The library's list, best first. */
static f8_status list_engines(f8_cudnn_attention *a, f8_cudnn_engine *list, int *n_list,
                              f8_diag *diag)
{
    const f8_cudnn *c = a->c;
    const int mode = CUDNN_HEUR_MODE_A;
    f8_cudnn_ref heuristics, config[MAX_CONFIGS] = {0};
    int64_t n = 0;
    const f8_cudnn_attribute question[] = {PART(ENGINEHEUR_OPERATION_GRAPH, a->operations),
                                           ATTRIBUTE(ENGINEHEUR_MODE, HEUR_MODE, mode),
                                           DEVICE(ENGINEHEUR_DEVICEPROP)};
    F8_TRY(MAKE(ENGINEHEUR, "heuristics", question, &heuristics));
    f8_status s = F8_OK;
    for (int i = 0; !s && i < MAX_CONFIGS; i++)
        s = f8_cudnn_blank(c, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i], diag);
    if (!s)
        s = f8_cudnn_get(c, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                         CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n, config, diag);
    for (*n_list = 0; !s && *n_list < n && *n_list < MAX_CONFIGS; ++*n_list)
        s = read_config(c, config[*n_list], &list[*n_list], diag);
    for (int i = 0; i < MAX_CONFIGS; i++)
        f8_cudnn_destroy(c, &config[i]);
    return s;
}

/* Compute capability 10's own backward, with the setting that repeats its bits. Its settings have
 * other names from 9.23 on, which nothing here has seen. */
static int native_engine(const f8_cudnn_attention *a, f8_cudnn_engine *list)
{
    if (a->c->sm / 10 != 10 || !a->desc.backward || a->c->version >= 92300)
        return 0;
    list[0] =
        (f8_cudnn_engine){.id = a->c->sm > 103 ? 17 : 5,
                          .n_knobs = 2,
                          .knob = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}};
    return 1;
}

/* The first that is reproducible and takes the problem within the workspace allowed. */
static f8_status choose_engine(f8_cudnn_attention *a, int64_t limit, f8_diag *diag)
{
    f8_cudnn_engine list[MAX_CONFIGS + 1];
    int n = native_engine(a, list), more = 0;
    F8_TRY(list_engines(a, list + n, &more, diag));
    n += more;
    if (!n)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "cuDNN: no engine takes this attention");
    f8_diag first = {0}; /* why the best was refused */
    for (int i = 0; i < n; i++) {
        f8_diag d = {0};
        int kept = a->n_kept;
        f8_status s = take_engine(a, &list[i], limit, &d);
        if (s == F8_OK)
            return F8_OK;
        if (s != F8_ERR_UNSUPPORTED) /* something broke: no reason to take another's bits */
            return f8_fail(diag, s, F8_NOWHERE, "%s", d.text);
        if (!first.status)
            first = d;
        a->plan = NULL;
        while (a->n_kept > kept)
            f8_cudnn_destroy(a->c, &a->kept[--a->n_kept]);
    }
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "cuDNN: none of %d engines takes this attention: %s", n, first.text);
}

/* ---- one problem ---- */

static f8_status prepare(f8_cudnn_attention *a, const f8_cudnn_choice *choice, f8_diag *d)
{
    f8_cudnn_attention_graph(&a->desc, &a->graph);
    a->value[F8_CUDNN_SCALE] = a->desc.scale;
    a->value[F8_CUDNN_MINUS_INF] = -INFINITY;
    a->value[F8_CUDNN_ONE] = 1;
    F8_TRY(make_operations(a, d));
    if (choice && choice->fixed)
        return take_engine(a, choice->fixed, choice->workspace_limit, d);
    return choose_engine(a, choice ? choice->workspace_limit : 0, d);
}

f8_status f8_cudnn_attention_prepare(const f8_cudnn *c, const f8_cudnn_attention_desc *desc,
                                     const f8_cudnn_choice *choice, const f8_allocator *allocator,
                                     f8_cudnn_attention **out, f8_diag *diag)
{
    *out = NULL;
    F8_TRY(f8_cudnn_attention_supports(c->version, c->sm, desc, diag));
    f8_allocator al = allocator ? *allocator : f8_default_allocator();
    f8_cudnn_attention *a = al.alloc(al.user, sizeof *a, 64);
    if (!a)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for a cuDNN attention", sizeof *a);
    *a = (f8_cudnn_attention){.allocator = al, .c = c, .desc = *desc};
    f8_status s = prepare(a, choice, diag);
    if (s) {
        f8_cudnn_attention_destroy(a);
        return s;
    }
    *out = a;
    return F8_OK;
}

void f8_cudnn_attention_destroy(f8_cudnn_attention *a)
{
    if (!a)
        return;
    while (a->n_kept)
        f8_cudnn_destroy(a->c, &a->kept[--a->n_kept]);
    f8_allocator al = a->allocator;
    al.free(al.user, a, sizeof *a);
}

/* The backward keeps ds in bf16, in whole tiles of 128 tokens, and delta in f32. On compute
 * capability 10.x it does not keep ds. */
int64_t f8_cudnn_attention_expected_workspace(int sm, const f8_cudnn_attention_desc *x)
{
    const int64_t T = f8_aligned(x->T, 128), heads = x->B * x->H;
    if (!x->backward)
        return 0;
    return (sm / 10 == 10 ? 0 : heads * T * T * 2) + 2 * f8_aligned(heads * T * 4, ALIGN);
}

int64_t f8_cudnn_attention_workspace(const f8_cudnn_attention *a)
{
    const f8_cudnn_attention_desc *x = &a->desc;
    return f8_aligned(a->plan_workspace, ALIGN) +
           (x->backward ? f8_aligned(x->B * x->H * x->T * 4, ALIGN) : 0);
}

const f8_cudnn_engine *f8_cudnn_attention_engine(const f8_cudnn_attention *a)
{
    return &a->engine;
}

void f8_cudnn_attention_text(const f8_cudnn_attention *a, char text[F8_CUDNN_TEXT])
{
    int v = a->c->version;
    int n = snprintf(text, F8_CUDNN_TEXT, "cudnn %d.%d.%d engine %lld", v / 10000, v / 100 % 100,
                     v % 100, (long long)a->engine.id);
    for (int i = 0; i < a->engine.n_knobs && n < F8_CUDNN_TEXT; i++)
        n += snprintf(text + n, (size_t)(F8_CUDNN_TEXT - n), " k%d=%lld", a->engine.knob[i].type,
                      (long long)a->engine.knob[i].value);
}

f8_status f8_cudnn_attention_bind(const f8_cudnn_attention *a, void *const *pointers,
                                  void *workspace, f8_cudnn_ref *out, f8_diag *diag)
{
    int64_t id[F8_CUDNN_FIXED], n = 0;
    void *at[F8_CUDNN_FIXED];
    *out = NULL;
    for (int i = 0; i < F8_CUDNN_FIXED; i++) {
        const f8_cudnn_tensor *t = &a->graph.tensor[i];
        if (!t->used)
            continue;
        void *p = t->value              ? (void *)(uintptr_t)&a->value[i]
                  : i == F8_CUDNN_DELTA ? (char *)workspace + f8_aligned(a->plan_workspace, ALIGN)
                                        : pointers[i];
        if (!t->value && (!p || (uintptr_t)p % 16))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "cuDNN attention: argument %d is not 16-byte aligned", i);
        id[n] = i + 1;
        at[n++] = p;
    }
    if ((uintptr_t)workspace % ALIGN || (!workspace && f8_cudnn_attention_workspace(a)))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "cuDNN attention: the workspace is not 256-byte aligned");
    const f8_cudnn_attribute pack[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, id},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at},
        ATTRIBUTE(VARIANT_PACK_WORKSPACE, VOID_PTR, workspace)};
    return f8_cudnn_make(a->c, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the arguments", 3, pack, out,
                         diag);
}

f8_status f8_cudnn_attention_run(const f8_cudnn_attention *a, f8_cudnn_ref arguments, void *stream,
                                 f8_diag *diag)
{
    const f8_cudnn *c = a->c;
    if (!c->handle || !arguments)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "cuDNN attention: run before start and bind");
    int rc = c->api.cudnnSetStream(c->handle, stream);
    if (rc)
        return f8_cudnn_refused(c, rc, "cudnnSetStream", diag);
    rc = c->api.cudnnBackendExecute(c->handle, a->plan, arguments);
    return rc ? f8_cudnn_refused(c, rc, "cudnnBackendExecute", diag) : F8_OK;
}
