/* What somebody may have meant: for messages about a name that is not known. */
#ifndef F8_SUGGEST_H
#define F8_SUGGEST_H

#include <stddef.h>

/* Candidate i of n; NULL: it is not to be suggested. */
typedef const char *(*f8_suggestion)(const void *user, size_t i);

/* Writes " (did you mean 'PREFIXx'?)" with the candidate closest to `name`, or "", into buf, and
 * returns it. Close is a candidate that few edits (insert, remove, replace) make of the name: one of
 * three letters, two of six, at most three. Names of more than 40 bytes are close to none. */
const char *f8_suggest(const char *name, size_t length, f8_suggestion candidate, const void *user,
                       size_t n, const char *prefix, char *buf, size_t size);
/* The same with a candidate of at most so many edits. */
const char *f8_suggest_within(const char *name, size_t length, size_t most, f8_suggestion candidate,
                              const void *user, size_t n, const char *prefix, char *buf,
                              size_t size);
/* The same with candidates that stand in a text with ", " between them. */
const char *f8_suggest_listed(const char *name, size_t length, const char *list, char *buf,
                              size_t size);

#endif
