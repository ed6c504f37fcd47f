/* Kernel Tuner's T4: sets whose texts and numbers are odd are written, and what is read back is
 * what the set holds. Of all formats: an empty set, and no memory. Kernel Tuner's schema judges
 * real ones (tests/peers/tune_files.py). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/measure/odd_set.h"
#include "tests/shared/suite.h"

/* The figure of that name; NULL: it has none. */
static json_t *figure(json_t *result, const char *name)
{
    size_t i;
    json_t *x;
    json_array_foreach (json_object_get(result, "measurements"), i, x)
        if (!strcmp(json_string_value(json_object_get(x, "name")), name))
            return x;
    return NULL;
}

static json_t *t4_of(const f8_measure_set *set)
{
    char *text = f8_measure_t4(set);
    ck_assert_ptr_nonnull(text);
    json_error_t error;
    json_t *file = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(file, "%s", error.text);
    free(text);
    ck_assert_str_eq(json_string_value(json_object_get(file, "schema_version")), "1.0.0");
    ck_assert_uint_eq(json_array_size(json_object_get(file, "results")), set->n_measurements);
    return file;
}

static const char *word(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

START_TEST(t4)
{
    static const char *const invalidity[] = {"correct", "correctness", "constraints", "timeout",
                                             "correct"};
    static const size_t runs[] = {4, 1, 0, 0, 1};
    f8_measure_set set = odd_set();
    odd_set_fill(&set);
    json_t *file = t4_of(&set), *results = json_object_get(file, "results");
    json_t *metadata = json_object_get(file, "metadata"), *r = json_array_get(results, 0);
    for (size_t i = 0; i < 5; i++) {
        json_t *x = json_array_get(results, i), *times = json_object_get(x, "times");
        ck_assert_str_eq(word(x, "invalidity"), invalidity[i]);
        ck_assert_int_eq(json_integer_value(json_object_get(x, "correctness")),
                         !strcmp(invalidity[i], "correct"));
        ck_assert_uint_eq(json_array_size(json_object_get(times, "runtimes")), runs[i]);
        ck_assert_int_eq(figure(x, "median") != NULL, runs[i] > 0);
        ck_assert_int_eq(json_object_get(times, "compilation_time") != NULL, runs[i] > 0);
        ck_assert_str_eq(word(json_object_get(x, "configuration"), "inputs"), "normal");
    }
    json_t *configuration = json_object_get(r, "configuration");
    ck_assert_uint_eq(json_object_size(configuration), 5);
    ck_assert_str_eq(word(configuration, "problem"), "64x32x128:f8e4m3:fprop:bias");
    ck_assert_str_eq(word(configuration, "candidate"), "model");
    ck_assert_str_eq(word(configuration, "cache"), "cold");
    ck_assert_int_eq(json_integer_value(json_object_get(configuration, "threads")), 2);
    ck_assert_str_eq(word(r, "timestamp"), "2026-11-28T04:37:18Z");
    json_t *times = json_object_get(r, "times"), *runtimes = json_object_get(times, "runtimes");
    for (size_t i = 0; i < 3; i++)
        ck_assert(json_real_value(json_array_get(runtimes, i)) == 1000 * odd_first_runs[i]);
    ck_assert(json_real_value(json_array_get(runtimes, 3)) == 1000 * odd_second_runs[0]);
    ck_assert(json_real_value(json_object_get(times, "compilation_time")) == 125);
    ck_assert(json_real_value(json_object_get(figure(r, "least"), "value")) == odd_second_runs[0]);
    ck_assert_str_eq(word(figure(r, "least"), "unit"), "s");
    ck_assert_str_eq(word(figure(r, "rate"), "unit"), "FLOP/s");
    ck_assert_str_eq(word(figure(json_array_get(results, 4), "rate"), "unit"), "B/s");
    ck_assert_str_eq(word(figure(json_array_get(results, 2), "reason"), "value"),
                     "no \"unit\", sorry\nand | no more");
    ck_assert_str_eq(word(figure(r, "name"), "value"), "h.0|c_fc, \"odd\"\nname");
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(r, "objectives"), 0)),
                     "median");
    ck_assert_str_eq(word(metadata, "timeunit"), "milliseconds");
    ck_assert_str_eq(word(metadata, "processor"), "Zürich\n9000");
    ck_assert_str_eq(word(metadata, "set_command"), set.about.command);
    json_decref(file);
    f8_arena_end(&set.arena);
}
END_TEST

