/* CSV and Markdown: sets whose texts and numbers are odd are written, and what is read back is what
 * the set holds. check_t4 tests the other format. Python's csv and Kernel Tuner's schema judge real
 * ones (tests/peers/tune_files.py). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/columns.h"
#include "tests/shared/measure/odd_set.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

/* ---- a reader of CSV ---- */

enum { MOST_ROWS = 64, MOST_FIELDS = 128 };

typedef struct csv {
    char *text, *to; /* fields lie in a copy, each with its end */
    char *field[MOST_ROWS][MOST_FIELDS];
    int n_rows, n_fields[MOST_ROWS];
} csv;

/* One field from `at`; returns what ends it. In quotes two quotes are one. */
static const char *read_field(csv *c, const char *at)
{
    const int row = c->n_rows;
    ck_assert_int_lt(c->n_fields[row], MOST_FIELDS);
    c->field[row][c->n_fields[row]++] = c->to;
    if (*at != '"') {
        for (; *at && !strchr(",\n", *at); at++) {
            ck_assert_msg(*at != '"' && *at != '\r', "a field without quotes has %d", *at);
            *c->to++ = *at;
        }
    } else {
        for (at++; *at != '"' || *++at == '"'; at++) {
            ck_assert_msg(*at, "a quote is open at the end");
            *c->to++ = *at;
        }
    }
    *c->to++ = 0;
    ck_assert_msg(*at == ',' || *at == '\n', "a field ends with %d", *at);
    return at;
}

static csv read_csv(const char *text)
{
    csv c = {.text = malloc(strlen(text) + 2)};
    ck_assert_ptr_nonnull(c.text);
    c.to = c.text;
    for (const char *at = text; *at; at++) {
        ck_assert_int_lt(c.n_rows, MOST_ROWS);
        at = read_field(&c, at);
        c.n_rows += *at == '\n';
    }
    for (int row = 0; row < c.n_rows; row++)
        ck_assert_msg(c.n_fields[row] == c.n_fields[0], "row %d has %d fields, the first %d", row,
                      c.n_fields[row], c.n_fields[0]);
    return c;
}

/* Of the measurement number `row`. */
static const char *field(const csv *c, int row, const char *name)
{
    int found = -1;
    for (int i = 0; i < c->n_fields[0]; i++)
        if (!strcmp(c->field[0][i], name)) {
            ck_assert_msg(found < 0, "column %s is there twice", name);
            found = i;
        }
    ck_assert_msg(found >= 0, "there is no column %s", name);
    ck_assert_int_lt(row + 1, c->n_rows);
    return c->field[row + 1][found];
}

static void is_number(const csv *c, int row, const char *name, double want)
{
    const char *got = field(c, row, name);
    char *end;
    const double x = strtod(got, &end);
    ck_assert_msg(*got && !*end && x == want, "row %d: %s is '%s', not %.17g", row, name, got,
                  want);
}

static csv csv_of(const f8_measure_set *set)
{
    char *text = f8_measure_csv(set);
    ck_assert_ptr_nonnull(text);
    const csv c = read_csv(text);
    free(text);
    ck_assert_int_eq(c.n_rows, (int)set->n_measurements + 1);
    return c;
}

/* ---- CSV ---- */

