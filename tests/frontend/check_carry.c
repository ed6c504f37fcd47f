/* fp8c_program_carry: what one program has observed of its operands goes to another one, by their
 * names. With the same recipe and weights the other one has the same scales, and goes on with the
 * same bits. And `prepare`, which makes the scales anew, changes no bit between two steps. */
#include <math.h>

#include "tests/shared/api/carry.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* ---- the same recipe ---- */

static const char *const recipes[] = {
    "delayed",
    "delayed {amax = most_recent}",
    "delayed {pow2 = true}",
    "delayed {history = 3, margin = 1}",
    "delayed {history = 1, amax = most_recent, pow2 = true}",
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

/* Between two steps prepare changes no bit, however many there were. */
START_TEST(prepare_keeps_scales)
{
    fp8c_program *p = begin(recipes[_i], NULL), *q = begin(recipes[_i], NULL);
    for (int steps = 0; steps < 20; steps++) {
        train(p, 1);
        train(q, 1);
        run(q, "prepare");
        same_variables(p, q, false);
        if (steps % 3 == 0) { /* in the middle of a step */
            ck_assert(micro_step(p, "micro_step", 3) == micro_step(q, "micro_step", 3));
            run(q, "prepare");
            same_variables(p, q, true);
        }
    }
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
}
END_TEST

/* A program that takes over weights, moments and observations has the scales of the other, to the
 * bit, and trains as it does: also where histories have turned over, and in the middle of a step.
 */
START_TEST(same_bits)
{
    static const int steps[] = {1, 3, 20};
    for (int n = 0; n < 3; n++) {
        fp8c_program *p = begin(recipes[_i], NULL), *q = begin(recipes[_i], NULL);
        train(p, steps[n]);
        if (n)
            micro_step(p, "micro_step", 5);
        copy_training(q, p);
        carry(q, p, OPERANDS, 0, 0);
        same_variables(p, q, false);
        for (int more = 0; more < 3; more++) {
            const float a = micro_step(p, "micro_step", more),
                        b = micro_step(q, "micro_step", more);
            ck_assert_msg(!memcmp(&a, &b, sizeof a), "%.9g, %.9g", (double)a, (double)b);
            run(p, "update");
            run(q, "update");
            same_variables(p, q, false);
        }
        fp8c_program_destroy(p);
        fp8c_program_destroy(q);
    }
}
END_TEST

/* Where a history shows nothing, an operand of the same recipe takes the other's scale, and one of
 * another recipe keeps its own. */
START_TEST(nothing_observed)
{
    const float zero[16] = {0};
    fp8c_program *p = begin("delayed {amax = most_recent}", NULL),
                 *same = begin("delayed {amax = most_recent}", NULL),
                 *other = begin("delayed {amax = most_recent, margin = 1}", NULL);
    train(p, 2);
    write_history(p, "fc.dy", zero, 16);
    write_history(p, "fc.x", zero, 1); /* most_recent reads no other entry */
    const float dy = scale_of(p, "fc.dy"), x = scale_of(p, "fc.x");
    ck_assert(dy != 1 && x != 1);
    carry(same, p, OPERANDS, 0, 0);
    ck_assert(scale_of(same, "fc.dy") == dy && scale_of(same, "fc.x") == x);
    carry(other, p, OPERANDS, 0, 0);
    ck_assert(scale_of(other, "fc.dy") == 1 && scale_of(other, "fc.x") == 1);
    ck_assert(scale_of(other, "v.dy") == scale_of(p, "v.dy") / 2);
    fp8c_program_destroy(p);
    fp8c_program_destroy(same);
    fp8c_program_destroy(other);
}
END_TEST

/* ---- another recipe, shape or kind of program ---- */

static float largest(const float *row, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, row[i]);
    return most;
}

/* Scales follow the rule of the program that takes the histories. Of a longer history it takes the
 * newest, and a shorter one is filled up with zeros. */
