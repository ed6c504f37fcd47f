/* Files: written whole or not at all, and read within bounds. Everything here that writes a file
 * uses these functions.
 *
 * Failures are F8_ERR_IO, or F8_ERR_MEMORY where memory ran out. The message is the system's and
 * diag->file is the path, so that it renders as "PATH: error: No such file or directory". The path
 * is borrowed: it must live until the diag is rendered. */
#ifndef F8_FILE_H
#define F8_FILE_H

#include <limits.h>

#include "ir/base/status.h"
#include "ir/base/temporary.h"

/* Record a failure of the file `path`, as f8_fail does for a place in a text. */
f8_status f8_file_fail(f8_diag *diag, f8_status status, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- writing ---- */

/* A file being written. The bytes go to a new file in the same folder, with a name of its own that
 * ends in ".tmp". Once all of it is on the disk, it is renamed over the old file. Until then, and
 * after a failure, the old file is as it was. The new one is in the list that the caller gives, so
 * a signal handler can remove it (temporary.h); only a process that is killed leaves it behind.
 * Links are followed, unless they lead nowhere. Only a regular file is replaced, and the new one
 * gets its mode. The caller owns the object (8 KB), which does not move, and uses it so:
 *
 *     f8_status status = f8_file_begin(&out, list, path, false, diag);
 *     if (status == F8_OK)
 *         status = f8_file_put(&out, bytes, n);    (as often as there are bytes)
 *     if (status == F8_OK)
 *         status = f8_file_commit(&out);
 *     f8_file_end(&out); */
typedef struct f8_file_out {
    const char *path;
    f8_diag *diag;
    int fd;          /* -1: none is open */
    bool no_replace; /* commit fails if there is a file of that name by then */
    bool existed;    /* commit failed for that reason */
    f8_temporaries *list;
    f8_temporary *mark;
    char target[PATH_MAX];         /* the path with links followed */
    char temporary[PATH_MAX + 40]; /* the new file; "" if there is none */
} f8_file_out;

/* list (NULL: none), path and diag are borrowed until f8_file_end, which may be called after a
 * failure too. F8_ERR_CANCELLED, here and from f8_file_commit: the list was closed. */
f8_status f8_file_begin(f8_file_out *out, f8_temporaries *list, const char *path, bool no_replace,
                        f8_diag *diag);
f8_status f8_file_put(f8_file_out *out, const void *from, uint64_t n);
/* Flush the bytes to the disk, then give the file its name, then flush the folder. An error of the
 * last step is reported although the file is there by then. */
f8_status f8_file_commit(f8_file_out *out);
/* Remove the new file unless it was committed. */
void f8_file_end(f8_file_out *out);

/* Write a whole file in one call. */
f8_status f8_file_write(f8_temporaries *list, const char *path, const void *bytes, size_t n,
                        bool no_replace, f8_diag *diag);
/* Whether a file could be written, as far as that can be known before: its folder takes a new file,
 * and what has its name now may be replaced. */
f8_status f8_file_writable(f8_temporaries *list, const char *path, f8_diag *diag);

/* ---- reading ---- */

/* A regular file that is open. If it becomes shorter, reading it fails. */
typedef struct f8_file_in {
    const char *path; /* borrowed */
    int fd;           /* -1: none */
    uint64_t size;
} f8_file_in;

/* After a failure nothing is left open; f8_file_close may be called all the same. */
f8_status f8_file_open(f8_file_in *in, const char *path, f8_diag *diag);
/* The same for a descriptor that is open already. It is closed with `in`, and after a failure. The
 * path is for messages. */
f8_status f8_file_open_fd(f8_file_in *in, const char *path, int fd, f8_diag *diag);
void f8_file_close(f8_file_in *in);
/* Read the n bytes at offset `at`. */
f8_status f8_file_get(const f8_file_in *in, void *to, uint64_t n, uint64_t at, f8_diag *diag);

/* A whole file in memory. It is read and not mapped: mapped bytes change with the file, even after
 * they were checked, and where the file is cut, reading a missing byte raises SIGBUS. */
typedef struct f8_file_bytes {
    const uint8_t *bytes; /* never NULL, even for an empty file */
    size_t size;
    void *memory; /* of `size` bytes; NULL if there is nothing to free */
    f8_allocator allocator;
} f8_file_bytes;
enum { F8_FILE_ALIGN = 4096 }; /* alignment of `bytes`, as if the file were mapped */

/* Read a whole file. One of more than `most` bytes is refused. f8_file_release frees it and may be
 * called after a failure. */
f8_status f8_file_read(const char *path, uint64_t most, const f8_allocator *allocator,
                       f8_file_bytes *out, f8_diag *diag);
/* The same for a file that is open, and stays open. */
f8_status f8_file_take(const f8_file_in *in, uint64_t most, const f8_allocator *allocator,
                       f8_file_bytes *out, f8_diag *diag);
void f8_file_release(f8_file_bytes *file);

#endif
