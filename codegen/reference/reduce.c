/* The reference interpreter: reductions, in the orders that ir/README.md fixes. In wide mode sums
 * are plain sums of doubles, from first to last. */
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"
#include "ir/num/scalar.h"

enum { LANES = 256, ROWS = 64 };

/* ---- rows ---- */

static float sum_row(const float *v, int64_t n)
{
    float lane[LANES];
    const int64_t lanes = n < LANES ? n : LANES;
    memcpy(lane, v, (size_t)lanes * sizeof *lane);
    for (int64_t i = LANES; i < n; i += LANES) {
        const int64_t count = n - i < LANES ? n - i : LANES;
        for (int64_t j = 0; j < count; j++)
            lane[j] += v[i + j];
    }
    for (int64_t h = LANES / 2; h > 0; h /= 2)
        for (int64_t j = 0; j < h && j + h < lanes; j++)
            lane[j] += lane[j + h];
    return lane[0];
}

static float max_row(const float *v, int64_t n)
{
    float m = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        m = f8_maximum(m, v[i]);
    return m;
}

static float amax_row(const float *v, int64_t n)
{
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i++)
        bits = f8_amax_bits(bits, v[i]);
    return f8_from_bits(bits);
}

/* Reduces each run of `block` columns of v [rows, n] to an element of out; the last run may be
 * short. */
static void amax_runs(const float *v, int64_t rows, int64_t n, int64_t block, float *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c += block)
            *out++ = amax_row(v + r * n + c, n - c < block ? n - c : block);
}

static void reduce_rows(f8_op op, const float *v, int64_t rows, int64_t n, float *out)
{
    for (int64_t r = 0; r < rows; r++)
        out[r] = op == F8_OP_REDUCE_SUM   ? sum_row(v + r * n, n)
                 : op == F8_OP_REDUCE_MAX ? max_row(v + r * n, n)
                                          : amax_row(v + r * n, n);
}

/* ---- columns ---- */

/* Adds each block of `block` rows of v [rows, n] to a row of out, from its first row to its
 * last. */
static void sum_blocks(const float *v, int64_t rows, int64_t n, int64_t block, float *out)
{
    for (int64_t first = 0; first < rows; first += block, out += n) {
        const int64_t end = rows - first < block ? rows : first + block;
        memcpy(out, v + first * n, (size_t)n * sizeof *out);
        for (int64_t r = first + 1; r < end; r++)
            for (int64_t c = 0; c < n; c++)
                out[c] += v[r * n + c];
    }
}

/* Adds blocks of 64 rows, then the sums of the blocks by the same rule. */
static void sum_all_rows(f8_interp *x, const float *v, int64_t rows, int64_t n, float *out)
{
    if (rows <= ROWS) {
        sum_blocks(v, rows, n, ROWS, out);
        return;
    }
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    const size_t bytes = (size_t)(blocks * n) * sizeof *out;
    float *sums = f8_interp_alloc(x, bytes);
    if (!sums)
        return;
    sum_blocks(v, rows, n, ROWS, sums);
    sum_all_rows(x, sums, blocks, n, out); /* recursion at most 11 deep: rows < 2^63 */
    f8_interp_free(x, sums, bytes);
}

/* Adds each block of `block` rows of v [rows, n] as if it were all. */
static void sum_columns(f8_interp *x, const float *v, int64_t rows, int64_t n, int64_t block,
                        float *out)
{
    if (block <= ROWS) {
        sum_blocks(v, rows, n, block, out);
        return;
    }
    for (int64_t first = 0; first < rows; first += block, out += n)
        sum_all_rows(x, v + first * n, rows - first < block ? rows - first : block, n, out);
}

/* Reduces each block of `block` rows of v [rows, n] to a row of out. */
static void max_columns(f8_op op, const float *v, int64_t rows, int64_t n, int64_t block,
                        float *out)
{
    for (int64_t i = 0; i < (rows + block - 1) / block * n; i++)
        out[i] = op == F8_OP_REDUCE_MAX ? -INFINITY : 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            float *to = &out[r / block * n + c];
            *to = op == F8_OP_REDUCE_MAX ? f8_maximum(*to, v[r * n + c])
                                         : f8_from_bits(f8_amax_bits(f8_bits(*to), v[r * n + c]));
        }
}

/* ---- double ---- */

static double join(f8_op op, double a, double b)
{
    if (op == F8_OP_REDUCE_SUM)
        return a + b;
    if (op == F8_OP_REDUCE_AMAX)
        b = fabs(b);
    return isnan(a) || isnan(b) ? NAN : b > a ? b : a;
}

