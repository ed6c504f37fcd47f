/* Hashes of bytes: known values of XXH3's 128 bits, parts, text. */
#include <stdlib.h>
#include <string.h>

#include "ir/base/hash.h"
#include "tests/shared/suite.h"

/* Fixed: files and cached kernels are found by them. */
START_TEST(known)
{
    char text[33];
    ck_assert_str_eq(f8_hash_text(f8_hash_bytes("", 0), text), "99aa06d3014798d86001c324468d497f");
    ck_assert_str_eq(f8_hash_text(f8_hash_bytes("a", 1), text), "a96faf705af16834e6c632b61e964e1f");
    ck_assert_str_eq(f8_hash_text(f8_hash_bytes("abc", 3), text),
                     "06b05ab6733a618578af5f94892f3950");
}
END_TEST

/* However the bytes are cut, the hash is of all. */
START_TEST(parts)
{
    enum { N = 5000 };
    uint8_t *bytes = malloc(N);
    srand(7);
    for (int i = 0; i < N; i++)
        bytes[i] = (uint8_t)rand();
    for (size_t size = 0; size <= N; size += size < 300 ? 1 : 997) {
        const f8_hash whole = f8_hash_bytes(bytes, size);
        f8_hasher h;
        f8_hasher_begin(&h);
        for (size_t at = 0, n; at < size; at += n) {
            n = (size_t)rand() % 700;
            n = n < size - at ? n : size - at;
            f8_hasher_add(&h, bytes + at, n);
            if (rand() % 4 == 0) {
                const f8_hash part = f8_hash_bytes(bytes, at + n);
                ck_assert(f8_hash_equal(f8_hasher_end(&h), part));
            }
        }
        ck_assert_msg(f8_hash_equal(f8_hasher_end(&h), whole), "%zu bytes", size);
        if (size) {
            bytes[size / 2] ^= 1;
            ck_assert(!f8_hash_equal(f8_hash_bytes(bytes, size), whole));
            bytes[size / 2] ^= 1;
        }
    }
    free(bytes);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("hash");
    TCase *t = tcase_create("hash");
    tcase_add_test(t, known);
    tcase_add_test(t, parts);
    suite_add_tcase(s, t);
    return s;
}
