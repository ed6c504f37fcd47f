/* Lines for the embedder: see log.h. */
#include "ir/base/log.h"

#include "ir/base/format.h"

bool f8_log_wants(const f8_log *log, f8_log_level level)
{
    return log && log->fn && level <= log->most;
}

void f8_log_say(const f8_log *log, f8_log_level level, const char *fmt, ...)
{
    if (!f8_log_wants(log, level))
        return;
    char line[1001];
    va_list args;
    va_start(args, fmt);
    f8_vformat(line, sizeof line, fmt, args);
    va_end(args);
    for (char *p = line; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    log->fn(log->user, level, line);
}
