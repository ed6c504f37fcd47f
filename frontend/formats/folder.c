/* A folder of weights: see folder.h. */
#include "frontend/formats/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/text.h"

enum { SHOWN = 200, CONFIG_BYTES = 1 << 24 };

/* ---- what lies in the folder ---- */

static f8_status read_json(const char *path, f8_arena *memory, json_t **out, f8_diag *diag)
{
    f8_file_bytes file = {0};
    json_error_t error;
    char shown[SHOWN];
    F8_TRY(f8_file_read(path, CONFIG_BYTES, &memory->allocator, &file, diag));
    *out = json_loadb((const char *)file.bytes, file.size, 0, &error);
    f8_file_release(&file);
    if (json_is_object(*out))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, path,
                        *out ? "it is no JSON object" : "it is not valid JSON: %s (line %d)",
                        *out ? "" : f8_st_shown(error.text, shown, sizeof shown), error.line);
}

f8_status f8_folder_json(const char *folder, const char *name, f8_arena *memory, json_t **out,
                         f8_diag *diag)
{
    struct stat info;
    const char *path = f8_arena_printf(memory, "%s/%s", folder, name);
    F8_TRY(f8_arena_status(memory, diag));
    if (stat(path, &info) && (errno == ENOENT || errno == ENOTDIR))
        return F8_OK;
    return read_json(path, memory, out, diag);
}

static f8_status open_weights(f8_model_folder *f, const fp8c_load_options *o, f8_diag *diag)
{
    fp8c_load_options own = {.struct_size = sizeof own, .files = &f->path, .n_files = 1};
    if (f->root) {
        const char **files;
        F8_TRY(f8_folder_files(f->root, &f->memory, &files, &own.n_files, diag));
        f->index = f8_is_index(files[0]) ? files[0] : NULL;
        own.files = files;
    }
    if (o) {
        own.ignore = o->ignore;
        own.n_ignore = o->n_ignore;
        own.map = o->map;
        own.n_map = o->n_map;
    }
    return f8_weights_open_as_they_are(&f->weights, &own, &f->memory.allocator, diag);
}

/* ---- which tensors are FP8 ---- */

/* The tensor MODULE + END. */
static const f8_weight *beside(const f8_model_folder *f, const char *module, const char *end)
{
    char name[1024];
    return snprintf(name, sizeof name, "%s%s", module, end) < (int)sizeof name
               ? f8_weights_find(&f->weights, name)
               : NULL;
}

static f8_status add_scaled(f8_model_folder *f, const f8_weight *codes, const char *module,
                            f8_diag *diag)
{
    f8_scaled *s = &f->scaled[f->n_scaled++];
    *s = (f8_scaled){.codes = codes, .module = f8_arena_strdup(&f->memory, module)};
    F8_TRY(f8_arena_status(&f->memory, diag));
    const f8_weight *inverse = beside(f, s->module, ".weight_scale_inv"),
                    *scale = beside(f, s->module, ".weight_scale");
    const bool wants_inverse = f->declared.format == F8_HF_FP8 && f->declared.grain == F8_BY_BLOCKS;
    s->scale = inverse && (wants_inverse || !scale) ? inverse : scale;
    s->input = beside(f, s->module, ".input_scale");
    if (!s->input)
        s->input = beside(f, s->module, ".activation_scale");
    /* A weight of one block has one scale, and so has one with a scale for the tensor. The name of
     * the scale says which it is. */
    const f8_grain like = f->declared.grain == F8_N_GRAINS && s->scale && s->scale == inverse
                              ? F8_BY_BLOCKS
                              : f->declared.grain;
    s->fits = s->scale && f8_grain_of(s->scale->tensor, codes->tensor->dim, like, &s->grain,
                                      &s->rows_are_inputs);
    return F8_OK;
}

/* Whether a tensor is the scale of a weight that is not in FP8, or not there. */
static bool is_stray(const f8_model_folder *f, const f8_weight *w)
{
    char module[F8_MODULE];
    return f8_scale_of(w->name, module) && !f8_model_folder_scaled(f, module);
}

static f8_status find_scaled(f8_model_folder *f, f8_diag *diag)
{
    const size_t n = f->weights.n_named;
    char module[F8_MODULE];
    f->scaled = F8_NEW_ARRAY(&f->memory, f8_scaled, n + 1);
    f->stray = F8_NEW_ARRAY(&f->memory, const f8_weight *, n + 1);
    f->other = F8_NEW_ARRAY(&f->memory, const f8_weight *, n + 1);
    F8_TRY(f8_arena_status(&f->memory, diag));
    for (size_t i = 0; i < n; i++) {
        const f8_weight *w = &f->weights.weight[i];
        if (!f8_is_fp8(w->tensor->dtype))
            continue;
        if (f8_linear_of(w->name, w->tensor->rank, module))
            F8_TRY(add_scaled(f, w, module, diag));
        else
            f->other[f->n_other++] = w;
    }
    for (size_t i = 0; i < n; i++)
        if (is_stray(f, &f->weights.weight[i]))
            f->stray[f->n_stray++] = &f->weights.weight[i];
    return F8_OK;
}

static int by_codes(const void *name, const void *scaled)
{
    return strcmp(name, ((const f8_scaled *)scaled)->codes->name);
}

const f8_scaled *f8_model_folder_scaled(const f8_model_folder *f, const char *module)
{
    char name[F8_MODULE + 10];
    snprintf(name, sizeof name, "%s.weight", module);
    return bsearch(name, f->scaled, f->n_scaled, sizeof *f->scaled, by_codes);
}

