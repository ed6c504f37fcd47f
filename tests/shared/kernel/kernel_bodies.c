/* See kernel_bodies.h. */
#include "tests/shared/kernel/kernel_bodies.h"

#include <math.h>

#include "codegen/kernel/kernel.h"
#include "ir/num/granularity.h"

const int kc_ragged[KC_RAGGED] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 255, 256, 257, 300, 1000};

/* ---- values ---- */

f8_ref kc_mean(kcase *c, f8_ref x)
{
    const int64_t n = f8_type_columns(f8_type_of(c->g, x));
    return f8_binary(c->g, F8_OP_DIV, f8_reduce(c->g, F8_OP_REDUCE_SUM, x, -1),
                     f8_const(c->g, (double)n));
}

f8_ref kc_column_sum(kcase *c, f8_ref x)
{
    const int64_t block = f8_type_rows(f8_type_of(c->g, x)) > F8_COLSUM_BLOCK ? F8_COLSUM_BLOCK : 0;
    const f8_attr attr[] = {F8_INT(F8_A_AXIS, 0), F8_INT(F8_A_BLOCK, block)};
    return f8_make(c->g, F8_OP_REDUCE_SUM, &x, 1, attr, 2);
}

f8_ref kc_column_amax(kcase *c, f8_ref x, int64_t block)
{
    const f8_attr attr[] = {F8_INT(F8_A_AXIS, 0), F8_INT(F8_A_BLOCK, block)};
    return f8_make(c->g, F8_OP_REDUCE_AMAX, &x, 1, attr, 2);
}

f8_ref kc_quantize(kcase *c, f8_ref x, f8_ref scale, f8_dtype to, bool saturate)
{
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, to), F8_INT(F8_A_SATURATE, saturate)};
    return f8_make(c->g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 2);
}

f8_ref kc_transposed(kcase *c, f8_ref x)
{
    const f8_attr perm = F8_INTS(F8_A_PERM, ((f8_ints){2, {1, 0}}));
    return f8_make(c->g, F8_OP_TRANSPOSE, &x, 1, &perm, 1);
}

f8_ref kc_roll(kcase *c, f8_ref x, int64_t shift, int64_t group)
{
    const f8_attr attr[] = {F8_INT(F8_A_SHIFT, shift), F8_INT(F8_A_GROUP, group)};
    return f8_make(c->g, F8_OP_ROLL, &x, 1, attr, 2);
}

f8_ref kc_exp_off(kcase *c, f8_ref x, f8_ref top)
{
    return f8_unary(c->g, F8_OP_EXP, f8_binary(c->g, F8_OP_SUB, x, top));
}

/* ---- rows ---- */

void kc_layernorm(kcase *c, f8_dtype dtype, int rows, int cols, bool codes)
{
    f8_graph *g = c->g;
    const f8_ref x0 = kc_input(c, dtype, 2, rows, cols), w = kc_input(c, F8_F32, 1, cols),
                 b = kc_input(c, F8_F32, 1, cols), scale = codes ? kc_input(c, F8_F32, 0) : 0;
    const f8_ref x = f8_cast(g, x0, F8_F32), mean = kc_mean(c, x),
                 off = f8_binary(g, F8_OP_SUB, x, mean);
    const f8_ref var = kc_mean(c, f8_binary(g, F8_OP_MUL, off, off));
    const f8_ref rstd = f8_unary(g, F8_OP_RSQRT, f8_binary(g, F8_OP_ADD, var, f8_const(g, 1e-5)));
    const f8_ref y =
        f8_binary(g, F8_OP_ADD, f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_MUL, off, rstd), w), b);
    kc_out(c, f8_cast(g, y, F8_BF16));
    kc_out(c, mean);
    kc_out(c, rstd);
    if (codes && cols > 1)
        kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, y, -1));
    if (codes)
        kc_out(c, kc_quantize(c, y, scale, F8_E4M3, true));
    kc_phase(c, rows, cols);
}

