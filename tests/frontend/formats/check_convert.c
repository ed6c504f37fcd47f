/* FP8 weights of one format as a folder of another: codes and scales go over bit for bit where both
 * formats can say what a scale covers, and what becomes of the others is told. A folder is written
 * whole or not at all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/formats/convert.h"
#include "ir/num/fp8.h"
#include "tests/shared/formats/convert_case.h"

/* ---- what the command told ---- */

/* The record of each weight, by its name; the caller releases. */
static json_t *fates(const char *out)
{
    json_t *all = json_object();
    for (const char *line = out; *line; line += strcspn(line, "\n") + 1) {
        json_t *r = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        ck_assert_ptr_nonnull(r);
        if (!strcmp(json_string_value(json_object_get(r, "event")), "converted"))
            json_object_set(all, json_string_value(json_object_get(r, "weight")), r);
        json_decref(r);
    }
    return all;
}

static bool has(const made_folder *f, const char *linear, const char *end)
{
    char name[MADE_NAME + 30];
    snprintf(name, sizeof name, "%s%s", linear, end);
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->t[i].name, name))
            return true;
    return false;
}

static const made_tensor *weight_of(made_folder *f, const char *linear)
{
    char name[MADE_NAME + 30];
    snprintf(name, sizeof name, "%s.weight", linear);
    return made_find(f, name);
}

static void same_codes(made_folder *a, made_folder *b, const char *linear)
{
    const made_tensor *x = weight_of(a, linear), *y = weight_of(b, linear);
    ck_assert_msg(x->dtype == y->dtype && made_bytes(x) == made_bytes(y) &&
                      !memcmp(x->data, y->data, made_bytes(x)),
                  "%s: other codes", linear);
}

static void same_scales(made_folder *a, made_folder *b, const char *linear)
{
    const made_tensor *x = made_scale(a, linear), *y = made_scale(b, linear);
    ck_assert_msg(made_count(x) == made_count(y), "%s: another number of scales", linear);
    for (int64_t i = 0; i < made_count(x); i++)
        ck_assert_msg(made_get(x, i) == made_get(y, i), "%s: scale %d differs", linear, (int)i);
}

/* The new values are what the record says of them. */
static void check_values(made_folder *from, made_folder *to, const char *linear,
                         const json_t *record)
{
    const char *fate = json_string_value(json_object_get(record, "fate"));
    const int64_t n = made_count(weight_of(from, linear));
    float *x = made_values(from, linear), *y = made_values(to, linear);
    double signal = 0, noise = 0;
    for (int64_t i = 0; i < n; i++) {
        const float want = strcmp(fate, "dequantized") ? x[i] : f8_round_bf16(x[i]);
        signal += (double)x[i] * x[i];
        noise += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
        if (strcmp(fate, "requantized"))
            ck_assert_msg(y[i] == want, "%s, %s: value %d is %g, not %g", linear, fate, (int)i,
                          (double)y[i], (double)want);
    }
    if (!strcmp(fate, "requantized")) {
        const double told = json_real_value(json_object_get(record, "sqnr_db")),
                     is = 10 * log10(signal / noise);
        ck_assert_msg(fabs(told - is) < 0.01 && is > 25, "%s: SQNR %.2f dB, told %.2f", linear, is,
                      told);
        ck_assert_ptr_nonnull(json_object_get(record, "why"));
    }
    free(x);
    free(y);
}

