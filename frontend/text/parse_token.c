/* The parser's tokens and name maps: see parser.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/text/parser.h"
#include "ir/base/format.h"

/* ---- failing ---- */

f8_status f8_p_fail(f8_parser *p, f8_loc loc, const char *fmt, ...)
{
    char text[sizeof p->diag->text];
    va_list args;
    va_start(args, fmt);
    f8_vformat(text, sizeof text, fmt, args);
    va_end(args);
    return f8_fail(p->diag, F8_ERR_INPUT, loc, "%s", text);
}

f8_status f8_p_memory(f8_parser *p)
{
    f8_status s = f8_arena_status(p->scratch.failed ? &p->scratch : p->arena, p->diag);
    return s ? s : f8_fail(p->diag, F8_ERR_MEMORY, p->tok.loc, "out of memory");
}

f8_status f8_p_unexpected(f8_parser *p, const char *expected)
{
    char found[160];
    return f8_p_fail(p, p->tok.loc, "expected %s, found %s", expected,
                     f8_lex_quote(&p->tok, found, sizeof found));
}

/* ---- tokens ---- */

f8_status f8_p_advance(f8_parser *p)
{
    return f8_lex_next(&p->lex, &p->tok, p->diag);
}

bool f8_p_at(const f8_parser *p, char punct)
{
    return p->tok.kind == F8_T_PUNCT && p->tok.text[0] == punct;
}

bool f8_p_at_word(const f8_parser *p, const char *word)
{
    return p->tok.kind == F8_T_NAME && p->tok.length == strlen(word) &&
           !memcmp(p->tok.text, word, p->tok.length);
}

f8_status f8_p_expect(f8_parser *p, char punct, const char *what)
{
    if (!f8_p_at(p, punct))
        return f8_p_unexpected(p, what);
    return f8_p_advance(p);
}

f8_status f8_p_enter(f8_parser *p)
{
    if (p->depth >= p->limits->depth)
        return f8_p_fail(p, p->tok.loc, "nested deeper than %u levels", p->limits->depth);
    p->depth++;
    return F8_OK;
}

f8_status f8_p_count_declaration(f8_parser *p, f8_loc loc)
{
    if (p->declarations >= p->limits->declarations)
        return f8_p_fail(p, loc, "the module has more than %u declarations",
                         p->limits->declarations);
    p->declarations++;
    return F8_OK;
}
