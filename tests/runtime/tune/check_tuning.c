/* The tuning database: rows, many processes, processes killed at any moment, files that are not
 * such a database, export, import and merge. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/shared/tuning_case.h"

/* Three timings and a choice, all of them functions of `value`. */
static f8_status put(f8_tuning *t, const f8_tuning_key *key, const char *problem, double value,
                     f8_diag *diag)
{
    const f8_timing timing[] = {
        {.candidate = "model", .seconds = value, .median = value + 1, .runs = 7},
        {.candidate = "m 64", .seconds = value / 2, .median = value, .runs = 7},
        {.candidate = "m 256"}};
    const f8_tuning_choice choice = {"m 64", value / 2, value};
    return f8_tuning_put(t, key, problem, "step", timing, 3, &choice, diag);
}

/* All of a problem is there with that value, or (may_lack) none of it. */
static bool whole(f8_tuning *t, const f8_tuning_key *key, const char *problem, double value,
                  bool may_lack)
{
    f8_timing *timing;
    f8_tuning_choice choice;
    size_t n;
    bool found;
    OK(f8_tuning_get(t, key, problem, NULL, &arena, &timing, &n, diag));
    OK(f8_tuning_chosen(t, key, problem, &arena, &choice, &found, diag));
    if (may_lack && !n && !found)
        return false;
    ck_assert_uint_eq(n, 3);
    ck_assert(found);
    ck_assert_str_eq(timing[0].candidate, "m 256");
    ck_assert_str_eq(timing[1].candidate, "m 64");
    ck_assert_str_eq(timing[2].candidate, "model");
    ck_assert_int_eq(timing[0].runs, 0);
    ck_assert(timing[2].seconds == value && timing[2].median == value + 1 &&
              timing[1].seconds == value / 2);
    ck_assert_str_eq(choice.candidate, "m 64");
    ck_assert(choice.model_seconds == value);
    return true;
}

START_TEST(rows)
{
    const f8_tuning_key there = {"cpu there, 2 threads", "library 1"},
                        later = {here.device, "library 2"};
    f8_tuning *t = open_at(path);
    OK(put(t, &here, "p", 4, diag));
    OK(put(t, &there, "p", 8, diag));
    OK(put(t, &later, "p", 16, diag));
    whole(t, &here, "p", 4, false);
    OK(put(t, &here, "p", 32, diag)); /* in place of the first */
    whole(t, &here, "p", 32, false);
    whole(t, &there, "p", 8, false);
    whole(t, &later, "p", 16, false);
    ck_assert(!whole(t, &here, "q", 0, true));
    f8_tuning_close(t);
    f8_tuned *tuned;
    OK(f8_tuned_read(path, here.device, 100, &arena, &tuned, diag));
    ck_assert_uint_eq(f8_tuned_count(tuned), 2);
    ck_assert_str_eq(f8_tuned_find(tuned, "library 1", "p"), "m 64");
    ck_assert_ptr_null(f8_tuned_find(tuned, "library 3", "p"));
    ck_assert_ptr_null(f8_tuned_find(tuned, "library 1", "q"));
    ck_assert_ptr_null(f8_tuned_find(NULL, "library 1", "p"));
}
END_TEST

/* Where there is no file a compile has no rows, and no SQLite. */
START_TEST(no_file)
{
    f8_tuned *tuned = (f8_tuned *)path;
    OK(f8_tuned_read(path, here.device, 100, &arena, &tuned, diag));
    ck_assert_ptr_null(tuned);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps))
        ck_assert_ptr_null(strstr(line, "sqlite"));
    fclose(maps);
}
END_TEST

enum { PROCESSES = 8, EACH = 6 };

