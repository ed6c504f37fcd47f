/* The ways to do a GEMM on the CPU, and whether two give the same bits: see gemm.h. */
#include "runtime/cpu/gemm_internal.h"

#include <string.h>

/* ---- candidates ---- */

static bool same_way(const f8_gemm *x, const f8_gemm *y)
{
    return x->bf16 == y->bf16 && x->f64 == y->f64 && x->m.block == y->m.block &&
           x->n.block == y->n.block && x->share_a == y->share_a && x->in_place_a == y->in_place_a;
}

typedef struct collection {
    f8_gemm_lib *lib;
    int n_threads, n;
    f8_gemm_desc *out;
    f8_gemm *gemm[F8_GEMM_CANDIDATES]; /* held, to compare with */
} collection;

static void add(collection *c, f8_gemm_desc d)
{
    f8_gemm *g;
    f8_diag ignored = {0}; /* what can't be is no candidate */
    if (c->n == F8_GEMM_CANDIDATES ||
        f8_gemm_prepare(c->lib, &d, c->n_threads, &g, &ignored) != F8_OK)
        return;
    for (int i = 0; i < c->n; i++)
        if (same_way(c->gemm[i], g)) {
            f8_gemm_release(g);
            return;
        }
    c->gemm[c->n] = g;
    c->out[c->n++] = d;
}

/* The ways of one algorithm. */
static void add_ways(collection *c, f8_gemm_desc d)
{
    static const uint16_t ms[] = {64, 256}, ns[] = {96, 128, 288, 384};
    const bool bf16 = d.algorithm == F8_GEMM_ONEDNN_BF16;
    add(c, d);
    for (int share = F8_GEMM_SHARE_A; share <= F8_GEMM_SHARE_B; share++)
        add(c, (d.tuning = (f8_gemm_tuning){.share = (uint8_t)share}, d));
    add(c, (d.tuning = (f8_gemm_tuning){.packed = true}, d));
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
        add(c, (d.tuning = (f8_gemm_tuning){.m_block = ms[i]}, d));
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
        if (ns[i] % (bf16 ? 64 : 48) == 0)
            add(c, (d.tuning = (f8_gemm_tuning){.n_block = ns[i]}, d));
}

int f8_gemm_candidates(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads, bool same_bits,
                       f8_gemm_desc out[F8_GEMM_CANDIDATES])
{
    static const uint32_t algorithms[] = {F8_GEMM_ONEDNN_BF16, F8_GEMM_ONEDNN_F32};
    collection c = {.lib = lib, .n_threads = n_threads, .out = out};
    f8_gemm_desc d = *desc;
    d.tuning = (f8_gemm_tuning){0};
    d.algorithm = f8_gemm_choose(lib, desc);
    add_ways(&c, d);
    const uint32_t model = d.algorithm;
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms && !same_bits; i++)
        if (algorithms[i] != model) {
            d.algorithm = algorithms[i];
            d.tuning = (f8_gemm_tuning){0};
            add_ways(&c, d);
        }
    for (int i = 0; i < c.n; i++)
        f8_gemm_release(c.gemm[i]);
    return c.n;
}

/* ---- bits ---- */

/* What one run needs. */
typedef struct trial {
    const f8_allocator *allocator;
    void *room[6];
    size_t size[6];
    f8_gemm *gemm;
} trial;

enum { ROOM_A, ROOM_B, ROOM_C, ROOM_SCALE_A, ROOM_SCALE_B, ROOM_WORK };

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A value's bits from random ones. The exponents vary, so that nearly every sum of products is
 * rounded: with values of one binade, sums of bf16 and FP8 products are exact in every order. None
 * is a NaN, an Inf or a zero. */
static uint32_t random_value(f8_dtype dtype, uint64_t x)
{
    const uint32_t binade = (uint32_t)(x >> 32) % 8; /* f32, bf16: 2^-4 to 2^4 */
    switch (dtype) {
    case F8_F32: return (123 + binade) << 23 | (uint32_t)(x & 0x7fffffu);
    case F8_BF16: return (123 + binade) << 7 | (uint32_t)(x & 0x7fu);
    case F8_E4M3: return 1 + (uint32_t)(x % 0x7eu);
    case F8_E5M2: return 7 * 4 + (uint32_t)(x % (16 * 4)); /* 2^-8 to 2^8 */
    default: return 125 + (uint32_t)(x % 4);               /* E8M0 */
    }
}

