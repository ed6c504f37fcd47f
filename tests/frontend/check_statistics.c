/* Statistics and dumps: steps that watch give the same bits as plain ones, figures have the same
 * bits on every target, and they are what plain loops over the dumped values give. */
#include <float.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/statistics_case.h"
#include "tests/shared/suite.h"

enum { BYTES = 256, STEPS = 3 };

static const fp8c_dim dims[] = {{"B", 2}, {"T", 32}, {"C", 32}, {"H", 2}, {"L", 2}};
static void begin(f8_api_run *r, const char *target, const char *recipe, bool watch)
{
    f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                          .dims = dims,
                          .n_dims = 5,
                          .options = {.target = target, .recipe = recipe, .threads = 2}};
    if (watch)
        setup.options.stats = setup.options.dump = "*";
    ck_assert_msg(f8_api_open(r, &setup), "%s %s: %s", target, recipe, r->failed);
}

/* A step through one of the three functions; the loss. */
static float step(f8_api_run *r, const char *function, uint64_t number)
{
    r->step = fp8c_program_function(r->program, function);
    ck_assert_int_ge(r->step, 0);
    const float loss = f8_api_step(r, BYTES, number);
    ck_assert_msg(!r->failed, "%s: %s", function, r->failed);
    return loss;
}

static void same_state(f8_api_run *a, f8_api_run *b, const char *what)
{
    const char *differs = f8_api_differs(a, b);
    ck_assert_msg(!differs, "%s: %s differs", what, differs);
}

START_TEST(watched_steps_are_plain_steps)
{
    static const char *const watching[] = {"micro_step.stats", "micro_step.dump"};
    const char *recipe = recipes[_i];
    f8_api_run plain, watched;
    begin(&plain, "cpu", recipe, false);
    begin(&watched, "cpu", recipe, true);
    for (uint64_t s = 0; s < STEPS; s++) {
        const float loss = step(&plain, "micro_step", s), same = step(&watched, watching[s % 2], s);
        ck_assert_msg(!memcmp(&loss, &same, sizeof loss), "%s, step %d", recipe, (int)s);
    }
    same_state(&plain, &watched, recipe);
    f8_api_close(&plain);
    f8_api_close(&watched);
}
END_TEST

/* ---- one linear ---- */

START_TEST(figures_have_the_interpreters_bits)
{
    const char *name = recipes[_i], *what_if = recipes[2 + _i % 4];
    exact cpu, apart, interpreted;
    run_exact(&cpu, "cpu", name, what_if, 0, true);
    run_exact(&apart, "cpu", name, what_if, 1, true);
    run_exact(&interpreted, "reference", name, what_if, 0, true);
    ck_assert_int_gt(same_results(&cpu, &apart, name), 7); /* loss, stats, and six values */
    same_results(&cpu, &interpreted, name);
    end_exact(&cpu);
    end_exact(&apart);
    end_exact(&interpreted);
}
END_TEST

/* ---- figures against plain loops ---- */

/* The value of a code, by the bits of the format. */
static double decoded(uint8_t code, bool e5m2)
{
    const int bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, e = (code & 127) >> bits,
              m = code & ((1 << bits) - 1);
    const double size = e ? ldexp(1 + ldexp(m, -bits), e - bias) : ldexp(m, 1 - bias - bits);
    return code & 128 ? -size : size;
}

/* The inverse scale of element [row, column]: which of the array's depends on its shape. */
static double scale_at(const void *scales, const fp8c_type *t, const char *grain, int64_t row,
                       int64_t column, int64_t columns)
{
    int64_t by_rows = 0, by_columns = 0, at = 0;
    if (!strcmp(grain, "row"))
        at = row;
    else if (!strcmp(grain, "column"))
        at = column;
    else if (sscanf(grain, "block(%ld,%ld)", &by_rows, &by_columns) == 2)
        at = row / by_rows * ((columns + by_columns - 1) / by_columns) + column / by_columns;
    return t->dtype == FP8C_F8E8M0 ? ldexp(1, ((const uint8_t *)scales)[at] - 127)
                                   : (double)((const float *)scales)[at];
}

static bool near(double a, double b)
{
    /* sums of at most 2^15 terms of one sign, in f32, two roundings of an element, 2^-24 each */
    return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)) || a == b;
}

