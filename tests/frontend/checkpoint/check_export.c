/* `fp8c export`: weights as FP8 with their scales. Under the recipe of the export an exported file
 * gives the bits of its checkpoint. Its codes and scales are those of a plain implementation of the
 * recipe (shared/recipe/recipe_oracle.h). check_export_refused.c tests what is refused. */
#include "frontend/fp8c.h"
#include "ir/num/fp8.h"
#include "tests/shared/api/export_case.h"
#include "tests/shared/recipe/recipe_oracle.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define LLAMA "frontend/models/llama_block.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

enum {
    ROWS = 144,
    COLUMNS = 272,
    ELEMENTS = ROWS * COLUMNS,
    MOST_SCALES = ELEMENTS
};

static const char *metadata(const copy *c, const char *key)
{
    for (size_t i = 0; i < c->n_metadata; i++)
        if (!strcmp(c->metadata[i].key, key))
            return c->value[i];
    return "(none)";
}

static void has_type(const copy *c, const char *name, const char *want)
{
    char type[128];
    ck_assert_str_eq(f8_st_type_text(&c->tensor[at(c, name)], type, sizeof type), want);
}

/* ---- what is in the file ---- */

static const struct {
    const char *recipe, *scale;
    recipe_oracle up,
        down; /* up [in, out] is summed over its rows, down [out, in] over its columns */
    const char *up_scale, *down_scale;
} cases[] = {
    {"delayed", "_scale", {0}, {0}, "F32 []", "F32 []"},
    {"current", "_scale", {0}, {0}, "F32 []", "F32 []"},
    {"rowwise", "_scale", {.wide = 1}, {.tall = 1}, "F32 [1, 272]", "F32 [144, 1]"},
    {"block",
     "_scale_inv",
     {.tall = 128, .wide = 128},
     {.tall = 128, .wide = 128},
     "F32 [2, 3]",
     "F32 [2, 3]"},
    {"mxfp8",
     "_scale",
     {.e8m0 = true, .tall = 32, .wide = 1},
     {.e8m0 = true, .tall = 1, .wide = 32},
     "F8_E8M0 [5, 272]",
     "F8_E8M0 [144, 9]"},
    {"block {pow2 = true}",
     "_scale_inv",
     {.pow2 = true, .tall = 128, .wide = 128},
     {.pow2 = true, .tall = 128, .wide = 128},
     "F32 [2, 3]",
     "F32 [2, 3]"},
    {"current {margin = 2}", "_scale", {.margin = 2}, {.margin = 2}, "F32 []", "F32 []"},
    {"fake", "_scale", {0}, {0}, "F32 []", "F32 []"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The scale that training under `delayed` kept. */
static float *kept(const copy *c, const char *operand)
{
    json_t *all = json_loads(metadata(c, "fp8c.elements"), 0, NULL),
           *list = json_object_get(all, "fp8.scale");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcmp(json_string_value(json_array_get(list, i)), operand)) {
            json_decref(all);
            return (float *)c->bytes[at(c, "fp8c.state.fp8.scale")] + i;
        }
    ck_abort_msg("no scale of %s is kept", operand);
}

/* Codes and scales of one weight of `e` are what the recipe makes of `c`'s values. */
static void check_weight(const copy *c, const copy *e, const char *weight, const char *suffix,
                         const char *operand, const recipe_oracle *o, const char *scale_type,
                         bool delayed)
{
    static uint8_t codes[ELEMENTS];
    static float scales[MOST_SCALES];
    char scale[64];
    const float *values = c->bytes[at(c, weight)];
    snprintf(scale, sizeof scale, "%s%s", weight, suffix);
    has_type(e, weight, "F8_E4M3 [144, 272]");
    has_type(e, scale, scale_type);
    int64_t n = 1;
    if (delayed) {
        const float s = *kept(c, operand);
        recipe_oracle_codes(o, values, ELEMENTS, s, codes);
        scales[0] = 1 / s;
    } else {
        n = recipe_oracle_quantize(o, values, ROWS, COLUMNS, codes, scales);
    }
    ck_assert_uint_eq(e->tensor[at(e, scale)].bytes, (uint64_t)n * (o->e8m0 ? 1 : sizeof(float)));
    ck_assert_msg(!memcmp(e->bytes[at(e, scale)], scales, (size_t)e->tensor[at(e, scale)].bytes),
                  "%s", scale);
    ck_assert_msg(!memcmp(e->bytes[at(e, weight)], codes, ELEMENTS), "%s", weight);
}

static void same_bytes(const copy *a, const copy *b, const char *name)
{
    const f8_st_tensor *x = &a->tensor[at(a, name)], *y = &b->tensor[at(b, name)];
    ck_assert(x->dtype == y->dtype && x->bytes == y->bytes &&
              !memcmp(a->bytes[at(a, name)], b->bytes[at(b, name)], (size_t)x->bytes));
}

START_TEST(what_is_written)
{
    const bool delayed = !_i;
    const char *recipe = cases[_i].recipe;
    char expected[200];
    train(recipe, "weights");
    const f8_cli_result r = run_export(recipe, "weights", "out");
    ok(r);
    copy *c = read_copy("weights"), *e = read_copy("out");
    check_weight(c, e, "up.weight", cases[_i].scale, "up.w", &cases[_i].up, cases[_i].up_scale,
                 delayed);
    check_weight(c, e, "down.weight", cases[_i].scale, "down.w", &cases[_i].down,
                 cases[_i].down_scale, delayed);
    same_bytes(c, e, "wte");
    same_bytes(c, e, "norm");
    ck_assert_uint_eq(e->n, delayed ? 7 : 6); /* no moments, no histories */
    if (delayed) /* of x alone: weights carry their own */
        has_type(e, "fp8c.state.fp8.scale", "F32 [2]");
    ck_assert_str_eq(metadata(e, "format"), "pt");
    ck_assert_str_eq(metadata(e, "fp8c.version"), "1");
    ck_assert_str_eq(metadata(e, "fp8c.model"), "mixed");
    ck_assert_str_eq(metadata(e, "fp8c.recipe"), recipe);
    ck_assert_str_eq(metadata(e, "fp8c.steps"), "4");
    ck_assert_str_eq(metadata(e, "fp8c.export"), recipe);
    ck_assert_str_eq(metadata(e, "fp8c.rules"), "[]");
    ck_assert_str_eq(metadata(e, "fp8c.library"), "0.1.0");
    snprintf(expected, sizeof expected, "{\"up.weight\":\"%s\",\"down.weight\":\"%s\"}", recipe,
             recipe);
    ck_assert_str_eq(metadata(e, "fp8c.stored"), expected);
    snprintf(expected, sizeof expected, "out: 2 of 4 parameters as FP8 under %s: ", recipe);
    ck_assert_msg(strstr(r.out, expected) != NULL, "%s", r.out);
    ck_assert_double_eq(number("export", 0, "stored"), 2);
    ck_assert_double_eq(number("export", 0, "checkpoint_bytes"),
                        4 * (256 * 144 + 2 * ELEMENTS + 144));
    free_copy(c);
    free_copy(e);
}
END_TEST

/* ---- in a program that trains ---- */

/* The value of each element of a weight is its code times its scale. */
static void check_values(const copy *e, fp8c_program *p, const char *weight, const char *suffix,
                         const recipe_oracle *o)
{
    static float values[ELEMENTS];
    char scale[64];
    snprintf(scale, sizeof scale, "%s%s", weight, suffix);
    const uint8_t *codes = e->bytes[at(e, weight)];
    const void *scales = e->bytes[at(e, scale)];
    const int tall = o->tall ? o->tall : ROWS, wide = o->wide ? o->wide : COLUMNS;
    ck_assert_int_eq(fp8c_program_read(p, fp8c_program_find_variable(p, weight), values), FP8C_OK);
    for (int i = 0; i < ELEMENTS; i++) {
        const int k = i / COLUMNS / tall * ((COLUMNS + wide - 1) / wide) + i % COLUMNS / wide;
        const float s =
            o->e8m0 ? ldexpf(1, ((const uint8_t *)scales)[k] - 127) : ((const float *)scales)[k];
        const float want = s * f8_e4m3_to_f32(codes[i]);
        ck_assert_msg(values[i] == want, "%s[%d]: %g, not %g", weight, i, (double)values[i],
                      (double)want);
    }
}

START_TEST(codes_become_values)
{
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
    const fp8c_compile_options o = {.struct_size = sizeof o, .recipe = "bf16", .threads = 1};
    train(cases[_i].recipe, "weights");
    ok(run_export(cases[_i].recipe, "weights", "out"));
    copy *e = read_copy("out");
    const char *files[] = {f8_cli_temp("out")};
    static const char *const states[] = {"fp8c.state.*"}; /* a file of `delayed` has some */
    const fp8c_load_options load = {.struct_size = sizeof load,
                                    .files = files,
                                    .n_files = 1,
                                    .ignore = states,
                                    .n_ignore = _i == 0};
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_module_parse(ctx, mixed, sizeof mixed - 1, "mixed.f8", NULL, 0, &m),
                     FP8C_OK);
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_msg(fp8c_program_load_weights(p, &load) == FP8C_OK, "%s", fp8c_context_message(ctx));
    check_values(e, p, "up.weight", cases[_i].scale, &cases[_i].up);
    check_values(e, p, "down.weight", cases[_i].scale, &cases[_i].down);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    free_copy(e);
}
END_TEST

