/* The states of a training step, through the public API: the variables of FP8 scaling after each
 * function, with accumulation and after a skipped step. The forward/backward pair computes the bits
 * of micro_step. */
#include <math.h>
#include <stdlib.h>

#include "tests/shared/api/api.h"
#include "tests/shared/recipe/recipe_oracle.h"
#include "tests/shared/suite.h"

enum { HISTORY = 16 };

static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};

static fp8c_variable variable(fp8c_program *p, const char *name)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++)
        if (!strcmp(v.name, name))
            return v;
    ck_abort_msg("no variable %s", name);
}

static int64_t count(const fp8c_variable *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->type.rank; i++)
        n *= v->type.dim[i];
    return n;
}

static float *copy_of(fp8c_program *p, const char *name)
{
    const fp8c_variable v = variable(p, name);
    const size_t bytes = (size_t)fp8c_type_bytes(&v.type);
    return memcpy(malloc(bytes), v.data, bytes);
}

static float largest(fp8c_program *p, const char *name)
{
    const fp8c_variable v = variable(p, name);
    float most = 0;
    for (int64_t i = 0; i < count(&v); i++)
        most = fmaxf(most, fabsf(((const float *)v.data)[i]));
    return most;
}

static void run(fp8c_program *p, const char *name)
{
    const int function = fp8c_program_function(p, name);
    ck_assert_msg(function >= 0, "no function %s", name);
    ck_assert_int_eq(fp8c_program_run(p, function), FP8C_OK);
}

