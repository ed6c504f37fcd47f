/* Files: see file.h. */
#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/base/format.h"

enum { PART = 1 << 30, TRIES = 1000 };

f8_status f8_file_fail(f8_diag *diag, f8_status status, const char *path, const char *format, ...)
{
    if (!diag || diag->status != F8_OK)
        return status;
    va_list args;
    va_start(args, format);
    *diag = (f8_diag){.status = status, .file = path};
    f8_vformat(diag->text, sizeof diag->text, format, args);
    va_end(args);
    return status;
}

/* `error` is an errno. */
static f8_status fail(f8_diag *diag, const char *path, int error)
{
    if (error == ECANCELED)
        return f8_file_fail(diag, F8_ERR_CANCELLED, path,
                            "not written: the context's files were given up");
    return f8_file_fail(diag, F8_ERR_IO, path, "%s", f8_errno_text(error));
}

static f8_status check_regular(const struct stat *s, const char *path, f8_diag *diag)
{
    if (S_ISREG(s->st_mode))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_IO, path, "%s",
                        S_ISDIR(s->st_mode) ? f8_errno_text(EISDIR) : "not a regular file");
}

/* ---- writing ---- */

/* Only a regular file is replaced: a rename would put a file in the place of a device or a pipe. */
f8_status f8_file_begin(f8_file_out *out, f8_temporaries *list, const char *path, bool no_replace,
                        f8_diag *diag)
{
    struct stat s;
    out->list = list;
    out->mark = NULL;
    out->path = path;
    out->diag = diag;
    out->fd = -1;
    out->no_replace = no_replace;
    out->existed = false;
    out->temporary[0] = 0;
    if (!*path)
        return fail(diag, path, ENOENT);
    if (!realpath(path, out->target)) {
        const int error = errno;
        if (!lstat(path, &s) && S_ISLNK(s.st_mode)) /* to nowhere: it would be lost */
            return fail(diag, path, error);
        if (snprintf(out->target, sizeof out->target, "%s", path) >= (int)sizeof out->target)
            return fail(diag, path, ENAMETOOLONG);
    }
    const bool replaces = !stat(out->target, &s);
    if (replaces)
        F8_TRY(check_regular(&s, path, diag));
    /* No two threads have one name: a signal handler may remove the file of one and free its name,
     * and a rename must not take what another began. The name may be taken by a thread of this
     * number that died. */
    for (int i = 0; i < TRIES; i++) {
        snprintf(out->temporary, sizeof out->temporary, "%s.%ld-%d.tmp", out->target,
                 (long)gettid(), i);
        out->fd = f8_temporary_create(list, AT_FDCWD, out->temporary, O_WRONLY | O_CLOEXEC,
                                      replaces ? 0600 : 0666, &out->mark);
        if (out->fd >= 0) /* the new file gets the old one's mode, if we may set it */
            return replaces && fchmod(out->fd, s.st_mode & 07777) && errno != EPERM
                       ? fail(diag, path, errno)
                       : F8_OK;
        if (errno != EEXIST)
            break;
    }
    const int error = errno;
    out->temporary[0] = 0;
    return fail(diag, path, error);
}

f8_status f8_file_put(f8_file_out *out, const void *from, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        const size_t part = n - done < PART ? (size_t)(n - done) : PART;
        const ssize_t put = write(out->fd, (const char *)from + done, part);
        if (put < 0 && errno != EINTR)
            return fail(out->diag, out->path, errno);
        done += put > 0 ? (uint64_t)put : 0;
    }
    return F8_OK;
}

/* Whether a signal handler removed the new file. */
static bool ended(const f8_file_out *out)
{
    return out->list && atomic_load(&out->list->closed);
}

/* Give the new file its name. A link, unlike a rename, fails if there is a file of that name. */
static f8_status take_name(f8_file_out *out)
{
    if (!out->no_replace) {
        if (rename(out->temporary, out->target))
            return fail(out->diag, out->path, ended(out) ? ECANCELED : errno);
    } else if (link(out->temporary, out->target)) {
        out->existed = errno == EEXIST;
        return fail(out->diag, out->path, ended(out) ? ECANCELED : errno);
    } else {
        unlink(out->temporary); /* if this fails, the file keeps a second name */
    }
    f8_temporary_end(out->mark);
    out->mark = NULL;
    out->temporary[0] = 0;
    return F8_OK;
}

static f8_status flush_folder(f8_file_out *out)
{
    char *slash = strrchr(out->target, '/');
    if (slash)
        slash[slash == out->target] = 0;
    const int folder = open(slash ? out->target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) /* a folder may be writable and not readable */
        return errno == EACCES ? F8_OK : fail(out->diag, out->path, errno);
    /* Some file systems can't flush folders. */
    const bool flushed = !fsync(folder) || errno == EINVAL;
    const f8_status status = flushed ? F8_OK : fail(out->diag, out->path, errno);
    close(folder);
    return status;
}

