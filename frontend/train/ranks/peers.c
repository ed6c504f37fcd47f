/* The record of what this rank exchanges: see peers.h. */
#include "frontend/train/ranks/peers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "frontend/train/ranks/judge.h"
#include "frontend/train/ranks/process.h"
#include "ir/base/clock.h"
#include "ir/base/file.h"
#include "ir/base/format.h"
#include "ir/base/type.h"

/* With the thread that reads the records. */
typedef struct watched {
    f8_peers peers; /* the first member */
    pthread_t thread;
} watched;

/* ---- notes ---- */

static void note(f8_peers *w, const fp8c_exchange *x)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    const f8_rank_at at = {.number = w->calls + w->enqueued,
                           .op = x->op,
                           .function = x->function,
                           .name = x->name,
                           .bytes = x->bytes,
                           .step = w->step,
                           .micro_step = w->micro_step,
                           .time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec};
    f8_rank_write(&w->record[w->rank], &at);
    f8_rank_write(&w->kept, &at);
    w->since = (int64_t)(f8_seconds_now() * 1e9);
}

static void note_end(f8_peers *w)
{
    w->since = 0;
    if (w->ending) /* the record says so */
        return;
    f8_rank_become(&w->record[w->rank], F8_RANK_ENDED);
    f8_rank_become(&w->kept, F8_RANK_ENDED);
}

/* A first record, of no collective. */
static void note_begin(f8_peers *w)
{
    note(w, &(fp8c_exchange){.op = "-", .name = "-"});
    note_end(w);
}

/* A collective on a GPU has a number of its own. The exchanges of host memory before it are the
 * same on all ranks, so the sum of both numbers is, too. */
static void observe(void *user, const fp8c_exchange *x, int32_t ended)
{
    f8_peers *w = user;
    if (x->enqueued)
        w->enqueued = x->enqueued;
    if (x->enqueued && w->inside) /* host memory that goes through the GPUs: noted already */
        return;
    if (!x->enqueued)
        w->inside = !ended;
    if (ended) {
        note_end(w);
        return;
    }
    w->calls += !x->enqueued;
    note(w, x);
}

static int exchange(f8_peers *w, const char *op, const void *send, void *receive, size_t bytes)
{
    const bool noted = w->inside; /* by the program, which knows what it is */
    const fp8c_exchange x = {.op = op, .name = w->name, .bytes = (int64_t)bytes};
    if (!noted)
        observe(w, &x, 0);
    const int failed = (strcmp(op, "all_gather") ? w->inner.all_to_all : w->inner.all_gather)(
        w->inner.user, send, receive, bytes);
    if (!noted)
        observe(w, &x, 1);
    return failed;
}

static int all_gather(void *user, const void *send, void *receive, size_t bytes)
{
    return exchange(user, "all_gather", send, receive, bytes);
}

static int all_to_all(void *user, const void *send, void *receive, size_t bytes)
{
    return exchange(user, "all_to_all", send, receive, bytes);
}

/* Programs alone add, and note it. */
static int all_reduce(void *user, const float *send, float *receive, size_t n)
{
    const f8_peers *w = user;
    return w->inner.all_reduce(w->inner.user, send, receive, n);
}

static int reduce_scatter(void *user, const float *send, float *receive, size_t n)
{
    const f8_peers *w = user;
    return w->inner.reduce_scatter(w->inner.user, send, receive, n);
}

static const char *message(void *user)
{
    const f8_peers *w = user;
    return w->inner.message ? w->inner.message(w->inner.user) : NULL;
}

void f8_peers_name(f8_peers *w, const char *name)
{
    if (w)
        w->name = name;
}

void f8_peers_step(f8_peers *w, int64_t step, int64_t micro_step)
{
    if (!w)
        return;
    w->step = step;
    w->micro_step = micro_step;
}

/* ---- files ---- */

static void who_is(const f8_peers *w, char who[256])
{
    snprintf(who, 256, "rank %d of %d, host %s, process %" PRId64, w->rank, w->ranks,
             w->peer[w->rank].host, w->peer[w->rank].pid);
}

static f8_status out_of_memory(f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
}

static f8_status gather_failed(const f8_peers *w, f8_diag *diag)
{
    const char *why = message((void *)w);
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "the ranks can't exchange bytes%s%s",
                   why ? ": " : "", why ? why : "");
}

