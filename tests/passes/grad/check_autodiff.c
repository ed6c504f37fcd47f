/* Derivatives: every rule against central differences in double; the structure of the entry points;
 * the forward/backward pair against micro_step; update against AdamW written out. */
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one rule at a time ---- */

/* y = expr has shape `shape` of `n` elements; the loss is the sum of y * random weights. */
typedef struct rule_case {
    const char *params, *inputs; /* declarations, "" for none; inputs end with a comma */
    const char *body, *shape;
    int n;
} rule_case;

static const rule_case cases[] = {
    /* pointwise, with broadcasting */
    {"param a: f32[3, 4] zeros\nparam b: f32[4] zeros", "", "%y = add(a, b)", "3, 4", 12},
    {"param a: f32[3, 4] zeros\nparam b: f32[3, 1] zeros", "", "%y = sub(a, b)", "3, 4", 12},
    {"param a: f32[3, 4] zeros\nparam b: f32[] zeros", "", "%y = mul(a, b)", "3, 4", 12},
    {"param a: f32[3, 4] zeros\nparam b: f32[3, 4] zeros", "", "%y = div(a, add(mul(b, b), 1))",
     "3, 4", 12},
    {"param a: f32[2, 3, 4] zeros\nparam b: f32[3, 1] zeros", "", "%y = mul(a, b)", "2, 3, 4", 24},
    {"param a: f32[3, 4] zeros\nparam b: f32[3, 4] zeros", "", "%y = max(a, b)", "3, 4", 12},
    {"param a: f32[3, 4] zeros\nparam b: f32[3, 4] zeros", "", "%y = min(a, b)", "3, 4", 12},
    {"param a: f32[3, 4] zeros\nparam b: f32[4] zeros\nparam c: f32[3, 1] zeros", "",
     "%y = fma(a, b, c)", "3, 4", 12},
    {"param a: f32[5] zeros", "", "%y = neg(abs(a))", "5", 5},
    {"param a: f32[5] zeros", "", "%y = sqrt(add(mul(a, a), 0.5))", "5", 5},
    {"param a: f32[5] zeros", "", "%y = rsqrt(add(mul(a, a), 0.5))", "5", 5},
    {"param a: f32[5] zeros", "", "%y = log(add(exp(a), 1))", "5", 5},
    {"param a: f32[5] zeros", "", "%y = add(tanh(a), erf(a))", "5", 5},
    {"param a: f32[5] zeros", "", "%y = mul(sin(a), cos(a))", "5", 5},
    {"param a: f32[5] zeros", "", "%y = sigmoid(a)", "5", 5},
    {"param a: f32[5] zeros\nparam b: f32[5] zeros", "",
     "%y = select(lt(a, b), mul(a, a), mul(b, 3))", "5", 5},
    {"param a: f32[5] zeros", "", "%y = cast(cast(a) {to = bf16}) {to = f32}", "5", 5},
    /* reductions and shapes */
    {"param a: f32[3, 4] zeros", "", "%y = reduce_sum(mul(a, a))", "3, 1", 3},
    {"param a: f32[3, 4] zeros", "", "%y = reduce_sum(mul(a, a)) {axis = 0}", "1, 4", 4},
    {"param a: f32[3, 4] zeros", "", "%y = reduce_max(a)", "3, 1", 3},
    {"param a: f32[3, 4] zeros", "", "%y = mean(mul(a, a))", "3, 1", 3},
    {"param a: f32[3, 4] zeros", "", "%y = reshape(a) {shape = [2, 6]}", "2, 6", 12},
    {"param a: f32[2, 3, 4] zeros", "", "%y = transpose(a) {perm = [1, 2, 0]}", "3, 4, 2", 24},
    {"param a: f32[3, 4] zeros", "", "%y = slice(a) {axis = 0, start = 1, stop = 2}", "1, 4", 4},
    {"param a: f32[3, 8] zeros", "",
     "%y = mul(slice(mul(a, a)) {start = 0, stop = 4}, slice(mul(a, a)) {start = 4, stop = 8})",
     "3, 4", 12},
    {"param a: f32[3, 8] zeros", "",
     "%y = mul(slice(a) {start = 1, stop = 5}, slice(a) {start = 4, stop = 8})", "3, 4", 12},
    {"param a: f32[3, 4] zeros\nparam b: f32[2, 4] zeros", "",
     "%y = concat(mul(a, a), b, a) {axis = 0}", "8, 4", 32},
    {"param a: f32[3, 1] zeros", "", "%y = broadcast(a) {shape = [2, 3, 4]}", "2, 3, 4", 24},
    {"param a: f32[3, 8] zeros", "", "%y = roll(a) {shift = 1, group = 4}", "3, 8", 24},
    /* products */
    {"param a: f32[2, 3, 4] zeros\nparam b: f32[4, 5] zeros", "", "%y = matmul(a, b)", "2, 3, 5",
     30},
    {"param a: f32[3, 4] zeros\nparam b: f32[5, 4] zeros", "",
     "%y = matmul(a, b) {transpose_b = true}", "3, 5", 15},
    {"param a: f32[4, 3] zeros\nparam b: f32[4, 5] zeros", "",
     "%y = matmul(a, b) {transpose_a = true}", "3, 5", 15},
    {"param a: f32[4, 3] zeros\nparam b: f32[5, 4] zeros\nparam c: f32[3, 5] zeros", "",
     "%y = matmul(a, b, c) {transpose_a = true, transpose_b = true}", "3, 5", 15},
    {"param x: f32[2, 3, 4] zeros\nparam w: f32[4, 5] zeros\nparam b: f32[5] zeros", "",
     "%y = linear(x, w, b)", "2, 3, 5", 30},
    {"param x: f32[3, 4] zeros\nparam w: f32[5, 4] zeros", "",
     "%y = linear(x, w) {transpose_b = true}", "3, 5", 15},
    {"param x: f32[4] zeros\nparam w: f32[4, 5] zeros", "", "%y = linear(x, w)", "5", 5},
    /* composites */
    {"param x: f32[2, 3, 8] zeros\nparam w: f32[8] zeros\nparam b: f32[8] zeros", "",
     "%y = layernorm(x, w, b)", "2, 3, 8", 48},
    {"param x: f32[3, 8] zeros\nparam w: f32[8] zeros", "", "%y = rmsnorm(x, w)", "3, 8", 24},
    {"param x: f32[3, 8] zeros", "", "%y = softmax(mul(x, 3))", "3, 8", 24},
    {"param x: f32[3, 8] zeros", "", "%y = gelu(mul(x, 3)) {approximate = \"tanh\"}", "3, 8", 24},
    {"param x: f32[3, 8] zeros", "", "%y = gelu(mul(x, 3)) {approximate = \"none\"}", "3, 8", 24},
    {"param x: f32[3, 8] zeros", "", "%y = silu(mul(x, 3))", "3, 8", 24},
    {"param x: f32[2, 5, 12] zeros", "", "%y = rope(x) {heads = 3}", "2, 5, 12", 120},
    {"param x: f32[5, 8] zeros", "", "%y = rope(x) {heads = 2, base = 100, inverse = true}", "5, 8",
     40},
    {"param x: f32[3, 8] zeros", "%t: i32[3],", "%y = cross_entropy(mul(x, 3), %t)", "", 1},
    {"param w: f32[4, 5] zeros", "%t: i32[2, 3],", "%y = embedding(w, %t)", "2, 3, 5", 30},
    {"param q: f32[2, 5, 8] zeros\nparam k: f32[2, 5, 8] zeros\nparam v: f32[2, 5, 8] zeros", "",
     "%y = attention(mul(q, 2), k, v) {heads = 2}", "2, 5, 8", 80},
    {"param q: f32[1, 5, 8] zeros\nparam k: f32[1, 5, 4] zeros\nparam v: f32[1, 5, 4] zeros", "",
     "%y = attention(q, k, v) {heads = 4, kv_heads = 2, causal = false, scale = 0.7}", "1, 5, 8",
     40},
    /* a tied weight, read four ways */
    {"param w: f32[4, 5] zeros", "%t: i32[3],",
     "%e = embedding(w, %t)\n  %y = add(linear(gelu(%e), w) {transpose_b = true}, "
     "slice(reduce_sum(w) {axis = 0}) "
     "{start = 0, stop = 4})",
     "3, 4", 12},
};

