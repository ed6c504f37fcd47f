/* What `fp8c train` watches: --stats and --dump. */
#ifndef F8_CMD_STATS_H
#define F8_CMD_STATS_H

#include "frontend/cli/cmd_folder.h"

enum { CLI_EVERY = 10 }; /* the default of --every */

typedef struct cli_stats {
    const cli *c;
    fp8c_program *program;
    int step, stats, dump; /* functions; -1: there is none */
    int64_t every;         /* --every */
    int64_t first, last;   /* the steps to dump; none if last < first */
} cli_stats;

/* Whether the options can be had together; a message on stderr says what can't. */
bool cli_stats_refused(const cli *c);
/* step: the function micro_step. The program must outlive *w. */
void cli_stats_begin(cli_stats *w, const cli *c, fp8c_program *program, int step);
/* The function that the last micro-step of optimizer step `step` (from 1) runs: micro_step, or one
 * that does the same and watches. */
int cli_stats_function(const cli_stats *w, int64_t step);
/* After `function` ran: writes what it saw, as records and into the run's folder. false after a
 * message on stderr, or if the records can't be written. */
bool cli_stats_record(cli_stats *w, int function, const char *recipe, uint64_t seed, int64_t step,
                      cli_json *json, cli_folder *folder);

#endif
