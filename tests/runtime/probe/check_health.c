/* The health of devices: the kernel's log and its counters, from files that the test makes up; a
 * GPU's, by the stand-in of NVML, while it changes; a library that is old, one that is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "runtime/probe/health.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 60 };

/* ---- the kernel's log ---- */

START_TEST(xids)
{
    static const struct {
        const char *line, *address;
        int number; /* -1: no XID */
    } lines[] = {
        {"NVRM: Xid (PCI:0000:cb:00): 79, pid=1234, GPU has fallen off the bus.", "0000:cb:00", 79},
        {"[  12.5] NVRM: Xid (PCI:0000:05:00.0): 13, Graphics Exception", "0000:05:00.0", 13},
        {"4,1180,97531,-;NVRM: Xid (PCI:0000:17:00): 48, pid='<unknown>'", "0000:17:00", 48},
        {"NVRM: Xid (0000:03:00): 8, Channel 00000001", "0000:03:00", 8},
        {"NVRM: Xid (PCI:0000:cb:00): 31", "0000:cb:00", 31},
        {"NVRM: Xid (PCI:0000:cb:00): , nothing", NULL, -1},
        {"NVRM: Xid (PCI:0000:cb:00): 12345678, too many", NULL, -1},
        {"NVRM: Xid (PCI:0000:cb:00: 79, no end", NULL, -1},
        {"NVRM: Xid (PCI:a very long address indeed): 79, x", NULL, -1},
        {"NVRM: Xid (PCI:): 79, x", NULL, -1},
        {"NVRM: Xid (PCI:0000:cb:00): 7x", NULL, -1},
        {"NVRM: loading NVIDIA UNIX x86_64 Kernel Module", NULL, -1},
        {"", NULL, -1},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        f8_xid x = {.number = -1};
        ck_assert_msg(f8_xid_parse(lines[i].line, &x) == (lines[i].number >= 0), "%s",
                      lines[i].line);
        ck_assert_int_eq(x.number, lines[i].number);
        if (lines[i].address)
            ck_assert_str_eq(x.address, lines[i].address);
    }
}
END_TEST

START_TEST(logs)
{
    int last;
    f8_stub_file("log/var/log/kern.log",
                 "Nov 1 host kernel: NVRM: Xid (PCI:0000:CB:00): 13, pid=1\nsomething else\n"
                 "Nov 2 host kernel: NVRM: Xid (PCI:0000:cc:00): 48, pid=1\n"
                 "Nov 3 host kernel: NVRM: Xid (PCI:0000:cb:00): 79, pid=1\n");
    f8_stub_file("kmsg/dev/kmsg", "6,1,2,-;NVRM: Xid (PCI:0000:cb:00): 94, pid=1\n");
    ck_assert_int_eq(f8_xid_count(f8_stub_path("log"), "0000:cb:00.0", &last), 2);
    ck_assert_int_eq(last, 79);
    ck_assert_int_eq(f8_xid_count(f8_stub_path("log"), "0000:c0:00.0", &last), 0);
    ck_assert_int_eq(f8_xid_count(f8_stub_path("kmsg"), "0000:cb:00.0", &last), 1);
    ck_assert_int_eq(last, 94);
    ck_assert_int_eq(f8_xid_count(f8_stub_path("none"), "0000:cb:00.0", &last), -1);
}
END_TEST

/* ---- the CPU ---- */

