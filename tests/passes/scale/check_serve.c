/* Weights stored as FP8 (fp8c_compile_options.stored, stored_weights). Under the recipe that
 * quantized them they give the bits of a program that quantizes its f32 weights itself. In bf16
 * they give the bits of the values that their codes stand for. */
#include <math.h>

#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

static const char text[] =
    "module m\n"
    "param wte: f32[16, 96] normal(0.5)\n"
    "param up.weight: f32[96, 160] normal(0.1)\n"
    "param down.weight: f32[96, 160] normal(0.1)\n"
    "func forward(%tokens: i32[32], %targets: i32[32]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %y = linear(gelu(linear(%x, up.weight)), down.weight) {transpose_b = true}\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n"
    "recipe \"head\" = bf16\n";

typedef struct served {
    fp8c_program *p;
    int eval;
} served;

static int variable(fp8c_program *p, const char *name, fp8c_variable *v)
{
    for (int i = 0; fp8c_program_variable(p, i, v) == FP8C_OK; i++)
        if (!strcmp(v->name, name))
            return i;
    return -1;
}

static served serve_as(fp8c_context *ctx, const fp8c_module *m, fp8c_compile_options o)
{
    o.inference = 1;
    served s = {.p = compile(ctx, m, &o)};
    s.eval = fp8c_program_function(s.p, "eval");
    ck_assert_int_eq(fp8c_program_initialize(s.p, 1), FP8C_OK);
    return s;
}

static served serve(fp8c_context *ctx, const fp8c_module *m, const char *run, const char *stored)
{
    fp8c_compile_options o = recipe(run);
    o.stored = stored;
    return serve_as(ctx, m, o);
}

static float loss_of(const served *s)
{
    int32_t *tokens = fp8c_program_buffer(s->p, s->eval, FP8C_INPUT, 0);
    int32_t *targets = fp8c_program_buffer(s->p, s->eval, FP8C_INPUT, 1);
    for (int i = 0; i < 32; i++) {
        tokens[i] = i * 7 % 16;
        targets[i] = (i * 7 * 5 + 3) % 16;
    }
    ck_assert_int_eq(fp8c_program_run(s->p, s->eval), FP8C_OK);
    return *(float *)fp8c_program_buffer(s->p, s->eval, FP8C_OUTPUT, 0);
}

/* The f32 weights of `from` into `to`, quantized where that stores codes. */
static void carry(const served *from, const served *to)
{
    static const char *const names[] = {"wte", "up.weight", "down.weight"};
    static float values[96 * 160];
    fp8c_variable a, b;
    for (int i = 0; i < 3; i++) {
        const int x = variable(from->p, names[i], &a), y = variable(to->p, names[i], &b);
        ck_assert_int_eq(fp8c_program_read(from->p, x, values), FP8C_OK);
        ck_assert_int_eq(b.type.dtype == FP8C_F32 ? fp8c_program_write(to->p, y, values)
                                                  : fp8c_program_quantize(to->p, y, values, NULL),
                         FP8C_OK);
    }
}

static const struct {
    const char *recipe, *scale; /* the scales' name and type */
    fp8c_type up, down;
} stored[] = {
    {"current", "_scale", {FP8C_F32, 0, {0}}, {FP8C_F32, 0, {0}}},
    {"current {pow2 = true}", "_scale", {FP8C_F32, 0, {0}}, {FP8C_F32, 0, {0}}},
    {"rowwise", "_scale", {FP8C_F32, 2, {1, 160}}, {FP8C_F32, 2, {96, 1}}},
    {"block", "_scale_inv", {FP8C_F32, 2, {1, 2}}, {FP8C_F32, 2, {1, 2}}},
    {"mxfp8", "_scale", {FP8C_F8E8M0, 2, {3, 160}}, {FP8C_F8E8M0, 2, {96, 5}}},
    {"fake", "_scale", {FP8C_F32, 0, {0}}, {FP8C_F32, 0, {0}}},
    {"delayed", "_scale", {FP8C_F32, 0, {0}}, {FP8C_F32, 0, {0}}},
    {"rowwise_gw_hp", "_scale", {FP8C_F32, 2, {1, 160}}, {FP8C_F32, 2, {96, 1}}},
    {"block {pow2 = true, margin = 1}", "_scale_inv", {FP8C_F32, 2, {1, 2}}, {FP8C_F32, 2, {1, 2}}},
};
enum { N_STORED = sizeof stored / sizeof *stored };

