/* Adapters of LoRA that are added to FP8 weights: the new values are those of W + alpha / r B A,
 * quantized; each SQNR is what the command tells; everything else stays. And what is refused. */
#include <math.h>

#include "ir/num/fp8.h"
#include "tests/shared/formats/convert_case.h"

enum { R = 4 };

static const char q0[] = "model.layers.0.self_attn.q_proj", up1[] = "model.layers.1.mlp.up_proj",
                  head[] = "lm_head";

/* ---- adapters as peft writes them ---- */

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 24) - 0.5f;
}

/* A file of no tensors. */
static made_folder *empty(void)
{
    made_folder *f = made_new((made_spec){.format = MADE_FILE, .scales = MADE_TENSOR});
    while (f->n)
        made_drop(f, f->t[f->n - 1].name);
    return f;
}

static made_tensor *add_factor(made_folder *f, const char *name, int64_t rows, int64_t columns,
                               float size)
{
    uint32_t state = (uint32_t)(rows * 131 + columns);
    made_tensor *t = made_add(f, name, F8_ST_F32, rows, columns, -1, -1);
    for (int64_t i = 0; i < rows * columns; i++)
        made_set(t, i, noise(&state) * size);
    return t;
}

/* The adapter of a linear [out, in]. */
static void add_adapter(made_folder *f, const char *linear, const made_tensor *weight, float size)
{
    char name[MADE_NAME];
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", linear);
    add_factor(f, name, R, weight->dim[1], 0.2f);
    snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", linear);
    add_factor(f, name, weight->dim[0], R, size);
}

static const char usual_config[] = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, "
                                   "\"bias\": \"none\", \"use_dora\": false, "
                                   "\"init_lora_weights\": true, \"modules_to_save\": null}";

static void write_adapters(made_folder *f, const char *config)
{
    char file[PATH + 40];
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", p.wide);
    ck_assert(!mkdir(p.wide, 0777));
    f->spec.files = 1;
    made_write(f, file);
    if (config)
        made_text(p.wide, "adapter_config.json", config);
}

static made_tensor *weight_of(made_folder *f, const char *linear)
{
    char name[MADE_NAME];
    snprintf(name, sizeof name, "%s.weight", linear);
    return made_find(f, name);
}

/* The values of `linear` plus what its adapter adds, by the definition. *energy becomes the sum of
 * the squares of what it adds. */
static float *merged(made_folder *from, made_folder *adapters, const char *linear, double factor,
                     double *energy)
{
    char name[MADE_NAME];
    const made_tensor *w = weight_of(from, linear);
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", linear);
    const made_tensor *a = made_find(adapters, name);
    snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", linear);
    const made_tensor *b = made_find(adapters, name);
    float *x = made_values(from, linear);
    *energy = 0;
    for (int64_t i = 0; i < w->dim[0]; i++)
        for (int64_t j = 0; j < w->dim[1]; j++) {
            double sum = 0;
            for (int64_t k = 0; k < R; k++)
                sum += (double)made_get(b, i * R + k) * (double)made_get(a, k * w->dim[1] + j);
            x[i * w->dim[1] + j] = (float)((double)x[i * w->dim[1] + j] + factor * sum);
            *energy += factor * factor * sum * sum;
        }
    return x;
}

/* ---- what is told ---- */

static json_t *record_of(const char *out, const char *linear)
{
    for (const char *line = out; *line; line += strcspn(line, "\n") + 1) {
        json_t *r = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const char *weight = json_string_value(json_object_get(r, "weight"));
        if (weight && !strcmp(weight, linear))
            return r;
        json_decref(r);
    }
    ck_abort_msg("nothing was said of %s", linear);
}

