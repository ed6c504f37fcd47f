/* Sizes of GEMMs that the target's library is slow for (gemm_multiple of ir/target.h). A model with
 * an odd vocabulary and tied embeddings is built with padding and without, and both are run on the
 * emulator, or with FP8C_TEST_GPU on a GPU: forward, backward and update. Logits are whole in some
 * and in chunks in others. Padding adds one small kernel and no pass over the data. What lies in
 * the arena before a run, NaNs too, changes no bit. Products of random sizes have the same results
 * with padding. */
#include "codegen/build.h"
#include "frontend/text/parse.h"
#include "runtime/cuda/exec.h"
#include "runtime/cuda/internal.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/passes/unit.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT = 600, C = 32 };

/* Rows of 4101 logits are cut into chunks of HEAD_BYTES; those of 257 are few bytes. */
enum { WHOLE = 257, CHUNKED = 4101, ROWS = 256, HEAD_BYTES = 1 << 20, CHUNK = 32 };

/* tied: GPT-2, whose head [V, C] is the embedding; else the text below, with a head of its own,
 * [C, V]: then the vocabulary is columns of the weight, and of its gradient, which nothing pads. */
typedef struct variant {
    int64_t vocabulary;
    const char *recipe;
    bool tied;
    int64_t time; /* of four sequences; 0: ROWS in all */
} variant;
static const variant variants[] = {{WHOLE, "bf16", true, 0},    {WHOLE, "delayed", true, 0},
                                   {CHUNKED, "bf16", true, 0},  {CHUNKED, "delayed", true, 0},
                                   {CHUNKED, "bf16", false, 0}, {WHOLE, "bf16", false, 0}};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static const char untied[] =
    "module untied\ndim B = 4, T = 64, C = 32, H = 1, L = 1, V = 257\n"
    "param wte.weight: f32[V, C] normal(0.5)\nparam head: f32[C, V] normal(0.1)\n"
    "param ln.weight: f32[C] ones\nparam ln.bias: f32[C] zeros\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  %x = layernorm(embedding(wte.weight, %tokens), ln.weight, ln.bias) {eps = 1e-5}\n"
    "  %logits = linear(%x, head) {name = \"lm_head\"}\n"
    "  return cross_entropy(%logits, %targets)\n}\n"
    "optimizer adamw {\n  lr = 1e-3, clip = 1\n}\n";

static bool emulated;

/* ---- building ---- */

typedef cuda_plan program;

static void build_as(program *p, const variant *v, const f8_target *target, f8_build_options o,
                     bool no_fuse)
{
    const f8_dim_override dims[] = {{"B", 4}, {"T", v->time ? v->time : ROWS / 4},
                                    {"C", C}, {"H", 2},
                                    {"L", 1}, {"V", v->vocabulary}};
    cuda_plan_lower(p, &(cuda_model){.text = v->tied ? NULL : untied,
                                     .file = "frontend/models/gpt2_124m.f8",
                                     .dims = dims,
                                     .n_dims = sizeof dims / sizeof *dims,
                                     .recipe = v->recipe,
                                     .target = target,
                                     .no_fuse = no_fuse});
    cuda_plan_finish(p, o);
    ck_assert_msg(p->status == F8_OK, "%s", p->diag.text);
    for (size_t i = 0; i < p->unit.module->n_funcs; i++)
        if (p->unit.module->func[i].lowered)
            ck_assert_msg(f8_program_check(&p->unit.module->func[i], &p->diag) == F8_OK, "%s",
                          p->diag.text);
}

static void build(program *p, const variant *v, const f8_target *target, f8_build_options o)
{
    build_as(p, v, target, o, false);
}

/* The target as it is, but for how long a launch takes: with 0, GEMMs that cannot be padded are
 * always made in parts. */
static f8_target as_it_is(const f8_target *t, double launch)
{
    f8_target made = *t;
    made.head_bytes = HEAD_BYTES;
    made.speeds.launch = launch;
    return made;
}

static f8_target without_padding(const f8_target *t)
{
    f8_target made = as_it_is(t, t->speeds.launch);
    made.gemm_multiple = 1;
    return made;
}

