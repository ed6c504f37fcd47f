/* What the tuning database keeps of every run: samples and facts, put, read, merged, damaged;
 * processes; processes of their own that add to one row. */
#include <math.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/shared/tuning_case.h"

static const char cold[] = "cold normal";

/* Put `n` runs of one process for a candidate of problem "p". */
static f8_status put_runs(f8_tuning *t, const char *how, const char *process, const double *seconds,
                          size_t n, const char *facts, f8_diag *diag)
{
    const f8_tuning_runs runs = {process, 1000, seconds, n};
    const f8_timing timing = {.candidate = "m 64",
                              .how = how,
                              .samples = n ? &runs : NULL,
                              .n_samples = n > 0,
                              .facts = facts};
    return f8_tuning_put(t, &here, "p", "step", &timing, 1, NULL, diag);
}

/* The only timing of problem "p". */
static f8_timing get(f8_tuning *t, const char *how)
{
    f8_timing *timing;
    size_t n;
    OK(f8_tuning_get(t, &here, "p", how, &arena, &timing, &n, diag));
    ck_assert_uint_eq(n, 1);
    return timing[0];
}

/* The timing's runs by process, "A: 1 2, B: 3". */
static const char *runs_of(const f8_timing *timing)
{
    const char *text = "";
    for (size_t i = 0; i < timing->n_samples; i++) {
        const f8_tuning_runs *r = &timing->samples[i];
        text = f8_arena_printf(&arena, "%s%s%s:", text, i ? ", " : "", r->process);
        for (size_t k = 0; k < r->n; k++)
            text = f8_arena_printf(&arena, "%s %g", text, r->seconds[k]);
    }
    return text;
}

static void check_runs(f8_tuning *t, const char *how, const char *expected)
{
    const f8_timing timing = get(t, how);
    ck_assert_str_eq(runs_of(&timing), expected);
}

/* Doubles come back with all bits, by process; figures are of all runs, whatever the caller says.
 */
START_TEST(there_and_back)
{
    const double a[] = {1.0 / 3, 0.1, 5e-324, 0}, b[] = {0.7, 1e300};
    const f8_tuning_runs runs[] = {{"b", 7, b, 2}, {"a", INT64_MAX, a, 4}};
    const f8_timing timing[] = {{.candidate = "m 64",
                                 .how = cold,
                                 .seconds = 77,
                                 .median = 78,
                                 .runs = 79,
                                 .samples = runs,
                                 .n_samples = 2,
                                 .facts = "{\"error\":0.25,\"same bits\":true}"},
                                {.candidate = "m 128", .how = "warm zeros", .runs = 1}};
    f8_tuning *t = open_at(path);
    OK(f8_tuning_put(t, &here, "p", "step", timing, 2, NULL, diag));
    const f8_timing x = get(t, cold);
    ck_assert_str_eq(x.candidate, "m 64");
    ck_assert_str_eq(x.how, cold);
    ck_assert_str_eq(x.facts, "{\"error\":0.25,\"same bits\":true}");
    ck_assert_uint_eq(x.n_samples, 2);
    ck_assert_str_eq(x.samples[0].process, "a");
    ck_assert_int_eq(x.samples[0].at, INT64_MAX);
    ck_assert(x.samples[0].n == 4 && !memcmp(x.samples[0].seconds, a, sizeof a));
    ck_assert_str_eq(x.samples[1].process, "b");
    ck_assert_int_eq(x.samples[1].at, 7);
    ck_assert(x.samples[1].n == 2 && !memcmp(x.samples[1].seconds, b, sizeof b));
    ck_assert(x.seconds == 0 && x.median == (0.1 + 1.0 / 3) / 2 && x.runs == 6);
    const f8_timing other = get(t, "warm zeros");
    ck_assert_str_eq(other.candidate, "m 128");
    ck_assert(other.runs == 1 && !other.n_samples && !*other.facts);
    f8_timing *none;
    size_t n;
    OK(f8_tuning_get(t, &here, "p", NULL, &arena, &none, &n, diag)); /* as a step: not timed */
    ck_assert_uint_eq(n, 0);
    f8_tuning_close(t);
}
END_TEST

