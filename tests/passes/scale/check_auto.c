/* Recipe `auto`: what a calibration measures, what is chosen from it, and that the compiled program
 * is the one that the chosen rules give when they are pasted into the text. */
#include <math.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_tune.h"
#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

/* Widths of 64, so that blocks of 32 are several; `out` makes some of x's channels huge and their
 * weights tiny. */
static const char text_of[] =
    "module m\n"
    "param wte: f32[16, 64] normal(0.5)\n"
    "param up.weight: f32[64, 128] normal(0.1)\n"
    "param down.weight: f32[128, 64] normal(0.1)\n"
    "func forward(%%tokens: i32[64], %%targets: i32[64]) -> (%%loss: f32[]) {\n"
    "  %%x = embedding(wte, %%tokens)\n"
    "  %%y = linear(gelu(linear(%%x, up.weight)), down.weight)\n"
    "  return cross_entropy(linear(%%y, wte) {transpose_b = true, name = \"head\"}, %%targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n"
    "%s";

static const char *model_with(const char *rules)
{
    static char text[4096];
    snprintf(text, sizeof text, text_of, rules);
    return text;
}

static void fill(fp8c_program *p, int step, uint32_t seed)
{
    int32_t *tokens = fp8c_program_buffer(p, step, FP8C_INPUT,
                                          fp8c_program_find_port(p, step, FP8C_INPUT, "tokens"));
    int32_t *targets = fp8c_program_buffer(p, step, FP8C_INPUT,
                                           fp8c_program_find_port(p, step, FP8C_INPUT, "targets"));
    for (int i = 0; i < 64; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(seed >> 28);
        targets[i] = (tokens[i] * 5 + 3) % 16;
    }
}

static fp8c_calibration *calibrate(fp8c_context *ctx, const fp8c_module *m,
                                   const fp8c_compile_options *o, double budget, int batches)
{
    fp8c_calibration *c;
    ck_assert_msg(fp8c_calibration_create(m, o, budget, &c) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_program *p = fp8c_calibration_program(c);
    const int step = fp8c_program_function(p, "micro_step");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    for (int i = 0; i < batches; i++) {
        fill(p, step, (uint32_t)i);
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_msg(fp8c_calibration_observe(c) == FP8C_OK, "%s", fp8c_context_message(ctx));
    }
    return c;
}

static int append(void *user, const char *text, size_t n)
{
    strncat(user, text, n);
    return 0;
}

static void losses(fp8c_program *p, float *loss)
{
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    for (int i = 0; i < 6; i++) {
        fill(p, step, (uint32_t)i);
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        loss[i] = *(float *)fp8c_program_buffer(p, step, FP8C_OUTPUT, 0);
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
    }
}

START_TEST(pasted_rules_give_the_same_bits)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model_with("recipe \"head\" = bf16\n"));
    fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c =
        calibrate(ctx, m, &o, 0.05, 2); /* between E4M3's error and E5M2's: a mixture */
    char rules[1024] = "recipe \"head\" = bf16\n";
    ck_assert_int_eq(fp8c_calibration_rules(c, append, rules), FP8C_OK);
    ck_assert_msg(strstr(rules, "recipe \"up\" dgrad = "), "%s", rules);
    ck_assert_msg(!strstr(rules, "recipe \"head\" fprop"), "%s", rules);
    o.calibration = c;
    fp8c_program *chosen = compile(ctx, m, &o);
    fp8c_calibration_destroy(c);
    fp8c_module *pasted = parse(ctx, model_with(rules));
    const fp8c_compile_options plain = recipe("delayed");
    fp8c_program *fixed = compile(ctx, pasted, &plain);
    fp8c_decision a, b;
    int n = 0, fp8 = 0;
    for (; fp8c_program_decision(chosen, n, &a) == FP8C_OK; n++) {
        ck_assert_int_eq(fp8c_program_decision(fixed, n, &b), FP8C_OK);
        ck_assert_str_eq(a.scaling, b.scaling);
        ck_assert_str_eq(a.linear, b.linear);
        ck_assert(strlen(a.reason) > 0);
        fp8 += a.fp8 != 0;
    }
    ck_assert_int_eq(n, 9);
    ck_assert_int_gt(fp8, 0);
    float first[6], second[6];
    losses(chosen, first);
    losses(fixed, second);
    ck_assert_mem_eq(first, second, sizeof first);
    fp8c_program_destroy(chosen);
    fp8c_program_destroy(fixed);
    fp8c_module_destroy(pasted);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The error of E4M3 operands with fitting scales is about 3.7%, of E4M3 by E5M2 5.9% (choose.h),
 * where products add up as if of random signs; less where they agree in sign, since the result is
 * then larger. An estimate is over 256 elements: no more than a third above, and no less than a
 * third of it. */
