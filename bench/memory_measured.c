/* Budgets measured: GPT-2 124M on this machine. See memory.h.
 *
 * Programs without a budget, with half of the activations and with a checkpoint at every layer take
 * turns, one micro-step and update each, in an order that rotates; what counts are ratios within a
 * round, of time and, since others may use the machine, of the CPUs' time. After both the variables
 * (parameters, gradients, moments, scales and histories) of all programs and their losses are
 * compared byte by byte. */
#include "bench/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"

enum { PROGRAMS = 3, MAX_ROUNDS = 32, BATCH = 2 };

static const char model[] = "gpt2_124m";
static const struct {
    const char *name;
    plan_wish wish;
} kind[PROGRAMS] = {
    {.name = "no budget"}, {"share 0.5", {.share = 0.5}}, {"every layer", {.checkpoint = "x.*"}}};

typedef struct race {
    output *o;
    const char *recipe;
    int threads;
    fp8c_context *ctx;
    fp8c_program *program[PROGRAMS];
    plan_result planned[PROGRAMS];
    double ratio[PROGRAMS][MAX_ROUNDS], cpu_ratio[PROGRAMS][MAX_ROUNDS], least[PROGRAMS];
    int64_t variables, compared; /* bytes: compared in all, of each program with the first */
    bool same;
} race;

static void check(const race *x, fp8c_status status)
{
    must(status == FP8C_OK, fp8c_context_message(x->ctx));
}

static void make_programs(race *x)
{
    size_t size;
    char path[128];
    fp8c_module *module;
    snprintf(path, sizeof path, "frontend/models/%s.f8", model);
    char *text = read_file(path, &size);
    const fp8c_dim batch = {"B", BATCH};
    must(fp8c_context_create(NULL, &x->ctx) == FP8C_OK, "context");
    check(x, fp8c_module_parse(x->ctx, text, size, path, &batch, 1, &module));
    for (int i = 0; i < PROGRAMS; i++) {
        const plan_case c = {.model = model, .recipe = x->recipe, .target = "cpu", .batch = BATCH};
        const fp8c_compile_options o = {.struct_size = sizeof o,
                                        .recipe = x->recipe,
                                        .threads = x->threads,
                                        .memory_share = kind[i].wish.share,
                                        .checkpoint = kind[i].wish.checkpoint};
        check(x, fp8c_compile(module, &o, &x->program[i]));
        check(x, fp8c_program_initialize(x->program[i], 1));
        plan(&c, &kind[i].wish, &x->planned[i]);
    }
    fp8c_module_destroy(module);
    free(text);
}

static int function(const race *x, int i, const char *name)
{
    const int f = fp8c_program_function(x->program[i], name);
    must(f >= 0, name);
    return f;
}

static void fill_batch(const race *x, int i, int round)
{
    static const char *const name[2] = {"tokens", "targets"};
    const int f = function(x, i, "micro_step");
    for (int side = 0; side < 2; side++) {
        fp8c_port port;
        const int at = fp8c_program_find_port(x->program[i], f, FP8C_INPUT, name[side]);
        must(at >= 0, name[side]);
        check(x, fp8c_program_port(x->program[i], f, FP8C_INPUT, at, &port));
        int32_t *ids = fp8c_program_buffer(x->program[i], f, FP8C_INPUT, at);
        const int64_t n = fp8c_type_bytes(&port.type) / 4;
        for (int64_t t = 0; t < n; t++)
            ids[t] = (int32_t)((uint32_t)(t + side + round * n) * 2654435761u % 50257u);
    }
}

typedef struct took {
    double seconds, cpu; /* cpu: of all threads */
} took;

static double cpu_now(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0, "clock");
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static took run(const race *x, int i, const char *name)
{
    const took start = {f8_seconds_now(), cpu_now()};
    check(x, fp8c_program_run(x->program[i], function(x, i, name)));
    return (took){f8_seconds_now() - start.seconds, cpu_now() - start.cpu};
}

/* All variables and results of micro_step of program `i` with the first's. */
static void compare(race *x, int i)
{
    fp8c_variable a, b;
    fp8c_port port;
    x->variables = 0;
    for (int k = 0; fp8c_program_variable(x->program[0], k, &a) == FP8C_OK; k++) {
        check(x, fp8c_program_variable(x->program[i], k, &b));
        const int64_t n = fp8c_type_bytes(&a.type);
        x->same &= !strcmp(a.name, b.name) && !memcmp(a.data, b.data, (size_t)n);
        x->variables += n;
    }
    x->compared += x->variables;
    const int f = function(x, 0, "micro_step"), g = function(x, i, "micro_step");
    for (int k = 0; fp8c_program_port(x->program[0], f, FP8C_OUTPUT, k, &port) == FP8C_OK; k++)
        if (port.variable < 0)
            x->same &= !memcmp(fp8c_program_buffer(x->program[0], f, FP8C_OUTPUT, k),
                               fp8c_program_buffer(x->program[i], g, FP8C_OUTPUT, k),
                               (size_t)fp8c_type_bytes(&port.type));
}

