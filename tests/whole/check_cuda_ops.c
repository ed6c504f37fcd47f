/* Single ops through the public API, on every target, against the same in double precision. The
 * CUDA target runs on the emulator, or with FP8C_TEST_GPU on this machine's GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const char *targets[] = {"reference", "cpu", "cuda"};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* ---- a program of a few values ---- */

typedef struct running {
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
    int step;
} running;

static running begin(const char *text, const char *target)
{
    running r = {.ctx = new_context()};
    fp8c_compile_options o = recipe("f32");
    o.target = target;
    r.m = parse(r.ctx, text);
    r.p = compile(r.ctx, r.m, &o);
    ck_assert_msg(fp8c_program_initialize(r.p, 1) == FP8C_OK, "%s", fp8c_context_message(r.ctx));
    r.step = fp8c_program_function(r.p, "micro_step");
    return r;
}

static void end(running *r)
{
    fp8c_program_destroy(r->p);
    fp8c_module_destroy(r->m);
    fp8c_context_destroy(r->ctx);
}

static void write_variable(running *r, const char *name, const float *from)
{
    const int at = fp8c_program_find_variable(r->p, name);
    ck_assert_msg(fp8c_program_write(r->p, at, from) == FP8C_OK, "%s: %s", name,
                  fp8c_context_message(r->ctx));
}

static void read_variable(running *r, const char *name, float *to)
{
    const int at = fp8c_program_find_variable(r->p, name);
    ck_assert_msg(fp8c_program_read(r->p, at, to) == FP8C_OK, "%s: %s", name,
                  fp8c_context_message(r->ctx));
}

static void *port(running *r, fp8c_side side, const char *name)
{
    const int at = fp8c_program_find_port(r->p, r->step, side, name);
    void *data = fp8c_program_buffer(r->p, r->step, side, at);
    ck_assert_msg(data != NULL, "no port %s", name);
    return data;
}

static float step(running *r)
{
    ck_assert_msg(fp8c_program_run(r->p, r->step) == FP8C_OK && fp8c_program_wait(r->p) == FP8C_OK,
                  "%s", fp8c_context_message(r->ctx));
    return *(float *)port(r, FP8C_OUTPUT, "loss");
}

/* Within `most` of what double code gives. */
static void near(const char *what, const char *target, double is, double want, double most)
{
    ck_assert_msg(fabs(is - want) <= most, "%s on %s: %.9g, not %.9g", what, target, is, want);
}

/* ---- cross-entropy of large logits ---- */

enum { ROWS_CE = 3, MOST_CLASSES = 300 };

/* The mean loss, and the gradients of the logits. */
static double cross_entropy(const float *x, const int32_t *t, int classes, double *dx)
{
    double loss = 0;
    for (int r = 0; r < ROWS_CE; r++, x += classes, dx += classes) {
        double top = -INFINITY, sum = 0;
        for (int i = 0; i < classes; i++)
            top = fmax(top, (double)x[i]);
        for (int i = 0; i < classes; i++)
            sum += exp((double)x[i] - top);
        loss += (top - (double)x[t[r]] + log(sum)) / ROWS_CE;
        for (int i = 0; i < classes; i++)
            dx[i] = (exp((double)x[i] - top) / sum - (i == t[r])) / ROWS_CE;
    }
    return loss;
}

