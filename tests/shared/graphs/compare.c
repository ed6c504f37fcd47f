/* Comparing a target with the reference: see compare.h. */
#include "tests/shared/graphs/compare.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/reference/reference.h"
#include "ir/num/fp8.h"

/* ---- bits ---- */

static bool is_nan(f8_dtype d, uint32_t bits)
{
    return f8_dtype_is_float(d) && isnan(f8_decode(d, bits));
}

/* Of an i64 as much as 32 bits tell. */
static uint32_t element(const void *data, size_t size, int64_t i)
{
    int64_t wide = 0;
    if (size == 8)
        memcpy(&wide, (const int64_t *)data + i, sizeof wide);
    return size == 8   ? (uint32_t)(wide ^ (wide >> 32) ^ (wide >> 63))
           : size == 4 ? ((const uint32_t *)data)[i]
           : size == 2 ? ((const uint16_t *)data)[i]
                       : ((const uint8_t *)data)[i];
}

bool f8_same_bits(const char *what, const char *port, const f8_type *type, const void *got,
                  const void *want, char *message)
{
    const size_t size = f8_dtype_size(type->dtype);
    const int64_t n = f8_type_elements(type);
    if (!memcmp(got, want, (size_t)n * size))
        return true;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t a = element(got, size, i), b = element(want, size, i);
        if (a == b || (is_nan(type->dtype, a) && is_nan(type->dtype, b)))
            continue;
        const bool f = f8_dtype_is_float(type->dtype);
        char text[160];
        snprintf(message, F8_MESSAGE, "%s: %s[%lld] of %s is %#x (%g), not %#x (%g)", what, port,
                 (long long)i, f8_type_print(type, text, sizeof text), a,
                 f ? (double)f8_decode(type->dtype, a) : (double)(int32_t)a, b,
                 f ? (double)f8_decode(type->dtype, b) : (double)(int32_t)b);
        return false;
    }
    return true;
}

/* ---- products and attention alone ---- */

static const double U = 0x1p-24; /* half an ulp of 1 in f32 */

static double *as_doubles(const f8_type *t, const void *data)
{
    const int64_t n = f8_type_elements(t);
    double *d = malloc((size_t)n * sizeof *d);
    for (int64_t i = 0; i < n; i++)
        d[i] = (double)f8_decode(t->dtype, element(data, f8_dtype_size(t->dtype), i));
    return d;
}

/* |x| elementwise, in the same dtype. */
static void *absolute(const f8_type *t, const void *data)
{
    const size_t size = f8_dtype_size(t->dtype), bytes = (size_t)f8_type_bytes(t);
    uint8_t *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    if (t->dtype == F8_E8M0) /* it has no sign */
        return copy;
    for (size_t i = size - 1; i < bytes; i += size)
        copy[i] &= 0x7f;
    return copy;
}

/* Of |x|, what is subnormal as an f32; zeros for the rest. NULL when nothing is. */
static void *subnormals(const f8_type *t, const void *magnitudes)
{
    const size_t size = f8_dtype_size(t->dtype), bytes = (size_t)f8_type_bytes(t);
    uint8_t *copy = calloc(1, bytes);
    bool any = false;
    for (int64_t i = 0; i < f8_type_elements(t); i++) {
        const float x = f8_decode(t->dtype, element(magnitudes, size, i));
        if (x > 0 && x < FLT_MIN) {
            memcpy(copy + (size_t)i * size, (const uint8_t *)magnitudes + (size_t)i * size, size);
            any = true;
        }
    }
    if (any)
        return copy;
    free(copy);
    return NULL;
}

static double largest(const f8_type *t, const void *data)
{
    double *d = as_doubles(t, data), top = 0;
    for (int64_t i = 0; i < f8_type_elements(t); i++)
        top = fabs(d[i]) > top || isnan(d[i]) ? fabs(d[i]) : top;
    free(d);
    return top;
}

/* Of a mask's elements: those that hide a score have no size. */
static double largest_finite(const f8_type *t, const void *data)
{
    double *d = as_doubles(t, data), top = 0;
    for (int64_t i = 0; i < f8_type_elements(t); i++)
        top = isfinite(d[i]) && fabs(d[i]) > top ? fabs(d[i]) : top;
    free(d);
    return top;
}

static bool close_to(const f8_node_check *c, const f8_type *t, int which, const double *exact,
                     const double *bound)
{
    double *got = as_doubles(t, c->result[which]);
    bool ok = true;
    for (int64_t i = 0; ok && i < f8_type_elements(t); i++) {
        const double allowed = bound[i], off = fabs(got[i] - exact[i]);
        if (isnan(allowed)) /* an operand is NaN, or Inf meets zero */
            ok = isnan(got[i]) && isnan(exact[i]);
        else if (allowed < (double)FLT_MAX / 4) /* else it may overflow on the way */
            ok = off <= allowed;
        if (!ok)
            snprintf(c->message, F8_MESSAGE,
                     "node %u (%s), result %d[%lld]: %.9g, not %.9g; allowed %g", c->r,
                     f8_op_facts(f8_at(c->g, c->r)->op)->name, which, (long long)i, got[i],
                     exact[i], allowed);
    }
    free(got);
    return ok;
}

