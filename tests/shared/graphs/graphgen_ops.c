/* Steps of a random graph: one function for each kind of op, and the dice (graphgen_parts.h). */
#include "tests/shared/graphs/graphgen_parts.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- pointwise ---- */

static void unary(f8_gen *t)
{
    const f8_op op = f8_gen_op_of(F8_POINTWISE, "pointwise",
                                  f8_gen_below(t, f8_gen_ops_of(F8_POINTWISE, "pointwise")));
    f8_gen_add(t, f8_unary(t->g, op, f8_gen_some(t, F8_F32)));
}

static void binary(f8_gen *t)
{
    static const f8_op ops[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_DIV,
                                F8_OP_MAX, F8_OP_MIN, F8_OP_ADD, F8_OP_MUL};
    const f8_ref a = f8_gen_some(t, F8_F32), b = f8_gen_partner(t, f8_type_of(t->g, a), F8_F32);
    f8_gen_add(t, f8_gen_chance(t, 2) ? f8_binary(t->g, PICK(t, ops), a, b)
                                      : f8_binary(t->g, PICK(t, ops), b, a));
}

static void ternary(f8_gen *t)
{
    const f8_ref a = f8_gen_some(t, F8_F32), b = f8_gen_partner(t, f8_type_of(t->g, a), F8_F32);
    const f8_type ab = f8_gen_joined(t, a, b);
    const f8_ref c = f8_gen_partner(t, &ab, F8_F32);
    f8_gen_add(t, f8_make(t->g, F8_OP_FMA, (f8_ref[]){a, b, c}, 3, NULL, 0));
}

static void compare(f8_gen *t)
{
    static const f8_op ops[] = {F8_OP_LT, F8_OP_LE, F8_OP_EQ};
    const f8_dtype d = f8_gen_chance(t, 4) ? F8_I32 : F8_F32;
    const f8_ref a = f8_gen_some(t, d);
    if (d == F8_F32 && f8_gen_chance(t, 4))
        f8_gen_add(t, f8_unary(t->g, F8_OP_ISFINITE, a));
    else
        f8_gen_add(t, f8_binary(t->g, PICK(t, ops), a, f8_gen_partner(t, f8_type_of(t->g, a), d)));
}

static void logic(f8_gen *t)
{
    const f8_ref a = f8_gen_some(t, F8_BOOL);
    if (f8_gen_chance(t, 3))
        f8_gen_add(t, f8_unary(t->g, F8_OP_NOT, a));
    else
        f8_gen_add(t, f8_binary(t->g, f8_gen_chance(t, 2) ? F8_OP_AND : F8_OP_OR, a,
                                f8_gen_partner(t, f8_type_of(t->g, a), F8_BOOL)));
}

static void choose(f8_gen *t)
{
    static const f8_dtype dtypes[] = {F8_F32,  F8_F32, F8_F32,  F8_I32,
                                      F8_BF16, F8_F16, F8_BOOL, F8_E4M3};
    const f8_dtype d = PICK(t, dtypes);
    const f8_ref a = f8_gen_some(t, d), b = f8_gen_partner(t, f8_type_of(t->g, a), d);
    const f8_type ab = f8_gen_joined(t, a, b);
    f8_gen_add(t, f8_select(t->g, f8_gen_partner(t, &ab, F8_BOOL), a, b));
}

static void integers(f8_gen *t)
{
    static const f8_op ops[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_MAX, F8_OP_MIN};
    const f8_ref a =
        f8_gen_chance(t, 6)
            ? f8_make(t->g, F8_OP_IOTA, NULL, 0,
                      &F8_INTS(F8_A_SHAPE,
                               ((f8_ints){2, {1 + f8_gen_below(t, 5), 1 + f8_gen_below(t, 70)}})),
                      1)
            : f8_gen_some(t, F8_I32);
    if (f8_gen_chance(t, 4)) {
        f8_gen_add(t, f8_unary(t->g, f8_gen_chance(t, 2) ? F8_OP_NEG : F8_OP_ABS, a));
    } else if (f8_gen_chance(t, 6)) {
        const f8_ref b = f8_gen_partner(t, f8_type_of(t->g, a), F8_I32);
        const f8_type ab = f8_gen_joined(t, a, b);
        const f8_ref in[] = {a, b, f8_gen_partner(t, &ab, F8_I32)};
        f8_gen_add(t, f8_make(t->g, F8_OP_RANDOM_BITS, in, 3, NULL, 0));
    } else
        f8_gen_add(
            t, f8_binary(t->g, PICK(t, ops), a, f8_gen_partner(t, f8_type_of(t->g, a), F8_I32)));
}

