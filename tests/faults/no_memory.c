/* An allocator that says no to one allocation of one library, for LD_PRELOAD: see README.md, "No
 * memory inside a library". Not part of any program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

static atomic_long count;

/* Whether this is allocation number FP8C_NO_MEMORY_AT of the library that FP8C_NO_MEMORY_IN names.
 */
static int refuses(void *caller)
{
    struct dl_find_object found;
    const char *library = getenv("FP8C_NO_MEMORY_IN"), *at = getenv("FP8C_NO_MEMORY_AT");
    if (!library || !at || _dl_find_object(caller, &found) ||
        !strstr(found.dlfo_link_map->l_name, library) ||
        atomic_fetch_add(&count, 1) + 1 != atol(at))
        return 0;
    errno = ENOMEM;
    return 1;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size)
{
    return refuses(CALLER) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return refuses(CALLER) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    return refuses(CALLER) ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return refuses(CALLER) ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    *out = refuses(CALLER) ? NULL : __libc_memalign(align, size);
    return *out ? 0 : ENOMEM;
}

/* C++'s new, and new that does not throw, under their symbols' names. */
static void *new_or_throw(size_t size, int refused)
{
    void *p = refused ? NULL : __libc_malloc(size ? size : 1);
    void (*bad_alloc)(void) =
        p ? NULL : (void (*)(void))dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    if (bad_alloc)
        bad_alloc();
    return p;
}

void *_Znwm(size_t size)
{
    return new_or_throw(size, refuses(CALLER));
}

void *_Znam(size_t size)
{
    return new_or_throw(size, refuses(CALLER));
}

void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag)
{
    (void)tag;
    return refuses(CALLER) ? NULL : __libc_malloc(size);
}

void *_ZnamRKSt9nothrow_t(size_t size, const void *tag)
{
    (void)tag;
    return refuses(CALLER) ? NULL : __libc_malloc(size);
}
