/* Other libraries in this process: see peer.h. */
#include "frontend/measure/peer.h"

#include <string.h>
#include <unistd.h>

#include "frontend/measure/peer_internal.h"
#include "runtime/base/pool.h"

enum { LIBRARIES = 5 };

struct f8_peers {
    f8_allocator allocator;
    f8_arena arena;
    pid_t process;
    f8_peer_library library[LIBRARIES];
    const char *about;
};

/* ---- the libraries ---- */

typedef f8_status open_function(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag);

/* A library without a way is closed at once. */
static f8_status open_one(open_function *open, const f8_peer_search *search, f8_peer_library *out,
                          f8_diag *diag)
{
    const f8_status status = open(search, out, diag);
    if (!out->n_ways && out->file.handle)
        out->close(out);
    return status;
}

static f8_status open_libraries(f8_peers *peers, const f8_peer_search *search, f8_diag *diag)
{
    static open_function *const known[] = {f8_peer_open_onednn, f8_peer_open_openblas,
                                           f8_peer_open_mkl, f8_peer_open_blis};
    const int n = sizeof known / sizeof *known;
    bool has_blas = false;
    for (int i = 0; i < n; i++) {
        F8_TRY(open_one(known[i], search, &peers->library[i], diag));
        has_blas |= i > 0 && peers->library[i].n_ways > 0;
    }
    /* It is often another name of one of those. */
    return has_blas ? F8_OK : open_one(f8_peer_open_cblas, search, &peers->library[n], diag);
}

static f8_status describe(f8_peers *peers, f8_diag *diag)
{
    peers->about = "";
    for (int i = 0; i < LIBRARIES && peers->about; i++)
        if (peers->library[i].n_ways)
            peers->about = f8_arena_printf(&peers->arena, "%s%s%s", peers->about,
                                           *peers->about ? ", " : "", peers->library[i].about);
    return f8_arena_status(&peers->arena, diag);
}

f8_status f8_peers_open_in(const f8_allocator *allocator, int threads, const char *const *folders,
                           f8_peers **out, f8_diag *diag)
{
    sigset_t before;
    const f8_allocator al = allocator ? *allocator : f8_default_allocator();
    f8_peers *peers = al.alloc(al.user, sizeof *peers, _Alignof(f8_peers));
    *out = NULL;
    if (!peers)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for other libraries", sizeof *peers);
    *peers = (f8_peers){.allocator = al, .process = getpid()};
    f8_arena_init(&peers->arena, &al);
    const f8_peer_search search = {folders, threads > 0 ? threads : f8_pool_usable_cpus(),
                                   &peers->arena};
    f8_signals_hold(&before); /* a CBLAS starts its threads when it is loaded */
    f8_status status = open_libraries(peers, &search, diag);
    f8_signals_release(&before);
    if (status == F8_OK)
        status = describe(peers, diag);
    if (status != F8_OK) {
        f8_peers_close(peers);
        return status;
    }
    *out = peers;
    return F8_OK;
}

f8_status f8_peers_open(const f8_allocator *allocator, int threads, f8_peers **out, f8_diag *diag)
{
    static const char *const folders[] = {"", NULL};
    return f8_peers_open_in(allocator, threads, folders, out, diag);
}

void f8_peers_close(f8_peers *peers)
{
    if (!peers)
        return;
    for (int i = LIBRARIES; i-- > 0;)
        if (peers->library[i].n_ways)
            peers->library[i].close(&peers->library[i]);
    const f8_allocator al = peers->allocator;
    f8_arena_end(&peers->arena);
    al.free(al.user, peers, sizeof *peers);
}

const char *f8_peers_describe(const f8_peers *peers)
{
    return peers->about;
}

/* The library of way number `index`, which becomes the library's own; NULL past the last. */
static const f8_peer_library *find_way(const f8_peers *peers, int *index)
{
    for (int i = 0; i < LIBRARIES && *index >= 0; i++) {
        if (*index < peers->library[i].n_ways)
            return &peers->library[i];
        *index -= peers->library[i].n_ways;
    }
    return NULL;
}

const char *f8_peers_way(const f8_peers *peers, int index, f8_dtype *dtype)
{
    const f8_peer_library *library = find_way(peers, &index);
    if (!library)
        return NULL;
    *dtype = library->way[index].dtype;
    return library->way[index].name;
}

/* ---- products ---- */

static f8_status check(const f8_peers *peers, const f8_peer_library *library,
                       const f8_peer_product *p, f8_diag *diag)
{
    if (!library)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "there is no such way");
    if (p->m < 1 || p->n < 1 || p->k < 1)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%lld x %lld x %lld: sizes are at least 1",
                       (long long)p->m, (long long)p->n, (long long)p->k);
    if (peers->process != getpid())
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "the libraries were opened by another process, which has their threads");
    return F8_OK;
}

f8_status f8_peer_prepare(f8_peers *peers, int index, const f8_peer_product *product,
                          f8_peer_gemm **out, f8_diag *diag)
{
    sigset_t signals;
    const f8_peer_library *library = find_way(peers, &index);
    *out = NULL;
    F8_TRY(check(peers, library, product, diag));
    const f8_allocator *al = &peers->allocator;
    f8_peer_gemm *gemm = al->alloc(al->user, sizeof *gemm, _Alignof(f8_peer_gemm));
    if (!gemm)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for a product", sizeof *gemm);
    *gemm = (f8_peer_gemm){.peers = peers, .library = library, .product = *product, .way = index};
    f8_signals_hold(&signals);
    const f8_openmp_threads before = f8_openmp_enter(&library->openmp, library->threads);
    const f8_status status = library->prepare(library, gemm, diag);
    f8_openmp_leave(&library->openmp, before, library->threads);
    f8_signals_release(&signals);
    if (status != F8_OK) {
        f8_peer_release(gemm);
        return status;
    }
    *out = gemm;
    return F8_OK;
}

void f8_peer_release(f8_peer_gemm *gemm)
{
    if (!gemm)
        return;
    const f8_allocator al = gemm->peers->allocator;
    if (gemm->library->release)
        gemm->library->release(gemm);
    al.free(al.user, gemm, sizeof *gemm);
}

f8_status f8_peer_run(f8_peer_gemm *gemm, const void *a, const void *b, float *c, f8_diag *diag)
{
    const f8_peer_library *library = gemm->library;
    sigset_t signals;
    F8_TRY(check(gemm->peers, library, &gemm->product, diag));
    if (library->moves_stack)
        f8_signals_hold(&signals);
    const f8_openmp_threads before = f8_openmp_enter(&library->openmp, library->threads);
    const f8_status status = library->run(gemm, a, b, c, diag);
    f8_openmp_leave(&library->openmp, before, library->threads);
    if (library->moves_stack)
        f8_signals_release(&signals);
    return status;
}
