/* Tails: the end of a launch that the block that ends last does (codegen/plan/tails.c). On the
 * emulator, or with FP8C_TEST_GPU on a GPU. A function run again and again, in a graph or step by
 * step, with blocks in any order, gives the bits of a plan without tails each time. Kernels that
 * are no tails stay launches. A plan whose counters are wrong is refused. */
#include "codegen/build.h"
#include "runtime/cuda/exec.h"
#include "runtime/plan_file.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/passes/unit.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cuda_device device;

static void open_device(void)
{
    cuda_device_open(&device);
}

static void close_device(void)
{
    cuda_device_close(&device);
}

static void lower(test_unit *t, const char *func, const f8_target *target)
{
    f8_status (*const pass[])(f8_unit *) = {f8_pass_canonicalize, f8_pass_legalize, f8_pass_group,
                                            f8_pass_schedule, f8_pass_memory};
    char text[1024];
    snprintf(text, sizeof text, "module m\n%s", func);
    test_unit_parse(t, text, "f32");
    t->unit.options.target = target;
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
        test_pass(t, pass[i]);
}

static f8_plan build(test_unit *t, f8_build_options o)
{
    f8_plan plan;
    o.target = t->unit.options.target;
    const f8_status s = f8_build_plan(t->unit.module, &o, &t->arena, &plan, &t->diag);
    ck_assert_msg(s == F8_OK, "%s", t->diag.text);
    return plan;
}

static uint32_t count_tails(const f8_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++)
            for (uint32_t k = 0; k < plan->func[f].step[i].n_phases; k++)
                n += plan->func[f].step[i].phase[k].launch.counts;
    return n;
}

/* ---- bits ---- */

enum { ROWS = 600, COLUMNS = 512, RUNS = 4 };

/* The tail stores an f32, a bf16 and an E8M0, which is one byte. */
static const char finish[] =
    "func forward(%x: f32[600, 512], %p: f32[]) -> (%y: f32[600, 512], %a: f32[], %e: f8e8m0[], "
    "%h: bf16[], %c: f32[]) {\n"
    "  %y = mul(%x, 2)\n"
    "  %a = reshape(reduce_amax(reshape(reduce_amax(%y)) {shape = [1, 600]})) {shape = []}\n"
    "  %e = quantize(%a, 0.125) {format = f8e8m0, saturate = false}\n"
    "  %h = cast(%a) {to = bf16}\n  %c = div(%p, %a)\n  return %y, %a, %e, %h, %c\n}\n";

/* Less in each run than in the one before, so what an earlier run left is no result. */
static float fill(f8_cuda_exec *x, int run)
{
    float *to = f8_cuda_exec_port(x, 0, false, 0), most = 0;
    uint32_t seed = (uint32_t)run + 3;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        to[i] = ((float)(test_random(&seed) % 2001) - 1000) * (float)(RUNS - run);
        most = fmaxf(most, fabsf(2 * to[i]));
    }
    *(float *)f8_cuda_exec_port(x, 0, false, 1) = (float)(run + 1);
    return most;
}

static const struct {
    const char *order; /* of blocks: FP8C_EMULATOR_SEED */
    bool step_by_step;
} ways[] = {{"0", false}, {"7", false}, {"12345", true}, {"99", false}};

START_TEST(every_run_has_the_bits)
{
    test_unit t;
    lower(&t, finish, device.target);
    const f8_plan apart = build(&t, (f8_build_options){.cuda = device.cuda, .unmerged = true});
    const f8_plan joined = build(&t, (f8_build_options){.cuda = device.cuda});
    ck_assert_uint_eq(count_tails(&apart), 0);
    ck_assert_uint_eq(count_tails(&joined), 1);
    ck_assert_uint_eq(apart.func[0].n_steps, 2);
    ck_assert_uint_eq(joined.func[0].n_steps, 1);
    ck_assert_int_gt(joined.func[0].step[0].phase[0].n_tasks, 8);
    f8_cuda_exec *x, *y;
    const f8_cuda_exec_options plain = {0}, o = {.blocking = ways[_i].step_by_step};
    OK(f8_cuda_exec_create(&apart, device.cuda, &plain, &x, diag));
    OK(f8_cuda_exec_create(&joined, device.cuda, &o, &y, diag));
    for (int run = 0; run < RUNS; run++) {
        const float most = fill(x, run);
        fill(y, run);
        setenv("FP8C_EMULATOR_SEED", "0", 1);
        OK(f8_cuda_exec_run(x, 0, diag));
        setenv("FP8C_EMULATOR_SEED", ways[_i].order, 1);
        OK(f8_cuda_exec_run(y, 0, diag));
        for (uint32_t i = 0; i < apart.func[0].n_out; i++) {
            const f8_plan_port *port = &apart.func[0].out[i];
            ck_assert_msg(!memcmp(f8_cuda_exec_port(x, 0, true, i),
                                  f8_cuda_exec_port(y, 0, true, i),
                                  (size_t)f8_type_bytes(&port->type)),
                          "'%s' differs in run %d", port->name, run);
        }
        const float got = *(const float *)f8_cuda_exec_port(y, 0, true, 1);
        ck_assert_msg(got == most, "%g, not %g, in run %d", (double)got, (double)most, run);
    }
    f8_cuda_exec_destroy(x);
    f8_cuda_exec_destroy(y);
    test_unit_end(&t);
}
END_TEST

