/* Contexts: options, structs of older callers, the environment, each thread's messages, the log,
 * dumps. */
#include <dirent.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

/* ---- a folder of the test's own ---- */

static char folder[256];

static void setup(void)
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

static void teardown(void)
{
    remove_all(folder);
}

/* folder/NAME, in one of a few buffers. */
static const char *below(const char *name)
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

static void note(void *user, fp8c_log_level level, const char *text)
{
    lines *l = user;
    pthread_mutex_lock(&l->lock);
    ck_assert(level >= FP8C_LOG_WARNING && level <= FP8C_LOG_DEBUG && !strchr(text, '\n'));
    l->count[level]++;
    l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s\n", text);
    ck_assert_uint_lt(l->n, sizeof l->text);
    pthread_mutex_unlock(&l->lock);
}

static lines new_lines(void)
{
    return (lines){.lock = PTHREAD_MUTEX_INITIALIZER};
}

static fp8c_context *create(const fp8c_context_options *o)
{
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(o, &ctx), FP8C_OK);
    return ctx;
}

static void compile_for(fp8c_context *ctx, const char *target)
{
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("delayed");
    o.target = target;
    fp8c_program_destroy(compile(ctx, m, &o));
    fp8c_module_destroy(m);
}

static void compile_once(fp8c_context *ctx)
{
    compile_for(ctx, "cpu");
}

/* ---- options ---- */

START_TEST(wrong_options)
{
    const struct {
        fp8c_context_options o;
        const char *why;
    } wrong[] = {
        {{.alloc = count_alloc}, "alloc and free are a pair: give both or neither"},
        {{.free = count_free}, "alloc and free are a pair: give both or neither"},
        {{.parallel = (fp8c_parallel_fn)abort}, "parallel_threads is not from 1 to 256"},
        {{.parallel = (fp8c_parallel_fn)abort, .parallel_threads = 257},
         "parallel_threads is not from 1 to 256"},
        {{.threads = -1}, "threads is not from 0 to 256"},
        {{.threads = 257}, "threads is not from 0 to 256"},
        {{.cache_bytes = -1}, "cache_bytes is negative"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        lines l = new_lines();
        fp8c_context_options o = wrong[i].o;
        fp8c_context *ctx = (fp8c_context *)&l;
        o.struct_size = sizeof o;
        ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_ERR_INPUT);
        ck_assert_ptr_null(ctx);
        o.log = note;
        o.log_user = &l;
        ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_ERR_INPUT);
        ck_assert_msg(strstr(l.text, wrong[i].why) != NULL, "'%s' is not '%s'", l.text,
                      wrong[i].why);
    }
    ck_assert_str_eq(fp8c_context_message(NULL), "no context");
    fp8c_context_destroy(NULL);
}
END_TEST

/* A caller of an older header: what lies behind its struct is not read, whatever it is. One of a
 * newer header: what this library does not know is passed over. */
START_TEST(sizes_of_callers)
{
    static const size_t ends[] = {sizeof(size_t),
                                  offsetof(fp8c_context_options, gpu_library_path),
                                  offsetof(fp8c_context_options, cache_dir),
                                  offsetof(fp8c_context_options, progress),
                                  sizeof(fp8c_context_options),
                                  sizeof(fp8c_context_options) + 64};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        unsigned char bytes[sizeof(fp8c_context_options) + 64];
        const fp8c_context_options none = {.struct_size = ends[i]};
        memset(bytes, 0xff, sizeof bytes);
        memcpy(bytes, &none, ends[i] < sizeof none ? ends[i] : sizeof none);
        memcpy(bytes, &ends[i], sizeof ends[i]);
        _Alignas(fp8c_context_options) unsigned char aligned[sizeof bytes];
        memcpy(aligned, bytes, sizeof bytes);
        fp8c_context *ctx = create((const fp8c_context_options *)aligned);
        compile_for(ctx, "reference");
        fp8c_context_destroy(ctx);
    }
}
END_TEST

