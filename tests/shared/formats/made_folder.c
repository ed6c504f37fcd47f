/* See made_folder.h. */
#include "tests/shared/formats/made_folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/num/fp8.h"
#include "tests/shared/random.h"

enum { VOCAB = 128, BLOCK = 128, GROUP = 32, TABLE = 1 << 14 };

#define RMS_OF_CODES 100.0f /* so few codes are as large as 448 that rounding hardly matters */

/* ---- tensors ---- */

int64_t made_count(const made_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

size_t made_bytes(const made_tensor *t)
{
    return (size_t)made_count(t) * f8_st_dtype_bytes(t->dtype);
}

static made_tensor *look(made_folder *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->t[i].name, name))
            return &f->t[i];
    return NULL;
}

made_tensor *made_find(made_folder *f, const char *name)
{
    made_tensor *t = look(f, name);
    ck_assert_msg(t, "the made folder has no %s", name);
    return t;
}

made_tensor *made_add(made_folder *f, const char *name, f8_st_dtype dtype, int64_t a, int64_t b,
                      int64_t c, int64_t d)
{
    ck_assert_uint_lt(f->n, MADE_MOST);
    made_tensor *t = &f->t[f->n++];
    *t = (made_tensor){.dtype = dtype};
    snprintf(t->name, sizeof t->name, "%s", name);
    const int64_t dim[] = {a, b, c, d};
    while (t->rank < 4 && dim[t->rank] >= 0) {
        t->dim[t->rank] = dim[t->rank];
        t->rank++;
    }
    ck_assert_ptr_nonnull(t->data = calloc(1, made_bytes(t) + 1));
    return t;
}

void made_drop(made_folder *f, const char *name)
{
    made_tensor *t = made_find(f, name);
    free(t->data);
    *t = f->t[--f->n];
}

float made_get(const made_tensor *t, int64_t i)
{
    const unsigned char *at = t->data + (size_t)i * f8_st_dtype_bytes(t->dtype);
    uint16_t half;
    float x;
    switch (t->dtype) {
    case F8_ST_F32: memcpy(&x, at, 4); return x;
    case F8_ST_BF16: memcpy(&half, at, 2); return f8_bf16_to_f32(half);
    case F8_ST_F8_E4M3: return f8_e4m3_to_f32(*at);
    default: return f8_e8m0_to_f32(*at);
    }
}

void made_set(made_tensor *t, int64_t i, float x)
{
    unsigned char *at = t->data + (size_t)i * f8_st_dtype_bytes(t->dtype);
    uint32_t bits;
    switch (t->dtype) {
    case F8_ST_F32: memcpy(at, &x, 4); break;
    case F8_ST_BF16:
        x = f8_round_bf16(x);
        memcpy(&bits, &x, 4);
        at[0] = (unsigned char)(bits >> 16), at[1] = (unsigned char)(bits >> 24);
        break;
    case F8_ST_F8_E4M3: *at = f8_f32_to_e4m3(x, true); break;
    case F8_ST_F8_E8M0:
    case F8_ST_U8: *at = f8_f32_to_e8m0(x, true); break;
    default: ck_abort_msg("no float's dtype");
    }
}

void made_times(made_tensor *t, float by)
{
    for (int64_t i = 0; i < made_count(t); i++)
        made_set(t, i, made_get(t, i) * by);
}

/* ---- weights ---- */

/* Codes of a normal distribution, roughly: what a sum of four uniform numbers has. */
static const unsigned char *normal_codes(void)
{
    static unsigned char table[TABLE];
    static bool made;
    uint32_t seed = 7;
    for (int i = 0; !made && i < TABLE; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (float)test_random(&seed) * 0x1p-24f - 0.5f;
        table[i] = f8_f32_to_e4m3(sum * RMS_OF_CODES * sqrtf(3), true);
    }
    made = true;
    return table;
}

static void named(char to[MADE_NAME], const char *linear, const char *suffix)
{
    ck_assert_int_lt(snprintf(to, MADE_NAME, "%s%s", linear, suffix), MADE_NAME);
}

static const char *scale_suffix(const made_spec *s)
{
    return s->format == MADE_HF ? ".weight_scale_inv" : ".weight_scale";
}

