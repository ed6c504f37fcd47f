/* Processes that train together: see ranks.h. */
#include "frontend/cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frontend/train/ranks/gpus.h"
#include "frontend/train/ranks/process.h"

static const char batch_dim[] = "B";
enum { LIMIT = 600 };     /* seconds: the default of --rank-timeout */
enum { LAST_RESORT = 5 }; /* seconds for MPI to end the job */
/* In this time rank 0 says why all fail, and ends them by a signal. */
static const struct timespec for_rank_0 = {.tv_sec = 2};

/* ---- what happens among the ranks ---- */

/* Written at once: ranks share the descriptor. */
static void put(int to, const char *text)
{
    char all[9000];
    const int n = snprintf(all, sizeof all, "fp8c: error: %s", text);
    for (int at = 0; at < n && at < (int)sizeof all - 1;) {
        const ssize_t wrote = write(to, all + at, (size_t)(n - at));
        if (wrote < 0 && errno != EINTR)
            return; /* nobody can be told */
        at += wrote > 0 ? (int)wrote : 0;
    }
}

static void say(void *user, const char *text)
{
    const cli_ranks *r = user;
    put(r->messages >= 0 ? r->messages : STDERR_FILENO, text);
}

/* Of ranks above 0 it is kept with what else they say. */
static void gone(void *user, const char *text)
{
    (void)user;
    put(STDERR_FILENO, text);
}

static void *last_resort(void *user)
{
    (void)user;
    sleep(LAST_RESORT);
    _exit(CLI_FAILED);
}

static void end(void *user, fp8c_mpi *mpi)
{
    pthread_t thread;
    (void)user;
    f8_temporaries_remove(cli_temporaries());
    f8_wait_passed_on();
    if (mpi && !pthread_create(&thread, NULL, last_resort, NULL))
        fp8c_mpi_abort(mpi, CLI_FAILED);
    _exit(CLI_FAILED);
}

static int32_t stopped(void *user)
{
    (void)user;
    return cli_interrupted();
}

static void stop(void *user, int32_t signal)
{
    (void)user;
    cli_note_signal(signal);
}

bool cli_ranks_said(f8_status status, const f8_diag *diag)
{
    if (diag->status != F8_OK && diag->file)
        cli_file_fail(diag);
    else if (diag->status != F8_OK)
        fprintf(stderr, "fp8c: error: %s\n", diag->text);
    return status == F8_OK;
}

/* ---- what rank 0 alone says ---- */

/* From here on stdout goes nowhere, and stderr is kept. */
static void be_quiet(cli_ranks *r)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    FILE *kept = tmpfile();
    r->messages = dup(STDERR_FILENO);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO);
    if (kept && r->messages >= 0)
        dup2(fileno(kept), STDERR_FILENO);
    if (kept)
        fclose(kept);
    if (nowhere >= 0)
        close(nowhere);
}

/* Says on the real stderr what was kept, a line with the rank before each. */
static void tell(const cli_ranks *r)
{
    char line[4096];
    FILE *kept = NULL;
    const int copy = dup(STDERR_FILENO);
    fflush(stderr);
    if (copy >= 0 && lseek(copy, 0, SEEK_SET) == 0)
        kept = fdopen(copy, "r");
    while (kept && fgets(line, sizeof line, kept))
        dprintf(r->messages, "rank %d: %s", r->joined.comm.rank, line);
    if (kept)
        fclose(kept);
}

/* ---- joining ---- */

/* Whether the program is for GPUs. */
static bool on_gpus(const cli *c)
{
    return c->target && (!strcmp(c->target, "cuda") || !strncmp(c->target, "sm_", 3));
}

/* The MPI that the options ask for: NULL with *any for the first that is there; NULL without: none.
 */
static const char *wanted(const cli *c, bool *any)
{
    const char *started = f8_ranks_launcher();
    *any = false;
    if (!c->comm)
        return started;
    if (!strcmp(c->comm, "none") || !strcmp(c->comm, "nccl"))
        return NULL;
    *any = !strcmp(c->comm, "mpi") && !started;
    return !strcmp(c->comm, "mpi") ? started : c->comm;
}

/* Whether another MPI than `kind` has started this process with others, of which this one knows
 * nothing: each would train alone and write the same files. Says so. */
static bool is_of_another(const char *kind)
{
    const char *started = f8_ranks_launcher();
    if (!started || !kind || !strcmp(started, kind))
        return false;
    fprintf(stderr,
            "fp8c train: --comm %s: this process was started by the mpirun of %s, whose other "
            "processes %s does not know; give --comm %s\n",
            kind, started, kind, started);
    return true;
}

static const char need_mpirun[] =
    "fp8c train: WORLD_SIZE says that several processes were started together: on CPUs they need "
    "mpirun; --comm none trains each for itself\n";

/* Whether the environment says, or --comm nccl, that there are processes without MPI. *ok: no
 * message on stderr. */
static bool without_mpi(const cli *c, int32_t *rank, int32_t *ranks, bool *ok)
{
    const bool asked = c->comm && !strcmp(c->comm, "nccl");
    const bool started = f8_gpus_started(rank, ranks);
    const bool gpus = on_gpus(c) || (c->resume && !c->target); /* the run has the target */
    *ok = true;
    if (!asked && (c->comm || !started))
        return false;
    *ok = started && gpus;
    if (!gpus && asked)
        fprintf(stderr, "fp8c train: --comm nccl joins GPUs: give --target cuda\n");
    else if (!gpus)
        fprintf(stderr, "%s", need_mpirun);
    else if (!started)
        fprintf(stderr, "fp8c train: --comm nccl: RANK and WORLD_SIZE are to be in the "
                        "environment, as torchrun sets them\n");
    return *ok;
}

