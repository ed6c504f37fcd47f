/* `fp8c doctor` as a user meets it: on this machine, on the emulator's GPU, and where what it tests
 * is broken (a driver that flips a bit, launches that fail, libraries that end the process). Its
 * JSON has the fields that frontend/diagnose/doctor/README.md lists. check_doctor.c tests broken
 * installations. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/fp8c.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 240 };

static void setup(void)
{
    f8_cli_setup();
    f8_stub_setup();
    setenv("FP8C_CUDA_PATH", f8_stub_path("nothing"), 1); /* what a machine has is not the tests' */
    setenv("FP8C_CACHE_DIR", f8_stub_path("cache"), 1);
}

static void teardown(void)
{
    f8_stub_teardown();
    f8_cli_teardown();
}

static void use_emulator(void)
{
    unsetenv("FP8C_CUDA_PATH");
    f8_test_gpu_emulated();
}

static void says(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "'%s' is not in: %s", part, text);
}

/* The same less line ends and what stands before a line: texts are broken to fit a page. */
static void says_somewhere(const char *text, const char *part)
{
    char *flat = malloc(strlen(text) + 1), *to = flat;
    ck_assert_ptr_nonnull(flat);
    for (const char *s = text; *s; s++)
        if (*s == '\n') {
            s += strspn(s, "\n ") - 1;
            if (to > flat && to[-1] != ' ')
                *to++ = ' ';
        } else {
            *to++ = *s;
        }
    *to = '\0';
    says(flat, part);
    free(flat);
}

/* ---- records ---- */

/* Each event's fields, of the JSON type named by a letter: s text, n text or null, b truth, i
 * integer, f number. */
static const struct {
    const char *event, *fields;
} schema[] = {
    {"component",
     "s:name s:kind s:state n:version i:major n:path n:problem n:note s:enables s:places s:get"},
    {"fact", "s:group s:name s:value n:advice"},
    {"target", "s:name n:is b:asked b:compiles b:runs n:compile_missing n:run_missing"},
    {"self_test", "s:target s:result f:seconds n:detail"},
    {"summary", "s:asked b:works"},
};

static bool has_type(const json_t *v, char type)
{
    switch (type) {
    case 's': return json_is_string(v);
    case 'n': return json_is_string(v) || json_is_null(v);
    case 'b': return json_is_boolean(v);
    case 'i': return json_is_integer(v);
    case 'f': return json_is_real(v);
    default: return false;
    }
}

static void check_record(const json_t *r)
{
    const char *event = json_string_value(json_object_get(r, "event"));
    ck_assert_ptr_nonnull(event);
    for (size_t i = 0; i < sizeof schema / sizeof *schema; i++) {
        if (strcmp(event, schema[i].event) != 0)
            continue;
        size_t n = 1; /* event */
        char fields[256], *rest = NULL;
        snprintf(fields, sizeof fields, "%s", schema[i].fields);
        for (char *f = strtok_r(fields, " ", &rest); f; f = strtok_r(NULL, " ", &rest), n++)
            ck_assert_msg(has_type(json_object_get(r, f + 2), *f),
                          "%s: '%s' is missing or of another type", event, f + 2);
        ck_assert_msg(json_object_size(r) == n, "%s has %zu fields, not %zu", event,
                      json_object_size(r), n);
        return;
    }
    ck_abort_msg("no such event: %s", event);
}

/* All records of a text as an array, each checked. The caller lets go of it. */
static json_t *read_records(const char *text)
{
    json_t *all = json_array();
    while (*text) {
        json_error_t e;
        const size_t n = strcspn(text, "\n");
        json_t *r = json_loadb(text, n, 0, &e);
        ck_assert_msg(r != NULL, "%s: %.*s", e.text, (int)n, text);
        check_record(r);
        json_array_append_new(all, r);
        text += n + (text[n] == '\n');
    }
    return all;
}

