/* `repeat`, which is unrolled by reading its body once for each iteration: see parser.h. */
#include "frontend/text/parser.h"

/* Each iteration counts as its bytes and this many more, so that the limit on unrolled text also
 * ends repeats with empty bodies. */
enum { ITERATION_COST = 16 };

f8_status f8_p_unterminated(f8_parser *p, f8_loc open, const char *what)
{
    return f8_p_fail(p, open, "the '{' of this %s is never closed", what);
}

f8_status f8_p_repeat_head(f8_parser *p, f8_repeat *r)
{
    *r = (f8_repeat){.loc = p->tok.loc, .i = -1};
    F8_TRY(f8_p_enter(p));
    F8_TRY(f8_p_advance(p));
    f8_loc loc = p->tok.loc;
    F8_TRY(f8_p_plain_name(p, "the name of the repeat's variable", &r->name));
    for (uint32_t i = 0; i < p->n_loops; i++)
        if (p->loop[i].name == r->name)
            return f8_p_fail(p, loc, "'%s' is already the variable of the repeat at %u:%u", r->name,
                             p->loop[i].loc.line, p->loop[i].loc.column);
    uint32_t dim = f8_map_get(&p->dims, f8_map_key(r->name));
    if (dim)
        return f8_p_fail(p, loc, "'%s' is already a dim, declared at %u:%u", r->name,
                         p->m->dim[dim - 1].loc.line, p->m->dim[dim - 1].loc.column);
    if (p->n_loops == F8_MAX_LOOPS)
        return f8_p_fail(p, r->loc, "repeats are nested deeper than %d levels", F8_MAX_LOOPS);
    F8_TRY(f8_p_expect(p, '<', "'<'"));
    loc = p->tok.loc;
    f8_p_begin_fixed(p);
    F8_TRY(f8_p_int(p, &r->count));
    F8_TRY(f8_p_check_fixed(p, "a repeat's count",
                         "the names that it makes are the same for all values of a bound"));
    if (r->count < 0)
        return f8_p_fail(p, loc, "the count of this repeat is %lld: it must not be negative",
                         (long long)r->count);
    return F8_OK;
}

/* Skips the body of a repeat with no iterations, up to its "}". */
static f8_status skip_body(f8_parser *p, const f8_repeat *r)
{
    for (uint32_t depth = 0; depth > 0 || !f8_p_at(p, '}');) {
        if (p->tok.kind == F8_T_END)
            return f8_p_unterminated(p, r->open, "repeat");
        if (f8_p_at(p, '{'))
            depth++;
        else if (f8_p_at(p, '}'))
            depth--;
        F8_TRY(f8_p_advance(p));
    }
    return F8_OK;
}

f8_status f8_p_repeat_open(f8_parser *p, f8_repeat *r)
{
    r->open = p->tok.loc;
    F8_TRY(f8_p_expect(p, '{', "'{' and the repeat's body"));
    r->start = p->lex;
    r->first = p->tok;
    p->loop[p->n_loops++] = (f8_loop){r->name, 0, r->loc};
    return r->count == 0 ? skip_body(p, r) : F8_OK;
}

f8_status f8_p_repeat_next(f8_parser *p, f8_repeat *r, bool *more)
{
    if (r->i >= 0 && p->tok.kind == F8_T_END)
        return f8_p_unterminated(p, r->open, "repeat");
    *more = ++r->i < r->count;
    if (!*more)
        return F8_OK;
    if (r->i > 0) {
        p->unrolled += (uint64_t)(p->lex.at - r->start.at) + ITERATION_COST;
        if (p->unrolled > p->limits->unrolled)
            return f8_p_fail(
                p, r->loc, "this repeat and those around it unroll to more than %llu bytes of text",
                (unsigned long long)p->limits->unrolled);
        p->lex = r->start;
        p->tok = r->first;
    }
    p->loop[p->n_loops - 1].value = r->i;
    return F8_OK;
}

f8_status f8_p_repeat_close(f8_parser *p, f8_repeat *r)
{
    p->n_loops--;
    p->depth--;
    if (p->tok.kind == F8_T_END)
        return f8_p_unterminated(p, r->open, "repeat");
    return f8_p_expect(p, '}', "a statement or '}'");
}
