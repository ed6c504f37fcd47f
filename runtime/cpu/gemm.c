/* Preparing GEMMs: the library handle, the algorithm table, the cache, blocking and workspace.
 * The run itself is in gemm_run.c; see gemm_internal.h for how a problem is cut. */
#include "runtime/cpu/gemm_internal.h"

#include <stdio.h>
#include <string.h>

enum {
    N_STEP_F32 = 48,
    N_STEP_BF16 = 64,
    PACK_COST = 24,          /* packing an element costs what multiplying it so often does */
    SHARED_BUDGET = 2 << 20, /* bytes of shared operand, if more than one chunk: about an L2 */
    MIN_CHUNK = 32,          /* k that AMX multiplies at once */
};

/* ---- the algorithm table ----
 * AUTO takes the first row whose `automatic` holds. README.md says which products f64 is for, and
 * why. On Intel's CPUs without AMX oneDNN's f32 is about twice as fast as its bf16, so bf16 is then
 * only on request. The next table has the CPUs where it is the other way round. */

/* AVX512_BF16 multiplies twice as many elements a cycle as f32 does. `fp8c tune` found onednn-bf16
 * 37 to 48% faster than onednn-f32 there. */
static const struct {
    const char *vendor;
    uint32_t family;
} fast_bf16[] = {
    {"AuthenticAMD", 0x19}, /* Zen 4; Zen 3 is of this family too, without AVX512_BF16 */
    {"AuthenticAMD", 0x1a}, /* Zen 5 */
};

static bool bf16_is_fast(const f8_gemm_cpu *cpu)
{
    bool listed = false;
    for (size_t i = 0; i < sizeof fast_bf16 / sizeof *fast_bf16; i++)
        listed |=
            cpu->is.family == fast_bf16[i].family && !strcmp(cpu->is.vendor, fast_bf16[i].vendor);
    return cpu->amx || (cpu->bf16 && listed);
}

typedef struct algorithm {
    uint32_t id;
    bool (*possible)(const f8_gemm_lib *lib, const f8_gemm_desc *desc);
    bool (*automatic)(const f8_gemm_lib *lib, const f8_gemm_desc *desc);
} algorithm;

static bool exact_in_bf16(f8_dtype dtype, bool round)
{
    return dtype != F8_F32 || round;
}

/* The chunk of k that onednn-bf16 takes at a time because of its scales; 0: any. */
static int64_t chunk_after_sums(const f8_gemm_desc *desc)
{
    return desc->scale == F8_E8M0 ? 0 : f8_gemm_scales_chunk(desc, F8_GEMM_K_BLOCK);
}

static bool bf16_possible(const f8_gemm_lib *lib, const f8_gemm_desc *desc)
{
    int64_t chunk = chunk_after_sums(desc);
    return lib->cpu.bf16 && exact_in_bf16(desc->a, desc->round_a) &&
           exact_in_bf16(desc->b, desc->round_b) && (!chunk || chunk >= MIN_CHUNK);
}

static bool bf16_automatic(const f8_gemm_lib *lib, const f8_gemm_desc *desc)
{
    return bf16_is_fast(&lib->cpu) && bf16_possible(lib, desc);
}

static bool in_f64(const f8_gemm_lib *lib, const f8_gemm_desc *desc)
{
    (void)lib;
    return f8_gemm_sums_in_f64(desc);
}

static bool always(const f8_gemm_lib *lib, const f8_gemm_desc *desc)
{
    (void)lib;
    (void)desc;
    return true;
}

static const algorithm algorithms[] = {
    {F8_GEMM_F64, in_f64, in_f64},
    {F8_GEMM_ONEDNN_BF16, bf16_possible, bf16_automatic},
    {F8_GEMM_ONEDNN_F32, always, always},
};

enum { N_ALGORITHMS = sizeof algorithms / sizeof *algorithms };

f8_gemm_algorithm f8_gemm_choose(const f8_gemm_lib *lib, const f8_gemm_desc *desc)
{
    for (int i = 0; i < N_ALGORITHMS; i++)
        if (algorithms[i].id == desc->tuning.algorithm && algorithms[i].possible(lib, desc))
            return (f8_gemm_algorithm)algorithms[i].id;
    for (int i = 0; i < N_ALGORITHMS; i++)
        if (algorithms[i].automatic(lib, desc))
            return (f8_gemm_algorithm)algorithms[i].id;
    return F8_GEMM_AUTO;
}