static void cast(f8_gen *t)
{
    static const struct {
        f8_dtype from, to;
    } pairs[] = {{F8_F32, F8_BF16},  {F8_F32, F8_BF16}, {F8_F32, F8_BF16}, {F8_BF16, F8_F32},
                 {F8_BF16, F8_F32},  {F8_BF16, F8_F32}, {F8_F32, F8_F16},  {F8_F16, F8_F32},
                 {F8_F32, F8_I32},   {F8_I32, F8_F32},  {F8_I64, F8_I32},  {F8_I32, F8_I64},
                 {F8_BOOL, F8_F32},  {F8_BOOL, F8_I32}, {F8_E4M3, F8_F32}, {F8_E5M2, F8_F32},
                 {F8_E4M3, F8_BF16}, {F8_E8M0, F8_F32}, {F8_BF16, F8_F16}, {F8_F16, F8_BF16},
                 {F8_BF16, F8_I32},  {F8_E5M2, F8_F16}};
    const int i = f8_gen_below(t, (int)(sizeof pairs / sizeof pairs[0]));
    f8_gen_add(t, f8_cast(t->g, f8_gen_some(t, pairs[i].from), pairs[i].to));
}

/* ---- FP8 ---- */

static void quantize(f8_gen *t)
{
    const f8_dtype from = f8_gen_chance(t, 3) ? F8_BF16 : F8_F32;
    const int64_t format = f8_gen_chance(t, 3) ? F8_E5M2 : F8_E4M3;
    const f8_ref x = f8_gen_some(t, from);
    f8_ref s;
    if (f8_gen_chance(t, 3)) {
        s = f8_gen_input(t, f8_gen_shape(0, 0, 0, 0), F8_F32, "soft");
    } else {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format),
                                F8_INT(F8_A_MARGIN, f8_gen_below(t, 3))};
        s = f8_gen_add(t, f8_make(t->g, F8_OP_FP8_SCALE, (f8_ref[]){f8_unary(t->g, F8_OP_AMAX, x)},
                                  1, attr, 2));
    }
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format),
                            F8_INT(F8_A_SATURATE, !f8_gen_chance(t, 4))};
    const f8_ref q = f8_gen_add(t, f8_make(t->g, F8_OP_QUANTIZE, (f8_ref[]){x, s}, 2, attr, 2));
    if (f8_gen_chance(t, 2))
        f8_gen_add(t, f8_cast(t->g, q, F8_F32));
}

static void scales(f8_gen *t)
{
    const f8_ref a = f8_gen_tensor(t, F8_F32);
    if (f8_gen_chance(t, 2)) {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, f8_gen_chance(t, 2) ? F8_E4M3 : F8_E5M2)};
        const f8_ref in[] = {f8_unary(t->g, F8_OP_ABS, a), a};
        f8_gen_add(t, f8_make(t->g, F8_OP_FP8_SCALE, in, 1 + f8_gen_below(t, 2), attr, 1));
        return;
    }
    f8_type row = *f8_type_of(t->g, a);
    row.rank--;
    const f8_ref newest = f8_gen_input(t, row, F8_F32, "soft");
    f8_gen_add(t, f8_binary(t->g, F8_OP_HISTORY_PUSH, a, newest));
}

/* ---- reductions ---- */

/* Along any axes, at least one. */
static f8_ref reduce_axes(f8_gen *t, f8_op op, f8_ref a)
{
    const int rank = f8_type_of(t->g, a)->rank, first = f8_gen_below(t, rank);
    f8_ints axes = {1, {first}};
    for (int i = 0; i < rank; i++)
        if (i != first && f8_gen_chance(t, 2))
            axes.v[axes.n++] = i;
    return f8_make(t->g, op, &a, 1, &F8_INTS(F8_A_AXES, axes), 1);
}

