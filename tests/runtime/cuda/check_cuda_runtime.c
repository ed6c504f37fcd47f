/* The CUDA executor: plans made by hand, run in every mode. On a GPU (FP8C_TEST_GPU) or on the
 * emulator. */
#include "runtime/cuda/internal.h"
#include "tests/shared/cuda/cuda_bench.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bench b; /* a process is one test */
static model m;

START_TEST(runs)
{
    bench_open(&b);
    const f8_cuda_exec_options mode[] = {{0}, {.profile = true}, {.blocking = true}};
    for (int k = 0; k < 3; k++) {
        f8_cuda_exec *x = bench_create(&b, mode[k]);
        OK(f8_cuda_exec_init(x, 7, NULL, diag));
        model_init(&m, &b, 7);
        model_check_state(&m, x);
        for (int round = 0; round < 4; round++)
            model_run(&m, x, round);
        model_check_state(&m, x);
        OK(f8_cuda_exec_run(x, NOTHING, diag));
        const f8_exec_counts n = f8_cuda_exec_count(x);
        ck_assert_int_eq(n.kernels, 16);
        ck_assert_int_eq(n.gemms, 0);
        ck_assert_int_eq(f8_cuda_exec_planned_bytes(x),
                         8192 + REVERSED * 4 + 8192 + 256 + 2 * 4096);
        ck_assert_int_eq(f8_cuda_exec_peak_bytes(x), f8_cuda_exec_planned_bytes(x));
        for (uint32_t i = 0; i < 5; i++)
            ck_assert(mode[k].profile ? f8_cuda_exec_step_seconds(x, STEP, i) >= 0
                                      : f8_cuda_exec_step_seconds(x, STEP, i) == 0);
        ck_assert(!f8_cuda_exec_step_algorithm(x, STEP, 0));
        if (b.device.count) /* captured once, launched four times; the empty function not at all */
            ck_assert_int_eq(b.device.count("graph_exec"), k == 0);
        f8_cuda_exec_destroy(x);
    }
    bench_close(&b);
}
END_TEST

START_TEST(written_variables)
{
    bench_open(&b);
    f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){0});
    model_init(&m, &b, 3);
    for (int i = 0; i < REVERSED; i++)
        m.u[i] = (float)i;
    OK(f8_cuda_exec_write(x, W, m.w, diag));
    OK(f8_cuda_exec_write(x, V, m.v, diag));
    OK(f8_cuda_exec_write(x, U, m.u, diag));
    model_check_state(&m, x);
    model_run(&m, x, 1);
    model_check_state(&m, x);
    f8_cuda_exec_destroy(x);
    bench_close(&b);
}
END_TEST

/* A run begins after what the default stream was given before, as a framework's copy of its input.
 * Filling the room behind it takes a GPU longer than a run takes to begin; the emulator never
 * overlaps anything. */
START_TEST(after_the_default_stream)
{
    bench_open(&b);
    const size_t room = b.device.count ? BYTES : (size_t)1 << 30;
    f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){0});
    f8_cuda *c = b.device.cuda;
    CUdeviceptr there = 0;
    OK(f8_cuda_exec_init(x, 1, NULL, diag));
    model_init(&m, &b, 1);
    model_run(&m, x, 0);
    OK(f8_cuda_enter(c, diag));
    ck_assert_int_eq(c->cu.cuMemAlloc_v2(&there, BYTES + room), CUDA_SUCCESS);
    ck_assert_int_eq(c->cu.cuMemsetD8Async(there, 0, BYTES, NULL), CUDA_SUCCESS);
    OK(f8_cuda_exec_bind(x, STEP, false, 0, (void *)(uintptr_t)there, diag));
    OK(f8_cuda_exec_run(x, STEP, diag)); /* captures */
    memset(m.x, 0, sizeof m.x);
    model_step(&m);
    model_input(&m, 5);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(c->cu.cuMemsetD8Async(there + BYTES, 1, room, NULL), CUDA_SUCCESS);
    ck_assert_int_eq(c->cu.cuMemcpyHtoDAsync_v2(there, m.x, sizeof m.x, NULL), CUDA_SUCCESS);
    OK(f8_cuda_exec_run(x, STEP, diag));
    model_step(&m);
    ck_assert(!memcmp(f8_cuda_exec_port(x, STEP, true, 0), m.y, sizeof m.y));
    ck_assert_int_eq(c->cu.cuMemFree_v2(there), CUDA_SUCCESS);
    f8_cuda_leave(c);
    f8_cuda_exec_destroy(x);
    bench_close(&b);
}
END_TEST

