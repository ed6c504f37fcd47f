"""What a call from Python costs beside the same call from C: a function of one kernel, on 4 elements.

usage: FP8C_LIBRARY=build/libfp8c.so PYTHONPATH=frontend/python python3 bench/python_call.py     needs NumPy, gcc
"""
import os
import pathlib
import subprocess
import tempfile
import time

import fp8c
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXT = "module plus\nfunc forward(%x: f32[4]) -> (%y: f32[4]) { return add(%x, 1.0) }\n"
RUNS, ROUNDS = 20000, 7
C = r"""
#include "frontend/fp8c.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
int main(int n, char **text)
{
    fp8c_context *c;
    fp8c_module *m;
    fp8c_program *p;
    float x[4] = {0}, y[4];
    int64_t shape[] = {4};
    const fp8c_compile_options o = {.struct_size = sizeof o, .recipe = "f32", .inference = 1, .threads = 1};
    const fp8c_tensor_view a = {.data = x, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape},
                           b = {.data = y, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape};
    const fp8c_tensor_view *in[] = {&a}, *out[] = {&b};
    if (n != 2 || fp8c_context_create(NULL, &c) ||
        fp8c_module_parse(c, text[1], strlen(text[1]), "plus", NULL, 0, &m) || fp8c_compile(m, &o, &p) ||
        fp8c_program_initialize(p, 0))
        return 1;
    double least = 1;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec t, u;
        clock_gettime(CLOCK_MONOTONIC, &t);
        for (int k = 0; k < RUNS; k++)
            if (fp8c_program_call(p, 0, in, 1, out, 1))
                return 1;
        clock_gettime(CLOCK_MONOTONIC, &u);
        const double s = (double)(u.tv_sec - t.tv_sec) + 1e-9 * (double)(u.tv_nsec - t.tv_nsec);
        least = s < least ? s : least;
    }
    printf("%.3f\n", least / RUNS * 1e6);
    return 0;
}
"""


def least(call):
    """The least time of a call over rounds, in microseconds."""
    best = 1.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(RUNS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / RUNS * 1e6


def in_c():
    library = pathlib.Path(os.environ["FP8C_LIBRARY"]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "call.c"
        source.write_text(C)
        subprocess.run(["gcc", "-O2", f"-DRUNS={RUNS}", f"-DROUNDS={ROUNDS}", f"-I{ROOT}", source, library,
                        f"-Wl,-rpath,{library.parent}", "-o", source.with_suffix("")], check=True)
        done = subprocess.run([source.with_suffix(""), TEXT], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main():
    program = fp8c.Module.parse(TEXT).compile(recipe="f32", inference=True, threads=1)
    program.initialize()
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    inputs, outputs = fp8c.Views([x]), fp8c.Views([y])
    print(f"fp8c_program_call from C          {in_c():6.2f} us")
    print(f"Program.call with Views           {least(lambda: program.call('eval', inputs, outputs)):6.2f} us")
    print(f"Program.call with arrays of NumPy {least(lambda: program.call('eval', [x], [y])):6.2f} us")


if __name__ == "__main__":
    main()
