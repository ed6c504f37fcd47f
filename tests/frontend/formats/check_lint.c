/* What `fp8c weights` says of folders that are wrong: each fault that is planted in a sound one is
 * found, by its kind, at its tensor. Of sound ones it says nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/formats/made_folder.h"
#include "tests/shared/suite.h"

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
    made_tensor *t = instead(f, L0 "self_attn.q_proj.weight_scale_inv", F8_ST_U8, s.dim[0],
                             s.dim[1]);
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

/* 192 rows in two blocks. */
static void ragged(made_folder *f)
{
    (void)f;
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

/* ---- the table ---- */

typedef struct fault {
    const char *name;
    made_spec spec;
    void (*plant)(made_folder *f);
    const char *kind, *tensor; /* tensor NULL: a finding of the whole folder */
    bool blind;                /* written before the linter's sources were read */
} fault;

#define HF .format = MADE_HF, .scales = MADE_BLOCKS
#define CT(of) .format = MADE_CT, .scales = MADE_##of
#define MO(of) .format = MADE_MODELOPT, .scales = MADE_##of
#define BLIND .blind = true

static const fault faults[] = {
    {"no scale", {HF}, no_scale, "missing-scale", L1 "mlp.down_proj.weight", BLIND},
    {"one inverted", {HF}, one_inverted, "implausible", L0 "mlp.gate_proj.weight", BLIND},
    {"all inverted", {HF}, all_inverted, "implausible", L0 "self_attn.q_proj.weight", BLIND},
    {"scales transposed", {HF}, transposed_scales, "scale-shape",
     L1 "mlp.down_proj.weight_scale_inv", BLIND},
    {"config has blocks of 64", {HF}, blocks_of_64, "config", NULL, BLIND},
    {"scales are bytes", {HF}, scales_are_bytes, "scale-dtype",
     L0 "self_attn.q_proj.weight_scale_inv", BLIND},
    {"a name of compressed-tensors", {HF}, foreign_name, "scale-name",
     L0 "mlp.up_proj.weight_scale", BLIND},
    {"a NaN among codes", {HF}, nan_code, "nan-codes", L1 "mlp.up_proj.weight", BLIND},
    {"fnuz", {CT(ROWS)}, fnuz_dtype, "fnuz", L0 "self_attn.o_proj.weight", BLIND},
    {"a NaN among scales", {CT(TENSOR)}, nan_scale, "scale-value",
     L0 "self_attn.k_proj.weight_scale", BLIND},
    {"scales of three parts", {CT(TENSOR)}, fused_scales, "scale-shape",
     L1 "self_attn.qkv_proj.weight_scale", BLIND},
    {"head in FP8", {HF}, head_in_fp8, "quantized-but-ignored", "lm_head.weight", BLIND},
    {"k in BF16", {HF}, k_in_bf16, "half-quantized", L0 "self_attn.k_proj.weight", BLIND},
    {"no input_scale", {MO(TENSOR)}, no_input_scale, "missing-input-scale",
     L1 "self_attn.o_proj.weight", BLIND},
    {"two configs that differ", {MO(TENSOR)}, other_algo, "config", NULL, BLIND},
    {"router in FP8", {CT(ROWS), .router = true}, router_in_fp8, "quantized-but-ignored",
     L1 "mlp.gate.weight", BLIND},
    {"ragged", {HF, .wide = 192}, ragged, "ragged-blocks", L0 "mlp.gate_proj.weight", BLIND},
    {"a negative scale", {CT(ROWS)}, negative_scale, "scale-value",
     L1 "mlp.gate_proj.weight_scale", BLIND},
    {"off by 2500", {CT(TENSOR), .rms = 0.5f}, scale_of_another, "implausible",
     L1 "self_attn.v_proj.weight", BLIND},
    {"the index names another file", {HF, .files = 2}, listed_elsewhere, "config", NULL, BLIND},
};

enum { N_FAULTS = sizeof faults / sizeof *faults };