static const f8_plan_func *func_of(const program *p, const char *name)
{
    for (uint32_t i = 0; i < p->plan.n_funcs; i++)
        if (!strcmp(p->plan.func[i].name, name))
            return &p->plan.func[i];
    ck_abort_msg("no function %s", name);
}

/* ---- plans ---- */

typedef struct totals {
    int64_t steps, fills, kernel_bytes, gemms, odd, sizes, parts;
} totals;

/* `steps`: as if none were merged, for where values lie may decide which merge. `odd`: bf16 GEMMs
 * with a size, or with rows in memory, that is no multiple of 8. `sizes`: all such sizes. */
static totals count(const f8_plan_func *f)
{
    totals t = {0};
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const f8_step *s = &f->step[i];
        const f8_gemm_desc *d = &s->gemm;
        const bool fill = !strcmp(s->name, "padding");
        t.steps += s->kind == F8_STEP_KERNEL && s->n_phases == 1
                       ? s->phase[0].launch.n_instances - fill
                       : s->kind != F8_STEP_GEMM;
        t.fills += fill;
        t.kernel_bytes += s->kind != F8_STEP_GEMM ? s->bytes_read + s->bytes_written : 0;
        if (s->kind != F8_STEP_GEMM)
            continue;
        t.gemms++;
        t.parts += d->m < 8;
        t.sizes += (d->m % 8 != 0) + (d->n % 8 != 0) + (d->k % 8 != 0);
        t.odd += d->a == F8_BF16 && d->m >= 8 &&
                 (d->m % 8 || d->n % 8 || d->k % 8 || d->lda % 8 || d->ldb % 8 || d->ldc % 8);
    }
    return t;
}

START_TEST(plans_are_padded)
{
    const variant *v = &variants[_i % N_VARIANTS];
    static const char *const targets[] = {"sm_90a", "sm_100a", "sm_120a"};
    const f8_target *t = f8_target_by_name(targets[_i / N_VARIANTS]);
    const f8_target target[] = {without_padding(t), as_it_is(t, t->speeds.launch), as_it_is(t, 0)};
    const bool chunked = v->vocabulary == CHUNKED;
    const int64_t chunks = chunked ? ROWS / CHUNK : 1, rows = chunked ? CHUNK : ROWS;
    const int64_t missing = 8 - v->vocabulary % 8;
    program p[3];
    for (int i = 0; i < 3; i++)
        build(&p[i], v, &target[i], (f8_build_options){.text_only = true});
    for (int name = 0; name < 2; name++) {
        const char *const f = name ? "micro_step" : "eval";
        const totals a = count(func_of(&p[0], f)), b = count(func_of(&p[1], f)),
                     c = count(func_of(&p[2], f));
        ck_assert_int_eq(a.odd, (name ? 3 : 1) * chunks);
        ck_assert(a.fills == 0 && b.fills == v->tied && c.fills == v->tied);
        ck_assert(a.steps == b.steps && b.steps == c.steps);
        /* the rows of zeros behind the weight, and the zero they are copied from */
        ck_assert_int_eq(b.kernel_bytes - a.kernel_bytes, v->tied ? missing * C * 2 + 2 : 0);
        ck_assert_int_eq(c.kernel_bytes, b.kernel_bytes);
        /* wgrad adds to the gradient in place; products this small stay whole */
        ck_assert_int_eq(b.odd, name ? chunks : 0);
        ck_assert_int_eq(b.gemms, a.gemms);
        ck_assert_int_eq(c.odd, name && !v->tied ? chunks : 0);
        ck_assert_int_eq(c.parts, name && v->tied ? chunks : 0);
        ck_assert_int_eq(c.gemms, a.gemms + c.parts);
        /* padding of logits, their gradient and the weight, as the arena aligns them */
        const int64_t more = func_of(&p[1], f)->arena_bytes - func_of(&p[0], f)->arena_bytes;
        ck_assert_int_le(more, 2 * (rows * missing * 4 + missing * C * 2 + 3 * F8_ARENA_ALIGN));
    }
    for (int i = 0; i < 3; i++)
        f8_arena_end(&p[i].arena);
}
END_TEST

