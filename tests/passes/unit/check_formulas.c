/* The formulas of composites (passes/unit/formulas.c) against definitions in double. The
 * interpreter evaluates only what decompose makes of a composite, so it can't judge a formula. Here
 * each composite is decomposed, and its graph is judged three times:
 *     in double   it lies within a few roundings of its f32 constants of the definition
 *     in f32      it lies within the roundings that `near` grants: a worse order of operations
 * loses digits by bits     the f32 result has the hash that is written here Two orders may be
 * equally exact and differ in bits (ir/README.md: an op's order is part of what it means). A hash
 * changes only where an op's meaning is changed on purpose. tests/planted_formulas.py plants
 * changes in the formulas and shows that each is found. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codegen/reference/reference.h"
#include "ir/base/hash.h"
#include "tests/shared/num/gelu.h"
#include "tests/shared/passes/unit.h"
#include "tests/shared/suite.h"

enum { BATCH = 16, TIME = 2, ROWS = BATCH * TIME, COLS = 12, HEADS = 2, MOST = ROWS * COLS };

typedef struct operands {
    const double *x, *w, *b, *m, *r; /* [ROWS, COLS], [COLS], [COLS], [COLS, COLS], [ROWS] */
    double d;
    const int32_t *t; /* [ROWS] */
    uint32_t seed;
} operands;

#define PORTS                                                                                      \
    "%x: f32[16, 2, 12], %w: f32[12], %b: f32[12], %m: f32[12, 12], %r: f32[16, 2], %d: f32[], "   \
    "%t: i32[16, 2], %s: i32[]"
enum { IGNORED = 7, SEED = 20261 };

static int32_t class_of(int row)
{
    return row * 5 % COLS; /* every class, IGNORED among them */
}

/* ---- definitions ---- */

static double row_mean_of(const double *x)
{
    double sum = 0;
    for (int c = 0; c < COLS; c++)
        sum += x[c];
    return sum / COLS;
}

static void normalized(const operands *o, double eps, bool centre, double *y)
{
    for (int i = 0; i < ROWS; i++) {
        const double *x = o->x + i * COLS, mean = centre ? row_mean_of(x) : 0;
        double square = 0;
        for (int c = 0; c < COLS; c++)
            square += (x[c] - mean) * (x[c] - mean) / COLS;
        for (int c = 0; c < COLS; c++)
            y[i * COLS + c] = (x[c] - mean) / sqrt(square + eps) * o->w[c] + (centre ? o->b[c] : 0);
    }
}

static void layernorm(const operands *o, double *y)
{
    normalized(o, 1e-5, true, y);
}

static void layernorm_eps(const operands *o, double *y)
{
    normalized(o, 0.25, true, y);
}

static void rmsnorm(const operands *o, double *y)
{
    normalized(o, 1e-5, false, y);
}

static void rmsnorm_eps(const operands *o, double *y)
{
    normalized(o, 0.25, false, y);
}

/* log(softmax(x)) of one row */
static void log_softmax(const double *x, double *y)
{
    double top = x[0], sum = 0;
    for (int c = 0; c < COLS; c++)
        top = fmax(top, x[c]);
    for (int c = 0; c < COLS; c++)
        sum += exp(x[c] - top);
    for (int c = 0; c < COLS; c++)
        y[c] = x[c] - top - log(sum);
}

static void softmax(const operands *o, double *y)
{
    for (int i = 0; i < ROWS; i++) {
        log_softmax(o->x + i * COLS, y + i * COLS);
        for (int c = 0; c < COLS; c++)
            y[i * COLS + c] = exp(y[i * COLS + c]);
    }
}

static void silu(const operands *o, double *y)
{
    for (int i = 0; i < MOST; i++)
        y[i] = o->x[i] / (1 + exp(-o->x[i]));
}

static void gelu_tanh(const operands *o, double *y)
{
    for (int i = 0; i < MOST; i++)
        y[i] = test_gelu_tanh(o->x[i]);
}

static void gelu_erf(const operands *o, double *y)
{
    for (int i = 0; i < MOST; i++)
        y[i] = test_gelu_erf(o->x[i]);
}

