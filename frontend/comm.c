/* The caller's way to other ranks, as executors call it; and MPI as such a way. */
#include <string.h>

#include "frontend/api.h"
#include "frontend/options.h"
#include "frontend/program.h"
#include "runtime/comm/mpi.h"

static f8_status done(int failed, const char *what, const fp8c_comm *c, f8_diag *diag)
{
    const char *why = failed && c->message ? c->message(c->user) : NULL;
    if (why)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "rank %d of %d: %s: %s", c->rank, c->ranks,
                       what, why);
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

static f8_status all_reduce(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    const fp8c_comm *c = user;
    const size_t n = (size_t)bytes / sizeof(float);
    return done(c->all_reduce(c->user, send, receive, n), "all_reduce", c, diag);
}

static f8_status reduce_scatter(void *user, const void *send, void *receive, int64_t bytes,
                                f8_diag *diag)
{
    const fp8c_comm *c = user;
    const size_t n = (size_t)bytes / sizeof(float);
    return done(c->reduce_scatter(c->user, send, receive, n), "reduce_scatter", c, diag);
}

static void observe(void *user, const f8_exchange *x, bool ended)
{
    const fp8c_comm *c = user;
    const fp8c_exchange own = {x->op, x->function, x->name, x->bytes, x->enqueued};
    c->observe(c->user, &own, ended);
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
    if (!own.all_reduce != !own.reduce_scatter)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "comm: give both all_reduce and reduce_scatter, or neither");
    if (own.nccl && own.ranks > 1) {
        F8_TRY(f8_nccl_handle_fits(own.nccl, &own, diag));
        f8_nccl_handle_observe(own.nccl, &own);
    }
    p->given_comm = own;
    p->comm = (f8_comm){.rank = own.rank,
                        .ranks = own.ranks,
                        .user = &p->given_comm,
                        .all_gather = all_gather,
                        .all_to_all = all_to_all,
                        .all_reduce = own.all_reduce ? all_reduce : NULL,
                        .reduce_scatter = own.reduce_scatter ? reduce_scatter : NULL,
                        .on_caller = own.on_caller != 0,
                        .observe = own.observe ? observe : NULL};
    return F8_OK;
}

const f8_comm *f8_program_comm(const fp8c_program *p)
{
    return p->comm.ranks ? &p->comm : NULL;
}

/* ---- what ranks have in common ---- */

static int add_text(void *user, const char *text, size_t size)
{
    f8_hasher_add(user, text, size);
    return 0;
}

f8_status f8_program_note_module(fp8c_program *p, const f8_module *m, const fp8c_compile_options *o,
                                 f8_diag *diag)
{
    f8_hasher h;
    if (!f8_program_comm(p))
        return F8_OK;
    f8_hasher_begin(&h);
    f8_hasher_add(&h, fp8c_version(), strlen(fp8c_version()) + 1);
    f8_options_hash(o, &h);
    const f8_writer writer = {add_text, &h};
    const f8_status status = f8_print_module(m, &writer);
    if (status != F8_OK)
        return f8_fail(diag, status, F8_NOWHERE, "out of memory");
    p->digest = f8_hasher_end(&h);
    return F8_OK;
}

void f8_program_note_file(fp8c_program *p, const void *bytes, size_t size)
{
    if (f8_program_comm(p))
        p->digest = f8_hash_bytes(bytes, size);
}

/* Whether all ranks run the function together. Of the interpreter's plan, which has no steps, every
 * function counts. */
static bool is_common(const fp8c_program *p, int function)
{
    const f8_plan_func *f = &p->now->plan.func[function];
    bool common = f->n_steps == 0;
    for (uint32_t i = 0; i < f->n_steps && !common; i++)
        common = f->step[i].kind == F8_STEP_COLLECTIVE;
    return common;
}

/* The program's digest and its steps in order: a budget or no_fuse changes when gradients are
 * exchanged, and two of one size would be taken for each other. The functions with a dot in their
 * names, of statistics, may be one rank's alone. */
static f8_hash digest_of_steps(const fp8c_program *p)
{
    f8_hasher h;
    f8_hasher_begin(&h);
    f8_hasher_add(&h, &p->digest, sizeof p->digest);
    for (uint32_t i = 0; i < p->now->plan.n_funcs; i++) {
        const f8_plan_func *f = &p->now->plan.func[i];
        for (uint32_t k = 0; k < f->n_steps && !strchr(f->name, '.'); k++) {
            const f8_step *s = &f->step[k];
            f8_hasher_add(&h, s->name, strlen(s->name) + 1);
            if (s->kind == F8_STEP_COLLECTIVE)
                f8_hasher_add(&h, &s->collective.bytes, sizeof s->collective.bytes);
        }
    }
    return f8_hasher_end(&h);
}

