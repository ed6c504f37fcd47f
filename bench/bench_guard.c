/* What a guard costs: fp8c_guard_step over a training step of gpt.f8 under delayed (micro_step and
 * update), with scales, and with the statistics of every operand. In a round the step runs once,
 * and then the guard judges it, so both take turns on the same machine.
 *
 *     bench_guard [--json] [ROUNDS [THREADS]] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"

enum { MAX_ROUNDS = 1000, KINDS = 3, WARM_UP = 20 };

static void fill(fp8c_program *p, int function)
{
    static const char *const port[] = {"tokens", "targets"};
    for (int side = 0; side < 2; side++) {
        const int at = fp8c_program_find_port(p, function, FP8C_INPUT, port[side]);
        fp8c_port of;
        must(fp8c_program_port(p, function, FP8C_INPUT, at, &of) == FP8C_OK, "port");
        int32_t *ids = fp8c_program_buffer(p, function, FP8C_INPUT, at);
        for (int64_t i = 0; i < fp8c_type_bytes(&of.type) / 4; i++)
            ids[i] = (int32_t)((uint32_t)(i + side) * 2654435761u % 250u);
    }
}

static double value(fp8c_program *p, int function, const char *name)
{
    const float *at = fp8c_program_buffer(p, function, FP8C_OUTPUT,
                                          fp8c_program_find_port(p, function, FP8C_OUTPUT, name));
    must(at != NULL, name);
    return (double)*at;
}

typedef struct figures {
    double step[MAX_ROUNDS], judged[KINDS][MAX_ROUNDS];
} figures;

/* One step with one guard, which looks at more with each kind. */
static void run_step(fp8c_context *ctx, fp8c_program *p, fp8c_guard *guard, int kind,
                     int64_t number, double *ran, double *judged)
{
    const int function = fp8c_program_function(p, kind == 2 ? "micro_step.stats" : "micro_step"),
              update = fp8c_program_function(p, "update");
    fill(p, function);
    const double begin = f8_seconds_now();
    must(fp8c_program_run(p, function) == FP8C_OK && fp8c_program_run(p, update) == FP8C_OK,
         fp8c_context_message(ctx));
    const double end = f8_seconds_now();
    const fp8c_guard_facts facts = {.struct_size = sizeof facts,
                                    .step = number,
                                    .loss = value(p, function, "loss"),
                                    .grad_norm = value(p, update, "grad_norm"),
                                    .program = kind ? p : NULL,
                                    .function = function};
    must(fp8c_guard_step(guard, &facts) == FP8C_OK, fp8c_context_message(ctx));
    *judged = f8_seconds_now() - end;
    *ran = end - begin;
}

static void measure(fp8c_context *ctx, const char *size, const fp8c_dim *dims, size_t n_dims,
                    int rounds, int threads, bool json)
{
    static const char *const name[KINDS] = {"loss", "and_scales", "and_statistics"};
    static figures f;
    const char *file = "frontend/models/gpt.f8";
    size_t bytes;
    char *text = read_file(file, &bytes);
    fp8c_module *module;
    fp8c_program *p;
    fp8c_guard *guard[KINDS];
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .recipe = "delayed",
                                    .threads = threads,
                                    .stats = "*.x,*.w,*.dy,*.x.*,*.dy.*"};
    must(fp8c_module_parse(ctx, text, bytes, file, dims, n_dims, &module) == FP8C_OK &&
             fp8c_compile(module, &o, &p) == FP8C_OK && fp8c_program_initialize(p, 1) == FP8C_OK,
         fp8c_context_message(ctx));
    for (int k = 0; k < KINDS; k++)
        must(fp8c_guard_create(ctx, NULL, &guard[k]) == FP8C_OK, fp8c_context_message(ctx));
    for (int r = -WARM_UP; r < rounds; r++)
        for (int k = 0; k < KINDS; k++) {
            const int at = r < 0 ? 0 : r;
            double ran;
            run_step(ctx, p, guard[k], k, KINDS * (r + WARM_UP) + k + 1, &ran, &f.judged[k][at]);
            f.step[at] = k ? f.step[at] : ran;
        }
    const double whole = median(f.step, rounds);
    report(json, whole * 1e3, "ms", "guard_%s_step", size);
    for (int k = 0; k < KINDS; k++) {
        const double each = median(f.judged[k], rounds);
        report(json, each * 1e6, "us", "guard_%s_%s", size, name[k]);
        report(json, 100 * each / whole, "%", "guard_%s_%s_share", size, name[k]);
        fp8c_guard_destroy(guard[k]);
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(module);
    free(text);
}

int main(int argc, char **argv)
{
    static const fp8c_dim small[] = {{"L", 1}, {"C", 64}, {"T", 64}, {"B", 4}, {"H", 2}};
    bool json = false;
    int rounds = 100, threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    fp8c_context *ctx;
    for (int i = 1, at = 0; i < argc; i++)
        if (!strcmp(argv[i], "--json"))
            json = true;
        else
            *(at++ ? &threads : &rounds) = atoi(argv[i]);
    must(rounds >= 1 && rounds <= MAX_ROUNDS && threads >= 1, "usage: [--json] [ROUNDS [THREADS]]");
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    measure(ctx, "gpt", NULL, 0, rounds, threads, json);
    measure(ctx, "small_gpt", small, sizeof small / sizeof *small, rounds, threads, json);
    fp8c_context_destroy(ctx);
    return 0;
}
