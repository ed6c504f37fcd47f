/* Processes that train together with a GPU each: which GPU, and joining them by NCCL. */
#ifndef F8_CMD_GPUS_H
#define F8_CMD_GPUS_H

#include "frontend/cli/cmd_ranks.h"

/* Whether the program is for GPUs. */
bool cli_gpus_wanted(const cli *c);
/* Whether RANK and WORLD_SIZE are in the environment, as torchrun sets them, and say that there are
 * several processes. */
bool cli_gpus_started(int32_t *rank, int32_t *ranks);
/* Joins the other processes by NCCL and chooses this one's GPU: c->device gets it, r->comm becomes
 * one that programs on a GPU take. They find each other by MPI if r->mpi is open, else by the
 * environment. false after a message on stderr. */
bool cli_gpus_join(cli_ranks *r, cli *c);

#endif