static void rotate(const operands *o, double direction, double *y)
{
    enum { SIZE = COLS / HEADS, HALF = SIZE / 2 };
    for (int i = 0; i < ROWS; i++)
        for (int h = 0; h < HEADS; h++)
            for (int k = 0; k < HALF; k++) {
                const double angle = direction * (i % TIME) * pow(10000, -2.0 * k / SIZE);
                const int at = i * COLS + h * SIZE + k;
                const double a = o->x[at], b = o->x[at + HALF];
                y[at] = a * cos(angle) - b * sin(angle);
                y[at + HALF] = b * cos(angle) + a * sin(angle);
            }
}

static void rope(const operands *o, double *y)
{
    rotate(o, 1, y);
}

static void rope_inverse(const operands *o, double *y)
{
    rotate(o, -1, y);
}

/* The third word of pcg3d (Jarzynski & Olano, JCGT 9(3), 2020). */
static uint32_t random_word(uint32_t a, uint32_t b, uint32_t c)
{
    a = a * 1664525u + 1013904223u;
    b = b * 1664525u + 1013904223u;
    c = c * 1664525u + 1013904223u;
    a += b * c, b += c * a, c += a * b;
    a ^= a >> 16, b ^= b >> 16, c ^= c >> 16;
    a += b * c, b += c * a, c += a * b;
    return c;
}

static void dropout(const operands *o, double *y)
{
    const uint32_t key = random_word(o->seed, 5, 0);
    for (int i = 0; i < MOST; i++) {
        const int32_t word = (int32_t)random_word((uint32_t)(i % COLS), (uint32_t)(i / COLS), key);
        y[i] = (double)word + 0x1p31 < floor(0.3 * 0x1p32) ? 0 : o->x[i] / (1 - 0.3);
    }
}

static void linear(const operands *o, double *y)
{
    for (int i = 0; i < MOST; i++) {
        y[i] = o->b[i % COLS];
        for (int k = 0; k < COLS; k++)
            y[i] += o->x[i / COLS * COLS + k] * o->m[k * COLS + i % COLS];
    }
}

static void mean_last(const operands *o, double *y)
{
    for (int i = 0; i < ROWS; i++)
        y[i] = row_mean_of(o->x + i * COLS);
}

static void mean_first(const operands *o, double *y)
{
    for (int i = 0; i < TIME * COLS; i++)
        y[i] = 0;
    for (int i = 0; i < MOST; i++)
        y[i % (TIME * COLS)] += o->x[i] / BATCH;
}

static void mean_two(const operands *o, double *y)
{
    y[0] = y[1] = 0;
    for (int i = 0; i < ROWS; i++)
        y[i % TIME] += row_mean_of(o->x + i * COLS) / BATCH;
}

static void amax(const operands *o, double *y)
{
    *y = 0;
    for (int i = 0; i < MOST; i++)
        *y = fmax(*y, fabs(o->x[i]));
}

static void amax_of_square(const operands *o, double *y)
{
    *y = o->d * o->d;
}

static void history_push(const operands *o, double *y)
{
    for (int i = 0; i < MOST; i++)
        y[i] = i % COLS ? o->x[i - 1] : o->r[i / COLS];
}

/* ---- cross-entropy: -sum_c q_c log p_c with q = (1 - e) [c = target] + e / V ---- */

static double wanted(int c, int32_t target, double e)
{
    return (c == target ? 1 - e : 0) + e / COLS;
}

static int losses(const operands *o, double e, int64_t ignore, double *each)
{
    int counted = 0;
    for (int i = 0; i < ROWS; i++) {
        double p[COLS];
        log_softmax(o->x + i * COLS, p);
        each[i] = 0;
        counted += o->t[i] != ignore;
        for (int c = 0; c < COLS && o->t[i] != ignore; c++)
            each[i] -= wanted(c, o->t[i], e) * p[c];
    }
    return counted;
}

static double sum_of(const double *each)
{
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        sum += each[i];
    return sum;
}

static void ce_mean(const operands *o, double *y)
{
    double each[ROWS];
    losses(o, 0, -1, each);
    *y = sum_of(each) / ROWS;
}

static void ce_mean_ignored(const operands *o, double *y)
{
    double each[ROWS];
    const int n = losses(o, 0.2, IGNORED, each);
    *y = sum_of(each) / n;
}

static void ce_mean_of_29(const operands *o, double *y)
{
    double each[ROWS];
    const int n = losses(o, 0, 3, each);
    *y = sum_of(each) / n;
}

static void ce_sum(const operands *o, double *y)
{
    double each[ROWS];
    losses(o, 0.2, IGNORED, each);
    *y = sum_of(each);
}

