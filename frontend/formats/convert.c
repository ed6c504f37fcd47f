/* FP8 weights of one format as a folder of another: see convert.h. */
#include "frontend/formats/convert.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/formats/convert_parts.h"
#include "frontend/formats/write.h"

enum { SHOWN = 200 };

/* ---- weights and adapters ---- */

/* The adapter of a tensor that is out of FP8; NULL: it has none. */
static const f8_adapter *adapter_of(const f8_convert_work *w, const f8_weight *t)
{
    char module[F8_MODULE];
    return f8_linear_of(t->name, t->tensor->rank, module) ? f8_adapters_of(w->c->adapters, module)
                                                          : NULL;
}

/* A tensor out of FP8; `own`: the one of `from`, which may have an adapter, or NULL. */
static f8_convert_source plain(const f8_convert_work *w, const f8_weight *t, const f8_weight *own)
{
    const f8_adapter *adapter = own ? adapter_of(w, own) : NULL;
    w->c->plain_merged += adapter != NULL;
    return (f8_convert_source){.part = F8_PLAIN, .plain = t, .adapter = adapter};
}

/* The weight of a tensor of `from`; c->weight lies as from->scaled does. */
static const f8_converted *converted(const f8_convert_work *w, const f8_weight *t)
{
    const f8_model_folder *f = w->c->from;
    char module[F8_MODULE];
    const f8_scaled *s =
        f8_linear_of(t->name, t->tensor->rank, module) ? f8_model_folder_scaled(f, module) : NULL;
    return s ? &w->c->weight[s - f->scaled] : NULL;
}

/* ---- scales of inputs ---- */

/* The scale that a file has beside a weight. */
static f8_status read_input(f8_convert_work *w, f8_converted *x)
{
    f8_arena memory;
    f8_arena_init(&memory, &w->c->memory.allocator);
    float *all =
        F8_NEW_ARRAY(&memory, float, (size_t)f8_weight_elements(x->from->input->tensor) + 1);
    const f8_status status = all ? f8_weight_values(x->from->input, &memory, all, w->diag)
                                 : f8_arena_status(&memory, w->diag);
    x->input = status == F8_OK ? all[0] : 0;
    f8_arena_end(&memory);
    return status;
}

/* Finds what the codes of each linear's input are multiplied by. `delayed` keeps the inverse, of
 * all inputs in one state. */
static f8_status find_inputs(f8_convert_work *w)
{
    static const char state[] = "fp8.scale";
    f8_conversion *c = w->c;
    char name[F8_MODULE + 8];
    float *kept = NULL;
    snprintf(name, sizeof name, "%s%s", f8_checkpoint_prefix, state);
    const f8_weight *from = f8_weights_find(&c->from->weights, name);
    const int64_t n = from ? f8_weight_elements(from->tensor) : 0;
    if (from) {
        kept = F8_NEW_ARRAY(&c->memory, float, (size_t)n + 1);
        F8_TRY(f8_arena_status(&c->memory, w->diag));
        F8_TRY(f8_weight_values(from, &c->memory, kept, w->diag));
    }
    for (size_t i = 0; i < c->n; i++) {
        f8_converted *x = &c->weight[i];
        snprintf(name, sizeof name, "%s.x", x->from->module);
        const int64_t at = kept ? f8_checkpoint_element(&w->names, state, name) : -1;
        if (x->from->input)
            F8_TRY(read_input(w, x));
        else if (at >= 0 && at < n)
            x->input = 1 / kept[at];
    }
    return F8_OK;
}

/* Whether every weight has one, where the format has a place for it: one scale for the tensor. */
static f8_status look_at_inputs(f8_convert_work *w)
{
    F8_TRY(find_inputs(w));
    if (w->grain != F8_BY_TENSOR || w->c->to == F8_HF_FP8 || w->c->to == F8_NATIVE)
        return F8_OK;
    w->static_inputs = true;
    for (size_t i = 0; i < w->c->n; i++)
        w->static_inputs &= w->c->weight[i].input > 0;
    if (w->c->to == F8_MODELOPT && !w->static_inputs)
        return F8_CONVERT_FAIL(
            w, w->c->shown,
            "modelopt's FP8 has a scale for the input of each linear, and these weights have none: "
            "export under delayed, which keeps or calibrates them, or take compressed-tensors");
    return F8_OK;
}

/* ---- the tensors of the new folder ---- */

static void add(f8_convert_work *w, const char *name, f8_st_tensor type, f8_convert_source from)
{
    type.name = name;
    w->tensor[w->n] = type;
    w->source[w->n++] = from;
}