/* ---- what is served ---- */

/* Of the same bits under the recipe exported under; near those of the checkpoint in bf16, and not
 * equal. */
START_TEST(same_loss)
{
    const char *recipe = cases[_i].recipe;
    if (f8_cli_sanitized() && _i % 3) /* time: delayed, block and one of the others */
        return;
    const double trained = train(recipe, "weights"), high = eval("bf16", "weights");
    ok(run_export(recipe, "weights", "out"));
    const double served = eval(recipe, "out"), low = eval("bf16", "out");
    ck_assert_msg(trained == served, "%s: %.17g after training, %.17g of the file", recipe, trained,
                  served);
    has_text("eval", 0, "trained", recipe);
    has_text("eval", 0, "stored", recipe);
    /* An E4M3 code is within 1/16 of its value; rounding errors are independent, so of a sum they
     * are less. */
    ck_assert_msg(low != high && fabs(low / high - 1) < 1.0 / 16,
                  "%s in bf16: %.17g, %.17g of codes", recipe, high, low);
}
END_TEST

/* One command, one table; GPT's Conv1D weights, and llama's, which share inputs. */
/* A tensor of the same bytes under another name, rank and shape. */
static void become(copy *c, const char *name, const char *other, f8_st_dtype dtype, int32_t rank,
                   int64_t first, int64_t third)
{
    const size_t i = at(c, name);
    const int64_t dim[] = {first, rank == 4 ? 1 : third, third, 1};
    c->tensor[i].dtype = dtype;
    c->tensor[i].rank = rank;
    memcpy(c->tensor[i].dim, dim, sizeof dim);
    set_name(c, i, "", other);
}

