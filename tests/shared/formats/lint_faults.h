/* What can be wrong with a folder of FP8 weights: functions that put one fault into a made folder,
 * and the table of what the linter finds of each. check_lint.c includes this. */
#ifndef F8_TESTS_LINT_FAULTS_H
#define F8_TESTS_LINT_FAULTS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "tests/shared/formats/made_folder.h"

#define L0 "model.layers.0."
#define L1 "model.layers.1."

/* ---- faults ---- */

static void set_text(json_t *o, const char *key, const char *text)
{
    ck_assert_int_eq(json_object_set_new(o, key, json_string(text)), 0);
}

static void rename_tensor(made_folder *f, const char *from, const char *to)
{
    snprintf(made_find(f, from)->name, MADE_NAME, "%s", to);
}

/* Another tensor in its place, all zeros. */
static made_tensor *instead(made_folder *f, const char *name, f8_st_dtype dtype, int64_t a,
                            int64_t b)
{
    made_drop(f, name);
    return made_add(f, name, dtype, a, b, -1, -1);
}

static void no_scale(made_folder *f)
{
    made_drop(f, made_scale(f, L1 "mlp.down_proj")->name);
}

static void one_inverted(made_folder *f)
{
    made_tensor *s = made_scale(f, L0 "mlp.gate_proj");
    for (int64_t i = 0; i < made_count(s); i++)
        made_set(s, i, 1 / made_get(s, i));
}

static bool is_scale(const char *name)
{
    return strstr(name, ".weight_scale");
}

static void all_inverted(made_folder *f)
{
    for (size_t k = 0; k < f->n; k++)
        for (int64_t i = 0; is_scale(f->t[k].name) && i < made_count(&f->t[k]); i++)
            made_set(&f->t[k], i, 1 / made_get(&f->t[k], i));
}

static void transposed_scales(made_folder *f)
{
    made_tensor *s = made_scale(f, L1 "mlp.down_proj");
    const int64_t rows = s->dim[0];
    s->dim[0] = s->dim[1];
    s->dim[1] = rows;
}

static void blocks_of_64(made_folder *f)
{
    json_t *size = json_object_get(made_quantization(f), "weight_block_size");
    json_array_set_new(size, 0, json_integer(64));
    json_array_set_new(size, 1, json_integer(64));
}

static void scales_are_bytes(made_folder *f)
{
    const made_tensor s = *made_scale(f, L0 "self_attn.q_proj");
    made_tensor *t =
        instead(f, L0 "self_attn.q_proj.weight_scale_inv", F8_ST_U8, s.dim[0], s.dim[1]);
    for (int64_t i = 0; i < made_count(t); i++)
        made_set(t, i, 0x1p-12f);
}

static void foreign_name(made_folder *f)
{
    rename_tensor(f, L0 "mlp.up_proj.weight_scale_inv", L0 "mlp.up_proj.weight_scale");
}

static void nan_code(made_folder *f)
{
    made_find(f, L1 "mlp.up_proj.weight")->data[1000] = 0x7f;
}

static void fnuz_dtype(made_folder *f)
{
    made_find(f, L0 "self_attn.o_proj.weight")->dtype = F8_ST_F8_E4M3FNUZ;
}

static void nan_scale(made_folder *f)
{
    made_set(made_scale(f, L0 "self_attn.k_proj"), 0, NAN);
}

/* vLLM's qkv_proj, saved with the scales of its three parts. */
static void fused_scales(made_folder *f)
{
    static const char *const part[] = {"q", "k", "v"};
    char name[MADE_NAME];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, L1 "self_attn.%s_proj", part[i]);
        made_drop(f, made_scale(f, name)->name);
        snprintf(name, sizeof name, L1 "self_attn.%s_proj.weight", part[i]);
        made_drop(f, name);
    }
    made_tensor *w = made_add(f, L1 "self_attn.qkv_proj.weight", F8_ST_F8_E4M3, 512, 256, -1, -1);
    for (int64_t i = 0; i < made_count(w); i++)
        made_set(w, i, (float)(i % 17 - 8) * 12);
    made_tensor *s = made_add(f, L1 "self_attn.qkv_proj.weight_scale", F8_ST_F32, 3, -1, -1, -1);
    for (int i = 0; i < 3; i++)
        made_set(s, i, 2e-4f);
}

static void head_in_fp8(made_folder *f)
{
    made_to_fp8(f, "lm_head");
}

static void k_in_bf16(made_folder *f)
{
    made_to_bf16(f, L0 "self_attn.k_proj");
}

