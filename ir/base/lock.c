/* Locks: see lock.h. */
#include "ir/base/lock.h"

#include <fcntl.h>

static bool set_lock(int fd, short type, int64_t at)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

bool f8_lock_is_held(int fd, int64_t at)
{
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &range) || range.l_type != F_UNLCK;
}

bool f8_lock_byte(int fd, int64_t at)
{
    return set_lock(fd, F_WRLCK, at);
}

void f8_unlock_byte(int fd, int64_t at)
{
    (void)set_lock(fd, F_UNLCK, at);
}
