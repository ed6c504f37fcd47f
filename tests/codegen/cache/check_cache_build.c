/* Plans whose kernels come from the cache. They are the same bytes as without a cache, however much
 * of it was there. A kernel that is found is not compiled. Everything that decides a kernel's code
 * is part of its key. */
#include "codegen/cache/cache.h"
#include "codegen/cpu/llvm_known.h"
#include "runtime/cuda/device.h"
#include "runtime/base/dynlib.h"
#include "runtime/plan_file.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 4400 };

static char folder[ROOM];
static const char *model = "gpt"; /* of one layer */

static void setup(void)
{
    f8_cli_setup();
    snprintf(folder, sizeof folder, "%s", f8_cli_temp("cache"));
}

static void teardown(void)
{
    char command[ROOM + 20];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert(system(command) == 0);
    f8_cli_teardown();
}

static f8_cache *open_cache(void)
{
    f8_cache *c;
    f8_diag why = {0};
    ck_assert_msg(f8_cache_open(&(f8_cache_options){.folder = folder}, &c, &why) == F8_OK, "%s",
                  why.text);
    return c;
}

/* The model, with a cache object of its own, as in another process. */
static void build(cuda_plan *p, const char *recipe, const char *target, bool cached,
                  f8_build_options o)
{
    f8_cache *c = cached ? open_cache() : NULL;
    o.cache = c;
    cuda_plan_build(p, model, !strcmp(model, "gpt") ? "L=1" : NULL, recipe, target, o);
    ck_assert_msg(p->status == F8_OK, "%s: %s", recipe, p->diag.text);
    f8_cache_close(c);
}

/* All bytes of a plan. */
static void assert_same(cuda_plan *a, cuda_plan *b)
{
    f8_wire x, y;
    f8_wire_begin_write(&x, &a->arena);
    f8_plan_wire(&x, &a->plan);
    f8_wire_begin_write(&y, &b->arena);
    f8_plan_wire(&y, &b->plan);
    ck_assert_uint_gt(x.size, 1000);
    ck_assert_uint_eq(x.size, y.size);
    ck_assert(!memcmp(x.bytes, y.bytes, x.size));
    ck_assert_int_eq(a->plan.blob_bytes, b->plan.blob_bytes);
    ck_assert(!a->plan.blob_bytes ||
              !memcmp(a->plan.blob, b->plan.blob, (size_t)a->plan.blob_bytes));
    ck_assert_uint_eq(a->plan.n_images, b->plan.n_images);
    for (uint32_t i = 0; i < a->plan.n_images; i++) {
        const f8_image *p = &a->plan.image[i], *q = &b->plan.image[i];
        ck_assert_int_eq(p->size, q->size);
        ck_assert(!memcmp(p->bytes, q->bytes, (size_t)p->size));
    }
}

/* ---- the CPU ---- */

/* Without a cache; with one that has what another plan needed, kernels of both among them; with
 * all. */
START_TEST(same_bytes)
{
    static const char *const recipes[] = {"delayed", "mxfp8"};
    cuda_plan none, cold, part, warm, again;
    build(&cold, "bf16", "cpu", true, (f8_build_options){.threads = 2});
    build(&none, recipes[_i], "cpu", false, (f8_build_options){.threads = 1});
    build(&part, recipes[_i], "cpu", true, (f8_build_options){.threads = 3});
    build(&warm, recipes[_i], "cpu", true, (f8_build_options){.threads = 2});
    ck_assert_uint_eq(cold.stats.n_cached, 0);
    ck_assert_uint_eq(none.stats.n_cached, 0);
    ck_assert_uint_gt(part.stats.n_cached, 10);
    ck_assert_uint_lt(part.stats.n_cached, part.plan.n_kernels);
    ck_assert_uint_eq(warm.stats.n_cached, warm.plan.n_kernels);
    assert_same(&none, &part);
    assert_same(&none, &warm);
    build(&again, recipes[_i], "cpu", true, (f8_build_options){.unmerged = true});
    ck_assert_uint_eq(again.stats.n_cached, again.plan.n_kernels);
    cuda_plan_end(&cold);
    cuda_plan_end(&none);
    cuda_plan_end(&part);
    cuda_plan_end(&warm);
    cuda_plan_end(&again);
}
END_TEST

