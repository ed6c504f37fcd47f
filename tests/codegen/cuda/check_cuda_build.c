/* Plans of the CUDA target, without a GPU. The same module gives the same bytes; every launch is
 * complete; a deeper model needs no more kernels; an optimizer needs few launches; failures say
 * what failed and where. check_cuda_kernels compiles the kernels. check_cuda_steps,
 * check_cuda_update and the tests of whole programs run them. */
#include "codegen/cuda/report.h"
#include "frontend/text/parse.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
enum { N_RECIPES = 4 };

static void build_text(cuda_plan *b, const char *model, const char *dim, const char *recipe,
                       const char *arch)
{
    cuda_plan_build(b, model, dim, recipe, arch, (f8_build_options){.text_only = true});
    ck_assert_msg(b->status == F8_OK, "%s, %s, %s: %s", model, recipe, arch, b->diag.text);
}

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

/* NVRTC allocates so much that AddressSanitizer takes it five times as long. Under sanitizers the
 * texts are compared; the programs that compile on the emulator walk the rest of our code there. */
#if defined(__SANITIZE_ADDRESS__)
enum { COMPILES = 0 };
#else
enum { COMPILES = 1 };
#endif

START_TEST(same_bytes_on_any_threads)
{
    f8_cuda *cuda;
    cuda_plan a, b;
    const bool there = cuda_plan_compiler(&cuda) && COMPILES;
    cuda_plan_build(&a, "gpt", "L=1", "bf16", "sm_90a",
                    (f8_build_options){.threads = 1, .cuda = cuda, .text_only = !there});
    cuda_plan_build(&b, "gpt", "L=1", "bf16", "sm_90a",
                    (f8_build_options){.threads = 3, .cuda = cuda, .text_only = !there});
    ck_assert_msg(a.status == F8_OK, "%s", a.diag.text);
    ck_assert_msg(b.status == F8_OK, "%s", b.diag.text);
    assert_same_plan(&a.plan, &b.plan);
    ck_assert_uint_eq(a.plan.n_kernels, a.stats.n_kernels);
    for (uint32_t i = 0; i < a.stats.n_images; i++)
        ck_assert_str_eq(a.stats.image[i].cuda, b.stats.image[i].cuda);
    for (uint32_t i = 0; i < a.stats.n_kernels; i++)
        ck_assert(a.stats.kernel[i].reported == there);
    cuda_plan_end(&a);
    cuda_plan_end(&b);
    f8_cuda_destroy(cuda);
}
END_TEST

/* A launch stays within its step's arguments, and its tasks are those of its last instance. */
START_TEST(launches_are_whole)
{
    cuda_plan b;
    build_text(&b, "gpt2_124m", NULL, recipes[_i], "sm_90a");
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
    cuda_plan_end(&b);
}
END_TEST

/* Of FP8 GEMMs those that go forward, and they alone, may keep partial sums in the tensor cores. */
START_TEST(fast_accumulation_forward_only)
{
    cuda_plan b;
    build_text(&b, "gpt", NULL, "delayed", "sm_90a");
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
    cuda_plan_end(&b);
}
END_TEST

/* Finer scales are there for accuracy: none of their GEMMs keeps partial sums in fewer bits. */
START_TEST(no_fast_accumulation_of_finer_scales)
{
    static const char *const of[][2] = {
        {"rowwise", "sm_90a"}, {"block", "sm_90a"}, {"mxfp8", "sm_100a"}};
    cuda_plan b;
    build_text(&b, "gpt", "L=1", of[_i][0], of[_i][1]);
    int fp8 = 0;
    for (uint32_t f = 0; f < b.plan.n_funcs; f++)
        for (uint32_t i = 0; i < b.plan.func[f].n_steps; i++) {
            const f8_step *s = &b.plan.func[f].step[i];
            if (s->kind != F8_STEP_GEMM || !s->fp8)
                continue;
            ck_assert(!s->gemm.fast_accumulate);
            ck_assert(!f8_granularity_equal(s->gemm.scale_a, f8_per_tensor));
            fp8 += !strcmp(b.plan.func[f].name, "micro_step");
        }
    ck_assert_int_eq(fp8, b.unit.fp8_gemms);
    cuda_plan_end(&b);
}
END_TEST

