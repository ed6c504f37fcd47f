/* MPI through a shim: see mpi.h. */
#include "runtime/comm/mpi.h"

#include <stdio.h>
#include <string.h>

#include "runtime/comm/shim/shim.h"

const char *const f8_mpi_kind_name[F8_MPI_KINDS] = {"openmpi", "mpich"};

struct f8_mpi {
    f8_allocator allocator;
    f8_dynlib lib;
    const f8_mpi_shim *shim;
    f8_mpi_job job;
    f8_comm comm;
};

/* ---- the calls ---- */

static f8_status done(const f8_mpi *m, int failed, const char *why, f8_diag *diag)
{
    return failed ? f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "rank %d of %d: %s", m->job.rank,
                            m->job.ranks, why)
                  : F8_OK;
}

static f8_status all_gather(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    f8_mpi *m = user;
    char why[F8_SHIM_WHY] = "";
    return done(m, m->shim->all_gather(&m->job, send, receive, bytes, why), why, diag);
}

static f8_status all_to_all(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    f8_mpi *m = user;
    char why[F8_SHIM_WHY] = "";
    return done(m, m->shim->all_to_all(&m->job, send, receive, bytes, why), why, diag);
}

static f8_status all_reduce(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    f8_mpi *m = user;
    char why[F8_SHIM_WHY] = "";
    const int64_t n = bytes / (int64_t)sizeof(float);
    return done(m, m->shim->all_reduce(&m->job, send, receive, n, why), why, diag);
}

static f8_status reduce_scatter(void *user, const void *send, void *receive, int64_t bytes,
                                f8_diag *diag)
{
    f8_mpi *m = user;
    char why[F8_SHIM_WHY] = "";
    const int64_t n = bytes / (int64_t)sizeof(float);
    return done(m, m->shim->reduce_scatter(&m->job, send, receive, n, why), why, diag);
}

/* ---- opening ---- */

f8_status f8_mpi_find(const char *kind, f8_arena *arena, f8_mpi_places *out, f8_diag *diag)
{
    const char *own = f8_dynlib_own_folder(arena);
    static const char *const below[] = {"", "/fp8c", "/../lib/fp8c", "/../lib64/fp8c",
                                        "/../lib/x86_64-linux-gnu/fp8c"};
    _Static_assert(sizeof below / sizeof *below < sizeof out->folder / sizeof *out->folder, "room");
    int n = 0;
    *out = (f8_mpi_places){.name = {NULL}};
    for (int i = 0; i < F8_MPI_KINDS; i++)
        if (!kind || !strcmp(kind, f8_mpi_kind_name[i]))
            out->name[n++] = f8_arena_printf(arena, "fp8c_mpi_%s.so", f8_mpi_kind_name[i]);
    for (size_t i = 0; own && i < sizeof below / sizeof *below; i++)
        out->folder[i] = f8_arena_printf(arena, "%s%s", own, below[i]);
    F8_TRY(f8_arena_status(arena, diag));
    if (!n)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no MPI is named '%s': there are %s and %s",
                       kind, f8_mpi_kind_name[0], f8_mpi_kind_name[1]);
    return own ? F8_OK
               : f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                         "MPI: /proc/self/maps does not say where this program lies, and so where "
                         "%s is",
                         out->name[0]);
}

const char *f8_mpi_refused(const f8_dynlib *shim, f8_arena *arena)
{
    return f8_dynlib_find(shim, F8_MPI_SHIM_SYMBOL)
               ? NULL
               : f8_arena_printf(arena, "%s is no shim of fp8c", shim->name);
}

static f8_status find_shim(f8_mpi *m, const char *kind, f8_arena *arena, f8_diag *diag)
{
    const char *why = "";
    f8_mpi_places at;
    F8_TRY(f8_mpi_find(kind, arena, &at, diag));
    F8_TRY(f8_dynlib_search("MPI", at.name, at.folder, arena, &m->lib, &why, diag));
    why = f8_mpi_refused(&m->lib, arena);
    F8_TRY(f8_arena_status(arena, diag));
    if (why)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "%s", why);
    const f8_mpi_shim *(*table)(void);
    void *symbol = f8_dynlib_find(&m->lib, F8_MPI_SHIM_SYMBOL);
    memcpy(&table, &symbol, sizeof table);
    m->shim = table();
    return F8_OK;
}

static f8_status join(f8_mpi *m, const char *kind, f8_diag *diag)
{
    f8_arena arena;
    char why[F8_SHIM_WHY] = "";
    f8_arena_init(&arena, &m->allocator);
    const f8_status status = find_shim(m, kind, &arena, diag);
    m->lib.name = m->lib.refused = NULL;
    f8_arena_end(&arena);
    F8_TRY(status);
    if (m->shim->begin(&m->job, why))
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "MPI: %s", why);
    m->comm = (f8_comm){.rank = m->job.rank,
                        .ranks = m->job.ranks,
                        .user = m,
                        .all_gather = all_gather,
                        .all_to_all = all_to_all,
                        .all_reduce = all_reduce,
                        .reduce_scatter = reduce_scatter};
    return F8_OK;
}

f8_status f8_mpi_open(const char *kind, const f8_allocator *allocator, f8_mpi **out, f8_diag *diag)
{
    *out = NULL;
    f8_mpi *m = allocator->alloc(allocator->user, sizeof *m, 16);
    if (!m)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *m);
    *m = (f8_mpi){.allocator = *allocator};
    const f8_status status = join(m, kind, diag);
    if (status != F8_OK)
        f8_mpi_close(m);
    else
        *out = m;
    return status;
}

void f8_mpi_close(f8_mpi *m)
{
    if (!m)
        return;
    if (m->shim)
        m->shim->end(&m->job);
    f8_dynlib_close(&m->lib);
    const f8_allocator allocator = m->allocator;
    allocator.free(allocator.user, m, sizeof *m);
}

const f8_comm *f8_mpi_comm(const f8_mpi *m)
{
    return &m->comm;
}

void f8_mpi_abort(f8_mpi *m, int code)
{
    m->shim->abort(code);
}
