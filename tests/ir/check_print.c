/* The printer: canonical text of declarations and functions, and writers that fail. */
#include "ir/ir.h"
#include "tests/shared/passes/one_func.h"
#include "tests/shared/suite.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char bytes[1 << 16];
    size_t n, limit;
} text;

static int take(void *user, const char *bytes, size_t n)
{
    text *t = user;
    if (t->n + n > t->limit)
        return 1;
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    t->bytes[t->n] = 0;
    return 0;
}

static const char *printed(text *t)
{
    *t = (text){.limit = sizeof t->bytes - 1};
    ck_assert_int_eq(f8_print_module(m, &(f8_writer){take, t}), F8_OK);
    return t->bytes;
}

static text out;

START_TEST(print_declarations)
{
    static f8_dim dims[] = {{.name = "B", .value = 8}, {.name = "T", .value = 256}};
    static f8_recipe_rule rules[] = {
        {.pattern = "h.*", .recipe = "delayed {history = 4}"},
        {.pattern = "a\"b\\{c}", .role = "wgrad", .operand = "dy", .recipe = "bf16"},
        {.first = 1, .last = 2, .recipe = "bf16"}};
    m->dim = dims;
    m->n_dims = 2;
    m->rule = rules;
    m->n_rules = 3;
    m->accumulate = 4;
    m->optimizer = (f8_optimizer){.declared = true,
                                  .lr = 6e-4,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .clip = 1,
                                  .min_lr = 0.1,
                                  .warmup = 20,
                                  .steps = 300,
                                  .schedule = "cosine"};
    variable("wte", 256, 64);
    f8_var v[] = {
        {.name = "b", .type = {.rank = 1, .dim = {3}}, .init = F8_INIT_ONES},
        {.name = "c", .kind = F8_VAR_STATE, .init = F8_INIT_CONST, .init_arg = 1.0 / 3},
        {.name = "u", .type = {.rank = 1, .dim = {3}}, .init = F8_INIT_UNIFORM, .init_arg = 0.5},
        {.name = "ids", .type = {.dtype = F8_I32}, .kind = F8_VAR_STATE},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        ck_assert_int_ge(f8_module_var(m, &v[i]), 0);
    ck_assert_str_eq(
        printed(&out),
        "module test\n"
        "dim B = 8, T = 256\n"
        "param wte: f32[256, 64] normal(0.02)\n"
        "param b: f32[3] ones\n"
        "state c: f32[] const(0.3333333333333333)\n"
        "param u: f32[3] uniform(0.5)\n"
        "state ids: i32[] zeros\n"
        "optimizer adamw {lr = 0.0006, beta1 = 0.9, beta2 = 0.95, eps = 1e-08, weight_decay = 0.1, "
        "clip = 1, min_lr = 0.1, warmup = 20, steps = 300, schedule = \"cosine\"}\n"
        "accumulate 4\n"
        "recipe \"h.*\" = delayed {history = 4}\n"
        "recipe \"a\\\"b\\\\\\{c\\}\" wgrad dy = bf16\n"
        "recipe layers 1, 2 = bf16\n"
        "\n"
        "func forward() -> () {\n"
        "  return\n"
        "}\n");
}
END_TEST

START_TEST(print_function)
{
    int32_t w = variable("h.0.w", 8, 8);
    f8_ref x = input("x", 4, 8);
    f8_ref s = f8_binary(g, F8_OP_ADD, x, f8_const(g, 0.1));
    f8_set_name(g, s, "s");
    f8_ref a = f8_unary(g, F8_OP_EXP, s), b = f8_unary(g, F8_OP_LOG, s),
           c = f8_unary(g, F8_OP_NEG, a);
    f8_set_name(g, a, "twice"); /* not unique: numbered */
    f8_set_name(g, b, "twice");
    f8_set_name(g, c, "x"); /* a port's */
    f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_B, 1), F8_STR(F8_A_NAME, "h.0"),
                      F8_STR(F8_A_ROLE, "fprop")};
    f8_ref p = f8_make(g, F8_OP_MATMUL, (f8_ref[]){c, f8_func_var(f, w)}, 2, attr, 3);
    f8_ref h = f8_make_clone(g, F8_OP_CAST, &p, 1, &F8_INT(F8_A_TO, F8_BF16), 1, 2);
    f8_ref i = f8_make(g, F8_OP_IOTA, NULL, 0, &F8_INTS(F8_A_SHAPE, ((f8_ints){2, {4, 8}})), 1);
    f8_ref e = f8_make(g, F8_OP_CONST, NULL, 0,
                       (f8_attr[]){F8_FLOAT(F8_A_VALUE, 3), F8_INT(F8_A_TO, F8_I32)}, 2);
    f8_ref big = f8_const(g, INFINITY);
    f8_ref cond = f8_binary(g, F8_OP_LT, i, e);
    f8_ref y = f8_select(g, cond, b, big);
    f8_ref r = f8_reduce(g, F8_OP_REDUCE_SUM, y, 0);
    f8_func_result(f, "y", r, -1);
    f8_func_result(f, "h", h, -1);
    f8_ref nw = f8_binary(g, F8_OP_MUL, f8_func_var(f, w), f8_const(g, -2.5));
    f8_func_result(f, NULL, nw, w);
    f8_func_result(f, "k", f8_const(g, 7), -1);
    ck_assert_int_eq(diag.status, F8_OK);
    ck_assert_str_eq(
        printed(&out),
        "module test\n"
        "param h.0.w: f32[8, 8] normal(0.02)\n"
        "\n"
        "func forward(%x: f32[4, 8]) -> (%y: f32[1, 8], %h: bf16[4, 8], %k: f32[]) {\n"
        "  %s = add(%x, 0.1)\n"
        "  %1 = exp(%s)\n"
        "  %2 = log(%s)\n"
        "  %3 = neg(%1)\n"
        "  %4 = matmul(%3, h.0.w) {transpose_b = true, name = \"h.0\", role = \"fprop\"}\n"
        "  %5 = cast#2(%4) {to = bf16}\n"
        "  %6 = iota() {shape = [4, 8]}\n"
        "  %7 = const() {value = 3, to = i32}\n"
        "  %8 = const() {value = inf}\n"
        "  %9 = lt(%6, %7)\n"
        "  %10 = select(%9, %2, %8)\n"
        "  %11 = reduce_sum(%10) {axis = 0}\n"
        "  %12 = mul(h.0.w, -2.5)\n"
        "  return %11, %5, h.0.w <- %12, 7\n"
        "}\n");
}
END_TEST