/* Sums or amaxes of blocks of rows, any number of rows in each. */
static f8_ref reduce_blocks(f8_gen *t, f8_ref a)
{
    const int64_t rows = f8_type_of(t->g, a)->dim[0];
    if (f8_type_of(t->g, a)->rank < 2)
        return f8_reduce(t->g, F8_OP_REDUCE_SUM, a, 0);
    const f8_attr attr[] = {F8_INT(F8_A_AXIS, 0),
                            F8_INT(F8_A_BLOCK, 1 + f8_gen_below(t, (int)rows + 1))};
    return f8_make(t->g, f8_gen_chance(t, 3) ? F8_OP_REDUCE_AMAX : F8_OP_REDUCE_SUM, &a, 1, attr,
                   2);
}

static void reduce(f8_gen *t)
{
    static const f8_op ops[] = {F8_OP_REDUCE_SUM, F8_OP_REDUCE_SUM, F8_OP_REDUCE_MAX,
                                F8_OP_REDUCE_AMAX, F8_OP_MEAN};
    const f8_ref a = f8_gen_tensor(t, F8_F32);
    switch (f8_gen_below(t, 8)) {
    case 0: f8_gen_add(t, f8_sum_all(t->g, a)); break;
    case 1: f8_gen_add(t, f8_unary(t->g, F8_OP_AMAX, a)); break;
    case 2:
    case 3: f8_gen_add(t, f8_reduce(t->g, PICK(t, ops), a, 0)); break;
    case 4: f8_gen_add(t, reduce_axes(t, PICK(t, ops), a)); break;
    case 5: f8_gen_add(t, reduce_blocks(t, a)); break;
    default: f8_gen_add(t, f8_reduce(t->g, PICK(t, ops), a, -1)); break;
    }
}

/* ---- shapes ---- */

static const f8_dtype movable[] = {F8_F32, F8_F32,  F8_F32, F8_BF16, F8_BF16,
                                   F8_I32, F8_E4M3, F8_F16, F8_BOOL};

static void transpose(f8_gen *t)
{
    const f8_ref a = f8_gen_tensor(t, PICK(t, movable));
    f8_ints perm = {.n = f8_type_of(t->g, a)->rank};
    for (int i = 0; i < perm.n; i++)
        perm.v[i] = i;
    for (int i = perm.n - 1; i > 0; i--) {
        const int j = f8_gen_below(t, i + 1);
        const int64_t was = perm.v[i];
        perm.v[i] = perm.v[j];
        perm.v[j] = was;
    }
    f8_gen_add(t, f8_make(t->g, F8_OP_TRANSPOSE, &a, 1, &F8_INTS(F8_A_PERM, perm), 1));
}

static void reshape(f8_gen *t)
{
    const f8_ref a = f8_gen_some(t, PICK(t, movable));
    int64_t n = f8_type_elements(f8_type_of(t->g, a));
    f8_type to = {.rank = (uint8_t)(1 + f8_gen_below(t, f8_gen_chance(t, 3) ? F8_MAX_RANK : 3))};
    for (int i = 0; i < to.rank; i++) {
        int64_t d = n;
        if (i < to.rank - 1) {
            d = 1 + f8_gen_below(t, 16);
            while (n % d)
                d--;
            if (f8_gen_chance(t, 2))
                d = n / d;
        }
        to.dim[i] = d;
        n /= d;
    }
    const f8_ref r = f8_gen_add(t, f8_reshape(t->g, a, &to));
    const f8_dtype dtype = f8_type_of(t->g, a)->dtype;
    if (to.rank == 1 && (dtype == F8_F32 || dtype == F8_BF16 || dtype == F8_F16))
        f8_gen_add(t, f8_unary(t->g, F8_OP_BOUNDARY, r));
    if (to.rank == 2)
        f8_gen_add(t, f8_unary(t->g, F8_OP_STOP_GRADIENT, r));
}

static f8_ref random_slice(f8_gen *t, f8_ref a)
{
    const f8_type *s = f8_type_of(t->g, a);
    const int axis = f8_gen_chance(t, 2) ? s->rank - 1 : f8_gen_below(t, s->rank);
    const int64_t n = s->dim[axis], start = f8_gen_below(t, (int)n),
                  stop = start + 1 + f8_gen_below(t, (int)(n - start));
    return f8_slice(t->g, a, axis, start, stop);
}

static void slice(f8_gen *t)
{
    const f8_ref a = f8_gen_tensor(t, PICK(t, movable));
    const f8_type s = *f8_type_of(t->g, a);
    const int64_t last = s.dim[s.rank - 1];
    if (f8_gen_chance(t, 3) && last % 2 == 0) { /* halves */
        f8_gen_add(t, f8_slice(t->g, a, -1, 0, last / 2));
        f8_gen_add(t, f8_slice(t->g, a, -1, last / 2, last));
        return;
    }
    f8_gen_add(t, random_slice(t, a));
}