/* Where records of processes that run are: in memory, if there is such a folder. */
static const char *place(void)
{
    const char *temporary = secure_getenv("TMPDIR");
    return !access("/dev/shm", W_OK | X_OK) ? "/dev/shm"
           : temporary && *temporary        ? temporary
                                            : "/tmp";
}

/* What tells machines and containers apart: processes see each other within a namespace of them. */
static void identify(f8_peer *me)
{
    char processes[48] = "";
    uint64_t chance = 0;
    if (gethostname(me->host, sizeof me->host))
        snprintf(me->host, sizeof me->host, "?");
    me->host[sizeof me->host - 1] = 0;
    if (readlink("/proc/self/ns/pid", processes, sizeof processes - 1) < 0)
        processes[0] = 0;
    snprintf(me->machine, sizeof me->machine, "%s %s", me->host, processes);
    if (getrandom(&chance, sizeof chance, 0) != sizeof chance)
        chance = (uint64_t)(f8_seconds_now() * 1e9);
    me->pid = getpid();
    snprintf(me->path, sizeof me->path, "%.100s/fp8c-rank-%" PRId64 "-%016" PRIx64, place(),
             me->pid, chance);
}

static bool is_near(const f8_peers *w, int rank)
{
    return !strcmp(w->peer[rank].machine, w->peer[w->rank].machine);
}

/* Opens the records of the machine's other processes. One that can't be opened is one that there is
 * no record of. */
static void open_near(f8_peers *w)
{
    for (int r = 0; r < w->ranks; r++) {
        f8_diag diag = {0};
        if (r == w->rank || !is_near(w, r))
            continue;
        if (f8_rank_open(&w->record[r], w->peer[r].path, &diag) == F8_OK)
            w->process[r] = (int)syscall(SYS_pidfd_open, (pid_t)w->peer[r].pid, 0);
    }
}

/* Makes this rank's record, opens the others', and then has no file any more that could be left. */
static f8_status meet(f8_peers *w, f8_diag *diag)
{
    char who[256];
    f8_peer me = {0};
    identify(&me);
    snprintf(w->where, F8_PEERS_PATH, "%s", me.path);
    if (w->inner.all_gather(w->inner.user, &me, w->peer, sizeof me))
        return gather_failed(w, diag);
    who_is(w, who);
    const f8_status status = f8_rank_create(&w->record[w->rank], w->where, who, diag);
    int32_t mine = status == F8_OK, all[F8_MAX_RANKS];
    /* all have made theirs; then all have opened them */
    bool ok = !w->inner.all_gather(w->inner.user, &mine, all, sizeof mine);
    if (ok)
        open_near(w);
    if (mine)
        note_begin(w);
    ok = ok && !w->inner.all_gather(w->inner.user, &mine, all, sizeof mine);
    if (mine)
        unlink(w->where);
    return status != F8_OK || ok ? status : gather_failed(w, diag);
}

/* About the path at w->where. */
static f8_status folder_failed(const f8_peers *w, const char *what, f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_IO, w->where, "%s: %s", what, f8_errno_text(errno));
}

/* Removes the records of an earlier run: files whose names are numbers. */
static f8_status empty_folder(const f8_peers *w, const char *path, f8_diag *diag)
{
    f8_status status = F8_OK;
    DIR *folder = opendir(path);
    if (!folder)
        return folder_failed(w, "can't read the folder", diag);
    for (struct dirent *e; status == F8_OK && (e = readdir(folder));) {
        snprintf(w->where, F8_PEERS_PATH, "%s/%s", path, e->d_name);
        if (strspn(e->d_name, "0123456789") == strlen(e->d_name) && unlink(w->where))
            status = folder_failed(w, "can't remove it", diag);
    }
    closedir(folder);
    return status;
}

/* The others get the folder `ranks` from rank 0. */
static f8_status make_folder(const f8_peers *w, const char *path, f8_diag *diag)
{
    snprintf(w->where, F8_PEERS_PATH, "%s", path);
    if (mkdir(path, 0777) && errno != EEXIST)
        return folder_failed(w, "can't make the folder", diag);
    return empty_folder(w, path, diag);
}

/* This rank's record in the folder `path`, if it sees the folder. */
static f8_status keep(f8_peers *w, const char *path, f8_diag *diag)
{
    char who[256];
    who_is(w, who);
    snprintf(w->where, F8_PEERS_PATH, "%s/%d", path, w->rank);
    if (w->rank > 0 && access(path, X_OK))
        return F8_OK;
    return f8_rank_create(&w->kept, w->where, who, diag);
}

