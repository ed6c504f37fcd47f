/* --profile of `fp8c train`, `eval` and `run`: what it prints and records of the time of a plan's
 * steps. Nothing here asserts how long anything takes; times must agree with one another. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=2", "-D", "C=32", "-D", "H=2"

enum { TIMEOUT = 600, MOST = 400 };

typedef struct profile {
    json_t *row[MOST], *sum[MOST], *summary;
    int n_rows, n_sums, n_summaries;
} profile;

static const char *text_of(const json_t *record, const char *field)
{
    const char *text = json_string_value(json_object_get(record, field));
    ck_assert_msg(text != NULL, "no text '%s'", field);
    return text;
}

static double number(const json_t *record, const char *field)
{
    const json_t *v = json_object_get(record, field);
    ck_assert_msg(json_is_number(v), "no number '%s'", field);
    return json_number_value(v);
}

static bool is_null(const json_t *record, const char *field)
{
    const json_t *v = json_object_get(record, field);
    ck_assert_msg(v != NULL, "no field '%s'", field);
    return json_is_null(v);
}

/* The records of a profile in a file of records. */
static profile read_profile(const char *path)
{
    size_t n;
    profile p = {0};
    char *text = f8_cli_read(path, &n);
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "no JSON: %s", line);
        const char *event = text_of(record, "event");
        ck_assert_int_lt(p.n_rows, MOST);
        if (!strcmp(event, "profile"))
            p.row[p.n_rows++] = record;
        else if (!strcmp(event, "profile_sum"))
            p.sum[p.n_sums++] = record;
        else if (!strcmp(event, "profile_summary") && !p.n_summaries++)
            p.summary = record;
        else
            json_decref(record);
    }
    free(text);
    return p;
}

static void end(profile *p)
{
    for (int i = 0; i < p->n_rows; i++)
        json_decref(p->row[i]);
    for (int i = 0; i < p->n_sums; i++)
        json_decref(p->sum[i]);
    json_decref(p->summary);
}

static const json_t *sum_of(const profile *p, const char *by, const char *name)
{
    for (int i = 0; i < p->n_sums; i++)
        if (!strcmp(text_of(p->sum[i], "by"), by) && !strcmp(text_of(p->sum[i], "name"), name))
            return p->sum[i];
    return NULL;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b));
}

/* Rows in order of time, shares that add up, and rates in the unit of the work. */
static void check_rows(const profile *p)
{
    double all = 0, share = 0, last = INFINITY, estimated = 0;
    ck_assert_int_eq(p->n_summaries, 1);
    for (int i = 0; i < p->n_rows; i++) {
        const json_t *r = p->row[i];
        const double seconds = number(r, "turn_seconds");
        const char *work = text_of(r, "work");
        const bool products = !strcmp(work, "gemm") || !strcmp(work, "attention");
        ck_assert_double_le(seconds, last);
        ck_assert_double_gt(number(r, "seconds"), 0);
        last = seconds;
        all += seconds;
        share += number(r, "share");
        ck_assert(near(number(r, "cumulative_share"), share));
        ck_assert(is_null(r, "bytes_per_second") == products);
        ck_assert(is_null(r, "flops_per_second") == !products);
        if (!is_null(r, "limit_per_second"))
            ck_assert(near(number(r, "of_limit"),
                           number(r, products ? "flops_per_second" : "bytes_per_second") /
                               number(r, "limit_per_second")));
        estimated += is_null(r, "estimated_seconds") ? 0 : number(r, "estimated_seconds");
    }
    ck_assert(near(share, 1));
    ck_assert(near(number(p->summary, "turn_seconds"), all));
    ck_assert(near(number(p->summary, "estimated_seconds"), estimated));
    ck_assert_double_gt(number(p->summary, "limit_bytes_per_second"), 1e6);
    ck_assert(strlen(text_of(p->summary, "limits")) > 0);
}