START_TEST(another_recipe)
{
    float own[16], its[16];
    fp8c_program *p = begin("delayed", NULL),
                 *q = begin("delayed {history = 4, margin = 2, pow2 = true}", NULL),
                 *r = begin("delayed", NULL);
    train(p, 9);
    copy_training(q, p);
    carry(q, p, OPERANDS, 0, 0);
    static const char *const names[] = {"q.x", "fc.x", "fc.w", "head.w", "k.dy", "head.dy"};
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(history_of(p, names[i], its), 16);
        ck_assert_int_eq(history_of(q, names[i], own), 4);
        ck_assert(its[8] > 0 && its[9] == 0);
        ck_assert_msg(!memcmp(own, its, 4 * sizeof *own), "%s", names[i]);
        int exponent;
        const float most = i < 4 ? 448 : 57344, exact = most / 4 / largest(own, 4);
        frexpf(exact, &exponent);
        ck_assert_msg(scale_of(q, names[i]) == ldexpf(1, exponent - 1), "%s", names[i]);
    }
    train(r, 9); /* it had a history of its own */
    copy_training(r, q);
    carry(r, q, OPERANDS, 0, 0);
    for (int i = 0; i < 6; i++) {
        history_of(q, names[i], its);
        history_of(r, names[i], own);
        ck_assert(!memcmp(own, its, 4 * sizeof *own) && largest(own + 4, 12) == 0);
        ck_assert(scale_of(r, names[i]) == (i < 4 ? 448 : 57344) / largest(own, 4));
    }
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_program_destroy(r);
}
END_TEST

/* A parameter that was changed: its scale covers it as it is, and as it was, with most_recent after
 * the last update. */
START_TEST(other_weights)
{
    fp8c_program *p = begin(recipes[_i], NULL), *q = begin(recipes[_i], NULL);
    train(p, 4);
    float row[16];
    history_of(p, "fc.w", row);
    for (int smaller = 0; smaller < 2; smaller++) {
        const float amax = smaller ? row[0] / 8 : row[0] * 8;
        values *w = read_values(q, "fc");
        memset(w->at, 0, sizeof w->at);
        w->at[5] = -amax;
        write_values(q, "fc", w);
        free(w);
        carry(q, p, OPERANDS, 0, 0);
        ck_assert_float_eq(scale_of(q, "fc.w"),
                           448 / (smaller ? largest(row, _i == 0 ? 16 : 1) : amax));
        ck_assert_float_eq(scale_of(q, "fc.x"), scale_of(p, "fc.x"));
    }
    values *w = read_values(q, "fc");
    w->at[7] = NAN;
    write_values(q, "fc", w);
    free(w);
    carry(q, p, OPERANDS, 0, 0);
    values *seen = read_values(q, "fp8.amax"); /* whose NaN shows in the step's products */
    ck_assert(isnan(seen->at[element(q, "fp8.amax", "fc.w")]) &&
              !isnan(seen->at[element(q, "fp8.amax", "v.w")]) && isfinite(scale_of(q, "fc.w")) &&
              isnan(micro_step(q, "eval", 0)));
    free(seen);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
}
END_TEST

/* From training to inference and back, also for another shape and target. */
static const char *const targets[] = {"cpu", "reference", "cuda"};

START_TEST(another_program)
{
    fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = begin("delayed", NULL), *longer = start(net, 3 * ROWS_OF_NET, NULL, &o);
    o.inference = 1;
    o.target = targets[_i];
    fp8c_program *serving = start(net, ROWS_OF_NET, NULL, &o);
    train(p, 5);
    copy_training(serving, p);
    copy_training(longer, p);
    carry(serving, p, 8, 0, 5); /* dy of five linears */
    carry(longer, p, OPERANDS, 0, 0);
    same_variables(p, longer, true);
    ck_assert_float_eq(scale_of(serving, "fc.x"), scale_of(p, "fc.x"));
    ck_assert_float_eq(scale_of(serving, "k.w"), scale_of(p, "k.w"));
    const float a = micro_step(p, "eval", 3), b = micro_step(serving, "eval", 3);
    ck_assert_msg(_i ? fabsf(a - b) < 1e-4f * a : !memcmp(&a, &b, sizeof a), "%.9g, %.9g",
                  (double)a, (double)b);
    fp8c_program *back = begin("delayed", NULL);
    copy_training(back, p);
    carry(back, serving, 8, 5, 0);
    ck_assert_float_eq(scale_of(back, "fc.x"), scale_of(p, "fc.x"));
    ck_assert_float_eq(scale_of(back, "fc.dy"), 1);
    fp8c_program_destroy(p);
    fp8c_program_destroy(longer);
    fp8c_program_destroy(serving);
    fp8c_program_destroy(back);
}
END_TEST

