/* Scalar arithmetic: the operations that kernels are written in, and the elementary functions and
 * format conversions as lists of them.
 *
 * exp, tanh, a cast to E4M3 and the like exist once, each as a "scalar function": a straight line
 * of primitive f32 and i32 operations. The reference interpreter evaluates it; the emitters print
 * it as vector LLVM IR or as CUDA C. Each primitive has one result on every machine, so the
 * function has too. No libm and no target's fast approximation is used.
 *
 * Kinds: F is an f32, I is 32 bits (two's complement, wrapping), B is a truth value. Floats follow
 * IEEE 754 with round to nearest even, and subnormals are kept. Of a NaN only the class counts: its
 * sign and payload are not part of a result's meaning, and no function's other results depend on
 * them.
 *
 * The table of operations and the bodies of forms and functions are in ir/num/scalar.def. */
#ifndef F8_SCALAR_H
#define F8_SCALAR_H

#include "ir/num/fp8.h"
#include "ir/num/scalar.def"

typedef enum f8_skind { F8_KIND_N, F8_KIND_F, F8_KIND_I, F8_KIND_B } f8_skind;

typedef enum f8_sop {
#define X(op, name, result, a, b, c, value) F8_S_##op,
    F8_SCALAR_OPS(X)
#undef X
    F8_SOP_COUNT
} f8_sop;

typedef struct f8_sop_info {
    const char *name;
    uint8_t n_args;
    uint8_t result, arg[3]; /* f8_skind */
} f8_sop_info;

const f8_sop_info *f8_scalar_op(f8_sop op);

/* One instruction of a body. Values are numbered: the arguments from 0, then each instruction's
 * result. arg holds value numbers (0 where unused); imm is the constant of CONST_F and CONST_I. */
typedef struct f8_sinstr {
    uint8_t op; /* f8_sop */
    uint8_t arg[3];
    union {
        float f;
        uint32_t u;
    } imm;
} f8_sinstr;

enum { F8_SCALAR_MAX_VALUES = 64 };

/* A body is a straight line: every operand is defined before its use. A function has one argument;
 * a form has three, of which its op's operands are the first. max_ulp is the largest error against
 * the exact result, in units in the last place; 0 means exact. tests/ir/num/check_scalar.c tests
 * it. */
typedef struct f8_scalar_body {
    const char *name;
    uint8_t n_args;
    uint8_t arg_kind, result_kind; /* f8_skind */
    uint8_t n_instrs;
    uint8_t result; /* value number */
    float max_ulp;
    const f8_sinstr *instrs;
} f8_scalar_body;

/* F8_FN_EXP, F8_FN_ENCODE_BF16, ...: rows of F8_SCALAR_FNS. */
typedef enum f8_sfn {
#define X(fn, name, arg, result, max_ulp) F8_FN_##fn,
    F8_SCALAR_FNS(X)
#undef X
    F8_SFN_COUNT
} f8_sfn;

/* What a pointwise op computes of one element (the FORMS of ir/ops.def): a single operation, a row
 * of F8_SCALAR_FORMS, or a function. Functions are numbered from F8_FORM_FUNCTIONS on, in the order
 * of f8_sfn. */
typedef enum f8_sform {
    F8_FORM_NONE,
#define X(op, ...) F8_FORM_##op,
    F8_SCALAR_OPS(X)
    F8_SCALAR_FORMS(X)
    F8_FORM_FUNCTIONS,
    F8_FORM_BEFORE_FUNCTIONS = F8_FORM_FUNCTIONS - 1,
    F8_SCALAR_FNS(X)
#undef X
} f8_sform;

/* Static data, never NULL; `form` must not be F8_FORM_NONE. */
const f8_scalar_body *f8_scalar_function(f8_sfn fn);
const f8_scalar_body *f8_scalar_form(f8_sform form);

/* The function from a float dtype's encoding to F (DECODE_*), and from F to the encoding
 * (ENCODE_*). F8_SFN_COUNT where there is none: f32 needs none, and bf16 and f16 have no saturating
 * one. */
f8_sfn f8_scalar_decode_fn(f8_dtype d);
f8_sfn f8_scalar_encode_fn(f8_dtype d, bool saturate);

/* out[i] = fn(in[i]) for i < n; floats are passed as their bits. in == out is allowed, any other
 * overlap is not. The same bits on every machine. */
void f8_scalar_eval(f8_sfn fn, const uint32_t *in, uint32_t *out, size_t n);
/* The same without the machine's fused multiply-add: slow, for testing that it is the same. */
void f8_scalar_eval_portable(f8_sfn fn, const uint32_t *in, uint32_t *out, size_t n);
float f8_scalar_f32(f8_sfn fn, float x); /* for F -> F */

/* out[i] = form(in[0][i], in[1][i], in[2][i]) for i < n. A B is 0 or 1. Arrays that the form does
 * not take may be NULL; CONST_F and CONST_I are no forms to evaluate. out may be one of the
 * inputs. */
void f8_scalar_form_eval(f8_sform form, const uint32_t *const in[3], uint32_t *out, size_t n);
/* The same of one operation. */
void f8_scalar_op_eval(f8_sop op, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                       uint32_t *out, size_t n);

/* IEEE 754-2019 maximum and minimum: any NaN gives NaN, +0 > -0. */
static inline float f8_maximum(float a, float b)
{
    if (a == b)
        return f8_from_bits(f8_bits(a) & f8_bits(b)); /* differ only as +0 and -0 */
    return a > b ? a : b > a ? b : a + b;
}

static inline float f8_minimum(float a, float b)
{
    if (a == b)
        return f8_from_bits(f8_bits(a) | f8_bits(b));
    return a < b ? a : b < a ? b : a + b;
}

/* One step of an amax, the largest |x|, kept as bits: the integer order is the order of magnitudes
 * with NaN > Inf > finite. So no order of evaluation and no comparison loses a NaN. Start from
 * 0. */
static inline uint32_t f8_amax_bits(uint32_t amax, float x)
{
    uint32_t u = f8_bits(x) & 0x7fffffffu;
    return u > amax ? u : amax;
}

/* pow2_floor of the bits of a float: its sign and exponent, the mantissa cleared. A NaN stays as it
 * is. */
static inline uint32_t f8_pow2_floor_bits(uint32_t u)
{
    return (u & 0x7fffffffu) > 0x7f800000u ? u : u & 0xff800000u;
}

/* Rounds towards zero. What is out of range saturates, and NaN gives 0, as llvm.fptosi.sat and
 * CUDA's cvt.rzi.s32.f32 do. */
int32_t f8_f32_to_i32(float x);

#endif
