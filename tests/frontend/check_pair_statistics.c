/* Statistics of a pair: a forward and a backward that watch give the same bits as plain ones, and
 * their figures are those of micro_step.stats. On the CPU, the reference target, and CUDA (the
 * emulator, or a GPU with FP8C_TEST_GPU). */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/pair_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const char *const targets[] = {"cpu", "reference", "cuda"};
static const char *const recipes[] = {"bf16", "delayed", "current", "rowwise", "block"};
enum { TARGETS = 3, RECIPES = 5, ON_EVERY_TARGET = 3 };

/* q and k read one value. */
static const char layer[] =
    "module layer\ndim B <= 48\nparam ln: f32[32] ones\nparam q: f32[32, 64] normal(0.1)\n"
    "param k: f32[32, 64] normal(0.1)\nparam down: f32[64, 32] normal(0.1)\n"
    "func forward(%x: f32[B, 32], %t: i32[B]) -> (%loss: f32[]) {\n"
    "  %n = rmsnorm(%x, ln)\n"
    "  %h = mul(linear(%n, q) {name = \"q\"}, silu(linear(%n, k) {name = \"k\"}))\n"
    "  return cross_entropy(add(%x, linear(%h, down) {name = \"down\"}), %t)\n"
    "}\noptimizer adamw {lr = 0.01}\n";

static fp8c_context *ctx;

static fp8c_program *make(const char *target, const char *recipe_name,
                          const fp8c_compile_options *more)
{
    fp8c_compile_options o = *more;
    o.struct_size = sizeof o;
    o.target = target;
    o.recipe = recipe_name;
    o.pair = 1;
    o.gradients_of = "x";
    fp8c_module *m = parse(ctx, layer);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    return p;
}