static made_tensor *add_scales(made_folder *f, const char *name, int64_t out, int64_t in)
{
    const made_spec *s = &f->spec;
    const int64_t r = (out + BLOCK - 1) / BLOCK, c = (in + BLOCK - 1) / BLOCK;
    switch (s->scales) {
    case MADE_TENSOR: return made_add(f, name, s->scale, s->format == MADE_CT ? 1 : -1, -1, -1, -1);
    case MADE_ROWS: return made_add(f, name, s->scale, out, s->format == MADE_CT ? 1 : -1, -1, -1);
    case MADE_BLOCKS:
        return s->format == MADE_MODELOPT ? made_add(f, name, s->scale, r, 1, c, 1)
                                          : made_add(f, name, s->scale, r, c, -1, -1);
    default: return made_add(f, name, F8_ST_U8, out, (in + GROUP - 1) / GROUP, -1, -1);
    }
}

/* The folder's kind of scales beside the FP8 weight, each near `scale`. */
static void scale_weight(made_folder *f, const char *linear, float scale)
{
    const made_spec *s = &f->spec;
    char name[MADE_NAME];
    named(name, linear, ".weight");
    const made_tensor *w = made_find(f, name);
    named(name, linear, scale_suffix(s));
    made_tensor *t = add_scales(f, name, w->dim[0], w->dim[1]);
    for (int64_t i = 0; i < made_count(t); i++)
        made_set(t, i, scale * (1.0f + 0.1f * (float)(i % 5)));
    if (s->inputs) {
        named(name, linear, ".input_scale");
        made_set(made_add(f, name, F8_ST_F32, s->format == MADE_CT ? 1 : -1, -1, -1, -1), 0, 0.03f);
    }
}

static void fill(made_tensor *t, uint32_t seed, float rms)
{
    const unsigned char *code = normal_codes();
    for (int64_t i = 0; i < made_count(t); i++) {
        const unsigned char c = code[test_random(&seed) % TABLE];
        if (t->dtype == F8_ST_F8_E4M3)
            t->data[i] = c;
        else
            made_set(t, i, f8_e4m3_to_f32(c) * rms / RMS_OF_CODES);
    }
}

static void linear(made_folder *f, int layer, const char *part, int64_t out, int64_t in)
{
    char name[MADE_NAME], full[MADE_NAME];
    snprintf(name, sizeof name, "model.layers.%d.%s", layer, part);
    named(full, name, ".weight");
    made_tensor *t = made_add(f, full, F8_ST_F8_E4M3, out, in, -1, -1);
    fill(t, (uint32_t)f->n, 1);
    if (f->spec.zero && !strcmp(f->spec.zero, name))
        memset(t->data, 0, (size_t)(out / 2 * in));
    scale_weight(f, name, f->spec.rms / RMS_OF_CODES);
}

static void wide(made_folder *f, const char *name, int64_t out, int64_t in)
{
    fill(made_add(f, name, F8_ST_BF16, out, in, -1, -1), (uint32_t)f->n, f->spec.rms);
}

static void norm(made_folder *f, const char *name)
{
    made_tensor *t = made_add(f, name, F8_ST_BF16, f->spec.hidden, -1, -1, -1);
    for (int64_t i = 0; i < f->spec.hidden; i++)
        made_set(t, i, 1);
}

static void layer(made_folder *f, int i)
{
    const made_spec *s = &f->spec;
    char name[MADE_NAME];
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", i);
    norm(f, name);
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", i);
    norm(f, name);
    linear(f, i, "self_attn.q_proj", s->hidden, s->hidden);
    linear(f, i, "self_attn.k_proj", s->kv, s->hidden);
    linear(f, i, "self_attn.v_proj", s->kv, s->hidden);
    linear(f, i, "self_attn.o_proj", s->hidden, s->hidden);
    linear(f, i, "mlp.gate_proj", s->wide, s->hidden);
    linear(f, i, "mlp.up_proj", s->wide, s->hidden);
    linear(f, i, "mlp.down_proj", s->hidden, s->wide);
    snprintf(name, sizeof name, "model.layers.%d.mlp.gate.weight", i);
    if (s->router)
        wide(f, name, 8, s->hidden);
}

void made_to_fp8(made_folder *f, const char *linear)
{
    char name[MADE_NAME];
    named(name, linear, ".weight");
    const made_tensor t = *made_find(f, name);
    made_drop(f, name);
    fill(made_add(f, name, F8_ST_F8_E4M3, t.dim[0], t.dim[1], -1, -1), 5, 1);
    scale_weight(f, linear, f->spec.rms / RMS_OF_CODES);
}

