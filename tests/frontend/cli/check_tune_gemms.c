/* fp8c tune of GEMMs alone, as a command: which processes measure, what a second call measures,
 * what is said where the time is short, and that files are written whole or not at all. */
#include <sys/stat.h>

#include "runtime/tune/tuning_db.h"
#include "tests/shared/api/tune_case.h"

/* ---- processes ---- */

START_TEST(processes)
{
    f8_cli_ok(F8_CLI("tune", TWO, "--cache", "warm,cold", "--processes", "2", "--json", json));
    records a = read_file(json);
    ck_assert_uint_eq(count(&a, "benchmark"), 1);
    ck_assert_uint_eq(count(&a, "process"), 2);
    ck_assert_uint_eq(count(&a, "headline"), 2);
    all_have(&a, 2);
    timing(&a, "16x32x48:f8e4m3:bf16", "warm", "model");
    timing(&a, "16x32x48:bf16:bf16", "cold", "model");
    /* all is known: the rows are the same */
    f8_cli_ok(F8_CLI("tune", TWO, "--cache", "warm,cold", "--processes", "2", "--json", other));
    records b = read_file(other);
    ck_assert_uint_eq(count(&b, "process"), 2);
    ck_assert(same_runs(&a, &b));
    forget(&b);
    /* one more */
    f8_cli_ok(F8_CLI("tune", TWO, "--cache", "warm,cold", "--processes", "3", "--json", other));
    b = read_file(other);
    ck_assert_uint_eq(count(&b, "process"), 3);
    all_have(&b, 3);
    forget(&b);
    /* anew: of the same names, but none of the same runs */
    f8_cli_ok(F8_CLI("tune", TWO, "--cache", "warm,cold", "--processes", "2", "--again", "--json",
                     other));
    b = read_file(other);
    ck_assert_uint_eq(count(&b, "process"), 2);
    all_have(&b, 2);
    for (size_t i = 0; i < a.n; i++)
        for (size_t k = 0; k < b.n; k++)
            if (!strcmp(text_of(a.record[i], "event"), "process"))
                ck_assert_str_ne(text_of(a.record[i], "id"), text_of(b.record[k], "id"));
    forget(&a);
    forget(&b);
}
END_TEST

/* The command of a row measures that row again. */
START_TEST(command_of_a_row)
{
    char text[512], *word[32] = {0};
    size_t n = 0;
    f8_cli_ok(F8_CLI("tune", TWO, "--cache", "warm", "--processes", "1", "--inputs", "uniform",
                     "--json", json));
    records a = read_file(json), b;
    snprintf(text, sizeof text, "%s",
             text_of(timing(&a, "16x32x48:f8e4m3:bf16", "warm", "model"), "command"));
    for (char *at = strtok(text, " "); at && n < 24; at = strtok(NULL, " "))
        word[n++] = at;
    ck_assert_str_eq(word[0], "fp8c");
    word[n++] = "--processes";
    word[n++] = "1";
    word[n++] = "--json";
    word[n++] = other;
    f8_cli_ok(f8_cli_run((const char *const *)word + 1));
    b = read_file(other);
    ck_assert(json_equal(
        json_object_get(timing(&a, "16x32x48:f8e4m3:bf16", "warm", "model"), "processes"),
        json_object_get(timing(&b, "16x32x48:f8e4m3:bf16", "warm", "model"), "processes")));
    forget(&a);
    forget(&b);
}
END_TEST

/* A GEMM of several sources is measured once, with the sum of its counts. */
START_TEST(twice)
{
    static const char list[] = "m,n,k,format,count,name\n16,16,16,f32,3,first\n"
                               "16,16,16,f32,4,second\n32,16,16,f32,2,third\n";
    const char *file = f8_cli_write("list.csv", list, sizeof list - 1);
    f8_cli_ok(F8_CLI("tune", "--gemm", "16x16x16:f32", "--gemm-file", file, "--gemm-file", file,
                     "--runs", "1", "--processes", "2", "--json", json));
    records a = read_file(json);
    const json_t *first = timing(&a, "16x16x16:f32", "cold", "model"),
                 *third = timing(&a, "32x16x16:f32", "cold", "model");
    ck_assert_double_eq(number_of(first, "count"), 1 + 2 * (3 + 4));
    ck_assert_double_eq(number_of(third, "count"), 4);
    ck_assert_str_eq(text_of(first, "name"), "first");
    all_have(&a, 2);
    forget(&a);
}
END_TEST

