/* The rules that give recipes to the operands of each GEMM: which wins where several match, which
 * combinations one GEMM cannot have, what is decided and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/text/parse.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

/* ---- who wins ---- */

/* Layers 2, 5 and 7, with a linear that shares layer 5's weight (its name is h.5.fc.2 then), and
 * two outside of layers, of which `out` is there twice: the number that tells them apart is no
 * layer. */
static const char many[] =
    "module m\ndim B = 32, C = 32\n"
    "param h.2.fc.weight: f32[C, C] ones\nparam h.5.fc.weight: f32[C, C] ones\n"
    "param h.7.fc.weight: f32[C, C] ones\nparam h.7.up.weight: f32[C, C] ones\n"
    "param out: f32[C, C] ones\nparam head.weight: f32[C, C] ones\n"
    "func forward(%x: f32[B, C], %t: i32[B]) -> (%loss: f32[]) {\n"
    "  %a = tanh(linear(tanh(linear(%x, h.2.fc.weight)), h.5.fc.weight))\n"
    "  %b = tanh(linear(tanh(linear(%a, h.5.fc.weight)), h.7.fc.weight))\n"
    "  %c = tanh(linear(%b, h.7.up.weight))\n"
    "  %d = tanh(linear(tanh(linear(%c, out)), out))\n"
    "  return cross_entropy(linear(%d, head.weight), %t)\n}\n";

/* `many` with rules, its linears named. */
static void begin(test_unit *t, const char *rules, const char *recipe)
{
    char text[4096];
    snprintf(text, sizeof text, "%s%s", many, rules);
    test_unit_parse(t, text, "bf16");
    f8_recipe *r = f8_arena_array(&t->arena, 1, sizeof *r);
    ck_assert_msg(f8_recipe_parse(recipe, F8_NOWHERE, r, &t->diag) == F8_OK, "%s", t->diag.text);
    t->unit.options.recipe = r;
}

