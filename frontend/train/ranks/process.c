/* Processes of this machine, and texts: see process.h. */
#include "frontend/train/ranks/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ir/base/format.h"

void f8_say(f8_said *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = f8_vformat(s->text + s->n, sizeof s->text - s->n, format, args);
    va_end(args);
    s->n = n < 0 ? s->n : s->n + (size_t)n < sizeof s->text ? s->n + (size_t)n : sizeof s->text - 1;
}

f8_life f8_life_of(int64_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return fd < 0 && errno == ENOENT ? F8_LIFE_GONE : F8_LIFE_UNKNOWN;
    text[n] = 0;
    const char *state = strrchr(text, ')'); /* the name before it may have any characters */
    if (!state || state[1] != ' ')
        return F8_LIFE_UNKNOWN;
    return strchr("Tt", state[2])    ? F8_LIFE_STOPPED
           : strchr("ZXx", state[2]) ? F8_LIFE_GONE
                                     : F8_LIFE_RUNS;
}

const char *f8_life_text(f8_life l)
{
    return l == F8_LIFE_STOPPED ? " is stopped (SIGSTOP)" : l == F8_LIFE_GONE ? " is gone" : "";
}

void f8_say_rank(f8_said *s, int rank, const char *host, int64_t pid)
{
    f8_say(s, "rank %d (host %s, process %" PRId64 ")", rank, host, pid);
}

void f8_wait_passed_on(void)
{
    static const struct timespec usual = {.tv_nsec = 200000000};
    nanosleep(&usual, NULL);
}

f8_status f8_start_thread(pthread_t *out, void *(*body)(void *), void *user, f8_diag *diag)
{
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    const int failed = pthread_create(out, NULL, body, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "can't start a thread: %s",
                            f8_errno_text(failed))
                  : F8_OK;
}