/* Names are texts of anybody's. */
START_TEST(names)
{
    static const char list[] = "m,n,k,format,name\n16,16,16,f32,\"a, \"\"b\"\" | é %s <c>\\\"\n"
                               "16,16,32,f32,--json\n";
    f8_cli_write("list.csv", list, sizeof list - 1);
    ck_assert_int_eq(chdir(f8_cli_temp("")), 0); /* paths are from here */
    f8_cli_result r =
        F8_CLI("tune", "--gemm-file", "list.csv", "--runs", "1", "--processes", "1", "--json",
               "a.jsonl", "--csv", "a.csv", "--markdown", "a.md", "--t4", "a.t4.json");
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "a, \"b\" | é %s <c>\\") != NULL, "%s", r.out);
    records a = read_file(json);
    ck_assert_str_eq(text_of(timing(&a, "16x16x16:f32", "cold", "model"), "name"),
                     "a, \"b\" | é %s <c>\\");
    ck_assert_str_eq(text_of(timing(&a, "16x16x32:f32", "cold", "model"), "name"), "--json");
    forget(&a);
    size_t n;
    char *text = f8_cli_read(csv, &n);
    ck_assert_msg(strstr(text, "\"a, \"\"b\"\" | é %s <c>\\\"") != NULL, "%s", text);
    free(text);
    ck_assert(!access(markdown, R_OK) && !access(t4, R_OK));
}
END_TEST

START_TEST(no_environment)
{
    const char *db = strdup(f8_cli_temp("own.db"));
    clearenv();
    f8_cli_result r = F8_CLI("tune", "--gemm", "16x16x16:f32", "--runs", "1", "--processes", "1",
                             "--database", db, "--json", "-");
    f8_cli_ok(r);
    records a = read_text(r.out); /* stdout has nothing else */
    ck_assert_uint_eq(count(&a, "benchmark"), 1);
    all_have(&a, 1);
    forget(&a);
    ck_assert_int_eq(access(db, R_OK), 0);
    free((char *)db);
}
END_TEST

/* A load above the CPUs disturbs: the table warns. Nobody can order a load; the record says it. */
START_TEST(load)
{
    f8_cli_result r =
        F8_CLI("tune", "--gemm", "16x16x16:f32", "--runs", "1", "--processes", "1", "--json", json);
    f8_cli_ok(r);
    records a = read_file(json);
    for (size_t i = 0; i < a.n; i++)
        if (!strcmp(text_of(a.record[i], "event"), "process")) {
            const bool above = number_of(a.record[i], "load") > number_of(a.record[i], "cpus");
            ck_assert_int_eq(above, strstr(r.out, "the machine's load was above its CPUs") != NULL);
            ck_assert(number_of(a.record[i], "cpus") >= 1);
        }
    forget(&a);
}
END_TEST

/* ---- time ---- */

START_TEST(time_is_up)
{
    f8_cli_result r = F8_CLI("tune", TWO, "--processes", "2", "--time", "1e-9", "--json", json);
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "the time was up before the first GEMM was measured: a longer "
                                "--time is needed") != NULL,
                  "%s", r.out);
    records a = read_file(json);
    ck_assert_uint_eq(count(&a, "timing"), 2);
    for (size_t i = 0; i < a.n; i++)
        if (!strcmp(text_of(a.record[i], "event"), "timing"))
            ck_assert_str_eq(text_of(a.record[i], "state"), "out of time");
    forget(&a);
    /* enough */
    r = F8_CLI("tune", TWO, "--processes", "2", "--time", "1000", "--json", json);
    f8_cli_ok(r);
    ck_assert_ptr_null(strstr(r.out, "the time was up"));
    a = read_file(json);
    all_have(&a, 2);
    forget(&a);
}
END_TEST

/* What the time was too short for is said, and the next call goes on. */
START_TEST(time_is_short)
{
    size_t late = 0, fewer = 0;
    char message[200];
    f8_cli_result r = F8_CLI("tune", "--gemm", "64..384+32x384x384:f8e4m3", "--threads", "1",
                             "--cache", "warm", "--processes", "2", "--time", "2", "--json", json);
    f8_cli_ok(r);
    records a = read_file(json);
    for (size_t i = 0; i < a.n; i++)
        if (!strcmp(text_of(a.record[i], "kind"), "model")) {
            late += !strcmp(text_of(a.record[i], "state"), "out of time");
            fewer += !strcmp(text_of(a.record[i], "state"), "timed") &&
                     processes_of(&a, a.record[i]) < 2;
        }
    ck_assert_uint_le(late + fewer, 11);
    snprintf(message, sizeof message,
             "the time was up: of 11 measurements of the model's way, %zu have no run, and %zu "
             "have runs of fewer than 2 processes; run this again to continue\n",
             late, fewer);
    if (late == 11)
        snprintf(message, sizeof message, "the time was up before the first GEMM was measured");
    ck_assert_msg((strstr(r.out, message) != NULL) == (late + fewer > 0), "%s", r.out);
    forget(&a);
    r = F8_CLI("tune", "--gemm", "64..384+32x384x384:f8e4m3", "--threads", "1", "--cache", "warm",
               "--processes", "2", "--json", json);
    f8_cli_ok(r);
    ck_assert_ptr_null(strstr(r.out, "the time was up"));
    a = read_file(json);
    /* a third one, where the first had no time for all ways of a GEMM */
    all_have_from(&a, 2, 3);
    forget(&a);
}
END_TEST

