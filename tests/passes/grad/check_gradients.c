/* Gradients of every differentiable op against central differences, everything in double.
 *
 * Each case declares parameters and an expression y of them; the loss is the sum of y times fixed
 * random weights. What micro_step adds to grad.P (by f8_reference_run_f64) is compared with
 * differences of eval (of micro_step, where eval computes something else), before and after the
 * passes that lower it, under the f32 and the bf16 recipe (casts do not round in double, so they
 * must not show). The table is held against ops.def: an op with a derivative and no case fails.
 *
 * Tolerance. A central difference D(h) errs by c h^2 + O(h^4), so D(h) - D(h/2) = 3/4 c h^2 bounds
 * the error c h^2 / 4 of D(h/2) with a factor 3 to spare. Rounding of the loss adds eps S / h,
 * where S is a bound of what was summed; 64 covers the few roundings of each term. Constants of
 * formulas (sqrt(2/pi), 3 c, ...) are f32 in the graph, each off by up to 2^-24, so an analytic
 * gradient may be off by a few times that of the largest one: 8. The sum of these must itself stay
 * below 1e-5 of the largest gradient, or the case proves nothing (a kink within h, say). */
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gradient_case {
    f8_op op;
    const char *params; /* "name: shape", separated by ";": every one is a parameter, of f32 or, as
                         * "name~: shape", of bf16 */
    const char *inputs; /* of forward */
    const char *body;   /* an expression, or lines that define values and then one */
} gradient_case;