START_TEST(counters_of_the_cpu)
{
    f8_health h;
    f8_stub_file("cpu/proc/interrupts",
                 "           CPU0       CPU1\n  0:         41          0  timer\n"
                 "MCE:          1          2   Machine check exceptions\n"
                 "MCP:        305        305   Machine check polls\n");
    f8_stub_file("cpu/sys/devices/system/edac/mc/mc0/ce_count", "4\n");
    f8_stub_file("cpu/sys/devices/system/edac/mc/mc1/ce_count", "3\n");
    f8_stub_file("cpu/sys/devices/system/edac/mc/mc0/ue_count", "0\n");
    f8_stub_file("cpu/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "5\n");
    f8_stub_file("cpu/sys/devices/system/cpu/cpu12/thermal_throttle/package_throttle_count", "6\n");
    f8_health_cpu(f8_stub_path("cpu"), &h);
    ck_assert_int_eq(h.value[F8_HEALTH_machine_checks], 3);
    ck_assert_int_eq(h.value[F8_HEALTH_memory_corrected], 7);
    ck_assert_int_eq(h.value[F8_HEALTH_memory_uncorrected], 0);
    ck_assert_int_eq(h.value[F8_HEALTH_throttled], 11);
    ck_assert_int_eq(h.value[F8_HEALTH_temperature], -1);
    f8_health_cpu(f8_stub_path("none"), &h);
    for (int i = 0; i < F8_HEALTH_N; i++)
        ck_assert_int_eq(h.value[i], -1);
}
END_TEST

START_TEST(words_for_clocks)
{
    char text[120];
    ck_assert_str_eq(f8_health_held_down(0, text, sizeof text), "nothing");
    ck_assert_str_eq(f8_health_held_down(0x24, text, sizeof text),
                     "the power limit; heat (by the driver)");
}
END_TEST

/* ---- a GPU, through fp8c.h ---- */

static fp8c_context *ctx;
static fp8c_health *health;

static const char well[] = "temperature 45\nclock 1700\nmax_clock 1980\nreasons 0x1\n"
                           "ecc_corrected 2\necc_uncorrected 0\nremapped 0 0 0 0\nnvlink 5\n";

/* What NVML says from now on: `well`, but for the lines that come first. */
static void says(const char *lines)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s", lines, well);
    f8_stub_file("new", text);
    char from[256];
    snprintf(from, sizeof from, "%s", f8_stub_path("new"));
    ck_assert_int_eq(rename(from, f8_stub_path("nvml")), 0); /* never half of it */
    setenv("FP8C_EMULATOR_NVML", f8_stub_path("nvml"), 1);
}

static void begin(double seconds)
{
    const fp8c_health_options options = {
        .struct_size = sizeof options, .gpu = 1, .seconds = seconds};
    f8_test_gpu_emulated();
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    ck_assert_msg(fp8c_health_create(ctx, &options, &health) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
}

static fp8c_health_info info(void)
{
    fp8c_health_info i = {.struct_size = sizeof i};
    fp8c_health_report(health, 0, &i);
    return i;
}

static fp8c_health_value value(const char *name)
{
    fp8c_health_value v = {.struct_size = sizeof v};
    for (int i = 0; fp8c_health_value_at(health, i, &v) == FP8C_OK; i++)
        if (!strcmp(v.name, name))
            return v;
    ck_abort_msg("there is no value %s", name);
}

static fp8c_health_event event(int index)
{
    fp8c_health_event e = {.struct_size = sizeof e};
    ck_assert_msg(fp8c_health_event_at(health, index, &e) == FP8C_OK, "no event %d", index);
    return e;
}

static void end(void)
{
    fp8c_health_destroy(health);
    fp8c_context_destroy(ctx);
}

/* Waits for the thread: the test's own time limit ends a wait for nothing. */
static void wait_for_events(int n)
{
    static const struct timespec pause = {.tv_nsec = 5000000};
    while (info().events < n)
        nanosleep(&pause, NULL);
}

START_TEST(a_healthy_gpu)
{
    says("");
    begin(-1);
    fp8c_health_report(health, 1, NULL);
    ck_assert_str_eq(info().source, "NVML, driver 580.65.06");
    ck_assert_str_eq(info().address, "0000:10:00.0");
    ck_assert(info().events == 0 && info().faults == 0 && info().known >= 12);
    ck_assert_int_eq(value("temperature").now, 45);
    ck_assert_int_eq(value("clock").now, 1700);
    ck_assert_int_eq(value("clock_limit").now, 1980);
    ck_assert_int_eq(value("ecc_corrected").now, 2);
    ck_assert_int_eq(value("nvlink_errors").now, 5);
    ck_assert_int_eq(value("held_down").now, 0); /* idle is no cause */
    ck_assert(value("xids").now == 0 && value("lost").now == 0);
    ck_assert_int_eq(value("machine_checks").now, -1);
    end();
}
END_TEST

START_TEST(what_grows_is_an_event)
{
    says("");
    begin(-1);
    says("temperature 88\nclock 900\nreasons 0x20\necc_uncorrected 1\nremapped 0 1 1 0\n");
    fp8c_health_report(health, 1, NULL);
    says("");
    fp8c_health_report(health, 1, NULL);
    ck_assert_int_eq(info().events, 4);
    ck_assert_int_eq(info().faults, 3);
    ck_assert_str_eq(event(0).name, "ecc_uncorrected");
    ck_assert_str_eq(event(0).text, "memory errors that ECC could not correct: 1, 1 more");
    ck_assert(event(0).fault && event(0).number == 1);
    ck_assert_str_eq(event(1).name, "remapped_uncorrected");
    ck_assert_str_eq(event(2).name, "remap_pending");
    ck_assert_str_eq(event(3).text, "clocks are held down by heat (by the driver)");
    ck_assert(!event(3).fault);
    ck_assert(value("temperature").now == 45 && value("temperature_most").now == 88);
    ck_assert(value("clock").now == 1700 && value("clock_least").now == 900);
    end();
}
END_TEST

/* XIDs come by the thread, without a look. */
START_TEST(an_xid)
{
    says("");
    begin(1000);
    says("xid 79 4242\n");
    wait_for_events(2);
    ck_assert_str_eq(event(0).text, "XID 79: the GPU has fallen off the bus");
    ck_assert_str_eq(event(1).text, "XID 4242");
    ck_assert(event(0).fault && event(0).number == 79);
    ck_assert_int_eq(value("xids").now, 2);
    ck_assert_int_eq(info().faults, 2);
    end();
}
END_TEST

START_TEST(a_lost_gpu)
{
    says("");
    begin(0.01);
    says("lost 1\n");
    wait_for_events(1);
    fp8c_health_report(health, 1, NULL);
    ck_assert_str_eq(event(0).text, "the GPU is lost");
    ck_assert_int_eq(info().events, 1);             /* said once */
    ck_assert_int_eq(value("temperature").now, 45); /* what was known last */
    end();
}
END_TEST

/* NVML of years ago has the functions of the first table, and none of the second but one. */
START_TEST(an_old_library)
{
    static const char *const others[] = {"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"};
    f8_test_gpu_emulated();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(f8_stub_shell("mkdir -p '%s' && ln -s '%s/%s' '%s'", f8_stub_path("old"),
                                       getenv("FP8C_CUDA_PATH"), others[i], f8_stub_path("old")),
                         0);
    f8_stub_library("old", "libnvidia-ml.so.1", "F8_NVML_SYMBOLS",
                    "int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **d)\n"
                    "{ *d = 0; return pci[0] != '0'; }\n");
    setenv("FP8C_CUDA_PATH", f8_stub_path("old"), 1);
    begin(0.01);
    fp8c_health_report(health, 1, NULL);
    ck_assert(info().events == 0 && info().known >= 1);
    ck_assert_int_eq(value("lost").now, 0);
    ck_assert_int_eq(value("xids").now, -1);
    ck_assert_int_eq(value("temperature").now, -1);
    end();
}
END_TEST

/* The emulator's NVML has no driver without its file; an empty folder has no library. */
START_TEST(no_nvml)
{
    if (_i)
        setenv("FP8C_CUDA_PATH", f8_stub_path("nothing"), 1);
    begin(0);
    fp8c_health_report(health, 1, NULL);
    ck_assert_int_eq(info().known, 0);
    ck_assert_msg(strstr(info().source, _i ? "libcuda.so.1" : "Driver Not Loaded") != NULL, "%s",
                  info().source);
    end();
}
END_TEST

START_TEST(the_cpu)
{
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_health_create(ctx, NULL, &health), FP8C_OK);
    fp8c_health_report(health, 1, NULL);
    ck_assert_str_eq(info().source, "the kernel");
    ck_assert_int_eq(value("temperature").now, -1);
    fp8c_health_value v = {.struct_size = sizeof v};
    fp8c_health_event e = {.struct_size = sizeof e};
    ck_assert_int_eq(fp8c_health_value_at(health, -1, &v), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_health_event_at(health, info().events, &e), FP8C_ERR_INPUT);
    end();
}
END_TEST

