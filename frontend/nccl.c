/* Ranks with a GPU each, joined by NCCL: fp8c_nccl_* of the API. */
#include <string.h>

#include "frontend/api.h"
#include "frontend/program.h"
#include "runtime/cuda/nccl.h"

struct fp8c_nccl {
    fp8c_context *ctx;
    f8_cuda *cuda;
    f8_nccl *nccl;
    fp8c_comm over;    /* ranks 0: none */
    fp8c_comm seen_by; /* of the newest program: its `observe` */
    f8_diag diag;      /* of the last call */
};

_Static_assert((int)FP8C_NCCL_ID == (int)F8_NCCL_ID, "an id is as long in the API");

/* ---- how ranks find each other ---- */

static f8_status over_failed(const fp8c_comm *over, f8_diag *diag)
{
    const char *why = over->message ? over->message(over->user) : NULL;
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                   "rank %d of %d: joining over another way: all_gather%s%s", over->rank,
                   over->ranks, why ? ": " : " failed", why ? why : "");
}

/* What a rank says before all of them join: rank 0's id, and whether it can join at all. Else the
 * others would wait for a rank that has no GPU or no NCCL. */
typedef struct hello {
    char id[F8_NCCL_ID];
    int32_t failed;
} hello;

static f8_status exchange_id(fp8c_nccl *n, f8_status ready, void *id, f8_diag *diag)
{
    const fp8c_comm *over = &n->over;
    hello mine = {.failed = ready != F8_OK};
    if (ready == F8_OK && over->rank == 0) {
        ready = f8_nccl_id(n->cuda, mine.id, diag);
        mine.failed = ready != F8_OK;
    }
    const size_t bytes = (size_t)over->ranks * sizeof(hello);
    hello *all = f8_api_new(n->ctx, bytes, _Alignof(hello), diag);
    if (!all)
        return F8_ERR_MEMORY;
    f8_status status = ready;
    if (over->all_gather(over->user, &mine, all, sizeof mine) && status == F8_OK)
        status = over_failed(over, diag);
    for (int r = 0; r < over->ranks && status == F8_OK; r++)
        if (all[r].failed)
            status = f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                             "rank %d of %d: rank %d can't join the others with its GPU; it says "
                             "why",
                             over->rank, over->ranks, r);
    memcpy(id, all[0].id, F8_NCCL_ID);
    f8_api_delete(n->ctx, all, bytes);
    return status;
}

static f8_status take_device(fp8c_nccl *n, int device, f8_diag *diag)
{
    f8_cuda *cuda;
    if (device < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "device %d: an ordinal is 0 or more",
                       device);
    F8_TRY(f8_api_take_gpu(n->ctx, device, &cuda, diag));
    n->cuda = cuda;
    F8_TRY(f8_cuda_device(cuda, device, diag));
    return f8_nccl_present(cuda, diag);
}

static f8_status check_options(const fp8c_nccl_options *o, f8_diag *diag)
{
    const bool by_environment = !o->over && !o->id;
    if (o->over && (o->id || o->rank || o->ranks))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "fp8c_nccl_options: `over` has the rank and brings the id; give no others");
    if (by_environment && o->ranks > 1 && !f8_nccl_has_address())
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "fp8c_nccl_options: the ranks can't find each other: give `over`, or `id`, "
                       "or NCCL_COMM_ID=HOST:PORT in the environment");
    return F8_OK;
}

static f8_status open_nccl(fp8c_nccl *n, const fp8c_nccl_options *options, f8_diag *diag)
{
    fp8c_nccl_options o = {.struct_size = sizeof o};
    fp8c_comm over = {.struct_size = sizeof over};
    char id[F8_NCCL_ID];
    F8_TRY(f8_api_options(&o, options, "fp8c_nccl_options", diag));
    F8_TRY(check_options(&o, diag));
    if (o.over)
        F8_TRY(f8_api_options(&over, o.over, "fp8c_comm", diag));
    if (o.over && (over.ranks < 1 || over.rank < 0 || over.rank >= over.ranks || !over.all_gather))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "fp8c_nccl_options: `over` is incomplete");
    f8_status status = take_device(n, o.device, diag);
    if (o.over) {
        n->over = over;
        status = exchange_id(n, status, id, diag);
    } else if (status == F8_OK && o.id) {
        memcpy(id, o.id, sizeof id);
    } else if (status == F8_OK) {
        status = f8_nccl_id(n->cuda, id, diag);
    }
    F8_TRY(status);
    const f8_nccl_options join = {.rank = o.over ? over.rank : o.rank,
                                  .ranks = o.over ? over.ranks : o.ranks,
                                  .id = id,
                                  .seconds = o.seconds,
                                  .allocator = &n->ctx->allocator};
    return f8_nccl_create(n->cuda, &join, &n->nccl, diag);
}

