/* Scalar operations, scalar functions and single instructions as CUDA C: see print.h. */
#include "codegen/cuda/print.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/format.h"

/* ---- lines ---- */

static void line(f8_cuda_printer *p, const char *format, va_list args, const char *end)
{
    char text[512];
    f8_vformat(text, sizeof text, format, args);
    f8_text_add(p->t, "%*s%s%s\n", 4 * p->indent, "", text, end);
}

void f8_cuda_line(f8_cuda_printer *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line(p, format, args, "");
    va_end(args);
}

void f8_cuda_open(f8_cuda_printer *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line(p, format, args, " {");
    va_end(args);
    p->indent++;
}

void f8_cuda_scope(f8_cuda_printer *p)
{
    f8_cuda_line(p, "{");
    p->indent++;
}

void f8_cuda_close(f8_cuda_printer *p)
{
    p->indent--;
    f8_cuda_line(p, "}");
}

/* ---- types ---- */

int64_t f8_cuda_layout_splits(const f8_kernel *k, const f8_cuda_layout *l)
{
    return l->split ? (k->cols + l->cols - 1) / l->cols : 1;
}

int f8_cuda_rows_step(const f8_cuda_printer *p)
{
    return p->l.group * p->l.vector;
}

const char *f8_cuda_element(f8_dtype t)
{
    switch (t) {
    case F8_F32: return "float";
    case F8_I32: return "f8_u32";
    case F8_I64: return "f8_i64";
    case F8_BF16:
    case F8_F16: return "f8_u16";
    default: return "f8_u8";
    }
}

int f8_cuda_bytes(f8_dtype t)
{
    return (int)f8_dtype_size(t);
}

int f8_cuda_words(f8_dtype t, int n)
{
    const int bytes = f8_cuda_bytes(t);
    return ((bytes < 4 ? bytes : 4) * n + 3) / 4;
}

static const char *held(uint8_t kind)
{
    return kind == F8_KIND_F ? "float" : kind == F8_KIND_B ? "bool" : "f8_u32";
}

/* ---- operations ---- */

/* The meaning of an operation over A, B and C; the constants have none. */
static const char *const forms[F8_SOP_COUNT] = {
    [F8_S_FADD] = "A + B",
    [F8_S_FSUB] = "A - B",
    [F8_S_FMUL] = "A * B",
    [F8_S_FDIV] = "f8_divide(A, B)",
    [F8_S_FMA] = "f8_fma(A, B, C)",
    [F8_S_FSQRT] = "f8_root(A)",
    [F8_S_FNEG] = "-(A)",
    [F8_S_FABS] = "f8_abs(A)",
    [F8_S_FMAX] = "f8_maximum(A, B)",
    [F8_S_FMIN] = "f8_minimum(A, B)",
    [F8_S_FRINT] = "f8_rint(A)",
    [F8_S_FFLOOR] = "f8_floor(A)",
    [F8_S_FLT] = "A < B",
    [F8_S_FLE] = "A <= B",
    [F8_S_FEQ] = "A == B",
    [F8_S_ISNAN] = "A != A",
    [F8_S_IADD] = "A + B",
    [F8_S_ISUB] = "A - B",
    [F8_S_IMUL] = "A * B",
    [F8_S_IAND] = "A & B",
    [F8_S_IOR] = "A | B",
    [F8_S_IXOR] = "A ^ B",
    [F8_S_ISHL] = "A << (B & 31u)",
    [F8_S_ISHR] = "A >> (B & 31u)",
    [F8_S_ISAR] = "(f8_u32)((f8_i32)A >> (B & 31u))",
    [F8_S_ISMIN] = "(f8_i32)A < (f8_i32)B ? A : B",
    [F8_S_ISMAX] = "(f8_i32)A > (f8_i32)B ? A : B",
    [F8_S_IUMIN] = "A < B ? A : B",
    [F8_S_IUMAX] = "A > B ? A : B",
    [F8_S_IEQ] = "A == B",
    [F8_S_ILT] = "(f8_i32)A < (f8_i32)B",
    [F8_S_IULT] = "A < B",
    [F8_S_BAND] = "A & B",
    [F8_S_BOR] = "A | B",
    [F8_S_BNOT] = "!A",
    [F8_S_SEL_F] = "A ? B : C",
    [F8_S_SEL_I] = "A ? B : C",
    [F8_S_F2I] = "(f8_u32)f8_to_i32(A)",
    [F8_S_I2F] = "f8_from_i32((f8_i32)A)",
    [F8_S_BITS_F2I] = "f8_bits(A)",
    [F8_S_BITS_I2F] = "f8_from_bits(A)",
};
_Static_assert(F8_S_CONST_I == F8_SOP_COUNT - 1 && F8_S_CONST_F == F8_SOP_COUNT - 2,
               "all operations but the constants, which come last, have a form");

