/* Parameters that the option `frozen` names: backward has no gradient of them and runs no GEMM for
 * one, and everything else keeps its bits. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/pair_case.h"
#include "tests/shared/suite.h"

static const char layer[] =
    "module layer\nparam ln: f32[24] ones\nparam up: f32[24, 40] normal(0.1)\n"
    "param bias: f32[40] zeros\nparam down: f32[40, 24] normal(0.1)\n"
    "func forward(%x: f32[16, 24]) -> (%y: f32[16, 24]) {\n"
    "  %h = gelu(add(linear(rmsnorm(%x, ln), up) {name = \"up\"}, bias))\n"
    "  return add(%x, linear(%h, down) {name = \"down\"})\n}\n";

static const char *const recipes[] = {"f32", "bf16", "delayed", "current", "rowwise", "block"};

typedef struct freeze {
    const char *frozen, *gradients_of;
    const char *gone, *kept; /* names with spaces between them: without and with a gradient */
    const char *gemms;       /* LINEAR.ROLE of all GEMMs, in the order of decisions */
} freeze;

/* Two linears with three GEMMs each. Where nothing before a linear is trained, it has no dgrad. */
static const freeze cases[] = {
    {NULL, "x", "", "dx ln up bias down",
     "up.fprop down.fprop down.dgrad down.wgrad up.dgrad up.wgrad"},
    {"up", "x", "up", "dx ln bias down", "up.fprop down.fprop down.dgrad down.wgrad up.dgrad"},
    {"down,ln", "x", "ln down", "dx up bias", "up.fprop down.fprop down.dgrad up.dgrad up.wgrad"},
    {"*", "x", "ln up bias down", "dx", "up.fprop down.fprop down.dgrad up.dgrad"},
    {"ln,up", NULL, "dx ln up", "bias down", "up.fprop down.fprop down.dgrad down.wgrad"},
    {"ln,up,b*", NULL, "dx ln up bias", "down", "up.fprop down.fprop down.wgrad"},
};
enum { N_CASES = sizeof cases / sizeof *cases, N_RECIPES = sizeof recipes / sizeof *recipes };

static fp8c_program *make(fp8c_context *ctx, const char *recipe_name, const freeze *f)
{
    fp8c_compile_options o = recipe(recipe_name);
    o.pair = 1;
    o.gradients_of = f->gradients_of;
    o.frozen = f->frozen;
    fp8c_module *m = parse(ctx, layer);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    return p;
}

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

/* The GEMMs are those listed, each once. */
static void check_gemms(const fp8c_program *p, const char *listed)
{
    int n = 0, words = 1;
    fp8c_decision d;
    char name[64];
    for (; fp8c_program_decision(p, n, &d) == FP8C_OK; n++) {
        snprintf(name, sizeof name, "%s.%s", d.linear, d.role);
        ck_assert_msg(has_word(listed, name), "%s is planned, not only %s", name, listed);
    }
    for (const char *c = listed; *c; c++)
        words += *c == ' ';
    ck_assert_int_eq(n, words);
}

START_TEST(gradients)
{
    const freeze *f = &cases[_i % N_CASES];
    const char *name = recipes[_i / N_CASES];
    fp8c_context *ctx = new_context();
    fp8c_program *whole = make(ctx, name, &cases[0]), *p = make(ctx, name, f);
    static pair_values in, want, out;
    const bool first = !strcmp(name, "delayed"); /* before it has histories */
    pair_step(whole, first, &in, &want);
    pair_forget(&in, "saved.");
    pair_step(p, first, &in, &out);
    ck_assert(pair_equal(&want, &out, "y"));
    char words[64];
    snprintf(words, sizeof words, "%s", f->kept);
    for (char *at = strtok(words, " "); at; at = strtok(NULL, " "))
        ck_assert_msg(pair_equal(&want, &out, at), "%s, %s: %s", name, f->frozen, at);
    snprintf(words, sizeof words, "%s", f->gone);
    for (char *at = strtok(words, " "); at; at = strtok(NULL, " "))
        ck_assert_msg(!pair_find(&out, at), "%s, %s: %s", name, f->frozen, at);
    check_gemms(p, f->gemms);
    int n;
    ck_assert_int_le(pair_saved_bytes(p, "forward", &n), pair_saved_bytes(whole, "forward", &n));
    pair_end(&in);
    pair_end(&want);
    pair_end(&out);
    fp8c_program_destroy(p);
    fp8c_program_destroy(whole);
    fp8c_context_destroy(ctx);
}
END_TEST

