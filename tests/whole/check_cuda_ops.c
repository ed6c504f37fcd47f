/* Single ops through the public API, on every target, against the same in double precision. The
 * CUDA target runs on the emulator, or with FP8C_TEST_GPU on this machine's GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const char *targets[] = {"reference", "cpu", "cuda"};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* ---- a program of a few values ---- */

typedef struct running {
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
    int step;
} running;

static running begin(const char *text, const char *target)
{
    running r = {.ctx = new_context()};
    fp8c_compile_options o = recipe("f32");
    o.target = target;
    r.m = parse(r.ctx, text);
    r.p = compile(r.ctx, r.m, &o);
    ck_assert_msg(fp8c_program_initialize(r.p, 1) == FP8C_OK, "%s", fp8c_context_message(r.ctx));
    r.step = fp8c_program_function(r.p, "micro_step");
    return r;
}

static void end(running *r)
{
    fp8c_program_destroy(r->p);
    fp8c_module_destroy(r->m);
    fp8c_context_destroy(r->ctx);
}

static void write_variable(running *r, const char *name, const float *from)
{
    const int at = fp8c_program_find_variable(r->p, name);
    ck_assert_msg(fp8c_program_write(r->p, at, from) == FP8C_OK, "%s: %s", name,
                  fp8c_context_message(r->ctx));
}

static void read_variable(running *r, const char *name, float *to)
{
    const int at = fp8c_program_find_variable(r->p, name);
    ck_assert_msg(fp8c_program_read(r->p, at, to) == FP8C_OK, "%s: %s", name,
                  fp8c_context_message(r->ctx));
}

static void *port(running *r, fp8c_side side, const char *name)
{
    const int at = fp8c_program_find_port(r->p, r->step, side, name);
    void *data = fp8c_program_buffer(r->p, r->step, side, at);
    ck_assert_msg(data != NULL, "no port %s", name);
    return data;
}

static float step(running *r)
{
    ck_assert_msg(fp8c_program_run(r->p, r->step) == FP8C_OK && fp8c_program_wait(r->p) == FP8C_OK,
                  "%s", fp8c_context_message(r->ctx));
    return *(float *)port(r, FP8C_OUTPUT, "loss");
}

/* Within `most` of what double code gives. */
static void near(const char *what, const char *target, double is, double want, double most)
{
    ck_assert_msg(fabs(is - want) <= most, "%s on %s: %.9g, not %.9g", what, target, is, want);
}

/* ---- cross-entropy of large logits ---- */

enum { ROWS_CE = 3, MOST_CLASSES = 300 };

/* The mean loss, and the gradients of the logits. */
static double cross_entropy(const float *x, const int32_t *t, int classes, double *dx)
{
    double loss = 0;
    for (int r = 0; r < ROWS_CE; r++, x += classes, dx += classes) {
        double top = -INFINITY, sum = 0;
        for (int i = 0; i < classes; i++)
            top = fmax(top, (double)x[i]);
        for (int i = 0; i < classes; i++)
            sum += exp((double)x[i] - top);
        loss += (top - (double)x[t[r]] + log(sum)) / ROWS_CE;
        for (int i = 0; i < classes; i++)
            dx[i] = (exp((double)x[i] - top) / sum - (i == t[r])) / ROWS_CE;
    }
    return loss;
}

static void check_cross_entropy(const char *target, int classes, float shift)
{
    static float x[ROWS_CE * MOST_CLASSES], dx[ROWS_CE * MOST_CLASSES];
    static double want[ROWS_CE * MOST_CLASSES];
    char text[512], what[64];
    snprintf(what, sizeof what, "cross_entropy of %d logits near %g", classes, (double)shift);
    snprintf(text, sizeof text,
             "module m\nparam x: f32[%d, %d] zeros\n"
             "func forward(%%t: i32[%d]) -> (%%loss: f32[]) {\n  return cross_entropy(x, %%t)\n}\n",
             ROWS_CE, classes, ROWS_CE);
    running r = begin(text, target);
    int32_t *t = port(&r, FP8C_INPUT, "t");
    for (int i = 0; i < ROWS_CE * classes; i++)
        x[i] = shift + 0.37f * (float)(i * 29 % 31 - 15);
    for (int i = 0; i < ROWS_CE; i++)
        t[i] = (5 * i + 1) % classes;
    const double loss = cross_entropy(x, t, classes, want);
    write_variable(&r, "x", x);
    near(what, target, (double)step(&r), loss, 1e-6);
    read_variable(&r, "grad.x", dx);
    for (int i = 0; i < ROWS_CE * classes; i++)
        near(what, target, (double)dx[i] * ROWS_CE, want[i] * ROWS_CE, 1e-6);
    end(&r);
}

START_TEST(large_logits)
{
    static const float shifts[] = {0, 1e3f, -1e3f, 1e4f, -1e30f};
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        check_cross_entropy(targets[_i], 3, shifts[i]);
        check_cross_entropy(targets[_i], MOST_CLASSES, shifts[i]);
    }
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    if (getenv("FP8C_TEST_PEER")) /* where there is no LLVM */
        targets[1] = getenv("FP8C_TEST_PEER");
    Suite *s = suite_create("ops");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, large_logits, 0, N_TARGETS);
    suite_add_tcase(s, t);
    return s;
}