/* Compares all weights of FP8 of `from`; counts those with each fate that is not `usual`. */
static int compare_all(made_folder *from, made_folder *to, const char *out, const char *usual)
{
    json_t *all = fates(out);
    char linear[MADE_NAME];
    int others = 0;
    size_t told = 0;
    for (size_t i = 0; i < from->n; i++) {
        if (from->t[i].dtype != F8_ST_F8_E4M3)
            continue;
        snprintf(linear, sizeof linear, "%.*s", (int)(strlen(from->t[i].name) - strlen(".weight")),
                 from->t[i].name);
        const json_t *record = json_object_get(all, linear);
        ck_assert_msg(record, "nothing was said of %s", linear);
        const char *fate = json_string_value(json_object_get(record, "fate"));
        told++;
        others += strcmp(fate, usual) != 0;
        if (!strcmp(fate, "kept") || !strcmp(fate, "spread"))
            same_codes(from, to, linear);
        if (!strcmp(fate, "kept"))
            same_scales(from, to, linear);
        check_values(from, to, linear, record);
    }
    ck_assert_uint_eq(json_object_size(all), told);
    json_decref(all);
    return others;
}

/* ---- all pairs ---- */

static const made_spec sources[] = {
    {.format = MADE_HF, .scales = MADE_BLOCKS, .router = true},
    {.format = MADE_CT, .scales = MADE_TENSOR, .inputs = true},
    {.format = MADE_CT, .scales = MADE_ROWS, .tied = true},
    {.format = MADE_CT, .scales = MADE_BLOCKS, .scale = F8_ST_BF16},
    {.format = MADE_CT, .scales = MADE_MX},
    {.format = MADE_HF, .scales = MADE_BLOCKS, .scale = F8_ST_F8_E8M0},
    {.format = MADE_MODELOPT, .scales = MADE_TENSOR},
    {.format = MADE_MODELOPT, .scales = MADE_ROWS, .router = true},
    {.format = MADE_MODELOPT, .scales = MADE_BLOCKS},
    {.format = MADE_MODELOPT, .scales = MADE_MX},
};

enum { N_SOURCES = sizeof sources / sizeof *sources };

static made_spec small(made_spec s)
{
    s.hidden = 128;
    s.wide = 256;
    s.kv = 64;
    return s;
}

static const char *usual_fate(made_scales scales, made_format to)
{
    return to != MADE_HF || scales == MADE_BLOCKS ? "kept"
           : scales == MADE_TENSOR                ? "spread"
                                                  : "requantized";
}

/* The folder has what config.json said of the model, and no tensor is lost. */
static void check_rest(made_folder *from, made_folder *to, const char *dir)
{
    json_t *config = read_json(dir, "config.json"), *value;
    const char *key;
    json_object_foreach (from->config, key, value)
        if (strcmp(key, "quantization_config"))
            ck_assert_msg(json_equal(value, json_object_get(config, key)), "%s changed", key);
    json_decref(config);
    for (size_t i = 0; i < from->n; i++) {
        const made_tensor *t = &from->t[i];
        if (t->dtype != F8_ST_BF16 || strstr(t->name, "_scale"))
            continue;
        const made_tensor *u = made_find(to, t->name);
        ck_assert_msg(u->dtype == t->dtype && !memcmp(t->data, u->data, made_bytes(t)),
                      "%s changed", t->name);
    }
}

START_TEST(each_pair)
{
    const made_spec spec = small(sources[_i / 4]);
    const made_format to = (made_format)(_i % 4);
    made_folder *from = made_new(spec);
    if (spec.scale == F8_ST_F8_E8M0)
        json_object_set_new(made_quantization(from), "scale_fmt", json_string("ue8m0"));
    made_write(from, p.from);
    const f8_cli_result r = run_convert(p.from, format_names[to], NULL, p.out);
    runs(r);
    made_folder *got = read_back(p.out, to);
    ck_assert_int_eq(compare_all(from, got, r.out, usual_fate(spec.scales, to)), 0);
    is_sound(p.out);
    if (to != MADE_FILE)
        check_rest(from, got, p.out);
    made_free(got);
    /* And back: where nothing was quantized again, all is as it was. */
    if (to != MADE_FILE && strcmp(usual_fate(spec.scales, to), "kept") == 0) {
        const f8_cli_result b = run_convert(p.out, format_names[spec.format], NULL, p.back);
        runs(b);
        made_folder *back = read_back(p.back, spec.format);
        ck_assert_int_eq(compare_all(from, back, b.out, "kept"), 0);
        ck_assert_uint_eq(back->n, from->n);
        for (size_t i = 0; i < from->n; i++) {
            const made_tensor *t = &from->t[i], *u = made_find(back, t->name);
            ck_assert_msg(u->rank == t->rank && made_count(u) == made_count(t), "%s", t->name);
        }
        made_free(back);
    }
    made_free(from);
}
END_TEST

