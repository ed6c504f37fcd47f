/* Tuning databases of schema 1: read as they are, upgraded for writing by processes that may be
 * killed, imported, merged. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/shared/tuning_case.h"

/* As versions that knew schema 1 made it. */
static const char schema_1[] =
    "DROP TABLE timing; DROP TABLE choice; DROP TABLE process;"
    "CREATE TABLE timing (device TEXT NOT NULL, versions TEXT NOT NULL, problem TEXT NOT NULL,"
    " candidate TEXT NOT NULL, name TEXT NOT NULL, seconds REAL NOT NULL, median REAL NOT NULL,"
    " runs INTEGER NOT NULL, at INTEGER NOT NULL,"
    " PRIMARY KEY (device, versions, problem, candidate)) WITHOUT ROWID;"
    "CREATE TABLE choice (device TEXT NOT NULL, versions TEXT NOT NULL, problem TEXT NOT NULL,"
    " candidate TEXT NOT NULL, name TEXT NOT NULL, seconds REAL NOT NULL, model_seconds REAL NOT "
    "NULL,"
    " at INTEGER NOT NULL, PRIMARY KEY (device, versions, problem)) WITHOUT ROWID;"
    "PRAGMA application_id = 1718630499;"
    "PRAGMA user_version = 1;"
    "VACUUM;";

/* Make a file of schema 1 with problems 0 to n - 1, of two timings and a choice each. */
static void make_old(const char *file, int n)
{
    char fill[1024];
    snprintf(fill, sizeof fill,
             "WITH RECURSIVE i(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM i LIMIT %d)"
             " INSERT INTO timing SELECT '%s', '%s', 'problem ' || x, c, 'step', x + 0.25, x + 0.5,"
             " 7, 1000 FROM i, (SELECT 'm 64' AS c UNION ALL SELECT 'model');"
             "INSERT INTO choice SELECT device, versions, problem, candidate, name, seconds,"
             " median, at FROM timing WHERE candidate = 'm 64'",
             n, here.device, here.versions);
    f8_db db;
    OK(f8_db_open(&db, file, F8_DB_WRITE, 10, diag));
    OK(f8_db_do(&db, schema_1, diag));
    OK(f8_db_do(&db, fill, diag));
    f8_db_close(&db);
}

static int schema_of(const char *file)
{
    f8_db db;
    OK(f8_db_open(&db, file, F8_DB_TAKE, 5000, diag));
    const int schema = db.schema;
    f8_db_close(&db);
    return schema;
}

static int64_t count_timings(const char *file)
{
    f8_db db;
    sqlite3_stmt *s;
    bool row;
    OK(f8_db_open(&db, file, F8_DB_TAKE, 5000, diag));
    OK(f8_db_prepare(&db, "SELECT count(*) FROM timing", 0, NULL, &s, diag));
    OK(f8_db_step(&db, s, &row, diag));
    const int64_t n = db.api.sqlite3_column_int64(s, 0);
    db.api.sqlite3_finalize(s);
    f8_db_close(&db);
    return n;
}

/* All rows of make_old are there, as steps without samples. */
static void check_old_rows(f8_tuning *t, int n)
{
    for (int i = 0; i < n; i++) {
        f8_timing *timing;
        f8_tuning_choice choice;
        size_t rows;
        bool found;
        char name[32];
        snprintf(name, sizeof name, "problem %d", i);
        OK(f8_tuning_get(t, &here, name, F8_TUNING_STEP, &arena, &timing, &rows, diag));
        ck_assert_uint_eq(rows, 2);
        for (int k = 0; k < 2; k++) {
            ck_assert_str_eq(timing[k].candidate, k ? "model" : "m 64");
            ck_assert_str_eq(timing[k].how, "step");
            ck_assert_str_eq(timing[k].facts, "");
            ck_assert_uint_eq(timing[k].n_samples, 0);
            ck_assert(timing[k].seconds == i + 0.25 && timing[k].median == i + 0.5 &&
                      timing[k].runs == 7);
        }
        OK(f8_tuning_chosen(t, &here, name, &arena, &choice, &found, diag));
        ck_assert(found && choice.seconds == i + 0.25 && choice.model_seconds == i + 0.5);
        ck_assert_str_eq(choice.candidate, "m 64");
    }
}

