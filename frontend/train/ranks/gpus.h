/* Processes that train together with a GPU each: which GPU, and joining them by NCCL. */
#ifndef F8_RANKS_GPUS_H
#define F8_RANKS_GPUS_H

#include "frontend/train/ranks/ranks.h"

/* Whether RANK and WORLD_SIZE are in the environment, as torchrun sets them, and say that there are
 * several processes. */
bool f8_gpus_started(int32_t *rank, int32_t *ranks);
/* The number of this process among those on its machine, as the launcher says; -1: it does not. */
int32_t f8_gpus_local_rank(const f8_ranks *r);
/* Joins the other processes by NCCL, this one with the GPU `device`: r->comm becomes one that
 * programs on a GPU take. They find each other by MPI if r->mpi is open, else by the environment.
 * F8_ERR_INPUT: the environment lacks an address; F8_ERR_IO: it can't be set; F8_ERR_LIBRARY: the
 * context has the message. */
f8_status f8_gpus_join(f8_ranks *r, int32_t device, f8_diag *diag);

#endif
