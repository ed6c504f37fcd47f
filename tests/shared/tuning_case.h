/* A folder for tuning databases, and what their tests do with files. */
#ifndef F8_TUNING_CASE_H
#define F8_TUNING_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tune/tuning_db.h"
#include "tests/shared/suite.h"

static char folder[64], path[128]; /* path: of a database that is not made yet */
static f8_arena arena;
static const f8_tuning_key here = {"cpu here, 2 threads", "library 1"};

static inline void setup(void)
{
    strcpy(folder, "/tmp/fp8c_tuning_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/b/tuning.db", folder);
    f8_arena_init(&arena, NULL);
}

static inline void teardown(void)
{
    char command[128];
    f8_arena_end(&arena);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

#define OK(expr)                                                       \
    do {                                                               \
        f8_diag d_ = {0};                                              \
        f8_diag *const diag = &d_;                                     \
        ck_assert_msg((expr) == F8_OK, #expr ": %s", d_.text);         \
    } while (0)

static inline f8_tuning *open_at(const char *file)
{
    f8_tuning *t;
    OK(f8_tuning_open(file, NULL, &t, diag));
    return t;
}

/* Any SQL. A file of schema 1 is upgraded first. */
static inline void change(const char *file, const char *sql)
{
    f8_db db;
    OK(f8_db_open(&db, file, F8_DB_WRITE, 10, diag));
    OK(f8_db_do(&db, sql, diag));
    f8_db_close(&db);
}

static inline void write_bytes(const char *file, const void *bytes, size_t n)
{
    FILE *f = fopen(file, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

/* In the arena, with a zero behind it. */
static inline char *read_bytes(const char *file, size_t *n)
{
    FILE *f = fopen(file, "rb");
    ck_assert_msg(f != NULL, "%s", file);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = f8_arena_array(&arena, *n + 1, 1);
    ck_assert_uint_eq(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static uint32_t seed = 1;

static inline uint32_t next_random(void)
{
    return (seed = seed * 1664525u + 1013904223u) >> 8;
}

static inline void read_seed(void)
{
    const char *given = getenv("FP8C_TEST_SEED");
    seed = given ? (uint32_t)strtoul(given, NULL, 10) : 1;
    printf("seed %u\n", seed);
}

#endif
