/* Structs as bytes: see wire.h. */
#include "ir/base/wire.h"

#include <string.h>

#include "ir/base/text.h"

enum { NO_TEXT = -1 }; /* the length that stands for NULL */

void f8_wire_begin_write(f8_wire *w, f8_arena *arena)
{
    *w = (f8_wire){.mode = F8_WIRE_WRITE, .arena = arena};
}

void f8_wire_begin_read(f8_wire *w, const void *bytes, size_t size, f8_arena *arena,
                        const char *what)
{
    *w = (f8_wire){.mode = F8_WIRE_READ,
                   .arena = arena,
                   .at = bytes,
                   .end = (const uint8_t *)bytes + size,
                   .what = what};
}

void f8_wire_refuse(f8_wire *w, const char *why)
{
    if (w->mode == F8_WIRE_READ && !w->wrong) {
        w->wrong = why;
        w->at = w->end; /* whatever follows is zero */
    }
}

f8_status f8_wire_end(const f8_wire *w, f8_diag *diag)
{
    F8_TRY(f8_arena_status(w->arena, diag));
    if (w->wrong && w->mode == F8_WIRE_WRITE)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "%s, so it can't be stored in a file",
                       w->wrong);
    if (w->wrong)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s: %s", w->what, w->wrong);
    if (w->at != w->end)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s: %zu bytes follow its end", w->what,
                       (size_t)(w->end - w->at));
    return F8_OK;
}

/* ---- numbers ---- */

static void put(f8_wire *w, const void *from, size_t n)
{
    if (w->mode == F8_WIRE_WRITE) {
        uint8_t *bytes = f8_arena_grow(w->arena, w->bytes, w->size, &w->room, w->size + n, 1);
        if (!bytes)
            return; /* the arena remembers */
        w->bytes = bytes;
        memcpy(bytes + w->size, from, n);
    }
    w->size += n;
}

static bool get(f8_wire *w, void *to, size_t n)
{
    if ((size_t)(w->end - w->at) < n) {
        f8_wire_refuse(w, "it ends too early");
        memset(to, 0, n);
        return false;
    }
    memcpy(to, w->at, n);
    w->at += n;
    return true;
}

/* The low `n` bytes of *x. */
static void number(f8_wire *w, uint64_t *x, size_t n)
{
    uint8_t b[8];
    if (w->mode != F8_WIRE_READ) {
        for (size_t i = 0; i < n; i++)
            b[i] = (uint8_t)(*x >> 8 * i);
        put(w, b, n);
        return;
    }
    get(w, b, n);
    *x = 0;
    for (size_t i = 0; i < n; i++)
        *x |= (uint64_t)b[i] << 8 * i;
}

#define NUMBER(name, type, unsigned_type)                                                          \
    void f8_wire_##name(f8_wire *w, type *x)                                                       \
    {                                                                                              \
        uint64_t bits = (unsigned_type) * x;                                                       \
        number(w, &bits, sizeof *x);                                                               \
        if (w->mode == F8_WIRE_READ)                                                               \
            *x = (type)(unsigned_type)bits;                                                        \
    }
NUMBER(u8, uint8_t, uint8_t)
NUMBER(u16, uint16_t, uint16_t)
NUMBER(u32, uint32_t, uint32_t)
NUMBER(u64, uint64_t, uint64_t)
NUMBER(i32, int32_t, uint32_t)
NUMBER(i64, int64_t, uint64_t)
#undef NUMBER

void f8_wire_f32(f8_wire *w, float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    f8_wire_u32(w, &bits);
    memcpy(x, &bits, sizeof bits);
}

void f8_wire_f64(f8_wire *w, double *x)
{
    uint64_t bits;
    memcpy(&bits, x, sizeof bits);
    f8_wire_u64(w, &bits);
    memcpy(x, &bits, sizeof bits);
}

void f8_wire_bool(f8_wire *w, bool *x)
{
    uint32_t one = *x;
    f8_wire_choice(w, &one, 2);
    *x = one;
}

void f8_wire_size(f8_wire *w, int64_t *x)
{
    f8_wire_i64(w, x);
    if (w->mode == F8_WIRE_READ && *x < 0) {
        f8_wire_refuse(w, "a size is negative");
        *x = 0;
    }
}