enum { N_CASES = sizeof cases / sizeof cases[0] };

static void parse_case(test_unit *t, const rule_case *c)
{
    char text[2048];
    snprintf(text, sizeof text,
             "module m\n%s\nfunc forward(%s %%weights: f32[%s]) -> (%%loss: f32[]) {\n  %s\n"
             "  %%f = reshape(mul(%%y, %%weights)) {shape = [%d]}\n  return "
             "reshape(reduce_sum(%%f)) {shape = []}\n}\n",
             c->params, c->inputs, c->shape, c->body, c->n);
    test_unit_parse(t, text, "f32");
}

static double eval_loss(test_unit *t, test_values *in)
{
    test_values out = {.t = t};
    test_run_f64(test_func(t, "eval"), in, &out);
    return *test_f64(&out, "loss");
}

/* Central difference of the loss in element i of a value. With h = 1e-5 its own error is about
 * 1e-10. */
static double difference(test_unit *t, test_values *in, double *x, int64_t i)
{
    const double h = 1e-5, was = x[i];
    x[i] = was + h;
    double above = eval_loss(t, in);
    x[i] = was - h;
    double below = eval_loss(t, in);
    x[i] = was;
    return (above - below) / (2 * h);
}

static void check_close(double got, double want, double tolerance, const char *what, int64_t i)
{
    double bound = tolerance * (1 + fabs(want));
    ck_assert_msg(fabs(got - want) <= bound, "%s[%lld]: %.12g, not %.12g", what, (long long)i, got,
                  want);
}