START_TEST(same_bits_as_quantizing)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const served own = serve(ctx, m, stored[_i].recipe, NULL);
    const served codes = serve(ctx, m, stored[_i].recipe, stored[_i].recipe);
    const served high = serve(ctx, m, "bf16", NULL),
                 back = serve(ctx, m, "bf16", stored[_i].recipe);
    fp8c_variable v;
    char name[64];
    for (int i = 0; i < 2; i++) {
        const fp8c_type *want = i ? &stored[_i].down : &stored[_i].up;
        ck_assert_int_ge(variable(codes.p, i ? "down.weight" : "up.weight", &v), 0);
        ck_assert_int_eq(v.type.dtype, FP8C_F8E4M3);
        snprintf(name, sizeof name, "%s.weight%s", i ? "down" : "up", stored[_i].scale);
        ck_assert_msg(variable(codes.p, name, &v) >= 0, "no %s", name);
        ck_assert_int_eq(v.type.dtype, want->dtype);
        ck_assert_int_eq(v.type.rank, want->rank);
        for (int k = 0; k < want->rank; k++)
            ck_assert_int_eq(v.type.dim[k], want->dim[k]);
    }
    ck_assert_int_ge(variable(codes.p, "wte", &v), 0);
    ck_assert_int_eq(v.type.dtype, FP8C_F32); /* the head is bf16, and the embedding reads it too */
    carry(&own, &codes);
    carry(&own, &back);
    const float a = loss_of(&own), b = loss_of(&codes), c = loss_of(&high), d = loss_of(&back);
    ck_assert_msg(a == b, "%s: %a of f32 weights, %a of codes", stored[_i].recipe, (double)a,
                  (double)b);
    ck_assert_msg(c != d, "served in bf16, codes give what the weights they stand in for gave: %a",
                  (double)c);
    ck_assert_msg(d > 0.98f * c && d < 1.02f * c, "in bf16: %g of weights, %g of codes", (double)c,
                  (double)d);
    fp8c_program_destroy(own.p);
    fp8c_program_destroy(codes.p);
    fp8c_program_destroy(high.p);
    fp8c_program_destroy(back.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* However weights are stored, every recipe serves them: codes of another kind by their values. */
START_TEST(under_any_recipe)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const served own = serve(ctx, m, stored[_i].recipe, NULL), high = serve(ctx, m, "bf16", NULL);
    const float want = loss_of(&high);
    for (int i = 0; i < N_STORED + 2; i++) {
        const char *under = i < N_STORED ? stored[i].recipe : i == N_STORED ? "bf16" : "f32";
        const served s = serve(ctx, m, under, stored[_i].recipe);
        carry(&high, &s);
        const float loss = loss_of(&s);
        ck_assert_msg(loss != want && loss > 0.97f * want && loss < 1.03f * want,
                      "stored under %s, served under %s: %g, in bf16 %g", stored[_i].recipe, under,
                      (double)loss, (double)want);
        ck_assert(i != _i || loss == loss_of(&own));
        fp8c_program_destroy(s.p);
    }
    fp8c_program_destroy(own.p);
    fp8c_program_destroy(high.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

static const char twice[] =
    "module m\n"
    "param wte: f32[16, 96] normal(0.5)\n"
    "param up.weight: f32[96, 96] normal(0.1)\n"
    "param down.weight: f32[96, 96] normal(0.1)\n"
    "func forward(%tokens: i32[32], %targets: i32[32]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %h = linear(gelu(linear(%x, up.weight)), up.weight) {name = \"again\"}\n"
    "  %y = linear(%h, down.weight) {name = \"again\"}\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n"
    "recipe \"again\" = bf16\n"
    "recipe \"head\" = bf16\n";

static void is_stored(fp8c_program *p, int index, const char *name, const char *scale,
                      const char *as, const char *kept)
{
    fp8c_stored s;
    fp8c_variable v;
    ck_assert_int_eq(fp8c_program_stored(p, index, &s), FP8C_OK);
    ck_assert_int_eq(fp8c_program_variable(p, s.variable, &v), FP8C_OK);
    ck_assert_str_eq(v.name, name);
    ck_assert_int_eq(fp8c_program_variable(p, s.scale_variable, &v), FP8C_OK);
    ck_assert_str_eq(v.name, scale);
    ck_assert_str_eq(s.recipe, as);
    ck_assert_pstr_eq(s.kept, kept);
}

/* A list says it all, whatever the module's rules are. */
START_TEST(listed)
{
    static const fp8c_stored_as list[] = {{"up.weight", " block { pow2=true }"},
                                          {"down.weight", "delayed"}};
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, twice);
    fp8c_compile_options o = recipe("current");
    fp8c_stored s;
    o.stored_weights = list;
    o.n_stored_weights = 2;
    const served back = serve_as(ctx, m, o), high = serve(ctx, m, "bf16", NULL);
    is_stored(back.p, 0, "up.weight", "up.weight_scale_inv", "block {pow2 = true}", NULL);
    is_stored(back.p, 1, "down.weight", "down.weight_scale", "delayed", "again.2.w");
    ck_assert_int_eq(fp8c_program_stored(back.p, 2, &s), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_stored(back.p, -1, &s), FP8C_ERR_INPUT);
    carry(&high, &back);
    const float want = loss_of(&high), loss = loss_of(&back);
    ck_assert_msg(loss != want && loss > 0.97f * want && loss < 1.03f * want, "%g, in bf16 %g",
                  (double)loss, (double)want);
    fp8c_program_destroy(back.p);
    fp8c_program_destroy(high.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Under `delayed` codes are made with the scale that training kept, which is not the values' own.
 */
START_TEST(kept_scale)
{
    static float values[96 * 160];
    static uint8_t codes[96 * 160];
    const float scale = 16, ones = 1;
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const served s = serve(ctx, m, "delayed", "delayed");
    fp8c_variable v;
    float inv;
    const int up = variable(s.p, "up.weight", &v), of = variable(s.p, "up.weight_scale", &v);
    for (int i = 0; i < 96 * 160; i++)
        values[i] = i % 2 ? -1.5f : 0.25f;
    values[7] = 100; /* of scale 16: beyond 448, so saturated */
    ck_assert_int_eq(fp8c_program_quantize(s.p, up, values, &scale), FP8C_OK);
    ck_assert_int_eq(fp8c_program_read(s.p, up, codes), FP8C_OK);
    ck_assert_int_eq(fp8c_program_read(s.p, of, &inv), FP8C_OK);
    ck_assert(inv == 0.0625f);
    for (int i = 0; i < 96 * 160; i++) /* 448, -24, 4 in E4M3 */
        ck_assert_int_eq(codes[i], i == 7 ? 0x7e : i % 2 ? 0xdc : 0x48);
    ck_assert_int_eq(fp8c_program_quantize(s.p, up, values, NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_program_read(s.p, of, &inv), FP8C_OK);
    ck_assert(inv == 1 / (448.0f / 100));
    values[9] = -INFINITY;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fp8c_program_quantize(s.p, up, values, i ? &scale : NULL), FP8C_OK);
        ck_assert_int_eq(fp8c_program_read(s.p, of, &inv), FP8C_OK);
        ck_assert(isnan(inv));
    }
    const served block = serve(ctx, m, "block", "block");
    ck_assert_int_eq(
        fp8c_program_quantize(block.p, variable(block.p, "up.weight", &v), values, &ones),
        FP8C_ERR_INPUT);
    said(ctx, "only recipe `delayed` keeps one");
    fp8c_program_destroy(s.p);
    fp8c_program_destroy(block.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* As README.md has it: a program for inference from f32 weights, and from what a file of FP8 ones
 * holds. */
enum { MOST_VARIABLES = 8 };
typedef struct weights {
    char name[MOST_VARIABLES][64];
    char bytes[MOST_VARIABLES][4 * 96 * 160];
    int n;
} weights;

static const void *bytes_of(const weights *w, const char *name)
{
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->name[i], name))
            return w->bytes[i];
    ck_abort_msg("no %s", name);
}

static void keep(fp8c_program *program, weights *w)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++) {
        if (!v.is_param)
            continue;
        snprintf(w->name[w->n], sizeof w->name[0], "%s", v.name);
        ck_assert_int_eq(fp8c_program_read(program, i, w->bytes[w->n++]), FP8C_OK);
    }
}

