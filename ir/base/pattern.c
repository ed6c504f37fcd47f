/* Name patterns: see pattern.h. */
#include "ir/base/pattern.h"

#include <string.h>

static bool match(const char *pattern, const char *end, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name) {
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (pattern < end && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*')
        pattern++;
    return pattern == end;
}

bool f8_pattern_match(const char *pattern, const char *name)
{
    return match(pattern, pattern + strlen(pattern), name);
}

bool f8_patterns_match(const char *patterns, const char *name)
{
    for (const char *at = patterns; at && *at;) {
        const char *end = at + strcspn(at, ",");
        if (match(at, end, name))
            return true;
        at = end + (*end == ',');
    }
    return false;
}

bool f8_patterns_name(const char *patterns, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = patterns; at && *at;) {
        const char *end = at + strcspn(at, ",");
        if ((size_t)(end - at) == n && !memcmp(at, name, n))
            return true;
        at = end + (*end == ',');
    }
    return false;
}
