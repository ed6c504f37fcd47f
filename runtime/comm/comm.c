/* One collective: see comm.h. */
#include "runtime/comm/comm.h"

#include <string.h>

const char *const f8_collective_name[F8_COLLECTIVES] = {"all_gather", "all_to_all", "all_slice",
                                                        "all_reduce", "reduce_scatter"};

int64_t f8_collective_operand(const f8_collective_desc *d)
{
    switch (d->kind) {
    case F8_COLLECTIVE_ALL_GATHER:
    case F8_COLLECTIVE_ALL_REDUCE: break;
    case F8_COLLECTIVE_REDUCE_SCATTER:
    case F8_COLLECTIVE_ALL_TO_ALL: return d->bytes * d->ranks;
    case F8_COLLECTIVE_ALL_SLICE: return d->whole;
    }
    return d->bytes;
}

int64_t f8_collective_result(const f8_collective_desc *d)
{
    return d->kind == F8_COLLECTIVE_ALL_GATHER || d->kind == F8_COLLECTIVE_ALL_TO_ALL
               ? d->bytes * d->ranks
               : d->bytes;
}

bool f8_collective_adds(f8_collective kind)
{
    return kind == F8_COLLECTIVE_ALL_REDUCE || kind == F8_COLLECTIVE_REDUCE_SCATTER;
}

bool f8_collective_travels(f8_collective kind)
{
    return kind != F8_COLLECTIVE_ALL_SLICE;
}

static void all_slice(const f8_collective_desc *d, int rank, const void *whole, void *shard)
{
    const int64_t left = d->whole - rank * d->bytes, own = left < d->bytes ? left : d->bytes;
    const size_t copied = own > 0 ? (size_t)own : 0;
    memcpy(shard, (const uint8_t *)whole + (copied ? rank * d->bytes : 0), copied);
    memset((uint8_t *)shard + copied, 0, (size_t)d->bytes - copied);
}

static f8_status call(const f8_comm *c, const f8_collective_desc *d, const void *send,
                      void *receive, f8_diag *diag)
{
    switch (d->kind) {
    case F8_COLLECTIVE_ALL_GATHER: return c->all_gather(c->user, send, receive, d->bytes, diag);
    case F8_COLLECTIVE_ALL_TO_ALL: return c->all_to_all(c->user, send, receive, d->bytes, diag);
    case F8_COLLECTIVE_ALL_REDUCE: return c->all_reduce(c->user, send, receive, d->bytes, diag);
    case F8_COLLECTIVE_REDUCE_SCATTER:
        return c->reduce_scatter(c->user, send, receive, d->bytes, diag);
    case F8_COLLECTIVE_ALL_SLICE: break; /* exchanges nothing */
    }
    return F8_ERR_INTERNAL;
}

/* What two or more ranks exchange. */
static f8_status exchange(const f8_comm *comm, const f8_collective_desc *d,
                          f8_collective_label label, const void *send, void *receive, f8_diag *diag)
{
    const f8_exchange x = {f8_collective_name[d->kind], label.function, label.name, d->bytes, 0};
    if (comm->observe)
        comm->observe(comm->user, &x, false);
    const f8_status status = call(comm, d, send, receive, diag);
    if (comm->observe)
        comm->observe(comm->user, &x, true);
    return status;
}

f8_status f8_comm_gather(const f8_comm *comm, const char *name, const void *send, void *receive,
                         int64_t bytes, f8_diag *diag)
{
    const f8_collective_desc d = {
        .kind = F8_COLLECTIVE_ALL_GATHER, .ranks = comm->ranks, .bytes = bytes};
    return exchange(comm, &d, (f8_collective_label){NULL, name}, send, receive, diag);
}

f8_status f8_comm_run(const f8_comm *comm, const f8_collective_desc *d, f8_collective_label label,
                      const void *send, void *receive, f8_diag *diag)
{
    const int ranks = comm ? comm->ranks : 1;
    if (ranks != d->ranks)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program was compiled for %d ranks, but it runs on %d", (int)d->ranks,
                       ranks);
    if (d->kind == F8_COLLECTIVE_ALL_SLICE) {
        all_slice(d, comm ? comm->rank : 0, send, receive);
        return F8_OK;
    }
    if (!comm || ranks == 1) {
        memcpy(receive, send, (size_t)d->bytes);
        return F8_OK;
    }
    if (f8_collective_adds(d->kind) && (!comm->all_reduce || !comm->reduce_scatter))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program was compiled with reduce_order \"library\", but comm has no "
                       "all_reduce and reduce_scatter");
    return exchange(comm, d, label, send, receive, diag);
}