/* Every parameter's gradient in micro_step against differences of eval. */
static void check_gradients(test_unit *t, const char *what)
{
    test_values in = {.t = t}, out = {.t = t};
    test_run_f64(test_func(t, "micro_step"), &in, &out);
    check_close(*test_f64(&out, "opt.micro_steps"), *test_f64(&in, "opt.micro_steps") + 1, 1e-15,
                what, 0);
    const f8_module *m = t->unit.module;
    for (size_t v = 0; v < m->n_vars; v++) {
        if (m->var[v].kind != F8_VAR_PARAM)
            continue;
        const char *name = f8_arena_printf(&t->arena, "grad.%s", m->var[v].name);
        double *sum = test_f64(&out, name), *before = test_f64(&in, name);
        double *x = test_f64(&in, m->var[v].name);
        for (int64_t i = 0; i < f8_type_elements(&m->var[v].type); i++)
            check_close(sum[i] - before[i], difference(t, &in, x, i), 1e-7, what, i);
    }
}

START_TEST(rule_against_differences)
{
    test_unit t;
    parse_case(&t, &cases[_i]);
    test_pass(&t, f8_pass_precision);
    test_pass(&t, f8_pass_autodiff);
    check_gradients(&t, cases[_i].body);
    test_unit_end(&t);
}
END_TEST

/* What decompose and canonicalize make of it has the same derivatives. */
START_TEST(rule_decomposed)
{
    test_unit t;
    parse_case(&t, &cases[_i]);
    test_pass(&t, f8_pass_precision);
    test_pass(&t, f8_pass_autodiff);
    test_values in = {.t = &t}, whole = {.t = &t}, parts = {.t = &t};
    test_run_f64(test_func(&t, "micro_step"), &in, &whole);
    test_pass(&t, f8_pass_decompose);
    test_pass(&t, f8_pass_canonicalize);
    test_run_f64(test_func(&t, "micro_step"), &in, &parts);
    ck_assert_int_eq(whole.n, parts.n);
    for (int k = 0; k < whole.n; k++)
        for (int64_t i = 0; i < f8_type_elements(&whole.type[k]); i++)
            check_close(((double *)parts.data[k])[i], ((double *)whole.data[k])[i], 1e-12,
                        cases[_i].body, i);
    test_unit_end(&t);
}
END_TEST

/* backward(forward's saved values, dloss = 2) is twice micro_step's gradient. */
START_TEST(rule_as_a_pair)
{
    test_unit t;
    parse_case(&t, &cases[_i]);
    t.unit.options.pair = t.unit.options.train_step = true;
    test_pass(&t, f8_pass_precision);
    test_pass(&t, f8_pass_autodiff);
    test_pass(&t, f8_pass_split);
    test_values in = {.t = &t}, step = {.t = &t}, saved = {.t = &t}, grads = {.t = &t};
    test_run_f64(test_func(&t, "micro_step"), &in, &step);
    test_run_f64(test_func(&t, "forward"), &in, &saved);
    for (int i = 0; i < saved.n; i++)
        memcpy(test_value(&in, saved.name[i], &saved.type[i]), saved.data[i],
               (size_t)f8_type_elements(&saved.type[i]) * sizeof(double));
    const f8_type scalar = {.dtype = F8_F32};
    *(double *)test_value(&in, "dloss", &scalar) = 2;
    test_run_f64(test_func(&t, "backward"), &in, &grads);
    ck_assert_int_gt(grads.n, 0);
    for (int k = 0; k < grads.n; k++) {
        const char *name = f8_arena_printf(&t.arena, "grad.%s", grads.name[k]);
        double *sum = test_f64(&step, name), *before = test_f64(&in, name), *got = grads.data[k];
        for (int64_t i = 0; i < f8_type_elements(&grads.type[k]); i++)
            check_close(got[i], 2 * (sum[i] - before[i]), 1e-9, cases[_i].body, i);
    }
    test_unit_end(&t);
}
END_TEST