START_TEST(many_processes)
{
    pid_t child[PROCESSES];
    for (int c = 0; c < PROCESSES; c++) {
        child[c] = fork();
        if (child[c])
            continue;
        f8_tuning *t;
        f8_diag diag = {0};
        char name[32];
        f8_status status = f8_tuning_open(path, NULL, &t, &diag); /* one of them makes the file */
        for (int i = 0; i < EACH && status == F8_OK; i++) {
            snprintf(name, sizeof name, "p %d.%d", c, i);
            status = put(t, &here, name, c + i, &diag);
            if (status == F8_OK)
                status = put(t, &here, "everyone's", 3, &diag);
        }
        f8_tuning_close(t);
        if (status != F8_OK)
            fprintf(stderr, "process %d: %s\n", c, diag.text);
        _exit(status != F8_OK);
    }
    for (int c = 0; c < PROCESSES; c++) {
        int how;
        ck_assert_int_eq(waitpid(child[c], &how, 0), child[c]);
        ck_assert_int_eq(how, 0);
    }
    f8_tuning *t = open_at(path);
    char name[32];
    for (int c = 0; c < PROCESSES; c++)
        for (int i = 0; i < EACH; i++) {
            snprintf(name, sizeof name, "p %d.%d", c, i);
            whole(t, &here, name, c + i, false);
        }
    whole(t, &here, "everyone's", 3, false);
    f8_tuning_close(t);
}
END_TEST

/* A writer is killed, from before it has made the file on. What is there by then is whole, and
 * readers and writers go on. */
START_TEST(killed_at_any_moment)
{
    int most = 0, done = 0;
    for (int turn = 0; turn < 30; turn++) {
        char name[32];
        const pid_t child = fork();
        if (!child) {
            f8_tuning *t;
            if (f8_tuning_open(path, NULL, &t, NULL) != F8_OK)
                _exit(1);
            for (int i = 0;; i++) {
                snprintf(name, sizeof name, "p %d.%d", turn, i);
                if (put(t, &here, name, i, NULL) != F8_OK)
                    _exit(1);
            }
        }
        usleep(next_random() % 100000);
        kill(child, SIGKILL);
        int how;
        ck_assert_int_eq(waitpid(child, &how, 0), child);
        ck_assert_msg(WIFSIGNALED(how), "turn %d: the writer failed", turn);
        f8_tuned *tuned;
        if (turn % 2 && access(path, F_OK) == 0 &&
            most) /* a reader comes first, whatever it finds half done */
            OK(f8_tuned_read(path, here.device, 5000, &arena, &tuned, diag));
        f8_tuning *t = open_at(path);
        int i = 0;
        do
            snprintf(name, sizeof name, "p %d.%d", turn, i);
        while (whole(t, &here, name, i, true) && ++i);
        done += i;
        most = most > i ? most : i;
        OK(put(t, &here, "after", turn, diag));
        whole(t, &here, "after", turn, false);
        f8_tuning_close(t);
    }
    ck_assert_int_gt(done, 0);
    printf("%d problems written by 30 processes that were killed\n", done);
}
END_TEST

/* ---- files that are no tuning database ---- */

/* Neither reader nor writer takes the file, both say so, and it is as it was. */
static void check_refused(const char *file, const char *why)
{
    size_t n, m;
    f8_tuned *tuned;
    f8_tuning *t;
    const char *before = read_bytes(file, &n);
    f8_diag read = {0}, written = {0};
    ck_assert_int_ne(f8_tuned_read(file, here.device, 10, &arena, &tuned, &read), F8_OK);
    ck_assert_ptr_null(tuned);
    ck_assert_msg(strstr(read.text, why) != NULL, "read: %s", read.text);
    ck_assert_int_ne(f8_tuning_open(file, NULL, &t, &written), F8_OK);
    ck_assert_msg(strstr(written.text, why) != NULL, "written: %s", written.text);
    ck_assert_str_eq(written.file, file);
    const char *after = read_bytes(file, &m);
    ck_assert(n == m && !memcmp(before, after, n));
}

static void make_filled(const char *file)
{
    f8_tuning *t = open_at(file);
    char name[32];
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "problem %d", i);
        OK(put(t, &here, name, i, diag));
    }
    f8_tuning_close(t);
}

