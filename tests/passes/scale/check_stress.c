/* Where scaling has to be finer than a tensor: models/stress.f8, which says how.
 *
 * Its factors are powers of two that cancel, so BF16 does not see them: its losses are equal, bit
 * for bit, with and without. The same must hold of a recipe whose scales are where the factors
 * are (a scale is the format's maximum over an amax, and takes the factor on exactly). What one
 * scale for a tensor makes of them shows twice:
 *   underflow  of some operand of the last step: three quarters of its elements are 2^22 smaller
 *              than the rest, which is further than E4M3 reaches. Above one half where it fails,
 *              below 5% where it does not. The SQNR of the whole operand hides it: all its
 *              energy is in the quarter that is left.
 *   gap        of the final loss (mean of the last TAIL steps) to BF16's: above 2% where it
 *              fails. Measured, 2 seeds: 10.7% to 11.1% for either factor and for both. Where a
 *              recipe holds, FP8 lies within 0.7% of BF16 on either side (3 seeds, 60 to 200
 *              steps), so 2% is also what it must keep. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_tune.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#define MODEL "tests/models/stress.f8"

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
    {"rowwise", BOTH, FAILS, 1},            /* channels: fprop sums over them */
    {"rowwise_gw_hp", SEQUENCES, EXACT, 1}, /* wgrad alone sums over them, and is bf16 */
    {"block", BOTH, EXACT, SEEDS},
    {"mxfp8", BOTH, EXACT, 1},
    {"auto", BOTH, HOLDS, SEEDS},
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

/* ---- auto ---- */

/* What it chose, and its costs: of a step's GEMMs as chosen, and all as `block`. */
typedef struct choice {
    char rules[4096]; /* recipe lines */
    double chosen, block;
    int gemms, per_tensor, bf16;
} choice;

static int append(void *user, const char *text, size_t n)
{
    choice *c = user;
    const size_t used = strlen(c->rules);
    ck_assert_uint_lt(used + n, sizeof c->rules);
    memcpy(c->rules + used, text, n);
    c->rules[used + n] = 0;
    return 0;
}

static void fill_windows(fp8c_program *p, int step, const char *text, int batch)
{
    fp8c_port port;
    for (int targets = 0; targets < 2; targets++) {
        const int i = fp8c_program_find_port(p, step, FP8C_INPUT, targets ? "targets" : "tokens");
        ck_assert_int_eq(fp8c_program_port(p, step, FP8C_INPUT, i, &port), FP8C_OK);
        int32_t *to = fp8c_program_buffer(p, step, FP8C_INPUT, i);
        const int64_t n = fp8c_type_bytes(&port.type) / 4; /* windows one behind the other */
        for (int64_t k = 0; k < n; k++)
            to[k] = text[batch * n + k + targets];
    }
}

static void count_costs(const fp8c_calibration *calibration, choice *c)
{
    fp8c_trial t;
    fp8c_candidate k;
    for (int i = 0; fp8c_calibration_trial(calibration, i, &t) == FP8C_OK; i++) {
        if (t.fixed)
            continue;
        c->gemms++;
        c->bf16 += t.winner == 0;
        for (int j = 0; fp8c_calibration_candidate(calibration, i, j, &k) == FP8C_OK; j++) {
            if (j == t.winner) {
                c->chosen += k.seconds;
                c->per_tensor += !strcmp(k.recipe, "delayed") || !strcmp(k.recipe, "current");
            }
            if (!strcmp(k.recipe, "block"))
                c->block += k.seconds;
        }
    }
}

static void choose(const char *target, const char *text, uint64_t seed, choice *c)
{
    size_t size;
    char *model = f8_test_read(MODEL, &size);
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_calibration *calibration;
    *c = (choice){.rules = ""};
    ck_assert(model && fp8c_context_create(NULL, &ctx) == FP8C_OK);
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .recipe = "auto",
                                    .target = target,
                                    .no_device = strcmp(target, "cpu") != 0,
                                    .threads = 2};
    ck_assert_msg(fp8c_module_parse(ctx, model, size, MODEL, NULL, 0, &module) == FP8C_OK &&
                      fp8c_calibration_create(module, &o, 0, &calibration) == FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    fp8c_program *p = fp8c_calibration_program(calibration);
    const int step = fp8c_program_function(p, "micro_step");
    ck_assert_int_eq(fp8c_program_initialize(p, seed), FP8C_OK);
    for (int i = 0; i < 2; i++) {
        fill_windows(p, step, text, i);
        ck_assert_msg(fp8c_program_run(p, step) == FP8C_OK &&
                          fp8c_calibration_observe(calibration) == FP8C_OK,
                      "%s", fp8c_context_message(ctx));
    }
    ck_assert_int_eq(fp8c_calibration_rules(calibration, append, c), FP8C_OK);
    count_costs(calibration, c);
    fp8c_calibration_destroy(calibration);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    free(model);
}

/* Per tensor where that does, finer where it has to be, bf16 nowhere; and less than `block`
 * throughout. */
START_TEST(auto_costs_less_than_block)
{
    static const char *const targets[] = {"cpu", "sm_90a"};
    char *text = make_text(1);
    choice c;
    choose(targets[_i], text, 1, &c);
    printf("auto on %s: %.3f of block's cost; %d GEMMs, %d per tensor, %d in bf16\n", targets[_i],
           c.chosen / c.block, c.gemms, c.per_tensor, c.bf16);
    ck_assert_msg(c.chosen < c.block, "%g and %g s:\n%s", c.chosen, c.block, c.rules);
    ck_assert_msg(c.bf16 == 0 && c.per_tensor > 0 && c.per_tensor < c.gemms, "%s", c.rules);
    free(text);
}
END_TEST

/* ---- a run ---- */

typedef struct trained {
    float loss[STEPS];
    double final_loss;
    double underflow; /* of the worst operand of the last step, 0 if there is none */
    char worst[128];  /* its name */
} trained;

static void read_operands(f8_compiled *c, trained *t)
{
    const int step = f8_compiled_func(c, "micro_step");
    char name[sizeof t->worst];
    f8_operand_view v;
    f8_operand_stats e;
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
    choice chosen = {.rules = ""};
    if (!strcmp(recipe, "auto"))
        choose("cpu", text, seed, &chosen);
    const f8_compile_setup s = {.file = MODEL,
                                .rules = chosen.rules,
                                .dims = dims[stress],
                                .recipe = *f8_recipe_by_name(recipe),
                                .keep = "*",
                                .threads = 2,
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
    ck_assert_msg(fabs(gap) < 0.02 && t.underflow < 0.05, "it should hold: %s", said);
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

Suite *f8_suite(void)
{
    Suite *s = suite_create("stress");
    TCase *c = tcase_create("recipes");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, recipes_under_stress, 0, SEEDS);
    tcase_add_loop_test(c, auto_costs_less_than_block, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
