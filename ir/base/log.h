/* What a call in progress says to the embedder, line by line: fp8c_context_options.log. */
#ifndef F8_LOG_H
#define F8_LOG_H

#include "ir/base/status.h"

typedef enum f8_log_level {
    F8_LOG_WARNING, /* all works, but not as was wished: a cache that can't be used */
    F8_LOG_INFO,    /* what a call did: kernels compiled and found, which tuning counts */
    F8_LOG_DEBUG    /* each pass, each kernel */
} f8_log_level;

typedef struct f8_log {
    void (*fn)(void *user, f8_log_level level,
               const char *text); /* one line; NULL: nobody listens */
    void *user;
    f8_log_level most; /* the highest level that is said */
} f8_log;

/* Whether a line of this level is heard. log may be NULL. */
bool f8_log_wants(const f8_log *log, f8_log_level level);
/* Say a line, cut at 1000 bytes; line ends in it become spaces. From any thread; log may be NULL.
 */
void f8_log_say(const f8_log *log, f8_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
