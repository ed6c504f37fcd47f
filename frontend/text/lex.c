/* Tokens of the textual language: see lex.h. */
#include "frontend/text/lex.h"

#include <stdio.h>
#include <string.h>

#include "frontend/text/diag.h"
#include "ir/base/format.h"
#include "ir/base/text.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_char(char c)
{
    return is_letter(c) || is_digit(c) || c == '.';
}

/* ---- the text as a whole ---- */

f8_status f8_lex_check_text(const char *text, size_t n, f8_diag *d)
{
    if (n >= (size_t)1 << 30)
        return f8_fail(d, F8_ERR_INPUT, F8_NOWHERE, "the text has %zu bytes; the limit is 1 GiB",
                       n);
    uint32_t line = 1;
    size_t line_start = 0;
    bool blank = true;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        size_t length = c >= 0x01 && c < 0x80 ? 1 : f8_utf8_length(text + i, n - i);
        if (length == 0) {
            f8_loc loc = {line, (uint32_t)(i - line_start) + 1};
            return f8_fail(d, F8_ERR_INPUT, loc,
                           c ? "byte 0x%02X is not UTF-8: this is not a text file"
                             : "found a NUL byte (0x%02X): this is not a text file",
                           c);
        }
        if (c == '\n') {
            line++;
            line_start = i + 1;
        } else if (c > ' ') {
            blank = false;
        }
        i += length;
    }
    if (blank)
        return f8_fail(d, F8_ERR_INPUT, (f8_loc){1, 1},
                       "the file is empty; a module begins with 'module NAME'");
    return F8_OK;
}

/* ---- tokens ---- */

f8_lexer f8_lex_begin(const char *text, size_t n)
{
    return (f8_lexer){text, text, text + n, text, 1};
}

static f8_loc place(const f8_lexer *l)
{
    return (f8_loc){l->line, (uint32_t)(l->at - l->line_start) + 1};
}

static char peek(const f8_lexer *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? l->at[ahead] : 0;
}

/* Skips spaces, line ends and comments. */
static void skip_blank(f8_lexer *l)
{
    for (; l->at < l->end; l->at++) {
        if (*l->at == '#') {
            const char *stop = memchr(l->at, '\n', (size_t)(l->end - l->at));
            l->at = stop ? stop : l->end;
            if (!stop)
                return;
        }
        if (*l->at == '\n') {
            l->line++;
            l->line_start = l->at + 1;
        } else if (*l->at != ' ' && *l->at != '\t' && *l->at != '\r') {
            return;
        }
    }
}

static f8_status take(f8_lexer *l, f8_token *t, f8_token_kind kind, const char *from,
                      const char *to, const char *resume)
{
    t->kind = kind;
    t->text = from;
    t->length = (size_t)(to - from);
    l->at = resume;
    return F8_OK;
}

/* name = (letter | "_") {letter | digit | "_" | "." | "{" expr "}"}
 * A brace must follow "." "_" or "}" directly: `h.{l}.w` is one name, but `L {` and `L{` are a name
 * and the beginning of a block. */
static f8_status lex_name(f8_lexer *l, f8_token *t, f8_diag *d)
{
    const char *p = l->at, *limit = l->end - p > F8_MAX_NAME ? p + F8_MAX_NAME : l->end;
    while (p < limit) {
        if (*p == '{' && p > l->at && strchr("._}", p[-1])) {
            while (p < limit && *p != '}' && *p != '\n')
                p++;
            if (p == l->end || *p == '\n')
                return f8_fail(d, F8_ERR_INPUT, t->loc,
                               "a '{' in this name is not closed on the same line");
        } else if (!is_name_char(*p)) {
            break;
        }
        if (p < limit)
            p++;
    }
    if (p == limit && limit < l->end)
        return f8_fail(d, F8_ERR_INPUT, t->loc, "this name is longer than %d bytes",
                       F8_MAX_NAME - 1);
    return take(l, t, F8_T_NAME, l->at, p, p);
}

/* value = "%" (letter | digit | "_") {letter | digit | "_" | "."}
 * `T %H` becomes a name and a value. Where an operator may stand, the parser splits such a value
 * into "%" and a name (take_operator). */
static f8_status lex_value(f8_lexer *l, f8_token *t, f8_diag *d)
{
    const char *p = l->at + 1, *limit = l->end - p > F8_MAX_NAME ? p + F8_MAX_NAME : l->end;
    while (p < limit && is_name_char(*p))
        p++;
    if (p == limit && limit < l->end)
        return f8_fail(d, F8_ERR_INPUT, t->loc, "this name is longer than %d bytes",
                       F8_MAX_NAME - 1);
    return take(l, t, F8_T_VALUE, l->at + 1, p, p);
}

/* number = digits ["." digits] [("e" | "E") ["+" | "-"] digits] */
static f8_status lex_number(f8_lexer *l, f8_token *t, f8_diag *d)
{
    const char *p = l->at;
    bool real = false;
    while (p < l->end && is_digit(*p))
        p++;
    if (p + 1 < l->end && *p == '.' && is_digit(p[1])) {
        real = true;
        for (p++; p < l->end && is_digit(*p);)
            p++;
    }
    if (p < l->end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        if (q < l->end && (*q == '+' || *q == '-'))
            q++;
        if (q < l->end && is_digit(*q)) {
            real = true;
            while (q < l->end && is_digit(*q))
                q++;
            p = q;
        }
    }
    if (p < l->end && is_name_char(*p))
        return f8_fail(d, F8_ERR_INPUT, t->loc, "this number is followed by '%c' without a space",
                       *p);
    return take(l, t, real ? F8_T_FLOAT : F8_T_INT, l->at, p, p);
}

