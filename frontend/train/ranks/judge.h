/* What a rank knows of the others, and the thread that looks at it: between peers.c and judge.c. */
#ifndef F8_RANKS_JUDGE_H
#define F8_RANKS_JUDGE_H

#include <stdatomic.h>

#include "frontend/run/ranks.h"
#include "frontend/train/ranks/peers.h"

/* One of the ranks, as all know it from the beginning. */
typedef struct f8_peer {
    char host[64], machine[128]; /* machine: equal where processes can see each other */
    char path[160];              /* of its record, for a moment */
    int64_t pid;
} f8_peer;

struct f8_peers {
    fp8c_comm inner;
    fp8c_mpi *mpi;
    const f8_ranks_options *options;
    char *where; /* F8_PEERS_PATH bytes: a path that a failure names */
    int rank, ranks;
    f8_peer *peer;         /* by rank */
    f8_rank_file *record;  /* by rank; of other machines none. This one's is written */
    int *process;          /* by rank: a pidfd of a process of this machine, or -1 */
    f8_rank_file kept;     /* in the folder of the run */
    char *folder;          /* the one with all ranks' records of that kind, once they are there */
    atomic_bool in_folder; /* `kept` and `folder` are set */
    const char *name;      /* f8_peers_name */
    uint64_t calls, enqueued; /* exchanges so far: through `inner`, and on a GPU */
    int64_t step, micro_step;
    bool inside;           /* a call of `inner` has been noted */
    _Atomic int64_t since; /* when this rank began to wait, in nanoseconds; 0: it does not */
    atomic_bool ending;    /* somebody ends the process, or leaves */
    int wake;              /* an eventfd: the thread shall end */
};

/* The body of the thread. */
void *f8_peers_others(void *peers);
/* Says which ranks of this machine are gone or stopped. */
void f8_peers_say_gone(const f8_peers *w);

#endif
