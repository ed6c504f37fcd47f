/* Who is wrong, where several processes train together. Each rank keeps a record of the collective
 * that it is in, where the others of its machine can read it (../../run/ranks.h). A thread of each
 * reads them: when a rank is gone, or this one has waited for longer than a limit, the thread says
 * who has not arrived, and ends the job. */
#ifndef F8_RANKS_PEERS_H
#define F8_RANKS_PEERS_H

#include "frontend/train/ranks/options.h"
#include "ir/base/status.h"

typedef struct f8_peers f8_peers;

enum { F8_PEERS_PATH = 4096 + 260 }; /* bytes for the path of a file */

/* Begins to keep the record, and starts the thread. All ranks call it together. From here on `comm`
 * is one that notes each exchange; the given one is used through it.
 *     mpi   what ends the job; NULL: this process ends, and its launcher ends the others
 *     path  F8_PEERS_PATH bytes, which must live as long; `file` of a failure is there
 * F8_ERR_MEMORY, F8_ERR_IO; F8_ERR_LIBRARY: the ranks can't exchange bytes. */
f8_status f8_peers_begin(f8_peers **out, fp8c_comm *comm, fp8c_mpi *mpi,
                         const f8_ranks_options *options, char *path, f8_diag *diag);
/* Ends both; `comm` is not to be used any more. If this process has failed, it says which of the
 * others are gone or stopped. NULL: nothing. Does not return while the thread ends the job. */
void f8_peers_end(f8_peers *w, bool failed);

/* All other calls accept NULL: there is one rank. */

/* What the next exchanges are for that are not a program's own; the text must live on. */
void f8_peers_name(f8_peers *w, const char *name);
/* The step of the training, and the micro-step, both from 1, that begin now. */
void f8_peers_step(f8_peers *w, int64_t step, int64_t micro_step);
/* Keeps a record in the folder of the run, too: `folder`/ranks/RANK. All ranks call it together,
 * when the folder is there. A rank that does not see the folder, since it is on another machine,
 * has none there. A failure is one on all ranks: where it is another rank's, which has the message,
 * `diag` is left as it is. */
f8_status f8_peers_folder(f8_peers *w, const char *folder, f8_diag *diag);

#endif
