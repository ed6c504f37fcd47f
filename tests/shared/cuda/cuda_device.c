/* See cuda_device.h. */
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/gpu.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cuda_device_open(cuda_device *d)
{
    *d = (cuda_device){0};
    f8_test_gpu_emulated();
    const f8_cuda_paths paths = f8_cuda_paths_from_environment();
    f8_diag diag = {0};
    ck_assert_msg(f8_cuda_create(&paths, NULL, &d->cuda, &diag) == F8_OK, "%s", diag.text);
    ck_assert_msg(f8_cuda_device(d->cuda, 0, &diag) == F8_OK, "%s", diag.text);
    ck_assert_msg(f8_cuda_device_facts(d->cuda, &d->facts, &diag) == F8_OK, "%s", diag.text);
    d->target = f8_target_for_sm(d->facts.sm);
    ck_assert_msg(d->target != NULL, "no target for sm_%d", d->facts.sm);
    f8_cuda_library driver;
    ck_assert(f8_cuda_describe(d->cuda, 0, &driver) && driver.path);
    void *library = dlopen(driver.path, RTLD_NOW | RTLD_NOLOAD);
    void *count = library ? dlsym(library, "f8_emulator_count") : NULL;
    memcpy(&d->count, &count, sizeof count);
    if (library)
        dlclose(library);
}

void cuda_device_close(cuda_device *d)
{
    static const char *const kinds[] = {"allocation", "byte",  "pinned",     "module", "stream",
                                        "event",      "graph", "graph_exec"};
    cuda_device_fail(NULL, 0);
    const int64_t context = d->count ? d->count("context") : 0;
    f8_cuda_destroy(d->cuda);
    for (size_t i = 0; d->count && i < sizeof kinds / sizeof *kinds; i++)
        ck_assert_msg(d->count(kinds[i]) == 0, "%lld of kind %s are left",
                      (long long)d->count(kinds[i]), kinds[i]);
    ck_assert(!d->count || d->count("context") <= context);
}

void cuda_device_fail(const char *function, int n)
{
    char spec[128];
    if (!function) {
        unsetenv("FP8C_EMULATOR_FAIL");
        return;
    }
    snprintf(spec, sizeof spec, "%s:%d", function, n);
    setenv("FP8C_EMULATOR_FAIL", spec, 1);
}

/* ---- a counting allocator ---- */

static void *count_alloc(void *user, size_t size, size_t align)
{
    counting *c = user;
    const f8_allocator a = f8_default_allocator();
    if (++c->calls == c->fail)
        return NULL;
    void *p = a.alloc(a.user, size, align);
    c->blocks += p != NULL;
    c->bytes += p ? (int64_t)size : 0;
    return p;
}

static void count_free(void *user, void *ptr, size_t size)
{
    counting *c = user;
    const f8_allocator a = f8_default_allocator();
    c->blocks -= ptr != NULL;
    c->bytes -= ptr ? (int64_t)size : 0;
    a.free(a.user, ptr, size);
}

f8_allocator counting_allocator(counting *c)
{
    return (f8_allocator){count_alloc, count_free, c};
}