void kc_residual_norm(kcase *c, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_BF16, 2, rows, cols), y = kc_input(c, F8_F32, 2, rows, cols),
                 w = kc_input(c, F8_F32, 1, cols), scale = kc_input(c, F8_F32, 0);
    const f8_ref rounded = f8_cast(g, f8_cast(g, y, F8_BF16), F8_F32),
                 sum = f8_cast(g, f8_binary(g, F8_OP_ADD, f8_cast(g, x, F8_F32), rounded), F8_BF16),
                 z = f8_cast(g, sum, F8_F32), off = f8_binary(g, F8_OP_SUB, z, kc_mean(c, z)),
                 var = kc_mean(c, f8_binary(g, F8_OP_MUL, off, off)),
                 by = f8_binary(g, F8_OP_MUL, off, f8_unary(g, F8_OP_RSQRT, var));
    const f8_ref out = f8_binary(g, F8_OP_MUL, by, w),
                 q = kc_quantize(c, out, scale, F8_E4M3, true);
    kc_out(c, sum);
    kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, out, -1));
    kc_out(c, q);
    kc_out(c, kc_transposed(c, q));
    kc_phase(c, rows, cols);
}

void kc_norm_backward(kcase *c, int rows, int cols, bool sums, bool codes, bool reduce)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_BF16, 2, rows, cols), dy = kc_input(c, F8_F32, 2, rows, cols),
                 w = kc_input(c, F8_F32, 1, cols), scale = kc_input(c, F8_F32, 0);
    const f8_ref xf = f8_cast(g, x, F8_F32),
                 dyw = f8_binary(g, F8_OP_MUL, f8_unary(g, F8_OP_TANH, dy), w);
    const f8_ref t = f8_binary(g, F8_OP_MUL, dyw, xf);
    const f8_ref dx =
        reduce ? f8_binary(g, F8_OP_SUB, dyw, f8_binary(g, F8_OP_MUL, xf, kc_mean(c, t))) : t;
    kc_out(c, f8_cast(g, dx, F8_BF16));
    if (reduce && cols > 1)
        kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, dx, -1));
    if (sums) {
        kc_out(c, kc_column_sum(c, f8_binary(g, F8_OP_MUL, dy, xf)));
        kc_out(c, kc_column_sum(c, f8_cast(g, f8_cast(g, dy, F8_BF16), F8_F32)));
        kc_out(c, kc_column_sum(c, dx));
    }
    if (codes) {
        const f8_ref q = kc_quantize(c, dx, scale, F8_E5M2, true);
        kc_out(c, q);
        kc_out(c, kc_transposed(c, q));
    }
    kc_phase(c, rows, cols);
}

void kc_column_blocks(kcase *c, int rows, int cols, kc_blocks how)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_BF16, 2, rows, cols), y = kc_input(c, F8_F32, 2, rows, cols);
    const f8_ref xf = f8_cast(g, x, F8_F32);
    f8_ref z = f8_binary(g, F8_OP_MUL, xf, y);
    kc_out(c, kc_column_amax(c, xf, how.block[0]));
    if (how.reduce)
        z = f8_binary(g, F8_OP_SUB, z, kc_mean(c, z));
    for (int i = 1; i < 3 && how.block[i]; i++)
        kc_out(c, kc_column_amax(c, z, how.block[i]));
    if (how.sums) {
        kc_out(c, kc_column_sum(c, z));
        kc_out(c, kc_column_sum(c, xf));
    }
    if (how.codes) {
        const f8_ref q = kc_quantize(c, z, f8_const(g, 4), F8_E4M3, true);
        kc_out(c, q);
        kc_out(c, kc_transposed(c, q));
    }
    kc_out(c, f8_cast(g, z, F8_BF16));
    kc_phase(c, rows, cols);
}

