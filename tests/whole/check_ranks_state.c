/* What several ranks agree on: the bits of a training without GEMMs on every target and with every
 * option that may change none; scales and amax histories of `delayed`, where the ranks see numbers
 * of other sizes; and steps that all skip because one of them has no finite gradient. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/shared/api/rank_case.h"
#include "tests/shared/suite.h"

/* DIGEST: bytes that say what a rank runs, compared before the first run. */
enum { ROWS = 12, DIGEST = 16 };

static uint32_t hashed(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* -1 to 1, by the row in the batches of all ranks. */
static float element(const char *port, int row, int column)
{
    const uint32_t h = hashed(hashed((uint32_t)*port * 7919u + (uint32_t)row) + (uint32_t)column);
    return (float)((int)(h >> 8) - 0x800000) * 0x1p-23f;
}

static void fill(const rank_case *c, int rank, int batch, const char *port, const fp8c_type *type,
                 void *data)
{
    const int rows = (int)type->dim[0], columns = (int)type->dim[1];
    (void)c;
    for (int i = 0; i < rows * columns; i++)
        ((float *)data)[i] = element(port, batch * ROWS + rank * rows + i / columns, i % columns);
}

static void all_agree(const rank_case *c, const char *what)
{
    for (int r = 1; r < c->ranks; r++) {
        rank_case_same(c, r, c, 0, what);
        static const char *const results[] = {"micro_step:loss", "update:grad_norm",
                                              "update:skipped"};
        for (int i = 0; i < 3; i++)
            ck_assert_mem_eq(rank_case_floats(c, r, results[i], NULL),
                             rank_case_floats(c, 0, results[i], NULL), sizeof(float));
    }
}

/* ---- no GEMM: the CPU and the interpreter round alike ---- */

static const char pointwise[] =
    "module pointwise\n"
    "dim B = 12, C = 1500\n"
    "param w: f32[3, C] normal(0.5)\n"
    "param b: f32[C] normal(0.1)\n"
    "param s: f32[] const(0.75)\n"
    "param idle: f32[5] ones\n"
    "func forward(%x: f32[B, C], %t: f32[B, C]) -> (%loss: f32[]) {\n"
    "  repeat l < 3 carry %y = %x {\n"
    "    %row = slice(w) {axis = 0, start = l, stop = l + 1}\n"
    "    %u = gelu(add(mul(%y, %row), b)) {approximate = \"tanh\"}\n"
    "    %y = add(%y, mul(%u, s))\n"
    "  }\n"
    "  %d = sub(%y, %t)\n"
    "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"
    "}\n"
    "optimizer adamw {lr = 0.01, clip = 0.01, weight_decay = 0.1}\n"
    "accumulate 3\n";

static rank_case pointwise_case(int ranks)
{
    return (rank_case){.text = pointwise,
                       .dim = {{"B", ROWS / ranks}},
                       .options = {.recipe = "f32"},
                       .ranks = ranks,
                       .steps = 2,
                       .accumulate = 3,
                       .fill = fill};
}

START_TEST(same_bits)
{
    const int ranks = _i + 2;
    rank_case plain = pointwise_case(ranks);
    rank_case_run(&plain);
    all_agree(&plain, "plain");
    ck_assert_float_gt(*rank_case_floats(&plain, 0, "update:grad_norm", NULL), 0.01f);
    const struct {
        const char *what;
        fp8c_compile_options options;
    } other[] = {{"again", {0}},
                 {"interpreted", {.target = "reference"}},
                 {"unfused", {.no_fuse = 1}},
                 {"two threads", {.threads = 2}},
                 {"a budget", {.memory_share = 0.6}}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        rank_case c = pointwise_case(ranks);
        c.options = other[i].options;
        c.options.recipe = "f32";
        rank_case_run(&c);
        for (int r = 0; r < ranks; r++)
            rank_case_same(&c, r, &plain, 0, other[i].what);
        rank_case_end(&c);
    }
    rank_case_end(&plain);
}
END_TEST

/* What a micro_step moves: its gradients, all small, as one vector two ways round a ring; what does
 * not divide by the ranks; and the loss. Before the first the ranks compare what they run. An
 * update moves each rank's part of the norm. */
START_TEST(traffic)
{
    const int ranks = _i + 2;
    rank_case c = pointwise_case(ranks);
    rank_case_run(&c);
    const int64_t n = 3 * 1500 + 1500 + 1, others = ranks - 1, rest = n % ranks,
                  each = 2 * (n / ranks) + rest + 1;
    ck_assert_int_gt(n / ranks, 1024);
    for (int r = 0; r < ranks; r++) {
        ck_assert_int_eq(c.traffic[r].sent,
                         c.steps * (c.accumulate * each + 1) * others * 4 + DIGEST * others);
        ck_assert_int_eq(c.traffic[r].calls,
                         c.steps * (c.accumulate * (2 + (rest ? 1 : 0) + 1) + 1) + 1);
    }
    rank_case_end(&c);
}
END_TEST

/* ---- delayed scales ---- */

static const char linears[] =
    "module linears\n"
    "dim B = 12, C = 32, F = 48\n"
    "param w.0: f32[C, F] normal(0.1)\n"
    "param w.1: f32[F, C] normal(0.1)\n"
    "func forward(%x: f32[B, C], %r: f32[B, C]) -> (%loss: f32[]) {\n"
    "  %y = linear(linear(%x, w.0) {name = \"l.0\"}, w.1) {name = \"l.1\"}\n"
    "  return reshape(mean(mean(mul(%y, %r)) {axis = 0})) {shape = []}\n"
    "}\n"
    "optimizer adamw {lr = 0.01}\n";

/* The x of every rank is 4 times as large as that of the rank before; the last batch of the last
 * rank may have a number that is not finite. Powers of two keep amaxes exact in bf16. */
static void fill_growing(const rank_case *c, int rank, int batch, const char *port,
                         const fp8c_type *type, void *data)
{
    float *x = data;
    fill(c, rank, batch, port, type, data);
    if (*port != 'x')
        return;
    for (int64_t i = 0; i < type->dim[0] * type->dim[1]; i++)
        x[i] = ldexpf(x[i] < 0 ? -1.0f : 1.0f, 2 * rank - (int)(i % 5));
}

static void fill_nan(const rank_case *c, int rank, int batch, const char *port,
                     const fp8c_type *type, void *data)
{
    fill_growing(c, rank, batch, port, type, data);
    if (*port == 'x' && rank == 1 && batch == 2)
        ((float *)data)[17] = NAN;
}

static void fill_infinite(const rank_case *c, int rank, int batch, const char *port,
                          const fp8c_type *type, void *data)
{
    fill_growing(c, rank, batch, port, type, data);
    if (*port == 'x' && rank == 0 && batch == 2)
        ((float *)data)[3] = INFINITY;
}

static rank_case linears_case(const char *recipe, int ranks, int steps)
{
    return (rank_case){.text = linears,
                       .dim = {{"B", ROWS / ranks}},
                       .options = {.recipe = recipe},
                       .ranks = ranks,
                       .steps = steps,
                       .accumulate = 1,
                       .fill = fill_growing};
}

/* Whether the newest entry of a history is `amax`. */
static int found(const rank_case *c, int rank, float amax)
{
    const rank_value *history = rank_case_value(c, rank, "fp8.amax_history");
    const int64_t slots = history->type.dim[0], length = history->type.dim[1];
    int n = 0;
    for (int64_t i = 0; i < slots; i++)
        n += ((const float *)history->data)[i * length] == amax;
    return n;
}

static float amax_of(const rank_case *c, int rank, const char *name)
{
    int64_t n;
    const float *value = rank_case_floats(c, rank, name, &n);
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(value[i]));
    return most;
}

