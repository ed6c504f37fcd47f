/* The interpreter against a definition in C of every pointwise op, for every dtype that ir/ops.def
 * gives it a form for: on all tuples of special values. Kernels are made of the same forms, so
 * comparisons of kernels with the interpreter do not find a wrong one. An op without a definition
 * here fails. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/reference/reference.h"
#include "frontend/text/parse.h"
#include "ir/num/scalar.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

static const float floats[] = {0.0f,    -0.0f, 1,      -1,   INFINITY, -INFINITY, NAN,  1e-40f,
                               -1e-45f, 3e38f, -3e38f, 2.5f, -2.5f,    88,        -100, 0.3f};
static const int32_t ints[] = {INT_MAX, INT_MIN, -7,      0, 1,  -1,    123456789, 987654321,
                               3,       -3,      1 << 20, 5, -2, 65535, 17,        8};
static const uint8_t truths[] = {0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0};
enum { N = 16 };

/* ---- definitions ---- */

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
    case F8_OP_ABS: return a < 0 ? 0u - u[0] : u[0];
    case F8_OP_LT: return a < b;
    case F8_OP_LE: return a <= b;
    case F8_OP_EQ: return a == b;
    default: ck_abort_msg("no definition of %s for i32", f8_op_facts(op)->name);
    }
}

static uint32_t bool_op(f8_op op, const uint32_t *u)
{
    switch (op) {
    case F8_OP_AND: return u[0] && u[1];
    case F8_OP_OR: return u[0] || u[1];
    case F8_OP_NOT: return !u[0];
    default: ck_abort_msg("no definition of %s for bool", f8_op_facts(op)->name);
    }
}

static float function_op(f8_op op, float x)
{
    static const struct {
        f8_op op;
        f8_sfn fn;
    } functions[] = {{F8_OP_EXP, F8_FN_EXP},
                     {F8_OP_LOG, F8_FN_LOG},
                     {F8_OP_TANH, F8_FN_TANH},
                     {F8_OP_ERF, F8_FN_ERF},
                     {F8_OP_SIN, F8_FN_SIN},
                     {F8_OP_COS, F8_FN_COS},
                     {F8_OP_SIGMOID, F8_FN_SIGMOID},
                     {F8_OP_GELU_ERF, F8_FN_GELU_ERF},
                     {F8_OP_GELU_TANH, F8_FN_GELU_TANH},
                     {F8_OP_GELU_ERF_SLOPE, F8_FN_GELU_ERF_SLOPE},
                     {F8_OP_GELU_TANH_SLOPE, F8_FN_GELU_TANH_SLOPE},
                     {F8_OP_SIGMOID_BF16, F8_FN_SIGMOID_BF16},
                     {F8_OP_SILU_BF16, F8_FN_SILU_BF16},
                     {F8_OP_SILU_BF16_SLOPE, F8_FN_SILU_BF16_SLOPE},
                     {F8_OP_TANH_BF16, F8_FN_TANH_BF16}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].op == op)
            return f8_scalar_f32(functions[i].fn, x);
    ck_abort_msg("no definition of %s for f32", f8_op_facts(op)->name);
}

static uint32_t float_op(f8_op op, const float *f)
{
    switch (op) {
    case F8_OP_LT: return f[0] < f[1];
    case F8_OP_LE: return f[0] <= f[1];
    case F8_OP_EQ: return f[0] == f[1];
    case F8_OP_ISFINITE: return isfinite(f[0]) != 0;
    case F8_OP_ADD: return f8_bits(f[0] + f[1]);
    case F8_OP_SUB: return f8_bits(f[0] - f[1]);
    case F8_OP_MUL: return f8_bits(f[0] * f[1]);
    case F8_OP_DIV: return f8_bits(f[0] / f[1]);
    case F8_OP_MAX: return f8_bits(f8_maximum(f[0], f[1]));
    case F8_OP_MIN: return f8_bits(f8_minimum(f[0], f[1]));
    case F8_OP_FMA: return f8_bits(fmaf(f[0], f[1], f[2]));
    case F8_OP_NEG: return f8_bits(-f[0]);
    case F8_OP_ABS: return f8_bits(fabsf(f[0]));
    case F8_OP_SQRT: return f8_bits(sqrtf(f[0]));
    case F8_OP_RSQRT: return f8_bits(1.0f / sqrtf(f[0]));
    case F8_OP_RELU: return f8_bits(f8_maximum(f[0], 0));
    case F8_OP_FLOOR: return f8_bits(floorf(f[0]));
    case F8_OP_POW2_FLOOR: return f8_pow2_floor_bits(f8_bits(f[0]));
    default: return f8_bits(function_op(op, f[0]));
    }
}

