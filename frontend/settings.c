/* Options and the environment: see settings.h. */
#include "frontend/settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* The strings of the settings, in the order of f8_settings_source.part. */
enum { CUDA_FOLDER, CUDA_HOME, CUDA_PATH, PYTHON, HOME, CACHE, TUNING, TABLE, DUMP };
_Static_assert(DUMP + 1 == F8_SETTINGS_STRINGS, "parts for each string");
_Static_assert(sizeof(f8_cuda_paths) == 5 * sizeof(const char *), "a path without an option");

/* The option, or if it is NULL the variable; an empty string counts as none. */
static const char *choose(const char *option, const char *environment)
{
    const char *value = option ? option : environment;
    return value && *value ? value : NULL;
}

/* The folder for caches by the XDG rules, given or by default. A path that is not absolute is
 * ignored, as XDG has it: the cache would be in whatever directory is the current one. */
static void default_cache(const char *home, const char *part[])
{
    const char *xdg = secure_getenv("XDG_CACHE_HOME");
    const bool named = xdg && *xdg == '/';
    part[0] = named ? xdg : home && *home == '/' ? home : NULL;
    part[1] = !part[0] ? NULL : named ? "/fp8c" : "/.cache/fp8c";
}

static void read_folders(const fp8c_context_options *o, f8_settings_source *s)
{
    const char *cache = o->cache_dir ? o->cache_dir : secure_getenv("FP8C_CACHE_DIR");
    const char *tuning = o->tuning ? o->tuning : secure_getenv("FP8C_TUNING");
    if (cache) /* "" counts: it turns the cache off */
        s->part[CACHE][0] = choose(cache, NULL);
    else
        default_cache(s->part[HOME][0], s->part[CACHE]);
    s->part[TABLE][0] = secure_getenv("FP8C_TUNING_TABLE"); /* "" counts: it turns the table off */
    if (tuning) {
        s->part[TUNING][0] = choose(tuning, NULL);
    } else if (s->part[CACHE][0]) {
        memcpy(s->part[TUNING], s->part[CACHE], sizeof s->part[CACHE]);
        s->part[TUNING][s->part[CACHE][1] ? 2 : 1] = "/tuning.db";
    }
}

/* A set-uid process has rights that its user lacks, and libraries and code would be taken from
 * where that user says. secure_getenv reads nothing there, here and in all of fp8c. */
static void note_ignored(f8_settings_source *s)
{
    if (!s->wrong && getauxval(AT_SECURE))
        s->wrong = "this process has rights that its user lacks (it is set-uid, or has file "
                   "capabilities): fp8c reads no variable of its environment";
}

static void read_level(const fp8c_context_options *o, f8_settings_source *s)
{
    const char *text = o->verbose ? NULL : choose(NULL, secure_getenv("FP8C_VERBOSE"));
    char *end = NULL;
    const long n = text ? strtol(text, &end, 10) : o->verbose;
    if (text && (*end || n < 0 || n > F8_LOG_DEBUG))
        s->wrong = "FP8C_VERBOSE is not 0, 1 or 2: it counts as 0";
    s->verbose = n <= 0 || s->wrong ? F8_LOG_WARNING : n == 1 ? F8_LOG_INFO : F8_LOG_DEBUG;
}

f8_settings_source f8_settings_read(const fp8c_context_options *o)
{
    const f8_cuda_paths paths = f8_cuda_paths_from_environment();
    f8_settings_source s = {.cache_bytes = o->cache_bytes};
    s.part[CUDA_FOLDER][0] = choose(o->gpu_library_path, paths.fp8c_cuda_path);
    s.part[CUDA_HOME][0] = choose(o->cuda_home, paths.cuda_home);
    s.part[CUDA_PATH][0] = choose(o->cuda_path, paths.cuda_path);
    s.part[PYTHON][0] = choose(o->python_env, paths.virtual_env);
    s.part[HOME][0] = choose(o->home, paths.home);
    s.part[DUMP][0] = choose(o->dump, secure_getenv("FP8C_DUMP"));
    read_folders(o, &s);
    read_level(o, &s);
    note_ignored(&s);
    for (int i = 0; i < F8_SETTINGS_STRINGS; i++) {
        for (const char **part = s.part[i]; *part; part++)
            s.bytes += strlen(*part);
        s.bytes += s.part[i][0] != NULL;
    }
    return s;
}

/* Copy a string's parts to *room, which advances; NULL: there is no string. */
static const char *join(const char *const *part, char **room)
{
    char *const begin = *room;
    if (!*part)
        return NULL;
    for (; *part; part++)
        *room = stpcpy(*room, *part);
    ++*room;
    return begin;
}

f8_settings f8_settings_copy(const f8_settings_source *s, char *room)
{
    f8_settings out = {.cache_bytes = s->cache_bytes, .verbose = s->verbose, .wrong = s->wrong};
    const char **const to[F8_SETTINGS_STRINGS] = {
        [CUDA_FOLDER] = &out.gpu.fp8c_cuda_path,
        [CUDA_HOME] = &out.gpu.cuda_home,
        [CUDA_PATH] = &out.gpu.cuda_path,
        [PYTHON] = &out.gpu.virtual_env,
        [HOME] = &out.gpu.home,
        [CACHE] = &out.cache,
        [TUNING] = &out.tuning,
        [TABLE] = &out.table,
        [DUMP] = &out.dump,
    };
    for (int i = 0; i < F8_SETTINGS_STRINGS; i++)
        *to[i] = join(s->part[i], &room);
    return out;
}