static f8_st_tensor of_type(f8_st_dtype dtype, int32_t rank, const int64_t *dim)
{
    f8_st_tensor t = {.dtype = dtype, .rank = rank};
    memcpy(t.dim, dim, (size_t)rank * sizeof *dim);
    return t;
}

/* `name`: what the weight is called there; `dtype`: of values. */
static void add_scaled(f8_convert_work *w, const f8_converted *x, const char *name,
                       f8_st_dtype dtype)
{
    f8_conversion *c = w->c;
    const f8_st_tensor *t = x->from->codes->tensor;
    c->inputs_lost += x->input > 0 && (!w->static_inputs || x->fate == F8_DEQUANTIZED);
    if (x->fate == F8_DEQUANTIZED) {
        c->plain_merged += x->adapter != NULL;
        add(w, name, of_type(dtype, 2, t->dim),
            (f8_convert_source){.part = F8_VALUES, .weight = x});
        return;
    }
    const f8_scale_type s = f8_fp8_format_scale(c->to, w->grain, t->dim, x->from->rows_are_inputs);
    add(w, name, of_type(F8_ST_F8_E4M3, 2, t->dim),
        (f8_convert_source){.part = F8_CODES, .weight = x});
    add(w, f8_arena_printf(&c->memory, "%s%s", name, s.suffix), of_type(s.dtype, s.rank, s.dim),
        (f8_convert_source){.part = F8_SCALES, .weight = x});
    if (!w->static_inputs)
        return;
    const int64_t one = 1;
    add(w,
        f8_arena_printf(&c->memory, "%.*s.input_scale", (int)(strlen(name) - strlen(".weight")),
                        name),
        of_type(F8_ST_F32, c->to == F8_COMPRESSED_TENSORS, &one),
        (f8_convert_source){.part = F8_INPUT_SCALE, .weight = x});
}

/* A matrix that stays out of FP8 is named in the config. */
static void skip(f8_convert_work *w, const char *name, int32_t rank)
{
    char module[F8_MODULE];
    if (f8_linear_of(name, rank, module))
        json_array_append_new(w->skipped, json_string(module));
}

/* Names a module that no file may have: a head that is tied. */
static void skip_head(f8_convert_work *w, const char *head)
{
    json_t *entry;
    size_t i;
    char module[F8_MODULE];
    for (i = 0; i < w->n; i++) /* it may be one of those in FP8 */
        if (w->source[i].part == F8_CODES && f8_linear_of(w->tensor[i].name, 2, module) &&
            !strcmp(module, head))
            return;
    json_array_foreach (w->skipped, i, entry)
        if (!strcmp(json_string_value(entry), head))
            return;
    json_array_append_new(w->skipped, json_string(head));
}

/* Whether a tensor goes into others: a scale, a state, an adapter's factor. */
static bool is_part(const f8_convert_work *w, const f8_weight *t)
{
    char module[F8_MODULE];
    const f8_scaled *s =
        f8_scale_of(t->name, module) ? f8_model_folder_scaled(w->c->from, module) : NULL;
    return (s && (t == s->scale || t == s->input)) || f8_adapters_have(w->c->adapters, t) ||
           !strncmp(t->name, f8_checkpoint_prefix, strlen(f8_checkpoint_prefix));
}

static bool has_own_type(const f8_weight *a, const f8_weight *b)
{
    return a->tensor->rank == b->tensor->rank &&
           !memcmp(a->tensor->dim, b->tensor->dim, (size_t)a->tensor->rank * sizeof(int64_t));
}

static f8_st_dtype values_dtype(const f8_model_folder *f)
{
    const char *text = f8_model_folder_text(f, "dtype");
    text = text ? text : f8_model_folder_text(f, "torch_dtype");
    return text && !strcmp(text, "float16")   ? F8_ST_F16
           : text && !strcmp(text, "float32") ? F8_ST_F32
                                              : F8_ST_BF16;
}

/* The tensors of `from` under their own names. */
static f8_status list_own(f8_convert_work *w)
{
    const f8_model_folder *f = w->c->from;
    for (size_t i = 0; i < f->weights.n_named; i++) {
        const f8_weight *t = &f->weights.weight[i];
        const f8_converted *x = converted(w, t);
        if (x)
            add_scaled(w, x, t->name, values_dtype(f));
        else if (!is_part(w, t))
            add(w, t->name, *t->tensor, plain(w, t, t));
        if (!is_part(w, t) && (!x || x->fate == F8_DEQUANTIZED))
            skip(w, t->name, t->tensor->rank);
    }
    return F8_OK;
}

/* The tensor of the weights for one of the model; a head that is tied has the embedding's. GPT-2's
 * names may have a prefix that training takes away by itself. */
