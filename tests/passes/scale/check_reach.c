/* A weight's scale under `delayed` is known before the weight is: it follows from the most that
 * AdamW can make of it (passes/unit/formulas.h, f8_adamw_reach). So no code of a weight saturates,
 * whatever gradients come: the tests write those themselves. */
#include "tests/shared/api/codes_case.h"
#include "tests/shared/suite.h"

#include <math.h>

enum { ROW = 32, COLUMNS = 16, ELEMENTS = ROW * COLUMNS, UPDATES = 40 };

/* The parameter `zeros` begins as zeros. Tests give its gradient. */
static const char text[] =
    "module reach\n"
    "param wte: f32[16, 32] normal(0.5)\n"
    "param zeros: f32[32, 16] zeros\n"
    "param free: f32[16, 32] normal(0.1)\n"
    "func forward(%%tokens: i32[8], %%targets: i32[8]) -> (%%loss: f32[]) {\n"
    "  %%x = embedding(wte, %%tokens)\n"
    "  %%y = add(%%x, linear(linear(%%x, zeros), free))\n"
    "  return cross_entropy(linear(%%y, wte) {transpose_b = true, name = "
    "\"head\"}, %%targets)\n"
    "}\n"
    "optimizer adamw {%s}\n"
    "recipe \"head\" = bf16\n";

typedef struct trainee {
    fp8c_context *ctx;
    fp8c_program *p;
    int slot; /* of `zeros` in the histories */
} trainee;

static int variable(const trainee *t, const char *name)
{
    const int v = fp8c_program_find_variable(t->p, name);
    ck_assert_msg(v >= 0, "no %s", name);
    return v;
}

/* A variable's values, by the bytes of its elements; the caller frees. */
static void *read_all(const trainee *t, const char *name)
{
    fp8c_variable v;
    const int i = variable(t, name);
    ck_assert_int_eq(fp8c_program_variable(t->p, i, &v), FP8C_OK);
    void *value = malloc((size_t)fp8c_type_bytes(&v.type));
    ck_assert_int_eq(fp8c_program_read(t->p, i, value), FP8C_OK);
    return value;
}

static void run(const trainee *t, const char *function)
{
    ck_assert_msg(fp8c_program_run(t->p, fp8c_program_function(t->p, function)) == FP8C_OK,
                  "%s: %s", function, fp8c_context_message(t->ctx));
}

/* lr: an option that replaces the optimizer's; 0: none. */
static trainee begin(const char *recipe_text, const char *optimizer, float lr)
{
    trainee t = {.ctx = new_context()};
    char whole[sizeof text + 256];
    snprintf(whole, sizeof whole, text, optimizer);
    const codes_setup s = {
        .text = whole, .options = {.target = "cpu", .recipe = recipe_text, .threads = 1, .lr = lr}};
    t.p = codes_compile(t.ctx, &s, 0);
    ck_assert_int_eq(fp8c_program_initialize(t.p, 1), FP8C_OK);
    const int scale = variable(&t, "fp8.scale");
    while (strcmp(fp8c_program_element(t.p, scale, t.slot, 0), "zeros.w"))
        t.slot++;
    codes_fill(t.p, "micro_step", 16, 3);
    return t;
}

static void end(trainee *t)
{
    fp8c_program_destroy(t->p);
    fp8c_context_destroy(t->ctx);
}

static float amax_of(const trainee *t, const char *name)
{
    float *w = read_all(t, name), most = 0;
    for (int i = 0; i < ELEMENTS; i++)
        most = fmaxf(most, fabsf(w[i]));
    ck_assert(isfinite(most));
    free(w);
    return most;
}

static float element(const trainee *t, const char *name, int64_t index)
{
    float *all = read_all(t, name), value = all[index];
    free(all);
    return value;
}

/* The newest entry of the weight's history. */
static float newest(const trainee *t)
{
    fp8c_variable v;
    fp8c_program_variable(t->p, variable(t, "fp8.amax_history"), &v);
    return element(t, "fp8.amax_history", t->slot * v.type.dim[1]);
}

/* ---- gradients ---- */