/* JSON has no number of that size: what is left out is no failure. */
START_TEST(t4_beyond_numbers)
{
    const double huge[] = {1e307, 1};
    f8_measure_set set = odd_set();
    f8_measure_runs runs = {"p", huge, 2};
    const f8_measurement m = {.problem = {.text = "p", .m = 1, .flops = 1, .bytes = 1},
                              .error = INFINITY,
                              .compile_seconds = NAN,
                              .process = &runs,
                              .n_processes = 1};
    ck_assert_int_eq(f8_measure_add(&set, &m, NULL), F8_OK);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    json_t *file = t4_of(&set), *r = json_array_get(json_object_get(file, "results"), 0);
    json_t *runtimes = json_object_get(json_object_get(r, "times"), "runtimes");
    ck_assert(json_is_null(json_array_get(runtimes, 0)));
    ck_assert(json_real_value(json_array_get(runtimes, 1)) == 1000);
    ck_assert_ptr_null(figure(r, "error"));
    ck_assert_ptr_nonnull(figure(r, "least"));
    ck_assert_str_eq(word(r, "invalidity"), "correctness");
    json_decref(file);
    f8_arena_end(&set.arena);
}
END_TEST

/* ---- all of them ---- */

static char *(*const writers[])(const f8_measure_set *) = {f8_measure_csv, f8_measure_markdown,
                                                           f8_measure_t4};

START_TEST(an_empty_set)
{
    f8_measure_set set = odd_set();
    char *text = writers[_i](&set);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_null(strstr(text, "nan"));
    free(text);
    f8_arena_end(&set.arena);
}
END_TEST

/* An allocator that has memory for so many calls. */
static void *alloc_some(void *user, size_t size, size_t align)
{
    int *left = user;
    const f8_allocator usual = f8_default_allocator();
    return (*left)-- > 0 ? usual.alloc(NULL, size, align) : NULL;
}

static void free_one(void *user, void *ptr, size_t size)
{
    const f8_allocator usual = f8_default_allocator();
    (void)user;
    usual.free(NULL, ptr, size);
}

/* Without memory there is no text, and never one that lacks something. */
START_TEST(no_memory)
{
    enum { RUNS = 40000 }; /* as a text more than the arena's first pieces of 128 and 256 KiB */
    f8_measure_set set = odd_set();
    double *many = malloc(RUNS * sizeof *many);
    ck_assert_ptr_nonnull(many);
    for (int i = 0; i < RUNS; i++)
        many[i] = 1 + i / 3.0;
    f8_measure_runs runs = {"first", many, RUNS};
    f8_measurement m = {.problem = {.text = "a\nb", .count = 1},
                        .cache = "warm",
                        .candidate = "model",
                        .process = &runs,
                        .n_processes = 1};
    odd_set_fill(&set);
    ck_assert_int_eq(f8_measure_add(&set, &m, NULL), F8_OK);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    char *whole = writers[_i](&set);
    ck_assert_ptr_nonnull(whole);
    int failed = 0;
    bool written = false;
    for (int n = 0; n < 20 && !written; n++) {
        int left = n;
        f8_measure_set poor = set;
        poor.arena.allocator = (f8_allocator){alloc_some, free_one, &left};
        char *text = writers[_i](&poor);
        written = text != NULL;
        failed += !text;
        if (text)
            ck_assert_msg(!strcmp(text, whole), "with %d allocations the text is another", n);
        free(text);
    }
    ck_assert(written);
    ck_assert_int_ge(failed, 1);
    free(whole);
    free(many);
    f8_arena_end(&set.arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("t4");
    TCase *c = tcase_create("t4");
    tcase_add_test(c, t4);
    tcase_add_test(c, t4_beyond_numbers);
    suite_add_tcase(s, c);
    c = tcase_create("all");
    tcase_add_loop_test(c, an_empty_set, 0, 3);
    tcase_add_loop_test(c, no_memory, 0, 3);
    suite_add_tcase(s, c);
    return s;
}
