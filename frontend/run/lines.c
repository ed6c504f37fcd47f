/* Reading JSON Lines: see lines.h. A file is read a megabyte at a time, because statistics of a
 * long run have hundreds of them. */
#include "frontend/run/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/file.h"

enum { CHUNK = 1 << 20 };

typedef struct reading {
    const f8_file_in *in;
    uint64_t at; /* what was read of the file */
    char *text;  /* what no record was made of yet */
    size_t n, room;
    int64_t n_lines; /* that were read */
    const char *skip;
    f8_run_take take;
    void *user;
    f8_diag *diag;
} reading;

f8_status f8_run_bad_line(const f8_run_line *line, const char *what, f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_INPUT, line->path, "line %" PRId64 " %s", line->number, what);
}

/* The size is that of the line with its end. */
static f8_status take_line(reading *r, const char *text, size_t size)
{
    json_error_t error;
    char what[JSON_ERROR_TEXT_LENGTH + 40];
    json_t *record = json_loadb(text, size - 1, JSON_REJECT_DUPLICATES, &error);
    const f8_run_line line = {record, r->in->path, ++r->n_lines, text, size};
    f8_status status;
    if (json_is_object(record)) {
        status = r->take(r->user, &line, r->diag);
    } else {
        snprintf(what, sizeof what, "is no record: %s", record ? "it is no object" : error.text);
        status = f8_run_bad_line(&line, what, r->diag);
    }
    json_decref(record);
    return status;
}

/* Takes the whole lines that are there, and keeps the rest. */
static f8_status take_lines(reading *r)
{
    const char *at = r->text, *end = r->text + r->n, *stop;
    const size_t n_skip = r->skip ? strlen(r->skip) : 0;
    while ((stop = memchr(at, '\n', (size_t)(end - at)))) {
        const size_t size = (size_t)(stop + 1 - at);
        if (n_skip && size > n_skip && !memcmp(at, r->skip, n_skip))
            r->n_lines++;
        else
            F8_TRY(take_line(r, at, size));
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
            return f8_file_fail(r->diag, F8_ERR_MEMORY, r->in->path, "out of memory");
        r->text = grown;
        r->room = r->n + n + CHUNK;
    }
    F8_TRY(f8_file_get(r->in, r->text + r->n, n, r->at, r->diag));
    r->at += n;
    r->n += n;
    return F8_OK;
}

f8_status f8_run_lines(const char *path, f8_run_take take, void *user, bool *there, f8_diag *diag)
{
    return f8_run_lines_but(path, NULL, take, user, there, diag);
}

f8_status f8_run_lines_but(const char *path, const char *skip, f8_run_take take, void *user,
                           bool *there, f8_diag *diag)
{
    struct stat s;
    f8_file_in in = {.fd = -1};
    if (there && !(*there = !stat(path, &s) || errno != ENOENT))
        return F8_OK;
    F8_TRY(f8_file_open(&in, path, diag));
    reading r = {.in = &in, .skip = skip, .take = take, .user = user, .diag = diag};
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