/* ---- stop_gradient ---- */

/* Each text, its twin without the op, and the gradient of `a` as a multiple of the weights:
 * differences of the loss know nothing of a stopped gradient. `b` is read through it alone, or not
 * at all. */
static const struct {
    const char *body, *twin;
    int power; /* the gradient is a^power weights, or b weights if it is -1 */
} stopped[] = {
    {"%y = mul(a, stop_gradient(a))", "%y = mul(a, a)", 1},
    {"%y = mul(a, stop_gradient(mul(a, stop_gradient(a))))", "%y = mul(a, mul(a, a))", 2},
    {"%y = add(a, stop_gradient(sub(floor(a), a)))", "%y = add(a, sub(floor(a), a))", 0},
    {"%y = fma(a, a, sub(stop_gradient(b), mul(a, stop_gradient(a))))",
     "%y = fma(a, a, sub(b, mul(a, a)))", 1},
    {"%r = stop_gradient(reshape(a) {shape = [12]})\n  %y = add(reshape(%r) {shape = [3, 4]}, a)",
     "%r = reshape(a) {shape = [12]}\n  %y = add(reshape(%r) {shape = [3, 4]}, a)", 0},
    {"%y = add(tanh(stop_gradient(a)), mul(stop_gradient(b), a))", "%y = add(tanh(a), mul(b, a))",
     -1},
};

static void parse_stopped(test_unit *t, const char *body)
{
    const rule_case c = {"param a: f32[3, 4] zeros\nparam b: f32[3, 4] zeros", "", body, "3, 4",
                         12};
    parse_case(t, &c);
    t->unit.options.pair = t->unit.options.train_step = true;
    test_pass(t, f8_pass_precision);
    test_pass(t, f8_pass_autodiff);
    test_pass(t, f8_pass_split);
}

START_TEST(stopped_gradients)
{
    test_unit t, twin;
    parse_stopped(&t, stopped[_i].body);
    parse_stopped(&twin, stopped[_i].twin);
    ck_assert_str_eq(test_print(&t, "eval"), test_print(&twin, "eval"));
    test_values in = {.t = &t}, step = {.t = &t}, other = {.t = &twin}, grads = {.t = &t};
    test_run_f64(test_func(&t, "micro_step"), &in, &step);
    test_run_f64(test_func(&twin, "micro_step"), &in, &other);
    ck_assert_mem_eq(test_f64(&step, "loss"), test_f64(&other, "loss"), sizeof(double));
    ck_assert_ptr_null(test_result(test_func(&t, "micro_step"), "grad.b"));
    const f8_type scalar = {.dtype = F8_F32};
    *(double *)test_value(&in, "dloss", &scalar) = 2;
    test_run_f64(test_func(&t, "forward"), &in, &grads);
    for (int k = 0; k < grads.n; k++)
        memcpy(test_value(&in, grads.name[k], &grads.type[k]), grads.data[k],
               (size_t)f8_type_elements(&grads.type[k]) * sizeof(double));
    test_run_f64(test_func(&t, "backward"), &in, &grads);
    const double *a = test_f64(&in, "a"), *weights = test_f64(&in, "weights");
    for (int i = 0; i < 12; i++) {
        const int power = stopped[_i].power;
        const double by = power < 0 ? test_f64(&in, "b")[i] : pow(a[i], power);
        const double want = by * weights[i], before = test_f64(&in, "grad.a")[i];
        check_close(test_f64(&step, "grad.a")[i] - before, want, 1e-14, stopped[_i].body, i);
        check_close(test_f64(&grads, "a")[i], 2 * want, 1e-14, stopped[_i].body, i);
        if (strstr(stopped[_i].body, "(b)")) /* else forward does not read it */
            ck_assert_double_eq(test_f64(&grads, "b")[i], 0);
    }
    test_unit_end(&twin);
    test_unit_end(&t);
}
END_TEST

/* ---- entry points ---- */