static const gradient_case cases[] = {
    {F8_OP_ADD, "a: 3, 4; b: 4", "", "add(a, b)"},
    {F8_OP_ADD, "a: 2, 1, 4; b: 3, 1", "", "add(mul(a, a), b)"},
    {F8_OP_ADD, "a: 3, 4", "", "add(mul(a, a), mul(a, 3))"}, /* contributions of several users */
    {F8_OP_SUB, "a: 3, 4; b: 3, 1", "", "sub(a, mul(b, b))"},
    {F8_OP_SUB, "a:; b: 2, 3", "", "sub(a, mul(b, b))"},
    {F8_OP_MUL, "a: 2, 3, 4; b: 3, 1", "", "mul(a, b)"},
    {F8_OP_MUL, "a: 3, 4; b: 1, 1", "", "mul(a, b)"},
    {F8_OP_MUL, "a: 2, 3, 2, 4; b: 3, 1, 4", "", "mul(a, b)"}, /* middle axis summed */
    {F8_OP_DIV, "a: 3, 4; b: 3, 4", "", "div(a, add(mul(b, b), 1))"},
    {F8_OP_DIV, "a: 3, 4; b:", "", "div(a, add(b, 3))"},
    {F8_OP_MAX, "a: 3, 4; b: 3, 4", "", "max(a, b)"},
    {F8_OP_MAX, "a: 3, 4; b: 4", "", "max(mul(a, a), mul(b, b))"},
    {F8_OP_MIN, "a: 3, 4; b: 3, 1", "", "min(a, b)"},
    {F8_OP_FMA, "a: 3, 4; b: 4; c: 3, 1", "", "fma(a, b, c)"},
    {F8_OP_NEG, "a: 5", "", "neg(mul(a, a))"},
    {F8_OP_ABS, "a: 5", "", "abs(a)"},
    {F8_OP_SQRT, "a: 5", "", "sqrt(add(a, 2))"},
    {F8_OP_RSQRT, "a: 5", "", "rsqrt(add(a, 2))"},
    {F8_OP_EXP, "a: 5", "", "exp(a)"},
    {F8_OP_LOG, "a: 5", "", "log(add(a, 2))"},
    {F8_OP_TANH, "a: 7", "", "tanh(mul(a, 2))"},
    {F8_OP_TANH_BF16, "a: 7", "", "tanh_bf16(mul(a, 2))"},
    {F8_OP_ERF, "a: 7", "", "erf(mul(a, 2))"},
    {F8_OP_SIN, "a: 7", "", "sin(mul(a, 3))"},
    {F8_OP_COS, "a: 7", "", "cos(mul(a, 3))"},
    {F8_OP_SIGMOID, "a: 7", "", "sigmoid(mul(a, 3))"},
    {F8_OP_SIGMOID_BF16, "a: 7", "", "sigmoid_bf16(mul(a, 3))"},
    {F8_OP_RELU, "a: 9", "", "relu(mul(a, 2))"},
    {F8_OP_SELECT, "a: 3, 4; b: 3, 4", "", "select(lt(a, b), mul(a, a), mul(b, 3))"},
    {F8_OP_SELECT, "a: 3, 4; b: 4", "", "select(lt(a, 0), b, mul(a, a))"},
    {F8_OP_SELECT, "a: 3, 4", "%c: bool[3, 1]", "select(%c, mul(a, a), 0)"},
    {F8_OP_CAST, "a: 5", "", "mul(cast(cast(a) {to = bf16}) {to = f32}, a)"},
    {F8_OP_CAST, "a: 5", "", "mul(cast(cast(mul(a, a)) {to = f16}) {to = f32}, a)"},
    {F8_OP_REDUCE_SUM, "a: 3, 4", "", "mul(reduce_sum(mul(a, a)), a)"},
    {F8_OP_REDUCE_SUM, "a: 3, 4", "", "mul(reduce_sum(mul(a, a)) {axis = 0}, a)"},
    {F8_OP_REDUCE_SUM, "a: 70, 2", "", "reduce_sum(mul(a, a)) {axis = 0}"},
    {F8_OP_REDUCE_SUM, "a: 2, 3, 4", "", "reduce_sum(mul(a, a)) {axis = 0}"},
    {F8_OP_REDUCE_SUM, "a: 2, 3, 4", "", "mul(reduce_sum(mul(a, a)) {axis = 1}, a)"},
    {F8_OP_REDUCE_SUM, "a: 2, 3, 4, 2", "", "mul(reduce_sum(mul(a, a)) {axes = [2, 0]}, a)"},
    {F8_OP_REDUCE_SUM, "a: 2, 3, 4", "", "mul(reduce_sum(mul(a, a)) {axes = [0, 1]}, a)"},
    {F8_OP_REDUCE_SUM, "a: 2, 3, 4", "", "mul(reduce_sum(mul(a, a)) {axes = [0, 1, 2]}, a)"},
    {F8_OP_REDUCE_SUM, "a: 7, 2, 3", "", "tanh(reduce_sum(mul(a, a)) {axis = 0, block = 3})"},
    {F8_OP_REDUCE_SUM, "a: 6, 2", "", "tanh(reduce_sum(mul(a, a)) {axis = 0, block = 70})"},
    {F8_OP_REDUCE_MAX, "a: 2, 3, 4", "", "sub(a, reduce_max(a) {axes = [0, -1]})"},
    {F8_OP_MEAN, "a: 2, 3, 4", "", "mul(mean(mul(a, a)) {axes = [0, 2]}, a)"},
    {F8_OP_MEAN, "a: 2, 3, 4", "", "mul(mean(mul(a, a)) {axis = 1}, a)"},
    {F8_OP_REDUCE_MAX, "a: 3, 4", "", "sub(a, reduce_max(a))"},
    {F8_OP_REDUCE_MAX, "a: 3, 4", "", "mul(reduce_max(a) {axis = 0}, a)"},
    {F8_OP_RESHAPE, "a: 3, 4", "", "reshape(mul(a, a)) {shape = [2, 6]}"},
    {F8_OP_BOUNDARY, "a: 3, 4", "", "mul(boundary(mul(a, a)), a)"},
    {F8_OP_TRANSPOSE, "a: 2, 3, 4", "", "transpose(mul(a, a)) {perm = [1, 2, 0]}"},
    {F8_OP_TRANSPOSE, "a: 3, 4; b: 4, 3", "", "mul(transpose(a) {perm = [1, 0]}, b)"},
    {F8_OP_SLICE, "a: 3, 4", "", "slice(mul(a, a)) {axis = 0, start = 1, stop = 2}"},
    {F8_OP_SLICE, "a: 3, 9", "",
     "%s = mul(a, a)\n  %y = fma(slice(%s) {start = 0, stop = 3}, "
     "slice(%s) {start = 3, stop = 6}, slice(%s) {start = 6, stop = 9})"}, /* tile */
    {F8_OP_SLICE, "a: 3, 8", "",
     "mul(slice(a) {start = 1, stop = 5}, slice(a) {start = 4, stop = 8})"},
    {F8_OP_SLICE, "a: 2, 6, 3", "",
     "mul(slice(a) {axis = 1, start = 2, stop = 5}, slice(a) {axis = 1, "
     "start = 0, stop = 3})"},
    {F8_OP_CONCAT, "a: 3, 4; b: 2, 4", "", "concat(mul(a, a), b, a) {axis = 0}"},
    {F8_OP_CONCAT, "a: 2, 3; b: 2, 1; c: 2, 4", "", "concat(mul(a, a), b, mul(c, c))"},
    {F8_OP_BROADCAST, "a: 3, 1", "", "mul(broadcast(a) {shape = [2, 3, 4]}, a)"},
    /* six to eight axes; windows of an image, as Swin has them */
    {F8_OP_ADD, "a: 2, 1, 3, 1, 2, 1, 2, 3; b: 2, 1, 2, 1, 3, 1, 3", "", "add(mul(a, a), b)"},
    {F8_OP_REDUCE_SUM, "a: 2, 2, 1, 2, 3, 1, 2, 2", "",
     "mul(reduce_sum(mul(a, a)) {axes = [1, 3, 6]}, a)"},
    {F8_OP_MEAN, "a: 2, 2, 2, 1, 2, 2, 2, 2", "", "mul(mean(mul(a, a)) {axes = [0, 4, 7]}, a)"},
    {F8_OP_REDUCE_MAX, "a: 2, 2, 2, 2, 2, 3", "", "sub(a, reduce_max(a) {axes = [0, 2, -1]})"},
    {F8_OP_RESHAPE, "a: 2, 4, 6, 3; b: 3, 2", "",
     "%w = transpose(reshape(a) {shape = [2, 2, 2, 3, 2, 3]}) {perm = [0, 1, 3, 2, 4, 5]}\n"
     "  %m = mul(reshape(linear(reshape(%w) {shape = [12, 4, 3]}, b)) "
     "{shape = [2, 2, 3, 2, 2, 2]}, 2)\n"
     "  %z = transpose(%m) {perm = [0, 1, 3, 2, 4, 5]}\n  %y = reshape(%z) {shape = [2, 4, 6, 2]}"},
    {F8_OP_TRANSPOSE, "a: 2, 1, 3, 2, 1, 2, 2, 3; b: 3, 2, 2, 1, 2, 3, 1, 2", "",
     "mul(transpose(mul(a, a)) {perm = [7, 6, 5, 4, 3, 2, 1, 0]}, b)"},
    {F8_OP_SLICE, "a: 2, 2, 1, 2, 3, 2, 2", "", "slice(mul(a, a)) {axis = 4, start = 1, stop = 3}"},
    {F8_OP_CONCAT, "a: 2, 1, 2, 2, 2, 1, 2, 2; b: 2, 1, 2, 3, 2, 1, 2, 2", "",
     "mul(concat(mul(a, a), b) {axis = 3}, 2)"},
    {F8_OP_BROADCAST, "a: 2, 1, 2, 1, 2, 1, 2", "",
     "mul(broadcast(a) {shape = [2, 2, 3, 2, 1, 2, 3, 2]}, a)"},
    {F8_OP_SOFTMAX, "a: 2, 1, 2, 2, 1, 2, 5", "", "softmax(mul(a, 2))"},
    {F8_OP_MATMUL, "a: 2, 1, 2, 1, 2, 1, 3, 4; b: 4, 5", "", "matmul(mul(a, a), b)"},
    {F8_OP_BATCH_MATMUL, "a: 2, 1, 2, 1, 2, 1, 3, 4; b: 2, 1, 2, 2, 1, 4, 2", "",
     "batch_matmul(mul(a, a), b)"},
    {F8_OP_EMBEDDING, "w: 5, 3", "%t: i32[2, 1, 2, 1, 1, 2, 1]",
     "mul(embedding(w, %t), embedding(w, %t))"},
    {F8_OP_ROLL, "a: 3, 8", "", "mul(roll(a) {shift = 1, group = 4}, a)"},
    {F8_OP_ROLL, "a: 3, 5", "", "mul(roll(a) {shift = 3}, a)"},
    {F8_OP_MATMUL, "a: 2, 3, 4; b: 4, 5", "", "matmul(a, b)"},
    {F8_OP_MATMUL, "a: 3, 4; b: 5, 4", "", "matmul(a, b) {transpose_b = true}"},
    {F8_OP_MATMUL, "a: 4, 3; b: 4, 5", "", "matmul(mul(a, a), b) {transpose_a = true}"},
    {F8_OP_MATMUL, "a: 4, 3; b: 5, 4; c: 3, 5", "",
     "matmul(a, mul(b, b), mul(c, c)) {transpose_a = true, "
     "transpose_b = true}"},
    {F8_OP_MATMUL, "a: 4; b: 4, 5", "", "matmul(a, b)"},
    {F8_OP_MATMUL, "a: 3, 4; b: 4, 5", "",
     "mul(cast(matmul(mul(a, a), b) {to = bf16}) {to = f32}, 0.7)"},
    {F8_OP_BATCH_MATMUL, "a: 2, 3, 4; b: 2, 4, 5", "", "batch_matmul(mul(a, a), b)"},
    {F8_OP_BATCH_MATMUL, "a: 2, 2, 3, 4; b: 2, 2, 5, 4", "",
     "batch_matmul(a, mul(b, b)) {transpose_b = true}"},
    {F8_OP_BATCH_MATMUL, "a: 2, 4, 3; b: 2, 4, 5", "", "batch_matmul(a, b) {transpose_a = true}"},
    {F8_OP_BATCH_MATMUL, "a: 2, 4, 3; b: 2, 5, 4", "",
     "batch_matmul(a, b) {transpose_a = true, transpose_b = true}"},
    /* broadcasts: one matrix for all, along a middle axis, along both axes of both, and few rows */
    {F8_OP_BATCH_MATMUL, "a: 3, 2, 3, 4; b: 4, 5", "", "batch_matmul(a, mul(b, b))"},
    {F8_OP_BATCH_MATMUL, "a: 1, 3, 4; b: 3, 5, 4", "", "batch_matmul(a, b) {transpose_b = true}"},
    {F8_OP_BATCH_MATMUL, "a: 2, 3, 1, 4; b: 3, 4, 2", "", "batch_matmul(mul(a, 2), b)"},
    {F8_OP_BATCH_MATMUL, "a: 3, 1, 4, 2; b: 1, 2, 4, 3", "",
     "batch_matmul(a, b) {transpose_a = true}"},
    {F8_OP_ATTENTION, "q: 2, 5, 8; k: 2, 5, 8; v: 2, 5, 8", "",
     "attention(mul(q, 2), k, v) {heads = 2}"},
    {F8_OP_ATTENTION, "q: 1, 5, 8; k: 1, 5, 4; v: 1, 5, 4", "",
     "attention(q, k, v) {heads = 4, kv_heads = 2, causal = false, scale = 0.7}"},
    {F8_OP_ATTENTION, "q: 1, 4, 6; k: 1, 4, 2; v: 1, 4, 2", "",
     "attention(q, k, v) {heads = 3, kv_heads = 1}"},
    {F8_OP_ATTENTION, "x: 1, 4, 6", "", "attention(x, mul(x, x), x) {heads = 1, causal = false}"},
    /* other keys than queries: fewer, and more, of which causal hides the last */
    {F8_OP_ATTENTION, "q: 2, 5, 8; k: 2, 3, 4; v: 2, 3, 4", "",
     "attention(mul(q, 2), k, v) {heads = 4, kv_heads = 2}"},
    {F8_OP_ATTENTION, "q: 1, 3, 4; k: 1, 5, 4; v: 1, 5, 4", "", "attention(q, k, v) {heads = 2}"},
    {F8_OP_ATTENTION, "q: 1, 3, 4; k: 1, 5, 4; v: 1, 5, 4", "",
     "attention(q, k, v) {heads = 2, causal = false}"},
    /* masks: some rows have nothing to see */
    {F8_OP_ATTENTION, "q: 2, 3, 8; k: 2, 5, 4; v: 2, 5, 4", "%m: bool[2, 1, 1, 5]",
     "attention(q, k, v, %m) {heads = 4, kv_heads = 2, causal = false}"},
    {F8_OP_ATTENTION, "q: 2, 4, 4; k: 2, 4, 4; v: 2, 4, 4", "%m: bool[2, 2, 4, 1]",
     "attention(q, k, v, %m) {heads = 2}"},
    {F8_OP_ATTENTION, "q: 2, 3, 4; k: 2, 4, 4; v: 2, 4, 4", "%m: f32[1, 2, 3, 4]",
     "attention(q, k, v, %m) {heads = 2, causal = false, scale = 0.7}"},
    {F8_OP_ATTENTION, "q: 2, 3, 8; k: 2, 5, 4; v: 2, 5, 4", "%s: i32[]",
     "attention(q, k, v, %s) {heads = 4, kv_heads = 2, causal = false, dropout = 0.4}"},
    {F8_OP_ATTENTION, "q: 2, 4, 4; k: 2, 4, 4; v: 2, 4, 4", "%m: bool[2, 1, 1, 4], %s: i32[]",
     "attention(q, k, v, %m, %s) {heads = 2, dropout = 0.2, stream = 5}"},
    {F8_OP_ATTENTION, "q: 2, 3, 4; k: 2, 3, 4", "%s: i32[]",
     "attention(dropout(q, %s) {p = 0.3}, k, k, %s) {dropout = 0}"},
    {F8_OP_EMBEDDING, "w: 5, 3", "%t: i32[2, 4]",
     "mul(embedding(w, %t), embedding(w, %t))"}, /* 8 ids of 3 */
    {F8_OP_LINEAR, "x: 2, 3, 4; w: 4, 5; b: 5", "", "linear(x, w, b)"},
    {F8_OP_EMBEDDING, "w~: 5, 3", "%t: i64[2, 4]",
     "mul(embedding(w, slice(%t) {start = 1, stop = 4}), embedding(w, slice(%t) {stop = 3}))"},
    {F8_OP_LINEAR, "x: 2, 3, 4; w~: 4, 5; b~: 5", "", "linear(x, w, b)"},
    {F8_OP_LINEAR, "x: 3, 4; w~: 4, 4; b: 4", "", "linear(tanh(linear(x, w)), w, b)"},
    {F8_OP_LINEAR, "x: 3, 4; w: 4, 5", "", "linear(mul(x, x), w)"},
    {F8_OP_LINEAR, "x: 3, 4; w: 5, 4; b: 5", "", "linear(x, w, b) {transpose_b = true}"},
    {F8_OP_LINEAR, "x: 3, 4; w: 4, 4", "", "linear(tanh(linear(x, w)), w)"},
    {F8_OP_LAYERNORM, "x: 2, 3, 8; w: 8; b: 8", "", "layernorm(x, w, b)"},
    {F8_OP_LAYERNORM, "x: 3, 5; w: 5; b: 5", "", "layernorm(mul(x, x), w, b) {eps = 0.1}"},
    {F8_OP_LAYERNORM, "x: 2, 3, 8; w~: 8; b~: 8", "", "layernorm(x, w, b)"},
    {F8_OP_RMSNORM, "x: 3, 8; w: 8", "", "rmsnorm(x, w)"},
    {F8_OP_RMSNORM, "x: 3, 8; w~: 8", "", "rmsnorm(x, w)"},
    {F8_OP_RMSNORM, "x: 3, 5; w: 5", "", "rmsnorm(mul(x, x), w) {eps = 0.1}"},
    {F8_OP_SOFTMAX, "x: 3, 8", "", "softmax(mul(x, 3))"},
    {F8_OP_SOFTMAX, "x: 5", "", "softmax(x)"},
    {F8_OP_GELU, "x: 3, 8", "", "gelu(mul(x, 3)) {approximate = \"tanh\"}"},
    {F8_OP_GELU, "x: 3, 8", "", "gelu(mul(x, 3)) {approximate = \"none\"}"},
    {F8_OP_GELU, "x: 3, 8", "", "gelu(mul(x, 3)) {rounded = bf16}"},
    {F8_OP_GELU, "x: 3, 8", "", "gelu(mul(x, 3)) {approximate = \"none\", rounded = bf16}"},
    {F8_OP_SILU, "x: 3, 8", "", "silu(mul(x, 3))"},
    {F8_OP_SILU, "x: 3, 8", "", "silu(mul(x, 3)) {rounded = bf16}"},
    {F8_OP_ROPE, "x: 2, 5, 12", "", "mul(rope(x) {heads = 3}, x)"},
    {F8_OP_ROPE, "x: 5, 8", "", "mul(rope(x) {heads = 2, base = 100, inverse = true}, x)"},
    {F8_OP_ROPE, "x: 5, 8", "",
     "mul(rope(x) {factor = 4, low_freq_factor = 0.1, high_freq_factor = 2, original_max_position "
     "= 3}, x)"},
    {F8_OP_CROSS_ENTROPY, "x: 3, 8", "%t: i32[3]", "cross_entropy(mul(x, 3), %t)"},
    {F8_OP_CROSS_ENTROPY, "x: 2, 3, 5; w: 5, 7", "%t: i32[2, 3]",
     "cross_entropy(linear(x, w), %t)"},
    {F8_OP_CROSS_ENTROPY, "x: 4, 8", "%t: i64[4]", "cross_entropy(mul(x, 3), %t) {ignore = 2}"},
    {F8_OP_CROSS_ENTROPY, "x: 4, 8", "%t: i32[4]", "cross_entropy(mul(x, 3), %t) {ignore = 2}"},
    {F8_OP_CROSS_ENTROPY, "x: 2, 3, 8", "%t: i32[2, 3]",
     "cross_entropy(mul(x, 3), %t) {ignore = 1, label_smoothing = 0.1, reduction = \"sum\"}"},
    {F8_OP_CROSS_ENTROPY, "x: 2, 3, 5; w: 5, 7", "%t: i32[2, 3]",
     "cross_entropy(linear(x, w), %t) {label_smoothing = 0.2, ignore = 0, reduction = \"none\"}"},
    {F8_OP_DROPOUT, "x: 2, 3, 8", "%s: i32[]", "mul(dropout(mul(x, x), %s) {p = 0.4}, x)"},
    {F8_OP_DROPOUT, "x: 3, 8", "%s: i32[]", "dropout(tanh(dropout(x, %s)), %s) {stream = 7}"},
    {F8_OP_DROPOUT, "x:; a: 9", "%s: i32[]", "add(dropout(x, %s) {p = 0}, dropout(a, %s))"},
    {F8_OP_MEAN, "a: 3, 4", "", "mul(mean(mul(a, a)), a)"},
    {F8_OP_MEAN, "a: 3, 4", "", "mean(mul(a, a)) {axis = 0}"},
};