/* ---- programs that observe ---- */

/* What such a program has seen begins the history of one that trains. */
START_TEST(observed)
{
    fp8c_compile_options o = recipe("delayed");
    o.inference = o.observe = 1;
    fp8c_program *observer = start(net, ROWS_OF_NET, NULL, &o),
                 *another = start(net, ROWS_OF_NET, NULL, &o);
    o.observe = 0;
    fp8c_program *serving = start(net, ROWS_OF_NET, NULL, &o), *p = begin("delayed", NULL);
    for (int i = 0; i < 3; i++)
        micro_step(observer, "eval", i);
    values *seen = read_values(observer, "fp8.amax");
    const float amax = seen->at[element(observer, "fp8.amax", "fc.x")];
    ck_assert(amax > 0);
    carry(p, observer, 8, 5, 0);
    carry(serving, observer, 8, 0, 0);
    carry(another, observer, 8, 0, 0);
    for (int i = 0; i < 2; i++) {
        fp8c_program *taker = i ? serving : p;
        float row[16];
        history_of(taker, "fc.x", row);
        ck_assert_float_eq(row[0], amax);
        ck_assert_float_eq(largest(row + 1, 15), 0);
        ck_assert_float_eq(scale_of(taker, "fc.x"), 448 / amax);
        history_of(taker, "fc.w", row); /* a weight: eval sees none of its amaxes */
        ck_assert_float_eq(largest(row, 16), 0);
        values *pending = read_values(taker, "fp8.amax");
        for (int64_t k = 0; k < pending->type.dim[0]; k++) { /* a weight's is there at all times */
            const char *name =
                fp8c_program_element(taker, fp8c_program_find_variable(taker, "fp8.amax"), k, 0);
            const bool weight = i == 0 && !strcmp(name + strlen(name) - 2, ".w");
            ck_assert(weight ? pending->at[k] > 0 : pending->at[k] == 0);
        }
        free(pending);
    }
    run(observer, "prepare");
    same_variables(observer, another, false);
    ck_assert_float_eq(scale_of(another, "fc.x"), 448 / amax);
    const float a = micro_step(p, "eval", 4), b = micro_step(serving, "eval", 4);
    ck_assert(!memcmp(&a, &b, sizeof a));
    seen->at[element(observer, "fp8.amax", "fc.x")] = INFINITY;
    write_values(observer, "fp8.amax", seen);
    fp8c_program *before = begin("delayed", NULL);
    carry(before, p, OPERANDS, 0, 0);
    refused(p, observer, "'fc.x' is not finite: no scale follows from it");
    same_variables(before, p, true);
    free(seen);
    fp8c_program_destroy(observer);
    fp8c_program_destroy(another);
    fp8c_program_destroy(serving);
    fp8c_program_destroy(before);
    fp8c_program_destroy(p);
}
END_TEST

/* ---- other recipes ---- */

/* Where neither has histories, prepare runs: the weights' amaxes of `current` are of the weights as
 * they are. */
START_TEST(no_histories)
{
    fp8c_program *p = begin("current", NULL), *q = begin("current", NULL),
                 *high = begin("bf16", NULL);
    train(p, 2);
    copy_training(q, p);
    carry(q, p, 0, 0, 0);
    same_variables(p, q, false);
    carry(high, p, 0, 0, 0);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_program_destroy(high);
}
END_TEST

/* ---- refusals ---- */

