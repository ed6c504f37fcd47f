/* Processes that train together: who prints, what stderr says, and how a job ends. train/join.c
 * joins them by the options. */
#ifndef F8_CLI_RANKS_H
#define F8_CLI_RANKS_H

#include <stdatomic.h>

#include "frontend/cli/cli.h"
#include "frontend/train/ranks/ranks.h"

typedef struct cli_ranks {
    f8_ranks joined;
    f8_ranks_options options; /* its ctx is this one's own */
    atomic_int messages;      /* of ranks above 0: stderr as it was; what they say there is kept. A
                                 thread that watches reads it */
} cli_ranks;

/* Joins the processes of an MPI job, if --comm or mpirun's environment says that there are any, or
 * takes the number of this one from the environment that torchrun sets. c->ranks becomes those of
 * `r`. Rank 0 alone writes files and talks: the others get no --json and so on, and what they say
 * on stderr appears only if they fail. false after a message on stderr. Leave in any case. */
bool cli_ranks_join(cli_ranks *r, cli *c);
/* Divides the dim B of the module among the ranks: cli_load gives this rank's part from here on. On
 * GPUs it also joins them. false after a message on stderr. */
bool cli_ranks_divide(f8_ranks *r, cli *c, const fp8c_module *module);
/* If this process failed, or only it knows of a signal, all others end too. Returns `code`. */
int cli_ranks_leave(cli_ranks *r, const cli *c, int code);
/* Whether a signal came to any rank: all get the same answer at once, and then have that signal
 * noted. Also if they can't be asked: c->ranks->lost. One process: whether one came to it. */
bool cli_ranks_stop(const cli *c);

#endif
