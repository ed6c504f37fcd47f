/* dropout on every target, through the public API: which elements are dropped, bit for bit; that
 * forward, backward and recomputed forwards drop the same; what eval does; and how random the mask
 * is. The CUDA target runs on the emulator, or with FP8C_TEST_GPU on this machine's GPU. */
#include <math.h>

#include "tests/shared/api/pair_layer.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

static const char *targets[] = {"reference", "cpu", "cuda"};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* ---- what is dropped ---- */

static uint32_t key_of(int32_t seed, uint32_t stream)
{
    return test_pcg3d((uint32_t)seed, stream, 0);
}

static bool is_dropped(uint32_t key, int64_t row, int64_t column, double p)
{
    const uint32_t bits = test_pcg3d((uint32_t)column, (uint32_t)row, key) + 0x80000000u;
    return bits < (uint64_t)(p * 0x1p32);
}

typedef struct drop_case {
    const char *shape, *attrs;
    int64_t rows, columns;
    uint32_t stream;
    double p;
} drop_case;

static const drop_case cases[] = {
    {"64, 48", "{p = 0.3}", 64, 48, 0, 0.3},
    {"3, 5, 7, 19", "", 105, 19, 0, 0.1},
    {"1000, 3", "{p = 0.5, stream = 2147483647}", 1000, 3, 2147483647, 0.5},
    {"4099", "{stream = 1, p = 0.999}", 1, 4099, 1, 0.999},
    {"301, 1", "{p = 0.25}", 301, 1, 0, 0.25},
    {"", "{p = 0.5}", 1, 1, 0, 0.5},
    {"9, 8", "{p = 0}", 9, 8, 0, 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static setup a, b;

static void check_case(const drop_case *c, int32_t seed)
{
    const bool is_loss = !*c->shape; /* so a scalar result is called */
    const float *x = pair_find(&a.in, "x")->data, *dx = pair_find(&a.out, "dx")->data;
    const float *dy = pair_find(&a.in, is_loss ? "dloss" : "dy")->data;
    const float *y = pair_find(&a.out, is_loss ? "loss" : "y")->data;
    const float scale = (float)(1 / (1 - c->p));
    for (int64_t i = 0; i < c->rows * c->columns; i++) {
        const bool drop = is_dropped(key_of(seed, c->stream), i / c->columns, i % c->columns, c->p);
        const float want = drop ? 0 : x[i] * scale, dwant = drop ? 0 : dy[i] * scale;
        ck_assert_msg(!memcmp(&y[i], &want, sizeof want), "[%s] %s, seed %d: y[%lld] is %g, not %g",
                      c->shape, c->attrs, (int)seed, (long long)i, (double)y[i], (double)want);
        ck_assert_msg(!memcmp(&dx[i], &dwant, sizeof dwant),
                      "[%s] %s, seed %d: dx[%lld] is %g, not %g", c->shape, c->attrs, (int)seed,
                      (long long)i, (double)dx[i], (double)dwant);
    }
}

static void set_seed(setup *s, int32_t seed)
{
    const fp8c_type type = {.dtype = FP8C_I32};
    pair_set(&s->in, "seed", &type, &seed);
}

/* The formula of OPS.md, by a second implementation. A mask is computed twice and never saved. */
START_TEST(which_elements)
{
    static const int32_t seeds[] = {0, 1, -1, INT32_MIN};
    const drop_case *c = &cases[_i / N_TARGETS];
    char text[512];
    int n;
    snprintf(text, sizeof text,
             "module m\nfunc forward(%%x: f32[%s], %%seed: i32[]) -> (%%y: f32[%s]) {\n"
             "  return dropout(%%x, %%seed) %s\n}\n",
             c->shape, c->shape, c->attrs);
    fp8c_compile_options o = pair_options("f32");
    o.target = targets[_i % N_TARGETS];
    o.gradients_of = "x";
    begin(&a, text, &o);
    ck_assert_int_le(pair_saved_bytes(a.p, "forward", &n), 4); /* the seed */
    for (int i = 0; i < 4; i++) {
        set_seed(&a, seeds[i]);
        pair_step(a.p, false, &a.in, &a.out);
        check_case(c, seeds[i]);
    }
    end(&a);
}
END_TEST

/* ---- streams ---- */

static const char four[] =
    "module m\nfunc forward(%x: f32[64, 48], %seed: i32[])\n"
    "  -> (%a: f32[64, 48], %b: f32[64, 48], %c: f32[64, 48], %d: f32[64, 48]) {\n"
    "  %a = dropout(%x, %seed) {p = 0.5}\n"
    "  %one = dropout(%a, %seed) {p = 0.5, stream = 1}\n"
    "  %two = dropout(%one, %seed) {p = 0.5}\n"
    "  return %a, %one, %two, dropout(%two, %seed) {p = 0.5, stream = 2147483647}\n}\n";

/* Dropouts without a stream get one that no other has: 0 and 2 here. Each drops half of what the
 * one before it left. */
START_TEST(streams)
{
    static const uint32_t stream[] = {0, 1, 2, 2147483647};
    fp8c_compile_options o = pair_options(_i ? "bf16" : "f32");
    o.gradients_of = "x";
    begin(&a, four, &o);
    set_seed(&a, 5);
    pair_run(a.p, "forward", &a.in, &a.out);
    for (int64_t i = 0; i < (int64_t)64 * 48; i++) {
        bool drop = false;
        for (int k = 0; k < 4; k++) {
            const float *y = pair_find(&a.out, (const char[]){(char)('a' + k), 0})->data;
            drop |= is_dropped(key_of(5, stream[k]), i / 48, i % 48, 0.5);
            ck_assert_msg((y[i] == 0) == drop, "%lld of stream %u", (long long)i, stream[k]);
        }
    }
    pair_run(a.p, "eval", &a.in, &a.out); /* nothing is dropped */
    for (int k = 0; k < 4; k++) {
        const pair_value *x = pair_find(&a.in, "x");
        const float *y = pair_find(&a.out, (const char[]){(char)('a' + k), 0})->data;
        for (int64_t i = 0; i < (int64_t)64 * 48; i++)
            ck_assert(fabsf(y[i] - ((const float *)x->data)[i]) <=
                      (_i ? 0x1p-8f : 0) * fabsf(y[i]));
    }
    end(&a);
}
END_TEST

/* ---- attention ---- */

static const char in_attention[] =
    "module m\nfunc forward(%q: f32[2, 9, 24], %k: f32[2, 13, 24], %v: f32[2, 13, 24], "
    "%seed: i32[]) -> (%y: f32[2, 9, 24]) {\n"
    "  return attention(%q, %k, %v, %seed) "
    "{heads = 3, causal = false, scale = 0.5, dropout = 0.3}\n}\n";

static const char written_out[] =
    "module m\nfunc forward(%q: f32[2, 9, 24], %k: f32[2, 13, 24], %v: f32[2, 13, 24], "
    "%seed: i32[]) -> (%y: f32[2, 9, 24]) {\n"
    "  %qh = transpose(reshape(%q) {shape = [2, 9, 3, 8]}) {perm = [0, 2, 1, 3]}\n"
    "  %kh = transpose(reshape(%k) {shape = [2, 13, 3, 8]}) {perm = [0, 2, 1, 3]}\n"
    "  %vh = transpose(reshape(%v) {shape = [2, 13, 3, 8]}) {perm = [0, 2, 1, 3]}\n"
    "  %p = softmax(mul(batch_matmul(%qh, %kh) {transpose_b = true}, 0.5))\n"
    "  %o = batch_matmul(dropout(%p, %seed) {p = 0.3}, %vh)\n"
    "  return reshape(transpose(%o) {perm = [0, 2, 1, 3]}) {shape = [2, 9, 24]}\n}\n";

/* Within a few roundings: a weight that one drops and the other does not shows. */
static void check_near(const char *name, float most)
{
    const pair_value *x = pair_find(&a.out, name), *y = pair_find(&b.out, name);
    const int64_t n = fp8c_type_bytes(&x->type) / 4;
    for (int64_t i = 0; i < n; i++) {
        const float u = ((const float *)x->data)[i], v = ((const float *)y->data)[i];
        ck_assert_msg(fabsf(u - v) <= most * (1 + fabsf(v)), "%s[%lld] is %g, not %g", name,
                      (long long)i, (double)u, (double)v);
    }
}

/* attention drops what dropout drops of the softmax [B, H, T, S], and eval nothing; forward and
 * gradients, on every target. */
START_TEST(inside_attention)
{
    fp8c_compile_options o = pair_options(_i / N_TARGETS ? "bf16" : "f32");
    o.target = targets[_i % N_TARGETS];
    o.gradients_of = "q,k,v";
    const float most = _i / N_TARGETS ? 0.1f : 1e-5f;
    begin(&a, in_attention, &o);
    begin(&b, written_out, &o);
    for (int32_t seed = 1; seed < 4; seed++) {
        set_seed(&a, seed);
        set_seed(&b, seed);
        pair_step(a.p, false, &a.in, &a.out);
        pair_step(b.p, false, &b.in, &b.out);
        check_near("y", most);
        check_near("dq", most);
        check_near("dk", most);
        check_near("dv", most);
    }
    pair_run(a.p, "eval", &a.in, &a.out);
    pair_run(b.p, "eval", &b.in, &b.out);
    check_near("y", most);
    end(&a);
    end(&b);
}
END_TEST

/* ---- recipes, recomputation ---- */

static const char layer_of[] =
    "module m\nparam wte: f32[64, 128] normal(0.5)\nparam up: f32[128, 256] normal(0.1)\n"
    "param down: f32[256, 128] normal(0.1)\nparam ln: f32[128] ones\n"
    "func forward(%%ids: i32[64], %%seed: i32[]) -> (%%loss: f32[]) {\n"
    "  %%e = embedding(wte, %%ids)\n  %%x = %s\n"
    "  %%n = reshape(rmsnorm(%%x, ln)) {shape = [2, 32, 128]}\n"
    "  %%a = attention(%%n, %%n, %%n%s\n"
    "  %%s = batch_matmul(softmax(batch_matmul(%%a, %%n) {transpose_b = true}), %%n)\n"
    "  %%f = gelu(linear(reshape(%%s) {shape = [64, 128]}, up))\n  %%h = %s\n"
    "  %%g = linear(%%h, down)\n  %%y = add(%%x, %s)\n"
    "  return cross_entropy(linear(%%y, wte) {transpose_b = true, name = \"head\"}, %%ids)\n}\n"
    "optimizer adamw {lr = 1e-3}\n";

static void begin_layer(setup *s, bool drops, const fp8c_compile_options *o)
{
    char text[1024];
    if (drops)
        snprintf(text, sizeof text, layer_of, "dropout(%e, %seed)",
                 ", %seed) {heads = 4, dropout = 0.2}", "dropout(%f, %seed)", "dropout(%g, %seed)");
    else
        snprintf(text, sizeof text, layer_of, "%e", ") {heads = 4}", "%f", "%g");
    begin(s, text, o);
}

static void step(setup *s, int32_t seed)
{
    const int prepare = fp8c_program_function(s->p, "prepare");
    set_seed(s, seed);
    if (prepare >= 0)
        ck_assert_int_eq(fp8c_program_run(s->p, prepare), FP8C_OK);
    pair_run(s->p, "micro_step", &s->in, &s->out);
    pair_variables(s->p, "grad.", &s->out);
}

static float loss_of(const setup *s)
{
    return *(const float *)pair_find(&s->out, "loss")->data;
}

static void check_same(const char *what)
{
    static const char *const names[] = {"loss", "grad.wte", "grad.up", "grad.down", "grad.ln"};
    for (int i = 0; i < 5; i++)
        ck_assert_msg(pair_equal(&a.out, &b.out, names[i]), "%s: %s", what, names[i]);
}

/* Whatever is recomputed, with every recipe and on every target: the same bits of three accumulated
 * micro-steps, the last of them with the seed of the first. */
START_TEST(recomputed)
{
    const char *name = recipes[_i % N_RECIPES];
    fp8c_compile_options o = recipe(name);
    float loss[3];
    o.target = targets[1 + _i / N_RECIPES];
    begin_layer(&a, true, &o);
    o.checkpoint = ""; /* keep nothing */
    begin_layer(&b, true, &o);
    for (int i = 0; i < 3; i++) {
        step(&a, i % 2);
        step(&b, i % 2);
        check_same(name);
        loss[i] = loss_of(&a);
    }
    ck_assert_msg(loss[0] != loss[1], "%s: the seed changes nothing", name);
    ck_assert_msg(loss[0] == loss[2] || !strcmp(name, "delayed"), "%s: another loss of one seed",
                  name);
    end(&b);
    end(&a);
}
END_TEST

/* eval has the bits of the same model without dropout. */
START_TEST(eval_drops_nothing)
{
    const fp8c_compile_options o = recipe(recipes[_i]);
    begin_layer(&a, true, &o);
    begin_layer(&b, false, &o);
    set_seed(&a, 3);
    pair_run(a.p, "eval", &a.in, &a.out);
    set_seed(&b, 4);
    pair_run(b.p, "eval", &b.in, &b.out);
    ck_assert_msg(pair_equal(&a.out, &b.out, "loss"), "%s", recipes[_i]);
    end(&b);
    end(&a);
}
END_TEST

/* ---- how random it is ---- */

/* Each figure z below is asymptotically normal with mean 0 and variance 1 if the elements are
 * independent. FIGURES of them in all stay within LIMIT but for a probability of
 * 600 * 2 Q(5.5) < 3e-5, and their mean square is 1 with a standard deviation of sqrt(2 / n). The
 * seeds are fixed, so the test either passes always or never. */
enum { ROWS_S = 512, COLUMNS_S = 1024, FIGURES = 600 };
#define LIMIT 5.5

typedef struct figures {
    double squares;
    int n;
} figures;

static void look(figures *f, const char *what, int which, double p, double z)
{
    ck_assert_msg(fabs(z) < LIMIT, "%s %d, p = %g: %g standard deviations", what, which, p, z);
    f->squares += z * z;
    f->n++;
}

/* A chi-square of n degrees of freedom, made normal. */
static double normal(double chi2, double n)
{
    return (chi2 - n) / sqrt(2 * n);
}

static float mask[2][ROWS_S * COLUMNS_S];

/* The part of a mask that begins at (row, column). */
static void fill_part(float *m, uint32_t key, int64_t row, int64_t column, double p)
{
    for (int r = 0; r < ROWS_S; r++)
        for (int c = 0; c < COLUMNS_S; c++)
            m[r * COLUMNS_S + c] = (float)is_dropped(key, row + r, column + c, p);
}

static void fill(float *m, int32_t seed, uint32_t stream, double p)
{
    fill_part(m, key_of(seed, stream), 0, 0, p);
}

/* Covariance of elements that lie (down, right) from each other, in two masks or one. */
static double correlation(const float *m, const float *other, int down, int right, double p)
{
    double sum = 0;
    for (int r = 0; r + down < ROWS_S; r++) {
        const float *x = m + r * COLUMNS_S, *y = other + (r + down) * COLUMNS_S + right;
        float row = 0, both = 0; /* exact: counts */
        for (int c = 0; c + right < COLUMNS_S; c++) {
            both += x[c] * y[c];
            row += x[c] + y[c];
        }
        sum += (double)both - p * (double)row + p * p * (COLUMNS_S - right);
    }
    return sum / (p * (1 - p) * sqrt((double)(ROWS_S - down) * (COLUMNS_S - right)));
}

/* Rows or columns: the variance of their numbers of dropped elements. */
static double spread(const float *m, int n, int stride, int each, int step_, double p)
{
    double chi2 = 0;
    for (int i = 0; i < n; i++) {
        double count = 0;
        for (int k = 0; k < each; k++)
            count += (double)m[i * stride + k * step_];
        chi2 += (count - each * p) * (count - each * p) / (each * p * (1 - p));
    }
    return normal(chi2, n);
}

/* The patterns of `high` x (12 / high) elements, 2^12 of them, are equally frequent at p = 1/2. */
static double patterns(const float *m, int high)
{
    enum { BITS = 12, N = 1 << BITS };
    static double count[N];
    const int wide = BITS / high;
    double n = 0, chi2 = 0;
    memset(count, 0, sizeof count);
    for (int r = 0; r + high <= ROWS_S; r += high)
        for (int c = 0; c + wide <= COLUMNS_S; c += wide, n++) {
            unsigned bits = 0;
            for (int k = 0; k < BITS; k++)
                bits = 2 * bits + (m[(r + k / wide) * COLUMNS_S + c + k % wide] != 0);
            count[bits]++;
        }
    for (int i = 0; i < N; i++)
        chi2 += (count[i] - n / N) * (count[i] - n / N) / (n / N);
    return normal(chi2, N - 1);
}

START_TEST(statistics)
{
    static const double ps[] = {0.5, 0.1, 0.01};
    static const int32_t seeds[] = {0, 123456789};
    const double p = ps[_i / 2];
    const int32_t seed = seeds[_i % 2];
    const double all = (double)ROWS_S * COLUMNS_S;
    figures f = {0};
    double sum = 0;
    fill(mask[0], seed, 0, p);
    for (int i = 0; i < ROWS_S * COLUMNS_S; i++)
        sum += (double)mask[0][i];
    look(&f, "the number of all", 0, p, (sum - all * p) / sqrt(all * p * (1 - p)));
    look(&f, "rows", 0, p, spread(mask[0], ROWS_S, COLUMNS_S, COLUMNS_S, 1, p));
    look(&f, "columns", 0, p, spread(mask[0], COLUMNS_S, 1, ROWS_S, COLUMNS_S, p));
    for (int high = 1; high <= 12 && p == 0.5; high++)
        if (12 % high == 0)
            look(&f, "patterns of rows", high, p, patterns(mask[0], high));
    for (int i = 0; i < 13; i++) {
        const int lag = i < 8 ? i + 1 : 1 << (i - 4);
        look(&f, "columns apart", lag, p, correlation(mask[0], mask[0], 0, lag, p));
        look(&f, "rows apart", lag, p, correlation(mask[0], mask[0], lag, 0, p));
        look(&f, "rows and columns apart", lag, p, correlation(mask[0], mask[0], lag, lag, p));
    }
    for (int bit = 12; bit <= 30; bit += 3) { /* a weak hash does not mix the upper bits */
        fill_part(mask[1], key_of(seed, 0), 0, INT64_C(1) << bit, p);
        look(&f, "columns 2^k apart, k =", bit, p, correlation(mask[0], mask[1], 0, 0, p));
        fill_part(mask[1], key_of(seed, 0), INT64_C(1) << bit, 0, p);
        look(&f, "rows 2^k apart, k =", bit, p, correlation(mask[0], mask[1], 0, 0, p));
    }
    for (int i = 1; i <= 8; i++) {
        const int far = i <= 4 ? i : 1 << (2 * i);
        fill(mask[1], seed + far, 0, p);
        look(&f, "seeds apart", far, p, correlation(mask[0], mask[1], 0, 0, p));
        fill(mask[1], seed, (uint32_t)far, p);
        look(&f, "streams apart", far, p, correlation(mask[0], mask[1], 0, 0, p));
        look(&f, "streams and columns apart", far, p, correlation(mask[0], mask[1], 0, 1, p));
    }
    ck_assert_int_le(6 * f.n, FIGURES);
    ck_assert_msg(fabs(f.squares / f.n - 1) < LIMIT * sqrt(2.0 / f.n), "mean square %g of %d",
                  f.squares / f.n, f.n);
}
END_TEST

/* One place over many seeds, one a step, and over many streams. */
START_TEST(over_steps)
{
    enum { STEPS = 1 << 16, PLACES = 8 };
    static const double p = 0.1;
    figures f = {0};
    for (int place = 0; place < PLACES; place++)
        for (int kind = 0; kind < 2; kind++) {
            double sum = 0, pairs = 0, last = 0;
            for (int i = 0; i < STEPS; i++) {
                const uint32_t key = kind ? key_of(7, (uint32_t)i) : key_of(i, 0);
                const double x = is_dropped(key, place / 4, place % 4, p) - p;
                sum += x;
                pairs += x * last;
                last = x;
            }
            look(&f, kind ? "streams" : "seeds", place, p, sum / sqrt(STEPS * p * (1 - p)));
            look(&f, kind ? "streams, in turn" : "seeds, in turn", place, p,
                 pairs / (p * (1 - p) * sqrt(STEPS)));
        }
    ck_assert(fabs(f.squares / f.n - 1) < LIMIT * sqrt(2.0 / f.n));
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    if (getenv("FP8C_TEST_PEER")) /* where there is no LLVM */
        targets[1] = getenv("FP8C_TEST_PEER");
    Suite *s = suite_create("dropout");
    TCase *t = tcase_create("dropout");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, which_elements, 0, N_CASES * N_TARGETS);
    tcase_add_loop_test(t, streams, 0, 2);
    tcase_add_loop_test(t, inside_attention, 0, 2 * N_TARGETS);
    tcase_add_loop_test(t, recomputed, 0, 2 * N_RECIPES - 1); /* sm_90a has no mxfp8 */
    tcase_add_loop_test(t, eval_drops_nothing, 0, N_RECIPES);
    tcase_add_loop_test(t, statistics, 0, 6);
    tcase_add_test(t, over_steps);
    suite_add_tcase(s, t);
    return s;
}