static const struct {
    const char *recipe, *rules;
    const char *where; /* "LINEAR ROLE OPERAND" */
    const char *want, *reason;
} precedence[] = {
    {"block", "", "h.2.fc fprop x", "block", "the recipe asked for"},
    {"delayed {margin = 1}", "", "head wgrad dy", "delayed {margin = 1}", "the recipe asked for"},
    /* the last that matches wins, however narrow the others */
    {"block", "recipe \"h.2.fc\" wgrad dy = current\nrecipe \"h.*\" = rowwise\n", "h.2.fc wgrad dy",
     "rowwise", "recipe \"h.*\" = rowwise (line 17)"},
    {"block", "recipe \"h.*\" = rowwise\nrecipe \"h.2.fc\" wgrad dy = current {pow2=true}\n",
     "h.2.fc wgrad dy", "current {pow2 = true}",
     "recipe \"h.2.fc\" wgrad dy = current {pow2 = true} (line 17)"},
    {"block", "recipe \"h.*\" = rowwise\nrecipe \"h.2.fc\" wgrad dy = current\n", "h.2.fc wgrad x",
     "rowwise", "recipe \"h.*\" = rowwise (line 16)"},
    {"block", "recipe \"h.*\" = rowwise\nrecipe \"h.2.fc\" wgrad dy = current\n", "h.2.fc dgrad dy",
     "rowwise", "recipe \"h.*\" = rowwise (line 16)"},
    /* a role without operands, an operand without a role */
    {"block", "recipe \"*\" wgrad = bf16\n", "h.7.up wgrad dy", "bf16",
     "recipe \"*\" wgrad = bf16 (line 16)"},
    {"block", "recipe \"*\" wgrad = bf16\n", "h.7.up dgrad dy", "block", "the recipe asked for"},
    {"block", "recipe \"*\" dy = current\n", "h.7.up dgrad dy", "current",
     "recipe \"*\" dy = current (line 16)"},
    {"block", "recipe \"*\" dy = current\n", "h.7.up dgrad w", "block", "the recipe asked for"},
    /* auto: the recipe asked for, also over a rule before */
    {"block {pow2 = true}", "recipe \"*\" = bf16\nrecipe \"h.7.*\" = auto\n", "h.7.fc fprop w",
     "block {pow2 = true}", "recipe \"h.7.*\" = auto (line 17)"},
    {"block", "recipe \"*\" = bf16\nrecipe \"h.7.*\" = auto\n", "h.5.fc fprop w", "bf16",
     "recipe \"*\" = bf16 (line 16)"},
    /* a high-precision run is so everywhere */
    {"bf16", "recipe \"*\" = block\n", "h.2.fc fprop x", "bf16", "the recipe asked for"},
    {"f32", "recipe \"*\" = block\n", "h.2.fc fprop x", "f32", "the recipe asked for"},
    /* layers, counted from either end among those the linears are in; not what is outside of all */
    {"block", "recipe layers 1, 0 = bf16\n", "h.2.fc fprop x", "bf16",
     "recipe layers 1, 0 = bf16 (line 16)"},
    {"block", "recipe layers 1, 0 = bf16\n", "h.5.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 0, 1 = bf16\n", "h.7.up fprop x", "bf16",
     "recipe layers 0, 1 = bf16 (line 16)"},
    {"block", "recipe layers 0, 1 = bf16\n", "h.7.fc fprop x", "bf16",
     "recipe layers 0, 1 = bf16 (line 16)"},
    {"block", "recipe layers 0, 1 = bf16\n", "h.5.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 1, 1 = bf16\n", "h.5.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 2, 0 = bf16\n", "h.5.fc.2 dgrad dy", "bf16",
     "recipe layers 2, 0 = bf16 (line 16)"},
    {"block", "recipe layers 2, 0 = bf16\n", "h.7.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 9, 9 = bf16\n", "h.5.fc fprop x", "bf16",
     "recipe layers 9, 9 = bf16 (line 16)"},
    {"block", "recipe layers 9, 9 = bf16\n", "head fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 9, 9 = bf16\n", "out.2 fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 0, 0 = bf16\n", "h.2.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 1, 1 = bf16\nrecipe \"h.7.up\" = block\n", "h.7.up fprop x", "block",
     "recipe \"h.7.up\" = block (line 17)"},
    /* linears of one weight follow its rules */
    {"block", "recipe \"out\" = rowwise\n", "out.2 wgrad x", "rowwise",
     "recipe \"out\" = rowwise (line 16)"},
    /* unless they name one of them, letter for letter */
    {"block", "recipe \"out.2\" = rowwise\n", "out.2 wgrad x", "rowwise",
     "recipe \"out.2\" = rowwise (line 16)"},
    {"block", "recipe \"out.2\" = rowwise\n", "out wgrad x", "block", "the recipe asked for"},
    /* rowwise_gw_hp, asked for or by a rule */
    {"rowwise_gw_hp", "", "h.2.fc wgrad x", "bf16",
     "the recipe asked for: rowwise_gw_hp keeps wgrad in bf16"},
    {"rowwise_gw_hp", "", "h.2.fc dgrad w", "rowwise_gw_hp", "the recipe asked for"},
    {"block", "recipe \"h.2.fc\" = rowwise_gw_hp {pow2 = true}\n", "h.2.fc wgrad dy", "bf16",
     "recipe \"h.2.fc\" = rowwise_gw_hp {pow2 = true} (line 16): rowwise_gw_hp keeps wgrad in "
     "bf16"},
    {"rowwise_gw_hp", "recipe \"h.2.fc\" wgrad = block\n", "h.2.fc wgrad dy", "block",
     "recipe \"h.2.fc\" wgrad = block (line 16)"},
};

START_TEST(who_wins)
{
    test_unit t;
    char linear[32], role[8], operand[8], text[F8_RECIPE_TEXT];
    begin(&t, precedence[_i].rules, precedence[_i].recipe);
    test_pass(&t, f8_pass_precision);
    ck_assert_int_eq(sscanf(precedence[_i].where, "%31s %7s %7s", linear, role, operand), 3);
    f8_operand_kind kind = F8_OPERAND_X;
    while (strcmp(f8_operand_name[kind], operand))
        kind++;
    const f8_assignment c = f8_recipe_for(&t.unit, linear, f8_role_by_name(role), kind);
    ck_assert_str_eq(f8_recipe_print(&c.recipe, text, sizeof text), precedence[_i].want);
    ck_assert_str_eq(c.reason, precedence[_i].reason);
    test_unit_end(&t);
}
END_TEST

/* The number in the name of a linear whose weight is computed is no layer's, so the first layer
 * here is 3. A rule for `linear` is for all such linears. */
