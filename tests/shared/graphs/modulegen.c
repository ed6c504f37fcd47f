/* Random modules: see modulegen.h. The state is a list of f32 values [rows, columns]; a step takes
 * some of them, late ones more often, and adds what it makes. */
#include "tests/shared/graphs/modulegen.h"

#include <stdbool.h>
#include <string.h>

#include "tests/shared/random.h"

enum { MOST = 64 };

typedef struct value {
    char name[16];
    int rows, cols;
} value;

typedef struct generator {
    uint32_t random;
    text declared, body;
    value v[MOST];
    int n, n_params, n_linears;
} generator;

static const int sizes[] = {1, 2, 3, 8, 16, 17, 32, 48, 64, 65, 100, 128, 130};

static int below(generator *g, int n)
{
    return (int)(test_random(&g->random) % (uint32_t)n);
}

static int any_size(generator *g)
{
    return sizes[below(g, sizeof sizes / sizeof *sizes)];
}

/* A copy: the list may grow below it. */
static value any(generator *g)
{
    const int a = below(g, g->n), b = below(g, g->n);
    return g->v[a > b ? a : b];
}

static value add(generator *g, int rows, int cols)
{
    ck_assert_int_lt(g->n, MOST);
    value *v = &g->v[g->n++];
    snprintf(v->name, sizeof v->name, "%%v%d", g->n);
    v->rows = rows;
    v->cols = cols;
    return *v;
}

/* ---- operands of linears ---- */

static value param(generator *g, int rows, int cols)
{
    value v = {.rows = rows, .cols = cols};
    const bool bf16 = below(g, 5) == 0;
    snprintf(v.name, sizeof v.name, "p%d", g->n_params++);
    say(&g->declared, "param %s: %s[%d, %d] normal(0.1)\n", v.name, bf16 ? "bf16" : "f32", rows,
        cols);
    if (!bf16)
        return v;
    const value wide = add(g, rows, cols);
    say(&g->body, "  %s = cast(%s) {to = f32}\n", wide.name, v.name);
    return wide;
}

/* What a weight, or a linear's x, may be: a parameter, or a value made of one. */
static value made_of_param(generator *g, int rows, int cols)
{
    const int which = below(g, 7);
    const value p = which == 1   ? param(g, rows + 3, cols)
                    : which == 2 ? param(g, cols, rows)
                                 : param(g, rows, cols);
    if (which > 5)
        return p;
    const value v = add(g, rows, cols);
    switch (which) {
    case 0: say(&g->body, "  %s = dropout(%s, %%seed) {p = 0.2}\n", v.name, p.name); break;
    case 1:
        say(&g->body, "  %s = slice(%s) {axis = 0, start = 2, stop = %d}\n", v.name, p.name,
            rows + 2);
        break;
    case 2: say(&g->body, "  %s = transpose(%s) {perm = [1, 0]}\n", v.name, p.name); break;
    case 3: say(&g->body, "  %s = mul(%s, tanh(%s))\n", v.name, p.name, p.name); break;
    case 4:
        say(&g->body, "  %s = dropout(dropout(%s, %%seed), %%seed) {p = 0.5}\n", v.name, p.name);
        break;
    default: say(&g->body, "  %s = cast(cast(%s) {to = bf16}) {to = f32}\n", v.name, p.name); break;
    }
    return v;
}

static void add_linear(generator *g)
{
    const value x = below(g, 6) ? any(g) : made_of_param(g, any_size(g), any_size(g));
    const int to = any_size(g);
    const bool transpose = below(g, 2), again = below(g, 4) == 0, bias = below(g, 3) == 0;
    const value w = transpose ? made_of_param(g, to, x.cols) : made_of_param(g, x.cols, to);
    if (bias)
        say(&g->declared, "param b%d: f32[%d] zeros\n", g->n_linears, to);
    const value y = add(g, x.rows, to);
    say(&g->body, "  %s = linear(%s, %s", y.name, x.name, w.name);
    if (bias)
        say(&g->body, ", b%d", g->n_linears);
    say(&g->body, ") {transpose_b = %s, name = \"l%d\"}\n", transpose ? "true" : "false",
        g->n_linears++);
    if (!again)
        return;
    /* the weight once more, the other way round: both linears read one value */
    const value back = add(g, y.rows, x.cols);
    say(&g->body, "  %s = linear(%s, %s) {transpose_b = %s, name = \"l%d\"}\n", back.name, y.name,
        w.name, transpose ? "false" : "true", g->n_linears++);
}

/* ---- other values ---- */

