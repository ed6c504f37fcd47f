/* The command on generated modules that are deep, wide, or have many inputs, functions, parameters
 * or rules, and on sizes up to 2^63: each run ends with a plan or says why there is none. What
 * hangs is killed by Check's limit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

/* ---- the modules ---- */

#define LOSS "  return reshape(mean(mul(%%y, %%y)) {axes = [0, 1]}) {shape = []}\n}\n" ADAM
#define ADAM "optimizer adamw {lr = 1e-3, clip = 1}\n"
#define ONE_WEIGHT "module %s\ndim B = 8, C = 16\nparam w: f32[C, C] normal(0.1)\n"
#define WEIGHTS                                                                                    \
    "module %s\ndim B = 8, C = 16\nrepeat l < %d { param h.{l}.w: f32[C, C] normal(0.1) }\n"
#define FORWARD "func forward(%%x: f32[B, C]) -> (%%loss: f32[]) {\n"

/* Each names its result %y. */
static void deep(FILE *f, int n)
{
    fprintf(f,
            "module deep\ndim B = 2, T = 8, C = 16, V = 32\nparam wte: f32[V, C] normal(0.1)\n"
            "repeat l < %d {\n  param h.{l}.up: f32[C, C] normal(0.1)\n"
            "  param h.{l}.down: f32[C, C] normal(0.1)\n}\n"
            "func forward(%%tokens: i32[B, T], %%targets: i32[B, T]) -> (%%loss: f32[]) {\n"
            "  %%e = embedding(wte, %%tokens)\n  repeat l < %d carry %%y = %%e {\n"
            "    %%y = add(%%y, linear(gelu(linear(%%y, h.{l}.up)), h.{l}.down))\n  }\n"
            "  return cross_entropy(linear(%%y, wte) {transpose_b = true, name = \"head\"}, "
            "%%targets)\n}\n" ADAM,
            n, n);
}

static void wide(FILE *f, int n)
{
    fprintf(f,
            WEIGHTS FORWARD "  %%z = tanh(%%x)\n  repeat l < %d carry %%y = %%z {\n"
                            "    %%y = add(%%y, linear(%%x, h.{l}.w))\n  }\n" LOSS,
            "wide", n, n);
}

static void chain(FILE *f, int n)
{
    fprintf(f,
            ONE_WEIGHT FORWARD "  %%z = linear(%%x, w)\n  repeat l < %d carry %%y = %%z {\n"
                               "    %%y = add(tanh(%%y), %%z)\n  }\n" LOSS,
            "chain", n);
}