/* A GEMM's limit is that of the unit that multiplies its operands. */
static void check_limits(const profile *p)
{
    static const struct {
        const char *algorithm, *limit; /* NULL: there is none */
    } of[] = {{"onednn-f32", "limit_flops_per_second"},
              {"onednn-bf16", "limit_bf16_flops_per_second"},
              {"f64", NULL}};
    int gemms = 0, found = 0;
    for (int i = 0; i < p->n_rows; i++) {
        const json_t *r = p->row[i];
        if (strcmp(text_of(r, "work"), "gemm") != 0)
            continue;
        gemms++;
        for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
            if (strncmp(text_of(r, "algorithm"), of[k].algorithm, strlen(of[k].algorithm)) != 0)
                continue;
            found++;
            ck_assert(
                json_equal(json_object_get(r, "limit_per_second"),
                           of[k].limit ? json_object_get(p->summary, of[k].limit) : json_null()));
        }
    }
    ck_assert_int_eq(found, gemms);
    /* oneDNN's bf16 needs the unit, so where it was chosen its limit is known */
    for (int i = 0; i < p->n_rows; i++)
        if (!strcmp(text_of(p->row[i], "work"), "gemm") &&
            !strncmp(text_of(p->row[i], "algorithm"), "onednn-bf16", 11))
            ck_assert_double_gt(number(p->summary, "limit_bf16_flops_per_second"), 1e6);
}

