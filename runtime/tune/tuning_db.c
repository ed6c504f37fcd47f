/* SQLite as the tuning database uses it: see tuning_db.h. */
#include "runtime/tune/tuning_db.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/base/file.h"
#include "ir/base/format.h"
#include "ir/base/owner.h"

static const char *const names[] = {SQLITE_SYMBOLS(F8_DYNLIB_NAME)};
static const char *const files[] = {"libsqlite3.so.0", NULL};

/* "fp8c", in the file's header: it tells a tuning database from others. */
#define APPLICATION 0x66703863

enum { LEAST_BYTES = 512 /* SQLite's smallest page */ };

/* A version that knows schema 1 alone may have the file open when this one upgrades it: the
 * defaults are for what it puts then. */
#define TIMING                                                                                     \
    "CREATE TABLE timing (device TEXT NOT NULL, versions TEXT NOT NULL, problem TEXT NOT NULL,"    \
    " how TEXT NOT NULL DEFAULT '" F8_TUNING_STEP "', candidate TEXT NOT NULL, name TEXT NOT"      \
    " NULL, seconds REAL NOT NULL, median REAL NOT NULL, runs INTEGER NOT NULL,"                   \
    " samples TEXT NOT NULL DEFAULT '', facts TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL,"      \
    " PRIMARY KEY (device, versions, problem, how, candidate)) WITHOUT ROWID;"
#define CHOICE                                                                                     \
    "CREATE TABLE choice (device TEXT NOT NULL, versions TEXT NOT NULL, problem TEXT NOT NULL,"    \
    " candidate TEXT NOT NULL, name TEXT NOT NULL, seconds REAL NOT NULL,"                         \
    " model_seconds REAL NOT NULL, at INTEGER NOT NULL,"                                           \
    " PRIMARY KEY (device, versions, problem)) WITHOUT ROWID;"
#define PROCESS                                                                                    \
    "CREATE TABLE process (id TEXT NOT NULL PRIMARY KEY, device TEXT NOT NULL,"                    \
    " facts TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;"

static const char schema[] = TIMING CHOICE PROCESS "PRAGMA application_id = 1718630499;"
                                                   "PRAGMA user_version = 2";
static const char upgrade[] =
    "ALTER TABLE timing RENAME TO timing_1;" TIMING PROCESS
    "INSERT INTO timing (device, versions, problem, candidate, name, seconds, median, runs, at)"
    " SELECT device, versions, problem, candidate, name, seconds, median, runs, at FROM timing_1;"
    "DROP TABLE timing_1;"
    "PRAGMA user_version = 2";

_Static_assert(APPLICATION == 1718630499 && F8_TUNING_SCHEMA == 2, "as the schema has them");

f8_status f8_db_fail(f8_db *db, f8_diag *diag)
{
    const int code = db->handle ? db->api.sqlite3_extended_errcode(db->handle) : SQLITE_NOMEM;
    const char *why = db->handle ? db->api.sqlite3_errmsg(db->handle) : "out of memory";
    db->code = db->code ? db->code : code;
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return f8_file_fail(diag, F8_ERR_MEMORY, db->path, "tuning database: %s", why);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return f8_file_fail(diag, F8_ERR_IO, db->path,
                            "tuning database: another process has it locked");
    case SQLITE_NOTADB:
        return f8_file_fail(diag, F8_ERR_IO, db->path, "this is no tuning database");
    case SQLITE_CORRUPT:
        return f8_file_fail(diag, F8_ERR_IO, db->path,
                            "tuning database: it is damaged (%s); move it away to start a new one",
                            why);
    default: return f8_file_fail(diag, F8_ERR_IO, db->path, "tuning database: %s", why);
    }
}

/* ---- statements ---- */

f8_status f8_db_do(f8_db *db, const char *sql, f8_diag *diag)
{
    return db->api.sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK
               ? F8_OK
               : f8_db_fail(db, diag);
}

f8_status f8_db_prepare(f8_db *db, const char *sql, int n, const char *const *text,
                        sqlite3_stmt **out, f8_diag *diag)
{
    *out = NULL;
    int code = db->api.sqlite3_prepare_v2(db->handle, sql, -1, out, NULL);
    for (int i = 0; i < n && code == SQLITE_OK; i++) /* NULL: they outlive the statement */
        code = db->api.sqlite3_bind_text(*out, i + 1, text[i], -1, NULL);
    if (code == SQLITE_OK)
        return F8_OK;
    const f8_status status = f8_db_fail(db, diag);
    db->api.sqlite3_finalize(*out);
    *out = NULL;
    return status;
}

