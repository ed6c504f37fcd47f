/* Operands, calls and attributes: see parser.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/text/op_names.h"
#include "frontend/text/parser.h"
#include "ir/base/suggest.h"

/* ---- names ---- */

static const char *binding_name(const void *user, size_t i)
{
    const f8_parser *p = user;
    return p->binding[p->n_bindings - 1 - i].name; /* newest first */
}

/* value = VALUE, which must be defined in scope */
static f8_status parse_value(f8_parser *p, f8_operand *o)
{
    const char *name;
    char hint[80];
    f8_loc loc = o->loc;
    F8_TRY(f8_p_value_name(p, "a value", &name));
    uint32_t found = f8_map_get(&p->values, f8_map_key(name));
    if (!found)
        return f8_p_fail(
            p, loc, "'%%%s' is not defined here%s", name,
            f8_suggest(name, strlen(name), binding_name, p, p->n_bindings, "%", hint, sizeof hint));
    *o = p->binding[found - 1].value;
    o->loc = loc;
    return F8_OK;
}

static const char *var_name(const void *user, size_t i)
{
    const f8_module *m = user;
    return m->var[i].name;
}

/* variable = NAME of a param or state */
static f8_status parse_variable(f8_parser *p, f8_operand *o)
{
    const char *name;
    F8_TRY(f8_p_name(p, "a variable", &name));
    o->kind = F8_OPERAND_VAR;
    o->var = f8_module_find_var(p->m, name);
    if (o->var >= 0)
        return F8_OK;
    if (f8_map_get(&p->values, f8_map_key(name)))
        return f8_p_fail(p, o->loc, "there is no param or state '%s' (did you mean '%%%s'?)", name,
                         name);
    char hint[80];
    f8_suggest(name, strlen(name), var_name, p->m, p->m->n_vars, "", hint, sizeof hint);
    return f8_p_fail(p, o->loc, "there is no param or state '%s'%s", name, hint);
}

/* ---- nodes ---- */

static f8_status check_graph(f8_parser *p, f8_ref ref, f8_loc loc)
{
    if (!ref)
        return p->diag->status ? p->diag->status : f8_p_memory(p);
    if (p->nodes_before + p->f->graph->n_nodes - 1 > p->limits->nodes) /* node 0 is none */
        return f8_p_fail(p, loc, "the module has more than %u nodes", p->limits->nodes);
    return F8_OK;
}

/* The dtype that a literal takes among these operands of a pointwise op: that of the first that is
 * no literal, if there is one and constants can have it, else f32. */
static f8_dtype literal_dtype(const f8_parser *p, f8_op op, const f8_operand *o, size_t n)
{
    if (f8_op_facts(op)->cls != F8_POINTWISE || op == F8_OP_CAST)
        return F8_F32;
    size_t i = op == F8_OP_SELECT; /* its condition aside */
    while (i < n && o[i].kind == F8_OPERAND_CONST)
        i++;
    if (i >= n)
        return F8_F32;
    const f8_dtype d = o[i].kind == F8_OPERAND_VAR ? p->m->var[o[i].var].type.dtype
                                                   : f8_type_of(p->f->graph, o[i].ref)->dtype;
    return d == F8_I32 || d == F8_BOOL || d == F8_BF16 || d == F8_F16 ? d : F8_F32;
}

static f8_ref literal(f8_graph *g, double value, f8_dtype dtype)
{
    const f8_attr attr[] = {F8_FLOAT(F8_A_VALUE, value), F8_INT(F8_A_TO, dtype)};
    return f8_make(g, F8_OP_CONST, NULL, 0, attr, 2);
}

/* `literal_is`: the dtype of a literal. */
static f8_status operand_ref(f8_parser *p, f8_operand *o, f8_dtype literal_is, f8_ref *ref)
{
    p->f->graph->at = o->loc;
    switch (o->kind) {
    case F8_OPERAND_REF: *ref = o->ref; return F8_OK;
    case F8_OPERAND_VAR: *ref = f8_func_var(p->f, o->var); break;
    case F8_OPERAND_CONST: *ref = literal(p->f->graph, o->value, literal_is); break;
    }
    return check_graph(p, *ref, o->loc);
}

f8_status f8_p_value(f8_parser *p, f8_ref *ref)
{
    f8_operand o;
    F8_TRY(f8_p_operand(p, &o));
    return operand_ref(p, &o, F8_F32, ref);
}

/* ---- attributes ---- */

