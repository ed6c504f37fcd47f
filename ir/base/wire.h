/* Structs as bytes, and back. One function for each struct lists its fields in order, and both
 * writing and reading call it.
 *
 *     static void point(f8_wire *w, void *p)
 *     {
 *         struct point *o = p;
 *         f8_wire_i64(w, &o->x);
 *         f8_wire_text(w, &o->name);
 *     }
 *     f8_wire_begin_write(&w, &arena);
 *     point(&w, &o);                                         // w.bytes, w.size
 *     f8_wire_begin_read(&w, bytes, n, &arena, "points");
 *     point(&w, &o);
 *     status = f8_wire_end(&w, diag);
 *
 * Fields have fixed widths, are little-endian and follow each other without padding, so equal
 * structs give equal bytes. Reading trusts nothing: past the end, or after an invalid field, all
 * fields are zero and f8_wire_end says what was wrong. An array may have no more elements than the
 * bytes left can hold, so a few bytes can't ask for much memory. */
#ifndef F8_WIRE_H
#define F8_WIRE_H

#include "ir/base/status.h"
#include "ir/base/type.h"

typedef enum f8_wire_mode {
    F8_WIRE_WRITE,
    F8_WIRE_READ,
    F8_WIRE_MEASURE /* only count the bytes */
} f8_wire_mode;

typedef struct f8_wire {
    f8_wire_mode mode;
    f8_arena *arena;         /* holds what is read, or the bytes written */
    uint8_t *bytes;          /* WRITE: the bytes so far */
    size_t size, room;       /* WRITE, MEASURE: their number; WRITE: what fits */
    const uint8_t *at, *end; /* READ: the bytes left */
    const char *what;        /* READ: what messages call the data */
    const char *wrong;       /* what was wrong first; NULL if nothing was */
} f8_wire;

void f8_wire_begin_write(f8_wire *w, f8_arena *arena);
void f8_wire_begin_read(f8_wire *w, const void *bytes, size_t size, f8_arena *arena,
                        const char *what);
/* The outcome. F8_ERR_INPUT: what was read is invalid, or bytes are left. F8_ERR_UNSUPPORTED: what
 * was to be written can't be. F8_ERR_MEMORY. */
f8_status f8_wire_end(const f8_wire *w, f8_diag *diag);

static inline bool f8_wire_reads(const f8_wire *w)
{
    return w->mode == F8_WIRE_READ;
}
/* READ: mark what was read as invalid. `why` is a constant; the first one counts. */
void f8_wire_refuse(f8_wire *w, const char *why);

void f8_wire_u8(f8_wire *w, uint8_t *x);
void f8_wire_u16(f8_wire *w, uint16_t *x);
void f8_wire_u32(f8_wire *w, uint32_t *x);
void f8_wire_u64(f8_wire *w, uint64_t *x);
void f8_wire_i32(f8_wire *w, int32_t *x);
void f8_wire_i64(f8_wire *w, int64_t *x);
void f8_wire_f32(f8_wire *w, float *x); /* its bits */
void f8_wire_f64(f8_wire *w, double *x);
void f8_wire_bool(f8_wire *w, bool *x);
/* A size of 0 or more. */
void f8_wire_size(f8_wire *w, int64_t *x);
/* One of the values 0 to count - 1, in a byte. F8_WIRE_ENUM does the same for a field of an enum
 * type. */
void f8_wire_choice(f8_wire *w, uint32_t *x, uint32_t count);
#define F8_WIRE_ENUM(w, field, count)                                                              \
    do {                                                                                           \
        uint32_t f8_wire_e_ = (uint32_t)(field);                                                   \
        f8_wire_choice((w), &f8_wire_e_, (count));                                                 \
        if (f8_wire_reads(w))                                                                      \
            (field) = f8_wire_e_;                                                                  \
    } while (0)

/* A NUL-terminated text, or NULL. It must be UTF-8 without control characters (ir/base/text.h);
 * other text is invalid, when read and when written. A text that is read is in the arena. */
void f8_wire_text(f8_wire *w, const char **s);
/* The same, but reading NULL is invalid. */
void f8_wire_name(f8_wire *w, const char **s);
/* dtype, rank and dims. Each dim must be at least 1, and the bytes must fit int64. */
void f8_wire_type(f8_wire *w, f8_type *t);

/* *n elements of `size` bytes at *array, each by the function `element`. An array that is read is
 * in the arena; NULL when it has no elements. */
typedef void (*f8_wire_fn)(f8_wire *w, void *element);
void f8_wire_array(f8_wire *w, void **array, size_t *n, size_t size, f8_wire_fn element);
/* The same for fields: `array` is a pointer to elements, and `n` has any integer type. */
#define F8_WIRE_ARRAY(w, array, n, element)                                                        \
    do {                                                                                           \
        void *f8_wire_a_ = (void *)(array);                                                        \
        size_t f8_wire_n_ = (size_t)(n);                                                           \
        f8_wire_array((w), &f8_wire_a_, &f8_wire_n_, sizeof *(array), (element));                  \
        if (f8_wire_reads(w)) {                                                                    \
            (array) = f8_wire_a_;                                                                  \
            (n) = f8_wire_n_;                                                                      \
        }                                                                                          \
    } while (0)
/* The functions `element` for arrays of int64_t and of names. */
void f8_wire_i64s(f8_wire *w, void *element);
void f8_wire_names(f8_wire *w, void *element); /* const char * */

#endif
