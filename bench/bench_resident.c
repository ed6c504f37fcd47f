/* Resident memory of a rank against its plan: two processes under MPI train together, and each
 * compares what it has resident at most with planned_bytes of fp8c_info.
 *
 * Libraries are there before: the same program was compiled and a small one has run by then. What
 * is counted begins before the program is made; it includes the program's own structures, its code
 * and what MPI takes for larger messages. The kernel's mark of the most that was resident is set
 * back once the program is compiled, so that the compiler's memory, which is given back, does not
 * count.
 *
 *     bench_resident [--json]                          starts itself under mpirun, once a case
 *     bench_resident --rank NAME B T RECIPE STAGE      a rank */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_ranks.h"

enum { VOCABULARY = 256, STEPS = 1 };

/* ---- what the kernel says ---- */

/* A field of /proc/self/status, in bytes. */
static double resident(const char *field)
{
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    must(f != NULL, "/proc/self/status");
    while (kib < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field)))
            kib = strtoll(line + strlen(field) + 1, NULL, 10);
    fclose(f);
    must(kib >= 0, field);
    return (double)kib * 1024;
}

/* From now on VmHWM is the most that is resident from now on. */
static void begin_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    must(f && fputs("5", f) >= 0 && fclose(f) == 0, "/proc/self/clear_refs");
}

/* ---- a rank ---- */

typedef struct job {
    fp8c_context *ctx;
    fp8c_comm comm;
    const char *recipe;
    int zero;
} job;

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

static fp8c_program *make(const job *j, const char *file, const fp8c_dim *dim, size_t dims)
{
    size_t size;
    char *text = read_file(file, &size);
    fp8c_module *module;
    fp8c_program *p;
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .recipe = j->recipe,
                                    .threads = 1,
                                    .comm = &j->comm,
                                    .zero = j->zero};
    must(fp8c_module_parse(j->ctx, text, size, file, dim, dims, &module) == FP8C_OK &&
             fp8c_compile(module, &o, &p) == FP8C_OK,
         fp8c_context_message(j->ctx));
    fp8c_module_destroy(module);
    free(text);
    return p;
}

static void train(const job *j, fp8c_program *p)
{
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    must(fp8c_program_initialize(p, 1) == FP8C_OK, fp8c_context_message(j->ctx));
    for (int s = 0; s < STEPS; s++) {
        fill(p, step, j->comm.rank);
        must(fp8c_program_run(p, step) == FP8C_OK && fp8c_program_run(p, update) == FP8C_OK,
             fp8c_context_message(j->ctx));
    }
}

/* Prints the planned bytes and those that came to be resident. */
static void be_rank(char **arg)
{
    char file[256];
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_mpi *mpi;
    job j = {.comm = {.struct_size = sizeof j.comm}, .recipe = arg[3], .zero = atoi(arg[4])};
    const fp8c_dim dim[] = {{"B", atoi(arg[1])}, {"T", atoi(arg[2])}},
                   small[] = {{"B", 1}, {"T", 16}, {"C", 64}, {"L", 1}};
    snprintf(file, sizeof file, "frontend/models/%s.f8", arg[0]);
    must(fp8c_context_create(NULL, &j.ctx) == FP8C_OK, "context");
    must(fp8c_mpi_open(j.ctx, "openmpi", &j.comm, &mpi) == FP8C_OK, fp8c_context_message(j.ctx));
    fp8c_program_destroy(make(&j, file, dim, 2));
    fp8c_program *p = make(&j, "frontend/models/gpt.f8", small, 4);
    train(&j, p);
    fp8c_program_destroy(p);
    malloc_trim(0);
    const double before = resident("VmRSS:");
    p = make(&j, file, dim, 2);
    malloc_trim(0);
    begin_peak();
    const double made = resident("VmRSS:");
    train(&j, p);
    const double most = resident("VmHWM:");
    fp8c_program_info(p, &info);
    must(info.peak_bytes == info.planned_bytes, "other bytes were allocated than planned");
    printf("resident %d %.0f %.0f %.0f\n", j.comm.rank, (double)info.planned_bytes, most - before,
           made - before);
    fflush(stdout);
    fp8c_program_destroy(p);
    fp8c_mpi_close(mpi);
    fp8c_context_destroy(j.ctx);
}

/* ---- the cases ---- */

static void measure(const char *self, bool json, const char *model, const char *dims,
                    const char *recipe, int zero)
{
    char command[1024], line[256];
    double most = 0;
    int ranks = 0;
    snprintf(command, sizeof command, "mpirun.openmpi -n 2 '%s' --rank %s %s %s %d", self, model,
             dims, recipe, zero);
    FILE *from = popen(command, "r");
    must(from != NULL, command);
    while (fgets(line, sizeof line, from)) {
        double planned, was, made;
        int rank;
        if (sscanf(line, "resident %d %lf %lf %lf", &rank, &planned, &was, &made) != 4)
            continue;
        fprintf(stderr,
                "%s %s %s stage %d, rank %d: planned %.2f MiB, resident %.2f, of these "
                "%.2f once it was compiled\n",
                model, dims, recipe, zero, rank, planned / (1 << 20), was / (1 << 20),
                made / (1 << 20));
        most = was / planned > most ? was / planned : most;
        ranks++;
    }
    must(pclose(from) == 0 && ranks == 2, command);
    report(json, most, "ratio", "resident_over_planned_%s_%s_zero%d", model, recipe, zero);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *model, *dims;
    } models[] = {{"gpt", "8 128"}, {"gpt2_124m", "1 256"}};
    static const char *const recipes[] = {"bf16", "delayed"};
    if (argc == 7 && !strcmp(argv[1], "--rank")) {
        be_rank(argv + 2);
        return 0;
    }
    must(argc == 1 || (argc == 2 && !strcmp(argv[1], "--json")), "usage: [--json]");
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
            for (int zero = 0; zero <= 3; zero += 3)
                measure(argv[0], argc == 2, models[m].model, models[m].dims, recipes[r], zero);
    return 0;
}
