/* The limits in the table of ir/README.md that no short text reaches: results of a function, sets
 * of values of a file, collectives under way. fp8c takes N, and refuses or splits N + 1. The last
 * test stacks views on one value, which has no limit, with and without a memory budget. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/program.h"
#include "runtime/comm/comm.h"
#include "runtime/plan_file.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/passes/unit.h"
#include "tests/shared/suite.h"

/* ---- results of a function ---- */

enum { MOST_RESULTS = 30000 };

/* A function that gives one and the same zero n times: legalize makes one for each result. */
static const f8_func *of_results(f8_module *m, int n)
{
    f8_func *f = f8_module_func(m, "forward");
    const f8_type one = {.dtype = F8_F32, .rank = 1, .dim = {1}};
    char name[16];
    const f8_ref x = f8_const(f->graph, 0);
    for (int i = 0; i < n; i++) {
        f->graph->at = (f8_loc){1, 3};
        const f8_ref r =
            f8_make(f->graph, F8_OP_BROADCAST, &x, 1, &F8_INTS(F8_A_SHAPE, f8_shape_of(&one)), 1);
        snprintf(name, sizeof name, "y%d", i);
        f8_func_result(f, f8_arena_strdup(m->arena, name), r, -1);
    }
    return f;
}

START_TEST(results_of_a_function)
{
    for (int more = 0; more < 2; more++) {
        f8_arena arena;
        f8_diag diag = {0};
        f8_arena_init(&arena, NULL);
        f8_module *m = f8_module_create(&arena, &diag, "many", "many.f8");
        const f8_func *f = of_results(m, MOST_RESULTS + more);
        f8_unit unit = {.module = m, .arena = &arena, .diag = &diag};
        unit.options.recipe = f8_recipe_by_name("f32");
        unit.options.target = f8_target_by_name("cpu");
        const f8_status status = f8_pass_legalize(&unit);
        ck_assert_msg(status == (more ? F8_ERR_UNSUPPORTED : F8_OK), "%s", diag.text);
        if (more) {
            ck_assert_str_eq(diag.text, "forward: more than 30000 results");
            ck_assert_uint_eq(diag.loc.line, 1);
        } else { /* no two share a value */
            ck_assert_uint_eq(f->n_out, MOST_RESULTS);
            ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
            for (size_t i = 1; i < f->n_out; i++)
                ck_assert_uint_ne(f->out[i].ref, f->out[i - 1].ref);
        }
        f8_arena_end(&arena);
    }
}
END_TEST

/* ---- sets of values of a file ---- */

static const struct {
    int bound;
    int n; /* values that are named; 0: none, so all */
    const char *said;
} sets[] = {
    {64, 0, NULL},
    {65, 0,
     "a file holds at most 64 sets of values, and 'B' alone has 65: name those that it "
     "shall have (--values B=1,2,4)"},
    {65, 64, NULL},
    {65, 65, "one dim has more than 64"},
};
enum { N_SETS = sizeof sets / sizeof *sets };

START_TEST(sets_of_values)
{
    char text[128], values[512] = "B=1";
    snprintf(text, sizeof text,
             "module sets\ndim B <= %d\nfunc forward(%%x: f32[B]) -> f32[B] { return neg(%%x) }\n",
             sets[_i].bound);
    for (int i = 2; i <= sets[_i].n; i++)
        snprintf(values + strlen(values), sizeof values - strlen(values), ",%d", i);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("f32");
    o.inference = 1;
    o.values = sets[_i].n ? values : NULL;
    const char *path = f8_cli_temp("sets.f8x");
    const fp8c_status status = fp8c_compile_file(m, &o, 1, path);
    const char *said = fp8c_context_message(ctx);
    ck_assert_msg(status == (sets[_i].said ? FP8C_ERR_INPUT : FP8C_OK), "%s", said);
    if (sets[_i].said)
        ck_assert_msg(strstr(said, sets[_i].said) != NULL, "%s", said);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- collectives under way ---- */

enum { VALUES = 70 };

/* VALUES all_gathers that nothing in the function reads. */
static char *gathers(void)
{
    char *text = malloc(1 << 15), *at = stpcpy(text, "module gathers\nfunc forward(");
    for (int i = 0; i < VALUES; i++)
        at += sprintf(at, "%s%%x%d: f32[64, 4]", i ? ", " : "", i);
    at = stpcpy(at, ") -> (");
    for (int i = 0; i < VALUES; i++)
        at += sprintf(at, "%s%%y%d: f32[2, 64, 4]", i ? ", " : "", i);
    at = stpcpy(at, ") {\n  return ");
    for (int i = 0; i < VALUES; i++)
        at += sprintf(at, "%sall_gather(%%x%d) {ranks = 2}", i ? ", " : "", i);
    strcpy(at, "\n}\n");
    return text;
}

/* The most that are under way at one time in the function. */
static int under_way(const f8_plan_func *f, uint32_t *collectives)
{
    int now = 0, most = 0;
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const f8_step *s = &f->step[i];
        if (s->kind == F8_STEP_COLLECTIVE && f8_collective_travels(s->collective.kind)) {
            ++*collectives;
            most = ++now > most ? now : most;
        }
        now -= s->kind == F8_STEP_WAIT;
    }
    ck_assert_int_eq(now, 0);
    return most;
}