static f8_status resolve_algorithm(const f8_gemm_lib *lib, f8_gemm_desc *desc, f8_diag *diag)
{
    if (desc->algorithm == F8_GEMM_AUTO)
        desc->algorithm = f8_gemm_choose(lib, desc);
    for (int i = 0; i < N_ALGORITHMS; i++)
        if (algorithms[i].id == desc->algorithm) {
            if (algorithms[i].possible(lib, desc))
                return F8_OK;
            return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                           "GEMM algorithm %s can't do %s x %s%s on this CPU (%s)",
                           f8_gemm_algorithm_name(desc->algorithm), f8_dtype_name(desc->a),
                           f8_dtype_name(desc->b),
                           desc->algorithm == F8_GEMM_F64 ? " of this size or with scales"
                           : chunk_after_sums(desc)       ? " with such blocks of scales"
                                                          : "",
                           lib->description);
        }
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "no GEMM algorithm has the number %u",
                   desc->algorithm);
}

/* ---- the library handle ---- */

/* Rows of the tuning database hold for this text. Their candidate "model" stands for the algorithm
 * that AUTO takes, so the text says which one that is where the CPU's features do not. Rows without
 * ", f64" are from before that algorithm, when small products of f32 took onednn-f32. */
void f8_gemm_describe(const f8_gemm_cpu *cpu, int version, const char *simd, char *out, size_t size)
{
    snprintf(out, size, "oneDNN %d.%d.%d (%s%s, f64)", version / 10000, version / 100 % 100,
             version % 100, simd,
             cpu->amx            ? ", amx_bf16"
             : bf16_is_fast(cpu) ? ", avx512_bf16 by default"
             : cpu->bf16         ? ", avx512_bf16"
                                 : "");
}

static f8_status open_lib(f8_gemm_lib *lib, f8_diag *diag)
{
    const char *missing;
    lib->simd = f8_gemm_simd_choose(&missing);
    if (!lib->simd)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "GEMMs need a CPU with %s", missing);
    F8_TRY(f8_onednn_create(&lib->allocator, &lib->dnn, diag));
    lib->cpu = (f8_gemm_cpu){.is = f8_cpu_identify(),
                             .bf16 = f8_onednn_has_bf16(lib->dnn),
                             .amx = f8_onednn_has_amx_bf16(lib->dnn)};
    f8_gemm_describe(&lib->cpu, f8_onednn_version(lib->dnn), lib->simd->name, lib->description,
                     sizeof lib->description);
    return F8_OK;
}

f8_status f8_gemm_lib_create(const f8_allocator *allocator, f8_gemm_lib **out, f8_diag *diag)
{
    *out = NULL;
    f8_allocator al = allocator ? *allocator : f8_default_allocator();
    f8_gemm_lib *lib = al.alloc(al.user, sizeof *lib, _Alignof(f8_gemm_lib));
    if (!lib)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for the GEMM library", sizeof *lib);
    *lib = (f8_gemm_lib){.allocator = al};
    f8_status status = open_lib(lib, diag);
    if (status != F8_OK) {
        f8_gemm_lib_destroy(lib);
        return status;
    }
    *out = lib;
    return F8_OK;
}

void f8_gemm_lib_destroy(f8_gemm_lib *lib)
{
    if (!lib)
        return;
    f8_onednn_destroy(lib->dnn);
    f8_allocator al = lib->allocator;
    al.free(al.user, lib, sizeof *lib);
}

const char *f8_gemm_lib_describe(const f8_gemm_lib *lib)
{
    return lib->description;
}

/* ---- checking a desc ---- */

static f8_status check_operand(char which, f8_dtype dtype, bool round, int64_t rows, int64_t cols,
                               int64_t ld, f8_diag *diag)
{
    int64_t bytes;
    if (dtype != F8_F32 && dtype != F8_BF16 && dtype != F8_E4M3 && dtype != F8_E5M2)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "GEMM operand %c can't be %s", which,
                       (unsigned)dtype < F8_DTYPE_COUNT ? f8_dtype_name(dtype) : "of no dtype");
    if (round && dtype != F8_F32)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "GEMM operand %c is %s: only f32 is rounded",
                       which, f8_dtype_name(dtype));
    if (ld < cols)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "GEMM operand %c: row stride %lld is less than its %lld columns", which,
                       (long long)ld, (long long)cols);
    if (__builtin_mul_overflow(rows, ld, &bytes) || __builtin_mul_overflow(bytes, 4, &bytes))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "GEMM operand %c is too large", which);
    return F8_OK;
}

