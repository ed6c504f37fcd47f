/* Every kernel of the models compiles with the real NVRTC, for every recipe and architecture,
 * without spills, and with 16-byte accesses where rows allow it. Other tests run the kernels.
 *
 * runtime/cuda/device.h says where NVRTC is looked for. Where it is missing, only the texts are
 * made. Compiling all takes minutes, so build/nvrtc remembers each text that passed, by a hash of
 * all that this depends on (tests/shared/cuda/nvrtc_cache.h). Remove it to compile everything
 * again. */
#include "codegen/cuda/report.h"
#include "codegen/cuda/emit.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/cuda/nvrtc_cache.h"
#include "tests/shared/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const models[] = {"gpt", "gpt2_124m", "llama_block"};
static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
static const char *const architectures[] = {"sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { N_MODELS = 3, N_RECIPES = 4, N_ARCHITECTURES = 4, MOST_TEXTS = 4096, MOST_THREADS = 16 };

/* Each kernel an image of its own, so that equal kernels have equal texts. */
static void build_text(cuda_plan *b, const char *model, const char *recipe, const char *arch)
{
    cuda_plan_build(b, model, NULL, recipe, arch,
                    (f8_build_options){.text_only = true, .batch = 1});
    ck_assert_msg(b->status == F8_OK, "%s, %s, %s: %s", model, recipe, arch, b->diag.text);
}

/* ---- every kernel compiles ---- */

/* One kernel's whole text for one architecture. */
typedef struct text {
    char *cuda;
    const char *arch;
    char symbol[4][48];
    char from[128]; /* for messages */
    int n_symbols;
    bool wide; /* its vectors must show in PTX */
} text;

typedef struct texts {
    text *t;
    uint32_t n;
    f8_cuda *cuda;
    nvrtc_cache cache;
    atomic_uint next, before;
    pthread_mutex_t lock;
    char failure[8192];
} texts;

static bool known(const texts *all, const char *cuda, const char *arch)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->t[i].arch == arch && !strcmp(all->t[i].cuda, cuda))
            return true;
    return false;
}

/* Copies and scatter choose when they run. Row kernels choose by description: one with rows of bf16
 * or f32 whose columns are a multiple of eight. */
static bool must_be_wide(const f8_build_kernel *k)
{
    const char *cols = strstr(k->text, "rows x ");
    return cols && atoll(cols + 7) % 8 == 0 && atoll(cols + 7) >= 64 &&
           strstr(k->text, "bf16 full");
}

static void collect(texts *all, const char *model, const char *recipe, const char *arch)
{
    cuda_plan b;
    build_text(&b, model, recipe, arch);
    ck_assert_uint_gt(b.stats.n_kernels, 20);
    for (uint32_t i = 0; i < b.stats.n_images; i++) {
        const char *cuda = b.stats.image[i].cuda;
        if (known(all, cuda, arch))
            continue;
        ck_assert_uint_lt(all->n, MOST_TEXTS);
        text *t = &all->t[all->n++];
        *t = (text){.cuda = strdup(cuda), .arch = arch};
        for (uint32_t k = 0; k < b.stats.n_kernels; k++) {
            const f8_build_kernel *kernel = &b.stats.kernel[k];
            if (kernel->image != i)
                continue;
            ck_assert_int_lt(t->n_symbols, 4);
            snprintf(t->symbol[t->n_symbols++], sizeof t->symbol[0], "%s", kernel->symbol);
            t->wide = t->wide || must_be_wide(kernel);
            snprintf(t->from, sizeof t->from, "%s of %s, %s, for %s", kernel->name, model, recipe,
                     arch);
        }
        ck_assert_int_gt(t->n_symbols, 0);
    }
    cuda_plan_end(&b);
}

/* All that fail are named; the first with what the compiler says. */
static bool note(texts *all, const text *t, const char *what, const char *more)
{
    pthread_mutex_lock(&all->lock);
    const size_t n = strlen(all->failure);
    snprintf(all->failure + n, sizeof all->failure - n, "%s (%s): %s\n%s", t->from, t->symbol[0],
             what, n ? "" : more);
    pthread_mutex_unlock(&all->lock);
    return false;
}

static bool passes(texts *all, const text *t, f8_arena *arena)
{
    f8_nvrtc_result r;
    f8_diag d = {0};
    if (f8_cuda_compile(all->cuda, t->cuda, "kernel.cu", f8_cuda_header, "fp8c.cuh", t->arch,
                        t->wide, arena, &r, &d) != F8_OK)
        return note(all, t, d.text, "");
    for (int i = 0; i < t->n_symbols; i++) {
        f8_cuda_report report;
        if (!f8_cuda_report_read(r.log, t->symbol[i], &report))
            return note(all, t, "ptxas reports nothing", r.log);
        if (report.spill_stores || report.spill_loads || report.stack)
            return note(all, t, "spills or a stack", r.log);
    }
    if (t->wide && !strstr(r.ptx, "ld.global.v4") && !strstr(r.ptx, "ld.global.nc.v4"))
        return note(all, t, "no 16-byte loads", t->cuda);
    return true;
}

static void compile_text(texts *all, const text *t)
{
    f8_arena arena;
    const nvrtc_entry entry =
        nvrtc_cache_entry(&all->cache, t->arch, t->wide ? "wide" : "", t->cuda);
    if (nvrtc_cache_has(&entry)) {
        atomic_fetch_add(&all->before, 1);
        return;
    }
    f8_arena_init(&arena, NULL);
    if (passes(all, t, &arena))
        nvrtc_cache_keep(&entry, t->from);
    f8_arena_end(&arena);
}

static void *compile_some(void *user)
{
    texts *all = user;
    for (uint32_t i; (i = atomic_fetch_add(&all->next, 1)) < all->n;)
        compile_text(all, &all->t[i]);
    return NULL;
}

static void compile_texts(texts *all)
{
    pthread_t thread[MOST_THREADS];
    nvrtc_cache_open(&all->cache, all->cuda);
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = cpus < 1 ? 1 : cpus > MOST_THREADS ? MOST_THREADS : (int)cpus;
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, compile_some, all), 0);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

/* Kernels that recipes or models share are compiled once for each architecture. */
START_TEST(every_kernel_compiles)
{
    texts all = {.t = calloc(MOST_TEXTS, sizeof(text)), .lock = PTHREAD_MUTEX_INITIALIZER};
    ck_assert_ptr_nonnull(all.t);
    const bool there = cuda_plan_compiler(&all.cuda);
    for (int m = 0; m < N_MODELS; m++)
        for (int r = 0; r < N_RECIPES; r++)
            collect(&all, models[m], recipes[r], architectures[_i]);
    if (there)
        compile_texts(&all);
    ck_assert_msg(!all.failure[0], "%s", all.failure);
    printf("%s: %u distinct kernel texts, %u of them compiled before\n", architectures[_i], all.n,
           all.before);
    for (uint32_t i = 0; i < all.n; i++)
        free(all.t[i].cuda);
    free(all.t);
    f8_cuda_destroy(all.cuda);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_kernels");
    TCase *t = tcase_create("compile");
    tcase_set_timeout(t, 1200);
    tcase_add_loop_test(t, every_kernel_compiles, 0, N_ARCHITECTURES);
    suite_add_tcase(s, t);
    return s;
}
