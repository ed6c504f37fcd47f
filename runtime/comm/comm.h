/* Communication between ranks: processes, or threads of one process, that run one plan together.
 *
 * An engine moves bytes and does no arithmetic: reductions are exchanges and kernels of ours
 * (passes/unit/collectives.h), so that their bits do not depend on the engine. Only where the user
 * asks for it (reduce_order "library") does an engine add, in an order of its own. Every rank makes
 * the same calls in the same order, from one thread at a time. A call returns when what was to be
 * received is there and what was sent may be overwritten. `send` and `receive` do not overlap. */
#ifndef F8_COMM_H
#define F8_COMM_H

#include "ir/base/status.h"
#include "ir/base/type.h"

#include <stdbool.h>
#include <stdint.h>

/* An exchange as others may want to know of it. */
typedef struct f8_exchange {
    const char *op;       /* one of f8_collective_name */
    const char *function; /* of the plan; NULL: it is between runs */
    const char *name;     /* of what is exchanged */
    int64_t bytes;        /* that each rank gets from each */
    uint64_t enqueued;    /* on a GPU: the number of the collective, from 1; else 0 */
} f8_exchange;

typedef struct f8_comm {
    int rank, ranks; /* this one, from 0; how many there are, 1 to F8_MAX_RANKS */
    void *user;
    /* receive[r * bytes..] = what rank r sends: `bytes` bytes of each. F8_ERR_LIBRARY: it failed,
     * and no further call can succeed. */
    f8_status (*all_gather)(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag);
    /* receive[r * bytes..] = send[rank * bytes..] of rank r. */
    f8_status (*all_to_all)(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag);
    /* Sums of f32 over the ranks, in an order of the engine's own. NULL: it can't add.
     * all_reduce: receive[..] = the sum of what the ranks send, `bytes` bytes of each */
    f8_status (*all_reduce)(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag);
    /* receive[..] = the sum of send[rank * bytes..] of all ranks, `bytes` bytes */
    f8_status (*reduce_scatter)(void *user, const void *send, void *receive, int64_t bytes,
                                f8_diag *diag);
    bool on_caller; /* calls come from the thread that runs the plan, which then waits for each */
    /* Called right before and right after each exchange, by the thread that makes it. May be NULL.
     */
    void (*observe)(void *user, const f8_exchange *x, bool ended);
} f8_comm;

typedef enum f8_collective {
    F8_COLLECTIVE_ALL_GATHER,
    F8_COLLECTIVE_ALL_TO_ALL,
    F8_COLLECTIVE_ALL_SLICE,
    F8_COLLECTIVE_ALL_REDUCE,
    F8_COLLECTIVE_REDUCE_SCATTER
} f8_collective;
enum { F8_COLLECTIVES = 5 };
extern const char *const f8_collective_name[F8_COLLECTIVES]; /* the ops' names */

/* What one collective does. ALL_GATHER and ALL_TO_ALL exchange `bytes` with each rank, this one
 * included: a rank sends and receives that many to and from each of the others. ALL_SLICE exchanges
 * nothing: of a whole of `whole` bytes, which every rank has, rank r copies `bytes` from r * bytes
 * on, and writes zeros for what lies past the end. Of ALL_REDUCE and REDUCE_SCATTER every rank gets
 * `bytes` of sums: the same ones, or those of its row. */
typedef struct f8_collective_desc {
    f8_collective kind;
    int32_t ranks;
    int64_t bytes;
    int64_t whole;  /* ALL_SLICE alone; else 0 */
    f8_dtype dtype; /* of the elements: for listings; f32 where the engine adds */
} f8_collective_desc;

/* Whether the engine adds: a sum of f32. */
bool f8_collective_adds(f8_collective kind);
/* Whether it exchanges bytes with other ranks, so that it may go on beside other steps. */
bool f8_collective_travels(f8_collective kind);

/* What a collective is called, for those who observe it: the plan's function, and the step's name.
 */
typedef struct f8_collective_label {
    const char *function, *name;
} f8_collective_label;

/* Does it. `comm` NULL stands for a rank that is alone. F8_ERR_INPUT: the ranks are not as many as
 * the collective has. */
f8_status f8_comm_run(const f8_comm *comm, const f8_collective_desc *d, f8_collective_label label,
                      const void *send, void *receive, f8_diag *diag);
/* An all_gather between runs. */
f8_status f8_comm_gather(const f8_comm *comm, const char *name, const void *send, void *receive,
                         int64_t bytes, f8_diag *diag);
/* The bytes of its operand and of its result. */
int64_t f8_collective_operand(const f8_collective_desc *d);
int64_t f8_collective_result(const f8_collective_desc *d);

#endif
