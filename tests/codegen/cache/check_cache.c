/* The store of the kernel cache by itself. Entries that are whole are found, damaged ones are
 * misses. The store stays within its bound. It uses only a folder that no other user can put code
 * into. */
#include "codegen/cache/cache.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEADER = 48, NOBODY = 65534, ROOM = 4400 };

static char folder[ROOM]; /* of the cache; not made yet */
static f8_arena arena;
static char warned[1200];
static int n_warned;

static void on_log(void *user, f8_log_level level, const char *text)
{
    (void)user;
    ck_assert_int_eq(level, F8_LOG_WARNING);
    snprintf(warned, sizeof warned, "%s", text);
    n_warned++;
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void setup(void)
{
    f8_cli_setup();
    snprintf(folder, sizeof folder, "%s", f8_cli_temp("cache"));
    f8_arena_init(&arena, NULL);
    n_warned = 0;
}

static void teardown(void)
{
    f8_arena_end(&arena);
    remove_tree(folder);
    f8_cli_teardown();
}

static f8_status try_open(int64_t most, f8_cache **out, f8_diag *why)
{
    static const f8_log log = {on_log, NULL, F8_LOG_WARNING};
    *why = (f8_diag){0};
    return f8_cache_open(&(f8_cache_options){.folder = folder, .most_bytes = most, .log = &log},
                         out, why);
}

static f8_cache *open_cache(int64_t most)
{
    f8_cache *c;
    f8_diag why;
    ck_assert_msg(try_open(most, &c, &why) == F8_OK, "%s", why.text);
    return c;
}

/* The folder is refused, with this in the message. */
static void refused(const char *words)
{
    f8_cache *c;
    f8_diag why;
    ck_assert_int_eq(try_open(0, &c, &why), F8_ERR_IO);
    ck_assert_ptr_null(c);
    ck_assert_msg(strstr(why.text, words) && strstr(why.text, folder), "%s", why.text);
}

static f8_cache_key key_of(const char *text)
{
    return f8_cache_key_of(text, strlen(text));
}

static void put(f8_cache *c, const char *key, const char *value)
{
    const f8_cache_key k = key_of(key);
    f8_cache_put(c, &k, value, strlen(value));
}

/* The key's value is `value`; NULL: it is not there. */
static void expect(f8_cache *c, const char *key, const char *value)
{
    const f8_cache_key k = key_of(key);
    f8_cache_value v;
    const bool found = f8_cache_get(c, &k, &arena, &v);
    ck_assert_msg(found == (value != NULL), "'%s' was %sfound", key, found ? "" : "not ");
    if (!value) {
        ck_assert_ptr_null(v.bytes);
        return;
    }
    ck_assert_uint_eq(v.size, strlen(value));
    ck_assert(!memcmp(v.bytes, value, v.size));
    ck_assert_uint_eq((uintptr_t)v.bytes % 16, 0);
}

/* The file of a key's entry. */
static const char *file_of(const char *key)
{
    static char path[2][ROOM + 80];
    static int next;
    char digits[33];
    f8_hash_text(key_of(key).hash, digits);
    char *to = path[next++ % 2];
    snprintf(to, sizeof path[0], "%s/kernels/%c/%s", folder, digits[0], digits + 1);
    return to;
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fwrite(bytes, 1, n, f) == n && !fclose(f), "%s", path);
    ck_assert(!chmod(path, 0600));
}

/* ---- what is found ---- */

START_TEST(found_again)
{
    f8_cache *a = open_cache(0), *b = open_cache(0);
    f8_cache_facts facts;
    expect(a, "one", NULL);
    put(a, "one", "first");
    put(a, "two", "");
    expect(a, "one", "first");
    expect(a, "two", "");
    expect(b, "one", "first");
    expect(b, "on", NULL);
    put(b, "one", "second"); /* in place of what there was */
    expect(a, "one", "second");
    f8_cache_look(a, &facts);
    ck_assert_str_eq(facts.folder, folder);
    ck_assert_int_eq(facts.read_only, false);
    ck_assert_int_eq(facts.hits, 3);
    ck_assert_int_eq(facts.misses, 1);
    ck_assert_int_eq(facts.stored, 2);
    ck_assert_int_eq(facts.entries, 2);
    ck_assert_int_eq(facts.bytes, 2 * HEADER + 3 + 6 + 3);
    f8_cache_close(a);
    f8_cache_close(b);
    expect(NULL, "one", NULL);
    put(NULL, "one", "x");
    f8_cache_close(NULL);
    struct stat s;
    ck_assert(!stat(folder, &s) && (s.st_mode & 0777) == 0700);
    ck_assert(!stat(file_of("one"), &s) && (s.st_mode & 0777) == 0600);
}
END_TEST

static const char long_value[] = "the value of an entry, of some bytes";