/* ---- files ---- */

/* A call that fails leaves files as they were. */
START_TEST(files_stay)
{
    static const char before[] = "before\n";
    write_all(before);
    f8_cli_fails(
        F8_CLI("tune", "--gemm", "2000000000x2000000000x2,3:f32", "--processes", "2", FILES), 1,
        "error: GEMM 2000000000x2000000000x2:f32 needs 14901161223.6 GiB for its operands "
        "and its result");
    all_are(before);
    f8_cli_fails(F8_CLI("tune", ONE, FILES, "--cache", "hot"), 1, "--cache: 'hot' is not cold");
    f8_cli_fails(F8_CLI("tune", ONE, FILES, "--inputs", "x"), 1, "--inputs: 'x' is none of normal");
    f8_cli_fails(F8_CLI("tune", "--gemm", "16x16x16:f32", "--runs", "65", FILES), 1,
                 "runs: 65 is not from 0 to 64");
    f8_cli_fails(F8_CLI("tune", "--gemm", "16x16x16:f32", "--runs", "1000", FILES), 1,
                 "runs: 1000 is not from 0 to 64");
    f8_cli_fails(F8_CLI("tune", ONE, FILES, "--target", "sm_10"), 1, "sm_10");
    f8_cli_fails(
        F8_CLI("tune", ONE, FILES, "--database", f8_cli_write("bad.db", "bad bad bad", 11)), 1,
        "bad.db: error: this is no tuning database");
    all_are(before);
    f8_cli_ok(F8_CLI("tune", ONE, FILES));
    size_t n;
    char *text = f8_cli_read(t4, &n);
    ck_assert_ptr_null(strstr(text, before));
    free(text);
    f8_cli_whole(f8_cli_temp(""));
}
END_TEST

static const char *const options[] = {"--json", "--csv", "--markdown", "--t4"};

/* A folder that is missing is told before anything is measured; a full disk, at the end. */
START_TEST(files_that_fail)
{
    char missing[PATH + 16];
    snprintf(missing, sizeof missing, "%s/none/file", f8_cli_temp("."));
    f8_cli_result r = F8_CLI("tune", ONE, options[_i], missing);
    f8_cli_fails(r, 1, "none/file: error: No such file or directory");
    ck_assert_int_eq(access(f8_cli_temp("tuning.db"), F_OK), -1);
    /* the other files are whole */
    const char *const whole = _i ? json : csv;
    r = F8_CLI("tune", ONE, options[_i], "/dev/full", _i ? "--json" : "--csv", whole);
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "/dev/full: error: No space left on device\n");
    size_t n;
    free(f8_cli_read(whole, &n));
    ck_assert_uint_gt(n, 100);
    f8_cli_whole(f8_cli_temp(""));
}
END_TEST

START_TEST(full_stdout)
{
    f8_cli_result r = f8_cli_run_full((const char *const[]){"tune", ONE, "--json", "-", NULL});
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, "No space left on device") != NULL, "%s", r.err);
}
END_TEST

/* ---- a database in use ---- */

/* SQLite waits half a minute for others. */
START_TEST(locked)
{
    f8_db db;
    f8_diag diag = {0};
    f8_cli_ok(F8_CLI("tune", ONE));
    ck_assert_int_eq(f8_db_open(&db, f8_cli_temp("tuning.db"), F8_DB_WRITE, 5000, &diag), F8_OK);
    ck_assert_int_eq(f8_db_do(&db, "BEGIN EXCLUSIVE", &diag), F8_OK);
    f8_cli_result r = F8_CLI("tune", ONE, "--again", "--json", json);
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, "error: tuning database: another process has it locked") != NULL,
                  "%s", r.err);
    ck_assert_str_eq(r.out, "");
    f8_db_close(&db);
    f8_cli_ok(F8_CLI("tune", ONE));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tune_gemms");
    TCase *t = tcase_create("tune_gemms");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, processes);
    tcase_add_test(t, command_of_a_row);
    tcase_add_test(t, twice);
    tcase_add_test(t, names);
    tcase_add_test(t, no_environment);
    tcase_add_test(t, load);
    tcase_add_test(t, time_is_up);
    tcase_add_test(t, time_is_short);
    tcase_add_test(t, files_stay);
    tcase_add_loop_test(t, files_that_fail, 0, 4);
    tcase_add_test(t, full_stdout);
    tcase_add_test(t, locked);
    suite_add_tcase(s, t);
    return s;
}
