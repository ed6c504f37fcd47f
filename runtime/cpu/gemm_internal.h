/* A prepared GEMM: how C is cut, what is packed when, where it lies. gemm.c (prepare) and
 * gemm_run.c (run) share it.
 *
 * C is cut into tiles of m.block x n.block and k into chunks of k.block; each is one oneDNN call.
 * All of this depends on the shape alone. f32 tiles are computed in place in C. All bf16 tiles, and
 * what has to be scaled before it is added, go through a dense matrix T.
 *
 * Chunks are short where scales come in blocks along k and are multiplied in after each chunk's
 * sums. A panel then holds `depth` chunks, and a tile runs all of them before the next tile does,
 * so that C stays in a cache.
 *
 * The operand on C's shorter side is *shared*: it is packed once into the workspace, `round` chunks
 * of k at a time, before the tiles of those chunks run. The other operand is the *panel*: each task
 * packs one block of it into its thread's scratch (sized for L2) and multiplies it with a group of
 * the shared operand's blocks. An operand that already has the form of a tile is used in place. */
#ifndef F8_GEMM_INTERNAL_H
#define F8_GEMM_INTERNAL_H

#include "runtime/base/cpu.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_onednn.h"
#include "runtime/cpu/gemm_scales.h"

/* The most a block of C (unless the desc's tuning says otherwise) or a chunk of k has. */
enum {
    F8_GEMM_M_BLOCK = 128,
    F8_GEMM_N_BLOCK = 192,  /* whole steps of sgemm's kernel (48) and of bf16's blocks (64) */
    F8_GEMM_K_BLOCK = 1024, /* with N_BLOCK f32 columns: a panel of 768 KiB */
};

/* An axis cut into `count` blocks of `block`, the last one maybe shorter. */
typedef struct f8_gemm_axis {
    int64_t size, block, count;
} f8_gemm_axis;

static inline int64_t f8_axis_start(const f8_gemm_axis *x, int64_t i)
{
    return i * x->block;
}

static inline int64_t f8_axis_length(const f8_gemm_axis *x, int64_t i)
{
    return i == x->count - 1 ? x->size - i * x->block : x->block;
}

/* Is block i the shorter last one? Indexes f8_gemm.tile. */
static inline int f8_axis_tail(const f8_gemm_axis *x, int64_t i)
{
    return f8_axis_length(x, i) != x->block;
}

/* All that the choice of an algorithm asks of a CPU. */
typedef struct f8_gemm_cpu {
    f8_cpu_identity is;
    bool bf16, amx; /* oneDNN uses AVX512_BF16 or better; AMX */
} f8_gemm_cpu;

struct f8_gemm_lib {
    f8_allocator allocator;
    f8_onednn *dnn;
    f8_gemm_cpu cpu;
    const f8_gemm_simd *simd;
    struct f8_gemm *gemms; /* the cache, a list */
    char description[80];
};

/* What f8_gemm_lib_describe says, for oneDNN `version`. */
void f8_gemm_describe(const f8_gemm_cpu *cpu, int version, const char *simd, char *out,
                      size_t size);

struct f8_gemm {
    f8_gemm_lib *lib;
    struct f8_gemm *next;
    int refs;
    f8_gemm_desc desc; /* with its algorithm chosen; the cache's key with n_threads */
    int n_threads;

    bool bf16;      /* panels hold bf16, else f32 */
    bool f64;       /* sums are in f64; k is one chunk */
    bool pack_scales_a, pack_scales_b; /* multiplied in while packing, else after the sums */
    bool scaled;                       /* some are multiplied in after the sums */
    bool through_t; /* tiles are computed in T, else in C */
    f8_gemm_source source_a, source_b;
    f8_gemm_axis m, n, k;
    int64_t round;   /* chunks of k packed at a time */
    int64_t depth;   /* those in a panel */
    bool share_a;    /* A is the shared operand, B the panel; else the other way round */
    bool in_place_a; /* A needs no packing */
    /* Of a batch each product is one task, which packs and multiplies alone, instead of several
     * tasks for each product in turn. */
    bool by_product;
    int64_t groups; /* the shared operand's blocks are dealt to this many tasks per panel */
    f8_onednn_tile *tile[2][2][2]; /* bf16: [m tail][n tail][k tail]; NULL where there is none */

    /* Workspace: shared operand (by_product: one for each thread), then per thread {panel, T,
     * oneDNN's scratchpad}; all bytes. A
     * panel's chunks lie chunk_bytes apart. */
    size_t shared_bytes, chunk_bytes, panel_bytes, t_bytes, thread_bytes;
};

/* Sizes of blocks as they lie in memory: bf16 panels are padded with zeros. */
static inline int64_t f8_gemm_padded_k(const f8_gemm *g, int64_t k)
{
    return g->bf16 ? f8_aligned(k, 32) : k;
}

static inline int64_t f8_gemm_padded_n(const f8_gemm *g, int64_t n)
{
    return g->bf16 ? f8_aligned(n, 64) : n;
}

/* Whether a product is not worth waking a thread for. */
static inline bool f8_gemm_is_small(const f8_gemm_desc *d)
{
    return (double)d->m * (double)d->n * (double)d->k < 1 << 17;
}

static inline size_t f8_gemm_element_bytes(const f8_gemm *g)
{
    return g->bf16 ? 2 : 4;
}

#endif
