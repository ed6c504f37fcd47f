/* What training together costs: a step of two ranks of one thread each under MPI, over the step of
 * the same two processes when each trains for itself at the same time. Both are optimizer steps
 * (micro_step and update) on a batch of the same size in each process. They take turns, and begin
 * together. On a busy machine the CPU time of both processes says more than the clock.
 *
 *     bench_ranks [--json] [ROUNDS] [MODEL]    starts itself under mpirun; MODEL: gpt, gpt2_124m */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_ranks.h"
#include "ir/base/clock.h"

enum { MAX_ROUNDS = 64, VOCABULARY = 256 };

typedef struct model {
    const char *file, *name;
    fp8c_dim dim;
    int rounds;
} model;

enum { STAGES = 2 };
static const int stages[STAGES] = {0, 3}; /* of ZeRO */

static fp8c_program *make(fp8c_context *ctx, const fp8c_module *module, const char *recipe,
                          const fp8c_comm *comm, int zero)
{
    fp8c_program *p;
    const fp8c_compile_options o = {
        .struct_size = sizeof o, .recipe = recipe, .threads = 1, .comm = comm, .zero = zero};
    must(fp8c_compile(module, &o, &p) == FP8C_OK, fp8c_context_message(ctx));
    must(fp8c_program_initialize(p, 1) == FP8C_OK, fp8c_context_message(ctx));
    return p;
}

static void fill(fp8c_program *p, int function, int rank)
{
    static const char *const port[] = {"tokens", "targets"};
    for (int side = 0; side < 2; side++) {
        fp8c_port at;
        const int index = fp8c_program_find_port(p, function, FP8C_INPUT, port[side]);
        must(fp8c_program_port(p, function, FP8C_INPUT, index, &at) == FP8C_OK, port[side]);
        int32_t *ids = fp8c_program_buffer(p, function, FP8C_INPUT, index);
        for (int t = 0; t < at.type.dim[0] * at.type.dim[1]; t++)
            ids[t] = (int32_t)((uint32_t)(t + side + 7919 * rank) * 2654435761u % VOCABULARY);
    }
}

/* What a step took: by the clock, and of CPUs in both processes. */
typedef struct taken {
    double seconds, cpu;
} taken;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A step that all ranks begin together, until the last has ended it. */
static taken run_step(fp8c_context *ctx, fp8c_program *p, const fp8c_comm *comm)
{
    taken own, all[2] = {0};
    const int function = fp8c_program_function(p, "micro_step");
    fill(p, function, comm->rank);
    must(!comm->all_gather(comm->user, &all[0], all, sizeof *all), "all_gather");
    const double start = f8_seconds_now(), cpu = cpu_seconds();
    must(fp8c_program_run(p, function) == FP8C_OK &&
             fp8c_program_run(p, fp8c_program_function(p, "update")) == FP8C_OK,
         fp8c_context_message(ctx));
    own = (taken){f8_seconds_now() - start, cpu_seconds() - cpu};
    must(!comm->all_gather(comm->user, &own, all, sizeof *all), "all_gather");
    return (taken){all[0].seconds > all[1].seconds ? all[0].seconds : all[1].seconds,
                   all[0].cpu + all[1].cpu};
}

/* The rounds of one model under one recipe. */
typedef struct rounds {
    int n;
    double alone[MAX_ROUNDS], ratio[STAGES][MAX_ROUNDS], cpu[STAGES][MAX_ROUNDS];
} rounds;

static void report_rounds(const model *m, const char *recipe, rounds *r, bool json)
{
    for (int s = 0; s < STAGES; s++) {
        report(json, median(r->ratio[s], r->n), "ratio", "two_ranks_over_alone_%s_%s_zero%d",
               m->name, recipe, stages[s]);
        report(json, median(r->cpu[s], r->n), "ratio", "cpu_of_two_ranks_over_alone_%s_%s_zero%d",
               m->name, recipe, stages[s]);
    }
    report(json, median(r->alone, r->n), "s", "step_alone_%s_%s", m->name, recipe);
}

static void run_rounds(fp8c_context *ctx, const model *m, const char *recipe, const fp8c_comm *comm,
                       fp8c_program *own, fp8c_program *const *together, rounds *r)
{
    for (int i = 0; i < r->n; i++) {
        const taken alone = run_step(ctx, own, comm);
        r->alone[i] = alone.seconds;
        for (int s = 0; s < STAGES; s++) {
            const taken t = run_step(ctx, together[s], comm);
            r->ratio[s][i] = t.seconds / alone.seconds;
            r->cpu[s][i] = t.cpu / alone.cpu;
            if (comm->rank == 0)
                fprintf(stderr,
                        "%s, %s, round %d: %.4f s alone, %.3f times that at stage %d, and %.3f "
                        "times its CPU time\n",
                        m->name, recipe, i + 1, alone.seconds, r->ratio[s][i], stages[s],
                        r->cpu[s][i]);
        }
    }
}

static void measure(fp8c_context *ctx, const model *m, const char *recipe, const fp8c_comm *comm,
                    int n, bool json)
{
    size_t size;
    char *text = read_file(m->file, &size);
    fp8c_module *module;
    rounds r = {.n = n};
    fp8c_program *together[STAGES];
    must(fp8c_module_parse(ctx, text, size, m->file, &m->dim, 1, &module) == FP8C_OK,
         fp8c_context_message(ctx));
    fp8c_program *own = make(ctx, module, recipe, NULL, 0);
    run_step(ctx, own, comm); /* the first touch of every page */
    for (int s = 0; s < STAGES; s++) {
        together[s] = make(ctx, module, recipe, comm, stages[s]);
        run_step(ctx, together[s], comm);
    }
    run_rounds(ctx, m, recipe, comm, own, together, &r);
    if (comm->rank == 0)
        report_rounds(m, recipe, &r, json);
    for (int s = 0; s < STAGES; s++)
        fp8c_program_destroy(together[s]);
    fp8c_program_destroy(own);
    fp8c_module_destroy(module);
    free(text);
}

int main(int argc, char **argv)
{
    static const model models[] = {
        {"frontend/models/gpt.f8", "gpt", {"B", 8}, 15},
        {"frontend/models/gpt2_124m.f8", "gpt2_124m", {"B", 1}, 5},
    };
    bool json = false;
    const char *only = NULL;
    int rounds = 0;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (isdigit((unsigned char)argv[i][0]))
            rounds = atoi(argv[i]);
        else
            only = argv[i];
    must(rounds >= 0 && rounds <= MAX_ROUNDS, "usage: [--json] [ROUNDS] [MODEL]");
    if (!getenv("OMPI_COMM_WORLD_SIZE")) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
        char *command[16] = {"mpirun.openmpi", "-n", "2"};
        for (int i = 0; i < argc && i < 12; i++)
            command[i + 3] = argv[i];
        execvp(command[0], command);
        must(false, "mpirun.openmpi can't be started");
    }
    fp8c_context *ctx;
    fp8c_mpi *mpi;
    fp8c_comm comm = {.struct_size = sizeof comm};
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    must(fp8c_mpi_open(ctx, "openmpi", &comm, &mpi) == FP8C_OK, fp8c_context_message(ctx));
    must(comm.ranks == 2, "two ranks");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (only && strcmp(only, models[i].name))
            continue;
        measure(ctx, &models[i], "bf16", &comm, rounds ? rounds : models[i].rounds, json);
        measure(ctx, &models[i], "delayed", &comm, rounds ? rounds : models[i].rounds, json);
    }
    fp8c_mpi_close(mpi);
    fp8c_context_destroy(ctx);
    return 0;
}
