/* Who is wrong, where several processes train together. Each rank keeps a record of the collective
 * that it is in, where the others of its machine can read it (../run/ranks.h). A thread of each
 * reads them: when a rank is gone, or this one has waited for longer than a limit, the thread says
 * who has not arrived, and ends the job. */
#ifndef F8_RANKS_PEERS_H
#define F8_RANKS_PEERS_H

#include "frontend/cli/cmd.h"

typedef struct f8_peers f8_peers;

/* The limit of --rank-timeout, in seconds; 0: there is none. */
double f8_peers_limit(const cli *c);
/* Begins to keep the record, and starts the thread. All ranks call it together. From here on `comm`
 * is one that notes each exchange; the given one is used through it.
 *     mpi       what ends the job; NULL: this process ends, and its launcher ends the others
 *     messages  a descriptor to write to
 *     limit     how many seconds one collective may take; 0: any
 * NULL after a message on stderr. */
f8_peers *f8_peers_begin(fp8c_comm *comm, fp8c_mpi *mpi, int messages, double limit);
/* Ends both; `comm` is not to be used any more. After a failure of this process (`code` is not
 * CLI_DONE) it says on stderr which of the others are gone or stopped. NULL: nothing. Does not
 * return while the thread ends the job. */
void f8_peers_end(f8_peers *w, int code);

/* All other calls accept NULL: there is one rank. */

/* What the next exchanges are for that the command makes itself; the text must live on. */
void f8_peers_name(f8_peers *w, const char *name);
/* The step of the training, and the micro-step, both from 1, that begin now. */
void f8_peers_step(f8_peers *w, int64_t step, int64_t micro_step);
/* Keeps a record in the folder of the run, too: `folder`/ranks/RANK. All ranks call it together,
 * when the folder is there. A rank that does not see the folder, since it is on another machine,
 * has none there. false, on all ranks, after a message on stderr. */
bool f8_peers_folder(f8_peers *w, const char *folder);

/* ---- for cmd_peers_judge.c ---- */

#include <stdatomic.h>

#include "frontend/run/ranks.h"

/* One of the ranks, as all know it from the beginning. */
typedef struct f8_peer {
    char host[64], machine[128]; /* machine: equal where processes can see each other */
    char path[160];              /* of its record, for a moment */
    int64_t pid;
} f8_peer;

struct f8_peers {
    fp8c_comm inner;
    fp8c_mpi *mpi;
    int messages;
    double limit;
    int rank, ranks;
    f8_peer *peer;        /* by rank */
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
    atomic_bool ending;    /* somebody ends the process */
    int wake;              /* an eventfd: the thread shall end */
};

/* The body of the thread. */
void *f8_peers_others(void *peers);
/* Says which ranks of this machine are gone or stopped, on stderr. */
void f8_peers_say_gone(const f8_peers *w);

#endif
