/* An index over folders of runs, the gaps in it, and runs that are watched while they go on. */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/lock.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/api/report_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 60, PATH = 4096 };

static char top[PATH];

static void setup(void)
{
    f8_cli_setup();
    snprintf(top, sizeof top, "%s", f8_cli_temp("runs"));
    ck_assert_int_eq(mkdir(top, 0777), 0);
}

static void teardown(void)
{
    f8_cli_forget(top);
    f8_cli_teardown();
}

static const char *make_folder(const char *name)
{
    const char *path = f8_cli_temp(name);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    return path;
}

/* What a training under `recipe` says of itself. */
static void put_info(const char *folder, const char *recipe, const char *module, const char *data,
                     int seed, int steps)
{
    char text[1000];
    snprintf(
        text, sizeof text,
        "{\"format\":\"fp8c run\",\"version\":1,\"begun\":\"2026-01-02T03:04:05Z\","
        "\"versions\":{\"fp8c\":\"%s\"},\"file\":\"gpt.f8\",\"module\":\"%s\",\"recipe\":"
        "\"%s\",\"target\":\"cpu\",\"device\":null,\"options\":{},\"resolved\":{\"--steps\":%d,"
        "\"--seed\":%d,\"-D\":{\"L\":%d}},\"data\":{\"hash\":\"%s\"},\"resumed\":[]}",
        fp8c_version(), module, recipe, steps, seed, *module == 'x', data);
    f8_report_case_put(folder, "run.json", text, false);
}

/* Writes a run whose loss is `loss` in every step. */
static void put_steps(const char *folder, int from, int to, double loss)
{
    for (int s = from; s <= to; s++) {
        char text[200];
        snprintf(text, sizeof text,
                 "{\"event\":\"step\",\"step\":%d,\"loss\":%.17g,\"grad_norm\":1,\"lr\":1,"
                 "\"tokens_per_second\":%d}\n",
                 s, loss, s % 2 ? 1000 : 3000);
        f8_report_case_put(folder, "steps.jsonl", text, s > 1);
    }
}

static void put_run(const char *name, const char *recipe, const char *module, const char *data,
                    int seed, int steps, double loss)
{
    const char *folder = make_folder(name);
    put_info(folder, recipe, module, data, seed, 40);
    put_steps(folder, 1, steps, loss);
}

static f8_report read_index(void)
{
    const char *const folders[] = {top};
    f8_diag diag = {0};
    f8_report r;
    ck_assert_msg(f8_report_read(&r, F8_REPORT_INDEX, folders, 1, &diag) == F8_OK, "%s: %s",
                  diag.file, diag.text);
    return r;
}

static size_t find(const f8_report *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->run[i].name, name))
            return i;
    ck_abort_msg("no run %s", name);
    return 0;
}

/* ---- which runs ---- */

START_TEST(all_runs_below)
{
    put_run("runs/b10", "bf16", "m", "d", 1, 40, 2);
    put_run("runs/b9", "delayed", "m", "d", 1, 30, 3);
    make_folder("runs/deep");
    make_folder("runs/deep/er");
    put_run("runs/deep/er/a", "current", "m", "d", 1, 40, 2);
    make_folder("runs/deep/er/a/ranks"); /* nothing in a run is one */
    put_run("runs/deep/er/a/ranks/0", "bf16", "m", "d", 1, 40, 2);
    put_run("runs/.hidden", "bf16", "m", "d", 1, 40, 2);
    put_info(make_folder("runs/early"), "bf16", "m", "d", 1, 40);
    f8_report_case_put(make_folder("runs/odd"), "run.json", "{", false);
    f8_report_case_put(make_folder("runs/notes"), "a.txt", "words", false);
    ck_assert_int_eq(symlink(top, f8_cli_temp("runs/round")), 0);
    f8_report r = read_index();
    static const char *const names[] = {"b9", "b10", "deep/er/a"};
    ck_assert_uint_eq(r.n, 3);
    for (size_t i = 0; i < r.n; i++)
        ck_assert_str_eq(r.run[i].name, names[i]);
    ck_assert_str_eq(f8_report_state(&r.run[0]), "stopped");
    ck_assert_str_eq(f8_report_state(&r.run[1]), "done");
    ck_assert_uint_eq(r.n_unread, 2);
    ck_assert_str_eq(r.unread[0].name, "early");
    ck_assert_msg(strstr(r.unread[0].why, "the run has no steps.jsonl") != NULL, "%s",
                  r.unread[0].why);
    ck_assert_msg(strstr(r.unread[1].why, "/odd/run.json: it is not JSON") != NULL, "%s",
                  r.unread[1].why);
    ck_assert_double_eq_tol(f8_report_rate(&r.run[1]), 1500, 1e-9); /* not 2000: time is added */
    f8_report_free(&r);
}
END_TEST

