/* Graphs of the emulator that several streams were captured into: what waits order is in order,
 * what they do not is late or early as FP8C_EMULATOR_GRAPH says, and a broken capture is refused.
 */
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static emu e;
static CUstream other;
static CUevent forked, ended;
static CUdeviceptr x, y;

static void setup(void)
{
    emu_open(&e);
    ck_assert_int_eq(e.cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
    ck_assert_int_eq(e.cu.cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING), 0);
    ck_assert_int_eq(e.cu.cuEventCreate(&ended, CU_EVENT_DISABLE_TIMING), 0);
    x = emu_alloc(&e, 4);
    y = emu_alloc(&e, 4);
}

static void teardown(void)
{
    emu_close(&e);
}

static void begin(void)
{
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
}

static void set(CUstream s, CUdeviceptr to, unsigned value)
{
    ck_assert_int_eq(e.cu.cuMemsetD32Async(to, value, 1, s), 0);
}

static void copy(CUstream s)
{
    ck_assert_int_eq(e.cu.cuMemcpyDtoDAsync_v2(y, x, 4, s), 0);
}

static void order(CUstream after, CUstream before, CUevent event)
{
    ck_assert_int_eq(e.cu.cuEventRecord(event, before), 0);
    ck_assert_int_eq(e.cu.cuStreamWaitEvent(after, event, 0), 0);
}

/* Ends the capture, launches it, and gives y. */
static unsigned launched(void)
{
    CUgraph graph;
    CUgraphExec exec;
    unsigned got;
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), 0);
    ck_assert_int_eq(e.cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    ck_assert_int_eq(e.cu.cuGraphLaunch(exec, e.stream), 0);
    emu_download(&e, &got, y, 4);
    ck_assert_int_eq(e.cu.cuGraphExecDestroy(exec), 0);
    ck_assert_int_eq(e.cu.cuGraphDestroy(graph), 0);
    return got;
}

/* x = 1; beside: y = x; x = 2. With the wait y is 1, without it what the order makes. */
static unsigned captured(bool waits)
{
    begin();
    set(e.stream, x, 1);
    order(other, e.stream, forked);
    copy(other);
    if (waits)
        order(e.stream, other, ended);
    set(e.stream, x, 2);
    order(e.stream, other, ended);
    return launched();
}

static const char *const orders[] = {"0", "1", "2"};

START_TEST(with_a_wait)
{
    for (int seed = 0; seed < 8; seed++) {
        const char text[2] = {(char)('0' + seed), 0};
        setenv("FP8C_EMULATOR_GRAPH", orders[_i], 1);
        setenv("FP8C_EMULATOR_SEED", text, 1);
        ck_assert_uint_eq(captured(true), 1);
    }
}
END_TEST

START_TEST(without_it)
{
    setenv("FP8C_EMULATOR_GRAPH", orders[_i], 1);
    ck_assert_uint_eq(captured(false), _i == 0 ? 2 : 1);
}
END_TEST

START_TEST(any_order)
{
    int seen[3] = {0};
    for (int seed = 1; seed < 33; seed++) {
        char text[12];
        snprintf(text, sizeof text, "%d", seed);
        setenv("FP8C_EMULATOR_SEED", text, 1);
        seen[captured(false)]++;
    }
    ck_assert(seen[1] && seen[2]);
}
END_TEST

/* The fork is missing: what reads early reads the value before. */
START_TEST(early)
{
    setenv("FP8C_EMULATOR_GRAPH", "1", 1);
    set(e.stream, x, 7);
    begin();
    order(other, e.stream, forked); /* before x = 1 */
    set(e.stream, x, 1);
    copy(other);
    order(e.stream, other, ended);
    ck_assert_uint_eq(launched(), 7);
}
END_TEST

START_TEST(broken)
{
    CUgraph graph;
    CUstream third;
    ck_assert_int_eq(e.cu.cuStreamCreate(&third, CU_STREAM_NON_BLOCKING), 0);
    begin();
    order(other, e.stream, forked);
    copy(other);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    copy(other); /* it captures no more */
    /* of a capture that is over */
    ck_assert_int_eq(e.cu.cuStreamWaitEvent(other, forked, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    /* recorded outside */
    ck_assert_int_eq(e.cu.cuEventRecord(ended, other), 0);
    begin();
    ck_assert_int_eq(e.cu.cuStreamWaitEvent(e.stream, ended, 0),
                     CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    /* of two captures */
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(third, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    ck_assert_int_eq(e.cu.cuEventRecord(forked, e.stream), 0);
    ck_assert_int_eq(e.cu.cuStreamWaitEvent(third, forked, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(third, &graph), 0);
    ck_assert_int_eq(e.cu.cuGraphDestroy(graph), 0);
    /* a call that a capture forbids, in the stream that joined */
    order(other, e.stream, forked);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(other), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

/* An update takes a graph with the same order alone. */
START_TEST(updates)
{
    CUgraph graph[2];
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    for (int i = 0; i < 2; i++) {
        begin();
        set(e.stream, x, 1);
        order(other, e.stream, forked);
        set(e.stream, x, 2);
        copy(other);
        order(e.stream, i ? e.stream : other, ended);
        order(e.stream, other, ended);
        ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph[i]), 0);
    }
    ck_assert_int_eq(e.cu.cuGraphInstantiateWithFlags(&exec, graph[0], 0), 0);
    ck_assert_int_eq(e.cu.cuGraphExecUpdate_v2(exec, graph[0], &info), 0);
    ck_assert_int_eq(e.cu.cuGraphExecUpdate_v2(exec, graph[1], &info),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("emulator graphs");
    TCase *t = tcase_create("emulator graphs");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, with_a_wait, 0, 3);
    tcase_add_loop_test(t, without_it, 0, 3);
    tcase_add_test(t, any_order);
    tcase_add_test(t, early);
    tcase_add_test(t, broken);
    tcase_add_test(t, updates);
    suite_add_tcase(s, t);
    return s;
}
