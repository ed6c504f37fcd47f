/* A stand-in for MPI's header: what runtime/comm/shim/mpi.c takes from it. Whoever links the shim
 * defines the functions; here they are those of tests/runtime/comm/check_mpi_shim.c, which notes
 * what is asked of them and touches no buffer. The values are no implementation's. */
#ifndef TEST_MPI_H
#define TEST_MPI_H

#include <stdint.h>

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Errhandler;
typedef int MPI_Op;
typedef int MPI_Request;
typedef int64_t MPI_Aint;
typedef struct MPI_Status MPI_Status;

enum {
    MPI_SUCCESS,
    MPI_MAX_ERROR_STRING = 64,
    MPI_THREAD_SINGLE = 0,
    MPI_THREAD_SERIALIZED = 2,
    MPI_COMM_WORLD = 11,
    MPI_ERRORS_RETURN = 21,
    MPI_SUM = 31,
    MPI_BYTE = 0, /* datatypes: indices of a table */
    MPI_FLOAT = 1,
    MPI_ERR_OTHER = 15
};
#define MPI_STATUS_IGNORE ((MPI_Status *)0)

int MPI_Abort(MPI_Comm comm, int code);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy);
int MPI_Comm_free(MPI_Comm *comm);
int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *handler);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Errhandler_free(MPI_Errhandler *handler);
int MPI_Error_string(int code, char *text, int *length);
int MPI_Finalize(void);
int MPI_Finalized(int *flag);
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided);
int MPI_Initialized(int *flag);
int MPI_Query_thread(int *provided);
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status);
int MPI_Type_commit(MPI_Datatype *type);
int MPI_Type_contiguous(int count, MPI_Datatype of, MPI_Datatype *type);
int MPI_Type_create_struct(int count, const int length[], const MPI_Aint at[],
                           const MPI_Datatype of[], MPI_Datatype *type);
int MPI_Type_free(MPI_Datatype *type);
int MPI_Iallgather(const void *send, int n, MPI_Datatype type, void *receive, int m,
                   MPI_Datatype other, MPI_Comm comm, MPI_Request *request);
int MPI_Iallreduce(const void *send, void *receive, int n, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoall(const void *send, int n, MPI_Datatype type, void *receive, int m,
                  MPI_Datatype other, MPI_Comm comm, MPI_Request *request);
int MPI_Ireduce(const void *send, void *receive, int n, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request *request);
int MPI_Ireduce_scatter_block(const void *send, void *receive, int n, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, MPI_Request *request);

#endif
