/* What several ranks add to their gradients, element by element, against sums over the batches of
 * all ranks in double, at every stage of ZeRO. The module's derivatives are products of its inputs,
 * so the terms of each sum are known. Weights of one shape are reduced whole, of another in parts
 * with a remainder that no number of ranks divides; a vector, a scalar, a table that two ops read,
 * a parameter whose derivative is constant, and one that no gradient reaches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/rank_case.h"
#include "tests/shared/suite.h"

/* Rows of all ranks' batches; 47 * 89 elements are more than 4 ranks gather whole, and no multiple
 * of 2, 3 or 4. */
enum { ROWS = 12, C = 47, F = 89, V = 33, P = 5 };

static const char text[] =
    "module gradients\n"
    "dim B = 12, C = 47, F = 89, V = 33\n"
    "param w: f32[C, F] normal(0.1)\n"
    "param b: f32[F] normal(0.1)\n"
    "param e: f32[V, C] normal(0.1)\n"
    "param s: f32[] const(0.5)\n"
    "param p: f32[5] ones\n"
    "param idle: f32[7] ones\n"
    "func forward(%x: f32[B, C], %r: f32[B, F], %ids: i32[B], %q: f32[B, V]) -> (%loss: f32[]) {\n"
    "  %y = mul(linear(%x, w, b) {name = \"y\"}, %r)\n"
    "  %z = mul(linear(embedding(e, %ids), e) {transpose_b = true, name = \"z\"}, %q)\n"
    "  %k = mul(reduce_sum(%x), s)\n"
    "  %rows = add(add(reduce_sum(%y), reduce_sum(%z)), %k)\n"
    "  %mean = reshape(mean(reshape(%rows) {shape = [B]})) {shape = []}\n"
    "  return add(%mean, reshape(reduce_sum(p)) {shape = []})\n"
    "}\n"
    "optimizer adamw {lr = 0.01, clip = 1}\n";

/* Sums, the sums of their terms' magnitudes and of their squares. */
typedef struct sums {
    double sum[C * F], terms[C * F], squares[C * F];
} sums;

/* ---- inputs: multiples of 1/256 below 1, which bf16 has and FP8 has not ---- */

static uint32_t hashed(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Element (row, column) of an input, `row` counted over all batches of all ranks. */
static double element(char port, int row, int column)
{
    const uint32_t h = hashed(hashed((uint32_t)port * 7919u + (uint32_t)row) + (uint32_t)column);
    return port == 'i' ? h % V : ((int)(h % 511) - 255) / 256.0;
}

static void fill(const rank_case *c, int rank, int batch, const char *port, const fp8c_type *type,
                 void *data)
{
    const int rows = (int)type->dim[0], columns = type->rank > 1 ? (int)type->dim[1] : 1;
    (void)c;
    for (int i = 0; i < rows * columns; i++) {
        const int row = batch * ROWS + rank * rows + i / columns;
        const double x = element(*port, row, i % columns);
        if (type->dtype == FP8C_I32)
            ((int32_t *)data)[i] = (int32_t)x;
        else
            ((float *)data)[i] = (float)x;
    }
}

/* ---- the derivatives ---- */

static void add_term(sums *s, int at, double term)
{
    s->sum[at] += term / ROWS;
    s->terms[at] += fabs(term) / ROWS;
    s->squares[at] += term * term / ROWS / ROWS;
}

static void add_row(sums *s, const char *param, int row, const float *e)
{
    const int id = (int)element('i', row, 0);
    for (int f = 0; f < F && *param == 'b'; f++)
        add_term(s, f, element('r', row, f));
    for (int c = 0; c < C; c++) {
        for (int f = 0; f < F && *param == 'w'; f++)
            add_term(s, c * F + f, element('x', row, c) * element('r', row, f));
        for (int v = 0; v < V && *param == 'e'; v++) {
            add_term(s, v * C + c, element('q', row, v) * e[id * C + c]);
            add_term(s, id * C + c, element('q', row, v) * e[v * C + c]);
        }
        if (*param == 's')
            add_term(s, 0, element('x', row, c));
    }
    for (int i = 0; i < P && *param == 'p'; i++)
        add_term(s, i, 1);
}

/* Rounding: each product and sum once (gamma of as many as a sum has terms, and the exchange's), in
 * bf16 both operands of a product, its result and what becomes of that. */
static double gamma_of(const rank_case *c)
{
    const double wide = (ROWS * c->accumulate + V + C + 8) * 0x1p-24;
    return strcmp(c->options.recipe, "f32") ? wide + 4 * 0x1p-9 : wide;
}

/* All terms of a gradient. */
static sums *sums_of(const rank_case *c, const char *param)
{
    int64_t n;
    sums *s = calloc(1, sizeof *s);
    float *e = rank_case_whole(c, "e", &n);
    ck_assert_ptr_nonnull(s);
    for (int row = 0; row < ROWS * c->accumulate; row++)
        add_row(s, param, row, e);
    free(e);
    return s;
}

static float *gradient_of(const rank_case *c, const char *param, int64_t *n)
{
    char name[32];
    snprintf(name, sizeof name, "grad.%s", param);
    return rank_case_whole(c, name, n);
}

static void check_gradient(const rank_case *c, const char *param)
{
    int64_t n;
    sums *s = sums_of(c, param);
    float *got = gradient_of(c, param, &n);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabs(got[i] - s->sum[i]) <= gamma_of(c) * s->terms[i],
                      "%s, stage %d, %d ranks, %d times: element %lld of grad.%s is %.9g, not %.9g "
                      "within %.3g",
                      c->options.recipe, c->options.zero, c->ranks, c->accumulate, (long long)i,
                      param, got[i], s->sum[i], gamma_of(c) * s->terms[i]);
    free(got);
    free(s);
}

