/* Reading JSON Lines, a megabyte at a time: statistics of a long run have hundreds of them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/report/parts.h"
#include "ir/base/file.h"

enum { CHUNK = 1 << 20 };

f8_status f8_report_no_memory(f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_MEMORY, NULL, "out of memory");
}

f8_status f8_report_grow(void *array, size_t *room, size_t n, size_t size, f8_diag *diag)
{
    void **at = array;
    if (n < *room)
        return F8_OK;
    const size_t more = *room ? *room * 2 : 16;
    void *grown = realloc(*at, more * size);
    if (!grown)
        return f8_report_no_memory(diag);
    *at = grown;
    *room = more;
    return F8_OK;
}

f8_status f8_report_bad_line(const char *path, int64_t line, const char *what, f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_INPUT, path, "line %" PRId64 " %s", line, what);
}

bool f8_report_number(const json_t *record, const char *name, double *to)
{
    const json_t *value = json_object_get(record, name);
    *to = json_is_number(value) ? json_number_value(value) : NAN;
    return !value || json_is_number(value) || json_is_null(value);
}

const char *f8_report_text(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    return !value || json_is_null(value) ? "" : json_string_value(value);
}

/* ---- lines ---- */

typedef struct reading {
    const f8_file_in *in;
    uint64_t at; /* what was read of the file */
    char *text;  /* what no record was made of yet */
    size_t n, room;
    int64_t line;
    f8_report_take take;
    void *user;
    f8_diag *diag;
} reading;

static f8_status take_line(reading *r, const char *text, size_t n)
{
    json_error_t error;
    char what[JSON_ERROR_TEXT_LENGTH + 40];
    json_t *record = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    f8_status status;
    r->line++;
    if (json_is_object(record)) {
        status = r->take(r->user, record, r->in->path, r->line, r->diag);
    } else {
        snprintf(what, sizeof what, "is no record: %s", record ? "it is no object" : error.text);
        status = f8_report_bad_line(r->in->path, r->line, what, r->diag);
    }
    json_decref(record);
    return status;
}

/* Takes the whole lines that are there, and keeps the rest. */
static f8_status take_lines(reading *r)
{
    const char *at = r->text, *end = r->text + r->n, *stop;
    while ((stop = memchr(at, '\n', (size_t)(end - at)))) {
        F8_TRY(take_line(r, at, (size_t)(stop - at)));
        at = stop + 1;
    }
    r->n = (size_t)(end - at);
    memmove(r->text, at, r->n);
    return F8_OK;
}

static f8_status read_more(reading *r)
{
    const uint64_t left = r->in->size - r->at, n = left < CHUNK ? left : CHUNK;
    if (r->room < r->n + n) {
        char *grown = realloc(r->text, r->n + n + CHUNK);
        if (!grown)
            return f8_report_no_memory(r->diag);
        r->text = grown;
        r->room = r->n + n + CHUNK;
    }
    F8_TRY(f8_file_get(r->in, r->text + r->n, n, r->at, r->diag));
    r->at += n;
    r->n += n;
    return F8_OK;
}

f8_status f8_report_lines(const char *path, f8_report_take take, void *user, bool *there,
                          f8_diag *diag)
{
    struct stat s;
    f8_file_in in = {.fd = -1};
    *there = !stat(path, &s) || errno != ENOENT;
    if (!*there)
        return F8_OK;
    F8_TRY(f8_file_open(&in, path, diag));
    reading r = {.in = &in, .take = take, .user = user, .diag = diag};
    f8_status status = F8_OK;
    while (status == F8_OK && r.at < in.size) {
        status = read_more(&r);
        if (status == F8_OK)
            status = take_lines(&r);
    }
    free(r.text);
    f8_file_close(&in);
    return status;
}
