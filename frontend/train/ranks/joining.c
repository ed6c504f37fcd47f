/* The thread that watches while ranks join: see joining.h. */
#include "frontend/train/ranks/joining.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "frontend/train/ranks/process.h"
#include "ir/base/clock.h"
#include "ir/base/format.h"

enum {
    LONGEST = 500, /* milliseconds between two looks */
    SHORTEST = 20,
    TURN = 500, /* milliseconds that a rank waits for each before it, which may speak */
    TURNS = 4,
    ENDING = 3000,         /* milliseconds for one that has spoken to end the job */
    OVERSLEPT = 1,         /* seconds more than asked for: the process was stopped */
    ENVIRONMENT = 1 << 17, /* bytes of a process's environment that are looked at */
    SAID = 16,             /* ranks that a message names */
    FAR_UP = 64            /* ancestors that are looked at */
};

struct f8_joining {
    pthread_t thread;
    const f8_ranks_options *options;
    fp8c_mpi *_Atomic mpi;
    atomic_int stage;
    _Atomic int64_t since; /* when the wait began, in nanoseconds; 0: there is none */
    int wake;              /* an eventfd: the thread shall end */
};

static const char thread_name[] = "fp8c joins ";

/* By stage: "has waited for 1.0 seconds ..." */
static const char *const wait_text[] = {"",
                                        "for the others to join MPI",
                                        "to compare how the ranks were started",
                                        "for the others to join their GPUs by NCCL",
                                        "to exchange where the ranks' records are",
                                        "",
                                        "for the others to leave"};

/* ---- the launcher's variables ---- */

static const struct {
    const char *rank, *ranks;
} launchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"PMIX_RANK", "SLURM_NTASKS"},
                 {"SLURM_PROCID", "SLURM_NTASKS"},
                 {"RANK", "WORLD_SIZE"}};

/* A whole number, or -1. */
static int number(const char *text)
{
    char *end;
    const long n = text && *text ? strtol(text, &end, 10) : -1;
    return n >= 0 && n <= 1 << 20 && !*end ? (int)n : -1;
}

/* The one of this process; NULL: none is set. */
static const char *rank_variable(int *rank, int *ranks)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        *rank = number(secure_getenv(launchers[i].rank));
        *ranks = number(secure_getenv(launchers[i].ranks));
        if (*rank >= 0)
            return launchers[i].rank;
    }
    return NULL;
}

/* ---- other processes ---- */

/* Reads up to `room` - 1 bytes of /proc/PID/NAME. false: it can't be read. */
static bool read_of(int64_t pid, const char *name, char *to, size_t room, size_t *size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/%s", pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    *size = 0;
    while (fd >= 0 && *size < room - 1 && (n = read(fd, to + *size, room - 1 - *size)) > 0)
        *size += (size_t)n;
    if (fd >= 0)
        close(fd);
    to[*size] = 0;
    return fd >= 0 && n >= 0;
}

/* The rank that a process was given; -1: none, or its environment can't be read. */
static int rank_of(int64_t pid, const char *variable, char *room)
{
    size_t size;
    const size_t n = strlen(variable);
    if (!read_of(pid, "environ", room, ENVIRONMENT, &size))
        return -1;
    for (const char *at = room; at < room + size; at += strlen(at) + 1)
        if (!strncmp(at, variable, n) && at[n] == '=')
            return number(at + n + 1);
    return -1;
}

static int64_t parent_of(int64_t pid)
{
    char text[512];
    size_t size;
    int64_t parent = 0;
    const char *end = read_of(pid, "stat", text, sizeof text, &size) ? strrchr(text, ')') : NULL;
    return end && sscanf(end, ") %*c %" SCNd64, &parent) == 1 ? parent : 0;
}

/* The launcher of a process: its nearest ancestor that was given no rank. The ranks of a machine
 * have the same one, whatever shells are between. */
static int64_t launcher_of(int64_t pid, const char *variable, char *room)
{
    for (int i = 0; i < FAR_UP && pid > 1 && rank_of(pid, variable, room) >= 0; i++)
        pid = parent_of(pid);
    return pid;
}

