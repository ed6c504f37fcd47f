/* The facts of ops and attributes, from ops.def and attrs.def: see ir.h. */
#include "ir/internal.h"
#include "ir/num/scalar.h"

#include <stdio.h>
#include <string.h>

/* ---- attributes ---- */

static const struct {
    const char *name, *text;
    f8_attr_kind kind;
} attr_facts[] = {
#define ATTR(ID, name, KIND, text) [ID] = {name, text, F8_ATTR_##KIND},
#include "ir/attrs.def"
#undef ATTR
};

/* KIND_F8_A_AXIS and so on: the kinds as constants, by which the table of defaults chooses. */
enum {
#define ATTR(ID, name, KIND, text) KIND_##ID = F8_ATTR_##KIND,
#include "ir/attrs.def"
#undef ATTR
};

const char *f8_attr_name(f8_attr_key key)
{
    return attr_facts[key].name;
}

const char *f8_attr_text(f8_attr_key key)
{
    return attr_facts[key].text;
}

f8_attr_kind f8_attr_kind_of(f8_attr_key key)
{
    return attr_facts[key].kind;
}

f8_attr_key f8_attr_by_name(const char *name, size_t length)
{
    for (int k = 0; k < F8_A_COUNT; k++)
        if (strlen(attr_facts[k].name) == length && !memcmp(attr_facts[k].name, name, length))
            return (f8_attr_key)k;
    return F8_A_COUNT;
}

/* ---- ops ---- */

/* How many attributes each op takes: A(...) A(...) becomes 0 + 1 + 1. */
#define NOATTRS
#define A(key, value) +1
enum {
#define OP(ID, name, lo, hi, results, CLS, infer, vjp, FORMS, ATTRS, DOC) N_ATTRS_##ID = 0 ATTRS,
#include "ir/ops.def"
#undef OP
};
#undef A

/* A default in the table is an int, a double or a string, and the attribute's kind says which
 * member of the union it goes to. NUMBER and TEXT make every branch compile for every default. */
#define NUMBER(v) _Generic((v), char *: 0, void *: 0, default: (v))
#define TEXT(v) _Generic((v), char *: (v), default: "")
#define CHOOSE __builtin_choose_expr
#define KIND_IS(k, kind) ((int)KIND_##k == (int)F8_ATTR_##kind)
#define A(k, v)                                                                                    \
    CHOOSE(KIND_IS(k, FLOAT), ((f8_attr){.key = k, .f = (double)NUMBER(v)}),                       \
           CHOOSE(KIND_IS(k, STR), ((f8_attr){.key = k, .s = TEXT(v)}),                            \
                  CHOOSE(KIND_IS(k, INTS), ((f8_attr){.key = k, .ints = {.n = 0}}),                \
                         ((f8_attr){.key = k, .i = (int64_t)NUMBER(v)})))),

/* F(FADD) I(IADD) become two designated elements of f8_op_info.form. */
#define NOFORMS
#define F(name) [F8_KIND_F] = F8_FORM_##name,
#define I(name) [F8_KIND_I] = F8_FORM_##name,
#define B(name) [F8_KIND_B] = F8_FORM_##name,

static const f8_op_info ops[F8_OP_COUNT] = {
    [F8_OP_NONE] = {.name = "none"},
#define DOC(names, kinds, says) .operands = names, .types = kinds, .text = says
#define OP(ID, n, lo, hi, r, CLS, infer, rule, FORMS, ATTRS, DOC)                                  \
    [F8_OP_##ID] = {.name = n,                                                                     \
                    .min_in = lo,                                                                  \
                    .max_in = hi,                                                                  \
                    .results = r,                                                                  \
                    .n_attrs = N_ATTRS_##ID,                                                       \
                    .cls = F8_##CLS,                                                               \
                    .form = {FORMS},                                                               \
                    .attrs = {ATTRS},                                                              \
                    .vjp = #rule,                                                                  \
                    DOC},
#include "ir/ops.def"
#undef OP
};

/* The size of the list [0] = 0, FORMS tells whether FORMS names any form. */
#define OP(ID, n, lo, hi, r, CLS, infer, vjp, FORMS, ...)                                          \
    _Static_assert((int)N_ATTRS_##ID <= (int)F8_MAX_ATTRS, n ": attributes");                      \
    _Static_assert(r >= 1 && r <= F8_MAX_RESULTS, n ": results");                                  \
    _Static_assert(lo <= hi, n ": arity");                                                         \
    _Static_assert((F8_##CLS == F8_POINTWISE && F8_OP_##ID != F8_OP_CAST) ==                       \
                       (sizeof((uint8_t[]){[F8_KIND_N] = 0, FORMS}) > 1),                          \
                   n ": a pointwise op other than cast needs a form, no other op has one");
#include "ir/ops.def"
#undef OP

const f8_op_info *f8_op_facts(f8_op op)
{
    return &ops[op];
}

f8_op f8_op_by_name(const char *name, size_t length)
{
    for (int op = F8_OP_NONE + 1; op < F8_OP_COUNT; op++)
        if (strlen(ops[op].name) == length && !memcmp(ops[op].name, name, length))
            return (f8_op)op;
    return F8_OP_NONE;
}

/* The dtypes that a pointwise op has forms for, as "t" or the name of the only one; and the list
 * that says what t is, or "". */
static const char *dtypes_of(const f8_op_info *o, char *list, size_t size)
{
    static const uint8_t kind[] = {F8_KIND_F, F8_KIND_I, F8_KIND_B};
    static const f8_dtype dtype[] = {F8_F32, F8_I32, F8_BOOL};
    const char *only = "t";
    size_t n = 0, at = 0;
    list[0] = 0;
    for (int i = 0; i < 3; i++)
        if (o->form[kind[i]]) {
            only = n++ ? "t" : f8_dtype_name(dtype[i]);
            at += (size_t)snprintf(list + at, size - at, "%s%s",
                                   n > 1 ? ", " : "; t: ", f8_dtype_name(dtype[i]));
        }
    if (n == 1)
        list[0] = 0;
    return only;
}

const char *f8_op_types(f8_op op, char *buf, size_t size)
{
    const f8_op_info *o = &ops[op];
    if (*o->types || o->cls != F8_POINTWISE)
        return o->types;
    char list[64];
    const char *dtype = dtypes_of(o, list, sizeof list);
    const f8_sform any = o->form[F8_KIND_F]   ? o->form[F8_KIND_F]
                         : o->form[F8_KIND_B] ? o->form[F8_KIND_B]
                                              : o->form[F8_KIND_I];
    const bool truth = f8_scalar_form(any)->result_kind == F8_KIND_B;
    size_t n = 0;
    for (int i = 0; i < o->min_in && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s[..]", i ? ", " : "", dtype);
    if (n < size)
        snprintf(buf + n, size - n, " -> %s[..]%s", truth ? "bool" : dtype, list);
    return buf;
}

f8_op_gradient f8_op_gradient_of(f8_op op)
{
    return !strcmp(ops[op].vjp, "none")        ? F8_GRADIENT_ZERO
           : !strncmp(ops[op].vjp, "error", 5) ? F8_GRADIENT_ERROR
                                               : F8_GRADIENT_RULE;
}

int f8_op_attr(f8_op op, f8_attr_key key)
{
    for (int i = 0; i < ops[op].n_attrs; i++)
        if (ops[op].attrs[i].key == key)
            return i;
    return -1;
}

const f8_attr *f8_node_attr(const f8_node *n, f8_attr_key key)
{
    const int at = f8_op_attr(n->op, key);
    return at < 0 ? NULL : &n->attr[at];
}
