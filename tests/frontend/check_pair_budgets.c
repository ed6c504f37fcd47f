/* What forward saves for backward: under budgets and name patterns, of states, of attention, of
 * logits. Whatever is saved, results and gradients have the same bits. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/pair_layer.h"
#include "tests/shared/suite.h"

static setup a, b;

/* Whatever is saved, the gradients have the same bits; and less is saved with a smaller share. */
START_TEST(budgets_keep_bits)
{
    static const double shares[] = {0, 0.7, 0.4, 0.1, 0.01};
    int64_t bytes[5];
    for (int i = 0; i < 5; i++) {
        int n;
        fp8c_compile_options o = pair_options(recipes[_i]);
        o.gradients_of = "x,w";
        o.memory_share = shares[i];
        setup *s = i ? &b : &a;
        begin(s, layer, &o);
        pair_step(s->p, false, &s->in, &s->out);
        bytes[i] = pair_saved_bytes(s->p, "forward", &n);
        fp8c_remat made = {.struct_size = sizeof made};
        fp8c_program_remat(s->p, 0, 0, &made);
        if (i == 0)
            continue;
        ck_assert_msg(bytes[i] <= bytes[0] * shares[i], "%s: %lld of %lld bytes for %g",
                      recipes[_i], (long long)bytes[i], (long long)bytes[0], shares[i]);
        ck_assert_int_eq(made.activations_before, bytes[0]);
        ck_assert_int_eq(made.activations_after, bytes[i]);
        ck_assert_int_gt(made.recomputed, 0);
        ck_assert(made.extra_seconds > 0);
        static const char *const names[] = {"y", "z", "up", "down", "ln", "up.bias", "dx", "dw"};
        for (int k = 0; k < 8; k++)
            ck_assert_msg(pair_equal(&a.out, &b.out, names[k]), "%s of %s at %g", names[k],
                          recipes[_i], shares[i]);
        end(s);
    }
    end(&a);
}
END_TEST

/* Attention has two results, which are saved or computed again together. */
START_TEST(attention_under_budgets)
{
    static const char text[] =
        "module attend\nparam qkv: f32[64, 192] normal(0.2)\nparam proj: f32[64, 64] normal(0.2)\n"
        "func forward(%x: f32[2, 32, 64]) -> (%y: f32[2, 32, 64]) {\n"
        "  %h = linear(%x, qkv) {name = \"qkv\"}\n"
        "  %q = slice(%h) {start = 0, stop = 64}\n  %k = slice(%h) {start = 64, stop = 128}\n"
        "  %v = slice(%h) {start = 128, stop = 192}\n"
        "  %a = attention(%q, %k, %v) {heads = 4, causal = true}\n"
        "  return add(%x, linear(%a, proj) {name = \"proj\"})\n}\n";
    static const double shares[] = {0, 0.8, 0.6, 0.4, 0.2, 0.05, 0, 0};
    static const char *const names[] = {"y", "qkv", "proj", "dx"};
    int64_t bytes[8];
    int n;
    for (int i = 0; i < 8; i++) {
        fp8c_compile_options o = pair_options(_i ? "delayed" : "bf16");
        o.gradients_of = "x";
        o.memory_share = shares[i];
        o.recompute = i == 6 ? "a" : NULL;
        o.checkpoint = i == 7 ? "a" : NULL;
        setup *s = i ? &b : &a;
        begin(s, text, &o);
        pair_step(s->p, false, &s->in, &s->out);
        bytes[i] = pair_saved_bytes(s->p, "forward", &n);
        if (i == 0)
            continue;
        ck_assert_int_lt(bytes[i], bytes[0]);
        for (int k = 0; k < 4; k++)
            ck_assert_msg(pair_equal(&a.out, &b.out, names[k]), "%s at %g", names[k], shares[i]);
        end(s);
    }
    end(&a);
}
END_TEST

/* What a budget saves may depend on the value of a dim that is a bound. */
START_TEST(budgets_of_bounds)
{
    static const char text[] =
        "module layer\ndim B <= 64\nparam ln: f32[64] ones\nparam up: f32[64, 128] normal(0.1)\n"
        "param down: f32[128, 64] normal(0.1)\n"
        "func forward(%x: f32[B, 64]) -> (%y: f32[B, 64]) {\n"
        "  %h = gelu(linear(rmsnorm(%x, ln), up) {name = \"up\"})\n"
        "  return add(%x, linear(%h, down) {name = \"down\"})\n}\n";
    static const int64_t rows[] = {64, 2, 1};
    int n[2][3];
    for (int i = 0; i < 3; i++) {
        fp8c_compile_options o = pair_options("rowwise");
        begin(&a, text, &o);
        o.memory_share = 0.5;
        begin(&b, text, &o);
        for (int k = 0; k < 2; k++) {
            setup *s = k ? &b : &a;
            ck_assert_msg(fp8c_program_set_dim(s->p, "B", rows[i]) == FP8C_OK, "%s",
                          fp8c_context_message(s->ctx));
            pair_step(s->p, false, &s->in, &s->out);
            pair_saved_bytes(s->p, "forward", &n[k][i]);
        }
        ck_assert(pair_equal(&a.out, &b.out, "up") && pair_equal(&a.out, &b.out, "ln") &&
                  pair_equal(&a.out, &b.out, "down"));
        end(&a);
        end(&b);
    }
    ck_assert_int_ne(n[0][0], n[0][2]); /* else this tests nothing */
    ck_assert_int_ne(n[1][0], n[1][1]);
}
END_TEST

