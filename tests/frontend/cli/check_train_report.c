/* What `fp8c train` says of its runs: records of steps, the final loss, means and spreads over
 * seeds, warnings. Runs of a GPT small enough for many of them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

enum { TIMEOUT = 300, TEXT = 6000 };

static const char *make_text(void)
{
    return f8_cli_write_words("text", TEXT);
}

static double number(const json_t *record, const char *field)
{
    const json_t *v = json_object_get(record, field);
    ck_assert_msg(json_is_number(v), "no number '%s'", field);
    return json_number_value(v);
}

static json_t *records_of(char *text, const char *event)
{
    json_t *all = json_array();
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "no JSON: %s", line);
        if (!strcmp(json_string_value(json_object_get(record, "event")), event))
            json_array_append(all, record);
        json_decref(record);
    }
    return all;
}

static double at(const json_t *all, size_t index, const char *field)
{
    return number(json_array_get(all, index), field);
}

/* ---- steps ---- */

/* The final loss is the mean of the last min(20, steps/2) steps, and of one at least. */
START_TEST(final_loss)
{
    static const struct {
        int steps, tail;
        const char *text, *said;
    } want[] = {{1, 1, "1", "final loss is that of the last step;"},
                {3, 1, "3", "final loss is that of the last step;"},
                {9, 4, "9", "mean of the last 4 steps"},
                {50, 20, "50", "mean of the last 20 steps"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const char *json = f8_cli_temp("records");
        const f8_cli_result r = F8_CLI("train", GPT, "--data", make_text(), "--steps", want[i].text,
                                       SMALL, "--json", json);
        f8_cli_ok(r);
        ck_assert_msg(strstr(r.out, want[i].said), "%s", r.out);
        size_t n;
        char *text = f8_cli_read(json, &n);
        double sum = 0;
        int at = 0;
        for (char *save, *line = strtok_r(text, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
            json_t *record = json_loads(line, 0, NULL);
            if (at++ < want[i].steps)
                sum += at > want[i].steps - want[i].tail ? number(record, "loss") : 0;
            else
                ck_assert_double_eq_tol(number(record, "final_loss"), sum / want[i].tail, 1e-12);
            json_decref(record);
        }
        ck_assert_int_eq(at, want[i].steps + 1);
        free(text);
    }
}
END_TEST

/* The rates of the schedule, and norms that clipping and `lr` do not change at the first step. */
START_TEST(rates_and_norms)
{
    double norm[2] = {0};
    for (int i = 0; i < 2; i++) {
        const f8_cli_result r = F8_CLI("train", GPT, "--data", make_text(), "--steps", "40", SMALL,
                                       "--json", "-", "--lr", i ? "0.25" : "0.5");
        f8_cli_ok(r);
        int at = 0;
        for (char *save, *line = strtok_r(r.out, "\n", &save); line && at < 40;
             line = strtok_r(NULL, "\n", &save), at++) {
            json_t *record = json_loads(line, 0, NULL);
            const double t = at + 1, lr = i ? 0.25 : 0.5;
            const double cosine = 0.1 + 0.9 * 0.5 * (1 + cos(3.14159265358979 * (t - 20) / 20));
            ck_assert_double_eq_tol(number(record, "lr"), lr * (t < 20 ? t / 20 : cosine), 1e-6);
            if (at == 0)
                norm[i] = number(record, "grad_norm");
            json_decref(record);
        }
        ck_assert_int_eq(at, 40);
    }
    ck_assert(norm[0] > 0 && norm[0] == norm[1]);
}
END_TEST

/* ---- several seeds ---- */

static void mean_and_deviation(const double *x, int n, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    for (int i = 0; i < n; i++)
        squares += (x[i] - sum / n) * (x[i] - sum / n);
    *mean = sum / n;
    *deviation = sqrt(squares / (n - 1));
}

/* Each run has the bits of a run with its seed alone. The table and the records have the mean and
 * the sample standard deviation, and a gap inside its spread is marked. */
START_TEST(seeds)
{
    const char *json = f8_cli_temp("seeds");
    const f8_cli_result r = F8_CLI("train", GPT, "--data", make_text(), "--steps", "4", SMALL,
                                   "--json", json, "--recipe", "delayed", "--compare", "bf16",
                                   "--compare", "f32", "--seeds", "3", "--seed", "5");
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "3 seeds, from 5: losses are means, spread is their sample "
                                "standard deviation"),
                  "%s", r.out);
    ck_assert_ptr_null(strstr(r.out, "\none seed"));
    char *table = strdup(r.out);
    size_t n;
    char *text = f8_cli_read(json, &n), *copy = strdup(text);
    json_t *runs = records_of(text, "summary"), *spreads = records_of(copy, "spread");
    free(text);
    free(copy);
    ck_assert_uint_eq(json_array_size(runs), 9);
    ck_assert_uint_eq(json_array_size(spreads), 3);
    const f8_cli_result alone = F8_CLI("train", GPT, "--data", make_text(), "--steps", "4", SMALL,
                                       "--json", "-", "--recipe", "bf16", "--seed", "6");
    f8_cli_ok(alone);
    json_t *one = records_of(alone.out, "summary");
    ck_assert(at(runs, 4, "seed") == 6);
    ck_assert(at(runs, 4, "final_loss") == at(one, 0, "final_loss"));
    ck_assert(at(runs, 4, "heldout_loss") == at(one, 0, "heldout_loss"));
    json_decref(one);
    bool marked = false;
    for (size_t i = 0; i < 3; i++) {
        double loss[3], gap[3], mean, deviation;
        for (size_t k = 0; k < 3; k++) {
            loss[k] = at(runs, 3 * i + k, "final_loss");
            gap[k] = loss[k] / at(runs, 3 + k, "final_loss") - 1;
        }
        mean_and_deviation(loss, 3, &mean, &deviation);
        ck_assert_double_eq_tol(at(spreads, i, "final_loss"), mean, 1e-12);
        ck_assert_double_eq_tol(at(spreads, i, "final_loss_deviation"), deviation, 1e-12);
        const json_t *inside = json_object_get(json_array_get(spreads, i), "gap_inside_spread");
        ck_assert((inside == NULL) == (i == 1)); /* bf16 is what the others are compared with */
        if (!inside)
            continue;
        mean_and_deviation(gap, 3, &mean, &deviation);
        ck_assert_double_eq_tol(at(spreads, i, "gap"), mean, 1e-12);
        ck_assert_double_eq_tol(at(spreads, i, "gap_deviation"), deviation, 1e-12);
        ck_assert(json_is_true(inside) == (fabs(mean) <= deviation));
        char cell[64];
        snprintf(cell, sizeof cell, " %+.3f%% %7.3f%%%s", 100 * mean, 100 * deviation,
                 json_is_true(inside) ? " *" : "  ");
        ck_assert_msg(strstr(table, cell), "no '%s' in %s", cell, table);
        marked |= json_is_true(inside);
    }
    ck_assert(marked == (strstr(table, "\n* not larger than its spread: ") != NULL));
    json_decref(runs);
    json_decref(spreads);
    free(table);
}
END_TEST

