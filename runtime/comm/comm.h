/* Communication between ranks: processes, or threads of one process, that run one plan together.
 *
 * An engine moves bytes and does no arithmetic: reductions are exchanges and kernels of ours
 * (passes/unit/collectives.h), so that their bits do not depend on the engine. Every rank makes the
 * same calls in the same order, from one thread at a time. A call returns when what was to be
 * received is there and what was sent may be overwritten. `send` and `receive` do not overlap. */
#ifndef F8_COMM_H
#define F8_COMM_H

#include "ir/base/status.h"

#include <stdint.h>

typedef struct f8_comm {
    int rank, ranks; /* this one, from 0; how many there are, 1 to F8_MAX_RANKS */
    void *user;
    /* receive[r * bytes..] = what rank r sends: `bytes` bytes of each. F8_ERR_LIBRARY: it failed,
     * and no further call can succeed. */
    f8_status (*all_gather)(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag);
    /* receive[r * bytes..] = send[rank * bytes..] of rank r. */
    f8_status (*all_to_all)(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag);
} f8_comm;

typedef enum f8_collective { F8_COLLECTIVE_ALL_GATHER, F8_COLLECTIVE_ALL_TO_ALL } f8_collective;
enum { F8_COLLECTIVES = 2 };
extern const char *const f8_collective_name[F8_COLLECTIVES]; /* "all_gather", "all_to_all" */

/* What one collective exchanges: `bytes` with each rank, this one included. A rank sends and
 * receives that many to and from each of the others. */
typedef struct f8_collective_desc {
    f8_collective kind;
    int32_t ranks;
    int64_t bytes;
} f8_collective_desc;

/* Does it. `comm` NULL stands for a rank that is alone. F8_ERR_INPUT: the ranks are not as many as
 * the collective has. */
f8_status f8_comm_run(const f8_comm *comm, const f8_collective_desc *d, const void *send,
                      void *receive, f8_diag *diag);
/* Bytes of what is sent in all, and of what is received. */
int64_t f8_collective_sent(const f8_collective_desc *d);
int64_t f8_collective_received(const f8_collective_desc *d);

#endif
