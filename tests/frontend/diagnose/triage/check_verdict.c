/* From evidence to a verdict (frontend/diagnose/triage/): the class of each kind of evidence, which kind
 * counts first, and what the words name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/diagnose/triage/triage.h"
#include "tests/shared/suite.h"

static const f8_triage_value place = {.known = true,
                                      .function = "micro_step",
                                      .kind = "gemm",
                                      .op = "up",
                                      .value = "up.fprop",
                                      .at = 7,
                                      .wrong = 1,
                                      .got = 6,
                                      .want = 2};

/* Step 9 of a run under `delayed`, replayed from step 5: bad there, too, and nothing else known. */
static f8_triage bad_step(void)
{
    return (f8_triage){.step = 9,
                       .checkpoint = 5,
                       .recipe = "delayed",
                       .replay_bad = true,
                       .ranks = 1,
                       .rank = -1};
}

static void try_with(f8_triage *t, const char *what, bool bad)
{
    t->trial[t->n_trials++] = (f8_triage_trial){what, true, bad, 1, 9};
}

static f8_triage_verdict judged(const f8_triage *t, f8_triage_class class)
{
    f8_triage_verdict v;
    f8_triage_judge(t, &v);
    ck_assert_msg(v.class == class, "%s, not %s: %s", f8_triage_class_name[v.class],
                  f8_triage_class_name[class], v.text);
    ck_assert(*v.text && *v.advice);
    return v;
}

static void says(const char *text, const char *words)
{
    ck_assert_msg(strstr(text, words) != NULL, "'%s' is not in: %s", words, text);
}

/* ---- the device ---- */

START_TEST(once)
{
    f8_triage t = bad_step();
    t.differs = 7;
    t.differs_in = "loss";
    f8_triage_verdict v = judged(&t, F8_TRIAGE_TRANSIENT);
    ck_assert_int_eq(v.step, 7);
    ck_assert(!v.value.known);
    says(v.text, "another loss");
    says(v.advice, "checkpoint of step 5");
    says(v.advice, "--fingerprint-every");
    t.fingerprints = true;
    t.first = place;
    v = judged(&t, F8_TRIAGE_TRANSIENT);
    ck_assert_str_eq(v.value.value, "up.fprop");
    says(v.text, "'up.fprop' (gemm up in micro_step)");
    ck_assert_ptr_null(strstr(v.advice, "--fingerprint-every"));
    ck_assert_ptr_null(strstr(v.text, "another rank"));
    snprintf(t.first.kind, sizeof t.first.kind, "collective");
    says(judged(&t, F8_TRIAGE_TRANSIENT).text, "another rank sent it");
}
END_TEST

START_TEST(in_memory)
{
    f8_triage t = bad_step();
    t.differs = 8;
    t.differs_in = "fingerprint";
    t.first = place; /* what reads the variable differs, too */
    snprintf(t.variable, sizeof t.variable, "up");
    const f8_triage_verdict v = judged(&t, F8_TRIAGE_MEMORY);
    ck_assert_int_eq(v.step, 8);
    ck_assert_str_eq(v.value.value, "up");
}
END_TEST

START_TEST(every_time)
{
    f8_triage t = bad_step();
    t.wrong = place;
    t.began = 6;
    f8_triage_verdict v = judged(&t, F8_TRIAGE_PERSISTENT);
    ck_assert_int_eq(v.step, 6);
    ck_assert_int_eq(v.rank, -1);
    ck_assert_str_eq(v.value.value, "up.fprop");
    says(v.text, "element 7 is 6, and 2 was expected");
    ck_assert_ptr_null(strstr(v.text, "bf16"));
    t.wrong_in_bf16 = place;
    says(judged(&t, F8_TRIAGE_PERSISTENT).text, "Under bf16 it is wrong, too.");
    t.ranks = 4;
    t.rank = 2;
    snprintf(t.host, sizeof t.host, "n3");
    v = judged(&t, F8_TRIAGE_PERSISTENT);
    ck_assert_int_eq(v.rank, 2);
    says(v.text, "rank 2 of 4 (host n3)");
}
END_TEST

START_TEST(never_the_same)
{
    f8_triage t = bad_step();
    t.unstable = true;
    t.differs = 6;
    t.differs_in = "loss";
    t.wrong = place;
    ck_assert_int_eq(judged(&t, F8_TRIAGE_UNSTABLE).step, 6);
}
END_TEST

/* A wrong device also makes a step differ, and NaN of a wrong op is no bad input. */
START_TEST(device_first)
{
    f8_triage t = bad_step();
    t.wrong = place;
    t.differs = 8;
    t.differs_in = "loss";
    snprintf(t.variable, sizeof t.variable, "up");
    snprintf(t.input, sizeof t.input, "x");
    snprintf(t.state, sizeof t.state, "up");
    try_with(&t, "another batch", false);
    try_with(&t, "bf16", false);
    judged(&t, F8_TRIAGE_PERSISTENT);
    t.wrong.known = false;
    judged(&t, F8_TRIAGE_MEMORY);
    *t.variable = 0;
    judged(&t, F8_TRIAGE_TRANSIENT);
    t.differs = 0;
    judged(&t, F8_TRIAGE_INPUT);
    *t.input = 0;
    judged(&t, F8_TRIAGE_STATE);
    *t.state = 0;
    judged(&t, F8_TRIAGE_DATA);
}
END_TEST

