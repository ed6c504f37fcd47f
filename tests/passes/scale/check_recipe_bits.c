/* Every recipe's scales and codes, bit for bit, on the interpreter and the CPU, against a slow
 * plain implementation of the published definition (shared/recipe/recipe_oracle.h, which says where
 * the two differ and why). An Inf or a NaN in one element of an operand shows in every product of
 * that operand: no recipe hides it. check_cuda_recipes.c does the same for GPUs. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/shared/random.h"
#include "tests/shared/recipe/recipe_check.h"
#include "tests/shared/suite.h"

enum { SEED = 20261121, TIMEOUT = 600 };

static const char *const targets[] = {"reference", "cpu"};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* ---- the oracle ---- */

/* Scales known by hand, and by the definition of torchao, which is written otherwise. */
START_TEST(oracle_has_published_values)
{
    const recipe_oracle e4m3 = {0}, e5m2 = {.e5m2 = true}, pow2 = {.pow2 = true},
                        margin = {.margin = 3};
    ck_assert_float_eq(recipe_oracle_scale(&e4m3, 448, 9), 1);
    ck_assert_float_eq(recipe_oracle_scale(&e4m3, 3.5f, 9), 128);
    ck_assert_float_eq(recipe_oracle_scale(&e5m2, 57344, 9), 1);
    ck_assert_float_eq(recipe_oracle_scale(&margin, 448, 9), 0.125f);
    ck_assert_float_eq(recipe_oracle_scale(&pow2, 448, 9), 1);
    ck_assert_float_eq(recipe_oracle_scale(&pow2, nextafterf(448, 449), 9), 0.5f);
    ck_assert_float_eq(recipe_oracle_scale(&e4m3, 0x1p-149f, 9), FLT_MAX);
    ck_assert_float_eq(recipe_oracle_scale(&pow2, 0x1p-149f, 9), 0x1p127f);
    static const float none[] = {0, INFINITY, NAN};
    for (int i = 0; i < 3; i++)
        ck_assert_float_eq(recipe_oracle_scale(&e4m3, none[i], 9), 9);
    /* Rounded up: OCP's 2^(floor(log2 amax) - 8) is 7f for 449 and 80 for 900. */
    static const struct {
        float amax;
        uint8_t e8m0;
    } mx[] = {{448, 0x7f},    {449, 0x80},     {896, 0x80},      {900, 0x81}, {0, 0},
              {0x1p-149f, 0}, {FLT_MAX, 0xf7}, {INFINITY, 0xff}, {NAN, 0xff}};
    for (size_t i = 0; i < sizeof mx / sizeof *mx; i++)
        ck_assert_msg(recipe_oracle_e8m0(&e4m3, mx[i].amax) == mx[i].e8m0, "%a: %02x",
                      (double)mx[i].amax, recipe_oracle_e8m0(&e4m3, mx[i].amax));
    uint32_t seed = SEED;
    for (int i = 0; i < 1000000; i++) {
        const float amax = ldexpf(1 + (float)test_random(&seed) / 0x1p24f, (int)(seed % 167) - 39);
        const recipe_oracle o = {.e5m2 = i % 2, .pow2 = i % 4 / 2};
        const float ours = recipe_oracle_scale(&o, amax, 9),
                    theirs = recipe_oracle_torchao(amax, o.e5m2, o.pow2);
        if (ours != theirs)
            ck_abort_msg("%a: %a, torchao %a", (double)amax, (double)ours, (double)theirs);
    }
}
END_TEST

/* ---- recipes ---- */

/* Sizes below a block and of several, the last one short; whole ones; rows and columns of one
 * element. */
