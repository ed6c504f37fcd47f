/* Two programs of one module for tests: one keeps codes of its weights, the other, with
 * `requantize`, keeps none. Whatever is done to both, they have the same bits. */
#ifndef TEST_CODES_CASE_H
#define TEST_CODES_CASE_H

#include "tests/shared/api/api.h"
#include "tests/shared/api/weight_codes.h"

/* Weights of every kind: of one linear; tied to an embedding; of two linears, one of which has it
 * transposed; under a dropout, which eval does not have; computed from a parameter; and a parameter
 * that is a linear's x. */
static const char codes_text[] __attribute__((unused)) =
    "module codes\n"
    "dim N = 10, C = 48, F = 80, V = 32\n"
    "param wte: f32[V, C] normal(0.5)\n"
    "param up.weight: f32[C, F] normal(0.1)\n"
    "param up.bias: f32[F] zeros\n"
    "param down.weight: f32[F, C] normal(0.1)\n"
    "param twice: f32[C, C] normal(0.2)\n"
    "param dropped: f32[C, C] normal(0.2)\n"
    "param halved: f32[C, C] normal(0.2)\n"
    "param asked: f32[N, C] normal(0.3)\n"
    "func forward(%tokens: i32[N], %targets: i32[N], %seed: i32[]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %h = add(%x, linear(gelu(linear(%x, up.weight, up.bias)), down.weight))\n"
    "  %y = gelu(linear(%h, twice) {name = \"one\"})\n"
    "  %z = gelu(linear(%y, twice) {name = \"two\", transpose_b = true})\n"
    "  %d = gelu(linear(%z, dropout(dropped, %seed) {p = 0.25}) {name = \"drop\"})\n"
    "  %c = add(%h, linear(%d, mul(halved, 0.5)) {name = \"half\"})\n"
    "  %a = add(%c, linear(asked, twice) {name = \"ask\"})\n"
    "  return cross_entropy(linear(%a, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.02, weight_decay = 0.1, clip = 1}\n";

typedef struct codes_twins {
    fp8c_context *ctx;
    fp8c_program *p[2]; /* with codes; with `requantize` */
} codes_twins;

typedef struct codes_setup {
    const char *text; /* NULL: codes_text */
    const char *rules[4];
    const fp8c_dim *dims;
    size_t n_dims;
    fp8c_compile_options options; /* struct_size is set here */
} codes_setup;

