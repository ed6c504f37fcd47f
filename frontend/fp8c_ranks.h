/* fp8c for several ranks: processes, or threads of one, that train together. What they exchange, how
 * MPI or NCCL joins them, and what a program exchanges. fp8c.h has what holds of all calls: failures,
 * ownership, threads. */
#ifndef FP8C_RANKS_H
#define FP8C_RANKS_H

#include "fp8c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- joining ---- */

/* What is exchanged, for those who keep a record of it. */
typedef struct fp8c_exchange {
    const char *op;       /* "all_gather", "all_to_all", "all_reduce" or "reduce_scatter" */
    const char *function; /* of the program; NULL: the exchange is between runs */
    const char *name;     /* of what is exchanged: a tensor, or the first and the last of several */
    int64_t bytes;        /* that each rank gets from each; of a sum, those of the sum */
    uint64_t enqueued;    /* on a GPU: the number of the collective among all of comm->nccl, from 1.
                             Else 0 */
} fp8c_exchange;

/* How the ranks of a training exchange bytes. Ranks are processes, or threads of one process, that
 * run programs compiled from one module with the same options, each on inputs of its own; they are
 * numbered from 0. Every rank makes the same calls in the same order, from one thread at a time:
 * during a run from a thread of fp8c's, which moves bytes while the run computes on; before a run
 * and in between from the thread that calls fp8c.
 * A call returns when everything to be received is there. It returns 0, or another number if it
 * failed: the run then fails with FP8C_ERR_LIBRARY, and has changed some variables and not others.
 * Write, load or initialize them before the next run, on all ranks. fp8c computes the sums itself,
 * in the order of the ranks, so the results do not depend on who moves the bytes; but see
 * reduce_order of fp8c_compile_options. */
struct fp8c_comm {
    size_t struct_size; /* sizeof(fp8c_comm) */
    int32_t rank, ranks; /* this rank's number; how many there are, 1 to 1024 */
    void *user;
    /* receive[r * bytes ...] = the `bytes` bytes that rank r sends, of all ranks */
    int (*all_gather)(void *user, const void *send, void *receive, size_t bytes);
    /* receive[r * bytes ...] = send[rank * bytes ...] of rank r: every rank sends other bytes to
     * each */
    int (*all_to_all)(void *user, const void *send, void *receive, size_t bytes);
    const char *(*message)(void *user); /* why the last call failed; may be NULL */
    int32_t on_caller; /* 1: every call comes from the thread that calls fp8c, and a run waits for it.
                          The results have the same bits, and ranks may differ in this */
    struct fp8c_nccl *nccl; /* for programs on a GPU, which take their collectives to NCCL: from
                               fp8c_nccl_open. The calls above then only compare what the ranks
                               run. NULL: programs on the CPU and the reference alone */
    /* Called right before (ended 0) and right after (ended 1) each call above, by the thread that
     * makes it, so that a rank can tell later what it waited for. Whether the call failed is not
     * said. On a GPU collectives run on their own: those that a wait sees running are told, and the
     * last one when it has ended. The struct and its texts are valid during the call. May be NULL
     */
    void (*observe)(void *user, const fp8c_exchange *exchange, int32_t ended);
    /* Sums of f32 over the ranks, for programs with reduce_order "library". Give both functions or
     * neither; without them such programs are refused. all_reduce: receive[0 .. n) = the sum of the
     * n numbers that each rank sends */
    int (*all_reduce)(void *user, const float *send, float *receive, size_t n);
    /* receive[0 .. n) = the sum of send[rank * n ...] of all ranks */
    int (*reduce_scatter)(void *user, const float *send, float *receive, size_t n);
};

/* The ranks of an MPI job (mpirun, srun). `kind` is "openmpi" or "mpich"; NULL: the first whose
 * library and whose shim, fp8c_mpi_KIND.so beside libfp8c.so or in a folder fp8c there, are found.
 * MPI is initialized unless the process has done so, with MPI_THREAD_SERIALIZED: no other thread
 * may call MPI during a run. A process has one at a time; once one that initialized MPI is closed,
 * there is no other. The call waits until all ranks make it, without a limit of time. (fp8c train
 * has a thread that ends the process after --rank-timeout: frontend/train/ranks/joining.h.) If it
 * fails in this rank alone, MPI stays initialized, as the others may not be in MPI_Finalize: end
 * the process. FP8C_ERR_LIBRARY says what is missing, or what MPI says. */
