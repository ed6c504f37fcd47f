/* The passes precision, chunk, decompose and canonicalize on small texts: what they print, and that
 * the values do not change, computed in double. */
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The printed body without the indentation and the "return": one line each, joined by "; ". */
static const char *body(test_unit *t, const char *func)
{
    const char *text = test_print(t, func);
    char *out = f8_arena_array(&t->arena, strlen(text) * 2 + 1, 1), *to = out;
    for (const char *p = text; *p; p++) {
        if (*p == '\n')
            to += sprintf(to, "; ");
        else if (*p != ' ' || (p > text && p[-1] != '\n' && p[-1] != ' '))
            *to++ = *p;
    }
    while (to > out && (to[-1] == ' ' || to[-1] == ';'))
        *--to = 0;
    return out;
}

/* ---- precision ---- */

static const struct {
    const char *recipe, *text, *body;
} precisions[] = {
    /* each op computes in f32 and rounds; a bias is rounded before it is added, as a GEMM reads it;
     * an explicit name wins over the weight's */
    {"bf16",
     "param w: f32[4, 5] zeros\nparam b: f32[5] zeros\n"
     "func forward(%x: f32[3, 4]) -> (%y: f32[3, 5]) {\n  return tanh(linear(%x, w, b) {name = "
     "\"head\"})\n}\n",
     "%1 = cast(%x) {to = bf16}; %2 = cast(w) {to = bf16}; "
     "%head.fprop = matmul(%1, %2) {name = \"head\", role = \"fprop\"}; %3 = cast(b) {to = bf16}; "
     "%4 = cast(%3); %5 = add(%head.fprop, %4); %6 = cast(%5) {to = bf16}; %7 = cast(%6); "
     "%8 = tanh(%7); return %8"},
    /* but not where the sum stays f32 */
    {"bf16",
     "param w: f32[4, 5] zeros\nparam b: f32[5] zeros\n"
     "func forward(%x: f32[3, 4]) -> (%y: f32[3, 5]) {\n  return linear(%x, w, b)\n}\n",
     "%1 = cast(%x) {to = bf16}; %2 = cast(w) {to = bf16}; "
     "%w.fprop = matmul(%1, %2) {name = \"w\", role = \"fprop\"}; %3 = add(%w.fprop, b); "
     "return %3"},
    {"f32",
     "param fc.weight: f32[4, 5] zeros\n"
     "func forward(%x: f32[3, 4]) -> (%y: f32[3, 5]) {\n  return exp(linear(%x, fc.weight))\n}\n",
     "%fc.fprop = matmul(%x, fc.weight) {name = \"fc\", role = \"fprop\"}; %1 = exp(%fc.fprop); "
     "return %1"},
    /* two linears on one weight have their own names */
    {"f32",
     "param w: f32[4, 4] zeros\nfunc forward(%x: f32[3, 4]) -> (%y: f32[3, 4]) {\n"
     "  return linear(linear(%x, w), w)\n}\n",
     "%w.fprop = matmul(%x, w) {name = \"w\", role = \"fprop\"}; "
     "%w.2.fprop = matmul(%w.fprop, w) {name = \"w.2\", role = \"fprop\"}; return %w.2.fprop"},
    /* logits and row statistics stay f32; moving keeps the dtype */
    {"bf16",
     "param w: f32[4, 6] zeros\nfunc forward(%x: f32[3, 4], %t: i32[3]) -> (%y: f32[]) {\n"
     "  %h = mul(%x, reduce_max(%x))\n  %s = slice(%h) {start = 0, stop = 4}\n"
     "  return cross_entropy(linear(%s, w), %t)\n}\n",
     "%1 = reduce_max(%x); %2 = mul(%x, %1); %h = cast(%2) {to = bf16}; %s = slice(%h) {stop = 4}; "
     "%3 = cast(w) {to = bf16}; %w.fprop = matmul(%s, %3) {name = \"w\", role = \"fprop\"}; %4 = "
     "cross_entropy(%w.fprop, %t); return %4"},
    /* a gelu whose result is rounded may be a polynomial; the function's result is not rounded */
    {"current",
     "func forward(%x: f32[3, 4]) -> (%y: f32[3, 4]) {\n"
     "  return gelu(gelu(%x) {approximate = \"none\"})\n}\n",
     "%1 = gelu(%x) {approximate = \"none\", rounded = bf16}; %2 = cast(%1) {to = bf16}; "
     "%3 = cast(%2); %4 = gelu(%3); return %4"},
    {"f32", "func forward(%x: f32[3, 4]) -> (%y: f32[3, 4]) {\n  return gelu(gelu(%x))\n}\n",
     "%1 = gelu(%x); %2 = gelu(%1); return %2"},
    /* the same of silu, tanh and sigmoid; a row statistic is not rounded */
    {"bf16",
     "func forward(%x: f32[3, 4]) -> (%y: f32[3, 4]) {\n"
     "  %h = silu(sigmoid(tanh(%x)))\n"
     "  return sigmoid(silu(mul(%h, tanh(reduce_max(%h)))))\n}\n",
     "%1 = tanh_bf16(%x); %2 = cast(%1) {to = bf16}; %3 = cast(%2); %4 = sigmoid_bf16(%3); "
     "%5 = cast(%4) {to = bf16}; %6 = cast(%5); %7 = silu(%6) {rounded = bf16}; "
     "%h = cast(%7) {to = bf16}; %8 = cast(%h); %9 = reduce_max(%8); %10 = tanh(%9); "
     "%11 = mul(%8, %10); %12 = cast(%11) {to = bf16}; %13 = cast(%12); "
     "%14 = silu(%13) {rounded = bf16}; %15 = cast(%14) {to = bf16}; %16 = cast(%15); "
     "%17 = sigmoid(%16); return %17"},
    {"f32",
     "func forward(%x: f32[3, 4]) -> (%y: f32[3, 4]) {\n"
     "  return silu(sigmoid(silu(tanh(%x))))\n}\n",
     "%1 = tanh(%x); %2 = silu(%1); %3 = sigmoid(%2); %4 = silu(%3); return %4"},
    /* attention takes and gives bf16; a cast in the text is kept as asked */
    {"bf16",
     "func forward(%x: f32[1, 3, 4], %i: i32[3, 1]) -> (%y: f32[1, 3, 4]) {\n"
     "  return mul(attention(%x, %x, %x), cast(%i) {to = f32})\n}\n",
     "%1 = cast(%x) {to = bf16}; %2 = attention(%1, %1, %1); %3 = cast(%i); %4 = cast(%2); "
     "%5 = mul(%4, %3); return %5"},
    /* a bf16 input cast up is bf16 to a linear, and rounds nothing that a boundary would not */
    {"bf16",
     "param w: f32[4, 4] zeros\nfunc forward(%x: bf16[3, 4]) -> (%y: bf16[3, 4]) {\n"
     "  %h = cast(%x) {to = f32}\n  return cast(mul(linear(%h, w), %h)) {to = bf16}\n}\n",
     "%h = cast(%x); %1 = cast(w) {to = bf16}; "
     "%w.fprop = matmul(%x, %1) {name = \"w\", role = \"fprop\"}; "
     "%2 = cast(%w.fprop) {to = bf16}; %3 = cast(%2); %4 = mul(%3, %h); "
     "%5 = cast(%4) {to = bf16}; return %5"},
    /* a boundary rounds a row statistic, which else stays f32 */
    {"bf16",
     "func forward(%x: f32[3, 4]) -> (%y: f32[3, 4]) {\n"
     "  return mul(boundary(reduce_max(%x)), %x)\n}\n",
     "%1 = reduce_max(%x); %2 = cast(%1) {to = bf16}; %3 = boundary(%2); %4 = cast(%3); "
     "%5 = mul(%4, %x); return %5"},
    /* a linear sees through a stop_gradient what was cast up below it */
    {"bf16",
     "param w: bf16[4, 4] zeros\nfunc forward(%x: bf16[3, 4]) -> (%y: f32[3, 4]) {\n"
     "  return linear(stop_gradient(cast(%x) {to = f32}), stop_gradient(w))\n}\n",
     "%1 = cast(%x); %2 = stop_gradient(%x); %3 = cast(%2); %4 = stop_gradient(w); %w.fprop "
     "= matmul(%2, %4) {name = \"w\", role = \"fprop\"}; return %w.fprop"},
    /* f32's least number, as models hide scores with it, is no -Inf in bf16; an infinity is */
    {"bf16",
     "func forward(%c: bool[3, 4], %x: f32[3, 4]) -> (%y: f32[3, 4]) {\n"
     "  %m = mul(sub(1, %x), -3.4028234663852886e38)\n"
     "  %s = select(%c, %x, const() {value = -inf})\n"
     "  return softmax(select(%c, add(%s, %m), 3.4e38))\n}\n",
     "%1 = sub(1, %x); %2 = cast(%1) {to = bf16}; %3 = cast(%2); %4 = mul(%3, "
     "-3.3895314e+38); %m = cast(%4) {to = bf16}; %5 = const() {value = -inf}; %6 = "
     "select(%c, %x, %5); %s = cast(%6) {to = bf16}; %7 = cast(%s); %8 = cast(%m); %9 = "
     "add(%7, %8); %10 = cast(%9) {to = bf16}; %11 = cast(%10); %12 = select(%c, %11, "
     "3.3895314e+38); %13 = cast(%12) {to = bf16}; %14 = cast(%13); %15 = softmax(%14); "
     "return %15"},
    /* A constant is bounded, too, if only what is made of it becomes bf16: a scalar, a statistic, a
     * view. It is not if the text itself casts it, if it is compared, if it stays f32, or if bf16
     * rounds it to a finite number. */
    {"bf16",
     "func forward(%x: f32[3, 4], %c: bool[3, 1]) -> (%y: f32[3, 4], %a: f32[3, 8], %z: bf16[], "
     "%f: f32[3, 4]) {\n"
     "  %h = broadcast(reshape(select(%c, 0, neg(3.4e38))) {shape = [3, 1]}) {shape = [3, 4]}\n"
     "  %n = broadcast(-3.397e38) {shape = [3, 4]}\n"
     "  %s = select(lt(%x, -3.4028e38), tanh(%x), -3.39e38)\n"
     "  return tanh(add(%s, %h)), concat(%s, %n), cast(-3.402e38) {to = bf16}, select(%c, %x, "
     "-3.401e38)\n}\n",
     "%1 = neg(3.3895314e+38); %2 = select(%c, 0, %1); %3 = reshape(%2) {shape = [3, 1]}; %h "
     "= broadcast(%3) {shape = [3, 4]}; %n = broadcast(-3.3895314e+38) {shape = [3, 4]}; %4 "
     "= lt(%x, -3.4028e+38); %5 = tanh_bf16(%x); %6 = cast(%5) {to = bf16}; %7 = cast(%6); %8 = "
     "select(%4, %7, -3.39e+38); %s = cast(%8) {to = bf16}; %9 = cast(%s); %10 = add(%9, "
     "%h); %11 = cast(%10) {to = bf16}; %12 = cast(%11); %13 = tanh(%12); %14 = cast(%n) {to "
     "= bf16}; %15 = concat(%s, %14); %16 = cast(-3.402e+38) {to = bf16}; %17 = select(%c, "
     "%x, -3.401e+38); %18 = cast(%15); return %13, %18, %16, %17"},
    /* attention's mask stays f32, and so do its numbers */
    {"bf16",
     "func forward(%x: f32[1, 3, 4], %c: bool[1, 1, 3, 3]) -> (%y: f32[1, 3, 4]) {\n"
     "  return attention(%x, %x, %x, select(%c, 0, -3.4028234663852886e38))\n}\n",
     "%1 = select(%c, 0, -3.4028235e+38); %2 = cast(%x) {to = bf16}; %3 = attention(%2, %2, "
     "%2, %1); %4 = cast(%3); return %4"},
    /* an input that is added to scores is a mask; a parameter is none, and other sums are none */
    {"bf16",
     "param b: f32[4] zeros\nfunc forward(%x: f32[3, 4], %m: f32[12]) -> (%y: f32[3, 4]) {\n"
     "  %s = add(add(tanh(%x), b), reshape(%m) {shape = [3, 4]})\n"
     "  return add(softmax(%s), add(%x, %x))\n}\n",
     "%1 = tanh_bf16(%x); %2 = cast(%1) {to = bf16}; %3 = cast(%2); %4 = add(%3, b); %5 = "
     "cast(%4) {to = bf16}; %6 = reshape(%m) {shape = [3, 4]}; %7 = cast(%5); %8 = mul(%6, "
     "0.5); %9 = min(%8, -3.3895314e+38); %10 = max(%6, %9); %11 = add(%7, %10); %s = "
     "cast(%11) {to = bf16}; %12 = cast(%s); %13 = softmax(%12); %14 = cast(%13) {to = "
     "bf16}; %15 = add(%x, %x); %16 = cast(%15) {to = bf16}; %17 = cast(%14); %18 = "
     "cast(%16); %19 = add(%17, %18); return %19"},
};

