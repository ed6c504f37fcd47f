/* Rows of the tuning database in files: JSON Lines, and other databases. See tuning.h. jansson
 * allocates its own memory. */
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/file.h"
#include "runtime/tune/tuning_db.h"

enum { MOST_BYTES = 256 << 20 /* of a file to import */ };

static const char *const text_name[] = {"device", "versions", "problem", "candidate", "name"};

static void count(f8_tuning_counts *c, const f8_tuning_row *r, bool taken, const char *device)
{
    *(!taken ? &c->older : r->is_choice ? &c->choices : &c->timings) += 1;
    c->others += device && strcmp(device, r->device) != 0;
}

/* Checks that `path` is not the database itself, by whatever name, also through links. */
static f8_status check_other(const f8_tuning *t, const char *path, f8_diag *diag)
{
    struct stat own, other;
    if (stat(t->db.path, &own) || stat(path, &other) || own.st_dev != other.st_dev ||
        own.st_ino != other.st_ino)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, path, "it is the tuning database itself");
}

/* ---- export ---- */

/* An export replaces a file of its name, but never a database, this one or another. */
static f8_status check_no_database(const f8_tuning *t, const char *path, f8_diag *diag)
{
    static const char magic[16] = "SQLite format 3";
    char head[sizeof magic];
    f8_file_in in;
    f8_diag unread = {0}; /* ignored: whether the file can be written shows when it is written */
    F8_TRY(check_other(t, path, diag));
    if (f8_file_open(&in, path, &unread) != F8_OK)
        return F8_OK;
    const bool is = in.size >= sizeof head &&
                    f8_file_get(&in, head, sizeof head, 0, &unread) == F8_OK &&
                    !memcmp(head, magic, sizeof magic);
    f8_file_close(&in);
    return is ? f8_file_fail(diag, F8_ERR_INPUT, path,
                             "it is a database, which an export would replace")
              : F8_OK;
}

typedef struct exporting {
    f8_file_out out;
    const char *device;
    f8_tuning_counts *counts;
} exporting;

static f8_status put_line(exporting *e, json_t *line, f8_diag *diag)
{
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(line);
    if (!text) /* no memory, or a text that is not UTF-8, as in a database that somebody edited */
        return f8_file_fail(diag, F8_ERR_IO, e->out.path, "a row of the database has no JSON form");
    f8_status status = f8_file_put(&e->out, text, strlen(text));
    if (status == F8_OK)
        status = f8_file_put(&e->out, "\n", 1);
    free(text);
    return status;
}

static f8_status export_row(void *user, const f8_tuning_row *r, f8_diag *diag)
{
    exporting *e = user;
    json_t *line =
        json_pack("{ss ss ss ss ss ss sf sf sI}", "row", r->is_choice ? "choice" : "timing",
                  "device", r->device, "versions", r->versions, "problem", r->problem, "candidate",
                  r->candidate, "name", r->name, "seconds", r->seconds,
                  r->is_choice ? "model_seconds" : "median", r->other, "at", (json_int_t)r->at);
    if (line && !r->is_choice)
        json_object_set_new(line, "runs", json_integer(r->runs));
    count(e->counts, r, true, e->device);
    return put_line(e, line, diag);
}

f8_status f8_tuning_export(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag)
{
    exporting e = {.device = device, .counts = counts};
    *counts = (f8_tuning_counts){0};
    F8_TRY(check_no_database(t, path, diag));
    f8_status status = f8_file_begin(&e.out, t->temporaries, path, false, diag);
    if (status == F8_OK)
        status =
            put_line(&e, json_pack("{ss si}", "fp8c", "tuning", "schema", F8_TUNING_SCHEMA), diag);
    if (status == F8_OK)
        status = f8_db_do(&t->db, "BEGIN", diag); /* one state of both tables */
    if (status == F8_OK)
        status = f8_db_end(&t->db, f8_tuning_each(&t->db, export_row, &e, diag), diag);
    if (status == F8_OK)
        status = f8_file_commit(&e.out);
    f8_file_end(&e.out);
    return status;
}

/* ---- import ---- */

/* A number that is finite and not negative. */
static bool read_number(const json_t *line, const char *name, double *out)
{
    const json_t *x = json_object_get(line, name);
    *out = json_number_value(x);
    return json_is_number(x) && isfinite(*out) && *out >= 0;
}

static bool read_integer(const json_t *line, const char *name, int64_t *out)
{
    const json_t *x = json_object_get(line, name);
    *out = json_integer_value(x);
    return json_is_integer(x) && *out >= 0;
}