enum { ONE_SIGN, GROWING, SPIKES, TURNING, TINY, HUGE_ONES, GRADIENTS };

static float gradient(int kind, int i, int step, double growth)
{
    const float sign = i % 3 ? 1 : -1;
    switch (kind) {
    case GROWING: return sign * (float)(1e-4 * pow(growth, step)); /* where the bound is reached */
    case SPIKES: return sign * (step % 7 == i % 7 ? 1000.0f : 1e-3f);
    case TURNING: return sign * (step % 5 < 3 ? 1.0f : -2.0f);
    case TINY: return sign * ldexpf(1, -80 - step % 4); /* below eps, and squares underflow */
    case HUGE_ONES: return sign * ldexpf(1, 45 + step % 3);
    default: return sign;
    }
}

/* A micro-step whose gradients are replaced. skip: one of them is NaN. */
static void update(const trainee *t, int kind, int step, double growth, bool skip)
{
    run(t, "micro_step");
    float g[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        g[i] = gradient(kind, i, step, growth);
    if (skip)
        g[5] = NAN;
    ck_assert_int_eq(fp8c_program_write(t->p, variable(t, "grad.zeros"), g), FP8C_OK);
    run(t, "update");
}

/* ---- the bound ---- */

static float decoded(uint8_t code) /* E4M3 */
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float value =
        exponent ? ldexpf(1 + fraction / 8.0f, exponent - 7) : ldexpf((float)fraction, -9);
    return code & 0x80 ? -value : value;
}

/* The codes are of this weight and scale, none of them saturated, and they are not all zeros unless
 * the weight is. small: it is so much smaller than the learning rate that they may be. */
static void check_codes(const trainee *t, const char *what, bool small)
{
    uint8_t *code = read_all(t, "fp8.codes.zeros.w.q");
    float *w = read_all(t, "zeros"), scale = element(t, "fp8.scale", t->slot);
    bool any = false, zero = true;
    for (int i = 0; i < ELEMENTS; i++) {
        const float product = w[i] * scale, got = decoded(code[i]);
        ck_assert_msg(fabsf(product) <= 448 * 1.04f, "%s: %g times the scale %g saturates", what,
                      (double)w[i], (double)scale);
        ck_assert_msg(fabsf(got - product) <= fabsf(product) / 16 + 0x1p-10f, "%s: %g for %g", what,
                      (double)got, (double)product);
        any |= got != 0;
        zero &= w[i] == 0;
    }
    ck_assert_msg(any || zero || small, "%s: all codes are zeros", what);
    free(code);
    free(w);
}

typedef struct adam {
    double beta1, beta2, lr;
    const char *more;
} adam;

static const adam adams[] = {
    {0.9, 0.95, 0.1, "warmup = 20, eps = 1e-8, weight_decay = 0.1"},
    {0.9, 0.999, 0.1, "warmup = 5, eps = 1e-8, weight_decay = 0.01"},
    {0.95, 0.95, 0.1, "warmup = 20, schedule = \"cosine\", steps = 30, min_lr = 0.1"},
    {0, 0.5, 0.1, "eps = 1e-12, weight_decay = 0"},
    {0.99, 0.999, 0.1, "clip = 1, weight_decay = 0.1"},
    {0.999, 0.999, 1, "warmup = 3, weight_decay = 0.1"},
};
static const char *const histories[] = {"delayed", "delayed {history = 1}",
                                        "delayed {amax = most_recent, pow2 = true}"};
enum { ADAMS = sizeof adams / sizeof *adams, HISTORIES = sizeof histories / sizeof *histories };

/* After each of 40 updates, some of which are skipped, the newest entry of the weight's history is
 * at least its amax. Where gradients grow as they have to, an update moves the weight by 0.95 of
 * the bound: it is no larger than it need be. */