/* Runs are added to those of their process. Only a candidate that is dropped loses them. */
START_TEST(puts_add)
{
    const double x[] = {4, 2, 8};
    f8_tuning *t = open_at(path);
    OK(put_runs(t, NULL, "b", x, 2, "{\"a\":1}", diag));
    OK(put_runs(t, cold, "b", x, 1, NULL, diag)); /* a row of its own */
    OK(put_runs(t, NULL, "a", x + 2, 1, "", diag));
    OK(put_runs(t, NULL, "b", x + 1, 2, NULL, diag));
    check_runs(t, "step", "a: 8, b: 4 2 2 8");
    check_runs(t, cold, "b: 4");
    f8_timing now = get(t, "step");
    ck_assert(now.seconds == 2 && now.median == 4 && now.runs == 5);
    ck_assert_str_eq(now.facts, "{\"a\":1}");
    const f8_timing figures = {.candidate = "m 64", .seconds = 1, .median = 1, .runs = 3};
    OK(f8_tuning_put(t, &here, "p", "step", &figures, 1, NULL, diag));
    check_runs(t, NULL, "a: 8, b: 4 2 2 8");
    ck_assert_int_eq(get(t, NULL).runs, 5);
    OK(put_runs(t, NULL, "", NULL, 0, "{\"b\":2}", diag));
    now = get(t, NULL);
    ck_assert(now.runs == 0 && now.n_samples == 0);
    ck_assert_str_eq(now.facts, "{\"b\":2}");
    check_runs(t, cold, "b: 4");
    f8_tuning_close(t);
}
END_TEST

START_TEST(bad_puts)
{
    const double good[] = {1, 2}, nan[] = {1, NAN}, negative[] = {-1}, endless[] = {INFINITY};
    const struct {
        f8_tuning_runs runs[2];
        size_t n;
        const char *facts, *why;
    } bad[] = {{{{"a", 1, nan, 2}}, 1, NULL, "process 'a': run 2 has no number"},
               {{{"a", 1, negative, 1}}, 1, NULL, "process 'a': run 1 has no number"},
               {{{"a", 1, endless, 1}}, 1, NULL, "process 'a': run 1 has no number"},
               {{{"", 1, good, 2}}, 1, NULL, "a process has no id"},
               {{{NULL, 1, good, 2}}, 1, NULL, "a process has no id"},
               {{{"a", 1, good, 0}}, 1, NULL, "have no seconds"},
               {{{"a", -1, good, 2}}, 1, NULL, "have no time"},
               {{{"a", 1, good, 2}, {"a", 1, good, 1}}, 2, NULL, "process 'a' is there twice"},
               {{{"\xff", 1, good, 2}}, 1, NULL, "no JSON form"},
               {{{"a", 1, good, 2}}, 1, "[]", "facts are no JSON object"},
               {{{"a", 1, good, 2}}, 1, "{\"a\":}", "facts: "},
               {{{"a", 1, good, 2}}, 1, "{\"a\":1,\"a\":2}", "facts: duplicate object key"},
               {{{"a", 1, good, 2}}, 1, "{} {}", "facts: end of file expected"}};
    f8_tuning *t = open_at(path);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const f8_timing timing[] = {{.candidate = "m 64", .runs = 1},
                                    {.candidate = "x",
                                     .samples = bad[i].runs,
                                     .n_samples = bad[i].n,
                                     .facts = bad[i].facts}};
        f8_diag why = {0};
        f8_timing *there;
        size_t n;
        ck_assert_int_eq(f8_tuning_put(t, &here, "p", "step", timing, 2, NULL, &why), F8_ERR_INPUT);
        ck_assert_msg(strstr(why.text, bad[i].why) != NULL, "%zu: %s", i, why.text);
        OK(f8_tuning_get(t, &here, "p", NULL, &arena, &there, &n, diag));
        ck_assert_uint_eq(n, 0); /* all or nothing */
    }
    f8_tuning_close(t);
}
END_TEST

/* ---- processes ---- */