/* ---- all tuples ---- */

static const char *const type_name[] = {
    [F8_KIND_F] = "f32", [F8_KIND_I] = "i32", [F8_KIND_B] = "bool"};
static const void *const value[] = {[F8_KIND_F] = floats, [F8_KIND_I] = ints, [F8_KIND_B] = truths};

static uint32_t word_of(f8_skind kind, const void *p, size_t i)
{
    uint32_t u = 0;
    const size_t size = kind == F8_KIND_B ? 1 : 4;
    memcpy(&u, (const char *)p + i * size, size);
    return u;
}

static uint32_t expected(f8_op op, f8_skind kind, const uint32_t *u)
{
    if (op == F8_OP_SELECT)
        return u[0] ? u[1] : u[2];
    if (kind == F8_KIND_F)
        return float_op(op, (float[]){f8_from_bits(u[0]), f8_from_bits(u[1]), f8_from_bits(u[2])});
    return kind == F8_KIND_I ? int_op(op, u) : bool_op(op, u);
}

static bool is_nan(uint32_t u)
{
    return (u & 0x7fffffff) > 0x7f800000;
}

/* The first operand along the last axis, the second along the one before. */
static void check_op(f8_op op, f8_skind kind)
{
    const f8_op_info *facts = f8_op_facts(op);
    const bool selects = op == F8_OP_SELECT;
    const bool truth =
        !selects && f8_scalar_form((f8_sform)facts->form[kind])->result_kind == F8_KIND_B;
    static uint32_t out[N * N * N];
    char text[512];
    f8_arena arena;
    f8_diag d = {0};
    f8_module *m;
    f8_arena_init(&arena, NULL);
    snprintf(
        text, sizeof text,
        "module m\nfunc f(%%a: %s[16]%s%s%s%s) -> (%%y: %s[%s16]) {\n  return %s(%%a%s%s)\n}\n",
        selects ? "bool" : type_name[kind], facts->min_in > 1 ? ", %b: " : "",
        facts->min_in > 1 ? type_name[kind] : "", facts->min_in > 1 ? "[16, 1]" : "",
        facts->min_in < 3   ? ""
        : kind == F8_KIND_F ? ", %c: f32[16, 1, 1]"
        : kind == F8_KIND_I ? ", %c: i32[16, 1, 1]"
                            : ", %c: bool[16, 1, 1]",
        truth ? "bool" : type_name[kind],
        facts->min_in == 3   ? "16, 16, "
        : facts->min_in == 2 ? "16, "
                             : "",
        facts->name, facts->min_in > 1 ? ", %b" : "", facts->min_in > 2 ? ", %c" : "");
    f8_parse(text, strlen(text), "t", NULL, 0, &arena, &d, &m);
    ck_assert_msg(m != NULL, "%s: %s", text, d.text);
    const void *const in[] = {selects ? value[F8_KIND_B] : value[kind], value[kind], value[kind]};
    void *results[] = {out};
    ck_assert_msg(f8_reference_run(&m->func[0], in, results, NULL, &d) == F8_OK, "%s", d.text);
    const size_t n = facts->min_in == 3 ? N * N * N : facts->min_in == 2 ? N * N : N;
    for (size_t i = 0; i < n; i++) {
        const size_t at[] = {i % N, i / N % N, i / N / N};
        uint32_t u[3] = {0};
        for (size_t k = 0; k < 3; k++)
            u[k] = word_of(selects && !k ? F8_KIND_B : kind, in[k], at[k]);
        const uint32_t got = word_of(truth ? F8_KIND_B : kind, out, i),
                       want = expected(op, kind, u);
        ck_assert_msg(got == want || (kind == F8_KIND_F && !truth && is_nan(got) && is_nan(want)),
                      "%s for %s: of %08x, %08x, %08x: %08x, not %08x", facts->name,
                      type_name[kind], u[0], u[1], u[2], got, want);
    }
    f8_arena_end(&arena);
}

START_TEST(every_form)
{
    int forms = 0;
    for (f8_op op = 0; op < F8_OP_COUNT; op++)
        for (f8_skind kind = F8_KIND_F; kind <= F8_KIND_B && f8_op_facts(op)->cls == F8_POINTWISE;
             kind++)
            if (f8_op_facts(op)->form[kind]) {
                check_op(op, kind);
                forms++;
            }
    printf("%d forms\n", forms);
    ck_assert_int_gt(forms, 40);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("forms");
    TCase *t = tcase_create("forms");
    tcase_add_test(t, every_form);
    suite_add_tcase(s, t);
    return s;
}