static void judge(const exact *e, const fp8c_statistic *s)
{
    fp8c_type t, st = {0};
    char name[64];
    const float *x = result(e, s->name, &t);
    ck_assert_ptr_nonnull(x);
    snprintf(name, sizeof name, "%s.q", s->name);
    const uint8_t *code = result(e, name, NULL);
    snprintf(name, sizeof name, "%s.scale_inv", s->name);
    const void *inv = result(e, name, &st);
    ck_assert(!s->recipe == !code && !code == !inv);
    const int64_t n = fp8c_type_bytes(&t) / 4, columns = t.dim[t.rank - 1];
    double amin = INFINITY, amax = 0, x_x = 0, d_d = 0, x_d = 0, error = 0,
           largest = 0;
    int64_t lost = 0, over = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        amax = fmax(amax, fabs(v));
        amin = v != 0 ? fmin(amin, fabs(v)) : amin;
        if (!code)
            continue;
        const bool e5m2 = !strcmp(s->format, "f8e5m2");
        const double c = decoded(code[i], e5m2),
                     d = c * scale_at(inv, &st, s->granularity, i / columns, i % columns, columns);
        largest = fmax(largest, fabs(c));
        lost += v != 0 && c == 0;
        over += fabs(c) == (e5m2 ? 57344 : 448) &&
                fabs(v) > fabs(d) * (e5m2 ? 61440. / 57344 : 464. / 448);
        x_x += v * v;
        d_d += d * d;
        x_d += v * d;
        error += (d - v) * (d - v);
    }
    ck_assert_int_eq(s->elements, n);
    ck_assert_int_eq(s->nonfinite, 0);
    ck_assert_msg(s->amax == amax && s->amin == amin, "%s: %g %g", s->name, s->amin, s->amax);
    ck_assert(near(s->range, log2(amax / amin)));
    if (!code) {
        ck_assert(isnan(s->underflow) && isnan(s->mse) && isnan(s->scale) && isnan(s->cosine) &&
                  isnan(s->used));
        return;
    }
    ck_assert_msg(s->underflow * (double)n == (double)lost &&
                      s->overflow * (double)n == (double)over,
                  "%s: %g of %g lost, %g of %g over", s->name, s->underflow * (double)n,
                  (double)lost, s->overflow * (double)n, (double)over);
    ck_assert_msg(near(s->mse, error / (double)n) && near(s->cosine, x_d / sqrt(x_x * d_d)) &&
                      near(s->sqnr, 10 * log10(x_x / error)),
                  "%s: mse %g %g cosine %g sqnr %g", s->name, s->mse, error / (double)n, s->cosine,
                  s->sqnr);
    ck_assert_double_eq(s->used, largest / (!strcmp(s->format, "f8e5m2") ? 57344 : 448));
    if (strcmp(s->granularity, "tensor")) {
        ck_assert(isnan(s->scale) && isnan(s->scale_wanted));
        return;
    }
    ck_assert(near(s->scale * (double)*(const float *)inv, 1));
    ck_assert(
        near(s->scale_wanted, fmin(FLT_MAX, (!strcmp(s->format, "f8e5m2") ? 57344 : 448) / amax)));
}

START_TEST(figures_are_those_of_plain_loops)
{
    exact e;
    fp8c_statistic s = {.struct_size = sizeof s};
    int n = 0, lost = 0;
    run_exact(&e, "cpu", recipes[_i], NULL, 0, true);
    for (; fp8c_program_statistic(e.p, e.f, n, &s) == FP8C_OK; n++) {
        judge(&e, &s);
        lost += s.underflow > 0;
    }
    ck_assert_int_ge(n, 6); /* x, w, dy, y, dx, dw, and others where scales run along a sum */
    ck_assert_int_eq(lost > 0, _i > 0);
    end_exact(&e);
}
END_TEST

/* Tensors whose squares are beyond f32: the same shares, and no NaN. */
START_TEST(far_from_1)
{
    static const int binades[] = {70, -70, 120};
    fp8c_statistic s = {.struct_size = sizeof s};
    for (size_t i = 0; i < sizeof binades / sizeof *binades; i++) {
        exact e;
        exact_binades = binades[i];
        run_exact(&e, "cpu", recipes[1 + _i], NULL, 0, true);
        for (int n = 0; fp8c_program_statistic(e.p, e.f, n, &s) == FP8C_OK; n++) {
            judge(&e, &s);
            ck_assert_msg(!s.recipe || (s.cosine > 0.99 && s.sqnr > 20), "%s: %g %g", s.name,
                          s.cosine, s.sqnr);
        }
        end_exact(&e);
    }
}
END_TEST

/* ---- what if, budgets, refusals ---- */

static void same_figures(const fp8c_statistic *a, const fp8c_statistic *b)
{
    const double x[] = {a->amin, a->amax,   a->range, a->underflow,   a->overflow,
                        a->mse,  a->cosine, a->sqnr,  a->scale_wanted},
                 y[] = {b->amin, b->amax,   b->range, b->underflow,   b->overflow,
                        b->mse,  b->cosine, b->sqnr,  b->scale_wanted};
    ck_assert_msg(!memcmp(x, y, sizeof x), "%s and %s", a->name, b->name);
    ck_assert_str_eq(a->granularity, b->granularity);
}

