/* Libraries with a CBLAS of 32-bit integers: OpenBLAS, MKL, BLIS, and any other. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/measure/peer_internal.h"
#include "runtime/base/dynlib.h"

/* CBLAS's numbers for row-major, as stored, transposed. */
enum { ROW_MAJOR = 101, AS_STORED = 111, TRANSPOSED = 112 };

/* cblas_sgemm, and the products of bf16 with sums in f32, whose operands are uint16_t. */
typedef void cblas_gemm(int layout, int trans_a, int trans_b, int m, int n, int k, float alpha,
                        const void *a, int lda, const void *b, int ldb, float beta, float *c,
                        int ldc);

/* The library's own number of threads. It is the process's, so close puts it back. */
typedef struct thread_count {
    const char *set, *get;
    bool is_long; /* BLIS's numbers are of 64 bits */
} thread_count;

typedef struct cblas {
    cblas_gemm *gemm[F8_PEER_WAYS];
    void *set, *get; /* NULL: it has none */
    bool is_long;
    int64_t before;
} cblas;

/* ---- a product ---- */

static f8_status prepare(const f8_peer_library *library, f8_peer_gemm *gemm, f8_diag *diag)
{
    const f8_peer_product *p = &gemm->product;
    if (p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX)
        return F8_OK;
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "%s takes no size above %d, and this is %lld x %lld x %lld",
                   library->way[gemm->way].name, INT_MAX, (long long)p->m, (long long)p->n,
                   (long long)p->k);
}

static f8_status run(const f8_peer_gemm *gemm, const void *a, const void *b, float *c,
                     f8_diag *diag)
{
    (void)diag; /* a CBLAS reports no failure */
    const cblas *blas = gemm->library->state;
    const f8_peer_product *p = &gemm->product;
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    blas->gemm[gemm->way](ROW_MAJOR, p->trans_a ? TRANSPOSED : AS_STORED,
                          p->trans_b ? TRANSPOSED : AS_STORED, m, n, k, 1.0f, a, p->trans_a ? m : k,
                          b, p->trans_b ? k : n, p->accumulate ? 1.0f : 0.0f, c, n);
    return F8_OK;
}

/* ---- a library ---- */

static void set_threads(const cblas *blas, int64_t threads)
{
    void (*set)(int);
    void (*set_long)(int64_t);
    if (blas->is_long) {
        memcpy(&set_long, &blas->set, sizeof set_long);
        set_long(threads);
    } else {
        memcpy(&set, &blas->set, sizeof set);
        set((int)threads);
    }
}

static int64_t get_threads(const cblas *blas)
{
    int (*get)(void);
    int64_t (*get_long)(void);
    if (blas->is_long) {
        memcpy(&get_long, &blas->get, sizeof get_long);
        return get_long();
    }
    memcpy(&get, &blas->get, sizeof get);
    return get();
}

static void close_library(f8_peer_library *library)
{
    const cblas *blas = library->state;
    if (blas->set)
        set_threads(blas, blas->before);
    f8_dynlib_close(&library->file);
}

static void add_way(f8_peer_library *library, const char *symbol, const char *name, f8_dtype dtype)
{
    cblas *blas = library->state;
    void *gemm = f8_dynlib_find(&library->file, symbol);
    if (!gemm)
        return;
    memcpy(&blas->gemm[library->n_ways], &gemm, sizeof gemm);
    library->way[library->n_ways].name = name;
    library->way[library->n_ways++].dtype = dtype;
}

/* Tell the library its threads. One whose number of threads can't be set is no peer, unless it is
 * one of which nothing is known. */
static f8_status start(f8_peer_library *library, const thread_count *count, f8_diag *diag)
{
    cblas *blas = library->state;
    library->openmp = f8_openmp_find(&library->file);
    if (!count)
        return F8_OK;
    void *set = f8_dynlib_find(&library->file, count->set);
    void *get = f8_dynlib_find(&library->file, count->get);
    if (!set || !get)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "%s lacks %s or %s", library->file.name,
                       count->set, count->get);
    *blas = (cblas){.set = set, .get = get, .is_long = count->is_long};
    blas->before = get_threads(blas);
    set_threads(blas, library->threads);
    return F8_OK;
}