static const char gpt[] =
    "module gpt\n"
    "dim B = 2, T = 4, C = 8, H = 2, L = 2, V = 16\n"
    "param wte: f32[V, C] normal(0.02)\n"
    "param unused: f32[3] ones\n"
    "repeat l < L {\n"
    "  param h.{l}.ln.weight: f32[C] ones\n"
    "  param h.{l}.ln.bias: f32[C] zeros\n"
    "  param h.{l}.qkv.weight: f32[C, 3*C] normal(0.02)\n"
    "  param h.{l}.qkv.bias: f32[3*C] zeros\n"
    "  param h.{l}.proj.weight: f32[C, C] normal(0.02)\n"
    "}\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  %e = embedding(wte, %tokens)\n"
    "  repeat l < L carry %x = %e {\n"
    "    %n = layernorm(%x, h.{l}.ln.weight, h.{l}.ln.bias)\n"
    "    %qkv = linear(%n, h.{l}.qkv.weight, h.{l}.qkv.bias)\n"
    "    %q = slice(%qkv) {start = 0, stop = C}\n"
    "    %k = slice(%qkv) {start = C, stop = 2*C}\n"
    "    %v = slice(%qkv) {start = 2*C, stop = 3*C}\n"
    "    %a = attention(%q, %k, %v) {heads = H}\n"
    "    %x = add(%x, linear(gelu(%a), h.{l}.proj.weight))\n"
    "  }\n"
    "  %logits = linear(%x, wte) {transpose_b = true, name = \"lm_head\"}\n"
    "  return cross_entropy(%logits, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.01, beta1 = 0.8, beta2 = 0.9, eps = 1e-6, weight_decay = 0.1, clip = "
    "0.5,\n"
    "  schedule = \"cosine\", warmup = 4, steps = 20, min_lr = 0.1}\n";

static void start(test_unit *t, const char *text, const char *recipe)
{
    test_unit_parse(t, text, recipe);
    test_pass(t, f8_pass_precision);
    test_pass(t, f8_pass_autodiff);
}

START_TEST(entry_points)
{
    test_unit t;
    start(&t, gpt, _i ? "bf16" : "f32");
    const f8_func *step = test_func(&t, "micro_step"), *eval = test_func(&t, "eval");
    const f8_func *update = test_func(&t, "update");
    ck_assert_uint_eq(t.unit.module->n_funcs, 3);
    ck_assert_uint_eq(eval->n_out, 1);
    ck_assert_str_eq(eval->out[0].name, "loss");
    ck_assert_int_eq(test_count(eval, F8_OP_MATMUL, "fprop"), 5);
    ck_assert_int_eq(test_count(step, F8_OP_MATMUL, "fprop"), 5);
    ck_assert_int_eq(test_count(step, F8_OP_MATMUL, "dgrad"), 5);
    ck_assert_int_eq(test_count(step, F8_OP_MATMUL, "wgrad"), 5);
    ck_assert_int_eq(test_count(step, F8_OP_MATMUL, NULL), 15);
    ck_assert_int_eq(test_count(step, F8_OP_ATTENTION_GRAD, NULL), 2);
    /* q, k and v come of one projection: their cotangents are one concat, and nothing is padded */
    ck_assert_int_eq(test_count(step, F8_OP_CONCAT, NULL), 2);
    ck_assert_int_eq(test_count(step, F8_OP_BROADCAST, NULL), 0);
    const f8_module *m = t.unit.module;
    for (size_t i = 0; i < m->n_vars; i++) {
        const char *name = m->var[i].name;
        bool grad = !strncmp(name, "grad.", 5);
        const bool kept = grad && strcmp(name, "grad.unused"); /* micro_step needs no zeros there */
        if (m->var[i].kind == F8_VAR_PARAM || grad || !strncmp(name, "opt.", 4))
            ck_assert_msg(!test_result(update, name) == kept, "update %s %s",
                          kept ? "stores" : "leaves", name);
        if (grad && strcmp(name, "grad.unused"))
            ck_assert_msg(test_result(step, name), "micro_step leaves %s", name);
    }
    ck_assert_ptr_null(test_result(step, "grad.unused"));
    test_unit_end(&t);
}
END_TEST

/* Every wgrad's acc operand is its gradient's state, which counts after the first micro-step; a
 * tied embedding comes last. */
START_TEST(gradients_accumulate)
{
    test_unit t;
    start(&t, gpt, "bf16");
    const f8_func *step = test_func(&t, "micro_step");
    const f8_graph *g = step->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (f8_at(g, r)->op == F8_OP_MATMUL && !strcmp(f8_attr_s(g, r, F8_A_ROLE), "wgrad"))
            ck_assert_uint_ne(f8_counted(step, g, f8_gemm_operands_of(f8_at(g, r)).adds), 0);
    f8_ref last = test_result(step, "grad.wte")->ref;
    ck_assert_int_eq(f8_at(g, last)->op, F8_OP_EMBEDDING_GRAD);
    f8_ref head = f8_at(g, last)->in[0];
    ck_assert_int_eq(f8_at(g, head)->op, F8_OP_MATMUL);
    ck_assert_str_eq(f8_attr_s(g, head, F8_A_NAME), "lm_head");
    ck_assert_str_eq(g->name[f8_at(g, head)->in[2]], "grad.wte");
    test_unit_end(&t);
}
END_TEST