static fp8c_program *start(fp8c_context **ctx, const char *name, int pair)
{
    *ctx = new_context();
    fp8c_module *m = parse(*ctx, model);
    fp8c_compile_options o = recipe(name);
    o.pair = o.train_step = pair;
    fp8c_program *p = compile(*ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    return p;
}

static void stop(fp8c_context *ctx, fp8c_program *p)
{
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}

/* ---- delayed scaling ---- */

static float lr_of(fp8c_program *p)
{
    const int update = fp8c_program_function(p, "update"),
              port = fp8c_program_find_port(p, update, FP8C_OUTPUT, "lr");
    return *(const float *)fp8c_program_buffer(p, update, FP8C_OUTPUT, port);
}

/* The model's one FP8 linear has three operands: slots 0 and 1 (x and w, E4M3), slot 2 (dy, E5M2).
 */
static void check_pushed(fp8c_program *p, const float *before, const float *seen)
{
    const float *now = variable(p, "fp8.amax_history").data, *scale = variable(p, "fp8.scale").data;
    int weights = 0;
    for (int slot = 0; slot < 3; slot++) {
        const float *row = now + slot * HISTORY, *was = before + slot * HISTORY;
        ck_assert_msg(!memcmp(row + 1, was, (HISTORY - 1) * sizeof *row),
                      "slot %d: not one step older", slot);
        if (slot == 1) { /* the weight: what AdamW could make of the one before */
            ck_assert_float_eq(row[0], recipe_oracle_reach(seen[slot], lr_of(p), 0.9, 0.95));
            ck_assert_float_ge(row[0], largest(p, "fc.weight"));
            weights++;
        } else {
            ck_assert_float_eq(row[0], seen[slot]);
        }
        float most = 0;
        for (int i = 0; i < HISTORY; i++)
            most = fmaxf(most, row[i]);
        ck_assert_float_eq(scale[slot], (slot < 2 ? 448.0f : 57344.0f) / most);
    }
    ck_assert_int_eq(weights, 1);
}

/* After `update` only the weight has an amax: the others wait for the next micro-step. */
static void check_amaxes(fp8c_program *p)
{
    const float *seen = variable(p, "fp8.amax").data;
    ck_assert_float_eq(seen[0], 0);
    ck_assert_float_eq(seen[1], largest(p, "fc.weight"));
    ck_assert_float_eq(seen[2], 0);
}

static void micro_step(fp8c_program *p, int shift)
{
    const int step = fp8c_program_function(p, "micro_step");
    fill_batch(p, step);
    int32_t *tokens = fp8c_program_buffer(p, step, FP8C_INPUT, 0);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = (tokens[i] + shift) % V;
    run(p, "micro_step");
}

/* However many micro-steps an update follows, it pushes the largest amax of them, once. */
START_TEST(histories_are_pushed_once)
{
    fp8c_context *ctx;
    fp8c_program *p = start(&ctx, "delayed", 0);
    ck_assert_int_eq(count(&(fp8c_variable[]){variable(p, "fp8.amax_history")}[0]), 3 * HISTORY);
    for (int step = 0; step < HISTORY + 3; step++) {
        float *before = copy_of(p, "fp8.amax_history"), *scale = copy_of(p, "fp8.scale"),
              most[3] = {0};
        for (int k = 0; k < 1 + step % 3; k++) {
            micro_step(p, step + 2 * k);
            const float *seen = variable(p, "fp8.amax").data;
            for (int slot = 0; slot < 3; slot++) {
                ck_assert_float_ge(seen[slot], most[slot]);
                most[slot] = seen[slot];
            }
        }
        run(p, "eval");
        ck_assert(
            !memcmp(before, variable(p, "fp8.amax_history").data, 3 * HISTORY * sizeof *before));
        ck_assert(!memcmp(scale, variable(p, "fp8.scale").data, sizeof most));
        ck_assert(!memcmp(most, variable(p, "fp8.amax").data, sizeof most));
        run(p, "update");
        check_pushed(p, before, most);
        check_amaxes(p);
        free(before);
        free(scale);
    }
    stop(ctx, p);
}
END_TEST

/* A gradient that is not finite: parameters, moments, scales and histories stay, what came with it
 * is forgotten, and training goes on. */
START_TEST(skipped_updates)
{
    static const char *const kept[] = {"wte",       "fc.weight", "fc.bias",   "opt.m.fc.weight",
                                       "opt.v.wte", "opt.step",  "fp8.scale", "fp8.amax_history"};
    enum { KEPT = sizeof kept / sizeof kept[0] };
    fp8c_context *ctx;
    fp8c_program *p = start(&ctx, "delayed", 0);
    train_step(p);
    micro_step(p, 0);
    ((float *)variable(p, "grad.fc.bias").data)[3] = _i ? INFINITY : NAN;
    float *before[KEPT];
    for (int i = 0; i < KEPT; i++)
        before[i] = copy_of(p, kept[i]);
    run(p, "update");
    for (int i = 0; i < KEPT; i++) {
        const fp8c_variable v = variable(p, kept[i]);
        ck_assert_msg(!memcmp(before[i], v.data, (size_t)fp8c_type_bytes(&v.type)), "%s", kept[i]);
        free(before[i]);
    }
    check_amaxes(p);
    ck_assert_float_eq(largest(p, "grad.fc.bias"), 0);
    float *weight = copy_of(p, "fc.weight");
    ck_assert(isfinite(train_step(p)));
    ck_assert(memcmp(weight, variable(p, "fc.weight").data, C * C * sizeof *weight));
    free(weight);
    stop(ctx, p);
}
END_TEST

/* An Inf that is quantized shows in the loss, as it does in high precision: it does not become the
 * format's largest number. The update is skipped, and training goes on. */
START_TEST(infinity_is_not_saturated)
{
    static const char text[] =
        "module inf\nparam wte: f32[16, 32] normal(0.5)\nparam fc.weight: f32[32, 32] normal(0.1)\n"
        "param head.weight: f32[32, 16] normal(0.1)\n"
        "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[]) {\n"
        "  %h = tanh(linear(embedding(wte, %tokens), fc.weight))\n"
        "  return cross_entropy(linear(%h, head.weight), %targets)\n}\n"
        "optimizer adamw {lr = 0.05, clip = 1}\nrecipe \"head\" = bf16\n";
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    const fp8c_compile_options o = recipe(recipes[_i]);
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    train_step(p);
    float *wte = copy_of(p, "wte"), *weight = copy_of(p, "fc.weight");
    float *row = (float *)variable(p, "wte").data + 3 * C; /* tokens[1] is 3 */
    row[1] = INFINITY;
    row[2] = -INFINITY;
    ck_assert(isnan(train_step(p)));
    ck_assert(!memcmp(weight, variable(p, "fc.weight").data, C * C * sizeof *weight));
    memcpy(variable(p, "wte").data, wte, V * C * sizeof *wte);
    ck_assert(isfinite(train_step(p)));
    ck_assert(memcmp(weight, variable(p, "fc.weight").data, C * C * sizeof *weight));
    free(wte);
    free(weight);
    fp8c_module_destroy(m);
    stop(ctx, p);
}
END_TEST

/* An id that is no row of the table, a target that is no class: the loss is not finite, and the
 * update is skipped. */
START_TEST(ids_out_of_range)
{
    static const int32_t wrong[] = {V, -1, -100, INT32_MAX, INT32_MIN};
    static const char *const target[] = {"cpu", "reference"};
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.target = target[_i];
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    const int step = fp8c_program_function(p, "micro_step");
    const float *loss = fp8c_program_buffer(p, step, FP8C_OUTPUT, 0);
    for (int i = 0; i < 10; i++) {
        float *weight = copy_of(p, "fc.weight");
        fill_batch(p, step);
        ((int32_t *)fp8c_program_buffer(p, step, FP8C_INPUT, i % 2))[5] = wrong[i / 2];
        run(p, "micro_step");
        ck_assert_msg(!isfinite(*loss), "%d at input %d: %g", wrong[i / 2], i % 2, (double)*loss);
        run(p, "update");
        ck_assert(!memcmp(weight, variable(p, "fc.weight").data, C * C * sizeof *weight));
        free(weight);
    }
    stop(ctx, p);
}
END_TEST

/* A weight's amax is never stale: of the initial value after initialize, of the new one after
 * update. */
START_TEST(weights_are_current)
{
    fp8c_context *ctx;
    fp8c_program *p = start(&ctx, recipes[_i], 0);
    for (int step = 0; step < 3; step++) {
        const float amax = largest(p, "fc.weight");
        if (_i == 3) {
            ck_assert_float_eq(*(float *)variable(p, "fp8.weight_amax").data, amax);
        } else if (step == 0) {
            const float *scale = variable(p, "fp8.scale").data;
            ck_assert(scale[0] == 448 / amax || scale[1] == 448 / amax);
        }
        train_step(p);
    }
    stop(ctx, p);
}
END_TEST

static int32_t index_of(fp8c_program *p, const char *name)
{
    fp8c_variable v;
    int32_t i = 0;
    while (fp8c_program_variable(p, i, &v) == FP8C_OK && strcmp(v.name, name))
        i++;
    return i;
}

/* Scales say whose they are: the names of a program for inference are a part of those of one that
 * trains, a weight's scale stands under its name in both, and other variables have none. */
START_TEST(scales_have_names)
{
    static const char *const state[] = {[2] = "fp8.scale", [3] = "fp8.weight_amax"};
    fp8c_context *ctx;
    fp8c_program *p = start(&ctx, recipes[_i], 0), *serving;
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe(recipes[_i]);
    o.inference = 1;
    serving = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(serving, 1), FP8C_OK);
    const int32_t all = index_of(p, state[_i]), some = index_of(serving, state[_i]);
    const char *name;
    int64_t n = 0, weights = 0;
    for (; (name = fp8c_program_element(serving, some, n, 0)); n++) {
        const float *mine = variable(serving, state[_i]).data, *whole = variable(p, state[_i]).data;
        int64_t k = 0;
        while (fp8c_program_element(p, all, k, 0) &&
               strcmp(fp8c_program_element(p, all, k, 0), name))
            k++;
        ck_assert_msg(fp8c_program_element(p, all, k, 0) != NULL, "no %s where it trains", name);
        ck_assert_float_eq(mine[n], whole[k]);
        weights += !strcmp(name, "fc.w") && mine[n] != 1 && mine[n] != 0;
    }
    ck_assert_int_eq(n, count(&(fp8c_variable[]){variable(serving, state[_i])}[0]));
    ck_assert_int_eq(n, _i == 2 ? 2 : 1);
    ck_assert_int_eq(weights, 1);
    ck_assert_ptr_null(fp8c_program_element(p, all, -1, 0));
    ck_assert_ptr_null(fp8c_program_element(p, index_of(p, "wte"), 0, 0));
    ck_assert_ptr_null(fp8c_program_element(p, -1, 0, 0));
    fp8c_program_destroy(serving);
    fp8c_module_destroy(m);
    stop(ctx, p);
}
END_TEST

