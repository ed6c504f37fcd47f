/* Row programs on a CUDA device (the emulator, or with FP8C_TEST_GPU the GPU that is there), bit by
 * bit against the naive evaluator of kernel_eval.c: ragged shapes, all dtypes, aligned or not, any
 * grid, in the emulator any order of blocks and warps, one launch a tensor or many. And by the real
 * NVRTC, where it is found: no spills, no local memory, 16-byte accesses, on all four
 * architectures. */
#include "codegen/cuda.h"
#include "runtime/cuda_internal.h"
#include "tests/shared/gpu.h"
#include "tests/shared/kernel_case.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KERNELS = 128, ROOM = 64 };

static f8_cuda *cuda, *toolkit; /* the device's; the real NVRTC's, NULL where there is none */
static const f8_target *target;

#define OK(call)                                                                                   \
    do {                                                                                           \
        f8_diag diag_ = {0};                                                                       \
        f8_diag *const d = &diag_;                                                                 \
        ck_assert_msg((call) == F8_OK, "%s: %s", #call, diag_.text);                               \
    } while (0)
#define CU(call) ck_assert_int_eq(cuda->cu.call, CUDA_SUCCESS)

static void load(void)
{
    f8_cuda_facts facts;
    f8_test_gpu_emulated();
    const f8_cuda_paths paths = f8_cuda_paths_from_environment();
    OK(f8_cuda_create(&paths, NULL, &cuda, d));
    OK(f8_cuda_device(cuda, 0, d));
    OK(f8_cuda_device_facts(cuda, &facts, d));
    target = f8_target_for_sm(facts.sm);
    ck_assert_ptr_nonnull(target);
}

static void unload(void)
{
    f8_cuda_destroy(cuda);
}

/* ---- the kernels of a case ---- */

typedef struct one_launch {
    f8_kernel *k;
    f8_binding bound;
    int kernel; /* index into job.launch */
} one_launch;

typedef struct job {
    kcase *c;
    one_launch run[MAX_KERNELS]; /* in order */
    f8_cuda_launch launch[MAX_KERNELS], multi[MAX_KERNELS];
    uint64_t hash[MAX_KERNELS];
    int n_runs, n_kernels;
    char *text;
    CUmodule module;
} job;

static void describe(job *j, const f8_target *to)
{
    kcase *c = j->c;
    f8_text text = {.arena = &c->arena};
    f8_text_add(&text, "#include \"fp8c.cuh\"\n\n");
    j->n_runs = j->n_kernels = 0;
    for (uint32_t g = 0; g < c->program.n_groups; g++)
        for (uint32_t i = 0; i < c->group[g].n_phases; i++) {
            ck_assert_int_lt(j->n_runs, MAX_KERNELS);
            one_launch *r = &j->run[j->n_runs++];
            OK(f8_kernel_lower(c->f, &c->group[g], i, to, &c->arena, &r->k, &r->bound, d));
            for (r->kernel = 0; r->kernel < j->n_kernels; r->kernel++)
                if (j->hash[r->kernel] == r->k->hash)
                    break;
            if (r->kernel < j->n_kernels)
                continue;
            const int n = j->n_kernels++;
            char symbol[40];
            j->hash[n] = r->k->hash;
            snprintf(symbol, sizeof symbol, "k%d", n);
            OK(f8_cuda_rows_emit(&text, to, r->k, false, symbol, &j->launch[n], d));
            if (f8_cuda_rows_most_instances(r->k) < 1)
                continue;
            snprintf(symbol, sizeof symbol, "many%d", n);
            OK(f8_cuda_rows_emit(&text, to, r->k, true, symbol, &j->multi[n], d));
        }
    j->text = text.s;
}

static void compile(job *j)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_nvrtc_result r;
    f8_diag d = {0};
    ck_assert_msg(f8_cuda_compile(cuda, j->text, "rows", f8_cuda_header, "fp8c.cuh", target->name,
                                  false, &arena, &r, &d) == F8_OK,
                  "%s\n%s", d.text, r.log);
    OK(f8_cuda_enter(cuda, d));
    CU(cuModuleLoadData(&j->module, r.cubin));
    f8_cuda_leave(cuda);
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
static int64_t fill_words(const one_launch *r, CUdeviceptr base, uint64_t *word)
{
    for (uint32_t i = 0; i < r->k->n_buffers; i++)
        *word++ = base + (uint64_t)r->bound.place[i].offset;
    for (uint32_t i = 0; i < r->k->n_ints; i++)
        *word++ = (uint64_t)r->bound.ints[i];
    return f8_cuda_rows_tasks(target, r->k, r->bound.ints[0]);
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
        uint64_t params[512] = {0};
        if (!many) {
            const int64_t tasks = fill_words(r, base, params);
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
            tasks += fill_words(&j->run[i++], base, params + 1 + n * words);
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
    OK(f8_cuda_enter(cuda, d));
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
    f8_cuda_leave(cuda);
    kc_compare(c, what);
}

static void check(kcase *c)
{
    static job j;
    j = (job){.c = c};
    describe(&j, target);
    const char *dump = getenv("FP8C_TEST_DUMP");
    if (dump) {
        FILE *f = fopen(dump, "w");
        fputs(j.text, f);
        fclose(f);
    }
    kc_check_described(c, target);
    compile(&j);
    unsetenv("FP8C_EMULATOR_SEED");
    run(&j, 0, 0, false, "a block a task");
    setenv("FP8C_EMULATOR_SEED", "17", 1);
    run(&j, 3, 4, false, "three blocks, not aligned, in random order");
    run(&j, 1, 0, true, "one block, many tensors a launch, in random order");
    unsetenv("FP8C_EMULATOR_SEED");
    OK(f8_cuda_enter(cuda, d));
    CU(cuModuleUnload(j.module));
    f8_cuda_leave(cuda);
}

/* ---- cases ---- */

static const int widths[] = {1, 2, 7, 8, 16, 21, 31, 64, 100, 128, 255, 256, 257, 384, 768, 1000};
enum { N_WIDTHS = sizeof widths / sizeof *widths };

static f8_ref mean_of(kcase *c, f8_ref x)
{
    const int64_t n = f8_type_columns(f8_type_of(c->g, x));
    return f8_binary(c->g, F8_OP_DIV, f8_reduce(c->g, F8_OP_REDUCE_SUM, x, -1),
                     f8_const(c->g, (double)n));
}

static f8_ref column_sum(kcase *c, f8_ref x)
{
    const int64_t block = f8_type_rows(f8_type_of(c->g, x)) > F8_COLSUM_BLOCK ? F8_COLSUM_BLOCK : 0;
    const f8_attr attr[] = {F8_INT(F8_A_AXIS, 0), F8_INT(F8_A_BLOCK, block)};
    return f8_make(c->g, F8_OP_REDUCE_SUM, &x, 1, attr, 2);
}

static f8_ref quantize(kcase *c, f8_ref x, f8_ref scale, f8_dtype to, bool saturate)
{
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, to), F8_INT(F8_A_SATURATE, saturate)};
    return f8_make(c->g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 2);
}