/* A state that forward replaces: however little is saved, backward reads the old value. */
START_TEST(states_under_budgets)
{
    static const char text[] =
        "module counting\nparam w: f32[64, 64] normal(0.1)\nstate seen: f32[64, 64] ones\n"
        "func forward(%x: f32[256, 64]) -> (%y: f32[256, 64]) {\n"
        "  %h = gelu(linear(%x, seen) {name = \"a\"})\n"
        "  return linear(%h, w) {name = \"b\"}, seen <- add(seen, 1)\n}\n";
    static const double shares[] = {0, 0.3, 0.25};
    fp8c_context *ctx = new_context();
    for (int i = 0; i < 3; i++) {
        fp8c_compile_options o = pair_options("f32");
        o.memory_share = shares[i];
        setup *s = i ? &b : &a;
        begin(s, text, &o);
        pair_step(s->p, false, &s->in, &s->out);
        if (i == 0)
            continue;
        ck_assert_msg(pair_equal(&a.out, &b.out, "w"), "at %g", shares[i]);
        end(s);
    }
    fp8c_compile_options o = pair_options("f32");
    o.memory_share = 0.2; /* seen is a quarter of what is saved without a budget */
    refused(ctx, text, &o, FP8C_ERR_UNSUPPORTED, "the least possible share");
    fp8c_context_destroy(ctx);
    end(&a);
}
END_TEST

/* Patterns name what is kept or recomputed. */
START_TEST(patterns_of_saved)
{
    int n;
    fp8c_compile_options o = pair_options("bf16");
    begin(&a, layer, &o);
    pair_step(a.p, false, &a.in, &a.out);
    const int64_t all = pair_saved_bytes(a.p, "forward", &n);
    for (int i = 0; i < 2; i++) {
        o = pair_options("bf16");
        *(i ? &o.recompute : &o.checkpoint) = i ? "h" : "n";
        begin(&b, layer, &o);
        pair_step(b.p, false, &b.in, &b.out);
        ck_assert_int_lt(pair_saved_bytes(b.p, "forward", &n), all);
        ck_assert(pair_equal(&a.out, &b.out, "up") && pair_equal(&a.out, &b.out, "ln"));
        end(&b);
    }
    o = pair_options("bf16");
    o.checkpoint = "nothing.*";
    refused(a.ctx, layer, &o, FP8C_ERR_INPUT,
            "checkpoint: no value of 'forward' has a name that matches 'nothing.*'");
    end(&a);
}
END_TEST

/* Attention has two results that backward reads. Both are saved, or both are computed. */
START_TEST(both_results_of_attention)
{
    static const char text[] =
        "module attention\nparam a: f32[64, 64] normal(0.1)\nparam b: f32[64, 64] normal(0.1)\n"
        "func forward(%x: f32[2, 32, 64]) -> (%y: f32[2, 32, 64]) {\n"
        "  %h = linear(%x, a) {name = \"a\"}\n"
        "  %o = attention(%h, %h, %h) {heads = 64}\n" /* so that both take equal bytes in f32 */
        "  return linear(%o, b) {name = \"b\"}\n}\n";
    fp8c_compile_options o = pair_options("f32");
    begin(&a, text, &o);
    pair_step(a.p, false, &a.in, &a.out);
    for (int i = 0; i < 12; i++) {
        o = pair_options("f32");
        if (i < 2)
            *(i ? &o.recompute : &o.checkpoint) = "o";
        else
            o.memory_share = 0.09 * (i - 1);
        begin(&b, text, &o);
        pair_step(b.p, false, &b.in, &b.out);
        ck_assert_msg(pair_equal(&a.out, &b.out, "a") && pair_equal(&a.out, &b.out, "b"), "%d", i);
        end(&b);
    }
    end(&a);
}
END_TEST

static void saves_no_logits(fp8c_program *p, int64_t most)
{
    fp8c_port port;
    const int f = fp8c_program_function(p, "forward");
    for (int i = 0; fp8c_program_port(p, f, FP8C_OUTPUT, i, &port) == FP8C_OK; i++)
        ck_assert_msg(fp8c_type_bytes(&port.type) <= most, "%s", port.name);
}

