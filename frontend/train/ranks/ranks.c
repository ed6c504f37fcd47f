/* Processes that train together: see ranks.h. */
#include "frontend/train/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/train/ranks/process.h"
#include "ir/base/type.h"

/* ---- joining ---- */

const char *f8_ranks_launcher(void)
{
    static const struct {
        const char *variable, *kind;
    } known[] = {{"OMPI_COMM_WORLD_SIZE", "openmpi"}, {"PMI_SIZE", "mpich"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *size = secure_getenv(known[i].variable);
        if (size && atoi(size) > 1)
            return known[i].kind;
    }
    return NULL;
}

static f8_status begin(f8_ranks *r, const f8_ranks_options *options, f8_diag *diag)
{
    *r = (f8_ranks){.options = options, .comm = {.struct_size = sizeof r->comm}};
    return f8_joining_begin(&r->joining, options, diag);
}

f8_status f8_ranks_join_mpi(f8_ranks *r, const f8_ranks_options *options, const char *kind,
                            f8_diag *diag)
{
    F8_TRY(begin(r, options, diag));
    f8_joining_wait(r->joining, F8_STAGE_JOINS_MPI);
    const bool ok = fp8c_mpi_open(options->ctx, kind, &r->comm, &r->mpi) == FP8C_OK;
    f8_joining_done(r->joining);
    if (!ok)
        return F8_ERR_LIBRARY;
    if (r->comm.ranks > 1)
        f8_joining_by(r->joining, r->mpi);
    return F8_OK;
}

f8_status f8_ranks_join_alone(f8_ranks *r, const f8_ranks_options *options, int32_t rank,
                              int32_t ranks, f8_diag *diag)
{
    F8_TRY(begin(r, options, diag));
    r->comm.rank = rank;
    r->comm.ranks = ranks;
    return F8_OK;
}

f8_status f8_ranks_watch(f8_ranks *r, f8_diag *diag)
{
    f8_joining_wait(r->joining, F8_STAGE_MEETS);
    const f8_status status = f8_peers_begin(&r->peers, &r->comm, r->mpi, r->options, r->path, diag);
    f8_joining_done(r->joining);
    return status;
}

/* ---- leaving ---- */

void f8_ranks_settle(f8_ranks *r, bool failed)
{
    f8_peers_end(r->peers, failed);
    r->peers = NULL;
}

void f8_ranks_leave(f8_ranks *r, int exit_code)
{
    if (exit_code && r->nccl)
        fp8c_nccl_abort(r->nccl);
    if (exit_code && r->mpi && r->comm.ranks > 1) {
        f8_wait_passed_on();
        fp8c_mpi_abort(r->mpi, exit_code);
    }
    f8_joining_by(r->joining, NULL); /* MPI_Abort beside MPI_Finalize can hang mpirun */
    f8_joining_wait(r->joining, F8_STAGE_LEAVES);
    fp8c_nccl_close(r->nccl);
    fp8c_mpi_close(r->mpi);
    f8_joining_end(r->joining);
}

/* ---- what ranks tell each other ---- */

bool f8_ranks_follows(const f8_ranks *r)
{
    return r && r->comm.rank > 0;
}

f8_status f8_ranks_gather(f8_ranks *r, const char *what, const void *mine, void *all, size_t bytes,
                          f8_diag *diag)
{
    if (!r) {
        memcpy(all, mine, bytes);
        return F8_OK;
    }
    if (r->lost)
        return F8_ERR_LIBRARY;
    f8_peers_name(r->peers, what);
    if (!r->comm.all_gather(r->comm.user, mine, all, bytes))
        return F8_OK;
    r->lost = true;
    const char *why = r->comm.message ? r->comm.message(r->comm.user) : NULL;
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "%s",
                   why ? why : "the ranks can't exchange bytes");
}

bool f8_ranks_tell(f8_ranks *r, bool *flag, f8_diag *diag)
{
    const f8_ranks_callbacks *call = &r->options->call;
    int32_t reason = call->stopped(call->user), all[F8_MAX_RANKS][2];
    const int32_t mine[2] = {reason, flag && *flag};
    if (f8_ranks_gather(r, "signals", mine, all, sizeof mine, diag) != F8_OK)
        return true;
    for (int i = 0; i < r->comm.ranks; i++) {
        reason = reason ? reason : all[i][0];
        if (flag)
            *flag |= all[i][1] != 0;
    }
    if (reason && !call->stopped(call->user))
        call->stop(call->user, reason);
    r->stopped |= reason != 0;
    return reason != 0;
}

f8_status f8_ranks_agree_facts(f8_ranks *r, const char *what, const f8_ranks_fact *mine, size_t n,
                               f8_diag *diag)
{
    const size_t ranks = (size_t)r->comm.ranks;
    f8_hash *all = calloc((ranks + 1) * n, sizeof *all), *own = all ? all + ranks * n : NULL;
    if (!all)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
    for (size_t i = 0; i < n; i++)
        own[i] = mine[i].hash;
    f8_status status = f8_ranks_gather(r, what, own, all, n * sizeof *own, diag);
    for (size_t i = 0; i < n; i++)
        for (size_t rank = 1; status == F8_OK && rank < ranks; rank++)
            if (!f8_hash_equal(all[rank * n + i], all[i])) {
                status =
                    f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                            "%s of rank %d differs from that of rank 0", mine[i].name, (int)rank);
                r->common = true;
            }
    free(all);
    return status;
}

f8_status f8_ranks_agree(f8_ranks *r, const char *what, const char *text, f8_diag *diag)
{
    if (!r)
        return F8_OK;
    const f8_ranks_fact fact = {what, f8_hash_bytes(text, strlen(text))};
    return f8_ranks_agree_facts(r, what, &fact, 1, diag);
}