static rank_case the_case(const char *recipe, int ranks, int zero, int accumulate)
{
    return (rank_case){.text = text,
                       .dim = {{"B", ROWS / ranks}},
                       .options = {.recipe = recipe, .zero = zero},
                       .ranks = ranks,
                       .accumulate = accumulate,
                       .fill = fill};
}

/* ---- tests ---- */

static const char *const recipes[] = {"f32", "bf16"};

/* The loss of the last batch is that of one rank; only the order of its sum differs. */
static void check_loss(const rank_case *c, float one)
{
    for (int r = 0; r < c->ranks; r++)
        ck_assert_float_eq_tol(*rank_case_floats(c, r, "micro_step:loss", NULL), one, 1e-5f);
}

static const char *const params[] = {"w", "b", "e", "s", "p", "idle"};
enum { PARAMS = sizeof params / sizeof *params, STAGES = 4 };

static void check_ranks(const char *recipe, int ranks, int zero, int accumulate, float *one)
{
    rank_case c = the_case(recipe, ranks, zero, accumulate);
    rank_case_run(&c);
    for (int r = 1; r < ranks && !zero; r++)
        rank_case_same(&c, r, &c, 0, recipe);
    for (int i = 0; i < PARAMS; i++)
        check_gradient(&c, params[i]);
    if (ranks == 1)
        *one = *rank_case_floats(&c, 0, "micro_step:loss", NULL);
    check_loss(&c, *one);
    rank_case_end(&c);
}

START_TEST(gradients)
{
    for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
        float one = 0;
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int zero = 0; zero < (ranks == 1 ? 1 : STAGES); zero++)
                check_ranks(recipes[_i], ranks, zero, accumulate, &one);
    }
}
END_TEST

/* ---- FP8 ---- */

static const char *const fp8[] = {"delayed", "current", "rowwise", "block", "mxfp8"};

/* The gate "product" of tests/shared/recipe/gates.h. */
static double least_decibels(const char *recipe)
{
    const double e4m3 = pow(10, -3.15), e5m2 = pow(10, -2.54);
    const bool mixed = !strcmp(recipe, "delayed") || !strcmp(recipe, "current");
    return -10 * log10(e4m3 + (mixed ? e5m2 : e4m3)) - 6;
}