enum { N_CASES = sizeof cases / sizeof cases[0] };

/* ---- a case as a module ---- */

static void parse_case(test_unit *t, const gradient_case *c, const char *recipe)
{
    char params[512] = "", copy[256], text[2048];
    strcpy(copy, c->params);
    for (char *p = strtok(copy, ";"); p; p = strtok(NULL, ";")) {
        char *colon = strchr(p, ':');
        *colon = 0;
        const bool narrow = colon[-1] == '~';
        colon[-narrow] = 0;
        sprintf(params + strlen(params), "param %s: %s[%s] zeros\n", p, narrow ? "bf16" : "f32",
                colon + 1);
    }
    const bool lines = strchr(c->body, '\n') != NULL;
    snprintf(text, sizeof text,
             "module m\n%sfunc forward(%s) -> (%%loss: f32[]) {\n  %s%s\n  return 0\n}\n", params,
             c->inputs, lines ? "" : "%y = ", c->body);
    test_unit_parse(t, text, recipe);
}

static f8_ref find_y(const f8_graph *g)
{
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (g->name[r] && !strcmp(g->name[r], "y"))
            return r;
    ck_abort_msg("no %%y");
}

/* loss = sum(y * weights), weights another input */
static void add_loss(test_unit *t, const gradient_case *c)
{
    f8_func *f = f8_module_find_func(t->unit.module, "forward");
    const f8_ref y = find_y(f->graph);
    bool has = false;
    for (f8_ref r = 1; r <= y; r++)
        has |= f8_at(f->graph, r)->op == c->op;
    ck_assert_msg(has, "%s does not contain %s", c->body, f8_op_facts(c->op)->name);
    const f8_type type = *f8_type_of(f->graph, y);
    const f8_ref w = f8_func_input(f, "weights", &type, -1);
    const f8_ref loss = f8_sum_all(f->graph, f8_binary(f->graph, F8_OP_MUL, y, w));
    f->n_out = 0;
    ck_assert_int_eq(f8_func_result(f, "loss", loss, -1), F8_OK);
    ck_assert_msg(f8_verify(t->unit.module, &t->diag) == F8_OK, "%s", t->diag.text);
}

