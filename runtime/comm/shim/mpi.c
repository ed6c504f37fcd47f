/* The shim: see shim.h. Compiled once for each implementation of MPI, and linked with it. */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "runtime/comm/shim/shim.h"

const f8_mpi_shim *f8_mpi_shim_table(void);

static int failed(int code, const char *call, char why[F8_SHIM_WHY])
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, text, &length);
    snprintf(why, F8_SHIM_WHY, "%s: %.*s", call, length < 400 ? length : 400, text);
    return 1;
}

_Static_assert(sizeof(MPI_Comm) <= sizeof((f8_mpi_job){0}.comm), "room for the handle");

static MPI_Comm *comm_of(f8_mpi_job *j)
{
    return (MPI_Comm *)(void *)j->comm;
}

/* As the embedder has set it, an error in the world ends the process. */
static int copy_world(MPI_Comm *copy, char why[F8_SHIM_WHY])
{
    MPI_Errhandler before;
    if (failed(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before), "MPI_Comm_get_errhandler", why) ||
        failed(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
               "MPI_Comm_set_errhandler", why))
        return 1;
    const int code = MPI_Comm_dup(MPI_COMM_WORLD, copy);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    MPI_Errhandler_free(&before);
    return failed(code, "MPI_Comm_dup", why);
}

/* The communicator's errors are returned; MPI's default would end the process. It is a copy of the
 * world, so that no message of the embedder's is taken for one of ours. */
static int begin(f8_mpi_job *j, char why[F8_SHIM_WHY])
{
    MPI_Comm *const world = comm_of(j);
    int there = 0, over = 0, provided = MPI_THREAD_SINGLE;
    if (failed(MPI_Initialized(&there), "MPI_Initialized", why) ||
        failed(MPI_Finalized(&over), "MPI_Finalized", why))
        return 1;
    if (over) {
        snprintf(why, F8_SHIM_WHY, "MPI was finalized, and can't be initialized again");
        return 1;
    }
    j->owns = !there;
    if (!there && failed(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided),
                         "MPI_Init_thread", why))
        return 1;
    if (failed(MPI_Query_thread(&provided), "MPI_Query_thread", why))
        return 1;
    if (provided < MPI_THREAD_SERIALIZED) {
        snprintf(why, F8_SHIM_WHY,
                 "MPI provides threads of level %d; MPI_THREAD_SERIALIZED, %d, is needed", provided,
                 MPI_THREAD_SERIALIZED);
        return 1;
    }
    if (copy_world(world, why)) {
        j->owns = 0; /* the others wait in MPI_Comm_dup, so this rank would wait in MPI_Finalize */
        return 1;
    }
    j->begun = 1;
    return failed(MPI_Comm_set_errhandler(*world, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
                  why) ||
           failed(MPI_Comm_rank(*world, &j->rank), "MPI_Comm_rank", why) ||
           failed(MPI_Comm_size(*world, &j->ranks), "MPI_Comm_size", why);
}