static void concat(f8_gen *t)
{
    const f8_ref a = f8_gen_tensor(t, PICK(t, movable));
    const f8_type s = *f8_type_of(t->g, a);
    const int axis = f8_gen_below(t, s.rank), n = 2 + f8_gen_below(t, 2);
    if (f8_type_elements(&s) * n > F8_GEN_ELEMENTS)
        return;
    f8_ref in[3] = {a};
    for (int i = 1; i < n; i++) {
        f8_type part = s;
        if (f8_gen_chance(t, 2))
            in[i] = a;
        else if (f8_gen_chance(t, 2) && s.dim[axis] > 1)
            in[i] = f8_slice(t->g, a, axis, 0, 1 + f8_gen_below(t, (int)s.dim[axis] - 1));
        else {
            part.dim[axis] = 1 + f8_gen_below(t, 9);
            in[i] = f8_gen_input(t, part, s.dtype, "x");
        }
    }
    f8_gen_add(t, f8_concat(t->g, in, n, axis));
}

static void broadcast(f8_gen *t)
{
    const f8_ref a = f8_gen_some(t, PICK(t, movable));
    f8_type out;
    if (!f8_gen_broadcasts(f8_type_of(t->g, a), &t->shape[f8_gen_below(t, t->n_shapes)], &out))
        return;
    f8_gen_add(t, f8_broadcast(t->g, a, &out));
}

static void roll(f8_gen *t)
{
    const f8_ref a = f8_gen_tensor(t, f8_gen_chance(t, 2) ? F8_F32 : PICK(t, movable));
    const int64_t cols = f8_type_columns(f8_type_of(t->g, a));
    int64_t group = cols;
    for (int64_t parts = 2; parts < 5; parts++)
        if (cols % parts == 0 && f8_gen_chance(t, 2))
            group = cols / parts;
    const f8_attr attr[] = {F8_INT(F8_A_SHIFT, f8_gen_below(t, (int)group)),
                            F8_INT(F8_A_GROUP, group)};
    f8_gen_add(t, f8_make(t->g, F8_OP_ROLL, &a, 1, attr, 2));
}

/* Of what ops take as parameters. */
static f8_dtype param_dtype(f8_gen *t)
{
    return f8_gen_chance(t, 4) ? F8_BF16 : F8_F32;
}

/* ---- gathers ---- */

static void gather(f8_gen *t)
{
    const int64_t rows = 3 + f8_gen_below(t, 10), cols = f8_gen_size(t) % 130 + 1,
                  count = 1 + f8_gen_below(t, 80);
    const f8_ref ids = f8_gen_input(
        t, f8_gen_chance(t, 2) ? f8_gen_shape(1, count, 0, 0) : f8_gen_shape(2, 2, count, 0),
        f8_gen_chance(t, 3) ? F8_I64 : F8_I32, "ids");
    const f8_type size = f8_gen_shape(2, rows, cols, 0);
    const f8_dtype d = param_dtype(t);
    const f8_ref table =
        f8_gen_chance(t, 2) ? f8_gen_state(t, size, d) : f8_gen_input(t, size, d, "x");
    const f8_ref y = f8_gen_add(t, f8_binary(t->g, F8_OP_EMBEDDING, table, ids));
    if (f8_gen_chance(t, 2)) {
        const f8_ref dy = f8_gen_chance(t, 2) ? y : f8_gen_add(t, f8_unary(t->g, F8_OP_TANH, y));
        const bool own = d != F8_F32 || f8_gen_chance(t, 2);
        const f8_ref acc = own ? f8_gen_state(t, size, F8_F32) : table;
        f8_gen_accumulates(t, acc,
                           f8_gen_add(t, f8_make(t->g, F8_OP_EMBEDDING_GRAD,
                                                 (f8_ref[]){acc, ids, dy}, 3, NULL, 0)));
    }
}

/* ---- products ---- */

static bool is_matrix(const f8_gen *t, f8_ref r, const void *arg)
{
    (void)arg;
    const f8_type *s = f8_type_of(t->g, r);
    return s->rank >= 2 && f8_type_rows(s) <= 600 && f8_type_columns(s) <= 600;
}

