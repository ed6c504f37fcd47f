/* The facts that doctor reports: limits of CPUs and memory, from files that the test makes up; the
 * kernel cache and the tuning database, usable and not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "frontend/fp8c_tune.h"
#include "runtime/probe/component.h"
#include "runtime/tune/tuning.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

static fp8c_context *ctx;
static fp8c_doctor *doctor;

static void contains(const char *text, const char *part)
{
    ck_assert_msg(text && strstr(text, part), "'%s' is not in: %s", part,
                  text ? text : "(nothing)");
}

/* ---- facts, from made-up /proc and /sys ---- */

static const f8_fact *fact(const f8_facts *facts, const char *group, const char *name)
{
    for (size_t i = 0; i < facts->n; i++)
        if (!strcmp(facts->item[i].group, group) && !strcmp(facts->item[i].name, name))
            return &facts->item[i];
    return NULL;
}

static void says(const f8_facts *facts, const char *group, const char *name, const char *value,
                 const char *advice)
{
    const f8_fact *f = fact(facts, group, name);
    ck_assert_msg(f != NULL, "there is no fact %s, %s", group, name);
    ck_assert_str_eq(f->value, value);
    if (advice)
        contains(f->advice, advice);
    else
        ck_assert_msg(!f->advice, "%s", f->advice);
}

static void read_machine(const char *root, f8_facts *facts, f8_arena *arena)
{
    f8_arena_init(arena, NULL);
    *facts = (f8_facts){.arena = arena};
    f8_facts_machine(facts, f8_stub_path(root));
    ck_assert_int_eq(arena->failed, 0);
}