/* The machine's own conversions, equal to the programs; NULL for what is printed as its program. */
static const char *const machine[F8_SFN_COUNT] = {
    [F8_FN_ROUND_BF16] = "f8_round_bf16(A)",
    [F8_FN_ENCODE_BF16] = "f8_bf16x2(A, 0.0f)",
    [F8_FN_DECODE_BF16] = "f8_from_bf16(A)",
    [F8_FN_ENCODE_F16] = "f8_f16x2(A, 0.0f)",
    [F8_FN_DECODE_F16] = "f8_from_f16(A)",
    [F8_FN_ENCODE_E4M3_SAT] = "f8_e4m3x2_sat(A, 0.0f)",
    [F8_FN_ENCODE_E5M2_SAT] = "f8_e5m2x2_sat(A, 0.0f)",
    [F8_FN_DECODE_E5M2] = "f8_from_f16((A & 0xffu) << 8)", /* E5M2 is f16 cut short */
};

static void put_form(f8_text *t, const char *form, const f8_cuda_name x[3])
{
    for (const char *at = form; *at; at++)
        if (*at >= 'A' && *at <= 'C')
            f8_text_add(t, "%s", x[*at - 'A'].s);
        else
            f8_text_add(t, "%c", *at);
}

static f8_cuda_name literal_f(uint32_t bits)
{
    f8_cuda_name name;
    float f;
    memcpy(&f, &bits, sizeof f);
    if (isfinite(f))
        f8_format(name.s, sizeof name.s, "%af", (double)f);
    else
        snprintf(name.s, sizeof name.s, "f8_from_bits(0x%08xu)", bits);
    return name;
}

static f8_cuda_name literal_i(uint32_t u)
{
    f8_cuda_name name;
    snprintf(name.s, sizeof name.s, u < 10 ? "%uu" : "0x%xu", u);
    return name;
}

/* ---- scalar functions ---- */

/* A program as the function f8_fn_<its name>. */
static void print_program(f8_text *t, f8_sfn fn)
{
    const f8_scalar_body *g = f8_scalar_function(fn);
    f8_cuda_name value[F8_SCALAR_MAX_VALUES];
    snprintf(value[0].s, sizeof value[0].s, "x");
    f8_text_add(t, "F8_DEV %s f8_fn_%s(%s x)\n{\n", held(g->result_kind), g->name,
                held(g->arg_kind));
    for (uint8_t n = 0; n < g->n_instrs; n++) {
        const f8_sinstr *i = &g->instrs[n];
        f8_cuda_name *out = &value[n + 1];
        if (i->op == F8_S_CONST_F || i->op == F8_S_CONST_I) {
            *out = i->op == F8_S_CONST_F ? literal_f(i->imm.u) : literal_i(i->imm.u);
            continue;
        }
        snprintf(out->s, sizeof out->s, "v%d", n + 1);
        f8_text_add(t, "    const %s %s = ", held(f8_scalar_op(i->op)->result), out->s);
        put_form(t, fn == F8_FN_TANH && i->op == F8_S_FDIV ? "f8_divide_near(A, B)" : forms[i->op],
                 (f8_cuda_name[]){value[i->arg[0]], value[i->arg[1]], value[i->arg[2]]});
        f8_text_add(t, ";\n");
    }
    f8_text_add(t, "    return %s;\n}\n\n", value[g->result].s);
}

void f8_cuda_print_functions(f8_cuda_printer *p)
{
    f8_text *t = p->t;
    if (!t->s || !strstr(t->s, f8_cuda_rows_text))
        f8_text_add(t, "%s\n%s\n", f8_cuda_divide_text, f8_cuda_rows_text);
    if (p->l.ring.chunks && (!t->s || !strstr(t->s, f8_cuda_ring_text)))
        f8_text_add(t, "%s\n", f8_cuda_ring_text);
    for (uint32_t n = 0; n < p->k->n_instrs && t->s; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        char head[64];
        if (i->op != F8_K_CALL || machine[i->sub])
            continue;
        snprintf(head, sizeof head, " f8_fn_%s(%s x)\n", f8_scalar_function(i->sub)->name,
                 held(f8_scalar_function(i->sub)->arg_kind));
        if (!strstr(t->s, head))
            print_program(t, i->sub);
    }
}

