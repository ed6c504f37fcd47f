/* The graphs that have engines, and the engines' notes, settings and workspaces: see cudnn.h. */
#include "tests/emulator/cudnn/cudnn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device ---- */

static void *driver(const char *symbol)
{
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *at = lib ? dlsym(lib, symbol) : NULL;
    if (lib)
        dlclose(lib);
    return at;
}

int emu_sm(void)
{
    int (*sm)(void);
    *(void **)&sm = driver("f8_emulator_sm");
    return sm ? sm() : 0;
}

/* A description's compute capability, else the device's. */
static int sm_for(const descriptor *device)
{
    if (!device)
        return emu_sm();
    const attribute *a = emu_find(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)a->count, (const char *)a->data);
    const char *at = strstr(text, "\"deviceVer\":");
    return at ? atoi(at + strlen("\"deviceVer\":")) / 10 : 0;
}

/* ---- graphs ---- */

static const descriptor *op_at(const descriptor *graph, int64_t i)
{
    return ((const descriptor *const *)emu_find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->data)[i];
}

static int64_t n_ops(const descriptor *graph)
{
    return emu_find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->count;
}

static const int64_t *dims(const descriptor *tensor)
{
    return (const int64_t *)emu_find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->data;
}

static int64_t matmuls(const descriptor *graph)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_ops(graph); i++)
        n += op_at(graph, i)->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    return n;
}

