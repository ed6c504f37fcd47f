/* For tests of the public API: a small model, calls that must succeed, and the whole life of a
 * program on an allocator that counts and fails. Includes fp8c.h alone; programs that include this
 * link the shared library, as an embedder does. */
#ifndef TEST_API_H
#define TEST_API_H

#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c_diagnose.h"

enum { TIMEOUT = 900, V = 16, C = 32, ROWS = 8 };

/* A language model without attention: quick to compile, and has every entry point. */
static const char model[] __attribute__((unused)) =
    "module tiny\n"
    "param wte: f32[16, 32] normal(0.5)\n"
    "param fc.weight: f32[32, 32] normal(0.1)\n"
    "param fc.bias: f32[32] zeros\n"
    "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[]) {\n"
    "  return cross_entropy(linear(gelu(linear(embedding(wte, %tokens), fc.weight, fc.bias)) "
    "{approximate = \"tanh\"}, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n"
    "recipe \"fc\" = auto\n"
    "recipe \"head\" = bf16\n";

static inline fp8c_context *new_context(void)
{
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    ck_assert_str_eq(fp8c_context_message(ctx), "");
    return ctx;
}

static inline fp8c_module *parse(fp8c_context *ctx, const char *text)
{
    fp8c_module *m;
    ck_assert_msg(fp8c_module_parse(ctx, text, strlen(text), "tiny.f8", NULL, 0, &m) == FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    return m;
}

static inline fp8c_program *compile(fp8c_context *ctx, const fp8c_module *m,
                                    const fp8c_compile_options *o)
{
    fp8c_program *p;
    ck_assert_msg(fp8c_compile(m, o, &p) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return p;
}

static inline fp8c_compile_options recipe(const char *name)
{
    return (fp8c_compile_options){
        .struct_size = sizeof(fp8c_compile_options), .recipe = name, .threads = 1};
}

static inline void said(const fp8c_context *ctx, const char *words)
{
    ck_assert_msg(strstr(fp8c_context_message(ctx), words) != NULL, "'%s' does not say '%s'",
                  fp8c_context_message(ctx), words);
}

/* Fill tokens and targets of micro_step; false when a port is missing. */
static inline void fill_batch(fp8c_program *p, int step)
{
    static const char *const names[] = {"tokens", "targets"};
    for (int k = 0; k < 2; k++) {
        int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT,
                                           fp8c_program_find_port(p, step, FP8C_INPUT, names[k]));
        ck_assert_ptr_nonnull(ids);
        for (int i = 0; i < ROWS; i++)
            ids[i] = (3 * i + 5 * k) % V;
    }
}

static inline float train_step(fp8c_program *p)
{
    const int step = fp8c_program_function(p, "micro_step");
    fill_batch(p, step);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update")), FP8C_OK);
    const int loss = fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss");
    return *(float *)fp8c_program_buffer(p, step, FP8C_OUTPUT, loss);
}

typedef struct printed {
    char text[8192];
    size_t n;
} printed;

static inline int collect(void *user, const char *text, size_t size)
{
    printed *p = user;
    if (p->n + size >= sizeof p->text)
        return 1;
    memcpy(p->text + p->n, text, size);
    p->n += size;
    p->text[p->n] = 0;
    return 0;
}

static inline int refuse(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    return 1;
}

/* ---- an allocator that counts ---- */

/* Counts what is out, and fails the `fail_at`th allocation; -1: all. Threads that compile call it
 * too. */
typedef struct counting {
    long n, fail_at, live;
    size_t bytes, most; /* live bytes; the most of them at once since the caller last set `most` */
} counting;

static inline void *count_alloc(void *user, size_t size, size_t align)
{
    counting *c = user;
    if (__atomic_add_fetch(&c->n, 1, __ATOMIC_SEQ_CST) == c->fail_at || c->fail_at == -1)
        return NULL;
    const size_t a = align < sizeof(void *) ? sizeof(void *) : align;
    void *p = aligned_alloc(a, (size + a - 1) / a * a);
    if (p) {
        memset(p, 0xa5, size); /* nobody may count on zeros */
        __atomic_add_fetch(&c->live, 1, __ATOMIC_SEQ_CST);
        const size_t now = __atomic_add_fetch(&c->bytes, size, __ATOMIC_SEQ_CST);
        size_t most = __atomic_load_n(&c->most, __ATOMIC_SEQ_CST);
        while (most < now && !__atomic_compare_exchange_n(&c->most, &most, now, false,
                                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            ;
    }
    return p;
}

static inline void count_free(void *user, void *ptr, size_t size)
{
    counting *c = user;
    if (ptr) {
        __atomic_sub_fetch(&c->live, 1, __ATOMIC_SEQ_CST);
        __atomic_sub_fetch(&c->bytes, size, __ATOMIC_SEQ_CST);
    }
    free(ptr);
}

/* The options of a context that allocates by it. */
static inline fp8c_context_options counted_options(counting *c)
{
    return (fp8c_context_options){.struct_size = sizeof(fp8c_context_options),
                                  .alloc = count_alloc,
                                  .free = count_free,
                                  .allocator_user = c};
}

/* Parse, compile, initialize, one step, destroy; the first failure, and the context's message in
 * `room` bytes. */
static inline fp8c_status whole_life(counting *c, const fp8c_compile_options *options,
                                     char *message, size_t room)
{
    const fp8c_context_options o = counted_options(c);
    fp8c_context *ctx;
    fp8c_module *m = NULL;
    fp8c_program *p = NULL;
    fp8c_status status = fp8c_context_create(&o, &ctx);
    snprintf(message, room, "context");
    if (status != FP8C_OK)
        return status;
    status = fp8c_module_parse(ctx, model, strlen(model), "tiny.f8", NULL, 0, &m);
    if (status == FP8C_OK)
        status = fp8c_compile(m, options, &p);
    if (status == FP8C_OK)
        status = fp8c_program_initialize(p, 1);
    if (status == FP8C_OK) {
        const int step = fp8c_program_function(p, "micro_step");
        fill_batch(p, step);
        status = fp8c_program_run(p, step);
    }
    snprintf(message, room, "%s", fp8c_context_message(ctx));
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    return status;
}

/* A life as above. */
typedef fp8c_status life_fn(const void *user, counting *c, char *message, size_t room);

/* Fails one allocation of a life after another: `most` of them, the first and the last among them;
 * 0: every one. Each time the life says that there is no memory, and nothing leaks. */
static inline void fail_each_allocation(life_fn *live, const void *user, long most)
{
    char message[4096];
    counting all = {0};
    ck_assert_msg(live(user, &all, message, sizeof message) == FP8C_OK, "%s", message);
    ck_assert(all.live == 0 && all.bytes == 0 && all.n > 5);
    const long n = most && most < all.n ? most : all.n;
    for (long i = 0; i < n; i++) {
        counting c = {.fail_at = 1 + (all.n - 1) * i / (n - 1)};
        const fp8c_status status = live(user, &c, message, sizeof message);
        /* Which thread compiles what decides how much each asks for. */
        if (status == FP8C_OK && c.n < c.fail_at)
            continue;
        ck_assert_msg(status == FP8C_ERR_MEMORY, "allocation %ld of %ld: status %d: %s", c.fail_at,
                      all.n, (int)status, message);
        ck_assert_msg(*message, "allocation %ld: no message", c.fail_at);
        ck_assert_msg(c.live == 0 && c.bytes == 0, "allocation %ld leaks %ld", c.fail_at, c.live);
    }
}

#endif