START_TEST(precision_of_values)
{
    test_unit t;
    char text[1024];
    snprintf(text, sizeof text, "module m\n%s", precisions[_i].text);
    test_unit_parse(&t, text, precisions[_i].recipe);
    test_pass(&t, f8_pass_precision);
    ck_assert_str_eq(body(&t, "forward"), precisions[_i].body);
    test_unit_end(&t);
}
END_TEST

/* Autodiff alone has a use for stop_gradient: it leaves the graphs of the text without it, and
 * decompose drops those that were not differentiated. For inference precision does: `serve`, the
 * next pass, looks for weights that linears read. */
START_TEST(stops_vanish)
{
    static const char text[] =
        "module m\nparam w: f32[4, 4] zeros\nfunc forward(%%x: f32[3, 4]) -> (%%loss: f32[]) {\n"
        "  %%h = tanh(linear(%%x, w))\n  %%y = mul(%%h, %s)\n"
        "  return reshape(reduce_sum(%%y) {axes = [0, 1]}) {shape = []}\n}\n";
    static const char *const eval[] = {"%h", "stop_gradient(%h)",
                                       "stop_gradient(stop_gradient(%h))"};
    char whole[512];
    test_unit t[3], d;
    for (int i = 0; i < 3; i++) {
        snprintf(whole, sizeof whole, text, eval[i]);
        test_unit_parse(&t[i], whole, _i ? "bf16" : "f32");
        test_pass(&t[i], f8_pass_precision);
        test_pass(&t[i], f8_pass_autodiff);
        ck_assert_str_eq(body(&t[i], "eval"), body(&t[0], "eval"));
    }
    if (!_i)
        ck_assert_str_eq(
            body(&t[1], "micro_step"),
            "%w.fprop = matmul(%x, w) {name = \"w\", role = \"fprop\"}; %h = tanh(%w.fprop); %y = "
            "mul(%h, %h); %1 = reduce_sum(%y) {axes = [0, 1]}; %2 = reshape(%1); %3 = reshape(1) "
            "{shape = [1, 1]}; %d.y = broadcast(%3) {shape = [3, 4]}; %d.h = mul(%d.y, %h); %4 = "
            "sub(1, %y); %d.w.fprop = mul(%d.h, %4); %w.wgrad = matmul(%x, %d.w.fprop, grad.w) "
            "{transpose_a = true, name = \"w\", role = \"wgrad\"}; %5 = add(opt.micro_steps, 1); "
            "return %2, grad.w <- %w.wgrad, opt.micro_steps <- %5");
    ck_assert_str_eq(body(&t[1], "micro_step"), body(&t[2], "micro_step"));
    ck_assert_str_ne(body(&t[1], "micro_step"), body(&t[0], "micro_step"));
    for (int i = 0; i < 3; i++)
        test_unit_end(&t[i]);
    test_unit_parse(&d, whole, _i ? "bf16" : "f32");
    test_pass(&d, f8_pass_precision);
    ck_assert_int_eq(test_count(test_func(&d, "forward"), F8_OP_STOP_GRADIENT, NULL), 2);
    test_unit_end(&d);
    test_unit_parse(&d, whole, _i ? "bf16" : "f32");
    d.unit.options.inference = true;
    test_pass(&d, f8_pass_precision);
    ck_assert_int_eq(test_count(test_func(&d, "forward"), F8_OP_STOP_GRADIENT, NULL), 0);
    test_unit_end(&d);
    test_unit_parse(&d,
                    "module m\nfunc forward(%x: i32[3, 4]) -> (%y: i32[3, 4]) {\n"
                    "  return add(%x, stop_gradient(%x))\n}\n",
                    "f32");
    test_pass(&d, f8_pass_decompose);
    ck_assert_str_eq(body(&d, "forward"), "%1 = add(%x, %x); return %1");
    test_unit_end(&d);
}
END_TEST

