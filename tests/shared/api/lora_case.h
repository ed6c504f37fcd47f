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

#endif