static f8_status check_desc(const f8_gemm_desc *d, int n_threads, f8_diag *diag)
{
    if (d->m < 1 || d->n < 1 || d->k < 1 || d->m > INT32_MAX || d->n > INT32_MAX ||
        d->k > INT32_MAX)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "GEMM of m=%lld n=%lld k=%lld: each must be 1 to 2^31 - 1", (long long)d->m,
                       (long long)d->n, (long long)d->k);
    if (n_threads < 1 || n_threads > F8_POOL_MAX_THREADS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "GEMM for %d threads: must be 1 to %d",
                       n_threads, F8_POOL_MAX_THREADS);
    F8_TRY(check_operand('A', d->a, d->round_a, d->trans_a ? d->k : d->m, d->trans_a ? d->m : d->k,
                         d->lda, diag));
    F8_TRY(check_operand('B', d->b, d->round_b, d->trans_b ? d->n : d->k, d->trans_b ? d->k : d->n,
                         d->ldb, diag));
    F8_TRY(check_operand('C', F8_F32, false, d->m, d->n, d->ldc, diag));
    if (!f8_gemm_batch_ok(d))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "GEMM: no batch of %lld has matrices %lld, %lld and %lld elements apart",
                       (long long)d->batch, (long long)d->stride_a, (long long)d->stride_b,
                       (long long)d->stride_c);
    if (d->tuning.m_block > F8_GEMM_M_MOST || d->tuning.m_block % 16 ||
        d->tuning.n_block > F8_GEMM_N_MOST || d->tuning.n_block % 16 ||
        d->tuning.share > F8_GEMM_SHARE_B)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "GEMM tiles of %u x %u, share %u: sizes are multiples of 16 up to %d and %d",
                       d->tuning.m_block, d->tuning.n_block, d->tuning.share, F8_GEMM_M_MOST,
                       F8_GEMM_N_MOST);
    return f8_gemm_scales_check(d, diag);
}

/* ---- blocking ---- */

/* As even as blocks that are a multiple of `multiple` and at most `most` can be. */
static f8_gemm_axis cut(int64_t size, int64_t most, int64_t multiple)
{
    int64_t count = (size + most - 1) / most;
    int64_t block = (size + count - 1) / count;
    block = f8_aligned(block, multiple);
    if (block > size)
        block = size;
    return (f8_gemm_axis){size, block, (size + block - 1) / block};
}

static f8_gemm_source source_of(f8_dtype dtype, bool round)
{
    switch (dtype) {
    case F8_BF16:
        return F8_SRC_BF16;
    case F8_E4M3:
        return F8_SRC_E4M3;
    case F8_E5M2:
        return F8_SRC_E5M2;
    default:
        return round ? F8_SRC_ROUND : F8_SRC_F32;
    }
}

/* A lies as tiles want it: its own dtype, dense rows, one chunk of k without padding. */
static bool usable_in_place(const f8_gemm *g)
{
    f8_gemm_source wanted = g->bf16 ? F8_SRC_BF16 : F8_SRC_F32;
    int64_t k = g->desc.k;
    return g->source_a == wanted && !g->pack_scales_a && !g->desc.trans_a && g->k.count == 1 &&
           g->desc.lda == k && f8_gemm_padded_k(g, k) == k;
}

/* How many tasks share a panel's work, each packing the panel for itself: the least estimated time
 * of a round, in rows (columns) of the shared operand, with half a task for uneven threads. This
 * only decides who packs what how often, so it may depend on the thread count. */
static int64_t choose_groups(const f8_gemm *g)
{
    const f8_gemm_axis *panels = g->share_a ? &g->n : &g->m, *shared = g->share_a ? &g->m : &g->n;
    int64_t best = 1;
    double least = 0;
    for (int64_t groups = 1; groups <= shared->count && groups <= 2 * g->n_threads; groups++) {
        int64_t turns = (panels->count * groups + g->n_threads - 1) / g->n_threads;
        int64_t blocks = (shared->count + groups - 1) / groups;
        double time = ((double)turns + 0.5) * (double)(blocks * shared->block + PACK_COST);
        if (groups > 1 && time >= least)
            continue;
        least = time;
        best = groups;
    }
    return best;
}

