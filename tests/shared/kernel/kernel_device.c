/* See kernel_device.h. */
#include "tests/shared/kernel/kernel_device.h"

#include "codegen/cuda/emit.h"
#include "codegen/kernel/config.h"
#include "runtime/cuda/internal.h"
#include "tests/shared/cuda/nvrtc_cache.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KERNELS = 256, MAX_ARGS = KC_LIST, MAX_WORDS = 512 };

#define CU(call) ck_assert_int_eq(j->cuda->cu.call, CUDA_SUCCESS)

typedef struct one_launch {
    f8_kernel *k;
    f8_binding bound;
    /* Indices into job.launch: the kernel for any addresses, and the one for aligned launches,
     * which is the same where the launch is not aligned. */
    int kernel, aligned;
} one_launch;

/* One form of a kernel as CUDA C. */
typedef struct printed {
    char *code; /* the kernel is called "f8_test" here */
    f8_cuda_launch launch;
} printed;

typedef struct job {
    kcase *c;
    const f8_target *target;
    f8_cuda *cuda;
    one_launch run[MAX_KERNELS]; /* in order */
    f8_cuda_launch launch[MAX_KERNELS], multi[MAX_KERNELS];
    uint64_t hash[MAX_KERNELS];
    printed form[2 * MAX_KERNELS]; /* what the text has */
    int n_runs, n_kernels, n_forms;
    char *text;
    CUmodule module;
} job;

/* ---- the kernels of a case ---- */

/* Prints a form of a kernel, if no kernel of the text has the same code: one for aligned launches
 * may differ from that for any addresses in nothing but its comment. */
static void add_form(job *j, const f8_kernel *k, bool multi, const char *symbol, f8_text *text,
                     f8_cuda_launch *out)
{
    f8_text own = {.arena = &j->c->arena};
    OK(f8_cuda_rows_emit(&own, j->target, k, multi, "f8_test", out, diag));
    nvrtc_remove_comments(own.s);
    for (int i = 0; i < j->n_forms; i++)
        if (!strcmp(j->form[i].code, own.s)) {
            const f8_cuda_launch *same = &j->form[i].launch;
            ck_assert_uint_eq(same->threads, out->threads);
            ck_assert_uint_eq(same->shared, out->shared);
            *out = *same;
            return;
        }
    OK(f8_cuda_rows_emit(text, j->target, k, multi, symbol, out, diag));
    j->form[j->n_forms++] = (printed){own.s, *out};
}

/* The number of the kernel, which is printed if it is new. */
static int add_kernel(job *j, const f8_kernel *k, f8_text *text)
{
    for (int n = 0; n < j->n_kernels; n++)
        if (j->hash[n] == k->hash)
            return n;
    const int n = j->n_kernels++;
    char symbol[40];
    ck_assert_int_lt(n, MAX_KERNELS);
    j->hash[n] = k->hash;
    snprintf(symbol, sizeof symbol, "k%d", n);
    add_form(j, k, false, symbol, text, &j->launch[n]);
    if (f8_cuda_rows_most_instances(k) < 1)
        return n;
    snprintf(symbol, sizeof symbol, "many%d", n);
    add_form(j, k, true, symbol, text, &j->multi[n]);
    return n;
}

/* Both kernels of a launch. */
static void add_kernels(job *j, one_launch *r, f8_text *text)
{
    f8_arg arg[MAX_ARGS];
    f8_kernel *k;
    ck_assert_uint_le(r->k->n_buffers, MAX_ARGS);
    for (uint32_t i = 0; i < r->k->n_buffers; i++)
        arg[i] = (f8_arg){F8_SPACE_ARENA, -1, r->bound.place[i].offset};
    r->kernel = r->aligned = add_kernel(j, r->k, text);
    if (!f8_cuda_rows_are_aligned(j->target, r->k, arg, r->bound.ints))
        return;
    OK(f8_kernel_for_aligned(r->k, &j->c->arena, &k, diag));
    r->aligned = add_kernel(j, k, text);
    ck_assert_int_ne(r->aligned, r->kernel);
}

static job *describe(kcase *c, const f8_target *to)
{
    job *j = F8_NEW(&c->arena, job);
    ck_assert_ptr_nonnull(j);
    j->c = c;
    j->target = to;
    f8_text text = {.arena = &c->arena};
    f8_text_add(&text, "#include \"fp8c.cuh\"\n\n");
    for (uint32_t g = 0; g < c->program.n_groups; g++)
        for (uint32_t i = 0; i < c->group[g].n_phases; i++) {
            ck_assert_int_lt(j->n_runs, MAX_KERNELS);
            one_launch *r = &j->run[j->n_runs++];
            OK(f8_kernel_lower(c->f, &c->group[g], i, to, &c->arena, &r->k, &r->bound, diag));
            const f8_build_problem problem = {.text = "", .kernel = r->k};
            f8_kernel_config v;
            f8_choice_source source;
            const char *variant =
                kc_choices ? kc_choices->find(kc_choices->user, &problem, &source) : NULL;
            if (variant && f8_kernel_config_parse(variant, &v))
                OK(f8_kernel_with_config(r->k, &v, &c->arena, &r->k, diag));
            add_kernels(j, r, &text);
        }
    j->text = text.s;
    return j;
}

