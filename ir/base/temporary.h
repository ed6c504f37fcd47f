/* Temporary files that calls are writing, listed so that a signal handler can remove them.
 *
 * A file is made under a temporary name and renamed when it is whole. A process that ends between
 * the two leaves the temporary file behind. Its handler calls f8_temporaries_remove before _exit.
 *
 *     f8_temporary *mark;
 *     const int fd = f8_temporary_create(list, AT_FDCWD, path, flags, mode, &mark);
 *     if (fd >= 0) {
 *         ... write, close, rename or unlink ...
 *         f8_temporary_end(mark);
 *     } */
#ifndef F8_TEMPORARY_H
#define F8_TEMPORARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { F8_TEMPORARIES = 64 }; /* more at the same time wait for one another */

typedef struct f8_temporary {
    atomic_int state; /* temporary.c has the states */
    int folder;
    const char *path; /* the caller's */
} f8_temporary;

/* All zeros: an empty list. */
typedef struct f8_temporaries {
    atomic_bool closed; /* no more files are made */
    f8_temporary slot[F8_TEMPORARIES];
} f8_temporaries;

/* As openat with O_CREAT and O_EXCL. *out is for f8_temporary_end, and NULL after a failure; `path`
 * must live until then. ECANCELED: the list is closed. With a NULL list the file is not listed. */
int f8_temporary_create(f8_temporaries *list, int folder, const char *path, int flags, mode_t mode,
                        f8_temporary **out);
/* Call it once the file is renamed or removed. NULL is fine. */
void f8_temporary_end(f8_temporary *mark);

/* Removes the files and closes the list. Async-signal-safe. Other threads may be writing: each file
 * is removed, or it has its final name by then. */
void f8_temporaries_remove(f8_temporaries *list);

#endif