static void check_cross_entropy(const char *target, int classes, float shift)
{
    static float x[ROWS_CE * MOST_CLASSES], dx[ROWS_CE * MOST_CLASSES];
    static double want[ROWS_CE * MOST_CLASSES];
    char text[512], what[64];
    snprintf(what, sizeof what, "cross_entropy of %d logits near %g", classes, (double)shift);
    snprintf(text, sizeof text,
             "module m\nparam x: f32[%d, %d] zeros\n"
             "func forward(%%t: i32[%d]) -> (%%loss: f32[]) {\n  return cross_entropy(x, %%t)\n}\n",
             ROWS_CE, classes, ROWS_CE);
    running r = begin(text, target);
    int32_t *t = port(&r, FP8C_INPUT, "t");
    for (int i = 0; i < ROWS_CE * classes; i++)
        x[i] = shift + 0.37f * (float)(i * 29 % 31 - 15);
    for (int i = 0; i < ROWS_CE; i++)
        t[i] = (5 * i + 1) % classes;
    const double loss = cross_entropy(x, t, classes, want);
    write_variable(&r, "x", x);
    near(what, target, (double)step(&r), loss, 1e-6);
    read_variable(&r, "grad.x", dx);
    for (int i = 0; i < ROWS_CE * classes; i++)
        near(what, target, (double)dx[i] * ROWS_CE, want[i] * ROWS_CE, 1e-6);
    end(&r);
}

START_TEST(large_logits)
{
    static const float shifts[] = {0, 1e3f, -1e3f, 1e4f, -1e30f};
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        check_cross_entropy(targets[_i], 3, shifts[i]);
        check_cross_entropy(targets[_i], MOST_CLASSES, shifts[i]);
    }
}
END_TEST

/* The loss of logits x, and their gradient in dx, on a target. */
static float loss_of(const char *target, int rows, int classes, const float *x, float *dx)
{
    char text[512];
    snprintf(text, sizeof text,
             "module m\nparam x: f32[%d, %d] zeros\n"
             "func forward(%%t: i32[%d]) -> (%%loss: f32[]) {\n"
             "  return cross_entropy(x, %%t) {ignore = 5}\n}\n",
             rows, classes, rows);
    running r = begin(text, target);
    int32_t *t = port(&r, FP8C_INPUT, "t");
    for (int i = 0; i < rows; i++)
        t[i] = (7 * i + classes - 1) % classes;
    write_variable(&r, "x", x);
    const float loss = step(&r);
    read_variable(&r, "grad.x", dx);
    end(&r);
    return loss;
}

/* Every target has the interpreter's bits, however few or many the classes are. From 8193 on the
 * sums of some rows begin with the largest of the first 4096, and of others not. */
START_TEST(losses_bit_by_bit)
{
    static const int classes[] = {1, 7, 255, 257, 8193, 50257};
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++)
        for (int rows = 1; rows <= 33; rows += 32) {
            const size_t n = (size_t)rows * (size_t)classes[k];
            float *x = malloc(n * sizeof *x),
                  *dx[2] = {malloc(n * sizeof *x), malloc(n * sizeof *x)};
            for (size_t i = 0; i < n; i++)
                x[i] = 0.37f * (float)(i * 29 % 31) - (float)(i % 7);
            for (int r = 0; r < rows; r += 3) /* far above what the row begins with */
                x[(size_t)(r + 1) * (size_t)classes[k] - 1] = 12 + (float)r;
            const float want = loss_of("reference", rows, classes[k], x, dx[0]),
                        got = loss_of(targets[_i], rows, classes[k], x, dx[1]);
            ck_assert_msg(!memcmp(&want, &got, sizeof got), "%d rows of %d on %s: %a, not %a", rows,
                          classes[k], targets[_i], (double)got, (double)want);
            ck_assert_msg(!memcmp(dx[0], dx[1], n * sizeof *x),
                          "the gradient of %d rows of %d on %s", rows, classes[k], targets[_i]);
            free(x);
            free(dx[0]);
            free(dx[1]);
        }
}
END_TEST

/* ---- ops of a parameter x: y, and the gradient of sum(y k) ---- */

enum { MOST = 4200, MOST_RESULTS = 8 };

typedef struct case_ {
    const char *shape;        /* of x */
    const char *y, *y_shape;  /* expressions of x; both separated by ";" */
    int n, n_y[MOST_RESULTS]; /* elements */
    /* y, and in dx the gradient of the sum of all y[i] k[i] */
    void (*want)(const double *x, double *const *k, double *const *y, double *dx);
    double most; /* error */
} case_;