/* Random values of both signs; scales are positive. */
static void fill(void *to, size_t bytes, f8_dtype dtype, bool scale)
{
    uint64_t state = bytes;
    const size_t size = f8_dtype_size(dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        const uint64_t x = next_random(&state);
        uint32_t bits = random_value(dtype, x);
        if (!scale && (x >> 40 & 1))
            bits |= 1u << (8 * size - 1);
        memcpy((char *)to + i * size, &bits, size);
    }
}

static size_t scale_bytes(const f8_gemm_desc *d, bool of_a)
{
    const int64_t outer = of_a ? d->m : d->n;
    const bool k_is_rows = of_a ? d->trans_a : !d->trans_b;
    const f8_type t = {.rank = 2, .dim = {k_is_rows ? d->k : outer, k_is_rows ? outer : d->k}};
    const f8_granularity g = of_a ? d->scale_a : d->scale_b;
    return (size_t)(f8_granularity_rows(g, &t) * f8_granularity_columns(g, &t)) *
           f8_dtype_size(d->scale);
}

static f8_status trial_run(trial *t, f8_gemm_lib *lib, const f8_gemm_desc *d, f8_pool *pool,
                           f8_diag *diag)
{
    F8_TRY(f8_gemm_prepare(lib, d, f8_pool_threads(pool), &t->gemm, diag));
    const size_t size[] = {
        (size_t)f8_gemm_elements(d, F8_GEMM_A) * f8_dtype_size(d->a),
        (size_t)f8_gemm_elements(d, F8_GEMM_B) * f8_dtype_size(d->b),
        (size_t)f8_gemm_elements(d, F8_GEMM_C) * sizeof(float),
        d->has_alpha ? scale_bytes(d, true) : 0,
        d->has_alpha ? scale_bytes(d, false) : 0,
        f8_gemm_workspace(t->gemm),
    };
    const f8_dtype dtype[] = {d->a, d->b, F8_F32, d->scale, d->scale};
    for (int i = 0; i < 6; i++) {
        t->size[i] = (size[i] + 64) / 64 * 64;
        t->room[i] = t->allocator->alloc(t->allocator->user, t->size[i], 64);
        if (!t->room[i])
            return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                           t->size[i]);
        if (i < ROOM_WORK)
            fill(t->room[i], size[i], dtype[i], i >= ROOM_SCALE_A);
    }
    const f8_status status =
        f8_gemm_run(t->gemm, pool, t->room[ROOM_A], t->room[ROOM_B], t->room[ROOM_C],
                    d->has_alpha ? t->room[ROOM_SCALE_A] : NULL,
                    d->has_alpha ? t->room[ROOM_SCALE_B] : NULL, t->room[ROOM_WORK]);
    return status == F8_OK ? F8_OK : f8_fail(diag, status, F8_NOWHERE, "a GEMM failed");
}

static void trial_end(trial *t)
{
    for (int i = 0; i < 6; i++)
        if (t->room[i])
            t->allocator->free(t->allocator->user, t->room[i], t->size[i]);
    f8_gemm_release(t->gemm);
}

f8_status f8_gemm_same_bits(f8_gemm_lib *lib, const f8_gemm_desc *x, const f8_gemm_desc *y,
                            f8_pool *pool, const f8_allocator *allocator, bool *out, f8_diag *diag)
{
    trial tx = {.allocator = allocator}, ty = {.allocator = allocator};
    f8_status status = trial_run(&tx, lib, x, pool, diag);
    if (status == F8_OK)
        status = trial_run(&ty, lib, y, pool, diag);
    *out = status == F8_OK && !memcmp(tx.room[ROOM_C], ty.room[ROOM_C],
                                      (size_t)f8_gemm_elements(x, F8_GEMM_C) * sizeof(float));
    trial_end(&tx);
    trial_end(&ty);
    return status;
}