/* The record whose `event` and `field` these are. */
static const json_t *record(const json_t *all, const char *event, const char *field,
                            const char *value)
{
    size_t i;
    const json_t *r;
    json_array_foreach (all, i, r) {
        const char *v = json_string_value(json_object_get(r, field));
        if (!strcmp(json_string_value(json_object_get(r, "event")), event) && v &&
            !strcmp(v, value))
            return r;
    }
    ck_abort_msg("no %s with %s %s", event, field, value);
}

static const char *text_of(const json_t *r, const char *field)
{
    const char *text = json_string_value(json_object_get(r, field));
    return text ? text : "(null)";
}

/* ---- here ---- */

START_TEST(this_machine)
{
    const char *file = f8_cli_temp("doctor.jsonl");
    f8_cli_result r = F8_CLI("doctor", "--target", "cpu,reference", "--json", file);
    f8_cli_ok(r);
    char version[64];
    snprintf(version, sizeof version, "fp8c %s\n", fp8c_version());
    says(r.out, version);
    says(r.out, "\ncpu,reference: works; `fp8c doctor -v` says more of this machine\n");
    ck_assert_msg(!strchr(r.out, '\033'), "colour, and no terminal");
    size_t n;
    char *text = f8_cli_read(file, &n);
    json_t *all = read_records(text);
    const char *const cpu[] = {"LLVM 19", "oneDNN 2"};
    for (int i = 0; i < 2; i++) {
        const json_t *c = record(all, "component", "name", cpu[i]);
        ck_assert_str_eq(text_of(c, "state"), "ok");
        ck_assert_int_eq(json_integer_value(json_object_get(c, "major")), i ? 2 : 19);
        ck_assert_msg(access(text_of(c, "path"), R_OK) == 0, "no file %s", text_of(c, "path"));
    }
    const char *const targets[] = {"cpu", "reference"};
    for (int i = 0; i < 2; i++) {
        const json_t *t = record(all, "target", "name", targets[i]);
        ck_assert(json_is_true(json_object_get(t, "asked")) &&
                  json_is_true(json_object_get(t, "runs")));
        const json_t *s = record(all, "self_test", "target", targets[i]);
        ck_assert_msg(!strcmp(text_of(s, "result"), "passed"), "%s: %s", targets[i],
                      text_of(s, "detail"));
    }
    ck_assert(
        json_is_true(json_object_get(record(all, "summary", "asked", "cpu,reference"), "works")));
    ck_assert_str_eq(text_of(record(all, "fact", "name", "FP8C_CUDA_PATH"), "value"),
                     f8_stub_path("nothing"));
    json_decref(all);
    free(text);
}
END_TEST

START_TEST(colours)
{
    static const char *const args[] = {"doctor", "--target", "reference", NULL};
    unsetenv("NO_COLOR");
    f8_cli_result r = f8_cli_run_to_terminal(args);
    ck_assert_int_eq(r.code, 0);
    says(r.out, "\033[32mself-test passed\033[0m");
    setenv("NO_COLOR", "1", 1);
    r = f8_cli_run_to_terminal(args);
    ck_assert_int_eq(r.code, 0);
    says(r.out, "self-test passed");
    ck_assert(!strchr(r.out, '\033'));
}
END_TEST

START_TEST(no_gpu)
{
    f8_cli_result r = F8_CLI("doctor", "--target", "sm_90a");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "");
    says(r.out, "sm_90a: does not work");
    says_somewhere(r.out, "can't compile: NVRTC: found nowhere (pip: nvidia-cuda-nvrtc");
    r = F8_CLI("doctor", "--target", "reference");
    ck_assert_ptr_null(strstr(r.out, "looked for: "));
    int lines = 0;
    for (const char *at = r.out; (at = strchr(at, '\n')); at++)
        lines++;
    ck_assert_int_le(lines, 32); /* a screen */
    const char *get = strstr(r.out, "Debian package nvidia-driver");
    ck_assert(get && !strstr(get + 1, "Debian package nvidia-driver"));
    r = F8_CLI("doctor", "-v", "--target", "sm_90a");
    says_somewhere(r.out, "looked for: libcuda.so.1 in ");
    says(r.out, "\nmemory\n");
}
END_TEST

