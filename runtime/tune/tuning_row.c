/* Rows of the tuning database: reading them, and storing one. See tuning_row.h. */
#include "runtime/tune/tuning_row.h"

#include <math.h>
#include <string.h>

#include "ir/base/file.h"
#include "ir/base/format.h"

/* ---- reading ---- */

/* All have the columns id, device, versions, problem, how, candidate, name, facts, samples, at,
 * seconds, other, runs. */
static const char *const selects[] = {
    [F8_TUNING_TIMING] = ("SELECT '', device, versions, problem, how, candidate, name, facts,"
                          " samples, at, seconds, median, runs FROM timing"),
    [F8_TUNING_CHOICE] = ("SELECT '', device, versions, problem, '', candidate, name, '', '', at,"
                          " seconds, model_seconds, 0 FROM choice"),
    [F8_TUNING_PROCESS] = ("SELECT id, device, '', '', '', '', '', facts, '', at, 0, 0, 0"
                           " FROM process")};
/* As `timing` was in schema 1; ?1, ?2, ... are those of no more than its own columns. */
static const char timing_1[] =
    "SELECT '', device, versions, problem, '" F8_TUNING_STEP "', candidate, name, '', '', at,"
    " seconds, median, runs FROM timing";

f8_status f8_tuning_select(f8_db *db, f8_tuning_kind kind, const char *where, int n,
                           const char *const *text, sqlite3_stmt **out, f8_diag *diag)
{
    char sql[512];
    const bool old = kind == F8_TUNING_TIMING && db->schema < F8_TUNING_SCHEMA;
    f8_format(sql, sizeof sql, "%s %s", old ? timing_1 : selects[kind], where);
    return f8_db_prepare(db, sql, n, text, out, diag);
}

static f8_status damaged(f8_db *db, const f8_tuning_row *r, const char *why, f8_diag *diag)
{
    char name[512];
    if (r->kind == F8_TUNING_PROCESS)
        f8_format(name, sizeof name, "process '%s'", r->id);
    else
        f8_format(name, sizeof name, "%s '%s' for '%s'",
                  r->kind == F8_TUNING_CHOICE ? "choice" : "timing of", r->candidate, r->problem);
    return f8_file_fail(diag, F8_ERR_IO, db->path,
                        "tuning database: %s is damaged (%s); move the file away to start a new"
                        " one",
                        name, why);
}

static bool check_numbers(const f8_tuning_row *r, char why[F8_TUNING_WHY])
{
    const bool ok = isfinite(r->seconds) && r->seconds >= 0 && isfinite(r->other) &&
                    r->other >= 0 && r->runs >= 0 && r->at >= 0;
    if (!ok)
        f8_format(why, F8_TUNING_WHY, "its numbers are negative or no numbers");
    return ok;
}

f8_status f8_tuning_next(f8_db *db, sqlite3_stmt *s, f8_tuning_kind kind, f8_arena *arena,
                         f8_tuning_row *out, bool *row, f8_diag *diag)
{
    char why[F8_TUNING_WHY];
    F8_TRY(f8_db_step(db, s, row, diag));
    if (!*row)
        return F8_OK;
    *out = (f8_tuning_row){.kind = kind,
                           .at = db->api.sqlite3_column_int64(s, 9),
                           .seconds = db->api.sqlite3_column_double(s, 10),
                           .other = db->api.sqlite3_column_double(s, 11),
                           .runs = db->api.sqlite3_column_int64(s, 12)};
    const char **to[] = {&out->id,  &out->device,    &out->versions, &out->problem,
                         &out->how, &out->candidate, &out->name,     &out->facts};
    for (int i = 0; i < 8; i++)
        *to[i] = f8_db_text(db, s, i, arena);
    F8_TRY(f8_arena_status(arena, diag));
    const char *samples = (const char *)db->api.sqlite3_column_text(s, 8);
    if (!check_numbers(out, why) ||
        !f8_tuning_parse_samples(samples ? samples : "", arena, out, why) ||
        !f8_tuning_parse_facts(arena, out, why))
        return damaged(db, out, why, diag);
    return f8_arena_status(arena, diag);
}

static f8_status each_of(f8_db *db, f8_tuning_kind kind, const char *order,
                         const f8_allocator *allocator, f8_tuning_row_fn fn, void *user,
                         f8_diag *diag)
{
    sqlite3_stmt *s;
    F8_TRY(f8_tuning_select(db, kind, order, 0, NULL, &s, diag));
    f8_status status;
    bool row;
    do {
        f8_arena arena;
        f8_tuning_row r;
        f8_arena_init(&arena, allocator);
        status = f8_tuning_next(db, s, kind, &arena, &r, &row, diag);
        if (status == F8_OK && row)
            status = fn(user, &r, diag);
        f8_arena_end(&arena);
    } while (status == F8_OK && row);
    db->api.sqlite3_finalize(s);
    return status;
}