START_TEST(not_a_database)
{
    char file[128];
    snprintf(file, sizeof file, "%s/x", folder);
    write_bytes(file,
                "this is a text, and of more than a hundred bytes so that it might be the header "
                "of a database file of "
                "SQLite's, which it isn't",
                120);
    check_refused(file, "this is no tuning database");
}
END_TEST

START_TEST(another_database)
{
    make_filled(path);
    change(path, "PRAGMA application_id = 77");
    check_refused(path, "this is a database, but no tuning database");
}
END_TEST

START_TEST(later_schema)
{
    make_filled(path);
    change(path, "PRAGMA user_version = 3");
    check_refused(path, "it has schema 3; this version of fp8c knows 1 to 2");
}
END_TEST

/* A database that was cut or has wrong bytes gives an error, or rows, whose texts a compile checks.
 * It never crashes. */
START_TEST(damaged)
{
    size_t n;
    make_filled(path);
    char *good = read_bytes(path, &n), file[160];
    int refused = 0;
    snprintf(file, sizeof file, "%s/damaged", folder);
    for (int i = 0; i < 60; i++) {
        char *bad = f8_arena_array(&arena, n, 1);
        memcpy(bad, good, n);
        size_t size = n;
        if (i % 3 == 0)
            size = next_random() % n;
        for (int k = 0; k < 1 + i; k++)
            bad[next_random() % (i % 2 ? n : 4096)] ^= (char)(1 << next_random() % 8);
        write_bytes(file, bad, size);
        f8_tuned *tuned;
        f8_diag diag = {0};
        if (f8_tuned_read(file, here.device, 10, &arena, &tuned, &diag) != F8_OK) {
            refused++;
            ck_assert_str_ne(diag.text, "");
        }
        f8_tuning *t = NULL;
        f8_diag other = {0};
        if (f8_tuning_open(file, NULL, &t, &other) == F8_OK) {
            f8_timing *timing;
            size_t count;
            f8_tuning_get(t, &here, "problem 7", NULL, &arena, &timing, &count, &other);
        }
        f8_tuning_close(t);
    }
    ck_assert_int_gt(refused, 10);
}
END_TEST

START_TEST(locked)
{
    f8_db db;
    f8_tuned *tuned;
    f8_diag diag = {0};
    make_filled(path);
    OK(f8_db_open(&db, path, F8_DB_WRITE, 10, diag));
    OK(f8_db_do(&db, "BEGIN EXCLUSIVE", diag));
    ck_assert_int_eq(f8_tuned_read(path, here.device, 10, &arena, &tuned, &diag), F8_ERR_IO);
    ck_assert_ptr_nonnull(strstr(diag.text, "another process has it locked"));
    OK(f8_db_do(&db, "ROLLBACK", diag));
    f8_db_close(&db);
    OK(f8_tuned_read(path, here.device, 10, &arena, &tuned, diag));
    ck_assert_uint_eq(f8_tuned_count(tuned), 60);
}
END_TEST

enum { NOBODY = 65534 };

/* As the kernel cache's: what others may write is not used, wherever it lies, nor a journal that
 * they left beside it. Another's database may be merged, though. */
START_TEST(somebody_elses)
{
    char file[160], beside[160], link[160], expected[160];
    make_filled(path);
    ck_assert_int_eq(chmod(path, 0620), 0);
    check_refused(path, "can be written by others (mode 620): chmod go-w");
    ck_assert_int_eq(chmod(path, 0644), 0);
    snprintf(beside, sizeof beside, "%s/a/b", folder);
    ck_assert_int_eq(chmod(beside, 0777), 0);
    check_refused(path, "can be written by everyone (mode 777)");
    ck_assert_int_eq(chmod(beside, 01777), 0); /* as /tmp: others can't take files of ours away */
    f8_tuning_close(open_at(path));
    ck_assert_int_eq(chmod(beside, 0700), 0);
    snprintf(beside, sizeof beside, "%s-journal", path);
    write_bytes(beside, "", 0);
    ck_assert_int_eq(chmod(beside, 0666), 0);
    check_refused(path, "-journal' can be written by others (mode 666)");
    ck_assert_int_eq(unlink(beside), 0);
    snprintf(link, sizeof link, "%s/link.db", folder); /* leads to a file that is ours */
    ck_assert_int_eq(symlink(path, link), 0);
    f8_tuning_close(open_at(link));
    snprintf(file, sizeof file, "%s/own.db", folder);
    if (geteuid()) {
        test_skip("a database of another user", "only root can give one away");
        return;
    }
    ck_assert_int_eq(chown(path, NOBODY, NOBODY), 0);
    snprintf(expected, sizeof expected, "belongs to user %d, and this is user 0", NOBODY);
    check_refused(path, expected);
    check_refused(link, expected);
    f8_tuning *t = open_at(file);
    f8_tuning_counts counts;
    OK(f8_tuning_merge(t, path, NULL, &counts, diag));
    ck_assert_int_eq(counts.choices, 60);
    f8_tuning_close(t);
}
END_TEST

