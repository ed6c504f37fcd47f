/* `fp8c train --save` and `fp8c eval`. A checkpoint evaluated under the recipe of its training
 * gives the held-out loss of that training, bit for bit. Weights from elsewhere load by name,
 * exactly. Where a file does not fit the model, each wrong tensor is named and nothing is
 * evaluated. */
#include <math.h>

#include "tests/shared/api/checkpoint.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define LLAMA "frontend/models/llama_block.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

enum { TIMEOUT = 900, LINEARS = 4 };

/* Train the small GPT for a few steps; gives the held-out loss and leaves the checkpoint at `name`.
 */
static double train(const char *recipe, const char *name, const char *steps)
{
    ok(RUN("train", GPT, SMALL, "--steps", steps, "--recipe", recipe, "--save", f8_cli_temp(name)));
    return number("summary", 0, "heldout_loss");
}

static double eval(const char *recipe, const char *name)
{
    ok(RUN("eval", GPT, SMALL, "--recipe", recipe, "--weights", f8_cli_temp(name)));
    return number("eval", 0, "heldout_loss");
}

/* ---- what was trained is what is served ---- */

static const char *const recipes[] = {"f32",     "bf16",          "delayed", "current", "fake",
                                      "rowwise", "rowwise_gw_hp", "block",   "mxfp8"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* FP8 GEMMs of a forward pass. */
static int fp8_gemms(const char *recipe)
{
    static const char *const none[] = {"f32", "bf16", "fake"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(recipe, none[i]))
            return 0;
    return LINEARS;
}

START_TEST(same_loss)
{
    const char *recipe = recipes[_i];
    if (f8_cli_sanitized() && _i % 3 != 2) /* time: delayed, rowwise and mxfp8 only */
        return;
    const double trained = train(recipe, "weights", "5");
    const double served = eval(recipe, "weights");
    ck_assert_msg(trained == served, "%s: %.17g after training, %.17g by eval", recipe, trained,
                  served);
    ck_assert_double_eq(number("eval", 0, "fp8_gemms_planned"), fp8_gemms(recipe));
    ck_assert_double_eq(number("eval", 0, "fp8_gemms_executed"), fp8_gemms(recipe));
    ck_assert_double_eq(number("eval", 0, "batches"), 9); /* of 599 windows of 32: 18 by two */
    ck_assert_double_eq(number("eval", 0, "tokens"), 9 * 2 * 32);
    ck_assert_double_gt(number("eval", 0, "peak_bytes"), 1000);
    has_text("eval", 0, "recipe", recipe);
    has_text("eval", 0, "trained", recipe);
    has_text("eval", 0, "target", "cpu");
}
END_TEST

/* One command, one table: what was trained in FP8, served in each. */
START_TEST(side_by_side)
{
    double loss[4];
    train("delayed", "weights", "5");
    for (int i = 0; i < 4; i++)
        loss[i] = eval(recipes[i], "weights");
    const f8_cli_result r =
        RUN("eval", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("weights"),
            "--compare", "bf16", "--compare", "current", "--compare", "f32");
    ok(r);
    static const int order[] = {2, 1, 3, 0};
    char row[64];
    for (int i = 0; i < 4; i++) {
        const double x = number("eval", i, "heldout_loss");
        has_text("eval", i, "recipe", recipes[order[i]]);
        ck_assert_msg(x == loss[order[i]], "%s: %.17g, alone %.17g", recipes[order[i]], x,
                      loss[order[i]]);
        snprintf(row, sizeof row, "\n%-24s %11.4f %+9.3f%%", recipes[order[i]], x,
                 100 * (x / loss[1] - 1));
        if (i == 1)
            snprintf(row, sizeof row, "\nbf16%*s %11.4f          - ", 20, "", x);
        ck_assert_msg(strstr(r.out, row) != NULL, "'%s' has no '%s'", r.out, row);
        for (int k = 0; k < i; k++)
            ck_assert(loss[i] != loss[k]);
    }
    ck_assert_ptr_nonnull(strstr(r.out, "weights: trained under delayed, 5 steps\n"));
    ck_assert_ptr_nonnull(strstr(r.out, "losses in nats per byte, of 576 held-out bytes of "));
}
END_TEST

/* Threads, fusion and another seed than the training's change nothing; the interpreter little. */
START_TEST(same_bits)
{
    if (f8_cli_sanitized()) /* time */
        return;
    const double want = train("delayed", "weights", "3");
    static const char *const variants[][2] = {
        {"--threads", "1"}, {"--threads", "3"}, {"--no-fuse", NULL}};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        ok(RUN("eval", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("weights"),
               variants[i][0], variants[i][1]));
        ck_assert(number("eval", 0, "heldout_loss") == want);
    }
    ok(RUN("eval", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("weights"),
           "--target", "reference"));
    ck_assert(fabs(number("eval", 0, "heldout_loss") / want - 1) <
              1e-3); /* GEMM's sums alone differ */
}
END_TEST