/* Part `index` of a list; true if there is one. */
static bool part_of(const char *list, int index, char *part, size_t size)
{
    for (int i = 0; i < index; i++) {
        list = strchr(list, ';');
        if (!list)
            return false;
        list++;
    }
    snprintf(part, size, "%.*s", (int)strcspn(list, ";"), list);
    return true;
}

static void text_of(const case_ *c, char *text, size_t size)
{
    char y[256], shape[64], inputs[512] = "", body[2048] = "", sum[512] = "", results[512] = "";
    for (int i = 0; part_of(c->y, i, y, sizeof y); i++) {
        ck_assert(part_of(c->y_shape, i, shape, sizeof shape));
        sprintf(inputs + strlen(inputs), "%s%%k%d: f32[%s]", i ? ", " : "", i, shape);
        sprintf(results + strlen(results), ", %%y%d: f32[%s]", i, shape);
        sprintf(body + strlen(body),
                "  %%y%d = %s\n  %%s%d = reshape(reduce_sum(reshape(mul(%%y%d, %%k%d)) {shape = "
                "[%d]})) {shape = []}\n",
                i, y, i, i, i, c->n_y[i]);
        if (i)
            sprintf(body + strlen(body), "  %%t%d = add(%%%s%d, %%s%d)\n", i, i > 1 ? "t" : "s",
                    i - 1, i);
        sprintf(sum, "%%%s%d", i ? "t" : "s", i);
    }
    int at = snprintf(text, size,
                      "module m\nparam x: f32[%s] zeros\nfunc forward(%s) -> (%%loss: f32[]%s) "
                      "{\n%s  return %s",
                      c->shape, inputs, results, body, sum);
    for (int i = 0; part_of(c->y, i, y, sizeof y); i++)
        at += snprintf(text + at, size - (size_t)at, ", %%y%d", i);
    snprintf(text + at, size - (size_t)at, "\n}\n");
}

static void check_case(const case_ *c, const char *target, const float *x)
{
    static double wide[MOST], dx[MOST], k[MOST_RESULTS][MOST], y[MOST_RESULTS][MOST];
    static float grad[MOST];
    double *ks[MOST_RESULTS], *ys[MOST_RESULTS];
    char text[8192], name[16];
    text_of(c, text, sizeof text);
    running r = begin(text, target);
    const int eval = fp8c_program_function(r.p, "eval"), micro_step = r.step;
    write_variable(&r, "x", x);
    memset(dx, 0, sizeof dx);
    for (int i = 0; i < c->n; i++)
        wide[i] = (double)x[i];
    for (int i = 0; i < MOST_RESULTS; i++) {
        ks[i] = k[i];
        ys[i] = y[i];
        for (int e = 0; e < c->n_y[i]; e++)
            k[i][e] = 0.25 * ((e * 7 + i) % 13 - 6);
    }
    c->want(wide, ks, ys, dx);
    for (int f = 0; f < 2; f++) {
        r.step = f ? micro_step : eval;
        for (int i = 0; i < MOST_RESULTS && c->n_y[i]; i++) {
            snprintf(name, sizeof name, "k%d", i);
            float *to = port(&r, FP8C_INPUT, name);
            for (int e = 0; e < c->n_y[i]; e++)
                to[e] = (float)k[i][e];
        }
        step(&r);
    }
    r.step = eval;
    for (int i = 0; i < MOST_RESULTS && c->n_y[i]; i++) {
        snprintf(name, sizeof name, "y%d", i);
        const float *is = port(&r, FP8C_OUTPUT, name);
        for (int e = 0; e < c->n_y[i]; e++)
            near(c->y, target, (double)is[e], y[i][e], c->most);
    }
    read_variable(&r, "grad.x", grad);
    for (int e = 0; e < c->n; e++)
        near(c->y, target, (double)grad[e], dx[e], c->most);
    end(&r);
}