/* Each kind of sum has every row once. */
static void check_sums(const profile *p)
{
    static const char *const by[] = {"work", "layer"};
    for (int k = 0; k < 2; k++) {
        double seconds = 0, steps = 0, share = 0;
        for (int i = 0; i < p->n_sums; i++) {
            if (strcmp(text_of(p->sum[i], "by"), by[k]) != 0)
                continue;
            seconds += number(p->sum[i], "turn_seconds");
            steps += number(p->sum[i], "steps");
            share += number(p->sum[i], "share");
        }
        ck_assert(near(seconds, number(p->summary, "turn_seconds")));
        ck_assert_int_eq((int)steps, p->n_rows);
        ck_assert(near(share, 1));
    }
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

/* ---- train ---- */

START_TEST(of_train)
{
    static const char *const recipes[] = {"bf16", "delayed", "current"};
    const char *json = f8_cli_temp("records"), *data = f8_cli_write_words("text", 6000);
    const f8_cli_result r = F8_CLI("train", GPT, "--data", data, "--steps", "6", SMALL, "--recipe",
                                   recipes[_i], "--eval-every", "2", "--json", json, "--profile");
    f8_cli_ok(r);
    profile p = read_profile(json);
    check_rows(&p);
    check_sums(&p);
    check_limits(&p);
    ck_assert_str_eq(text_of(p.summary, "turn"), "optimizer step");
    ck_assert_str_eq(text_of(p.summary, "recipe"), recipes[_i]);
    ck_assert_double_eq(number(p.summary, "turns"), 6);
    for (int i = 0; i < p.n_rows; i++) /* evaluations are no part of a step */
        ck_assert_str_ne(text_of(p.row[i], "function"), "eval");
    static const char *const works[] = {"gemm", "attention", "rows", "update"};
    for (int i = 0; i < 4; i++)
        ck_assert_msg(sum_of(&p, "work", works[i]) != NULL, "no %s", works[i]);
    for (int i = 0; i < 2; i++)
        ck_assert_ptr_nonnull(sum_of(&p, "layer", i ? "1" : "0"));
    ck_assert_ptr_null(sum_of(&p, "layer", "2"));
    ck_assert_ptr_nonnull(sum_of(&p, "layer", "none"));
    /* the head is in no layer, and no name of a layer is taken for one */
    ck_assert_double_gt(number(sum_of(&p, "layer", "0"), "steps"), 20);
    end(&p);
}
END_TEST

/* 25 rows, or as many as are asked for; short times in their units. */
START_TEST(rows_shown)
{
    static const struct {
        const char *rows;
        int n;
    } want[] = {{NULL, 25}, {"3", 3}, {"all", -1}};
    const char *data = f8_cli_write_words("text", 6000), *json = f8_cli_temp("records");
    for (int i = 0; i < 3; i++) {
        const f8_cli_result r =
            F8_CLI("train", GPT, "--data", data, "--steps", "2", SMALL, "--json", json, "--profile",
                   want[i].rows ? "--profile-rows" : NULL, want[i].rows);
        f8_cli_ok(r);
        profile p = read_profile(json);
        ck_assert_int_gt(p.n_rows, 60);
        const int n = want[i].n < 0 ? p.n_rows : want[i].n;
        ck_assert_int_eq(count(r.out, "  micro_step ") + count(r.out, "  update        "), n);
        const int cut = n == p.n_rows ? 0
                        : n == 3      ? 2
                                      : 1; /* the steps; with 3 the kinds of work */
        ck_assert_int_eq(count(r.out, "more: --profile-rows all"), cut);
        ck_assert_ptr_nonnull(strstr(r.out, " us  "));
        ck_assert_ptr_null(strstr(r.out, "0.000000"));
        ck_assert_ptr_nonnull(strstr(r.out, "\nlimits: "));
        ck_assert_ptr_nonnull(strstr(r.out, "estimated"));
        end(&p);
    }
}
END_TEST

/* ---- eval and run ---- */

START_TEST(of_eval)
{
    const char *data = f8_cli_write_words("text", 6000), *json = f8_cli_temp("records");
    char weights[4200];
    snprintf(weights, sizeof weights, "%s", f8_cli_temp("gpt.safetensors"));
    f8_cli_ok(F8_CLI("train", GPT, "--data", data, "--steps", "1", SMALL, "--save", weights));
    const f8_cli_result r = F8_CLI("eval", GPT, "--data", data, SMALL, "--weights", weights,
                                   "--json", json, "--profile", "--profile-rows", "4");
    f8_cli_ok(r);
    profile p = read_profile(json);
    check_rows(&p);
    check_sums(&p);
    ck_assert_str_eq(text_of(p.summary, "turn"), "batch");
    ck_assert_int_eq(count(r.out, "  eval  "), 4);
    ck_assert_ptr_null(sum_of(&p, "work", "update"));
    end(&p);
}
END_TEST

static const char *zeros(const char *name, int rows, int columns)
{
    char file[200 + 64 * 64 * 4] = {0};
    const int length =
        snprintf(file + 10, 120, "{'descr': '<i4', 'fortran_order': False, 'shape': (%d, %d), }\n",
                 rows, columns);
    memcpy(file, "\x93NUMPY\1", 8);
    file[8] = (char)length, file[9] = 0;
    return f8_cli_write(name, file, 10 + (size_t)length + (size_t)(4 * rows * columns));
}

/* A compiled file knows what its steps do, and what was estimated. */
START_TEST(of_run)
{
    char json[4200], file[4200], tokens[4200], targets[4200];
    snprintf(json, sizeof json, "%s", f8_cli_temp("records"));
    snprintf(file, sizeof file, "%s", f8_cli_temp("gpt.f8x"));
    snprintf(tokens, sizeof tokens, "tokens=%s", zeros("tokens.npy", 2, 32));
    snprintf(targets, sizeof targets, "targets=%s", zeros("targets.npy", 2, 32));
    f8_cli_ok(F8_CLI("compile", GPT, SMALL, "--steps", "5", "--recipe", "delayed", "-o", file));
    for (int i = 0; i < 2; i++) {
        const f8_cli_result r =
            i ? F8_CLI("run", file, "--input", tokens, "--input", targets, "--function",
                       "micro_step", "--function", "update", "--repeat", "3", "--json", json,
                       "--profile")
              : F8_CLI("run", GPT, SMALL, "--steps", "5", "--recipe", "delayed", "--input", tokens,
                       "--input", targets, "--function", "micro_step", "--function", "update",
                       "--repeat", "3", "--json", json, "--profile");
        f8_cli_ok(r);
        profile p = read_profile(json);
        check_rows(&p);
        check_sums(&p);
        ck_assert_str_eq(text_of(p.summary, "turn"), "repetition");
        ck_assert_double_eq(number(p.summary, "turns"), 3);
        ck_assert_double_gt(number(p.summary, "estimated_seconds"), 0);
        ck_assert_ptr_nonnull(sum_of(&p, "work", "attention"));
        ck_assert_double_gt(number(sum_of(&p, "work", "attention"), "flops_per_second"), 0);
        end(&p);
    }
}
END_TEST

/* The interpreter has no plan. */
START_TEST(without_plan)
{
    const char *data = f8_cli_write_words("text", 6000);
    const f8_cli_result r = F8_CLI("train", GPT, "--data", data, "--steps", "1", SMALL, "--target",
                                   "reference", "--profile");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "profile: target reference has no plan"));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("profile");
    TCase *t = tcase_create("profile");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, of_train, 0, 3);
    tcase_add_test(t, rows_shown);
    tcase_add_test(t, of_eval);
    tcase_add_test(t, of_run);
    tcase_add_test(t, without_plan);
    suite_add_tcase(s, t);
    return s;
}