/* One that was never set would have all options passed over. */
START_TEST(sizes_never_set)
{
    static const size_t sizes[] = {0, 1, sizeof(size_t) - 1, (size_t)1 << 40, SIZE_MAX};
    fp8c_context *ctx = create(NULL);
    fp8c_module *m = parse(ctx, model);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const fp8c_context_options o = {.struct_size = sizes[i]};
        const fp8c_compile_options c = {.struct_size = sizes[i]};
        char why[120];
        fp8c_context *none = ctx;
        fp8c_program *p = (fp8c_program *)ctx;
        ck_assert_int_eq(fp8c_context_create(&o, &none), FP8C_ERR_INPUT);
        ck_assert_ptr_null(none);
        ck_assert_int_eq(fp8c_compile(m, &c, &p), FP8C_ERR_INPUT);
        ck_assert_ptr_null(p);
        snprintf(why, sizeof why, "fp8c_compile_options has struct_size %zu", sizes[i]);
        ck_assert_msg(strstr(fp8c_context_message(ctx), why) != NULL, "%s",
                      fp8c_context_message(ctx));
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- messages ---- */

typedef struct failing {
    fp8c_context *ctx;
    int number;
    bool silent_before, own, kept;
} failing;

static void *fail_and_look(void *user)
{
    failing *f = user;
    char text[64], want[64];
    fp8c_module *m;
    f->silent_before = !*fp8c_context_message(f->ctx);
    snprintf(text, sizeof text, "module m%d\nnonsense%d", f->number, f->number);
    snprintf(want, sizeof want, "'nonsense%d'", f->number);
    if (fp8c_module_parse(f->ctx, text, strlen(text), "x.f8", NULL, 0, &m) == FP8C_OK)
        return NULL;
    const char *message = fp8c_context_message(f->ctx);
    f->own = strstr(message, want) != NULL;
    for (int i = 0; i < 20; i++) {
        sched_yield();
        f->kept = message == fp8c_context_message(f->ctx) && strstr(message, want) != NULL;
        if (!f->kept)
            break;
    }
    return NULL;
}

/* ThreadSanitizer can't see the order in which threads that ended leave their room to others. */
#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 7 };
#else
enum { ROUNDS = 40 };
#endif

START_TEST(messages_of_threads)
{
    enum { AT_ONCE = 8, KEPT = 64 };
    counting c = {0};
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .alloc = count_alloc,
                                    .free = count_free,
                                    .allocator_user = &c,
                                    .cache_dir = ""};
    fp8c_context *ctx = create(&o);
    const size_t before = c.bytes;
    size_t most = 0;
    for (int round = 0; round < ROUNDS; round++) {
        failing f[AT_ONCE];
        pthread_t id[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            f[i] = (failing){.ctx = ctx, .number = round * AT_ONCE + i};
            ck_assert_int_eq(pthread_create(&id[i], NULL, fail_and_look, &f[i]), 0);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            pthread_join(id[i], NULL);
            ck_assert_msg(f[i].silent_before, "thread %d: a message before it failed", f[i].number);
            ck_assert_msg(f[i].own && f[i].kept, "thread %d: not its own message", f[i].number);
        }
        ck_assert_str_eq(fp8c_context_message(ctx), ""); /* this thread has not failed */
        most = c.bytes > most ? c.bytes : most;
    }
    ck_assert_uint_le(most - before, KEPT * 4400); /* what threads that ended leave is used again */
    failing here = {.ctx = ctx, .number = 7};
    fail_and_look(&here);
    ck_assert(here.silent_before && here.own && here.kept);
    fp8c_context_destroy(ctx);
    ck_assert(c.live == 0 && c.bytes == 0);
}
END_TEST

static void *fail_without_memory(void *user)
{
    fp8c_module *m;
    fp8c_module_parse(user, "module", 6, "x.f8", NULL, 0, &m);
    return strdup(fp8c_context_message(user));
}