/* Where each operand's scales are multiplied in: see gemm_scales.h. */
static void choose_scaling(f8_gemm *g)
{
    const f8_gemm_desc *d = &g->desc;
    bool exact = !g->bf16 || d->scale == F8_E8M0;
    g->pack_scales_a = exact && f8_gemm_scales_along_k(d, true);
    g->pack_scales_b = exact && f8_gemm_scales_along_k(d, false);
    g->scaled = d->has_alpha && !(g->pack_scales_a && g->pack_scales_b);
}

static void choose_blocks(f8_gemm *g)
{
    const f8_gemm_desc *d = &g->desc;
    g->bf16 = d->algorithm == F8_GEMM_ONEDNN_BF16;
    g->f64 = d->algorithm == F8_GEMM_F64;
    choose_scaling(g);
    g->through_t = g->bf16 || (g->scaled && d->accumulate);
    g->source_a = source_of(d->a, d->round_a);
    g->source_b = source_of(d->b, d->round_b);
    const f8_gemm_tuning *t = &d->tuning;
    g->m = cut(d->m, t->m_block ? t->m_block : F8_GEMM_M_BLOCK, 16);
    g->n = cut(d->n, t->n_block ? t->n_block : F8_GEMM_N_BLOCK,
               g->bf16 ? N_STEP_BF16 : N_STEP_F32);
    int64_t chunk = g->f64 ? d->k : g->bf16 ? chunk_after_sums(d) : 0;
    g->k = chunk ? (f8_gemm_axis){d->k, chunk, (d->k + chunk - 1) / chunk}
                 : cut(d->k, F8_GEMM_K_BLOCK, 32);
    g->share_a = t->share ? t->share == F8_GEMM_SHARE_A : d->m <= d->n;
    g->in_place_a = !t->packed && usable_in_place(g);
    g->by_product = d->batch > 1 && (d->batch >= 2 * g->n_threads || f8_gemm_is_small(d));
    g->groups = g->by_product ? 1 : choose_groups(g);
}

static size_t align64(size_t bytes)
{
    return (size_t)f8_aligned((int64_t)bytes, 64);
}

static void choose_workspace(f8_gemm *g)
{
    size_t element = f8_gemm_element_bytes(g);
    size_t k = (size_t)f8_gemm_padded_k(g, g->k.block), n = (size_t)f8_gemm_padded_n(g, g->n.block);
    size_t chunk = element * k * (g->share_a ? (size_t)g->m.size : n * (size_t)g->n.count);
    size_t fit = SHARED_BUDGET / chunk;
    g->round = fit < 1 ? 1 : fit < (size_t)g->k.count ? (int64_t)fit : g->k.count;
    g->depth = F8_GEMM_K_BLOCK / g->k.block;
    g->depth = g->depth < 1 ? 1 : g->depth < g->round ? g->depth : g->round;
    bool shared = !(g->share_a && g->in_place_a), panel = g->share_a || !g->in_place_a;
    g->shared_bytes = shared ? align64(chunk * (size_t)g->round) : 0;
    g->chunk_bytes = panel ? align64(element * k * (g->share_a ? n : (size_t)g->m.block)) : 0;
    g->panel_bytes = g->chunk_bytes * (size_t)g->depth;
    g->t_bytes = g->through_t ? align64(sizeof(float) * (size_t)g->m.block * n) : 0;
    size_t scratch = 0;
    for (int i = 0; i < 8; i++) {
        const f8_onednn_tile *tile = g->tile[i >> 2][i >> 1 & 1][i & 1];
        if (tile && f8_onednn_tile_scratch(tile) > scratch)
            scratch = f8_onednn_tile_scratch(tile);
    }
    g->thread_bytes = g->panel_bytes + g->t_bytes + align64(scratch);
}

/* Blocks of each length the axis has: [whether it is the tail] */
static bool axis_has(const f8_gemm_axis *x, int tail)
{
    return tail ? f8_axis_tail(x, x->count - 1) : x->count > 1 || !f8_axis_tail(x, 0);
}

