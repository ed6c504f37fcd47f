/* For tests of fp8c_program_carry: a model whose linears share an operand, programs of it, their
 * scales and histories, and calls that carry or are refused. */
#ifndef TEST_CARRY_H
#define TEST_CARRY_H

#include "tests/shared/api/bounds.h"
#include "tests/shared/api/cli.h"

/* q, k and v share x, and the head's weight is the embedding. */
static const char net[] __attribute__((unused)) =
    "module net\n"
    "dim T = 16\n"
    "param wte: f32[16, 32] normal(0.5)\n"
    "param q: f32[32, 32] normal(0.2)\n"
    "param k: f32[32, 32] normal(0.3)\n"
    "param v: f32[32, 32] normal(0.1)\n"
    "param fc: f32[32, 32] normal(0.2)\n"
    "func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %h = add(mul(linear(%x, q), tanh(linear(%x, k))), linear(%x, v))\n"
    "  %y = linear(gelu(%h) {approximate = \"tanh\"}, fc)\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n";
/* Operands with an amax history. The five linears have 15, but q, k and v share one operand x. */
enum { ROWS_OF_NET = 16, OPERANDS = 13, MOST_OPERANDS = 32, MOST_HISTORY = 1024 };

static fp8c_context *ctx;

static inline void setup(void)
{
    f8_cli_setup();
    ctx = new_context();
}

static inline void teardown(void)
{
    fp8c_context_destroy(ctx);
    f8_cli_teardown();
}

/* ---- programs ---- */

static inline fp8c_program *start(const char *text, int64_t rows, const char *rule,
                                  const fp8c_compile_options *o)
{
    const fp8c_dim dim = {"T", rows};
    fp8c_program *p = compile_text(ctx, text, &dim, rows > 0, rule, o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    return p;
}

static inline fp8c_program *begin(const char *recipe_text, const char *rule)
{
    const fp8c_compile_options o = recipe(recipe_text);
    return start(net, ROWS_OF_NET, rule, &o);
}

static inline void run(fp8c_program *p, const char *name)
{
    ck_assert_msg(fp8c_program_run(p, fp8c_program_function(p, name)) == FP8C_OK, "%s: %s", name,
                  fp8c_context_message(ctx));
}

static inline float micro_step(fp8c_program *p, const char *name, int shift)
{
    const int step = fp8c_program_function(p, name);
    fp8c_port port;
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(fp8c_program_port(p, step, FP8C_INPUT, k, &port), FP8C_OK);
        int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT, k);
        for (int i = 0; i < port.type.dim[0]; i++)
            ids[i] = (3 * i + 5 * k + shift * (i + 1)) % V;
    }
    run(p, name);
    return *(float *)fp8c_program_buffer(p, step, FP8C_OUTPUT,
                                         fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss"));
}

static inline void train(fp8c_program *p, int steps)
{
    for (int i = 0; i < steps; i++) {
        micro_step(p, "micro_step", i);
        micro_step(p, "micro_step", i + 7);
        run(p, "update");
    }
}

/* ---- variables ---- */

typedef struct values {
    fp8c_type type;
    float at[MOST_OPERANDS * MOST_HISTORY];
} values;

static inline values *read_values(fp8c_program *p, const char *name)
{
    fp8c_variable v;
    values *out = malloc(sizeof *out);
    const int i = fp8c_program_find_variable(p, name);
    ck_assert_msg(fp8c_program_variable(p, i, &v) == FP8C_OK, "no %s", name);
    ck_assert(fp8c_type_bytes(&v.type) <= (int64_t)sizeof out->at);
    out->type = v.type;
    ck_assert_int_eq(fp8c_program_read(p, i, out->at), FP8C_OK);
    return out;
}

static inline void write_values(fp8c_program *p, const char *name, const values *from)
{
    ck_assert_int_eq(fp8c_program_write(p, fp8c_program_find_variable(p, name), from->at), FP8C_OK);
}