/* ---- values ---- */

f8_cuda_name f8_cuda_value(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    f8_cuda_name name;
    if (i->op == F8_K_SCALAR && i->sub == F8_S_CONST_F)
        return literal_f(i->imm);
    if (i->op == F8_K_SCALAR && i->sub == F8_S_CONST_I)
        return literal_i(i->imm);
    snprintf(name.s, sizeof name.s, "v%u", n);
    return name;
}

static bool is_call(const f8_kinstr *i, f8_sfn fn)
{
    return i->op == F8_K_CALL && i->sub == fn;
}

/* Whether n is a sum of exp(x - max x). If no x is NaN and the maximum is finite, one of the terms
 * is exp(0) = 1 and none is negative, so in any order the sum is at least 1 and its logarithm at
 * least 0. If the maximum is infinite, Inf - Inf is a term and the sum NaN. A wide row's sum may be
 * below 1 by what its factor was rounded by. *off: x - max x. */
static bool is_sum_below(const f8_kernel *k, uint32_t n, uint32_t *off)
{
    f8_exp_sum s;
    const uint32_t sum = f8_kernel_exp_sum(k, n, &s) ? s.rare : n;
    const f8_kinstr *all = k->instr, *term = &all[all[sum].a], *x = &all[term->a];
    *off = term->a;
    return all[sum].op == F8_K_SUM && is_call(term, F8_FN_EXP) && x->op == F8_K_SCALAR &&
           x->sub == F8_S_FSUB && all[x->b].op == F8_K_MAX && all[x->b].a == x->a;
}

/* Whether value n is NaN or at most 16, as f8_exp_below wants it, or its exp is not asked for: x -
 * max x, or, in a softmax's logarithm, that less log(sum exp(x - max x)); or what a wide row is
 * added up from. */
static bool is_below(const f8_kernel *k, uint32_t n)
{
    const uint32_t most = 0x41800000u; /* 16 */
    const f8_kinstr *all = k->instr, *i = &all[n];
    uint32_t off;
    f8_exp_sum s;
    if (i->op != F8_K_SCALAR || i->sub != F8_S_FSUB)
        return false;
    const f8_kinstr *less = &all[i->b];
    if (less->op == F8_K_MAX && less->a == i->a)
        return true;
    if (is_call(less, F8_FN_LOG))
        return is_sum_below(k, less->a, &off) && off == i->a;
    return less->op == F8_K_MAX && f8_kernel_exp_sum_term(k, n, &s) && s.above <= most;
}

/* Whether value n is the number of the column, which the code has as c + e. */
static bool is_column(const f8_kernel *k, uint32_t n)
{
    return k->instr[n].op == F8_K_INDEX && k->instr[n].ext == F8_EXT_COL;
}

/* The reciprocal of a constant power of two, by which a product is the quotient's bits; else 0. */
static float reciprocal_of(const f8_kernel *k, const f8_kinstr *i)
{
    const f8_kinstr *by = &k->instr[i->b];
    int exponent;
    float x;
    if (i->op != F8_K_SCALAR || i->sub != F8_S_FDIV || by->op != F8_K_SCALAR ||
        by->sub != F8_S_CONST_F)
        return 0;
    memcpy(&x, &by->imm, sizeof x);
    return fabsf(frexpf(x, &exponent)) == 0.5f && abs(exponent) < 64 ? 1 / x : 0;
}