/* Whether kernels are fused decides no size, since sizes may decide bits. */
START_TEST(explained)
{
    const f8_target *t = f8_target_by_name("sm_90a");
    const f8_target target = as_it_is(t, 0);
    static const char *const roles[] = {"fprop", "dgrad", "wgrad"};
    static const char *const said[] = {"; padded to 32x4104x32", "; padded to 32x32x4104",
                                       "; in parts of 4096 and 5 rows"};
    program p;
    int found = 0;
    build_as(&p, &variants[2], &target, (f8_build_options){.text_only = true}, _i);
    for (size_t i = 0; i < p.unit.n_decisions; i++) {
        const f8_decision *d = &p.unit.decision[i];
        const bool head = !strcmp(d->linear, "lm_head");
        ck_assert_msg(head || !strchr(d->reason, ';'), "%s", d->reason);
        for (int r = 0; head && r < 3; r++)
            if (!strcmp(d->role, roles[r])) {
                const char *at = strchr(d->reason, ';');
                ck_assert_msg(at && !strcmp(at, said[r]), "%s", d->reason);
                found++;
            }
    }
    ck_assert_int_eq(found, 3);
    f8_arena_end(&p.arena);
}
END_TEST

/* Targets without such a rule have nothing of it. */
START_TEST(others_are_not)
{
    const f8_target *t = f8_target_by_name(_i ? "sm_89" : "cpu");
    program p;
    ck_assert_int_eq(t->gemm_multiple, 1);
    build(&p, &variants[0], t, (f8_build_options){.text_only = true, .no_code = true});
    for (size_t i = 0; i < p.unit.module->n_funcs; i++) {
        const f8_func *f = &p.unit.module->func[i];
        for (f8_ref r = 1; f->lowered && r < f->graph->n_nodes; r++)
            ck_assert(!f->lowered->pad[r].rows && !f->lowered->pad[r].cols);
        if (f->lowered)
            ck_assert_int_eq(count(func_of(&p, f->name)).fills, 0);
    }
    for (size_t i = 0; i < p.unit.n_decisions; i++)
        ck_assert_ptr_null(strchr(p.unit.decision[i].reason, ';'));
    f8_arena_end(&p.arena);
}
END_TEST

/* ---- single products ---- */

/* Lowers a function for sm_90a, and gives the sizes of its products named p and q. */
static void lower(test_unit *t, const char *body, f8_gemm_sizes *p, f8_gemm_sizes *q)
{
    char text[1024];
    snprintf(text, sizeof text, "module m\n%s", body);
    test_unit_parse(t, text, "f32");
    t->unit.options.target = f8_target_by_name("sm_90a");
    test_pass(t, f8_pass_canonicalize);
    test_place(t);
    const f8_func *f = test_func(t, "f");
    *p = *q = (f8_gemm_sizes){0};
    for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
        const char *name = f->graph->name[r];
        if (f8_at(f->graph, r)->op != F8_OP_MATMUL || !name)
            continue;
        if (!strcmp(name, "p"))
            *p = f8_lowered_gemm(f->graph, f->lowered, r);
        if (!strcmp(name, "q"))
            *q = f8_lowered_gemm(f->graph, f->lowered, r);
    }
    ck_assert(p->m && q->m);
}

/* What a product reads in the padding of both operands along k is zeros; a product's own padding
 * is not, so the next product leaves k as it is. Sizes that are rows of all three matrices stay. */