START_TEST(messages_without_memory)
{
    counting c = {0};
    const fp8c_context_options o = counted_options(&c);
    fp8c_context *ctx = create(&o);
    for (int i = 0; i < 2; i++) {
        pthread_t id;
        void *said_there;
        c.fail_at = c.n + 1; /* the module; the first thread's message has its room */
        char *here = fail_without_memory(ctx);
        ck_assert_msg(strstr(here, "bytes were wanted") != NULL, "%s", here);
        free(here);
        c.fail_at = -1; /* all */
        ck_assert_int_eq(pthread_create(&id, NULL, fail_without_memory, ctx), 0);
        pthread_join(id, &said_there);
        ck_assert_str_eq(said_there,
                         "error: out of memory: there was no room for this thread's message");
        free(said_there);
    }
    fp8c_context_destroy(ctx);
    ck_assert(c.live == 0 && c.bytes == 0);
}
END_TEST

/* ---- the environment ---- */

static void folder_is(const fp8c_context_options *given, const char *want)
{
    fp8c_context_options o = given ? *given : (fp8c_context_options){0};
    fp8c_cache_info info = {.struct_size = sizeof info};
    o.struct_size = sizeof o;
    fp8c_context *ctx = create(&o);
    ck_assert_int_eq(fp8c_context_cache(ctx, &info), FP8C_OK);
    ck_assert_msg(want ? info.folder && !strcmp(info.folder, want) : !info.folder,
                  "'%s', not '%s' (%s)", info.folder ? info.folder : "", want ? want : "",
                  info.why_not ? info.why_not : "");
    ck_assert_ptr_null(info.why_not);
    fp8c_context_destroy(ctx);
}

START_TEST(places)
{
    folder_is(NULL, NULL); /* no variable: nowhere */
    setenv("HOME", below("home"), 1);
    folder_is(NULL, below("home/.cache/fp8c"));
    folder_is(&(fp8c_context_options){.home = below("other")}, below("other/.cache/fp8c"));
    folder_is(&(fp8c_context_options){.home = ""}, NULL);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    folder_is(NULL, below("home/.cache/fp8c"));
    setenv("XDG_CACHE_HOME", below("xdg"), 1);
    folder_is(NULL, below("xdg/fp8c"));
    setenv("FP8C_CACHE_DIR", below("named"), 1);
    folder_is(NULL, below("named"));
    folder_is(&(fp8c_context_options){.cache_dir = below("option")}, below("option"));
    folder_is(&(fp8c_context_options){.cache_dir = ""}, NULL);
    setenv("FP8C_CACHE_DIR", "", 1);
    folder_is(NULL, NULL);
}
END_TEST

/* Read when the context is created: neither before nor after. */
START_TEST(read_once)
{
    char path[64];
    fp8c_cache_info info = {.struct_size = sizeof info};
    setenv("FP8C_CACHE_DIR", below("first"), 1);
    fp8c_context *ctx = create(NULL);
    ck_assert_int_ne(access(below("first"), F_OK), 0); /* nothing is made before it is needed */
    setenv("FP8C_CACHE_DIR", below("second"), 1);
    setenv("FP8C_DUMP", below("dump"), 1);
    setenv("FP8C_VERBOSE", "2", 1);
    compile_once(ctx);
    ck_assert_int_eq(fp8c_context_cache(ctx, &info), FP8C_OK);
    ck_assert_str_eq(info.folder, below("first"));
    ck_assert_int_ne(access(below("second"), F_OK), 0);
    ck_assert_int_ne(access(below("dump"), F_OK), 0);
    fp8c_context_destroy(ctx);
    /* Options are copied: what they were read from may go. */
    snprintf(path, sizeof path, "%s", "");
    char *mine = strdup(below("mine"));
    const fp8c_context_options o = {.struct_size = sizeof o, .cache_dir = mine, .dump = path};
    ctx = create(&o);
    memset(mine, 'x', strlen(mine));
    free(mine);
    ck_assert_int_eq(fp8c_context_cache(ctx, &info), FP8C_OK);
    ck_assert_str_eq(info.folder, below("mine"));
    compile_once(ctx);
    ck_assert_int_ne(access(below("dump"), F_OK), 0); /* "" stands in for the variable */
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- the log ---- */

static lines compile_with(int32_t verbose, const char *variable, const char *cache)
{
    lines l = new_lines();
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .log = note,
                                    .log_user = &l,
                                    .verbose = verbose,
                                    .cache_dir = cache};
    if (variable)
        setenv("FP8C_VERBOSE", variable, 1);
    else
        unsetenv("FP8C_VERBOSE");
    fp8c_context *ctx = create(&o);
    compile_once(ctx);
    fp8c_context_destroy(ctx);
    return l;
}