f8_status f8_program_meet(fp8c_program *p, int function, f8_diag *diag)
{
    const f8_comm *c = f8_program_comm(p);
    f8_hash all[F8_MAX_RANKS];
    if (!c || p->met || c->ranks == 1 || !is_common(p, function))
        return F8_OK;
    const f8_hash own = digest_of_steps(p);
    F8_TRY(f8_comm_gather(c, "hash of the program", &own, all, sizeof own, diag));
    for (int r = 1; r < c->ranks; r++)
        if (!f8_hash_equal(all[r], all[0]))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "rank %d runs another program than rank 0: the module, the recipe, the "
                           "options or the version of fp8c differ",
                           r);
    p->met = true;
    return F8_OK;
}

/* ---- MPI ---- */

struct fp8c_mpi {
    fp8c_context *ctx;
    f8_mpi *mpi;
    f8_diag diag; /* of the last call */
};

static int mpi_all_gather(void *user, const void *send, void *receive, size_t bytes)
{
    fp8c_mpi *m = user;
    const f8_comm *c = f8_mpi_comm(m->mpi);
    m->diag = (f8_diag){0};
    return c->all_gather(c->user, send, receive, (int64_t)bytes, &m->diag) != F8_OK;
}

static int mpi_all_to_all(void *user, const void *send, void *receive, size_t bytes)
{
    fp8c_mpi *m = user;
    const f8_comm *c = f8_mpi_comm(m->mpi);
    m->diag = (f8_diag){0};
    return c->all_to_all(c->user, send, receive, (int64_t)bytes, &m->diag) != F8_OK;
}

static int mpi_all_reduce(void *user, const float *send, float *receive, size_t n)
{
    fp8c_mpi *m = user;
    const f8_comm *c = f8_mpi_comm(m->mpi);
    m->diag = (f8_diag){0};
    return c->all_reduce(c->user, send, receive, (int64_t)(n * sizeof *send), &m->diag) != F8_OK;
}

static int mpi_reduce_scatter(void *user, const float *send, float *receive, size_t n)
{
    fp8c_mpi *m = user;
    const f8_comm *c = f8_mpi_comm(m->mpi);
    m->diag = (f8_diag){0};
    return c->reduce_scatter(c->user, send, receive, (int64_t)(n * sizeof *send), &m->diag) !=
           F8_OK;
}

static const char *mpi_message(void *user)
{
    return ((fp8c_mpi *)user)->diag.text;
}

fp8c_status fp8c_mpi_open(fp8c_context *ctx, const char *kind, fp8c_comm *comm, fp8c_mpi **out)
{
    f8_diag diag = {0};
    fp8c_mpi *m = f8_api_new(ctx, sizeof *m, _Alignof(fp8c_mpi), &diag);
    *out = NULL;
    if (!m)
        return f8_api_result(ctx, &diag, diag.status);
    m->ctx = ctx;
    const f8_status status = f8_mpi_open(kind, &ctx->allocator, &m->mpi, &diag);
    const fp8c_status result = f8_api_result(ctx, &diag, status);
    if (status != F8_OK) {
        fp8c_mpi_close(m);
        return result;
    }
    const f8_comm *c = f8_mpi_comm(m->mpi);
    const fp8c_comm own = {.struct_size = sizeof own,
                           .rank = c->rank,
                           .ranks = c->ranks,
                           .user = m,
                           .all_gather = mpi_all_gather,
                           .all_to_all = mpi_all_to_all,
                           .all_reduce = mpi_all_reduce,
                           .reduce_scatter = mpi_reduce_scatter,
                           .message = mpi_message};
    f8_api_give(comm, &own);
    *out = m;
    return FP8C_OK;
}

void fp8c_mpi_close(fp8c_mpi *m)
{
    if (!m)
        return;
    f8_mpi_close(m->mpi);
    f8_api_delete(m->ctx, m, sizeof *m);
}

void fp8c_mpi_abort(fp8c_mpi *m, int exit_code)
{
    f8_mpi_abort(m->mpi, exit_code);
}