/* SQLite has the settings for files that it does not trust, and a schema with more than tables is
 * refused: a view could run for ever. */
START_TEST(defensive)
{
    f8_db db;
    f8_diag diag = {0};
    int on = 0, trusting = 1;
    make_filled(path);
    OK(f8_db_open(&db, path, F8_DB_WRITE, 10, diag));
    db.api.sqlite3_db_config(db.handle, SQLITE_DBCONFIG_DEFENSIVE, -1, &on);
    db.api.sqlite3_db_config(db.handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, -1, &trusting);
    ck_assert(on && !trusting);
    OK(f8_db_do(&db, "PRAGMA writable_schema = ON", diag));
    ck_assert_int_ne(f8_db_do(&db, "UPDATE sqlite_master SET sql = 'x'", &diag), F8_OK);
    f8_db_close(&db);
    change(path, "CREATE VIEW v AS SELECT * FROM choice");
    check_refused(path, "it has views or triggers");
}
END_TEST

START_TEST(nowhere_to_write)
{
    char file[160];
    f8_tuning *t;
    f8_diag diag = {0};
    snprintf(file, sizeof file, "%s/plain", folder);
    write_bytes(file, "x", 1);
    snprintf(file, sizeof file, "%s/plain/tuning.db", folder);
    ck_assert_int_eq(f8_tuning_open(file, NULL, &t, &diag), F8_ERR_IO);
    ck_assert_ptr_nonnull(strstr(diag.text, "tuning database: unable to open database file"));
    ck_assert_str_eq(diag.file, file);
    char *deep = f8_arena_array(&arena, 6001, 1);
    memset(deep, 'd', 6000);
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_tuning_open(deep, NULL, &t, &diag), F8_ERR_IO);
    ck_assert_ptr_nonnull(strstr(diag.text, "File name too long"));
    if (geteuid() == 0) {
        test_skip("a database that can't be written", "no mode keeps root out");
        return;
    }
    make_filled(path);
    ck_assert_int_eq(chmod(path, 0400), 0);
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_tuning_open(path, NULL, &t, &diag), F8_ERR_IO);
    ck_assert_ptr_nonnull(strstr(diag.text, "it can't be written"));
}
END_TEST

/* ---- files of rows ---- */

START_TEST(there_and_back)
{
    const f8_tuning_key there = {"cpu \"there\" \\ \xc3\xa4", "library 1"};
    char first[128], second[128], other[128];
    f8_tuning_counts counts;
    size_t n, m;
    snprintf(first, sizeof first, "%s/1.jsonl", folder);
    snprintf(second, sizeof second, "%s/2.jsonl", folder);
    snprintf(other, sizeof other, "%s/other.db", folder);
    make_filled(path);
    f8_tuning *t = open_at(path), *u = open_at(other);
    OK(put(t, &there, "p", 1.0 / 3, diag));
    OK(f8_tuning_export(t, first, here.device, &counts, diag));
    ck_assert_int_eq(counts.timings, 183);
    ck_assert_int_eq(counts.choices, 61);
    ck_assert_int_eq(counts.others, 4);
    OK(f8_tuning_import(u, first, here.device, &counts, diag));
    ck_assert_int_eq(counts.timings, 183);
    ck_assert_int_eq(counts.choices, 61);
    ck_assert_int_eq(counts.older, 0);
    ck_assert_int_eq(counts.others, 4);
    whole(u, &there, "p", 1.0 / 3, false);
    OK(f8_tuning_export(u, second, NULL, &counts, diag));
    const char *a = read_bytes(first, &n), *b = read_bytes(second, &m);
    ck_assert(n == m && !memcmp(a, b, n));
    OK(f8_tuning_import(u, second, here.device, &counts, diag)); /* nothing is newer */
    ck_assert_int_eq(counts.timings + counts.choices, 0);
    ck_assert_int_eq(counts.older, 244);
    f8_tuning_close(t);
    f8_tuning_close(u);
}
END_TEST

