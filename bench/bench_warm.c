/* Compiling gpt2_124m.f8, all its entry points, in new processes: with an empty kernel cache, and
 * with all kernels in it. The bar of a warm one is 0.2 s.
 *
 *     bench_warm [--json] [ROUNDS]
 *
 * For the CPU, and without a device for sm_90a, where NVRTC is there: its empty cache once only, as
 * that takes long. Seconds are of fp8c_context_create, _parse and _compile together, as the process
 * itself measures them, on the CPU with a program at the end that could run; "process" is from its
 * start to its end as its parent sees it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"

enum { ROUNDS = 9, MOST_ROUNDS = 99, NO_COMPILER = 2 };

static const char file[] = "frontend/models/gpt2_124m.f8";
static const double bar = 0.2;

/* ---- one process ---- */

/* Exit status 2: the target's compiler is not there. */
static int compile(const char *target, const char *recipe, const char *folder)
{
    const double start = f8_seconds_now();
    size_t size;
    char *text = read_file(file, &size);
    const fp8c_context_options where = {.struct_size = sizeof where, .cache_dir = folder};
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .target = target,
                                          .recipe = recipe,
                                          .no_device = strcmp(target, "cpu") != 0};
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    must(fp8c_context_create(&where, &ctx) == FP8C_OK, "a context");
    must(fp8c_module_parse(ctx, text, size, file, NULL, 0, &module) == FP8C_OK,
         fp8c_context_message(ctx));
    const fp8c_status status = fp8c_compile(module, &options, &program);
    if (status == FP8C_ERR_LIBRARY && strcmp(target, "cpu"))
        return NO_COMPILER;
    must(status == FP8C_OK, fp8c_context_message(ctx));
    const double seconds = f8_seconds_now() - start;
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(program, &info);
    printf("%.9f %lld %lld\n", seconds, (long long)info.distinct_kernels,
           (long long)info.kernels_cached);
    return 0; /* the process's end gives all back */
}

/* ---- many ---- */

typedef struct measured {
    double seconds, process;
    long long kernels, cached;
} measured;

/* False: the target's compiler is not there. */
static bool run(const char *target, const char *recipe, const char *folder, measured *m)
{
    char self[PATH_MAX + 1] = "", command[2 * PATH_MAX];
    must(readlink("/proc/self/exe", self, PATH_MAX) > 0, "the program's own path");
    snprintf(command, sizeof command, "'%s' --process %s %s '%s'", self, target, recipe, folder);
    const double start = f8_seconds_now();
    FILE *out = popen(command, "r");
    must(out != NULL, "a process");
    const bool told = fscanf(out, "%lf %lld %lld", &m->seconds, &m->kernels, &m->cached) == 3;
    const int status = pclose(out);
    m->process = f8_seconds_now() - start;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_COMPILER)
        return false;
    must(told && status == 0, "a process's figures");
    return true;
}

static void empty(const char *folder)
{
    char command[PATH_MAX + 20];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    must(system(command) == 0, command);
}

/* Of a target's processes: the empty cache `colds` times, then the full one. */
static void measure(bool json, const char *target, const char *recipe, const char *folder,
                    int rounds, int colds)
{
    double cold[MOST_ROUNDS], warm[MOST_ROUNDS], process[MOST_ROUNDS];
    measured m;
    for (int i = 0; i < rounds; i++) {
        if (i < colds) {
            empty(folder);
            if (!run(target, recipe, folder, &m)) {
                fprintf(stderr, "not measured: %s, %s: its compiler is not there\n", target,
                        recipe);
                return;
            }
            must(m.cached == 0, "nothing cached at first");
            cold[i] = m.seconds;
        }
        must(run(target, recipe, folder, &m) && m.cached == m.kernels, "all cached after it");
        warm[i] = m.seconds;
        process[i] = m.process;
    }
    empty(folder);
    const double middle = median(warm, rounds);
    report(json, median(cold, colds), "s", "compile gpt2_124m, %s, %s, empty cache", target,
           recipe);
    report(json, middle, "s", "compile gpt2_124m, %s, %s, warm cache", target, recipe);
    report(json, warm[0], "s", "compile gpt2_124m, %s, %s, warm cache, least", target,
           recipe); /* sorted */
    report(json, median(process, rounds), "s", "compile gpt2_124m, %s, %s, warm cache, process",
           target, recipe);
    if (middle >= bar)
        fprintf(stderr, "NOT HELD: a warm compile takes %.3f s, the bar is %g\n", middle, bar);
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "--process"))
        return compile(argv[2], argv[3], argv[4]);
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    const int rounds = argc > 1 + json ? atoi(argv[1 + json]) : ROUNDS;
    must(rounds >= 1 && rounds <= MOST_ROUNDS, "ROUNDS is 1 to 99");
    char folder[] = "/tmp/fp8c-bench-XXXXXX";
    must(mkdtemp(folder) != NULL, "a temporary folder");
    measure(json, "cpu", "bf16", folder, rounds, rounds);
    measure(json, "cpu", "delayed", folder, rounds, rounds);
    measure(json, "sm_90a", "bf16", folder, rounds, 1);
    measure(json, "sm_90a", "delayed", folder, rounds, 1);
    return 0;
}
