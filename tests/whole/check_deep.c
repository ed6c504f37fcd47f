/* Deep models: what a model has may be many, whatever the limits of an op or a kernel. Counts of
 * nodes, kernels and instructions grow with the layers and no faster; a chain too long for one
 * kernel has the bits that it has node by node. */
#include "tests/shared/api/bounds.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/passes/unit.h"
#include "tests/shared/suite.h"

#include <linux/perf_event.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "frontend/text/parse.h"
#include "passes/fuse/grouping.h"
#include "passes/unit/cost.h"

/* Under delayed a layer has six scales: 200 layers have more than a concatenation has operands. */
static const char deep[] =
    "module deep\n"
    "dim L = 200, C = 32, T = 16, V = 16\n"
    "param wte: f32[V, C] normal(0.5)\n"
    "repeat l < L {\n"
    "  param h.{l}.g: f32[C] ones\n"
    "  param h.{l}.up: f32[C, C] normal(0.1)\n"
    "  param h.{l}.down: f32[C, C] normal(0.1)\n"
    "}\n"
    "func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {\n"
    "  %e = embedding(wte, %tokens)\n"
    "  repeat l < L carry %x = %e {\n"
    "    %n = rmsnorm(%x, h.{l}.g)\n"
    "    %x = add(%x, linear(gelu(linear(%n, h.{l}.up)), h.{l}.down))\n"
    "  }\n"
    "  return cross_entropy(linear(%x, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 1e-2, clip = 1}\n"
    "recipe \"head\" = bf16\n";

/* ---- counts ---- */

static void lower(test_unit *t, const char *text, int64_t layers, const char *recipe)
{
    const f8_dim_override depth = {"L", layers};
    f8_module *m = NULL;
    *t = (test_unit){0};
    f8_arena_init(&t->arena, NULL);
    f8_parse(text, strlen(text), "deep.f8", &depth, 1, &t->arena, &t->diag, &m);
    ck_assert_msg(m, "%s", t->diag.text);
    t->unit = (f8_unit){.module = m, .arena = &t->arena, .diag = &t->diag};
    t->unit.options.recipe = f8_recipe_by_name(recipe);
    ck_assert_msg(f8_run_passes(&t->unit) == F8_OK, "%s", t->diag.text);
}

static void phase_is_bounded(const f8_func *f, const f8_phase *p)
{
    f8_phase_size size = {.buffers = p->n_out};
    for (uint32_t i = 0; i < p->n_nodes; i++)
        size.work += f8_op_work(f8_at(f->graph, p->node[i])->op);
    ck_assert_msg(size.work <= F8_PHASE_WORK && size.buffers <= F8_PHASE_BUFFERS,
                  "%s: a phase of %g operations that stores %u values", f->name, size.work,
                  size.buffers);
}

static void phases_are_bounded(const test_unit *t)
{
    for (size_t i = 0; i < t->unit.module->n_funcs; i++) {
        const f8_func *f = &t->unit.module->func[i];
        for (uint32_t k = 0; f->lowered && k < f->lowered->n_groups; k++)
            for (uint32_t j = 0; j < f->lowered->group[k].n_phases; j++)
                phase_is_bounded(f, &f->lowered->group[k].phase[j]);
    }
}

static const char *const recipes[] = {"f32",           "bf16",  "delayed", "current", "rowwise",
                                      "rowwise_gw_hp", "block", "mxfp8",   "fake"};
#ifdef __SANITIZE_ADDRESS__
enum { FIRST_RECIPE = 2, N_RECIPES = 4 }; /* delayed and current */
enum { COUNTED = 0 };                     /* its own instructions would count */
#else
enum { FIRST_RECIPE = 0, N_RECIPES = sizeof recipes / sizeof *recipes };
enum { COUNTED = 4 }; /* programs whose instructions are counted */
#endif

/* After each pass, and in groups: what 176 layers add is what 24 add, 176 / 24 times. A few scalars
 * more are needed where a concatenation or a kernel becomes several. */
START_TEST(passes_of_200_layers)
{
    static const int64_t layers[] = {24, 48, 200};
    uint32_t nodes[3][F8_MAX_PASSES], groups[3], n_passes = 0;
    for (int i = 0; i < 3; i++) {
        test_unit t;
        lower(&t, deep, layers[i], recipes[_i]);
        const f8_func *f = test_func(&t, "micro_step");
        n_passes = t.unit.n_times;
        for (uint32_t k = 0; k < n_passes; k++)
            nodes[i][k] = t.unit.time[k].nodes;
        groups[i] = f->lowered->n_groups;
        phases_are_bounded(&t);
        test_unit_end(&t);
    }
    for (uint32_t k = 0; k < n_passes; k++)
        ck_assert_int_le(24 * (int64_t)(nodes[2][k] - nodes[0][k]),
                         176 * (int64_t)(nodes[1][k] - nodes[0][k]) + 24 * 16);
    ck_assert_int_le(24 * (int64_t)(groups[2] - groups[0]),
                     176 * (int64_t)(groups[1] - groups[0]) + 24 * 16);
}
END_TEST

