/* What a compile reads of the tuning database and of the table that fp8c ships: all choices of its
 * device. See tuning.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/embed.h"
#include "runtime/tune/tuning_row.h"

EMBED(f8_tuned_shipped, "runtime/tune/shipped.jsonl")

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

/* Texts in the arena. */
static f8_status add(f8_tuned *t, tuned_row one, f8_diag *diag)
{
    tuned_row *grown = f8_arena_grow(t->arena, t->row, t->n, &t->room, t->n + 1, sizeof *grown);
    if (!grown || !one.versions || !one.problem || !one.candidate)
        return f8_arena_status(t->arena, diag);
    t->row = grown;
    grown[t->n++] = one;
    return F8_OK;
}

static f8_status keep(f8_tuned *t, f8_db *db, f8_diag *diag)
{
    sqlite3_stmt *s;
    bool row;
    F8_TRY(f8_db_prepare(db, "SELECT versions, problem, candidate FROM choice WHERE device=?1", 1,
                         &t->device, &s, diag));
    f8_status status;
    while ((status = f8_db_step(db, s, &row, diag)) == F8_OK && row) {
        const tuned_row one = {f8_db_text(db, s, 0, t->arena), f8_db_text(db, s, 1, t->arena),
                               f8_db_text(db, s, 2, t->arena)};
        if ((status = add(t, one, diag)) != F8_OK)
            break;
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

/* ---- tables ---- */

typedef struct table {
    f8_tuned *tuned;
    size_t *others;
} table;

static f8_status add_choice(void *user, const f8_tuning_row *r, f8_diag *diag)
{
    const table *to = user;
    f8_arena *arena = to->tuned->arena;
    if (r->kind != F8_TUNING_CHOICE || strncmp(r->problem, "gemm ", 5) != 0)
        return F8_OK;
    if (strcmp(r->device, to->tuned->device) != 0) {
        ++*to->others;
        return F8_OK;
    }
    return add(to->tuned,
               (tuned_row){f8_arena_strdup(arena, r->versions), f8_arena_strdup(arena, r->problem),
                           f8_arena_strdup(arena, r->candidate)},
               diag);
}

f8_status f8_tuned_table(const char *name, const char *text, size_t size, const char *device,
                         const f8_allocator *allocator, f8_arena *arena, f8_tuned **out,
                         size_t *others, f8_diag *diag)
{
    f8_tuned *t = F8_NEW(arena, f8_tuned);
    *out = NULL;
    *others = 0;
    if (!t)
        return f8_arena_status(arena, diag);
    *t = (f8_tuned){.arena = arena, .device = device};
    table to = {t, others};
    F8_TRY(f8_tuning_lines(name, text, size, allocator, add_choice, &to, diag));
    if (t->n)
        qsort(t->row, t->n, sizeof *t->row, compare);
    *out = t;
    return F8_OK;
}

/* ---- looking up ---- */

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

const char *f8_tuned_versions(const f8_tuned *t, size_t index)
{
    return t && index < t->n ? t->row[index].versions : NULL;
}