/* ---- the pair ---- */

static void *port(fp8c_program *p, int function, fp8c_side side, const char *name)
{
    void *buffer =
        fp8c_program_buffer(p, function, side, fp8c_program_find_port(p, function, side, name));
    ck_assert_msg(buffer != NULL, "no port %s", name);
    return buffer;
}

/* forward, what it saved to backward, backward; of these names. */
static void run_halves(fp8c_program *p, const char *first, const char *second)
{
    const int forward = fp8c_program_function(p, first);
    const int backward = fp8c_program_function(p, second);
    fp8c_port in;
    fill_batch(p, forward);
    run(p, first);
    for (int i = 0; fp8c_program_port(p, backward, FP8C_INPUT, i, &in) == FP8C_OK; i++) {
        if (in.variable >= 0)
            continue;
        void *to = fp8c_program_buffer(p, backward, FP8C_INPUT, i);
        if (!strcmp(in.name, "dloss"))
            *(float *)to = 1;
        else if (!strcmp(in.name, "dsums"))
            memset(to, 0, (size_t)fp8c_type_bytes(&in.type));
        else if (fp8c_program_find_port(p, forward, FP8C_OUTPUT, in.name) >= 0)
            memcpy(to, port(p, forward, FP8C_OUTPUT, in.name), (size_t)fp8c_type_bytes(&in.type));
        else
            memcpy(to, port(p, forward, FP8C_INPUT, in.name), (size_t)fp8c_type_bytes(&in.type));
    }
    run(p, second);
}