/* What a sum of k products may be off by, over S. In f32, in any order and grouping, (k + 1) u
 * (Higham, Accuracy and Stability, 3.1), alpha and acc by 3 more roundings, scales that multiply
 * the operands by 2. Tensor cores cut off where others round: twice that. Their FP8 sums on Hopper
 * keep about 13 bits below the largest of the addends that meet in one instruction, 32 products and
 * the sum so far (DeepSeek-V3, arXiv 2412.19437, 3.3.2): 33 * 2^-13 of their magnitude each time;
 * cuBLASLt moves to f32 every 128 of k, which are 4 such times for each part. */
static double sum_error(f8_sums sums, bool fp8, double k)
{
    if (sums != F8_SUMS_GPU)
        return (k + 6) * U;
    return 2 * (k + 6) * U + (fp8 ? 4 * 33 * 0x1p-13 : 0);
}

/* What is lost where subnormal factors count as zero, as AMX has it: the product of those of each
 * operand in turn with the other's magnitudes, added to `lost`. */
static bool add_flushed(const f8_node_check *c, f8_ref r, void **abs, double *lost, f8_diag *diag)
{
    const f8_node *n = f8_at(c->g, r);
    void *operand[5], *result = malloc((size_t)f8_type_elements(&n->type) * 4);
    bool ok = true;
    for (uint32_t side = 0; ok && side < 2; side++) {
        memcpy(operand, abs, n->n_in * sizeof *abs);
        operand[side] = subnormals(f8_type_of(c->g, n->in[side]), abs[side]);
        if (!operand[side])
            continue;
        if (n->n_in > 2)
            operand[2] = calloc(1, (size_t)f8_type_bytes(&n->type));
        ok = f8_reference_node(c->g, r, (const void *const *)operand, &result, NULL, diag) == F8_OK;
        double *d = as_doubles(&n->type, result);
        for (int64_t i = 0; i < f8_type_elements(&n->type); i++)
            lost[i] += d[i] == d[i] ? d[i] : 0;
        free(d);
        free(operand[side]);
        if (n->n_in > 2)
            free(operand[2]);
    }
    free(result);
    return ok;
}

/* S is the same op on |operands|. A machine that flushes subnormals loses what `lost` holds, and of
 * each product and sum at most 2^-126. A result in bf16 is rounded once more, and so may be the
 * reference's: 2^-8 each. */
static bool check_product(const f8_node_check *c)
{
    const f8_type *result = &f8_at(c->g, c->r)->type;
    const f8_ref r = f8_at(c->g, c->r)->op == F8_OP_CAST ? f8_at(c->g, c->r)->in[0] : c->r;
    const f8_node *n = f8_at(c->g, r);
    const f8_type *t = &n->type;
    const int64_t count = f8_type_elements(t);
    void *abs[5], *want = malloc((size_t)count * 4), *sums = malloc((size_t)count * 4);
    double *bound = malloc((size_t)count * sizeof *bound);
    double *lost = calloc((size_t)count, sizeof *lost);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *a = f8_type_of(c->g, n->in[i]);
        abs[i] = absolute(a, c->operand[i]);
    }
    f8_diag diag = {0};
    bool ok = f8_reference_node(c->g, r, c->operand, &want, NULL, &diag) == F8_OK &&
              f8_reference_node(c->g, r, (const void *const *)abs, &sums, NULL, &diag) == F8_OK;
    ok = ok && (n->op != F8_OP_MATMUL || add_flushed(c, r, abs, lost, &diag));
    if (!ok)
        snprintf(c->message, F8_MESSAGE, "reference: %s", diag.text);
    const f8_type *a = f8_type_of(c->g, n->in[0]);
    const double k =
        (double)(f8_attr_i(c->g, r, F8_A_TRANSPOSE_A) ? f8_type_rows(a) : f8_type_columns(a));
    const double error = sum_error(c->sums, n->op == F8_OP_SCALED_MATMUL, k);
    double *S = ok ? as_doubles(t, sums) : NULL, *exact = ok ? as_doubles(t, want) : NULL;
    const double narrow = result->dtype == F8_BF16 ? 2 * 0x1p-8 : 0;
    for (int64_t i = 0; i < count && ok; i++) {
        bound[i] = (1 + narrow) * error * S[i] +
                   (isfinite(exact[i]) ? narrow * fabs(exact[i]) : 0) + lost[i] + 2 * k * 0x1p-126;
        /* Hopper's scales are multiplied in one after the other (seen on an H200) */
        if (c->sums == F8_SUMS_GPU && S[i] >= (double)FLT_MAX / 4)
            bound[i] = INFINITY;
    }
    free(S);
    ok = ok && close_to(c, result, 0, exact, bound);
    free(exact);
    for (uint32_t i = 0; i < n->n_in; i++)
        free(abs[i]);
    free(want);
    free(sums);
    free(bound);
    free(lost);
    return ok;
}

