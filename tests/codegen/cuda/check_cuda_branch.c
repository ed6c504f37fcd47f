/* The branch of a graph: GEMMs of weights' gradients beside other steps. In plans of whole models
 * no step touches bytes of a GEMM that it has not waited for, by a comparison of all pairs; and
 * beside most such GEMMs a row kernel can run. Then waits are taken away from a plan, one by one:
 * the emulator, which runs a branch as late as events allow, gives wrong bits for each. */
#include "codegen/plan/parts.h"
#include "runtime/cuda/exec.h"
#include "runtime/cuda/internal.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool emulated;

static void lower(cuda_plan *p, const char *model, const f8_dim_override *dims, size_t n_dims,
                  const char *recipe, const f8_target *target, bool branch)
{
    char file[64];
    snprintf(file, sizeof file, "frontend/models/%s.f8", model);
    cuda_plan_lower(p, &(cuda_model){.file = file,
                                     .dims = dims,
                                     .n_dims = n_dims,
                                     .recipe = recipe,
                                     .target = target,
                                     .wgrad_branch = branch});
    ck_assert_msg(p->status == F8_OK, "%s: %s", model, p->diag.text);
}

/* ---- whole models ---- */

static bool conflict(const f8_step_builder *x, const f8_step_builder *y)
{
    for (uint32_t i = 0; i < x->n_accesses; i++)
        for (uint32_t k = 0; k < y->n_accesses; k++) {
            const f8_build_access *a = &x->access[i], *b = &y->access[k];
            if ((a->write || b->write) && a->space == b->space && a->port == b->port &&
                a->begin < b->end && b->begin < a->end)
                return true;
        }
    return false;
}

/* -> how many GEMMs are on the branch; *beside: of these, those beside which a kernel can run. */
static uint32_t check_func(const f8_plan_func *f, const f8_step_builder *builder, uint32_t *beside)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n_steps; k++) {
        bool waited = false, any = false;
        if (!f->step[k].branch)
            continue;
        ck_assert_msg(f->step[k].kind == F8_STEP_GEMM && strstr(f->step[k].name, ".wgrad"), "%s",
                      f->step[k].name);
        n++;
        if (k + 1 < f->n_steps && f->step[k + 1].kind == F8_STEP_GEMM && !f->step[k + 1].branch)
            ck_assert_msg(conflict(&builder[k], &builder[k + 1]), "%s: '%s' could go before '%s'",
                          f->name, f->step[k + 1].name, f->step[k].name);
        for (uint32_t i = k + 1; i < f->n_steps && !waited; i++) {
            const f8_step *s = &f->step[i];
            if (s->branch)
                continue;
            waited = s->joins > k;
            ck_assert_msg(waited || !conflict(&builder[i], &builder[k]),
                          "%s: '%s' does not wait for '%s'", f->name, s->name, f->step[k].name);
            any = any || (!waited && s->kind == F8_STEP_KERNEL);
        }
        *beside += any;
    }
    return n;
}

static const struct {
    const char *model, *recipe;
} plans[] = {{"gpt2_124m", "delayed"}, {"gpt2_124m", "bf16"}, {"llama_block", "block"},
             {"gpt2_124m", "current"}, {"gpt", "f32"},        {"mpt_1b", "delayed"}};

START_TEST(each_step_waits)
{
    cuda_plan p;
    const f8_target *target = f8_target_by_name("sm_90a");
    lower(&p, plans[_i].model, NULL, 0, plans[_i].recipe, target, true);
    cuda_plan_finish(&p, (f8_build_options){.no_code = true});
    ck_assert_msg(p.status == F8_OK, "%s", p.diag.text);
    uint32_t n = 0, beside = 0;
    for (uint32_t f = 0; f < p.plan.n_funcs; f++)
        n += check_func(&p.plan.func[f], p.stats.builders[f], &beside);
    ck_assert_msg(n >= 7 && 10 * beside >= 7 * n, "a kernel beside %u of %u GEMMs", beside, n);
    printf("%s, %s: a kernel beside %u of %u GEMMs of the branch\n", plans[_i].model,
           plans[_i].recipe, beside, n);
    cuda_plan_end(&p);
}
END_TEST

/* Without the option no step is on a branch. */
START_TEST(none_without)
{
    cuda_plan p;
    lower(&p, "gpt", NULL, 0, "delayed", f8_target_by_name("sm_90a"), false);
    cuda_plan_finish(&p, (f8_build_options){.no_code = true});
    for (uint32_t f = 0; f < p.plan.n_funcs; f++)
        for (uint32_t i = 0; i < p.plan.func[f].n_steps; i++)
            ck_assert(!p.plan.func[f].step[i].branch && !p.plan.func[f].step[i].joins);
    cuda_plan_end(&p);
}
END_TEST

