/* The store of the kernel cache stays within its bound and cleans up. It goes on where the disk is
 * full, and with many threads and processes at once. */
#include "tests/shared/cache/cache_case.h"
#include "tests/shared/suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- room ---- */

static int count(const char *path, const char *end)
{
    int n = 0;
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        const size_t l = strlen(e->d_name), m = strlen(end);
        n += l >= m && !strcmp(e->d_name + l - m, end);
    }
    if (d)
        closedir(d);
    return n;
}

static int temporaries(void)
{
    int n = 0;
    for (int i = 0; i < 16; i++) {
        char path[ROOM + 40];
        snprintf(path, sizeof path, "%s/kernels/%x", folder, i);
        n += count(path, ".tmp");
    }
    return n;
}

START_TEST(a_limit_of_files)
{
    f8_cache *c = open_cache(0);
    const struct rlimit little = {100, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    put(c, "before", "value");
    ck_assert(!setrlimit(RLIMIT_FSIZE, &little));
    put(c, "small", "value");
    put(c, "large", "a value that takes the file beyond a hundred bytes: where it is cut");
    put(c, "larger", "a value that takes the file beyond a hundred bytes: again where it is cut");
    expect(c, "before", "value");
    expect(c, "small", "value");
    expect(c, "large", NULL);
    expect(c, "larger", NULL);
    ck_assert(!setrlimit(RLIMIT_FSIZE, &all));
    ck_assert_int_eq(n_warned, 1); /* said once */
    ck_assert_msg(strstr(warned, "can't be written") && strstr(warned, "File too large"), "%s",
                  warned);
    ck_assert_int_eq(temporaries(), 0);
    put(c, "large", "value");
    expect(c, "large", "value");
    f8_cache_close(c);
}
END_TEST

START_TEST(a_full_disk)
{
    ck_assert(!mkdir(folder, 0700));
    if (mount("none", folder, "tmpfs", 0, "size=128k,mode=700")) {
        test_skip("a full disk", "no tmpfs can be mounted here");
        return;
    }
    f8_cache *c = open_cache(0);
    static uint8_t value[20000];
    char key[32];
    int found = 0;
    for (int i = 0; i < 16; i++) {
        snprintf(key, sizeof key, "key %d", i);
        const f8_cache_key k = key_of(key);
        f8_cache_put(c, &k, value, sizeof value);
    }
    for (int i = 0; i < 16; i++) {
        snprintf(key, sizeof key, "key %d", i);
        const f8_cache_key k = key_of(key);
        f8_cache_value v;
        found += f8_cache_get(c, &k, &arena, &v);
    }
    const int left = temporaries();
    f8_cache_close(c);
    ck_assert(!umount(folder));
    ck_assert_int_ge(found, 3);
    ck_assert_int_le(found, 6); /* 128 KiB */
    ck_assert_int_eq(left, 0);
    ck_assert_int_eq(n_warned, 1);
    ck_assert_msg(strstr(warned, "No space left on device"), "%s", warned);
}
END_TEST

static void name_key(char text[32], int i)
{
    snprintf(text, 32, "key %d", i);
}

/* When an entry was used last, set back. */
static void age(const char *key, int seconds)
{
    struct timespec t[2];
    clock_gettime(CLOCK_REALTIME, &t[0]);
    t[0].tv_sec -= seconds;
    t[1] = t[0];
    ck_assert(!utimensat(AT_FDCWD, file_of(key), t, 0));
}

/* A bound of 16 KiB a sixteenth, entries of 1 KiB and a little, twice as many as there is room for;
 * those used in between are the ones still there. */
START_TEST(bounded)
{
    enum { N = 16 * 24, SIZE = 1000, MOST = 16 << 14 };
    static uint8_t value[SIZE];
    f8_cache *c = open_cache(MOST);
    f8_cache_facts facts;
    char key[32];
    for (int i = 0; i < N; i++) {
        name_key(key, i);
        const f8_cache_key k = key_of(key);
        f8_cache_put(c, &k, value, sizeof value);
        if (!access(file_of(key), F_OK))
            age(key, 3 * 3600 - i); /* those stored first are the oldest */
        if (i == N / 4)
            for (int hot = 0; hot < 32; hot++) {
                name_key(key, hot);
                const f8_cache_key h = key_of(key);
                f8_cache_value v;
                ck_assert(f8_cache_get(c, &h, &arena, &v)); /* a use, after more than an hour */
            }
        f8_cache_look(c, &facts);
        ck_assert_int_le(facts.bytes, MOST);
    }
    ck_assert_int_eq(facts.stored, N);
    ck_assert_int_ge(facts.bytes,
                     MOST * 3 / 4 - 16 * (SIZE + 100)); /* down to 7/8, and no further */
    int cold = 0;
    for (int i = 0; i < 32; i++) {
        name_key(key, i);
        ck_assert_msg(!access(file_of(key), F_OK), "%s was used, and is gone", key);
        name_key(key, 32 + i);
        cold += !access(file_of(key), F_OK);
    }
    ck_assert_int_lt(cold, 32);
    name_key(key, N - 1);
    ck_assert(!access(file_of(key), F_OK));
    const f8_cache_key large = key_of("large");
    static uint8_t much[MOST / 16];
    f8_cache_put(c, &large, much, sizeof much); /* for which there is no room at all */
    ck_assert(access(file_of("large"), F_OK));
    ck_assert_int_eq(n_warned, 0);
    f8_cache_close(c);
}
END_TEST

START_TEST(leftovers)
{
    f8_cache *c = open_cache(0);
    put(c, "key", "value");
    char old[ROOM + 120], now[ROOM + 120], other[ROOM + 120];
    snprintf(old, sizeof old, "%s.host-123-0.tmp", file_of("key"));
    snprintf(now, sizeof now, "%s.host-124-0.tmp", file_of("key"));
    snprintf(other, sizeof other, "%s.txt", file_of("key"));
    const struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    write_bytes(old, "x", 1);
    write_bytes(now, "x", 1);
    write_bytes(other, "x", 1);
    ck_assert(!utimensat(AT_FDCWD, old, then, 0) && !utimensat(AT_FDCWD, other, then, 0));
    f8_cache_close(c);
    c = open_cache(0);
    put(c, "key", "value"); /* the first store of another process */
    ck_assert(access(old, F_OK) && !access(now, F_OK));
    ck_assert(!access(other, F_OK)); /* none of ours */
    expect(c, "key", "value");
    f8_cache_close(c);
}
END_TEST

/* ---- at the same time ---- */

START_TEST(claims)
{
    f8_cache *a = open_cache(0), *b = open_cache(0);
    const f8_cache_key key = key_of("key"), other = key_of("other");
    f8_cache_claim mine, theirs, third;
    int ready[2];
    char byte;
    ck_assert(f8_cache_claim_key(a, &key, &mine) && mine.fd >= 0);
    ck_assert(!f8_cache_claim_key(b, &key, &theirs));
    ck_assert(!f8_cache_claim_key(a, &key, &theirs)); /* another thread's */
    ck_assert(f8_cache_claim_key(b, &other, &theirs));
    f8_cache_release(&mine);
    f8_cache_release(&mine);
    ck_assert(f8_cache_claim_key(b, &key, &third));
    f8_cache_release(&third);
    f8_cache_release(&theirs);
    ck_assert(!pipe(ready));
    const pid_t pid = fork();
    if (!pid) {
        ck_assert(f8_cache_claim_key(b, &key, &theirs));
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(0);
    }
    ck_assert(read(ready[0], &byte, 1) == 1);
    ck_assert(!f8_cache_claim_key(a, &key, &mine));
    kill(pid, SIGKILL);
    ck_assert(waitpid(pid, NULL, 0) == pid);
    ck_assert(f8_cache_claim_key(a, &key, &mine));
    f8_cache_release(&mine);
    close(ready[0]);
    close(ready[1]);
    f8_cache_close(a);
    f8_cache_close(b);
}
END_TEST

enum { THREADS = 4, KEYS = 40, ROUNDS = 10 };

/* Everyone stores and finds the same keys: a value found is the key's own. */
static void *use(void *user)
{
    f8_cache *c = user;
    f8_arena own;
    f8_arena_init(&own, NULL);
    intptr_t wrong = 0;
    for (int i = 0; i < KEYS * ROUNDS; i++) {
        char key[32];
        f8_cache_value v;
        name_key(key, i % KEYS);
        const f8_cache_key k = key_of(key);
        if (f8_cache_get(c, &k, &own, &v))
            wrong += v.size != strlen(key) || memcmp(v.bytes, key, v.size);
        else
            f8_cache_put(c, &k, key, strlen(key));
    }
    f8_arena_end(&own);
    return (void *)wrong;
}

START_TEST(many_threads)
{
    f8_cache *c =
        open_cache(16 * 500); /* three or four entries a shard: some are evicted all the time */
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert(!pthread_create(&thread[i], NULL, use, c));
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        ck_assert(!pthread_join(thread[i], &wrong));
        ck_assert_ptr_null(wrong);
    }
    f8_cache_facts facts;
    f8_cache_look(c, &facts);
    ck_assert_int_eq(facts.hits + facts.misses, THREADS * KEYS * ROUNDS);
    ck_assert_int_gt(facts.hits, 0);
    ck_assert_int_eq(n_warned, 0);
    ck_assert_int_eq(temporaries(), 0);
    f8_cache_close(c);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cache_room");
    TCase *t = tcase_create("store");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_limit_of_files);
    tcase_add_test(t, a_full_disk);
    tcase_add_test(t, bounded);
    tcase_add_test(t, leftovers);
    tcase_add_test(t, claims);
    suite_add_tcase(s, t);
    TCase *threads = tcase_create("threads"); /* again under TSan: tests/run */
    tcase_set_timeout(threads, 60);
    tcase_add_checked_fixture(threads, setup, teardown);
    tcase_add_test(threads, many_threads);
    suite_add_tcase(s, threads);
    return s;
}
