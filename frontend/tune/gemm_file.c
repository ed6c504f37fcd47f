/* GEMMs of a file, CSV or JSON Lines, and suites: see gemms.h. jansson allocates its own memory. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/tune/gemms.h"
#include "ir/base/file.h"
#include "ir/base/suggest.h"
#include "ir/base/text.h"
#include "runtime/base/dynlib.h"

enum { MOST_BYTES = 16 << 20, MOST_CELLS = 16, CELL = 256 };

static const char columns[] = "m, n, k, format, a, b"
#define X(kind, name, ...) ", " name
    F8_TUNE_HOWS(X)
#undef X
        ", count, name";

typedef struct reader {
    f8_tune_gemms *list;
    const char *path;
    f8_diag *diag;
    uint32_t line;
} reader;

/* A row, and what was given in it. */
typedef struct row {
    f8_tune_gemm g;
    bool has_m, has_n, has_k, has_a, has_b;
    char name[CELL];
} row;

#define WRONG(r, column, ...)                                                                      \
    f8_fail((r)->diag, F8_ERR_INPUT, (f8_loc){(r)->line, (column)}, __VA_ARGS__)

/* ---- a field ---- */

static f8_status set_integer(reader *r, uint32_t column, const char *name, const char *value,
                             int64_t *to, bool *has)
{
    char *end;
    errno = 0;
    *to = strtoll(value, &end, 10);
    *has = true;
    if (isdigit((unsigned char)*value) && !*end && !errno && *to >= 1 && *to <= INT32_MAX)
        return F8_OK;
    return WRONG(r, column, "%s: '%s' is not a whole number from 1 to %d", name, value, INT32_MAX);
}

static f8_status set_how(reader *r, uint32_t column, int kind, const char *value, row *to)
{
    char known[F8_TUNE_LISTED];
    const int index = f8_tune_find_word(kind, value, strlen(value));
    if (index < 0)
        return WRONG(r, column, "%s: '%s' is none of %s", f8_tune_how_name[kind], value,
                     f8_tune_list_words(kind, known));
    to->g.how[kind] = (uint8_t)index;
    return F8_OK;
}

static f8_status set_format(reader *r, uint32_t column, const char *name, const char *value,
                            row *to)
{
    f8_dtype a, b;
    const bool one = name[1] == 0; /* a or b */
    if (!f8_tune_format(value, strlen(value), &a, &b) || (one && strchr(value, 'x')))
        return WRONG(r, column, "%s: '%s' is not %s", name, value, f8_tune_formats);
    if (*name != 'b') {
        to->g.a = a;
        to->has_a = true;
    }
    if (*name != 'a') {
        to->g.b = b;
        to->has_b = true;
    }
    return F8_OK;
}

static f8_status set_name(reader *r, uint32_t column, const char *value, row *to)
{
    if (strlen(value) >= sizeof to->name || !f8_text_is_plain(value, strlen(value)))
        return WRONG(r, column,
                     "name: at most %d bytes of UTF-8 without control characters are expected",
                     CELL - 1);
    strcpy(to->name, value);
    return F8_OK;
}

static bool is_column(const char *name)
{
    const char *at = columns;
    const size_t n = strlen(name);
    while (n && (at = strstr(at, name))) {
        const bool begins = at == columns || at[-1] == ' ';
        if (begins && (at[n] == ',' || !at[n]))
            return true;
        at += n;
    }
    return false;
}

static f8_status check_column(reader *r, uint32_t column, const char *name)
{
    char hint[80];
    return is_column(name)
               ? F8_OK
               : WRONG(r, column, "there is no column '%s'%s: there are %s", name,
                       f8_suggest_listed(name, strlen(name), columns, hint, sizeof hint), columns);
}

/* Set a field that is_column. An empty value is none. */
static f8_status set_field(reader *r, uint32_t column, const char *name, const char *value, row *to)
{
    bool has_count;
    if (!*value)
        return F8_OK;
    if (!strcmp(name, "m"))
        return set_integer(r, column, name, value, &to->g.m, &to->has_m);
    if (!strcmp(name, "n"))
        return set_integer(r, column, name, value, &to->g.n, &to->has_n);
    if (!strcmp(name, "k"))
        return set_integer(r, column, name, value, &to->g.k, &to->has_k);
    if (!strcmp(name, "count"))
        return set_integer(r, column, name, value, &to->g.count, &has_count);
    if (!strcmp(name, "name"))
        return set_name(r, column, value, to);
    for (int kind = 0; kind < F8_TUNE_KINDS; kind++)
        if (!strcmp(name, f8_tune_how_name[kind]))
            return set_how(r, column, kind, value, to);
    return set_format(r, column, name, value, to);
}

