/* The peaks of a GPU, measured in the run that quotes them: bandwidth of copies, and GEMMs alone.
 * Used by benchmarks only, so a failure ends the process with a message. */
#ifndef BENCH_GPU_DEVICE_H
#define BENCH_GPU_DEVICE_H

#include "runtime/cuda/internal.h"
#include "runtime/plan.h"

enum { GPU_MOST_RUNS = 64 };

typedef struct gpu_device {
    f8_cuda *cuda;
    f8_cuda_facts facts;
    const f8_target *target;
    CUstream stream;
    CUevent start, end;
} gpu_device;

/* Device 0. */
gpu_device gpu_open(void);
void gpu_close(gpu_device *g);

/* Device memory filled with bf16 or FP8 numbers of moderate size from a seed: a GPU is slower on
 * them than on zeros, and quicker than training on neither. */
CUdeviceptr gpu_numbers(gpu_device *g, size_t bytes, f8_dtype dtype);
CUdeviceptr gpu_allocate(gpu_device *g, size_t bytes);
/* Seconds between the last records of g->start and g->end; waits for the stream. */
double gpu_seconds_between(gpu_device *g);
/* Ends the process with the message unless the status is F8_OK. */
void gpu_check(f8_status status, const f8_diag *diag, const char *what);
#define GPU_CU(g, call, ...)                                                                       \
    do {                                                                                           \
        f8_diag cu_diag_ = {0};                                                                    \
        gpu_check(f8_cuda_check((g)->cuda, (g)->cuda->cu.call(__VA_ARGS__), &cu_diag_, #call),     \
                  &cu_diag_, "device");                                                            \
    } while (0)
void gpu_free(gpu_device *g, CUdeviceptr p);

/* Bytes read and written a second by a copy of `bytes` within the device: the best of `runs`. */
double gpu_copy_bandwidth(gpu_device *g, size_t bytes, int runs);

/* Operations a second of one row-major n x n x n GEMM of bf16 or FP8 operands with a bf16 result:
 * the median of `runs`, after as many that are not counted. */
double gpu_gemm_peak(gpu_device *g, int64_t n, f8_dtype dtype, int runs);

/* The GEMM steps of a plan's function one after the other, nothing between, on operands of random
 * numbers. The plan outlives it. */
typedef struct gpu_gemms gpu_gemms;
gpu_gemms *gpu_gemms_make(gpu_device *g, const f8_plan *plan, uint32_t func);
double gpu_gemms_run(gpu_gemms *m); /* seconds */
int gpu_gemms_count(const gpu_gemms *m);
void gpu_gemms_free(gpu_gemms *m);

/* Each distinct GEMM of a plan by itself: the algorithm that a program takes, its time, whether 50
 * runs give the same bits, and the time of each other algorithm on offer. The L2 cache holds none
 * of the operands when a run begins. Prints a record for each GEMM on stdout. */
void gpu_survey(gpu_device *g, const f8_plan *plan, const char *model, const char *recipe);

#endif