static void run_pair(fp8c_program *p)
{
    run_halves(p, "forward", "backward");
}

/* From equal states, the pair's loss and gradients are micro_step's: of the first pair, while a
 * history is empty, and then of the plain one. */
START_TEST(pair_is_micro_step)
{
    static const char *const params[] = {"wte", "fc.weight", "fc.bias"};
    fp8c_context *ctx;
    fp8c_program *p = start(&ctx, recipes[_i], 1);
    const int step = fp8c_program_function(p, "micro_step");
    for (int round = 0; round < 3; round++) {
        const bool first = round == 0 && _i == 2;
        const char *const half[] = {first ? "forward.first" : "forward",
                                    first ? "backward.first" : "backward"};
        const int forward = fp8c_program_function(p, half[0]),
                  backward = fp8c_program_function(p, half[1]);
        float *amax = _i == 2 ? copy_of(p, "fp8.amax") : NULL;
        run_halves(p, half[0], half[1]);
        if (amax) { /* what the pair saw, micro_step sees again */
            float *seen = copy_of(p, "fp8.amax");
            ck_assert(memcmp(seen, amax, 3 * sizeof *amax));
            memcpy(variable(p, "fp8.amax").data, amax, 3 * sizeof *amax);
            free(amax);
            amax = seen;
        }
        fill_batch(p, step);
        run(p, "micro_step");
        if (amax)
            ck_assert(!memcmp(amax, variable(p, "fp8.amax").data, 3 * sizeof *amax));
        free(amax);
        ck_assert(!memcmp(port(p, forward, FP8C_OUTPUT, "loss"), port(p, step, FP8C_OUTPUT, "loss"),
                          sizeof(float)));
        for (int i = 0; i < 3; i++) {
            char name[64] = "grad.";
            const fp8c_variable sum = variable(p, strcat(name, params[i]));
            ck_assert_msg(!memcmp(sum.data, port(p, backward, FP8C_OUTPUT, params[i]),
                                  (size_t)fp8c_type_bytes(&sum.type)),
                          "%s, round %d: %s", recipes[_i], round, params[i]);
            ck_assert(largest(p, name) > 0);
        }
        run(p, "update");
    }
    stop(ctx, p);
}
END_TEST

