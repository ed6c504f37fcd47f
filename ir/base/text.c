/* UTF-8 and ends of texts: see text.h. */
#include "ir/base/text.h"

#include <string.h>

size_t f8_utf8_length(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0 || s[0] == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, and what lies beyond U+10FFFF. */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return length;
}

bool f8_text_is_plain(const char *text, size_t n)
{
    for (size_t i = 0, length; i < n; i += length) {
        const unsigned char *s = (const unsigned char *)text + i;
        length = f8_utf8_length(text + i, n - i);
        if (!length || s[0] < 0x20 || s[0] == 0x7F || (s[0] == 0xC2 && s[1] < 0xA0))
            return false;
    }
    return true;
}

void f8_text_make_plain(char *text)
{
    const size_t n = strlen(text);
    char *to = text;
    for (size_t i = 0, length; i < n; i += length) {
        length = f8_utf8_length(text + i, n - i);
        const size_t step = length ? length : 1;
        if (text[i] == '\n' || text[i] == '\t' || f8_text_is_plain(text + i, step)) {
            memmove(to, text + i, step);
            to += step;
        } else {
            *to++ = '?';
        }
        length = step;
    }
    *to = 0;
}

bool f8_text_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}