f8_status f8_file_commit(f8_file_out *out)
{
    const bool flushed = !fsync(out->fd);
    const int error = errno;
    const bool closed = !close(out->fd);
    out->fd = -1;
    if (!flushed || !closed)
        return fail(out->diag, out->path, flushed ? errno : error);
    F8_TRY(take_name(out));
    return flush_folder(out);
}

void f8_file_end(f8_file_out *out)
{
    if (out->fd >= 0)
        close(out->fd);
    if (out->temporary[0])
        unlink(out->temporary);
    f8_temporary_end(out->mark);
    out->mark = NULL;
    out->fd = -1;
    out->temporary[0] = 0;
}

f8_status f8_file_write(f8_temporaries *list, const char *path, const void *bytes, size_t n,
                        bool no_replace, f8_diag *diag)
{
    f8_file_out out;
    f8_status status = f8_file_begin(&out, list, path, no_replace, diag);
    if (status == F8_OK)
        status = f8_file_put(&out, bytes, n);
    if (status == F8_OK)
        status = f8_file_commit(&out);
    f8_file_end(&out);
    return status;
}

f8_status f8_file_writable(f8_temporaries *list, const char *path, f8_diag *diag)
{
    f8_file_out out;
    const f8_status status = f8_file_begin(&out, list, path, false, diag);
    f8_file_end(&out);
    return status;
}

/* ---- reading ---- */

f8_status f8_file_open_fd(f8_file_in *in, const char *path, int fd, f8_diag *diag)
{
    struct stat s;
    *in = (f8_file_in){.path = path, .fd = fd};
    const f8_status status =
        fstat(fd, &s) ? fail(diag, path, errno) : check_regular(&s, path, diag);
    if (status == F8_OK)
        in->size = (uint64_t)s.st_size;
    else
        f8_file_close(in);
    return status;
}

f8_status f8_file_open(f8_file_in *in, const char *path, f8_diag *diag)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not wait */
    *in = (f8_file_in){.path = path, .fd = -1};
    return fd < 0 ? fail(diag, path, errno) : f8_file_open_fd(in, path, fd, diag);
}

void f8_file_close(f8_file_in *in)
{
    if (in->fd >= 0)
        close(in->fd);
    in->fd = -1;
}

f8_status f8_file_get(const f8_file_in *in, void *to, uint64_t n, uint64_t at, f8_diag *diag)
{
    for (uint64_t done = 0; done < n;) {
        const size_t part = n - done < PART ? (size_t)(n - done) : PART;
        const ssize_t got = pread(in->fd, (char *)to + done, part, (off_t)(at + done));
        if (got == 0)
            return f8_file_fail(diag, F8_ERR_IO, in->path,
                                "the file became shorter while it was read");
        if (got < 0 && errno != EINTR)
            return fail(diag, in->path, errno);
        done += got > 0 ? (uint64_t)got : 0;
    }
    return F8_OK;
}

static const uint8_t nothing[1];

f8_status f8_file_take(const f8_file_in *in, uint64_t most, const f8_allocator *allocator,
                       f8_file_bytes *out, f8_diag *diag)
{
    *out = (f8_file_bytes){.bytes = nothing,
                           .allocator = allocator ? *allocator : f8_default_allocator()};
    if (in->size > most || in->size >= SIZE_MAX)
        return f8_file_fail(diag, F8_ERR_IO, in->path,
                            "it has %" PRIu64 " bytes; at most %" PRIu64 " are read", in->size,
                            most);
    if (in->size == 0)
        return F8_OK;
    void *memory = out->allocator.alloc(out->allocator.user, (size_t)in->size, F8_FILE_ALIGN);
    if (!memory)
        return f8_file_fail(diag, F8_ERR_MEMORY, in->path,
                            "out of memory: %" PRIu64 " bytes were wanted", in->size);
    out->bytes = out->memory = memory;
    out->size = (size_t)in->size;
    const f8_status status = f8_file_get(in, memory, in->size, 0, diag);
    if (status != F8_OK)
        f8_file_release(out);
    return status;
}

f8_status f8_file_read(const char *path, uint64_t most, const f8_allocator *allocator,
                       f8_file_bytes *out, f8_diag *diag)
{
    f8_file_in in;
    *out = (f8_file_bytes){.bytes = nothing};
    F8_TRY(f8_file_open(&in, path, diag));
    const f8_status status = f8_file_take(&in, most, allocator, out, diag);
    f8_file_close(&in);
    return status;
}

void f8_file_release(f8_file_bytes *file)
{
    if (file->memory)
        file->allocator.free(file->allocator.user, file->memory, file->size);
    *file = (f8_file_bytes){.bytes = nothing};
}
