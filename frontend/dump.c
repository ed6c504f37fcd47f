/* Dumps: see dump.h. */
#include "frontend/dump.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/format.h"

enum { MOST_FOLDERS = 100000, NAME = 64 };

static void say(f8_dump *d, const char *path, int error)
{
    if (!atomic_exchange(&d->failed, true))
        f8_log_say(d->log, F8_LOG_WARNING, "dump: %s: %s", path,
                   error ? f8_errno_text(error) : "only a part was written");
}

/* ---- the folder ---- */

/* A name as part of a file's name, without characters that make a path. */
static void plain(const char *name, char out[NAME])
{
    size_t n = 0;
    for (; name[n] && n + 1 < NAME; n++) {
        const char c = name[n];
        const bool kept =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        out[n] = kept ? c : '_';
    }
    out[n] = 0;
}

/* Make the folder given, with its parents. */
static bool make_folders(char *path)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        const bool made = !mkdir(path, 0777) || errno == EEXIST;
        *p = '/';
        if (!made)
            return false;
    }
    return !mkdir(path, 0777) || errno == EEXIST;
}

void f8_dump_begin(f8_dump *d, const char *below, const char *module, const char *target,
                   const f8_log *log)
{
    char name[NAME], kind[NAME];
    *d = (f8_dump){.log = log};
    plain(module, name);
    plain(target, kind);
    if (strlen(below) + 2 * NAME + 20 >= sizeof d->folder) {
        say(d, below, ENAMETOOLONG);
        return;
    }
    snprintf(d->folder, sizeof d->folder, "%s", below);
    bool next = make_folders(d->folder);
    for (int i = 0; next && i < MOST_FOLDERS; i++) {
        snprintf(d->folder, sizeof d->folder, "%s/%s.%s.%d", below, name, kind, i);
        if (!mkdir(d->folder, 0777))
            return;
        next = errno == EEXIST; /* another compile, of any process, made it first */
    }
    say(d, d->folder, errno);
    d->folder[0] = 0;
}

/* ---- files ---- */

static FILE *create(f8_dump *d, const char *file, char path[PATH_MAX])
{
    if (!d->folder[0])
        return NULL;
    if ((size_t)snprintf(path, PATH_MAX, "%s/%s", d->folder, file) >= PATH_MAX) {
        say(d, file, ENAMETOOLONG);
        return NULL;
    }
    FILE *f = fopen(path, "wxe");
    if (!f)
        say(d, path, errno);
    return f;
}

static void finish(f8_dump *d, FILE *f, const char *path)
{
    errno = 0;
    const bool bad = fflush(f) || ferror(f);
    const int error = errno;
    if (fclose(f) || bad)
        say(d, path, error);
}

static int put(void *user, const char *text, size_t n)
{
    return fwrite(text, 1, n, user) != n;
}

void f8_dump_show(void *dump, const f8_unit *u, const char *pass)
{
    f8_dump *d = dump;
    char path[PATH_MAX], file[NAME];
    snprintf(file, sizeof file, "%02d_%s.f8", d->modules++, pass ? pass : "input");
    FILE *f = create(d, file, path);
    if (!f)
        return;
    const f8_writer writer = {put, f};
    f8_print_module(u->module, &writer); /* only writing can fail, and finish sees that */
    finish(d, f, path);
}

void f8_dump_text(void *dump, const char *file, const char *text)
{
    f8_dump *d = dump;
    char path[PATH_MAX];
    FILE *f = create(d, file, path);
    if (!f)
        return;
    put(f, text, strlen(text));
    finish(d, f, path);
}
