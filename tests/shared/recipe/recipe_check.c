/* See recipe_check.h. */
#include "tests/shared/recipe/recipe_check.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20261121 };

const recipe_spec recipe_specs[RECIPE_SPECS] = {
    {"current", .grain = RECIPE_TENSOR, .hybrid = true},
    {"current {pow2 = true}", .grain = RECIPE_TENSOR, .hybrid = true, .pow2 = true},
    {"current {format = e4m3, margin = 2}", .grain = RECIPE_TENSOR, .margin = 2},
    {"rowwise", .grain = RECIPE_ROWS},
    {"rowwise {pow2 = true}", .grain = RECIPE_ROWS, .pow2 = true},
    {"rowwise {format = hybrid, margin = 1}", .grain = RECIPE_ROWS, .hybrid = true, .margin = 1},
    {"rowwise_gw_hp {margin = 3}", .grain = RECIPE_ROWS, .margin = 3, .wgrad_high = true},
    {"block", .grain = RECIPE_BLOCKS},
    {"block {pow2 = true}", .grain = RECIPE_BLOCKS, .pow2 = true},
    {"block {format = hybrid, margin = 1}", .grain = RECIPE_BLOCKS, .hybrid = true, .margin = 1},
    {"mxfp8", .grain = RECIPE_MX},
    {"mxfp8 {format = hybrid}", .grain = RECIPE_MX, .hybrid = true},
    {"fake", .grain = RECIPE_TENSOR, .hybrid = true},
    {"rowwise {fake = true}", .grain = RECIPE_ROWS},
    {"block {fake = true, pow2 = true}", .grain = RECIPE_BLOCKS, .pow2 = true},
    {"mxfp8 {fake = true}", .grain = RECIPE_MX},
};

const recipe_spec recipe_delayed[RECIPE_DELAYED] = {
    {"delayed", .hybrid = true, .history = 16},
    {"delayed {history = 3}", .hybrid = true, .history = 3},
    {"delayed {history = 1, pow2 = true}", .hybrid = true, .pow2 = true, .history = 1},
    {"delayed {history = 4, amax = most_recent}", .hybrid = true, .most_recent = true,
     .history = 4},
    {"delayed {format = e4m3, history = 2, margin = 1}", .margin = 1, .history = 2},
    {"delayed {history = 5, fake = true}", .hybrid = true, .history = 5},
};

int recipe_operands(const recipe_spec *s)
{
    static const int all[] = {
        [RECIPE_TENSOR] = 3, [RECIPE_ROWS] = 6, [RECIPE_BLOCKS] = 5, [RECIPE_MX] = 6};
    return all[s->grain] - 2 * s->wgrad_high;
}