START_TEST(processes)
{
    f8_tuning *t = open_at(path);
    f8_tuning_process p = {.id = "a", .device = here.device, .facts = "{ \"load\": 0.5 }"}, back;
    bool found;
    OK(f8_tuning_put_process(t, &p, diag));
    OK(f8_tuning_get_process(t, "a", &arena, &back, &found, diag));
    ck_assert(found);
    ck_assert_str_eq(back.id, "a");
    ck_assert_str_eq(back.device, here.device);
    ck_assert_str_eq(back.facts, "{\"load\":0.5}");
    ck_assert_int_ge(time(NULL), back.at);
    ck_assert_int_ge(back.at, time(NULL) - 3600);
    p.facts = back.facts = "{\"load\":0.5,\"after\":{\"flops\":1e12}}"; /* when it is done */
    OK(f8_tuning_put_process(t, &p, diag));
    OK(f8_tuning_get_process(t, "a", &arena, &back, &found, diag));
    ck_assert_str_eq(back.facts, "{\"load\":0.5,\"after\":{\"flops\":1000000000000.0}}");
    OK(f8_tuning_get_process(t, "b", &arena, &back, &found, diag));
    ck_assert(!found);
    f8_diag why = {0};
    p.facts = "5";
    ck_assert_int_eq(f8_tuning_put_process(t, &p, &why), F8_ERR_INPUT);
    p.id = "";
    p.facts = "";
    why = (f8_diag){0};
    ck_assert_int_eq(f8_tuning_put_process(t, &p, &why), F8_ERR_INPUT);
    ck_assert_str_eq(why.text, "a process has no id");
    f8_tuning_close(t);
}
END_TEST

START_TEST(names)
{
    char id[F8_TUNING_PROCESS_ID];
    int day, clock, ms, pid, end = 0;
    f8_tuning_name_process(id);
    ck_assert_int_eq(sscanf(id, "%8dT%6d.%3dZ-%d%n", &day, &clock, &ms, &pid, &end), 4);
    ck_assert_int_eq(end, (int)strlen(id));
    ck_assert_int_gt(day, 20260101);
    ck_assert_int_eq(pid, (int)getpid());
}
END_TEST

enum { WRITERS = 8, PUTS = 6 };

/* Many processes add to the same row at the same time: every run is there. */
START_TEST(many_writers)
{
    pid_t child[WRITERS];
    for (int c = 0; c < WRITERS; c++) {
        child[c] = fork();
        if (child[c])
            continue;
        f8_diag diag = {0};
        f8_tuning *t;
        char id[8];
        snprintf(id, sizeof id, "%d", c);
        f8_status status = f8_tuning_open(path, NULL, &t, &diag);
        for (int i = 0; i < PUTS && status == F8_OK; i++) {
            const double seconds[] = {i, c};
            status = put_runs(t, cold, id, seconds, 2, NULL, &diag);
        }
        f8_tuning_close(t);
        if (status != F8_OK)
            fprintf(stderr, "process %d: %s\n", c, diag.text);
        _exit(status != F8_OK);
    }
    for (int c = 0; c < WRITERS; c++) {
        int how;
        ck_assert_int_eq(waitpid(child[c], &how, 0), child[c]);
        ck_assert_int_eq(how, 0);
    }
    f8_tuning *t = open_at(path);
    const f8_timing timing = get(t, cold);
    ck_assert_uint_eq(timing.n_samples, WRITERS);
    ck_assert_int_eq(timing.runs, 2 * WRITERS * PUTS);
    for (int c = 0; c < WRITERS; c++)
        for (int i = 0; i < PUTS; i++)
            ck_assert(timing.samples[c].seconds[2 * i] == i &&
                      timing.samples[c].seconds[2 * i + 1] == c);
    f8_tuning_close(t);
}
END_TEST

/* ---- files of rows ---- */

/* An exported file has all, and the same bytes after it was imported. */
START_TEST(exported)
{
    const double x[] = {1.0 / 3, 2e-5};
    const f8_tuning_process p = {.id = "a", .device = here.device, .facts = "{\"cpus\":2}"};
    char first[128], second[128], other[128];
    f8_tuning_counts counts;
    size_t n, m;
    snprintf(first, sizeof first, "%s/1.jsonl", folder);
    snprintf(second, sizeof second, "%s/2.jsonl", folder);
    snprintf(other, sizeof other, "%s/other.db", folder);
    f8_tuning *t = open_at(path), *u = open_at(other);
    OK(put_runs(t, NULL, "a", x, 2, "{\"error\":0.1}", diag));
    OK(put_runs(t, cold, "b", x, 1, NULL, diag));
    OK(f8_tuning_put_process(t, &p, diag));
    OK(f8_tuning_export(t, first, "somewhere", &counts, diag));
    ck_assert(counts.timings == 2 && counts.processes == 1 && counts.others == 2);
    OK(f8_tuning_import(u, first, NULL, &counts, diag));
    ck_assert(counts.timings == 2 && counts.processes == 1 && !counts.older);
    OK(f8_tuning_export(u, second, NULL, &counts, diag));
    const char *a = read_bytes(first, &n), *b = read_bytes(second, &m);
    ck_assert(n == m && !memcmp(a, b, n));
    ck_assert(!strncmp(a, "{\"fp8c\":\"tuning\",\"schema\":2}\n{\"row\":\"process\",", 45));
    ck_assert_ptr_nonnull(strstr(a, "\"samples\":[{\"process\":\"a\",\"at\":1000,\"seconds\":["
                                    "0.33333333333333331,2.0000000000000002e-5]}]"));
    OK(f8_tuning_import(u, first, NULL, &counts, diag));
    ck_assert(!counts.timings && !counts.processes && counts.older == 2);
    f8_tuning_close(t);
    f8_tuning_close(u);
}
END_TEST