START_TEST(only_zeros_are_summed)
{
    test_unit t;
    f8_gemm_sizes p, q;
    lower(&t,
          "func f(%x: f32[30, 24], %w: f32[24, 37], %v: f32[37, 16]) -> (%y: f32[30, 1]) {\n"
          "  %a = cast(%x) {to = bf16}\n  %b = cast(%w) {to = bf16}\n  %c = cast(%v) {to = bf16}\n"
          "  %p = cast(matmul(%a, %b)) {to = bf16}\n  %q = matmul(%p, %c)\n"
          "  return reduce_sum(%q)\n}\n",
          &p, &q);
    ck_assert(p.m == 30 && p.n == 40 && p.k == 24);
    ck_assert(q.m == 30 && q.n == 16 && q.k == 37);
    test_unit_end(&t);
    lower(&t,
          "func f(%x: f32[30, 24], %w: f32[24, 37], %v: f32[37, 16]) -> (%y: f32[30, 1]) {\n"
          "  %a = cast(%x) {to = bf16}\n  %b = cast(%w) {to = bf16}\n  %c = cast(%v) {to = bf16}\n"
          "  %p = matmul(%a, %b)\n  %s = cast(sub(%p, reduce_max(%p))) {to = bf16}\n"
          "  %q = matmul(%s, %c)\n  return reduce_sum(%q)\n}\n",
          &p, &q);
    ck_assert(p.m == 30 && p.n == 40 && p.k == 24);
    ck_assert(q.m == 30 && q.n == 16 && q.k == 40);
    test_unit_end(&t);
}
END_TEST

/* A product and its recomputation have the same sizes, even where only one could be padded. */
START_TEST(recomputed_alike)
{
    static const char body[] =
        "func f(%%x: f32[32, 24], %%u: f32[32, 24], %%w: f32[24, 37]) -> (%%y: f32[32, 1], "
        "%%z: f32[4, 296]) {\n"
        "  %%a = cast(%%x) {to = bf16}\n  %%c = cast(%%u) {to = bf16}\n"
        "  %%b = cast(%%w) {to = bf16}\n  %%p = matmul(%%a, %%b)\n  %%q = matmul%s(%s, %%b)\n"
        "  %%r = reshape(%%q) {shape = [4, 296]}\n"
        "  return reduce_sum(%%p), sub(%%r, reduce_max(%%r))\n}\n";
    for (int again = 0; again < 2; again++) {
        test_unit t;
        f8_gemm_sizes p, q;
        char text[1024], clone[16] = "";
        if (again)
            snprintf(clone, sizeof clone, "#%d", F8_CLONE_RECOMPUTED);
        snprintf(text, sizeof text, body, clone, again ? "%a" : "%c");
        lower(&t, text, &p, &q);
        ck_assert_msg(p.n == (again ? 37 : 40) && q.n == 37, "%d: %lld and %lld", again,
                      (long long)p.n, (long long)q.n);
        test_unit_end(&t);
    }
}
END_TEST

/* ---- running ---- */

static cuda_device device;

enum { ALLOCATIONS = 64, RUNS = 4 };

/* Allocations of the executor: one of them is the arena. */
typedef struct memory {
    CUdeviceptr at[ALLOCATIONS];
    size_t bytes[ALLOCATIONS];
    int n;
} memory;

static void *allocate(void *user, size_t bytes)
{
    memory *m = user;
    CUdeviceptr p = 0;
    if (m->n == ALLOCATIONS || device.cuda->cu.cuMemAlloc_v2(&p, bytes) != CUDA_SUCCESS)
        return NULL;
    m->at[m->n] = p;
    m->bytes[m->n++] = bytes;
    return (void *)(uintptr_t)p;
}

static void release(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    device.cuda->cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr);
}

