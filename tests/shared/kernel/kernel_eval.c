/* Every op as its definition says, with C's own arithmetic and the scalar functions. Values are
 * arrays of 32-bit words: f32 bits (also for bf16), i32, 0 or 1, encodings of narrower floats. */
#include "tests/shared/kernel/kernel_eval.h"

#include "ir/num/granularity.h"
#include "ir/num/scalar.h"
#include "tests/shared/random.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const f8_type *t;
    int64_t n;
} shape;

static float f_of(uint32_t u)
{
    return f8_from_bits(u);
}

static uint32_t program(f8_sfn fn, uint32_t x)
{
    uint32_t y;
    f8_scalar_eval(fn, &x, &y, 1);
    return y;
}

static float decoded(f8_dtype t, uint32_t u)
{
    return t == F8_F32 || t == F8_BF16 ? f_of(u) : f_of(program(f8_scalar_decode_fn(t), u));
}

/* f32 bits become encodings, in place. A scalar function takes as long for one as for a block of
 * them, so results are encoded together. */
static void encode(f8_dtype t, bool saturate, uint32_t *x, int64_t n)
{
    if (t != F8_F32)
        f8_scalar_eval(t == F8_BF16 ? F8_FN_ROUND_BF16 : f8_scalar_encode_fn(t, saturate), x, x,
                       (size_t)n);
}

static uint32_t encoded(f8_dtype t, float v)
{
    uint32_t u = f8_bits(v);
    encode(t, false, &u, 1);
    return u;
}

/* ---- inputs ---- */

static uint32_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

static uint32_t random_word(kcase *c, f8_dtype t)
{
    static const uint32_t odd[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x80000000, 0,
                                   1,          0x80000001, 0x00400000, 0x7f7fffff, 0x3f800000};
    const uint32_t r = next_random(&c->seed);
    if (t == F8_I32)
        return r % 2001 - 1000u;
    if (t == F8_BOOL)
        return r >> 8 & 1;
    float v = ((float)(int32_t)(next_random(&c->seed) % 20001) - 10000.0f) / 3000.0f;
    if (c->specials && r % 7 == 0)
        v = f_of(odd[next_random(&c->seed) % (sizeof odd / sizeof *odd)]);
    return encoded(t, v);
}

static void need_room(kcase *c)
{
    if (!c->value)
        c->value = calloc(4 * KC_LIST, sizeof *c->value);
    ck_assert_uint_lt(c->g->n_nodes, 4 * KC_LIST);
}

void ke_fill_input(kcase *c, f8_ref r, int64_t limit)
{
    need_room(c);
    const f8_type *t = f8_type_of(c->g, r);
    const int64_t n = f8_type_elements(t);
    c->value[r] = calloc((size_t)n, sizeof **c->value);
    for (int64_t i = 0; i < n; i++)
        c->value[r][i] =
            limit
                ? (uint32_t)(int32_t)((int64_t)(next_random(&c->seed) % (uint64_t)(limit + 2)) - 1)
                : random_word(c, t->dtype);
}

/* ---- memory ---- */

/* Where the elements of a value lie: rows of `cols`, each `pitch` bytes after the one before. */
typedef struct lines {
    uint8_t *at;
    int64_t rows, cols, pitch;
    size_t size; /* of an element */
} lines;

static lines lines_of(const kcase *c, f8_ref r)
{
    const f8_type *t = f8_type_of(c->g, r);
    const f8_place *p = &c->place[r];
    const int64_t cols = f8_type_columns(t), n = f8_type_elements(t);
    const size_t size = f8_dtype_size(t->dtype);
    return (lines){c->memory + p->offset, n ? n / cols : 0, cols, p->stride * (int64_t)size, size};
}

static uint32_t in_memory(f8_dtype t, uint32_t held)
{
    return t == F8_BF16 ? held >> 16 : held;
}

