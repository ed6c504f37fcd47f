/* The reference interpreter: pointwise ops, casts and quantize, with broadcasting.
 *
 * Operands are loaded into blocks of 32-bit words (floats as their bits, truth values as 0 or 1)
 * and evaluated by f8_scalar_form_eval: the form that ops.def names, from which kernels are
 * lowered, too. So comparing kernels with this interpreter does not test that table. These tests
 * do, independently of it:
 *     - eval_double below states every op a second time, with libm;
 *       tests/passes/grad/check_gradients.c computes finite differences of it;
 *     - tests/codegen/reference/check_reference.c compares results with expected ones;
 *     - tests/codegen/reference/check_forms.c states every op in C, for each dtype;
 *     - tests/ir/num/check_scalar.c compares primitives and functions with libm and exact results.
 *
 * In wide mode blocks are doubles. Integer arithmetic uses words in both modes. */
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"
#include "ir/num/fp8.h"
#include "ir/num/scalar.h"

enum { BLOCK = 1024, MAX_OPERANDS = 3 };

/* ---- walking a broadcast ---- */

/* The axes of out, without axes of size 1; neighbouring axes are joined where every operand allows
 * it. Operand k moves by stride[k][d] elements along axis d, and by 1 or 0 along the last axis. */
typedef struct walk {
    int rank, n_in;
    int64_t dim[F8_MAX_RANK], stride[MAX_OPERANDS][F8_MAX_RANK];
    int64_t index[F8_MAX_RANK], at[MAX_OPERANDS], done;
} walk;

static int64_t stride_of(const f8_type *t, int out_rank, int d)
{
    const int own = d - (out_rank - t->rank);
    if (own < 0 || t->dim[own] == 1)
        return 0;
    int64_t stride = 1;
    for (int i = own + 1; i < t->rank; i++)
        stride *= t->dim[i];
    return stride;
}

static void walk_start(walk *w, const f8_type *out, const f8_rvalue *const *in, int n_in)
{
    *w = (walk){.n_in = n_in};
    for (int d = 0; d < out->rank; d++) {
        int64_t stride[MAX_OPERANDS];
        bool joins = w->rank > 0;
        if (out->dim[d] == 1)
            continue;
        for (int k = 0; k < n_in; k++) {
            stride[k] = stride_of(&in[k]->type, out->rank, d);
            joins &= w->rank > 0 && w->stride[k][w->rank - 1] == stride[k] * out->dim[d];
        }
        const int to = joins ? w->rank - 1 : w->rank++;
        w->dim[to] = joins ? w->dim[to] * out->dim[d] : out->dim[d];
        for (int k = 0; k < n_in; k++)
            w->stride[k][to] = stride[k];
    }
    if (w->rank == 0)
        w->dim[w->rank++] = 1;
}

/* Called after each run along the last axis: moves to the next run. False at the end. */
static bool walk_next(walk *w)
{
    w->done += w->dim[w->rank - 1];
    for (int d = w->rank - 2; d >= 0; d--) {
        for (int k = 0; k < w->n_in; k++)
            w->at[k] += w->stride[k][d];
        if (++w->index[d] < w->dim[d])
            return true;
        for (int k = 0; k < w->n_in; k++)
            w->at[k] -= w->stride[k][d] * w->dim[d];
        w->index[d] = 0;
    }
    return false;
}

/* ---- narrow values as words ---- */