/* Fills the arena with NaNs of any dtype. */
static void poison_arena(const program *p, const memory *m)
{
    int64_t most = 0;
    int found = 0;
    for (uint32_t i = 0; i < p->plan.n_funcs; i++)
        most = p->plan.func[i].arena_bytes > most ? p->plan.func[i].arena_bytes : most;
    OK(f8_cuda_enter(device.cuda, diag));
    for (int i = 0; i < m->n; i++)
        if (m->bytes[i] == (size_t)most) {
            ck_assert_int_eq(device.cuda->cu.cuMemsetD8Async(m->at[i], 0xff, m->bytes[i], NULL),
                             CUDA_SUCCESS);
            ck_assert_int_eq(device.cuda->cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
            found++;
        }
    f8_cuda_leave(device.cuda);
    ck_assert_int_eq(found, 1);
}

/* What runs leave: every variable, and the first result of every run. */
typedef struct left {
    float **var;
    float result[RUNS];
} left;

static void run_one(const program *p, f8_cuda_exec *x, const char *name, float *result)
{
    const f8_plan_func *func = func_of(p, name);
    const uint32_t f = (uint32_t)(func - p->plan.func);
    uint32_t seed = 11;
    for (uint32_t i = 0; i < func->n_in; i++) {
        int32_t *ids = func->in[i].var < 0 ? f8_cuda_exec_port(x, f, false, i) : NULL;
        for (int64_t k = 0; ids && k < f8_type_elements(&func->in[i].type); k++)
            ids[k] = (int32_t)(test_random(&seed) % WHOLE);
    }
    OK(f8_cuda_exec_run(x, f, diag));
    for (uint32_t i = func->n_out; i-- > 0;)
        if (func->out[i].var < 0)
            memcpy(result, f8_cuda_exec_port(x, f, true, i), sizeof *result);
}

static left train(const program *p, bool poisoned)
{
    static const char *const name[RUNS] = {"micro_step", "update", "micro_step", "eval"};
    left l = {.var = calloc(p->plan.n_vars, sizeof *l.var)};
    memory m = {.n = 0};
    const f8_cuda_exec_options o = {
        .device_alloc = allocate, .device_free = release, .device_user = &m};
    f8_cuda_exec *x;
    ck_assert_ptr_nonnull(l.var);
    OK(f8_cuda_exec_create(&p->plan, device.cuda, &o, &x, diag));
    OK(f8_cuda_exec_init(x, 1, NULL, diag));
    for (int i = 0; i < RUNS; i++) {
        if (poisoned)
            poison_arena(p, &m);
        run_one(p, x, name[i], &l.result[i]);
    }
    for (uint32_t v = 0; v < p->plan.n_vars; v++) {
        l.var[v] = malloc((size_t)f8_type_bytes(&p->plan.var[v].type));
        ck_assert_ptr_nonnull(l.var[v]);
        OK(f8_cuda_exec_read(x, v, l.var[v], diag));
    }
    f8_cuda_exec_destroy(x);
    return l;
}

static void forget(left *l, uint32_t n)
{
    for (uint32_t v = 0; v < n; v++)
        free(l->var[v]);
    free(l->var);
}

/* Whether this is an element of the bias of attention's keys. It adds the same to all scores of a
 * row, which softmax ignores: its gradient is zero but for rounding errors, of which AdamW makes
 * steps as long as any. */
static bool is_noise(const f8_plan_var *var, int64_t i)
{
    return strstr(var->name, "c_attn.bias") && i / (f8_type_elements(&var->type) / 3) == 1;
}

/* By the norm of what they differ in; with tolerance 0 bit by bit. */
static void same(const program *p, const left *a, const left *b, double tolerance)
{
    for (int i = 0; i < RUNS; i++) {
        ck_assert(isfinite(a->result[i]));
        ck_assert_msg(fabs((double)a->result[i] - (double)b->result[i]) <=
                          tolerance * fabs((double)a->result[i]),
                      "run %d: %.9g and %.9g", i, (double)a->result[i], (double)b->result[i]);
    }
    for (uint32_t v = 0; v < p->plan.n_vars; v++) {
        const f8_plan_var *var = &p->plan.var[v];
        const int64_t n = f8_type_elements(&var->type);
        double all = 0, apart = 0;
        if (!memcmp(a->var[v], b->var[v], (size_t)f8_type_bytes(&var->type)))
            continue;
        ck_assert_msg(tolerance > 0 && var->type.dtype == F8_F32, "'%s' differs", var->name);
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)a->var[v][i], d = x - (double)b->var[v][i];
            if (is_noise(var, i))
                continue;
            all += x * x;
            apart += d * d;
        }
        ck_assert_msg(sqrt(apart) <= tolerance * sqrt(all), "'%s': %g of %g", var->name,
                      sqrt(apart), sqrt(all));
    }
}