/* Runs fn over all entries. */
static int each_entry(void (*fn)(const char *path, uint32_t *seed), uint32_t *seed)
{
    int n = 0;
    for (int i = 0; i < 16; i++) {
        char shard[ROOM + 20];
        snprintf(shard, sizeof shard, "%s/kernels/%x", folder, i);
        DIR *d = opendir(shard);
        for (const struct dirent *e; d && (e = readdir(d));)
            if (e->d_name[0] != '.') {
                char path[ROOM + 300];
                snprintf(path, sizeof path, "%s/%s", shard, e->d_name);
                fn(path, seed);
                n++;
            }
        if (d)
            closedir(d);
    }
    return n;
}

/* Gone, cut or changed in one bit, one of three; else as it was. */
static void damage(const char *path, uint32_t *seed)
{
    size_t n;
    char *bytes = f8_cli_read(path, &n);
    const uint32_t how = test_random(seed) % 6, at = test_random(seed) % (uint32_t)n;
    FILE *f;
    if (how == 0) {
        ck_assert(!unlink(path));
    } else if (how == 1) {
        ck_assert(!truncate(path, (off_t)at));
    } else if (how == 2) {
        bytes[at] ^= (char)(1 << test_random(seed) % 8);
        f = fopen(path, "r+b");
        ck_assert(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
    }
    free(bytes);
}

START_TEST(damaged)
{
    uint32_t seed = 11;
    printf("seed %u\n", seed);
    cuda_plan none, part, warm;
    build(&none, "delayed", "cpu", true, (f8_build_options){0});
    const int n = each_entry(damage, &seed);
    ck_assert_int_eq(n, (int)none.plan.n_kernels + 1); /* and what LLVM it is */
    build(&part, "delayed", "cpu", true, (f8_build_options){0});
    ck_assert_uint_gt(part.stats.n_cached, 0);
    ck_assert_uint_lt(part.stats.n_cached, part.plan.n_kernels);
    build(&warm, "delayed", "cpu", true, (f8_build_options){0});
    ck_assert_uint_eq(warm.stats.n_cached, warm.plan.n_kernels);
    assert_same(&none, &part);
    assert_same(&none, &warm);
    cuda_plan_end(&none);
    cuda_plan_end(&part);
    cuda_plan_end(&warm);
}
END_TEST

/* Another CPU's code is other code. */
START_TEST(by_target)
{
    static const char *const cpus[] = {"x86-64-v3", "x86-64-v4", "skylake"};
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 3; i++) {
            cuda_plan p;
            build(&p, "bf16", "cpu", true, (f8_build_options){.cpu = cpus[i]});
            ck_assert_uint_eq(p.stats.n_cached, turn ? p.plan.n_kernels : 0);
            cuda_plan_end(&p);
        }
}
END_TEST

static void count_dump(void *user, const char *file, const char *text)
{
    ck_assert(*text);
    *(int *)user += strstr(file, ".ll") != NULL;
}

/* Texts of LLVM are made by compiling. */
START_TEST(dumps)
{
    cuda_plan a, b;
    int n = 0;
    build(&a, "bf16", "cpu", true, (f8_build_options){0});
    build(&b, "bf16", "cpu", true,
          (f8_build_options){.threads = 1, .dump = count_dump, .dump_user = &n});
    ck_assert_uint_eq((uint32_t)n, b.plan.n_kernels);
    ck_assert_uint_eq(b.stats.n_cached, 0);
    assert_same(&a, &b);
    cuda_plan_end(&a);
    cuda_plan_end(&b);
}
END_TEST

/* Without a place to keep anything all is as without a cache. */
START_TEST(taken_away)
{
    cuda_plan a, b;
    char command[ROOM + 20];
    f8_cache *c = open_cache();
    cuda_plan_build(&a, "gpt", "L=1", "bf16", "cpu", (f8_build_options){.cache = c});
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert(system(command) == 0);
    cuda_plan_build(&b, "gpt", "L=1", "bf16", "cpu", (f8_build_options){.cache = c});
    ck_assert_int_eq(b.status, F8_OK);
    ck_assert_uint_eq(b.stats.n_cached, 0);
    assert_same(&a, &b);
    f8_cache_close(c);
    cuda_plan_end(&a);
    cuda_plan_end(&b);
}
END_TEST

/* Somebody has claimed every kernel: for good, or for a while, in which nothing is compiled twice.
 */
typedef struct holder {
    int fd;
    pthread_t thread;
} holder;

static void set_lock(int fd, short type)
{
    struct flock all = {.l_type = type, .l_whence = SEEK_SET};
    ck_assert(!fcntl(fd, F_OFD_SETLK, &all));
}

static void *let_go(void *user)
{
    const holder *h = user;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    set_lock(h->fd, F_UNLCK);
    return NULL;
}