/* Host buffers change nothing on the device; device memory is used in place. */
START_TEST(rebinding)
{
    bench_open(&b);
    f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){0});
    f8_cuda *c = b.device.cuda;
    OK(f8_cuda_exec_init(x, 1, NULL, diag));
    model_init(&m, &b, 1);
    model_run(&m, x, 0);
    static float host_x[N], host_y[N];
    OK(f8_cuda_exec_bind(x, STEP, false, 0, host_x, diag));
    OK(f8_cuda_exec_bind(x, STEP, true, 0, host_y, diag));
    ck_assert(f8_cuda_exec_port(x, STEP, true, 0) == host_y);
    model_input(&m, 5);
    memcpy(host_x, m.x, sizeof host_x);
    OK(f8_cuda_exec_run(x, STEP, diag));
    model_step(&m);
    ck_assert(!memcmp(host_y, m.y, sizeof host_y));

    CUdeviceptr there = 0;
    OK(f8_cuda_enter(c, diag));
    ck_assert_int_eq(c->cu.cuMemAlloc_v2(&there, 2 * BYTES), CUDA_SUCCESS);
    f8_cuda_leave(c);
    void *in = (void *)(uintptr_t)there, *out = (void *)(uintptr_t)(there + BYTES);
    OK(f8_cuda_exec_bind(x, STEP, true, 0, in,
                         diag)); /* the output's place is the next run's input */
    OK(f8_cuda_exec_run(x, STEP, diag));
    model_step(&m);
    memcpy(m.x, m.y, sizeof m.x);
    OK(f8_cuda_exec_bind(x, STEP, false, 0, in, diag));
    OK(f8_cuda_exec_bind(x, STEP, true, 0, out, diag));
    ck_assert(f8_cuda_exec_port(x, STEP, true, 0) == out);
    OK(f8_cuda_exec_run(x, STEP, diag));
    model_step(&m);
    OK(f8_cuda_exec_bind(x, STEP, false, 0, out, diag));
    memcpy(m.x, m.y, sizeof m.x);
    OK(f8_cuda_exec_bind(x, STEP, true, 0, host_y, diag));
    OK(f8_cuda_exec_run(x, STEP, diag));
    model_step(&m);
    ck_assert(!memcmp(host_y, m.y, sizeof host_y));
    if (b.device.count) /* one for each set of addresses */
        ck_assert_int_eq(b.device.count("graph_exec"), 4);

    OK(f8_cuda_exec_bind(x, STEP, false, 0, NULL, diag));
    OK(f8_cuda_exec_bind(x, STEP, true, 0, NULL, diag));
    model_run(&m, x, 2);
    if (b.device.count) /* the first again */
        ck_assert_int_eq(b.device.count("graph_exec"), 4);
    f8_diag d = {0}, e = {0};
    ck_assert_int_eq(f8_cuda_exec_bind(x, STEP, false, 0, (char *)in + 4, &d), F8_ERR_INPUT);
    contains(d.text, "port 'x' of step must be 16-byte aligned");
    ck_assert_int_eq(f8_cuda_exec_bind(x, STEP, true, 1, host_y, &e), F8_ERR_INPUT);
    contains(e.text, "port 'w' of step carries variable 'w'");
    model_run(&m, x, 3); /* neither was a failure of the device */
    f8_cuda_exec_destroy(x);
    OK(f8_cuda_enter(c, diag));
    c->cu.cuMemFree_v2(there);
    f8_cuda_leave(c);
    bench_close(&b);
}
END_TEST

/* ---- graphs of several sets of addresses ---- */

static struct {
    f8_cuda_api next;
    int captures, instantiations, updates;
    bool refuse; /* updates */
} graphs;

static CUresult count_capture(CUstream s, CUstreamCaptureMode mode)
{
    graphs.captures++;
    return graphs.next.cuStreamBeginCapture_v2(s, mode);
}

static CUresult count_instantiation(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    graphs.instantiations++;
    return graphs.next.cuGraphInstantiateWithFlags(exec, graph, flags);
}

static CUresult count_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    graphs.updates++;
    return graphs.refuse ? CUDA_ERROR_INVALID_VALUE
                         : graphs.next.cuGraphExecUpdate_v2(exec, graph, info);
}

