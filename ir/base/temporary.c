/* Temporary files: see temporary.h.
 *
 * A handler may run at any moment and on any thread, so there are no locks. A slot goes through the
 * states below. While a file is being created its thread takes no signals: so a handler never waits
 * for the thread that it interrupted. f8_temporaries_remove closes the list first and looks at the
 * slots then. Whoever takes a slot looks at `closed` last. So either that thread sees that the list
 * is closed, or the handler sees the slot. (All of it is sequentially consistent.) */
#include "ir/base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

enum {
    FREE,     /* nobody's */
    CREATING, /* taken; its file may come to be at any moment */
    THERE,    /* the file exists, or has its final name */
    REMOVING, /* a handler is using the path */
    REMOVED,
};

enum { PATIENCE = 1000 }; /* milliseconds that a handler waits for an open */

static f8_temporary *take(f8_temporaries *list)
{
    for (;; sched_yield())
        for (int i = 0; i < F8_TEMPORARIES; i++) {
            int seen = FREE;
            if (atomic_compare_exchange_strong(&list->slot[i].state, &seen, CREATING))
                return &list->slot[i];
            if (atomic_load(&list->closed))
                return NULL;
        }
}

static int create(f8_temporaries *list, int folder, const char *path, int flags, mode_t mode,
                  f8_temporary **out)
{
    f8_temporary *slot = take(list);
    int fd = -1, error = ECANCELED;
    if (slot && !atomic_load(&list->closed)) {
        fd = openat(folder, path, flags | O_CREAT | O_EXCL, mode);
        error = errno;
    }
    if (fd >= 0) {
        slot->folder = folder;
        slot->path = path;
        *out = slot;
    }
    if (slot)
        atomic_store(&slot->state, fd >= 0 ? THERE : FREE);
    errno = error;
    return fd;
}

int f8_temporary_create(f8_temporaries *list, int folder, const char *path, int flags, mode_t mode,
                        f8_temporary **out)
{
    sigset_t all, before;
    *out = NULL;
    if (!list)
        return openat(folder, path, flags | O_CREAT | O_EXCL, mode);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int fd = create(list, folder, path, flags, mode, out);
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return fd;
}

void f8_temporary_end(f8_temporary *mark)
{
    int seen = THERE;
    while (mark && !atomic_compare_exchange_strong(&mark->state, &seen, FREE) && seen != REMOVED) {
        sched_yield(); /* a handler on another thread needs the path for an unlink */
        seen = THERE;
    }
}

void f8_temporaries_remove(f8_temporaries *list)
{
    const int error = errno;
    atomic_store(&list->closed, true);
    for (int i = 0; i < F8_TEMPORARIES; i++) {
        f8_temporary *slot = &list->slot[i];
        int seen = THERE;
        for (int k = 0; k < PATIENCE && atomic_load(&slot->state) == CREATING; k++)
            poll(NULL, 0, 1);
        if (atomic_compare_exchange_strong(&slot->state, &seen, REMOVING)) {
            unlinkat(slot->folder, slot->path, 0);
            atomic_store(&slot->state, REMOVED);
        }
    }
    errno = error;
}
