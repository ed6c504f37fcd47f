/* Weights stored as FP8 (fp8c_compile_options.stored): served under the recipe they were quantized with they give
 * the bits of a program that quantizes its f32 weights itself; served in bf16, those of the values that
 * their codes stand for. */
#include "tests/api.h"

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

static served serve(fp8c_context *ctx, const fp8c_module *m, const char *run, const char *stored)
{
    fp8c_compile_options o = recipe(run);
    o.inference = 1;
    o.stored = stored;
    served s = {.p = compile(ctx, m, &o)};
    s.eval = fp8c_program_function(s.p, "eval");
    ck_assert_int_eq(fp8c_program_initialize(s.p, 1), FP8C_OK);
    return s;
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
                                                  : fp8c_program_quantize(to->p, y, values), FP8C_OK);
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
};

START_TEST(same_bits_as_quantizing)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const served own = serve(ctx, m, stored[_i].recipe, NULL);
    const served codes = serve(ctx, m, stored[_i].recipe, stored[_i].recipe);
    const served high = serve(ctx, m, "bf16", NULL), back = serve(ctx, m, "bf16", stored[_i].recipe);
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
    ck_assert_msg(a == b, "%s: %a of f32 weights, %a of codes", stored[_i].recipe, (double)a, (double)b);
    ck_assert_msg(c != d, "served in bf16, codes give what the weights they stand in for gave: %a", (double)c);
    ck_assert_msg(d > 0.98f * c && d < 1.02f * c, "in bf16: %g of weights, %g of codes", (double)c, (double)d);
    fp8c_program_destroy(own.p);
    fp8c_program_destroy(codes.p);
    fp8c_program_destroy(high.p);
    fp8c_program_destroy(back.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

static void refused(fp8c_context *ctx, const fp8c_module *m, const fp8c_compile_options *o, const char *why)
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
    refused(ctx, m, &o, "weights are stored in FP8 for inference alone");
    o.inference = 1;
    o.stored = "bf16";
    refused(ctx, m, &o, "no weight is stored in FP8");
    o.stored = "fp4";
    refused(ctx, m, &o, "no recipe 'fp4'");
    const served s = serve(ctx, m, "block", "block");
    fp8c_variable v;
    const float one = 1;
    ck_assert_int_eq(fp8c_program_quantize(s.p, variable(s.p, "wte", &v), &one), FP8C_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "is not stored in FP8"));
    fp8c_program_destroy(s.p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve");
    TCase *t = tcase_create("serve");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_bits_as_quantizing, 0, sizeof stored / sizeof *stored);
    tcase_add_test(t, refusals);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