START_TEST(errors_are_what_the_formats_give)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model_with(""));
    const fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c = calibrate(ctx, m, &o, 0, 2);
    fp8c_trial t;
    fp8c_candidate k;
    int n = 0;
    for (; fp8c_calibration_trial(c, n, &t) == FP8C_OK; n++) {
        ck_assert_msg(t.winner == 1, "%s %s: %s", t.linear, t.role,
                      t.reason); /* delayed moves least */
        for (int i = 1; fp8c_calibration_candidate(c, n, i, &k) == FP8C_OK; i++) {
            const bool hybrid = i < 3 && strcmp(t.role, "fprop");
            const double want = hybrid ? 0.065 : 0.041; /* lines of 16: a tenth more */
            ck_assert_ptr_null(k.excluded);
            ck_assert_msg(k.error < 1.34 * want && k.error > want / 3,
                          "%s %s %s: error %g, not about %g", t.linear, t.role, k.recipe, k.error,
                          want);
            ck_assert_msg(k.seconds > k.gemm_seconds && k.gemm_seconds > 0 && k.bytes > 0, "%s",
                          k.recipe);
        }
    }
    ck_assert_int_eq(n, 9);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* What a target can't have is excluded with its reason, though calibrated on the CPU. */
START_TEST(targets_exclude)
{
    static const struct {
        const char *target, *recipe, *reason;
    } want[] = {
        {"sm_89", "rowwise", "sm_89 has no FP8 GEMM with scales of rows"},
        {"sm_89", "block", "sm_89 has no FP8 GEMM with scales of 128-blocks"},
        {"sm_90a", "mxfp8", "sm_90a has no FP8 GEMM with MX scales"},
        {"sm_100a", "block", "sm_100a has no FP8 GEMM with scales of 128-blocks"},
        {"sm_90a", "block", NULL},
        {"sm_120a", "mxfp8", NULL},
    };
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model_with(""));
    fp8c_compile_options o = recipe("auto");
    o.target = want[_i].target;
    o.no_device = 1;
    fp8c_calibration *c = calibrate(ctx, m, &o, 0, 1);
    ck_assert_str_eq(fp8c_program_target(fp8c_calibration_program(c)), "cpu");
    fp8c_candidate k;
    int i = 0;
    do
        ck_assert_int_eq(fp8c_calibration_candidate(c, 0, i++, &k), FP8C_OK);
    while (strcmp(k.recipe, want[_i].recipe));
    ck_assert_int_eq(k.excluded != NULL, want[_i].reason != NULL);
    if (want[_i].reason)
        ck_assert_str_eq(k.excluded, want[_i].reason);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(sizes_exclude)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(
        ctx,
        "module m\nparam w: f32[40, 24] normal(1)\n"
        "func forward(%tokens: i32[64], %targets: i32[64]) -> (%loss: f32[]) {\n"
        "  %e = broadcast(reshape(cast(%tokens) {to = f32}) {shape = [64, 1]}) {shape = [64, 40]}\n"
        "  return cross_entropy(linear(%e, w), %targets)\n}\n"
        "optimizer adamw {lr = 0.1}\n");
    fp8c_compile_options o = recipe("auto");
    o.target = "sm_90a";
    o.no_device = o.text_only = 1;
    fp8c_calibration *c = calibrate(ctx, m, &o, 0, 1);
    fp8c_trial t;
    ck_assert_int_eq(fp8c_calibration_trial(c, 0, &t), FP8C_OK);
    ck_assert_int_eq(t.winner, 0);
    ck_assert_str_eq(t.reason,
                     "auto: 64 x 24 x 40: n and k are not multiples of 16, as sm_90a wants them");
    o.calibration = c;
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_decision d;
    ck_assert_int_eq(fp8c_program_decision(p, 0, &d), FP8C_OK);
    ck_assert_str_eq(d.reason, t.reason);
    ck_assert_int_eq(d.fp8, 0);
    fp8c_program_destroy(p);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A projection that begins at zero shows nothing of its products, nor of the gradients behind it.
 * An error of 0 is no evidence: they stay bf16, and say so. */