void kc_row_blocks(kcase *c, int blocks, int cols, f8_dtype from, bool gelu)
{
    f8_graph *g = c->g;
    const f8_ref x0 = kc_input(c, from, 2, blocks, cols);
    f8_ref x = f8_cast(g, x0, F8_F32);
    if (gelu)
        x = f8_binary(g, F8_OP_MUL, x, f8_unary(g, F8_OP_TANH, x));
    const f8_ref amax = f8_reduce(g, F8_OP_REDUCE_AMAX, x, -1),
                 s = f8_binary(g, F8_OP_DIV, f8_const(g, 448), amax),
                 usable = f8_binary(g, F8_OP_LT, f8_const(g, 0), amax),
                 scale = f8_select(g, usable, s, f8_const(g, 1));
    kc_out(c, kc_quantize(c, x, scale, F8_E4M3, true));
    kc_out(c, f8_binary(g, F8_OP_DIV, f8_const(g, 1), scale));
    kc_phase(c, blocks, cols);
}

void kc_scaled_runs(kcase *c, int runs, int high, int cols, bool turned)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_BF16, 3, runs, high, cols),
                 s = kc_input(c, F8_F32, 3, runs, 1, cols);
    const f8_ref q = kc_quantize(c, f8_cast(g, x, F8_F32), s, F8_E4M3, true);
    kc_out(c, q);
    if (turned) {
        const f8_type matrix = {.dtype = F8_E4M3, .rank = 2, .dim = {runs * high, cols}};
        const f8_ref rows = f8_reshape(g, q, &matrix);
        kc_alias(c, rows, q);
        kc_out(c, kc_transposed(c, rows));
    }
    kc_phase(c, (int64_t)runs * high, cols);
}

static f8_ref with_blocks(kcase *c, f8_op op, f8_ref x, f8_ref s, int rows, int cols)
{
    char grain[48];
    const f8_granularity g = {rows, cols};
    const f8_attr attr[] = {
        F8_STR(F8_A_GRANULARITY, f8_intern(c->m, f8_granularity_print(g, grain, sizeof grain))),
        F8_INT(F8_A_FORMAT, F8_E4M3)};
    return f8_make(c->g, op, (f8_ref[]){x, s}, 2, attr, op == F8_OP_QUANTIZE ? 2 : 1);
}

void kc_column_runs(kcase *c, int rows, int cols, int block, int how)
{
    f8_graph *g = c->g;
    const f8_ref x0 = kc_input(c, F8_BF16, 2, rows, cols),
                 before = kc_input(c, F8_F32, 2, 1, (cols + block - 1) / block);
    f8_ref x = f8_cast(g, x0, F8_F32);
    if (how & KC_REDUCED)
        x = f8_binary(g, F8_OP_SUB, f8_unary(g, F8_OP_TANH, x), kc_mean(c, x));
    const f8_attr runs[] = {F8_INT(F8_A_AXIS, -1), F8_INT(F8_A_BLOCK, block)};
    const f8_ref amax = f8_make(g, F8_OP_REDUCE_AMAX, &x, 1, runs, 2);
    const f8_ref usable = f8_binary(g, F8_OP_LT, f8_const(g, 0), amax),
                 s = f8_select(g, usable, f8_binary(g, F8_OP_DIV, f8_const(g, 448), amax), before);
    const f8_ref q = with_blocks(c, F8_OP_QUANTIZE, x, s, 1, block),
                 inverse = f8_binary(g, F8_OP_DIV, f8_const(g, 1), s);
    const f8_attr e8m0[] = {F8_INT(F8_A_FORMAT, F8_E8M0), F8_INT(F8_A_SATURATE, 0)};
    kc_out(c, q);
    kc_out(c, inverse);
    const f8_attr shape = F8_INTS(F8_A_SHAPE, ((f8_ints){1, {(cols + block - 1) / block}}));
    const f8_ref number = f8_make(g, F8_OP_IOTA, NULL, 0, &shape, 1);
    const f8_ref counted =
        f8_make_clone(g, F8_OP_CAST, &number, 1, &F8_INT(F8_A_TO, F8_F32), 1, s); /* this phase's */
    kc_out(c, f8_binary(g, F8_OP_ADD, s, counted));
    if (how & KC_MAXIMA)
        kc_out(c, kc_column_amax(c, x, 32));
    if (how & KC_TURNED)
        kc_out(c, kc_transposed(c, q));
    kc_out(c, f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){amax, f8_const(g, 0.002)}, 2, e8m0, 2));
    kc_out(c,
           f8_cast(g, f8_binary(g, F8_OP_MUL, s, f8_reduce(g, F8_OP_REDUCE_MAX, x, -1)), F8_BF16));
    kc_phase(c, rows, cols);
    kc_out(c, with_blocks(c, F8_OP_DEQUANTIZE, q, inverse, 1, block));
    kc_phase(c, rows, cols);
}

