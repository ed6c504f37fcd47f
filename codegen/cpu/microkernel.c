/* Register-blocked products, packing and storing: see microkernel.h. */
#include "codegen/cpu/microkernel.h"

enum { MAX_ROWS = 16, MAX_ACC = 4 * MAX_ROWS };

/* ---- products ---- */

/* Rows of a tile that is `width` vectors wide. Accumulators, the vectors of b and a broadcast
 * element must fit into the registers (32 of 16 lanes, or 16 of 8), and the rows must divide
 * F8_MK_BLOCK. */
static int tile_rows(const f8_llvm_module *m, int width)
{
    static const int avx512[] = {0, 16, 8, 8, 6};
    return m->llvm->avx512 ? avx512[width] : 6;
}

int f8_mk_width(const f8_llvm_module *m, int vectors)
{
    if (!m->llvm->avx512)
        return 1;
    int parts = (vectors + 3) / 4;
    return (vectors + parts - 1) / parts;
}

typedef struct product {
    f8_llvm_module *m;
    const f8_mk_gemm *g;
    int rows;
    LLVMValueRef a, b, c; /* of the first row of this tile */
} product;

static LLVMValueRef vector_at(product *p, LLVMValueRef base, int64_t offset)
{
    return f8_ll_vload(p->m, p->m->f32, f8_ll_at(p->m, p->m->f32, base, f8_ll_i64(p->m, offset)),
                       NULL, NULL);
}

/* acc[row][:] += a[row][depth] * b[depth][:] for rows [first, last) */
static void step(product *p, LLVMValueRef depth, int first, int last, LLVMValueRef *acc)
{
    f8_llvm_module *m = p->m;
    const f8_mk_gemm *g = p->g;
    LLVMValueRef a_at = m->ll->BuildNSWMul(m->b, depth, f8_ll_i64(m, g->a_depth), "");
    LLVMValueRef b_at = m->ll->BuildNSWMul(m->b, depth, f8_ll_i64(m, g->b_depth), "");
    LLVMValueRef a = f8_ll_at(m, m->f32, p->a, a_at), b = f8_ll_at(m, m->f32, p->b, b_at);
    LLVMValueRef bv[4];
    for (int w = 0; w < g->width; w++)
        bv[w] = vector_at(p, b, w * F8_MK_LANES);
    for (int r = first; r < last; r++) {
        LLVMValueRef at = f8_ll_at(m, m->f32, a, f8_ll_i64(m, r * g->a_row));
        LLVMValueRef x = f8_ll_splat(m, f8_ll_load(m, m->f32, at));
        for (int w = 0; w < g->width; w++)
            acc[r * g->width + w] = f8_ll_fma(m, x, bv[w], acc[r * g->width + w]);
    }
}

static void start(product *p, LLVMValueRef factor, LLVMValueRef *acc)
{
    f8_llvm_module *m = p->m;
    const f8_mk_gemm *g = p->g;
    for (int r = 0; r < p->rows; r++) {
        LLVMValueRef f = NULL;
        if (g->init == F8_MK_SCALE)
            f = f8_ll_splat(m, f8_ll_load(m, m->f32, f8_ll_at(m, m->f32, factor, f8_ll_i64(m, r))));
        for (int w = 0; w < g->width; w++) {
            LLVMValueRef *to = &acc[r * g->width + w];
            *to = g->init == F8_MK_ZERO ? f8_ll_vf32(m, 0.0f)
                                        : vector_at(p, p->c, r * g->c_row + w * F8_MK_LANES);
            if (f)
                *to = m->ll->BuildFMul(m->b, *to, f, "");
        }
    }
}

static void accumulate(product *p, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef *acc)
{
    LLVMValueRef now[MAX_ACC];
    f8_ll_loop l = {.value = now};
    int count = p->rows * p->g->width;
    f8_ll_loop_begin(p->m, &l, begin, end, f8_ll_i64(p->m, 1), acc, count);
    for (int i = 0; i < count; i++)
        acc[i] = l.value[i];
    step(p, l.index, 0, p->rows, acc);
    f8_ll_loop_end(p->m, &l, acc);
    for (int i = 0; i < count; i++)
        acc[i] = l.value[i];
}

/* The square on the diagonal: depth row0 + i contributes to rows i.. (UPTO) or ..i (FROM). */
static void triangle(product *p, LLVMValueRef row0, LLVMValueRef *acc)
{
    f8_llvm_module *m = p->m;
    for (int i = 0; i < p->rows; i++) {
        LLVMValueRef depth = m->ll->BuildNSWAdd(m->b, row0, f8_ll_i64(m, i), "");
        bool upto = p->g->part == F8_MK_UPTO;
        step(p, depth, upto ? i : 0, upto ? p->rows : i + 1, acc);
    }
}