static void check_choices(const char *file, size_t n)
{
    f8_tuned *tuned;
    OK(f8_tuned_read(file, here.device, 5000, &arena, &tuned, diag));
    ck_assert_uint_eq(f8_tuned_count(tuned), n);
    ck_assert_str_eq(f8_tuned_find(tuned, here.versions, "problem 3"), "m 64");
}

enum { FEW = 20 };

/* Reading changes no byte: neither a compile's, nor a merge into another database. */
START_TEST(read_as_it_is)
{
    char other[128];
    size_t n, m;
    f8_tuning_counts counts;
    snprintf(other, sizeof other, "%s/other.db", folder);
    make_old(path, FEW);
    const char *before = read_bytes(path, &n);
    check_choices(path, FEW);
    f8_tuning *t = open_at(other);
    OK(f8_tuning_merge(t, path, here.device, &counts, diag));
    ck_assert(counts.timings == 2 * FEW && counts.choices == FEW && !counts.processes);
    check_old_rows(t, FEW);
    OK(f8_tuning_merge(t, path, here.device, &counts, diag));
    ck_assert(counts.older == 3 * FEW);
    f8_tuning_close(t);
    const char *after = read_bytes(path, &m);
    ck_assert(n == m && !memcmp(before, after, n));
    ck_assert_int_eq(schema_of(path), 1);
}
END_TEST

/* Opening it for writing upgrades it; its rows count until there are samples. */
START_TEST(upgraded)
{
    const double seconds[] = {9, 8};
    const f8_tuning_runs runs = {"a", 1, seconds, 2};
    const f8_timing timing = {.candidate = "model", .samples = &runs, .n_samples = 1};
    f8_timing *now;
    size_t n;
    make_old(path, FEW);
    ck_assert_int_eq(schema_of(path), 1);
    f8_tuning *t = open_at(path);
    ck_assert_int_eq(schema_of(path), 2);
    check_old_rows(t, FEW);
    check_choices(path, FEW);
    OK(f8_tuning_put(t, &here, "problem 3", "step", &timing, 1, NULL, diag));
    OK(f8_tuning_get(t, &here, "problem 3", NULL, &arena, &now, &n, diag));
    ck_assert_uint_eq(n, 2);
    ck_assert(now[0].runs == 7 && now[0].n_samples == 0);
    ck_assert(now[1].runs == 2 && now[1].n_samples == 1 && now[1].seconds == 8 &&
              now[1].median == 8.5);
    f8_tuning_close(t);
    f8_tuning_close(open_at(path)); /* and once more nothing happens */
    ck_assert_int_eq(schema_of(path), 2);
}
END_TEST

/* What cannot be upgraded is left as it was. */
START_TEST(not_upgraded)
{
    size_t n, m;
    f8_tuning *t;
    f8_diag why = {0};
    make_old(path, FEW);
    f8_db db;
    OK(f8_db_open(&db, path, F8_DB_TAKE, 10, diag));
    f8_db_close(&db);
    OK(f8_db_open(&db, path, F8_DB_WRITE, 10, diag));
    OK(f8_db_do(&db, schema_1, diag));
    OK(f8_db_do(&db, "ALTER TABLE timing DROP COLUMN median", diag));
    f8_db_close(&db);
    const char *before = read_bytes(path, &n);
    ck_assert_int_eq(f8_tuning_open(path, NULL, &t, &why), F8_ERR_IO);
    ck_assert_msg(strstr(why.text, "no such column: median") != NULL, "%s", why.text);
    const char *after = read_bytes(path, &m);
    ck_assert(n == m && !memcmp(before, after, n));
}
END_TEST

/* A version that knows schema 1 has the file open when it is upgraded, and puts its rows. */
START_TEST(older_version_goes_on)
{
    f8_timing *timing;
    size_t n;
    make_old(path, FEW);
    f8_tuning *t = open_at(path);
    change(path, "INSERT OR REPLACE INTO timing (device, versions, problem, candidate, name, at,"
                 " seconds, median, runs) VALUES ('cpu here, 2 threads', 'library 1', 'problem 3',"
                 " 'model', 'step', 2000, 5, 6, 3)");
    OK(f8_tuning_get(t, &here, "problem 3", NULL, &arena, &timing, &n, diag));
    ck_assert_uint_eq(n, 2);
    ck_assert(timing[1].seconds == 5 && timing[1].runs == 3 && timing[1].n_samples == 0);
    f8_tuning_close(t);
}
END_TEST