/* A SCALAR or CALL of values that stand. */
static void print_operation(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    uint32_t operand[3];
    f8_cuda_name x[3] = {{""}, {""}, {""}};
    const int count = f8_kinstr_operands(i, operand);
    for (int o = 0; o < count; o++)
        x[o] = f8_cuda_value(p, operand[o]);
    f8_text_add(p->t, "%*sconst %s v%u = ", 4 * p->indent, "", held(i->kind), n);
    if (i->op == F8_K_SCALAR && i->sub == F8_S_IEQ && is_column(p->k, i->a) &&
        p->k->instr[i->b].ext == F8_EXT_ROW) /* one subtraction a vector, not one an element */
        f8_text_add(p->t, "%s - (f8_u32)c == (f8_u32)e", x[1].s);
    else if (reciprocal_of(p->k, i) != 0)
        f8_text_add(p->t, "%s * %af", x[0].s, reciprocal_of(p->k, i));
    else if (i->op == F8_K_SCALAR)
        put_form(p->t, forms[i->sub], x);
    else if (machine[i->sub])
        put_form(p->t, machine[i->sub], x);
    else if (is_call(i, F8_FN_EXP) && is_below(p->k, i->a))
        f8_text_add(p->t, "f8_exp_below(%s)", x[0].s);
    else
        f8_text_add(p->t, "f8_fn_%s(%s)", f8_scalar_function(i->sub)->name, x[0].s);
    f8_text_add(p->t, ";\n");
}

static bool is_constant(const f8_kinstr *i)
{
    return i->op == F8_K_SCALAR && (i->sub == F8_S_CONST_F || i->sub == F8_S_CONST_I);
}

void f8_cuda_print_value(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    char missing[48] = "";
    if (is_constant(i))
        return;
    if (i->op == F8_K_ROLL) { /* of what has no columns */
        f8_cuda_line(p, "const %s v%u = %s;", held(i->kind), n, f8_cuda_value(p, i->a).s);
        return;
    }
    if (i->op != F8_K_LOAD) {
        print_operation(p, n);
        return;
    }
    const f8_kbuffer *b = &p->k->buffer[i->buffer];
    if (b->ids >= 0)
        snprintf(missing, sizeof missing, "absent%d ? f8_from_bits(0x7fc00000u) : ", i->buffer);
    switch (b->dtype) {
    case F8_BF16:
        f8_cuda_line(p, "const float v%u = %sf8_from_bf16(*q%d);", n, missing, i->buffer);
        break;
    case F8_BOOL: f8_cuda_line(p, "const bool v%u = *q%d != 0;", n, i->buffer); break;
    case F8_I64: f8_cuda_line(p, "const f8_u32 v%u = f8_nearest(*q%d);", n, i->buffer); break;
    default: f8_cuda_line(p, "const %s v%u = %s*q%d;", held(i->kind), n, missing, i->buffer); break;
    }
}

void f8_cuda_print_store(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    const f8_cuda_name v = f8_cuda_value(p, i->a);
    const f8_dtype t = p->k->buffer[i->buffer].dtype;
    if (t == F8_F32)
        f8_cuda_line(p, "*q%d = %s;", i->buffer, v.s);
    else if (t == F8_BF16)
        f8_cuda_line(p, "*q%d = (f8_u16)f8_bf16x2(%s, 0.0f);", i->buffer, v.s);
    else if (t == F8_I64)
        f8_cuda_line(p, "*q%d = (f8_i32)%s;", i->buffer, v.s);
    else
        f8_cuda_line(p, "*q%d = (%s)%s;", i->buffer, f8_cuda_element(t), v.s);
}

/* ---- values of blocks of columns: inside the loop over u ---- */

/* The number of the block, as an expression; past the row's end, where nobody uses it, the first.
 */
static f8_cuda_name block_number(const f8_cuda_printer *p, const f8_kinstr *i)
{
    f8_cuda_name name;
    const int64_t step = (int64_t)p->l.group * p->l.vector;
    if (p->l.points || p->inside || p->k->cols % (step * p->l.sets) == 0)
        snprintf(name.s, sizeof name.s, "c / %d", i->block);
    else
        snprintf(name.s, sizeof name.s, "(n > 0 ? c / %d : 0)", i->block);
    return name;
}

