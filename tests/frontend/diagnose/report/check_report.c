/* The page of a report: what its data hold, its size, and where it finds that runs part. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/api/report_case.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300, MOST_BYTES = 5000000 };

static void setup(void)
{
    f8_cli_setup();
}

static void teardown(void)
{
    static const char *const names[] = {"good", "bad", "other"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        f8_cli_forget(f8_cli_temp(names[i]));
    f8_cli_teardown();
}

/* ---- the page's data ---- */

static f8_report read_runs(const char *const *folders, size_t n)
{
    f8_diag diag = {0};
    f8_report r;
    ck_assert_msg(f8_report_read(&r, F8_REPORT_RUNS, folders, n, &diag) == F8_OK, "%s: %s",
                  diag.file, diag.text);
    return r;
}

static int count(const char *text, const char *words)
{
    int n = 0;
    for (; (text = strstr(text, words)); text += strlen(words))
        n++;
    return n;
}

/* The JSON block of a page that needs nothing else. */
static json_t *data_of(const char *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    static const char *const foreign[] = {"src=",    "href=\"h", "@import",        "url(",
                                          "fetch(",  "import(",  "XMLHttpRequest", "@DATA@",
                                          "@STYLE@", "@SCRIPT@"};
    json_error_t error;
    ck_assert_int_eq(count(page, begin), 1);
    ck_assert_int_eq(count(page, "<script"), 2);
    ck_assert_int_eq(count(page, "</script>"), 2);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        ck_assert_msg(!strstr(page, foreign[i]), "the page has %s", foreign[i]);
    const char *from = strstr(page, begin) + strlen(begin), *end = strstr(from, "</script>");
    ck_assert_ptr_null(memchr(from, '<', (size_t)(end - from)));
    json_t *data = json_loadb(from, (size_t)(end - from), JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(data != NULL, "%s", error.text);
    return data;
}

static json_t *page_data(const f8_report *r, size_t *size)
{
    f8_diag diag = {0};
    char *page;
    ck_assert_msg(f8_report_page(r, 0, &page, size, &diag) == F8_OK, "%s", diag.text);
    ck_assert_uint_eq(strlen(page), *size);
    json_t *data = data_of(page);
    free(page);
    return data;
}

static json_t *at(const json_t *value, const char *name)
{
    json_t *found = json_object_get(value, name);
    ck_assert_msg(found != NULL, "there is no %s", name);
    return found;
}

static json_t *run_at(const json_t *data, size_t i)
{
    return json_array_get(at(data, "runs"), i);
}

static json_t *tensor_at(const json_t *run, const char *name)
{
    size_t i;
    json_t *t;
    json_array_foreach (at(at(run, "stats"), "tensors"), i, t)
        if (!strcmp(json_string_value(at(t, "tensor")), name))
            return t;
    ck_abort_msg("there is no tensor %s", name);
    return NULL;
}

/* Every figure is on the page: its column of a quantized tensor, and how its unit is shown. */
START_TEST(shows_every_figure)
{
    const char *folder = f8_report_case_write(
        "figures",
        &(f8_report_case){.layers = 1, .steps = 20, .every = 10, .seed = 1, .recipe = "delayed"});
    size_t size;
    char unit[40];
    f8_report r = read_runs(&folder, 1);
    json_t *data = page_data(&r, &size);
    const json_t *x = tensor_at(run_at(data, 0), "h.0.attn.x");
    for (int i = 0; i < F8_FIGURES; i++) {
        const f8_figure *f = &f8_figures[i];
        ck_assert_str_eq(
            json_string_value(at(json_array_get(at(data, "figures"), (size_t)i), "name")), f->name);
        ck_assert_msg(json_is_number(json_object_get(x, f->name)) ||
                          json_is_array(json_object_get(x, f->name)),
                      "%s is not on the page", f->name);
        snprintf(unit, sizeof unit, "%s: {", f->unit);
        ck_assert_msg(strstr(f8_report_js_base, unit) != NULL, "base.js has no %s", unit);
        ck_assert_msg(f8_figures[f->beside].beside == f->beside, "%s has no picture", f->name);
    }
    json_decref(data);
    f8_report_free(&r);
}
END_TEST

START_TEST(holds_what_the_folder_has)
{
    const char *folder = f8_report_case_write(
        "good",
        &(f8_report_case){.layers = 2, .steps = 120, .every = 10, .seed = 1, .recipe = "delayed"});
    size_t size;
    f8_report r = read_runs(&folder, 1);
    json_t *data = page_data(&r, &size);
    const json_t *run = run_at(data, 0), *steps = at(run, "steps"), *stats = at(run, "stats");
    ck_assert_str_eq(json_string_value(at(run, "name")), "good");
    ck_assert_uint_eq(json_array_size(at(steps, "step")), 120);
    ck_assert_uint_eq(json_array_size(at(steps, "loss")), 120);
    ck_assert_int_eq(json_integer_value(json_array_get(at(steps, "step"), 119)), 120);
    ck_assert(fabs(json_number_value(json_array_get(at(steps, "loss"), 119)) -
                   r.run->step[119].loss) < 1e-5);
    ck_assert_uint_eq(json_array_size(at(run, "evals")), 2);
    ck_assert_uint_eq(json_array_size(at(run, "decisions")), 1);
    ck_assert(json_is_null(at(run, "plan")) && json_is_null(at(run, "profile")));
    ck_assert_uint_eq(json_array_size(at(stats, "tensors")), 2 * 2 * 4);
    ck_assert_int_eq(json_integer_value(at(stats, "watched")), 12);
    ck_assert_int_eq(json_integer_value(at(stats, "each")), 1);
    const json_t *x = tensor_at(run, "h.0.attn.x"), *y = tensor_at(run, "h.0.attn.y");
    ck_assert_uint_eq(json_array_size(at(x, "underflow")), 12);
    ck_assert_int_eq(json_integer_value(at(x, "nonfinite")), 0); /* of all steps */
    ck_assert_ptr_null(json_object_get(y, "underflow"));
    ck_assert_uint_eq(json_array_size(at(y, "amax")), 12);
    json_decref(data);
    f8_report_free(&r);
}
END_TEST

/* A name may be anything: none ends the block of the data, and all come through. */
START_TEST(escapes_names)
{
    const char *folder = f8_report_case_write(
        "good", &(f8_report_case){.layers = 1,
                                  .steps = 3,
                                  .every = 1,
                                  .seed = 1,
                                  .recipe = "delayed",
                                  .prefix = "</script><script>alert(1)</script><!--&amp;\\u2028"});
    size_t size;
    f8_report r = read_runs(&folder, 1);
    json_t *data = page_data(&r, &size);
    tensor_at(run_at(data, 0), "</script><script>alert(1)</script><!--&amp;\u2028.0.mlp.x");
    json_decref(data);
    f8_report_free(&r);
}
END_TEST

/* Without statistics, and with losses that are no numbers. */
START_TEST(without_statistics)
{
    const char *folder =
        f8_report_case_write("good", &(f8_report_case){.steps = 2, .seed = 1, .recipe = "bf16"});
    size_t size;
    f8_report_case_put(
        folder, "steps.jsonl",
        "{\"event\":\"step\",\"step\":3,\"loss\":null,\"grad_norm\":null,\"lr\":null,"
        "\"skipped\":true,\"rows_per_second\":5}\n"
        "{\"event\":\"warning\",\"step\":3,\"loss\":null,\"message\":\"is not finite\"}\n"
        "{\"event\":\"health\",\"step\":3,\"device\":\"GPU 0\",\"message\":\"XID 79\"}\n"
        "{\"event\":\"health_summary\",\"step\":3,\"faults\":1,\"values\":{}}\n"
        "{\"event\":\"step\",\"step\":4,\"lo",
        true); /* a line that is being written */
    f8_report r = read_runs(&folder, 1);
    json_t *data = page_data(&r, &size);
    const json_t *run = run_at(data, 0), *steps = at(run, "steps");
    ck_assert(json_is_null(at(run, "stats")));
    ck_assert_uint_eq(json_array_size(at(steps, "loss")), 3);
    ck_assert(json_is_null(json_array_get(at(steps, "loss"), 2)));
    ck_assert_int_eq(json_integer_value(json_array_get(at(steps, "skipped"), 0)), 3);
    ck_assert_uint_eq(json_array_size(at(run, "warnings")), 1);
    ck_assert_uint_eq(json_array_size(at(run, "health")), 2);
    ck_assert_str_eq(json_string_value(at(steps, "rate_name")), "rows_per_second");
    json_decref(data);
    f8_report_free(&r);
}
END_TEST

/* What a recipe that is not in use would do is a series of its own, under the name that the tensor
 * has where it is in use. */
START_TEST(what_if_figures)
{
    const char *folder =
        f8_report_case_write("good", &(f8_report_case){.steps = 2, .seed = 1, .recipe = "bf16"});
    size_t size;
    f8_report_case_put(folder, "steps.jsonl",
                       "{\"event\":\"stats\",\"step\":3,\"tensor\":\"t.x\",\"linear\":\"t\","
                       "\"operand\":\"x\",\"quantized\":null,\"what_if\":false,\"amax\":3}\n"
                       "{\"event\":\"stats\",\"step\":3,\"tensor\":\"t.x@block\",\"linear\":\"t\","
                       "\"operand\":\"x\",\"quantized\":\"block\",\"what_if\":true,\"mse\":0.5}\n"
                       "{\"event\":\"step\",\"step\":3,\"loss\":1}\n",
                       true);
    f8_report r = read_runs(&folder, 1);
    json_t *data = page_data(&r, &size);
    const json_t *all = at(at(run_at(data, 0), "stats"), "tensors"), *in_use, *what_if;
    ck_assert_uint_eq(json_array_size(all), 2);
    in_use = json_array_get(all, 0);
    what_if = json_array_get(all, 1);
    ck_assert(json_is_false(at(in_use, "what_if")) && json_is_true(at(what_if, "what_if")));
    ck_assert_str_eq(json_string_value(at(in_use, "tensor")), "t.x");
    ck_assert_str_eq(json_string_value(at(what_if, "tensor")), "t.x");
    ck_assert_int_eq(json_integer_value(at(in_use, "amax")), 3);
    ck_assert(json_number_value(at(what_if, "mse")) == 0.5);
    json_decref(data);
    f8_report_free(&r);
}
END_TEST

/* ---- size ---- */

enum { LAYERS = 24, LINEARS = 4, OPERANDS = 6, WATCHED = 1000, SPIKE = 617 };

/* A run of 24 layers, of which every step was watched, without the files it would take. */
static void make_large(f8_report_run *run)
{
    static const char *const operands[] = {"x", "w", "dy", "y", "dx", "dw"};
    char name[80];
    uint32_t seed = 1;
    run->n_series = LAYERS * LINEARS * OPERANDS;
    run->series = calloc(run->n_series, sizeof *run->series);
    run->watched = calloc(WATCHED, sizeof *run->watched);
    run->has_stats = true;
    run->n_watched = WATCHED;
    for (int i = 0; i < WATCHED; i++)
        run->watched[i] = i + 1;
    for (size_t i = 0; i < run->n_series; i++) {
        f8_report_series *s = &run->series[i];
        const char *operand = operands[i % OPERANDS];
        snprintf(name, sizeof name, "h.%zu.mlp.c_%zu.%s", i / OPERANDS / LINEARS,
                 i / OPERANDS % LINEARS, operand);
        *s = (f8_report_series){.tensor = strdup(name),
                                .linear = strdup(name),
                                .operand = strdup(operand),
                                .quantized = strdup(i % OPERANDS < 3 ? "delayed" : ""),
                                .format = strdup("f8e4m3"),
                                .granularity = strdup("tensor"),
                                .n = WATCHED,
                                .point = calloc(WATCHED, sizeof *s->point)};
        for (int k = 0; k < WATCHED; k++) {
            s->point[k].step = k + 1;
            for (int f = 0; f < F8_FIGURES; f++)
                s->point[k].figure[f] = i % OPERANDS >= 3 && f > F8_FIGURE_nonfinite
                                            ? NAN
                                            : (1 + test_random(&seed)) * 1.234567e-12;
        }
    }
    run->series[0].point[SPIKE - 1].figure[F8_FIGURE_mse] = 4321;
}

START_TEST(stays_small)
{
    const char *folder = f8_report_case_write(
        "good", &(f8_report_case){.steps = WATCHED, .seed = 1, .recipe = "delayed"});
    size_t size, i;
    f8_report r = read_runs(&folder, 1);
    make_large(r.run);
    json_t *data = page_data(&r, &size), *x;
    ck_assert_msg(size < MOST_BYTES, "%zu bytes", size);
    ck_assert_msg(size > MOST_BYTES / 2, "%zu bytes: more would fit", size);
    /* A point has the worst of its steps: the one bad step is in the picture. */
    const json_t *run = run_at(data, 0), *stats = at(run, "stats"), *first = at(stats, "first"),
                 *last = at(stats, "last");
    const json_t *mse = at(json_array_get(at(stats, "tensors"), 0), "mse");
    ck_assert_int_gt(json_integer_value(at(stats, "each")), 1);
    ck_assert_uint_eq(json_array_size(mse), json_array_size(last));
    int spikes = 0;
    json_array_foreach (mse, i, x)
        if (json_number_value(x) == 4321) {
            spikes++;
            ck_assert(json_integer_value(json_array_get(first, i)) <= SPIKE &&
                      json_integer_value(json_array_get(last, i)) >= SPIKE);
        }
    ck_assert_int_eq(spikes, 1);
    ck_assert_int_eq(json_integer_value(json_array_get(last, json_array_size(last) - 1)), WATCHED);
    json_decref(data);
    f8_report_free(&r);
}
END_TEST

/* ---- where runs part ---- */

static f8_report_parting part(const f8_report_case *good, const f8_report_case *bad, f8_report *r)
{
    const char *const folders[] = {f8_report_case_write("good", good),
                                   f8_report_case_write("bad", bad)};
    f8_diag diag = {0};
    f8_report_parting p;
    *r = read_runs(folders, 2);
    ck_assert(f8_report_part(&r->run[0], &r->run[1], &p, &diag) == F8_OK);
    return p;
}

#define RUN(EVERY, RECIPE, ...)                                                                    \
    &(f8_report_case)                                                                              \
    {                                                                                              \
        .layers = 3, .steps = 200, .every = EVERY, .recipe = RECIPE, __VA_ARGS__                   \
    }

START_TEST(names_the_tensor)
{
    for (uint32_t seed = 1; seed <= 3; seed++) {
        f8_report r;
        f8_report_parting p =
            part(RUN(4, "delayed", .seed = seed),
                 RUN(4, "delayed", .seed = seed + 9, .bad_from = 60, .loss_from = 133), &r);
        ck_assert_uint_eq(p.compared, 3 * 2 * 3);
        ck_assert_uint_eq(p.n, 1);
        ck_assert_str_eq(p.tensor->run->tensor, F8_REPORT_BAD);
        ck_assert_int_eq(p.tensor->step, 60);
        ck_assert_int_eq(p.tensor->underflow_step, 60);
        ck_assert_int_eq(p.tensor->mse_step, 60);
        ck_assert_int_eq(p.loss_step, 133);
        ck_assert(p.tensor->run_at.step == 60 && p.tensor->good_at.step == 60);
        f8_report_part_free(&p);
        f8_report_free(&r);
    }
}
END_TEST

/* A run that scatters otherwise does not part, nor does one with a bad step or two. */
START_TEST(names_nothing)
{
    f8_report r;
    f8_report_parting p = part(RUN(4, "delayed", .seed = 1),
                               RUN(4, "delayed", .seed = 2, .bad_from = 60, .bad_for = 8), &r);
    ck_assert_uint_eq(p.compared, 3 * 2 * 3);
    ck_assert_uint_eq(p.n, 0);
    ck_assert_int_eq(p.loss_step, 0);
    f8_report_part_free(&p);
    f8_report_free(&r);
}
END_TEST

/* A good run in bf16 quantizes nothing: its what-if figures are compared. A run without figures has
 * no tensors to compare. */
START_TEST(beside_bf16)
{
    f8_report r;
    f8_report_parting p =
        part(RUN(4, "bf16", .seed = 1), RUN(4, "delayed", .seed = 2, .bad_from = 60), &r);
    ck_assert_uint_eq(p.n, 1);
    ck_assert_str_eq(p.tensor->run->tensor, F8_REPORT_BAD);
    ck_assert(p.tensor->good->what_if && p.tensor->step == 60);
    f8_report_part_free(&p);
    f8_report_free(&r);
    p = part(RUN(0, "delayed", .seed = 1), RUN(4, "delayed", .seed = 2, .bad_from = 60), &r);
    ck_assert(p.compared == 0 && p.n == 0);
    f8_report_part_free(&p);
    f8_report_free(&r);
}
END_TEST

/* Runs that were watched at other steps are compared at those they share. */
START_TEST(at_shared_steps)
{
    f8_report r;
    f8_report_parting p =
        part(RUN(6, "delayed", .seed = 1), RUN(4, "delayed", .seed = 2, .bad_from = 60), &r);
    ck_assert_uint_eq(p.n, 1);
    ck_assert_int_eq(p.tensor->step, 60);
    f8_report_part_free(&p);
    f8_report_free(&r);
    p = part(RUN(7, "delayed", .seed = 1), RUN(4, "delayed", .seed = 2, .bad_from = 60), &r);
    ck_assert_int_eq(p.tensor->step, 84); /* 28, 56, 84, ... */
    f8_report_part_free(&p);
    f8_report_free(&r);
}
END_TEST

/* The page names what the rule finds. */
START_TEST(part_on_the_page)
{
    f8_report r;
    size_t size;
    f8_report_parting p = part(RUN(4, "delayed", .seed = 1),
                               RUN(4, "delayed", .seed = 2, .bad_from = 60, .loss_from = 133), &r);
    f8_report_part_free(&p);
    json_t *data = page_data(&r, &size);
    const json_t *records = json_array_get(at(data, "parts"), 0),
                 *loss = json_array_get(records, 0), *first = json_array_get(records, 1);
    ck_assert_uint_eq(json_array_size(records), 2);
    ck_assert_str_eq(json_string_value(at(loss, "event")), "part");
    ck_assert_int_eq(json_integer_value(at(loss, "step")), 133);
    ck_assert_str_eq(json_string_value(at(first, "tensor")), F8_REPORT_BAD);
    ck_assert_int_eq(json_integer_value(at(first, "step")), 60);
    ck_assert_str_eq(json_string_value(at(first, "run")), "bad");
    json_decref(data);
    f8_report_free(&r);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("report");
    TCase *t = tcase_create("report");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, holds_what_the_folder_has);
    tcase_add_test(t, shows_every_figure);
    tcase_add_test(t, escapes_names);
    tcase_add_test(t, without_statistics);
    tcase_add_test(t, what_if_figures);
    tcase_add_test(t, stays_small);
    tcase_add_test(t, names_the_tensor);
    tcase_add_test(t, names_nothing);
    tcase_add_test(t, beside_bf16);
    tcase_add_test(t, at_shared_steps);
    tcase_add_test(t, part_on_the_page);
    suite_add_tcase(s, t);
    return s;
}