static const f8_weight *counterpart(const f8_convert_work *w, const f8_weight *t)
{
    const f8_weights *weights = &w->c->from->weights;
    const size_t n = strlen(f8_weights_gpt_prefix);
    const f8_weight *own = f8_weights_find(weights, t->name);
    if (!own && !strncmp(t->name, f8_weights_gpt_prefix, n))
        own = f8_weights_find(weights, t->name + n);
    return own || strcmp(t->name, "lm_head.weight") ? own : f8_weights_find(weights, "wte.weight");
}

/* The tensor of the model for one of the weights. */
static bool model_has(const f8_convert_work *w, const f8_weight *own)
{
    const f8_weights *model = &w->c->model->weights;
    char name[1024];
    snprintf(name, sizeof name, "%s%s", f8_weights_gpt_prefix, own->name);
    return f8_weights_find(model, own->name) || f8_weights_find(model, name);
}

/* The tensors of the model under its names, with the values of `from`. */
static f8_status list_model(f8_convert_work *w)
{
    const f8_model_folder *f = w->c->from, *model = w->c->model;
    char shown[SHOWN];
    for (size_t i = 0; i < model->weights.n; i++) {
        const f8_weight *t = &model->weights.weight[i],
                        *own = t->ignored ? NULL : counterpart(w, t);
        const f8_converted *x = own ? converted(w, own) : NULL;
        if (!own && !t->ignored && !f8_weights_mask(t))
            return F8_CONVERT_FAIL(
                w, t->file->in.path,
                "'%s' is no parameter of the weights: give --map or --ignore, as the "
                "training had them",
                f8_st_shown(t->tensor->name, shown, SHOWN));
        if (own && !has_own_type(own, t))
            return F8_CONVERT_FAIL(w, t->file->in.path,
                                   "'%s' has another shape than '%s' of the weights",
                                   f8_st_shown(t->tensor->name, shown, SHOWN), own->name);
        if (x)
            add_scaled(w, x, t->tensor->name, t->tensor->dtype);
        else
            add(w, t->tensor->name, of_type(t->tensor->dtype, t->tensor->rank, t->tensor->dim),
                plain(w, own ? own : t, own));
        if (!x || x->fate == F8_DEQUANTIZED)
            skip(w, t->tensor->name, t->tensor->rank);
    }
    for (size_t i = 0; i < f->weights.n_named; i++) {
        const f8_weight *t = &f->weights.weight[i];
        if (is_part(w, t))
            continue;
        if (!model_has(w, t))
            return F8_CONVERT_FAIL(
                w, model->path,
                "there is no '%s', which the weights have: give --map, as the training had it",
                f8_st_shown(t->name, shown, SHOWN));
    }
    return F8_OK;
}

/* ---- the whole ---- */

