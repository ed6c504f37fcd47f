/* Running fp8c tune of GEMMs alone, with a database of the test's own, and reading its records. */
#ifndef F8_TEST_TUNE_CASE_H
#define F8_TEST_TUNE_CASE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300, PATH = 4400, MOST_RECORDS = 256 };

static char json[PATH], csv[PATH], markdown[PATH], t4[PATH], other[PATH];

static inline void setup(void)
{
    f8_cli_setup();
    setenv("FP8C_TUNING", f8_cli_temp("tuning.db"), 1);
    f8_cli_use_small_caches();
    snprintf(json, sizeof json, "%s", f8_cli_temp("a.jsonl"));
    snprintf(other, sizeof other, "%s", f8_cli_temp("b.jsonl"));
    snprintf(csv, sizeof csv, "%s", f8_cli_temp("a.csv"));
    snprintf(markdown, sizeof markdown, "%s", f8_cli_temp("a.md"));
    snprintf(t4, sizeof t4, "%s", f8_cli_temp("a.t4.json"));
}

/* ---- records ---- */

typedef struct records {
    json_t *record[MOST_RECORDS];
    size_t n;
} records;

static inline records read_text(const char *text)
{
    records r = {.n = 0};
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        json_error_t error;
        ck_assert_ptr_nonnull(strchr(line, '\n'));
        ck_assert_uint_lt(r.n, MOST_RECORDS);
        r.record[r.n] = json_loads(line, JSON_DISABLE_EOF_CHECK, &error);
        ck_assert_msg(r.record[r.n] != NULL, "%s: %s", error.text, line);
        r.n++;
    }
    return r;
}

static inline records read_file(const char *path)
{
    size_t n;
    char *text = f8_cli_read(path, &n);
    records r = read_text(text);
    free(text);
    return r;
}

static inline void forget(records *r)
{
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->record[i]);
    r->n = 0;
}

static inline const char *text_of(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

static inline double number_of(const json_t *record, const char *key)
{
    return json_number_value(json_object_get(record, key));
}

static inline size_t count(const records *r, const char *event)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += !strcmp(text_of(r->record[i], "event"), event);
    return n;
}

/* The way's record; fails if it is not there exactly once. */
static inline const json_t *timing(const records *r, const char *problem, const char *cache,
                                   const char *candidate)
{
    const json_t *found = NULL;
    for (size_t i = 0; i < r->n; i++) {
        const json_t *x = r->record[i];
        if (strcmp(text_of(x, "event"), "timing") || strcmp(text_of(x, "problem"), problem) ||
            strcmp(text_of(x, "cache"), cache) || strcmp(text_of(x, "candidate"), candidate))
            continue;
        ck_assert_ptr_null(found);
        found = x;
    }
    ck_assert_msg(found != NULL, "%s %s %s", problem, cache, candidate);
    return found;
}

/* How many processes measured the way. None is there twice, each is known, and so are its runs. */
static inline size_t processes_of(const records *r, const json_t *way)
{
    const json_t *all = json_object_get(way, "processes");
    size_t runs = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *id = text_of(json_array_get(all, i), "process");
        bool known = false;
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(text_of(json_array_get(all, k), "process"), id);
        for (size_t k = 0; k < r->n; k++)
            known |= !strcmp(text_of(r->record[k], "event"), "process") &&
                     !strcmp(text_of(r->record[k], "id"), id);
        ck_assert_msg(known, "no record of process %s", id);
        runs += json_array_size(json_object_get(json_array_get(all, i), "seconds"));
    }
    ck_assert_uint_eq(runs, (size_t)number_of(way, "runs"));
    return json_array_size(all);
}

/* Every way that was timed has runs of `least` to `most` processes; of a candidate that is a tenth
 * slower than the model's way fewer may do. */
static inline void all_have_from(const records *r, size_t least, size_t most)
{
    size_t timed = 0;
    for (size_t i = 0; i < r->n; i++) {
        const json_t *x = r->record[i];
        if (strcmp(text_of(x, "state"), "timed"))
            continue;
        const json_t *model = timing(r, text_of(x, "problem"), text_of(x, "cache"), "model");
        const size_t n = processes_of(r, x);
        const bool slow = !strcmp(text_of(x, "kind"), "candidate") &&
                          number_of(x, "least") > 1.1 * number_of(model, "least");
        ck_assert_msg(n <= most && (n >= least || (slow && n)), "%s: %zu processes",
                      text_of(x, "candidate"), n);
        timed++;
    }
    ck_assert_uint_gt(timed, 0);
}

static inline void all_have(const records *r, size_t processes)
{
    all_have_from(r, processes, processes);
}

/* Whether all ways have the same runs in both. */
static inline bool same_runs(const records *a, const records *b)
{
    bool same = count(a, "timing") == count(b, "timing");
    for (size_t i = 0; i < a->n; i++)
        if (!strcmp(text_of(a->record[i], "event"), "timing"))
            same &= json_equal(json_object_get(a->record[i], "processes"),
                               json_object_get(timing(b, text_of(a->record[i], "problem"),
                                                      text_of(a->record[i], "cache"),
                                                      text_of(a->record[i], "candidate")),
                                               "processes"));
    return same;
}

#define TWO "--gemm", "16x32x48:f8e4m3,bf16:bf16", "--runs", "2", "--threads", "1"

static inline void write_all(const char *text)
{
    const char *const path[] = {json, csv, markdown, t4};
    for (int i = 0; i < 4; i++) {
        FILE *f = fopen(path[i], "w");
        ck_assert(f && fputs(text, f) >= 0 && !fclose(f));
    }
}

static inline void all_are(const char *text)
{
    const char *const path[] = {json, csv, markdown, t4};
    for (int i = 0; i < 4; i++) {
        size_t n;
        char *now = f8_cli_read(path[i], &n);
        ck_assert_str_eq(now, text);
        free(now);
    }
}

#define ONE "--gemm", "16x16x16:f32", "--runs", "1", "--processes", "1"
#define FILES "--json", json, "--csv", csv, "--markdown", markdown, "--t4", t4

#endif