static bool has_kernel(const f8_build_stats *s, uint64_t hash, uint32_t before)
{
    for (uint32_t i = 0; i < before; i++)
        if (s->kernel[i].hash == hash)
            return true;
    return false;
}

/* Whether a launch is left over that has one instance is the budget's matter: both forms are one.
 */
static uint32_t distinct(const f8_build_stats *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_kernels; i++)
        n += !has_kernel(s, s->kernel[i].hash, i);
    return n;
}

START_TEST(depth_adds_no_kernels)
{
    cuda_plan a, b;
    build_text(&a, "gpt2_124m", NULL, recipes[_i], "sm_90a");
    build_text(&b, "gpt2_124m", "L=24", recipes[_i], "sm_90a");
    const uint32_t most = !strcmp(recipes[_i], "delayed") ? 2 : 1; /* forms of micro_step */
    for (uint32_t i = 0; i < b.stats.n_kernels; i++)
        /* what works on one number for each parameter or linear is as long as there are of them */
        ck_assert_msg(has_kernel(&a.stats, b.stats.kernel[i].hash, a.stats.n_kernels) ||
                          b.stats.kernel[i].launches <= most,
                      "new at depth 24: %s, %u launches", b.stats.kernel[i].name,
                      b.stats.kernel[i].launches);
    ck_assert_uint_eq(distinct(&a.stats), distinct(&b.stats));
    cuda_plan_end(&a);
    cuda_plan_end(&b);
}
END_TEST

/* GPT-2's 148 parameters: the optimizer and the norm of their gradients. Whole columns of a kernel
 * are in its description, so there is a kernel for each width of parameter, and a launch holds 4096
 * bytes of parameters; a launch for each tensor would be 148 and more. */
START_TEST(optimizer_in_a_handful)
{
    cuda_plan b;
    build_text(&b, "gpt2_124m", NULL, "bf16", "sm_90a");
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
    cuda_plan_end(&b);
}
END_TEST

/* Forward and backward of GPT-2 at a batch of 8. What finishes sums and adds gradients, 4 or so
 * small kernels for each of 48 linears and 25 norms, is a launch every few blocks. An FP8 GEMM
 * waits for the amax of its operand (an Inf among its values must not be lost), so these stay
 * apart: two a linear and direction. Bytes held for longer are at most a 128th of the arena. */