/* Linears that share an input, and so a scale; weights stored as [out, in]. */
START_TEST(shared_scales)
{
    ok(RUN("train", LLAMA, "--steps", "2", "--recipe", "delayed", "--save",
           f8_cli_temp("weights")));
    const double trained = number("summary", 0, "heldout_loss");
    ok(RUN("eval", LLAMA, "--recipe", "delayed", "--weights", f8_cli_temp("weights")));
    ck_assert(number("eval", 0, "heldout_loss") == trained);
}
END_TEST

/* ---- the file ---- */

/* Parameters under their own names, states under a prefix; the same run gives the same file, also
 * next to another recipe, whose run is not the one saved. */
START_TEST(checkpoint)
{
    size_t n, m;
    f8_st_file f;
    train("delayed", "weights", "3");
    ok(RUN("train", GPT, SMALL, "--steps", "3", "--recipe", "delayed", "--compare", "bf16",
           "--compare", "f32", "--save", f8_cli_temp("again")));
    has_text("summary", 2, "recipe", "f32");
    char *a = f8_cli_read(f8_cli_temp("weights"), &n), *b = f8_cli_read(f8_cli_temp("again"), &m);
    ck_assert(n == m && !memcmp(a, b, n));
    free(a);
    free(b);
    ck_assert(f8_st_open(&f, f8_cli_temp("weights"), NULL, NULL) == F8_OK);
    static const char *const metadata[][2] = {{"format", "pt"},      {"fp8c.version", "1"},
                                              {"fp8c.model", "gpt"}, {"fp8c.recipe", "delayed"},
                                              {"fp8c.steps", "3"},   {"fp8c.seed", "1"}};
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++)
        ck_assert_str_eq(f8_st_metadata(&f, metadata[i][0]), metadata[i][1]);
    char type[64];
    ck_assert_str_eq(f8_st_type_text(f8_st_find(&f, "h.0.attn.c_attn.weight"), type, sizeof type),
                     "F32 [32, 96]");
    ck_assert_str_eq(f8_st_type_text(f8_st_find(&f, "fp8c.state.fp8.scale"), type, sizeof type),
                     "F32 [12]");
    ck_assert_str_eq(
        f8_st_type_text(f8_st_find(&f, "fp8c.state.opt.m.wpe.weight"), type, sizeof type),
        "F32 [32, 32]");
    ck_assert_ptr_null(f8_st_find(&f, "fp8.scale"));
    f8_st_close(&f);
}
END_TEST

/* ---- files made from others ---- */

/* Plain weights as Hugging Face's GPT-2 has them: a prefix, the head written out, causal masks,
 * nothing of ours. */
START_TEST(others_names)
{
    train("current", "weights", "3");
    const double want = eval("bf16", "weights"), want8 = eval("current", "weights");
    copy *c = read_copy("weights");
    drop_states(c);
    for (size_t i = 0; i < c->n; i++)
        set_name(c, i, "transformer.", strdupa(c->name[i]));
    add(c, "transformer.h.0.attn.bias", F8_ST_F32, 4, (int64_t[]){1, 1, 32, 32});
    add(c, "transformer.h.0.attn.masked_bias", F8_ST_F32, 0, NULL);
    const size_t wte = at(c, "transformer.wte.weight");
    const size_t head = add(c, "lm_head.weight", F8_ST_F32, 2, c->tensor[wte].dim);
    memcpy(c->bytes[head], c->bytes[wte], (size_t)c->tensor[wte].bytes);
    while (c->n_metadata > 1) /* "format" alone */
        free((char *)c->metadata[--c->n_metadata].key), free(c->value[c->n_metadata]);
    write_copy(c, "others", false);
    ck_assert(eval("bf16", "others") == want);
    ck_assert(eval("current", "others") == want8);
    ((char *)c->bytes[head])[5] ^= 1;
    write_copy(c, "others", true);
    REFUSED(RUN("eval", GPT, SMALL, "--weights", f8_cli_temp("others")),
            "gpt.f8 under bf16:\n  unexpected  lm_head.weight  F32 [256, 32]\n");
}
END_TEST

