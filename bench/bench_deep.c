/* How compiling grows: with the layers of a small block, and with the length of a chain of ops. How
 * long plans for all budgets of `fp8c plan` take for 48 layers.
 *
 *     bench_deep [--json]
 *
 * Each compile has a context of its own and no kernel cache. Seconds are of fp8c_compile for the
 * CPU, all entry points; "CPU" are those of all threads together, which a busy machine changes
 * least. The bars: from 24 to 200 layers CPU seconds grow no faster than layers do; the plans for
 * 48 layers take 5 s. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"

static const char file[] = "frontend/models/llama_block.f8";
static const char large[] = "frontend/models/mpt_1b.f8";

static const char chain[] = "module chain\n"
                            "dim L = 1, N = 256\n"
                            "param w: f32[N] ones\n"
                            "func forward(%x: f32[N]) -> (%loss: f32[]) {\n"
                            "  %z = mul(%x, w)\n"
                            "  repeat i < L carry %y = %z {\n"
                            "    %y = tanh(%y)\n"
                            "  }\n"
                            "  return reshape(reduce_sum(%y)) {shape = []}\n"
                            "}\n"
                            "optimizer adamw {lr = 1e-3}\n";

typedef struct measured {
    double seconds, cpu;
    int64_t kernels;
} measured;

static int64_t kernels_of(const fp8c_program *program)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(program, &info);
    return info.distinct_kernels;
}

/* Compiles `text` with L = length. */
static measured compile(const char *text, int64_t length, const char *recipe)
{
    const fp8c_context_options none = {.struct_size = sizeof none, .cache_dir = ""};
    const fp8c_dim depth = {"L", length};
    const fp8c_compile_options options = {.struct_size = sizeof options, .recipe = recipe};
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    must(fp8c_context_create(&none, &ctx) == FP8C_OK, "a context");
    must(fp8c_module_parse(ctx, text, strlen(text), file, &depth, 1, &module) == FP8C_OK,
         fp8c_context_message(ctx));
    const double start = f8_seconds_now();
    const clock_t before = clock();
    must(fp8c_compile(module, &options, &program) == FP8C_OK, fp8c_context_message(ctx));
    const measured m = {f8_seconds_now() - start, (double)(clock() - before) / CLOCKS_PER_SEC,
                        kernels_of(program)};
    fp8c_program_destroy(program);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return m;
}

static void layers(bool json, const char *text, const char *recipe)
{
    static const int64_t deep[] = {24, 50, 100, 200};
    enum { N = sizeof deep / sizeof *deep };
    measured m[N];
    for (int i = 0; i < N; i++) {
        m[i] = compile(text, deep[i], recipe);
        report(json, m[i].seconds, "s", "deep: %d layers, %s", (int)deep[i], recipe);
        report(json, m[i].cpu, "s", "deep: %d layers, %s, CPU", (int)deep[i], recipe);
        report(json, (double)m[i].kernels, "kernels", "deep: %d layers, %s, distinct", (int)deep[i],
               recipe);
    }
    const double growth = m[N - 1].cpu / m[0].cpu, linear = (double)deep[N - 1] / (double)*deep;
    report(json, growth, "ratio", "deep: 200 layers over 24, %s", recipe);
    if (growth > linear)
        fprintf(stderr, "  above the bar: %.2f times the seconds for %.2f times the layers\n",
                growth, linear);
}

static void chains(bool json)
{
    static const int64_t length[] = {500, 1000, 2000, 4000};
    for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
        const measured m = compile(chain, length[i], "f32");
        report(json, m.seconds, "s", "deep: %d chained tanh", (int)length[i]);
        report(json, m.cpu, "s", "deep: %d chained tanh, CPU", (int)length[i]);
    }
}

/* The table of `fp8c plan`: a compile without code, and each budget in turn. */
static void plans(bool json, const char *path)
{
    static const double shares[] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01};
    enum { BAR = 5 };
    const fp8c_dim depth = {"L", 48};
    const fp8c_compile_options options = {
        .struct_size = sizeof options, .recipe = "delayed", .plan_only = 1};
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    size_t size;
    char *text = read_file(path, &size);
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "a context");
    must(fp8c_module_parse(ctx, text, size, path, &depth, 1, &module) == FP8C_OK,
         fp8c_context_message(ctx));
    const clock_t before = clock();
    must(fp8c_compile(module, &options, &program) == FP8C_OK, fp8c_context_message(ctx));
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        fp8c_remat remat = {.struct_size = sizeof remat};
        must(fp8c_program_remat(program, 0, shares[i], &remat) == FP8C_OK,
             fp8c_context_message(ctx));
    }
    const double cpu = (double)(clock() - before) / CLOCKS_PER_SEC;
    report(json, cpu, "s", "deep: plans for 12 budgets, 48 layers of %s, CPU", path);
    if (cpu > BAR)
        fprintf(stderr, "  above the bar of %d s: %.2f s\n", BAR, cpu);
    fp8c_program_destroy(program);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    free(text);
}

int main(int argc, char **argv)
{
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    size_t size;
    char *text = read_file(file, &size);
    compile(chain, 1, "f32"); /* loads LLVM */
    layers(json, text, "delayed");
    layers(json, text, "block");
    chains(json);
    plans(json, file);
    plans(json, large);
    free(text);
    return 0;
}
