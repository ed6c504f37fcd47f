/* UTF-8, which texts may be shown on a terminal, and how a text ends. */
#ifndef F8_TEXT_H
#define F8_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Length in bytes of the well-formed UTF-8 sequence at the start of text[0..n), or 0 if there is
 * none. NUL counts as malformed: no text file has one. */
size_t f8_utf8_length(const char *text, size_t n);

/* Whether all n bytes are UTF-8 without control characters (U+0001 to U+001F, U+007F to U+009F).
 * With those the author of a file could control the terminal that shows it. */
bool f8_text_is_plain(const char *text, size_t n);

/* Puts a question mark in the place of each control character but newlines and tabs, and of each
 * byte that is no UTF-8, in place: a message may quote names that somebody else chose. */
void f8_text_make_plain(char *text);

bool f8_text_ends_with(const char *text, const char *end);

#endif
