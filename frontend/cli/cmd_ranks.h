/* Processes that train together: what the options say of them, and what stderr says
 * (../train/ranks/ joins and watches them), and each one's part of a batch. */
#ifndef F8_CMD_RANKS_H
#define F8_CMD_RANKS_H

#include <stdatomic.h>

#include "frontend/cli/cmd.h"
#include "frontend/train/data/share.h"
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
int cli_ranks_leave(cli_ranks *r, int code);
/* Whether a signal came to any rank: all get the same answer at once, and then have that signal
 * noted. Also if they can't be asked: r->lost. NULL: cli_interrupted. */
bool cli_ranks_stop(f8_ranks *r);

/* The same, and with it in one exchange: *flag becomes true if it is on any rank. */
bool cli_ranks_tell(f8_ranks *r, bool *flag);
/* The same as f8_ranks_gather, f8_ranks_agree and f8_peers_folder. false after a message on stderr,
 * of this rank or of another that has one. */
bool cli_ranks_gather(f8_ranks *r, const char *what, const void *mine, void *all, size_t bytes);
bool cli_ranks_agree(f8_ranks *r, const char *what, const char *text);
bool cli_ranks_folder(const cli *c, const char *folder);
/* Says the message, if there is one. Returns whether `status` is F8_OK. */
bool cli_ranks_said(f8_status status, const f8_diag *diag);

/* NULL: there is one rank. */
static inline f8_peers *cli_peers_of(const cli *c)
{
    return c->ranks ? c->ranks->peers : NULL;
}
/* Whether the ranks compare what all of them have, after this step: --check-ranks asks for it, or
 * the values are to be saved. */
bool cli_ranks_check(const cli *c, int64_t step, bool saved);

/* This rank's share of a batch of which it has B rows. */
f8_share cli_share_of(const cli *c, int64_t B);

#endif