static f8_ref transposed(kcase *c, f8_ref x)
{
    const f8_attr perm = F8_INTS(F8_A_PERM, ((f8_ints){2, {1, 0}}));
    return f8_make(c->g, F8_OP_TRANSPOSE, &x, 1, &perm, 1);
}

/* y = (x - mean) rstd w + b in bf16, its statistics, its codes and their amax. */
static void layernorm(kcase *c, f8_dtype t, int rows, int cols)
{
    f8_graph *g = c->g;
    const f8_ref x0 = kc_input(c, t, 2, rows, cols), w = kc_input(c, F8_F32, 1, cols),
                 b = kc_input(c, F8_F32, 1, cols), scale = kc_input(c, F8_F32, 0);
    const f8_ref x = f8_cast(g, x0, F8_F32), mean = mean_of(c, x),
                 off = f8_binary(g, F8_OP_SUB, x, mean);
    const f8_ref var = mean_of(c, f8_binary(g, F8_OP_MUL, off, off));
    const f8_ref rstd = f8_unary(g, F8_OP_RSQRT, f8_binary(g, F8_OP_ADD, var, f8_const(g, 1e-5)));
    const f8_ref y =
        f8_binary(g, F8_OP_ADD, f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_MUL, off, rstd), w), b);
    kc_out(c, f8_cast(g, y, F8_BF16));
    kc_out(c, mean);
    kc_out(c, rstd);
    if (cols > 1)
        kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, y, -1));
    kc_out(c, quantize(c, y, scale, F8_E4M3, true));
    kc_phase(c, rows, cols);
}