/* Files of others say nothing of fp8c's, and have scales of other names, shapes and dtypes: the
 * same loss, bit for bit, under the recipe whose scales they are. frontend/formats/README.md has
 * the shapes. `which`: 0 compressed-tensors', 1 ModelOpt's. */
static void have_others(copy *c, const char *recipe, int which)
{
    static const int64_t one = 1;
    const bool rows = !strcmp(recipe, "rowwise");
    for (size_t i = 0; i < c->n_metadata; i++)
        if (!strncmp(c->metadata[i].key, "fp8c.stored", 11))
            memcpy((char *)c->metadata[i].key, "else", 5);
    if (!strcmp(recipe, "current") && !which)
        become(c, "down.weight_scale", "down.weight_scale", F8_ST_F32, 1, 1, 0);
    if (rows && which)
        become(c, "down.weight_scale", "down.weight_scale", F8_ST_F32, 1, ROWS, 0);
    if (!strcmp(recipe, "block"))
        become(c, "down.weight_scale_inv", "down.weight_scale", F8_ST_F32, which ? 4 : 2, 2, 3);
    if (!strcmp(recipe, "mxfp8"))
        become(c, "down.weight_scale", "down.weight_scale", F8_ST_U8, 2, ROWS, 9);
    add(c, "down.input_scale", F8_ST_F32, which ? 0 : 1, which ? NULL : &one);
}

START_TEST(scales_of_others)
{
    static const char *const recipes[] = {"current", "rowwise", "block", "mxfp8"};
    const char *recipe = recipes[_i / 2];
    train(recipe, "weights");
    ok(run_export(recipe, "weights", "out"));
    ok(run_eval(recipe, "out"));
    const double own = number("eval", 0, "heldout_loss");
    copy *c = read_copy("out");
    have_others(c, recipe, _i % 2);
    write_copy(c, "others", false);
    ok(run_eval(recipe, "others"));
    ck_assert_double_eq(number("eval", 0, "heldout_loss"), own);
    ok(run_eval("bf16", "others"));
    free_copy(c);
}
END_TEST

