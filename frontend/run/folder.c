/* The folder of a run: making it, opening it, its lock, run.json. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/run/run.h"
#include "ir/base/file.h"
#include "ir/base/format.h"
#include "ir/base/lock.h"
#include "ir/base/text.h"

static const char lock_name[] = "lock", info_name[] = "run.json";
const char f8_run_format[] = "fp8c run";
enum { MOST = 1 << 28 }; /* bytes of a file with one JSON value */

f8_status f8_run_fail(const char *path, f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_IO, path, "%s", f8_errno_text(errno));
}

const char *f8_run_path(f8_run *r, const char *name)
{
    if (snprintf(r->path, sizeof r->path, "%s/%s", r->folder, name) >= (int)sizeof r->path)
        r->path[0] = 0; /* no file has this name */
    return r->path;
}

/* ---- an empty folder ---- */

/* Whether `folder` is there. If so it must be a folder, and hold nothing. */
static f8_status check_empty(const char *folder, bool *there, f8_diag *diag)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    *there = d != NULL;
    if (!d)
        return errno == ENOENT ? F8_OK : f8_run_fail(folder, diag);
    f8_status status = F8_OK;
    while (status == F8_OK && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            status = f8_file_fail(diag, F8_ERR_INPUT, folder,
                                  "a new run needs an empty folder, and this one has '%s'; nothing "
                                  "was changed",
                                  e->d_name);
    closedir(d);
    return status;
}

f8_status f8_run_free(f8_run *r, const char *folder, f8_diag *diag)
{
    bool there;
    *r = F8_RUN_CLOSED;
    return check_empty(folder, &there, diag);
}

/* Of two processes that found the folder empty, one makes the file. */
static f8_status take_lock(f8_run *r, int more, f8_diag *diag)
{
    const char *path = f8_run_path(r, lock_name);
    r->lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | more, 0666);
    if (r->lock < 0 && errno == EEXIST)
        return f8_file_fail(diag, F8_ERR_INPUT, r->folder, "another process has taken it");
    if (r->lock < 0)
        return f8_run_fail(path, diag);
    if (f8_lock_byte(r->lock, 0))
        return F8_OK;
    if (errno != EAGAIN && errno != EACCES)
        return f8_run_fail(path, diag);
    return f8_file_fail(diag, F8_ERR_INPUT, r->folder, "another process is using it");
}

f8_status f8_run_create(f8_run *r, const char *folder, f8_temporaries *list, f8_diag *diag)
{
    bool there;
    *r = F8_RUN_CLOSED;
    r->folder = folder;
    r->list = list;
    F8_TRY(check_empty(folder, &there, diag));
    if (!there && mkdir(folder, 0777))
        return f8_run_fail(folder, diag);
    r->made = !there;
    F8_TRY(take_lock(r, O_CREAT | O_EXCL, diag));
    r->unfinished = true; /* the files are ours from here on */
    return F8_OK;
}

/* ---- files ---- */

f8_status f8_run_put(f8_run *r, const char *name, const char *text, f8_diag *diag)
{
    if (r->follows)
        return F8_OK;
    const char *path = f8_run_path(r, name);
    return f8_file_write(r->list, path, text, strlen(text), false, diag);
}