f8_status f8_db_step(f8_db *db, sqlite3_stmt *s, bool *row, f8_diag *diag)
{
    const int code = db->api.sqlite3_step(s);
    *row = code == SQLITE_ROW;
    return code == SQLITE_ROW || code == SQLITE_DONE ? F8_OK : f8_db_fail(db, diag);
}

const char *f8_db_text(const f8_db *db, sqlite3_stmt *s, int column, f8_arena *arena)
{
    const unsigned char *text = db->api.sqlite3_column_text(s, column);
    return f8_arena_strdup(arena, text ? (const char *)text : "");
}

f8_status f8_db_begin(f8_db *db, f8_diag *diag)
{
    return f8_db_do(db, "BEGIN IMMEDIATE", diag);
}

f8_status f8_db_end(f8_db *db, f8_status status, f8_diag *diag)
{
    if (status == F8_OK)
        status = f8_db_do(db, "COMMIT", diag);
    if (status != F8_OK) /* SQLite has ended the transaction itself if the disk failed: this then
                            does nothing */
        db->api.sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* ---- opening ---- */

static f8_status number(f8_db *db, const char *sql, int64_t *out, f8_diag *diag)
{
    sqlite3_stmt *s;
    bool row;
    F8_TRY(f8_db_prepare(db, sql, 0, NULL, &s, diag));
    const f8_status status = f8_db_step(db, s, &row, diag);
    *out = status == F8_OK && row ? db->api.sqlite3_column_int64(s, 0) : 0;
    db->api.sqlite3_finalize(s);
    return status;
}

/* Finds out what the file is: empty (*empty), or a tuning database of a known schema. */
static f8_status check(f8_db *db, bool *empty, f8_diag *diag)
{
    int64_t application, version, tables, others;
    F8_TRY(number(db, "PRAGMA application_id", &application, diag));
    F8_TRY(number(db, "PRAGMA user_version", &version, diag));
    F8_TRY(number(db, "SELECT count(*) FROM sqlite_master", &tables, diag));
    F8_TRY(number(db, "SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')",
                  &others, diag));
    *empty = !application && !version && !tables;
    if (!*empty && application != APPLICATION)
        return f8_file_fail(diag, F8_ERR_IO, db->path,
                            "this is a database, but no tuning database");
    if (!*empty && (version < 1 || version > F8_TUNING_SCHEMA))
        return f8_file_fail(diag, F8_ERR_UNSUPPORTED, db->path,
                            "tuning database: it has schema %lld; this version of fp8c knows 1 to"
                            " %d",
                            (long long)version, F8_TUNING_SCHEMA);
    db->schema = (int)version;
    if (others)
        return f8_file_fail(diag, F8_ERR_IO, db->path,
                            "tuning database: it has views or triggers, which fp8c never makes");
    return F8_OK;
}

f8_status f8_db_begin_read(f8_db *db, bool *empty, f8_diag *diag)
{
    F8_TRY(f8_db_do(db, "BEGIN", diag));
    const f8_status status = check(db, empty, diag);
    return status == F8_OK ? F8_OK : f8_db_end(db, status, diag);
}

/* Makes the tables, or those of schema 1 into today's, in one transaction. */
static f8_status make_schema(f8_db *db, f8_diag *diag)
{
    bool empty;
    F8_TRY(f8_db_begin(db, diag));
    f8_status status = check(db, &empty, diag); /* another process may have made it */
    if (status == F8_OK && db->schema != F8_TUNING_SCHEMA)
        status = f8_db_do(db, empty ? schema : upgrade, diag);
    if (status == F8_OK)
        db->schema = F8_TUNING_SCHEMA;
    return f8_db_end(db, status, diag);
}

/* Makes the folders that the file lies in. A failure shows when the file is opened. */
static void make_folders(const char *path)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return;
    for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(folder, 0700);
        *at = '/';
    }
}

/* The file with links followed, as SQLite itself would; a file that is still missing in the folder
 * that it will lie in. Where that can't be known, SQLite says what is wrong with the path. */