made_tensor *made_scale(made_folder *f, const char *linear)
{
    char name[MADE_NAME];
    named(name, linear, ".weight_scale_inv");
    made_tensor *t = look(f, name);
    named(name, linear, ".weight_scale");
    return t ? t : made_find(f, name);
}

void made_to_bf16(made_folder *f, const char *linear)
{
    char name[MADE_NAME];
    made_drop(f, made_scale(f, linear)->name);
    named(name, linear, ".input_scale");
    if (look(f, name))
        made_drop(f, name);
    named(name, linear, ".weight");
    const made_tensor t = *made_find(f, name);
    made_drop(f, name);
    wide(f, name, t.dim[0], t.dim[1]);
}

/* How many elements of an axis a scale covers. */
static int64_t covered(int64_t n, int64_t scales)
{
    return scales == 1 ? n : scales == n ? 1 : scales == (n + GROUP - 1) / GROUP ? GROUP : BLOCK;
}

float *made_values(made_folder *f, const char *linear)
{
    char name[MADE_NAME];
    named(name, linear, ".weight");
    const made_tensor *w = made_find(f, name);
    float *x = calloc((size_t)made_count(w) + 1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (int64_t i = 0; i < made_count(w); i++)
        x[i] = made_get(w, i);
    if (w->dtype != F8_ST_F8_E4M3)
        return x;
    const made_tensor *s = made_scale(f, linear);
    const int64_t rows = s->rank ? s->dim[0] : 1,
                  columns = s->rank == 4   ? s->dim[2]
                            : s->rank == 2 ? s->dim[1]
                                           : 1,
                  high = covered(w->dim[0], rows), wide = covered(w->dim[1], columns);
    for (int64_t r = 0; r < w->dim[0]; r++)
        for (int64_t c = 0; c < w->dim[1]; c++)
            x[r * w->dim[1] + c] *= made_get(s, r / high * columns + c / wide);
    return x;
}

void made_widen(made_folder *f)
{
    char linear[MADE_NAME], name[MADE_NAME];
    for (size_t i = 0; i < f->n; i++) {
        made_tensor *w = &f->t[i];
        if (w->dtype != F8_ST_F8_E4M3)
            continue;
        snprintf(linear, sizeof linear, "%.*s", (int)(strlen(w->name) - strlen(".weight")),
                 w->name);
        float *x = made_values(f, linear);
        const int64_t n = made_count(w);
        made_to_bf16(f, linear);
        named(name, linear, ".weight");
        made_tensor *to = made_find(f, name);
        for (int64_t k = 0; k < n; k++)
            made_set(to, k, x[k]);
        free(x);
        i = (size_t)-1; /* tensors have moved */
    }
    json_object_del(f->config, "quantization_config");
    json_decref(f->quant);
    f->quant = NULL;
}

/* ---- the config ---- */

static json_t *text_json(const char *text)
{
    char quoted[2000];
    ck_assert_uint_lt(strlen(text), sizeof quoted);
    for (size_t i = 0; i <= strlen(text); i++)
        quoted[i] = text[i] == '\'' ? '"' : text[i];
    json_error_t error;
    json_t *j = json_loads(quoted, 0, &error);
    ck_assert_msg(j, "%s: %s", quoted, error.text);
    return j;
}

static json_t *left_out(const made_spec *s, const char *router)
{
    json_t *list = json_array();
    if (!s->tied || s->format == MADE_MODELOPT)
        json_array_append_new(list, json_string("lm_head"));
    if (s->router)
        json_array_append_new(list, json_string(router));
    return list;
}

static json_t *of_compressed_tensors(const made_spec *s)
{
    static const char *const weights[] = {
        "'strategy': 'tensor'", "'strategy': 'channel'",
        "'strategy': 'block', 'block_structure': [128, 128]",
        "'strategy': 'group', 'group_size': 32, 'scale_dtype': 'torch.uint8'"};
    static const char *const inputs[] = {
        "'strategy': 'tensor'", "'strategy': 'token'", "'strategy': 'group', 'group_size': 128",
        "'strategy': 'group', 'group_size': 32, 'scale_dtype': 'torch.uint8'"};
    char text[1500];
    snprintf(text, sizeof text,
             "{'quant_method': 'compressed-tensors', 'format': '%s', 'quantization_status': "
             "'compressed', 'global_compression_ratio': null, 'kv_cache_scheme': null, "
             "'config_groups': {'group_0': {'targets': ['Linear'], 'output_activations': null, "
             "'weights': {'num_bits': 8, 'type': 'float', 'symmetric': true, 'dynamic': false, "
             "'observer': 'minmax', %s}, 'input_activations': {'num_bits': 8, 'type': 'float', "
             "'symmetric': true, 'dynamic': %s, %s}}}}",
             s->scales == MADE_MX ? "mxfp8-quantized" : "float-quantized", weights[s->scales],
             s->inputs ? "false" : "true", inputs[s->inputs ? MADE_TENSOR : s->scales]);
    json_t *q = text_json(text);
    json_object_set_new(q, "ignore", left_out(s, "re:.*mlp.gate$"));
    return q;
}

static json_t *of_modelopt(const made_spec *s, const char *out)
{
    static const char *const algo[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "MXFP8"};
    json_t *q = text_json("{'kv_cache_quant_algo': null}");
    json_object_set_new(q, "quant_algo", json_string(algo[s->scales]));
    json_object_set_new(q, out, left_out(s, "*.mlp.gate"));
    return q;
}

static void add_config(made_folder *f)
{
    const made_spec *s = &f->spec;
    f->config = text_json("{'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', "
                          "'num_hidden_layers': 2, 'vocab_size': 128, 'rms_norm_eps': 1e-05, "
                          "'torch_dtype': 'bfloat16', 'head_dim': 64, 'rope_theta': 500000.0}");
    json_object_set_new(f->config, "hidden_size", json_integer(s->hidden));
    json_object_set_new(f->config, "intermediate_size", json_integer(s->wide));
    json_object_set_new(f->config, "num_attention_heads", json_integer(s->hidden / 64));
    json_object_set_new(f->config, "num_key_value_heads", json_integer(s->kv / 64));
    json_object_set_new(f->config, "tie_word_embeddings", json_boolean(s->tied));
    json_t *q;
    if (s->format == MADE_HF) {
        q = text_json("{'quant_method': 'fp8', 'activation_scheme': 'dynamic', "
                      "'fmt': 'e4m3', 'weight_block_size': [128, 128]}");
        json_object_set_new(q, "modules_to_not_convert", left_out(s, "mlp.gate"));
    } else if (s->format == MADE_CT) {
        q = of_compressed_tensors(s);
    } else {
        f->quant = text_json("{'producer': {'name': 'modelopt', 'version': '0.47.0'}}");
        json_object_set_new(f->quant, "quantization", of_modelopt(s, "exclude_modules"));
        q = of_modelopt(s, "ignore");
        json_object_set_new(q, "quant_method", json_string("modelopt"));
    }
    json_object_set_new(f->config, "quantization_config", q);
}

json_t *made_quantization(made_folder *f)
{
    json_t *q = json_object_get(f->config, "quantization_config");
    ck_assert_ptr_nonnull(q);
    return q;
}

made_folder *made_new(made_spec s)
{
    made_folder *f = calloc(1, sizeof *f);
    ck_assert_ptr_nonnull(f);
    s.hidden = s.hidden ? s.hidden : 256;
    s.wide = s.wide ? s.wide : 384;
    s.kv = s.kv ? s.kv : 128;
    s.rms = s.rms ? s.rms : 0.02f;
    s.files = s.files ? s.files : 1;
    s.scale = s.scale ? s.scale : F8_ST_F32;
    s.inputs |= s.format == MADE_MODELOPT && s.scales == MADE_TENSOR;
    f->spec = s;
    wide(f, "model.embed_tokens.weight", VOCAB, s.hidden);
    for (int i = 0; i < 2; i++)
        layer(f, i);
    norm(f, "model.norm.weight");
    if (!s.tied)
        wide(f, "lm_head.weight", VOCAB, s.hidden);
    for (size_t i = 0; i < f->n; i++)
        f->t[i].file = (int)(i * (size_t)s.files / f->n);
    add_config(f);
    return f;
}

void made_free(made_folder *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->t[i].data);
    for (size_t i = 0; i < f->n_metadata; i++)
        free((void *)f->metadata[i].key), free((void *)f->metadata[i].value);
    json_decref(f->config);
    json_decref(f->quant);
    json_decref(f->index);
    free(f);
}

