/* Attention kernels of the CUDA target. Every shape compiles for every architecture without spills.
 * On the device (the emulator, or a GPU) results are compared with a reference in double, with
 * derived error bounds, over ragged ends, grouped heads, views and alignments. The bits do not
 * depend on the grid, and NaN and Inf appear exactly where they belong. */
#include "codegen/cuda/emit.h"
#include "runtime/cuda/internal.h"
#include "tests/shared/kernel/attention_case.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/nvrtc_cache.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cuda_device device;

#define CU(call) ck_assert_int_eq(device.cuda->cu.call, CUDA_SUCCESS)

static void load(void)
{
    cuda_device_open(&device);
}

static void unload(void)
{
    cuda_device_close(&device);
}

/* ---- running on the device ---- */

typedef struct kernels {
    f8_cuda_attention attention;
    CUmodule module;
    CUfunction function[F8_CUDA_ATTENTION_PHASES];
} kernels;

static char *text_of(f8_arena *arena, const f8_target *to, const f8_attention_desc *desc,
                     bool backward, f8_cuda_attention *out)
{
    f8_text t = {.arena = arena};
    f8_text_add(&t, "#include \"fp8c.cuh\"\n");
    OK(f8_cuda_attention_emit(&t, to, desc, backward, "att", out, diag));
    ck_assert(f8_arena_status(arena, NULL) == F8_OK);
    return t.s;
}

static void build(kernels *k, const f8_attention_desc *desc, bool backward)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    const char *text = text_of(&arena, device.target, desc, backward, &k->attention);
    f8_nvrtc_result r;
    f8_diag d = {0};
    ck_assert_msg(f8_cuda_compile(device.cuda, text, "attention", f8_cuda_header, "fp8c.cuh",
                                  device.target->name, (f8_nvrtc_options){0}, &arena, &r,
                                  &d) == F8_OK,
                  "%s\n%s", d.text, r.log);
    OK(f8_cuda_enter(device.cuda, diag));
    CU(cuModuleLoadData(&k->module, r.cubin));
    for (int i = 0; i < k->attention.n; i++) {
        const f8_cuda_launch *l = &k->attention.launch[i];
        CU(cuModuleGetFunction(&k->function[i], k->module, l->symbol));
        CU(cuFuncSetAttribute(k->function[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              (int)l->shared));
    }
    f8_cuda_leave(device.cuda);
    f8_arena_end(&arena);
}

static void drop(kernels *k)
{
    OK(f8_cuda_enter(device.cuda, diag));
    CU(cuModuleUnload(k->module));
    f8_cuda_leave(device.cuda);
}

/* What is f32 whatever the dtype stays aligned. */
static size_t shift_of(int tensor, size_t shift)
{
    return tensor == T_LSE || tensor >= T_MASK ? 0 : shift;
}

/* Run one direction on `grid` blocks (0: one a task); tensors lie `shift` bytes past an aligned
 * place. */
