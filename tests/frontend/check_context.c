/* Contexts: options, structs of older callers, the environment, each thread's messages.
 * check_context_log.c tests the log, files that are given up, and dumps. */
#include <stddef.h>
#include <unistd.h>

#include "tests/shared/api/context_case.h"
#include "tests/shared/suite.h"

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
    suite_add_tcase(s, t);
    TCase *threads = tcase_create("threads"); /* a case of its own: TSan runs it alone */
    tcase_set_timeout(threads, TIMEOUT);
    tcase_add_checked_fixture(threads, setup, teardown);
    tcase_add_test(threads, messages_of_threads);
    suite_add_tcase(s, threads);
    return s;
}
