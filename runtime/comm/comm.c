/* One collective: see comm.h. */
#include "runtime/comm/comm.h"

#include <string.h>

const char *const f8_collective_name[F8_COLLECTIVES] = {"all_gather", "all_to_all"};

int64_t f8_collective_sent(const f8_collective_desc *d)
{
    return d->kind == F8_COLLECTIVE_ALL_TO_ALL ? d->bytes * d->ranks : d->bytes;
}

int64_t f8_collective_received(const f8_collective_desc *d)
{
    return d->bytes * d->ranks;
}

f8_status f8_comm_run(const f8_comm *comm, const f8_collective_desc *d, const void *send,
                      void *receive, f8_diag *diag)
{
    const int ranks = comm ? comm->ranks : 1;
    if (ranks != d->ranks)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program was compiled for %d ranks, but it runs on %d", (int)d->ranks,
                       ranks);
    if (!comm || ranks == 1) {
        memcpy(receive, send, (size_t)d->bytes);
        return F8_OK;
    }
    return d->kind == F8_COLLECTIVE_ALL_GATHER
               ? comm->all_gather(comm->user, send, receive, d->bytes, diag)
               : comm->all_to_all(comm->user, send, receive, d->bytes, diag);
}