/* From fp8c's own file, with the model for the names and the config. */
START_TEST(from_own_file)
{
    const made_spec spec = small(sources[_i / 3]);
    const made_format to = (made_format)(_i % 3);
    made_folder *from = made_new(spec);
    made_write(from, p.from);
    write_wide(spec, p.wide);
    runs(run_convert(p.from, "native", NULL, p.own));
    const f8_cli_result r = run_convert(p.own, format_names[to], p.wide, p.out);
    if (to == MADE_MODELOPT && spec.scales == MADE_TENSOR && r.code) {
        f8_cli_fails(r, 1, "modelopt's FP8 has a scale for the input of each linear");
        ck_assert(!is_there(p.out));
        made_free(from);
        return;
    }
    runs(r);
    made_folder *got = read_back(p.out, to);
    ck_assert_int_eq(compare_all(from, got, r.out, usual_fate(spec.scales, to)), 0);
    is_sound(p.out);
    made_free(got);
    made_free(from);
}
END_TEST

/* ---- what formats have no room for ---- */

START_TEST(ragged_stays_out)
{
    const made_spec spec = {.format = MADE_CT, .scales = _i ? MADE_BLOCKS : MADE_ROWS, .wide = 200};
    made_folder *from = made_new(spec);
    made_write(from, p.from);
    const f8_cli_result r = run_convert(p.from, "hf-fp8", NULL, p.out);
    runs(r);
    made_folder *got = read_back(p.out, MADE_HF);
    /* gate, up and down of two layers */
    if (_i)
        ck_assert_int_eq(compare_all(from, got, r.out, "kept"), 6);
    else
        ck_assert_int_eq(compare_all(from, got, r.out, "requantized"), 6);
    ck_assert_int_eq(weight_of(got, "model.layers.1.mlp.up_proj")->dtype, F8_ST_BF16);
    ck_assert(!has(got, "model.layers.1.mlp.up_proj", ".weight_scale_inv"));
    is_sound(p.out);
    made_free(got);
    made_free(from);
}
END_TEST

/* k and v are ragged, q is not: loaders make one linear of them, so q stays out too. */
START_TEST(ragged_in_part)
{
    const made_spec spec = {.format = MADE_CT, .scales = MADE_ROWS, .kv = 192};
    made_folder *from = made_new(spec);
    made_write(from, p.from);
    const f8_cli_result r = run_convert(p.from, "hf-fp8", NULL, p.out);
    runs(r);
    made_folder *got = read_back(p.out, MADE_HF);
    ck_assert_int_eq(compare_all(from, got, r.out, "requantized"), 6);
    is_sound(p.out);
    made_free(got);
    made_free(from);
}
END_TEST

/* A weight of another granularity gets that of the others. */
START_TEST(mixed_granularities)
{
    made_folder *from = made_new((made_spec){.format = MADE_CT, .scales = MADE_ROWS});
    static const char one[] = "model.layers.0.mlp.up_proj.weight_scale";
    made_drop(from, one);
    made_set(made_add(from, one, F8_ST_F32, 1, -1, -1, -1), 0, 2e-4f);
    made_write(from, p.from);
    const f8_cli_result r = run_convert(p.from, "modelopt", NULL, p.out);
    runs(r);
    made_folder *got = read_back(p.out, MADE_MODELOPT);
    ck_assert_int_eq(compare_all(from, got, r.out, "kept"), 1);
    same_codes(from, got, "model.layers.0.mlp.up_proj"); /* its scale stands for all rows */
    is_sound(p.out);
    made_free(got);
    made_free(from);
}
END_TEST

