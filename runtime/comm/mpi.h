/* The engine over MPI, which is opened at run time: see comm.h. */
#ifndef F8_COMM_MPI_H
#define F8_COMM_MPI_H

#include "runtime/base/dynlib.h"
#include "runtime/comm/comm.h"

typedef struct f8_mpi f8_mpi;

enum { F8_MPI_KINDS = 2 };
extern const char *const f8_mpi_kind_name[F8_MPI_KINDS]; /* "openmpi", "mpich" */

/* Where the shims of `kind` are looked for: the arguments of f8_dynlib_search. NULL: of all kinds.
 */
typedef struct f8_mpi_places {
    const char *name[F8_MPI_KINDS + 1], *folder[6];
} f8_mpi_places;
f8_status f8_mpi_find(const char *kind, f8_arena *arena, f8_mpi_places *out, f8_diag *diag);
/* Why a library that was found there is no shim; NULL: it is one. */
const char *f8_mpi_refused(const f8_dynlib *shim, f8_arena *arena);

/* Joins the MPI job of this process. `kind` is one of the names, or NULL: the first whose library
 * and shim are there. F8_ERR_LIBRARY says what is missing, or what MPI says. A process has one job,
 * so it has one f8_mpi at a time, and after f8_mpi_close of an MPI that it initialized none
 * again. */
f8_status f8_mpi_open(const char *kind, const f8_allocator *allocator, f8_mpi **out,
                      f8_diag *diag);
void f8_mpi_close(f8_mpi *m); /* may be NULL */
const f8_comm *f8_mpi_comm(const f8_mpi *m);
/* Ends all processes of the job with this exit code; does not return. */
void f8_mpi_abort(f8_mpi *m, int code);

#endif
