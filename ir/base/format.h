/* Text and numbers as in the C locale, whatever the embedder's setlocale or uselocale says. What
 * the library writes (messages, canonical text, kernels, reasons in a compiled file) then has the
 * same bytes everywhere. The printf family, strtod and strerror follow the locale of the calling
 * thread. So outside format.c the library does not call vsnprintf and strerror, and calls snprintf
 * only without a floating-point conversion. */
#ifndef F8_FORMAT_H
#define F8_FORMAT_H

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>

/* As snprintf and vsnprintf. */
int f8_format(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int f8_vformat(char *to, size_t size, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));

/* The number at the start of `text`, as strtod gives it. */
double f8_number(const char *text);

/* The text of an errno, as strerror gives it; valid until the calling thread's next call. */
const char *f8_errno_text(int error);

/* Put the calling thread into the C locale, until f8_locale_back gets what f8_locale_c returned.
 * For calls of libc that have no other way (dlerror). Nothing is allocated: glibc's C locale is
 * static. */
locale_t f8_locale_c(void);
void f8_locale_back(locale_t before);

#endif