/* ---- relu ---- */

static void want_relu(const double *x, double *const *k, double *const *y, double *dx)
{
    for (int i = 0; i < 8; i++) {
        y[0][i] = x[i] > 0 ? x[i] : 0;
        dx[i] = x[i] > 0 ? k[0][i] : 0;
    }
}

START_TEST(relu)
{
    static const float x[] = {-0.0f, 0, 1.5f, -1.5f, 1e-40f, -1e-40f, INFINITY, -INFINITY};
    static const case_ c = {"8", "relu(x)", "8", 8, {8}, want_relu, 0};
    float finite[8], special[] = {NAN, -0.0f, 0, 1, -1, 2, -2, -NAN};
    memcpy(finite, x, sizeof x);
    finite[6] = 3e38f;
    finite[7] = -3e38f;
    check_case(&c, targets[_i], finite);
    /* NaN stays NaN, and -0 becomes +0; the gradient at a NaN is not asked here */
    running r = begin("module m\nparam x: f32[8] zeros\nfunc forward() -> (%loss: f32[], %y: "
                      "f32[8]) {\n  %y = relu(x)\n  return reshape(reduce_sum(%y)) {shape = []}, "
                      "%y\n}\n",
                      targets[_i]);
    write_variable(&r, "x", special);
    r.step = fp8c_program_function(r.p, "eval");
    step(&r);
    const float *y = port(&r, FP8C_OUTPUT, "y");
    for (int i = 0; i < 8; i++)
        ck_assert_msg(isnan(special[i]) ? isnan(y[i])
                                        : y[i] == fmaxf(special[i], 0) && !signbit(y[i]),
                      "relu(%g) is %g on %s", (double)special[i], (double)y[i], targets[_i]);
    end(&r);
}
END_TEST

/* ---- activations that bf16 rounds ---- */

/* All ops that stand for such an activation or its derivative, over all bf16 inputs: the bits of
 * the interpreter. */
START_TEST(rounded_activations)
{
    enum { N = 1 << 16, OPS = 8 };
    static const char text[] =
        "module m\nparam w: f32[1] ones\n"
        "func forward(%x: f32[256, 256]) -> (%loss: f32[], %y0: f32[256, 256], %y1: f32[256, 256], "
        "%y2: f32[256, 256], %y3: f32[256, 256], %y4: f32[256, 256], %y5: f32[256, 256], "
        "%y6: f32[256, 256], %y7: f32[256, 256]) {\n"
        "  return reshape(w) {shape = []}, gelu_erf(%x), gelu_tanh(%x), gelu_erf_slope(%x), "
        "gelu_tanh_slope(%x), sigmoid_bf16(%x), silu_bf16(%x), silu_bf16_slope(%x), tanh_bf16(%x)\n"
        "}\n";
    running want = begin(text, "reference"), got = begin(text, targets[_i]);
    for (int k = 0; k < 2; k++) {
        running *r = k ? &got : &want;
        r->step = fp8c_program_function(r->p, "eval");
        uint32_t *x = port(r, FP8C_INPUT, "x");
        for (uint32_t u = 0; u < N; u++)
            x[u] = u << 16;
        step(r);
    }
    for (int op = 0; op < OPS; op++) {
        const char name[] = {'y', (char)('0' + op), 0};
        const float *a = port(&want, FP8C_OUTPUT, name), *b = port(&got, FP8C_OUTPUT, name);
        for (uint32_t u = 0; u < N; u++)
            ck_assert_msg(!memcmp(&a[u], &b[u], sizeof a[u]) || (isnan(a[u]) && isnan(b[u])),
                          "%s of %08x is %a on %s, and %a in the interpreter", name, u << 16,
                          (double)b[u], targets[_i], (double)a[u]);
    }
    end(&want);
    end(&got);
}
END_TEST

/* ---- casts, and ties of max and min: as OPS.md says ---- */

