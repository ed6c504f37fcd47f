/* Merged launches on the emulator, or with FP8C_TEST_GPU on a GPU. A model's `update`, where most
 * launches are multi-tensor and temporaries have moved, has the bits of the CPU target.
 * `micro_step`, whose small steps have moved, has the bits of a plan with one launch for every
 * step. A kernel that does not compile is named in the message. */
#include "codegen/build.h"
#include "tests/shared/passes/passes.h"
#include "runtime/cuda/exec.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TIMEOUT = 600, ROOM = 1 << 20 };

static cuda_device device;
static uint8_t after[ROOM];

static void open_device(void)
{
    cuda_device_open(&device);
}

static void close_device(void)
{
    cuda_device_close(&device);
}

typedef cuda_plan program;

static f8_status try_build(program *p, const char *func, const char *recipe,
                           const f8_target *target, f8_build_options o)
{
    static const f8_dim_override dims[] = {{"B", 2}, {"T", 32}, {"C", 64},
                                           {"H", 2}, {"L", 3},  {"V", 256}};
    cuda_plan_lower(p, &(cuda_model){.file = "frontend/models/gpt.f8",
                                     .dims = dims,
                                     .n_dims = sizeof dims / sizeof *dims,
                                     .recipe = recipe,
                                     .target = target});
    ck_assert_msg(p->status == F8_OK, "%s", p->diag.text);
    /* it alone: what else there is would only be compiled */
    for (size_t i = 0; i < p->unit.module->n_funcs; i++)
        if (strcmp(p->unit.module->func[i].name, func))
            p->unit.module->func[i].lowered = NULL;
    o.cuda = device.cuda;
    cuda_plan_finish(p, o);
    return p->status;
}

static void build(program *p, const char *func, const char *recipe, const f8_target *target,
                  bool unmerged)
{
    const f8_status s =
        try_build(p, func, recipe, target, (f8_build_options){.unmerged = unmerged});
    ck_assert_msg(s == F8_OK, "%s", p->diag.text);
    ck_assert_uint_eq(p->plan.n_funcs, 1);
    ck_assert_str_eq(p->plan.func[0].name, func);
}

/* Gradients, moments and histories that nothing has left at zero; counters as they are. */
static void fill_variable(const f8_plan_var *v, float *x, uint32_t *seed)
{
    const int64_t n = f8_type_elements(&v->type);
    for (int64_t i = 0; !v->is_param && v->type.dtype == F8_F32 && n > 1 && i < n; i++)
        x[i] = (float)(test_random(seed) % 1000 + 1) * 1e-5f;
}

/* Codes of weights come last. A GPU has their transposes, too, and shapes of its own. */
static uint32_t without_codes(const f8_plan *plan)
{
    uint32_t n = 0;
    while (n < plan->n_vars && !f8_is_weight_codes(plan->var[n].name))
        n++;
    return n;
}

static void run_both(program *cpu, program *gpu)
{
    f8_exec *x;
    f8_cuda_exec *y;
    uint32_t seed = 5;
    const f8_exec_options on_cpu = {.n_threads = 2};
    const f8_cuda_exec_options on_gpu = {0};
    OK(f8_exec_create(&cpu->plan, &on_cpu, &x, diag));
    OK(f8_cuda_exec_create(&gpu->plan, device.cuda, &on_gpu, &y, diag));
    ck_assert_int_eq(f8_exec_init(x, 1, NULL, NULL), F8_OK);
    const uint32_t n_vars = without_codes(&cpu->plan);
    ck_assert_uint_eq(n_vars, without_codes(&gpu->plan));
    for (uint32_t v = 0; v < n_vars; v++) {
        ck_assert_str_eq(cpu->plan.var[v].name, gpu->plan.var[v].name);
        fill_variable(&cpu->plan.var[v], f8_exec_var(x, v), &seed);
        OK(f8_cuda_exec_write(y, v, f8_exec_var(x, v), diag));
    }
    for (int step = 0; step < 2; step++) {
        OK(f8_exec_run(x, 0, diag));
        OK(f8_cuda_exec_run(y, 0, diag));
        for (uint32_t i = 0; i < cpu->plan.func[0].n_out; i++) { /* the gradients' norm */
            const f8_plan_port *port = &cpu->plan.func[0].out[i];
            if (port->var < 0)
                ck_assert_msg(!memcmp(f8_exec_port(x, 0, true, i), f8_cuda_exec_port(y, 0, true, i),
                                      (size_t)f8_type_bytes(&port->type)),
                              "'%s' differs in step %d", port->name, step);
        }
    }
    for (uint32_t v = 0; v < n_vars; v++) {
        const int64_t bytes = f8_type_bytes(&cpu->plan.var[v].type);
        ck_assert_int_le(bytes, ROOM);
        OK(f8_cuda_exec_read(y, v, after, diag));
        ck_assert_msg(!memcmp(after, f8_exec_var(x, v), (size_t)bytes), "'%s' differs",
                      cpu->plan.var[v].name);
    }
    f8_exec_destroy(x);
    f8_cuda_exec_destroy(y);
}

