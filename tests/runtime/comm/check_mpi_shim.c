/* What the shim asks of MPI for messages and sums of any size. MPI's counts are ints, so long ones
 * are several calls, or calls with longer elements. The MPI here is a stand-in: it notes each call
 * and touches no buffer, so the buffers need no memory. */
#include <limits.h>
#include <mpi.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/comm/shim/shim.h"
#include "tests/shared/suite.h"

const f8_mpi_shim *f8_mpi_shim_table(void);

enum { RANKS = 4, ONE_SUM = 1 << 28 };

/* ---- the stand-in ---- */

typedef enum call_kind { GATHER, TO_ALL, REDUCE, SCATTER, REDUCE_TO } call_kind;

typedef struct call {
    call_kind kind;
    const float *send, *receive;
    int n, root;
    int64_t bytes; /* of n elements */
} call;

static struct {
    call call[256];
    int n_calls, fails_at; /* the number of the call that fails; -1: none */
    int64_t size[64];      /* by datatype */
    int n_types, types;    /* made; not yet freed */
} mpi;

static int note(call_kind kind, const void *send, const void *receive, int n, MPI_Datatype type,
                int root)
{
    ck_assert_int_lt(mpi.n_calls, 256);
    ck_assert_int_ge(n, 0);
    ck_assert_int_lt(type, mpi.n_types);
    mpi.call[mpi.n_calls] = (call){kind, send, receive, n, root, n * mpi.size[type]};
    return mpi.n_calls++ == mpi.fails_at ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int new_type(int64_t size, MPI_Datatype *type)
{
    ck_assert_int_lt(mpi.n_types, 64);
    mpi.size[mpi.n_types] = size;
    mpi.types++;
    *type = mpi.n_types++;
    return MPI_SUCCESS;
}

int MPI_Type_contiguous(int count, MPI_Datatype of, MPI_Datatype *type)
{
    ck_assert_int_ge(count, 0);
    return new_type(count * mpi.size[of], type);
}

/* The fields lie one behind the other. */
int MPI_Type_create_struct(int count, const int length[], const MPI_Aint at[],
                           const MPI_Datatype of[], MPI_Datatype *type)
{
    int64_t size = 0;
    for (int i = 0; i < count; i++) {
        ck_assert_int_ge(length[i], 0);
        ck_assert_int_eq(at[i], size);
        size += length[i] * mpi.size[of[i]];
    }
    return new_type(size, type);
}

int MPI_Type_commit(MPI_Datatype *type)
{
    ck_assert_int_lt(*type, mpi.n_types);
    return MPI_SUCCESS;
}

int MPI_Type_free(MPI_Datatype *type)
{
    *type = -1;
    mpi.types--;
    return MPI_SUCCESS;
}

int MPI_Iallgather(const void *send, int n, MPI_Datatype type, void *receive, int m,
                   MPI_Datatype other, MPI_Comm comm, MPI_Request *request)
{
    (void)comm, (void)request;
    ck_assert(n == m && type == other);
    return note(GATHER, send, receive, n, type, -1);
}

int MPI_Ialltoall(const void *send, int n, MPI_Datatype type, void *receive, int m,
                  MPI_Datatype other, MPI_Comm comm, MPI_Request *request)
{
    (void)comm, (void)request;
    ck_assert(n == m && type == other);
    return note(TO_ALL, send, receive, n, type, -1);
}

int MPI_Iallreduce(const void *send, void *receive, int n, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    (void)comm, (void)request;
    ck_assert(type == MPI_FLOAT && op == MPI_SUM);
    return note(REDUCE, send, receive, n, type, -1);
}

int MPI_Ireduce(const void *send, void *receive, int n, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request *request)
{
    (void)comm, (void)request;
    ck_assert(type == MPI_FLOAT && op == MPI_SUM);
    return note(REDUCE_TO, send, receive, n, type, root);
}

int MPI_Ireduce_scatter_block(const void *send, void *receive, int n, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, MPI_Request *request)
{
    (void)comm, (void)request;
    ck_assert(type == MPI_FLOAT && op == MPI_SUM);
    return note(SCATTER, send, receive, n, type, -1);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    (void)request, (void)status;
    *flag = 1;
    return MPI_SUCCESS;
}

int MPI_Error_string(int code, char *text, int *length)
{
    ck_assert_int_eq(code, MPI_ERR_OTHER);
    *length = (int)strlen(strcpy(text, "no more"));
    return MPI_SUCCESS;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy)
{
    *copy = comm + 1;
    return MPI_SUCCESS;
}

static int give(int *to, int value)
{
    *to = value;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    return give(rank, comm - MPI_COMM_WORLD);
}
int MPI_Comm_size(MPI_Comm comm, int *size)
{
    return give(size, comm ? RANKS : 0);
}
int MPI_Comm_free(MPI_Comm *comm)
{
    return give(comm, 0);
}
int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *handler)
{
    return give(handler, comm);
}
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    return comm && handler ? 0 : 1;
}
int MPI_Errhandler_free(MPI_Errhandler *handler)
{
    return give(handler, 0);
}
int MPI_Initialized(int *flag)
{
    return give(flag, 0);
}
int MPI_Finalized(int *flag)
{
    return give(flag, 0);
}
int MPI_Finalize(void)
{
    return MPI_SUCCESS;
}
int MPI_Query_thread(int *provided)
{
    return give(provided, MPI_THREAD_SERIALIZED);
}
int MPI_Abort(MPI_Comm comm, int code)
{
    return comm + code;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    (void)argc, (void)argv;
    return give(provided, wanted);
}

/* ---- the tests ---- */