/* Under bf16 the gradient of an activation is bf16, a weight's is never rounded. */
START_TEST(gradient_dtypes)
{
    test_unit t;
    start(&t, gpt, "bf16");
    const f8_graph *g = test_func(&t, "micro_step")->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        if (n->op == F8_OP_MATMUL)
            ck_assert(f8_type_of(g, n->in[0])->dtype == F8_BF16 &&
                      f8_type_of(g, n->in[1])->dtype == F8_BF16);
        if (n->op == F8_OP_ATTENTION_GRAD)
            ck_assert_int_eq(n->type.dtype, F8_BF16);
        if (n->op == F8_OP_CAST && n->type.dtype == F8_BF16 && f8_at(g, n->in[0])->op == F8_OP_CAST)
            /* up and down again is folded */
            ck_assert_int_ne(f8_type_of(g, f8_at(g, n->in[0])->in[0])->dtype, n->type.dtype);
    }
    test_unit_end(&t);
}
END_TEST

/* _i: the micro-steps since the last update. Without any, what the gradients hold counts for
 * nothing. */
START_TEST(whole_model_gradients)
{
    test_unit t;
    start(&t, gpt, "f32");
    f8_module *m = t.unit.module;
    test_values in = {.t = &t}, out = {.t = &t};
    const f8_type scalar = {.dtype = F8_F32};
    *(double *)test_value(&in, "opt.micro_steps", &scalar) = _i;
    test_run_f64(test_func(&t, "micro_step"), &in, &out);
    ck_assert_double_eq(*test_f64(&out, "opt.micro_steps"), _i + 1);
    for (size_t v = 0; v < m->n_vars; v++) {
        const char *name = f8_arena_printf(&t.arena, "grad.%s", m->var[v].name);
        if (m->var[v].kind != F8_VAR_PARAM || !strcmp(m->var[v].name, "unused"))
            continue;
        double *sum = test_f64(&out, name), *before = test_f64(&in, name);
        for (int64_t i = 0; i < f8_type_elements(&m->var[v].type); i += 7)
            check_close(sum[i] - (_i ? before[i] : 0),
                        difference(&t, &in, test_f64(&in, m->var[v].name), i), 1e-7, name, i);
    }
    test_unit_end(&t);
}
END_TEST

START_TEST(inference_is_eval_alone)
{
    test_unit t;
    test_unit_parse(
        &t,
        "module m\nparam w: f32[4, 5] zeros\nfunc forward(%x: f32[3, 4]) -> (%y: f32[3, 5]) {\n"
        "  return linear(%x, w)\n}\n",
        "bf16");
    t.unit.options.inference = true;
    test_pass(&t, f8_pass_precision);
    test_pass(&t, f8_pass_autodiff);
    ck_assert_uint_eq(t.unit.module->n_funcs, 1);
    ck_assert_str_eq(test_func(&t, "eval")->out[0].name, "y");
    ck_assert_int_eq(test_func(&t, "eval")->out[0].type.dtype, F8_F32);
    test_unit_end(&t);
}
END_TEST

static const struct {
    const char *text, *message;
    f8_status status;
} refused[] = {
    {"func forward(%x: f32[3, 4]) -> (%y: f32[3, 5]) {\n  return linear(%x, w)\n}\n",
     "must return the loss, f32[], as its first result, not f32[3, 5]", F8_ERR_INPUT},
    {"func forward(%x: f32[1, 3, 4]) -> (%y: f32[]) {\n  %q = linear(%x, w)\n"
     "  %lse = project(attention(%q, %q, %q)) {index = 1}\n"
     "  return reshape(mean(reshape(%lse) {shape = [3]})) {shape = []}\n}\n",
     "can't differentiate through result 1 of attention", F8_ERR_UNSUPPORTED},
    {"func forward(%x: f32[1, 3, 4]) -> (%y: f32[]) {\n  %q = linear(%x, w)\n"
     "  %m = reshape(slice(w) {start = 2, stop = 5}) {shape = [1, 1, 4, 3]}\n"
     "  %o = attention(%q, %q, %q, slice(%m) {axis = 2, stop = 3})\n"
     "  return reshape(mean(reshape(%o) {shape = [15]})) {shape = []}\n}\n",
     "attention's mask depends on what is trained", F8_ERR_UNSUPPORTED},
    {"func forward(%x: f32[3, 4]) -> (%y: f32[]) {\n  %h = linear(%x, stop_gradient(w))\n"
     "  return reshape(mean(%h) {axes = [0, 1]}) {shape = []}\n}\n",
     "no gradient reaches the only one", F8_ERR_INPUT},
};