static void check_merged(made_folder *from, made_folder *adapters, made_folder *to,
                         const char *linear, double factor, const char *out)
{
    double energy, signal = 0, wrong = 0;
    const int64_t n = made_count(weight_of(from, linear));
    float *want = merged(from, adapters, linear, factor, &energy), *is = made_values(to, linear);
    json_t *r = record_of(out, linear);
    for (int64_t i = 0; i < n; i++) {
        signal += (double)want[i] * want[i];
        wrong += ((double)is[i] - want[i]) * ((double)is[i] - want[i]);
    }
    const double sqnr = 10 * log10(signal / wrong), added = 10 * log10(energy / wrong);
    ck_assert_str_eq(json_string_value(json_object_get(r, "fate")), "merged");
    /* E4M3 keeps 3 bits: 2^-4 of a value at most, and 25 dB for values that are spread evenly */
    ck_assert_msg(sqnr > 25, "%s: %.2f dB", linear, sqnr);
    ck_assert_msg(fabs(json_real_value(json_object_get(r, "sqnr_db")) - sqnr) < 0.01,
                  "%s: SQNR %.3f dB", linear, sqnr);
    ck_assert_msg(fabs(json_real_value(json_object_get(r, "added_sqnr_db")) - added) < 0.01,
                  "%s: of what is added %.3f dB", linear, added);
    json_decref(r);
    free(want);
    free(is);
}

/* ---- folders of each format ---- */

static const made_spec sources[] = {
    {.format = MADE_HF, .scales = MADE_BLOCKS},
    {.format = MADE_CT, .scales = MADE_TENSOR},
    {.format = MADE_CT, .scales = MADE_ROWS},
    {.format = MADE_CT, .scales = MADE_MX},
    {.format = MADE_MODELOPT, .scales = MADE_TENSOR},
    {.format = MADE_MODELOPT, .scales = MADE_BLOCKS},
};

static f8_cli_result merge(const char *to)
{
    return F8_CLI("weights", p.from, "--as", to, "--adapters", p.wide, "-o", p.out, "--json", "-");
}

START_TEST(each_format)
{
    made_folder *from = made_new(sources[_i]), *adapters = empty();
    add_adapter(adapters, q0, weight_of(from, q0), 0.2f);
    add_adapter(adapters, up1, weight_of(from, up1), 0.01f);
    add_adapter(adapters, head, weight_of(from, head), 0.2f); /* bf16 */
    made_write(from, p.from);
    write_adapters(adapters, usual_config);
    const f8_cli_result r = merge(format_names[sources[_i].format]);
    runs(r);
    made_folder *to = read_back(p.out, sources[_i].format);
    check_merged(from, adapters, to, q0, 2, r.out);
    check_merged(from, adapters, to, up1, 2, r.out);
    double energy;
    float *want = merged(from, adapters, head, 2, &energy);
    const made_tensor *got = weight_of(to, head);
    for (int64_t i = 0; i < made_count(got); i++)
        ck_assert_msg(made_get(got, i) == f8_round_bf16(want[i]), "head: value %d", (int)i);
    free(want);
    for (size_t i = 0; i < from->n; i++) { /* the others */
        const made_tensor *t = &from->t[i], *u = made_find(to, t->name);
        if (strncmp(t->name, q0, strlen(q0)) && strncmp(t->name, up1, strlen(up1)) &&
            strncmp(t->name, head, strlen(head)))
            ck_assert_msg(t->dtype == u->dtype && !memcmp(t->data, u->data, made_bytes(t)),
                          "%s changed", t->name);
    }
    ck_assert_uint_eq(from->n, to->n);
    is_sound(p.out);
    made_free(to);
    made_free(adapters);
    made_free(from);
}
END_TEST

/* A weight that stays out of FP8 for its size has its adapter, too. */
START_TEST(ragged)
{
    made_folder *from = made_new((made_spec){.format = MADE_CT, .scales = MADE_ROWS, .wide = 200});
    made_folder *adapters = empty();
    double energy;
    add_adapter(adapters, up1, weight_of(from, up1), 0.2f);
    made_write(from, p.from);
    write_adapters(adapters, usual_config);
    runs(merge("hf-fp8"));
    made_folder *to = read_back(p.out, MADE_HF);
    float *want = merged(from, adapters, up1, 2, &energy);
    const made_tensor *got = weight_of(to, up1);
    ck_assert_int_eq(got->dtype, F8_ST_BF16);
    for (int64_t i = 0; i < made_count(got); i++)
        ck_assert_msg(made_get(got, i) == f8_round_bf16(want[i]), "value %d", (int)i);
    free(want);
    made_free(to);
    made_free(adapters);
    made_free(from);
}
END_TEST

typedef struct scaling {
    const char *config;
    double factor;
} scaling;