static f8_ref some_matrix(f8_gen *t, f8_dtype d)
{
    const f8_ref r = f8_gen_find(t, d, is_matrix, NULL);
    return r ? r
             : f8_gen_input(t,
                            f8_gen_shape(2, 1 + f8_gen_size(t) % 130, 1 + f8_gen_size(t) % 130, 0),
                            d, "x");
}

f8_ref f8_gen_biased(f8_gen *t, f8_op op, f8_ref *in, int n_in, const f8_attr *attr, int n_attr)
{
    f8_graph *g = t->g;
    f8_attr rounded[F8_MAX_ATTRS];
    const f8_ref y = f8_make(g, op, in, n_in, attr, n_attr);
    const f8_type columns = f8_gen_shape(1, f8_type_columns(f8_type_of(g, y)), 0, 0);
    const f8_ref bias = f8_gen_chance(t, 3) ? f8_gen_input(t, columns, F8_BF16, "bias")
                                            : f8_cast(g, f8_gen_state(t, columns, F8_F32), F8_BF16);
    if (f8_gen_chance(t, 3)) {
        memcpy(rounded, attr, (size_t)n_attr * sizeof *attr);
        rounded[n_attr] = F8_INT(F8_A_TO, F8_BF16);
        in[n_in] = bias;
        return f8_gen_add(t, f8_make(g, op, in, n_in + 1, rounded, n_attr + 1));
    }
    if (f8_gen_chance(t, 6))
        f8_gen_add(t, y);
    return f8_gen_add(t, f8_cast(g, f8_binary(g, F8_OP_ADD, y, f8_cast(g, bias, F8_F32)), F8_BF16));
}

static void product(f8_gen *t)
{
    static const f8_dtype dtypes[] = {F8_F32, F8_BF16, F8_BF16, F8_BF16, F8_E4M3, F8_E4M3, F8_E5M2};
    const f8_dtype da = PICK(t, dtypes);
    const f8_dtype db = da == F8_E5M2 || (da == F8_E4M3 && f8_gen_chance(t, 3))
                            ? (da == F8_E5M2 ? F8_E4M3 : F8_E5M2)
                            : da;
    const bool ta = f8_gen_chance(t, 3), tb = f8_gen_chance(t, 2),
               scaled = f8_dtype_is_fp8(da) && f8_gen_chance(t, 2);
    if (t->aligned_fp8 && f8_dtype_is_fp8(da)) {
        f8_gen_linear(t);
        return;
    }
    const f8_ref a = some_matrix(t, da);
    const f8_type s = *f8_type_of(t->g, a);
    const int64_t k = ta ? f8_type_rows(&s) : f8_type_columns(&s), n = 1 + f8_gen_size(t) % 270;
    const f8_type size = tb ? f8_gen_shape(2, n, k, 0) : f8_gen_shape(2, k, n, 0);
    f8_ref b;
    if (db == F8_BF16 && f8_gen_chance(t, 2)) /* a parameter rounded on its way in */
        b = f8_cast(t->g, f8_gen_state(t, size, F8_F32), db);
    else
        b = f8_gen_input(t, size, db, "x");
    f8_ref in[5] = {a, b}, inverse[2];
    if (scaled) {
        for (int i = 0; i < 2; i++)
            inverse[i] = f8_gen_input(t, f8_gen_shape(0, 0, 0, 0), F8_F32, "soft");
        memcpy(in, (f8_ref[]){a, inverse[0], b, inverse[1]}, 4 * sizeof *in);
    }
    const f8_op op = scaled ? F8_OP_SCALED_MATMUL : F8_OP_MATMUL;
    const f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_A, ta), F8_INT(F8_A_TRANSPOSE_B, tb)};
    int n_in = scaled ? 4 : 2;
    if (f8_gen_chance(t, 4)) {
        f8_gen_biased(t, op, in, n_in, attr, 2);
        return;
    }
    if (f8_gen_chance(t, 3)) {
        f8_type out = s;
        if (ta)
            out = f8_gen_shape(2, f8_type_columns(&s), 0, 0);
        out.dim[out.rank - 1] = n;
        in[n_in++] = f8_gen_chance(t, 2) ? f8_gen_state(t, out, F8_F32)
                                         : f8_gen_input(t, out, F8_F32, "soft");
    }
    const f8_ref y = f8_gen_add(t, f8_make(t->g, op, in, n_in, attr, 2));
    if (n_in % 2)
        f8_gen_accumulates(t, in[n_in - 1], y);
}

