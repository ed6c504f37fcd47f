/* Processes with a GPU each: see gpus.h. */
#include "frontend/train/ranks/gpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/format.h"

/* A whole number of the environment, or -1. */
static long number(const char *variable)
{
    const char *text = secure_getenv(variable);
    char *end;
    const long n = text && *text ? strtol(text, &end, 10) : -1;
    return n >= 0 && !*end && n <= 1 << 20 ? n : -1;
}

bool f8_gpus_started(int32_t *rank, int32_t *ranks)
{
    const long r = number("RANK"), n = number("WORLD_SIZE");
    *rank = (int32_t)r;
    *ranks = (int32_t)n;
    return n > 1 && r >= 0 && r < n;
}

int32_t f8_gpus_local_rank(const f8_ranks *r)
{
    static const char *const of_mpi[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                         "SLURM_LOCALID"};
    for (size_t i = 0; r->mpi && i < sizeof of_mpi / sizeof *of_mpi; i++)
        if (number(of_mpi[i]) >= 0)
            return (int32_t)number(of_mpi[i]);
    return (int32_t)number("LOCAL_RANK");
}

/* NCCL itself reads NCCL_COMM_ID. torchrun listens at MASTER_PORT, so NCCL takes the next one. */
static f8_status give_address(f8_diag *diag)
{
    char address[300];
    const char *set = secure_getenv("NCCL_COMM_ID"), *host = secure_getenv("MASTER_ADDR");
    const long port = number("MASTER_PORT");
    if (set && *set)
        return F8_OK;
    if (!host || !*host || port < 1 || port > 65534)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the ranks can't find each other: MASTER_ADDR and MASTER_PORT, or "
                       "NCCL_COMM_ID=HOST:PORT, are to be in the environment");
    snprintf(address, sizeof address, strchr(host, ':') ? "[%.250s]:%ld" : "%.250s:%ld", host,
             port + 1);
    return setenv("NCCL_COMM_ID", address, 1)
               ? f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "NCCL_COMM_ID can't be set: %s",
                         f8_errno_text(errno))
               : F8_OK;
}

/* NCCL gives up after what watches the ranks, which knows more (peers.h). */
static double limit_of(const f8_ranks *r)
{
    const double limit = r->options->limit;
    return limit > 0 ? limit + 30 : 1e9;
}

f8_status f8_gpus_join(f8_ranks *r, int32_t device, f8_diag *diag)
{
    fp8c_nccl_options o = {.struct_size = sizeof o, .device = device, .seconds = limit_of(r)};
    if (!r->mpi)
        F8_TRY(give_address(diag));
    o.over = r->mpi ? &r->comm : NULL;
    o.rank = r->mpi ? 0 : r->comm.rank;
    o.ranks = r->mpi ? 0 : r->comm.ranks;
    f8_joining_wait(r->joining, F8_STAGE_JOINS_GPUS);
    const bool ok = fp8c_nccl_open(r->options->ctx, &o, &r->comm, &r->nccl) == FP8C_OK;
    f8_joining_done(r->joining);
    return ok ? F8_OK : F8_ERR_LIBRARY;
}