static f8_status end_row(reader *r, row *of)
{
    const char *missing = !of->has_m   ? "m"
                          : !of->has_n ? "n"
                          : !of->has_k ? "k"
                          : !of->has_a ? "format (or a)"
                          : !of->has_b ? "b"
                                       : NULL;
    if (missing)
        return WRONG(r, 1, "%s is missing", missing);
    const char *why = f8_tune_impossible(&of->g);
    if (why)
        return WRONG(r, 1, "%s", why);
    of->g.name = of->name;
    const f8_status status = f8_tune_gemms_add(r->list, &of->g, r->diag);
    if (status == F8_ERR_INPUT)
        r->diag->loc = (f8_loc){r->line, 1};
    return status;
}

/* ---- CSV ---- */

/* Read a cell at *at, with or without quotes, and move *at to the comma behind it or to the end. */
static f8_status read_cell(reader *r, const char *line, const char **at, char to[CELL])
{
    const uint32_t column = (uint32_t)(*at - line) + 1;
    const bool quoted = **at == '"';
    const char *from = *at + quoted;
    size_t n = 0;
    for (; *from && (quoted || *from != ','); from++) {
        if (quoted && *from == '"' && *++from != '"')
            break; /* the closing quote; two of them are one in the text */
        if (n == CELL - 1)
            return WRONG(r, column, "this cell has more than %d bytes", CELL - 1);
        to[n++] = *from;
    }
    to[n] = 0;
    if (quoted && from[-1] != '"')
        return WRONG(r, column, "the quotes that begin here are not closed in this line");
    if (*from && *from != ',')
        return WRONG(r, (uint32_t)(from - line) + 1, "a comma is missing behind the quotes");
    *at = from;
    return F8_OK;
}

typedef struct head {
    char name[MOST_CELLS][CELL];
    int n;
} head;

/* Read a line's cells into `to` as the head, or as a row under it. */
static f8_status read_csv_line(reader *r, const char *line, head *h, bool is_head)
{
    const char *at = line;
    char cell[CELL];
    row of = {.g.count = 1};
    for (int i = 0;; i++, at++) {
        const uint32_t column = (uint32_t)(at - line) + 1;
        F8_TRY(read_cell(r, line, &at, cell));
        if (is_head) {
            F8_TRY(check_column(r, column, cell));
            for (int j = 0; j < h->n; j++)
                if (!strcmp(h->name[j], cell))
                    return WRONG(r, column, "column '%s' is there twice", cell);
            strcpy(h->name[h->n++], cell); /* there are fewer names than room for them */
        } else if (i >= h->n) {
            return WRONG(r, column, "this row has more cells than the first one, which has %d",
                         h->n);
        } else {
            F8_TRY(set_field(r, column, h->name[i], cell, &of));
        }
        if (!*at)
            return is_head ? F8_OK : end_row(r, &of);
    }
}

/* ---- JSON Lines ---- */

/* The column at which a key of the object in this line begins. */
static uint32_t column_of(const char *line, const char *key)
{
    char quoted[CELL];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(line, quoted);
    return at ? (uint32_t)(at - line) + 1 : 1;
}

static f8_status read_object(reader *r, const char *line, const json_t *object)
{
    row of = {.g.count = 1};
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object, key, value) {
        char number[32];
        const uint32_t column = column_of(line, key);
        F8_TRY(check_column(r, column, key));
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        const char *text = json_is_integer(value) ? number : json_string_value(value);
        if (!text)
            return WRONG(r, column, "%s: a whole number or a text is expected", key);
        F8_TRY(set_field(r, column, key, text, &of));
    }
    return end_row(r, &of);
}