static f8_status follow(const char *path, char real[PATH_MAX], f8_diag *diag)
{
    char folder[PATH_MAX], begin[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const int n = slash > path ? (int)(slash - path) : slash != NULL;
    int used;
    if (realpath(path, real))
        return F8_OK;
    snprintf(begin, sizeof begin, "%.*s", n ? n : 1, n ? path : ".");
    if (realpath(begin, folder))
        used = snprintf(real, PATH_MAX, "%s/%s", folder, name);
    else
        used = snprintf(real, PATH_MAX, "%s", path);
    return used < PATH_MAX ? F8_OK
                           : f8_file_fail(diag, F8_ERR_IO, path, "tuning database: %s",
                                          f8_errno_text(ENAMETOOLONG));
}

/* Whether only this user may write the file, and what SQLite reads beside it, and nobody else may
 * put others in their places. */
static f8_status check_owner(const char *real, f8_diag *diag)
{
    static const char *const beside[] = {"", "-journal", "-wal", "-shm"};
    const char *slash = strrchr(real, '/');
    char path[PATH_MAX + 16];
    struct stat s;
    snprintf(path, sizeof path, "%.*s", slash ? (int)(slash - real) + 1 : 0, real);
    const int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return F8_OK; /* nor can SQLite open a file there */
    f8_status status = f8_owner_folder(folder, "the tuning database's folder", path, diag);
    close(folder);
    for (size_t i = 0; i < sizeof beside / sizeof *beside && status == F8_OK; i++) {
        snprintf(path, sizeof path, "%s%s", real, beside[i]);
        if (!lstat(path, &s))
            status = f8_owner_file(&s, "the tuning database", path, diag);
    }
    return status;
}

/* What is in a file may not make SQLite do more than read and write rows. */
static f8_status be_defensive(f8_db *db, f8_diag *diag)
{
    int defensive = 0, trusting = 1;
    db->api.sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, &defensive);
    db->api.sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, &trusting);
    return defensive && !trusting ? F8_OK
                                  : f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                                            "SQLite 3.31 or later is needed, this is %s",
                                            db->api.sqlite3_libversion());
}

/* write: also where `use` is to read, to roll back what was left half done. */
static f8_status open_file(f8_db *db, f8_db_use use, bool write, const char *real, int patience,
                           f8_diag *diag)
{
    const int flags = SQLITE_OPEN_NOFOLLOW |
                      (write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
    bool empty;
    struct stat s;
    if (stat(real, &s) == 0 && s.st_size > 0 &&
        s.st_size < LEAST_BYTES) /* which SQLite takes for empty */
        return f8_file_fail(diag, F8_ERR_IO, db->path, "this is no tuning database");
    if (db->api.sqlite3_open_v2(real, &db->handle, flags, NULL) != SQLITE_OK)
        return f8_db_fail(db, diag);
    F8_TRY(be_defensive(db, diag));
    db->api.sqlite3_busy_timeout(db->handle, patience);
    F8_TRY(f8_db_begin_read(db, &empty, diag)); /* another process may be making it */
    F8_TRY(f8_db_end(db, F8_OK, diag));
    if (!write)
        return empty ? f8_file_fail(diag, F8_ERR_IO, db->path, "tuning database: it is empty")
                     : F8_OK;
    if (db->api.sqlite3_db_readonly(db->handle, "main"))
        return f8_file_fail(diag, F8_ERR_IO, db->path, "tuning database: it can't be written");
    F8_TRY(f8_db_do(db, "PRAGMA quick_check", diag));
    return empty || (use == F8_DB_WRITE && db->schema != F8_TUNING_SCHEMA) ? make_schema(db, diag)
                                                                           : F8_OK;
}

static f8_status open_checked(f8_db *db, f8_db_use use, int patience, f8_diag *diag)
{
    char real[PATH_MAX];
    f8_diag owner = {0};
    F8_TRY(follow(db->path, real, diag));
    if (use != F8_DB_TAKE && check_owner(real, &owner) != F8_OK)
        return f8_file_fail(diag, owner.status, db->path, "%s", owner.text);
    const f8_status status = open_file(db, use, use == F8_DB_WRITE, real, patience, diag);
    if (status == F8_OK || use == F8_DB_WRITE || db->code != SQLITE_READONLY_ROLLBACK)
        return status;
    /* Opening the file for writing rolls back what a killed writer left half done. */
    db->api.sqlite3_close_v2(db->handle);
    db->handle = NULL;
    if (diag)
        *diag = (f8_diag){0};
    return open_file(db, use, true, real, patience, diag);
}

f8_status f8_db_open(f8_db *db, const char *path, f8_db_use use, int patience, f8_diag *diag)
{
    *db = (f8_db){.path = path};
    F8_TRY(f8_dynlib_open("SQLite 3", files, &db->lib, diag));
    F8_TRY(f8_dynlib_symbols(&db->lib, names, sizeof names / sizeof *names, &db->api, diag));
    if (use == F8_DB_WRITE)
        make_folders(path);
    f8_diag why = {0};
    const f8_status status = open_checked(db, use, patience, &why);
    if (status == F8_OK)
        return F8_OK;
    f8_db_close(db);
    if (diag && diag->status == F8_OK)
        *diag = why;
    return status;
}

void f8_db_close(f8_db *db)
{
    if (db->handle)
        db->api.sqlite3_close_v2(db->handle);
    db->handle = NULL;
    f8_dynlib_close(&db->lib);
}
