/* Collectives that run beside other work: one thread makes the engine's calls, one after another,
 * in the order in which they were started. Every rank starts the same ones in the same order, so
 * the calls match. */
#ifndef F8_COMM_QUEUE_H
#define F8_COMM_QUEUE_H

#include "runtime/comm/comm.h"

/* One collective under way. The caller keeps it, and what it points to, until it was waited for. */
typedef struct f8_transfer {
    const f8_collective_desc *desc;
    f8_collective_label label;
    const void *send;
    void *receive;
    struct f8_transfer *next;     /* the queue's */
    bool done;                    /* the queue's */
    f8_status status;             /* the queue's */
    double started, begun, ended; /* f8_seconds_now: f8_comm_queue_start; the engine's call */
} f8_transfer;

typedef struct f8_comm_queue f8_comm_queue;

/* Starts the thread. The comm is borrowed and outlives the queue. F8_ERR_MEMORY, or F8_ERR_IO if
 * the system refuses a thread. */
f8_status f8_comm_queue_create(const f8_comm *comm, const f8_allocator *allocator,
                               f8_comm_queue **out, f8_diag *diag);
/* Ends the thread. Nothing may be under way. NULL: nothing. */
void f8_comm_queue_destroy(f8_comm_queue *q);

/* Desc, label, send and receive of *t are set. Returns at once. */
void f8_comm_queue_start(f8_comm_queue *q, f8_transfer *t);
/* Returns when *t is done. After a call that failed no further call is made: what was started
 * behind it fails like it, with the same message. */
f8_status f8_comm_queue_wait(f8_comm_queue *q, f8_transfer *t, f8_diag *diag);
/* Ends a run: no call begins any more, and one that is under way ends. A failure is forgotten then;
 * the next run begins anew. */
void f8_comm_queue_stop(f8_comm_queue *q);

#endif