#define ROW                                                                                        \
    "\"device\":\"cpu here, 2 threads\",\"versions\":\"library "                                   \
    "1\",\"problem\":\"p\",\"candidate\""                                                          \
    ":\"m 64\",\"name\":\"n\",\"seconds\":1,\"median\":1.5,\"at\":5,\"runs\":7"
#define TIMING "{\"row\":\"timing\"," ROW
#define NEW "{\"fp8c\":\"tuning\",\"schema\":2}\n"

/* Whether `text`, as a file, is imported; if not, `why` is said, and nothing was taken. */
static void import_text(f8_tuning *t, const char *text, const char *why)
{
    char file[128];
    f8_tuning_counts counts;
    f8_timing *timing;
    size_t n;
    f8_diag diag = {0};
    snprintf(file, sizeof file, "%s/in.jsonl", folder);
    write_bytes(file, text, strlen(text));
    const f8_status status = f8_tuning_import(t, file, NULL, &counts, &diag);
    ck_assert_msg(why ? status != F8_OK && strstr(diag.text, why) : status == F8_OK, "%s: %s", text,
                  diag.text);
    if (!why)
        return;
    OK(f8_tuning_get(t, &here, "p", NULL, &arena, &timing, &n, diag));
    ck_assert_uint_eq(n, 0);
}

START_TEST(bad_imports)
{
    static const char *const bad[][2] = {
        {NEW TIMING "}\n", "line 2 is no row"}, /* no how */
        {NEW TIMING ",\"how\":\"\"}\n", "line 2 is no row"},
        {NEW TIMING ",\"how\":\"step\",\"samples\":{}}\n", "line 2: samples are no array"},
        {NEW TIMING ",\"how\":\"step\",\"samples\":\"[]\"}\n", "line 2: samples are no array"},
        {NEW TIMING ",\"how\":\"step\",\"samples\":[1]}\n", "line 2: samples: a process has no id"},
        {NEW TIMING ",\"how\":\"step\",\"samples\":[{\"process\":\"a\",\"at\":1}]}\n",
         "line 2: samples of process 'a' have no seconds"},
        {NEW TIMING
         ",\"how\":\"step\",\"samples\":[{\"process\":\"a\",\"at\":1,\"seconds\":[]}]}\n",
         "line 2: samples of process 'a' have no seconds"},
        {NEW TIMING
         ",\"how\":\"step\",\"samples\":[{\"process\":\"a\",\"at\":1.5,\"seconds\":[1]}]}\n",
         "line 2: samples of process 'a' have no time"},
        {NEW TIMING
         ",\"how\":\"step\",\"samples\":[{\"process\":\"a\",\"at\":1,\"seconds\":[1,\"2\""
         "]}]}\n",
         "line 2: samples of process 'a': run 2 has no number"},
        {NEW TIMING ",\"how\":\"step\",\"samples\":[{\"process\":\"a\",\"at\":1,\"seconds\":[1]},"
                    "{\"process\":\"a\",\"at\":1,\"seconds\":[1]}]}\n",
         "line 2: samples: process 'a' is there twice"},
        {NEW TIMING ",\"how\":\"step\",\"facts\":\"{}\"}\n", "line 2: facts are no JSON object"},
        {NEW "{\"row\":\"process\",\"id\":\"\",\"device\":\"d\",\"at\":1}\n", "line 2 is no row"},
        {NEW "{\"row\":\"process\",\"id\":\"a\",\"at\":1}\n", "line 2 is no row"},
        {NEW "{\"row\":\"process\",\"id\":\"a\",\"device\":\"d\"}\n", "line 2 is no row"},
        {NEW "{\"row\":\"process\",\"id\":\"a\",\"device\":\"d\",\"at\":1,\"facts\":[]}\n",
         "line 2: facts are no JSON object"}};
    f8_tuning *t = open_at(path);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        import_text(t, bad[i][0], bad[i][1]);
    import_text(t, NEW TIMING ",\"how\":\"step\"}\n", NULL);
    ck_assert_int_eq(get(t, NULL).runs, 7);
    f8_tuning_close(t);
}
END_TEST