/* Several open a file of schema 1 for writing at once: one upgrades it, and no row is lost. */
START_TEST(upgraded_by_many)
{
    enum { PROCESSES = 6 };
    pid_t child[PROCESSES];
    make_old(path, FEW);
    for (int c = 0; c < PROCESSES; c++) {
        child[c] = fork();
        if (child[c])
            continue;
        f8_diag diag = {0};
        f8_tuning *t;
        const f8_timing timing = {.candidate = "x", .seconds = c, .median = c, .runs = 1};
        char name[16];
        snprintf(name, sizeof name, "new %d", c);
        f8_status status = f8_tuning_open(path, NULL, &t, &diag);
        if (status == F8_OK)
            status = f8_tuning_put(t, &here, name, "step", &timing, 1, NULL, &diag);
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
    check_old_rows(t, FEW);
    for (int c = 0; c < PROCESSES; c++) {
        f8_timing *timing;
        size_t n;
        char name[16];
        snprintf(name, sizeof name, "new %d", c);
        OK(f8_tuning_get(t, &here, name, NULL, &arena, &timing, &n, diag));
        ck_assert(n == 1 && timing[0].seconds == c);
    }
    f8_tuning_close(t);
}
END_TEST

/* A process that waits for a byte, then opens the file for writing, and ends. */
static pid_t start_upgrade(int *go)
{
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    const pid_t child = fork();
    if (!child) {
        char byte;
        f8_tuning *t = NULL;
        const bool told = read(pipes[0], &byte, 1) == 1;
        _exit(!told || f8_tuning_open(path, NULL, &t, NULL) != F8_OK);
    }
    close(pipes[0]);
    *go = pipes[1];
    return child;
}

static void tell(int go)
{
    ck_assert_int_eq(write(go, "x", 1), 1);
    close(go);
}

/* Killed when all is changed but not committed, which a reader holds up: the file has schema 1, to
 * a compile and to the next upgrade. */
START_TEST(killed_before_the_end)
{
    char journal[160];
    int go, how;
    f8_db reader;
    bool empty;
    snprintf(journal, sizeof journal, "%s-journal", path);
    make_old(path, FEW);
    const pid_t child = start_upgrade(&go);
    OK(f8_db_open(&reader, path, F8_DB_READ, 10, diag));
    OK(f8_db_begin_read(&reader, &empty, diag));
    tell(go);
    while (access(journal, F_OK))
        ck_assert_int_eq(usleep(1000), 0);
    ck_assert_int_eq(waitpid(child, &how, WNOHANG), 0); /* it waits for the reader */
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFSIGNALED(how));
    f8_db_close(&reader);
    ck_assert_int_eq(access(journal, F_OK), 0);
    check_choices(path, FEW);
    ck_assert_int_eq(schema_of(path), 1);
    f8_tuning *t = open_at(path);
    check_old_rows(t, FEW);
    f8_tuning_close(t);
    ck_assert_int_eq(schema_of(path), 2);
}
END_TEST

static void copy(const char *from, const char *to)
{
    size_t n;
    const char *bytes = read_bytes(from, &n);
    ck_assert_uint_gt(n, 0);
    write_bytes(to, bytes, n);
}

/* A writer was killed when some of its pages were in the file. A reader rolls that back, and makes
 * nothing else of a file of schema 1: not a compile, nor a merge, to which it may not belong. */