void ke_write(kcase *c, f8_ref r)
{
    const f8_dtype t = f8_type_of(c->g, r)->dtype;
    const lines l = lines_of(c, r);
    const uint32_t *held = c->value[r];
    for (int64_t i = 0; i < l.rows; i++)
        for (int64_t k = 0; k < l.cols; k++) {
            const uint32_t w = in_memory(t, *held++);
            memcpy(l.at + i * l.pitch + k * (int64_t)l.size, &w, l.size);
        }
}

static bool is_nan(f8_dtype t, uint32_t held)
{
    return f8_dtype_is_float(t) && isnan(decoded(t, held));
}

void ke_mark(kcase *c, f8_ref r, uint8_t *accessed)
{
    const lines l = lines_of(c, r);
    for (int64_t i = 0; i < l.rows; i++)
        memset(accessed + (l.at - c->memory) + i * l.pitch, 1, (size_t)l.cols * l.size);
}

void ke_compare(kcase *c, f8_ref r, const char *what, uint8_t *accessed)
{
    const f8_dtype t = f8_type_of(c->g, r)->dtype;
    const lines l = lines_of(c, r);
    for (int64_t i = 0; i < l.rows * l.cols; i++) {
        uint32_t got = 0;
        memcpy(&got, l.at + i / l.cols * l.pitch + i % l.cols * (int64_t)l.size, l.size);
        if (t == F8_BF16)
            got <<= 16;
        const uint32_t want = c->value[r][i];
        if (got == want || (is_nan(t, want) && is_nan(t, got)))
            continue; /* Check writes a message for every assertion, one that holds too */
        ck_abort_msg("%s: %%%u %s[%lld] is %08x (%.9g), not %08x (%.9g)", what, r,
                     f8_op_facts(c->g->node[r].op)->name, (long long)i, got, f_of(got), want,
                     f_of(want));
    }
    ke_mark(c, r, accessed);
}

/* ---- ops ---- */

/* The element of an operand that broadcasts to element i of `to`. */
static int64_t broadcast_index(const f8_type *from, const f8_type *to, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int axis = to->rank - 1; axis >= 0; axis--) {
        const int64_t index = i % to->dim[axis];
        const int mine = axis - to->rank + from->rank;
        i /= to->dim[axis];
        if (mine < 0)
            continue;
        if (from->dim[mine] != 1)
            at += index * step;
        step *= from->dim[mine];
    }
    return at;
}

static uint32_t cast(f8_dtype from, f8_dtype to, uint32_t u, bool *plain)
{
    if (from == to)
        return u;
    const float f = from == F8_I32    ? (float)(int32_t)u
                    : from == F8_BOOL ? (float)u
                                      : decoded(from, u);
    if (to == F8_I32)
        return from == F8_BOOL ? u : (uint32_t)f8_f32_to_i32(f);
    if (to == F8_BOOL)
        return f != 0;
    *plain = true;
    return f8_bits(f);
}

static uint32_t int_op(f8_op op, const uint32_t *u)
{
    const int32_t a = (int32_t)u[0], b = (int32_t)u[1];
    switch (op) {
    case F8_OP_ADD: return u[0] + u[1];
    case F8_OP_SUB: return u[0] - u[1];
    case F8_OP_MUL: return u[0] * u[1];
    case F8_OP_MAX: return (uint32_t)(a > b ? a : b);
    case F8_OP_MIN: return (uint32_t)(a < b ? a : b);
    case F8_OP_NEG: return 0u - u[0];
    case F8_OP_RANDOM_BITS: return test_pcg3d(u[0], u[1], u[2]);
    case F8_OP_ABS: return (uint32_t)(a < 0 ? -a : a);
    case F8_OP_LT: return a < b;
    case F8_OP_LE: return a <= b;
    case F8_OP_EQ: return a == b;
    default: ck_abort_msg("no i32 form of %s", f8_op_facts(op)->name);
    }
}

