/* Failures on a device: impossible plans, no memory, kernels that fault, calls that fail. On a GPU
 * (FP8C_TEST_GPU) or on the emulator; only the emulator's calls fail on request. */
#include "runtime/cuda/internal.h"
#include "tests/shared/cuda/cuda_bench.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bench b; /* a process is one test */

/* ---- what can't be ---- */

static void refuses(f8_status status, const char *part, const char *more)
{
    f8_diag d = {0};
    f8_cuda_exec *x = (f8_cuda_exec *)&d;
    const f8_cuda_exec_options o = {.allocator = &b.allocator};
    const f8_status got = f8_cuda_exec_create(&b.plan, b.device.cuda, &o, &x, &d);
    ck_assert_msg(got == status && !x, "status %d: %s", got, d.text);
    contains(d.text, part);
    contains(d.text, more);
}

START_TEST(refusals)
{
    bench_open(&b);
    char wanted[80];
    b.plan.target = b.device.facts.sm == 89 ? "sm_120a" : "sm_89";
    snprintf(wanted, sizeof wanted, "has compute capability %d.%d", b.device.facts.sm / 10,
             b.device.facts.sm % 10);
    refuses(F8_ERR_UNSUPPORTED,
            b.device.facts.sm == 89 ? "the plan is for sm_120a" : "the plan is for sm_89", wanted);
    bench_make_plan(&b);
    b.step[1].copy.from[0] = 999;
    refuses(F8_ERR_INTERNAL, "step 'move' of step", "not contiguous");
    bench_make_plan(&b);
    b.phase[1].launch.n_args = 5;
    refuses(F8_ERR_INTERNAL, "step 'total' of step", "more arguments than it has");
    bench_make_plan(&b);
    b.phase[1].launch.image = 1;
    refuses(F8_ERR_INTERNAL, "step 'total' of step", "launch is broken");
    bench_make_plan(&b);
    b.phase[1].launch.symbol = "absent";
    refuses(F8_ERR_LIBRARY, "cuModuleGetFunction of 'total' in step: CUDA_ERROR_NOT_FOUND", "(");
    bench_make_plan(&b);
    b.phase[3].launch.shared = 1 << 24;
    refuses(F8_ERR_UNSUPPORTED, "kernel 'turn' of 'turn' wants 16777216 bytes of shared memory",
            "the device has");
    bench_make_plan(&b);
    static uint8_t rubbish[64] = "not an image";
    b.image = (f8_image){rubbish, sizeof rubbish};
    refuses(F8_ERR_LIBRARY, "cuModuleLoadData of image 0 (64 bytes): CUDA_ERROR_", "(");
    bench_close(&b);
}
END_TEST

/* The plan's kernels do not wait for the one ahead, though it says so: the emulator finds that out.
 * A driver without such launches is refused before anything is loaded. */
START_TEST(dependent_launches)
{
    bench_open(&b);
    f8_cuda *cuda = b.device.cuda;
    b.plan.dependent_launch = true;
    const int driver = cuda->facts.driver;
    cuda->facts.driver = 12020;
    refuses(F8_ERR_UNSUPPORTED,
            "dependent_launch: the driver serves CUDA 12.2, whose graphs have no",
            "CUDA 12.3 has it. Without the option the results are the same");
    cuda->facts.driver = driver;
    const f8_cuda_more_api more = cuda->more;
    cuda->more.cuLaunchKernelEx = NULL;
    refuses(F8_ERR_UNSUPPORTED, "dependent_launch: the driver serves CUDA ", "Without the option");
    cuda->more = more;
    if (b.device.count) {
        f8_diag d = {0};
        f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){0});
        OK(f8_cuda_exec_init(x, 1, NULL, diag));
        ck_assert_int_eq(f8_cuda_exec_run(x, STEP, &d), F8_ERR_LIBRARY);
        contains(d.text, "CUDA_ERROR_LAUNCH_FAILED");
        f8_cuda_exec_destroy(x);
    }
    bench_close(&b);
}
END_TEST

