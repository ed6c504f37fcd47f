/* What tuning is worth: GPT-2 124M's step (micro_step and update) on the CPU, compiled with the
 * model's choices and with those of a database that the tuner filled just before. The two take
 * turns; the figure is the median of the rounds' ratios. Parameters of both are compared bit by bit
 * at the end (with --same-bits; other algorithms change them).
 *
 *     bench_tune [--json] [SECONDS [T [ROUNDS [THREADS]]]]
 *
 * SECONDS is what the tuner may take before it begins nothing new (default 180), T the tokens of
 * the step (128), THREADS 0 for all CPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_tune.h"
#include "ir/base/clock.h"

enum { MOST_ROUNDS = 64 };

typedef struct bench {
    bool json;
    double seconds;
    int64_t tokens;
    int rounds, threads;
    char folder[32], database[64];
    fp8c_context *ctx[2]; /* without a database, with it */
    fp8c_module *module[2];
    fp8c_program *program[2];
} bench;

static fp8c_compile_options compile_options(const bench *x)
{
    return (fp8c_compile_options){
        .struct_size = sizeof(fp8c_compile_options), .recipe = "delayed", .threads = x->threads};
}

static void parse(bench *x)
{
    static const char file[] = "frontend/models/gpt2_124m.f8";
    const fp8c_dim dims[] = {{"B", 1}, {"T", x->tokens}};
    size_t size;
    char *text = read_file(file, &size);
    for (int i = 0; i < 2; i++) {
        const fp8c_context_options o = {
            .struct_size = sizeof o, .tuning = i ? x->database : "", .cache_dir = ""};
        must(fp8c_context_create(&o, &x->ctx[i]) == FP8C_OK, "context");
        must(fp8c_module_parse(x->ctx[i], text, size, file, dims, 2, &x->module[i]) == FP8C_OK,
             fp8c_context_message(x->ctx[i]));
    }
    free(text);
}

static void tune(bench *x)
{
    const fp8c_compile_options compile = compile_options(x);
    const fp8c_tune_options o = {.struct_size = sizeof o,
                                 .compile = &compile,
                                 .seconds = x->seconds,
                                 .runs = 3,
                                 .same_bits = 1};
    fp8c_tuning_info info = {.struct_size = sizeof info};
    fp8c_tuning *t;
    fp8c_tuned p;
    const double start = f8_seconds_now();
    must(fp8c_tune(x->ctx[1], x->module[1], &o, &t) == FP8C_OK, fp8c_context_message(x->ctx[1]));
    fp8c_tuning_report(t, &info);
    report(x->json, f8_seconds_now() - start, "s", "tune_seconds");
    report(x->json, info.problems, "problems", "tune_problems");
    report(x->json, (double)info.timed, "candidates", "tune_timed");
    report(x->json, info.chosen, "problems", "tune_chosen");
    report(x->json, info.finished, "", "tune_finished");
    for (int i = 0; fp8c_tuning_problem(t, i, &p) == FP8C_OK; i++)
        if (strcmp(p.candidate, "model"))
            fprintf(stderr, "%9.3f ms -> %9.3f ms  %-16s x%-3d %s (%s)\n", 1e3 * p.model_seconds,
                    1e3 * p.seconds, p.candidate, p.count, p.name, p.problem);
    fp8c_tuning_destroy(t);
}

static double run_step(const bench *x, int side)
{
    fp8c_program *p = x->program[side];
    const double start = f8_seconds_now();
    must(fp8c_program_run(p, fp8c_program_function(p, "micro_step")) == FP8C_OK &&
             fp8c_program_run(p, fp8c_program_function(p, "update")) == FP8C_OK,
         fp8c_context_message(x->ctx[side]));
    return f8_seconds_now() - start;
}

static void make_program(bench *x, int side)
{
    const fp8c_compile_options o = compile_options(x);
    must(fp8c_compile(x->module[side], &o, &x->program[side]) == FP8C_OK,
         fp8c_context_message(x->ctx[side]));
    fp8c_program *p = x->program[side];
    must(fp8c_program_initialize(p, 1) == FP8C_OK, fp8c_context_message(x->ctx[side]));
    const int step = fp8c_program_function(p, "micro_step");
    for (int port = 0; port < 2; port++) {
        int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT, port);
        for (int64_t t = 0; t < x->tokens; t++)
            ids[t] = (int32_t)((uint32_t)(t + port) * 2654435761u % 50257u);
    }
}

static bool same_parameters(const bench *x)
{
    fp8c_variable v[2];
    for (int i = 0; fp8c_program_variable(x->program[0], i, &v[0]) == FP8C_OK; i++) {
        must(fp8c_program_variable(x->program[1], i, &v[1]) == FP8C_OK, "the same variables");
        if (memcmp(v[0].data, v[1].data, (size_t)fp8c_type_bytes(&v[0].type)))
            return false;
    }
    return true;
}

static void compare(bench *x)
{
    double seconds[2][MOST_ROUNDS], ratio[MOST_ROUNDS];
    for (int side = 0; side < 2; side++) {
        make_program(x, side);
        run_step(x, side);
    }
    for (int r = 0; r < x->rounds; r++) {
        for (int k = 0; k < 2; k++)
            seconds[k ^ (r & 1)][r] = run_step(x, k ^ (r & 1));
        ratio[r] = seconds[1][r] / seconds[0][r];
    }
    report(x->json, 1e3 * median(seconds[0], x->rounds), "ms", "step_untuned");
    report(x->json, 1e3 * median(seconds[1], x->rounds), "ms", "step_tuned");
    report(x->json, median(ratio, x->rounds), "ratio", "tuned_over_untuned");
    must(same_parameters(x), "tuned and untuned parameters have the same bits");
}

int main(int argc, char **argv)
{
    bench x = {.seconds = 180, .tokens = 128, .rounds = 15, .folder = "/tmp/fp8c_bench_XXXXXX"};
    x.json = argc > 1 && !strcmp(argv[1], "--json");
    argc -= x.json;
    argv += x.json;
    x.seconds = argc > 1 ? atof(argv[1]) : x.seconds;
    x.tokens = argc > 2 ? atoll(argv[2]) : x.tokens;
    x.rounds = argc > 3 ? atoi(argv[3]) : x.rounds;
    x.threads = argc > 4 ? atoi(argv[4]) : 0;
    must(x.rounds > 0 && x.rounds <= MOST_ROUNDS && x.tokens > 0 && x.tokens <= 1024,
         "bench_tune: see its first lines");
    must(mkdtemp(x.folder) != NULL, "a folder");
    snprintf(x.database, sizeof x.database, "%s/tuning.db", x.folder);
    parse(&x);
    tune(&x);
    compare(&x);
    for (int i = 0; i < 2; i++) {
        fp8c_program_destroy(x.program[i]);
        fp8c_module_destroy(x.module[i]);
        fp8c_context_destroy(x.ctx[i]);
    }
    unlink(x.database);
    rmdir(x.folder);
    return 0;
}
