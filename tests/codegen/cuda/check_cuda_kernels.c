/* The kernels of the models compile with the real NVRTC, under every recipe, without spills, and
 * with 16-byte accesses where rows allow it. Other tests run the kernels.
 *
 * `make check` makes the texts for every architecture, and compiles every fourth kernel for one of
 * them (nvrtc_in_turn). `make check-nvrtc` compiles each kernel for all. runtime/cuda/device.h says
 * where NVRTC is looked for. Where it is missing, only the texts are made.
 *
 * NVRTC takes longer to begin a text than to compile a small kernel, so several texts are compiled
 * as one. That still takes minutes, so build/nvrtc remembers each text that passed
 * (tests/shared/cuda/nvrtc_cache.h). */
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
enum { MOST_TOGETHER = 24 }; /* texts compiled as one */
enum { EVERY = 4 };          /* one kernel of so many is compiled by `make check` */

/* Each kernel is printed as a text of its own, so that equal kernels have equal texts. */
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
    char *code; /* the same without comments */
    const char *arch;
    bool asked; /* this run compiles it, unless it passed before */
    char symbol[4][48];
    char from[128]; /* for messages */
    int n_symbols;
    bool wide;    /* its vectors must show in PTX */
    bool reduces; /* a kernel of it has the amax of a row */
    nvrtc_entry entry;
} text;

typedef struct texts {
    text *t;
    uint32_t n;
    f8_cuda *cuda;
    nvrtc_cache cache;
    text **left; /* those that did not pass before: the batches of row kernels and copies, then
                    attention, each text a batch */
    uint32_t n_left, n_short, n_asked;
    atomic_uint next;
    pthread_mutex_t lock;
    char failure[2048]; /* libcheck takes messages of up to 8192 bytes */
} texts;

static bool known(const texts *all, const char *code, const char *arch)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->t[i].arch == arch && !strcmp(all->t[i].code, code))
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
        char *code = strdup(cuda);
        ck_assert_ptr_nonnull(code);
        nvrtc_remove_comments(code);
        if (known(all, code, arch)) {
            free(code);
            continue;
        }
        ck_assert_uint_lt(all->n, MOST_TEXTS);
        text *t = &all->t[all->n++];
        *t = (text){.cuda = strdup(cuda), .code = code, .arch = arch};
        for (uint32_t k = 0; k < b.stats.n_kernels; k++) {
            const f8_build_kernel *kernel = &b.stats.kernel[k];
            if (kernel->image != i)
                continue;
            ck_assert_int_lt(t->n_symbols, 4);
            snprintf(t->symbol[t->n_symbols++], sizeof t->symbol[0], "%s", kernel->symbol);
            t->wide = t->wide || must_be_wide(kernel);
            t->reduces = t->reduces || strstr(kernel->text, " row = amax ");
            snprintf(t->from, sizeof t->from, "%s of %s, %s, for %s", kernel->name, model, recipe,
                     arch);
        }
        ck_assert_int_gt(t->n_symbols, 0);
        t->asked = nvrtc_in_turn(t->symbol[0], arch, EVERY);
        all->n_asked += t->asked;
    }
    cuda_plan_end(&b);
}

/* ---- several texts compiled as one ---- */

/* What row kernels share is written once. The rest of each text, with the scalar functions that it
 * defines, is in a namespace of its own; the kernels themselves are extern "C". The caller frees.
 */
