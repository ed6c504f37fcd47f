/* An outside clock: oneDNN's own matmul alone on cold operands, in a process that has no code of
 * ours. C[m, n] = op(A) op(B) in f32, row-major as stored; operands in f32 or bf16. It prints the
 * median seconds of the runs.
 *
 *     outside_gemm f32|bf16 M N K NN|NT|TN|TT THREADS RUNS */
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(x) ((x) ? (void)0 : (fprintf(stderr, "outside_gemm: not so: %s\n", #x), exit(1)))
void omp_set_num_threads(int n);

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static dnnl_memory_desc_t matrix(long rows, long columns, int transposed, dnnl_data_type_t type)
{
    dnnl_memory_desc_t d;
    dnnl_dims_t size = {rows, columns};
    dnnl_dims_t stride = {transposed ? 1 : columns, transposed ? rows : 1};
    MUST(dnnl_memory_desc_init_by_strides(&d, 2, size, type, stride) == dnnl_success);
    return d;
}

/* Values from -1 to 1 that both types hold. */
static dnnl_memory_t make(const dnnl_memory_desc_t *d, unsigned seed)
{
    const size_t size = d->data_type == dnnl_bf16 ? 2 : 4, bytes = dnnl_memory_desc_get_size(d);
    char *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    dnnl_memory_t memory;
    MUST(p && dnnl_memory_create(&memory, d, engine, p) == dnnl_success);
    for (size_t i = 0; i < bytes / size; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float x = (float)((int)(seed >> 24) - 128) / 128;
        memcpy(p + i * size, (const char *)&x + 4 - size, size);
    }
    return memory;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double run(dnnl_primitive_t matmul, const dnnl_memory_t at[3])
{
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, at[0]}, {DNNL_ARG_WEIGHTS, at[1]}, {DNNL_ARG_DST, at[2]}};
    struct timespec t[2];
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    MUST(dnnl_primitive_execute(matmul, stream, 3, args) == dnnl_success);
    MUST(dnnl_stream_wait(stream) == dnnl_success);
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    return (double)(t[1].tv_sec - t[0].tv_sec) + 1e-9 * (double)(t[1].tv_nsec - t[0].tv_nsec);
}

int main(int argc, char **argv)
{
    MUST(argc == 8 && strlen(argv[5]) == 2 &&
         (!strcmp(argv[1], "f32") || !strcmp(argv[1], "bf16")));
    const dnnl_data_type_t type = !strcmp(argv[1], "bf16") ? dnnl_bf16 : dnnl_f32;
    const long m = atol(argv[2]), n = atol(argv[3]), k = atol(argv[4]), runs = atol(argv[7]);
    const int threads = atoi(argv[6]);
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t matmul;
    MUST(m > 0 && n > 0 && k > 0 && threads > 0 && runs > 0);
    omp_set_num_threads(threads);
    MUST(dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success);
    MUST(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success);
    const dnnl_memory_desc_t d[3] = {matrix(m, k, argv[5][0] == 'T', type),
                                     matrix(k, n, argv[5][1] == 'T', type),
                                     matrix(m, n, 0, dnnl_f32)};
    MUST(dnnl_matmul_desc_init(&op, &d[0], &d[1], NULL, &d[2]) == dnnl_success);
    MUST(dnnl_primitive_desc_create(&pd, &op, NULL, engine, NULL) == dnnl_success);
    MUST(dnnl_primitive_create(&matmul, pd) == dnnl_success);

    /* Between two uses of a set at least 64 MiB of others pass. */
    size_t bytes = 0;
    for (int i = 0; i < 3; i++)
        bytes += dnnl_memory_desc_get_size(&d[i]);
    const long sets = (long)((64 << 20) / bytes) + 2, warm_up = 3;
    dnnl_memory_t *memory = calloc((size_t)sets * 3, sizeof *memory);
    double *seconds = calloc((size_t)(warm_up + runs), sizeof *seconds);
    MUST(memory && seconds);
    for (long i = 0; i < sets * 3; i++)
        memory[i] = make(&d[i % 3], (unsigned)i);
    for (long r = 0; r < warm_up + runs; r++)
        seconds[r] = run(matmul, &memory[r % sets * 3]);
    seconds += warm_up;
    qsort(seconds, (size_t)runs, sizeof *seconds, by_size);
    printf("%.9g\n", (seconds[(runs - 1) / 2] + seconds[runs / 2]) / 2);
    return 0;
}
