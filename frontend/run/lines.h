/* Reading JSON Lines, such as steps.jsonl: a record a line. (lines.c) */
#ifndef F8_RUN_LINES_H
#define F8_RUN_LINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ir/base/status.h"

typedef struct f8_run_line {
    const json_t *record;
    const char *path; /* of the file */
    int64_t number;   /* from 1 on */
    const char *text; /* `size` bytes, with the line end */
    size_t size;
} f8_run_line;

typedef f8_status (*f8_run_take)(void *user, const f8_run_line *line, f8_diag *diag);

/* Give every whole line of a file to `take`. What follows the last line end is still being written,
 * and is left out. *there says whether there is such a file. `there` NULL: it must be there. The
 * path is borrowed by `diag`. */
f8_status f8_run_lines(const char *path, f8_run_take take, void *user, bool *there, f8_diag *diag);
/* The same, but lines that begin with `skip` are passed over: nothing of them is read. A long run
 * has hundreds of megabytes of statistics. */
f8_status f8_run_lines_but(const char *path, const char *skip, f8_run_take take, void *user,
                           bool *there, f8_diag *diag);
#define F8_RUN_SKIP_STATS "{\"event\":\"stats\","
/* The message that a line is not what it should be. */
f8_status f8_run_bad_line(const f8_run_line *line, const char *what, f8_diag *diag);

#endif