/* Linears that share a weight are told apart by number, and one rule speaks for all of them; a
 * weight that is a view of a parameter has the parameter's name. */
START_TEST(rules_of_shared_weights)
{
    static const char text[] =
        "module m\nparam a.weight: f32[4, 4] ones\nparam b: f32[16] ones\n"
        "func forward(%x: f32[4, 4]) -> (%y: f32[4, 4]) {\n"
        "  %h = linear(tanh(linear(%x, a.weight)), a.weight) {transpose_b = true}\n"
        "  return linear(%h, reshape(b) {shape = [4, 4]})\n}\n"
        "recipe \"a\" = bf16\nrecipe \"b\" = current\n";
    static const struct {
        const char *linear, *recipe;
    } wanted[] = {{"a", "bf16"}, {"a.2", "bf16"}, {"b", "current"}};
    test_unit t;
    test_unit_parse(&t, text, "delayed");
    test_pass(&t, f8_pass_precision);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        ck_assert_str_eq(
            f8_recipe_for(&t.unit, wanted[i].linear, F8_FPROP, F8_OPERAND_X).recipe.name,
            wanted[i].recipe);
    test_unit_end(&t);
}
END_TEST

/* ---- canonicalize ---- */

/* `expr` over x f32[4, 6], y f32[4, 6] and i i32[4], and what is left of it. */
static const struct {
    const char *expr, *type, *body;
} canonical[] = {
    {"cast(cast(%x) {to = f32}) {to = f32}", "f32[4, 6]", "return %x"},
    {"cast(cast(cast(%x) {to = bf16}) {to = f32}) {to = bf16}", "bf16[4, 6]",
     "%1 = cast(%x) {to = bf16}; return %1"},
    {"cast(cast(%x) {to = bf16}) {to = f32}", "f32[4, 6]",
     "%1 = cast(%x) {to = bf16}; %2 = cast(%1); return %2"},
    {"mul(%x, 1)", "f32[4, 6]", "return %x"},
    {"mul(1, div(%x, 1))", "f32[4, 6]", "return %x"},
    {"add(%x, -0.0)", "f32[4, 6]", "return %x"},
    {"add(%x, 0)", "f32[4, 6]", "%1 = add(%x, 0); return %1"}, /* -0 + 0 is 0 */
    {"sub(%x, 0)", "f32[4, 6]", "return %x"},
    {"neg(neg(%x))", "f32[4, 6]", "return %x"},
    {"select(lt(%x, %y), %y, %y)", "f32[4, 6]", "return %y"},
    {"mul(%x, add(mul(2, 3), exp(0)))", "f32[4, 6]", "%1 = mul(%x, 7); return %1"},
    {"mul(%x, div(1, 0))", "f32[4, 6]",
     "%1 = div(1, 0); %2 = mul(%x, %1); return %2"}, /* Inf can't be written */
    {"reshape(reshape(%x) {shape = [24]}) {shape = [6, 4]}", "f32[6, 4]",
     "%1 = reshape(%x) {shape = [6, 4]}; return %1"},
    {"reshape(reshape(%x) {shape = [24]}) {shape = [4, 6]}", "f32[4, 6]", "return %x"},
    {"transpose(transpose(%x) {perm = [1, 0]}) {perm = [1, 0]}", "f32[4, 6]", "return %x"},
    {"slice(%x) {start = 0, stop = 6}", "f32[4, 6]", "return %x"},
    {"slice(slice(%x) {start = 1, stop = 5}) {start = 1, stop = 3}", "f32[4, 2]",
     "%1 = slice(%x) {start = 2, stop = 4}; return %1"},
    {"slice(concat(%x, %y)) {start = 6, stop = 12}", "f32[4, 6]", "return %y"},
    {"slice(concat(%x, %y)) {start = 5, stop = 12}", "f32[4, 7]",
     "%1 = concat(%x, %y); %2 = slice(%1) {start = 5, stop = 12}; return %2"},
    {"concat(slice(%x) {start = 0, stop = 2}, slice(%x) {start = 2, stop = 6})", "f32[4, 6]",
     "return %x"},
    {"concat(slice(%x) {start = 1, stop = 2}, slice(%x) {start = 2, stop = 6})", "f32[4, 5]",
     "%1 = slice(%x) {start = 1, stop = 6}; return %1"},
    {"add(%x, broadcast(reduce_max(%y)) {shape = [4, 6]})", "f32[4, 6]",
     "%1 = reduce_max(%y); %2 = add(%x, %1); return %2"},
    {"broadcast(broadcast(reduce_max(%y)) {shape = [4, 6]}) {shape = [2, 4, 6]}", "f32[2, 4, 6]",
     "%1 = reduce_max(%y); %2 = broadcast(%1) {shape = [2, 4, 6]}; return %2"},
    {"reduce_sum(reduce_max(%x))", "f32[4, 1]", "%1 = reduce_max(%x); return %1"},
    {"roll(%x) {shift = 6}", "f32[4, 6]", "return %x"},
};