static float float_op(f8_op op, const float *f)
{
    switch (op) {
    case F8_OP_ADD: return f[0] + f[1];
    case F8_OP_SUB: return f[0] - f[1];
    case F8_OP_MUL: return f[0] * f[1];
    case F8_OP_DIV: return f[0] / f[1];
    case F8_OP_MAX: return f8_maximum(f[0], f[1]);
    case F8_OP_MIN: return f8_minimum(f[0], f[1]);
    case F8_OP_FMA: return fmaf(f[0], f[1], f[2]);
    case F8_OP_NEG: return -f[0];
    case F8_OP_ABS: return fabsf(f[0]);
    case F8_OP_SQRT: return sqrtf(f[0]);
    case F8_OP_RSQRT: return 1.0f / sqrtf(f[0]);
    case F8_OP_RELU: return f8_maximum(f[0], 0);
    case F8_OP_FLOOR: return floorf(f[0]);
    case F8_OP_POW2_FLOOR: return f8_from_bits(f8_pow2_floor_bits(f8_bits(f[0])));
    case F8_OP_EXP: return f8_scalar_f32(F8_FN_EXP, f[0]);
    case F8_OP_LOG: return f8_scalar_f32(F8_FN_LOG, f[0]);
    case F8_OP_TANH: return f8_scalar_f32(F8_FN_TANH, f[0]);
    case F8_OP_ERF: return f8_scalar_f32(F8_FN_ERF, f[0]);
    case F8_OP_SIN: return f8_scalar_f32(F8_FN_SIN, f[0]);
    case F8_OP_COS: return f8_scalar_f32(F8_FN_COS, f[0]);
    case F8_OP_SIGMOID: return f8_scalar_f32(F8_FN_SIGMOID, f[0]);
    default: ck_abort_msg("no evaluation of %s", f8_op_facts(op)->name);
    }
}

/* `plain` becomes true if the result is f32 bits that are not encoded yet. It is the same for all
 * elements of a value. */
static uint32_t pointwise(kcase *c, f8_ref r, const uint32_t *u, bool *plain)
{
    const f8_node *n = f8_at(c->g, r);
    const f8_dtype t = f8_type_of(c->g, n->in[0])->dtype;
    float f[3] = {0};
    for (uint32_t i = 0; i < n->n_in && i < 3; i++)
        if (f8_dtype_is_float(f8_type_of(c->g, n->in[i])->dtype))
            f[i] = decoded(f8_type_of(c->g, n->in[i])->dtype, u[i]);
    switch (n->op) {
    case F8_OP_CAST: return cast(t, n->type.dtype, u[0], plain);
    case F8_OP_SELECT: return u[0] ? u[1] : u[2];
    case F8_OP_AND: return u[0] & u[1];
    case F8_OP_OR: return u[0] | u[1];
    case F8_OP_NOT: return !u[0];
    case F8_OP_ISFINITE: return isfinite(f[0]);
    case F8_OP_DEQUANTIZE: return f8_bits(f[0] * f[1]);
    case F8_OP_QUANTIZE: *plain = true; return f8_bits(f[0] * f[1]);
    default: break;
    }
    if (!f8_dtype_is_float(t))
        return int_op(n->op, u);
    switch (n->op) {
    case F8_OP_LT: return f[0] < f[1];
    case F8_OP_LE: return f[0] <= f[1];
    case F8_OP_EQ: return f[0] == f[1];
    default: *plain = true; return f8_bits(float_op(n->op, f));
    }
}

/* 256 lanes, then halves: ir/README.md. */
static float row_sum(const uint32_t *x, int64_t n)
{
    float lane[256];
    const int64_t lanes = n < 256 ? n : 256;
    for (int64_t i = 0; i < n; i++)
        lane[i % 256] = i < 256 ? f_of(x[i]) : lane[i % 256] + f_of(x[i]);
    for (int64_t h = 128; h > 0; h /= 2)
        for (int64_t j = 0; j < h && j + h < lanes; j++)
            lane[j] += lane[j + h];
    return lane[0];
}

static uint32_t row_reduce(f8_op op, const uint32_t *x, int64_t n)
{
    if (op == F8_OP_REDUCE_SUM)
        return f8_bits(row_sum(x, n));
    float most = -INFINITY;
    uint32_t amax = 0;
    for (int64_t i = 0; i < n; i++) {
        most = f8_maximum(most, f_of(x[i]));
        amax = f8_amax_bits(amax, f_of(x[i]));
    }
    return op == F8_OP_REDUCE_MAX ? f8_bits(most) : amax;
}