/* The nearest i32, as bits. */
static uint32_t nearest(int64_t v)
{
    return (uint32_t)(int32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

/* Loads n elements from `at` on; with stride 0, the same element n times. Of an i64 it is the
 * nearest i32. Returns buf, or the memory of the value. */
static const uint32_t *load_words(const f8_rvalue *v, int64_t at, int64_t stride, int64_t n,
                                  uint32_t *buf)
{
    const size_t size = f8_dtype_size(v->type.dtype);
    if (size == 4 && stride)
        return (const uint32_t *)v->data + at;
    const int64_t count = stride ? n : 1;
    for (int64_t i = 0; i < count; i++)
        buf[i] = size == 8   ? nearest(((const int64_t *)v->data)[at + i])
                 : size == 4 ? ((const uint32_t *)v->data)[at + i]
                 : size == 2 ? ((const uint16_t *)v->data)[at + i]
                             : ((const uint8_t *)v->data)[at + i];
    for (int64_t i = count; i < n; i++)
        buf[i] = buf[0];
    return buf;
}

static void store_words(f8_rvalue *v, int64_t at, int64_t n, const uint32_t *words)
{
    const size_t size = f8_dtype_size(v->type.dtype);
    if (size == 4)
        memcpy((uint32_t *)v->data + at, words, (size_t)n * 4);
    else if (size == 8)
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)v->data)[at + i] = (int32_t)words[i];
    else if (size == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)v->data)[at + i] = (uint16_t)words[i];
    else
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)v->data)[at + i] = (uint8_t)words[i];
}

/* ---- f32 and integers ---- */

typedef struct words {
    const uint32_t *in[MAX_OPERANDS];
    uint32_t *out;
    size_t n;
} words;

static void call(f8_sfn fn, const words *w)
{
    f8_scalar_eval(fn, w->in[0], w->out, w->n);
}

/* Floats as an F; integers and truth values as they are. */
static void decode(f8_dtype d, const words *w)
{
    const f8_sfn fn = f8_scalar_decode_fn(d);
    if (fn != F8_SFN_COUNT)
        call(fn, w);
    else if (w->out != w->in[0])
        memcpy(w->out, w->in[0], w->n * sizeof *w->out);
}

static void eval_cast(f8_dtype from, f8_dtype to, const words *w)
{
    const bool from_int = !f8_dtype_is_float(from); /* the 0 and 1 of a bool are integers already */
    decode(from, w);
    if (to == F8_I32 || to == F8_I64) {
        if (!from_int)
            f8_scalar_op_eval(F8_S_F2I, w->out, NULL, NULL, w->out, w->n);
        return;
    }
    if (from_int)
        f8_scalar_op_eval(F8_S_I2F, w->out, NULL, NULL, w->out, w->n);
    if (to != F8_F32 && to != from)
        f8_scalar_eval(f8_scalar_encode_fn(to, false), w->out, w->out, w->n);
    else if (to == from && to != F8_F32) /* there is nothing to convert */
        memcpy(w->out, w->in[0], w->n * sizeof *w->out);
}

/* SELECT moves the bits of any dtype. */
static void eval_words(f8_op op, f8_dtype from, f8_dtype to, const words *w)
{
    const f8_skind kind = from == F8_I32 || op == F8_OP_SELECT ? F8_KIND_I
                          : from == F8_BOOL                    ? F8_KIND_B
                                                               : F8_KIND_F;
    if (op == F8_OP_CAST)
        eval_cast(from, to, w);
    else
        f8_scalar_form_eval(f8_op_facts(op)->form[kind], w->in, w->out, w->n);
}

static void run_words(f8_op op, const f8_rvalue *const *in, int n_in, f8_rvalue *out)
{
    uint32_t buf[MAX_OPERANDS][BLOCK], result[BLOCK];
    walk w;
    walk_start(&w, &out->type, in, n_in);
    const int64_t length = w.dim[w.rank - 1];
    do {
        for (int64_t first = 0; first < length; first += BLOCK) {
            const int64_t n = length - first < BLOCK ? length - first : BLOCK;
            words block = {.out = result, .n = (size_t)n};
            for (int k = 0; k < n_in; k++) {
                const int64_t stride = w.stride[k][w.rank - 1];
                block.in[k] = load_words(in[k], w.at[k] + first * stride, stride, n, buf[k]);
            }
            eval_words(op, in[0]->type.dtype, out->type.dtype, &block);
            store_words(out, w.done + first, n, result);
        }
    } while (walk_next(&w));
}

/* ---- double ---- */

static double maximum(double a, double b)
{
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b > a ? b : a + b;
}

static double minimum(double a, double b)
{
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b < a ? b : a + b;
}

static double gelu_gate(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}

static double gelu_slope(double x)
{
    return gelu_gate(x) + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1));
}