/* ---- gaps ---- */

START_TEST(gaps)
{
    put_run("runs/base1", "bf16", "m", "d", 1, 40, 2);
    put_run("runs/base2", "bf16", "m", "d", 2, 40, 4);
    put_run("runs/seed1", "delayed", "m", "d", 1, 40, 3);
    put_run("runs/seed2", "delayed", "m", "d", 2, 40, 3);
    put_run("runs/seed3", "delayed", "m", "d", 3, 40, 3);
    put_run("runs/rules", "delayed", "n", "d", 2, 40, 3);  /* another module of that file */
    put_run("runs/larger", "delayed", "x", "d", 1, 40, 3); /* and of other dims */
    put_run("runs/other", "delayed", "m", "e", 1, 40, 3);  /* other data */
    f8_report r = read_index();
    static const struct {
        const char *name, *base;
        double gap;
    } wanted[] = {{"seed1", "base1", 0.5},   {"seed2", "base2", -0.25}, {"seed3", "base1", 0.5},
                  {"rules", "base2", -0.25}, {"larger", NULL, 0},       {"other", NULL, 0},
                  {"base1", NULL, 0},        {"base2", NULL, 0}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const f8_report_gap g = f8_report_gap_of(&r, find(&r, wanted[i].name));
        ck_assert_msg((g.base != NULL) == (wanted[i].base != NULL), "%s", wanted[i].name);
        if (!g.base) {
            ck_assert(isnan(g.gap));
            continue;
        }
        ck_assert_str_eq(g.base->name, wanted[i].base);
        ck_assert_double_eq(g.gap, wanted[i].gap);
        ck_assert_int_eq(g.step, 40);
    }
    f8_report_free(&r);
}
END_TEST

/* A run that goes on is compared where both are, not with the end of the base. */
START_TEST(gap_at_common_steps)
{
    const char *base = make_folder("runs/base");
    put_info(base, "bf16", "m", "d", 1, 40);
    put_steps(base, 1, 20, 4);
    put_steps(base, 21, 40, 2);
    put_run("runs/short", "delayed", "m", "d", 1, 20, 5);
    f8_report r = read_index();
    const f8_report_gap g = f8_report_gap_of(&r, find(&r, "short"));
    ck_assert_int_eq(g.step, 20);
    ck_assert_double_eq(g.gap, 0.25);
    f8_report_free(&r);
}
END_TEST

/* ---- what is made of it ---- */

START_TEST(page_and_words)
{
    f8_diag diag = {0};
    char *text;
    size_t size;
    put_run("runs/base", "bf16", "m", "d", 1, 40, 2);
    put_run("runs/own", "delayed", "m", "d", 1, 30, 3);
    f8_report_case_put(f8_cli_temp("runs/own"), "steps.jsonl",
                       "{\"event\":\"warning\",\"step\":30,\"message\":\"\\u001b[31mred\"}\n",
                       true);
    f8_report_case_put(make_folder("runs/odd"), "run.json", "{", false);
    f8_report r = read_index();
    ck_assert_int_eq(f8_report_words(&r, &text, &diag), F8_OK);
    ck_assert_msg(strstr(text, "own   delayed        30  stopped       3.0000   +50.000%"
                               "        1500       1\n") != NULL,
                  "%s", text);
    ck_assert_msg(strstr(text, "odd can't be read: ") != NULL && !strchr(text, '\033'), "%s", text);
    free(text);
    ck_assert_int_eq(f8_report_page(&r, 5, &text, &size, &diag), F8_OK);
    static const char *const has[] = {"\"format\":\"fp8c index\"", "\"again\":5,\"written\":",
                                      "\"beside\":\"base\"",       "\"gap\":0.5",
                                      "\"state\":\"stopped\"",     "\"unread\":[{\"name\":\"odd\"",
                                      "function unreadSection"};
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        ck_assert_msg(strstr(text, has[i]) != NULL, "no %s", has[i]);
    ck_assert(!strstr(text, "heatSection") && !strchr(text, '\033'));
    free(text);
    f8_report_free(&r);
}
END_TEST