static void ce_each(const operands *o, double *y)
{
    losses(o, 0, -1, y);
}

static void ce_each_smooth(const operands *o, double *y)
{
    losses(o, 0.2, IGNORED, y);
}

static void ce_gradient(const operands *o, double e, int64_t ignore, double all, double *y)
{
    for (int i = 0; i < ROWS; i++) {
        double p[COLS];
        log_softmax(o->x + i * COLS, p);
        for (int c = 0; c < COLS; c++)
            y[i * COLS + c] = o->t[i] == ignore ? 0 : (exp(p[c]) - wanted(c, o->t[i], e)) * all;
    }
}

static void ce_grad_mean(const operands *o, double *y)
{
    ce_gradient(o, 0, -1, o->d / ROWS, y);
}

static void ce_grad_ignored(const operands *o, double *y)
{
    double each[ROWS];
    ce_gradient(o, 0.2, IGNORED, o->d / losses(o, 0.2, IGNORED, each), y);
}

static void ce_grad_sum(const operands *o, double *y)
{
    ce_gradient(o, 0, -1, o->d, y);
}

static void ce_grad_each(const operands *o, double *y)
{
    ce_gradient(o, 0.2, -1, 1, y);
    for (int i = 0; i < MOST; i++)
        y[i] *= o->r[i / COLS];
}

/* ---- cases ---- */

#define ALL "f32[16, 2, 12]"
#define EACH "f32[16, 2]"
#define SMOOTH "{ignore = 7, label_smoothing = 0.2"

