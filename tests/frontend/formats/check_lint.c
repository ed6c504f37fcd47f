/* What `fp8c weights` says of folders that are wrong: each fault that is planted in a sound one is
 * found, by its kind, at its tensor. Of sound ones it says nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/formats/lint_faults.h"
#include "tests/shared/suite.h"

/* fp8c's own file of what a folder has. */
static made_folder *native(made_folder *f)
{
    const char *dir = f8_cli_temp("others"), *file = f8_cli_temp("own.safetensors");
    made_write(f, dir);
    made_free(f);
    const f8_cli_result r = F8_CLI("weights", dir, "--as", "native", "-o", file);
    ck_assert_msg(!r.code, "%s", r.err);
    return made_read(file);
}

/* ---- what the command says ---- */

/* The records of the kind `event` that the command printed; the caller releases. */
static json_t *records(const char *text, const char *event)
{
    json_t *all = json_array();
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        json_t *r = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        ck_assert_msg(r, "no JSON: %s", line);
        if (!strcmp(json_string_value(json_object_get(r, "event")), event))
            json_array_append(all, r);
        json_decref(r);
    }
    return all;
}

/* What a failing test prints: the findings, or what stands on stderr. */
static const char *told(const f8_cli_result *r)
{
    static char text[3000];
    json_t *all = records(r->out, "finding");
    char *dump = json_dumps(all, JSON_INDENT(1));
    snprintf(text, sizeof text, "exit %d\n%s%.2000s", r->code, r->err, dump ? dump : "");
    free(dump);
    json_decref(all);
    return text;
}

static const char *field(const json_t *r, const char *key)
{
    return json_string_value(json_object_get(r, key));
}

/* Whether `name` is the tensor, or one of the module's. */
static bool is_of(const char *name, const char *tensor)
{
    const size_t n = strlen(tensor);
    return !strncmp(name, tensor, n) && (!name[n] || name[n] == '.');
}

static bool names_it(const fault *x, const json_t *finding)
{
    const char *tensor = field(finding, "tensor"), *file = field(finding, "file");
    return !strcmp(field(finding, "kind"), x->kind) &&
           (x->tensor ? is_of(tensor, x->tensor) : true) && *file && *field(finding, "source") &&
           *field(finding, "text");
}

static f8_cli_result judge(const fault *x, bool plant)
{
    made_spec spec = x->spec;
    spec.format = spec.format != MADE_FILE     ? spec.format
                  : spec.scales == MADE_BLOCKS ? MADE_HF
                                               : MADE_CT;
    made_folder *f = made_new(spec);
    const char *dir = f8_cli_temp("model"), *beside = f8_cli_temp("wide");
    if (x->beside) {
        made_folder *w = made_new(spec);
        made_widen(w);
        if (plant && x->beside_plant)
            x->beside_plant(w);
        made_write(w, beside);
        made_free(w);
    }
    if (x->spec.format == MADE_FILE)
        f = native(f);
    if (plant)
        x->plant(f);
    made_write(f, dir);
    made_free(f);
    return x->beside ? F8_CLI("weights", dir, "--beside", beside, "--json", "-")
                     : F8_CLI("weights", dir, "--json", "-");
}

START_TEST(fault_is_found)
{
    const fault *x = &faults[_i];
    const f8_cli_result r = judge(x, true);
    ck_assert_msg(r.code == 1, "%s: %s", x->name, told(&r));
    if (!x->kind) {
        ck_assert_msg(!*r.out && strstr(r.err, x->tensor), "%s: %s", x->name, told(&r));
        return;
    }
    json_t *all = records(r.out, "finding"), *finding;
    size_t i, found = 0;
    json_array_foreach (all, i, finding)
        found += names_it(x, finding);
    ck_assert_msg(found, "%s: not found: %s", x->name, told(&r));
    json_decref(all);
}
END_TEST

/* ---- sound ones ---- */

/* DeepSeek-V3's config has no list: transformers leaves the head out by itself, and routers are no
 * linears. */
static void no_list(made_folder *f)
{
    json_object_del(made_quantization(f), "modules_to_not_convert");
}

static void two_of_rank_two(made_folder *f)
{
    made_add(f, "model.vision.pos_embed.weight", F8_ST_BF16, 16, 64, -1, -1);
    made_add(f, "model.vision.patch_embed.weight", F8_ST_BF16, 64, 3, 4, 4);
}

static void one_layer_left_out(made_folder *f)
{
    static const char *const part[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                       "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                       "mlp.down_proj"};
    char name[MADE_NAME];
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        snprintf(name, sizeof name, L0 "%s", part[i]);
        made_to_bf16(f, name);
    }
    json_array_append_new(json_object_get(made_quantization(f), "ignore"),
                          json_string("re:.*layers\\.0\\..*"));
}

/* A model whose new layers begin at zero. */
static void mostly_zeros(made_folder *f)
{
    for (size_t i = 0, n = 0; i < f->n; i++)
        if (f->t[i].dtype == F8_ST_F8_E4M3 && n++ < 9)
            memset(f->t[i].data, 0, made_bytes(&f->t[i]));
}

