/* Mistakes on the command line: tests/bad/commands has each with its exit code and its message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define LIST "tests/bad/commands"
#define GPT "frontend/models/gpt.f8"

enum { LINE = 1000, MOST_WORDS = 20 };

/* Writes the text with GPT as the path that it stands for. */
static void spelled(const char *text, char to[LINE])
{
    size_t n = 0;
    while (*text && n + sizeof GPT < LINE) {
        if (!strncmp(text, "GPT", 3)) {
            memcpy(to + n, GPT, sizeof GPT - 1);
            n += sizeof GPT - 1;
            text += 3;
        } else {
            to[n++] = *text++;
        }
    }
    to[n] = 0;
}

/* Cuts a line in place into words, of which some are in single quotes. */
static void cut(char *at, const char *word[MOST_WORDS + 1])
{
    int n = 0;
    while (*at) {
        ck_assert_int_lt(n, MOST_WORDS);
        const char end = *at == '\'' ? '\'' : ' ';
        at += end == '\'';
        word[n++] = at;
        at += strcspn(at, end == ' ' ? " " : "'");
        if (*at)
            *at++ = 0;
        at += end == '\'' && *at == ' ';
    }
    word[n] = NULL;
}

static void try_line(const char *line)
{
    char words[LINE], message[LINE], of[LINE];
    const char *word[MOST_WORDS + 1], *begin = strstr(line, " | "), *end;
    ck_assert_msg(begin && (end = strstr(begin + 3, " | ")), "%s: no line of the list", line);
    snprintf(of, sizeof of, "%.*s", (int)(end - begin - 3), begin + 3);
    spelled(of, words);
    spelled(end + 3, message);
    cut(words, word);
    const f8_cli_result r = f8_cli_run(word);
    ck_assert_msg(r.code == *line - '0' && strstr(r.err, message) && !*r.out,
                  "%s\nexit %d, on stderr: %s\non stdout: %s", line, r.code, r.err, r.out);
}

START_TEST(each_is_told)
{
    struct stat s;
    size_t n;
    int lines = 0;
    char *text = f8_cli_read(LIST, &n), *save;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (*line != '#') {
            try_line(line);
            lines++;
        }
    free(text);
    ck_assert_int_ge(lines, 60);
    static const char *const made[] = {"a", "x", "x.f8x", "page.html"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        ck_assert_msg(stat(made[i], &s), "%s was made", made[i]);
}
END_TEST

/* What somebody else named is said without control characters. */
START_TEST(plain_messages)
{
    static const char *const commands[] = {"check", "train", "inspect", "report", "triage"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const f8_cli_result r =
            F8_CLI(commands[i], "\033[31mname\xff\a", "--json", "/dev/null", "--data", "x");
        ck_assert_msg(r.code && !strpbrk(r.err, "\033\a\xff"), "%s: %s", commands[i], r.err);
    }
    f8_cli_fails(F8_CLI("check", "\033[31mname"), 1, "?[31mname: error: No such file");
    f8_cli_fails(F8_CLI("ops", "\033[31mname"), 2, "no such op '?[31mname'");
    f8_cli_fails(F8_CLI("help", "\033[31mname"), 2, "no such command '?[31mname'");
    f8_cli_fails(F8_CLI("completion", "\033[31mname"), 2, "no such shell '?[31mname'");
    f8_cli_fails(F8_CLI("\033[31mtrian"), 2, "no such command '?[31mtrian'");
    f8_cli_fails(F8_CLI("train", "--\033[31m"), 2, "no such option '--?[31m'");
}
END_TEST

/* A command that fails before its first record leaves the file of --json as it is. */
START_TEST(records_stay)
{
    static const char old[] = "hello\n";
    char path[LINE];
    size_t n;
    snprintf(path, sizeof path, "%s", f8_cli_write("records", old, sizeof old - 1));
#define KEEPS(code, ...)                                                                           \
    do {                                                                                           \
        f8_cli_fails(F8_CLI(__VA_ARGS__, "--json", path), code, "");                               \
        char *now = f8_cli_read(path, &n);                                                         \
        ck_assert_str_eq(now, old);                                                                \
        free(now);                                                                                 \
    } while (0)
    KEEPS(2, "doctor", "--target", "nope");
    KEEPS(1, "explain", GPT, "--target", "nope");
    KEEPS(1, "tune", GPT, "--target", "nope");
    KEEPS(1, "inspect", "nope.f8x");
    KEEPS(1, "train", GPT, "--data", "nope");
    KEEPS(1, "report", "nope");
    f8_cli_ok(F8_CLI("ops", "--json", path));
    char *now = f8_cli_read(path, &n);
    ck_assert(!strncmp(now, "{\"event\":\"op\"", 13));
    free(now);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("mistakes");
    TCase *t = tcase_create("mistakes");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, each_is_told);
    tcase_add_test(t, plain_messages);
    tcase_add_test(t, records_stay);
    suite_add_tcase(s, t);
    return s;
}