static void reduce(kcase *c, f8_ref r, uint32_t *out)
{
    const f8_node *n = f8_at(c->g, r);
    const f8_type *t = f8_type_of(c->g, n->in[0]);
    const int64_t axis = f8_attr_i(c->g, r, F8_A_AXIS), cols = f8_type_columns(t),
                  rows = f8_type_rows(t);
    uint32_t *x = calloc((size_t)(rows * cols), sizeof *x);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = f8_bits(decoded(t->dtype, c->value[n->in[0]][i]));
    if (axis == -1 || axis == t->rank - 1) {
        const int64_t block =
            f8_attr_i(c->g, r, F8_A_BLOCK) ? f8_attr_i(c->g, r, F8_A_BLOCK) : cols;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t from = 0; from < cols; from += block)
                *out++ = row_reduce(n->op, x + i * cols + from,
                                    cols - from < block ? cols - from : block);
    } else {
        const int64_t block =
            f8_attr_i(c->g, r, F8_A_BLOCK) ? f8_attr_i(c->g, r, F8_A_BLOCK) : rows;
        for (int64_t i = 0; i < rows * cols; i++) {
            const int64_t row = i / cols;
            uint32_t *to = &out[row / block * cols + i % cols];
            if (n->op == F8_OP_REDUCE_AMAX)
                *to = f8_amax_bits(row % block ? *to : 0, f_of(x[i]));
            else
                *to = row % block ? f8_bits(f_of(*to) + f_of(x[i])) : x[i];
        }
    }
    free(x);
}

static void embedding(kcase *c, f8_ref r, uint32_t *out)
{
    const f8_node *n = f8_at(c->g, r);
    const f8_type *table = f8_type_of(c->g, n->in[0]);
    const int64_t cols = f8_type_columns(table), ids = f8_type_elements(f8_type_of(c->g, n->in[1]));
    for (int64_t i = 0; i < ids; i++) {
        const int32_t id = (int32_t)c->value[n->in[1]][i];
        const bool inside = id >= 0 && id < f8_type_rows(table);
        for (int64_t k = 0; k < cols; k++)
            out[i * cols + k] = inside ? c->value[n->in[0]][id * cols + k] : 0x7fc00000;
    }
}

static void embedding_grad(kcase *c, f8_ref r, uint32_t *out)
{
    const f8_node *n = f8_at(c->g, r);
    const f8_type *dy = f8_type_of(c->g, n->in[2]);
    const int64_t cols = f8_type_columns(dy);
    memcpy(out, c->value[n->in[0]], (size_t)f8_type_elements(&n->type) * sizeof *out);
    for (int64_t i = 0; i < f8_type_rows(dy); i++) {
        const int32_t id = (int32_t)c->value[n->in[1]][i];
        for (int64_t k = 0; k < cols && id >= 0 && id < f8_type_rows(&n->type); k++)
            out[id * cols + k] = f8_bits(f_of(out[id * cols + k]) +
                                         decoded(dy->dtype, c->value[n->in[2]][i * cols + k]));
    }
}