static void run(att_case *c, const kernels *k, bool backward, unsigned grid, size_t shift)
{
    enum { SPACE = T_COUNT };
    int order[T_COUNT];
    const int n = att_order(&c->desc, backward, order);
    const size_t space = (size_t)f8_cuda_attention_workspace(&c->desc, backward);
    CUdeviceptr at[T_COUNT + 1] = {0};
    OK(f8_cuda_enter(device.cuda, diag));
    for (int i = 0; i < n; i++) {
        const att_tensor *t = &c->t[order[i]];
        const size_t by = shift_of(order[i], shift);
        CU(cuMemAlloc_v2(&at[i], t->bytes + by));
        CU(cuMemcpyHtoDAsync_v2(at[i] + by, t->memory, t->bytes, NULL));
    }
    if (space) {
        CU(cuMemAlloc_v2(&at[SPACE], space));
        CU(cuMemsetD8Async(at[SPACE], 0xff, space, NULL)); /* NaNs: nothing left over may be read */
    }
    for (int i = 0; i < k->attention.n; i++) {
        const f8_cuda_launch *l = &k->attention.launch[i];
        uint64_t params[T_COUNT + 2];
        ck_assert_int_eq(l->n_args, n + 1);
        ck_assert_int_eq(l->n_ints, 0);
        for (int j = 0; j < n; j++) {
            const att_tensor *t = &c->t[order[j]];
            params[j] = at[j] + (size_t)(t->base - t->memory) + shift_of(order[j], shift);
        }
        params[n] = at[SPACE];
        params[n + 1] = (uint64_t)k->attention.tasks[i];
        void *args[] = {params};
        CU(cuLaunchKernel(k->function[i], grid ? grid : (unsigned)k->attention.tasks[i], 1, 1,
                          l->threads, 1, 1, l->shared, NULL, args, NULL));
    }
    CU(cuStreamSynchronize(NULL));
    for (int i = 0; i < n; i++) {
        const att_tensor *t = &c->t[order[i]];
        const size_t by = shift_of(order[i], shift);
        CU(cuMemcpyDtoHAsync_v2(t->memory, at[i] + by, t->bytes, NULL));
        CU(cuMemFree_v2(at[i]));
    }
    if (space)
        CU(cuMemFree_v2(at[SPACE]));
    f8_cuda_leave(device.cuda);
}

/* ---- numbers ---- */

/* What codegen/cuda/attention.c promises. bf16: p and ds are rounded to bf16 (2^-8); a tensor core
 * may cut two bits off each addition where f32 rounds (2^-22 a term); exp2 is off by 2^-20 and
 * rounds its argument like exp. f32: multiply-adds and a quad's additions, exp2 off by 2^-22. */
static void make(att_case *c, const f8_attention_desc *d, int64_t gap, uint64_t seed)
{
    att_make(c, NULL, d, gap, seed);
    c->errors = d->dtype == F8_BF16
                    ? (att_errors){.left = 0x1p-8, .term = 0x1p-22, .exp = 0x1p-20 + 4 * 0x1p-24}
                    : (att_errors){.left = 0, .term = 0x1p-23, .exp = 0x1p-22 + 4 * 0x1p-24};
}

static void check_case(const f8_attention_desc *desc, int64_t gap, size_t shift, uint64_t seed)
{
    att_case c;
    kernels k;
    make(&c, desc, gap, seed);
    build(&k, &c.desc, false);
    run(&c, &k, false, 0, shift);
    drop(&k);
    att_reference_forward(&c);
    att_check(&c, T_O);
    att_check(&c, T_LSE);
    build(&k, &c.desc, true);
    run(&c, &k, true, 0, shift);
    drop(&k);
    att_reference_backward(&c);
    for (int t = T_DQ; t <= T_DV; t++)
        att_check(&c, t);
    for (int t = T_Q; t <= T_DO; t++)
        ck_assert(att_canary(&c, t));
    att_free(&c);
}