START_TEST(figures_in_csv)
{
    f8_measure_set set = odd_set();
    odd_set_fill(&set);
    const csv c = csv_of(&set);
    static const struct {
        const char *name, *want[5];
    } text[] = {
        {"problem",
         {"64x32x128:f8e4m3:fprop:bias", "64x32x128:f8e4m3:fprop:bias",
          "64x32x128:f8e4m3:fprop:bias", "64x32x128:f8e4m3:fprop:bias", "rows gelu"}},
        {"name",
         {"h.0|c_fc, \"odd\"\nname", "h.0|c_fc, \"odd\"\nname", "h.0|c_fc, \"odd\"\nname",
          "h.0|c_fc, \"odd\"\nname", ""}},
        {"cache", {"cold", "cold", "cold", "cold", "step"}},
        {"candidate",
         {"model", "onednn-f32 | a\\b *c* _d_", "lacks ? it?", "oneDNN matmul f32", "model"}},
        {"kind", {"model", "candidate", "candidate", "peer", "model"}},
        {"state", {"timed", "timed", "lacking", "out of time", "timed"}},
        {"reason", {"", "", "no \"unit\", sorry\nand | no more", "", ""}},
        {"same_bits", {"yes", "no", "", "", "yes"}},
        {"chosen", {"yes", "no", "no", "no", "no"}},
        {"m", {"64", "64", "64", "64", ""}},
        {"count", {"12", "12", "12", "12", "1"}},
        {"flops", {"524288", "524288", "524288", "524288", ""}},
        {"layout", {"", "", "", "", ""}},
        {"scaling", {"tensor", "tensor", "tensor", "tensor", ""}},
        {"processes", {"2", "1", "0", "0", "1"}},
        {"runs", {"4", "1", "0", "0", "1"}},
        {"error", {"0.25", "1.5", "", "", ""}},
        {"compile_seconds", {"0.125", "0.125", "", "", "12"}},
        {"process_ids", {"first;second", "second", "second;first", "second;first", "second"}},
        {"loads", {"5.5;", "", ";5.5", ";5.5", ""}},
        {"first_date",
         {"2026-11-28T04:37:18Z", "2026-11-28T04:37:19Z", "2026-11-28T04:37:18Z",
          "2026-11-28T04:37:18Z", "2026-11-28T04:37:19Z"}},
        {"last_date",
         {"2026-11-28T04:37:19Z", "2026-11-28T04:37:19Z", "2026-11-28T04:37:19Z",
          "2026-11-28T04:37:19Z", "2026-11-28T04:37:19Z"}},
        {"cpus", {"4", "4", "4", "4", "4"}},
        /* of 1e11 and 3e11; of the second alone; of both */
        {"f32_before",
         {"200000000000", "100000000000", "200000000000", "200000000000", "100000000000"}},
        {"f32_after",
         {"400000000000", "200000000000", "400000000000", "400000000000", "200000000000"}},
        {"bf16_before", {"", "", "", "", ""}},
        {"memory_after",
         {"30000000000", "30000000000", "30000000000", "30000000000", "30000000000"}},
        {"sm_begin", {"1000", "1000", "1000", "1000", "1000"}},
        {"sm_end", {"1980", "1980", "1980", "1980", "1980"}},
        {"power_begin", {"50.5", "50.5", "50.5", "50.5", "50.5"}},
        {"power_end", {"", "", "", "", ""}},
        {"processor",
         {"Zürich\n9000", "Zürich\n9000", "Zürich\n9000", "Zürich\n9000", "Zürich\n9000"}},
        {"driver", {"", "", "", "", ""}},
        {"threads", {"2", "2", "2", "2", "2"}},
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        for (int row = 0; row < 5; row++)
            ck_assert_msg(!strcmp(field(&c, row, text[i].name), text[i].want[row]),
                          "row %d: %s is '%s', not '%s'", row, text[i].name,
                          field(&c, row, text[i].name), text[i].want[row]);
    is_number(&c, 0, "least", odd_second_runs[0]);
    is_number(&c, 0, "intensity", 524288.0 / 14336);
    is_number(&c, 1, "median", odd_second_runs[0]);
    is_number(&c, 1, "rate", 524288 / odd_second_runs[0]);
    is_number(&c, 4, "rate", 4096 / odd_second_runs[0]);
    for (int i = 0; i < 2; i++) {
        static const char *const unknown[] = {"median", "quartile_1", "quartile_3", "least",
                                              "rate",   "limit",      "share",      "seconds"};
        for (size_t k = 0; k < sizeof unknown / sizeof *unknown; k++)
            ck_assert_str_eq(field(&c, 2 + i, unknown[k]), "");
    }
    free(c.text);
    f8_arena_end(&set.arena);
}
END_TEST

/* Numbers read back as the same doubles. */
START_TEST(runs_in_csv)
{
    f8_measure_set set = odd_set();
    odd_set_fill(&set);
    const csv c = csv_of(&set);
    const char *at = field(&c, 0, "seconds");
    char *end;
    for (int i = 0; i < 3; i++, at = end + 1) {
        ck_assert(strtod(at, &end) == odd_first_runs[i]);
        ck_assert_int_eq(*end, i < 2 ? ' ' : ';');
    }
    ck_assert(strtod(at, &end) == odd_second_runs[0]);
    ck_assert_int_eq(*end, 0);
    is_number(&c, 1, "seconds", odd_second_runs[0]);
    free(c.text);
    f8_arena_end(&set.arena);
}
END_TEST

/* A text of characters that formats have a use for; `number` makes it one of its own. */
static const char *odd_text(f8_arena *arena, uint32_t *seed, int number)
{
    static const char *const part[] = {
        ",", "\"", "\n", "|",  "\\", " ", ";",  "é", "\xf0\x9f\x98\x80",
        "a", "\t", "*",  "\"", "_",  "`", "--", "'", "1e5"};
    char text[128] = "";
    for (uint32_t n = test_random(seed) % 8; n; n--)
        strcat(text, part[test_random(seed) % (sizeof part / sizeof *part)]);
    return number < 0 ? f8_arena_strdup(arena, text) : f8_arena_printf(arena, "%s%d", text, number);
}

/* 40 measurements of odd texts. */
static void fill_oddly(f8_measure_set *set, uint32_t *seed)
{
    f8_arena *a = &set->arena;
    set->about.device = odd_text(a, seed, -1);
    for (int i = 0; i < 40; i++) {
        const f8_measurement m = {.problem = {.text = odd_text(a, seed, i / 4),
                                              .name = odd_text(a, seed, -1),
                                              .a = odd_text(a, seed, -1)},
                                  .cache = odd_text(a, seed, -1),
                                  .candidate = odd_text(a, seed, i),
                                  .state = F8_MEASURE_LACKING,
                                  .reason = odd_text(a, seed, -1)};
        ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
    }
    ck_assert_int_eq(f8_measure_figures(set, NULL), F8_OK);
}

START_TEST(odd_texts_in_csv)
{
    uint32_t seed = 35;
    for (int round = 0; round < 50; round++) {
        f8_measure_set set = odd_set();
        fill_oddly(&set, &seed);
        const csv c = csv_of(&set);
        for (int i = 0; i < (int)set.n_measurements; i++) {
            const f8_measurement *m = &set.measurement[i];
            ck_assert_str_eq(field(&c, i, "problem"), m->problem.text);
            ck_assert_str_eq(field(&c, i, "name"), m->problem.name);
            ck_assert_str_eq(field(&c, i, "a"), m->problem.a);
            ck_assert_str_eq(field(&c, i, "cache"), m->cache);
            ck_assert_str_eq(field(&c, i, "candidate"), m->candidate);
            ck_assert_str_eq(field(&c, i, "reason"), m->reason);
            ck_assert_str_eq(field(&c, i, "device"), set.about.device);
        }
        free(c.text);
        f8_arena_end(&set.arena);
    }
}
END_TEST

/* ---- commands ---- */

START_TEST(commands)
{
    f8_measure_set set = odd_set();
    odd_set_fill(&set);
    f8_measurement m = set.measurement[0];
    f8_arena *a = &set.arena;
    ck_assert_str_eq(f8_measure_command(&set, &m, a),
                     "fp8c tune --gemm 64x32x128:f8e4m3:fprop:bias --cache cold --inputs normal "
                     "--threads 2");
    ck_assert_str_eq(f8_measure_command(&set, &set.measurement[3], a),
                     "fp8c tune --gemm 64x32x128:f8e4m3:fprop:bias --cache cold --inputs normal "
                     "--threads 2 --peers");
    set.about.target = "sm_90a";
    set.about.threads = 0;
    set.about.inputs = "";
    m.cache = "warm";
    m.problem.text = "it's; rm *";
    ck_assert_str_eq(f8_measure_command(&set, &m, a),
                     "fp8c tune --gemm 'it'\\''s; rm *' --cache warm --target sm_90a");
    m.cache = "step";
    ck_assert_str_eq(f8_measure_command(&set, &m, a), set.about.command);
    ck_assert_str_eq(f8_measure_command(&set, &set.measurement[4], a), set.about.command);
    m.cache = "warm";
    set.about.program = "torch";
    ck_assert_str_eq(f8_measure_command(&set, &m, a), set.about.command);
    f8_arena_end(a);
}
END_TEST

/* ---- Markdown ---- */

/* The cells of a line of a table: `|` with a backslash before it is text. */
static int count_cells(const char *line, size_t n)
{
    int cells = -1;
    for (size_t i = 0; i < n; i++)
        if (line[i] == '\\')
            i++;
        else
            cells += line[i] == '|';
    return cells;
}

/* The table under a heading; the number of its rows without the head. Each has as many cells. */
static int rows_of(const char *text, const char *heading)
{
    const char *at = strstr(text, heading);
    ck_assert_msg(at, "no heading '%s' in '%s'", heading, text);
    at = strchr(strstr(at, "\n|"), '|');
    const int cells = count_cells(at, strcspn(at, "\n"));
    int rows = -2;
    for (; *at == '|'; at += strcspn(at, "\n") + 1, rows++) {
        const size_t n = strcspn(at, "\n");
        ck_assert_msg(at[n - 1] == '|' && count_cells(at, n) == cells, "not %d cells: %.*s", cells,
                      (int)n, at);
    }
    return rows;
}

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part), "no '%s' in:\n%s", part, text);
}