/* The emulator adds products in the order of k, and one more 0 * 0 changes no sum: the same bits.
 * A GPU's library takes other algorithms for other sizes; bf16 gradients then differ by roundings
 * here and there. */
START_TEST(same_results)
{
    const variant *v = &variants[_i];
    cuda_device_open(&device);
    if (device.target->gemm_multiple == 1) {
        test_skip("padded sizes", "%s pads none", device.target->name);
        cuda_device_close(&device);
        return;
    }
    const f8_target target[] = {without_padding(device.target),
                                as_it_is(device.target, device.target->speeds.launch),
                                as_it_is(device.target, 0)};
    const f8_build_options o = {.cuda = device.cuda};
    program p[4];
    for (int i = 0; i < 3; i++)
        build(&p[i], v, &target[i], o);
    left plain = train(&p[0], false);
    for (int i = 1; i < 3; i++) {
        left padded = train(&p[i], false), poisoned = train(&p[i], true);
        same(&p[0], &plain, &padded, emulated ? 0 : 1e-2);
        same(&p[i], &padded, &poisoned, 0);
        forget(&padded, p[i].plan.n_vars);
        forget(&poisoned, p[i].plan.n_vars);
    }
    if (_i == 0) {
        build_as(&p[3], v, &target[1], o, true);
        left padded = train(&p[1], false), apart = train(&p[3], true);
        same(&p[1], &padded, &apart, 0);
        forget(&padded, p[1].plan.n_vars);
        forget(&apart, p[3].plan.n_vars);
        f8_arena_end(&p[3].arena);
    }
    forget(&plain, p[0].plan.n_vars);
    for (int i = 0; i < 3; i++)
        f8_arena_end(&p[i].arena);
    cuda_device_close(&device);
}
END_TEST

/* Rows of activations of FP8 GEMMs that are padded in the graph: what lies in the arena before a
 * run changes no bit there either. */
START_TEST(rows_are_written)
{
    static const char *const recipes[] = {"delayed", "current", "rowwise", "block", "mxfp8"};
    const variant v = {WHOLE, recipes[_i], true, 7};
    program p;
    cuda_device_open(&device);
    const f8_recipe *recipe = f8_recipe_by_name(v.recipe);
    if (!f8_recipe_lacks(recipe, device.target)) {
        build(&p, &v, device.target, (f8_build_options){.cuda = device.cuda});
        left plain = train(&p, false), poisoned = train(&p, true);
        same(&p, &plain, &poisoned, 0);
        forget(&plain, p.plan.n_vars);
        forget(&poisoned, p.plan.n_vars);
        f8_arena_end(&p.arena);
    }
    cuda_device_close(&device);
}
END_TEST

/* ---- random sizes ---- */

/* A product of two rounded inputs, its softmax-like rows rounded, and two products of these, as a
 * head has them: any operand may lie transposed. */
static void random_text(uint32_t seed, char *text, size_t size)
{
    int dim[3];
    bool turned[3];
    for (int i = 0; i < 3; i++) {
        dim[i] = 2 + (int)(test_random(&seed) % 70);
        turned[i] = test_random(&seed) % 2;
    }
    const int m = dim[0], n = dim[1], k = dim[2];
    snprintf(text, size,
             "module m\n"
             "func f(%%x: f32[%d, %d], %%w: f32[%d, %d]) -> (%%y: f32[%d, 1], %%z: f32[%d, %d]) {\n"
             "  %%a = cast(%%x) {to = bf16}\n  %%b = cast(%%w) {to = bf16}\n"
             "  %%p = matmul(%%a, %%b) {transpose_a = %s, transpose_b = %s}\n"
             "  %%s = cast(sub(%%p, reduce_max(%%p))) {to = bf16}\n"
             "  %%q = matmul(%%s, %%b) {transpose_b = %s}\n"
             "  %%r = matmul(%%s, %%a) {transpose_a = true, transpose_b = %s}\n"
             "  return reduce_sum(tanh(%%q)), %s\n}\n",
             turned[0] ? k : m, turned[0] ? m : k, turned[1] ? n : k, turned[1] ? k : n, m, n, k,
             turned[0] ? "true" : "false", turned[1] ? "true" : "false",
             turned[1] ? "false" : "true", turned[0] ? "true" : "false",
             turned[2] ? "%r" : "mul(%r, reduce_max(%r))");
}