/* ---- merges ---- */

/* Two databases with rows of the same candidate, the second newer by 5 seconds. */
static void make_two(char *other, size_t room)
{
    const double x[] = {1, 2, 3};
    snprintf(other, room, "%s/other.db", folder);
    f8_tuning *t = open_at(path), *u = open_at(other);
    OK(put_runs(t, cold, "a", x, 1, "{\"from\":\"t\"}", diag));
    OK(put_runs(t, cold, "both", x, 3, NULL, diag));
    OK(put_runs(u, cold, "both", x, 2, NULL, diag));
    OK(put_runs(u, cold, "z", x + 2, 1, "{\"from\":\"u\"}", diag));
    OK(f8_tuning_put_process(u, &(f8_tuning_process){"z", "d", "{\"cpus\":4}", 0}, diag));
    f8_tuning_close(t);
    f8_tuning_close(u);
    change(other, "UPDATE timing SET at = at + 5, name = 'newer'");
}

/* Whichever is merged into the other: all samples, the facts of the newer, and a second time
 * nothing is new. */
START_TEST(merged)
{
    char other[128];
    f8_tuning_counts counts;
    bool found;
    f8_tuning_process p;
    make_two(other, sizeof other);
    f8_tuning *t = open_at(_i ? other : path);
    OK(f8_tuning_merge(t, _i ? path : other, here.device, &counts, diag));
    ck_assert(counts.timings == 1 && counts.processes == !_i && !counts.older && !counts.others);
    const f8_timing now = get(t, cold);
    ck_assert_str_eq(runs_of(&now), "a: 1, both: 1 2 3, z: 3");
    ck_assert(now.seconds == 1 && now.median == 2 && now.runs == 5);
    ck_assert_str_eq(now.facts, "{\"from\":\"u\"}");
    OK(f8_tuning_get_process(t, "z", &arena, &p, &found, diag));
    ck_assert(found);
    ck_assert_str_eq(p.facts, "{\"cpus\":4}");
    OK(f8_tuning_merge(t, _i ? path : other, here.device, &counts, diag));
    ck_assert(!counts.timings && !counts.processes);
    ck_assert_int_eq(counts.older, 1);
    f8_tuning_close(t);
}
END_TEST

/* A newer row says that the candidate gives other bits: it has no samples, and gets no older ones.
 * Of rows without samples the newer is taken, and one with samples beats any. */
START_TEST(merged_without_samples)
{
    char other[128];
    f8_tuning_counts counts;
    make_two(other, sizeof other);
    change(other, "UPDATE timing SET samples = '', runs = 0");
    f8_tuning *t = open_at(path), *u = open_at(other);
    OK(f8_tuning_merge(u, path, NULL, &counts, diag));
    ck_assert_int_eq(counts.older, 1);
    ck_assert_int_eq(get(u, cold).runs, 0);
    change(other, "UPDATE timing SET runs = 9");
    OK(f8_tuning_merge(u, path, NULL, &counts, diag));
    ck_assert_int_eq(counts.timings, 1);
    check_runs(u, cold, "a: 1, both: 1 2 3");
    ck_assert_int_eq(get(u, cold).runs, 4);
    change(other, "UPDATE timing SET samples = '', runs = 9");
    OK(f8_tuning_merge(t, other, NULL, &counts, diag));
    ck_assert_int_eq(counts.timings, 1); /* newer, but for the samples */
    check_runs(t, cold, "a: 1, both: 1 2 3");
    change(other, "UPDATE timing SET runs = 0, at = at + 5");
    OK(f8_tuning_merge(t, other, NULL, &counts, diag));
    ck_assert(get(t, cold).runs == 0 && get(t, cold).n_samples == 0);
    f8_tuning_close(t);
    f8_tuning_close(u);
}
END_TEST

/* ---- damaged ---- */

/* Somebody has edited the file: the row is named, nothing crashes, and a compile has its choices.
 */