START_TEST(limits_of_a_cgroup)
{
    f8_facts facts;
    f8_arena arena;
    f8_stub_file("v2/proc/self/cgroup", "0::/user.slice/job\n");
    f8_stub_file("v2/sys/fs/cgroup/user.slice/job/cpu.max", "50000 100000\n");
    f8_stub_file("v2/sys/fs/cgroup/user.slice/job/memory.max", "2147483648\n");
    f8_stub_file("v2/proc/driver/nvidia/version",
                 "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\n");
    f8_stub_file("v2/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
    f8_stub_file("v2/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    read_machine("v2", &facts, &arena);
    says(&facts, "CPU", "cgroup limit", "0.50 CPUs", "--threads 1");
    says(&facts, "driver", "kernel module", "NVIDIA UNIX x86_64 Kernel Module  580.65.06", NULL);
    says(&facts, "memory", "in all", "16.0 GiB", NULL);
    says(&facts, "memory", "available", "8.0 GiB", NULL);
    says(&facts, "memory", "cgroup limit", "2.0 GiB", "killed");
    says(&facts, "memory", "huge pages", "never", "madvise");
    ck_assert_ptr_nonnull(fact(&facts, "CPU", "level"));
    f8_arena_end(&arena);
    /* Version 1, in a container; no limit of memory. */
    f8_stub_file("v1/proc/self/cgroup", "4:cpu,cpuacct:/docker/1\n");
    f8_stub_file("v1/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000000\n");
    f8_stub_file("v1/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    f8_stub_file("v1/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    f8_stub_file("v1/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    read_machine("v1", &facts, &arena);
    says(&facts, "CPU", "cgroup limit", "1000.00 CPUs", NULL);
    ck_assert_ptr_null(fact(&facts, "memory", "cgroup limit"));
    says(&facts, "memory", "huge pages", "always", NULL);
    f8_arena_end(&arena);
    /* None, and files that say nothing sensible. */
    f8_stub_file("odd/proc/self/cgroup", "0::/\n");
    f8_stub_file("odd/sys/fs/cgroup/cpu.max", "max 100000\n");
    f8_stub_file("odd/sys/fs/cgroup/memory.max", "max\n");
    f8_stub_file("odd/proc/meminfo", "MemTotal: many\n");
    f8_stub_file("odd/sys/kernel/mm/transparent_hugepage/enabled", "\n");
    read_machine("odd", &facts, &arena);
    ck_assert_ptr_null(fact(&facts, "CPU", "cgroup limit"));
    ck_assert_ptr_null(fact(&facts, "memory", "cgroup limit"));
    ck_assert_ptr_null(fact(&facts, "memory", "in all"));
    f8_arena_end(&arena);
}
END_TEST

/* With quotes and without; what can't be read is no fact. */
START_TEST(the_system)
{
    f8_facts facts;
    f8_arena arena;
    struct utsname u;
    char kernel[256];
    ck_assert_int_eq(uname(&u), 0);
    f8_stub_file("a/proc/sys/kernel/ostype", "Linux\n");
    f8_stub_file("a/proc/sys/kernel/osrelease", "6.1.0-28-amd64\n");
    f8_stub_file("a/etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n");
    f8_stub_file("a/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    read_machine("a", &facts, &arena);
    snprintf(kernel, sizeof kernel, "Linux 6.1.0-28-amd64 %s", u.machine);
    says(&facts, "system", "kernel", kernel, NULL);
    says(&facts, "system", "distribution", "Debian GNU/Linux 12", NULL);
    says(&facts, "CPU", "governor", "performance", NULL);
    ck_assert_str_eq(f8_fact_value(&facts, "CPU", "governor"), "performance");
    ck_assert_str_eq(f8_fact_value(&facts, "CPU", "distribution"), "");
    f8_arena_end(&arena);
    f8_stub_file("b/etc/os-release", "PRETTY_NAME=Alpine\n");
    read_machine("b", &facts, &arena);
    says(&facts, "system", "distribution", "Alpine", NULL);
    ck_assert_ptr_null(fact(&facts, "system", "kernel"));
    ck_assert_ptr_null(fact(&facts, "CPU", "governor"));
    f8_arena_end(&arena);
}
END_TEST

/* ---- no limit ---- */

/* A machine may have many GPUs. What is known of them is listed in full, and a component stays
 * where it is when others are added. */
START_TEST(many_components_and_facts)
{
    enum { MANY = 2000 };
    static f8_component *at[MANY];
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_components all = {.arena = &arena};
    f8_facts facts = {.arena = &arena};
    for (int i = 0; i < MANY; i++) {
        const char *name = f8_arena_printf(&arena, "GPU %d", i);
        at[i] = f8_component_add(&all, "cuda", name, "", "");
        f8_fact_add(&facts, name, "memory", "80 GiB", NULL);
        f8_fact_add(&facts, name, "clock", NULL, NULL); /* not known */
    }
    ck_assert_uint_eq(all.n, MANY);
    ck_assert_uint_eq(facts.n, MANY);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "GPU %d", i);
        ck_assert_ptr_eq(f8_component_find(&all, name), at[i]);
        ck_assert_ptr_eq(all.item[i], at[i]);
        ck_assert_str_eq(at[i]->name, name);
        ck_assert_str_eq(facts.item[i].group, name);
    }
    f8_arena_end(&arena);
}
END_TEST

static void *nothing(void *user, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    return NULL;
}

/* Without memory what is added is lost, and the arena says so. */
START_TEST(components_and_facts_without_memory)
{
    f8_arena arena;
    f8_arena_init(&arena, &(f8_allocator){nothing, NULL, NULL});
    f8_components all = {.arena = &arena};
    f8_facts facts = {.arena = &arena};
    ck_assert_ptr_nonnull(f8_component_add(&all, "cuda", "GPU 0", "", ""));
    f8_fact_add(&facts, "GPU 0", "memory", "80 GiB", NULL);
    ck_assert(all.n == 0 && facts.n == 0 && arena.failed);
    ck_assert_ptr_null(f8_component_find(&all, "GPU 0"));
    f8_arena_end(&arena);
}
END_TEST

/* ---- facts of the API's own ---- */

static bool find_fact(const char *group, const char *name, fp8c_fact *f)
{
    for (int i = 0; fp8c_doctor_fact(doctor, i, f) == FP8C_OK; i++)
        if (!strcmp(f->group, group) && !strcmp(f->name, name))
            return true;
    return false;
}

static bool has_fact(const char *group, const char *name)
{
    fp8c_fact f;
    return find_fact(group, name, &f);
}

static fp8c_fact api_fact(const char *group, const char *name)
{
    fp8c_fact f;
    ck_assert_msg(find_fact(group, name, &f), "there is no fact %s, %s", group, name);
    return f;
}

START_TEST(cache_and_tuning)
{
    char folder[256], database[256];
    snprintf(folder, sizeof folder, "%s", f8_stub_path("cache"));
    snprintf(database, sizeof database, "%s", f8_stub_path("tuning.db"));
    const fp8c_context_options options = {.struct_size = sizeof options,
                                          .gpu_library_path = f8_stub_path("no"),
                                          .cache_dir = folder,
                                          .tuning = database};
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged) { /* a file where the folder should be, and a database that is none */
            snprintf(folder, sizeof folder, "%s", f8_stub_path("tuning.db"));
            f8_stub_file(
                "tuning.db",
                "whatever, but no database: long enough to have a header, too long to be one");
        }
        ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
        ck_assert_int_eq(fp8c_doctor_create(ctx, NULL, &doctor), FP8C_OK);
        if (damaged) {
            contains(api_fact("cache", "kernels").value, "none: ");
            contains(api_fact("cache", "kernels").advice, "FP8C_CACHE_DIR");
            contains(api_fact("cache", "tuning").advice, "it is not used: ");
            ck_assert(!has_fact("cache", "tuned"));
        } else {
            ck_assert_str_eq(api_fact("cache", "kernels").value, folder);
            ck_assert_str_eq(api_fact("cache", "in it").value, "0 kernels, 0.0 MiB");
            contains(api_fact("cache", "tuning").value, "nothing was tuned yet");
            contains(api_fact("cache", "tuned").value, " threads: nothing");
            contains(api_fact("cache", "tuned").advice, "`fp8c tune FILE.f8` times the ways");
        }
        fp8c_doctor_destroy(doctor);
        fp8c_context_destroy(ctx);
    }
}
END_TEST

static char device[256]; /* that the doctor named last */

/* What the doctor says is tuned in the options' database. */
static void tuned_is(const fp8c_context_options *options, const char *end, bool advised)
{
    ck_assert_int_eq(fp8c_context_create(options, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_doctor_create(ctx, NULL, &doctor), FP8C_OK);
    const fp8c_fact f = api_fact("cache", "tuned");
    const size_t n = strlen(f.value), m = strlen(end);
    ck_assert_msg(n > m && !strcmp(f.value + n - m, end), "'%s' does not end with '%s'", f.value,
                  end);
    ck_assert_msg(!strncmp(f.value, "cpu ", 4), "%s", f.value);
    ck_assert_int_eq(f.advice != NULL, advised);
    snprintf(device, sizeof device, "%.*s", (int)strcspn(f.value, ":"), f.value);
    fp8c_doctor_destroy(doctor);
    fp8c_context_destroy(ctx);
}

/* A choice made on that device with these versions. */
static void add_row(const char *path, const char *on, const char *versions)
{
    f8_tuning *t;
    f8_diag diag = {0};
    const f8_allocator allocator = f8_default_allocator();
    ck_assert_msg(f8_tuning_open(path, &allocator, &t, &diag) == F8_OK, "%s", diag.text);
    const f8_tuning_key key = {on, versions};
    const f8_tuning_choice choice = {"model", 1, 1};
    ck_assert_int_eq(f8_tuning_put(t, &key, "gemm", "gemm", NULL, 0, &choice, &diag), F8_OK);
    f8_tuning_close(t);
}

/* Nothing; one GEMM; a row of other libraries; nothing for another number of threads. */
START_TEST(tuned_on_this_device)
{
    char database[256];
    snprintf(database, sizeof database, "%s", f8_stub_path("tuned.db"));
    fp8c_context_options options = {.struct_size = sizeof options,
                                    .threads = 1,
                                    .cache_dir = "",
                                    .gpu_library_path = f8_stub_path("no"),
                                    .tuning = database};
    tuned_is(&options, ", 1 threads: nothing", true);
    const fp8c_tune_options tune = {.struct_size = sizeof tune, .runs = 1, .gemm = "16x16x16:f32"};
    fp8c_tuning *t;
    ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
    if (fp8c_tune(ctx, NULL, &tune, &t) == FP8C_ERR_LIBRARY) {
        test_skip("what is tuned here", "%s", fp8c_context_message(ctx));
        fp8c_context_destroy(ctx);
        return;
    }
    fp8c_tuning_destroy(t);
    fp8c_context_destroy(ctx);
    tuned_is(&options, ", 1 threads: 1 problem", false);
    char other[256];
    snprintf(other, sizeof other, "%s", f8_stub_path("other.db"));
    options.tuning = other;
    add_row(other, device, "oneDNN 1.0");
    tuned_is(&options, ", 1 threads: nothing with these libraries, with others 1 problem", true);
    options.threads = 2;
    tuned_is(&options, ", 2 threads: nothing", true);
    options.tuning = ""; /* turned off */
    ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_doctor_create(ctx, NULL, &doctor), FP8C_OK);
    ck_assert(!has_fact("cache", "tuned"));
    fp8c_doctor_destroy(doctor);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A doctor keeps its context alive. */
START_TEST(after_its_context)
{
    const fp8c_context_options options = {
        .struct_size = sizeof options, .gpu_library_path = f8_stub_path("no"), .cache_dir = ""};
    ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_doctor_create(ctx, NULL, &doctor), FP8C_OK);
    fp8c_context_destroy(ctx);
    fp8c_target_report t;
    for (int i = 0; fp8c_doctor_target(doctor, i, &t) == FP8C_OK; i++) {
        fp8c_self_test s;
        ck_assert_int_eq(fp8c_doctor_test(doctor, i, &s), FP8C_OK);
        const fp8c_test_result expected = !t.can_compile ? FP8C_TEST_NOT_RUN
                                          : t.can_run    ? FP8C_TEST_PASSED
                                                         : FP8C_TEST_COMPILED;
        ck_assert_msg(s.result == expected, "%s: %s", t.name, s.detail ? s.detail : "");
    }
    fp8c_doctor_destroy(doctor);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("doctor_facts");
    TCase *t = tcase_create("facts");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_stub_setup, f8_stub_teardown);
    tcase_add_test(t, limits_of_a_cgroup);
    tcase_add_test(t, the_system);
    tcase_add_test(t, many_components_and_facts);
    tcase_add_test(t, components_and_facts_without_memory);
    tcase_add_test(t, cache_and_tuning);
    tcase_add_test(t, tuned_on_this_device);
    tcase_add_test(t, after_its_context);
    suite_add_tcase(s, t);
    return s;
}