/* ---- waits that are missing ---- */

static const f8_dim_override dims[] = {{"B", 1}, {"T", 32}, {"C", 64},
                                       {"H", 2}, {"L", 5},  {"V", 64}};

static uint32_t func_named(const f8_plan *plan, const char *name)
{
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        if (!strcmp(plan->func[f].name, name))
            return f;
    ck_abort_msg("no %s", name);
    return 0;
}

/* gpt with a branch, for the device. */
static void open_gpt(cuda_device *d, cuda_plan *p, const char *recipe)
{
    cuda_device_open(d);
    lower(p, "gpt", dims, sizeof dims / sizeof *dims, recipe, d->target, true);
    cuda_plan_finish(p, (f8_build_options){.cuda = d->cuda});
    ck_assert_msg(p->status == F8_OK, "%s", p->diag.text);
}

/* The variables after two micro-steps, as one block; the caller frees. */
static unsigned char *run(const f8_plan *plan, f8_cuda *cuda, uint32_t func, size_t *bytes)
{
    const f8_cuda_exec_options o = {0};
    const f8_plan_func *f = &plan->func[func];
    f8_cuda_exec *x = NULL;
    OK(f8_cuda_exec_create(plan, cuda, &o, &x, diag));
    OK(f8_cuda_exec_init(x, 3, NULL, diag));
    for (uint32_t i = 0; i < f->n_in; i++) {
        int32_t *to = f->in[i].var < 0 ? f8_cuda_exec_port(x, func, false, i) : NULL;
        for (int64_t k = 0; to && k < f8_type_elements(&f->in[i].type); k++)
            to[k] = (int32_t)((k * 29 + 7 * (int64_t)i) % 64);
    }
    OK(f8_cuda_exec_run(x, func, diag));
    OK(f8_cuda_exec_run(x, func, diag));
    *bytes = 0;
    for (uint32_t v = 0; v < plan->n_vars; v++)
        *bytes += (size_t)f8_type_bytes(&plan->var[v].type);
    unsigned char *all = malloc(*bytes), *to = all;
    ck_assert_ptr_nonnull(all);
    for (uint32_t v = 0; v < plan->n_vars; to += f8_type_bytes(&plan->var[v++].type))
        OK(f8_cuda_exec_read(x, v, to, diag));
    f8_cuda_exec_destroy(x);
    return all;
}

static const char *const recipes[] = {"bf16", "current"};

START_TEST(missing_waits)
{
    cuda_device d;
    cuda_plan p;
    if (!emulated) {
        test_skip("missing waits", "only the emulator shows each");
        return;
    }
    open_gpt(&d, &p, recipes[_i]);
    const uint32_t func = func_named(&p.plan, "micro_step");
    f8_plan_func *f = &p.plan.func[func];
    size_t bytes;
    unsigned char *right = run(&p.plan, d.cuda, func, &bytes);
    setenv("FP8C_EMULATOR_GRAPH", "1", 1); /* as early: the same */
    unsigned char *early = run(&p.plan, d.cuda, func, &bytes);
    ck_assert_int_eq(memcmp(right, early, bytes), 0);
    free(early);
    setenv("FP8C_EMULATOR_GRAPH", "0", 1);
    int taken = 0;
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const uint32_t joins = f->step[i].joins;
        if (!joins)
            continue;
        f->step[i].joins = 0;
        unsigned char *wrong = run(&p.plan, d.cuda, func, &bytes);
        ck_assert_msg(memcmp(right, wrong, bytes), "nothing shows that '%s' does not wait for '%s'",
                      f->step[i].name, f->step[joins - 1].name);
        f->step[i].joins = joins;
        free(wrong);
        taken++;
    }
    ck_assert_int_gt(taken, 2);
    printf("%s: each of %d missing waits shows\n", recipes[_i], taken);
    free(right);
    cuda_plan_end(&p);
    cuda_device_close(&d);
}
END_TEST

/* ---- a workspace of its own ---- */

static struct {
    cublasStatus_t (*next)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
                           cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t,
                           const void *, const void *, cublasLtMatrixLayout_t, void *,
                           cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,
                           cudaStream_t);
    void *workspace[2];
    cudaStream_t stream[2];
    int n[2];
} seen;

