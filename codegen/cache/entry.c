/* Entries of the kernel cache: reading with every check, and writing. See cache.h. */
#include "codegen/cache/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ir/base/format.h"
#include "ir/base/owner.h"

static const char magic[8] = "fp8c\r\n\x1a";

enum { RECORD_AFTER = 3600 }; /* seconds after which the use of an entry is recorded again */

/* The name of an entry, "a/bcdef...", below the folder of entries. Returns its shard. */
static int name_entry(const f8_cache_key *key, char name[F8_CACHE_NAME + 3])
{
    char digits[33];
    f8_hash_text(key->hash, digits);
    snprintf(name, F8_CACHE_NAME + 3, "%c/%s", digits[0], digits + 1);
    return (int)(key->hash.hi >> 60);
}

static f8_hash checksum(const f8_cache_header *h, const void *key, const void *value)
{
    f8_hasher hasher;
    f8_hasher_begin(&hasher);
    f8_hasher_add(&hasher, h, offsetof(f8_cache_header, sum));
    f8_hasher_add(&hasher, key, h->key_size);
    f8_hasher_add(&hasher, value, h->value_size);
    return f8_hasher_end(&hasher);
}

/* ---- reading ---- */

/* Opens an entry: a file that nobody else may write, as others may add files to some folders. Links
 * are not followed, and a pipe is not waited for. */
static int open_entry(const f8_cache *c, const char *name, struct stat *s)
{
    const int fd =
        openat(c->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!fstat(fd, s) && f8_owner_file(s, "", name, NULL) == F8_OK &&
        s->st_size >= (off_t)sizeof(f8_cache_header) && s->st_size <= F8_CACHE_MOST_ENTRY)
        return fd;
    close(fd);
    return -1;
}

static bool read_all(int fd, uint8_t *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, to + done, n - done, (off_t)done);
        if (got == 0 || (got < 0 && errno != EINTR)) /* the file became shorter; or ESTALE, EIO */
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* Whether these bytes are a whole entry of this key. */
static bool verify(const uint8_t *bytes, size_t size, const f8_cache_key *key, f8_cache_header *h)
{
    memcpy(h, bytes, sizeof *h);
    const size_t rest = size - sizeof *h;
    if (memcmp(h->magic, magic, sizeof magic) || h->version != F8_CACHE_VERSION || h->zero ||
        h->key_size != key->size || h->key_size > rest || h->value_size != rest - h->key_size)
        return false;
    const uint8_t *text = bytes + sizeof *h, *value = text + h->key_size;
    const f8_hash sum = checksum(h, text, value);
    return sum.lo == h->sum[0] && sum.hi == h->sum[1] && !memcmp(text, key->text, key->size);
}

/* Records when the entry was last used, to the hour. Eviction goes by that. */
static void record_use(const f8_cache *c, int fd, const struct stat *s)
{
    struct timespec now;
    if (!c->read_only && !clock_gettime(CLOCK_REALTIME, &now) &&
        now.tv_sec > s->st_mtim.tv_sec + RECORD_AFTER)
        (void)futimens(fd, NULL); /* if this fails, the entry is evicted sooner */
}

/* Moves the value to the start of what was read, where it is aligned as the arena aligns. */
static bool read_entry(const f8_cache *c, int fd, const struct stat *s, const f8_cache_key *key,
                       f8_arena *arena, f8_cache_value *out)
{
    const size_t size = (size_t)s->st_size;
    f8_cache_header h;
    uint8_t *bytes = f8_arena_array(arena, size, 1);
    if (!bytes || !read_all(fd, bytes, size) || !verify(bytes, size, key, &h))
        return false;
    memmove(bytes, bytes + sizeof h + h.key_size, h.value_size);
    *out = (f8_cache_value){bytes, h.value_size};
    record_use(c, fd, s);
    return true;
}

static bool find(f8_cache *c, const f8_cache_key *key, f8_arena *arena, f8_cache_value *out)
{
    char name[F8_CACHE_NAME + 3];
    struct stat s;
    *out = (f8_cache_value){0};
    if (c->folder < 0)
        return false;
    name_entry(key, name);
    const int fd = open_entry(c, name, &s);
    if (fd < 0)
        return false;
    const bool found = read_entry(c, fd, &s, key, arena, out);
    close(fd);
    return found;
}

