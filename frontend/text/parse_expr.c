/* Numbers and types: see parser.h.
 *
 * Integers and reals have one grammar; the place in the text decides which is read. For integers
 * `/` truncates and every overflow is an error. Reals are doubles, so 1/2 is 0.5. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/text/parser.h"
#include "ir/base/suggest.h"

typedef struct number {
    int64_t i;
    double d;
    f8_form form; /* how an integer depends on a bound; for a real, only whether it does */
} number;

enum { NOT_LINEAR = -1 }; /* f8_form.dim: depends on bounds, but is not linear in one */

static f8_status parse_sum(f8_parser *p, bool real, number *v);

static const char *dim_name(const void *user, size_t i)
{
    const f8_module *m = user;
    return m->dim[i].name;
}

/* Takes the name of a repeat variable or a dim, and gives its value. */
static f8_status named_value(f8_parser *p, number *v)
{
    f8_token t = p->tok;
    const char *name = f8_intern_n(p->m, t.text, t.length);
    if (!name)
        return f8_p_memory(p);
    for (uint32_t i = p->n_loops; i-- > 0;)
        if (p->loop[i].name == name) {
            v->i = p->loop[i].value;
            return f8_p_advance(p);
        }
    uint32_t dim = f8_map_get(&p->dims, f8_map_key(name));
    if (dim) {
        v->i = p->m->dim[dim - 1].value;
        v->form = p->m->dim[dim - 1].form;
        if (v->form.dim && !p->bound_read) {
            p->bound_read = dim;
            p->bound_loc = t.loc;
        }
        return f8_p_advance(p);
    }
    char hint[80], found[160];
    f8_suggest(t.text, t.length, dim_name, p->m, p->m->n_dims, "", hint, sizeof hint);
    return f8_p_fail(p, t.loc, "there is no dim or repeat variable %s%s",
                     f8_lex_quote(&t, found, sizeof found), hint);
}

/* function = "sqrt" "(" sum ")" | "inf" | "nan", in reals only */
static f8_status parse_function(f8_parser *p, number *v, bool *found)
{
    *found = true;
    if (f8_p_at_word(p, "inf") || f8_p_at_word(p, "nan")) {
        v->d = f8_p_at_word(p, "inf") ? (double)INFINITY : (double)NAN;
        return f8_p_advance(p);
    }
    *found = f8_p_at_word(p, "sqrt");
    if (!*found)
        return F8_OK;
    F8_TRY(f8_p_advance(p));
    F8_TRY(f8_p_expect(p, '(', "'(' after 'sqrt'"));
    f8_loc loc = p->tok.loc;
    F8_TRY(parse_sum(p, true, v));
    if (v->d < 0)
        return f8_p_fail(p, loc, "sqrt is given a negative number");
    v->d = sqrt(v->d);
    return f8_p_expect(p, ')', "')'");
}

/* atom = INT | FLOAT | NAME | function | "(" sum ")" */
static f8_status parse_atom(f8_parser *p, bool real, number *v)
{
    bool found = false;
    switch (p->tok.kind) {
    case F8_T_FLOAT:
        if (!real)
            return f8_p_unexpected(p, "an integer");
        F8_TRY(f8_lex_float(&p->tok, &v->d, p->diag));
        return f8_p_advance(p);
    case F8_T_INT:
        if (real)
            F8_TRY(f8_lex_float(&p->tok, &v->d, p->diag));
        else
            F8_TRY(f8_lex_int(&p->tok, &v->i, p->diag));
        return f8_p_advance(p);
    case F8_T_NAME:
        if (real)
            F8_TRY(parse_function(p, v, &found));
        if (found)
            return F8_OK;
        F8_TRY(named_value(p, v));
        v->d = (double)v->i;
        return F8_OK;
    default:
        if (!f8_p_at(p, '('))
            return f8_p_unexpected(p, real ? "a number" : "an integer");
        F8_TRY(f8_p_advance(p));
        F8_TRY(parse_sum(p, real, v));
        return f8_p_expect(p, ')', "')'");
    }
}

static f8_status overflow(f8_parser *p, f8_loc loc)
{
    return f8_p_fail(p, loc, "the result does not fit into 64 bits");
}