static cublasStatus_t see(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                          const void *a, cublasLtMatrixLayout_t la, const void *b,
                          cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                          cublasLtMatrixLayout_t lc, void *to, cublasLtMatrixLayout_t ld,
                          const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                          cudaStream_t s)
{
    const int which = seen.n[0] && s != seen.stream[0];
    ck_assert(!seen.n[which] || (seen.stream[which] == s && seen.workspace[which] == workspace));
    seen.stream[which] = s;
    seen.workspace[which] = workspace;
    seen.n[which]++;
    return seen.next(handle, desc, alpha, a, la, b, lb, beta, c, lc, to, ld, algo, workspace, bytes,
                     s);
}

/* While a graph is captured, GEMMs of the branch and others go to two streams, each with its own.
 */
START_TEST(workspaces)
{
    cuda_device d;
    cuda_plan p;
    f8_cuda_exec *x = NULL;
    const f8_cuda_exec_options o = {0};
    open_gpt(&d, &p, "bf16");
    const uint32_t func = func_named(&p.plan, "micro_step");
    OK(f8_cuda_exec_create(&p.plan, d.cuda, &o, &x, diag));
    OK(f8_cuda_exec_init(x, 3, NULL, diag));
    seen.next = d.cuda->lt.cublasLtMatmul;
    d.cuda->lt.cublasLtMatmul = see;
    OK(f8_cuda_exec_run(x, func, diag));
    d.cuda->lt.cublasLtMatmul = seen.next;
    uint32_t branch = 0;
    for (uint32_t i = 0; i < p.plan.func[func].n_steps; i++)
        branch += p.plan.func[func].step[i].branch;
    ck_assert_int_eq(seen.n[1], (int)branch);
    ck_assert_int_gt(seen.n[0], seen.n[1]);
    const ptrdiff_t apart = (char *)seen.workspace[1] - (char *)seen.workspace[0];
    ck_assert(apart >= p.plan.gemm_workspace);
    f8_cuda_exec_destroy(x);
    cuda_plan_end(&p);
    cuda_device_close(&d);
}
END_TEST

/* ---- calls that fail ---- */

static const struct {
    const char *function;
    int n;
    const char *says;
    bool runs; /* it fails in the first run, not when the executor is made */
} fails[] = {{"cuStreamCreate", 3, "cuStreamCreate of the branch", false},
             {"cuEventCreate", 1, "cuEventCreate of the branch", false},
             {"cuEventCreate", 2, "cuEventCreate of ", false},
             {"cuEventRecord", 1, "cuEventRecord of micro_step", true},
             {"cuEventRecord", 4, "cuEventRecord of micro_step", true},
             {"cuStreamWaitEvent", 1, "cuStreamWaitEvent of micro_step", true},
             {"cuStreamWaitEvent", 12, "cuStreamWaitEvent of micro_step", true}};

/* Each has a message, and nothing is left. */
START_TEST(failures)
{
    cuda_device d;
    cuda_plan p;
    if (!emulated) {
        test_skip("failures", "a GPU does not fail on request");
        return;
    }
    open_gpt(&d, &p, "bf16");
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        const f8_cuda_exec_options o = {0};
        f8_cuda_exec *x = NULL;
        f8_diag said = {0};
        if (!fails[i].runs)
            cuda_device_fail(fails[i].function, fails[i].n);
        f8_status status = f8_cuda_exec_create(&p.plan, d.cuda, &o, &x, &said);
        if (fails[i].runs) {
            ck_assert_msg(status == F8_OK, "%s", said.text);
            OK(f8_cuda_exec_init(x, 3, NULL, diag));
            cuda_device_fail(fails[i].function, fails[i].n);
            status = f8_cuda_exec_run(x, func_named(&p.plan, "micro_step"), &said);
        }
        cuda_device_fail(NULL, 0);
        ck_assert_msg(status == F8_ERR_LIBRARY && strstr(said.text, fails[i].says),
                      "%s, call %d: status %d, '%s'", fails[i].function, fails[i].n, status,
                      said.text);
        f8_cuda_exec_destroy(x);
    }
    cuda_plan_end(&p);
    cuda_device_close(&d);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("branch");
    TCase *t = tcase_create("branch");
    emulated = f8_test_gpu_emulated();
    tcase_set_timeout(t, 900);
    tcase_add_loop_test(t, each_step_waits, 0, sizeof plans / sizeof *plans);
    tcase_add_test(t, none_without);
    tcase_add_loop_test(t, missing_waits, 0, 2);
    tcase_add_test(t, workspaces);
    tcase_add_test(t, failures);
    suite_add_tcase(s, t);
    return s;
}
