/* For tests of contexts: a folder of the test's own, a log that is kept, and compiles of the small
 * model. */
#ifndef TEST_CONTEXT_CASE_H
#define TEST_CONTEXT_CASE_H

#include <dirent.h>
#include <unistd.h>

#include "tests/shared/api/api.h"

/* ---- a folder of the test's own ---- */

static char folder[256];

static inline void setup(void)
{
    static const char *const variables[] = {"FP8C_CACHE_DIR", "FP8C_DUMP",      "FP8C_VERBOSE",
                                            "FP8C_TUNING",    "XDG_CACHE_HOME", "HOME"};
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/fp8c-context-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

static void remove_all(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    char below[4096];
    while (d && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        remove_all(below);
    }
    if (d)
        closedir(d);
    remove(path);
}

static inline void teardown(void)
{
    remove_all(folder);
}

/* folder/NAME, in one of a few buffers. */
static inline const char *below(const char *name)
{
    static char path[8][512];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

/* ---- a log that is kept ---- */

typedef struct lines {
    pthread_mutex_t lock;
    char text[1 << 16];
    size_t n;
    int count[3];
} lines;

static inline void note(void *user, fp8c_log_level level, const char *text)
{
    lines *l = user;
    pthread_mutex_lock(&l->lock);
    ck_assert(level >= FP8C_LOG_WARNING && level <= FP8C_LOG_DEBUG && !strchr(text, '\n'));
    l->count[level]++;
    l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s\n", text);
    ck_assert_uint_lt(l->n, sizeof l->text);
    pthread_mutex_unlock(&l->lock);
}

static inline lines new_lines(void)
{
    return (lines){.lock = PTHREAD_MUTEX_INITIALIZER};
}

static inline fp8c_context *create(const fp8c_context_options *o)
{
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(o, &ctx), FP8C_OK);
    return ctx;
}

static inline void compile_for(fp8c_context *ctx, const char *target)
{
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("delayed");
    o.target = target;
    fp8c_program_destroy(compile(ctx, m, &o));
    fp8c_module_destroy(m);
}

static inline void compile_once(fp8c_context *ctx)
{
    compile_for(ctx, "cpu");
}

#endif