static void no_input_scale(made_folder *f)
{
    made_drop(f, L1 "self_attn.o_proj.input_scale");
}

static void other_algo(made_folder *f)
{
    set_text(json_object_get(f->quant, "quantization"), "quant_algo", "NVFP4");
}

static void router_in_fp8(made_folder *f)
{
    made_to_fp8(f, L1 "mlp.gate");
}

static void negative_scale(made_folder *f)
{
    made_set(made_scale(f, L1 "mlp.gate_proj"), 3, -2e-4f);
}

static void scale_of_another(made_folder *f)
{
    made_times(made_scale(f, L1 "self_attn.v_proj"), 1 / 2500.0f);
}

static void listed_elsewhere(made_folder *f)
{
    made_find(f, L0 "mlp.up_proj.weight_scale_inv")->file = 1;
    f->index = json_object();
    for (size_t i = 0; i < f->n; i++)
        set_text(f->index, f->t[i].name,
                 f->t[i].file ? "model-00002-of-00002.safetensors"
                              : "model-00001-of-00002.safetensors");
    set_text(f->index, L0 "mlp.up_proj.weight_scale_inv", "model-00001-of-00002.safetensors");
}

/* ---- more faults: of scales and codes ---- */

static void zero_scale(made_folder *f)
{
    made_set(made_scale(f, L0 "mlp.down_proj"), 1, 0);
}

static void infinite_scale(made_folder *f)
{
    made_set(made_scale(f, L1 "self_attn.o_proj"), 0, INFINITY);
}

static void no_weight(made_folder *f)
{
    made_drop(f, L0 "mlp.down_proj.weight");
}

static void scale_of_values(made_folder *f)
{
    const made_tensor s = *made_scale(f, L0 "mlp.down_proj");
    char name[MADE_NAME];
    snprintf(name, sizeof name, "%s", s.name);
    made_to_bf16(f, L0 "mlp.down_proj");
    made_set(made_add(f, name, F8_ST_F32, s.dim[0], s.dim[1], -1, -1), 0, 2e-4f);
}

static void e5m2(made_folder *f)
{
    made_find(f, L1 "self_attn.q_proj.weight")->dtype = F8_ST_F8_E5M2;
}

static void e5m2_fnuz(made_folder *f)
{
    made_find(f, L1 "self_attn.q_proj.weight")->dtype = F8_ST_F8_E5M2FNUZ;
}

/* k has half the rows of q. */
static void scale_of_q_for_k(made_folder *f)
{
    const made_tensor q = *made_scale(f, L0 "self_attn.q_proj");
    char name[MADE_NAME];
    snprintf(name, sizeof name, "%s", made_scale(f, L0 "self_attn.k_proj")->name);
    made_tensor *k = instead(f, name, F8_ST_F32, q.dim[0], q.dim[1]);
    for (int64_t i = 0; i < made_count(k); i++)
        made_set(k, i, 2e-4f);
}

static void retype_scale(made_folder *f, f8_st_dtype dtype)
{
    const made_tensor s = *made_scale(f, L0 "mlp.up_proj");
    char name[MADE_NAME];
    snprintf(name, sizeof name, "%s", s.name);
    instead(f, name, dtype, s.rank > 0 ? s.dim[0] : -1, s.rank > 1 ? s.dim[1] : -1);
}

static void scales_are_i32(made_folder *f)
{
    retype_scale(f, F8_ST_I32);
}

static void scales_are_f64(made_folder *f)
{
    retype_scale(f, F8_ST_F64);
}

static void scales_are_codes(made_folder *f)
{
    retype_scale(f, F8_ST_F8_E4M3);
}

/* fnuz' -0 is E4M3FN's NaN of one sign, its largest value of the other. */
static void fnuz_in_disguise(made_folder *f)
{
    unsigned char *code = made_find(f, L0 "self_attn.v_proj.weight")->data;
    code[0] = 0xff;
    code[1] = 0x7f;
}

static void rank_one_rows(made_folder *f)
{
    made_scale(f, L0 "self_attn.q_proj")->rank = 1;
}

static void rank_four_blocks(made_folder *f)
{
    made_tensor *s = made_scale(f, L0 "mlp.up_proj");
    s->rank = 4;
    s->dim[2] = s->dim[1];
    s->dim[1] = s->dim[3] = 1;
}