bool f8_cache_get(f8_cache *c, const f8_cache_key *key, f8_arena *arena, f8_cache_value *out)
{
    *out = (f8_cache_value){0};
    if (!c)
        return false;
    const bool found = find(c, key, arena, out);
    atomic_fetch_add(found ? &c->hits : &c->misses, 1);
    return found;
}

bool f8_cache_look_again(f8_cache *c, const f8_cache_key *key, f8_arena *arena, f8_cache_value *out)
{
    if (!find(c, key, arena, out))
        return false;
    atomic_fetch_add(&c->hits, 1);
    atomic_fetch_sub(&c->misses, 1);
    return true;
}

/* ---- writing ---- */

static int create(const f8_cache *c, const char *name, f8_temporary **mark)
{
    return f8_temporary_create(c->temporaries, c->folder, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC,
                               0600, mark);
}

/* Creates a temporary file with a name that nobody else uses: processes of several hosts may share
 * the folder, and a killed process with the same number may have left a file. */
static int create_temporary(const f8_cache *c, const char *entry, char name[F8_CACHE_NAME_ROOM],
                            f8_temporary **mark)
{
    enum { TRIES = 1000 };
    int fd = -1;
    for (int i = 0; fd < 0 && i < TRIES; i++) {
        snprintf(name, F8_CACHE_NAME_ROOM, "%s.%s-%ld-%d.tmp", entry, c->host, (long)getpid(), i);
        fd = create(c, name, mark);
        if (fd < 0 && errno == ENOENT && i == 0) { /* the shard may not exist yet */
            const char shard[2] = {entry[0], 0};
            if (mkdirat(c->folder, shard, 0700) && errno != EEXIST)
                return -1;
            fd = create(c, name, mark);
        }
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    return fd;
}

static bool write_all(int fd, const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t put = write(fd, (const char *)from + done, n - done);
        if (put < 0 && errno != EINTR)
            return false;
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* Writes the file of an entry and renames it. False: errno is set. */
static bool publish(const f8_cache *c, const char *name, const f8_cache_header *h,
                    const f8_cache_key *key, const void *value)
{
    char temporary[F8_CACHE_NAME_ROOM];
    f8_temporary *mark;
    const int fd = create_temporary(c, name, temporary, &mark);
    if (fd < 0)
        return false;
    bool done = write_all(fd, h, sizeof *h) && write_all(fd, key->text, key->size) &&
                write_all(fd, value, h->value_size);
    int error = errno;
    if (close(fd) && done) { /* a network file system reports a full disk here */
        done = false;
        error = errno;
    }
    if (done && renameat(c->folder, temporary, c->folder, name)) {
        done = false;
        error = errno;
    }
    if (!done)
        unlinkat(c->folder, temporary, 0);
    f8_temporary_end(mark);
    errno = error;
    return done;
}

void f8_cache_put(f8_cache *c, const f8_cache_key *key, const void *value, size_t size)
{
    char name[F8_CACHE_NAME + 3];
    f8_cache_header h = {.version = F8_CACHE_VERSION, .key_size = key->size, .value_size = size};
    const uint64_t bytes = sizeof h + (uint64_t)key->size + size;
    if (!c || c->read_only || c->folder < 0 || bytes > (uint64_t)F8_CACHE_MOST_ENTRY)
        return;
    if (!f8_cache_make_room(c, name_entry(key, name), (int64_t)bytes))
        return;
    memcpy(h.magic, magic, sizeof magic);
    const f8_hash sum = checksum(&h, key->text, value);
    h.sum[0] = sum.lo;
    h.sum[1] = sum.hi;
    if (publish(c, name, &h, key, value))
        atomic_fetch_add(&c->stored, 1);
    else if (errno != ECANCELED && !atomic_exchange(&c->said, true))
        f8_log_say(&c->log, F8_LOG_WARNING,
                   "the kernel cache '%s' can't be written; compiled kernels are not kept: %s",
                   c->path, f8_errno_text(errno));
}