/* Blocks in order, and in two random ones, on the emulator. */
static const char *const orders[] = {"0", "7", "12345"};
static const char *const recipes[] = {"bf16", "delayed", "current"};

START_TEST(update_like_the_cpu)
{
    program cpu, gpu;
    uint32_t instances = 0;
    if (!f8_test_has_cpu("the CPU's update"))
        return;
    build(&cpu, "update", recipes[_i], f8_target_by_name("cpu"), false);
    build(&gpu, "update", recipes[_i], device.target, false);
    for (uint32_t i = 0; i < gpu.plan.func[0].n_steps; i++)
        for (uint32_t k = 0; k < gpu.plan.func[0].step[i].n_phases; k++)
            instances += gpu.plan.func[0].step[i].phase[k].launch.n_instances;
    ck_assert_uint_gt(instances, 3 * gpu.plan.func[0].n_steps);
    setenv("FP8C_EMULATOR_SEED", orders[_i], 1);
    run_both(&cpu, &gpu);
    f8_arena_end(&cpu.arena);
    f8_arena_end(&gpu.arena);
}
END_TEST

/* ---- forward and backward ---- */

/* What the executor's own buffers of inputs hold: token ids, below V. */
static void fill_inputs(const f8_plan_func *f, f8_cuda_exec *x)
{
    uint32_t seed = 11;
    for (uint32_t i = 0; i < f->n_in; i++) {
        int32_t *ids = f->in[i].var < 0 ? f8_cuda_exec_port(x, 0, false, i) : NULL;
        for (int64_t k = 0; ids && k < f8_type_elements(&f->in[i].type); k++)
            ids[k] = (int32_t)(test_random(&seed) % 256);
    }
}

static void same_variables(const program *a, f8_cuda_exec *x, f8_cuda_exec *y)
{
    static uint8_t before[ROOM];
    uint32_t written = 0;
    for (uint32_t v = 0; v < a->plan.n_vars; v++) {
        const int64_t bytes = f8_type_bytes(&a->plan.var[v].type);
        ck_assert_int_le(bytes, ROOM);
        OK(f8_cuda_exec_read(x, v, before, diag));
        OK(f8_cuda_exec_read(y, v, after, diag));
        ck_assert_msg(!memcmp(before, after, (size_t)bytes), "'%s' differs", a->plan.var[v].name);
        for (int64_t i = 0; i < bytes; i++)
            if (!a->plan.var[v].is_param && before[i]) {
                written++;
                break;
            }
    }
    ck_assert_uint_gt(written, 10); /* gradients, of three blocks */
}

static f8_cuda_exec *run_twice(const program *p)
{
    f8_cuda_exec *x;
    const f8_cuda_exec_options o = {0};
    OK(f8_cuda_exec_create(&p->plan, device.cuda, &o, &x, diag));
    OK(f8_cuda_exec_init(x, 1, NULL, diag));
    fill_inputs(&p->plan.func[0], x);
    for (int i = 0; i < 2; i++)
        OK(f8_cuda_exec_run(x, 0, diag));
    return x;
}