/* ---- what the step began with ---- */

START_TEST(before_the_step)
{
    f8_triage t = bad_step();
    snprintf(t.input, sizeof t.input, "x");
    f8_triage_verdict v = judged(&t, F8_TRIAGE_INPUT);
    ck_assert_str_eq(v.value.value, "x");
    says(v.advice, "batch of step 9");
    *t.input = 0;
    snprintf(t.state, sizeof t.state, "up");
    v = judged(&t, F8_TRIAGE_STATE);
    ck_assert_str_eq(v.value.value, "up");
    says(v.advice, "checkpoint of step 5");
}
END_TEST

START_TEST(nothing)
{
    f8_triage t = bad_step();
    t.replay_bad = false;
    ck_assert_int_eq(judged(&t, F8_TRIAGE_HEALTHY).step, 9);
}
END_TEST

START_TEST(damaged_checkpoints)
{
    f8_triage t = bad_step();
    t.replay_bad = false;
    ck_assert_ptr_null(strstr(judged(&t, F8_TRIAGE_HEALTHY).text, "damaged"));
    t.passed_over = 1;
    says(judged(&t, F8_TRIAGE_HEALTHY).text, "1 newer checkpoint is damaged");
    t.passed_over = 2;
    says(judged(&t, F8_TRIAGE_HEALTHY).text, "2 newer checkpoints are damaged");
}
END_TEST

/* ---- trials ---- */

/* What heals the step, in the order in which it is tried. */
START_TEST(trials)
{
    f8_triage t = bad_step();
    judged(&t, F8_TRIAGE_UNKNOWN);
    try_with(&t, "another batch", true);
    try_with(&t, "bf16", true);
    try_with(&t, "f32", true);
    try_with(&t, "lr / 4", true);
    try_with(&t, "lr / 16", true);
    judged(&t, F8_TRIAGE_UNKNOWN);
    t.trial[2].bad = false;
    judged(&t, F8_TRIAGE_BF16);
    t.trial[4].bad = false;
    says(judged(&t, F8_TRIAGE_RATE).text, "with 1/16 of");
    t.trial[3].bad = false;
    says(judged(&t, F8_TRIAGE_RATE).text, "with 1/4 of");
    t.trial[1].bad = false;
    judged(&t, F8_TRIAGE_FP8);
    t.trial[0].bad = false;
    judged(&t, F8_TRIAGE_DATA);
}
END_TEST

/* Where NaN and Inf came from, and what recipe fake tells. */
START_TEST(origins)
{
    f8_triage t = bad_step();
    t.nonfinite = (f8_triage_value){.known = true,
                                    .function = "micro_step",
                                    .kind = "kernel",
                                    .op = "a.0",
                                    .value = "x.1",
                                    .at = 7};
    strcpy(t.nonfinite_op, "exp");
    const char *first = "The first NaN or Inf is element 7 of 'x.1' (kernel a.0 in micro_step)";
    ck_assert_ptr_null(strstr(judged(&t, F8_TRIAGE_UNKNOWN).text, first));
    t.infinite = true;
    says(judged(&t, F8_TRIAGE_UNKNOWN).text, first);
    says(judged(&t, F8_TRIAGE_UNKNOWN).text, "the op exp made it of finite values");
    t.nonfinite_op[0] = 0;
    strcpy(t.nonfinite_input, "w");
    says(judged(&t, F8_TRIAGE_UNKNOWN).text, "'w' had it already");
    try_with(&t, "bf16", false);
    try_with(&t, "fake", true);
    says(judged(&t, F8_TRIAGE_FP8).text, "quantization is the cause");
    t.trial[t.n_trials - 1].bad = false;
    says(judged(&t, F8_TRIAGE_FP8).text, "the sums of the FP8 GEMMs are the cause");
    t.unstable = true;
    t.threads = 1;
    says(judged(&t, F8_TRIAGE_UNSTABLE).text, "on 1 thread and on others");
}
END_TEST

START_TEST(cures)
{
    f8_triage t = bad_step();
    try_with(&t, "another batch", true);
    try_with(&t, "bf16", false);
    says(judged(&t, F8_TRIAGE_FP8).advice, "--recipe bf16");
    snprintf(t.operand, sizeof t.operand, "h.0.up.x.row");
    snprintf(t.linear, sizeof t.linear, "h.0.up");
    t.overflow = 0.25;
    try_with(&t, "current", true);
    try_with(&t, F8_TRIAGE_LINEAR, false);
    f8_triage_verdict v = judged(&t, F8_TRIAGE_FP8);
    says(v.advice, "recipe \"h.0.up\" = bf16");
    says(v.text, "'h.0.up.x.row'");
    says(v.text, "25% of it overflows");
    ck_assert_str_eq(v.value.value, "h.0.up.x.row");
    try_with(&t, "block", false);
    says(judged(&t, F8_TRIAGE_FP8).advice, "--recipe block");
    t.trial[2].bad = false;
    says(judged(&t, F8_TRIAGE_FP8).advice, "--recipe current");
}
END_TEST