/* How `a op b` depends on bounds. a and b are the operands before they are combined. */
static f8_form form_of(char op, bool real, const number *a, const number *b)
{
    const f8_form not_linear = {.dim = NOT_LINEAR}, *x = &a->form, *y = &b->form;
    if (!x->dim && !y->dim)
        return (f8_form){0};
    if (real || op == '/' || op == '%' || (op == '*' && x->dim && y->dim) ||
        (x->dim && y->dim && x->dim != y->dim))
        return not_linear;
    f8_form f = {.dim = x->dim ? x->dim : y->dim};
    if (f.dim < 0)
        return not_linear;
    bool bad;
    if (op == '*') {
        const f8_form *linear = x->dim ? x : y;
        const int64_t by = x->dim ? b->i : a->i;
        bad = __builtin_mul_overflow(linear->scale, by, &f.scale) ||
              __builtin_mul_overflow(linear->offset, by, &f.offset);
    } else {
        const int64_t left = x->dim ? x->offset : a->i, right = y->dim ? y->offset : b->i;
        bad = op == '+' ? __builtin_add_overflow(x->scale, y->scale, &f.scale) ||
                              __builtin_add_overflow(left, right, &f.offset)
                        : __builtin_sub_overflow(x->scale, y->scale, &f.scale) ||
                              __builtin_sub_overflow(left, right, &f.offset);
    }
    return bad ? not_linear : f;
}

/* unary = ["-" | "+"] unary | atom */
static f8_status parse_unary(f8_parser *p, bool real, number *v)
{
    F8_TRY(f8_p_enter(p));
    if (f8_p_at(p, '-') || f8_p_at(p, '+')) {
        bool minus = f8_p_at(p, '-');
        f8_loc loc = p->tok.loc;
        F8_TRY(f8_p_advance(p));
        F8_TRY(parse_unary(p, real, v));
        if (minus && !real && __builtin_sub_overflow(0, v->i, &v->i))
            return overflow(p, loc);
        if (minus && real)
            v->d = -v->d;
        if (minus)
            v->form = form_of('*', false, v, &(number){.i = -1});
    } else {
        F8_TRY(parse_atom(p, real, v));
    }
    p->depth--;
    return F8_OK;
}

static f8_status apply(f8_parser *p, bool real, char op, f8_loc loc, number *a, const number *b)
{
    if (op == '%' && real)
        return f8_p_fail(p, loc, "'%%' is only for integers");
    if ((op == '/' || op == '%') && (real ? b->d == 0 : b->i == 0))
        return f8_p_fail(p, loc, "division by zero");
    a->form = form_of(op, real, a, b);
    if (real) {
        switch (op) {
        case '+': a->d += b->d; break;
        case '-': a->d -= b->d; break;
        case '*': a->d *= b->d; break;
        default: a->d /= b->d;
        }
        return F8_OK;
    }
    bool bad = false;
    switch (op) {
    case '+': bad = __builtin_add_overflow(a->i, b->i, &a->i); break;
    case '-': bad = __builtin_sub_overflow(a->i, b->i, &a->i); break;
    case '*': bad = __builtin_mul_overflow(a->i, b->i, &a->i); break;
    default:
        bad = a->i == INT64_MIN && b->i == -1;
        if (!bad)
            a->i = op == '/' ? a->i / b->i : a->i % b->i;
    }
    return bad ? overflow(p, loc) : F8_OK;
}

/* Takes one of `ops` if it stands here, else sets *op to 0. The lexer reads the `%H` of `T %H` as a
 * value, but after an operand it must be the operator % and a name. */
static f8_status take_operator(f8_parser *p, const char *ops, char *op, f8_loc *loc)
{
    *op = 0;
    *loc = p->tok.loc;
    if (p->tok.kind == F8_T_VALUE && strchr(ops, '%')) {
        *op = '%';
        p->lex.at = p->tok.text;
        return f8_p_advance(p);
    }
    if (p->tok.kind != F8_T_PUNCT || !strchr(ops, p->tok.text[0]))
        return F8_OK;
    *op = p->tok.text[0];
    return f8_p_advance(p);
}

/* Parses operands with operators of `ops` between them, and combines them from left to right. */
static f8_status parse_chain(f8_parser *p, bool real, const char *ops,
                             f8_status (*operand)(f8_parser *p, bool real, number *v), number *v)
{
    F8_TRY(operand(p, real, v));
    for (;;) {
        char op;
        f8_loc loc;
        number right = {0};
        F8_TRY(take_operator(p, ops, &op, &loc));
        if (!op)
            return F8_OK;
        F8_TRY(operand(p, real, &right));
        F8_TRY(apply(p, real, op, loc, v, &right));
    }
}

