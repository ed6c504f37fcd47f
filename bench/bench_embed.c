/* Measures what embedding the library costs, apart from the work it does: its size, the time to
 * load it, what a call of a function adds to the function's kernel, and the whole life of a small
 * program. Where a figure has a bar, it is printed next to it. A bar that does not hold is
 * reported; the program does not fail.
 *
 *     bench_embed [--json] [LIBRARY]      LIBRARY: libfp8c.so.1 in the folder above this program's
 */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"

enum { LOADS = 50, ROUNDS = 15, RUNS = 20000, LIVES = 9 };

/* A figure, and whether it is under its bar. */
static void held(bool json, double value, double bar, const char *unit, const char *name)
{
    report(json, value, unit, "%s", name);
    if (value >= bar)
        fprintf(stderr, "NOT HELD: %s is %g %s, the bar %g\n", name, value, unit, bar);
}

/* ---- the library as a file ---- */

/* Run a command to its end: its first `room` - 1 bytes of output. */
static void output_of(char *const argv[], char *out, size_t room)
{
    int ends[2];
    must(pipe(ends) == 0, "pipe");
    const pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n < room - 1 && (got = read(ends[0], out + n, room - 1 - n)) > 0;)
        n += (size_t)got;
    out[n] = 0;
    close(ends[0]);
    int status;
    must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
         argv[0]);
}

/* In a process of its own: seconds of dlopen, everything bound. */
static int load(const char *library)
{
    const double start = f8_seconds_now();
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const double seconds = f8_seconds_now() - start;
    must(handle != NULL, dlerror());
    must(dlsym(handle, "fp8c_context_create") != NULL, "no fp8c_context_create");
    printf("%.9f\n", seconds);
    return 0;
}

static void library(bool json, char *self, char *path)
{
    char out[64], stripped[] = "/tmp/bench_embed.XXXXXX";
    double seconds[LOADS];
    for (int i = 0; i < LOADS; i++) {
        output_of((char *[]){self, "--load", path, NULL}, out, sizeof out);
        seconds[i] = atof(out);
    }
    held(json, 1e3 * median(seconds, LOADS), 5, "ms", "library_load");
    const int fd = mkstemp(stripped);
    must(fd >= 0, stripped);
    close(fd);
    output_of((char *[]){"strip", "--strip-unneeded", "-o", stripped, path, NULL}, out, sizeof out);
    struct stat s;
    must(stat(stripped, &s) == 0, stripped);
    unlink(stripped);
    report(json, (double)s.st_size / 1048576, "MiB", "library_stripped");
}

/* ---- calls ---- */

static fp8c_program *compiled(fp8c_context *ctx, const char *text,
                              const fp8c_compile_options *options)
{
    fp8c_module *module;
    fp8c_program *program = NULL;
    must(fp8c_module_parse(ctx, text, strlen(text), "bench_embed.f8", NULL, 0, &module) ==
                 FP8C_OK &&
             fp8c_compile(module, options, &program) == FP8C_OK &&
             fp8c_program_initialize(program, 1) == FP8C_OK,
         fp8c_context_message(ctx));
    fp8c_module_destroy(module);
    return program;
}

/* Seconds of one run, the median of rounds. */
static double run_seconds(fp8c_program *p, int function, const fp8c_tensor_view *in,
                          const fp8c_tensor_view *out)
{
    double seconds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        const double start = f8_seconds_now();
        for (int i = 0; i < RUNS; i++)
            must((in ? fp8c_program_call(p, function, &in, 1, &out, 1)
                     : fp8c_program_run(p, function)) == FP8C_OK,
                 "run");
        seconds[r] = (f8_seconds_now() - start) / RUNS;
    }
    return median(seconds, ROUNDS);
}

/* One kernel over one element: its own time is some nanoseconds, so all of it is taken for
 * overhead. */
static void calls(bool json)
{
    static const char text[] = "module one\n"
                               "func forward(%x: f32[1]) -> (%y: f32[1]) {\n"
                               "  return mul(%x, %x)\n"
                               "}\n";
    fp8c_context *ctx;
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    for (int threads = 0; threads < 2; threads++) { /* 0: all */
        const fp8c_compile_options options = {
            .struct_size = sizeof options, .recipe = "f32", .inference = 1, .threads = threads};
        fp8c_program *p = compiled(ctx, text, &options);
        const int eval = fp8c_program_function(p, "eval");
        fp8c_info info = {.struct_size = sizeof info};
        must(fp8c_program_run(p, eval) == FP8C_OK, fp8c_context_message(ctx));
        fp8c_program_info(p, &info);
        must(info.kernels_executed == 1 && info.gemms_executed == 0, "one kernel");
        held(json, 1e6 * run_seconds(p, eval, NULL, NULL), 2, "us",
             threads ? "run_of_one_kernel_one_thread" : "run_of_one_kernel");
        if (threads) {
            static _Alignas(64) float x[16] = {3}, y[16];
            int64_t shape[1] = {1};
            const fp8c_tensor_view in = {
                .data = x, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape};
            fp8c_tensor_view out = in;
            out.data = y;
            held(json, 1e6 * run_seconds(p, eval, &in, &out), 2, "us",
                 "call_with_tensors_of_one_kernel");
            must(y[0] == 9, "3 * 3 is 9");
        }
        fp8c_program_destroy(p);
    }
    fp8c_context_destroy(ctx);
}