const int kc_tile_size[KC_TILE_SIZES][2] = {{128, 128}, {2, 32},   {3, 16},  {32, 1},
                                            {7, 1},     {64, 256}, {200, 64}};

void kc_tiles(kcase *c, int rows, int cols, int high, int wide)
{
    const f8_ref x = kc_input(c, F8_BF16, 2, rows, cols),
                 s = kc_input(c, F8_F32, 2, (rows + high - 1) / high, (cols + wide - 1) / wide);
    kc_out(c, with_blocks(c, F8_OP_QUANTIZE, x, s, high, wide));
    kc_phase(c, rows, cols);
}

void kc_softmax(kcase *c, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_F32, 2, rows, cols),
                 top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1), e = kc_exp_off(c, x, top);
    const f8_ref sum = f8_reduce(g, F8_OP_REDUCE_SUM, e, -1), y = f8_binary(g, F8_OP_DIV, e, sum);
    kc_out(c, y);
    kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, y, -1));
    kc_out(c, f8_binary(g, F8_OP_ADD, f8_unary(g, F8_OP_LOG, sum), top));
    kc_phase(c, rows, cols);
}

/* ---- ops and dtypes ---- */

void kc_pointwise(kcase *c, int rows, int cols)
{
    static const f8_op unary[] = {
        F8_OP_NEG, F8_OP_ABS, F8_OP_SQRT, F8_OP_RSQRT,   F8_OP_EXP,   F8_OP_LOG,      F8_OP_TANH,
        F8_OP_ERF, F8_OP_SIN, F8_OP_COS,  F8_OP_SIGMOID, F8_OP_FLOOR, F8_OP_ISFINITE, F8_OP_RELU};
    static const f8_op binary[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_DIV, F8_OP_MAX,
                                   F8_OP_MIN, F8_OP_LT,  F8_OP_LE,  F8_OP_EQ};
    const f8_ref x = kc_input(c, F8_F32, 2, rows, cols), y = kc_input(c, F8_F32, 2, rows, cols);
    const f8_ref row = kc_input(c, F8_F32, 2, rows, 1), col = kc_input(c, F8_F32, 1, cols),
                 one = kc_input(c, F8_F32, 0);
    const f8_ref other[] = {y, row, col, one};
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        kc_out(c, f8_unary(c->g, unary[i], x));
    kc_phase(c, 1, (int64_t)rows * cols);
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) {
            kc_out(c, f8_binary(c->g, binary[i], x, other[k]));
            if (k)
                kc_out(c, f8_binary(c->g, binary[i], other[k], x));
        }
        kc_out(c, f8_make(c->g, F8_OP_FMA, (f8_ref[]){x, other[k], y}, 3, NULL, 0));
        kc_phase(c, rows, cols);
    }
}

void kc_ints_and_truth(kcase *c, int rows, int cols)
{
    static const f8_op ops[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_MAX,
                                F8_OP_MIN, F8_OP_LT,  F8_OP_LE,  F8_OP_EQ};
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_I32, 2, rows, cols), y = kc_input(c, F8_I32, 2, rows, 1);
    const f8_ref p = kc_input(c, F8_BOOL, 2, rows, cols), q = kc_input(c, F8_BOOL, 1, cols);
    const f8_ref f = kc_input(c, F8_F32, 2, rows, cols), both = f8_binary(g, F8_OP_AND, p, q);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        kc_out(c, f8_binary(g, ops[i], x, y));
    kc_out(c, f8_unary(g, F8_OP_NEG, x));
    kc_out(c, f8_unary(g, F8_OP_ABS, x));
    kc_out(c, both);
    kc_out(c, f8_binary(g, F8_OP_OR, p, f8_unary(g, F8_OP_NOT, q)));
    kc_out(c, f8_select(g, both, x, y));
    kc_out(c, f8_select(g, p, f, f8_const(g, -0.5)));
    kc_out(c, f8_cast(g, p, F8_F32));
    kc_out(c, f8_cast(g, p, F8_I32));
    kc_out(c, f8_cast(g, x, F8_F32));
    kc_out(c, f8_cast(g, f, F8_I32));
    kc_phase(c, rows, cols);
}