static const struct {
    const char *expr, *type;
    double size, shift; /* x = size * noise + shift */
    double near;        /* an f32 result may be off by as many 2^-24 of the largest */
    uint64_t bits;
    void (*define)(const operands *o, double *y);
} cases[] = {
    {"layernorm(%x, %w, %b)", ALL, 2, 0, 8, 0xad629e1fc0f7e015, layernorm},
    {"layernorm(%x, %w, %b)", ALL, 2, 1000, 2000, 0x0babc87e13115479, layernorm},
    {"layernorm(%x, %w, %b) {eps = 0.25}", ALL, 1, 0, 8, 0x162015fea6a194a3, layernorm_eps},
    {"rmsnorm(%x, %w)", ALL, 2, 0, 8, 0x4de974bb29f891a7, rmsnorm},
    {"rmsnorm(%x, %w) {eps = 0.25}", ALL, 1, 0, 8, 0x3d5efcf2398bf616, rmsnorm_eps},
    {"softmax(%x)", ALL, 3, 0, 8, 0x2939b05fea84cad7, softmax},
    {"softmax(%x)", ALL, 3, 1000, 8, 0xb67b31d476537c97, softmax},
    {"silu(%x)", ALL, 4, 0, 8, 0x1e2b73d243ecf63b, silu},
    {"silu(%x) {rounded = bf16}", ALL, 8, 0, 210, 0x0730e0cf9baf1622, silu}, /* 210 of 2^-24 */
    {"gelu(%x)", ALL, 3, 0, 8, 0xab1c28774bc2f59f, gelu_tanh},
    {"gelu(%x)", ALL, 1.5, 0, 8, 0x6f5cd71cb0462033, gelu_tanh},
    {"gelu(%x)", ALL, 6, 0, 8, 0x02be4e94b6e8cf93, gelu_tanh},
    {"gelu(%x) {approximate = \"none\"}", ALL, 3, 0, 8, 0xc555389d0cb4ed74, gelu_erf},
    /* polynomials: 247 and 300 of 2^-24 */
    {"gelu(%x) {rounded = bf16}", ALL, 6, 0, 247, 0x37a64845b9122e65, gelu_tanh},
    {"gelu(%x) {approximate = \"none\", rounded = bf16}", ALL, 6, 0, 300, 0x446dc5b3a73b2d42,
     gelu_erf},
    {"rope(%x) {heads = 2}", ALL, 1, 0, 8, 0x12b1357fd3b98306, rope},
    {"rope(%x) {heads = 2, inverse = true}", ALL, 1, 0, 8, 0xc367ad928d6b40bf, rope_inverse},
    {"dropout(%x, %s) {p = 0.3, stream = 5}", ALL, 1, 0, 8, 0x02d6e0da8d92cafc, dropout},
    {"linear(%x, %m, %b)", ALL, 1, 0, 8, 0xd2294361677ead3a, linear},
    {"mean(%x)", "f32[16, 2, 1]", 1, 0, 8, 0x6a8e657b76df8298, mean_last},
    {"mean(%x) {axis = 0}", "f32[1, 2, 12]", 1, 0, 8, 0xf3ad8735cdd463bc, mean_first},
    {"mean(%x) {axes = [0, 2]}", "f32[1, 2, 1]", 1, 0, 8, 0x18c3ff216d3a24d9, mean_two},
    {"amax(%x)", "f32[]", 1, 0, 0, 0x6b0f5e8cddeb1b36, amax},
    {"amax(%x)", "f32[]", 1, -0.5, 0, 0x050e881e01db67ab, amax},
    {"amax(mul(%d, %d))", "f32[]", 1, 0, 1, 0xc36b9a41fd853eca, amax_of_square},
    {"history_push(%x, %r)", ALL, 1, 0, 0, 0x996bb9c3cecb9b71, history_push},
    {"cross_entropy(%x, %t)", "f32[]", 3, 0, 8, 0x8b32e780ef784ac7, ce_mean},
    {"cross_entropy(%x, %t)", "f32[]", 3, 1e4, 8, 0x9f0aa0b453b53eca, ce_mean},
    {"cross_entropy(%x, %t) " SMOOTH "}", "f32[]", 3, 0, 8, 0x740b578d67405668, ce_mean_ignored},
    {"cross_entropy(%x, %t) {ignore = 3}", "f32[]", 3, 0, 8, 0x4b47270d9a49a492, ce_mean_of_29},
    {"cross_entropy(%x, %t) " SMOOTH ", reduction = \"sum\"}", "f32[]", 3, 0, 8, 0xd1bf4d42387dff5d,
     ce_sum},
    {"cross_entropy(%x, %t) {reduction = \"none\"}", EACH, 3, 0, 8, 0xb38b5681c6c93b9c, ce_each},
    {"cross_entropy(%x, %t) " SMOOTH ", reduction = \"none\"}", EACH, 3, 0, 8, 0xedf0c032da2eac0f,
     ce_each_smooth},
    {"cross_entropy_grad(%x, %t, %d)", ALL, 3, 0, 8, 0x27801afa3b5a1de3, ce_grad_mean},
    {"cross_entropy_grad(%x, %t, %d) {reduction = \"sum\"}", ALL, 3, 1e4, 8, 0x4e4925d2275fbb56,
     ce_grad_sum},
    {"cross_entropy_grad(%x, %t, %d) " SMOOTH "}", ALL, 3, 0, 8, 0xabcf1243b74e4d54,
     ce_grad_ignored},
    {"cross_entropy_grad(%x, %t, %r) {label_smoothing = 0.2, reduction = \"none\"}", ALL, 3, 0, 8,
     0x9d5a7a6bc8810dfe, ce_grad_each},
};

enum { N_CASES = sizeof cases / sizeof cases[0] };

/* ---- one case ---- */

static void decomposed(test_unit *t, const char *expr, const char *type)
{
    char text[1024];
    snprintf(text, sizeof text, "module m\nfunc forward(%s) -> (%%y: %s) {\n  return %s\n}\n",
             PORTS, type, expr);
    test_unit_parse(t, text, "f32");
    test_pass(t, f8_pass_decompose);
    const f8_graph *g = test_func(t, "forward")->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        ck_assert_int_ne(f8_op_facts(f8_at(g, r)->op)->cls, F8_COMPOSITE);
}

/* Numbers that are exactly an f32, so that both runs have the same. */
static void fill(test_values *in, const f8_func *f, double size, double shift)
{
    for (size_t i = 0; i < f->n_in; i++) {
        double *v = test_value(in, f->in[i].name, &f->in[i].type);
        const bool is_x = !strcmp(f->in[i].name, "x");
        if (!strcmp(f->in[i].name, "t"))
            for (int k = 0; k < ROWS; k++)
                ((int32_t *)v)[k] = class_of(k);
        else if (!strcmp(f->in[i].name, "s"))
            *(int32_t *)v = SEED;
        else
            for (int64_t k = 0; k < f8_type_elements(&f->in[i].type); k++)
                v[k] = (double)(float)(is_x ? size * v[k] + shift : v[k]);
    }
}