START_TEST(merged)
{
    char other[128];
    f8_tuning_counts counts;
    snprintf(other, sizeof other, "%s/other.db", folder);
    make_filled(path);
    f8_tuning *t = open_at(path), *u = open_at(other);
    OK(put(u, &here, "problem 3", 1000, diag));
    OK(put(u, &here, "new", 5, diag));
    f8_tuning_close(u);
    change(other, "UPDATE timing SET at = at + 5; UPDATE choice SET at = at + 5");
    OK(f8_tuning_merge(t, other, here.device, &counts, diag));
    ck_assert_int_eq(counts.timings, 6);
    ck_assert_int_eq(counts.choices, 2);
    whole(t, &here, "problem 3", 1000, false); /* newer there */
    whole(t, &here, "new", 5, false);
    whole(t, &here, "problem 4", 4, false);
    f8_diag diag = {0};
    snprintf(other, sizeof other, "%s/none.db", folder);
    ck_assert_int_ne(f8_tuning_merge(t, other, NULL, &counts, &diag), F8_OK);
    ck_assert_ptr_nonnull(strstr(diag.text, "unable to open"));
    ck_assert_int_ne(access(other, F_OK), 0); /* and none was made */
    f8_tuning_close(t);
}
END_TEST

/* Nothing is written over a database, and none is taken over from itself, whatever name it goes by.
 */
START_TEST(not_itself)
{
    char soft[128], hard[128], other[128];
    f8_tuning_counts counts;
    size_t n, m;
    snprintf(soft, sizeof soft, "%s/soft.db", folder);
    snprintf(hard, sizeof hard, "%s/hard.db", folder);
    snprintf(other, sizeof other, "%s/other.db", folder);
    make_filled(path);
    ck_assert(!symlink(path, soft) && !link(path, hard));
    f8_tuning *t = open_at(path);
    char *before = read_bytes(path, &n);
    const char *const names[] = {path, soft, hard};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        f8_diag diag[3] = {{0}};
        ck_assert_int_eq(f8_tuning_export(t, names[i], NULL, &counts, &diag[0]), F8_ERR_INPUT);
        ck_assert_int_eq(f8_tuning_import(t, names[i], NULL, &counts, &diag[1]), F8_ERR_INPUT);
        ck_assert_int_eq(f8_tuning_merge(t, names[i], NULL, &counts, &diag[2]), F8_ERR_INPUT);
        for (int k = 0; k < 3; k++) {
            ck_assert_str_eq(diag[k].text, "it is the tuning database itself");
            ck_assert_str_eq(diag[k].file, names[i]);
        }
    }
    f8_tuning *u = open_at(other);
    f8_diag why = {0};
    ck_assert_int_eq(f8_tuning_export(u, path, NULL, &counts, &why), F8_ERR_INPUT);
    ck_assert_str_eq(why.text, "it is a database, which an export would replace");
    f8_tuning_close(u);
    f8_tuning_close(t);
    char *after = read_bytes(path, &m);
    ck_assert(n == m && !memcmp(before, after, n));
}
END_TEST

#define HEAD "{\"fp8c\":\"tuning\",\"schema\":1}\n"
#define ROW                                                                                        \
    "{\"row\":\"timing\",\"device\":\"d\",\"versions\":\"v\",\"problem\":\"p\",\"candidate\":"     \
    "\"c\",\"name\":\"n\","                                                                        \
    "\"seconds\":1,\"median\":1.5,\"at\":5,\"runs\":7}\n"

