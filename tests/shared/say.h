/* A text that grows, for tests that write modules. */
#ifndef F8_TESTS_SAY_H
#define F8_TESTS_SAY_H

#include <check.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct text {
    size_t n;
    char s[16384];
} text;

/* Append as printf does. Fails the running test where the text is full. */
static inline __attribute__((format(printf, 2, 3))) void say(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, format, args);
    va_end(args);
    ck_assert(n >= 0 && t->n + (size_t)n < sizeof t->s);
    t->n += (size_t)n;
}

#endif
