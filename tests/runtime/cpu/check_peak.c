/* What a CPU can do at most: which units are measured is compared with what the kernel says of the
 * CPU. How fast they are depends on the machine, and on what else it does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/peak.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

/* Whether the line "flags" of /proc/cpuinfo has this word. */
static bool flag(const char *word)
{
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    ck_assert_msg(f != NULL, "there is no /proc/cpuinfo");
    while (getline(&line, &room, f) > 0) {
        if (strncmp(line, "flags", 5) != 0)
            continue;
        for (char *save, *at = strtok_r(line, " \t\n", &save); at;
             at = strtok_r(NULL, " \n", &save))
            found |= !strcmp(at, word);
        break;
    }
    free(line);
    fclose(f);
    return found;
}

static void known(const char *what, double rate, bool expected)
{
    ck_assert_msg(isfinite(rate) && (rate > 0) == expected, "%s: %g a second", what, rate);
}

START_TEST(units)
{
    f8_cpu_peak p;
    f8_diag diag = {0};
    ck_assert_msg(f8_cpu_peak_measure(_i, NULL, &p, &diag) == F8_OK, "%s", diag.text);
    const bool amx = flag("amx_tile") && flag("amx_bf16"), avx512 = flag("avx512_bf16");
    known("a copy", p.bytes, true);
    known("f32", p.flops, flag("avx512f") || (flag("avx2") && flag("fma")));
    known("bf16", p.flops_bf16, amx || avx512);
    if (amx) /* the system may refuse it */
        ck_assert(!strcmp(p.bf16_unit, "AMX") || !strcmp(p.bf16_unit, "AVX512_BF16"));
    else
        ck_assert_str_eq(p.bf16_unit, avx512 ? "AVX512_BF16" : "");
}
END_TEST

/* An allocator that has only small pieces. */
static void *small(void *user, size_t size, size_t align)
{
    (void)user;
    return size > 1 << 20 ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}

static void give_back(void *user, void *ptr, size_t size)
{
    (void)user, (void)size;
    free(ptr);
}

START_TEST(no_memory)
{
    f8_cpu_peak p;
    f8_diag diag = {0};
    const f8_allocator a = {small, give_back, NULL};
    ck_assert_int_eq(f8_cpu_peak_measure(1, &a, &p, &diag), F8_ERR_MEMORY);
    ck_assert_msg(strstr(diag.text, "no memory to copy") != NULL, "%s", diag.text);
    ck_assert(p.bytes == 0 && p.flops == 0 && p.flops_bf16 == 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("peak");
    TCase *t = tcase_create("peak");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, units, 0, 3); /* as many threads; 0: all CPUs */
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}
