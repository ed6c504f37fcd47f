/* What a process says of its machine, against the kernel's own words; of a GPU by the stand-in of
 * NVML. Nothing here asserts how fast a machine is. */
#include <math.h>
#include <sched.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frontend/limits.h"
#include "frontend/measure/machine.h"
#include "runtime/base/cpu.h"
#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

static fp8c_context *ctx;
static fp8c_module *module;
static fp8c_program *program;
static f8_arena arena;

static void begin(const char *target, int threads)
{
    const fp8c_compile_options o = {.struct_size = sizeof o, .target = target, .threads = threads};
    ctx = new_context();
    module = parse(ctx, model);
    program = compile(ctx, module, &o);
    f8_arena_init(&arena, NULL);
}

static void end(void)
{
    f8_arena_end(&arena);
    fp8c_program_destroy(program);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
}

/* The first line of a file that begins with `key`, from what stands behind it and `between` on. */
static bool line_of(const char *path, const char *key, const char *between, char out[512])
{
    FILE *f = fopen(path, "r");
    bool found = false;
    char line[4096];
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *at = line + strlen(key);
        at += strspn(at, between);
        snprintf(out, 512, "%.*s", (int)strcspn(at, "\n"), at);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

static void contains(const char *text, const char *part)
{
    ck_assert_msg(text && strstr(text, part), "'%s' is not in: %s", part, text ? text : "(NULL)");
}

static f8_measure_about describe(const char *gemms, const char *peers)
{
    f8_measure_about about;
    f8_diag diag = {0};
    ck_assert_msg(f8_measure_describe(program, "0123abc", "fp8c tune --gemm 8x8x8:f32", "normal",
                                      gemms, peers, &arena, &about, &diag) == F8_OK,
                  "%s", diag.text);
    return about;
}

static f8_measure_limits limits(void)
{
    f8_measure_limits l;
    f8_diag diag = {0};
    ck_assert_msg(f8_measure_find_limits(program, &l, &diag) == F8_OK, "%s", diag.text);
    return l;
}

/* ---- the CPU ---- */

START_TEST(a_cpu)
{
    char text[512];
    struct utsname u;
    ck_assert_int_eq(uname(&u), 0);
    begin("cpu", 1);
    const f8_measure_about a = describe("oneDNN 9.9.9 (test)", "OpenBLAS 8.8.8");
    ck_assert_str_eq(a.version, fp8c_version());
    ck_assert_str_eq(a.commit, "0123abc");
    ck_assert_str_eq(a.command, "fp8c tune --gemm 8x8x8:f32");
    ck_assert_str_eq(a.inputs, "normal");
    ck_assert_str_eq(a.program, "fp8c");
    ck_assert_str_eq(a.target, "cpu");
    ck_assert_str_eq(a.driver, "");
    ck_assert_int_eq(a.threads, 1);
    ck_assert(line_of("/proc/cpuinfo", "model name", " \t:", text));
    contains(a.device, ", 1 threads");
    contains(a.device, text);
    ck_assert_str_eq(a.processor, text);
    ck_assert_msg(!strncmp(a.libraries, "oneDNN 9.9.9 (test); LLVM 19.", 29) &&
                      strstr(a.libraries, "; OpenBLAS 8.8.8"),
                  "%s", a.libraries);
    const char *governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    ck_assert_str_eq(a.governor, line_of(governor, "", "", text) ? text : "");
    contains(a.system, u.sysname);
    contains(a.system, u.release);
    contains(a.system, u.machine);
    if (line_of("/etc/os-release", "PRETTY_NAME=", "\"", text)) {
        text[strcspn(text, "\"")] = 0;
        contains(a.system, text);
    }
    end();
}
END_TEST

/* As many threads as the process may use, where none were asked for; no peers. */
START_TEST(all_cpus)
{
    cpu_set_t set;
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    begin("cpu", 0);
    const f8_measure_about a = describe("G", "");
    ck_assert_int_eq(a.threads, CPU_COUNT(&set));
    ck_assert_msg(!strncmp(a.libraries, "G; LLVM 19.", 11), "%s", a.libraries);
    ck_assert_ptr_null(strstr(a.libraries + 3, ";"));
    end();
}
END_TEST

START_TEST(limits_of_a_cpu)
{
    const f8_cpu_features here = f8_cpu_detect();
    f8_cpu_features amx = {0}, avx512 = {0};
    char lacks[64];
    begin("cpu", 1);
    const f8_measure_limits l = limits();
    ck_assert(isfinite(l.bytes) && l.bytes > 0);
    ck_assert(isfinite(l.flops_f32) && l.flops_f32 > 0); /* every CPU target has AVX2 and FMA */
    ck_assert(f8_cpu_add(&amx, "amx-bf16") && f8_cpu_add(&avx512, "avx512bf16"));
    ck_assert_int_eq(isfinite(l.flops_bf16) && l.flops_bf16 > 0,
                     f8_cpu_suffices(&here, &amx, lacks, sizeof lacks) ||
                         f8_cpu_suffices(&here, &avx512, lacks, sizeof lacks));
    ck_assert(l.flops_fp8 == 0);
    f8_measure_clocks clocks = {1, 1, 1, 1};
    f8_measure_find_clocks(program, &clocks);
    ck_assert(clocks.sm_mhz == 0 && clocks.memory_mhz == 0 && clocks.watts == 0 &&
              clocks.celsius == 0);
    end();
}
END_TEST

/* The unit of a step is that of the algorithm which the executor took, and its limit is known. */
START_TEST(units_of_a_cpu)
{
    int gemms = 0;
    fp8c_step s;
    begin("cpu", 1);
    const int step = fp8c_program_function(program, "micro_step");
    for (int i = 0; fp8c_program_step(program, step, i, &s) == FP8C_OK; i++) {
        const uint32_t algorithm = f8_limits_algorithm(program, step, i);
        if (strcmp(s.kind, "gemm") != 0) {
            ck_assert_uint_eq(algorithm, F8_GEMM_AUTO);
            continue;
        }
        const char *unit = f8_measure_unit(program, algorithm, F8_E4M3, F8_E4M3);
        ck_assert_str_eq(unit, !strcmp(s.algorithm, "onednn-f32")    ? "f32"
                               : !strcmp(s.algorithm, "onednn-bf16") ? "bf16"
                                                                     : "");
        gemms++;
    }
    ck_assert_int_gt(gemms, 3);
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_ONEDNN_F32, F8_BF16, F8_BF16), "f32");
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_ONEDNN_BF16, F8_BF16, F8_BF16), "bf16");
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_F64, F8_F32, F8_F32), "");
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_AUTO, F8_F32, F8_F32), "");
    end();
}
END_TEST

