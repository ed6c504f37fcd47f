/* Rows of the tuning database in files: JSON Lines, and other databases. See tuning.h. jansson
 * allocates its own memory. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/file.h"
#include "runtime/tune/tuning_row.h"

enum { MOST_BYTES = 1 << 30 /* of a file to import */ };

static const char *const kind_name[] = {
    [F8_TUNING_TIMING] = "timing", [F8_TUNING_CHOICE] = "choice", [F8_TUNING_PROCESS] = "process"};

/* The texts that a row has in a file, with their names there. Returns how many. */
enum { TEXTS = 6 };
static int texts_of(f8_tuning_row *r, const char *names[TEXTS], const char **text[TEXTS])
{
    const struct {
        const char *name, **text;
        bool of_process, of_choice;
    } all[] = {{"id", &r->id, true, false},
               {"device", &r->device, true, true},
               {"versions", &r->versions, false, true},
               {"problem", &r->problem, false, true},
               {"how", &r->how, false, false},
               {"candidate", &r->candidate, false, true},
               {"name", &r->name, false, true}};
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (r->kind == F8_TUNING_PROCESS  ? all[i].of_process
            : r->kind == F8_TUNING_CHOICE ? all[i].of_choice
                                          : i > 0) {
            names[n] = all[i].name;
            text[n++] = all[i].text;
        }
    return n;
}