static void run_f32(test_unit *t, const f8_func *f, test_values *in, float *y)
{
    const void *from[16];
    for (size_t i = 0; i < f->n_in; i++) {
        const f8_type *type = &f->in[i].type;
        const double *v = test_value(in, f->in[i].name, type);
        const int64_t n = f8_type_elements(type);
        float *narrow = F8_NEW_ARRAY(&t->arena, float, n);
        for (int64_t k = 0; k < n && type->dtype == F8_F32; k++)
            narrow[k] = (float)v[k];
        from[i] = type->dtype == F8_F32 ? (const void *)narrow : v;
    }
    ck_assert_msg(f8_reference_run(f, from, (void *[]){y}, NULL, &t->diag) == F8_OK, "%s",
                  t->diag.text);
}

static double largest(const double *v, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(v[i]));
    return most;
}

static operands operands_of(const test_values *in)
{
    test_values *v = (test_values *)in;
    return (operands){.x = test_f64(v, "x"),
                      .w = test_f64(v, "w"),
                      .b = test_f64(v, "b"),
                      .m = test_f64(v, "m"),
                      .r = test_f64(v, "r"),
                      .d = *test_f64(v, "d"),
                      .t = (const int32_t *)test_f64(v, "t"),
                      .seed = *(const uint32_t *)test_f64(v, "s")};
}

static void check_near(const char *how, int i, const double *got, double near, const double *want,
                       int64_t n)
{
    const double bound = near * 0x1p-24 * largest(want, n);
    for (int64_t k = 0; k < n; k++)
        ck_assert_msg(fabs(got[k] - want[k]) <= bound,
                      "%s, %s: element %lld is %.12g, by definition %.12g, allowed %g",
                      cases[i].expr, how, (long long)k, got[k], want[k], bound);
}

START_TEST(by_definition)
{
    test_unit t;
    double want[MOST], wide[MOST];
    float y[MOST];
    decomposed(&t, cases[_i].expr, cases[_i].type);
    const f8_func *f = test_func(&t, "forward");
    const int64_t n = f8_type_elements(&f->out[0].type);
    test_values in = {.t = &t}, out = {.t = &t};
    fill(&in, f, cases[_i].size, cases[_i].shift);
    const operands o = operands_of(&in);
    cases[_i].define(&o, want);
    test_run_f64(f, &in, &out);
    check_near("in double", _i, test_f64(&out, "y"), 4, want, n);
    run_f32(&t, f, &in, y);
    for (int64_t k = 0; k < n; k++)
        wide[k] = (double)y[k];
    check_near("in f32", _i, wide, cases[_i].near, want, n);
    test_unit_end(&t);
}
END_TEST

START_TEST(bits)
{
    test_unit t;
    float y[MOST];
    decomposed(&t, cases[_i].expr, cases[_i].type);
    const f8_func *f = test_func(&t, "forward");
    const int64_t n = f8_type_elements(&f->out[0].type);
    test_values in = {.t = &t};
    fill(&in, f, cases[_i].size, cases[_i].shift);
    run_f32(&t, f, &in, y);
    const uint64_t hash = f8_hash_bytes(y, (size_t)n * sizeof *y).lo;
    ck_assert_msg(hash == cases[_i].bits, "%s: the bits of the f32 result hash to 0x%016llx",
                  cases[_i].expr, (unsigned long long)hash);
    test_unit_end(&t);
}
END_TEST

/* Each composite, and each op that decompose expands as it does a composite. */
START_TEST(every_composite_has_a_case)
{
    static const f8_op others[] = {F8_OP_AMAX, F8_OP_HISTORY_PUSH};
    for (int op = F8_OP_NONE + 1; op < F8_OP_COUNT; op++) {
        const f8_op_info *o = f8_op_facts((f8_op)op);
        if (o->cls != F8_COMPOSITE && op != (int)others[0] && op != (int)others[1])
            continue;
        const size_t n = strlen(o->name);
        bool found = false;
        for (int k = 0; k < N_CASES; k++)
            found |= !strncmp(cases[k].expr, o->name, n) && cases[k].expr[n] == '(';
        ck_assert_msg(found, "%s has no definition here", o->name);
    }
}
END_TEST

/* ---- what no definition in double says ---- */