/* The interpreter has no unit. */
START_TEST(the_reference)
{
    begin("reference", 1);
    const f8_measure_limits l = limits();
    ck_assert(l.bytes == 0 && l.flops_f32 == 0 && l.flops_bf16 == 0 && l.flops_fp8 == 0);
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_ONEDNN_F32, F8_F32, F8_F32), "");
    const f8_measure_about a = describe("", "");
    ck_assert_str_eq(a.target, "reference");
    ck_assert_str_eq(a.device, "reference");
    ck_assert_str_eq(a.libraries, "");
    ck_assert_int_eq(a.threads, 0);
    end();
}
END_TEST

/* An arena without memory. */
START_TEST(no_memory)
{
    f8_measure_about about;
    f8_diag diag = {0};
    f8_arena small;
    counting c = {.fail_at = -1};
    const f8_allocator a = {count_alloc, count_free, &c};
    begin("cpu", 1);
    f8_arena_init(&small, &a);
    ck_assert_int_eq(
        f8_measure_describe(program, "c", "x", "normal", "G", "P", &small, &about, &diag),
        F8_ERR_MEMORY);
    f8_arena_end(&small);
    f8_measure_process p;
    f8_arena_init(&small, &a);
    ck_assert_int_eq(f8_measure_begin(&small, &p, &diag), F8_ERR_MEMORY);
    f8_arena_end(&small);
    end();
}
END_TEST

/* ---- a process ---- */

