/* `frozen` in programs that train by themselves: frozen parameters keep their bytes, and have no
 * gradient and no moments; all else has the bits of a program whose loss takes them for constants.
 */
#include <math.h>

#include "tests/shared/api/lora_case.h"
#include "tests/shared/suite.h"

static const char *const recipes[] = {"f32", "bf16", "current", "rowwise", "block", "delayed"};
static const char *const base[] = {"wte", "base.up", "base.down"};
static const char *const trained[] = {"lora.up.a", "lora.up.b", "lora.down.a", "lora.down.b",
                                      "lora.bias"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes, N_TRAINED = 5, N_BASE = 3, UPDATES = 3 };

/* The same text, but no gradient goes to wte, base.up and base.down. */
static const char *constants(void)
{
    static char text[sizeof lora_text + 256];
    static const char *const from[] = {"embedding(wte,", "linear(%x, base.up)",
                                       "linear(%h, base.down)", "linear(%y, wte)"},
                             *const to[] = {
                                 "embedding(stop_gradient(wte),",
                                 "linear(%x, stop_gradient(base.up)) {name = \"base.up\"}",
                                 "linear(%h, stop_gradient(base.down))",
                                 "linear(%y, stop_gradient(wte))"};
    char half[sizeof text];
    snprintf(text, sizeof text, "%s", lora_text);
    for (int i = 0; i < 4; i++) {
        char *at = strstr(text, from[i]);
        ck_assert_ptr_nonnull(at);
        snprintf(half, sizeof half, "%.*s%s%s", (int)(at - text), text, to[i],
                 at + strlen(from[i]));
        snprintf(text, sizeof text, "%s", half);
    }
    char *at = strstr(text, "{transpose_b = true}\n"); /* keeps the linear's name */
    snprintf(half, sizeof half, "%.*s{transpose_b = true, name = \"base.down\"}\n%s",
             (int)(at - text), text, at + strlen("{transpose_b = true}\n"));
    snprintf(text, sizeof text, "%s", half);
    return text;
}

static fp8c_program *open(fp8c_context *ctx, const char *text, const char *under,
                          const char *target, const char *frozen)
{
    fp8c_compile_options o = recipe(under);
    o.target = target;
    o.frozen = frozen;
    fp8c_module *m = parse(ctx, text);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 5), FP8C_OK);
    return p;
}

static char *joined(const char *prefix, const char *name)
{
    static char text[80];
    snprintf(text, sizeof text, "%s%s", prefix, name);
    return text;
}

