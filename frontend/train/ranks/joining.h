/* Who is missing while ranks join or leave. At these times there are no records that ranks could
 * read of each other (peers.h). Before MPI_Init has returned they can exchange nothing at all.
 *
 * A thread of each rank watches how long such a call takes. Its name says how far this rank has
 * come: "fp8c joins 2". The threads of other ranks see the name in /proc, and nothing is left of it
 * when the process ends. They find the ranks of this machine by the environment that the launcher
 * gave them, even a rank that has not begun yet. */
#ifndef F8_RANKS_JOINING_H
#define F8_RANKS_JOINING_H

#include "frontend/train/ranks/options.h"
#include "ir/base/status.h"

/* In the order in which ranks come to them. */
typedef enum f8_stage {
    F8_STAGE_BEGINS,
    F8_STAGE_JOINS_MPI,
    F8_STAGE_AGREES,
    F8_STAGE_JOINS_GPUS,
    F8_STAGE_MEETS,
    F8_STAGE_TRAINS, /* nothing is waited for here: peers.h watches */
    F8_STAGE_LEAVES
} f8_stage;

typedef struct f8_joining f8_joining;

/* Starts the thread. F8_ERR_MEMORY, F8_ERR_IO. */
f8_status f8_joining_begin(f8_joining **out, const f8_ranks_options *options, f8_diag *diag);
void f8_joining_end(f8_joining *j); /* may be NULL, as in the calls below */
/* From here on this rank waits for the others, until f8_joining_done. */
void f8_joining_wait(f8_joining *j, f8_stage stage);
void f8_joining_done(f8_joining *j);
/* What ends the job once it is there; without it this process ends, and its launcher ends the
 * others. */
void f8_joining_by(f8_joining *j, fp8c_mpi *mpi);

#endif