static inline int64_t element(fp8c_program *p, const char *state, const char *name)
{
    const int variable = fp8c_program_find_variable(p, state);
    const char *its;
    for (int64_t i = 0; (its = fp8c_program_element(p, variable, i, 0)); i++)
        if (!strcmp(its, name))
            return i;
    return -1;
}

static inline float scale_of(fp8c_program *p, const char *name)
{
    values *all = read_values(p, "fp8.scale");
    const int64_t i = element(p, "fp8.scale", name);
    ck_assert_msg(i >= 0, "no %s", name);
    const float scale = all->at[i];
    free(all);
    return scale;
}

/* The whole history of an operand; its length. */
static inline int64_t history_of(fp8c_program *p, const char *name, float *row)
{
    values *all = read_values(p, "fp8.amax_history");
    const int64_t i = element(p, "fp8.amax_history", name), columns = all->type.dim[1];
    ck_assert_msg(i >= 0, "no %s", name);
    memcpy(row, all->at + i * columns, (size_t)columns * sizeof *row);
    free(all);
    return columns;
}

static inline void write_history(fp8c_program *p, const char *name, const float *row, int64_t n)
{
    values *all = read_values(p, "fp8.amax_history");
    const int64_t i = element(p, "fp8.amax_history", name);
    ck_assert_msg(i >= 0, "no %s", name);
    memcpy(all->at + i * all->type.dim[1], row, (size_t)n * sizeof *row);
    write_values(p, "fp8.amax_history", all);
    free(all);
}

static inline bool is_state_of_scales(const char *name)
{
    return !strncmp(name, "fp8.", 4);
}

/* Everything but the states of scales. */
static inline void copy_training(fp8c_program *to, fp8c_program *from)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(from, i, &v) == FP8C_OK; i++) {
        const int own = fp8c_program_find_variable(to, v.name);
        if (is_state_of_scales(v.name) || own < 0)
            continue;
        void *bytes = malloc((size_t)fp8c_type_bytes(&v.type));
        ck_assert_int_eq(fp8c_program_read(from, i, bytes), FP8C_OK);
        ck_assert_int_eq(fp8c_program_write(to, own, bytes), FP8C_OK);
        free(bytes);
    }
}

/* of_scales: only states of scales; a pair keeps no codes of weights. */
static inline void same_variables(fp8c_program *p, fp8c_program *q, bool of_scales)
{
    fp8c_variable v, w;
    int n = 0;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++) {
        if (of_scales && (!is_state_of_scales(v.name) || !strncmp(v.name, "fp8.codes.", 10)))
            continue;
        const int k = fp8c_program_find_variable(q, v.name);
        ck_assert_int_eq(fp8c_program_variable(q, k, &w), FP8C_OK);
        const size_t bytes = (size_t)fp8c_type_bytes(&v.type);
        void *a = malloc(bytes), *b = malloc(bytes);
        ck_assert_int_eq(fp8c_program_read(p, i, a), FP8C_OK);
        ck_assert_int_eq(fp8c_program_read(q, k, b), FP8C_OK);
        ck_assert_msg(!memcmp(a, b, bytes), "%s differs", v.name);
        free(a);
        free(b);
        n++;
    }
    ck_assert_int_ge(n, 3);
}

static inline void carry(fp8c_program *to, const fp8c_program *from, int64_t carried,
                         int64_t missing, int64_t left)
{
    fp8c_carried c = {.struct_size = sizeof c};
    ck_assert_msg(fp8c_program_carry(to, from, &c) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_msg(c.carried == carried && c.missing == missing && c.left == left,
                  "carried %d, missing %d, left %d", (int)c.carried, (int)c.missing, (int)c.left);
}

static inline void refused(fp8c_program *to, const fp8c_program *from, const char *words)
{
    fp8c_carried c = {.struct_size = sizeof c, .carried = 77};
    ck_assert_int_eq(fp8c_program_carry(to, from, &c), FP8C_ERR_INPUT);
    said(ctx, words);
    ck_assert_int_eq(c.carried, 77);
}

#endif