/* Counts are ints. More bytes than that are one element: as many pieces as fit, and the rest. */
static int element_of(int64_t bytes, int *count, MPI_Datatype *element, char why[F8_SHIM_WHY])
{
    enum { PIECE = 1 << 20 };
    MPI_Datatype piece;
    if (failed(MPI_Type_contiguous(bytes > INT_MAX ? PIECE : 1, MPI_BYTE, &piece),
               "MPI_Type_contiguous", why))
        return 1;
    *count = bytes > INT_MAX ? 1 : (int)bytes;
    *element = piece;
    if (bytes > INT_MAX) {
        const int length[] = {(int)(bytes / PIECE), (int)(bytes % PIECE)};
        const MPI_Aint at[] = {0, (MPI_Aint)(bytes - length[1])};
        const MPI_Datatype of[] = {piece, MPI_BYTE};
        const int bad = failed(MPI_Type_create_struct(2, length, at, of, element),
                               "MPI_Type_create_struct", why);
        MPI_Type_free(&piece);
        if (bad)
            return 1;
    }
    return failed(MPI_Type_commit(element), "MPI_Type_commit", why);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits for a request. A blocking call of MPI spins while other ranks are late or bytes are under
 * way, and so takes a CPU from the threads that compute. MPI moves bytes only while it is called:
 * at first other threads only go first, then there are pauses, which grow. */
static int wait_for(MPI_Request *request, const char *call, char why[F8_SHIM_WHY])
{
    enum { SHORTEST = 20000, LONGEST = 200000 }; /* nanoseconds */
    const double begun = seconds_now(), soon = 10e-6;
    struct timespec pause = {.tv_nsec = SHORTEST};
    for (;;) {
        int over = 0;
        if (failed(MPI_Test(request, &over, MPI_STATUS_IGNORE), call, why))
            return 1;
        if (over)
            return 0;
        if (seconds_now() - begun < soon) {
            sched_yield();
            continue;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec += pause.tv_nsec / 4;
        if (pause.tv_nsec > LONGEST)
            pause.tv_nsec = LONGEST;
    }
}

static int all_gather(f8_mpi_job *j, const void *send, void *receive, int64_t bytes,
                      char why[F8_SHIM_WHY])
{
    MPI_Datatype element;
    MPI_Request request;
    int count;
    if (element_of(bytes, &count, &element, why))
        return 1;
    const int bad =
        failed(MPI_Iallgather(send, count, element, receive, count, element, *comm_of(j), &request),
               "MPI_Iallgather", why) ||
        wait_for(&request, "MPI_Iallgather", why);
    MPI_Type_free(&element);
    return bad;
}

static int all_to_all(f8_mpi_job *j, const void *send, void *receive, int64_t bytes,
                      char why[F8_SHIM_WHY])
{
    MPI_Datatype element;
    MPI_Request request;
    int count;
    if (element_of(bytes, &count, &element, why))
        return 1;
    const int bad =
        failed(MPI_Ialltoall(send, count, element, receive, count, element, *comm_of(j), &request),
               "MPI_Ialltoall", why) ||
        wait_for(&request, "MPI_Ialltoall", why);
    MPI_Type_free(&element);
    return bad;
}

/* The most numbers that one call adds: 1 GiB. Longer sums are several calls. MPI's counts are ints,
 * and Open MPI has twice the bytes of a call as a buffer in each rank. */
enum { ONE_SUM = 1 << 28 };

static int length_of(int64_t left)
{
    return left < ONE_SUM ? (int)left : ONE_SUM;
}

static int all_reduce(f8_mpi_job *j, const void *send, void *receive, int64_t n,
                      char why[F8_SHIM_WHY])
{
    const float *from = send;
    float *to = receive;
    MPI_Request request;
    for (int64_t at = 0; at < n; at += ONE_SUM)
        if (failed(MPI_Iallreduce(from + at, to + at, length_of(n - at), MPI_FLOAT, MPI_SUM,
                                  *comm_of(j), &request),
                   "MPI_Iallreduce", why) ||
            wait_for(&request, "MPI_Iallreduce", why))
            return 1;
    return 0;
}

/* The row of rank `root`, which alone receives its sum. */
static int reduce_row(f8_mpi_job *j, int root, const float *row, float *to, int64_t n,
                      char why[F8_SHIM_WHY])
{
    MPI_Request request;
    for (int64_t at = 0; at < n; at += ONE_SUM)
        if (failed(MPI_Ireduce(row + at, to + at, length_of(n - at), MPI_FLOAT, MPI_SUM, root,
                               *comm_of(j), &request),
                   "MPI_Ireduce", why) ||
            wait_for(&request, "MPI_Ireduce", why))
            return 1;
    return 0;
}

/* The rows of all ranks are one sum of MPI's, or as many as there are rows. */
static int reduce_scatter(f8_mpi_job *j, const void *send, void *receive, int64_t n,
                          char why[F8_SHIM_WHY])
{
    const float *from = send;
    MPI_Request request;
    if (n * j->ranks <= ONE_SUM)
        return failed(MPI_Ireduce_scatter_block(send, receive, (int)n, MPI_FLOAT, MPI_SUM,
                                                *comm_of(j), &request),
                      "MPI_Ireduce_scatter_block", why) ||
               wait_for(&request, "MPI_Ireduce_scatter_block", why);
    for (int root = 0; root < j->ranks; root++)
        if (reduce_row(j, root, from + root * n, receive, n, why))
            return 1;
    return 0;
}

static void end_all(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void end(f8_mpi_job *j)
{
    if (j->begun)
        MPI_Comm_free(comm_of(j));
    if (j->owns)
        MPI_Finalize();
}

const f8_mpi_shim *f8_mpi_shim_table(void)
{
    static const f8_mpi_shim table = {begin,          all_gather, all_to_all, all_reduce,
                                      reduce_scatter, end_all,    end};
    return &table;
}