static void check_bound(const adam *a, int kind, const char *history)
{
    char optimizer[200], what[320];
    snprintf(optimizer, sizeof optimizer, "lr = %g, beta1 = %g, beta2 = %g, %s", a->lr, a->beta1,
             a->beta2, a->more);
    trainee t = begin(history, optimizer, 0);
    const double most =
        (1 - a->beta1) / sqrt((1 - a->beta2) * (1 - a->beta1 * a->beta1 / a->beta2));
    double furthest = 0;
    for (int step = 0; step < UPDATES; step++) {
        const bool skip = step % 6 == 3;
        const float before = amax_of(&t, "zeros");
        snprintf(what, sizeof what, "%s, %s, gradients %d, update %d", history, optimizer, kind,
                 step);
        const float last = newest(&t);
        update(&t, kind, step, a->beta1 > 0 ? a->beta2 / a->beta1 : 1, skip);
        const float amax = amax_of(&t, "zeros");
        const int f = fp8c_program_function(t.p, "update");
        const float lr = *(const float *)fp8c_program_buffer(
            t.p, f, FP8C_OUTPUT, fp8c_program_find_port(t.p, f, FP8C_OUTPUT, "lr"));
        ck_assert_msg(amax <= newest(&t), "%s: amax %.9g after %.9g, history %.9g", what,
                      (double)amax, (double)before, (double)newest(&t));
        if (skip)
            ck_assert(newest(&t) == last && amax == before);
        else
            furthest = fmax(furthest, (amax - before) / (lr * most));
        check_codes(&t, what, kind == TINY);
    }
    ck_assert_msg(isfinite(furthest) && furthest <= 1 + 0x1p-8, "%s: %g of the bound", what,
                  furthest);
    if (kind == GROWING && !strstr(a->more, "weight_decay") && !strstr(a->more, "clip"))
        ck_assert_msg(furthest > 0.95, "%s: %g of the bound", what, furthest);
    end(&t);
}

START_TEST(bounded)
{
    for (int kind = 0; kind < GRADIENTS; kind++)
        check_bound(&adams[_i], kind, histories[(_i + kind) % HISTORIES]);
}
END_TEST

/* Optimizers without such a bound. */
static const struct {
    adam adam;
    int kind;
    float lr; /* an option that replaces the text's; 0: none */
} unbounded[] = {
    {{0.9, 0.81, 0.1, "eps = 1e-8"}, GROWING, 0},        /* beta1^2 = beta2 */
    {{0.95, 0.5, 0.01, "eps = 1e-8"}, SPIKES, 0},        /* it is larger */
    {{0, 0, 0.1, "eps = 1e-8"}, ONE_SIGN, 0},            /* their ratio is not defined */
    {{0.9, 0.95, 0.1, "eps = 1e-30"}, TINY, 0},          /* a square of zero, and hardly an eps */
    {{0.9, 0.95, 0.1, "weight_decay = 30"}, TURNING, 0}, /* it makes weights larger */
    {{0.9, 0.95, 1e-3, "weight_decay = 30"}, TURNING, 0.1f},
    {{0.9999999, 0.9999999, 0.1, "eps = 1e-8"}, ONE_SIGN, 0}, /* 1 - beta is mostly rounding */
};
enum { UNBOUNDED = sizeof unbounded / sizeof *unbounded };

/* Their weights keep no codes. A weight's history gets the amax that the weight has, which is its
 * next scale's, and the model trains. */
START_TEST(without_bound)
{
    const adam *a = &unbounded[_i].adam;
    char optimizer[200];
    snprintf(optimizer, sizeof optimizer, "lr = %g, beta1 = %.9g, beta2 = %.9g, %s", a->lr,
             a->beta1, a->beta2, a->more);
    trainee t = begin("delayed {history = 1}", optimizer, unbounded[_i].lr);
    ck_assert_int_eq(codes_kept(t.p), 0);
    for (int step = 0; step < 12; step++) {
        const float before = amax_of(&t, "zeros");
        update(&t, unbounded[_i].kind, step, 1, false);
        const float amax = amax_of(&t, "zeros");
        ck_assert(amax != before);
        ck_assert_float_eq(newest(&t), amax);
        ck_assert_float_eq(element(&t, "fp8.scale", t.slot), 448 / amax);
    }
    end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("reach");
    TCase *t = tcase_create("reach");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, bounded, 0, ADAMS);
    tcase_add_loop_test(t, without_bound, 0, UNBOUNDED);
    suite_add_tcase(s, t);
    return s;
}