START_TEST(no_name_no_layer)
{
    static const char text[] =
        "module m\nparam a: f32[32, 32] ones\nparam h.3.w: f32[32, 32] ones\n"
        "func forward(%x: f32[32, 32], %t: i32[32]) -> (%loss: f32[]) {\n"
        "  %a = linear(linear(tanh(linear(%x, add(a, a))), h.3.w), mul(a, a))\n"
        "  return cross_entropy(%a, %t)\n}\n"
        "recipe layers 1, 0 = bf16\nrecipe \"linear\" = block\nrecipe \"linear.1\" = rowwise\n";
    static const char *const want[][2] = {
        {"linear.0", "block"}, {"h.3.w", "bf16"}, {"linear.1", "rowwise"}};
    test_unit t;
    char got[F8_RECIPE_TEXT];
    test_unit_parse(&t, text, "delayed");
    test_pass(&t, f8_pass_precision);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const f8_assignment c = f8_recipe_for(&t.unit, want[i][0], F8_FPROP, F8_OPERAND_X);
        ck_assert_str_eq(f8_recipe_print(&c.recipe, got, sizeof got), want[i][1]);
    }
    test_unit_end(&t);
}
END_TEST

/* A rule that is not in the text comes last and says who gave it. */
START_TEST(rules_beside_the_text)
{
    test_unit t;
    f8_recipe_rule rule;
    begin(&t, "recipe \"*\" = rowwise\n", "block");
    ck_assert_int_eq(f8_parse_rule("\"h.2.fc\" wgrad = bf16", t.unit.module, &t.diag, &rule),
                     F8_OK);
    ck_assert_int_eq(f8_add_rule(t.unit.module, &rule), F8_OK);
    rule.role = f8_role_name[F8_FPROP];
    rule.origin = "--rule";
    ck_assert_int_eq(f8_add_rule(t.unit.module, &rule), F8_OK);
    test_pass(&t, f8_pass_precision);
    ck_assert_str_eq(f8_recipe_for(&t.unit, "h.2.fc", F8_WGRAD, F8_OPERAND_X).reason,
                     "recipe \"h.2.fc\" wgrad = bf16");
    ck_assert_str_eq(f8_recipe_for(&t.unit, "h.2.fc", F8_FPROP, F8_OPERAND_X).reason,
                     "recipe \"h.2.fc\" fprop = bf16 (--rule)");
    ck_assert_str_eq(f8_recipe_for(&t.unit, "h.2.fc", F8_DGRAD, F8_OPERAND_W).recipe.name,
                     "rowwise");
    test_unit_end(&t);
}
END_TEST

/* ---- what one GEMM can have together ---- */

