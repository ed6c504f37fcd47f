/* Every recipe passes every gate of shared/recipe/gates.h, on a small GPT and on a stack of MLPs.
 * Each negative control, a recipe broken on purpose, fails the gates that are named next to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/passes/compile.h"
#include "tests/shared/recipe/gates.h"
#include "tests/shared/suite.h"

/* Steps: until histories are full, until they have some entries, and of other recipes. */
enum { WARM = 24, LATE = 8, FEW = 3, TIMEOUT = 600 };

static char *text;
static size_t text_size;

static void setup(void)
{
    text = f8_test_text(&text_size);
    ck_assert_ptr_nonnull(text);
}

static void teardown(void)
{
    free(text);
}

/* Prints what was measured. All of `must` is closed; nothing is where `must` is 0. */
static void check(const char *recipe, const char *what, const gates *g, unsigned must)
{
    char *said = gates_show(g);
    printf("%s, %s: %s\n", recipe, what, said);
    ck_assert_msg(must ? (g->closed & must) == must : !g->closed, "%s, %s: %s", recipe, what, said);
    free(said);
}

static gates_run mlps(const char *recipe, const char *dims, int steps)
{
    return (gates_run){.file = "tests/models/gates.f8",
                       .dims = dims,
                       .recipe = gates_recipe_of(recipe),
                       .steps = steps,
                       .text = text,
                       .text_size = text_size};
}

/* ---- recipes as shipped pass every gate ---- */

static const char *const shipped[] = {"delayed", "current", "rowwise", "rowwise_gw_hp",
                                      "block",   "mxfp8",   "fake"};
enum { SHIPPED = sizeof shipped / sizeof *shipped };

START_TEST(shipped_recipes_pass)
{
    gates g;
    gates_run r = mlps(shipped[_i], "B=4 T=64 L=1", _i ? FEW : WARM);
    r.file = "frontend/models/gpt.f8";
    gates_measure(&r, &g, 1);
    check(shipped[_i], "as shipped", &g, 0);
}
END_TEST

/* ---- negative controls: another recipe than the one asked for ---- */

static void no_scaling(f8_recipe *r)
{
    r->scaling = F8_SCALING_UNIT;
}

static void e5m2_everywhere(f8_recipe *r)
{
    r->forward = F8_E5M2;
}

static void e4m3_everywhere(f8_recipe *r)
{
    r->gradient = F8_E4M3;
}

static void too_small(f8_recipe *r) /* 256 times */
{
    r->margin = 8;
}

static void too_large(f8_recipe *r)
{
    r->margin = -4;
}

static void no_fp8(f8_recipe *r)
{
    *r = *f8_recipe_by_name("bf16");
}

static void wgrad_too(f8_recipe *r)
{
    r->wgrad_high = false;
}

static void not_fake(f8_recipe *r)
{
    r->fake = false;
}

static const struct {
    const char *what, *asked;
    void (*edit)(f8_recipe *r);
    unsigned must;
} others[] = {
    {"no scaling", "current", no_scaling, GATE_SQNR | GATE_RANGE},
    {"E5M2 everywhere", "current", e5m2_everywhere, GATE_SQNR | GATE_COUNT},
    {"E4M3 everywhere", "current", e4m3_everywhere, GATE_COUNT},
    {"no FP8", "current", no_fp8, GATE_COUNT},
    {"scales 256 times too small", "delayed", too_small, GATE_RANGE},
    {"scales 16 times too large", "delayed", too_large, GATE_SQNR | GATE_PRODUCT},
    {"wgrad in FP8", "rowwise_gw_hp", wgrad_too, GATE_COUNT},
    {"FP8 products", "fake", not_fake, GATE_COUNT},
};
START_TEST(other_recipes_are_caught)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        gates g;
        gates_run r = mlps(others[i].asked, "L=1", FEW);
        f8_recipe made = r.recipe.recipe;
        others[i].edit(&made);
        r.made = &made;
        gates_measure(&r, &g, 1);
        check(others[i].asked, others[i].what, &g, others[i].must);
    }
}
END_TEST