static void one_round(race *x, int round)
{
    took step[PROGRAMS];
    for (int k = 0; k < PROGRAMS; k++) {
        const int i = (k + round + 1) % PROGRAMS;
        fill_batch(x, i, round + 1);
        step[i] = run(x, i, "micro_step");
    }
    for (int i = 1; i < PROGRAMS; i++)
        compare(x, i);
    for (int i = 0; i < PROGRAMS; i++)
        run(x, i, "update");
    for (int i = 1; i < PROGRAMS; i++)
        compare(x, i);
    for (int i = 0; i < PROGRAMS && round >= 0; i++) {
        x->ratio[i][round] = step[i].seconds / step[0].seconds;
        x->cpu_ratio[i][round] = step[i].cpu / step[0].cpu;
        x->least[i] = round ? fmin(x->least[i], step[i].seconds) : step[i].seconds;
    }
    if (round >= 0)
        fprintf(stderr, "%s round %d: %.3f %.3f %.3f s, %s\n", x->recipe, round + 1,
                step[0].seconds, step[1].seconds, step[2].seconds,
                x->same ? "same bits" : "DIFFERENT BITS");
}

/* In percent, by which the least and the median of ratios are more than 1. */
typedef struct spread {
    double least, middle;
} spread;

static spread spread_of(double *ratio, int rounds)
{
    const double middle = median(ratio, rounds); /* sorts them */
    return (spread){100 * (ratio[0] - 1), 100 * (middle - 1)};
}

static void print_program(race *x, int i, int rounds)
{
    output *o = x->o;
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(x->program[i], &info);
    const plan_result *p = &x->planned[i];
    const double predicted = percent(p->extra_seconds, p->seconds);
    const spread wall = spread_of(x->ratio[i], rounds), cpu = spread_of(x->cpu_ratio[i], rounds);
    say(o,
        "| %s | %.1f | %lld | %lld: %s | %.2f%% | %.2f%% | %.2f%% | %.2f%% | %.2f%% | %.2f%% | "
        "%.3f |\n",
        kind[i].name, mib(p->after), (long long)info.planned_bytes, (long long)info.peak_bytes,
        bar(o, info.planned_bytes == info.peak_bytes), predicted, wall.least, wall.middle,
        100 * (x->least[i] / x->least[0] - 1), cpu.least, cpu.middle, x->least[i]);
    record(o, x->least[i], "s", "memory_measured_micro_step %s %s", x->recipe, kind[i].name);
    if (i == 0)
        return;
    record(o, predicted, "% extra time", "memory_measured_predicted %s %s", x->recipe,
           kind[i].name);
    record(o, wall.middle, "% extra time", "memory_measured_median %s %s", x->recipe, kind[i].name);
    record(o, cpu.middle, "% extra time of CPUs", "memory_measured_cpu_median %s %s", x->recipe,
           kind[i].name);
}

static void print_race(race *x, int rounds)
{
    output *o = x->o;
    say(o, "\n### %s B=%d %s, %d threads, %d rounds\n\n", model, BATCH, x->recipe, x->threads,
        rounds);
    say(o, "| program | arena MiB | planned bytes | peak bytes | predicted extra | measured extra: "
           "least | median | of the least times "
           "| of CPU time: least | median | micro-step s |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < PROGRAMS; i++)
        print_program(x, i, rounds);
    say(o,
        "\nSame bits, %.0f MiB of variables after every micro-step and every update, and the "
        "losses: %s (%.1f GiB compared)\n",
        mib(x->variables), bar(o, x->same), mib(x->compared) / 1024);
}

void part_measured(output *o, int rounds, int threads)
{
    static const char *const recipe[] = {"bf16", "delayed"};
    say(o, "\n## measured: extra time on this machine against the prediction\n");
    for (int r = 0; r < 2; r++) {
        race x = {.o = o, .recipe = recipe[r], .threads = threads, .same = true};
        make_programs(&x);
        for (int round = -1; round < rounds; round++) /* the first touches every page */
            one_round(&x, round);
        print_race(&x, rounds);
        for (int i = 0; i < PROGRAMS; i++)
            fp8c_program_destroy(x.program[i]);
        fp8c_context_destroy(x.ctx);
    }
}