/* What stands out: a row comes before an element of a variable, which comes before FP8. */
START_TEST(outliers)
{
    f8_triage t = bad_step();
    try_with(&t, "bf16", false);
    judged(&t, F8_TRIAGE_FP8);
    snprintf(t.state, sizeof t.state, "opt.m.up");
    t.state_finite = true;
    t.state_at = 7;
    t.state_value = 1e30;
    t.state_next = 0.5;
    says(judged(&t, F8_TRIAGE_STATE).text,
         "its element 7 is 1e+30, and the largest of all others 0.5");
    t.row = (f8_triage_row){true, "x", "x.npy", 3, 713, -1, 2, 1e30, 2.5};
    try_with(&t, F8_TRIAGE_ROW, false);
    f8_triage_verdict v = judged(&t, F8_TRIAGE_DATA);
    ck_assert_str_eq(v.value.value, "x");
    says(v.text, "without row 3 (row 713 of x.npy) and 2 more as large the same step is good");
    says(v.text, "is 1e+30, and in the median row 2.5");
    t.trial[1].bad = true;
    judged(&t, F8_TRIAGE_STATE);
    try_with(&t, "another batch", false);
    says(judged(&t, F8_TRIAGE_DATA).text, "with another batch the same step is good");
    t.n_trials = 0;
    t.entered = true; /* nothing could be tried */
    says(judged(&t, F8_TRIAGE_DATA).text, "until that left the amax history");
    /* the step is good: an element that stands out is no fault */
    t.replay_bad = false;
    judged(&t, F8_TRIAGE_HEALTHY);
}
END_TEST

/* An alarm that the replay does not raise, and a checkpoint that is not that of the run. */
START_TEST(evidence_of_records)
{
    f8_triage t = bad_step();
    t.differs = 9;
    t.differs_in = "scale";
    snprintf(t.differs_of, sizeof t.differs_of, "up.w");
    says(judged(&t, F8_TRIAGE_TRANSIENT).text, "another scale of 'up.w'");
    t.changed = 5;
    f8_triage_verdict v = judged(&t, F8_TRIAGE_MEMORY);
    ck_assert_int_eq(v.step, 6);
    says(v.text, "the checkpoint of step 5 has other bits");
}
END_TEST

/* A run that is bad from its first step on: there is nothing older that could be the cause. */
START_TEST(from_the_start)
{
    f8_triage t = bad_step();
    try_with(&t, "bf16", true);
    for (int i = 0; i < 3; i++) {
        try_with(&t, f8_triage_rates[i].what, true);
        t.trial[t.n_trials - 1].loss = i ? 1e6 / (i * i) : NAN;
    }
    says(judged(&t, F8_TRIAGE_UNKNOWN).text, "older than the checkpoint of step 5");
    t.checkpoint = 0;
    t.from_start = true;
    says(judged(&t, F8_TRIAGE_RATE).text, "falls with the learning rate");
    t.trial[2].step = t.trial[3].step = 20; /* later is milder, whatever the loss */
    t.trial[3].loss = 2e5;
    judged(&t, F8_TRIAGE_RATE);
    t.trial[3].step = 19; /* a lower rate is worse */
    f8_triage_verdict v = judged(&t, F8_TRIAGE_UNKNOWN);
    ck_assert_ptr_null(strstr(v.text, "older than"));
    says(v.text, "from its first step on");
    try_with(&t, F8_TRIAGE_LARGER_EPSILON, false);
    t.eps = 1e-30;
    says(judged(&t, F8_TRIAGE_EPSILON).text, "epsilon of 1e-30");
}
END_TEST

/* A trial that was not run says nothing. */
START_TEST(not_run)
{
    f8_triage t = bad_step();
    try_with(&t, "bf16", false);
    ck_assert_ptr_nonnull(f8_triage_find(&t, "bf16"));
    ck_assert_ptr_null(f8_triage_find(&t, "f32"));
    t.trial[0].ran = false;
    ck_assert_ptr_null(f8_triage_find(&t, "bf16"));
    judged(&t, F8_TRIAGE_UNKNOWN);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("verdict");
    TCase *c = tcase_create("verdict");
    tcase_add_test(c, once);
    tcase_add_test(c, in_memory);
    tcase_add_test(c, every_time);
    tcase_add_test(c, never_the_same);
    tcase_add_test(c, device_first);
    tcase_add_test(c, before_the_step);
    tcase_add_test(c, nothing);
    tcase_add_test(c, damaged_checkpoints);
    tcase_add_test(c, trials);
    tcase_add_test(c, origins);
    tcase_add_test(c, cures);
    tcase_add_test(c, not_run);
    tcase_add_test(c, outliers);
    tcase_add_test(c, evidence_of_records);
    tcase_add_test(c, from_the_start);
    suite_add_tcase(s, c);
    return s;
}
