/* See gpu.h. */
#include "tests/shared/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

const char *f8_test_build(void)
{
    static char path[PATH_ROOM];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return "build";
    path[n] = 0;
    for (int up = 0; up < 2; up++) { /* BUILD/tests/check_x */
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = 0;
    }
    return path;
}

bool f8_test_gpu_emulated(void)
{
    if (getenv("FP8C_TEST_GPU"))
        return false;
    char path[PATH_ROOM + 16];
    snprintf(path, sizeof path, "%s/emulator", f8_test_build());
    setenv("FP8C_CUDA_PATH", path, 0);
    return true;
}
