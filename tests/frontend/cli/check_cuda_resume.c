/* A run on a GPU that stops and goes on: the same bits as one that does not stop. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/train_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300 };

static char run[PATH], state[2][PATH];

static void setup(void)
{
    f8_test_gpu_emulated();
    f8_cli_setup();
    snprintf(data, sizeof data, "%s", f8_cli_write_words("text", TEXT));
    snprintf(run, sizeof run, "%s", f8_cli_temp("run"));
    snprintf(state[0], sizeof state[0], "%s", f8_cli_temp("straight"));
    snprintf(state[1], sizeof state[1], "%s", f8_cli_temp("resumed"));
}

static void teardown(void)
{
    f8_cli_forget(run);
    f8_cli_teardown();
}

START_TEST(goes_on)
{
    size_t n[2];
    f8_cli_ok(F8_CLI("train", GPT, SMALL, "--data", data, "--steps", "6", "--recipe", "delayed",
                     "--target", "cuda", "--save-state", state[0]));
    f8_cli_ok(F8_CLI("train", GPT, SMALL, "--data", data, "--steps", "6", "--recipe", "delayed",
                     "--target", "cuda", "--run", run, "--stop-at", "2"));
    f8_cli_ok(F8_CLI("train", "--resume", run, "--save-state", state[1]));
    char *want = f8_cli_read(state[0], &n[0]), *got = f8_cli_read(state[1], &n[1]);
    ck_assert(n[0] == n[1] && !memcmp(want, got, n[0]));
    free(want);
    free(got);
    char path[4200];
    snprintf(path, sizeof path, "%s/run.json", run);
    char *info = f8_cli_read(path, &n[0]);
    ck_assert(strstr(info, "\"NVRTC\": ") && strstr(info, "\"target\": \"sm_") &&
              !strstr(info, "oneDNN"));
    free(info);
}
END_TEST

/* A branch changes the order of steps, and so the fingerprints: those before can't be compared with
 * the present plan's. Launches that begin early change nothing. */
START_TEST(another_plan)
{
    static const char *const option[] = {"--dependent-launch", "--wgrad-branch"};
    char path[4200];
    size_t n;
    f8_cli_ok(F8_CLI("train", GPT, SMALL, "--data", data, "--steps", "3", "--target", "cuda",
                     "--run", run, "--stop-at", "1", "--fingerprint-every", "1"));
    for (int i = 0; i < 2; i++)
        f8_cli_ok(F8_CLI("train", "--resume", run, "--stop-at", i ? "3" : "2", option[i]));
    snprintf(path, sizeof path, "%s/run.json", run);
    char *info = f8_cli_read(path, &n);
    json_t *all = json_loads(info, 0, NULL), *resumed = json_object_get(all, "resumed");
    free(info);
    ck_assert_int_eq(json_array_size(resumed), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *changed = json_object_get(json_array_get(resumed, i), "changed");
        ck_assert_msg(changed && json_is_true(changed) == (i == 1), "%s", option[i]);
    }
    json_decref(all);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_resume");
    TCase *t = tcase_create("cuda_resume");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, goes_on);
    tcase_add_test(t, another_plan);
    suite_add_tcase(s, t);
    return s;
}
