/* Functions and statements: see parser.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/text/parser.h"

static f8_status parse_statements(f8_parser *p, size_t from, size_t to);

/* ---- scopes ---- */

static f8_status bind(f8_parser *p, const char *name, const f8_operand *value, f8_loc loc)
{
    uint32_t other = f8_map_get(&p->values, f8_map_key(name));
    if (other) {
        f8_loc first = p->binding[other - 1].loc;
        if (p->binding[other - 1].kind == F8_CARRIED_OUTSIDE)
            return f8_p_fail(p, loc,
                             "'%%%s' is carried by an outer repeat, at %u:%u: carry it through "
                             "this one under another name",
                             name, first.line, first.column);
        return f8_p_fail(p, loc, "'%%%s' is already defined, at %u:%u", name, first.line,
                         first.column);
    }
    f8_binding *grown = f8_arena_grow(&p->scratch, p->binding, p->n_bindings, &p->binding_room,
                                      p->n_bindings + 1, sizeof *grown);
    if (!grown)
        return f8_p_memory(p);
    p->binding = grown;
    grown[p->n_bindings++] = (f8_binding){.name = name, .value = *value, .loc = loc};
    return f8_map_set(&p->values, &p->scratch, f8_map_key(name), (uint32_t)p->n_bindings, p->diag);
}

static f8_status leave_scope(f8_parser *p, size_t mark)
{
    while (p->n_bindings > mark)
        F8_TRY(f8_map_set(&p->values, &p->scratch, f8_map_key(p->binding[--p->n_bindings].name), 0,
                          p->diag));
    return F8_OK;
}

/* ---- statements ---- */

/* Gives a node the name by which messages and `keep` patterns know it: the value's name, and in a
 * repeat also the values of the repeats' variables (%n in iteration 3 is n.3). The numbers that
 * canonical text uses are not names. */
static void name_node(f8_parser *p, f8_ref ref, const char *name)
{
    char text[F8_MAX_NAME];
    if (name[0] >= '0' && name[0] <= '9')
        return;
    int at = snprintf(text, sizeof text, "%s", name);
    for (uint32_t i = 0; i < p->n_loops && at < (int)sizeof text; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, ".%lld", (long long)p->loop[i].value);
    f8_set_name(p->f->graph, ref, text);
}

/* assignment = VALUE "=" operand */
static f8_status parse_assignment(f8_parser *p)
{
    const char *name;
    f8_operand value = {.kind = F8_OPERAND_REF};
    f8_loc loc = p->tok.loc;
    F8_TRY(f8_p_value_name(p, "a statement: '%name = ...', 'repeat' or 'return'", &name));
    uint32_t other = f8_map_get(&p->values, f8_map_key(name));
    /* The message about a second definition comes before messages about the right-hand side. */
    if (other && p->binding[other - 1].kind != F8_CARRIED)
        return bind(p, name, &value, loc);
    F8_TRY(f8_p_expect(p, '=', "'='"));
    const f8_ref fresh = p->f->graph->n_nodes;
    F8_TRY(f8_p_operand(p, &value));
    /* A constant that older nodes use gets no name: with a name it would be printed before them. */
    if (value.kind == F8_OPERAND_REF &&
        (value.ref >= fresh || f8_at(p->f->graph, value.ref)->op != F8_OP_CONST))
        name_node(p, value.ref, name);
    if (!other)
        return bind(p, name, &value, loc);
    p->binding[other - 1].value = value;
    p->binding[other - 1].assigned = true;
    return F8_OK;
}

/* carry = "carry" VALUE "=" operand {"," VALUE "=" operand}
 * All initial values are read before any name is bound. */
static f8_status parse_carry(f8_parser *p, size_t *first)
{
    enum { MOST = 32 };
    const char *name[MOST];
    f8_operand value[MOST];
    f8_loc loc[MOST];
    int n = 0;
    *first = p->n_bindings;
    if (!f8_p_at_word(p, "carry"))
        return F8_OK;
    p->in_carry = true;
    do {
        F8_TRY(f8_p_advance(p));
        if (n == MOST)
            return f8_p_fail(p, p->tok.loc, "a repeat carries at most %d values", MOST);
        loc[n] = p->tok.loc;
        F8_TRY(f8_p_value_name(p, "a carried value's name", &name[n]));
        F8_TRY(f8_p_expect(p, '=', "'=' and its first value"));
        F8_TRY(f8_p_operand(p, &value[n++]));
    } while (f8_p_at(p, ','));
    p->in_carry = false;
    for (int i = 0; i < n; i++)
        F8_TRY(bind(p, name[i], &value[i], loc[i]));
    return F8_OK;
}

/* An inner repeat can read the carried values of an outer one, but not assign them: it would carry
 * them too, and its head does not say so. */
static void set_carried(f8_parser *p, size_t from, size_t to, int kind)
{
    for (size_t i = from; i < to; i++)
        p->binding[i].kind = kind;
}

