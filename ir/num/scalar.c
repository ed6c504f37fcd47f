/* Scalar functions: the tables, made of ir/num/scalar.def, and an evaluator that runs one
 * instruction over a block of elements at a time.
 *
 * Without a fused multiply-add instruction fmaf is a slow call. So on x86-64 the evaluator is
 * compiled twice, for AVX2 + FMA and for any machine, and chosen at run time. fma is correctly
 * rounded in both, and nothing else may be fused (-ffp-contract=off), so both give the same
 * bits. */
#include "ir/num/scalar.h"

#include <math.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* the block loops are written for the vectorizer */
#endif

const f8_sop_info *f8_scalar_op(f8_sop op)
{
    static const f8_sop_info ops[F8_SOP_COUNT] = {
#define X(op, name, result, a, b, c, value)                                                        \
    [F8_S_##op] = {name, !!F8_KIND_##a + !!F8_KIND_##b + !!F8_KIND_##c, F8_KIND_##result,          \
                   {F8_KIND_##a, F8_KIND_##b, F8_KIND_##c}},
        F8_SCALAR_OPS(X)
#undef X
    };
    return &ops[op];
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* Each body gets a C function of its own, so that the names of its values stay apart from those of
 * other bodies: the names become an enum of the values' numbers. The arguments are the first
 * values. */
#define NAME_V(name, ...) name,
#define NAME_CD(name, value) name,
#define INSTR_V(name, operation, ...) {.op = F8_S_##operation, .arg = {__VA_ARGS__}},
#define INSTR_C(name, value) {.op = F8_S_CONST_F, .imm.f = value},
#define INSTR_D(name, value) {.op = F8_S_CONST_I, .imm.u = value},

#define BODY(fn, list, arguments, ...)                                                             \
    static const f8_scalar_body *body_##fn(void)                                                   \
    {                                                                                              \
        enum { ARGUMENTS_##arguments, list(NAME_V, NAME_CD, NAME_CD) n_values_ };                  \
        static const f8_sinstr instrs[] = {list(INSTR_V, INSTR_C, INSTR_D)};                       \
        static const f8_scalar_body body = {                                                       \
            .n_args = arguments,                                                                   \
            .n_instrs = n_values_ - arguments,                                                     \
            .result = y,                                                                           \
            .instrs = instrs,                                                                      \
            __VA_ARGS__                                                                            \
        };                                                                                         \
        _Static_assert((int)n_values_ <= (int)F8_SCALAR_MAX_VALUES, "raise it");                   \
        return &body;                                                                              \
    }
#define ARGUMENTS_1 x
#define ARGUMENTS_3 a, b, c

#define X(operation, text, result_, ...)                                                           \
    static const f8_scalar_body *body_##operation(void)                                            \
    {                                                                                              \
        static const f8_sinstr only = {.op = F8_S_##operation, .arg = {0, 1, 2}};                  \
        static const f8_scalar_body body = {.name = text,                                          \
                                            .n_args = 3,                                           \
                                            .result_kind = F8_KIND_##result_,                      \
                                            .n_instrs = 1,                                         \
                                            .result = 3,                                           \
                                            .instrs = &only};                                      \
        return &body;                                                                              \
    }
F8_SCALAR_OPS(X)
#undef X
#define X(form, result_)                                                                           \
    BODY(form, F8_FUNCTION_##form, 3, .name = #form, .result_kind = F8_KIND_##result_)
F8_SCALAR_FORMS(X)
#undef X
#define X(fn, text, argument, result_, ulp)                                                        \
    BODY(fn, F8_FUNCTION_##fn, 1, .name = text, .arg_kind = F8_KIND_##argument,                    \
         .result_kind = F8_KIND_##result_, .max_ulp = ulp)
F8_SCALAR_FNS(X)
#undef X

const f8_scalar_body *f8_scalar_form(f8_sform form)
{
    static const f8_scalar_body *(*const body[])(void) = {
#define X(name, ...) [F8_FORM_##name] = body_##name,
        F8_SCALAR_OPS(X) F8_SCALAR_FORMS(X) F8_SCALAR_FNS(X)
#undef X
    };
    return body[form]();
}

const f8_scalar_body *f8_scalar_function(f8_sfn fn)
{
    return f8_scalar_form((f8_sform)(F8_FORM_FUNCTIONS + fn));
}

f8_sfn f8_scalar_decode_fn(f8_dtype d)
{
    switch (d) {
    case F8_BF16: return F8_FN_DECODE_BF16;
    case F8_F16: return F8_FN_DECODE_F16;
    case F8_E4M3: return F8_FN_DECODE_E4M3;
    case F8_E5M2: return F8_FN_DECODE_E5M2;
    case F8_E8M0: return F8_FN_DECODE_E8M0;
    default: return F8_SFN_COUNT;
    }
}

f8_sfn f8_scalar_encode_fn(f8_dtype d, bool saturate)
{
    switch (d) {
    case F8_BF16: return saturate ? F8_SFN_COUNT : F8_FN_ENCODE_BF16;
    case F8_F16: return saturate ? F8_SFN_COUNT : F8_FN_ENCODE_F16;
    case F8_E4M3: return saturate ? F8_FN_ENCODE_E4M3_SAT : F8_FN_ENCODE_E4M3;
    case F8_E5M2: return saturate ? F8_FN_ENCODE_E5M2_SAT : F8_FN_ENCODE_E5M2;
    case F8_E8M0: return saturate ? F8_FN_ENCODE_E8M0_SAT : F8_FN_ENCODE_E8M0;
    default: return F8_SFN_COUNT;
    }
}

/* ---- evaluation ------------------------------------------------------------------------------ */

enum { BLOCK = 64 };

/* One value of the body, for a block of elements. */
typedef union block {
    float f[BLOCK];
    uint32_t u[BLOCK];
    int32_t i[BLOCK];
} block;

#define INLINE static inline __attribute__((always_inline))

INLINE int32_t to_i32(float x)
{
    if (x != x)
        return 0;
    if (x >= 0x1p31f)
        return INT32_MAX;
    return x < -0x1p31f ? INT32_MIN : (int32_t)x;
}

int32_t f8_f32_to_i32(float x)
{
    return to_i32(x);
}

INLINE uint32_t float_result(float x)
{
    return f8_bits(x);
}

INLINE uint32_t bits_result(uint32_t x)
{
    return x;
}

/* The bits of an operation's value, whatever C type the expression has. */
#define RESULT_BITS(value) _Generic((value), float: float_result, default: bits_result)(value)

/* *d = op(*a, *b, *c); d is not one of the others. */
INLINE void apply(f8_sop op, const block *restrict a, const block *restrict b,
                  const block *restrict c, uint32_t imm, block *restrict d)
{
#define f8_f32_to_i32 to_i32
#define fa a->f[i]
#define fb b->f[i]
#define fc c->f[i]
#define ua a->u[i]
#define ub b->u[i]
#define uc c->u[i]
#define ia a->i[i]
#define ib b->i[i]
    switch (op) {
#define X(op, name, result, a_, b_, c_, value)                                                     \
    case F8_S_##op:                                                                                \
        for (int i = 0; i < BLOCK; i++)                                                            \
            d->u[i] = RESULT_BITS(value);                                                          \
        break;
        F8_SCALAR_OPS(X)
#undef X
    case F8_SOP_COUNT: break;
    }
#undef f8_f32_to_i32
#undef fa
#undef fb
#undef fc
#undef ua
#undef ub
#undef uc
#undef ia
#undef ib
}

/* Evaluate the body for n elements. Constants are the same in every block, so they are filled in
 * once, before the first. */
INLINE void run_body(const f8_scalar_body *p, const uint32_t *const *in, uint32_t *out, size_t n)
{
    block v[F8_SCALAR_MAX_VALUES];
    memset(v, 0, p->n_args * sizeof *v); /* a short block computes on what it does not fill */
    for (int k = 0; k < p->n_instrs; k++)
        if (p->instrs[k].op == F8_S_CONST_F || p->instrs[k].op == F8_S_CONST_I)
            for (int i = 0; i < BLOCK; i++)
                v[p->n_args + k].u[i] = p->instrs[k].imm.u;
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t count = n - first < BLOCK ? n - first : BLOCK;
        for (int k = 0; k < p->n_args; k++)
            if (in[k])
                memcpy(v[k].u, in[k] + first, count * sizeof *out);
        for (int k = 0; k < p->n_instrs; k++) {
            const f8_sinstr *s = &p->instrs[k];
            if (s->op != F8_S_CONST_F && s->op != F8_S_CONST_I)
                apply(s->op, &v[s->arg[0]], &v[s->arg[1]], &v[s->arg[2]], 0, &v[p->n_args + k]);
        }
        memcpy(out + first, v[p->result].u, count * sizeof *out);
    }
}

/* AddressSanitizer's check of every element would take most of the time of a sanitized run. Inputs
 * and results are touched by memcpy alone, which stays checked; elements of `v` lie within what
 * UBSan knows. run_body elsewhere keeps all checks. */
#if defined(__x86_64__)
__attribute__((target("avx2,fma"), no_sanitize("address"))) static void
run_body_fma(const f8_scalar_body *p, const uint32_t *const *in, uint32_t *out, size_t n)
{
    run_body(p, in, out, n);
}

static bool has_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define run_body_fma run_body
static bool has_fma(void)
{
    return false;
}
#endif

void f8_scalar_form_eval(f8_sform form, const uint32_t *const in[3], uint32_t *out, size_t n)
{
    const f8_scalar_body *p = f8_scalar_form(form);
    if (has_fma())
        run_body_fma(p, in, out, n);
    else
        run_body(p, in, out, n);
}

void f8_scalar_eval(f8_sfn fn, const uint32_t *in, uint32_t *out, size_t n)
{
    f8_scalar_form_eval((f8_sform)(F8_FORM_FUNCTIONS + fn), (const uint32_t *const[3]){in}, out, n);
}

void f8_scalar_eval_portable(f8_sfn fn, const uint32_t *in, uint32_t *out, size_t n)
{
    run_body(f8_scalar_function(fn), &in, out, n);
}

void f8_scalar_op_eval(f8_sop op, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                       uint32_t *out, size_t n)
{
    const uint32_t *const in[3] = {a, b, c};
    f8_scalar_form_eval((f8_sform)(F8_FORM_NONE + 1 + op), in, out, n);
}

float f8_scalar_f32(f8_sfn fn, float x)
{
    uint32_t u = f8_bits(x);
    f8_scalar_eval(fn, &u, &u, 1);
    return f8_from_bits(u);
}
