/* What peer.c and the libraries behind it share. */
#ifndef F8_MEASURE_PEER_INTERNAL_H
#define F8_MEASURE_PEER_INTERNAL_H

#include "frontend/measure/peer.h"
#include "runtime/cpu/openmp.h"

enum { F8_PEER_WAYS = 2 }; /* of one library: f32, and bf16 */

typedef struct f8_peer_library f8_peer_library;

/* A product that is ready. */
struct f8_peer_gemm {
    f8_peers *peers;
    const f8_peer_library *library;
    f8_peer_product product;
    int way;
    void *primitive, *memory[3]; /* oneDNN's */
};

/* A library that is open. peer.c calls its functions with `threads` set in its OpenMP, if it runs
 * on that, and prepare with signals held. */
struct f8_peer_library {
    const char *about; /* for f8_peers_describe */
    struct {
        const char *name;
        f8_dtype dtype;
    } way[F8_PEER_WAYS];
    int n_ways; /* 0: it is not here, or not whole */
    int threads;
    f8_dynlib file;
    f8_openmp openmp;
    bool moves_stack; /* signals must not come while it runs (runtime/cpu/gemm_onednn.h) */
    void *state;      /* its own, the arena's */
    /* What release must undo is undone by it, after a failure, too. */
    f8_status (*prepare)(const f8_peer_library *library, f8_peer_gemm *gemm, f8_diag *diag);
    f8_status (*run)(const f8_peer_gemm *gemm, const void *a, const void *b, float *c,
                     f8_diag *diag);
    void (*release)(f8_peer_gemm *gemm);     /* NULL: nothing is to be undone */
    void (*close)(f8_peer_library *library); /* if there is a file */
};

/* Where libraries are looked for, as f8_dynlib_search takes it, and for whom. */
typedef struct f8_peer_search {
    const char *const *folders;
    int threads;
    f8_arena *arena;
} f8_peer_search;

/* Open a library into zeros. F8_ERR_MEMORY; a library that is not here is no failure. */
f8_status f8_peer_open_onednn(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag);
f8_status f8_peer_open_openblas(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag);
f8_status f8_peer_open_mkl(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag);
f8_status f8_peer_open_blis(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag);
/* A CBLAS that says nothing of itself. */
f8_status f8_peer_open_cblas(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag);

/* f8_peers_open with other folders than the loader's own path. */
f8_status f8_peers_open_in(const f8_allocator *allocator, int threads, const char *const *folders,
                           f8_peers **out, f8_diag *diag);

/* What opening a library came to, as f8_peers_open sees it: only memory is a failure. */
static inline f8_status f8_peer_is_absent(f8_status status, const f8_diag *why, f8_diag *diag)
{
    return status == F8_ERR_MEMORY ? f8_fail(diag, status, F8_NOWHERE, "%s", why->text) : F8_OK;
}

#endif