/* ints = "[" [expr {"," expr}] "]" */
static f8_status parse_ints(f8_parser *p, f8_ints *v)
{
    *v = (f8_ints){.n = 0};
    F8_TRY(f8_p_expect(p, '[', "'[' and a list of integers"));
    while (!f8_p_at(p, ']')) {
        if (v->n == F8_MAX_RANK)
            return f8_p_fail(p, p->tok.loc, "a list has at most %d integers", F8_MAX_RANK);
        if (v->n > 0)
            F8_TRY(f8_p_expect(p, ',', "',' or ']'"));
        F8_TRY(f8_p_int(p, &v->v[v->n]));
        v->n++;
    }
    return f8_p_advance(p);
}

/* attribute value = expr | real | "true" | "false" | dtype | STRING | ints; the key decides which
 * of these */
static f8_status parse_attr_value(f8_parser *p, f8_attr *a)
{
    switch (f8_attr_kind_of(a->key)) {
    case F8_ATTR_INT: return f8_p_int(p, &a->i);
    case F8_ATTR_FLOAT: return f8_p_real(p, &a->f);
    case F8_ATTR_BOOL:
        a->i = f8_p_at_word(p, "true");
        if (!a->i && !f8_p_at_word(p, "false"))
            return f8_p_unexpected(p, "true or false");
        return f8_p_advance(p);
    case F8_ATTR_DTYPE: {
        f8_dtype dtype;
        F8_TRY(f8_p_dtype(p, &dtype));
        a->i = dtype;
        return F8_OK;
    }
    case F8_ATTR_STR: return f8_p_string(p, "a string", &a->s);
    case F8_ATTR_INTS: return parse_ints(p, &a->ints);
    }
    return F8_OK;
}

static f8_status unknown_attr(f8_parser *p, const f8_op_info *info)
{
    char found[160], list[256] = "";
    f8_lex_quote(&p->tok, found, sizeof found);
    if (info->n_attrs == 0)
        return f8_p_fail(p, p->tok.loc, "%s takes no attributes, but is given %s", info->name,
                         found);
    for (int i = 0, at = 0; i < info->n_attrs && at < (int)sizeof list; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", i ? ", " : "",
                       f8_attr_name(info->attrs[i].key));
    return f8_p_fail(p, p->tok.loc, "%s has no attribute %s; it takes: %s", info->name, found,
                     list);
}

/* attribute = NAME "=" value */
static f8_status parse_attr(f8_parser *p, const f8_op_info *info, f8_attr *attr, int *n)
{
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(p, "an attribute's name");
    f8_attr_key key = f8_attr_by_name(p->tok.text, p->tok.length);
    bool takes = false;
    for (int i = 0; i < info->n_attrs; i++)
        takes |= info->attrs[i].key == key;
    if (!takes)
        return unknown_attr(p, info);
    for (int i = 0; i < *n; i++)
        if (attr[i].key == key)
            return f8_p_fail(p, p->tok.loc, "attribute '%s' is given twice", f8_attr_name(key));
    F8_TRY(f8_p_advance(p));
    F8_TRY(f8_p_expect(p, '=', "'=' after the attribute's name"));
    attr[*n] = (f8_attr){.key = key};
    return parse_attr_value(p, &attr[(*n)++]);
}

/* Whether the "{" here begins attributes: `NAME =` follows, or the "}" of none. */
static bool is_attributes(const f8_parser *p)
{
    f8_lexer ahead = p->lex;
    f8_token first, second;
    f8_diag ignored = {0};
    if (f8_lex_next(&ahead, &first, &ignored) || f8_lex_next(&ahead, &second, &ignored))
        return false;
    return (first.kind == F8_T_NAME && second.kind == F8_T_PUNCT && second.text[0] == '=') ||
           (first.kind == F8_T_PUNCT && first.text[0] == '}');
}

/* attributes = "{" [attribute {"," attribute}] "}". Behind the first value of a carry, "{" may also
 * begin the repeat's body. */
static f8_status parse_attrs(f8_parser *p, const f8_op_info *info, f8_attr *attr, int *n)
{
    *n = 0;
    if (!f8_p_at(p, '{') || (p->in_carry && !is_attributes(p)))
        return F8_OK;
    F8_TRY(f8_p_advance(p));
    for (bool first = true; !f8_p_at(p, '}'); first = false) {
        if (!first)
            F8_TRY(f8_p_expect(p, ',', "',' or '}'"));
        F8_TRY(parse_attr(p, info, attr, n));
    }
    return f8_p_advance(p);
}

/* ---- calls ---- */

static f8_status parse_op(f8_parser *p, f8_op *op)
{
    *op = f8_op_by_name(p->tok.text, p->tok.length);
    if (*op != F8_OP_NONE && *op != F8_OP_INPUT)
        return f8_p_advance(p);
    char hint[120], found[160];
    return f8_p_fail(p, p->tok.loc, "there is no op %s%s",
                     f8_lex_quote(&p->tok, found, sizeof found),
                     f8_op_name_hint(p->tok.text, p->tok.length, hint, sizeof hint));
}

