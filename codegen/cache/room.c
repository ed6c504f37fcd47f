/* Keeps the kernel cache within its bound: see cache.h.
 *
 * A shard is listed before the first store of a process into it. It is listed again when the stores
 * since then may have brought it to its bound, or amount to a sixty-fourth of the bound. So each of
 * several processes that store at the same time exceeds the bound by no more than that, until the
 * next listing. Two processes may evict at the same time: both find the same files to be the
 * oldest, and a file that is already removed is no error. */
#include "codegen/cache/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    /* seconds after which the process that was writing a temporary file must have died */
    LEFT_OVER = 600,
    SINCE_PART = 64,
};

typedef struct file {
    char name[F8_CACHE_NAME + 1];
    int64_t bytes;
    struct timespec used;
} file;

typedef struct listing {
    const f8_allocator *allocator;
    file *file; /* entries */
    size_t n, room;
    int64_t bytes; /* also of temporary files */
} listing;

static bool is_entry(const char *name)
{
    size_t n = 0;
    while (name[n] && strchr("0123456789abcdef", name[n]))
        n++;
    return n == F8_CACHE_NAME && !name[n];
}

static bool is_temporary(const char *name)
{
    const size_t n = strlen(name);
    return n > F8_CACHE_NAME + 4 && name[F8_CACHE_NAME] == '.' && !strcmp(name + n - 4, ".tmp");
}

static void *grow(listing *l)
{
    const size_t room = l->room ? 2 * l->room : 64;
    file *grown = l->allocator->alloc(l->allocator->user, room * sizeof *grown, 16);
    if (!grown)
        return NULL;
    if (l->n)
        memcpy(grown, l->file, l->n * sizeof *grown);
    if (l->file)
        l->allocator->free(l->allocator->user, l->file, l->room * sizeof *grown);
    l->file = grown;
    l->room = room;
    return grown;
}

static void end_listing(listing *l)
{
    if (l->file)
        l->allocator->free(l->allocator->user, l->file, l->room * sizeof *l->file);
}

/* Adds an entry to the listing, or removes a temporary file that a killed process left. */
static void note(listing *l, int folder, const char *name, time_t now, bool sweep)
{
    struct stat s;
    const bool temporary = is_temporary(name);
    if (!temporary && !is_entry(name))
        return;
    if (fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) || S_ISDIR(s.st_mode))
        return;
    if (temporary && sweep && now > s.st_mtim.tv_sec + LEFT_OVER && !unlinkat(folder, name, 0))
        return;
    l->bytes += s.st_size;
    if (temporary || (l->n == l->room && !grow(l)))
        return;
    file *f = &l->file[l->n++];
    *f = (file){.bytes = s.st_size, .used = s.st_mtim};
    memcpy(f->name, name, F8_CACHE_NAME);
}

/* Lists a shard. Returns the descriptor of its folder, or -1. */
static int list(const f8_cache *c, int shard, bool sweep, listing *l)
{
    const char name[2] = {"0123456789abcdef"[shard], 0};
    const int fd = openat(c->folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *l = (listing){.allocator = &c->allocator};
    if (fd < 0)
        return -1;
    const int copy = dup(fd); /* closedir closes this one */
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d) {
        if (copy >= 0)
            close(copy);
        close(fd);
        return -1;
    }
    const time_t now = time(NULL);
    for (const struct dirent *e; (e = readdir(d));)
        note(l, fd, e->d_name, now, sweep);
    closedir(d);
    return fd;
}

static int by_use(const void *a, const void *b)
{
    const file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Removes entries until `bytes` more fit and an eighth of the bound is free, so that few stores
 * need a new listing. */
static void evict(const f8_cache *c, int folder, listing *l, int64_t bytes)
{
    const int64_t most =
        c->most - bytes < c->most - c->most / 8 ? c->most - bytes : c->most - c->most / 8;
    if (l->n)
        qsort(l->file, l->n, sizeof *l->file, by_use);
    for (size_t i = 0; i < l->n && l->bytes > most; i++)
        if (!unlinkat(folder, l->file[i].name, 0) || errno == ENOENT)
            l->bytes -= l->file[i].bytes;
}

/* The caller holds the lock. */
static void look(f8_cache *c, int shard, int64_t bytes)
{
    listing l;
    const int folder = list(c, shard, true, &l);
    if (folder >= 0 && l.bytes + bytes > c->most)
        evict(c, folder, &l, bytes);
    if (folder >= 0)
        close(folder);
    c->shard[shard] = (f8_cache_shard){.known = true, .bytes = l.bytes};
    end_listing(&l);
}

bool f8_cache_make_room(f8_cache *c, int shard, int64_t bytes)
{
    f8_cache_shard *s = &c->shard[shard];
    if (bytes > c->most)
        return false;
    pthread_mutex_lock(&c->lock);
    if (!s->known || s->bytes + bytes > c->most || s->since > c->most / SINCE_PART)
        look(c, shard, bytes);
    const bool fits = s->bytes + bytes <= c->most;
    if (fits) {
        s->bytes += bytes;
        s->since += bytes;
    }
    pthread_mutex_unlock(&c->lock);
    return fits;
}

void f8_cache_measure(f8_cache *c, int64_t *bytes, int64_t *entries)
{
    *bytes = *entries = 0;
    for (int i = 0; i < F8_CACHE_SHARDS && c->folder >= 0; i++) {
        listing l;
        const int folder = list(c, i, false, &l);
        if (folder >= 0)
            close(folder);
        *bytes += l.bytes;
        *entries += (int64_t)l.n;
        end_listing(&l);
    }
}