/* ---- files ---- */

void made_text(const char *dir, const char *name, const char *text)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *to = fopen(path, "w");
    ck_assert_msg(to && fputs(text, to) >= 0 && !fclose(to), "%s can't be written", path);
}

static void json_file(const char *dir, const char *name, const json_t *j)
{
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_SORT_KEYS);
    ck_assert_ptr_nonnull(text);
    made_text(dir, name, text);
    free(text);
}

static void file_name(const made_folder *f, int file, char to[60])
{
    if (f->spec.files == 1)
        snprintf(to, 60, "model.safetensors");
    else
        snprintf(to, 60, "model-%05d-of-%05d.safetensors", file + 1, f->spec.files);
}

static f8_status fill_tensor(void *user, size_t i, void *to, f8_diag *diag)
{
    (void)diag;
    const made_tensor *const *t = user;
    memcpy(to, t[i]->data, made_bytes(t[i]));
    return F8_OK;
}

static void write_file(made_folder *f, int file, const char *path)
{
    f8_st_tensor tensor[MADE_MOST];
    const made_tensor *from[MADE_MOST];
    f8_diag diag = {0};
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        const made_tensor *t = &f->t[i];
        if (t->file != file)
            continue;
        tensor[n] = (f8_st_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank};
        memcpy(tensor[n].dim, t->dim, sizeof t->dim);
        from[n++] = t;
    }
    static const f8_st_pair torch = {"format", "pt"};
    const f8_st_contents c = {.tensor = tensor,
                              .n = n,
                              .metadata = f->n_metadata ? f->metadata : &torch,
                              .n_metadata = f->n_metadata ? f->n_metadata : 1,
                              .fill = fill_tensor,
                              .user = from};
    ck_assert_msg(f8_st_write(path, &c, NULL, &diag) == F8_OK, "%s", diag.text);
}

