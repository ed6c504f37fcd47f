/* The kernel cache: a folder of what compilers made, found again by all that they made it from.
 *
 *     f8_cache *cache;
 *     if (f8_cache_open(&options, &cache, diag) != F8_OK) ... go on without one ...
 *     const f8_cache_key key = f8_cache_key_of(text, size);    // all that decides the value
 *     if (!f8_cache_get(cache, &key, arena, &value)) {
 *         ... make it ...
 *         f8_cache_put(cache, &key, bytes, size);
 *     }
 *     f8_cache_close(cache);
 *
 * An entry is a file named by its key's hash that holds the whole key, the value and a checksum of
 * both. A reader checks all of it: what is cut, damaged, of another version or another key's is not
 * there, and the next store replaces it. Files are written beside and renamed, so a reader sees
 * whole ones; there is no index, and no lock that correctness needs. codegen/README.md says what
 * follows for network file systems.
 *
 * Failures after opening are nobody's but the cache's: a get that fails is a miss, a put that fails
 * is said once in the log. One cache serves any number of threads, a folder any number of
 * processes. */
#ifndef F8_CODEGEN_CACHE_H
#define F8_CODEGEN_CACHE_H

#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/status.h"

#define F8_CACHE_MOST_BYTES ((int64_t)1 << 30)

typedef struct f8_cache f8_cache;

typedef struct f8_cache_options {
    const char *folder; /* made with its parents, for the user alone, where it is missing; copied */
    int64_t most_bytes; /* of all entries; 0: F8_CACHE_MOST_BYTES */
    const f8_allocator *allocator; /* NULL: the default; copied */
    const f8_log *log;             /* may be NULL; borrowed */
} f8_cache_options;

/* F8_ERR_IO, with why the folder is of no use: it can't be made or read, is another user's, or can
 * be written by everyone. F8_ERR_MEMORY. One that can't be written is read alone. */
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
    const uint8_t *bytes; /* in the arena given, 16-byte aligned; NULL: none was found */
    size_t size;
} f8_cache_value;

/* Find a value; false, and counted as a miss, where there is none. A cache of NULL has nothing. */
bool f8_cache_get(f8_cache *cache, const f8_cache_key *key, f8_arena *arena, f8_cache_value *out);
/* Look again for what was just a miss, which it stays unless it is there now. */
bool f8_cache_look_again(f8_cache *cache, const f8_cache_key *key, f8_arena *arena,
                         f8_cache_value *out);
/* Keep a value, in place of what has its name. What was used longest ago goes to make room; one for
 * which there is no room in an empty cache is not kept. Without fsync: what a crash of the machine
 * leaves half written fails its checksum, and a compile does not wait for the disk. */
void f8_cache_put(f8_cache *cache, const f8_cache_key *key, const void *value, size_t size);

/* ---- claims: so that processes at the same thing share the work ---- */

/* The right to make the value of a key, among all threads and processes that use the folder. It
 * ends with f8_cache_release, or with the process. */
typedef struct f8_cache_claim {
    int fd; /* -1: nothing is held */
    int64_t at;
} f8_cache_claim;

/* False: somebody else is making it. True where locks can't be had, too: then more than one may be
 * at it, which costs time alone. Never waits. */
bool f8_cache_claim_key(f8_cache *cache, const f8_cache_key *key, f8_cache_claim *out);
void f8_cache_release(f8_cache_claim *claim);

/* ---- what is known of it ---- */

typedef struct f8_cache_facts {
    const char *folder; /* absolute; the cache's */
    bool read_only;
    int64_t hits, misses, stored; /* through this object */
    int64_t bytes, entries;       /* in the folder: looked up now */
} f8_cache_facts;
void f8_cache_look(f8_cache *cache, f8_cache_facts *out);

#endif
