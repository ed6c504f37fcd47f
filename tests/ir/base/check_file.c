/* Files are written whole or not at all, and read within bounds. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/base/file.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

static void has(const char *path, const char *bytes)
{
    size_t n;
    char *file = f8_cli_read(path, &n);
    ck_assert(n == strlen(bytes) && !memcmp(file, bytes, n));
    free(file);
}

static void failed(const f8_diag *diag, f8_status status, const char *path, const char *text)
{
    ck_assert_int_eq(status, F8_ERR_IO);
    ck_assert_int_eq(diag->status, F8_ERR_IO);
    ck_assert_str_eq(diag->file, path);
    ck_assert_str_eq(diag->text, text);
}

/* ---- writing ---- */

START_TEST(replaces)
{
    f8_diag diag = {0};
    struct stat s;
    const char *path = f8_cli_write("it", "old", 3);
    ck_assert(!chmod(path, 0644));
    const mode_t mask = umask(027);
    ck_assert_int_eq(f8_file_writable(NULL, path, &diag), F8_OK);
    has(path, "old");
    ck_assert_int_eq(f8_file_write(NULL, path, "longer", 6, false, &diag), F8_OK);
    has(path, "longer");
    ck_assert(!stat(path, &s));
    ck_assert_int_eq(s.st_mode & 0777, 0644); /* the old one's */
    ck_assert(!chmod(path, 0600));
    ck_assert_int_eq(f8_file_write(NULL, path, NULL, 0, false, NULL), F8_OK);
    has(path, "");
    ck_assert(!stat(path, &s));
    ck_assert_int_eq(s.st_mode & 0777, 0600);
    ck_assert(!unlink(path));
    ck_assert_int_eq(f8_file_write(NULL, path, "new", 3, false, NULL), F8_OK);
    ck_assert(!stat(path, &s));
    ck_assert_int_eq(s.st_mode & 0777, 0640);
    umask(mask);
    ck_assert_int_eq(f8_cli_files(), 1);
}
END_TEST

/* The file behind a link is replaced, the link stays; through one that leads nowhere nothing is
 * written. */
START_TEST(follows_links)
{
    f8_diag diag = {0};
    struct stat s;
    const char *path = f8_cli_write("old", "old", 3), *link = f8_cli_temp("link"),
               *dead = f8_cli_temp("dead");
    ck_assert(!symlink("old", link) && !symlink("none", dead));
    ck_assert_int_eq(f8_file_write(NULL, link, "new", 3, false, NULL), F8_OK);
    ck_assert(!lstat(link, &s) && S_ISLNK(s.st_mode));
    has(path, "new");
    failed(&diag, f8_file_write(NULL, dead, "new", 3, false, &diag), dead,
           "No such file or directory");
    ck_assert(!lstat(dead, &s) && S_ISLNK(s.st_mode));
    ck_assert_int_eq(f8_cli_files(), 3);
}
END_TEST

START_TEST(does_not_replace)
{
    f8_diag diag = {0};
    f8_file_out out;
    const char *path = f8_cli_temp("it");
    ck_assert_int_eq(f8_file_write(NULL, path, "first", 5, true, &diag), F8_OK);
    ck_assert_int_eq(f8_file_begin(&out, NULL, path, true, &diag), F8_OK);
    ck_assert_int_eq(f8_file_put(&out, "second", 6), F8_OK);
    failed(&diag, f8_file_commit(&out), path, "File exists");
    ck_assert(out.existed);
    f8_file_end(&out);
    f8_file_end(&out);
    has(path, "first");
    ck_assert_int_eq(f8_cli_files(), 1);
}
END_TEST

/* Until it is committed nothing is to be seen of it. */
START_TEST(in_parts)
{
    f8_file_out out;
    const char *path = f8_cli_write("it", "old", 3);
    ck_assert_int_eq(f8_file_begin(&out, NULL, path, false, NULL), F8_OK);
    ck_assert_int_eq(f8_file_put(&out, "ne", 2), F8_OK);
    has(path, "old");
    ck_assert_int_eq(f8_cli_files(), 2);
    ck_assert_int_eq(f8_file_put(&out, "w", 1), F8_OK);
    ck_assert_int_eq(f8_file_commit(&out), F8_OK);
    f8_file_end(&out);
    has(path, "new");
    ck_assert_int_eq(f8_file_begin(&out, NULL, path, false, NULL), F8_OK);
    ck_assert_int_eq(f8_file_put(&out, "never", 5), F8_OK);
    f8_file_end(&out);
    has(path, "new");
    ck_assert_int_eq(f8_cli_files(), 1);
}
END_TEST

