/* The reference interpreter: matrix products. Sums run over k from first to last in double and are
 * rounded once. A product of two f32 is exact in double, so the bits are the same with and without
 * fused multiply-adds.
 *
 * B is packed into panels of 8 columns and A into panels of 4 rows, both as doubles, so the inner
 * loop keeps a 4 x 8 tile in registers. A plain triple loop would take minutes for a training
 * step. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"
#include "ir/num/fp8.h"
#include "ir/num/quantize.h"

enum { TILE_M = 4, TILE_N = 8, LANES = 4, PANEL = 256, RUN = 512 };
enum { PANEL_BYTES = 1 << 20 }; /* the most of a panel of B, unless TILE_N columns take more */

_Static_assert(TILE_M == 4 && TILE_N == 2 * LANES, "the tile below is written out");
/* 4 doubles: one register of AVX2, two of SSE2. May alias double; needs only its alignment. */
typedef double lanes
    __attribute__((vector_size(LANES * sizeof(double)), aligned(sizeof(double)), may_alias));

/* ---- the tile ---- */

/* acc[m][n] = sum over k of a[k][m] * b[k][n]. Every sum has a name and the body is a macro, not an
 * inlined function; otherwise gcc keeps the sums in memory, at half the speed. */
#define TILE_BODY                                                                                  \
    lanes s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0};  \
    for (int64_t i = 0; i < k; i++, a += TILE_M, b += TILE_N) {                                    \
        const lanes b0 = *(const lanes *)b, b1 = *(const lanes *)(b + LANES);                      \
        s00 += a[0] * b0;                                                                          \
        s01 += a[0] * b1;                                                                          \
        s10 += a[1] * b0;                                                                          \
        s11 += a[1] * b1;                                                                          \
        s20 += a[2] * b0;                                                                          \
        s21 += a[2] * b1;                                                                          \
        s30 += a[3] * b0;                                                                          \
        s31 += a[3] * b1;                                                                          \
    }                                                                                              \
    acc[0] = s00, acc[1] = s01, acc[2] = s10, acc[3] = s11;                                        \
    acc[4] = s20, acc[5] = s21, acc[6] = s30, acc[7] = s31;

static void tile_plain(const double *a, const double *b, int64_t k, lanes *acc)
{
    TILE_BODY
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void tile_avx2(const double *a, const double *b, int64_t k,
                                                      lanes *acc)
{
    TILE_BODY
}
#endif

typedef void (*tile_fn)(const double *a, const double *b, int64_t k, lanes *acc);

static tile_fn pick_tile(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return tile_avx2;
#endif
    return tile_plain;
}

/* ---- operands ---- */

typedef struct matrix {
    const f8_interp *x;
    const f8_rvalue *v;
    const f8_interp_grid *grid; /* its scale may be NULL */
    int64_t stride; /* columns as stored */
    bool transpose, round;
    bool subnormal; /* elements that are not subnormal as an f32 count as zero */
} matrix;

static void keep_subnormals(double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(v[i]) < (double)FLT_MIN))
            v[i] = 0;
}

static void multiply_scales(const matrix *m, int64_t first, int64_t n, double *to)
{
    const f8_interp_grid *s = m->grid;
    const int64_t row = f8_granularity_block(s->grain.rows, first / m->stride) * s->stride;
    double scale = 0;
    for (int64_t i = 0, at = -1; i < n; i++) {
        const int64_t here = row + f8_granularity_block(s->grain.cols, first % m->stride + i);
        if (here != at)
            f8_interp_load(m->x, s->scale, here, 1, &scale);
        at = here;
        to[i] *= scale;
    }
}

/* Loads elements [first, first + n) of a row of the storage, rounded to bf16 if the op says so. */
static void load_run(const matrix *m, int64_t first, int64_t n, double *to)
{
    f8_interp_load(m->x, m->v, first, n, to);
    if (m->grid->scale && !m->x->unscaled)
        multiply_scales(m, first, n, to);
    if (m->subnormal)
        keep_subnormals(to, n);
    if (m->round && !m->x->wide)
        for (int64_t i = 0; i < n; i++)
            to[i] = (double)f8_round_bf16((float)to[i]);
    f8_interp_magnitudes(m->x, to, n);
}

/* packed[j][i] = element (outer + i, j) of the matrix, for i < n and j < k; when transposed, (j,
 * outer + i) as stored. Zeros up to `width`. */
static void pack(const matrix *m, int64_t outer, int64_t n, int64_t k, int64_t width, bool by_rows,
                 double *to)
{
    double run[RUN];
    if (n < width)
        memset(to, 0, (size_t)(k * width) * sizeof *to);
    if (by_rows) { /* rows are contiguous along k */
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < k; j += RUN) {
                const int64_t count = k - j < RUN ? k - j : RUN;
                load_run(m, (outer + i) * m->stride + j, count, run);
                for (int64_t c = 0; c < count; c++)
                    to[(j + c) * width + i] = run[c];
            }
        return;
    }
    for (int64_t j = 0; j < k; j++) {
        load_run(m, j * m->stride + outer, n, run);
        memcpy(to + j * width, run, (size_t)n * sizeof *to);
    }
}

/* ---- the product ---- */

typedef struct product {
    f8_interp *x;
    const f8_interp_gemm *m;
    f8_rvalue *out;
    matrix a, b;
    const f8_rvalue *added;       /* or NULL */
    int64_t first, rows, cols, k; /* `out` has `rows` rows of the product, from `first` on */
    int64_t panel;                /* columns of B that are packed at once */
    double alpha;
} product;

