/* Initial values of variables: see copy.h.
 *
 * Element pairs (2i, 2i+1) come from the two 32-bit halves of splitmix64(key + i). So the stream is
 * counter-based, and any thread can make any block of it. Normal values are by Box and Muller
 * (1958), with the log, sin and cos of our scalar functions, so that every machine starts from the
 * same bits. */
#include "ir/base/hash.h"
#include "ir/num/scalar.h"
#include "runtime/copy.h"

#include <math.h>
#include <string.h>

/* The numbers of f8_init_kind in ir/ir.h, which the plan carries. */
enum { INIT_ZEROS, INIT_ONES, INIT_CONST, INIT_NORMAL, INIT_UNIFORM };

enum { BLOCK = 256 };

/* The elements [first, end) of the whole are made; `to` is the place of the first. */
typedef struct init_job {
    const f8_plan_var *var;
    uint64_t key;
    int64_t first, end;
    uint8_t *to;
} init_job;

static uint64_t splitmix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* In (0, 1): 24 bits and a half, so that log never sees 0. */
static float unit(uint32_t word)
{
    return ((float)(word >> 8) + 0.5f) * 0x1p-24f;
}

static void eval(f8_sfn fn, float *x, size_t n)
{
    uint32_t bits[BLOCK];
    memcpy(bits, x, n * sizeof *x);
    f8_scalar_eval(fn, bits, bits, n);
    memcpy(x, bits, n * sizeof *x);
}

/* BLOCK values from pair number `pair` on. */
static void random_block(const init_job *j, int64_t pair, float *out)
{
    enum { HALF = BLOCK / 2 };
    float radius[HALF], c[HALF], s[HALF];
    const float a = (float)j->var->init_arg;
    for (int i = 0; i < HALF; i++) {
        const uint64_t w = splitmix64(j->key + (uint64_t)(pair + i));
        radius[i] = unit((uint32_t)w);
        c[i] = unit((uint32_t)(w >> 32));
    }
    if (j->var->init == INIT_UNIFORM) {
        for (int i = 0; i < HALF; i++) {
            out[2 * i] = a * (2.0f * radius[i] - 1.0f);
            out[2 * i + 1] = a * (2.0f * c[i] - 1.0f);
        }
        return;
    }
    eval(F8_FN_LOG, radius, HALF);
    for (int i = 0; i < HALF; i++) {
        radius[i] = a * sqrtf(-2.0f * radius[i]);
        c[i] *= 6.28318530717958647692f;
    }
    memcpy(s, c, sizeof s);
    eval(F8_FN_COS, c, HALF);
    eval(F8_FN_SIN, s, HALF);
    for (int i = 0; i < HALF; i++) {
        out[2 * i] = radius[i] * c[i];
        out[2 * i + 1] = radius[i] * s[i];
    }
}

static void init_tasks(void *user, int thread, int64_t begin, int64_t end)
{
    (void)thread;
    const init_job *j = user;
    const size_t size = f8_dtype_size(j->var->type.dtype);
    const int64_t before = j->first / BLOCK;
    for (int64_t block = before + begin; block < before + end; block++) {
        float value[BLOCK];
        if (j->var->init == INIT_NORMAL || j->var->init == INIT_UNIFORM)
            random_block(j, block * (BLOCK / 2), value);
        else
            for (int i = 0; i < BLOCK; i++)
                value[i] = j->var->init == INIT_ONES ? 1.0f : (float)j->var->init_arg;
        for (int64_t i = 0; i < BLOCK; i++) {
            const int64_t at = block * BLOCK + i;
            if (at < j->first || at >= j->end)
                continue;
            const uint32_t bits = j->var->type.dtype == F8_I32
                                      ? (uint32_t)f8_f32_to_i32(value[i])
                                      : f8_encode(j->var->type.dtype, value[i], true);
            memcpy(j->to + (size_t)(at - j->first) * size, &bits, size);
        }
    }
}

void f8_init_var(const f8_plan_var *var, int rank, uint64_t seed, f8_pool *pool, void *to)
{
    const int64_t n = f8_type_elements(&var->type);
    if (var->init == INIT_ZEROS || var->rows)
        memset(to, 0, (size_t)f8_type_bytes(&var->type));
    if (var->init == INIT_ZEROS)
        return;
    const uint64_t key = f8_fnv(F8_FNV ^ splitmix64(seed), var->name);
    init_job job = {var, splitmix64(key), 0, n, to};
    if (var->rows) {
        const int64_t whole = var->rows * (n / var->type.dim[0]);
        job.first = rank * n;
        job.end = job.first + n < whole ? job.first + n : whole;
    }
    if (job.first < job.end)
        f8_pool_run(pool, init_tasks, &job, (job.end - 1) / BLOCK - job.first / BLOCK + 1);
}