/* ---- differences ---- */

/* eval has no dropout. */
static const char *entry_of(const gradient_case *c)
{
    return strstr(c->body, "dropout") ? "micro_step" : "eval";
}

static double loss_of(test_unit *t, const char *entry, test_values *in)
{
    test_values out = {.t = t};
    test_run_f64(test_func(t, entry), in, &out);
    return *test_f64(&out, "loss");
}

static double central(test_unit *t, const char *entry, test_values *in, double *x, double h)
{
    const double was = *x;
    volatile double above = was + h, below = was - h; /* the steps really taken */
    *x = above;
    const double f1 = loss_of(t, entry, in);
    *x = below;
    const double f0 = loss_of(t, entry, in);
    *x = was;
    return (f1 - f0) / (above - below);
}

typedef struct estimate {
    double value, error;
} estimate;

static estimate differentiate(test_unit *t, const char *entry, test_values *in, double *x,
                              double size)
{
    const double h = 2e-4, d1 = central(t, entry, in, x, h), d2 = central(t, entry, in, x, h / 2);
    return (estimate){d2, fabs(d1 - d2) + 64 * DBL_EPSILON * size / h};
}

/* ---- comparing ---- */

typedef struct wanted {
    const char *name; /* of a parameter */
    estimate *d;
    int64_t n;
} wanted;