START_TEST(out_of_memory)
{
    bench_open(&b);
    b.func[STEP].arena_bytes = (int64_t)1 << 46;
    refuses(F8_ERR_MEMORY,
            "out of device memory: 70368744177664 bytes were wanted for the arena (703687442",
            "the biggest variables are u f32[16, 1024] (65536), w f32[1000] (4000), v f32[7] (28)");
    char total[64] =
        " of the device's "; /* what a GPU's driver counts as all differs by the call */
    if (b.device.count)
        snprintf(total, sizeof total, " of the device's %lld are free",
                 (long long)b.device.facts.memory);
    refuses(F8_ERR_MEMORY, "out of device memory", total);
    bench_close(&b);
}
END_TEST

/* A fault on the device: found at the next wait, and for ever after. On a GPU the whole process's
 * context is lost then, so each is a process of its own. */
static void fault(bool blocking, const char *where)
{
    bench_open(&b);
    f8_cuda_exec *x = bench_create(&b, (f8_cuda_exec_options){.blocking = blocking});
    OK(f8_cuda_exec_init(x, 5, NULL, diag));
    f8_diag d = {0};
    ck_assert_int_eq(f8_cuda_exec_run(x, FAULT, &d), F8_ERR_LIBRARY);
    contains(d.text, where);
    contains(d.text, "CUDA_ERROR_ILLEGAL_ADDRESS (");
    static float w[N];
    for (int k = 0; k < 4; k++) {
        f8_diag again = {0};
        const f8_status status = k == 0   ? f8_cuda_exec_run(x, STEP, &again)
                                 : k == 1 ? f8_cuda_exec_read(x, W, w, &again)
                                 : k == 2 ? f8_cuda_exec_wait(x, &again)
                                          : f8_cuda_exec_bind(x, STEP, false, 0, w, &again);
        ck_assert_int_eq(status, F8_ERR_LIBRARY);
        contains(again.text, "failed on the device before");
        contains(again.text, d.text);
    }
    f8_cuda_exec_destroy(x);
    bench_close(&b);
}

START_TEST(fault_in_a_graph)
{
    fault(false, "cuStreamSynchronize after faulty: ");
}
END_TEST

START_TEST(fault_step_by_step)
{
    fault(true, "cuStreamSynchronize after 'bad store' in faulty: ");
}
END_TEST

/* ---- emulator only: every call fails once ---- */

/* The whole life of an executor; what failed first is in d. */
static f8_status life(f8_cuda *cuda, const f8_cuda_exec_options *o, f8_diag *d)
{
    static float w[N], host[N];
    f8_cuda_exec *x = NULL;
    f8_status s = f8_cuda_exec_create(&b.plan, cuda, o, &x, d);
    if (s == F8_OK)
        s = f8_cuda_exec_init(x, 1, NULL, d);
    for (int k = 0; k < 2 && s == F8_OK; k++)
        s = f8_cuda_exec_run(x, STEP, d);
    if (s == F8_OK)
        s = f8_cuda_exec_bind(x, STEP, true, 0, host, d);
    if (s == F8_OK)
        s = f8_cuda_exec_run(x, STEP, d);
    if (s == F8_OK)
        s = f8_cuda_exec_wait(x, d);
    if (s == F8_OK)
        s = f8_cuda_exec_read(x, W, w, d);
    f8_cuda_exec_destroy(x);
    return s;
}

