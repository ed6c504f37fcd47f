/* See common.h. */
#include "tests/emulator/common.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t f8_emu_setting(const char *name, int64_t otherwise)
{
    const char *s = getenv(name);
    return s && *s ? strtoll(s, NULL, 0) : otherwise;
}

static bool is_named(const char *function, const char *spec, size_t n)
{
    if (strncmp(function, spec, n) != 0)
        return false;
    const char *rest = function + n;
    return !*rest || (rest[0] == '_' && rest[1] == 'v' && !rest[3]);
}

bool f8_emu_fails(const char *function, int *code)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static char seen[128];
    static int64_t calls;
    const char *spec = getenv("FP8C_EMULATOR_FAIL");
    bool fails = false;
    pthread_mutex_lock(&mutex);
    if (!spec || strcmp(spec, seen) != 0) {
        snprintf(seen, sizeof seen, "%s", spec ? spec : "");
        calls = 0;
    }
    const size_t n = spec ? strcspn(spec, ":") : 0;
    if (n && is_named(function, spec, n)) {
        char *end = NULL;
        const int64_t given = spec[n] ? strtoll(spec + n + 1, &end, 10) : 1;
        fails = ++calls == (given ? given : 1); /* "name::code": the first */
        if (fails && end && *end == ':')
            *code = (int)strtol(end + 1, NULL, 10);
    }
    pthread_mutex_unlock(&mutex);
    return fails;
}

void f8_emu_note(const char *format, ...)
{
    const char *verbose = getenv("FP8C_EMULATOR_VERBOSE");
    if (!verbose || !*verbose)
        return;
    va_list args;
    va_start(args, format);
    fputs("emulator: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

uint64_t f8_emu_hash(uint64_t seed, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = (seed ^ 0xcbf29ce484222325u) + n;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; n; n--)
        h = (h ^ *p++) * 0x100000001b3u;
    return h ^ h >> 32;
}