static void write_index(made_folder *f, const char *dir)
{
    char name[60];
    json_t *map = json_incref(f->index);
    if (!map) {
        map = json_object();
        for (size_t i = 0; i < f->n; i++) {
            file_name(f, f->t[i].file, name);
            json_object_set_new(map, f->t[i].name, json_string(name));
        }
    }
    json_t *j = text_json("{'metadata': {'total_size': 0}}");
    json_object_set_new(j, "weight_map", map);
    json_file(dir, "model.safetensors.index.json", j);
    json_decref(j);
}

void made_write(made_folder *f, const char *dir)
{
    char name[60], path[1000];
    if (f->spec.format == MADE_FILE) {
        write_file(f, 0, dir);
        return;
    }
    ck_assert_msg(!mkdir(dir, 0777), "%s can't be made", dir);
    for (int i = 0; i < f->spec.files; i++) {
        file_name(f, i, name);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        write_file(f, i, path);
    }
    if (f->spec.files > 1 || f->index)
        write_index(f, dir);
    if (f->config)
        json_file(dir, "config.json", f->config);
    if (f->quant)
        json_file(dir, "hf_quant_config.json", f->quant);
    if (f->spec.tokenizer) {
        made_text(dir, "tokenizer.json", "{\"version\": \"1.0\"}\n");
        made_text(dir, "generation_config.json", "{\"eos_token_id\": 2}\n");
    }
}

made_folder *made_read(const char *path)
{
    made_folder *f = calloc(1, sizeof *f);
    f8_st_file st;
    f8_diag diag = {0};
    ck_assert_msg(f && f8_st_open(&st, path, NULL, &diag) == F8_OK, "%s", diag.text);
    f->spec = (made_spec){.format = MADE_FILE, .files = 1, .rms = 0.02f};
    for (size_t i = 0; i < st.n; i++) {
        const f8_st_tensor *t = &st.tensor[i];
        int64_t dim[4] = {-1, -1, -1, -1};
        ck_assert_int_le(t->rank, 4);
        for (int32_t k = 0; k < t->rank; k++)
            dim[k] = t->dim[k];
        made_tensor *to = made_add(f, t->name, t->dtype, dim[0], dim[1], dim[2], dim[3]);
        ck_assert_msg(f8_st_read(&st, t, to->data, &diag) == F8_OK, "%s", diag.text);
    }
    ck_assert_uint_le(st.n_metadata, 16);
    for (; f->n_metadata < st.n_metadata; f->n_metadata++)
        f->metadata[f->n_metadata] = (f8_st_pair){strdup(st.metadata[f->n_metadata].key),
                                                  strdup(st.metadata[f->n_metadata].value)};
    f8_st_close(&st);
    return f;
}