void kc_narrow(kcase *c, f8_ref scale, f8_ref wide)
{
    static const f8_dtype types[] = {F8_BF16, F8_F16, F8_E4M3, F8_E5M2};
    const f8_type *t = f8_type_of(c->g, wide);
    const int rows = (int)f8_type_rows(t), cols = (int)f8_type_columns(t);
    for (int i = 0; i < 4; i++) {
        const f8_ref x = kc_input(c, types[i], 2, rows, cols);
        const f8_ref f = f8_binary(c->g, F8_OP_MUL, f8_cast(c->g, x, F8_F32), scale);
        kc_out(c, f);
        if (i < 2) {
            kc_out(c, f8_cast(c->g, f, types[i]));
            kc_out(c, f8_cast(c->g, f8_cast(c->g, wide, types[i]), F8_F32));
        }
        kc_phase(c, rows, cols);
    }
}

void kc_codes(kcase *c, f8_ref scale, f8_ref wide, bool saturate)
{
    for (f8_dtype t = F8_E4M3; t <= F8_E5M2; t++) {
        const f8_ref q = kc_quantize(c, wide, scale, t, saturate);
        kc_out(c, q);
        kc_out(c, f8_cast(c->g, q, F8_F32));
    }
}

/* ---- broadcasts and gathers ---- */

void kc_periodic(kcase *c, int d, bool fused)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_F32, 4, 2, 5, 3, d), table = kc_input(c, F8_F32, 3, 5, 1, d),
                 batch = kc_input(c, F8_F32, 4, 2, 1, 1, d), head = kc_input(c, F8_F32, 2, 3, 1),
                 time = kc_input(c, F8_F32, 4, 1, 5, 3, d);
    f8_ref y = f8_binary(g, F8_OP_MUL, x, table);
    if (fused)
        y = f8_make(g, F8_OP_FMA, (f8_ref[]){y, batch, head}, 3, NULL, 0);
    else
        y = f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_ADD, y, head), batch);
    kc_out(c, f8_binary(g, F8_OP_SUB, y, time));
    kc_phase(c, 30, d);
}

f8_ref kc_embedding(kcase *c, int cols)
{
    const f8_ref table = kc_input(c, F8_F32, 2, 11, cols), ids = kc_ids(c, 11, 2, 3, 5),
                 pos = kc_input(c, F8_F32, 2, 5, cols);
    const f8_ref e = f8_make(c->g, F8_OP_EMBEDDING, (f8_ref[]){table, ids}, 2, NULL, 0);
    kc_out(c, f8_cast(c->g, f8_binary(c->g, F8_OP_ADD, e, pos), F8_BF16));
    kc_phase(c, 15, cols);
    return ids;
}

void kc_targets(kcase *c, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_F32, 2, 4, cols), ids = kc_ids(c, cols, 1, 4);
    const f8_attr shape = F8_INTS(F8_A_SHAPE, ((f8_ints){1, {cols}}));
    const f8_ref index = f8_make(g, F8_OP_IOTA, NULL, 0, &shape, 1);
    const f8_type column = {.dtype = F8_I32, .rank = 2, .dim = {4, 1}};
    const f8_ref target = f8_reshape(g, ids, &column);
    if (target != ids)
        kc_alias(c, target, ids);
    c->place[target].stride = 1;
    const f8_ref hit = f8_binary(g, F8_OP_EQ, index, target);
    const f8_ref e = f8_unary(g, F8_OP_EXP, x), sum = f8_reduce(g, F8_OP_REDUCE_SUM, e, -1);
    kc_out(c, f8_binary(g, F8_OP_SUB, f8_binary(g, F8_OP_DIV, e, sum), f8_cast(g, hit, F8_F32)));
    kc_out(c, f8_reduce(g, F8_OP_REDUCE_SUM, f8_select(g, hit, x, f8_const(g, 0)), -1));
    kc_phase(c, 4, cols);
}