/* How far a process has come: F8_STAGE_BEGINS if it has no such thread. */
static int stage_of(int64_t pid)
{
    char path[64], name[64], text[32];
    int stage = F8_STAGE_BEGINS;
    size_t size;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/task", pid);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        snprintf(name, sizeof name, "task/%.20s/comm", e->d_name);
        if (e->d_name[0] != '.' && read_of(pid, name, text, sizeof text, &size) &&
            !strncmp(text, thread_name, sizeof thread_name - 1))
            stage = atoi(text + sizeof thread_name - 1);
    }
    if (tasks)
        closedir(tasks);
    return stage;
}

/* What is known of a rank. */
typedef struct seen {
    int64_t pid; /* 0: there is no process of it here */
    int stage;
    f8_life life;
} seen;

/* Of two processes of a rank, such as a shell and what it started, the one that tells more. */
static bool tells_more(const seen *a, const seen *b)
{
    return !b->pid || a->stage > b->stage ||
           (a->stage == b->stage && (a->life == F8_LIFE_STOPPED || b->life != F8_LIFE_STOPPED));
}

static void look_at(int64_t pid, const char *variable, int64_t launcher, seen *all, int ranks,
                    char *room)
{
    const int rank = rank_of(pid, variable, room);
    if (rank < 0 || rank >= ranks || launcher_of(pid, variable, room) != launcher)
        return;
    const seen s = {pid, stage_of(pid), f8_life_of(pid)};
    if (s.life != F8_LIFE_GONE && tells_more(&s, &all[rank]))
        all[rank] = s;
}

/* Finds the processes of all ranks on this machine. NULL: out of memory. */
static seen *look_around(const char *variable, int ranks)
{
    seen *all = calloc((size_t)ranks, sizeof *all);
    char *room = malloc(ENVIRONMENT);
    DIR *processes = all && room ? opendir("/proc") : NULL;
    if (processes) {
        const int64_t launcher = launcher_of(getpid(), variable, room);
        for (struct dirent *e; (e = readdir(processes));)
            if (number(e->d_name) > 0)
                look_at(number(e->d_name), variable, launcher, all, ranks, room);
        closedir(processes);
    }
    free(room);
    return all;
}

/* ---- what is said ---- */

static void say_other(f8_said *s, const seen *other, int rank, const char *host, int stage,
                      int *lines)
{
    const bool arrived = other->stage >= stage, stopped = other->life == F8_LIFE_STOPPED;
    if (!other->pid) {
        f8_say(s, "  rank %d has no process here (host %s): nothing is known of it\n", rank, host);
    } else if (!arrived || stopped) {
        f8_say(s, "  ");
        f8_say_rank(s, rank, host, other->pid);
        f8_say(s, "%s%s%s\n", arrived ? "" : " has not arrived", !arrived && stopped ? ", and" : "",
               f8_life_text(other->life));
    } else {
        return;
    }
    ++*lines;
}

static void say_late(f8_said *s, const f8_joining *j, int stage, double waited)
{
    char host[64] = "?";
    int rank, ranks, lines = 0;
    const char *variable = rank_variable(&rank, &ranks);
    seen *all = variable && ranks > 0 ? look_around(variable, ranks) : NULL;
    gethostname(host, sizeof host - 1);
    if (variable)
        f8_say_rank(s, rank, host, getpid());
    else
        f8_say(s, "process %d", (int)getpid());
    f8_say(s, " has waited for %.1f seconds %s; %s is %g\n", waited, wait_text[stage],
           j->options->limit_name, j->options->limit);
    for (int r = 0; all && r < ranks && lines < SAID; r++)
        if (r != rank)
            say_other(s, &all[r], r, host, stage, &lines);
    if (!all)
        f8_say(s, "  which ranks there are is not known: the launcher says it in no variable\n");
    else if (!lines)
        f8_say(s, "  all ranks have arrived: the call itself does not end\n");
    free(all);
}

/* ---- the thread ---- */

/* Sleeps for so many milliseconds. false: the thread shall end. A process that was stopped itself
 * waits anew. */