static void fused_by_name(made_folder *f)
{
    fused_scales(f);
    made_find(f, L1 "self_attn.qkv_proj.weight_scale")->dim[0] = 1;
}

/* One scale for a tensor, as AutoFP8 and vLLM have it, and as transformers does (Ministral 3). */
static void of_autofp8(made_folder *f)
{
    json_object_del(made_quantization(f), "weight_block_size");
    static_inputs(f);
    for (size_t i = 0; i < f->n; i++)
        if (is_scale(f->t[i].name))
            f->t[i].name[strlen(f->t[i].name) - strlen("_inv")] = 0;
}

static void of_transformers(made_folder *f)
{
    no_block_size(f);
    static_inputs(f);
    for (size_t i = 0; i < f->n; i++) {
        char *end = strstr(f->t[i].name, ".input_scale");
        if (end)
            snprintf(end, 20, ".activation_scale");
    }
}

static void powers_of_two(made_folder *f)
{
    set_text(made_quantization(f), "scale_fmt", "ue8m0");
    json_object_set_new(made_quantization(f), "modules_to_not_convert", json_null());
}

/* As its exporter writes the name. */
static void of_modelopt_0_47(made_folder *f)
{
    set_text(made_quantization(f), "quant_algo", "fp8_pb_wo");
    set_text(json_object_get(f->quant, "quantization"), "quant_algo", "fp8_pb_wo");
}

static const fault sound[] = {
    {"powers of two", {HF, .scale = F8_ST_F8_E8M0}, .plant = powers_of_two},
    {"blocks", {HF}, .plant = nothing},
    {"tied", {HF, .tied = true}, .plant = nothing},
    {"three files", {HF, .files = 3, .tokenizer = true}, .plant = nothing},
    {"a router", {HF, .router = true}, .plant = nothing},
    {"DeepSeek's config", {HF, .router = true}, .plant = no_list},
    {"scales of BF16, as Qwen's", {HF, .scale = F8_ST_BF16}, .plant = nothing},
    {"AutoFP8's", {.scales = MADE_TENSOR, .inputs = true}, .plant = of_autofp8},
    {"transformers' tensors", {.scales = MADE_TENSOR, .inputs = true}, .plant = of_transformers},
    {"k of 64 rows", {HF, .kv = 64}, .plant = nothing},
    {"zero rows", {HF, .zero = L0 "mlp.up_proj"}, .plant = nothing},
    {"small", {HF, .rms = 5e-5f}, .plant = nothing},
    {"large", {CT(TENSOR), .rms = 4}, .plant = nothing},
    {"mostly zeros", {CT(ROWS)}, .plant = mostly_zeros},
    {"beside the same values",
     {HF, .scale = F8_ST_F8_E8M0},
     .plant = powers_of_two,
     .beside = true},
    {"beside itself", {HF}, .plant = nothing, .beside = true},
    {"tensors, inputs", {CT(TENSOR), .inputs = true}, .plant = nothing},
    {"rows in BF16", {CT(ROWS), .scale = F8_ST_BF16}, .plant = nothing},
    {"rows, odd", {CT(ROWS), .hidden = 192, .wide = 201}, .plant = nothing},
    {"blocks, odd", {CT(BLOCKS), .hidden = 192, .wide = 201}, .plant = nothing},
    {"MX, a router", {CT(MX), .router = true}, .plant = nothing},
    {"a layer left out", {CT(ROWS), .files = 2}, .plant = one_layer_left_out},
    {"qkv in one", {CT(TENSOR)}, .plant = fused_by_name},
    {"tables of vision", {CT(ROWS)}, .plant = two_of_rank_two},
    {"ModelOpt's tensors", {MO(TENSOR), .tokenizer = true}, .plant = nothing},
    {"with a cache's scales", {MO(TENSOR)}, .plant = cache_scales},
    {"ModelOpt's rows, tied", {MO(ROWS), .tied = true}, .plant = nothing},
    {"ModelOpt's blocks, a router", {MO(BLOCKS), .router = true}, .plant = nothing},
    {"ModelOpt's blocks by 0.47", {MO(BLOCKS)}, .plant = of_modelopt_0_47},
    {"ModelOpt's MX", {MO(MX)}, .plant = nothing},
    {"own tensors", {OWN(TENSOR)}, .plant = nothing},
    {"own rows", {OWN(ROWS)}, .plant = nothing},
    {"own blocks", {OWN(BLOCKS)}, .plant = nothing},
    {"own MX", {OWN(MX)}, .plant = nothing},
};

enum { N_SOUND = sizeof sound / sizeof *sound };

START_TEST(sound_is_left_alone)
{
    const fault *x = &sound[_i];
    const f8_cli_result r = judge(x, true);
    ck_assert_msg(!r.code && !*r.err, "%s: %s", x->name, told(&r));
    json_t *all = records(r.out, "finding");
    ck_assert_uint_eq(json_array_size(all), 0);
    json_decref(all);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("lint");
    TCase *t = tcase_create("folders");
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, fault_is_found, 0, N_FAULTS);
    tcase_add_loop_test(t, sound_is_left_alone, 0, N_SOUND);
    suite_add_tcase(s, t);
    return s;
}
