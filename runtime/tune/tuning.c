/* The tuning database: rows. See tuning.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ir/base/file.h"
#include "runtime/tune/tuning_db.h"

enum { PATIENCE = 30000 /* milliseconds that tune waits for another writer */ };

f8_status f8_tuning_open(const char *path, const f8_allocator *allocator, f8_tuning **out,
                         f8_diag *diag)
{
    *out = NULL;
    const f8_allocator al = allocator ? *allocator : f8_default_allocator();
    const size_t size = sizeof(f8_tuning) + strlen(path) + 1;
    f8_tuning *t = al.alloc(al.user, size, 16);
    if (!t)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       size);
    *t = (f8_tuning){.allocator = al, .size = size};
    char *own = strcpy((char *)(t + 1), path);
    const f8_status status = f8_db_open(&t->db, own, F8_DB_WRITE, PATIENCE, diag);
    if (status != F8_OK) {
        if (diag && diag->file == own)
            diag->file = path;
        al.free(al.user, t, size);
        return status;
    }
    snprintf(t->description, sizeof t->description, "SQLite %s", t->db.api.sqlite3_libversion());
    *out = t;
    return F8_OK;
}

void f8_tuning_list(f8_tuning *t, f8_temporaries *temporaries)
{
    t->temporaries = temporaries;
}

void f8_tuning_close(f8_tuning *t)
{
    if (!t)
        return;
    f8_db_close(&t->db);
    const f8_allocator al = t->allocator;
    al.free(al.user, t, t->size);
}

const char *f8_tuning_describe(const f8_tuning *t)
{
    return t->description;
}

/* ---- rows ---- */