/* ---- handles ---- */

void fp8c_nccl_close(fp8c_nccl *n)
{
    if (!n)
        return;
    f8_nccl_destroy(n->nccl);
    if (n->cuda)
        f8_api_give_gpu(n->ctx, n->cuda);
    f8_api_delete(n->ctx, n, sizeof *n);
}

void fp8c_nccl_abort(fp8c_nccl *n)
{
    f8_nccl_abort(n->nccl, "fp8c_nccl_abort was called");
}

fp8c_status fp8c_nccl_id(fp8c_context *ctx, void *id)
{
    f8_diag diag = {0};
    f8_cuda *cuda;
    f8_status status = f8_api_take_gpu(ctx, 0, &cuda, &diag);
    if (status == F8_OK) {
        status = f8_nccl_id(cuda, id, &diag);
        f8_api_give_gpu(ctx, cuda);
    }
    return f8_api_result(ctx, &diag, status);
}

/* ---- host memory ---- */

static int gather(void *user, const void *send, void *receive, size_t bytes)
{
    fp8c_nccl *n = user;
    const f8_comm *c = f8_nccl_comm(n->nccl);
    n->diag = (f8_diag){0};
    if (n->over.ranks)
        return n->over.all_gather(n->over.user, send, receive, bytes);
    return c->all_gather(c->user, send, receive, (int64_t)bytes, &n->diag) != F8_OK;
}

static int to_all(void *user, const void *send, void *receive, size_t bytes)
{
    fp8c_nccl *n = user;
    const f8_comm *c = f8_nccl_comm(n->nccl);
    n->diag = (f8_diag){0};
    if (n->over.ranks && n->over.all_to_all)
        return n->over.all_to_all(n->over.user, send, receive, bytes);
    return c->all_to_all(c->user, send, receive, (int64_t)bytes, &n->diag) != F8_OK;
}

static const char *message(void *user)
{
    const fp8c_nccl *n = user;
    if (n->diag.status != F8_OK)
        return n->diag.text;
    return n->over.message ? n->over.message(n->over.user) : NULL;
}

fp8c_status fp8c_nccl_open(fp8c_context *ctx, const fp8c_nccl_options *options, fp8c_comm *comm,
                           fp8c_nccl **out)
{
    f8_diag diag = {0};
    fp8c_nccl *n = f8_api_new(ctx, sizeof *n, _Alignof(fp8c_nccl), &diag);
    *out = NULL;
    if (!n)
        return f8_api_result(ctx, &diag, diag.status);
    n->ctx = ctx;
    const f8_status status = open_nccl(n, options, &diag);
    if (status != F8_OK) {
        f8_api_result(ctx, &diag, status);
        fp8c_nccl_close(n);
        return (fp8c_status)status;
    }
    const fp8c_comm own = {.struct_size = sizeof own,
                           .rank = f8_nccl_rank(n->nccl),
                           .ranks = f8_nccl_ranks(n->nccl),
                           .user = n,
                           .all_gather = gather,
                           .all_to_all = to_all,
                           .message = message,
                           .nccl = n};
    f8_api_give(comm, &own);
    *out = n;
    return FP8C_OK;
}

/* ---- programs ---- */

f8_status f8_nccl_handle_fits(const fp8c_nccl *n, const fp8c_comm *comm, f8_diag *diag)
{
    const int rank = f8_nccl_rank(n->nccl), ranks = f8_nccl_ranks(n->nccl);
    return rank == comm->rank && ranks == comm->ranks
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         "comm: it is rank %d of %d, but its nccl is rank %d of %d", comm->rank,
                         comm->ranks, rank, ranks);
}

static void observe(void *user, const f8_exchange *x, bool ended)
{
    const fp8c_nccl *n = user;
    const fp8c_exchange own = {x->op, x->function, x->name, x->bytes, x->enqueued};
    n->seen_by.observe(n->seen_by.user, &own, ended);
}

void f8_nccl_handle_observe(fp8c_nccl *n, const fp8c_comm *comm)
{
    n->seen_by = *comm;
    f8_nccl_observe(n->nccl, comm->observe ? observe : NULL, n);
}

f8_status f8_program_nccl(const fp8c_program *p, f8_nccl **out, f8_diag *diag)
{
    *out = NULL;
    if (p->comm.ranks <= 1) /* 0: there is no comm */
        return F8_OK;
    if (!p->given_comm.nccl)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "comm exchanges host memory; a GPU's collectives go to NCCL: give the comm "
                       "of fp8c_nccl_open, whose `over` can be this one");
    *out = p->given_comm.nccl->nccl;
    return F8_OK;
}
