/* Processes that train together: joining them, what they tell each other beside the steps, leaving.
 * One thread makes all calls. */
#ifndef F8_TRAIN_RANKS_H
#define F8_TRAIN_RANKS_H

#include "frontend/train/ranks/joining.h"
#include "frontend/train/ranks/peers.h"
#include "ir/base/hash.h"

typedef struct f8_ranks {
    const f8_ranks_options *options;
    fp8c_mpi *mpi;
    fp8c_nccl *nccl; /* on GPUs */
    fp8c_comm comm;
    f8_joining *joining; /* watches while there are no peers; NULL: one process */
    f8_peers *peers;
    bool stopped;             /* all ranks know that the training stops */
    bool lost;                /* ranks can no longer be asked; a message has said why */
    bool common;              /* all ranks fail, for the same reason: rank 0 says it */
    char path[F8_PEERS_PATH]; /* of a failure about a file */
} f8_ranks;

/* A failure fills `diag`, except where the context of the options has the message: that is
 * F8_ERR_LIBRARY with an empty diag. */

/* Which MPI's mpirun has started this process with others: "openmpi" or "mpich". NULL: none. */
const char *f8_ranks_launcher(void);
/* Begins to watch, and joins the MPI job of this kind; `kind` NULL: the first MPI that is there.
 * Nobody waits for longer than the limit. Leave in any case. */
f8_status f8_ranks_join_mpi(f8_ranks *r, const f8_ranks_options *options, const char *kind,
                            f8_diag *diag);
/* Begins to watch ranks without MPI; NCCL joins them (gpus.h). Leave in any case. */
f8_status f8_ranks_join_alone(f8_ranks *r, const f8_ranks_options *options, int32_t rank,
                              int32_t ranks, f8_diag *diag);
/* The ranks are joined: watches the others from here on (peers.h). */
f8_status f8_ranks_watch(f8_ranks *r, f8_diag *diag);

/* The end has two parts, as a caller may want to say something in between. The first ends the
 * watching (f8_peers_end). A rank that has not failed calls f8_ranks_tell before it: others may
 * still be writing. */
void f8_ranks_settle(f8_ranks *r, bool failed);
/* exit_code: with another number than 0 all others end too, MPI's with this exit code. */
void f8_ranks_leave(f8_ranks *r, int exit_code);

/* Whether this process is one of several, and not rank 0. NULL: false. */
bool f8_ranks_follows(const f8_ranks *r);
/* Gives each rank the `bytes` bytes of all, in the order of the ranks. `what` names the exchange.
 * After a failure r->lost; once it is set, the call fails and leaves `diag` as it is. NULL: `all`
 * gets those of this process alone. */
f8_status f8_ranks_gather(f8_ranks *r, const char *what, const void *mine, void *all, size_t bytes,
                          f8_diag *diag);
/* Whether any rank wants to stop: all get the same answer at once, and then have the reason noted.
 * Also if they can't be asked: r->lost. With `flag` *flag becomes true if it is on any rank. */
bool f8_ranks_tell(f8_ranks *r, bool *flag, f8_diag *diag);

/* What all ranks are to have alike. */
typedef struct f8_ranks_fact {
    const char *name; /* of the fact, equal on all ranks */
    f8_hash hash;     /* of its value */
} f8_ranks_fact;

/* Whether all ranks have the same values; all of them know the `n` names, in one order. Fails as
 * f8_ranks_gather, and:
 * F8_ERR_INPUT on all ranks, and r->common: the message names the first fact that differs, and the
 * rank. `what` names the exchange. */
f8_status f8_ranks_agree_facts(f8_ranks *r, const char *what, const f8_ranks_fact *mine, size_t n,
                               f8_diag *diag);
/* Whether all ranks give the same text. NULL: F8_OK. */
f8_status f8_ranks_agree(f8_ranks *r, const char *what, const char *text, f8_diag *diag);

#endif