START_TEST(one_seed)
{
    f8_cli_result r =
        F8_CLI("train", GPT, "--data", make_text(), "--steps", "2", SMALL, "--compare", "f32");
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "\none seed: no spread is known, so a gap may be chance; --seeds N "
                                "trains with N\n"),
                  "%s", r.out);
    r = F8_CLI("train", GPT, "--data", make_text(), "--seeds", "1001", SMALL);
    f8_cli_fails(r, 2, "--seeds 1001: at most 1000");
    r = F8_CLI("train", GPT, "--data", make_text(), "--seeds", "2", "--seed",
               "9223372036854775807");
    f8_cli_fails(r, 2, "none above 2^63 - 1");
    r = F8_CLI("train", GPT, "--data", make_text(), "--seeds", "0");
    f8_cli_fails(r, 2, "bad value for --seeds: '0'");
}
END_TEST

/* ---- runs that diverge ---- */

/* A run that diverges looks like one: warnings, each once; valid records; and a table. */
START_TEST(divergence)
{
    enum { LONG = 48 };
    static const struct {
        const char *lr;
        bool finite, warns;
        const char *kind; /* of the first warning */
    } want[] = {{"1e20", false, true, "loss_nonfinite"},
                {"10", true, true, "loss_explodes"},
                {"2", true, true, "loss_explodes"},
                {"1e-3", true, false, NULL}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const char *json = f8_cli_temp("diverging");
        const f8_cli_result r = F8_CLI("train", GPT, "--data", make_text(), "--steps", "48", SMALL,
                                       "--lr", want[i].lr, "--json", json);
        ck_assert_msg(r.code == 0, "%s", r.err);
        size_t n;
        char *text = f8_cli_read(json, &n), *copy = strdup(text);
        json_t *steps = records_of(text, "step"), *warnings = records_of(copy, "warning");
        free(text);
        free(copy);
        ck_assert_uint_eq(json_array_size(steps), LONG);
        int skipped = 0;
        for (size_t k = 0; k < LONG; k++) {
            const json_t *record = json_array_get(steps, k);
            const bool norm = json_is_number(json_object_get(record, "grad_norm"));
            ck_assert(json_is_true(json_object_get(record, "skipped")) == !norm);
            skipped += !norm;
        }
        ck_assert_msg((json_array_size(warnings) > 0) == want[i].warns, "lr %s: %s", want[i].lr,
                      r.err);
        const char *line = r.err;
        for (size_t k = 0; k < json_array_size(warnings); k++) { /* each is said, and no more */
            const json_t *w = json_array_get(warnings, k);
            char said[600];
            snprintf(said, sizeof said, "fp8c: warning: bf16, seed 1, step %d: %s\n",
                     (int)at(warnings, k, "step"),
                     json_string_value(json_object_get(w, "message")));
            ck_assert_msg(!strncmp(line, said, strlen(said)), "not '%s': %s", said, line);
            line += strlen(said);
        }
        ck_assert_str_eq(line, "");
        if (want[i].warns)
            ck_assert_str_eq(
                json_string_value(json_object_get(json_array_get(warnings, 0), "kind")),
                want[i].kind);
        ck_assert_msg(!strstr(r.out, "-nan"), "%s", r.out); /* a NaN has no sign to speak of */
        ck_assert((skipped > 0) == !want[i].finite);
        ck_assert((strstr(r.out, " steps were skipped: their gradient norm was not finite\n") !=
                   NULL) == !want[i].finite);
        json_decref(steps);
        json_decref(warnings);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("train_report");
    TCase *t = tcase_create("train_report");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, final_loss);
    tcase_add_test(t, rates_and_norms);
    tcase_add_test(t, seeds);
    tcase_add_test(t, one_seed);
    tcase_add_test(t, divergence);
    suite_add_tcase(s, t);
    return s;
}