START_TEST(every_bit)
{
    f8_cache *c = open_cache(0);
    size_t n;
    put(c, "key", long_value);
    char *bytes = f8_cli_read(file_of("key"), &n);
    ck_assert_uint_eq(n, HEADER + 3 + sizeof long_value - 1);
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (char)(1 << bit);
            write_bytes(file_of("key"), bytes, n);
            expect(c, "key", NULL);
            bytes[i] ^= (char)(1 << bit);
        }
    put(c, "key", long_value);
    expect(c, "key", long_value);
    free(bytes);
    f8_cache_close(c);
}
END_TEST

START_TEST(every_length)
{
    f8_cache *c = open_cache(0);
    size_t n;
    put(c, "key", long_value);
    char *bytes = f8_cli_read(file_of("key"), &n); /* NUL-terminated: one byte more is there */
    for (size_t i = 0; i <= n + 1; i++) {
        write_bytes(file_of("key"), bytes, i);
        expect(c, "key", i == n ? long_value : NULL);
    }
    put(c, "key", long_value);
    expect(c, "key", long_value);
    free(bytes);
    f8_cache_close(c);
}
END_TEST

/* An entry that is whole, sealed as this one is, but not what was asked for. */
static void write_entry(const char *path, const char *key, const char *value, uint32_t version)
{
    uint8_t bytes[256] = "fp8c\r\n\x1a";
    const uint64_t size[2] = {strlen(key), strlen(value)};
    const size_t n = HEADER + size[0] + size[1];
    memcpy(bytes + 8, &version, sizeof version);
    memcpy(bytes + 16, size, sizeof size);
    memcpy(bytes + HEADER, key, size[0]);
    memcpy(bytes + HEADER + size[0], value, size[1]);
    f8_hasher h;
    f8_hasher_begin(&h);
    f8_hasher_add(&h, bytes, 32);
    f8_hasher_add(&h, bytes + HEADER, n - HEADER);
    const f8_hash sum = f8_hasher_end(&h);
    memcpy(bytes + 32, &sum.lo, 8);
    memcpy(bytes + 40, &sum.hi, 8);
    write_bytes(path, bytes, n);
}

START_TEST(foreign)
{
    f8_cache *c = open_cache(0);
    put(c, "key", "value");
    write_entry(file_of("key"), "key", "by hand", 1); /* so the others below differ in one thing */
    expect(c, "key", "by hand");
    write_entry(file_of("key"), "yek", "value", 1); /* as of the same hash */
    expect(c, "key", NULL);
    write_entry(file_of("key"), "key2", "value", 1);
    expect(c, "key", NULL);
    for (uint32_t version = 0; version < 4; version++) {
        write_entry(file_of("key"), "key", "value", version);
        expect(c, "key", version == 1 ? "value" : NULL);
    }
    put(c, "key", "again");
    expect(c, "key", "again");
    f8_cache_close(c);
}
END_TEST

/* In an entry's place there is something else: nothing waits for it, follows it, or believes it. */
START_TEST(no_file)
{
    f8_cache *c = open_cache(0);
    put(c, "key", "value");
    put(c, "other", "value");
    const char *path = file_of("key");
    char *aside = strdup(f8_cli_temp("aside"));
    ck_assert(!rename(path, aside) && !symlink(aside, path));
    expect(c, "key", NULL);
    put(c, "key", "in place of the link");
    expect(c, "key", "in place of the link");
    ck_assert(!access(aside, F_OK));
    ck_assert(!unlink(path) && !mkfifo(path, 0600));
    expect(c, "key", NULL);
    put(c, "key", "in place of the pipe");
    expect(c, "key", "in place of the pipe");
    ck_assert(!chmod(path, 0620)); /* others may write it */
    expect(c, "key", NULL);
    ck_assert(!chmod(path, 0600));
    expect(c, "key", "in place of the pipe");
    if (geteuid() == 0) {
        ck_assert(!chown(path, NOBODY, NOBODY));
        expect(c, "key", NULL);
    }
    ck_assert(!unlink(path) && !mkdir(path, 0700));
    expect(c, "key", NULL);
    ck_assert_int_eq(n_warned, 0);
    put(c, "key", "value");
    expect(c, "key", NULL);
    ck_assert_int_eq(n_warned, 1);
    expect(c, "other", "value");
    free(aside);
    f8_cache_close(c);
}
END_TEST

/* ---- the folder ---- */

START_TEST(folders)
{
    f8_cache *c = open_cache(0);
    f8_cache_close(c);
    ck_assert(!chmod(folder, 0777));
    refused("can be written by everyone (mode 777)");
    ck_assert(!chmod(folder, 01777)); /* as /tmp: others can't take files of ours away */
    c = open_cache(0);
    put(c, "key", "value");
    expect(c, "key", "value");
    f8_cache_close(c);
    ck_assert(!chmod(folder, 0700));
    snprintf(folder + strlen(folder), sizeof folder - strlen(folder),
             "/file"); /* in a folder's way */
    write_bytes(folder, "", 0);
    refused("can't be read");
    snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/below");
    refused("can't be made: Not a directory");
    snprintf(folder, sizeof folder, "%s", f8_cli_temp("cache"));
}
END_TEST

