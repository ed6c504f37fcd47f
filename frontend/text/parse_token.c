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

/* ---- suggestions ---- */

enum { SUGGEST_LENGTH = 40 };

/* The number of edits (insert, remove, replace) between two short names. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[SUGGEST_LENGTH + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            size_t other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < other ? replace : other;
        }
    }
    return row[m];
}

const char *f8_p_suggest(const char *name, size_t length,
                         const char *(*candidate)(const void *, size_t), const void *user, size_t n,
                         const char *prefix, char *buf, size_t size)
{
    const size_t most = length < 8 ? (length + 1) / 3 : 3;
    return f8_p_suggest_within(name, length, most, candidate, user, n, prefix, buf, size);
}

const char *f8_p_suggest_within(const char *name, size_t length, size_t most,
                                const char *(*candidate)(const void *, size_t), const void *user,
                                size_t n, const char *prefix, char *buf, size_t size)
{
    size_t best = most + 1; /* only candidates with fewer edits */
    const char *found = NULL;
    if (n > 1000)
        n = 1000;
    for (size_t i = 0; i < n && length <= SUGGEST_LENGTH; i++) {
        const char *c = candidate(user, i);
        size_t m = c ? strlen(c) : 0;
        if (m == 0 || m > SUGGEST_LENGTH)
            continue;
        size_t edits = distance(name, length, c, m);
        if (edits < best) {
            best = edits;
            found = c;
        }
    }
    buf[0] = 0;
    if (found)
        snprintf(buf, size, " (did you mean '%s%s'?)", prefix, found);
    return buf;
}