static fp8c_program *load(const fp8c_module *module, const weights *file, bool quantized)
{
    fp8c_program *program;
    fp8c_variable v;
    fp8c_stored s;
    fp8c_compile_options options = {
        .struct_size = sizeof options, .recipe = "current", .inference = 1, .stored = "block"};
    ck_assert_int_eq(fp8c_compile(module, &options, &program), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(program, 0), FP8C_OK);
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        if (v.is_param && (quantized || (v.type.dtype == FP8C_F32 && !strstr(v.name, "_scale"))))
            ck_assert_int_eq(fp8c_program_write(program, i, bytes_of(file, v.name)), FP8C_OK);
    for (int i = 0; !quantized && fp8c_program_stored(program, i, &s) == FP8C_OK; i++) {
        fp8c_program_variable(program, s.variable, &v);
        ck_assert_int_eq(fp8c_program_quantize(program, s.variable, bytes_of(file, v.name), NULL),
                         FP8C_OK);
    }
    const int prepare = fp8c_program_function(program, "prepare");
    if (prepare >= 0)
        ck_assert_int_eq(fp8c_program_run(program, prepare), FP8C_OK);
    return program;
}

START_TEST(from_either)
{
    static weights f32, fp8;
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const served high = serve(ctx, m, "bf16", NULL);
    keep(high.p, &f32);
    served a = {.p = load(m, &f32, false)}, b = {.p = NULL};
    a.eval = fp8c_program_function(a.p, "eval");
    keep(a.p, &fp8);
    ck_assert_int_eq(fp8.n, 5);
    b.p = load(m, &fp8, true);
    b.eval = fp8c_program_function(b.p, "eval");
    const float x = loss_of(&a), y = loss_of(&b);
    ck_assert_msg(x == y, "%a of f32 weights, %a of FP8 ones", (double)x, (double)y);
    fp8c_program_destroy(high.p);
    fp8c_program_destroy(a.p);
    fp8c_program_destroy(b.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

static void refused(fp8c_context *ctx, const fp8c_module *m, const fp8c_compile_options *o,
                    const char *why)
{
    fp8c_program *p;
    ck_assert_int_ne(fp8c_compile(m, o, &p), FP8C_OK);
    ck_assert_msg(strstr(fp8c_context_message(ctx), why), "%s", fp8c_context_message(ctx));
}

START_TEST(refusals)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("bf16");
    o.stored = "block";
    refused(ctx, m, &o, "stored needs `inference`");
    o.inference = 1;
    o.stored = "bf16";
    refused(ctx, m, &o, "no weight is stored in FP8");
    o.stored = "fp4";
    refused(ctx, m, &o, "no recipe 'fp4'");
    static const struct {
        fp8c_stored_as as;
        const char *why;
    } bad[] = {
        {{"up.weight", "fp4"}, "no recipe 'fp4'"},
        {{"up.weight", "bf16"},
         "'up.weight' can't be stored under bf16: the recipe must be an FP8 one"},
        {{"up.weight", "auto"}, "'up.weight' can't be stored under auto"},
        {{"wte", "block"}, "'wte' can't be stored under block"}, /* an embedding reads it too */
        {{"side.weight", "block"}, "'side.weight' can't be stored under block"},
        {{NULL, "block"}, "stored_weights[0] has no name or no recipe"},
        {{"up.weight", NULL}, "stored_weights[0] has no name or no recipe"},
    };
    o.n_stored_weights = 1;
    o.stored_weights = &bad[0].as;
    refused(ctx, m, &o, "`stored` and `stored_weights` are both given: give one of them");
    o.stored = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.stored_weights = &bad[i].as;
        refused(ctx, m, &o, bad[i].why);
    }
    o.inference = 0;
    refused(ctx, m, &o, "stored_weights needs `inference`");
    const served s = serve(ctx, m, "block", "block");
    fp8c_variable v;
    const float one = 1;
    ck_assert_int_eq(fp8c_program_quantize(s.p, variable(s.p, "wte", &v), &one, NULL),
                     FP8C_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "is not stored in FP8"));
    fp8c_program_destroy(s.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("serve");
    TCase *t = tcase_create("serve");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_bits_as_quantizing, 0, N_STORED);
    tcase_add_loop_test(t, under_any_recipe, 0, N_STORED);
    tcase_add_test(t, listed);
    tcase_add_test(t, kept_scale);
    tcase_add_test(t, from_either);
    tcase_add_test(t, refusals);
    suite_add_tcase(s, t);
    return s;
}
