/* See owner.h. */
#include "ir/base/owner.h"

#include <errno.h>
#include <unistd.h>

#include "ir/base/format.h"

static f8_status check_user(const struct stat *s, const char *what, const char *path, f8_diag *diag)
{
    return s->st_uid == geteuid()
               ? F8_OK
               : f8_fail(diag, F8_ERR_IO, F8_NOWHERE,
                         "%s '%s' belongs to user %lu, and this is user %lu", what, path,
                         (unsigned long)s->st_uid, (unsigned long)geteuid());
}

f8_status f8_owner_folder(int fd, const char *what, const char *path, f8_diag *diag)
{
    struct stat s;
    if (fstat(fd, &s))
        return f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "%s '%s' can't be looked at: %s", what, path,
                       f8_errno_text(errno));
    F8_TRY(check_user(&s, what, path, diag));
    if (s.st_mode & S_IWOTH && !(s.st_mode & S_ISVTX))
        return f8_fail(diag, F8_ERR_IO, F8_NOWHERE,
                       "%s '%s' can be written by everyone (mode %03o)", what, path,
                       (unsigned)s.st_mode & 0777);
    return F8_OK;
}

f8_status f8_owner_file(const struct stat *s, const char *what, const char *path, f8_diag *diag)
{
    if (!S_ISREG(s->st_mode))
        return f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "%s '%s' is no regular file", what, path);
    F8_TRY(check_user(s, what, path, diag));
    if (s->st_mode & (S_IWGRP | S_IWOTH))
        return f8_fail(diag, F8_ERR_IO, F8_NOWHERE,
                       "%s '%s' can be written by others (mode %03o): chmod go-w", what, path,
                       (unsigned)s->st_mode & 0777);
    return F8_OK;
}
