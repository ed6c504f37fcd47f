/* Progress of a compile, and cancelling it at every call of the callback, after which everything is
 * as before. */
#include <dirent.h>
#include <signal.h>

#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

typedef struct watch {
    pthread_t owner;
    int calls, cancel_at;  /* 0: never */
    const char *cancel_in; /* this phase, or NULL */
    bool foreign, wrong;
    char phase[16];
    int64_t done, total;
    char seen[256]; /* phases that were begun */
    int ended;      /* phases that came to their end */
} watch;

static int progress(void *user, const fp8c_progress *p)
{
    watch *w = user;
    w->foreign |= !pthread_equal(pthread_self(), w->owner);
    if (strcmp(w->phase, p->phase)) {
        snprintf(w->phase, sizeof w->phase, "%s", p->phase);
        strcat(strcat(w->seen, p->phase), " ");
        w->wrong |= p->done != 0;
        w->total = p->total;
        w->done = 0;
    }
    w->wrong |= p->struct_size != sizeof *p || !p->item || p->done < w->done ||
                p->done > p->total || p->total != w->total || p->total < 1 ||
                (p->done == 0) != (p->seconds_left < 0) || (p->done < p->total && !*p->item);
    w->done = p->done;
    w->ended += p->done == p->total;
    return ++w->calls == w->cancel_at || (w->cancel_in && !strcmp(w->phase, w->cancel_in));
}

static fp8c_context *watched(watch *w, counting *c, const char *cache)
{
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .alloc = count_alloc,
                                    .free = count_free,
                                    .allocator_user = c,
                                    .cache_dir = cache,
                                    .progress = progress,
                                    .progress_user = w};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    return ctx;
}

static float loss_of(fp8c_program *p)
{
    ck_assert_int_eq(fp8c_program_initialize(p, 5), FP8C_OK);
    train_step(p);
    return train_step(p);
}

static int files_in(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    struct dirent *e;
    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* What was asked of the callback, of a whole compile. */
static watch whole(const fp8c_compile_options *o, float *loss)
{
    watch w = {.owner = pthread_self()};
    counting c = {0};
    fp8c_context *ctx = watched(&w, &c, "");
    fp8c_module *m = parse(ctx, model);
    ck_assert_int_eq(w.calls, 0);
    fp8c_program *p = compile(ctx, m, o);
    const int calls = w.calls;
    *loss = o->plan_only || o->text_only ? 0 : loss_of(p);
    ck_assert_int_eq(w.calls, calls); /* runs ask nothing */
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert(!w.foreign && !w.wrong);
    return w;
}

START_TEST(progress_of_a_compile)
{
    float loss;
    fp8c_compile_options o = recipe("delayed");
    watch w = whole(&o, &loss);
    ck_assert_str_eq(w.seen, "passes steps kernels report ");
    ck_assert_int_eq(w.ended, 4);
    ck_assert_int_ge(w.calls, 14 + 1 + 1 + 1 + 1);
    o.plan_only = 1;
    w = whole(&o, &loss);
    ck_assert_str_eq(w.seen, "passes steps report ");
    ck_assert_int_eq(w.ended, 3);
    o.memory_bytes = 1 << 30;
    w = whole(&o, &loss);
    ck_assert_str_eq(w.seen, "passes budget steps report ");
    ck_assert_int_eq(w.ended, 4);
}
END_TEST

/* The callback stops the compile at its k-th call, whichever; then the same module compiles. */
static void cancel_at_each(const fp8c_compile_options *o)
{
    float want;
    const watch all = whole(o, &want);
    for (int k = 1; k <= all.calls + 1; k++) {
        watch w = {.owner = pthread_self(), .cancel_at = k};
        counting c = {0};
        fp8c_context *ctx = watched(&w, &c, "");
        fp8c_module *m = parse(ctx, model);
        const long live = c.live;
        fp8c_program *p = (fp8c_program *)&w;
        fp8c_status status = fp8c_compile(m, o, &p);
        if (status == FP8C_OK &&
            w.calls < k) { /* which thread compiles what decides how often is asked */
            fp8c_program_destroy(p);
        } else {
            ck_assert_msg(status == FP8C_ERR_CANCELLED, "call %d: %d: %s", k, (int)status,
                          fp8c_context_message(ctx));
            ck_assert_ptr_null(p);
            ck_assert_int_eq(w.calls, k); /* it is not asked again */
            said(ctx, "cancelled by the progress callback: ");
            said(ctx, w.phase);
        }
        ck_assert_msg(c.live == live, "call %d: %ld allocations are left", k, c.live - live);
        w = (watch){.owner = w.owner};
        if (k % 6 == 1) { /* not each time: it takes longest */
            p = compile(ctx, m, o);
            const float loss = loss_of(p);
            ck_assert_mem_eq(&loss, &want, sizeof want);
            fp8c_program_destroy(p);
        }
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
        ck_assert(c.live == 0 && c.bytes == 0);
    }
}

START_TEST(cancelled)
{
    const fp8c_compile_options o = recipe("delayed");
    cancel_at_each(&o);
}
END_TEST

/* With a budget, also while the bytes of the finished plan are counted. */
START_TEST(cancelled_within_a_budget)
{
    fp8c_compile_options o = recipe("delayed");
    o.memory_bytes = 1 << 30;
    cancel_at_each(&o);
}
END_TEST

START_TEST(cancelled_on_reference)
{
    fp8c_compile_options o = recipe("bf16");
    o.target = "reference";
    cancel_at_each(&o);
}
END_TEST

/* Kernels of a GPU, which NVRTC compiles, or the emulator's. */
START_TEST(cancelled_for_a_gpu)
{
    fp8c_compile_options o = recipe("bf16");
    o.target = "sm_90a";
    o.threads = 2;
    o.no_device = 1;
    watch w = {.owner = pthread_self(), .cancel_in = "kernels"};
    counting c = {0};
    fp8c_context *ctx = watched(&w, &c, "");
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_CANCELLED);
    said(ctx, "cancelled by the progress callback: kernels, ");
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert(c.live == 0 && c.bytes == 0);
}
END_TEST