START_TEST(rolled_back_as_it_is)
{
    enum { MANY = 1000 };
    char other[128], journal[160], other_journal[160];
    f8_db db;
    snprintf(other, sizeof other, "%s/other.db", folder);
    snprintf(journal, sizeof journal, "%s-journal", path);
    snprintf(other_journal, sizeof other_journal, "%s-journal", other);
    make_old(path, MANY);
    OK(f8_db_open(&db, other, F8_DB_WRITE, 10, diag));
    ck_assert_int_eq(db.api.sqlite3_close_v2(db.handle), SQLITE_OK);
    ck_assert_int_eq(db.api.sqlite3_open_v2(path, &db.handle, SQLITE_OPEN_READWRITE, NULL),
                     SQLITE_OK);
    OK(f8_db_do(&db, "PRAGMA cache_size = 5; BEGIN; UPDATE timing SET seconds = 0; UPDATE choice"
                     " SET seconds = 0",
                diag));
    copy(path, other);
    copy(journal, other_journal);
    f8_db_close(&db);
    if (_i) {
        check_choices(other, MANY);
    } else {
        char third[128];
        f8_tuning_counts counts;
        snprintf(third, sizeof third, "%s/third.db", folder);
        f8_tuning *t = open_at(third);
        OK(f8_tuning_merge(t, other, NULL, &counts, diag));
        check_old_rows(t, MANY);
        f8_tuning_close(t);
    }
    ck_assert_int_ne(access(other_journal, F_OK), 0); /* it was hot */
    ck_assert_int_eq(schema_of(other), 1);
}
END_TEST

/* Killed at any moment, with a file that takes a while: schema 1 or 2, with all rows. */
START_TEST(killed_at_any_moment)
{
    enum { MANY = 3000 };
    size_t n;
    int left[3] = {0};
    make_old(path, MANY);
    const char *old = read_bytes(path, &n);
    for (int turn = 0; turn < 20; turn++) {
        int go, how;
        write_bytes(path, old, n);
        const pid_t child = start_upgrade(&go);
        tell(go);
        usleep(next_random() % 120000);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, &how, 0), child);
        ck_assert(WIFSIGNALED(how) || !WEXITSTATUS(how));
        if (turn % 2)
            check_choices(path, MANY); /* a reader comes first */
        left[schema_of(path)]++;
        f8_tuning *t = open_at(path);
        check_old_rows(t, turn % 5 ? FEW : MANY);
        f8_tuning_close(t);
        ck_assert_int_eq(count_timings(path), 2 * MANY);
    }
    printf("killed: %d files of schema 1, %d of schema 2\n", left[1], left[2]);
}
END_TEST

/* An export of schema 1: its rows are steps without samples, and what else it has is passed over.
 */
START_TEST(imported)
{
    static const char text[] =
        "{\"fp8c\":\"tuning\",\"schema\":1}\n"
        "{\"row\":\"timing\",\"device\":\"cpu here, 2 threads\",\"versions\":\"library 1\","
        "\"problem\":\"problem 0\",\"candidate\":\"m 64\",\"name\":\"step\",\"seconds\":0.25,"
        "\"median\":0.5,\"at\":1000,\"runs\":7}\n"
        "{\"row\":\"timing\",\"device\":\"cpu here, 2 threads\",\"versions\":\"library 1\","
        "\"problem\":\"problem 0\",\"candidate\":\"model\",\"name\":\"step\",\"seconds\":0.25,"
        "\"median\":0.5,\"at\":1000,\"runs\":7,\"how\":\"warm zeros\"}\n"
        "{\"row\":\"choice\",\"device\":\"cpu here, 2 threads\",\"versions\":\"library 1\","
        "\"problem\":\"problem 0\",\"candidate\":\"m 64\",\"name\":\"step\",\"seconds\":0.25,"
        "\"model_seconds\":0.5,\"at\":1000}\n";
    char file[128];
    f8_tuning_counts counts;
    snprintf(file, sizeof file, "%s/old.jsonl", folder);
    write_bytes(file, text, strlen(text));
    f8_tuning *t = open_at(path);
    OK(f8_tuning_import(t, file, NULL, &counts, diag));
    ck_assert(counts.timings == 2 && counts.choices == 1 && !counts.older);
    check_old_rows(t, 1);
    f8_tuning_close(t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tuning_schema");
    TCase *t = tcase_create("tuning_schema");
    read_seed();
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, read_as_it_is);
    tcase_add_test(t, upgraded);
    tcase_add_test(t, not_upgraded);
    tcase_add_test(t, older_version_goes_on);
    tcase_add_test(t, upgraded_by_many);
    tcase_add_test(t, killed_before_the_end);
    tcase_add_loop_test(t, rolled_back_as_it_is, 0, 2);
    tcase_add_test(t, killed_at_any_moment);
    tcase_add_test(t, imported);
    suite_add_tcase(s, t);
    return s;
}