START_TEST(a_name_alone)
{
    ck_assert(!chdir(f8_cli_temp("")));
    ck_assert_int_eq(f8_file_write(NULL, "alone", "x", 1, false, NULL), F8_OK);
    has("alone", "x");
    ck_assert(!unlink("alone"));
}
END_TEST

START_TEST(unwritable)
{
    static const char *const bad[][2] = {{"no/such/folder/x", "No such file or directory"},
                                         {"tests", "Is a directory"},
                                         {"/dev/null", "not a regular file"},
                                         {"Makefile/x", "Not a directory"},
                                         {"", "No such file or directory"}};
    struct stat s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_diag diag = {0}, again = {0};
        failed(&diag, f8_file_writable(NULL, bad[i][0], &diag), bad[i][0], bad[i][1]);
        failed(&again, f8_file_write(NULL, bad[i][0], "x", 1, false, &again), bad[i][0], bad[i][1]);
    }
    ck_assert(!stat("/dev/null", &s) && S_ISCHR(s.st_mode));
    f8_diag diag = {0};
    char *name = memset(calloc(1, 5001), 'x', 5000);
    failed(&diag, f8_file_writable(NULL, name, &diag), name, "File name too long");
    free(name);
}
END_TEST

/* A disk that is full: the file is as it was, and no other file is left. */
START_TEST(too_large)
{
    f8_diag diag = {0};
    const char *path = f8_cli_write("old", "old", 3);
    char *much = calloc(1, 100);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){20, 20}));
    failed(&diag, f8_file_write(NULL, path, much, 100, false, &diag), path, "File too large");
    has(path, "old");
    ck_assert_int_eq(f8_cli_files(), 1);
    free(much);
}
END_TEST

enum { THREADS = 8, TIMES = 30, SIZE = 40000 };

static void *write_often(void *path)
{
    char bytes[SIZE];
    for (int i = 0; i < TIMES; i++) {
        memset(bytes, 'a' + i, SIZE);
        if (f8_file_write(NULL, path, bytes, SIZE, false, NULL) != F8_OK)
            return path;
    }
    return NULL;
}

/* Of one written by many at once, a reader sees one or another whole. */
START_TEST(many_at_once)
{
    pthread_t thread[THREADS];
    char *path = strdup(f8_cli_write("it", "", 0));
    for (int i = 0; i < THREADS; i++)
        ck_assert(!pthread_create(&thread[i], NULL, write_often, path));
    for (int i = 0; i < TIMES * 4; i++) {
        f8_file_bytes file;
        ck_assert_int_eq(f8_file_read(path, SIZE, NULL, &file, NULL), F8_OK);
        ck_assert(file.size == 0 || file.size == SIZE);
        for (size_t k = 1; k < file.size; k++)
            ck_assert(file.bytes[k] == file.bytes[0]);
        f8_file_release(&file);
    }
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        ck_assert(!pthread_join(thread[i], &bad));
        ck_assert_ptr_null(bad);
    }
    ck_assert_int_eq(f8_cli_files(), 1);
    free(path);
}
END_TEST

/* A process killed while it writes leaves the old file, or the new. */
START_TEST(killed)
{
    const char *path = f8_cli_write("it", "old", 3);
    for (int i = 0; i < 100; i++) {
        const pid_t child = fork();
        ck_assert(child >= 0);
        if (child == 0) {
            write_often((void *)path);
            _exit(0);
        }
        usleep((useconds_t)(120 * i));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        f8_file_bytes file;
        ck_assert_int_eq(f8_file_read(path, SIZE, NULL, &file, NULL), F8_OK);
        ck_assert(file.size == SIZE || (file.size == 3 && !memcmp(file.bytes, "old", 3)));
        for (size_t k = 1; k < file.size && file.size == SIZE; k++)
            ck_assert(file.bytes[k] == file.bytes[0]);
        f8_file_release(&file);
    }
    ck_assert_int_eq(f8_file_write(NULL, path, "new", 3, false, NULL), F8_OK);
    has(path, "new");
}
END_TEST

