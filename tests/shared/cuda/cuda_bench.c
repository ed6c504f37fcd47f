/* See cuda_bench.h. */
#include "tests/shared/cuda/cuda_bench.h"

#include <stdio.h>
#include <string.h>

#include "codegen/cuda/emit.h"
#include "runtime/copy.h"

enum { THREADS = 64 };

/* ---- kernels ---- */

#define TASKS "for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks())"

static const char text[] =
    "#include \"fp8c.cuh\"\n"
    "struct twice_params { float *y; const float *x; f8_i64 n, tasks; };\n"
    "F8_KERNEL(twice, 64, 1)\n{\n    " TASKS " {\n"
    "        const f8_i64 i = task * 64 + f8_thread();\n"
    "        if (i < p.n) p.y[i] = 2.0f * p.x[i];\n    }\n}\n"
    "struct sum_params { float *y; const float *t, *w, *c; f8_i64 n, tasks; };\n"
    "F8_KERNEL(sum, 64, 1)\n{\n    " TASKS " {\n"
    "        const f8_i64 i = task * 64 + f8_thread();\n"
    "        if (i < p.n) p.y[i] = (p.t[i] + p.w[i]) + p.c[i % 4];\n    }\n}\n"
    /* many tensors: instance k adds its value to n elements */
    "struct bump_one { float *x; f8_i64 n, value, end; };\n"
    "struct bump_params { f8_i64 count; bump_one one[2]; };\n"
    "F8_KERNEL(bump, 64, 1)\n{\n"
    "    for (f8_i64 task = f8_block(); task < p.one[p.count - 1].end; task += f8_blocks()) {\n"
    "        f8_i64 k = 0, begin = 0;\n"
    "        for (; task >= p.one[k].end; k++) begin = p.one[k].end;\n"
    "        const f8_i64 i = (task - begin) * 64 + f8_thread();\n"
    "        if (i < p.one[k].n) p.one[k].x[i] += (float)p.one[k].value;\n    }\n}\n"
    /* one block turns round 16 K elements kept in 64 KiB of shared memory, more than is had unasked
     */
    "struct turn_params { float *x; f8_i64 n, tasks; };\n"
    "F8_KERNEL(turn, 64, 1)\n{\n    F8_SHARED_DYNAMIC(bytes);\n    float *near = (float *)bytes;\n"
    "    " TASKS " {\n        f8_sync();\n"
    "        for (f8_i64 i = f8_thread(); i < p.n; i += 64) near[i] = p.x[i];\n        f8_sync();\n"
    "        for (f8_i64 i = f8_thread(); i < p.n; i += 64) p.x[i] = near[p.n - 1 - i];\n    }\n}\n"
    /* writes where it must not */
    "struct fault_params { float *x; f8_i64 tasks; };\n"
    "F8_KERNEL(fault, 64, 1)\n{\n    " TASKS " p.x[f8_thread()] = 1.0f;\n}\n";

static const float constants[64] = {0.5f, 0.25f, 0.125f, 4.0f};

static f8_arg at(f8_space space, int64_t offset)
{
    return (f8_arg){.space = space, .offset = offset};
}

static int64_t tasks_of(int64_t n)
{
    return (n + THREADS - 1) / THREADS;
}

static f8_step_phase launch(const char *symbol, int64_t tasks, uint32_t n_args, uint32_t n_ints)
{
    return (f8_step_phase){.n_tasks = tasks,
                           .launch = {.symbol = symbol,
                                      .threads = THREADS,
                                      .n_instances = 1,
                                      .n_args = n_args,
                                      .n_ints = n_ints}};
}

static void compile(bench *b)
{
    f8_diag d = {0};
    f8_nvrtc_result r;
    ck_assert_msg(f8_cuda_compile(b->device.cuda, text, "check.cu", f8_cuda_header, "fp8c.cuh",
                                  b->device.target->name, (f8_nvrtc_options){0}, &b->arena, &r,
                                  &d) == F8_OK,
                  "%s", d.text);
    b->image = (f8_image){r.cubin, (int64_t)r.cubin_size};
}

