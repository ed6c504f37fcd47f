/* Whether a folder's config and its tensors say the same: see lint.h. */
#include "frontend/formats/lint.h"

#include <stdio.h>
#include <string.h>

static const char config_kind[] = "config";

static bool ends(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end);
}

/* Whether a module's weight is a table of rows that are looked up, and no linear's. */
static bool is_embedding(const char *module)
{
    static const char *const names[] = {"embed_tokens",
                                        "wte",
                                        "wpe",
                                        "embed_in",
                                        "word_embeddings",
                                        "position_embeddings",
                                        "token_type_embeddings",
                                        "embeddings"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ends(module, names[i]))
            return true;
    return false;
}

static bool is_head(const char *module)
{
    return ends(module, "lm_head") || ends(module, "embed_out") || ends(module, "score") ||
           strstr(module, "cls.");
}

/* ---- linears that stay out ---- */

/* A matrix that is not in FP8: the config has to name it, or loaders expect codes. */
static void check_plain(f8_lint *l, const f8_weight *w)
{
    const f8_model_folder *f = l->folder;
    char module[1024];
    if (w->tensor->rank != 2 || !ends(w->name, ".weight"))
        return;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(w->name) - strlen(".weight")), w->name);
    if (is_embedding(module) || f8_model_folder_scaled(f, module) ||
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
    static const char *const groups[][4] = {{"q_proj", "k_proj", "v_proj", NULL},
                                            {"gate_proj", "up_proj", NULL, NULL}};
    char module[1024], weight[1040];
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 4 && groups[g][i]; i++) {
            const size_t n = strlen(s->module), k = strlen(groups[g][i]);
            if (!ends(s->module, groups[g][i]) || (n > k && s->module[n - k - 1] != '.'))
                continue;
            for (int o = 0; o < 4 && groups[g][o]; o++) {
                snprintf(module, sizeof module, "%.*s%s", (int)(n - k), s->module, groups[g][o]);
                snprintf(weight, sizeof weight, "%s.weight", module);
                const f8_weight *w = f8_weights_find(&l->folder->weights, weight);
                if (w && !f8_model_folder_scaled(l->folder, module))
                    f8_lint_add(l, "half-quantized", w, f8_source_vllm,
                                "%s is not in FP8, but %s is: vLLM makes one linear of them",
                                module, s->module);
            }
        }
}

/* ---- names and activations ---- */

static void check_name(f8_lint *l, const f8_scaled *s)
{
    const f8_model_folder *f = l->folder;
    if (!s->scale || !f->declared.any)
        return;
    const bool inverse = ends(s->scale->name, "_inv");
    const bool wants = f->format == F8_HF_FP8 && f->declared.grain == F8_BY_BLOCKS;
    if (inverse == wants || (f->format == F8_MODELOPT && inverse))
        return;
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
            "the config says that activations are scaled as they come: this scale is not used");
    if (s->input && f8_model_folder_elements(s->input->tensor) != 1)
        f8_lint_add(l, "input-scale", s->input, f->declared.file,
                    "the scale of an input is one number");
}

/* ---- the config itself ---- */

static void check_block_size(f8_lint *l)
{
    const f8_declared *d = &l->folder->declared;
    const json_t *size = json_object_get(d->quantization, "weight_block_size");
    if (d->format != F8_HF_FP8 || !size)
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

void f8_lint_config(f8_lint *l)
{
    const f8_model_folder *f = l->folder;
    check_formats_agree(l);
    check_block_size(l);
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
}
