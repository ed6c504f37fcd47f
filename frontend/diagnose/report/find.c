/* The runs of a report: those that are named, and of an index every folder with a run.json, in the
 * folders given and in those below. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/file.h"
#include "ir/base/format.h"

enum { DEPTH = 8 }; /* folders below the one that is given */

/* ---- an index ---- */

typedef struct paths {
    char **path;
    size_t n, room;
} paths;

static f8_status add_path(paths *p, const char *folder, f8_diag *diag)
{
    F8_TRY(f8_report_grow(&p->path, &p->room, p->n, sizeof *p->path, diag));
    p->path[p->n] = strdup(folder);
    return p->path[p->n++] ? F8_OK : f8_report_no_memory(diag);
}

static void free_paths(paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->path[i]);
    free(p->path);
}

/* A run, or a folder, that can't be read. */
static f8_status add_unread(f8_report *r, const char *name, const f8_diag *why, f8_diag *diag)
{
    char text[PATH_MAX + sizeof why->text];
    f8_format(text, sizeof text, "%s%s%s", why->file ? why->file : "", why->file ? ": " : "",
              why->text);
    F8_TRY(f8_report_grow(&r->unread, &r->unread_room, r->n_unread, sizeof *r->unread, diag));
    f8_report_unread *u = &r->unread[r->n_unread++];
    *u = (f8_report_unread){strdup(name), strdup(text)};
    return u->name && u->why ? F8_OK : f8_report_no_memory(diag);
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* The folders in a folder, in order. Links are not followed: they may lead round in a circle. */
static f8_status list_folders(const char *folder, paths *to, f8_diag *diag)
{
    char path[PATH_MAX];
    struct stat s;
    DIR *d = opendir(folder);
    f8_status status = F8_OK;
    if (!d)
        return f8_run_fail(folder, diag);
    for (const struct dirent *e; status == F8_OK && (e = readdir(d));)
        if (*e->d_name != '.' &&
            f8_format(path, sizeof path, "%s%s%s", folder,
                      folder[strlen(folder) - 1] == '/' ? "" : "/", e->d_name) < PATH_MAX &&
            !lstat(path, &s) && S_ISDIR(s.st_mode))
            status = add_path(to, path, diag);
    closedir(d);
    if (to->n)
        qsort(to->path, to->n, sizeof *to->path, by_name);
    return status;
}

/* A folder below the given one that can't be listed is one that could not be read. */
static f8_status look(f8_report *r, const char *folder, int depth, paths *runs, f8_diag *diag)
{
    paths below = {0};
    f8_diag why = {0};
    if (f8_run_is_there(folder))
        return add_path(runs, folder, diag);
    if (depth > DEPTH)
        return F8_OK;
    f8_status status = list_folders(folder, &below, &why);
    if (status != F8_OK)
        status = !depth || status == F8_ERR_MEMORY ? (*diag = why, why.status)
                                                   : add_unread(r, folder, &why, diag);
    for (size_t i = 0; i < below.n && status == F8_OK; i++)
        status = look(r, below.path[i], depth + 1, runs, diag);
    free_paths(&below);
    return status;
}

/* A run's name is its path below `folder`. */
static const char *below(const char *folder, const char *path)
{
    const size_t n = strlen(folder);
    if (strncmp(path, folder, n) || !path[n])
        return path;
    return path + n + strspn(path + n, "/");
}

static f8_status add_run(f8_report *r, const char *name, const char *folder, f8_diag *diag)
{
    f8_diag why = {0};
    F8_TRY(f8_report_grow(&r->run, &r->room, r->n, sizeof *r->run, diag));
    f8_report_run *run = &r->run[r->n];
    *run = (f8_report_run){.run = F8_RUN_CLOSED, .brief = true, .name = strdup(name)};
    f8_status status = run->name ? f8_report_read_run(run, folder, &why) : F8_ERR_MEMORY;
    r->used |= run->used;
    if (status == F8_OK) {
        r->n++;
        return F8_OK;
    }
    status = status == F8_ERR_MEMORY ? f8_report_no_memory(diag) : add_unread(r, name, &why, diag);
    f8_report_free_run(run);
    return status;
}

static f8_status find_runs(f8_report *r, const char *const *folders, size_t n, f8_diag *diag)
{
    f8_status status = F8_OK;
    for (size_t i = 0; i < n && status == F8_OK; i++) {
        paths runs = {0};
        status = look(r, folders[i], 0, &runs, diag);
        if (status == F8_OK && !runs.n) {
            r->early = true;
            status = f8_file_fail(diag, F8_ERR_INPUT, folders[i],
                                  "it holds no run: neither it nor a folder in it has a run.json");
        }
        for (size_t k = 0; k < runs.n && status == F8_OK; k++)
            status = add_run(r, n == 1 ? below(folders[i], runs.path[k]) : runs.path[k],
                             runs.path[k], diag);
        free_paths(&runs);
    }
    return status;
}

/* ---- runs that are named ---- */

/* The last part of a path, of *n bytes. */
static const char *last_part(const char *path, size_t *n)
{
    size_t end = strlen(path), from;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (from = end; from && path[from - 1] != '/';)
        from--;
    *n = end - from;
    return path + from;
}

/* A run has the name of its folder, or its path where another folder has the same name. */
static f8_status name_run(f8_report_run *r, const char *const *folders, size_t n, size_t at,
                          f8_diag *diag)
{
    size_t length, other;
    const char *name = last_part(folders[at], &length);
    bool alone = true;
    for (size_t i = 0; i < n; i++) {
        const char *last = last_part(folders[i], &other);
        alone &= i == at || other != length || memcmp(last, name, length) != 0;
    }
    r->name = alone ? strndup(name, length) : strdup(folders[at]);
    return r->name ? F8_OK : f8_report_no_memory(diag);
}

static f8_status read_runs(f8_report *r, const char *const *folders, size_t n, f8_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        F8_TRY(f8_report_grow(&r->run, &r->room, r->n, sizeof *r->run, diag));
        f8_report_run *run = &r->run[r->n++];
        *run = (f8_report_run){.run = F8_RUN_CLOSED};
        F8_TRY(name_run(run, folders, n, i, diag));
        const f8_status status = f8_report_read_run(run, folders[i], diag);
        r->early = run->early;
        r->used |= run->used;
        F8_TRY(status);
    }
    return F8_OK;
}

f8_status f8_report_read(f8_report *r, f8_report_kind kind, const char *const *folders, size_t n,
                         f8_diag *diag)
{
    *r = (f8_report){.kind = kind};
    return kind == F8_REPORT_INDEX ? find_runs(r, folders, n, diag)
                                   : read_runs(r, folders, n, diag);
}

void f8_report_free(f8_report *r)
{
    for (size_t i = 0; i < r->n; i++)
        f8_report_free_run(&r->run[i]);
    for (size_t i = 0; i < r->n_unread; i++) {
        free(r->unread[i].name);
        free(r->unread[i].why);
    }
    free(r->run);
    free(r->unread);
    *r = (f8_report){0};
}