static const struct {
    recipe_sizes sizes;
    int each; /* the larger take longer */
} cases[] = {
    {{2, 20, 70, 36}, 1}, {{1, 129, 257, 33}, 3}, {{1, 100, 40, 200}, 4},
    {{1, 1, 128, 1}, 1},  {{5, 1, 1, 3}, 1},      {{1, 128, 128, 128}, 6},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(scales_and_codes)
{
    const int i = _i / N_TARGETS;
    recipe_check_bits(recipe_specs, RECIPE_SPECS, &cases[i].sizes, cases[i].each,
                      targets[_i % N_TARGETS]);
}
END_TEST

START_TEST(delayed_over_steps)
{
    const recipe_sizes s = {1, 33, 40, 18};
    recipe_check_delayed(recipe_delayed, RECIPE_DELAYED, &s, targets[_i]);
}
END_TEST

static const recipe_sizes ragged = {1, 33, 130, 12};

START_TEST(nothing_is_laundered)
{
    for (int i = 0; i < RECIPE_SPECS; i++)
        recipe_check_shown(&recipe_specs[i], &ragged, "reference");
    for (int i = 0; i < RECIPE_DELAYED; i++)
        recipe_check_shown(&recipe_delayed[i], &ragged, "reference");
}
END_TEST

/* The CPU's products have ways of their own for each grain. */
START_TEST(nothing_is_laundered_on_the_cpu)
{
    static const recipe_spec plain[] = {
        {.text = "delayed"}, {.text = "current"}, {.text = "rowwise"}, {.text = "rowwise_gw_hp"},
        {.text = "block"},   {.text = "mxfp8"},   {.text = "fake"},
    };
    recipe_check_shown(&plain[_i], &ragged, "cpu");
}
END_TEST

/* ---- fake ---- */

static float bf16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* x alone in its block, dequantized as FP8 would be, then rounded to bf16. */
static float fake(const recipe_oracle *o, float x)
{
    uint8_t code, e8m0;
    float scale_inv;
    recipe_oracle_quantize(o, &x, 1, 1, &code, o->e8m0 ? (void *)&e8m0 : &scale_inv);
    if (o->e8m0)
        scale_inv = ldexpf(1, e8m0 - 127);
    const int m = code & 7, e = code >> 3 & 15; /* E4M3, as OCP's specification has it */
    const float v = e ? ldexpf(1 + (float)m / 8, e - 7) : ldexpf((float)m, -9);
    return bf16((code & 0x80 ? -v : v) * scale_inv);
}

/* A product of one number by one is the same whoever computes it, and a value of one column is not
 * rounded to bf16: what fake operands give is known to the bit. */
START_TEST(fake_is_dequantized)
{
    static const recipe_sizes one = {1, 1, 1, 1};
    uint32_t seed = SEED;
    for (int i = 0; i < RECIPE_FAKES; i++) {
        const recipe_spec *s = &recipe_specs[RECIPE_SPECS - RECIPE_FAKES + i];
        const recipe_oracle o = recipe_oracle_of(s, RECIPE_X);
        recipe_case c;
        recipe_open(&c, s, 1, &one, targets[_i]);
        for (int k = 0; k < 100; k++) {
            for (int j = 0; j < RECIPE_OPERANDS; j++)
                recipe_fill(DATA_NORMAL, test_random(&seed), c.data[j], 1, 1);
            recipe_load(&c);
            recipe_run(&c, c.step);
            const float x = fake(&o, c.data[RECIPE_X][0]), w = fake(&o, c.data[RECIPE_W][0]);
            const float want = x * w * c.data[RECIPE_DY][0];
            const float loss = *(const float *)recipe_result(&c, c.step, "loss", NULL);
            ck_assert_msg(loss == want, "%s, x %a, w %a: %a, not %a", s->text,
                          (double)c.data[RECIPE_X][0], (double)c.data[RECIPE_W][0], (double)loss,
                          (double)want);
        }
        recipe_close(&c);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("recipe bits");
    TCase *t = tcase_create("oracle");
    tcase_add_test(t, oracle_has_published_values);
    suite_add_tcase(s, t);
    t = tcase_create("bits");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, scales_and_codes, 0, N_CASES * N_TARGETS);
    tcase_add_loop_test(t, delayed_over_steps, 0, N_TARGETS);
    tcase_add_loop_test(t, fake_is_dequantized, 0, N_TARGETS);
    suite_add_tcase(s, t);
    t = tcase_create("laundering");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, nothing_is_laundered);
    tcase_add_loop_test(t, nothing_is_laundered_on_the_cpu, 0, 7);
    suite_add_tcase(s, t);
    return s;
}