static int64_t axis_length(const f8_gemm_axis *x, int tail)
{
    return tail ? f8_axis_length(x, x->count - 1) : x->block;
}

static f8_status create_tiles(f8_gemm *g, f8_diag *diag)
{
    for (int i = 0; i < 8 && g->bf16; i++) {
        int m = i >> 2, n = i >> 1 & 1, k = i & 1;
        if (!axis_has(&g->m, m) || !axis_has(&g->n, n) || !axis_has(&g->k, k))
            continue;
        f8_onednn_shape shape = {
            .m = axis_length(&g->m, m),
            .n = f8_gemm_padded_n(g, axis_length(&g->n, n)),
            .k = f8_gemm_padded_k(g, axis_length(&g->k, k)),
        };
        F8_TRY(f8_onednn_tile_create(g->lib->dnn, &shape, g->n_threads, &g->tile[m][n][k], diag));
    }
    return F8_OK;
}

/* ---- prepare and release ---- */

static bool desc_equal(const f8_gemm_desc *x, const f8_gemm_desc *y)
{
    return f8_gemm_tuning_equal(&x->tuning, &y->tuning) && x->m == y->m && x->n == y->n &&
           x->k == y->k && x->lda == y->lda && x->ldb == y->ldb && x->ldc == y->ldc &&
           x->batch == y->batch && x->stride_a == y->stride_a && x->stride_b == y->stride_b &&
           x->stride_c == y->stride_c && x->a == y->a && x->b == y->b && x->trans_a == y->trans_a &&
           x->trans_b == y->trans_b && x->round_a == y->round_a && x->round_b == y->round_b &&
           x->accumulate == y->accumulate && x->has_alpha == y->has_alpha &&
           f8_granularity_equal(x->scale_a, y->scale_a) &&
           f8_granularity_equal(x->scale_b, y->scale_b) && x->scale == y->scale &&
           x->algorithm == y->algorithm;
}

static void destroy_gemm(f8_gemm *g)
{
    for (int i = 0; i < 8; i++)
        f8_onednn_tile_destroy(g->tile[i >> 2][i >> 1 & 1][i & 1]);
    f8_allocator al = g->lib->allocator;
    al.free(al.user, g, sizeof *g);
}

f8_status f8_gemm_prepare(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads, f8_gemm **out,
                          f8_diag *diag)
{
    *out = NULL;
    f8_gemm_desc d = *desc;
    F8_TRY(check_desc(&d, n_threads, diag));
    F8_TRY(resolve_algorithm(lib, &d, diag));
    for (f8_gemm *g = lib->gemms; g; g = g->next)
        if (g->n_threads == n_threads && desc_equal(&g->desc, &d)) {
            g->refs++;
            *out = g;
            return F8_OK;
        }
    f8_gemm *g = lib->allocator.alloc(lib->allocator.user, sizeof *g, _Alignof(f8_gemm));
    if (!g)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for a GEMM", sizeof *g);
    *g = (f8_gemm){.lib = lib, .refs = 1, .desc = d, .n_threads = n_threads};
    choose_blocks(g);
    f8_onednn_threads threads = f8_onednn_enter(lib->dnn);
    f8_status status =
        d.algorithm == F8_GEMM_ONEDNN_F32 ? f8_onednn_warm_up(lib->dnn, diag) : F8_OK;
    if (status == F8_OK)
        status = create_tiles(g, diag);
    f8_onednn_leave(lib->dnn, threads);
    if (status != F8_OK) {
        destroy_gemm(g);
        return status;
    }
    choose_workspace(g);
    g->next = lib->gemms;
    lib->gemms = g;
    *out = g;
    return F8_OK;
}

void f8_gemm_release(f8_gemm *gemm)
{
    if (!gemm || --gemm->refs > 0)
        return;
    f8_gemm **link = &gemm->lib->gemms;
    while (*link != gemm)
        link = &(*link)->next;
    *link = gemm->next;
    destroy_gemm(gemm);
}

uint32_t f8_gemm_algorithm_of(const f8_gemm *gemm)
{
    return gemm->desc.algorithm;
}

size_t f8_gemm_workspace(const f8_gemm *gemm)
{
    const size_t threads = (size_t)gemm->n_threads;
    return gemm->shared_bytes * (gemm->by_product ? threads : 1) + gemm->thread_bytes * threads;
}