static double gelu_gate_tanh(double x)
{
    return 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* x g(x) with g = 1 / (1 + exp(-2 u)), so g' = 2 u' g (1 - g). */
static double gelu_slope_tanh(double x)
{
    const double gate = gelu_gate_tanh(x), rest = gelu_gate_tanh(-x);
    const double inner = sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
    return rest > 0 && gate > 0 ? gate + 2 * x * inner * gate * rest : gate;
}

static double silu_slope(double x)
{
    const double share = 1 / (1 + exp(-x)), rest = 1 / (1 + exp(x));
    return rest > 0 && share > 0 ? share + x * share * rest : share;
}

static double eval_double(f8_op op, double a, double b, double c)
{
    switch (op) {
    case F8_OP_ADD: return a + b;
    case F8_OP_SUB: return a - b;
    case F8_OP_MUL: return a * b;
    case F8_OP_DIV: return a / b;
    case F8_OP_MAX: return maximum(a, b);
    case F8_OP_MIN: return minimum(a, b);
    case F8_OP_FMA: return fma(a, b, c);
    case F8_OP_NEG: return -a;
    case F8_OP_ABS: return fabs(a);
    case F8_OP_SQRT: return sqrt(a);
    case F8_OP_RSQRT: return 1 / sqrt(a);
    case F8_OP_EXP: return exp(a);
    case F8_OP_LOG: return log(a);
    case F8_OP_TANH: return tanh(a);
    case F8_OP_ERF: return erf(a);
    case F8_OP_SIN: return sin(a);
    case F8_OP_COS: return cos(a);
    case F8_OP_SIGMOID: return 1 / (1 + exp(-a));
    case F8_OP_GELU_ERF: return a * gelu_gate(a);
    case F8_OP_GELU_TANH: return a * gelu_gate_tanh(a);
    case F8_OP_GELU_ERF_SLOPE: return gelu_slope(a);
    case F8_OP_GELU_TANH_SLOPE: return gelu_slope_tanh(a);
    case F8_OP_SIGMOID_BF16: return 1 / (1 + exp(-a));
    case F8_OP_SILU_BF16: return a / (1 + exp(-a));
    case F8_OP_SILU_BF16_SLOPE: return silu_slope(a);
    case F8_OP_TANH_BF16: return tanh(a);
    case F8_OP_RELU: return isnan(a) || a > 0 ? a : 0;
    case F8_OP_FLOOR: return floor(a);
    case F8_OP_POW2_FLOOR: return a == 0 || !isfinite(a) ? a : copysign(ldexp(1, ilogb(a)), a);
    case F8_OP_LT: return a < b;
    case F8_OP_LE: return a <= b;
    case F8_OP_EQ: return a == b;
    case F8_OP_AND: return a != 0 && b != 0;
    case F8_OP_OR: return a != 0 || b != 0;
    case F8_OP_NOT: return a == 0;
    case F8_OP_ISFINITE: return isfinite(a);
    case F8_OP_SELECT: return a != 0 ? b : c;
    default: return a; /* CAST: storing the result converts it */
    }
}

static void run_doubles(const f8_interp *x, f8_op op, const f8_rvalue *const *in, int n_in,
                        f8_rvalue *out)
{
    double buf[MAX_OPERANDS][BLOCK], result[BLOCK];
    walk w;
    memset(buf, 0, sizeof buf);
    walk_start(&w, &out->type, in, n_in);
    const int64_t length = w.dim[w.rank - 1];
    do {
        for (int64_t first = 0; first < length; first += BLOCK) {
            const int64_t n = length - first < BLOCK ? length - first : BLOCK;
            for (int k = 0; k < n_in; k++) {
                const int64_t stride = w.stride[k][w.rank - 1];
                f8_interp_load(x, in[k], w.at[k] + first * stride, stride ? n : 1, buf[k]);
                for (int64_t i = 1; !stride && i < n; i++)
                    buf[k][i] = buf[k][0];
            }
            for (int64_t i = 0; i < n; i++)
                result[i] = eval_double(op, buf[0][i], buf[1][i], buf[2][i]);
            f8_interp_store(x, out, w.done + first, n, result);
        }
    } while (walk_next(&w));
}

/* ---- the two entries ---- */

void f8_interp_pointwise(f8_interp *x, f8_op op, const f8_rvalue *const *in, int n_in,
                         f8_rvalue *out)
{
    if (x->status != F8_OK)
        return;
    bool integers = op != F8_OP_CAST;
    for (int k = 0; k < n_in; k++)
        integers &= !f8_dtype_is_float(in[k]->type.dtype);
    if (x->wide && !integers)
        run_doubles(x, op, in, n_in, out);
    else
        run_words(op, in, n_in, out);
}

/* `scale` (f32 or E8M0) has one number for each block of a value of type `like`. Returns these
 * numbers spread over its elements: f32, alive until the node has been evaluated. NULL after a
 * failure. */
static const f8_rvalue *spread(f8_interp *x, const f8_rvalue *scale, f8_granularity grain,
                               const f8_type *like)
{
    f8_type t = *like;
    t.dtype = F8_F32;
    f8_rvalue *out = f8_interp_temp(x, &t);
    if (!out)
        return NULL;
    const int64_t rows = f8_type_rows(like), cols = f8_type_columns(like);
    const int64_t stride = f8_granularity_columns(grain, like);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t at = f8_granularity_block(grain.rows, r) * stride +
                               f8_granularity_block(grain.cols, c);
            ((float *)out->data)[r * cols + c] =
                scale->type.dtype == F8_F32
                    ? ((const float *)scale->data)[at]
                    : f8_decode(scale->type.dtype, ((const uint8_t *)scale->data)[at]);
        }
    return out;
}

