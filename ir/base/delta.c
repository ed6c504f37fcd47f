/* Deltas: see delta.h. */
#include "ir/base/delta.h"

#include <string.h>

/* ---- numbers ---- */

enum { VARINT = 10 }; /* bytes of the longest number */

static size_t put_number(uint8_t *to, uint64_t x)
{
    size_t n = 0;
    for (; x >= 0x80; x >>= 7)
        to[n++] = (uint8_t)(x | 0x80);
    to[n++] = (uint8_t)x;
    return n;
}

static bool get_number(const uint8_t **at, const uint8_t *end, uint64_t *x)
{
    *x = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        const uint8_t b = *(*at)++;
        *x |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return true;
    }
    return false;
}

/* ---- encoding ---- */

enum {
    WINDOW = 16, /* bytes of a window; the table has the windows at every STEP bytes of the base */
    STEP = 4,
    NEAR = 6, /* the shortest copy that continues the one before it: its offset is short too */
};

typedef struct encoder {
    const uint8_t *base, *bytes;
    size_t n_base, n;
    uint32_t *table; /* by hash of a window: its position in the base + 1; the first wins */
    size_t mask;
    uint8_t *out;
    size_t size;    /* bytes of `out` so far */
    size_t literal; /* bytes from here on are not yet encoded */
} encoder;

static size_t hash(const encoder *e, const uint8_t *at)
{
    uint64_t a, b;
    memcpy(&a, at, sizeof a);
    memcpy(&b, at + 8, sizeof b);
    return (size_t)((a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu) >> 20) & e->mask;
}

static void index_base(encoder *e)
{
    for (size_t i = 0; i + WINDOW <= e->n_base; i += STEP) {
        uint32_t *entry = &e->table[hash(e, e->base + i)];
        if (!*entry)
            *entry = (uint32_t)i + 1;
    }
}

/* How many bytes are the same in the base at `from` and in the bytes at `at`. */
static size_t match(const encoder *e, size_t from, size_t at)
{
    size_t n = 0;
    while (from + n < e->n_base && at + n < e->n && e->base[from + n] == e->bytes[at + n])
        n++;
    return n;
}

/* False if the delta would become as long as the whole. */
static bool put(encoder *e, uint64_t head, const uint8_t *bytes, size_t n, uint64_t from)
{
    if (e->size + 2 * VARINT + n >= e->n)
        return false;
    e->size += put_number(e->out + e->size, head);
    if (bytes)
        memcpy(e->out + e->size, bytes, n);
    e->size += bytes ? n : put_number(e->out + e->size, from);
    return true;
}

static bool put_literal(encoder *e, size_t to)
{
    const size_t n = to - e->literal;
    return n == 0 || put(e, (uint64_t)n << 1, e->bytes + e->literal, n, 0);
}

static bool encode(encoder *e)
{
    size_t next = 0; /* in the base: where the last copy ended */
    e->size = put_number(e->out, e->n);
    for (size_t at = 0; at < e->n;) {
        size_t from = next + (at - e->literal), n = match(e, from, at);
        if (n < NEAR) {
            n = 0;
            if (at + WINDOW <= e->n && e->table[hash(e, e->bytes + at)]) {
                from = e->table[hash(e, e->bytes + at)] - 1;
                n = match(e, from, at);
            }
            if (n < WINDOW) {
                at++;
                continue;
            }
            while (from > 0 && at > e->literal && e->base[from - 1] == e->bytes[at - 1])
                from--, at--, n++;
        }
        if (!put_literal(e, at) || !put(e, (uint64_t)n << 1 | 1, NULL, 0, from))
            return false;
        at += n;
        next = from + n;
        e->literal = at;
    }
    return put_literal(e, e->n);
}

f8_status f8_delta_make(const uint8_t *base, size_t n_base, const uint8_t *bytes, size_t n,
                        f8_arena *arena, uint8_t **out, size_t *size, f8_diag *diag)
{
    size_t entries = 256;
    while (entries < n_base / STEP * 2)
        entries *= 2;
    *out = NULL;
    *size = n;
    if (n < 2 * VARINT || n_base > UINT32_MAX - 1)
        return F8_OK;
    encoder e = {.base = base, .bytes = bytes, .n_base = n_base, .n = n, .mask = entries - 1};
    e.table = F8_NEW_ARRAY(arena, uint32_t, entries);
    e.out = F8_NEW_ARRAY(arena, uint8_t, n);
    if (!e.table || !e.out)
        return f8_arena_status(arena, diag);
    index_base(&e);
    if (encode(&e)) {
        *out = e.out;
        *size = e.size;
    }
    return F8_OK;
}

/* ---- decoding ---- */

bool f8_delta_size(const uint8_t *delta, size_t n, size_t most, size_t *size)
{
    uint64_t whole;
    const uint8_t *at = delta;
    if (!get_number(&at, delta + n, &whole) || whole > most)
        return false;
    *size = (size_t)whole;
    return true;
}

bool f8_delta_apply(const uint8_t *base, size_t n_base, const uint8_t *delta, size_t n,
                    uint8_t *out, size_t size)
{
    const uint8_t *at = delta, *end = delta + n;
    uint64_t head, from;
    size_t done = 0;
    if (!get_number(&at, end, &head) || head != size)
        return false;
    while (at < end) {
        if (!get_number(&at, end, &head) || head >> 1 == 0 || head >> 1 > size - done)
            return false;
        const size_t length = (size_t)(head >> 1);
        if (head & 1) {
            if (!get_number(&at, end, &from) || from > n_base || length > n_base - from)
                return false;
            memcpy(out + done, base + from, length);
        } else {
            if (length > (size_t)(end - at))
                return false;
            memcpy(out + done, at, length);
            at += length;
        }
        done += length;
    }
    return done == size;
}