/* `forward` never saves the logits of a head for `backward`, whether they are made in chunks or
 * whole, and even if a pattern names them. */
START_TEST(logits_are_not_saved)
{
    static const char *const heads[] = {"1024", "64", "1024", "1024", "1024"};
    /* with a bias and soft-capped, read by another result, and the sum of a linear and a product
     * that is none, they are no chunks */
    static const char *const loss[] = {
        "%l", "%l", "mul(tanh(mul(add(%l, b), 0.1)), 10)", "%l",
        "add(%l, matmul(%h, w) {transpose_b = true})"};
    char text[900];
    const int64_t v = atoll(heads[_i]);
    snprintf(text, sizeof text,
             "module head\nparam w: f32[%s, 64] normal(0.1)\nparam u: f32[64, 64] normal(0.1)\n"
             "param b: f32[%s] normal(0.1)\n"
             "func forward(%%x: f32[4096, 64], %%t: i32[4096])\n"
             "  -> (%%loss: f32[], %%most: f32[1, %s]) {\n"
             "  %%h = linear(%%x, u) {name = \"body\"}\n"
             "  %%l = linear(%%h, w) {transpose_b = true, name = \"head\"}\n"
             "  return cross_entropy(%s, %%t), %s\n}\n",
             heads[_i], heads[_i], heads[_i], loss[_i],
             _i == 3 ? "reduce_max(%l) {axis = 0}" : "reshape(b) {shape = [1, 1024]}");
    if (_i == 1)
        memcpy(strstr(text, "[1, 1024]}"), "[1, 64]}  ", 10);
    fp8c_compile_options o = pair_options("bf16");
    o.gradients_of = "x";
    begin(&a, text, &o);
    saves_no_logits(a.p, 4096 * 64 * 2);
    ck_assert_int_ge(v, 64);
    const fp8c_type scalar = {FP8C_F32, 0, {0}};
    const float one = 1;
    pair_set(&a.in, "dloss", &scalar, &one);
    pair_step(a.p, false, &a.in, &a.out);
    for (int i = 0; i < 2; i++) {
        o.memory_share = i ? 0 : 0.01;
        o.checkpoint = i ? "*" : NULL;
        begin(&b, text, &o);
        saves_no_logits(b.p, 4096 * 64 * 2);
        pair_set(&b.in, "dloss", &scalar, &one);
        pair_step(b.p, false, &b.in, &b.out);
        ck_assert(pair_equal(&a.out, &b.out, "w") && pair_equal(&a.out, &b.out, "u") &&
                  pair_equal(&a.out, &b.out, "dx") && pair_equal(&a.out, &b.out, "loss"));
        end(&b);
    }
    end(&a);
}
END_TEST

/* Two heads that read one value: micro_step's chunks of the first would come before its gradient,
 * so it stays whole there, and then everywhere. Scales belong to operands of chunks. */
START_TEST(two_heads)
{
    static const char text[] =
        "module two\nparam wte: f32[64, 32] normal(0.1)\nparam a: f32[32, 1048576] normal(0.1)\n"
        "param b: f32[32, 1048576] normal(0.1)\n"
        "func forward(%t: i32[64], %u: i32[64], %v: i32[64]) -> (%loss: f32[]) {\n"
        "  %x = embedding(wte, %t)\n"
        "  return add(cross_entropy(linear(%x, a) {name = \"one\"}, %u),\n"
        "             cross_entropy(linear(%x, b) {name = \"two\"}, %v))\n}\n";
    fp8c_context *ctx = new_context();
    for (int i = 0; i < 3; i++) {
        fp8c_compile_options o = recipe("delayed");
        o.pair = i > 0;
        o.train_step = i == 2;
        o.plan_only = 1;
        fp8c_module *m = parse(ctx, text);
        fp8c_program *p;
        ck_assert_msg(fp8c_compile(m, &o, &p) == FP8C_OK, "%s", fp8c_context_message(ctx));
        fp8c_module_destroy(m);
        fp8c_program_destroy(p);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("pair budgets");
    TCase *t = tcase_create("pair budgets");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, budgets_keep_bits, 0, N_RECIPES);
    tcase_add_loop_test(t, attention_under_budgets, 0, 2);
    tcase_add_test(t, budgets_of_bounds);
    tcase_add_test(t, states_under_budgets);
    tcase_add_test(t, patterns_of_saved);
    tcase_add_test(t, both_results_of_attention);
    tcase_add_loop_test(t, logits_are_not_saved, 0, 5);
    tcase_add_test(t, two_heads);
    suite_add_tcase(s, t);
    return s;
}