static void mx_of_128(made_folder *f)
{
    const made_tensor w = *made_find(f, L1 "mlp.gate_proj.weight");
    instead(f, L1 "mlp.gate_proj.weight_scale", F8_ST_U8, w.dim[0], w.dim[1] / 128);
}

static void mx_nan(made_folder *f)
{
    made_scale(f, L1 "mlp.gate_proj")->data[7] = 0xff;
}

static void inverse_name(made_folder *f)
{
    rename_tensor(f, L1 "self_attn.o_proj.weight_scale", L1 "self_attn.o_proj.weight_scale_inv");
}

static void half_of_others_scale(made_folder *f)
{
    made_times(made_scale(f, L0 "self_attn.o_proj"), 2);
}

static void layers_swapped(made_folder *f)
{
    made_tensor *a = made_find(f, L0 "self_attn.q_proj.weight"),
                *b = made_find(f, L1 "self_attn.q_proj.weight");
    unsigned char *data = a->data;
    a->data = b->data;
    b->data = data;
}

static void nothing(made_folder *f)
{
    (void)f;
}

static void other_names(made_folder *f)
{
    char name[MADE_NAME];
    for (size_t i = 0; i < f->n; i++) {
        snprintf(name, sizeof name, "base.%.80s", f->t[i].name);
        snprintf(f->t[i].name, MADE_NAME, "%s", name);
    }
}

static void other_shape(made_folder *f)
{
    made_tensor *w = made_find(f, L0 "mlp.up_proj.weight");
    const int64_t rows = w->dim[0];
    w->dim[0] = w->dim[1];
    w->dim[1] = rows;
}

static void qkv_of_thirds(made_folder *f)
{
    made_tensor *s;
    fused_scales(f);
    s = made_find(f, L1 "self_attn.qkv_proj.weight_scale");
    s->dim[0] = 1;
    rename_tensor(f, s->name, L1 "self_attn.q_proj.weight_scale");
}

/* ---- of configs ---- */

static void no_quantization(made_folder *f)
{
    json_object_del(f->config, "quantization_config");
}

static void all_in_bf16(made_folder *f)
{
    json_t *config = json_deep_copy(f->config);
    made_widen(f);
    json_decref(f->config);
    f->config = config;
}

static void head_not_listed(made_folder *f)
{
    json_array_clear(json_object_get(made_quantization(f), "modules_to_not_convert"));
}

static void o_in_bf16(made_folder *f)
{
    made_to_bf16(f, L1 "self_attn.o_proj");
}

static void gate_in_bf16(made_folder *f)
{
    made_to_bf16(f, L1 "mlp.gate_proj");
    json_t *q = made_quantization(f), *list = json_object_get(q, "ignore");
    json_array_append_new(list ? list : json_object_get(q, "modules_to_not_convert"),
                          json_string(L1 "mlp.gate_proj"));
}

static void q_listed(made_folder *f)
{
    json_array_append_new(json_object_get(made_quantization(f), "modules_to_not_convert"),
                          json_string(L0 "self_attn.q_proj"));
}

static void k_expression(made_folder *f)
{
    json_array_append_new(json_object_get(made_quantization(f), "ignore"),
                          json_string("re:.*layers\\.1\\..*k_proj$"));
}

static void static_inputs(made_folder *f)
{
    set_text(made_quantization(f), "activation_scheme", "static");
}

static void no_block_size(made_folder *f)
{
    json_object_set_new(made_quantization(f), "weight_block_size", json_null());
}

static json_t *group_weights(made_folder *f)
{
    return json_object_get(
        json_object_get(json_object_get(made_quantization(f), "config_groups"), "group_0"),
        "weights");
}

static void says_channel(made_folder *f)
{
    set_text(group_weights(f), "strategy", "channel");
}

static void says_tensor(made_folder *f)
{
    set_text(group_weights(f), "strategy", "tensor");
}

static void says_int4(made_folder *f)
{
    json_object_set_new(group_weights(f), "num_bits", json_integer(4));
    set_text(group_weights(f), "type", "int");
}

static void says_other_grain(made_folder *f)
{
    set_text(made_quantization(f), "quant_algo", "FP8_PB_WO");
}

static void lists_differ(made_folder *f)
{
    json_array_clear(json_object_get(made_quantization(f), "ignore"));
}

/* ---- of inputs and caches ---- */

static void input_is_zero(made_folder *f)
{
    made_set(made_find(f, L0 "mlp.up_proj.input_scale"), 0, 0);
}