static void moved(kcase *c, f8_ref r, uint32_t *out)
{
    const f8_node *n = f8_at(c->g, r);
    const f8_type *t = &n->type, *from = f8_type_of(c->g, n->in[0]);
    const uint32_t *x = c->value[n->in[0]];
    const int64_t cols = f8_type_columns(t), group0 = f8_attr_i(c->g, r, F8_A_GROUP);
    const int64_t group = group0 > 0 ? group0 : cols, shift = f8_attr_i(c->g, r, F8_A_SHIFT);
    const f8_ints perm = f8_attr_ints(c->g, r, F8_A_PERM);
    int64_t axis = f8_attr_i(c->g, r, F8_A_AXIS);
    if (axis < 0)
        axis += t->rank;
    for (int64_t i = 0; i < f8_type_elements(t); i++) {
        int64_t index[F8_MAX_RANK] = {0}, at[F8_MAX_RANK] = {0}, rest = i, flat = 0;
        for (int a = t->rank - 1; a >= 0; a--) {
            index[a] = rest % t->dim[a];
            rest /= t->dim[a];
        }
        switch (n->op) {
        case F8_OP_RESHAPE: out[i] = x[i]; continue;
        case F8_OP_BROADCAST: out[i] = x[broadcast_index(from, t, i)]; continue;
        case F8_OP_ROLL: {
            const int64_t col = i % cols, start = col - col % group;
            out[i] = x[i - col + start + (((col - start - shift) % group) + group) % group];
            continue;
        }
        case F8_OP_TRANSPOSE:
            for (int a = 0; a < t->rank; a++)
                at[perm.v[a]] = index[a];
            break;
        case F8_OP_CONCAT: {
            uint32_t k = 0;
            while (index[axis] >= f8_type_of(c->g, n->in[k])->dim[axis])
                index[axis] -= f8_type_of(c->g, n->in[k++])->dim[axis];
            x = c->value[n->in[k]];
            from = f8_type_of(c->g, n->in[k]);
            memcpy(at, index, sizeof at);
            break;
        }
        default: /* SLICE */
            memcpy(at, index, sizeof at);
            at[axis] += f8_attr_i(c->g, r, F8_A_START);
            break;
        }
        for (int a = 0; a < from->rank; a++)
            flat = flat * from->dim[a] + at[a];
        out[i] = x[flat];
    }
}

static void leaf(kcase *c, f8_ref r, uint32_t *out)
{
    const f8_node *n = f8_at(c->g, r);
    for (int64_t i = 0; i < f8_type_elements(&n->type); i++)
        out[i] = n->op == F8_OP_IOTA       ? (uint32_t)(i % f8_type_columns(&n->type))
                 : n->type.dtype == F8_I32 ? (uint32_t)(int32_t)f8_attr_f(c->g, r, F8_A_VALUE)
                 : n->type.dtype == F8_BOOL
                     ? f8_attr_f(c->g, r, F8_A_VALUE) != 0
                     : encoded(n->type.dtype, (float)f8_attr_f(c->g, r, F8_A_VALUE));
}

static void evaluate(kcase *c, f8_ref r)
{
    const f8_node *n = f8_at(c->g, r);
    const int64_t count = f8_type_elements(&n->type);
    uint32_t *out = c->value[r] = calloc((size_t)count + 1, sizeof *out);
    switch (f8_op_facts(n->op)->cls) {
    case F8_LEAF: leaf(c, r, out); return;
    case F8_REDUCE: reduce(c, r, out); return;
    case F8_SHAPE: moved(c, r, out); return;
    case F8_GATHER:
        if (n->op == F8_OP_EMBEDDING)
            embedding(c, r, out);
        else
            embedding_grad(c, r, out);
        return;
    default: break;
    }
    f8_granularity grain;
    const bool blocks = (n->op == F8_OP_QUANTIZE || n->op == F8_OP_DEQUANTIZE) &&
                        f8_granularity_parse(f8_attr_s(c->g, r, F8_A_GRANULARITY), &grain);
    bool plain = false;
    for (int64_t i = 0; i < count; i++) {
        uint32_t u[3] = {0};
        for (uint32_t k = 0; k < n->n_in && k < 3; k++) {
            const f8_type *t = f8_type_of(c->g, n->in[k]);
            const int64_t cols = f8_type_columns(&n->type);
            u[k] =
                c->value[n->in[k]][k == 1 && blocks ? i / cols / grain.rows * f8_type_columns(t) +
                                                          i % cols / grain.cols
                                                    : broadcast_index(t, &n->type, i)];
        }
        out[i] = pointwise(c, r, u, &plain);
    }
    if (plain)
        encode(n->type.dtype, n->op == F8_OP_QUANTIZE && f8_attr_i(c->g, r, F8_A_SATURATE) != 0,
               out, count);
}

void ke_evaluate(kcase *c)
{
    need_room(c);
    for (f8_ref r = 1; r < c->g->n_nodes; r++)
        if (!c->value[r])
            evaluate(c, r);
}
