/* Names of tensors under a map FROM=TO: see weights.h. */
#include "frontend/checkpoint/weights.h"

#include <string.h>

typedef struct span {
    const char *text;
    size_t n;
} span;

/* Where the n bytes at `part` first occur in `text`; NULL: nowhere. */
static const char *find_part(const char *text, const char *part, size_t n)
{
    for (; strlen(text) >= n; text++)
        if (!strncmp(text, part, n))
            return text;
    return NULL;
}

/* What each star of the pattern stands for. A star's text ends where what follows the star first
 * occurs; after the last star it is the end of the name that counts. So no choice is ever taken
 * back. */
static bool match_stars(const char *pattern, const char *name, span *star)
{
    size_t n = strcspn(pattern, "*");
    if (strncmp(pattern, name, n))
        return false;
    name += n;
    pattern += n;
    if (!*pattern)
        return !*name;
    for (;; star++) {
        pattern++;
        n = strcspn(pattern, "*");
        const bool last = !pattern[n];
        if (last && strlen(name) < n)
            return false;
        const char *end = last ? name + strlen(name) - n : find_part(name, pattern, n);
        if (!end || strncmp(end, pattern, n))
            return false;
        *star = (span){name, (size_t)(end - name)};
        if (last)
            return true;
        name = end + n;
        pattern += n;
    }
}

size_t f8_weights_stars(const char *pattern)
{
    size_t n = 0;
    for (; *pattern; pattern++)
        n += *pattern == '*';
    return n;
}

bool f8_weights_map(const char *from, const char *to, const char *name, f8_arena *memory,
                    const char **name_out)
{
    const size_t n = f8_weights_stars(from);
    span *star = F8_NEW_ARRAY(memory, span, n + 1);
    if (!star) {
        *name_out = NULL;
        return true;
    }
    if (!match_stars(from, name, star))
        return false;
    size_t room = strlen(to) + 1;
    for (size_t i = 0; i < n; i++)
        room += star[i].n;
    char *out = F8_NEW_ARRAY(memory, char, room);
    *name_out = out;
    for (int i = 0; out && *to; to++)
        if (*to == '*') {
            memcpy(out, star[i].text, star[i].n);
            out += star[i++].n;
        } else {
            *out++ = *to;
        }
    return true;
}