START_TEST(refusals)
{
    test_unit t;
    char text[1024];
    snprintf(text, sizeof text, "module m\nparam w: f32[4, 5] zeros\n%s", refused[_i].text);
    test_unit_parse(&t, text, "f32");
    test_pass(&t, f8_pass_precision);
    ck_assert_int_eq(test_pass_fails(&t, f8_pass_autodiff), refused[_i].status);
    ck_assert_msg(strstr(t.diag.text, refused[_i].message), "%s", t.diag.text);
    test_unit_end(&t);
}
END_TEST

/* A mask of what is trained is allowed where its gradient is stopped, and where it is zero. */
START_TEST(masks_without_gradient)
{
    static const char *const mask[] = {"stop_gradient(%m)", "floor(%m)",
                                       "select(lt(%m, 0), -1e9, 0)"};
    test_unit t;
    char text[512];
    snprintf(text, sizeof text,
             "module m\nparam w: f32[4, 4] zeros\nfunc forward(%%x: f32[1, 4, 4]) -> (%%y: f32[]) "
             "{\n  %%q = linear(%%x, w)\n  %%m = reshape(%%q) {shape = [1, 1, 4, 4]}\n"
             "  %%o = attention(%%q, %%q, %%q, %s)\n"
             "  return reshape(mean(%%o) {axes = [0, 1, 2]}) {shape = []}\n}\n",
             mask[_i]);
    start(&t, text, "f32");
    ck_assert_int_eq(test_count(test_func(&t, "micro_step"), F8_OP_ATTENTION_GRAD, NULL), 1);
    test_unit_end(&t);
}
END_TEST

/* ---- update ---- */

typedef struct adam {
    double norm, lr;
} adam;

/* AdamW on the values in `in`, compared with what update made of them. */
static adam reference_scalars(test_unit *t, test_values *in)
{
    const f8_module *m = t->unit.module;
    const f8_optimizer *o = &m->optimizer;
    double sum = 0, step = *test_f64(in, "opt.step") + 1, n = *test_f64(in, "opt.micro_steps");
    for (int k = 0; k < in->n; k++)
        for (int64_t i = 0; !strncmp(in->name[k], "grad.", 5) && i < f8_type_elements(&in->type[k]);
             i++)
            sum += pow(((double *)in->data[k])[i] / n, 2);
    double p = fmin(1, fmax(0, (step - (double)o->warmup) / (double)(o->steps - o->warmup)));
    double shape = o->min_lr + (1 - o->min_lr) * 0.5 * (1 + cos(3.14159265358979323846 * p));
    return (adam){sqrt(sum), o->lr * (step < (double)o->warmup ? step / (double)o->warmup : shape)};
}

static void check_param(test_unit *t, test_values *in, test_values *out, const f8_var *var,
                        const adam *a)
{
    const f8_optimizer *o = &t->unit.module->optimizer;
    const char *name = var->name;
    double *p = test_f64(in, name), *new_p = test_f64(out, name);
    double *g = test_f64(in, f8_arena_printf(&t->arena, "grad.%s", name));
    double *m = test_f64(in, f8_arena_printf(&t->arena, "opt.m.%s", name));
    double *v = test_f64(in, f8_arena_printf(&t->arena, "opt.v.%s", name));
    double *new_m = test_f64(out, f8_arena_printf(&t->arena, "opt.m.%s", name));
    const bool kept = strcmp(name, "unused"); /* update leaves it as it is */
    double *zero = kept ? NULL : test_f64(out, f8_arena_printf(&t->arena, "grad.%s", name));
    double step = *test_f64(in, "opt.step") + 1, n = *test_f64(in, "opt.micro_steps");
    double clip = fmin(1, o->clip / (a->norm + 1e-6)),
           decay = var->type.rank >= 2 ? o->weight_decay : 0;
    for (int64_t i = 0; i < f8_type_elements(&var->type); i++) {
        double d = g[i] / n * clip, nm = o->beta1 * m[i] + (1 - o->beta1) * d;
        double nv = o->beta2 * v[i] + (1 - o->beta2) * d * d;
        double hat_m = nm / (1 - pow(o->beta1, step)), hat_v = nv / (1 - pow(o->beta2, step));
        double want = p[i] - a->lr * (hat_m / (sqrt(hat_v) + o->eps) + decay * p[i]);
        /* the graph's constants are f32 */
        check_close(new_m[i], nm, 1e-6, name, i);
        check_close(new_p[i], want, 1e-6, name, i);
        if (zero)
            ck_assert_double_eq(zero[i], 0);
    }
}

