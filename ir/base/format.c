/* Text as in the C locale: see format.h. */
#include "ir/base/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Needs no freelocale: for the C locale newlocale gives a constant. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t f8_locale_c(void)
{
    return uselocale(c_locale());
}

void f8_locale_back(locale_t before)
{
    uselocale(before);
}

int f8_vformat(char *to, size_t size, const char *fmt, va_list args)
{
    const locale_t before = f8_locale_c();
    const int n = vsnprintf(to, size, fmt, args);
    f8_locale_back(before);
    return n;
}

int f8_format(char *to, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = f8_vformat(to, size, fmt, args);
    va_end(args);
    return n;
}

double f8_number(const char *text)
{
    return strtod_l(text, NULL, c_locale());
}

const char *f8_errno_text(int error)
{
    return strerror_l(error, c_locale());
}
