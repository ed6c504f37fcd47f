/* FP8 truth: is a run that calls itself FP8 really one, and a good one?
 *
 * The loss of a short run hardly tells (almost any broken recipe trains), so the gates look at what was
 * executed, on a small GPT after WARM steps:
 *   count   FP8 GEMMs executed in a step = planned = 3 for each linear not excluded by name
 *   sqnr    each quantized operand, read back from an executed step, against what was quantized:
 *           x and w at least 28 dB, dy at least 22 dB. A well-scaled cast gives what its mantissa gives:
 *           E4M3 31.5 dB, E5M2 25.4 dB (rounding error uniform over 2^-4 or 2^-3 of the binade); the gates
 *           lie half a bit (3 dB) below, so that the one format cannot pass for the other, as it would
 *           at torchao's 25 dB
 *   range   the largest code of each operand uses the format's range: at least 1/8 of its maximum. Delayed
 *           scales lag by a step and a fresh history starts empty, hence no more than that. SQNR
 *           alone cannot see a scale that is too small by a power of two: it only moves
 *           exponents until values underflow.
 * Each negative control is a recipe broken on purpose; the test names the gates that must catch it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/compile.h"

enum { WARM = 24 };

typedef struct gates {
    double worst_forward, worst_gradient, least_range; /* dB, dB, share of the format's maximum */
    int64_t linears, planned, executed, operands, other_format;
    float loss;
} gates;

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

static void measure_operand(const char *name, const f8_operand_view *v, gates *g)
{
    f8_operand_stats e;
    ck_assert_msg(f8_operand_measure(v, &e), "%s: scales of an odd shape", name);
    f8_operand_name_parts parts;
    ck_assert_msg(f8_operand_name_split(name, &parts), "%s is no operand's name", name);
    const bool gradient = !strcmp(parts.kind, "dy");
    double *worst = gradient ? &g->worst_gradient : &g->worst_forward;
    if (!(e.sqnr >= *worst))
        *worst = e.sqnr;
    if (!(e.range >= g->least_range))
        g->least_range = e.range;
    g->operands++;
    g->other_format += e.format != (gradient ? F8_E5M2 : F8_E4M3);
}

static gates run(f8_recipe recipe)
{
    f8_compiled c;
    const f8_compile_setup s = {.file = "frontend/models/gpt.f8", .dims = "B=4 T=64 L=2", .recipe = recipe,
                                .keep = "*", .threads = 2};
    gates g = {.worst_forward = INFINITY, .worst_gradient = INFINITY, .least_range = INFINITY};
    ck_assert_msg(f8_compile_model(&c, &s), "%s", c.diag.text);
    for (uint64_t i = 0; i < WARM; i++) {
        const int64_t before = f8_exec_count(c.exec).fp8_gemms;
        g.loss = f8_compiled_step(&c, text, text_size, i);
        g.executed = f8_exec_count(c.exec).fp8_gemms - before;
    }
    ck_assert_msg(isfinite(g.loss), "loss %g: %s", (double)g.loss, c.diag.text);
    g.planned = c.unit.fp8_gemms;
    g.linears = c.unit.linears;
    const int step = f8_compiled_func(&c, "micro_step");
    char name[128];
    f8_operand_view v;
    for (uint32_t i = 0; i < c.plan.func[step].n_out; i++)
        if (f8_compiled_operand(&c, step, i, name, sizeof name, &v))
            measure_operand(name, &v, &g);
    f8_compiled_end(&c);
    return g;
}

static bool count_gate(const gates *g)
{
    return g->executed == g->planned && g->planned == 3 * (g->linears - 1); /* lm_head is excluded */
}

static bool sqnr_gate(const gates *g)
{
    return g->operands == 3 * (g->linears - 1) && g->worst_forward >= 28 &&
           g->worst_gradient >= 22;
}

static bool range_gate(const gates *g)
{
    return g->least_range >= 0.125;
}

#define SHOW(g)                                                                                       \
    "x, w: %.1f dB; dy: %.1f dB; range %.3f; FP8 GEMMs %lld of %lld planned, %lld linears",          \
        (g).worst_forward, (g).worst_gradient, (g).least_range, (long long)(g).executed,              \
        (long long)(g).planned, (long long)(g).linears

/* ---- recipes as shipped pass every gate ---- */

static void check_good(const char *name)
{
    const gates g = run(*f8_recipe_by_name(name));
    printf("%s: ", name);
    printf(SHOW(g));
    printf("\n");
    ck_assert_msg(count_gate(&g) && sqnr_gate(&g) && range_gate(&g), SHOW(g));
    ck_assert_int_eq(g.other_format, 0); /* E4M3 would pass where E5M2 was asked for */
}

START_TEST(delayed_passes)
{
    check_good("delayed");
}
END_TEST

START_TEST(current_passes)
{
    check_good("current");
}
END_TEST

/* ---- negative controls ---- */

START_TEST(no_scaling_is_caught)
{
    f8_recipe r = *f8_recipe_by_name("current");
    r.scaling = F8_SCALING_UNIT;
    const gates g = run(r);
    ck_assert_msg(!sqnr_gate(&g), SHOW(g));
}
END_TEST

START_TEST(e5m2_everywhere_is_caught)
{
    f8_recipe r = *f8_recipe_by_name("current");
    r.forward = F8_E5M2;
    const gates g = run(r);
    ck_assert_msg(!sqnr_gate(&g), SHOW(g));
}
END_TEST

START_TEST(scale_256_times_too_small_is_caught)
{
    f8_recipe r = *f8_recipe_by_name("delayed");
    r.margin = 8;
    const gates g = run(r);
    ck_assert_msg(!sqnr_gate(&g) || !range_gate(&g), SHOW(g));
}
END_TEST

START_TEST(saturating_scale_is_caught)
{
    f8_recipe r = *f8_recipe_by_name("delayed");
    r.margin = -4;
    const gates g = run(r);
    ck_assert_msg(!sqnr_gate(&g), SHOW(g));
}
END_TEST

START_TEST(skipped_quantization_is_caught)
{
    const gates g = run(*f8_recipe_by_name("bf16"));
    ck_assert_msg(!count_gate(&g) && !sqnr_gate(&g), SHOW(g));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("recipes");
    TCase *good = tcase_create("shipped"), *bad = tcase_create("negative controls");
    tcase_add_checked_fixture(good, setup, teardown);
    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_set_timeout(good, 120);
    tcase_set_timeout(bad, 120);
    tcase_add_test(good, delayed_passes);
    tcase_add_test(good, current_passes);
    tcase_add_test(bad, no_scaling_is_caught);
    tcase_add_test(bad, e5m2_everywhere_is_caught);
    tcase_add_test(bad, scale_256_times_too_small_is_caught);
    tcase_add_test(bad, saturating_scale_is_caught);
    tcase_add_test(bad, skipped_quantization_is_caught);
    suite_add_tcase(s, good);
    suite_add_tcase(s, bad);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
