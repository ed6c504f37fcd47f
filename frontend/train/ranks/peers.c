/* The record of what this rank exchanges: see peers.h. */
#include "frontend/train/ranks/peers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "frontend/train/ranks/process.h"
#include "ir/base/clock.h"

enum { LIMIT = 600 }; /* seconds: the default of --rank-timeout */

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

static bool out_of_memory(void)
{
    fprintf(stderr, "fp8c: error: out of memory\n");
    return false;
}

static bool gather_failed(const f8_peers *w)
{
    const char *why = message((void *)w);
    fprintf(stderr, "fp8c: error: the ranks can't exchange bytes%s%s\n", why ? ": " : "",
            why ? why : "");
    return false;
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
static bool meet(f8_peers *w, f8_peer *me)
{
    char who[256];
    f8_diag diag = {0};
    identify(me);
    if (w->inner.all_gather(w->inner.user, me, w->peer, sizeof *me))
        return gather_failed(w);
    who_is(w, who);
    const bool made = f8_rank_create(&w->record[w->rank], me->path, who, &diag) == F8_OK;
    int32_t mine = made, all[F8_MAX_RANKS];
    /* all have made theirs; then all have opened them */
    bool ok = !w->inner.all_gather(w->inner.user, &mine, all, sizeof mine);
    if (ok)
        open_near(w);
    if (made)
        note_begin(w);
    ok = ok && !w->inner.all_gather(w->inner.user, &mine, all, sizeof mine);
    if (made)
        unlink(me->path);
    return !made ? cli_file_fail(&diag) : ok || gather_failed(w);
}

static bool folder_failed(const char *path, const char *what)
{
    fprintf(stderr, "%s: error: %s: %s\n", path, what, strerror(errno));
    return false;
}

/* Removes the records of an earlier run: files whose names are numbers. */
static bool empty_folder(const char *path)
{
    DIR *folder = opendir(path);
    bool ok = folder || folder_failed(path, "can't read the folder");
    for (struct dirent *e; ok && (e = readdir(folder));) {
        char old[PATH_MAX + sizeof e->d_name];
        snprintf(old, sizeof old, "%s/%s", path, e->d_name);
        if (strspn(e->d_name, "0123456789") == strlen(e->d_name) && unlink(old))
            ok = folder_failed(old, "can't remove it");
    }
    if (folder)
        closedir(folder);
    return ok;
}

/* The others get the folder `ranks` from rank 0. */
static bool make_folder(const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return folder_failed(path, "can't make the folder");
    return empty_folder(path);
}

bool f8_peers_folder(f8_peers *w, const char *folder)
{
    char path[PATH_MAX], own[PATH_MAX + 16], who[256];
    int32_t all[F8_MAX_RANKS];
    f8_diag diag = {0};
    if (!w || !folder)
        return true;
    snprintf(path, sizeof path, "%s/ranks", folder);
    int32_t ok = w->rank > 0 || make_folder(path);
    f8_peers_name(w, "whether the folder is there");
    if (all_gather(w, &ok, all, sizeof ok)) /* all wait for rank 0 */
        return gather_failed(w);
    if (!all[0])
        return false;
    who_is(w, who);
    snprintf(own, sizeof own, "%s/%d", path, w->rank);
    if (w->rank == 0 || !access(path, X_OK))
        ok = f8_rank_create(&w->kept, own, who, &diag) == F8_OK || cli_file_fail(&diag);
    if (all_gather(w, &ok, all, sizeof ok))
        return gather_failed(w);
    for (int r = 0; r < w->ranks; r++)
        ok &= all[r];
    w->folder = strdup(path);
    w->in_folder = ok && w->folder;
    return ok && (w->folder || out_of_memory());
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

double f8_peers_limit(const cli *c)
{
    return c->rank_timeout < 0 ? 0 : c->rank_timeout ? c->rank_timeout : LIMIT;
}

f8_peers *f8_peers_begin(fp8c_comm *comm, fp8c_mpi *mpi, int messages, double limit)
{
    watched *all = calloc(1, sizeof *all);
    f8_peer me = {0};
    if (!all) {
        out_of_memory();
        return NULL;
    }
    f8_peers *w = &all->peers;
    *w = (f8_peers){.inner = *comm,
                     .mpi = mpi,
                     .messages = messages,
                     .limit = limit,
                     .rank = comm->rank,
                     .ranks = comm->ranks,
                     .name = "the ranks"};
    const size_t n = (size_t)w->ranks;
    w->peer = calloc(n, sizeof *w->peer);
    w->record = calloc(n, sizeof *w->record);
    w->process = malloc(n * sizeof *w->process);
    w->wake = eventfd(0, EFD_CLOEXEC);
    for (size_t r = 0; w->process && r < n; r++)
        w->process[r] = -1;
    bool ok = (w->peer && w->record && w->process) || out_of_memory();
    if (ok && w->wake < 0) {
        fprintf(stderr, "fp8c: error: eventfd: %s\n", strerror(errno));
        ok = false;
    }
    if (!ok || !meet(w, &me) || !f8_start_thread(&all->thread, f8_peers_others, &all->peers)) {
        release(w);
        return NULL;
    }
    comm->user = w;
    comm->all_gather = all_gather;
    comm->all_to_all = all_to_all;
    comm->all_reduce = w->inner.all_reduce ? all_reduce : NULL;
    comm->reduce_scatter = w->inner.reduce_scatter ? reduce_scatter : NULL;
    comm->message = message;
    comm->observe = observe;
    return w;
}

void f8_peers_end(f8_peers *w, int code)
{
    const uint64_t one = 1;
    const f8_rank_state state = code == CLI_DONE ? F8_RANK_LEFT : F8_RANK_FAILED;
    if (!w)
        return;
    if (atomic_exchange(&w->ending, true)) /* the thread is about to end the process */
        for (;;)
            pause();
    f8_rank_become(&w->record[w->rank], state);
    f8_rank_become(&w->kept, state);
    if (write(w->wake, &one, sizeof one) == sizeof one)
        pthread_join(((watched *)(void *)w)->thread, NULL);
    if (code != CLI_DONE)
        f8_peers_say_gone(w);
    release(w);
}
