/* fp8c tune --diff, as a command: a file beside itself, one that is slower, and files that are
 * none.
 */

#include "tests/shared/api/tune_case.h"

/* ---- two measurements ---- */

START_TEST(diffs)
{
    f8_cli_ok(F8_CLI("tune", TWO, "--processes", "3", "--json", json));
    f8_cli_result r = F8_CLI("tune", "--diff", json, "--diff", json, "--json", other);
    f8_cli_ok(r);
    records a = read_file(other);
    ck_assert_uint_eq(count(&a, "change"), 2);
    for (size_t i = 0; i < a.n; i++)
        if (!strcmp(text_of(a.record[i], "event"), "change")) {
            ck_assert_double_eq(number_of(a.record[i], "ratio"), 1);
            ck_assert(json_is_false(json_object_get(a.record[i], "marked")));
        }
    forget(&a);
    f8_cli_ok(F8_CLI("tune", "--diff", json, "--diff", json, "--fail-slower", "0.001"));
}
END_TEST

/* The measurement of a file with seconds that depend on no machine: about `seconds` each. */
static void rewrite(const char *from, const char *to, double seconds)
{
    records a = read_file(from);
    FILE *f = fopen(to, "w");
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < a.n; i++) {
        const json_t *all = json_object_get(a.record[i], "processes");
        for (size_t k = 0; k < json_array_size(all); k++) {
            json_t *runs = json_object_get(json_array_get(all, k), "seconds");
            for (size_t n = 0; n < json_array_size(runs); n++)
                json_array_set_new(runs, n,
                                   json_real(seconds * (1 + 0.01 * (double)((3 * k + 7 * n) % 5))));
        }
        ck_assert(!json_dumpf(a.record[i], f, JSON_COMPACT) && fputc('\n', f) != EOF);
    }
    ck_assert_int_eq(fclose(f), 0);
    forget(&a);
}

START_TEST(slower)
{
    f8_cli_ok(F8_CLI("tune", TWO, "--processes", "5", "--json", t4));
    rewrite(t4, json, 1e-5);
    rewrite(t4, other, 4e-5);
    f8_cli_result r = F8_CLI("tune", "--diff", json, "--diff", other);
    f8_cli_ok(r);
    r = F8_CLI("tune", "--diff", json, "--diff", other, "--fail-slower", "50");
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, "16x32x48:bf16:bf16 (cold) is slower by 300.0%, at least ") != NULL,
                  "%s", r.err);
    ck_assert_msg(strstr(r.err, "error: 2 of 2 problems are slower by more than 50%\n") != NULL,
                  "%s", r.err);
    f8_cli_ok(F8_CLI("tune", "--diff", json, "--diff", other, "--fail-slower", "400"));
    f8_cli_ok(F8_CLI("tune", "--diff", other, "--diff", json, "--fail-slower", "50")); /* faster */
}
END_TEST

START_TEST(bad_diffs)
{
    size_t n;
    int cut = 0;
    f8_cli_ok(F8_CLI("tune", "--gemm", "16x16x32:f32", "--runs", "1", "--processes", "1", "--json",
                     other));
    write_all("before\n");
    f8_cli_ok(F8_CLI("tune", ONE, "--json", json));
    f8_cli_fails(F8_CLI("tune", "--diff", json, "--diff", other, "--json", t4), 1,
                 "error: no problem is in both: the first has 1, as ");
    f8_cli_fails(F8_CLI("tune", "--diff", json, "--diff", csv, "--json", t4), 1,
                 "a.csv:1:6: error:");
    f8_cli_fails(
        F8_CLI("tune", "--diff", json, "--diff", f8_cli_write("empty", "", 0), "--json", t4), 1,
        "empty: error: there is no record `benchmark` in this file");
    f8_cli_fails(F8_CLI("tune", "--diff", json, "--diff", f8_cli_temp("none")), 1,
                 "none: error: No such file or directory");
    char *text = f8_cli_read(json, &n);
    for (size_t size = n - 2; size > 0; size -= size > n / 23 ? n / 23 : size) {
        const char *path = f8_cli_write("cut", text, size);
        f8_cli_result r = F8_CLI("tune", "--diff", json, "--diff", path, "--json", t4);
        const bool whole_lines = text[size] == '\n' || text[size - 1] == '\n';
        ck_assert_msg(r.code == 1 || (whole_lines && r.code == 0), "%zu of %zu bytes", size, n);
        ck_assert_msg(r.code == 0 || strstr(r.err, "/cut:"), "%s", r.err);
        cut += r.code;
    }
    ck_assert_int_ge(cut, 20);
    free(text);
    text = f8_cli_read(markdown, &n);
    ck_assert_str_eq(text, "before\n");
    free(text);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tune_diff");
    TCase *t = tcase_create("tune_diff");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, diffs);
    tcase_add_test(t, slower);
    tcase_add_test(t, bad_diffs);
    suite_add_tcase(s, t);
    return s;
}
