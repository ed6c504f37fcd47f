/* A plan made by hand for tests of the CUDA executor: kernels written as CUDA text and every kind
 * of step but GEMMs; and the same computation by plain loops. */
#ifndef F8_TESTS_CUDA_BENCH_H
#define F8_TESTS_CUDA_BENCH_H

#include <check.h>

#include "runtime/cuda/exec.h"
#include "tests/shared/cuda/cuda_device.h"

enum { N = 1000, REVERSED = 16 * 1024, BYTES = N * 4 };

/* step: y = 2 x + w + c; w += 1, v += 3; u turned round twice, its second time as a second phase.
 * fault: a fault. nothing: no steps. */
typedef struct bench {
    cuda_device device;
    f8_arena arena;
    f8_plan plan;
    f8_plan_func func[3];
    f8_plan_var var[3];
    f8_plan_port in[1], out[2];
    f8_step step[5], fault[2];
    f8_step_phase phase[8];
    f8_arg arg[24];
    int64_t ints[24];
    f8_image image;
    counting host;
    f8_allocator allocator;
} bench;

enum { W, V, U };
enum { STEP, FAULT, NOTHING };

void bench_open(bench *b);
void bench_make_plan(bench *b); /* again, after a test has changed it */
/* Asserts that nothing is left, on the host or on the emulator. */
void bench_close(bench *b);
f8_cuda_exec *bench_create(bench *b, f8_cuda_exec_options o);

/* ---- what the steps compute, by plain loops ---- */

typedef struct model {
    float w[N], v[7], u[REVERSED], x[N], y[N];
} model;

void model_init(model *m, const bench *b, uint64_t seed);
void model_input(model *m, int round); /* another x */
void model_step(model *m);
void model_check_state(const model *m, f8_cuda_exec *x);
/* One run with the executor's own buffers, checked. */
void model_run(model *m, f8_cuda_exec *x, int round);

/* ---- asserting ---- */

void contains(const char *text, const char *part);

#endif
