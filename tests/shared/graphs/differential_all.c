/* All graphs of a differential test, by several processes, and shrinking: see differential.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/shared/graphs/differential_parts.h"

enum { MOST_WORKERS = 8, REPORTED = 3, MESSAGE = F8_MESSAGE };

/* ---- a judge for this process ---- */

static bool judge_begin(f8_judge *j, const f8_differential *d, char *message)
{
    *j = (f8_judge){.d = d, .target = f8_target_by_name(d->target)};
    if (j->target && j->target->kind != F8_TARGET_CUDA)
        return true;
    f8_diag diag = {0};
    f8_cuda_facts facts;
    const f8_cuda_paths paths = f8_cuda_paths_from_environment();
    if (f8_cuda_create(&paths, NULL, &j->cuda, &diag) == F8_OK &&
        f8_cuda_device(j->cuda, 0, &diag) == F8_OK &&
        f8_cuda_device_facts(j->cuda, &facts, &diag) == F8_OK) {
        j->target = j->target ? j->target : f8_target_for_sm(facts.sm);
        if (j->target)
            return true;
        f8_fail(&diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "there is no target for %s", facts.name);
    }
    snprintf(message, MESSAGE, "no device: %s", diag.text);
    return false;
}

static void judge_end(f8_judge *j)
{
    f8_cuda_destroy(j->cuda);
}

/* The scalings of the target's FP8 GEMMs, asked for in a child process: a GPU's driver survives no
 * fork. */
static unsigned scalings_of(const f8_differential *d)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        char message[MESSAGE];
        f8_judge j;
        const bool ready = judge_begin(&j, d, message);
        const unsigned scalings = ready ? graphgen_scalings(j.target) : 0;
        judge_end(&j);
        _exit((int)scalings);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? (unsigned)WEXITSTATUS(status)
                             : 0; /* without a device all fails anyway */
}

/* ---- shrinking ---- */

/* In a child process, so that a crash is a failure like another. */
static bool survives(const f8_differential *d, const graphgen_options *options, char *message)
{
    char *shared = mmap(NULL, MESSAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(shared, MESSAGE, "crashed");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        f8_judge j;
        const bool ok = judge_begin(&j, d, shared) && f8_judge_graph(&j, options, shared);
        judge_end(&j);
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    memcpy(message, shared, MESSAGE);
    munmap(shared, MESSAGE);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int put(void *user, const char *text, size_t n)
{
    return fwrite(text, 1, n, user) != n;
}

static void shrink(const f8_differential *d, graphgen_options options)
{
    char message[MESSAGE], last[MESSAGE];
    uint8_t drop[GRAPHGEN_MAX_RESULTS] = {0};
    options.drop = drop;
    options.steps = graphgen_steps(options.seed);
    if (survives(d, &options, last)) {
        printf("seed %llu: failed once, then passed\n", (unsigned long long)options.seed);
        return;
    }
    while (options.steps > 1) {
        options.steps--;
        if (survives(d, &options, message)) {
            options.steps++;
            break;
        }
        memcpy(last, message, MESSAGE);
    }
    f8_arena arena;
    f8_diag diag = {0};
    f8_arena_init(&arena, NULL);
    f8_module *m = graphgen_make(&options, &arena, &diag);
    for (int i = 0; i < GRAPHGEN_MAX_RESULTS && m; i++) {
        const size_t before = m->func[0].n_out;
        drop[i] = 1;
        m = graphgen_make(&options, &arena, &diag);
        if (!m || m->func[0].n_out == 0 ||
            (m->func[0].n_out < before && survives(d, &options, message))) {
            drop[i] = 0;
            m = graphgen_make(&options, &arena, &diag);
        } else if (m->func[0].n_out < before) {
            memcpy(last, message, MESSAGE);
        }
    }
    printf("%s, seed %llu, %d steps: %s\n", d->target, (unsigned long long)options.seed,
           options.steps, last);
    if (m && f8_func_rewrite(&m->func[0], NULL, NULL) == F8_OK) /* less what is dead now */
        f8_print_module(m, &(f8_writer){put, stdout});
    f8_arena_end(&arena);
}

/* ---- all graphs ---- */

typedef struct progress {
    uint64_t seed[MOST_WORKERS]; /* at work on it; 0 = done */
    uint64_t failed[REPORTED];
    int n_failed, n_done;
} progress;

static graphgen_options graph_of(const f8_differential *d, uint64_t seed)
{
    return (graphgen_options){.seed = seed, .gemms = true,
                              .aligned_fp8 = strcmp(d->target, "cpu") != 0,
                              .scalings = seed % 2 ? d->scalings : 0,
                              .broadcasts = seed % 4 == 0};
}

static void note_failure(progress *p, uint64_t seed)
{
    const int n = __atomic_fetch_add(&p->n_failed, 1, __ATOMIC_SEQ_CST);
    if (n < REPORTED)
        p->failed[n] = seed;
}

static void work(const f8_differential *d, progress *p, int worker, int workers, uint64_t first,
                 uint64_t end)
{
    char message[MESSAGE];
    f8_judge j;
    const bool ready =
        judge_begin(&j, d, message); /* in the child: a GPU's driver survives no fork */
    for (uint64_t seed = first; seed < end; seed += (uint64_t)workers) {
        p->seed[worker] = seed;
        const graphgen_options options = graph_of(d, seed);
        if (!ready || !f8_judge_graph(&j, &options, message))
            note_failure(p, seed);
        __atomic_fetch_add(&p->n_done, 1, __ATOMIC_SEQ_CST);
    }
    p->seed[worker] = 0;
    judge_end(&j);
}

static int count_workers(void)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 2 ? 2 : cpus > MOST_WORKERS ? MOST_WORKERS : (int)cpus;
}

/* Seeds [first, end), by several processes; one that crashes goes on after the seed that killed it.
 */
static progress run_all(const f8_differential *d, uint64_t first, uint64_t end)
{
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int workers = count_workers();
    uint64_t next[MOST_WORKERS];
    for (int i = 0; i < workers; i++)
        next[i] = first + (uint64_t)i;
    bool running = true;
    while (running) {
        pid_t child[MOST_WORKERS];
        running = false;
        for (int i = 0; i < workers; i++) {
            child[i] = 0;
            if (next[i] >= end)
                continue;
            fflush(NULL);
            if ((child[i] = fork()) == 0) {
                work(d, p, i, workers, next[i], end);
                _exit(0);
            }
        }
        for (int i = 0; i < workers; i++) {
            int status = 0;
            if (!child[i])
                continue;
            waitpid(child[i], &status, 0);
            next[i] = end;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                continue;
            note_failure(p, p->seed[i]);
            next[i] = p->seed[i] + (uint64_t)workers;
            running = true;
        }
    }
    const progress result = *p;
    munmap(p, sizeof *p);
    return result;
}

int f8_differential_run(const f8_differential *d, uint64_t *n)
{
    const char *count = getenv("FP8C_GRAPHS"), *seed = getenv("FP8C_SEED");
    const uint64_t first = seed ? strtoull(seed, NULL, 0) : 1;
    *n = count ? strtoull(count, NULL, 0) : seed ? 1 : d->graphs;
    f8_differential with = *d;
    with.scalings = scalings_of(d);
    d = &with;
    const progress p = run_all(d, first, first + *n);
    for (int i = 0; i < p.n_failed && i < REPORTED; i++)
        shrink(d, graph_of(d, p.failed[i]));
    /* a worker that crashed before its first graph, or stopped early, has not done its share */
    return p.n_failed ? p.n_failed : p.n_done == (int)*n ? 0 : (int)*n - p.n_done;
}