/* A state of the model's own, which eval reads, is served as well. */
static const char counting[] =
    "module counting\ndim V = 256\n"
    "param wte: f32[V, 16] normal(0.5)\nparam fc.weight: f32[16, 16] normal(0.3)\nstate seen: "
    "f32[] zeros\n"
    "func forward(%tokens: i32[2, 32], %targets: i32[2, 32]) -> (%loss: f32[]) {\n"
    "  %x = mul(linear(embedding(wte, %tokens), fc.weight), add(1, mul(0.25, seen)))\n"
    "  return cross_entropy(linear(%x, wte) {transpose_b = true, name = \"head\"}, %targets), "
    "seen <- add(seen, 1)\n}\n"
    "optimizer adamw {lr = 0.01}\n";

START_TEST(states_of_the_model)
{
    f8_st_file f;
    char *file = strdup(f8_cli_write("counting.f8", counting, sizeof counting - 1));
    ok(RUN("train", file, "--steps", "2", "--recipe", "delayed", "--save", f8_cli_temp("weights")));
    const double trained = number("summary", 0, "heldout_loss");
    ok(RUN("eval", file, "--recipe", "delayed", "--weights", f8_cli_temp("weights")));
    ck_assert(number("eval", 0, "heldout_loss") == trained);
    ck_assert(f8_st_open(&f, f8_cli_temp("weights"), NULL, NULL) == F8_OK);
    float seen = 0;
    ck_assert(f8_st_read(&f, f8_st_find(&f, "fp8c.state.seen"), &seen, NULL) == F8_OK && seen == 2);
    f8_st_close(&f);
    copy *c = read_copy("weights");
    set_name(c, at(c, "fp8c.state.seen"), "", "seen"); /* a buffer, as others save it */
    write_copy(c, "buffer", false);
    ok(RUN("eval", file, "--recipe", "delayed", "--weights", f8_cli_temp("buffer")));
    ck_assert(number("eval", 0, "heldout_loss") == trained);
    drop(c, at(c, "seen"));
    write_copy(c, "none", true);
    REFUSED(RUN("eval", file, "--recipe", "bf16", "--weights", f8_cli_temp("none")),
            "under bf16:\n  missing     seen  F32 []\n");
    free(file);
}
END_TEST

/* Weights in BF16 and F16 load exactly: they give the loss of the same values in F32. */
START_TEST(narrow_weights)
{
    const f8_st_dtype narrow = _i ? F8_ST_F16 : F8_ST_BF16;
    train("f32", "weights", "3");
    copy *wide = read_copy("weights"), *c = read_copy("weights");
    ((float *)wide->bytes[at(wide, "wpe.weight")])[0] = 3e-6f; /* f16: subnormal */
    ((float *)wide->bytes[at(wide, "wpe.weight")])[1] = -7e-5f;
    drop_states(wide);
    drop_states(c);
    for (size_t i = 0; i < c->n; i++) {
        const uint64_t n = c->tensor[i].bytes / 4;
        float *values = wide->bytes[i];
        uint16_t *codes = c->bytes[i];
        for (uint64_t k = 0; k < n; k++) {
            if (_i) {
                const _Float16 half = (_Float16)values[k];
                memcpy(&codes[k], &half, 2);
                values[k] = (float)half;
            } else {
                uint32_t bits;
                memcpy(&bits, &values[k], 4);
                codes[k] = (uint16_t)(bits >> 16);
                bits &= 0xffff0000;
                memcpy(&values[k], &bits, 4);
            }
        }
        c->tensor[i].dtype = narrow;
        c->tensor[i].bytes = 2 * n;
    }
    write_copy(wide, "wide", true);
    write_copy(c, "narrow", true);
    const double want = eval("f32", "wide");
    ck_assert(eval("f32", "narrow") == want);
    ck_assert(eval("f32", "weights") != want);
}
END_TEST

/* A weight that is Inf or NaN shows in the loss, also under scales of a file that doesn't know of
 * it. */
