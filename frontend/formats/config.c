/* What config.json says of FP8 weights in each format: see convert.h. Sources: the README. */
#include "frontend/formats/convert.h"

#include <string.h>

#include "frontend/fp8c.h"

static json_t *skipped(const f8_described *d)
{
    return json_incref(d->skipped);
}

/* ---- hf-fp8 ---- */

static json_t *hf_fp8(const f8_described *d)
{
    return json_pack("{ss ss ss s[ii] so}", "quant_method", "fp8", "fmt", "e4m3",
                     "activation_scheme", "dynamic", "weight_block_size", F8_BLOCK, F8_BLOCK,
                     "modules_to_not_convert", skipped(d));
}

/* ---- compressed-tensors ---- */

static json_t *numbers(const char *strategy, bool dynamic)
{
    return json_pack("{si ss sb sb ss}", "num_bits", 8, "type", "float", "symmetric", 1, "dynamic",
                     dynamic, "strategy", strategy);
}

static void add_exponents(json_t *numbers)
{
    json_object_set_new(numbers, "group_size", json_integer(F8_MX_RUN));
    json_object_set_new(numbers, "scale_dtype", json_string("torch.uint8"));
    json_object_set_new(numbers, "zp_dtype", json_string("torch.uint8"));
}

static json_t *weights_of(f8_grain grain)
{
    json_t *w = numbers(f8_grains[grain].strategy, false);
    if (grain == F8_BY_BLOCKS)
        json_object_set_new(w, "block_structure", json_pack("[ii]", F8_BLOCK, F8_BLOCK));
    if (grain == F8_BY_MX)
        add_exponents(w);
    return w;
}

static json_t *inputs_of(const f8_described *d)
{
    json_t *x =
        numbers(d->static_inputs ? "tensor" : f8_grains[d->grain].inputs, !d->static_inputs);
    if (d->grain == F8_BY_BLOCKS)
        json_object_set_new(x, "group_size", json_integer(F8_BLOCK));
    if (d->grain == F8_BY_MX)
        add_exponents(x);
    return x;
}

static json_t *compressed(const f8_described *d)
{
    const char *layout = d->grain == F8_BY_MX ? "mxfp8-quantized" : "float-quantized";
    return json_pack("{ss ss ss s{s{s[s] so so sn ss}} so sn}", "quant_method",
                     "compressed-tensors", "format", layout, "quantization_status", "compressed",
                     "config_groups", "group_0", "targets", "Linear", "weights",
                     weights_of(d->grain), "input_activations", inputs_of(d), "output_activations",
                     "format", layout, "ignore", skipped(d), "kv_cache_scheme");
}

/* ---- modelopt ---- */

static json_t *producer(void)
{
    return json_pack("{ss ss}", "name", "fp8c", "version", fp8c_version());
}

static json_t *modelopt(const f8_described *d)
{
    return json_pack("{ss ss so so}", "quant_method", "modelopt", "quant_algo",
                     f8_grains[d->grain].algorithm, "ignore", skipped(d), "producer", producer());
}

json_t *f8_describe_modelopt(const f8_described *d)
{
    return d->format == F8_MODELOPT
               ? json_pack("{so s{ss sn so}}", "producer", producer(), "quantization", "quant_algo",
                           f8_grains[d->grain].algorithm, "kv_cache_quant_algo", "exclude_modules",
                           skipped(d))
               : NULL;
}

/* ---- all ---- */

json_t *f8_describe(const f8_described *d)
{
    return d->format == F8_HF_FP8               ? hf_fp8(d)
           : d->format == F8_COMPRESSED_TENSORS ? compressed(d)
                                                : modelopt(d);
}

const char *f8_tied_head(const json_t *config)
{
    static const struct {
        const char *end, *module;
    } heads[] = {{"ForCausalLM", "lm_head"},
                 {"LMHeadModel", "lm_head"},
                 {"ForConditionalGeneration", "lm_head"},
                 {"ForMaskedLM", "cls.predictions.decoder"},
                 {"ForPreTraining", "cls.predictions.decoder"}};
    const char *name =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    for (size_t i = 0; name && i < sizeof heads / sizeof *heads; i++) {
        const size_t n = strlen(name), k = strlen(heads[i].end);
        if (n >= k && !strcmp(name + n - k, heads[i].end))
            return heads[i].module;
    }
    return NULL;
}