START_TEST(wrong_usage)
{
    f8_cli_fails(F8_CLI("doctor", "model.f8"), 2, "model.f8");
    f8_cli_fails(F8_CLI("doctor", "--target", "cpu,sm_1"), 2,
                 "fp8c doctor: no target 'sm_1': there are cpu, reference, sm_89,");
    f8_cli_fails(F8_CLI("doctor", "--recipe", "bf16"), 2, "no such option '--recipe'");
    f8_cli_fails(F8_CLI("doctor", "--json", "/nonexistent/x"), 1, "/nonexistent/x: error: ");
}
END_TEST

START_TEST(records_alone)
{
    f8_cli_result r = F8_CLI("doctor", "--target", "reference", "--json", "-");
    f8_cli_ok(r);
    json_decref(read_records(r.out));
}
END_TEST

/* ---- a GPU: the emulator's ---- */

START_TEST(emulated_gpu)
{
    use_emulator();
    f8_cli_result r = F8_CLI("doctor", "--target", "cuda,sm_90a", "--json", "-");
    f8_cli_ok(r);
    json_t *all = read_records(r.out);
    const json_t *gpu = record(all, "component", "name", "GPU 0");
    ck_assert_str_eq(text_of(gpu, "version"), "Emulated sm_90, compute capability 9.0");
    ck_assert_str_eq(text_of(record(all, "target", "name", "cuda"), "is"), "sm_90a");
    ck_assert_str_eq(text_of(record(all, "self_test", "target", "cuda"), "result"), "passed");
    ck_assert_str_eq(text_of(record(all, "self_test", "target", "sm_90a"), "result"), "passed");
    json_decref(all);
}
END_TEST

static const struct {
    const char *sm, *driver, *devices, *says;
    int runs, tested; /* whether `cuda` does; whether its test is at least compiled */
} gpus[] = {
    {"75", "13000", "1", "compute capability 7.5 has no FP8: 8.9 (Ada) or later is needed", 0, 0},
    {"100", "13000", "1", "compute capability 10.0", 1, 1},
    {"100", "12080", "1", "the driver is too old: it serves CUDA 12.8, but the NVRTC found is 13.0",
     0, 1},
    {"100", "12040", "1", "the driver is too old for it: it serves CUDA 12.4, and 12.8 is needed",
     0, 1},
    {"90", "13000", "0", "the driver sees none (CUDA_VISIBLE_DEVICES hides those it does not list)",
     0, 0},
};

START_TEST(other_gpus)
{
    use_emulator();
    setenv("FP8C_EMULATOR_SM", gpus[_i].sm, 1);
    setenv("FP8C_EMULATOR_DRIVER", gpus[_i].driver, 1);
    setenv("FP8C_EMULATOR_DEVICES", gpus[_i].devices, 1);
    f8_cli_result r = F8_CLI("doctor", "--target", "cuda", "--json", "-");
    ck_assert_str_eq(r.err, "");
    ck_assert_int_eq(r.code, gpus[_i].runs ? 0 : 1);
    says(r.out, gpus[_i].says);
    json_t *all = read_records(r.out);
    const char *result = text_of(record(all, "self_test", "target", "cuda"), "result");
    ck_assert_str_eq(result, gpus[_i].runs ? "passed" : gpus[_i].tested ? "compiled" : "not run");
    json_decref(all);
}
END_TEST

START_TEST(launches_that_fail)
{
    use_emulator();
    setenv("FP8C_EMULATOR_FAIL", "cuLaunchKernel:1:719", 1);
    f8_cli_result r = F8_CLI("doctor", "--target", "cuda");
    ck_assert_int_eq(r.code, 1);
    says(r.out, "self-test FAILED");
    says(r.out, "CUDA_ERROR_LAUNCH_FAILED");
    ck_assert_msg(!strstr(r.out, "error: "), "%s", r.out); /* it stands under the target's line */
}
END_TEST

START_TEST(a_driver_that_fails)
{
    use_emulator();
    setenv("FP8C_EMULATOR_FAIL", "cuInit:1:803", 1);
    f8_cli_result r = F8_CLI("doctor", "--target", "reference"); /* the next call would not fail */
    f8_cli_ok(r);
    says(r.out, "  GPU                  does not load\n    cuInit: ");
    says(r.out, "803");
}
END_TEST

