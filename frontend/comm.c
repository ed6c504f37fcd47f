/* The caller's way to other ranks, as executors call it. */
#include "frontend/api.h"
#include "frontend/program.h"

static f8_status done(int failed, const char *what, const fp8c_comm *c, f8_diag *diag)
{
    return failed ? f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                            "rank %d of %d: %s of the caller's fp8c_comm failed with %d", c->rank,
                            c->ranks, what, failed)
                  : F8_OK;
}

static f8_status all_gather(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    const fp8c_comm *c = user;
    return done(c->all_gather(c->user, send, receive, (size_t)bytes), "all_gather", c, diag);
}

static f8_status all_to_all(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    const fp8c_comm *c = user;
    return done(c->all_to_all(c->user, send, receive, (size_t)bytes), "all_to_all", c, diag);
}

f8_status f8_program_set_comm(fp8c_program *p, const fp8c_comm *comm, f8_diag *diag)
{
    fp8c_comm own = {.struct_size = sizeof own};
    if (!comm)
        return F8_OK;
    F8_TRY(f8_api_options(&own, comm, "fp8c_comm", diag));
    if (own.ranks < 1 || own.ranks > F8_MAX_RANKS || own.rank < 0 || own.rank >= own.ranks)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "comm: rank %d of %d: ranks are 1 to %d, and each has a number below that",
                       own.rank, own.ranks, F8_MAX_RANKS);
    if (own.ranks > 1 && (!own.all_gather || !own.all_to_all))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "comm: all_gather and all_to_all are both needed");
    p->given_comm = own;
    p->comm = (f8_comm){own.rank, own.ranks, &p->given_comm, all_gather, all_to_all};
    return F8_OK;
}

const f8_comm *f8_program_comm(const fp8c_program *p)
{
    return p->comm.ranks ? &p->comm : NULL;
}