START_TEST(side_by_side)
{
    static const char *const under[] = {"block", "bf16", "f32", "mxfp8"};
    ok(RUN("train", LLAMA, "--steps", "2", "--recipe", "block", "--save", f8_cli_temp("weights")));
    const double trained = number("summary", 0, "heldout_loss");
    ok(RUN("export", LLAMA, "--recipe", "block", "--weights", f8_cli_temp("weights"), "-o",
           f8_cli_temp("out")));
    const f8_cli_result r = RUN("eval", LLAMA, "--weights", f8_cli_temp("out"), "--recipe", "block",
                                "--compare", "bf16", "--compare", "f32", "--compare", "mxfp8");
    ok(r);
    ck_assert_ptr_nonnull(
        strstr(r.out, "recipe                      held out        gap      weights  peak memory"));
    ck_assert_ptr_nonnull(strstr(r.out, "out: trained under block, 2 steps\n"));
    ck_assert_ptr_nonnull(strstr(r.out, " weights stored in FP8 under block\n"));
    const double bytes = number("eval", 0, "weights_bytes");
    for (int i = 0; i < 4; i++) {
        has_text("eval", i, "recipe", under[i]);
        ck_assert(number("eval", i, "weights_bytes") == bytes);
        ck_assert(isfinite(number("eval", i, "heldout_loss")) &&
                  (i == 0) == (number("eval", i, "heldout_loss") == trained));
    }
    ok(RUN("eval", LLAMA, "--weights", f8_cli_temp("weights"), "--recipe", "bf16"));
    ck_assert(bytes < 0.8 * number("eval", 0,
                                   "weights_bytes")); /* half of it is the embedding and the head */
    json_t *e = record("eval", 0);
    ck_assert(json_is_null(json_object_get(e, "stored")));
    json_decref(e);
    if (f8_cli_sanitized()) /* time */
        return;
    ok(RUN("train", GPT, SMALL, "--steps", "3", "--recipe", "delayed", "--save",
           f8_cli_temp("weights")));
    const double gpt = number("summary", 0, "heldout_loss");
    ok(RUN("export", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("weights"), "-o",
           f8_cli_temp("out")));
    ok(RUN("eval", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("out")));
    ck_assert(number("eval", 0, "heldout_loss") == gpt);
}
END_TEST

/* A scale that training kept need not be the weight's own: codes and serving follow it. */
START_TEST(kept_scales)
{
    train("delayed", "weights");
    copy *c = read_copy("weights");
    *kept(c, "up.w") *= 4; /* saturates many */
    write_copy(c, "stale", false);
    const double want = eval("delayed", "stale");
    ok(run_export("delayed", "stale", "out"));
    copy *e = read_copy("out");
    check_weight(c, e, "up.weight", "_scale", "up.w", &cases[0].up, "F32 []", true);
    ck_assert(want == eval("delayed", "out") && want != eval("delayed", "weights"));
    free_copy(c);
    free_copy(e);
}
END_TEST

/* The rules of the export decide what is stored. The rules of a later eval decide how it is used.
 */
START_TEST(rules)
{
    train("bf16", "weights");
    ok(RUN("export", model, "--recipe", "block", "--rule", "\"up\" = mxfp8", "--rule",
           "\"down\" x = bf16", "--rule", "\"down\" w = bf16", "--weights", f8_cli_temp("weights"),
           "-o", f8_cli_temp("out")));
    copy *e = read_copy("out");
    ck_assert_str_eq(metadata(e, "fp8c.stored"), "{\"up.weight\":\"mxfp8\"}");
    ck_assert_str_eq(
        metadata(e, "fp8c.rules"),
        "[\"\\\"up\\\" = mxfp8\",\"\\\"down\\\" x = bf16\",\"\\\"down\\\" w = bf16\"]");
    ck_assert_str_eq(metadata(e, "fp8c.export"), "block");
    has_type(e, "up.weight_scale", "F8_E8M0 [5, 272]");
    has_type(e, "down.weight", "F32 [144, 272]");
    free_copy(e);
    ok(RUN("eval", model, "--recipe", "block", "--rule", "\"up\" = mxfp8", "--rule",
           "\"down\" = bf16", "--weights", f8_cli_temp("weights")));
    const double want = number("eval", 0, "heldout_loss");
    ok(RUN("eval", model, "--recipe", "block", "--rule", "\"up\" = mxfp8", "--rule",
           "\"down\" = bf16", "--weights", f8_cli_temp("out")));
    ck_assert(number("eval", 0, "heldout_loss") == want);
    ok(RUN("eval", model, "--recipe", "block", "--rule", "\"up\" = bf16", "--weights",
           f8_cli_temp("out")));
    ck_assert(number("eval", 0, "heldout_loss") != want);
}
END_TEST

