/* How ranks are joined and watched, and what a caller does when something happens among them.
 * Functions here neither print nor end the process; they call these. */
#ifndef F8_RANKS_OPTIONS_H
#define F8_RANKS_OPTIONS_H

#include <stdint.h>

#include "frontend/fp8c_ranks.h"

/* All functions must be given. `user` is what each of them gets. */
typedef struct f8_ranks_callbacks {
    void *user;
    /* A rank is missing, gone or late. One or several lines, each with its end; the text is valid
     * during the call. It comes from a thread that watches, while the caller's own thread may wait
     * in a collective. */
    void (*say)(void *user, const char *text);
    /* This rank has failed, and another one is gone or stopped. It comes from f8_peers_end, in the
     * caller's thread, once for each such rank. */
    void (*gone)(void *user, const char *text);
    /* The training can't go on: ends this process and, by `mpi`, the others. `mpi` is NULL if there
     * is none, or none any more that may be used beside others' calls. It comes from a thread that
     * watches, right after `say`, and is not to return: the caller's thread waits for a rank that
     * never comes. */
    void (*end)(void *user, fp8c_mpi *mpi);
    /* Why this process wants the training to stop, as the number of a signal; 0: it does not. */
    int32_t (*stopped)(void *user);
    /* Another rank wants it to stop, for this reason. */
    void (*stop)(void *user, int32_t reason);
} f8_ranks_callbacks;

/* Must live until the ranks are left. */
typedef struct f8_ranks_options {
    fp8c_context *ctx; /* finds MPI and NCCL */
    /* Seconds that one collective, or one stage of joining, may take; 0: any. It may be set anew until
     * f8_ranks_watch: a thread that watches reads it. */
    _Atomic double limit;
    const char *limit_name; /* what the caller's messages call it: "--rank-timeout" */
    f8_ranks_callbacks call;
} f8_ranks_options;

#endif
