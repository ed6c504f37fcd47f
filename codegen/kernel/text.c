/* Text that grows: see text.h. */
#include "codegen/kernel/text.h"

#include <stdarg.h>
#include <string.h>

#include "ir/base/format.h"

void f8_text_add(f8_text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = f8_vformat(NULL, 0, format, args);
    va_end(args);
    char *grown =
        n < 0 ? NULL : f8_arena_grow(t->arena, t->s, t->n, &t->room, t->n + (size_t)n + 1, 1);
    if (grown) {
        t->s = grown;
        f8_vformat(t->s + t->n, (size_t)n + 1, format, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

static void put_bytes(f8_text *t, const char *bytes, size_t n)
{
    char *grown = f8_arena_grow(t->arena, t->s, t->n, &t->room, t->n + n + 1, 1);
    if (!grown)
        return;
    t->s = grown;
    memcpy(t->s + t->n, bytes, n);
    t->n += n;
    t->s[t->n] = 0;
}

void f8_text_put(f8_text *t, const char *words)
{
    put_bytes(t, words, strlen(words));
}

void f8_text_int(f8_text *t, int64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        digits[--at] = '-';
    put_bytes(t, digits + at, sizeof digits - at);
}
