/* Plans of the CUDA target, without a GPU: every kernel of the models compiles with the real NVRTC for every
 * recipe and architecture and keeps to its registers; accesses are wide; the same plan gives the same
 * bytes; depth adds no kernels; an optimizer is a handful of launches; failures say what and where. What
 * the kernels compute is the business of check_cuda_steps and of the tests that run whole programs.
 *
 * NVRTC is looked for as runtime/cuda.h says. Where there is none, the tests that compile say so and check
 * that the text is made. Compiling all takes minutes, so a text that passed is remembered, by a hash of all
 * that its passing depends on, in build/nvrtc; remove it to compile everything again. */
#include "codegen/build.h"
#include "codegen/cuda_report.h"
#include "codegen/cuda.h"
#include "frontend/parse.h"
#include "passes/pass.h"
#include "runtime/cuda.h"
#include "tests/shared/compile.h"

#include <check.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const models[] = {"gpt", "gpt2_124m", "llama_block"};
static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
static const char *const architectures[] = {"sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { N_MODELS = 3, N_RECIPES = 4, N_ARCHITECTURES = 4, MOST_TEXTS = 4096, MOST_THREADS = 16 };

typedef struct built {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    f8_plan plan;
    f8_build_stats stats;
    f8_status status;
} built;

/* `dim`: "L=24" or NULL. */
static void build(built *b, const char *model, const char *dim, const char *recipe, const char *arch,
                  f8_build_options o)
{
    char file[64], name[16] = "";
    f8_dim_override over = {name, 0};
    snprintf(file, sizeof file, "frontend/models/%s.f8", model);
    if (dim)
        ck_assert_int_eq(sscanf(dim, "%15[A-Z]=%" SCNd64, name, &over.value), 2);
    *b = (built){0};
    f8_arena_init(&b->arena, NULL);
    size_t size;
    char *text = f8_test_read(file, &size);
    ck_assert_ptr_nonnull(text);
    b->unit = (f8_unit){.arena = &b->arena, .diag = &b->diag};
    b->unit.options.recipe = f8_recipe_by_name(recipe);
    b->unit.options.target = f8_target_by_name(arch);
    o.target = b->unit.options.target;
    o.stats = &b->stats;
    b->status = f8_parse(text, size, file, &over, dim != NULL, &b->arena, &b->diag, &b->unit.module);
    if (b->status == F8_OK)
        b->status = f8_run_passes(&b->unit);
    if (b->status == F8_OK)
        b->status = f8_build_plan(b->unit.module, &o, &b->arena, &b->plan, &b->diag);
    free(text);
}

static void end(built *b)
{
    f8_arena_end(&b->arena);
}

static void build_text(built *b, const char *model, const char *dim, const char *recipe, const char *arch,
                       uint32_t batch)
{
    build(b, model, dim, recipe, arch, (f8_build_options){.text_only = true, .batch = batch});
    ck_assert_msg(b->status == F8_OK, "%s, %s, %s: %s", model, recipe, arch, b->diag.text);
}

/* The libraries, and whether NVRTC is there. */
static bool libraries(f8_cuda **cuda)
{
    const f8_cuda_paths paths = f8_cuda_paths_from_environment();
    f8_diag d = {0};
    int version;
    ck_assert_int_eq(f8_cuda_create(&paths, NULL, cuda, &d), F8_OK);
    if (f8_cuda_nvrtc(*cuda, &version, &d) == F8_OK)
        return true;
    ck_assert_int_eq(d.status, F8_ERR_LIBRARY);
    ck_assert_ptr_nonnull(strstr(d.text, "nvrtc"));
    printf("nothing is compiled: %s\n", d.text);
    return false;
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
    uint64_t compiler; /* hash of what compiles: NVRTC's version, its options, the header */
    atomic_uint next, before;
    pthread_mutex_t lock;
    char failure[2048]; /* the first */
} texts;

static bool known(const texts *all, const char *cuda, const char *arch)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->t[i].arch == arch && !strcmp(all->t[i].cuda, cuda))
            return true;
    return false;
}

/* Copies and scatter choose when they run; row programs by description: one with whole rows of bf16 or f32
 * whose columns are a multiple of eight. */
