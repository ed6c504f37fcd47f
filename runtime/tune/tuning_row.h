/* Rows of the tuning database as all of this folder sees them, with the seconds of their runs.
 * Internal to this folder. jansson allocates its own memory. */
#ifndef F8_TUNING_ROW_H
#define F8_TUNING_ROW_H

#include <jansson.h>

#include "runtime/tune/tuning_db.h"

struct f8_tuning {
    f8_db db;
    f8_allocator allocator;
    char description[32];
    f8_temporaries *temporaries; /* of exports; may be NULL */
    size_t size;                 /* of this object, with the path behind it */
};

typedef enum f8_tuning_kind {
    F8_TUNING_TIMING,
    F8_TUNING_CHOICE,
    F8_TUNING_PROCESS
} f8_tuning_kind;

/* A row of any table. Texts that its table lacks are "". */
typedef struct f8_tuning_row {
    f8_tuning_kind kind;
    const char *id, *device, *versions, *problem, *how, *candidate, *name;
    const char *facts;
    double seconds, other; /* timing: the median; choice: the model's seconds */
    int64_t runs, at;      /* at: seconds since 1970 */
    const f8_tuning_runs *samples;
    size_t n_samples;
} f8_tuning_row;

/* ---- tuning_row.c ---- */

/* Begin to read rows of a kind. `where`: "" or "WHERE ... ORDER BY ...", with n texts for ?1, ?2,
 * ... A file of schema 1 has no processes, and timings as steps without samples. */
f8_status f8_tuning_select(f8_db *db, f8_tuning_kind kind, const char *where, int n,
                           const char *const *text, sqlite3_stmt **out, f8_diag *diag);
/* The next row, in the arena: *row is false past the last. F8_ERR_IO: samples or facts are
 * damaged. */
f8_status f8_tuning_next(f8_db *db, sqlite3_stmt *s, f8_tuning_kind kind, f8_arena *arena,
                         f8_tuning_row *out, bool *row, f8_diag *diag);

/* Each row of all tables in order; fn returns a failure to stop. A row lives as long as fn runs. */
typedef f8_status (*f8_tuning_row_fn)(void *user, const f8_tuning_row *row, f8_diag *diag);
f8_status f8_tuning_each(f8_db *db, const f8_allocator *allocator, f8_tuning_row_fn fn, void *user,
                         f8_diag *diag);

/* Each row of JSON Lines, of which the first says that they are an export. `path` names them in
 * messages. F8_ERR_INPUT names the line that is wrong. (tuning_file.c) */
f8_status f8_tuning_lines(const char *path, const void *text, size_t size,
                          const f8_allocator *allocator, f8_tuning_row_fn fn, void *user,
                          f8_diag *diag);

/* Stores a row, within a transaction. *taken is false if the row there is as new, and has all of
 * its samples. `always`: it counts as newer, and its samples are new runs of their processes. What
 * this needs in between lies in the arena. */
f8_status f8_tuning_take(f8_db *db, const f8_tuning_row *row, bool always, f8_arena *arena,
                         bool *taken, f8_diag *diag);

/* ---- tuning_samples.c ---- */

enum { F8_TUNING_WHY = 256 };

/* Read samples and facts (either may be NULL: none) of a row from JSON, in the arena, whose
 * `failed` the caller checks. False: `why` says what is wrong. Facts become compact text. */
bool f8_tuning_read_samples(const json_t *samples, f8_arena *arena, f8_tuning_row *row,
                            char why[F8_TUNING_WHY]);
bool f8_tuning_read_facts(const json_t *facts, f8_arena *arena, f8_tuning_row *row,
                          char why[F8_TUNING_WHY]);
/* The same from a text, "" for none; f8_tuning_parse_facts reads row->facts. */
bool f8_tuning_parse_samples(const char *text, f8_arena *arena, f8_tuning_row *row,
                             char why[F8_TUNING_WHY]);
bool f8_tuning_parse_facts(f8_arena *arena, f8_tuning_row *row, char why[F8_TUNING_WHY]);
/* Sort and check samples that a caller has made. */
bool f8_tuning_check_samples(f8_arena *arena, f8_tuning_row *row, char why[F8_TUNING_WHY]);

/* The samples as JSON; NULL: no memory, or an id is not UTF-8. */
json_t *f8_tuning_samples_json(const f8_tuning_row *row);
/* Their text, "" for none, in the arena; NULL as above. */
const char *f8_tuning_samples_text(const f8_tuning_row *row, f8_arena *arena);

/* Join the samples of two rows into `out`, in the arena. Of a process that both have: all runs of
 * both (`add`), else the more. */
void f8_tuning_join(const f8_tuning_row *a, const f8_tuning_row *b, bool add, f8_arena *arena,
                    f8_tuning_row *out);
int64_t f8_tuning_count_runs(const f8_tuning_row *row);
/* Make a row's seconds, median and runs of its samples. Does nothing without samples. */
void f8_tuning_figures(f8_tuning_row *row, f8_arena *arena);

#endif
