/* LoRA for tests: frozen linears, one of each layout, and beside each two small linears that are
 * trained. */
#ifndef TEST_LORA_CASE_H
#define TEST_LORA_CASE_H

#include "tests/shared/api/api.h"

#define LORA_BASE "base.*,wte"

static const char lora_text[] __attribute__((unused)) =
    "module lora\n"
    "dim N = 32, C = 96, F = 160, R = 16, V = 32\n"
    "param wte: f32[V, C] normal(0.5)\n"
    "param base.up: f32[C, F] normal(0.1)\n"
    "param base.down: f32[C, F] normal(0.1)\n"
    "param lora.up.a: f32[C, R] normal(0.1)\n"
    "param lora.up.b: f32[R, F] normal(0.1)\n"
    "param lora.down.a: f32[F, R] normal(0.1)\n"
    "param lora.down.b: f32[R, C] normal(0.1)\n"
    "param lora.bias: f32[F] zeros\n"
    "func forward(%tokens: i32[N], %targets: i32[N]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %u = add(linear(%x, base.up), linear(linear(%x, lora.up.a), lora.up.b, lora.bias))\n"
    "  %h = gelu(%u)\n"
    "  %d = linear(%h, base.down) {transpose_b = true}\n"
    "  %y = add(%x, add(%d, linear(linear(%h, lora.down.a), lora.down.b)))\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.01, weight_decay = 0.1, clip = 1}\n"
    "recipe \"lora.*\" = bf16\n"
    "recipe \"head\" = bf16\n";

/* The same text, but the base is declared bf16. */
static inline const char *lora_text_bf16(void)
{
    static _Thread_local char text[sizeof lora_text + 8];
    snprintf(text, sizeof text, "%s", lora_text);
    for (char *at = text; (at = strstr(at, "param base.")); at++) {
        char *f32 = strstr(at, "f32[");
        memmove(f32 + 1, f32, strlen(f32) + 1);
        memcpy(f32, "bf16", 4);
    }
    return text;
}

/* A variable's bytes, which the caller frees. NULL: there is no such variable. */
static inline void *lora_read(fp8c_program *p, const char *name, size_t *bytes)
{
    fp8c_variable v;
    const int i = fp8c_program_find_variable(p, name);
    if (i < 0)
        return NULL;
    ck_assert_int_eq(fp8c_program_variable(p, i, &v), FP8C_OK);
    *bytes = (size_t)fp8c_type_bytes(&v.type);
    void *value = malloc(*bytes + 1);
    ck_assert_int_eq(fp8c_program_read(p, i, value), FP8C_OK);
    return value;
}

/* Whether both programs have the variable, with the same bytes. */
static inline bool lora_same(fp8c_program *a, fp8c_program *b, const char *name)
{
    size_t n[2] = {0, 0};
    void *x = lora_read(a, name, &n[0]), *y = lora_read(b, name, &n[1]);
    const bool same = x && y && n[0] == n[1] && !memcmp(x, y, n[0]);
    free(x);
    free(y);
    return same;
}

/* Runs micro_step or eval on batch `number`. Gives the loss. */
static inline float lora_run(fp8c_program *p, const char *function, int number)
{
    static const char *const names[] = {"tokens", "targets"};
    const int f = fp8c_program_function(p, function);
    fp8c_port port;
    for (int k = 0; k < 2; k++) {
        const int at = fp8c_program_find_port(p, f, FP8C_INPUT, names[k]);
        ck_assert_int_eq(fp8c_program_port(p, f, FP8C_INPUT, at, &port), FP8C_OK);
        int32_t *ids = fp8c_program_buffer(p, f, FP8C_INPUT, at);
        for (int64_t i = 0; i < fp8c_type_bytes(&port.type) / 4; i++)
            ids[i] = (int32_t)((i * i * 5 + 3 * i * number + 7 * k + number) % 32);
    }
    ck_assert_int_eq(fp8c_program_run(p, f), FP8C_OK);
    return *(float *)fp8c_program_buffer(p, f, FP8C_OUTPUT,
                                         fp8c_program_find_port(p, f, FP8C_OUTPUT, "loss"));
}

static inline float lora_update(fp8c_program *p)
{
    const int f = fp8c_program_function(p, "update");
    ck_assert_int_eq(fp8c_program_run(p, f), FP8C_OK);
    return *(float *)fp8c_program_buffer(p, f, FP8C_OUTPUT,
                                         fp8c_program_find_port(p, f, FP8C_OUTPUT, "grad_norm"));
}

static const char *const lora_trained[]
    __attribute__((unused)) = {"lora.up.a", "lora.up.b", "lora.down.a", "lora.down.b", "lora.bias"};
enum { LORA_TRAINED = sizeof lora_trained / sizeof *lora_trained, LORA_UPDATES = 3 };

/* A program of the text with the base frozen. */
static inline fp8c_program *lora_open(fp8c_context *ctx, fp8c_compile_options o)
{
    o.struct_size = sizeof o;
    o.frozen = LORA_BASE;
    o.threads = o.threads ? o.threads : 1;
    fp8c_module *m = parse(ctx, lora_text);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 5), FP8C_OK);
    return p;
}

/* Trains both alike, and compares bits after each call. */
static inline void lora_train_both(fp8c_program *p[2], const char *what)
{
    float value[2];
    for (int u = 0; u < LORA_UPDATES; u++) {
        for (int k = 0; k < 1 + u % 2; k++) {
            for (int i = 0; i < 2; i++)
                value[i] = lora_run(p[i], "micro_step", 2 * u + k);
            ck_assert_msg(value[0] == value[1], "%s, update %d: losses %a and %a", what, u,
                          (double)value[0], (double)value[1]);
        }
        for (int i = 0; i < 2; i++)
            value[i] = lora_update(p[i]);
        ck_assert_msg(value[0] == value[1] && value[0] > 0, "%s, update %d: norms %a and %a", what,
                      u, (double)value[0], (double)value[1]);
        for (int k = 0; k < LORA_TRAINED; k++)
            ck_assert_msg(lora_same(p[0], p[1], lora_trained[k]), "%s, update %d: %s", what, u,
                          lora_trained[k]);
    }
    ck_assert(lora_run(p[0], "eval", 9) == lora_run(p[1], "eval", 9));
}

#endif
