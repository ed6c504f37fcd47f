/* The embedder's threads and allocator. The bits are the same as with the library's own threads,
 * none of which are started. A run allocates nothing, and every byte is given back whatever fails.
 */
#include <dirent.h>

#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

/* ---- a pool as an embedder might have it: started once, fed by a mutex ---- */

enum { MOST = 7 };

typedef struct pool {
    int n; /* threads, the caller's among them */
    enum { FAIR, IDLE, TWICE, STRANGER } wrong;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t id[MOST];
    int started, busy;
    bool stop;
    fp8c_task_fn task;
    void *job;
    int64_t next, n_tasks, piece;
    long runs, parts;
} pool;

/* Take pieces until there are none; the lock is held. */
static void take(pool *p, int32_t thread)
{
    p->busy++;
    while (p->next < p->n_tasks) {
        const int64_t begin = p->next, rest = p->n_tasks - begin;
        const int64_t end = begin + (rest < p->piece ? rest : p->piece);
        p->next = end;
        p->parts++;
        pthread_mutex_unlock(&p->lock);
        p->task(p->job, thread, begin, end);
        pthread_mutex_lock(&p->lock);
    }
    if (--p->busy == 0)
        pthread_cond_broadcast(&p->ready);
}

static void *serve(void *user)
{
    pool *p = user;
    pthread_mutex_lock(&p->lock);
    const int32_t thread = ++p->started;
    while (!p->stop) {
        if (p->next < p->n_tasks)
            take(p, thread);
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void parallel(void *user, fp8c_task_fn task, void *job, int64_t n_tasks)
{
    pool *p = user;
    pthread_mutex_lock(&p->lock);
    p->runs++;
    p->task = task;
    p->job = job;
    p->next = 0;
    p->n_tasks = p->wrong == IDLE ? 0 : n_tasks;
    p->piece = 1 + p->runs % 5; /* of another size every time: no bit may depend on it */
    pthread_cond_broadcast(&p->work);
    take(p, 0);
    while (p->busy || p->next < p->n_tasks)
        pthread_cond_wait(&p->ready, &p->lock);
    pthread_mutex_unlock(&p->lock);
    if (p->wrong == TWICE)
        task(job, 0, 0, 1);
    if (p->wrong == STRANGER)
        task(job, p->n, 0, n_tasks), task(job, -1, 0, n_tasks), task(job, 0, -5, n_tasks + 5);
}

static void start(pool *p, int n)
{
    *p = (pool){.n = n,
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .work = PTHREAD_COND_INITIALIZER,
                .ready = PTHREAD_COND_INITIALIZER};
    for (int i = 1; i < n; i++)
        ck_assert_int_eq(pthread_create(&p->id[i], NULL, serve, p), 0);
}

static void stop(pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->n; i++)
        pthread_join(p->id[i], NULL);
}

/* ---- a model with more than one task a step ---- */

static const char wide[] =
    "module wide\n"
    "param wte: f32[256, 128] normal(0.5)\n"
    "param fc.weight: f32[128, 128] normal(0.1)\n"
    "param fc.bias: f32[128] zeros\n"
    "func forward(%tokens: i32[512], %targets: i32[512]) -> (%loss: f32[]) {\n"
    "  return cross_entropy(linear(gelu(linear(embedding(wte, %tokens), fc.weight, fc.bias)) "
    "{approximate = \"tanh\"}, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n"
    "recipe \"head\" = bf16\n";

static void fill(fp8c_program *p)
{
    const int step = fp8c_program_function(p, "micro_step");
    for (int k = 0; k < 2; k++) {
        int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT, k);
        for (int i = 0; i < 512; i++)
            ids[i] = (7 * i + 3 * k) % 256;
    }
}

static float step_once(fp8c_program *p)
{
    const int step = fp8c_program_function(p, "micro_step");
    fill(p);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update")), FP8C_OK);
    return *(float *)fp8c_program_buffer(p, step, FP8C_OUTPUT,
                                         fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss"));
}

static fp8c_context *lent(pool *p, counting *c)
{
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .alloc = count_alloc,
                                    .free = count_free,
                                    .allocator_user = c,
                                    .cache_dir = "",
                                    .parallel = parallel,
                                    .parallel_user = p,
                                    .parallel_threads = p->n};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    return ctx;
}

/* ---- the same bits ---- */