START_TEST(levels)
{
    const struct {
        int32_t verbose;
        const char *variable;
        int level; /* the highest that is said */
    } at[] = {{2, NULL, 2}, {0, NULL, 0}, {1, NULL, 1}, {100, NULL, 2}, {-1, "2", 0},
              {0, "1", 1},  {0, "2", 2},  {1, "2", 1},  {0, "", 0}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const lines l = compile_with(at[i].verbose, at[i].variable, below("kernels"));
        ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 0);
        ck_assert_int_eq(l.count[FP8C_LOG_INFO] > 0, at[i].level >= 1);
        ck_assert_int_eq(l.count[FP8C_LOG_DEBUG] > 10, at[i].level >= 2);
        ck_assert_int_eq(strstr(l.text, "module tiny for cpu: ") != NULL, at[i].level >= 1);
        ck_assert_int_eq(strstr(l.text, "pass autodiff: ") != NULL, at[i].level >= 2);
        ck_assert_int_eq(strstr(l.text, "kernel ") != NULL,
                         i == 0); /* later they are in the cache */
    }
    static const char *const wrong[] = {"yes", "3", "-1", "1x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const lines l = compile_with(0, wrong[i], below("kernels"));
        ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 1);
        ck_assert_int_eq(l.count[FP8C_LOG_INFO], 0);
        ck_assert_str_eq(l.text, "FP8C_VERBOSE is not 0, 1 or 2: it counts as 0\n");
    }
}
END_TEST

/* A weight that is an input gets no gradient. This is said in each compile that trains, once for
 * each such input; a module made by calls has no places. */
