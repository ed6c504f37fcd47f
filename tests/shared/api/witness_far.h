/* A linear whose tensors lie far from 1, under the witness, for tests on any target. */
#ifndef TEST_WITNESS_FAR_H
#define TEST_WITNESS_FAR_H

#include <math.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/witness_case.h"

/* y = x w; the gradient of y is g. */
static const char witness_far_text[] =
    "module far\nparam w: f32[128, 64] normal(1.0)\n"
    "func forward(%x: f32[64, 128], %g: f32[64, 64]) -> (%loss: f32[]) {\n"
    "  return reshape(reduce_sum(mul(linear(%x, w) {name = \"fc\"}, %g)) {axes = [0, 1]}) "
    "{shape = []}\n}\noptimizer adamw {lr = 0.001}\n";

/* About how large x, w and the gradient are. */
static const float witness_far[][3] = {{1e30f, 1e-30f, 1},      {1e-30f, 1e-30f, 1e-30f},
                                       {1e25f, 1e25f, 1e-30f},  {1e19f, 1e17f, 1e-20f},
                                       {1e-38f, 1e30f, 1e-38f}, {1e-20f, 1, 1e38f},
                                       {3e38f, 1e-38f, 1e-30f}, {1, 1, 1}};
enum { WITNESS_FAR = sizeof witness_far / sizeof *witness_far };

/* Rows of zeros, and one that is tiny beside the others; columns of zeros, too. */
static inline void witness_far_fill(float *to, int64_t rows, int64_t columns, float size)
{
    uint32_t state = 7;
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t row = i / columns, column = i % columns;
        state = state * 1664525u + 1013904223u;
        const float x = (float)(int32_t)state * 0x1p-31f * size;
        to[i] = row < 8 || column % 16 == 3 ? 0 : row == 9 ? x * 1e-6f : x;
    }
}

static inline fp8c_program *witness_far_program(fp8c_context *ctx, const char *target,
                                                const char *name)
{
    fp8c_module *m = parse(ctx, witness_far_text);
    fp8c_compile_options o = recipe(name);
    o.target = target;
    o.witness = 1;
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    return p;
}

/* Runs micro_step on tensors of case i. What the witness says is added to `l`. */
static inline void witness_far_run(fp8c_context *ctx, fp8c_program *p, int i, witness_log *l)
{
    static float w[128 * 64];
    const int f = fp8c_program_function(p, "micro_step");
    const int prepare = fp8c_program_function(p, "prepare");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    witness_far_fill(w, 128, 64, witness_far[i][1]);
    ck_assert_int_eq(fp8c_program_write(p, fp8c_program_find_variable(p, "w"), w), FP8C_OK);
    ck_assert(prepare < 0 || fp8c_program_run(p, prepare) == FP8C_OK);
    witness_far_fill(
        fp8c_program_buffer(p, f, FP8C_INPUT, fp8c_program_find_port(p, f, FP8C_INPUT, "x")), 64,
        128, witness_far[i][0]);
    witness_far_fill(
        fp8c_program_buffer(p, f, FP8C_INPUT, fp8c_program_find_port(p, f, FP8C_INPUT, "g")), 64,
        64, witness_far[i][2]);
    ck_assert_msg(fp8c_program_run_witnessed(p, f, 1, witness_note, l) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
}

/* Nothing is called wrong under a recipe; how many values were judged. */
static inline void witness_far_agrees(const char *target, const char *name)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = witness_far_program(ctx, target, name);
    for (int i = 0; i < WITNESS_FAR; i++) {
        witness_log l = witness_new_log();
        witness_far_run(ctx, p, i, &l);
        ck_assert_int_gt(l.n, 4);
        for (int v = 0; v < l.n; v++) {
            const witness_said *s = &l.value[v];
            ck_assert_msg(s->verdict != FP8C_WRONG,
                          "%s, x %g, w %g, dy %g: '%s': %d wrong, element %d: %.9g, not %.9g +- %g",
                          name, (double)witness_far[i][0], (double)witness_far[i][1],
                          (double)witness_far[i][2], s->value, (int)s->wrong, (int)s->at, s->got,
                          s->want, s->allowed);
        }
        free(l.value);
    }
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}

#endif
