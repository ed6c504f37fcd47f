/* Processes that train together: see cmd_ranks.h. */
#include "frontend/cli/cmd_ranks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frontend/cli/cmd_gpus.h"
#include "ir/base/hash.h"

static const char batch_dim[] = "B";
/* The defaults of --check-ranks. A hash takes 8 GB a second; GPUs have shorter
 * steps, and their variables are copied to the host first. */
enum { CHECK = 100, CHECK_ON_GPUS = 1000 };
/* MPICH's mpirun drops what it has not passed on when a process aborts. */
static const struct timespec passed_on = {.tv_nsec = 200000000};
/* In this time rank 0 says why all fail, and ends them by a signal. */
static const struct timespec for_rank_0 = {.tv_sec = 2};

/* ---- joining ---- */

/* What mpirun sets; NULL: this process was started alone. */
static const char *started_by(void)
{
    static const struct {
        const char *variable, *kind;
    } known[] = {{"OMPI_COMM_WORLD_SIZE", "openmpi"}, {"PMI_SIZE", "mpich"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *size = secure_getenv(known[i].variable);
        if (size && atoi(size) > 1)
            return known[i].kind;
    }
    return NULL;
}

/* The MPI that the options ask for: NULL with *any for the first that is there; NULL without: none.
 */
static const char *wanted(const cli *c, bool *any)
{
    const char *started = started_by();
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
    const char *started = started_by();
    if (!started || !kind || !strcmp(started, kind))
        return false;
    fprintf(stderr,
            "fp8c train: --comm %s: this process was started by the mpirun of %s, whose other "
            "processes %s does not know; give --comm %s\n",
            kind, started, kind, started);
    return true;
}

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
        dprintf(r->messages, "rank %d: %s", r->comm.rank, line);
    if (kept)
        fclose(kept);
}

static const char need_mpirun[] =
    "fp8c train: WORLD_SIZE says that several processes were started together: on CPUs they need "
    "mpirun; --comm none trains each for itself\n";

/* Whether the environment says, or --comm nccl, that there are processes without MPI. *ok: no
 * message on stderr. */