START_TEST(factors)
{
    static const scaling scalings[] = {
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6}", 1.5},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"use_rslora\": true}", 3},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"alpha_pattern\": {\"q_proj\": 2}}", 0.5},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"alpha_pattern\": {\"roj\": 2, "
         "\"self_attn.q_proj\": 4}}",
         1},
    };
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_folder *adapters = empty();
    add_adapter(adapters, q0, weight_of(from, q0), 0.2f);
    made_write(from, p.from);
    write_adapters(adapters, scalings[_i].config);
    const f8_cli_result r = merge("hf-fp8");
    runs(r);
    made_folder *to = read_back(p.out, MADE_HF);
    check_merged(from, adapters, to, q0, scalings[_i].factor, r.out);
    made_free(to);
    made_free(adapters);
    made_free(from);
}
END_TEST

/* peft's patterns are regular expressions: a dot is any character. Its config has the
 * fan_in_fan_out of the last module, which may be another's. A model of Conv1D has weights
 * [in, out]. */
START_TEST(square)
{
    static const char *const configs[] = {
        "{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"fan_in_fan_out\": true, "
        "\"alpha_pattern\": {\"q.proj\": 8}}",
        "{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"fan_in_fan_out\": false}"};
    const bool conv1d = _i == 1;
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_folder *adapters = empty(), *turned = empty();
    made_tensor *a = add_factor(adapters,
                                "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", R,
                                256, 0.2f),
                *b = add_factor(adapters,
                                "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
                                256, R, 0.2f);
    /* the same product for a weight that lies the other way: A of it is B turned, B is A turned */
    made_tensor *c = add_factor(turned, b->name, 256, R, 0),
                *d = add_factor(turned, a->name, R, 256, 0);
    for (int64_t k = 0; k < R; k++)
        for (int64_t i = 0; i < 256; i++) {
            made_set(c, i * R + k, made_get(a, k * 256 + i));
            made_set(d, k * 256 + i, made_get(b, i * R + k));
        }
    if (conv1d)
        json_object_set_new(from->config, "model_type", json_string("gpt2"));
    made_write(from, p.from);
    write_adapters(adapters, configs[_i]);
    const f8_cli_result r = merge("hf-fp8");
    runs(r);
    made_folder *to = read_back(p.out, MADE_HF);
    check_merged(from, conv1d ? turned : adapters, to, q0, 2, r.out);
    made_free(to);
    made_free(turned);
    made_free(adapters);
    made_free(from);
}
END_TEST

/* What a dtype can't hold is refused, and so is an FP8 weight that has become infinite. A config of
 * adapters in the base's folder stays there. */
START_TEST(too_large)
{
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_folder *adapters = empty();
    const char *linear = _i ? q0 : head;
    add_adapter(adapters, linear, weight_of(from, linear), 1e38f);
    for (size_t i = 0; i < adapters->n; i++)
        made_times(&adapters->t[i], 1e10f);
    made_write(from, p.from);
    made_text(p.from, "adapter_config.json", "{}");
    for (size_t i = 0; i < adapters->n; i++)
        for (int64_t k = 0; k < made_count(&adapters->t[i]); k++)
            if (!isfinite(made_get(&adapters->t[i], k)))
                made_set(&adapters->t[i], k, 3e38f);
    write_adapters(adapters, usual_config);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "--adapters", p.wide, "-o", p.out), 1,
                 _i ? "with its adapter has values that are NaN or Inf"
                    : "'lm_head.weight' with its adapter has values that BF16 can't hold");
    ck_assert(!is_there(p.out));
    runs(run_convert(p.from, "compressed-tensors", NULL, p.out));
    char path[PATH + 40];
    snprintf(path, sizeof path, "%s/adapter_config.json", p.out);
    ck_assert(!is_there(path));
    made_free(adapters);
    made_free(from);
}
END_TEST

START_TEST(adds_nothing)
{
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_folder *adapters = empty();
    add_adapter(adapters, q0, weight_of(from, q0), 0);
    made_write(from, p.from);
    write_adapters(adapters, usual_config);
    const f8_cli_result r =
        F8_CLI("weights", p.from, "--as", "hf-fp8", "--adapters", p.wide, "-o", p.out);
    runs(r);
    ck_assert_msg(strstr(r.out, "q_proj: its adapter adds nothing"), "%s", r.out);
    made_folder *to = read_back(p.out, MADE_HF);
    for (size_t i = 0; i < from->n; i++) /* codes and scales are kept */
        ck_assert(!memcmp(from->t[i].data, made_find(to, from->t[i].name)->data,
                          made_bytes(&from->t[i])));
    made_free(to);
    made_free(adapters);
    made_free(from);
}
END_TEST