/* Whether a value is a batch of small matrices. */
static bool is_batch(const f8_gen *t, f8_ref r, const void *arg)
{
    const f8_type *s = f8_type_of(t->g, r);
    return is_matrix(t, r, arg) && s->rank >= 3;
}

/* The second operand has the first one's batch, or one matrix along some axes, or none of them. */
static void batch_product(f8_gen *t)
{
    const f8_dtype d = f8_gen_chance(t, 3) ? F8_F32 : F8_BF16;
    const bool ta = f8_gen_chance(t, 2), tb = f8_gen_chance(t, 2);
    f8_ref a = f8_gen_find(t, d, is_batch, NULL);
    if (!a || f8_gen_chance(t, 3))
        a = f8_gen_input(t,
                         (f8_type){.rank = 4,
                                   .dim = {1 + f8_gen_below(t, 3), 1 + f8_gen_below(t, 3),
                                           1 + f8_gen_size(t) % 40, 1 + f8_gen_size(t) % 40}},
                         d, "soft");
    f8_type one, s = *f8_type_of(t->g, a);
    f8_type_batch(&s, &one);
    const int64_t k = one.dim[ta ? 0 : 1], n = 1 + f8_gen_size(t) % 70;
    f8_type other = s;
    const int drop = f8_gen_chance(t, 3) ? 1 + f8_gen_below(t, s.rank - 2) : 0;
    other.rank = (uint8_t)(s.rank - drop);
    for (int i = 0; i + 2 < other.rank; i++)
        other.dim[i] = f8_gen_chance(t, 4) ? 1 : s.dim[i + drop];
    other.dim[other.rank - 2] = tb ? n : k;
    other.dim[other.rank - 1] = tb ? k : n;
    f8_ref b = f8_gen_input(t, other, F8_F32, "soft");
    b = f8_cast(t->g, f8_gen_chance(t, 3) ? f8_unary(t->g, F8_OP_TANH, b) : b, d);
    /* a' b, or b' a' with the sides exchanged */
    const bool swap = f8_gen_chance(t, 2);
    const f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_A, swap ? !tb : ta),
                            F8_INT(F8_A_TRANSPOSE_B, swap ? !ta : tb),
                            F8_INT(F8_A_TO, f8_gen_chance(t, 4) ? F8_BF16 : F8_F32)};
    const f8_ref y = f8_gen_add(
        t, f8_make(t->g, F8_OP_BATCH_MATMUL, (f8_ref[]){swap ? b : a, swap ? a : b}, 2, attr, 3));
    if (f8_gen_chance(t, 3))
        f8_gen_add(t, f8_cast(t->g, y, F8_BF16));
}

/* A mask that is an input or computed, with some axes of one element: bool, small values, or -Inf
 * or a large finite number for some. */
static f8_ref attention_mask(f8_gen *t, const int64_t *size)
{
    int64_t dim[4];
    for (int i = 0; i < 4; i++)
        dim[i] = f8_gen_chance(t, 2) ? size[i] : 1;
    const f8_type shape = {.rank = 4, .dim = {dim[0], dim[1], dim[2], dim[3]}};
    const f8_ref x = f8_gen_input(t, shape, F8_F32, "soft");
    const f8_ref seen = f8_binary(t->g, F8_OP_LT, x, f8_const(t->g, 0.25));
    if (f8_gen_chance(t, 2))
        return seen;
    const double hides[] = {-INFINITY, -1e9, -(double)FLT_MAX};
    const double number = hides[(dim[0] + dim[1] + dim[2] + dim[3]) % 3];
    return f8_gen_chance(t, 2) ? x : f8_select(t->g, seen, x, f8_const(t->g, number));
}

