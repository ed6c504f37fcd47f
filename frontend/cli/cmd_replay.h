/* A replay: steps of a training run are trained again, from a checkpoint of its folder, on the
 * batches that the run had. */
#ifndef F8_CMD_REPLAY_H
#define F8_CMD_REPLAY_H

#include "frontend/cli/cmd_stats.h"

typedef struct cli_replay cli_replay;
struct cli_replay {
    const cli *c;
    cli_folder *folder;
    f8_data *data;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program; /* NULL: none is open */
    const char *recipe, *rule; /* rule: one more than the run has; NULL: none */
    int micro_step, update;
    int64_t accumulate, at; /* at: the step after which the variables are */
    int64_t passed_over;    /* checkpoints that could not be loaded */
    bool quiet;             /* says nothing of those */
    bool same;              /* the checkpoint was written under this recipe, and no rule more */
    int64_t since;          /* steps up to this one were trained under other conditions */
    cli_stats watched;      /* which steps run micro_step.stats */
    int function;           /* what the last micro-step ran */
    /* Changes the inputs of `function`, which have batch number `batch` for step `step`. false
     * after a message on stderr. NULL: they stay as they are. */
    bool (*alter)(cli_replay *r, int function, int64_t step, uint64_t batch, void *user);
    void *user;
};

/* The results of a replayed step. */
typedef struct cli_replayed {
    double loss, grad_norm;
    bool finite; /* both */
} cli_replayed;

/* In what a replay may differ from the run. */
typedef struct cli_replay_as {
    const char *recipe; /* NULL: the run's */
    const char *rule;   /* one rule more, as --rule takes it; NULL: none */
    double lr, eps;     /* > 0: the optimizer's, instead of the run's */
    bool witness;
    const char *stats; /* as in fp8c_compile_options; NULL: none */
    int64_t every;     /* > 0: every so many steps run with them; else those that the run had so */
} cli_replay_as;

/* Compiles the run's module. The caller has set c, folder and data. The texts of `as` must outlive
 * the replay. false after a message on stderr. Close it in any case. */
bool cli_replay_open(cli_replay *r, const cli_replay_as *as);
void cli_replay_close(cli_replay *r);
/* Gives the variables the values of the newest checkpoint before step `step`, so r->at < step.
 * false after a message on stderr. */
bool cli_replay_load(cli_replay *r, int64_t step);
/* As cli_replay_load, but false without a message if there is no such checkpoint. */
bool cli_replay_load_older(cli_replay *r, int64_t step);
/* Callbacks while a step is replayed, and what they are given; all may be NULL. */
typedef struct cli_replay_watch {
    bool judge; /* as in fp8c_program_run_witnessed */
    fp8c_witness_fn value;
    void (*begin)(void *user, int function, int64_t micro_step); /* before each function */
    void *user;
} cli_replay_watch;
/* Trains the next step, on the batch of the step `batch_of` (0: its own). watch NULL: the functions
 * run without observation. false after a message on stderr. */
bool cli_replay_step(cli_replay *r, int64_t batch_of, const cli_replay_watch *watch,
                     cli_replayed *out);
/* Trains the steps up to `step`, each on its own batch and without observation. *out becomes what
 * the last of them gave; it stays as it is if none is left. false after a message on stderr. */
bool cli_replay_until(cli_replay *r, int64_t step, cli_replayed *out);

#endif
