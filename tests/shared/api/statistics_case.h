/* A linear whose sums are exact, so that every target has its bits, in a program that watches all
 * of its values. */
#ifndef TEST_STATISTICS_CASE_H
#define TEST_STATISTICS_CASE_H

#include <math.h>

#include "tests/shared/api/api.h"

/* Scales of rows and blocks are powers of two, so that a GEMM may take them in any order. */
static const char *const recipes[] = {
    "bf16", "delayed", "current", "rowwise {pow2 = true}", "block {pow2 = true}", "mxfp8", "fake"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

enum { M = 80, K = 160, N = 144 };

/* log2 of how much larger x is, and g smaller: the test chooses. */
static int exact_binades;

/* Whether values are -2, 0 and 2 alone. An FP8 GEMM of a Hopper GPU adds products in 14 bits or so
 * (DeepSeek-V3, arXiv 2412.19437, section 3.3.2), where those of more values are not exact. */
static bool exact_coarse;

static const char linear[] =
    "module exact\nparam w: f32[160, 144] zeros\nparam gain: f32[160] ones\n"
    "func forward(%x: f32[2, 40, 160], %g: f32[2, 40, 144]) -> (%loss: "
    "f32[]) {\n"
    "  return reshape(reduce_sum(mul(cast(linear(mul(%x, gain), w) {name = \"fc\"}), %g)) "
    "{axes = [0, 1, 2]}) {shape = []}\n"
    "}\noptimizer adamw {lr = 0.001}\n";

typedef struct exact {
    fp8c_context *ctx;
    fp8c_program *p;
    int f; /* the function that was run */
} exact;

/* Values of three binades and both signs, so that sums of their products are exact. Of x and g the
 * first columns are so small that FP8 loses them; where w meets them it is zero. */
static inline void fill(float *v, int64_t rows, int64_t columns, uint32_t seed, bool is_w,
                        int binades)
{
    for (int64_t i = 0; i < rows * columns; i++) {
        seed = seed * 1664525u + 1013904223u;
        const int draw = (int)(seed >> 24);
        const float x = exact_coarse ? (float)(draw % 3 * 2 - 2) : (float)(draw % 16 - 8) / 4;
        const bool small = i % columns < 4 || (is_w && i / columns < 4);
        v[i] = ldexpf(!small ? x : is_w ? 0 : ldexpf(x, -30), binades);
    }
}

static inline void run_exact(exact *e, const char *target, const char *name, const char *what_if,
                             int no_fuse, bool stats)
{
    fp8c_compile_options o = recipe(name);
    o.target = target;
    o.no_fuse = no_fuse;
    o.stats = stats ? "*" : NULL;
    o.stats_recipe = what_if;
    o.dump = "*";
    e->ctx = new_context();
    fp8c_module *m = parse(e->ctx, linear);
    e->p = compile(e->ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(e->p, 1), FP8C_OK);
    static float w[K * N], ones[K];
    for (int i = 0; i < K; i++)
        ones[i] = 1;
    fill(w, K, N, 1, true, 0);
    const int prepare = fp8c_program_function(e->p, "prepare"),
              update = fp8c_program_function(e->p, "update");
    for (int i = 0; i < 2; i++) { /* the second step has a history of amaxes */
        ck_assert(!i || fp8c_program_run(e->p, update) == FP8C_OK);
        ck_assert_int_eq(fp8c_program_write(e->p, fp8c_program_find_variable(e->p, "w"), w),
                         FP8C_OK);
        ck_assert_int_eq(fp8c_program_write(e->p, fp8c_program_find_variable(e->p, "gain"), ones),
                         FP8C_OK);
        ck_assert(prepare < 0 || fp8c_program_run(e->p, prepare) == FP8C_OK);
        e->f = fp8c_program_function(e->p, "micro_step.dump");
        static const char *const in[] = {"x", "g"};
        for (int k = 0; k < 2; k++)
            fill(fp8c_program_buffer(e->p, e->f, FP8C_INPUT,
                                     fp8c_program_find_port(e->p, e->f, FP8C_INPUT, in[k])),
                 M, k ? N : K, 7 + (uint32_t)k, false, k ? -exact_binades : exact_binades);
        ck_assert_int_eq(fp8c_program_run(e->p, e->f), FP8C_OK);
    }
}

static inline void end_exact(exact *e)
{
    fp8c_program_destroy(e->p);
    fp8c_context_destroy(e->ctx);
}

static inline const void *result(const exact *e, const char *name, fp8c_type *type)
{
    fp8c_port port;
    const int at = fp8c_program_find_port(e->p, e->f, FP8C_OUTPUT, name);
    if (at < 0)
        return NULL;
    ck_assert_int_eq(fp8c_program_port(e->p, e->f, FP8C_OUTPUT, at, &port), FP8C_OK);
    if (type)
        *type = port.type;
    return fp8c_program_buffer(e->p, e->f, FP8C_OUTPUT, at);
}

/* All results of the step that no variable takes. Returns how many there are. */
static inline int same_results(const exact *a, const exact *b, const char *what)
{
    fp8c_port port;
    int n = 0;
    for (int i = 0; fp8c_program_port(a->p, a->f, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        fp8c_type type;
        const void *x = fp8c_program_buffer(a->p, a->f, FP8C_OUTPUT, i),
                   *y = result(b, port.name, &type);
        if (!x)
            continue;
        ck_assert_msg(y && !memcmp(x, y, (size_t)fp8c_type_bytes(&type)), "%s: %s differs", what,
                      port.name);
        n++;
    }
    return n;
}

#endif
