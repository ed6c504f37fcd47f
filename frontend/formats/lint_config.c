/* Whether a folder's config and its tensors say the same: see lint.h. */
#include "frontend/formats/lint.h"

#include <stdio.h>
#include <string.h>

#include "ir/base/text.h"

static const char config_kind[] = "config";

/* Whether a module's weight is a table of rows that are looked up, and no linear's. */
static bool is_embedding(const char *module)
{
    static const char *const names[] = {"embed_tokens", "wte",       "wpe",
                                        "embed_in",     "embedding", "embeddings",
                                        "pos_embed",    "shared",    "relative_attention_bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (f8_text_ends_with(module, names[i]))
            return true;
    return false;
}

static bool is_head(const char *module)
{
    return f8_text_ends_with(module, "lm_head") || f8_text_ends_with(module, "embed_out") ||
           f8_text_ends_with(module, "score") || strstr(module, "cls.");
}

static bool is_router(const char *module)
{
    return f8_text_ends_with(module, ".gate") || f8_text_ends_with(module, ".router");
}

/* ---- linears that stay out ---- */

/* Whether loaders leave a module out by themselves: transformers and vLLM a head, where the config
 * has no list; and routers, which are no linears there. DeepSeek-V3 relies on it. */
static bool is_left_out(const f8_model_folder *f, const char *module)
{
    return f->format == F8_HF_FP8 && !f->declared.lists && (is_head(module) || is_router(module));
}

/* A matrix that is not in FP8: the config has to name it, or loaders expect codes. */
static void check_plain(f8_lint *l, const f8_weight *w)
{
    const f8_model_folder *f = l->folder;
    char module[F8_MODULE];
    if (!f8_linear_of(w->name, w->tensor->rank, module))
        return;
    if (is_embedding(module) || is_left_out(f, module) || f8_model_folder_scaled(f, module) ||
        f8_model_folder_skips(f, module))
        return;
    f8_lint_add(l, "not-quantized", w, f->declared.file,
                "%s is %s, but the config does not leave it out: a loader expects FP8 codes",
                module, f8_st_dtype_name(w->tensor->dtype));
}

static void check_skipped(f8_lint *l, const f8_scaled *s)
{
    if (f8_model_folder_skips(l->folder, s->module))
        f8_lint_add(
            l, "quantized-but-ignored", s->codes, l->folder->declared.file,
            "%s%s is in FP8, but the config says that it is not: a loader would take the codes for "
            "values",
            is_head(s->module)          ? "the head "
            : strstr(s->module, "gate") ? "the router or gate "
                                        : "",
            s->module);
}

/* Linears that loaders make one of must all be FP8, or none. */
static void check_fused_by_loaders(f8_lint *l, const f8_scaled *s)
{
    char module[F8_MODULE], weight[F8_MODULE + 10];
    bool told = false; /* by one of them that came before */
    for (int i = 0; !told && f8_model_folder_fused(s->module, i, module); i++) {
        if (!strcmp(module, s->module))
            break;
        told = f8_model_folder_scaled(l->folder, module);
    }
    for (int i = 0; !told && f8_model_folder_fused(s->module, i, module); i++) {
        snprintf(weight, sizeof weight, "%s.weight", module);
        const f8_weight *w = f8_weights_find(&l->folder->weights, weight);
        if (w && !f8_model_folder_scaled(l->folder, module))
            f8_lint_add(l, "half-quantized", w, f8_source_vllm,
                        "%s is not in FP8, but %s is: vLLM makes one linear of them", module,
                        s->module);
    }
}

/* ---- names and activations ---- */

static void check_name(f8_lint *l, const f8_scaled *s)
{
    const f8_model_folder *f = l->folder;
    if (!s->scale || !f->declared.any)
        return;
    const bool inverse = f8_text_ends_with(s->scale->name, "_inv");
    const bool wants = f->format == F8_HF_FP8 && f->declared.grain == F8_BY_BLOCKS;
    if (inverse == wants || (f->format == F8_MODELOPT && inverse) ||
        (f->format == F8_HF_FP8 && f->declared.grain == F8_BY_TENSOR))
        return; /* for one scale vLLM has the one name, and transformers the other */
    f8_lint_add(l, "scale-name", s->scale, f->declared.file,
                "the config says %s, whose scales are called weight_scale%s", f->declared.method,
                wants ? "_inv" : "");
}

static void check_inputs(f8_lint *l, const f8_scaled *s)
{
    const f8_model_folder *f = l->folder;
    if (!f->declared.any)
        return;
    if (f->declared.static_inputs && !s->input)
        f8_lint_add(
            l, "missing-input-scale", s->codes, f->declared.file,
            "the config says that activations have scales in the files: there is no %s.input_scale",
            s->module);
    if (!f->declared.static_inputs && s->input)
        f8_lint_add(
            l, "input-scale", s->input, f->declared.file,
            "the config says that activations are scaled dynamically, so loaders ignore this "
            "scale: declare static scales, or remove it");
    if (s->input && f8_weight_elements(s->input->tensor) != 1)
        f8_lint_add(l, "input-scale", s->input, f->declared.file,
                    "the scale of an input is one number");
}

/* ---- the config itself ---- */

static void check_block_size(f8_lint *l)
{
    const f8_declared *d = &l->folder->declared;
    const json_t *size = json_object_get(d->quantization, "weight_block_size");
    if (d->format != F8_HF_FP8 || !size || json_is_null(size))
        return;
    for (size_t i = 0; i < 2; i++)
        if (json_integer_value(json_array_get(size, i)) != F8_BLOCK) {
            f8_lint_add(
                l, config_kind, NULL, f8_source_deepseek,
                "weight_block_size is not [128, 128]: kernels for other blocks are rare, and fp8c "
                "reads these alone");
            return;
        }
}

static void check_formats_agree(f8_lint *l)
{
    const f8_model_folder *f = l->folder;
    if (f->declared.any && f->also.any &&
        (f->declared.format != f->also.format || f->declared.grain != f->also.grain))
        f8_lint_add(l, config_kind, NULL, f->also.file,
                    "%s says '%s', but %s says '%s': loaders differ in which they believe",
                    f->declared.file, f->declared.method, f->also.file, f->also.method);
}

/* Two configs that leave out other weights. */
static void check_lists_agree(f8_lint *l, const f8_weight *w)
{
    const f8_model_folder *f = l->folder;
    char module[F8_MODULE];
    if (!f->also.any || !f8_linear_of(w->name, w->tensor->rank, module))
        return;
    const bool skips = f8_declared_skips(&f->declared, module);
    if (!is_embedding(module) && skips != f8_declared_skips(&f->also, module))
        f8_lint_add(l, config_kind, w, f->also.file,
                    "%s leaves %s out, and %s does not: loaders differ in which they believe",
                    skips ? f->declared.file : f->also.file, module,
                    skips ? f->also.file : f->declared.file);
}

/* Groups that are no FP8: INT4's, say. */
static void check_group(f8_lint *l)
{
    const f8_declared *d = &l->folder->declared;
    if (d->format == F8_COMPRESSED_TENSORS && d->grain == F8_N_GRAINS && l->folder->n_scaled)
        f8_lint_add(l, config_kind, NULL, f8_source_compressed,
                    "weights are FP8, but the first of config_groups is no FP8 that fp8c knows: "
                    "8 bits, float, by tensor, channel, block, or group of 32");
}

void f8_lint_config(f8_lint *l)
{
    const f8_model_folder *f = l->folder;
    check_formats_agree(l);
    check_block_size(l);
    check_group(l);
    if (f->root && f->n_scaled && !f->declared.any && f->format != F8_NATIVE)
        f8_lint_add(l, config_kind, f->scaled[0].codes, f8_source_transformers,
                    "%zu weights are FP8, but %s: a loader takes the codes for values", f->n_scaled,
                    f->config ? "config.json has no quantization_config"
                              : "there is no config.json");
    if (f->declared.any && !f->n_scaled)
        f8_lint_add(l, config_kind, NULL, f->declared.file,
                    "the config says that weights are FP8 ('%s'), but none is", f->declared.method);
    for (size_t i = 0; i < f->n_scaled; i++) {
        check_skipped(l, &f->scaled[i]);
        check_fused_by_loaders(l, &f->scaled[i]);
        check_name(l, &f->scaled[i]);
        check_inputs(l, &f->scaled[i]);
    }
    for (size_t i = 0; f->declared.any && f->n_scaled && i < f->weights.n_named; i++)
        check_plain(l, &f->weights.weight[i]);
    for (size_t i = 0; i < f->weights.n_named; i++)
        check_lists_agree(l, &f->weights.weight[i]);
}

/* ---- the index ---- */

/* That the files have what the index lists was seen when they were opened; here the reverse. */
f8_status f8_lint_index(f8_lint *l, f8_diag *diag)
{
    const f8_model_folder *f = l->folder;
    const char **files;
    size_t n;
    json_t *tensors, *owner = NULL;
    if (!f->index)
        return F8_OK;
    const f8_status status =
        f8_index_read(f->index, &l->memory, &files, &n, &tensors, &owner, diag);
    for (size_t i = 0; status == F8_OK && i < f->weights.n; i++)
        if (!json_object_get(tensors, f->weights.weight[i].tensor->name))
            f8_lint_add(l, config_kind, &f->weights.weight[i], f->index,
                        "the index does not list it: a loader that goes by the index lacks it");
    json_decref(owner);
    return status;
}