/* ---- a file of fp8c's own, with the adapters of a text in it ---- */

/* The factors of a weight [rows, columns] as they lie: A B, or B A. */
static void add_own(made_folder *f, const char *linear, int64_t rows, int64_t columns, bool ab)
{
    char name[MADE_NAME];
    snprintf(name, sizeof name, "lora.%s.%c", linear, ab ? 'a' : 'b');
    add_factor(f, name, rows, R, 0.2f);
    snprintf(name, sizeof name, "lora.%s.%c", linear, ab ? 'b' : 'a');
    add_factor(f, name, R, columns, 0.2f);
}

/* The same adapters under peft's names, for the definition. */
static void as_peft(made_folder *own, made_folder *to, const char *linear, bool ab)
{
    static const char *const ends[] = {"lora_A", "lora_B"};
    char name[MADE_NAME];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "lora.%s.%c", linear, i != ab ? 'b' : 'a');
        const made_tensor *t = made_find(own, name);
        snprintf(name, sizeof name, "base_model.model.%s.%s.weight", linear, ends[i]);
        made_tensor *u = made_add(to, name, F8_ST_F32, t->dim[0], t->dim[1], -1, -1);
        memcpy(u->data, t->data, made_bytes(t));
    }
}

START_TEST(of_a_text)
{
    const bool ab = _i;
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_write(from, p.from);
    runs(run_convert(p.from, "native", NULL, p.own));
    made_folder *own = made_read(p.own), *adapters = empty();
    const made_tensor *q = weight_of(from, q0), *up = weight_of(from, up1);
    add_own(own, q0, q->dim[0], q->dim[1], ab);
    add_own(own, up1, up->dim[0], up->dim[1], ab);
    as_peft(own, adapters, q0, ab);
    as_peft(own, adapters, up1, ab);
    made_write(own, p.file);
    const f8_cli_result r = F8_CLI("weights", p.file, "--as", "native", "--adapters",
                                   "*.weight=lora.*.a,lora.*.b,0.5", "-o", p.out, "--json", "-");
    runs(r);
    made_folder *to = read_back(p.out, MADE_FILE);
    check_merged(from, adapters, to, q0, 0.5, r.out);
    check_merged(from, adapters, to, up1, 0.5, r.out);
    ck_assert_uint_eq(to->n, own->n - 4); /* without the factors */
    made_free(to);
    f8_cli_fails(F8_CLI("weights", p.file, "--as", "native", "--adapters",
                        "*.weight=lora.*.a,lora.*.c", "-o", p.out),
                 1, "there is no 'lora.model.layers.0.self_attn.q_proj.c' beside");
    f8_cli_fails(F8_CLI("weights", p.file, "--as", "native", "--adapters", "*.weight=lora.*.a,b",
                        "-o", p.out),
                 1, "as many * in each name");
    static const char *const factors[] = {"two", "", "1x", "1e", ".", "1e999", "--1", "2,3"};
    for (int i = 0; i < 8; i++) {
        char names[PATH];
        snprintf(names, sizeof names, "*.weight=lora.*.a,lora.*.b,%s", factors[i]);
        f8_cli_fails(F8_CLI("weights", p.file, "--as", "native", "--adapters", names, "-o", p.out),
                     1, "--adapters takes");
    }
    f8_cli_fails(
        F8_CLI("weights", p.file, "--as", "native", "--adapters", "*.weight=x.*,y.*", "-o", p.out),
        1, "no matrix NAME.weight is called so and has both factors");
    made_free(adapters);
    made_free(own);
    made_free(from);
}
END_TEST

/* ---- what is refused ---- */

typedef struct refusal {
    const char *config, *message;
} refusal;