/* ---- instructions ---- */

/* A counter of the instructions that this thread runs outside of the kernel; -1: the machine has
 * none, or does not let us. */
static int count_instructions(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_INSTRUCTIONS,
                                   .disabled = 1,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

/* A whole plan of narrow Llama blocks, without code. Gives the instructions that it took. */
static int64_t plan_blocks(fp8c_context *ctx, int counter, int64_t layers, const char *recipe,
                           const char *target)
{
    const fp8c_dim dims[] = {{"L", layers}, {"B", 1},  {"T", 16}, {"C", 32},
                             {"F", 32},     {"V", 32}, {"H", 2},  {"KV", 1}};
    const fp8c_compile_options o = {
        .struct_size = sizeof o, .recipe = recipe, .target = target, .plan_only = 1};
    size_t size;
    char *text = f8_cli_read("frontend/models/llama_block.f8", &size);
    int64_t n = 0;
    ioctl(counter, PERF_EVENT_IOC_RESET, 0);
    ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
    fp8c_program *p = compile_text(ctx, text, dims, sizeof dims / sizeof *dims, NULL, &o);
    ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
    fp8c_program_destroy(p);
    free(text);
    ck_assert_int_eq(read(counter, &n, sizeof n), sizeof n);
    return n;
}

/* The instructions grow no faster than the layers, from 24 to 200. Where each port is looked for
 * among all ports, or packing meets half of all blocks for each one, they do. */
START_TEST(instructions_of_200_layers)
{
    static const char *const recipe[] = {"bf16", "delayed", "current", "delayed"};
    static const char *const target[] = {"cpu", "cpu", "cpu", "sm_90a"};
    const int counter = count_instructions();
    if (counter < 0) {
        test_skip("instructions of 200 layers", "the machine counts none");
        return;
    }
    fp8c_context *ctx = new_context();
    const int64_t few = plan_blocks(ctx, counter, 24, recipe[_i], target[_i]);
    const int64_t many = plan_blocks(ctx, counter, 200, recipe[_i], target[_i]);
    printf("%s, %s: 24 layers %.3g, 200 layers %.3g instructions: %.2f times\n", target[_i],
           recipe[_i], (double)few, (double)many, (double)many / (double)few);
    ck_assert_int_gt(few, 0);
    ck_assert_int_le(24 * many, 200 * few);
    fp8c_context_destroy(ctx);
    close(counter);
}
END_TEST

/* ---- on the CPU ---- */

static fp8c_program *deep_program(fp8c_context *ctx, int64_t layers, fp8c_info *info)
{
    const fp8c_dim depth = {"L", layers};
    const fp8c_compile_options o = {.struct_size = sizeof o, .recipe = "delayed", .threads = 2};
    fp8c_program *p = compile_text(ctx, deep, &depth, 1, NULL, &o);
    *info = (fp8c_info){.struct_size = sizeof *info};
    fp8c_program_info(p, info);
    return p;
}

static float step_of(fp8c_context *ctx, fp8c_program *p)
{
    const int step = fp8c_program_function(p, "micro_step");
    const int update = fp8c_program_function(p, "update");
    ck_assert_msg(fp8c_program_run(p, step) == FP8C_OK, "%s", fp8c_context_message(ctx));
    const float loss = *(const float *)fp8c_program_buffer(p, step, FP8C_OUTPUT, 0);
    ck_assert_msg(fp8c_program_run(p, update) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return loss;
}

/* The kernels of 200 layers are those of 24, and a few pieces: they take hardly more code. */
START_TEST(step_of_200_layers)
{
    fp8c_context *ctx = new_context();
    fp8c_info few, many;
    fp8c_program_destroy(deep_program(ctx, 24, &few));
    fp8c_program *p = deep_program(ctx, 200, &many);
    ck_assert_int_le(many.distinct_kernels, few.distinct_kernels + 8);
    ck_assert_int_le(many.code_bytes, 2 * few.code_bytes);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    const float first = step_of(ctx, p), second = step_of(ctx, p);
    ck_assert(isfinite(first) && isfinite(second));
    ck_assert_msg(second < first, "%g after %g", (double)second, (double)first);
    fp8c_program_info(p, &many);
    ck_assert_int_eq(many.fp8_gemms_executed, 2 * 200 * 6);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- a long chain ---- */

/* 800 ops forward, each with a derivative that reads what it made: too many for one kernel. */
static const char chain[] = "module chain\n"
                            "dim L = 400, N = 40\n"
                            "param w: f32[N] normal(1)\n"
                            "func forward(%x: f32[N]) -> (%loss: f32[], %y: f32[N]) {\n"
                            "  %z = mul(%x, w)\n"
                            "  repeat i < L carry %y = %z {\n"
                            "    %y = div(1, add(%y, w))\n"
                            "  }\n"
                            "  return reshape(reduce_sum(%y)) {shape = []}, add(%y, %z)\n"
                            "}\n"
                            "optimizer adamw {lr = 1e-2}\n";

START_TEST(long_chain_is_cut)
{
    test_unit t;
    lower(&t, chain, 400, "f32");
    phases_are_bounded(&t);
    const f8_func *f = test_func(&t, "micro_step");
    uint32_t phases = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        phases += f->lowered->group[i].n_phases;
    ck_assert_uint_ge(phases, 4);
    for (size_t i = 0; i < t.unit.module->n_funcs; i++)
        if (t.unit.module->func[i].lowered)
            ck_assert_msg(f8_program_check(&t.unit.module->func[i], &t.diag) == F8_OK, "%s",
                          t.diag.text);
    test_unit_end(&t);
}
END_TEST

static int set_input(fp8c_program *p, const char *name)
{
    const int function = fp8c_program_function(p, name);
    float *x = fp8c_program_buffer(p, function, FP8C_INPUT,
                                   fp8c_program_find_port(p, function, FP8C_INPUT, "x"));
    for (int i = 0; i < 40; i++)
        x[i] = 0.5f + (float)i / 64;
    return function;
}

/* Runs two steps and eval; keeps eval's y and the parameter in out[]. */
static void run_chain(fp8c_context *ctx, const fp8c_compile_options *o, float out[80])
{
    fp8c_program *p = compile_text(ctx, chain, NULL, 0, NULL, o);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    set_input(p, "micro_step");
    step_of(ctx, p);
    step_of(ctx, p);
    const int eval = set_input(p, "eval");
    ck_assert_int_eq(fp8c_program_run(p, eval), FP8C_OK);
    memcpy(out,
           fp8c_program_buffer(p, eval, FP8C_OUTPUT,
                               fp8c_program_find_port(p, eval, FP8C_OUTPUT, "y")),
           40 * sizeof *out);
    ck_assert_int_eq(fp8c_program_read(p, 0, out + 40), FP8C_OK); /* w */
    fp8c_program_destroy(p);
}

START_TEST(long_chain_has_the_same_bits)
{
    fp8c_context *ctx = new_context();
    float cut[80], unfused[80], interpreted[80];
    fp8c_compile_options o = {.struct_size = sizeof o, .recipe = "f32", .threads = 1};
    run_chain(ctx, &o, cut);
    o.no_fuse = 1;
    run_chain(ctx, &o, unfused);
    o.target = "reference";
    run_chain(ctx, &o, interpreted);
    ck_assert(memcmp(cut, unfused, sizeof cut) == 0);
    ck_assert(memcmp(cut, interpreted, sizeof cut) == 0);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- a parameter in slices ---- */

/* The gradient of a parameter of which each layer takes a slice is one concatenation of the
 * slices' gradients, however many they are. */
START_TEST(slices_of_a_stacked_parameter)
{
    static const char stacked[] = "module stacked\n"
                                  "dim L = 2, N = 8\n"
                                  "param w: f32[L, N] ones\n"
                                  "func forward(%x: f32[1, N]) -> (%loss: f32[]) {\n"
                                  "  repeat i < L carry %y = %x {\n"
                                  "    %y = mul(%y, slice(w) {axis = 0, start = i, stop = i + 1})\n"
                                  "  }\n"
                                  "  return reshape(reduce_sum(%y)) {shape = []}\n"
                                  "}\n"
                                  "optimizer adamw {lr = 1e-2}\n";
    static const int64_t layers[] = {200, 1100};
    test_unit t;
    lower(&t, stacked, layers[_i], "f32");
    /* 1100 are two concatenations and one of both */
    ck_assert_int_eq(test_count(test_func(&t, "micro_step"), F8_OP_CONCAT, NULL), _i ? 3 : 1);
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("deep");
    TCase *t = tcase_create("deep");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, passes_of_200_layers, FIRST_RECIPE, N_RECIPES);
    tcase_add_loop_test(t, instructions_of_200_layers, 0, COUNTED);
    tcase_add_test(t, step_of_200_layers);
    tcase_add_test(t, long_chain_is_cut);
    tcase_add_test(t, long_chain_has_the_same_bits);
    tcase_add_loop_test(t, slices_of_a_stacked_parameter, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