/* The results of the function, one behind the other. */
static size_t run_text(const char *text, const f8_target *target, float *result, totals *of)
{
    test_unit t;
    f8_build_options o = {.cuda = device.cuda, .target = target};
    program p = {.unit = {0}};
    size_t n = 0;
    test_unit_parse(&t, text, "f32");
    t.unit.options.target = target;
    test_pass(&t, f8_pass_canonicalize);
    test_place(&t);
    OK(f8_build_plan(t.unit.module, &o, &t.arena, &p.plan, diag));
    *of = count(&p.plan.func[0]);
    memory m = {.n = 0};
    const f8_cuda_exec_options with = {
        .device_alloc = allocate, .device_free = release, .device_user = &m};
    f8_cuda_exec *x;
    OK(f8_cuda_exec_create(&p.plan, device.cuda, &with, &x, diag));
    uint32_t seed = 3;
    for (uint32_t i = 0; i < p.plan.func[0].n_in; i++) {
        float *in = f8_cuda_exec_port(x, 0, false, i);
        for (int64_t e = 0; e < f8_type_elements(&p.plan.func[0].in[i].type); e++)
            in[e] = (float)(test_random(&seed) % 2001) * 1e-3f - 1;
    }
    poison_arena(&p, &m);
    OK(f8_cuda_exec_run(x, 0, diag));
    for (uint32_t i = 0; i < p.plan.func[0].n_out; i++) {
        const int64_t bytes = f8_type_bytes(&p.plan.func[0].out[i].type);
        memcpy(result + n, f8_cuda_exec_port(x, 0, true, i), (size_t)bytes);
        n += (size_t)bytes / sizeof *result;
    }
    f8_cuda_exec_destroy(x);
    test_unit_end(&t);
    return n;
}

START_TEST(random_sizes)
{
    enum { TEXTS = 10, ROOM = 80 * 80 };
    static float result[2][ROOM];
    int64_t fewer = 0;
    cuda_device_open(&device);
    const f8_target target[] = {without_padding(device.target), as_it_is(device.target, 0)};
    for (uint32_t seed = 1; seed <= TEXTS && device.target->gemm_multiple > 1; seed++) {
        char text[1024];
        totals of[2];
        random_text(seed, text, sizeof text);
        const size_t n = run_text(text, &target[0], result[0], &of[0]);
        ck_assert_uint_le(n, ROOM);
        ck_assert_uint_eq(run_text(text, &target[1], result[1], &of[1]), n);
        fewer += of[0].sizes - of[1].sizes;
        for (size_t i = 0; i < n; i++) {
            ck_assert_msg(isfinite(result[0][i]), "%s", text);
            const double apart = fabs((double)result[0][i] - (double)result[1][i]);
            ck_assert_msg(apart <= (emulated ? 0 : 1e-2 + 1e-2 * fabs((double)result[0][i])),
                          "%zu: %.9g and %.9g, seed %u:\n%s", i, (double)result[0][i],
                          (double)result[1][i], seed, text);
        }
    }
    printf("random sizes: %d texts, %d sizes fewer are slow\n", TEXTS, (int)fewer);
    ck_assert(fewer > TEXTS || device.target->gemm_multiple == 1);
    cuda_device_close(&device);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("cuda pad");
    TCase *t = tcase_create("plans");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, plans_are_padded, 0, 3 * N_VARIANTS);
    tcase_add_loop_test(t, explained, 0, 2);
    tcase_add_loop_test(t, others_are_not, 0, 2);
    tcase_add_test(t, only_zeros_are_summed);
    tcase_add_test(t, recomputed_alike);
    suite_add_tcase(s, t);
    t = tcase_create("runs");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_results, 0, N_VARIANTS);
    tcase_add_loop_test(t, rows_are_written, 0, 5);
    tcase_add_test(t, random_sizes);
    suite_add_tcase(s, t);
    return s;
}