START_TEST(small_steps_of_a_backward_pass)
{
    static const struct {
        const char *recipe;
        uint32_t most;
    } of[] = {{"bf16", 160}, {"delayed", 330}, {"current", 425}};
    cuda_plan a, b;
    cuda_plan_build(&a, "gpt2_124m", "B=8", of[_i].recipe, "sm_90a",
                    (f8_build_options){.text_only = true, .unmerged = true});
    ck_assert_msg(a.status == F8_OK, "%s", a.diag.text);
    build_text(&b, "gpt2_124m", "B=8", of[_i].recipe, "sm_90a");
    for (uint32_t f = 0; f < b.plan.n_funcs; f++) {
        const f8_plan_func *func = &b.plan.func[f];
        const int64_t arena = a.plan.func[f].arena_bytes, extra = func->arena_bytes - arena;
        ck_assert_int_le(extra, arena / 128 > 8 << 20 ? arena / 128 : 8 << 20);
        if (strcmp(func->name, "micro_step"))
            continue;
        uint32_t kernels[2] = {0};
        for (uint32_t i = 0; i < a.plan.func[f].n_steps; i++)
            kernels[0] += a.plan.func[f].step[i].kind == F8_STEP_KERNEL;
        for (uint32_t i = 0; i < func->n_steps; i++)
            kernels[1] += func->step[i].kind == F8_STEP_KERNEL;
        printf("micro_step of gpt2_124m, %s: %u kernels in %u launches, %.1f MB of arena more\n",
               of[_i].recipe, kernels[0], kernels[1], (double)extra * 1e-6);
        ck_assert_uint_le(kernels[1], of[_i].most);
    }
    cuda_plan_end(&a);
    cuda_plan_end(&b);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(no_library)
{
    f8_cuda *cuda;
    f8_diag d = {0};
    cuda_plan b;
    const f8_cuda_paths nowhere = {.fp8c_cuda_path = "/no/such/folder"};
    ck_assert_int_eq(f8_cuda_create(&nowhere, NULL, &cuda, &d), F8_OK);
    cuda_plan_build(&b, "gpt", NULL, "bf16", "sm_90a", (f8_build_options){.cuda = cuda});
    ck_assert_int_eq(b.status, F8_ERR_LIBRARY);
    ck_assert_ptr_nonnull(strstr(b.diag.text, "nvrtc"));
    ck_assert_ptr_nonnull(strstr(b.diag.text, "/no/such/folder"));
    cuda_plan_end(&b);
    cuda_plan_build(&b, "gpt", NULL, "bf16", "sm_90a", (f8_build_options){.cuda = NULL});
    ck_assert_int_eq(b.status, F8_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(b.diag.text, "sm_90a"));
    cuda_plan_end(&b);
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
    cuda_plan b = {0};
    f8_arena_init(&b.arena, NULL);
    b.unit = (f8_unit){.arena = &b.arena, .diag = &b.diag};
    b.unit.options.recipe = f8_recipe_by_name("f32");
    b.unit.options.target = f8_target_by_name("cpu");
    b.unit.options.inference = true;
    b.status =
        f8_parse(module, sizeof module - 1, "m.f8", NULL, 0, &b.arena, &b.diag, &b.unit.module);
    if (b.status == F8_OK)
        b.status = f8_run_passes(&b.unit);
    ck_assert_msg(b.status == F8_OK, "%s", b.diag.text);
    const f8_build_options o = {.target = f8_target_by_name("sm_90a"), .text_only = true};
    ck_assert_int_eq(f8_build_plan(b.unit.module, &o, &b.arena, &b.plan, &b.diag),
                     F8_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(b.diag.text, "sm_90a") && strstr(b.diag.text, "round"), "%s", b.diag.text);
    ck_assert_uint_eq(b.diag.loc.line, 4);
    cuda_plan_end(&b);
}
END_TEST

/* ---- ptxas' report ---- */

static const char a_log[] = "ptxas info    : 0 bytes gmem\n"
                            "ptxas info    : Compiling entry function 'k10' for 'sm_90a'\n"
                            "ptxas info    : Function properties for k10\n"
                            "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
                            "ptxas info    : Used 255 registers, used 1 barriers, 8 bytes "
                            "cumulative stack size, 2048 bytes smem\n"
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

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_build");
    TCase *t = tcase_create("plans");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, same_bytes_on_any_threads);
    tcase_add_loop_test(t, launches_are_whole, 0, N_RECIPES);
    tcase_add_test(t, fast_accumulation_forward_only);
    tcase_add_loop_test(t, no_fast_accumulation_of_finer_scales, 0, 3);
    tcase_add_loop_test(t, depth_adds_no_kernels, 0, N_RECIPES);
    tcase_add_test(t, optimizer_in_a_handful);
    tcase_add_loop_test(t, small_steps_of_a_backward_pass, 0, 3);
    tcase_add_test(t, no_library);
    tcase_add_test(t, refused_with_the_reason);
    tcase_add_test(t, reports);
    suite_add_tcase(s, t);
    return s;
}