/* ---- a driver that is not right ---- */

static void make_driver(const char *text)
{
    use_emulator();
    f8_stub_over_emulator("driver", text);
}

#define REAL(name) "__typeof__(&" name ") real = dlsym(RTLD_NEXT, \"" name "\");\n"
static const char flipping[] =
    "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n#include <stdlib.h>\n"
    "int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *s)\n{\n" REAL(
        "cuMemcpyDtoHAsync_v2") "    const int r = real(to, from, bytes, s);\n"
                                "    if (!r && bytes == (size_t)atoll(getenv(\"FLIP_BYTES\")))\n"
                                "        ((unsigned char *)to)[bytes - 2] ^= 1;\n    return "
                                "r;\n}\n";

/* Which result a bit is flipped in, by its bytes; what the test then says. A layernorm's row and a
 * sum's column are the last, since the flip is at an array's end. */
static const struct {
    const char *bytes, *says;
} flips[] = {
    {"0", NULL},
    {"4", "the loss[0, 0] is "},
    {"128", "a row's sum[31, 0] is "},
    {"4096", "the second GEMM's result[31, 31] is "},
    {"8192", "the first GEMM's result[31, 63] is "},
};

START_TEST(one_flipped_bit)
{
    make_driver(flipping);
    setenv("FLIP_BYTES", flips[_i].bytes, 1);
    f8_cli_result r = F8_CLI("doctor", "--target", "cuda");
    if (!flips[_i].says) { /* the driver that flips nothing is right */
        f8_cli_ok(r);
        return;
    }
    ck_assert_int_eq(r.code, 1);
    says(r.out, "self-test FAILED");
    says(r.out, flips[_i].says);
    says(r.out, _i == 4 ? " in integers" : " on target reference");
}
END_TEST

/* ---- what NVML says ---- */

static const char bus[] =
    "#include <string.h>\nint cuDeviceGetPCIBusId(char *to, int n, int device)\n"
    "{\n    strcpy(to, \"0000:17:00.0\");\n    return 0;\n}\n";
static const char nvml[] =
    "#include <string.h>\n#include \"runtime/probe/nvml_api.h\"\n"
    "int nvmlSystemGetDriverVersion(char *to, unsigned n) { strcpy(to, \"580.65.06\"); return 0; "
    "}\n"
    "int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, f8_nvml_device *d)\n"
    "{ *d = 0; return strcmp(pci, \"0000:17:00.0\"); }\n"
    "int nvmlDeviceGetEccMode(f8_nvml_device d, int *now, int *next) { *now = 1; *next = 0; return "
    "0; }\n"
    "int nvmlDeviceGetPersistenceMode(f8_nvml_device d, int *mode) { *mode = 0; return 0; }\n"
    "int nvmlDeviceGetMigMode(f8_nvml_device d, unsigned *a, unsigned *b) { return 3; }\n"
    "int nvmlDeviceGetClockInfo(f8_nvml_device d, int w, unsigned *mhz) { *mhz = 1200 + w; return "
    "0; }\n"
    "int nvmlDeviceGetMaxClockInfo(f8_nvml_device d, int w, unsigned *mhz) { *mhz = 1980; return "
    "0; }\n"
    "int nvmlDeviceGetCurrentClocksThrottleReasons(f8_nvml_device d, unsigned long long *r)\n"
    "{ *r = 0x44; return 0; }\n"
    "int nvmlDeviceGetMemoryInfo(f8_nvml_device d, f8_nvml_memory *m)\n"
    "{ m->total = 8ull << 30; m->used = 3ull << 30; return 0; }\n"
    "int nvmlDeviceGetComputeRunningProcesses_v3(f8_nvml_device d, unsigned *n, f8_nvml_process "
    "*p)\n"
    "{\n    const unsigned room = *n;\n    *n = PROCESSES;\n"
    "    for (unsigned i = 0; i < *n && i < room; i++) {\n        p[i].pid = i + 1;\n"
    "        p[i].used = i ? ~0ull : 2ull << 30;\n    }\n"
    "    return room < *n ? F8_NVML_INSUFFICIENT_SIZE : 0;\n}\n";