/* Looks and reads from several threads at once, beside the health's own. */
START_TEST(many_readers)
{
    says("");
    begin(0.001);
    says("ecc_corrected 7\n");
    wait_for_events(1);
    for (int i = 0; i < 50; i++) {
        fp8c_health_report(health, 1, NULL);
        ck_assert_int_ge(value("ecc_corrected").now, 2);
    }
    ck_assert_int_eq(info().events, 1);
    end();
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("health");
    TCase *t = tcase_create("health"), *threads = tcase_create("threads");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_stub_setup, f8_stub_teardown);
    tcase_add_test(t, xids);
    tcase_add_test(t, logs);
    tcase_add_test(t, counters_of_the_cpu);
    tcase_add_test(t, words_for_clocks);
    tcase_add_test(t, a_healthy_gpu);
    tcase_add_test(t, what_grows_is_an_event);
    tcase_add_test(t, a_lost_gpu);
    tcase_add_test(t, an_old_library);
    tcase_add_loop_test(t, no_nvml, 0, 2);
    tcase_add_test(t, the_cpu);
    suite_add_tcase(s, t);
    tcase_set_timeout(threads, TIMEOUT);
    tcase_add_checked_fixture(threads, f8_stub_setup, f8_stub_teardown);
    tcase_add_test(threads, an_xid);
    tcase_add_test(threads, many_readers);
    suite_add_tcase(s, threads);
    return s;
}
