/* Text that grows: kernel descriptions and the sources of kernels. */
#ifndef F8_CODEGEN_KERNEL_TEXT_H
#define F8_CODEGEN_KERNEL_TEXT_H

#include "ir/base/status.h"

/* The text lies in an arena. A failure is kept in the arena. */
typedef struct f8_text {
    f8_arena *arena;
    char *s;
    size_t n, room;
} f8_text;
void f8_text_add(f8_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Words, and integers in decimal, without the cost of a format. Every launch of a kernel is
 * described in text, and a model has thousands. */
void f8_text_put(f8_text *t, const char *words);
void f8_text_int(f8_text *t, int64_t value);

#endif
