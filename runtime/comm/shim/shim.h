/* What a shim exports: a small library between fp8c and one implementation of MPI. Implementations
 * share no ABI, so mpi.c is compiled against the mpi.h of each, and no constant of theirs is known
 * anywhere else. Functions return 0, or not 0 with the reason in `why`. */
#ifndef F8_MPI_SHIM_H
#define F8_MPI_SHIM_H

#include <stddef.h>
#include <stdint.h>

enum { F8_SHIM_WHY = 512 };

/* A job's communicator and what belongs to it. Zeros before `begin`. */
typedef struct f8_mpi_job {
    int rank, ranks;
    int begun, owns; /* `end` has to finalize MPI */
    void *comm[2];   /* the implementation's own handle */
} f8_mpi_job;

typedef struct f8_mpi_shim {
    /* Initializes MPI, unless the process has done so. Calls may then come from any thread, one at
     * a time. */
    int (*begin)(f8_mpi_job *j, char why[F8_SHIM_WHY]);
    int (*all_gather)(f8_mpi_job *j, const void *send, void *receive, int64_t bytes,
                      char why[F8_SHIM_WHY]);
    int (*all_to_all)(f8_mpi_job *j, const void *send, void *receive, int64_t bytes,
                      char why[F8_SHIM_WHY]);
    /* Sums of `n` floats, in an order of MPI's own: of all that the ranks send, or of the row of
     * this rank. */
    int (*all_reduce)(f8_mpi_job *j, const void *send, void *receive, int64_t n,
                      char why[F8_SHIM_WHY]);
    int (*reduce_scatter)(f8_mpi_job *j, const void *send, void *receive, int64_t n,
                          char why[F8_SHIM_WHY]);
    /* Ends this process and all others of the job, with this exit code. */
    void (*abort)(int code);
    void (*end)(f8_mpi_job *j);
} f8_mpi_shim;

/* The only symbol: a function of this name that returns the table. */
#define F8_MPI_SHIM_SYMBOL "f8_mpi_shim_table"

#endif