/* product = unary {("*" | "/" | "%") unary} */
static f8_status parse_product(f8_parser *p, bool real, number *v)
{
    return parse_chain(p, real, "*/%", parse_unary, v);
}

/* sum = product {("+" | "-") product} */
static f8_status parse_sum(f8_parser *p, bool real, number *v)
{
    return parse_chain(p, real, "+-", parse_product, v);
}

f8_status f8_p_int_form(f8_parser *p, int64_t *value, f8_form *form)
{
    number v = {0};
    F8_TRY(parse_sum(p, false, &v));
    *value = v.i;
    *form = v.form;
    return F8_OK;
}

f8_status f8_p_int(f8_parser *p, int64_t *value)
{
    f8_form form;
    return f8_p_int_form(p, value, &form);
}

f8_status f8_p_real(f8_parser *p, double *value)
{
    number v = {0};
    F8_TRY(parse_sum(p, true, &v));
    *value = v.d;
    return F8_OK;
}

/* ---- values that must not depend on a bound ---- */

void f8_p_begin_fixed(f8_parser *p)
{
    p->bound_read = 0;
}

f8_status f8_p_check_fixed(f8_parser *p, const char *what, const char *why)
{
    if (!p->bound_read)
        return F8_OK;
    const f8_dim *d = &p->m->dim[p->bound_read - 1];
    return f8_p_fail(p, p->bound_loc, "%s can't depend on %s'%s', declared at %u:%u: %s", what,
                     d->bound ? "the bound " : "a bound through ", d->name, d->loc.line,
                     d->loc.column, why);
}

/* ---- counts ---- */

static f8_status is_positive(f8_parser *p, f8_loc loc, const char *what, int64_t value)
{
    return value > 0 ? F8_OK
                     : f8_p_fail(p, loc, "%s is %lld: it must be positive", what, (long long)value);
}

f8_status f8_p_count(f8_parser *p, const char *what, int64_t *value)
{
    f8_loc loc = p->tok.loc;
    F8_TRY(f8_p_int(p, value));
    return is_positive(p, loc, what, *value);
}

/* ---- types ---- */

/* dtype = "f32" | "bf16" | "f16" | "i32" | "bool" | "f8e4m3" | "f8e5m2" | "f8e8m0" */
f8_status f8_p_dtype(f8_parser *p, f8_dtype *dtype)
{
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(p, "a type");
    *dtype = f8_dtype_by_name(p->tok.text, p->tok.length);
    if (*dtype != F8_DTYPE_COUNT)
        return f8_p_advance(p);
    char found[160], list[128] = "";
    for (int d = 0; d < F8_DTYPE_COUNT; d++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", d ? ", " : "", f8_dtype_name((f8_dtype)d));
    }
    return f8_p_fail(p, p->tok.loc, "there is no type %s; there are: %s",
                     f8_lex_quote(&p->tok, found, sizeof found), list);
}

/* type = dtype "[" [expr {"," expr}] "]" */
f8_status f8_p_type(f8_parser *p, f8_type *type)
{
    *type = (f8_type){.rank = 0};
    f8_loc loc = p->tok.loc;
    F8_TRY(f8_p_dtype(p, &type->dtype));
    F8_TRY(f8_p_expect(p, '[', "'[' after the element type"));
    while (!f8_p_at(p, ']')) {
        if (type->rank == F8_MAX_RANK)
            return f8_p_fail(p, p->tok.loc, "a type has at most %d axes", F8_MAX_RANK);
        if (type->rank > 0)
            F8_TRY(f8_p_expect(p, ',', "',' or ']'"));
        const f8_loc at = p->tok.loc;
        F8_TRY(f8_p_int_form(p, &type->dim[type->rank], &p->axis_form[type->rank]));
        F8_TRY(is_positive(p, at, "a dimension", type->dim[type->rank]));
        type->rank++;
    }
    if (f8_type_bytes(type) < 0) {
        char text[160];
        return f8_p_fail(p, loc, "the size of %s overflows",
                         f8_type_print(type, text, sizeof text));
    }
    return f8_p_advance(p);
}