/* One run with the input in device memory at `in` and the result at `out`. */
static void run_at(f8_cuda_exec *x, CUdeviceptr in, CUdeviceptr out, int round)
{
    f8_cuda *c = b.device.cuda;
    static float got[N];
    model_input(&m, round);
    OK(f8_cuda_enter(c, diag));
    ck_assert_int_eq(c->cu.cuMemcpyHtoDAsync_v2(in, m.x, BYTES, NULL), CUDA_SUCCESS);
    ck_assert_int_eq(c->cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    f8_cuda_leave(c);
    OK(f8_cuda_exec_bind(x, STEP, false, 0, (void *)(uintptr_t)in, diag));
    OK(f8_cuda_exec_bind(x, STEP, true, 0, (void *)(uintptr_t)out, diag));
    OK(f8_cuda_exec_run(x, STEP, diag));
    model_step(&m);
    OK(f8_cuda_enter(c, diag));
    ck_assert_int_eq(c->cu.cuMemcpyDtoHAsync_v2(got, out, BYTES, NULL), CUDA_SUCCESS);
    ck_assert_int_eq(c->cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    f8_cuda_leave(c);
    ck_assert_msg(!memcmp(got, m.y, sizeof got), "round %d", round);
}

/* The last eight sets of addresses are known: no capture, no instantiation. A ninth updates the
 * graph that was not launched for the longest time, or replaces it where the driver can't. */
START_TEST(known_addresses)
{
    enum { SETS = 12, KNOWN = 8, ROOM = (BYTES + 255) / 256 * 256 };
    bench_open(&b);
    f8_cuda *c = b.device.cuda;
    f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){0});
    graphs.next = c->cu;
    c->cu.cuStreamBeginCapture_v2 = count_capture;
    c->cu.cuGraphInstantiateWithFlags = count_instantiation;
    c->cu.cuGraphExecUpdate_v2 = count_update;
    OK(f8_cuda_exec_init(x, 1, NULL, diag));
    model_init(&m, &b, 1);
    CUdeviceptr there = 0;
    OK(f8_cuda_enter(c, diag));
    ck_assert_int_eq(c->cu.cuMemAlloc_v2(&there, (SETS + 1) * ROOM), CUDA_SUCCESS);
    f8_cuda_leave(c);
#define RUN(set)                                                                                   \
    run_at(x, there + (CUdeviceptr)(set)*ROOM, there + ((CUdeviceptr)(set) + 1) * ROOM, round++)
    int round = 0;
    for (int turn = 0; turn < 3; turn++)
        for (int set = 0; set < KNOWN; set++)
            RUN(set);
    ck_assert_int_eq(graphs.captures, KNOWN);
    ck_assert_int_eq(graphs.instantiations, KNOWN);
    ck_assert_int_eq(graphs.updates, 0);
    RUN(0);
    for (int set = KNOWN; set < SETS; set++) /* in place of sets 1 to 4 */
        RUN(set);
    ck_assert_int_eq(graphs.captures, SETS);
    ck_assert_int_eq(graphs.instantiations, KNOWN);
    ck_assert_int_eq(graphs.updates, SETS - KNOWN);
    RUN(0);
    RUN(7);
    RUN(SETS - 1);
    ck_assert_int_eq(graphs.captures, SETS);
    graphs.refuse = true;
    RUN(1);
    ck_assert_int_eq(graphs.captures, SETS + 1);
    ck_assert_int_eq(graphs.instantiations, KNOWN + 1);
    model_check_state(&m, x);
#undef RUN
    f8_cuda_exec_destroy(x);
    c->cu = graphs.next;
    OK(f8_cuda_enter(c, diag));
    c->cu.cuMemFree_v2(there);
    f8_cuda_leave(c);
    bench_close(&b);
}
END_TEST

/* ---- launches, as the driver is asked for them ---- */

static struct {
    CUresult (*next)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void **, void **);
    unsigned grid[8];
    CUfunction function[8];
    const uint64_t *words[8];
    int n;
} seen;

static CUresult see(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                    CUstream s, void **params, void **extra)
{
    if (seen.n < 8) {
        seen.grid[seen.n] = grid_x;
        seen.function[seen.n] = f;
        seen.words[seen.n] = params[0];
    }
    seen.n++;
    return seen.next(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, s, params,
                     extra);
}

