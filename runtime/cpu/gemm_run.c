/* Running a prepared GEMM: see gemm_internal.h for the plan this follows.
 *
 * For each round of k chunks: pack the shared operand (tasks over its blocks), then the tiles
 * (tasks over panel x group). A task packs its panel for one chunk (or `depth` chunks), multiplies
 * it with the blocks of its group, and goes on to the next, so C's elements are added up in the
 * order of k whoever runs the task. The products of a batch run one after the other, or each as one
 * task. */
#include "runtime/cpu/gemm_f64.h"
#include "runtime/cpu/gemm_internal.h"

#include <stdatomic.h>
#include <string.h>

enum {
    PACK_ROWS = 128, /* of a shared A, in one packing task */
    PACK_COLS = 256,
};

typedef struct run_state {
    const f8_gemm *g;
    f8_gemm_operand a, b;
    float *c;
    f8_gemm_scales scales_a, scales_b;
    char *shared, *threads; /* in the workspace */
    int64_t first, count;   /* this round's chunks of k */
    bool afresh;            /* C counts as zeros */
    _Atomic int status;     /* the first failure of any thread */
} run_state;

/* ---- where things lie ---- */

/* The shared A's rows from `row` of chunk k, and the shared B's block n of it. */
static char *shared_a(const run_state *s, int64_t row, int64_t k)
{
    const f8_gemm *g = s->g;
    int64_t ld = f8_gemm_padded_k(g, f8_axis_length(&g->k, k));
    int64_t chunk = g->m.size * f8_gemm_padded_k(g, g->k.block);
    return s->shared + (size_t)((k - s->first) * chunk + row * ld) * f8_gemm_element_bytes(g);
}

static char *shared_b(const run_state *s, int64_t n, int64_t k)
{
    const f8_gemm *g = s->g;
    int64_t block = f8_gemm_padded_k(g, g->k.block) * f8_gemm_padded_n(g, g->n.block);
    return s->shared +
           (size_t)((k - s->first) * g->n.count + n) * (size_t)block * f8_gemm_element_bytes(g);
}

static const char *in_place_a(const run_state *s, int64_t m)
{
    const f8_gemm *g = s->g;
    int64_t row = f8_axis_start(&g->m, m);
    return (const char *)s->a.base + (size_t)(row * s->a.ld) * f8_gemm_element_bytes(g);
}

/* ---- packing ---- */

/* Rows x cols of A from (row, col), at dst with the row stride of a chunk `length` long. */
static void pack_a(const run_state *s, int64_t row, int64_t rows, int64_t col, int64_t cols,
                   int64_t length, char *dst)
{
    const f8_gemm *g = s->g;
    if (g->bf16)
        f8_gemm_pack_bf16(g->lib->simd, &s->a, row, col, rows, cols, (uint16_t *)(void *)dst,
                          f8_gemm_padded_k(g, length));
    else
        f8_gemm_pack(g->lib->simd, &s->a, row, col, rows, cols, (float *)(void *)dst, length);
}

/* Block (k, n) of B. */
static void pack_b(const run_state *s, int64_t k, int64_t n, char *dst)
{
    const f8_gemm *g = s->g;
    int64_t row = f8_axis_start(&g->k, k), rows = f8_axis_length(&g->k, k);
    int64_t col = f8_axis_start(&g->n, n), cols = f8_axis_length(&g->n, n);
    if (g->bf16)
        f8_gemm_pack_pairs(g->lib->simd, &s->b, row, col, rows, cols, (uint16_t *)(void *)dst);
    else
        f8_gemm_pack(g->lib->simd, &s->b, row, col, rows, cols, (float *)(void *)dst, cols);
}

/* bf16 rows are packed whole: packing also writes the zeros at their end. */
static int64_t pack_columns(const f8_gemm *g)
{
    return g->bf16 ? g->k.block : PACK_COLS;
}

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static void pack_shared_a(void *user, int thread, int64_t begin, int64_t end)
{
    run_state *s = user;
    const f8_gemm *g = s->g;
    int64_t step = pack_columns(g), across = ceil_div(g->k.block, step);
    int64_t down = ceil_div(g->m.size, PACK_ROWS);
    (void)thread;
    for (int64_t task = begin; task < end; task++) {
        int64_t k = s->first + task / (down * across);
        int64_t row = task / across % down * PACK_ROWS, col = task % across * step;
        int64_t length = f8_axis_length(&g->k, k);
        if (col >= length)
            continue;
        int64_t rows = g->m.size - row < PACK_ROWS ? g->m.size - row : PACK_ROWS;
        int64_t cols = length - col < step ? length - col : step;
        char *dst = shared_a(s, row, k) + (size_t)col * f8_gemm_element_bytes(g);
        pack_a(s, row, rows, f8_axis_start(&g->k, k) + col, cols, length, dst);
    }
}