START_TEST(weights_that_are_not_finite)
{
    static const float wrong[] = {INFINITY, -INFINITY, NAN};
    train("delayed", "weights", "1");
    copy *c = read_copy("weights");
    ((float *)c->bytes[at(c, "h.0.mlp.c_fc.weight")])[7] = wrong[_i];
    write_copy(c, "wrong", true);
    ok(RUN("eval", GPT, SMALL, "--recipe", _i == 1 ? "delayed {fake = true}" : "delayed",
           "--weights", f8_cli_temp("wrong")));
    json_t *r = record("eval", 0); /* JSON has no NaN */
    ck_assert_msg(json_is_null(json_object_get(r, "heldout_loss")), "%g is a finite loss",
                  json_number_value(json_object_get(r, "heldout_loss")));
    json_decref(r);
}
END_TEST

/* ---- weights of others: --map, --ignore, --allow-missing, an index ---- */

/* Writes the weights of a training as others do: a prefix, a pooler, no states; in two files with
 * an index. */
static void write_others(void)
{
    copy *c = read_copy("weights"), *d;
    drop_states(c);
    for (size_t i = 0; i < c->n; i++)
        set_name(c, i, "model.", strdupa(c->name[i]));
    add(c, "model.pooler.dense.weight", F8_ST_F32, 2, (int64_t[]){32, 32});
    while (c->n_metadata > 1) /* "format" alone */
        free((char *)c->metadata[--c->n_metadata].key), free(c->value[c->n_metadata]);
    write_copy(c, "whole", false);
    char *index = NULL;
    size_t size;
    FILE *f = open_memstream(&index, &size);
    fprintf(f, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    d = read_copy("whole"); /* sorted otherwise than c */
    free_copy(c);
    c = read_copy("whole");
    for (size_t i = c->n; i-- > 0;) {
        fprintf(f, "%s\"%s\": \"part%zu\"", i + 1 < c->n ? ", " : "", c->name[i], i % 2);
        drop(i % 2 ? c : d, at(i % 2 ? c : d, d->name[i]));
    }
    fprintf(f, "}}");
    fclose(f);
    write_copy(c, "part0", true);
    write_copy(d, "part1", true);
    f8_cli_write("model.index.json", index, size);
    free(index);
}

START_TEST(mapped)
{
    static const char *const files[] = {"whole", "model.index.json"};
    train("current", "weights", "3");
    const double want = eval("current", "weights");
    write_others();
    const char *file = f8_cli_temp(files[_i]);
    const f8_cli_result r = RUN("eval", GPT, SMALL, "--recipe", "current", "--weights", file,
                                "--map", "model.*=*", "--ignore", "*.pooler.*");
    ok(r);
    ck_assert(number("eval", 0, "heldout_loss") == want);
    json_t *w = record("weights", 0);
    ck_assert_uint_eq(json_array_size(json_object_get(w, "files")), _i ? 2 : 1);
    ck_assert_uint_eq(json_array_size(json_object_get(w, "taken")), 16);
    const json_t *ignored = json_array_get(json_object_get(w, "ignored"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(ignored, "tensor")),
                     "model.pooler.dense.weight");
    ck_assert_str_eq(json_string_value(json_object_get(ignored, "detail")), "ignore '*.pooler.*'");
    json_decref(w);
    const f8_cli_result v =
        RUN("eval", GPT, SMALL, "-v", "--weights", f8_cli_temp(files[_i]), "--map", "model.*=*",
            "--ignore", "*.pooler.*", "--ignore", "model.ln_f.*", "--allow-missing", "ln_f.*");
    ck_assert_int_eq(v.code, 0);
    static const char *const lines[] = {
        ": 14 taken, 3 ignored, 0 calibrated, 2 missing\n",
        "\n  taken       wpe.weight  F32 [32, 32]  from model.wpe.weight\n",
        "\n  ignored     model.pooler.dense.weight  ignore '*.pooler.*'\n",
        "\n  missing     ln_f.bias  F32 [32]\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(strstr(v.err, lines[i]) != NULL, "'%s' has no '%s'", v.err, lines[i]);
}
END_TEST

START_TEST(mapped_wrong)
{
    train("bf16", "weights", "1");
    write_others();
    const char *file = strdupa(f8_cli_temp("whole"));
    REFUSED(RUN("eval", GPT, SMALL, "--weights", file, "--map", "model.*=*"),
            "whole: error: the file does not hold the weights of frontend/models/gpt.f8 under "
            "bf16:\n  unexpected  model.pooler.dense.weight  F32 [32, 32]\n");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", file, "--ignore", "*.pooler.*", "--map",
                "model.*=*", "--ignore", "poler.*"),
            "whole: error: ignore 'poler.*': no tensor has such a name\n");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", file, "--map", "modle.*=*"),
            "whole: error: map 'modle.*=*': no tensor that earlier maps left has such a name\n");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", file, "--map", "model.*"),
            "error: map 'model.*' is not FROM=TO\n");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", file, "--weights", f8_cli_temp("part0"), "--map",
                "model.*=*"),
            "is also in ");
    f8_cli_fails(F8_CLI("run", GPT, "--ignore", "x"), 2,
                 "--ignore, --map and --allow-missing need --weights FILE");
}
END_TEST