static const f8_mpi_shim *shim;
static f8_mpi_job job;
static char why[F8_SHIM_WHY];
static float *send, *receive; /* addresses alone: nobody may read or write there */

static void setup(void)
{
    const size_t most = (size_t)1 << 40;
    memset(&mpi, 0, sizeof mpi);
    mpi.size[MPI_BYTE] = 1;
    mpi.size[MPI_FLOAT] = sizeof(float);
    mpi.n_types = 2;
    mpi.fails_at = -1;
    job = (f8_mpi_job){0};
    shim = f8_mpi_shim_table();
    ck_assert_int_eq(shim->begin(&job, why), 0);
    ck_assert_int_eq(job.ranks, RANKS);
    send = mmap(NULL, 2 * most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(send, MAP_FAILED);
    receive = send + most / sizeof *send;
}

static void teardown(void)
{
    ck_assert_int_eq(mpi.types, 0);
    shim->end(&job);
    munmap(send, (size_t)1 << 41);
}

/* The calls from `first` on sum numbers [0, n) of `from` into `receive`, each once. How many. */
static int covered(int first, call_kind kind, int root, const float *from, int64_t n)
{
    int64_t at = 0;
    int i = first;
    for (; at < n; i++) {
        const call *c = &mpi.call[i];
        ck_assert_int_lt(i, mpi.n_calls);
        ck_assert_int_eq(c->kind, kind);
        ck_assert_int_eq(c->root, root);
        ck_assert_int_le(c->n, ONE_SUM);
        ck_assert_ptr_eq(c->send, from + at);
        ck_assert_ptr_eq(c->receive, receive + at);
        at += c->n;
    }
    ck_assert_int_eq(at, n);
    return i - first;
}

static const struct {
    int64_t n;
    int calls;
} sums[] = {{1, 1},         {ONE_SUM, 1},         {ONE_SUM + 1, 2}, {INT_MAX, 8},
            {1LL << 31, 8}, {(1LL << 31) + 1, 9}, {1LL << 35, 128}};

START_TEST(sums_of_all)
{
    const int64_t n = sums[_i].n;
    ck_assert_msg(!shim->all_reduce(&job, send, receive, n, why), "%s", why);
    ck_assert_int_eq(covered(0, REDUCE, -1, send, n), sums[_i].calls);
    ck_assert_int_eq(mpi.n_calls, sums[_i].calls);
}
END_TEST

/* What one call may take is the sum of all ranks' rows. */
static const struct {
    int64_t n;
    int calls; /* for each rank; 0: one call for all */
} rows[] = {{ONE_SUM / RANKS, 0}, {ONE_SUM / RANKS + 1, 1},
            {ONE_SUM, 1},         {ONE_SUM + 1, 2},
            {INT_MAX, 8},         {1LL << 31, 8}};

START_TEST(sums_of_rows)
{
    const int64_t n = rows[_i].n;
    ck_assert_msg(!shim->reduce_scatter(&job, send, receive, n, why), "%s", why);
    if (rows[_i].calls == 0)
        ck_assert_int_eq(covered(0, SCATTER, -1, send, n), 1);
    for (int r = 0; r < RANKS && rows[_i].calls; r++)
        ck_assert_int_eq(covered(r * rows[_i].calls, REDUCE_TO, r, send + r * n, n),
                         rows[_i].calls);
    ck_assert_int_eq(mpi.n_calls, rows[_i].calls ? RANKS * rows[_i].calls : 1);
}
END_TEST

/* Odd numbers of bytes, too. */
static const int64_t bytes[] = {0,        1, INT_MAX, 1LL << 31, (1LL << 31) + 1, (1LL << 47) - 1,
                                1LL << 47};

START_TEST(bytes_of_a_message)
{
    for (int k = 0; k < 2; k++) {
        int (*const exchange)(f8_mpi_job *, const void *, void *, int64_t, char *) =
            k ? shim->all_to_all : shim->all_gather;
        ck_assert_msg(!exchange(&job, send, receive, bytes[_i], why), "%s", why);
        ck_assert_int_eq(mpi.n_calls, k + 1);
        ck_assert_int_eq(mpi.call[k].kind, k ? TO_ALL : GATHER);
        ck_assert_int_eq(mpi.call[k].bytes, bytes[_i]);
        ck_assert_ptr_eq(mpi.call[k].send, send);
        ck_assert_ptr_eq(mpi.call[k].receive, receive);
    }
}
END_TEST

/* The other ranks' calls fail, too; no further one is made. */
START_TEST(a_call_that_fails)
{
    mpi.fails_at = 1;
    ck_assert_int_ne(shim->all_reduce(&job, send, receive, 1LL << 31, why), 0);
    ck_assert_str_eq(why, "MPI_Iallreduce: no more");
    ck_assert_int_eq(mpi.n_calls, 2);
    mpi.fails_at = 4;
    ck_assert_int_ne(shim->reduce_scatter(&job, send, receive, 1LL << 31, why), 0);
    ck_assert_str_eq(why, "MPI_Ireduce: no more");
    ck_assert_int_eq(mpi.n_calls, 5);
    mpi.fails_at = 5;
    ck_assert_int_ne(shim->all_gather(&job, send, receive, (1LL << 31) + 1, why), 0);
    ck_assert_str_eq(why, "MPI_Iallgather: no more");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("mpi_shim");
    TCase *t = tcase_create("mpi_shim");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, sums_of_all, 0, sizeof sums / sizeof *sums);
    tcase_add_loop_test(t, sums_of_rows, 0, sizeof rows / sizeof *rows);
    tcase_add_loop_test(t, bytes_of_a_message, 0, sizeof bytes / sizeof *bytes);
    tcase_add_test(t, a_call_that_fails);
    suite_add_tcase(s, t);
    return s;
}