static void pack_shared_b(void *user, int thread, int64_t begin, int64_t end)
{
    run_state *s = user;
    (void)thread;
    for (int64_t task = begin; task < end; task++) {
        int64_t k = s->first + task / s->g->n.count, n = task % s->g->n.count;
        pack_b(s, k, n, shared_b(s, n, k));
    }
}

/* ---- tiles ---- */

/* Where a tile's parts lie. */
typedef struct tile_place {
    int64_t rows, cols, length; /* of k */
    float *c, *t;
    int64_t ldc, ldt;
    char *scratch; /* oneDNN's */
} tile_place;

/* What the sums of a tile's chunk are multiplied by. */
static void find_factors(const run_state *s, int64_t m, int64_t n, int64_t k, f8_gemm_factors *f)
{
    static const f8_gemm_scales none = {0};
    const f8_gemm *g = s->g;
    int64_t at = f8_axis_start(&g->k, k);
    f8_gemm_scales_factors(g->pack_scales_a ? &none : &s->scales_a, !g->desc.trans_a,
                           f8_axis_start(&g->m, m), f8_axis_length(&g->m, m), at, f->row);
    f8_gemm_scales_factors(g->pack_scales_b ? &none : &s->scales_b, g->desc.trans_b,
                           f8_axis_start(&g->n, n), f8_axis_length(&g->n, n), at, f->col);
}

static tile_place place_tile(const run_state *s, int thread, int64_t m, int64_t n, int64_t k)
{
    const f8_gemm *g = s->g;
    char *mine = s->threads + (size_t)thread * g->thread_bytes;
    int64_t ldc = g->desc.ldc, cols = f8_axis_length(&g->n, n);
    return (tile_place){
        .rows = f8_axis_length(&g->m, m),
        .cols = cols,
        .length = f8_axis_length(&g->k, k),
        .c = s->c + f8_axis_start(&g->m, m) * ldc + f8_axis_start(&g->n, n),
        .t = (float *)(void *)(mine + g->panel_bytes),
        .ldc = ldc,
        .ldt = f8_gemm_padded_n(g, cols),
        .scratch = mine + g->panel_bytes + g->t_bytes,
    };
}

/* In T, then scaled and stored or added to C. */
static f8_status run_through_t(const run_state *s, int thread, int64_t m, int64_t n, int64_t k,
                               const char *a, const char *b)
{
    const f8_gemm *g = s->g;
    tile_place p = place_tile(s, thread, m, n, k);
    f8_gemm_factors f;
    f8_onednn_tile *tile =
        g->tile[f8_axis_tail(&g->m, m)][f8_axis_tail(&g->n, n)][f8_axis_tail(&g->k, k)];
    if (g->bf16)
        F8_TRY(f8_onednn_tile_run(tile, thread, a, b, p.t, p.scratch));
    else
        F8_TRY(f8_onednn_sgemm(g->lib->dnn, p.rows, p.cols, p.length,
                               (const float *)(const void *)a, p.length,
                               (const float *)(const void *)b, p.cols, false, p.t, p.ldt));
    find_factors(s, m, n, k, &f);
    f8_gemm_scales_finish(g->lib->simd, &f, g->desc.accumulate || k > 0, p.c, p.ldc, p.t, p.ldt,
                          p.rows, p.cols);
    return F8_OK;
}

/* The tile is computed in C itself. k is one chunk. */
static f8_status run_f64(const run_state *s, int thread, int64_t m, int64_t n, const char *a,
                         const char *b)
{
    tile_place p = place_tile(s, thread, m, n, 0);
    f8_gemm_f64_tile(p.rows, p.cols, p.length, (const float *)(const void *)a, p.length,
                     (const float *)(const void *)b, p.cols, s->g->desc.accumulate, p.c, p.ldc);
    return F8_OK;
}

