/* What commands write: stdout, JSON Lines, and texts into files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cli/cli.h"

int cli_flush_stdout(int code)
{
    errno = 0;
    const bool failed = fflush(stdout) || ferror(stdout);
    if (failed && !errno && fputc('\n', stdout) != EOF)
        fflush(stdout); /* an earlier write failed: another one tells why */
    if (!failed || code != CLI_DONE)
        return code;
    cli_error(NULL, "stdout: %s", errno ? strerror(errno) : "not everything was written");
    return CLI_FAILED;
}

/* ---- JSON Lines ---- */

bool cli_json_open(cli_json *j, const char *path)
{
    *j = (cli_json){.path = path};
    if (!path)
        return true;
    j->file = strcmp(path, "-") ? fopen(path, "a") : stdout;
    return j->file || cli_error(path, "%s", strerror(errno));
}

/* Empties the file once there is a record: a command that fails before leaves what was there. */
static bool begin(cli_json *j)
{
    struct stat s;
    const bool first = !j->begun && j->file != stdout;
    j->begun = true;
    return !first || fstat(fileno(j->file), &s) || !S_ISREG(s.st_mode) ||
           !ftruncate(fileno(j->file), 0);
}

void cli_json_record(cli_json *j, json_t *record)
{
    if (j->file && !j->failed) {
        errno = record ? 0 : ENOMEM;
        j->failed = !record || !begin(j) ||
                    json_dumpf(record, j->file, JSON_COMPACT | JSON_PRESERVE_ORDER) ||
                    fputc('\n', j->file) == EOF || fflush(j->file);
        j->error = errno;
    }
    json_decref(record);
}

bool cli_json_close(cli_json *j)
{
    if (!j->file)
        return true;
    if ((j->file == stdout ? fflush(stdout) : fclose(j->file)) && !j->failed) {
        j->failed = true;
        j->error = errno;
    }
    j->file = NULL;
    return !j->failed || cli_error(j->path, "the JSON records could not be written: %s",
                                   j->error ? strerror(j->error) : "a value has no JSON form");
}

bool cli_json_to_stdout(const cli *c)
{
    return c->json && !strcmp(c->json, "-");
}

FILE *cli_table(const cli *c)
{
    return cli_json_to_stdout(c) ? NULL : stdout;
}

/* ---- files ---- */

void cli_text_open(cli_text *t, const char *path)
{
    struct stat s;
    /* a descriptor of this process, by whatever name, is written to, never replaced */
    const bool is_open = path && (!strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6));
    const bool to_stdout = !path || !strcmp(path, "-") || !strcmp(path, "/dev/stdout");
    *t = (cli_text){.path = to_stdout ? NULL : path};
    errno = 0; /* the first failed write sets it */
    if (!t->path) {
        t->to = stdout;
        return;
    }
    t->gathered = !is_open && (stat(path, &s) || S_ISREG(s.st_mode));
    t->to = t->gathered ? open_memstream(&t->bytes, &t->size) : fopen(path, "wb");
}

/* Finds a failed write, also an early one that fclose does not report. errno is that of the first
 * failure. */
static bool close_stream(FILE *to, bool close)
{
    const bool whole = to && !fflush(to) && !ferror(to);
    const int error = errno;
    const bool closed = !to || !close || !fclose(to);
    if (!whole)
        errno = error;
    return whole && closed;
}

bool cli_text_end(cli_text *t, bool wanted)
{
    f8_diag diag = {0};
    bool ok = close_stream(t->to, t->path != NULL);
    if (!ok)
        cli_error(t->path ? t->path : "stdout", "%s",
                  errno ? strerror(errno) : "not everything was written");
    else if (wanted && t->gathered)
        ok = f8_file_write(cli_temporaries(), t->path, t->bytes, t->size, false, &diag) == F8_OK ||
             cli_file_fail(&diag);
    free(t->bytes);
    *t = (cli_text){0};
    return ok;
}
