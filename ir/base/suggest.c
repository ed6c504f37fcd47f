/* What somebody may have meant: see suggest.h. */
#include "ir/base/suggest.h"

#include <stdio.h>
#include <string.h>

enum { SUGGEST_LENGTH = 40, MOST_CANDIDATES = 1000 };

/* The number of edits between two short names. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[SUGGEST_LENGTH + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            size_t other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < other ? replace : other;
        }
    }
    return row[m];
}

static size_t most_edits(size_t length)
{
    return length < 8 ? (length + 1) / 3 : 3;
}

const char *f8_suggest(const char *name, size_t length, f8_suggestion candidate, const void *user,
                       size_t n, const char *prefix, char *buf, size_t size)
{
    return f8_suggest_within(name, length, most_edits(length), candidate, user, n, prefix, buf,
                             size);
}

const char *f8_suggest_within(const char *name, size_t length, size_t most, f8_suggestion candidate,
                              const void *user, size_t n, const char *prefix, char *buf,
                              size_t size)
{
    size_t best = most + 1; /* only candidates with fewer edits */
    const char *found = NULL;
    if (n > MOST_CANDIDATES)
        n = MOST_CANDIDATES;
    for (size_t i = 0; i < n && length <= SUGGEST_LENGTH; i++) {
        const char *c = candidate(user, i);
        size_t m = c ? strlen(c) : 0;
        if (m == 0 || m > SUGGEST_LENGTH)
            continue;
        size_t edits = distance(name, length, c, m);
        if (edits < best) {
            best = edits;
            found = c;
        }
    }
    buf[0] = 0;
    if (found)
        snprintf(buf, size, " (did you mean '%s%s'?)", prefix, found);
    return buf;
}

const char *f8_suggest_listed(const char *name, size_t length, const char *list, char *buf,
                              size_t size)
{
    size_t best = most_edits(length) + 1;
    buf[0] = 0;
    for (const char *at = list; *at && length <= SUGGEST_LENGTH;) {
        const size_t m = strcspn(at, ",");
        const size_t edits = m <= SUGGEST_LENGTH ? distance(name, length, at, m) : best;
        if (edits < best) {
            best = edits;
            snprintf(buf, size, " (did you mean '%.*s'?)", (int)m, at);
        }
        at += m;
        at += strspn(at, ", ");
    }
    return buf;
}