/* A long path cuts no line. */
START_TEST(long_names)
{
    f8_diag diag = {0};
    char name[PATH], *text;
    int n = snprintf(name, sizeof name, "runs");
    for (int i = 0; i < 6; i++) {
        n += snprintf(name + n, sizeof name - (size_t)n, "/%0230d", i);
        make_folder(name);
    }
    snprintf(name + n, sizeof name - (size_t)n, "/run");
    put_run(name, "bf16", "m", "d", 1, 40, 2);
    f8_report r = read_index();
    ck_assert_int_eq(f8_report_words(&r, &text, &diag), F8_OK);
    ck_assert_msg(strstr(text, "/run  bf16          40  done ") != NULL &&
                      !strcmp(text + strlen(text) - 9, "       0\n"),
                  "%s", text);
    free(text);
    f8_report_free(&r);
}
END_TEST

/* Many runs have fewer points each: a page stays a page. */
START_TEST(many_runs)
{
    enum { RUNS = 300, MOST = 5000000 };
    f8_diag diag = {0};
    char *text, name[40];
    size_t size;
    for (int i = 0; i < RUNS; i++) {
        snprintf(name, sizeof name, "runs/%d", i);
        put_run(name, i ? "delayed" : "bf16", "m", "d", 1, 400, 2 + 1e-3 * i);
    }
    f8_report r = read_index();
    ck_assert_uint_eq(r.n, RUNS);
    ck_assert_int_eq(f8_report_page(&r, 0, &text, &size, &diag), F8_OK);
    ck_assert_uint_lt(size, MOST);
    free(text);
    f8_report_free(&r);
}
END_TEST

START_TEST(no_runs)
{
    const char *const folders[] = {top, "nowhere"};
    f8_diag diag = {0};
    f8_report r;
    f8_report_case_put(make_folder("runs/notes"), "a.txt", "words", false);
    ck_assert_int_eq(f8_report_read(&r, F8_REPORT_INDEX, folders, 1, &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, "it holds no run") && !strcmp(diag.file, top), "%s", diag.text);
    f8_report_free(&r);
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_report_read(&r, F8_REPORT_INDEX, folders + 1, 1, &diag), F8_ERR_IO);
    f8_report_free(&r);
}
END_TEST

/* ---- runs that go on ---- */

typedef struct watcher {
    const char *folder;
    int waited, written, last_again, steps;
    int lock;        /* of the process that trains */
    int stop_after;  /* pages; 0: as many as there are */
    int leave_after; /* pages after which the process is gone */
} watcher;

static f8_status write_page(void *user, const f8_report *r, int again, f8_diag *diag)
{
    watcher *w = user;
    (void)diag;
    w->written++;
    w->last_again = again;
    w->steps = (int)r->run[0].n_steps;
    if (w->lock >= 0 && w->written == w->leave_after) {
        close(w->lock);
        w->lock = -1;
    } else if (w->lock >= 0) {
        put_steps(w->folder, w->steps + 1, w->steps + 1, 2);
    }
    return F8_OK;
}

/* The run begins once it was said that there is none. */
static void begins(void *user, const f8_diag *why)
{
    watcher *w = user;
    ck_assert(why->text[0] != 0);
    w->waited++;
    if (!w->leave_after)
        return;
    put_info(make_folder("runs/run"), "bf16", "m", "d", 1, 40);
    f8_report_case_put(w->folder, "lock", "", false);
    char path[PATH];
    snprintf(path, sizeof path, "%s/lock", w->folder);
    w->lock = open(path, O_RDWR);
    ck_assert(f8_lock_byte(w->lock, 0) && f8_run_is_used(w->folder));
    put_steps(w->folder, 1, 1, 2);
}

static int32_t stops(void *user)
{
    const watcher *w = user;
    return w->stop_after && w->written + w->waited >= w->stop_after;
}

