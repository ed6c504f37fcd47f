/* Opening and closing the folder of the cache: see cache.h. */
#include "codegen/cache/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ir/base/format.h"
#include "ir/base/owner.h"

f8_cache_key f8_cache_key_of(const char *text, size_t size)
{
    return (f8_cache_key){f8_hash_bytes(text, size), text, size};
}

/* ---- the folder ---- */

/* Makes the folder and its missing parents, for this user alone, as the XDG base directory
 * specification asks. `real` becomes its absolute path. Returns 0 or an errno. */
static int make_folders(const char *path, char real[PATH_MAX])
{
    char part[PATH_MAX];
    int error = 0; /* the first error; it is ignored if the folder exists */
    const size_t n = strlen(path);
    if (n >= sizeof part)
        return ENAMETOOLONG;
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] && part[i] != '/')
            continue;
        part[i] = 0;
        if (mkdir(part, 0700) && errno != EEXIST && !error)
            error = errno;
        part[i] = path[i];
    }
    if (realpath(path, real))
        return 0;
    return error ? error : errno;
}

static f8_status fail(f8_diag *why, const char *folder, const char *what, int error)
{
    return f8_fail(why, F8_ERR_IO, F8_NOWHERE, "the kernel cache's folder '%s' %s: %s", folder,
                   what, f8_errno_text(error));
}

/* Code is read from the folder. */
static f8_status check_owner(const char *folder, int fd, f8_diag *why)
{
    return f8_owner_folder(fd, "the kernel cache's folder", folder, why);
}

/* Opens the folder of entries. If it cannot be made there is nothing to read, and c->folder stays
 * -1. */
static f8_status open_entries(f8_cache *c, int fd, f8_diag *why)
{
    c->read_only = faccessat(fd, ".", W_OK, AT_EACCESS) != 0;
    if (!c->read_only && mkdirat(fd, "kernels", 0700) && errno != EEXIST) {
        if (errno != EROFS && errno != ENOSPC && errno != EDQUOT)
            return fail(why, c->path, "can't be written", errno);
        c->read_only = true;
    }
    c->folder = openat(fd, "kernels", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (c->folder < 0)
        return c->read_only && errno == ENOENT ? F8_OK : fail(why, c->path, "can't be read", errno);
    F8_TRY(check_owner(c->path, c->folder, why));
    if (faccessat(c->folder, ".", W_OK, AT_EACCESS))
        c->read_only = true;
    return F8_OK;
}

/* Whether locks are used. Over a network a lock may hang if the lock service of the server does,
 * and locks only save time; so none are used there. */
static bool has_locks(int fd)
{
    struct statfs s;
    if (fstatfs(fd, &s))
        return false;
    switch ((unsigned long)s.f_type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case 0xff534d42: /* CIFS, of kernels before its name was in linux/magic.h */
    case 0xfe534d42: /* SMB2 */
    case AFS_SUPER_MAGIC:
    case CODA_SUPER_MAGIC:
    case NCP_SUPER_MAGIC:
    case V9FS_MAGIC:
    case 0x00c36400: /* Ceph */
    case 0x0bd00bd0: /* Lustre */
    case 0x65735546: /* FUSE: sshfs and its kind */ return false;
    default: return true;
    }
}

static f8_status open_folder(f8_cache *c, f8_diag *why)
{
    const int fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(why, c->path, "can't be read", errno);
    f8_status s = check_owner(c->path, fd, why);
    if (s == F8_OK)
        s = open_entries(c, fd, why);
    close(fd);
    if (s == F8_OK && c->folder >= 0)
        c->locks = !c->read_only && has_locks(c->folder);
    return s;
}

/* ---- life ---- */

static void name_host(f8_cache *c)
{
    if (gethostname(c->host, sizeof c->host))
        c->host[0] = 0;
    c->host[sizeof c->host - 1] = 0;
    for (char *s = c->host; *s; s++) /* it becomes part of a file name */
        if (*s == '/' || *s <= ' ')
            *s = '_';
}

f8_status f8_cache_open(const f8_cache_options *o, f8_cache **out, f8_diag *why)
{
    *out = NULL;
    const f8_allocator a = o->allocator ? *o->allocator : f8_default_allocator();
    char path[PATH_MAX];
    const int error = make_folders(o->folder, path);
    if (error)
        return fail(why, o->folder, "can't be made", error);
    const size_t size = sizeof(f8_cache) + strlen(path) + 1;
    f8_cache *c = a.alloc(a.user, size, 64);
    if (!c)
        return f8_fail(why, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       size);
    *c = (f8_cache){.allocator = a, .temporaries = o->temporaries, .folder = -1, .size = size};
    if (o->log)
        c->log = *o->log;
    c->most = (o->most_bytes > 0 ? o->most_bytes : F8_CACHE_MOST_BYTES) / F8_CACHE_SHARDS;
    memcpy(c->path, path, strlen(path) + 1);
    name_host(c);
    if (pthread_mutex_init(&c->lock, NULL)) {
        a.free(a.user, c, size);
        return f8_fail(why, F8_ERR_IO, F8_NOWHERE, "can't make a mutex");
    }
    const f8_status s = open_folder(c, why);
    if (s != F8_OK)
        f8_cache_close(c);
    else
        *out = c;
    return s;
}

void f8_cache_close(f8_cache *c)
{
    if (!c)
        return;
    if (c->folder >= 0)
        close(c->folder);
    pthread_mutex_destroy(&c->lock);
    const f8_allocator a = c->allocator;
    a.free(a.user, c, c->size);
}

void f8_cache_look(f8_cache *c, f8_cache_facts *out)
{
    *out = (f8_cache_facts){.folder = c->path,
                            .read_only = c->read_only,
                            .hits = atomic_load(&c->hits),
                            .misses = atomic_load(&c->misses),
                            .stored = atomic_load(&c->stored)};
    f8_cache_measure(c, &out->bytes, &out->entries);
}
