/* Which files of a library there are, and which are mapped: see dynlib.h. */
#include "runtime/base/dynlib.h"

#include <dlfcn.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct listing {
    f8_arena *arena;
    f8_dynlib_file *file;
    size_t n, room;
} listing;

static void add_file(listing *l, const char *path)
{
    struct stat st;
    char real[PATH_MAX];
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    for (size_t i = 0; i < l->n; i++)
        if (l->file[i].device == st.st_dev && l->file[i].inode == st.st_ino)
            return;
    f8_dynlib_file *grown =
        f8_arena_grow(l->arena, l->file, l->n, &l->room, l->n + 1, sizeof *l->file);
    const char *own = f8_arena_strdup(l->arena, path);
    const char *followed = f8_arena_strdup(l->arena, realpath(path, real) ? real : path);
    if (!grown || !own || !followed)
        return; /* the arena remembers */
    l->file = grown;
    l->file[l->n++] = (f8_dynlib_file){own, followed, st.st_dev, st.st_ino, st.st_size};
}

static void add_pattern(listing *l, const char *folder, const char *name)
{
    const char *pattern = f8_arena_printf(l->arena, "%s/%s", folder, name);
    glob_t matches = {0};
    /* As f8_dynlib_search takes them: the last in alphabetical order first. */
    if (pattern && glob(pattern, 0, NULL, &matches) == 0)
        for (size_t i = matches.gl_pathc; i-- > 0;)
            add_file(l, matches.gl_pathv[i]);
    globfree(&matches);
}

/* LD_LIBRARY_PATH and the system's folders, as the loader lists them for this program. */
static void add_loader_folders(listing *l, const char *name)
{
    void *self = dlopen(NULL, RTLD_NOW);
    Dl_serinfo size, *info;
    if (!self)
        return;
    if (dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0 &&
        (info = f8_arena_array(l->arena, 1, size.dls_size)) != NULL) {
        info->dls_size = size.dls_size;
        info->dls_cnt = size.dls_cnt;
        if (dlinfo(self, RTLD_DI_SERINFO, info) == 0)
            for (unsigned i = 0; i < info->dls_cnt; i++)
                if (info->dls_serpath[i].dls_name && *info->dls_serpath[i].dls_name)
                    add_pattern(l, info->dls_serpath[i].dls_name, name);
    }
    dlclose(self);
}

f8_status f8_dynlib_files(const char *const *names, const char *const *folders, f8_arena *arena,
                          f8_dynlib_file **out, size_t *n, f8_diag *diag)
{
    listing l = {.arena = arena};
    for (int f = 0; folders[f]; f++)
        for (int i = 0; names[i] && f8_dynlib_looks_in(folders[f]); i++) {
            if (*folders[f])
                add_pattern(&l, folders[f], names[i]);
            else
                add_loader_folders(&l, names[i]);
        }
    *out = l.file;
    *n = l.n;
    return f8_arena_status(arena, diag);
}

/* ---- what is mapped ---- */

typedef struct wanted {
    const char *begins, *known;
    f8_arena *arena;
    const char *found;
} wanted;

bool f8_dynlib_same(const char *a, const char *b)
{
    struct stat x, y;
    return !strcmp(a, b) ||
           (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static int look(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    wanted *w = user;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!slash || strncmp(slash + 1, w->begins, strlen(w->begins)) ||
        (w->known && f8_dynlib_same(w->known, info->dlpi_name)))
        return 0;
    w->found = f8_arena_strdup(w->arena, info->dlpi_name);
    return 1;
}

const char *f8_dynlib_mapped(const char *begins, const char *known, f8_arena *arena)
{
    wanted w = {begins, known, arena, NULL};
    dl_iterate_phdr(look, &w);
    return w.found;
}

/* ---- where this code is ---- */

/* dladdr has the name that a program was started by, which has no folder if it was found through
 * PATH, and a library's as it was given, when the current directory may have been another. The
 * kernel knows the file itself. A line of its list: "BEGIN-END MODE OFFSET DEVICE INODE PATH". */
const char *f8_dynlib_own_folder(f8_arena *arena)
{
    const uintptr_t here = (uintptr_t)&f8_dynlib_own_folder;
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128];
    const char *folder = NULL;
    while (maps && !folder && fgets(line, sizeof line, maps)) {
        uintptr_t begin, end;
        const char *path = strchr(line, '/'), *slash = strrchr(line, '/');
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2 && begin <= here &&
            here < end && path)
            folder = f8_arena_printf(arena, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    }
    if (maps)
        fclose(maps);
    return folder;
}
