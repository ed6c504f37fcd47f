/* Claims of the kernel cache: see cache.h.
 *
 * A claim is a write lock on one byte of one empty file. The hash of the key gives the position of
 * the byte. So there is nothing to clean up, keys do not wait for one another, and the system ends
 * the claim of a process that is killed. The lock belongs to the open file and not to the process
 * (ir/base/lock.h), so threads exclude one another, too. */
#include "codegen/cache/internal.h"

#include <fcntl.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/base/lock.h"

static int open_locks(const f8_cache *c)
{
    const int fd = openat(c->folder, "locks",
                          O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    struct stat s;
    if (fd < 0 || (!fstat(fd, &s) && S_ISREG(s.st_mode)))
        return fd;
    close(fd);
    return -1;
}

bool f8_cache_claim_key(f8_cache *c, const f8_cache_key *key, f8_cache_claim *out)
{
    *out = (f8_cache_claim){-1, (int64_t)(key->hash.lo >> 2)}; /* below the largest off_t */
    const int fd = c && c->locks ? open_locks(c) : -1;
    if (fd < 0)
        return true;
    if (f8_lock_byte(fd, out->at)) {
        out->fd = fd;
        return true;
    }
    const bool taken = errno == EAGAIN || errno == EACCES;
    close(fd);
    return !taken;
}

void f8_cache_release(f8_cache_claim *claim)
{
    if (claim->fd < 0)
        return;
    f8_unlock_byte(claim->fd, claim->at);
    close(claim->fd);
    claim->fd = -1;
}