f8_status f8_peers_folder(f8_peers *w, const char *folder, f8_diag *diag)
{
    char path[PATH_MAX];
    int32_t all[F8_MAX_RANKS];
    if (!w || !folder)
        return F8_OK;
    snprintf(path, sizeof path, "%s/ranks", folder);
    f8_status status = w->rank > 0 ? F8_OK : make_folder(w, path, diag);
    int32_t ok = status == F8_OK;
    f8_peers_name(w, "whether the folder is there");
    if (all_gather(w, &ok, all, sizeof ok)) /* all wait for rank 0 */
        return gather_failed(w, diag);
    if (!all[0])
        return F8_ERR_IO;
    status = keep(w, path, diag);
    ok = status == F8_OK;
    if (all_gather(w, &ok, all, sizeof ok))
        return gather_failed(w, diag);
    for (int r = 0; r < w->ranks; r++)
        ok &= all[r];
    w->folder = strdup(path);
    w->in_folder = ok && w->folder;
    if (!ok)
        return F8_ERR_IO;
    return w->folder ? F8_OK : out_of_memory(diag);
}

/* ---- life ---- */

static void release(f8_peers *w)
{
    for (int r = 0; r < w->ranks; r++) {
        if (w->record)
            f8_rank_close(&w->record[r]);
        if (w->process && w->process[r] >= 0)
            close(w->process[r]);
    }
    f8_rank_close(&w->kept);
    if (w->wake >= 0)
        close(w->wake);
    free(w->peer);
    free(w->record);
    free(w->process);
    free(w->folder);
    free(w);
}

/* The memory of all ranks' records, and what wakes the thread. */
static f8_status make_room(f8_peers *w, f8_diag *diag)
{
    const size_t n = (size_t)w->ranks;
    w->peer = calloc(n, sizeof *w->peer);
    w->record = calloc(n, sizeof *w->record);
    w->process = malloc(n * sizeof *w->process);
    w->wake = eventfd(0, EFD_CLOEXEC);
    for (size_t r = 0; w->process && r < n; r++)
        w->process[r] = -1;
    if (!w->peer || !w->record || !w->process)
        return out_of_memory(diag);
    return w->wake < 0 ? f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "eventfd: %s", f8_errno_text(errno))
                       : F8_OK;
}

f8_status f8_peers_begin(f8_peers **out, fp8c_comm *comm, fp8c_mpi *mpi,
                         const f8_ranks_options *options, char *path, f8_diag *diag)
{
    watched *all = calloc(1, sizeof *all);
    *out = NULL;
    if (!all)
        return out_of_memory(diag);
    f8_peers *w = &all->peers;
    *w = (f8_peers){.inner = *comm,
                    .mpi = mpi,
                    .options = options,
                    .where = path,
                    .rank = comm->rank,
                    .ranks = comm->ranks,
                    .name = "the ranks"};
    f8_status status = make_room(w, diag);
    status = status == F8_OK ? meet(w, diag) : status;
    status = status == F8_OK ? f8_start_thread(&all->thread, f8_peers_others, w, diag) : status;
    if (status != F8_OK) {
        release(w);
        return status;
    }
    comm->user = *out = w;
    comm->all_gather = all_gather;
    comm->all_to_all = all_to_all;
    comm->all_reduce = w->inner.all_reduce ? all_reduce : NULL;
    comm->reduce_scatter = w->inner.reduce_scatter ? reduce_scatter : NULL;
    comm->message = message;
    comm->observe = observe;
    return F8_OK;
}

void f8_peers_end(f8_peers *w, bool failed)
{
    const uint64_t one = 1;
    const f8_rank_state state = failed ? F8_RANK_FAILED : F8_RANK_LEFT;
    if (!w)
        return;
    const bool leaves = !atomic_exchange(&w->ending, true); /* else the thread ends the process */
    if (leaves) {
        f8_rank_become(&w->record[w->rank], state);
        f8_rank_become(&w->kept, state);
        if (write(w->wake, &one, sizeof one) != sizeof one)
            return; /* the thread still reads what would be given back */
    }
    pthread_join(((watched *)(void *)w)->thread, NULL);
    if (leaves && failed)
        f8_peers_say_gone(w);
    release(w);
}