/* ---- others' checkpoints, and dtypes ---- */

/* BF16 as others have it, under their names: what is quantized are these values; the rest keeps its
 * bytes. */
START_TEST(narrow_weights)
{
    train("f32", "weights");
    copy *wide = read_copy("weights"), *c = read_copy("weights");
    for (size_t i = c->n; i-- > 0;)
        if (!strncmp(c->name[i], "fp8c.", 5)) {
            drop(c, i);
            drop(wide, i);
        }
    for (size_t i = 0; i < c->n; i++) {
        const uint64_t n = c->tensor[i].bytes / 4;
        for (uint64_t k = 0; k < n; k++) {
            uint32_t bits;
            memcpy(&bits, (float *)wide->bytes[i] + k, 4);
            bits &= 0xffff0000;
            memcpy((float *)wide->bytes[i] + k, &bits, 4);
            ((uint16_t *)c->bytes[i])[k] = (uint16_t)(bits >> 16);
        }
        c->tensor[i].dtype = F8_ST_BF16;
        c->tensor[i].bytes = 2 * n;
        set_name(c, i, "transformer.", strdupa(c->name[i]));
    }
    write_copy(c, "narrow", false);
    write_copy(wide, "wide", false);
    ok(run_export("rowwise", "narrow", "out"));
    copy *e = read_copy("out");
    check_weight(wide, e, "up.weight", "_scale", "up.w", &cases[2].up, cases[2].up_scale, false);
    check_weight(wide, e, "down.weight", "_scale", "down.w", &cases[2].down, cases[2].down_scale,
                 false);
    has_type(e, "wte", "BF16 [256, 144]");
    ck_assert(!memcmp(e->bytes[at(e, "wte")], c->bytes[at(c, "transformer.wte")], 2 * 256 * 144));
    const double want = eval("rowwise", "wide");
    ck_assert(want == eval("rowwise", "out"));
    ok(RUN("export", model, "--recipe", "rowwise", "--dtype", "f32", "--weights",
           f8_cli_temp("narrow"), "-o", f8_cli_temp("out32")));
    copy *e32 = read_copy("out32");
    same_bytes(e32, wide, "wte");
    same_bytes(e32, e, "up.weight");
    ck_assert(want == eval("rowwise", "out32"));
    free_copy(e32);
    free_copy(e);
    free_copy(wide);
    free_copy(c);
}
END_TEST

/* The nearest BF16, ties to even. */
START_TEST(dtype)
{
    static const struct {
        uint32_t f32;
        uint16_t bf16;
    } rounds[] = {{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
                  {0xbf80ffff, 0xbf81}, {0x3f807fff, 0x3f80}, {0x00000001, 0x0000},
                  {0x80008001, 0x8001}, {0x7f800000, 0x7f80}};
    train("bf16", "weights");
    copy *c = read_copy("weights");
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
        memcpy((uint32_t *)c->bytes[at(c, "norm")] + i, &rounds[i].f32, 4);
    write_copy(c, "edges", true);
    ok(RUN("export", model, "--recipe", "current", "--dtype", "bf16", "--weights",
           f8_cli_temp("edges"), "-o", f8_cli_temp("out")));
    copy *e = read_copy("out");
    has_type(e, "norm", "BF16 [144]");
    has_type(e, "wte", "BF16 [256, 144]");
    has_type(e, "up.weight", "F8_E4M3 [144, 272]");
    has_type(e, "up.weight_scale", "F32 []");
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
        ck_assert_uint_eq(((uint16_t *)e->bytes[at(e, "norm")])[i], rounds[i].bf16);
    free_copy(e);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("export");
    TCase *t = tcase_create("export");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_loop_test(t, what_is_written, 0, N_CASES);
    tcase_add_loop_test(t, codes_become_values, 0, N_CASES);
    tcase_add_loop_test(t, same_loss, 0, N_CASES);
    tcase_add_loop_test(t, scales_of_others, 0, 8);
    tcase_add_test(t, side_by_side);
    tcase_add_test(t, kept_scales);
    tcase_add_test(t, rules);
    tcase_add_test(t, narrow_weights);
    tcase_add_test(t, dtype);
    suite_add_tcase(s, t);
    return s;
}