static const struct {
    const char *target, *recipe, *rules;
    const char *message; /* NULL: it can */
} together[] = {
    {"cpu", "current", "recipe \"head\" x = bf16\n",
     "'head', fprop: x is bf16 and w is current on cpu: a GEMM must have both operands in FP8, or "
     "neither"},
    {"cpu", "current", "recipe \"head\" dgrad w = bf16\n",
     "'head', dgrad: dy is current and w is bf16 on cpu: a GEMM must have both operands in FP8, "
     "or neither"},
    {"cpu", "current", "recipe \"head\" wgrad dy = rowwise\n",
     "'head', wgrad: x is current and dy is rowwise on cpu: both operands of a GEMM must have the "
     "same kind of scaling"},
    {"cpu", "rowwise", "recipe \"head\" fprop w = block {pow2 = true}\n",
     "'head', fprop: x is rowwise and w is block {pow2 = true} on cpu: both operands of a GEMM "
     "must have the same kind of scaling"},
    {"cpu", "mxfp8", "recipe \"head\" dgrad dy = block\n",
     "'head', dgrad: dy is block and w is mxfp8 on cpu: both operands of a GEMM must have the "
     "same kind of scaling"},
    {"cpu", "block", "recipe \"head\" fprop w = block {pow2 = true}\n",
     "'head', fprop: x is block and w is block {pow2 = true} on cpu: a GEMM must have scales that "
     "are powers of two for both operands, or for neither"},
    {"cpu", "current", "recipe \"head\" fprop w = fake\n",
     "'head', fprop: x is current and w is fake on cpu: where one operand is fake, the other must "
     "be fake or bf16"},
    {"cpu", "current", "recipe \"head\" wgrad = f32\n",
     "'head', wgrad: x is f32 and dy is f32 on cpu: a GEMM that is not FP8 must have the dtype of "
     "the linear's x in fprop"},
    {"cpu", "current", "recipe \"head\" fprop = f32\nrecipe \"head\" dgrad = bf16\n",
     "'head', dgrad: dy is bf16 "},
    {"cpu", "fake", "recipe \"head\" w = f32\n",
     "'head', fprop: x is fake and w is f32 on cpu: a GEMM that is not FP8 "},
    {"cpu", "fake", "recipe \"head\" x = f32\n",
     "'head', fprop: x is f32 and w is fake on cpu: where one operand is fake"},
    {"cpu", "current", "recipe \"head\" = f32\n", NULL},
    {"cpu", "current", "recipe \"head\" fprop = f32\n", NULL},
    {"cpu", "auto", "", "recipe auto needs a calibration that has observed a batch"},
    /* per-tensor scales combine, whatever they come from; formats and margins are each operand's
       own */
    {"cpu", "current", "recipe \"head\" x = delayed\nrecipe \"head\" w = current {pow2 = true}\n",
     NULL},
    {"sm_89", "delayed", "recipe \"*\" dy = current {format = e4m3, margin = 2}\n", NULL},
    {"cpu", "block", "recipe \"head\" dgrad dy = block {format = hybrid, margin = 1}\n", NULL},
    {"cpu", "block", "recipe \"head\" wgrad = rowwise\n", NULL}, /* each GEMM for itself */
    {"cpu", "fake", "recipe \"head\" w = bf16\nrecipe \"h.2.fc\" x = mxfp8 {fake = true}\n", NULL},
    /* targets */
    {"sm_89", "rowwise", "",
     "'h.2.fc', fprop: x is rowwise and w is rowwise on sm_89: scales of rows exist on sm_90a"},
    {"sm_100a", "rowwise", "", "on sm_100a: scales of rows exist on sm_90a"},
    {"sm_120a", "rowwise_gw_hp", "", "on sm_120a: scales of rows exist on sm_90a"},
    {"sm_100a", "block", "",
     "'h.2.fc', fprop: x is block and w is block on sm_100a: scales of 128-blocks exist on sm_90a"},
    {"sm_89", "block", "", "on sm_89: scales of 128-blocks exist on sm_90a"},
    {"sm_90a", "mxfp8", "",
     "'h.2.fc', fprop: x is mxfp8 and w is mxfp8 on sm_90a: scales of MX exist on sm_100a and "
     "sm_120a"},
    {"sm_89", "mxfp8", "", "on sm_89: scales of MX exist on sm_100a and sm_120a"},
    {"sm_90a", "current", "recipe \"head\" = mxfp8\n",
     "'head', fprop: x is mxfp8 and w is mxfp8 on sm_90a: "},
    {"sm_90a", "rowwise", "", NULL},
    {"sm_90a", "block {pow2 = true}", "", NULL},
    {"sm_100a", "mxfp8", "", NULL},
    {"sm_120a", "mxfp8", "", NULL},
    {"sm_89", "rowwise", "recipe \"*\" = delayed\n", NULL},
    {"sm_89", "fake", "recipe \"head\" = block {fake = true}\n", NULL}, /* a GEMM of bf16 */
};

/* The passes up to scaling. */
static f8_status scale(test_unit *t)
{
    F8_TRY(f8_pass_precision(&t->unit));
    F8_TRY(f8_pass_autodiff(&t->unit));
    F8_TRY(f8_pass_chunk(&t->unit));
    return test_pass_fails(t, f8_pass_scaling);
}

START_TEST(operands_together)
{
    test_unit t;
    begin(&t, together[_i].rules, together[_i].recipe);
    t.unit.options.target = f8_target_by_name(together[_i].target);
    const f8_status status = scale(&t);
    if (together[_i].message) {
        ck_assert_int_eq(status, F8_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(t.diag.text, together[_i].message) != NULL, "'%s' does not say '%s'",
                      t.diag.text, together[_i].message);
        ck_assert_uint_gt(t.diag.loc.line, 9); /* where the linear stands */
    } else {
        ck_assert_msg(status == F8_OK, "%s", t.diag.text);
    }
    test_unit_end(&t);
}
END_TEST

