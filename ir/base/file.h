/* Files: written whole or not at all, and read within bounds. What every writer of a file here
 * uses.
 *
 * Failures are F8_ERR_IO (F8_ERR_MEMORY where memory ran out); the message is the system's, and
 * diag->file is the path, so that it renders as "PATH: error: No such file or directory". The path
 * is borrowed: it must live as long as the diag is to be rendered. */
#ifndef F8_FILE_H
#define F8_FILE_H

#include <limits.h>

#include "ir/base/status.h"

/* Record a failure of the file `path`, as f8_fail does. */
f8_status f8_file_fail(f8_diag *diag, f8_status status, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- writing ---- */

/* A file being written: to a new one beside it, with a name of its own that ends in ".tmp", which
 * is renamed over it when all of it is on the disk. Until then, and after a failure, the file is as
 * it was. Only a process killed in between leaves the new one behind. Links are followed, but not
 * to nowhere; only a regular file is replaced, and the new one has its mode. A caller's object (8
 * KB); use: f8_status status = f8_file_begin(&out, path, false, diag); if (status == F8_OK) status
 * = f8_file_put(&out, bytes, n);   (as often as there is something) if (status == F8_OK) status =
 * f8_file_commit(&out); f8_file_end(&out); */
typedef struct f8_file_out {
    const char *path;
    f8_diag *diag;
    int fd;          /* -1: none is open */
    bool no_replace; /* commit fails where there is a file of that name by then */
    bool existed;    /* it did fail for that */
    char target[PATH_MAX],
        temporary[PATH_MAX + 40]; /* path with links followed; beside it, "": none */
} f8_file_out;

/* Both are borrowed. Whatever is returned, f8_file_end does no harm. */
f8_status f8_file_begin(f8_file_out *out, const char *path, bool no_replace, f8_diag *diag);
f8_status f8_file_put(f8_file_out *out, const void *from, uint64_t n);
/* The bytes before the name, the name before success is reported: an error of the last step, of the
 * folder, is one although the file is there. */
f8_status f8_file_commit(f8_file_out *out);
/* Remove what was not committed. */
void f8_file_end(f8_file_out *out);

/* All of it at once. */
f8_status f8_file_write(const char *path, const void *bytes, size_t n, bool no_replace,
                        f8_diag *diag);
/* Whether a file could be written, as far as can be known before: its folder takes a new one, and
 * what has its name now is one that may be replaced. */
f8_status f8_file_writable(const char *path, f8_diag *diag);

/* ---- reading ---- */

/* A regular file that is open. A later change of its size is found when it is read. */
typedef struct f8_file_in {
    const char *path; /* borrowed */
    int fd;           /* -1: none */
    uint64_t size;
} f8_file_in;

/* After a failure nothing is left to close, but closing does no harm. */
f8_status f8_file_open(f8_file_in *in, const char *path, f8_diag *diag);
/* The same of what is open already, closed with `in` or after a failure; path is for messages. */
f8_status f8_file_open_fd(f8_file_in *in, const char *path, int fd, f8_diag *diag);
void f8_file_close(f8_file_in *in);
/* The n bytes at `at`. */
f8_status f8_file_get(const f8_file_in *in, void *to, uint64_t n, uint64_t at, f8_diag *diag);

/* A whole file in memory. It is read, not mapped: what is mapped changes with the file, after it
 * was checked too, and where the file is cut, touching what is gone raises SIGBUS. */
typedef struct f8_file_bytes {
    const uint8_t *bytes; /* never NULL, also of an empty file */
    size_t size;
    void *memory; /* of `size` bytes; NULL: nothing to give back */
    f8_allocator allocator;
} f8_file_bytes;
enum { F8_FILE_ALIGN = 4096 }; /* of what was read, as if it were mapped */

/* A file of more than `most` bytes is refused. Given back by f8_file_release, which may be called
 * after a failure. */
f8_status f8_file_read(const char *path, uint64_t most, const f8_allocator *allocator,
                       f8_file_bytes *out, f8_diag *diag);
/* The same of one that is open, and stays so. */
f8_status f8_file_take(const f8_file_in *in, uint64_t most, const f8_allocator *allocator,
                       f8_file_bytes *out, f8_diag *diag);
void f8_file_release(f8_file_bytes *file);

#endif