static char *join(text *const *t, uint32_t n)
{
    char *shared, *out = NULL;
    size_t size;
    const int length = asprintf(&shared, "%s\n%s\n", f8_cuda_divide_text, f8_cuda_rows_text);
    FILE *f = open_memstream(&out, &size);
    if (length < 0 || !f)
        abort();
    fprintf(f, "#include \"fp8c.cuh\"\n%s", shared);
    for (uint32_t i = 0; i < n; i++) {
        const char *cuda = t[i]->cuda, *at = strstr(cuda, shared);
        fprintf(f, "namespace text_%u {\n%.*s%s}\n", i, at ? (int)(at - cuda) : 0, cuda,
                at ? at + length : cuda);
    }
    free(shared);
    if (fclose(f))
        abort();
    return out;
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

/* Whether the PTX of the kernel loads or copies 16 bytes at once, or by bulk copies; or loads 8,
 * where a row is reduced: its order of lanes may give a thread four columns, which are 8 bytes of
 * bf16. */
static bool loads_wide(const char *ptx, const char *symbol, bool reduces)
{
    char entry[64];
    snprintf(entry, sizeof entry, ".entry %s(", symbol);
    const char *at = strstr(ptx, entry), *next = at ? strstr(at + 1, ".entry ") : NULL;
    const size_t n = !at ? 0 : next ? (size_t)(next - at) : strlen(at);
    return n && (memmem(at, n, "cp.async.bulk.", 14) || memmem(at, n, "cp.async.cg.", 12) ||
                 memmem(at, n, "ld.global.v4", 12) || memmem(at, n, "ld.global.nc.v4", 15) ||
                 (reduces && memmem(at, n, "ld.global.v2.u32", 16)));
}

static bool passes(texts *all, const text *t, const f8_nvrtc_result *r)
{
    bool wide = false;
    for (int i = 0; i < t->n_symbols; i++) {
        f8_cuda_report report;
        if (!f8_cuda_report_read(r->log, t->symbol[i], &report))
            return note(all, t, "ptxas reports nothing", r->log);
        if (report.spill_stores || report.spill_loads || report.stack)
            return note(all, t, "spills or a stack", r->log);
        wide = wide || (t->wide && loads_wide(r->ptx, t->symbol[i], t->reduces));
    }
    if (t->wide && !wide)
        return note(all, t, "no 16-byte loads", t->cuda);
    return true;
}

static bool shares_symbol(const text *x, const text *y)
{
    for (int i = 0; i < x->n_symbols; i++)
        for (int k = 0; k < y->n_symbols; k++)
            if (!strcmp(x->symbol[i], y->symbol[k]))
                return true;
    return false;
}

/* How many of n texts, from the first, have no kernel in common. */
static uint32_t apart(text *const *t, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (shares_symbol(t[k], t[i]))
                return i;
    return n;
}

/* Where they do not compile as one, each is compiled alone, so that a message names the kernel. */
static bool compile_batch(texts *all, text *const *t, uint32_t n)
{
    const uint32_t clear = apart(t, n);
    if (clear < n) {
        const bool first = compile_batch(all, t, clear);
        return compile_batch(all, t + clear, n - clear) && first;
    }
    f8_arena arena;
    f8_nvrtc_result r;
    f8_diag d = {0};
    bool wide = false, good = true;
    for (uint32_t i = 0; i < n; i++)
        wide = wide || t[i]->wide;
    char *joined = n > 1 ? join(t, n) : NULL;
    f8_arena_init(&arena, NULL);
    const f8_status s = f8_cuda_compile(all->cuda, joined ? joined : t[0]->cuda, "kernel.cu",
                                        f8_cuda_header, "fp8c.cuh", t[0]->arch,
                                        (f8_nvrtc_options){.want_ptx = wide}, &arena, &r, &d);
    free(joined);
    for (uint32_t i = 0; i < n; i++)
        if (s != F8_OK && n > 1)
            good = compile_batch(all, t + i, 1) && good;
        else if (s != F8_OK || !passes(all, t[i], &r))
            good = s == F8_OK ? false : note(all, t[i], d.text, "");
        else
            nvrtc_cache_keep(&t[i]->entry, t[i]->from);
    if (s != F8_OK && good)
        good = note(all, t[0], "with others it does not compile, alone it does", d.text);
    f8_arena_end(&arena);
    return good;
}

static void *compile_some(void *user)
{
    texts *all = user;
    const uint32_t batches = (all->n_short + MOST_TOGETHER - 1) / MOST_TOGETHER;
    const uint32_t n_long = all->n_left - all->n_short;
    for (uint32_t i; (i = atomic_fetch_add(&all->next, 1)) < n_long + batches;) {
        const uint32_t first = (i - n_long) * MOST_TOGETHER;
        if (i < n_long)
            compile_batch(all, all->left + all->n_short + i, 1);
        else
            compile_batch(all, all->left + first,
                          all->n_short - first < MOST_TOGETHER ? all->n_short - first
                                                               : MOST_TOGETHER);
    }
    return NULL;
}

/* Lists the texts that are to be compiled: those that did not pass before. Attention, which takes
 * longest, comes last. */
static void list_left(texts *all)
{
    nvrtc_cache_open(&all->cache, all->cuda);
    ck_assert_ptr_nonnull(all->left = calloc(all->n, sizeof *all->left));
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < all->n; i++) {
            text *t = &all->t[i];
            t->entry = nvrtc_cache_entry(&all->cache, t->arch, t->wide ? "wide" : "", t->code);
            if (t->asked && !nvrtc_cache_has(&t->entry) &&
                !strncmp(t->symbol[0], "attention", 9) == (turn == 1))
                all->left[all->n_left++] = t;
        }
        if (turn == 0)
            all->n_short = all->n_left;
    }
}

static void compile_texts(texts *all)
{
    pthread_t thread[MOST_THREADS];
    list_left(all);
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = cpus < 1 ? 1 : cpus > MOST_THREADS ? MOST_THREADS : (int)cpus;
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, compile_some, all), 0);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    free(all->left);
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
    ck_assert_uint_gt(all.n_asked, 0);
    printf("%s: %u distinct kernel texts; asked for %u of them, of which %u passed before\n",
           architectures[_i], all.n, there ? all.n_asked : 0, there ? all.n_asked - all.n_left : 0);
    for (uint32_t i = 0; i < all.n; i++) {
        free(all.t[i].cuda);
        free(all.t[i].code);
    }
    free(all.t);
    f8_cuda_destroy(all.cuda);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_kernels");
    TCase *t = tcase_create("nvrtc");
    tcase_set_timeout(t, 1200);
    tcase_add_loop_test(t, every_kernel_compiles, 0, N_ARCHITECTURES);
    suite_add_tcase(s, t);
    return s;
}
