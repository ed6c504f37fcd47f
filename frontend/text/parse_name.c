/* Names and strings, with their {expr} parts replaced: see parser.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/text/parser.h"

typedef struct text_buffer {
    char text[F8_MAX_STRING];
    size_t n;
} text_buffer;

static f8_status append(f8_parser *p, text_buffer *b, f8_loc loc, const char *s, size_t n)
{
    if (n > sizeof b->text - b->n)
        return f8_p_fail(p, loc, "this is longer than %zu bytes after its braces are replaced",
                         sizeof b->text);
    memcpy(b->text + b->n, s, n);
    b->n += n;
    return F8_OK;
}

/* Evaluates the {expr} at text[*at] of token `t`, which is the current token, and appends the
 * number. Moves *at past the "}". */
static f8_status append_expr(f8_parser *p, const f8_token *t, size_t *at, text_buffer *b)
{
    f8_lexer lex = p->lex;
    p->lex.at = t->text + *at + 1;
    F8_TRY(f8_p_advance(p));
    int64_t value;
    const uint32_t read = p->bound_read; /* belongs to an expression around this name */
    f8_p_begin_fixed(p);
    F8_TRY(f8_p_int(p, &value));
    F8_TRY(f8_p_check_fixed(p, "a name", "names are the same for all values of a bound"));
    p->bound_read = read;
    if (!f8_p_at(p, '}'))
        return f8_p_unexpected(p, "'}'");
    *at = (size_t)(p->tok.text - t->text) + 1;
    p->lex = lex;
    p->tok = *t;
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value);
    return append(p, b, t->loc, digits, (size_t)n);
}

static f8_status intern(f8_parser *p, const char *s, size_t n, const char **out)
{
    *out = f8_intern_n(p->m, s, n);
    return *out ? F8_OK : f8_p_memory(p);
}

f8_status f8_p_name(f8_parser *p, const char *what, const char **name)
{
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(p, what);
    f8_token t = p->tok;
    if (!memchr(t.text, '{', t.length)) {
        F8_TRY(intern(p, t.text, t.length, name));
        return f8_p_advance(p);
    }
    text_buffer b = {.n = 0};
    for (size_t i = 0; i < t.length;) {
        if (t.text[i] == '{')
            F8_TRY(append_expr(p, &t, &i, &b));
        else
            F8_TRY(append(p, &b, t.loc, &t.text[i++], 1));
    }
    F8_TRY(intern(p, b.text, b.n, name));
    return f8_p_advance(p);
}

f8_status f8_p_plain_name(f8_parser *p, const char *what, const char **name)
{
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(p, what);
    if (memchr(p->tok.text, '.', p->tok.length) || memchr(p->tok.text, '{', p->tok.length))
        return f8_p_fail(p, p->tok.loc, "this name can't have dots or braces");
    F8_TRY(intern(p, p->tok.text, p->tok.length, name));
    return f8_p_advance(p);
}

f8_status f8_p_string(f8_parser *p, const char *what, const char **text)
{
    if (p->tok.kind != F8_T_STRING)
        return f8_p_unexpected(p, what);
    f8_token t = p->tok;
    text_buffer b = {.n = 0};
    for (size_t i = 0; i < t.length;) {
        if (t.text[i] == '{') {
            F8_TRY(append_expr(p, &t, &i, &b));
            continue;
        }
        if (t.text[i] != '\\') {
            F8_TRY(append(p, &b, t.loc, &t.text[i++], 1));
            continue;
        }
        static const char escapes[] = "\"\\{}nt", meanings[] = "\"\\{}\n\t";
        const char *e = t.text[i + 1] ? strchr(escapes, t.text[i + 1]) : NULL;
        if (!e)
            return f8_p_fail(
                p, t.loc,
                "this string has an unknown escape; the escapes are \\\" \\\\ \\{ \\} \\n \\t");
        F8_TRY(append(p, &b, t.loc, &meanings[e - escapes], 1));
        i += 2;
    }
    F8_TRY(intern(p, b.text, b.n, text));
    return f8_p_advance(p);
}

f8_status f8_p_value_name(f8_parser *p, const char *what, const char **name)
{
    if (p->tok.kind != F8_T_VALUE)
        return f8_p_unexpected(p, what);
    F8_TRY(intern(p, p->tok.text, p->tok.length, name));
    return f8_p_advance(p);
}
