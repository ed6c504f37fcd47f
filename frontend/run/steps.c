/* steps.jsonl: a record a line, appended as the steps end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/run/lines.h"
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
    if (r->follows) {
        json_decref(record);
        return F8_OK;
    }
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
    int64_t step; /* the last that is kept */
    int64_t seen; /* the last whose record was read */
    FILE *kept;   /* the lines of steps that are kept */
    void (*each)(void *user, const json_t *record);
    void *user;
} reading;

static f8_status take(void *user, const f8_run_line *line, f8_diag *diag)
{
    reading *x = user;
    const json_t *step = json_object_get(line->record, "step");
    const char *event = json_string_value(json_object_get(line->record, "event"));
    char what[60];
    if (!event || !json_is_integer(step))
        return f8_run_bad_line(line, "is no record of a step", diag);
    if (json_integer_value(step) > x->step)
        return F8_OK;
    if (!strcmp(event, "step") && json_integer_value(step) != ++x->seen) {
        snprintf(what, sizeof what, "is not of step %" PRId64, x->seen);
        return f8_run_bad_line(line, what, diag);
    }
    if (x->each)
        x->each(x->user, line->record);
    fwrite(line->text, 1, line->size, x->kept);
    return F8_OK;
}

/* Take all whole lines, and write anew what is kept if that is not all. */
static f8_status take_all(f8_run *r, const char *path, reading *x, f8_diag *diag)
{
    struct stat s;
    char *text = NULL;
    size_t n;
    x->kept = open_memstream(&text, &n);
    f8_status status = x->kept ? f8_run_lines(path, take, x, NULL, diag) : F8_OK;
    if (!x->kept || fclose(x->kept)) {
        free(text);
        return status != F8_OK ? status : f8_file_fail(diag, F8_ERR_MEMORY, path, "out of memory");
    }
    if (status == F8_OK && x->seen != x->step)
        status =
            f8_file_fail(diag, F8_ERR_INPUT, path,
                         "it ends with step %" PRId64 ", and the checkpoint is of step %" PRId64,
                         x->seen, x->step);
    if (status == F8_OK && (stat(path, &s) || s.st_size != (off_t)n))
        status = f8_file_write(r->list, path, text, n, false, diag);
    r->steps_size = (int64_t)n;
    free(text);
    return status;
}

f8_status f8_run_continue(f8_run *r, int64_t step, void (*each)(void *user, const json_t *record),
                          void *user, f8_diag *diag)
{
    const char *path = f8_run_path(r, name);
    reading x = {.step = step, .each = each, .user = user};
    if (r->follows)
        return F8_OK;
    F8_TRY(take_all(r, path, &x, diag));
    r->steps = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    return r->steps < 0 ? f8_run_fail(path, diag) : F8_OK;
}
