/* Status codes, diagnostics, the allocator and the arena: what every folder builds on.
 *
 * A function that can fail returns f8_status and, when it has one to fill, leaves one message in
 * the f8_diag it was given. Nothing here prints, exits or keeps global state. */
#ifndef F8_STATUS_H
#define F8_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum f8_status {
    F8_OK = 0,
    F8_ERR_INPUT,       /* the text, graph, option or data given is wrong; the message says where */
    F8_ERR_UNSUPPORTED, /* well-formed, but this target or recipe does not support it */
    F8_ERR_MEMORY,      /* an allocation failed; the message says how many bytes were wanted */
    F8_ERR_IO,          /* a file or the system failed */
    F8_ERR_LIBRARY,     /* a component (LLVM, oneDNN, ...) is missing or refused */
    F8_ERR_INTERNAL,    /* a broken invariant of fp8c itself: a bug */
    F8_ERR_CANCELLED,   /* the embedder's callback asked to stop */
} f8_status;

/* A place in a source text. line and column count from 1; line 0 means that no place is known. */
typedef struct f8_loc {
    uint32_t line, column;
} f8_loc;

/* One message. The first failure wins. `file` is borrowed. */
typedef struct f8_diag {
    f8_status status;
    f8_loc loc;
    const char *file;
    char text[1024];
} f8_diag;

/* Record a failure (only the first is kept; d may be NULL) and return `status`, so that callers
 * write `return f8_fail(d, F8_ERR_INPUT, loc, "...", ...)`. */
f8_status f8_fail(f8_diag *d, f8_status status, f8_loc loc, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#define F8_NOWHERE ((f8_loc){0, 0})

/* Propagate a failure to the caller. */
#define F8_TRY(expr)                            \
    do {                                        \
        f8_status f8_try_status_ = (expr);      \
        if (f8_try_status_ != F8_OK)            \
            return f8_try_status_;              \
    } while (0)

/* The embedder's allocator. alloc returns memory aligned to `align` (a power of two) or NULL. */
typedef struct f8_allocator {
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*free)(void *user, void *ptr, size_t size);
    void *user;
} f8_allocator;

/* aligned_alloc and free. */
f8_allocator f8_default_allocator(void);

/* An arena: its allocations live until the arena ends. After a failed allocation `failed` stays set
 * and holds the number of bytes wanted, so that a caller may check once after many allocations. */
typedef struct f8_arena_chunk f8_arena_chunk;
typedef struct f8_arena {
    f8_allocator allocator;
    f8_arena_chunk *chunk;
    size_t failed;
} f8_arena;

void f8_arena_init(f8_arena *a, const f8_allocator *allocator);
void f8_arena_end(f8_arena *a);
/* Zeroed memory, 16-byte aligned; NULL when the allocator failed or count * size overflows. */
void *f8_arena_array(f8_arena *a, size_t count, size_t size);
/* Make room for at least `need` elements in an arena array of which `used` are in use. Returns the
 * old pointer when there is room, else a copy with twice the room, zeroed beyond `used`. Returns
 * NULL on failure and leaves the old array intact. */
void *f8_arena_grow(f8_arena *a, void *old, size_t used, size_t *capacity, size_t need,
                    size_t size);
/* A copy of the string in the arena; NULL gives NULL. */
char *f8_arena_strdup(f8_arena *a, const char *s);
char *f8_arena_strndup(f8_arena *a, const char *s, size_t n);
char *f8_arena_printf(f8_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define F8_NEW(arena, type) ((type *)f8_arena_array((arena), 1, sizeof(type)))
#define F8_NEW_ARRAY(arena, type, count) ((type *)f8_arena_array((arena), (count), sizeof(type)))

/* F8_OK, or F8_ERR_MEMORY and a message with the bytes wanted if an allocation had failed. */
f8_status f8_arena_status(const f8_arena *a, f8_diag *d);

#endif