/* Load one of `files` and start it. *out has no file if that is not possible. */
static f8_status load(const f8_peer_search *search, const char *const *files, f8_peer_library *out,
                      f8_diag *diag)
{
    f8_diag absent = {0};
    const char *why;
    cblas *blas = F8_NEW(search->arena, cblas);
    if (!blas)
        return f8_arena_status(search->arena, diag);
    *out = (f8_peer_library){.threads = search->threads,
                             .state = blas,
                             .prepare = prepare,
                             .run = run,
                             .close = close_library};
    const f8_status status = f8_dynlib_search("a CBLAS", files, search->folders, search->arena,
                                              &out->file, &why, &absent);
    return f8_peer_is_absent(status, &absent, diag);
}

/* A text that a library's function gives; "" without the function. */
static const char *ask(const f8_dynlib *file, const char *symbol)
{
    const char *(*get)(void);
    void *found = f8_dynlib_find(file, symbol);
    memcpy(&get, &found, sizeof get);
    const char *text = found ? get() : NULL;
    return text ? text : "";
}

/* The word behind `before` in a text, which may be no word. */
static const char *word_behind(f8_arena *arena, const char *text, const char *before)
{
    const char *at = strstr(text, before);
    at = at ? at + strlen(before) : "";
    const char *word = f8_arena_strndup(arena, at, strcspn(at, " "));
    return word ? word : "";
}

/* "NAME VERSION (CODE)", with what is known. */
static const char *about(f8_arena *arena, const char *name, const char *version, const char *code)
{
    return f8_arena_printf(arena, "%s%s%s%s%s%s", name, *version ? " " : "", version,
                           *code ? " (" : "", code, *code ? ")" : "");
}

f8_status f8_peer_open_openblas(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag)
{
    static const char *const files[] = {"libopenblas.so.0", NULL};
    static const thread_count count = {"openblas_set_num_threads", "openblas_get_num_threads",
                                       false};
    f8_diag absent = {0};
    int (*parallel)(void);
    F8_TRY(load(search, files, out, diag));
    if (!out->file.handle || start(out, &count, &absent) != F8_OK)
        return F8_OK;
    add_way(out, "cblas_sgemm", "OpenBLAS sgemm", F8_F32);
    add_way(out, "cblas_sbgemm", "OpenBLAS sbgemm", F8_BF16); /* if it was built with bf16 */
    void *found = f8_dynlib_find(&out->file, "openblas_get_parallel");
    memcpy(&parallel, &found, sizeof parallel);
    const char *code = ask(&out->file, "openblas_get_corename");
    if (found && !parallel())
        code = f8_arena_printf(search->arena, "%s%sone thread", code, *code ? ", " : "");
    out->about =
        about(search->arena, "OpenBLAS",
              word_behind(search->arena, ask(&out->file, "openblas_get_config"), "OpenBLAS "),
              code ? code : "");
    return F8_OK;
}

f8_status f8_peer_open_blis(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag)
{
    static const char *const files[] = {"libblis.so.4", "libblis-mt.so.4", "libblis.so.5",
                                        "libblis-mt.so.5", NULL};
    static const thread_count count = {"bli_thread_set_num_threads", "bli_thread_get_num_threads",
                                       true};
    f8_diag absent = {0};
    F8_TRY(load(search, files, out, diag));
    if (!out->file.handle || start(out, &count, &absent) != F8_OK)
        return F8_OK;
    add_way(out, "cblas_sgemm", "BLIS sgemm", F8_F32);
    const char *(*name)(int) = NULL;
    int (*id)(void) = NULL;
    void *found[] = {f8_dynlib_find(&out->file, "bli_arch_string"),
                     f8_dynlib_find(&out->file, "bli_arch_query_id")};
    memcpy(&name, &found[0], sizeof name);
    memcpy(&id, &found[1], sizeof id);
    const char *code = name && id ? name(id()) : "";
    out->about = about(search->arena, "BLIS", ask(&out->file, "bli_info_get_version_str"), code);
    return F8_OK;
}