/* In C itself, scaled once its last chunk of k is in. */
static f8_status run_in_c(const run_state *s, int thread, int64_t m, int64_t n, int64_t k,
                          const char *a, const char *b)
{
    const f8_gemm *g = s->g;
    tile_place p = place_tile(s, thread, m, n, k);
    F8_TRY(f8_onednn_sgemm(g->lib->dnn, p.rows, p.cols, p.length, (const float *)(const void *)a,
                           p.length, (const float *)(const void *)b, p.cols,
                           g->desc.accumulate || k > 0, p.c, p.ldc));
    if (g->scaled && k == g->k.count - 1) {
        f8_gemm_factors f;
        find_factors(s, m, n, k, &f);
        f8_gemm_scales_finish(g->lib->simd, &f, false, p.c, p.ldc, p.c, p.ldc, p.rows, p.cols);
    }
    return F8_OK;
}

static void clear_tile(const run_state *s, int64_t m, int64_t n)
{
    const tile_place p = place_tile(s, 0, m, n, 0);
    for (int64_t i = 0; i < p.rows; i++)
        memset(p.c + i * p.ldc, 0, (size_t)p.cols * sizeof *p.c);
}

static f8_status run_tile(const run_state *s, int thread, int64_t m, int64_t n, int64_t k,
                          const char *a, const char *b)
{
    if (s->afresh && k == 0)
        clear_tile(s, m, n);
    if (s->g->f64)
        return run_f64(s, thread, m, n, a, b);
    return (s->g->through_t ? run_through_t : run_in_c)(s, thread, m, n, k, a, b);
}

/* Panel n of B against blocks [begin, end) of A. */
static f8_status run_panel_b(const run_state *s, int thread, int64_t n, int64_t begin, int64_t end)
{
    const f8_gemm *g = s->g;
    char *panel = s->threads + (size_t)thread * g->thread_bytes;
    for (int64_t first = s->first, next; first < s->first + s->count; first = next) {
        next = at_most(first + g->depth, s->first + s->count);
        for (int64_t k = first; k < next; k++)
            pack_b(s, k, n, panel + (size_t)(k - first) * g->chunk_bytes);
        for (int64_t m = begin; m < end; m++)
            for (int64_t k = first; k < next; k++) {
                const char *a =
                    g->in_place_a ? in_place_a(s, m) : shared_a(s, f8_axis_start(&g->m, m), k);
                F8_TRY(
                    run_tile(s, thread, m, n, k, a, panel + (size_t)(k - first) * g->chunk_bytes));
            }
    }
    return F8_OK;
}

/* Panel m of A against blocks [begin, end) of B. */
static f8_status run_panel_a(const run_state *s, int thread, int64_t m, int64_t begin, int64_t end)
{
    const f8_gemm *g = s->g;
    char *panel = s->threads + (size_t)thread * g->thread_bytes;
    int64_t row = f8_axis_start(&g->m, m), rows = f8_axis_length(&g->m, m);
    for (int64_t first = s->first, next; first < s->first + s->count; first = next) {
        next = at_most(first + g->depth, s->first + s->count);
        for (int64_t k = first; k < next && !g->in_place_a; k++) {
            int64_t length = f8_axis_length(&g->k, k);
            pack_a(s, row, rows, f8_axis_start(&g->k, k), length, length,
                   panel + (size_t)(k - first) * g->chunk_bytes);
        }
        for (int64_t n = begin; n < end; n++)
            for (int64_t k = first; k < next; k++) {
                const char *a =
                    g->in_place_a ? in_place_a(s, m) : panel + (size_t)(k - first) * g->chunk_bytes;
                F8_TRY(run_tile(s, thread, m, n, k, a, shared_b(s, n, k)));
            }
    }
    return F8_OK;
}

static void run_tiles(void *user, int thread, int64_t begin, int64_t end)
{
    run_state *s = user;
    const f8_gemm *g = s->g;
    int64_t blocks = g->share_a ? g->m.count : g->n.count;
    f8_onednn_threads saved = f8_onednn_enter(g->lib->dnn);
    for (int64_t task = begin; task < end; task++) {
        int64_t panel = task / g->groups, group = task % g->groups;
        int64_t from = blocks * group / g->groups, to = blocks * (group + 1) / g->groups;
        f8_status status = (g->share_a ? run_panel_b : run_panel_a)(s, thread, panel, from, to);
        int none = F8_OK;
        if (status != F8_OK)
            atomic_compare_exchange_strong(&s->status, &none, (int)status);
    }
    f8_onednn_leave(g->lib->dnn, saved);
}

/* Tasks [0, n) of one product: of the pool's threads, or without a pool of this one. */
static void run_tasks(run_state *s, f8_pool *pool, int thread, f8_pool_fn fn, int64_t n)
{
    if (pool)
        f8_pool_run(pool, fn, s, n);
    else
        fn(s, thread, 0, n);
}