/* The differences do not depend on how the gradient is computed: once a case and recipe. */
static int measure(test_unit *t, const char *entry, test_values *in, wanted *w)
{
    const f8_module *m = t->unit.module;
    int n = 0;
    const double size =
        1 + 16 * fabs(loss_of(t, entry, in)); /* some hundred terms of size 1 at most */
    for (size_t v = 0; v < m->n_vars; v++) {
        if (m->var[v].kind != F8_VAR_PARAM)
            continue;
        w[n] = (wanted){m->var[v].name, NULL, f8_type_elements(&m->var[v].type)};
        w[n].d = f8_arena_array(&t->arena, (size_t)w[n].n, sizeof *w[n].d);
        double *x = test_f64(in, w[n].name);
        for (int64_t i = 0; i < w[n].n; i++)
            w[n].d[i] = differentiate(t, entry, in, &x[i], size);
        n++;
    }
    return n;
}

static void compare(test_unit *t, const gradient_case *c, test_values *in, const wanted *w,
                    int n_wanted, const char *stage)
{
    test_values out = {.t = t};
    test_run_f64(test_func(t, "micro_step"), in, &out);
    for (int k = 0; k < n_wanted; k++) {
        const char *name = f8_arena_printf(&t->arena, "grad.%s", w[k].name);
        const double *after = test_f64(&out, name), *before = test_f64(in, name);
        double largest = 0;
        for (int64_t i = 0; i < w[k].n; i++)
            largest = fmax(largest, fabs(w[k].d[i].value));
        ck_assert_msg(largest > 1e-3, "%s: the gradient of %s vanishes", c->body, w[k].name);
        for (int64_t i = 0; i < w[k].n; i++) {
            const double got = after[i] - before[i], off = fabs(got - w[k].d[i].value);
            const double bound = w[k].d[i].error + 8 * 0x1p-24 * largest;
            ck_assert_msg(bound < 1e-5 * (1 + largest), "%s: d/d%s[%lld] can't be told: %g",
                          c->body, w[k].name, (long long)i, bound);
            ck_assert_msg(off <= bound,
                          "%s, %s: d/d%s[%lld] is %.12g, differences give %.12g, allowed %g",
                          c->body, stage, w[k].name, (long long)i, got, w[k].d[i].value, bound);
        }
    }
}

