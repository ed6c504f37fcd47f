/* Status, diagnostics and the arena: see status.h. */
#include "ir/base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/format.h"

/* ---- diagnostics ---- */

f8_status f8_fail(f8_diag *d, f8_status status, f8_loc loc, const char *fmt, ...)
{
    if (!d || d->status != F8_OK)
        return status;
    d->status = status;
    d->loc = loc;
    va_list args;
    va_start(args, fmt);
    f8_vformat(d->text, sizeof d->text, fmt, args);
    va_end(args);
    return status;
}

/* ---- allocator ---- */

static void *default_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    if (align < sizeof(void *))
        align = sizeof(void *);
    if (size > SIZE_MAX - align)
        return NULL;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void default_free(void *user, void *ptr, size_t size)
{
    (void)user;
    (void)size;
    free(ptr);
}

f8_allocator f8_default_allocator(void)
{
    return (f8_allocator){default_alloc, default_free, NULL};
}

/* ---- arena ---- */

enum { ARENA_ALIGN = 16, ARENA_FIRST = 64 * 1024 };

struct f8_arena_chunk {
    f8_arena_chunk *next;
    size_t size, used; /* bytes, this header included */
};

#define CHUNK_HEADER ((sizeof(f8_arena_chunk) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN)

void f8_arena_init(f8_arena *a, const f8_allocator *allocator)
{
    *a = (f8_arena){.allocator = allocator ? *allocator : f8_default_allocator()};
}

void f8_arena_end(f8_arena *a)
{
    for (f8_arena_chunk *c = a->chunk, *next; c; c = next) {
        next = c->next;
        a->allocator.free(a->allocator.user, c, c->size);
    }
    a->chunk = NULL;
}

static f8_arena_chunk *arena_chunk(f8_arena *a, size_t bytes)
{
    size_t size = a->chunk ? a->chunk->size : ARENA_FIRST;
    if (size < (size_t)1 << 24)
        size *= 2;
    if (size < bytes + CHUNK_HEADER)
        size = bytes + CHUNK_HEADER;
    f8_arena_chunk *c = a->allocator.alloc(a->allocator.user, size, ARENA_ALIGN);
    if (!c)
        return NULL;
    *c = (f8_arena_chunk){.next = a->chunk, .size = size, .used = CHUNK_HEADER};
    a->chunk = c;
    return c;
}

void *f8_arena_array(f8_arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        a->failed = SIZE_MAX;
        return NULL;
    }
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (bytes == 0)
        bytes = ARENA_ALIGN;
    f8_arena_chunk *c = a->chunk;
    if (!c || c->size - c->used < bytes)
        c = arena_chunk(a, bytes);
    if (!c) {
        a->failed = bytes;
        return NULL;
    }
    void *p = (char *)c + c->used;
    c->used += bytes;
    return memset(p, 0, bytes);
}

void *f8_arena_grow(f8_arena *a, void *old, size_t used, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return old;
    size_t room = *capacity ? *capacity * 2 : 16;
    if (room < need)
        room = need;
    void *p = f8_arena_array(a, room, size);
    if (!p)
        return NULL;
    if (used)
        memcpy(p, old, used * size);
    *capacity = room;
    return p;
}

char *f8_arena_strndup(f8_arena *a, const char *s, size_t n)
{
    char *p = f8_arena_array(a, n + 1, 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

char *f8_arena_strdup(f8_arena *a, const char *s)
{
    return s ? f8_arena_strndup(a, s, strlen(s)) : NULL;
}

char *f8_arena_printf(f8_arena *a, const char *fmt, ...)
{
    va_list args, second;
    va_start(args, fmt);
    va_copy(second, args);
    int n = f8_vformat(NULL, 0, fmt, args);
    va_end(args);
    char *p = n < 0 ? NULL : f8_arena_array(a, (size_t)n + 1, 1);
    if (p)
        f8_vformat(p, (size_t)n + 1, fmt, second);
    va_end(second);
    return p;
}

f8_status f8_arena_status(const f8_arena *a, f8_diag *d)
{
    if (!a->failed)
        return F8_OK;
    return f8_fail(d, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted", a->failed);
}