static void run_rounds(run_state *s, f8_pool *pool, int thread)
{
    const f8_gemm *g = s->g;
    int64_t panels = g->share_a ? g->n.count : g->m.count;
    for (s->first = 0; s->first < g->k.count; s->first += g->round) {
        s->count = at_most(g->k.count - s->first, g->round);
        if (!g->share_a)
            run_tasks(s, pool, thread, pack_shared_b, s->count * g->n.count);
        else if (!g->in_place_a)
            run_tasks(s, pool, thread, pack_shared_a,
                      s->count * ceil_div(g->m.size, PACK_ROWS) *
                          ceil_div(g->k.block, pack_columns(g)));
        run_tasks(s, pool, thread, run_tiles, panels * g->groups);
    }
}

/* ---- batches ---- */

typedef struct batch_run {
    const run_state *first; /* of the first product */
    _Atomic int status;
} batch_run;

/* Product i of a batch; `thread` packs for itself alone if the workspace says so. */
static f8_status run_product(const run_state *first, int64_t i, f8_pool *pool, int thread)
{
    const f8_gemm *g = first->g;
    const f8_gemm_desc *d = &g->desc;
    run_state s = {.g = g,
                   .a = first->a,
                   .b = first->b,
                   .c = first->c + i * d->stride_c,
                   .scales_a = first->scales_a,
                   .scales_b = first->scales_b,
                   .threads = first->threads};
    s.a.base = (const char *)s.a.base + (size_t)(i * d->stride_a) * f8_dtype_size(d->a);
    s.b.base = (const char *)s.b.base + (size_t)(i * d->stride_b) * f8_dtype_size(d->b);
    s.shared = first->shared + (g->by_product ? (size_t)thread * g->shared_bytes : 0);
    run_rounds(&s, pool, thread);
    return (f8_status)atomic_load(&s.status);
}

static void run_products(void *user, int thread, int64_t begin, int64_t end)
{
    batch_run *b = user;
    for (int64_t i = begin; i < end; i++) {
        const f8_status status = run_product(b->first, i, NULL, thread);
        int none = F8_OK;
        if (status != F8_OK)
            atomic_compare_exchange_strong(&b->status, &none, (int)status);
    }
}

static f8_status run_batch(const run_state *first, f8_pool *pool)
{
    const f8_gemm *g = first->g;
    batch_run b = {.first = first};
    if (g->by_product)
        f8_pool_run(pool, run_products, &b, g->desc.batch);
    for (int64_t i = 0; !g->by_product && i < g->desc.batch; i++)
        F8_TRY(run_product(first, i, pool, 0));
    return (f8_status)atomic_load(&b.status);
}

static f8_status run_gemm(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                          const void *a_scale, const void *b_scale, void *workspace, bool afresh)
{
    const f8_gemm_desc *d = &gemm->desc;
    if (f8_pool_threads(pool) > gemm->n_threads || (!d->has_alpha && (a_scale || b_scale)))
        return F8_ERR_INPUT;
    run_state s = {
        .g = gemm,
        .a = {a, d->lda, gemm->source_a, d->trans_a, NULL},
        .b = {b, d->ldb, gemm->source_b, d->trans_b, NULL},
        .c = c,
        .afresh = afresh,
        .scales_a = f8_gemm_scales_of(d, true, a_scale),
        .scales_b = f8_gemm_scales_of(d, false, b_scale),
        .shared = workspace,
        .threads = (char *)workspace +
                   gemm->shared_bytes * (gemm->by_product ? (size_t)gemm->n_threads : 1),
    };
    s.a.scales = gemm->pack_scales_a && a_scale ? &s.scales_a : NULL;
    s.b.scales = gemm->pack_scales_b && b_scale ? &s.scales_b : NULL;
    if (d->batch > 1)
        return run_batch(&s, pool);
    run_rounds(&s, f8_gemm_is_small(d) ? NULL : pool, 0);
    return (f8_status)atomic_load(&s.status);
}

f8_status f8_gemm_run(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                      const void *a_scale, const void *b_scale, void *workspace)
{
    return run_gemm(gemm, pool, a, b, c, a_scale, b_scale, workspace, false);
}

f8_status f8_gemm_run_afresh(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                             const void *a_scale, const void *b_scale, void *workspace)
{
    return gemm->desc.accumulate ? run_gemm(gemm, pool, a, b, c, a_scale, b_scale, workspace, true)
                                 : F8_ERR_INPUT;
}