/* fp8c's file and transformers' blocks have no place for them, and that is told. */
START_TEST(scales_of_inputs)
{
    const made_format to = _i ? MADE_FILE : MADE_HF;
    made_folder *from = made_new((made_spec){.format = MADE_MODELOPT, .scales = MADE_TENSOR}), *got;
    made_write(from, p.from);
    const f8_cli_result r = F8_CLI("weights", p.from, "--as", format_names[to], "-o", p.out);
    runs(r);
    ck_assert_msg(strstr(r.out, "14 scales of inputs are left out"), "%s", r.out);
    got = read_back(p.out, to);
    for (size_t i = 0; i < got->n; i++)
        ck_assert_msg(!strstr(got->t[i].name, "input_scale"), "%s", got->t[i].name);
    made_free(got);
    f8_cli_forget(p.out);
    runs(run_convert(p.from, "compressed-tensors", NULL, p.back));
    got = read_back(p.back, MADE_CT);
    static const char name[] = "model.layers.1.mlp.up_proj.input_scale";
    ck_assert(made_get(made_find(got, name), 0) == made_get(made_find(from, name), 0));
    made_free(got);
    made_free(from);
}
END_TEST

/* A head that is in FP8 stays there: no config names it. */
START_TEST(head_in_fp8)
{
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_to_fp8(from, "lm_head");
    json_object_set_new(made_quantization(from), "modules_to_not_convert", json_array());
    made_write(from, p.from);
    made_free(from);
    is_sound(p.from);
    runs(run_convert(p.from, "compressed-tensors", NULL, p.out));
    is_sound(p.out);
}
END_TEST

/* ---- files ---- */

static f8_status convert_with(f8_conversion *c, f8_diag *diag)
{
    f8_model_folder from = {0};
    f8_status status = f8_model_folder_open(&from, p.from, NULL, c->allocator, diag);
    c->from = &from;
    c->shown = p.from;
    c->path = p.out;
    if (status == F8_OK)
        status = f8_convert(c, diag);
    f8_conversion_end(c);
    f8_model_folder_close(&from);
    return status;
}

START_TEST(several_files)
{
    const made_spec spec = {.format = MADE_CT, .scales = MADE_ROWS, .tokenizer = true};
    f8_conversion c = {.to = F8_MODELOPT, .most = 200000};
    f8_diag diag = {0};
    write_made(spec, p.from);
    ck_assert_msg(convert_with(&c, &diag) == F8_OK, "%s", diag.text);
    ck_assert_uint_gt(c.n_files, 3);
    json_t *index = read_json(p.out, "model.safetensors.index.json");
    const json_t *map = json_object_get(index, "weight_map");
    f8_model_folder back = {0};
    ck_assert_msg(f8_model_folder_open(&back, p.out, NULL, NULL, &diag) == F8_OK, "%s", diag.text);
    ck_assert_uint_eq(back.weights.n_files, c.n_files);
    ck_assert_uint_eq(back.weights.n, json_object_size(map));
    ck_assert_uint_eq(back.n_scaled, 14);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        (json_int_t)c.bytes);
    uint64_t bytes = 0;
    for (size_t i = 0; i < back.weights.n; i++)
        bytes += back.weights.weight[i].tensor->bytes;
    ck_assert_uint_eq(bytes, c.bytes);
    f8_model_folder_close(&back);
    json_decref(index);
    is_sound(p.out);
    json_t *tokenizer = read_json(p.out, "tokenizer.json");
    json_decref(tokenizer);
}
END_TEST

static bool stops(void *user)
{
    (void)user;
    static int asked;
    return asked++ == 5;
}