static bool rest(f8_joining *j, int milliseconds)
{
    struct pollfd p = {.fd = j->wake, .events = POLLIN};
    const double begin = f8_seconds_now();
    const int ready = poll(&p, 1, milliseconds);
    int64_t since = j->since;
    if (milliseconds >= 0 && f8_seconds_now() - begin > 1e-3 * milliseconds + OVERSLEPT && since)
        atomic_compare_exchange_strong(&j->since, &since, (int64_t)(f8_seconds_now() * 1e9));
    return ready <= 0;
}

static double waited(const f8_joining *j)
{
    const int64_t since = j->since;
    return since ? f8_seconds_now() - 1e-9 * (double)since : 0;
}

/* Lets ranks before this one, which would say the same, speak first; one of them that is gone has,
 * and ends the job. false: the thread shall end. */
static bool wait_for_turn(f8_joining *j, int stage)
{
    int rank, ranks, n = 0;
    const char *variable = rank_variable(&rank, &ranks);
    bool goes_on = true, gone = false;
    seen *all = variable && rank < ranks ? look_around(variable, ranks) : NULL;
    for (int r = 0; all && r < rank; r++)
        n += all[r].stage == stage && all[r].life == F8_LIFE_RUNS && n < TURNS;
    if (n)
        goes_on = rest(j, TURN * n);
    for (int r = 0; all && r < rank; r++)
        gone |= all[r].stage == stage && all[r].life == F8_LIFE_RUNS &&
                f8_life_of(all[r].pid) == F8_LIFE_GONE;
    free(all);
    return goes_on && (!gone || rest(j, ENDING));
}

static void *watch(void *joining)
{
    f8_joining *j = joining;
    const f8_ranks_callbacks *call = &j->options->call;
    const double tenth = j->options->limit * 100; /* of the limit, in milliseconds */
    const int pause = j->options->limit <= 0 ? -1
                      : tenth > LONGEST      ? LONGEST
                      : tenth < SHORTEST     ? SHORTEST
                                             : (int)tenth;
    while (rest(j, pause)) {
        const int stage = j->stage;
        if (j->options->limit <= 0 || waited(j) <= j->options->limit)
            continue;
        if (!wait_for_turn(j, stage))
            break;
        const double seconds = waited(j);
        if (j->stage != stage || seconds <= j->options->limit)
            continue;
        f8_said s = {.n = 0};
        say_late(&s, j, stage, seconds);
        call->say(call->user, s.text);
        call->end(call->user, j->mpi);
        break;
    }
    return NULL;
}

/* ---- life ---- */

static void enter(f8_joining *j, f8_stage stage)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", thread_name, (int)stage);
    pthread_setname_np(j->thread, name);
    j->stage = (int)stage;
}

f8_status f8_joining_begin(f8_joining **out, const f8_ranks_options *options, f8_diag *diag)
{
    f8_joining *j = *out = calloc(1, sizeof *j);
    if (!j)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
    j->options = options;
    j->wake = eventfd(0, EFD_CLOEXEC);
    const f8_status status =
        j->wake < 0 ? f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "eventfd: %s", f8_errno_text(errno))
                    : f8_start_thread(&j->thread, watch, j, diag);
    if (status == F8_OK)
        return F8_OK;
    if (j->wake >= 0)
        close(j->wake);
    free(j);
    *out = NULL;
    return status;
}

void f8_joining_end(f8_joining *j)
{
    const uint64_t one = 1;
    if (!j)
        return;
    if (write(j->wake, &one, sizeof one) == sizeof one)
        pthread_join(j->thread, NULL);
    close(j->wake);
    free(j);
}

void f8_joining_wait(f8_joining *j, f8_stage stage)
{
    if (!j)
        return;
    enter(j, stage);
    j->since = (int64_t)(f8_seconds_now() * 1e9);
}

void f8_joining_done(f8_joining *j)
{
    if (!j)
        return;
    j->since = 0;
    if (j->stage == F8_STAGE_MEETS)
        enter(j, F8_STAGE_TRAINS);
}

void f8_joining_by(f8_joining *j, fp8c_mpi *mpi)
{
    if (j)
        j->mpi = mpi;
}
