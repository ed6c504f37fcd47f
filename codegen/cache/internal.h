/* What the files of the kernel cache share: cache.c opens the folder, entry.c reads and writes
 * entries, room.c keeps the folder within its bound, claim.c has the locks.
 *
 * In the folder of the cache:
 *     kernels/0 ... kernels/f          entries, by the first digit of their hash
 *     kernels/0/NAME                   an entry; its name is the other 31 digits
 *     kernels/0/NAME.HOST-PID-N.tmp    an entry that is being written
 *     kernels/locks                    empty; one byte of it is locked for each key being made */
#ifndef F8_CODEGEN_CACHE_INTERNAL_H
#define F8_CODEGEN_CACHE_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "codegen/cache/cache.h"

enum {
    F8_CACHE_VERSION = 1, /* version of the layout of an entry */
    F8_CACHE_SHARDS = 16,
    F8_CACHE_NAME = 31, /* characters of an entry's name */
    F8_CACHE_NAME_ROOM = 160,
};

/* A larger file is not an entry. */
#define F8_CACHE_MOST_ENTRY ((int64_t)256 << 20)

/* The start of an entry; the key follows, then the value. Little-endian. */
typedef struct f8_cache_header {
    char magic[8]; /* "fp8c\r\n\x1a\0": a tool that changes line ends breaks it */
    uint32_t version, zero;
    uint64_t key_size, value_size;
    uint64_t sum[2]; /* XXH3-128 of all the other bytes in order */
} f8_cache_header;
_Static_assert(sizeof(f8_cache_header) == 48, "no padding");

/* One sixteenth of the cache. Names are hashes, so the entries spread evenly. Each shard is kept
 * within its sixteenth of the bound, independently of the others. */
typedef struct f8_cache_shard {
    bool known;
    int64_t bytes; /* bytes at the last listing, and those stored by this object since */
    int64_t since; /* the part stored since the last listing */
} f8_cache_shard;

struct f8_cache {
    f8_allocator allocator;
    f8_log log;
    f8_temporaries *temporaries; /* may be NULL */
    int folder;   /* descriptor of `kernels` */
    int64_t most; /* the bound of a shard, bytes */
    bool read_only, locks;
    atomic_bool said; /* a failed store has been logged */
    atomic_int_least64_t hits, misses, stored;
    pthread_mutex_t lock; /* guards `shard` */
    f8_cache_shard shard[F8_CACHE_SHARDS];
    char host[64]; /* part of the names of temporary files */
    size_t size;   /* bytes of this object */
    char path[];   /* the folder of the cache */
};

/* room.c: makes room for `bytes` in a shard and counts them as stored. False: there can be no
 * room. */
bool f8_cache_make_room(f8_cache *c, int shard, int64_t bytes);
/* The bytes and the number of entries of all shards. */
void f8_cache_measure(f8_cache *c, int64_t *bytes, int64_t *entries);

#endif