START_TEST(casts_to_integers)
{
    static const float x[8] = {2.5f, -2.5f, 0.99f, -0.0f, NAN, 3e9f, -INFINITY, 16777217.0f};
    static const int32_t want[8] = {2, -2, 0, 0, 0, INT32_MAX, INT32_MIN, 16777216};
    running r = begin("module m\nparam x: f32[8] zeros\n"
                      "func forward() -> (%loss: f32[], %y: i32[8]) {\n"
                      "  return reshape(reduce_sum(x)) {shape = []}, cast(x) {to = i32}\n}\n",
                      targets[_i]);
    write_variable(&r, "x", x);
    r.step = fp8c_program_function(r.p, "eval");
    step(&r);
    const int32_t *y = port(&r, FP8C_OUTPUT, "y");
    for (int i = 0; i < 8; i++)
        ck_assert_msg(y[i] == want[i], "%g is %d on %s", (double)x[i], (int)y[i], targets[_i]);
    end(&r);
}
END_TEST

/* Each of `max`, `min` and `reduce_max`: the gradient of x[0 .. 4) beside `y`, and of a row. */
START_TEST(ties)
{
    static const float x[4] = {1, 3, 2, 3}, other[4] = {1, 2, 3, 3};
    static const struct {
        const char *op;
        float dx[4];
    } want[] = {{"max(x, %y)", {0.5f, 1, 0, 0.5f}},
                {"min(x, %y)", {0.5f, 0, 1, 0.5f}},
                {"mul(reduce_max(x), %y)", {0, 4.5f, 0, 4.5f}}};
    for (int k = 0; k < 3; k++) {
        char text[256];
        float grad[4];
        snprintf(text, sizeof text,
                 "module m\nparam x: f32[4] zeros\nfunc forward(%%y: f32[4]) -> (%%loss: f32[]) {\n"
                 "  return reshape(reduce_sum(%s)) {shape = []}\n}\n",
                 want[k].op);
        running r = begin(text, targets[_i]);
        write_variable(&r, "x", x);
        memcpy(port(&r, FP8C_INPUT, "y"), other, sizeof other);
        step(&r);
        read_variable(&r, "grad.x", grad);
        for (int i = 0; i < 4; i++)
            near(want[k].op, targets[_i], (double)grad[i], (double)want[k].dx[i], 0);
        end(&r);
    }
}
END_TEST

/* ---- literals that take another operand's dtype ---- */

START_TEST(literals)
{
    running r = begin("module m\nparam x: f32[4] ones\nstate seen: i32[] zeros\n"
                      "func forward(%c: i32[6]) -> (%loss: f32[], %y: i32[6], %z: bool[6]) {\n"
                      "  %y = select(lt(%c, 1), 2147483647, add(%c, -7))\n"
                      "  return reshape(reduce_sum(x)) {shape = []}, %y, and(le(-2, %c), 1), "
                      "seen <- add(seen, 16777217)\n}\n",
                      targets[_i]);
    static const int32_t c[] = {INT32_MIN, -2, 0, 1, 16777217, INT32_MAX};
    int32_t seen;
    memcpy(port(&r, FP8C_INPUT, "c"), c, sizeof c);
    step(&r);
    ck_assert_int_eq(fp8c_program_read(r.p, fp8c_program_find_variable(r.p, "seen"), &seen),
                     FP8C_OK);
    ck_assert_int_eq(seen, 16777217); /* no f32 */
    r.step = fp8c_program_function(r.p, "eval");
    memcpy(port(&r, FP8C_INPUT, "c"), c, sizeof c);
    step(&r);
    const int32_t *y = port(&r, FP8C_OUTPUT, "y");
    const uint8_t *z = port(&r, FP8C_OUTPUT, "z");
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(y[i], c[i] < 1 ? INT32_MAX : c[i] - 7);
        ck_assert_int_eq(z[i], c[i] >= -2);
    }
    end(&r);
}
END_TEST

/* ---- reductions along any axes ---- */

