/* Where scaling has to be finer than a tensor: models/stress.f8, which says how.
 *
 * Its factors are powers of two that cancel, so BF16 does not see them: its losses are equal, bit
 * for bit, with and without. The same must hold of a recipe whose scales are where the factors
 * are (a scale is the format's maximum over an amax, and takes the factor on exactly). What one
 * scale for a tensor makes of them shows twice:
 *   underflow  of some operand of the last step: three quarters of its elements are 2^22 smaller
 *              than the rest, which is further than E4M3 reaches. Above one half where it fails,
 *              below where it does not. The SQNR of the whole operand says nothing of it: all its
 *              energy is in the quarter that is left.
 *   gap        of the final loss (mean of the last TAIL steps) to BF16's: above 2% where it
 *              fails. Measured, 2 seeds: 10.7% to 11.1% for either factor and for both. Where a
 *              recipe holds, FP8 lies within 0.7% of BF16 on either side (3 seeds, 60 to 200
 *              steps), so 2% is also what it must keep. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/compile.h"
#include "tests/shared/random.h"

enum { STEPS = 60, TAIL = 10, PROOF = 10, SEEDS = 2, TEXT = 1 << 16, WORDS = 64, FOLLOW = 4 };

/* What a run of the model has of its factors. */
typedef enum stress { NONE, CHANNELS, SEQUENCES, BOTH } stress;

static const char *const dims[] = {"outlier_channels=1 outlier_sequences=1", "outlier_sequences=1",
                                   "outlier_channels=1", NULL};
static const char *const stress_name[] = {"no factors", "channels", "sequences", "both"};

typedef enum outcome {
    FAILS, /* visibly: underflow and gap */
    HOLDS, /* neither */
    EXACT, /* holds, and the first PROOF losses have the bits of the run without factors */
} outcome;

typedef struct expectation {
    const char *recipe;
    stress stress;
    outcome outcome;
    int seeds; /* 1: the first only, which is enough to tell why */
} expectation;

static const expectation expected[] = {
    {"bf16", BOTH, EXACT, SEEDS},
    {"current", NONE, HOLDS, 1},
    {"current", CHANNELS, FAILS, 1},
    {"current", SEQUENCES, FAILS, 1},
    {"current", BOTH, FAILS, SEEDS},
    {"delayed", BOTH, FAILS, SEEDS},
    {"rowwise", BOTH, FAILS, 1},             /* channels: fprop sums over them */
    {"rowwise_gw_hp", SEQUENCES, EXACT, 1}, /* wgrad alone sums over them, and is bf16 */
    {"block", BOTH, EXACT, SEEDS},
    {"mxfp8", BOTH, EXACT, 1},
};

/* ---- the text ---- */

/* Words, each followed by one of FOLLOW others: the words are the same for every seed, their order
 * is not. */
static char *make_text(uint32_t seed)
{
    char word[WORDS][8];
    uint32_t next[WORDS][FOLLOW], language = 99;
    for (int i = 0; i < WORDS; i++) {
        const uint32_t letters = 2 + test_random(&language) % 4;
        for (uint32_t k = 0; k < letters; k++)
            word[i][k] = (char)('a' + test_random(&language) % 12);
        strcpy(word[i] + letters, " ");
        for (int k = 0; k < FOLLOW; k++)
            next[i][k] = test_random(&language) % WORDS;
    }
    char *text = malloc(TEXT + sizeof *word);
    ck_assert_ptr_nonnull(text);
    size_t n = 0;
    for (uint32_t w = 0; n < TEXT; w = next[w][test_random(&seed) % FOLLOW])
        n += (size_t)sprintf(text + n, "%s", word[w]);
    return text;
}

/* ---- a run ---- */

typedef struct trained {
    float loss[STEPS];
    double final_loss;
    double underflow; /* of the worst operand of the last step, 0 if there is none */
    char worst[128];  /* its name */
} trained;

static void read_operands(const f8_compiled *c, trained *t)
{
    const int step = f8_compiled_func(c, "micro_step");
    char name[sizeof t->worst];
    f8_operand_view v;
    f8_operand_error e;
    for (uint32_t i = 0; i < c->plan.func[step].n_out; i++) {
        if (!f8_compiled_operand(c, step, i, name, sizeof name, &v))
            continue;
        ck_assert_msg(f8_operand_measure(&v, &e), "%s: scales of an odd shape", name);
        if (e.underflow <= t->underflow)
            continue;
        t->underflow = e.underflow;
        strcpy(t->worst, name);
    }
}

static void train(const char *recipe, stress stress, const char *text, uint64_t seed, int steps,
                  trained *t)
{
    f8_compiled c;
    const f8_compile_setup s = {.file = "tests/models/stress.f8", .dims = dims[stress],
                                .recipe = *f8_recipe_by_name(recipe), .keep = "*", .threads = 2,
                                .seed = seed};
    ck_assert_msg(f8_compile_model(&c, &s), "%s", c.diag.text);
    *t = (trained){0};
    for (int i = 0; i < steps; i++) {
        t->loss[i] = f8_compiled_step(&c, text, TEXT, (uint64_t)i);
        ck_assert_msg(isfinite(t->loss[i]), "step %d: %s", i, c.diag.text);
        t->final_loss += i >= STEPS - TAIL ? (double)t->loss[i] / TAIL : 0;
    }
    read_operands(&c, t);
    f8_compiled_end(&c);
}

static void check_one(const expectation *e, const char *text, uint64_t seed, const trained *bf16)
{
    trained t, plain;
    train(e->recipe, e->stress, text, seed, STEPS, &t);
    const double gap = t.final_loss / bf16->final_loss - 1;
    char said[320];
    snprintf(said, sizeof said, "seed %d, %s, %s: loss %.4f, %+.2f%% to bf16; underflow %.1f%% %s",
             (int)seed, e->recipe, stress_name[e->stress], t.final_loss, 100 * gap,
             100 * t.underflow, t.worst);
    printf("%s\n", said);
    if (e->outcome == FAILS) {
        ck_assert_msg(gap > 0.02 && t.underflow > 0.5, "it should fail: %s", said);
        return;
    }
    ck_assert_msg(fabs(gap) < 0.02 && t.underflow < 0.5, "it should hold: %s", said);
    if (e->outcome == HOLDS)
        return;
    train(e->recipe, NONE, text, seed, PROOF, &plain);
    ck_assert_msg(!memcmp(t.loss, plain.loss, PROOF * sizeof *t.loss),
                  "factors show in the bits: %s", said);
}

START_TEST(recipes_under_stress)
{
    const uint64_t seed = (uint64_t)_i + 1;
    char *text = make_text((uint32_t)seed);
    trained bf16;
    train("bf16", NONE, text, seed, STEPS, &bf16);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (_i < expected[i].seeds)
            check_one(&expected[i], text, seed, &bf16);
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stress");
    TCase *c = tcase_create("recipes");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, recipes_under_stress, 0, SEEDS);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
