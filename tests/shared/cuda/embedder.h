/* The driver as an embedder has it: memory, streams and copies of its own, beside the library's. */
#ifndef TEST_EMBEDDER_H
#define TEST_EMBEDDER_H

#include <check.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct driver {
    void *library, *context, *stream;
    int (*cuInit)(unsigned);
    int (*cuDevicePrimaryCtxRetain)(void **, int);
    int (*cuDevicePrimaryCtxRelease_v2)(int);
    int (*cuCtxSetCurrent)(void *);
    int (*cuMemAlloc_v2)(unsigned long long *, size_t);
    int (*cuMemFree_v2)(unsigned long long);
    int (*cuMemcpyHtoDAsync_v2)(unsigned long long, const void *, size_t, void *);
    int (*cuMemcpyDtoHAsync_v2)(void *, unsigned long long, size_t, void *);
    int (*cuStreamSynchronize)(void *);
    int (*cuStreamCreate)(void **, unsigned);
    int (*cuStreamDestroy_v2)(void *);
    long allocations, live;
    size_t bytes;
} driver;

static inline driver open_driver(void)
{
    driver d = {0};
    char path[4096];
    const char *folder = getenv("FP8C_CUDA_PATH");
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder ? folder : "");
    d.library = dlopen(path, RTLD_NOW);
    if (!d.library)
        d.library = dlopen("libcuda.so.1", RTLD_NOW);
    ck_assert_msg(d.library != NULL, "%s", dlerror());
#define SYMBOL(name)                                             \
    *(void **)&d.name = dlsym(d.library, #name);                 \
    ck_assert_msg(d.name != NULL, "no " #name)
    SYMBOL(cuInit);
    SYMBOL(cuDevicePrimaryCtxRetain);
    SYMBOL(cuDevicePrimaryCtxRelease_v2);
    SYMBOL(cuCtxSetCurrent);
    SYMBOL(cuMemAlloc_v2);
    SYMBOL(cuMemFree_v2);
    SYMBOL(cuMemcpyHtoDAsync_v2);
    SYMBOL(cuMemcpyDtoHAsync_v2);
    SYMBOL(cuStreamSynchronize);
    SYMBOL(cuStreamCreate);
    SYMBOL(cuStreamDestroy_v2);
#undef SYMBOL
    ck_assert_int_eq(d.cuInit(0), 0);
    ck_assert_int_eq(d.cuDevicePrimaryCtxRetain(&d.context, 0), 0);
    ck_assert_int_eq(d.cuCtxSetCurrent(d.context), 0);
    ck_assert_int_eq(d.cuStreamCreate(&d.stream, 1), 0); /* CU_STREAM_NON_BLOCKING */
    return d;
}

static inline void close_driver(driver *d)
{
    ck_assert_int_eq(d->cuStreamDestroy_v2(d->stream), 0);
    ck_assert_int_eq(d->cuCtxSetCurrent(NULL), 0);
    ck_assert_int_eq(d->cuDevicePrimaryCtxRelease_v2(0), 0);
    dlclose(d->library);
}

static inline void *device_alloc(void *user, size_t size)
{
    driver *d = user;
    unsigned long long at = 0;
    if (d->cuMemAlloc_v2(&at, size))
        return NULL;
    d->allocations++;
    d->live++;
    d->bytes += size;
    return (void *)(uintptr_t)at;
}

static inline void device_free(void *user, void *ptr, size_t size)
{
    driver *d = user;
    d->live--;
    d->bytes -= size;
    ck_assert_int_eq(d->cuMemFree_v2((unsigned long long)(uintptr_t)ptr), 0);
}

/* From device memory, and wait. */
static inline int copy_from_device(driver *d, void *to, const void *from, size_t bytes)
{
    const int failed =
        d->cuMemcpyDtoHAsync_v2(to, (unsigned long long)(uintptr_t)from, bytes, d->stream);
    return failed ? failed : d->cuStreamSynchronize(d->stream);
}

#endif
