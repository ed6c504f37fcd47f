/* What a folder's config says of quantization: see folder.h. Sources: the README of format.h's
 * table. */
#include "frontend/formats/folder.h"

#include <regex.h>
#include <string.h>

#include "ir/base/pattern.h"

static const char *text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is(const char *a, const char *b)
{
    return a && !strcmp(a, b);
}

/* ---- methods ---- */

static void read_hf(f8_declared *d)
{
    const json_t *size = json_object_get(d->quantization, "weight_block_size");
    d->format = F8_HF_FP8;
    /* where it is missing, vLLM takes one scale, and transformers blocks: shapes decide */
    d->grain = json_array_size(size) == 2 ? F8_BY_BLOCKS : size ? F8_BY_TENSOR : F8_N_GRAINS;
    d->static_inputs = is(text(d->quantization, "activation_scheme"), "static");
}

/* A group of compressed-tensors: {"weights": {...}, "input_activations": {...}}. */
static f8_grain grain_of_group(const json_t *group)
{
    const json_t *w = json_object_get(group, "weights");
    const char *strategy = text(w, "strategy");
    if (json_integer_value(json_object_get(w, "num_bits")) != 8 || !is(text(w, "type"), "float"))
        return F8_N_GRAINS;
    if (!strategy)
        return F8_BY_TENSOR;
    for (f8_grain g = F8_BY_TENSOR; g < F8_N_GRAINS; g++)
        if (is(strategy, f8_grains[g].strategy) &&
            (g != F8_BY_MX || json_integer_value(json_object_get(w, "group_size")) == F8_MX_RUN))
            return g;
    return F8_N_GRAINS;
}

static void read_compressed(f8_declared *d)
{
    const char *name;
    json_t *group;
    d->format = F8_COMPRESSED_TENSORS;
    json_object_foreach (json_object_get(d->quantization, "config_groups"), name, group) {
        const json_t *inputs = json_object_get(group, "input_activations");
        d->grain = grain_of_group(group);
        d->static_inputs =
            json_is_object(inputs) && json_is_false(json_object_get(inputs, "dynamic"));
        return;
    }
}

/* modelopt 0.47 writes "FP8", but "fp8_pb_wo"; checkpoints of NVIDIA's have "FP8_PB_WO". */
static bool is_algorithm(const char *a, const char *b)
{
    for (; a && *a && *b; a++, b++)
        if (*a != *b && (*a < 'a' || *a > 'z' || *a - 'a' + 'A' != *b))
            return false;
    return a && *a == *b;
}

static void read_modelopt(f8_declared *d)
{
    const char *algorithm = text(d->quantization, "quant_algo");
    for (f8_grain g = F8_BY_TENSOR; g < F8_N_GRAINS; g++)
        if (is_algorithm(algorithm, f8_grains[g].algorithm)) {
            d->format = F8_MODELOPT;
            d->grain = g;
        }
    d->method = algorithm ? algorithm : "modelopt";
    d->static_inputs = d->grain == F8_BY_TENSOR;
}

static const char *const lists[] = {"modules_to_not_convert", "ignored_layers", "ignore",
                                    "exclude_modules"};
enum { N_LISTS = sizeof lists / sizeof *lists };

static bool has_list(const json_t *quantization)
{
    for (int i = 0; i < N_LISTS; i++)
        if (json_is_array(json_object_get(quantization, lists[i])))
            return true;
    return false;
}

f8_declared f8_declared_read(const json_t *quantization, bool modelopt, const char *file)
{
    const json_t *own = modelopt ? json_object_get(quantization, "quantization") : quantization;
    f8_declared d = {.format = F8_N_FORMATS, .grain = F8_N_GRAINS, .file = file};
    if (!json_is_object(own))
        return d;
    d.any = true;
    d.quantization = own;
    d.lists = has_list(own);
    d.method = modelopt ? "modelopt" : text(own, "quant_method");
    if (!d.method)
        d.method = "";
    if (is(d.method, "fp8"))
        read_hf(&d);
    else if (is(d.method, "compressed-tensors"))
        read_compressed(&d);
    else if (is(d.method, "modelopt"))
        read_modelopt(&d);
    return d;
}

/* ---- what is left out ---- */

/* "re:PATTERN" is a regular expression that begins at the name's beginning. */
static bool matches_expression(const char *pattern, const char *module)
{
    regex_t compiled;
    regmatch_t at;
    if (regcomp(&compiled, pattern, REG_EXTENDED))
        return false;
    const bool found = !regexec(&compiled, module, 1, &at, 0) && at.rm_so == 0;
    regfree(&compiled);
    return found;
}

/* Whether `name` stands in `module` between dots, or at an end. */
static bool is_part(const char *name, const char *module)
{
    const size_t n = strlen(name);
    for (const char *at = module; n && (at = strstr(at, name)); at++)
        if ((at == module || at[-1] == '.') && (!at[n] || at[n] == '.'))
            return true;
    return false;
}

bool f8_declared_skips(const f8_declared *d, const char *module)
{
    json_t *entry;
    size_t k;
    for (int i = 0; i < N_LISTS; i++)
        json_array_foreach (json_object_get(d->quantization, lists[i]), k, entry) {
            const char *name = json_string_value(entry);
            if (name && (!strncmp(name, "re:", 3)
                             ? matches_expression(name + 3, module)
                             : f8_pattern_match(name, module) || is_part(name, module)))
                return true;
        }
    return false;
}