static bool without_mpi(cli_ranks *r, const cli *c, bool *ok)
{
    const bool asked = c->comm && !strcmp(c->comm, "nccl");
    const bool started = cli_gpus_started(&r->comm.rank, &r->comm.ranks);
    const bool gpus = cli_gpus_wanted(c) || (c->resume && !c->target); /* the run has the target */
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

/* The ranks' number and how many there are is known. */
static bool begin(cli_ranks *r, cli *c)
{
    if (cli_ranks_follows(r)) {
        be_quiet(r);
        c->json = c->write_rules = NULL;
    }
    c->ranks = r;
    cli_joining_by(r->joining, r->mpi, r->messages);
    return true;
}

/* Joins MPI's job, which nobody may wait for longer than --rank-timeout. */
static bool join_mpi(cli_ranks *r, const char *kind)
{
    cli_joining_wait(r->joining, CLI_JOINS_MPI);
    const bool ok = fp8c_mpi_open(r->ctx, kind, &r->mpi) == FP8C_OK;
    cli_joining_done(r->joining);
    if (!ok)
        cli_fail(r->ctx);
    return ok;
}

bool cli_ranks_join(cli_ranks *r, cli *c)
{
    bool any, ok;
    const char *kind = wanted(c, &any);
    *r = (cli_ranks){.comm = {.struct_size = sizeof r->comm}, .messages = -1};
    const bool with_mpi = kind || any;
    if (!with_mpi && !without_mpi(r, c, &ok))
        return ok;
    if (!(r->ctx = cli_context()) || !(r->joining = cli_joining_begin(cli_peers_limit(c))))
        return false;
    if (!with_mpi)
        return begin(r, c);
    if (!join_mpi(r, kind))
        return false;
    fp8c_mpi_comm(r->mpi, &r->comm);
    return r->comm.ranks == 1 ? !is_of_another(kind) : begin(r, c);
}

bool cli_ranks_check(const cli *c, int64_t step, bool saved)
{
    const int64_t usual = cli_gpus_wanted(c) ? CHECK_ON_GPUS : CHECK,
                  every = c->check_ranks ? c->check_ranks : usual;
    return c->ranks && every > 0 && (saved || step % every == 0);
}

bool cli_ranks_follows(const cli_ranks *r)
{
    return r && r->comm.rank > 0;
}

/* NCCL between the GPUs of the ranks, if they have any. */
static bool join_gpus(cli_ranks *r, cli *c)
{
    if (cli_gpus_wanted(c))
        return cli_gpus_join(r, c);
    if (!r->mpi)
        fprintf(stderr, "%s", need_mpirun);
    return r->mpi != NULL;
}

/* Watches the ranks from here on. */
static bool watch(cli_ranks *r, const cli *c)
{
    cli_joining_wait(r->joining, CLI_MEETS);
    r->peers = cli_peers_begin(&r->comm, r->mpi, r->messages >= 0 ? r->messages : STDERR_FILENO,
                               cli_peers_limit(c));
    cli_joining_done(r->joining);
    return r->peers != NULL;
}

bool cli_ranks_divide(cli_ranks *r, cli *c, const fp8c_module *module)
{
    const int64_t rows = fp8c_module_dim(module, batch_dim), ranks = r->comm.ranks;
    if (rows >= 1 && rows % ranks == 0) {
        c->part = (fp8c_dim){batch_dim, rows / ranks};
        return join_gpus(r, c) && watch(r, c);
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
    if (code == CLI_DONE && r->comm.ranks > 1) /* rank 0 may still be writing */
        cli_ranks_stop(r);
    if (r->lost)
        code = CLI_FAILED;
    cli_peers_end(r->peers, code);
    r->peers = NULL;
    if (code != CLI_DONE && r->messages >= 0 && (!r->common || !nanosleep(&for_rank_0, NULL)))
        tell(r);
    const int signalled = r->stopped ? 0 : cli_interrupted();
    if ((code != CLI_DONE || signalled) && r->nccl)
        fp8c_nccl_abort(r->nccl);
    if ((code != CLI_DONE || signalled) && r->mpi && r->comm.ranks > 1) {
        nanosleep(&passed_on, NULL);
        fp8c_mpi_abort(r->mpi, signalled ? CLI_SIGNALLED + signalled : code);
    }
    cli_joining_by(r->joining, NULL, -1); /* MPI_Abort beside MPI_Finalize can hang mpirun */
    cli_joining_wait(r->joining, CLI_LEAVES);
    fp8c_nccl_close(r->nccl);
    fp8c_mpi_close(r->mpi);
    cli_joining_end(r->joining);
    fp8c_context_destroy(r->ctx);
    return code;
}

bool cli_ranks_gather(cli_ranks *r, const char *what, const void *mine, void *all, size_t bytes)
{
    if (!r) {
        memcpy(all, mine, bytes);
        return true;
    }
    cli_peers_name(r->peers, what);
    if (!r->lost && !r->comm.all_gather(r->comm.user, mine, all, bytes))
        return true;
    if (!r->lost)
        fprintf(stderr, "fp8c: error: %s\n", r->comm.message(r->comm.user));
    r->lost = true;
    return false;
}

bool cli_ranks_tell(cli_ranks *r, bool *flag)
{
    int32_t signal = cli_interrupted(), all[F8_MAX_RANKS][2];
    const int32_t mine[2] = {signal, flag && *flag};
    if (!r)
        return signal != 0;
    if (!cli_ranks_gather(r, "signals", mine, all, sizeof mine))
        return true;
    for (int i = 0; i < r->comm.ranks; i++) {
        signal = signal ? signal : all[i][0];
        if (flag)
            *flag |= all[i][1] != 0;
    }
    if (signal && !cli_interrupted())
        cli_note_signal(signal);
    r->stopped |= signal != 0;
    return signal != 0;
}

bool cli_ranks_stop(cli_ranks *r)
{
    return cli_ranks_tell(r, NULL);
}

bool cli_ranks_agree(cli_ranks *r, const char *what, const char *text)
{
    f8_hash mine, all[F8_MAX_RANKS];
    if (!r)
        return true;
    cli_peers_name(r->peers, what);
    mine = f8_hash_bytes(text, strlen(text));
    if (r->comm.all_gather(r->comm.user, &mine, all, sizeof mine)) {
        fprintf(stderr, "fp8c: error: %s\n", r->comm.message(r->comm.user));
        return false;
    }
    for (int i = 1; i < r->comm.ranks; i++)
        if (!f8_hash_equal(all[i], all[0])) {
            fprintf(stderr, "fp8c: error: %s of rank %d differs from that of rank 0\n", what, i);
            r->common = true;
            return false;
        }
    return true;
}

/* ---- batches ---- */

f8_share cli_share_of(const cli *c, int64_t B)
{
    const uint64_t ranks = c->ranks ? (uint64_t)c->ranks->comm.ranks : 1,
                   rank = c->ranks ? (uint64_t)c->ranks->comm.rank : 0;
    return (f8_share){ranks * (uint64_t)B, rank * (uint64_t)B};
}