static fp8c_saved *handle(fp8c_program *p)
{
    fp8c_saved *s;
    ck_assert_msg(fp8c_saved_create(p, &s) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return s;
}

/* Inputs of a step. */
static void batch(pair_values *in, int step, int64_t rows)
{
    const fp8c_type x = {FP8C_F32, 2, {rows, 32}}, t = {FP8C_I32, 1, {rows}},
                    dloss = {FP8C_F32, 0, {0}};
    float *data = pair_get(in, "x", &x), *one = pair_get(in, "dloss", &dloss);
    for (int64_t i = 0; i < rows * 32; i++)
        data[i] *= (float)(step + 1);
    pair_get(in, "t", &t);
    *one = 1;
}

/* ---- the same bits ---- */

/* Steps with forward and backward, which come of `which` at each step. */
static void train(fp8c_program *p, const int *which, int steps, int64_t rows, pair_values *out)
{
    fp8c_saved *s = handle(p);
    const int push = fp8c_program_function(p, "update_scales");
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", rows), FP8C_OK);
    for (int i = 0; i < steps; i++) {
        pair_values in = {0}, step = {0};
        char name[96];
        batch(&in, i, rows);
        pair_forward(p, which[i], s, &in, &step);
        pair_backward(p, s, &in, &step);
        ck_assert_int_eq(fp8c_program_wait(p), FP8C_OK);
        ck_assert(push < 0 || fp8c_program_run(p, push) == FP8C_OK);
        for (int k = 0; k < step.n; k++) {
            const pair_value *v = &step.value[k];
            snprintf(name, sizeof name, "%d.%.80s", i, v->name);
            pair_set(out, name, &v->type, v->data);
        }
        pair_end(&in);
        pair_end(&step);
    }
    pair_variables(p, "fp8.", out);
    fp8c_saved_destroy(s);
}

static void watching_changes_nothing(const char *target, const char *recipe_name,
                                     const fp8c_compile_options *more, int64_t rows)
{
    static const int plain[] = {FP8C_FORWARD_FIRST, 0, 0, 0},
                     watches[] = {FP8C_FORWARD_FIRST | FP8C_FORWARD_STATS, FP8C_FORWARD_STATS, 0,
                                  FP8C_FORWARD_STATS};
    static pair_values a, b;
    fp8c_compile_options o = *more;
    ctx = new_context();
    fp8c_program *p = make(target, recipe_name, &o);
    o.stats = "*";
    fp8c_program *q = make(target, recipe_name, &o);
    train(p, plain, 4, rows, &a);
    train(q, watches, 4, rows, &b);
    ck_assert_int_ge(a.n, 4 * 6); /* of each step the loss, dx, and the parameters' gradients */
    ck_assert_int_eq(a.n, b.n);
    for (int i = 0; i < a.n; i++)
        ck_assert_msg(pair_equal(&a, &b, a.value[i].name), "%s, %s: %s differs", target,
                      recipe_name, a.value[i].name);
    int n_saved, m_saved;
    ck_assert_int_eq(pair_saved_bytes(p, "forward", &n_saved),
                     pair_saved_bytes(q, "forward.stats", &m_saved));
    ck_assert_int_eq(n_saved, m_saved);
    fp8c_info info = {.struct_size = sizeof info}, with = info;
    fp8c_program_info(p, &info);
    fp8c_program_info(q, &with);
    ck_assert_int_eq(info.fp8_gemms_planned, with.fp8_gemms_planned);
    ck_assert_int_eq(info.fp8_gemms_executed, with.fp8_gemms_executed);
    pair_end(&a);
    pair_end(&b);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_context_destroy(ctx);
}

START_TEST(same_bits)
{
    watching_changes_nothing("cpu", recipes[_i], &(fp8c_compile_options){.threads = 2}, 48);
}
END_TEST

START_TEST(same_bits_on_other_targets)
{
    watching_changes_nothing(targets[1 + _i % 2], recipes[_i / 2], &(fp8c_compile_options){0}, 48);
}
END_TEST

START_TEST(same_bits_with_less_memory)
{
    watching_changes_nothing("cpu", "delayed", &(fp8c_compile_options){.memory_share = 0.5}, 48);
}
END_TEST

START_TEST(same_bits_in_a_smaller_batch)
{
    watching_changes_nothing("cpu", recipes[1 + _i], &(fp8c_compile_options){0}, 31);
}
END_TEST

/* ---- the figures ---- */

static void same_figures(const fp8c_statistic *a, const fp8c_statistic *b)
{
    const double x[] = {a->amin,   a->amax, a->range, a->underflow, a->overflow,     a->mse,
                        a->cosine, a->sqnr, a->scale, a->used,      a->scale_wanted},
                 y[] = {b->amin,   b->amax, b->range, b->underflow, b->overflow,     b->mse,
                        b->cosine, b->sqnr, b->scale, b->used,      b->scale_wanted};
    ck_assert_msg(!memcmp(x, y, sizeof x), "%s differs", a->name);
    ck_assert_str_eq(a->granularity, b->granularity);
    ck_assert_str_eq(a->gemms, b->gemms);
}

/* The index of the statistic with that name; -1: the function has none. */
static int find(fp8c_program *p, int function, const char *name, fp8c_statistic *out)
{
    for (int i = 0; fp8c_program_statistic(p, function, i, out) == FP8C_OK; i++)
        if (!strcmp(out->name, name))
            return i;
    return -1;
}

/* The statistics of one of the pair's functions, beside those of micro_step.stats. */
static int compare(fp8c_program *p, const char *function, const char *operands)
{
    const int f = fp8c_program_function(p, function),
              step = fp8c_program_function(p, "micro_step.stats");
    fp8c_statistic s = {.struct_size = sizeof s}, t = s;
    int n = 0;
    for (; fp8c_program_statistic(p, f, n, &s) == FP8C_OK; n++) {
        char operand[8];
        ck_assert_msg(find(p, step, s.name, &t) >= 0, "%s", s.name);
        ck_assert_str_eq(s.name, t.name);
        snprintf(operand, sizeof operand, " %s ", s.operand);
        ck_assert_msg(strstr(operands, operand), "%s has %s", function, s.name);
        if (strcmp(s.operand, "dw")) /* micro_step's is the sum over micro-steps */
            same_figures(&s, &t);
    }
    return n;
}

/* One batch through the pair and through micro_step of one program. */
START_TEST(figures_are_those_of_micro_step)
{
    const char *target = targets[_i % TARGETS], *recipe_name = recipes[_i / TARGETS];
    ctx = new_context();
    fp8c_program *p = make(target, recipe_name,
                           &(fp8c_compile_options){.train_step = 1, .stats = "*"});
    pair_values in = {0}, out = {0};
    fp8c_saved *s = handle(p);
    for (int step = 0; step < 2; step++) { /* the second has a history of amaxes */
        const bool first = step == 0 && fp8c_program_function(p, "forward.first.stats") >= 0;
        batch(&in, step, 48);
        pair_forward(p, FP8C_FORWARD_STATS | (first ? FP8C_FORWARD_FIRST : 0), s, &in, &out);
        pair_backward(p, s, &in, &out);
        ck_assert_int_eq(fp8c_program_wait(p), FP8C_OK);
        pair_run(p, "micro_step.stats", &in, &out);
        ck_assert_int_ge(compare(p, first ? "forward.first.stats" : "forward.stats", " x w y "),
                         2 + 3 + 3);
        ck_assert_int_ge(
            compare(p, first ? "backward.first.stats" : "backward.stats", " dy dx dw "), 3 + 2 + 3);
        const int update = fp8c_program_function(p, "update");
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
        pair_end(&in);
        pair_end(&out);
    }
    fp8c_saved_destroy(s);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- names ---- */

START_TEST(names_and_gemms)
{
    static const struct {
        const char *function, *name, *alias, *gemms;
    } known[] = {{"forward.stats", "q.x", "k.x", "fprop, wgrad"},
                 {"forward.stats", "k.w", NULL, "fprop, dgrad"},
                 {"forward.stats", "down.x", NULL, "fprop, wgrad"},
                 {"backward.stats", "q.dy", NULL, "dgrad, wgrad"},
                 {"backward.stats", "down.dx", NULL, "dgrad"}};
    ctx = new_context();
    fp8c_program *p = make("cpu", "current", &(fp8c_compile_options){.stats = "*"});
    fp8c_statistic s = {.struct_size = sizeof s};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const int f = fp8c_program_function(p, known[i].function);
        ck_assert_int_ge(find(p, f, known[i].name, &s), 0);
        ck_assert_str_eq(s.gemms, known[i].gemms);
        ck_assert_pstr_eq(s.aliases[0], known[i].alias);
        ck_assert(!s.aliases[0] || !s.aliases[1]);
    }
    const int forward = fp8c_program_function(p, "forward");
    ck_assert_int_eq(fp8c_program_statistic(p, forward, 0, &s), FP8C_ERR_INPUT);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Patterns that only one half has: the other has no figures, and its calls work. */
START_TEST(one_half)
{
    static const char *const patterns[] = {"*.w", "down.dy"};
    ctx = new_context();
    fp8c_program *p = make("cpu", "delayed", &(fp8c_compile_options){.stats = patterns[_i]});
    pair_values in = {0}, out = {0};
    fp8c_saved *s = handle(p);
    batch(&in, 0, 48);
    pair_forward(p, FP8C_FORWARD_STATS, s, &in, &out);
    pair_backward(p, s, &in, &out);
    fp8c_statistic one = {.struct_size = sizeof one};
    static const char *const functions[] = {"forward.stats", "backward.stats"};
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            fp8c_program_statistic(p, fp8c_program_function(p, functions[i]), 0, &one),
            i == _i ? FP8C_OK : FP8C_ERR_INPUT);
    fp8c_saved_destroy(s);
    pair_end(&in);
    pair_end(&out);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* fp8c_program_call gives the figures to the caller: 12 numbers a row. */
START_TEST(figures_of_a_call)
{
    ctx = new_context();
    fp8c_program *p = make("cpu", "block", &(fp8c_compile_options){.stats = "*.x.*"});
    pair_values in = {0}, out = {0};
    batch(&in, 0, 48);
    pair_run(p, "forward.stats", &in, &out);
    const pair_value *v = pair_find(&out, "stats");
    ck_assert_ptr_nonnull(v);
    ck_assert_int_eq(v->type.dim[0], 4); /* q.x and down.x, along rows and along columns */
    ck_assert_int_eq(v->type.dim[1], 12);
    ck_assert_double_gt((double)((const float *)v->data)[0], 0); /* an amax */
    pair_end(&in);
    pair_end(&out);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(refusals)
{
    ctx = new_context();
    fp8c_program *p = make("cpu", "delayed", &(fp8c_compile_options){0});
    fp8c_saved *s = handle(p);
    ck_assert_int_eq(fp8c_program_forward(p, FP8C_FORWARD_STATS, s, NULL, 0, NULL, 0),
                     FP8C_ERR_INPUT);
    said(ctx, "the program has no 'forward.stats': it was compiled without `stats`");
    static const int wrong[] = {4, -1};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fp8c_program_forward(p, wrong[i], s, NULL, 0, NULL, 0), FP8C_ERR_INPUT);
        said(ctx, "it is the sum of FP8C_FORWARD_FIRST and FP8C_FORWARD_STATS");
    }
    fp8c_saved_destroy(s);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("statistics of a pair");
    TCase *t = tcase_create("statistics of a pair");
    f8_test_gpu_emulated();
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_bits, 0, RECIPES);
    tcase_add_loop_test(t, same_bits_on_other_targets, 0, 2 * ON_EVERY_TARGET);
    tcase_add_test(t, same_bits_with_less_memory);
    tcase_add_loop_test(t, same_bits_in_a_smaller_batch, 0, 2);
    tcase_add_loop_test(t, figures_are_those_of_micro_step, 0, TARGETS * ON_EVERY_TARGET);
    tcase_add_test(t, names_and_gemms);
    tcase_add_loop_test(t, one_half, 0, 2);
    tcase_add_test(t, figures_of_a_call);
    tcase_add_test(t, refusals);
    suite_add_tcase(s, t);
    return s;
}