START_TEST(refusals)
{
    static const char other[] =
        "module other\nparam w: f32[16, 16] normal(0.5)\n"
        "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[]) {\n"
        "  return cross_entropy(linear(embedding(w, %tokens), w) {name = \"up\"}, %targets)\n}\n";
    fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = begin("delayed", NULL), *high = begin("bf16", NULL), *q;
    o.inference = 1;
    fp8c_program *unlike = start(other, 0, NULL, &o);
    train(p, 1);
    fp8c_program *before = begin("delayed", NULL);
    copy_training(before, p);
    carry(before, p, OPERANDS, 0, 0);
    refused(
        p, unlike,
        "nothing was carried: of operands with amax histories, the program to carry to has 'q.x' "
        "and 12 more, and the one to carry from has 'up.x' and 1 more; their names must agree");
    refused(p, high,
            "the program to carry to has 'q.x' and 12 more, and the one to carry from has none");
    refused(high, p, "to carry to has none, and the one to carry from has 'q.x' and 12 more");
    refused(p, p, "a program can't carry to itself");
    same_variables(before, p, true);
    o = recipe("delayed");
    o.no_device = 1;
    q = compile_text(ctx, net, NULL, 0, NULL, &o);
    refused(p, q, "the program to carry from was compiled with no_device: it has no memory");
    refused(q, p, "the program to carry to was compiled with no_device: it has no memory");
    fp8c_program_destroy(q);
    o.no_device = 0;
    o.plan_only = 1;
    q = compile_text(ctx, net, NULL, 0, NULL, &o);
    refused(p, q, "the program to carry from was compiled with plan_only: it has no memory");
    fp8c_program_destroy(q);
    o.plan_only = 0;
    q = compile_text(ctx, net, NULL, 0, NULL, &o);
    refused(p, q,
            "the variables of the program to carry from have no values: call "
            "fp8c_program_initialize");
    refused(q, p,
            "the variables of the program to carry to have no values: call "
            "fp8c_program_initialize");
    ck_assert_int_eq(fp8c_program_initialize(q, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_carry(q, p, NULL), FP8C_OK);
    fp8c_program_destroy(q);
    fp8c_program_destroy(p);
    fp8c_program_destroy(high);
    fp8c_program_destroy(unlike);
    fp8c_program_destroy(before);
}
END_TEST

static fp8c_status one_life(const void *user, counting *c, char *message, size_t room)
{
    const fp8c_context_options options = counted_options(c);
    fp8c_context *own;
    fp8c_program *to = NULL;
    fp8c_module *m = NULL;
    fp8c_compile_options o = recipe("delayed");
    o.target = "reference";
    snprintf(message, room, "context");
    fp8c_status status = fp8c_context_create(&options, &own);
    if (status != FP8C_OK)
        return status;
    status = fp8c_module_parse(own, net, strlen(net), "net.f8", NULL, 0, &m);
    if (status == FP8C_OK)
        status = fp8c_compile(m, &o, &to);
    if (status == FP8C_OK)
        status = fp8c_program_initialize(to, 1);
    if (status == FP8C_OK)
        status = fp8c_program_carry(to, user, NULL);
    snprintf(message, room, "%s", fp8c_context_message(own));
    fp8c_program_destroy(to);
    fp8c_module_destroy(m);
    fp8c_context_destroy(own);
    return status;
}

/* The context of the program that takes the histories has no memory for them. */
START_TEST(allocations)
{
    fp8c_program *p = begin("delayed", NULL);
    fail_each_allocation(one_life, p, 200);
    fp8c_program_destroy(p);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("carry");
    TCase *t = tcase_create("carry");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, prepare_keeps_scales, 0, RECIPES);
    tcase_add_loop_test(t, same_bits, 0, RECIPES);
    tcase_add_test(t, nothing_observed);
    tcase_add_test(t, another_recipe);
    tcase_add_loop_test(t, other_weights, 0, 2);
    tcase_add_loop_test(t, another_program, 0, 3);
    tcase_add_test(t, observed);
    tcase_add_test(t, no_histories);
    tcase_add_test(t, refusals);
    tcase_add_test(t, allocations);
    suite_add_tcase(s, t);
    return s;
}