/* Reduces blocks of rows, or blocks of columns of each row. */
static void reduce_doubles(f8_op op, const double *v, int64_t rows, int64_t n, int64_t block,
                           bool columns, double *out)
{
    const double start = op == F8_OP_REDUCE_MAX ? -INFINITY : 0;
    const int64_t each = columns ? 0 : (n + block - 1) / block; /* results for each row */
    const int64_t results = columns ? (rows + block - 1) / block * n : rows * each;
    for (int64_t i = 0; i < results; i++)
        out[i] = start;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            double *to = columns ? &out[r / block * n + c] : &out[r * each + c / block];
            *to = join(op, *to, v[r * n + c]);
        }
}

/* ---- one axis ---- */

/* The first axis or the last. */
static void reduce_axis(f8_interp *x, f8_op op, int64_t axis, int64_t block, const f8_rvalue *in,
                        f8_rvalue *out)
{
    if (x->status != F8_OK)
        return;
    const f8_type *t = &in->type;
    const bool columns = axis != t->rank - 1; /* else axis 0, the only other one allowed */
    const bool runs = !columns && block > 0;  /* an amax of blocks */
    const int64_t rows = columns ? t->dim[0] : f8_type_rows(t);
    const int64_t n = f8_type_elements(t) / rows;
    if (x->wide)
        reduce_doubles(op, in->data, rows, n,
                       block > 0 ? block
                       : columns ? rows
                                 : n,
                       columns, out->data);
    else if (runs)
        amax_runs(in->data, rows, n, block, out->data);
    else if (!columns)
        reduce_rows(op, in->data, rows, n, out->data);
    else if (op != F8_OP_REDUCE_SUM)
        max_columns(op, in->data, rows, n, block > 0 ? block : rows, out->data);
    else
        sum_columns(x, in->data, rows, n, block > 0 ? block : rows, out->data);
}

/* ---- several axes ---- */

unsigned f8_interp_axes(const f8_graph *g, f8_ref r)
{
    const f8_ints axes = f8_attr_ints(g, r, F8_A_AXES);
    unsigned bits = 1u << f8_attr_i(g, r, F8_A_AXIS);
    for (int i = 0; i < axes.n; i++)
        bits |= 1u << axes.v[i];
    return bits;
}

/* The elements of `in` as [rest, count]: those of one result are a row, in their order in `in`. */
static f8_rvalue *gathered(f8_interp *x, unsigned axes, const f8_rvalue *in, int64_t rest,
                           int64_t count)
{
    f8_rvalue *m = f8_interp_temp(x, &(f8_type){.dtype = F8_F32, .rank = 2, .dim = {rest, count}});
    const size_t size = f8_interp_element(x, F8_F32);
    for (int64_t i = 0; m && i < rest * count; i++) {
        int64_t left = i, stride[2] = {1, 1}, at[2] = {0, 0};
        for (int d = in->type.rank - 1; d >= 0; d--) {
            const int reduced = axes >> d & 1;
            at[reduced] += left % in->type.dim[d] * stride[reduced];
            stride[reduced] *= in->type.dim[d];
            left /= in->type.dim[d];
        }
        memcpy((uint8_t *)m->data + (size_t)(at[0] * count + at[1]) * size,
               (const uint8_t *)in->data + (size_t)i * size, size);
    }
    return m;
}

/* Whether every reduced axis comes before every other one, axes of one element aside. */
static bool are_first(unsigned axes, const f8_type *t)
{
    bool other = false;
    for (int d = 0; d < t->rank; d++) {
        const bool here = axes >> d & 1;
        if (t->dim[d] > 1 && here && other)
            return false;
        other |= t->dim[d] > 1 && !here;
    }
    return true;
}

void f8_interp_reduce_axes(f8_interp *x, f8_op op, unsigned axes, int64_t block,
                           const f8_rvalue *in, f8_rvalue *out)
{
    const f8_type *t = &in->type;
    if (x->status != F8_OK)
        return;
    if (axes == 1u || axes == 1u << (t->rank - 1)) {
        reduce_axis(x, op, axes == 1u && t->rank > 1 ? 0 : t->rank - 1, block, in, out);
        return;
    }
    const int64_t rest = f8_type_elements(&out->type), count = f8_type_elements(t) / rest;
    f8_rvalue view = *in;
    if (rest == 1) { /* the last axis, then its results */
        f8_rvalue *rows =
            f8_interp_temp(x, &(f8_type){.dtype = F8_F32, .rank = 2, .dim = {1, f8_type_rows(t)}});
        if (rows) {
            reduce_axis(x, op, t->rank - 1, 0, in, rows);
            reduce_axis(x, op, 1, 0, rows, out);
        }
    } else if (are_first(axes, t) && count > 1) {
        view.type = (f8_type){.dtype = F8_F32, .rank = 2, .dim = {count, rest}};
        reduce_axis(x, op, 0, 0, &view, out);
    } else {
        f8_rvalue *m = gathered(x, axes, in, rest, count);
        if (m)
            reduce_axis(x, op, 1, 0, m, out);
    }
}