const char *kc_cuda_text(kcase *c, const f8_target *target, int *n_kernels)
{
    const job *j = describe(c, target);
    *n_kernels = j->n_forms;
    return j->text;
}

static void compile(job *j)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_nvrtc_result r;
    f8_diag d = {0};
    ck_assert_msg(f8_cuda_compile(j->cuda, j->text, "rows", f8_cuda_header, "fp8c.cuh",
                                  j->target->name, (f8_nvrtc_options){0}, &arena, &r, &d) == F8_OK,
                  "%s\n%s", d.text, r.log);
    OK(f8_cuda_enter(j->cuda, diag));
    CU(cuModuleLoadData(&j->module, r.cubin));
    f8_cuda_leave(j->cuda);
    f8_arena_end(&arena);
}

static void unload(const job *j)
{
    OK(f8_cuda_enter(j->cuda, diag));
    CU(cuModuleUnload(j->module));
    f8_cuda_leave(j->cuda);
}

/* ---- running ---- */

static CUfunction function(const job *j, const f8_cuda_launch *l)
{
    CUfunction f;
    CU(cuModuleGetFunction(&f, j->module, l->symbol));
    CU(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)l->shared));
    return f;
}

/* One instance's words; returns its tasks. */
static int64_t fill_words(const job *j, const one_launch *r, CUdeviceptr base, uint64_t *word)
{
    for (uint32_t i = 0; i < r->k->n_buffers; i++)
        *word++ = base + (uint64_t)r->bound.place[i].offset;
    for (uint32_t i = 0; i < r->k->n_ints; i++)
        *word++ = (uint64_t)r->bound.ints[i];
    return f8_cuda_rows_tasks(j->target, r->k, r->bound.ints[0]);
}

static CUresult start(const job *j, const f8_cuda_launch *l, uint64_t *params, int64_t tasks,
                      unsigned grid)
{
    void *list[] = {params};
    const unsigned blocks = grid && grid < tasks ? grid : (unsigned)tasks;
    ck_assert_int_gt(tasks, 0);
    return j->cuda->cu.cuLaunchKernel(function(j, l), blocks, 1, 1, l->threads, 1, 1, l->shared,
                                      NULL, list, NULL);
}

/* How all launches of a job run. */
typedef struct way {
    unsigned grid; /* blocks; 0: one a task */
    size_t shift;  /* all buffers lie so many bytes past an aligned place */
    bool many;     /* neighbours of one kernel are one launch */
    bool aligned;  /* by kernels for aligned launches, where there are such */
} way;

static int kernel_of(const one_launch *r, const way *w)
{
    return w->aligned ? r->aligned : r->kernel;
}

/* Launches in order, until one fails. */
static CUresult launch_all(const job *j, CUdeviceptr base, const way *w)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < j->n_runs && result == CUDA_SUCCESS;) {
        const one_launch *r = &j->run[i];
        const int kernel = kernel_of(r, w);
        uint64_t params[MAX_WORDS] = {0};
        if (!w->many) {
            const int64_t tasks = fill_words(j, r, base, params);
            params[r->k->n_buffers + r->k->n_ints] = (uint64_t)tasks;
            result = start(j, &j->launch[kernel], params, tasks, w->grid);
            i++;
            continue;
        }
        const uint32_t words = r->k->n_buffers + r->k->n_ints + 1;
        int64_t tasks = 0;
        uint32_t n = 0;
        while (i < j->n_runs && kernel_of(&j->run[i], w) == kernel &&
               n < f8_cuda_rows_most_instances(r->k)) {
            tasks += fill_words(j, &j->run[i++], base, params + 1 + n * words);
            params[++n * words] = (uint64_t)tasks;
        }
        params[0] = n;
        result = start(j, &j->multi[kernel], params, tasks, w->grid);
    }
    return result;
}