typedef struct fp8c_mpi fp8c_mpi;
/* Fills *comm, whose struct_size the caller has set. It is valid until fp8c_mpi_close. */
FP8C_API fp8c_status fp8c_mpi_open(fp8c_context *ctx, const char *kind, fp8c_comm *comm,
                                   fp8c_mpi **out);
/* To be called when all programs that use it are gone. NULL: nothing. */
FP8C_API void fp8c_mpi_close(fp8c_mpi *mpi);
/* Ends all processes of the job, this one too: for a rank that fails while others wait for it. */
FP8C_API void fp8c_mpi_abort(fp8c_mpi *mpi, int exit_code);

/* The ranks' GPUs, one for each, joined by NCCL (libnccl.so.2, 2.14 or later; found as the other
 * libraries of NVIDIA are). NCCL moves the bytes of collectives from device to device; sums are
 * fp8c's own, as everywhere. One handle can serve many programs, one after the other, from one
 * thread at a time.
 *
 * How ranks find each other: `over`, another way to exchange bytes, such as MPI's, by which rank 0
 * sends what the others need. Or `id`, which rank 0 has from fp8c_nccl_id and the caller has
 * brought to the others. Or neither: then NCCL_COMM_ID is in the environment of all, HOST:PORT of a
 * free port of rank 0's machine.
 *
 * If a collective fails, or waits for longer than `seconds` because another rank is gone, the run
 * or the fp8c_program_wait fails with FP8C_ERR_LIBRARY, and so does every later use of the handle
 * and of programs with it. The message names the rank and the collective. Only fp8c's own waits
 * notice this: on the embedder's stream wait with fp8c_program_wait. */
typedef struct fp8c_nccl fp8c_nccl;
enum { FP8C_NCCL_ID = 128 };
typedef struct fp8c_nccl_options {
    size_t struct_size;    /* sizeof(fp8c_nccl_options) */
    int32_t device;        /* this rank's GPU, as `device` of fp8c_compile_options: programs must
                              have the same. Ranks of one machine have different ones */
    int32_t rank, ranks;   /* without `over` */
    const fp8c_comm *over; /* NULL: none */
    const void *id;        /* FP8C_NCCL_ID bytes, or NULL */
    double seconds;        /* the limit for joining, and for each collective; 0: 600 */
} fp8c_nccl_options;
/* Fill the FP8C_NCCL_ID bytes of `id`: one rank does. */
FP8C_API fp8c_status fp8c_nccl_id(fp8c_context *ctx, void *id);
/* Waits until all ranks call it, then fills *comm, whose struct_size the caller has set. It is
 * valid until fp8c_nccl_close. Its calls exchange host memory: those of `over`, which must live as
 * long, else through the GPUs. `over` and `comm` may be one struct. FP8C_ERR_LIBRARY says what is
 * missing, what NCCL says, or that the others have not joined within `seconds`. Then nothing is
 * left of this rank but, in the process that made the id, a thread of NCCL that listens for the
 * missing rank, with its socket: NCCL has no call that ends it. A process that was stopped itself,
 * as by a debugger, waits anew. The limit does not hold for `over`, whose all_gather is called
 * first and is the caller's own, and not with NCCL_COMM_BLOCKING=1 in the environment, by which
 * NCCL makes its calls wait. */
FP8C_API fp8c_status fp8c_nccl_open(fp8c_context *ctx, const fp8c_nccl_options *options,
                                    fp8c_comm *comm, fp8c_nccl **out);
/* To be called on all ranks, when all programs that use it are gone. What NCCL still has to end is
 * waited for under the limit `seconds`. NULL: nothing. */
FP8C_API void fp8c_nccl_close(fp8c_nccl *nccl);
/* For a rank that fails while others wait for it: their collectives fail, and all later ones. */
FP8C_API void fp8c_nccl_abort(fp8c_nccl *nccl);

/* ---- what ranks have and exchange ---- */

/* Whether the variables that every rank has whole (`rows` is 0) have the same bits on all ranks, as
 * they should after every `update`. All ranks call it together, after an update; it waits for the
 * runs before it, and costs a hash of these variables and an exchange of 16 bytes. FP8C_ERR_IO, on
 * all ranks: they do not. The message names the variable and the rank, with its host and device,
 * whose bits are not those of most ranks; of two ranks, both. A damaged memory is a cause, a device
 * that computes wrong, or an exchange. What ranks share (`zero`) has no second copy and can't be
 * compared. FP8C_OK where there is one rank. */
FP8C_API fp8c_status fp8c_program_check_ranks(fp8c_program *program);

#ifdef __cplusplus
}
#endif

#endif
