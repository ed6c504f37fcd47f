/* The allocator: see no_memory.h. Operator new is libstdc++'s own, which calls malloc and throws.
 */
#include "tests/faults/no_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

enum { FRAMES = 512 };

static const char *watched; /* the library */
static long step;
static _Atomic(no_memory_fn) asked;
static atomic_long count;
static _Thread_local bool busy; /* in here: allocations of our own */

static const char *file_of(void *at)
{
    struct dl_find_object found;
    if (_dl_find_object(at, &found))
        return "";
    const char *name = found.dlfo_link_map->l_name, *slash = strrchr(name, '/');
    return slash ? slash + 1 : *name ? name : "fp8c"; /* the program has no name */
}

/* The outermost frame of the library: what fp8c called. NULL: none is on the stack. */
static const char *call_of(void)
{
    void *frame[FRAMES];
    const int n = backtrace(frame, FRAMES);
    for (int i = n - 1; i >= 0; i--) {
        Dl_info info;
        if (!strstr(file_of(frame[i]), watched))
            continue;
        if (i + 1 < n && strstr(file_of(frame[i + 1]), "ld-linux"))
            return "loading";
        return dladdr(frame[i], &info) && info.dli_sname ? info.dli_sname : "?";
    }
    return NULL;
}

static bool refuses(void)
{
    no_memory_fn refuse = asked;
    if (!refuse || busy)
        return false;
    const long n = atomic_fetch_add(&count, 1) + 1;
    if (n % step)
        return false;
    busy = true;
    const char *call = call_of();
    const bool no = call && refuse(n, call);
    busy = false;
    if (no)
        errno = ENOMEM;
    return no;
}

void no_memory_watch(const char *library, long every, no_memory_fn refuse)
{
    void *frame[2];
    asked = NULL;
    backtrace(frame, 2); /* loads libgcc */
    watched = library;
    step = every;
    if (refuse)
        count = 0;
    asked = refuse;
}

long no_memory_count(void)
{
    return count;
}

void no_memory_place(char *file, size_t size)
{
    static const char *const passed[] = {"libc.so", "libstdc++.so", "libgcc_s.so", "ld-linux"};
    void *frame[FRAMES];
    busy = true;
    const int n = backtrace(frame, FRAMES);
    *file = 0;
    /* The first frames are this function, the handler, and libc's return from it. */
    for (int i = 3; i < n && !*file; i++) {
        const char *name = file_of(frame[i]);
        bool pass = false;
        for (size_t p = 0; p < sizeof passed / sizeof *passed; p++)
            pass |= strstr(name, passed[p]) == name;
        if (!pass)
            snprintf(file, size, "%s", *name ? name : "generated code");
    }
    busy = false;
}

/* ---- what stands in for libc's ---- */

#define PUBLIC __attribute__((visibility("default")))

PUBLIC void *malloc(size_t size)
{
    return refuses() ? NULL : __libc_malloc(size);
}

PUBLIC void *calloc(size_t n, size_t size)
{
    return refuses() ? NULL : __libc_calloc(n, size);
}

PUBLIC void *realloc(void *old, size_t size)
{
    return refuses() ? NULL : __libc_realloc(old, size);
}

PUBLIC void *aligned_alloc(size_t align, size_t size)
{
    return refuses() ? NULL : __libc_memalign(align, size);
}

PUBLIC int posix_memalign(void **out, size_t align, size_t size)
{
    void *p = refuses() ? NULL : __libc_memalign(align, size);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}