static f8_status check_carried(f8_parser *p, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        f8_binding *b = &p->binding[i];
        if (!b->assigned)
            return f8_p_fail(p, b->loc, "'%%%s' is carried, but the repeat's body never assigns it",
                             b->name);
        b->assigned = false;
    }
    return F8_OK;
}

/* repeat = "repeat" NAME "<" expr [carry] "{" {statement} "}" */
static f8_status parse_repeat(f8_parser *p, size_t outer_from, size_t outer_to)
{
    f8_repeat r;
    size_t first;
    bool more;
    F8_TRY(f8_p_repeat_head(p, &r));
    F8_TRY(parse_carry(p, &first));
    size_t mark = p->n_bindings;
    set_carried(p, outer_from, outer_to, F8_CARRIED_OUTSIDE);
    set_carried(p, first, mark, F8_CARRIED);
    F8_TRY(f8_p_repeat_open(p, &r));
    for (;;) {
        F8_TRY(f8_p_repeat_next(p, &r, &more));
        if (!more)
            break;
        F8_TRY(parse_statements(p, first, mark));
        F8_TRY(leave_scope(p, mark));
        if (p->tok.kind == F8_T_END)
            continue; /* f8_p_repeat_next fails */
        if (!f8_p_at(p, '}'))
            return f8_p_unexpected(p, "a statement or '}'");
        F8_TRY(check_carried(p, first, mark));
    }
    set_carried(p, first, mark, F8_FIXED);
    set_carried(p, outer_from, outer_to, F8_CARRIED);
    return f8_p_repeat_close(p, &r);
}

/* statement = assignment | repeat. Bindings [from, to) are the carried values of the repeat around
 * these statements. */
static f8_status parse_statements(f8_parser *p, size_t from, size_t to)
{
    while (!f8_p_at(p, '}') && p->tok.kind != F8_T_END) {
        if (f8_p_at_word(p, "return"))
            return F8_OK;
        if (f8_p_at_word(p, "repeat"))
            F8_TRY(parse_repeat(p, from, to));
        else
            F8_TRY(parse_assignment(p));
    }
    return F8_OK;
}

/* ---- heads ---- */

typedef struct declared {
    const char *name; /* NULL: the result has no name */
    f8_type type;
    f8_loc loc;
    struct declared *next;
} declared;

/* port = VALUE ":" type */
static f8_status parse_port(f8_parser *p, const char **name, f8_type *type)
{
    F8_TRY(f8_p_count_declaration(p, p->tok.loc));
    F8_TRY(f8_p_value_name(p, "a value's name", name));
    F8_TRY(f8_p_expect(p, ':', "':' and a type"));
    return f8_p_type(p, type);
}

/* inputs = "(" [port {"," port}] ")" */
static f8_status parse_inputs(f8_parser *p)
{
    F8_TRY(f8_p_expect(p, '(', "'(' and the inputs"));
    for (bool first = true; !f8_p_at(p, ')'); first = false) {
        const char *name;
        f8_type type;
        if (!first)
            F8_TRY(f8_p_expect(p, ',', "',' or ')'"));
        f8_loc loc = p->tok.loc;
        F8_TRY(parse_port(p, &name, &type));
        f8_operand value = {.kind = F8_OPERAND_REF};
        F8_TRY(bind(p, name, &value, loc));
        p->f->graph->at = loc;
        f8_ref ref = f8_func_input(p->f, name, &type, -1);
        if (!ref)
            return p->diag->status ? p->diag->status : f8_p_memory(p);
        F8_TRY(f8_p_axes(p, name, &type));
        p->binding[p->n_bindings - 1].value.ref = ref;
    }
    return f8_p_advance(p);
}

/* results = type | "(" [port {"," port}] ")" */
static f8_status parse_results(f8_parser *p, declared **list)
{
    declared **tail = list;
    bool many = f8_p_at(p, '('), first = true;
    if (many)
        F8_TRY(f8_p_advance(p));
    while (many ? !f8_p_at(p, ')') : first) {
        if (!first)
            F8_TRY(f8_p_expect(p, ',', "',' or ')'"));
        declared *d = F8_NEW(&p->scratch, declared);
        if (!d)
            return f8_p_memory(p);
        d->loc = p->tok.loc;
        F8_TRY(many ? parse_port(p, &d->name, &d->type) : f8_p_type(p, &d->type));
        *tail = d;
        tail = &d->next;
        first = false;
    }
    return many ? f8_p_advance(p) : F8_OK;
}

/* ---- results ---- */

static f8_status check_result(f8_parser *p, f8_loc loc, f8_ref ref, const f8_type *wanted,
                              const char *what, const char *name, f8_loc declared_at)
{
    char is[160], was[160];
    const f8_type *type = f8_type_of(p->f->graph, ref);
    if (f8_type_equal(type, wanted))
        return F8_OK;
    return f8_p_fail(p, loc, "%s '%s' is declared %s at %u:%u, but this is %s", what, name,
                     f8_type_print(wanted, was, sizeof was), declared_at.line, declared_at.column,
                     f8_type_print(type, is, sizeof is));
}

