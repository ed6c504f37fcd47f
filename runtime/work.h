/* Memory in which the runs of several programs work, one run at a time: the arena, the kernels'
 * scratch and the libraries' workspace, each as large as the program that needs most of it.
 *
 * A run holds the lock until its work is done (CPU) or enqueued (CUDA, where an event orders the
 * next run behind it). When a program joins that needs more, new memory is allocated before the old
 * is freed, and the generation goes up: each home looks for that at its next run, and resolves its
 * places again. While a program is in it there is memory; with the last one it is freed. */
#ifndef F8_WORK_H
#define F8_WORK_H

#include <pthread.h>

#include "runtime/home.h"

/* Where programs have such memory. Those of one f8_work have all in common. */
typedef struct f8_work_place {
    const f8_home_kind *kind;
    int device; /* CUDA: the ordinal */
} f8_work_place;

struct f8_work {
    f8_allocator allocator;
    pthread_mutex_t lock; /* of all below; a thread that takes it twice is refused */
    /* CUDA: who gives the blocks; NULL: the driver */
    void *(*device_alloc)(void *user, size_t bytes);
    void (*device_free)(void *user, void *ptr, size_t bytes);
    void *device_user;
    int holders, homes;  /* holders: the homes, and who made it */
    f8_work_place place; /* of the homes */
    f8_block block[F8_WORK_BLOCKS];
    uint64_t generation;
    int64_t bytes;
    void *done; /* CUDA: the event behind the last run; NULL: none yet. The kind's, while there are
                   homes */
};

f8_status f8_work_create(const f8_allocator *allocator, f8_work **out, f8_diag *diag);
void f8_work_release(f8_work *w); /* by one holder; the last one frees it */
int64_t f8_work_bytes(f8_work *w);

/* All others take NULL, too, and then do nothing. */

/* A home joins. F8_ERR_INPUT: it is not where the others are. */
f8_status f8_work_join(f8_work *w, const f8_work_place *place, f8_diag *diag);
void f8_work_abandon(f8_work *w); /* undoes a join of a home that does not come to be */
/* A home leaves. The last one frees the blocks by `home`, and `end` what the kind has added. */
void f8_work_leave(f8_work *w, f8_home *home, void (*end)(f8_work *w, f8_home *home));

/* F8_ERR_INPUT: this thread holds it already: it is in a callback of a run. */
f8_status f8_work_lock(f8_work *w, f8_diag *diag);
void f8_work_unlock(f8_work *w);

#endif
