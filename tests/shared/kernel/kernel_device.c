/* See kernel_device.h. */
#include "tests/shared/kernel/kernel_device.h"

#include "codegen/cuda/emit.h"
#include "codegen/kernel/config.h"
#include "runtime/cuda/internal.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_KERNELS = 128, MAX_WORDS = 512 };

#define CU(call) ck_assert_int_eq(j->cuda->cu.call, CUDA_SUCCESS)

typedef struct one_launch {
    f8_kernel *k;
    f8_binding bound;
    int kernel; /* index into job.launch */
} one_launch;

typedef struct job {
    kcase *c;
    const f8_target *target;
    f8_cuda *cuda;
    one_launch run[MAX_KERNELS]; /* in order */
    f8_cuda_launch launch[MAX_KERNELS], multi[MAX_KERNELS];
    uint64_t hash[MAX_KERNELS];
    int n_runs, n_kernels;
    char *text;
    CUmodule module;
} job;

/* ---- the kernels of a case ---- */

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
            const char *variant = kc_choices ? kc_choices->find(kc_choices->user, &problem) : NULL;
            if (variant && f8_kernel_config_parse(variant, &v))
                OK(f8_kernel_with_config(r->k, &v, &c->arena, &r->k, diag));
            for (r->kernel = 0; r->kernel < j->n_kernels; r->kernel++)
                if (j->hash[r->kernel] == r->k->hash)
                    break;
            if (r->kernel < j->n_kernels)
                continue;
            const int n = j->n_kernels++;
            char symbol[40];
            j->hash[n] = r->k->hash;
            snprintf(symbol, sizeof symbol, "k%d", n);
            OK(f8_cuda_rows_emit(&text, to, r->k, false, symbol, &j->launch[n], diag));
            if (f8_cuda_rows_most_instances(r->k) < 1)
                continue;
            snprintf(symbol, sizeof symbol, "many%d", n);
            OK(f8_cuda_rows_emit(&text, to, r->k, true, symbol, &j->multi[n], diag));
        }
    j->text = text.s;
    return j;
}

const char *kc_cuda_text(kcase *c, const f8_target *target, int *n_kernels)
{
    const job *j = describe(c, target);
    *n_kernels = j->n_kernels;
    return j->text;
}

static void compile(job *j)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_nvrtc_result r;
    f8_diag d = {0};
    ck_assert_msg(f8_cuda_compile(j->cuda, j->text, "rows", f8_cuda_header, "fp8c.cuh",
                                  j->target->name, false, &arena, &r, &d) == F8_OK,
                  "%s\n%s", d.text, r.log);
    OK(f8_cuda_enter(j->cuda, diag));
    CU(cuModuleLoadData(&j->module, r.cubin));
    f8_cuda_leave(j->cuda);
    f8_arena_end(&arena);
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

static void start(const job *j, const f8_cuda_launch *l, uint64_t *params, int64_t tasks,
                  unsigned grid)
{
    void *list[] = {params};
    const unsigned blocks = grid && grid < tasks ? grid : (unsigned)tasks;
    ck_assert_int_gt(tasks, 0);
    CU(cuLaunchKernel(function(j, l), blocks, 1, 1, l->threads, 1, 1, l->shared, NULL, list, NULL));
}

/* Launches in order, on `grid` blocks (0: one a task); `many`: neighbours of one kernel as one
 * launch. */
static void launch_all(const job *j, CUdeviceptr base, unsigned grid, bool many)
{
    for (int i = 0; i < j->n_runs;) {
        const one_launch *r = &j->run[i];
        uint64_t params[MAX_WORDS] = {0};
        if (!many) {
            const int64_t tasks = fill_words(j, r, base, params);
            params[r->k->n_buffers + r->k->n_ints] = (uint64_t)tasks;
            start(j, &j->launch[r->kernel], params, tasks, grid);
            i++;
            continue;
        }
        const uint32_t words = r->k->n_buffers + r->k->n_ints + 1;
        int64_t tasks = 0;
        uint32_t n = 0;
        while (i < j->n_runs && j->run[i].kernel == r->kernel &&
               n < f8_cuda_rows_most_instances(r->k)) {
            tasks += fill_words(j, &j->run[i++], base, params + 1 + n * words);
            params[++n * words] = (uint64_t)tasks;
        }
        params[0] = n;
        start(j, &j->multi[r->kernel], params, tasks, grid);
    }
}

/* All buffers lie `shift` bytes past an aligned place. */
static void run(job *j, unsigned grid, size_t shift, bool many, const char *what)
{
    CUdeviceptr device;
    CUstream stream;
    kcase *c = j->c;
    const size_t bytes = (size_t)c->bytes;
    kc_fill(c);
    OK(f8_cuda_enter(j->cuda, diag));
    CU(cuStreamCreate(&stream, 0));
    CU(cuMemAlloc_v2(&device, bytes + shift));
    CU(cuMemcpyHtoDAsync_v2(device + shift, c->memory, bytes, stream));
    CU(cuStreamSynchronize(stream));
    launch_all(j, device + shift, grid, many);
    CU(cuStreamSynchronize(NULL));
    CU(cuMemcpyDtoHAsync_v2(c->memory, device + shift, bytes, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemFree_v2(device));
    CU(cuStreamDestroy_v2(stream));
    f8_cuda_leave(j->cuda);
    kc_compare(c, what);
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

void kc_check_on_device(kcase *c, const cuda_device *device)
{
    job *j = describe(c, device->target);
    j->cuda = device->cuda;
    dump(j->text);
    kc_check_described(c, j->target);
    compile(j);
    unsetenv("FP8C_EMULATOR_SEED");
    run(j, 0, 0, false, "a block a task");
    setenv("FP8C_EMULATOR_SEED", "17", 1);
    run(j, 3, 4, false, "three blocks, not aligned, in random order");
    run(j, 1, 0, true, "one block, many tensors a launch, in random order");
    unsetenv("FP8C_EMULATOR_SEED");
    OK(f8_cuda_enter(j->cuda, diag));
    CU(cuModuleUnload(j->module));
    f8_cuda_leave(j->cuda);
}
