/* Steps of a training run once more: from a checkpoint of its folder, on the batches that it had.
 */
#ifndef F8_CMD_REPLAY_H
#define F8_CMD_REPLAY_H

#include "frontend/cli/cmd_folder.h"

typedef struct cli_replay {
    const cli *c;
    cli_folder *folder;
    cli_data *data;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program; /* NULL: none is open */
    const char *recipe;
    int micro_step, update;
    int64_t accumulate, at; /* at: steps that are done */
    int64_t passed_over;    /* checkpoints that could not be loaded */
    bool quiet;             /* says nothing of those */
    int64_t since;          /* earlier steps were trained under other conditions */
} cli_replay;

/* What a step gave. */
typedef struct cli_replayed {
    double loss, grad_norm;
    bool finite; /* both */
} cli_replayed;

/* What may differ from the run. */
typedef struct cli_replay_as {
    const char *recipe; /* NULL: the run's */
    const char *rule;   /* one more, as --rule takes it; NULL: none */
    double lr;          /* > 0: instead of the run's */
    bool witness;
    const char *stats; /* as in fp8c_compile_options; NULL: none */
} cli_replay_as;

/* Compiles the run's module. c, folder and data are set; the texts of `as` must outlive the replay.
 * false after a message on stderr. Close it in any case. */
bool cli_replay_open(cli_replay *r, const cli_replay_as *as);
void cli_replay_close(cli_replay *r);
/* Takes the values of the newest checkpoint before step `step`: r->at < step. false after a message
 * on stderr. */
bool cli_replay_load(cli_replay *r, int64_t step);
/* The same. false without a message: there is none. */
bool cli_replay_load_older(cli_replay *r, int64_t step);
/* Who looks on while a step is replayed; all may be NULL. */
typedef struct cli_replay_watch {
    bool judge;
    fp8c_witness_fn value;
    void (*begin)(void *user, int function, int64_t micro_step); /* before each function */
    void *user;
} cli_replay_watch;
/* Trains the next step, on the batch of the step `batch_of` (0: its own). NULL: nobody looks on.
 * false after a message on stderr. */
bool cli_replay_step(cli_replay *r, int64_t batch_of, const cli_replay_watch *watch,
                     cli_replayed *out);

#endif
