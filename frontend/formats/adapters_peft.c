/* A folder of adapters as peft's save_pretrained writes it: adapter_config.json, and
 * adapter_model.safetensors with "base_model.model.MODULE.lora_A.weight" and "lora_B.weight". What
 * they are scaled by is alpha / r, or alpha / sqrt(r). Source: peft 0.21, tuners/lora/config.py and
 * layer.py, utils/save_and_load.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/formats/adapters_parts.h"
#include "ir/base/text.h"

enum { SHOWN = 200 };

static const char config_name[] = "adapter_config.json";
static const char prefix[] = "base_model.model.", end_a[] = ".lora_A.weight",
                  end_b[] = ".lora_B.weight";

/* ---- the config ---- */

/* Whether a value says something: not false, null, 0, "", "none", [] or {}. */
static bool says(const json_t *v)
{
    return v && !json_is_false(v) && !json_is_null(v) &&
           !(json_is_number(v) && json_number_value(v) == 0) &&
           !(json_is_string(v) &&
             (!*json_string_value(v) || !strcmp(json_string_value(v), "none"))) &&
           !(json_is_array(v) && !json_array_size(v)) &&
           !(json_is_object(v) && !json_object_size(v));
}

/* The key of what the config asks for that is more than a product beside a weight; NULL: none. */
static const char *asks_for_more(json_t *config)
{
    static const char *const keys[] = {"bias",
                                       "lora_bias",
                                       "alora_invocation_tokens",
                                       "layer_replication",
                                       "target_parameters",
                                       "trainable_token_indices",
                                       "modules_to_save",
                                       "monteclora_config",
                                       "kasa_config",
                                       "arrow_config"};
    const char *key;
    json_t *value;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (says(json_object_get(config, keys[i])))
            return keys[i];
    json_object_foreach (config, key, value) /* use_dora, use_qalora, and others to come */
        if (!strncmp(key, "use_", 4) && strcmp(key, "use_rslora") && says(value))
            return key;
    return NULL;
}

/* Some ways to initialize adapters (PiSSA, OLoRA, LoftQ, ...) also change the base's weights. Such
 * adapters do not fit the base as it was before. */
static bool changes_base(const json_t *config)
{
    static const char *const fine[] = {"gaussian", "eva", "orthogonal"};
    const char *how = json_string_value(json_object_get(config, "init_lora_weights"));
    for (size_t i = 0; how && i < sizeof fine / sizeof *fine; i++)
        if (!strcmp(how, fine[i]))
            return false;
    return how != NULL;
}

static f8_status check_config(const f8_adapters *a, json_t *config, f8_diag *diag)
{
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    const char *more = asks_for_more(config);
    char shown[SHOWN];
    if (!config)
        return f8_file_fail(diag, F8_ERR_INPUT, a->path, "it has no %s, which peft writes",
                            config_name);
    if (!type || strcmp(type, "LORA"))
        return f8_file_fail(diag, F8_ERR_INPUT, a->path, "its adapters are %s, not LORA",
                            type ? f8_st_shown(type, shown, SHOWN) : "of no peft_type");
    if (more)
        return f8_file_fail(diag, F8_ERR_INPUT, a->path,
                            "%s has '%s': --adapters adds products of two factors to weights, and "
                            "nothing else",
                            config_name, f8_st_shown(more, shown, SHOWN));
    if (changes_base(config))
        return f8_file_fail(
            diag, F8_ERR_INPUT, a->path,
            "init_lora_weights is '%s', which may change the base's weights: convert the adapters "
            "with peft (path_initial_model_for_weight_conversion)",
            f8_st_shown(json_string_value(json_object_get(config, "init_lora_weights")), shown,
                        SHOWN));
    if (!json_is_number(json_object_get(config, "lora_alpha")))
        return f8_file_fail(diag, F8_ERR_INPUT, a->path, "%s has no lora_alpha", config_name);
    return F8_OK;
}

/* Whether `end` is the end of `text`; a dot of `end` stands for any character. */
static bool is_end(const char *text, const char *end)
{
    const size_t n = strlen(end), all = strlen(text);
    for (size_t i = 0; n <= all && i < n; i++)
        if (end[i] != '.' && end[i] != text[all - n + i])
            return false;
    return n && n <= all && (n == all || text[all - n - 1] == '.');
}

/* The alpha of a module: that of the first pattern that is its name or the end of it, from a dot
 * on. peft's patterns are regular expressions; of these only the dot is known here. */
static f8_status alpha_of(const f8_adapters *a, json_t *config, const char *module, double *alpha,
                          f8_diag *diag)
{
    json_t *patterns = json_object_get(config, "alpha_pattern"), *value;
    const char *pattern;
    char shown[SHOWN];
    if (says(patterns) && !json_is_object(patterns))
        return f8_file_fail(diag, F8_ERR_INPUT, a->path, "alpha_pattern is no JSON object");
    *alpha = json_number_value(json_object_get(config, "lora_alpha"));
    json_object_foreach (patterns, pattern, value) {
        if (pattern[strcspn(pattern, "\\^$*+?()[]{}|")])
            return f8_file_fail(diag, F8_ERR_INPUT, a->path,
                                "alpha_pattern has the regular expression '%s': --adapters takes "
                                "names there",
                                f8_st_shown(pattern, shown, SHOWN));
        if (!json_is_number(value))
            return f8_file_fail(diag, F8_ERR_INPUT, a->path, "alpha_pattern's '%s' is no number",
                                f8_st_shown(pattern, shown, SHOWN));
        if (is_end(module, pattern)) {
            *alpha = json_number_value(value);
            return F8_OK;
        }
    }
    return F8_OK;
}