static f8_status read_json_line(reader *r, const char *line)
{
    json_error_t error;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    const f8_status status =
        !object ? WRONG(r, error.column > 0 ? (uint32_t)error.column : 1, "%s", error.text)
        : !json_is_object(object) ? WRONG(r, 1, "this line is no object")
                                  : read_object(r, line, object);
    json_decref(object);
    return status;
}

/* ---- a file ---- */

static bool is_empty(const char *line)
{
    line += strspn(line, " \t");
    return !*line || *line == '#';
}

/* Read all lines; `text` ends with a NUL, and is cut. */
static f8_status read_lines(reader *r, char *text)
{
    head h = {.n = 0};
    bool json = false;
    const size_t before = r->list->n;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        r->line++;
        const size_t n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[n - 1] = 0;
        if (is_empty(line))
            continue;
        const bool first = !h.n && !json;
        json |= first && line[strspn(line, " \t")] == '{';
        F8_TRY(json ? read_json_line(r, line) : read_csv_line(r, line, &h, first));
    }
    return r->list->n > before
               ? F8_OK
               : f8_fail(r->diag, F8_ERR_INPUT, F8_NOWHERE, "there is no GEMM in this file");
}

f8_status f8_tune_gemms_read(f8_tune_gemms *list, const char *path, f8_diag *diag)
{
    f8_file_bytes file;
    reader r = {list, path, diag, 0};
    f8_status status = f8_file_read(path, MOST_BYTES, &list->arena.allocator, &file, diag);
    if (status != F8_OK)
        return status;
    const char *text = (const char *)file.bytes;
    char *own = f8_arena_strndup(&list->arena, text, file.size);
    if (!own)
        status = f8_arena_status(&list->arena, diag);
    else if (memchr(text, 0, file.size))
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "this is no text");
    else
        status = read_lines(&r, own);
    f8_file_release(&file);
    if (status != F8_OK)
        diag->file = path;
    return status;
}

/* ---- suites ---- */

/* Where suites are, beside this code: the command in bin/, a library in lib/ or below it, a build
 * of the tree and its tests. */
static const char *const places[] = {"../share/fp8c/suites", "../../share/fp8c/suites",
                                     "../bench/suites", "../../bench/suites"};

static int is_suite(const struct dirent *e)
{
    return f8_text_ends_with(e->d_name, ".csv");
}

/* The names of the suites in a folder, with commas between them; "" without any. scandir allocates
 * its own memory. */
static const char *list_suites(const char *folder, char *to, size_t size)
{
    struct dirent **entry;
    const int found = scandir(folder, &entry, is_suite, alphasort);
    size_t n = 0;
    to[0] = 0;
    for (int i = 0; i < found; i++) {
        const char *name = entry[i]->d_name;
        if (n + strlen(name) < size)
            n += (size_t)snprintf(to + n, size - n, "%s%.*s", n ? ", " : "",
                                  (int)(strlen(name) - strlen(".csv")), name);
        free(entry[i]);
    }
    if (found >= 0)
        free(entry);
    return to;
}

f8_status f8_tune_gemms_suite(f8_tune_gemms *list, const char *name, f8_diag *diag)
{
    if (strpbrk(name, "/."))
        return f8_tune_gemms_read(list, name, diag);
    const char *own = f8_dynlib_own_folder(&list->arena);
    char known[512] = "", hint[80] = "", *file = f8_arena_strdup(&list->arena, name);
    for (char *at = file; at && *at; at++) /* models are gpt2_124m, files gpt2-124m.csv */
        *at = *at == '_' ? '-' : *at;
    for (size_t i = 0; own && i < sizeof places / sizeof *places && !*known; i++) {
        const char *folder = f8_arena_printf(&list->arena, "%s/%s", own, places[i]);
        const char *path = f8_arena_printf(&list->arena, "%s/%s.csv", folder, file);
        if (path && !access(path, R_OK))
            return f8_tune_gemms_read(list, path, diag);
        if (folder)
            list_suites(folder, known, sizeof known);
    }
    F8_TRY(f8_arena_status(&list->arena, diag));
    if (!*known)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "no suite '%s': none is installed beside this program; give the path of a "
                       "file",
                       name);
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no suite '%s'%s: there are %s", name,
                   f8_suggest_listed(name, strlen(name), known, hint, sizeof hint), known);
}