static LLVMValueRef row_pointer(f8_llvm_module *m, LLVMValueRef base, LLVMValueRef row,
                                int64_t stride)
{
    return f8_ll_at(m, m->f32, base, m->ll->BuildNSWMul(m->b, row, f8_ll_i64(m, stride), ""));
}

LLVMValueRef f8_mk_gemm_function(f8_llvm_module *m, const char *name, const f8_mk_gemm *g)
{
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->ptr, m->i64, m->i64, m->ptr};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 6);
    f8_ll_noalias(m, f, 0);
    product p = {.m = m, .g = g, .rows = tile_rows(m, g->width)};
    LLVMValueRef rows = f8_ll_param(m, 3), depth = f8_ll_param(m, 4), acc[MAX_ACC];
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), rows, f8_ll_i64(m, p.rows), NULL, 0);
    p.c = row_pointer(m, f8_ll_param(m, 0), l.index, g->c_row);
    p.a = row_pointer(m, f8_ll_param(m, 1), l.index, g->a_row);
    p.b = f8_ll_param(m, 2);
    start(&p, row_pointer(m, f8_ll_param(m, 5), l.index, 1), acc);
    LLVMValueRef begin = f8_ll_i64(m, 0), end = depth;
    if (g->part == F8_MK_UPTO)
        end = l.index;
    if (g->part == F8_MK_FROM) {
        triangle(&p, l.index, acc);
        begin = m->ll->BuildNSWAdd(m->b, l.index, f8_ll_i64(m, p.rows), "");
    }
    accumulate(&p, begin, end, acc);
    if (g->part == F8_MK_UPTO)
        triangle(&p, l.index, acc);
    for (int r = 0; r < p.rows; r++)
        for (int w = 0; w < g->width; w++)
            f8_ll_vstore(m, acc[r * g->width + w],
                         f8_ll_at(m, m->f32, p.c, f8_ll_i64(m, r * g->c_row + w * F8_MK_LANES)),
                         NULL);
    f8_ll_loop_end(m, &l, NULL);
    m->ll->BuildRetVoid(m->b);
    return f;
}

/* ---- rows in and out ---- */

static int64_t padded(int64_t columns)
{
    return f8_aligned(columns, F8_MK_LANES);
}

/* The mask of the vector that starts at column `at`; NULL if it is whole. */
static LLVMValueRef chunk_mask(f8_llvm_module *m, int64_t columns, int64_t at)
{
    return columns - at >= F8_MK_LANES ? NULL : f8_ll_mask(m, f8_ll_i64(m, columns - at));
}

/* Code for a row is not a loop: heads are only a few vectors long. */
LLVMValueRef f8_mk_pack_function(f8_llvm_module *m, const char *name, f8_dtype dtype,
                                 int64_t columns, int64_t stride)
{
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->i64};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 3);
    f8_ll_noalias(m, f, 0);
    LLVMTypeRef element = dtype == F8_BF16 ? m->i16 : m->f32;
    LLVMValueRef rows = f8_ll_param(m, 2), block = f8_ll_i64(m, F8_MK_BLOCK), one = f8_ll_i64(m, 1);
    int64_t width = padded(columns);
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), rows, one, NULL, 0);
    LLVMValueRef to = row_pointer(m, f8_ll_param(m, 0), l.index, width);
    LLVMValueRef from = f8_ll_at(m, element, f8_ll_param(m, 1),
                                 m->ll->BuildNSWMul(m->b, l.index, f8_ll_i64(m, stride), ""));
    for (int64_t c = 0; c < width; c += F8_MK_LANES) {
        LLVMValueRef x = f8_ll_vload(m, element, f8_ll_at(m, element, from, f8_ll_i64(m, c)),
                                     chunk_mask(m, columns, c), NULL);
        if (dtype == F8_BF16)
            x = f8_ll_bf16_to_f32(m, x);
        f8_ll_vstore(m, x, f8_ll_at(m, m->f32, to, f8_ll_i64(m, c)), NULL);
    }
    f8_ll_loop_end(m, &l, NULL);
    f8_ll_loop_begin(m, &l, rows, block, one, NULL, 0);
    to = row_pointer(m, f8_ll_param(m, 0), l.index, width);
    for (int64_t c = 0; c < width; c += F8_MK_LANES)
        f8_ll_vstore(m, f8_ll_vf32(m, 0.0f), f8_ll_at(m, m->f32, to, f8_ll_i64(m, c)), NULL);
    f8_ll_loop_end(m, &l, NULL);
    m->ll->BuildRetVoid(m->b);
    return f;
}

