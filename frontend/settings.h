/* Settings of a context: its options, and the environment where an option was not given. Only this
 * code reads the environment. Internal to frontend/. */
#ifndef F8_SETTINGS_H
#define F8_SETTINGS_H

#include "frontend/fp8c.h"
#include "ir/base/log.h"
#include "runtime/cuda/device.h"

typedef struct f8_settings {
    f8_cuda_paths gpu;
    const char
        *cache; /* the kernel cache's folder; NULL: it is turned off, or no place for one is
                   known */
    const char *tuning;  /* the tuning database's file; NULL: likewise */
    const char *table; /* a file in the place of the table that fp8c ships; "": none; NULL: that */
    const char *dump;    /* the folder for dumps; NULL: no dumps */
    int64_t cache_bytes; /* 0: as the cache has it */
    f8_log_level verbose;
    const char *wrong; /* the value of FP8C_VERBOSE if it is not a level; else NULL */
} f8_settings;

/* The same before it is copied: each string in parts that belong to the caller and to the
 * environment. */
enum { F8_SETTINGS_STRINGS = 9, F8_SETTINGS_PARTS = 3 };
typedef struct f8_settings_source {
    const char *part[F8_SETTINGS_STRINGS]
                    [F8_SETTINGS_PARTS + 1]; /* NULL ends the parts; no part: there is no string */
    size_t bytes;                            /* of all strings, with the zeros that end them */
    int64_t cache_bytes;                     /* 0: as the cache has it */
    f8_log_level verbose;
    const char *wrong;
} f8_settings_source;

f8_settings_source f8_settings_read(const fp8c_context_options *options);
/* `room` has source->bytes bytes, and holds the strings from now on. */
f8_settings f8_settings_copy(const f8_settings_source *source, char *room);

#endif
