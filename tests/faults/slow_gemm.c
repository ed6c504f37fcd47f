/* A GEMM that computes a tenth of k twice: linked into a program beside the library, with
 *
 *     -Wl,--wrap=f8_gemm_prepare -Wl,--wrap=f8_gemm_release -Wl,--wrap=f8_gemm_run
 *
 * it first multiplies a tenth of k, into the same result, and then all of k, which writes over it.
 * So results are right, and the time is longer by about a tenth: both are work of the GEMM library
 * of the same kind.
 *
 *     FP8C_TEST_SLOW_GEMM=MxNxK     the GEMMs of these sizes. Without it none is slower */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cpu/gemm.h"

/* What is computed beside a GEMM. */
typedef struct extra {
    f8_gemm *of, *gemm;
    void *workspace;
    int refs;
} extra;

enum { MOST = 64, ALIGNMENT = 64 };
static extra extras[MOST];

f8_status __real_f8_gemm_prepare(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads,
                                 f8_gemm **out, f8_diag *diag);
f8_status __wrap_f8_gemm_prepare(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads,
                                 f8_gemm **out, f8_diag *diag);
void __real_f8_gemm_release(f8_gemm *gemm);
void __wrap_f8_gemm_release(f8_gemm *gemm);
f8_status __real_f8_gemm_run(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                             const void *a_scale, const void *b_scale, void *workspace);
f8_status __wrap_f8_gemm_run(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                             const void *a_scale, const void *b_scale, void *workspace);

static f8_status is_wanted(const f8_gemm_desc *d, bool *out, f8_diag *diag)
{
    const char *text = getenv("FP8C_TEST_SLOW_GEMM");
    long long m, n, k;
    char rest;
    *out = false;
    if (!text)
        return F8_OK;
    if (sscanf(text, "%lldx%lldx%lld%c", &m, &n, &k, &rest) != 3 || k < 10)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "FP8C_TEST_SLOW_GEMM: '%s' is not MxNxK with a K of 10 or more", text);
    *out = d->m == m && d->n == n && d->k == k;
    return F8_OK;
}

/* A tenth of k of it: the first columns of A and rows of B, where they lie. A sum would be made
 * wrong, scales of blocks lie otherwise for another k, and a tenth may be no whole block. */
static f8_status tenth(const f8_gemm_desc *d, uint32_t algorithm, f8_gemm_desc *out, f8_diag *diag)
{
    *out = *d;
    out->k = d->k / 10;
    out->algorithm = algorithm;
    if (d->accumulate || d->batch > 1 || d->has_alpha)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "FP8C_TEST_SLOW_GEMM: a batch, scales, and a sum are not made slower");
    return F8_OK;
}

/* The extra of a GEMM; with NULL, one that is free. NULL: there is none. */
static extra *find(const f8_gemm *of)
{
    for (size_t i = 0; i < MOST; i++)
        if (extras[i].of == of)
            return &extras[i];
    return NULL;
}

static f8_status add_extra(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads, f8_gemm *of,
                           f8_diag *diag)
{
    f8_gemm_desc d;
    extra *x = find(of);
    if (x) {
        x->refs++;
        return F8_OK;
    }
    x = find(NULL);
    if (!x)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "more than %d slow GEMMs", MOST);
    F8_TRY(tenth(desc, f8_gemm_algorithm_of(of), &d, diag));
    F8_TRY(__real_f8_gemm_prepare(lib, &d, n_threads, &x->gemm, diag));
    const size_t bytes = f8_gemm_workspace(x->gemm) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    x->workspace = aligned_alloc(ALIGNMENT, bytes);
    if (!x->workspace) {
        __real_f8_gemm_release(x->gemm);
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "no memory for a slow GEMM");
    }
    x->of = of;
    x->refs = 1;
    return F8_OK;
}

f8_status __wrap_f8_gemm_prepare(f8_gemm_lib *lib, const f8_gemm_desc *desc, int n_threads,
                                 f8_gemm **out, f8_diag *diag)
{
    bool wanted;
    F8_TRY(is_wanted(desc, &wanted, diag));
    F8_TRY(__real_f8_gemm_prepare(lib, desc, n_threads, out, diag));
    const f8_status status = wanted ? add_extra(lib, desc, n_threads, *out, diag) : F8_OK;
    if (status != F8_OK) {
        __real_f8_gemm_release(*out);
        *out = NULL;
    }
    return status;
}

void __wrap_f8_gemm_release(f8_gemm *gemm)
{
    extra *x = gemm ? find(gemm) : NULL;
    __real_f8_gemm_release(gemm);
    if (!x || --x->refs > 0)
        return;
    __real_f8_gemm_release(x->gemm);
    free(x->workspace);
    *x = (extra){0};
}

f8_status __wrap_f8_gemm_run(f8_gemm *gemm, f8_pool *pool, const void *a, const void *b, float *c,
                             const void *a_scale, const void *b_scale, void *workspace)
{
    const extra *x = find(gemm);
    if (x)
        F8_TRY(__real_f8_gemm_run(x->gemm, pool, a, b, c, NULL, NULL, x->workspace));
    return __real_f8_gemm_run(gemm, pool, a, b, c, a_scale, b_scale, workspace);
}