START_TEST(stopped)
{
    f8_conversion c = {.to = (f8_fp8_format)_i, .stop = stops};
    f8_diag diag = {0};
    write_made((made_spec){.format = MADE_CT, .scales = MADE_ROWS}, p.from);
    ck_assert_int_eq(convert_with(&c, &diag), F8_ERR_CANCELLED);
    nothing_left(1);
}
END_TEST

/* ---- memory ---- */

static int64_t until_failure;

static void *failing_alloc(void *user, size_t size, size_t align)
{
    const f8_allocator usual = f8_default_allocator();
    (void)user;
    return until_failure-- > 0 ? usual.alloc(usual.user, size, align) : NULL;
}

static void failing_free(void *user, void *at, size_t size)
{
    const f8_allocator usual = f8_default_allocator();
    (void)user;
    usual.free(usual.user, at, size);
}

/* Whichever allocation fails, that is what is told, and nothing stays behind. */
START_TEST(out_of_memory)
{
    const f8_allocator failing = {failing_alloc, failing_free, NULL};
    int64_t needed = 0;
    write_made((made_spec){.format = MADE_CT, .scales = MADE_TENSOR, .hidden = 128, .wide = 128},
               p.from);
    for (int64_t n = 0; !needed; n++) {
        f8_conversion c = {.to = F8_HF_FP8, .allocator = &failing};
        f8_diag diag = {0};
        until_failure = n;
        const f8_status status = convert_with(&c, &diag);
        if (status == F8_OK) {
            needed = n;
            continue;
        }
        ck_assert_msg(status == F8_ERR_MEMORY, "allocation %d: %s", (int)n, diag.text);
        nothing_left(1);
    }
    ck_assert_int_gt(needed, 10);
}
END_TEST

/* ---- names of the model ---- */

static void prefixed(made_folder *f, const char *prefix)
{
    char name[MADE_NAME];
    for (size_t i = 0; i < f->n; i++) {
        snprintf(name, sizeof name, "%s%.80s", prefix, f->t[i].name);
        snprintf(f->t[i].name, MADE_NAME, "%s", name);
    }
}

START_TEST(names_of_a_map)
{
    const made_spec spec = {.format = MADE_HF, .scales = MADE_BLOCKS, .tokenizer = true};
    write_made(spec, p.from);
    made_folder *wide = made_new(spec), *got;
    made_widen(wide);
    prefixed(wide, "base.");
    made_add(wide, "base.extra", F8_ST_F32, 3, -1, -1, -1);
    made_write(wide, p.wide);
    made_free(wide);
    runs(run_convert(p.from, "native", NULL, p.own));
    f8_cli_fails(F8_CLI("weights", p.own, "--as", "hf-fp8", "--model", p.wide, "-o", p.out), 1,
                 "give --map or --ignore");
    ck_assert(!is_there(p.out));
    runs(F8_CLI("weights", p.own, "--as", "hf-fp8", "--model", p.wide, "--map", "base.*=*",
                "--ignore", "base.extra", "-o", p.out, "--json", "-"));
    got = read_back(p.out, MADE_HF);
    made_find(got, "base.model.layers.1.mlp.up_proj.weight_scale_inv");
    made_find(got, "base.lm_head.weight");
    made_find(got, "base.extra"); /* copied */
    made_free(got);
    is_sound(p.out);
    json_decref(read_json(p.out, "tokenizer.json"));
}
END_TEST