static void fill_truths(test_values *in, const f8_func *f)
{
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].type.dtype == F8_BOOL) {
            uint8_t *b = test_value(in, f->in[i].name, &f->in[i].type);
            for (int64_t k = 0; k < f8_type_elements(&f->in[i].type); k++)
                b[k] = k % 2 == 0;
        }
}

static void check_case(const gradient_case *c, const char *recipe)
{
    test_unit t;
    parse_case(&t, c, recipe);
    add_loss(&t, c);
    test_pass(&t, f8_pass_ids);
    test_pass(&t, f8_pass_precision);
    test_pass(&t, f8_pass_autodiff);
    test_values in = {.t = &t};
    wanted w[8];
    fill_truths(&in, test_func(&t, "eval"));
    test_run_f64(test_func(&t, "eval"), &in, &(test_values){.t = &t}); /* makes the inputs up */
    test_run_f64(test_func(&t, "micro_step"), &in, &(test_values){.t = &t});
    const int n = measure(&t, entry_of(c), &in, w);
    compare(&t, c, &in, w, n, "autodiff");
    test_pass(&t, f8_pass_chunk);
    test_pass(&t, f8_pass_decompose);
    test_pass(&t, f8_pass_canonicalize);
    compare(&t, c, &in, w, n, "decomposed");
    test_pass(&t, f8_pass_legalize);
    compare(&t, c, &in, w, n, "legalized");
    test_unit_end(&t);
}