/* A function has at most F8_MOST_UNDER_WAY: the first is waited for before one more starts. A plan
 * that has one more is refused. */
START_TEST(collectives_under_way)
{
    char *text = gathers();
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("f32");
    o.inference = o.no_device = 1;
    o.ranks = 2;
    fp8c_program *p = compile(ctx, m, &o);
    const int function = fp8c_program_function(p, "eval");
    f8_plan plan = p->now->plan;
    f8_plan_func f = plan.func[function];
    uint32_t collectives = 0;
    ck_assert_int_eq(under_way(&f, &collectives), F8_MOST_UNDER_WAY);
    ck_assert_uint_eq(collectives, VALUES);
    f8_diag diag = {0};
    ck_assert_msg(f8_plan_check(&plan, &diag) == F8_OK, "%s", diag.text);
    /* the first wait after the next collective, rather than before it */
    f8_step *step = malloc(f.n_steps * sizeof *step), *wait;
    memcpy(step, f.step, f.n_steps * sizeof *step);
    for (wait = step; wait->kind != F8_STEP_WAIT; wait++)
        ;
    ck_assert_int_eq(wait[1].kind, F8_STEP_COLLECTIVE);
    const f8_step first = *wait;
    *wait = wait[1];
    wait[1] = first;
    f.step = step;
    plan.func = &f;
    plan.n_funcs = 1;
    ck_assert_int_eq(f8_plan_check(&plan, &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, "more than 64 collectives are under way"), "%s", diag.text);
    free(step);
    free(text);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- views ---- */

/* Layers whose activations can be computed again, then n views, each of the one before. */
static const char *views(int n)
{
    static char text[1 << 15];
    int rows = 400;
    bool pairs = false;
    char *at = stpcpy(text, "module views\nparam wte: f32[16, 8] normal(0.5)\n"
                            "param w: f32[8, 8] normal(0.5)\n"
                            "func forward(%tokens: i32[400], %targets: i32[");
    at += sprintf(at, "%d]) -> (%%loss: f32[]) {\n  %%a0 = embedding(wte, %%tokens)\n",
                  400 - 2 * ((n + 1) / 2));
    for (int i = 1; i <= 6; i++)
        at += sprintf(at, "  %%a%d = gelu(linear(%%a%d, w))\n", i, i - 1);
    at = stpcpy(at, "  %v0 = gelu(%a6)\n");
    for (int i = 1; i <= n; i++) {
        at += sprintf(at, "  %%v%d = ", i);
        if (i % 2) {
            rows -= 2;
            at += pairs ? sprintf(at, "slice(%%v%d) {axis = 0, start = 0, stop = %d}\n", i - 1,
                                  rows / 2)
                        : sprintf(at, "slice(%%v%d) {axis = 0, start = 1, stop = %d}\n", i - 1,
                                  rows + 1);
        } else {
            pairs = !pairs;
            at += pairs ? sprintf(at, "reshape(%%v%d) {shape = [%d, 2, 8]}\n", i - 1, rows / 2)
                        : sprintf(at, "reshape(%%v%d) {shape = [%d, 8]}\n", i - 1, rows);
        }
    }
    sprintf(at,
            "  return cross_entropy(linear(reshape(%%v%d) {shape = [%d, 8]}, wte) {transpose_b = "
            "true}, %%targets)\n}\noptimizer adamw {lr = 0.01}\n",
            n, rows);
    return text;
}

static const int stacked[] = {64, 65, 66, 200};

/* Recomputation changes no bit, however many views are stacked. */
START_TEST(stacked_views)
{
    const char *text = views(stacked[_i]);
    f8_api_setup setup = {.file = f8_cli_write("views.f8", text, strlen(text)),
                          .options = {.target = "cpu", .recipe = "bf16", .threads = 1}};
    f8_api_run plain, tight;
    ck_assert_msg(f8_api_open(&plain, &setup), "%s", plain.failed);
    setup.options.memory_share = 0.75;
    ck_assert_msg(f8_api_open(&tight, &setup), "%d views: %s", stacked[_i], tight.failed);
    for (uint64_t i = 0; i < 3; i++) {
        const float a = f8_api_step(&plain, 16, i), b = f8_api_step(&tight, 16, i);
        ck_assert_msg(!memcmp(&a, &b, sizeof a), "%g and %g", (double)a, (double)b);
    }
    ck_assert_ptr_null(f8_api_differs(&plain, &tight));
    f8_api_close(&plain);
    f8_api_close(&tight);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("many");
    TCase *t = tcase_create("many");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, results_of_a_function);
    tcase_add_loop_test(t, sets_of_values, 0, N_SETS);
    tcase_add_test(t, collectives_under_way);
    tcase_add_loop_test(t, stacked_views, 0, sizeof stacked / sizeof *stacked);
    suite_add_tcase(s, t);
    return s;
}
