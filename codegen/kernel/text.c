/* Text that grows: see text.h. */
#include "codegen/kernel/text.h"

#include <stdarg.h>

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