/* ---- scales of delayed for weights that were trained elsewhere ---- */

/* Bounds of relative gaps between held-out losses: 0.2% is what the gates of training allow; FP8
 * moves the loss of such a model by some 0.02%. */
START_TEST(calibrated)
{
    const double own = train("delayed", "weights", "60");
    const double high = eval("bf16", "weights");
    copy *c = read_copy("weights");
    drop_states(c);
    write_copy(c, "others", true);
    const f8_cli_result r = RUN("eval", GPT, SMALL, "--recipe", "delayed", "--weights",
                                f8_cli_temp("others"), "--compare", "bf16");
    ok(r);
    const double loss = number("eval", 0, "heldout_loss");
    ck_assert_msg(fabs(loss / high - 1) < 2e-3, "calibrated %.6f, bf16 %.6f", loss, high);
    ck_assert_msg(fabs(loss / own - 1) < 2e-3, "calibrated %.6f, trained %.6f", loss, own);
    ck_assert(loss != high && loss != own);
    ck_assert_double_eq(number("eval", 0, "fp8_gemms_executed"), LINEARS);
    ck_assert(number("eval", 1, "heldout_loss") == high);
    ck_assert_double_eq(number("weights", 0, "calibration_batches"), 8);
    ck_assert_ptr_nonnull(strstr(r.out, "\ndelayed: the scales were calibrated on 8 batches of "));
    /* Scales that are wrong show: those of a scale of 1, which FP8 saturates or underflows. */
    ok(RUN("eval", GPT, SMALL, "--recipe", "delayed {margin = 40}", "--weights",
           f8_cli_temp("others"), "--calibrate", "1"));
    ck_assert(fabs(number("eval", 0, "heldout_loss") / high - 1) > 2e-3);
    /* Export keeps what it calibrated. */
    ok(RUN("export", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("others"),
           "--data", text(), "-o", f8_cli_temp("exported")));
    ck_assert(eval("delayed", "exported") == loss);
    REFUSED(RUN("export", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("weights"),
                "--data", text(), "-o", f8_cli_temp("again")),
            "weights: error: there are no scales to calibrate on --data");
    f8_cli_fails(F8_CLI("export", GPT, "--recipe", "delayed", "--weights", "x", "-o", "y",
                        "--calibrate", "2"),
                 2, "--calibrate needs --data FILE");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", f8_cli_temp("others"), "--calibrate", "2"),
            "others: error: --calibrate: there are no scales to calibrate: the weights have all "
            "that bf16 needs");
    f8_cli_fails(RUN("eval", GPT, SMALL, "--recipe", "bf16", "--compare", "delayed", "--weights",
                     f8_cli_temp("weights"), "--calibrate", "2"),
                 1, "the weights have all that these recipes need");
}
END_TEST

/* ---- what does not fit ---- */

static f8_cli_result eval_small(const char *recipe, const char *name)
{
    return RUN("eval", GPT, SMALL, "--recipe", recipe, "--weights", f8_cli_temp(name));
}

/* Every tensor that is wrong is named, in one message. */
START_TEST(wrong_tensors)
{
    train("bf16", "weights", "1");
    copy *c = read_copy("weights");
    drop(c, at(c, "h.0.ln_2.bias"));
    drop(c, at(c, "fp8c.state.opt.step"));
    set_name(c, at(c, "wpe.weight"), "", "wpe\x1b[2J");
    c->tensor[at(c, "wte.weight")].dim[0] /= 2;
    c->tensor[at(c, "wte.weight")].dim[1] *= 2;
    c->tensor[at(c, "ln_f.bias")].dtype = F8_ST_I32;
    write_copy(c, "wrong", true);
    REFUSED(
        eval_small("bf16", "wrong"),
        "wrong: error: the file does not hold the weights of frontend/models/gpt.f8 under bf16:\n",
        "\n  missing     wpe.weight  F32 [32, 32]\n", "\n  missing     h.0.ln_2.bias  F32 [32]\n",
        "\n  different   wte.weight  F32 [128, 64], not F32 [256, 32]\n",
        "\n  different   ln_f.bias  I32 [32] can't become F32 [32] exactly\n",
        "\n  unexpected  wpe?[2J  F32 [32, 32]\n");
}
END_TEST