void f8_cuda_print_block(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    const f8_cuda_name at = block_number(p, i);
    if (is_constant(i))
        return;
    if (i->op == F8_K_BLOCKAMAX) {
        if (p->l.whole)
            f8_cuda_line(p, "const float v%u = f8_from_bits(h%u[u]);", n, n);
        else
            f8_cuda_line(p, "const float v%u = f8_from_bits(j%u[%s]);", n, n, at.s);
        return;
    }
    if (i->op == F8_K_INDEX) {
        f8_cuda_line(p, "const f8_u32 v%u = (f8_u32)(c / %d);", n, i->block);
        return;
    }
    if (i->op != F8_K_LOAD) {
        print_operation(p, n);
        return;
    }
    switch (p->k->buffer[i->buffer].dtype) {
    case F8_BF16:
        f8_cuda_line(p, "const float v%u = f8_from_bf16(q%d[%s]);", n, i->buffer, at.s);
        break;
    case F8_BOOL: f8_cuda_line(p, "const bool v%u = q%d[%s] != 0;", n, i->buffer, at.s); break;
    case F8_I64:
        f8_cuda_line(p, "const f8_u32 v%u = f8_nearest(q%d[%s]);", n, i->buffer, at.s);
        break;
    default: f8_cuda_line(p, "const %s v%u = q%d[%s];", held(i->kind), n, i->buffer, at.s); break;
    }
}

/* ---- values with columns: inside the loops over u and e ---- */

static void element_of_load(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    const f8_kbuffer *b = &p->k->buffer[i->buffer];
    char missing[64] = "";
    if (b->ids >= 0)
        snprintf(missing, sizeof missing, "absent%d ? f8_from_bits(0x7fc00000u) : ", i->buffer);
    const char *of = "f8_byte_of";
    switch (b->dtype) {
    case F8_F32: of = "f8_f32_of"; break;
    case F8_I32:
    case F8_I64: f8_cuda_line(p, "const f8_u32 v%u = w%u[u][e];", n, n); return;
    case F8_BF16: of = "f8_bf16_of"; break;
    case F8_F16: of = "f8_half_of"; break;
    default: break;
    }
    f8_cuda_line(p, "const %s v%u = %s%s(w%u[u], e)%s;", held(i->kind), n, missing, of, n,
                 b->dtype == F8_BOOL ? " != 0" : "");
}

static void element_near(f8_cuda_printer *p, uint32_t n, int32_t slot, const char *column)
{
    const char *kind = held(p->k->instr[n].kind);
    if (p->l.near[slot] == F8_CUDA_REGISTERS)
        f8_cuda_line(p, "const %s v%u = k%d[u][e];", kind, n, slot);
    else if (p->l.near[slot] == F8_CUDA_OWN)
        f8_cuda_line(p, "const float v%u = f8_%s_of(z%d, e);", n,
                     p->l.near_bytes[slot] == 2 ? "bf16" : "f32", slot);
    else if (p->k->instr[n].kind == F8_KIND_F)
        f8_cuda_line(p, "const float v%u = f8_from_bits(k%d[%s]);", n, slot, column);
    else
        f8_cuda_line(p, "const %s v%u = k%d[%s];", kind, n, slot, column);
}

/* The column may be one past the row's end, whose result nobody uses. */
static void element_of_roll(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    char column[96];
    snprintf(column, sizeof column, "f8_rolled(c + e < %lld ? c + e : 0, %lld, %lld)",
             (long long)p->k->cols, (long long)i->shift, (long long)i->group);
    element_near(p, n, p->k->instr[i->a].near, column);
}

void f8_cuda_print_element(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    if (f8_cuda_is_kept(p, n)) {
        element_near(p, n, i->near, "c + e");
        return;
    }
    switch ((f8_kop)i->op) {
    case F8_K_LOAD: element_of_load(p, n); break;
    case F8_K_INDEX: f8_cuda_line(p, "const f8_u32 v%u = (f8_u32)(c + e);", n); break;
    case F8_K_ROLL: element_of_roll(p, n); break;
    default:
        if (f8_cuda_adds_pairs(p, n))
            f8_cuda_line(p, "const float v%u = f8_bf16_of(r%u, e);", n, n);
        else if (!is_constant(i))
            print_operation(p, n);
        break;
    }
    if (!f8_cuda_keeps(p, n))
        return;
    if (p->l.near[i->near] == F8_CUDA_REGISTERS)
        f8_cuda_line(p, "k%d[u][e] = v%u;", i->near, n);
    else if (p->l.near[i->near] == F8_CUDA_OWN) {
        if (!f8_cuda_adds_pairs(p, n))
            f8_cuda_line(p, "z%d[e] = v%u;", i->near, n);
    } else
        f8_cuda_line(p, "k%d[c + e] = %s(v%u);", i->near,
                     i->kind == F8_KIND_F ? "f8_bits" : "f8_u32", n);
}

/* ---- what a stage evaluates ---- */