/* ---- signals ---- */

static f8_temporaries list;

static void give_up(int number)
{
    f8_temporaries_remove(&list);
    _exit(number);
}

static void *write_listed(void *path)
{
    char bytes[SIZE];
    for (int i = 0;; i++) {
        memset(bytes, 'a' + i % 26, SIZE);
        if (f8_file_write(&list, path, bytes, SIZE, i % 3 == 0, NULL) == F8_ERR_CANCELLED)
            return NULL;
    }
}

/* A process that writes on several threads, and ends in a handler: on any of them. */
static _Noreturn void write_until_signalled(char *path, char *other)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, write_listed, i ? path : other);
    write_listed(path);
    for (;;)
        pause();
}

/* A handler removes what is not whole yet, whichever thread it runs on. */
START_TEST(signalled)
{
    char *path = strdup(f8_cli_write("it", "old", 3)), *other = strdup(f8_cli_temp("other"));
    signal(SIGTERM, give_up); /* the child's, from its first moment */
    for (int i = 0; i < 100; i++) {
        const pid_t child = fork();
        int status;
        ck_assert(child >= 0);
        if (child == 0)
            write_until_signalled(path, other);
        usleep((useconds_t)(1000 + 100 * i));
        kill(child, SIGTERM);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == SIGTERM);
        ck_assert_int_eq(f8_cli_files(), access(other, F_OK) ? 1 : 2);
        f8_file_bytes file;
        ck_assert_int_eq(f8_file_read(path, SIZE, NULL, &file, NULL), F8_OK);
        ck_assert(file.size == SIZE || (file.size == 3 && !memcmp(file.bytes, "old", 3)));
        f8_file_release(&file);
    }
    free(path);
    free(other);
}
END_TEST

static void *begin_too(void *out)
{
    f8_file_out *o = out;
    return f8_file_begin(o, NULL, o->path, false, NULL) == F8_OK ? o : NULL;
}

/* The name of a temporary file that was removed is not another thread's next one. */
START_TEST(own_names)
{
    const char *path = f8_cli_write("it", "old", 3);
    f8_file_out mine, other = {.path = path};
    pthread_t thread;
    void *begun;
    ck_assert_int_eq(f8_file_begin(&mine, NULL, path, false, NULL), F8_OK);
    ck_assert_int_eq(unlink(mine.temporary), 0); /* as a handler does */
    ck_assert_int_eq(pthread_create(&thread, NULL, begin_too, &other), 0);
    ck_assert_int_eq(pthread_join(thread, &begun), 0);
    ck_assert_ptr_eq(begun, &other);
    ck_assert_str_ne(other.temporary, mine.temporary);
    f8_file_end(&other);
    f8_file_end(&mine);
    ck_assert_int_eq(f8_cli_files(), 1);
}
END_TEST

/* What was begun is not committed afterwards, and nothing new is begun. */
START_TEST(given_up)
{
    static f8_temporaries own;
    f8_file_out out;
    f8_diag diag = {0}, again = {0};
    const char *path = f8_cli_write("it", "old", 3);
    ck_assert_int_eq(f8_file_begin(&out, &own, path, false, &diag), F8_OK);
    ck_assert_int_eq(f8_file_put(&out, "new", 3), F8_OK);
    ck_assert_int_eq(f8_cli_files(), 2);
    f8_temporaries_remove(&own);
    ck_assert_int_eq(f8_cli_files(), 1);
    ck_assert_int_eq(f8_file_commit(&out), F8_ERR_CANCELLED);
    f8_file_end(&out);
    ck_assert_str_eq(diag.text, "not written: the context's files were given up");
    ck_assert_int_eq(f8_file_write(&own, path, "new", 3, false, &again), F8_ERR_CANCELLED);
    ck_assert_int_eq(f8_cli_files(), 1);
    has(path, "old");
}
END_TEST

/* ---- reading ---- */

