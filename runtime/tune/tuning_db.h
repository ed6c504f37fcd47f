/* SQLite as the tuning database uses it: loading it, opening a file, statements. Internal to this
 * folder. */
#ifndef F8_TUNING_DB_H
#define F8_TUNING_DB_H

#include <sqlite3.h>

#include "runtime/base/dynlib.h"
#include "runtime/tune/tuning.h"

#define SQLITE_SYMBOLS(X)                                                                          \
    X(sqlite3_libversion)                                                                          \
    X(sqlite3_open_v2)                                                                             \
    X(sqlite3_close_v2)                                                                            \
    X(sqlite3_busy_timeout)                                                                        \
    X(sqlite3_db_config)                                                                           \
    X(sqlite3_db_readonly)                                                                         \
    X(sqlite3_errmsg)                                                                              \
    X(sqlite3_extended_errcode)                                                                    \
    X(sqlite3_exec)                                                                                \
    X(sqlite3_prepare_v2)                                                                          \
    X(sqlite3_bind_text)                                                                           \
    X(sqlite3_bind_double)                                                                         \
    X(sqlite3_bind_int64)                                                                          \
    X(sqlite3_step)                                                                                \
    X(sqlite3_column_text)                                                                         \
    X(sqlite3_column_double)                                                                       \
    X(sqlite3_column_int64)                                                                        \
    X(sqlite3_finalize)

typedef struct sqlite_api {
    SQLITE_SYMBOLS(F8_DYNLIB_FIELD)
} sqlite_api;

/* An open file. */
typedef struct f8_db {
    sqlite_api api;
    f8_dynlib lib;
    sqlite3 *handle;
    const char *path; /* borrowed */
    int schema;       /* of the file: 1, or F8_TUNING_SCHEMA */
    int code;         /* SQLite's extended code of the first failure */
} f8_db;

typedef enum f8_db_use {
    F8_DB_READ,
    F8_DB_WRITE, /* the file is made if it is missing, and has F8_TUNING_SCHEMA from now on */
    F8_DB_TAKE   /* to read the rows of another's database, which anybody may own */
} f8_db_use;

/* Opens the file. What is no tuning database, or is one of a later schema, is refused; but for
 * F8_DB_TAKE so is one that others may write (ir/base/owner.h), as are its journal and its folder.
 * After a failure nothing is open. */
f8_status f8_db_open(f8_db *db, const char *path, f8_db_use use, int patience, f8_diag *diag);
void f8_db_close(f8_db *db);

/* SQLite's last failure as a status, with "PATH: what SQLite says". */
f8_status f8_db_fail(f8_db *db, f8_diag *diag);

f8_status f8_db_do(f8_db *db, const char *sql, f8_diag *diag);
/* A statement with texts bound to ?1, ?2, ... */
f8_status f8_db_prepare(f8_db *db, const char *sql, int n, const char *const *text,
                        sqlite3_stmt **out, f8_diag *diag);
/* The next row: *row is false past the last. */
f8_status f8_db_step(f8_db *db, sqlite3_stmt *s, bool *row, f8_diag *diag);
/* A column's text in the arena, "" for NULL. */
const char *f8_db_text(const f8_db *db, sqlite3_stmt *s, int column, f8_arena *arena);

/* Begin to read one state of the file, and find out what it is by now. *empty: it has no tables. */
f8_status f8_db_begin_read(f8_db *db, bool *empty, f8_diag *diag);
/* BEGIN IMMEDIATE, then COMMIT or, if status is a failure, ROLLBACK. */
f8_status f8_db_begin(f8_db *db, f8_diag *diag);
f8_status f8_db_end(f8_db *db, f8_status status, f8_diag *diag);

#endif
