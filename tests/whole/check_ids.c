/* Ids of i64 beside the same ids of i32, on every target: a pair of forward and backward whose ids,
 * targets and results of i64 are the caller's tensors gives the bits of its twin. An id beyond 32
 * bits counts as the nearest i32, which is no row: never as its low half. */
#include "tests/shared/api/pair_layer.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const char *targets[] = {"reference", "cpu", "cuda"};
static const char *const of_ids[] = {"f32", "bf16", "delayed"};
enum { N_TARGETS = 3, N_OF_IDS = 3, LONG = 36, SHORT = 4, MOST = 4096 };

/* Ids of I pass through ops that move elements before the table and the loss read them. */
#define MODEL(I)                                                                                   \
    "module ids\n"                                                                                 \
    "param wte: f32[16, 32] normal(0.5)\nparam fc: f32[32, 32] normal(0.2)\n"                      \
    "func forward(%tokens: " I "[4, 36], %targets: " I "[4, 36], %more: " I "[4, 4])\n"            \
    "  -> (%loss: f32[], %each: f32[4, 32], %near: i32[4, 36], %next: " I "[4, 36]) {\n"           \
    "  %ids = slice(%tokens) {axis = 1, start = 4, stop = 36}\n"                                   \
    "  %all = concat(%ids, transpose(%more) {perm = [1, 0]}) {axis = 1}\n"                         \
    "  %x = embedding(wte, %all) {padding = 3}\n"                                                  \
    "  %h = linear(%x, fc) {name = \"fc\"}\n"                                                      \
    "  %logits = linear(%h, wte) {transpose_b = true, name = \"head\"}\n"                          \
    "  %loss = cross_entropy(%logits, %targets) {ignore = -100, label_smoothing = 0.1}\n"          \
    "  %flat = reshape(slice(%h) {axis = 1, stop = 1}) {shape = [4, 32]}\n"                        \
    "  %near = cast(%targets) {to = i32}\n"                                                        \
    "  return %loss, %flat, %near, cast(add(%near, 1)) {to = " I "}\n}\n"

/* Values that i32 has, and those beyond it that the twin has the nearest of. */
static int64_t id(const char *name, int64_t i, bool beyond)
{
    const int64_t x = (i * 7 + name[0]) % 16;
    if (name[0] == 't' && name[1] == 'a' && i % 9 == 4)
        return -100;
    if (!beyond || i % 11 != 3)
        return x;
    const int64_t far = (int64_t)1 << (32 + i % 31);
    return i % 2 ? x + far : x - far;
}

static int32_t nearest(int64_t x)
{
    return (int32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}

static void fill(setup *s, const char *name, int rows, int columns, bool wide, bool beyond)
{
    const fp8c_type type = {wide ? FP8C_I64 : FP8C_I32, 2, {rows, columns}};
    int64_t x[MOST];
    int32_t narrow[MOST];
    for (int64_t i = 0; i < rows * columns; i++) {
        x[i] = id(name, i, beyond);
        narrow[i] = nearest(x[i]);
    }
    pair_set(&s->in, name, &type, wide ? (const void *)x : narrow);
}

static void step(setup *s, const char *text, const char *target, const char *name, bool beyond)
{
    const bool wide = strstr(text, "i64") != NULL;
    fp8c_compile_options o = pair_options(name);
    o.target = target;
    o.cotangents = "loss,each";
    begin(s, text, &o);
    fill(s, "tokens", 4, LONG, wide, beyond);
    fill(s, "targets", 4, LONG, wide, beyond);
    fill(s, "more", SHORT, 4, wide, beyond);
    pair_step(s->p, false, &s->in, &s->out);
}

static void same(const setup *a, const setup *b, const char *name, const char *what)
{
    ck_assert_msg(pair_equal(&a->out, &b->out, name), "%s %s", name, what);
}

/* The result of i64 has the values of its twin's. */
static void same_next(const setup *wide, const setup *narrow, const char *what)
{
    const int64_t *a = pair_find(&wide->out, "next")->data;
    const int32_t *b = pair_find(&narrow->out, "next")->data;
    for (int i = 0; i < 4 * LONG; i++)
        ck_assert_msg(a[i] == b[i], "next[%d] %s: %lld, not %d", i, what, (long long)a[i], b[i]);
}

static setup a, b;

START_TEST(wide_and_narrow)
{
    static const char *const results[] = {"loss", "each", "near", "wte", "fc"};
    const char *target = targets[_i % N_TARGETS], *name = of_ids[_i / N_TARGETS % N_OF_IDS];
    const bool beyond = _i >= N_TARGETS * N_OF_IDS;
    char what[80];
    snprintf(what, sizeof what, "on %s under %s%s", target, name, beyond ? ", beyond" : "");
    step(&a, MODEL("i64"), target, name, beyond);
    step(&b, MODEL("i32"), target, name, beyond);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        same(&a, &b, results[i], what);
    same_next(&a, &b, what);
    const float loss = *(float *)pair_find(&a.out, "loss")->data;
    ck_assert_msg(beyond != (loss - loss == 0), "%s: a loss of %g", what, (double)loss);
    end(&a);
    end(&b);
}
END_TEST

/* What came in as i64 can't go out as such: kernels hold 32 bits. */
START_TEST(results)
{
    fp8c_compile_options o = pair_options("f32");
    fp8c_context *ctx = new_context();
    refused(
        ctx,
        "module t\nparam w: f32[4, 2] zeros\n"
        "func forward(%ids: i64[3]) -> (%y: f32[3, 2], %i: i64[2]) {\n"
        "  return embedding(w, %ids), slice(%ids) {stop = 2}\n}\n",
        &o, FP8C_ERR_INPUT,
        "tiny.f8:4:20: error: result 'i': an i64 must be a cast of an i32, not what 'slice' gives");
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    if (getenv("FP8C_TEST_PEER")) /* where there is no LLVM */
        targets[1] = getenv("FP8C_TEST_PEER");
    Suite *s = suite_create("ids");
    TCase *t = tcase_create("ids");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, wide_and_narrow, 0, 2 * N_TARGETS * N_OF_IDS);
    tcase_add_test(t, results);
    suite_add_tcase(s, t);
    return s;
}