/* {"WEIGHT": "block", ...}: a file of fp8c's own says this of itself. */
static char *stored(const f8_convert_work *w)
{
    json_t *all = json_object();
    for (size_t i = 0; i < w->n; i++)
        if (w->source[i].part == F8_CODES)
            json_object_set_new(all, w->tensor[i].name,
                                json_string(f8_grains[w->source[i].weight->grain].recipe));
    char *text = json_dumps(all, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(all);
    return text;
}

static f8_status fill_own(void *user, size_t index, void *to, f8_diag *diag)
{
    const f8_convert_work *w = user;
    return f8_convert_stops(user) ? f8_file_fail(diag, F8_ERR_CANCELLED, w->c->path, "interrupted")
                                  : f8_convert_fill(user, index, to, diag);
}

static f8_status put_native(f8_convert_work *w)
{
    f8_conversion *c = w->c;
    char *text = stored(w);
    const f8_st_pair metadata[] = {{"format", "pt"},
                                   {"fp8c.version", f8_checkpoint_version},
                                   {"fp8c.stored", text},
                                   {"fp8c.library", fp8c_version()}};
    const f8_st_contents contents = {.tensor = w->tensor,
                                     .n = w->n,
                                     .metadata = metadata,
                                     .n_metadata = 4,
                                     .fill = fill_own,
                                     .user = w,
                                     .list = c->list};
    const f8_status status = text ? f8_st_write(c->path, &contents, &c->memory.allocator, w->diag)
                                  : f8_file_fail(w->diag, F8_ERR_MEMORY, c->path, "out of memory");
    c->n_files = 1;
    for (size_t i = 0; i < w->n; i++)
        c->bytes += f8_st_bytes(&w->tensor[i]);
    free(text);
    return status;
}

static f8_status put(f8_convert_work *w)
{
    f8_conversion *c = w->c;
    const f8_model_folder *base = c->model ? c->model : c->from;
    const char *head = f8_tied_head(base->config);
    const f8_described d = {c->to, w->grain, w->static_inputs, w->skipped};
    json_t *config = json_deep_copy(base->config);
    f8_status status = F8_OK;
    if (head)
        skip_head(w, head);
    json_object_set_new(config, "quantization_config", f8_describe(&d));
    json_t *modelopt = f8_describe_modelopt(&d);
    f8_model_folder_out out = {.path = c->path,
                               .tensor = w->tensor,
                               .n = w->n,
                               .fill = f8_convert_fill,
                               .user = w,
                               .config = config,
                               .modelopt = modelopt,
                               .carry = base->root,
                               .most = c->most,
                               .list = c->list,
                               .stop = f8_convert_stops,
                               .allocator = &c->memory.allocator};
    status = config && json_object_get(config, "quantization_config")
                 ? f8_model_folder_write(&out, w->diag)
                 : f8_file_fail(w->diag, F8_ERR_MEMORY, c->path, "out of memory");
    c->n_files = out.n_files;
    c->bytes = out.bytes;
    json_decref(config);
    json_decref(modelopt);
    return status;
}

f8_status f8_convert_open(f8_convert_sources *s, f8_conversion *c, const char *from,
                          const char *model, const char *adapters, const fp8c_load_options *named,
                          f8_diag *diag)
{
    const bool is_named = !model && c->to == F8_NATIVE;
    F8_TRY(f8_model_folder_open(&s->from, from, is_named ? named : NULL, c->allocator, diag));
    c->from = &s->from;
    if (model) {
        F8_TRY(f8_model_folder_open(&s->model, model, named, c->allocator, diag));
        c->model = &s->model;
    }
    if (adapters) {
        F8_TRY(f8_adapters_find(&s->adapters, adapters, &s->from, model ? &s->model : &s->from,
                                c->allocator, diag));
        c->adapters = &s->adapters;
    }
    return F8_OK;
}

void f8_convert_close(f8_convert_sources *s)
{
    f8_adapters_close(&s->adapters);
    f8_model_folder_close(&s->model);
    f8_model_folder_close(&s->from);
}

static f8_status convert(f8_convert_work *w)
{
    f8_conversion *c = w->c;
    const size_t most = 3 * (c->from->weights.n + (c->model ? c->model->weights.n : 0)) + 1;
    const f8_model_folder *base = c->model ? c->model : c->from;
    if (!c->from->n_scaled)
        return F8_CONVERT_FAIL(w, c->shown, "none of its weights is in FP8");
    if (!base->config && c->to != F8_NATIVE)
        return F8_CONVERT_FAIL(w, base->path, "it has no config.json, which the new folder needs");
    if (c->model && c->model->n_scaled)
        return F8_CONVERT_FAIL(
            w, c->model->path,
            "its weights are FP8 already: give the model that the training began with");
    w->skipped = json_array();
    for (size_t i = 0; i < c->from->weights.n_files; i++)
        F8_TRY(f8_checkpoint_read_metadata(&c->from->weights.file[i], &w->names, w->diag));
    w->tensor = F8_NEW_ARRAY(&c->memory, f8_st_tensor, most);
    w->source = F8_NEW_ARRAY(&c->memory, f8_convert_source, most);
    F8_TRY(f8_arena_status(&c->memory, w->diag));
    if (c->to != F8_NATIVE)
        F8_TRY(f8_model_folder_writable(c->path, w->diag));
    F8_TRY(f8_convert_fates(w));
    F8_TRY(look_at_inputs(w));
    F8_TRY(c->model ? list_model(w) : list_own(w));
    F8_TRY(f8_arena_status(&c->memory, w->diag));
    return c->to == F8_NATIVE ? put_native(w) : put(w);
}

f8_status f8_convert(f8_conversion *c, f8_diag *diag)
{
    const f8_allocator usual = f8_default_allocator();
    f8_convert_work w = {.c = c, .diag = diag};
    f8_arena_init(&c->memory, c->allocator ? c->allocator : &usual);
    c->weight = NULL;
    c->n = 0;
    c->bytes = 0;
    c->inputs_lost = 0;
    c->plain_merged = 0;
    memset(c->of_fate, 0, sizeof c->of_fate);
    const f8_status status = convert(&w);
    json_decref(w.skipped);
    f8_checkpoint_release_names(&w.names);
    return status;
}

void f8_conversion_end(f8_conversion *c)
{
    if (c->memory.allocator.alloc)
        f8_arena_end(&c->memory);
    c->memory = (f8_arena){0};
}