static const int dims[] = {3, 4, 5, 70};
enum { ALL = 3 * 4 * 5 * 70 };
_Static_assert((int)ALL <= (int)MOST, "room");

/* Result `to` of element `i` where the axes in `axes` are reduced. */
static int result_of(int i, unsigned axes)
{
    int to = 0, stride = 1;
    for (int d = 3; d >= 0; d--) {
        const int at = i % dims[d];
        i /= dims[d];
        if (axes >> d & 1)
            continue;
        to += at * stride;
        stride *= dims[d];
    }
    return to;
}

static void reduce(char op, unsigned axes, const double *x, const double *k, double *y, double *dx)
{
    int count = 1;
    for (int d = 0; d < 4; d++)
        count *= axes >> d & 1 ? dims[d] : 1;
    for (int i = 0; i < ALL / count; i++)
        y[i] = op == 'x' ? -INFINITY : 0;
    for (int i = 0; i < ALL; i++) {
        double *to = &y[result_of(i, axes)];
        *to = op == 'x' ? fmax(*to, x[i]) : *to + (op == 'm' ? x[i] / count : x[i]);
    }
    for (int i = 0; i < ALL; i++) {
        const int to = result_of(i, axes);
        dx[i] += op == 'x' ? (x[i] == y[to] ? k[to] : 0) : op == 'm' ? k[to] / count : k[to];
    }
}

static void want_reductions(const double *x, double *const *k, double *const *y, double *dx)
{
    static const struct {
        char op;
        unsigned axes;
    } of[] = {{'s', 2}, {'s', 5}, {'m', 6}, {'m', 3}, {'x', 10}, {'x', 12}, {'m', 15}};
    for (int i = 0; i < 7; i++)
        reduce(of[i].op, of[i].axes, x, k[i], y[i], dx);
}

START_TEST(reductions)
{
    static const case_ c = {
        "3, 4, 5, 70",
        "reduce_sum(x) {axis = 1};reduce_sum(x) {axes = [0, 2]};mean(x) {axes = [2, -3]};"
        "mean(x) {axes = [0, 1]};reduce_max(x) {axes = [1, 3]};reduce_max(x) {axes = [2, 3]};"
        "mean(x) {axes = [0, 1, 2, 3]}",
        "3, 1, 5, 70;1, 4, 1, 70;3, 1, 1, 70;1, 1, 5, 70;3, 1, 5, 1;3, 4, 1, 1;1, 1, 1, 1",
        ALL,
        {1050, 280, 210, 350, 15, 12, 1},
        want_reductions,
        1e-5};
    static float x[ALL];
    for (int i = 0; i < ALL; i++)
        x[i] = (float)(i * 2087 % 4201) / 2100 - 1; /* each once */
    check_case(&c, targets[_i], x);
}
END_TEST

/* ---- sums in blocks of rows ---- */

enum { ROWS_B = 150, COLUMNS_B = 7 };
static const int blocks[] = {1, 5, 48, 65, 128, 149, 1000};
enum { N_BLOCKS = sizeof blocks / sizeof *blocks };

static void want_block_sums(const double *x, double *const *k, double *const *y, double *dx)
{
    for (int i = 0; i < N_BLOCKS; i++) {
        memset(y[i], 0, sizeof(double) * (ROWS_B / blocks[i] + 1) * COLUMNS_B);
        for (int e = 0; e < ROWS_B * COLUMNS_B; e++) {
            const int to = e / COLUMNS_B / blocks[i] * COLUMNS_B + e % COLUMNS_B;
            y[i][to] += x[e];
            dx[e] += k[i][to];
        }
    }
}