/* ---- negative controls: broken scaling (shared/recipe/broken.h) ---- */

typedef struct control {
    const char *what;
    broken way;
    unsigned must;
} control;

/* If a tensor's one scale is a step old, or is another tensor's of the same size, all codes have
 * other exponents by the same amount. The format has exponents to spare, so the codes are as good
 * as before, and only a comparison with the right scale shows the fault. The codes of a tensor with
 * one scale are the same along both axes, so they may be reused. */
static const control per_tensor[] = {
    {"whole", BROKEN_NOT, 0},
    {"stale scales", BROKEN_STALE, GATE_SCALE},
    {"amax of one row", BROKEN_AXIS, GATE_SCALE},
    {"scales of another operand", BROKEN_SHIFTED, GATE_SQNR | GATE_SCALE | GATE_PRODUCT},
    {"dequantized by another's scale", BROKEN_PRODUCT_SCALES, GATE_PRODUCT},
};

/* Where a block's scale is another's, some blocks saturate. What is wrong in the products alone no
 * look at operands sees. */
static const control fine[] = {
    {"whole", BROKEN_NOT, 0},
    {"stale scales", BROKEN_STALE, GATE_BLOCK | GATE_SCALE},
    {"scales of the wrong axis", BROKEN_AXIS, GATE_SQNR | GATE_BLOCK | GATE_SCALE},
    {"scales off by a block", BROKEN_SHIFTED, GATE_BLOCK | GATE_SCALE},
    {"transposed codes reused", BROKEN_CODES, GATE_SQNR | GATE_BLOCK | GATE_PRODUCT},
    {"dequantized off by a block", BROKEN_PRODUCT_SCALES, GATE_PRODUCT},
    {"transposed codes reused in the product", BROKEN_PRODUCT_CODES, GATE_PRODUCT},
    /* mxfp8's alone: of a quarter of the blocks the largest elements saturate, by up to an eighth.
     */
    {"scales rounded down", BROKEN_DOWN, GATE_BLOCK | GATE_SCALE},
};

static const struct {
    const char *recipe;
    const control *control;
    int n, steps;
} controls[] = {
    {"delayed", per_tensor, 5, LATE}, {"current", per_tensor, 5, FEW}, {"fake", per_tensor, 5, FEW},
    {"rowwise", fine, 7, FEW},        {"rowwise_gw_hp", fine, 6, FEW}, {"block", fine, 7, FEW},
    {"mxfp8", fine, 8, FEW},
};
enum { CONTROLS = sizeof controls / sizeof *controls };

START_TEST(broken_scaling_is_caught)
{
    const int n = controls[_i].n;
    gates g[GATES_LAYERS];
    char dims[16];
    snprintf(dims, sizeof dims, "L=%d", n);
    gates_run r = mlps(controls[_i].recipe, dims, controls[_i].steps);
    for (int i = 0; i < n; i++)
        r.way[i] = controls[_i].control[i].way;
    gates_measure(&r, g, n);
    for (int i = 0; i < n; i++)
        check(controls[_i].recipe, controls[_i].control[i].what, &g[i],
              controls[_i].control[i].must);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("recipes");
    TCase *good = tcase_create("shipped"), *bad = tcase_create("negative controls");
    tcase_add_checked_fixture(good, setup, teardown);
    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_set_timeout(good, TIMEOUT);
    tcase_set_timeout(bad, TIMEOUT);
    tcase_add_loop_test(good, shipped_recipes_pass, 0, SHIPPED);
    tcase_add_test(bad, other_recipes_are_caught);
    tcase_add_loop_test(bad, broken_scaling_is_caught, 0, CONTROLS);
    suite_add_tcase(s, good);
    suite_add_tcase(s, bad);
    return s;
}