START_TEST(reads)
{
    f8_diag diag = {0};
    f8_file_bytes file;
    const char *path = f8_cli_write("it", "bytes", 5), *empty = f8_cli_write("empty", "", 0);
    ck_assert_int_eq(f8_file_read(path, 5, NULL, &file, &diag), F8_OK);
    ck_assert(file.size == 5 && !memcmp(file.bytes, "bytes", 5));
    ck_assert_uint_eq((uintptr_t)file.bytes % F8_FILE_ALIGN, 0);
    f8_file_release(&file);
    ck_assert(file.size == 0 && file.bytes);
    ck_assert_int_eq(f8_file_read(path, UINT64_MAX, NULL, &file, &diag), F8_OK);
    ck_assert(file.size == 5 && !memcmp(file.bytes, "bytes", 5));
    f8_file_release(&file);
    f8_file_release(&file);
    ck_assert_int_eq(f8_file_read(empty, 0, NULL, &file, &diag), F8_OK);
    ck_assert(file.size == 0 && file.bytes);
    f8_file_release(&file);
}
END_TEST

static void *no_memory(void *user, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    return NULL;
}

START_TEST(unreadable)
{
    const char *pipe = f8_cli_temp("pipe"), *path = f8_cli_write("it", "bytes", 5);
    ck_assert(!mkfifo(pipe, 0600));
    const char *const bad[][2] = {{"no/such", "No such file or directory"},
                                  {"tests", "Is a directory"},
                                  {pipe, "not a regular file"},
                                  {path, "it has 5 bytes; at most 4 are read"}};
    f8_file_bytes file;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_diag diag = {0};
        failed(&diag, f8_file_read(bad[i][0], 4, NULL, &file, &diag), bad[i][0], bad[i][1]);
        f8_file_release(&file);
    }
    f8_diag diag = {0};
    const f8_allocator none = {no_memory, NULL, NULL};
    ck_assert_int_eq(f8_file_read(path, 5, &none, &file, &diag), F8_ERR_MEMORY);
    ck_assert_str_eq(diag.text, "out of memory: 5 bytes were wanted");
    ck_assert(file.size == 0);
}
END_TEST

START_TEST(shorter_while_open)
{
    f8_diag diag = {0};
    f8_file_in in;
    char to[8];
    const int fd = memfd_create("it", MFD_CLOEXEC);
    ck_assert(fd >= 0 && write(fd, "12345678", 8) == 8);
    ck_assert_int_eq(f8_file_open_fd(&in, "it", fd, &diag), F8_OK);
    ck_assert_uint_eq(in.size, 8);
    ck_assert_int_eq(f8_file_get(&in, to, 3, 5, &diag), F8_OK);
    ck_assert(!memcmp(to, "678", 3));
    ck_assert(!ftruncate(fd, 7));
    f8_file_bytes file;
    failed(&diag, f8_file_take(&in, 8, NULL, &file, &diag), "it",
           "the file became shorter while it was read");
    ck_assert(file.size == 0 && !file.memory);
    diag = (f8_diag){0};
    failed(&diag, f8_file_get(&in, to, 3, 5, &diag), "it",
           "the file became shorter while it was read");
    f8_file_close(&in);
    f8_file_close(&in);
    ck_assert_int_eq(in.fd, -1);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("file");
    TCase *write = tcase_create("write"), *read = tcase_create("read");
    TCase *cases[] = {write, read};
    for (int i = 0; i < 2; i++) {
        tcase_set_timeout(cases[i], TIMEOUT);
        tcase_add_checked_fixture(cases[i], f8_cli_setup, f8_cli_teardown);
        suite_add_tcase(s, cases[i]);
    }
    tcase_add_test(write, replaces);
    tcase_add_test(write, follows_links);
    tcase_add_test(write, does_not_replace);
    tcase_add_test(write, in_parts);
    tcase_add_test(write, a_name_alone);
    tcase_add_test(write, unwritable);
    tcase_add_test(write, too_large);
    tcase_add_test(write, many_at_once);
    tcase_add_test(write, killed);
    tcase_add_test(write, signalled);
    tcase_add_test(write, given_up);
    tcase_add_test(write, own_names);
    tcase_add_test(read, reads);
    tcase_add_test(read, unreadable);
    tcase_add_test(read, shorter_while_open);
    return s;
}
