/* A run on a GPU that stops and goes on: the same bits as one that does not stop. */
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

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_resume");
    TCase *t = tcase_create("cuda_resume");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, goes_on);
    suite_add_tcase(s, t);
    return s;
}
