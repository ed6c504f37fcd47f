/* 128-bit hashes of bytes: they name cached kernels, seal files and find equal parts of a file.
 *
 * This is XXH3's 128-bit hash (https://xxhash.com) with seed 0. It is the same on every machine, so
 * it may be stored. It protects against accidents, not against an adversary: whoever can write a
 * file can make it match. */
#ifndef F8_HASH_H
#define F8_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct f8_hash {
    uint64_t lo, hi;
} f8_hash;

/* FNV-1a, 64 bits, of a NUL-terminated text: for tables, and for keys that are short texts. h is
 * F8_FNV, or the hash of the text before this one: the hash of parts one after the other is the
 * hash of the whole. */
#define F8_FNV 0xcbf29ce484222325u
uint64_t f8_fnv(uint64_t h, const char *text);

f8_hash f8_hash_bytes(const void *bytes, size_t size);

/* For bytes that come in parts: the hash of all of them one after the other. */
typedef struct f8_hasher {
    _Alignas(64) uint8_t state[640];
} f8_hasher;
void f8_hasher_begin(f8_hasher *h);
void f8_hasher_add(f8_hasher *h, const void *bytes, size_t size);
/* The hash of what was added so far; more may follow. */
f8_hash f8_hasher_end(const f8_hasher *h);

static inline bool f8_hash_equal(f8_hash a, f8_hash b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* 32 hexadecimal digits, the high half first, and a NUL. Returns text. */
char *f8_hash_text(f8_hash hash, char text[33]);

#endif
