/* Sets of measurements as JSON Lines: written, read and written again they have the same bytes, and
 * what is wrong with a file is said with its place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/records/records.h"
#include "ir/base/file.h"
#include "tests/shared/measures.h"
#include "tests/shared/suite.h"

static char path[] = "/tmp/check_measure_records_XXXXXX";

static void make_file(void)
{
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void remove_file(void)
{
    unlink(path);
}

static f8_status read_text(f8_measure_set *set, const char *text, size_t n, f8_diag *diag)
{
    FILE *to = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(text, 1, n, to), n);
    ck_assert_int_eq(fclose(to), 0);
    test_measures_begin(set);
    return f8_measure_read(set, path, diag);
}

static char *lines(const f8_measure_set *set)
{
    char *text = f8_record_lines(f8_measure_records(set));
    ck_assert_ptr_nonnull(text);
    return text;
}

/* ---- round trips ---- */

static double draw(uint32_t *random)
{
    static const double odd[] = {0, 1, 0.1, 1e-9, 5e-324, 3.0000000000000004, 123456789};
    const uint32_t which = test_random(random) % 14;
    return which < 7 ? odd[which] : (double)test_random(random) / (1 + test_random(random));
}

static void fill(f8_measure_set *set, uint32_t *random)
{
    static const char *const ids[] = {"a-1", "b-2", "c\n\"\\\xc3\xa9"};
    set->about = (f8_measure_about){.command = "fp8c tune --gemm 1x1x1:f32 'a b'",
                                    .version = "0.1",
                                    .commit = "",
                                    .device = "cpu \"X\"",
                                    .processor = "p",
                                    .target = "cpu:x86-64-v3",
                                    .libraries = "oneDNN",
                                    .driver = "",
                                    .governor = "performance",
                                    .system = "Linux",
                                    .threads = 2,
                                    .inputs = "normal",
                                    .program = "fp8c"};
    for (int i = 0; i < 3; i++) {
        f8_measure_process p = {.id = ids[i], .date = "2026-11-28T04:37:18Z", .cpus = i};
        p.load = i ? draw(random) : NAN;
        p.before.flops_f32 = draw(random);
        p.after.bytes = draw(random);
        p.begin.sm_mhz = draw(random);
        p.end.celsius = draw(random);
        ck_assert_int_eq(f8_measure_add_process(set, &p, NULL), F8_OK);
    }
    for (int i = 0; i < 20; i++) {
        char text[32], way[32];
        double seconds[3][8];
        f8_measure_runs runs[3];
        snprintf(text, sizeof text, "%dx2x3:f32", (int)(test_random(random) % 5));
        snprintf(way, sizeof way, "way %d", i);
        f8_measurement m = {.problem = {text, "a name", i, 2, 3, 1 + i, "f32", "f32", "none", "",
                                        "f32", "nn", draw(random), draw(random)},
                            .cache = i % 2 ? "cold" : "warm",
                            .candidate = way,
                            .operands = "f32",
                            .kind = (f8_measure_kind)(i % 3),
                            .state = (f8_measure_state)(i % 4 == 1   ? 1
                                                        : i % 4 == 2 ? 2
                                                                     : 0),
                            .reason = i % 4 == 1 ? "it can't" : "",
                            .unit = "f32",
                            .chosen = i % 3 == 1,
                            .same_bits = (f8_measure_answer)((int)(test_random(random) % 3) - 1),
                            .error = i % 5 ? draw(random) : NAN,
                            .compile_seconds = i % 7 ? draw(random) : NAN,
                            .process = runs,
                            .n_processes =
                                i % 4 == 1 || i % 4 == 2 ? 0 : 1 + test_random(random) % 3};
        for (size_t j = 0; j < m.n_processes; j++) {
            runs[j] = (f8_measure_runs){ids[j], seconds[j], 1 + test_random(random) % 8};
            for (size_t r = 0; r < runs[j].n; r++)
                seconds[j][r] = draw(random);
        }
        ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
    }
    ck_assert_int_eq(f8_measure_figures(set, NULL), F8_OK);
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* What a file says is what was written, not only the same bytes when written again. */
static void compare(const f8_measure_set *a, const f8_measure_set *b)
{
    ck_assert_uint_eq(a->n_processes, b->n_processes);
    ck_assert_uint_eq(a->n_measurements, b->n_measurements);
    ck_assert_str_eq(a->about.command, b->about.command);
    ck_assert_str_eq(a->about.program, b->about.program);
    ck_assert_int_eq(a->about.threads, b->about.threads);
    for (size_t i = 0; i < a->n_processes; i++) {
        const f8_measure_process *p = &a->process[i], *q = &b->process[i];
        ck_assert_str_eq(p->id, q->id);
        ck_assert(same(p->load, q->load) && p->cpus == q->cpus &&
                  p->before.flops_f32 == q->before.flops_f32 && p->after.bytes == q->after.bytes &&
                  p->begin.sm_mhz == q->begin.sm_mhz && p->end.celsius == q->end.celsius);
    }
    for (size_t i = 0; i < a->n_measurements; i++) {
        const f8_measurement *m = &a->measurement[i], *o = &b->measurement[i];
        ck_assert_str_eq(m->problem.text, o->problem.text);
        ck_assert_str_eq(m->candidate, o->candidate);
        ck_assert(m->problem.m == o->problem.m && m->problem.count == o->problem.count &&
                  m->problem.flops == o->problem.flops && m->problem.bytes == o->problem.bytes);
        ck_assert(m->kind == o->kind && m->state == o->state && m->chosen == o->chosen &&
                  m->same_bits == o->same_bits && same(m->error, o->error) &&
                  same(m->compile_seconds, o->compile_seconds));
        ck_assert(m->n_processes == o->n_processes && same(m->median, o->median) &&
                  same(m->share, o->share));
        for (size_t j = 0; j < m->n_processes; j++) {
            ck_assert_uint_eq(m->process[j].n, o->process[j].n);
            ck_assert_str_eq(m->process[j].process, o->process[j].process);
            ck_assert_mem_eq(m->process[j].seconds, o->process[j].seconds,
                             m->process[j].n * sizeof(double));
        }
    }
}

START_TEST(round_trips)
{
    for (uint32_t seed = 1; seed <= 50; seed++) {
        f8_diag diag = {0};
        f8_measure_set set, again;
        test_measures_begin(&set);
        uint32_t random = seed;
        fill(&set, &random);
        char *first = lines(&set);
        const f8_status status = read_text(&again, first, strlen(first), &diag);
        ck_assert_msg(status == F8_OK, "line %u: %s", diag.loc.line, diag.text);
        compare(&set, &again);
        char *second = lines(&again);
        ck_assert_str_eq(first, second);
        free(first);
        free(second);
        f8_arena_end(&set.arena);
        f8_arena_end(&again.arena);
    }
}
END_TEST

/* ---- what a record has ---- */

#define ABOUT "{\"event\":\"benchmark\",\"schema\":1}\n"
#define PROCESS "{\"event\":\"process\",\"id\":\"1\"}\n"
#define WAY                                                                                        \
    "{\"event\":\"timing\",\"problem\":\"p\",\"cache\":\"cold\",\"candidate\":\"model\","          \
    "\"kind\":\"model\",\"flops\":8,\"bytes\":4,"
#define RUNS "\"processes\":[{\"process\":\"1\",\"seconds\":[2,1,4]}]}\n"
#define TIMED WAY "\"state\":\"timed\"," RUNS

/* The least that a file has, with records and fields of others. */
START_TEST(least)
{
    static const char text[] =
        "{\"event\":\"begin\",\"schema\":[]}\r\n\n  \n" ABOUT
        "{\"event\":\"process\",\"id\":\"1\",\"more\":{},\"load\":null}\n" WAY
        "\"state\":\"timed\",\"other\":[null],\"error\":null," RUNS "{\"event\":\"summary\"}";
    f8_measure_set set;
    f8_diag diag = {0};
    const f8_status status = read_text(&set, text, strlen(text), &diag);
    ck_assert_msg(status == F8_OK, "line %u: %s", diag.loc.line, diag.text);
    const f8_measurement *m = f8_measure_find(&set, "p", "cold", "model");
    ck_assert_ptr_nonnull(m);
    ck_assert(m->median == 2 && m->least == 1 && m->rate == 4 && m->runs == 3);
    ck_assert(m->problem.count == 1 && m->same_bits == F8_MEASURE_UNKNOWN && isnan(m->error));
    ck_assert(isnan(set.process[0].load));
    ck_assert_str_eq(m->reason, "");
    ck_assert_str_eq(set.about.device, "");
    free(lines(&set));
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(fields)
{
    f8_measure_set set;
    test_measures_begin(&set);
    const double seconds[] = {0.5, 0.25};
    f8_measure_runs runs = {"1", seconds, 2};
    f8_measurement m = {
        .problem =
            {.text = "8x8x8:f32", .m = 8, .n = 8, .k = 8, .flops = 1024, .bytes = 256, .count = 3},
        .cache = "cold",
        .candidate = "a \xff",
        .operands = "f32",
        .kind = F8_MEASURE_CANDIDATE,
        .same_bits = F8_MEASURE_NO,
        .error = INFINITY,
        .compile_seconds = NAN,
        .process = &runs,
        .n_processes = 1};
    set.about.program = "fp8c";
    ck_assert_int_eq(f8_measure_add(&set, &m, NULL), F8_OK);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    char *text = lines(&set);
    static const char *const parts[] = {
        "{\"event\":\"benchmark\",\"schema\":1,\"command\":\"\",",
        "\n{\"event\":\"timing\",\"problem\":\"8x8x8:f32\",\"name\":\"\",\"m\":8,",
        "\"count\":3,",
        "\"flops\":1024.0,\"bytes\":256.0,\"intensity\":4.0,\"cache\":\"cold\",",
        "\"candidate\":\"a ?\",",
        "\"kind\":\"candidate\",\"state\":\"timed\",",
        "\"chosen\":false,\"same_bits\":false,\"error\":1.7976931348623157e308,",
        "\"compile_seconds\":null,\"runs\":2,\"median\":0.375,\"quartile_1\":0.3125,",
        "\"quartile_3\":0.4375,\"least\":0.25,\"rate\":2730.6666666666665,\"limit\":0.0,",
        "\"share\":null,\"processes\":[{\"process\":\"1\",\"seconds\":[0.5,0.25]}],",
        "\"command\":\"fp8c tune --gemm 8x8x8:f32 --cache cold\"}\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(text, parts[i]) != NULL, "%s lacks %s", text, parts[i]);
    free(text);
    f8_arena_end(&set.arena);
}
END_TEST

/* ---- bad files ---- */

static const struct {
    const char *text;
    uint32_t line, column;
    const char *why;
} bad[] = {
    {"", 0, 0, "there is no record `benchmark` in this file"},
    {"{\"event\":\"step\"}\n", 0, 0, "there is no record `benchmark` in this file"},
    {ABOUT, 0, 0, "there is no record `timing` in this file"},
    {"m,n,k\n", 1, 1, "'[' or '{' expected near 'm'"},
    {ABOUT "\n{\"event\":\"process\",\"id\":\"1\"", 3, 27, "'}' expected"},
    {ABOUT "[1]\n", 2, 1, "this line is no record"},
    {ABOUT "{\"even\":\"timing\"}\n", 2, 1, "this line is no record"},
    {ABOUT "{\"event\":1}\n", 2, 2, "this line is no record"},
    {ABOUT "{\"event\":\"x\",\"event\":\"y\"}\n", 2, 20, "duplicate object key"},
    {ABOUT ABOUT, 2, 2, "a second record `benchmark`"},
    {"{\"event\":\"benchmark\"}\n", 1, 1, "schema: a whole number from 1"},
    {"{\"event\":\"benchmark\",\"schema\":0}\n", 1, 22, "schema: a whole number from 1"},
    {"{\"event\":\"benchmark\",\"schema\":\"1\"}\n", 1, 22, "schema: a whole number from 1"},
    {"{\"event\":\"benchmark\",\"schema\":2}\n", 1, 22,
     "schema 2 is of a later version of fp8c; this one reads up to 1"},
    {"{\"event\":\"benchmark\",\"schema\":1,\"device\":7}\n", 1, 33, "device: a text is expected"},
    {ABOUT "{\"event\":\"process\"}\n", 2, 2, "id is missing"},
    {ABOUT PROCESS PROCESS, 3, 20, "process 1 is there twice"},
    {ABOUT "{\"event\":\"process\",\"id\":\"1\",\"load\":-1}\n", 2, 29, "load: -1 is not from 0"},
    {ABOUT "{\"event\":\"process\",\"id\":\"1\",\"load\":\"1\"}\n", 2, 29,
     "load: a number is expected, or null"},
    {ABOUT "{\"event\":\"process\",\"id\":\"1\",\"cpus\":1.5}\n", 2, 29,
     "cpus: a whole number from 0"},
    {ABOUT "{\"event\":\"process\",\"id\":\"1\",\"before\":1}\n", 2, 29,
     "before: an object is expected"},
    {ABOUT "{\"event\":\"process\",\"id\":\"1\",\"before\":{\"bytes\":null}}\n", 2, 39,
     "bytes: a number is expected"},
    {ABOUT TIMED, 2, 119, "processes: no record `process` before this one is of '1'"},
    {ABOUT PROCESS "{\"event\":\"timing\"}\n", 3, 2, "problem is missing"},
    {ABOUT PROCESS TIMED TIMED, 4, 19, "'model' of p with a cold cache is there twice"},
    {ABOUT PROCESS WAY RUNS, 3, 2, "state is missing"},
    {ABOUT PROCESS WAY "\"state\":\"slow\"," RUNS, 3, 103,
     "state: 'slow' is none of timed, lacking, out of time"},
    {ABOUT PROCESS WAY "\"state\":\"lacking\"," RUNS, 3, 103,
     "state: 'lacking', but there are runs"},
    {ABOUT PROCESS WAY "\"state\":\"timed\",\"processes\":[]}\n", 3, 103,
     "state: 'timed', but there is no run"},
    {ABOUT PROCESS WAY "\"state\":\"timed\"}\n", 3, 1, "processes: a list is expected"},
    {ABOUT PROCESS WAY "\"state\":\"timed\",\"processes\":{}}\n", 3, 119, "a list is expected"},
    {ABOUT PROCESS WAY "\"state\":\"timed\",\"processes\":[1]}\n", 3, 119,
     "processes: number 1 is not a process with its seconds"},
    {ABOUT PROCESS WAY "\"state\":\"timed\",\"processes\":[{\"process\":\"1\",\"seconds\":[]}]}\n",
     3, 119, "processes: number 1 is not a process with its seconds"},
    {ABOUT PROCESS WAY "\"chosen\":1,\"state\":\"timed\"," RUNS, 3, 103,
     "chosen: true or false is expected"},
    {ABOUT PROCESS WAY "\"same_bits\":\"no\",\"state\":\"timed\"," RUNS, 3, 103,
     "same_bits: true or false is expected"},
    {ABOUT PROCESS WAY "\"count\":-1,\"state\":\"timed\"," RUNS, 3, 103, "count: a whole number"},
    {ABOUT PROCESS WAY "\"m\":99999999999999999999,\"state\":\"timed\"," RUNS, 3, 126,
     "too big integer"},
};

START_TEST(bad_files)
{
    f8_measure_set set;
    f8_diag diag = {0};
    ck_assert_int_eq(read_text(&set, bad[_i].text, strlen(bad[_i].text), &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, bad[_i].why) && diag.loc.line == bad[_i].line &&
                      (diag.loc.column == bad[_i].column),
                  "%s\n%u:%u: %s", bad[_i].text, diag.loc.line, diag.loc.column, diag.text);
    ck_assert_str_eq(diag.file, path);
    f8_arena_end(&set.arena);
}
END_TEST

static const struct {
    const char *seconds, *why;
} runs[] = {{"-1", "seconds: run 2 of process 1 is not a number from 0 to 1e+09"},
            {"1e30", "run 2 of process 1 is not"},
            {"null", "run 2 of process 1 is not"},
            {"\"1\"", "run 2 of process 1 is not"},
            {"NaN", "invalid token"},
            {"Infinity", "invalid token"},
            {"1e999", "real number overflow"},
            {"[1]", "run 2 of process 1 is not"}};

START_TEST(bad_seconds)
{
    char text[1024];
    f8_measure_set set;
    f8_diag diag = {0};
    snprintf(text, sizeof text,
             ABOUT PROCESS WAY
             "\"state\":\"timed\",\"processes\":[{\"process\":\"1\",\"seconds\":[1,%s]}]}\n",
             runs[_i].seconds);
    ck_assert_int_eq(read_text(&set, text, strlen(text), &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, runs[_i].why) && diag.loc.line == 3, "%s: %u: %s",
                  runs[_i].seconds, diag.loc.line, diag.text);
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(no_file)
{
    f8_measure_set set;
    test_measures_begin(&set);
    f8_diag diag = {0};
    ck_assert_int_eq(f8_measure_read(&set, "/nowhere/x.jsonl", &diag), F8_ERR_IO);
    ck_assert_str_eq(diag.file, "/nowhere/x.jsonl");
    f8_arena_end(&set.arena);
}
END_TEST

/* Files with a few other bytes, or cut: each is refused with its place, or is a set that is written
 * and read again. */
START_TEST(damage)
{
    f8_measure_set set;
    test_measures_begin(&set);
    uint32_t random = 7;
    size_t refused = 0, read = 0;
    fill(&set, &random);
    char *good = lines(&set), *text = strdup(good);
    const size_t size = strlen(good);
    f8_arena_end(&set.arena);
    for (int i = 0; i < 1500; i++) {
        static const char with[] = "0123456789-e.,:{}[]\"\n\\nulltrefas\x01\xff";
        f8_measure_set again;
        f8_diag diag = {0};
        memcpy(text, good, size);
        for (uint32_t j = test_random(&random) % 3; j < 3; j++)
            text[test_random(&random) % size] = with[test_random(&random) % (sizeof with - 1)];
        const size_t n = i % 3 ? size : test_random(&random) % size;
        const f8_status status = read_text(&again, text, n, &diag);
        if (status == F8_OK) {
            char *first = lines(&again);
            f8_measure_set third;
            f8_diag none = {0};
            ck_assert_msg(read_text(&third, first, strlen(first), &none) == F8_OK, "%u: %s",
                          none.loc.line, none.text);
            char *second = lines(&third);
            ck_assert_str_eq(first, second);
            free(first);
            free(second);
            f8_arena_end(&third.arena);
            read++;
        } else {
            ck_assert_int_eq(status, F8_ERR_INPUT);
            ck_assert(*diag.text != 0);
            refused++;
        }
        f8_arena_end(&again.arena);
    }
    ck_assert_msg(refused > 500 && read > 20, "%zu refused, %zu read", refused, read);
    free(good);
    free(text);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("measure_records");
    TCase *t = tcase_create("files");
    tcase_add_unchecked_fixture(t, make_file, remove_file);
    tcase_add_test(t, round_trips);
    tcase_add_test(t, least);
    tcase_add_test(t, fields);
    tcase_add_loop_test(t, bad_files, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_loop_test(t, bad_seconds, 0, (int)(sizeof runs / sizeof *runs));
    tcase_add_test(t, no_file);
    tcase_add_test(t, damage);
    suite_add_tcase(s, t);
    return s;
}