static void add_pointwise(generator *g)
{
    static const char *const unary[] = {"gelu", "silu", "relu", "sigmoid", "softmax", "neg"};
    const value x = any(g), y = any(g), v = add(g, x.rows, x.cols);
    const bool fits = (y.rows == x.rows || y.rows == 1) && (y.cols == x.cols || y.cols == 1);
    const char *other = fits ? y.name : x.name;
    switch (below(g, 6)) {
    case 0: say(&g->body, "  %s = add(%s, %s)\n", v.name, x.name, other); break;
    case 1: say(&g->body, "  %s = mul(%s, tanh(%s))\n", v.name, x.name, other); break;
    case 2:
        say(&g->body, "  %s = select(lt(%s, %s), %s, 0.5)\n", v.name, x.name, other, x.name);
        break;
    case 3: say(&g->body, "  %s = dropout(%s, %%seed)\n", v.name, x.name); break;
    default: say(&g->body, "  %s = %s(%s)\n", v.name, unary[below(g, 6)], x.name); break;
    }
}

static void add_view(generator *g)
{
    const value x = any(g);
    value v;
    switch (below(g, 5)) {
    case 0:
        v = add(g, x.cols, x.rows);
        say(&g->body, "  %s = transpose(%s) {perm = [1, 0]}\n", v.name, x.name);
        break;
    case 1:
        v = add(g, 1, x.rows * x.cols);
        say(&g->body, "  %s = reshape(%s) {shape = [1, %d]}\n", v.name, x.name, v.cols);
        break;
    case 2:
        v = add(g, x.rows, x.cols - x.cols / 3);
        say(&g->body, "  %s = slice(%s) {start = %d, stop = %d}\n", v.name, x.name, x.cols / 3,
            x.cols);
        break;
    case 3:
        v = add(g, 2 * x.rows, x.cols);
        say(&g->body, "  %s = concat(%s, %s) {axis = 0}\n", v.name, x.name, x.name);
        break;
    default:
        v = add(g, x.rows, x.cols);
        say(&g->body, "  %s = roll(%s) {shift = %d}\n", v.name, x.name, below(g, x.cols));
        break;
    }
}

static void add_reduction(generator *g)
{
    static const char *const ops[] = {"reduce_sum", "reduce_max", "mean"};
    const value x = any(g);
    const int block = 1 + below(g, x.rows + 2);
    value v;
    switch (below(g, 4)) {
    case 0:
    case 1:
        v = add(g, (x.rows + block - 1) / block, x.cols);
        say(&g->body, "  %s = reduce_sum(%s) {axis = 0, block = %d}\n", v.name, x.name, block);
        break;
    case 2:
        v = add(g, 1, x.cols);
        say(&g->body, "  %s = %s(%s) {axis = 0}\n", v.name, ops[below(g, 3)], x.name);
        break;
    default:
        v = add(g, x.rows, x.cols);
        say(&g->body, "  %s = sub(%s, %s(%s))\n", v.name, x.name, ops[below(g, 3)], x.name);
        break;
    }
}

static void add_norm(generator *g)
{
    const value x = any(g), v = add(g, x.rows, x.cols);
    const int p = g->n_params++;
    say(&g->declared, "param g%d: f32[%d] ones\n", p, x.cols);
    if (below(g, 2))
        say(&g->body, "  %s = rmsnorm(%s, g%d)\n", v.name, x.name, p);
    else
        say(&g->body, "  %s = layernorm(%s, g%d, g%d)\n", v.name, x.name, p, p);
}

void modulegen_make(uint32_t seed, text *to)
{
    static generator g;
    memset(&g, 0, sizeof g);
    g.random = seed * 2654435761u + 12345;
    const int rows = any_size(&g), cols = any_size(&g);
    g.v[g.n++] = (value){"%x", rows, cols};
    for (int steps = 2 + below(&g, 9); steps > 0; steps--)
        switch (below(&g, 8)) {
        case 0: add_norm(&g); break;
        case 1: add_view(&g); break;
        case 2:
        case 3: add_reduction(&g); break;
        case 4: add_pointwise(&g); break;
        default: add_linear(&g); break;
        }
    add_linear(&g); /* its weight is a parameter, or depends on one */
    const value last = g.v[g.n - 1];
    to->n = 0;
    say(to,
        "module random\n%sfunc forward(%%x: f32[%d, %d], %%seed: i32[]) -> (%%loss: f32[]) {\n%s"
        "  return reshape(mean(mul(%s, %s)) {axes = [0, 1]}) {shape = []}\n}\n"
        "optimizer adamw {lr = 1e-3, clip = 1}\n",
        g.declared.s, rows, cols, g.body.s, last.name, last.name);
}
