/* steps.jsonl: a record a line, appended as the steps end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/run/run.h"
#include "ir/base/file.h"

static const char name[] = "steps.jsonl";

/* ---- appending ---- */

static bool append(f8_run *r, const char *text, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t put = write(r->steps, text + done, n - done);
        if (put < 0 && errno != EINTR)
            return false;
        done += put > 0 ? (size_t)put : 0;
    }
    r->steps_size += (int64_t)n;
    return true;
}

f8_status f8_run_record(f8_run *r, json_t *record, f8_diag *diag)
{
    const char *path = f8_run_path(r, name);
    char *text = record ? json_dumps(record, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(record);
    if (!text)
        return f8_file_fail(diag, F8_ERR_MEMORY, path, "out of memory");
    const size_t n = strlen(text);
    text[n] = '\n'; /* in the place of the NUL */
    f8_status status = F8_OK;
    if (!append(r, text, n + 1)) {
        status = f8_run_fail(path, diag);
        if (ftruncate(r->steps, r->steps_size)) /* a half line may stay; the next reader drops it */
            status = F8_ERR_IO;
    }
    free(text);
    return status;
}

/* ---- going on ---- */

typedef struct reading {
    f8_run *r;
    int64_t step; /* the last that is kept */
    int64_t seen; /* the last whose record was read */
    int64_t line;
    void (*each)(void *user, const json_t *record);
    void *user;
    f8_diag *diag;
} reading;

/* Take one line. *keep: it is of a step that is kept. */
static f8_status take(reading *x, const char *line, size_t n, bool *keep)
{
    json_t *record = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(record, "step");
    const char *event = json_string_value(json_object_get(record, "event"));
    f8_status status = F8_OK;
    x->line++;
    *keep = false;
    if (!event || !json_is_integer(step)) {
        status = f8_file_fail(x->diag, F8_ERR_INPUT, x->r->path,
                              "line %" PRId64 " is no record of a step", x->line);
    } else if (json_integer_value(step) <= x->step) {
        *keep = true;
        if (!strcmp(event, "step") && json_integer_value(step) != ++x->seen)
            status = f8_file_fail(x->diag, F8_ERR_INPUT, x->r->path,
                                  "line %" PRId64 " is not of step %" PRId64, x->line, x->seen);
        else if (x->each)
            x->each(x->user, record);
    }
    json_decref(record);
    return status;
}

/* Take all whole lines, and write anew what is kept if that is not all. */
static f8_status take_all(reading *x, const char *text, size_t n)
{
    char *kept = malloc(n + 1);
    size_t n_kept = 0;
    const char *end;
    f8_status status = F8_OK;
    if (!kept)
        return f8_file_fail(x->diag, F8_ERR_MEMORY, x->r->path, "out of memory");
    for (const char *at = text;
         status == F8_OK && (end = memchr(at, '\n', n - (size_t)(at - text))); at = end + 1) {
        bool keep;
        status = take(x, at, (size_t)(end - at), &keep);
        if (status == F8_OK && keep) {
            memcpy(kept + n_kept, at, (size_t)(end + 1 - at));
            n_kept += (size_t)(end + 1 - at);
        }
    }
    if (status == F8_OK && x->seen != x->step)
        status =
            f8_file_fail(x->diag, F8_ERR_INPUT, x->r->path,
                         "it ends with step %" PRId64 ", and the checkpoint is of step %" PRId64,
                         x->seen, x->step);
    if (status == F8_OK && n_kept != n)
        status = f8_file_write(x->r->list, x->r->path, kept, n_kept, false, x->diag);
    x->r->steps_size = (int64_t)n_kept;
    free(kept);
    return status;
}

f8_status f8_run_continue(f8_run *r, int64_t step, void (*each)(void *user, const json_t *record),
                          void *user, f8_diag *diag)
{
    f8_file_bytes file;
    const char *path = f8_run_path(r, name);
    reading x = {.r = r, .step = step, .each = each, .user = user, .diag = diag};
    F8_TRY(f8_file_read(path, INT64_MAX, NULL, &file, diag));
    const f8_status status = take_all(&x, (const char *)file.bytes, file.size);
    f8_file_release(&file);
    F8_TRY(status);
    r->steps = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    return r->steps < 0 ? f8_run_fail(path, diag) : F8_OK;
}