static void finish(const product *p, int64_t row, int64_t col, int64_t rows, int64_t cols,
                   const double *tile)
{
    const f8_interp_gemm *m = p->m;
    for (int64_t i = 0; i < rows; i++) {
        double sum[TILE_N], added[TILE_N] = {0};
        const int64_t at = (row + i) * p->cols + col, from = at + p->first * p->cols;
        if (p->added && !m->adds_zeros)
            f8_interp_load(p->x, p->added, m->is_bias ? col : from, cols, added);
        f8_interp_magnitudes(p->x, added, cols);
        for (int64_t c = 0; c < cols; c++) {
            sum[c] = p->alpha * tile[i * TILE_N + c];
            if (m->is_bias && !p->x->wide) /* an f32 is added to an f32 */
                sum[c] = (double)(float)sum[c];
            if (p->added)
                sum[c] = added[c] + sum[c];
        }
        f8_interp_store(p->x, p->out, at, cols, sum);
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void multiply(const product *p, double *a, double *b)
{
    const tile_fn run = pick_tile();
    lanes acc[TILE_M * TILE_N / LANES];
    for (int64_t panel = 0; panel < p->cols; panel += p->panel) {
        const int64_t width = least(p->panel, p->cols - panel);
        for (int64_t c = 0; c < width; c += TILE_N)
            pack(&p->b, panel + c, least(TILE_N, width - c), p->k, TILE_N, p->b.transpose,
                 b + c * p->k);
        for (int64_t row = 0; row < p->rows; row += TILE_M) {
            const int64_t rows = least(TILE_M, p->rows - row);
            pack(&p->a, p->first + row, rows, p->k, TILE_M, !p->a.transpose, a);
            for (int64_t c = 0; c < width; c += TILE_N) {
                run(a, b + c * p->k, p->k, acc);
                finish(p, row, panel + c, rows, least(TILE_N, width - c), (const double *)acc);
            }
        }
    }
}

/* The columns of a panel, a multiple of TILE_N. Their number changes no sum. */
static int64_t panel_of(const product *p)
{
    const int64_t most = PANEL_BYTES / ((int64_t)sizeof(double) * p->k) / TILE_N * TILE_N;
    return least(f8_aligned(least(PANEL, p->cols), TILE_N), most > TILE_N ? most : TILE_N);
}

void f8_interp_matmul(f8_interp *x, const f8_interp_gemm *m, f8_rvalue *out)
{
    if (x->status != F8_OK)
        return;
    const f8_type *a = &m->a->type, *b = &m->b->type;
    product p = {
        .x = x,
        .m = m,
        .out = out,
        .added = x->subnormal || x->unscaled ? NULL : m->added,
        .first = x->first,
        .alpha = 1,
        .a = {x, m->a, &m->a_grid, f8_type_columns(a), m->transpose_a, m->round_a,
              x->subnormal == 'a'},
        .b = {x, m->b, &m->b_grid, f8_type_columns(b), m->transpose_b, m->round_b,
              x->subnormal == 'b'},
        .k = m->transpose_a ? f8_type_rows(a) : f8_type_columns(a),
        .cols = f8_type_columns(&out->type),
        .rows = f8_type_rows(&out->type),
    };
    if (m->a_scale && !x->unscaled)
        p.alpha =
            f8_scales_product(*(const float *)m->a_scale->data, *(const float *)m->b_scale->data);
    f8_interp_magnitudes(x, &p.alpha, 1);
    p.panel = panel_of(&p);
    const size_t bytes_a = (size_t)(p.k * TILE_M) * sizeof(double);
    const size_t bytes_b = (size_t)(p.k * p.panel) * sizeof(double);
    double *pa = f8_interp_alloc(x, bytes_a), *pb = f8_interp_alloc(x, bytes_b);
    if (pa && pb)
        multiply(&p, pa, pb);
    f8_interp_free(x, pa, bytes_a);
    f8_interp_free(x, pb, bytes_b);
}

/* ---- batches ---- */

/* Matrix `index` of the result's batch, or that of `v` which broadcasts to it. */
static f8_rvalue matrix_at(const f8_interp *x, const f8_rvalue *v, const f8_type *result,
                           int64_t index)
{
    f8_rvalue one = *v;
    int64_t at = 0, step = 1;
    f8_type_batch(&v->type, &one.type);
    for (int i = result->rank - 3, k = v->type.rank - 3; i >= 0 && k >= 0; i--, k--) {
        if (v->type.dim[k] > 1)
            at += index % result->dim[i] * step;
        index /= result->dim[i];
        step *= v->type.dim[k];
    }
    one.data = (char *)v->data + (size_t)at * f8_interp_bytes(x, &one.type);
    return one;
}

void f8_interp_batch_matmul(f8_interp *x, const f8_interp_gemm *m, f8_rvalue *out)
{
    f8_type one;
    const int64_t n = f8_type_batch(&out->type, &one);
    for (int64_t i = 0; i < n; i++) {
        const f8_rvalue a = matrix_at(x, m->a, &out->type, i),
                        b = matrix_at(x, m->b, &out->type, i);
        f8_rvalue y = matrix_at(x, out, &out->type, i);
        f8_interp_gemm of = *m;
        of.a = &a;
        of.b = &b;
        f8_interp_matmul(x, &of, &y);
    }
}