START_TEST(weight_as_input)
{
    const fp8c_type matrix = {FP8C_F32, 2, {4, 4}};
    lines l = new_lines();
    const fp8c_context_options o = {.struct_size = sizeof o, .log = note, .log_user = &l};
    fp8c_context *ctx = create(&o);
    fp8c_module *m;
    ck_assert_int_eq(fp8c_module_create(ctx, "fed", &m), FP8C_OK);
    ck_assert_int_eq(fp8c_module_param(m, "w", &matrix, FP8C_INIT_ONES, 0), FP8C_OK);
    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    const fp8c_value v = fp8c_func_input(m, "v", &matrix), w = fp8c_func_param(m, "w");
    const fp8c_value once = fp8c_func_op(m, "linear", (fp8c_value[]){w, v}, 2, NULL, 0);
    const fp8c_value twice = fp8c_func_op(m, "linear", (fp8c_value[]){once, v}, 2, NULL, 0);
    const fp8c_attr flat = {
        .name = "shape", .kind = FP8C_ATTR_INTS, .ints = (const int64_t[]){16}, .n_ints = 1};
    const fp8c_attr scalar = {.name = "shape", .kind = FP8C_ATTR_INTS};
    fp8c_value sum = fp8c_func_op(m, "reshape", &twice, 1, &flat, 1);
    sum = fp8c_func_op(m, "reduce_sum", &sum, 1, NULL, 0);
    sum = fp8c_func_op(m, "reshape", &sum, 1, &scalar, 1);
    ck_assert_int_eq(fp8c_func_result(m, "loss", sum), FP8C_OK);
    ck_assert_msg(fp8c_func_end(m) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_compile_options c = recipe("bf16");
    c.plan_only = 1;
    fp8c_program_destroy(compile(ctx, m, &c));
    ck_assert_str_eq(l.text,
                     "input '%v' is the weight of a linear: inputs get no gradient; declare "
                     "it as a param to train it\n");
    fp8c_program_destroy(compile(ctx, m, &c));
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 2);
    c.inference = 1;
    fp8c_program_destroy(compile(ctx, m, &c));
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 2);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A cache that can't be used is said once, and why; compiling goes on. */
START_TEST(cache_of_no_use)
{
    FILE *f = fopen(below("file"), "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    lines l = new_lines();
    const fp8c_context_options o = {
        .struct_size = sizeof o, .log = note, .log_user = &l, .cache_dir = below("file")};
    fp8c_cache_info info = {.struct_size = sizeof info};
    fp8c_context *ctx = create(&o);
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 0);
    compile_once(ctx);
    compile_once(ctx);
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 1);
    ck_assert_ptr_nonnull(strstr(l.text, "kernels are not cached: "));
    ck_assert_int_eq(fp8c_context_cache(ctx, &info), FP8C_OK);
    ck_assert_ptr_null(info.folder);
    ck_assert_ptr_nonnull(info.why_not);
    ck_assert_ptr_nonnull(strstr(l.text, info.why_not));
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(cached_kernels_are_counted)
{
    fp8c_info info[2] = {{.struct_size = sizeof *info}, {.struct_size = sizeof *info}};
    for (int i = 0; i < 2; i++) {
        lines l = new_lines();
        const fp8c_context_options o = {.struct_size = sizeof o,
                                        .log = note,
                                        .log_user = &l,
                                        .verbose = 1,
                                        .cache_dir = below("kernels")};
        char want[64];
        fp8c_context *ctx = create(&o);
        fp8c_module *m = parse(ctx, model);
        const fp8c_compile_options options = recipe("delayed");
        fp8c_program *p = compile(ctx, m, &options);
        fp8c_program_info(p, &info[i]);
        snprintf(want, sizeof want, "%d compiled, %d from the cache",
                 (int)(info[i].distinct_kernels - info[i].kernels_cached),
                 (int)info[i].kernels_cached);
        ck_assert_msg(strstr(l.text, want) != NULL, "'%s' does not say '%s'", l.text, want);
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
    }
    ck_assert_int_eq(info[0].kernels_cached, 0);
    ck_assert_int_gt(info[0].distinct_kernels, 3);
    ck_assert_int_eq(info[1].kernels_cached, info[1].distinct_kernels);
}
END_TEST

/* What a signal handler calls: afterwards the context computes on, and writes nothing. */
START_TEST(abandoned_files)
{
    const fp8c_context_options o = {.struct_size = sizeof o, .cache_dir = below("kernels")};
    fp8c_cache_info cache = {.struct_size = sizeof cache};
    struct stat s;
    fp8c_context *ctx = create(&o);
    fp8c_module *m = parse(ctx, model);
    fp8c_context_abandon_files(ctx);
    const fp8c_compile_options options = recipe("bf16");
    fp8c_program *p = compile(ctx, m, &options);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_save(p, below("it")), FP8C_ERR_CANCELLED);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx),
                                 "/it: error: not written: the context's files were given up"));
    ck_assert_int_eq(fp8c_compile_file(m, &options, 1, below("it.f8x")), FP8C_ERR_CANCELLED);
    ck_assert(stat(below("it"), &s) && stat(below("it.f8x"), &s));
    ck_assert_int_eq(fp8c_context_cache(ctx, &cache), FP8C_OK);
    ck_assert_int_eq(cache.entries, 0);
    ck_assert_int_eq(cache.stored, 0);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- dumps ---- */