/* Every variable and the loss after a few steps, as one block the caller frees. */
static void *train(fp8c_context *ctx, int32_t threads, size_t *size)
{
    fp8c_module *m = parse(ctx, wide);
    fp8c_compile_options o = recipe("delayed");
    fp8c_variable v;
    o.threads = threads;
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 11), FP8C_OK);
    float loss = 0;
    for (int i = 0; i < 3; i++)
        loss = step_once(p);
    *size = sizeof loss;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++)
        *size += (size_t)fp8c_type_bytes(&v.type);
    char *all = malloc(*size), *at = all + sizeof loss;
    memcpy(all, &loss, sizeof loss);
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++) {
        ck_assert_int_eq(fp8c_program_read(p, i, at), FP8C_OK);
        at += fp8c_type_bytes(&v.type);
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    return all;
}

START_TEST(same_bits)
{
    static const int sizes[] = {1, 2, 3, MOST};
    size_t want_size, size;
    fp8c_context *ctx = new_context();
    void *want = train(ctx, 1, &want_size);
    fp8c_context_destroy(ctx);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pool p;
        counting c = {0};
        start(&p, sizes[i]);
        ctx = lent(&p, &c);
        void *got = train(ctx, 200, &size); /* `threads` does not count: these are the ones */
        ck_assert_uint_eq(size, want_size);
        ck_assert_msg(!memcmp(got, want, size), "%d threads: other bits", sizes[i]);
        ck_assert_int_gt(p.runs, 20);
        ck_assert_int_gt(p.parts, p.runs);
        free(got);
        fp8c_context_destroy(ctx);
        stop(&p);
        ck_assert(c.live == 0 && c.bytes == 0);
    }
    free(want);
}
END_TEST

/* ---- no threads of ours ---- */