START_TEST(same_gradients)
{
    const char *under = recipes[_i % N_RECIPES], *target = _i < N_RECIPES ? "cpu" : "reference";
    fp8c_context *ctx = new_context();
    fp8c_program *whole = open(ctx, lora_text, under, target, NULL),
                 *p = open(ctx, lora_text, under, target, LORA_BASE);
    for (int i = 0; i < 2; i++) { /* micro-steps of one update */
        const float want = lora_run(whole, "micro_step", i), loss = lora_run(p, "micro_step", i);
        ck_assert_msg(want == loss, "%s: loss %a, and %a with frozen parameters", under,
                      (double)want, (double)loss);
    }
    for (int i = 0; i < N_TRAINED; i++)
        ck_assert_msg(lora_same(whole, p, joined("grad.", trained[i])), "%s: %s", under,
                      trained[i]);
    static const char *const none[] = {"grad.", "opt.m.", "opt.v."};
    for (int i = 0; i < 3 * N_BASE; i++)
        ck_assert_msg(fp8c_program_find_variable(p, joined(none[i % 3], base[i / 3])) < 0,
                      "there is %s", joined(none[i % 3], base[i / 3]));
    fp8c_program_destroy(whole);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

static void *all_of(fp8c_program *p, const char *name)
{
    size_t n = 0;
    void *value = lora_read(p, name, &n);
    ck_assert_ptr_nonnull(value);
    return value;
}

/* Whole trainings. AdamW's weight decay still changes what gets no gradient, so the program with
 * constants gets its base back after each update. */
START_TEST(as_constants)
{
    const char *under = recipes[_i];
    fp8c_context *ctx = new_context();
    fp8c_program *p[2] = {open(ctx, constants(), under, "cpu", NULL),
                          open(ctx, lora_text, under, "cpu", LORA_BASE)};
    void *before[N_BASE];
    for (int k = 0; k < N_BASE; k++)
        before[k] = all_of(p[1], base[k]);
    for (int u = 0; u < UPDATES; u++) {
        float norm[2];
        for (int i = 0; i < 2; i++) {
            for (int k = 0; k < 1 + u; k++)
                lora_run(p[i], "micro_step", 3 * u + k);
            norm[i] = lora_update(p[i]);
        }
        ck_assert_msg(fabsf(norm[0] - norm[1]) <= 1e-6f * norm[0] && norm[0] > 0,
                      "%s: a norm of %.9g, and of %.9g", under, (double)norm[0], (double)norm[1]);
        for (int k = 0; k < N_TRAINED; k++)
            ck_assert_msg(lora_same(p[0], p[1], trained[k]), "%s, update %d: %s", under, u,
                          trained[k]);
        for (int k = 0; k < N_BASE; k++) {
            size_t n = 0;
            void *now = lora_read(p[1], base[k], &n);
            ck_assert_msg(!memcmp(now, before[k], n), "%s: %s has changed", under, base[k]);
            free(now);
            ck_assert_int_eq(
                fp8c_program_write(p[0], fp8c_program_find_variable(p[0], base[k]), before[k]),
                FP8C_OK);
        }
        const int prepare = fp8c_program_function(p[0], "prepare");
        if (prepare >= 0)
            ck_assert_int_eq(fp8c_program_run(p[0], prepare), FP8C_OK);
    }
    ck_assert(lora_run(p[0], "eval", 9) == lora_run(p[1], "eval", 9));
    for (int k = 0; k < N_BASE; k++)
        free(before[k]);
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

static float scale_of(fp8c_program *p, const char *element)
{
    size_t n = 0;
    const int v = fp8c_program_find_variable(p, "fp8.scale");
    float *scale = lora_read(p, "fp8.scale", &n), found = 0;
    const char *name;
    for (int64_t i = 0; (name = fp8c_program_element(p, v, i, 0)); i++)
        if (!strcmp(name, element))
            found = scale[i];
    free(scale);
    return found;
}

/* A frozen weight's scale under `delayed` is that of its amax at all times: no room for an update
 * is left in it. */
START_TEST(delayed_scale)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = open(ctx, lora_text, "delayed", "cpu", LORA_BASE);
    size_t n = 0;
    float *w = lora_read(p, "base.up", &n), amax = 0;
    for (size_t i = 0; i < n / sizeof *w; i++)
        amax = fmaxf(amax, fabsf(w[i]));
    free(w);
    for (int u = 0; u < UPDATES; u++) {
        ck_assert_msg(scale_of(p, "base.up.w") == 448 / amax, "update %d", u);
        lora_run(p, "micro_step", u);
        lora_update(p);
    }
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A pair may train by itself, too (train_step). */
START_TEST(beside_a_pair)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, lora_text);
    fp8c_compile_options o = recipe("bf16");
    o.frozen = LORA_BASE;
    o.pair = o.train_step = 1;
    fp8c_program *p[2] = {lora_open(ctx, (fp8c_compile_options){.recipe = "bf16"}),
                          compile(ctx, m, &o)};
    ck_assert_int_ge(fp8c_program_function(p[1], "backward"), 0);
    ck_assert_int_eq(fp8c_program_initialize(p[1], 5), FP8C_OK);
    lora_train_both(p, "a pair");
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(refused)
{
    static const struct {
        const char *frozen, *message;
    } bad[] = {
        {"base.*,lora.sideways", "frozen: no parameter matches 'lora.sideways'; they are: wte, "},
        {"*", "to train, the loss must depend on a parameter, but '*' freezes all of them"},
    };
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, lora_text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fp8c_compile_options o = recipe("bf16");
        fp8c_program *p = NULL;
        o.frozen = bad[i].frozen;
        o.no_device = o.plan_only = 1;
        ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
        said(ctx, bad[i].message);
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("frozen_training");
    TCase *t = tcase_create("frozen_training");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_gradients, 0, 2 * N_RECIPES);
    tcase_add_loop_test(t, as_constants, 0, N_RECIPES - 1); /* delayed: delayed_scale */
    tcase_add_test(t, delayed_scale);
    tcase_add_test(t, beside_a_pair);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return s;
}