START_TEST(under_f32)
{
    check_case(&cases[_i], "f32");
}
END_TEST

START_TEST(under_bf16)
{
    check_case(&cases[_i], "bf16");
}
END_TEST

/* ---- padding ---- */

/* A row that `padding` names gets no gradient, so differences can't tell: the others' must be those
 * that they get without it. */
START_TEST(padding_gets_nothing)
{
    enum { ROWS = 3, COLUMNS = 3, PADDING = 1 };
    static const gradient_case two[] = {
        {F8_OP_EMBEDDING, "w: 3, 3", "%t: i32[2, 4]", "mul(embedding(w, %t) {padding = 1}, 3)"},
        {F8_OP_EMBEDDING, "w: 3, 3", "%t: i32[2, 4]", "mul(embedding(w, %t), 3)"}};
    double grad[2][ROWS * COLUMNS];
    for (int i = 0; i < 2; i++) {
        test_unit t;
        parse_case(&t, &two[i], "f32");
        add_loss(&t, &two[i]);
        test_pass(&t, f8_pass_precision);
        test_pass(&t, f8_pass_autodiff);
        test_pass(&t, f8_pass_decompose);
        test_values in = {.t = &t}, out = {.t = &t};
        test_run_f64(test_func(&t, "micro_step"), &in, &out);
        for (int k = 0; k < ROWS * COLUMNS; k++)
            grad[i][k] = test_f64(&out, "grad.w")[k] - test_f64(&in, "grad.w")[k];
        test_unit_end(&t);
    }
    for (int k = 0; k < ROWS * COLUMNS; k++) {
        const bool is_padding = k / COLUMNS == PADDING;
        ck_assert_msg(grad[1][k] != 0, "row %d is not read", k / COLUMNS);
        ck_assert_double_eq(grad[0][k], is_padding ? 0 : grad[1][k]);
    }
}
END_TEST

/* ---- coverage ---- */

START_TEST(every_rule_has_a_case)
{
    static const struct {
        f8_op op;
        const char *name, *rule;
    } ops[] = {
#define OP(ID, name, lo, hi, results, CLS, infer, rule, ...) {F8_OP_##ID, name, #rule},
#include "ir/ops.def"
#undef OP
    };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (!strcmp(ops[i].rule, "none") || !strcmp(ops[i].rule, "error"))
            continue;
        if (ops[i].op == F8_OP_PROJECT) /* its rule refuses: check_autodiff.c has the message */
            continue;
        bool found = false;
        for (int k = 0; k < N_CASES; k++)
            found |= cases[k].op == ops[i].op;
        ck_assert_msg(found, "%s has a derivative but no case here", ops[i].name);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("gradients");
    TCase *t = tcase_create("gradients");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_rule_has_a_case);
    tcase_add_test(t, padding_gets_nothing);
    tcase_add_loop_test(t, under_f32, 0, N_CASES);
    tcase_add_loop_test(t, under_bf16, 0, N_CASES);
    suite_add_tcase(s, t);
    return s;
}
