/* Tokens of the textual language. The lexer is a small value over borrowed text. A copy of it looks
 * ahead. Restoring a copy reads the text a second time: `repeat` is unrolled in this way. */
#ifndef F8_LEX_H
#define F8_LEX_H

#include "ir/base/status.h"

typedef enum f8_token_kind {
    F8_T_END,
    F8_T_NAME,   /* h.0.attn, h.{l}.attn (braces included), f32, func, ... */
    F8_T_VALUE,  /* %x: `text` is without the % */
    F8_T_INT,    /* 12 */
    F8_T_FLOAT,  /* 1e-3, 0.5 */
    F8_T_STRING, /* "...": `text` is what stands between the quotes, with escapes and braces */
    F8_T_CLONE,  /* #2 directly between an op's name and its "(": `text` is without the # */
    F8_T_ARROW,  /* -> */
    F8_T_TAKES,  /* <- */
    F8_T_PUNCT,  /* one of ( ) [ ] { } , : = < + - * / %: `text` is that character */
} f8_token_kind;

typedef struct f8_token {
    f8_token_kind kind;
    f8_loc loc;
    const char *text;
    size_t length;
} f8_token;

typedef struct f8_lexer {
    const char *text, *at, *end;
    const char *line_start;
    uint32_t line;
} f8_lexer;

enum { F8_MAX_NAME = 512, F8_MAX_STRING = 1024 }; /* bytes of a name, of a string */

/* Checks that text[0..n) is UTF-8 without NUL bytes, not empty, and below 1 GiB. F8_ERR_INPUT with
 * the place if not. */
f8_status f8_lex_check_text(const char *text, size_t n, f8_diag *d);

f8_lexer f8_lex_begin(const char *text, size_t n);

/* Reads the next token into *t. F8_ERR_INPUT if no token can begin or end as the text does here. */
f8_status f8_lex_next(f8_lexer *l, f8_token *t, f8_diag *d);

/* The value of a number token. An integer beyond 64 bits and a float beyond a double are errors. */
f8_status f8_lex_int(const f8_token *t, int64_t *value, f8_diag *d);
f8_status f8_lex_float(const f8_token *t, double *value, f8_diag *d);

/* Writes a token for messages into buf, as 'text', cut short if needed, or "the end of the text".
 * Returns buf. */
const char *f8_lex_quote(const f8_token *t, char *buf, size_t size);

#endif