static f8_status parse_clone(f8_parser *p, uint64_t *clone)
{
    int64_t v;
    F8_TRY(f8_lex_int(&p->tok, &v, p->diag));
    if (v >> F8_CLONE_BITS)
        return f8_p_fail(p, p->tok.loc, "this clone number does not fit into %d bits",
                         F8_CLONE_BITS);
    *clone = (uint64_t)v;
    return f8_p_advance(p);
}

enum { MAX_OPERANDS = 1024 };

#define OP(ID, n, lo, hi, ...)                                                                     \
    _Static_assert(hi <= MAX_OPERANDS, n ": more operands than a call can hold");
#include "ir/ops.def"
#undef OP

/* operands = "(" [operand {"," operand}] ")". Pushes them on the operand stack. */
static f8_status parse_operands(f8_parser *p)
{
    F8_TRY(f8_p_expect(p, '(', "'('"));
    size_t base = p->n_operands;
    while (!f8_p_at(p, ')')) {
        if (p->n_operands > base)
            F8_TRY(f8_p_expect(p, ',', "',' or ')'"));
        if (p->n_operands - base == MAX_OPERANDS)
            return f8_p_fail(p, p->tok.loc, "a call has at most %d operands", MAX_OPERANDS);
        f8_operand o;
        F8_TRY(f8_p_operand(p, &o));
        f8_operand *stack = f8_arena_grow(&p->scratch, p->operand, p->n_operands, &p->operand_room,
                                          p->n_operands + 1, sizeof *stack);
        if (!stack)
            return f8_p_memory(p);
        p->operand = stack;
        stack[p->n_operands++] = o;
    }
    return f8_p_advance(p);
}

/* Not inlined into parse_call, which recurses: each level would have a copy of the array `in`. */
static __attribute__((noinline)) f8_status make_call(f8_parser *p, f8_op op, size_t base,
                                                     const f8_attr *attr, int n_attrs,
                                                     uint64_t clone, f8_loc loc, f8_ref *ref)
{
    f8_ref in[MAX_OPERANDS];
    size_t n = p->n_operands - base;
    /* there is no stack before a module's first operand */
    const f8_dtype dtype = literal_dtype(p, op, n ? p->operand + base : NULL, n);
    for (size_t i = 0; i < n; i++)
        F8_TRY(operand_ref(p, &p->operand[base + i], dtype, &in[i]));
    p->f->graph->at = loc;
    *ref = f8_make_clone(p->f->graph, op, in, (int)n, attr, n_attrs, clone);
    p->n_operands = base;
    return check_graph(p, *ref, loc);
}

/* call = NAME ["#" INT] operands [attributes] */
static f8_status parse_call(f8_parser *p, f8_ref *ref)
{
    f8_loc loc = p->tok.loc;
    f8_op op;
    uint64_t clone = 0;
    F8_TRY(f8_p_enter(p));
    F8_TRY(parse_op(p, &op));
    if (p->tok.kind == F8_T_CLONE)
        F8_TRY(parse_clone(p, &clone));
    size_t base = p->n_operands;
    F8_TRY(parse_operands(p));
    f8_attr attr[F8_MAX_ATTRS];
    int n_attrs = 0;
    F8_TRY(parse_attrs(p, f8_op_facts(op), attr, &n_attrs));
    F8_TRY(make_call(p, op, base, attr, n_attrs, clone, loc, ref));
    p->depth--;
    return F8_OK;
}

static bool is_call(const f8_parser *p)
{
    f8_lexer ahead = p->lex;
    f8_token next;
    f8_diag ignored = {0};
    if (f8_lex_next(&ahead, &next, &ignored) != F8_OK)
        return false;
    return next.kind == F8_T_CLONE || (next.kind == F8_T_PUNCT && next.text[0] == '(');
}

/* operand = value | call | variable | real; a real begins with a number, "-" or "(" */
f8_status f8_p_operand(f8_parser *p, f8_operand *o)
{
    *o = (f8_operand){.kind = F8_OPERAND_REF, .loc = p->tok.loc};
    if (p->tok.kind == F8_T_VALUE)
        return parse_value(p, o);
    if (p->tok.kind == F8_T_NAME)
        return is_call(p) ? parse_call(p, &o->ref) : parse_variable(p, o);
    if (p->tok.kind != F8_T_INT && p->tok.kind != F8_T_FLOAT && !f8_p_at(p, '-') &&
        !f8_p_at(p, '('))
        return f8_p_unexpected(p, "an operand");
    o->kind = F8_OPERAND_CONST;
    return f8_p_real(p, &o->value);
}