/* The end of a cross-entropy: each row's loss, and the gradient of x. */
static void finish_loss(kcase *c, f8_ref x, f8_ref top, f8_ref sum, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref ids = kc_ids(c, cols, 2, rows, 1), scale = kc_input(c, F8_F32, 2, rows, 1);
    const f8_attr shape = F8_INTS(F8_A_SHAPE, ((f8_ints){1, {cols}}));
    const f8_ref hit = f8_binary(g, F8_OP_EQ, f8_make(g, F8_OP_IOTA, NULL, 0, &shape, 1), ids),
                 own = f8_reduce(g, F8_OP_REDUCE_SUM, f8_select(g, hit, x, f8_const(g, 0)), -1);
    const f8_ref lse = f8_unary(g, F8_OP_LOG, sum),
                 p = kc_exp_off(c, f8_binary(g, F8_OP_SUB, x, top), lse);
    kc_out(c, f8_binary(g, F8_OP_ADD, f8_binary(g, F8_OP_SUB, top, own), lse));
    kc_out(c, f8_cast(g,
                      f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_SUB, p, f8_cast(g, hit, F8_F32)),
                                scale),
                      F8_BF16));
    kc_phase(c, rows, cols);
}

void kc_loss(kcase *c, f8_dtype dtype, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = f8_cast(g, kc_input(c, dtype, 2, rows, cols), F8_F32),
                 top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1),
                 sum = f8_reduce(g, F8_OP_REDUCE_SUM, kc_exp_off(c, x, top), -1);
    finish_loss(c, x, top, sum, rows, cols);
}

void kc_wide_loss(kcase *c, f8_dtype dtype, int rows, int cols, kc_wide how)
{
    f8_graph *g = c->g;
    const f8_attr shape = F8_INTS(F8_A_SHAPE, ((f8_ints){1, {cols}})),
                  of[] = {F8_FLOAT(F8_A_VALUE, how.first), F8_INT(F8_A_TO, F8_I32)};
    const f8_ref read = f8_cast(g, kc_input(c, dtype, 2, rows, cols), F8_F32),
                 x = how.size != 1 ? f8_binary(g, F8_OP_MUL, read, f8_const(g, how.size)) : read,
                 top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1);
    const f8_ref early = f8_binary(g, F8_OP_LT, f8_make(g, F8_OP_IOTA, NULL, 0, &shape, 1),
                                   f8_make(g, F8_OP_CONST, NULL, 0, of, 2));
    const f8_ref some = f8_select(g, early, x, f8_const(g, -INFINITY)),
                 first = f8_reduce(g, F8_OP_REDUCE_MAX, some, -1);
    const f8_ref near =
        f8_binary(g, F8_OP_LT, f8_binary(g, F8_OP_SUB, top, first), f8_const(g, how.above));
    const f8_ref rare = f8_reduce(g, F8_OP_REDUCE_SUM, kc_exp_off(c, x, top), -1);
    const f8_ref most = f8_reduce(g, F8_OP_REDUCE_SUM, kc_exp_off(c, x, first), -1),
                 usual = f8_binary(g, F8_OP_MUL, most, kc_exp_off(c, first, top));
    if (how.out == KC_WIDE_RARE)
        kc_out(c, rare);
    if (how.out == KC_WIDE_USUAL)
        kc_out(c, most);
    finish_loss(c, x, top, f8_select(g, near, usual, rare), rows, cols);
}

/* ---- places ---- */