/* _i: the step, through warm-up, decay and beyond. */
START_TEST(update_is_adamw)
{
    test_unit t;
    start(&t, gpt, "f32");
    const f8_module *m = t.unit.module;
    const f8_func *update = test_func(&t, "update");
    test_values in = {.t = &t}, out = {.t = &t};
    for (size_t i = 0; i < update->n_in; i++) {
        double *d = test_value(&in, update->in[i].name, &update->in[i].type);
        for (int64_t k = 0; k < f8_type_elements(&update->in[i].type); k++)
            if (!strncmp(update->in[i].name, "opt.v.", 6))
                d[k] = fabs(d[k]);
    }
    *test_f64(&in, "opt.step") = _i * 3;
    *test_f64(&in, "opt.micro_steps") = 4;
    test_run_f64(update, &in, &out);
    adam a = reference_scalars(&t, &in);
    check_close(*test_f64(&out, "grad_norm"), a.norm, 1e-9, "grad_norm", 0);
    check_close(*test_f64(&out, "lr"), a.lr, 1e-7, "lr", 0);
    ck_assert_double_eq(*test_f64(&out, "skipped"), 0);
    ck_assert_double_eq(*test_f64(&out, "opt.step"), _i * 3 + 1);
    ck_assert_double_eq(*test_f64(&out, "opt.micro_steps"), 0);
    for (size_t i = 0; i < m->n_vars; i++)
        if (m->var[i].kind == F8_VAR_PARAM)
            check_param(&t, &in, &out, &m->var[i], &a);
    test_unit_end(&t);
}
END_TEST

/* A gradient that is not finite, or no micro-step at all: everything but the sums stays. */
START_TEST(update_is_skipped)
{
    test_unit t;
    start(&t, gpt, "f32");
    const f8_func *update = test_func(&t, "update");
    test_values in = {.t = &t}, out = {.t = &t};
    for (size_t i = 0; i < update->n_in; i++)
        test_value(&in, update->in[i].name, &update->in[i].type);
    *test_f64(&in, "opt.micro_steps") = _i == 2 ? 0 : 1;
    test_f64(&in, "grad.h.0.qkv.weight")[5] = _i == 0   ? (double)NAN
                                              : _i == 1 ? (double)INFINITY
                                                        : 0;
    test_run_f64(update, &in, &out);
    ck_assert_double_eq(*test_f64(&out, "skipped"), 1);
    if (_i == 2) /* 0 / 0, whatever the gradients hold */
        ck_assert_double_nan(*test_f64(&out, "grad_norm"));
    for (int k = 0; k < out.n; k++) {
        if (!strcmp(out.name[k], "lr") || !strcmp(out.name[k], "grad_norm") ||
            !strcmp(out.name[k], "skipped"))
            continue;
        bool zeroed = !strncmp(out.name[k], "grad.", 5) || !strcmp(out.name[k], "opt.micro_steps");
        double *was = test_f64(&in, out.name[k]), *is = out.data[k];
        for (int64_t i = 0; i < f8_type_elements(&out.type[k]); i++)
            ck_assert_double_eq(is[i], zeroed ? 0 : was[i]);
    }
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("autodiff");
    TCase *t = tcase_create("rules");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, rule_against_differences, 0, N_CASES);
    tcase_add_loop_test(t, rule_decomposed, 0, N_CASES);
    tcase_add_loop_test(t, rule_as_a_pair, 0, N_CASES);
    tcase_add_loop_test(t, stopped_gradients, 0, (int)(sizeof stopped / sizeof stopped[0]));
    suite_add_tcase(s, t);
    t = tcase_create("entry points");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, entry_points, 0, 2);
    tcase_add_test(t, gradients_accumulate);
    tcase_add_test(t, gradient_dtypes);
    tcase_add_loop_test(t, whole_model_gradients, 0, 3);
    tcase_add_test(t, inference_is_eval_alone);
    tcase_add_loop_test(t, refusals, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_loop_test(t, masks_without_gradient, 0, 3);
    tcase_add_loop_test(t, update_is_adamw, 0, 9);
    tcase_add_loop_test(t, update_is_skipped, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