void f8_interp_quantize(f8_interp *x, const f8_rvalue *v, const f8_rvalue *scale,
                        const char *granularity, bool saturate, f8_rvalue *out)
{
    uint32_t buf[2][BLOCK];
    f8_granularity grain;
    if (x->status == F8_OK && f8_granularity_parse(granularity, &grain))
        scale = spread(x, scale, grain, &v->type);
    if (x->status != F8_OK)
        return;
    const f8_rvalue *const in[] = {v, scale};
    const f8_sfn encode = f8_scalar_encode_fn(out->type.dtype, saturate);
    walk w;
    walk_start(&w, &out->type, in, 2);
    const int64_t length = w.dim[w.rank - 1];
    do {
        for (int64_t first = 0; first < length; first += BLOCK) {
            const int64_t n = length - first < BLOCK ? length - first : BLOCK;
            const uint32_t *part[2];
            for (int k = 0; k < 2; k++) {
                const int64_t stride = w.stride[k][w.rank - 1];
                part[k] = load_words(in[k], w.at[k] + first * stride, stride, n, buf[k]);
            }
            decode(v->type.dtype, &(words){{part[0]}, buf[0], (size_t)n});
            f8_scalar_op_eval(F8_S_FMUL, buf[0], part[1], NULL, buf[0], (size_t)n);
            f8_scalar_eval(encode, buf[0], buf[0], (size_t)n);
            store_words(out, w.done + first, n, buf[0]);
        }
    } while (walk_next(&w));
}

void f8_interp_dequantize(f8_interp *x, const f8_rvalue *q, const f8_rvalue *scale,
                          const char *granularity, f8_rvalue *out)
{
    f8_granularity grain;
    f8_type wide = q->type;
    wide.dtype = F8_F32;
    f8_rvalue *decoded = x->status == F8_OK ? f8_interp_temp(x, &wide) : NULL;
    if (!decoded)
        return;
    f8_interp_pointwise(x, F8_OP_CAST, &q, 1, decoded);
    if (f8_granularity_parse(granularity, &grain)) {
        scale = spread(x, scale, grain, &q->type);
    } else if (scale->type.dtype != F8_F32) {
        f8_type t = scale->type;
        t.dtype = F8_F32;
        f8_rvalue *s = f8_interp_temp(x, &t);
        if (s)
            f8_interp_pointwise(x, F8_OP_CAST, &scale, 1, s);
        scale = s;
    }
    if (scale)
        f8_interp_pointwise(x, F8_OP_MUL, (const f8_rvalue *[]){decoded, scale}, 2, out);
}