void f8_wire_choice(f8_wire *w, uint32_t *x, uint32_t count)
{
    uint8_t byte = (uint8_t)*x;
    f8_wire_u8(w, &byte);
    if (w->mode != F8_WIRE_READ)
        return;
    if (byte >= count)
        f8_wire_refuse(w, "a field has a value that is not defined");
    *x = byte < count ? byte : 0;
}

/* ---- texts and types ---- */

static void text(f8_wire *w, const char **s, bool required)
{
    int32_t n = *s && w->mode != F8_WIRE_READ ? (int32_t)strlen(*s) : NO_TEXT;
    f8_wire_i32(w, &n);
    if (w->mode != F8_WIRE_READ) {
        if (n > 0 && !f8_text_is_plain(*s, (size_t)n) && !w->wrong)
            w->wrong = "a name has a control character or is not UTF-8";
        if (n > 0)
            put(w, *s, (size_t)n);
        return;
    }
    *s = NULL;
    if (n == NO_TEXT && !required && !w->wrong)
        return;
    if (n < 0)
        f8_wire_refuse(w, n == NO_TEXT ? "a name is missing" : "a text has a negative length");
    else if (n > w->end - w->at)
        f8_wire_refuse(w, "a text ends too early");
    else if (memchr(w->at, 0, (size_t)n))
        f8_wire_refuse(w, "a text has a NUL");
    else if (!f8_text_is_plain((const char *)w->at, (size_t)n))
        f8_wire_refuse(w, "a text has a control character or is not UTF-8");
    if (w->wrong) {
        *s = "";
        return;
    }
    *s = f8_arena_strndup(w->arena, (const char *)w->at, (size_t)n);
    if (!*s)
        *s = ""; /* the arena remembers */
    w->at += n;
}

void f8_wire_text(f8_wire *w, const char **s)
{
    text(w, s, false);
}

void f8_wire_name(f8_wire *w, const char **s)
{
    text(w, s, true);
}

void f8_wire_type(f8_wire *w, f8_type *t)
{
    F8_WIRE_ENUM(w, t->dtype, F8_DTYPE_COUNT);
    uint32_t rank = t->rank;
    f8_wire_choice(w, &rank, F8_MAX_RANK + 1);
    if (w->mode == F8_WIRE_READ)
        *t = (f8_type){.dtype = t->dtype, .rank = (uint8_t)rank};
    for (uint32_t i = 0; i < rank; i++) {
        f8_wire_i64(w, &t->dim[i]);
        if (w->mode == F8_WIRE_READ && t->dim[i] < 1) {
            f8_wire_refuse(w, "a dim is not positive");
            t->dim[i] = 1;
        }
    }
    if (w->mode == F8_WIRE_READ && f8_type_bytes(t) < 0) {
        f8_wire_refuse(w, "a shape is too large");
        *t = (f8_type){.dtype = t->dtype};
    }
}

/* ---- arrays ---- */

/* The bytes of an element of zeros: no element is smaller. */
static size_t least_bytes(f8_wire_fn element, void *zeros)
{
    f8_wire measure = {.mode = F8_WIRE_MEASURE};
    element(&measure, zeros);
    return measure.size;
}

static void read_array(f8_wire *w, void **array, size_t *n, size_t size, f8_wire_fn element)
{
    const uint64_t count = *n;
    *array = NULL;
    *n = 0;
    if (!count || w->wrong)
        return;
    uint8_t *first = f8_arena_array(w->arena, 1, size);
    if (!first)
        return;
    const size_t least = least_bytes(element, first);
    if (count > INT32_MAX || count > (size_t)(w->end - w->at) / (least ? least : 1)) {
        f8_wire_refuse(w, "an array is longer than the bytes left");
        return;
    }
    uint8_t *a = f8_arena_array(w->arena, count, size);
    if (!a)
        return;
    for (uint64_t i = 0; i < count; i++)
        element(w, a + i * size);
    *array = a;
    *n = count;
}

void f8_wire_array(f8_wire *w, void **array, size_t *n, size_t size, f8_wire_fn element)
{
    uint64_t count = w->mode == F8_WIRE_READ ? 0 : *n;
    f8_wire_u64(w, &count);
    if (w->mode == F8_WIRE_READ) {
        *n = count;
        read_array(w, array, n, size, element);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        element(w, (uint8_t *)*array + i * size);
}

void f8_wire_i64s(f8_wire *w, void *element)
{
    f8_wire_i64(w, element);
}

void f8_wire_names(f8_wire *w, void *element)
{
    f8_wire_name(w, element);
}
