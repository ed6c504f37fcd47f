/* See gpu.h. */
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* This program is TOP/BUILD/tests/check_x; the emulator, one for all variants, TOP/build/emulator.
 */
bool f8_test_gpu_emulated(void)
{
    if (getenv("FP8C_TEST_GPU"))
        return false;
    char path[PATH_ROOM + 24];
    const ssize_t n = readlink("/proc/self/exe", path, PATH_ROOM);
    path[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = 0;
    }
    strcat(path, "/build/emulator");
    setenv("FP8C_CUDA_PATH", path, 0);
    return true;
}

bool f8_test_has_cpu(const char *what)
{
    if (!getenv("FP8C_TEST_PEER"))
        return true;
    test_skip(what, "FP8C_TEST_PEER is set: there is no LLVM");
    return false;
}