/* A what-if has the figures that a program under that recipe has. */
START_TEST(what_if_is_what_the_recipe_does)
{
    static const char *const other[] = {"current", "rowwise", "block", "mxfp8"};
    exact e, real;
    fp8c_statistic s = {.struct_size = sizeof s}, t = s;
    int n = 0;
    char name[64];
    run_exact(&e, "cpu", _i % 2 ? "delayed" : "bf16", other[_i], 0, true);
    run_exact(&real, "cpu", other[_i], NULL, 0, true);
    for (int i = 0; fp8c_program_statistic(e.p, e.f, i, &s) == FP8C_OK; i++) {
        const char *at = strchr(s.name, '@');
        ck_assert(!s.what_if == !at);
        if (!at)
            continue;
        ck_assert(!strcmp(at + 1, other[_i]) && !strcmp(s.recipe, other[_i]));
        snprintf(name, sizeof name, "%.*s", (int)(at - s.name), s.name);
        int k = 0;
        while (fp8c_program_statistic(real.p, real.f, k, &t) == FP8C_OK && strcmp(t.name, name))
            k++;
        ck_assert_str_eq(t.name, name);
        same_figures(&s, &t);
        n++;
    }
    ck_assert_int_ge(n, 3); /* x, w, dy; more where scales run along a sum */
    end_exact(&e);
    end_exact(&real);
}
END_TEST

START_TEST(under_a_budget)
{
    f8_api_run plain, watched;
    f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                          .dims = dims,
                          .n_dims = 5,
                          .options = {.recipe = "delayed", .threads = 2}};
    ck_assert_msg(f8_api_open(&plain, &setup), "%s", plain.failed);
    setup.options.memory_share = 0.6;
    setup.options.stats = "*";
    ck_assert_msg(f8_api_open(&watched, &setup), "%s", watched.failed);
    fp8c_remat remat = {.struct_size = sizeof remat};
    fp8c_program_remat(watched.program, 0, 0, &remat);
    ck_assert_int_gt(remat.recomputed, 0);
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(watched.program, &info);
    ck_assert_int_lt(info.arena_bytes, remat.arena_before); /* micro_step.stats is fitted, too */
    for (uint64_t s = 0; s < STEPS; s++) {
        const float a = step(&plain, "micro_step", s),
                    b = step(&watched, s % 2 ? "micro_step" : "micro_step.stats", s);
        ck_assert(!memcmp(&a, &b, sizeof a));
    }
    same_state(&plain, &watched, "under a budget");
    f8_api_close(&plain);
    f8_api_close(&watched);
}
END_TEST

static void refused(const fp8c_compile_options *o, fp8c_status status, const char *says)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, linear);
    fp8c_program *p;
    ck_assert_int_eq(fp8c_compile(m, o, &p), status);
    said(ctx, says);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

START_TEST(refusals)
{
    fp8c_compile_options o = recipe("delayed");
    o.stats = "mlp.*";
    refused(&o, FP8C_ERR_INPUT,
            "stats: 'mlp.*' matches no operand and no result of a linear's "
            "GEMM; they have names such as 'fc.x'");
    o.stats = NULL;
    o.dump = "mlp.*";
    refused(&o, FP8C_ERR_INPUT, "dump: 'mlp.*' matches no operand");
    o.dump = NULL;
    o.stats_recipe = "block";
    refused(&o, FP8C_ERR_INPUT, "stats_recipe needs `stats`");
    o.stats = "*";
    o.stats_recipe = "delayed";
    refused(&o, FP8C_ERR_UNSUPPORTED, "does not scale a value by its own amax");
    o.stats_recipe = "nonsense";
    refused(&o, FP8C_ERR_INPUT, "nonsense");
    o.stats_recipe = NULL;
    o.pair = 1;
    o.stats = NULL;
    o.dump = "*";
    refused(&o, FP8C_ERR_UNSUPPORTED, "dump: only a program with micro_step");
    o.pair = 0;
    o.dump = NULL;
    o.stats = "*";
    o.inference = 1;
    refused(&o, FP8C_ERR_UNSUPPORTED, "stats: only a program that trains");
}
END_TEST

START_TEST(no_statistics)
{
    exact e;
    fp8c_statistic s = {.struct_size = sizeof s};
    run_exact(&e, "cpu", "delayed", NULL, 0, false);
    ck_assert_int_eq(fp8c_program_statistic(e.p, e.f, 0, &s), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_function(e.p, "micro_step.stats"), -1);
    ck_assert_ptr_nonnull(result(&e, "fc.dy.q", NULL));
    end_exact(&e);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("statistics");
    TCase *t = tcase_create("statistics");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, watched_steps_are_plain_steps, 0, RECIPES);
    tcase_add_loop_test(t, figures_have_the_interpreters_bits, 0, RECIPES);
    tcase_add_loop_test(t, far_from_1, 0, RECIPES - 1);
    tcase_add_loop_test(t, figures_are_those_of_plain_loops, 0, RECIPES);
    tcase_add_loop_test(t, what_if_is_what_the_recipe_does, 0, 4);
    tcase_add_test(t, under_a_budget);
    tcase_add_test(t, refusals);
    tcase_add_test(t, no_statistics);
    suite_add_tcase(s, t);
    return s;
}