/* string = '"' {any character but '"' and a line end | "\" any} '"' */
static f8_status lex_string(f8_lexer *l, f8_token *t, f8_diag *d)
{
    const char *p = l->at + 1, *limit = l->end - p > F8_MAX_STRING ? p + F8_MAX_STRING : l->end;
    for (; p < limit && *p != '\n'; p++) {
        if (*p == '"')
            return take(l, t, F8_T_STRING, l->at + 1, p, p + 1);
        if (*p == '\\' && p + 1 < limit && p[1] != '\n')
            p++;
    }
    if (p >= limit && limit < l->end)
        return f8_fail(d, F8_ERR_INPUT, t->loc, "this string is longer than %d bytes",
                       F8_MAX_STRING - 1);
    return f8_fail(d, F8_ERR_INPUT, t->loc, "this string is not closed on the same line");
}

/* clone = "#" digits, directly after a name and directly before "(": `cast#2(%3)`. Any other #
 * begins a comment. */
static bool lex_clone(f8_lexer *l, f8_token *t)
{
    const char *p = l->at;
    if (p == l->end || *p != '#' || p == l->text || !is_name_char(p[-1]))
        return false;
    for (p++; p < l->end && is_digit(*p);)
        p++;
    if (p == l->at + 1 || p == l->end || *p != '(' || p - l->at > 20)
        return false;
    t->loc = place(l);
    take(l, t, F8_T_CLONE, l->at + 1, p, p);
    return true;
}

static f8_status bad_character(const f8_lexer *l, f8_loc loc, f8_diag *d)
{
    unsigned char c = (unsigned char)*l->at;
    if (c < 0x20 || c == 0x7F)
        return f8_fail(d, F8_ERR_INPUT, loc, "unexpected control character (0x%02X)", c);
    size_t n = f8_utf8_length(l->at, (size_t)(l->end - l->at));
    return f8_fail(d, F8_ERR_INPUT, loc, "unexpected character '%.*s'", (int)(n ? n : 1), l->at);
}

f8_status f8_lex_next(f8_lexer *l, f8_token *t, f8_diag *d)
{
    if (lex_clone(l, t))
        return F8_OK;
    skip_blank(l);
    t->loc = place(l);
    if (l->at == l->end)
        return take(l, t, F8_T_END, l->at, l->at, l->at);
    char c = *l->at;
    if (is_letter(c))
        return lex_name(l, t, d);
    if (is_digit(c))
        return lex_number(l, t, d);
    if (c == '"')
        return lex_string(l, t, d);
    if (c == '%' && (is_letter(peek(l, 1)) || is_digit(peek(l, 1))))
        return lex_value(l, t, d);
    if (c == '-' && peek(l, 1) == '>')
        return take(l, t, F8_T_ARROW, l->at, l->at + 2, l->at + 2);
    if (c == '<' && peek(l, 1) == '-')
        return take(l, t, F8_T_TAKES, l->at, l->at + 2, l->at + 2);
    if (strchr("()[]{},:=<+-*/%", c))
        return take(l, t, F8_T_PUNCT, l->at, l->at + 1, l->at + 1);
    return bad_character(l, t->loc, d);
}

/* ---- values of tokens ---- */

f8_status f8_lex_int(const f8_token *t, int64_t *value, f8_diag *d)
{
    int64_t v = 0;
    for (size_t i = 0; i < t->length; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, t->text[i] - '0', &v))
            return f8_fail(d, F8_ERR_INPUT, t->loc, "this integer does not fit into 64 bits");
    *value = v;
    return F8_OK;
}

f8_status f8_lex_float(const f8_token *t, double *value, f8_diag *d)
{
    char digits[128];
    if (t->length >= sizeof digits)
        return f8_fail(d, F8_ERR_INPUT, t->loc, "this number has %zu characters; the limit is %zu",
                       t->length, sizeof digits - 1);
    memcpy(digits, t->text, t->length);
    digits[t->length] = 0;
    const double v = f8_number(digits);
    if (v > 1.7976931348623157e308)
        return f8_fail(d, F8_ERR_INPUT, t->loc, "this number is too large for a double");
    *value = v;
    return F8_OK;
}

const char *f8_lex_quote(const f8_token *t, char *buf, size_t size)
{
    static const char *const prefix[] = {
        [F8_T_VALUE] = "%", [F8_T_STRING] = "\"", [F8_T_CLONE] = "#", [F8_T_PUNCT] = ""};
    if (t->kind == F8_T_END) {
        snprintf(buf, size, "the end of the text");
        return buf;
    }
    size_t most = 60 < size / 2 ? 60 : size / 2, n = t->length;
    const char *more = "";
    if (n > most) {
        for (n = most; n > 0 && ((unsigned char)t->text[n] & 0xC0) == 0x80;)
            n--;
        more = "...";
    }
    const char *before = prefix[t->kind] ? prefix[t->kind] : "";
    snprintf(buf, size, "'%s%.*s%s%s'", before, (int)n, t->text, more,
             t->kind == F8_T_STRING ? "\"" : "");
    return buf;
}
