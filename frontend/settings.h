/* What a context is set to: its options, and in place of those that were not given the environment,
 * which is read here and nowhere else. Internal to frontend/. */
#ifndef F8_SETTINGS_H
#define F8_SETTINGS_H

#include "frontend/fp8c.h"
#include "ir/base/log.h"
#include "runtime/cuda/device.h"

typedef struct f8_settings {
    f8_cuda_paths gpu;
    const char
        *cache; /* the kernel cache's folder; NULL: none is wanted, or no place for one is known */
    const char *tuning;  /* the tuning database's file; NULL: none, likewise */
    const char *dump;    /* the folder for dumps; NULL: none */
    int64_t cache_bytes; /* 0: as the cache has it */
    f8_log_level verbose;
    const char *wrong; /* what FP8C_VERBOSE says when it is no level; else NULL */
} f8_settings;

/* The same as read, each string in parts that are the caller's and the environment's. */
enum { F8_SETTINGS_STRINGS = 8, F8_SETTINGS_PARTS = 3 };
typedef struct f8_settings_source {
    const char *part[F8_SETTINGS_STRINGS]
                    [F8_SETTINGS_PARTS + 1]; /* NULL ends; the first one: there is none */
    size_t bytes;                            /* of all strings, their ends included */
    int64_t cache_bytes;                     /* 0: as the cache has it */
    f8_log_level verbose;
    const char *wrong;
} f8_settings_source;

f8_settings_source f8_settings_read(const fp8c_context_options *options);
/* `room`: source->bytes, where the strings are from now on. */
f8_settings f8_settings_copy(const f8_settings_source *source, char *room);

#endif