f8_status f8_tuning_take(f8_db *db, const f8_tuning_row *r, bool always, bool *taken, f8_diag *diag)
{
    static const char *const newer[] = {
        "SELECT 1 FROM timing WHERE device=?1 AND versions=?2 AND problem=?3 AND candidate=?4 AND "
        "at>=?6",
        "SELECT 1 FROM choice WHERE device=?1 AND versions=?2 AND problem=?3 AND at>=?6"};
    static const char *const insert[] = {
        "INSERT OR REPLACE INTO timing (device, versions, problem, candidate, name, at, seconds, "
        "median, runs)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        "INSERT OR REPLACE INTO choice (device, versions, problem, candidate, name, at, seconds,"
        " model_seconds) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"};
    const char *text[] = {r->device, r->versions, r->problem, r->candidate, r->name};
    bool row = false;
    sqlite3_stmt *s;
    f8_status status = F8_OK;
    *taken = false;
    if (!always) {
        F8_TRY(f8_db_prepare(db, newer[r->is_choice], r->is_choice ? 3 : 4, text, &s, diag));
        db->api.sqlite3_bind_int64(s, 6, r->at);
        status = f8_db_step(db, s, &row, diag);
        db->api.sqlite3_finalize(s);
        if (status != F8_OK || row)
            return status;
    }
    F8_TRY(f8_db_prepare(db, insert[r->is_choice], 5, text, &s, diag));
    db->api.sqlite3_bind_int64(s, 6, r->at);
    db->api.sqlite3_bind_double(s, 7, r->seconds);
    db->api.sqlite3_bind_double(s, 8, r->other);
    if (!r->is_choice)
        db->api.sqlite3_bind_int64(s, 9, r->runs);
    status = f8_db_step(db, s, &row, diag);
    db->api.sqlite3_finalize(s);
    *taken = status == F8_OK;
    return status;
}

static f8_status put(f8_tuning *t, const f8_tuning_row *base, const f8_timing *timing, size_t n,
                     const f8_tuning_choice *choice, f8_diag *diag)
{
    f8_tuning_row r = *base;
    bool taken;
    for (size_t i = 0; i < n; i++) {
        r.candidate = timing[i].candidate;
        r.seconds = timing[i].seconds;
        r.other = timing[i].median;
        r.runs = timing[i].runs;
        F8_TRY(f8_tuning_take(&t->db, &r, true, &taken, diag));
    }
    if (!choice)
        return F8_OK;
    r.is_choice = true;
    r.candidate = choice->candidate;
    r.seconds = choice->seconds;
    r.other = choice->model_seconds;
    return f8_tuning_take(&t->db, &r, true, &taken, diag);
}

f8_status f8_tuning_put(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        const char *name, const f8_timing *timing, size_t n,
                        const f8_tuning_choice *choice, f8_diag *diag)
{
    const f8_tuning_row base = {.device = key->device,
                                .versions = key->versions,
                                .problem = problem,
                                .name = name,
                                .at = (int64_t)time(NULL)};
    F8_TRY(f8_db_begin(&t->db, diag));
    return f8_db_end(&t->db, put(t, &base, timing, n, choice, diag), diag);
}

f8_status f8_tuning_get(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        f8_arena *arena, f8_timing **out, size_t *n, f8_diag *diag)
{
    const char *text[] = {key->device, key->versions, problem};
    sqlite3_stmt *s;
    size_t room = 0;
    bool row;
    *out = NULL;
    *n = 0;
    F8_TRY(f8_db_prepare(&t->db,
                         "SELECT candidate, seconds, median, runs FROM timing WHERE device=?1 AND"
                         " versions=?2 AND problem=?3 ORDER BY candidate",
                         3, text, &s, diag));
    f8_status status;
    while ((status = f8_db_step(&t->db, s, &row, diag)) == F8_OK && row) {
        f8_timing *grown = f8_arena_grow(arena, *out, *n, &room, *n + 1, sizeof *grown);
        if (!grown) {
            status = f8_arena_status(arena, diag);
            break;
        }
        *out = grown;
        grown[(*n)++] = (f8_timing){
            f8_db_text(&t->db, s, 0, arena), t->db.api.sqlite3_column_double(s, 1),
            t->db.api.sqlite3_column_double(s, 2), t->db.api.sqlite3_column_int64(s, 3)};
    }
    t->db.api.sqlite3_finalize(s);
    return status == F8_OK ? f8_arena_status(arena, diag) : status;
}

f8_status f8_tuning_chosen(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                           f8_arena *arena, f8_tuning_choice *out, bool *found, f8_diag *diag)
{
    const char *text[] = {key->device, key->versions, problem};
    sqlite3_stmt *s;
    *found = false;
    F8_TRY(f8_db_prepare(&t->db,
                         "SELECT candidate, seconds, model_seconds FROM choice WHERE device=?1 AND"
                         " versions=?2 AND problem=?3",
                         3, text, &s, diag));
    const f8_status status = f8_db_step(&t->db, s, found, diag);
    if (status == F8_OK && *found)
        *out = (f8_tuning_choice){f8_db_text(&t->db, s, 0, arena),
                                  t->db.api.sqlite3_column_double(s, 1),
                                  t->db.api.sqlite3_column_double(s, 2)};
    t->db.api.sqlite3_finalize(s);
    return status == F8_OK ? f8_arena_status(arena, diag) : status;
}

static f8_status each_of(f8_db *db, bool choices, f8_tuning_row_fn fn, void *user, f8_diag *diag)
{
    sqlite3_stmt *s;
    bool row;
    F8_TRY(f8_db_prepare(
        db,
        choices ? "SELECT device, versions, problem, candidate, name, at, seconds,"
                  " model_seconds, 0 FROM choice ORDER BY device, versions, problem"
                : "SELECT device, versions, problem, candidate, name, at, seconds, median,"
                  " runs FROM timing ORDER BY device, versions, problem, candidate",
        0, NULL, &s, diag));
    f8_status status;
    while ((status = f8_db_step(db, s, &row, diag)) == F8_OK && row) {
        const char *text[5];
        for (int i = 0; i < 5; i++) {
            text[i] = (const char *)db->api.sqlite3_column_text(s, i);
            text[i] = text[i] ? text[i] : "";
        }
        const f8_tuning_row r = {.is_choice = choices, .device = text[0], .versions = text[1],
                                 .problem = text[2], .candidate = text[3], .name = text[4],
                                 .at = db->api.sqlite3_column_int64(s, 5),
                                 .seconds = db->api.sqlite3_column_double(s, 6),
                                 .other = db->api.sqlite3_column_double(s, 7),
                                 .runs = db->api.sqlite3_column_int64(s, 8)};
        if ((status = fn(user, &r, diag)) != F8_OK)
            break;
    }
    db->api.sqlite3_finalize(s);
    return status;
}

f8_status f8_tuning_each(f8_db *db, f8_tuning_row_fn fn, void *user, f8_diag *diag)
{
    F8_TRY(each_of(db, false, fn, user, diag));
    return each_of(db, true, fn, user, diag);
}

/* ---- for compiling ---- */

typedef struct tuned_row {
    const char *versions, *problem, *candidate;
} tuned_row;

struct f8_tuned {
    f8_arena *arena;
    const char *device;
    tuned_row *row; /* sorted */
    size_t n, room;
};

static int compare(const void *a, const void *b)
{
    const tuned_row *x = a, *y = b;
    const int by_problem = strcmp(x->problem, y->problem);
    return by_problem ? by_problem : strcmp(x->versions, y->versions);
}

static f8_status keep(f8_tuned *t, f8_db *db, f8_diag *diag)
{
    sqlite3_stmt *s;
    bool row;
    F8_TRY(f8_db_prepare(db, "SELECT versions, problem, candidate FROM choice WHERE device=?1", 1,
                         &t->device, &s, diag));
    f8_status status;
    while ((status = f8_db_step(db, s, &row, diag)) == F8_OK && row) {
        tuned_row *grown = f8_arena_grow(t->arena, t->row, t->n, &t->room, t->n + 1, sizeof *grown);
        const tuned_row one = {f8_db_text(db, s, 0, t->arena), f8_db_text(db, s, 1, t->arena),
                               f8_db_text(db, s, 2, t->arena)};
        if (!grown || !one.versions || !one.problem || !one.candidate) {
            status = f8_arena_status(t->arena, diag);
            break;
        }
        t->row = grown;
        grown[t->n++] = one;
    }
    db->api.sqlite3_finalize(s);
    return status;
}

f8_status f8_tuned_read(const char *path, const char *device, int patience, f8_arena *arena,
                        f8_tuned **out, f8_diag *diag)
{
    *out = NULL;
    if (access(path, F_OK) != 0)
        return F8_OK;
    f8_db db;
    f8_tuned *t = F8_NEW(arena, f8_tuned);
    if (!t)
        return f8_arena_status(arena, diag);
    *t = (f8_tuned){.arena = arena, .device = device};
    F8_TRY(f8_db_open(&db, path, F8_DB_READ, patience, diag));
    const f8_status status = keep(t, &db, diag);
    f8_db_close(&db);
    F8_TRY(status);
    if (t->n)
        qsort(t->row, t->n, sizeof *t->row, compare);
    *out = t;
    return F8_OK;
}

const char *f8_tuned_find(const f8_tuned *t, const char *versions, const char *problem)
{
    const tuned_row key = {versions, problem, NULL};
    const tuned_row *found = t && t->n ? bsearch(&key, t->row, t->n, sizeof key, compare) : NULL;
    return found ? found->candidate : NULL;
}

size_t f8_tuned_count(const f8_tuned *t)
{
    return t ? t->n : 0;
}

size_t f8_tuned_count_with(const f8_tuned *t, const char *versions)
{
    size_t n = 0;
    for (size_t i = 0; t && i < t->n; i++)
        n += !strcmp(t->row[i].versions, versions);
    return n;
}