START_TEST(delayed)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        rank_case c = linears_case("delayed", ranks, 2);
        rank_case_run(&c);
        all_agree(&c, "delayed");
        for (int r = 0; r < ranks; r++) {
            ck_assert_int_eq(found(&c, r, ldexpf(1, 2 * ranks - 2)), 1);
            int64_t n;
            int weights = 0;
            const float *left = rank_case_floats(&c, r, "fp8.amax", &n);
            for (int64_t i = 0; i < n; i++) { /* an update forgets all but the weights' */
                weights += left[i] == amax_of(&c, r, "w.0") || left[i] == amax_of(&c, r, "w.1");
                ck_assert(left[i] == 0 || left[i] < 1);
            }
            ck_assert_int_eq(weights, 2);
        }
        rank_case_end(&c);
    }
}
END_TEST

/* One rank's amax of x is largest in the first of two batches, another's in the second. */
static void fill_in_turn(const rank_case *c, int rank, int batch, const char *port,
                         const fp8c_type *type, void *data)
{
    fill_growing(c, batch ? 0 : rank, batch, port, type, data);
}

START_TEST(accumulated)
{
    rank_case c = linears_case("delayed", 3, 1);
    c.accumulate = 2;
    c.fill = fill_in_turn;
    rank_case_run(&c);
    all_agree(&c, "delayed, accumulated");
    ck_assert_int_eq(found(&c, 0, 16), 1);
    rank_case_end(&c);
}
END_TEST

