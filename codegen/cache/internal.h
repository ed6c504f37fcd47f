/* The parts of the kernel cache: cache.c opens the folder, cache_entry.c reads and writes entries,
 * cache_room.c keeps the folder within its bound, cache_claim.c is the locks. Internal to them.
 *
 * In the cache's folder:
 *     kernels/0 ... kernels/f          entries, by the first digit of their hash
 *     kernels/0/NAME                   one; its name is the other 31
 *     kernels/0/NAME.HOST-PID-N.tmp    one being written
 *     kernels/locks                    empty; a byte of it is locked for each key being made */
#ifndef F8_CODEGEN_CACHE_INTERNAL_H
#define F8_CODEGEN_CACHE_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "codegen/cache/cache.h"

enum {
    F8_CACHE_VERSION = 1, /* of an entry's layout */
    F8_CACHE_SHARDS = 16,
    F8_CACHE_NAME = 31, /* characters of an entry's name */
    F8_CACHE_NAME_ROOM = 160,
};

/* A file of more bytes is no entry. */
#define F8_CACHE_MOST_ENTRY ((int64_t)256 << 20)

/* What an entry begins with; behind it the key, then the value. Little-endian. */
typedef struct f8_cache_header {
    char magic[8]; /* "fp8c\r\n\x1a\0": what text tools do to line ends shows */
    uint32_t version, zero;
    uint64_t key_size, value_size;
    uint64_t sum[2]; /* XXH3-128 of all the other bytes in order */
} f8_cache_header;
_Static_assert(sizeof(f8_cache_header) == 48, "no padding");

/* A sixteenth of the cache, which its names, being hashes, fill evenly: so each is kept within its
 * part of the bound, and nobody need know what is in the others. */
typedef struct f8_cache_shard {
    bool known;
    int64_t bytes; /* what was there at the last look, and what this object has stored since */
    int64_t since; /* of these, the latter */
} f8_cache_shard;

struct f8_cache {
    f8_allocator allocator;
    f8_log log;
    int folder;   /* of `kernels` */
    int64_t most; /* bytes of a shard */
    bool read_only, locks;
    atomic_bool said; /* that a store failed */
    atomic_int_least64_t hits, misses, stored;
    pthread_mutex_t lock; /* of shard */
    f8_cache_shard shard[F8_CACHE_SHARDS];
    char host[64]; /* in names of files being written */
    size_t size;   /* of this object */
    char path[];   /* of the cache's folder */
};

/* cache_room.c: make room for `bytes` in a shard, or say that there can't be. Notes them stored. */
bool f8_cache_make_room(f8_cache *c, int shard, int64_t bytes);
/* Bytes and entries of all shards. */
void f8_cache_measure(f8_cache *c, int64_t *bytes, int64_t *entries);

#endif