/* ---- the factors ---- */

typedef struct base {
    const f8_model_folder *from, *model;
} base;

/* How the weight lies. Its shape tells, where it is not square. Else the model does: peft goes by
 * the module, and leaves in its config the fan_in_fan_out of the last one. */
static f8_adapter_kind kind_of(const json_t *config, const f8_adapter *x, const base *base)
{
    char name[F8_MODULE + 8];
    snprintf(name, sizeof name, "%s.weight", x->module);
    const f8_weight *w = f8_weights_find(&base->from->weights, name);
    if (w && w->tensor->rank == 2 && w->tensor->dim[0] != w->tensor->dim[1])
        return x->b->tensor->dim[0] == w->tensor->dim[0] ? F8_ADAPTER_OUT_IN : F8_ADAPTER_IN_OUT;
    const bool in_out = base->model->config
                            ? f8_model_folder_conv1d(base->model) && strcmp(x->module, "lm_head")
                            : says(json_object_get(config, "fan_in_fan_out"));
    return in_out ? F8_ADAPTER_IN_OUT : F8_ADAPTER_OUT_IN;
}

static f8_status add(f8_adapters *a, json_t *config, const base *base, const f8_weight *w,
                     f8_diag *diag)
{
    const size_t n = strlen(prefix), cut = strlen(w->name) - strlen(end_a);
    const bool rs = says(json_object_get(config, "use_rslora"));
    char shown[SHOWN];
    f8_adapter x = {.a = w};
    double alpha = 0;
    if (strncmp(w->name, prefix, n) || cut <= n)
        return f8_file_fail(diag, F8_ERR_INPUT, w->file->in.path,
                            "the name '%s' does not begin with %s",
                            f8_st_shown(w->name, shown, SHOWN), prefix);
    x.module = f8_arena_printf(&a->memory, "%.*s", (int)(cut - n), w->name + n);
    const char *other = f8_arena_printf(&a->memory, "%.*s%s", (int)cut, w->name, end_b);
    F8_TRY(f8_arena_status(&a->memory, diag));
    x.b = f8_weights_find(&a->weights, other);
    if (!x.b)
        return f8_file_fail(diag, F8_ERR_INPUT, w->file->in.path, "there is no '%s' beside '%s'",
                            f8_st_shown(other, shown, SHOWN), w->name);
    F8_TRY(alpha_of(a, config, x.module, &alpha, diag));
    const double r = w->tensor->rank == 2 ? (double)w->tensor->dim[0] : 0;
    x.factor = r > 0 ? alpha / (rs ? sqrt(r) : r) : 0;
    x.kind = kind_of(config, &x, base);
    a->adapter[a->n++] = x;
    return F8_OK;
}

static f8_status list(f8_adapters *a, json_t *config, const base *base, f8_diag *diag)
{
    char shown[SHOWN];
    a->adapter = F8_NEW_ARRAY(&a->memory, f8_adapter, a->weights.n_named + 1);
    F8_TRY(f8_arena_status(&a->memory, diag));
    for (size_t i = 0; i < a->weights.n_named; i++) {
        const f8_weight *w = &a->weights.weight[i];
        if (f8_text_ends_with(w->name, end_a))
            F8_TRY(add(a, config, base, w, diag));
        else if (!f8_text_ends_with(w->name, end_b))
            return f8_file_fail(
                diag, F8_ERR_INPUT, w->file->in.path,
                "'%s' is no factor of an adapter, *%s or *%s: --adapters adds products "
                "of two factors to weights, and nothing else%s",
                f8_st_shown(w->name, shown, SHOWN), end_a, end_b,
                strstr(w->name, ".base_layer.")
                    ? " (peft leaves out weights of the base with save_embedding_layers=False)"
                    : "");
    }
    if (2 * a->n != a->weights.n_named)
        return f8_file_fail(diag, F8_ERR_INPUT, a->path,
                            "it has %zu factors *%s and %zu factors *%s", a->n, end_a,
                            a->weights.n_named - a->n, end_b);
    return a->n ? f8_adapters_finish(a, diag)
                : f8_file_fail(diag, F8_ERR_INPUT, a->path, "it has no adapters");
}

static f8_status open_with(f8_adapters *a, json_t **config, const base *base, f8_diag *diag)
{
    fp8c_load_options o = {.struct_size = sizeof o};
    const char **files;
    if (!f8_is_folder(a->path))
        return f8_file_fail(diag, F8_ERR_INPUT, a->path,
                            "it is no folder: --adapters takes one that peft wrote, or WEIGHT=A,B");
    F8_TRY(f8_folder_json(a->path, config_name, &a->memory, config, diag));
    F8_TRY(check_config(a, *config, diag));
    F8_TRY(f8_folder_files(a->path, &a->memory, &files, &o.n_files, diag));
    o.files = files;
    F8_TRY(f8_weights_open_as_they_are(&a->weights, &o, &a->memory.allocator, diag));
    return list(a, *config, base, diag);
}

f8_status f8_adapters_of_folder(f8_adapters *a, const f8_model_folder *from,
                                const f8_model_folder *model, f8_diag *diag)
{
    json_t *config = NULL;
    const base base = {from, model};
    const f8_status status = open_with(a, &config, &base, diag);
    json_decref(config);
    return status;
}