static bool must_be_wide(const f8_build_kernel *k)
{
    const char *cols = strstr(k->text, "rows x ");
    return cols && atoll(cols + 7) % 8 == 0 && atoll(cols + 7) >= 64 && strstr(k->text, "bf16 full");
}

static void collect(texts *all, const char *model, const char *recipe, const char *arch)
{
    built b;
    build_text(&b, model, NULL, recipe, arch, 1);
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
            snprintf(t->from, sizeof t->from, "%s of %s, %s, for %s", kernel->name, model, recipe, arch);
        }
        ck_assert_int_gt(t->n_symbols, 0);
    }
    end(&b);
}

static bool note(texts *all, const text *t, const char *what, const char *more)
{
    pthread_mutex_lock(&all->lock);
    if (!all->failure[0])
        snprintf(all->failure, sizeof all->failure, "%s (%s): %s\n%s", t->from, t->symbol[0], what, more);
    pthread_mutex_unlock(&all->lock);
    return false;
}

#define CACHE "build/nvrtc"

static uint64_t hash_of(uint64_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 1099511628211u;
    return (h ^ 0xff) * 1099511628211u;
}

/* The options stand in the file that calls NVRTC. */
static uint64_t hash_compiler(f8_cuda *cuda)
{
    int version = 0;
    f8_diag d = {0};
    char number[32];
    size_t size;
    char *source = f8_test_read("runtime/cuda_nvrtc.c", &size);
    ck_assert_ptr_nonnull(source);
    source[size] = 0;
    ck_assert_int_eq(f8_cuda_nvrtc(cuda, &version, &d), F8_OK);
    snprintf(number, sizeof number, "%d", version);
    const uint64_t h = hash_of(hash_of(hash_of(14695981039346656037u, number), source), f8_cuda_header);
    free(source);
    return h;
}

static void cache_path(const texts *all, const text *t, char *path, size_t room)
{
    const uint64_t h = hash_of(hash_of(hash_of(all->compiler, t->arch), t->wide ? "wide" : ""), t->cuda);
    snprintf(path, room, CACHE "/%016" PRIx64, h);
}

/* Leaves a file that names the kernel. */
static void remember(const char *path, const text *t)
{
    FILE *f = fopen(path, "w");
    if (f) {
        fprintf(f, "%s\n", t->from);
        fclose(f);
    }
}

static bool passes(texts *all, const text *t, f8_arena *arena)
{
    f8_nvrtc_result r;
    f8_diag d = {0};
    if (f8_cuda_compile(all->cuda, t->cuda, "kernel.cu", f8_cuda_header, "fp8c.cuh", t->arch, t->wide, arena,
                        &r, &d) != F8_OK)
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
    char path[64];
    f8_arena arena;
    cache_path(all, t, path, sizeof path);
    if (access(path, R_OK) == 0) {
        atomic_fetch_add(&all->before, 1);
        return;
    }
    f8_arena_init(&arena, NULL);
    if (passes(all, t, &arena))
        remember(path, t);
    f8_arena_end(&arena);
}

static void *compile_some(void *user)
{
    texts *all = user;
    for (uint32_t i; (i = atomic_fetch_add(&all->next, 1)) < all->n && !all->failure[0];)
        compile_text(all, &all->t[i]);
    return NULL;
}