/* Operands stay small: tanh of values, in bf16 or f32. */
static void attention(f8_gen *t)
{
    static const int64_t head_sizes[] = {1, 2, 4, 8, 16, 20, 32, 33, 64},
                         lengths[] = {1, 2, 3, 7, 17, 47, 48, 49, 65, 100};
    const int64_t D = PICK(t, head_sizes), T = PICK(t, lengths),
                  K = f8_gen_chance(t, 3) ? PICK(t, lengths) : T, B = 1 + f8_gen_below(t, 2),
                  KH = 1 + f8_gen_below(t, 2), H = KH * (1 + f8_gen_below(t, 3));
    const f8_dtype d = f8_gen_chance(t, 2) ? F8_BF16 : F8_F32;
    f8_ref in[8], more[2];
    for (int i = 0; i < 3; i++) {
        in[i] = f8_gen_input(t, f8_gen_shape(3, B, i ? K : T, (i ? KH : H) * D), F8_F32, "soft");
        in[i] = f8_cast(t->g, f8_gen_chance(t, 2) ? f8_unary(t->g, F8_OP_TANH, in[i]) : in[i], d);
    }
    const f8_attr attr[] = {F8_INT(F8_A_HEADS, H),
                            F8_INT(F8_A_KV_HEADS, KH),
                            F8_INT(F8_A_CAUSAL, !f8_gen_chance(t, 3)),
                            F8_FLOAT(F8_A_SCALE, f8_gen_chance(t, 3) ? 0.3 : 0),
                            F8_FLOAT(F8_A_DROPOUT, f8_gen_chance(t, 4) ? 0 : 0.3),
                            F8_INT(F8_A_STREAM, f8_gen_below(t, 3))};
    int n_more = 0; /* a mask, a seed */
    if (f8_gen_chance(t, 3))
        more[n_more++] = attention_mask(t, (int64_t[]){B, H, T, K});
    const bool drops = f8_gen_chance(t, 3);
    if (drops)
        more[n_more++] = f8_gen_input(t, f8_gen_shape(0, 0, 0, 0), F8_I32, "seed");
    memcpy(in + 3, more, (size_t)n_more * sizeof *in);
    const f8_ref o = f8_gen_add(
                     t, f8_make(t->g, F8_OP_ATTENTION, in, 3 + n_more, attr, drops ? 6 : 4)),
                 lse = f8_project(t->g, o, 1);
    f8_gen_add(t, lse);
    if (f8_gen_chance(t, 2))
        return;
    in[3] = o;
    in[4] = lse;
    in[5] = f8_cast(t->g, f8_gen_input(t, f8_gen_shape(3, B, T, H * D), F8_F32, "soft"), d);
    memcpy(in + 6, more, (size_t)n_more * sizeof *in);
    const f8_ref grad =
        f8_gen_add(t, f8_make(t->g, F8_OP_ATTENTION_GRAD, in, 6 + n_more, attr, drops ? 6 : 4));
    for (int i = 1; i < 3; i++)
        f8_gen_add(t, f8_project(t->g, grad, i));
}

/* ---- composites ---- */

/* One that has an operand and its shape. */
static void plain_composite(f8_gen *t, f8_op op, f8_ref a)
{
    const bool gelu = op == F8_OP_GELU, tanh = gelu && f8_gen_chance(t, 2),
               rounded = (gelu || op == F8_OP_SILU) && f8_gen_chance(t, 2);
    const f8_attr form[] = {F8_INT(F8_A_ROUNDED, rounded ? F8_BF16 : F8_F32),
                            F8_STR(F8_A_APPROXIMATE, tanh ? "tanh" : "none")};
    f8_gen_add(t, f8_make(t->g, op, &a, 1, form, gelu ? 2 : op == F8_OP_SILU));
}