START_TEST(layernorms)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i == 1;
    for (int i = 0; i < N_WIDTHS; i++)
        layernorm(&c, _i ? F8_F32 : F8_BF16, i % 3 ? 37 : 5, widths[i]);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Rows that a block shares, in 64, 128 and 256 threads; kept, and too wide to be kept. */
START_TEST(wide_rows)
{
    static const int wide[] = {1032, 2048, 3000, 4096, 5001, 8192, 16384, 20000};
    kcase c;
    kc_begin(&c);
    layernorm(&c, F8_BF16, 5, wide[_i]);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(softmaxes)
{
    kcase c;
    kc_begin(&c);
    c.specials = _i & 1;
    f8_graph *g = c.g;
    for (int i = 0; i < N_WIDTHS; i += 2) {
        const int cols = widths[i + _i], rows = 6;
        const f8_ref x = kc_input(&c, F8_F32, 2, rows, cols),
                     top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1);
        const f8_ref e = f8_unary(g, F8_OP_EXP, f8_binary(g, F8_OP_SUB, x, top));
        const f8_ref sum = f8_reduce(g, F8_OP_REDUCE_SUM, e, -1),
                     y = f8_binary(g, F8_OP_DIV, e, sum);
        kc_out(&c, y);
        kc_out(&c, f8_reduce(g, F8_OP_REDUCE_AMAX, y, -1));
        kc_out(&c, f8_binary(g, F8_OP_ADD, f8_unary(g, F8_OP_LOG, sum), top));
        kc_phase(&c, rows, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* Every pointwise op, flat and by rows with broadcasts. */
START_TEST(pointwise)
{
    static const f8_op unary[] = {F8_OP_NEG,     F8_OP_ABS,   F8_OP_SQRT,    F8_OP_RSQRT, F8_OP_EXP,
                                  F8_OP_LOG,     F8_OP_TANH,  F8_OP_ERF,     F8_OP_SIN,   F8_OP_COS,
                                  F8_OP_SIGMOID, F8_OP_FLOOR, F8_OP_ISFINITE};
    static const f8_op binary[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_DIV, F8_OP_MAX,
                                   F8_OP_MIN, F8_OP_LT,  F8_OP_LE,  F8_OP_EQ};
    static const int sizes[] = {1, 13, 64, 300};
    kcase c;
    kc_begin(&c);
    c.specials = true;
    const int cols = sizes[_i], rows = 29;
    const f8_ref x = kc_input(&c, F8_F32, 2, rows, cols), y = kc_input(&c, F8_F32, 2, rows, cols);
    const f8_ref row = kc_input(&c, F8_F32, 2, rows, 1), col = kc_input(&c, F8_F32, 1, cols),
                 one = kc_input(&c, F8_F32, 0);
    const f8_ref other[] = {y, row, col, one};
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        kc_out(&c, f8_unary(c.g, unary[i], x));
    kc_phase(&c, 1, (int64_t)rows * cols);
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) {
            kc_out(&c, f8_binary(c.g, binary[i], x, other[k]));
            if (k)
                kc_out(&c, f8_binary(c.g, binary[i], other[k], x));
        }
        kc_out(&c, f8_make(c.g, F8_OP_FMA, (f8_ref[]){x, other[k], y}, 3, NULL, 0));
        kc_phase(&c, rows, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(ints_and_truth)
{
    static const f8_op ops[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_MAX,
                                F8_OP_MIN, F8_OP_LT,  F8_OP_LE,  F8_OP_EQ};
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    for (int i = 0; i < N_WIDTHS; i += 3) {
        const int cols = widths[i], rows = 7;
        const f8_ref x = kc_input(&c, F8_I32, 2, rows, cols), y = kc_input(&c, F8_I32, 2, rows, 1);
        const f8_ref p = kc_input(&c, F8_BOOL, 2, rows, cols), q = kc_input(&c, F8_BOOL, 1, cols);
        const f8_ref f = kc_input(&c, F8_F32, 2, rows, cols), both = f8_binary(g, F8_OP_AND, p, q);
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            kc_out(&c, f8_binary(g, ops[o], x, y));
        kc_out(&c, f8_unary(g, F8_OP_NEG, x));
        kc_out(&c, f8_unary(g, F8_OP_ABS, x));
        kc_out(&c, both);
        kc_out(&c, f8_binary(g, F8_OP_OR, p, f8_unary(g, F8_OP_NOT, q)));
        kc_out(&c, f8_select(g, both, x, y));
        kc_out(&c, f8_select(g, p, f, f8_const(g, -0.5)));
        kc_out(&c, f8_cast(g, p, F8_F32));
        kc_out(&c, f8_cast(g, p, F8_I32));
        kc_out(&c, f8_cast(g, x, F8_F32));
        kc_out(&c, f8_cast(g, f, F8_I32));
        kc_phase(&c, rows, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(dtypes)
{
    static const f8_dtype types[] = {F8_BF16, F8_F16, F8_E4M3, F8_E5M2};
    static const int sizes[] = {1, 13, 64, 300};
    kcase c;
    kc_begin(&c);
    c.specials = true;
    const int cols = sizes[_i], rows = 11;
    const f8_ref s = kc_input(&c, F8_F32, 0), row = kc_input(&c, F8_F32, 2, rows, 1),
                 wide = kc_input(&c, F8_F32, 2, rows, cols);
    for (int i = 0; i < 4; i++) {
        const f8_ref x = kc_input(&c, types[i], 2, rows, cols);
        const f8_ref f = f8_binary(c.g, F8_OP_MUL, f8_cast(c.g, x, F8_F32), s);
        kc_out(&c, f);
        if (i < 2) {
            kc_out(&c, f8_cast(c.g, f, types[i]));
            kc_out(&c, f8_cast(c.g, f8_cast(c.g, wide, types[i]), F8_F32));
        }
        kc_phase(&c, rows, cols);
    }
    for (int sat = 0; sat < 2; sat++) {
        for (f8_dtype t = F8_E4M3; t <= F8_E5M2; t++) {
            const f8_ref q = quantize(&c, wide, s, t, sat);
            kc_out(&c, q);
            kc_out(&c, f8_cast(c.g, q, F8_F32));
            const f8_op op = sat ? F8_OP_ADD : F8_OP_SUB;
            kc_out(&c,
                   quantize(&c, f8_binary(c.g, op, wide, f8_binary(c.g, op, row, f8_const(c.g, t))),
                            s, t, sat));
        }
        kc_phase(&c, rows, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* Gradient of a norm: row sums, sums over columns of values of both stages, codes along rows and
 * down columns, amax; with sums and without, transposed and not. */
static void backward(kcase *c, int rows, int cols, bool sums, bool codes, bool reduce)
{
    f8_graph *g = c->g;
    const f8_ref x = kc_input(c, F8_BF16, 2, rows, cols), dy = kc_input(c, F8_F32, 2, rows, cols),
                 w = kc_input(c, F8_F32, 1, cols), scale = kc_input(c, F8_F32, 0);
    const f8_ref xf = f8_cast(g, x, F8_F32),
                 dyw = f8_binary(g, F8_OP_MUL, f8_unary(g, F8_OP_TANH, dy), w);
    const f8_ref t = f8_binary(g, F8_OP_MUL, dyw, xf);
    const f8_ref dx =
        reduce ? f8_binary(g, F8_OP_SUB, dyw, f8_binary(g, F8_OP_MUL, xf, mean_of(c, t))) : t;
    kc_out(c, f8_cast(g, dx, F8_BF16));
    if (reduce && cols > 1)
        kc_out(c, f8_reduce(g, F8_OP_REDUCE_AMAX, dx, -1));
    if (sums) {
        kc_out(c, column_sum(c, f8_binary(g, F8_OP_MUL, dy, xf)));
        kc_out(c, column_sum(c, f8_cast(g, f8_cast(g, dy, F8_BF16), F8_F32)));
        kc_out(c, column_sum(c, dx));
    }
    if (codes) {
        const f8_ref q = quantize(c, dx, scale, F8_E5M2, true);
        kc_out(c, q);
        kc_out(c, transposed(c, q));
    }
    kc_phase(c, rows, cols);
}

START_TEST(columns)
{
    static const int heights[] = {2, 16, 64, 65, 200};
    kcase c;
    kc_begin(&c);
    for (int i = 1; i < N_WIDTHS; i += 2)
        backward(&c, heights[(i / 2 + _i) % 5], widths[i], _i % 4 != 1, _i % 4 > 0, _i >= 4);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(wide_columns)
{
    static const int wide[] = {1032, 2304, 3072, 9000};
    kcase c;
    kc_begin(&c);
    backward(&c, 70, wide[_i], true, true, true);
    backward(&c, 70, wide[_i] + 3, true, true, false);
    check(&c);
    kc_end(&c);
}
END_TEST

/* Transposed values of every size. */
START_TEST(transposes)
{
    static const f8_dtype types[] = {F8_F32, F8_BF16, F8_F16, F8_E4M3};
    static const int heights[] = {3, 16, 50, 128};
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < 4; i++)
        for (int w = 4; w < N_WIDTHS; w += 4) {
            const f8_ref x = kc_input(&c, types[i], 2, heights[(i + w / 4) % 4], widths[w]);
            const f8_ref y =
                i == 3 ? quantize(&c, f8_cast(c.g, x, F8_F32), f8_const(c.g, 3), F8_E4M3, false)
                : i    ? f8_cast(c.g, f8_unary(c.g, F8_OP_NEG, f8_cast(c.g, x, F8_F32)), types[i])
                       : f8_unary(c.g, F8_OP_NEG, x);
            kc_out(&c, transposed(&c, y));
            kc_phase(&c, heights[(i + w / 4) % 4], widths[w]);
        }
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(periodic_rows)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i += 3) {
        const int d = widths[i];
        const f8_ref x = kc_input(&c, F8_F32, 4, 2, 5, 3, d),
                     table = kc_input(&c, F8_F32, 3, 5, 1, d),
                     batch = kc_input(&c, F8_F32, 4, 2, 1, 1, d),
                     head = kc_input(&c, F8_F32, 2, 3, 1),
                     time = kc_input(&c, F8_F32, 4, 1, 5, 3, d);
        f8_ref y = f8_binary(c.g, F8_OP_MUL, x, table);
        y = f8_binary(c.g, F8_OP_ADD, y, head);
        y = f8_binary(c.g, F8_OP_MUL, y, batch);
        kc_out(&c, f8_binary(c.g, F8_OP_SUB, y, time));
        kc_phase(&c, 30, d);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* Rolled loads and rolled values, whole vectors or not. */
START_TEST(rolls)
{
    static const int groups[] = {2, 8, 16, 24, 64, 7, 400};
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < 7; i++) {
        const int group = groups[i], cols = 3 * group;
        const f8_ref x = kc_input(&c, F8_BF16, 2, 19, cols), y = kc_input(&c, F8_F32, 2, 19, cols);
        for (int shift = 1; shift <= group; shift += group / 2) {
            const f8_attr attr[] = {F8_INT(F8_A_SHIFT, shift % 2 && group > 2 ? shift - 1 : shift),
                                    F8_INT(F8_A_GROUP, group)};
            const f8_ref stored = f8_cast(c.g, f8_make(c.g, F8_OP_ROLL, &x, 1, attr, 2), F8_F32);
            const f8_ref product = f8_binary(c.g, F8_OP_MUL, y, f8_cast(c.g, x, F8_F32));
            kc_out(&c, stored);
            if (_i)
                kc_out(&c, f8_binary(c.g, F8_OP_ADD, stored,
                                     f8_make(c.g, F8_OP_ROLL, &product, 1, attr, 2)));
        }
        kc_phase(&c, 19, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(gathers)
{
    kcase c;
    kc_begin(&c);
    for (int i = 0; i < N_WIDTHS; i++) {
        const int cols = widths[i];
        const f8_ref table = kc_input(&c, F8_F32, 2, 11, cols), ids = kc_ids(&c, 11, 2, 3, 5),
                     pos = kc_input(&c, F8_F32, 2, 5, cols);
        const f8_ref e = f8_make(c.g, F8_OP_EMBEDDING, (f8_ref[]){table, ids}, 2, NULL, 0);
        kc_out(&c, f8_cast(c.g, f8_binary(c.g, F8_OP_ADD, e, pos), F8_BF16));
        kc_phase(&c, 15, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* Cross-entropy: the column's number against the row's target. */
START_TEST(targets)
{
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    for (int i = 0; i < N_WIDTHS; i += 2) {
        const int cols = widths[i];
        const f8_ref x = kc_input(&c, F8_F32, 2, 4, cols), ids = kc_ids(&c, cols, 1, 4);
        const f8_attr shape = F8_INTS(F8_A_SHAPE, ((f8_ints){1, {cols}}));
        const f8_ref index = f8_make(g, F8_OP_IOTA, NULL, 0, &shape, 1);
        const f8_type column = {.dtype = F8_I32, .rank = 2, .dim = {4, 1}};
        const f8_ref to = f8_reshape(g, ids, &column);
        if (to != ids)
            kc_alias(&c, to, ids);
        c.place[to].stride = 1;
        const f8_ref hit = f8_binary(g, F8_OP_EQ, index, to);
        const f8_ref e = f8_unary(g, F8_OP_EXP, x), sum = f8_reduce(g, F8_OP_REDUCE_SUM, e, -1);
        kc_out(&c,
               f8_binary(g, F8_OP_SUB, f8_binary(g, F8_OP_DIV, e, sum), f8_cast(g, hit, F8_F32)));
        kc_out(&c, f8_reduce(g, F8_OP_REDUCE_SUM, f8_select(g, hit, x, f8_const(g, 0)), -1));
        kc_phase(&c, 4, cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* Results over their own operands: values along rows, of rows and of one element. */
START_TEST(in_place)
{
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    for (int i = 0; i < N_WIDTHS; i++) {
        const int cols = widths[i];
        const f8_ref x = kc_input(&c, F8_F32, 2, 21, cols), y = kc_input(&c, F8_F32, 2, 21, cols),
                     r = kc_input(&c, F8_F32, 2, 21, 1), z = kc_input(&c, F8_F32, 2, 21, cols);
        const f8_ref sum = f8_reduce(g, F8_OP_REDUCE_SUM, x, -1),
                     early = f8_binary(g, F8_OP_ADD, x, y);
        const f8_ref late = f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_SUB, x, sum), y);
        const f8_ref rows = f8_binary(g, F8_OP_MUL, r, sum);
        kc_alias(&c, early, x);
        kc_alias(&c, late, y);
        kc_alias(&c, rows, r);
        kc_out(&c, early);
        kc_out(&c, late);
        kc_out(&c, rows);
        kc_phase(&c, 21, cols);
        const f8_ref twice = f8_binary(g, F8_OP_ADD, z, z);
        kc_alias(&c, twice, z);
        kc_out(&c, twice);
        kc_phase(&c, 1, (int64_t)21 * cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* Columns of wider values, in and out, also where the phase was taken for flat. */
START_TEST(views)
{
    kcase c;
    kc_begin(&c);
    for (int i = _i; i <= _i; i++) {
        const int cols = widths[i];
        const f8_ref wide = kc_input(&c, F8_BF16, 2, 6, 3 * cols),
                     z = kc_input(&c, F8_F32, 2, 6, cols);
        const f8_ref x = f8_slice(c.g, wide, 1, cols, 2 * cols);
        kc_place_in(&c, x, wide, cols, 3 * cols);
        const f8_ref y = f8_binary(c.g, F8_OP_MUL, f8_cast(c.g, x, F8_F32), z);
        const f8_ref host = kc_input(&c, F8_F32, 2, 6, 4 * cols);
        kc_place_in(&c, y, host, 2 * cols, 4 * cols);
        c.n_input--; /* the host is only room */
        kc_out(&c, y);
        kc_phase(&c, 1, 6 * (int64_t)cols);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* An optimizer's update in place, over tensors of many sizes: one kernel, and one launch of all. */
START_TEST(many_tensors)
{
    static const int sizes[] = {1, 3, 4, 1023, 1024, 1025, 5000, 64, 2, 4096};
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    for (int i = 0; i < 10; i++) {
        const f8_ref w = kc_input(&c, F8_F32, 1, sizes[i] + 1),
                     m = kc_input(&c, F8_F32, 1, sizes[i] + 1),
                     dw = kc_input(&c, F8_F32, 1, sizes[i] + 1), rate = kc_input(&c, F8_F32, 0),
                     go = kc_input(&c, F8_BOOL, 0);
        const f8_ref next =
            f8_binary(g, F8_OP_ADD, f8_binary(g, F8_OP_MUL, m, f8_const(g, 0.9)), dw);
        const f8_ref step =
            f8_binary(g, F8_OP_DIV, f8_binary(g, F8_OP_MUL, next, rate),
                      f8_binary(g, F8_OP_ADD, f8_unary(g, F8_OP_SQRT, f8_unary(g, F8_OP_ABS, m)),
                                f8_const(g, 1e-8)));
        const f8_ref w1 = f8_select(g, go, f8_binary(g, F8_OP_SUB, w, step), w),
                     m1 = f8_select(g, go, next, m);
        kc_alias(&c, w1, w);
        kc_alias(&c, m1, m);
        kc_out(&c, w1);
        kc_out(&c, m1);
        kc_phase(&c, 1, sizes[i] + 1);
    }
    check(&c);
    kc_end(&c);
}
END_TEST

/* One kernel over tensors of other heights: rows, column sums. */
START_TEST(many_rows)
{
    kcase c;
    kc_begin(&c);
    for (int rows = 3; rows < 300; rows += 60)
        layernorm(&c, F8_BF16, rows, 48);
    for (int rows = 70; rows < 300; rows += 60)
        backward(&c, rows, 72, true, true, true);
    for (int rows = 70; rows < 300; rows += 60)
        backward(&c, rows, 520, true, true, false);
    check(&c);
    kc_end(&c);
}
END_TEST

START_TEST(small_shapes)
{
    kcase c;
    kc_begin(&c);
    f8_graph *g = c.g;
    const f8_ref a = kc_input(&c, F8_F32, 0), b = kc_input(&c, F8_F32, 1, 1),
                 v = kc_input(&c, F8_F32, 2, 77, 1), w = kc_input(&c, F8_F32, 1, 77),
                 long_ = kc_input(&c, F8_F32, 1, 3000);
    const f8_ref next = f8_binary(g, F8_OP_ADD, a, f8_const(g, 1));
    kc_out(&c, f8_binary(g, F8_OP_ADD, a, a));
    kc_alias(&c, next, a);
    kc_out(&c, next);
    kc_phase(&c, 1, 1);
    kc_out(&c, f8_binary(g, F8_OP_MUL, b, b));
    kc_phase(&c, 1, 1);
    kc_out(&c, f8_binary(g, F8_OP_MUL, v, b));
    kc_phase(&c, 77, 1);
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_SUM, w, -1));
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_AMAX, w, -1));
    kc_phase(&c, 1, 77);
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_SUM, f8_binary(g, F8_OP_MUL, long_, long_), -1));
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_AMAX, long_, -1));
    kc_out(&c, f8_reduce(g, F8_OP_REDUCE_MAX, long_, -1));
    kc_phase(&c, 1, 3000);
    const f8_type zeros = {.dtype = F8_F32, .rank = 2, .dim = {9, 5}};
    kc_out(&c, f8_broadcast(g, f8_const(g, 0), &zeros));
    kc_phase(&c, 1, 45);
    check(&c);
    kc_end(&c);
}
END_TEST

/* ---- the real compiler ---- */

/* NVRTC wherever it is but in the emulator's folder. */
static void load_toolkit(void)
{
    f8_diag d = {0};
    int version;
    f8_cuda_paths paths = f8_cuda_paths_from_environment();
    paths.fp8c_cuda_path = NULL;
    OK(f8_cuda_create(&paths, NULL, &toolkit, d));
    if (f8_cuda_nvrtc(toolkit, &version, &d) == F8_OK)
        return;
    fprintf(stderr, "check_cuda_rows: without NVRTC its tests are left out: %s\n", d.text);
    f8_cuda_destroy(toolkit);
    toolkit = NULL;
}

static void unload_toolkit(void)
{
    f8_cuda_destroy(toolkit);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* Every kernel of the case for every CUDA target: nothing in local memory. `vectors`: the least
 * number of 16-byte loads and stores in a kernel's PTX. */
static void check_compiled(kcase *c, int vectors)
{
    static job j;
    for (size_t i = 0; f8_target_at(i); i++) {
        const f8_target *to = f8_target_at(i);
        f8_arena arena;
        f8_nvrtc_result r;
        f8_diag d = {0};
        if (to->kind != F8_TARGET_CUDA)
            continue;
        f8_arena_init(&arena, NULL);
        j = (job){.c = c};
        describe(&j, to);
        ck_assert_msg(f8_cuda_compile(toolkit, j.text, "rows", f8_cuda_header, "fp8c.cuh", to->name,
                                      true, &arena, &r, &d) == F8_OK,
                      "%s: %s\n%s", to->name, d.text, r.log);
        const int clean =
            count(r.log, " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
        ck_assert_msg(clean == 2 * j.n_kernels && count(r.log, "stack frame") == clean,
                      "%s: local memory\n%s", to->name, r.log);
        ck_assert_msg(!strstr(r.ptx, "ld.local") && !strstr(r.ptx, "st.local"), "%s: local memory",
                      to->name);
        for (char *entry = strstr(r.ptx, ".entry"); entry && vectors;) {
            char *next = strstr(entry + 1, ".entry");
            if (next)
                *next = 0;
            ck_assert_msg(count(entry, "ld.global.v4") >= vectors &&
                              count(entry, "st.global.v4") >= vectors,
                          "%s: no 16-byte accesses\n%s", to->name, entry);
            entry = next;
            if (entry)
                *entry = '.';
        }
        f8_arena_end(&arena);
    }
}

START_TEST(compiled_norms)
{
    static const int wide[] = {128, 768, 1024, 1600, 4096, 11008};
    if (!toolkit)
        return;
    kcase c;
    kc_begin(&c);
    layernorm(&c, F8_BF16, 100, wide[_i]);
    check_compiled(&c, wide[_i] > 1024 ? 0 : 1); /* wider rows have narrower vectors */
    kc_end(&c);
}
END_TEST

START_TEST(compiled_columns)
{
    static const int wide[] = {128, 1024, 3072};
    if (!toolkit)
        return;
    kcase c;
    kc_begin(&c);
    backward(&c, 100, wide[_i], true, true, true);
    backward(&c, 100, wide[_i], true, false, true);
    backward(&c, 100, wide[_i], false, true, true);
    backward(&c, 100, wide[_i], true, true, false);
    check_compiled(&c, 1);
    kc_end(&c);
}
END_TEST

/* Ragged rows; a softmax over a vocabulary; flat kernels of several dtypes. */
START_TEST(compiled_others)
{
    if (!toolkit)
        return;
    kcase c;
    kc_begin(&c);
    layernorm(&c, F8_F32, 9, 77);
    layernorm(&c, F8_BF16, 9, 1001);
    backward(&c, 100, 999, true, true, true);
    f8_graph *g = c.g;
    const f8_ref x = kc_input(&c, F8_F32, 2, 4, 50257), top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1);
    const f8_ref e = f8_unary(g, F8_OP_EXP, f8_binary(g, F8_OP_SUB, x, top));
    kc_out(&c,
           f8_cast(g, f8_binary(g, F8_OP_DIV, e, f8_reduce(g, F8_OP_REDUCE_SUM, e, -1)), F8_BF16));
    kc_phase(&c, 4, 50257);
    check_compiled(&c, 0);
    kc_end(&c);
    kc_begin(&c);
    g = c.g;
    const f8_ref y = kc_input(&c, F8_F32, 1, 4096), b = kc_input(&c, F8_BF16, 1, 4096);
    kc_out(&c, f8_unary(g, F8_OP_TANH, y));
    kc_phase(&c, 1, 4096);
    kc_out(&c, f8_cast(g, f8_unary(g, F8_OP_SIGMOID, f8_cast(g, b, F8_F32)), F8_BF16));
    kc_phase(&c, 1, 4096);
    kc_out(&c, f8_cast(g, f8_unary(g, F8_OP_ERF, y), F8_BF16));
    kc_phase(&c, 1, 4096);
    check_compiled(&c, 1);
    kc_end(&c);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cuda rows");
    TCase *device = tcase_create("device");
    tcase_set_timeout(device, 300);
    tcase_add_checked_fixture(device, load, unload);
    tcase_add_loop_test(device, layernorms, 0, 2);
    tcase_add_loop_test(device, wide_rows, 0, 8);
    tcase_add_loop_test(device, softmaxes, 0, 2);
    tcase_add_loop_test(device, pointwise, 0, 4);
    tcase_add_test(device, ints_and_truth);
    tcase_add_loop_test(device, dtypes, 0, 4);
    tcase_add_loop_test(device, columns, 0, 8);
    tcase_add_loop_test(device, wide_columns, 0, 4);
    tcase_add_test(device, transposes);
    tcase_add_test(device, periodic_rows);
    tcase_add_loop_test(device, rolls, 0, 2);
    tcase_add_test(device, gathers);
    tcase_add_test(device, targets);
    tcase_add_test(device, in_place);
    for (int i = 2; i < N_WIDTHS; i += 4)
        tcase_add_loop_test(device, views, i, i + 1);
    tcase_add_test(device, many_tensors);
    tcase_add_test(device, many_rows);
    tcase_add_test(device, small_shapes);
    suite_add_tcase(s, device);
    TCase *compiler = tcase_create("compiler");
    tcase_set_timeout(compiler, 300);
    tcase_add_unchecked_fixture(compiler, load_toolkit, unload_toolkit);
    tcase_add_loop_test(compiler, compiled_norms, 0, 6);
    tcase_add_loop_test(compiler, compiled_columns, 0, 3);
    tcase_add_test(compiler, compiled_others);
    suite_add_tcase(s, compiler);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    srunner_run_all(r, CK_ENV);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