static void see_launches(bool on)
{
    f8_cuda_api *cu = &b.device.cuda->cu;
    if (on)
        seen.next = cu->cuLaunchKernel;
    seen.n = 0;
    cu->cuLaunchKernel = on ? see : seen.next;
}

static int64_t resident_blocks(CUfunction f, const f8_launch *l)
{
    int blocks = 0;
    OK(f8_cuda_enter(b.device.cuda, diag));
    ck_assert_int_eq(b.device.cuda->cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                         &blocks, f, (int)l->threads, l->shared),
                     CUDA_SUCCESS);
    f8_cuda_leave(b.device.cuda);
    return (int64_t)blocks * b.device.facts.multiprocessors;
}

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

/* The first kernel is given more tasks than blocks are resident on any device: those past its
 * elements have nothing to do. */
enum { MANY = 9, TASKS_OF_MANY = 1 << 14 };

START_TEST(every_size_of_grid)
{
    static const int64_t sizes[] = {0, -1, 1, MANY, (int64_t)1 << 40};
    bench_open(&b);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        bench_make_plan(&b);
        b.phase[0].n_tasks = b.step[0].ints[1] = TASKS_OF_MANY;
        for (int p = 0; p < 5; p++)
            b.phase[p].launch.max_blocks = sizes[k];
        f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){.blocking = true});
        OK(f8_cuda_exec_init(x, 11, NULL, diag));
        model_init(&m, &b, 11);
        see_launches(true);
        model_run(&m, x, 0);
        const int n = seen.n;
        see_launches(false);
        model_check_state(&m, x);
        ck_assert_int_eq(n, 5);
        for (int p = 0; p < n; p++) {
            const int64_t tasks = b.phase[p].n_tasks;
            const int64_t resident = resident_blocks(seen.function[p], &b.phase[p].launch);
            ck_assert_int_gt(p == 0 ? TASKS_OF_MANY : INT64_MAX, resident);
            ck_assert_int_eq(seen.grid[p], sizes[k] < 0 ? tasks
                                           : sizes[k] == 0
                                               ? least(tasks, resident)
                                               : least(tasks, least(resident, sizes[k])));
        }
        f8_cuda_exec_destroy(x);
    }
    bench_close(&b);
}
END_TEST

/* Blocks that hold what was there before: what follows a block of parameters is not zero by chance.
 */
static void *dirty_alloc(void *user, size_t size, size_t align)
{
    const f8_allocator *a = user;
    void *p = a->alloc(a->user, size, align);
    return p ? memset(p, 0xa5, size) : NULL;
}

static void dirty_free(void *user, void *ptr, size_t size)
{
    const f8_allocator *a = user;
    a->free(a->user, ptr, size);
}

/* A multi-tensor kernel declares room for as many instances as any launch of it may have, and the
 * driver copies all of it: what a launch leaves unused must be the block's own, all zeros. */
START_TEST(room_for_parameters)
{
    bench_open(&b);
    f8_cuda_exec *x;
    const f8_allocator dirty = {dirty_alloc, dirty_free, &b.allocator};
    const f8_cuda_exec_options o = {.blocking = true, .allocator = &dirty};
    OK(f8_cuda_exec_create(&b.plan, b.device.cuda, &o, &x, diag));
    OK(f8_cuda_exec_init(x, 4, NULL, diag));
    model_init(&m, &b, 4);
    see_launches(true);
    model_run(&m, x, 0);
    ck_assert_int_eq(seen.n, 5);
    for (int p = 0; p < 5; p++) {
        const f8_launch *l = &b.phase[p].launch;
        const uint32_t used = l->n_instances * (l->n_args + l->n_ints) + l->multi;
        for (uint32_t i = used; l->multi && i < F8_MULTI_WORDS; i++)
            ck_assert_msg(seen.words[p][i] == 0, "word %u of '%s', which uses %u, is %#llx", i,
                          l->symbol, used, (unsigned long long)seen.words[p][i]);
    }
    ck_assert(b.phase[2].launch.multi);
    see_launches(false);
    f8_cuda_exec_destroy(x);
    bench_close(&b);
}
END_TEST

/* ---- the embedder's memory, stream and context ---- */

typedef struct embedder {
    f8_cuda *cuda;
    int blocks, fail_at, calls;
    size_t bytes, shift;
} embedder;

