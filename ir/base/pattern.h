/* Name patterns, as rules and options have them. */
#ifndef F8_PATTERN_H
#define F8_PATTERN_H

#include <stdbool.h>

/* Whether `name` matches `pattern`, where * stands for any run of characters and ? for one. */
bool f8_pattern_match(const char *pattern, const char *name);
/* Whether it matches one of several, with commas between them. NULL: there are none. */
bool f8_patterns_match(const char *patterns, const char *name);
/* Whether one of them is the name itself, so that it means no other. */
bool f8_patterns_name(const char *patterns, const char *name);

#endif