static void inputs_of_three(made_folder *f)
{
    made_tensor *t = instead(f, L0 "self_attn.q_proj.input_scale", F8_ST_F32, 3, -1);
    for (int i = 0; i < 3; i++)
        made_set(t, i, 0.1f);
}

static void input_not_used(made_folder *f)
{
    made_set(made_add(f, L0 "mlp.up_proj.input_scale", F8_ST_F32, 1, -1, -1, -1), 0, 0.1f);
}

static void input_is_i64(made_folder *f)
{
    instead(f, L0 "mlp.up_proj.input_scale", F8_ST_I64, -1, -1);
}

static void cache_scales(made_folder *f)
{
    set_text(json_object_get(f->quant, "quantization"), "kv_cache_quant_algo", "FP8");
    set_text(made_quantization(f), "kv_cache_quant_algo", "FP8");
    made_set(made_add(f, L0 "self_attn.k_proj.k_scale", F8_ST_F32, -1, -1, -1, -1), 0, 0.04f);
    made_set(made_add(f, L0 "self_attn.v_proj.v_scale", F8_ST_F32, -1, -1, -1, -1), 0, 0.03f);
}

static void cache_scale_is_nan(made_folder *f)
{
    cache_scales(f);
    made_set(made_find(f, L0 "self_attn.k_proj.k_scale"), 0, NAN);
}

/* ---- of files ---- */

static void index_names_no_file(made_folder *f)
{
    f->index = json_object();
    for (size_t i = 0; i < f->n; i++)
        set_text(f->index, f->t[i].name, "model.safetensors");
    set_text(f->index, L0 "mlp.up_proj.weight", "model-00002-of-00002.safetensors");
}

static void index_lacks_one(made_folder *f)
{
    f->index = json_object();
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->t[i].name, L1 "mlp.up_proj.weight_scale_inv"))
            set_text(f->index, f->t[i].name, "model.safetensors");
}

static void twice(made_folder *f)
{
    made_add(f, L0 "mlp.up_proj.weight_scale_inv", F8_ST_F32, 3, 2, -1, -1)->file = 1;
    made_find(f, L0 "mlp.up_proj.weight_scale_inv")->file = 0;
}

/* ---- the table ---- */

typedef struct fault {
    const char *name;
    made_spec spec;
    void (*plant)(made_folder *f);
    const char *kind;   /* NULL: the folder is refused, and `tensor` is what the message says */
    const char *tensor; /* or its module; NULL: a finding of the whole folder */
    bool blind;         /* written before the linter's sources were read */
    bool beside;        /* with --beside a wide copy of the sound folder, */
    void (*beside_plant)(made_folder *f); /* or of this one */
} fault;

#define HF .format = MADE_HF, .scales = MADE_BLOCKS
#define CT(of) .format = MADE_CT, .scales = MADE_##of
#define MO(of) .format = MADE_MODELOPT, .scales = MADE_##of
#define OWN(of) .format = MADE_FILE, .scales = MADE_##of
#define BLIND .blind = true

#define FOUND(what, where) .kind = what, .tensor = where
#define REFUSED(says) .tensor = says