START_TEST(a_process)
{
    f8_measure_process p;
    f8_diag diag = {0};
    struct tm t;
    int milliseconds, pid, n = 0;
    cpu_set_t set;
    f8_arena_init(&arena, NULL);
    const time_t before = time(NULL);
    ck_assert_int_eq(f8_measure_begin(&arena, &p, &diag), F8_OK);
    const time_t after = time(NULL);
    memset(&t, 0, sizeof t);
    const char *rest = strptime(p.date, "%Y-%m-%dT%H:%M:%SZ", &t);
    ck_assert_msg(rest && !*rest, "%s", p.date);
    const time_t said = timegm(&t);
    ck_assert(said >= before && said <= after);
    memset(&t, 0, sizeof t);
    rest = strptime(p.id, "%Y%m%dT%H%M%S", &t);
    ck_assert_msg(rest && timegm(&t) == said, "%s", p.id);
    ck_assert_msg(sscanf(rest, ".%3dZ-%d%n", &milliseconds, &pid, &n) == 2 && !rest[n] &&
                      rest[4] == 'Z',
                  "%s", p.id);
    ck_assert_int_eq(pid, (int)getpid());
    ck_assert(isnan(p.load) || p.load >= 0);
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    ck_assert_int_eq(p.cpus, CPU_COUNT(&set));
    ck_assert(p.before.bytes == 0 && p.after.bytes == 0 && p.begin.watts == 0);
    f8_arena_end(&arena);
}
END_TEST

/* A process that is held to one CPU has one. */
START_TEST(one_cpu)
{
    const pid_t child = fork();
    int status;
    if (child == 0) {
        f8_measure_process p;
        cpu_set_t set, one;
        int cpu = 0;
        if (sched_getaffinity(0, sizeof set, &set))
            _exit(2);
        while (!CPU_ISSET(cpu, &set))
            cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        f8_arena_init(&arena, NULL);
        _exit(sched_setaffinity(0, sizeof one, &one) ||
              f8_measure_begin(&arena, &p, NULL) != F8_OK || p.cpus != 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- a GPU: the emulator's ---- */

/* What NVML says from now on; NULL: it can't be asked. */
static void says(const char *lines)
{
    if (!lines) {
        unsetenv("FP8C_EMULATOR_NVML");
        return;
    }
    f8_stub_file("nvml", lines);
    setenv("FP8C_EMULATOR_NVML", f8_stub_path("nvml"), 1);
}

static void clocks_are(double sm, double memory, double watts, double celsius)
{
    f8_measure_clocks c = {1, 1, 1, 1};
    f8_measure_find_clocks(program, &c);
    ck_assert_msg(c.sm_mhz == sm && c.memory_mhz == memory && c.watts == watts &&
                      c.celsius == celsius,
                  "%g MHz, %g MHz, %g W, %g C", c.sm_mhz, c.memory_mhz, c.watts, c.celsius);
}

START_TEST(clocks_of_a_gpu)
{
    f8_test_gpu_emulated();
    says("temperature 45\nclock 1700\nmemory_clock 2619\npower 312500\n");
    begin("cuda", 1);
    clocks_are(1700, 2619, 312.5, 45);
    says("temperature 61\nclock 1980\n"); /* a board that tells no more */
    clocks_are(1980, 0, 0, 61);
    says("lost 1\nclock 1980\n");
    clocks_are(0, 0, 0, 0);
    end();
}
END_TEST

START_TEST(no_nvml)
{
    f8_test_gpu_emulated();
    says(NULL);
    begin("cuda", 1);
    clocks_are(0, 0, 0, 0);
    ck_assert_str_eq(describe("", "").driver, "CUDA 13.0");
    end();
}
END_TEST

START_TEST(a_gpu)
{
    f8_cuda_facts facts;
    f8_test_gpu_emulated();
    says("clock 1700\n");
    begin("cuda", 1);
    const f8_measure_about a = describe("cuBLASLt 13.1.0", "");
    ck_assert_int_eq(f8_cuda_device_facts(program->cuda, &facts, NULL), F8_OK);
    ck_assert_str_eq(a.processor, facts.name);
    ck_assert_str_eq(a.target, program->target->name);
    contains(a.device, facts.name);
    ck_assert_str_eq(a.driver, "580.65.06, CUDA 13.0");
    ck_assert_msg(!strncmp(a.libraries, "cuBLASLt 13.1.0; NVRTC 13.", 26), "%s", a.libraries);
    ck_assert_int_eq(a.threads, 0);
    const f8_measure_limits l = limits();
    const f8_rates *r = &program->target->rates;
    ck_assert(l.bytes == r->memory * 1e12 && l.flops_bf16 == r->bf16 * 1e12 &&
              l.flops_fp8 == r->fp8 * 1e12 && l.flops_f32 == 0);
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_CUBLASLT, F8_E5M2, F8_E4M3), "fp8");
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_CUBLASLT, F8_BF16, F8_BF16), "bf16");
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_CUBLASLT, F8_F32, F8_F32), "f32");
    ck_assert_str_eq(f8_measure_unit(program, F8_GEMM_CUBLASLT, F8_F32, F8_BF16), "");
    end();
}
END_TEST