START_TEST(claimed)
{
    cuda_plan first, p;
    char path[ROOM + 40];
    build(&first, "bf16", "cpu", true, (f8_build_options){0});
    for (int i = 0; i < 2; i++) {
        uint32_t seed = 5;
        holder h;
        snprintf(path, sizeof path, "%s/kernels/locks", folder);
        each_entry(damage, &seed);
        h.fd = open(path, O_RDWR | O_CLOEXEC);
        ck_assert_int_ge(h.fd, 0);
        set_lock(h.fd, F_WRLCK);
        ck_assert(i || !pthread_create(&h.thread, NULL, let_go, &h));
        build(&p, "bf16", "cpu", true, (f8_build_options){.cache_wait = i ? 0.05 : 0});
        ck_assert_uint_lt(p.stats.n_cached, p.plan.n_kernels);
        assert_same(&first, &p);
        cuda_plan_end(&p);
        ck_assert(i || !pthread_join(h.thread, NULL));
        close(h.fd);
        build(&p, "bf16", "cpu", true, (f8_build_options){0});
        ck_assert_uint_eq(p.stats.n_cached, p.plan.n_kernels);
        cuda_plan_end(&p);
    }
    cuda_plan_end(&first);
}
END_TEST

/* ---- LLVM, known or loaded ---- */

/* In a process where LLVM is not mapped yet. */
static void in_child(int (*run)(void))
{
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid)
        _exit(run());
    ck_assert(waitpid(pid, &status, 0) == pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "returned %d, status %x",
                  WEXITSTATUS(status), (unsigned)status);
}

/* A build; whether LLVM was mapped by it, and whether all was in the cache or nothing. */
static int built(bool cached, bool mapped)
{
    cuda_plan p;
    f8_cache *c = open_cache();
    cuda_plan_build(&p, "gpt", "L=1", "bf16", "cpu", (f8_build_options){.cache = c});
    if (p.status != F8_OK || p.stats.n_cached != (cached ? p.plan.n_kernels : 0))
        return 1;
    if (!f8_dynlib_mapped("libLLVM", NULL, &p.arena) != !mapped)
        return 2;
    cuda_plan_end(&p);
    f8_cache_close(c);
    return 0;
}

static int cold(void)
{
    return built(false, true);
}

static int warm(void)
{
    return built(true, false);
}

/* As if an LLVM of another version had been there, with the kernels of the real one in the cache.
 */
static int mistaken(void)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_cache *c = open_cache();
    f8_llvm other = {.triple = "t",
                     .cpu = "c",
                     .features = "f",
                     .version = "19.0.0",
                     .path = (char *)f8_cli_temp("file")};
    const char *question = f8_llvm_question(&(f8_llvm_options){0}, &arena);
    const char *before = f8_llvm_recall(c, question, &arena);
    if (!question || !before || !strstr(before, "llvm 19."))
        return 3;
    f8_llvm_remember(c, question, &other, &arena);
    const char *after = f8_llvm_recall(c, question, &arena);
    if (!after || !strstr(after, "llvm 19.0.0"))
        return 4;
    f8_arena_end(&arena);
    f8_cache_close(c);
    return built(true, true);
}

START_TEST(llvm_known)
{
    f8_cli_write("file", "x", 1);
    in_child(cold);
    in_child(warm);
    in_child(mistaken);
    in_child(warm); /* it is known again */
}
END_TEST

/* An answer is one of a file as it was. */
START_TEST(llvm_changed)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_cache *c = open_cache();
    const char *path = f8_cli_write("file", "library", 7);
    const f8_llvm fake = {
        .triple = "t", .cpu = "c", .features = "f", .version = "19.1.7", .path = (char *)path};
    const struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    ck_assert_ptr_null(f8_llvm_recall(c, "question", &arena));
    f8_llvm_remember(c, "question", &fake, &arena);
    ck_assert_str_eq(f8_llvm_recall(c, "question", &arena), f8_llvm_identity(&fake, &arena));
    ck_assert_ptr_null(f8_llvm_recall(c, "question 2", &arena));
    ck_assert_ptr_null(f8_llvm_recall(c, NULL, &arena));
    ck_assert_ptr_null(f8_llvm_recall(NULL, "question", &arena));
    ck_assert(!utimensat(AT_FDCWD, path, then, 0));
    ck_assert_ptr_null(f8_llvm_recall(c, "question", &arena));
    f8_llvm_remember(c, "question", &fake, &arena);
    ck_assert_ptr_nonnull(f8_llvm_recall(c, "question", &arena));
    ck_assert(!unlink(path));
    ck_assert_ptr_null(f8_llvm_recall(c, "question", &arena));
    f8_arena_end(&arena);
    f8_cache_close(c);
}
END_TEST