/* The first matmul's: [b, h, m, k] x [b, g, k, n]. */
static const descriptor *first_matmul(const descriptor *graph)
{
    for (int64_t i = 0; i < n_ops(graph); i++)
        if (op_at(graph, i)->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            return op_at(graph, i);
    return NULL;
}

static int check_matmul(const descriptor *op)
{
    const int64_t *a = dims(emu_part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    const int64_t *b = dims(emu_part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    const int64_t *c = dims(emu_part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    bool fits = a[0] == c[0] && b[0] == c[0] && a[1] == c[1] && c[1] % b[1] == 0 && a[2] == c[2] &&
                b[3] == c[3] && a[3] == b[2];
    return fits ? CUDNN_STATUS_SUCCESS
                : emu_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "matmul: sizes differ");
}

/* Real tensors of a matmul: bf16 whose rows begin at multiples of 16 bytes along one axis. */
static int check_layout(const descriptor *op)
{
    static const int parts[] = {CUDNN_ATTR_OPERATION_MATMUL_ADESC,
                                CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                                CUDNN_ATTR_OPERATION_MATMUL_CDESC};
    for (int i = 0; i < 3; i++) {
        const descriptor *t = emu_part(op, parts[i]);
        if (emu_bool(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL))
            continue;
        const int64_t *s = (const int64_t *)emu_find(t, CUDNN_ATTR_TENSOR_STRIDES)->data;
        const int64_t along = s[3] == 1 ? s[2] : s[3];
        if (emu_int(t, CUDNN_ATTR_TENSOR_DATA_TYPE) != CUDNN_DATA_BFLOAT16 ||
            (s[3] != 1 && s[2] != 1) || along % 8 || s[0] % 8 || s[1] % 8 ||
            emu_long(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) % 16)
            return emu_refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "matmul: a tensor's layout");
    }
    return CUDNN_STATUS_SUCCESS;
}

int emu_check_graph(const descriptor *graph)
{
    for (int64_t i = 0; i < n_ops(graph); i++) {
        const descriptor *op = op_at(graph, i);
        if (op->type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            continue;
        int rc = check_matmul(op);
        if (!rc)
            rc = check_layout(op);
        if (rc)
            return rc;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- engines ---- */

enum {
    NOT_DETERMINISTIC = 90, /* carries the note */
    REFUSES = 91,           /* every plan */
    FORWARD = 2,            /* graphs of two matmuls; setting 24 = 7 */
    BACKWARD = 6,           /* of five; setting 24 = 26; stores n x n per head */
    NATIVE = 5              /* of five on compute capability 10 with settings 24 = 31, 14 = 2 */
};

static const descriptor *graph_of(const descriptor *engine)
{
    return emu_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

/* Sizes a graph's fused engines take, as the library documents them. */
static int supported(const descriptor *graph, int sm)
{
    const int64_t n = matmuls(graph);
    if (n != 2 && n != 5)
        return emu_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "%lld matmuls", (long long)n);
    const int64_t *q = dims(emu_part(first_matmul(graph), CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    if (q[3] % 8 || q[3] > (sm / 10 == 9 ? 256 : 128))
        return emu_refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "heads of %lld", (long long)q[3]);
    return CUDNN_STATUS_SUCCESS;
}

int emu_check_engine(const descriptor *engine)
{
    const int64_t id = emu_long(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX),
                  n = matmuls(graph_of(engine));
    const int sm = sm_for(emu_part(engine, CUDNN_ATTR_ENGINE_DEVICEPROP));
    if (!sm)
        return emu_refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
    if (id == NOT_DETERMINISTIC || id == REFUSES || (id == FORWARD && n == 2) ||
        (id == BACKWARD && n == 5) || (id == NATIVE && n == 5 && sm / 10 == 10))
        return supported(graph_of(engine), sm);
    return emu_refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld", (long long)id);
}

static bool has_knob(const descriptor *config, int type, int64_t value)
{
    const attribute *a = emu_find(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    for (int64_t i = 0; a && i < a->count; i++) {
        const descriptor *k = ((const descriptor *const *)a->data)[i];
        if (emu_int(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) == type)
            return emu_long(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) == value;
    }
    return false;
}

int emu_check_config(const descriptor *config)
{
    const int64_t id =
        emu_long(emu_part(config, CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    bool fits = true;
    if (id == FORWARD)
        fits = has_knob(config, CUDNN_KNOB_TYPE_KERNEL_CFG, 7);
    if (id == BACKWARD)
        fits = has_knob(config, CUDNN_KNOB_TYPE_KERNEL_CFG, 26);
    if (id == NATIVE)
        fits = has_knob(config, CUDNN_KNOB_TYPE_KERNEL_CFG, 31) &&
               has_knob(config, CUDNN_KNOB_TYPE_STAGES, 2);
    return fits ? CUDNN_STATUS_SUCCESS : emu_refuse(CUDNN_STATUS_NOT_SUPPORTED, "settings");
}

int emu_check_plan(const descriptor *plan)
{
    const descriptor *config = emu_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const int64_t id =
        emu_long(emu_part(config, CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    return id == REFUSES ? emu_refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine %d refuses", REFUSES)
                         : CUDNN_STATUS_SUCCESS;
}

int64_t emu_plan_workspace(const descriptor *plan)
{
    const descriptor *engine = emu_part(emu_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                                        CUDNN_ATTR_ENGINECFG_ENGINE);
    const int64_t id = emu_long(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    const int64_t *s =
        dims(emu_part(first_matmul(graph_of(engine)), CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    return id == BACKWARD ? 2 * s[0] * s[1] * s[2] * s[3] + 100 : id == NATIVE ? 1000 : 200;
}

/* ---- reading ---- */

/* A configuration of the list, before it is read: its own attributes, of names the library has not.
 */
enum { LISTED_GRAPH = -1, LISTED_DEVICE = -2, LISTED_ENGINE = -3, LISTED_KNOB = -4 };

typedef struct listed {
    int64_t engine, knob; /* the value of CUDNN_KNOB_TYPE_KERNEL_CFG */
} listed;

static bool blank(const void *p, int type)
{
    const descriptor *d = p;
    return d && d->type == type && !d->final;
}

static int list(const descriptor *heuristics, int64_t room, int64_t *count, void *const *configs)
{
    descriptor *graph = emu_part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    descriptor *device = emu_part(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    const bool forward = matmuls(graph) == 2;
    const listed all[] = {
        {NOT_DETERMINISTIC, 1}, {REFUSES, 2}, {forward ? FORWARD : BACKWARD, forward ? 7 : 26}};
    const int64_t n = supported(graph, sm_for(device)) ? 0 : 3;
    *count = n < room ? n : room;
    for (int64_t i = 0; i < *count; i++) {
        descriptor *d = configs[i];
        if (!blank(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
            return emu_refuse(CUDNN_STATUS_BAD_PARAM, "not a new configuration");
        emu_set(d, LISTED_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 8, 1, &graph);
        emu_set(d, LISTED_DEVICE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 8, device != NULL, &device);
        emu_set(d, LISTED_ENGINE, CUDNN_TYPE_INT64, 8, 1, &all[i].engine);
        emu_set(d, LISTED_KNOB, CUDNN_TYPE_INT64, 8, 1, &all[i].knob);
        d->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static int read_engine(const descriptor *config, int64_t *count, descriptor *e)
{
    descriptor *graph = emu_part(config, LISTED_GRAPH), *device = emu_part(config, LISTED_DEVICE);
    const int64_t id = emu_long(config, LISTED_ENGINE);
    if (!blank(e, CUDNN_BACKEND_ENGINE_DESCRIPTOR))
        return emu_refuse(CUDNN_STATUS_BAD_PARAM, "not a new engine");
    emu_set(e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 8, 1, &graph);
    emu_set(e, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 8, device != NULL,
            &device);
    emu_set(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 8, 1, &id);
    e->final = true;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

static int read_knobs(const descriptor *config, int64_t room, int64_t *count,
                      descriptor *const *knobs)
{
    const int type = CUDNN_KNOB_TYPE_KERNEL_CFG;
    const int64_t value = emu_long(config, LISTED_KNOB);
    if (room < 1 || !blank(knobs[0], CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR))
        return emu_refuse(CUDNN_STATUS_BAD_PARAM, "not a new setting");
    emu_set(knobs[0], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, sizeof type, 1,
            &type);
    emu_set(knobs[0], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 8, 1, &value);
    knobs[0]->final = true;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

static int read_notes(const descriptor *engine, int64_t room, int64_t *count, int *notes)
{
    const int64_t others = f8_emu_setting("FP8C_EMULATOR_CUDNN_NOTES", 1);
    const bool spoils = emu_long(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == NOT_DETERMINISTIC;
    *count = others + spoils;
    for (int64_t i = 0; i < *count && i < room; i++)
        notes[i] = i < others ? 0 /* tensor cores */ : CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return CUDNN_STATUS_SUCCESS;
}

int emu_read(descriptor *d, int name, int type, int64_t room, int64_t *count, void *elements)
{
    int64_t unused;
    count = count ? count : &unused;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
        return list(d, room, count, elements);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && emu_find(d, LISTED_GRAPH))
        return read_engine(d, count, *(void **)elements);
    if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES && emu_find(d, LISTED_GRAPH))
        return read_knobs(d, room, count, elements);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return read_notes(d, room, count, elements);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *count = 1;
        *(int64_t *)elements = emu_plan_workspace(d);
        return CUDNN_STATUS_SUCCESS;
    }
    const attribute *a = emu_find(d, name);
    if (!a || a->type != type || a->count > room)
        return emu_refuse(CUDNN_STATUS_BAD_PARAM, "no attribute %d to read", name);
    *count = a->count;
    memcpy(elements, a->data, a->size * (size_t)a->count);
    return CUDNN_STATUS_SUCCESS;
}