START_TEST(damaged)
{
    static const char *const bad[][2] = {
        {"samples = '['", "timing of 'm 64' for 'p' is damaged (samples: "},
        {"samples = 'nonsense'", "timing of 'm 64' for 'p' is damaged (samples: "},
        {"samples = '5'", "(samples: "},
        {"samples = '{}'", "(samples are no array)"},
        {"samples = '[[]]'", "(samples: a process has no id)"},
        {"samples = '[{\"process\":\"a\",\"at\":1,\"seconds\":[1e999]}]'", "(samples: real number"},
        {"samples = '[{\"process\":\"a\",\"at\":1,\"seconds\":[-1]}]'", "run 1 has no number"},
        {"samples = '[{\"process\":\"a\",\"at\":1,\"seconds\":5}]'", "have no seconds"},
        {"samples = x'ff00fe'", "(samples: "},
        {"samples = replace(hex(zeroblob(20000)), '0', '[')", "maximum parsing depth"},
        {"facts = '[]'", "(facts are no JSON object)"},
        {"facts = '{\"a'", "(facts: "},
        {"seconds = -1", "(its numbers are negative or no numbers)"},
        {"median = 9e999", "(its numbers are negative or no numbers)"},
        {"runs = -1", "(its numbers are negative or no numbers)"}};
    const f8_tuning_choice choice = {"m 64", 1, 2};
    const double x[] = {1, 2};
    char file[128], other[128], sql[256];
    snprintf(file, sizeof file, "%s/out.jsonl", folder);
    snprintf(other, sizeof other, "%s/other.db", folder);
    f8_tuning *u = open_at(other);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_diag why[4] = {{0}};
        f8_timing *timing;
        f8_tuned *tuned;
        f8_tuning_counts counts;
        size_t n;
        f8_tuning *t = open_at(path);
        OK(put_runs(t, NULL, "a", x, 2, "{}", diag));
        OK(f8_tuning_put(t, &here, "p", "step", NULL, 0, &choice, diag));
        snprintf(sql, sizeof sql, "UPDATE timing SET %s", bad[i][0]);
        change(path, sql);
        ck_assert_int_eq(f8_tuning_get(t, &here, "p", NULL, &arena, &timing, &n, &why[0]),
                         F8_ERR_IO);
        ck_assert_int_eq(put_runs(t, NULL, "b", x, 2, NULL, &why[1]), F8_ERR_IO);
        ck_assert_int_eq(f8_tuning_export(t, file, NULL, &counts, &why[2]), F8_ERR_IO);
        ck_assert_int_eq(f8_tuning_merge(u, path, NULL, &counts, &why[3]), F8_ERR_IO);
        for (int k = 0; k < 4; k++) {
            ck_assert_msg(strstr(why[k].text, bad[i][1]) != NULL, "%zu, %d: %s", i, k, why[k].text);
            ck_assert_str_eq(why[k].file, path);
        }
        ck_assert_int_ne(access(file, F_OK), 0); /* nothing half written */
        OK(f8_tuned_read(path, here.device, 10, &arena, &tuned, diag));
        ck_assert_str_eq(f8_tuned_find(tuned, here.versions, "p"), "m 64");
        f8_tuning_close(t);
        ck_assert_int_eq(unlink(path), 0);
    }
    f8_tuning_close(u);
}
END_TEST

START_TEST(damaged_process)
{
    f8_tuning_process p = {.id = "a", .device = "d", .facts = ""};
    bool found;
    f8_diag why = {0};
    f8_tuning *t = open_at(path);
    OK(f8_tuning_put_process(t, &p, diag));
    change(path, "UPDATE process SET facts = '{'");
    ck_assert_int_eq(f8_tuning_get_process(t, "a", &arena, &p, &found, &why), F8_ERR_IO);
    ck_assert_msg(strstr(why.text, "process 'a' is damaged (facts: ") != NULL, "%s", why.text);
    f8_tuning_close(t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tuning_samples");
    TCase *t = tcase_create("tuning_samples");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, there_and_back);
    tcase_add_test(t, puts_add);
    tcase_add_test(t, bad_puts);
    tcase_add_test(t, processes);
    tcase_add_test(t, names);
    tcase_add_test(t, many_writers);
    tcase_add_test(t, exported);
    tcase_add_test(t, bad_imports);
    tcase_add_loop_test(t, merged, 0, 2);
    tcase_add_test(t, merged_without_samples);
    tcase_add_test(t, damaged);
    tcase_add_test(t, damaged_process);
    suite_add_tcase(s, t);
    return s;
}