static void inputs(FILE *f, int n)
{
    fprintf(f, ONE_WEIGHT "func forward(%%x: f32[B, C]", "inputs");
    for (int i = 0; i < n; i++)
        fprintf(f, ", %%x%d: f32[B, C]", i);
    fprintf(f, ") -> (%%loss: f32[]) {\n  %%y0 = linear(%%x, w)\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "  %%y%d = add(linear(%%y%d, w), %%x%d)\n", i + 1, i, i);
    fprintf(f, "  %%y = tanh(%%y%d)\n" LOSS, n);
}

static void functions(FILE *f, int n)
{
    fprintf(f, ONE_WEIGHT, "functions");
    for (int i = 0; i < n; i++)
        fprintf(
            f, "func f%d(%%x: f32[B, C]) -> (%%y: f32[B, C]) {\n  return gelu(linear(%%x, w))\n}\n",
            i);
    fprintf(f, FORWARD "  %%y = linear(%%x, w)\n" LOSS);
}

static void dense(FILE *f, int n) /* each linear reads all results before it */
{
    fprintf(f, ONE_WEIGHT FORWARD "  %%v0 = linear(%%x, w)\n", "dense");
    for (int i = 1; i < n; i++) {
        fprintf(f, "  %%s%d.0 = tanh(%%v0)\n", i);
        for (int k = 1; k < i; k++)
            fprintf(f, "  %%s%d.%d = add(%%s%d.%d, %%v%d)\n", i, k, i, k - 1, k);
        fprintf(f, "  %%v%d = linear(%%s%d.%d, w)\n", i, i, i - 1);
    }
    fprintf(f, "  %%y = tanh(%%v%d)\n" LOSS, n - 1);
}

static void rules(FILE *f, int n)
{
    static const char *const recipe[] = {"bf16", "current", "delayed", "rowwise", "block"};
    fprintf(f,
            WEIGHTS FORWARD "  repeat l < %d carry %%y = %%x {\n"
                            "    %%y = tanh(linear(%%y, h.{l}.w))\n  }\n" LOSS,
            "rules", n, n);
    for (int i = 0; i < n; i++)
        fprintf(f, "recipe \"h.%d.*\" = %s\n", i, recipe[i % 5]);
}

static void norms(FILE *f, int n)
{
    fprintf(f,
            ONE_WEIGHT "repeat l < %d { param g.{l}: f32[C] ones }\n" FORWARD
                       "  %%z = linear(%%x, w)\n  repeat l < %d carry %%y = %%z {\n"
                       "    %%y = rmsnorm(%%y, g.{l})\n  }\n" LOSS,
            "norms", n, n);
}

/* ---- runs ---- */

typedef struct {
    void (*make)(FILE *, int);
    int n;
    const char *command, *recipe, *dims[2];
    const char *refused; /* what it says; NULL: there is a plan */
} case_of;

#define SUM_PRODUCT "up to 2^31 - 1"
#define TOO_LARGE "overflows"

static const case_of cases[] = {
    /* the first four: more kernels than the registry's first table takes */
    {deep, 20, "plan", "delayed", {NULL}, NULL},
    {deep, 40, "plan", "bf16", {NULL}, NULL},
    {deep, 3, "plan", "bf16", {"V=50000", "B=20000"}, NULL},
    {deep, 3, "plan", "bf16", {"B=20000000"}, NULL},
    {deep, 200, "plan", "bf16", {NULL}, NULL},
    {deep, 200, "explain", "current", {NULL}, NULL},
    {deep, 40, "plan", "f32", {NULL}, NULL},
    {deep, 20, "plan", "current", {NULL}, NULL},
    {deep, 20, "plan", "rowwise", {NULL}, NULL},
    {deep, 20, "plan", "block", {NULL}, NULL},
    {deep, 20, "plan", "mxfp8", {NULL}, NULL},
    {deep, 20, "plan", "fake", {NULL}, NULL},
    {wide, 200, "plan", "delayed", {NULL}, NULL},
    {wide, 300, "explain", "current", {NULL}, NULL},
    {chain, 200, "plan", "bf16", {NULL}, NULL},
    {chain, 1000, "explain", "bf16", {NULL}, NULL},
    {inputs, 100, "plan", "delayed", {NULL}, NULL},
    {inputs, 200, "explain", "bf16", {NULL}, NULL},
    {functions, 200, "plan", "bf16", {NULL}, NULL},
    {functions, 200, "explain", "delayed", {NULL}, NULL},
    {dense, 40, "plan", "current", {NULL}, NULL},
    {dense, 40, "explain", "bf16", {NULL}, NULL},
    {rules, 60, "plan", "bf16", {NULL}, NULL},
    {rules, 100, "explain", "rowwise", {NULL}, NULL},
    {norms, 60, "plan", "bf16", {NULL}, NULL},
    {norms, 200, "explain", "bf16", {NULL}, NULL},
    {deep, 12, "compile", "delayed", {NULL}, NULL},
    {wide, 24, "compile", "bf16", {NULL}, NULL},
    {inputs, 24, "compile", "bf16", {NULL}, NULL},
    {functions, 24, "compile", "bf16", {NULL}, NULL},
    {deep, 12, "train", "delayed", {"V=256"}, NULL},
    {deep, 24, "train", "bf16", {"V=256"}, NULL},
    /* sizes */
    {wide, 2, "plan", "bf16", {"B=2147483647"}, NULL},
    {wide, 2, "plan", "bf16", {"B=2147483648"}, SUM_PRODUCT},
    {wide, 2, "compile", "delayed", {"B=2147483648"}, SUM_PRODUCT},
    {wide, 2, "explain", "bf16", {"C=2147483648"}, TOO_LARGE},
    {chain, 2, "plan", "bf16", {"B=2147483648", "C=2147483648"}, TOO_LARGE},
    {chain, 2, "train", "bf16", {"B=4611686018427387904"}, TOO_LARGE},
    {chain, 2, "explain", "bf16", {"B=9223372036854775807"}, TOO_LARGE},
    {norms, 2, "plan", "bf16", {"B=35184372088832", "C=1"}, SUM_PRODUCT},
};

static const char *written(void (*make)(FILE *, int), int n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(f);
    make(f, n);
    fclose(f);
    const char *path = f8_cli_write("module.f8", text, size);
    free(text);
    return path;
}

START_TEST(ends)
{
    const case_of *c = &cases[_i];
    const char *args[24] = {c->command, NULL};
    int n = 1;
    /* under a sanitizer a third of what is very deep */
    args[n++] = written(c->make, f8_cli_sanitized() && c->n > 60 ? c->n / 3 : c->n);
    args[n++] = "--recipe";
    args[n++] = c->recipe;
    for (int i = 0; i < 2 && c->dims[i]; i++) {
        args[n++] = "-D";
        args[n++] = c->dims[i];
    }
    if (!strcmp(c->command, "plan")) {
        args[n++] = "--budgets";
        args[n++] = "0.5";
    } else if (!strcmp(c->command, "compile")) {
        args[n++] = "-o";
        args[n++] = f8_cli_temp("out.f8x");
    } else if (!strcmp(c->command, "train")) {
        args[n++] = "--steps";
        args[n++] = "1";
        args[n++] = "--data";
        args[n++] = f8_cli_write_words("data", 1000);
    }
    const f8_cli_result r = f8_cli_run(args);
    if (!c->refused) {
        ck_assert_msg(r.code == 0, "%s: exit %d: %s", c->command, r.code, r.err);
        return;
    }
    ck_assert_msg(r.code == 1 && strstr(r.err, c->refused), "exit %d: %s", r.code, r.err);
    ck_assert_msg(strstr(r.err, "module.f8:") && strstr(r.err, ": error: "), "no place: %s", r.err);
}
END_TEST

/* A plan that takes many times as long as the pause. */
START_TEST(a_signal_ends_planning)
{
    const f8_cli_signal at[] = {{.number = SIGTERM, .caught = true, .pause = 300000},
                                {.number = 0}};
    const char *const args[] = {"plan", written(deep, 800), "--recipe", "rowwise", NULL};
    const f8_cli_result r = f8_cli_run_signals(at, args);
    ck_assert_msg(r.code == 128 + SIGTERM, "exit %d: %s", r.code, r.err);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("modules");
    TCase *t = tcase_create("modules");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_unchecked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, ends, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(t, a_signal_ends_planning);
    suite_add_tcase(s, t);
    return s;
}
