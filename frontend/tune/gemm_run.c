/* Tuning a module or a GEMM that comes from none, and lists of those: see fp8c_tune.h, gemms.h. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "frontend/tune/gemms.h"
#include "frontend/tune/tune.h"
#include "ir/base/clock.h"
#include "ir/base/format.h"

/* ---- one GEMM ---- */

static f8_status read_gemm(const char *text, const fp8c_context *ctx, f8_tune_gemm *out,
                           f8_diag *diag)
{
    f8_tune_gemms list = {0};
    f8_arena_init(&list.arena, &ctx->allocator);
    f8_status status = f8_tune_gemms_parse(&list, text, diag);
    if (status == F8_OK && list.n > 1)
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "'%s' are %zu GEMMs; one call tunes one",
                         text, list.n);
    if (status == F8_OK) {
        *out = list.gemm[0];
        out->name = "";
    }
    f8_arena_end(&list.arena);
    return status;
}

f8_status f8_tune_gemm_fits(const f8_tune_gemm *g, int copies, const char *target, f8_diag *diag)
{
    const bool cpu = !target || !strncmp(target, "cpu", 3);
    const double need = f8_tune_gemm_bytes(g) * copies,
                 have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char text[F8_TUNE_GEMM_TEXT];
    if ((!cpu || need <= have) && need < (double)F8_MOST_BYTES)
        return F8_OK;
    return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                   "GEMM %s needs %.1f GiB for its operands and its result; this machine has %.1f "
                   "GiB of memory",
                   f8_tune_gemm_text(g, text), need / (1 << 30), have / (1 << 30));
}

fp8c_status f8_tune_one(fp8c_context *ctx, const fp8c_tune_options *options, fp8c_tuning **out)
{
    f8_tune_gemm g = {0};
    f8_diag diag = {0};
    fp8c_module *module = NULL;
    fp8c_tune_options own = {.struct_size = sizeof own};
    fp8c_compile_options compile = {.struct_size = sizeof compile}, given = compile;
    f8_status read = f8_api_options(&own, options, "fp8c_tune_options", &diag);
    if (read == F8_OK)
        read = f8_api_options(&given, own.compile, "fp8c_compile_options", &diag);
    if (read == F8_OK)
        read = read_gemm(own.gemm ? own.gemm : "", ctx, &g, &diag);
    if (read == F8_OK)
        read =
            f8_tune_gemm_fits(&g, f8_tune_gemm_copies(&g, F8_TUNE_COLD_BYTES), given.target, &diag);
    if (read != F8_OK)
        return f8_api_result(ctx, &diag, read);
    compile.target = given.target;
    compile.threads = given.threads;
    compile.device = given.device;
    compile.inference = 1;
    compile.recipe = "f32"; /* which changes no dtype of the module */
    own.compile = &compile;
    own.only = NULL;
    own.kernels = NULL;
    fp8c_status status =
        f8_tune_gemm_module(ctx, &g, f8_tune_gemm_copies(&g, F8_TUNE_COLD_BYTES), &module);
    if (status == FP8C_OK)
        status = f8_tune_module(ctx, module, &own, true, out);
    if (*out)
        (*out)->module = NULL;
    fp8c_module_destroy(module);
    return status;
}

fp8c_status fp8c_tune(fp8c_context *ctx, const fp8c_module *module,
                      const fp8c_tune_options *options, fp8c_tuning **out)
{
    *out = NULL;
    return module ? f8_tune_module(module->ctx, module, options, false, out)
                  : f8_tune_one(ctx, options, out);
}

/* ---- a list ---- */

static bool is_same(const f8_tune_gemm *x, const f8_tune_gemm *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->a == y->a && x->b == y->b &&
           !memcmp(x->how, y->how, sizeof x->how);
}

/* Leave each GEMM once, where it is first, with the sum of its counts and the first name. */
static void unite(f8_tune_gemms *list)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const f8_tune_gemm *g = &list->gemm[i];
        size_t k = 0;
        while (k < n && !is_same(&list->gemm[k], g))
            k++;
        if (k == n) {
            list->gemm[n++] = *g;
            continue;
        }
        list->gemm[k].count += g->count;
        if (!*list->gemm[k].name)
            list->gemm[k].name = g->name;
    }
    list->n = n;
}

fp8c_status f8_tune_gather(fp8c_context *ctx, const f8_tune_sources *from, f8_tune_gemms *list)
{
    f8_diag diag = {0};
    f8_status status = F8_OK;
    *list = (f8_tune_gemms){0};
    f8_arena_init(&list->arena, &ctx->allocator);
    for (size_t i = 0; i < from->n_specs && status == F8_OK; i++)
        status = f8_tune_gemms_parse(list, from->spec[i], &diag);
    for (size_t i = 0; i < from->n_files && status == F8_OK; i++)
        status = f8_tune_gemms_read(list, from->file[i], &diag);
    for (size_t i = 0; i < from->n_suites && status == F8_OK; i++)
        status = f8_tune_gemms_suite(list, from->suite[i], &diag);
    unite(list);
    return f8_api_result(ctx, &diag, status);
}
