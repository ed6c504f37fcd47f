/* Compiling gpt2_124m.f8, all its entry points, in new processes: with an empty kernel cache, and with all kernels in
 * it. The bar of a warm one is 0.2 s.
 *
 *     bench_warm [--json] [ROUNDS]
 *
 * Seconds are of fp8c_context_create, _parse and _compile together, as the process itself measures them, with
 * a program at the end that could run; "process" is from its start to its end as its parent sees it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "ir/clock.h"

enum { ROUNDS = 9, MOST_ROUNDS = 99 };

static const char file[] = "frontend/models/gpt2_124m.f8";
static const double bar = 0.2;

/* ---- one process ---- */

static int compile(const char *recipe, const char *folder)
{
    const double start = f8_seconds_now();
    size_t size;
    char *text = read_file(file, &size);
    const fp8c_context_options where = {.struct_size = sizeof where, .cache_dir = folder};
    const fp8c_compile_options options = {.struct_size = sizeof options, .recipe = recipe};
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    must(fp8c_context_create(&where, &ctx) == FP8C_OK, "a context");
    must(fp8c_module_parse(ctx, text, size, file, NULL, 0, &module) == FP8C_OK, fp8c_context_message(ctx));
    must(fp8c_compile(module, &options, &program) == FP8C_OK, fp8c_context_message(ctx));
    const double seconds = f8_seconds_now() - start;
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(program, &info);
    printf("%.9f %lld %lld\n", seconds, (long long)info.distinct_kernels, (long long)info.kernels_cached);
    return 0; /* the process's end gives all back */
}

/* ---- many ---- */

typedef struct measured {
    double seconds, process;
    long long kernels, cached;
} measured;

static measured run(const char *recipe, const char *folder)
{
    measured m;
    char self[PATH_MAX + 1] = "", command[2 * PATH_MAX];
    must(readlink("/proc/self/exe", self, PATH_MAX) > 0, "the program's own path");
    snprintf(command, sizeof command, "'%s' --process %s '%s'", self, recipe, folder);
    const double start = f8_seconds_now();
    FILE *out = popen(command, "r");
    must(out && fscanf(out, "%lf %lld %lld", &m.seconds, &m.kernels, &m.cached) == 3, "a process's figures");
    must(pclose(out) == 0, "a process");
    m.process = f8_seconds_now() - start;
    return m;
}

static void empty(const char *folder)
{
    char command[PATH_MAX + 20];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    must(system(command) == 0, command);
}

static void measure(bool json, const char *recipe, const char *folder, int rounds)
{
    double cold[MOST_ROUNDS], warm[MOST_ROUNDS], process[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        empty(folder);
        const measured c = run(recipe, folder), w = run(recipe, folder);
        must(c.cached == 0 && w.cached == w.kernels, "nothing cached at first, and all after it");
        cold[i] = c.seconds;
        warm[i] = w.seconds;
        process[i] = w.process;
    }
    empty(folder);
    report(json, median(cold, rounds), "s", "compile gpt2_124m, %s, empty cache", recipe);
    report(json, cold[0], "s", "compile gpt2_124m, %s, empty cache, least", recipe);
    report(json, median(warm, rounds), "s", "compile gpt2_124m, %s, warm cache", recipe);
    report(json, warm[0], "s", "compile gpt2_124m, %s, warm cache, least", recipe);
    report(json, median(process, rounds), "s", "compile gpt2_124m, %s, warm cache, process", recipe);
    if (median(warm, rounds) >= bar)
        fprintf(stderr, "NOT HELD: a warm compile takes %.3f s, the bar is %g\n", median(warm, rounds), bar);
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--process"))
        return compile(argv[2], argv[3]);
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    const int wanted = argc > 1 + json ? atoi(argv[1 + json]) : ROUNDS;
    must(wanted >= 1 && wanted <= MOST_ROUNDS, "ROUNDS is 1 to 99");
    char folder[] = "/tmp/fp8c-bench-XXXXXX";
    must(mkdtemp(folder) != NULL, "a temporary folder");
    measure(json, "bf16", folder, wanted);
    measure(json, "delayed", folder, wanted);
    return 0;
}