/* A target that is no class makes its row's loss and gradient not finite, and no other row's. */
START_TEST(targets_outside)
{
    static const char *const exprs[] = {
        "cross_entropy(%x, %t) {reduction = \"none\"}",
        "cross_entropy_grad(%x, %t, %r) {reduction = \"none\"}",
    };
    test_unit t;
    float y[MOST];
    decomposed(&t, exprs[_i], _i ? ALL : EACH);
    const f8_func *f = test_func(&t, "forward");
    test_values in = {.t = &t};
    fill(&in, f, 3, 0);
    static const int32_t targets[] = {-1, 0, COLS, COLS - 1};
    for (int i = 0; i < ROWS; i++)
        ((int32_t *)test_f64(&in, "t"))[i] = targets[i % 4];
    run_f32(&t, f, &in, y);
    const int64_t each = f8_type_elements(&f->out[0].type) / ROWS;
    for (int64_t i = 0; i < ROWS * each; i++)
        ck_assert_msg(isfinite(y[i]) == (i / each % 2 == 1), "%s: element %lld is %g", exprs[_i],
                      (long long)i, (double)y[i]);
    test_unit_end(&t);
}
END_TEST

/* The least p that drops an element is one step of 2^-32 above the greatest that keeps it. */
START_TEST(limit_of_dropout)
{
    enum { AT = 7 * COLS + 5, STREAM = 5 };
    const uint32_t key = random_word(SEED, STREAM, 0);
    const double word = random_word(AT % COLS, AT / COLS, key) ^ 0x80000000u;
    test_unit t;
    float y[MOST];
    char expr[96];
    snprintf(expr, sizeof expr, "dropout(%%x, %%s) {p = %.17g, stream = %d}", (word + _i) * 0x1p-32,
             STREAM);
    decomposed(&t, expr, ALL);
    const f8_func *f = test_func(&t, "forward");
    test_values in = {.t = &t};
    fill(&in, f, 1, 0);
    run_f32(&t, f, &in, y);
    ck_assert_msg((y[AT] == 0) == _i, "%s gives %g", expr, (double)y[AT]);
    test_unit_end(&t);
}
END_TEST

/* fp8_scale: (max of the format * 2^-margin) / amax, at most the largest f32, and then rounded down
 * to a power of two; `previous`, or else 1, of an amax that can't be divided by. */
START_TEST(scales)
{
    static const float amaxes[COLS] = {3,        448, 1, 1e-45f, FLT_MAX, 0,
                                       INFINITY, NAN, 7, 0.1f,   1e5f,    1e-6f};
    static const struct {
        const char *expr;
        double top;
        bool pow2, keeps;
    } kinds[] = {
        {"fp8_scale(%w)", 448, false, false},
        {"fp8_scale(%w, %b) {format = f8e5m2, margin = 2}", 14336, false, true},
        {"fp8_scale(%w, %b) {margin = 1, pow2 = true}", 224, true, true},
    };
    test_unit t;
    float y[COLS];
    decomposed(&t, kinds[_i].expr, "f32[12]");
    const f8_func *f = test_func(&t, "forward");
    test_values in = {.t = &t};
    fill(&in, f, 1, 0);
    for (int c = 0; c < COLS; c++)
        test_f64(&in, "w")[c] = (double)amaxes[c];
    run_f32(&t, f, &in, y);
    for (int c = 0; c < COLS; c++) {
        const double kept = kinds[_i].keeps ? test_f64(&in, "b")[c] : 1;
        double want = fmin((double)(float)(kinds[_i].top / (double)amaxes[c]), (double)FLT_MAX);
        want = kinds[_i].pow2 ? exp2(floor(log2(want))) : want;
        want = amaxes[c] > 0 && isfinite(amaxes[c]) ? want : kept;
        ck_assert_msg((double)y[c] == want, "%s of %g is %.9g, not %.9g", kinds[_i].expr,
                      (double)amaxes[c], (double)y[c], want);
    }
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("formulas");
    TCase *t = tcase_create("definitions");
    tcase_add_test(t, every_composite_has_a_case);
    tcase_add_loop_test(t, by_definition, 0, N_CASES);
    tcase_add_loop_test(t, targets_outside, 0, 2);
    tcase_add_loop_test(t, limit_of_dropout, 0, 2);
    tcase_add_loop_test(t, scales, 0, 3);
    suite_add_tcase(s, t);
    t = tcase_create("bits");
    tcase_add_loop_test(t, bits, 0, N_CASES);
    suite_add_tcase(s, t);
    return s;
}
