/* The store of the kernel cache by itself. Entries that are whole are found, damaged ones are
 * misses. It uses only a folder that no other user can put code into. check_cache_room.c tests its
 * bound, and several users at once. */
#include "tests/shared/cache/cache_case.h"
#include "tests/shared/suite.h"

#include <sys/wait.h>
#include <unistd.h>

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
    suite_add_tcase(s, t);
    return s;
}