/* The case's memory after the launches; the first call that fails. */
static CUresult run_into(job *j, const way *w)
{
    CUdeviceptr device;
    CUstream stream;
    kcase *c = j->c;
    const size_t bytes = (size_t)c->bytes;
    kc_fill(c);
    OK(f8_cuda_enter(j->cuda, diag));
    CU(cuStreamCreate(&stream, 0));
    CU(cuMemAlloc_v2(&device, bytes + w->shift));
    CU(cuMemcpyHtoDAsync_v2(device + w->shift, c->memory, bytes, stream));
    CU(cuStreamSynchronize(stream));
    CUresult result = launch_all(j, device + w->shift, w);
    if (result == CUDA_SUCCESS)
        result = j->cuda->cu.cuStreamSynchronize(NULL);
    if (result == CUDA_SUCCESS) {
        CU(cuMemcpyDtoHAsync_v2(c->memory, device + w->shift, bytes, stream));
        CU(cuStreamSynchronize(stream));
        CU(cuMemFree_v2(device));
        CU(cuStreamDestroy_v2(stream));
    }
    f8_cuda_leave(j->cuda);
    return result;
}

static void run(job *j, const way *w, const char *what)
{
    ck_assert_int_eq(run_into(j, w), CUDA_SUCCESS);
    kc_compare(j->c, what);
}

static void dump(const char *text)
{
    const char *path = getenv("FP8C_TEST_DUMP");
    if (!path)
        return;
    FILE *f = fopen(path, "w");
    ck_assert_msg(f != NULL, "%s", path);
    fputs(text, f);
    fclose(f);
}

int kc_run_misaligned(kcase *c, const cuda_device *device)
{
    job *j = describe(c, device->target);
    CUdeviceptr base;
    j->cuda = device->cuda;
    compile(j);
    OK(f8_cuda_enter(j->cuda, diag));
    CU(cuMemAlloc_v2(&base, (size_t)c->bytes + 4));
    CUresult result = launch_all(j, base + 4, &(way){.aligned = true});
    if (result == CUDA_SUCCESS)
        result = j->cuda->cu.cuStreamSynchronize(NULL);
    f8_cuda_leave(j->cuda);
    return result;
}

int kc_check_rings(kcase *c, const cuda_device *device)
{
    job *j = describe(c, device->target);
    int rings = 0;
    j->cuda = device->cuda;
    dump(j->text);
    for (const char *at = j->text; (at = strstr(at, "> ring = {")); at++)
        rings++;
    kc_check_described(c, j->target);
    compile(j);
    unsetenv("FP8C_EMULATOR_SEED");
    run(j, &(way){.grid = 1, .aligned = true}, "one block");
    for (int seed = 1; seed <= 3; seed++) {
        char number[8];
        snprintf(number, sizeof number, "%d", seed);
        setenv("FP8C_EMULATOR_SEED", number, 1);
        run(j, &(way){.grid = (unsigned)seed, .aligned = true}, "some blocks, in random order");
    }
    unsetenv("FP8C_EMULATOR_SEED");
    unload(j);
    return rings;
}

bool kc_is_caught(kcase *c, const cuda_device *device, const char *right, const char *wrong)
{
    job *j = describe(c, device->target);
    const way aligned = {.grid = 1, .aligned = true};
    const char *at = strstr(j->text, right);
    j->cuda = device->cuda;
    ck_assert_msg(at != NULL, "the text has no '%s'", right);
    compile(j);
    ck_assert_int_eq(run_into(j, &aligned), CUDA_SUCCESS);
    uint8_t *const good = malloc((size_t)c->bytes);
    ck_assert_ptr_nonnull(good);
    memcpy(good, c->memory, (size_t)c->bytes);
    unload(j);
    j->text = f8_arena_printf(&c->arena, "%.*s%s%s", (int)(at - j->text), j->text, wrong,
                              at + strlen(right));
    compile(j);
    const bool ran = run_into(j, &aligned) == CUDA_SUCCESS;
    const bool caught = !ran || memcmp(good, c->memory, (size_t)c->bytes) != 0;
    if (ran)
        unload(j);
    free(good);
    return caught;
}

void kc_check_on_device(kcase *c, const cuda_device *device)
{
    job *j = describe(c, device->target);
    j->cuda = device->cuda;
    dump(j->text);
    kc_check_described(c, j->target);
    compile(j);
    unsetenv("FP8C_EMULATOR_SEED");
    run(j, &(way){.aligned = true}, "a block a task");
    run(j, &(way){.grid = 2}, "two blocks, kernels for any addresses");
    setenv("FP8C_EMULATOR_SEED", "17", 1);
    run(j, &(way){.grid = 3, .shift = 4}, "three blocks, not aligned, in random order");
    run(j, &(way){.grid = 1, .many = true, .aligned = true},
        "one block, many tensors a launch, in random order");
    run(j, &(way){.grid = 1, .shift = 4, .many = true},
        "one block, many tensors a launch, not aligned, in random order");
    unsetenv("FP8C_EMULATOR_SEED");
    unload(j);
}
