/* Lines about a call in progress, for the embedder: fp8c_context_options.log. */
#ifndef F8_LOG_H
#define F8_LOG_H

#include "ir/base/status.h"

typedef enum f8_log_level {
    F8_LOG_WARNING, /* the call succeeds, but not as asked: a cache can't be used */
    F8_LOG_INFO,    /* what a call did: kernels compiled and found, the tuning used */
    F8_LOG_DEBUG    /* each pass, each kernel */
} f8_log_level;

typedef struct f8_log {
    /* Called with one line; NULL if nobody listens. */
    void (*fn)(void *user, f8_log_level level, const char *text);
    void *user;
    f8_log_level most; /* the highest level that is passed on */
} f8_log;

/* Whether lines of this level are passed on. log may be NULL. */
bool f8_log_wants(const f8_log *log, f8_log_level level);
/* Pass a line on, cut at 1000 bytes; line ends in it become spaces. May be called from any thread;
 * log may be NULL. */
void f8_log_say(const f8_log *log, f8_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
