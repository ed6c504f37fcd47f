/* Layers in the caller's loop: four blocks as four programs, whose caller passes values and
 * gradients from one to the next, equal the four as one program's pair, bit by bit. The caller's
 * optimizer is the same. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/blocks_case.h"
#include "tests/shared/suite.h"

enum { STEPS = 20, FEW = 3 };

static blocks a, b;
static fp8c_context *ctx;

/* One program, and four or another one. */
static void begin(const char *recipe_name, bool four, blocks_cut cut)
{
    const blocks_how alone = {.target = "cpu", .recipe = recipe_name, .cut = cut};
    blocks_how other = alone;
    other.four = four;
    ctx = new_context();
    blocks_begin(&a, ctx, &alone);
    blocks_begin(&b, ctx, &other);
}

static void end(void)
{
    blocks_end(&a);
    blocks_end(&b);
    fp8c_context_destroy(ctx);
}

/* What differs after a step of both, or NULL. */
static const char *step(void)
{
    blocks_step(&a);
    blocks_step(&b);
    return blocks_differ(&a, &b);
}

static void equal_for(int steps)
{
    for (int i = 0; i < steps; i++) {
        const char *what = step();
        ck_assert_msg(!what, "step %d: %s differs", i, what);
    }
}

static float loss(const blocks *x)
{
    return *(const float *)pair_find(&x->micro[0], "loss")->data;
}

static bool is_fp8(const char *recipe_name)
{
    return strcmp(recipe_name, "f32") && strcmp(recipe_name, "bf16");
}

/* ---- four programs and one ---- */

/* Losses, gradients, also those of what passes between the programs, parameters and the states of
 * FP8 are equal after every step. The model learns meanwhile, in FP8 GEMMs. */
START_TEST(four_programs_equal_one)
{
    const char *name = fp8c_name(FP8C_NAME_RECIPE, _i);
    begin(name, true, CUT_PROBED);
    equal_for(1);
    const float before = loss(&a);
    equal_for(STEPS - 1);
    ck_assert_float_lt(loss(&a), before / 2);
    for (int k = 0; k < b.n; k++) {
        fp8c_info info = {.struct_size = sizeof info};
        fp8c_program_info(b.p[k], &info);
        ck_assert_int_eq(info.fp8_gemms_executed > 0, is_fp8(name) && strcmp(name, "fake"));
    }
    end();
}
END_TEST

/* The same without the inputs that make the gradients at the cuts visible. */
START_TEST(without_probes)
{
    begin(fp8c_name(FP8C_NAME_RECIPE, _i), true, CUT_MARKED);
    equal_for(FEW);
    end();
}
END_TEST

/* Each of the four programs has another budget, which changes no bit. */
START_TEST(with_budgets)
{
    const blocks_how alone = {
        .target = "cpu", .recipe = fp8c_name(FP8C_NAME_RECIPE, _i), .cut = CUT_PROBED};
    blocks_how other = alone;
    other.four = other.budgets = true;
    ctx = new_context();
    blocks_begin(&a, ctx, &alone);
    blocks_begin(&b, ctx, &other);
    for (int k = 0; k < BLOCKS; k++) {
        fp8c_remat made = {.struct_size = sizeof made};
        fp8c_program_remat(b.p[k], 0, 0, &made);
        ck_assert_int_gt(made.recomputed, 0);
    }
    equal_for(FEW);
    end();
}
END_TEST

/* ---- what the boundaries are for ---- */

/* Without boundaries f32 and bf16 are equal still: values and gradients are rounded there anyway.
 * FP8 recipes are not, since they quantize from the value before that rounding. */
START_TEST(without_boundaries)
{
    const char *name = fp8c_name(FP8C_NAME_RECIPE, _i);
    begin(name, true, CUT_NONE);
    const char *what = step();
    if (is_fp8(name))
        ck_assert_msg(what != NULL, "%s looks through no cut", name);
    else
        ck_assert_msg(!what, "%s differs", what);
    end();
}
END_TEST

/* The first value of the forward that differs is the result of the linear that reads the cut
 * itself: its operand x is quantized from another value. What else reads the cut is equal. */
START_TEST(first_difference)
{
    static char text[2 * 16384];
    static pair_values in, out[2];
    const char *name = fp8c_name(FP8C_NAME_RECIPE, _i), *first = NULL;
    ctx = new_context();
    for (int i = 0; i < 2; i++) {
        blocks_text(text, sizeof text, name, 0, 2, i ? CUT_NONE : CUT_MARKED, "nrmdsy");
        fp8c_compile_options o = recipe(name);
        o.inference = 1;
        fp8c_module *m = parse(ctx, text);
        fp8c_program *p = compile(ctx, m, &o);
        ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
        pair_run(p, "eval", &in, &out[i]);
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
    }
    for (int i = 1; i < out[0].n && !first; i++) /* 0: what a later block would read */
        if (!pair_equal(&out[0], &out[1], out[0].value[i].name))
            first = out[0].value[i].name;
    if (is_fp8(name))
        ck_assert_str_eq(first ? first : "none", "out.s1");
    else
        ck_assert_ptr_null(first);
    pair_end(&in);
    pair_end(&out[0]);
    pair_end(&out[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- the pair and micro_step ---- */

/* The head is not cut into chunks here. */
START_TEST(pair_equals_micro_step)
{
    begin(fp8c_name(FP8C_NAME_RECIPE, _i), false, CUT_MARKED);
    b.train = true;
    equal_for(FEW);
    end();
}
END_TEST

/* ---- faults of the caller ---- */

/* The scales of the program that was forgotten show it, and no other's. */
START_TEST(forgotten_update_scales)
{
    static const char *const recipes[] = {"delayed", "current"};
    static const char *const states[] = {"fp8.scale of h.2.", "fp8.weight_amax of h.2."};
    begin(recipes[_i], true, CUT_MARKED);
    b.forgets = 2;
    equal_for(1);
    const char *what = step();
    ck_assert_msg(what && !strncmp(what, states[_i], strlen(states[_i])), "%s differs",
                  what ? what : "nothing");
    end();
}
END_TEST

/* A forward that runs twice changes nothing. */
START_TEST(forward_twice)
{
    static const char *const recipes[] = {"delayed", "current"};
    begin(recipes[_i], true, CUT_MARKED);
    b.twice = true;
    equal_for(FEW);
    end();
}
END_TEST

Suite *f8_suite(void)
{
    int n = 0;
    while (fp8c_name(FP8C_NAME_RECIPE, n))
        n++;
    Suite *s = suite_create("blocks");
    TCase *t = tcase_create("blocks");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, four_programs_equal_one, 0, n);
    tcase_add_loop_test(t, without_probes, 0, n);
    tcase_add_loop_test(t, with_budgets, 0, n);
    tcase_add_loop_test(t, without_boundaries, 0, n);
    tcase_add_loop_test(t, first_difference, 0, n);
    tcase_add_loop_test(t, pair_equals_micro_step, 0, n);
    tcase_add_loop_test(t, forgotten_update_scales, 0, 2);
    tcase_add_loop_test(t, forward_twice, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