static inline fp8c_program *codes_compile(fp8c_context *ctx, const codes_setup *s, int requantize)
{
    const char *text = s->text ? s->text : codes_text;
    fp8c_module *m;
    ck_assert_msg(fp8c_module_parse(ctx, text, strlen(text), "codes.f8", s->dims, s->n_dims, &m) ==
                      FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    for (int i = 0; i < 4 && s->rules[i]; i++)
        ck_assert_msg(fp8c_module_rule(m, s->rules[i], NULL) == FP8C_OK, "%s: %s", s->rules[i],
                      fp8c_context_message(ctx));
    fp8c_compile_options o = s->options;
    o.struct_size = sizeof o;
    o.requantize = requantize;
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    return p;
}

static inline void codes_must(const codes_twins *t, fp8c_status status, const char *what)
{
    ck_assert_msg(status == FP8C_OK, "%s: %s", what, fp8c_context_message(t->ctx));
}

static inline codes_twins codes_open(const codes_setup *s)
{
    codes_twins t = {.ctx = new_context()};
    for (int i = 0; i < 2; i++) {
        t.p[i] = codes_compile(t.ctx, s, i);
        codes_must(&t, fp8c_program_initialize(t.p[i], 1), "initialize");
    }
    return t;
}

static inline void codes_close(codes_twins *t)
{
    for (int i = 0; i < 2; i++)
        fp8c_program_destroy(t->p[i]);
    fp8c_context_destroy(t->ctx);
}

/* ---- values ---- */

/* How many variables hold codes or their scales. */
static inline int codes_kept(fp8c_program *p)
{
    fp8c_port port;
    const int prepare = fp8c_program_function(p, "prepare");
    int n = 0;
    for (int i = 0; fp8c_program_port(p, prepare, FP8C_OUTPUT, i, &port) == FP8C_OK; i++)
        n += is_weight_codes(port.name);
    return n;
}

/* A variable's bytes, which the caller frees. Unlike `data`, this gives nobody its memory. */
static inline void *codes_read(const codes_twins *t, fp8c_program *p, const char *name,
                               size_t *bytes)
{
    fp8c_variable v;
    const int i = fp8c_program_find_variable(p, name);
    ck_assert_msg(fp8c_program_variable(p, i, &v) == FP8C_OK, "no variable %s", name);
    *bytes = (size_t)fp8c_type_bytes(&v.type);
    void *value = malloc(*bytes + 1);
    codes_must(t, fp8c_program_read(p, i, value), name);
    return value;
}

/* All variables of the second are those of the first, but for codes. */
static inline void codes_same_variables(const codes_twins *t, const char *what)
{
    fp8c_variable v;
    int n = 0;
    for (; fp8c_program_variable(t->p[1], n, &v) == FP8C_OK; n++) {
        size_t bytes[2];
        void *value[2];
        for (int i = 0; i < 2; i++)
            value[i] = codes_read(t, t->p[i], v.name, &bytes[i]);
        ck_assert_msg(bytes[0] == bytes[1] && !memcmp(value[0], value[1], bytes[0]),
                      "%s: %s differs", what, v.name);
        free(value[0]);
        free(value[1]);
    }
    ck_assert_int_gt(n, 5);
}

/* All results of a function that are no variables. */
static inline void codes_same_results(const codes_twins *t, const char *function, const char *what)
{
    const int f = fp8c_program_function(t->p[1], function);
    fp8c_port port;
    int n = 0;
    for (int i = 0; fp8c_program_port(t->p[1], f, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        if (port.variable >= 0)
            continue;
        const int g = fp8c_program_function(t->p[0], function);
        const float *b = fp8c_program_buffer(t->p[1], f, FP8C_OUTPUT, i),
                    *a = fp8c_program_buffer(
                        t->p[0], g, FP8C_OUTPUT,
                        fp8c_program_find_port(t->p[0], g, FP8C_OUTPUT, port.name));
        ck_assert_msg(a && b, "%s: %s has no %s", what, function, port.name);
        ck_assert_msg(!memcmp(a, b, (size_t)fp8c_type_bytes(&port.type)),
                      "%s: %s of %s: %.9g with codes, %.9g without", what, port.name, function,
                      (double)*a, (double)*b);
        n++;
    }
    ck_assert_int_gt(n, 0);
}

/* Codes that are kept are those that `prepare` makes. Returns how many variables hold them. */
static inline int codes_are_right(const codes_twins *t, const char *what)
{
    fp8c_variable v;
    int n = 0;
    for (int i = 0; fp8c_program_variable(t->p[0], i, &v) == FP8C_OK; i++) {
        size_t bytes;
        if (!is_weight_codes(v.name))
            continue;
        unsigned char *before = codes_read(t, t->p[0], v.name, &bytes);
        codes_must(t, fp8c_program_run(t->p[0], fp8c_program_function(t->p[0], "prepare")), what);
        unsigned char *after = codes_read(t, t->p[0], v.name, &bytes);
        ck_assert_msg(!memcmp(before, after, bytes), "%s: prepare changes %s", what, v.name);
        free(before);
        free(after);
        n++;
    }
    return n;
}

/* ---- runs ---- */

/* Fills the ids that a function reads: by number, below the vocabulary. */
static inline void codes_fill(fp8c_program *p, const char *function, int vocabulary, int number)
{
    const int f = fp8c_program_function(p, function);
    fp8c_port port;
    for (int i = 0; fp8c_program_port(p, f, FP8C_INPUT, i, &port) == FP8C_OK; i++) {
        if (port.variable >= 0)
            continue;
        int32_t *ids = fp8c_program_buffer(p, f, FP8C_INPUT, i);
        ck_assert_ptr_nonnull(ids);
        for (int64_t k = 0; k < fp8c_type_bytes(&port.type) / 4; k++)
            ids[k] =
                (int32_t)((k * k * 5 + 3 * k * number + 7 * (*port.name) + number) % vocabulary);
    }
}

static inline void codes_run(const codes_twins *t, const char *function)
{
    for (int i = 0; i < 2; i++)
        codes_must(t, fp8c_program_run(t->p[i], fp8c_program_function(t->p[i], function)),
                   function);
}

/* eval or micro_step of both, on batch `number`: equal results. */
static inline void codes_step(const codes_twins *t, const char *function, int vocabulary,
                              int number, const char *what)
{
    for (int i = 0; i < 2; i++)
        codes_fill(t->p[i], function, vocabulary, number);
    codes_run(t, function);
    codes_same_results(t, function, what);
}

/* Trains both twins: updates of 1, 2, 3, 1, ... micro-steps, with an eval before and after each.
 * Checks after each call that their bits are equal. Returns how many variables hold codes. */
static inline int codes_train(const codes_twins *t, int vocabulary, int updates, const char *what)
{
    int kept = 0, number = 0;
    for (int update = 0; update < updates; update++) {
        codes_step(t, "eval", vocabulary, 100, what);
        for (int k = 0; k < 1 + update % 3; k++)
            codes_step(t, "micro_step", vocabulary, number++, what);
        codes_same_variables(t, what);
        codes_run(t, "update");
        codes_same_results(t, "update", what);
        kept = codes_are_right(t, what);
        codes_same_variables(t, what);
    }
    codes_step(t, "eval", vocabulary, 100, what);
    return kept;
}

#endif