/* replacement = NAME "<-" operand: the next value of the variable */
static f8_status parse_replacement(f8_parser *p)
{
    const char *name;
    f8_ref ref;
    f8_loc loc = p->tok.loc;
    F8_TRY(f8_p_name(p, "a variable", &name));
    int32_t var = f8_module_find_var(p->m, name);
    if (var < 0)
        return f8_p_fail(p, loc, "there is no param or state '%s'", name);
    F8_TRY(f8_p_advance(p));
    f8_loc at = p->tok.loc;
    F8_TRY(f8_p_value(p, &ref));
    F8_TRY(check_result(p, at, ref, &p->m->var[var].type, "variable", name, p->m->var[var].loc));
    p->f->graph->at = loc;
    return f8_func_result(p->f, name, ref, var);
}

static bool is_replacement(const f8_parser *p)
{
    f8_lexer ahead = p->lex;
    f8_token next;
    f8_diag ignored = {0};
    return p->tok.kind == F8_T_NAME && f8_lex_next(&ahead, &next, &ignored) == F8_OK &&
           next.kind == F8_T_TAKES;
}

/* result = operand | replacement */
static f8_status parse_result(f8_parser *p, declared **list)
{
    F8_TRY(f8_p_count_declaration(p, p->tok.loc));
    if (is_replacement(p))
        return parse_replacement(p);
    f8_loc loc = p->tok.loc;
    declared *d = *list;
    f8_ref ref;
    F8_TRY(f8_p_value(p, &ref));
    if (!d)
        return f8_p_fail(p, loc, "'%s' returns more values than it declares", p->f->name);
    *list = d->next;
    const char *name = d->name ? d->name : "result";
    F8_TRY(check_result(p, loc, ref, &d->type, "result", name, d->loc));
    p->f->graph->at = d->loc;
    return f8_func_result(p->f, name, ref, -1);
}

/* return = "return" [result {"," result}] */
static f8_status parse_return(f8_parser *p, declared *list, f8_loc open)
{
    f8_loc loc = p->tok.loc;
    if (!f8_p_at_word(p, "return"))
        return f8_p_fail(p, loc, "'%s' ends without a 'return'", p->f->name);
    F8_TRY(f8_p_advance(p));
    for (bool first = true; !f8_p_at(p, '}'); first = false) {
        if (p->tok.kind == F8_T_END)
            return f8_p_unterminated(p, open, "function");
        if (!first)
            F8_TRY(f8_p_expect(p, ',', "',' or '}'"));
        F8_TRY(parse_result(p, &list));
    }
    if (!list)
        return F8_OK;
    return f8_p_fail(p, loc,
                     "'%s' returns fewer values than it declares: the one at %u:%u is missing",
                     p->f->name, list->loc.line, list->loc.column);
}

/* ---- functions ---- */

static f8_status begin_func(f8_parser *p)
{
    const char *name;
    f8_loc loc = p->tok.loc;
    F8_TRY(f8_p_count_declaration(p, loc));
    F8_TRY(f8_p_name(p, "the function's name", &name));
    const f8_func *other = f8_module_find_func(p->m, name);
    if (other) {
        f8_loc first = p->func_loc[other - p->m->func];
        return f8_p_fail(p, loc, "function '%s' is already defined, at %u:%u", name, first.line,
                         first.column);
    }
    f8_loc *grown = f8_arena_grow(&p->scratch, p->func_loc, p->m->n_funcs, &p->func_loc_room,
                                  p->m->n_funcs + 1, sizeof *grown);
    if (!grown)
        return f8_p_memory(p);
    p->func_loc = grown;
    grown[p->m->n_funcs] = loc;
    p->f = f8_module_func(p->m, name);
    return p->f ? F8_OK : p->diag->status;
}

/* func = "func" NAME inputs "->" results "{" {statement} return "}" */
f8_status f8_p_func(f8_parser *p)
{
    declared *list = NULL;
    F8_TRY(f8_p_advance(p));
    F8_TRY(begin_func(p));
    F8_TRY(parse_inputs(p));
    if (p->tok.kind != F8_T_ARROW)
        return f8_p_unexpected(p, "'->' and the results");
    F8_TRY(f8_p_advance(p));
    F8_TRY(parse_results(p, &list));
    f8_loc open = p->tok.loc;
    F8_TRY(f8_p_expect(p, '{', "'{' and the function's body"));
    F8_TRY(parse_statements(p, 0, 0));
    if (p->tok.kind == F8_T_END)
        return f8_p_unterminated(p, open, "function");
    F8_TRY(parse_return(p, list, open));
    F8_TRY(leave_scope(p, 0));
    p->nodes_before += p->f->graph->n_nodes - 1;
    p->f->graph->at = F8_NOWHERE;
    p->f = NULL;
    return f8_p_expect(p, '}', "'}'");
}
