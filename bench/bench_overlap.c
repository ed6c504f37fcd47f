/* What communication costs that runs beside compute, and what it costs without that. A rank of two
 * trains against an engine that sleeps for bytes over bandwidth and computes nothing; all that it
 * exchanges in an optimizer step takes half of the time that the step computes. Three programs take
 * turns: one whose engine does not sleep (compute), one whose run goes on while it sleeps, and one
 * whose run waits (`on_caller`). Figures are steps over compute, for stages of ZeRO.
 *
 *     bench_overlap [--json] [ROUNDS] */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_ranks.h"
#include "ir/base/clock.h"

enum { MAX_ROUNDS = 64, VOCABULARY = 256, RANKS = 2 };

/* The other rank sends what this one sends. */
typedef struct engine {
    double seconds_a_byte; /* 0: no time at all */
    int64_t bytes;         /* to and from the other rank so far */
} engine;

static double begin_travel(engine *e, size_t bytes)
{
    e->bytes += (int64_t)bytes;
    return f8_seconds_now() + (double)bytes * e->seconds_a_byte;
}

/* Sleeps until then: what copying took is part of the time. */
static void end_travel(double end)
{
    const struct timespec t = {.tv_sec = (time_t)end,
                               .tv_nsec = (long)((end - (double)(time_t)end) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static int all_gather(void *user, const void *send, void *receive, size_t bytes)
{
    const double end = begin_travel(user, bytes);
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)receive + (size_t)r * bytes, send, bytes);
    end_travel(end);
    return 0;
}

static int all_to_all(void *user, const void *send, void *receive, size_t bytes)
{
    const double end = begin_travel(user, bytes);
    memcpy(receive, send, RANKS * bytes);
    end_travel(end);
    return 0;
}

typedef struct rank {
    engine engine;
    fp8c_program *program;
} rank;

static void make(rank *r, fp8c_context *ctx, const fp8c_module *module, int zero, bool on_caller)
{
    *r = (rank){0};
    const fp8c_comm comm = {.struct_size = sizeof comm,
                            .ranks = RANKS,
                            .user = &r->engine,
                            .all_gather = all_gather,
                            .all_to_all = all_to_all,
                            .on_caller = on_caller};
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .recipe = "bf16",
                                    .threads = 1,
                                    .comm = &comm,
                                    .zero = zero ? zero : -1};
    must(fp8c_compile(module, &o, &r->program) == FP8C_OK, fp8c_context_message(ctx));
    must(fp8c_program_initialize(r->program, 1) == FP8C_OK, fp8c_context_message(ctx));
    const int function = fp8c_program_function(r->program, "micro_step");
    fp8c_port at;
    for (int i = 0; fp8c_program_port(r->program, function, FP8C_INPUT, i, &at) == FP8C_OK; i++)
        if (at.variable < 0) {
            int32_t *ids = fp8c_program_buffer(r->program, function, FP8C_INPUT, i);
            for (int64_t t = 0; t < fp8c_type_bytes(&at.type) / 4; t++)
                ids[t] = (int32_t)((uint32_t)(t + i) * 2654435761u % VOCABULARY);
        }
}

static double step(fp8c_context *ctx, rank *r)
{
    const double start = f8_seconds_now();
    must(fp8c_program_run(r->program, fp8c_program_function(r->program, "micro_step")) == FP8C_OK &&
             fp8c_program_run(r->program, fp8c_program_function(r->program, "update")) == FP8C_OK,
         fp8c_context_message(ctx));
    return f8_seconds_now() - start;
}

static void measure(fp8c_context *ctx, const fp8c_module *module, int zero, int rounds, bool json)
{
    rank compute, beside, waiting;
    double over[MAX_ROUNDS], without[MAX_ROUNDS], alone[MAX_ROUNDS];
    make(&compute, ctx, module, zero, true);
    make(&beside, ctx, module, zero, false);
    make(&waiting, ctx, module, zero, true);
    step(ctx, &beside); /* the first touch of every page */
    step(ctx, &waiting);
    step(ctx, &compute);
    compute.engine.bytes = 0;
    step(ctx, &compute);
    const double bytes = (double)compute.engine.bytes;
    for (int i = 0; i < rounds; i++) {
        alone[i] = step(ctx, &compute);
        beside.engine.seconds_a_byte = waiting.engine.seconds_a_byte = alone[i] / 2 / bytes;
        over[i] = step(ctx, &beside) / alone[i];
        without[i] = step(ctx, &waiting) / alone[i];
        fprintf(stderr, "stage %d, round %d: %.4f s of compute, %.3f times that, %.3f waiting\n",
                zero, i + 1, alone[i], over[i], without[i]);
    }
    report(json, median(over, rounds), "ratio", "overlapped_over_compute_stage%d", zero);
    report(json, median(without, rounds), "ratio", "waiting_over_compute_stage%d", zero);
    report(json, median(alone, rounds), "s", "compute_stage%d", zero);
    fp8c_program_destroy(compute.program);
    fp8c_program_destroy(beside.program);
    fp8c_program_destroy(waiting.program);
}

int main(int argc, char **argv)
{
    prctl(PR_SET_TIMERSLACK, 1); /* nanosecond: threads that start later inherit it */
    static const char file[] = "frontend/models/gpt.f8";
    static const int stages[] = {0, 2, 3};
    bool json = false;
    int rounds = 5;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--json"))
            json = true;
        else
            rounds = atoi(argv[i]);
    must(rounds > 0 && rounds <= MAX_ROUNDS, "usage: [--json] [ROUNDS]");
    fp8c_context *ctx;
    fp8c_module *module;
    size_t size;
    char *text = read_file(file, &size);
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    must(fp8c_module_parse(ctx, text, size, file, NULL, 0, &module) == FP8C_OK,
         fp8c_context_message(ctx));
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        measure(ctx, module, stages[i], rounds, json);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    free(text);
    return 0;
}