static void composite(f8_gen *t)
{
    f8_graph *g = t->g;
    enum { OTHERS = 6, FIRST_PLAIN = 2 };
    const int plain = f8_gen_ops_of(F8_COMPOSITE, "same1");
    const f8_ref a = f8_gen_tensor(t, F8_F32);
    const f8_type s = *f8_type_of(g, a);
    const f8_type vector = f8_gen_shape(1, f8_type_columns(&s), 0, 0);
    f8_type rows = s;
    rows.rank--;
    const int die = f8_gen_below(t, OTHERS + plain);
    if (die >= FIRST_PLAIN && die < FIRST_PLAIN + plain) {
        plain_composite(t, f8_gen_op_of(F8_COMPOSITE, "same1", die - FIRST_PLAIN), a);
        return;
    }
    switch (die < FIRST_PLAIN ? die : die - plain) {
    case 5: {
        const f8_attr attr[] = {F8_FLOAT(F8_A_P, f8_gen_chance(t, 5) ? 0 : 0.3),
                                F8_INT(F8_A_STREAM, f8_gen_below(t, 2))};
        const f8_ref seed = f8_gen_input(t, f8_gen_shape(0, 0, 0, 0), F8_I32, "seed");
        f8_gen_add(t, f8_make(g, F8_OP_DROPOUT, (f8_ref[]){a, seed}, 2, attr, 2));
        break;
    }
    case 0: {
        const f8_ref w = f8_gen_input(t, vector, param_dtype(t), "x"),
                     b = f8_gen_input(t, vector, param_dtype(t), "x");
        f8_gen_add(t, f8_make(g, F8_OP_LAYERNORM, (f8_ref[]){a, w, b}, 3, NULL, 0));
        break;
    }
    case 1:
        f8_gen_add(t, f8_binary(g, F8_OP_RMSNORM, a, f8_gen_input(t, vector, param_dtype(t), "x")));
        break;
    case 2: {
        static const char *const reductions[] = {"mean", "sum", "none"};
        const f8_ref targets = f8_gen_input(t, rows, f8_gen_chance(t, 3) ? F8_I64 : F8_I32, "ids");
        const f8_attr attr[] = {F8_STR(F8_A_REDUCTION, reductions[f8_gen_below(t, 3)]),
                                F8_FLOAT(F8_A_LABEL_SMOOTHING, f8_gen_chance(t, 3) ? 0.1 : 0),
                                F8_INT(F8_A_IGNORE, f8_gen_below(t, 3))};
        const size_t n = f8_gen_chance(t, 2) ? 3 : 2; /* without `ignore` */
        const f8_ref in[] = {
            a, targets,
            f8_gen_add(t, f8_make(g, F8_OP_CROSS_ENTROPY, (f8_ref[]){a, targets}, 2, attr, n))};
        if (f8_gen_chance(t, 2))
            f8_gen_add(t, f8_make(g, F8_OP_CROSS_ENTROPY_GRAD, in, 3, attr, n));
        break;
    }
    default: {
        const int64_t heads = 1 + f8_gen_below(t, 3);
        const bool fits = s.rank >= 2 && f8_type_columns(&s) % (2 * heads) == 0;
        const f8_ref x =
            fits ? a
                 : f8_gen_input(t,
                                f8_gen_shape(3, 1 + f8_gen_below(t, 3), 1 + f8_gen_below(t, 70),
                                             heads * 2 * (1 + f8_gen_below(t, 20))),
                                F8_F32, "x");
        const f8_attr attr[] = {F8_INT(F8_A_HEADS, heads),
                                F8_INT(F8_A_INVERSE, f8_gen_chance(t, 3)),
                                F8_FLOAT(F8_A_FACTOR, f8_gen_chance(t, 3) ? 8 : 1)};
        f8_gen_add(t, f8_make(g, F8_OP_ROPE, &x, 1, attr, 3));
    }
    }
}

/* ---- the dice ---- */

static void read_state(f8_gen *t)
{
    f8_gen_add(t, f8_func_var(t->f, f8_gen_below(t, (int)t->m->n_vars)));
}

void f8_gen_step(f8_gen *t)
{
    if (t->aligned_fp8 && f8_gen_chance(t, 6)) {
        f8_gen_linear(t);
        return;
    }
    if (t->broadcasts && f8_gen_chance(t, 4)) {
        f8_gen_spread(t);
        return;
    }
    if (f8_gen_chance(t, 12)) {
        f8_gen_blocks(t);
        return;
    }
    switch (f8_gen_below(t, t->gemms ? 37 : 32)) {
    case 0:
    case 1:
    case 2:
    case 3: unary(t); break;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8: binary(t); break;
    case 9:
    case 10: ternary(t); break;
    case 11: compare(t); break;
    case 12: logic(t); break;
    case 13: choose(t); break;
    case 14: integers(t); break;
    case 15:
    case 16: cast(t); break;
    case 17:
    case 18: quantize(t); break;
    case 19: scales(t); break;
    case 20:
    case 21: reduce(t); break;
    case 22: transpose(t); break;
    case 23: reshape(t); break;
    case 24: slice(t); break;
    case 25: concat(t); break;
    case 26: broadcast(t); break;
    case 27: roll(t); break;
    case 28: gather(t); break;
    case 29:
    case 30: composite(t); break;
    case 31: read_state(t); break;
    case 32:
    case 33:
    case 34: product(t); break;
    case 35: batch_product(t); break;
    default: attention(t); break;
    }
}