static int files_in(const char *path, const char *ending)
{
    DIR *d = opendir(path);
    int n = 0;
    struct dirent *e;
    ck_assert_msg(d != NULL, "%s", path);
    while ((e = readdir(d))) {
        const size_t length = strlen(e->d_name), tail = strlen(ending);
        struct stat s;
        char file[1024];
        if (e->d_name[0] == '.' || length < tail || strcmp(e->d_name + length - tail, ending))
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        ck_assert_int_eq(stat(file, &s), 0);
        ck_assert_msg(s.st_size > 0, "%s is empty", file);
        n++;
    }
    closedir(d);
    return n;
}

/* Each compile has a folder of its own, also where kernels come from the cache; a module that was
 * dumped can be read again. */
START_TEST(dumps)
{
    static const char *const folders[] = {"dump/deep/tiny.cpu.0", "dump/deep/tiny.cpu.1"};
    const fp8c_context_options o = {
        .struct_size = sizeof o, .dump = below("dump/deep"), .cache_dir = below("kernels")};
    fp8c_context *ctx = create(&o);
    for (int i = 0; i < 2; i++) {
        compile_once(ctx);
        ck_assert_int_eq(files_in(below(folders[i]), ".f8"), 15);
        ck_assert_int_gt(files_in(below(folders[i]), ".txt"), 3);
        ck_assert_int_gt(files_in(below(folders[i]), ".ll"), 0);
    }
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options cuda = recipe("bf16");
    cuda.target = "sm_90a";
    cuda.text_only = 1;
    fp8c_program_destroy(compile(ctx, m, &cuda));
    fp8c_module_destroy(m);
    ck_assert_int_eq(files_in(below("dump/deep/tiny.sm_90a.0"), ".f8"), 15);
    ck_assert_int_gt(files_in(below("dump/deep/tiny.sm_90a.0"), ".cu"), 0);
    char text[1 << 16], path[1024];
    snprintf(path, sizeof path, "%s/00_input.f8", below(folders[0]));
    FILE *f = fopen(path, "r");
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    fp8c_module_destroy(parse(ctx, text));
    fp8c_context_destroy(ctx);
}
END_TEST

/* A dump that can't be written is said once, and costs the compile nothing. */
START_TEST(dumps_that_fail)
{
    FILE *f = fopen(below("file"), "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    lines l = new_lines();
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .log = note,
                                    .log_user = &l,
                                    .dump = below("file/dump"),
                                    .cache_dir = ""};
    fp8c_context *ctx = create(&o);
    compile_once(ctx);
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 1);
    ck_assert_msg(strstr(l.text, "dump: ") && strstr(l.text, "Not a directory"), "%s", l.text);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("context");
    TCase *t = tcase_create("context");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, wrong_options);
    tcase_add_test(t, sizes_of_callers);
    tcase_add_test(t, sizes_never_set);
    tcase_add_test(t, messages_without_memory);
    tcase_add_test(t, places);
    tcase_add_test(t, read_once);
    tcase_add_test(t, levels);
    tcase_add_test(t, weight_as_input);
    tcase_add_test(t, cache_of_no_use);
    tcase_add_test(t, cached_kernels_are_counted);
    tcase_add_test(t, abandoned_files);
    tcase_add_test(t, dumps);
    tcase_add_test(t, dumps_that_fail);
    suite_add_tcase(s, t);
    TCase *threads = tcase_create("threads"); /* a case of its own: TSan runs it alone */
    tcase_set_timeout(threads, TIMEOUT);
    tcase_add_checked_fixture(threads, setup, teardown);
    tcase_add_test(threads, messages_of_threads);
    suite_add_tcase(s, threads);
    return s;
}