static void make_steps(bench *b)
{
    const int64_t tasks = tasks_of(N);
    f8_arg *a = b->arg;
    int64_t *i = b->ints;
    b->phase[0] = launch("twice", tasks, 2, 2);
    b->step[0] = (f8_step){.kind = F8_STEP_KERNEL,
                           .name = "double",
                           .arg = a,
                           .n_args = 2,
                           .ints = i,
                           .n_ints = 2,
                           .n_phases = 1,
                           .phase = &b->phase[0]};
    a[0] = at(F8_SPACE_ARENA, 0), a[1] = at(F8_SPACE_INPUT, 0);
    i[0] = N, i[1] = tasks;
    a += 2, i += 2;
    b->step[1] = (f8_step){.kind = F8_STEP_COPY, .name = "move", .arg = a, .n_args = 2};
    b->step[1].copy.rank = 3;
    b->step[1].copy.element = 4;
    const int64_t size[] = {10, 1, N / 10}, from[] = {N / 10, 77, 1}, to[] = {N / 10, 5, 1};
    memcpy(b->step[1].copy.size, size, sizeof size);
    memcpy(b->step[1].copy.from, from, sizeof from);
    memcpy(b->step[1].copy.to, to, sizeof to);
    a[0] = at(F8_SPACE_ARENA, 0), a[1] = at(F8_SPACE_ARENA, 4096);
    a += 2;
    b->phase[1] = launch("sum", tasks, 4, 2);
    b->step[2] = (f8_step){.kind = F8_STEP_KERNEL,
                           .name = "total",
                           .arg = a,
                           .n_args = 4,
                           .ints = i,
                           .n_ints = 2,
                           .n_phases = 1,
                           .phase = &b->phase[1]};
    a[0] = at(F8_SPACE_OUTPUT, 0), a[1] = at(F8_SPACE_ARENA, 4096);
    a[2] = at(F8_SPACE_STATE, b->var[W].offset), a[3] = at(F8_SPACE_CONST, 0);
    i[0] = N, i[1] = tasks;
    a += 4, i += 2;
    b->phase[2] = launch("bump", tasks + tasks_of(7), 1, 3);
    b->phase[2].launch.n_instances = 2;
    b->phase[2].launch.multi = true;
    b->step[3] = (f8_step){.kind = F8_STEP_KERNEL,
                           .name = "bump",
                           .arg = a,
                           .n_args = 2,
                           .ints = i,
                           .n_ints = 6,
                           .n_phases = 1,
                           .phase = &b->phase[2]};
    a[0] = at(F8_SPACE_STATE, b->var[W].offset), a[1] = at(F8_SPACE_STATE, b->var[V].offset);
    i[0] = N, i[1] = 1, i[2] = tasks, i[3] = 7, i[4] = 3, i[5] = tasks + tasks_of(7);
    a += 2, i += 6;
    for (int k = 0; k < 2; k++) { /* phase 0 turns all of u, phase 1 the first N */
        b->phase[3 + k] = launch("turn", 1, 1, 2);
        b->phase[3 + k].first_arg = (uint32_t)k;
        b->phase[3 + k].first_int = (uint32_t)(2 * k);
        b->phase[3 + k].launch.shared = k ? BYTES : REVERSED * 4;
        a[k] = at(F8_SPACE_STATE, b->var[U].offset);
        i[2 * k] = k ? N : REVERSED, i[2 * k + 1] = 1;
    }
    b->step[4] = (f8_step){.kind = F8_STEP_KERNEL,
                           .name = "turn",
                           .arg = a,
                           .n_args = 2,
                           .ints = i,
                           .n_ints = 4,
                           .n_phases = 2,
                           .phase = &b->phase[3]};
    a += 2, i += 4;
    b->phase[5] = launch("fault", 1, 1, 1);
    b->fault[0] = (f8_step){.kind = F8_STEP_KERNEL,
                            .name = "bad store",
                            .arg = a,
                            .n_args = 1,
                            .ints = i,
                            .n_ints = 1,
                            .n_phases = 1,
                            .phase = &b->phase[5]};
    a[0] = at(F8_SPACE_NONE, 0);
    i[0] = 1;
}