START_TEST(configs)
{
    static const refusal refusals[] = {
        {NULL, "it has no adapter_config.json"},
        {"{\"peft_type\": \"LOHA\", \"lora_alpha\": 8}", "its adapters are LOHA, not LORA"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"use_dora\": true}", "'use_dora'"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"use_what_comes\": {\"a\": 1}}",
         "'use_what_comes'"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"bias\": \"all\"}", "'bias'"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"modules_to_save\": [\"lm_head\"]}",
         "'modules_to_save'"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"init_lora_weights\": \"pissa_niter_16\"}",
         "init_lora_weights is 'pissa_niter_16'"},
        {"{\"peft_type\": \"LORA\"}", "has no lora_alpha"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"alpha_pattern\": {\"q.*\": 2}}",
         "the regular expression 'q.*'"},
        {"[]", "it is no JSON object"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"alpha_pattern\": {\"k_proj\": \"2\"}}",
         "alpha_pattern's 'k_proj' is no number"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"alpha_pattern\": [1]}",
         "alpha_pattern is no JSON object"},
    };
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_folder *adapters = empty();
    add_adapter(adapters, q0, weight_of(from, q0), 0.2f);
    made_write(from, p.from);
    write_adapters(adapters, refusals[_i].config);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "--adapters", p.wide, "-o", p.out), 1,
                 refusals[_i].message);
    ck_assert(!is_there(p.out));
    made_free(adapters);
    made_free(from);
}
END_TEST

static void drop_b(made_folder *f)
{
    made_drop(f, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
}

static void put_nan(made_folder *f)
{
    made_set(&f->t[1], 3, NAN);
}

static void other_shape(made_folder *f)
{
    drop_b(f);
    add_factor(f, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", 8, R, 1);
}

static void other_module(made_folder *f)
{
    add_factor(f, "base_model.model.model.layers.7.mlp.up_proj.lora_A.weight", R, 8, 1);
    add_factor(f, "base_model.model.model.layers.7.mlp.up_proj.lora_B.weight", 8, R, 1);
}

static void norm(made_folder *f)
{
    add_factor(f, "base_model.model.model.norm.lora_A.weight", R, 8, 1);
    add_factor(f, "base_model.model.model.norm.lora_B.weight", 8, R, 1);
}

static void other_tensor(made_folder *f)
{
    add_factor(f, "base_model.model.lm_head.weight", 8, 8, 1);
}

static void other_prefix(made_folder *f)
{
    add_factor(f, "model.q_proj.lora_A.weight", 8, 8, 1);
    add_factor(f, "model.q_proj.lora_B.weight", 8, 8, 1);
}

START_TEST(tensors)
{
    static const struct {
        void (*spoil)(made_folder *f);
        const char *message;
    } cases[] = {{drop_b, "there is no 'base_model.model.model.layers.0.self_attn.q_proj.lora_B"},
                 {put_nan, "has values that are NaN or Inf"},
                 {other_shape, "which do not go with a weight [256, 256]"},
                 {other_module, "there is an adapter for 'model.layers.7.mlp.up_proj.weight'"},
                 {norm, "there is an adapter for 'model.norm.weight'"},
                 {other_tensor, "'base_model.model.lm_head.weight' is no factor of an adapter"},
                 {other_prefix, "does not begin with base_model.model."}};
    made_folder *from = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_folder *adapters = empty();
    add_adapter(adapters, q0, weight_of(from, q0), 0.2f);
    cases[_i].spoil(adapters);
    made_write(from, p.from);
    write_adapters(adapters, usual_config);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "--adapters", p.wide, "-o", p.out), 1,
                 cases[_i].message);
    ck_assert(!is_there(p.out));
    made_free(adapters);
    made_free(from);
}
END_TEST

START_TEST(usage)
{
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    f8_cli_fails(F8_CLI("weights", p.from, "--adapters", p.wide), 2,
                 "--adapters needs --as FORMAT");
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "-o", p.out, "--adapters", p.nowhere),
                 1, "it is no folder");
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "-o", p.out, "--adapters", p.from), 1,
                 "it has no adapter_config.json");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("adapters");
    TCase *t = tcase_create("merged");
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_loop_test(t, each_format, 0, sizeof sources / sizeof *sources);
    tcase_add_test(t, ragged);
    tcase_add_loop_test(t, factors, 0, 4);
    tcase_add_loop_test(t, square, 0, 2);
    tcase_add_loop_test(t, too_large, 0, 2);
    tcase_add_test(t, adds_nothing);
    tcase_add_loop_test(t, of_a_text, 0, 2);
    tcase_add_loop_test(t, configs, 0, 12);
    tcase_add_loop_test(t, tensors, 0, 7);
    tcase_add_test(t, usage);
    suite_add_tcase(s, t);
    return s;
}