/* With add_gradients a frozen parameter has no state for its gradient. */
START_TEST(added)
{
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = recipe("f32");
    o.pair = o.add_gradients = 1;
    o.frozen = "up";
    fp8c_module *m = parse(ctx, layer);
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    static pair_values in, out, states;
    pair_step(p, false, &in, &out);
    pair_variables(p, "grad.", &states);
    const pair_value *down = pair_find(&states, "grad.down");
    int sum = 0;
    ck_assert(down);
    for (int k = 0; k < 24 * 40; k++)
        sum += ((const float *)down->data)[k] != 0;
    ck_assert_int_gt(sum, 900);
    ck_assert_ptr_null(pair_find(&states, "grad.up"));
    pair_end(&in);
    pair_end(&out);
    pair_end(&states);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The frozen weights of a pair may be codes: the same bits as from values. Where dgrad multiplies
 * what they stand for, the same bits without fusion; forward saves nothing of them. */
START_TEST(stored)
{
    static const char *const under[] = {"current", "block",   "delayed", "rowwise",
                                        "mxfp8",   "bf16",    "f32"};
    const char *name = under[_i], *codes = _i < 5 ? name : "block";
    int n;
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, layer);
    static pair_values in, out[2];
    for (int i = 0; i < 2; i++) {
        fp8c_compile_options o = recipe(name);
        o.pair = 1;
        o.gradients_of = "x";
        o.frozen = "up,down";
        o.stored = i || _i > 2 ? codes : NULL;
        o.no_fuse = !i && _i > 2;
        fp8c_program *p = compile(ctx, m, &o);
        fp8c_stored s;
        ck_assert_int_eq(fp8c_program_stored(p, 1, &s), o.stored ? FP8C_OK : FP8C_ERR_INPUT);
        o.stored = NULL; /* values: forward saves none of these either */
        fp8c_program *values = compile(ctx, m, &o);
        ck_assert_int_eq(pair_saved_bytes(p, "forward", &n),
                         pair_saved_bytes(values, "forward", &n));
        fp8c_program_destroy(values);
        ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
        pair_step(p, !strcmp(name, "delayed"), &in, &out[i]);
        pair_forget(&in, "saved.");
        fp8c_program_destroy(p);
    }
    static const char *const names[] = {"y", "dx", "ln", "bias"};
    for (int i = 0; i < 4; i++)
        ck_assert_msg(pair_equal(&out[0], &out[1], names[i]), "%s: %s", name, names[i]);
    pair_end(&in);
    pair_end(&out[0]);
    pair_end(&out[1]);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(refused)
{
    static const struct {
        fp8c_compile_options o;
        const char *message;
    } bad[] = {
        {{.inference = 1, .frozen = "up"}, "`frozen` and `inference` are both given"},
        {{.pair = 1, .frozen = "side"},
         "frozen: no parameter matches 'side'; they are: ln, up, bias, down"},
        {{.pair = 1, .frozen = "up,side.*"}, "frozen: no parameter matches 'side.*'"},
        {{.pair = 1, .frozen = "*"},
         "'backward' would give no gradient: no result with a cotangent depends on a parameter "
         "that is not frozen"},
    };
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, layer);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fp8c_compile_options o = bad[i].o;
        fp8c_program *p = NULL;
        o.struct_size = sizeof o;
        ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
        ck_assert_msg(strstr(fp8c_context_message(ctx), bad[i].message), "%s",
                      fp8c_context_message(ctx));
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("frozen");
    TCase *t = tcase_create("frozen");
    tcase_add_loop_test(t, gradients, 0, N_CASES * N_RECIPES);
    tcase_add_test(t, added);
    tcase_add_loop_test(t, stored, 0, 7);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return s;
}