f8_status f8_tuning_each(f8_db *db, const f8_allocator *allocator, f8_tuning_row_fn fn, void *user,
                         f8_diag *diag)
{
    const bool old = db->schema < F8_TUNING_SCHEMA;
    if (!old)
        F8_TRY(each_of(db, F8_TUNING_PROCESS, "ORDER BY id", allocator, fn, user, diag));
    F8_TRY(each_of(db, F8_TUNING_TIMING,
                   old ? "ORDER BY device, versions, problem, candidate"
                       : "ORDER BY device, versions, problem, how, candidate",
                   allocator, fn, user, diag));
    return each_of(db, F8_TUNING_CHOICE, "ORDER BY device, versions, problem", allocator, fn, user,
                   diag);
}

/* ---- storing ---- */

enum { KEY = 5 /* the most texts that a row is known by */ };

/* The texts that a row is known by, and the number of them. */
static int key_of(const f8_tuning_row *r, const char *key[KEY])
{
    const char *const all[] = {r->device, r->versions, r->problem, r->how, r->candidate};
    if (r->kind == F8_TUNING_PROCESS) {
        key[0] = r->id;
        return 1;
    }
    memcpy(key, all, sizeof all);
    return r->kind == F8_TUNING_TIMING ? 5 : 3;
}

static f8_status find(f8_db *db, const f8_tuning_row *r, f8_arena *arena, f8_tuning_row *there,
                      bool *found, f8_diag *diag)
{
    static const char *const where[] = {
        [F8_TUNING_TIMING] = ("WHERE device=?1 AND versions=?2 AND problem=?3 AND how=?4 AND"
                              " candidate=?5"),
        [F8_TUNING_CHOICE] = "WHERE device=?1 AND versions=?2 AND problem=?3",
        [F8_TUNING_PROCESS] = "WHERE id=?1"};
    const char *key[KEY];
    const int n = key_of(r, key);
    sqlite3_stmt *s;
    F8_TRY(f8_tuning_select(db, r->kind, where[r->kind], n, key, &s, diag));
    const f8_status status = f8_tuning_next(db, s, r->kind, arena, there, found, diag);
    db->api.sqlite3_finalize(s);
    return status;
}

static f8_status store(f8_db *db, const f8_tuning_row *r, f8_arena *arena, f8_diag *diag)
{
    static const char *const insert[] = {
        [F8_TUNING_TIMING] = ("INSERT OR REPLACE INTO timing (device, versions, problem, candidate,"
                              " name, how, facts, samples, at, seconds, median, runs) VALUES"
                              " (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"),
        [F8_TUNING_CHOICE] = ("INSERT OR REPLACE INTO choice (device, versions, problem, candidate,"
                              " name, at, seconds, model_seconds) VALUES"
                              " (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"),
        [F8_TUNING_PROCESS] = ("INSERT OR REPLACE INTO process (id, device, facts, at) VALUES"
                               " (?1, ?2, ?3, ?4)")};
    const bool process = r->kind == F8_TUNING_PROCESS;
    const char *samples = f8_tuning_samples_text(r, arena);
    const char *const text[] = {r->device, r->versions, r->problem, r->candidate,
                                r->name,   r->how,      r->facts,   samples},
                      *const of_process[] = {r->id, r->device, r->facts};
    const int n = process ? 3 : r->kind == F8_TUNING_TIMING ? 8 : 5;
    sqlite3_stmt *s;
    bool row;
    F8_TRY(f8_arena_status(arena, diag));
    if (!samples)
        return f8_file_fail(diag, F8_ERR_INPUT, db->path, "samples of '%s' have no JSON form",
                            r->candidate);
    F8_TRY(f8_db_prepare(db, insert[r->kind], n, process ? of_process : text, &s, diag));
    db->api.sqlite3_bind_int64(s, n + 1, r->at);
    if (!process) {
        db->api.sqlite3_bind_double(s, n + 2, r->seconds);
        db->api.sqlite3_bind_double(s, n + 3, r->other);
    }
    if (r->kind == F8_TUNING_TIMING)
        db->api.sqlite3_bind_int64(s, n + 4, r->runs);
    const f8_status status = f8_db_step(db, s, &row, diag);
    db->api.sqlite3_finalize(s);
    return status;
}

/* Whether a timing says that the candidate gave other bits. */
static bool is_dropped(const f8_tuning_row *r)
{
    return r->kind == F8_TUNING_TIMING && !r->runs && !r->n_samples;
}

f8_status f8_tuning_take(f8_db *db, const f8_tuning_row *r, bool always, f8_arena *arena,
                         bool *taken, f8_diag *diag)
{
    f8_tuning_row there, both, out;
    bool found;
    *taken = false;
    F8_TRY(find(db, r, arena, &there, &found, diag));
    there = found ? there : (f8_tuning_row){.facts = ""};
    f8_tuning_join(&there, r, always, arena, &both);
    const bool newer = always || !found || r->at > there.at,
               more = f8_tuning_count_runs(&both) > f8_tuning_count_runs(&there);
    if (!newer && (is_dropped(&there) || !more))
        return f8_arena_status(arena, diag);
    out = newer ? *r : there;
    if (!is_dropped(&out)) {
        out.samples = both.samples;
        out.n_samples = both.n_samples;
    }
    if (!*out.facts)
        out.facts = newer ? there.facts : r->facts;
    f8_tuning_figures(&out, arena);
    F8_TRY(f8_arena_status(arena, diag));
    F8_TRY(store(db, &out, arena, diag));
    *taken = true;
    return F8_OK;
}