START_TEST(micro_step_like_unmerged)
{
    program apart, merged;
    build(&apart, "micro_step", recipes[_i], device.target, true);
    build(&merged, "micro_step", recipes[_i], device.target, false);
    const f8_plan_func *f = &apart.plan.func[0], *g = &merged.plan.func[0];
    printf("micro_step, %s: %u steps, %u merged\n", recipes[_i], f->n_steps, g->n_steps);
    ck_assert_uint_lt(g->n_steps, f->n_steps);
    setenv("FP8C_EMULATOR_SEED", "0", 1);
    f8_cuda_exec *x = run_twice(&apart);
    setenv("FP8C_EMULATOR_SEED", orders[_i], 1);
    f8_cuda_exec *y = run_twice(&merged);
    for (uint32_t i = 0; i < f->n_out; i++) /* the loss */
        if (f->out[i].var < 0)
            ck_assert_msg(!memcmp(f8_cuda_exec_port(x, 0, true, i),
                                  f8_cuda_exec_port(y, 0, true, i),
                                  (size_t)f8_type_bytes(&f->out[i].type)),
                          "'%s' differs", f->out[i].name);
    same_variables(&apart, x, y);
    f8_cuda_exec_destroy(x);
    f8_cuda_exec_destroy(y);
    f8_arena_end(&apart.arena);
    f8_arena_end(&merged.arena);
}
END_TEST

/* ---- a kernel that does not compile ---- */

static int line_of(const char *text, const char *what)
{
    const char *end = strstr(text, what);
    ck_assert_ptr_nonnull(end);
    int n = 1;
    for (; text < end; text++)
        n += *text == '\n';
    return n;
}

/* A compiler that finds an error in one line, whatever it is given. */
static void make_compiler(const char *folder, int line)
{
    char path[256];
    snprintf(path, sizeof path, "%s/c++", folder);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\necho 'fp8c.cu(%d): error: a made-up one'\nexit 1\n", line);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, 0700), 0);
}

START_TEST(culprit_is_named)
{
    program p;
    char folder[] = "/tmp/check_cuda_update.XXXXXX", path[64], kernel[64];
    if (!device.count) {
        test_skip("a compiler that fails", "on a GPU it is NVRTC, which does not fail on request");
        return;
    }
    ck_assert_int_eq(
        try_build(&p, "update", "bf16", device.target, (f8_build_options){.text_only = true}),
        F8_OK);
    ck_assert_uint_gt(p.stats.n_kernels, 3);
    const f8_build_kernel *k = &p.stats.kernel[2];
    ck_assert_uint_eq(k->image, 0);
    snprintf(kernel, sizeof kernel, "F8_KERNEL(%s,", k->symbol);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    make_compiler(folder, line_of(p.stats.image[0].cuda, kernel));
    char *old = strdup(getenv("PATH"));
    setenv("PATH", folder, 1);
    setenv("FP8C_EMULATOR_CXX", "c++", 1);
    program q;
    const f8_status s = try_build(&q, "update", "bf16", device.target, (f8_build_options){0});
    unsetenv("FP8C_EMULATOR_CXX");
    setenv("PATH", old, 1);
    free(old);
    snprintf(path, sizeof path, "%s/c++", folder);
    unlink(path);
    rmdir(folder);
    ck_assert_int_eq(s, F8_ERR_INTERNAL);
    ck_assert_msg(strstr(q.diag.text, k->name) && strstr(q.diag.text, k->symbol) &&
                      strstr(q.diag.text, "a made-up one"),
                  "%s", q.diag.text);
    f8_arena_end(&p.arena);
    f8_arena_end(&q.arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_update");
    TCase *t = tcase_create("update");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, open_device, close_device);
    tcase_add_loop_test(t, update_like_the_cpu, 0, 3);
    tcase_add_loop_test(t, micro_step_like_unmerged, 0, 3);
    tcase_add_test(t, culprit_is_named);
    suite_add_tcase(s, t);
    return s;
}