START_TEST(canonical_forms)
{
    test_unit t;
    char text[512];
    snprintf(
        text, sizeof text,
        "module m\nfunc forward(%%x: f32[4, 6], %%y: f32[4, 6]) -> (%%r: %s) {\n  return %s\n}\n",
        canonical[_i].type, canonical[_i].expr);
    test_unit_parse(&t, text, "f32");
    test_pass(&t, f8_pass_canonicalize);
    ck_assert_msg(!strcmp(body(&t, "forward"), canonical[_i].body), "%s\ngives %s\nnot   %s",
                  canonical[_i].expr, body(&t, "forward"), canonical[_i].body);
    test_unit_end(&t);
}
END_TEST

/* ---- decompose ---- */

START_TEST(composites_vanish)
{
    test_unit t;
    test_unit_parse(
        &t,
        "module m\nparam w: f32[8] zeros\nparam b: f32[8] zeros\nstate h: f32[3] zeros\n"
        "func forward(%x: f32[4, 8], %t: i32[4]) -> (%loss: f32[], %s: f32[], %p: f32[3]) {\n"
        "  %n = rmsnorm(layernorm(%x, w, b), w)\n"
        "  %a = softmax(rope(silu(gelu(%n))) {heads = 2})\n"
        "  %m = amax(%a)\n"
        "  return cross_entropy(add(%a, mean(%a)), %t), fp8_scale(%m), history_push(h, %m)\n}\n",
        "f32");
    test_pass(&t, f8_pass_decompose);
    const f8_graph *g = test_func(&t, "forward")->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        ck_assert_int_ne(f8_op_facts(f8_at(g, r)->op)->cls, F8_COMPOSITE);
        ck_assert_int_ne(f8_op_facts(f8_at(g, r)->op)->cls, F8_FP8);
    }
    test_unit_end(&t);
}
END_TEST