static f8_status watch(watcher *w, f8_report *r, f8_diag *diag)
{
    static char path[PATH];
    snprintf(path, sizeof path, "%s", f8_cli_temp("runs/run"));
    w->folder = path;
    w->lock = -1;
    *diag = (f8_diag){0};
    const f8_report_watched of = {F8_REPORT_RUNS, &w->folder, 1,     0.05, 0.4,
                                  write_page,     begins,     stops, w};
    return f8_report_watch(&of, r, diag);
}

START_TEST(watched_to_its_end)
{
    watcher w = {.leave_after = 4};
    f8_diag diag;
    f8_report r;
    ck_assert_msg(watch(&w, &r, &diag) == F8_OK, "%s", diag.text);
    ck_assert_int_eq(w.waited, 1);
    ck_assert_int_ge(w.written, 6); /* it may come back until patience is over */
    ck_assert_int_eq(w.last_again, 0);
    ck_assert_int_eq(w.steps, 4);
    ck_assert(!f8_run_is_used(w.folder));
    f8_report_free(&r);
}
END_TEST

/* A run that has all of its steps is not waited for. */
START_TEST(watched_when_done)
{
    watcher w = {0};
    f8_diag diag;
    f8_report r;
    put_run("runs/run", "bf16", "m", "d", 1, 40, 2);
    ck_assert_int_eq(watch(&w, &r, &diag), F8_OK);
    ck_assert(w.written == 2 && w.last_again == 0 && w.waited == 0);
    f8_report_free(&r);
}
END_TEST

START_TEST(watched_for_nothing)
{
    watcher w = {0};
    f8_diag diag;
    f8_report r;
    ck_assert_int_eq(watch(&w, &r, &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, "No such file") && strstr(diag.text, "no process has trained"),
                  "%s", diag.text);
    ck_assert(w.written == 0 && w.waited == 1);
    f8_report_free(&r);
    w = (watcher){.stop_after = 1};
    ck_assert_int_eq(watch(&w, &r, &diag), F8_ERR_CANCELLED);
    f8_report_free(&r);
    put_info(make_folder("runs/run"), "bf16", "m", "d", 1, 40);
    f8_report_case_put(w.folder, "steps.jsonl", "{}\n", false);
    w = (watcher){0};
    ck_assert_int_eq(watch(&w, &r, &diag), F8_ERR_INPUT); /* damage is told at once */
    ck_assert_int_eq(w.waited, 0);
    f8_report_free(&r);
}
END_TEST

START_TEST(watched_and_stopped)
{
    watcher w = {.leave_after = 1000, .stop_after = 4};
    f8_diag diag;
    f8_report r;
    ck_assert_int_eq(watch(&w, &r, &diag), F8_OK);
    ck_assert_int_eq(w.last_again, 0);
    f8_report_free(&r);
    close(w.lock);
}
END_TEST

/* ---- the verdict of triage ---- */

START_TEST(verdicts)
{
    put_run("runs/a", "bf16", "m", "d", 1, 40, 2);
    f8_report_case_put(f8_cli_temp("runs/a"), "verdict.json",
                       "{\"event\":\"triage\",\"step\":7,\"class\":\"fp8\",\"text\":\"words\"}",
                       false);
    f8_report r = read_index();
    ck_assert_int_eq(json_integer_value(json_object_get(r.run[0].verdict, "step")), 7);
    f8_report_free(&r);
    f8_report_case_put(f8_cli_temp("runs/a"), "verdict.json", "{\"step\":7}", false);
    r = read_index();
    ck_assert_uint_eq(r.n_unread, 1);
    ck_assert_msg(strstr(r.unread[0].why, "it is no verdict of triage") != NULL, "%s",
                  r.unread[0].why);
    f8_report_free(&r);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("index");
    TCase *t = tcase_create("index");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, all_runs_below);
    tcase_add_test(t, gaps);
    tcase_add_test(t, gap_at_common_steps);
    tcase_add_test(t, page_and_words);
    tcase_add_test(t, long_names);
    tcase_add_test(t, many_runs);
    tcase_add_test(t, no_runs);
    tcase_add_test(t, watched_to_its_end);
    tcase_add_test(t, watched_when_done);
    tcase_add_test(t, watched_for_nothing);
    tcase_add_test(t, watched_and_stopped);
    tcase_add_test(t, verdicts);
    suite_add_tcase(s, t);
    return s;
}
