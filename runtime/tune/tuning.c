/* The tuning database: rows. See tuning.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/tune/tuning_row.h"

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

static f8_status take(f8_tuning *t, const f8_tuning_row *row, f8_diag *diag)
{
    f8_arena arena;
    char why[F8_TUNING_WHY];
    bool taken;
    f8_tuning_row r = *row;
    f8_arena_init(&arena, &t->allocator);
    f8_status status =
        f8_tuning_check_samples(&arena, &r, why) && f8_tuning_parse_facts(&arena, &r, why)
            ? f8_arena_status(&arena, diag)
            : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s", why);
    if (status == F8_OK)
        status = f8_tuning_take(&t->db, &r, true, &arena, &taken, diag);
    f8_arena_end(&arena);
    return status;
}

static f8_status put(f8_tuning *t, const f8_tuning_row *base, const f8_timing *timing, size_t n,
                     const f8_tuning_choice *choice, f8_diag *diag)
{
    f8_tuning_row r = *base;
    for (size_t i = 0; i < n; i++) {
        r.how = timing[i].how ? timing[i].how : F8_TUNING_STEP;
        r.candidate = timing[i].candidate;
        r.facts = timing[i].facts;
        r.seconds = timing[i].seconds;
        r.other = timing[i].median;
        r.runs = timing[i].runs;
        r.samples = timing[i].samples;
        r.n_samples = timing[i].n_samples;
        F8_TRY(take(t, &r, diag));
    }
    if (!choice)
        return F8_OK;
    r = *base;
    r.kind = F8_TUNING_CHOICE;
    r.candidate = choice->candidate;
    r.seconds = choice->seconds;
    r.other = choice->model_seconds;
    return take(t, &r, diag);
}

f8_status f8_tuning_put(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        const char *name, const f8_timing *timing, size_t n,
                        const f8_tuning_choice *choice, f8_diag *diag)
{
    const f8_tuning_row base = {.kind = F8_TUNING_TIMING,
                                .device = key->device,
                                .versions = key->versions,
                                .problem = problem,
                                .name = name,
                                .at = (int64_t)time(NULL)};
    F8_TRY(f8_db_begin(&t->db, diag));
    return f8_db_end(&t->db, put(t, &base, timing, n, choice, diag), diag);
}

f8_status f8_tuning_get(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        const char *how, f8_arena *arena, f8_timing **out, size_t *n, f8_diag *diag)
{
    const char *text[] = {key->device, key->versions, problem, how ? how : F8_TUNING_STEP};
    sqlite3_stmt *s;
    f8_tuning_row r;
    size_t room = 0;
    bool row;
    *out = NULL;
    *n = 0;
    F8_TRY(f8_tuning_select(&t->db, F8_TUNING_TIMING,
                            "WHERE device=?1 AND versions=?2 AND problem=?3 AND how=?4"
                            " ORDER BY candidate",
                            4, text, &s, diag));
    f8_status status;
    while ((status = f8_tuning_next(&t->db, s, F8_TUNING_TIMING, arena, &r, &row, diag)) == F8_OK &&
           row) {
        f8_timing *grown = f8_arena_grow(arena, *out, *n, &room, *n + 1, sizeof *grown);
        if (!grown) {
            status = f8_arena_status(arena, diag);
            break;
        }
        *out = grown;
        grown[(*n)++] = (f8_timing){.candidate = r.candidate,
                                    .how = r.how,
                                    .seconds = r.seconds,
                                    .median = r.other,
                                    .runs = r.runs,
                                    .samples = r.samples,
                                    .n_samples = r.n_samples,
                                    .facts = r.facts};
    }
    t->db.api.sqlite3_finalize(s);
    return status;
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

/* ---- processes ---- */

void f8_tuning_name_process(char out[F8_TUNING_PROCESS_ID])
{
    struct timespec now;
    struct tm utc = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    const size_t n = strftime(out, F8_TUNING_PROCESS_ID, "%Y%m%dT%H%M%S", &utc);
    snprintf(out + n, F8_TUNING_PROCESS_ID - n, ".%03dZ-%d", (int)(now.tv_nsec / 1000000),
             (int)getpid());
}

f8_status f8_tuning_put_process(f8_tuning *t, const f8_tuning_process *process, f8_diag *diag)
{
    const f8_tuning_row r = {.kind = F8_TUNING_PROCESS,
                             .id = process->id,
                             .device = process->device,
                             .facts = process->facts,
                             .at = (int64_t)time(NULL)};
    if (!r.id || !*r.id)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a process has no id");
    F8_TRY(f8_db_begin(&t->db, diag));
    return f8_db_end(&t->db, take(t, &r, diag), diag);
}

f8_status f8_tuning_get_process(f8_tuning *t, const char *id, f8_arena *arena,
                                f8_tuning_process *out, bool *found, f8_diag *diag)
{
    sqlite3_stmt *s;
    f8_tuning_row r;
    *found = false;
    F8_TRY(f8_tuning_select(&t->db, F8_TUNING_PROCESS, "WHERE id=?1", 1, &id, &s, diag));
    const f8_status status = f8_tuning_next(&t->db, s, F8_TUNING_PROCESS, arena, &r, found, diag);
    if (status == F8_OK && *found)
        *out = (f8_tuning_process){r.id, r.device, r.facts, r.at};
    t->db.api.sqlite3_finalize(s);
    return status;
}