/* A folder without a model's: --map gives its tensors the names of the model's text. */
START_TEST(own_names)
{
    made_folder *f = made_new((made_spec){.format = MADE_CT, .scales = MADE_ROWS}), *got;
    prefixed(f, "base.");
    made_add(f, "base.extra", F8_ST_F32, 3, -1, -1, -1);
    made_write(f, p.from);
    made_free(f);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "--map", "base.*=*", "-o", p.out), 2,
                 "--map and --ignore name the tensors of --model DIR");
    runs(F8_CLI("weights", p.from, "--as", "native", "--map", "base.*=*", "--ignore", "base.extra",
                "-o", p.own, "--json", "-"));
    got = made_read(p.own);
    made_find(got, "model.layers.1.mlp.up_proj.weight_scale");
    ck_assert(!has(got, "base", ".extra"));
    for (size_t i = 0; i < got->n_metadata; i++)
        ck_assert_ptr_null(strstr(got->metadata[i].value, "base."));
    made_free(got);
    is_sound(p.own);
}
END_TEST

/* GPT-2's Conv1D: weights are [in, out]. With a prefix and a mask, which training takes as they
 * are. */
START_TEST(conv1d)
{
    static const char name[] = "h.0.attn.c_attn.weight",
                      scale[] = "h.0.attn.c_attn.weight_scale_inv";
    made_folder *own = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}), *got;
    while (own->n)
        made_drop(own, own->t[0].name);
    made_tensor *w = made_add(own, name, F8_ST_F8_E4M3, 256, 768, -1, -1);
    for (int64_t i = 0; i < made_count(w); i++)
        w->data[i] = (unsigned char)(i * 7 % 120);
    made_tensor *s = made_add(own, scale, F8_ST_F32, 2, 6, -1, -1);
    for (int64_t i = 0; i < made_count(s); i++)
        made_set(s, i, 1e-4f * (float)(1 + i));
    json_object_set_new(own->config, "model_type", json_string("gpt2"));
    made_write(own, p.from);
    made_folder *wide = own;
    runs(run_convert(p.from, "native", NULL, p.own));
    own = made_read(p.own);
    made_widen(wide);
    if (_i) {
        made_add(wide, "h.0.attn.bias", F8_ST_BOOL, 1, 1, 4, 4);
        made_add(wide, "h.0.attn.masked_bias", F8_ST_F32, -1, -1, -1, -1);
        prefixed(wide, "transformer.");
    }
    made_write(wide, p.wide);
    made_free(wide);
    const f8_cli_result r = run_convert(p.own, "hf-fp8", p.wide, p.out);
    runs(r);
    got = read_back(p.out, MADE_HF);
    ck_assert_uint_eq(got->n, _i ? 4 : 2);
    for (size_t i = 0; _i && i < got->n; i++)
        memmove(got->t[i].name, got->t[i].name + 12, strlen(got->t[i].name) - 11);
    ck_assert_int_eq(compare_all(own, got, r.out, "kept"), 0);
    made_free(got);
    made_free(own);
    const f8_cli_result lint = F8_CLI("weights", p.out);
    ck_assert_msg(!lint.code && strstr(lint.out, "Conv1D"), "%s%s", lint.out, lint.err);
}
END_TEST

/* ---- export --as ---- */

static const char small_model[] =
    "module small\n"
    "param wte: f32[256, 128] normal(0.3)\n"
    "param up.weight: f32[256, 128] normal(0.1)\n"
    "param down.weight: f32[128, 256] normal(0.1)\n"
    "func forward(%tokens: i32[2, 32], %targets: i32[2, 32]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %y = linear(gelu(linear(%x, up.weight) {transpose_b = true}), down.weight) "
    "{transpose_b = true}\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n}\n"
    "optimizer adamw {lr = 0.02}\n"
    "recipe \"head\" = bf16\n";

/* The folder that the training could have begun with. */
static void write_small(const char *extra)
{
    made_folder *f = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    while (f->n)
        made_drop(f, f->t[0].name);
    made_add(f, "wte", F8_ST_BF16, 256, 128, -1, -1);
    made_add(f, "up.weight", F8_ST_BF16, 256, 128, -1, -1);
    made_add(f, "down.weight", F8_ST_F32, 128, 256, -1, -1);
    if (extra)
        made_add(f, extra, F8_ST_F32, 3, -1, -1, -1);
    json_object_del(f->config, "quantization_config");
    made_write(f, p.wide);
    made_free(f);
}