/* Forward's and backward's row statistics are one node: what autodiff of bf16 layernorm and gelu
 * leaves. */
START_TEST(statistics_are_shared)
{
    test_unit t;
    test_unit_parse(&t,
                    "module m\nparam w: f32[8] zeros\nparam b: f32[8] zeros\nfunc forward(%x: "
                    "f32[4, 8], %t: i32[4]) -> (%loss: "
                    "f32[]) {\n  return cross_entropy(layernorm(mul(%x, w), w, b), %t)\n}\n",
                    "f32");
    test_pass(&t, f8_pass_precision);
    test_pass(&t, f8_pass_autodiff);
    test_pass(&t, f8_pass_decompose);
    const f8_func *step = test_func(&t, "micro_step");
    ck_assert_int_eq(test_count(step, F8_OP_RSQRT, NULL), 1);
    ck_assert_int_eq(test_count(step, F8_OP_LOG, NULL), 1);
    ck_assert_int_eq(test_count(step, F8_OP_REDUCE_MAX, NULL), 1);
    test_unit_end(&t);
}
END_TEST

/* fp8_scale: (max * 2^-margin) / amax, and what becomes of amax that can't be divided by. */
START_TEST(scale_of_amax)
{
    static const struct {
        double amax, e4m3, e5m2, kept;
    } rows[] = {
        {448, 1, 32, 32},    {2, 224, 7168, 7168}, {0, 1, 1, 5},
        {INFINITY, 1, 1, 5}, {NAN, 1, 1, 5},       {1e-45, FLT_MAX, FLT_MAX, FLT_MAX},
    };
    test_unit t;
    test_unit_parse(
        &t,
        "module m\nfunc forward(%a: f32[], %p: f32[]) -> (%x: f32[], %y: f32[], %z: f32[]) {\n"
        "  return fp8_scale(%a) {format = f8e4m3, margin = 0}, fp8_scale(%a) {format = f8e5m2, "
        "margin = 2},\n"
        "         fp8_scale(%a, %p) {format = f8e5m2, margin = 2}\n}\n",
        "f32");
    test_pass(&t, f8_pass_decompose);
    test_values in = {.t = &t}, out = {.t = &t};
    const f8_type scalar = {.dtype = F8_F32};
    *(double *)test_value(&in, "a", &scalar) = rows[_i].amax;
    *(double *)test_value(&in, "p", &scalar) = 5;
    test_run_f64(test_func(&t, "forward"), &in, &out);
    ck_assert_double_eq(*test_f64(&out, "x"), rows[_i].e4m3);
    ck_assert_double_eq(*test_f64(&out, "y"), rows[_i].e5m2);
    ck_assert_double_eq(*test_f64(&out, "z"), rows[_i].kept);
    test_unit_end(&t);
}
END_TEST

