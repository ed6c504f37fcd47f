/* For tests of the kernel cache's store: a cache in a folder of the test's own, its entries by
 * text, their files, and the warnings that it logged. */
#ifndef TEST_CACHE_CASE_H
#define TEST_CACHE_CASE_H

#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/cache/cache.h"
#include "tests/shared/api/cli.h"

enum { HEADER = 48, NOBODY = 65534, ROOM = 4400 };

static char folder[ROOM]; /* of the cache; not made yet */
static f8_arena arena;
static char warned[1200];
static int n_warned;

static inline void on_log(void *user, f8_log_level level, const char *text)
{
    (void)user;
    ck_assert_int_eq(level, F8_LOG_WARNING);
    snprintf(warned, sizeof warned, "%s", text);
    n_warned++;
}

static inline int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void setup(void)
{
    f8_cli_setup();
    snprintf(folder, sizeof folder, "%s", f8_cli_temp("cache"));
    f8_arena_init(&arena, NULL);
    n_warned = 0;
}

static inline void teardown(void)
{
    f8_arena_end(&arena);
    remove_tree(folder);
    f8_cli_teardown();
}

static inline f8_status try_open(int64_t most, f8_cache **out, f8_diag *why)
{
    static const f8_log log = {on_log, NULL, F8_LOG_WARNING};
    *why = (f8_diag){0};
    return f8_cache_open(&(f8_cache_options){.folder = folder, .most_bytes = most, .log = &log},
                         out, why);
}

static inline f8_cache *open_cache(int64_t most)
{
    f8_cache *c;
    f8_diag why;
    ck_assert_msg(try_open(most, &c, &why) == F8_OK, "%s", why.text);
    return c;
}

/* The folder is refused, with this in the message. */
static inline void refused(const char *words)
{
    f8_cache *c;
    f8_diag why;
    ck_assert_int_eq(try_open(0, &c, &why), F8_ERR_IO);
    ck_assert_ptr_null(c);
    ck_assert_msg(strstr(why.text, words) && strstr(why.text, folder), "%s", why.text);
}

static inline f8_cache_key key_of(const char *text)
{
    return f8_cache_key_of(text, strlen(text));
}

static inline void put(f8_cache *c, const char *key, const char *value)
{
    const f8_cache_key k = key_of(key);
    f8_cache_put(c, &k, value, strlen(value));
}

/* The key's value is `value`; NULL: it is not there. */
static inline void expect(f8_cache *c, const char *key, const char *value)
{
    const f8_cache_key k = key_of(key);
    f8_cache_value v;
    const bool found = f8_cache_get(c, &k, &arena, &v);
    ck_assert_msg(found == (value != NULL), "'%s' was %sfound", key, found ? "" : "not ");
    if (!value) {
        ck_assert_ptr_null(v.bytes);
        return;
    }
    ck_assert_uint_eq(v.size, strlen(value));
    ck_assert(!memcmp(v.bytes, value, v.size));
    ck_assert_uint_eq((uintptr_t)v.bytes % 16, 0);
}

/* The file of a key's entry. */
static inline const char *file_of(const char *key)
{
    static char path[2][ROOM + 80];
    static int next;
    char digits[33];
    f8_hash_text(key_of(key).hash, digits);
    char *to = path[next++ % 2];
    snprintf(to, sizeof path[0], "%s/kernels/%c/%s", folder, digits[0], digits + 1);
    return to;
}

static inline void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fwrite(bytes, 1, n, f) == n && !fclose(f), "%s", path);
    ck_assert(!chmod(path, 0600));
}

#endif
