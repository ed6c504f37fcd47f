/* Device memory: one range of addresses for all devices. Each address is given out once, so that
 * freed memory stays inaccessible. An allocation ends where an inaccessible page begins, up to
 * 256-byte alignment. Fresh memory is full of NaNs. Pinned host memory is host memory that is
 * recorded here. */
#include "tests/emulator/driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGN = 256, POISON = 0xff };
static const size_t range_bytes = (size_t)1 << 40;

typedef struct area {
    struct area *next;
    uint8_t *p;
    size_t bytes, mapped; /* asked for; of whole pages, without the forbidden one */
    int device;
} area;

static uint8_t *range;
static size_t range_used;
static area *device, *pinned;

static size_t total(void)
{
    return (size_t)f8_emu_setting("FP8C_EMULATOR_MEMORY", (int64_t)8 << 30);
}

/* On one device, or with -1 on all. */
static size_t used(int where)
{
    size_t sum = 0;
    for (const area *a = device; a; a = a->next)
        if (where < 0 || a->device == where)
            sum += (a->bytes + ALIGN - 1) / ALIGN * ALIGN;
    return sum;
}

int64_t f8_emu_memory_count(const char *what)
{
    int64_t n = 0;
    if (strcmp(what, "byte") == 0)
        return (int64_t)used(-1);
    for (const area *a = what[0] == 'p' ? pinned : device; a; a = a->next)
        n++;
    return n;
}

static uint8_t *area_base(const area *a)
{
    return a->p + (a->bytes + ALIGN - 1) / ALIGN * ALIGN - a->mapped;
}

static void unlink_area(area **list, area *a)
{
    for (; *list != a; list = &(*list)->next) {
    }
    *list = a->next;
    free(a);
}

static const area *find(const area *list, const void *p, size_t bytes)
{
    for (; list; list = list->next)
        if ((size_t)((const uint8_t *)p - list->p) < list->bytes &&
            bytes <= list->bytes - (size_t)((const uint8_t *)p - list->p))
            return list;
    return NULL;
}

bool f8_emu_memory_is_pinned(const void *p, size_t bytes)
{
    return find(pinned, p, bytes) != NULL;
}

int f8_emu_memory_is_device(CUdeviceptr p, size_t bytes)
{
    return find(device, (const void *)(uintptr_t)p, bytes) != NULL;
}

void f8_emu_memory_reach(bool on)
{
    for (const area *a = device; a; a = a->next)
        mprotect(area_base(a), a->mapped, on ? PROT_READ | PROT_WRITE : PROT_NONE);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    const size_t all = total(), gone = used(f8_emu_current());
    *total_bytes = all;
    *free_bytes = gone < all ? all - gone : 0;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    if (!bytes || !ptr)
        return CUDA_ERROR_INVALID_VALUE;
    const size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    const size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    if (rounded < bytes || rounded > total() || used(f8_emu_current()) > total() - rounded)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!range) {
        range =
            mmap(NULL, range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) {
            range = NULL;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        range_used = PAGE;
    }
    area *a = calloc(1, sizeof *a);
    if (!a || mapped + PAGE > range_bytes - range_used ||
        mprotect(range + range_used, mapped, PROT_READ | PROT_WRITE) != 0) {
        free(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *a = (area){device, range + range_used + (mapped - rounded), bytes, mapped, f8_emu_current()};
    device = a;
    range_used += mapped + PAGE;
    memset(a->p, POISON, bytes);
    *ptr = (CUdeviceptr)(uintptr_t)a->p;
    return CUDA_SUCCESS;
}

static void release(area *a)
{
    mmap(area_base(a), a->mapped, PROT_NONE,
         MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unlink_area(&device, a);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    if (!ptr)
        return CUDA_SUCCESS;
    f8_emu_record_wait(F8_EMU_WAIT_FREE);
    f8_emu_wait_all(f8_emu_current()); /* as the driver does: no work may use it any more */
    area *a = (area *)find(device, (const void *)(uintptr_t)ptr, 0);
    if (!a || a->p != (uint8_t *)(uintptr_t)ptr)
        return CUDA_ERROR_INVALID_VALUE;
    release(a);
    return CUDA_SUCCESS;
}

static CUresult alloc_pinned(void **ptr, size_t bytes)
{
    if (!bytes || !ptr)
        return CUDA_ERROR_INVALID_VALUE;
    area *a = calloc(1, sizeof *a);
    uint8_t *p = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!a || !p) {
        free(a);
        free(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(p, POISON, bytes);
    *a = (area){pinned, p, bytes, 0, f8_emu_current()};
    pinned = a;
    *ptr = p;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    return alloc_pinned(ptr, bytes);
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    return flags > 7 ? CUDA_ERROR_INVALID_VALUE : alloc_pinned(ptr, bytes);
}

CUresult cuMemFreeHost(void *ptr)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    f8_emu_record_wait(F8_EMU_WAIT_FREE);
    f8_emu_wait_all(f8_emu_current());
    area *a = (area *)find(pinned, ptr, 0);
    if (!a || a->p != ptr)
        return CUDA_ERROR_INVALID_VALUE;
    unlink_area(&pinned, a);
    free(ptr);
    return CUDA_SUCCESS;
}

static area *any_of(area *list, int where)
{
    while (list && list->device != where)
        list = list->next;
    return list;
}

void f8_emu_memory_free_all(int where)
{
    for (area *a; (a = any_of(device, where));)
        release(a);
    for (area *a; (a = any_of(pinned, where));) {
        free(a->p);
        unlink_area(&pinned, a);
    }
}

int f8_emu_memory_device(CUdeviceptr p, size_t bytes)
{
    const area *a = find(device, (const void *)(uintptr_t)p, bytes);
    return a ? a->device : -1;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    const void *p = (const void *)(uintptr_t)ptr;
    const bool is_device = find(device, p, 0) != NULL;
    if (!is_device && !find(pinned, p, 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (which != CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        return CUDA_ERROR_NOT_SUPPORTED;
    *(unsigned *)data = is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    return CUDA_SUCCESS;
}