START_TEST(zeros_are_no_evidence)
{
    static const char text[] =
        "module m\n"
        "param wte: f32[16, 64] normal(0.5)\n"
        "param up.weight: f32[64, 128] normal(0.1)\n"
        "param down.weight: f32[128, 64] zeros\n"
        "func forward(%tokens: i32[64], %targets: i32[64]) -> (%loss: f32[]) {\n"
        "  %x = embedding(wte, %tokens)\n"
        "  %y = add(%x, linear(gelu(linear(%x, up.weight)), down.weight))\n"
        "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
        "}\n"
        "optimizer adamw {lr = 0.05, clip = 1}\n";
    static const char *const unknown[] = {"up dgrad", "up wgrad", "down fprop", "down dgrad"};
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c = calibrate(ctx, m, &o, 0, 2);
    fp8c_trial t;
    fp8c_candidate k;
    int n = 0;
    for (int i = 0; fp8c_calibration_trial(c, i, &t) == FP8C_OK; i++) {
        char gemm[32];
        bool known = true;
        snprintf(gemm, sizeof gemm, "%s %s", t.linear, t.role);
        for (size_t u = 0; u < sizeof unknown / sizeof unknown[0]; u++)
            known &= strcmp(gemm, unknown[u]) != 0;
        ck_assert_int_eq(fp8c_calibration_candidate(c, i, 1, &k), FP8C_OK);
        ck_assert_msg((t.winner > 0) == known && isnan(k.error) == !known, "%s: %s", gemm,
                      t.reason);
        if (!known)
            ck_assert_str_eq(t.reason,
                             "auto: nothing to measure: the result was zero, or beyond f32");
        n += !known;
    }
    ck_assert_int_eq(n, 4);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Linears of one weight are chosen for one by one, and so are those without a name: their lines are
 * rules too, each for its own. */
START_TEST(rules_of_one_weight)
{
    static const char text[] =
        "module m\n"
        "param wte: f32[16, 64] normal(0.5)\n"
        "param up.weight: f32[64, 64] normal(0.1)\n"
        "param gain: f32[64, 64] normal(0.1)\n"
        "func forward(%%tokens: i32[64], %%targets: i32[64]) -> (%%loss: f32[]) {\n"
        "  %%x = linear(gelu(linear(embedding(wte, %%tokens), up.weight)), up.weight)\n"
        "  %%y = linear(%%x, add(up.weight, gain))\n"
        "  return cross_entropy(linear(%%y, wte) {transpose_b = true, name = \"head\"}, "
        "%%targets)\n"
        "}\n"
        "optimizer adamw {lr = 0.05, clip = 1}\n%s";
    fp8c_context *ctx = new_context();
    char model[4096], rules[2048] = "";
    snprintf(model, sizeof model, text, "");
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c = calibrate(ctx, m, &o, 0.045, 2);
    ck_assert_int_eq(fp8c_calibration_rules(c, append, rules), FP8C_OK);
    ck_assert_msg(strstr(rules, "\"up.2\"") && strstr(rules, "\"linear.0\""), "%s", rules);
    o.calibration = c;
    fp8c_program *chosen = compile(ctx, m, &o);
    fp8c_calibration_destroy(c);
    snprintf(model, sizeof model, text, rules);
    fp8c_module *pasted = parse(ctx, model);
    const fp8c_compile_options plain = recipe("delayed");
    fp8c_program *fixed = compile(ctx, pasted, &plain);
    fp8c_decision a, b;
    int n = 0, differ = 0;
    for (; fp8c_program_decision(chosen, n, &a) == FP8C_OK; n++) {
        ck_assert_int_eq(fp8c_program_decision(fixed, n, &b), FP8C_OK);
        ck_assert_str_eq(a.scaling, b.scaling);
        differ += strcmp(a.scaling, "delayed") != 0;
    }
    ck_assert_int_eq(n, 12);
    ck_assert_int_gt(differ, 0);
    fp8c_program_destroy(chosen);
    fp8c_program_destroy(fixed);
    fp8c_module_destroy(pasted);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* No recipe within the budget: bf16, which says by how much the nearest missed. */
START_TEST(nothing_fits)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model_with("recipe \"up\" wgrad = current\n"));
    fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c = calibrate(ctx, m, &o, 1e-4, 1);
    fp8c_trial t;
    for (int i = 0; fp8c_calibration_trial(c, i, &t) == FP8C_OK; i++) {
        ck_assert_int_eq(t.winner, 0);
        const bool fixed = !strcmp(t.linear, "up") && !strcmp(t.role, "wgrad");
        ck_assert_int_eq(t.fixed, fixed);
        ck_assert_msg(strstr(t.reason, fixed ? "recipe \"up\" wgrad = current"
                                             : "auto: no FP8 recipe is within 0.01%: ") == t.reason,
                      "%s", t.reason);
    }
    o.calibration = c;
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    ck_assert_int_eq(info.fp8_gemms_planned, 1);
    fp8c_program_destroy(p);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

static void expect(fp8c_context *ctx, fp8c_status got, const char *message)
{
    ck_assert_int_ne(got, FP8C_OK);
    ck_assert_msg(strstr(fp8c_context_message(ctx), message), "%s", fp8c_context_message(ctx));
}

START_TEST(refusals)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model_with(""));
    fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c;
    fp8c_program *p;
    expect(ctx, fp8c_calibration_create(m, &o, 1.5, &c),
           "an error budget of 1.5 is not a share from 0 to 1");
    ck_assert_ptr_null(c);
    expect(ctx, fp8c_calibration_create(m, &o, NAN, &c), "an error budget of nan");
    expect(ctx, fp8c_compile(m, &o, &p),
           "recipe auto needs a calibration that has observed a batch");
    c = calibrate(ctx, m, &o, 0, 0);
    o.calibration = c;
    expect(ctx, fp8c_compile(m, &o, &p),
           "recipe auto needs a calibration that has observed a batch");
    fp8c_program *q = fp8c_calibration_program(c);
    const int step = fp8c_program_function(q, "micro_step");
    float w[64 * 128];
    fp8c_variable v;
    int up = 0;
    while (fp8c_program_variable(q, up, &v) == FP8C_OK && strcmp(v.name, "up.weight"))
        up++;
    ck_assert_int_eq(fp8c_program_read(q, up, w), FP8C_OK);
    w[7] = NAN;
    ck_assert_int_eq(fp8c_program_write(q, up, w), FP8C_OK);
    fill(q, step, 1);
    ck_assert_int_eq(fp8c_program_run(q, step), FP8C_OK);
    expect(ctx, fp8c_calibration_observe(c), "is not finite: nothing can be learned from it");
    fp8c_calibration_destroy(c);
    fp8c_calibration_destroy(NULL);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A rule on one operand leaves auto no choice; names that ports can't have are calibrated like
 * others. */