START_TEST(block_sums)
{
    static const case_ c = {"150, 7",
                            "reduce_sum(x) {axis = 0, block = 1};"
                            "reduce_sum(x) {axis = 0, block = 5};"
                            "reduce_sum(x) {axis = 0, block = 48};"
                            "reduce_sum(x) {axis = 0, block = 65};"
                            "reduce_sum(x) {axis = 0, block = 128};"
                            "reduce_sum(x) {axis = 0, block = 149};"
                            "reduce_sum(x) {axis = 0, block = 1000}",
                            "150, 7;30, 7;4, 7;3, 7;2, 7;2, 7;1, 7",
                            ROWS_B * COLUMNS_B,
                            {1050, 210, 28, 21, 14, 14, 7},
                            want_block_sums,
                            2e-5};
    static float x[ROWS_B * COLUMNS_B];
    for (int i = 0; i < ROWS_B * COLUMNS_B; i++)
        x[i] = (float)(i * 487 % 1051) / 525 - 1;
    check_case(&c, targets[_i], x);
}
END_TEST

/* ---- rope with Llama 3's scaling ---- */

enum { T_ROPE = 48, D_ROPE = 32 };

/* As _compute_llama3_parameters of Hugging Face's transformers, with factor 8, low 1, high 4, and
 * 256 positions before. */
static double llama3_frequency(int i)
{
    const double factor = 8, low = 1, high = 4, old = 256, two_pi = 2 * acos(-1.0);
    const double frequency = 1 / pow(10000, 2.0 * i / D_ROPE), wavelength = two_pi / frequency;
    if (wavelength > old / low)
        return frequency / factor;
    if (wavelength < old / high)
        return frequency;
    const double smooth = (old / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

static void want_rope(const double *x, double *const *k, double *const *y, double *dx)
{
    int kinds[3] = {0};
    for (int t = 0; t < T_ROPE; t++)
        for (int i = 0; i < D_ROPE / 2; i++) {
            const double f = llama3_frequency(i), c = cos(t * f), s = sin(t * f);
            const double own = 1 / pow(10000, 2.0 * i / D_ROPE);
            const int a = t * D_ROPE + i, b = a + D_ROPE / 2;
            kinds[f == own ? 0 : f == own / 8 ? 1 : 2]++;
            y[0][a] = x[a] * c - x[b] * s;
            y[0][b] = x[b] * c + x[a] * s;
            dx[a] = k[0][a] * c + k[0][b] * s;
            dx[b] = k[0][b] * c - k[0][a] * s;
        }
    ck_assert(kinds[0] && kinds[1] && kinds[2]);
}

START_TEST(rope_scaling)
{
    static const case_ c = {"48, 32",
                            "rope(x) {factor = 8, low_freq_factor = 1, high_freq_factor = 4, "
                            "original_max_position = 256}",
                            "48, 32",
                            T_ROPE * D_ROPE,
                            {T_ROPE * D_ROPE},
                            want_rope,
                            1e-6};
    float x[T_ROPE * D_ROPE];
    for (int i = 0; i < T_ROPE * D_ROPE; i++)
        x[i] = (float)(i * 37 % 101) / 50 - 1;
    check_case(&c, targets[_i], x);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    if (getenv("FP8C_TEST_PEER")) /* where there is no LLVM */
        targets[1] = getenv("FP8C_TEST_PEER");
    Suite *s = suite_create("ops");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, large_logits, 0, N_TARGETS);
    tcase_add_loop_test(t, losses_bit_by_bit, 1, N_TARGETS);
    tcase_add_loop_test(t, relu, 0, N_TARGETS);
    tcase_add_loop_test(t, rounded_activations, 1, N_TARGETS);
    tcase_add_loop_test(t, casts_to_integers, 0, N_TARGETS);
    tcase_add_loop_test(t, ties, 0, N_TARGETS);
    tcase_add_loop_test(t, literals, 0, N_TARGETS);
    tcase_add_loop_test(t, reductions, 0, N_TARGETS);
    tcase_add_loop_test(t, block_sums, 0, N_TARGETS);
    tcase_add_loop_test(t, rope_scaling, 0, N_TARGETS);
    suite_add_tcase(s, t);
    return s;
}