/* A rank with other options may exchange its gradients in another order. */
START_TEST(other_options)
{
    const fp8c_compile_options last[] = {
        {.recipe = "bf16", .no_fuse = 1}, {.recipe = "f32"}, {.recipe = "bf16", .lr = 0.5}};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        rank_case c = linears_case("bf16", 3, 1);
        c.last = &last[i];
        rank_case_try(&c);
        for (int r = 0; r < 3; r++) {
            ck_assert_msg(c.failed[r] != NULL, "rank %d ran with options %d of rank 2", r, (int)i);
            ck_assert_msg(strstr(c.failed[r], "rank 2 runs another program than rank 0"), "%s",
                          c.failed[r]);
        }
        rank_case_end(&c);
    }
    const fp8c_compile_options same = {.recipe = "bf16", .threads = 2, .profile = 1};
    rank_case c = linears_case("bf16", 3, 1);
    c.last = &same;
    rank_case_run(&c);
    all_agree(&c, "other threads");
    rank_case_end(&c);
}
END_TEST

/* Several ranks run the FP8 GEMMs that one does, each of them in every micro_step. */
START_TEST(fp8_gemms)
{
    static const char *const recipes[] = {"delayed", "current", "rowwise", "block", "mxfp8"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        rank_case one = linears_case(recipes[i], 1, 1), three = linears_case(recipes[i], 3, 2);
        rank_case_run(&one);
        rank_case_run(&three);
        ck_assert_int_gt(one.info[0].fp8_gemms_planned, 0);
        for (int r = 0; r < 3; r++) {
            ck_assert_int_eq(three.info[r].fp8_gemms_planned, one.info[0].fp8_gemms_planned);
            ck_assert_int_eq(three.info[r].fp8_gemms_executed,
                             three.steps * one.info[0].fp8_gemms_planned);
        }
        rank_case_end(&one);
        rank_case_end(&three);
    }
}
END_TEST

/* Three steps, of which the last is skipped, end as two do. */
START_TEST(skipped)
{
    static const char *const recipes[] = {"bf16", "delayed", "current", "mxfp8"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int infinite = 0; infinite < 2; infinite++) {
            rank_case two = linears_case(recipes[i], 3, 2), three = linears_case(recipes[i], 3, 3);
            three.fill = infinite ? fill_infinite : fill_nan;
            rank_case_run(&two);
            rank_case_run(&three);
            all_agree(&three, recipes[i]);
            for (int r = 0; r < 3; r++) {
                ck_assert(*rank_case_floats(&two, r, "update:skipped", NULL) == 0);
                ck_assert(*rank_case_floats(&three, r, "update:skipped", NULL) == 1);
                rank_case_same(&three, r, &two, r, recipes[i]);
            }
            rank_case_end(&two);
            rank_case_end(&three);
        }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("ranks_state");
    TCase *c = tcase_create("state");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, same_bits, 0, 3);
    tcase_add_loop_test(c, traffic, 0, 3);
    tcase_add_test(c, delayed);
    tcase_add_test(c, accumulated);
    tcase_add_test(c, other_options);
    tcase_add_test(c, fp8_gemms);
    tcase_add_test(c, skipped);
    suite_add_tcase(suite, c);
    return suite;
}
