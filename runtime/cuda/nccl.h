/* NCCL: how the GPUs of several ranks exchange bytes.
 *
 * A communicator belongs to one device and one rank. It has a stream of its own, which is ordered
 * with the stream of the steps by events. NCCL moves bytes only: kernels of ours add
 * (passes/unit/collectives.h). README.md, "Several ranks", says why collectives stand between
 * graphs and not in them, and what happens when one fails. */
#ifndef F8_CUDA_NCCL_H
#define F8_CUDA_NCCL_H

#include "runtime/comm/comm.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"

typedef struct f8_nccl f8_nccl;

enum { F8_NCCL_ID = 128 }; /* bytes that say which communicator ranks join */

/* A new id, made by one rank for all. If NCCL_COMM_ID is in the environment, NCCL makes the same id
 * on every rank. Loads NCCL. */
f8_status f8_nccl_id(f8_cuda *cuda, void *id, f8_diag *diag);

/* F8_ERR_LIBRARY: NCCL is missing or too old. Loads it. */
f8_status f8_nccl_present(f8_cuda *cuda, f8_diag *diag);
/* Whether NCCL_COMM_ID is in the environment, where NCCL reads it. */
bool f8_nccl_has_address(void);

typedef struct f8_nccl_options {
    int rank, ranks; /* 1 to F8_MAX_RANKS */
    const void *id;
    double seconds; /* how long joining may take, and a collective may run, before the others are
                       given up; 0: 600 */
    const f8_allocator *allocator;
} f8_nccl_options;

/* Joins the other ranks, and exchanges a few bytes with each, so that all connections exist. Waits
 * for all ranks to call it, for no longer than `seconds` in all. `cuda` has its device open and
 * outlives the communicator. F8_ERR_LIBRARY: NCCL is missing, too old, or fails, or a rank does not
 * come; the message has the rank. */
f8_status f8_nccl_create(f8_cuda *cuda, const f8_nccl_options *options, f8_nccl **out,
                         f8_diag *diag);
void f8_nccl_destroy(f8_nccl *n); /* may be NULL; after all executors that use it */

int f8_nccl_rank(const f8_nccl *n);
int f8_nccl_ranks(const f8_nccl *n);
int f8_nccl_ordinal(const f8_nccl *n); /* of its device */

/* From now on `observe` is told of the collectives that a wait sees running, and of the last one
 * when a wait is over: as `observe` of f8_comm. NULL: nobody is. */
void f8_nccl_observe(f8_nccl *n, void (*observe)(void *user, const f8_exchange *x, bool ended),
                     void *user);

/* Exchanges bytes of host memory, staged through the device. */
const f8_comm *f8_nccl_comm(const f8_nccl *n);

/* Enqueues a collective behind all that `stream` was given before. It goes on beside what the
 * stream is given after, until f8_nccl_join of *number. Called in the device's context, outside of
 * a capture. `step` and `func` are for messages. */
f8_status f8_nccl_enqueue(f8_nccl *n, const f8_collective_desc *d, CUdeviceptr send,
                          CUdeviceptr receive, CUstream stream, const char *step, const char *func,
                          uint64_t *number, f8_diag *diag);
/* What `stream` is given from here on waits for the end of that collective. */
f8_status f8_nccl_join(f8_nccl *n, uint64_t number, CUstream stream, const char *what,
                       f8_diag *diag);

/* Waits until `stream` has done all its work. Meanwhile it asks NCCL for errors. If there is one,
 * or a collective runs for too long, the communicator is aborted: its collectives end, with results
 * that mean nothing. Called in the device's context. `what` is for messages. */
f8_status f8_nccl_wait(f8_nccl *n, CUstream stream, const char *what, f8_diag *diag);

/* Ends the communicator, so that ranks that wait for this one fail instead. Every later call gives
 * the reason. Does nothing if it has failed before. */
void f8_nccl_abort(f8_nccl *n, const char *why);

#endif