/* The gradients of the linears against double, by FP8's gate; against those of one rank the errors
 * of both count, so twice the noise is let through (3 dB). All else is not in FP8: biases, and what
 * no linear reads. */
static void check_fp8(const rank_case *c, const rank_case *one, const char *param)
{
    int64_t n;
    double noise = 0, difference = 0, signal = 0;
    sums *s = sums_of(c, param);
    float *got = gradient_of(c, param, &n), *alone = gradient_of(one, param, &n);
    for (int64_t i = 0; i < n; i++) {
        noise += pow(got[i] - s->sum[i], 2);
        difference += pow((double)got[i] - alone[i], 2);
        signal += s->squares[i];
    }
    const double least = least_decibels(c->options.recipe), exact = 10 * log10(signal / noise),
                 alike = 10 * log10(signal / difference);
    ck_assert_msg(exact >= least && exact < 40,
                  "%s, stage %d, %d ranks: grad.%s has %.1f dB, the gate %.1f", c->options.recipe,
                  c->options.zero, c->ranks, param, exact, least);
    ck_assert_msg(alike >= least - 3,
                  "%s, stage %d, %d ranks: grad.%s is %.1f dB from that of one rank, the gate %.1f",
                  c->options.recipe, c->options.zero, c->ranks, param, alike, least - 3);
    free(got);
    free(alone);
    free(s);
}

START_TEST(gates_of_fp8)
{
    rank_case one = the_case(fp8[_i], 1, 0, 1);
    rank_case_run(&one);
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int zero = 0; zero < (ranks == 1 ? 1 : STAGES); zero++) {
            rank_case c = the_case(fp8[_i], ranks, zero, 1);
            rank_case_run(&c);
            check_fp8(&c, &one, "w");
            check_fp8(&c, &one, "e");
            for (int r = 0; r < ranks; r++)
                ck_assert_int_eq(c.info[r].fp8_gemms_executed, one.info[0].fp8_gemms_executed);
            rank_case_end(&c);
        }
    rank_case_end(&one);
}
END_TEST

/* Added by what moves the bytes: within the same bounds, at every stage. */
START_TEST(added_by_library)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int zero = 0; zero < STAGES; zero++) {
            rank_case c = the_case(recipes[_i], ranks, zero, 1);
            c.options.reduce_order = "library";
            rank_case_run(&c);
            for (int i = 0; i < PARAMS; i++)
                check_gradient(&c, params[i]);
            for (int r = 0; r < ranks; r++) {
                ck_assert_int_gt(c.traffic[r].sums, 0);
                if (!zero)
                    rank_case_same(&c, r, &c, 0, recipes[_i]);
            }
            rank_case_end(&c);
        }
}
END_TEST

/* The gradient norm of several ranks, against double code. An update clips by it. It is the root of
 * a sum of some thousand squares. */
START_TEST(norm)
{
    static const char *const names[] = {"grad.w", "grad.b", "grad.e", "grad.s", "grad.p"};
    for (int ranks = 2; ranks <= 4; ranks++) {
        rank_case micro = the_case("f32", ranks, 0, 1), whole = the_case("f32", ranks, 0, 1);
        whole.steps = 1;
        rank_case_run(&micro);
        rank_case_run(&whole);
        double sum = 0;
        for (int k = 0; k < 5; k++) {
            int64_t n;
            const float *grad = rank_case_floats(&micro, 0, names[k], &n);
            for (int64_t i = 0; i < n; i++)
                sum += (double)grad[i] * grad[i];
        }
        const float *got = rank_case_floats(&whole, ranks - 1, "update:grad_norm", NULL);
        ck_assert_double_eq_tol(*got, sqrt(sum), sqrt(sum) * 8192 * 0x1p-24);
        rank_case_end(&micro);
        rank_case_end(&whole);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("ranks_gradients");
    TCase *c = tcase_create("gradients");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, gradients, 0, 2);
    tcase_add_loop_test(c, added_by_library, 0, 2);
    tcase_add_loop_test(c, gates_of_fp8, 0, sizeof fp8 / sizeof *fp8);
    tcase_add_test(c, norm);
    suite_add_tcase(suite, c);
    return suite;
}
