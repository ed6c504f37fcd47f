/* Processes with a GPU each: see cmd_gpus.h. */
#include "frontend/cli/cmd_gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole number of the environment, or -1. */
static long number(const char *variable)
{
    const char *text = secure_getenv(variable);
    char *end;
    const long n = text && *text ? strtol(text, &end, 10) : -1;
    return n >= 0 && !*end && n <= 1 << 20 ? n : -1;
}

bool cli_gpus_wanted(const cli *c)
{
    return c->target && (!strcmp(c->target, "cuda") || !strncmp(c->target, "sm_", 3));
}

bool cli_gpus_started(int32_t *rank, int32_t *ranks)
{
    const long r = number("RANK"), n = number("WORLD_SIZE");
    *rank = (int32_t)r;
    *ranks = (int32_t)n;
    return n > 1 && r >= 0 && r < n;
}

/* The number of this process among those on its machine; -1: unknown. */
static long local_rank(const cli_ranks *r)
{
    static const char *const of_mpi[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                         "SLURM_LOCALID"};
    for (size_t i = 0; r->mpi && i < sizeof of_mpi / sizeof *of_mpi; i++)
        if (number(of_mpi[i]) >= 0)
            return number(of_mpi[i]);
    return number("LOCAL_RANK");
}

static bool choose_device(const cli_ranks *r, cli *c)
{
    const long local = local_rank(r);
    if (c->given[CLI_AT_device])
        return true;
    if (local < 0)
        fprintf(stderr, "fp8c train: which GPU is this process's? The launcher does not say which "
                        "process of its machine it is (LOCAL_RANK); give --device N\n");
    else
        c->device = (int32_t)local;
    return local >= 0;
}

/* NCCL itself reads NCCL_COMM_ID. torchrun listens at MASTER_PORT, so NCCL takes the next one. */
static bool give_address(void)
{
    char address[300];
    const char *set = secure_getenv("NCCL_COMM_ID"), *host = secure_getenv("MASTER_ADDR");
    const long port = number("MASTER_PORT");
    if (set && *set)
        return true;
    if (!host || !*host || port < 1 || port > 65534) {
        fprintf(stderr, "fp8c train: the ranks can't find each other: MASTER_ADDR and MASTER_PORT, "
                        "or NCCL_COMM_ID=HOST:PORT, are to be in the environment\n");
        return false;
    }
    snprintf(address, sizeof address, strchr(host, ':') ? "[%.250s]:%ld" : "%.250s:%ld", host,
             port + 1);
    return setenv("NCCL_COMM_ID", address, 1) == 0;
}

/* NCCL gives up after what watches the ranks, which knows more (cmd_peers.h). */
static double limit_of(const cli *c)
{
    const double limit = cli_peers_limit(c);
    return limit > 0 ? limit + 30 : 1e9;
}

bool cli_gpus_join(cli_ranks *r, cli *c)
{
    fp8c_nccl_options o = {.struct_size = sizeof o};
    if (!choose_device(r, c) || (!r->mpi && !give_address()))
        return false;
    o.device = c->device;
    o.seconds = limit_of(c);
    o.over = r->mpi ? &r->comm : NULL;
    o.rank = r->mpi ? 0 : r->comm.rank;
    o.ranks = r->mpi ? 0 : r->comm.ranks;
    cli_joining_wait(r->joining, CLI_JOINS_GPUS);
    const bool ok = fp8c_nccl_open(r->ctx, &o, &r->nccl) == FP8C_OK;
    cli_joining_done(r->joining);
    if (!ok) {
        cli_fail(r->ctx);
        return false;
    }
    return fp8c_nccl_comm(r->nccl, &r->comm) == FP8C_OK;
}