/* With A the largest score's magnitude: a score errs by e = (D + 3) u A, its exponential by e and 2
 * u (A + 1) for the rounded difference and exp itself, a sum of T by T u: p is off by a factor of
 * at most w = 2 (e + 2 u (A + 1)) + (T + 4) u. Then o by w and T u of max|v|; lse by e + T u + 2 u
 * |lse|; the gradients by the same through their sums. On tensor cores p and dp - delta are rounded
 * to bf16 before the products, 2^-8 each, twice in dq and dk (p, then ds), and everything in f32 is
 * allowed 4 times as much: sums cut off, exp2 and log2 with a factor. Dropout multiplies p and dp
 * by f. Coarse: tests/codegen/cpu/check_attention.c and tests/codegen/cuda/check_cuda_attention.c
 * have the fine bounds. */
static bool check_attention(const f8_node_check *c)
{
    const f8_node *n = f8_at(c->g, c->r);
    const f8_type *q = f8_type_of(c->g, n->in[0]);
    const bool grad = n->op == F8_OP_ATTENTION_GRAD;
    const int64_t H = f8_attr_i(c->g, c->r, F8_A_HEADS), D = q->dim[2] / H, T = q->dim[1],
                  K = f8_type_of(c->g, n->in[1])->dim[1], longest = T > K ? T : K;
    const double group = (double)(H / f8_attr_i(c->g, c->r, F8_A_KV_HEADS)),
                 attr = f8_attr_f(c->g, c->r, F8_A_SCALE);
    const double scale = attr != 0 ? attr : 1 / sqrt((double)D), Dd = (double)D,
                 Td = (double)longest;
    const double p = f8_attr_f(c->g, c->r, F8_A_DROPOUT), f = 1 / (1 - p);
    const uint32_t at_mask = grad ? 6 : 3;
    double top[6];
    for (uint32_t i = 0; i < at_mask; i++)
        top[i] = largest(f8_type_of(c->g, n->in[i]), c->operand[i]);
    const f8_ref mask = f8_attention_mask(c->g, n);
    const double added = mask && f8_type_of(c->g, mask)->dtype == F8_F32
                             ? largest_finite(f8_type_of(c->g, mask), c->operand[at_mask])
                             : 0;
    const bool tensor = c->sums != F8_SUMS_F32;
    const double u = tensor ? 4 * U : U, A = scale * Dd * top[0] * top[1] + added, e = (Dd + 3) * u * A;
    const double w = 2 * (e + 2 * u * (A + 1)) + (Td + 4) * u + (tensor ? 2 * 0x1p-8 : 0);
    const double ds = grad ? Dd * top[5] * (f * top[2] + top[3]) : 0; /* |dp - delta| */
    const double off[2][3] = {
        {f * (w + Td * u) * top[2], e + (Td + 4) * u + 2 * u * (A + log(Td) + 1), 0},
        {scale * top[1] * ds * (w + (2 * Dd + Td + 8) * u),
         scale * top[0] * ds * Td * group * (w + (2 * Dd + Td * group + 8) * u),
         f * top[5] * Td * group * (w + (Td * group + 4) * u)},
    };
    bool ok = true;
    void *want[3] = {0};
    double *bound[3] = {0};
    f8_diag diag = {0};
    f8_type type[3];
    const int results = f8_op_facts(n->op)->results;
    for (int k = 0; k < results; k++) {
        type[k] = n->type;
        if (k && grad)
            type[k] = *f8_type_of(c->g, n->in[k]);
        else if (k)
            type[k] = (f8_type){.dtype = F8_F32, .rank = 3, .dim = {q->dim[0], H, T}};
        want[k] = malloc((size_t)f8_type_bytes(&type[k]));
        bound[k] = malloc((size_t)f8_type_elements(&type[k]) * sizeof(double));
    }
    if (f8_reference_node(c->g, c->r, c->operand, want, NULL, &diag) != F8_OK) {
        snprintf(c->message, F8_MESSAGE, "reference: %s", diag.text);
        ok = false;
    }
    for (int k = 0; k < results && ok; k++) {
        double *exact = as_doubles(&type[k], want[k]);
        for (int64_t i = 0; i < f8_type_elements(&type[k]); i++) /* bf16: either neighbour */
            bound[k][i] =
                off[grad][k] + (type[k].dtype == F8_BF16 ? 0x1p-7 : 2 * U) * fabs(exact[i]) + 1e-37;
        if (A < 40) /* else nothing is left of the bound */
            ok = close_to(c, &type[k], k, exact, bound[k]);
        free(exact);
    }
    for (int k = 0; k < 3; k++) {
        free(want[k]);
        free(bound[k]);
    }
    return ok;
}

bool f8_check_node(const f8_node_check *c)
{
    const f8_class cls = f8_op_facts(f8_at(c->g, c->r)->op)->cls;
    return cls == F8_ATTENTION ? check_attention(c) : check_product(c);
}