static f8_cli_result run_export(const char *text, const char *recipe, const char *as)
{
    return F8_CLI("export", text, "--weights", p.own, "--recipe", recipe, "--as", as, "--model",
                  p.wide, "-o", p.out);
}

START_TEST(exported)
{
    char text[PATH];
    snprintf(text, PATH, "%s", f8_cli_write("small.f8", small_model, sizeof small_model - 1));
    f8_cli_ok(F8_CLI("train", text, "--data", "README.md", "--steps", "2", "--recipe", "delayed",
                     "--save", p.own));
    write_small("extra");
    /* A model that is not the weights', a format that lacks something, a folder that is there. */
    f8_cli_result r = run_export(text, "block", "hf-fp8");
    ck_assert_msg(r.code == 1 && strstr(r.err, "'extra' is no parameter of the weights"), "%s%s",
                  r.out, r.err);
    nothing_left(3);
    f8_cli_forget(p.wide);
    write_small(NULL);
    r = run_export(text, "current", "modelopt");
    ck_assert_msg(r.code == 1 && strstr(r.err, "modelopt's FP8 has a scale for the input"), "%s%s",
                  r.out, r.err);
    nothing_left(3);
    f8_cli_fails(F8_CLI("export", text, "--weights", p.own, "--recipe", "block", "--as", "hf-fp8",
                        "--model", p.wide, "-o", p.wide),
                 1, "the folder is not empty");
    nothing_left(3);
    r = run_export(text, "delayed", "hf-fp8"); /* the scales of inputs that delayed keeps */
    ck_assert_msg(!r.code && strstr(r.out, "2 scales of inputs are left out"), "%s%s", r.out, r.err);
    f8_cli_forget(p.out);
    f8_cli_ok(run_export(text, "block", "hf-fp8"));
    nothing_left(4);
    is_sound(p.out);
    /* Codes and scales are those of fp8c's own file; the rest has the model's dtypes. */
    f8_cli_ok(F8_CLI("export", text, "--weights", p.own, "--recipe", "block", "-o", p.back));
    made_folder *own = made_read(p.back), *got = read_back(p.out, MADE_HF);
    same_codes(own, got, "up");
    same_scales(own, got, "up");
    same_codes(own, got, "down");
    same_scales(own, got, "down");
    ck_assert_int_eq(made_find(got, "wte")->dtype, F8_ST_BF16);
    made_free(own);
    made_free(got);
    /* --as native is the default. */
    f8_cli_ok(F8_CLI("export", text, "--weights", p.own, "--recipe", "block", "--as", "native",
                     "-o", p.file));
    size_t n, m;
    char *a = f8_cli_read(p.back, &n), *b = f8_cli_read(p.file, &m);
    ck_assert(n == m && !memcmp(a, b, n));
    free(a);
    free(b);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("convert");
    TCase *t = tcase_create("folders");
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_loop_test(t, each_pair, 0, 4 * N_SOURCES);
    tcase_add_loop_test(t, from_own_file, 0, 3 * 5); /* of transformers' and compressed-tensors' */
    tcase_add_loop_test(t, ragged_stays_out, 0, 2);
    tcase_add_test(t, ragged_in_part);
    tcase_add_test(t, mixed_granularities);
    tcase_add_loop_test(t, scales_of_inputs, 0, 2);
    tcase_add_test(t, head_in_fp8);
    tcase_add_test(t, several_files);
    tcase_add_loop_test(t, stopped, 0, F8_N_FORMATS);
    tcase_add_test(t, out_of_memory);
    tcase_add_test(t, names_of_a_map);
    tcase_add_test(t, own_names);
    tcase_add_loop_test(t, conv1d, 0, 2);
    tcase_add_test(t, exported);
    suite_add_tcase(s, t);
    return s;
}
