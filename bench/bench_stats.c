/* What watching costs: a training step of GPT-2 124M (B=1, T=1024, delayed; micro_step and update)
 * with the statistics of every operand of a linear's GEMM, over the plain step of the same program;
 * and with those of another recipe, too. In a round all take turns, so that a busy machine disturbs
 * all alike.
 *
 *     bench_stats [--json] [ROUNDS [THREADS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"

enum { MAX_ROUNDS = 64, KINDS = 3 };

typedef struct watched {
    fp8c_program *program;
    const char *function, *name;
} watched;

static fp8c_program *make(fp8c_context *ctx, const fp8c_module *module, int threads,
                          const char *what_if)
{
    fp8c_program *p;
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .recipe = "delayed",
                                    .threads = threads,
                                    .stats = "*.x,*.w,*.dy,*.x.*,*.dy.*",
                                    .stats_recipe = what_if};
    must(fp8c_compile(module, &o, &p) == FP8C_OK, fp8c_context_message(ctx));
    must(fp8c_program_initialize(p, 1) == FP8C_OK, fp8c_context_message(ctx));
    return p;
}

static void fill(fp8c_program *p, int function)
{
    static const char *const port[] = {"tokens", "targets"};
    for (int side = 0; side < 2; side++) {
        int32_t *ids = fp8c_program_buffer(
            p, function, FP8C_INPUT, fp8c_program_find_port(p, function, FP8C_INPUT, port[side]));
        for (int t = 0; t < 1024; t++)
            ids[t] = (int32_t)((uint32_t)(t + side) * 2654435761u % 50257u);
    }
}

static double run_step(fp8c_context *ctx, const watched *w)
{
    const int function = fp8c_program_function(w->program, w->function);
    fill(w->program, function);
    const double start = f8_seconds_now();
    must(fp8c_program_run(w->program, function) == FP8C_OK &&
             fp8c_program_run(w->program, fp8c_program_function(w->program, "update")) == FP8C_OK,
         fp8c_context_message(ctx));
    return f8_seconds_now() - start;
}

static int64_t kernels(fp8c_context *ctx, const watched *w)
{
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    fp8c_program_info(w->program, &before);
    run_step(ctx, w);
    fp8c_program_info(w->program, &after);
    return after.kernels_executed - before.kernels_executed;
}

int main(int argc, char **argv)
{
    bool json = false;
    int rounds = 20, threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 1, at = 0; i < argc; i++)
        if (!strcmp(argv[i], "--json"))
            json = true;
        else
            *(at++ ? &threads : &rounds) = atoi(argv[i]);
    must(rounds >= 1 && rounds <= MAX_ROUNDS && threads >= 1, "usage: [--json] [ROUNDS [THREADS]]");

    size_t size;
    const char *file = "frontend/models/gpt2_124m.f8";
    char *text = read_file(file, &size);
    fp8c_context *ctx;
    fp8c_module *module;
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    must(fp8c_module_parse(ctx, text, size, file, NULL, 0, &module) == FP8C_OK,
         fp8c_context_message(ctx));
    fp8c_program *own = make(ctx, module, threads, NULL),
                 *what_if = make(ctx, module, threads, "block");
    const watched kind[KINDS] = {{own, "micro_step", "plain"},
                                 {own, "micro_step.stats", "stats"},
                                 {what_if, "micro_step.stats", "stats_and_what_if"}};
    double seconds[KINDS][MAX_ROUNDS], ratio[KINDS][MAX_ROUNDS];
    for (int k = 0; k < KINDS; k++) /* which is the first touch of every page */
        report(json, (double)kernels(ctx, &kind[k]), "kernels", "step_%s_kernels", kind[k].name);
    for (int r = 0; r < rounds; r++) {
        for (int k = 0; k < KINDS; k++) {
            seconds[k][r] = run_step(ctx, &kind[k]);
            ratio[k][r] = seconds[k][r] / seconds[0][r];
        }
        fprintf(stderr, "round %d: %.3f %.3f %.3f s\n", r + 1, seconds[0][r], seconds[1][r],
                seconds[2][r]);
    }
    for (int k = 1; k < KINDS; k++) {
        report(json, median(ratio[k], rounds), "ratio", "step_%s_over_plain", kind[k].name);
        report(json, ratio[k][rounds / 4], "ratio", "step_%s_over_plain_lower_quartile",
               kind[k].name); /* median has sorted them */
        report(json, ratio[k][rounds * 3 / 4], "ratio", "step_%s_over_plain_upper_quartile",
               kind[k].name);
    }
    report(json, median(seconds[0], rounds), "s", "step_plain");
    return 0;
}