static const fault faults[] = {
    {"no scale", {HF}, no_scale, FOUND("missing-scale", L1 "mlp.down_proj"), BLIND},
    {"one inverted", {HF}, one_inverted, FOUND("implausible", L0 "mlp.gate_proj"), BLIND},
    {"all inverted", {HF}, all_inverted, FOUND("implausible", L0 "self_attn.q_proj"), BLIND},
    {"scales transposed", {HF}, transposed_scales, FOUND("scale-shape", L1 "mlp.down_proj"), BLIND},
    {"config has blocks of 64", {HF}, blocks_of_64, FOUND("config", NULL), BLIND},
    {"scales are bytes",
     {HF},
     scales_are_bytes,
     FOUND("scale-dtype", L0 "self_attn.q_proj"),
     BLIND},
    {"a name of compressed-tensors",
     {HF},
     foreign_name,
     FOUND("scale-name", L0 "mlp.up_proj"),
     BLIND},
    {"a NaN among codes", {HF}, nan_code, FOUND("nan-codes", L1 "mlp.up_proj"), BLIND},
    {"fnuz", {CT(ROWS)}, fnuz_dtype, FOUND("fnuz", L0 "self_attn.o_proj"), BLIND},
    {"a NaN among scales",
     {CT(TENSOR)},
     nan_scale,
     FOUND("scale-value", L0 "self_attn.k_proj"),
     BLIND},
    {"scales of 3 parts",
     {CT(TENSOR)},
     fused_scales,
     FOUND("scale-shape", L1 "self_attn.qkv_proj"),
     BLIND},
    {"head in FP8", {HF}, head_in_fp8, FOUND("quantized-but-ignored", "lm_head"), BLIND},
    {"k in BF16", {HF}, k_in_bf16, FOUND("half-quantized", L0 "self_attn.k_proj"), BLIND},
    {"no input_scale",
     {MO(TENSOR)},
     no_input_scale,
     FOUND("missing-input-scale", L1 "self_attn.o_proj"),
     BLIND},
    {"two configs that differ", {MO(TENSOR)}, other_algo, FOUND("config", NULL), BLIND},
    {"router in FP8",
     {CT(ROWS), .router = true},
     router_in_fp8,
     FOUND("quantized-but-ignored", L1 "mlp.gate"),
     BLIND},
    {"ragged", {HF, .wide = 192}, nothing, FOUND("ragged-blocks", L0 "mlp.gate_proj"), BLIND},
    {"a negative scale",
     {CT(ROWS)},
     negative_scale,
     FOUND("scale-value", L1 "mlp.gate_proj"),
     BLIND},
    {"off by 2500",
     {CT(TENSOR), .rms = 0.5f},
     scale_of_another,
     FOUND("implausible", L1 "self_attn.v_proj"),
     BLIND},
    {"the index names another file",
     {HF, .files = 2},
     listed_elsewhere,
     REFUSED(L0 "mlp.up_proj.weight_scale_inv"),
     BLIND},

    {"a zero among scales", {HF}, zero_scale, FOUND("scale-value", L0 "mlp.down_proj")},
    {"an infinite scale", {HF}, infinite_scale, FOUND("scale-value", L1 "self_attn.o_proj")},
    {"no weight", {HF}, no_weight, FOUND("scale-without-weight", L0 "mlp.down_proj")},
    {"a scale of BF16", {HF}, scale_of_values, FOUND("scale-of-values", L0 "mlp.down_proj")},
    {"E5M2", {HF}, e5m2, FOUND("codes-dtype", L1 "self_attn.q_proj")},
    {"scales of q for k", {HF}, scale_of_q_for_k, FOUND("scale-shape", L0 "self_attn.k_proj")},
    {"scales are I32", {HF}, scales_are_i32, FOUND("scale-dtype", L0 "mlp.up_proj")},
    {"codes are fnuz by another name",
     {HF},
     fnuz_in_disguise,
     FOUND("nan-codes", L0 "self_attn.v_proj")},
    {"powers of two that the config does not know",
     {HF, .scale = F8_ST_F8_E8M0},
     nothing,
     FOUND("scale-dtype", L0 "mlp.up_proj")},
    {"no quantization_config", {HF}, no_quantization, FOUND("config", NULL)},
    {"all in BF16", {HF}, all_in_bf16, FOUND("config", NULL)},
    {"head not listed", {HF}, head_not_listed, FOUND("not-quantized", "lm_head")},
    {"o in BF16", {HF}, o_in_bf16, FOUND("not-quantized", L1 "self_attn.o_proj")},
    {"gate in BF16", {HF}, gate_in_bf16, FOUND("half-quantized", L1 "mlp.gate_proj")},
    {"q listed", {HF}, q_listed, FOUND("quantized-but-ignored", L0 "self_attn.q_proj")},
    {"static inputs without scales",
     {HF},
     static_inputs,
     FOUND("missing-input-scale", L0 "self_attn.q_proj")},
    {"no block size", {HF}, no_block_size, FOUND("granularity", L0 "mlp.up_proj")},
    {"k of 192 rows", {HF, .kv = 192}, nothing, FOUND("ragged-blocks", L1 "self_attn.k_proj")},
    {"blocks of ModelOpt's shape", {HF}, rank_four_blocks, FOUND("scale-shape", L0 "mlp.up_proj")},
    {"an input's scale that is not used",
     {HF},
     input_not_used,
     FOUND("input-scale", L0 "mlp.up_proj")},
    {"twice its values",
     {HF},
     half_of_others_scale,
     FOUND("beside", L0 "self_attn.o_proj"),
     .beside = true},
    {"a NaN among scales, beside",
     {CT(TENSOR)},
     nan_scale,
     FOUND("scale-value", L0 "self_attn.k_proj"),
     .beside = true},
    {"an infinite scale, beside",
     {HF},
     infinite_scale,
     FOUND("beside", L1 "self_attn.o_proj"),
     .beside = true},
    {"layers swapped",
     {CT(ROWS)},
     layers_swapped,
     FOUND("beside", L1 "self_attn.q_proj"),
     .beside = true},
    {"beside another shape",
     {HF},
     nothing,
     FOUND("beside", L0 "mlp.up_proj"),
     .beside = true,
     .beside_plant = other_shape},
    {"beside other names",
     {HF},
     nothing,
     FOUND("beside", NULL),
     .beside = true,
     .beside_plant = other_names},
    {"the index names no file",
     {HF},
     index_names_no_file,
     REFUSED("model-00002-of-00002.safetensors")},
    {"the index lacks a scale", {HF}, index_lacks_one, FOUND("config", L1 "mlp.up_proj")},
    {"a scale in two files", {HF, .files = 2}, twice, REFUSED(L0 "mlp.up_proj.weight_scale_inv")},

    {"config says rows, scales of tensors",
     {CT(TENSOR)},
     says_channel,
     FOUND("granularity", L0 "mlp.up_proj")},
    {"config says tensors, scales of rows",
     {CT(ROWS)},
     says_tensor,
     FOUND("granularity", L1 "mlp.up_proj")},
    {"config says INT4", {CT(ROWS)}, says_int4, FOUND("config", NULL)},
    {"scales of rows without an axis",
     {CT(ROWS)},
     rank_one_rows,
     FOUND("scale-shape", L0 "self_attn.q_proj")},
    {"scales are F64", {CT(ROWS)}, scales_are_f64, FOUND("scale-dtype", L0 "mlp.up_proj")},
    {"scales are E4M3", {CT(TENSOR)}, scales_are_codes, FOUND("scale-dtype", L0 "mlp.up_proj")},
    {"a name of transformers",
     {CT(BLOCKS)},
     inverse_name,
     FOUND("scale-name", L1 "self_attn.o_proj")},
    {"an expression has k",
     {CT(ROWS)},
     k_expression,
     FOUND("quantized-but-ignored", L1 "self_attn.k_proj")},
    {"E5M2 of fnuz", {CT(ROWS)}, e5m2_fnuz, FOUND("fnuz", L1 "self_attn.q_proj")},
    {"MX of 128", {CT(MX)}, mx_of_128, FOUND("scale-shape", L1 "mlp.gate_proj")},
    {"a NaN among MX scales", {CT(MX)}, mx_nan, FOUND("scale-value", L1 "mlp.gate_proj")},
    {"an input's scale is zero",
     {CT(TENSOR), .inputs = true},
     input_is_zero,
     FOUND("input-scale", L0 "mlp.up_proj")},
    {"a scale of q for qkv",
     {CT(TENSOR)},
     qkv_of_thirds,
     FOUND("missing-scale", L1 "self_attn.qkv_proj")},

    {"one inverted", {MO(TENSOR)}, one_inverted, FOUND("implausible", L0 "mlp.gate_proj")},
    {"three scales of an input",
     {MO(TENSOR)},
     inputs_of_three,
     FOUND("input-scale", L0 "self_attn.q_proj")},
    {"an input's scale is I64", {MO(TENSOR)}, input_is_i64, FOUND("input-scale", L0 "mlp.up_proj")},
    {"configs of two granularities", {MO(TENSOR)}, says_other_grain, FOUND("config", NULL)},
    {"configs that leave out others", {MO(TENSOR)}, lists_differ, FOUND("config", "lm_head")},
    {"gate in BF16", {MO(ROWS)}, gate_in_bf16, FOUND("half-quantized", L1 "mlp.gate_proj")},
    {"a cache's scale is NaN",
     {MO(TENSOR)},
     cache_scale_is_nan,
     FOUND("scale-value", L0 "self_attn.k_proj")},
    {"a NaN among MX scales", {MO(MX)}, mx_nan, FOUND("scale-value", L1 "mlp.gate_proj")},

    {"no scale", {OWN(BLOCKS)}, no_scale, FOUND("missing-scale", L1 "mlp.down_proj")},
    {"a negative scale", {OWN(ROWS)}, negative_scale, FOUND("scale-value", L1 "mlp.gate_proj")},
    {"one inverted", {OWN(TENSOR)}, one_inverted, FOUND("implausible", L0 "mlp.gate_proj")},
    {"a NaN among codes", {OWN(MX)}, nan_code, FOUND("nan-codes", L1 "mlp.up_proj")},
};

enum { N_FAULTS = sizeof faults / sizeof *faults };

#endif