START_TEST(bad_files)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "no export of a tuning database"},
        {"hello\n", "no export of a tuning database"},
        {ROW, "no export of a tuning database"},
        {"{\"fp8c\":\"tuning\",\"schema\":9}\n", "schema 9; this version of fp8c knows 1 to 2"},
        {HEAD ROW "nonsense\n", "line 3: "},
        {HEAD ROW "\n", "line 3: "},
        {HEAD ROW "[]\n", "line 3 is no row"},
        {HEAD ROW "{\"row\":\"other\"}\n", "line 3 is no row"},
        {HEAD "{\"row\":\"timing\",\"row\":\"timing\"}\n", "duplicate object key"},
        {HEAD "{\"row\":\"timing\",\"device\":\"\",\"versions\":\"v\",\"problem\":\"p\","
              "\"candidate\":\"c\",\"name\":\"n\","
              "\"seconds\":1,\"median\":1.5,\"at\":5,\"runs\":7}\n",
         "line 2 is no row"},
        {HEAD "{\"row\":\"timing\",\"device\":\"d\",\"versions\":\"v\",\"problem\":\"p\","
              "\"candidate\":\"c\",\"name\":\"n\","
              "\"seconds\":-1,\"median\":1.5,\"at\":5,\"runs\":7}\n",
         "line 2 is no row"},
        {HEAD "{\"row\":\"timing\",\"device\":\"d\",\"versions\":\"v\",\"problem\":\"p\","
              "\"candidate\":\"c\",\"name\":\"n\","
              "\"seconds\":1,\"median\":1.5,\"at\":5,\"runs\":\"7\"}\n",
         "line 2 is no row"},
        {HEAD ROW "{\"row\":\"timing\",\"device\":\"d\"", "line 3: "},
    };
    char file[128];
    f8_tuning_counts counts;
    f8_timing *timing;
    size_t n;
    f8_tuning *t = open_at(path);
    snprintf(file, sizeof file, "%s/in.jsonl", folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_diag diag = {0};
        write_bytes(file, bad[i].text, strlen(bad[i].text));
        ck_assert_int_ne(f8_tuning_import(t, file, NULL, &counts, &diag), F8_OK);
        ck_assert_msg(strstr(diag.text, bad[i].why) != NULL, "%zu: %s", i, diag.text);
        ck_assert_str_eq(diag.file, file);
        OK(f8_tuning_get(t, &(f8_tuning_key){"d", "v"}, "p", NULL, &arena, &timing, &n, diag));
        ck_assert_uint_eq(n, 0); /* all or nothing */
    }
    write_bytes(file, HEAD ROW, strlen(HEAD ROW));
    OK(f8_tuning_import(t, file, NULL, &counts, diag));
    ck_assert_int_eq(counts.timings, 1);
    f8_diag diag = {0};
    snprintf(file, sizeof file, "%s/nothing/out.jsonl", folder);
    ck_assert_int_eq(f8_tuning_export(t, file, NULL, &counts, &diag), F8_ERR_IO);
    f8_tuning_close(t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tuning");
    TCase *t = tcase_create("tuning");
    read_seed();
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, rows);
    tcase_add_test(t, no_file);
    tcase_add_test(t, many_processes);
    tcase_add_test(t, killed_at_any_moment);
    tcase_add_test(t, not_a_database);
    tcase_add_test(t, another_database);
    tcase_add_test(t, later_schema);
    tcase_add_test(t, damaged);
    tcase_add_test(t, locked);
    tcase_add_test(t, somebody_elses);
    tcase_add_test(t, defensive);
    tcase_add_test(t, nowhere_to_write);
    tcase_add_test(t, there_and_back);
    tcase_add_test(t, merged);
    tcase_add_test(t, not_itself);
    tcase_add_test(t, bad_files);
    suite_add_tcase(s, t);
    return s;
}