START_TEST(markdown)
{
    f8_measure_set set = odd_set();
    odd_set_fill(&set);
    char *text = f8_measure_markdown(&set);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(rows_of(text, "## Measurements"), 5);
    /* the model's way of two problems, under two states of the cache; of the GEMM 12 a step */
    ck_assert_int_eq(rows_of(text, "## A step"), 2);
    has(text, "| cold | 1 | 1 | ");
    has(text, "| step | 1 | 1 | 0 | 0 | 1.085 us |  |  |  |");
    has(text, "| cold | oneDNN matmul f32 | 0 | 0 | 0 |  |  |\n"); /* it was not timed */
    /* all that is known of 28 */
    ck_assert_int_gt(rows_of(text, "## Where and how"), 10);
    has(text, "\n    fp8c tune --suite x --csv 'a|b.csv'\n");
    has(text, "| device | cpu \"Odd, Inc.\" \\| 2 threads |\n");
    has(text, "| processor | Zürich 9000 |\n");
    has(text, "| system | Linux 6_1 \\* |\n");
    has(text, "| begin of the first process | 2026-11-28T04:37:18Z |\n");
    has(text, "| f32 limit before | 200 GFLOP/s |\n");
    has(text, "| memory limit after | 30 GB/s |\n");
    has(text, "load was above its CPUs");
    has(text, "| onednn-f32 \\| a\\\\b \\*c\\* \\_d\\_ |");
    has(text, "| no \"unit\", sorry and \\| no more |");
    ck_assert_ptr_null(strstr(text, "| commit |"));
    ck_assert_ptr_null(strstr(text, "nan"));
    /* 1.085 us: of the one run 0x1.23456789abcdep-20 s; a kernel's rate is of bytes */
    has(text, " | 1 | 1.085 us | 1.085 us | 1.085 us | 483.2 GFLOP/s |");
    has(text, " | 1 | 1.085 us | 1.085 us | 1.085 us | 3.775 GB/s |");
    has(text, " | 0 |  |  |  |  |");
    free(text);
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(peers_in_markdown)
{
    static const double own[] = {2e-6}, theirs[] = {4e-6};
    f8_measure_set set = odd_set();
    f8_measure_runs runs = {"p", own, 1};
    f8_measurement m = {.problem = {.text = "p", .m = 1, .flops = 1, .bytes = 1, .count = 3},
                        .cache = "cold",
                        .candidate = "model",
                        .process = &runs,
                        .n_processes = 1};
    ck_assert_int_eq(f8_measure_add(&set, &m, NULL), F8_OK);
    m.kind = F8_MEASURE_PEER;
    m.candidate = "other | sgemm";
    runs.seconds = theirs;
    ck_assert_int_eq(f8_measure_add(&set, &m, NULL), F8_OK);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    char *text = f8_measure_markdown(&set);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(rows_of(text, "## Beside other libraries"), 1);
    has(text, "| cold | other \\| sgemm | 1 | 0 | 1 | 0.5 | 0.5 |\n");
    has(text, "| cold | 1 | 1 | 0 | 0 | 6 us |  |  |  |  |  |");
    free(text);
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(times_in_markdown)
{
    static const struct {
        double seconds;
        const char *shows;
    } all[] = {{1e30, "| 1e+30 s |"},       {12.5e-9, "| 12.5 ns |"}, {999.96e-9, "| 1 us |"},
               {1.25e-3, "| 1.25 ms |"},    {2.5, "| 2.5 s |"},       {12345.6, "| 12346 s |"},
               {0.9999e-6, "| 999.9 ns |"}, {0, "| 0 ns |"},          {61e-6, "| 61 us |"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        f8_measure_set set = odd_set();
        f8_measure_runs runs = {"p", &all[i].seconds, 1};
        const f8_measurement m = {.problem = {.text = "p", .m = 1, .flops = 1, .bytes = 1},
                                  .error = NAN,
                                  .compile_seconds = NAN,
                                  .process = &runs,
                                  .n_processes = 1};
        ck_assert_int_eq(f8_measure_add(&set, &m, NULL), F8_OK);
        ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
        char *text = f8_measure_markdown(&set);
        ck_assert_ptr_nonnull(text);
        has(text, all[i].shows);
        free(text);
        f8_arena_end(&set.arena);
    }
}
END_TEST

START_TEST(odd_texts_in_markdown)
{
    uint32_t seed = 36;
    for (int round = 0; round < 50; round++) {
        f8_measure_set set = odd_set();
        fill_oddly(&set, &seed);
        char *text = f8_measure_markdown(&set);
        ck_assert_ptr_nonnull(text);
        ck_assert_int_eq(rows_of(text, "## Measurements"), (int)set.n_measurements);
        free(text);
        f8_arena_end(&set.arena);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("files");
    TCase *c = tcase_create("csv");
    tcase_add_test(c, figures_in_csv);
    tcase_add_test(c, runs_in_csv);
    tcase_add_test(c, odd_texts_in_csv);
    suite_add_tcase(s, c);
    c = tcase_create("commands");
    tcase_add_test(c, commands);
    suite_add_tcase(s, c);
    c = tcase_create("markdown");
    tcase_add_test(c, markdown);
    tcase_add_test(c, peers_in_markdown);
    tcase_add_test(c, times_in_markdown);
    tcase_add_test(c, odd_texts_in_markdown);
    suite_add_tcase(s, c);
    return s;
}
