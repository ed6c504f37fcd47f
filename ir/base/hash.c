/* Hashes: see hash.h. */
#include "ir/base/hash.h"

#include <inttypes.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(f8_hasher), "a hasher holds the library's state");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(f8_hasher), "and is aligned for it");

static f8_hash from_xxh(XXH128_hash_t h)
{
    return (f8_hash){h.low64, h.high64};
}

static const XXH3_state_t *state_of(const f8_hasher *h)
{
    return (const XXH3_state_t *)(const void *)h->state;
}

uint64_t f8_fnv(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

f8_hash f8_hash_bytes(const void *bytes, size_t size)
{
    return from_xxh(XXH3_128bits(bytes, size));
}

void f8_hasher_begin(f8_hasher *h)
{
    XXH3_state_t *s = (XXH3_state_t *)(void *)h->state;
    XXH3_INITSTATE(s);
    XXH3_128bits_reset(s);
}

void f8_hasher_add(f8_hasher *h, const void *bytes, size_t size)
{
    if (size)
        XXH3_128bits_update((XXH3_state_t *)(void *)h->state, bytes, size);
}

f8_hash f8_hasher_end(const f8_hasher *h)
{
    return from_xxh(XXH3_128bits_digest(state_of(h)));
}

char *f8_hash_text(f8_hash hash, char text[33])
{
    snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, hash.hi, hash.lo);
    return text;
}