static int threads_now(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    struct dirent *e;
    ck_assert_ptr_nonnull(d);
    while ((e = readdir(d)))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

typedef struct caller {
    int most; /* threads seen */
} caller;

/* The simplest embedder: the caller does all. Counts threads meanwhile. */
static void by_the_caller(void *user, fp8c_task_fn task, void *job, int64_t n_tasks)
{
    caller *c = user;
    const int n = threads_now();
    c->most = n > c->most ? n : c->most;
    task(job, 0, 0, n_tasks);
}

static int ask_threads(void *user, const fp8c_progress *p)
{
    caller *c = user;
    const int n = threads_now();
    (void)p;
    c->most = n > c->most ? n : c->most;
    return 0;
}

START_TEST(no_threads_of_ours)
{
    caller c = {0};
    const int before = threads_now(); /* a sanitizer may have one of its own */
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .cache_dir = "",
                                    .parallel = by_the_caller,
                                    .parallel_user = &c,
                                    .parallel_threads = 4,
                                    .progress = ask_threads,
                                    .progress_user = &c};
    fp8c_context *ctx;
    size_t size;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    free(train(ctx, 0, &size));
    ck_assert_int_eq(c.most, before);
    fp8c_module *m = parse(ctx, wide);
    const fp8c_compile_options options = recipe("bf16");
    fp8c_program *p = compile(ctx, m, &options);
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    ck_assert_int_eq(info.threads, 4);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Of programs whose options say 0. */
START_TEST(threads_of_the_context)
{
    const fp8c_context_options o = {.struct_size = sizeof o, .cache_dir = "", .threads = 3};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, wide);
    for (int32_t threads = 0; threads < 2; threads++) {
        fp8c_compile_options options = recipe("bf16");
        fp8c_info info = {.struct_size = sizeof info};
        options.threads = threads;
        fp8c_program *p = compile(ctx, m, &options);
        fp8c_program_info(p, &info);
        ck_assert_int_eq(info.threads, threads ? threads : 3);
        fp8c_program_destroy(p);
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- a pool that does not do as it says ---- */

START_TEST(wrong_pools)
{
    pool p;
    counting c = {0};
    start(&p, 3);
    fp8c_context *ctx = lent(&p, &c);
    fp8c_module *m = parse(ctx, wide);
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *program = compile(ctx, m, &o);
    const int step = fp8c_program_function(program, "micro_step");
    fill(program);
    for (p.wrong = IDLE; p.wrong <= STRANGER; p.wrong++) {
        const int wrong = p.wrong;
        ck_assert_int_eq(fp8c_program_initialize(program, 1), FP8C_ERR_INPUT);
        said(ctx, "`parallel` did not run each task once, by a thread from 0 to 2");
        p.wrong = FAIR;
        ck_assert_int_eq(fp8c_program_initialize(program, 1), FP8C_OK);
        p.wrong = wrong;
        ck_assert_int_eq(fp8c_program_run(program, step), FP8C_ERR_INPUT);
        said(ctx, "`parallel` did not run each task once");
        p.wrong = FAIR;
        ck_assert_int_eq(fp8c_program_run(program, step), FP8C_OK);
        p.wrong = wrong;
    }
    fp8c_program_destroy(program);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    stop(&p);
    ck_assert(c.live == 0 && c.bytes == 0);
}
END_TEST

/* ---- the allocator ---- */

START_TEST(runs_allocate_nothing)
{
    pool p;
    start(&p, 2);
    for (int own = 0; own < 2; own++) {
        counting c = {0};
        const fp8c_context_options o = {.struct_size = sizeof o,
                                        .alloc = count_alloc,
                                        .free = count_free,
                                        .allocator_user = &c,
                                        .cache_dir = "",
                                        .threads = 2};
        fp8c_context *ctx = NULL;
        if (own)
            ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
        else
            ctx = lent(&p, &c);
        fp8c_module *m = parse(ctx, wide);
        fp8c_compile_options options = recipe("delayed");
        options.threads = 0;
        fp8c_program *program = compile(ctx, m, &options);
        ck_assert_int_eq(fp8c_program_initialize(program, 1), FP8C_OK);
        const long n = c.n;
        for (int i = 0; i < 5; i++)
            step_once(program);
        ck_assert_int_eq(c.n, n);
        fp8c_program_destroy(program);
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
        ck_assert(c.live == 0 && c.bytes == 0);
    }
    stop(&p);
}
END_TEST

typedef struct served {
    const char *cache;
    bool inference;
} served;

/* One thread compiles, so the n-th allocation is the same one each time. */
static fp8c_status life(const void *user, counting *c, char *message, size_t room)
{
    const served *how = user;
    caller by = {0};
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .alloc = count_alloc,
                                    .free = count_free,
                                    .allocator_user = c,
                                    .cache_dir = how->cache,
                                    .parallel = by_the_caller,
                                    .parallel_user = &by,
                                    .parallel_threads = 2};
    fp8c_compile_options options = recipe("delayed");
    fp8c_context *ctx = NULL;
    fp8c_module *m = NULL;
    fp8c_program *p = NULL;
    options.inference = how->inference;
    fp8c_status status = fp8c_context_create(&o, &ctx);
    if (status == FP8C_OK)
        status = fp8c_module_parse(ctx, wide, strlen(wide), "wide.f8", NULL, 0, &m);
    if (status == FP8C_OK)
        status = fp8c_compile(m, &options, &p);
    if (status == FP8C_OK)
        status = fp8c_program_initialize(p, 1);
    if (status == FP8C_OK)
        status = fp8c_program_run(p, fp8c_program_function(p, "eval"));
    snprintf(message, room, "%s", ctx ? fp8c_context_message(ctx) : "no context");
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert_int_ge(c->n, c->fail_at ? c->fail_at : 16);
    return status;
}

START_TEST(each_allocation_fails)
{
    fail_each_allocation(life, &(served){"", true}, 0);
}
END_TEST

START_TEST(each_allocation_fails_with_a_cache)
{
    char folder[] = "/tmp/fp8c-memory-XXXXXX", command[64], message[4096];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const served how = {folder, false};
    counting first = {0};
    ck_assert_msg(life(&how, &first, message, sizeof message) == FP8C_OK, "%s", message);
    fail_each_allocation(life, &how, 0); /* from the cache, which is filled now */
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("embedder_pool");
    TCase *t = tcase_create("embedder_pool");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, no_threads_of_ours);
    tcase_add_test(t, threads_of_the_context);
    tcase_add_test(t, runs_allocate_nothing);
    tcase_add_test(t, each_allocation_fails);
    tcase_add_test(t, each_allocation_fails_with_a_cache);
    suite_add_tcase(s, t);
    TCase *threads = tcase_create("threads"); /* a case of its own: TSan runs it alone */
    tcase_set_timeout(threads, TIMEOUT);
    tcase_add_test(threads, same_bits);
    tcase_add_test(threads, wrong_pools);
    suite_add_tcase(s, threads);
    return s;
}