bool f8_cuda_is_bf16(const f8_kernel *k, const f8_kinstr *i)
{
    if (i->op == F8_K_LOAD) /* a gather may read NaNs of its own */
        return k->buffer[i->buffer].dtype == F8_BF16 && k->buffer[i->buffer].ids < 0;
    return i->op == F8_K_CALL && i->sub == F8_FN_ROUND_BF16;
}

int f8_cuda_tile_element(const f8_kernel *k, const f8_kinstr *i)
{
    if (i->op == F8_K_COLSUM && f8_cuda_is_bf16(k, &k->instr[i->a]))
        return 2;
    return f8_cuda_bytes(k->buffer[i->buffer].dtype);
}

static bool has_slot(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    return i->near >= 0 && (i->ext & F8_EXT_COL) && p->l.near[i->near] != F8_CUDA_RECOMPUTED;
}

bool f8_cuda_is_kept(const f8_cuda_printer *p, uint32_t n)
{
    return has_slot(p, n) && f8_kinstr_known(&p->k->instr[n]) < p->stage;
}

bool f8_cuda_keeps(const f8_cuda_printer *p, uint32_t n)
{
    return has_slot(p, n) && f8_kinstr_known(&p->k->instr[n]) == p->stage;
}

bool f8_cuda_adds_pairs(const f8_cuda_printer *p, uint32_t n)
{
    return p->pairs[n] && !f8_cuda_is_kept(p, n);
}

uint32_t f8_cuda_needed(f8_cuda_printer *p, int32_t stage)
{
    const f8_kernel *k = p->k;
    uint32_t count = 0;
    p->stage = stage;
    memset(p->needed, 0, k->n_instrs * sizeof *p->needed);
    for (uint32_t n = k->n_instrs; n-- > 0;) {
        const f8_kinstr *i = &k->instr[n];
        if ((f8_kinstr_is_root(i) && i->stage == stage) || f8_cuda_keeps(p, n))
            p->needed[n] = true;
        if (!p->needed[n])
            continue;
        count++;
        if (i->op == F8_K_ROLL || f8_cuda_is_kept(p, n))
            continue;
        uint32_t operand[3];
        const bool pair = f8_cuda_adds_pairs(p, n);
        const int operands = f8_kinstr_operands(pair ? &k->instr[i->a] : i, operand);
        if (i->op == F8_K_STORE || f8_kinstr_is_partial(i))
            operand[0] = p->source[n];
        for (int o = 0; o < operands; o++)
            if (k->instr[operand[o]].ext & F8_EXT_COL)
                p->needed[operand[o]] = true;
    }
    return count;
}

/* The store of a conversion takes what is converted, and converts two at a time; a bf16 is rounded
 * by its packing. The same goes for what is summed over columns from a tile of bf16. A value kept
 * near is there already, converted. */
void f8_cuda_store_plan(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n], *from = &p->k->instr[i->a];
        p->source[n] = i->a;
        const bool call = from->op == F8_K_CALL && !has_slot(p, i->a) && !p->pairs[i->a];
        if (f8_kinstr_is_partial(i)) {
            const bool small = f8_cuda_tile_element(p->k, i) == 2;
            p->put[n] = !small ? "f32" : call ? "bf16" : "upper";
            if (small && call)
                p->source[n] = from->a;
        }
        if (i->op != F8_K_STORE)
            continue;
        const f8_dtype t = p->k->buffer[i->buffer].dtype;
        switch (t) {
        case F8_F32: p->put[n] = "f32"; break;
        case F8_I32:
        case F8_I64: p->put[n] = "word"; break;
        case F8_BF16:
            p->put[n] =
                from->op == F8_K_CALL && !call && f8_cuda_is_bf16(p->k, from) ? "upper" : "bf16";
            break;
        case F8_F16: p->put[n] = call && from->sub == F8_FN_ENCODE_F16 ? "f16" : "half"; break;
        default:
            p->put[n] = call && from->sub == F8_FN_ENCODE_E4M3_SAT   ? "e4m3"
                        : call && from->sub == F8_FN_ENCODE_E5M2_SAT ? "e5m2"
                                                                     : "byte";
            break;
        }
        const bool packs = p->put[n][0] == 'e' || !strcmp(p->put[n], "f16") ||
                           (t == F8_BF16 && call && from->sub == F8_FN_ROUND_BF16);
        if (packs)
            p->source[n] = from->a;
    }
}