void bench_make_plan(bench *b)
{
    const f8_type row = {F8_F32, 1, {N}};
    b->var[W] = (f8_plan_var){.name = "w", .type = row, .init = 3, .init_arg = 0.5, .offset = 0};
    b->var[V] = (f8_plan_var){.name = "v", .type = {F8_F32, 1, {7}}, .init = 1, .offset = 4096};
    b->var[U] = (f8_plan_var){.name = "u",
                              .type = {F8_F32, 2, {16, REVERSED / 16}},
                              .init = 3,
                              .init_arg = 1,
                              .offset = 8192};
    b->in[0] = (f8_plan_port){"x", row, -1};
    b->out[0] = (f8_plan_port){"y", row, -1};
    b->out[1] = (f8_plan_port){"w", row, W};
    make_steps(b);
    b->func[STEP] = (f8_plan_func){.name = "step",
                                   .step = b->step,
                                   .n_steps = 5,
                                   .in = b->in,
                                   .out = b->out,
                                   .n_in = 1,
                                   .n_out = 2,
                                   .arena_bytes = 8192};
    b->func[FAULT] = (f8_plan_func){.name = "faulty", .step = b->fault, .n_steps = 1};
    b->func[NOTHING] = (f8_plan_func){.name = "nothing"};
    b->plan = (f8_plan){.module = "check",
                        .target = b->device.target->name,
                        .var = b->var,
                        .n_vars = 3,
                        .func = b->func,
                        .n_funcs = 3,
                        .state_bytes = 8192 + REVERSED * 4,
                        .constants = (uint8_t *)(uintptr_t)constants,
                        .constants_bytes = sizeof constants,
                        .image = &b->image,
                        .n_images = 1};
}

void bench_open(bench *b)
{
    *b = (bench){0};
    cuda_device_open(&b->device);
    f8_arena_init(&b->arena, NULL);
    compile(b);
    bench_make_plan(b);
    b->allocator = counting_allocator(&b->host);
}

void bench_close(bench *b)
{
    f8_arena_end(&b->arena);
    ck_assert_msg(b->host.blocks == 0 && b->host.bytes == 0, "%lld host blocks are left",
                  (long long)b->host.blocks);
    cuda_device_close(&b->device);
}

f8_cuda_exec *bench_create(bench *b, f8_cuda_exec_options o)
{
    f8_diag d = {0};
    f8_cuda_exec *x = NULL;
    o.allocator = &b->allocator;
    ck_assert_msg(f8_cuda_exec_create(&b->plan, b->device.cuda, &o, &x, &d) == F8_OK, "%s", d.text);
    return x;
}

void contains(const char *s, const char *part)
{
    ck_assert_msg(strstr(s, part) != NULL, "'%s' is not in: %s", part, s);
}

/* ---- what the steps compute, by plain loops ---- */

static void turn(float *x, int n)
{
    for (int i = 0; i < n / 2; i++) {
        const float t = x[i];
        x[i] = x[n - 1 - i];
        x[n - 1 - i] = t;
    }
}

void model_step(model *m)
{
    for (int i = 0; i < N; i++) {
        m->y[i] = (2.0f * m->x[i] + m->w[i]) + constants[i % 4];
        m->w[i] += 1.0f;
    }
    for (int i = 0; i < 7; i++)
        m->v[i] += 3.0f;
    turn(m->u, REVERSED);
    turn(m->u, N);
}

void model_init(model *m, const bench *b, uint64_t seed)
{
    *m = (model){0};
    f8_init_var(&b->var[W], 0, seed, NULL, m->w);
    f8_init_var(&b->var[V], 0, seed, NULL, m->v);
    f8_init_var(&b->var[U], 0, seed, NULL, m->u);
}

void model_input(model *m, int round)
{
    for (int i = 0; i < N; i++)
        m->x[i] = (float)((i * 37 + round * 11) % 256) / 16.0f - 3.0f;
}

void model_check_state(const model *m, f8_cuda_exec *x)
{
    static float w[N], v[7], u[REVERSED];
    OK(f8_cuda_exec_read(x, W, w, diag));
    OK(f8_cuda_exec_read(x, V, v, diag));
    OK(f8_cuda_exec_read(x, U, u, diag));
    ck_assert(!memcmp(w, m->w, sizeof w));
    ck_assert(!memcmp(v, m->v, sizeof v));
    ck_assert(!memcmp(u, m->u, sizeof u));
}

void model_run(model *m, f8_cuda_exec *x, int round)
{
    model_input(m, round);
    memcpy(f8_cuda_exec_port(x, STEP, false, 0), m->x, BYTES);
    OK(f8_cuda_exec_run(x, STEP, diag));
    OK(f8_cuda_exec_wait(x, diag));
    model_step(m);
    ck_assert(!memcmp(f8_cuda_exec_port(x, STEP, true, 0), m->y, BYTES));
}