START_TEST(print_long_return_and_failing_writer)
{
    f8_ref x = input("x", 1, 1);
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        f8_func_result(f, NULL, x, variable(name, 1, 1));
    }
    printed(&out);
    for (const char *p = out.bytes, *e; (e = strchr(p, '\n')); p = e + 1)
        ck_assert_int_le(e - p, 120);
    size_t whole = out.n;
    ck_assert_uint_gt(whole, 4096);
    out = (text){.limit = 5000};
    ck_assert_int_eq(f8_print_module(m, &(f8_writer){take, &out}), F8_ERR_IO);
    out = (text){.limit = whole};
    ck_assert_int_eq(f8_print_module(m, &(f8_writer){take, &out}), F8_OK);
}
END_TEST

/* Digits must not depend on the embedder's locale. */
START_TEST(print_in_another_locale)
{
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < sizeof commas / sizeof *commas && !setlocale(LC_ALL, commas[i]); i++)
        continue; /* where none is installed this only repeats the C locale */
    f8_var v = {.name = "c", .kind = F8_VAR_STATE, .init = F8_INIT_CONST, .init_arg = -1.25e-30};
    f8_module_var(m, &v);
    ck_assert_ptr_nonnull(strstr(printed(&out), "state c: f32[] const(-1.25e-30)\n"));
    setlocale(LC_ALL, "C");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("print");
    TCase *t = tcase_create("print");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, print_declarations);
    tcase_add_test(t, print_function);
    tcase_add_test(t, print_long_return_and_failing_writer);
    tcase_add_test(t, print_in_another_locale);
    suite_add_tcase(s, t);
    return s;
}