/* Makes an NVML that reports n processes on the GPU. */
static void make_nvml(int n)
{
    char text[4096];
    snprintf(text, sizeof text, "enum { PROCESSES = %d };\n%s", n, nvml);
    f8_stub_library("driver", "libnvidia-ml.so.1", "F8_NVML_SYMBOLS", text);
}

START_TEST(state_of_a_gpu)
{
    static const struct {
        const char *name, *value, *advice;
    } facts[] = {
        {"ECC", "on", "it changes with the next reset"},
        {"persistence mode", "off", "nvidia-smi -pm 1"},
        {"clock", "1201 of 1980 MHz", NULL},
        {"clocks held down by", "the power limit; heat (by the hardware)", "times measured now"},
        {"memory in use", "3.0 of 8.0 GiB", NULL},
        {"other processes", "process 1: 2.0 GiB; process 2", "they take memory"},
    };
    make_driver(bus);
    make_nvml(2);
    f8_cli_result r = F8_CLI("doctor", "--target", "reference", "--json", "-");
    f8_cli_ok(r);
    json_t *all = read_records(r.out);
    ck_assert_str_eq(text_of(record(all, "component", "name", "NVML"), "version"), "580.65.06");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const json_t *f = record(all, "fact", "name", facts[i].name);
        ck_assert_str_eq(text_of(f, "group"), "GPU 0");
        ck_assert_str_eq(text_of(f, "value"), facts[i].value);
        if (facts[i].advice)
            says(text_of(f, "advice"), facts[i].advice);
    }
    json_decref(all);
}
END_TEST

/* doctor lists all processes. NVML is asked again if the first array was too small. */
START_TEST(processes_of_a_gpu)
{
    static const int numbers[] = {0, 64, 65, 300};
    make_driver(bus);
    make_nvml(numbers[_i]);
    f8_cli_result r = F8_CLI("doctor", "--target", "reference", "--json", "-");
    f8_cli_ok(r);
    json_t *all = read_records(r.out);
    const char *value = text_of(record(all, "fact", "name", "other processes"), "value");
    char last[40] = "none";
    if (numbers[_i])
        snprintf(last, sizeof last, "; process %d", numbers[_i]);
    ck_assert_str_eq(value + strlen(value) - strlen(last), last);
    json_decref(all);
}
END_TEST

/* doctor lists every GPU that the driver counts, here 100, though none of them can be opened. */
START_TEST(many_gpus)
{
    make_driver("int cuDeviceGetCount(int *n)\n{\n    *n = 100;\n    return 0;\n}\n");
    f8_cli_result r = F8_CLI("doctor", "--target", "reference", "--json", "-");
    f8_cli_ok(r);
    json_t *all = read_records(r.out);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "GPU %d", i);
        record(all, "component", "name", name);
    }
    record(all, "component", "name", "SQLite");
    json_decref(all);
}
END_TEST

/* ---- libraries that end the process ---- */

static const struct {
    const char *does, *says;
} endings[] = {
    {"raise(SIGKILL)", "error: signal 9 (Killed) ended the process while it looked at: NCCL\n"},
    {"_exit(0)", "error: the process ended with exit code 0 while it looked at: NCCL\n"},
};

START_TEST(a_library_that_ends_the_process)
{
    char text[256];
    snprintf(text, sizeof text,
             "#include <signal.h>\n#include <unistd.h>\n"
             "__attribute__((constructor)) static void end(void) { %s; }\n",
             endings[_i].does);
    f8_stub_compile("ends", "libnccl.so.2", text, "");
    setenv("FP8C_CUDA_PATH", f8_stub_path("ends"), 1);
    f8_cli_result r = F8_CLI("doctor", "--target", "reference");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, endings[_i].says);
}
END_TEST

/* ---- the CPU target's, through the loader's own path ---- */