/* ---- chunk ---- */

/* 2 * 48 rows of 30000 classes: 11 MB of logits, in chunks of 64 and 32 rows. */
static const char head[] =
    "module m\ndim B = 2, T = 48, C = 3, V = 30000\n"
    "param w: f32[V, C] normal(0.02)\n"
    "func forward(%x: f32[B, T, C], %ids: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  %h = tanh(add(%x, embedding(w, %ids)))\n"
    "  return cross_entropy(linear(%h, w) {transpose_b = true, name = \"head\"}, %targets)\n}\n";

static void start_head(test_unit *t, const char *recipe)
{
    test_unit_parse(t, head, recipe);
    test_pass(t, f8_pass_precision);
    test_pass(t, f8_pass_autodiff);
}

START_TEST(chunks_of_rows)
{
    test_unit t;
    start_head(&t, _i ? "bf16" : "f32");
    test_pass(&t, f8_pass_chunk);
    const f8_func *step = test_func(&t, "micro_step"), *eval = test_func(&t, "eval");
    ck_assert_int_eq(test_count(eval, F8_OP_MATMUL, "fprop"), 2);
    ck_assert_int_eq(test_count(step, F8_OP_MATMUL, "fprop"), 2);
    ck_assert_int_eq(test_count(step, F8_OP_MATMUL, "dgrad"), 2);
    ck_assert_int_eq(test_count(step, F8_OP_MATMUL, "wgrad"), 2);
    ck_assert_int_eq(test_count(step, F8_OP_CROSS_ENTROPY, NULL), 0);
    const f8_graph *g = step->graph;
    f8_ref fprop[2];
    int n = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        ck_assert_int_lt(f8_type_rows(f8_type_of(g, r)) * f8_type_columns(f8_type_of(g, r)),
                         96 * 30000);
        if (f8_at(g, r)->op == F8_OP_MATMUL && !strcmp(f8_attr_s(g, r, F8_A_ROLE), "fprop"))
            fprop[n++] = r;
        /* chunk after chunk: the first wgrad stands before the second's logits */
        if (f8_at(g, r)->op == F8_OP_MATMUL && !strcmp(f8_attr_s(g, r, F8_A_ROLE), "wgrad") &&
            n == 1)
            ck_assert_str_eq(g->name[f8_at(g, r)->in[2]], "grad.w");
    }
    ck_assert_int_eq(n, 2);
    ck_assert_int_eq(f8_type_rows(f8_type_of(g, fprop[0])), 64);
    ck_assert_int_eq(f8_type_rows(f8_type_of(g, fprop[1])), 32);
    test_unit_end(&t);
}
END_TEST