static void compile_texts(texts *all)
{
    pthread_t thread[MOST_THREADS];
    all->compiler = hash_compiler(all->cuda);
    mkdir("build", 0777);
    mkdir(CACHE, 0777);
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
    const bool there = libraries(&all.cuda);
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

/* ---- plans ---- */

/* What the executor reads, and the code. */
static void assert_same_plan(const f8_plan *a, const f8_plan *b)
{
    ck_assert_uint_eq(a->n_images, b->n_images);
    ck_assert_uint_eq(a->n_kernels, b->n_kernels);
    for (uint32_t i = 0; i < a->n_images; i++) {
        ck_assert_int_eq(a->image[i].size, b->image[i].size);
        ck_assert(!memcmp(a->image[i].bytes, b->image[i].bytes, (size_t)a->image[i].size));
    }
    ck_assert_uint_eq(a->n_funcs, b->n_funcs);
    for (uint32_t f = 0; f < a->n_funcs; f++) {
        ck_assert_uint_eq(a->func[f].n_steps, b->func[f].n_steps);
        ck_assert_int_eq(a->func[f].arena_bytes, b->func[f].arena_bytes);
        for (uint32_t i = 0; i < a->func[f].n_steps; i++) {
            const f8_step *x = &a->func[f].step[i], *y = &b->func[f].step[i];
            ck_assert_str_eq(x->name, y->name);
            ck_assert_uint_eq(x->n_phases, y->n_phases);
            ck_assert_uint_eq(x->n_ints, y->n_ints);
            ck_assert_uint_eq(x->n_args, y->n_args);
            ck_assert(!memcmp(x->ints, y->ints, x->n_ints * sizeof *x->ints));
            for (uint32_t k = 0; k < x->n_args; k++)
                ck_assert(x->arg[k].space == y->arg[k].space && x->arg[k].port == y->arg[k].port &&
                          x->arg[k].offset == y->arg[k].offset);
            for (uint32_t k = 0; k < x->n_phases; k++)
                ck_assert(!strcmp(x->phase[k].launch.symbol, y->phase[k].launch.symbol) &&
                          x->phase[k].launch.image == y->phase[k].launch.image);
        }
    }
}

START_TEST(same_bytes_on_any_threads)
{
    f8_cuda *cuda;
    built a, b;
    const bool there = libraries(&cuda);
    build(&a, "gpt", "L=1", "bf16", "sm_90a",
          (f8_build_options){.threads = 1, .cuda = cuda, .text_only = !there});
    build(&b, "gpt", "L=1", "bf16", "sm_90a",
          (f8_build_options){.threads = 3, .cuda = cuda, .text_only = !there});
    ck_assert_msg(a.status == F8_OK, "%s", a.diag.text);
    ck_assert_msg(b.status == F8_OK, "%s", b.diag.text);
    assert_same_plan(&a.plan, &b.plan);
    ck_assert_uint_eq(a.plan.n_kernels, a.stats.n_kernels);
    for (uint32_t i = 0; i < a.stats.n_images; i++)
        ck_assert_str_eq(a.stats.image[i].cuda, b.stats.image[i].cuda);
    for (uint32_t i = 0; i < a.stats.n_kernels; i++)
        ck_assert(a.stats.kernel[i].reported == there);
    end(&a);
    end(&b);
    f8_cuda_destroy(cuda);
}
END_TEST

/* A launch stays within its step's arguments, and its tasks are those of its last instance. */
START_TEST(launches_are_whole)
{
    built b;
    build_text(&b, "gpt2_124m", NULL, recipes[_i], "sm_90a", 0);
    for (uint32_t f = 0; f < b.plan.n_funcs; f++)
        for (uint32_t i = 0; i < b.plan.func[f].n_steps; i++) {
            const f8_step *s = &b.plan.func[f].step[i];
            for (uint32_t k = 0; k < s->n_phases; k++) {
                const f8_launch *l = &s->phase[k].launch;
                const int64_t *ints = s->ints + s->phase[k].first_int;
                ck_assert_uint_le(s->phase[k].first_arg + l->n_instances * l->n_args, s->n_args);
                ck_assert_uint_le(s->phase[k].first_int + l->n_instances * l->n_ints, s->n_ints);
                ck_assert(l->multi == (l->n_instances > 1));
                ck_assert_uint_le(1 + l->n_instances * (l->n_args + l->n_ints), F8_MULTI_WORDS);
                int64_t before = 0;
                for (uint32_t n = 1; n <= l->n_instances; n++) {
                    ck_assert_int_gt(ints[n * l->n_ints - 1], before);
                    before = ints[n * l->n_ints - 1];
                }
                ck_assert_int_eq(before, s->phase[k].n_tasks);
            }
            for (uint32_t k = 0; k < s->n_args; k++)
                if (s->arg[k].space == F8_SPACE_ARENA)
                    ck_assert_int_lt(s->arg[k].offset, b.plan.func[f].arena_bytes);
            if (s->kind == F8_STEP_COPY)
                ck_assert(s->copy.rank == 1 && s->copy.from[0] == 1 && s->copy.to[0] == 1);
            if (s->kind == F8_STEP_GEMM)
                ck_assert_uint_eq(s->gemm.algorithm, F8_GEMM_CUBLASLT);
        }
    ck_assert_int_eq(b.plan.gemm_workspace, (int64_t)32 << 20);
    ck_assert_str_eq(b.plan.target, "sm_90a");
    end(&b);
}
END_TEST

/* Of FP8 GEMMs those that go forward, and they alone, may keep partial sums in the tensor cores. */
START_TEST(fast_accumulation_forward_only)
{
    built b;
    build_text(&b, "gpt", NULL, "delayed", "sm_90a", 0);
    int fast = 0, slow = 0, fp8 = 0;
    for (uint32_t f = 0; f < b.plan.n_funcs; f++)
        for (uint32_t i = 0; i < b.plan.func[f].n_steps; i++) {
            const f8_step *s = &b.plan.func[f].step[i];
            if (s->kind != F8_STEP_GEMM || strcmp(b.plan.func[f].name, "micro_step"))
                continue;
            ck_assert(!s->gemm.fast_accumulate || s->fp8);
            fp8 += s->fp8 != 0;
            fast += s->fp8 && s->gemm.fast_accumulate;
            slow += s->fp8 && !s->gemm.fast_accumulate;
        }
    ck_assert_int_eq(fp8, b.unit.fp8_gemms);
    ck_assert_int_gt(fast, 0);
    ck_assert_int_eq(slow, 2 * fast);
    end(&b);
}
END_TEST

static bool has_symbol(const f8_build_stats *s, const char *symbol)
{
    for (uint32_t i = 0; i < s->n_kernels; i++)
        if (!strcmp(s->kernel[i].symbol, symbol))
            return true;
    return false;
}

START_TEST(depth_adds_no_kernels)
{
    built a, b;
    build_text(&a, "gpt2_124m", NULL, recipes[_i], "sm_90a", 0);
    build_text(&b, "gpt2_124m", "L=24", recipes[_i], "sm_90a", 0);
    for (uint32_t i = 0; i < b.stats.n_kernels; i++)
        /* what works on one number for each parameter or linear is as long as there are of them */
        ck_assert_msg(has_symbol(&a.stats, b.stats.kernel[i].symbol) || b.stats.kernel[i].launches == 1,
                      "new at depth 24: %s, %u launches", b.stats.kernel[i].name, b.stats.kernel[i].launches);
    ck_assert_uint_eq(a.stats.n_kernels, b.stats.n_kernels);
    end(&a);
    end(&b);
}
END_TEST

/* GPT-2's 148 parameters: the optimizer and the norm of their gradients. Whole columns of a kernel are in its
 * description, so there is a kernel for each width of parameter, and a launch holds 4096 bytes of
 * parameters; a launch for each tensor would be 148 and more. */
START_TEST(optimizer_in_a_handful)
{
    built b;
    build_text(&b, "gpt2_124m", NULL, "bf16", "sm_90a", 0);
    for (uint32_t f = 0; f < b.plan.n_funcs; f++) {
        const f8_plan_func *func = &b.plan.func[f];
        if (strcmp(func->name, "update"))
            continue;
        uint32_t instances = 0;
        for (uint32_t i = 0; i < func->n_steps; i++)
            for (uint32_t k = 0; k < func->step[i].n_phases; k++)
                instances += func->step[i].phase[k].launch.n_instances;
        printf("update of gpt2_124m: %u kernels in %u launches\n", instances, func->n_steps);
        ck_assert_uint_ge(instances, 2 * 148);
        ck_assert_uint_le(func->n_steps, 24);
    }
    end(&b);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(no_library)
{
    f8_cuda *cuda;
    f8_diag d = {0};
    built b;
    const f8_cuda_paths nowhere = {.fp8c_cuda_path = "/no/such/folder"};
    ck_assert_int_eq(f8_cuda_create(&nowhere, NULL, &cuda, &d), F8_OK);
    build(&b, "gpt", NULL, "bf16", "sm_90a", (f8_build_options){.cuda = cuda});
    ck_assert_int_eq(b.status, F8_ERR_LIBRARY);
    ck_assert_ptr_nonnull(strstr(b.diag.text, "nvrtc"));
    ck_assert_ptr_nonnull(strstr(b.diag.text, "/no/such/folder"));
    end(&b);
    build(&b, "gpt", NULL, "bf16", "sm_90a", (f8_build_options){.cuda = NULL});
    ck_assert_int_eq(b.status, F8_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(b.diag.text, "sm_90a"));
    end(&b);
    f8_cuda_destroy(cuda);
}
END_TEST

/* A GEMM as passes for another target leave it: it rounds its operands on the way in. */
START_TEST(refused_with_the_reason)
{
    static const char module[] = "module m\n"
                                 "param w: f32[24, 64] normal(0.02)\n"
                                 "func forward(%x: f32[8, 24]) -> f32[] {\n"
                                 "  %y = matmul(%x, w) {round_a = true, round_b = true}\n"
                                 "  %z = reshape(%y) {shape = [512]}\n"
                                 "  return reshape(mean(%z)) {shape = []}\n"
                                 "}\n";
    built b = {0};
    f8_arena_init(&b.arena, NULL);
    b.unit = (f8_unit){.arena = &b.arena, .diag = &b.diag};
    b.unit.options.recipe = f8_recipe_by_name("f32");
    b.unit.options.target = f8_target_by_name("cpu");
    b.unit.options.inference = true;
    b.status = f8_parse(module, sizeof module - 1, "m.f8", NULL, 0, &b.arena, &b.diag, &b.unit.module);
    if (b.status == F8_OK)
        b.status = f8_run_passes(&b.unit);
    ck_assert_msg(b.status == F8_OK, "%s", b.diag.text);
    const f8_build_options o = {.target = f8_target_by_name("sm_90a"), .text_only = true};
    ck_assert_int_eq(f8_build_plan(b.unit.module, &o, &b.arena, &b.plan, &b.diag), F8_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(b.diag.text, "sm_90a") && strstr(b.diag.text, "round"), "%s", b.diag.text);
    ck_assert_uint_eq(b.diag.loc.line, 4);
    end(&b);
}
END_TEST

/* ---- ptxas' report ---- */

static const char a_log[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k10' for 'sm_90a'\n"
    "ptxas info    : Function properties for k10\n"
    "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
    "ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size, 2048 bytes smem\n"
    "ptxas info    : Compile time = 4.1 ms\n"
    "ptxas info    : Compiling entry function 'k1' for 'sm_90a'\r\n"
    "ptxas info    : Function properties for helper\n"
    "    24 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads\n"
    "ptxas info    : Function properties for k1\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 0 barriers, 400 bytes cmem[0]";

START_TEST(reports)
{
    f8_cuda_report r;
    ck_assert(f8_cuda_report_read(a_log, "k10", &r));
    ck_assert_int_eq(r.registers, 255);
    ck_assert_int_eq(r.shared, 2048);
    ck_assert_int_eq(r.stack, 8);
    ck_assert_int_eq(r.spill_stores, 12);
    ck_assert_int_eq(r.spill_loads, 16);
    ck_assert(f8_cuda_report_read(a_log, "k1", &r));
    ck_assert_int_eq(r.registers, 32);
    ck_assert_int_eq(r.shared, 0);
    ck_assert_int_eq(r.stack, 24);
    ck_assert_int_eq(r.spill_loads, 4);
    ck_assert(!f8_cuda_report_read(a_log, "k", &r));
    ck_assert(!f8_cuda_report_read(a_log, "helper", &r));
    ck_assert(!f8_cuda_report_read("", "k1", &r));
    ck_assert(!f8_cuda_report_read(NULL, "k1", &r));
    ck_assert(!f8_cuda_report_read("ptxas info : Compiling entry function 'k1' for", "k1", &r));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda_build");
    TCase *all = tcase_create("compile");
    tcase_set_timeout(all, 1200);
    tcase_add_loop_test(all, every_kernel_compiles, 0, N_ARCHITECTURES);
    suite_add_tcase(s, all);
    TCase *t = tcase_create("plans");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, same_bytes_on_any_threads);
    tcase_add_loop_test(t, launches_are_whole, 0, N_RECIPES);
    tcase_add_test(t, fast_accumulation_forward_only);
    tcase_add_loop_test(t, depth_adds_no_kernels, 0, N_RECIPES);
    tcase_add_test(t, optimizer_in_a_handful);
    tcase_add_test(t, no_library);
    tcase_add_test(t, refused_with_the_reason);
    tcase_add_test(t, reports);
    suite_add_tcase(s, t);
    SRunner *run = srunner_create(s);
    srunner_run_all(run, CK_NORMAL);
    const int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
