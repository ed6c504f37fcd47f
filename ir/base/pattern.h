/* Name patterns, as rules and options have them. */
#ifndef F8_PATTERN_H
#define F8_PATTERN_H

#include <stdbool.h>

/* Whether `name` matches `pattern`, where * stands for any run of characters and ? for one. */
bool f8_pattern_match(const char *pattern, const char *name);

#endif