START_TEST(chunked_values)
{
    test_unit whole, parts;
    start_head(&whole, "f32");
    start_head(&parts, "f32");
    test_pass(&parts, f8_pass_chunk);
    test_values in = {.t = &whole}, a = {.t = &whole}, b = {.t = &parts};
    test_run_f64(test_func(&whole, "micro_step"), &in, &a);
    test_run_f64(test_func(&parts, "micro_step"), &in, &b);
    ck_assert_int_eq(a.n, b.n);
    for (int k = 0; k < a.n; k++) {
        ck_assert_str_eq(a.name[k], b.name[k]);
        for (int64_t i = 0; i < f8_type_elements(&a.type[k]); i++) {
            double x = ((double *)a.data[k])[i], y = ((double *)b.data[k])[i];
            ck_assert_msg(fabs(x - y) <= 1e-12 * (1 + fabs(x)), "%s[%lld]: %.17g and %.17g",
                          a.name[k], (long long)i, x, y);
        }
    }
    test_unit_end(&whole);
    test_unit_end(&parts);
}
END_TEST

/* An FP8 head in chunks: each operand is quantized from f32, never from its rounding to bf16. */
START_TEST(chunks_are_quantized_once)
{
    test_unit t;
    start_head(&t, "current");
    test_pass(&t, f8_pass_chunk);
    test_pass(&t, f8_pass_scaling);
    const f8_func *step = test_func(&t, "micro_step");
    const f8_graph *g = step->graph;
    ck_assert_int_eq(test_count(step, F8_OP_SCALED_MATMUL, NULL), 6);
    ck_assert_int_eq(test_count(step, F8_OP_QUANTIZE, NULL), 5); /* x and dy of two chunks, and w */
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        if (f8_at(g, r)->op != F8_OP_QUANTIZE)
            continue;
        for (f8_ref x = f8_at(g, r)->in[0];; x = f8_at(g, x)->in[0]) {
            ck_assert_int_eq(f8_type_of(g, x)->dtype, F8_F32);
            f8_op op = f8_at(g, x)->op;
            if (op != F8_OP_CAST && op != F8_OP_SLICE && op != F8_OP_RESHAPE)
                break;
        }
    }
    test_unit_end(&t);
}
END_TEST