/* Says why ranks could not be joined: the context has the message, or `diag`. */
static bool joined(const cli_ranks *r, f8_status status, const f8_diag *diag)
{
    if (status == F8_ERR_LIBRARY && diag->status == F8_OK)
        cli_fail(r->options.ctx);
    else if (status == F8_ERR_INPUT)
        fprintf(stderr, "fp8c train: %s\n", diag->text);
    else
        cli_ranks_said(status, diag);
    return status == F8_OK;
}

/* The ranks' number and how many there are is known. */
static void begin(cli_ranks *r, cli *c)
{
    if (f8_ranks_follows(&r->joined)) {
        be_quiet(r);
        c->json = c->write_rules = NULL;
    }
    c->ranks = &r->joined;
}

/* Seconds, of --rank-timeout; 0: there is no limit. */
static double limit_of(const cli *c)
{
    const double given = c->rank_timeout ? c->rank_timeout : LIMIT;
    return given < 0 ? 0 : given;
}

bool cli_ranks_join(cli_ranks *r, cli *c)
{
    bool any, ok;
    int32_t rank, ranks;
    f8_diag diag = {0};
    const char *kind = wanted(c, &any);
    *r = (cli_ranks){.options = {.limit = limit_of(c),
                                 .limit_name = "--rank-timeout",
                                 .call = {r, say, gone, end, stopped, stop}},
                     .messages = -1};
    const bool with_mpi = kind || any;
    if (!with_mpi && !without_mpi(c, &rank, &ranks, &ok))
        return ok;
    if (!(r->options.ctx = cli_context()))
        return false;
    const f8_status status = with_mpi
                                 ? f8_ranks_join_mpi(&r->joined, &r->options, kind, &diag)
                                 : f8_ranks_join_alone(&r->joined, &r->options, rank, ranks, &diag);
    if (!joined(r, status, &diag))
        return false;
    if (r->joined.comm.ranks == 1)
        return !is_of_another(kind);
    begin(r, c);
    return true;
}

static bool choose_device(const f8_ranks *r, cli *c)
{
    const int32_t local = f8_gpus_local_rank(r);
    if (c->given[CLI_AT_device])
        return true;
    if (local < 0)
        fprintf(stderr, "fp8c train: which GPU is this process's? The launcher does not say which "
                        "process of its machine it is (LOCAL_RANK); give --device N\n");
    else
        c->device = local;
    return local >= 0;
}

/* NCCL between the GPUs of the ranks, if they have any, and the thread that watches. */
static bool join_more(f8_ranks *r, cli *c)
{
    f8_diag diag = {0};
    cli_ranks *all = r->options->call.user;
    all->options.limit = limit_of(c); /* a run that goes on has brought its own */
    if (!on_gpus(c) && !r->mpi) {
        fprintf(stderr, "%s", need_mpirun);
        return false;
    }
    if (on_gpus(c) &&
        (!choose_device(r, c) || !joined(all, f8_gpus_join(r, c->device, &diag), &diag)))
        return false;
    return cli_ranks_said(f8_ranks_watch(r, &diag), &diag);
}

bool cli_ranks_divide(f8_ranks *r, cli *c, const fp8c_module *module)
{
    const int64_t rows = fp8c_module_dim(module, batch_dim), ranks = r->comm.ranks;
    if (rows >= 1 && rows % ranks == 0) {
        c->part = (fp8c_dim){batch_dim, rows / ranks};
        return join_more(r, c);
    }
    r->common = r->mpi != NULL; /* they have the same model */
    if (rows < 1)
        fprintf(stderr,
                "%s: error: %" PRId64 " ranks divide the batch, which must be the dim %s: the "
                "module has no such dim\n",
                c->file, ranks, batch_dim);
    else
        fprintf(stderr,
                "%s: error: %" PRId64 " ranks can't divide a batch of %s = %" PRId64
                " rows evenly; give -D %s=N with a multiple of %" PRId64 "\n",
                c->file, ranks, batch_dim, rows, batch_dim, ranks);
    return false;
}

int cli_ranks_leave(cli_ranks *r, int code)
{
    f8_ranks *all = &r->joined;
    if (code == CLI_DONE && all->comm.ranks > 1) /* rank 0 may still be writing */
        cli_ranks_stop(all);
    if (all->lost)
        code = CLI_FAILED;
    f8_ranks_settle(all, code != CLI_DONE);
    if (code != CLI_DONE && r->messages >= 0 && (!all->common || !nanosleep(&for_rank_0, NULL)))
        tell(r);
    const int signalled = all->stopped ? 0 : cli_interrupted();
    f8_ranks_leave(all, signalled ? CLI_SIGNALLED + signalled : code);
    fp8c_context_destroy(r->options.ctx);
    return code;
}

/* ---- what ranks tell each other ---- */

bool cli_ranks_stop(f8_ranks *r)
{
    f8_diag diag = {0};
    if (!r)
        return cli_interrupted() != 0;
    const bool stops = f8_ranks_tell(r, NULL, &diag);
    cli_ranks_said(F8_OK, &diag);
    return stops;
}