static void count(f8_tuning_counts *c, const f8_tuning_row *r, bool taken, const char *device)
{
    if (r->kind == F8_TUNING_PROCESS) {
        c->processes += taken;
        return;
    }
    *(!taken ? &c->older : r->kind == F8_TUNING_CHOICE ? &c->choices : &c->timings) += 1;
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

static bool put_numbers(json_t *line, const f8_tuning_row *r)
{
    int failed = 0;
    if (r->kind != F8_TUNING_PROCESS)
        failed |=
            json_object_set_new(line, "seconds", json_real(r->seconds)) |
            json_object_set_new(line, r->kind == F8_TUNING_CHOICE ? "model_seconds" : "median",
                                json_real(r->other));
    failed |= json_object_set_new(line, "at", json_integer(r->at));
    if (r->kind == F8_TUNING_TIMING)
        failed |= json_object_set_new(line, "runs", json_integer(r->runs));
    if (r->n_samples)
        failed |= json_object_set_new(line, "samples", f8_tuning_samples_json(r));
    if (*r->facts)
        failed |= json_object_set_new(line, "facts", json_loads(r->facts, 0, NULL));
    return !failed;
}

static f8_status export_row(void *user, const f8_tuning_row *row, f8_diag *diag)
{
    exporting *e = user;
    f8_tuning_row r = *row;
    const char *name[TEXTS], **text[TEXTS];
    const int n = texts_of(&r, name, text);
    json_t *line = json_pack("{ss}", "row", kind_name[r.kind]);
    bool ok = line != NULL;
    for (int i = 0; i < n && ok; i++)
        ok = !json_object_set_new(line, name[i], json_string(*text[i]));
    if (!ok || !put_numbers(line, &r)) {
        json_decref(line);
        line = NULL;
    }
    count(e->counts, &r, true, e->device);
    return put_line(e, line, diag);
}

f8_status f8_tuning_export(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag)
{
    exporting e = {.device = device, .counts = counts};
    bool empty;
    *counts = (f8_tuning_counts){0};
    F8_TRY(check_no_database(t, path, diag));
    f8_status status = f8_file_begin(&e.out, t->temporaries, path, false, diag);
    if (status == F8_OK)
        status =
            put_line(&e, json_pack("{ss si}", "fp8c", "tuning", "schema", F8_TUNING_SCHEMA), diag);
    if (status == F8_OK)
        status = f8_db_begin_read(&t->db, &empty, diag); /* one state of all tables */
    if (status == F8_OK)
        status =
            f8_db_end(&t->db, f8_tuning_each(&t->db, &t->allocator, export_row, &e, diag), diag);
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

static bool read_kind(const json_t *line, f8_tuning_kind *out)
{
    const char *kind = json_string_value(json_object_get(line, "row"));
    for (int i = 0; kind && i < (int)(sizeof kind_name / sizeof *kind_name); i++)
        if (!strcmp(kind, kind_name[i])) {
            *out = (f8_tuning_kind)i;
            return true;
        }
    return false;
}

static bool read_texts(const json_t *line, int64_t schema, f8_tuning_row *r)
{
    const char *name[TEXTS], **text[TEXTS];
    const int n = texts_of(r, name, text);
    for (int i = 0; i < n; i++) {
        if (schema == 1 && !strcmp(name[i], "how")) {
            *text[i] = F8_TUNING_STEP;
            continue;
        }
        *text[i] = json_string_value(json_object_get(line, name[i]));
        if (!*text[i] || (!**text[i] && strcmp(name[i], "name")))
            return false;
    }
    return true;
}

/* The texts are the line's, the rest lies in the arena. False: `why` says what is wrong, "" that
 * this is no row at all. */
static bool read_row(const json_t *line, int64_t schema, f8_arena *arena, f8_tuning_row *r,
                     char why[F8_TUNING_WHY])
{
    const bool ok = read_kind(line, &r->kind) && read_texts(line, schema, r) &&
                    read_integer(line, "at", &r->at) &&
                    (r->kind == F8_TUNING_PROCESS ||
                     (read_number(line, "seconds", &r->seconds) &&
                      read_number(line, r->kind == F8_TUNING_CHOICE ? "model_seconds" : "median",
                                  &r->other))) &&
                    (r->kind != F8_TUNING_TIMING || read_integer(line, "runs", &r->runs));
    why[0] = 0;
    return ok &&
           (r->kind != F8_TUNING_TIMING ||
            f8_tuning_read_samples(json_object_get(line, "samples"), arena, r, why)) &&
           f8_tuning_read_facts(json_object_get(line, "facts"), arena, r, why);
}

typedef struct reading {
    const char *path;
    const f8_allocator *allocator;
    f8_tuning_row_fn fn;
    void *user;
    int64_t schema, line;
} reading;

/* Checks the first line, which says what the file is. */
static f8_status check_head(reading *in, const json_t *line, f8_diag *diag)
{
    const char *what = json_string_value(json_object_get(line, "fp8c"));
    if (!what || strcmp(what, "tuning") || !read_integer(line, "schema", &in->schema))
        return f8_file_fail(diag, F8_ERR_INPUT, in->path, "this is no export of a tuning database");
    if (in->schema < 1 || in->schema > F8_TUNING_SCHEMA)
        return f8_file_fail(diag, F8_ERR_UNSUPPORTED, in->path,
                            "it has schema %lld; this version of fp8c knows 1 to %d",
                            (long long)in->schema, F8_TUNING_SCHEMA);
    return F8_OK;
}

static f8_status give_row(reading *in, const json_t *line, f8_diag *diag)
{
    f8_arena arena;
    f8_tuning_row r = {.id = "",
                       .device = "",
                       .versions = "",
                       .problem = "",
                       .how = "",
                       .candidate = "",
                       .name = "",
                       .facts = ""};
    char why[F8_TUNING_WHY];
    f8_arena_init(&arena, in->allocator);
    f8_status status = F8_OK;
    if (read_row(line, in->schema, &arena, &r, why))
        status = f8_arena_status(&arena, diag);
    else if (*why)
        status =
            f8_file_fail(diag, F8_ERR_INPUT, in->path, "line %lld: %s", (long long)in->line, why);
    else
        status = f8_file_fail(diag, F8_ERR_INPUT, in->path,
                              "line %lld is no row of a tuning database", (long long)in->line);
    if (status == F8_OK)
        status = in->fn(in->user, &r, diag);
    f8_arena_end(&arena);
    return status;
}

static f8_status read_line(reading *in, const char *text, size_t n, f8_diag *diag)
{
    json_error_t error;
    json_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    f8_status status;
    if (in->line == 1)
        status = check_head(in, line, diag);
    else if (!line)
        status = f8_file_fail(diag, F8_ERR_INPUT, in->path, "line %lld: %s", (long long)in->line,
                              error.text);
    else
        status = give_row(in, line, diag);
    json_decref(line);
    return status;
}

f8_status f8_tuning_lines(const char *path, const void *text, size_t size,
                          const f8_allocator *allocator, f8_tuning_row_fn fn, void *user,
                          f8_diag *diag)
{
    reading in = {.path = path, .allocator = allocator, .fn = fn, .user = user};
    const char *at = text, *end = at + size;
    if (at == end)
        return check_head(&in, NULL, diag);
    for (in.line = 1; at < end; in.line++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((line_end ? line_end : end) - at);
        F8_TRY(read_line(&in, at, n, diag));
        at += n + (line_end != NULL);
    }
    return F8_OK;
}

/* Rows of another place go to a database. */
typedef struct taking {
    f8_tuning *to;
    const char *device;
    f8_tuning_counts *counts;
} taking;

static f8_status take_row(void *user, const f8_tuning_row *r, f8_diag *diag)
{
    taking *in = user;
    f8_arena arena;
    bool taken;
    f8_arena_init(&arena, &in->to->allocator);
    const f8_status status = f8_tuning_take(&in->to->db, r, false, &arena, &taken, diag);
    f8_arena_end(&arena);
    if (status == F8_OK)
        count(in->counts, r, taken, in->device);
    return status;
}

f8_status f8_tuning_import(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag)
{
    f8_file_bytes file;
    taking in = {t, device, counts};
    *counts = (f8_tuning_counts){0};
    F8_TRY(check_other(t, path, diag));
    F8_TRY(f8_file_read(path, MOST_BYTES, &t->allocator, &file, diag));
    f8_status status = f8_db_begin(&t->db, diag);
    if (status == F8_OK)
        status = f8_db_end(
            &t->db,
            f8_tuning_lines(path, file.bytes, file.size, &t->allocator, take_row, &in, diag), diag);
    f8_file_release(&file);
    return status;
}

/* ---- merge ---- */

/* One state of the other file: its owner may give it another schema meanwhile. */
static f8_status merge_all(f8_db *from, taking *m, f8_diag *diag)
{
    bool empty;
    F8_TRY(f8_db_begin_read(from, &empty, diag));
    return f8_db_end(from, f8_tuning_each(from, &m->to->allocator, take_row, m, diag), diag);
}

f8_status f8_tuning_merge(f8_tuning *t, const char *path, const char *device,
                          f8_tuning_counts *counts, f8_diag *diag)
{
    f8_db from;
    taking m = {t, device, counts};
    *counts = (f8_tuning_counts){0};
    F8_TRY(check_other(t, path, diag));
    F8_TRY(f8_db_open(&from, path, F8_DB_TAKE, 30000, diag));
    f8_status status = f8_db_begin(&t->db, diag);
    if (status == F8_OK)
        status = f8_db_end(&t->db, merge_all(&from, &m, diag), diag);
    f8_db_close(&from);
    return status;
}