LLVMValueRef f8_mk_store_function(f8_llvm_module *m, const char *name, f8_dtype dtype,
                                  int64_t columns, int64_t stride)
{
    LLVMTypeRef params[] = {m->ptr, m->ptr, m->i64, m->ptr};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 4);
    f8_ll_noalias(m, f, 0);
    LLVMTypeRef element = dtype == F8_BF16 ? m->i16 : m->f32;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_param(m, 2), f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef to = f8_ll_at(m, element, f8_ll_param(m, 0),
                               m->ll->BuildNSWMul(m->b, l.index, f8_ll_i64(m, stride), ""));
    LLVMValueRef from = row_pointer(m, f8_ll_param(m, 1), l.index, padded(columns));
    LLVMValueRef factor = f8_ll_splat(
        m, f8_ll_load(m, m->f32, f8_ll_at(m, m->f32, f8_ll_param(m, 3), l.index)));
    for (int64_t c = 0; c < columns; c += F8_MK_LANES) {
        LLVMValueRef x =
            f8_ll_vload(m, m->f32, f8_ll_at(m, m->f32, from, f8_ll_i64(m, c)), NULL, NULL);
        x = m->ll->BuildFMul(m->b, x, factor, "");
        if (dtype == F8_BF16)
            x = f8_ll_f32_to_bf16(m, x);
        f8_ll_vstore(m, x, f8_ll_at(m, element, to, f8_ll_i64(m, c)), chunk_mask(m, columns, c));
    }
    f8_ll_loop_end(m, &l, NULL);
    m->ll->BuildRetVoid(m->b);
    return f;
}

/* ---- transposition ---- */

/* Swaps the off-diagonal h x h quarters of every 2h x 2h square. For h = 8, 4, 2, 1 in turn, this
 * transposes the whole matrix. */
static void swap_quarters(f8_llvm_module *m, LLVMValueRef *row, int h)
{
    LLVMValueRef low[F8_MK_LANES], high[F8_MK_LANES];
    for (int l = 0; l < F8_MK_LANES; l++) {
        low[l] = f8_ll_i32(m, l & h ? F8_MK_LANES + l - h : l);
        high[l] = f8_ll_i32(m, l & h ? F8_MK_LANES + l : l + h);
    }
    LLVMValueRef lows = m->ll->ConstVector(low, F8_MK_LANES);
    LLVMValueRef highs = m->ll->ConstVector(high, F8_MK_LANES);
    for (int i = 0; i < F8_MK_LANES; i++)
        if (!(i & h)) {
            LLVMValueRef a = row[i], b = row[i + h];
            row[i] = m->ll->BuildShuffleVector(m->b, a, b, lows, "");
            row[i + h] = m->ll->BuildShuffleVector(m->b, a, b, highs, "");
        }
}

LLVMValueRef f8_mk_transpose_function(f8_llvm_module *m, const char *name, int64_t columns)
{
    LLVMTypeRef params[] = {m->ptr, m->ptr};
    LLVMValueRef f = f8_ll_function_begin(m, name, m->void_, params, 2), row[F8_MK_LANES];
    f8_ll_noalias(m, f, 0);
    LLVMValueRef zero = f8_ll_i64(m, 0), step16 = f8_ll_i64(m, F8_MK_LANES);
    f8_ll_loop rows, cols;
    f8_ll_loop_begin(m, &rows, zero, f8_ll_i64(m, F8_MK_BLOCK), step16, NULL, 0);
    f8_ll_loop_begin(m, &cols, zero, f8_ll_i64(m, columns), step16, NULL, 0);
    LLVMValueRef from = row_pointer(m, f8_ll_param(m, 1), rows.index, columns);
    LLVMValueRef to = row_pointer(m, f8_ll_param(m, 0), cols.index, F8_MK_BLOCK);
    from = f8_ll_at(m, m->f32, from, cols.index);
    to = f8_ll_at(m, m->f32, to, rows.index);
    for (int i = 0; i < F8_MK_LANES; i++)
        row[i] = f8_ll_vload(m, m->f32, f8_ll_at(m, m->f32, from, f8_ll_i64(m, i * columns)), NULL,
                             NULL);
    for (int h = F8_MK_LANES / 2; h; h /= 2)
        swap_quarters(m, row, h);
    for (int i = 0; i < F8_MK_LANES; i++)
        f8_ll_vstore(m, row[i], f8_ll_at(m, m->f32, to, f8_ll_i64(m, i * F8_MK_BLOCK)), NULL);
    f8_ll_loop_end(m, &cols, NULL);
    f8_ll_loop_end(m, &rows, NULL);
    m->ll->BuildRetVoid(m->b);
    return f;
}