/* The same of a pair with a handle, each function one kernel: half of forward and backward. */
static void pair_calls(bool json)
{
    static const char text[] = "module one\n"
                               "func forward(%x: f32[1]) -> (%y: f32[1]) {\n"
                               "  return mul(%x, %x)\n"
                               "}\n";
    static _Alignas(64) float x[16] = {3}, y[16], dx[16];
    int64_t shape[1] = {1};
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .recipe = "f32",
                                          .pair = 1,
                                          .gradients_of = "x",
                                          .threads = 1};
    fp8c_context *ctx;
    fp8c_saved *saved;
    double seconds[ROUNDS];
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    fp8c_program *p = compiled(ctx, text, &options);
    must(fp8c_saved_create(p, &saved) == FP8C_OK, fp8c_context_message(ctx));
    fp8c_tensor_view v[3] = {
        {.data = x, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape}};
    v[1] = v[2] = v[0];
    v[1].data = y;
    v[2].data = dx;
    const fp8c_tensor_view *in[] = {&v[1], &v[0]}, *out = &v[1], *gradient = &v[2];
    for (int r = 0; r < ROUNDS; r++) {
        const double start = f8_seconds_now();
        for (int i = 0; i < RUNS; i++) /* y is its own cotangent */
            must(fp8c_program_forward(p, 0, saved, &in[1], 1, &out, 1) == FP8C_OK &&
                     fp8c_program_backward(p, saved, in, 2, &gradient, 1) == FP8C_OK,
                 fp8c_context_message(ctx));
        seconds[r] = (f8_seconds_now() - start) / (2 * RUNS);
    }
    must(dx[0] == 2 * 3 * 9, "the gradient of 3 * 3, times 9");
    held(json, 1e6 * median(seconds, ROUNDS), 2, "us", "call_of_a_pair_of_one_kernel_one_thread");
    fp8c_saved_destroy(saved);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}

/* ---- lives ---- */

static const char tiny[] =
    "module tiny\n"
    "param wte: f32[16, 32] normal(0.5)\n"
    "param fc: f32[32, 32] normal(0.1)\n"
    "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[]) {\n"
    "  return cross_entropy(linear(gelu(linear(embedding(wte, %tokens), fc)), wte) "
    "{transpose_b = true}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05}\n";

static fp8c_program *opened(fp8c_context *ctx, const char *file)
{
    const fp8c_open_options options = {.struct_size = sizeof options, .threads = 1};
    fp8c_program *p;
    must(fp8c_program_open(ctx, file, &options, &p) == FP8C_OK &&
             fp8c_program_initialize(p, 1) == FP8C_OK,
         fp8c_context_message(ctx));
    return p;
}

/* From nothing to a training step and back: from text, compiled or out of a warm cache, or from a
 * compiled file. */
static void lives(bool json, const char *cache, const char *file, const char *name)
{
    const fp8c_context_options own = {.struct_size = sizeof own, .cache_dir = cache};
    const fp8c_compile_options options = {.struct_size = sizeof options, .threads = 1};
    double seconds[LIVES];
    for (int i = -1; i < LIVES; i++) { /* the first loads libraries, and fills the cache */
        const double start = f8_seconds_now();
        fp8c_context *ctx;
        must(fp8c_context_create(&own, &ctx) == FP8C_OK, "context");
        fp8c_program *p = file ? opened(ctx, file) : compiled(ctx, tiny, &options);
        must(fp8c_program_run(p, fp8c_program_function(p, "micro_step")) == FP8C_OK &&
                 fp8c_program_run(p, fp8c_program_function(p, "update")) == FP8C_OK,
             fp8c_context_message(ctx));
        fp8c_program_destroy(p);
        fp8c_context_destroy(ctx);
        if (i >= 0)
            seconds[i] = f8_seconds_now() - start;
    }
    report(json, 1e3 * median(seconds, LIVES), "ms", "%s", name);
}

static void write_file(const char *path)
{
    const fp8c_compile_options options = {.struct_size = sizeof options};
    fp8c_context *ctx;
    fp8c_module *m;
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    must(fp8c_module_parse(ctx, tiny, strlen(tiny), "tiny.f8", NULL, 0, &m) == FP8C_OK &&
             fp8c_compile_file(m, &options, 1, path) == FP8C_OK,
         fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

static void all_lives(bool json)
{
    char folder[] = "/tmp/bench_embed.XXXXXX", file[64], nothing[8];
    must(mkdtemp(folder) != NULL, folder);
    snprintf(file, sizeof file, "%s/tiny.f8x", folder);
    lives(json, "", NULL, "life_of_a_small_program");
    lives(json, folder, NULL, "life_of_a_small_program_cached");
    write_file(file);
    lives(json, "", file, "life_of_a_small_program_opened");
    output_of((char *[]){"rm", "-r", folder, NULL}, nothing, sizeof nothing);
}

int main(int argc, char **argv)
{
    char self[PATH_MAX], folder[PATH_MAX], path[PATH_MAX + 32];
    bool json = false;
    if (argc == 3 && !strcmp(argv[1], "--load"))
        return load(argv[2]);
    must(realpath("/proc/self/exe", self) != NULL, "/proc/self/exe");
    memcpy(folder, self, sizeof self);
    snprintf(path, sizeof path, "%s/libfp8c.so.%d", dirname(dirname(folder)), FP8C_ABI);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--json"))
            json = true;
        else
            snprintf(path, sizeof path, "%s", argv[i]);
    library(json, self, path);
    calls(json);
    pair_calls(json);
    all_lives(json);
    return 0;
}