/* The caller owns the optimizer, so nothing says that a step was skipped: an amax that is not
 * finite does. An Inf pushed would keep the scale where it is for HISTORY steps, and what then
 * outgrows it would saturate. */
START_TEST(update_scales_skips)
{
    fp8c_context *ctx;
    fp8c_program *p = start(&ctx, "delayed", 1);
    run_pair(p);
    run(p, "update_scales");
    run_pair(p);
    float *history = copy_of(p, "fp8.amax_history"), *scale = copy_of(p, "fp8.scale");
    ((float *)variable(p, "fp8.amax").data)[_i ? 2 : 0] = _i ? NAN : INFINITY;
    run(p, "update_scales");
    ck_assert(
        !memcmp(history, variable(p, "fp8.amax_history").data, 3 * HISTORY * sizeof *history));
    ck_assert(!memcmp(scale, variable(p, "fp8.scale").data, 3 * sizeof *scale));
    ck_assert_float_eq(largest(p, "fp8.amax"), 0);
    run_pair(p);
    run(p, "update_scales");
    ck_assert(memcmp(history, variable(p, "fp8.amax_history").data, 3 * HISTORY * sizeof *history));
    free(history);
    free(scale);
    stop(ctx, p);
}
END_TEST

/* ---- a state of the model's own ---- */

/* What forward replaces, micro_step replaces, and eval does not. */
START_TEST(states_of_the_model)
{
    static const char text[] =
        "module counting\nparam w: f32[16, 16] normal(0.5)\nstate seen: f32[] zeros\n"
        "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[], %sums: f32[1, 16]) {\n"
        "  %h = embedding(w, %tokens)\n"
        "  return cross_entropy(%h, %targets), reduce_sum(w) {axis = 0}, seen <- add(seen, 1)\n}\n"
        "optimizer adamw {lr = 0.05}\n";
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("bf16");
    o.pair = o.train_step = 1;
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    for (int i = 0; i < 3; i++) {
        run(p, "eval");
        ck_assert_float_eq(*(float *)variable(p, "seen").data, (float)i);
        train_step(p);
        ck_assert_float_eq(*(float *)variable(p, "seen").data, (float)i + 1);
    }
    run_pair(p);
    ck_assert_float_eq(*(float *)variable(p, "seen").data, 4);
    fp8c_module_destroy(m);
    stop(ctx, p);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("states");
    TCase *t = tcase_create("scaling");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, histories_are_pushed_once);
    tcase_add_loop_test(t, skipped_updates, 0, 2);
    tcase_add_loop_test(t, infinity_is_not_saturated, 0, 4);
    tcase_add_loop_test(t, ids_out_of_range, 0, 2);
    tcase_add_loop_test(t, weights_are_current, 2, 4);
    tcase_add_loop_test(t, scales_have_names, 2, 4);
    tcase_add_test(t, states_of_the_model);
    tcase_add_loop_test(t, pair_is_micro_step, 0, 4);
    tcase_add_loop_test(t, update_scales_skips, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