#define CPU_FILE(root, cpu) root "/sys/devices/system/cpu/cpu" cpu "/cache/"

/* Two caches of level 3, each of two CPUs, of which one is off; a machine without level 3; one that
 * says nothing; and this one, where the kernel says it. */
START_TEST(caches)
{
    char text[512];
    f8_stub_file("four/sys/devices/system/cpu/possible", "0,1-3\n");
    f8_stub_file(CPU_FILE("four", "0") "index3/shared_cpu_list", "0,2\n");
    f8_stub_file(CPU_FILE("four", "0") "index3/size", "32768K\n");
    f8_stub_file(CPU_FILE("four", "0") "index2/shared_cpu_list", "0\n");
    f8_stub_file(CPU_FILE("four", "0") "index2/size", "1024K\n");
    f8_stub_file(CPU_FILE("four", "2") "index3/shared_cpu_list", "0,2\n");
    f8_stub_file(CPU_FILE("four", "2") "index3/size", "32768K\n");
    f8_stub_file(CPU_FILE("four", "3") "index3/shared_cpu_list", "3\n");
    f8_stub_file(CPU_FILE("four", "3") "index3/size", "48M\n");
    ck_assert_double_eq(f8_measure_cache_bytes(f8_stub_path("four")), 80 << 20);
    f8_stub_file("one/sys/devices/system/cpu/possible", "0\n");
    f8_stub_file(CPU_FILE("one", "0") "index2/shared_cpu_list", "0\n");
    f8_stub_file(CPU_FILE("one", "0") "index2/size", "512K\n");
    ck_assert_double_eq(f8_measure_cache_bytes(f8_stub_path("one")), 512 << 10);
    ck_assert_double_eq(f8_measure_cache_bytes(f8_stub_path("none")), 0);
    if (line_of("/sys/devices/system/cpu/cpu0/cache/index3/size", "", "", text))
        ck_assert_double_ge(f8_measure_cache_bytes(""), 1024 * strtod(text, NULL));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("machine");
    TCase *cpu = tcase_create("cpu"), *gpu = tcase_create("gpu");
    tcase_set_timeout(cpu, TIMEOUT);
    if (f8_test_has_cpu("what a CPU says of itself")) {
        tcase_add_test(cpu, a_cpu);
        tcase_add_test(cpu, all_cpus);
        tcase_add_test(cpu, limits_of_a_cpu);
        tcase_add_test(cpu, units_of_a_cpu);
        tcase_add_test(cpu, no_memory);
    }
    tcase_add_test(cpu, the_reference);
    tcase_add_test(cpu, a_process);
    tcase_add_test(cpu, one_cpu);
    suite_add_tcase(s, cpu);
    tcase_set_timeout(gpu, TIMEOUT);
    tcase_add_checked_fixture(gpu, f8_stub_setup, f8_stub_teardown);
    tcase_add_test(gpu, caches);
    tcase_add_test(gpu, clocks_of_a_gpu);
    tcase_add_test(gpu, no_nvml);
    tcase_add_test(gpu, a_gpu);
    suite_add_tcase(s, gpu);
    return s;
}