static bool read_row(const json_t *line, f8_tuning_row *r)
{
    const char **text[] = {&r->device, &r->versions, &r->problem, &r->candidate, &r->name};
    const char *kind = json_string_value(json_object_get(line, "row"));
    if (!kind || (strcmp(kind, "timing") && strcmp(kind, "choice")))
        return false;
    r->is_choice = kind[0] == 'c';
    for (int i = 0; i < 5; i++) {
        *text[i] = json_string_value(json_object_get(line, text_name[i]));
        if (!*text[i] || (i < 4 && !**text[i]))
            return false;
    }
    return read_number(line, "seconds", &r->seconds) &&
           read_number(line, r->is_choice ? "model_seconds" : "median", &r->other) &&
           read_integer(line, "at", &r->at) &&
           (r->is_choice || read_integer(line, "runs", &r->runs));
}

/* Checks the first line, which says what the file is. */
static f8_status check_head(const json_t *line, const char *path, f8_diag *diag)
{
    const char *what = json_string_value(json_object_get(line, "fp8c"));
    int64_t schema;
    if (!what || strcmp(what, "tuning") || !read_integer(line, "schema", &schema))
        return f8_file_fail(diag, F8_ERR_INPUT, path, "this is no export of a tuning database");
    if (schema != F8_TUNING_SCHEMA)
        return f8_file_fail(diag, F8_ERR_UNSUPPORTED, path,
                            "it has schema %lld; this version of fp8c knows %d", (long long)schema,
                            F8_TUNING_SCHEMA);
    return F8_OK;
}

static f8_status import_line(f8_tuning *t, const char *path, int64_t number, const char *text,
                             size_t n, const char *device, f8_tuning_counts *counts, f8_diag *diag)
{
    json_error_t error;
    json_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    f8_tuning_row r = {0};
    bool taken = false;
    f8_status status = F8_OK;
    if (number == 1)
        status = check_head(line, path, diag);
    else if (!line)
        status =
            f8_file_fail(diag, F8_ERR_INPUT, path, "line %lld: %s", (long long)number, error.text);
    else if (!read_row(line, &r))
        status = f8_file_fail(diag, F8_ERR_INPUT, path, "line %lld is no row of a tuning database",
                              (long long)number);
    else if ((status = f8_tuning_take(&t->db, &r, false, &taken, diag)) == F8_OK)
        count(counts, &r, taken, device);
    json_decref(line);
    return status;
}

static f8_status import_all(f8_tuning *t, const char *path, const f8_file_bytes *file,
                            const char *device, f8_tuning_counts *counts, f8_diag *diag)
{
    const char *at = (const char *)file->bytes, *end = at + file->size;
    if (at == end)
        return check_head(NULL, path, diag);
    for (int64_t number = 1; at < end; number++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((line_end ? line_end : end) - at);
        F8_TRY(import_line(t, path, number, at, n, device, counts, diag));
        at += n + (line_end != NULL);
    }
    return F8_OK;
}

f8_status f8_tuning_import(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag)
{
    f8_file_bytes file;
    *counts = (f8_tuning_counts){0};
    F8_TRY(check_other(t, path, diag));
    F8_TRY(f8_file_read(path, MOST_BYTES, &t->allocator, &file, diag));
    f8_status status = f8_db_begin(&t->db, diag);
    if (status == F8_OK)
        status = f8_db_end(&t->db, import_all(t, path, &file, device, counts, diag), diag);
    f8_file_release(&file);
    return status;
}

/* ---- merge ---- */

typedef struct merging {
    f8_tuning *to;
    const char *device;
    f8_tuning_counts *counts;
} merging;

static f8_status merge_row(void *user, const f8_tuning_row *r, f8_diag *diag)
{
    merging *m = user;
    bool taken;
    F8_TRY(f8_tuning_take(&m->to->db, r, false, &taken, diag));
    count(m->counts, r, taken, m->device);
    return F8_OK;
}

f8_status f8_tuning_merge(f8_tuning *t, const char *path, const char *device,
                          f8_tuning_counts *counts, f8_diag *diag)
{
    f8_db from;
    merging m = {t, device, counts};
    *counts = (f8_tuning_counts){0};
    F8_TRY(check_other(t, path, diag));
    F8_TRY(f8_db_open(&from, path, F8_DB_TAKE, 30000, diag));
    f8_status status = f8_db_begin(&t->db, diag);
    if (status == F8_OK)
        status = f8_db_end(&t->db, f8_tuning_each(&from, merge_row, &m, diag), diag);
    f8_db_close(&from);
    return status;
}
