/* Loading libraries at run time: see dynlib.h. */
#include "runtime/base/dynlib.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ir/base/format.h"

/* A table of function pointers is filled as an array of void *: POSIX makes them alike. */
_Static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym returns function pointers");

/* dlerror in libc's untranslated words: code below searches the text. */
static const char *last_error(void)
{
    const locale_t before = f8_locale_c();
    const char *reason = dlerror();
    f8_locale_back(before);
    return reason;
}

/* Whether the loader failed for lack of memory. It says the same of a segment where memory is short
 * and where the file system forbids to execute, so memory is asked for; no library is this large.
 * Static TLS is another thing: a small area that libraries share. */
static bool lacks_memory(const char *reason)
{
    const size_t much = (size_t)512 << 20;
    if (!reason || strstr(reason, "static TLS"))
        return false;
    if (strstr(reason, "annot allocate memory"))
        return true;
    if (!strstr(reason, "failed to map segment"))
        return false;
    void *got = mmap(NULL, much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got != MAP_FAILED)
        munmap(got, much);
    return got == MAP_FAILED;
}

static f8_status fail_memory(const char *what, const char *reason, f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %s could not be loaded (%s)",
                   what, reason);
}

/* A name without a slash is the loader's to find, and the loader does not look in the current
 * directory unless LD_LIBRARY_PATH tells it to. Any other path must be absolute: what lies in the
 * current directory may be anybody's. NULL with the reason. */
static void *open_file(const char *name, const char **reason)
{
    const char *slash = strchr(name, '/');
    if (!*name || (slash && slash != name)) {
        *reason = *name ? "this is a relative path: an absolute one is needed" : "an empty name";
        return NULL;
    }
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    *reason = handle ? NULL : last_error();
    return handle;
}

f8_status f8_dynlib_open(const char *what, const char *const *names, f8_dynlib *out, f8_diag *diag)
{
    char tried[256] = "";
    const char *reason = NULL;
    size_t used = 0;
    *out = (f8_dynlib){0};
    for (int i = 0; names[i]; i++) {
        void *handle = open_file(names[i], &reason);
        if (handle) {
            *out = (f8_dynlib){.handle = handle, .name = names[i]};
            return F8_OK;
        }
        if (lacks_memory(reason))
            return fail_memory(what, reason, diag);
        int n = snprintf(tried + used, sizeof tried - used, "%s%s", i ? ", " : "", names[i]);
        if (n > 0)
            used = used + (size_t)n < sizeof tried ? used + (size_t)n : sizeof tried - 1;
    }
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "can't load %s: tried %s (%s)", what, tried,
                   reason ? reason : "no names were given");
}

/* ---- over folders ---- */

typedef struct search {
    const char *const *names;
    f8_arena *arena;
    f8_dynlib *out;
    const char *refused; /* what the loader said of files that are there */
    const char *memory;  /* what it said when memory was short */
} search;

static bool try_load(search *s, const char *file)
{
    const char *reason;
    void *handle = open_file(file, &reason);
    if (!handle) {
        const size_t n = strlen(file);
        /* If the loader just does not find a bare name, that is no news. A missing dependency is:
         * then the reason begins with the dependency's name. */
        const bool absent = !strchr(file, '/') && reason && !strncmp(reason, file, n) &&
                            strstr(reason, "cannot open shared object file");
        if (!s->memory && lacks_memory(reason))
            s->memory = f8_arena_strdup(s->arena, reason);
        if (!absent)
            s->refused =
                f8_arena_printf(s->arena, "%s; %s does not load (%s)", s->refused ? s->refused : "",
                                file, reason ? reason : "no reason given");
        return false;
    }
    const struct link_map *map = NULL;
    const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0];
    *s->out = (f8_dynlib){.handle = handle,
                          .name = f8_arena_strdup(s->arena, known ? map->l_name : file)};
    return true;
}

static bool try_folder(search *s, const char *folder)
{
    for (const char *const *name = s->names; *name; name++) {
        if (!*folder) {
            if (try_load(s, *name))
                return true;
            continue;
        }
        const char *file = f8_arena_printf(s->arena, "%s/%s", folder, *name);
        if (file && access(file, F_OK) == 0 && try_load(s, file))
            return true;
    }
    return false;
}

static bool try_pattern(search *s, const char *pattern)
{
    if (!f8_dynlib_looks_in(pattern)) {
        s->refused = f8_arena_printf(s->arena, "%s; %s is passed over: it is no absolute path",
                                     s->refused ? s->refused : "", pattern);
        return false;
    }
    if (!strpbrk(pattern, "*?[") || access(pattern, F_OK) == 0)
        return try_folder(s, pattern);
    glob_t matches = {0};
    bool found = false;
    if (glob(pattern, 0, NULL, &matches) == 0)
        for (size_t i = matches.gl_pathc; i-- > 0 && !found;)
            found = try_folder(s, matches.gl_pathv[i]);
    globfree(&matches);
    return found;
}

static const char *join(f8_arena *arena, const char *const *items)
{
    const char *all = "";
    for (int i = 0; items[i] && all; i++)
        all = f8_arena_printf(arena, "%s%s%s", all, i ? ", " : "", items[i]);
    return all ? all : "";
}

static const char *join_folders(f8_arena *arena, const char *const *folders)
{
    const char *all = "";
    for (int i = 0; folders[i] && all; i++)
        if (f8_dynlib_looks_in(folders[i]))
            all = f8_arena_printf(arena, "%s%s%s", all, *all ? ", " : "",
                                  *folders[i] ? folders[i] : "the loader's path");
    return !all || !*all ? "no folder" : all;
}

f8_status f8_dynlib_search(const char *what, const char *const *names, const char *const *folders,
                           f8_arena *arena, f8_dynlib *out, const char **why, f8_diag *diag)
{
    search s = {.names = names, .arena = arena, .out = out};
    *out = (f8_dynlib){0};
    *why = NULL;
    for (int i = 0; folders[i]; i++)
        if (try_pattern(&s, folders[i])) {
            if (!out->name)
                f8_dynlib_close(out);
            out->refused = s.refused;
            return f8_arena_status(arena, diag);
        }
    out->refused = s.refused;
    *why = f8_arena_printf(
        arena, "can't load %s (%s): looked in %s%s; `fp8c doctor` says how to get it", what,
        join(arena, names), join_folders(arena, folders), s.refused ? s.refused : "");
    F8_TRY(f8_arena_status(arena, diag));
    if (s.memory)
        return fail_memory(what, s.memory, diag);
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "%s", *why);
}

void f8_dynlib_close(f8_dynlib *lib)
{
    if (lib->handle)
        dlclose(lib->handle);
    *lib = (f8_dynlib){0};
}

void *f8_dynlib_find(const f8_dynlib *lib, const char *symbol)
{
    return lib->handle ? dlsym(lib->handle, symbol) : NULL;
}

f8_status f8_dynlib_symbols(const f8_dynlib *lib, const char *const *names, size_t count,
                            void *table, f8_diag *diag)
{
    for (size_t i = 0; i < count; i++) {
        void *address = f8_dynlib_find(lib, names[i]);
        if (!address)
            return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "%s has no symbol %s",
                           lib->name ? lib->name : "(no library)", names[i]);
        memcpy((char *)table + i * sizeof address, &address, sizeof address);
    }
    return F8_OK;
}
