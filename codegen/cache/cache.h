/* The kernel cache: a folder of compiled kernels. An entry is found by all that decides its value.
 *
 *     f8_cache *cache;
 *     if (f8_cache_open(&options, &cache, diag) != F8_OK) ... go on without a cache ...
 *     const f8_cache_key key = f8_cache_key_of(text, size);    // all that decides the value
 *     if (!f8_cache_get(cache, &key, arena, &value)) {
 *         ... make it ...
 *         f8_cache_put(cache, &key, bytes, size);
 *     }
 *     f8_cache_close(cache);
 *
 * An entry is a file, named by the hash of its key. It holds the whole key, the value, and a
 * checksum of both, and a reader checks all of it. A file that is cut or damaged, or that has
 * another version or another key, counts as missing, and the next store replaces it. A file is
 * written under a temporary name and then renamed, so a reader sees whole files only. There is no
 * index, and correctness needs no lock. codegen/cache/README.md says what follows for network file
 * systems.
 *
 * After opening, no failure of the cache is a failure of the caller: a get that fails is a miss,
 * and a put that fails is logged once. Any number of threads may use one cache, and any number of
 * processes may use one folder. */
#ifndef F8_CODEGEN_CACHE_H
#define F8_CODEGEN_CACHE_H

#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/status.h"
#include "ir/base/temporary.h"

#define F8_CACHE_MOST_BYTES ((int64_t)1 << 30)

typedef struct f8_cache f8_cache;

typedef struct f8_cache_options {
    const char *folder; /* made with its parents, for the user alone, if missing; copied */
    int64_t most_bytes; /* of all entries; 0: F8_CACHE_MOST_BYTES */
    const f8_allocator *allocator; /* NULL: the default; copied */
    const f8_log *log;             /* may be NULL; borrowed */
    f8_temporaries *temporaries;   /* may be NULL; borrowed */
} f8_cache_options;

/* F8_ERR_IO: the folder cannot be made or read, belongs to another user, or can be written by
 * everyone; the message says which. F8_ERR_MEMORY. A folder that cannot be written is only read. */
f8_status f8_cache_open(const f8_cache_options *options, f8_cache **out, f8_diag *why);
void f8_cache_close(f8_cache *cache); /* NULL is fine */

/* ---- entries ---- */

typedef struct f8_cache_key {
    f8_hash hash;
    const char *text; /* borrowed */
    size_t size;      /* at least 1 */
} f8_cache_key;
f8_cache_key f8_cache_key_of(const char *text, size_t size);

typedef struct f8_cache_value {
    const uint8_t *bytes; /* in the arena given, 16-byte aligned; NULL: not found */
    size_t size;
} f8_cache_value;

/* Finds a value. False if there is none, which counts as a miss. A NULL cache has no values. */
bool f8_cache_get(f8_cache *cache, const f8_cache_key *key, f8_arena *arena, f8_cache_value *out);
/* Looks a second time for a key that was just a miss. If it is there now, the miss becomes a
 * hit. */
bool f8_cache_look_again(f8_cache *cache, const f8_cache_key *key, f8_arena *arena,
                         f8_cache_value *out);
/* Stores a value, replacing the file of that name. Entries that were used longest ago are removed
 * to make room; a value that an empty cache has no room for is not stored. There is no fsync, so a
 * compile does not wait for the disk; a file that a crash of the machine left incomplete fails its
 * checksum. */
void f8_cache_put(f8_cache *cache, const f8_cache_key *key, const void *value, size_t size);

/* ---- claims: processes that make the same values share the work ---- */

/* The right to make the value of a key, among all threads and processes that use the folder. It
 * ends with f8_cache_release or with the process. */
typedef struct f8_cache_claim {
    int fd; /* -1: no lock is held */
    int64_t at;
} f8_cache_claim;

/* False: another thread or process is making the value. True also if locks are not available; two
 * may then make the same value, which only costs time. Never waits. */
bool f8_cache_claim_key(f8_cache *cache, const f8_cache_key *key, f8_cache_claim *out);
void f8_cache_release(f8_cache_claim *claim);

/* ---- facts ---- */

typedef struct f8_cache_facts {
    const char *folder; /* absolute; owned by the cache */
    bool read_only;
    int64_t hits, misses, stored; /* counted by this object */
    int64_t bytes, entries;       /* in the folder, counted by this call */
} f8_cache_facts;
void f8_cache_look(f8_cache *cache, f8_cache_facts *out);

#endif
