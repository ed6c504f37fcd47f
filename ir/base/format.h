/* Text and numbers as in the C locale, whatever the embedder's setlocale or uselocale says: what
 * the library writes (messages, canonical text, kernels' texts, reasons in a compiled file) has the
 * same bytes everywhere. The printf family, strtod and strerror follow the locale of the calling
 * thread; outside of format.c the library calls vsnprintf and strerror nowhere, and snprintf only
 * without a floating conversion. */
#ifndef F8_FORMAT_H
#define F8_FORMAT_H

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>

/* snprintf and vsnprintf, with their results. */
int f8_format(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int f8_vformat(char *to, size_t size, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));

/* strtod of all of `text`'s leading number. */
double f8_number(const char *text);

/* strerror, of an errno; valid until the calling thread's next call. */
const char *f8_errno_text(int error);

/* The calling thread in the C locale until f8_locale_back with what f8_locale_c gave: for calls of
 * libc that have no other way (dlerror). Nothing is allocated: glibc's C locale is static. */
locale_t f8_locale_c(void);
void f8_locale_back(locale_t before);

#endif