f8_status f8_peer_open_cblas(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag)
{
    static const char *const files[] = {"libcblas.so.3", NULL};
    f8_diag absent = {0};
    F8_TRY(load(search, files, out, diag));
    if (!out->file.handle || start(out, NULL, &absent) != F8_OK)
        return F8_OK;
    add_way(out, "cblas_sgemm", "CBLAS sgemm", F8_F32);
    const char *slash = strrchr(out->file.name, '/');
    out->about = about(search->arena, "CBLAS", slash ? slash + 1 : out->file.name, "");
    return F8_OK;
}

/* ---- MKL ---- */

/* libmkl_rt loads the rest of MKL when it is first called, and ends the process where a part is
 * missing. So the parts are looked for beside it. */
static bool has_part(const f8_peer_library *library, const char *part, f8_arena *arena)
{
    const char *name = library->file.name, *slash = strrchr(name, '/');
    const char *version = strstr(slash ? slash : name, ".so");
    if (!slash || !version)
        return false;
    const char *path =
        f8_arena_printf(arena, "%.*s/libmkl_%s%s", (int)(slash - name), name, part, version);
    return path && access(path, R_OK) == 0;
}

/* MKL's threads are those of Intel's OpenMP, or of GNU's, or none. Nothing is set if the user
 * chose.
 */
static f8_status choose_threads(f8_peer_library *library, f8_arena *arena, f8_diag *diag)
{
    enum { INTEL = 0, SEQUENTIAL = 1, GNU = 3 };
    static const char *const intel[] = {"libiomp5.so", NULL}, *const gnu[] = {"libgomp.so.1", NULL};
    const char *slash = strrchr(library->file.name, '/'), *why;
    int (*set_layer)(int);
    void *found = f8_dynlib_find(&library->file, "MKL_Set_Threading_Layer");
    memcpy(&set_layer, &found, sizeof set_layer);
    if (!found || !slash)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "MKL's threads can't be chosen");
    if (secure_getenv("MKL_THREADING_LAYER"))
        return F8_OK;
    const char *beside =
        f8_arena_strndup(arena, library->file.name, (size_t)(slash - library->file.name));
    const char *const folders[] = {beside ? beside : "", "", NULL};
    f8_dynlib openmp;
    int layer = SEQUENTIAL;
    if (has_part(library, "intel_thread", arena) &&
        f8_dynlib_search("OpenMP", intel, folders, arena, &openmp, &why, NULL) == F8_OK)
        layer = INTEL;
    else if (has_part(library, "gnu_thread", arena) &&
             f8_dynlib_search("OpenMP", gnu, folders, arena, &openmp, &why, NULL) == F8_OK)
        layer = GNU;
    else if (!has_part(library, "sequential", arena))
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "MKL lacks its parts with threads");
    set_layer(layer);
    return F8_OK;
}

static bool is_whole(const f8_peer_library *library, f8_arena *arena)
{
    static const char *const parts[] = {"core", "intel_lp64", "def"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!has_part(library, parts[i], arena))
            return false;
    return true;
}

f8_status f8_peer_open_mkl(const f8_peer_search *search, f8_peer_library *out, f8_diag *diag)
{
    static const char *const files[] = {"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so", NULL};
    static const thread_count count = {"MKL_Set_Num_Threads", "MKL_Get_Max_Threads", false};
    char text[256] = "";
    void (*get_version)(char *, int);
    f8_diag absent = {0};
    F8_TRY(load(search, files, out, diag));
    if (!out->file.handle || !is_whole(out, search->arena) ||
        choose_threads(out, search->arena, &absent) != F8_OK ||
        start(out, &count, &absent) != F8_OK)
        return F8_OK;
    add_way(out, "cblas_sgemm", "MKL sgemm", F8_F32);
    add_way(out, "cblas_gemm_bf16bf16f32", "MKL gemm_bf16bf16f32", F8_BF16);
    void *found = f8_dynlib_find(&out->file, "MKL_Get_Version_String");
    memcpy(&get_version, &found, sizeof get_version);
    if (found)
        get_version(text, (int)sizeof text);
    out->about = about(search->arena, "MKL", word_behind(search->arena, text, "Version "), "");
    return F8_OK;
}