/* Sizes, which the CPU takes as they are: the message names the linear, the GEMM and the rule to
 * write. */
START_TEST(sizes)
{
    static const char text[] =
        "module m\nparam a.weight: f32[32, 40] ones\nparam b.weight: f32[40, 32] ones\n"
        "func forward(%x: f32[32, 32], %t: i32[32]) -> (%loss: f32[]) {\n"
        "  return cross_entropy(linear(tanh(linear(%x, a.weight)), b.weight), %t)\n}\n";
    static const char *const recipes[] = {"delayed", "current"};
    for (int i = 0; i < 2; i++) {
        test_unit t;
        test_unit_parse(&t, text, recipes[i]);
        t.unit.options.target = f8_target_by_name("sm_90a");
        ck_assert_int_eq(scale(&t), F8_ERR_UNSUPPORTED);
        ck_assert_str_eq(t.diag.text, "'a', fprop: FP8 GEMMs of sm_90a need multiples of 16 for n "
                                      "and k, but this one has "
                                      "m = 32, n = 40, k = 32; write recipe \"a\" = bf16");
        test_unit_end(&t);
        test_unit_parse(&t, text, recipes[i]);
        ck_assert_msg(scale(&t) == F8_OK, "%s", t.diag.text);
        test_unit_end(&t);
    }
}
END_TEST

/* ---- decisions ---- */

static const f8_decision *decision(const test_unit *t, const char *linear, f8_role role)
{
    for (size_t i = 0; i < t->unit.n_decisions; i++)
        if (!strcmp(t->unit.decision[i].linear, linear) &&
            !strcmp(t->unit.decision[i].role, f8_role_name[role]))
            return &t->unit.decision[i];
    ck_abort_msg("no decision on %s %s", linear, f8_role_name[role]);
}

static void decided(const test_unit *t, const char *linear, f8_role role, const char *formats,
                    const char *scaling, const char *reason)
{
    char got[40];
    const f8_decision *d = decision(t, linear, role);
    snprintf(got, sizeof got, "%s %s", d->a, d->b);
    ck_assert_str_eq(got, formats);
    ck_assert_str_eq(d->scaling, scaling);
    ck_assert_str_eq(d->reason, reason);
    ck_assert_int_eq(d->fp8, strstr(formats, "f8") != NULL);
}

START_TEST(decisions)
{
    test_unit t;
    begin(&t,
          "recipe \"head\" = bf16\nrecipe \"h.2.fc\" dy = current {format = e4m3, pow2 = true}\n"
          "recipe \"h.5.*\" wgrad = bf16\n",
          "current");
    ck_assert_msg(scale(&t) == F8_OK, "%s", t.diag.text);
    ck_assert_uint_eq(t.unit.n_decisions, 3 * 8 - 1); /* the first has no dgrad */
    decided(&t, "head", F8_FPROP, "bf16 bf16", "none", "recipe \"head\" = bf16 (line 16)");
    decided(&t, "h.7.fc", F8_FPROP, "f8e4m3 f8e4m3", "current", "the recipe asked for");
    decided(&t, "h.7.fc", F8_DGRAD, "f8e5m2 f8e4m3", "current", "the recipe asked for");
    decided(&t, "h.7.fc", F8_WGRAD, "f8e4m3 f8e5m2", "current", "the recipe asked for");
    decided(&t, "h.2.fc", F8_WGRAD, "f8e4m3 f8e4m3",
            "current; current {format = e4m3, pow2 = true}",
            "the recipe asked for; recipe \"h.2.fc\" dy = current {format = e4m3, pow2 = true} "
            "(line 17)");
    decided(&t, "h.5.fc", F8_WGRAD, "bf16 bf16", "none", "recipe \"h.5.*\" wgrad = bf16 (line 18)");
    decided(&t, "h.5.fc.2", F8_DGRAD, "f8e5m2 f8e4m3", "current", "the recipe asked for");
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("rules");
    TCase *t = tcase_create("rules");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, who_wins, 0, sizeof precedence / sizeof *precedence);
    tcase_add_test(t, rules_beside_the_text);
    tcase_add_test(t, no_name_no_layer);
    tcase_add_loop_test(t, operands_together, 0, sizeof together / sizeof *together);
    tcase_add_test(t, sizes);
    tcase_add_test(t, decisions);
    suite_add_tcase(s, t);
    return s;
}