START_TEST(chosen_shapes)
{
    static const struct {
        int dtype, T, H, Hkv, D, causal, gap, shift; /* gap in elements, shift in bytes */
    } cases[] = {
        {F8_BF16, 1, 4, 4, 64, 1, 0, 0},      {F8_BF16, 5, 4, 1, 4, 1, 0, 0},
        {F8_BF16, 64, 2, 1, 32, 0, 0, 0},     {F8_BF16, 65, 4, 2, 16, 1, 8, 0},
        {F8_BF16, 130, 2, 1, 64, 1, 256, 16}, /* a packed [B, T, 3C] has such strides */
        {F8_BF16, 130, 1, 1, 80, 0, 0, 2},    {F8_BF16, 65, 4, 1, 128, 1, 0, 0},
        {F8_BF16, 130, 1, 1, 128, 0, 8, 0},   {F8_BF16, 70, 2, 2, 17, 1, 3, 2},
        {F8_BF16, 130, 2, 1, 24, 1, 0, 4},    {F8_F32, 1, 2, 1, 64, 1, 0, 0},
        {F8_F32, 65, 4, 2, 16, 1, 3, 4},      {F8_F32, 33, 2, 2, 5, 0, 0, 0},
        {F8_F32, 64, 2, 1, 128, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f8_attention_desc d = att_shape(cases[i].dtype, 1 + i % 2, cases[i].T, cases[i].H,
                                        cases[i].Hkv, cases[i].D, cases[i].causal);
        check_case(&d, cases[i].gap, (size_t)cases[i].shift, i + 1);
    }
}
END_TEST

/* Other keys than queries, within a tile and across tiles and blocks, and masks with all kinds of
 * axes: queries that see nothing, groups of heads, scales below 0. */
START_TEST(keys_and_masks)
{
    static const struct {
        int dtype, T, Tk, H, Hkv, D, causal, gap;
        f8_attention_masking masking;
        const char *axes;
    } cases[] = {
        {F8_BF16, 5, 40, 2, 1, 16, 0, 0, F8_MASK_NONE, ""},
        {F8_BF16, 40, 5, 2, 1, 16, 1, 0, F8_MASK_NONE, ""},
        {F8_BF16, 60, 200, 2, 1, 24, 1, 3, F8_MASK_NONE, ""},
        {F8_BF16, 140, 70, 2, 2, 32, 1, 8, F8_MASK_NONE, ""},
        {F8_F32, 20, 90, 2, 1, 16, 1, 0, F8_MASK_NONE, ""},
        {F8_F32, 70, 20, 1, 1, 5, 0, 3, F8_MASK_NONE, ""},
        {F8_BF16, 65, 65, 2, 1, 16, 0, 0, F8_MASK_BOOL, "bk"},
        {F8_BF16, 70, 33, 4, 2, 32, 0, 0, F8_MASK_ADD, "bhqk"},
        {F8_BF16, 40, 100, 2, 1, 80, 1, 0, F8_MASK_BOOL, "qk"},
        {F8_BF16, 66, 66, 2, 2, 64, 1, 8, F8_MASK_ADD, "q"},
        {F8_F32, 33, 40, 2, 1, 16, 0, 0, F8_MASK_ADD, "hk"},
        {F8_F32, 40, 21, 2, 2, 5, 1, 3, F8_MASK_BOOL, "bqk"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f8_attention_desc d = att_shape(cases[i].dtype, 1 + i % 2, cases[i].T, cases[i].H,
                                        cases[i].Hkv, cases[i].D, cases[i].causal);
        d.Tk = cases[i].Tk;
        d.scale *= i % 4 == 3 ? -1 : 1;
        d = att_masked(d, cases[i].masking, cases[i].axes);
        check_case(&d, cases[i].gap, 0, i + 1);
    }
}
END_TEST

/* Which weights are dropped depends on their place alone: with every kind of kernel, groups of
 * heads, masks, and keys unlike queries. */
START_TEST(dropout)
{
    static const struct {
        int dtype, T, Tk, H, Hkv, D, causal;
        f8_attention_masking masking;
        double p;
        int64_t stream;
    } cases[] = {
        {F8_BF16, 70, 70, 4, 2, 32, 1, F8_MASK_NONE, 0.1, 0},
        {F8_BF16, 150, 90, 2, 1, 80, 0, F8_MASK_NONE, 0.5, 7},
        {F8_BF16, 40, 100, 2, 1, 64, 0, F8_MASK_BOOL, 0.25, 2147483647},
        {F8_BF16, 66, 66, 2, 2, 128, 1, F8_MASK_ADD, 0.9, 1},
        {F8_F32, 33, 40, 4, 2, 16, 1, F8_MASK_NONE, 0.3, 3},
        {F8_F32, 40, 21, 2, 2, 5, 0, F8_MASK_BOOL, 0.6, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f8_attention_desc d = att_shape(cases[i].dtype, 2, cases[i].T, cases[i].H, cases[i].Hkv,
                                        cases[i].D, cases[i].causal);
        d.Tk = cases[i].Tk;
        d.dropout = cases[i].p;
        d.stream = cases[i].stream;
        if (cases[i].masking)
            d = att_masked(d, cases[i].masking, "bqk");
        check_case(&d, 0, 0, i + 1);
    }
}
END_TEST

/* Whatever the grid, and in whatever order blocks and warps run. */
START_TEST(grids_and_orders_do_not_change_bits)
{
    for (int k = 0; k < 3; k++) {
        const f8_attention_desc d =
            att_shape(k == 2 ? F8_F32 : F8_BF16, 2, 140, 4, 2, k ? 32 : 80, k != 1);
        uint8_t *first[T_COUNT] = {0};
        att_case c;
        kernels forward, backward;
        make(&c, &d, 8, 7);
        build(&forward, &c.desc, false);
        build(&backward, &c.desc, true);
        for (int i = 0; i < 4; i++) {
            static const char *const seeds[] = {"0", "1", "77", "1234567"};
            static const unsigned grids[] = {0, 0, 1, 5};
            setenv("FP8C_EMULATOR_SEED", seeds[i], 1);
            for (int t = T_O; t < T_COUNT; t++)
                if (t != T_DO)
                    att_clear(&c, t);
            run(&c, &forward, false, grids[i], 0);
            run(&c, &backward, true, grids[i], 0);
            for (int t = T_O; t < T_COUNT; t++) {
                if (!first[t]) {
                    first[t] = malloc(c.t[t].bytes);
                    memcpy(first[t], c.t[t].memory, c.t[t].bytes);
                }
                ck_assert_msg(!memcmp(first[t], c.t[t].memory, c.t[t].bytes), "%s: %s differs",
                              att_describe(&c.desc), att_name[t]);
            }
        }
        unsetenv("FP8C_EMULATOR_SEED");
        for (int t = 0; t < T_COUNT; t++)
            free(first[t]);
        drop(&forward);
        drop(&backward);
        att_free(&c);
    }
}
END_TEST

/* Aligned or not, rows are read another way: the same bits. */
START_TEST(alignment_does_not_change_bits)
{
    const f8_attention_desc d = att_shape(F8_BF16, 1, 70, 2, 1, 64, true);
    att_case c[2];
    kernels k[2];
    for (int i = 0; i < 2; i++) {
        make(&c[i], &d, 8, 7);
        for (int backward = 0; backward < 2; backward++) {
            if (i == 0)
                build(&k[backward], &c[i].desc, backward);
            run(&c[i], &k[backward], backward, 0, i ? 2 : 0);
        }
    }
    for (int t = 0; t < T_COUNT; t++)
        ck_assert_msg(!memcmp(c[0].t[t].memory, c[1].t[t].memory, c[0].t[t].bytes), "%s differs",
                      att_name[t]);
    for (int i = 0; i < 2; i++) {
        drop(&k[i]);
        att_free(&c[i]);
    }
}
END_TEST

/* ---- NaN and Inf ---- */

/* Forward and backward: `k` is built for the first case and serves all of its shape. */
static void both(att_case *c, kernels k[2], bool first)
{
    for (int backward = 0; backward < 2; backward++) {
        if (first)
            build(&k[backward], &c->desc, backward);
        run(c, &k[backward], backward, 0, 0);
    }
}

/* Causal, NaN at token 60 of one tensor (in the middle of a block on the diagonal): exactly the
 * rows that depend on it are NaN. */
START_TEST(nan_stays_where_it_belongs)
{
    enum { AT = 60, T = 130 };
    static const int where[] = {T_Q, T_K, T_V, T_DO};
    kernels built[2];
    for (int k = 0; k < 8; k++) {
        const int bad = where[k % 4];
        const f8_attention_desc d = att_shape(k < 4 ? F8_BF16 : F8_F32, 1, T, 2, 2, 32, true);
        att_case c;
        make(&c, &d, 0, 11);
        for (int64_t e = 0; e < d.D; e++)
            att_put(&c, bad, 0, AT, 1, e, NAN);
        both(&c, built, k % 4 == 0);
        for (int64_t t = 0; t < T; t++) {
            /* of o (query t), of dq, of dk and dv (key t) */
            const bool o = bad == T_DO ? false : bad == T_Q ? t == AT : t >= AT;
            const bool dq = bad == T_DO ? t == AT : o;
            const bool dk = bad == T_K || bad == T_V || t <= AT;
            const bool dv = bad == T_K || (bad != T_V && t <= AT);
            const bool want[] = {o, dq, dk, dv};
            static const int tensor[] = {T_O, T_DQ, T_DK, T_DV};
            for (int i = 0; i < 4; i++) {
                ck_assert_msg(!att_row_is_nan(&c, tensor[i], t, 0), "%s: row %d of the other head",
                              att_name[tensor[i]], (int)t);
                ck_assert_msg(att_row_is_nan(&c, tensor[i], t, 1) == want[i],
                              "NaN in %s: %s row %d", att_name[bad], att_name[tensor[i]], (int)t);
            }
        }
        att_free(&c);
        for (int i = 0; k % 4 == 3 && i < 2; i++)
            drop(&built[i]);
    }
}
END_TEST

static void infinite_scores(att_case *c, kernels k[2])
{
    att_put_infinite_scores(c);
    both(c, k, true);
    att_check_infinite_scores(c);
}

/* signs: bit 0 for a term +Inf, bit 1 for one -Inf. */
static bool is_sum(double x, int signs)
{
    if (signs == 0)
        return isfinite(x);
    return signs == 3 ? isnan(x) : x == (signs == 1 ? INFINITY : -INFINITY);
}

/* An Inf in v or do reaches exactly the results whose sums contain it, also on the diagonal. Where
 * +Inf and -Inf are in one sum, the result is NaN. */
static void infinite_values(att_case *c, kernels k[2])
{
    enum { PLUS = 53, MINUS = 57 };
    static const int tensors[] = {T_V, T_DO};
    for (int i = 0; i < 2; i++) {
        att_put(c, tensors[i], 0, PLUS, 0, 3, INFINITY);
        att_put(c, tensors[i], 0, MINUS, 0, 3, -INFINITY);
        att_put(c, tensors[i], 0, MINUS, 0, 9, -INFINITY);
    }
    both(c, k, false);
    for (int64_t t = 0; t < c->desc.T; t++)
        for (int64_t e = 0; e < c->desc.D; e++) {
            const double o = att_get(c, T_O, 0, t, 0, e), dv = att_get(c, T_DV, 0, t, 0, e);
            const bool plus = e == 3, minus = e == 3 || e == 9;
            ck_assert_msg(is_sum(o, (plus && t >= PLUS) | (minus && t >= MINUS) << 1),
                          "o[%d][%d] is %g", (int)t, (int)e, o);
            ck_assert_msg(is_sum(dv, (plus && t <= PLUS) | (minus && t <= MINUS) << 1),
                          "dv[%d][%d] is %g", (int)t, (int)e, dv);
        }
}

START_TEST(infinities)
{
    for (int i = 0; i < 2; i++) {
        const f8_attention_desc d = att_shape(i ? F8_F32 : F8_BF16, 1, 100, 1, 1, 16, true);
        kernels k[2];
        for (int values = 0; values < 2; values++) {
            att_case c;
            make(&c, &d, 0, 5);
            (values ? infinite_values : infinite_scores)(&c, k);
            att_free(&c);
        }
        drop(&k[0]);
        drop(&k[1]);
    }
}
END_TEST

/* ---- what is compiled, and what is refused ---- */

typedef struct compile_job {
    f8_attention_desc desc;
    const char *target;
    bool backward;
} compile_job;

typedef struct compiler {
    f8_cuda *nvrtc;
    const compile_job *job;
    int first, n;
    char failure[4096];
} compiler;

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* Every second job from `first` on. */
static void *compile_jobs(void *argument)
{
    compiler *c = argument;
    for (int i = c->first; i < c->n && !c->failure[0]; i += 2) {
        const compile_job *j = &c->job[i];
        f8_arena arena;
        f8_arena_init(&arena, NULL);
        f8_text t = {.arena = &arena};
        f8_cuda_attention a = {0};
        f8_nvrtc_result r = {0};
        f8_diag d = {0};
        f8_text_add(&t, "#include \"fp8c.cuh\"\n");
        if (f8_cuda_attention_emit(&t, f8_target_by_name(j->target), &j->desc, j->backward, "att",
                                   &a, &d) ||
            f8_cuda_compile(c->nvrtc, t.s, "attention", f8_cuda_header, "fp8c.cuh", j->target,
                            (f8_nvrtc_options){0}, &arena, &r, &d) ||
            count(r.log, "bytes stack frame") != a.n ||
            count(r.log, " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") !=
                a.n ||
            count(r.log, "warning"))
            snprintf(c->failure, sizeof c->failure, "%s: %s: %s\n%s", j->target,
                     att_describe(&j->desc), d.text, r.log ? r.log : "");
        f8_arena_end(&arena);
    }
    return NULL;
}

static void set_strides(f8_attention_desc *x, int64_t gap)
{
    const int64_t q = x->H * x->D + gap, kv = x->Hkv * x->D + gap;
    x->stride.q = x->stride.o = x->stride.dout = x->stride.dq = q;
    x->stride.k = x->stride.v = x->stride.dk = x->stride.dv = kv;
}

/* With the real NVRTC, where there is one: no spills, no local memory, no warnings. By default a
 * shape is compiled for one architecture, one with mask or dropout for that one or for none
 * (nvrtc_in_turn). */
START_TEST(compiles_without_spills)
{
    f8_cuda_paths paths = f8_cuda_paths_from_environment();
    paths.fp8c_cuda_path = NULL;
    f8_cuda *nvrtc;
    f8_diag diag = {0};
    compile_job jobs[64];
    int n = 0;
    OK(f8_cuda_create(&paths, NULL, &nvrtc, diag));
    int version;
    if (f8_cuda_nvrtc(nvrtc, &version, &diag) != F8_OK) {
        test_skip("compiling attention for GPUs", "%s (PyPI: nvidia-cuda-nvrtc)", diag.text);
        f8_cuda_destroy(nvrtc);
        return;
    }
    const f8_target *t;
    for (size_t i = 0; (t = f8_target_at(i)); i++)
        for (int k = 0; t->kind == F8_TARGET_CUDA && k < 12; k++) {
            static const int heads[] = {64, 128, 64, 64, 128, 128};
            f8_attention_desc d =
                att_shape(k / 2 == 2 ? F8_F32 : F8_BF16, 8, 2048, 12, 4, heads[k / 2], true);
            /* few architectures, for time */
            if (k >= 6 && (t->sm > 90 || (k >= 10 && t->sm != 90)))
                continue;
            if (k >= 6)
                d = att_masked(d, t->sm == 90 ? F8_MASK_ADD : F8_MASK_BOOL, "bqk");
            if (k >= 6 && t->sm != 90) /* with a mask and without one */
                d.dropout = 0.1;
            if (k >= 10) {
                d = att_shape(F8_BF16, 8, 2048, 12, 4, heads[k / 2], true);
                d.dropout = 0.1;
            }
            set_strides(&d, 0);
            char name[192];
            snprintf(name, sizeof name, "%s, %d", att_describe(&d), k % 2);
            if (nvrtc_in_turn(name, t->name, 1))
                jobs[n++] = (compile_job){d, t->name, k % 2};
        }
    compiler c[2];
    pthread_t thread;
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < 2; i++)
        c[i] = (compiler){.nvrtc = nvrtc, .job = jobs, .first = i, .n = n};
    ck_assert_int_eq(pthread_create(&thread, NULL, compile_jobs, &c[1]), 0);
    compile_jobs(&c[0]);
    pthread_join(thread, NULL);
    f8_cuda_destroy(nvrtc);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(!c[i].failure[0], "%s", c[i].failure);
}
END_TEST

/* A block's shared memory (227 KiB on 9.0 and 10.0, 99 KiB on 8.9 and 12.0) holds every shape. */
START_TEST(shared_memory_fits)
{
    const f8_target *t;
    for (size_t i = 0; (t = f8_target_at(i)); i++)
        for (int64_t D = 1; t->kind == F8_TARGET_CUDA && D <= 128; D++)
            for (int k = 0; k < 4; k++) {
                f8_attention_desc d = att_shape(k & 1 ? F8_BF16 : F8_F32, 1, 200, 2, 1, D, true);
                set_strides(&d, 0);
                f8_arena arena;
                f8_cuda_attention a;
                f8_arena_init(&arena, NULL);
                text_of(&arena, t, &d, k >> 1, &a);
                const uint32_t most = t->sm == 90 || t->sm == 100 ? 227 * 1024 : 99 * 1024;
                for (int j = 0; j < a.n; j++)
                    ck_assert_msg(a.launch[j].shared <= most, "%s: %s: %u bytes", t->name,
                                  att_describe(&d), a.launch[j].shared);
                f8_arena_end(&arena);
            }
}
END_TEST

static void refused(f8_attention_desc x, bool backward, f8_status status, const char *why)
{
    f8_arena arena;
    f8_diag d = {0};
    f8_cuda_attention a;
    f8_arena_init(&arena, NULL);
    f8_text t = {.arena = &arena};
    ck_assert_int_eq(
        f8_cuda_attention_emit(&t, f8_target_by_name("sm_90a"), &x, backward, "x", &a, &d), status);
    ck_assert_msg(strstr(d.text, why) != NULL, "%s", d.text);
    f8_arena_end(&arena);
}

START_TEST(impossible_shapes_are_refused)
{
    f8_attention_desc x = att_shape(F8_F16, 1, 8, 1, 1, 16, true);
    refused(x, false, F8_ERR_UNSUPPORTED, "f16");
    refused(att_shape(F8_BF16, 1, 8, 3, 2, 16, true), false, F8_ERR_INPUT, "kv heads");
    refused(att_shape(F8_BF16, 1, 8, 2, 2, 129, true), false, F8_ERR_UNSUPPORTED, "128");
    refused(att_shape(F8_BF16, 1 << 20, 1 << 20, 64, 2, 64, true), false, F8_ERR_UNSUPPORTED,
            "too many");
    refused(att_shape(F8_BF16, 1, 8, 2, 2, 16, true), true, F8_ERR_INPUT, "stride");
    x = att_shape(F8_BF16, 1, 8, 2, 2, 16, true);
    x.scale = 0;
    refused(x, false, F8_ERR_UNSUPPORTED, "scale");
    x = att_shape(F8_BF16, 1, 8, 2, 2, 16, true);
    x.D = 0;
    refused(x, false, F8_ERR_INPUT, "2 heads of 0 elements");
    f8_diag d = {0};
    x.scale = 1;
    ck_assert_int_eq(f8_cuda_attention_supports(f8_target_by_name("cpu"), &x, &d),
                     F8_ERR_UNSUPPORTED);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_attention");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 600);
    /* in the tests' own processes: the stand-ins and the real NVRTC stay apart */
    tcase_add_checked_fixture(t, load, unload);
    tcase_add_test(t, chosen_shapes);
    tcase_add_test(t, keys_and_masks);
    tcase_add_test(t, dropout);
    tcase_add_test(t, grids_and_orders_do_not_change_bits);
    tcase_add_test(t, alignment_does_not_change_bits);
    tcase_add_test(t, nan_stays_where_it_belongs);
    tcase_add_test(t, infinities);
    suite_add_tcase(s, t);
    t = tcase_create("text");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, shared_memory_fits);
    tcase_add_test(t, impossible_shapes_are_refused);
    suite_add_tcase(s, t);
    t = tcase_create("nvrtc");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, compiles_without_spills);
    suite_add_tcase(s, t);
    return s;
}