START_TEST(somebody_elses)
{
    char expected[80];
    if (geteuid() == 0) {
        ck_assert(!mkdir(folder, 0700) && !chown(folder, NOBODY, NOBODY));
        snprintf(expected, sizeof expected, "belongs to user %d, and this is user 0", NOBODY);
    } else {
        snprintf(folder, sizeof folder, "/usr");
        snprintf(expected, sizeof expected, "belongs to user 0, and this is user %d",
                 (int)geteuid());
    }
    refused(expected);
    snprintf(folder, sizeof folder, "%s", f8_cli_temp("cache"));
}
END_TEST

/* Runs in a child process as a user who is bound by file modes: root, who is not, becomes another
 * user there. */
static void as_user(void (*run)(void))
{
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        if (geteuid() == 0 && (setegid(NOBODY) || seteuid(NOBODY)))
            _exit(9);
        run();
        _exit(0);
    }
    int status;
    ck_assert(waitpid(pid, &status, 0) == pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) < 9, "status %d", status);
    ck_assert_msg(WEXITSTATUS(status) == 0, "expectation %d failed", WEXITSTATUS(status));
}

/* Failed assertions of Check end the process that began the test; here the exit status says which.
 */
static void reads_only(void)
{
    static const f8_log log = {on_log, NULL, F8_LOG_WARNING};
    f8_cache *c;
    f8_diag why = {0};
    const f8_cache_key there = key_of("there"), missing = key_of("missing");
    f8_cache_value v;
    f8_cache_facts facts;
    f8_cache_claim claim;
    if (f8_cache_open(&(f8_cache_options){.folder = folder, .log = &log}, &c, &why) != F8_OK)
        _exit(1);
    if (!f8_cache_get(c, &there, &arena, &v) || v.size != 5 || memcmp(v.bytes, "value", 5))
        _exit(2);
    f8_cache_put(c, &missing, "x", 1);
    if (f8_cache_get(c, &missing, &arena, &v))
        _exit(3);
    if (!f8_cache_claim_key(c, &missing, &claim))
        _exit(4);
    f8_cache_release(&claim);
    f8_cache_look(c, &facts);
    if (!facts.read_only || facts.stored || facts.entries != 1 || n_warned)
        _exit(5);
    f8_cache_close(c);
}

static void reads_nothing(void)
{
    f8_cache *c;
    f8_diag why = {0};
    if (f8_cache_open(&(f8_cache_options){.folder = folder}, &c, &why) != F8_ERR_IO || c)
        _exit(1);
    if (!strstr(why.text, "can't be read: Permission denied"))
        _exit(2);
}

static void makes_nothing(void)
{
    f8_cache *c;
    f8_diag why = {0};
    char below[ROOM + 20];
    snprintf(below, sizeof below, "%s/not/there", folder);
    if (f8_cache_open(&(f8_cache_options){.folder = below}, &c, &why) != F8_ERR_IO || c)
        _exit(1);
    if (!strstr(why.text, "not/there' can't be made: Permission denied"))
        _exit(2);
}

static int give_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s;
    (void)kind;
    (void)at;
    return geteuid() == 0 ? chown(path, NOBODY, NOBODY) : 0;
}

static int modes_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s;
    (void)at;
    return kind == FTW_DP || kind == FTW_D ? chmod(path, 0500) : 0;
}

static int restore_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s;
    (void)at;
    return kind == FTW_D ? chmod(path, 0700) : 0;
}

START_TEST(read_only)
{
    f8_cache *c = open_cache(0);
    put(c, "there", "value");
    f8_cache_close(c);
    char *parent = strdup(f8_cli_temp("x"));
    *strrchr(parent, '/') = 0;
    ck_assert(!chmod(parent, 0755)); /* nobody may pass */
    nftw(folder, give_one, 16, FTW_PHYS);
    nftw(folder, modes_one, 16, FTW_PHYS | FTW_DEPTH);
    as_user(reads_only);
    as_user(makes_nothing);
    ck_assert(!chmod(folder, 0));
    as_user(reads_nothing);
    ck_assert(!chmod(folder, 0700));
    nftw(folder, restore_one, 16, FTW_PHYS);
    free(parent);
}
END_TEST

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
    Suite *s = suite_create("cache");
    TCase *t = tcase_create("store");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, found_again);
    tcase_add_test(t, every_bit);
    tcase_add_test(t, every_length);
    tcase_add_test(t, foreign);
    tcase_add_test(t, no_file);
    tcase_add_test(t, folders);
    tcase_add_test(t, somebody_elses);
    tcase_add_test(t, read_only);
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