START_TEST(odd_rules_and_names)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model_with("recipe \"up\" w = current\n"));
    fp8c_compile_options o = recipe("auto");
    fp8c_program *p;
    fp8c_calibration *c = calibrate(ctx, m, &o, 0, 1);
    o.calibration = c;
    expect(ctx, fp8c_compile(m, &o, &p),
           "auto chooses for both operands of a GEMM, but a rule decides one of them");
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    char text[4096];
    snprintf(text, sizeof text, "%s", model_with(""));
    char *name = strstr(text, "name = \"head\"");
    ck_assert_ptr_nonnull(name);
    memcpy(name, "name = \"h*a \"", strlen("name = \"h*a \""));
    m = parse(ctx, text);
    o.calibration = NULL;
    c = calibrate(ctx, m, &o, 0, 1);
    o.calibration = c;
    p = compile(ctx, m, &o);
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    ck_assert_int_gt(info.fp8_gemms_planned, 0);
    fp8c_program_destroy(p);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("auto");
    TCase *t = tcase_create("auto");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, pasted_rules_give_the_same_bits);
    tcase_add_test(t, errors_are_what_the_formats_give);
    tcase_add_loop_test(t, targets_exclude, 0, 6);
    tcase_add_test(t, sizes_exclude);
    tcase_add_test(t, zeros_are_no_evidence);
    tcase_add_test(t, rules_of_one_weight);
    tcase_add_test(t, nothing_fits);
    tcase_add_test(t, refusals);
    tcase_add_test(t, odd_rules_and_names);
    suite_add_tcase(s, t);
    return s;
}
