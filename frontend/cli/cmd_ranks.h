/* Processes that train together: joining them, and each one's part of a batch. */
#ifndef F8_CMD_RANKS_H
#define F8_CMD_RANKS_H

#include "frontend/cli/cmd_joining.h"
#include "frontend/cli/cmd_peers.h"
#include "frontend/train/data/share.h"

typedef struct cli_ranks {
    fp8c_context *ctx;
    fp8c_mpi *mpi;
    fp8c_nccl *nccl; /* on GPUs */
    fp8c_comm comm;
    cli_joining *joining; /* watches while there are no peers; NULL: one process */
    cli_peers *peers;
    bool stopped; /* all ranks know of a signal */
    bool lost;    /* ranks can no longer be asked, and stderr says why */
    bool common;  /* all ranks fail, for the same reason: rank 0 says it */
    int messages; /* of ranks above 0: stderr as it was; what they say is kept, see below */
} cli_ranks;

/* Joins the processes of an MPI job, if --comm or mpirun's environment says that there are any, or
 * takes the number of this one from the environment that torchrun sets. c->ranks becomes `r`. Rank
 * 0 alone writes files and talks: the others get no --json and so on, and what they say on stderr
 * appears only if they fail. false after a message on stderr. Leave in any case. */
bool cli_ranks_join(cli_ranks *r, cli *c);
/* Whether this process is one of several, and not rank 0. NULL: false. */
bool cli_ranks_follows(const cli_ranks *r);
/* Divides the dim B of the module among the ranks: cli_load gives this rank's part from here on. On
 * GPUs it also joins them. false after a message on stderr. */
bool cli_ranks_divide(cli_ranks *r, cli *c, const fp8c_module *module);
/* If this process failed, or only it knows of a signal, all others end too. Returns `code`. */
int cli_ranks_leave(cli_ranks *r, int code);
/* Whether a signal came to any rank: all get the same answer at once, and then have that signal
 * noted. Also if they can't be asked: r->lost. NULL: cli_interrupted. */
bool cli_ranks_stop(cli_ranks *r);

/* The same, and with it in one exchange: *flag becomes true if it is on any rank. */
bool cli_ranks_tell(cli_ranks *r, bool *flag);
/* Gives each rank the `bytes` bytes of all, in the order of the ranks. `what` names the exchange.
 * false after a message on stderr: r->lost. NULL: `all` gets those of this process alone. */
bool cli_ranks_gather(cli_ranks *r, const char *what, const void *mine, void *all, size_t bytes);

/* NULL: there is one rank. */
static inline cli_peers *cli_peers_of(const cli *c)
{
    return c->ranks ? c->ranks->peers : NULL;
}
/* Whether the ranks compare what all of them have, after this step: --check-ranks asks for it, or
 * the values are to be saved. */
bool cli_ranks_check(const cli *c, int64_t step, bool saved);

/* Whether all ranks give the same text; false after a message on stderr, which says `what` differs.
 * NULL: true. */
bool cli_ranks_agree(cli_ranks *r, const char *what, const char *text);

/* This rank's share of a batch of which it has B rows. */
f8_share cli_share_of(const cli *c, int64_t B);

#endif