f8_status f8_run_put_info(f8_run *r, f8_diag *diag)
{
    char *text = r->info ? json_dumps(r->info, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    const f8_status status =
        text ? f8_run_put(r, info_name, text, diag)
             : f8_file_fail(diag, F8_ERR_MEMORY, f8_run_path(r, info_name), "out of memory");
    free(text);
    return status;
}

/* Remove what f8_run_create and f8_run_begin made. */
static void abandon(f8_run *r)
{
    static const char *const names[] = {info_name,
                                        "module.f8",
                                        "source.f8",
                                        "decisions.jsonl",
                                        "plan.json",
                                        "steps.jsonl",
                                        "checkpoint-0.safetensors",
                                        lock_name};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(f8_run_path(r, names[i]));
    if (r->made)
        rmdir(r->folder);
}

void f8_run_close(f8_run *r)
{
    if (r->unfinished)
        abandon(r);
    if (r->steps >= 0)
        close(r->steps);
    if (r->lock >= 0) {
        f8_unlock_byte(r->lock, 0);
        close(r->lock);
    }
    json_decref(r->info);
    *r = F8_RUN_CLOSED;
}

/* ---- a run that is there ---- */

/* Check what run.json says of itself. */
static f8_status check_info(const f8_run *r, f8_diag *diag)
{
    const char *is = json_string_value(json_object_get(r->info, "format")),
               *by =
                   json_string_value(json_object_get(json_object_get(r->info, "versions"), "fp8c"));
    const json_t *version = json_object_get(r->info, "version");
    char shown[40];
    if (!is || strcmp(is, f8_run_format) || !by)
        return f8_file_fail(diag, F8_ERR_INPUT, r->path, "it does not describe a run of fp8c");
    if (!json_is_integer(version) || json_integer_value(version) != F8_RUN_VERSION)
        return f8_file_fail(diag, F8_ERR_INPUT, r->path,
                            "the folder has a format that this fp8c does not read: it reads %d",
                            (int)F8_RUN_VERSION);
    if (strcmp(by, fp8c_version()))
        return f8_file_fail(diag, F8_ERR_INPUT, r->path,
                            "the run was made by fp8c %s, and this is %s",
                            f8_st_shown(by, shown, sizeof shown), fp8c_version());
    return F8_OK;
}

f8_status f8_run_json(f8_run *r, const char *name, json_t **out, f8_diag *diag)
{
    struct stat s;
    f8_file_bytes file;
    json_error_t error;
    const char *path = f8_run_path(r, name);
    *out = NULL;
    if (stat(path, &s) && errno == ENOENT)
        return F8_OK;
    F8_TRY(f8_file_read(path, MOST, NULL, &file, diag));
    *out = json_loadb((const char *)file.bytes, file.size, JSON_REJECT_DUPLICATES, &error);
    f8_file_release(&file);
    return *out ? F8_OK
                : f8_file_fail(diag, F8_ERR_INPUT, path, "it is not JSON: line %d: %s", error.line,
                               error.text);
}

static f8_status read_info(f8_run *r, f8_diag *diag)
{
    F8_TRY(f8_run_json(r, info_name, &r->info, diag));
    if (!r->info)
        return f8_file_fail(diag, F8_ERR_INPUT, r->folder, "it is no folder of a run: it has no %s",
                            info_name);
    return check_info(r, diag);
}

/* Remove the files that a killed process was writing: NAME.THREAD-N.tmp (ir/base/file.h). */
static f8_status remove_temporaries(f8_run *r, f8_diag *diag)
{
    static const char *const ours[] = {info_name,     "decisions.jsonl", "plan.json",
                                       "steps.jsonl", "profile.jsonl",   "checkpoint-"};
    DIR *d = opendir(r->folder);
    const struct dirent *e;
    if (!d)
        return f8_run_fail(r->folder, diag);
    while ((e = readdir(d)))
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (!strncmp(e->d_name, ours[i], strlen(ours[i])) &&
                f8_text_ends_with(e->d_name, ".tmp"))
                unlink(f8_run_path(r, e->d_name));
    closedir(d);
    return F8_OK;
}

/* Whether `folder` is one; its path for what follows. */
static f8_status find(f8_run *r, const char *folder, f8_temporaries *list, f8_diag *diag)
{
    struct stat s;
    *r = F8_RUN_CLOSED;
    r->folder = folder;
    r->list = list;
    if (stat(folder, &s))
        return f8_run_fail(folder, diag);
    return S_ISDIR(s.st_mode) ? F8_OK
                              : f8_file_fail(diag, F8_ERR_INPUT, folder, "it is not a folder");
}

f8_status f8_run_look(f8_run *r, const char *folder, f8_diag *diag)
{
    F8_TRY(find(r, folder, NULL, diag));
    return read_info(r, diag);
}

bool f8_run_is_there(const char *folder)
{
    struct stat s;
    f8_run r = {.folder = folder};
    return !stat(f8_run_path(&r, info_name), &s);
}

bool f8_run_is_used(const char *folder)
{
    f8_run r = {.folder = folder};
    const int fd = open(f8_run_path(&r, lock_name), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool used = fd >= 0 && f8_lock_is_held(fd, 0);
    if (fd >= 0)
        close(fd);
    return used;
}

f8_status f8_run_open(f8_run *r, const char *folder, f8_temporaries *list, f8_diag *diag)
{
    struct stat s;
    F8_TRY(find(r, folder, list, diag));
    if (stat(f8_run_path(r, lock_name), &s) && errno == ENOENT &&
        !stat(f8_run_path(r, info_name), &s))
        F8_TRY(take_lock(r, O_CREAT, diag)); /* a copy may lack the empty file */
    F8_TRY(read_info(r, diag));
    if (r->lock < 0)
        F8_TRY(take_lock(r, 0, diag));
    return remove_temporaries(r, diag);
}

f8_status f8_run_follow(f8_run *r, const char *folder, bool there, f8_diag *diag)
{
    *r = F8_RUN_CLOSED;
    r->folder = folder;
    const f8_status status = there ? f8_run_look(r, folder, diag) : F8_OK;
    r->follows = true;
    return status;
}