static void *embedder_alloc(void *user, size_t bytes)
{
    embedder *e = user;
    CUdeviceptr p = 0;
    if (++e->calls == e->fail_at || e->cuda->cu.cuMemAlloc_v2(&p, bytes + e->shift) != CUDA_SUCCESS)
        return NULL;
    e->blocks++;
    e->bytes += bytes;
    return (void *)(uintptr_t)(p + e->shift);
}

static void embedder_free(void *user, void *ptr, size_t bytes)
{
    embedder *e = user;
    e->cuda->cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr - e->shift);
    e->blocks--;
    e->bytes -= bytes;
}

START_TEST(embedders_memory)
{
    bench_open(&b);
    embedder e = {.cuda = b.device.cuda};
    f8_cuda_exec_options o = {
        .device_alloc = embedder_alloc, .device_free = embedder_free, .device_user = &e};
    f8_cuda_exec *x = bench_create(&b, o);
    ck_assert_int_eq((int64_t)e.bytes, f8_cuda_exec_planned_bytes(x));
    OK(f8_cuda_exec_init(x, 9, NULL, diag));
    model_init(&m, &b, 9);
    model_run(&m, x, 0);
    model_run(&m, x, 1);
    model_check_state(&m, x);
    f8_cuda_exec_destroy(x);
    ck_assert(e.blocks == 0 && e.bytes == 0);

    const int allocations = e.calls;
    for (int k = 1; k <= allocations; k++) {
        e = (embedder){.cuda = b.device.cuda, .fail_at = k};
        f8_diag d = {0};
        ck_assert_int_eq(f8_cuda_exec_create(&b.plan, b.device.cuda, &o, &x, &d), F8_ERR_MEMORY);
        contains(d.text, "out of device memory: ");
        ck_assert(e.blocks == 0 && !x);
    }
    e = (embedder){.cuda = b.device.cuda, .shift = 64};
    f8_diag d = {0}, one = {0};
    ck_assert_int_eq(f8_cuda_exec_create(&b.plan, b.device.cuda, &o, &x, &d), F8_ERR_INPUT);
    contains(d.text, "is not 256-byte aligned");
    ck_assert(e.blocks == 0);
    o.device_free = NULL;
    ck_assert_int_eq(f8_cuda_exec_create(&b.plan, b.device.cuda, &o, &x, &one), F8_ERR_INPUT);
    bench_close(&b);
}
END_TEST

START_TEST(embedders_stream_and_context)
{
    bench_open(&b);
    f8_cuda *c = b.device.cuda;
    CUstream stream = NULL;
    CUcontext current = (CUcontext)&stream;
    OK(f8_cuda_enter(c, diag));
    ck_assert_int_eq(c->cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    f8_cuda_leave(c);
    f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){.stream = stream});
    OK(f8_cuda_exec_init(x, 2, NULL, diag));
    model_init(&m, &b, 2);
    model_input(&m, 0);
    memcpy(f8_cuda_exec_port(x, STEP, false, 0), m.x, BYTES);
    for (int k = 0; k < 3; k++) { /* enqueued one after the other, nobody waits */
        OK(f8_cuda_exec_run(x, STEP, diag));
        model_step(&m);
    }
    OK(f8_cuda_exec_wait(x, diag));
    ck_assert(!memcmp(f8_cuda_exec_port(x, STEP, true, 0), m.y, BYTES));
    model_check_state(&m, x);
    /* No call of ours left a context current. */
    ck_assert_int_eq(c->cu.cuCtxGetCurrent(&current), CUDA_SUCCESS);
    ck_assert(current == NULL);
    f8_cuda_exec_destroy(x);
    ck_assert_int_eq(c->cu.cuCtxGetCurrent(&current), CUDA_SUCCESS);
    ck_assert(current == NULL);
    OK(f8_cuda_enter(c, diag));
    c->cu.cuStreamDestroy_v2(stream);
    f8_cuda_leave(c);
    bench_close(&b);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_runtime");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, runs);
    tcase_add_test(t, written_variables);
    tcase_add_test(t, after_the_default_stream);
    tcase_add_test(t, rebinding);
    tcase_add_test(t, known_addresses);
    tcase_add_test(t, every_size_of_grid);
    tcase_add_test(t, room_for_parameters);
    tcase_add_test(t, embedders_memory);
    tcase_add_test(t, embedders_stream_and_context);
    suite_add_tcase(s, t);
    return s;
}
