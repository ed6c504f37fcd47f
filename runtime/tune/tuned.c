/* What a compile reads of the tuning database: all choices of its device. See tuning.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/tune/tuning_db.h"

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
