/* Joining the processes of a training, by its options and the environment; this one's part of a
 * batch. See train.h. */
#include <inttypes.h>
#include <string.h>

#include "frontend/train/ranks/gpus.h"
#include "frontend/train/train.h"

static const char batch_dim[] = "B";
enum { LIMIT = 600 }; /* seconds: the default of --rank-timeout */
static const char need_mpirun[] =
    "WORLD_SIZE says that several processes were started together: on CPUs they need mpirun; "
    "--comm none trains each for itself";

bool f8_train_on_gpus(const f8_train_options *o)
{
    return o->target && (!strcmp(o->target, "cuda") || !strncmp(o->target, "sm_", 3));
}

/* A message about what was asked for. */
static bool refuse(f8_train *t, const char *text)
{
    return f8_train_fail(t, F8_ERR_INPUT, "%s: %s", t->who, text);
}

/* ---- who joins ---- */

/* The MPI that the options ask for: NULL with *any for the first that is there; NULL without: none.
 */
static const char *wanted(const f8_train_options *o, bool *any)
{
    const char *started = f8_ranks_launcher();
    *any = false;
    if (!o->comm)
        return started;
    if (!strcmp(o->comm, "none") || !strcmp(o->comm, "nccl"))
        return NULL;
    *any = !strcmp(o->comm, "mpi") && !started;
    return !strcmp(o->comm, "mpi") ? started : o->comm;
}

/* Whether no other MPI than `kind` has started this process with others, of which this one knows
 * nothing: each would train alone and write the same files. */
static bool is_alone(f8_train *t, const char *kind)
{
    const char *started = f8_ranks_launcher();
    return !started || !kind || !strcmp(started, kind) ||
           f8_train_fail(t, F8_ERR_INPUT,
                         "%s: --comm %s: this process was started by the mpirun of %s, whose other "
                         "processes %s does not know; give --comm %s",
                         t->who, kind, started, kind, started);
}

/* Whether the environment says, or --comm nccl, that there are processes without MPI. *ok: nothing
 * is wrong. */
static bool without_mpi(f8_train *t, int32_t *rank, int32_t *ranks, bool *ok)
{
    const f8_train_options *o = t->options;
    const bool asked = o->comm && !strcmp(o->comm, "nccl");
    const bool started = f8_gpus_started(rank, ranks);
    const bool gpus = f8_train_on_gpus(o) || (o->resume && !o->target); /* the run has the target */
    *ok = true;
    if (!asked && (o->comm || !started))
        return false;
    if (!gpus)
        *ok = refuse(t, asked ? "--comm nccl joins GPUs: give --target cuda" : need_mpirun);
    else if (!started)
        *ok =
            refuse(t, "--comm nccl: RANK and WORLD_SIZE are to be in the environment, as torchrun "
                      "sets them");
    return *ok;
}

/* Says why ranks could not be joined: the context has the message, or `diag`. */
static bool joined(f8_train *t, const f8_ranks_options *o, f8_status status, const f8_diag *diag)
{
    if (status == F8_ERR_LIBRARY && diag->status == F8_OK)
        return f8_train_ok(t, o->ctx, (fp8c_status)status);
    return status == F8_ERR_INPUT ? refuse(t, diag->text) : f8_train_ranks_done(t, status, diag);
}

/* Seconds, of --rank-timeout; 0: there is no limit. */
static double limit_of(const f8_train_options *o)
{
    const double given = o->rank_timeout ? o->rank_timeout : LIMIT;
    return given < 0 ? 0 : given;
}

bool f8_train_join(f8_train *t, f8_ranks *r, f8_ranks_options *o)
{
    bool any, ok;
    int32_t rank, ranks;
    f8_diag diag = {0};
    const char *kind = wanted(t->options, &any);
    const bool with_mpi = kind || any;
    o->limit = limit_of(t->options);
    o->limit_name = "--rank-timeout";
    if (!with_mpi && !without_mpi(t, &rank, &ranks, &ok))
        return ok;
    if (!(o->ctx = t->call.context(t->call.user)))
        return false;
    const f8_status status = with_mpi ? f8_ranks_join_mpi(r, o, kind, &diag)
                                      : f8_ranks_join_alone(r, o, rank, ranks, &diag);
    if (!joined(t, o, status, &diag))
        return false;
    if (r->comm.ranks == 1)
        return is_alone(t, kind);
    t->ranks = r;
    return true;
}

/* ---- the batch ---- */

static bool choose_device(f8_train *t)
{
    const int32_t local = f8_gpus_local_rank(t->ranks);
    if (t->options->given[F8_TRAIN_AT_device])
        return true;
    if (local < 0)
        return refuse(t, "which GPU is this process's? The launcher does not say which process of "
                         "its machine it is (LOCAL_RANK); give --device N");
    t->options->device = local;
    return true;
}

/* NCCL between the GPUs of the ranks, if they have any, and the thread that watches. */
static bool join_more(f8_train *t, f8_ranks_options *own)
{
    f8_diag diag = {0};
    f8_ranks *r = t->ranks;
    const bool gpus = f8_train_on_gpus(t->options);
    own->limit = limit_of(t->options); /* a run that goes on has brought its own */
    if (!gpus && !r->mpi)
        return refuse(t, need_mpirun);
    if (gpus &&
        (!choose_device(t) || !joined(t, own, f8_gpus_join(r, t->options->device, &diag), &diag)))
        return false;
    return f8_train_ranks_done(t, f8_ranks_watch(r, &diag), &diag);
}

bool f8_train_divide(f8_train *t, f8_ranks_options *own, const fp8c_module *module)
{
    const int64_t rows = fp8c_module_dim(module, batch_dim), ranks = f8_train_ranks(t);
    if (rows >= 1 && rows % ranks == 0) {
        t->part = (fp8c_dim){batch_dim, rows / ranks};
        return join_more(t, own);
    }
    t->ranks->common = t->ranks->mpi != NULL; /* they have the same model */
    if (rows < 1)
        return f8_train_fail(t, F8_ERR_INPUT,
                             "%s: error: %" PRId64 " ranks divide the batch, which must be the dim "
                             "%s: the module has no such dim",
                             t->file, ranks, batch_dim);
    return f8_train_fail(t, F8_ERR_INPUT,
                         "%s: error: %" PRId64 " ranks can't divide a batch of %s = %" PRId64
                         " rows evenly; give -D %s=N with a multiple of %" PRId64,
                         t->file, ranks, batch_dim, rows, batch_dim, ranks);
}