/* ---- CUDA, with the emulator's NVRTC ---- */

static f8_cuda *emulated(void)
{
    char emulator[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("build/emulator", emulator));
    const f8_cuda_paths paths = {.fp8c_cuda_path = emulator};
    f8_diag d = {0};
    f8_cuda *cuda;
    ck_assert_msg(f8_cuda_create(&paths, NULL, &cuda, &d) == F8_OK, "%s", d.text);
    return cuda;
}

/* An image of several kernels is found by its text, its architecture, and whether PTX was wanted
 * with it. */
START_TEST(images)
{
    f8_cuda *cuda = emulated();
    cuda_plan none, cold, warm, other;
    model = "../../tests/models/running"; /* little to compile */
    const f8_build_options o = {.cuda = cuda, .batch = 4};
    build(&none, "bf16", "sm_90a", false, o);
    build(&cold, "bf16", "sm_90a", true, o);
    build(&warm, "bf16", "sm_90a", true, o);
    ck_assert_uint_eq(cold.stats.n_cached, 0);
    ck_assert_uint_gt(warm.plan.n_images, 1);
    ck_assert_uint_gt(warm.stats.n_cached, warm.plan.n_images);
    ck_assert_uint_eq(warm.stats.n_cached, warm.stats.n_kernels);
    assert_same(&none, &cold);
    assert_same(&none, &warm);
    for (uint32_t i = 0; i < warm.stats.n_images; i++)
        ck_assert_str_eq(cold.stats.image[i].log, warm.stats.image[i].log);
    for (int turn = 0; turn < 4; turn++) { /* each once, and again */
        const f8_build_options listed = {.cuda = cuda, .want_texts = turn % 2};
        build(&other, "bf16", turn % 2 ? "sm_90a" : "sm_89", true, listed);
        ck_assert_uint_eq(other.stats.n_cached, turn < 2 ? 0 : other.stats.n_kernels);
        ck_assert(!other.stats.image[0].ptx == !listed.want_texts);
        cuda_plan_end(&other);
    }
    cuda_plan_end(&none);
    cuda_plan_end(&cold);
    cuda_plan_end(&warm);
    f8_cuda_destroy(cuda);
    model = "gpt";
}
END_TEST

/* ---- kernels compiled fast ---- */

/* gpt's eval, as a function of that name. Returns how many of its kernels the cache had. */
static uint32_t build_eval(const char *name, const char *target, f8_cuda *cuda, uint32_t *kernels)
{
    const f8_dim_override one_layer = {"L", 1};
    const cuda_model gpt = {.file = "frontend/models/gpt.f8",
                            .dims = &one_layer,
                            .n_dims = 1,
                            .recipe = "bf16",
                            .target = f8_target_by_name(target),
                            .inference = true};
    cuda_plan p;
    f8_cache *c = open_cache();
    cuda_plan_lower(&p, &gpt);
    f8_module_find_func(p.unit.module, "eval")->name = name;
    cuda_plan_finish(&p, (f8_build_options){.cache = c, .cuda = cuda});
    ck_assert_msg(p.status == F8_OK, "%s", p.diag.text);
    const uint32_t cached = p.stats.n_cached;
    *kernels = p.plan.n_kernels;
    cuda_plan_end(&p);
    f8_cache_close(c);
    return cached;
}

/* A kernel that is compiled fast is never taken for one that is not, nor the other way round. */
START_TEST(compiled_fast)
{
    f8_cuda *cuda = emulated();
    for (int on_cuda = 0; on_cuda < 2; on_cuda++) {
        const char *target = on_cuda ? "sm_90a" : "cpu";
        uint32_t n;
        ck_assert_uint_eq(build_eval("eval.first", target, cuda, &n), 0);
        ck_assert_uint_eq(build_eval("eval", target, cuda, &n), 0);
        ck_assert_uint_eq(build_eval("eval.first", target, cuda, &n), n);
        ck_assert_uint_eq(build_eval("eval", target, cuda, &n), n);
    }
    f8_cuda_destroy(cuda);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cache_build");
    TCase *t = tcase_create("plans");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, same_bytes, 0, 2);
    tcase_add_test(t, damaged);
    tcase_add_test(t, by_target);
    tcase_add_test(t, dumps);
    tcase_add_test(t, taken_away);
    tcase_add_test(t, claimed);
    tcase_add_test(t, llvm_known);
    tcase_add_test(t, llvm_changed);
    tcase_add_test(t, images);
    tcase_add_test(t, compiled_fast);
    suite_add_tcase(s, t);
    return s;
}