/* None is there that is not compared. */
static int count_operands(const recipe_case *c)
{
    int n = 0, want = 0;
    fp8c_port port;
    for (int i = 0; fp8c_program_port(c->program, c->step, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        const char *dot = strrchr(port.name, '.');
        n += dot && !strcmp(dot, ".q");
    }
    for (int i = 0; i < c->n_specs; i++)
        want += recipe_operands(&c->spec[i]);
    ck_assert_int_eq(n, want);
    return n;
}

static bool skipped(recipe_case *c)
{
    return *(const float *)recipe_result(c, c->update, "skipped", NULL) == 1;
}

static void fill(recipe_case *c, int operand, recipe_data kind, uint32_t seed)
{
    recipe_fill(kind, seed + (uint32_t)operand, c->data[operand], recipe_rows(c, operand),
                recipe_columns(c, operand));
}

/* ---- scales and codes of a step ---- */

void recipe_check_bits(const recipe_spec *spec, int n_specs, const recipe_sizes *sizes, int each,
                       const char *target)
{
    recipe_case c;
    char what[256];
    recipe_open(&c, spec, n_specs, sizes, target);
    const int n = count_operands(&c);
    for (int kind = 0; kind < DATA_KINDS; kind += each) {
        recipe_data at[RECIPE_OPERANDS];
        const uint32_t seed = SEED + (uint32_t)kind * 10;
        for (int i = 0; i < RECIPE_OPERANDS; i++) {
            at[i] = (recipe_data)((kind + 4 * i) % DATA_KINDS);
            fill(&c, i, at[i], seed);
        }
        snprintf(what, sizeof what,
                 "seed %u, x %s, w %s, dy %s, M = %lld, K = %lld, N = %lld on %s", seed,
                 recipe_data_name[at[RECIPE_X]], recipe_data_name[at[RECIPE_W]],
                 recipe_data_name[at[RECIPE_DY]], (long long)recipe_rows(&c, RECIPE_X),
                 (long long)sizes->k, (long long)sizes->n, target);
        recipe_load(&c);
        for (int step = 0; step < (kind == DATA_NORMAL ? 2 : 1); step++) {
            if (step) /* weights of the optimizer's, and their scales with them */
                recipe_run(&c, c.update);
            recipe_run(&c, c.step);
            ck_assert_int_eq(recipe_compare(&c, what), n);
        }
    }
    recipe_close(&c);
}

/* ---- delayed scaling, over steps ---- */

/* Sizes of x and dy by micro-step, as powers of two, and what comes after it. */
enum { ZEROS = -999 };
static const struct {
    int x, dy;
    enum { UPDATE, SKIPPED, NOTHING } after;
} story[] = {
    {0, 0, UPDATE},         {3, -4, UPDATE}, {-5, 2, NOTHING},   {-4, -9, UPDATE},
    {ZEROS, ZEROS, UPDATE}, {1, 1, SKIPPED}, {-6, 6, UPDATE},    {-6, -6, UPDATE},
    {-7, -7, UPDATE},       {9, 0, UPDATE},  {-3, -140, UPDATE}, {-3, 5, UPDATE},
    {ZEROS, 0, NOTHING},    {-2, 1, UPDATE}, {0, 0, UPDATE},     {40, 3, UPDATE},
    {0, 0, UPDATE},
};

enum { MAX_DELAYED = 8 };
typedef recipe_history memory[MAX_DELAYED][RECIPE_OPERANDS];

static float amax_of(const recipe_case *c, int operand, const float *v)
{
    const int64_t rows = recipe_rows(c, operand), columns = recipe_columns(c, operand);
    return recipe_oracle_amax(v, rows, columns, 0, 0, rows, columns);
}

/* A weight has its scale before the first step, which enters no history. */
static void begin(recipe_case *c, memory m)
{
    ck_assert_int_le(c->n_specs, MAX_DELAYED);
    for (int i = 0; i < c->n_specs; i++)
        for (int k = 0; k < RECIPE_OPERANDS; k++) {
            const recipe_oracle o = recipe_oracle_of(&c->spec[i], k);
            recipe_history_start(&m[i][k], c->spec[i].history, c->spec[i].most_recent);
            if (k == RECIPE_W)
                m[i][k].scale = recipe_oracle_scale(&o, amax_of(c, k, c->data[k]), 1);
        }
}

/* A value of the step has its own scale until it was observed. No history of the story is full of
 * zeros after that. */
static void compare_delayed(recipe_case *c, memory m, const char *what)
{
    for (int i = 0; i < c->n_specs; i++) {
        float *w = recipe_weight(c, i);
        const float *value[] = {c->effective, w, c->data[RECIPE_DY]};
        for (int k = 0; k < RECIPE_OPERANDS; k++) {
            const recipe_oracle o = recipe_oracle_of(&c->spec[i], k);
            const float amax = amax_of(c, k, value[k]);
            const bool own = k != RECIPE_W && !m[i][k].observed;
            recipe_compare_scaled(c, i, k, value[k],
                                  own ? recipe_oracle_scale(&o, amax, 1) : m[i][k].scale,
                                  k != RECIPE_W, what);
            if (k != RECIPE_W)
                recipe_history_see(&m[i][k], amax);
        }
        free(w);
    }
}

/* A weight's next scale is known before the weight: its history gets what AdamW can make of it at
 * most, which is never less than what it makes. */
static void update(recipe_case *c, memory m, bool skip)
{
    float before[MAX_DELAYED];
    for (int i = 0; i < c->n_specs; i++) {
        float *w = recipe_weight(c, i);
        before[i] = amax_of(c, RECIPE_W, w);
        free(w);
    }
    recipe_run(c, c->update);
    ck_assert_int_eq(skipped(c), skip);
    for (int i = 0; i < c->n_specs; i++) {
        const float lr = *(const float *)recipe_result(c, c->update, "lr", NULL),
                    most = recipe_oracle_reach(before[i], lr, 0.9, 0.95);
        float *w = recipe_weight(c, i);
        ck_assert_float_le(amax_of(c, RECIPE_W, w), most);
        recipe_history_see(&m[i][RECIPE_W], most);
        free(w);
        for (int k = 0; k < RECIPE_OPERANDS; k++) {
            const recipe_oracle o = recipe_oracle_of(&c->spec[i], k);
            if (skip)
                recipe_history_skip(&m[i][k]);
            else
                recipe_history_update(&m[i][k], &o);
        }
    }
}

static void fill_power(recipe_case *c, int operand, int power, uint32_t seed)
{
    fill(c, operand, power == ZEROS ? DATA_ZERO : DATA_NORMAL, seed);
    for (int64_t i = 0; i < recipe_rows(c, operand) * recipe_columns(c, operand); i++)
        c->data[operand][i] = ldexpf(c->data[operand][i], power);
}

void recipe_check_delayed(const recipe_spec *spec, int n_specs, const recipe_sizes *sizes,
                          const char *target)
{
    recipe_case c;
    memory m;
    char what[64];
    recipe_open(&c, spec, n_specs, sizes, target);
    count_operands(&c);
    fill(&c, RECIPE_W, DATA_NORMAL, SEED);
    recipe_load(&c);
    begin(&c, m);
    for (int i = 0; i < (int)(sizeof story / sizeof *story); i++) {
        fill_power(&c, RECIPE_X, story[i].x, SEED + (uint32_t)i);
        fill_power(&c, RECIPE_DY, story[i].dy, SEED + 100 + (uint32_t)i);
        if (story[i].after == SKIPPED)
            c.data[RECIPE_DY][17] = INFINITY;
        snprintf(what, sizeof what, "micro-step %d on %s", i, target);
        recipe_run(&c, c.step);
        compare_delayed(&c, m, what);
        if (story[i].after != NOTHING)
            update(&c, m, story[i].after == SKIPPED);
    }
    recipe_close(&c);
}

/* ---- nothing is laundered ---- */

static bool all_finite(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return false;
    return true;
}

/* fprop reads x and w, dgrad dy and w, wgrad x and dy. So an operand that is not finite shows in
 * the loss (x, w), in the gain's gradient (dy, w) or in the weight's (x, dy). The update is skipped
 * in each case. */
static void check_shown(recipe_case *c, int operand, const char *what)
{
    float *gain = recipe_variable(c, "grad.gain"), *weight = recipe_variable(c, "grad.l0.weight");
    const float loss = *(const float *)recipe_result(c, c->step, "loss", NULL);
    ck_assert_msg(operand == RECIPE_DY || !isfinite(loss), "%s: loss %g", what, (double)loss);
    ck_assert_msg(operand == RECIPE_X || !all_finite(gain, c->sizes.k), "%s: dgrad is finite",
                  what);
    ck_assert_msg(operand == RECIPE_W || !all_finite(weight, c->sizes.k * c->sizes.n),
                  "%s: wgrad is finite", what);
    free(gain);
    free(weight);
    recipe_run(c, c->update);
    ck_assert_msg(skipped(c), "%s: not skipped", what);
}

void recipe_check_shown(const recipe_spec *spec, const recipe_sizes *sizes, const char *target)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    recipe_case c;
    char what[128];
    recipe_open(&c, spec, 1, sizes, target);
    for (int at = -1; at < 27; at++) { /* -1: nothing odd, and nothing shows */
        const int operand = at % 3;
        for (int i = 0; i < RECIPE_OPERANDS; i++)
            fill(&c, i, DATA_NORMAL, SEED);
        if (at >= 0) {
            const int64_t n = recipe_rows(&c, operand) * recipe_columns(&c, operand);
            const int64_t place[] = {0, n / 2, n - 1};
            c.data[operand][place[at / 9]] = odd[at / 3 % 3];
            snprintf(what, sizeof what, "%s on %s, %g at %lld of %s", spec->text, target,
                     (double)odd[at / 3 % 3], (long long)place[at / 9],
                     recipe_operand_name[operand]);
        }
        recipe_load(&c);
        recipe_run(&c, c.step);
        if (at >= 0) {
            check_shown(&c, operand, what);
            continue;
        }
        ck_assert(isfinite(*(const float *)recipe_result(&c, c.step, "loss", NULL)));
        recipe_run(&c, c.update);
        ck_assert(!skipped(&c));
    }
    recipe_close(&c);
}