START_TEST(cpu_libraries)
{
    static const char *const llvm[] = {"libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so"};
    char name[64];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "loader/%s", llvm[i]);
        f8_stub_file(name, "not a library");
    }
    f8_stub_compile("loader", "libdnnl.so.2",
                    "static const struct { int major, minor, patch; } v = {2, 4, 1};\n"
                    "const void *dnnl_version(void) { return &v; }\n",
                    "");
    f8_stub_compile("loader", "libsqlite3.so.0", "int nothing;\n", "");
    f8_stub_compile("loader", "libmpi.so.40",
                    "#include <string.h>\nint MPI_Get_library_version(char *to, int *n)\n"
                    "{ strcpy(to, \"Open MPI v5.0.3\\nbuilt by hand\"); *n = 15; return 0; }\n",
                    "");
    setenv("LD_LIBRARY_PATH", f8_stub_path("loader"), 1);
    f8_cli_result r = F8_CLI("doctor", "--target", "cpu", "--json", "-");
    unsetenv("LD_LIBRARY_PATH");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "");
    json_t *all = read_records(r.out);
    const json_t *c = record(all, "component", "name", "LLVM 19");
    ck_assert_str_eq(text_of(c, "state"), "does not load");
    says(text_of(c, "problem"), "libLLVM.so.19.1 does not load (");
    c = record(all, "component", "name", "oneDNN 2");
    ck_assert_str_eq(text_of(c, "state"), "wrong version");
    ck_assert_str_eq(text_of(c, "version"), "2.4.1");
    c = record(all, "component", "name", "SQLite");
    ck_assert_str_eq(text_of(c, "state"), "does not load");
    says(text_of(c, "problem"), "it has no sqlite3_libversion");
    c = record(all, "component", "name", "MPI");
    /* it says its version, but the shim for it can't be loaded; or there is none */
    const bool shim = strcmp(text_of(c, "state"), "missing") != 0;
    ck_assert_str_eq(text_of(c, "state"), shim ? "does not load" : "missing");
    says(text_of(c, "problem"), shim ? "fp8c_mpi_openmpi.so does not load ("
                                     : "loader/libmpi.so.40, but fp8c has no shim for it");
    says(text_of(record(all, "target", "name", "cpu"), "compile_missing"),
         "Debian package libllvm19");
    ck_assert_str_eq(text_of(record(all, "self_test", "target", "cpu"), "result"), "not run");
    json_decref(all);
}
END_TEST

/* A reader that went away is no component that ends the process. */
START_TEST(nobody_reads)
{
    static const char *const print[] = {"print", "frontend/models/gpt.f8", NULL},
                             *const text[] = {"doctor", "--target", "reference", NULL},
                             *const records[] = {"doctor", "--json", "-", NULL};
    static const char *const *const args[] = {print, text, records};
    for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
        const f8_cli_result r = f8_cli_run_unread(args[i]);
        ck_assert_int_eq(r.code, 128 + SIGPIPE);
        ck_assert_str_eq(r.err, "");
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("doctor_cli");
    TCase *t = tcase_create("doctor");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, this_machine);
    tcase_add_test(t, colours);
    tcase_add_test(t, no_gpu);
    tcase_add_test(t, wrong_usage);
    tcase_add_test(t, records_alone);
    tcase_add_test(t, emulated_gpu);
    tcase_add_loop_test(t, other_gpus, 0, sizeof gpus / sizeof *gpus);
    tcase_add_test(t, launches_that_fail);
    tcase_add_test(t, a_driver_that_fails);
    tcase_add_loop_test(t, one_flipped_bit, 0, sizeof flips / sizeof *flips);
    tcase_add_test(t, state_of_a_gpu);
    tcase_add_loop_test(t, processes_of_a_gpu, 0, 4);
    tcase_add_test(t, many_gpus);
    tcase_add_loop_test(t, a_library_that_ends_the_process, 0, sizeof endings / sizeof *endings);
    tcase_add_test(t, cpu_libraries);
    tcase_add_test(t, nobody_reads);
    suite_add_tcase(s, t);
    return s;
}