/* ---- which steps ---- */

#define HEAD(rows) "func forward(%x: f32[" rows ", 96], %p: f32[]) -> "
static const struct {
    const char *text;
    uint32_t tails;
} functions[] = {
    {HEAD("300") "(%a: f32[]) {\n  %r = reduce_amax(%x)\n"
                 "  %a = reshape(reduce_amax(reshape(%r) {shape = [1, 300]})) {shape = []}\n"
                 "  return %a\n}\n",
     1},
    /* a sum has an order */
    {HEAD("300") "(%a: f32[]) {\n  %r = reduce_amax(%x)\n"
                 "  %a = reshape(reduce_sum(reshape(%r) {shape = [1, 300]})) {shape = []}\n"
                 "  return %a\n}\n",
     0},
    /* what is reduced is computed first */
    {HEAD("300") "(%a: f32[]) {\n  %r = reduce_amax(%x)\n"
                 "  %s = tanh(reshape(%r) {shape = [1, 300]})\n"
                 "  %a = reshape(reduce_amax(%s)) {shape = []}\n  return %a\n}\n",
     0},
    /* longer than one block should read */
    {HEAD("20000") "(%a: f32[]) {\n  %r = reduce_amax(%x)\n"
                   "  %a = reshape(reduce_amax(reshape(%r) {shape = [1, 20000]})) {shape = []}\n"
                   "  return %a\n}\n",
     0},
};

START_TEST(only_these_are_tails)
{
    test_unit t;
    lower(&t, functions[_i].text, f8_target_by_name("sm_90a"));
    const f8_plan plan = build(&t, (f8_build_options){.text_only = true});
    ck_assert_uint_eq(plan.func[0].n_steps, functions[_i].tails ? 1 : 2);
    ck_assert_uint_eq(count_tails(&plan), functions[_i].tails);
    test_unit_end(&t);
}
END_TEST

/* ---- counters ---- */

static void refused(f8_plan *plan, const char *says)
{
    f8_diag d = {0};
    ck_assert_int_eq(f8_plan_check(plan, &d), F8_ERR_INPUT);
    ck_assert_msg(strstr(d.text, says) != NULL, "%s", d.text);
}

/* Every launch has a word of its own, of zeros, behind all other constants. */
START_TEST(counters_are_checked)
{
    cuda_plan p;
    static bool used[1 << 16];
    cuda_plan_build(&p, "gpt", NULL, "delayed", "sm_90a", (f8_build_options){.text_only = true});
    ck_assert_msg(p.status == F8_OK, "%s", p.diag.text);
    f8_plan plan = p.plan;
    /* code that nobody runs, for a check of the rest */
    plan.n_images = 1000;
    plan.image = F8_NEW_ARRAY(&p.arena, f8_image, plan.n_images);
    ck_assert_ptr_nonnull(plan.image);
    for (uint32_t i = 0; i < plan.n_images; i++)
        plan.image[i].size = 1;
    f8_step *s = NULL;
    ck_assert_uint_gt(count_tails(&plan), 10);
    for (uint32_t f = 0; f < plan.n_funcs; f++)
        for (uint32_t i = 0; i < plan.func[f].n_steps; i++) {
            f8_step *at = &plan.func[f].step[i];
            if (!at->n_phases || !at->phase[0].launch.counts)
                continue;
            s = at;
            const int64_t word = at->arg[at->n_args - 1].offset;
            ck_assert(word < plan.constants_bytes && word < (int64_t)sizeof used && !used[word]);
            used[word] = true;
        }
    f8_diag d = {0};
    ck_assert_msg(f8_plan_check(&plan, &d) == F8_OK, "%s", d.text);
    f8_arg *counter = &s->arg[s->n_args - 1];
    const f8_arg was = *counter;
    counter->offset -= 2;
    refused(&plan, "is no word of zero to count blocks in");
    counter->offset = plan.constants_bytes;
    refused(&plan, "4 bytes from there are used");
    *counter = (f8_arg){F8_SPACE_ARENA, -1, 0};
    refused(&plan, "is no word of zero to count blocks in");
    *counter = was;
    plan.constants[was.offset] = 1;
    refused(&plan, "is no word of zero to count blocks in");
    plan.constants[was.offset] = 0;
    s->phase[0].launch.n_args = 0;
    refused(&plan, "a launch that counts its blocks has 1 instances and 0 arguments");
    cuda_plan_end(&p);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_tails");
    TCase *t = tcase_create("tails"), *bits = tcase_create("bits");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, only_these_are_tails, 0, sizeof functions / sizeof *functions);
    tcase_add_test(t, counters_are_checked);
    suite_add_tcase(s, t);
    tcase_set_timeout(bits, 600);
    tcase_add_checked_fixture(bits, open_device, close_device);
    tcase_add_loop_test(bits, every_run_has_the_bits, 0, sizeof ways / sizeof *ways);
    suite_add_tcase(s, bits);
    return s;
}
