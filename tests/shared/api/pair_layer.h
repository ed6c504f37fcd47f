/* For tests of the pair: a layer with two float inputs and four results, and a program's life. */
#ifndef TEST_PAIR_LAYER_H
#define TEST_PAIR_LAYER_H

#include "tests/shared/api/pair_case.h"

static const char *const recipes[] = {"f32", "bf16", "delayed", "current", "rowwise", "block",
                                      "mxfp8"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Two results, an unused one, an integer one; x and w are inputs. Sizes suit every recipe. */
#define BODY                                                                                       \
    "  %n = rmsnorm(%x, ln)\n"                                                                     \
    "  %h = gelu(linear(%n, up, up.bias) {name = \"up\"})\n"                                       \
    "  %y = add(%x, linear(%h, down) {name = \"down\"})\n"                                         \
    "  %z = linear(%n, %w) {name = \"side\"}\n"

#define PARAMS                                                                                     \
    "param ln: f32[128] ones\nparam up: f32[128, 256] normal(0.1)\n"                               \
    "param up.bias: f32[256] normal(0.1)\nparam down: f32[256, 128] normal(0.1)\n"

static const char layer[] __attribute__((unused)) =
    "module layer\n" PARAMS
    "func forward(%x: f32[32, 128], %w: f32[128, 128], %ids: i32[32])\n"
    "  -> (%y: f32[32, 128], %z: f32[32, 128], %unused: f32[32, 128], %ids2: i32[32]) {\n" BODY
    "  return %y, %z, mul(%x, %x), add(%ids, 1)\n}\n";

typedef struct setup {
    fp8c_context *ctx;
    fp8c_program *p;
    pair_values in, out;
} setup;

static inline fp8c_program *make(fp8c_context *ctx, const char *text, const fp8c_compile_options *o)
{
    fp8c_module *m = parse(ctx, text);
    fp8c_program *p = compile(ctx, m, o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    return p;
}

static inline fp8c_compile_options pair_options(const char *name)
{
    fp8c_compile_options o = recipe(name);
    o.pair = 1;
    return o;
}

static inline void begin(setup *s, const char *text, const fp8c_compile_options *o)
{
    s->ctx = new_context();
    s->p = make(s->ctx, text, o);
    s->in.n = s->out.n = 0;
}

static inline void end(setup *s)
{
    pair_end(&s->in);
    pair_end(&s->out);
    fp8c_program_destroy(s->p);
    fp8c_context_destroy(s->ctx);
}

static inline void refused(fp8c_context *ctx, const char *text, const fp8c_compile_options *o,
                    fp8c_status status, const char *words)
{
    fp8c_module *m = parse(ctx, text);
    fp8c_program *p;
    ck_assert_int_eq(fp8c_compile(m, o, &p), status);
    said(ctx, words);
    fp8c_module_destroy(m);
}

#endif