void kc_in_place(kcase *c, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_F32, 2, rows, cols), y = kc_input(c, F8_F32, 2, rows, cols),
                 r = kc_input(c, F8_F32, 2, rows, 1), z = kc_input(c, F8_F32, 2, rows, cols);
    const f8_ref sum = f8_reduce(g, F8_OP_REDUCE_SUM, x, -1), early = f8_binary(g, F8_OP_ADD, x, y);
    const f8_ref late = f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_SUB, x, sum), y);
    const f8_ref column = f8_binary(g, F8_OP_MUL, r, sum);
    kc_alias(c, early, x);
    kc_alias(c, late, y);
    kc_alias(c, column, r);
    kc_out(c, early);
    kc_out(c, late);
    kc_out(c, column);
    kc_phase(c, rows, cols);
    const f8_ref twice = f8_binary(g, F8_OP_ADD, z, z);
    kc_alias(c, twice, z);
    kc_out(c, twice);
    kc_phase(c, 1, (int64_t)rows * cols);
}

f8_ref kc_views(kcase *c, int cols)
{
    const f8_ref wide = kc_input(c, F8_BF16, 2, 6, 3 * cols), z = kc_input(c, F8_F32, 2, 6, cols);
    const f8_ref x = f8_slice(c->g, wide, 1, cols, 2 * cols);
    kc_place_in(c, x, wide, cols, 3 * cols);
    const f8_ref y = f8_binary(c->g, F8_OP_MUL, f8_cast(c->g, x, F8_F32), z);
    const f8_ref host = kc_input(c, F8_F32, 2, 6, 4 * cols);
    kc_place_in(c, y, host, 2 * cols, 4 * cols);
    c->n_input--; /* the host is only room */
    kc_out(c, y);
    kc_phase(c, 1, 6 * (int64_t)cols);
    return z;
}

void kc_small_shapes(kcase *c, bool in_place)
{
    f8_graph *g = c->g;
    const f8_ref a = kc_input(c, F8_F32, 0), b = kc_input(c, F8_F32, 1, 1),
                 v = kc_input(c, F8_F32, 2, 77, 1), w = kc_input(c, F8_F32, 1, 77),
                 by = in_place ? b : a;
    kc_out(c, f8_binary(g, F8_OP_ADD, a, a));
    if (in_place) {
        const f8_ref next = f8_binary(g, F8_OP_ADD, a, f8_const(g, 1));
        kc_alias(c, next, a);
        kc_out(c, next);
    }
    kc_phase(c, 1, 1);
    kc_out(c, f8_binary(g, F8_OP_MUL, b, by));
    kc_phase(c, 1, 1);
    kc_out(c, f8_binary(g, F8_OP_MUL, v, by));
    kc_phase(c, 77, 1);
    kc_out(c, f8_reduce(g, F8_OP_REDUCE_SUM, w, -1));
    kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, w, -1));
    kc_phase(c, 1, 77);
    const f8_type zeros = {.dtype = F8_F32, .rank = 2, .dim = {9, 5}};
    kc_out(c, f8_broadcast(g, f8_const(g, 0), &zeros));
    kc_phase(c, 1, 45);
}

void kc_many_reductions(kcase *c, int rows, int cols, int n, bool sums)
{
    static const f8_op ops[] = {F8_OP_REDUCE_MAX, F8_OP_REDUCE_AMAX, F8_OP_REDUCE_SUM};
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_F32, 2, rows, cols), y = kc_input(c, F8_F32, 2, rows, cols);
    for (int i = 0; i < n; i++) {
        const f8_ref by = f8_binary(g, F8_OP_MUL, y, f8_const(g, 1 + 0.25 * i));
        kc_out(c, f8_reduce(g, ops[i % (sums ? 3 : 2)], f8_binary(g, F8_OP_SUB, x, by), -1));
    }
    kc_phase(c, rows, cols);
}

void kc_many_near(kcase *c, int rows, int cols, int n)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_F32, 2, rows, cols);
    for (int i = 0; i < n; i++) {
        f8_ref v = f8_binary(g, F8_OP_ADD, x, f8_const(g, 0.125 * i));
        for (int k = 0; k < 9;
             k++) /* dearer than what is computed twice (codegen/kernel/build.c) */
            v = f8_binary(g, F8_OP_MUL, v, x);
        const f8_ref top = f8_reduce(g, F8_OP_REDUCE_MAX, v, -1);
        kc_out(c, f8_reduce(g, F8_OP_REDUCE_SUM, f8_binary(g, F8_OP_SUB, v, top), -1));
    }
    kc_phase(c, rows, cols);
}
