/* Who is missing while ranks join or leave. At these times there are no records that ranks could
 * read of each other (cmd_peers.h). Before MPI_Init has returned they can exchange nothing at all.
 *
 * A thread of each rank watches how long such a call takes. Its name says how far this rank has
 * come: "fp8c joins 2". The threads of other ranks see the name in /proc, and nothing is left of it
 * when the process ends. They find the ranks of this machine by the environment that the launcher
 * gave them, even a rank that has not begun yet. */
#ifndef F8_CMD_JOINING_H
#define F8_CMD_JOINING_H

#include "frontend/cli/cmd.h"

/* In the order in which ranks come to them. */
typedef enum cli_stage {
    CLI_BEGINS,
    CLI_JOINS_MPI,
    CLI_AGREES,
    CLI_JOINS_GPUS,
    CLI_MEETS,
    CLI_TRAINS, /* nothing is waited for here: cmd_peers.h watches */
    CLI_LEAVES
} cli_stage;

typedef struct cli_joining cli_joining;

/* Starts the thread. limit: how many seconds a stage may take; 0: any. NULL after a message on
 * stderr. */
cli_joining *cli_joining_begin(double limit);
void cli_joining_end(cli_joining *j); /* may be NULL, as in the calls below */
/* From here on this rank waits for the others, until cli_joining_done. */
void cli_joining_wait(cli_joining *j, cli_stage stage);
void cli_joining_done(cli_joining *j);
/* What ends the job once it is there; without it this process ends, and its launcher ends the
 * others. And where messages go, unless to stderr. */
void cli_joining_by(cli_joining *j, fp8c_mpi *mpi, int messages);

#endif