/* Scales must all be there, by their names. */
START_TEST(wrong_scales)
{
    train("delayed", "weights", "1");
    copy *c = read_copy("weights");
    char elements[4096] = "";
    for (size_t i = 0; i < c->n_metadata; i++)
        if (!strcmp(c->metadata[i].key, "fp8c.elements"))
            snprintf(elements, sizeof elements, "%s", c->value[i]);
    char *name = strstr(elements, "h.0.mlp.c_fc.x");
    ck_assert_ptr_nonnull(name);
    name[2] = '9';
    set_metadata(c, "fp8c.elements", elements);
    write_copy(c, "renamed", false);
    REFUSED(eval_small("delayed", "renamed"),
            "under delayed:\n  missing     h.0.mlp.c_fc.x  in fp8.scale\n"
            "this recipe needs the scales that training under it keeps, and the file was trained "
            "under delayed: give a recipe that needs none, such as current\n");
    set_metadata(c, "fp8c.elements", "{\"fp8.scale\":[\"h.0.mlp.c_fc.x\"]}");
    write_copy(c, "few", false);
    REFUSED(eval_small("delayed", "few"),
            "  different   fp8c.state.fp8.scale  F32 [12], not F32 [8]\n");
    set_metadata(c, "fp8c.elements", "{\"fp8.scale\":[1,2,3,4,5,6,7,8,9,10,11,12]}");
    write_copy(c, "numbers", false);
    REFUSED(eval_small("delayed", "numbers"), "  missing     h.0.mlp.c_fc.w  in fp8.scale\n");
    set_metadata(c, "fp8c.elements", "{\"fp8.scale\":");
    write_copy(c, "broken", false);
    REFUSED(eval_small("delayed", "broken"),
            "broken: error: its metadata 'fp8c.elements' is not JSON\n");
    set_metadata(c, "fp8c.version", "2");
    write_copy(c, "later", true);
    REFUSED(eval_small("delayed", "later"),
            "later: error: its 'fp8c.version' is '2', and this fp8c reads only 1\n");
}
END_TEST

START_TEST(wrong_files)
{
    train("bf16", "weights", "1");
    REFUSED(eval_small("bf16", "nothing"), "nothing: error: No such file or directory\n");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", GPT), GPT ": error: a header of ");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", f8_cli_temp("weights"), "--compare", "fp4"),
            "error: no recipe 'fp4'");
    REFUSED(RUN("eval", GPT, SMALL, "--weights", f8_cli_temp("weights"), "--data", "no/such/text"),
            "no/such/text: error: No such file or directory");
    REFUSED(RUN("eval", LLAMA, "--weights", f8_cli_temp("weights")),
            "  missing     lm_head.weight  F32 [256, 64]\n",
            "  unexpected  wte.weight  F32 [256, 32]\n");
    static const char no_loss[] =
        "module t\nparam wte.weight: f32[256, 32] ones\n"
        "func forward(%tokens: i32[2, 32], %targets: i32[2, 32]) -> (%x: f32[2, 32, 32]) {\n"
        "  return embedding(wte.weight, %tokens)\n}\n";
    REFUSED(RUN("eval", f8_cli_write("no_loss.f8", no_loss, sizeof no_loss - 1), "--weights",
                f8_cli_temp("weights")),
            "no_loss.f8: error: eval needs a function forward(%tokens, %targets) with two "
            "inputs i32[B, T], whose first result is the loss, f32[]\n");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("eval");
    TCase *t = tcase_create("eval");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, same_loss, 0, N_RECIPES);
    tcase_add_test(t, side_by_side);
    tcase_add_test(t, same_bits);
    tcase_add_test(t, shared_scales);
    tcase_add_test(t, states_of_the_model);
    tcase_add_test(t, checkpoint);
    tcase_add_test(t, others_names);
    tcase_add_loop_test(t, narrow_weights, 0, 2);
    tcase_add_loop_test(t, weights_that_are_not_finite, 0, 3);
    tcase_add_loop_test(t, mapped, 0, 2);
    tcase_add_test(t, mapped_wrong);
    tcase_add_test(t, calibrated);
    tcase_add_test(t, wrong_tensors);
    tcase_add_test(t, wrong_scales);
    tcase_add_test(t, wrong_files);
    suite_add_tcase(s, t);
    return s;
}