bool f8_model_folder_fused(const char *module, int i, char to[F8_MODULE])
{
    static const char *const groups[][4] = {{"q_proj", "k_proj", "v_proj", NULL},
                                            {"gate_proj", "up_proj", NULL, NULL}};
    const char *dot = strrchr(module, '.'), *own = dot ? dot + 1 : module;
    for (int g = 0; g < 2; g++)
        for (int k = 0; groups[g][k]; k++)
            if (!strcmp(own, groups[g][k]))
                return i < (g ? 2 : 3) && snprintf(to, F8_MODULE, "%.*s%s", (int)(own - module),
                                                   module, groups[g][i]) < F8_MODULE;
    return false;
}

/* By the names and shapes of scales. */
static f8_fp8_format format_by_names(const f8_model_folder *f)
{
    bool inverse = false, deep = false;
    if (f8_weights_metadata(&f->weights, "fp8c.stored"))
        return F8_NATIVE;
    for (size_t i = 0; i < f->n_scaled; i++) {
        const f8_weight *scale = f->scaled[i].scale;
        inverse |= scale && f8_text_ends_with(scale->name, "_inv");
        deep |= scale && scale->tensor->rank == 4;
    }
    return inverse       ? F8_HF_FP8
           : deep        ? F8_MODELOPT
           : f->n_scaled ? F8_COMPRESSED_TENSORS
                         : F8_N_FORMATS;
}

/* ---- the whole ---- */

/* Refuses what is quantized by a method that is not FP8's. */
static f8_status check_method(const f8_model_folder *f, f8_diag *diag)
{
    const f8_declared *d = &f->declared;
    char shown[SHOWN];
    if (!d->any || d->format != F8_N_FORMATS)
        return F8_OK;
    return f8_file_fail(
        diag, F8_ERR_INPUT, d->file,
        "fp8c does not read weights quantized by '%s': give the model before quantization, or one "
        "of fp8 (transformers), compressed-tensors or modelopt's FP8",
        f8_st_shown(d->method, shown, sizeof shown));
}

f8_status f8_model_folder_open(f8_model_folder *f, const char *path, const fp8c_load_options *o,
                               const f8_allocator *allocator, f8_diag *diag)
{
    const f8_allocator usual = f8_default_allocator();
    *f = (f8_model_folder){.path = path};
    f->declared = f->also = f8_declared_read(NULL, false, path);
    f8_arena_init(&f->memory, allocator ? allocator : &usual);
    if (f8_is_folder(path))
        f->root = path;
    if (f->root) {
        F8_TRY(f8_folder_json(path, "config.json", &f->memory, &f->config, diag));
        F8_TRY(f8_folder_json(path, "hf_quant_config.json", &f->memory, &f->modelopt, diag));
        const json_t *own = json_object_get(f->config, "quantization_config");
        f->declared =
            f8_declared_read(own, false, f8_arena_printf(&f->memory, "%s/config.json", path));
        f->also = f8_declared_read(f->modelopt, true,
                                   f8_arena_printf(&f->memory, "%s/hf_quant_config.json", path));
        if (!f->declared.any ||
            (f->also.any && f->also.format < F8_N_FORMATS && f->declared.format == F8_MODELOPT)) {
            const f8_declared first = f->declared;
            f->declared = f->also;
            f->also = first;
        }
        F8_TRY(f8_arena_status(&f->memory, diag));
        F8_TRY(check_method(f, diag));
    }
    F8_TRY(open_weights(f, o, diag));
    F8_TRY(find_scaled(f, diag));
    f->format = f->declared.any ? f->declared.format : format_by_names(f);
    return F8_OK;
}

void f8_model_folder_close(f8_model_folder *f)
{
    f8_weights_close(&f->weights);
    json_decref(f->config);
    json_decref(f->modelopt);
    if (f->memory.allocator.alloc)
        f8_arena_end(&f->memory);
    *f = (f8_model_folder){0};
}

bool f8_model_folder_skips(const f8_model_folder *f, const char *module)
{
    return f8_declared_skips(&f->declared, module);
}

bool f8_model_folder_conv1d(const f8_model_folder *f)
{
    static const char *const types[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
    const char *type = f8_model_folder_text(f, "model_type");
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i]))
            return true;
    return false;
}

const char *f8_model_folder_text(const f8_model_folder *f, const char *key)
{
    return json_string_value(json_object_get(f->config, key));
}

/* ---- values ---- */

f8_status f8_model_folder_scales(const f8_scaled *s, f8_arena *memory, float **scales, int64_t *n,
                                 f8_diag *diag)
{
    *n = f8_weight_elements(s->scale->tensor);
    *scales = F8_NEW_ARRAY(memory, float, (size_t)*n + 1);
    F8_TRY(f8_arena_status(memory, diag));
    return f8_weight_values(s->scale, memory, *scales, diag);
}

f8_status f8_model_folder_values(const f8_scaled *s, f8_arena *memory, float *to, f8_diag *diag)
{
    const f8_granularity covers = f8_grain_covers(s->grain, s->rows_are_inputs);
    const int64_t *dim = s->codes->tensor->dim;
    const int64_t span[] = {covers.rows ? covers.rows : dim[0], covers.cols ? covers.cols : dim[1]};
    float *scales;
    int64_t n;
    F8_TRY(f8_weight_values(s->codes, memory, to, diag));
    F8_TRY(f8_model_folder_scales(s, memory, &scales, &n, diag));
    f8_scale_values(to, s->codes->tensor, span, scales);
    return F8_OK;
}