/* Linears that read one value under one recipe share its codes and its slot; under another recipe
 * they have their own. In wgrad x keeps x's format and dy dy's. */
START_TEST(codes_of_a_shared_value)
{
    static const char text[] =
        "module m\nparam q.weight: f32[16, 32] normal(0.02)\nparam k.weight: f32[32, 16] "
        "normal(0.02)\n"
        "param v.weight: f32[16, 32] normal(0.02)\nfunc forward(%x: f32[48, 16]) -> (%loss: f32[]) "
        "{\n"
        "  %h = tanh(%x)\n  %q = linear(%h, q.weight)\n"
        "  %k = linear(%h, k.weight) {transpose_b = true}\n  %v = linear(%h, v.weight)\n"
        "  return reshape(reduce_sum(reduce_sum(mul(mul(%q, %k), %v)) {axis = 0})) {shape = "
        "[]}\n}\n";
    char whole[1024];
    test_unit t;
    snprintf(whole, sizeof whole, "%s%s", text,
             _i ? "recipe \"*\" = auto\nrecipe \"v\" = current\n" : "");
    test_unit_parse(&t, whole, "delayed");
    test_pass(&t, f8_pass_precision);
    test_pass(&t, f8_pass_autodiff);
    test_pass(&t, f8_pass_scaling);
    const f8_func *step = test_func(&t, "micro_step");
    ck_assert_int_eq(test_count(step, F8_OP_SCALED_MATMUL, NULL), 6); /* x is an input: no dgrad */
    ck_assert_int_eq(test_count(step, F8_OP_QUANTIZE, NULL),
                     _i ? 8 : 7); /* x, three weights, three dy */
    const int32_t scale = f8_module_find_var(t.unit.module, "fp8.scale");
    ck_assert_int_ge(scale, 0);
    ck_assert_int_eq(t.unit.module->var[scale].type.dim[0], _i ? 5 : 7);
    const f8_graph *g = step->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (!strcmp(f8_attr_s(g, r, F8_A_ROLE), "wgrad")) {
            const f8_dtype a = f8_type_of(g, f8_at(g, r)->in[0])->dtype,
                           b = f8_type_of(g, f8_at(g, r)->in[2])->dtype;
            ck_assert_int_ne(a, b);
        }
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("passes");
    TCase *t = tcase_create("rewrites");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, precision_of_values, 0, (int)(sizeof precisions / sizeof precisions[0]));
    tcase_add_loop_test(t, stops_vanish, 0, 2);
    tcase_add_test(t, rules_of_shared_weights);
    tcase_add_loop_test(t, canonical_forms, 0, (int)(sizeof canonical / sizeof canonical[0]));
    tcase_add_test(t, composites_vanish);
    tcase_add_test(t, statistics_are_shared);
    tcase_add_loop_test(t, scale_of_amax, 0, 6);
    tcase_add_loop_test(t, chunks_of_rows, 0, 2);
    tcase_add_test(t, chunked_values);
    tcase_add_test(t, chunks_are_quantized_once);
    tcase_add_loop_test(t, codes_of_a_shared_value, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