/* Looking for a plan within a budget takes many rounds: it is asked, and can be stopped, between
 * them. */
START_TEST(cancelled_within_a_pass)
{
    fp8c_compile_options o = recipe("bf16");
    float loss;
    o.plan_only = 1;
    const int without = whole(&o, &loss).calls;
    o.recompute = "*";
    const int calls = whole(&o, &loss).calls;
    ck_assert_int_gt(calls, without);
    watch w = {.owner = pthread_self(), .cancel_at = calls - 3};
    counting c = {0};
    fp8c_context *ctx = watched(&w, &c, "");
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_CANCELLED);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert(c.live == 0 && c.bytes == 0);
}
END_TEST

/* What was ready before is in the cache, and whole; nothing else is. */
START_TEST(cancelled_with_a_cache)
{
    char folder[] = "/tmp/fp8c-cancel-XXXXXX";
    const fp8c_compile_options o = recipe("delayed");
    float want;
    whole(&o, &want);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int k = 15; k <= 18; k++) {
        watch w = {.owner = pthread_self(), .cancel_at = k};
        counting c = {0};
        fp8c_context *ctx = watched(&w, &c, folder);
        fp8c_module *m = parse(ctx, model);
        fp8c_program *p;
        const fp8c_status status = fp8c_compile(m, &o, &p);
        ck_assert(status == FP8C_ERR_CANCELLED || (status == FP8C_OK && w.calls < k));
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
        ck_assert(c.live == 0 && c.bytes == 0);
    }
    watch w = {.owner = pthread_self()};
    counting c = {0};
    fp8c_context *ctx = watched(&w, &c, folder);
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p = compile(ctx, m, &o);
    const float loss = loss_of(p);
    ck_assert_mem_eq(&loss, &want, sizeof want);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert_int_gt(files_in(folder), 0);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Signals are the embedder's: a thread of ours that compiles takes none. */
typedef struct masks {
    pthread_t owner;
    int lines, open; /* of other threads than the caller's; those that would take one */
} masks;

static void look_at_mask(void *user, fp8c_log_level level, const char *text)
{
    masks *m = user;
    sigset_t now;
    (void)level, (void)text;
    if (pthread_equal(pthread_self(), m->owner) || pthread_sigmask(SIG_BLOCK, NULL, &now))
        return;
    __atomic_add_fetch(&m->lines, 1, __ATOMIC_SEQ_CST);
    if (!sigismember(&now, SIGINT) || !sigismember(&now, SIGUSR1))
        __atomic_add_fetch(&m->open, 1, __ATOMIC_SEQ_CST);
}

START_TEST(threads_take_no_signals)
{
    masks seen = {.owner = pthread_self()};
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .cache_dir = "",
                                    .log = look_at_mask,
                                    .log_user = &seen,
                                    .verbose = 2};
    const fp8c_compile_options options = recipe("delayed");
    fp8c_context *ctx;
    sigset_t mine;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, model);
    fp8c_program_destroy(compile(ctx, m, &options));
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert_int_gt(seen.lines, 0);
    ck_assert_int_eq(seen.open, 0);
    ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, NULL, &mine), 0);
    ck_assert_int_eq(sigismember(&mine, SIGUSR1), 0); /* the caller's are as they were */
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("cancel");
    TCase *t = tcase_create("cancel");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, progress_of_a_compile);
    tcase_add_test(t, cancelled);
    tcase_add_test(t, cancelled_within_a_budget);
    tcase_add_test(t, cancelled_on_reference);
    tcase_add_test(t, cancelled_for_a_gpu);
    tcase_add_test(t, cancelled_within_a_pass);
    tcase_add_test(t, cancelled_with_a_cache);
    tcase_add_test(t, threads_take_no_signals);
    suite_add_tcase(s, t);
    return s;
}