/* Call, and what the message says of where. */
static const struct {
    const char *call, *text, *where;
    bool profile;
} failing[] = {
    {"cuCtxPushCurrent_v2", "cuCtxPushCurrent", "", false},
    {"cuStreamCreate", "cuStreamCreate", "the executor", false},
    {"cuModuleLoadData", "cuModuleLoadData", "image 0", false},
    {"cuModuleGetFunction", "cuModuleGetFunction", "'double' in step", false},
    {"cuFuncGetAttribute", "cuFuncGetAttribute", "'double' in step", false},
    {"cuFuncSetAttribute", "cuFuncSetAttribute", "'turn' in step", false},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
     "'double' in step", false},
    {"cuMemAlloc_v2", "out of device memory", "variables", false}, /* which is how it fails there */
    {"cuMemAllocHost_v2", "cuMemAllocHost", "inputs and outputs", false},
    {"cuMemsetD8Async", "cuMemsetD8Async", "inputs and outputs", false},
    {"cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", "constants", false},
    {"cuStreamSynchronize", "cuStreamSynchronize", "constants", false},
    {"cuStreamBeginCapture_v2", "cuStreamBeginCapture", "step", false},
    {"cuLaunchKernel", "cuLaunchKernel of '", "'double' (kernel twice) in step", false},
    {"cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync of 'move'", "in step", false},
    {"cuStreamEndCapture", "cuStreamEndCapture", "step", false},
    {"cuGraphInstantiateWithFlags", "cuGraphInstantiate", "step", false},
    {"cuGraphLaunch", "cuGraphLaunch", "step", false},
    {"cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync", "'y' in step", false},
    {"cuEventCreate", "cuEventCreate", "step", true},
    {"cuEventRecord", "cuEventRecord", "step", true},
    {"cuEventElapsedTime", "cuEventElapsedTime", "step", true},
};

START_TEST(every_call_can_fail)
{
    bench_open(&b);
    if (!b.device.count) {
        test_skip("failing calls of the driver", "a GPU does not fail on request");
        bench_close(&b);
        return;
    }
    const f8_cuda_exec_options o = {.allocator = &b.allocator, .profile = failing[_i].profile};
    for (int n = 1; n <= 6; n++) {
        const int64_t allocations = b.device.count("allocation"),
                      context = b.device.count("context");
        f8_diag d = {0};
        cuda_device_fail(failing[_i].call, n);
        const f8_status status = life(b.device.cuda, &o, &d);
        cuda_device_fail(NULL, 0);
        ck_assert_msg(n > 1 || status != F8_OK, "%s did not fail", failing[_i].call);
        if (status != F8_OK)
            contains(d.text, failing[_i].text);
        if (n == 1)
            contains(d.text, failing[_i].where);
        ck_assert_int_eq(b.device.count("allocation"), allocations);
        ck_assert_int_eq(b.device.count("context"), context);
        ck_assert_int_eq(b.device.count("pinned") + b.device.count("module") +
                             b.device.count("stream") + b.device.count("event") +
                             b.device.count("graph") + b.device.count("graph_exec"),
                         0);
        ck_assert_int_eq(b.host.blocks, 0);
    }
    f8_diag d = {0}; /* and without a failure all is well again */
    ck_assert_msg(life(b.device.cuda, &o, &d) == F8_OK, "%s", d.text);
    bench_close(&b);
}
END_TEST

/* Host memory runs out at any allocation. */
START_TEST(host_memory_can_fail)
{
    bench_open(&b);
    const f8_cuda_exec_options o = {.allocator = &b.allocator};
    for (int n = 1;; n++) {
        f8_diag d = {0};
        b.host.calls = 0;
        b.host.fail = n;
        const f8_status status = life(b.device.cuda, &o, &d);
        ck_assert_int_eq(b.host.blocks, 0);
        if (b.host.calls < n) {
            ck_assert_int_eq(status, F8_OK);
            ck_assert(n > 3);
            break;
        }
        ck_assert_msg(status == F8_ERR_MEMORY, "allocation %d: status %d: %s", n, status, d.text);
    }
    bench_close(&b);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_faults");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, refusals);
    tcase_add_test(t, dependent_launches);
    tcase_add_test(t, out_of_memory);
    tcase_add_test(t, fault_in_a_graph);
    tcase_add_test(t, fault_step_by_step);
    tcase_add_loop_test(t, every_call_can_fail, 0, sizeof failing / sizeof *failing);
    tcase_add_test(t, host_memory_can_fail);
    suite_add_tcase(s, t);
    return s;
}
